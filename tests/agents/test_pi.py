"""pi 0.73.1: what it printed is told as it was meant, and it is called as it wants to be called."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.adapter import AgentInvocation
from ralphproof.agents.pi import Pi
from ralphproof.base.value import replace
from ralphproof.engine.agent import (
    THE_CONFIGURATION,
    THE_SERVICE,
    AgentFault,
    ConfigFault,
    Ended,
    Event,
    Fault,
    Limited,
    Progress,
    Said,
    ServiceFault,
    Spent,
    ToolEnded,
    ToolStarted,
    Turn,
    Usage,
)
from ralphproof.engine.sandbox import Exit
from tests.agents.replay import NOW_S, Played, Recording, brief_in, cuts, play, recorded

RECORDINGS = recorded("pi")
OK, FAILED = Exit(0), Exit(1)
BLAME = {AgentFault: "", ConfigFault: THE_CONFIGURATION, ServiceFault: THE_SERVICE}
AN_ID = "01a1e1ab-31bd-7703-8ee1-77a8e5546684"
NO_KEY = (
    "No API key found for the selected model.\n\nUse /login to log into a provider via OAuth or API key. See:\n"
    "  /opt/pi/docs/providers.md\n  /opt/pi/docs/models.md\n"
)


def older(messages: int) -> dict[str, Any]:
    """Messages of 200 tokens, 800 from the cache, 50 written, at $5, $0.50 and $25 a million: its own figure.

    200 × 5 + 800 × 0.5 + 50 × 25 = 1000 + 400 + 1250 = 2650 micro-dollars
    """
    return {"usage": Usage(200 * messages, 50 * messages, 800 * messages), "micro_usd": 2650 * messages}


# 1010 × 5 + 800 × 0.5 + 50 × 25 = 5050 + 400 + 1250 = 6700 micro-dollars
NEWER = {"usage": Usage(1010, 50, 800), "micro_usd": 6700}


def turn(session: str, text: str = "", **more: Any) -> Turn:
    return Turn(OK, text, session=session, model="fake-model", **more)


@dataclass(frozen=True)
class Case:
    """What a recording means. `turn` has the last six letters of the session and no error: that is in `says`."""

    turn: Turn
    fault: type[Fault] | None = None
    says: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    progress: tuple[str, ...] = ()
    err: str = ""
    empty: bool = False


def refused(session: str, fault: type[Fault], *says: str, **more: Any) -> Case:
    """A turn that came to nothing, and yet its exit code was 0."""
    progress = more.pop("progress", ())
    told = {"blame": BLAME[fault], "usage": Usage(), "micro_usd": 0, **more}
    return Case(turn(session, **told), fault, says, progress=progress)


def retries(message: str) -> tuple[str, ...]:
    return tuple(f"service error ({message}), retry {n} of 3 in {2**n} s" for n in (1, 2, 3))


CASES = {
    # It worked.
    "success-tools": Case(
        turn("7ef9e2", "All done.\n<promise>COMPLETE</promise>", tools=2, **older(3)),
        tools=("write hello.txt", "bash cat hello.txt && echo shell-ran > ran.txt"),
    ),
    "tool-error": Case(
        turn("93d54c", "Failed.\n<promise>COMPLETE</promise>", tools=1, errors=1, **older(2)),
        tools=("bash echo oops >&2; exit 3",),
    ),
    "resumed": Case(turn("546684", "It was plum.", **NEWER)),
    # It knows no price of its model and says 0: ours is a micro-dollar a token, 1010 + 800 + 50.
    "unpriced": Case(turn("2885bf", "Done.", usage=Usage(1010, 50, 800), micro_usd=1860)),
    # It ended well and said nothing.
    "empty": Case(turn("a06e11", **older(1)), empty=True),
    # It cannot work with these settings.
    "api-401": refused(
        "c89119", ConfigFault, "pi is not logged in", "401 Incorrect API key provided", "type /login",
        "ANTHROPIC_API_KEY",
    ),
    "api-402": refused("49e29e", ConfigFault, "no credit left", "402 Insufficient credits"),
    "api-404-model": refused("42c78d", ConfigFault, "does not know its model", "`fake-model` does not exist"),
    "no-key": Case(
        Turn(FAILED, blame=THE_CONFIGURATION), ConfigFault, ("No API key found for the selected model",), err=NO_KEY
    ),
    # The service is limited or down.
    "api-429": refused(
        "bfd9a4", ServiceFault, "429 Rate limit reached",
        limited=Limited("429 Rate limit reached. Please try again in 1s.", NOW_S + 1),
        progress=retries("429 Rate limit reached. Please try again in 1s."),
    ),
    "api-500": refused("38de91", ServiceFault, "500 boom", progress=retries("500 boom")),
    "api-529": refused("346ce5", ServiceFault, "529 Overloaded", progress=retries("529 Overloaded")),
    # Its own work failed.
    "api-400": refused("bdd74c", AgentFault, "400 messages.3: something is wrong"),
    "api-400-too-long": refused(
        "f738b4", AgentFault, "grew too long", "maximum context length is 128000 tokens", at_least=True,
        progress=("the context is summed up",),
    ),
    "cut-off": Case(turn("4b278f", "half an answ", **NEWER), AgentFault, ("cut off at its greatest length",)),
}  # fmt: skip


def price(model: str | None, usage: Usage) -> int | None:
    """A micro-dollar a token, for the one model that is known."""
    return usage.total if model == "fake-model" else None


def played(name: str, folder: Path, **more: Any) -> Played:
    case = CASES[name]
    return play(Pi(), Recording(RECORDINGS[name].read_bytes(), case.turn.exit, case.err), folder, cost=price, **more)


def events_of(seen: Played, *kinds: type[Event]) -> list[Any]:
    return [event for event in seen.events if isinstance(event, kinds)]


def heard(lines: list[dict[str, Any]], folder: Path, exit: Exit = OK) -> Played:
    out = "".join(json.dumps(line) + "\n" for line in lines)
    return play(Pi(), Recording(out.encode(), exit), folder, cost=price)


def message(text: str = "", stop: str | None = "stop", **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}] if text else []
    usage = {"input": 100, "output": 10, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": 0.001}}
    said = {"role": "assistant", "content": content, "model": "fake-model", "usage": usage, "stopReason": stop}
    return {"type": "message_end", "message": {**said, **more}}


END = {"type": "agent_end", "messages": []}


def test_every_recording_is_told() -> None:
    assert set(CASES) == set(RECORDINGS)


@pytest.mark.parametrize("name", CASES)
def test_a_recording_means_this(name: str, tmp_path: Path) -> None:
    case, seen = CASES[name], played(name, tmp_path)
    session = seen.turn.session[-6:] if seen.turn.session else None
    assert replace(seen.turn, error=None, session=session) == case.turn
    assert (type(seen.fault) if seen.fault else None) is case.fault
    assert seen.ok is (case.fault is None and not case.empty)
    assert seen.turn.empty is case.empty
    assert [part for part in case.says if part not in getattr(seen.fault, "message", "")] == []
    started = [f"{event.name} {event.summary}".strip() for event in events_of(seen, ToolStarted)]
    assert tuple(started) == case.tools
    assert tuple(event.text for event in events_of(seen, Progress)) == case.progress


@pytest.mark.parametrize("name", CASES)
def test_it_does_not_matter_where_the_stream_is_cut(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    out = RECORDINGS[name].read_bytes()
    told = [play(Pi(), recording, tmp_path, cost=price) for recording in cuts(out, case.turn.exit, case.err)]
    assert [(seen.turn, seen.events) for seen in told] == [(told[0].turn, told[0].events)] * len(told)


def test_tools_are_told_with_what_they_printed(tmp_path: Path) -> None:
    begun, ended = events_of(played("tool-error", tmp_path), ToolStarted, ToolEnded)
    assert begun == ToolStarted(begun.id, "bash", "echo oops >&2; exit 3")
    assert ended == ToolEnded(begun.id, False, "oops\n\n\nCommand exited with code 3", 4, 33)


def test_a_message_is_told_and_counted_once(tmp_path: Path) -> None:
    seen = played("success-tools", tmp_path)
    assert [event.text for event in events_of(seen, Said)] == [
        "I will write the file.", "Now run it.", "All done.\n<promise>COMPLETE</promise>"
    ]  # fmt: skip
    live = [(event.micro_usd, event.at_least) for event in events_of(seen, Spent)]
    assert live == [(2650, True), (5300, True), (7950, True), (7950, False)]


def test_a_session_that_is_gone_on_with_is_not_billed_again(tmp_path: Path) -> None:
    before = Spent(6700, Usage(1010, 50, 800))
    assert played("resumed", tmp_path, session=AN_ID, billed=before).turn.spent == before


def test_a_turn_that_is_ended_before_its_result_has_failed(tmp_path: Path) -> None:
    lines = RECORDINGS["success-tools"].read_bytes().splitlines(keepends=True)
    assert lines[-1].startswith(b'{"type":"agent_end"')
    seen = play(Pi(), Recording(b"".join(lines[:-1])), tmp_path)
    assert (seen.ok, seen.turn.error) == (False, "the agent ended with exit code 0 and without its result")
    assert seen.turn.spent == Spent(7950, Usage(600, 150, 2400), at_least=True)


def test_an_error_that_it_gets_over_is_none(tmp_path: Path) -> None:
    failed = message(stop="error", errorMessage="500 boom")
    again = {"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 2000, "errorMessage": "500 boom"}
    over = {"type": "auto_retry_end", "success": True, "attempt": 1}
    seen = heard([failed, END, again, message("Done."), over, END], tmp_path)
    assert (seen.ok, seen.turn.text) == (True, "Done.")
    assert len(events_of(seen, Ended)) == 1


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([message("Done."), END], True),
        ([message(stop="aborted"), END], True),
        # Whether it tries again is not known yet.
        ([message(stop="error", errorMessage="500 boom"), END], False),
        (
            [message(stop="error", errorMessage="500 boom"), END, {"type": "auto_retry_end", "success": False}],
            True,
        ),
    ],
)
def test_it_has_said_its_result_once_it_cannot_try_again(
    lines: list[dict[str, Any]], said: bool, tmp_path: Path
) -> None:
    seen = heard(lines, tmp_path)
    assert seen.said_result is said
    assert len(events_of(seen, Ended)) >= 1


@pytest.mark.parametrize(
    ("stop", "error"),
    [
        ("aborted", "the agent reported aborted"),
        ("toolUse", "the agent stopped after a tool call and said no last word"),
        ("refusal", "the model stopped: refusal"),
        ("", "the model stopped: no reason was told"),
        (None, "the model stopped: no reason was told"),
    ],
)
def test_a_message_that_did_not_stop_by_itself_is_no_success(stop: str | None, error: str, tmp_path: Path) -> None:
    seen = heard([message("<promise>COMPLETE</promise>", stop=stop), END], tmp_path)
    assert (seen.ok, seen.turn.error) == (False, error)
    assert events_of(seen, Ended) == [Ended(False, "<promise>COMPLETE</promise>", error)]


@pytest.mark.parametrize(
    ("more", "spent"),
    [
        ({}, Spent(1000, Usage(100, 10))),
        ({"provider": "openai-codex"}, Spent(1000, Usage(100, 10), notional=True)),
        ({"usage": {"input": 100, "output": 10, "cost": {"total": -1}}}, Spent(None, Usage(100, 10))),
        ({"usage": {"input": 100, "output": 10}}, Spent(None, Usage(100, 10))),
        ({"usage": {"input": "many", "output": 10, "cost": {"total": 0.002}}}, Spent(2000, Usage(0, 10))),
        ({"usage": {"input": 100, "cost": {"total": 0}}, "model": "nobody-knows"}, Spent(None, Usage(100))),
        # What was used and not counted is unknown, and not nothing; only a call that failed may have cost nothing.
        ({"usage": None}, Spent(None, Usage())),
        ({"usage": {"input": 0, "cost": {"total": 0}}}, Spent(None, Usage())),
        ({"usage": {}, "stopReason": "length"}, Spent(None, Usage())),
        ({"usage": None, "stopReason": "error"}, Spent(None, Usage())),
        ({"usage": {"input": 0, "cost": {"total": 0}}, "stopReason": "error"}, Spent(0, Usage())),
    ],
)
def test_a_message_costs(more: dict[str, Any], spent: Spent, tmp_path: Path) -> None:
    assert heard([message("Done.", **more), END], tmp_path).turn.spent == spent


def test_what_is_unknown_of_one_message_makes_the_whole_cost_unknown(tmp_path: Path) -> None:
    seen = heard([message(usage={"input": 100}), message("Done."), END], tmp_path)
    assert seen.turn.spent == Spent(None, Usage(200, 10))
    seen = heard([message("Well.", usage=None), message("Done."), END], tmp_path)
    assert seen.turn.spent == Spent(None, Usage(100, 10))


def test_what_summing_up_the_context_costs_is_not_told(tmp_path: Path) -> None:
    lines = [message("Done."), END, {"type": "compaction_start", "reason": "threshold"}]
    assert heard(lines, tmp_path).turn.spent == Spent(1000, Usage(100, 10), at_least=True)


@pytest.mark.parametrize("line", [b"Hello", b'{"type":"weather"}', b'{"type":"message_end","message":7}', b"{}"])
def test_a_line_that_is_none_of_its_own_is_kept_and_disturbs_nothing(line: bytes, tmp_path: Path) -> None:
    out = RECORDINGS["success-tools"].read_bytes()
    seen = play(Pi(), Recording(line + b"\n" + out), tmp_path, cost=price)
    assert replace(seen.turn, unparsed=0) == played("success-tools", tmp_path).turn
    assert seen.turn.unparsed == 1


JSON = ("--mode", "json")


@pytest.mark.parametrize(
    ("more", "arguments"),
    [
        ({}, ("-p", *JSON)),
        ({"guarded": True}, ("-p", *JSON)),
        ({"stream": False}, ("-p", *JSON)),
        ({"model": "openai/gpt-5.5:high"}, ("-p", "--model", "openai/gpt-5.5:high", *JSON)),
        ({"session": AN_ID}, ("-p", "--session", AN_ID, *JSON)),
        ({"flags": ("--provider", "openai")}, ("-p", "--provider", "openai", *JSON)),
        ({"flags": ("-p", "--thinking", "high")}, ("-p", "--thinking", "high", *JSON)),
        (
            {"flags": ("--model", "a"), "model": "b", "session": AN_ID},
            ("-p", "--model", "b", "--session", AN_ID, *JSON),
        ),
    ],
)
def test_it_is_called_with(more: dict[str, Any], arguments: tuple[str, ...], tmp_path: Path) -> None:
    brief = brief_in(tmp_path, stream=more.get("stream", True), session=more.get("session"))
    call = AgentInvocation(brief, more.get("flags", ()), more.get("model"), more.get("guarded", False))
    assert Pi().arguments(call) == arguments
    assert Pi().environment(call) == {}


@pytest.mark.parametrize(
    ("flags", "model", "used"),
    [((), None, None), ((), "b", "b"), (("--model=a",), None, "a"), (("--model", "a"), "b", "b")],
)
def test_the_model_is_that_of_the_settings_else_of_the_flags(
    flags: tuple[str, ...], model: str | None, used: str | None
) -> None:
    assert Pi().model(flags, model) == used


def test_it_does_not_look_for_updates_or_tell_of_itself(tmp_path: Path) -> None:
    env = dict(played("success-tools", tmp_path).command.env)
    assert (env["PI_SKIP_VERSION_CHECK"], env["PI_TELEMETRY"]) == ("1", "0")
