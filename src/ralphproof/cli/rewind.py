"""`ralph rewind`: the files as an iteration of a run left them."""

from __future__ import annotations

import os
import re
import time

from ralphproof.cli.named_run import named_run
from ralphproof.cli.out import answered_yes, must_ask, put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.display.words import count
from ralphproof.errors import HarnessFailed, Refused
from ralphproof.ledgers.lock import DirectoryLock
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.views.changes import kind_of
from ralphproof.views.kept import Kept, snapshot_at, snapshots_of
from ralphproof.views.project import Project
from ralphproof.views.standing import turn_at_work
from ralphproof.workspaces.astray import refuse_astray
from ralphproof.workspaces.layout import git_folders

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.record import Record
    from ralphproof.workspace import Snapshot
    from ralphproof.workspaces.git import Git
    from ralphproof.workspaces.plain import Plain

ABOUT = """the files as an iteration of a run left them; 0 is the start of the run.

First the present files are saved, so that this can be undone: the name to go back with is printed. Only files change:
the index, HEAD and branches stay, and so do ignored files. While a run works here nothing is done."""
EXAMPLES = (
    "ralph rewind latest 2",
    "ralph rewind 20261115-21 0 --yes",
    "ralph rewind latest before-rewind-20261115-213000",
)
BEFORE = "before-rewind-"
SHOWN = 20


def parser() -> Parser:
    made = Parser("rewind", ABOUT, EXAMPLES)
    made.add_argument("run", metavar="RUN", help="an id, its beginning, or latest")
    made.add_argument("where", metavar="N", help="an iteration, 0, or the name that an earlier rewind printed")
    made.add_argument("--yes", action="store_true", help="do not ask")
    return made


@value
class Aim:
    """Where to go: the run, and a number or the name of an earlier save."""

    row: RunRow
    records: tuple[Record, ...]
    where: str

    @property
    def place(self) -> str:
        """The same in words."""
        number = f"iteration {int(self.where)}" if self.where.isdigit() and int(self.where) else "the start"
        return f"{number if self.where.isdigit() else self.where} of run {self.row.id}"


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    if not re.fullmatch(rf"\d{{1,9}}|{BEFORE}[0-9-]+", args.where, re.ASCII):
        raise Refused(f"{args.where!r} is neither an iteration nor a name that a rewind printed ({BEFORE}...)")
    must_ask(args.yes, args.json, "rewind changes files")
    project = Project.at(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = named_run(ledger, args.run, args)
        if row.directory != project.root and os.path.isdir(row.directory):
            raise Refused(f"run {row.id} worked in {row.directory}; rewind it there: -d {row.directory}")
        aim = Aim(row, ledger.records(row.id), args.where)
        lock = DirectoryLock(project.state_dir, project.root, row.id)
        lock.take()
        try:
            _refuse_live_turns(ledger, project)
            if folders := git_folders(project.root):
                refuse_astray(project.root, folders)
            return _rewind(project, aim, args)
        finally:
            lock.release()
    finally:
        ledger.close()


def _refuse_live_turns(ledger: Sqlite, project: Project) -> None:
    """An agent whose harness died holds no lock, and still writes files."""
    for row in ledger.runs():
        if not row.ended and row.directory == project.root and turn_at_work(project, row.id):
            raise Refused(f"what run {row.id} started is still at work here; end it: ralph cancel {row.id}")


def _rewind(project: Project, aim: Aim, args: Namespace) -> int:
    with Kept(project, aim.row, kind_of(aim.records), own_folder=False) as kept:
        workspace = kept.workspace
        target = _target(workspace, aim)
        name = _free_name(workspace, aim.row.id)
        now = workspace.save(aim.row.id, name)
        if now.tree is None or now.problem:
            raise HarnessFailed(f"the present files could not be saved, so nothing was changed: {now.problem}")
        paths = _differing(workspace, now, target)
        if paths and not args.json:
            put(f"{count(len(paths), 'file')} would change:", *_shown(paths))
        if paths and not args.yes and not answered_yes(f"Make them those of {aim.place}?"):
            put("Nothing was changed.")
            return 0
        done = workspace.restore(target, now)
    _tell(aim, name, done, args.json)
    return 0


def _target(workspace: Git | Plain, aim: Aim) -> Snapshot:
    if aim.where.isdigit():
        return snapshot_at(snapshots_of(aim.records), int(aim.where), aim.row.id)
    found = workspace.saved(aim.row.id, aim.where)
    if found is None:
        raise Refused(f"run {aim.row.id} has no save of the name {aim.where}")
    return found


def _free_name(workspace: Git | Plain, run: str) -> str:
    """A name that no earlier save has: what can be undone must stay so."""
    name = first = BEFORE + time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    number = 1
    while workspace.saved(run, name) is not None:
        number += 1
        name = f"{first}-{number}"
    return name


def _differing(workspace: Git | Plain, now: Snapshot, target: Snapshot) -> tuple[str, ...]:
    change = workspace.change(now, target)
    if not change.known:
        raise Refused("what was saved is no longer there; was it pruned?")
    return tuple(path for path in change.paths if path not in {*now.left_out, *target.left_out})


def _shown(paths: tuple[str, ...]) -> list[str]:
    more = [f"  ... and {len(paths) - SHOWN} more"] if len(paths) > SHOWN else []
    return [*(f"  {path}" for path in paths[:SHOWN]), *more]


def _tell(aim: Aim, name: str, done: tuple[str, ...], for_programs: bool) -> None:
    if for_programs:
        put_json("rewind", {"run": aim.row.id, "to": aim.where, "saved": name, "paths": list(done)})
    elif not done:
        put(f"The files are those of {aim.place} already.")
    else:
        put(
            f"The files are those of {aim.place}; {count(len(done), 'file')} changed.",
            f"Undo: ralph rewind {aim.row.id} {name}",
        )
