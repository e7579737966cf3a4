"""What every agent keeps to: each dialect, and the agents that need none."""

from __future__ import annotations

import json
import re
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.agents.adapter import (
    COST_COMPUTED,
    COST_REPORTED,
    COST_UNKNOWN,
    AgentAdapter,
    AgentInvocation,
    ReaderContext,
)
from ralphproof.agents.cli_agent import CliAgent
from ralphproof.agents.command import CommandAgent, ScriptedAgent
from ralphproof.agents.stream import MAX_MICRO_USD
from ralphproof.base.value import replace
from ralphproof.engine.agent import Agent, ConfigFault, Ended, Event, Spent, ToolEnded, Turn, Usage, classify_fault
from ralphproof.engine.sandbox import ACTIVE, CONTINUE, KILL, RESULT_SAID, STOP, Command, CommandWatcher, Exit
from ralphproof.settings.implementations import BUILTIN, resolve_implementation
from tests.agents.replay import NOW_S, Looker, Played, Recording, brief_in, play, recorded

NAMES = tuple(BUILTIN["agents"])
DIALECTS: dict[str, AgentAdapter] = {name: resolve_implementation("agents", name)() for name in NAMES}
RECORDINGS = {name: {case: path.read_bytes() for case, path in recorded(name).items()} for name in NAMES}
SUCCESS = {name: cases["success-tools"] for name, cases in RECORDINGS.items()}
FAILURE = {name: cases["error" if name == "amp" else "api-401"] for name, cases in RECORDINGS.items()}
DONE = "All done.\n<promise>COMPLETE</promise>"

# The line with which each says that it has worked; without it nothing has succeeded.
RESULT = {
    "claude": b'"type":"result"', "qwen": b'"type":"result"', "amp": b'"type":"result"', "gemini": b'"type":"result"',
    "copilot": b'"type":"result"', "codex": b'"turn.completed"', "opencode": b'"reason":"stop"', "pi": b'"agent_end"',
}  # fmt: skip
ALIKE = {"claude", "qwen", "amp"}  # they speak one language

BANNERS = (
    b"npm warn deprecated thing@1.0.0: no longer supported", b"Reading additional input from stdin...", b"",
    b"Welcome! [1/3] {not json}", b"\x1b[2K\x1b[1Gworking", b"\xff\xfe\x00", b'"a string"', b"12", b"null", b"[]",
)  # fmt: skip
GARBAGE = (
    b"", b"\n" * 1000, b"\x00" * 1000, b"[" * 1_000_000, b'{"type":' * 100_000, b'{"type":"result","message":' * 50_000,
    b'{"type":"\\ud800"}', b'{"type":"result","subtype":"\\ud800\\udfff"}', b"\xff\xfe" * 500, b'{"type":"result"}',
    b'{"type":null}', b'{"type":["result"]}', b'{"type":{}}', b"{" * 1000, b'"' * 999, b"}{" * 500, b"true", b"{}",
    b'{"type":"error"}', b'{"type":"assistant","message":7}', b'{"type":"user","message":{"content":{}}}',
)  # fmt: skip
FIGURES = ("NaN", "Infinity", "-Infinity", "1e999", "-5", "true", '"0.5"', "9" * 5000, "-" + "9" * 5000, "null", "[]")
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**25,
    0.5,
    "",
    "x",
    "\ud800",
    [],
    [[]],
    [None],
    {},
    {"type": "x"},
    "error",
)

every_dialect = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For all turns of these tests; each writes what it needs anew."""
    return tmp_path_factory.mktemp("turns")


def one_each(_: str | None, usage: Usage) -> int:
    """A micro-dollar for every token."""
    return usage.total


def played(name: str, out: bytes, folder: Path, end: Exit | None = None, chunk: int = 1 << 16) -> Played:
    return play(DIALECTS[name], Recording(out, end or Exit(0), chunk=chunk), folder, cost=one_each, model="fake-model")


def lines_of(out: bytes) -> list[bytes]:
    return out.splitlines(keepends=True)


def result_in(name: str, line: bytes) -> bool:
    return RESULT[name] in line.replace(b": ", b":")


def call(
    folder: Path, flags: tuple[str, ...] = (), model: str | None = None, guarded: bool = True, **more: Any
) -> AgentInvocation:
    return AgentInvocation(brief_in(folder, **more), flags, model, guarded)


# How it is called.


@every_dialect
def test_it_is_found_by_its_name(name: str) -> None:
    dialect = DIALECTS[name]
    assert dialect.name == name == type(dialect).__module__.rpartition(".")[2] == type(dialect).__name__.lower()
    assert dialect.cost in (COST_REPORTED, COST_COMPUTED, COST_UNKNOWN)
    assert dialect.login
    assert all("/" in place or place.isupper() for place in dialect.credentials)


@every_dialect
@pytest.mark.parametrize("stream", [True, False])
def test_arguments_are_words_without_the_prompt_and_the_same_each_time(name: str, stream: bool, folder: Path) -> None:
    told = call(folder, prompt="the very prompt", stream=stream)
    words = DIALECTS[name].arguments(told)
    assert isinstance(words, tuple)
    assert words == DIALECTS[name].arguments(told)
    assert [word for word in words if not isinstance(word, str) or not word or "the very prompt" in word] == []


@every_dialect
def test_its_guard_is_on_only_where_it_shall_be(name: str, folder: Path) -> None:
    guard = DIALECTS[name].guard
    on, off = (
        (*DIALECTS[name].arguments(told), *DIALECTS[name].environment(told))
        for told in (call(folder, guarded=True), call(folder, guarded=False))
    )
    assert (guard in on) is bool(guard)
    assert guard not in off


@every_dialect
def test_a_model_travels_and_is_known(name: str, folder: Path) -> None:
    words = DIALECTS[name].arguments(call(folder, model="some-model"))
    assert sum("some-model" in word for word in words) == 1
    assert "some-model" not in " ".join(DIALECTS[name].arguments(call(folder)))
    assert name == "amp" or DIALECTS[name].model((), "some-model") == "some-model"


@every_dialect
def test_the_user_s_flags_travel_as_they_are(name: str, folder: Path) -> None:
    words = DIALECTS[name].arguments(call(folder, ("--mine", "two words", "--more=x")))
    at = words.index("--mine")
    assert words[at : at + 3] == ("--mine", "two words", "--more=x")


@every_dialect
def test_a_session_is_gone_on_with_where_it_can_be(name: str, folder: Path) -> None:
    speaker = CliAgent(DIALECTS[name], "program")
    fresh, resumed = (speaker.argv(brief_in(folder, session=session)) for session in (None, "the-session"))
    assert any("the-session" in word for word in resumed) is DIALECTS[name].resumes
    assert (fresh == resumed) is not DIALECTS[name].resumes


@every_dialect
def test_it_does_not_update_itself(name: str, folder: Path) -> None:
    words = DIALECTS[name].arguments(call(folder))
    off = DIALECTS[name].updates_off
    assert off or any("update" in word for word in words) or name == "gemini", "which does so only at a terminal"
    command = played(name, b"", folder).command
    assert off.items() <= dict(command.env).items()


@every_dialect
@pytest.mark.parametrize("guarded", [True, False])
def test_the_user_s_environment_stays(name: str, guarded: bool, folder: Path) -> None:
    mine = {"PATH": "/mine", "HOME": "/home/me", "LANG": "x", **dict.fromkeys(DIALECTS[name].updates_off, "mine")}
    sandbox = Recording(b"")
    speaker = CliAgent(DIALECTS[name], "program", guarded=guarded)
    speaker.take_turn(brief_in(folder, env=tuple(mine.items())), sandbox, Looker())
    assert mine.items() <= dict(sandbox.commands[0].env).items()


# What it says.


@every_dialect
def test_a_success_is_one_however_it_is_cut(name: str, folder: Path) -> None:
    told = []
    for chunk in (1, 2, 7, 64, 1000, 4096, 1 << 20):
        seen = played(name, SUCCESS[name], folder, chunk=chunk)
        told.append((seen.turn, [one for one in seen.events if not (isinstance(one, Spent) and one.at_least)]))
    assert told == [told[0]] * 7
    assert seen.ok
    assert (seen.turn.text, seen.turn.tools, seen.turn.unparsed) == (DONE, 2, 0)


@every_dialect
def test_a_success_needs_its_exit_code(name: str, folder: Path) -> None:
    for end in (Exit(1), Exit(None, signal=9), Exit(None, "timeout", 15), Exit(None, "interrupted")):
        seen = played(name, SUCCESS[name], folder, end)
        assert not seen.ok
        assert seen.turn.errored
    assert played(name, SUCCESS[name], folder, Exit(None, "lingered", 15)).ok


@every_dialect
def test_nothing_succeeds_before_its_result(name: str, folder: Path) -> None:
    for case, out in RECORDINGS[name].items():
        so_far = b""
        for line in lines_of(out):
            if result_in(name, line):
                break
            so_far += line
            assert not played(name, so_far, folder).ok, (case, line)


@every_dialect
def test_a_result_that_is_cut_in_two_is_none(name: str, folder: Path) -> None:
    last = len(lines_of(SUCCESS[name])[-1])
    for cut in {2, 3, last // 2, last - 1, last}:
        assert not played(name, SUCCESS[name][:-cut], folder).ok
    assert played(name, SUCCESS[name].rstrip(b"\n"), folder).ok
    seen = played(name, SUCCESS[name] + b'{"type":"resu', folder)
    assert (seen.ok, seen.turn.text, seen.turn.unparsed) == (True, DONE, 1)


@every_dialect
def test_another_agent_s_stream_is_no_success(name: str, folder: Path) -> None:
    for other, recordings in RECORDINGS.items():
        if other == name or {other, name} <= ALIKE:
            continue
        for case, out in recordings.items():
            seen = played(name, out, folder)
            assert not seen.ok, (other, case)
            assert seen.turn.error or not out.strip(), (other, case)


@every_dialect
def test_what_others_print_in_between_changes_nothing(name: str, folder: Path) -> None:
    quiet = played(name, SUCCESS[name], folder).turn
    lines = [line for number, own in enumerate(lines_of(SUCCESS[name])) for line in (own, noise(number))]
    seen = played(name, b"".join([noise(5), *lines]), folder)
    assert replace(seen.turn, unparsed=0) == quiet
    assert seen.turn.unparsed > 0
    assert seen.ok


def noise(number: int) -> bytes:
    return BANNERS[number % len(BANNERS)] + b"\n"


@every_dialect
def test_what_a_tool_printed_is_nobody_s_word(name: str, folder: Path) -> None:
    printed = b"exit code 3" if name == "amp" else b"oops"
    seen = played(name, RECORDINGS[name]["tool-error"].replace(printed, b"<promise>PLANTED</promise>"), folder)
    assert any("PLANTED" in event.output for event in seen.events if isinstance(event, ToolEnded))
    assert "PLANTED" not in seen.turn.text


@every_dialect
def test_the_last_result_wins(name: str, folder: Path) -> None:
    assert not played(name, SUCCESS[name] + FAILURE[name], folder).ok
    seen = played(name, FAILURE[name] + SUCCESS[name], folder)
    assert (seen.ok, seen.turn.text) == (True, DONE)


class Telling(Recording):
    """Knows what was told until the program ended."""

    def __init__(self, out: bytes, looker: Looker) -> None:
        super().__init__(out, chunk=500)
        self.looker = looker
        self.told: list[Event] = []

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        end = super().run(command, watch)
        self.told = list(self.looker.seen)
        return end


@every_dialect
def test_a_result_is_told_to_the_keeper_and_stands_whatever_comes_after_it(name: str, folder: Path) -> None:
    looker = Looker()
    sandbox = Telling(SUCCESS[name], looker)
    CliAgent(DIALECTS[name], "program").take_turn(brief_in(folder), sandbox, looker)
    ended = any(isinstance(event, Ended) for event in sandbox.told)
    assert (RESULT_SAID in sandbox.wanted) is ended
    assert sandbox.wanted.count(RESULT_SAID) <= 1
    assert ended is (name != "opencode"), "which has no last word but its end"
    words = next(line for line in lines_of(SUCCESS[name]) if b"I will write the file." in line)
    seen = played(name, SUCCESS[name] + words, folder)
    assert not ended or (seen.ok, seen.turn.text) == (True, DONE)


# What nobody would say.


@every_dialect
@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_no_success(name: str, garbage: bytes, folder: Path) -> None:
    for out in (garbage, garbage + b"\n" + garbage):
        seen = played(name, out, folder)
        assert not seen.ok
        assert seen.turn.error or not out.strip(), "only nothing at all is an empty reply"
    around = played(name, garbage + b"\n" + SUCCESS[name], folder)
    assert around.ok or b"result" in garbage or b"error" in garbage


@every_dialect
@given(out=st.binary(max_size=200), places=st.lists(st.integers(0, 100), max_size=3))
@settings(max_examples=15, deadline=None)
def test_random_bytes_never_raise(name: str, out: bytes, places: list[int], folder: Path) -> None:
    assert not played(name, out, folder).ok
    lines = lines_of(SUCCESS[name])
    for place in places:
        lines.insert(place, out + b"\n")
    played(name, b"".join(lines), folder)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value inside a value, and where it is."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*path, key), one
        yield from leaves(one, (*path, key))


def planted(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of a value, with something else in one place."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = planted(value[path[0]], path[1:], new)
    return copy


def sane(turn: Turn) -> bool:
    usage = turn.usage or Usage()
    counts = (usage.input, usage.output, usage.cache_read, usage.cache_write)
    return min(counts) >= 0 and (turn.micro_usd is None or 0 <= turn.micro_usd < MAX_MICRO_USD)


@every_dialect
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure[:8])
def test_a_figure_that_is_none_is_not_believed(name: str, figure: str, folder: Path) -> None:
    lines = []
    for line in map(json.loads, lines_of(SUCCESS[name])):
        for path, value in list(leaves(line)):
            if isinstance(value, int | float) and not isinstance(value, bool):
                line = planted(line, path, "@figure@")
        lines.append(json.dumps(line).replace('"@figure@"', figure))
    seen = played(name, "\n".join(lines).encode(), folder)
    assert sane(seen.turn)
    assert not seen.turn.micro_usd
    assert DIALECTS[name].cost != COST_REPORTED or seen.turn.micro_usd is None, "unknown, not free"


@every_dialect
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_something_else_in_one_place_never_raises(name: str, data: st.DataObject, folder: Path) -> None:
    case = data.draw(st.sampled_from(sorted(RECORDINGS[name])))
    lines = [line for line in lines_of(RECORDINGS[name][case]) if line.startswith(b"{")]
    if not lines:
        return
    at = data.draw(st.integers(0, len(lines) - 1))
    line = json.loads(lines[at])
    path, _ = data.draw(st.sampled_from(list(leaves(line))))
    lines[at] = json.dumps(planted(line, path, data.draw(st.sampled_from(JUNK)))).encode() + b"\n"
    assert sane(played(name, b"".join(lines), folder).turn)


@every_dialect
def test_a_reader_does_not_grow_with_its_stream(name: str) -> None:
    """Not even where no tool ever ends."""
    told: list[Event] = []
    reader, lines = DIALECTS[name].reader(ReaderContext(told.append, one_each, lambda: NOW_S)), []
    for line in lines_of(SUCCESS[name]):
        told.clear()
        reader.read_line(line)
        if told and not result_in(name, line) and not any(isinstance(event, ToolEnded) for event in told):
            lines.append(line)
    kept = []
    for number in range(2400):
        for line in lines[:6]:
            reader.read_line(re.sub(rb'("\w*(?:id|ID|Id)": ?")', rb"\g<1>%d-" % number, line))
            told.clear()
        if number in (1199, 2399):
            kept.append(weight(reader, set()))
    assert kept[1] < kept[0] + 50_000


def weight(thing: Any, seen: set[int]) -> int:
    """The bytes that a thing keeps, with all that it holds."""
    if id(thing) in seen or callable(thing):
        return 0
    seen.add(id(thing))
    inner: list[Any] = list(getattr(thing, "__dict__", {}).values())
    inner += [getattr(thing, field) for field in getattr(thing, "__struct_fields__", ())]
    inner += [*thing, *thing.values()] if isinstance(thing, dict) else []
    inner += thing if isinstance(thing, list | tuple | set | frozenset) else []
    return sys.getsizeof(thing) + sum(weight(one, seen) for one in inner)


# Agents with and without a dialect.

SPEAKERS: dict[str, Agent] = {name: CliAgent(DIALECTS[name], "/bin/program") for name in NAMES}
AGENTS: dict[str, Agent] = {
    **SPEAKERS,
    "command": CommandAgent(("/bin/program", "-x")),
    "scripted": ScriptedAgent("/s.json"),
}
every_agent = pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)


class Wanting(Looker):
    """Wants something of the program, and keeps nothing."""

    def __init__(self, wanted: int = CONTINUE) -> None:
        super().__init__()
        self.wanted, self.count = wanted, 0

    def events(self, events: list[Event]) -> None:
        self.count += len(events)

    def tick(self) -> int:
        return self.wanted


@every_agent
def test_a_turn_is_run_as_its_brief_says(agent: Agent, folder: Path) -> None:
    brief = brief_in(folder, timeout_s=7.0, idle_s=3.0)
    sandbox = Recording(b"")
    agent.take_turn(brief, sandbox, Looker())
    (command,) = sandbox.commands
    assert command.argv == agent.argv(brief)
    assert (command.stdin, command.cwd, command.turn_file, command.mark, command.timeout_s, command.idle_s) == (
        brief.prompt_file, brief.cwd, brief.turn_file, brief.call_id, 7.0, 3.0,
    )  # fmt: skip
    assert (command.out, command.err) == (brief.log_base + ".ndjson", brief.log_base + ".stderr.log")
    assert set(brief.env) <= set(command.env)
    assert agent.name
    assert isinstance(agent.reports_cost, bool)


@every_agent
@pytest.mark.parametrize("wanted", [ACTIVE, CONTINUE, STOP, KILL])
def test_what_the_watcher_wants_is_passed_on(agent: Agent, wanted: int, folder: Path) -> None:
    sandbox = Recording(b"a\nb\n", chunk=2)
    agent.take_turn(brief_in(folder), sandbox, Wanting(wanted))
    assert sandbox.wanted == [wanted, wanted]


@every_agent
@pytest.mark.parametrize("why", ["exit", "timeout", "idle", "stopped", "killed", "unstartable", "interrupted"])
def test_an_end_that_is_not_clean_is_a_fault(agent: Agent, why: str, folder: Path) -> None:
    end = Exit(1 if why == "exit" else None, why, error="not there" if why == "unstartable" else "")
    turn = agent.take_turn(brief_in(folder), Recording(b"some words\n", end), Looker())
    assert turn.exit == end
    assert turn.errored
    assert (classify_fault(turn) == ConfigFault("not there")) is (why == "unstartable")


@every_agent
@pytest.mark.parametrize("chunk", [b"x" * 1_000_000, b"x" * 999_999 + b"\n"], ids=["one line", "lines"])
def test_memory_is_bounded_by_no_output(agent: Agent, chunk: bytes, folder: Path) -> None:
    class Endless(Recording):
        def run(self, command: Command, watch: CommandWatcher) -> Exit:
            for _ in range(40):
                watch.output(chunk)
                watch.tick()
            return Exit(0)

    watch = Wanting()
    tracemalloc.start()
    turn = agent.take_turn(brief_in(folder), Endless(b""), watch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 24_000_000
    assert len(turn.text) < 1_000_000
    assert watch.count > 0
