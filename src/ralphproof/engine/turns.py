"""Turns of agents: composing the prompt, calling the agent, reading its claim."""

from __future__ import annotations

from ralphproof.base.text import quote_excerpt
from ralphproof.base.value import replace
from ralphproof.engine.agent import Agent, Turn, TurnInput
from ralphproof.engine.claim import Claim, ParsedClaim, parse_claim
from ralphproof.engine.environment import TurnMonitor
from ralphproof.engine.iteration import turn_file_name
from ralphproof.engine.limits import describe_last_error
from ralphproof.engine.plan import Job
from ralphproof.engine.prompt import FIXED_TESTS_NOTE, IterationCount, PreviousIteration, compose_prompt
from ralphproof.engine.records import UserMessageAdded
from ralphproof.engine.session import RunSession, SpendAccount

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
            self._environment.plan.read()
        )  # anew: the prompt file may have been edited since it was picked
        self._notice_edited_prompt(plan.digest)
        task = next((known for known in plan.tasks if known.id == job.task.id), job.task)
        whole = replace(job, task=task, stage=rules.pipeline.find_stage(job.stage.name) or job.stage)
        count = IterationCount(state.attempt, rules.limits.budget.iterations) if rules.show_count else None
        tries = IterationCount(state.history.attempts(job) + 1, whole.stage.max_iterations)
        advice = rules.debug_advice if state.debug_iteration == state.iteration else ""
        if rules.limits.protect_tests and whole.stage.edits and task.prompt.strip():
            advice = f"{FIXED_TESTS_NOTE}\n\n{advice}".strip()
        return compose_prompt(
            whole,
            state.feedback,
            count,
            self._previous_iteration(),
            advice,
            state.user_messages,
            tries,
            self._session.exports(),
        )

    def _notice_edited_prompt(self, digest: str) -> None:
        """Tell that the prompt file is another one than the last prompt was made from."""
        before, during = self._prompt_version
        self._prompt_version = digest, self._session.state.iteration
        if before and before != digest:
            name = self._environment.prompt_file or "the prompt file"
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
            self._session.id, self._session.state.last_user_message
        ):
            self._session.record(UserMessageAdded(self._session.state.iteration, number, text))

    def prepare(self) -> None:
        """What somebody changed since the last turn is no agent's doing, and a refused claim is none any more."""
        self._set_refused_claim_aside()
        self._environment.editable_plan.begin_turn(
            self._session.state.attempt, self._session.state.job, self._session.state.history.context_window
        )
        self.start_watching("children")
        if self._session.state.turn == 1:  # all turns of an iteration together make its change
            self._environment.workspace.mark_iteration_start()

    def _set_refused_claim_aside(self) -> None:
        """A marker whose claim was judged, and did not end the run, would be found after the next turn again."""
        latest = self._session.state.history.latest if self._session.state.history.iterations else None
        claim = latest.claim if latest else None
        if latest is None or claim is None or claim.waiting or not latest.job.stage.claim.accepts(claim):
            return
        for name in self._environment.set_aside_claim(claim.stamp) if claim.stamp else ():
            self._session.notice(f"{claim.word} was refused, and put away as {name}; the agent may claim anew")

    def start_watching(self, name: str) -> None:
        """Set the tripwires. What runs of its own touched meanwhile is put back first: they know no better than it."""
        if self._environment.child_runs.has_activity():
            sprung = self._environment.tripwires.check_and_restore(
                turn_file_name(f"{name}_{self._session.state.iteration:03d}", self._session.state.turn)
            )
            if sprung.touched:
                paths = ", ".join(f"{one.path} ({one.trouble or one.rule})" for one in sprung.touched)
                self._session.notice(f"runs of its own changed what no agent may change; it was put back: {paths}")
        for remark in self._environment.tripwires.start_watching():
            self._session.notice(remark)

    def _previous_iteration(self) -> PreviousIteration | None:
        """What the iteration before did, where prompts are to tell it."""
        if not self._session.rules.show_previous or not self._session.state.history.iterations:
            return None
        last = self._session.state.history.latest
        files = tuple(path for path in last.change.paths if path not in last.change.older)
        commits = self._environment.workspace.log(MAX_COMMITS_SHOWN)
        known = files if last.change.known else None
        return PreviousIteration(
            self._session.state.iteration, known, commits, last.report.visible, describe_last_error(last)
        )

    def turn_input(self, prompt_name: str, name: str, prompt: str, stream: bool = True) -> TurnInput:
        rules, exports = self._session.rules, self._session.exports()
        left_s = (rules.limits.budget.seconds or float("inf")) - self._session.now().elapsed_s
        timeout_s = max(min(rules.agent_timeout_s, left_s), 0.1)
        return self._environment.turn_input(prompt, prompt_name, name, exports, timeout_s, rules.agent_idle_s, stream)

    def ask_agent(self, agent: Agent, brief: TurnInput) -> Turn:
        """The agent's answer. What it cost is booked before anything else follows from it."""
        self._session.flush()
        eyes = TurnMonitor(self._environment, self._account.remaining(brief.call_id), brief.idle_s, call=brief.call_id)
        reply = agent.take_turn(brief, self._environment.sandbox, eyes)
        if reply.exit.why != "unstartable":
            self._account.book(brief.call_id, reply.spent, brief.call_id)
        if reply.exit.why in ("stopped", "killed") and eyes.overspent:
            return replace(reply, error="the agent was ended: it has spent all that it may")
        if reply.exit.why == "timeout" and brief.timeout_s < self._session.rules.agent_timeout_s:
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
        if claim := planned or self._environment.find_claim(self._session.state.attempt):
            return ParsedClaim(claim, heard.uncounted)
        if self._session.rules.wait_code is not None and (reply.exit.why, reply.exit.code) == (
            "exit",
            self._session.rules.wait_code,
        ):
            return ParsedClaim(Claim(f"exit code {reply.exit.code}", waiting=True, source="exit"), heard.uncounted)
        if not reply.errored or heard.claim is None:
            return heard
        return ParsedClaim(
            None, (*heard.uncounted, f"{quote_excerpt(heard.claim.word)} was said in a turn that failed")
        )
