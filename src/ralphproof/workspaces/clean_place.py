"""Where clean checkouts of a project are laid, one at a time and always at the same path; and what is noted of one."""

from __future__ import annotations

import json
import os
import shutil
import stat

from ralphproof.errors import from_system
from ralphproof.value import value

TREE, LAID, KEPT, GONE = "tree", "laid.json", "kept", "gone-"


@value
class Laid:
    """What lies in the place: for whom it was laid, as the how manieth for their work, and whether it is prepared.

    `names` are those by which it is kept what prepares it: told before anything ran there.
    """

    whom: str
    number: int
    ready: bool = False
    names: tuple[str, ...] = ()


class CleanPlace:
    """A folder of ours in which a checkout lies while it is needed. It goes in one step: nobody finds half of one."""

    def __init__(self, folder: str) -> None:
        self.folder, self.tree = folder, os.path.join(folder, TREE)

    @property
    def laid(self) -> Laid | None:
        """What lies there; None where nothing does, or it is not known what."""
        try:
            with open(os.path.join(self.folder, LAID), encoding="utf-8") as file:
                told = json.loads(file.read(1 << 16))
            found = Laid(told["whom"], told["number"], told["ready"], tuple(told["names"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return found if os.path.isdir(os.path.join(self.tree, ".git")) else None

    def note(self, laid: Laid) -> None:
        """Note what lies there."""
        file = os.path.join(self.folder, LAID)
        told = {"whom": laid.whom, "number": laid.number, "ready": laid.ready, "names": laid.names}
        try:
            with open(f"{file}.tmp", "w", encoding="utf-8") as draft:
                draft.write(json.dumps(told))
            os.replace(f"{file}.tmp", file)
        except OSError as error:
            raise from_system(error) from error

    def clear(self) -> None:
        """Make room: what lies there is gone, and so is what earlier ones left."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            if os.path.lexists(self.tree):
                os.rename(self.tree, os.path.join(self.folder, GONE + os.urandom(4).hex()))
            if os.path.lexists(note := os.path.join(self.folder, LAID)):
                os.unlink(note)
            gone = [name for name in os.listdir(self.folder) if name.startswith(GONE)]
        except OSError as error:
            raise from_system(error) from error
        for name in gone:
            remove(os.path.join(self.folder, name))

    def leave(self) -> None:
        """Nobody needs it any more: only what is kept for the next one stays."""
        if not os.path.isdir(self.folder):
            return
        self.clear()
        if not os.listdir(self.folder):
            os.rmdir(self.folder)


def remove(path: str) -> None:
    """Remove a folder with all that is in it, also where folders of it may not be written. No link is followed.

    What belongs to another user, as in a container, may stay: who clears up next tries again.
    """
    shutil.rmtree(path, ignore_errors=True)
    if os.path.isdir(path) and not os.path.islink(path):
        _open_up(path)
        shutil.rmtree(path, ignore_errors=True)


def _open_up(path: str) -> None:
    """Make a folder and those in it one that may be written."""
    try:
        os.chmod(path, stat.S_IRWXU)
        inner = [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for folder in inner:
        _open_up(folder)
