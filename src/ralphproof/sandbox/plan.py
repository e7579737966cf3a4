"""SandboxPlan: mounts, egress and limits of one sandboxed command; Backend protocol; launch spec and report files."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING, Protocol, pack, unpack, value

if TYPE_CHECKING:
    from ralphproof.engine.sandbox import Command


# Kinds of mounts: read-only, writable, or an empty folder that is discarded afterwards.
READ_ONLY, WRITABLE, EMPTY_FOLDER = "read", "write", "empty"
# How the program inside reaches the proxy outside: an inherited descriptor, a socket in a mounted folder, a port of
# this machine, or the sandbox's own proxy.
PROXY_BY_DESCRIPTOR, PROXY_BY_SOCKET, PROXY_BY_PORT, PROXY_BUILT_IN = "descriptor", "socket", "port", "itself"
PORT_PLACEHOLDER = "{port}"  # replaced in the argument list of an entry without entrypoint
PROXY_SOCKET_FOLDER = "/run/ralph"  # where a container sees `socket_folder`

DEV_NULL = "/dev/null"  # mounted over a file that must not be created
BLANK_FILE = "blank"  # an empty file of ours that is mounted over a missing one


@value
class Mount:
    """A path inside a sandbox; later mounts cover earlier ones. `source` is the host path if it differs."""

    kind: str
    path: str
    source: str = ""

    @property
    def host_path(self) -> str:
        return self.source or self.path


@value
class EgressPolicy:
    """Allowed outgoing connections. A host is `name`, `*.name`, or either with `:port`; without entries nothing is
    allowed.

    `private:name:port` may resolve to a private network. `local_ports` are ports of this machine.
    """

    hosts: tuple[str, ...] = ()
    local_ports: tuple[int, ...] = ()


@value
class ResourceLimits:
    """Limits of all processes of one command together; 0 is unlimited."""

    memory_bytes: int = 0
    processes: int = 0


@value
class SandboxPlan:
    """Everything that one command can reach.

    `mounts` are the whole file system. `placeholders` are mount paths that do not exist on the host and must not be
    created: placeholder files and folders are mounted over meanwhile; `placeholder_folders` are the folders among them,
    and those above them. `passed_variables` names variables that are passed in (a star at the end matches every name
    with that prefix), `variables` are set. `temp` is a private host folder for back ends without a file system of their
    own. `names` are protected paths relative to the root, for display. An `interactive` command has a user at its
    terminal.
    """

    root: str
    home: str
    temp: str
    mounts: tuple[Mount, ...]
    egress: EgressPolicy = EgressPolicy()
    limits: ResourceLimits = ResourceLimits()
    passed_variables: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    placeholders: tuple[str, ...] = ()
    placeholder_folders: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    cwd: str = ""
    interactive: bool = False

    @property
    def placeholder_files(self) -> tuple[str, ...]:
        return tuple(path for path in self.placeholders if path not in self.placeholder_folders)

    @property
    def hidden_placeholders(self) -> tuple[str, ...]:
        """Placeholders that are invisible inside: an empty file is mounted over them."""
        blank = {mount.path for mount in self.mounts if mount.source.endswith("/" + BLANK_FILE)}
        return tuple(path for path in self.placeholders if path in blank)

    @property
    def socket_folder(self) -> str:
        """Folder of the Unix socket by which a container reaches the launcher."""
        return self.temp + "/meeting"


@value
class LandlockRules:
    """Rules that a process applies to itself (Landlock)."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    ports: tuple[int, ...] = ()


@value
class SandboxEntry:
    """How a sandbox is entered: the words before the program's command line, and how the proxy is reached.

    `landlock` are rules that the entrypoint applies first. `env` is for the entering program alone. With
    `no_entrypoint` the program is executed without our entrypoint. If the program `gets_group_signals` by itself, none
    is forwarded: a second one often means "at once".
    """

    argv: tuple[str, ...]
    proxy_access: str
    landlock: LandlockRules | None = None
    env: tuple[tuple[str, str], ...] = ()
    no_entrypoint: bool = False
    gets_group_signals: bool = True


@value
class BackendProblem:
    """Why a back end cannot be used here, and the remedy; both in one clause."""

    why: str
    remedy: str = ""


class Backend(Protocol):
    """One kind of sandbox."""

    name: str
    strength: str  # strong or partial
    weaknesses: tuple[str, ...]  # what it does not enforce, each in one clause
    protects_paths: bool  # whether paths inside the project can be read-only
    can_remount: bool  # whether a host path can be mounted at another path

    def problem(self) -> BackendProblem | None:
        """What is missing here, as far as can be told without a self-test."""

    def entry(self, plan: SandboxPlan) -> SandboxEntry:
        """How the sandbox of this plan is entered."""

    def prepare(self, plan: SandboxPlan, command: Command) -> str:
        """Called before every command; the reason if it failed."""

    def clean_up(self, plan: SandboxPlan) -> None:
        """Called after every command."""


# Files between runner and launcher, beside those of the turn.


@value
class LaunchSpec:
    """A plan, its entry, and the files of the launcher: audit log, report, and a lock that it holds while it lives."""

    plan: SandboxPlan
    entry: SandboxEntry
    audit_file: str
    report_file: str
    lock_file: str = ""


@value
class LaunchReport:
    """Whether the program inside was started, and the resource limit that it reached."""

    entered: bool
    limit_reached: str = ""


def write_launch_spec(path: str, spec: LaunchSpec) -> None:
    """Written atomically, readable by the owner alone."""
    import json

    _write_private_json(path, json.dumps(pack(spec), ensure_ascii=True).encode())


def read_launch_spec(path: str) -> LaunchSpec:
    import json

    with open(path, "rb") as file:
        spec = unpack(json.load(file))
    if not isinstance(spec, LaunchSpec):
        raise TypeError(f"{path} is no launch spec")
    return spec


def write_launch_report(path: str, entered: bool, limit_reached: str) -> None:
    import json

    _write_private_json(path, json.dumps(pack(LaunchReport(entered, limit_reached))).encode())


def read_launch_report(path: str) -> LaunchReport | None:
    """None if the launcher was killed before it could report."""
    import json

    try:
        with open(path, "rb") as file:
            stay = unpack(json.load(file))
    except (OSError, ValueError, TypeError):
        return None
    return stay if isinstance(stay, LaunchReport) else None


def remove_temp_folder(folder: str) -> None:
    """Remove the temporary folder of a command that has ended, whatever modes its program set."""
    import shutil

    if folder and os.path.isdir(folder):
        shutil.rmtree(folder, ignore_errors=True)
        for top, folders, _ in os.walk(folder):  # the rest could not be entered
            for path in (top, *(os.path.join(top, name) for name in folders)):
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
        shutil.rmtree(folder, ignore_errors=True)


def _write_private_json(path: str, data: bytes) -> None:
    draft = f"{path}.{os.getpid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(draft, flags, 0o600), "wb") as file:
        file.write(data)  # raises if the disk is full
    os.replace(draft, path)
