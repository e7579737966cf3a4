"""Facts of one iteration, and the history of all iterations."""

from __future__ import annotations

from ralphproof.base.value import value
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import AlteredCheckInput, CheckReport, failure_fingerprint
from ralphproof.engine.claim import Claim
from ralphproof.engine.plan import Job
from ralphproof.engine.workspace import Change, Snapshot, TripwireReport

SUDDEN_EXIT_S = 5.0


@value
class Iteration:
    """Input, output, changes and check results of one iteration."""

    number: int
    job: Job
    turn: Turn
    snapshot: Snapshot
    change: Change
    report: CheckReport
    claim: Claim | None = None
    rejected_tags: tuple[str, ...] = ()
    tripwires: TripwireReport = TripwireReport()
    plan_violations: tuple[str, ...] = ()  # rules of the plan that it broke
    altered_inputs: tuple[AlteredCheckInput, ...] = ()  # what decides over the checks, and is not as the run found it


@value
class History:
    """All iterations of a run, oldest first."""

    iterations: tuple[Iteration, ...] = ()

    @property
    def latest(self) -> Iteration:
        return self.iterations[-1]

    @property
    def turn_count(self) -> int:
        """The number of iterations that called an agent."""
        return sum(iteration.turn.taken for iteration in self.iterations)

    @property
    def context_window(self) -> int | None:
        """The size of the agent's context in tokens, as last reported."""
        said = (one.turn.window for one in reversed(self.iterations) if one.turn.window)
        return next(said, None)

    def with_iteration(self, iteration: Iteration) -> History:
        return History((*self.iterations, iteration))

    def since(self, number: int) -> History:
        """The iterations from this number on."""
        return History(tuple(iteration for iteration in self.iterations if iteration.number >= number))

    def attempts(self, job: Job) -> int:
        """The number of iterations on this task in this stage."""
        return sum(iteration.job.key == job.key for iteration in self.iterations)

    def unchanged_turns(self) -> int:
        """The number of consecutive last turns that should have changed files and did not. An unknown change is not
        counted as none. Another task or stage than before is progress, since the previous one passed.
        """
        edits = [one for one in self.iterations if one.job.stage.edits and one.turn.taken]
        count = 0
        for iteration in reversed(edits):
            if not iteration.change.same_tree or iteration.job.key != edits[-1].job.key:
                return count
            count += 1
        return count

    def quick_failures(self) -> int:
        """The number of consecutive last turns that failed within a few seconds."""
        count = 0
        for iteration in reversed(self.iterations):
            if not iteration.turn.errored or iteration.turn.exit.seconds > SUDDEN_EXIT_S:
                return count
            count += 1
        return count

    def same_error_count(self) -> int:
        """The number of consecutive last iterations that failed in the same way."""
        marks = self.failure_fingerprints()
        if not marks or not marks[-1]:
            return 0
        return next((n for n, mark in enumerate(reversed(marks)) if mark != marks[-1]), len(marks))

    def failure_fingerprints(self) -> tuple[str, ...]:
        """A fingerprint of each iteration's failure: of checks, agent or rules; empty without a failure."""
        return tuple(_failure_fingerprint_of(iteration) for iteration in self.iterations)

    def trees(self) -> tuple[str, ...]:
        """The tree that each iteration left; an unreadable tree equals no other."""
        return tuple(
            iteration.snapshot.tree or f"unknown {iteration.number}"
            for iteration in self.iterations
            if iteration.job.stage.edits
        )


def _failure_fingerprint_of(iteration: Iteration) -> str:
    if iteration.report.fingerprint:
        return iteration.report.fingerprint
    if not iteration.turn.errored:
        return (
            failure_fingerprint("rules of the plan", 0, "\n".join(iteration.plan_violations))
            if iteration.plan_violations
            else ""
        )
    end = iteration.turn.exit
    return failure_fingerprint(f"agent {end.why} {end.signal}", end.code, iteration.turn.error or "")


def count_alternating(marks: tuple[str, ...]) -> int:
    """The number of last marks that alternate between exactly two values."""
    if len(marks) < 2 or marks[-1] == marks[-2] or "" in marks[-2:]:
        return 0
    count = 2
    while count < len(marks) and marks[-count - 1] == marks[-count + 1]:
        count += 1
    return count


def turn_file_name(name: str, turn: int, joint: str = "_") -> str:
    """The name of a turn's files; the first turn of an iteration has no turn number in it."""
    return name if turn == 1 else f"{name}{joint}{turn}"
