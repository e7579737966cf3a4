"""Tells the buses how a run goes, in a few words: each turn, what the checks said, and how it ended."""

from __future__ import annotations

from ralphproof.errors import RalphError
from ralphproof.fault import AgentFault, ConfigFault, HarnessFault, ServiceFault, SignalFault, fault_of
from ralphproof.limit import MAX_ITERATIONS, STEP, WAITING
from ralphproof.message import ERROR, FACT, INFO, PROGRESS, WARNING
from ralphproof.record import Awaited, CheckEnded, Claimed, Judged, Resumed, RunBegan, RunEnded, Saved, TurnEnded
from ralphproof.value import TYPE_CHECKING, Protocol, assert_never
from ralphproof.verdict import Aborted, Completed, Failed, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphproof.agent import Turn
    from ralphproof.check import Finding
    from ralphproof.event import Event
    from ralphproof.record import Record
    from ralphproof.value import Json
    from ralphproof.verdict import Outcome, Verdict

PATIENCE_S = 0.1  # with somebody who holds a bus; at the end of a run two of them are told
TEXT_CHARS = 2000  # of what an agent said
BODY_CHARS = 8000  # in all: names of checks and concerns are others' words as well
RESTARTING = "supervise"  # the preset whose limits speak of restarts
BY_MARKER = "task completed (DONE marker present, no active children)"


class Postbox(Protocol):
    """A bus, as far as it is posted to."""

    def post(
        self, kind: str, body: str, *, run: str = "", iteration: int | None = None, project: str = "", task: str = "",
        durable: bool = False, patience_s: float = PATIENCE_S,
    ) -> object:  # fmt: skip
        """Say something."""


class BusPoster:
    """Posts what happens to the task's bus, and how it ends to the project's too. What cannot be posted is not.

    `earlier` are the records of a run that is taken up again; nothing is said of them.
    """

    def __init__(
        self, task_bus: Postbox, project_bus: Postbox, run: str, project: str = "", task: str = "",
        earlier: Iterable[Record] = (),
    ) -> None:  # fmt: skip
        self._run, self._project, self._task = run, project, task
        self._near, self._both = (task_bus,), (task_bus, project_bus)
        self._preset = ""
        self._marked = False  # the last claim came from a marker
        self._findings: list[Finding] = []
        for record in earlier:
            self._learn(record)

    def saw(self, record: Record) -> None:
        """A record that is now durable."""
        self._learn(record)
        match record:
            case RunBegan(run, facts=facts):
                self._post(self._near, INFO, f"run {run} began{_described(facts)}", None)
            case Resumed(session):
                self._post(self._near, INFO, f"run {self._run} was taken up again, for session {session}", None)
            case TurnEnded(iteration, _, reply):
                kind, text = _turn(reply)
                self._post(self._near, kind, f"attempt {iteration}: {text}", iteration)
            case Awaited(iteration, _, children):
                told = f"attempt {iteration}: done is claimed; active children are waited for: {', '.join(children)}"
                self._post(self._near, PROGRESS, told, iteration)
            case Judged(iteration, _, verdict):
                told = f"attempt {iteration}: {_checked(self._findings)}{_stopped(verdict)}"
                self._findings = []
                self._post(self._near, PROGRESS, told, iteration)
            case RunEnded(outcome):
                self._post(self._both, *self._end(outcome), None)
            case _:
                pass

    def heard(self, events: list[Event]) -> None:
        """What an agent says is its own to post."""

    def tick(self) -> None:
        """Time is no fact."""

    def _learn(self, record: Record) -> None:
        """What later messages need to know."""
        match record:
            case RunBegan(facts=facts):
                self._preset = str(facts.get("preset", ""))
            case TurnEnded():
                self._findings = []
            case Claimed():
                self._findings, self._marked = [], True
            case Saved(heard=heard):
                self._marked = heard.claim is not None and heard.claim.source == "marker"
            case CheckEnded(finding=finding):
                self._findings.append(finding)
            case _:
                pass

    def _post(self, buses: tuple[Postbox, ...], kind: str, text: str, iteration: int | None) -> None:
        body = _clipped(text, BODY_CHARS)
        for bus in buses:
            try:
                bus.post(
                    kind, body, run=self._run, iteration=iteration, project=self._project, task=self._task,
                    durable=False, patience_s=PATIENCE_S,
                )  # fmt: skip
            except (RalphError, OSError, ValueError):
                continue  # an agent may have put anything in its place

    def _end(self, outcome: Outcome) -> tuple[str, str]:
        """The type and the text of how a run ended."""
        match outcome:
            case Completed():
                return FACT, f"{BY_MARKER if self._marked else 'task completed'}\n{_proof(outcome)}"
            case Aborted(breach) if breach.reason == WAITING:
                return INFO, f"waiting: {_clipped(breach.message)}"
            case Aborted(breach) if breach.reason == STEP:
                return INFO, breach.message
            case Aborted(breach) if breach.reason == MAX_ITERATIONS:
                return ERROR, breach.message if self._preset == RESTARTING else f"max iterations: {breach.message}"
            case Aborted(breach):
                return ERROR, f"{breach.reason}: {_clipped(breach.message)}"
            case Failed(error):
                return ERROR, _clipped(error)
            case _:
                assert_never(outcome)


def _proof(outcome: Completed) -> str:
    """How far it was verified, and what the agent said last."""
    known = {"verified": "verified by checks", "judged": "judged by a model"}
    how = known.get(outcome.proof, "claimed, nothing verified it")
    lines = [how, *(f"concern: {concern}" for concern in outcome.concerns)]
    return "\n".join([*lines, "", _clipped(outcome.output)])


def _described(facts: dict[str, Json]) -> str:
    """Who works, and what it is held to."""
    agent, checks = facts.get("agent"), facts.get("checks")
    asked = f", checks: {', '.join(map(str, checks))}" if isinstance(checks, list) and checks else ""
    return f" (agent {agent}{asked})" if agent else ""


def _turn(reply: Turn) -> tuple[str, str]:
    """What became of a turn."""
    fault = fault_of(reply)
    match fault:
        case None:
            return PROGRESS, f"agent ended ({_how(reply)})"
        case AgentFault():
            why = f"\n{_clipped(reply.error)}" if reply.error else ""
            return WARNING, f"agent failed ({_how(reply)}){why}"
        case ServiceFault(message):
            return WARNING, f"the agent's service refused\n{_clipped(message)}"
        case ConfigFault(message):
            return WARNING, f"the agent cannot be used\n{_clipped(message)}"
        case SignalFault(message) | HarnessFault(message):
            return WARNING, message
        case _:
            assert_never(fault)


def _how(reply: Turn) -> str:
    """How the agent's process ended, in a word or two."""
    end = reply.exit
    if end.why != "exit":
        return end.why
    return f"signal {end.signal}" if end.signal is not None else f"exit {end.code}"


def _checked(findings: list[Finding]) -> str:
    failed = ["a held-out check" if one.hidden else one.check for one in findings if not one.passed]
    if not findings:
        return "no check was asked"
    if not failed:
        return f"checks passed ({len(findings)})"
    return f"{len(failed)} of {len(findings)} checks failed: {', '.join(failed)}"


def _stopped(verdict: Verdict) -> str:
    return f"; stopped by {verdict.breach.reason}" if isinstance(verdict, Stopped) else ""


def _clipped(text: str, most: int = TEXT_CHARS) -> str:
    text = text.strip()
    return text if len(text) <= most else text[: most - 1] + "…"
