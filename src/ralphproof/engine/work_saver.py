"""Saving the work of a turn, telling the agent's changes from the user's, and committing passed work."""

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
        name, agent = (
            turn_file_name(str(state.iteration), state.turn, "."),
            turn_file_name(f"agent_{state.iteration:03d}", state.turn),
        )
        snapshot, change, sprung, examined = self._save_tree(name, agent)
        altered = self._altered_check_inputs(snapshot)
        theirs = self.changed_after_end(change)
        self._session.turn_was_open = False
        prompt = tuple(
            path for path in (self._environment.work.prompt_file,) if path in change.paths and path not in theirs
        )
        change, heard = _without_paths(change, (*theirs, *prompt)), self._turns.find_claim(state.reply, examined.claim)
        self._session.record(
            records.Saved(state.iteration, state.turn, snapshot, change, heard, sprung, examined.violations, altered)
        )
        if theirs or prompt:
            self._record_user_changes(snapshot, theirs, prompt)
        self._environment.files.publish(agent)
        for message in (*sprung.remarks, *examined.remarks):
            self._session.notice(message)
        self._add_extra_notices()
        if state.reply.exit.lost_bytes and heard.claim is None:
            raise DiskFull(_lost_output_message(state.reply.exit))

    def save_baseline(self) -> None:
        snapshot = self._environment.work.workspace.save(self._session.id, "0-checked")
        if snapshot.id is None:
            raise Refused(f"the checks left the project so that it cannot be saved: {snapshot.problem}")
        written = self._environment.work.workspace.change(self._session.state.trees.run_start, snapshot).paths
        self._session.record(records.BaselineSaved(snapshot, written))

    def _add_extra_notices(self) -> None:
        for message in (message for lookout in self._environment.extra_notices for message in lookout()):
            self._session.notice(message)

    def join_child_work(self) -> None:
        """The tree once more, with the work of runs that were waited for."""
        state = self._session.state
        name, agent = (
            turn_file_name(str(state.iteration), state.turn, "."),
            turn_file_name(f"agent_{state.iteration:03d}", state.turn),
        )
        snapshot, change, sprung, examined = self._save_tree(f"{name}-joined", f"{agent}_joined")
        before, illegal = state.facts.tripwires, (*state.facts.plan_violations, *examined.violations)
        both = TripwireReport(
            (*before.touched, *sprung.touched), sprung.patch or before.patch, before.remarks + sprung.remarks
        )
        altered = self._altered_check_inputs(snapshot)
        self._session.record(
            records.ChildWorkJoined(state.iteration, state.turn, snapshot, change, both, illegal, altered)
        )
        self._add_extra_notices()

    def _save_tree(self, name: str, agent: str) -> tuple[Snapshot, Change, TripwireReport, PlanEdits]:
        workspace, stage = self._environment.work.workspace, self._session.state.job.stage
        before = (
            None if stage.edits else workspace.find_snapshot(self._session.id, name)
        )  # by us, before we died over it
        snapshot = (
            replace(before, left_out=self._session.state.trees.iteration_start.left_out)
            if before
            else workspace.save(self._session.id, name)
        )
        snapshot, undone, told = self._revert_read_only_stage(name, snapshot) if stage.looks else (snapshot, (), ())
        sprung, change = self._environment.work.tripwires.check_and_restore(agent), self._change_since_start(snapshot)
        examined = self._review_plan_edits(name, snapshot, change)
        if sprung.touched or examined.has_reverted:  # that is no work; all that the agent left is under the first name
            snapshot = workspace.save(self._session.id, f"{name}-put-back")
            change = self._change_since_start(snapshot)
        if snapshot.problem:
            self._session.notice(f"not everything could be saved: {snapshot.problem}")
        if change.rewritten or snapshot.id is None:
            change = replace(change, kept=self._environment.work.tripwires.history_backup())
        sprung = replace(sprung, remarks=(*told, *sprung.remarks))
        return snapshot, replace(change, undone=undone), sprung, examined

    def _altered_check_inputs(self, now: Snapshot) -> tuple[AlteredCheckInput, ...]:
        """What decides over the checks and is not as the run found it; what the user changed meanwhile is theirs."""
        return self._environment.checks.pins.find_altered(
            self._session.state.trees.run_start, now, self._session.state.user.paths
        )

    def _review_plan_edits(self, name: str, snapshot: Snapshot, change: Change) -> PlanEdits:
        """What the turn did to the plan; files that its stage may not touch are as it found them."""
        if not self._turn_was_taken:
            return NO_PLAN_EDITS
        examined = self._environment.plan.editable.review_edits(
            name,
            self._session.state.job,
            _without_paths(change, (*self._session.state.baseline.paths, self._environment.work.prompt_file)),
        )
        if examined.stray_files:
            others = tuple(path for path in change.paths if path not in examined.stray_files)
            spared = replace(snapshot, left_out=(*snapshot.left_out, *others))
            self._environment.work.workspace.restore(self._session.state.trees.iteration_start, spared)
            told = self._set_aside_message(name, snapshot, examined.stray_files)
            return replace(examined, remarks=(*examined.remarks, told))
        return examined

    @property
    def _turn_was_taken(self) -> bool:
        """Whether an agent was asked in this turn."""
        phase = self._session.state.phase
        return phase.facts.turn.taken if isinstance(phase, Checking) else self._session.state.reply.taken

    def _revert_read_only_stage(
        self, name: str, snapshot: Snapshot
    ) -> tuple[Snapshot, tuple[str, ...], tuple[str, ...]]:
        """The tree as a stage found it that only looks, what it had changed, and what to say of it.

        What it changed is kept by its name.
        """
        workspace = self._environment.work.workspace
        theirs: tuple[str, ...] = ()
        if snapshot.id is not None and snapshot.head != self._session.state.trees.iteration_start.head:
            stage = self._session.state.job.stage.name
            return snapshot, (), (f"stage {stage} only looks, and yet it committed; that is looked at again",)
        if snapshot.id is None or not (
            changed := workspace.change(self._session.state.trees.iteration_start, snapshot).paths
        ):
            return snapshot, (), ()
        if self._session.turn_was_open:  # nobody saw it end: what the user may have changed since is left alone
            theirs = (
                workspace.changed_since(changed, self._session.command_ended_ns)
                if self._session.command_ended_ns
                else changed
            )
        if not (changed := tuple(path for path in changed if path not in theirs)):
            return snapshot, (), ()
        workspace.restore(
            self._session.state.trees.iteration_start, replace(snapshot, left_out=(*snapshot.left_out, *theirs))
        )
        told = self._set_aside_message(name, snapshot, changed)
        return workspace.save(self._session.id, f"{name}-put-back"), changed, (told,)

    def _set_aside_message(self, name: str, snapshot: Snapshot, paths: tuple[str, ...]) -> str:
        """That a stage which only looks left other files than it found; whoever changed them can have them back."""
        more = f" and {len(paths) - MAX_NAMED_PATHS} more" if len(paths) > MAX_NAMED_PATHS else ""
        found, stage = self._session.state.trees.iteration_start, self._session.state.job.stage.name
        if self._environment.work.workspace.kind == "git" and snapshot.ref and found.ref:
            only = f" -- {' '.join(map(_shell_quote, paths))}" if len(paths) <= MAX_NAMED_PATHS else ""
            back = f"git --literal-pathspecs diff --binary {found.ref} {snapshot.ref}{only} | git apply"
        else:
            patch = self._environment.work.workspace.diff(found, snapshot)
            back = f"git apply {self._environment.files.write_patch(f'aside_{name}', patch)}"
        what = (
            f"stage {stage} only looks; what changed meanwhile was put back: {', '.join(paths[:MAX_NAMED_PATHS])}{more}"
        )
        return f"{what}; it is kept, and if it was yours this brings it back: {back}"

    def _change_since_start(self, now: Snapshot) -> Change:
        """What the iteration changed. Commits that were made during the run may be made anew: they are no history."""
        state, workspace = self._session.state, self._environment.work.workspace
        change = workspace.change(state.trees.iteration_start, now)
        if change.rewritten and state.trees.iteration_start.head != state.trees.history_base.head:
            return replace(change, rewritten=workspace.change(state.trees.history_base, now).rewritten)
        return change

    def changed_after_end(self, change: Change) -> tuple[str, ...]:
        """What changed after the command ended that nobody saw end: that was the user, and is no work of it."""
        ended_ns, self._session.command_ended_ns = self._session.command_ended_ns, 0
        return self._environment.work.workspace.changed_since(change.paths, ended_ns) if ended_ns else ()

    def save_user_changes(self) -> None:
        """Keep the tree as it is found; what changed while nobody of ours was at work is the user's."""
        state, workspace = self._session.state, self._environment.work.workspace
        snapshot = workspace.save(self._session.id, f"{state.iteration}-theirs{state.user.saves or ''}")
        if snapshot.id is None:
            raise Refused(f"the project cannot be saved, so no agent may touch it: {snapshot.problem}")
        remarks, own = (
            self._environment.plan.editable.accept_user_changes(SCM_STEP in state.open_steps),
            self._environment.plan.editable.files,
        )
        paths = tuple(path for path in workspace.change(state.trees.last_saved, snapshot).paths if path not in own)
        quiet_ns, self._session.quiet_since_ns = self._session.quiet_since_ns, 0
        for remark in remarks:
            self._session.notice(remark)
        self._session.plan = self._session.plan if not remarks else EMPTY_PLAN
        self._record_user_changes(
            snapshot, workspace.changed_since(paths, quiet_ns) if quiet_ns else paths, (), bool(remarks)
        )

    def _record_user_changes(
        self, snapshot: Snapshot, paths: tuple[str, ...], unsaid: tuple[str, ...] = (), replanned: bool = False
    ) -> None:
        """Record what is not the agent's work. Whoever changed what is `unsaid`, that is told elsewhere."""
        self._environment.checks.pins.accept_user_changes((*paths, *unsaid))
        both = (*paths, *unsaid)
        self._session.record(
            records.UserChangesSaved(
                self._session.state.iteration, self._session.state.user.saves, snapshot, both, replanned
            )
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
        state, world = self._session.state, self._environment
        if SCM_STEP not in state.open_steps:
            self._turns.start_watching("children_scm")
            self._session.record(records.ScmBegan(state.iteration))
        name = f"scm_{state.iteration:03d}"
        checked = f"{state.iteration}-checked"
        before = (
            world.work.workspace.find_snapshot(self._session.id, checked) if self._session.command_ended_ns else None
        )
        before = before or world.work.workspace.save(self._session.id, checked)
        message, reply, theirs = self._commit_message(name, before)
        users = state.user.paths | state.hooks.paths
        others = tuple(sorted(users.union(theirs)))
        work = CommitRequest(
            state.iteration, message, state.trees.run_start, state.trees.current, others, world.plan.editable.files
        )
        changed = {path for facts in state.history.iterations for path in facts.change.paths}
        committed = world.commit(work, state.baseline.paths | (users - changed))
        self._session.command_ended_ns = 0
        self._session.record(records.ScmEnded(state.iteration, committed, reply, message))
        world.files.publish(name)

    def _commit_message(self, name: str, before: Snapshot) -> tuple[str, Turn | None, tuple[str, ...]]:
        """The stage's message, else the agent's, with its reply. What that call changes in the tree is put back.

        The last are paths that the user changed since the call ended.
        """
        state = self._session.state
        self._session.flush()
        claim, rule = state.facts.claim, state.job.stage.claim
        heard = claim is not None and (rule.accepts(claim) or rule.refuses(claim))
        word = (
            (self._environment.plan.editable.status_word(state.job.task.id) or (claim.word if claim else ""))
            if heard
            else ""
        )
        if own := state.job.message(word.replace("_", " ") or "work in progress"):
            return own, None, ()
        brief = self._turns.turn_input(f"{name}_prompt", name, COMMIT_MESSAGE_PROMPT, stream=False)
        reply = self._turns.ask_agent(self._environment.agent_at(state.agent.index), brief)
        theirs = self._restore_tree(name, before)
        return "" if reply.errored else parse_commit_message(reply.text), reply, theirs

    def _restore_tree(self, name: str, before: Snapshot) -> tuple[str, ...]:
        """Undo what the call for a message changed in the tree; what the user changed since it ended stays."""
        workspace, sprung = self._environment.work.workspace, self._environment.work.tripwires.check_and_restore(name)
        after = workspace.save(self._session.id, f"{self._session.state.iteration}-scm")
        theirs = self._work.changed_after_end(workspace.change(before, after)) if self._session.command_ended_ns else ()
        spared = replace(after, left_out=(*after.left_out, *theirs))
        back = [f"{one.path} ({one.trouble or one.rule})" for one in sprung.touched]
        if back := [*back, *workspace.restore(before, spared)]:
            self._session.notice(f"the commit-message call changed files; they were put back: {', '.join(back)}")
        for remark in sprung.remarks:
            self._session.notice(remark)
        return theirs


def _lost_output_message(end: Exit) -> str:
    """Why the run cannot go on: what the agent claimed and what it cost is unknown."""
    return (
        f"the agent's output could not be written ({end.log_error}): {end.lost_bytes} bytes of it are lost, with what "
        "it claimed there. Its work is saved. Make room, or raise the limit on file sizes (ulimit -f), then resume"
    )


def _shell_quote(path: str) -> str:
    """A path as a shell reads it."""
    return path if re.fullmatch(r"[\w./+@%,=-]+", path) else "'{}'".format(path.replace("'", "'\\''"))


def _without_paths(change: Change, paths: tuple[str, ...]) -> Change:
    if not paths:
        return change
    left, older = ([path for path in all_of if path not in paths] for all_of in (change.paths, change.older))
    return replace(change, paths=tuple(left), older=tuple(older))
