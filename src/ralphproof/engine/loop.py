"""The loop: performs the actions of one run until its outcome. `next_action` decides them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from ralphproof.base.errors import DiskFull, RalphError, Refused, wrap_os_error
from ralphproof.base.value import Json, assert_never, replace
from ralphproof.engine import next_action as actions
from ralphproof.engine import records
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import AlteredCheckInput, Check, Finding, Inspection
from ralphproof.engine.environment import NO_PLAN_EDITS, FixedPlan, LoopEnvironment, PlanEdits, TurnMonitor
from ralphproof.engine.limits import (
    CONTINUED_REASONS,
    HISTORY_REWRITTEN,
    TRIPWIRE_REASONS,
    WORKSPACE_GONE,
    Breach,
    Warn,
)
from ralphproof.engine.metrics import compute_run_metrics
from ralphproof.engine.next_action import RunConditions, RunRules, aborted_outcome, failed_outcome, next_action
from ralphproof.engine.outcome import (
    Aborted,
    Completed,
    Failed,
    Metrics,
    Outcome,
    Passed,
    Retry,
    Stopped,
    Verdict,
    outcome_json,
    verdict_word,
)
from ralphproof.engine.plan import History, Job, PlanChoice, choose_next_job, turn_file_name
from ralphproof.engine.prompt import COMMIT_MESSAGE_PROMPT, parse_commit_message
from ralphproof.engine.records import CheckBegan, CheckEnded, CheckStopped
from ralphproof.engine.sandbox import (
    AFTER_ITERATION,
    AFTER_RUN,
    BEFORE_ITERATION,
    BEFORE_RUN,
    HOOK_NOT_STARTED,
    HOOK_STOPPED,
    Exit,
    HookResult,
)
from ralphproof.engine.session import EMPTY_PLAN, AgentTurns, RunSession, SpendAccount
from ralphproof.engine.state import SCM_STEP, Checking, IterationJudged, JobPicked, State, TurnFinished, TurnRunning
from ralphproof.engine.workspace import MAX_NAMED_PATHS, Change, CommitRequest, CommitResult, Snapshot, TripwireReport


class WorkSaver:
    """Saves the tree after turns, and reverts what a stage may not change."""

    def __init__(self, session: RunSession, turns: AgentTurns) -> None:
        self._session, self._turns, self._environment = session, turns, session.environment

    def save(self) -> None:
        state = self._session.state
        name, log_name = self._file_names()
        snapshot, change, tripwires, edits = self._save_tree(name, log_name)
        altered = self._altered_check_inputs(snapshot)
        user_paths = self.changed_after_end(change)
        self._session.turn_was_open = False
        prompt_file = self._environment.work.prompt_file
        prompt_paths = (prompt_file,) if prompt_file in change.paths and prompt_file not in user_paths else ()
        change = _without_paths(change, (*user_paths, *prompt_paths))
        parsed = self._turns.find_claim(state.reply, edits.claim)
        self._session.record(
            records.Saved(state.iteration, state.turn, snapshot, change, parsed, tripwires, edits.violations, altered)
        )
        if user_paths or prompt_paths:
            self._record_user_changes(snapshot, user_paths, prompt_paths)
        self._environment.files.publish(log_name)
        for message in (*tripwires.remarks, *edits.remarks):
            self._session.notice(message)
        self._add_extra_notices()
        if state.reply.exit.lost_bytes and parsed.claim is None:
            raise DiskFull(_lost_output_message(state.reply.exit))

    def save_baseline(self) -> None:
        snapshot = self._environment.work.workspace.save(self._session.id, "0-checked")
        if snapshot.id is None:
            raise Refused(f"the checks left the project so that it cannot be saved: {snapshot.problem}")
        written = self._environment.work.workspace.change(self._session.state.trees.run_start, snapshot).paths
        self._session.record(records.BaselineSaved(snapshot, written))

    def _add_extra_notices(self) -> None:
        for extra_notices in self._environment.extra_notices:
            for message in extra_notices():
                self._session.notice(message)

    def _file_names(self) -> tuple[str, str]:
        """The names of the current turn's snapshot and of its logs."""
        iteration, turn = self._session.state.iteration, self._session.state.turn
        return turn_file_name(str(iteration), turn, "."), turn_file_name(f"agent_{iteration:03d}", turn)

    def join_child_work(self) -> None:
        """Save the tree again, with the work of the child runs that were waited for."""
        state = self._session.state
        name, log_name = self._file_names()
        snapshot, change, tripwires, edits = self._save_tree(f"{name}-joined", f"{log_name}_joined")
        before, violations = state.facts.tripwires, (*state.facts.plan_violations, *edits.violations)
        both = TripwireReport(
            (*before.touched, *tripwires.touched), tripwires.patch or before.patch, before.remarks + tripwires.remarks
        )
        altered = self._altered_check_inputs(snapshot)
        self._session.record(
            records.ChildWorkJoined(state.iteration, state.turn, snapshot, change, both, violations, altered)
        )
        self._add_extra_notices()

    def _save_tree(self, name: str, log_name: str) -> tuple[Snapshot, Change, TripwireReport, PlanEdits]:
        workspace, stage = self._environment.work.workspace, self._session.state.job.stage
        # A read-only stage may have been saved and reverted by a process that then died.
        saved = None if stage.edits else workspace.find_snapshot(self._session.id, name)
        if saved:
            snapshot = replace(saved, left_out=self._session.state.trees.iteration_start.left_out)
        else:
            snapshot = workspace.save(self._session.id, name)
        snapshot, undone, notices = self._revert_read_only_stage(name, snapshot) if stage.looks else (snapshot, (), ())
        tripwires = self._environment.work.tripwires.check_and_restore(log_name)
        change = self._change_since_start(snapshot)
        edits = self._review_plan_edits(name, snapshot, change)
        if tripwires.touched or edits.has_reverted:  # the first snapshot still has what was reverted
            snapshot = workspace.save(self._session.id, f"{name}-put-back")
            change = self._change_since_start(snapshot)
        if snapshot.problem:
            self._session.notice(f"not everything could be saved: {snapshot.problem}")
        if change.rewritten or snapshot.id is None:
            change = replace(change, kept=self._environment.work.tripwires.history_backup())
        tripwires = replace(tripwires, remarks=(*notices, *tripwires.remarks))
        return snapshot, replace(change, undone=undone), tripwires, edits

    def _altered_check_inputs(self, now: Snapshot) -> tuple[AlteredCheckInput, ...]:
        """Changed files that determine check results, except for the user's changes."""
        return self._environment.checks.pins.find_altered(
            self._session.state.trees.run_start, now, self._session.state.user.paths
        )

    def _review_plan_edits(self, name: str, snapshot: Snapshot, change: Change) -> PlanEdits:
        """The turn's edits of the plan. Files that its stage may not touch are restored."""
        if not self._turn_was_taken:
            return NO_PLAN_EDITS
        edits = self._environment.plan.editable.review_edits(
            name,
            self._session.state.job,
            _without_paths(change, (*self._session.state.baseline.paths, self._environment.work.prompt_file)),
        )
        if edits.stray_files:
            others = tuple(path for path in change.paths if path not in edits.stray_files)
            restorable = replace(snapshot, left_out=(*snapshot.left_out, *others))
            self._environment.work.workspace.restore(self._session.state.trees.iteration_start, restorable)
            message = self._set_aside_message(name, snapshot, edits.stray_files)
            return replace(edits, remarks=(*edits.remarks, message))
        return edits

    @property
    def _turn_was_taken(self) -> bool:
        """Whether an agent was called in this turn."""
        phase = self._session.state.phase
        return phase.facts.turn.taken if isinstance(phase, Checking) else self._session.state.reply.taken

    def _revert_read_only_stage(
        self, name: str, snapshot: Snapshot
    ) -> tuple[Snapshot, tuple[str, ...], tuple[str, ...]]:
        """The tree after the changes of a read-only stage were reverted, the paths, and notices.

        The snapshot of this name still has the changes.
        """
        workspace, start = self._environment.work.workspace, self._session.state.trees.iteration_start
        user_paths: tuple[str, ...] = ()
        if snapshot.id is not None and snapshot.head != start.head:
            stage = self._session.state.job.stage.name
            return snapshot, (), (f"stage {stage} only looks, and yet it committed; that is looked at again",)
        if snapshot.id is None or not (changed := workspace.change(start, snapshot).paths):
            return snapshot, (), ()
        if self._session.turn_was_open:  # no harness saw it end: paths that the user may have changed since are kept
            ended_ns = self._session.command_ended_ns
            user_paths = workspace.changed_since(changed, ended_ns) if ended_ns else changed
        if not (changed := tuple(path for path in changed if path not in user_paths)):
            return snapshot, (), ()
        workspace.restore(start, replace(snapshot, left_out=(*snapshot.left_out, *user_paths)))
        message = self._set_aside_message(name, snapshot, changed)
        return workspace.save(self._session.id, f"{name}-put-back"), changed, (message,)

    def _set_aside_message(self, name: str, snapshot: Snapshot, paths: tuple[str, ...]) -> str:
        """The notice that files changed during a read-only stage were reverted, and how to get the changes back."""
        more = f" and {len(paths) - MAX_NAMED_PATHS} more" if len(paths) > MAX_NAMED_PATHS else ""
        start, stage = self._session.state.trees.iteration_start, self._session.state.job.stage.name
        if self._environment.work.workspace.kind == "git" and snapshot.ref and start.ref:
            only = f" -- {' '.join(map(_shell_quote, paths))}" if len(paths) <= MAX_NAMED_PATHS else ""
            back = f"git --literal-pathspecs diff --binary {start.ref} {snapshot.ref}{only} | git apply"
        else:
            patch = self._environment.work.workspace.diff(start, snapshot)
            back = f"git apply {self._environment.files.write_patch(f'aside_{name}', patch)}"
        what = (
            f"stage {stage} only looks; what changed meanwhile was put back: {', '.join(paths[:MAX_NAMED_PATHS])}{more}"
        )
        return f"{what}; it is kept, and if it was yours this brings it back: {back}"

    def _change_since_start(self, now: Snapshot) -> Change:
        """The change of the iteration. Commits made during the run may be rewritten."""
        state, workspace = self._session.state, self._environment.work.workspace
        change = workspace.change(state.trees.iteration_start, now)
        if change.rewritten and state.trees.iteration_start.head != state.trees.history_base.head:
            return replace(change, rewritten=workspace.change(state.trees.history_base, now).rewritten)
        return change

    def changed_after_end(self, change: Change) -> tuple[str, ...]:
        """Paths changed after the end of a command that ended while no harness was running: the user changed them."""
        ended_ns, self._session.command_ended_ns = self._session.command_ended_ns, 0
        return self._environment.work.workspace.changed_since(change.paths, ended_ns) if ended_ns else ()

    def save_user_changes(self) -> None:
        """Save the tree after a time without a running agent or check: changes are the user's."""
        state, workspace = self._session.state, self._environment.work.workspace
        snapshot = workspace.save(self._session.id, f"{state.iteration}-theirs{state.user.saves or ''}")
        if snapshot.id is None:
            raise Refused(f"the project cannot be saved, so no agent may touch it: {snapshot.problem}")
        plan = self._environment.plan.editable
        remarks = plan.accept_user_changes(SCM_STEP in state.open_steps)
        changed = workspace.change(state.trees.last_saved, snapshot).paths
        paths = tuple(path for path in changed if path not in plan.files)
        quiet_ns, self._session.quiet_since_ns = self._session.quiet_since_ns, 0
        for remark in remarks:
            self._session.notice(remark)
        if remarks:
            self._session.plan = EMPTY_PLAN
        paths = workspace.changed_since(paths, quiet_ns) if quiet_ns else paths
        self._record_user_changes(snapshot, paths, replanned=bool(remarks))

    def _record_user_changes(
        self, snapshot: Snapshot, paths: tuple[str, ...], silent_paths: tuple[str, ...] = (), replanned: bool = False
    ) -> None:
        """Record changes that are not the agent's work; there is no notice of `silent_paths`."""
        state, all_paths = self._session.state, (*paths, *silent_paths)
        self._environment.checks.pins.accept_user_changes(all_paths)
        self._session.record(
            records.UserChangesSaved(state.iteration, state.user.saves, snapshot, all_paths, replanned)
        )
        if paths:
            more = f" and {len(paths) - MAX_NAMED_PATHS} more" if len(paths) > MAX_NAMED_PATHS else ""
            self._session.notice(
                f"changed while the run rested, so it counts as yours: {', '.join(paths[:MAX_NAMED_PATHS])}{more}"
            )


class Committer:
    """Commits passed work to the user's SCM."""

    def __init__(self, session: RunSession, turns: AgentTurns, work: WorkSaver) -> None:
        self._session, self._turns, self._work, self._environment = session, turns, work, session.environment

    def commit(self) -> None:
        """Get a message, then commit."""
        state, environment = self._session.state, self._environment
        workspace = environment.work.workspace
        if SCM_STEP not in state.open_steps:
            self._turns.start_watching("children_scm")
            self._session.record(records.ScmBegan(state.iteration))
        name = f"scm_{state.iteration:03d}"
        checked = f"{state.iteration}-checked"
        before = workspace.find_snapshot(self._session.id, checked) if self._session.command_ended_ns else None
        before = before or workspace.save(self._session.id, checked)
        message, reply, changed_since_call = self._commit_message(name, before)
        user_paths = state.user.paths | state.hooks.paths
        request = CommitRequest(
            state.iteration, message, state.trees.run_start, state.trees.current,
            tuple(sorted(user_paths.union(changed_since_call))), environment.plan.editable.files,
        )  # fmt: skip
        changed = {path for facts in state.history.iterations for path in facts.change.paths}
        committed = environment.commit(request, state.baseline.paths | (user_paths - changed))
        self._session.command_ended_ns = 0
        self._session.record(records.ScmEnded(state.iteration, committed, reply, message))
        environment.files.publish(name)

    def _commit_message(self, name: str, before: Snapshot) -> tuple[str, Turn | None, tuple[str, ...]]:
        """The stage's message, else the agent's, and its reply. Changes that this call makes in the tree are reverted.

        Also returns the paths that the user changed after the call ended.
        """
        state = self._session.state
        self._session.flush()
        claim, rule = state.facts.claim, state.job.stage.claim
        word = ""
        if claim is not None and (rule.accepts(claim) or rule.refuses(claim)):
            word = self._environment.plan.editable.status_word(state.job.task.id) or claim.word
        if message := state.job.message(word.replace("_", " ") or "work in progress"):
            return message, None, ()
        turn_input = self._turns.turn_input(f"{name}_prompt", name, COMMIT_MESSAGE_PROMPT, stream=False)
        reply = self._turns.ask_agent(self._environment.agent_at(state.agent.index), turn_input)
        user_paths = self._restore_tree(name, before)
        return "" if reply.errored else parse_commit_message(reply.text), reply, user_paths

    def _restore_tree(self, name: str, before: Snapshot) -> tuple[str, ...]:
        """Revert the changes of the call for a message; returns the paths that the user changed since, which stay."""
        workspace = self._environment.work.workspace
        tripwires = self._environment.work.tripwires.check_and_restore(name)
        after = workspace.save(self._session.id, f"{self._session.state.iteration}-scm")
        user_paths: tuple[str, ...] = ()
        if self._session.command_ended_ns:
            user_paths = self._work.changed_after_end(workspace.change(before, after))
        touched = [f"{touch.path} ({touch.trouble or touch.rule})" for touch in tripwires.touched]
        restored = workspace.restore(before, replace(after, left_out=(*after.left_out, *user_paths)))
        if reverted := [*touched, *restored]:
            self._session.notice(f"the commit-message call changed files; they were put back: {', '.join(reverted)}")
        for remark in tripwires.remarks:
            self._session.notice(remark)
        return user_paths


def _lost_output_message(end: Exit) -> str:
    """Why the run cannot continue: the agent's claim and cost are unknown."""
    return (
        f"the agent's output could not be written ({end.log_error}): {end.lost_bytes} bytes of it are lost, with what "
        "it claimed there. Its work is saved. Make room, or raise the limit on file sizes (ulimit -f), then resume"
    )


def _shell_quote(path: str) -> str:
    """A path quoted for a shell."""
    return path if re.fullmatch(r"[\w./+@%,=-]+", path) else "'{}'".format(path.replace("'", "'\\''"))


def _without_paths(change: Change, paths: tuple[str, ...]) -> Change:
    if not paths:
        return change
    remaining, older = (tuple(path for path in group if path not in paths) for group in (change.paths, change.older))
    return replace(change, paths=remaining, older=older)


def judge_call_id(run: str, iteration: int, turn: int, round: int, check: str, stopped: int | None) -> str:
    """The unique name of a judge call in the spend records; `stopped` is the session that ended before its answer."""
    call = f"{run}/judge_{iteration:03d}_{turn}_{round}_{check}"
    return call if stopped is None else f"{call}-stopped{stopped}"


def judging_call_id(run: str) -> str:
    """The name of the live call under which the cost of a run's judges is published while they run."""
    return f"{run}/judging"


class CheckRunner:
    """Runs checks and judges for a run."""

    def __init__(self, session: RunSession, account: SpendAccount) -> None:
        self._session, self._account, self._environment = session, account, session.environment

    def run(self, checks: tuple[str, ...]) -> None:
        """Run checks on this iteration's work, or, before the first turn, on the tree as the run found it.

        A finding of an equal check on the same tree is reused.
        """
        inspection, environment = self._inspection(), self._environment
        for check in checks:
            if check not in self._session.state.open_steps:
                self._session.record(CheckBegan(inspection.iteration, inspection.turn, check, inspection.round))
        known = {
            check: finding for check in checks if (finding := self._known_finding(environment.checks.by_name[check]))
        }
        self._session.flush()
        remaining = tuple(environment.checks.by_name[check] for check in checks if check not in known)
        judging = bool(remaining) and not set(checks).isdisjoint(self._session.state.job.stage.judges)
        if judging:
            findings = self._run_judges(remaining, inspection)
        else:
            findings = environment.checks.run(remaining, inspection, TurnMonitor(environment))
        for finding in (*known.values(), *findings):
            self._record_finding(inspection, finding)
        if judging and self._account.is_booked:
            self._close_judge_calls()

    def _close_judge_calls(self) -> None:
        try:
            self._environment.spend.daily.close_call(self._session.id, judging_call_id(self._session.id))
        except RalphError:
            pass  # until the next judge call, slightly more than the actual cost is counted

    def _run_judges(self, judges: tuple[Check, ...], inspection: Inspection) -> tuple[Finding, ...]:
        """The findings of judges, within the run's remaining money and time.

        If the tree changed while they ran, their findings are about another tree, and do not count.
        """
        environment, workspace = self._environment, self._environment.work.workspace
        limit_s, call = self._session.rules.limits.budget.seconds, judging_call_id(self._session.id)
        budget = self._account.remaining(call)
        until_s = float("inf") if limit_s is None else self._session.began_s + limit_s
        monitor = TurnMonitor(environment, budget, until_s=until_s, call=call)
        name = f"{inspection.iteration}-judged"
        before = workspace.save(self._session.id, name)
        findings = environment.checks.run(judges, replace(inspection, max_micro_usd=budget.micro_usd), monitor)
        after = workspace.save(self._session.id, name)
        changed = workspace.change(before, after).paths if before.id and after.id else ()
        if not changed:
            return findings
        named = ", ".join(changed[:MAX_NAMED_PATHS])
        self._session.notice(f"files changed while the work was judged, so the judgement does not count: {named}")
        why = f"files that changed meanwhile: {named}"
        return tuple(
            finding if finding.why == "stopped" else replace(finding, passed=False, errored=False, why=why)
            for finding in findings
        )

    def _record_finding(self, inspection: Inspection, finding: Finding) -> None:
        """Record a finding and its cost. Of a check that was stopped on request, only the cost is recorded."""
        iteration, turn, round = inspection.iteration, inspection.turn, inspection.round
        session, spent = self._session.state.run.session, finding.spent
        stopped = finding.why == "stopped" and self._session.is_stopping
        if spent is not None:
            stopped_session = session if stopped else None
            call = judge_call_id(self._session.id, iteration, turn, round, finding.check, stopped_session)
            self._account.book(call, spent, judging_call_id(self._session.id))
        if not stopped:
            self._session.record(CheckEnded(iteration, turn, finding, round))
        elif spent is not None:
            self._session.record(CheckStopped(iteration, turn, finding.check, spent, session))

    def _inspection(self) -> Inspection:
        state = self._session.state
        if isinstance(state.phase, JobPicked):
            return Inspection(0, 1, "", state.trees.current, Change(), state.round, None, state.trees.current)
        facts = state.facts
        return Inspection(
            state.iteration, state.turn, facts.turn.text, facts.snapshot, facts.change, state.round, facts.claim,
            self._environment.work.task_base or state.trees.run_start,
        )  # fmt: skip

    def _known_finding(self, check: Check) -> Finding | None:
        """The finding of another check with the same key on this tree."""
        key, state = getattr(check, "key", ""), self._session.state
        report = state.baseline.report if isinstance(state.phase, JobPicked) else state.facts.report
        found = next((finding for finding in report.findings if key and finding.key == key), None)
        return replace(found, check=check.name, seconds=0.0, runs=0, spent=None) if found else None


# The user's own commands before and after a run and its iterations (settings `on`).


class LoopHooks:
    """Runs the hooks of a run."""

    def __init__(self, session: RunSession) -> None:
        self._session, self._environment = session, session.environment

    def run(self, hook: str, index: int, outcome: Outcome | None = None) -> None:
        """Run one hook command. What it changes in the tree is not the agent's work.

        A command that began before a crash is adopted: it is followed to its end, its result is used, or it is run
        again if it was cut off. A command that was ended because the run ends runs again when the run is resumed.
        """
        state, environment, saves_tree = self._session.state, self._environment, hook != AFTER_RUN
        command, adopted = self._session.rules.hook_commands(hook)[index], state.hooks.open == (hook, index)
        number = state.hooks.begun - adopted
        iteration = len(state.history.iterations) if hook in (BEFORE_RUN, AFTER_RUN) else state.iteration
        saved, name = f"{iteration}-hook{number + 1}", f"hook_{iteration:03d}_{hook}_{number + 1}"
        if not adopted:
            if saves_tree:
                environment.work.workspace.save(self._session.id, saved)
            self._session.record(records.HookBegan(iteration, hook, index, number, command))
        self._session.flush()
        if adopted and not saves_tree and not environment.was_started(name):  # the run that it should follow continues
            result = HookResult(command, False, why=HOOK_NOT_STARTED)
        else:
            ending = bool(outcome) and bool(environment.clock.stop_reason())
            result = environment.hook_runner.run(
                name, command, self._exports(hook, outcome), TurnMonitor(environment), ending
            )
        if result.why == HOOK_STOPPED and self._session.is_stopping and saves_tree:
            return
        if not saves_tree:
            self._session.record(records.HookEnded(iteration, hook, index, number, result))
            return
        remarks = environment.plan.editable.accept_user_changes(True)
        before = environment.work.workspace.find_snapshot(self._session.id, saved)
        after = environment.work.workspace.save(self._session.id, f"{saved}-after")
        if after.id is None:
            raise Refused(f"{hook} left the project so that it cannot be saved: {after.problem}")
        changed = environment.work.workspace.change(before, after).paths if before and before.id else ()
        paths = tuple(path for path in changed if path not in environment.plan.editable.files)
        if not state.agent_started:
            environment.checks.pins.accept_user_changes(paths)
        if remarks:
            self._session.plan = EMPTY_PLAN
        self._session.record(records.HookEnded(iteration, hook, index, number, result, after, paths, bool(remarks)))
        for remark in remarks:
            self._session.notice(remark)

    def run_after_run(self, outcome: Outcome) -> None:
        """Run the hooks at the end of a run. Their failures do not change its outcome."""
        if not self._session.state.run.id or not self._session.rules.hook_commands(AFTER_RUN):
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
        """The environment variables that describe the state of the run to a hook."""
        state, environment = self._session.state, self._environment
        exports = (
            self._session.exports()
            if hook in (BEFORE_ITERATION, AFTER_ITERATION)
            else self._session.exports(state.history.turn_count)
        )
        exports |= {"RALPH_HOOK": hook, "RALPH_PROJECT_DIR": environment.work.workspace.root}
        if hook == AFTER_ITERATION and isinstance(state.phase, IterationJudged):
            verdict = state.phase.verdict
            exports["RALPH_VERDICT"] = verdict_word(verdict)
            exports["RALPH_REASON"] = verdict.breach.reason if isinstance(verdict, Stopped) else ""
        if outcome is not None:
            exports["RALPH_OUTCOME"], exports["RALPH_EXIT_CODE"] = outcome.status, str(outcome.exit_code)
            exports["RALPH_REASON"] = outcome.reason if isinstance(outcome, Aborted) else ""
            exports["RALPH_PROOF"] = outcome.proof if isinstance(outcome, Completed) else ""
        return exports


NEW_STATE = State()


def _picked_record(iteration: int, choice: PlanChoice, history: History, round: int) -> records.Picked:
    if not isinstance(choice, Job):
        return records.Picked(iteration, choice, round=round)
    return records.Picked(iteration, choice.compact, history.attempts(choice) + 1, round)


class Loop:
    """One run, from its first iteration or from the state that its records lead to."""

    def __init__(
        self,
        run: str,
        rules: RunRules,
        environment: LoopEnvironment,
        facts: dict[str, Json] | None = None,
        state: State = NEW_STATE,
    ) -> None:
        self.facts = facts or {}
        self._environment = environment
        self._session = RunSession(run, rules, environment, state)
        self._account = SpendAccount(self._session)
        self._turns = AgentTurns(self._session, self._account)
        self._checks = CheckRunner(self._session, self._account)
        self._work = WorkSaver(self._session, self._turns)
        self._hooks = LoopHooks(self._session)
        self._commits = Committer(self._session, self._turns, self._work)

    @property
    def id(self) -> str:
        """The run's id."""
        return self._session.id

    @property
    def state(self) -> State:
        """The state of the run."""
        return self._session.state

    @property
    def rules(self) -> RunRules:
        """Rules that stay the same during the run."""
        return self._session.rules

    @rules.setter
    def rules(self, rules: RunRules) -> None:
        self._session.rules = rules

    @property
    def environment(self) -> LoopEnvironment:
        """The services that the run uses."""
        return self._environment

    def notice(self, message: str) -> None:
        """Record something worth knowing that changes nothing."""
        self._session.notice(message)

    def flush(self) -> None:
        """Make the records durable, then visible."""
        self._session.flush()

    def limit_step(self, max_micro_usd: int | None, is_halted: Callable[[], bool]) -> None:
        """Bound the run's own spend beside its limits, and end the running command once `is_halted` says so."""
        self._account.step_limit_micro_usd, self._session.is_halted = max_micro_usd, is_halted

    def _metrics(self, outcome: Outcome) -> Metrics:
        """The metrics of the run. Spend that could not be booked yet is booked first, if possible."""
        self._account.book_pending()
        own = replace(outcome, spend=self._session.state.bill)  # child runs have metrics of their own
        metrics = compute_run_metrics(
            self._session.state, own, self._environment.clock.epoch(), self._environment.plan.editable.story_reviews()
        )
        return replace(metrics, saved_micro_usd=self._environment.spend.model_savings(self._session.state.history))

    def conditions(self) -> RunConditions:
        """Present conditions that the next action may depend on."""
        now, phase = self._session.now(), self._session.state.phase
        if not isinstance(phase, JobPicked | Checking | IterationJudged):
            return now
        now = replace(now, day=self._account.day_spend(), children=self._environment.child_runs.status())
        if not isinstance(phase, JobPicked):
            return now
        return replace(now, paused=self._environment.clock.paused(), claim=self._environment.plan.find_claim(0))

    def _apply_verdict_to_plan(self) -> None:
        """Write the verdict into the plan; again after a crash, since that is idempotent."""
        phase, plan = self._session.state.phase, self._environment.plan.editable
        if isinstance(phase, IterationJudged) and not isinstance(plan, FixedPlan):
            self._session.flush()
            for remark in plan.apply_verdict(phase.facts, phase.verdict):
                self._session.notice(remark)

    def _hold_paused(self, seconds: float) -> None:
        """Stay paused; this time does not count as part of the run's age."""
        if not self._session.state.user.paused:
            self._session.record(records.Paused(self._session.state.iteration, self._session.state.user.pauses))
        self._session.flush()
        began_s = self._environment.clock.monotonic()
        self._environment.sleep(seconds)
        self._session.began_s += self._environment.clock.monotonic() - began_s

    def _await_child_runs(self, children: tuple[str, ...], seconds: float) -> None:
        state = self._session.state
        if state.children_awaited_s is None:
            elapsed_s = self._session.now().elapsed_s
            self._session.record(records.ChildRunsAwaited(state.iteration, state.turn, children, elapsed_s))
        self._session.flush()
        self._environment.sleep(seconds)

    def resume(self, elapsed_s: float, ended_ns: int = 0, quiet_ns: int = 0) -> None:
        """Record that this process resumes the run, at this age.

        `ended_ns` is when the open command ended, if it did; `quiet_ns` since when no process of the run was alive.
        """
        epoch_s, known = self._environment.clock.epoch(), self.facts.get("sandbox")
        sandbox = known if isinstance(known, dict) else None
        self._session.record(records.Resumed(self._session.state.run.session + 1, epoch_s, elapsed_s, sandbox))
        self._session.began_s = self._environment.clock.monotonic() - elapsed_s
        self._session.command_ended_ns, self._session.quiet_since_ns = ended_ns, quiet_ns
        self._session.turn_was_open = isinstance(self._session.state.phase, TurnRunning | TurnFinished)

    def run(self) -> Outcome:
        """Perform actions until the run is over. Its outcome is in the ledger before this returns."""
        last = self.until(lambda _: False)
        assert isinstance(last, actions.Finish)
        return last.outcome

    def until(self, stops_before: Callable[[actions.Action], bool]) -> actions.Action:
        """Perform actions as `run` does, until `stops_before` is true of the next one; returns that action."""
        try:
            if not self._session.state.run.id:
                self._begin()
            while not isinstance(
                step := next_action(self._session.state, self._session.rules, self.conditions()), actions.Finish
            ):
                if stops_before(step):
                    break
                self.perform(step)
            self._session.flush()
            return step
        except RalphError as error:
            return actions.Finish(self._fail(error))
        except OSError as error:
            return actions.Finish(self._fail(wrap_os_error(error)))

    def _begin(self) -> None:
        began = self._environment.work.workspace.begin(self._session.id)
        if began.id is None:
            raise Refused(f"the project cannot be saved, so no agent may touch it: {began.problem}")
        self._environment.checks.pins.begin()
        self._session.record(records.RunBegan(self._session.id, began, self.facts, self._environment.clock.epoch()))
        self._session.flush()

    def _pick(self, iteration: int) -> None:
        """Pick the next job from the present plan."""
        self._apply_verdict_to_plan()
        self._session.plan = self._environment.plan.source.read()
        choice = choose_next_job(self._session.plan, self._session.rules.pipeline, self._session.state.passed)
        round = self._session.state.user.saves + 1 if self._session.state.iteration == iteration else 1
        self._session.record(_picked_record(iteration, choice, self._session.state.history, round))

    def perform(self, step: actions.Action) -> None:
        state = self._session.state
        match step:
            case actions.PickNextJob(iteration):
                self._pick(iteration)
            case Warn(what, message):
                self._session.record(records.Warned(state.iteration, what, message))
            case actions.Escalate(rung, debug, why):
                self._session.record(records.Escalated(state.iteration, rung, debug, why))
            case actions.SaveBaseline():
                self._work.save_baseline()
            case actions.TakeTurn():
                self._take_turn(step)
            case actions.RunHook(hook, index):
                self._hooks.run(hook, index)
            case actions.SaveWork():
                self._work.save()
            case actions.WaitForService(seconds):
                self._session.flush()
                self._environment.sleep(seconds)
            case actions.HoldPaused(seconds):
                self._hold_paused(seconds)
            case actions.SaveUserChanges():
                self._work.save_user_changes()
            case actions.JudgeFoundClaim():
                self._turns.prepare()
                self._session.record(records.ClaimFound(state.iteration, state.turn))
            case actions.AwaitChildRuns(children, seconds):
                self._await_child_runs(children, seconds)
            case actions.JoinChildWork():
                self._work.join_child_work()
            case actions.RetryTurn(empty, why, until, wait_s):
                self._session.record(records.TurnRetried(state.iteration, state.turn, empty, why, until, wait_s))
            case actions.RunChecks(check, beside):
                self._checks.run((check, *beside))
            case actions.Conclude(verdict):
                elapsed_s, counts = self._session.now().elapsed_s, self._verdict_if_undamaged(verdict)
                self._session.record(records.Judged(state.iteration, state.turn, counts, elapsed_s, state.run.session))
                self._apply_verdict_to_plan()
            case actions.CommitWork(why_not) if why_not:
                self._session.record(records.ScmEnded(state.iteration, CommitResult(error=why_not)))
            case actions.CommitWork():
                self._apply_verdict_to_plan()  # again: the process may have died before it was applied
                self._commits.commit()
            case actions.EndRun(outcome):
                self._end(outcome)
            case actions.Finish():
                pass
            case _:
                assert_never(step)

    def _take_turn(self, step: actions.TakeTurn) -> None:
        if step.pause_s and not self._pause_before_turn(step.pause_s):
            return
        if self._environment.clock.stop_reason() and not self._session.state.turn_running:
            return
        begun = self._session.state.turn_running
        name = turn_file_name(f"{self._session.state.iteration:03d}", self._session.state.turn)
        adopted = begun and self._environment.was_started(f"agent_{name}")
        if not begun:
            self._turns.warn_read_only_stage()
            self._turns.add_user_messages()
        elif not adopted:  # recorded as begun, but never started: no harness was running in between
            self._work.save_user_changes()
            self._turns.prepare()
        state = self._session.state
        agent = self._environment.agent_at(step.agent_index, state.agent.name if begun else "")
        prompt = self._environment.files.read_prompt(f"prompt_{name}") if begun else None
        self._turns.prompt = self._turns.compose_prompt(step.job) if prompt is None else prompt
        turn_input = self._turns.turn_input(f"prompt_{name}", f"agent_{name}", self._turns.prompt)
        turn_input = replace(turn_input, adopt=adopted)
        if state.agent.session and step.agent_index == state.agent.index:
            turn_input = replace(turn_input, session=state.agent.session, session_spent=state.agent.session_spent)
        if not begun:
            digest = hashlib.sha256(self._turns.prompt.encode("utf-8", "surrogatepass")).hexdigest()
            self._turns.prepare()
            argv = agent.argv(turn_input)
            self._session.record(
                records.TurnBegan(state.iteration, state.turn, digest, argv, agent.name, step.agent_index)
            )
        self._session.record(records.TurnEnded(state.iteration, state.turn, self._turns.ask_agent(agent, turn_input)))

    def _pause_before_turn(self, pause_s: float) -> bool:
        """Pause; returns whether the turn is still the next action."""
        self._session.flush()
        self._environment.clock.sleep(pause_s)
        return isinstance(next_action(self._session.state, self._session.rules, self.conditions()), actions.TakeTurn)

    def _verdict_if_undamaged(self, verdict: Verdict) -> Verdict:
        """The verdict; Stopped where it accepts work although the repository was damaged since the run began."""
        if isinstance(verdict, Passed) or (isinstance(verdict, Retry) and self._session.state.facts.report.passed):
            damage = self._environment.work.tripwires.repository_damage()
            return Stopped(Breach(HISTORY_REWRITTEN, damage)) if damage else verdict
        return verdict

    def _end(self, outcome: Outcome) -> None:
        tripwires = self._environment.work.tripwires
        # The work of an unfinished turn is checked by the tripwires when the run is resumed.
        unfinished = isinstance(self._session.state.phase, TurnRunning | TurnFinished)
        if isinstance(outcome, Completed) and (damage := tripwires.repository_damage()):  # by commits or hooks
            outcome = aborted_outcome(self._session.state, self._session.now(), Breach(HISTORY_REWRITTEN, damage))
        for warning in () if unfinished else tripwires.final_warnings():
            self._session.notice(warning)
        if isinstance(outcome, Failed) or (isinstance(outcome, Aborted) and outcome.reason not in CONTINUED_REASONS):
            for remark in self._environment.child_runs.stop_all():
                self._session.notice(remark)
        self._environment.plan.editable.close()
        self._hooks.run_after_run(outcome)
        metrics = self._metrics(outcome)
        self._session.record(records.RunEnded(outcome, metrics, self._session.state.run.session))
        self._environment.files.begin_outcome()
        self._session.flush()
        self._environment.files.write_outcome(outcome_json(outcome, self._session.state.run.id, metrics))
        if not unfinished:
            tripwires.discard()

    def _fail(self, error: RalphError) -> Outcome:
        """End the run with an error, and record that as far as the ledger can still be written."""
        outcome: Outcome = failed_outcome(self._session.state, self._session.now(), str(error), error.exit_code)
        if error.reason:
            backup = self._environment.work.tripwires.history_backup() if error.reason == WORKSPACE_GONE else ""
            breach = Breach(error.reason, f"{error}; {backup}" if backup else str(error))
            outcome = aborted_outcome(self._session.state, self._session.now(), breach)
        try:
            self._end(outcome)
        except RalphError:
            pass  # the first error is the one to report
        return outcome
