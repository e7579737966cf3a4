"""A container of podman or docker. It is empty: what is there inside is what is there outside, as far as the box says.

So nobody has to choose or build an image, and agent and tools are those of the machine.
"""

from __future__ import annotations

import os

from ralphproof.errors import Refused
from ralphproof.sandboxes.box import BY_SOCKET, EMPTY, MEETING_INSIDE, READ, Mount, Way
from ralphproof.sandboxes.calling import ask
from ralphproof.sandboxes.engine import PODMAN, engine_here
from ralphproof.sandboxes.layers import laid, mount_points
from ralphproof.sandboxes.told import names_told
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ralphproof.sandbox import Command
    from ralphproof.sandboxes.box import Box, Lack, Ration
    from ralphproof.sandboxes.calling import ToolAnswer
    from ralphproof.sandboxes.engine import Engine

IMAGE = "localhost/ralphproof-empty:1"
EMPTY_ARCHIVE = bytes(10240)  # how tar writes that there is nothing
IMAGE_S, REMOVE_S = 120.0, 30.0
# What the engine lays over files of the machine. It cannot make them in a folder that is mounted read-only.
PODMAN_FILES, DOCKER_FILES = ("/etc/hostname",), ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")


class Container:
    """Containers of one engine. One command at a time is run in a box with the same root and temporary folder."""

    name = "container"
    strength = "strong"
    weak: tuple[str, ...] = ()
    holds = remounts = True

    def __init__(self, kind: str, program: str | None, environ: Mapping[str, str] | None = None) -> None:
        """`kind` is podman or docker, and `program` its path; None: neither is installed."""
        self._kind, self._program, self._environ = kind, program, dict(os.environ if environ is None else environ)
        self._looked: Engine | None = None
        self._names: tuple[str, ...] = ()
        self._imaged = False

    @property
    def _engine(self) -> Engine:
        if self._looked is None:
            self._looked = engine_here(self._kind, self._program, self._environ)
        return self._looked

    @property
    def engine(self) -> str:
        """What people call it."""
        return self._kind

    @property
    def limited_by(self) -> str:
        """Who limits memory and processes; empty where that is left to whoever starts it."""
        return self._kind if self._engine.rations else ""

    def lacking(self) -> Lack | None:
        return self._engine.lack

    def way(self, box: Box) -> Way:
        """How this box is entered, once it was made ready: of the variables, those of the last command come inside."""
        argv = arguments(box, self._engine, laid(box.mounts, mount_points()), names_told(box, self._names))
        # What podman starts is below it; what docker starts is below its service.
        return Way(tuple(argv), BY_SOCKET, env=self._engine.env, reached=self._kind == PODMAN)

    def ready(self, box: Box, command: Command) -> str:
        """See to it that the empty image is there, and nothing of an earlier command."""
        self._names = tuple(name for name, _ in command.env)
        if why := _uncovered(box, PODMAN_FILES if self._kind == PODMAN else DOCKER_FILES):
            return why
        if self._kind != PODMAN and not command.taken_up:  # podman replaces it by itself
            self.over(box)
        return self._image()

    def over(self, box: Box) -> None:
        """End the container if it is still there."""
        how = ("--ignore", "--time", "0") if self._kind == PODMAN else ()
        self._ask("rm", "--force", *how, container_name(box), timeout_s=REMOVE_S)

    def _image(self) -> str:
        if self._imaged:
            return ""
        if not self._ask("image", "exists" if self._kind == PODMAN else "inspect", IMAGE).good:
            made = self._ask("import", "-", IMAGE, said=EMPTY_ARCHIVE)
            if not made.good:
                return f"the empty image cannot be made: {made.why}"
        self._imaged = True
        return ""

    def _ask(self, *words: str, said: bytes = b"", timeout_s: float = IMAGE_S) -> ToolAnswer:
        return ask((self._engine.program, *words), said=said, timeout_s=timeout_s, env=self._environ)


def container_name(box: Box) -> str:
    """What the container of this box is called, also by a later process of ours."""
    import hashlib

    return "ralph-" + hashlib.sha256(f"{box.root}\0{box.temp}".encode(errors="surrogateescape")).hexdigest()[:16]


def arguments(box: Box, engine: Engine, mounts: Iterable[Mount], names: Iterable[str]) -> Iterator[str]:
    """The engine's argument list up to the image."""
    podman = engine.kind == PODMAN
    yield engine.program
    if engine.runtime:
        yield from ("--runtime", engine.runtime)
    yield from ("run", "--rm", "--interactive", "--init=false", "--pull", "never", "--log-driver", "none")
    yield from ("--name", container_name(box), "--hostname", "ralph", "--network", "none", "--ipc", "private")
    yield from ("--cap-drop", "all", "--security-opt", "no-new-privileges", "--security-opt", "label=disable")
    yield from ("--read-only", "--shm-size", "1g")
    if podman:
        yield from ("--replace", "--read-only-tmpfs=false", "--http-proxy=false", "--passwd=false", "--no-hosts")
        yield from ("--systemd", "false")
    yield from _identity(engine)
    yield from _limits(box.ration, engine)
    for mount in (*mounts, Mount(READ, MEETING_INSIDE, box.meeting)):
        yield from _placed(mount)
    own, given = dict(engine.env), dict(box.sets)
    for name in names:  # a value goes by the environment, unless the client has another for itself
        yield from ("--env", f"{name}={given[name]}" if name in own and name in given else name)
    yield from ("--workdir", box.cwd or box.root, IMAGE)


def _identity(engine: Engine) -> Iterator[str]:
    if engine.keeps_id:
        yield from ("--userns", "keep-id")
    if engine.user:
        yield from ("--user", engine.user)


def _limits(ration: Ration, engine: Engine) -> Iterator[str]:
    if engine.files:
        yield from ("--ulimit", f"nofile={engine.files}:{engine.files}")
    if engine.processes:
        yield from ("--ulimit", f"nproc={engine.processes}:{engine.processes}")
    if not engine.rations:
        return
    if ration.memory_bytes:
        yield from ("--memory", f"{ration.memory_bytes}b")
    yield from ("--pids-limit", str(ration.processes or -1))


def _placed(mount: Mount) -> tuple[str, str]:
    if mount.kind == EMPTY:
        if set(mount.path) & set(":\n"):
            raise Refused(f"a container cannot have a fresh folder at {mount.path!a}: choose a path without a colon")
        return "--tmpfs", f"{mount.path}:rw,exec,nosuid,nodev,mode=1777"
    fields = ["type=bind", f"source={mount.outside}", f"target={mount.path}"]
    return "--mount", ",".join(_field(field) for field in (*fields, *(["readonly"] if mount.kind == READ else [])))


def _field(text: str) -> str:
    """One field of what engines read as a line of comma-separated values."""
    if "\n" in text or "\r" in text:
        raise Refused(f"a container cannot mount {text.partition('=')[2]!a}: choose a path without such characters")
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"') else text


def _uncovered(box: Box, files: Iterable[str]) -> str:
    """Which file the engine would have to make in a folder of the machine, and how to help it."""
    covers = {mount.path: mount.outside for mount in box.mounts if mount.kind != EMPTY}
    for file in files:
        folder, name = os.path.split(file)
        if folder in covers and not os.path.lexists(os.path.join(covers[folder], name)):
            return f"{file} is not there, and the engine needs it: sudo touch {file}"
    return ""
