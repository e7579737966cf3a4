"""The loop: carries out the actions of one run until its outcome. `next_action` decides them."""

from __future__ import annotations

import hashlib

from ralphproof.base.errors import RalphError, Refused, wrap_os_error
from ralphproof.base.value import TYPE_CHECKING, assert_never, replace
from ralphproof.engine import actions, records
from ralphproof.engine.actions import RunConditions, RunRules
from ralphproof.engine.check_runner import CheckRunner
from ralphproof.engine.environment import FixedPlan, LoopEnvironment
from ralphproof.engine.iteration import History, turn_file_name
from ralphproof.engine.limits import HISTORY_REWRITTEN, RESUMABLE_REASONS, WORKSPACE_GONE, Breach
from ralphproof.engine.loop_hooks import LoopHooks
from ralphproof.engine.metrics import Metrics, outcome_with_metrics
from ralphproof.engine.next_action import aborted_outcome, failed_outcome, next_action
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome, Passed, Retry, Stopped, Verdict, outcome_json
from ralphproof.engine.plan import Job, PlanChoice, choose_next_job
from ralphproof.engine.session import RunSession, SpendAccount
from ralphproof.engine.state import Checking, IterationJudged, JobPicked, State, TurnFinished, TurnRunning
from ralphproof.engine.turns import AgentTurns
from ralphproof.engine.work_saver import Committer, WorkSaver
from ralphproof.engine.workspace import CommitResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.base.value import Json

NEW_STATE = State()


def _picked_record(iteration: int, choice: PlanChoice, history: History, round: int) -> records.Picked:
    if not isinstance(choice, Job):
        return records.Picked(iteration, choice, round=round)
    return records.Picked(iteration, choice.compact, history.attempts(choice) + 1, round)


class Loop:
    """One run, from its first iteration or from wherever its records say that it stands."""

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
        """Where the run stands."""
        return self._session.state

    @property
    def rules(self) -> RunRules:
        """What stays the same during the run."""
        return self._session.rules

    @rules.setter
    def rules(self, rules: RunRules) -> None:
        self._session.rules = rules

    @property
    def environment(self) -> LoopEnvironment:
        """Everything outside of the engine."""
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
        """The run in figures. What could not be booked in time is tried once more."""
        from ralphproof.engine.run_metrics import compute_run_metrics

        self._account.book_pending()
        own = replace(outcome, spend=self._session.state.bill)  # children have figures of their own
        metrics = compute_run_metrics(
            self._session.state, own, self._environment.clock.epoch(), self._environment.editable_plan.story_reviews()
        )
        return replace(metrics, saved_micro_usd=self._environment.model_savings(self._session.state.history))

    def conditions(self) -> RunConditions:
        """The present, with whatever else the next step may depend on."""
        now, phase = self._session.now(), self._session.state.phase
        if not isinstance(phase, JobPicked | Checking | IterationJudged):
            return now
        now = replace(now, day=self._account.day_spend(), children=self._environment.child_runs.status())
        if not isinstance(phase, JobPicked):
            return now
        return replace(now, paused=self._environment.clock.paused(), claim=self._environment.find_claim(0))

    def _apply_verdict_to_plan(self) -> None:
        """Make the plan say what was judged; again, if we cannot know whether it does."""
        if isinstance(self._session.state.phase, IterationJudged) and not isinstance(
            self._environment.editable_plan, FixedPlan
        ):
            self._session.flush()
            for remark in self._environment.editable_plan.apply_verdict(
                self._session.state.phase.facts, self._session.state.phase.verdict
            ):
                self._session.notice(remark)

    def _hold_paused(self, seconds: float) -> None:
        """Rest as somebody wants it; that time is no part of the run's age."""
        if not self._session.state.paused:
            self._session.record(records.Paused(self._session.state.iteration, self._session.state.pauses))
        self._session.flush()
        began_s = self._environment.clock.monotonic()
        self._environment.sleep(seconds)
        self._session.began_s += self._environment.clock.monotonic() - began_s

    def _await_child_runs(self, children: tuple[str, ...], seconds: float) -> None:
        if self._session.state.children_awaited_s is None:
            self._session.record(
                records.ChildRunsAwaited(
                    self._session.state.iteration, self._session.state.turn, children, self._session.now().elapsed_s
                )
            )
        self._session.flush()
        self._environment.sleep(seconds)

    def resume(self, elapsed_s: float, ended_ns: int = 0, quiet_ns: int = 0) -> None:
        """Say that this process has the run from now on, and how old it is.

        `ended_ns` is when what was open ended, if it did; `quiet_ns` since when nothing of the run was at work.
        """
        now_s, held = self._environment.clock.epoch(), self.facts.get("sandbox")
        box = held if isinstance(held, dict) else None
        self._session.record(records.Resumed(self._session.state.session + 1, now_s, elapsed_s, box))
        self._session.began_s = self._environment.clock.monotonic() - elapsed_s
        self._session.command_ended_ns, self._session.quiet_since_ns = ended_ns, quiet_ns
        self._session.turn_was_open = isinstance(self._session.state.phase, TurnRunning | TurnFinished)

    def run(self) -> Outcome:
        """Go on until the run is over. However it ends, the ledger says so before this returns."""
        over = self.until(lambda _: False)
        assert isinstance(over, actions.Finish)
        return over.outcome

    def until(self, rests: Callable[[actions.Action], bool]) -> actions.Action:
        """Go on as `run` does, but leave what is to be done next undone where the caller rests before it."""
        try:
            if not self._session.state.run:
                self._begin()
            while not isinstance(
                step := next_action(self._session.state, self._session.rules, self.conditions()), actions.Finish
            ):
                if rests(step):
                    break
                self.perform(step)
            self._session.flush()
            return step
        except RalphError as error:
            return actions.Finish(self._fail(error))
        except OSError as error:
            return actions.Finish(self._fail(wrap_os_error(error)))

    def _begin(self) -> None:
        began = self._environment.workspace.begin(self._session.id)
        if began.id is None:
            raise Refused(f"the project cannot be saved, so no agent may touch it: {began.problem}")
        self._environment.check_pins.begin()
        self._session.record(records.RunBegan(self._session.id, began, self.facts, self._environment.clock.epoch()))
        self._session.flush()

    def _pick(self, iteration: int) -> None:
        """What comes next, by the plan as it now is."""
        self._apply_verdict_to_plan()
        self._session.plan = self._environment.plan.read()
        choice = choose_next_job(self._session.plan, self._session.rules.pipeline, self._session.state.passed)
        round = self._session.state.user_saves + 1 if self._session.state.iteration == iteration else 1
        self._session.record(_picked_record(iteration, choice, self._session.state.history, round))

    def perform(self, step: actions.Action) -> None:
        state = self._session.state
        match step:
            case actions.PickNextJob(iteration):
                self._pick(iteration)
            case actions.Warn(what, message):
                self._session.record(records.Warned(state.iteration, what, message))
            case actions.Escalate(rung, deep, why):
                self._session.record(records.Escalated(state.iteration, rung, deep, why))
            case actions.SaveBaseline():
                self._work.save_baseline()
            case actions.TakeTurn():
                self._take_turn(step)
            case actions.RunHook(hook, place):
                self._hooks.run(hook, place)
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
                self._session.record(records.Judged(state.iteration, state.turn, counts, elapsed_s, state.session))
                self._apply_verdict_to_plan()
            case actions.CommitWork(why_not) if why_not:
                self._session.record(records.ScmEnded(state.iteration, CommitResult(error=why_not)))
            case actions.CommitWork():
                self._apply_verdict_to_plan()  # we may have died before
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
        begun, name = (
            self._session.state.turn_running,
            turn_file_name(f"{self._session.state.iteration:03d}", self._session.state.turn),
        )
        taken_up = begun and self._environment.was_started(f"agent_{name}")
        if not begun:
            self._turns.warn_read_only_stage()
            self._turns.add_user_messages()
        elif not taken_up:  # nobody was there between its record and its start
            self._work.save_user_changes()
            self._turns.prepare()
        state, agent = (
            self._session.state,
            self._environment.agent_at(step.agent_index, self._session.state.agent if begun else ""),
        )
        before = self._environment.files.read_prompt(f"prompt_{name}") if begun else None
        self._turns.prompt = self._turns.compose_prompt(step.job) if before is None else before
        brief = replace(self._turns.turn_input(f"prompt_{name}", f"agent_{name}", self._turns.prompt), adopt=taken_up)
        if state.agent_session and step.agent_index == state.agent_index:
            brief = replace(brief, session=state.agent_session, session_spent=state.session_spent)
        if not begun:
            digest = hashlib.sha256(self._turns.prompt.encode("utf-8", "surrogatepass")).hexdigest()
            self._turns.prepare()
            argv = agent.argv(brief)
            self._session.record(
                records.TurnBegan(state.iteration, state.turn, digest, argv, agent.name, step.agent_index)
            )
        self._session.record(records.TurnEnded(state.iteration, state.turn, self._turns.ask_agent(agent, brief)))

    def _pause_before_turn(self, pause_s: float) -> bool:
        """Pause; whether a turn is still what comes next."""
        self._session.flush()
        self._environment.clock.sleep(pause_s)
        return isinstance(next_action(self._session.state, self._session.rules, self.conditions()), actions.TakeTurn)

    def _verdict_if_undamaged(self, verdict: Verdict) -> Verdict:
        """The verdict, unless it lets work count although the repository was damaged since the run began."""
        if isinstance(verdict, Passed) or (isinstance(verdict, Retry) and self._session.state.facts.report.passed):
            damage = self._environment.tripwires.repository_damage()
            return Stopped(Breach(HISTORY_REWRITTEN, damage)) if damage else verdict
        return verdict

    def _end(self, outcome: Outcome) -> None:
        asked_later = isinstance(
            self._session.state.phase_before_end, TurnRunning | TurnFinished
        )  # when it is taken up
        if isinstance(outcome, Completed) and (
            damage := self._environment.tripwires.repository_damage()
        ):  # by commits or hooks
            outcome = aborted_outcome(self._session.state, self._session.now(), Breach(HISTORY_REWRITTEN, damage))
        for remark in () if asked_later else self._environment.tripwires.final_warnings():
            self._session.notice(remark)
        if isinstance(outcome, Failed) or (isinstance(outcome, Aborted) and outcome.reason not in RESUMABLE_REASONS):
            for remark in self._environment.child_runs.stop_all():
                self._session.notice(remark)
        self._environment.editable_plan.close()
        self._hooks.run_after_run(outcome)
        metrics = self._metrics(outcome)
        self._session.record(records.RunEnded(outcome, metrics, self._session.state.session))
        self._environment.files.begin_outcome()
        self._session.flush()
        self._environment.files.write_outcome(outcome_with_metrics(outcome_json(outcome), metrics))
        if not asked_later:
            self._environment.tripwires.discard()

    def _fail(self, error: RalphError) -> Outcome:
        """We cannot go on: say why, in the record too as far as it can still be written."""
        outcome: Outcome = failed_outcome(self._session.state, self._session.now(), str(error), error.exit_code)
        if error.reason:
            kept = self._environment.tripwires.history_backup() if error.reason == WORKSPACE_GONE else ""
            outcome = aborted_outcome(
                self._session.state, self._session.now(), Breach(error.reason, f"{error}{kept and f'; {kept}'}")
            )
        try:
            self._end(outcome)
        except RalphError:
            pass  # what stopped us is what the user must hear, not that it could not be written down
        return outcome
