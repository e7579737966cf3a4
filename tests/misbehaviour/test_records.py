"""The record of runs, when its file is damaged, too new, held by others, or meddled with."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import time
from pathlib import Path

import pytest

from ralphproof.engine.records import Saved
from ralphproof.engine.state import RunOver
from tests.misbehaviour.agents import TAG, Kind, both, case, seen
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import there
from tests.ralph import Ended, Ralph, done, say, until, write


def run(ralph: Ralph, *steps: dict[str, object]) -> Ended:
    agent = ralph.script([*steps, write(work="done"), done()])
    return ralph("run", "-p", "make it so", "--agent", agent, "--check", "test -f work", "-m", "1")


def ledger(ralph: Ralph) -> Path:
    return Path(ralph.project.store) / "ledger.db"


def overwritten(path: Path) -> None:
    path.write_bytes(os.urandom(20_000))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 + 100)


def scribbled_in(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))


@pytest.mark.parametrize(
    "damage", [case("DB-01-random", overwritten), case("DB-01-cut", cut), case("DB-01-pages", scribbled_in)]
)
def test_a_damaged_ledger_is_kept_aside_and_the_run_goes_on(ralph: Ralph, damage: object) -> None:
    """DB-01"""
    assert run(ralph).code == 0
    path = ledger(ralph)
    assert callable(damage)
    damage(path)
    bytes_before = path.read_bytes()
    ended = run(ralph)
    hold(ralph, ended)
    assert ended.code == 0, ended
    (kept,) = path.parent.glob("ledger.db.corrupt-*[0-9]")
    assert kept.read_bytes() == bytes_before
    assert "the ledger was damaged" in ended.err
    assert str(kept) in ended.err
    assert len(ralph.runs()) == 1, "a new ledger was begun"
    again = run(ralph)
    assert "damaged" not in again.err


@pytest.mark.parametrize("file", ["ledger.db", "spend.db"])
@pytest.mark.parametrize("change", [-1, 99], ids=["older", "newer"])
def test_state_of_another_version_is_refused_with_the_command_that_moves_it_away(
    ralph: Ralph, file: str, change: int
) -> None:
    """DB-02"""
    assert run(ralph).code == 0
    path = ledger(ralph) if file == "ledger.db" else ralph.state_dir / file
    with sqlite3.connect(path) as database:
        (ours,) = database.execute("PRAGMA user_version").fetchone()
        database.execute(f"PRAGMA user_version = {ours + change}")
    database.close()
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    (ralph.root / "work").unlink()
    agent = ralph.script([write(work="1"), done()])
    state = ralph.state_dir
    writer = "an older version of ralph;" if change < 0 else "a newer version of ralph; use that version, or"
    readers = (("status",), ("runs",), ("logs",), ("resume",)) if file == "ledger.db" else ()
    for argv in (("run", "-p", "make it so", "--agent", agent), *readers):
        ended = ralph(*argv)
        assert (ended.code, ended.out) == (2, ""), (argv, ended)
        assert ended.err == f"ralph: {state} was written by {writer} move it away: mv {state} {state}.old\n"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert not (ralph.root / "work").exists()
    state.rename(f"{state}.old")
    assert run(ralph).code == 0, "with the old state moved away"


def test_a_ledger_that_another_process_holds_for_a_while_is_waited_for(ralph: Ralph) -> None:
    """DB-05"""
    assert run(ralph).code == 0
    agent = ralph.script([write(**{"../started": ""}), {"until": "../go"}, done()])
    live = ralph.start("run", "-p", "make it so", "--agent", agent, "--check", "test -f work", "-m", "1")
    until((ralph.folder / "started").exists, "the agent works")
    holder = sqlite3.connect(ledger(ralph), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    (ralph.folder / "go").touch()
    until(lambda: not there(ralph.folder / "script.json") or there(ralph.folder / "script.json") == [live.process.pid],
          "the agent has ended")  # fmt: skip
    time.sleep(1)  # the time that the harness must wait for the record of it
    assert live.process.poll() is None
    holder.execute("ROLLBACK")
    holder.close()
    ended = live.end()
    hold(ralph, ended)
    assert ended.code == 0, ended


@pytest.mark.parametrize("in_git", [True, False])
def test_our_folder_may_be_deleted_in_mid_run(ralph: Ralph, in_git: bool) -> None:
    """RH-35: the settings in it come back, and nothing else of it is missed."""
    ralph.settings(guardrails=[{"command": "test -f work"}])
    settings = (ralph.root / ".ralph" / "settings.json").read_text()
    if in_git:
        ralph.commit()
    agent = ralph.script([{"run": ["rm", "-rf", ".ralph", "ralph"]}, say("gone")], [write(work="1"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "-m", "3")
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 2), ended
    assert isinstance(ralph.state().phase, RunOver)
    assert ended.err.count("not the agent's to change: .ralph/settings.json (the settings of ralph); put back") == 1
    assert (ralph.root / ".ralph" / "settings.json").read_text() == settings


CLEANED = pytest.mark.parametrize("clean", ["rm -rf .ralph", "git clean -fdxq"])


@both
@CLEANED
def test_an_agent_that_cleans_up_in_mid_turn_is_heard_all_the_same(ralph: Ralph, kind: Kind, clean: str) -> None:
    """RH-35"""
    ralph.commit()
    clears: dict[str, object] = {"run": ["sh", "-c", clean]}
    steps = [say("before"), clears, write(work="1"), {"stderr": "a complaint"}, say("after\n" + TAG)]
    ended = ralph(
        "run", "-p", "make it so", "--agent", kind(ralph, steps), "--check", "echo looked; test -f work", "-m", "1"
    )
    hold(ralph, ended)
    assert ended.code == 0, ended
    folder = ralph.run_folder()
    assert all(word in (folder / "agent_001.ndjson").read_text() for word in ("before", "after"))
    assert (folder / "agent_001.stderr.log").read_text() == "a complaint\n"
    assert (folder / "guardrail_001_echo_looked_test_f_work.log").read_text() == "looked\n"


@CLEANED
def test_a_check_that_cleans_up_and_fails_says_why_in_the_next_prompt(ralph: Ralph, clean: str) -> None:
    """RH-35"""
    ralph.write({"work": "open\n"})
    ralph.commit()
    looks = f"echo looking; {clean}; echo seen: $(cat work); grep -q done work"
    agent = ralph.script([{"record": "../seen"}, say("not yet")], [{"record": "../seen"}, write(work="done\n"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", looks, "-m", "2")
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 2), ended
    assert "looking\nseen: open\n" in seen(ralph)[1]["prompt"]
    logs = [path.read_text() for path in sorted(ralph.run_folder().glob("guardrail_00*.log"))]
    assert logs == [f"looking\nseen: {what}\n" for what in ("open", "open", "done")], "they went, and came back"


@pytest.mark.parametrize("in_git", [True, False])
def test_work_is_saved_even_where_its_log_cannot_be_shown(ralph: Ralph, in_git: bool) -> None:
    """RH-35: our folder becomes a link to somewhere else."""
    if in_git:
        ralph.commit()
    (ralph.folder / "elsewhere").mkdir()
    agent = ralph.script([write(work="1"), {"run": ["sh", "-c", "rm -rf .ralph && ln -s ../elsewhere .ralph"]}, done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", "test -f work", "-m", "2")
    assert ended.code == 2, ended
    assert ".ralph is a symbolic link or not a directory" in ended.err + ended.out
    assert [record.change.paths for record in ralph.records() if isinstance(record, Saved)] == [("work",)]
    assert list((ralph.folder / "elsewhere").iterdir()) == []
    assert "DONE" in ralph("logs").out


PLANTED = [
    case("RH-35-fifo", "mkfifo -m 600 {}"),
    case("RH-35-directory", "mkdir -m 700 {} && ln -s ../../../../../victim {}/mine"),
    case("RH-35-link", "ln -s ../../../../victim {}"),
    case("RH-35-dangling", "ln -s ../../../../made {}"),
]
OURS = ("agent_001.ndjson", "agent_001.stderr.log", "guardrail_001_test_f_work.log", "prompt_002.txt", "outcome.json")


@pytest.mark.parametrize("plant", PLANTED)
def test_what_stands_in_the_place_of_our_files_is_replaced(ralph: Ralph, plant: str) -> None:
    """RH-35"""
    (ralph.folder / "victim").write_text("mine")
    plants = "; ".join(f"rm -f {name}; {plant.format(name, name)}" for name in OURS)
    agent = ralph.script(
        [{"run": ["sh", "-ec", f"cd .ralph/runs/$RALPH_RUN_ID; {plants}"]}, say("planted")], [write(work="1"), done()]
    )
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", "test -f work", "-m", "2", timeout_s=30)
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 2), ended
    for name in OURS:
        assert stat.S_ISREG((ralph.run_folder() / name).lstat().st_mode), name
    assert "planted" in (ralph.run_folder() / "agent_001.ndjson").read_text()
    assert (ralph.folder / "victim").read_text() == "mine"
    assert not (ralph.folder / "made").exists()


@pytest.mark.parametrize("plant", PLANTED)
def test_something_else_in_the_place_of_a_log_beside_the_record_holds_nobody_up(ralph: Ralph, plant: str) -> None:
    """RH-35: an agent of the same user reaches even those."""
    (ralph.folder / "victim").write_text("mine")
    places = f"{ralph.state_dir}/repos/*/runs/*"
    plants = f'for log in {places}/{{}}*log {places}/{{}}*.ndjson; do rm -f "$log"; {plant.format(*["$log"] * 2)}; done'
    check = f"echo lost; {plants.format(*['guardrail'] * 2)}; exit 1"
    agent = ralph.script([write(work="1"), {"run": ["sh", "-c", plants.format(*["agent"] * 2)]}, say("lost")])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", check, "-m", "1", timeout_s=30)
    assert ended.code == 1, ended
    assert "Traceback" not in ended.err
    assert ralph("logs", timeout_s=30).code == 0
    assert (ralph.folder / "victim").read_text() == "mine"
    assert not (ralph.folder / "made").exists()


@pytest.mark.parametrize("place", ["in the project", "in another worktree", "in .git", "behind a link", "above it all"])
@pytest.mark.parametrize("variable", ["RALPH_STATE_DIR", "RALPH_CONFIG_DIR"])
def test_a_folder_of_ours_inside_the_repository_is_refused(ralph: Ralph, place: str, variable: str) -> None:
    """It would be saved as work, and agents could reach it."""
    ralph.write({"check.sh": "true"})
    ralph.commit()
    ralph.git("worktree", "add", "-q", "../beside", "-b", "beside")
    (ralph.folder / "link").symlink_to(ralph.root)
    places = {
        "in the project": ralph.root / "deep/state", "in another worktree": ralph.folder / "beside/state",
        "in .git": ralph.root / ".git/state", "behind a link": ralph.folder / "link/state", "above it all": ralph.root,
    }  # fmt: skip
    folder = places[place]
    if variable == "RALPH_CONFIG_DIR":
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "settings.json").write_text("{}", encoding="utf-8")
    before = ralph.git("status", "--porcelain")
    for argv in (("run", "-p", "x", "--agent", ralph.script([done()])), ("status",)):
        ended = ralph(*argv, env={variable: str(folder)})
        if argv == ("status",) and variable == "RALPH_CONFIG_DIR":
            continue
        assert (ended.code, len(ended.err.splitlines())) == (2, 1), ended
        assert f"set {variable} to a directory outside of it" in ended.err
    assert ralph.git("status", "--porcelain") == before
