"""Checks run once before the first iteration; their failures and files then are not the agent's."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from ralphproof.engine.records import BaselineSaved, CheckBegan, Saved, TurnBegan
from ralphproof.engine.state import RunOver
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import recorded, there, word
from tests.ralph import Live, Ralph, done, say, until, write
from tests.scenarios.test_scm_commits import committed, prepared

WORKS = [write(**{"../started": "yes"}), say("working")]


def prompt(ralph: Ralph, iteration: int) -> str:
    return (ralph.run_folder() / f"prompt_{iteration:03d}.txt").read_text(encoding="utf-8")


def steps(ralph: Ralph) -> list[tuple[str, int]]:
    """What began, in order: a check of an iteration, or a turn."""
    return [
        (type(record).__name__, record.iteration)
        for record in ralph.records()
        if isinstance(record, CheckBegan | TurnBegan)
    ]


@pytest.mark.parametrize(
    ("check", "note"),
    [
        ("echo broken; exit 3", " failed in the same way before the run began."),
        ("test ! -e made", " passed before the run began: what fails in it is new."),
        ("test -e made && echo worse; exit 3", ""),
    ],
    ids=["old", "new", "another"],
)
def test_the_next_prompt_tells_whether_a_failure_was_there_before(ralph: Ralph, check: str, note: str) -> None:
    ralph.commit()
    agent = ralph.script([write(made="yes"), say("working")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", check, "-m", "2")
    hold(ralph, ended)
    assert steps(ralph)[:4] == [("CheckBegan", 0), ("TurnBegan", 1), ("CheckBegan", 1), ("TurnBegan", 2)]
    assert "before the run began" not in prompt(ralph, 1)
    assert f'Guardrail "{check}" failed with exit code ' in prompt(ralph, 2)
    assert [line for line in prompt(ralph, 2).splitlines() if "before the run began" in line] == (
        [f'Guardrail "{check}"{note}'] if note else []
    )


SUITE = """\
import unittest
from pathlib import Path
class Calc(unittest.TestCase):
    def test_old(self): self.fail("as ever")
    def test_new(self): self.assertFalse(Path("made").exists())
    def test_fine(self): pass
if __name__ == "__main__":
    unittest.main()
"""


def test_tests_that_fail_now_and_did_not_before_are_named_as_new(ralph: Ralph) -> None:
    ralph.write({"calc.py": SUITE})
    ralph.commit()
    agent = ralph.script([say("working")], [write(made="yes"), say("working")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", f"{sys.executable} calc.py", "-m", "3")
    hold(ralph, ended)
    (before,) = ralph.state().baseline.report.findings
    assert before.tests is not None
    assert (before.tests.failed, before.tests.passed) == (1, 2)
    assert "its one failing test failed before the run began as well." in prompt(ralph, 2)
    told = prompt(ralph, 3)
    start = told.index("1 of its failing tests failed before the run began as well; these are new:\n")
    (named,) = [line for line in told[start:].splitlines() if line.startswith("- ")]
    assert "test_new" in named


@pytest.mark.parametrize("git", [True, False])
def test_what_the_checks_write_before_the_first_iteration_is_not_the_agents_change(ralph: Ralph, git: bool) -> None:
    ralph.write({"kept.txt": "as it was\n"})
    if git:
        ralph.commit()
    agent = ralph.script([say("working")], [write(made="yes"), done()])
    once = "test -e ../once || { touch ../once; echo seen > seen.txt; echo seen >> kept.txt; }"
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", f"{once}; test -f made")
    hold(ralph, ended)
    assert [record.change.paths for record in recorded(ralph, Saved)] == [(), ("made",)], ended
    assert (ralph.root / "seen.txt").read_text() == "seen\n"


def test_what_the_checks_write_before_the_first_iteration_is_not_committed(ralph: Ralph) -> None:
    prepared(ralph)
    agent = ralph.script([write(made__txt="x"), done()], message=[say("Add made.txt")])
    check = "test -f made.txt || { echo seen > seen.txt; echo seen >> kept.txt; false; }"
    assert ralph("run", "-p", "go", "--agent", agent, "--check", check).code == 0
    assert [record.committed.left for record in committed(ralph)] == [()]
    assert ralph.git("show", "--name-only", "--format=").split() == ["made.txt"]
    assert set(ralph.git("status", "--porcelain").splitlines()) == {" M kept.txt", "?? .ralph/", "?? seen.txt"}
    (grounded,) = recorded(ralph, BaselineSaved)
    run = ralph.runs()[0].id
    assert grounded.snapshot.ref == f"refs/ralph/{run}/0-checked"
    assert ralph.git("diff", "--name-only", f"refs/ralph/{run}/0", f"refs/ralph/{run}/0-checked").split() == [
        "kept.txt", "seen.txt",
    ]  # fmt: skip


def looking(ralph: Ralph, check: str) -> Live:
    """Start a run of two checks, and wait until the first looks before the first iteration."""
    second = ("--check", "touch ../second")
    live = ralph.start("run", "-p", "go", "--agent", ralph.script([*WORKS, done()]), "--check", check, *second)
    until((ralph.folder / "looking").exists, "the check looks")
    return live


@pytest.mark.parametrize(
    ("end", "said"),
    [("while ! test -e ../go; do sleep 0.01; done", ["exit"]), ("sleep 300", [])],
    ids=["ends", "is-cut"],
)
def test_ctrl_c_before_the_first_iteration_starts_no_agent(ralph: Ralph, end: str, said: list[str]) -> None:
    """A check that was cut short said nothing; it is asked again when the run goes on."""
    ralph.settings(shutdownGraceSeconds=60 if said else 0.2)
    live = looking(ralph, f": {word(ralph)}; touch ../looking; {end}")
    live.process.send_signal(signal.SIGINT)
    until(lambda: "shutting down" in Path(live.err.name).read_text(), "the signal is heard")
    (ralph.folder / "go").touch()
    ended = live.end()
    hold(ralph, ended)
    outcome = ralph.outcome()
    assert (ended.code, outcome["reason"], outcome["iterations"]) == (130, "INTERRUPTED", 0), ended
    assert [finding.why for finding in ralph.state().baseline.report.findings] == said
    assert steps(ralph) == [("CheckBegan", 0)]
    assert not (ralph.folder / "second").exists()
    assert not (ralph.folder / "started").exists()
    assert there(word(ralph)) == []


def test_a_check_that_hangs_before_the_first_iteration_is_ended_by_its_timeout(ralph: Ralph) -> None:
    command = f"test -f made || sleep 300; : {word(ralph)}"
    ralph.settings(guardrails=[{"command": command, "name": "hangs", "timeoutSeconds": 1}])
    ended = ralph("run", "-p", "go", "--agent", ralph.script([write(made="yes"), done()]))
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 1), ended
    (finding,) = ralph.state().baseline.report.findings
    assert (finding.passed, finding.why) == (False, "a timeout after 1 s")
    assert f"before the first iteration guardrail {command} fails with a timeout after 1 s" in ended.err
    assert there(word(ralph)) == []


def test_a_run_that_is_cancelled_before_the_first_iteration_starts_no_agent(ralph: Ralph) -> None:
    live = looking(ralph, f": {word(ralph)}; touch ../looking; sleep 300")
    assert ralph("cancel").code == 0
    ended = live.end()
    hold(ralph, ended)
    phase = ralph.state().phase
    assert isinstance(phase, RunOver)
    assert (ended.code, ralph.outcome()["reason"], phase.outcome.iterations) == (130, "CANCELLED", 0), ended
    assert steps(ralph) == [("CheckBegan", 0)]
    assert not (ralph.folder / "started").exists()
