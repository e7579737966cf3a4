"""Container back end: podman and docker, with an empty image and mounts of the host."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ralphproof.base.errors import Refused
from ralphproof.base.programs import ProgramResult, find_program, run_program
from ralphproof.base.value import value
from ralphproof.engine.sandbox import Command
from ralphproof.sandbox.plan import (
    EMPTY_FOLDER,
    PROXY_BY_SOCKET,
    PROXY_SOCKET_FOLDER,
    READ_ONLY,
    BackendProblem,
    Mount,
    ResourceLimits,
    SandboxEntry,
    SandboxPlan,
    is_within,
    passed_variable_names,
    visible_mounts,
)

# Capabilities of this machine's podman or docker, looked up once.


PODMAN, DOCKER = "podman", "docker"
ENGINE_TIMEOUT_S = 15.0
# Variables that the client itself needs. They are not passed into the container.
ENGINE_VARIABLES = (
    "HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS",
    "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF",
    "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY",
)  # fmt: skip
RUNC_PATHS = ("/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc", "/usr/local/bin/runc")
MAX_PROCESSES = 32768  # podman 4.3 lowers its own hard limit to this
CAP_SYS_RESOURCE = 1 << 24
CGROUP_ROOT = "/sys/fs/cgroup"
INSTALL_ADVICE = "install podman: apt install podman uidmap, dnf install podman, pacman -S podman"


@value
class ContainerEngine:
    """A container engine, and what it can do on this machine.

    `user` is the user inside, where it must be named; with `keeps_id` the engine maps users itself. `runtime` is a
    low-level runtime that must be named. `files` and `processes` are ulimits that must be named because higher ones are
    not permitted; 0 means unnamed. An engine without `limits_resources` leaves limits to the caller. `env` is what the
    client needs of the environment. `problem` is why it cannot be used.
    """

    kind: str
    program: str
    user: str = ""
    keeps_id: bool = False
    runtime: str = ""
    limits_resources: bool = True
    files: int = 0
    processes: int = 0
    env: tuple[tuple[str, str], ...] = ()
    problem: BackendProblem | None = None


def inspect_engine(kind: str, program: str | None, environ: Mapping[str, str]) -> ContainerEngine:
    """Inspect an engine; `program` is its path, None if it is not installed."""
    if not program:
        return ContainerEngine(
            kind, "", problem=BackendProblem("neither podman nor docker is installed", INSTALL_ADVICE)
        )
    if sys.platform != "linux":
        problem = BackendProblem(
            "a container runs Linux programs, and those of this machine are not", "use docker-sandbox"
        )
        return ContainerEngine(kind, program, problem=problem)
    return _inspect_podman(program, environ) if kind == PODMAN else _inspect_docker(program, environ)


def _inspect_podman(program: str, environ: Mapping[str, str]) -> ContainerEngine:
    root = os.geteuid() == 0
    if problem := None if root else _id_mapping_problem(environ):
        return ContainerEngine(PODMAN, program, problem=problem)
    unified = os.path.exists(f"{CGROUP_ROOT}/cgroup.controllers")
    runc = next((path for path in RUNC_PATHS if os.access(path, os.X_OK)), "")
    if not unified and not runc:
        problem = BackendProblem(
            "podman's crun does not work with version 1 of cgroups", "install runc: apt install runc"
        )
        return ContainerEngine(PODMAN, program, problem=problem)
    files, processes = _explicit_ulimits() if root else (0, 0)
    # crun 1.8 refuses everything but version 2 of cgroups; runc works with both.
    runtime = "" if unified else runc
    rations = root or (unified and _cgroups_delegated(os.getuid()))
    return ContainerEngine(
        PODMAN, program, "", not root, runtime, rations, files, processes, _engine_environment(environ)
    )


def _inspect_docker(program: str, environ: Mapping[str, str]) -> ContainerEngine:
    """Asks the docker service."""
    answer = run_program((program, "info", "--format", "{{json .}}"), timeout_s=ENGINE_TIMEOUT_S, env=environ)
    try:
        info = json.loads(answer.out)
    except ValueError:
        info = {}
    info = info if isinstance(info, dict) else {}
    problem = _service_problem(info, answer.why, environ)
    rootless = any("rootless" in str(option) for option in info.get("SecurityOptions") or ())
    user = "0:0" if rootless else f"{os.getuid()}:{os.getgid()}"
    rations = str(info.get("CgroupDriver") or "none") != "none"
    return ContainerEngine(
        DOCKER, program, user, limits_resources=rations, env=_engine_environment(environ), problem=problem
    )


def _service_problem(info: dict[str, object], why: str, environ: Mapping[str, str]) -> BackendProblem | None:
    """Why the service behind the client cannot be used."""
    if not info.get("ServerVersion"):
        mend = "start it (systemctl start docker), be in the group docker, or install podman"
        return BackendProblem(f"the docker service does not answer ({why})", mend)
    if str(info.get("OperatingSystem", "")).startswith("Docker Desktop"):
        return BackendProblem(
            "Docker Desktop runs containers in another machine", "use docker-sandbox, or install podman"
        )
    if not environ.get("DOCKER_HOST", "unix://").startswith("unix://"):
        return BackendProblem("DOCKER_HOST names another machine, which has other files", "unset it, or install podman")
    return None


def _id_mapping_problem(environ: Mapping[str, str]) -> BackendProblem | None:
    """What podman lacks for rootless user namespaces."""
    if not find_program("newuidmap", environ.get("PATH", os.defpath)):
        return BackendProblem("newuidmap is not installed", "install it: apt install uidmap, dnf install shadow-utils")
    import pwd

    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return BackendProblem(f"the user {uid} has no name", "add it to /etc/passwd, or run as another user")
    if _has_subordinate_ids(name, uid, "/etc/subuid") and _has_subordinate_ids(name, uid, "/etc/subgid"):
        return None
    mend = f"give it some: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}"
    return BackendProblem(f"the user {name} has no range in /etc/subuid and /etc/subgid", mend)


def _has_subordinate_ids(name: str, uid: int, path: str) -> bool:
    if any(line.startswith("subid:") for line in _read_lines("/etc/nsswitch.conf")):
        return True  # a directory service gives them out
    return any(line.partition(":")[0] in (name, str(uid)) for line in _read_lines(path))


def _read_lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readlines()
    except OSError:
        return []


def _cgroups_delegated(uid: int) -> bool:
    """Whether an unprivileged user may limit memory and processes."""
    path = f"{CGROUP_ROOT}/user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers"
    return {"memory", "pids"} <= set(" ".join(_read_lines(path)).split())


def _explicit_ulimits() -> tuple[int, int]:
    """Ulimits that root must name: without CAP_SYS_RESOURCE it cannot have the engine's defaults."""
    import resource

    able = [int(line.split()[1], 16) for line in _read_lines("/proc/self/status") if line.startswith("CapEff:")]
    if any(rights & CAP_SYS_RESOURCE for rights in able):
        return 0, 0
    files, processes = (resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    unlimited = resource.RLIM_INFINITY
    most = MAX_PROCESSES if processes == unlimited else min(processes, MAX_PROCESSES)
    return (0 if files == unlimited else files), most


def _engine_environment(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, environ[name]) for name in ENGINE_VARIABLES if name in environ)


# Mount order: engines sort mounts by path, and make only the topmost file system read-only.


ENGINE_FOLDERS = ("/proc", "/sys", "/dev")  # the engine makes these itself


def order_mounts(mounts: Sequence[Mount], points: Iterable[str]) -> tuple[Mount, ...]:
    """The visible mounts, parents first, with file systems nested below read-only mounts named explicitly.

    `points` are the mount points of the machine. A file system below a folder that is mounted read-only stays writable
    unless it is named (podman 4.3 with runc 1.1).
    """
    wanted = [one for one in mounts if not any(is_within(one.path, own) for own in ENGINE_FOLDERS)]
    seen = visible_mounts(wanted)
    points = tuple(points)
    deeper = [found for mount in seen if mount.kind == READ_ONLY for found in _nested_file_systems(mount, seen, points)]
    return tuple(sorted((*seen, *deeper), key=lambda mount: mount.path.count("/")))


def _nested_file_systems(mount: Mount, seen: Sequence[Mount], points: Iterable[str]) -> Iterable[Mount]:
    """File systems below this mount that no other mount covers."""
    for point in points:
        if point == mount.host_path or not is_within(point, mount.host_path):
            continue
        inside = mount.path.rstrip("/") + "/" + point[len(mount.host_path.rstrip("/")) + 1 :]
        nearest = max((one for one in seen if is_within(inside, one.path)), key=lambda one: len(one.path))
        if nearest is mount and not any(is_within(inside, own) for own in ENGINE_FOLDERS):
            yield Mount(READ_ONLY, inside, point)


def mount_points(table: str = "/proc/self/mountinfo") -> tuple[str, ...]:
    """Mount points of this machine; empty where the system does not list them."""
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as file:
            return tuple(dict.fromkeys(_unescape_mount_path(line.split()[4]) for line in file))
    except OSError:
        return ()


def _unescape_mount_path(field: str) -> str:
    """Undo the kernel's octal escapes of white space and backslashes."""
    for written, meant in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(written, meant)
    return field


# The image is empty: everything inside is mounted from the host as the plan says. So nobody chooses or builds an image,
# and agent and tools are those of the host.


IMAGE = "localhost/ralphproof-empty:1"
EMPTY_ARCHIVE = bytes(10240)  # how tar writes that there is nothing
IMAGE_TIMEOUT_S, REMOVE_TIMEOUT_S = 120.0, 30.0
# Files that the engine mounts over. It cannot create them in a folder that is mounted read-only.
PODMAN_FILES, DOCKER_FILES = ("/etc/hostname",), ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")


class Container:
    """Containers of one engine. Only one command at a time runs with the same root and temporary folder."""

    name = "container"
    strength = "strong"
    weaknesses: tuple[str, ...] = ()
    protects_paths = can_remount = True

    def __init__(self, kind: str, program: str | None, environ: Mapping[str, str] | None = None) -> None:
        """`kind` is podman or docker, `program` its path; None if neither is installed."""
        self._kind, self._program, self._environ = kind, program, dict(os.environ if environ is None else environ)
        self._inspected: ContainerEngine | None = None
        self._names: tuple[str, ...] = ()
        self._image_exists = False

    @property
    def _engine(self) -> ContainerEngine:
        if self._inspected is None:
            self._inspected = inspect_engine(self._kind, self._program, self._environ)
        return self._inspected

    @property
    def engine(self) -> str:
        """The engine's name for display."""
        return self._kind

    @property
    def limited_by(self) -> str:
        """What limits memory and processes; empty where the caller has to."""
        return self._kind if self._engine.limits_resources else ""

    def problem(self) -> BackendProblem | None:
        return self._engine.problem

    def entry(self, plan: SandboxPlan) -> SandboxEntry:
        """Valid after `prepare`: the variables passed in are those of the last prepared command."""
        argv = run_arguments(
            plan, self._engine, order_mounts(plan.mounts, mount_points()), passed_variable_names(plan, self._names)
        )
        # Containers of podman are children of its client; those of docker are children of its service.
        return SandboxEntry(tuple(argv), PROXY_BY_SOCKET, env=self._engine.env, gets_group_signals=self._kind == PODMAN)

    def prepare(self, plan: SandboxPlan, command: Command) -> str:
        """Make sure that the empty image exists, and that no container of an earlier command does."""
        self._names = tuple(name for name, _ in command.env)
        if why := _missing_mount_point(plan, PODMAN_FILES if self._kind == PODMAN else DOCKER_FILES):
            return why
        if self._kind != PODMAN and not command.taken_up:  # podman replaces it by itself
            self.clean_up(plan)
        return self._ensure_image()

    def clean_up(self, plan: SandboxPlan) -> None:
        """Remove the container if it still exists."""
        how = ("--ignore", "--time", "0") if self._kind == PODMAN else ()
        self._call("rm", "--force", *how, container_name(plan), timeout_s=REMOVE_TIMEOUT_S)

    def _ensure_image(self) -> str:
        if self._image_exists:
            return ""
        if not self._call("image", "exists" if self._kind == PODMAN else "inspect", IMAGE).good:
            made = self._call("import", "-", IMAGE, stdin=EMPTY_ARCHIVE)
            if not made.good:
                return f"the empty image cannot be made: {made.why}"
        self._image_exists = True
        return ""

    def _call(self, *words: str, stdin: bytes = b"", timeout_s: float = IMAGE_TIMEOUT_S) -> ProgramResult:
        return run_program((self._engine.program, *words), self._environ, stdin, timeout_s=timeout_s)


def container_name(plan: SandboxPlan) -> str:
    """Name of the container of a plan; the same in every process of this program."""
    return "ralph-" + hashlib.sha256(f"{plan.root}\0{plan.temp}".encode(errors="surrogateescape")).hexdigest()[:16]


def run_arguments(
    plan: SandboxPlan, engine: ContainerEngine, mounts: Iterable[Mount], names: Iterable[str]
) -> Iterator[str]:
    """The engine's argument list up to and including the image."""
    podman = engine.kind == PODMAN
    yield engine.program
    if engine.runtime:
        yield from ("--runtime", engine.runtime)
    yield from ("run", "--rm", "--interactive", "--init=false", "--pull", "never", "--log-driver", "none")
    yield from ("--name", container_name(plan), "--hostname", "ralph", "--network", "none", "--ipc", "private")
    yield from ("--cap-drop", "all", "--security-opt", "no-new-privileges", "--security-opt", "label=disable")
    yield from ("--read-only", "--shm-size", "1g")
    if podman:
        yield from ("--replace", "--read-only-tmpfs=false", "--http-proxy=false", "--passwd=false", "--no-hosts")
        yield from ("--systemd", "false")
    yield from _user_arguments(engine)
    yield from _limit_arguments(plan.limits, engine)
    for mount in (*mounts, Mount(READ_ONLY, PROXY_SOCKET_FOLDER, plan.socket_folder)):
        yield from _mount_argument(mount)
    own, given = dict(engine.env), dict(plan.variables)
    for name in names:  # a value goes by the environment, unless the client has another for itself
        yield from ("--env", f"{name}={given[name]}" if name in own and name in given else name)
    yield from ("--workdir", plan.cwd or plan.root, IMAGE)


def _user_arguments(engine: ContainerEngine) -> Iterator[str]:
    if engine.keeps_id:
        yield from ("--userns", "keep-id")
    if engine.user:
        yield from ("--user", engine.user)


def _limit_arguments(limits: ResourceLimits, engine: ContainerEngine) -> Iterator[str]:
    if engine.files:
        yield from ("--ulimit", f"nofile={engine.files}:{engine.files}")
    if engine.processes:
        yield from ("--ulimit", f"nproc={engine.processes}:{engine.processes}")
    if not engine.limits_resources:
        return
    if limits.memory_bytes:
        yield from ("--memory", f"{limits.memory_bytes}b")
    yield from ("--pids-limit", str(limits.processes or -1))


def _mount_argument(mount: Mount) -> tuple[str, str]:
    if mount.kind == EMPTY_FOLDER:
        if set(mount.path) & set(":\n"):
            raise Refused(f"a container cannot have a fresh folder at {mount.path!a}: choose a path without a colon")
        return "--tmpfs", f"{mount.path}:rw,exec,nosuid,nodev,mode=1777"
    fields = ["type=bind", f"source={mount.host_path}", f"target={mount.path}"]
    return "--mount", ",".join(
        _csv_field(field) for field in (*fields, *(["readonly"] if mount.kind == READ_ONLY else []))
    )


def _csv_field(text: str) -> str:
    """One field of the engine's comma-separated --mount syntax."""
    if "\n" in text or "\r" in text:
        raise Refused(f"a container cannot mount {text.partition('=')[2]!a}: choose a path without such characters")
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"') else text


def _missing_mount_point(plan: SandboxPlan, files: Iterable[str]) -> str:
    """A file that the engine would have to create on the host, with a remedy; empty if there is none."""
    covers = {mount.path: mount.host_path for mount in plan.mounts if mount.kind != EMPTY_FOLDER}
    for file in files:
        folder, name = os.path.split(file)
        if folder in covers and not os.path.lexists(os.path.join(covers[folder], name)):
            return f"{file} is not there, and the engine needs it: sudo touch {file}"
    return ""
