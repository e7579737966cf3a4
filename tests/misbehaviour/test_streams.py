"""Streams that are too long, too deep, torn, full of strangers, or no text: what can be read of them is read."""

from __future__ import annotations

import json
import time

import pytest

from tests.misbehaviour.agents import TAG, case, heard, prompt
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.streams import (
    Line,
    Play,
    call,
    called,
    done,
    init,
    item,
    log,
    message,
    patient,
    plays,
    replies,
    result,
    run,
    says,
    text,
    turn,
)
from tests.misbehaviour.test_output import MIB, resident
from tests.ralph import TIMEOUT_S, Ended, Ralph


def watched(ralph: Ralph, agent: str) -> tuple[Ended, int]:
    """A run of one iteration that ends within its time, and the most memory that it took."""
    live = ralph.start("run", "-p", "make it so", "--agent", agent, "--check", "true", "-m", "1")
    peak, deadline = 0, time.monotonic() + TIMEOUT_S
    while live.process.poll() is None:
        assert time.monotonic() < deadline, "it takes for ever"
        peak = max(peak, resident(live.process.pid))
        time.sleep(0.01)
    ended = live.end()
    hold(ralph, ended)
    return ended, peak


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_after_a_gigantic_line_the_next_one_is_read(ralph: Ralph, agent: str) -> None:
    """RU-16: in bounded memory."""
    plays(ralph, agent, Play(turn(agent, final=TAG), does=f"head -c {40 * MIB} /dev/zero | tr '\\0' x; echo"))
    ended, peak = watched(ralph, agent)
    (reply,) = replies(ralph)
    assert (ended.code, heard(ralph), reply.unparsed) == (0, ["DONE"], 1), ended
    assert reply.exit.out_bytes > 40 * MIB
    assert peak < 80 * MIB


@pytest.mark.parametrize(
    ("mib", "code"), [case("RU-16-within-the-bound", 15, 0), case("RU-16-beyond-the-bound", 17, 1)]
)
def test_a_result_as_long_as_a_line_may_be_is_read(ralph: Ralph, mib: int, code: int) -> None:
    """RU-16: a longer one is none, and the turn has failed for want of it."""
    plays(ralph, "claude", [init(), result("x" * (mib * MIB) + f"\n{TAG}")])
    ended, _ = watched(ralph, "claude")
    (reply,) = replies(ralph)
    assert (ended.code, reply.unparsed, reply.errored) == (code, code, bool(code)), ended
    assert "without its result" in str(reply.error) or not code


NOISE = b"\x00\xff\xfe\x80\xc3\x28\xed\xa0\x80"  # no text in any encoding that we know


def test_bytes_that_are_no_text_cost_themselves_alone(ralph: Ralph) -> None:
    """RU-18: between the lines, and inside of them."""
    inside = json.dumps(result(f"so NOISE\n{TAG}")).encode().replace(b"NOISE", NOISE)
    plays(ralph, "claude", [NOISE, init(), NOISE, says("so"), inside, NOISE])
    ended = run(ralph, "claude")
    (reply,) = replies(ralph)
    assert (ended.code, heard(ralph), reply.unparsed) == (0, ["DONE"], 3), ended
    assert log(ralph).count(NOISE) == 4, "raw"
    assert ralph("logs").code == ralph("status").code == 0


def test_a_letter_that_comes_in_two_reads_is_one_letter(ralph: Ralph) -> None:
    """RU-19: of four bytes, in the middle of which the agent rests."""
    words = f"So 🦜.\n{TAG}"
    stream = ralph.folder / "stream"
    stream.write_bytes("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in done(words)).encode())
    half = stream.read_bytes().index("🦜".encode()) + 2
    does = f"head -c {half} {stream}; sleep 0.3; tail -c +{half + 1} {stream}"
    plays(ralph, "claude", Play([], does=does, end=b""))
    ended = run(ralph, "claude")
    assert (ended.code, replies(ralph)[0].text) == (0, words), ended
    assert "So 🦜." in ended.err


def deep(opening: str, closing: str) -> str:
    return opening * 100_000 + closing * 100_000


@pytest.mark.parametrize(
    ("agent", "line"),
    [
        case("RU-22-list", "claude", deep("[", "]")),
        case("RU-22-event", "claude", f'{{"type": "assistant", "message": {deep("[", "]")}}}'),
        case("RU-22-unknown-part", "claude", f'{{"type": "assistant", "extra": {deep("[", "]")}}}'),
        case("RU-22-unclosed", "claude", '{"type":' * 100_000),
        case("RU-22-arguments", "claude", json.dumps(message(call("Bash", x=7))).replace("7", deep('{"a":[', "]}"))),
        case("RU-22-output", "claude", json.dumps(called(7)).replace("7", deep("[", "]"))),
        case("RU-22-codex", "codex", json.dumps(item("todo_list", items=7)).replace("7", deep("[", "]"))),
        case("RU-22-gemini", "gemini", f'{{"type": "tool_use", "tool_name": "x", "parameters": {deep("[", "]")}}}'),
    ],
)  # fmt: skip
def test_what_is_nested_too_deep_is_not_understood_and_does_no_harm(ralph: Ralph, agent: str, line: str) -> None:
    """RU-22"""
    plays(ralph, agent, turn(agent, line, final=TAG))
    ended = run(ralph, agent)
    assert (ended.code, heard(ralph), replies(ralph)[0].unparsed) == (0, ["DONE"], 1), ended


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_half_a_last_line_takes_nothing_back(ralph: Ralph, agent: str) -> None:
    """RU-23"""
    half = json.dumps(turn(agent)[-1])[:-9]
    plays(ralph, agent, Play([*turn(agent, final=TAG), half], end=b""))
    ended = run(ralph, agent)
    assert (ended.code, heard(ralph), replies(ralph)[0].unparsed) == (0, ["DONE"], 1), ended


def test_half_a_letter_stops_nothing(ralph: Ralph) -> None:
    """RU-25: wherever it stands, on its way into the record, the next prompt and onto the screen."""
    half = "\ud800"
    strange: list[Line] = [
        init(session_id=half, model=half),
        message(text(half), call(half, command=half)),
        called(half),
        result(f"is it {half}?", permission_denials=[{"tool_name": f"Tool{half}", "tool_use_id": half}]),
    ]
    plays(ralph, "claude", strange, done(f"{half}\n{TAG}"))
    ended = run(ralph, "claude", most=2)
    assert (ended.code, heard(ralph)) == (0, [None, "DONE"]), ended
    assert "were not permitted; do the work without them:\n- Tool" in prompt(ralph, 2)
    assert b"\\ud800" in log(ralph), "raw"
    assert ralph("logs", "--iteration", "1").code == ralph("status", "--json").code == 0


def test_words_on_standard_error_in_the_middle_of_a_line_tear_nothing(ralph: Ralph) -> None:
    """RU-26"""
    stream = ralph.folder / "stream"
    stream.write_bytes(Play(done()).out)
    half = stream.stat().st_size - 40
    does = f"head -c {half} {stream}; echo 'warning: {{\"type\":' >&2; tail -c +{half + 1} {stream}"
    plays(ralph, "claude", Play([], does=does, end=b""))
    ended = run(ralph, "claude")
    assert (ended.code, heard(ralph), replies(ralph)[0].unparsed) == (0, ["DONE"], 0), ended
    assert log(ralph) == stream.read_bytes()
    assert log(ralph, "agent_001.stderr.log") == b'warning: {"type":\n'


# What nobody knows: (agent, lines, how many of them are not understood).
STRANGE: dict[str, tuple[list[Line], int]] = {
    "claude": (
        [
            {"type": "assistant", "message": {"id": "m-1", "content": None}},
            {"type": "assistant", "message": {"id": "m-1", "content": TAG}},
            {"type": "assistant", "message": {"id": "m-1", "content": [{"type": "hologram", "text": TAG}]}},
            {"type": "assistant", "message": None},
            {"type": "assistant"},
            {"type": "user", "message": {"content": [{"type": "hologram"}]}},
            {"type": "system", "subtype": "aurora"},
            {"type": "hologram", "result": TAG},
            {"type": 7},
            {},
            "[]",
            "7",
            "null",
        ],
        6,
    ),
    "codex": (
        [
            item("hologram", text=TAG),
            {"type": "item.completed", "item": None},
            item("agent_message", text=None),
            item("agent_message", text=[TAG]),
            {"type": "hologram"},
            item("command_execution", command=None, aggregated_output=None),
        ],
        5,
    ),
    "gemini": (
        [
            {"type": "message", "role": "assistant", "content": None},
            {"type": "message", "role": "assistant", "content": [TAG]},
            {"type": "message", "role": "hologram", "content": TAG},
            {"type": "hologram", "content": TAG},
            {"type": "tool_result", "tool_id": None, "status": None},
        ],
        1,
    ),
}


@pytest.mark.parametrize("agent", STRANGE)
def test_events_that_nobody_knows_are_counted_and_passed_over(ralph: Ralph, agent: str) -> None:
    """RU-27"""
    lines, unknown = STRANGE[agent]
    plays(ralph, agent, turn(agent, *lines), turn(agent, final=TAG))
    ended = run(ralph, agent, most=2)
    assert (ended.code, heard(ralph)) == (0, [None, "DONE"]), ended
    first = replies(ralph)[0]
    assert (first.error, first.text, first.unparsed) == (None, "working", unknown)
    assert f"lines not understood: {unknown}" in ended.err


BANNERS = (
    "npm warn exec The following package was not found and will be installed: agent",
    "Reading additional input from stdin...", "", "{not json}", "\x1b[1mA new version is available!\x1b[0m",
)  # fmt: skip


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "opencode", "copilot", "pi", "qwen", "amp"])
def test_lines_before_the_stream_are_no_obstacle(ralph: Ralph, agent: str) -> None:
    """RU-28: they are in the log, and counted."""
    plays(ralph, agent, [*BANNERS, *turn(agent, final=TAG)])
    ended = run(ralph, agent)
    assert (ended.code, heard(ralph), replies(ralph)[0].unparsed) == (0, ["DONE"], 4), ended
    assert log(ralph).startswith(BANNERS[0].encode())


def test_two_hundred_thousand_events_are_read_in_bounded_memory(ralph: Ralph) -> None:
    """RU-29"""
    count = 200_000
    line = json.dumps(says("one more", "m-%d")).replace('"', '\\"')
    does = f"awk 'BEGIN {{ for (n = 0; n < {count}; n++) printf \"{line}\\n\", n }}'"
    plays(ralph, "claude", Play(done(), does=does))
    ended, peak = watched(ralph, "claude")
    (reply,) = replies(ralph)
    assert (ended.code, heard(ralph), reply.unparsed) == (0, ["DONE"], 0), ended
    assert reply.exit.out_bytes > count * 90
    assert peak < 80 * MIB


def test_a_stream_of_nothing_but_strangers_has_no_result(ralph: Ralph) -> None:
    """RU-27: and ends soon; what was printed is named as what it is not."""
    patient(ralph)
    plays(ralph, "claude", turn("codex", final=TAG), turn("gemini", final=TAG), turn("pi", final=TAG), [TAG])
    ended = run(ralph, "claude", most=4)
    assert (ended.code, heard(ralph)) == (1, [None] * 4), ended
    assert all(reply.error for reply in replies(ralph))
    assert "is not what claude prints" in prompt(ralph, 2)


@pytest.mark.parametrize("agent", ["claude", "codex"])
@pytest.mark.parametrize("begun", [True, False], ids=["began alone", "nothing"])
def test_a_stream_without_a_word_is_an_empty_reply(ralph: Ralph, agent: str, begun: bool) -> None:
    """It is asked for again, three times in a row at most, and costs no iteration."""
    first = [turn(agent)[0]] if begun else []
    plays(ralph, agent, first)
    ended = run(ralph, agent, most=9)
    outcome = ralph.outcome()
    assert (ended.code, outcome["reason"], outcome["iterations"]) == (1, "EMPTY_REPLIES", 1), ended
    assert len(replies(ralph)) == 4
