"""Steering runs through another door than the verbs: the same wishes, under the same rules."""

from __future__ import annotations

from ralphproof.cli.cancel import Condemned, outcome_of
from ralphproof.cli.in_turn import refuse_foreign_in_turn
from ralphproof.cli.pause import ask_to_rest
from ralphproof.cli.resume import let_go_on
from ralphproof.cli.say import kept_words, sound_text
from ralphproof.display import words
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.standing import ENDED, RUNNING, standing
from ralphproof.views.trail import Trail

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.views.project import Project


class Steersman:
    """Writes wishes into the ledger. Any thread may call it."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def pause(self, run: str) -> str:
        return self._with(run, "pause", self._pause)

    def resume(self, run: str) -> str:
        return self._with(run, "resume", self._resume)

    def cancel(self, run: str) -> str:
        return self._with(run, "cancel", self._cancel)

    def say(self, run: str, text: str) -> str:
        said = sound_text(text.encode("utf-8", "replace"))
        return self._with(run, "say", lambda ledger, row: kept_words(ledger, row, said, self._project)[2])

    def _pause(self, ledger: Sqlite, row: RunRow) -> str:
        trail = Trail(ledger, row)
        ask_to_rest(trail, ledger, self._project)
        return f"run {row.id} " + ("rests" if trail.state.paused else "will rest before its next turn")

    def _resume(self, ledger: Sqlite, row: RunRow) -> str:
        if standing(ledger, row, self._project) != RUNNING:
            raise Refused(f"run {row.id} is not at work; take it up in a terminal: ralph run --resume {row.id}")
        return let_go_on(ledger, row)[2]

    def _cancel(self, ledger: Sqlite, row: RunRow) -> str:
        if standing(ledger, row, self._project) == ENDED:
            raise Refused(f"run {row.id} has ended already: {words.outcome(outcome_of(ledger, row.id))[-1]}")
        family = Condemned(ledger, self._project, row)
        family.close_lost()
        return f"run {row.id} is over" if ledger.end_of(row.id) else f"run {row.id} is asked to end"

    def _with(self, run: str, verb: str, work: Callable[[Sqlite, RunRow], str]) -> str:
        ledger = self._project.ledger(read_only=False)
        try:
            row = ledger.row(run)
            if row is None:
                raise Refused("there is no such run")
            refuse_foreign_in_turn(verb, ledger, row)
            return work(ledger, row)
        finally:
            ledger.close()
