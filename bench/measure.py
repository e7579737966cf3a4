"""What the benchmarks share: a temporary place with its own interpreter and state, costs of processes, and a table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Self

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HOUR_S = 3600
PER_FOLDER = 20


@dataclass(frozen=True)
class Cost:
    """Of one process and everything below it that was waited for."""

    wall_s: float
    cpu_s: float


def cost_of(argv: Sequence[str], cwd: str, env: dict[str, str], code: int = 0) -> Cost:
    """Run a command to its end, its output thrown away. One that ends in another way than expected is not measured."""
    began = time.perf_counter()
    process = subprocess.Popen(
        argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != code:
        raise SystemExit(f"{' '.join(argv)[:200]}: exit code {process.returncode}, expected {code}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime)


class Place:
    """A temporary folder with an interpreter that holds ralph alone, and with its own home and state.

    With `dependencies` that interpreter also gets what reads agents' streams.
    """

    def __init__(self, python: str | None, dependencies: bool = False) -> None:
        self.folder = tempfile.mkdtemp(prefix="ralph-bench-")
        self.env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": self._new("home"),
            "RALPH_STATE_DIR": self._new("state"),
            "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self.python = python or _clean_python(os.path.join(self.folder, "venv"), dependencies)
        self.ralph = os.path.join(os.path.dirname(self.python), "ralph")
        if not os.path.exists(self.ralph):
            raise SystemExit(f"{self.ralph} is missing; install ralph beside {self.python}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _new(self, name: str) -> str:
        path = os.path.join(self.folder, name)
        os.mkdir(path)
        return path

    def script(self, name: str, text: str) -> str:
        """An executable file."""
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def repository(self, name: str, files: int) -> str:
        """A git repository with so many small files, a check that passes, and settings without pauses."""
        root = self._new(name)
        for number in range(files):
            _write(os.path.join(root, f"part{number // PER_FOLDER:04d}", f"file{number:05d}.py"), f"n = {number}\n")
        _write(os.path.join(root, "verify.sh"), "#!/bin/sh\nexit 0\n")
        os.chmod(os.path.join(root, "verify.sh"), 0o755)
        _write(os.path.join(root, "PROMPT.md"), "Make the tests pass. Then say so.\n")
        limits = {"pauseMilliseconds": 0, "stallIterations": None, "sameErrorIterations": None}
        _write(os.path.join(root, ".ralph", "settings.json"), json.dumps({"limits": limits}))
        self.git(root, "init", "-q")
        self.git(root, "config", "gc.auto", "0")  # no collection of git's own in the middle of a measurement
        self.git(root, "add", "-A")
        self.git(root, "-c", "user.name=b", "-c", "user.email=b@localhost", "commit", "-q", "-m", "start")
        self.git(root, "gc", "-q")
        return root

    def git(self, root: str, *args: str) -> None:
        subprocess.run(["git", *args], cwd=root, env=self.env, check=True, stdout=subprocess.DEVNULL)


def _write(path: str, text: str) -> None:
    """An old file: git reads files again whose last change is as young as its index."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    old = time.time() - HOUR_S
    os.utime(path, (old, old))


def _clean_python(folder: str, dependencies: bool) -> str:
    """A new environment without pip and setuptools, whose start-up files would slow the floor down."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = os.path.join(folder, "bin", "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    alone = [] if dependencies else ["--no-deps"]
    done = subprocess.run([*pip, "install", "--quiet", *alone, SOURCE], check=False)
    if done.returncode:
        raise SystemExit("ralph could not be installed; give an interpreter that has it with --python PATH")
    return python


@dataclass(frozen=True)
class Row:
    """One line of the table; times in milliseconds. `floor` names the row that the ratios are to."""

    what: str
    wall: float
    wall_least: float
    cpu: float
    cpu_least: float
    floor: str
    goal: str


def row(what: str, costs: Sequence[Cost], floor: str, goal: str = "") -> Row:
    """The row of a command that was run several times."""
    walls, cpus = [cost.wall_s * 1000 for cost in costs], [cost.cpu_s * 1000 for cost in costs]
    return Row(what, statistics.median(walls), min(walls), statistics.median(cpus), min(cpus), floor, goal)


def slope(what: str, short: Sequence[Cost], long: Sequence[Cost], steps: int, floor: str, goal: str = "") -> Row:
    """The row of one step: the long run less the short one, so that start-up drops out."""
    wall = [(b.wall_s - a.wall_s) * 1000 / steps for a, b in zip(short, long, strict=True)]
    cpu = [(b.cpu_s - a.cpu_s) * 1000 / steps for a, b in zip(short, long, strict=True)]
    # Of minima, not the least of all slopes: that one would be the pair whose short run was disturbed most.
    wall_least = (min(b.wall_s for b in long) - min(a.wall_s for a in short)) * 1000 / steps
    cpu_least = (min(b.cpu_s for b in long) - min(a.cpu_s for a in short)) * 1000 / steps
    return Row(what, statistics.median(wall), wall_least, statistics.median(cpu), cpu_least, floor, goal)


def interleaved(times: int, *jobs: Callable[[], Cost]) -> list[list[Cost]]:
    """The costs of each job. All jobs take turns, so that a busy moment hits all alike."""
    rounds = [[job() for job in jobs] for _ in range(times)]
    return [list(costs) for costs in zip(*rounds, strict=True)]


def arguments(about: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, less than 20 s")
    parser.add_argument("--json", action="store_true", help="a JSON object a line instead of tables")
    parser.add_argument("--python", metavar="PATH", help="an interpreter with ralph beside it (default: a new one)")
    return parser.parse_args()


def machine(python: str) -> dict[str, Any]:
    """What the figures depend on."""
    version = subprocess.run([python, "-V"], check=True, capture_output=True, text=True).stdout.split()[-1]
    git = subprocess.run(["git", "--version"], check=True, capture_output=True, text=True).stdout.split()[2]
    load = round(os.getloadavg()[0], 1)
    return {"system": platform.system(), "cpus": os.cpu_count(), "python": version, "git": git, "load": load}


def show(title: str, rows: Sequence[Row], facts: dict[str, Any], as_json: bool, notes: Sequence[str] = ()) -> None:
    """Print the table, medians with the minimum in brackets, ratios of both."""
    if as_json:
        print(json.dumps({"title": title, "machine": facts, "notes": notes, "rows": [asdict(r) for r in rows]}))
        return
    print(title)
    print(", ".join(f"{name} {fact}" for name, fact in facts.items()))
    for note in notes:
        print(note)
    width = max(len(line.what) for line in rows)
    print(f"{'':<{width}}  {'CPU ms':>15}  {'x floor':>13}  {'wall ms':>15}  {'x floor':>13}  goal")
    floors = {line.what: line for line in rows}
    for line in rows:
        floor = floors[line.floor]
        cpu = _pair(line.cpu, line.cpu_least, 2)
        cpu_ratio = _pair(line.cpu / floor.cpu, line.cpu_least / floor.cpu_least, 1)
        wall = _pair(line.wall, line.wall_least, 2)
        wall_ratio = _pair(line.wall / floor.wall, line.wall_least / floor.wall_least, 1)
        print(f"{line.what:<{width}}  {cpu:>15}  {cpu_ratio:>13}  {wall:>15}  {wall_ratio:>13}  {line.goal}".rstrip())
    print()


def _pair(median: float, least: float, digits: int) -> str:
    return f"{median:.{digits}f} ({least:.{digits}f})"
