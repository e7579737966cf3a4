"""An index beside the user's own, for as long as one commit takes."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

PREFIX = "ralph-index-"  # the number of the process that made it follows


class IndexBeside:
    """A copy of the user's index to change at will. Those that dead processes left behind are swept first."""

    def __init__(self, git_dir: str) -> None:
        self._git_dir = git_dir
        self.theirs = os.path.join(git_dir, "index")
        self.path = os.path.join(git_dir, f"{PREFIX}{os.getpid()}")
        self.copied = False

    def __enter__(self) -> Self:
        for name in os.listdir(self._git_dir):
            if name.startswith(PREFIX) and _abandoned(name):
                os.unlink(os.path.join(self._git_dir, name))
        if os.path.exists(self.theirs):
            self._copy()
        return self

    def __exit__(self, *_: object) -> None:
        for leftover in (self.path, self.path + ".lock"):
            if os.path.lexists(leftover):
                os.unlink(leftover)

    def _copy(self) -> None:
        with open(self.theirs, "rb") as source, open(self.path, "wb") as copy:
            copy.write(source.read())
            written = os.fstat(source.fileno()).st_mtime_ns
        os.utime(self.path, ns=(written, written))  # git mistrusts files as new as their index; a newer copy would not
        self.copied = True


def _abandoned(name: str) -> bool:
    """Whether nobody works with this file: its maker is gone, or had our number before us."""
    number = name.removeprefix(PREFIX).removesuffix(".lock")
    if not number.isdigit():
        return False
    if int(number) == os.getpid():
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
