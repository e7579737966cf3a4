"""A run that goes on by itself."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from ralphproof.runs.children import HARNESS_LOG, spawn_run
from tests.cli.steering import detached, let, over, reached, rests, shown, shows, waits_for
from tests.ralph import Ralph, done, say, until, write


@pytest.fixture(autouse=True)
def _project(ralph: Ralph) -> None:
    ralph.commit()


def test_it_goes_on_without_us_in_a_session_of_its_own(ralph: Ralph) -> None:
    told = ralph("run", "-p", "x", "--agent", ralph.script([waits_for("one"), done()]), "--detach")
    (row,) = ralph.runs()
    assert (told.code, told.err) == (0, "")
    assert told.out == (
        f"run {row.id} continues in the background; follow it: ralph attach {row.id}; end it: ralph cancel {row.id}\n"
    )
    reached(ralph, "one")
    assert os.getsid(row.pid) == row.pid
    assert ralph("status", "--json").json["state"] == "running"
    let(ralph, "one")
    assert over(ralph, row.id)["status"] == "COMPLETED"


def test_one_that_ends_at_once_has_begun_all_the_same(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([done()]))
    assert over(ralph, run)["status"] == "COMPLETED"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["-p", "x", "--agent", "no-such-agent"], "no-such-agent"),
        (["-p", "x", "--max-cost-usd", "none"], "must be a number above 0"),
        (["-f", "nowhere.md"], "nowhere.md"),
        ([], "no prompt"),
        (["-p", "x", "--agent", "true", "--dry-run"], "--dry-run"),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else None,
)
def test_what_is_wrong_is_said_at_once_and_nothing_begins(ralph: Ralph, flags: list[str], why: str) -> None:
    told = ralph("run", *flags, "--detach")
    assert (told.code, told.out) == (2, "")
    assert why in told.err
    assert len(told.err.splitlines()) == 1
    assert ralph.runs() == ()


def test_a_directory_that_is_taken_is_said_at_once(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([waits_for("one"), done()]))
    told = ralph("run", "-p", "x", "--agent", "true", "--detach")
    assert (told.code, told.out) == (2, "")
    assert f"run {run}" in told.err
    assert [row.id for row in ralph.runs()] == [run]


def test_a_prompt_from_standard_input_reaches_the_agent(ralph: Ralph) -> None:
    agent = ralph.script([{"record": "../seen"}, done()])
    told = ralph("run", "-f", "-", "--agent", agent, "--detach", "--json", stdin="naïve words\nin two lines\n")
    assert told.code == 0
    over(ralph, told.json["run"])
    seen = json.loads((ralph.folder / "seen").read_text())
    assert seen["prompt"].startswith("naïve words\nin two lines\n")


def test_a_run_that_is_resumed_may_go_on_by_itself_too(ralph: Ralph) -> None:
    agent = ralph.script([write(a="1"), say("not yet")], [waits_for("two"), write(b="1"), done()])
    assert ralph("run", "-p", "x", "--agent", agent, "--check", "test -f b", "-m", "1").code == 1
    (row,) = ralph.runs()
    still = ralph("run", "--resume", "--detach")
    assert (still.code, "MAX_ITERATIONS" in still.err) == (2, True), still
    told = ralph("run", "--resume", "--detach", "-m", "3", "--json")
    assert (told.code, told.json["run"]) == (0, row.id), told
    reached(ralph, "two")
    assert ralph("status", "--json").json["state"] == "running"
    let(ralph, "two")
    assert over(ralph, row.id)["iterations"] == 2


def test_from_the_beginning_to_a_cancel(ralph: Ralph) -> None:
    steps = [[waits_for("one"), write(a="1"), say("not yet")], [waits_for("two"), say("two is at work")]]
    run = detached(ralph, ralph.script(*steps), "--check", "test -f never")
    reached(ralph, "one")
    onlooker = ralph.start("attach", run)
    shows(onlooker, "the agent works")
    assert ralph("say", run, "mind the gap").code == 0
    assert ralph("pause", run).code == 0
    let(ralph, "one")
    rests(ralph, run)
    shows(onlooker, "  rests, as it was asked to; ralph resume goes on\n")
    assert ralph("status", run, "--json").json["state"] == "paused"
    assert ralph("resume", run).out == f"run {run} goes on\n"
    reached(ralph, "two")
    shows(onlooker, "  you say to the agent: mind the gap\n")
    assert ralph("cancel", run).code == 0
    ended = onlooker.end()
    assert ended.code == 130
    assert "ABORTED, CANCELLED" in ended.out
    assert ralph.outcome(run)["reason"] == "CANCELLED"
    until(lambda: ralph.processes(run) == [], "nothing of it is left")
    assert "not done" in shown(onlooker)


def test_it_learns_how_programs_end_though_we_ignore_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\nprint(*[line for line in open('/proc/self/status') if 'SigIgn' in line])\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    (tmp_path / "runs" / "r").mkdir(parents=True)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        pid = spawn_run("r", str(tmp_path), str(tmp_path), os.environ)
        with pytest.raises(ChildProcessError):  # that is what to ignore them means; it has ended
            os.waitpid(pid, 0)
    finally:
        signal.signal(signal.SIGCHLD, before)
    ignored = int((tmp_path / "runs" / "r" / HARNESS_LOG).read_text().split()[1], 16)
    assert not ignored & 1 << signal.SIGCHLD - 1
