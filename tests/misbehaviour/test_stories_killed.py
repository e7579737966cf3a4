"""A run by stories that is killed: it goes on where it was, and no story gains by it.

Every turn finds the file as if nobody had been killed, is told the same, and nothing that ended is done again.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ralphproof.engine.records import RunEnded, ScmEnded
from ralphproof.engine.state import RunOver
from tests.conftest import COUNTED, SAID
from tests.misbehaviour import invariants
from tests.misbehaviour.crashing import count, nothing_left, quiet, resume, walk
from tests.misbehaviour.machine import recorded
from tests.misbehaviour.protected_project import sh
from tests.misbehaviour.stories import (
    FIND,
    MARKER,
    REQUESTED,
    TASKS,
    US1,
    US2,
    Story,
    approved,
    course,
    fields,
    illegal,
    known,
    lay,
    requested,
    story,
    submitted,
    text,
    told,
)
from tests.ralph import Ended, Ralph, Step, say

pytestmark = pytest.mark.thorough

Tell = Callable[[str, object], None]
START: Step = {"append": {"../starts": "start\n"}}
VERIFY = "echo check >> ../checks; test ! -e ../red"
TOP: dict[str, Any] = {"verifyCommands": [VERIFY]}
OTHER = story(US2, passes=True, notes="n", reviewStatus="approved")


def turn(one: Story, *steps: Step) -> list[Step]:
    """A turn that leaves its story so, and does this."""
    return [START, FIND, {"write": {TASKS: text(one, OTHER, **TOP)}}, *steps, say("ok")]


def wrote(name: str) -> Step:
    return {"append": {name: "more\n"}}


# Everything that can become of a turn: lies, strays, red checks, requests, the harness's own decisions.
COURSE = [
    turn(approved(), wrote("a")),
    turn(submitted(), wrote("a")),
    turn(approved(), wrote("a")),
    turn(requested()),
    turn(submitted(count=1), wrote("a"), sh("touch ../red")),
    turn(submitted(count=1), wrote("a"), sh("rm ../red")),
    turn(approved(count=2), sh("touch ../red")),
    turn(submitted(count=2), sh("rm ../red"), wrote("a")),
    turn(requested(count=3)),
]
CAP = ("--review-cap", "3")
VERDICTS = ["Retry", "Passed", "Retry", "SentBack", "Retry", "Passed", "SentBack", "Passed", "Passed"]


@dataclass(frozen=True)
class End:
    """All that became of a run, without names and times of its own."""

    code: int
    course: list[tuple[str, str, str]]
    illegal: list[tuple[str, ...]]
    found: list[str]
    prompts: list[str]
    tasks: str
    commits: str
    errors: list[str]
    status: str
    starts: int
    checks: int
    marker: bool
    edited: bool


def the_end(ralph: Ralph, code: int) -> End:
    invariants.readable(ralph)
    invariants.unaltered(ralph)
    invariants.unlocked(ralph)
    nothing_left(ralph)
    assert isinstance(ralph.state().phase, RunOver)
    run, numbers = ralph.runs()[0].id, range(1, len(COURSE) + 1)
    folder = ralph.run_folder(run)
    prompts = [(folder / f"prompt_{number:03d}.txt").read_text().replace(run, "RUN") for number in numbers]
    return End(
        code, course(ralph), illegal(ralph), [(ralph.folder / f"found-{number}").read_text() for number in numbers],
        prompts, (ralph.root / TASKS).read_text(), ralph.git("log", "--format=%s %T"),
        [one.committed.error for one in recorded(ralph, ScmEnded)],
        ralph.git("status", "--porcelain"), count(ralph, "starts"), count(ralph, "checks"),
        (ralph.root / MARKER).exists(), blamed(told(ralph)),
    )  # fmt: skip


def blamed(notices: str) -> bool:
    """Whether somebody is said to have edited what is the harness's; what a reviewer writes is always put back."""
    of_plan = [line for line in notices.splitlines() if not line.startswith("stage review only looks")]
    return any("was edited while" in line or "put back" in line for line in of_plan)


def project(folder: Path, *stories: Story) -> Ralph:
    ralph = Ralph(folder)
    ralph.env["RALPH__SANDBOX__BACKEND"] = "null"  # which stories would ask for
    lay(ralph, *(stories or (story(), OTHER)), **TOP)
    return ralph


def begin(ralph: Ralph, script: list[list[Step]], kinds: str, number: int, *flags: str) -> tuple[Ended, list[str]]:
    """A run that dies at this point; what it had done until then."""
    log = ralph.folder / "log"
    words = ("run", "--preset", "stories", "--agent", ralph.script(*script), *flags)
    ended = ralph(*words, dies=(str(log), kinds, str(number)))
    return ended, log.read_text().splitlines()


def gone_on(ralph: Ralph, script: list[list[Step]], *flags: str) -> int:
    """Take a dead run up, or begin it where it had not begun; how it ended."""
    again = resume(ralph)
    invariants.no_traceback(again)
    if "there is no run to resume" in again.err:
        return ralph("run", "--preset", "stories", "--agent", ralph.script(*script), *flags).code
    if again.code == 2:  # it was over, and only that was not said
        assert "is completed" in again.err or "was stopped by MAX_ITERATIONS" in again.err, again
        (end,) = recorded(ralph, RunEnded)
        return end.outcome.exit_code
    return again.code


def killed(folder: Path, kinds: str, number: int) -> tuple[list[str], End]:
    """A run that died at this point and was taken up; what it had done until then, and its end."""
    ralph = project(folder)
    try:
        ended, did = begin(ralph, COURSE, kinds, number, *CAP)
        code = ended.code
        if number and code == -signal.SIGKILL:
            code = gone_on(ralph, COURSE, *CAP)
        return did, the_end(ralph, code)
    finally:
        ralph.close()


EVERY_SECOND_RECORD = [("records", slice(2 * part, None, 4)) for part in range(2)]
EVERY_131ST_STEP = [("steps", slice(7 + 31 * part, None, 131)) for part in range(4)]  # from four beginnings


@pytest.mark.parametrize(("kinds", "part"), [*EVERY_SECOND_RECORD, *EVERY_131ST_STEP], ids=range(6))
def test_stories_that_were_killed_end_as_if_nobody_had_been(
    tmp_path: Path, kinds: str, part: slice, record_property: Tell
) -> None:
    """PR-10, RH-09, RH-12: the same prompts, files, states, commits and checks."""
    points, whole = walk(tmp_path, lambda folder, at: killed(folder, kinds, at), part)
    assert [verdict for _, _, verdict in whole.course] == VERDICTS
    assert (whole.code, whole.marker, whole.edited) == (0, False, False)
    record_property(SAID, f"stories killed at {points} {kinds}, and taken up")
    record_property(COUNTED, points)
    assert points >= 8


# While work is committed


MADE = [turn(submitted(), wrote("a")), [say("nothing")]]


def kept(ralph: Ralph) -> tuple[str, str, list[str]]:
    """History, index and tree, and what went wrong with them."""
    errors = [one.committed.error for one in recorded(ralph, ScmEnded)]
    return ralph.git("log", "--format=%s %T"), ralph.git("status", "--porcelain"), errors


def test_a_kill_at_any_step_of_a_commit_leaves_history_and_index_in_order(
    tmp_path: Path, record_property: Tell
) -> None:
    """PR-10: a commit that began is not begun again, and the user's index knows it."""
    whole = project(tmp_path / "whole")
    _, did = begin(whole, MADE, "steps", 0, "-m", "2")
    wanted, first = kept(whole), next(number for number, step in enumerate(did, 1) if "scm_001" in step)
    whole.close()
    points = range(first - 5, next(number for number, step in enumerate(did, 1) if "prompt_002" in step) + 3)
    for number in points:
        ralph = project(tmp_path / str(number))
        ended, so_far = begin(ralph, MADE, "steps", number, "-m", "2")
        assert ended.code == -signal.SIGKILL
        quiet(ralph)
        assert gone_on(ralph, MADE, "-m", "2") == 1
        assert kept(ralph) == wanted, f"killed at {number}: {so_far[-1]}"
        ralph.close()
        shutil.rmtree(tmp_path / str(number))
    record_property(SAID, f"stories killed at {len(points)} steps of a commit")
    record_property(COUNTED, len(points))


# A verdict that its checks do not bear out, at every step of the way


WAITING = (submitted(), story(US2))
SLY: list[list[Step]] = [
    [START, {"write": {TASKS: text(approved(), story(US2), **TOP)}}, sh("touch ../red"), say("fine")],
    [say("nothing")],
]


def anew(ralph: Ralph) -> int:
    """Begin another run beside the dead one; once more, where that one's settings had to be put back first."""
    words = ("run", "--preset", "stories", "--agent", ralph.script([say("nothing")], name="next"), "-m", "1")
    ended = ralph(*words)
    ended = ralph(*words) if ended.code == 2 else ended
    invariants.no_traceback(ended)
    return ended.code


@pytest.mark.parametrize("way", ["resumed", "anew"])
@pytest.mark.parametrize(("kinds", "every"), [("records", 1), ("steps", 11)], ids=["records", "steps"])
def test_no_kill_makes_a_verdict_stand_that_was_red(
    tmp_path: Path, way: str, kinds: str, every: int, record_property: Tell
) -> None:
    """PR-10, FC-15: whether it was judged or not, and whoever goes on."""
    whole = project(tmp_path / "whole", *WAITING)
    _, did = begin(whole, SLY, kinds, 0, "-m", "2")
    assert fields(known(whole)[US1]) == (False, REQUESTED, 1)
    whole.close()
    points = range(1, len(did) + 1, every)
    for number in points:
        ralph = project(tmp_path / str(number), *WAITING)
        ended, did = begin(ralph, SLY, kinds, number, "-m", "2")
        if ended.code == -signal.SIGKILL:
            quiet(ralph)
            (ralph.folder / "red").touch()
            code = gone_on(ralph, SLY, "-m", "2") if way == "resumed" else anew(ralph)
            assert code in (1, 2), (number, did[-1])
            state = fields(known(ralph)[US1])
            assert state in ((False, "needs_review", 0), (False, REQUESTED, 1)), (number, did[-1], state)
            assert fields(known(ralph)[US2])[0] is False
            assert way == "resumed" or not (ralph.root / MARKER).exists(), (number, did[-1])
            assert count(ralph, "starts") <= 1
        ralph.close()
        shutil.rmtree(tmp_path / str(number))
    record_property(SAID, f"a red verdict killed at {len(points)} {kinds}, {way}")
    record_property(COUNTED, len(points))
