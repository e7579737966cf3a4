"""`ralph run --detach`: order a run, see that it begins, and leave it to itself."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.cli.boxing import BOXED
from ralphproof.cli.detach import BEGIN, RESUME, begun, said, spawn
from ralphproof.cli.notes import keep_wish, kept_wish
from ralphproof.cli.order import prepare
from ralphproof.cli.out import put, put_json
from ralphproof.cli.to_the_end import INSIDE, parent_of
from ralphproof.display.clean import clean
from ralphproof.errors import Refused
from ralphproof.ledgers.folder import RunFolder, new_run_id
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.views.project import Project

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.cli.order import Wish


def detached(args: Namespace, wish: Wish) -> int:
    """Begin a run in a process of its own. What is wrong with the wish is said here, not in a log."""
    for flag in ("dry_run", "explain", "step"):
        if getattr(args, flag, False):
            raise Refused(f"--detach and --{flag.replace('_', '-')} do not go together; give one")
    if args.resume is not None:
        return _resumed(args, wish)
    project = prepare(wish).project
    run, asked = new_run_id(time.time(), os.urandom(3)), replace(wish, folder=project.root)
    if wish.apart:
        from ralphproof.cli.apart import moved_apart

        asked, made, told = moved_apart(asked, project, run)
        project = replace(project, root=made.place)
        for line in told:
            print(clean(project.mask(line)), file=sys.stderr)
    if inside := _asked_from_inside(project, run, asked):
        seen = not os.environ.get(BOXED) and begun(project, run) is None  # from a sandbox nobody sees the record
        return _tell(run, args, f"run {run} is asked for; {inside} begins it", seen)
    keep_wish(RunFolder(project.root, run, project.store), asked, project.mask)
    return _left_to_itself(project, run, args, BEGIN)


def _resumed(args: Namespace, wish: Wish) -> int:
    from ralphproof.cli.resume_run import wanted

    row, asked = wanted(Project.at(args.project_dir, os.environ), args.resume, wish)
    project = prepare(asked).project
    keep_wish(RunFolder(project.root, row.id, project.store), asked, project.mask)
    return _left_to_itself(project, row.id, args, RESUME)


def _left_to_itself(project: Project, run: str, args: Namespace, how: str) -> int:
    """Start its process, and see that it has the run; else say what it said, with its exit code."""
    code = begun(project, run, spawn(run, project.root, project.store, os.environ, how))
    if code is None:
        return _tell(run, args, f"run {run} goes on by itself", True)
    sys.stderr.write(clean(project.mask(said(project.store, run))))
    return code or 1


def _asked_from_inside(project: Project, run: str, wish: Wish) -> str:
    """Inside an agent's turn, leave the wish to the harness: the run whose harness that is, empty where there is none.

    What we start ourselves would end with the turn.
    """
    folder = os.environ.get("TASK_FOLDER", "")
    boxed = os.environ.get(INSIDE, "") if os.environ.get(BOXED) else ""
    parent = (boxed or parent_of(project)) if folder else ""
    if parent:
        from ralphproof.cli.requests import leave

        leave(folder, run, wish, project.mask)
    return parent


def _tell(run: str, args: Namespace, line: str, has_begun: bool) -> int:
    if args.json:
        put_json("detached", {"run": run, "begun": has_begun})
    else:
        put(f"{line}; look on: ralph attach {run}; end it: ralph cancel {run}")
    return 0


def ordered(run: str, folder: str | None) -> Wish:
    """The wish under which a run was ordered."""
    project = Project.at(folder, os.environ)
    kept = kept_wish(RunFolder(project.root, run, project.store))
    if kept is None:
        raise Refused(f"no run was ordered as {run}; --begin is for ralph itself, ralph run begins one")
    return kept[0]
