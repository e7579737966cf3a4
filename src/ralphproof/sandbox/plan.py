"""SandboxPlan: what one sandboxed command can reach; Backend protocol; files between runner and launcher."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence

from ralphproof.base.files import replace_file
from ralphproof.base.value import Protocol, pack, unpack, value
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


def is_within(path: str, folder: str) -> bool:
    """Whether a path is this folder or below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def nearest_mount(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that shows this path, or covers it; None if none does."""
    return next((one for one in reversed(mounts) if is_within(path, one.path)), None)


def visible_mounts(mounts: Sequence[Mount]) -> list[Mount]:
    """Mounts that no later one covers."""
    return [one for at, one in enumerate(mounts) if not any(is_within(one.path, top.path) for top in mounts[at + 1 :])]


def expand_home(path: str, home: str) -> str:
    """A path that may begin with `~/`."""
    return os.path.normpath(os.path.join(home, path.removeprefix("~/")))


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
class Protection:
    """Protected paths of the project: `names` exist, and are relative to its root, for display.

    `placeholders` do not exist on the host and must not be created: placeholder files and folders are mounted over
    meanwhile. `folders` are the folders among them, and those above them. `hidden` are files among them that are
    invisible inside: an empty file is mounted over them.
    """

    names: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(path for path in self.placeholders if path not in self.folders)


@value
class SandboxPlan:
    """Everything that one command can reach.

    `mounts` are the whole file system. `passed_variables` names variables that are passed in (a star at the end matches
    every name with that prefix), `variables` are set. `temp` is a private host folder for back ends without a file
    system of their own. An `interactive` command has a user at its terminal.
    """

    root: str
    home: str
    temp: str
    mounts: tuple[Mount, ...]
    egress: EgressPolicy = EgressPolicy()
    limits: ResourceLimits = ResourceLimits()
    passed_variables: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    protection: Protection = Protection()
    cwd: str = ""
    interactive: bool = False

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
    replace_file(path, json.dumps(pack(spec)).encode(), durable=False)


def read_launch_spec(path: str) -> LaunchSpec:
    with open(path, "rb") as file:
        spec = unpack(json.load(file))
    if not isinstance(spec, LaunchSpec):
        raise TypeError(f"{path} is no launch spec")
    return spec


def write_launch_report(path: str, entered: bool, limit_reached: str) -> None:
    replace_file(path, json.dumps(pack(LaunchReport(entered, limit_reached))).encode(), durable=False)


def read_launch_report(path: str) -> LaunchReport | None:
    """None if the launcher was killed before it could report."""
    try:
        with open(path, "rb") as file:
            stay = unpack(json.load(file))
    except (OSError, ValueError, TypeError):
        return None
    return stay if isinstance(stay, LaunchReport) else None


# Environment variables that are passed into a sandbox: an allow-list.


# Certificate stores: each names a file or folder that is mounted.
CERTIFICATE_VARIABLES = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
    "NIX_SSL_CERT_FILE", "PIP_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "DENO_CERT", "HEX_CACERTS_PATH", "COMPOSER_CAFILE",
)  # fmt: skip
# None of these holds a key, a socket, another program to start or a proxy.
ALLOWED_VARIABLES = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "PWD", "TZ", "LANG", "LANGUAGE", "LC_*",
    "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES",
    "CI", "SOURCE_DATE_EPOCH", "VIRTUAL_ENV", "CONDA_PREFIX",
    # Facts about the run. Our state folder and settings are not among them.
    "TASK_FOLDER", "RALPH_TURN", "RALPH_RUN_ID", "RALPH_DIR", "RALPH_ITERATION", "RALPH_MAX_ITERATIONS",
    "RALPH_PROJECT", "RALPH_TASK", "RALPH_TASK_*", "RALPH_TITLE", "RALPH_STORY", "RALPH_STORY_*", "RALPH_STAGE",
    "RALPH_MODE", "RALPH_VERIFY", "RALPH_REVIEW_*", "RALPH_PROMPT_FILE", "RALPH_FEEDBACK", "RALPH_CRITERIA",
    "RALPH_PRD", "RALPH_MESSAGE", "RALPH_STATUS", "RALPH_EVENT", "RALPH_HOOKED", "RALPH_SANDBOX",
    "RALPH_CHARS_PER_TOKEN", "RALPH_HOOK", "RALPH_VERDICT", "RALPH_OUTCOME", "RALPH_REASON", "RALPH_PROOF",
    "RALPH_EXIT_CODE", "RALPH_PROJECT_DIR", "RALPH_RUN_DIR",
    *CERTIFICATE_VARIABLES,
    # Behaviour of Python; not what it runs first (PYTHONSTARTUP), nor where it is (PYTHONHOME).
    "PYTHONPATH", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED",
    "PYTHONWARNINGS", "PYTHONFAULTHANDLER", "PYTHONDEVMODE", "PYTHONOPTIMIZE", "PYTHONSAFEPATH", "PYTHONNOUSERSITE",
    # Locations of tools in the home folder.
    "PYENV_ROOT", "PYENV_VERSION", "NVM_DIR", "NVM_BIN", "FNM_DIR", "FNM_MULTISHELL_PATH", "VOLTA_HOME", "NODENV_ROOT",
    "N_PREFIX", "PNPM_HOME", "BUN_INSTALL", "DENO_INSTALL", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR",
    "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "CARGO_HOME", "RBENV_ROOT", "SDKMAN_DIR", "JENV_ROOT", "JAVA_HOME", "GOENV_ROOT",
    "GOROOT", "GOPATH", "PHPENV_ROOT", "OPAMROOT", "DOTNET_ROOT", "HOMEBREW_PREFIX", "HOMEBREW_CELLAR",
    "HOMEBREW_REPOSITORY", "UV_PYTHON_INSTALL_DIR", "UV_TOOL_DIR", "PIPX_HOME", "RYE_HOME", "MAMBA_ROOT_PREFIX",
)  # fmt: skip


def filter_environment(env: Mapping[str, str], keeps: Iterable[str]) -> dict[str, str]:
    """Variables on the list. A star at the end of a name matches every name with that prefix."""
    names = set(keeps)
    beginnings = tuple(name[:-1] for name in names if name.endswith("*"))
    return {name: text for name, text in env.items() if name in names or (beginnings and name.startswith(beginnings))}


TURN_VARIABLE = "RALPH_TURN"  # by which whoever owns a command finds its processes


def passed_variable_names(plan: SandboxPlan, present: Iterable[str]) -> tuple[str, ...]:
    """Those of `present` that the plan passes, those that it sets, and the turn's mark.

    For back ends whose entering program must be given the names.
    """
    kept = filter_environment(dict.fromkeys(sorted(present), ""), plan.passed_variables)
    return tuple(dict.fromkeys((*kept, *(name for name, _ in plan.variables), TURN_VARIABLE)))
