"""Amp 0.0.1790142911: its stream is told as it was meant, and it is called as it wants to be called.

It works only with its own server, so its streams here were written by hand: they follow its documented contract.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.adapter import AgentInvocation
from ralphproof.agents.amp import Amp
from ralphproof.base.value import replace
from ralphproof.engine.agent import (
    THE_CONFIGURATION,
    THE_SERVICE,
    AgentFault,
    ConfigFault,
    Event,
    Fault,
    Said,
    ServiceFault,
    Spent,
    Todo,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    Turn,
    Usage,
)
from ralphproof.engine.sandbox import Exit
from tests.agents.replay import Played, Recording, brief_in, cuts, play, recorded

RECORDINGS = recorded("amp")
OK, FAILED = Exit(0), Exit(1)
THREAD = "T-01a1e2c0-7a11-7f3e-9c55-2d6f0b8e4a10"
NO_SERVER = "Error: API request for getUserInfo failed: 404\n"


def turn(text: str = "", usage: Usage | None = None, exit: Exit = OK, **more: Any) -> Turn:
    """It names no model, so its tokens have no price."""
    return Turn(exit, text, session=THREAD, usage=usage, micro_usd=None, **more)


@dataclass(frozen=True)
class Case:
    """What a recording means. `turn` has no error: that is in `says`."""

    turn: Turn
    fault: type[Fault] | None = None
    says: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    todos: tuple[tuple[Todo, ...], ...] = ()
    err: str = ""
    empty: bool = False


CASES = {
    # It worked. The result's own account: 1000 + 200 + 100, 50 + 40 + 20, 800 + 1810 + 2010, 10.
    "success-tools": Case(
        turn("All done.\n<promise>COMPLETE</promise>", Usage(1300, 110, 4620, 10), tools=2),
        tools=("create_file /workspace/proj/hello.txt", "Bash cat hello.txt"),
    ),
    "tool-error": Case(
        turn("It failed.", Usage(1100, 70, 2610, 10), tools=1, errors=1), tools=("Bash exit 3",)
    ),
    "todo": Case(
        turn("Half done.", Usage(1100, 70, 2610, 10), tools=2), tools=("TodoWrite", "TodoWrite"),
        todos=(
            (Todo("Read the file", "active"), Todo("Run tests", "pending")),
            (Todo("Read the file", "done"), Todo("Run tests", "active")),
        ),
    ),
    # Without an account in the result its messages are added up; without any the tokens are unknown, never 0.
    "result-without-account": Case(turn("2 + 2 equals 4.", Usage(9, 8, 12416, 367))),
    "no-account-at-all": Case(turn("Done.")),
    # What the prompt and a helper say is no claim. The helper's tokens count: 1000 + 10 + 100, 50 + 5 + 20.
    "helper-and-echo": Case(
        turn("The helper is done, I am not.", Usage(1110, 75, 2610, 10), tools=1), tools=("Task look",)
    ),
    "empty": Case(turn("", Usage(1000, 1)), empty=True),
    # It cannot work with these settings: it waits for a person to log in, or has no credit.
    "login": Case(
        Turn(OK, blame=THE_CONFIGURATION, unparsed=3), ConfigFault,
        ("amp is not logged in", "it asks somebody to log in", "run `amp login`, or set AMP_API_KEY"),
    ),
    "out-of-credits": Case(
        turn(exit=FAILED, blame=THE_CONFIGURATION), ConfigFault, ("amp has no credit left", "Insufficient credits")
    ),
    # The service is down.
    "error": Case(turn("", Usage(1000, 50, 800, 10), FAILED, blame=THE_SERVICE), ServiceFault, ("Overloaded",)),
    # Its own work failed.
    "cut-off": Case(
        turn("I begin.", Usage(1000, 50, 800, 10), at_least=True, tools=1), AgentFault,
        ("exit code 0 and without its result",), ("Bash make",),
    ),
    "no-server": Case(
        Turn(FAILED), AgentFault, ("exit code 1 and without its result", "getUserInfo failed: 404"), err=NO_SERVER
    ),
}  # fmt: skip


def price(model: str | None, usage: Usage) -> int | None:
    return usage.total if model is not None else None


def played(name: str, folder: Path, **more: Any) -> Played:
    case = CASES[name]
    return play(Amp(), Recording(RECORDINGS[name].read_bytes(), case.turn.exit, case.err), folder, cost=price, **more)


def events_of(seen: Played, *kinds: type[Event]) -> list[Any]:
    return [event for event in seen.events if isinstance(event, kinds)]


def test_every_recording_is_told() -> None:
    assert set(CASES) == set(RECORDINGS)


@pytest.mark.parametrize("name", CASES)
def test_a_recording_means_this(name: str, tmp_path: Path) -> None:
    case, seen = CASES[name], played(name, tmp_path)
    assert replace(seen.turn, error=None) == case.turn
    assert (type(seen.fault) if seen.fault else None) is case.fault
    assert seen.ok is (case.fault is None and not case.empty)
    assert seen.turn.empty is case.empty
    assert [part for part in case.says if part not in getattr(seen.fault, "message", "")] == []
    started = [f"{event.name} {event.summary}".strip() for event in events_of(seen, ToolStarted)]
    assert tuple(started) == case.tools
    assert tuple(event.items for event in events_of(seen, TodosChanged)) == case.todos


@pytest.mark.parametrize("name", CASES)
def test_it_does_not_matter_where_the_stream_is_cut(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    told = []
    for recording in cuts(RECORDINGS[name].read_bytes(), case.turn.exit, case.err):
        seen = play(Amp(), recording, tmp_path, cost=price)
        told.append((seen.turn, [event for event in seen.events if not isinstance(event, Spent)]))
    assert told == [told[0]] * len(told)


def test_tools_are_told_with_what_they_printed(tmp_path: Path) -> None:
    assert events_of(played("tool-error", tmp_path), ToolStarted, ToolEnded) == [
        ToolStarted("toolu_1", "Bash", "exit 3"), ToolEnded("toolu_1", False, "exit code 3", 1, 11)
    ]  # fmt: skip


def test_only_the_agent_itself_is_heard(tmp_path: Path) -> None:
    said = events_of(played("helper-and-echo", tmp_path), Said)
    assert said == [Said("The helper is done, I am not.")]


def test_what_comes_by_is_counted_until_the_result_accounts_for_it(tmp_path: Path) -> None:
    lines = RECORDINGS["success-tools"].read_bytes().splitlines(keepends=True)
    seen = play(Amp(), Recording(b"".join(lines), chunk=max(map(len, lines))), tmp_path, cost=price)
    live = events_of(seen, Spent)
    assert [event.at_least for event in live] == [True] * (len(live) - 1) + [False]
    seen = play(Amp(), Recording(b"".join(lines[:-1]), Exit(None, signal=9)), tmp_path, cost=price)
    assert seen.turn.spent == Spent(None, Usage(1300, 110, 4620, 10), at_least=True)


def test_a_question_for_a_login_ends_the_wait(tmp_path: Path) -> None:
    assert played("login", tmp_path).said_result


def test_a_model_that_is_named_gives_its_tokens_a_price(tmp_path: Path) -> None:
    out = RECORDINGS["result-without-account"].read_bytes().replace(b'"role": "assistant"', b'"model": "m"')
    # 9 + 8 + 12416 + 367 tokens at a micro-dollar
    assert play(Amp(), Recording(out), tmp_path, cost=price).turn.micro_usd == 12_800


def test_tokens_that_nobody_counted_cost_what_nobody_knows(tmp_path: Path) -> None:
    message = b'{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"Done."}],"usage":%s}}\n'
    result = b'{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"T"%s}\n'
    for usage in (b"null", b"{}", b'{"input_tokens":0,"output_tokens":0}'):
        for account in (b"", b',"usage":{}', b',"usage":null,"total_cost_usd":0'):
            seen = play(Amp(), Recording(message % usage + result % account), tmp_path, cost=price)
            assert (seen.ok, seen.turn.spent) == (True, Spent(None)), (usage, account)


@pytest.mark.parametrize(
    ("more", "arguments"),
    [
        ({}, ("--dangerously-allow-all", "--stream-json", "-x")),
        ({"guarded": True}, ("--stream-json", "-x")),
        ({"stream": False}, ("--dangerously-allow-all", "--stream-json", "-x")),
        ({"model": "rush"}, ("--dangerously-allow-all", "--mode", "rush", "--stream-json", "-x")),
        # It is not known to go on with a thread.
        ({"session": THREAD}, ("--dangerously-allow-all", "--stream-json", "-x")),
        (
            {"flags": ("--no-color", "--dangerously-allow-all")},
            ("--no-color", "--dangerously-allow-all", "--stream-json", "-x"),
        ),
        # A word after -x would be the prompt.
        ({"flags": ("-x", "--no-ide")}, ("--no-ide", "--dangerously-allow-all", "--stream-json", "-x")),
        ({"flags": ("--execute",), "guarded": True}, ("--stream-json", "-x")),
    ],
)
def test_it_is_called_with(more: dict[str, Any], arguments: tuple[str, ...], tmp_path: Path) -> None:
    brief = brief_in(tmp_path, stream=more.get("stream", True), session=more.get("session"))
    call = AgentInvocation(brief, more.get("flags", ()), more.get("model"), more.get("guarded", False))
    assert Amp().arguments(call) == arguments
    assert Amp().environment(call) == {}
    assert Amp().model(call.flags, call.model) is None


def test_it_does_not_update_itself(tmp_path: Path) -> None:
    assert dict(played("success-tools", tmp_path).command.env)["AMP_SKIP_UPDATE_CHECK"] == "1"
