"""Accepted and refused values of options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ralphproof
from ralphproof.base.errors import RalphError, RalphWarning, Refused
from ralphproof.engine.check import Inspection
from ralphproof.engine.outcome import Aborted, Completed
from ralphproof.engine.records import Record, RunBegan


def claims(prompt: str) -> str:
    return "<promise>DONE</promise>"


def test_a_single_item_is_accepted_where_several_are(project: Path) -> None:
    seen: list[Record] = []
    outcome = ralphproof.run(
        "Work.", agent=claims, checks="test 1 = 1", limits=lambda state: None, observers=seen.append, protect="src",
        project_dir=project,
    )  # fmt: skip
    assert isinstance(outcome, Completed)
    facts = next(one for one in seen if isinstance(one, RunBegan)).facts
    assert (facts["checks"], facts["protectedPaths"]) == (["test 1 = 1"], ["src"])


def test_a_single_check_function_and_a_single_limit_apply(project: Path) -> None:
    def never(inspection: Inspection) -> bool:
        return False

    outcome = ralphproof.run(
        "Work.", agent=claims, checks=never, limits=lambda state: "late" if state.iteration > 1 else None,
        project_dir=project,
    )  # fmt: skip
    assert isinstance(outcome, Aborted)
    assert outcome.reason == "LIMIT"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"agent": 5}, "agent must be a command line or a function, not 5"),
        ({"checks": 5}, "a check must be a shell command or a function, not 5"),
        ({"checks": [b"true"]}, "a check must be a shell command or a function, not b'true'"),
        ({"limits": ["late"]}, "a limit must be a function, not 'late'"),
        ({"observers": "log"}, "an observer must be an Observer or a function, not 'log'"),
        ({"protect": [5]}, "protect must be text, not 5"),
        ({"project_dir": 5}, "project_dir must be a path, not 5"),
        ({"skill": 5}, "skill must be text, not 5"),
        ({"risk": "hgih"}, "the risk of a task is one of low, medium, high, critical, not 'hgih'"),
        ({"task_type": "chore"}, "the type of a task is one of feature, bug, refactor, other, not 'chore'"),
        ({"risk": 3}, "risk must be text, not 3"),
        ({"settings": 5}, "settings must be a dict in the shape of the settings' file, not 5"),
        ({"settings": {5: 1}}, "a name in settings must be text, not 5"),
        ({"settings": {"guardrails": [{5: 1}]}}, "a name in settings must be text, not 5"),
        ({"settings": {"agent": None}, "model": "m"}, "settings: agent may not be null"),
        ({"settings": {"agent": None}}, "settings: agent may not be null"),
        ({"settings": {"agent": None}, "agent": "cat"}, "settings: agent may not be null"),
        ({"settings": {"limits": 5}, "max_minutes": 3}, "settings: limits must be an object, not 5"),
        ({"settings": {"limits": 5}}, "settings: limits must be an object, not 5"),
        ({"max_iterations": 0}, "max_iterations must be"),
    ],
)
def test_invalid_options_are_refused(project: Path, options: dict[str, object], problem: str) -> None:
    arguments = {"agent": claims, "project_dir": project} | options
    with pytest.raises(Refused) as refused:
        ralphproof.Loop("Work.", **arguments)  # type: ignore[arg-type]
    assert problem in str(refused.value)


NAMES_A_FLAG = re.compile(r"(?<!ralph run )(?<![\w-])--?[a-z]")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"agent": "no-such-agent"}, "name another with agent="),
        (
            {"agent": "cat", "max_cost_usd": 1},
            "add allow_unknown_cost=True, and limit the run with max_iterations=",
        ),
        ({"project_dir": "/nowhere"}, "name a project with project_dir="),
        ({"checks": "auto"}, 'checks="auto" found no check in the project\'s top folder; name one: checks="CMD"'),
        ({"ralph_dir": "x"}, 'review=False, review_cap= and ralph_dir= are for runs by stories: preset="stories"'),
        ({"risk": "high"}, "ralph run --explain says more, force=True runs it all the same"),
        ({"agent": "scripted"}, "its script: agent='scripted SCRIPT.json'"),
        ({"preset": "wrapper"}, "max_iterations must be explicit in preset wrapper\nmax_cost_usd must be explicit"),
        ({"settings": {"requireProof": True}, "preset": "harness"}, "add one with checks="),
        ({"checks": "a\0b"}, "checks[0].command holds a NUL character"),
        ({"settings": {"maximumIterations": 0}}, "settings: maximumIterations must be"),
    ],
)
def test_refusals_name_arguments_instead_of_flags(project: Path, options: dict[str, object], said: str) -> None:
    arguments = {"agent": claims, "project_dir": project} | options
    with pytest.raises(RalphError) as refused:
        ralphproof.Loop("Work.", **arguments)  # type: ignore[arg-type]
    assert said in str(refused.value)
    assert not NAMES_A_FLAG.search(str(refused.value))


def test_failed_runs_name_arguments_instead_of_flags(project: Path) -> None:
    outcome = ralphproof.run("Work.", agent=claims, checks="no-such-program-anywhere", project_dir=project)
    assert 'checks="CMD", or run without checks (checks=()), or leave it' in outcome.error
    assert not NAMES_A_FLAG.search(outcome.error)


@pytest.mark.parametrize("name", ["prompt", "project_dir", "skill", "protect", "judge", "resume", "ralph_dir"])
def test_a_nul_character_is_refused_with_the_name_of_the_argument(project: Path, name: str) -> None:
    arguments = {"prompt": "Work.", "agent": claims, "project_dir": project} | {name: "a\0b"}
    with pytest.raises(Refused, match=f"^{name} holds a NUL character"):
        ralphproof.run(**arguments)  # type: ignore[arg-type]
    with pytest.raises(Refused, match=r"^run_dir holds a NUL character"):
        ralphproof.supervise(lambda attempt: None, "a\0b", project_dir=project)


def test_a_cap_warns_at_the_callers_line(project: Path) -> None:
    with pytest.warns(RalphWarning, match=r"^max_iterations is 500; caps.iterations allows 50, so 50 holds$") as told:
        ralphproof.Loop("Work.", agent=claims, project_dir=project, max_iterations=500)
    with pytest.warns(RalphWarning, match=r"^limits.maxCostUsd is 99; caps.costUsd allows 10") as also:
        ralphproof.run("Work.", agent=claims, project_dir=project, settings={"limits": {"maxCostUsd": 99}})
    assert {one.filename for one in (*told, *also)} == {__file__}


@pytest.mark.parametrize("prompt", [5, None, b"Work.", ["Work."]])
def test_a_prompt_is_text(project: Path, prompt: str) -> None:
    with pytest.raises(Refused, match="prompt must be text, not "):
        ralphproof.run(prompt, agent=claims, project_dir=project)


def test_given_settings_are_not_modified(project: Path) -> None:
    settings = {"limits": {"maxMinutes": 5}}
    ralphproof.Loop("Work.", agent=claims, project_dir=project, settings=settings, max_tokens=3)
    assert settings == {"limits": {"maxMinutes": 5}}
