"""The loop: carries out the actions of one run, and saves, restores and commits its work."""

from __future__ import annotations

import hashlib
import re

from ralphproof.base.errors import DiskFull, RalphError, Refused, wrap_os_error
from ralphproof.base.value import TYPE_CHECKING, assert_never, replace
from ralphproof.engine import actions, records
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import AlteredCheckInput
from ralphproof.engine.environment import NO_PLAN_EDITS, FixedPlan, LoopEnvironment, PlanEdits, TurnMonitor
from ralphproof.engine.iteration import History, turn_file_name
from ralphproof.engine.limits import HISTORY_REWRITTEN, RESUMABLE_REASONS, TRIPWIRE_REASONS, WORKSPACE_GONE, Breach
from ralphproof.engine.metrics import outcome_with_metrics
from ralphproof.engine.next_action import aborted_outcome, failed_outcome, next_action
from ralphproof.engine.outcome import (
    Aborted,
    Completed,
    Failed,
    Outcome,
    Passed,
    Retry,
    Stopped,
    Verdict,
    outcome_json,
    verdict_word,
)
from ralphproof.engine.plan import Job, PlanChoice, choose_next_job
from ralphproof.engine.prompt import COMMIT_MESSAGE_PROMPT, parse_commit_message
from ralphproof.engine.run_hooks import (
    AFTER_ITERATION,
    AFTER_RUN,
    BEFORE_ITERATION,
    BEFORE_RUN,
    HOOK_NOT_STARTED,
    HOOK_STOPPED,
    HookResult,
)
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.state import SCM_STEP, Checking, IterationJudged, State, TurnFinished, TurnRunning
from ralphproof.engine.turn_io import EMPTY_PLAN, TurnRunner
from ralphproof.engine.workspace import MAX_NAMED_PATHS, Change, CommitRequest, CommitResult, Snapshot, TripwireReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.base.value import Json


# How work is kept: the tree after a turn, what others did meanwhile, and passed work in the user's SCM.


def _hook_exit_reason(end: Exit) -> str:
    """Why the run cannot go on: nobody knows what the agent claimed, nor what it cost."""
    return (
        f"the agent's output could not be written ({end.log_error}): {end.lost_bytes} bytes of it are lost, with what "
        "it claimed there. Its work is saved. Make room, or raise the limit on file sizes (ulimit -f), then resume"
    )


class WorkKeeper(TurnRunner):
    """The part of a loop that keeps work."""

    def _save(self) -> None:
        state = self.state
        name, agent = (
            turn_file_name(str(state.iteration), state.turn, "."),
            turn_file_name(f"agent_{state.iteration:03d}", state.turn),
        )
        snapshot, change, sprung, examined = self._saved(name, agent)
        altered = self._altered(snapshot)
        theirs = self._later(change)
        self._unseen = False
        prompt = tuple(path for path in (self.environment.prompt_file,) if path in change.paths and path not in theirs)
        change, heard = _without_paths(change, (*theirs, *prompt)), self._heard(state.reply, examined.claim)
        self._tell(
            records.Saved(state.iteration, state.turn, snapshot, change, heard, sprung, examined.violations, altered)
        )
        if theirs or prompt:
            self._tell_theirs(snapshot, theirs, prompt)
        self.environment.files.publish(agent)
        for message in (*sprung.remarks, *examined.remarks):
            self.notice(message)
        self._look_out()
        if state.reply.exit.lost_bytes and heard.claim is None:
            raise DiskFull(_hook_exit_reason(state.reply.exit))

    def _ground(self) -> None:
        snapshot = self.environment.workspace.save(self.id, "0-checked")
        if snapshot.id is None:
            raise Refused(f"the checks left the project so that it cannot be saved: {snapshot.problem}")
        written = self.environment.workspace.change(self.state.run_start, snapshot).paths
        self._tell(records.BaselineSaved(snapshot, written))

    def _hook(self, hook: str, place: int, outcome: Outcome | None = None) -> None:
        """Run one command of the user's own. What it changes in the tree is not the agent's work.

        One that began before a crash is taken up: followed to its end, its result used, or run again if it was cut off.
        One that is ended because the run is to end has not run: it runs again when the run goes on.
        """
        state, world, looks = self.state, self.environment, hook != AFTER_RUN
        command, taken_up = self.rules.hook_commands(hook)[place], state.hooks.open == (hook, place)
        number = state.hooks.begun - taken_up
        iteration = len(state.history.iterations) if hook in (BEFORE_RUN, AFTER_RUN) else state.iteration
        saved, name = f"{iteration}-hook{number + 1}", f"hook_{iteration:03d}_{hook}_{number + 1}"
        if not taken_up:
            if looks:
                world.workspace.save(self.id, saved)
            self._tell(records.HookBegan(iteration, hook, place, number, command))
        self._flush()
        if taken_up and not looks and not world.was_started(name):  # the run it was to come after goes on
            result = HookResult(command, False, why=HOOK_NOT_STARTED)
        else:
            ending = bool(outcome) and bool(world.clock.stop_reason())
            result = world.hook_runner.run(name, command, self._hook_exports(hook, outcome), TurnMonitor(world), ending)
        if result.why == HOOK_STOPPED and self._ending and looks:
            return
        if not looks:
            self._tell(records.HookEnded(iteration, hook, place, number, result))
            return
        remarks = world.editable_plan.accept_user_changes(True)
        before, after = world.workspace.find_snapshot(self.id, saved), world.workspace.save(self.id, f"{saved}-after")
        if after.id is None:
            raise Refused(f"{hook} left the project so that it cannot be saved: {after.problem}")
        changed = world.workspace.change(before, after).paths if before and before.id else ()
        paths = tuple(path for path in changed if path not in world.editable_plan.files)
        if not state.agent_started:
            world.check_pins.accept_user_changes(paths)
        self._plan = self._plan if not remarks else EMPTY_PLAN
        self._tell(records.HookEnded(iteration, hook, place, number, result, after, paths, bool(remarks)))
        for remark in remarks:
            self.notice(remark)

    def _hooks_after(self, outcome: Outcome) -> None:
        """The user's own commands at the end of a run. Whatever becomes of them, the run ends as it does."""
        if not self.state.run or not self.rules.hook_commands(AFTER_RUN):
            return
        if isinstance(outcome, Aborted) and outcome.reason in TRIPWIRE_REASONS:
            self.notice(f"{AFTER_RUN} is not run after {outcome.reason}: the agent may have changed what it would run")
            return
        try:
            while due := self.rules.next_hook(self.state, AFTER_RUN):
                self._hook(due.hook, due.index, outcome)
        except (RalphError, OSError) as error:
            self.notice(f"{AFTER_RUN} could not be run: {error}")

    def _hook_exports(self, hook: str, outcome: Outcome | None) -> dict[str, str]:
        """What a hook is told of where the run stands."""
        state, world = self.state, self.environment
        exports = (
            self._exports() if hook in (BEFORE_ITERATION, AFTER_ITERATION) else self._exports(state.history.turn_count)
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

    def _look_out(self) -> None:
        for message in (message for lookout in self.environment.extra_notices for message in lookout()):
            self.notice(message)

    def _join(self) -> None:
        """The tree once more, with the work of runs that were waited for."""
        state = self.state
        name, agent = (
            turn_file_name(str(state.iteration), state.turn, "."),
            turn_file_name(f"agent_{state.iteration:03d}", state.turn),
        )
        snapshot, change, sprung, examined = self._saved(f"{name}-joined", f"{agent}_joined")
        before, illegal = state.facts.tripwires, (*state.facts.plan_violations, *examined.violations)
        both = TripwireReport(
            (*before.touched, *sprung.touched), sprung.patch or before.patch, before.remarks + sprung.remarks
        )
        altered = self._altered(snapshot)
        self._tell(records.ChildWorkJoined(state.iteration, state.turn, snapshot, change, both, illegal, altered))
        self._look_out()

    def _saved(self, name: str, agent: str) -> tuple[Snapshot, Change, TripwireReport, PlanEdits]:
        workspace, stage = self.environment.workspace, self.state.job.stage
        before = None if stage.edits else workspace.find_snapshot(self.id, name)  # by us, before we died over it
        snapshot = (
            replace(before, left_out=self.state.iteration_start.left_out) if before else workspace.save(self.id, name)
        )
        snapshot, undone, told = self._undone(name, snapshot) if stage.looks else (snapshot, (), ())
        sprung, change = self.environment.tripwires.check_and_restore(agent), self._change(snapshot)
        examined = self._examined(name, snapshot, change)
        if sprung.touched or examined.has_reverted:  # that is no work; all that the agent left is under the first name
            snapshot = workspace.save(self.id, f"{name}-put-back")
            change = self._change(snapshot)
        if snapshot.problem:
            self.notice(f"not everything could be saved: {snapshot.problem}")
        if change.rewritten or snapshot.id is None:
            change = replace(change, kept=self.environment.tripwires.history_backup())
        sprung = replace(sprung, remarks=(*told, *sprung.remarks))
        return snapshot, replace(change, undone=undone), sprung, examined

    def _altered(self, now: Snapshot) -> tuple[AlteredCheckInput, ...]:
        """What decides over the checks and is not as the run found it; what the user changed meanwhile is theirs."""
        return self.environment.check_pins.find_altered(self.state.run_start, now, self.state.user_paths)

    def _examined(self, name: str, snapshot: Snapshot, change: Change) -> PlanEdits:
        """What the turn did to the plan; files that its stage may not touch are as it found them."""
        if not self._reply_taken:
            return NO_PLAN_EDITS
        examined = self.environment.editable_plan.review_edits(
            name, self.state.job, _without_paths(change, (*self.state.baseline_paths, self.environment.prompt_file))
        )
        if examined.stray_files:
            others = tuple(path for path in change.paths if path not in examined.stray_files)
            spared = replace(snapshot, left_out=(*snapshot.left_out, *others))
            self.environment.workspace.restore(self.state.iteration_start, spared)
            told = self._set_aside(name, snapshot, examined.stray_files)
            return replace(examined, remarks=(*examined.remarks, told))
        return examined

    @property
    def _reply_taken(self) -> bool:
        """Whether an agent was asked in this turn."""
        phase = self.state.phase
        return phase.facts.turn.taken if isinstance(phase, Checking) else self.state.reply.taken

    def _undone(self, name: str, snapshot: Snapshot) -> tuple[Snapshot, tuple[str, ...], tuple[str, ...]]:
        """The tree as a stage found it that only looks, what it had changed, and what to say of it.

        What it changed is kept by its name.
        """
        workspace = self.environment.workspace
        theirs: tuple[str, ...] = ()
        if snapshot.id is not None and snapshot.head != self.state.iteration_start.head:
            stage = self.state.job.stage.name
            return snapshot, (), (f"stage {stage} only looks, and yet it committed; that is looked at again",)
        if snapshot.id is None or not (changed := workspace.change(self.state.iteration_start, snapshot).paths):
            return snapshot, (), ()
        if self._unseen:  # nobody saw it end: what the user may have changed since is left alone
            theirs = workspace.changed_since(changed, self._ended_ns) if self._ended_ns else changed
        if not (changed := tuple(path for path in changed if path not in theirs)):
            return snapshot, (), ()
        workspace.restore(self.state.iteration_start, replace(snapshot, left_out=(*snapshot.left_out, *theirs)))
        told = self._set_aside(name, snapshot, changed)
        return workspace.save(self.id, f"{name}-put-back"), changed, (told,)

    def _set_aside(self, name: str, snapshot: Snapshot, paths: tuple[str, ...]) -> str:
        """That a stage which only looks left other files than it found; whoever changed them can have them back."""
        more = f" and {len(paths) - MAX_NAMED_PATHS} more" if len(paths) > MAX_NAMED_PATHS else ""
        found, stage = self.state.iteration_start, self.state.job.stage.name
        if self.environment.workspace.kind == "git" and snapshot.ref and found.ref:
            only = f" -- {' '.join(map(_shell_quote, paths))}" if len(paths) <= MAX_NAMED_PATHS else ""
            back = f"git --literal-pathspecs diff --binary {found.ref} {snapshot.ref}{only} | git apply"
        else:
            patch = self.environment.workspace.diff(found, snapshot)
            back = f"git apply {self.environment.files.write_patch(f'aside_{name}', patch)}"
        what = (
            f"stage {stage} only looks; what changed meanwhile was put back: {', '.join(paths[:MAX_NAMED_PATHS])}{more}"
        )
        return f"{what}; it is kept, and if it was yours this brings it back: {back}"

    def _change(self, now: Snapshot) -> Change:
        """What the iteration changed. Commits that were made during the run may be made anew: they are no history."""
        state, workspace = self.state, self.environment.workspace
        change = workspace.change(state.iteration_start, now)
        if change.rewritten and state.iteration_start.head != state.history_base.head:
            return replace(change, rewritten=workspace.change(state.history_base, now).rewritten)
        return change

    def _later(self, change: Change) -> tuple[str, ...]:
        """What changed after the command ended that nobody saw end: that was the user, and is no work of it."""
        ended_ns, self._ended_ns = self._ended_ns, 0
        return self.environment.workspace.changed_since(change.paths, ended_ns) if ended_ns else ()

    def _regain(self) -> None:
        """Keep the tree as it is found; what changed while nobody of ours was at work is the user's."""
        state, workspace = self.state, self.environment.workspace
        snapshot = workspace.save(self.id, f"{state.iteration}-theirs{state.user_saves or ''}")
        if snapshot.id is None:
            raise Refused(f"the project cannot be saved, so no agent may touch it: {snapshot.problem}")
        remarks, own = (
            self.environment.editable_plan.accept_user_changes(SCM_STEP in state.open_steps),
            self.environment.editable_plan.files,
        )
        paths = tuple(path for path in workspace.change(state.last_saved, snapshot).paths if path not in own)
        quiet_ns, self._quiet_ns = self._quiet_ns, 0
        for remark in remarks:
            self.notice(remark)
        self._plan = self._plan if not remarks else EMPTY_PLAN
        self._tell_theirs(snapshot, workspace.changed_since(paths, quiet_ns) if quiet_ns else paths, (), bool(remarks))

    def _tell_theirs(
        self, snapshot: Snapshot, paths: tuple[str, ...], unsaid: tuple[str, ...] = (), replanned: bool = False
    ) -> None:
        """Record what is not the agent's work. Whoever changed what is `unsaid`, that is told elsewhere."""
        self.environment.check_pins.accept_user_changes((*paths, *unsaid))
        both = (*paths, *unsaid)
        self._tell(records.UserChangesSaved(self.state.iteration, self.state.user_saves, snapshot, both, replanned))
        if paths:
            more = f" and {len(paths) - MAX_NAMED_PATHS} more" if len(paths) > MAX_NAMED_PATHS else ""
            self.notice(
                f"changed while the run rested, so it counts as yours: {', '.join(paths[:MAX_NAMED_PATHS])}{more}"
            )

    def _settle(self) -> None:
        """Make the plan say what was judged; again, if we cannot know whether it does."""
        if isinstance(self.state.phase, IterationJudged) and not isinstance(self.environment.editable_plan, FixedPlan):
            self._flush()
            for remark in self.environment.editable_plan.apply_verdict(
                self.state.phase.facts, self.state.phase.verdict
            ):
                self.notice(remark)

    def _hold(self, seconds: float) -> None:
        """Rest as somebody wants it; that time is no part of the run's age."""
        if not self.state.paused:
            self._tell(records.Paused(self.state.iteration, self.state.pauses))
        self._flush()
        began_s = self.environment.clock.monotonic()
        self.environment.sleep(seconds)
        self._began_s += self.environment.clock.monotonic() - began_s

    def _await(self, children: tuple[str, ...], seconds: float) -> None:
        if self.state.children_awaited_s is None:
            self._tell(records.ChildRunsAwaited(self.state.iteration, self.state.turn, children, self._now().elapsed_s))
        self._flush()
        self.environment.sleep(seconds)

    def _keep(self) -> None:
        """Get a message, then commit."""
        state, world = self.state, self.environment
        if SCM_STEP not in state.open_steps:
            self._arm("children_scm")
            self._tell(records.ScmBegan(state.iteration))
        name = f"scm_{state.iteration:03d}"
        checked = f"{state.iteration}-checked"
        before = world.workspace.find_snapshot(self.id, checked) if self._ended_ns else None
        before = before or world.workspace.save(self.id, checked)
        message, reply, theirs = self._message(name, before)
        users = state.user_paths | state.hooks.paths
        others = tuple(sorted(users.union(theirs)))
        work = CommitRequest(
            state.iteration, message, state.run_start, state.current_tree, others, world.editable_plan.files
        )
        changed = {path for facts in state.history.iterations for path in facts.change.paths}
        committed = world.commit(work, state.baseline_paths | (users - changed))
        self._ended_ns = 0
        self._tell(records.ScmEnded(state.iteration, committed, reply, message))
        world.files.publish(name)

    def _message(self, name: str, before: Snapshot) -> tuple[str, Turn | None, tuple[str, ...]]:
        """The stage's message, else the agent's, with its reply. What that call changes in the tree is put back.

        The last are paths that the user changed since the call ended.
        """
        state = self.state
        self._flush()
        claim, rule = state.facts.claim, state.job.stage.claim
        heard = claim is not None and (rule.accepts(claim) or rule.refuses(claim))
        word = (
            (self.environment.editable_plan.status_word(state.job.task.id) or (claim.word if claim else ""))
            if heard
            else ""
        )
        if own := state.job.message(word.replace("_", " ") or "work in progress"):
            return own, None, ()
        brief = self._brief(f"{name}_prompt", name, COMMIT_MESSAGE_PROMPT, stream=False)
        reply = self._reply(self.environment.agent_at(state.agent_index), brief)
        theirs = self._put_back(name, before)
        return "" if reply.errored else parse_commit_message(reply.text), reply, theirs

    def _put_back(self, name: str, before: Snapshot) -> tuple[str, ...]:
        """Undo what the call for a message changed in the tree; what the user changed since it ended stays."""
        workspace, sprung = self.environment.workspace, self.environment.tripwires.check_and_restore(name)
        after = workspace.save(self.id, f"{self.state.iteration}-scm")
        theirs = self._later(workspace.change(before, after)) if self._ended_ns else ()
        spared = replace(after, left_out=(*after.left_out, *theirs))
        back = [f"{one.path} ({one.trouble or one.rule})" for one in sprung.touched]
        if back := [*back, *workspace.restore(before, spared)]:
            self.notice(f"the commit-message call changed files; they were put back: {', '.join(back)}")
        for remark in sprung.remarks:
            self.notice(remark)
        return theirs


def _shell_quote(path: str) -> str:
    """A path as a shell reads it."""
    return path if re.fullmatch(r"[\w./+@%,=-]+", path) else "'{}'".format(path.replace("'", "'\\''"))


def _without_paths(change: Change, paths: tuple[str, ...]) -> Change:
    if not paths:
        return change
    left, older = ([path for path in all_of if path not in paths] for all_of in (change.paths, change.older))
    return replace(change, paths=tuple(left), older=tuple(older))


# The verb: carries values from the first noun to the last. `next_action` decides; the loop does as it is told.


NEW_STATE = State()


def _picked_record(iteration: int, choice: PlanChoice, history: History, round: int) -> records.Picked:
    if not isinstance(choice, Job):
        return records.Picked(iteration, choice, round=round)
    return records.Picked(iteration, choice.compact, history.attempts(choice) + 1, round)


class Loop(WorkKeeper):
    """One run, from its first iteration or from wherever its records say that it stands."""

    def __init__(
        self,
        run: str,
        rules: actions.RunRules,
        world: LoopEnvironment,
        facts: dict[str, Json] | None = None,
        state: State = NEW_STATE,
    ) -> None:
        super().__init__(run, rules, world, state)
        self.facts = facts or {}

    def resume(self, elapsed_s: float, ended_ns: int = 0, quiet_ns: int = 0) -> None:
        """Say that this process has the run from now on, and how old it is.

        `ended_ns` is when what was open ended, if it did; `quiet_ns` since when nothing of the run was at work.
        """
        now_s, held = self.environment.clock.epoch(), self.facts.get("sandbox")
        box = held if isinstance(held, dict) else None
        self._tell(records.Resumed(self.state.session + 1, now_s, elapsed_s, box))
        self._began_s = self.environment.clock.monotonic() - elapsed_s
        self._ended_ns, self._quiet_ns = ended_ns, quiet_ns
        self._unseen = isinstance(self.state.phase, TurnRunning | TurnFinished)

    def run(self) -> Outcome:
        """Go on until the run is over. However it ends, the ledger says so before this returns."""
        over = self.until(lambda _: False)
        assert isinstance(over, actions.Finish)
        return over.outcome

    def until(self, rests: Callable[[actions.Action], bool]) -> actions.Action:
        """Go on as `run` does, but leave what is to be done next undone where the caller rests before it."""
        try:
            if not self.state.run:
                self._begin()
            while not isinstance(step := next_action(self.state, self.rules, self.conditions()), actions.Finish):
                if rests(step):
                    break
                self._do(step)
            self._flush()
            return step
        except RalphError as error:
            return actions.Finish(self._broken(error))
        except OSError as error:
            return actions.Finish(self._broken(wrap_os_error(error)))

    def _begin(self) -> None:
        began = self.environment.workspace.begin(self.id)
        if began.id is None:
            raise Refused(f"the project cannot be saved, so no agent may touch it: {began.problem}")
        self.environment.check_pins.begin()
        self._tell(records.RunBegan(self.id, began, self.facts, self.environment.clock.epoch()))
        self._flush()

    def _pick(self, iteration: int) -> None:
        """What comes next, by the plan as it now is."""
        self._settle()
        self._plan = self.environment.plan.read()
        choice = choose_next_job(self._plan, self.rules.pipeline, self.state.passed)
        round = self.state.user_saves + 1 if self.state.iteration == iteration else 1
        self._tell(_picked_record(iteration, choice, self.state.history, round))

    def _do(self, step: actions.Action) -> None:
        state = self.state
        match step:
            case actions.PickNextJob(iteration):
                self._pick(iteration)
            case actions.Warn(what, message):
                self._tell(records.Warned(state.iteration, what, message))
            case actions.Escalate(rung, deep, why):
                self._tell(records.Escalated(state.iteration, rung, deep, why))
            case actions.SaveBaseline():
                self._ground()
            case actions.TakeTurn():
                self._take_turn(step)
            case actions.RunHook(hook, place):
                self._hook(hook, place)
            case actions.SaveWork():
                self._save()
            case actions.WaitForService(seconds):
                self._flush()
                self.environment.sleep(seconds)
            case actions.HoldPaused(seconds):
                self._hold(seconds)
            case actions.SaveUserChanges():
                self._regain()
            case actions.JudgeFoundClaim():
                self._mark()
                self._tell(records.ClaimFound(state.iteration, state.turn))
            case actions.AwaitChildRuns(children, seconds):
                self._await(children, seconds)
            case actions.JoinChildWork():
                self._join()
            case actions.RetryTurn(empty, why, until, wait_s):
                self._tell(records.TurnRetried(state.iteration, state.turn, empty, why, until, wait_s))
            case actions.RunChecks(check, beside):
                self._ask((check, *beside))
            case actions.Conclude(verdict):
                elapsed_s, counts = self._now().elapsed_s, self._if_whole(verdict)
                self._tell(records.Judged(state.iteration, state.turn, counts, elapsed_s, state.session))
                self._settle()
            case actions.CommitWork(why_not) if why_not:
                self._tell(records.ScmEnded(state.iteration, CommitResult(error=why_not)))
            case actions.CommitWork():
                self._settle()  # we may have died before
                self._keep()
            case actions.EndRun(outcome):
                self._end(outcome)
            case actions.Finish():
                pass
            case _:
                assert_never(step)

    def _take_turn(self, step: actions.TakeTurn) -> None:
        if step.pause_s and not self._rested(step.pause_s):
            return
        if self.environment.clock.stop_reason() and not self.state.turn_running:
            return
        begun, name = self.state.turn_running, turn_file_name(f"{self.state.iteration:03d}", self.state.turn)
        taken_up = begun and self.environment.was_started(f"agent_{name}")
        if not begun:
            self._tell_looking()
            self._take_words()
        elif not taken_up:  # nobody was there between its record and its start
            self._regain()
            self._mark()
        state, agent = self.state, self.environment.agent_at(step.agent_index, self.state.agent if begun else "")
        before = self.environment.files.read_prompt(f"prompt_{name}") if begun else None
        self._prompt = self._composed(step.job) if before is None else before
        brief = replace(self._brief(f"prompt_{name}", f"agent_{name}", self._prompt), adopt=taken_up)
        if state.agent_session and step.agent_index == state.agent_index:
            brief = replace(brief, session=state.agent_session, session_spent=state.session_spent)
        if not begun:
            digest = hashlib.sha256(self._prompt.encode("utf-8", "surrogatepass")).hexdigest()
            self._mark()
            argv = agent.argv(brief)
            self._tell(records.TurnBegan(state.iteration, state.turn, digest, argv, agent.name, step.agent_index))
        self._tell(records.TurnEnded(state.iteration, state.turn, self._reply(agent, brief)))

    def _rested(self, pause_s: float) -> bool:
        """Pause; whether a turn is still what comes next."""
        self._flush()
        self.environment.clock.sleep(pause_s)
        return isinstance(next_action(self.state, self.rules, self.conditions()), actions.TakeTurn)

    def _if_whole(self, verdict: Verdict) -> Verdict:
        """The verdict, unless it lets work count although the repository was damaged since the run began."""
        if isinstance(verdict, Passed) or (isinstance(verdict, Retry) and self.state.facts.report.passed):
            damage = self.environment.tripwires.repository_damage()
            return Stopped(Breach(HISTORY_REWRITTEN, damage)) if damage else verdict
        return verdict

    def _end(self, outcome: Outcome) -> None:
        asked_later = isinstance(self.state.phase_before_end, TurnRunning | TurnFinished)  # when it is taken up
        if isinstance(outcome, Completed) and (
            damage := self.environment.tripwires.repository_damage()
        ):  # by commits or hooks
            outcome = aborted_outcome(self.state, self._now(), Breach(HISTORY_REWRITTEN, damage))
        for remark in () if asked_later else self.environment.tripwires.final_warnings():
            self.notice(remark)
        if isinstance(outcome, Failed) or (isinstance(outcome, Aborted) and outcome.reason not in RESUMABLE_REASONS):
            for remark in self.environment.child_runs.stop_all():
                self.notice(remark)
        self.environment.editable_plan.close()
        self._hooks_after(outcome)
        metrics = self._reckoned(outcome)
        self._tell(records.RunEnded(outcome, metrics, self.state.session))
        self.environment.files.begin_outcome()
        self._flush()
        self.environment.files.write_outcome(outcome_with_metrics(outcome_json(outcome), metrics))
        if not asked_later:
            self.environment.tripwires.discard()

    def _broken(self, error: RalphError) -> Outcome:
        """We cannot go on: say why, in the record too as far as it can still be written."""
        outcome: Outcome = failed_outcome(self.state, self._now(), str(error), error.exit_code)
        if error.reason:
            kept = self.environment.tripwires.history_backup() if error.reason == WORKSPACE_GONE else ""
            outcome = aborted_outcome(self.state, self._now(), Breach(error.reason, f"{error}{kept and f'; {kept}'}"))
        try:
            self._end(outcome)
        except RalphError:
            pass  # what stopped us is what the user must hear, not that it could not be written down
        return outcome
