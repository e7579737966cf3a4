"""What this machine's podman or docker can do for us. Everything that has to be looked up is looked up here, once."""

from __future__ import annotations

import os
import sys

from ralphproof.sandboxes.box import Lack
from ralphproof.sandboxes.calling import ask
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Mapping

PODMAN, DOCKER = "podman", "docker"
ANSWER_S = 15.0
# The client's own: where it keeps its things and finds its service. None of them comes inside by this.
OWN = (
    "HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS",
    "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF",
    "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY",
)  # fmt: skip
RUNC = ("/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc", "/usr/local/bin/runc")
MOST_PROCESSES = 32768  # podman 4.3 lowers its own hard limit to this
SYS_RESOURCE = 1 << 24
CGROUP = "/sys/fs/cgroup"
INSTALL = "install podman: apt install podman uidmap, dnf install podman, pacman -S podman"


@value
class Engine:
    """A program that runs containers, and what it can do here.

    `user` is who our user is inside, where that must be said; `keeps_id`: the engine maps users itself. `runtime` is a
    low-level runtime that must be named. `files` and `processes` are limits that must be named since higher ones cannot
    be had; 0: they need not. One that holds no `ration` leaves that to whoever starts it. `env` is what the client
    needs of the environment. `lack` is why it cannot be used.
    """

    kind: str
    program: str
    user: str = ""
    keeps_id: bool = False
    runtime: str = ""
    rations: bool = True
    files: int = 0
    processes: int = 0
    env: tuple[tuple[str, str], ...] = ()
    lack: Lack | None = None


def engine_here(kind: str, program: str | None, environ: Mapping[str, str]) -> Engine:
    """This engine as it is here; `program` is its path, None where it is not installed."""
    if not program:
        return Engine(kind, "", lack=Lack("neither podman nor docker is installed", INSTALL))
    if sys.platform != "linux":
        lack = Lack("a container runs Linux programs, and those of this machine are not", "use docker-sandbox")
        return Engine(kind, program, lack=lack)
    return _podman(program, environ) if kind == PODMAN else _docker(program, environ)


def _podman(program: str, environ: Mapping[str, str]) -> Engine:
    root = os.geteuid() == 0
    if lack := None if root else _unmapped(environ):
        return Engine(PODMAN, program, lack=lack)
    unified = os.path.exists(f"{CGROUP}/cgroup.controllers")
    runc = next((path for path in RUNC if os.access(path, os.X_OK)), "")
    if not unified and not runc:
        lack = Lack("podman's crun does not work with version 1 of cgroups", "install runc: apt install runc")
        return Engine(PODMAN, program, lack=lack)
    files, processes = _named_limits() if root else (0, 0)
    # crun 1.8 refuses everything but version 2 of cgroups; runc works with both.
    runtime = "" if unified else runc
    rations = root or (unified and _delegated(os.getuid()))
    return Engine(PODMAN, program, "", not root, runtime, rations, files, processes, _own(environ))


def _docker(program: str, environ: Mapping[str, str]) -> Engine:
    """Docker's service is asked."""
    import json

    answer = ask((program, "info", "--format", "{{json .}}"), timeout_s=ANSWER_S, env=environ)
    try:
        told = json.loads(answer.out)
    except ValueError:
        told = {}
    told = told if isinstance(told, dict) else {}
    lack = _unserved(told, answer.why, environ)
    rootless = any("rootless" in str(option) for option in told.get("SecurityOptions") or ())
    user = "0:0" if rootless else f"{os.getuid()}:{os.getgid()}"
    rations = str(told.get("CgroupDriver") or "none") != "none"
    return Engine(DOCKER, program, user, rations=rations, env=_own(environ), lack=lack)


def _unserved(told: dict[str, object], why: str, environ: Mapping[str, str]) -> Lack | None:
    """Why the service behind the client is of no use."""
    if not told.get("ServerVersion"):
        mend = "start it (systemctl start docker), be in the group docker, or install podman"
        return Lack(f"the docker service does not answer ({why})", mend)
    if str(told.get("OperatingSystem", "")).startswith("Docker Desktop"):
        return Lack("Docker Desktop runs containers in another machine", "use docker-sandbox, or install podman")
    if not environ.get("DOCKER_HOST", "unix://").startswith("unix://"):
        return Lack("DOCKER_HOST names another machine, which has other files", "unset it, or install podman")
    return None


def _unmapped(environ: Mapping[str, str]) -> Lack | None:
    """What podman lacks to give a user without rights identities of its own."""
    if not _which("newuidmap", environ):
        return Lack("newuidmap is not installed", "install it: apt install uidmap, dnf install shadow-utils")
    import pwd

    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return Lack(f"the user {uid} has no name", "add it to /etc/passwd, or run as another user")
    if _some(name, uid, "/etc/subuid") and _some(name, uid, "/etc/subgid"):
        return None
    mend = f"give it some: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}"
    return Lack(f"the user {name} has no range in /etc/subuid and /etc/subgid", mend)


def _some(name: str, uid: int, path: str) -> bool:
    if any(line.startswith("subid:") for line in _lines("/etc/nsswitch.conf")):
        return True  # a directory service gives them out
    return any(line.partition(":")[0] in (name, str(uid)) for line in _lines(path))


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readlines()
    except OSError:
        return []


def _delegated(uid: int) -> bool:
    """Whether a user without rights may limit memory and processes."""
    path = f"{CGROUP}/user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers"
    return {"memory", "pids"} <= set(" ".join(_lines(path)).split())


def _named_limits() -> tuple[int, int]:
    """The limits that root must name: without CAP_SYS_RESOURCE it cannot have the engine's own."""
    import resource

    able = [int(line.split()[1], 16) for line in _lines("/proc/self/status") if line.startswith("CapEff:")]
    if any(rights & SYS_RESOURCE for rights in able):
        return 0, 0
    files, processes = (resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    unlimited = resource.RLIM_INFINITY
    most = MOST_PROCESSES if processes == unlimited else min(processes, MOST_PROCESSES)
    return (0 if files == unlimited else files), most


def _own(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, environ[name]) for name in OWN if name in environ)


def _which(program: str, environ: Mapping[str, str]) -> str:
    import shutil

    return shutil.which(program, path=environ.get("PATH", os.defpath)) or ""
