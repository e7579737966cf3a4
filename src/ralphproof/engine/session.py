"""The session of a running loop: records, clocks, spend and the agent's turns."""

from __future__ import annotations

from ralphproof.base.errors import RalphError
from ralphproof.base.text import quote_excerpt
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.actions import RunConditions, RunRules
from ralphproof.engine.agent import Agent, Turn, TurnInput
from ralphproof.engine.budget import DaySpend, RemainingBudget
from ralphproof.engine.claim import Claim, ParsedClaim, parse_claim
from ralphproof.engine.environment import LoopEnvironment, TurnMonitor
from ralphproof.engine.events import Spent
from ralphproof.engine.iteration import turn_file_name
from ralphproof.engine.limits import describe_last_error
from ralphproof.engine.plan import Job, Plan
from ralphproof.engine.prompt import FIXED_TESTS_NOTE, IterationCount, PreviousIteration, compose_prompt
from ralphproof.engine.records import Noticed, Record, UserMessageAdded
from ralphproof.engine.retry import RetryClock
from ralphproof.engine.state import State

if TYPE_CHECKING:
    from collections.abc import Callable


EMPTY_PLAN = Plan(())


class RunSession:
    """What all parts of a loop share."""

    def __init__(self, run: str, rules: RunRules, environment: LoopEnvironment, state: State) -> None:
        self.id, self.rules, self.environment, self.state = run, rules, environment, state
        self.plan = EMPTY_PLAN
        self.is_halted: Callable[[], bool] = lambda: False  # asked beside the signals
        self.began_s = environment.clock.monotonic() - state.run.elapsed_s  # less the time for which the run was paused
        self.retry_clock = RetryClock()
        # How the run was resumed:
        self.quiet_since_ns = 0  # since when none of its processes was alive
        self.command_ended_ns = 0  # when the command ended that was open, if it ended by itself
        self.turn_was_open = False
        self._pending: list[Record] = []

    def notice(self, message: str) -> None:
        """Record something worth knowing that changes nothing."""
        self.record(Noticed(self.state.iteration, self.state.notices, message))

    def record(self, record: Record) -> None:
        """Apply a record to the state; `flush` makes it durable."""
        self.state = self.state.after(record)
        self._pending.append(record)

    def flush(self) -> None:
        """Make the records durable, then visible. Called before anything outside of this process is touched."""
        records, self._pending = tuple(self._pending), []
        if records:
            self.environment.ledger.append(self.id, records)
        for record in records:
            self.environment.notify_record(record)

    def exports(self, iterations: int | None = None) -> dict[str, str]:
        """The `RALPH_*` variables for agents, hooks and prompts: in the iteration, or after so many iterations."""
        most = self.rules.limits.budget.iterations
        number = self.state.attempt if iterations is None else iterations
        exports = {"RALPH_RUN_ID": self.id, "RALPH_ITERATION": str(number)}
        exports |= {"RALPH_MAX_ITERATIONS": str(most)} if most is not None else {}
        staged = iterations is None and len(self.rules.pipeline.stages) > 1
        return exports | ({"RALPH_STAGE": self.state.job.stage.name} if staged else {})

    @property
    def is_stopping(self) -> bool:
        """Whether the command that runs is to be ended."""
        return bool(self.environment.clock.stop_reason()) or self.is_halted()

    def now(self) -> RunConditions:
        """Time and signals. `Loop.conditions` adds what is asked of others."""
        clock, now_s = self.environment.clock, self.environment.clock.monotonic()
        epoch_s = self.retry_clock.now(self.state.agent.services, clock.epoch(), now_s)
        return RunConditions(
            now_s - self.began_s, epoch_s, clock.stop_reason(), open_command_ended=bool(self.command_ended_ns)
        )


class SpendAccount:
    """What the calls of a run cost, and what may still be spent."""

    def __init__(self, session: RunSession) -> None:
        self._session, self._environment = session, session.environment
        self.problem = ""  # why something that was spent could not be counted
        self.step_limit_micro_usd: int | None = None  # of the run's own spend; beside the limits of the run
        self._unbooked: list[tuple[str, Spent, float, str]] = []

    def book(self, call: str, spent: Spent, live_call: str) -> None:
        """Count what a call has cost. `live_call` is the name by which its running cost was reported."""
        self._unbooked.append((call, spent, self._environment.clock.epoch(), live_call))
        self.problem = self.book_pending()

    @property
    def is_booked(self) -> bool:
        """Whether everything that was spent is counted."""
        return not self._unbooked

    def book_pending(self) -> str:
        """Count what is not counted yet. Returns why that failed: the work is saved before the run ends over it."""
        try:
            while self._unbooked:
                self._environment.spend.daily.book(self._session.id, *self._unbooked[0])
                self._environment.spend.shared.record_call(self._session.id, self._unbooked[0][1])
                del self._unbooked[0]
        except RalphError as error:
            return str(error)
        return ""

    def remaining(self, call: str) -> RemainingBudget:
        """What may still be spent, by this run and by all of today's. What a call has spent already is part of that."""
        spend = self._session.state.spend.plus(self._environment.child_runs.status().spend)
        left = RemainingBudget.of(self._session.rules.limits.budget, spend, self.day_spend(call))
        if self.step_limit_micro_usd is None:
            return left
        own = self.step_limit_micro_usd - self._session.state.spend.micro_usd
        return replace(left, micro_usd=own if left.micro_usd is None else min(own, left.micro_usd))

    def day_spend(self, call: str = "") -> DaySpend:
        together = self._environment.spend.shared.total()
        if self._session.rules.limits.budget.daily_micro_usd is None:
            return DaySpend(shared=together)
        day = (
            DaySpend(0, self.problem)
            if self.problem
            else self._environment.spend.daily.day_spend(self._environment.clock.epoch(), call)
        )
        return replace(day, shared=together)


# Turns of agents: composing the prompt, calling the agent, reading its claim.


MAX_COMMITS_SHOWN = 5


class AgentTurns:
    """Calls agents for a run."""

    def __init__(self, session: RunSession, account: SpendAccount) -> None:
        self._session, self._account, self._environment = session, account, session.environment
        self.prompt = ""
        self._prompt_version = "", 0  # digest of the prompt file behind the last prompt, and its iteration

    def compose_prompt(self, job: Job) -> str:
        """The prompt for a job; its task's text, which records leave out, comes from the plan."""
        state, rules = self._session.state, self._session.rules
        plan = self._session.plan = (
            self._environment.plan.source.read()
        )  # anew: the prompt file may have been edited since it was picked
        self._notice_edited_prompt(plan.digest)
        task = next((known for known in plan.tasks if known.id == job.task.id), job.task)
        whole = replace(job, task=task, stage=rules.pipeline.find_stage(job.stage.name) or job.stage)
        count = IterationCount(state.attempt, rules.limits.budget.iterations) if rules.prompt.show_count else None
        tries = IterationCount(state.history.attempts(job) + 1, whole.stage.max_iterations)
        advice = rules.prompt.debug_advice if state.escalation.debug_iteration == state.iteration else ""
        if rules.limits.protect_tests and whole.stage.edits and task.prompt.strip():
            advice = f"{FIXED_TESTS_NOTE}\n\n{advice}".strip()
        return compose_prompt(
            whole,
            state.feedback,
            count,
            self._previous_iteration(),
            advice,
            state.user.messages,
            tries,
            self._session.exports(),
        )

    def _notice_edited_prompt(self, digest: str) -> None:
        """Tell that the prompt file is another one than the last prompt was made from."""
        before, during = self._prompt_version
        self._prompt_version = digest, self._session.state.iteration
        if before and before != digest:
            name = self._environment.work.prompt_file or "the prompt file"
            self._session.notice(f"{name} changed during iteration {during}; used from now on")

    def warn_read_only_stage(self) -> None:
        """Warn whoever edits files beside a stage that is not to change any."""
        state, past = self._session.state, self._session.state.history.iterations
        if state.job.stage.edits or state.turn > 1 or (past and past[-1].job.key == state.job.key):
            return
        name = state.job.stage.name
        self._session.notice(f"stage {name} only looks: edits to the files while it works are set aside, and kept")

    def add_user_messages(self) -> None:
        """What the user said since the last prompt goes into this one."""
        for number, text in self._environment.ledger.user_messages(
            self._session.id, self._session.state.user.last_message
        ):
            self._session.record(UserMessageAdded(self._session.state.iteration, number, text))

    def prepare(self) -> None:
        """What somebody changed since the last turn is no agent's doing, and a refused claim is none any more."""
        self._set_refused_claim_aside()
        self._environment.plan.editable.begin_turn(
            self._session.state.attempt, self._session.state.job, self._session.state.history.context_window
        )
        self.start_watching("children")
        if self._session.state.turn == 1:  # all turns of an iteration together make its change
            self._environment.work.workspace.mark_iteration_start()

    def _set_refused_claim_aside(self) -> None:
        """A marker whose claim was judged, and did not end the run, would be found after the next turn again."""
        latest = self._session.state.history.latest if self._session.state.history.iterations else None
        claim = latest.claim if latest else None
        if latest is None or claim is None or claim.waiting or not latest.job.stage.claim.accepts(claim):
            return
        for name in self._environment.plan.set_aside_claim(claim.stamp) if claim.stamp else ():
            self._session.notice(f"{claim.word} was refused, and put away as {name}; the agent may claim anew")

    def start_watching(self, name: str) -> None:
        """Set the tripwires. What runs of its own touched meanwhile is put back first: they know no better than it."""
        if self._environment.child_runs.has_activity():
            sprung = self._environment.work.tripwires.check_and_restore(
                turn_file_name(f"{name}_{self._session.state.iteration:03d}", self._session.state.turn)
            )
            if sprung.touched:
                paths = ", ".join(f"{one.path} ({one.trouble or one.rule})" for one in sprung.touched)
                self._session.notice(f"runs of its own changed what no agent may change; it was put back: {paths}")
        for remark in self._environment.work.tripwires.start_watching():
            self._session.notice(remark)

    def _previous_iteration(self) -> PreviousIteration | None:
        """What the iteration before did, where prompts are to tell it."""
        if not self._session.rules.prompt.show_previous or not self._session.state.history.iterations:
            return None
        last = self._session.state.history.latest
        files = tuple(path for path in last.change.paths if path not in last.change.older)
        commits = self._environment.work.workspace.log(MAX_COMMITS_SHOWN)
        known = files if last.change.known else None
        return PreviousIteration(
            self._session.state.iteration, known, commits, last.report.visible, describe_last_error(last)
        )

    def turn_input(self, prompt_name: str, name: str, prompt: str, stream: bool = True) -> TurnInput:
        rules, exports = self._session.rules, self._session.exports()
        left_s = (rules.limits.budget.seconds or float("inf")) - self._session.now().elapsed_s
        timeout_s = max(min(rules.agent.timeout_s, left_s), 0.1)
        return self._environment.turn_input(prompt, prompt_name, name, exports, timeout_s, rules.agent.idle_s, stream)

    def ask_agent(self, agent: Agent, brief: TurnInput) -> Turn:
        """The agent's answer. What it cost is booked before anything else follows from it."""
        self._session.flush()
        eyes = TurnMonitor(self._environment, self._account.remaining(brief.call_id), brief.idle_s, call=brief.call_id)
        reply = agent.take_turn(brief, self._environment.agents.sandbox, eyes)
        if reply.exit.why != "unstartable":
            self._account.book(brief.call_id, reply.spent, brief.call_id)
        if reply.exit.why in ("stopped", "killed") and eyes.overspent:
            return replace(reply, error="the agent was ended: it has spent all that it may")
        if reply.exit.why == "timeout" and brief.timeout_s < self._session.rules.agent.timeout_s:
            return replace(reply, error="the agent was ended: the run's time is up (limits.maxMinutes)")
        return reply

    def find_claim(self, reply: Turn, planned: Claim | None = None) -> ParsedClaim:
        """The claim: the plan's, a file's, else the message's. Where the turn went wrong, a tag in it is only named.

        So is the approval of a look that broke off: nobody knows what it had not seen yet.
        """
        heard, stage = (
            parse_claim(reply.text, self.prompt or self.compose_prompt(self._session.state.job)),
            self._session.state.job.stage,
        )
        if planned and reply.errored and not stage.edits and stage.claim.accepts(planned):
            return ParsedClaim(
                None, (*heard.uncounted, f"{quote_excerpt(planned.word)} was said in a turn that failed")
            )
        if claim := planned or self._environment.plan.find_claim(self._session.state.attempt):
            return ParsedClaim(claim, heard.uncounted)
        if self._session.rules.agent.wait_code is not None and (reply.exit.why, reply.exit.code) == (
            "exit",
            self._session.rules.agent.wait_code,
        ):
            return ParsedClaim(Claim(f"exit code {reply.exit.code}", waiting=True, source="exit"), heard.uncounted)
        if not reply.errored or heard.claim is None:
            return heard
        return ParsedClaim(
            None, (*heard.uncounted, f"{quote_excerpt(heard.claim.word)} was said in a turn that failed")
        )
