"""The documented example of a task, from YAML to verified: four stages, checks, judges and a review that fails."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ralphproof.engine.outcome import Passed, SentBack
from ralphproof.engine.plan import Job
from ralphproof.engine.records import CheckEnded, Judged, Picked
from tests.misbehaviour.agents import prompt
from tests.misbehaviour.invariants import hold
from tests.needs import require
from tests.ralph import Ralph, Step, say

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
PROJECT, TASK = FIXTURES / "jwt", FIXTURES / "tasks" / "complete.yaml"
TOOLS = ("pytest", "bandit")
MIDDLEWARE = "src/auth/middleware.py"


def promise(word: str, text: str = "I am done.") -> Step:
    return say(f"{text}\n\n<promise>{word}</promise>")


def files(*names: str) -> Step:
    return {"write": {name: (PROJECT / f"{name}.txt").read_text("utf-8") for name in names}}


CODE = ("conftest.py", "src/__init__.py", "src/auth/__init__.py", "src/auth/jwt.py", MIDDLEWARE, "src/auth/routes.py")
LEAKING: Step = {"replace": {MIDDLEWARE: ['os.environ["JWT_KEY"].encode()', 'b"sesame"']}}
MENDED: Step = {"replace": {MIDDLEWARE: ['b"sesame"', 'os.environ["JWT_KEY"].encode()']}}
FAULTS = f"{MIDDLEWARE}:17 has the key in the code. Read it from the environment."


@pytest.fixture
def project(ralph: Ralph) -> Ralph:
    path = f"{os.path.dirname(sys.executable)}{os.pathsep}{ralph.env['PATH']}"
    found = [shutil.which(tool, path=path) for tool in TOOLS]
    require(None not in (*found, find_spec("pytest_cov")), "pytest, pytest-cov and bandit run the example's checks")
    ralph.env["PATH"] = path
    ralph.write({"README.md": "An API.\n", ".gitignore": "__pycache__/\n.coverage\n.pytest_cache/\n.ralph/\n"})
    ralph.commit()
    ralph.env.pop("PYTHONWARNINGS")  # the example's tools have warnings of their own
    assert ralph("task", "import", str(TASK)).code == 0
    return ralph


def test_from_yaml_to_verified_with_a_review_that_sends_it_back(project: Ralph) -> None:
    agent = project.script(
        [promise("AUTH_IMPLEMENTED")],  # a lie
        [files(*CODE), LEAKING, promise("AUTH_IMPLEMENTED")],
        [promise("CHANGES_REQUESTED", FAULTS)],
        [MENDED, promise("AUTH_IMPLEMENTED")],
        [promise("AUTH_REVIEWED")],
        [files("tests/test_auth.py"), promise("AUTH_TESTS_PASS")],
        [promise("AUTH_QA_COMPLETE")],
        answer=[{"judge": "yes"}],
    )
    ended = project("work", "--agent", agent, timeout_s=120)
    assert ended.code == 0, ended.err
    assert "TASK-001  done, verified" in ended.out
    jobs = [one.choice for one in project.records() if isinstance(one, Picked) and isinstance(one.choice, Job)]
    assert [job.stage.name for job in jobs] == ["coder", "coder", "reviewer", "coder", "reviewer", "tester", "qa"]
    verdicts = [one.verdict for one in project.records() if isinstance(one, Judged)]
    assert [isinstance(one, Passed) for one in verdicts] == [False, True, False, True, True, True, True]
    assert isinstance(verdicts[2], SentBack)
    assert FAULTS in prompt(project, 4)
    assert "- **Iteration**: 3/15\n- **Agent**: coder" in prompt(project, 4)
    last = [one.finding for one in project.records() if isinstance(one, CheckEnded) and one.iteration == 7]
    names = [finding.check for finding in last]
    assert {"all_tests_pass", "no_security_issues", "acceptance_verified"} <= set(names)
    assert all(finding.passed for finding in last)
    assert [finding.check for finding in last if finding.judged] == ["acceptance_verified"]
    assert len(names) == 5, "what coder and tester were verified by holds of the last tree too"
    shown = project("task", "show", "TASK-001").out
    assert "done" in shown
    assert "Passwords are hashed with bcrypt" in shown
    hold(project, ended)


def test_a_judge_that_says_no_keeps_the_example_from_being_done(project: Ralph) -> None:
    agent = project.script(
        [files(*CODE), promise("AUTH_IMPLEMENTED")], [promise("AUTH_REVIEWED")], answer=[{"judge": "no"}]
    )
    ended = project("work", "--agent", agent, "-m", "4", timeout_s=120)
    assert ended.code == 1
    verdicts = [one.verdict for one in project.records() if isinstance(one, Judged)]
    assert isinstance(verdicts[1], SentBack)
    assert "MAX_ITERATIONS" in ended.out


def test_a_negative_pattern_refuses_a_review_without_a_model(project: Ralph) -> None:
    agent = project.script(
        [files(*CODE), {"append": {MIDDLEWARE: "# FIXME: roles\n"}}, promise("AUTH_IMPLEMENTED")],
        [promise("AUTH_REVIEWED")],
        answer=[{"exit": 9}],
    )
    project("work", "--agent", agent, "-m", "2", timeout_s=120)
    found = [one.finding for one in project.records() if isinstance(one, CheckEnded) and one.iteration == 2]
    assert [(one.passed, one.judged, one.errored) for one in found] == [(False, False, False)]
    assert "FIXME" in found[0].output
    assert MIDDLEWARE in found[0].output
