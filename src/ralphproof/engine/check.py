"""Checks: the protocol, findings and reports, and what decides over checks (pins)."""

from __future__ import annotations

from ralphproof.base.value import Protocol, value
from ralphproof.engine.claim import Claim
from ralphproof.engine.events import Event, Spent
from ralphproof.engine.workspace import Change, Snapshot

# A machine's question about the workspace. Only what the harness asks itself, with the agent dead, counts.


UNREADABLE_ANSWER = "no answer in the form that was asked for"  # why a judge's answer counts for nothing


@value
class SuiteResult:
    """What a check's output says of single tests: which of them failed, by name, and how many passed and failed.

    A number that the output does not tell is None. A test that could not even be loaded has failed. `names` are those
    of all tests that were run, skipped or not, where the output, or a report file, tells all of them and they are not
    too many.
    """

    runner: str
    failing: tuple[str, ...]
    failed: int
    passed: int | None = None
    skipped: int | None = None
    xfailed: int | None = None
    names: tuple[str, ...] = ()

    @property
    def ran(self) -> int | None:
        """How many were asked for an answer: those that were skipped, or may fail, gave none."""
        return None if self.passed is None else self.passed + self.failed


@value
class PassRule:
    """By which rule a command passes, so that anybody can ask the same again.

    `folder` is where it runs, from the project's root. One that is `clean` ran in a fresh checkout of what would be
    committed.
    """

    folder: str = "."
    success_code: int = 0
    contains: str = ""
    lacks: str = ""
    timeout_s: float = 600.0
    clean: bool = False


@value
class Finding:
    """One answer. `action` says how a failure enters the next prompt: APPEND, PREPEND or REPLACE.

    `errored` means that the check itself broke: it did not pass, and says nothing of the work. `tests` is None where
    single tests cannot be read from the output: then only its text tells two failures apart. `judged` says that a model
    answered, no machine, and `spent` what that cost. Two checks with the same `key` ask the same of the same tree.
    One that is `hidden` is held out: no agent is told of it. `flaky` counts the runs that failed before one passed. One
    that is `mute` passed, and no test runner speaks in its output. `unrunnable` says why a command could not be run at
    all: then it shows nothing of the work.
    """

    check: str
    passed: bool
    command: str = ""
    code: int | None = None
    why: str = "exit"
    seconds: float = 0.0
    log: str = ""
    output: str = ""
    digest: str = ""
    fingerprint: str = ""
    action: str = "APPEND"
    hint: str = ""
    required: bool = True
    errored: bool = False
    runs: int = 1
    tests: SuiteResult | None = None
    judged: bool = False
    spent: Spent | None = None
    key: str = ""
    hidden: bool = False
    flaky: int = 0
    rule: PassRule | None = None  # a command's
    mute: bool = False
    unrunnable: str = ""

    def same_as(self, other: Finding) -> bool:
        """Whether both failed in the same way."""
        return not self.passed and not other.passed and self.fingerprint == other.fingerprint


@value
class CheckReport:
    """All answers of one iteration."""

    findings: tuple[Finding, ...] = ()

    def with_finding(self, finding: Finding) -> CheckReport:
        """With one more answer."""
        return CheckReport((*self.findings, finding))

    def find(self, check: str) -> Finding | None:
        """The answer of one check."""
        return next((finding for finding in self.findings if finding.check == check), None)

    @property
    def passed(self) -> bool:
        """Nothing that is required failed; so also where nothing was asked."""
        return all(finding.passed for finding in self.findings if finding.required)

    @property
    def verified(self) -> bool:
        """A machine was asked for something required, and all that is required passed."""
        return self.passed and any(finding.required and not finding.judged for finding in self.findings)

    @property
    def judged(self) -> bool:
        """All that is required passed, and a model at least was asked."""
        return self.passed and any(finding.required for finding in self.findings)

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.required and not finding.passed)

    @property
    def visible(self) -> CheckReport:
        """What an agent may know of it."""
        return CheckReport(tuple(finding for finding in self.findings if not finding.hidden))

    @property
    def faults(self) -> tuple[Finding, ...]:
        """What failed in the work itself: a judge who could not answer says nothing of it."""
        return tuple(finding for finding in self.failed if not (finding.judged and finding.errored))

    @property
    def fingerprint(self) -> str:
        """The same for two reports that fail in the same way; empty where nothing failed."""
        return "|".join(sorted(finding.fingerprint or finding.check for finding in self.failed))


@value
class Inspection:
    """What a check may look at: one iteration's work, saved and still. `began` is what the task began on."""

    iteration: int
    turn: int
    message: str
    snapshot: Snapshot
    change: Change
    round: int = 1  # so often this turn's work was looked at
    claim: Claim | None = None
    start: Snapshot = Snapshot(None, None)
    max_micro_usd: int | None = None  # what a judge may spend at most


class CheckWatcher(Protocol):
    """Looks on while a check is asked: at a command's output, at a model's words. Called from one thread."""

    def output(self, chunk: bytes) -> None:
        """More of what a command prints, already in the log."""

    def events(self, events: list[Event]) -> None:
        """More of what a model says."""

    def tick(self) -> int:
        """As `Watch.tick`."""


class Check(Protocol):
    """One kind of question.

    One that has a `key` may be answered by what another one with the same key found in the same tree.
    """

    name: str

    def run(self, inspection: Inspection, watch: CheckWatcher) -> Finding:
        """The answer; a check that cannot be run is a failed finding, never an exception."""


# What decides over the checks beside the work itself, and what became of it during a run.


@value
class AlteredCheckInput:
    """Something that decides over the checks, or a test of them, and is not as it was when the run began.

    `what` says which part of the file it is, and what became of it, in words that follow the path. One that `stops`
    ends the run. Where the user said that it may change, it is `allowed`, and only told.
    """

    path: str
    what: str
    stops: bool = False
    allowed: bool = False

    @property
    def message(self) -> str:
        """The fact in a few words."""
        return f"{self.path}: {self.what}{', as --may-change allows' if self.allowed else ''}"


class CheckPins(Protocol):
    """Knows what decides over the checks of a run as it was when the run began, whoever has the run by now."""

    def begin(self) -> None:
        """Remember it, out of the agent's reach, durably. Asked again, what is remembered stays."""

    def accept_user_changes(self, paths: tuple[str, ...]) -> None:
        """The user changed these paths: as they are now they are meant."""

    def find_altered(self, began: Snapshot, now: Snapshot, theirs: frozenset[str]) -> tuple[AlteredCheckInput, ...]:
        """What is not as it was in the tree that the run began on. `theirs` are paths that the user has changed."""


class NoCheckPins:
    """Nothing decides over the checks."""

    def begin(self) -> None:
        """Nothing to remember."""

    def accept_user_changes(self, paths: tuple[str, ...]) -> None:
        """Nothing was remembered."""

    def find_altered(self, began: Snapshot, now: Snapshot, theirs: frozenset[str]) -> tuple[AlteredCheckInput, ...]:
        return ()
