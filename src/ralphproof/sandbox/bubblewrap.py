"""Bubblewrap back end (`bwrap`)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from ralphproof.engine.sandbox import Command
from ralphproof.sandbox.plan import (
    DEV_NULL,
    EMPTY_FOLDER,
    PROXY_BY_DESCRIPTOR,
    WRITABLE,
    BackendProblem,
    Mount,
    SandboxEntry,
    SandboxPlan,
)

TIOCSTI_SETTING = "/proc/sys/dev/tty/legacy_tiocsti"
# Kernel settings are guarded by ownership, and root owns them even without capabilities: it could name a program that
# the kernel starts by itself (core_pattern). bwrap 0.8 leaves them writable where root has a user namespace.
PROC_FOLDER, KERNEL_SETTINGS = "/proc", ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "driver", "mtrr")
UNPRIVILEGED_ID = "1000"  # who root is inside: agents refuse to work as root
INSTALL_ADVICE = "install it: apt install bubblewrap, dnf install bubblewrap, pacman -S bubblewrap"


class Bubblewrap:
    """`program` is the path of `bwrap`; None if it is not installed."""

    name = "bubblewrap"
    strength = "strong"
    weaknesses: tuple[str, ...] = ()
    protects_paths = can_remount = True

    def __init__(self, program: str | None) -> None:
        self._program = program

    def problem(self) -> BackendProblem | None:
        """Only whether it is installed; whether the kernel permits it is found by the self-test."""
        return None if self._program else BackendProblem("bwrap is not installed", INSTALL_ADVICE)

    def entry(self, plan: SandboxPlan) -> SandboxEntry:
        return SandboxEntry(tuple(self._arguments(plan)), PROXY_BY_DESCRIPTOR)

    def _arguments(self, plan: SandboxPlan) -> Iterator[str]:
        yield self._program or "bwrap"
        # Root keeps every capability inside unless they are dropped, and could make all this writable again.
        yield from ("--unshare-all", "--cap-drop", "ALL", "--die-with-parent")
        if not plan.interactive or _allows_tiocsti():
            yield "--new-session"
        if os.geteuid() == 0:
            yield from ("--unshare-user", "--uid", UNPRIVILEGED_ID, "--gid", UNPRIVILEGED_ID)
        yield from ("--proc", PROC_FOLDER, "--dev", "/dev")
        yield from _kernel_arguments() if os.geteuid() == 0 else ()
        for mount in plan.mounts:
            yield from _mount_arguments(mount)
        yield from ("--remount-ro", "/", "--chdir", plan.cwd or plan.root)

    def prepare(self, plan: SandboxPlan, command: Command) -> str:
        return ""

    def clean_up(self, plan: SandboxPlan) -> None:
        """Bubblewrap leaves nothing behind."""


def _allows_tiocsti() -> bool:
    """Whether a process can inject input into its terminal (TIOCSTI)."""
    try:
        with open(TIOCSTI_SETTING, encoding="ascii") as file:
            return file.read().strip() != "0"
    except OSError:
        return True


def _kernel_arguments() -> Iterator[str]:
    """Mount kernel settings that root could write read-only, and hide files of /proc that only root may read."""
    with os.scandir(PROC_FOLDER) as entries:
        for entry in entries:
            if entry.name in KERNEL_SETTINGS:
                yield from ("--ro-bind", entry.path, entry.path)
            elif entry.is_file(follow_symlinks=False) and not entry.stat().st_mode & stat.S_IROTH:
                yield from ("--ro-bind", DEV_NULL, entry.path)


def _mount_arguments(mount: Mount) -> tuple[str, ...]:
    if mount.kind == EMPTY_FOLDER:
        return ("--perms", "1777", "--tmpfs", mount.path)
    return ("--bind" if mount.kind == WRITABLE else "--ro-bind", mount.host_path, mount.path)
