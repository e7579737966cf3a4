"""The observer that posts a run's progress and end to the message buses."""

from __future__ import annotations

from collections.abc import Iterable

from ralphproof.base.errors import RalphError
from ralphproof.base.value import Json, Protocol, assert_never
from ralphproof.engine.agent import (
    AgentFault,
    ConfigFault,
    Event,
    HarnessFault,
    ServiceFault,
    SignalFault,
    Turn,
    classify_fault,
)
from ralphproof.engine.check import Finding
from ralphproof.engine.limits import MAX_ITERATIONS, STEP, WAITING
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome, Stopped, Verdict
from ralphproof.engine.records import (
    CheckEnded,
    ChildRunsAwaited,
    ClaimFound,
    Judged,
    Record,
    Resumed,
    RunBegan,
    RunEnded,
    Saved,
    TurnEnded,
)
from ralphproof.store.message_bus import ERROR, FACT, INFO, PROGRESS, WARNING

POST_TIMEOUT_S = 0.1  # for the lock of a bus; at the end of a run there are two posts
MAX_TEXT_CHARS = 2000  # of an agent's message
MAX_BODY_CHARS = 8000
RESTARTING_PRESET = "supervise"  # its messages call iterations restarts
COMPLETED_BY_MARKER = "task completed (DONE marker present, no active children)"


class BusWriter(Protocol):
    """A bus that can be posted to."""

    def post(
        self, kind: str, body: str, *, run: str = "", iteration: int | None = None, project: str = "", task: str = "",
        durable: bool = False, patience_s: float = POST_TIMEOUT_S,
    ) -> object:  # fmt: skip
        """Post a message."""


class BusObserver:
    """Posts a run's progress to the task's bus, and its end to the project's too. A failure to post is ignored.

    `earlier` are the records of a run that is resumed; nothing is posted for them.
    """

    def __init__(
        self, task_bus: BusWriter, project_bus: BusWriter, run: str, project: str = "", task: str = "",
        earlier: Iterable[Record] = (),
    ) -> None:  # fmt: skip
        self._run, self._project, self._task = run, project, task
        self._task_bus, self._both_buses = (task_bus,), (task_bus, project_bus)
        self._preset = ""
        self._claimed_by_marker = False
        self._findings: list[Finding] = []
        for record in earlier:
            self._remember(record)

    def on_record(self, record: Record) -> None:
        """Post a message about a durable record, if it is of interest."""
        self._remember(record)
        match record:
            case RunBegan(run, facts=facts):
                self._post(self._task_bus, INFO, f"run {run} began{_describe_run(facts)}", None)
            case Resumed(session):
                self._post(self._task_bus, INFO, f"run {self._run} was taken up again, for session {session}", None)
            case TurnEnded(iteration, _, reply):
                kind, text = _describe_turn(reply)
                self._post(self._task_bus, kind, f"attempt {iteration}: {text}", iteration)
            case ChildRunsAwaited(iteration, _, children):
                text = f"attempt {iteration}: done is claimed; active children are waited for: {', '.join(children)}"
                self._post(self._task_bus, PROGRESS, text, iteration)
            case Judged(iteration, _, verdict):
                text = f"attempt {iteration}: {_describe_findings(self._findings)}{_describe_stop(verdict)}"
                self._findings = []
                self._post(self._task_bus, PROGRESS, text, iteration)
            case RunEnded(outcome):
                self._post(self._both_buses, *self._describe_end(outcome), None)
            case _:
                pass

    def on_events(self, events: list[Event]) -> None:
        """Do nothing: an agent posts its own messages."""

    def tick(self) -> None:
        """Do nothing."""

    def _remember(self, record: Record) -> None:
        """Remember what later messages need."""
        match record:
            case RunBegan(facts=facts):
                self._preset = str(facts.get("preset", ""))
            case TurnEnded():
                self._findings = []
            case ClaimFound():
                self._findings, self._claimed_by_marker = [], True
            case Saved(heard=heard):
                self._claimed_by_marker = heard.claim is not None and heard.claim.source == "marker"
            case CheckEnded(finding=finding):
                self._findings.append(finding)
            case _:
                pass

    def _post(self, buses: tuple[BusWriter, ...], kind: str, text: str, iteration: int | None) -> None:
        body = _clip(text, MAX_BODY_CHARS)
        for bus in buses:
            try:
                bus.post(
                    kind, body, run=self._run, iteration=iteration, project=self._project, task=self._task,
                    durable=False, patience_s=POST_TIMEOUT_S,
                )  # fmt: skip
            except (RalphError, OSError, ValueError):
                continue  # an agent may have replaced the file by anything

    def _describe_end(self, outcome: Outcome) -> tuple[str, str]:
        """The type and the text for the end of a run."""
        match outcome:
            case Completed():
                what = COMPLETED_BY_MARKER if self._claimed_by_marker else "task completed"
                return FACT, f"{what}\n{_describe_proof(outcome)}"
            case Aborted(breach) if breach.reason == WAITING:
                return INFO, f"waiting: {_clip(breach.message)}"
            case Aborted(breach) if breach.reason == STEP:
                return INFO, breach.message
            case Aborted(breach) if breach.reason == MAX_ITERATIONS:
                return (
                    ERROR,
                    breach.message if self._preset == RESTARTING_PRESET else f"max iterations: {breach.message}",
                )
            case Aborted(breach):
                return ERROR, f"{breach.reason}: {_clip(breach.message)}"
            case Failed(error):
                return ERROR, _clip(error)
            case _:
                assert_never(outcome)


def _describe_proof(outcome: Completed) -> str:
    """How far the work was verified, and the agent's last output."""
    known = {"verified": "verified by checks", "judged": "judged by a model"}
    how = known.get(outcome.proof, "claimed, nothing verified it")
    lines = [how, *(f"concern: {concern}" for concern in outcome.concerns)]
    return "\n".join([*lines, "", _clip(outcome.output)])


def _describe_run(facts: dict[str, Json]) -> str:
    """The agent and the checks of a run."""
    agent, checks = facts.get("agent"), facts.get("checks")
    asked = f", checks: {', '.join(map(str, checks))}" if isinstance(checks, list) and checks else ""
    return f" (agent {agent}{asked})" if agent else ""


def _describe_turn(reply: Turn) -> tuple[str, str]:
    """The type and the text for the end of a turn."""
    fault = classify_fault(reply)
    match fault:
        case None:
            return PROGRESS, f"agent ended ({_describe_exit(reply)})"
        case AgentFault():
            why = f"\n{_clip(reply.error)}" if reply.error else ""
            return WARNING, f"agent failed ({_describe_exit(reply)}){why}"
        case ServiceFault(message):
            return WARNING, f"the agent's service refused\n{_clip(message)}"
        case ConfigFault(message):
            return WARNING, f"the agent cannot be used\n{_clip(message)}"
        case SignalFault(message) | HarnessFault(message):
            return WARNING, message
        case _:
            assert_never(fault)


def _describe_exit(reply: Turn) -> str:
    """How the agent's process ended."""
    end = reply.exit
    if end.why != "exit":
        return end.why
    return f"signal {end.signal}" if end.signal is not None else f"exit {end.code}"


def _describe_findings(findings: list[Finding]) -> str:
    failed = ["a held-out check" if finding.hidden else finding.check for finding in findings if not finding.passed]
    if not findings:
        return "no check was asked"
    if not failed:
        return f"checks passed ({len(findings)})"
    return f"{len(failed)} of {len(findings)} checks failed: {', '.join(failed)}"


def _describe_stop(verdict: Verdict) -> str:
    return f"; stopped by {verdict.breach.reason}" if isinstance(verdict, Stopped) else ""


def _clip(text: str, limit: int = MAX_TEXT_CHARS) -> str:
    text = text.strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"
