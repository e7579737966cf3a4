"""Qwen Code 0.24.4: what it printed is told as it was meant, and it is called as it wants to be called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.adapter import AgentInvocation
from ralphproof.agents.qwen import Qwen
from ralphproof.engine.agent import (
    THE_CONFIGURATION,
    AgentFault,
    ConfigFault,
    Ended,
    Progress,
    ServiceFault,
    Spent,
    Turn,
    Unparsed,
    Usage,
)
from ralphproof.engine.sandbox import Exit
from tests.agents.expected_turn import DONE, HALF, Case, means, price
from tests.agents.replay import Recording, brief_in, play, recorded

OK, FAILED = Exit(0), Exit(1)
TIMEOUT = Exit(None, "timeout", 15)
FAKE = "fake-model"
WRITE, SHELL = (
    "write_file /workspace/proj/hello.txt",
    "run_shell_command cat hello.txt && echo shell-ran > ran.txt",
)
LOGIN = "run `qwen` once and log in, or set OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL"


def turn(session: str, text: str = "", exit: Exit = OK, **more: Any) -> Turn:
    return Turn(exit, text, session=session, **{"model": FAKE, "version": "0.24.4", **more})


def used(messages: int) -> dict[str, Any]:
    """The scripted model read 1000 tokens a message, 800 of them from its cache, and wrote 50.

    200 × 2 + 50 × 10 + 800 × 1 = 1700 micro-dollars a message.
    """
    return {"usage": Usage(200 * messages, 50 * messages, 800 * messages), "micro_usd": 1700 * messages}


def used_more(messages: int) -> dict[str, Any]:
    """In later recordings it read 1810: 1010 × 2 + 50 × 10 + 800 × 1 = 3320 micro-dollars a message."""
    return {"usage": Usage(1010 * messages, 50 * messages, 800 * messages), "micro_usd": 3320 * messages}


NOTHING: dict[str, Any] = {"usage": Usage(), "micro_usd": 0}

CASES = {
    "success-tools": Case(
        turn("cf741dfc-912f-4c75-b432-8324a4721c91", DONE, tools=2, **used(3)), tools=(WRITE, SHELL),
        said=("I will write the file.", "Now run it.", DONE),
    ),
    "tool-error": Case(
        turn("a2dc3c5b-ce3f-4a83-abec-f27619f0aa48", HALF, tools=1, errors=1, **used(2)),
        tools=("!run_shell_command echo oops >&2; exit 3",), said=(HALF,),
    ),
    # auto-edit lets it write outside its folder too; commands it denies.
    "guarded": Case(
        turn(
            "022946d8-b5c7-45fb-92e6-855c12880249", DONE, tools=5, errors=3,
            denied=("run_shell_command: echo ran > ran.txt",), **used_more(4),
        ),
        tools=(
            WRITE, "!run_shell_command echo ran > ran.txt", "write_file /workspace/outside2.txt",
            "!ask_user_question", "!todo_write",
        ),
        said=("I will write.", "Now run it.", DONE),
    ),
    # The second turn of the session that `guarded` began, without what is known of the first: it accounts for both.
    "resumed": Case(
        turn("022946d8-b5c7-45fb-92e6-855c12880249", "Second answer.", tools=2, errors=1, **used_more(6)),
        tools=("write_file /workspace/proj/hello2.txt", "!run_shell_command echo oops >&2; exit 3"),
        said=("I will write the file.", "Second answer."),
    ),
    # Five answers without content; then it said its result, and did not leave.
    "empty": Case(
        turn("1a1112a2-7fc4-4049-9990-38d98247cd81", exit=Exit(None, "lingered", 15), **used(5)), AgentFault,
        "Model stream ended with empty response text", progress=8,
    ),
    "api-401": Case(
        turn("2db77410-7dc6-4d4c-a8c8-3c6519df5342", exit=FAILED, blame=THE_CONFIGURATION, **NOTHING), ConfigFault,
        f"qwen is not logged in ([API Error: 401 Incorrect API key provided]); {LOGIN}",
    ),
    "no-login": Case(
        Turn(FAILED, blame=THE_CONFIGURATION, **NOTHING), ConfigFault,
        "qwen is not logged in (No auth type is selected.",
    ),
    "unknown-model": Case(
        turn("9562511a-117d-4794-8c20-00d392c9f6ff", exit=FAILED, blame=THE_CONFIGURATION, model="x", **NOTHING),
        ConfigFault, "qwen does not know its model",
    ),
    "too-long": Case(
        turn("6ba9479a-c09b-40eb-a744-eb7fce62923a", exit=FAILED, **NOTHING), AgentFault, "grew too long",
    ),
    # It tries again for minutes, and tells nobody: our timeout ended it.
    "api-429": Case(turn("3725ada3-a527-4776-b8a1-3c9f1a19e580", exit=TIMEOUT), AgentFault),
    "api-500": Case(turn("4e3c64f8-b5cd-405e-9869-5fb684d3a3c2", exit=TIMEOUT), AgentFault),
    "api-529": Case(turn("0c142a6a-095e-456d-a5fb-2ee6bb27a91c", exit=TIMEOUT), AgentFault),
}  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody's own settings count."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("OPENAI_MODEL", "QWEN_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def settings(home: Path, **given: object) -> None:
    (home / ".qwen").mkdir(parents=True)
    (home / ".qwen" / "settings.json").write_text(json.dumps(given))


def test_every_recording_is_in_the_table() -> None:
    assert set(CASES) == set(recorded("qwen"))


@pytest.mark.parametrize("name", CASES)
def test_a_recording_is_told_as_it_was_meant(name: str, tmp_path: Path) -> None:
    means(Qwen(), name, CASES[name], tmp_path)


def test_what_a_session_had_cost_before_is_not_counted_again(tmp_path: Path) -> None:
    first = play(Qwen(), Recording(recorded("qwen")["guarded"].read_bytes()), tmp_path, cost=price).turn
    out = recorded("qwen")["resumed"].read_bytes()
    second = play(Qwen(), Recording(out), tmp_path, cost=price, billed=first.spent, session=first.session).turn
    # Six messages less four: 2 × 3320 = 6640 micro-dollars.
    assert second.spent == Spent(6640, Usage(2020, 100, 1600))


def test_until_its_result_what_it_spent_is_at_least_what_came_by(tmp_path: Path) -> None:
    out = b"\n".join(recorded("qwen")["success-tools"].read_bytes().splitlines()[:-1])
    # Two of its three messages named their tokens with a tool, and the last one with its text.
    played = play(Qwen(), Recording(out, Exit(None, "timeout", 15)), tmp_path, cost=price)
    assert played.turn.spent == Spent(5100, Usage(600, 150, 2400), at_least=True)


def stream(*lines: object) -> bytes:
    init = {"type": "system", "subtype": "init", "session_id": "s", "model": FAKE, "qwen_code_version": "0.24.4"}
    return b"".join(json.dumps(line).encode() + b"\n" for line in (init, *lines))


def said(text: str) -> dict[str, object]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "parent_tool_use_id": None, "message": {"id": text, "model": FAKE, "content": content}}


GOOD = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 2, "result": "x", "usage": {}}
BAD = {"type": "result", "subtype": "error_during_execution", "is_error": True, "num_turns": 0}


def test_the_failure_of_a_subagent_does_not_end_the_turn(tmp_path: Path) -> None:
    below = {**BAD, "error": {"message": "Task was cancelled"}}
    played = play(Qwen(), Recording(stream(said("look"), below, said("x"), GOOD)), tmp_path)
    assert played.ok
    assert played.turn.text == "x"
    assert Progress("a subagent failed: Task was cancelled") in played.events
    assert sum(isinstance(event, Ended) for event in played.events) == 1


def test_a_failure_before_the_first_answer_is_its_own(tmp_path: Path) -> None:
    played = play(Qwen(), Recording(stream({**BAD, "error": {"message": "no such file"}}), FAILED), tmp_path)
    assert played.turn.error == "no such file"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("[API Error: 400 what is this]", AgentFault), ("\n[API Error: 500 boom]", ServiceFault),
        ("[API Error: 401 Incorrect API key provided]", ConfigFault),
    ],
)  # fmt: skip
def test_an_error_in_the_place_of_an_answer_is_no_success(words: str, fault: type, tmp_path: Path) -> None:
    played = play(Qwen(), Recording(stream(said(words), {**GOOD, "result": words})), tmp_path)
    assert isinstance(played.fault, fault)
    assert (played.turn.text, words.strip() in (played.turn.error or "")) == ("", True)


ZERO, SOME = {"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 100, "output_tokens": 10}


@pytest.mark.parametrize(
    ("counted", "result", "spent"),
    [
        (None, {**GOOD, "usage": None}, Spent(None)),
        (None, GOOD, Spent(None)),
        (None, {**GOOD, "usage": ZERO}, Spent(None)),
        ({"input_tokens": 0}, {**GOOD, "usage": ZERO}, Spent(None)),
        # 100 × 2 + 10 × 10 = 300 micro-dollars: the messages told more than the result.
        (SOME, {**GOOD, "usage": ZERO}, Spent(300, Usage(100, 10))),
        (SOME, {**BAD, "num_turns": 1}, Spent(300, Usage(100, 10))),
        (SOME, {**BAD, "num_turns": 1, "usage": ZERO}, Spent(300, Usage(100, 10))),
        (None, {**BAD, "num_turns": 1}, Spent(None)),
    ],
)  # fmt: skip
def test_tokens_that_nobody_counted_cost_what_nobody_knows(
    counted: object, result: dict[str, object], spent: Spent, tmp_path: Path
) -> None:
    message = {"id": "1", "model": FAKE, "content": [{"type": "text", "text": "x"}], "usage": counted}
    out = stream({"type": "assistant", "parent_tool_use_id": None, "message": message}, result)
    assert play(Qwen(), Recording(out), tmp_path, cost=price).turn.spent == spent


def test_a_change_of_model_is_told(tmp_path: Path) -> None:
    fallback = {"type": "system", "subtype": "model_fallback", "data": {"fromModel": "a", "toModel": "b"}}
    played = play(Qwen(), Recording(stream(fallback, GOOD)), tmp_path)
    assert Progress("the service failed: now with model b") in played.events


@pytest.mark.parametrize(
    ("line", "missed"),
    [
        (b"nonsense", 1), (b'{"type":"new"}', 1), (b'{"type":"system","subtype":7}', 1), (b'{"type":"assistant"}', 0),
        (b'{"type":"assistant","message":"text"}', 0), (b'{"type":"system","subtype":"model_fallback","data":3}', 0),
        (b'{"type":"assistant","message":{"id":"a","usage":{"input_tokens":"many"}}}', 0), (b"\xff", 1),
    ],
)  # fmt: skip
def test_nonsense_costs_its_own_line_at_most(line: bytes, missed: int, tmp_path: Path) -> None:
    played = play(Qwen(), Recording(stream() + line + b"\n" + stream(GOOD)), tmp_path)
    assert played.ok
    assert played.turn.text == "x"
    assert sum(isinstance(event, Unparsed) for event in played.events) == missed


def test_its_own_login_makes_the_cost_notional(home: Path, tmp_path: Path) -> None:
    settings(home, security={"auth": {"selectedType": "qwen-oauth"}})
    out = recorded("qwen")["success-tools"].read_bytes()
    assert play(Qwen(), Recording(out), tmp_path, cost=price).turn.notional


FORM = ("--output-format", "stream-json")


@pytest.mark.parametrize(
    ("flags", "model", "guarded", "more", "expected"),
    [
        ((), None, True, {}, ("--approval-mode", "auto-edit", *FORM)),
        ((), None, False, {}, ("--approval-mode", "yolo", *FORM)),
        ((), "m", True, {}, ("--approval-mode", "auto-edit", "--model", "m", *FORM)),
        (("-m=a", "-d", "--model", "b"), "m", False, {}, ("-d", "--approval-mode", "yolo", "--model", "m", *FORM)),
        (("--model", "a"), None, True, {}, ("--model", "a", "--approval-mode", "auto-edit", *FORM)),
        (("--approval-mode", "auto"), None, True, {}, ("--approval-mode", "auto", *FORM)),
        (("--yolo",), None, True, {}, ("--yolo", *FORM)),
        (("-y",), None, True, {}, ("-y", *FORM)),
        ((), None, True, {"session": "abc"}, ("--approval-mode", "auto-edit", "--resume", "abc", *FORM)),
        ((), None, True, {"stream": False}, ("--approval-mode", "auto-edit", *FORM)),
    ],
)
def test_the_argument_list(
    flags: tuple[str, ...], model: str | None, guarded: bool, more: dict[str, object], expected: tuple[str, ...],
    tmp_path: Path,
) -> None:  # fmt: skip
    assert Qwen().arguments(AgentInvocation(brief_in(tmp_path, **more), flags, model, guarded)) == expected


def test_it_sends_no_statistics(tmp_path: Path) -> None:
    command = play(Qwen(), Recording(stream(GOOD)), tmp_path).command
    assert dict(command.env)["QWEN_USAGE_STATISTICS_ENABLED"] == "false"


def test_the_model_is_the_named_one_or_that_of_its_own_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Qwen().model
    assert told((), None) is None
    settings(home, model={"name": "file"})
    assert told((), None) == "file"
    monkeypatch.setenv("QWEN_MODEL", "second")
    assert told((), None) == "second"
    monkeypatch.setenv("OPENAI_MODEL", "first")
    assert told((), None) == "first"
    assert told(("--model=flag",), None) == "flag"
    assert told(("--model=flag",), "setting") == "setting"


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"model": 3}', '{"model": {"name": 3}}', '{"model": {"name": ""}}'])
def test_settings_that_make_no_sense_name_no_model(text: str, home: Path) -> None:
    (home / ".qwen").mkdir(parents=True)
    (home / ".qwen" / "settings.json").write_text(text)
    assert Qwen().model((), None) is None
