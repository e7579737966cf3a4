"""Copilot CLI 1.0.102: what it printed is told as it was meant, and it is called as it wants to be called."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.adapter import AgentInvocation, ReaderContext
from ralphproof.agents.cli_agent import CliAgent
from ralphproof.agents.copilot import Copilot
from ralphproof.base.value import replace
from ralphproof.engine.agent import (
    THE_CONFIGURATION,
    THE_SERVICE,
    AgentFault,
    Asked,
    ConfigFault,
    Denied,
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

RECORDINGS = recorded("copilot")
OK, FAILED = Exit(0), Exit(1)
DONE = "All done.\n<promise>COMPLETE</promise>"
BLAME = {AgentFault: "", ConfigFault: THE_CONFIGURATION, ServiceFault: THE_SERVICE}
AN_ID = "6c45237b-c868-41ab-b270-80d5926a454b"
LIMIT = Limited("Rate limit reached. Please try again in 1s.", NOW_S + 1)
NOBODY = "Permission denied because no interactive user response was available"
EXTRACTED = "Package extraction took 5745ms\n"
LOGIN = "run `copilot login`, or set COPILOT_GITHUB_TOKEN"
NOT_LOGGED_IN = """\
Error: No authentication information found.

Copilot can be authenticated with GitHub using an OAuth Token or a Fine-Grained Personal Access Token.

To authenticate, you can use any of the following methods:
  • Start 'copilot' and run the '/login' command
  • Set the COPILOT_GITHUB_TOKEN, GH_TOKEN, or GITHUB_TOKEN environment variable
  • Run 'gh auth login' to authenticate with the GitHub CLI
"""
UNKNOWN_FLAG = """\
error: unexpected argument '--frobnicate' found

Usage: copilot --output-format <format> --no-auto-update

For more information, try '--help'.
"""


def turn(session: str | None, text: str = "", exit: Exit = OK, **more: Any) -> Turn:
    """Of tokens and cost it says nothing."""
    return Turn(exit, text, session=session, model="fake-model", **more)


@dataclass(frozen=True)
class Case:
    """What a recording means. `turn` has the first eight letters of the session and no error: that is in `says`."""

    turn: Turn
    fault: type[Fault] | None = None
    says: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    progress: tuple[str, ...] = ()
    err: str = ""


def refused(session: str, fault: type[Fault], *says: str, retried: tuple[str, ...] = (), err: str = "") -> Case:
    """A turn that came to nothing."""
    return Case(turn(session, exit=FAILED, blame=BLAME[fault]), fault, says, progress=retried, err=err)


def retries(status: int, count: int) -> tuple[str, ...]:
    return tuple(f"service error ({status}), retry {number}" for number in range(1, count + 1))


CASES = {
    # It worked.
    "success-tools": Case(
        turn("fffd4a70", DONE, tools=2), err=EXTRACTED,
        tools=("create hello.txt", "bash cat hello.txt && echo shell-ran > ran.txt"),
    ),
    "tool-error": Case(
        turn("b1a54a10", "Failed.\n<promise>COMPLETE</promise>", tools=1, errors=1), err=EXTRACTED,
        tools=("bash echo oops >&2; exit 3",),
    ),
    "resumed": Case(turn("6c45237b", "It was plum.")),
    # What a helper says is no claim of the agent's.
    "helper": Case(turn("7b6b1954", "The helper said hi.", tools=1), tools=("task look",)),
    # Nobody is asked: what was not permitted is denied. With its guard on, edits are permitted, and looking around.
    "denied": Case(
        turn("2b00ae7a", DONE, tools=2, errors=2, denied=(
            f"create: hello.txt: {NOBODY}", f"bash: cat hello.txt && echo ran > ran.txt: {NOBODY}",
        )),
        tools=("create hello.txt", "bash cat hello.txt && echo ran > ran.txt"),
    ),
    "guarded": Case(
        turn("a0205e13", "The tests could not be run.", tools=4, errors=2, denied=(
            f"bash: make test: {NOBODY}", f"create: /elsewhere.txt: {NOBODY}",
        )),
        tools=("create hello.txt", "bash ls", "bash make test", "create /elsewhere.txt"),
    ),
    "asked": Case(
        turn("bd082a8a", "Then red.", tools=1, errors=1, asked="Which colour?"), tools=("ask_user Which colour?",)
    ),
    # It cannot work with these settings.
    "api-401": refused(
        "ff2e82d6", ConfigFault, "not logged in", "(HTTP 401)", "COPILOT_PROVIDER_API_KEY", LOGIN,
        retried=retries(401, 2),
    ),
    "api-402": refused("b3e6953b", ConfigFault, "no credit left", "402 Payment required"),
    # A limit by its type and status, but by its code an empty account.
    "api-429-quota": refused(
        "d3c49278", ConfigFault, "no credit left", "429 You exceeded your current quota", retried=retries(429, 5)
    ),
    "api-404-model": refused("c982ec85", ConfigFault, "does not know its model", "Model 'fake-model' not found"),
    "not-logged-in": Case(
        Turn(FAILED, blame=THE_CONFIGURATION), ConfigFault, ("No authentication information found", LOGIN),
        err=NOT_LOGGED_IN,
    ),
    "unknown-flag": Case(
        Turn(FAILED, blame=THE_CONFIGURATION), ConfigFault, ("'--frobnicate'",),
        err=UNKNOWN_FLAG,
    ),
    # The service is limited or down.
    "api-429": Case(
        turn(None, exit=Exit(None, why="timeout", signal=15), limited=LIMIT), ServiceFault,
        (LIMIT.message.rstrip("."),), progress=retries(429, 3), err=EXTRACTED,
    ),
    "api-500": refused("44e20356", ServiceFault, "500 boom", retried=retries(500, 5), err=EXTRACTED),
    "api-529": refused("470c996e", ServiceFault, "529 Overloaded", retried=retries(529, 5)),
    # Its own work failed.
    "api-400-too-long": refused("d3f52cf6", AgentFault, "grew too long", "maximum context length is 128000 tokens"),
    "empty": refused("9e040887", AgentFault, "No response was returned."),
}  # fmt: skip


def played(name: str, folder: Path, **more: Any) -> Played:
    case = CASES[name]
    return play(Copilot(), Recording(RECORDINGS[name].read_bytes(), case.turn.exit, case.err), folder, **more)


def events_of(seen: Played, *kinds: type[Event]) -> list[Any]:
    return [event for event in seen.events if isinstance(event, kinds)]


def heard(lines: list[dict[str, Any]], folder: Path, exit: Exit = OK) -> Played:
    out = "".join(json.dumps(line) + "\n" for line in lines)
    return play(Copilot(), Recording(out.encode(), exit), folder)


def says(content: str, **more: Any) -> dict[str, Any]:
    return {"type": "assistant.message", "data": {"model": "m", "content": content, **more}}


def error(message: str, kind: str, status: int | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "session.error", "data": {"errorType": kind, "message": message, "statusCode": status}, **more}


def call_failure(status: int, **more: Any) -> dict[str, Any]:
    return {"type": "model.call_failure", "data": {"statusCode": status, **more}}


def result(code: int, requests: float = 0) -> dict[str, Any]:
    return {"type": "result", "sessionId": "s", "exitCode": code, "usage": {"premiumRequests": requests}}


def test_every_recording_is_told() -> None:
    assert set(CASES) == set(RECORDINGS)


@pytest.mark.parametrize("name", CASES)
def test_a_recording_means_this(name: str, tmp_path: Path) -> None:
    case, seen = CASES[name], played(name, tmp_path)
    session = seen.turn.session[:8] if seen.turn.session else None
    assert replace(seen.turn, error=None, session=session) == case.turn
    assert (type(seen.fault) if seen.fault else None) is case.fault
    assert seen.ok is (case.fault is None)
    assert [part for part in case.says if part not in getattr(seen.fault, "message", "")] == []
    started = [f"{event.name} {event.summary}".strip() for event in events_of(seen, ToolStarted)]
    assert tuple(started) == case.tools
    assert tuple(event.text for event in events_of(seen, Progress)) == case.progress


@pytest.mark.parametrize("name", CASES)
def test_it_does_not_matter_where_the_stream_is_cut(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    out = RECORDINGS[name].read_bytes()
    told = [play(Copilot(), recording, tmp_path) for recording in cuts(out, case.turn.exit, case.err)]
    assert [(seen.turn, seen.events) for seen in told] == [(told[0].turn, told[0].events)] * len(told)


@pytest.mark.parametrize("name", [name for name in CASES if RECORDINGS[name].read_bytes().find(b'"type":"result"') > 0])
def test_its_result_is_said_once(name: str, tmp_path: Path) -> None:
    seen = played(name, tmp_path)
    assert seen.said_result
    structured = [event for event in events_of(seen, Ended) if event.blame or event.ok]
    assert len(structured) <= 1


def test_tools_are_told_with_what_they_printed(tmp_path: Path) -> None:
    begun, ended = events_of(played("tool-error", tmp_path), ToolStarted, ToolEnded)
    assert begun == ToolStarted(begun.id, "bash", "echo oops >&2; exit 3")
    # The tool succeeded in running a command that failed.
    assert ended == ToolEnded(begun.id, False, "oops\n<shellId: 0 completed with exit code 3>", 2, 44)


def test_a_call_that_is_denied_has_ended_badly(tmp_path: Path) -> None:
    events = events_of(played("denied", tmp_path), ToolStarted, ToolEnded, Denied)
    assert [type(event) for event in events] == [ToolStarted, ToolEnded, Denied] * 2
    assert [event.ok for event in events if isinstance(event, ToolEnded)] == [False, False]


def test_only_the_agent_itself_is_heard(tmp_path: Path) -> None:
    said = [event.text for event in events_of(played("helper", tmp_path), Said)]
    assert said == ["I delegate.", "The helper said hi."]


def test_a_message_in_pieces_is_one_message(tmp_path: Path) -> None:
    pieces = [says("All is ", chunkIndex=0, chunkCount=2), says("done.", chunkIndex=1, chunkCount=2)]
    assert heard([says("Before."), *pieces, result(0)], tmp_path).turn.text == "All is done."


def test_a_message_without_end_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    pieces = [says("x" * 100_000, chunkIndex=number) for number in range(1, 31)]
    lines = [says("first ", chunkIndex=0), *pieces, says(" last", chunkIndex=31), result(0)]
    told: list[Event] = []
    reader = Copilot().reader(ReaderContext(told.append, lambda *_: None, lambda: NOW_S))
    for line in lines:
        reader.read_line(json.dumps(line).encode())
    ended = told[-1]
    assert isinstance(ended, Ended)
    assert (ended.text or "").startswith("first x")
    assert (ended.text or "").endswith("x last")
    assert len(ended.text or "") < 2_000_000


def test_an_error_that_it_gets_over_is_none(tmp_path: Path) -> None:
    seen = heard([call_failure(500), error("boom", "query", 500), says("Done."), result(0)], tmp_path)
    assert (seen.ok, seen.turn.text) == (True, "Done.")


@pytest.mark.parametrize(
    "lines",
    [
        [says("Done."), error("no", "query"), result(0)],
        *([says("Done."), {**result(0), "exitCode": code}] for code in (1, False, None, "0", 0.0)),
    ],
)
def test_neither_an_error_nor_its_exit_code_is_overlooked(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    seen = heard(lines, tmp_path)
    assert (seen.ok, type(seen.fault)) == (False, AgentFault)


def test_an_error_of_a_helper_is_not_the_agents(tmp_path: Path) -> None:
    assert heard([says("Done."), error("boom", "query", 500, agentId="helper"), result(0)], tmp_path).ok


@pytest.mark.parametrize(
    ("lines", "fault", "limited"),
    [
        ([error("Not allowed", "authorization")], ConfigFault, None),
        ([error("None left", "quota")], ConfigFault, None),
        ([error("Too long", "context_limit")], AgentFault, None),
        (
            [error("Slow down; try again in 2 hours", "rate_limit")],
            ServiceFault, Limited("Slow down; try again in 2 hours", NOW_S + 7200),
        ),
        ([error("Bad gateway", "query", 502)], ServiceFault, None),
        ([error("Who knows", "query", 400)], AgentFault, None),
        ([call_failure(400, errorCode="model_not_supported"), error("No", "query", 400)], ConfigFault, None),
        ([call_failure(429, errorType="insufficient_quota"), error("No", "rate_limit", 429)], ConfigFault, None),
        # What a call that got through has cleared up is no more.
        ([call_failure(400, errorCode="model_not_found"), says("Well."), error("No", "query", 400)], AgentFault, None),
        ([call_failure(429, errorMessage="not JSON"), error("No", "query", 503)], ServiceFault, Limited("not JSON")),
    ],
)  # fmt: skip
def test_whose_fault_it_is(
    lines: list[dict[str, Any]], fault: type[Fault], limited: Limited | None, tmp_path: Path
) -> None:
    seen = heard([*lines, result(1)], tmp_path, FAILED)
    assert (type(seen.fault), seen.turn.limited) == (fault, limited)


def test_what_it_asks_of_its_user_is_told(tmp_path: Path) -> None:
    assert events_of(played("asked", tmp_path), Asked) == [Asked("Which colour?")]


def test_premium_requests_and_warnings_are_told(tmp_path: Path) -> None:
    warning = {"type": "session.warning", "data": {"warningType": "policy", "message": "Mind  the gap"}}
    seen = heard([warning, says("Done."), result(0, 1.5)], tmp_path)
    assert [event.text for event in events_of(seen, Progress)] == ["Mind the gap", "premium requests used: 1.5"]


def test_what_it_costs_is_unknown(tmp_path: Path) -> None:
    seen = played("success-tools", tmp_path, cost=lambda *_: 1)
    assert (seen.turn.spent, events_of(seen, Spent)) == (Spent(None), [])
    assert not CliAgent(Copilot(), "copilot", cost=lambda model, usage: Usage(1).total).reports_cost


@pytest.mark.parametrize(
    "line", [b"Hello", b'{"type":"weather.changed"}', b'{"type":"assistant.message","data":7}', b"{}"]
)
def test_a_line_that_is_none_of_its_own_is_kept_and_disturbs_nothing(line: bytes, tmp_path: Path) -> None:
    seen = play(Copilot(), Recording(line + b"\n" + RECORDINGS["success-tools"].read_bytes()), tmp_path)
    assert replace(seen.turn, unparsed=0) == played("success-tools", tmp_path).turn
    assert seen.turn.unparsed == 1


@pytest.mark.parametrize(
    "line",
    [
        {"type": "tool.execution_complete", "data": {"toolCallId": "x", "error": "none", "result": ["odd"]}},
        {"type": "session.usage_info", "data": {}},
        {"type": "assistant.message", "data": {"content": ["odd"]}},
        {"type": "abort"},
    ],
)
def test_odd_values_are_borne(line: dict[str, Any], tmp_path: Path) -> None:
    seen = heard([line, says("Done."), result(0)], tmp_path)
    assert (seen.ok, seen.turn.unparsed) == (True, 0)


JSON = ("--output-format", "json")


@pytest.mark.parametrize(
    ("more", "arguments"),
    [
        ({}, ("--allow-tool=write", *JSON)),
        ({"guarded": False}, ("--allow-all", *JSON)),
        ({"stream": False}, ("--allow-tool=write", *JSON)),
        ({"model": "gpt-5.5"}, ("--allow-tool=write", "--model", "gpt-5.5", *JSON)),
        ({"session": AN_ID}, ("--allow-tool=write", f"--resume={AN_ID}", *JSON)),
        # Permissions add up.
        (
            {"flags": ("--allow-tool", "shell(make:*)")},
            ("--allow-tool", "shell(make:*)", "--allow-tool=write", *JSON),
        ),
        ({"flags": ("--allow-all-tools",)}, ("--allow-all-tools", *JSON)),
        ({"flags": ("--yolo",), "guarded": False}, ("--yolo", *JSON)),
        ({"flags": ("--deny-tool=shell",), "guarded": False}, ("--deny-tool=shell", "--allow-all", *JSON)),
        (
            {"flags": ("--model", "a"), "model": "b", "session": AN_ID, "guarded": False},
            ("--allow-all", "--model", "b", f"--resume={AN_ID}", *JSON),
        ),
    ],
)
def test_it_is_called_with(more: dict[str, Any], arguments: tuple[str, ...], tmp_path: Path) -> None:
    brief = brief_in(tmp_path, stream=more.get("stream", True), session=more.get("session"))
    call = AgentInvocation(brief, more.get("flags", ()), more.get("model"), more.get("guarded", True))
    assert Copilot().arguments(call) == arguments
    assert Copilot().environment(call) == {}


@pytest.mark.parametrize(
    ("flags", "model", "used"),
    [((), None, None), ((), "b", "b"), (("--model=a",), None, "a"), (("--model", "a"), "b", "b")],
)
def test_the_model_is_that_of_the_settings_else_of_the_flags(
    flags: tuple[str, ...], model: str | None, used: str | None
) -> None:
    assert Copilot().model(flags, model) == used


def test_it_does_not_update_itself(tmp_path: Path) -> None:
    assert dict(played("success-tools", tmp_path).command.env)["COPILOT_AUTO_UPDATE"] == "false"
