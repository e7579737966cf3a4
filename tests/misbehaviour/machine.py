"""The machine around a run: which processes are there, terminals, small disks, other users."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

from ralphproof.engine.records import TurnEnded
from ralphproof.engine.sandbox import Exit
from ralphproof.process.tree import list_processes
from tests.needs import require
from tests.ralph import PROGRAM, Ralph, Step

T = TypeVar("T")

STRANGER = 65534  # a user without rights

# A program that looks round from inside a check: it fails where a process with this word in its command line lives, or
# where keeper or harness have a child that ended and was never waited for.
LOOK = """
import os, sys
def stat(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return b"gone", 0
    return fields[0], int(fields[1])
def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""
above = [os.getppid()]
while len(above) < 4:
    above.append(stat(above[-1])[1])
pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
marks = (b"/ralphproof/process/__main__.py", b"\\0-m\\0ralphproof\\0")
ours = [pid for pid in above if any(mark in command(pid) for mark in marks)]
assert len(ours) == 2, [command(pid) for pid in above]
zombies = [pid for pid in pids if stat(pid)[0] == b"Z" and stat(pid)[1] in ours]
lives = [pid for pid in pids if sys.argv[1].encode() in command(pid) and pid not in above]
print("zombies", zombies, "alive", lives)
sys.exit(bool(zombies or lives))
"""


def there(word: Path | str) -> list[int]:
    """Processes that have this word in their command line and are more than an exit status."""
    return [pid for pid in list_processes() if pid != os.getpid() and os.fsencode(word) in command_line(pid)]


def command_line(pid: int) -> bytes:
    """What a process was started with; nothing for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def daemon(ralph: Ralph, does: str = "sleep 0.2", quiet: bool = True, deaf: bool = True, **how: bool) -> Step:
    """A step: start something that stays, says that it is there by `../daemon`, and can be found by `word(ralph)`.

    One that is `deaf` ignores TERM.
    """
    script = f"trap '' HUP INT {'TERM' * deaf}; touch ../daemon; while :; do {does}; done"
    spawn = {"argv": ["sh", "-c", script, word(ralph)], "setsid": True, "double_fork": True, "quiet": quiet, **how}
    return {"spawn": spawn}


def word(ralph: Ralph) -> str:
    """What stands in the command line of a daemon of this test, and of no other process."""
    return f"{ralph.folder}/left-behind"


def recorded(ralph: Ralph, kind: type[T]) -> list[T]:
    """The records of this kind of the latest run, oldest first."""
    return [record for record in ralph.records() if isinstance(record, kind)]


def exits(ralph: Ralph) -> list[Exit]:
    """How the agent's turns of the latest run ended."""
    return [record.reply.exit for record in recorded(ralph, TurnEnded)]


@contextmanager
def small_disk(path: Path, kib: int) -> Iterator[Path]:
    """A file system of so many KiB in the place of a new folder."""
    path.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=0700", "tmpfs", str(path)]
    mounted = os.geteuid() == 0 and not subprocess.run(argv, capture_output=True).returncode
    require(mounted, "a small file system can only be mounted by root")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def strangers_project() -> Iterator[tuple[Ralph, tuple[str, ...]]]:
    """A project, and the words before a command line that run it as another user. `give` hands files over."""
    require(os.geteuid() == 0 and shutil.which("setpriv") is not None, "only root can become another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # pytest's own folders are closed to other users
        os.chmod(folder, 0o755)
        ralph = Ralph(Path(folder) / "test")
        runs = subprocess.run(["setpriv", *IDENTITY, *PROGRAM, "--version"], env=ralph.env, capture_output=True)
        require(not runs.returncode, "other users can read neither this Python nor this source")
        try:
            yield ralph, ("setpriv", *IDENTITY)
        finally:
            ralph.close()


# A stranger who may look at everything, as Python itself may lie in root's home, and may write to nothing.
IDENTITY = (
    f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)  # fmt: skip


def give(*paths: Path) -> None:
    """Let the stranger own these, and everything below them."""
    for path in paths:
        for folder, _, names in os.walk(path):
            for name in (".", *names):
                os.chown(os.path.join(folder, name), STRANGER, STRANGER, follow_symlinks=False)


class Terminal:
    """A terminal for one program that controls it: what the program shows can be read, and the window closed."""

    def __init__(self) -> None:
        self._ours, self._theirs = os.openpty()
        self.shown = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, ralph: Ralph, *argv: str) -> subprocess.Popen[bytes]:
        """Start `ralph ARGV` in a session of its own at this terminal."""
        require(shutil.which("setsid") is not None, "setsid makes the terminal the program's own")
        end = self._theirs
        return subprocess.Popen(
            ["setsid", "--ctty", *PROGRAM, *argv], cwd=ralph.root, env=ralph.env, stdin=end, stdout=end, stderr=end
        )

    def settings(self) -> str:
        """How the terminal is set, by `stty`."""
        return subprocess.run(["stty", "-g"], stdin=self._theirs, capture_output=True, text=True, check=True).stdout

    def read(self) -> bytes:
        """All that was shown so far."""
        os.set_blocking(self._ours, False)
        try:
            while piece := os.read(self._ours, 65536):
                self.shown += piece
        except OSError:
            pass  # nothing more now, or nobody there who could show more
        return self.shown

    def close(self) -> None:
        """Close the window."""
        for end in (self._theirs, self._ours):
            if end >= 0:
                os.close(end)
        self._ours = self._theirs = -1
