"""Runs that an agent asks for from inside its turn: begun by the harness, so that they outlive the turn.

Whatever an agent starts itself ends with its turn. `ralph run --detach` inside one leaves its wish in the task folder
instead. That is the agent's own file: it says what should be run, and nothing of how it is held.
"""

from __future__ import annotations

import os
import stat

from ralphproof.cli.detach import spawn
from ralphproof.cli.notes import keep_wish, kept_wish, wish_in
from ralphproof.ledgers.folder import RunFolder, is_run_id
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.cli.order import Wish
    from ralphproof.cli.project import Project
    from ralphproof.ledgers.sqlite import Sqlite

FOLDER = "children"
MOST = 20  # that are begun at a time
MOST_BYTES = 16 << 20
ENDING = ".json"


def leave(task_folder: str, run: str, wish: Wish, mask: Callable[[str], str]) -> None:
    """Ask the harness of the turn that we are in to begin a run of this id."""
    from ralphproof.cli.notes import wish_text
    from ralphproof.ledgers.files import write_whole

    folder = os.path.join(task_folder, FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        write_whole(opened, run + ENDING, wish_text(wish, mask))
    finally:
        os.close(opened)


def begin_requested(folder: str, parent: str, project: Project, ledger: Sqlite) -> None:
    """Begin the runs that were asked for. A request that makes no sense is removed."""
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        names = sorted(name for name in os.listdir(opened) if name.endswith(ENDING))[:MOST]
        for name in names:
            _begin(opened, name, parent, project, ledger)
            try:
                os.unlink(name, dir_fd=opened)
            except OSError:
                continue  # a folder of that name asks for nothing
    finally:
        os.close(opened)


def _begin(folder: int, name: str, parent: str, project: Project, ledger: Sqlite) -> None:
    run = name.removesuffix(ENDING)
    wish = wish_in(_text(folder, name)) if is_run_id(run) else None
    if wish is None or any(row.id == run for row in ledger.runs(100)):
        return
    ours = kept_wish(RunFolder(project.root, parent, project.store))
    guarded = wish.guarded or ours is None or ours[0].guarded  # a child is held as its parent is
    root = os.path.realpath(wish.folder or project.root)
    keep_wish(RunFolder(root, run, project.store), replace(wish, guarded=guarded, folder=root), project.mask)
    spawn(run, root, project.store, {**os.environ, "RALPH_RUN_ID": parent})


def _text(folder: int, name: str) -> bytes:
    """What a request says; nothing where it is no plain file."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return b""
    try:
        return os.read(file, MOST_BYTES) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    finally:
        os.close(file)
