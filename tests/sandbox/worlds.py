"""Small worlds around a project: a home with secrets, folders beside, a neighbour; and people who live there."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ralphproof.sandbox.plan import ResourceLimits
from tests.needs import require
from tests.ralph import until
from tests.sandbox.fenced import ANOTHER, NEIGHBOUR, OURSELVES, SOURCE, TESTS, Person, stranger
from tests.sandbox.processes import processes

DRIVER = str(TESTS / "sandbox" / "driver.py")
PROBES = tuple(TESTS / "sandbox" / name for name in ("attempts.py", "escapes.py", "protections.py", "callings.py"))
USER = "ralph-tests"  # an engine gives containers only to somebody with a name, a home and ranges of users
DIRECT, BUBBLEWRAP, LANDLOCK, CONTAINER = "direct", "bubblewrap", "landlock", "container"
PUBLIC = "11.11.11.11"  # in a network of our own, where nothing leaves the machine
NAMES = (
    "allowed.test", "other.test", "evilallowed.test", "allowed.test.evil.test", "wild.test", "a.wild.test",
    "b.a.wild.test", "awild.test", "ported.test",
)  # fmt: skip
REBOUND = "rebound.test"  # allowed, and leads to this machine
HOSTS = ("allowed.test", "*.wild.test", "ported.test:8080", REBOUND)
PORTS = (80, 443, 8080)
APART = """
ip link set lo up
ip address add "$0/32" dev lo
echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start
mount --bind "$1" /etc/hosts
shift
exec "$@"
"""
WORLD = "ralph-world-"
STORAGE = '[storage]\ndriver = "overlay"\n'
TOKENS = {
    "ANTHROPIC_API_KEY": "secret", "AWS_SECRET_ACCESS_KEY": "secret", "GITHUB_TOKEN": "secret", "MY_PASSWORD": "secret",
    "SSH_AUTH_SOCK": "/run/agent.sock", "DOCKER_HOST": "unix:///run/docker.sock", "XDG_RUNTIME_DIR": "/run/user/0",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus", "BASH_ENV": "/dev/null", "GIT_SSH_COMMAND": "false",
}  # fmt: skip


def somebody(kind: str, who: str) -> Person:
    """The person of this name for this kind of sandbox; `user` is one without rights."""
    if who == "root":
        require(os.geteuid() == 0, "root")
        return OURSELVES
    return _named() if kind == CONTAINER else stranger()


def _named() -> Person:
    nameless = stranger()
    try:
        found = pwd.getpwnam(USER)
    except KeyError:
        require(False, f"a user with ranges in /etc/subuid and /etc/subgid: useradd --create-home {USER}")
        raise
    prefix = ("setpriv", f"--reuid={found.pw_uid}", f"--regid={found.pw_gid}", "--clear-groups")
    return Person(prefix, found.pw_uid, nameless.python)


@dataclass(frozen=True)
class World:
    """A project of a person, in their home, and what lies around it."""

    person: Person
    top: Path
    project: Path
    before: tuple[str, ...] = ()  # what stands before every command line

    @property
    def home(self) -> Path:
        return self.top / "home"

    @property
    def outside(self) -> Path:
        return self.top / "outside"

    @property
    def store(self) -> Path:
        return self.home / ".local/state/ralph/project"

    @property
    def env(self) -> dict[str, str]:
        path = os.pathsep.join((os.path.dirname(self.person.python), "/usr/local/bin", "/usr/bin", "/usr/sbin", "/bin"))
        return {"PATH": path, "HOME": str(self.home), "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}

    def own(self) -> None:
        """Everything here is the person's."""
        _give(self.person, self.top)

    def call(self, *argv: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a program as the person, without any sandbox."""
        given = {"env": self.env, "cwd": self.project, "capture_output": True, "text": True, **more}
        return subprocess.run([*self.before, *self.person.prefix, *argv], **given)

    def git(self, *words: str) -> None:
        done = self.call("git", "-c", "init.defaultBranch=main", *words)
        assert done.returncode == 0, done.stderr

    def enter(self, kind: str, *runs: dict[str, Any], **changes: Any) -> Entered:
        """Run commands in a sandbox of this kind, one after another."""
        done = self.call(*self.driving(), input=json.dumps(self.orders(kind, *runs, **changes)), timeout=600)
        assert done.returncode == 0, done.stderr
        said, *ended = [json.loads(line) for line in done.stdout.splitlines()]
        require(not said["lack"], f"{kind}: {said['lack']}")
        return Entered(said["holds"], ended)

    @contextmanager
    def entering(self, kind: str, run: dict[str, Any], **changes: Any) -> Iterator[Driving]:
        """A command that runs in a sandbox meanwhile."""
        argv = [*self.before, *self.person.prefix, *self.driving()]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, env=self.env, cwd=self.project, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdin
            process.stdin.write(json.dumps(self.orders(kind, run, **changes)))
            process.stdin.close()
            driving = Driving(process)
            try:
                require(not driving.said()["lack"], kind)
                yield driving
            finally:
                process.kill()

    def outer(self) -> int:
        """The outer program of the one command that runs here, once that said a word."""
        turns = self.store / "turns"
        until(lambda: any(log.read_text() for log in turns.glob("*.log")), "a word of the command")
        return next(
            pid for pid, words in processes(str(self.top)) if any(word.endswith("/launcher.py") for word in words)
        )

    def driving(self) -> tuple[str, ...]:
        return (self.person.python, "-I", "-S", DRIVER, str(SOURCE))

    def orders(self, kind: str, *runs: dict[str, Any], **changes: Any) -> dict[str, Any]:
        """What the driver is told."""
        usual: dict[str, Any] = {
            "root": str(self.project), "store": str(self.store), "task": "", "env": {**self.env, **TOKENS},
            "protected": [], "hosts": [], "ports": [], "ration": None, "without": [], "unpinned": False,
            "unowned": False,
        }  # fmt: skip
        return {"kind": kind, "name": self.top.name, "runs": runs, **usual, **changes}

    @contextmanager
    def neighbour(self, *ports: int) -> Iterator[dict[str, Any]]:
        """A process of the same person outside of any sandbox, and what it tells of itself."""
        started = [*self.before, *self.person.prefix, self.person.python, "-I", "-S", NEIGHBOUR, str(self.outside)]
        pipe = subprocess.PIPE
        env = {"SECRET": "secret", **self.env}
        argv = [*started, *map(str, ports)]
        with subprocess.Popen(argv, env=env, cwd="/", stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdin
            assert process.stdout
            try:
                yield json.loads(process.stdout.readline())
            finally:
                process.stdin.close()


@dataclass(frozen=True)
class Entered:
    """What came of some commands in a sandbox; `protects_paths`: paths inside the project can be held there."""

    protects_paths: bool
    runs: list[dict[str, Any]] = field(repr=False)

    @property
    def one(self) -> dict[str, Any]:
        (run,) = self.runs
        return run


@dataclass(frozen=True)
class Driving:
    """The driver while it drives."""

    process: subprocess.Popen[str] = field(repr=False)

    def said(self) -> dict[str, Any]:
        assert self.process.stdout
        told: dict[str, Any] = json.loads(self.process.stdout.readline())
        return told

    def end(self) -> dict[str, Any]:
        """Its last words, when it has ended."""
        told = self.said()
        assert self.process.wait(60) == 0
        return told

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def world(person: Person, name: str = "project") -> Iterator[World]:
    """A world that is gone afterwards."""
    with _one_at_a_time():
        top = Path(tempfile.mkdtemp(prefix=WORLD, dir="/tmp"))  # pytest's own folders are closed to other users
        os.chown(top, person.uid, -1)
    try:
        top.chmod(0o755)
        made = World(person, top, top / "home/work" / name)
        _furnish(made)
        yield made
    finally:
        _leave(person, top)


def _furnish(made: World) -> None:
    secrets = (".ssh/id_ed25519", ".aws/credentials", ".netrc", "notes.txt", "work/sibling/kept")
    state = made.store.parent
    for path in (*(made.home / name for name in secrets), state / "ledger.db", state / "runs/1/notes"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    storage = made.home / ".config/containers/storage.conf"
    storage.parent.mkdir(parents=True)
    storage.write_text(STORAGE)
    for folder in (made.project, made.store, made.outside):
        folder.mkdir(parents=True, exist_ok=True)
    for name in ("kept", "private", "emptied", "removed", "moved", "linked"):
        (made.outside / name).write_text("secret")
    (made.outside / "private").chmod(0o600)
    shutil.copy("/bin/true", made.outside / "program")
    made.home.chmod(0o700)
    _give(made.person, made.top)


def _give(person: Person, top: Path) -> None:
    if os.geteuid() == 0:
        for folder, folders, files in os.walk(top):
            for path in (folder, *(os.path.join(folder, name) for name in (*folders, *files))):
                os.lchown(path, person.uid, person.uid)


def _leave(person: Person, top: Path) -> None:
    """Remove a world; an engine's own process that holds its users is ended with the last one of its person."""
    with _one_at_a_time():
        others = [path for path in Path("/tmp").glob(f"{WORLD}*") if path != top and path.stat().st_uid == person.uid]
        pause = Path(f"/tmp/podman-run-{person.uid}/libpod/tmp/pause.pid")
        if person.prefix and pause.exists() and not others:
            subprocess.run(["kill", "-9", pause.read_text().strip()], capture_output=True)
            shutil.rmtree(f"/tmp/podman-run-{person.uid}", ignore_errors=True)
        shutil.rmtree(top, ignore_errors=True)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Worlds of other tests neither come nor go meanwhile."""
    with open(f"/tmp/ralph-worlds-{os.geteuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def probed_world(person: Person, cases: Sequence[str]) -> Iterator[World]:
    """A world in a network of its own, whose project has all that probes look for, and a folder for each case."""
    for tool in ("unshare", "ip", "mount", "git"):
        require(shutil.which(tool) is not None, tool)
    require(os.geteuid() == 0, "root, who can make networks")
    with world(person) as made:
        hosts = made.top / "hosts"
        names = "".join(f"{PUBLIC} {name}\n" for name in NAMES)
        hosts.write_text(f"127.0.0.1 localhost\n::1 localhost\n{names}127.0.0.1 {REBOUND}\n")
        hosts.chmod(0o644)
        keeper = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-ec", APART, PUBLIC, str(hosts),
             "sh", "-c", "echo ready; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with keeper:
            assert keeper.stdout
            assert keeper.stdout.readline() == "ready\n"
            _fill(made, cases)
            yield replace(made, before=("nsenter", f"--target={keeper.pid}", "--net", "--mount"))


def _fill(made: World, cases: Sequence[str]) -> None:
    made.git("init", "-q")
    project = made.project
    for name in ("mount", "mounted", ".ralph/task", "tests/sandbox"):
        (project / name).mkdir(parents=True)
    for probe in PROBES:
        shutil.copy(probe, project / "tests/sandbox")
    (project / ".ralph/config.json").write_text("{}")
    for case in cases:
        folder = project / "cases" / case
        (folder / "src/auth").mkdir(parents=True)
        for name in ("src/auth/login.py", "src/other.py", "kept.txt", "a.lock"):
            (folder / name).write_text("kept")
        (folder / "link").symlink_to("kept.txt")
        (folder / "folder").symlink_to("src/auth")
    (project / "anothers").write_text("secret")
    (project / "anothers").chmod(0o600)
    shutil.copy("/usr/bin/id", project / "become-root")
    _give(made.person, project)
    os.chown(project / "anothers", ANOTHER, ANOTHER)
    os.chown(project / "become-root", 0, 0)
    (project / "become-root").chmod(0o4755)


MEANS = """
sys.path.append(sys.argv[1])
from ralphproof.sandbox.plan import ResourceLimits
from ralphproof.sandbox.resource_limits import find_limit_mechanism
print(*find_limit_mechanism(ResourceLimits(int(sys.argv[2]), int(sys.argv[3]))).enforced)
"""


def held_for(world: World, limits: ResourceLimits) -> list[str]:
    """What of a ration this machine can hold for the person of a world."""
    words = (str(limits.memory_bytes), str(limits.processes))
    return world.call(world.person.python, "-I", "-S", "-c", MEANS, str(SOURCE), *words).stdout.split()
