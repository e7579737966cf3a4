"""A small project with a bug, from failing to passing tests; each prompt has the results of the last iteration."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.misbehaviour.agents import prompt
from tests.misbehaviour.invariants import hold
from tests.needs import require
from tests.ralph import Ralph, Step, say

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "fixable-bug"
LIMITS = ("--preset", "wrapper", "-m", "5", "--max-cost-usd", "1")
TASK = "Fix src/median.js: some of its tests fail."
CODE = "src/median.js"
WRONG: Step = {"replace": {CODE: ["sort()", "sort((a, b) => a - b)"]}}  # half of it
RIGHT: Step = {
    "replace": {CODE: ["return sorted[middle]", "return (sorted[middle] + sorted[(sorted.length - 1) >> 1]) / 2"]}
}


def promises(word: str) -> Step:
    return say(f"All of it is done.\n\n<promise>{word}</promise>")


def costs(*steps: Step) -> list[Step]:
    return [*steps, {"cost": 0.01}, {"tokens": 100}]


@pytest.fixture
def project(ralph: Ralph) -> Ralph:
    """A repository that is a copy of the fixture, and an npm that asks nobody whether it is the newest."""
    require(None not in map(shutil.which, ("node", "npm")), "node and npm run the fixture's tests")
    shutil.copytree(FIXTURE, ralph.root, dirs_exist_ok=True)
    ralph.commit()
    ralph.env |= {"NPM_CONFIG_UPDATE_NOTIFIER": "false", "NPM_CONFIG_OFFLINE": "true"}
    return ralph


def npm_test(ralph: Ralph) -> int:
    argv = ["npm", "test"]
    return subprocess.run(argv, cwd=ralph.root, env=ralph.env, capture_output=True, check=False).returncode


def measured(ralph: Ralph) -> dict[str, Any]:
    """The line that the only run left in the metrics."""
    (line,) = (ralph.root / ".ralph" / "metrics" / "loops.jsonl").read_text(encoding="utf-8").splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_wrong_fix_and_a_lie_are_told_and_the_right_fix_is_proved(project: Ralph) -> None:
    assert npm_test(project) != 0
    lie, truth = costs(promises("COMPLETE")), costs(RIGHT, promises("COMPLETE"))
    agent = project.script(costs(WRONG, say("I think so.")), lie, truth)
    ended = project("run", "-p", TASK, *LIMITS, "--check", "npm test", "--agent", agent, "--type", "bug")
    hold(project, ended)
    assert ended.code == 0, ended
    assert npm_test(project) == 0
    assert "COMPLETED, verified by its checks: 3 iterations" in ended.out
    told_first(project)
    told_again(project)
    published(project)
    outcome = project.outcome()
    assert (outcome["status"], outcome["iterations"], outcome["verificationPassed"]) == ("COMPLETED", 3, True)
    assert (outcome["costUSD"], outcome["output"]) == (0.03, promises("COMPLETE")["text"])
    assert 0 < outcome["durationSeconds"] < 60


def told_first(ralph: Ralph) -> None:
    """The first prompt is the user's own, and how to claim."""
    first = prompt(ralph, 1)
    assert first.startswith(f"{TASK}\n\n")
    assert "Ralph Loop Context" not in first
    assert "median.test.js" not in first
    assert tags(first) == ["<promise>COMPLETE</promise>"]


def tags(text: str) -> list[str]:
    """The lines that hold a tag."""
    return [line for line in text.split("\n") if "<promise>" in line or "<response>" in line]


def told_again(ralph: Ralph) -> None:
    """Each later prompt tells what the iteration before it did."""
    for number, changed in ((2, 1), (3, 0)):
        told = prompt(ralph, number)
        assert told.startswith(f"{TASK}\n\n")
        block = told[told.index("---\n[Ralph Loop Context") :]
        assert block.startswith(f"---\n[Ralph Loop Context - Iteration {number}]\n\nYou are in a Ralph loop. ")
        assert f"This is attempt #{number}.\n" in block
        assert f"- Files changed in iteration {number - 1}: {changed}\n" in block
        assert ("\n  src/median.js\n" in block) == bool(changed)
        assert re.search(r"- Test output:\n  ```\n  \$ npm test \(exit code 1; all of its output: \S+\.log\)\n", block)
        assert "of an even count it is the mean of two" in block
        assert "a state of the project" in block
        assert "- Tests status: 3 passing, 1 failing\n" in block
        named = r"\([^`\n]*of an even count it is the mean of two\)"
        assert re.search(rf"- Last error: `Expected values to be [^`\n]* {named}`\n", block)
        assert tags(told) == ["<promise>COMPLETE</promise>"]
    assert "The checks say that it is not:" in prompt(ralph, 3)
    assert "The checks say that it is not:" not in prompt(ralph, 2)


def published(ralph: Ralph) -> None:
    """The run is in the metrics, with all that is to be known of it."""
    line = measured(ralph)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", line["loopId"])
    assert (line["skill"], line["taskType"], line["status"]) == ("", "bug", "COMPLETED")
    assert "abortReason" not in line
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["startTime"])
    assert line["startTime"] <= line["endTime"]
    assert (line["iterations"], line["costUSD"], line["filesModified"], line["testsFixed"]) == (3, 0.03, 1, 2)
    assert (line["completionPromiseDetected"], line["verificationPassed"]) == (True, True)
    assert line["durationSeconds"] == ralph.outcome()["durationSeconds"]


def test_a_skill_brings_its_own_promise_and_the_projects_check(project: Ralph) -> None:
    agent = project.script(costs(WRONG, RIGHT, promises("COMPLETE")), costs(promises("BUG_FIXED")))
    ended = project("run", "--skill", "systematic-debugging", "-p", TASK, *LIMITS, "--agent", agent)
    hold(project, ended)
    assert (ended.code, project.outcome()["iterations"]) == (0, 2), ended
    assert "check of skill systematic-debugging: npm test" in ended.err
    for number in (1, 2):
        assert "Mend nothing before you know the cause." in prompt(project, number)
        assert TASK in prompt(project, number)
        assert set(tags(prompt(project, number))) >= {"<promise>BUG_FIXED</promise>"}
    assert "said 'COMPLETE'; completion is claimed with <promise>BUG_FIXED</promise>." in prompt(project, 2)
    line = measured(project)
    assert (line["skill"], line["taskType"], line["testsFixed"]) == ("systematic-debugging", "bug", 2)
