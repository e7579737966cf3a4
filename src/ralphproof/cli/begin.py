"""A run from the directory's lock to the end of its loop: begun anew, or taken up where its records say it stands."""

from __future__ import annotations

import time

from ralphproof.cli.equipment import Equipped
from ralphproof.cli.notes import keep_limits, keep_wish
from ralphproof.errors import HarnessFailed, RalphError
from ralphproof.ledgers.memory import Memory
from ralphproof.ledgers.process import this_process
from ralphproof.ledgers.sqlite import Sqlite
from ralphproof.limit import INTERRUPTED
from ralphproof.loop import NEW, Loop
from ralphproof.record import RunEnded
from ralphproof.sandbox import KILL
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.verdict import Failed, Outcome

if TYPE_CHECKING:
    from typing import Self

    from ralphproof.action import Rules
    from ralphproof.cli.order import Wish
    from ralphproof.observers.notify import Notify
    from ralphproof.observers.otel import Otel
    from ralphproof.state import State
    from ralphproof.world import World

PATIENCE_S, HURRY_S, AT_ONCE_S = 10.0, 2.0, 0.3  # for notifications at the end; after one, or two Ctrl-C


class Begun(Equipped):
    """A run that is begun, and goes to its end."""

    recorded = True  # other verbs can tell of it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for told in self._closing:
                self._close(told, HURRY_S)
        finally:
            self._let_go()

    def go(self) -> Outcome:
        """Run the loop to its end."""
        return self._through(self.loop())

    def loop(self) -> Loop:
        """The loop, which has done nothing yet; the run is on record."""
        root = self._order.project.root
        told = self._left_behind()
        scm = self._scm()
        self._folder.begin()
        told += self._stale_markers()
        world, rules = self._world(scm), self._rules()
        if self.recorded:
            keep_limits(self._folder, rules, self._order, self._sandbox.name)
            keep_wish(self._folder, replace(self._asked_for(), folder=root), self._order.project.mask)
        wish, process = self._order.wish, this_process()
        self._prepare(world)
        self._ledger.begin_run(self.run, root, time.time(), process, self.parent, wish.work)  # a refusal is on record
        if wish.words and isinstance(self._ledger, Sqlite):
            self._ledger.say(self.run, wish.words)
        self.present.follow(self._ledger, self.run)
        loop = self._made(rules, world)
        unclosed = "" if told else self._lock.reclaimed  # else it is told already
        more = (unclosed, *self._lock_remarks, self._ledger.repaired, self._expected())
        for remark in (*self._order.remarks, *told, *filter(None, more)):
            loop.notice(remark)
        return loop

    def _made(self, rules: Rules, world: World, state: State = NEW) -> Loop:
        return Loop(self.run, rules, world, self._facts(), state)

    def _prepare(self, world: World) -> None:
        """See that a work tree of its own is as the user wants one to be."""
        if self._order.wish.apart:
            from ralphproof.cli.tree_setup import prepare_tree

            prepare_tree(self._order, self._folder, world)

    def _asked_for(self) -> Wish:
        """The wish, with the verify commands of stories as they were when the run began."""
        wish = self._order.wish
        return replace(wish, verify=self._order.stories.verify) if self._order.stories else wish

    def _through(self, loop: Loop) -> Outcome:
        outcome = loop.run()
        if isinstance(outcome, Failed) and outcome.exit_code == HarnessFailed.exit_code and not self.asked:
            self.broken = outcome.error
        return outcome

    @property
    def asked(self) -> bool:
        """Whether an agent was asked, or is about to be."""
        return self._seen.turn

    def _rules(self) -> Rules:
        """The order's; a run inside another one may use no more than that has left."""
        rules = self._order.rules
        if not self.parent or isinstance(self._ledger, Memory):
            return rules
        rules = replace(rules, hooks=())  # they are around the run that it is part of
        from ralphproof.cli.held import budget_under

        project, limits = self._order.project, rules.limits
        budget = budget_under(limits.budget, self.run, project, self._ledger, self._purse, self.parent)
        return replace(rules, limits=replace(limits, budget=budget))

    def _stale_markers(self) -> list[str]:
        """Put away what an earlier run left, or has seen, of markers; what there is to say of it."""
        if self._order.stories:
            from ralphproof.cli.stories import marker_told

            return marker_told(self._order.project.root, self.run)
        if not self._order.wish.task_folder or isinstance(self._ledger, Memory):
            return []
        from ralphproof.cli.stale import put_away

        return put_away(self._ledger, self._folder.task_folder, self.run)

    def _left_behind(self) -> list[str]:
        """Close what dead runs left in this directory; what there is to say of it."""
        from ralphproof.cli.leftover import close_dead_runs

        if isinstance(self._ledger, Memory):
            return []
        return close_dead_runs(self._ledger, self._order.project, self.run, self.parent)

    def tell(self, outcome: Outcome) -> tuple[str, ...]:
        """Wait until those who are notified know the end, not for long; what could not be delivered."""
        closing, self._closing = self._closing, []
        for told in closing:
            told.saw(RunEnded(outcome))  # where the record could not be written, nobody saw it
            self._close(told, HURRY_S if outcome.exit_code == 130 else PATIENCE_S)
        return tuple(failure for told in closing for failure in told.failures)

    def _close(self, told: Notify | Otel, grace_s: float) -> None:
        """Somebody may press Ctrl-C meanwhile. Who pressed it twice before wanted the agent's end, not the silence."""
        told.close(grace_s, self._patience_s if self._patience_s() else lambda: AT_ONCE_S)

    def _patience_s(self) -> float:
        """How much longer notifications are waited for: Ctrl-C leaves them a little, the second one nothing."""
        try:
            pressed = self.present.wish() == INTERRUPTED
            return 0.0 if self.present.urgency() == KILL else HURRY_S if pressed else PATIENCE_S
        except RalphError:
            return PATIENCE_S  # the ledger is broken, and is not asked again at once: then signals are seen

    def _expected(self) -> str:
        """What the past of this repository says that such a run takes."""
        from ralphproof.expectation import expected, sentence

        skill = self._order.skill.name if self._order.skill else ""
        expectation = expected(self._ledger.past(), skill)
        return sentence(expectation) if expectation else ""
