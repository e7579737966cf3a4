"""Claude Code 2.1.325: what it printed is told as it was meant, and it is called as it wants to be called."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.adapter import AgentInvocation
from ralphproof.agents.claude import Claude
from ralphproof.agents.cost import PriceList
from ralphproof.base.value import replace
from ralphproof.engine.agent import (
    THE_CONFIGURATION,
    THE_SERVICE,
    AgentFault,
    ConfigFault,
    Event,
    Fault,
    Limited,
    Progress,
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
from tests.agents.replay import NOW_S, Played, Recording, brief_in, cuts, play, recorded

RECORDINGS = recorded("claude")
OPUS, SONNET = "claude-opus-5-5", "claude-sonnet-5-5"
OK, FAILED = Exit(0), Exit(1)
DONE = "All done.\n<promise>COMPLETE</promise>"
WRITE, BASH = "Write hello.txt", "Bash cat hello.txt && echo shell-ran > ran.txt"
WAITED = "Bash echo $$ > started.tmp; mv started.tmp started; exec python3 -c 'import time; time.sleep(60)'"
BLAME = {AgentFault: "", ConfigFault: THE_CONFIGURATION, ServiceFault: THE_SERVICE}
KEY = "run `claude` once and log in, or set ANTHROPIC_API_KEY"
WINDOW = 1_000_000  # tokens that go into the context of these models
AN_ID = "11111111-2222-4333-8444-555555555555"


def used(messages: int) -> dict[str, Any]:
    """The scripted model's messages were all alike.

    Opus 5.5 costs $4 a million tokens of input, $20 of output, $0.20 read from the cache and $5 written to it:
    1000 × 4 + 50 × 20 + 800 × 0.2 + 10 × 5 = 4000 + 1000 + 160 + 50 = 5210 micro-dollars a message, its own figure.
    """
    usage = Usage(1000 * messages, 50 * messages, 800 * messages, 10 * messages)
    return {"usage": usage, "micro_usd": 5210 * messages}


def turn(session: str, text: str = "", exit: Exit = OK, **more: Any) -> Turn:
    told = {"model": OPUS, "version": "2.1.325", "window": WINDOW if exit == OK else None, **more}
    return Turn(exit, text, session=session, **told)


@dataclass(frozen=True)
class Case:
    """What a recording means. `turn` has the first eight letters of the session and no error: that is in `says`."""

    turn: Turn
    fault: type[Fault] | None = None
    says: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    todos: tuple[tuple[Todo, ...], ...] = ()
    progress: tuple[str, ...] = ()
    err: str = ""
    empty: bool = False


def refused(session: str, text: str, fault: type[Fault], *says: str, **more: Any) -> Case:
    """A turn that came to nothing: no tokens, exit code 1."""
    progress, err = more.pop("progress", ()), more.pop("err", "")
    told = {"blame": BLAME[fault], "usage": Usage(), "micro_usd": 0, **more}
    return Case(turn(session, text, FAILED, **told), fault, says, progress=progress, err=err)


def retries(status: int | str, most: int, *seconds: int) -> tuple[str, ...]:
    return tuple(f"service error ({status}), retry {n} of {most} in {s} s" for n, s in enumerate(seconds, 1))


def silent(err: str, fault: type[Fault], *says: str) -> Case:
    """It printed nothing but a complaint on stderr."""
    return Case(Turn(FAILED, blame=BLAME[fault]), fault, says, err=err)


LIMIT_429 = "API Error: Request rejected (429) · rate limited"
LIMIT_RATE = (
    "API Error: Request rejected (429) · This request would exceed your organization's rate limit of 50 requests"
    " per minute."
)
TOO_LONG = (
    "Prompt is too long · the request is ~250000 tokens (limit 200000) but this conversation is only ~2768 tokens —"
    " the rest is system prompt, tool definitions, and attachment content. A single-exchange conversation cannot be"
    " compacted; reduce attached files/tools or start with less context."
)
NO_MODEL = (
    "There's an issue with the selected model (claude-nonexistent). It may not exist or you may not have access to it."
    " Run --model to pick a different model."
)
GATEWAY = "This is a server-side issue, usually temporary — try again in a moment. If it persists, check your inference"
EXPIRED = "401 OAuth token has expired. Please obtain a new token or refresh your existing token."
TOO_MUCH = (
    "API Error: Claude's response exceeded the 128000 output token maximum. To configure this behavior, set the"
    " CLAUDE_CODE_MAX_OUTPUT_TOKENS environment variable."
)
REFUSAL = (
    "API Error: Opus 5.5's safeguards flagged this message (https://www.anthropic.com/legal/aup). This sometimes"
    " happens with safe, normal conversations. Claude Code can't respond to this message with Opus 5.5.\n\nTry"
    " rephrasing the request in a new session or change your model.\n\nLearn more: https://support.claude.com/en/articles/8106465"
    "\n\nRequest ID: req_fake2\n\nMessage ID: msg_3d5cf24b81d84c7f86dd"
)
DENIED = (
    "Write: Claude requested permissions to write to /workspace/proj/hello.txt, but you haven't granted it yet.",
    "Bash: Output redirection to '/workspace/proj/ran.txt' needs approval. The path is inside the working directories"
    " for this session ('/workspace/proj'), and Claude Code asks before a shell command creates, changes or removes"
    " files there.",
)
DIAGNOSTIC = "[ede_diagnostic] result_type="

SECOND = "Second stop <promise>COMPLETE</promise>"
CASES = {
    # It worked.
    "success-tools": Case(turn("3ce80ed7", DONE, tools=2, **used(3)), tools=(WRITE, BASH)),
    "stdin-prompt": Case(turn("ace9d195", DONE, tools=2, **used(3)), tools=(WRITE, BASH)),
    "partial": Case(turn("715405ca", DONE, tools=2, **used(3)), tools=(WRITE, BASH)),
    "perm-acceptEdits": Case(turn("b2a1e77a", DONE, tools=2, **used(3)), tools=(WRITE, BASH)),
    "perm-allowed": Case(turn("f67c4f52", DONE, tools=2, **used(3)), tools=(WRITE, BASH)),
    "bare": Case(
        turn("e91f56d9", DONE, tools=2, **used(3)), tools=("Bash cat > 'hello.txt' <<'EOS' hello EOS", BASH)
    ),
    "api-500-then-ok": Case(
        turn("6aabbbc2", DONE, tools=2, **used(3)), tools=(WRITE, BASH), progress=retries(500, 2, 1, 1)
    ),
    "nopersist": Case(turn("ebff8bee", "turn text", **used(1))),
    "session-id": Case(turn("11111111", "turn text", **used(1))),
    "json-schema": Case(
        turn("885153a6", '{"done":true}', tools=3, **used(3)), tools=(WRITE, BASH, "StructuredOutput")
    ),
    # One object, without a stream: it tells neither model nor version.
    "out-json": Case(Turn(OK, DONE, window=WINDOW, **used(3))),
    # Two prompts in one process: its second account holds the first.
    "input-stream-json": Case(turn("c9e75a8f", "answer2", **used(2))),
    # Its account is that of the session, of which nobody told here what it had cost before.
    "resume": Case(turn("11111111", "turn text", **used(2))),
    "resume-fork": Case(turn("ea61d3b8", "turn text", **used(3))),
    "continue": Case(turn("ea61d3b8", "turn text", **used(4))),
    # A subscription pays. 1000 × 2 + 50 × 10 + 800 × 0.1 + 10 × 2.5 = 2605
    "oauth-limit-warning": Case(
        turn(
            "6c53ec46", "<promise>COMPLETE</promise>", model=SONNET, usage=Usage(1000, 50, 800, 10), micro_usd=2605,
            notional=True,
        ),
        progress=("93% of the five hour limit is used",),
    ),
    # A stream that broke twice in mid-text: the third part is the answer. 3000 × 4 + 52 × 20 + 2400 × 0.2 + 30 × 5
    "drop": Case(
        turn("b1daf1f9", "cut off here", usage=Usage(3000, 52, 2400, 30), micro_usd=13_670),
        progress=retries("unknown", 2, 1),
    ),
    # Tools that failed, were denied, or do not exist.
    "tool-error": Case(
        turn("10e58d46", "Failed.\n<promise>COMPLETE</promise>", tools=1, errors=1, **used(2)),
        tools=("Bash echo oops >&2; exit 3",),
    ),
    "perm-denied": Case(turn("beb3d956", DONE, tools=2, errors=2, denied=DENIED, **used(3)), tools=(WRITE, BASH)),
    "todo": Case(
        turn("5e37e68f", "<promise>COMPLETE</promise>", tools=2, errors=2, **used(3)),
        tools=("TodoWrite", "TaskCreate do A"),
    ),
    "todo-tools-on": Case(
        turn("82881dfc", "<promise>COMPLETE</promise>", tools=3, errors=1, **used(4)),
        tools=("TodoWrite", "TaskCreate do A", "TaskUpdate 1"),
        todos=((Todo("A", "pending"),), (Todo("A", "done"),)),
    ),
    "hooks-plugin-json": Case(
        turn("e8fc757c", SECOND, tools=3, errors=2, denied=("Bash: echo forbidden",), **used(5)),
        tools=(WRITE, "Bash echo forbidden", "Bash exit 3"),
    ),
    "hooks-settings-exit2": Case(
        turn("2459c2c7", SECOND, tools=3, errors=2, denied=("Bash: echo forbidden",), **used(5)),
        tools=(WRITE, "Bash echo forbidden", "Bash exit 3"),
    ),
    "plugin-stop-hook": Case(
        turn("2b9ccebf", "<promise>COMPLETE</promise>", tools=2, **used(4)), tools=(WRITE, BASH)
    ),
    # It ended well and said nothing, whatever it had said before.
    "empty": Case(turn("d94e38cf", **used(2)), empty=True),
    "stop-hook-cap": Case(turn("0c082f1e", **used(9)), empty=True),
    # It cannot work with these settings.
    "api-401": refused(
        "ac069b9b", "Invalid API key · Fix external API key", ConfigFault, "not logged in", "Invalid API key", KEY,
        progress=retries(401, 2, 1, 1),
    ),
    "api-403": refused(
        "ad0b0b1f", "Failed to authenticate. API Error: 403 Your account does not have access", ConfigFault,
        "not logged in", "403 Your account does not have access",
    ),
    "no-auth": refused(
        "a97d9409", "Not logged in · Please run /login", ConfigFault, "Please run /login", KEY, notional=True
    ),
    "oauth-401": refused(
        "74a9b463", f"Failed to authenticate. API Error: {EXPIRED}", ConfigFault, "OAuth token has expired", KEY,
        model=SONNET, notional=True, progress=retries(401, 2, 1, 1),
    ),
    "api-400-credit": refused("c54bcdf5", "Credit balance is too low", ConfigFault, "no credit left", "too low"),
    "api-404-model": refused(
        "5f2331bb", NO_MODEL, ConfigFault, "does not know its model", "claude-nonexistent", model="claude-nonexistent",
        err='[claude-code:unrecognized_model] {"model":"claude-nonexistent","query_source":"sdk"}\n',
    ),
    "unknown-flag": silent("error: unknown option '--no-auto-compact'\n", ConfigFault, "'--no-auto-compact'"),
    "noverbose": silent(
        "Error: When using --print, --output-format=stream-json requires --verbose\n", ConfigFault, "requires --verbose"
    ),
    # The service is limited or down.
    "oauth-usage-limit": refused(
        "997743f6", "You've hit your limit · resets 3:33am (UTC)", ServiceFault, "the five hour limit is reached",
        model=SONNET, notional=True, limited=Limited("the five hour limit is reached", 1_794_800_000.0),
    ),
    "api-429": refused(
        "f9003114", LIMIT_RATE, ServiceFault, "50 requests per minute", limited=Limited(LIMIT_RATE),
        progress=retries(429, 2, 1, 1),
    ),
    "api-429-retry-after": refused(
        "554b9232", LIMIT_429, ServiceFault, "(429) · rate limited", limited=Limited(LIMIT_429)
    ),
    "api-500": refused(
        "874c636e", f"API Error: 500 Internal server error. {GATEWAY} gateway (127.0.0.1:44873).", ServiceFault,
        "500 Internal server error", progress=retries(500, 2, 1, 1),
    ),
    "api-529": refused(
        "2f347066", f"API Error: 529 Overloaded. {GATEWAY} gateway (127.0.0.1:33101).", ServiceFault,
        "529 Overloaded", progress=retries(529, 2, 1, 1),
    ),
    # Its own work failed.
    "api-400-too-long": refused("e3c09163", TOO_LONG, AgentFault, "grew too long", "~250000 tokens (limit 200000)"),
    "resume-bad": Case(
        Turn(FAILED, usage=Usage(), micro_usd=0), AgentFault, ("No conversation found with session ID: 99999999",),
        err="No conversation found with session ID: 99999999-2222-4333-8444-555555555555\n",
    ),
    "session-id-again": silent(
        f"Error: Session ID {AN_ID} is already in use.\n", AgentFault, "without its result", "is already in use"
    ),
    "max-turns": Case(
        turn("2b1306e6", exit=FAILED, tools=1, **used(1)), AgentFault, ("maximum number of turns (1)",), (WRITE,)
    ),
    "env-max-turns": Case(
        turn("d28ef96c", exit=FAILED, tools=2, **used(2)), AgentFault, ("maximum number of turns (2)",),
        ("Bash true", "Bash true"),
    ),
    "max-budget": Case(
        turn("a13c6047", exit=FAILED, tools=2, **used(2)), AgentFault, ("maximum budget ($0.006)",), (WRITE, BASH)
    ),
    "max-tokens": Case(
        turn("61a41fdb", TOO_MUCH, FAILED, **used(4)), AgentFault, ("128000 output token maximum",)
    ),
    "refusal": Case(turn("077ca817", REFUSAL, FAILED, **used(2)), AgentFault, ("safeguards flagged this message",)),
    # 8000 × 4 + 106 × 20 + 6400 × 0.2 + 80 × 5 = 35,800
    "sse-overloaded": Case(
        turn("69c6d98b", exit=FAILED, usage=Usage(8000, 106, 6400, 80), micro_usd=35_800), AgentFault, (DIAGNOSTIC,)
    ),
    "out-text": Case(Turn(OK, unparsed=2), AgentFault, ("exit code 0 and without its result",)),
    "sigint": Case(
        turn("b8d58e42", tools=1, errors=1, window=None, **used(1)), AgentFault, (DIAGNOSTIC,), (WAITED,)
    ),
    # Cut off: what came by is priced by us, and one of its messages had 8 + 126 letters, 33 tokens of four letters.
    # 1000 × 4 + 33 × 20 + 800 × 0.2 + 10 × 5 = 4000 + 660 + 160 + 50 = 4870
    "sigterm": Case(
        turn("b041a4ed", "starting", Exit(143), tools=1, errors=1, usage=Usage(1000, 33, 800, 10), micro_usd=4870,
             at_least=True),
        AgentFault, ("exit code 143 and without its result",), (WAITED,),
    ),
    "sigkill": Case(
        turn("1fe41447", "starting", Exit(None, signal=9), tools=1, usage=Usage(1000, 33, 800, 10), micro_usd=4870,
             at_least=True),
        AgentFault, ("by signal 9 and without its result",), (WAITED,),
    ),
    "connection-reset-retries-partial": Case(
        turn("b35811a9", exit=Exit(None, why="timeout", signal=15)), AgentFault, ("its time was up",),
        progress=retries("unknown", 10, 1, 1, 2, 4, 8, 19, 39),
    ),
}  # fmt: skip


def price(model: str | None, usage: Usage) -> int | None:
    """As on the day of the recordings."""
    return PriceList(clock=lambda: NOW_S).cost(model, usage)


def played(name: str, folder: Path, **more: Any) -> Played:
    case = CASES[name]
    recording = Recording(RECORDINGS[name].read_bytes(), case.turn.exit, case.err)
    return play(Claude(), recording, folder, cost=price, **more)


def events_of(seen: Played, *kinds: type[Event]) -> list[Any]:
    return [event for event in seen.events if isinstance(event, kinds)]


def test_every_recording_is_told() -> None:
    assert set(CASES) == set(RECORDINGS)


@pytest.mark.parametrize("name", CASES)
def test_a_recording_means_this(name: str, tmp_path: Path) -> None:
    case, seen = CASES[name], played(name, tmp_path)
    session = seen.turn.session[:8] if seen.turn.session else None
    assert replace(seen.turn, error=None, session=session) == case.turn
    assert (type(seen.fault) if seen.fault else None) is case.fault
    assert seen.ok is (case.fault is None and not case.empty)
    assert seen.turn.empty is case.empty
    assert [part for part in case.says if part not in getattr(seen.fault, "message", "")] == []
    started = [f"{event.name} {event.summary}".strip() for event in events_of(seen, ToolStarted)]
    assert tuple(started) == case.tools
    assert tuple(event.items for event in events_of(seen, TodosChanged)) == case.todos
    assert tuple(event.text for event in events_of(seen, Progress)) == case.progress


@pytest.mark.parametrize("name", CASES)
def test_it_does_not_matter_where_the_stream_is_cut(name: str, tmp_path: Path) -> None:
    case, told = CASES[name], []
    for recording in cuts(RECORDINGS[name].read_bytes(), case.turn.exit, case.err):
        seen = play(Claude(), recording, tmp_path, cost=price)
        # How often the sum is told in between depends on it, and nothing else.
        told.append((seen.turn, [one for one in seen.events if not (isinstance(one, Spent) and one.at_least)]))
    assert told == [told[0]] * 5


def test_tools_are_told_with_what_they_printed(tmp_path: Path) -> None:
    started, ended = events_of(played("tool-error", tmp_path), ToolStarted, ToolEnded)
    assert ended == ToolEnded(started.id, False, "Exit code 3\noops", 2, 16)
    assert started.id.startswith("toolu_")


# What has come by when the stream is cut before its result. A message counts one token of output until then, so its
# letters are counted instead, four to a token; $4, $20, $0.20 and $5 a million tokens, half of that for Sonnet.
CUT = {
    # Letters: 22 + 45, 11 + 75, 37. Tokens: 16 + 21 + 9 = 46.
    # 3000 × 4 + 46 × 20 + 2400 × 0.2 + 30 × 5 = 12,000 + 920 + 480 + 150
    "success-tools": Spent(13_550, Usage(3000, 46, 2400, 30), at_least=True),
    # Letters: 73, 36, 35, 27. Tokens: 18 + 9 + 8 + 6 = 41.
    # 4000 × 4 + 41 × 20 + 3200 × 0.2 + 40 × 5 = 16,000 + 820 + 640 + 200
    "todo-tools-on": Spent(17_660, Usage(4000, 41, 3200, 40), at_least=True),
    # Letters: 27. Tokens: 6. 1000 × 2 + 6 × 10 + 800 × 0.1 + 10 × 2.5 = 2000 + 60 + 80 + 25
    "oauth-limit-warning": Spent(2165, Usage(1000, 6, 800, 10), at_least=True, notional=True),
}


@pytest.mark.parametrize("name", CUT)
def test_without_its_account_the_cost_is_that_of_the_tokens_that_came_by(name: str, tmp_path: Path) -> None:
    lines = RECORDINGS[name].read_bytes().splitlines(keepends=True)
    assert b'"type":"result"' in lines[-1]
    seen = play(Claude(), Recording(b"".join(lines[:-1]), Exit(None, signal=9)), tmp_path, cost=price)
    assert seen.turn.spent == CUT[name]


# What its session had cost before, and what is left for this turn.
RESUMED = {
    # The session: 2000 × 4 + 100 × 20 + 1600 × 0.2 + 20 × 5 = 8000 + 2000 + 320 + 100 = 10,420. Before: 5210.
    "resume": (Spent(5210, Usage(1000, 50, 800, 10)), Spent(5210, Usage(1000, 50, 800, 10))),
    # The session: 4000 × 4 + 200 × 20 + 3200 × 0.2 + 40 × 5 = 16,000 + 4000 + 640 + 200 = 20,840. Before: 10,420.
    "continue": (Spent(10_420, Usage(2000, 100, 1600, 20)), Spent(10_420, Usage(2000, 100, 1600, 20))),
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_turn_that_goes_on_with_a_session_costs_the_difference(name: str, tmp_path: Path) -> None:
    before, left = RESUMED[name]
    assert played(name, tmp_path, session=AN_ID, billed=before).turn.spent == left


STREAM = ("--output-format", "stream-json", "--verbose")


@pytest.mark.parametrize(
    ("more", "arguments"),
    [
        ({}, ("-p", "--permission-mode", "acceptEdits", *STREAM)),
        ({"guarded": False}, ("-p", "--dangerously-skip-permissions", *STREAM)),
        ({"model": "opus"}, ("-p", "--permission-mode", "acceptEdits", "--model", "opus", *STREAM)),
        ({"session": AN_ID}, ("-p", "--permission-mode", "acceptEdits", "--resume", AN_ID, *STREAM)),
        ({"stream": False}, ("-p", "--permission-mode", "acceptEdits", "--output-format", "json")),
        ({"flags": ("--effort", "high")}, ("-p", "--effort", "high", "--permission-mode", "acceptEdits", *STREAM)),
        ({"flags": ("--permission-mode", "plan")}, ("-p", "--permission-mode", "plan", *STREAM)),
        ({"flags": ("--permission-mode=plan",), "guarded": False}, ("-p", "--permission-mode=plan", *STREAM)),
        ({"flags": ("--dangerously-skip-permissions",)}, ("-p", "--dangerously-skip-permissions", *STREAM)),
        # It allows a person to switch the guard off, and does not switch it.
        (
            {"flags": ("--allow-dangerously-skip-permissions",)},
            ("-p", "--allow-dangerously-skip-permissions", "--permission-mode", "acceptEdits", *STREAM),
        ),
        (
            {"flags": ("--model", "sonnet"), "model": "opus", "session": AN_ID, "guarded": False, "stream": False},
            ("-p", "--dangerously-skip-permissions", "--model", "opus", "--resume", AN_ID,
             "--output-format", "json"),
        ),
    ],
)  # fmt: skip
def test_it_is_called_with(more: dict[str, Any], arguments: tuple[str, ...], tmp_path: Path) -> None:
    brief = brief_in(tmp_path, stream=more.get("stream", True), session=more.get("session"))
    call = AgentInvocation(brief, more.get("flags", ()), more.get("model"), more.get("guarded", True))
    assert Claude().arguments(call) == arguments


@pytest.mark.parametrize(
    ("user", "guarded", "needed"),
    [(0, True, {}), (0, False, {"IS_SANDBOX": "1"}), (1000, True, {}), (1000, False, {})],
)
def test_only_root_without_the_guard_says_that_it_is_in_a_sandbox(
    user: int, guarded: bool, needed: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert Claude().environment(AgentInvocation(brief_in(tmp_path), (), None, guarded)) == needed


@pytest.mark.parametrize(
    ("flags", "model", "used"),
    [((), None, None), (("--model", "opus"), None, "opus"), (("--model=opus",), "sonnet", "sonnet")],
)
def test_its_model_is_known_as_far_as_it_was_told(flags: tuple[str, ...], model: str | None, used: str | None) -> None:
    assert Claude().model(flags, model) == used
