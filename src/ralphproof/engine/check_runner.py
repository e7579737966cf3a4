"""Running the checks of an iteration, or those before the first turn, and recording their findings."""

from __future__ import annotations

from ralphproof.base.errors import RalphError
from ralphproof.base.value import replace
from ralphproof.engine.check import Check, Finding, Inspection
from ralphproof.engine.environment import TurnMonitor
from ralphproof.engine.records import CheckBegan, CheckEnded, CheckStopped
from ralphproof.engine.session import RunSession, SpendAccount
from ralphproof.engine.state import JobPicked
from ralphproof.engine.workspace import MAX_NAMED_PATHS, Change


def judge_call_id(run: str, iteration: int, turn: int, round: int, check: str, stopped: int | None) -> str:
    """The unique name of a judge call in the spend records; `stopped` is the session that ended before its answer."""
    mark = f"{run}/judge_{iteration:03d}_{turn}_{round}_{check}"
    return mark if stopped is None else f"{mark}-stopped{stopped}"


def judging_call_id(run: str) -> str:
    """The name under which the running cost of all judges of a run is reported."""
    return f"{run}/judging"


class CheckRunner:
    """Runs checks and judges for a run."""

    def __init__(self, session: RunSession, account: SpendAccount) -> None:
        self._session, self._account, self._environment = session, account, session.environment

    def run(self, checks: tuple[str, ...]) -> None:
        """Ask checks about this iteration's work, or, before the first turn, about the tree as the run found it.

        What another one has found out about the same tree is not asked again.
        """
        looked, world = self._inspection(), self._environment
        for check in checks:
            if check not in self._session.state.open_steps:
                self._session.record(CheckBegan(looked.iteration, looked.turn, check, looked.round))
        known = {check: finding for check in checks if (finding := self._known_finding(world.checks[check]))}
        self._session.flush()
        open_ones = tuple(world.checks[check] for check in checks if check not in known)
        judging = bool(open_ones) and not set(checks).isdisjoint(self._session.state.job.stage.judges)
        answers = (
            self._run_judges(open_ones, looked) if judging else world.run_checks(open_ones, looked, TurnMonitor(world))
        )
        for finding in (*known.values(), *answers):
            self._record_finding(looked, finding)
        if judging and self._account.is_booked:
            self._close_judge_calls()

    def _close_judge_calls(self) -> None:
        try:
            self._environment.daily_spend.close_call(self._session.id, judging_call_id(self._session.id))
        except RalphError:
            pass  # a little more than they cost counts, until they are next asked

    def _run_judges(self, judges: tuple[Check, ...], looked: Inspection) -> tuple[Finding, ...]:
        """What judges answer, with no more money and time than the run has left.

        Where the tree is not as it was when they were asked, their answer is of another one than is there now.
        """
        world, seconds, call = (
            self._environment,
            self._session.rules.limits.budget.seconds,
            judging_call_id(self._session.id),
        )
        left = self._account.remaining(call)
        eyes = TurnMonitor(
            world, left, until_s=float("inf") if seconds is None else self._session.began_s + seconds, call=call
        )
        name = f"{looked.iteration}-judged"
        before = world.workspace.save(self._session.id, name)
        found = world.run_checks(judges, replace(looked, max_micro_usd=left.micro_usd), eyes)
        after = world.workspace.save(self._session.id, name)
        moved = world.workspace.change(before, after).paths if before.id and after.id else ()
        if not moved:
            return found
        named = ", ".join(moved[:MAX_NAMED_PATHS])
        self._session.notice(f"files changed while the work was judged, so the judgement does not count: {named}")
        why = f"files that changed meanwhile: {named}"
        return tuple(
            one if one.why == "stopped" else replace(one, passed=False, errored=False, why=why) for one in found
        )

    def _record_finding(self, looked: Inspection, finding: Finding) -> None:
        """Tell what a check found. One that was stopped on somebody's wish said nothing of the work, but may cost."""
        place, session, spent = (looked.iteration, looked.turn), self._session.state.session, finding.spent
        stopped = finding.why == "stopped" and self._session.is_stopping
        if spent is not None:
            mark = judge_call_id(self._session.id, *place, looked.round, finding.check, session if stopped else None)
            self._account.book(mark, spent, judging_call_id(self._session.id))
        if not stopped:
            self._session.record(CheckEnded(*place, finding, looked.round))
        elif spent is not None:
            self._session.record(CheckStopped(*place, finding.check, spent, session))

    def _inspection(self) -> Inspection:
        state = self._session.state
        if isinstance(state.phase, JobPicked):
            return Inspection(0, 1, "", state.current_tree, Change(), state.round, None, state.current_tree)
        facts = state.facts
        return Inspection(
            state.iteration, state.turn, facts.turn.text, facts.snapshot, facts.change, state.round, facts.claim,
            self._environment.task_base or state.run_start,
        )  # fmt: skip

    def _known_finding(self, check: Check) -> Finding | None:
        """What another check of the same key has found in this tree."""
        key, phase = getattr(check, "key", ""), self._session.state.phase
        report = self._session.state.baseline if isinstance(phase, JobPicked) else self._session.state.facts.report
        found = next((finding for finding in report.findings if key and finding.key == key), None)
        return replace(found, check=check.name, seconds=0.0, runs=0, spent=None) if found else None
