"""The verb: carries values from the first noun to the last. `next_action` decides; the loop does as it is told."""

from __future__ import annotations

import hashlib

from ralphproof import action, record
from ralphproof.agent import Agent, Brief, Turn
from ralphproof.check import Inspection
from ralphproof.chronicle import Chronicle
from ralphproof.claim import Heard, quoted, read
from ralphproof.errors import RalphError, Refused, from_system
from ralphproof.ledger import SCM
from ralphproof.limit import Breach
from ralphproof.plan import Plan
from ralphproof.prompt import COMMIT_MESSAGE, Count, commit_message, compose
from ralphproof.stage import Job, choose
from ralphproof.value import TYPE_CHECKING, assert_never, replace
from ralphproof.verdict import Outcome, result
from ralphproof.workspace import Work
from ralphproof.world import Eyes, World, numbered

if TYPE_CHECKING:
    from ralphproof.value import Json


class Loop(Chronicle):
    """One run, from its first iteration or from wherever its records say that it stands."""

    def __init__(self, run: str, rules: action.Rules, world: World, facts: dict[str, Json] | None = None) -> None:
        super().__init__(run, world)
        self.rules, self.facts = rules, facts or {}
        self._began_s = world.clock.monotonic()
        self._plan = Plan(())
        self._prompt = ""

    def run(self) -> Outcome:
        """Go on until the run is over. However it ends, the ledger says so before this returns."""
        try:
            if not self.state.run:
                self._begin()
            while not isinstance(step := action.next_action(self.state, self.rules, self._now()), action.Finish):
                self._do(step)
            return step.outcome
        except RalphError as error:
            return self._broken(error)
        except OSError as error:
            return self._broken(from_system(error))

    def _begin(self) -> None:
        began = self.world.workspace.begin(self.id)
        if began.id is None:
            raise Refused(f"the project cannot be saved, so no agent may touch it: {began.problem}")
        self._tell(record.RunBegan(self.id, began, self.facts))
        self._flush()

    def _do(self, step: action.Action) -> None:
        match step:
            case action.PickNext(iteration):
                self._plan = self.world.plan.read()
                choice = choose(self._plan, self.rules.pipeline, self.state.passed)
                self._tell(record.Picked(iteration, _light(choice) if isinstance(choice, Job) else choice))
            case action.TakeTurn():
                self._take_turn(step)
            case action.Save():
                self._save()
            case action.Rest(seconds):
                self._flush()
                self.world.rest(seconds)
            case action.TakeAgain(empty, why, until):
                self._tell(record.TurnAgain(self.state.iteration, self.state.turn, empty, why, until))
            case action.Ask(check):
                self._ask(check)
            case action.Conclude(verdict):
                self._tell(record.Judged(self.state.iteration, self.state.turn, verdict, self._now().elapsed_s))
            case action.Keep():
                self._keep()
            case action.End(outcome):
                self._end(outcome)
            case action.Finish():
                pass
            case _:
                assert_never(step)

    def _take_turn(self, step: action.TakeTurn) -> None:
        state, agent = self.state, self.world.agent_at(step.place)
        if step.pause_s:
            self._flush()
            self.world.clock.rest(step.pause_s)
        if self.world.clock.wish() and not state.turning:
            return
        self._prompt = self._composed(step.job)
        name = numbered(f"{state.iteration:03d}", state.turn)
        brief = self._brief(f"prompt_{name}", f"agent_{name}", self._prompt)
        if state.session and step.place == state.place:
            brief = replace(brief, session=state.session, billed=state.billed)
        if not state.turning:
            digest = hashlib.sha256(self._prompt.encode("utf-8", "surrogatepass")).hexdigest()
            if state.turn == 1:  # all turns of an iteration together make its change
                self.world.workspace.mark()
            argv = agent.argv(brief)
            self._tell(record.TurnBegan(state.iteration, state.turn, digest, argv, agent.name, step.place))
        self._tell(record.TurnEnded(state.iteration, state.turn, self._reply(agent, brief)))

    def _save(self) -> None:
        state, workspace = self.state, self.world.workspace
        snapshot = workspace.save(self.id, numbered(str(state.iteration), state.turn, "."))
        change = workspace.change(state.last, snapshot)
        if snapshot.problem:
            self.notice(f"not everything could be saved: {snapshot.problem}")
        self._tell(record.Saved(state.iteration, state.turn, snapshot, change, self._heard(state.reply)))
        self.world.folder.publish(numbered(f"agent_{state.iteration:03d}", state.turn))
        for lookout in self.world.lookouts:
            for message in lookout():
                self.notice(message)

    def _ask(self, check: str) -> None:
        state, facts = self.state, self.state.facts
        if state.begun != check:
            self._tell(record.CheckBegan(state.iteration, state.turn, check))
        self._flush()
        inspection = Inspection(state.iteration, state.turn, facts.turn.text, facts.snapshot, facts.change)
        finding = self.world.checks[check].ask(inspection, Eyes(self.world))
        self._tell(record.CheckEnded(state.iteration, state.turn, finding))

    def _keep(self) -> None:
        """Ask the agent for a message, then commit. What that call changes in the tree is put back."""
        state, world = self.state, self.world
        if state.begun != SCM:
            self._tell(record.ScmBegan(state.iteration))
        name = f"scm_{state.iteration:03d}"
        before = world.workspace.save(self.id, f"{state.iteration}-checked")
        brief = self._brief(f"{name}_prompt", name, COMMIT_MESSAGE, stream=False)
        reply = self._reply(world.agent_at(state.place), brief)
        after = world.workspace.save(self.id, f"{state.iteration}-scm")
        if put_back := world.workspace.restore(before, after):
            self.notice(f"the commit-message call changed files; they were put back: {', '.join(put_back)}")
        message = "" if reply.errored else commit_message(reply.text)
        committed = world.keep(Work(state.iteration, message, state.began, state.last))
        self._tell(record.ScmEnded(state.iteration, committed, reply, message))
        world.folder.publish(name)

    def _end(self, outcome: Outcome) -> None:
        self._tell(record.RunEnded(outcome))
        self._flush()
        self.world.folder.outcome(result(outcome))

    def _broken(self, error: RalphError) -> Outcome:
        """We cannot go on: say why, in the record too as far as it can still be written."""
        outcome: Outcome = action.failed(self.state, self._now(), str(error), error.exit_code)
        if error.reason:
            outcome = action.aborted(self.state, self._now(), Breach(error.reason, str(error)))
        try:
            self._end(outcome)
        except RalphError:
            pass  # what stopped us is what the user must hear, not that it could not be written down
        return outcome

    def _composed(self, job: Job) -> str:
        """The prompt for a job; its task's text, which records leave out, comes from the plan."""
        plan = self._plan if self._plan.tasks else self.world.plan.read()
        task = next((known for known in plan.tasks if known.id == job.task.id), job.task)
        count = Count(self.state.iteration, self.rules.limits.budget.iterations) if self.rules.show_count else None
        return compose(replace(job, task=task), self.state.feedback, count)

    def _brief(self, prompt_name: str, name: str, prompt: str, stream: bool = True) -> Brief:
        rules, most = self.rules, self.rules.limits.budget.iterations
        exports = {"RALPH_RUN_ID": self.id, "RALPH_ITERATION": str(self.state.iteration)}
        exports |= {"RALPH_MAX_ITERATIONS": str(most)} if most is not None else {}
        left_s = (rules.limits.budget.seconds or float("inf")) - self._now().elapsed_s
        timeout_s = max(min(rules.agent_timeout_s, left_s), 0.1)
        return self.world.brief(prompt, prompt_name, name, exports, timeout_s, rules.agent_idle_s, stream)

    def _reply(self, agent: Agent, brief: Brief) -> Turn:
        self._flush()
        most = self.rules.limits.budget.micro_usd
        eyes = Eyes(self.world, None if most is None else most - self.state.spend.micro_usd, brief.idle_s)
        reply = agent.take_turn(brief, self.world.sandbox, eyes)
        if reply.exit.why == "timeout" and brief.timeout_s < self.rules.agent_timeout_s:
            return replace(reply, error="the agent was ended: the run's time is up (limits.maxMinutes)")
        return reply

    def _heard(self, reply: Turn) -> Heard:
        """The claim: a file's, else the message's. Where the turn went wrong, a tag in it is only named."""
        heard = read(reply.text, self._prompt or self._composed(self.state.job))
        if claim := self.world.marker():
            return Heard(claim, heard.uncounted)
        if not reply.errored or heard.claim is None:
            return heard
        return Heard(None, (*heard.uncounted, f"{quoted(heard.claim.word)} was said in a turn that failed"))

    def _now(self) -> action.Moment:
        clock = self.world.clock
        return action.Moment(clock.monotonic() - self._began_s, clock.epoch(), clock.wish())


def _light(job: Job) -> Job:
    """The job as records keep it: a prompt's text is in its own file, its digest in the record."""
    return replace(job, task=replace(job.task, prompt=""))
