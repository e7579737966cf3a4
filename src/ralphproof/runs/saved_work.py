"""The saved work of an iteration, with a title and message for a commit of it."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.value import value
from ralphproof.display.phrases import format_count
from ralphproof.engine.plan import Job
from ralphproof.engine.records import Picked, Record
from ralphproof.engine.workspace import Snapshot
from ralphproof.runs.request import load_request
from ralphproof.store.ledger import RunRow
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import refuse_collected_run
from ralphproof.views.snapshots import require_snapshot, snapshots_by_iteration, workspace_kind
from ralphproof.workspace.commits import CommitBuilder, CommitPlan, create_branch
from ralphproof.workspace.git_command import UserGit

MAX_TITLE_CHARS = 72
MAX_EXCLUDED_LISTED = 20


@value
class SavedWork:
    """The work that an iteration of a run saved."""

    row: RunRow
    number: int
    snapshot: Snapshot
    title: str

    @property
    def place(self) -> str:
        """Which iteration of which run, in words."""
        return f"iteration {self.number} of run {self.row.id}" if self.number else f"the start of run {self.row.id}"

    @property
    def message(self) -> str:
        """The commit message: the title, and trailers with the run and the iteration."""
        where = f"{self.place[0].upper()}{self.place[1:]}."
        return f"{self.title}\n\n{where}\n\nRalph-Run: {self.row.id}\nRalph-Iteration: {self.number}\n"


def load_saved_work(project: Project, row: RunRow, records: tuple[Record, ...], number: int) -> SavedWork:
    """The work of an iteration; raises Refused where there is none that could become a branch."""
    refuse_collected_run(project, row.id)
    if workspace_kind(records) != "git":
        raise Refused(f"run {row.id} worked without git, so there is nothing to branch from; see: ralph diff {row.id}")
    return SavedWork(
        row, number, require_snapshot(snapshots_by_iteration(records), number, row.id), run_title(project, row, records)
    )


def run_title(project: Project, row: RunRow, records: tuple[Record, ...]) -> str:
    """A title for the work of a run, masked: that of its task, else the beginning of its prompt."""
    jobs = (one.choice for one in reversed(records) if isinstance(one, Picked) and isinstance(one.choice, Job))
    title = next((job.task.title for job in jobs if job.task.title.strip()), "")
    if not title and (loaded := load_request(RunFolder(row.directory, row.id, project.store))):
        text, file = loaded[0].prompt
        title = text or (f"the task of {os.path.basename(file)}" if file else "")
    return first_line(project.mask(title[:10_000])) or f"work of run {row.id}"


def first_line(text: str, limit: int = MAX_TITLE_CHARS) -> str:
    """The first line that is not blank, sanitized, of at most so many characters."""
    lines = (" ".join(line.split()) for line in sanitize(text).splitlines())
    line = next(filter(None, lines), "")
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def excluded_file_lines(landing: CommitPlan) -> list[str]:
    """The files that a commit leaves out, in lines for people."""
    lines = [f"  {one.path}: {one.reason}" for one in landing.excluded[:MAX_EXCLUDED_LISTED]]
    more = len(landing.excluded) - len(lines)
    head = [f"Left out: {format_count(len(landing.excluded), 'file')}"] if lines else []
    return [*head, *lines, *([f"  ... and {more} more"] if more else [])]


def branch_saved_work(
    project: Project, work: SavedWork, name: str | None, *, force: bool
) -> tuple[str, str, CommitPlan]:
    """Create a branch with one commit of this work; its name, the commit, and what is in it and left out."""
    branch = f"ralph/{work.row.id}-{work.number}" if name is None else name
    with CommitBuilder(project.root, os.environ) as builder:
        _refuse_used_branch(builder.user_git, branch, force)
        plan = builder.plan(work.snapshot)
        return branch, create_branch(builder.user_git, plan, work.message, branch, force), plan


def _refuse_used_branch(git: UserGit, name: str, force: bool) -> None:
    """Refuse an invalid, checked-out or existing branch name."""
    git.check_branch_name(name)
    if place := git.find_checkout(name):
        raise Refused(f"branch {name} is checked out in {place}, and is not moved; name another one with --name")
    if git.branch_commit(name) and not force:
        raise Refused(f"there is a branch {name}; name another one with --name, or move it with --force")
