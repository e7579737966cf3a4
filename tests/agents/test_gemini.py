"""Gemini CLI 0.61.0: what it printed is told as it was meant, and it is called as it wants to be called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.adapter import AgentInvocation
from ralphproof.agents.gemini import Gemini
from ralphproof.engine.agent import (
    THE_CONFIGURATION,
    THE_SERVICE,
    AgentFault,
    ConfigFault,
    Ended,
    Limited,
    Said,
    ServiceFault,
    Spent,
    Started,
    ToolStarted,
    Turn,
    Unparsed,
    Usage,
)
from ralphproof.engine.sandbox import Exit
from tests.agents.expected_turn import DONE, HALF, Case, means, price
from tests.agents.replay import NOW_S, Recording, brief_in, play, recorded

OK = Exit(0)
TIMEOUT = Exit(0, "timeout")  # it exits with 0 on SIGTERM
PRO = "gemini-2.5-pro"
WRITE, SHELL = "write_file hello.txt", "run_shell_command cat hello.txt && echo shell-ran > ran.txt"
BACKOFF = "Attempt 3 failed with status {status}. Retrying with backoff... _ApiError: {body}"
DENIED = (
    'run_shell_command: Tool "run_shell_command" not found. Did you mean one of: "update_topic", "grep_search",'
    ' "replace"?'
)
QUOTA = (
    "[API Error: You exceeded your current quota. Suggested retry after 7200s.] Please wait and try again later. To"
    " increase your limits, request a quota increase through AI Studio, or switch to another /auth method"
)


def turn(session: str, text: str = "", exit: Exit = OK, **more: Any) -> Turn:
    return Turn(exit, text, session=session, **{"model": PRO, **more})


def used(messages: int) -> dict[str, Any]:
    """The scripted model read 1000 tokens a message, 800 of them from its cache, and wrote 50.

    200 × 2 + 50 × 10 + 800 × 1 = 1700 micro-dollars a message.
    """
    return {"usage": Usage(200 * messages, 50 * messages, 800 * messages), "micro_usd": 1700 * messages}


def thought(messages: int) -> dict[str, Any]:
    """In later recordings it read 1810, 800 of them from its cache, wrote 50 and thought 7, which is output too.

    1010 × 2 + 57 × 10 + 800 × 1 = 2020 + 570 + 800 = 3390 micro-dollars a message.
    """
    return {"usage": Usage(1010 * messages, 57 * messages, 800 * messages), "micro_usd": 3390 * messages}


NOTHING: dict[str, Any] = {"usage": Usage(), "micro_usd": 0}

CASES = {
    "success-tools": Case(
        turn("403060b7-3132-4cc2-b48b-58ee8796bdf7", DONE, tools=2, **used(3)), tools=(WRITE, SHELL),
        said=("I will write the file.", "Now run it.", DONE),
    ),
    # The exit code of a command is not told.
    "tool-error": Case(
        turn("e30da2cd-79e4-474c-86e5-a452feb9538b", HALF, tools=1, **used(2)),
        tools=("run_shell_command echo oops >&2; exit 3",), said=(HALF,),
    ),
    # In auto_edit it is not offered what it may not use.
    "guarded": Case(
        turn("b1c80062-4fd5-4d35-af47-919d5c9215ff", DONE, tools=4, errors=3, denied=(DENIED,), **thought(4)),
        tools=(
            "write_file /workspace/proj/hello.txt", "!run_shell_command echo ran > ran.txt", "!ask_user",
            "!write_todos",
        ),
        said=("I will write.", "Now run it.", DONE),
    ),
    # With no model named it asks another one which to take: nine messages, of which five were the router's.
    "outside": Case(
        turn("047f974a-31d2-403c-89cc-beecf7bb12d6", DONE, tools=3, errors=2, **{"model": "auto", **thought(9)}),
        tools=(
            "write_file /workspace/proj/hello.txt", "!shell echo ran > ran.txt", "!write_file /workspace/outside.txt",
        ),
        said=("I will write.", "Now run it.", DONE),
    ),
    # The second turn of the session that `guarded` began: it counts its own four messages no more.
    "resumed": Case(
        turn("b1c80062-4fd5-4d35-af47-919d5c9215ff", "Second answer.", tools=2, **thought(2)),
        tools=("write_file /workspace/proj/hello2.txt", "run_shell_command echo oops >&2; exit 3"),
        said=("I will write the file.", "Second answer."),
    ),
    # Four answers without content, and exit code 0.
    "empty": Case(
        turn("201c200b-8b0a-4b1a-a058-305066ad5503", **used(4)), AgentFault, "The model returned an empty response",
        progress=1,
    ),
    "api-401": Case(
        turn("6d699d5b-188c-4ba8-8068-af4c0651ff26", exit=Exit(145), blame=THE_CONFIGURATION, **NOTHING),
        ConfigFault, "gemini is not logged in",
    ),
    "unknown-model": Case(
        turn(
            "c555669d-2e5d-41fb-839c-97bc71342089", exit=Exit(1), blame=THE_CONFIGURATION, model="gemini-9", **NOTHING,
        ),
        ConfigFault, "models/gemini-9 is not found",
    ),
    "quota": Case(
        turn(
            "a28967c4-f1a5-4540-a4ce-3f457cdaf4a1", exit=Exit(173), blame=THE_SERVICE,
            limited=Limited(f"API error 429: {QUOTA}", NOW_S + 7200), **NOTHING,
        ),
        ServiceFault, "You exceeded your current quota",
    ),
    # It tries again for minutes, and tells nobody but stderr: our timeout ended it.
    "api-429": Case(turn("19e8f017-a26f-478d-8591-a1918ec1bfea", exit=TIMEOUT), AgentFault),
    "api-500": Case(turn("5fb45812-0765-44ea-b65e-2716912b0780", exit=TIMEOUT), AgentFault),
    "api-529": Case(turn("9850aa88-8dae-4554-869b-495562640dd0", exit=TIMEOUT), AgentFault),
}  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody's own settings count."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GEMINI_MODEL", raising=False)
    return tmp_path / "home"


def test_every_recording_is_in_the_table() -> None:
    assert set(CASES) == set(recorded("gemini"))


@pytest.mark.parametrize("name", CASES)
def test_a_recording_is_told_as_it_was_meant(name: str, tmp_path: Path) -> None:
    means(Gemini(), name, CASES[name], tmp_path)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (429, '{"error":{"code":429,"message":"Rate limit reached. Please try again in 1s."}}', "has reached a limit"),
        (500, '{"error":{"code":500,"message":"boom"}}', "does not answer as it should"),
        (529, '{"error":{"code":529,"message":"Overloaded"}}', "does not answer as it should"),
    ],
)
def test_ended_from_outside_while_it_tried_again_it_blames_the_service(
    status: int, body: str, message: str, tmp_path: Path
) -> None:
    """Somebody else sent SIGTERM, on which it exits with 0 and says nothing."""
    out = recorded("gemini")[f"api-{status}"].read_bytes()
    err = BACKOFF.format(status=status, body=body)
    played = play(Gemini(), Recording(out, OK, err), tmp_path)
    assert isinstance(played.fault, ServiceFault)
    assert message in (played.turn.error or "")


def stream(*lines: object) -> bytes:
    init = {"type": "init", "session_id": "s", "model": PRO}
    return b"".join(json.dumps(line).encode() + b"\n" for line in (init, *lines))


def message(text: object, role: str = "assistant") -> dict[str, object]:
    return {"type": "message", "role": role, "content": text, "delta": True}


TOOL = (
    {"type": "tool_use", "tool_name": "read_file", "tool_id": "1", "parameters": {"absolute_path": "/a"}},
    {"type": "tool_result", "tool_id": "1", "status": "success", "output": "<promise>COMPLETE</promise>"},
)
ODD = {"type": "error", "severity": "error", "message": "Maximum session turns exceeded"}
GOOD = {"type": "result", "status": "success", "stats": {"models": {}}}


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ((message("Al"), message("l do"), message("ne.")), "All done."),
        ((message("before"), *TOOL, message("af"), message("ter")), "after"),
        ((message("before"), *TOOL), ""),
        ((message("<promise>COMPLETE</promise>", "user"), message("not yet")), "not yet"),
        ((message("to be "), {**ODD, "severity": "warning"}, message("gone on")), "to be gone on"),
        ((message(7), message("x")), "x"),
    ],
)  # fmt: skip
def test_the_final_message_is_what_the_model_wrote_after_its_last_tool(
    lines: tuple[object, ...], text: str, tmp_path: Path
) -> None:
    played = play(Gemini(), Recording(stream(*lines, GOOD)), tmp_path)
    assert played.turn.text == text
    assert played.events[-1] == Ended(True, text)


def test_a_success_after_an_error_that_nothing_followed_is_none(tmp_path: Path) -> None:
    stopped = play(Gemini(), Recording(stream(message("x"), ODD, GOOD)), tmp_path)
    assert stopped.turn.error == "Maximum session turns exceeded"
    nothing = play(Gemini(), Recording(stream(message("x"), ODD, message(""), GOOD)), tmp_path)
    assert nothing.turn.error == "Maximum session turns exceeded"
    for lines in ((ODD, message("x")), (message("x"), {**ODD, "severity": "warning"})):
        assert play(Gemini(), Recording(stream(*lines, GOOD)), tmp_path).ok


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ({"type": "unknown", "message": "boom"}, "boom"), ("boom", "boom"), ({"type": "odd"}, "odd"),
        ([1], "the agent reported success and an error"),
    ],
)  # fmt: skip
def test_a_success_with_an_error_in_it_is_none(error: object, says: str, tmp_path: Path) -> None:
    played = play(Gemini(), Recording(stream(message("x"), {**GOOD, "error": error})), tmp_path)
    assert not played.ok
    assert says in (played.turn.error or "")


@pytest.mark.parametrize("error", [None, {}, ""])
def test_an_error_that_is_nothing_is_none(error: object, tmp_path: Path) -> None:
    assert play(Gemini(), Recording(stream(message("x"), {**GOOD, "error": error})), tmp_path).ok


def test_a_success_for_which_nothing_was_counted_costs_what_nobody_knows(tmp_path: Path) -> None:
    for models in ({}, {"fake": {"total_tokens": 0, "input_tokens": 0, "output_tokens": 0}}):
        result = {**GOOD, "stats": {"models": models}}
        assert play(Gemini(), Recording(stream(message("x"), result)), tmp_path, cost=price).turn.spent == Spent(None)


@pytest.mark.parametrize(
    ("code", "fault"),
    [(145, ConfigFault), (173, ServiceFault), (247, ServiceFault), (17, ServiceFault), (1, AgentFault)],
)
def test_the_exit_code_tells_what_an_error_without_telling_words_was(code: int, fault: type, tmp_path: Path) -> None:
    failed = {"type": "result", "status": "error", "error": {"type": "unknown", "message": "[API Error: so it is]"}}
    assert isinstance(play(Gemini(), Recording(stream(failed), Exit(code)), tmp_path).fault, fault)


def test_a_message_is_told_before_the_call_that_follows_it(tmp_path: Path) -> None:
    played = play(Gemini(), Recording(stream(message("I "), message("look"), *TOOL, GOOD)), tmp_path)
    assert played.events[1:3] == [Said("I look"), ToolStarted("1", "read_file", "/a")]


def test_a_message_that_was_cut_off_is_told_all_the_same(tmp_path: Path) -> None:
    played = play(Gemini(), Recording(stream(message("half an ans")), Exit(None, signal=9)), tmp_path)
    assert Said("half an ans") in played.events
    assert isinstance(played.fault, AgentFault)


def test_a_message_without_end_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    pieces = [message("x" * 100_000) for _ in range(30)]
    out = stream(message("first "), *pieces, message(" last"), GOOD)
    text = play(Gemini(), Recording(out), tmp_path).turn.text
    assert text.startswith("first x")
    assert text.endswith("x last")
    assert len(text) < 300_000


def test_a_call_that_a_policy_denied_is_told(tmp_path: Path) -> None:
    why = "Tool execution denied by policy."
    ended = {**TOOL[1], "status": "error", "output": None, "error": {"type": "policy_violation", "message": why}}
    assert play(Gemini(), Recording(stream(TOOL[0], ended, GOOD)), tmp_path).turn.denied == (f"read_file: {why}",)


def test_one_model_without_a_price_makes_the_cost_unknown(tmp_path: Path) -> None:
    """100 × 2 + 10 × 10 = 300 for the one; what was not used costs nothing, priced or not."""
    used = {"total_tokens": 110, "input_tokens": 100, "output_tokens": 10, "cached": 0}

    def spent(**models: object) -> Spent:
        result = {**GOOD, "stats": {"models": models}}
        return play(Gemini(), Recording(stream(message("x"), result)), tmp_path, cost=price).turn.spent

    assert spent(fake=used, other={**used, "total_tokens": 0, "input_tokens": 0, "output_tokens": 0}).micro_usd == 300
    assert spent(fake=used, other=used) == Spent(None, Usage(200, 20))


@pytest.mark.parametrize(
    ("line", "missed"),
    [
        (b"[1]", 1), (b"nonsense", 1), (b'{"type":"new"}', 1), (b"{", 1), (b'{"type":"message","content":{"a":[]}}', 0),
        (b'{"type":"tool_result","tool_id":[],"error":"no","output":{}}', 0), (b'{"type":"error","message":null}', 0),
        (b'{"type":"tool_use","parameters":7}', 0), (b'{"type":"init","session_id":5}', 0), (b"\xff\xfe", 1),
    ],
)  # fmt: skip
def test_nonsense_costs_its_own_line_at_most(line: bytes, missed: int, tmp_path: Path) -> None:
    out = stream() + line + b"\n" + stream(message("x"), GOOD)
    played = play(Gemini(), Recording(out), tmp_path)
    assert played.ok
    assert played.turn.text == "x"
    assert sum(isinstance(event, Unparsed) for event in played.events) == missed


def test_a_result_whose_account_is_nonsense_still_ends_the_turn(tmp_path: Path) -> None:
    played = play(Gemini(), Recording(stream(message("x"), {**GOOD, "stats": {"models": 3}})), tmp_path)
    assert played.ok
    assert played.turn.usage is None
    assert played.said_result


def test_a_login_with_an_account_makes_the_cost_notional(home: Path, tmp_path: Path) -> None:
    (home / ".gemini").mkdir(parents=True)
    settings = {"security": {"auth": {"selectedType": "oauth-personal"}}}
    (home / ".gemini" / "settings.json").write_text(json.dumps(settings))
    out = recorded("gemini")["success-tools"].read_bytes()
    assert play(Gemini(), Recording(out), tmp_path, cost=price).turn.notional


FORM = ("--output-format", "stream-json")


@pytest.mark.parametrize(
    ("flags", "model", "guarded", "more", "expected"),
    [
        ((), None, True, {}, ("--approval-mode", "auto_edit", *FORM)),
        ((), None, False, {}, ("--approval-mode", "yolo", *FORM)),
        ((), PRO, True, {}, ("--approval-mode", "auto_edit", "--model", PRO, *FORM)),
        (("-m", "a", "--model=b", "-d"), PRO, True, {}, ("-d", "--approval-mode", "auto_edit", "--model", PRO, *FORM)),
        (("-m", "a"), None, True, {}, ("-m", "a", "--approval-mode", "auto_edit", *FORM)),
        (("--approval-mode=plan",), None, True, {}, ("--approval-mode=plan", *FORM)),
        (("--yolo",), None, True, {}, ("--yolo", *FORM)),
        (("-y",), None, False, {}, ("-y", *FORM)),
        ((), None, True, {"session": "abc"}, ("--approval-mode", "auto_edit", "--resume", "abc", *FORM)),
        ((), None, True, {"stream": False}, ("--approval-mode", "auto_edit", *FORM)),
    ],
)
def test_the_argument_list(
    flags: tuple[str, ...], model: str | None, guarded: bool, more: dict[str, object], expected: tuple[str, ...],
    tmp_path: Path,
) -> None:  # fmt: skip
    assert Gemini().arguments(AgentInvocation(brief_in(tmp_path, **more), flags, model, guarded)) == expected


@pytest.mark.parametrize(
    ("env", "expected"),
    [((), {"GEMINI_CLI_TRUST_WORKSPACE": "true"}), ((("GEMINI_CLI_TRUST_WORKSPACE", "false"),), {})],
)
def test_its_folder_is_trusted_unless_the_user_says_otherwise(
    env: tuple[tuple[str, str], ...], expected: dict[str, str], tmp_path: Path
) -> None:
    assert Gemini().environment(AgentInvocation(brief_in(tmp_path, env=env), (), None, True)) == expected


def test_the_model_is_the_named_one_or_that_of_its_own_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Gemini().model
    assert told((), None) is None
    (home / ".gemini").mkdir(parents=True)
    (home / ".gemini" / "settings.json").write_text('{"model": {"name": "file"}}')
    assert told((), None) == "file"
    monkeypatch.setenv("GEMINI_MODEL", "variable")
    assert told((), None) == "variable"
    assert told(("-m", "flag"), None) == "flag"
    assert told(("-m", "flag"), "setting") == "setting"


def test_it_says_its_session_and_model_at_once(tmp_path: Path) -> None:
    assert play(Gemini(), Recording(stream()), tmp_path).events[0] == Started("s", PRO)
