"""SandboxPlan: mounts, egress and limits of one sandboxed command; the Backend protocol; the launch spec and report files."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING, Protocol, pack, unpack, value

if TYPE_CHECKING:
    from ralphproof.engine.sandbox import Command


# What can be reached from inside a sandbox, and how one of any kind is entered.


# What a place is inside: as it is outside but never written, writable, or a fresh folder that is gone afterwards.
READ_ONLY, WRITABLE, EMPTY_FOLDER = "read", "write", "empty"
# How the program inside and the proxy outside meet: by an inherited descriptor, a socket in a folder that is mounted, a
# port of this machine, or not at all because the sandbox has a proxy of its own.
PROXY_BY_DESCRIPTOR, PROXY_BY_SOCKET, PROXY_BY_PORT, PROXY_BUILT_IN = "descriptor", "socket", "port", "itself"
PORT_PLACEHOLDER = "{port}"  # what the outer program puts into the argument list of a bare box when it knows it
PROXY_SOCKET_FOLDER = "/run/ralph"  # where a container sees the folder of the meeting

DEV_NULL = "/dev/null"  # what lies over a file that must not come to be
BLANK_FILE = "blank"  # an empty file of ours, which is seen in the place of one that is not there


@value
class Mount:
    """One place of the machine as it is inside. Those that come later lie over those before them.

    `source` is the place outside; empty: the same path.
    """

    kind: str
    path: str
    source: str = ""

    @property
    def host_path(self) -> str:
        return self.source or self.path


@value
class EgressPolicy:
    """What can be called from inside. A host is `name`, `*.name`, or either with `:port`; no entry means none.

    `private:name:port` may lie in a private network: the user says so. `local_ports` are ports of this machine.
    """

    hosts: tuple[str, ...] = ()
    local_ports: tuple[int, ...] = ()


@value
class ResourceLimits:
    """What all processes of one command may use together; 0 is not limited."""

    memory_bytes: int = 0
    processes: int = 0


@value
class SandboxPlan:
    """Everything that one command can reach.

    `mounts` are all there is of the file system. `placeholders` are those of their places that are not there outside, and
    must not come to be: something lies over them meanwhile. Of these, and of what lies above them, `placeholder_folders` are
    folders. `passed_variables` names the variables that stay (a star at the end of one stands for all that begin so), and `variables`
    gives others. `temp` is a private folder outside, for kinds that have no file system of their own. `names` are the
    protected paths among the mounts, from the root, for people. One that is `interactive` has somebody at its terminal.
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
        """Those of the ghosts that are seen nowhere: inside an empty file lies over them."""
        blank = {mount.path for mount in self.mounts if mount.source.endswith("/" + BLANK_FILE)}
        return tuple(path for path in self.placeholders if path in blank)

    @property
    def socket_folder(self) -> str:
        """The folder of the socket at which a container meets the outer program."""
        return self.temp + "/meeting"


@value
class LandlockRules:
    """What a process forbids itself, where the kernel offers nothing better (Landlock)."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    ports: tuple[int, ...] = ()


@value
class SandboxEntry:
    """How a box is entered: what stands before the program's own argument list, and how the network is reached.

    `landlock` is what the program inside is to forbid itself first. `env` is for the entering program alone. A box that
    is `no_entrypoint` has nobody of ours inside: its program is started as it is. A program that is `gets_group_signals` by signals to
    all processes of its turn has none passed on to it: a second one often means "at once".
    """

    argv: tuple[str, ...]
    proxy_access: str
    landlock: LandlockRules | None = None
    env: tuple[tuple[str, str], ...] = ()
    no_entrypoint: bool = False
    gets_group_signals: bool = True


@value
class BackendProblem:
    """Why a kind of sandbox cannot be used here, and how to mend that; both in one clause."""

    why: str
    remedy: str = ""


class Backend(Protocol):
    """One kind of sandbox."""

    name: str
    strength: str  # strong or partial
    weaknesses: tuple[str, ...]  # what it does not hold, each in one clause
    protects_paths: bool  # whether paths inside the project can be held read-only
    can_remount: bool  # whether a place can be shown at another path

    def problem(self) -> BackendProblem | None:
        """What is missing here, as far as can be told without trying."""

    def entry(self, plan: SandboxPlan) -> SandboxEntry:
        """How this box is entered."""

    def prepare(self, plan: SandboxPlan, command: Command) -> str:
        """Do what comes before every command; why that failed, if it did."""

    def clean_up(self, plan: SandboxPlan) -> None:
        """Do what comes after every command."""


# What the outer program of a boxed command is told, and what it reports; both are small files beside the turn's.


@value
class LaunchSpec:
    """A box, how it is entered, and where things are written: what was called (`audit_file`), and how it went (`report_file`).

    `lock_file` is held for as long as the program lives.
    """

    plan: SandboxPlan
    entry: SandboxEntry
    audit_file: str
    report_file: str
    lock_file: str = ""


@value
class LaunchReport:
    """How it went: whether the program inside was reached at all, and the limit that it reached."""

    entered: bool
    limit_reached: str = ""


def write_launch_spec(path: str, spec: LaunchSpec) -> None:
    """For the owner's eyes alone; whole or not at all."""
    import json

    _write_private_json(path, json.dumps(pack(spec), ensure_ascii=True).encode())


def read_launch_spec(path: str) -> LaunchSpec:
    import json

    with open(path, "rb") as file:
        spec = unpack(json.load(file))
    if not isinstance(spec, LaunchSpec):
        raise TypeError(f"{path} is no load")
    return spec


def write_launch_report(path: str, entered: bool, limit_reached: str) -> None:
    import json

    _write_private_json(path, json.dumps(pack(LaunchReport(entered, limit_reached))).encode())


def read_launch_report(path: str) -> LaunchReport | None:
    """How it went; None where the outer program was ended before it could say so."""
    import json

    try:
        with open(path, "rb") as file:
            stay = unpack(json.load(file))
    except (OSError, ValueError, TypeError):
        return None
    return stay if isinstance(stay, LaunchReport) else None


def remove_temp_folder(folder: str) -> None:
    """Remove the temporary folder of a command, whatever its program made of it. Nobody uses it any more."""
    import shutil

    if folder and os.path.isdir(folder):
        shutil.rmtree(folder, ignore_errors=True)
        for top, folders, _ in os.walk(folder):  # what is left could not be entered
            for path in (top, *(os.path.join(top, name) for name in folders)):
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
        shutil.rmtree(folder, ignore_errors=True)


def _write_private_json(path: str, data: bytes) -> None:
    draft = f"{path}.{os.getpid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(draft, flags, 0o600), "wb") as file:
        file.write(data)  # all of it, or an error: a full disk takes a part
    os.replace(draft, path)
