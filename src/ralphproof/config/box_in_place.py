"""A box where no place can be shown elsewhere: a home of links, and a temporary folder that is a real one."""

from __future__ import annotations

import os

from ralphproof.config.box_now import covered_place
from ralphproof.sandboxes.box import EMPTY, READ, WRITE, Mount
from ralphproof.sandboxes.places import within
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def in_place(mounts: Sequence[Mount], temp: str, home: str, store: str, covers: tuple[str, ...]) -> list[Mount]:
    """The same mounts at their own places. What lies over something, to hide it, hides it where that is."""
    made = home_in(temp)
    _remove(made)  # a turn that is taken up again: what was left there is not ours
    os.makedirs(made, mode=0o700)
    linked: list[str] = []
    for mount in mounts:
        if mount.kind == EMPTY or mount.source in covers:
            continue
        for theirs, here in ((store, store), (home, made)):
            if within(mount.path, theirs) and mount.path != theirs:
                if mount.source or here == made:
                    _link(os.path.join(here, os.path.relpath(mount.path, theirs)), mount.outside, linked, store)
                break
    plain = [_plain(mount, mounts[:place], covers) for place, mount in enumerate(mounts) if _stays(place, mounts)]
    return [*plain, Mount(WRITE, temp)]


def home_in(temp: str) -> str:
    return os.path.join(temp, "home")


def _stays(place: int, mounts: Sequence[Mount]) -> bool:
    """A fresh folder is not there. It stays where it hides something."""
    mount = mounts[place]
    return mount.kind != EMPTY or any(one.kind == READ and within(mount.path, one.path) for one in mounts[:place])


def _plain(mount: Mount, before: Sequence[Mount], covers: tuple[str, ...]) -> Mount:
    if mount.kind == EMPTY:
        return mount
    if mount.source not in covers:
        return Mount(mount.kind, mount.outside)
    return Mount(READ, covered_place(mount, before, covers), mount.source)


def _link(place: str, source: str, linked: list[str], store: str) -> None:
    """A link in a folder of ours, over one that was there before; never in a folder that a link of ours leads to."""
    if any(within(place, one) for one in linked):
        return
    folder = os.path.dirname(place)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.path.islink(place) or (os.path.isfile(place) and not os.path.getsize(place)):
        os.unlink(place)
    if not os.path.lexists(place):
        os.symlink(source, place)
    if not within(source, store):
        linked.append(place)


def _remove(folder: str) -> None:
    import shutil

    if os.path.islink(folder):
        os.unlink(folder)
    shutil.rmtree(folder, ignore_errors=True)
