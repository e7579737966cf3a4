"""OpenCode 1.18.33: what it printed is told as it was meant, and it is called as it wants to be called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.adapter import AgentInvocation
from ralphproof.agents.opencode import DENY_PERMISSIONS, OpenCode
from ralphproof.engine.agent import (
    THE_CONFIGURATION,
    THE_SERVICE,
    AgentFault,
    ConfigFault,
    Ended,
    Fault,
    Said,
    ServiceFault,
    SignalFault,
    Spent,
    Started,
    Todo,
    TodosChanged,
    Turn,
    Unparsed,
    Usage,
)
from ralphproof.engine.sandbox import Exit
from tests.agents.expected_turn import DONE, Case, means, price, todos
from tests.agents.replay import NOW_S, Recording, brief_in, play, recorded

OK, FAILED = Exit(0), Exit(1)
TIMEOUT = Exit(None, "timeout", 15)
FAKE = "fake/fake-model"
WROTE = "write /workspace/proj/hello.txt"


def turn(session: str, text: str = "", exit: Exit = OK, **more: Any) -> Turn:
    return Turn(exit, text, session=session, **more)


def used(steps: int) -> dict[str, Any]:
    """The scripted model read 200 tokens a step, 800 from its cache, and wrote 50, which OpenCode says is $0.00265.

    By the prices in its settings: 200 × 5 + 50 × 25 + 800 × 0.5 = 1000 + 1250 + 400 = 2650 micro-dollars.
    """
    return {"usage": Usage(200 * steps, 50 * steps, 800 * steps), "micro_usd": 2650 * steps}


def thought(steps: int) -> dict[str, Any]:
    """In later recordings it read 1010, and of the 50 that it wrote 7 were thoughts.

    1010 × 5 + (43 + 7) × 25 + 800 × 0.5 = 5050 + 1250 + 400 = 6700 micro-dollars a step.
    """
    return {"usage": Usage(1010 * steps, 50 * steps, 800 * steps), "micro_usd": 6700 * steps}


NOTHING: dict[str, Any] = {"usage": Usage(), "micro_usd": 0}

CASES = {
    "success-tools": Case(
        turn("ses_e1f835d00ffeL67SYtZtfR4pOM", DONE, tools=2, **used(3)),
        tools=("write hello.txt", "bash cat hello.txt && echo shell-ran > ran.txt"),
        said=("I will write the file.", "Now run it.", DONE),
    ),
    # Our timeout ended it before its last message.
    "tool-error": Case(
        turn("ses_e1f81eb33ffeGRDXrRb2vzAgfu", exit=TIMEOUT, tools=1, errors=1, at_least=True, **used(1)),
        AgentFault, tools=("!bash echo oops >&2; exit 3",),
    ),
    # What is denied it is told, and it goes on.
    "guarded": Case(
        turn(
            "ses_e1e56b3bdffe2xBFvxV3atWyO2", DONE, tools=6, errors=4, **thought(5),
            denied=("bash: echo ran > ran.txt", "write: /workspace/outside3.txt", "read: /workspace/proj/.env"),
        ),
        tools=(
            WROTE, "!bash echo ran > ran.txt", "!write /workspace/outside3.txt", "todowrite", "!invalid webfetch",
            "!read /workspace/proj/.env",
        ),
        said=("I will write.", "Now run it.", DONE),
    ),
    # Without our rules it asks, is refused, and stops with exit code 0 and no last word.
    "rejected": Case(
        turn(
            "ses_e1e570328ffeI6uhT4S9uE3xNw", tools=3, errors=1, denied=("write: /workspace/outside3.txt",),
            **thought(3),
        ),
        AgentFault, "the agent stopped where a tool was not permitted",
        tools=("write /workspace/proj/hello.txt", "bash echo ran > ran.txt", "!write /workspace/outside3.txt"),
        said=("I will write.", "Now run it."),
    ),
    # The second turn of the session that `guarded` began: it tells its own steps alone.
    "resumed": Case(
        turn(
            "ses_e1e56b3bdffe2xBFvxV3atWyO2", "Second answer.", tools=2, errors=1, model=FAKE, **thought(2),
        ),
        tools=("write /workspace/proj/hello2.txt", "!bash echo oops >&2; exit 3"),
        said=("I will write the file.", "Second answer."), model=FAKE,
    ),
    # What its subagent spent is not told.
    "subagent": Case(
        turn("ses_e1e4cebc6ffe71nTT1kGzqWywp", DONE, tools=1, at_least=True, **thought(2)), tools=("task look",),
        said=(DONE,),
    ),
    # It summed up its context and went on. The summary and its prompt are no last words; for the error it exits with 1.
    "compacted": Case(
        turn("ses_e1e4d2c9cffe643nuMI7WeOqCg", DONE, FAILED, **thought(2)), AgentFault,
        "the prompt of opencode or its context grew too long", said=("## Goal\nDo the task.", DONE), progress=1,
    ),
    "cut-off": Case(
        turn("ses_e1e4c9942ffeGhs6l1kUuUeoxS", "half an ans", **thought(1)), AgentFault,
        "the model's last message was cut off", said=("half an ans",),
    ),
    "empty": Case(turn("ses_e1f811382ffe2R2alwuRk8pUVf", **used(1))),
    "api-401": Case(
        turn("ses_e1f810db1ffezLK8aozhbVvt8G", exit=FAILED, blame=THE_CONFIGURATION, **NOTHING), ConfigFault,
        "opencode is not logged in (API error 401: Incorrect API key provided); run `opencode auth login`",
    ),
    "api-404": Case(
        turn("ses_e1e5345b0ffe2zhDUmGUAdK7ZR", exit=FAILED, blame=THE_CONFIGURATION, **NOTHING), ConfigFault,
        "opencode does not know its model",
    ),
    "unknown-model": Case(
        turn("ses_e1e533228ffessh2Csw04a2Sfz", exit=FAILED, **NOTHING), AgentFault,
        "Check server logs for details. (its log is in ~/.local/share/opencode/log)",
    ),
    # It tries again for minutes, and tells nobody: our timeout ended it.
    "api-429": Case(Turn(TIMEOUT), AgentFault),
    "api-500": Case(Turn(TIMEOUT), AgentFault),
    "api-529": Case(Turn(TIMEOUT), AgentFault),
}  # fmt: skip


def test_every_recording_is_in_the_table() -> None:
    assert set(CASES) == set(recorded("opencode"))


@pytest.mark.parametrize("name", CASES)
def test_a_recording_is_told_as_it_was_meant(name: str, tmp_path: Path) -> None:
    played = means(OpenCode(), name, CASES[name], tmp_path)
    assert not played.said_result  # a summary ends as a last message does: only the end of the program tells


def test_an_empty_answer_is_empty_and_no_error(tmp_path: Path) -> None:
    assert play(OpenCode(), Recording(recorded("opencode")["empty"].read_bytes()), tmp_path).turn.empty


def test_its_list_of_things_to_do_is_told(tmp_path: Path) -> None:
    played = play(OpenCode(), Recording(recorded("opencode")["guarded"].read_bytes()), tmp_path)
    assert todos(played) == [TodosChanged((Todo("one", "active"),))]


def stream(*lines: tuple[str, object]) -> bytes:
    told = [{"type": kind, "sessionID": "s", "error" if kind == "error" else "part": part} for kind, part in lines]
    return b"".join(json.dumps(line).encode() + b"\n" for line in told)


def text(said: str, message: str = "m", **more: object) -> tuple[str, object]:
    return "text", {"messageID": message, "text": said, **more}


def finish(reason: object = "stop", message: str = "m", cost: object = 0.5, **counts: object) -> tuple[str, object]:
    return "step_finish", {"messageID": message, "reason": reason, "cost": cost, "tokens": counts}


def api_error(message: str, status: int) -> tuple[str, object]:
    return "error", {"name": "APIError", "data": {"message": message, "statusCode": status}}


BEGIN: tuple[str, object] = ("step_start", {})
FIRST = (BEGIN, text("first", "1"), finish("tool-calls", "1"), BEGIN)
NO_LAST_WORD = "the agent stopped after a tool call and said no last word"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((BEGIN, text("All "), text("done."), finish()), Ended(True, "All done.")),
        ((*FIRST, text("last", "2"), finish("stop", "2")), Ended(True, "last")),
        ((*FIRST, finish("stop", "2")), Ended(True, "")),
        ((BEGIN, text("said"), text("prompt", synthetic=True), finish()), Ended(True, "said")),
        # It succeeded only if its model stopped because it had said all.
        ((BEGIN, text("said"), finish("other")), Ended(False, "said", "the model stopped: other")),
        ((BEGIN, text("said"), finish("unknown")), Ended(False, "said", "the model stopped: unknown")),
        ((BEGIN, text("said"), finish("finished")), Ended(False, "said", "the model stopped: finished")),
        ((BEGIN, text("said"), finish(7)), Ended(False, "said", "the model stopped: no reason was told")),
        ((BEGIN, text("said"), finish(None)), Ended(False, "said", "the model stopped: no reason was told")),
        ((BEGIN, text("said"), ("step_finish", {})), Ended(False, "", "the model stopped: no reason was told")),
        ((BEGIN, text("said"), finish("tool-calls")), Ended(False, "said", NO_LAST_WORD)),
        ((BEGIN, text("said"), finish("error")), Ended(False, "said", "the model stopped: error")),
        ((BEGIN, text("said")), Ended(False, "said", "the agent ended in the middle of a step")),
        ((BEGIN, text("said"), finish(), BEGIN), Ended(False, "said", "the agent ended in the middle of a step")),
        ((api_error("odd", 500), BEGIN, text("said"), finish()), Ended(True, "said")),
        ((BEGIN, text("said"), finish(), ("error", {"name": "Odd"})), Ended(False, "", "Odd")),
    ],
)  # fmt: skip
def test_how_it_went_is_told_when_it_has_ended(
    lines: tuple[tuple[str, object], ...], expected: Ended, tmp_path: Path
) -> None:
    assert play(OpenCode(), Recording(stream(*lines)), tmp_path).events[-1] == expected


@pytest.mark.parametrize(
    ("error", "fault", "resets_at"),
    [
        (api_error("boom", 500), ServiceFault, None),
        (api_error("slow down, try again in 60 seconds", 429), ServiceFault, NOW_S + 60),
        (api_error("You exceeded your current quota, please check your plan", 429), ConfigFault, None),
        (api_error("x", 403), ConfigFault, None),
        (("error", {"name": "ProviderAuthError", "data": {"providerID": "p", "message": "no key"}}), ConfigFault, None),
        (("error", {"name": "ContextOverflowError", "data": {"message": "so long"}}), AgentFault, None),
        (("error", {"name": "MessageAbortedError", "data": {"message": "Aborted"}}), AgentFault, None),
        (("error", {"name": "APIError", "data": "what"}), AgentFault, None),
        (("error", "what"), AgentFault, None),
    ],
)
def test_whose_fault_an_error_is(
    error: tuple[str, object], fault: type[Fault], resets_at: float | None, tmp_path: Path
) -> None:
    played = play(OpenCode(), Recording(stream(error), FAILED), tmp_path)
    assert type(played.fault) is fault
    if isinstance(played.fault, ServiceFault):
        assert played.turn.blame == THE_SERVICE
        assert played.fault.resets_at == resets_at


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # 100 × 2 + 10 × 10 = 300 micro-dollars.
        (FAKE, Spent(300, Usage(100, 10), notional=True)),
        ("other/model", Spent(None, Usage(100, 10))),
        (None, Spent(None, Usage(100, 10))),
    ],
)
def test_tokens_that_cost_nothing_are_priced_by_us(model: str | None, expected: Spent, tmp_path: Path) -> None:
    out = stream(BEGIN, text("x"), finish(cost=0, input=100, output=4, reasoning=6))
    assert play(OpenCode(), Recording(out), tmp_path, cost=price, model=model).turn.spent == expected


@pytest.mark.parametrize("cost", [-1, "1", None, 1e300])
def test_a_cost_that_can_be_none_makes_the_sum_unknown(cost: object, tmp_path: Path) -> None:
    out = stream(BEGIN, text("x"), finish(cost=cost, input=1), BEGIN, finish(cost=0.5, input=1))
    assert play(OpenCode(), Recording(out), tmp_path, cost=price).turn.spent == Spent(None, Usage(2))


def test_a_step_that_did_not_end_leaves_the_sum_open(tmp_path: Path) -> None:
    out = stream(BEGIN, finish("tool-calls", input=1), BEGIN, text("x"))
    assert play(OpenCode(), Recording(out, FAILED), tmp_path).turn.spent == Spent(500_000, Usage(1), at_least=True)


def test_what_it_spent_is_told_with_every_step(tmp_path: Path) -> None:
    played = play(OpenCode(), Recording(stream(BEGIN, finish("tool-calls"), BEGIN, text("x"), finish())), tmp_path)
    spent = [(event.micro_usd, event.at_least) for event in played.events if isinstance(event, Spent)]
    assert spent == [(500_000, True), (1_000_000, True), (1_000_000, False)]


def test_of_a_turn_without_a_word_stderr_tells(tmp_path: Path) -> None:
    played = play(OpenCode(), Recording(b"", FAILED, "Error: Session not found\n"), tmp_path)
    assert (played.turn.error or "").endswith("without its result: Error: Session not found")
    assert played.turn.usage is None


def test_a_turn_that_we_ended_is_not_its_failure(tmp_path: Path) -> None:
    played = play(OpenCode(), Recording(stream(BEGIN, text("x")), Exit(None, "stopped", 15)), tmp_path)
    assert isinstance(played.fault, SignalFault)
    assert played.turn.error is None


@pytest.mark.parametrize(
    ("line", "missed"),
    [
        (b"nonsense", 1), (b'{"type":"new","sessionID":"s"}', 1), (b'{"type":"text","part":7}', 1), (b"\xff", 1),
        (b'{"type":"tool_use"}', 0), (b'{"type":"text","part":{"text":[]}}', 0), (b'{"type":"reasoning"}', 0),
        (b'{"type":"tool_use","part":{"tool":[],"state":{"input":7,"output":{},"error":3}}}', 0),
    ],
)  # fmt: skip
def test_nonsense_costs_its_own_line_at_most(line: bytes, missed: int, tmp_path: Path) -> None:
    played = play(OpenCode(), Recording(line + b"\n" + stream(BEGIN, text("x"), finish())), tmp_path)
    assert played.ok
    assert played.turn.text == "x"
    assert sum(isinstance(event, Unparsed) for event in played.events) == missed


def test_it_says_its_session_before_all_else(tmp_path: Path) -> None:
    played = play(OpenCode(), Recording(stream(text("x"))), tmp_path, model=FAKE)
    assert played.events[:2] == [Started("s", FAKE), Said("x")]


FORM = ("--format", "json")


@pytest.mark.parametrize(
    ("flags", "model", "guarded", "more", "expected"),
    [
        ((), None, True, {}, ("run", *FORM)),
        ((), None, False, {}, ("run", "--auto", *FORM)),
        ((), "p/m", True, {}, ("run", "--model", "p/m", *FORM)),
        (("-m", "a", "--thinking"), "p/m", False, {}, ("run", "--thinking", "--auto", "--model", "p/m", *FORM)),
        (("--model=a",), None, True, {}, ("run", "--model=a", *FORM)),
        (("--yolo",), None, False, {}, ("run", "--yolo", *FORM)),
        ((), None, True, {"session": "ses_1"}, ("run", "--session", "ses_1", *FORM)),
        ((), None, True, {"stream": False}, ("run", *FORM)),
    ],
)
def test_the_argument_list(
    flags: tuple[str, ...], model: str | None, guarded: bool, more: dict[str, object], expected: tuple[str, ...],
    tmp_path: Path,
) -> None:  # fmt: skip
    assert OpenCode().arguments(AgentInvocation(brief_in(tmp_path, **more), flags, model, guarded)) == expected


@pytest.mark.parametrize(
    ("flags", "guarded", "env", "held"),
    [
        ((), True, (), True),
        ((), False, (), False),
        (("--auto",), True, (), False),
        ((), True, (("OPENCODE_PERMISSION", "{}"),), False),
    ],
)
def test_it_is_held_back_by_a_variable_unless_the_user_says_otherwise(
    flags: tuple[str, ...], guarded: bool, env: tuple[tuple[str, str], ...], held: bool, tmp_path: Path
) -> None:
    given = OpenCode().environment(AgentInvocation(brief_in(tmp_path, env=env), flags, None, guarded))
    # It would work in the folder that $PWD names, and not in the one that it was started in.
    assert given == {"PWD": str(tmp_path), **({"OPENCODE_PERMISSION": DENY_PERMISSIONS} if held else {})}


def test_what_holds_it_back_denies_and_asks_nobody() -> None:
    rules = json.loads(DENY_PERMISSIONS)
    assert rules["bash"] == {"*": "deny", "": "deny"}
    assert rules["external_directory"] == {"*": "deny"}
    assert "ask" not in DENY_PERMISSIONS
    assert "edit" not in rules


def test_it_does_not_update_itself(tmp_path: Path) -> None:
    command = play(OpenCode(), Recording(b""), tmp_path).command
    assert dict(command.env)["OPENCODE_DISABLE_AUTOUPDATE"] == "1"
