"""macOS: `sandbox-exec` with a profile that is written from the box. In a profile the last rule that fits counts."""

from __future__ import annotations

import os
import sys

from ralphproof.errors import Refused
from ralphproof.sandboxes.box import BY_PORT, EMPTY, PORT, WRITE, Lack, Way
from ralphproof.sandboxes.places import within
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ralphproof.sandbox import Command
    from ralphproof.sandboxes.box import Box, Mount

PROGRAM = "/usr/bin/sandbox-exec"
PRIVATE = ("/tmp", "/var", "/etc")  # noqa: S108 (links into /private; the kernel sees where they lead)
# What a program needs before it can do anything at all: the loader, the time zone, certificates, which shell is meant,
# the tools of developers (/usr/bin/git only leads to them), and harmless devices.
SYSTEM = (
    "/System", "/usr/lib", "/usr/share", "/Library/Apple", "/Library/Developer", "/private/var/db/dyld",
    "/private/var/db/timezone", "/private/var/db/xcode_select_link", "/private/var/select", "/private/etc/ssl",
    "/dev/fd",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/dtracehelper")
# Users and groups, notices, logs, temporary folders, network settings, the check of certificates. Not the keychain.
SERVICES = (
    "com.apple.system.opendirectoryd.libinfo", "com.apple.system.opendirectoryd.membership",
    "com.apple.system.DirectoryService.libinfo_v1", "com.apple.system.notification_center", "com.apple.system.logger",
    "com.apple.logd", "com.apple.bsd.dirhelper", "com.apple.SystemConfiguration.configd", "com.apple.trustd",
    "com.apple.trustd.agent",
)  # fmt: skip
BEGIN = (
    "(version 1)",
    "(deny default)",
    "(allow process-exec)",
    "(allow process-fork)",
    "(allow signal (target same-sandbox))",
    "(allow process-info* (target same-sandbox))",
    "(allow sysctl-read)",
    "(allow ipc-posix-sem)",
    '(allow ipc-posix-shm-read-data (ipc-posix-name "apple.shm.notification_center"))',
    "(allow pseudo-tty)",
)


class SandboxExec:
    """The kernel's sandbox of macOS. The file system is the machine's own: nothing can be shown at another path."""

    name = "sandbox-exec"
    strength = "partial"
    weak: tuple[str, ...] = (
        "processes of this machine can be listed",
        "a few services of macOS can be asked",
    )
    holds = True
    remounts = False

    def lacking(self) -> Lack | None:
        if sys.platform != "darwin":
            return Lack("sandbox-exec is a part of macOS")
        return None if os.access(PROGRAM, os.X_OK) else Lack(f"{PROGRAM} is not there")

    def way(self, box: Box) -> Way:
        return Way((PROGRAM, "-p", profile(box)), BY_PORT, bare=True)

    def ready(self, box: Box, command: Command) -> str:
        return ""

    def over(self, box: Box) -> None:
        """Nothing is left of it."""


def profile(box: Box) -> str:
    """The rules that let a program reach what is in the box and nothing else."""
    places = [*box.mounts, *([_temporary(box)] if box.temp else [])]
    return "\n".join((
        *BEGIN,
        *(f"(allow mach-lookup (global-name {quoted(name)}))" for name in SERVICES),
        f"(allow file-read* (literal {quoted('/')}) {_each('subpath', SYSTEM)})",
        f"(allow file-read* file-write-data file-ioctl {_each('literal', DEVICES)})",
        f"(allow file-read-metadata {_each('literal', _above(places))})",
        *(rule for mount in places for rule in _rules(mount)),
        *_held(box),
        f"(allow network-outbound (remote ip {_local(PORT)}))",
        *(f"(allow network-outbound (remote ip {_local(str(port))}))" for port in box.egress.local_ports),
    )) + "\n"  # fmt: skip


def _temporary(box: Box) -> Mount:
    """What stands for every fresh folder."""
    from ralphproof.sandboxes.box import Mount

    return Mount(WRITE, box.temp)


def _rules(mount: Mount) -> Iterator[str]:
    """What holds for a place, whatever was said of those above it. One with another source is there to be hidden."""
    where = _each("subpath", _names(mount.path))
    if mount.kind == EMPTY or mount.outside != mount.path:
        yield f"(deny file-read* file-write* {where})"
        return
    yield f"(allow file-read* {where})"
    yield f"({'allow' if mount.kind == WRITE else 'deny'} file-write* {where})"


def _held(box: Box) -> Iterator[str]:
    """What must not come to be; and folders that could be moved away: with what is held in them, or as a whole."""
    for path in box.ghosts:
        yield f"(deny file-write* {_each('subpath', _names(path))})"
    held = [*box.ghosts, *(mount.path for mount in box.mounts if mount.kind != WRITE)]
    written = [*(mount.path for mount in box.mounts if mount.kind == WRITE), *([box.temp] if box.temp else [])]
    above = {over for path in held for top in written if within(path, top) for over in _between(path, top)}
    if pins := sorted({*above, *written}):
        yield f"(deny file-write-unlink {_each('literal', [name for path in pins for name in _names(path)])})"


def _between(path: str, top: str) -> Iterator[str]:
    while within(path := os.path.dirname(path), top) and path != top:
        yield path


def _above(places: Iterable[Mount]) -> list[str]:
    """Every folder above a place: a program that goes there looks at each, and at the links among them."""
    found = {"/"}
    for mount in places:
        for path in _names(mount.path):
            while path != "/":
                path = os.path.dirname(path)
                found |= set(_names(path))
    return sorted({*found, *PRIVATE, "/private"})


def _names(path: str) -> tuple[str, ...]:
    """A path as it is written, and as the kernel sees it."""
    if any(within(path, link) for link in PRIVATE):
        return path, f"/private{path}"
    plain = path.removeprefix("/private")
    return (path, plain) if plain != path and any(within(plain, link) for link in PRIVATE) else (path,)


def _each(kind: str, paths: Iterable[str]) -> str:
    return " ".join(f"({kind} {quoted(path)})" for path in paths)


def _local(port: str) -> str:
    return f'"localhost:{port}"'


def quoted(text: str) -> str:
    """A string of the profile; raises Refused for a path that cannot be written as one."""
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text) or PORT in text:
        raise Refused(f"sandbox-exec cannot name {text!a}: choose a path without such characters")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
