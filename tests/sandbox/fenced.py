"""Programs behind a fence, as this user and as another: places inside and outside of it, and a process outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.needs import require

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "src"
ATTEMPTS, NEIGHBOUR = (str(TESTS / "sandbox" / name) for name in ("attempts.py", "neighbour.py"))
STRANGER, ANOTHER = 12345, 12346
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
READABLE = (
    "/usr", "/bin", "/lib", "/lib64", "/proc", "/etc/hosts", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf",
    "/etc/ld.so.cache", "/etc/alternatives", "/etc/gitconfig", "/etc/ssl/openssl.cnf", sys.prefix, sys.base_prefix,
    str(TESTS.parent),
)  # fmt: skip

# Becomes a program behind a fence.
ENTER = """
import json, os, sys
sys.path.append(sys.argv[1])
from ralphproof.sandbox.landlock_seccomp import restrict_process
restrict_process(**json.loads(sys.argv[2]))
os.execvp(sys.argv[3], sys.argv[3:])
"""


@dataclass(frozen=True)
class Person:
    """Who runs a program: the words before its command line, its user, and a Python that it can start."""

    prefix: tuple[str, ...]
    uid: int
    python: str

    @property
    def is_root(self) -> bool:
        return self.uid == 0


OURSELVES = Person((), os.geteuid(), sys.executable)


def stranger() -> Person:
    """Another user without rights."""
    require(os.geteuid() == 0 and shutil.which("setpriv") is not None, "only root can become another user")
    prefix = ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups")
    ours = str(SOURCE / "ralphproof/__init__.py")
    for python in (sys.executable, "/usr/bin/python3"):  # ours may lie in root's home
        # In a shell, since setpriv itself still may what root may.
        started = ["sh", "-c", '"$0" -c "import ctypes" && test -r "$1"', python, ours]
        runs = subprocess.run([*prefix, *started], capture_output=True, cwd="/")
        if not runs.returncode:
            return Person(prefix, STRANGER, python)
    require(False, "a Python that other users can start, and a checkout that they can read")
    raise AssertionError


@dataclass(frozen=True)
class Place:
    """Two folders of a person: one that the fence lets in, and one outside of it."""

    person: Person
    inside: Path
    outside: Path

    def fence(self, ports: Sequence[int] = ()) -> dict[str, list[Any]]:
        return {"read": [*READABLE], "write": [str(self.inside), *DEVICES], "ports": [*ports]}

    def run(self, *argv: str, ports: Sequence[int] = (), timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a program behind the fence; it has a home inside."""
        enter = [*self.person.prefix, self.person.python, "-I", "-S", "-c", ENTER, str(SOURCE)]
        return subprocess.run(
            [*enter, json.dumps(self.fence(ports)), *argv],
            env=self.env, cwd=self.inside, capture_output=True, text=True, timeout=timeout_s,
        )  # fmt: skip

    @property
    def env(self) -> dict[str, str]:
        path = os.pathsep.join((os.path.dirname(self.person.python), "/usr/local/bin", "/usr/bin", "/bin"))
        return {"PATH": path, "HOME": str(self.inside), "TMPDIR": str(self.inside), "LC_ALL": "C.UTF-8"}

    def attempts(self, fenced: bool) -> dict[str, str]:
        """What comes of each attempt."""
        with self.neighbour() as told:
            orders = {"inside": str(self.inside), "outside": str(self.outside), "source": str(SOURCE), **told}
            orders["fence"] = self.fence() if fenced else None
            # In a name space of its own, so that what is mounted goes with it.
            apart = ["unshare", "--mount", "--propagation", "private"] if self.person.is_root else []
            argv = [*self.person.prefix, *apart, self.person.python, "-I", "-S", ATTEMPTS, json.dumps(orders)]
            ended = subprocess.run(argv, env=self.env, cwd=self.inside, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr
        came: dict[str, str] = json.loads(ended.stdout)
        return came

    @contextmanager
    def neighbour(self) -> Iterator[dict[str, Any]]:
        """A process of the same person that is not fenced, and what it tells of itself."""
        argv = [*self.person.prefix, self.person.python, "-I", "-S", NEIGHBOUR, str(self.outside)]
        env = {"SECRET": "secret", **self.env}
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, env=env, cwd="/", stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdin
            assert process.stdout
            try:
                yield json.loads(process.stdout.readline())
            finally:
                process.stdin.close()


@contextmanager
def place(person: Person) -> Iterator[Place]:
    """A place of a person that is gone afterwards."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # pytest's own folders are closed to other users
        os.chmod(folder, 0o755)
        made = Place(person, Path(folder) / "inside", Path(folder) / "outside")
        for name in ("mount", "mounted"):
            (made.inside / name).mkdir(parents=True)
        made.outside.mkdir()
        for name in ("kept", "private", "emptied", "removed", "moved", "linked"):
            (made.outside / name).write_text("secret")
        (made.outside / "private").chmod(0o600)
        shutil.copy("/bin/true", made.outside / "program")
        (made.inside / "anothers").write_text("secret")
        (made.inside / "anothers").chmod(0o600)
        shutil.copy("/usr/bin/id", made.inside / "become-root")
        if os.geteuid() == 0:
            for path in (made.inside, made.outside, *made.inside.iterdir(), *made.outside.iterdir()):
                os.chown(path, person.uid, person.uid)
            os.chown(made.inside / "anothers", ANOTHER, ANOTHER)
            os.chown(made.inside / "become-root", 0, 0)
        (made.inside / "become-root").chmod(0o4755)
        yield made
