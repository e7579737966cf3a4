"""macOS back end: `sandbox-exec` with a generated profile."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

from ralphproof.base.errors import Refused
from ralphproof.engine.sandbox import Command
from ralphproof.sandbox.plan import (
    EMPTY_FOLDER,
    PORT_PLACEHOLDER,
    PROXY_BY_PORT,
    WRITABLE,
    BackendProblem,
    Mount,
    SandboxEntry,
    SandboxPlan,
    is_within,
)

PROGRAM = "/usr/bin/sandbox-exec"
PRIVATE_LINKS = ("/tmp", "/var", "/etc")  # noqa: S108 (links into /private; the kernel sees where they lead)
# What every program needs: the loader, time zones, certificates, the selected shell, developer tools (/usr/bin/git only
# leads to them) and harmless devices.
SYSTEM_FOLDERS = (
    "/System", "/usr/lib", "/usr/share", "/Library/Apple", "/Library/Developer", "/private/var/db/dyld",
    "/private/var/db/timezone", "/private/var/db/xcode_select_link", "/private/var/select", "/private/etc/ssl",
    "/dev/fd",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/dtracehelper")
# Users and groups, notifications, logs, temporary folders, network settings, certificate checks. Not the keychain.
MACH_SERVICES = (
    "com.apple.system.opendirectoryd.libinfo", "com.apple.system.opendirectoryd.membership",
    "com.apple.system.DirectoryService.libinfo_v1", "com.apple.system.notification_center", "com.apple.system.logger",
    "com.apple.logd", "com.apple.bsd.dirhelper", "com.apple.SystemConfiguration.configd", "com.apple.trustd",
    "com.apple.trustd.agent",
)  # fmt: skip
PROFILE_HEAD = (
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
    """The kernel sandbox of macOS. The file system is the host's: nothing can be mounted at another path."""

    name = "sandbox-exec"
    strength = "partial"
    weaknesses: tuple[str, ...] = (
        "processes of this machine can be listed",
        "a few services of macOS can be asked",
    )
    protects_paths = True
    can_remount = False

    def problem(self) -> BackendProblem | None:
        if sys.platform != "darwin":
            return BackendProblem("sandbox-exec is a part of macOS")
        return None if os.access(PROGRAM, os.X_OK) else BackendProblem(f"{PROGRAM} is not there")

    def entry(self, plan: SandboxPlan) -> SandboxEntry:
        return SandboxEntry((PROGRAM, "-p", build_profile(plan)), PROXY_BY_PORT, no_entrypoint=True)

    def prepare(self, plan: SandboxPlan, command: Command) -> str:
        return ""

    def clean_up(self, plan: SandboxPlan) -> None:
        """Nothing is left behind."""


def build_profile(plan: SandboxPlan) -> str:
    """A profile that permits what is in the plan, and nothing else."""
    places = [*plan.mounts, *([_temporary_mount(plan)] if plan.temp else [])]
    return "\n".join((
        *PROFILE_HEAD,
        *(f"(allow mach-lookup (global-name {quote_profile_string(name)}))" for name in MACH_SERVICES),
        f"(allow file-read* (literal {quote_profile_string('/')}) {_path_filters('subpath', SYSTEM_FOLDERS)})",
        f"(allow file-read* file-write-data file-ioctl {_path_filters('literal', DEVICES)})",
        f"(allow file-read-metadata {_path_filters('literal', _parent_folders(places))})",
        *(rule for mount in places for rule in _mount_rules(mount)),
        *_protection_rules(plan),
        f"(allow network-outbound (remote ip {_localhost_port(PORT_PLACEHOLDER)}))",
        *(f"(allow network-outbound (remote ip {_localhost_port(str(port))}))" for port in plan.egress.local_ports),
    )) + "\n"  # fmt: skip


def _temporary_mount(plan: SandboxPlan) -> Mount:
    """The folder that replaces every empty folder."""
    return Mount(WRITABLE, plan.temp)


def _mount_rules(mount: Mount) -> Iterator[str]:
    """Rules of one mount, overriding those of mounts above it. A mount with another source only hides the path."""
    where = _path_filters("subpath", _path_spellings(mount.path))
    if mount.kind == EMPTY_FOLDER or mount.host_path != mount.path:
        yield f"(deny file-read* file-write* {where})"
        return
    yield f"(allow file-read* {where})"
    yield f"({'allow' if mount.kind == WRITABLE else 'deny'} file-write* {where})"


def _protection_rules(plan: SandboxPlan) -> Iterator[str]:
    """Deny the creation of placeholders, and moving folders away that hold protected paths."""
    for path in plan.protection.placeholders:
        yield f"(deny file-write* {_path_filters('subpath', _path_spellings(path))})"
    held = [*plan.protection.placeholders, *(mount.path for mount in plan.mounts if mount.kind != WRITABLE)]
    written = [*(mount.path for mount in plan.mounts if mount.kind == WRITABLE), *([plan.temp] if plan.temp else [])]
    above = {over for path in held for top in written if is_within(path, top) for over in _folders_between(path, top)}
    if pins := sorted({*above, *written}):
        names = [name for path in pins for name in _path_spellings(path)]
        yield f"(deny file-write-unlink {_path_filters('literal', names)})"


def _folders_between(path: str, top: str) -> Iterator[str]:
    while is_within(path := os.path.dirname(path), top) and path != top:
        yield path


def _parent_folders(places: Iterable[Mount]) -> list[str]:
    """All folders above the mounts: resolving a path stats each of them, and the links among them."""
    found = {"/"}
    for mount in places:
        for path in _path_spellings(mount.path):
            while path != "/":
                path = os.path.dirname(path)
                found |= set(_path_spellings(path))
    return sorted({*found, *PRIVATE_LINKS, "/private"})


def _path_spellings(path: str) -> tuple[str, ...]:
    """A path as written, and as the kernel sees it."""
    if any(is_within(path, link) for link in PRIVATE_LINKS):
        return path, f"/private{path}"
    plain = path.removeprefix("/private")
    return (path, plain) if plain != path and any(is_within(plain, link) for link in PRIVATE_LINKS) else (path,)


def _path_filters(kind: str, paths: Iterable[str]) -> str:
    return " ".join(f"({kind} {quote_profile_string(path)})" for path in paths)


def _localhost_port(port: str) -> str:
    return f'"localhost:{port}"'


def quote_profile_string(text: str) -> str:
    """A string literal of the profile; raises Refused for a path that cannot be written as one."""
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text) or PORT_PLACEHOLDER in text:
        raise Refused(f"sandbox-exec cannot name {text!a}: choose a path without such characters")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
