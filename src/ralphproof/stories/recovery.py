"""Recovery of story files after a harness died: writes that nobody judged are undone."""

from __future__ import annotations

import os

from ralphproof.base.errors import RalphError, StaleRead
from ralphproof.base.files import read_file
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.iteration import turn_file_name
from ralphproof.engine.plan import STORY_MEMORY_NOTE
from ralphproof.engine.records import RunBegan
from ralphproof.engine.state import Checking, IterationJudged, RunOver, TurnFinished, TurnRunning, build_state
from ralphproof.store.run_folder import RunFolder
from ralphproof.stories.workflow import story_workflow_in

if TYPE_CHECKING:
    from ralphproof.base.value import Json
    from ralphproof.engine.state import State
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project
    from ralphproof.stories.plan import StoryPlan
    from ralphproof.stories.workflow import StoryWorkflow


class StoriesFileWatch:
    """A stories file, watched for changes."""

    def __init__(self, root: str, workflow: StoryWorkflow | None) -> None:
        self._name = f"{workflow.folder}/tasks.json" if workflow else ""
        self._path = os.path.join(root, self._name)
        self._data = self._now()

    def touched_s(self) -> float:
        """When it was last touched; 0 where it is missing."""
        try:
            return os.lstat(self._path).st_ctime
        except OSError:
            return 0.0

    def changed(self) -> list[str]:
        """Its name, if its content has changed."""
        return [self._name] if self._now() != self._data else []

    def _now(self) -> bytes | None:
        return read_file(self._path) if self._name else None


def watch_stories_file(ledger: SqliteLedger, row: RunRow) -> StoriesFileWatch:
    """The stories file of a run, if it has one."""
    began = next((record for record in ledger.records(row.id) if isinstance(record, RunBegan)), None)
    return StoriesFileWatch(row.directory, story_workflow_in(began.facts) if began else None)


def restore_stories(project: Project, row: RunRow, facts: dict[str, Json], state: State) -> list[str]:
    """Write what the dead harness knew, without what it had not judged; the notices about it."""
    workflow = story_workflow_in(facts)
    if workflow is None:
        return []
    from ralphproof.stories.files import STORIES_FILE, MarkerFacts, StoryFiles
    from ralphproof.stories.plan import StoryPlan

    folder = RunFolder(row.directory, row.id, project.store, project.mask)
    said = MarkerFacts(row.id, 0, workflow.skip_review, workflow.cap, workflow.folder)
    plan = StoryPlan(f"{workflow.folder}/{STORIES_FILE}", workflow, StoryFiles(row.directory, said, folder))
    try:
        return [*_restore_by_phase(plan, state)] if isinstance(folder.noted(STORY_MEMORY_NOTE), dict) else []
    except RalphError as error:
        return [f"the stories could not be put in order: {error}"]
    finally:
        plan.close()


def refuse_unjudged_stories(ledger: SqliteLedger, project: Project, row: RunRow) -> None:
    """Restore the stories file of a run that ended before a turn was judged, unless it was touched since.

    Raises StaleRead where the file changed: whoever read it before must read it again.
    """
    if not isinstance(RunFolder(row.directory, row.id, project.store).noted(STORY_MEMORY_NOTE), dict):
        return
    records = ledger.records(row.id)
    began = next((record for record in records if isinstance(record, RunBegan)), None)
    workflow, state = story_workflow_in(began.facts) if began else None, build_state(records)
    unjudged = isinstance(state.phase_before_end, TurnRunning | TurnFinished | Checking)
    if began is None or workflow is None or not unjudged:
        return
    seen, name = StoriesFileWatch(row.directory, workflow), f"{workflow.folder}/tasks.json"
    if seen.touched_s() > (ledger.last_written_at(row.id) or 0.0):
        return  # the user's, who may write what they like
    restore_stories(project, row, began.facts, state)
    if seen.changed():
        raise StaleRead(f"{name} held what run {row.id} had not judged, and was put back")


def _restore_by_phase(plan: StoryPlan, state: State) -> tuple[str, ...]:
    match state.phase_before_end if isinstance(state.phase, RunOver) else state.phase:
        case Checking(facts):
            return plan.revert_turn(turn_file_name(str(state.iteration), state.turn, "."), facts)
        case IterationJudged(facts, verdict):
            return plan.apply_verdict(facts, verdict)
        case TurnRunning() | TurnFinished():
            plan.restore()
            return ()
        case _:
            return ()
