"""Lookup of the saved work of an iteration, with a title for its commit."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.plan import Job
from ralphproof.engine.records import Picked
from ralphproof.proof.saved_work import SavedWork
from ralphproof.store.project import Project
from ralphproof.store.run_state import refuse_collected_run
from ralphproof.views.snapshots import require_snapshot, snapshots_by_iteration, workspace_kind

if TYPE_CHECKING:
    from ralphproof.engine.records import Record
    from ralphproof.store.runs import RunRow


MAX_TITLE_CHARS = 72


def load_saved_work(project: Project, row: RunRow, records: tuple[Record, ...], number: int) -> SavedWork:
    """The work of an iteration; raises Refused where there is none that could become a branch."""
    refuse_collected_run(project, row.id)
    if workspace_kind(records) != "git":
        raise Refused(f"run {row.id} worked without git, so there is nothing to branch from; see: ralph diff {row.id}")
    return SavedWork(
        row, number, require_snapshot(snapshots_by_iteration(records), number, row.id), run_title(project, row, records)
    )


def run_title(project: Project, row: RunRow, records: tuple[Record, ...]) -> str:
    """What the run was to do, in one masked line: the task's title, else the beginning of its prompt."""
    from ralphproof.runs.request import load_request
    from ralphproof.store.run_folder import RunFolder

    jobs = (one.choice for one in reversed(records) if isinstance(one, Picked) and isinstance(one.choice, Job))
    title = next((job.task.title for job in jobs if job.task.title.strip()), "")
    if not title and (kept := load_request(RunFolder(row.directory, row.id, project.store))):
        text, file = kept[0].prompt
        title = text or (f"the task of {os.path.basename(file)}" if file else "")
    return first_line(project.mask(title[:10_000])) or f"work of run {row.id}"


def first_line(text: str, most: int = MAX_TITLE_CHARS) -> str:
    """The first line that says something, without what a terminal would obey, at most so long."""
    from ralphproof.base.escaping import sanitize

    lines = (" ".join(line.split()) for line in sanitize(text).splitlines())
    found = next(filter(None, lines), "")
    return found if len(found) <= most else f"{found[: most - 1].rstrip()}…"
