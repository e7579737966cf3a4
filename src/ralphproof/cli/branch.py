"""`ralph branch`: an iteration's work as a branch."""

from __future__ import annotations

import os

from ralphproof.cli.named_run import named_run
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.withheld import why_secret
from ralphproof.display.words import count
from ralphproof.errors import Refused
from ralphproof.record import Picked
from ralphproof.stage import Job
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.views.changes import kind_of
from ralphproof.views.gc_note import refuse_swept
from ralphproof.views.kept import snapshot_at, snapshots_of
from ralphproof.views.project import Project

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.record import Record
    from ralphproof.value import Json
    from ralphproof.workspace import Snapshot
    from ralphproof.workspaces.landable import Landing
    from ralphproof.workspaces.users_git import UsersGit

ABOUT = """an iteration's work as a branch.

The branch has one commit of yours on top of the commit that the iteration stood on; 0 is the start of the run, with
what you had not committed then. Index, HEAD and files stay as they are, and no hook runs. Left out, and named, are
files that were too large to be saved, new ones that look like secrets, and those whose filter only .git/config names.
Exit codes: 0 done, 2 refused."""
EXAMPLES = (
    "ralph branch latest 2",
    "ralph branch 20261115-21 0 --name what-i-had",
    "ralph branch latest 3 --name login --force",
)
TITLE_CHARS = 72
NAMED = 20  # files that were left out


def parser() -> Parser:
    made = Parser("branch", ABOUT, EXAMPLES)
    made.add_argument("run", metavar="RUN", help="an id, its beginning, or latest")
    made.add_argument("number", metavar="N", help="an iteration; 0 is the start of the run")
    made.add_argument("--name", metavar="BRANCH", help="how to call the branch (default: ralph/RUN-N)")
    made.add_argument("--force", action="store_true", help="move a branch that is there; never one that is checked out")
    return made


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


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    if not (args.number.isascii() and args.number.isdigit() and len(args.number) < 10):
        raise Refused(f"{args.number!r} is not an iteration; they are counted from 1, and 0 is the start")
    project = Project.seen(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = named_run(ledger, args.run, args, shown=True)
        records = ledger.records(row.id)
    finally:
        ledger.close()
    work = work_of(project, row, records, int(args.number))
    name = args.name if args.name is not None else f"ralph/{row.id}-{work.number}"
    from ralphproof.workspaces.landable import Landable

    with Landable(project.root, os.environ) as landable:
        must_be_free(landable.users, name, args.force)
        landing = landable.landing(work.snapshot, why_secret)
        commit = made(landable.users, landing, work, name, args.force)
    _tell(args, work, name, commit, landing)
    return 0


def work_of(project: Project, row: RunRow, records: tuple[Record, ...], number: int) -> SavedWork:
    """The work of an iteration; raises Refused where there is none that could become a branch."""
    refuse_swept(project, row.id)
    if kind_of(records) != "git":
        raise Refused(f"run {row.id} worked without git, so there is nothing to branch from; see: ralph diff {row.id}")
    return SavedWork(row, number, snapshot_at(snapshots_of(records), number, row.id), title_of(project, row, records))


def title_of(project: Project, row: RunRow, records: tuple[Record, ...]) -> str:
    """What the run was to do, in one masked line: the task's title, else the beginning of its prompt."""
    from ralphproof.cli.notes import kept_wish
    from ralphproof.ledgers.folder import RunFolder

    jobs = (one.choice for one in reversed(records) if isinstance(one, Picked) and isinstance(one.choice, Job))
    title = next((job.task.title for job in jobs if job.task.title.strip()), "")
    if not title and (kept := kept_wish(RunFolder(row.directory, row.id, project.store))):
        text, file = kept[0].prompt
        title = text or (f"the task of {os.path.basename(file)}" if file else "")
    return one_line(project.mask(title[:10_000])) or f"work of run {row.id}"


def one_line(text: str, most: int = TITLE_CHARS) -> str:
    """The first line that says something, without what a terminal would obey, at most so long."""
    from ralphproof.display.clean import clean

    lines = (" ".join(line.split()) for line in clean(text).splitlines())
    found = next(filter(None, lines), "")
    return found if len(found) <= most else f"{found[: most - 1].rstrip()}…"


def must_be_free(git: UsersGit, name: str, force: bool) -> None:
    """Raise Refused where a branch of this name may not be made."""
    git.must_be_a_branch_name(name)
    if place := git.checked_out(name):
        raise Refused(f"branch {name} is checked out in {place}, and is not moved; say another one with --name")
    if git.branch(name) and not force:
        raise Refused(f"there is a branch {name}; say another one with --name, or move it with --force")


def made(git: UsersGit, landing: Landing, work: SavedWork, name: str, force: bool) -> str:
    """Let the branch name a commit of this tree, a new one unless the parent has it already; the commit."""
    commit = landing.parent if landing.empty else None
    commit = commit or git.commit(landing.tree, landing.parent, work.message)
    git.let(name, commit, force)
    return commit


def left_out(landing: Landing) -> list[str]:
    """What a commit does not hold, in lines."""
    lines = [f"  {one.path}: {one.why}" for one in landing.withheld[:NAMED]]
    more = len(landing.withheld) - len(lines)
    head = [f"Left out: {count(len(landing.withheld), 'file')}"] if lines else []
    return [*head, *lines, *([f"  ... and {more} more"] if more else [])]


def _tell(args: Namespace, work: SavedWork, name: str, commit: str, landing: Landing) -> None:
    if args.json:
        out: list[Json] = [{"path": one.path, "why": one.why} for one in landing.withheld]
        facts: dict[str, Json] = {"run": work.row.id, "iteration": work.number, "branch": name, "commit": commit}
        paths: list[Json] = [path for _, path in landing.changes]
        put_json("branch", facts | {"parent": landing.parent, "paths": paths, "leftOut": out})
        return
    on = f"on top of {landing.parent[:12]}" if landing.parent else "where history begins"
    what = "nothing differed from the commit it stood on" if landing.empty else count(len(landing.changes), "file")
    put(f"Branch {name} has {work.place}, {on}: {what}.", *left_out(landing), f"Look: git log -p -1 {name}")
