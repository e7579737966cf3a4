"""What is made of a run as spans."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from ralphproof.agents.selection import KNOWN_AGENTS, agent_traits
from ralphproof.engine.agent import Spent, ToolEnded, ToolStarted, Turn, Usage
from ralphproof.engine.check import CheckReport, Finding
from ralphproof.engine.limits import COST_LIMIT, INTERRUPTED, WAITING, Breach, Spend
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome, Passed, Retry, Stopped, Verdict
from ralphproof.engine.plan import Job, Stage, Task
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.records import (
    CheckBegan,
    CheckEnded,
    CheckStopped,
    Judged,
    Picked,
    Record,
    Resumed,
    RunBegan,
    RunEnded,
    ScmBegan,
    ScmEnded,
    TurnBegan,
    TurnEnded,
)
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import CommitResult, Snapshot
from ralphproof.reports import otel
from ralphproof.reports.otel import MAX_TOOL_CALLS, OtelObserver, TraceSpan, span_id, trace_id
from tests.needs import require

if TYPE_CHECKING:
    from ralphproof.base.value import Json

require(find_spec("opentelemetry") is not None, "opentelemetry")

S = 1_000_000_000
TREE = Snapshot(None, None)
FACTS: dict[str, Json] = {
    "preset": "harness", "agent": "claude", "model": "opus", "sandbox": {"name": "bubblewrap", "strength": "strong"}
}  # fmt: skip
BEGAN = RunBegan("run-1", TREE, {**FACTS, "directory": "/home/me/calc"}, 100.0)
PICKED = Picked(1, Job(Task("t1", "the prompt", "a title"), Stage("coder")))
ASKED = TurnBegan(1, 1, "digest", agent="claude")
REPLY = Turn(
    Exit(0), text="a word of the agent's", usage=Usage(10, 5, 300, 20), micro_usd=120_000, session="s1",
    model="claude-opus-5-1", tools=2, version="2.1.3",
)  # fmt: skip
COMPLETED = RunEnded(Completed(1, Spend(120_000), 12.5, "what the agent said", True))


class Kept:
    """Keeps what it is given."""

    failures: list[str] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.spans: list[TraceSpan] = []

    def put(self, span: TraceSpan) -> None:
        self.spans.append(span)

    def close(self, seconds: float, patience_s: Callable[[], float]) -> None:
        """Nothing is brought away."""

    def __getitem__(self, name: str) -> TraceSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]


class Watch:
    """A clock that goes on by a second whenever it is looked at."""

    def __init__(self, seconds: int = 200) -> None:
        self.seconds = seconds

    def __call__(self) -> int:
        self.seconds += 1
        return self.seconds * S


def seen(*records: Record, earlier: Iterable[tuple[float, Record]] = (), run: str = "run-1") -> Kept:
    """What is sent where these are seen, one a second from second 201 on."""
    kept = Kept()
    made = OtelObserver(kept, run, earlier, Watch())
    for record in records:
        made.on_record(record)
    return kept


def stamped(*records: Record) -> list[tuple[float, Record]]:
    """The records of a dead process, one a second from second 101 on."""
    return [(101.0 + place, record) for place, record in enumerate(records)]


def stopped(reason: str) -> Aborted:
    return Aborted(Breach(reason, "in words"), 1, Spend(), 1.0, "")


def ended(outcome: Outcome) -> TraceSpan:
    return seen(BEGAN, RunEnded(outcome))["ralph.run"]


def test_a_turn_is_told_in_the_words_of_opentelemetry_and_nothing_that_was_said_is() -> None:
    span = seen(BEGAN, PICKED, ASKED, TurnEnded(1, 1, REPLY))["invoke_agent claude"]
    assert span == TraceSpan(
        "invoke_agent claude", trace_id("run-1"), span.id, span_id("run-1", 0, ("iteration", 1)), 203 * S, 204 * S,
        {
            "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "claude", "gen_ai.agent.version": "2.1.3",
            "gen_ai.provider.name": "anthropic", "gen_ai.request.model": "opus",
            "gen_ai.response.model": "claude-opus-5-1", "gen_ai.conversation.id": "s1",
            "gen_ai.usage.input_tokens": 330, "gen_ai.usage.output_tokens": 5,
            "gen_ai.usage.cache_read.input_tokens": 300, "gen_ai.usage.cache_creation.input_tokens": 20,
            "ralph.iteration": 1, "ralph.turn": 1, "ralph.cost.usd": 0.12, "ralph.exit.why": "exit",
            "ralph.exit.code": 0, "ralph.tools": 2, "ralph.tools.failed": 0, "ralph.tools.denied": 0,
        },
        client=True,
    )  # fmt: skip


def test_the_names_are_those_that_opentelemetry_has() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # they are about to move to a package of their own
        gen_ai = importlib.import_module("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
        error = importlib.import_module("opentelemetry.semconv.attributes.error_attributes")
        providers = {one.value for one in gen_ai.GenAiProviderNameValues}
        operations = {one.value for one in gen_ai.GenAiOperationNameValues}
    known = {one for name, one in vars(gen_ai).items() if name.startswith("GEN_AI")} | {error.ERROR_TYPE}
    kept = Kept()
    made = OtelObserver(kept, "run-1", now_ns=Watch())
    made.on_record(BEGAN)
    made.on_record(ASKED)
    made.on_events([ToolStarted("1", "Bash", "ls")])
    made.on_record(TurnEnded(1, 1, REPLY))
    used = {name for span in kept.spans for name in span.attributes} | {otel.ERROR_TYPE}
    assert {name for name in used if not name.startswith("ralph.")} <= known
    assert {span.attributes["gen_ai.operation.name"] for span in kept.spans} <= operations
    assert {agent_traits(name).provider for name in KNOWN_AGENTS} - {""} <= providers


@pytest.mark.parametrize(
    ("agent", "provider"),
    [("claude", "anthropic"), ("codex", "openai"), ("gemini", "gcp.gemini"), ("opencode", None), ("mine", None)],
)
def test_a_provider_is_told_where_it_is_known(agent: str, provider: str | None) -> None:
    span = seen(BEGAN, TurnBegan(1, 1, "", agent=agent), TurnEnded(1, 1, REPLY))[f"invoke_agent {agent}"]
    assert span.attributes.get("gen_ai.provider.name") == provider


@pytest.mark.parametrize(
    ("facts", "place", "model"),
    [({}, 0, "opus"), ({"ladder": ["a", "b"]}, 0, None), ({"rotate": ["a", "b"]}, 0, None), ({}, 1, None)],
)
def test_the_model_that_is_asked_for_is_told_where_it_is_sure(
    facts: dict[str, Json], place: int, model: str | None
) -> None:
    began = RunBegan("run-1", TREE, {**FACTS, **facts})
    span = seen(began, TurnBegan(1, 1, "", agent="claude", place=place), TurnEnded(1, 1, REPLY))["invoke_agent claude"]
    assert span.attributes.get("gen_ai.request.model") == model


@pytest.mark.parametrize(
    ("reply", "cost"),
    [
        (Turn(Exit(0), micro_usd=None), {}),
        (Turn(Exit(0), micro_usd=0), {"ralph.cost.usd": 0.0}),
        (Turn(Exit(0), micro_usd=5_000, at_least=True), {"ralph.cost.usd": 0.005, "ralph.cost.at_least": True}),
        (Turn(Exit(0), micro_usd=5_000, notional=True), {"ralph.cost.usd": 0.005, "ralph.cost.notional_usd": 0.005}),
    ],
)
def test_an_unknown_cost_is_not_told_and_never_zero(reply: Turn, cost: dict[str, object]) -> None:
    span = seen(BEGAN, ASKED, TurnEnded(1, 1, reply))["invoke_agent claude"]
    assert {name: one for name, one in span.attributes.items() if "cost" in name} == cost


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Turn(Exit(0), text="x"), ""),
        (Turn(Exit(3), error="sk-ant-x"), "agent"),
        (Turn(Exit(None, "unstartable", error="no such file")), "config"),
        (Turn(Exit(None, "stopped")), "signal"),
        (Turn(Exit(None, "interrupted")), "harness"),
        (Turn(Exit(1), blame="service"), "service"),
    ],
)
def test_a_turn_that_went_wrong_says_whose_fault_it_is_and_not_what_was_said(reply: Turn, error: str) -> None:
    span = seen(BEGAN, ASKED, TurnEnded(1, 1, reply))["invoke_agent claude"]
    assert span.error == error
    assert "sk-ant-x" not in str(span)
    assert "no such file" not in str(span)


def test_tool_calls_are_told_without_arguments_and_output() -> None:
    kept = Kept()
    made = OtelObserver(kept, "run-1", now_ns=Watch())
    for record in (BEGAN, PICKED, ASKED):
        made.on_record(record)
    made.on_events([ToolStarted("a", "Bash", "cat /etc/passwd"), ToolStarted("b", "Edit")])
    made.on_events([ToolEnded("a", False, "its output"), ToolEnded("unknown", True)])
    assert kept.spans == []
    made.on_record(TurnEnded(1, 1, REPLY))
    turn, bash, edit = kept["invoke_agent claude"], kept["execute_tool Bash"], kept["execute_tool Edit"]
    named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "Bash", "gen_ai.tool.call.id": "a"}
    assert (bash.parent, bash.start_ns, bash.end_ns) == (turn.id, 204 * S, 206 * S)
    assert (bash.error, bash.attributes, bash.client) == ("tool", named, False)
    assert (edit.start_ns, edit.end_ns, edit.error) == (205 * S, turn.end_ns, "")
    assert edit.attributes["ralph.unfinished"] is True


def test_of_very_many_tool_calls_the_first_are_told_and_the_rest_is_counted() -> None:
    kept = Kept()
    made = OtelObserver(kept, "run-1")
    made.on_record(BEGAN)
    made.on_record(ASKED)
    for _ in range(MAX_TOOL_CALLS + 7):
        made.on_events([ToolStarted("1", "Bash"), ToolEnded("1", True)])
    made.on_record(TurnEnded(1, 1, REPLY))
    assert kept.names.count("execute_tool Bash") == MAX_TOOL_CALLS == 500
    assert len({span.id for span in kept.spans}) == MAX_TOOL_CALLS + 1
    assert kept["invoke_agent claude"].attributes["ralph.tools.left_out"] == 7


def test_what_is_heard_outside_a_turn_is_no_tool_call() -> None:
    kept = Kept()
    made = OtelObserver(kept, "run-1")
    made.on_record(BEGAN)
    made.on_events([ToolStarted("1", "Bash"), ToolEnded("1", True)])
    made.on_record(COMPLETED)
    assert kept.names == ["ralph.run"]


@pytest.mark.parametrize(
    ("finding", "error"),
    [
        (Finding("make test", True, code=0, seconds=2.0), ""),
        (Finding("make test", False, code=1, seconds=2.0), "failed"),
        (Finding("make test", False, errored=True, seconds=2.0), "errored"),
    ],
)
def test_a_check_is_told_with_its_own_time(finding: Finding, error: str) -> None:
    """Those that are asked together are recorded together: a short one did not take as long as the longest."""
    kept = seen(BEGAN, PICKED, CheckBegan(1, 1, "make test"), ScmBegan(9), ScmBegan(8), CheckEnded(1, 1, finding))
    span = kept["ralph.check make test"]
    assert (span.parent, span.start_ns, span.end_ns) == (span_id("run-1", 0, ("iteration", 1)), 203 * S, 205 * S)
    assert span.error == error
    wanted = {"ralph.check.name": "make test", "ralph.check.passed": finding.passed, "ralph.iteration": 1}
    assert wanted.items() <= span.attributes.items()


def test_a_held_out_check_has_no_name() -> None:
    kept = seen(BEGAN, CheckBegan(0, 1, "secret.sh"), CheckEnded(0, 1, Finding("secret.sh", True, hidden=True)))
    assert kept["ralph.check"].parent == span_id("run-1", 0, ("run",))
    assert kept["ralph.check"].attributes["ralph.check.held_out"] is True
    assert "secret.sh" not in str(kept.spans)


def test_a_judge_that_was_stopped_is_told_with_its_cost_when_the_run_ends() -> None:
    cut = CheckStopped(1, 1, "judge", Spent(3_000), 1)
    kept = seen(BEGAN, PICKED, CheckBegan(1, 1, "judge", 2), cut, RunEnded(stopped(INTERRUPTED)))
    span = kept["ralph.check"]
    assert (span.attributes["ralph.cost.usd"], span.attributes["ralph.unfinished"]) == (0.003, True)
    assert kept.names == ["ralph.check", "ralph.iteration", "ralph.run"]


def test_work_that_is_kept_is_told() -> None:
    kept = seen(BEGAN, PICKED, ScmBegan(1), ScmEnded(1, CommitResult("abc"), Turn(Exit(0), micro_usd=1_000)))
    known = {"ralph.iteration": 1, "ralph.commit.id": "abc", "ralph.cost.usd": 0.001}
    assert (kept["ralph.commit"].attributes, kept["ralph.commit"].error) == (known, "")
    refused = seen(BEGAN, PICKED, ScmBegan(1), ScmEnded(1, CommitResult(error="a hook said: sk-ant")))["ralph.commit"]
    assert (refused.attributes, refused.error) == ({"ralph.iteration": 1}, "commit")


def test_what_followed_from_an_iteration_is_told() -> None:
    verdicts: dict[str, Verdict] = {
        "passed": Passed(CheckReport()), "retry": Retry(Feedback()), "stopped": Stopped(Breach(COST_LIMIT, "too dear")),
    }  # fmt: skip
    found = {name: seen(BEGAN, PICKED, Judged(1, 1, one, 1.0))["ralph.iteration"] for name, one in verdicts.items()}
    assert {name: span.attributes["ralph.verdict"] for name, span in found.items()} == dict(
        zip(found, found, strict=True)
    )
    assert {name: (span.error, span.good) for name, span in found.items()} == {
        "passed": ("", True), "retry": ("", False), "stopped": (COST_LIMIT, False),
    }  # fmt: skip
    span = found["stopped"]
    assert span.attributes["ralph.reason"] == COST_LIMIT
    assert (span.attributes["ralph.stage"], span.attributes["ralph.task.id"]) == ("coder", "t1")
    assert (span.parent, span.start_ns, span.end_ns) == (span_id("run-1", 0, ("run",)), 202 * S, 203 * S)


@pytest.mark.parametrize(
    ("outcome", "told", "error", "good"),
    [
        (COMPLETED.outcome, {"ralph.outcome": "COMPLETED", "ralph.exit_code": 0, "ralph.proof": "verified"}, "", True),
        (stopped(COST_LIMIT), {"ralph.reason": COST_LIMIT, "ralph.exit_code": 1}, COST_LIMIT, False),
        (stopped(WAITING), {"ralph.reason": WAITING, "ralph.exit_code": 4}, "", False),
        (Failed("no key", 0, 2), {"ralph.outcome": "ERROR", "ralph.exit_code": 2}, "config", False),
        (Failed("a bug", 0), {"ralph.outcome": "ERROR", "ralph.exit_code": 3}, "harness", False),
    ],
)  # fmt: skip
def test_the_root_tells_how_the_run_ended(outcome: Outcome, told: dict[str, object], error: str, good: bool) -> None:
    span = ended(outcome)
    held = {"ralph.run.id": "run-1", "ralph.session": 1, "ralph.project": "calc", "ralph.preset": "harness"}
    held |= {"ralph.agent": "claude", "ralph.sandbox.name": "bubblewrap", "ralph.sandbox.strength": "strong"}
    assert (held | told).items() <= span.attributes.items()
    assert (span.error, span.good, span.parent, span.start_ns) == (error, good, b"", 100 * S)


@pytest.mark.parametrize(
    ("spend", "cost"),
    [(Spend(unpriced=1), None), (Spend(5_000, unpriced=1), 0.005), (Spend(), 0.0), (Spend(30_000), 0.03)],
)
def test_the_root_tells_no_cost_that_nobody_knows(spend: Spend, cost: float | None) -> None:
    span = ended(Completed(1, spend, 1.0, "", True))
    assert span.attributes.get("ralph.cost.usd") == cost
    assert span.attributes.get("ralph.cost.at_least") == (True if spend.unpriced and cost else None)


def test_an_iteration_that_was_picked_and_never_begun_is_not_told() -> None:
    assert seen(BEGAN, PICKED, RunEnded(stopped(COST_LIMIT))).names == ["ralph.run"]


def test_the_end_is_told_once_and_nothing_comes_after_it() -> None:
    kept = seen(BEGAN, COMPLETED, COMPLETED, ScmBegan(1), ScmEnded(1, CommitResult("abc")))
    assert kept.names == ["ralph.run"]


def test_a_clock_that_is_set_back_makes_no_span_end_before_it_began() -> None:
    kept, clock = Kept(), Watch(50)
    made = OtelObserver(kept, "run-1", now_ns=clock)
    made.on_record(BEGAN)  # at second 100
    made.on_record(COMPLETED)
    assert kept["ralph.run"].start_ns == kept["ralph.run"].end_ns == 100 * S


# A run that is taken up again.


def test_a_run_that_lost_its_process_goes_on_with_the_spans_that_were_open() -> None:
    dead = stamped(BEGAN, PICKED, ASKED, TurnEnded(1, 1, REPLY), CheckBegan(1, 1, "make test"))
    box: dict[str, Json] = {"name": "landlock", "strength": "partial"}
    later: list[Record] = [Resumed(2, 300.0, 9.0, box), CheckEnded(1, 1, Finding("make test", True))]
    kept = seen(*later, Judged(1, 1, Passed(CheckReport()), 1.0), COMPLETED, earlier=dead)
    assert kept.names == ["ralph.check make test", "ralph.iteration", "ralph.run"]  # the turn was sent before
    assert kept["ralph.check make test"].start_ns == 105 * S
    assert kept["ralph.iteration"].start_ns == 102 * S
    root = kept["ralph.run"]
    assert (root.start_ns, root.after, root.id) == (100 * S, b"", span_id("run-1", 0, ("run",)))
    assert (root.attributes["ralph.session"], root.attributes["ralph.sandbox.strength"]) == (2, "partial")


def test_a_turn_that_lost_its_process_is_heard_from_its_beginning() -> None:
    kept = Kept()
    made = OtelObserver(kept, "run-1", stamped(BEGAN, PICKED, ASKED), Watch())
    made.on_record(Resumed(2, 300.0, 9.0))
    made.on_events([ToolStarted("1", "Bash"), ToolEnded("1", True)])
    made.on_record(TurnEnded(1, 1, REPLY))
    assert kept.names == ["execute_tool Bash", "invoke_agent claude"]
    assert kept["invoke_agent claude"].start_ns == 103 * S


def test_a_run_that_goes_on_after_its_end_has_a_root_for_each_and_no_id_twice() -> None:
    stop = RunEnded(stopped(COST_LIMIT))
    first: list[Record] = [
        BEGAN,
        PICKED,
        ASKED,
        TurnEnded(1, 1, REPLY),
        Judged(1, 1, Stopped(Breach(COST_LIMIT, "")), 1.0),
        stop,
    ]
    before = seen(*first)
    after = seen(
        Resumed(2, 300.0, 9.0), Judged(1, 1, Passed(CheckReport()), 1.0, 2), COMPLETED, earlier=stamped(*first)
    )
    assert after.names == ["ralph.iteration", "ralph.run"]
    root = after["ralph.run"]
    assert (root.parent, root.after, root.start_ns) == (b"", before["ralph.run"].id, 300 * S)
    assert after["ralph.iteration"].parent == root.id
    every = [*before.spans, *after.spans]
    assert len({span.id for span in every}) == len(every)
    assert {span.trace for span in every} == {trace_id("run-1")}


def test_a_turn_that_outlived_the_end_of_its_run_is_told_by_both() -> None:
    first: list[Record] = [BEGAN, PICKED, ASKED, RunEnded(Failed("the disk is full", 1))]
    before = seen(*first)
    after = seen(Resumed(2, 300.0, 9.0), TurnEnded(1, 1, REPLY), earlier=stamped(*first))
    assert before["invoke_agent claude"].attributes["ralph.unfinished"] is True
    turn = after["invoke_agent claude"]
    assert (turn.start_ns, turn.attributes["ralph.cost.usd"]) == (300 * S, 0.12)
    assert turn.id != before["invoke_agent claude"].id


def test_runs_have_traces_of_their_own() -> None:
    assert trace_id("run-1") != trace_id("run-2")
    assert len(trace_id("run-1")) == 16
    assert len(span_id("run-1", "x")) == 8
