"""Programs that are started again and again, and how they abuse it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.limits import Budget, Limits
from ralphproof.engine.outcome import Aborted
from ralphproof.engine.records import CheckBegan, ClaimFound, Judged, TurnBegan
from ralphproof.runs.assembly import build_rules
from ralphproof.settings.loader import load_settings
from tests.engine.fake_environment import CRASHING, NOTHING, RULES, FakeEnvironment, Step
from tests.misbehaviour.agents import case
from tests.misbehaviour.invariants import hold, no_traceback, refusal
from tests.ralph import Ended, Ralph, until

FAST = ("--restart-delay", "0")


def supervise(ralph: Ralph, text: str, *flags: str) -> Ended:
    ralph.write({"agent.sh": text})
    return ralph("supervise", *FAST, *flags, "--", "sh", "agent.sh")


def task(ralph: Ralph) -> Path:
    folder = ralph.folder / "task"
    folder.mkdir(exist_ok=True)
    return folder


def turns(ralph: Ralph) -> int:
    return sum(isinstance(record, TurnBegan) for record in ralph.records())


def test_a_marker_that_was_there_before_proves_nothing(ralph: Ralph) -> None:
    """FC-12"""
    (task(ralph) / "DONE").touch()
    ended = supervise(ralph, "exit 0", "--task-folder", str(task(ralph)), "--check", "false", "-m", "2")
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["reason"], turns(ralph)) == (1, "MAX_ITERATIONS", 2), ended
    assert [record for record in ralph.records() if isinstance(record, ClaimFound)] == [ClaimFound(1, 1)]
    assert not any(past.report.verified for past in ralph.state().history.iterations)


def test_a_marker_that_was_there_before_is_put_away_once_a_run_has_judged_it(ralph: Ralph) -> None:
    """FC-12: a second run in the same folder is not fooled by what the first one left."""
    flags = ("--task-folder", str(task(ralph)), "-m", "1")
    assert supervise(ralph, 'touch "$TASK_FOLDER/DONE"', *flags).code == 0
    ended = supervise(ralph, "touch started", *flags)
    hold(ralph, ended)
    assert (ended.code, turns(ralph)) == (1, 1), ended
    assert (ralph.root / "started").exists()


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def to_a_folder(path: Path) -> None:
    path.symlink_to("/")


def to_a_file(path: Path) -> None:
    (path.parent.parent / "target").write_text("precious")
    path.symlink_to("../target")


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        case("folder", folder, 2, "DONE is a directory"),
        case("pipe", pipe, 0, ""),
        case("dangling", dangling, 1, "DONE is a link to nothing, and counts for nothing"),
        case("to-a-folder", to_a_folder, 1, "DONE is a link to a directory, and counts for nothing"),
        case("to-a-file", to_a_file, 0, ""),
    ],
)
def test_a_marker_that_is_no_plain_file_hangs_and_harms_nothing(
    ralph: Ralph, make: Callable[[Path], None], code: int, words: str
) -> None:
    """FC-13: before a start; what a link leads to is neither read nor removed."""
    make(task(ralph) / "DONE")
    ended = supervise(ralph, "exit 0", "--task-folder", str(task(ralph)), "-m", "1")
    no_traceback(ended)
    assert ended.code == code, ended
    assert words in ended.err
    target = ralph.folder / "target"
    assert not target.exists() or target.read_text() == "precious"
    assert (task(ralph) / "DONE").lstat()


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        case("folder", 'mkdir "$TASK_FOLDER/DONE"', 2, "DONE is a directory"),
        case("pipe", 'mkfifo "$TASK_FOLDER/DONE"', 0, ""),
        case("dangling", 'ln -s nowhere "$TASK_FOLDER/DONE"', 1, "DONE is a link to nothing, and counts for nothing"),
        case("waiting-pipe", 'mkfifo "$TASK_FOLDER/WAIT_WITHOUT_RESTART"', 4, "waiting for: WAIT_WITHOUT_RESTART"),
    ],
)
def test_a_program_that_leaves_something_else_as_its_marker_is_not_misunderstood(
    ralph: Ralph, make: str, code: int, words: str
) -> None:
    """FC-13: after an attempt."""
    ended = supervise(ralph, make, "-m", "1")
    hold(ralph, ended)
    assert ended.code == code, ended
    assert words in ended.err


def test_a_marker_counts_only_when_its_program_is_dead(ralph: Ralph) -> None:
    """FC-14: it is done, goes on working, and undoes its work."""
    busy = "while ! test -f ../go; do sleep 0.01; done"
    ralph.write({"agent.sh": f'touch made "$TASK_FOLDER/DONE" ../up; {busy}; rm made'})
    live = ralph.start("supervise", *FAST, "-m", "1", "--check", "test -f made", "--", "sh", "agent.sh")
    until((ralph.folder / "up").exists, "it says that it is done")
    assert not any(isinstance(record, Judged) for record in ralph.records())
    assert [record.iteration for record in ralph.records() if isinstance(record, CheckBegan)] == [0]
    (ralph.folder / "go").touch()
    ended = live.end()
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS"), ended
    assert "DONE refused: 1 check failed" in ended.err


def test_a_program_that_waits_has_stopped_and_not_failed(ralph: Ralph) -> None:
    """PR-24"""
    ended = supervise(ralph, "exit 42", "--check", "false")
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["reason"], turns(ralph)) == (4, "WAITING", 1), ended
    assert "failed (exit 42)" not in ended.err
    assert "is stopped" in ralph("status").out


def test_exit_code_42_means_nothing_in_other_loops(ralph: Ralph) -> None:
    """PR-24"""
    agent = ralph.script([{"exit": 42}])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "-m", "2")
    hold(ralph, ended)
    assert (ended.code, turns(ralph)) == (1, 2), ended


@pytest.mark.parametrize("flags", [(), ("--check", "true")], ids=["unchecked", "checked"])
def test_a_program_that_ends_well_and_says_nothing_is_never_done(ralph: Ralph, flags: tuple[str, ...]) -> None:
    """PR-26: not even where the checks are green."""
    ended = supervise(ralph, "exit 0", "-m", "3", *flags)
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["reason"], turns(ralph)) == (1, "MAX_ITERATIONS", 3), ended


@pytest.mark.parametrize(
    ("program", "words"),
    [
        case("nowhere", "./nowhere", "nowhere does not exist"),
        case("not-executable", "./agent.sh", "agent.sh may not be executed"),
        case("folder", "./sub", "sub is a directory"),
        case("not-on-path", "no-such-program", "no-such-program was not found on PATH"),
    ],
)
def test_a_program_that_is_none_is_not_started_a_hundred_times(ralph: Ralph, program: str, words: str) -> None:
    """PR-27"""
    ralph.write({"agent.sh": "touch started", "sub/file": ""})
    refusal(ralph, ralph("supervise", "--", program), words)


def test_a_program_that_goes_away_between_two_attempts_is_fatal(ralph: Ralph) -> None:
    """PR-27"""
    path = ralph.program("vanishing", 'rm "$0"')
    ended = ralph("supervise", *FAST, "--", "vanishing")
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["status"], ralph.outcome()["iterations"]) == (2, "ERROR", 1), ended
    fatal = next(line for line in ended.err.splitlines() if "Fatal error: " in line)
    assert str(path) in fatal
    assert turns(ralph) == 2


def test_a_program_that_dies_at_once_is_given_more_and_more_time(ralph: Ralph) -> None:
    """PR-33: a hundred deaths in no time would take an hour and a half, asleep."""
    settings = load_settings(str(ralph.root), ralph.env, {"preset": "supervise"}).settings
    rules = build_rules(settings, RULES.pipeline)
    limits = Limits(Budget(rules.limits.budget.iterations), None, None)
    small = replace(RULES, limits=limits, agent=rules.agent)
    world = FakeEnvironment(Step(CRASHING, NOTHING), rules=small)
    outcome = world.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.iterations) == ("MAX_ITERATIONS", 100)
    assert world.clock.sleeps == [1, 2, 4, 8, 16, 32, *[60] * 93]


@pytest.mark.thorough
def test_a_program_that_dies_at_once_may_be_restarted_without_delay(ralph: Ralph) -> None:
    """PR-33: whoever wants it so gets it."""
    ended = supervise(ralph, "exit 1", "-m", "10")
    hold(ralph, ended)
    assert (ended.code, turns(ralph)) == (1, 10), ended
