"""`ralph race`: the first verified entry wins, the others are stopped, and their work is saved."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ralphproof.engine.limits import Spend, utc_day
from ralphproof.store.spend import spend_on_day
from tests.misbehaviour.crashing import nothing_left
from tests.ralph import Ended, Ralph, Step, done, say, until, write

CHECK = ("--check", "test -f done")
RACE = ("race", "2", "-p", "make it so", *CHECK)


@pytest.fixture
def project(ralph: Ralph) -> Ralph:
    ralph.write({"a.txt": "a\n"})
    ralph.commit()
    return ralph


def agents(ralph: Ralph, *scripts: list[list[Step]]) -> tuple[str, ...]:
    """The flags for one agent a script."""
    commands = [ralph.script(*script, name=f"script-{number}") for number, script in enumerate(scripts)]
    return tuple(word for agent in commands for word in ("--agent", agent))


def slow(ralph: Ralph, **files: str) -> list[list[Step]]:
    """Works, and then waits for a word that never comes."""
    return [[write(**files), {"cost": 0.5}, write(**{f"{ralph.folder}/working": ""}), {"until": "../never"}, done()]]


def quick(*more: Step) -> list[list[Step]]:
    return [[*more, write(done="yes"), {"cost": 0.25}, done()]]


def worktree_names(ralph: Ralph) -> list[str]:
    output = ralph.git("worktree", "list", "--porcelain").splitlines()
    return [Path(line.split(" ", 1)[1]).name for line in output if line.startswith("worktree ")][1:]


def result(ended: Ended) -> dict[str, object]:
    found: dict[str, object] = ended.lines[-1]
    assert found["type"] == "race"
    return found


def test_the_first_verified_entry_wins_and_the_others_are_stopped(project: Ralph) -> None:
    waits = [[{"until": f"{project.folder}/working"}, write(done="yes"), {"cost": 0.25}, done()]]
    ended = project(*RACE, *agents(project, slow(project, half="x"), waits), "--json")
    output = result(ended)
    assert ended.code == 0, ended
    lost, won = sorted(output["arrivals"], key=lambda one: bool(one["verified"]))  # type: ignore[call-overload]
    assert output["winner"] == won["run"]
    assert project.git("show", f"{output['branch']}:done") == "yes"
    assert project.git("show", f"refs/ralph/{lost['run']}/1:half") == "x", "the loser's work is in its refs"
    assert project.outcome(lost["run"])["reason"] == "CANCELLED"
    assert output["costUSD"] == 0.75, "who lost has cost something too"
    nothing_left(project)
    assert worktree_names(project) == []
    assert not (project.root / "done").exists()


def test_an_entry_that_fails_its_checks_cannot_win(project: Ralph) -> None:
    liar = [[say("all tests pass"), done()]]
    ended = project(*RACE, *agents(project, liar, liar), "-m", "1", "--json")
    assert ended.code == 1
    assert result(ended)["winner"] is None
    assert len(worktree_names(project)) == 2, "who was stopped by a limit can be taken up there"


def test_the_shared_budget_stops_all_entries(project: Ralph) -> None:
    dear: list[list[Step]] = [[{"cost": 0.6}, write(x="x"), say("not yet")]]
    ended = project(*RACE, *agents(project, dear, dear), "--total-cost-usd", "2", "--json")
    output = result(ended)
    assert ended.code == 1
    assert all("COST_LIMIT" in one["end"] for one in output["arrivals"])  # type: ignore[attr-defined]
    assert output["atLeastUSD"] <= 3.2  # type: ignore[operator]


def spent_today(ralph: Ralph) -> int:
    return (spend_on_day(str(ralph.state_dir), utc_day(time.time())) or Spend()).micro_usd


def test_the_shared_budget_still_counts_after_the_race_was_killed(project: Ralph) -> None:
    never: Step = {"until": str(project.folder / "never")}
    waits: list[list[Step]] = [[{"cost": 0.6}, never]]
    dear: list[list[Step]] = [[{"cost": 0.6}, {"until": str(project.folder / "go")}, {"cost": 1.5}, never]]
    live = project.start(*RACE, *agents(project, waits, dear), "--total-cost-usd", "2")
    until(lambda: spent_today(project) == 1_200_000, "both have told their cost")
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    (project.folder / "go").touch()
    until(lambda: not [pid for row in project.runs() for pid in project.processes(row.id)], "all are ended")
    assert spent_today(project) == 2_100_000


def test_a_killed_race_can_be_resumed(project: Ralph) -> None:
    flags = agents(project, slow(project, half="x"), slow(project, half="y"))
    live = project.start(*RACE, *flags)
    until((project.folder / "working").exists, "somebody works")
    until(lambda: len(project.runs()) == 2, "both have begun")
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    for number in range(2):
        project.script([write(done="yes"), done()], name=f"script-{number}")
    for row in project.runs():
        for pid in project.processes(row.id):
            with suppress(ProcessLookupError):  # one that ended with another
                os.kill(pid, signal.SIGKILL)
    ended = project("race", "--resume", "latest", "--json")
    assert ended.code == 0, ended
    output = result(ended)
    assert len(project.runs()) == 2, "nobody was begun anew"
    assert project.git("show", f"{output['branch']}:done") == "yes"
    nothing_left(project)


def test_ctrl_c_ends_all_entries_without_a_winner(project: Ralph) -> None:
    live = project.start(*RACE, *agents(project, slow(project, half="x"), slow(project, half="y")))
    until((project.folder / "working").exists, "somebody works")
    os.kill(live.process.pid, signal.SIGINT)
    os.kill(live.process.pid, signal.SIGINT)
    ended = live.end()
    assert ended.code == 130, ended
    nothing_left(project)
    assert len(worktree_names(project)) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("race",), "give the number of agents"),
        (("race", "1", "-p", "x"), "give the number of agents"),
        (("race", "x", "-p", "x"), "give the number of agents"),
        (("race", "2", "-p", "x", "--agent", "true"), "decided by checks"),
        (("race", "2", *CHECK, "--agent", "true"), "no prompt"),
        (("race", "--resume", "latest"), "there is no race"),
        (("race", "2", "-p", "x", "--detach"), "cannot be detached"),
    ],
)
def test_bad_input_gets_one_clear_line(project: Ralph, words: tuple[str, ...], says: str) -> None:
    ended = project(*words)
    assert ended.code == 2
    assert says in ended.err
    assert len(ended.err.strip().splitlines()) == 1, ended.err
    assert worktree_names(project) == []


def test_a_dry_run_lists_the_entries_and_starts_nothing(project: Ralph) -> None:
    ended = project(*RACE, *agents(project, quick(), quick()), "--dry-run", "--json")
    assert ended.code == 0
    assert len(result(ended)["entrants"]) == 2  # type: ignore[arg-type]
    assert project.runs() == ()
    assert worktree_names(project) == []


def test_a_race_whose_worktrees_cannot_be_created_leaves_none(project: Ralph) -> None:
    hook = project.program("git", 'case "$*" in *"worktree add "*"-2 "*) exit 1;; esac; exec "$REAL" "$@"')
    project.env["REAL"] = shutil.which("git") or ""
    ended = project(*RACE, *agents(project, quick(), quick()))
    assert ended.code == 2, ended
    hook.unlink()
    assert worktree_names(project) == []
    assert project.git("branch", "--list", "ralph/*") == ""


def test_setup_runs_in_the_worktree_of_every_entry(project: Ralph) -> None:
    project.settings(setup=["echo ready > prepared"])
    project.commit()
    sees: list[list[Step]] = [[{"run": ["cp", "prepared", "seen"]}, done()]]
    ended = project(*RACE, *agents(project, sees, sees), "-m", "1", "--json")
    assert ended.code == 1, "nobody wins, so each goes to its end"
    runs = [one["run"] for one in result(ended)["arrivals"]]  # type: ignore[attr-defined]
    assert [project.git("show", f"refs/ralph/{run}/1:seen") for run in runs] == ["ready\n", "ready\n"]
