"""The harness killed at every write, sync and rename of its durable files: the old state or the new, never torn."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.base.errors import DiskFull, HarnessFailed
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.records import RunEnded
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.run_folder import RunFolder
from tests.conftest import COUNTED, SAID
from tests.needs import require
from tests.store import ledger_writer
from tests.store.samples import DAY, notices, sum_runs
from tests.store.subprocesses import environment

if TYPE_CHECKING:
    from ralphproof.base.value import Json

pytestmark = pytest.mark.thorough

RENAMES, SYNCS, WRITES = "rename renameat renameat2", "fsync fdatasync", "write pwrite64"
OTHERS = "ftruncate mkdir mkdirat symlinkat unlink unlinkat"
OLD = {"status": "OLD"}


def prepared(folder: Path, earlier: bool) -> None:
    """A project as a run finds it: new, or with an earlier run and an earlier outcome."""
    (folder / "project").mkdir(parents=True)
    if earlier:
        state = folder / "state"
        ledger = SqliteLedger.open(str(state / "repos" / "one"))
        ledger.append("old", notices(3))
        ledger.close()
        RunFolder(str(folder / "project"), ledger_writer.RUN, str(state)).write_outcome(dict(OLD))
        RunFolder(str(folder / "project"), "old", str(state)).begin()


def run(folder: Path, compiled: Path, *strace: str) -> int:
    """How the writer ends under strace; -9 where it was killed."""
    argv = ["strace", "-qq", *strace] if strace else []
    env = environment(PYTHONPYCACHEPREFIX=str(compiled), PYTHONDONTWRITEBYTECODE="")
    writes = [sys.executable, "-S", ledger_writer.__file__, str(folder)]
    return subprocess.run([*argv, *writes], env=env, capture_output=True, timeout=60).returncode


def check_state(folder: Path, earlier: bool) -> None:
    """Everything durable is old or new."""
    repo = folder / "state" / "repos" / "one"
    for read_only in (True, False):
        ledger = SqliteLedger.open(str(repo), read_only=read_only)
        assert ledger.repaired == ""
        count = len(ledger.records(ledger_writer.RUN))
        assert ledger.records(ledger_writer.RUN) == ledger_writer.RECORDS[:count]
        assert count in itertools.accumulate(map(len, ledger_writer.GROUPS), initial=0)
        assert ledger.verify_chain(ledger_writer.RUN) is None
        assert ledger.records("old") == (notices(3) if earlier else ())
        ended = [record for record in ledger_writer.RECORDS[:count] if isinstance(record, RunEnded) and record.metrics]
        found = sum_runs([record.metrics for record in ended[-1:] if record.metrics], DAY, DAY)
        assert ledger.statistics(DAY, DAY) == found
        assert ledger._database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        ledger.close()
    ralph = folder / "project" / ".ralph"
    outcome = ralph / "runs" / ledger_writer.RUN / "outcome.json"
    if earlier or outcome.exists():
        assert json.loads(outcome.read_text()) in ([OLD, ledger_writer.OUTCOME] if earlier else [ledger_writer.OUTCOME])
    if earlier or (ralph / "latest").is_symlink():
        assert os.readlink(ralph / "latest") in (["runs/old", "runs/new"] if earlier else ["runs/new"])
        assert (ralph / "latest").is_dir()
    for prompt in (ralph / "runs" / ledger_writer.RUN).glob("prompt_*.txt"):
        assert prompt.read_bytes() == ledger_writer.PROMPT.encode()
    files = RunFolder(str(folder / "project"), ledger_writer.RUN, str(folder / "state"))
    notes: list[Json] = [
        {"number": number, "text": ledger_writer.PROMPT} for number in range(len(ledger_writer.GROUPS))
    ]
    assert files.noted("group") in [None, *notes]
    assert {files.read_prompt(f"prompt_{number}") for number in range(len(ledger_writer.GROUPS))} <= {
        None,
        ledger_writer.PROMPT,
    }


def check_second_run(folder: Path) -> None:
    ledger_writer.work(str(folder))
    ledger = SqliteLedger.open(str(folder / "state" / "repos" / "one"))
    assert ledger.records(ledger_writer.RUN) == ledger_writer.RECORDS
    assert ledger.verify_chain(ledger_writer.RUN) is None
    ledger.close()
    ralph = folder / "project" / ".ralph"
    assert json.loads((ralph / "latest" / "outcome.json").read_text()) == ledger_writer.OUTCOME
    assert os.readlink(ralph / "latest") == "runs/new"


def walk(tmp_path: Path, calls: str, injected: str, earlier: bool, expected: int) -> tuple[int, int]:
    """Let the first call fail, the second, and so on until none is left, for each kind of call.

    How many there were, and how many the writer noticed.
    """
    require(shutil.which("strace") is not None, "strace kills at a system call")
    prepared(tmp_path / "clean", earlier)
    made, noticed = calls_made(tmp_path, calls.split()), 0
    for call in made:
        for point in range(1, made[call] + 1):
            folder = tmp_path / f"{call}-{point}"
            shutil.copytree(tmp_path / "clean", folder, symlinks=True)
            rule = f"inject={call}:{injected.format(point)}"
            fast = () if "signal" in injected else ("-f", "--seccomp-bpf")  # so strace 6.1 sends no signal
            left = run(folder, tmp_path / "compiled", *fast, "-o", "/dev/null", "-e", f"trace={call}", "-e", rule)
            assert left == expected or (left == 0 and expected > 0), f"at {call} {point}: left with {left}"
            noticed += left == expected
            check_state(folder, earlier)
            check_second_run(folder)
            shutil.rmtree(folder)
    return sum(made.values()), noticed


def calls_made(tmp_path: Path, calls: list[str]) -> dict[str, int]:
    """How often the writer makes each call when nothing stops it."""
    log = tmp_path / "log"
    for name in ("warm", "counted"):
        shutil.copytree(tmp_path / "clean", tmp_path / name, symlinks=True)
        strace = () if name == "warm" else ("-o", str(log), "-e", f"trace={','.join(calls)}")
        assert run(tmp_path / name, tmp_path / "compiled", *strace) == 0
    names = [line.partition("(")[0] for line in log.read_text().splitlines()]
    return {call: names.count(call) for call in calls}


KILLS = [(RENAMES, 5, False), (RENAMES, 4, True), (SYNCS, 12, False), (WRITES, 40, False), (WRITES, 30, True)]


@pytest.mark.parametrize(("calls", "least", "earlier"), [*KILLS, (OTHERS, 15, False)])
def test_a_kill_at_any_call_leaves_the_old_state_or_the_new(
    tmp_path: Path, calls: str, least: int, earlier: bool, record_property: Callable[[str, object], None]
) -> None:
    """PR-12"""
    points, _ = walk(tmp_path, calls, "signal=SIGKILL:when={}", earlier, -9)
    record_property(SAID, f"killed at each of {points} calls of {calls}")
    record_property(COUNTED, points)
    assert points >= least
    assert sum(number for _, number, _ in KILLS) >= 40


FULL, FAILED = (10 + ledger_writer.ERRORS.index(error) for error in (DiskFull, HarnessFailed))


@pytest.mark.parametrize(
    ("calls", "injected", "expected", "least"),
    [
        (WRITES, "error=ENOSPC:when={}+", FULL, 40),
        (WRITES, "error=EIO:when={}", FAILED, 40),
        (SYNCS, "error=EIO:when={}", FAILED, 12),
        (RENAMES, "error=ENOSPC:when={}+", FULL, 5),
    ],
)
def test_a_call_that_fails_is_told_in_our_words_and_leaves_the_old_state_or_the_new(
    tmp_path: Path, calls: str, injected: str, expected: int, least: int,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    points, noticed = walk(tmp_path, calls, injected, False, expected)
    record_property(SAID, f"made to fail at each of {points} calls of {calls}; {noticed} mattered")
    record_property(COUNTED, points)
    assert points >= least
    assert noticed >= points * 0.6
