"""The saved work of an iteration, as a commit and a branch."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display.phrases import format_count

if TYPE_CHECKING:
    from ralphproof.engine.workspace import Snapshot
    from ralphproof.store.runs import RunRow
    from ralphproof.workspace.commit_builder import CommitPlan
    from ralphproof.workspace.git_command import UserGit


MAX_EXCLUDED_LISTED = 20  # files that were left out


@value
class SavedWork:
    """One iteration of a run, with what a commit of it says."""

    row: RunRow
    number: int
    snapshot: Snapshot
    title: str

    @property
    def place(self) -> str:
        """The same in words."""
        return f"iteration {self.number} of run {self.row.id}" if self.number else f"the start of run {self.row.id}"

    @property
    def message(self) -> str:
        """What its commit says: the task in the first line, and where it comes from."""
        where = f"{self.place[0].upper()}{self.place[1:]}."
        return f"{self.title}\n\n{where}\n\nRalph-Run: {self.row.id}\nRalph-Iteration: {self.number}\n"


def create_branch(git: UserGit, landing: CommitPlan, work: SavedWork, name: str, force: bool) -> str:
    """Let the branch name a commit of this tree, a new one unless the parent has it already; the commit."""
    commit = landing.parent if landing.empty else None
    commit = commit or git.commit(landing.tree, landing.parent, work.message)
    git.set_branch(name, commit, force)
    return commit


def excluded_file_lines(landing: CommitPlan) -> list[str]:
    """What a commit does not hold, in lines."""
    lines = [f"  {one.path}: {one.reason}" for one in landing.excluded[:MAX_EXCLUDED_LISTED]]
    more = len(landing.excluded) - len(lines)
    head = [f"Left out: {format_count(len(landing.excluded), 'file')}"] if lines else []
    return [*head, *lines, *([f"  ... and {more} more"] if more else [])]
