"""Facts of one iteration, and the history of all iterations."""

from __future__ import annotations

from ralphproof.base.value import value
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import AlteredCheckInput, CheckReport, failure_fingerprint
from ralphproof.engine.claim import Claim
from ralphproof.engine.plan import Job
from ralphproof.engine.workspace import Change, Snapshot, TripwireReport

QUICK_FAILURE_S = 5.0


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
    plan_violations: tuple[str, ...] = ()  # rules of the plan that the turn broke
    altered_inputs: tuple[AlteredCheckInput, ...] = ()  # changed files that determine check results


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
        windows = (iteration.turn.window for iteration in reversed(self.iterations) if iteration.turn.window)
        return next(windows, None)

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
        editing = [iteration for iteration in self.iterations if iteration.job.stage.edits and iteration.turn.taken]
        count = 0
        for iteration in reversed(editing):
            if not iteration.change.same_tree or iteration.job.key != editing[-1].job.key:
                return count
            count += 1
        return count

    def quick_failures(self) -> int:
        """The number of consecutive last turns that failed within a few seconds."""
        count = 0
        for iteration in reversed(self.iterations):
            if not iteration.turn.errored or iteration.turn.exit.seconds > QUICK_FAILURE_S:
                return count
            count += 1
        return count

    def same_error_count(self) -> int:
        """The number of consecutive last iterations that failed in the same way."""
        failures = self.failure_fingerprints()
        if not failures or not failures[-1]:
            return 0
        return next((count for count, other in enumerate(reversed(failures)) if other != failures[-1]), len(failures))

    def failure_fingerprints(self) -> tuple[str, ...]:
        """A fingerprint of each iteration's failure: of checks, agent or rules; empty without a failure."""
        return tuple(_failure_fingerprint(iteration) for iteration in self.iterations)

    def trees(self) -> tuple[str, ...]:
        """The tree that each iteration left; an unreadable tree equals no other."""
        return tuple(
            iteration.snapshot.tree or f"unknown {iteration.number}"
            for iteration in self.iterations
            if iteration.job.stage.edits
        )


def _failure_fingerprint(iteration: Iteration) -> str:
    if iteration.report.fingerprint:
        return iteration.report.fingerprint
    if not iteration.turn.errored:
        violations = "\n".join(iteration.plan_violations)
        return failure_fingerprint("rules of the plan", 0, violations) if violations else ""
    end = iteration.turn.exit
    return failure_fingerprint(f"agent {end.why} {end.signal}", end.code, iteration.turn.error or "")


def count_alternating(values: tuple[str, ...]) -> int:
    """The number of last values that alternate between exactly two."""
    if len(values) < 2 or values[-1] == values[-2] or "" in values[-2:]:
        return 0
    count = 2
    while count < len(values) and values[-count - 1] == values[-count + 1]:
        count += 1
    return count


def turn_file_name(name: str, turn: int, separator: str = "_") -> str:
    """The name of a turn's files; the first turn of an iteration has no turn number in it."""
    return name if turn == 1 else f"{name}{separator}{turn}"
