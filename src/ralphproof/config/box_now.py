"""Mounts that were planned when a run began, as they are now: files come and go while it lasts."""

from __future__ import annotations

import os

from ralphproof.sandboxes.box import EMPTY, READ, Mount
from ralphproof.sandboxes.places import within
from ralphproof.sandboxes.roots import sockets_in
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def as_now(mounts: Sequence[Mount], covers: tuple[str, ...]) -> list[Mount]:
    """The same without what is gone, which nothing can be laid over, and with sockets covered that came since.

    `covers` are what lies over a place to hide it.
    """
    there = [one for place, one in enumerate(mounts) if one.kind == EMPTY or _there(one, mounts[:place], covers)]
    known = {one.path for one in there}
    shown = [one for one in there if one.kind == READ and one.source not in covers]
    return [*there, *(one for one in sockets_in(shown) if one.path not in known and not _under(one.path, there))]


def _there(mount: Mount, before: Sequence[Mount], covers: tuple[str, ...]) -> bool:
    return os.path.lexists(covered_place(mount, before, covers) if mount.source in covers else mount.outside)


def _under(path: str, mounts: Sequence[Mount]) -> bool:
    """Whether something fresh lies over a path already."""
    over = next((one for one in reversed(mounts) if within(path, one.path)), None)
    return over is not None and over.kind == EMPTY


def covered_place(cover: Mount, before: Sequence[Mount], covers: tuple[str, ...]) -> str:
    """The place of the machine that a cover hides."""
    over = next((one for one in reversed(before) if within(cover.path, one.path) and one.source not in covers), cover)
    inner = os.path.relpath(cover.path, over.path)
    return cover.path if over is cover else os.path.normpath(os.path.join(over.outside, inner))
