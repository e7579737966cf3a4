"""The session of a running loop: records, clocks, spend and the agent's turns."""

from __future__ import annotations

from collections.abc import Callable

from ralphproof.base.errors import RalphError
from ralphproof.base.text import quote_excerpt
from ralphproof.base.value import replace
from ralphproof.engine.agent import Agent, RetryClock, Spent, Turn, TurnInput
from ralphproof.engine.claim import Claim, ParsedClaim, parse_claim
from ralphproof.engine.environment import LoopEnvironment, TurnMonitor
from ralphproof.engine.limits import Budget, DaySpend, describe_last_error
from ralphproof.engine.next_action import RunConditions, RunRules
from ralphproof.engine.plan import Job, Plan, turn_file_name
from ralphproof.engine.prompt import FIXED_TESTS_NOTE, IterationCount, PreviousIteration, compose_prompt
from ralphproof.engine.records import Noticed, Record, UserMessageAdded
from ralphproof.engine.state import State

EMPTY_PLAN = Plan(())


class RunSession:
    """State, rules, environment and records that all parts of a loop share."""

    def __init__(self, run: str, rules: RunRules, environment: LoopEnvironment, state: State) -> None:
        self.id, self.rules, self.environment, self.state = run, rules, environment, state
        self.plan = EMPTY_PLAN
        self.is_halted: Callable[[], bool] = lambda: False  # checked besides the clock's stop requests
        self.began_s = (
            environment.clock.monotonic() - state.run.elapsed_s
        )  # later by the time for which the run was paused
        self.retry_clock = RetryClock()
        # How the run was resumed:
        self.quiet_since_ns = 0  # since when none of its processes was alive
        self.command_ended_ns = 0  # when the command ended that was open, if it ended by itself
        self.turn_was_open = False
        self._pending: list[Record] = []

    def notice(self, message: str) -> None:
        """Record a notice, which changes no state."""
        self.record(Noticed(self.state.iteration, self.state.notices, message))

    def record(self, record: Record) -> None:
        """Apply a record to the state; `flush` makes it durable."""
        self.state = self.state.after(record)
        self._pending.append(record)

    def flush(self) -> None:
        """Make the records durable, then visible. Called before any effect outside this process."""
        records, self._pending = tuple(self._pending), []
        if records:
            self.environment.ledger.append(self.id, records)
        for record in records:
            self.environment.notify_record(record)

    def exports(self, iterations: int | None = None) -> dict[str, str]:
        """The `RALPH_*` variables for agents, hooks and prompts: in the iteration, or after so many iterations."""
        limit = self.rules.limits.budget.iterations
        number = self.state.attempt if iterations is None else iterations
        exports = {"RALPH_RUN_ID": self.id, "RALPH_ITERATION": str(number)}
        exports |= {"RALPH_MAX_ITERATIONS": str(limit)} if limit is not None else {}
        staged = iterations is None and len(self.rules.pipeline.stages) > 1
        return exports | ({"RALPH_STAGE": self.state.job.stage.name} if staged else {})

    @property
    def is_stopping(self) -> bool:
        """Whether the running command must end."""
        return bool(self.environment.clock.stop_reason()) or self.is_halted()

    def now(self) -> RunConditions:
        """Time and stop requests. `Loop.conditions` adds spend, child runs, pauses and claims."""
        clock, now_s = self.environment.clock, self.environment.clock.monotonic()
        epoch_s = self.retry_clock.now(self.state.agent.services, clock.epoch(), now_s)
        return RunConditions(
            now_s - self.began_s, epoch_s, clock.stop_reason(), open_command_ended=bool(self.command_ended_ns)
        )


class SpendAccount:
    """What the calls of a run cost, and what may still be spent."""

    def __init__(self, session: RunSession) -> None:
        self._session, self._environment = session, session.environment
        self.problem = ""  # why a call could not be booked
        self.step_limit_micro_usd: int | None = None  # on the run's own spend, besides its limits
        self._unbooked: list[tuple[str, Spent, float, str]] = []

    def book(self, call: str, spent: Spent, live_call: str) -> None:
        """Book the cost of a call. `live_call` is the name under which its cost was published while it ran."""
        self._unbooked.append((call, spent, self._environment.clock.epoch(), live_call))
        self.problem = self.book_pending()

    @property
    def is_booked(self) -> bool:
        """Whether all calls are booked."""
        return not self._unbooked

    def book_pending(self) -> str:
        """Book the calls that are not booked yet. Returns why that failed: the work is saved before the run ends."""
        try:
            while self._unbooked:
                self._environment.spend.daily.book(self._session.id, *self._unbooked[0])
                self._environment.spend.shared.record_call(self._session.id, self._unbooked[0][1])
                del self._unbooked[0]
        except RalphError as error:
            return str(error)
        return ""

    def remaining(self, call: str) -> Budget:
        """The budget left for this call, by the limits of run and day; its own spend so far is not deducted."""
        spend = self._session.state.spend.plus(self._environment.child_runs.status().spend)
        remaining = self._session.rules.limits.budget.left(spend, self.day_spend(call))
        if self.step_limit_micro_usd is None:
            return remaining
        step = self.step_limit_micro_usd - self._session.state.spend.micro_usd
        return replace(remaining, micro_usd=step if remaining.micro_usd is None else min(step, remaining.micro_usd))

    def day_spend(self, call: str = "") -> DaySpend:
        shared = self._environment.spend.shared.total()
        if self._session.rules.limits.budget.daily_micro_usd is None:
            return DaySpend(shared=shared)
        if self.problem:
            return DaySpend(0, self.problem, shared)
        return replace(self._environment.spend.daily.day_spend(self._environment.clock.epoch(), call), shared=shared)


# Turns of agents: composing the prompt, calling the agent, reading its claim.


MAX_COMMITS_SHOWN = 5


class AgentTurns:
    """Calls agents for a run."""

    def __init__(self, session: RunSession, account: SpendAccount) -> None:
        self._session, self._account, self._environment = session, account, session.environment
        self.prompt = ""
        self._prompt_version = "", 0  # digest of the prompt file used last, and in which iteration

    def compose_prompt(self, job: Job) -> str:
        """The prompt for a job. Records omit the task's text, so it comes from the plan."""
        state, rules = self._session.state, self._session.rules
        # Read again: the prompt file may have been edited since the job was picked.
        plan = self._session.plan = self._environment.plan.source.read()
        self._notice_edited_prompt(plan.digest)
        task = next((known for known in plan.tasks if known.id == job.task.id), job.task)
        job = replace(job, task=task, stage=rules.pipeline.find_stage(job.stage.name) or job.stage)
        count = IterationCount(state.attempt, rules.limits.budget.iterations) if rules.prompt.show_count else None
        tries = IterationCount(state.history.attempts(job) + 1, job.stage.max_iterations)
        advice = rules.prompt.debug_advice if state.escalation.debug_iteration == state.iteration else ""
        if rules.limits.protect_tests and job.stage.edits and task.prompt.strip():
            advice = f"{FIXED_TESTS_NOTE}\n\n{advice}".strip()
        return compose_prompt(
            job,
            state.feedback,
            count,
            self._previous_iteration(),
            advice,
            state.user.messages,
            tries,
            self._session.exports(),
        )

    def _notice_edited_prompt(self, digest: str) -> None:
        """Notice that the prompt file has changed since the last prompt."""
        previous, iteration = self._prompt_version
        self._prompt_version = digest, self._session.state.iteration
        if previous and previous != digest:
            name = self._environment.work.prompt_file or "the prompt file"
            self._session.notice(f"{name} changed during iteration {iteration}; used from now on")

    def warn_read_only_stage(self) -> None:
        """Warn the user that edits during a read-only stage are set aside."""
        state, past = self._session.state, self._session.state.history.iterations
        if state.job.stage.edits or state.turn > 1 or (past and past[-1].job.key == state.job.key):
            return
        name = state.job.stage.name
        self._session.notice(f"stage {name} only looks: edits to the files while it works are set aside, and kept")

    def add_user_messages(self) -> None:
        """Record the user's messages since the last prompt; the next prompt contains them."""
        for number, text in self._environment.ledger.user_messages(
            self._session.id, self._session.state.user.last_message
        ):
            self._session.record(UserMessageAdded(self._session.state.iteration, number, text))

    def prepare(self) -> None:
        """Prepare a turn: set a refused claim aside, publish the job, set the tripwires, mark the iteration's start."""
        self._set_refused_claim_aside()
        self._environment.plan.editable.begin_turn(
            self._session.state.attempt, self._session.state.job, self._session.state.history.context_window
        )
        self.start_watching("children")
        if self._session.state.turn == 1:  # the change of an iteration is that of all its turns
            self._environment.work.workspace.mark_iteration_start()

    def _set_refused_claim_aside(self) -> None:
        """Rename a marker whose claim was judged: it would count again after the next turn."""
        latest = self._session.state.history.latest if self._session.state.history.iterations else None
        claim = latest.claim if latest else None
        if latest is None or claim is None or claim.waiting or not latest.job.stage.claim.accepts(claim):
            return
        for name in self._environment.plan.set_aside_claim(claim.stamp) if claim.stamp else ():
            self._session.notice(f"{claim.word} was refused, and put away as {name}; the agent may claim anew")

    def start_watching(self, name: str) -> None:
        """Set the tripwires. Changes by child runs to watched paths are reverted first."""
        if self._environment.child_runs.has_activity():
            report = self._environment.work.tripwires.check_and_restore(
                turn_file_name(f"{name}_{self._session.state.iteration:03d}", self._session.state.turn)
            )
            if report.touched:
                paths = ", ".join(f"{touch.path} ({touch.trouble or touch.rule})" for touch in report.touched)
                self._session.notice(f"runs of its own changed what no agent may change; it was put back: {paths}")
        for remark in self._environment.work.tripwires.start_watching():
            self._session.notice(remark)

    def _previous_iteration(self) -> PreviousIteration | None:
        """The summary of the previous iteration, where the prompt should contain one."""
        if not self._session.rules.prompt.show_previous or not self._session.state.history.iterations:
            return None
        last = self._session.state.history.latest
        files = last.change.agent_paths if last.change.known else None
        commits = self._environment.work.workspace.log(MAX_COMMITS_SHOWN)
        return PreviousIteration(
            self._session.state.iteration, files, commits, last.report.visible, describe_last_error(last)
        )

    def turn_input(self, prompt_name: str, name: str, prompt: str, stream: bool = True) -> TurnInput:
        """Write the prompt, and determine the paths of this turn's files."""
        rules, environment, files = self._session.rules, self._environment, self._environment.files
        env = dict(environment.agents.env) | self._session.exports()
        remaining_s = (rules.limits.budget.seconds or float("inf")) - self._session.now().elapsed_s
        timeout_s = max(min(rules.agent.timeout_s, remaining_s), 0.1)
        return TurnInput(
            prompt, files.write_prompt(prompt_name, prompt), environment.work.workspace.root, tuple(env.items()),
            files.log_base(name), files.turn_file(name), f"{files.run}/{name}", timeout_s, rules.agent.idle_s, stream,
            hooks=environment.agents.hooks if stream else (),
            allowed_commands=environment.agents.allowed_commands if stream else (),
        )  # fmt: skip

    def ask_agent(self, agent: Agent, turn_input: TurnInput) -> Turn:
        """Run the agent for a turn. Its cost is booked before anything else is done with the reply."""
        self._session.flush()
        call = turn_input.call_id
        monitor = TurnMonitor(self._environment, self._account.remaining(call), turn_input.idle_s, call=call)
        reply = agent.take_turn(turn_input, self._environment.agents.sandbox, monitor)
        if reply.exit.why != "unstartable":
            self._account.book(call, reply.spent, call)
        if reply.exit.why in ("stopped", "killed") and monitor.overspent:
            return replace(reply, error="the agent was ended: it has spent all that it may")
        if reply.exit.why == "timeout" and turn_input.timeout_s < self._session.rules.agent.timeout_s:
            return replace(reply, error="the agent was ended: the run's time is up (limits.maxMinutes)")
        return reply

    def find_claim(self, reply: Turn, planned: Claim | None = None) -> ParsedClaim:
        """The claim: the plan's, a file's, else the message's. A tag in the message of a failed turn does not count.

        Nor does an approval in the plan by a failed turn of a review stage: the review may be incomplete.
        """
        state, wait_code = self._session.state, self._session.rules.agent.wait_code
        stage = state.job.stage
        parsed = parse_claim(reply.text, self.prompt or self.compose_prompt(state.job))
        if planned and reply.errored and not stage.edits and stage.claim.accepts(planned):
            return _failed_turn_claim(planned, parsed)
        if claim := planned or self._environment.plan.find_claim(state.attempt):
            return ParsedClaim(claim, parsed.uncounted)
        if wait_code is not None and reply.exit.why == "exit" and reply.exit.code == wait_code:
            return ParsedClaim(Claim(f"exit code {wait_code}", waiting=True, source="exit"), parsed.uncounted)
        if not reply.errored or parsed.claim is None:
            return parsed
        return _failed_turn_claim(parsed.claim, parsed)


def _failed_turn_claim(claim: Claim, parsed: ParsedClaim) -> ParsedClaim:
    """No claim, with the remark that this one was made in a failed turn."""
    return ParsedClaim(None, (*parsed.uncounted, f"{quote_excerpt(claim.word)} was said in a turn that failed"))
