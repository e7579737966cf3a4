"""Saving of a turn's work, distinction of the agent's changes from the user's, and commits of passed work."""

from __future__ import annotations

import re

from ralphproof.base.errors import DiskFull, Refused
from ralphproof.base.value import replace
from ralphproof.engine import records
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import AlteredCheckInput
from ralphproof.engine.environment import NO_PLAN_EDITS, PlanEdits
from ralphproof.engine.iteration import turn_file_name
from ralphproof.engine.prompt import COMMIT_MESSAGE_PROMPT, parse_commit_message
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.session import EMPTY_PLAN, AgentTurns, RunSession
from ralphproof.engine.state import SCM_STEP, Checking
from ralphproof.engine.workspace import MAX_NAMED_PATHS, Change, CommitRequest, Snapshot, TripwireReport


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
