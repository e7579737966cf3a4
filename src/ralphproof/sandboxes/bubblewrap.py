"""Bubblewrap: a file system, a network and processes of its own, for root and for anybody."""

from __future__ import annotations

import os
import stat

from ralphproof.sandboxes.box import BY_DESCRIPTOR, EMPTY, NOTHING, WRITE, Lack, Way
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.sandbox import Command
    from ralphproof.sandboxes.box import Box, Mount

TIOCSTI = "/proc/sys/dev/tty/legacy_tiocsti"
# The kernel's settings go by who owns them, and that is root even without a capability: a program that the kernel
# starts by itself (core_pattern) could be named there. bwrap 0.8 leaves them writable where root has a user namespace.
KERNEL, SETTINGS = "/proc", ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "driver", "mtrr")
SOMEBODY = "1000"  # who root is inside: agents refuse to work as root
INSTALL = "install it: apt install bubblewrap, dnf install bubblewrap, pacman -S bubblewrap"


class Bubblewrap:
    """`bwrap`, whose path it is given; None: it is not installed."""

    name = "bubblewrap"
    strength = "strong"
    weak: tuple[str, ...] = ()
    holds = remounts = True

    def __init__(self, program: str | None) -> None:
        self._program = program

    def lacking(self) -> Lack | None:
        """Only whether it is there: whether the kernel lets it work, nobody knows without trying."""
        return None if self._program else Lack("bwrap is not installed", INSTALL)

    def way(self, box: Box) -> Way:
        return Way(tuple(self._arguments(box)), BY_DESCRIPTOR)

    def _arguments(self, box: Box) -> Iterator[str]:
        yield self._program or "bwrap"
        # Root keeps every capability inside unless they are dropped, and could make all this writable again.
        yield from ("--unshare-all", "--cap-drop", "ALL", "--die-with-parent")
        if not box.attended or _types_for_others():
            yield "--new-session"
        if os.geteuid() == 0:
            yield from ("--unshare-user", "--uid", SOMEBODY, "--gid", SOMEBODY)
        yield from ("--proc", KERNEL, "--dev", "/dev")
        yield from _kernel() if os.geteuid() == 0 else ()
        for mount in box.mounts:
            yield from _placed(mount)
        yield from ("--remount-ro", "/", "--chdir", box.cwd or box.root)

    def ready(self, box: Box, command: Command) -> str:
        return ""

    def over(self, box: Box) -> None:
        """Nothing is left of it."""


def _types_for_others() -> bool:
    """Whether a process can put words into its terminal's input, as if somebody had typed them."""
    try:
        with open(TIOCSTI, encoding="ascii") as file:
            return file.read().strip() != "0"
    except OSError:
        return True


def _kernel() -> Iterator[str]:
    """Hold what root could set of the kernel, and cover what only root may read of it."""
    with os.scandir(KERNEL) as entries:
        for entry in entries:
            if entry.name in SETTINGS:
                yield from ("--ro-bind", entry.path, entry.path)
            elif entry.is_file(follow_symlinks=False) and not entry.stat().st_mode & stat.S_IROTH:
                yield from ("--ro-bind", NOTHING, entry.path)


def _placed(mount: Mount) -> tuple[str, ...]:
    if mount.kind == EMPTY:
        return ("--perms", "1777", "--tmpfs", mount.path)
    return ("--bind" if mount.kind == WRITE else "--ro-bind", mount.outside, mount.path)
