"""Machines that are not as they should be: disks, rights, limits, clocks, locales, and other runs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.cli.dispatch import run_to_exit_code
from ralphproof.engine.limits import WORKSPACE_GONE
from ralphproof.engine.outcome import Aborted
from ralphproof.engine.records import Judged
from ralphproof.engine.state import RunOver, build_state
from ralphproof.process.tree import with_descendants
from ralphproof.store.ledger import SqliteLedger
from tests.misbehaviour.agents import case, seen
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import exits, give, recorded, small_disk, strangers_project, there
from tests.ralph import Ended, Ralph, done, say, until, write


def run(ralph: Ralph, *flags: str, agent: str | None = None, **how: object) -> Ended:
    """A run of one iteration; without an agent of its own, one that does a little work and says that it is done."""
    agent = agent or ralph.script([write(work="done"), done()])
    argv = ("run", "-p", "make it so", "--agent", agent, "--check", "test -f work", "-m", "1", *flags)
    return ralph(*argv, **how)  # type: ignore[arg-type]


def completed(ralph: Ralph, ended: Ended) -> None:
    """The run went as it should."""
    hold(ralph, ended)
    assert ended.code == 0, ended


def filled(disk: Path) -> list[str]:
    """An argument list that leaves no room on a disk."""
    return ["sh", "-c", f"cat /dev/zero > {disk}/filler 2> /dev/null; test -s {disk}/filler"]


def test_a_disk_that_fills_up_in_mid_run_ends_it_and_spares_what_was_written(ralph: Ralph) -> None:
    """EN-01, DB-06"""
    with small_disk(ralph.state_dir, kib=1024):
        completed(ralph, run(ralph))
        (earlier,) = ralph.runs()
        kept = ralph.records(earlier.id)
        agent = ralph.script([{"run": filled(ralph.state_dir)}, write(work="more"), done()])
        ended = run(ralph, agent=agent)
        assert ended.code == 1, ended
        assert "ABORTED, DISK_FULL" in ended.out.splitlines()[-1]
        assert "Traceback" not in ended.err
        assert there(ralph.folder) == []
        assert ralph.records(earlier.id) == kept
        (ralph.state_dir / "filler").unlink()
        completed(ralph, run(ralph))
        assert ralph.records(earlier.id) == kept
        ralph.close()


def test_a_log_that_cannot_be_written_in_full_ends_the_run_and_the_next_one_goes_on(ralph: Ralph) -> None:
    """EN-01: behind what was written nobody hears a claim. The work is kept, and the cause is said."""
    ralph.program(
        "talks", "echo 1 > work; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo '<response>DONE</response>'"
    )
    limited = ("sh", "-c", 'ulimit -f 2048; exec "$@"', "sh")
    argv = ("run", "-p", "make it so", "--agent", "talks", "--check", "test -f work")
    ended = ralph(*argv, via=limited)
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["reason"]) == (1, "DISK_FULL"), ended
    assert "File too large" in ended.err
    assert exits(ralph)[0].lost_bytes > 900_000
    assert "ABORTED, DISK_FULL" in ended.out.splitlines()[-1]
    again = ralph("run", "--resume")
    assert (again.code, ralph.outcome()["iterations"]) == (0, 2), again


def test_a_disk_that_is_full_from_the_start_starts_no_agent(ralph: Ralph) -> None:
    """EN-01, DB-06"""
    with small_disk(ralph.state_dir, kib=64):
        (ralph.state_dir / "filler").write_bytes(bytes(64 * 1024))
        ended = run(ralph)
        assert ended.code == 1, ended
        assert "DISK_FULL" in ended.err
        assert str(ralph.state_dir) in ended.err
        assert "Traceback" not in ended.err
        assert not (ralph.root / "work").exists()


@pytest.mark.parametrize(
    ("shut", "mode"),
    [
        case("EN-03-project", "project", 0o555),
        case("EN-04-ralph", "project/.ralph", 0o555),
        case("DB-06-state", "state", 0o500),
    ],
)
def test_a_place_that_may_not_be_written_is_refused_before_any_agent(shut: str, mode: int) -> None:
    """EN-03, EN-04, DB-06"""
    with strangers_project() as (ralph, as_stranger):
        (ralph.folder / shut).mkdir(exist_ok=True)
        give(ralph.folder)
        agent = ralph.script([write(**{"../started": ""}), done()])
        (ralph.folder / shut).chmod(mode)
        ended = run(ralph, agent=agent, via=as_stranger)
        (ralph.folder / shut).chmod(0o755)
        assert ended.code == 2, ended
        assert str(ralph.folder / shut) in ended.err
        assert len(ended.err.splitlines()) == 1, ended.err
        assert not (ralph.folder / "started").exists()


@pytest.mark.parametrize("how", ["rm -rf", "mv"])
@pytest.mark.parametrize("in_git", [True, False])
def test_a_project_that_goes_away_ends_the_run_and_its_record_stays(ralph: Ralph, how: str, in_git: bool) -> None:
    """EN-25"""
    if in_git:
        ralph.commit()
    away = f'{how} "$PWD"' + (" ../elsewhere" if how == "mv" else "")
    ended = run(ralph, agent=ralph.script([{"run": ["sh", "-c", away]}, done()]))
    assert (ended.code, ralph.root.exists()) == (1, False), ended
    assert "ABORTED, WORKSPACE_GONE" in ended.out.splitlines()[-1]
    assert "Traceback" not in ended.err
    assert there(ralph.folder) == []
    (folder,) = (ralph.state_dir / "repos").iterdir()
    ledger = SqliteLedger.open(str(folder), read_only=True)
    phase = build_state(ledger.records(ledger.find("latest"))).phase
    ledger.close()
    assert isinstance(phase, RunOver)
    assert isinstance(phase.outcome, Aborted)
    assert phase.outcome.breach.reason == WORKSPACE_GONE


@pytest.mark.parametrize("in_git", [True, False])
def test_forty_open_files_are_enough(ralph: Ralph, in_git: bool) -> None:
    """EN-27"""
    if in_git:
        ralph.commit()
    completed(ralph, run(ralph, via=("prlimit", "--nofile=40")))


@pytest.mark.parametrize("most", [15, 9, 5])
def test_too_few_open_files_are_said_in_one_line(ralph: Ralph, most: int) -> None:
    """EN-27"""
    ralph.commit()
    ended = run(ralph, via=("prlimit", f"--nofile={most}"))
    assert ended.code in (2, 3), ended
    assert "open" in (ended.out or ended.err).splitlines()[-1]
    assert "Traceback" not in ended.err
    if ralph.state_dir.exists():
        assert all(row.ended for row in ralph.runs())
    completed(ralph, run(ralph))


def test_without_a_home_or_a_folder_for_temporary_files_a_run_works(ralph: Ralph) -> None:
    """EN-28"""
    del ralph.env["HOME"]
    completed(ralph, run(ralph, env={"TMPDIR": "/no/such/folder"}))
    completed(ralph, run(ralph, env={"HOME": "/no/such/folder"}))


def test_a_user_without_a_home_hears_what_to_set() -> None:
    """EN-28"""
    with strangers_project() as (ralph, as_stranger):
        give(ralph.folder)
        del ralph.env["RALPH_STATE_DIR"]
        ended = run(ralph, env={"HOME": "/no/such/folder"}, via=as_stranger)
        assert ended.code == 2, ended
        assert "RALPH_STATE_DIR" in ended.err
        assert len(ended.err.splitlines()) == 1


def test_variables_that_lead_elsewhere_do_not(ralph: Ralph, tmp_path: Path) -> None:
    """EN-29"""
    ralph.commit()
    other = Ralph(tmp_path / "other")
    other.commit()
    astray = {"GIT_DIR": f"{other.root}/.git", "GIT_WORK_TREE": str(other.root), "GIT_INDEX_FILE": "/no/such/index",
              "CLAUDECODE": "1", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath",
              "GIT_CONFIG_VALUE_0": "/no/such/hooks"}  # fmt: skip
    agent = ralph.script([write(work="done"), {"record": "../seen"}, {"git": ["add", "work"]}, done()])
    completed(ralph, run(ralph, agent=agent, env=astray | {"ANTHROPIC_BASE_URL": "http://localhost:1"}))
    (given,) = seen(ralph)
    assert {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "CLAUDECODE"}.isdisjoint(given["env"])
    assert {"ANTHROPIC_BASE_URL", "PYTHONPATH"} <= set(given["env"]), "what the user wants for the agent stays"
    assert ralph.git("status", "--porcelain", "work") == "A  work\n"
    assert other.git("for-each-ref", "refs/ralph") == other.git("status", "--porcelain") == ""


@pytest.mark.parametrize("umask", ["000", "077"])
@pytest.mark.parametrize("in_git", [True, False])
def test_modes_do_not_depend_on_the_umask(ralph: Ralph, umask: str, in_git: bool) -> None:
    """EN-30, SC-08"""
    if in_git:
        ralph.commit()
    umasked = ("sh", "-c", f'umask {umask}; exec "$@"', "sh")
    agent = ralph.script([{"run": ["sh", "-c", "umask > ../umask"]}, write(work="done"), done()])
    completed(ralph, run(ralph, agent=agent, via=umasked))
    assert (ralph.folder / "umask").read_text().strip()[-3:] == umask, "the agent's own files are the user's business"
    open_to_others = [path for path in (ralph.state_dir, ralph.root / ".ralph") if path.stat().st_mode & 0o77]
    assert open_to_others == []


def test_carriage_returns_are_no_obstacle(ralph: Ralph) -> None:
    """EN-14"""
    ralph.write({".ralph/settings.json": '{\r\n  "completionResponse": "READY"\r\n}\r\n'})
    (ralph.root / "prompt.md").write_bytes(b"Make it so.\r\nAll of it.\r\n")
    agent = ralph.script([{"record": "../seen"}, write(work="done"), say("Yes.\r\n<response>READY</response>\r")])
    ended = ralph("run", "-f", "prompt.md", "--agent", agent, "--check", "test -f work", "-m", "1")
    completed(ralph, ended)
    assert "All of it." in seen(ralph)[0]["prompt"]


@pytest.mark.parametrize("flags", [(), ("--json",), ("--verbose",)])
def test_a_locale_without_words_for_some_letters_stops_nothing(ralph: Ralph, flags: tuple[str, ...]) -> None:
    """EN-15"""
    ralph.settings(guardrails=[{"command": "echo ✗ ñandú 🐛; test -f work", "name": "prüfung"}])
    agent = ralph.script([write(work="✓", ñandú="🐛"), say("✓ all good, 🐛 gone"), done()])
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ended = ralph("run", "-p", "mach es schön 🐛", "--agent", agent, "-m", "1", *flags, env=plain)
    completed(ralph, ended if not flags or flags[0] != "--json" else Ended(ended.code, "", ended.err))
    assert "UnicodeEncodeError" not in ended.err


JUMPY = """
import time
real, calls = time.time, [0]
def jumping():
    calls[0] += 1
    return real() + (3600 if calls[0] % 2 else -3600)
time.time = jumping
"""


def test_a_clock_that_jumps_by_an_hour_changes_no_duration_and_no_order(ralph: Ralph) -> None:
    """EN-16"""
    (ralph.folder / "jumpy").mkdir()
    (ralph.folder / "jumpy" / "sitecustomize.py").write_text(JUMPY)
    ralph.env["PYTHONPATH"] += f"{os.pathsep}{ralph.folder / 'jumpy'}"
    ralph.settings(limits={"maxMinutes": 5}, agent={"timeoutSeconds": 60})
    agent = ralph.script([say("working"), write(part="1")], [write(work="done"), done()])
    for number in range(1, 3):
        completed(ralph, run(ralph, "-m", "2", agent=agent))
        assert len(ralph.runs()) == number
        newest = ralph.runs()[0].id
        elapsed = [record.elapsed_s for record in recorded(ralph, Judged)]
        assert sorted(elapsed) == elapsed
        assert 0 <= ralph.outcome()["durationSeconds"] < 300
        assert all(0 <= end.seconds < 60 for end in exits(ralph))
        assert f"run {newest}" in ralph("status").out, "the latest is the one that began last, whatever the clock says"


def test_a_suspension_is_no_timeout(ralph: Ralph) -> None:
    """EN-17"""
    ralph.settings(agent={"timeoutSeconds": 2, "idleTimeoutSeconds": 2})
    agent = ralph.script([write(**{"../started": ""}), {"until": "../go"}, write(work="done"), done()])
    live = ralph.start("run", "-p", "make it so", "--agent", agent, "--check", "test -f work", "-m", "1")
    until((ralph.folder / "started").exists, "the agent works")
    everything = with_descendants([live.process.pid])
    for pid in everything:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(3)  # longer than the agent may take, or be silent
    for pid in reversed(everything):
        os.kill(pid, signal.SIGCONT)
    (ralph.folder / "go").touch()
    ended = live.end()
    completed(ralph, ended)
    (end,) = exits(ralph)
    assert end.why == "exit"
    assert end.paused_s > 2
    assert ended.err.count("suspended") == 1, "it is said once"


def test_a_second_run_in_the_same_directory_is_refused_and_names_the_first(ralph: Ralph) -> None:
    """EN-18"""
    agent = ralph.script([write(**{"../started": ""}), {"until": "../go"}, write(work="done"), done()])
    live = ralph.start("run", "-p", "make it so", "--agent", agent, "--check", "test -f work", "-m", "1")
    until((ralph.folder / "started").exists, "the first one works")
    (first,) = ralph.runs()
    second = run(ralph, agent=ralph.script([done()], name="second"))
    assert second.code == 2, second
    assert f"run {first.id} (pid {live.process.pid})" in second.err
    (ralph.folder / "go").touch()
    completed(ralph, live.end())
    assert len(ralph.runs()) == 1


def test_of_twenty_simultaneous_starts_one_runs(ralph: Ralph) -> None:
    """EN-19"""
    agent = ralph.script([{"append": {"../started": "x"}}, {"until": "../go"}, write(work="done"), done()])
    argv = ("run", "-p", "make it so", "--agent", agent, "--check", "test -f work", "-m", "1")
    lives = [ralph.start(*argv) for _ in range(20)]
    until(lambda: sum(live.process.poll() is not None for live in lives) == 19, "nineteen are refused")
    until((ralph.folder / "started").exists, "one works")
    (ralph.folder / "go").touch()
    ended = sorted((live.end() for live in lives), key=lambda end: end.code)
    assert [end.code for end in ended] == [0] + [2] * 19
    completed(ralph, ended[0])
    assert (ralph.folder / "started").read_text() == "x"
    assert len(ralph.runs()) == 1


NAMED = {
    "a state folder": ({"RALPH_STATE_DIR": "/proc/nope"}, ("run", "-p", "x", "--agent", "true"), "set RALPH_STATE_DIR"),
    "a state folder, looked at": ({"RALPH_STATE_DIR": "/proc/self/nope"}, ("cancel",), "set RALPH_STATE_DIR"),
    "a task folder": ({}, ("supervise", "--task-folder", "/proc/x", "--", "true"), "choose another task folder"),
    "no task folder": ({}, ("supervise", "--task-folder", "", "--", "true"), "the task folder has an empty name"),
    "no task folder of a bus": ({}, ("bus", "post", "--task-folder", "", "hi"), "--task-folder is empty"),
    "no project": ({}, ("-d", "", "status"), "the project's folder has an empty name"),
}


@pytest.mark.parametrize("what", NAMED)
def test_a_path_that_the_user_named_and_that_cannot_be_used_is_refused_with_advice(ralph: Ralph, what: str) -> None:
    env, argv, advice = NAMED[what]
    ended = ralph(*argv, env=env)
    assert (ended.code, len(ended.err.splitlines()), advice in ended.err) == (2, 1, True), ended


def test_what_the_system_says_of_a_path_that_the_user_named_is_a_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where no verb expected it."""

    def fails(path: str) -> Callable[[], int]:
        return lambda: os.open(path, os.O_WRONLY)

    assert run_to_exit_code(fails("/proc/nope/x"), ["export", "--output=/proc/nope"]) == 2
    assert capsys.readouterr().err == "ralph: cannot write /proc/nope/x: No such file or directory; name another path\n"
    assert run_to_exit_code(fails("/proc/nope/x"), ["status"]) == 3
