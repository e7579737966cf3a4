"""A loop that fails before its first turn: it stops, or by a setting the agent runs once without a loop."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ralphproof.store.database import LEDGER_SCHEMA
from ralphproof.store.run_state import find_live_turn
from ralphproof.store.spend import SpendStore
from tests.misbehaviour.invariants import no_traceback, unlocked
from tests.misbehaviour.machine import small_disk
from tests.ralph import Ended, Ralph, Step, done, say, until, write

FALLING = "[Ralph] Falling back to normal execution..."
CALLED: Step = {"append": {"../called": "x"}}
WORK = [CALLED, write(made__txt="x"), done()]
Breaks = Callable[[Ralph], tuple[str, ...]]


@pytest.fixture(autouse=True)
def the_ledger_is_gone_in_the_end(ralph: Ralph) -> Iterator[None]:
    """Nothing can be asked of one that a test broke."""
    yield
    shutil.rmtree(ledger_of(ralph).parent, ignore_errors=True)


def ledger_of(ralph: Ralph) -> Path:
    return Path(ralph.project.store) / "ledger.db"


def directory(ralph: Ralph) -> tuple[str, ...]:
    """In the place of the ledger is something that cannot be one."""
    ledger_of(ralph).mkdir(parents=True, mode=0o700)
    return ()


def opening(ralph: Ralph) -> tuple[str, ...]:
    """The ledger is a database of somebody else's, and cannot be made ours."""
    _database(ledger_of(ralph), "CREATE TABLE run (mine TEXT)")
    return ()


def beginning(ralph: Ralph) -> tuple[str, ...]:
    """The ledger is whole and of our version, and what earlier runs were cannot be asked of it."""
    _database(ledger_of(ralph), f"PRAGMA user_version = {LEDGER_SCHEMA.version}")
    return ()


def looking(ralph: Ralph) -> tuple[str, ...]:
    """The ledger breaks while the checks have their first look; when they look again nothing is left to break."""
    return ("--check", breaking(ralph))


def _database(path: Path, statement: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()
    path.chmod(0o600)


def breaking(ralph: Ralph) -> str:
    """A command that takes from the ledger what every record needs."""
    statements = "import sqlite3,sys;d=sqlite3.connect(sys.argv[1]);d.execute('DROP TABLE IF EXISTS record');d.commit()"
    return shlex.join([sys.executable, "-c", statements, str(ledger_of(ralph))])


everywhere = pytest.mark.parametrize("breaks", [directory, opening, beginning, looking])


def run(ralph: Ralph, *flags: str, steps: list[Step] | None = None, **settings: object) -> Ended:
    ralph.settings(**settings)
    agent = ralph.script(WORK if steps is None else steps)
    ended = ralph("run", "-p", "make it so", "--agent", agent, "-m", "5", *flags)
    no_traceback(ended)
    unlocked(ralph)
    return ended


def single(ralph: Ralph, *flags: str, steps: list[Step] | None = None, **settings: object) -> Ended:
    return run(ralph, *flags, steps=steps, onInternalError="single-pass", **settings)


def calls(ralph: Ralph) -> int:
    path = ralph.folder / "called"
    return len(path.read_text()) if path.exists() else 0


@everywhere
def test_by_default_it_stops_and_no_agent_is_asked(ralph: Ralph, breaks: Breaks) -> None:
    """SC-16: nobody falls back who did not ask for it."""
    ended = run(ralph, *breaks(ralph))
    assert (ended.code, calls(ralph)) == (3, 0), ended
    assert str(ledger_of(ralph)) in ended.err + ended.out
    assert FALLING not in ended.err


@everywhere
def test_a_single_pass_says_so_and_asks_the_agent_once(ralph: Ralph, breaks: Breaks) -> None:
    ralph.commit()
    ended = single(ralph, "--check", "test -f made.txt", *breaks(ralph))
    assert (ended.code, calls(ralph)) == (0, 1), ended
    failed, falling = [line for line in ended.err.splitlines() if line.startswith("[Ralph]")]
    assert failed.startswith(f"[Ralph] Wrapper failed: cannot use {ledger_of(ralph)}: ")
    assert falling == FALLING
    assert ended.err.count(FALLING) == 1, "it is said once"
    (line,) = ended.out.splitlines()
    assert line.startswith("COMPLETED, verified by its checks: 1 iteration, ")
    assert "Iteration 1 of 1" in ended.err
    assert "ralph status" not in ended.err, "there is no record that it could tell of"


def test_the_run_folder_of_a_single_pass_is_complete(ralph: Ralph) -> None:
    ralph.commit()
    steps = [CALLED, write(made__txt="x"), say("hm")]
    ended = single(ralph, "--check", "echo red; false", *opening(ralph), steps=steps)
    assert (ended.code, calls(ralph)) == (1, 1), ended
    assert "ABORTED, MAX_ITERATIONS: 1 of 1 iterations are used" in ended.out
    folder = (ralph.root / ".ralph" / "latest").resolve()
    assert (folder / "prompt_001.txt").read_text().startswith("make it so\n")
    assert "hm" in (folder / "agent_001.ndjson").read_text()
    (log,) = folder.glob("guardrail_001_*.log")
    assert (log.read_text(), str(log.relative_to(ralph.root)) in ended.err) == ("red\n", True)
    assert ralph.outcome()["reason"] == "MAX_ITERATIONS"
    assert ralph.git("show", f"refs/ralph/{folder.name}/1:made.txt") == "x"
    ralph.git("fsck", "--strict")


@pytest.mark.parametrize(
    ("steps", "flags", "code", "out"),
    [
        ([CALLED, done()], ("--check", "false"), 1, "MAX_ITERATIONS"),
        ([CALLED, say("not yet")], (), 1, "MAX_ITERATIONS"),
        ([CALLED, done()], (), 0, "COMPLETED, CLAIMED by the agent"),
        ([CALLED, {"cost": 5}, done()], ("--max-cost-usd", "1"), 1, "COST_LIMIT: spent $5.00 of $1.00"),
        ([CALLED, {"cost": 5}, {"sleep": 60}], ("--max-cost-usd", "1"), 1, "COST_LIMIT: spent $5.00 of $1.00"),
        ([CALLED, write(kept="x"), done()], ("--protect", "kept"), 1, "PROHIBITED_PATH"),
        ([CALLED, {"exit": 0}], (), 1, "EMPTY_REPLIES"),
        ([CALLED, {"limited": {"message": "busy", "in_s": 1}}, {"error": "busy"}], (), 1, "SERVICE_UNAVAILABLE"),
    ],
    ids=["red", "unclaimed", "claimed", "dear", "dear-in-mid-turn", "protected", "empty", "refused-by-its-service"],
)
def test_limits_and_checks_hold_and_the_exit_code_is_the_outcomes(
    ralph: Ralph, steps: list[Step], flags: tuple[str, ...], code: int, out: str
) -> None:
    """SC-16: in a single pass too."""
    ended = single(ralph, *flags, *opening(ralph), steps=steps)
    assert (ended.code, calls(ralph), out in ended.out) == (code, 1, True), ended


def test_what_it_spends_is_booked_and_what_others_spent_today_counts(ralph: Ralph) -> None:
    steps = [CALLED, {"cost": 0.75}, done()]
    assert single(ralph, *opening(ralph), steps=steps).code == 0
    book = SpendStore.open(str(ralph.state_dir))
    assert [booking[1:] for booking in book.days(0, 10**6)] == [(750_000, 0)]
    book.close()
    ended = single(ralph, steps=steps, limits={"dailyCostUsd": 0.5})
    assert (ended.code, calls(ralph)) == (1, 1), ended
    assert "DAILY_COST_LIMIT" in ended.out


def test_a_failure_after_the_first_turn_never_falls_back(ralph: Ralph) -> None:
    """SC-16: an agent was asked."""
    ended = single(ralph, steps=[CALLED, {"run": ["sh", "-c", breaking(ralph)]}, done()])
    assert (ended.code, calls(ralph)) == (3, 1), ended
    assert "[Ralph]" not in ended.err
    assert "no such table: record" in ended.out


def test_errors_of_the_user_are_still_refused(ralph: Ralph) -> None:
    _database(ledger_of(ralph), "PRAGMA user_version = 99")
    ended = single(ralph)
    assert (ended.code, calls(ralph), FALLING in ended.err) == (2, 0, False), ended


def test_on_a_full_disk_nothing_begins_at_all(ralph: Ralph) -> None:
    with small_disk(ralph.state_dir, kib=64):
        assert ralph.project.store
        fill(ralph.state_dir / "filler")
        ended = single(ralph)
        assert (ended.code, calls(ralph), FALLING in ended.err) == (1, 0, False), ended
        assert "DISK_FULL" in ended.err


def fill(path: Path) -> None:
    """Write until there is no room."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass


@pytest.mark.parametrize("setting", ["stop", "single-pass"])
def test_a_run_that_could_not_begin_releases_the_project_lock(ralph: Ralph, setting: str) -> None:
    opening(ralph)
    run(ralph, onInternalError=setting)
    ledger_of(ralph).unlink()
    ended = run(ralph)
    assert ended.code == 0, ended
    assert "did not end properly" not in ended.err


def test_a_single_pass_does_not_begin_beside_an_orphaned_agent(ralph: Ralph) -> None:
    agent = ralph.script([{"write": {"../begun": ""}}, {"until": "../go"}])
    live = ralph.start("run", "-p", "make it so", "--agent", agent)
    until((ralph.folder / "begun").exists, "the agent works")
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    (row,) = ralph.runs()
    kept = ledger_of(ralph).rename(ledger_of(ralph).with_name("kept"))
    opening(ralph)
    ended = single_beside(ralph)
    assert (ended.code, calls(ralph)) == (2, 0), ended
    assert f"run {row.id} lost its harness, and its agent is still at work here" in ended.err
    ledger_of(ralph).unlink()
    kept.rename(ledger_of(ralph))
    (ralph.folder / "go").touch()
    until(lambda: find_live_turn(ralph.project, row.id) is None, "the agent is gone before its folder is")


def single_beside(ralph: Ralph) -> Ended:
    """A single pass while the lock of another turn is held."""
    ralph.settings(onInternalError="single-pass")
    return ralph("run", "-p", "make it so", "--agent", ralph.script(WORK, name="beside"))


def test_json_names_the_single_pass(ralph: Ralph) -> None:
    ended = single(ralph, "--json", *opening(ralph))
    assert ended.code == 0, ended
    assert ended.err.count(FALLING) == 1
    failed, falling, *_ = [line["data"]["message"] for line in ended.lines if line["type"] == "notice"]
    assert failed.startswith(f"[Ralph] Wrapper failed: cannot use {ledger_of(ralph)}: ")
    assert falling == FALLING
    last = ended.lines[-1]
    assert (last["type"], last["data"]["status"]) == ("run.ended", "COMPLETED"), ended.lines


def test_the_end_of_a_single_pass_is_notified(ralph: Ralph) -> None:
    (ralph.folder / "config").mkdir()
    settings = json.dumps({"notify": ["sh -c 'cat > ../told'"]})
    (ralph.folder / "config" / "settings.json").write_text(settings)
    assert single(ralph, *opening(ralph)).code == 0
    assert "COMPLETED" in (ralph.folder / "told").read_text()


def test_secrets_in_the_failure_are_masked(ralph: Ralph) -> None:
    """The place of the ledger is in the message, and names may be anything."""
    ralph.env["RALPH_STATE_DIR"] = str(ralph.state_dir / "xyzzy-plugh-1234")
    ralph.env["DEPLOY_TOKEN"] = "xyzzy-plugh-1234"
    ended = single(ralph, *opening(ralph))
    assert ended.code == 0, ended
    assert "[Ralph] Wrapper failed: cannot use " in ended.err
    assert "xyzzy-plugh-1234" not in ended.err + ended.out
