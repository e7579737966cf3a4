"""The verb: carries values from the first noun to the last. `next_action` decides; the loop does as it is told."""

from __future__ import annotations

import hashlib

from ralphproof import action, record
from ralphproof.asking import Asking
from ralphproof.check import Inspection
from ralphproof.decision import aborted, failed, next_action
from ralphproof.errors import RalphError, Refused, from_system
from ralphproof.ledger import SCM
from ralphproof.limit import Breach
from ralphproof.phase import Picking
from ralphproof.prompt import COMMIT_MESSAGE, commit_message
from ralphproof.stage import Job, choose
from ralphproof.value import TYPE_CHECKING, assert_never, replace
from ralphproof.verdict import Outcome, result
from ralphproof.workspace import Change, Committed, Snapshot, Work
from ralphproof.world import Eyes, World, numbered

if TYPE_CHECKING:
    from ralphproof.value import Json


class Loop(Asking):
    """One run, from its first iteration or from wherever its records say that it stands."""

    def __init__(self, run: str, rules: action.Rules, world: World, facts: dict[str, Json] | None = None) -> None:
        super().__init__(run, rules, world)
        self.facts = facts or {}

    def run(self) -> Outcome:
        """Go on until the run is over. However it ends, the ledger says so before this returns."""
        try:
            if not self.state.run:
                self._begin()
            while not isinstance(step := next_action(self.state, self.rules, self._looked()), action.Finish):
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
        self._tell(record.RunBegan(self.id, began, self.facts, self.world.clock.epoch()))
        self._flush()

    def _ground(self) -> None:
        snapshot = self.world.workspace.save(self.id, "0-checked")
        if snapshot.id is None:
            raise Refused(f"the checks left the project so that it cannot be saved: {snapshot.problem}")
        written = self.world.workspace.change(self.state.began, snapshot).paths
        self._tell(record.Grounded(snapshot, written))

    def _do(self, step: action.Action) -> None:
        state = self.state
        match step:
            case action.PickNext(iteration):
                self._plan = self.world.plan.read()
                choice = choose(self._plan, self.rules.pipeline, state.passed)
                self._tell(record.Picked(iteration, _light(choice) if isinstance(choice, Job) else choice))
            case action.Warn(what, message):
                self._tell(record.Warned(state.iteration, what, message))
            case action.Escalate(rung, deep, why):
                self._tell(record.Escalated(state.iteration, rung, deep, why))
            case action.Ground():
                self._ground()
            case action.TakeTurn():
                self._take_turn(step)
            case action.Save():
                self._save()
            case action.Rest(seconds):
                self._flush()
                self.world.rest(seconds)
            case action.TakeAgain(empty, why, until):
                self._tell(record.TurnAgain(state.iteration, state.turn, empty, why, until))
            case action.Ask(check):
                self._ask(check)
            case action.Conclude(verdict):
                self._tell(record.Judged(state.iteration, state.turn, verdict, self._now().elapsed_s))
            case action.Keep(why_not) if why_not:
                self._tell(record.ScmEnded(state.iteration, Committed(error=why_not)))
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
            self.world.wires.arm()  # what somebody changed since the last turn is no agent's doing
            argv = agent.argv(brief)
            self._tell(record.TurnBegan(state.iteration, state.turn, digest, argv, agent.name, step.place))
        self._tell(record.TurnEnded(state.iteration, state.turn, self._reply(agent, brief)))

    def _save(self) -> None:
        state, workspace = self.state, self.world.workspace
        name = numbered(str(state.iteration), state.turn, ".")
        agent = numbered(f"agent_{state.iteration:03d}", state.turn)
        snapshot = workspace.save(self.id, name)
        sprung = self.world.wires.sprung(agent)
        if sprung.touched:  # what was put back is no work; all that the agent left is under the first name
            snapshot = workspace.save(self.id, f"{name}-put-back")
        change = self._change(snapshot)
        if snapshot.problem:
            self.notice(f"not everything could be saved: {snapshot.problem}")
        self._tell(record.Saved(state.iteration, state.turn, snapshot, change, self._heard(state.reply), sprung))
        self.world.folder.publish(agent)
        for message in (*sprung.remarks, *(message for lookout in self.world.lookouts for message in lookout())):
            self.notice(message)

    def _change(self, now: Snapshot) -> Change:
        """What the iteration changed. Commits that were made during the run may be made anew: they are no history."""
        state, workspace = self.state, self.world.workspace
        change = workspace.change(state.last, now)
        if change.rewritten and state.last.head != state.began.head:
            return replace(change, rewritten=workspace.change(state.began, now).rewritten)
        return change

    def _ask(self, check: str) -> None:
        """Ask a check about this iteration's work, or, before the first turn, about the tree as the run found it."""
        state = self.state
        if isinstance(state.phase, Picking):
            looked = Inspection(0, 1, "", state.last, Change())
        else:
            facts = state.facts
            looked = Inspection(state.iteration, state.turn, facts.turn.text, facts.snapshot, facts.change)
        if state.begun != check:
            self._tell(record.CheckBegan(looked.iteration, looked.turn, check))
        self._flush()
        finding = self.world.checks[check].ask(looked, Eyes(self.world))
        self._tell(record.CheckEnded(looked.iteration, looked.turn, finding))

    def _keep(self) -> None:
        """Ask the agent for a message, then commit. What that call changes in the tree is put back."""
        state, world = self.state, self.world
        if state.begun != SCM:
            world.wires.arm()
            self._tell(record.ScmBegan(state.iteration))
        name = f"scm_{state.iteration:03d}"
        before = world.workspace.save(self.id, f"{state.iteration}-checked")
        brief = self._brief(f"{name}_prompt", name, COMMIT_MESSAGE, stream=False)
        reply = self._reply(world.agent_at(state.place), brief)
        sprung = world.wires.sprung(name)
        after = world.workspace.save(self.id, f"{state.iteration}-scm")
        back = [f"{one.path} ({one.trouble or one.rule})" for one in sprung.touched]
        if back := [*back, *world.workspace.restore(before, after)]:
            self.notice(f"the commit-message call changed files; they were put back: {', '.join(back)}")
        for remark in sprung.remarks:
            self.notice(remark)
        message = "" if reply.errored else commit_message(reply.text)
        committed = world.keep(Work(state.iteration, message, state.began, state.last), state.written)
        self._tell(record.ScmEnded(state.iteration, committed, reply, message))
        world.folder.publish(name)

    def _end(self, outcome: Outcome) -> None:
        self._tell(record.RunEnded(outcome, self._reckoned(outcome)))
        self._flush()
        self.world.folder.outcome(result(outcome))
        self.world.wires.discard()

    def _broken(self, error: RalphError) -> Outcome:
        """We cannot go on: say why, in the record too as far as it can still be written."""
        outcome: Outcome = failed(self.state, self._now(), str(error), error.exit_code)
        if error.reason:
            outcome = aborted(self.state, self._now(), Breach(error.reason, str(error)))
        try:
            self._end(outcome)
        except RalphError:
            pass  # what stopped us is what the user must hear, not that it could not be written down
        return outcome


def _light(job: Job) -> Job:
    """The job as records keep it: a prompt's text is in its own file, its digest in the record."""
    return replace(job, task=replace(job.task, prompt=""))
