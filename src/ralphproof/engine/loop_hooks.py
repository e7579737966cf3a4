"""Running the user's own commands around a run and its iterations (settings `on`)."""

from __future__ import annotations

from ralphproof.base.errors import RalphError, Refused
from ralphproof.engine import records
from ralphproof.engine.environment import TurnMonitor
from ralphproof.engine.limits import TRIPWIRE_REASONS
from ralphproof.engine.outcome import Aborted, Completed, Outcome, Stopped, verdict_word
from ralphproof.engine.run_hooks import (
    AFTER_ITERATION,
    AFTER_RUN,
    BEFORE_ITERATION,
    BEFORE_RUN,
    HOOK_NOT_STARTED,
    HOOK_STOPPED,
    HookResult,
)
from ralphproof.engine.session import EMPTY_PLAN, RunSession
from ralphproof.engine.state import IterationJudged


class LoopHooks:
    """Runs the hooks of a run."""

    def __init__(self, session: RunSession) -> None:
        self._session, self._environment = session, session.environment

    def run(self, hook: str, place: int, outcome: Outcome | None = None) -> None:
        """Run one command of the user's own. What it changes in the tree is not the agent's work.

        One that began before a crash is taken up: followed to its end, its result used, or run again if it was cut off.
        One that is ended because the run is to end has not run: it runs again when the run goes on.
        """
        state, world, looks = self._session.state, self._environment, hook != AFTER_RUN
        command, taken_up = self._session.rules.hook_commands(hook)[place], state.hooks.open == (hook, place)
        number = state.hooks.begun - taken_up
        iteration = len(state.history.iterations) if hook in (BEFORE_RUN, AFTER_RUN) else state.iteration
        saved, name = f"{iteration}-hook{number + 1}", f"hook_{iteration:03d}_{hook}_{number + 1}"
        if not taken_up:
            if looks:
                world.workspace.save(self._session.id, saved)
            self._session.record(records.HookBegan(iteration, hook, place, number, command))
        self._session.flush()
        if taken_up and not looks and not world.was_started(name):  # the run it was to come after goes on
            result = HookResult(command, False, why=HOOK_NOT_STARTED)
        else:
            ending = bool(outcome) and bool(world.clock.stop_reason())
            result = world.hook_runner.run(name, command, self._exports(hook, outcome), TurnMonitor(world), ending)
        if result.why == HOOK_STOPPED and self._session.is_stopping and looks:
            return
        if not looks:
            self._session.record(records.HookEnded(iteration, hook, place, number, result))
            return
        remarks = world.editable_plan.accept_user_changes(True)
        before, after = (
            world.workspace.find_snapshot(self._session.id, saved),
            world.workspace.save(self._session.id, f"{saved}-after"),
        )
        if after.id is None:
            raise Refused(f"{hook} left the project so that it cannot be saved: {after.problem}")
        changed = world.workspace.change(before, after).paths if before and before.id else ()
        paths = tuple(path for path in changed if path not in world.editable_plan.files)
        if not state.agent_started:
            world.check_pins.accept_user_changes(paths)
        self._session.plan = self._session.plan if not remarks else EMPTY_PLAN
        self._session.record(records.HookEnded(iteration, hook, place, number, result, after, paths, bool(remarks)))
        for remark in remarks:
            self._session.notice(remark)

    def run_after_run(self, outcome: Outcome) -> None:
        """The user's own commands at the end of a run. Whatever becomes of them, the run ends as it does."""
        if not self._session.state.run or not self._session.rules.hook_commands(AFTER_RUN):
            return
        if isinstance(outcome, Aborted) and outcome.reason in TRIPWIRE_REASONS:
            self._session.notice(
                f"{AFTER_RUN} is not run after {outcome.reason}: the agent may have changed what it would run"
            )
            return
        try:
            while due := self._session.rules.next_hook(self._session.state, AFTER_RUN):
                self.run(due.hook, due.index, outcome)
        except (RalphError, OSError) as error:
            self._session.notice(f"{AFTER_RUN} could not be run: {error}")

    def _exports(self, hook: str, outcome: Outcome | None) -> dict[str, str]:
        """What a hook is told of where the run stands."""
        state, world = self._session.state, self._environment
        exports = (
            self._session.exports()
            if hook in (BEFORE_ITERATION, AFTER_ITERATION)
            else self._session.exports(state.history.turn_count)
        )
        exports |= {"RALPH_HOOK": hook, "RALPH_PROJECT_DIR": world.workspace.root}
        if hook == AFTER_ITERATION and isinstance(state.phase, IterationJudged):
            verdict = state.phase.verdict
            exports["RALPH_VERDICT"] = verdict_word(verdict)
            exports["RALPH_REASON"] = verdict.breach.reason if isinstance(verdict, Stopped) else ""
        if outcome is not None:
            exports["RALPH_OUTCOME"], exports["RALPH_EXIT_CODE"] = outcome.status, str(outcome.exit_code)
            exports["RALPH_REASON"] = outcome.reason if isinstance(outcome, Aborted) else ""
            exports["RALPH_PROOF"] = outcome.proof if isinstance(outcome, Completed) else ""
        return exports
