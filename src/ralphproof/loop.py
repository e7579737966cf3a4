"""The verb: carries values from the first noun to the last. `next_action` decides; the loop does as it is told."""

from __future__ import annotations

import hashlib

from ralphproof import action, record
from ralphproof.decision import next_action
from ralphproof.ending import aborted, failed
from ralphproof.errors import RalphError, Refused, from_system
from ralphproof.iteration import History
from ralphproof.keeping import Keeping
from ralphproof.limit import GOES_ON, HISTORY_REWRITTEN, WORKSPACE_GONE, Breach
from ralphproof.metric import in_full
from ralphproof.phase import Turned, Turning
from ralphproof.stage import Choice, Job, choose
from ralphproof.state import State
from ralphproof.value import TYPE_CHECKING, assert_never, replace
from ralphproof.verdict import Aborted, Completed, Failed, Outcome, Passed, Retry, Stopped, Verdict, result
from ralphproof.workspace import Committed
from ralphproof.world import World, numbered

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.value import Json

NEW = State()


def _picked(iteration: int, choice: Choice, history: History, round: int) -> record.Picked:
    if not isinstance(choice, Job):
        return record.Picked(iteration, choice, round=round)
    return record.Picked(iteration, choice.light, history.tried(choice) + 1, round)


class Loop(Keeping):
    """One run, from its first iteration or from wherever its records say that it stands."""

    def __init__(
        self, run: str, rules: action.Rules, world: World, facts: dict[str, Json] | None = None, state: State = NEW
    ) -> None:
        super().__init__(run, rules, world, state)
        self.facts = facts or {}

    def take_up(self, elapsed_s: float, ended_ns: int = 0, quiet_ns: int = 0) -> None:
        """Say that this process has the run from now on, and how old it is.

        `ended_ns` is when what was open ended, if it did; `quiet_ns` since when nothing of the run was at work.
        """
        now_s, held = self.world.clock.epoch(), self.facts.get("sandbox")
        box = held if isinstance(held, dict) else None
        self._tell(record.Resumed(self.state.session + 1, now_s, elapsed_s, box))
        self._began_s = self.world.clock.monotonic() - elapsed_s
        self._ended_ns, self._quiet_ns = ended_ns, quiet_ns
        self._unseen = isinstance(self.state.phase, Turning | Turned)

    def run(self) -> Outcome:
        """Go on until the run is over. However it ends, the ledger says so before this returns."""
        over = self.until(lambda _: False)
        assert isinstance(over, action.Finish)
        return over.outcome

    def until(self, rests: Callable[[action.Action], bool]) -> action.Action:
        """Go on as `run` does, but leave what is to be done next undone where the caller rests before it."""
        try:
            if not self.state.run:
                self._begin()
            while not isinstance(step := next_action(self.state, self.rules, self.looked()), action.Finish):
                if rests(step):
                    break
                self._do(step)
            self._flush()
            return step
        except RalphError as error:
            return action.Finish(self._broken(error))
        except OSError as error:
            return action.Finish(self._broken(from_system(error)))

    def _begin(self) -> None:
        began = self.world.workspace.begin(self.id)
        if began.id is None:
            raise Refused(f"the project cannot be saved, so no agent may touch it: {began.problem}")
        self.world.pins.begin()
        self._tell(record.RunBegan(self.id, began, self.facts, self.world.clock.epoch()))
        self._flush()

    def _pick(self, iteration: int) -> None:
        """What comes next, by the plan as it now is."""
        self._settle()
        self._plan = self.world.plan.read()
        choice = choose(self._plan, self.rules.pipeline, self.state.passed)
        round = self.state.regained + 1 if self.state.iteration == iteration else 1
        self._tell(_picked(iteration, choice, self.state.history, round))

    def _do(self, step: action.Action) -> None:
        state = self.state
        match step:
            case action.PickNext(iteration):
                self._pick(iteration)
            case action.Warn(what, message):
                self._tell(record.Warned(state.iteration, what, message))
            case action.Escalate(rung, deep, why):
                self._tell(record.Escalated(state.iteration, rung, deep, why))
            case action.Ground():
                self._ground()
            case action.TakeTurn():
                self._take_turn(step)
            case action.RunHook(hook, place):
                self._hook(hook, place)
            case action.Save():
                self._save()
            case action.Rest(seconds):
                self._flush()
                self.world.rest(seconds)
            case action.Hold(seconds):
                self._hold(seconds)
            case action.Regain():
                self._regain()
            case action.TakeClaim():
                self._mark()
                self._tell(record.Claimed(state.iteration, state.turn))
            case action.Await(children, seconds):
                self._await(children, seconds)
            case action.Join():
                self._join()
            case action.TakeAgain(empty, why, until, wait_s):
                self._tell(record.TurnAgain(state.iteration, state.turn, empty, why, until, wait_s))
            case action.Ask(check, beside):
                self._ask((check, *beside))
            case action.Conclude(verdict):
                elapsed_s, counts = self._now().elapsed_s, self._if_whole(verdict)
                self._tell(record.Judged(state.iteration, state.turn, counts, elapsed_s, state.session))
                self._settle()
            case action.Keep(why_not) if why_not:
                self._tell(record.ScmEnded(state.iteration, Committed(error=why_not)))
            case action.Keep():
                self._settle()  # we may have died before
                self._keep()
            case action.End(outcome):
                self._end(outcome)
            case action.Finish():
                pass
            case _:
                assert_never(step)

    def _take_turn(self, step: action.TakeTurn) -> None:
        if step.pause_s and not self._rested(step.pause_s):
            return
        if self.world.clock.wish() and not self.state.turning:
            return
        begun, name = self.state.turning, numbered(f"{self.state.iteration:03d}", self.state.turn)
        taken_up = begun and self.world.started(f"agent_{name}")
        if not begun:
            self._tell_looking()
            self._take_words()
        elif not taken_up:  # nobody was there between its record and its start
            self._regain()
            self._mark()
        state, agent = self.state, self.world.agent_at(step.place, self.state.agent if begun else "")
        before = self.world.folder.prompted(f"prompt_{name}") if begun else None
        self._prompt = self._composed(step.job) if before is None else before
        brief = replace(self._brief(f"prompt_{name}", f"agent_{name}", self._prompt), taken_up=taken_up)
        if state.thread and step.place == state.place:
            brief = replace(brief, session=state.thread, billed=state.billed)
        if not begun:
            digest = hashlib.sha256(self._prompt.encode("utf-8", "surrogatepass")).hexdigest()
            self._mark()
            argv = agent.argv(brief)
            self._tell(record.TurnBegan(state.iteration, state.turn, digest, argv, agent.name, step.place))
        self._tell(record.TurnEnded(state.iteration, state.turn, self._reply(agent, brief)))

    def _rested(self, pause_s: float) -> bool:
        """Pause; whether a turn is still what comes next."""
        self._flush()
        self.world.clock.rest(pause_s)
        return isinstance(next_action(self.state, self.rules, self.looked()), action.TakeTurn)

    def _if_whole(self, verdict: Verdict) -> Verdict:
        """The verdict, unless it lets work count although the repository was damaged since the run began."""
        if isinstance(verdict, Passed) or (isinstance(verdict, Retry) and self.state.facts.report.passed):
            damage = self.world.wires.damage()
            return Stopped(Breach(HISTORY_REWRITTEN, damage)) if damage else verdict
        return verdict

    def _end(self, outcome: Outcome) -> None:
        asked_later = isinstance(self.state.before, Turning | Turned)  # when it is taken up
        if isinstance(outcome, Completed) and (damage := self.world.wires.damage()):  # by commits or hooks
            outcome = aborted(self.state, self._now(), Breach(HISTORY_REWRITTEN, damage))
        for remark in () if asked_later else self.world.wires.parting():
            self.notice(remark)
        if isinstance(outcome, Failed) or (isinstance(outcome, Aborted) and outcome.reason not in GOES_ON):
            for remark in self.world.family.dismiss():
                self.notice(remark)
        self.world.notebook.close()
        self._hooks_after(outcome)
        metrics = self._reckoned(outcome)
        self._tell(record.RunEnded(outcome, metrics, self.state.session))
        self.world.folder.ending()
        self._flush()
        self.world.folder.outcome(in_full(result(outcome), metrics))
        if not asked_later:
            self.world.wires.discard()

    def _broken(self, error: RalphError) -> Outcome:
        """We cannot go on: say why, in the record too as far as it can still be written."""
        outcome: Outcome = failed(self.state, self._now(), str(error), error.exit_code)
        if error.reason:
            kept = self.world.wires.kept() if error.reason == WORKSPACE_GONE else ""
            outcome = aborted(self.state, self._now(), Breach(error.reason, f"{error}{kept and f'; {kept}'}"))
        try:
            self._end(outcome)
        except RalphError:
            pass  # what stopped us is what the user must hear, not that it could not be written down
        return outcome
