"""The loop: performs the actions of one run until its outcome. `next_action` decides them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from ralphproof.base.errors import RalphError, Refused, wrap_os_error
from ralphproof.base.value import Json, assert_never, replace
from ralphproof.engine import actions, records
from ralphproof.engine.actions import RunConditions, RunRules
from ralphproof.engine.check import Check, Finding, Inspection
from ralphproof.engine.environment import FixedPlan, LoopEnvironment, TurnMonitor
from ralphproof.engine.iteration import History, turn_file_name
from ralphproof.engine.limits import CONTINUED_REASONS, HISTORY_REWRITTEN, TRIPWIRE_REASONS, WORKSPACE_GONE, Breach
from ralphproof.engine.metrics import Metrics
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
from ralphproof.engine.records import CheckBegan, CheckEnded, CheckStopped
from ralphproof.engine.run_hooks import (
    AFTER_ITERATION,
    AFTER_RUN,
    BEFORE_ITERATION,
    BEFORE_RUN,
    HOOK_NOT_STARTED,
    HOOK_STOPPED,
    HookResult,
)
from ralphproof.engine.run_metrics import compute_run_metrics
from ralphproof.engine.session import EMPTY_PLAN, AgentTurns, RunSession, SpendAccount
from ralphproof.engine.state import Checking, IterationJudged, JobPicked, State, TurnFinished, TurnRunning
from ralphproof.engine.work_saver import Committer, WorkSaver
from ralphproof.engine.workspace import MAX_NAMED_PATHS, Change, CommitResult


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
            case actions.Warn(what, message):
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
