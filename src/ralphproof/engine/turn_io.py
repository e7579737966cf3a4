"""Calls to agents and checks: prompts, replies, findings, and the records and spend that follow."""

from __future__ import annotations

from ralphproof.base.errors import RalphError
from ralphproof.base.text import quote_excerpt
from ralphproof.base.value import replace
from ralphproof.engine.actions import RunConditions, RunRules
from ralphproof.engine.agent import Agent, Turn, TurnInput
from ralphproof.engine.budget import DaySpend, RemainingBudget
from ralphproof.engine.check import Check, Finding, Inspection
from ralphproof.engine.claim import Claim, ParsedClaim, parse_claim
from ralphproof.engine.environment import LoopEnvironment, TurnMonitor
from ralphproof.engine.events import Spent
from ralphproof.engine.iteration import turn_file_name
from ralphproof.engine.limits import describe_last_error
from ralphproof.engine.metrics import Metrics
from ralphproof.engine.outcome import Outcome
from ralphproof.engine.plan import Job, Plan
from ralphproof.engine.prompt import FIXED_TESTS_NOTE, IterationCount, PreviousIteration, compose_prompt
from ralphproof.engine.records import CheckBegan, CheckEnded, CheckStopped, Noticed, Record, UserMessageAdded
from ralphproof.engine.retry import RetryClock
from ralphproof.engine.state import Checking, IterationJudged, JobPicked, State
from ralphproof.engine.workspace import MAX_NAMED_PATHS, Change

# A run as it is told: into the state at once, into the ledger before anything else happens, then to observers.


class RecordWriter:
    """Where a run stands, and the records of it that are not durable yet."""

    def __init__(self, run: str, world: LoopEnvironment, state: State) -> None:
        self.id, self.environment, self.state = run, world, state
        self._pending: list[Record] = []

    def notice(self, message: str) -> None:
        """Record something worth knowing that changes nothing."""
        self._tell(Noticed(self.state.iteration, self.state.notices, message))

    def _tell(self, record: Record) -> None:
        self.state = self.state.after(record)
        self._pending.append(record)

    def _flush(self) -> None:
        """Make what was told durable, then visible. Called before anything else touches the world."""
        records, self._pending = tuple(self._pending), []
        if records:
            self.environment.ledger.append(self.id, records)
        for record in records:
            self.environment.notify_record(record)


# How an agent is asked: the prompt, what it is handed, and what it answers; and how checks are.


MAX_COMMITS_SHOWN = 5
EMPTY_PLAN = Plan(())


def judge_call_id(run: str, iteration: int, turn: int, round: int, check: str, stopped: int | None) -> str:
    """The name by which a judge's calls are booked, once; `stopped` is the session that ended before it answered."""
    mark = f"{run}/judge_{iteration:03d}_{turn}_{round}_{check}"
    return mark if stopped is None else f"{mark}-stopped{stopped}"


def judging_call_id(run: str) -> str:
    """The name by which is told what judges have cost that have not answered, all of them together."""
    return f"{run}/judging"


class TurnRunner(RecordWriter):
    """The part of a loop that speaks to agents."""

    def __init__(self, run: str, rules: RunRules, world: LoopEnvironment, state: State) -> None:
        super().__init__(run, world, state)
        self.rules = rules
        self._began_s = world.clock.monotonic() - state.elapsed_s  # less what was rested on somebody's wish
        self._waits = RetryClock()
        self._plan = EMPTY_PLAN
        self._prompt = ""
        self._edition = "", 0  # the digest of the prompt file that the last prompt was made from, and its iteration
        self._doubt = ""  # why what was spent could not be booked
        self._unbooked: list[tuple[str, Spent, float, str]] = []
        self._quiet_ns = 0  # since when nothing of the run was at work when it was taken up
        self._ended_ns = 0  # when the command ended that was open when the run was taken up, if it did by itself
        self._unseen = False  # a turn was open when the run was taken up

    def _composed(self, job: Job) -> str:
        """The prompt for a job; its task's text, which records leave out, comes from the plan."""
        state, rules = self.state, self.rules
        plan = self._plan = (
            self.environment.plan.read()
        )  # anew: the prompt file may have been edited since it was picked
        self._tell_edited(plan.digest)
        task = next((known for known in plan.tasks if known.id == job.task.id), job.task)
        whole = replace(job, task=task, stage=rules.pipeline.find_stage(job.stage.name) or job.stage)
        count = IterationCount(state.attempt, rules.limits.budget.iterations) if rules.show_count else None
        tries = IterationCount(state.history.attempts(job) + 1, whole.stage.max_iterations)
        advice = rules.debug_advice if state.debug_iteration == state.iteration else ""
        if rules.limits.protect_tests and whole.stage.edits and task.prompt.strip():
            advice = f"{FIXED_TESTS_NOTE}\n\n{advice}".strip()
        return compose_prompt(
            whole, state.feedback, count, self._context(), advice, state.user_messages, tries, self._exports()
        )

    def _tell_edited(self, digest: str) -> None:
        """Tell that the prompt file is another one than the last prompt was made from."""
        before, during = self._edition
        self._edition = digest, self.state.iteration
        if before and before != digest:
            name = self.environment.prompt_file or "the prompt file"
            self.notice(f"{name} changed during iteration {during}; used from now on")

    def _tell_looking(self) -> None:
        """Warn whoever edits files beside a stage that is not to change any."""
        state, past = self.state, self.state.history.iterations
        if state.job.stage.edits or state.turn > 1 or (past and past[-1].job.key == state.job.key):
            return
        name = state.job.stage.name
        self.notice(f"stage {name} only looks: edits to the files while it works are set aside, and kept")

    def _take_words(self) -> None:
        """What the user said since the last prompt goes into this one."""
        for number, text in self.environment.ledger.user_messages(self.id, self.state.last_user_message):
            self._tell(UserMessageAdded(self.state.iteration, number, text))

    def _mark(self) -> None:
        """What somebody changed since the last turn is no agent's doing, and a refused claim is none any more."""
        self._put_refused_away()
        self.environment.editable_plan.begin_turn(self.state.attempt, self.state.job, self.state.history.context_window)
        self._arm("children")
        if self.state.turn == 1:  # all turns of an iteration together make its change
            self.environment.workspace.mark_iteration_start()

    def _put_refused_away(self) -> None:
        """A marker whose claim was judged, and did not end the run, would be found after the next turn again."""
        latest = self.state.history.latest if self.state.history.iterations else None
        claim = latest.claim if latest else None
        if latest is None or claim is None or claim.waiting or not latest.job.stage.claim.accepts(claim):
            return
        for name in self.environment.set_aside_claim(claim.stamp) if claim.stamp else ():
            self.notice(f"{claim.word} was refused, and put away as {name}; the agent may claim anew")

    def _arm(self, name: str) -> None:
        """Set the tripwires. What runs of its own touched meanwhile is put back first: they know no better than it."""
        if self.environment.child_runs.has_activity():
            sprung = self.environment.tripwires.check_and_restore(
                turn_file_name(f"{name}_{self.state.iteration:03d}", self.state.turn)
            )
            if sprung.touched:
                paths = ", ".join(f"{one.path} ({one.trouble or one.rule})" for one in sprung.touched)
                self.notice(f"runs of its own changed what no agent may change; it was put back: {paths}")
        for remark in self.environment.tripwires.start_watching():
            self.notice(remark)

    def _context(self) -> PreviousIteration | None:
        """What the iteration before did, where prompts are to tell it."""
        if not self.rules.show_previous or not self.state.history.iterations:
            return None
        last = self.state.history.latest
        files = tuple(path for path in last.change.paths if path not in last.change.older)
        commits = self.environment.workspace.log(MAX_COMMITS_SHOWN)
        known = files if last.change.known else None
        return PreviousIteration(self.state.iteration, known, commits, last.report.visible, describe_last_error(last))

    def _exports(self, iterations: int | None = None) -> dict[str, str]:
        """What agents, hooks, and prompts that ask for it are told of where the run stands: in an iteration, or after
        so many of them.
        """
        most = self.rules.limits.budget.iterations
        number = self.state.attempt if iterations is None else iterations
        exports = {"RALPH_RUN_ID": self.id, "RALPH_ITERATION": str(number)}
        exports |= {"RALPH_MAX_ITERATIONS": str(most)} if most is not None else {}
        staged = iterations is None and len(self.rules.pipeline.stages) > 1
        return exports | ({"RALPH_STAGE": self.state.job.stage.name} if staged else {})

    def _brief(self, prompt_name: str, name: str, prompt: str, stream: bool = True) -> TurnInput:
        rules, exports = self.rules, self._exports()
        left_s = (rules.limits.budget.seconds or float("inf")) - self._now().elapsed_s
        timeout_s = max(min(rules.agent_timeout_s, left_s), 0.1)
        return self.environment.turn_input(prompt, prompt_name, name, exports, timeout_s, rules.agent_idle_s, stream)

    def _reply(self, agent: Agent, brief: TurnInput) -> Turn:
        """The agent's answer. What it cost is booked before anything else follows from it."""
        self._flush()
        eyes = TurnMonitor(self.environment, self._left(brief.call_id), brief.idle_s, call=brief.call_id)
        reply = agent.take_turn(brief, self.environment.sandbox, eyes)
        if reply.exit.why != "unstartable":
            self._unbooked.append((brief.call_id, reply.spent, self.environment.clock.epoch(), brief.call_id))
            self._doubt = self._book()
        if reply.exit.why in ("stopped", "killed") and eyes.overspent:
            return replace(reply, error="the agent was ended: it has spent all that it may")
        if reply.exit.why == "timeout" and brief.timeout_s < self.rules.agent_timeout_s:
            return replace(reply, error="the agent was ended: the run's time is up (limits.maxMinutes)")
        return reply

    def _book(self) -> str:
        """Count what was spent. Where that fails, why: the agent's work must be saved before the run ends over it."""
        try:
            while self._unbooked:
                self.environment.daily_spend.book(self.id, *self._unbooked[0])
                self.environment.shared_budget.record_call(self.id, self._unbooked[0][1])
                del self._unbooked[0]
        except RalphError as error:
            return str(error)
        return ""

    def _reckoned(self, outcome: Outcome) -> Metrics:
        """The run in figures. What could not be booked in time is tried once more."""
        from ralphproof.engine.run_metrics import compute_run_metrics

        self._book()
        own = replace(outcome, spend=self.state.bill)  # children have figures of their own
        metrics = compute_run_metrics(
            self.state, own, self.environment.clock.epoch(), self.environment.editable_plan.story_reviews()
        )
        return replace(metrics, saved_micro_usd=self.environment.model_savings(self.state.history))

    def _left(self, call: str) -> RemainingBudget:
        """What may still be spent, by this run and by all of today's. What a call has spent already is part of that."""
        spend = self.state.spend.plus(self.environment.child_runs.status().spend)
        return RemainingBudget.of(self.rules.limits.budget, spend, self._day(call))

    def _ask(self, checks: tuple[str, ...]) -> None:
        """Ask checks about this iteration's work, or, before the first turn, about the tree as the run found it.

        What another one has found out about the same tree is not asked again.
        """
        looked, world = self._inspection(), self.environment
        for check in checks:
            if check not in self.state.open_steps:
                self._tell(CheckBegan(looked.iteration, looked.turn, check, looked.round))
        known = {check: finding for check in checks if (finding := self._known(world.checks[check]))}
        self._flush()
        open_ones = tuple(world.checks[check] for check in checks if check not in known)
        judging = bool(open_ones) and not set(checks).isdisjoint(self.state.job.stage.judges)
        answers = (
            self._judgements(open_ones, looked) if judging else world.run_checks(open_ones, looked, TurnMonitor(world))
        )
        for finding in (*known.values(), *answers):
            self._found(looked, finding)
        if judging and not self._unbooked:
            self._settle_judges()

    def _settle_judges(self) -> None:
        try:
            self.environment.daily_spend.close_call(self.id, judging_call_id(self.id))
        except RalphError:
            pass  # a little more than they cost counts, until they are next asked

    def _judgements(self, judges: tuple[Check, ...], looked: Inspection) -> tuple[Finding, ...]:
        """What judges answer, with no more money and time than the run has left.

        Where the tree is not as it was when they were asked, their answer is of another one than is there now.
        """
        world, seconds, call = self.environment, self.rules.limits.budget.seconds, judging_call_id(self.id)
        left = self._left(call)
        eyes = TurnMonitor(world, left, until_s=float("inf") if seconds is None else self._began_s + seconds, call=call)
        name = f"{looked.iteration}-judged"
        before = world.workspace.save(self.id, name)
        found = world.run_checks(judges, replace(looked, max_micro_usd=left.micro_usd), eyes)
        after = world.workspace.save(self.id, name)
        moved = world.workspace.change(before, after).paths if before.id and after.id else ()
        if not moved:
            return found
        named = ", ".join(moved[:MAX_NAMED_PATHS])
        self.notice(f"files changed while the work was judged, so the judgement does not count: {named}")
        why = f"files that changed meanwhile: {named}"
        return tuple(
            one if one.why == "stopped" else replace(one, passed=False, errored=False, why=why) for one in found
        )

    def _found(self, looked: Inspection, finding: Finding) -> None:
        """Tell what a check found. One that was stopped on somebody's wish said nothing of the work, but may cost."""
        place, session, spent = (looked.iteration, looked.turn), self.state.session, finding.spent
        stopped = finding.why == "stopped" and self._ending
        if spent is not None:
            mark = judge_call_id(self.id, *place, looked.round, finding.check, session if stopped else None)
            self._unbooked.append((mark, spent, self.environment.clock.epoch(), judging_call_id(self.id)))
            self._doubt = self._book()
        if not stopped:
            self._tell(CheckEnded(*place, finding, looked.round))
        elif spent is not None:
            self._tell(CheckStopped(*place, finding.check, spent, session))

    @property
    def _ending(self) -> bool:
        """Whether somebody wants that what runs ends."""
        return bool(self.environment.clock.stop_reason())

    def _inspection(self) -> Inspection:
        state = self.state
        if isinstance(state.phase, JobPicked):
            return Inspection(0, 1, "", state.current_tree, Change(), state.round, None, state.current_tree)
        facts = state.facts
        return Inspection(
            state.iteration, state.turn, facts.turn.text, facts.snapshot, facts.change, state.round, facts.claim,
            self.environment.task_base or state.run_start,
        )  # fmt: skip

    def _known(self, check: Check) -> Finding | None:
        """What another check of the same key has found in this tree."""
        key, phase = getattr(check, "key", ""), self.state.phase
        report = self.state.baseline if isinstance(phase, JobPicked) else self.state.facts.report
        found = next((finding for finding in report.findings if key and finding.key == key), None)
        return replace(found, check=check.name, seconds=0.0, runs=0, spent=None) if found else None

    def _heard(self, reply: Turn, planned: Claim | None = None) -> ParsedClaim:
        """The claim: the plan's, a file's, else the message's. Where the turn went wrong, a tag in it is only named.

        So is the approval of a look that broke off: nobody knows what it had not seen yet.
        """
        heard, stage = parse_claim(reply.text, self._prompt or self._composed(self.state.job)), self.state.job.stage
        if planned and reply.errored and not stage.edits and stage.claim.accepts(planned):
            return ParsedClaim(
                None, (*heard.uncounted, f"{quote_excerpt(planned.word)} was said in a turn that failed")
            )
        if claim := planned or self.environment.find_claim(self.state.attempt):
            return ParsedClaim(claim, heard.uncounted)
        if self.rules.wait_code is not None and (reply.exit.why, reply.exit.code) == ("exit", self.rules.wait_code):
            return ParsedClaim(Claim(f"exit code {reply.exit.code}", waiting=True, source="exit"), heard.uncounted)
        if not reply.errored or heard.claim is None:
            return heard
        return ParsedClaim(
            None, (*heard.uncounted, f"{quote_excerpt(heard.claim.word)} was said in a turn that failed")
        )

    def _now(self) -> RunConditions:
        clock, now_s = self.environment.clock, self.environment.clock.monotonic()
        epoch_s = self._waits.now(self.state.services, clock.epoch(), now_s)
        return RunConditions(
            now_s - self._began_s, epoch_s, clock.stop_reason(), open_command_ended=bool(self._ended_ns)
        )

    def conditions(self) -> RunConditions:
        """The present, with whatever else the next step may depend on."""
        now, phase = self._now(), self.state.phase
        if not isinstance(phase, JobPicked | Checking | IterationJudged):
            return now
        now = replace(now, day=self._day(), children=self.environment.child_runs.status())
        if not isinstance(phase, JobPicked):
            return now
        return replace(now, paused=self.environment.clock.paused(), claim=self.environment.find_claim(0))

    def _day(self, call: str = "") -> DaySpend:
        together = self.environment.shared_budget.total()
        if self.rules.limits.budget.daily_micro_usd is None:
            return DaySpend(shared=together)
        day = (
            DaySpend(0, self._doubt)
            if self._doubt
            else self.environment.daily_spend.day_spend(self.environment.clock.epoch(), call)
        )
        return replace(day, shared=together)
