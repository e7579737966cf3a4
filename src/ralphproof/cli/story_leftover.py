"""The stories of a run whose harness died: what it had not judged does not stand in their file."""

from __future__ import annotations

import os

from ralphproof.errors import RalphError, ReadTooEarly
from ralphproof.ledgers.files import read_whole
from ralphproof.ledgers.folder import RunFolder
from ralphproof.notebook import MEMORY
from ralphproof.phase import Checking, Concluded, Over, Turned, Turning
from ralphproof.record import RunBegan
from ralphproof.state import state_of
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.stories import manner_in
from ralphproof.world import numbered

if TYPE_CHECKING:
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.plans.story_book import StoryBook
    from ralphproof.plans.story_tasks import Manner
    from ralphproof.state import State
    from ralphproof.value import Json
    from ralphproof.views.project import Project


class Seen:
    """The file of a run's stories as it is now."""

    def __init__(self, root: str, manner: Manner | None) -> None:
        self._name = f"{manner.folder}/tasks.json" if manner else ""
        self._path = os.path.join(root, self._name)
        self._data = self._now()

    def touched_s(self) -> float:
        """When it was last touched; ages ago where it is not there."""
        try:
            return os.lstat(self._path).st_ctime
        except OSError:
            return 0.0

    def changed(self) -> list[str]:
        """Its name, if it is another one by now."""
        return [self._name] if self._now() != self._data else []

    def _now(self) -> bytes | None:
        return read_whole(self._path) if self._name else None


def stories_of(ledger: Sqlite, row: RunRow) -> Seen:
    """The stories that a run went by, if it did."""
    began = next((record for record in ledger.records(row.id) if isinstance(record, RunBegan)), None)
    return Seen(row.directory, manner_in(began.facts) if began else None)


def put_in_order(project: Project, row: RunRow, facts: dict[str, Json], state: State) -> list[str]:
    """Make the file say what the dead harness knew, without what it had not judged; what there is to tell of it."""
    manner = manner_in(facts)
    if manner is None:
        return []
    from ralphproof.ledgers.shelf import FILE, Facts, Shelf
    from ralphproof.plans.story_book import StoryBook

    folder = RunFolder(row.directory, row.id, project.store, project.mask)
    said = Facts(row.id, 0, manner.skip_review, manner.cap, manner.folder)
    book = StoryBook(f"{manner.folder}/{FILE}", manner, Shelf(row.directory, said, folder))
    try:
        return [*_forsaken(book, state)] if isinstance(folder.noted(MEMORY), dict) else []
    except RalphError as error:
        return [f"the stories could not be put in order: {error}"]
    finally:
        book.close()


def refuse_forged(ledger: Sqlite, project: Project, row: RunRow) -> None:
    """A run that had to end before it could judge a turn may have been unable to put its writing back, too.

    What nobody touched since is put back now; raises ReadTooEarly then.
    """
    if not isinstance(RunFolder(row.directory, row.id, project.store).noted(MEMORY), dict):
        return
    records = ledger.records(row.id)
    began = next((record for record in records if isinstance(record, RunBegan)), None)
    manner, state = manner_in(began.facts) if began else None, state_of(records)
    if began is None or manner is None or not isinstance(state.before, Turning | Turned | Checking):
        return
    seen, name = Seen(row.directory, manner), f"{manner.folder}/tasks.json"
    if seen.touched_s() > (ledger.written_at(row.id) or 0.0):
        return  # the user's, who may write what they like
    put_in_order(project, row, began.facts, state)
    if seen.changed():
        raise ReadTooEarly(f"{name} held what run {row.id} had not judged, and was put back")


def _forsaken(book: StoryBook, state: State) -> tuple[str, ...]:
    match state.before if isinstance(state.phase, Over) else state.phase:
        case Checking(facts):
            return book.forsake(numbered(str(state.iteration), state.turn, "."), facts)
        case Concluded(facts, verdict):
            return book.settle(facts, verdict)
        case Turning() | Turned():
            book.restore()
            return ()
        case _:
            return ()
