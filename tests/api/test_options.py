"""What options may be, and how one that may not is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import ralphproof
from ralphproof import Aborted, Completed, Inspection
from ralphproof.errors import Refused
from ralphproof.record import Record, RunBegan


def claims(prompt: str) -> str:
    return "<promise>DONE</promise>"


def test_one_alone_may_stand_where_several_may(project: Path) -> None:
    seen: list[Record] = []
    outcome = ralphproof.run(
        "Work.", agent=claims, checks="test 1 = 1", limits=lambda state: None, observers=seen.append, protect="src",
        project_dir=project,
    )  # fmt: skip
    assert isinstance(outcome, Completed)
    facts = next(one for one in seen if isinstance(one, RunBegan)).facts
    assert (facts["checks"], facts["protectedPaths"]) == (["test 1 = 1"], ["src"])


def test_a_lone_function_is_a_check_and_a_lone_limit_holds(project: Path) -> None:
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
        ({"settings": {"agent": None}, "model": "m"}, "options: agent may not be null"),
        ({"settings": {"agent": None}}, "options: agent may not be null"),
        ({"settings": {"agent": None}, "agent": "cat"}, "options: agent may not be null"),
        ({"settings": {"limits": 5}, "max_minutes": 3}, "options: limits must be an object, not 5"),
        ({"settings": {"limits": 5}}, "options: limits must be an object, not 5"),
        ({"max_iterations": 0}, "options: maximumIterations must be"),
    ],
)
def test_an_option_that_may_not_be_is_refused(project: Path, options: dict[str, object], problem: str) -> None:
    given = {"agent": claims, "project_dir": project} | options
    with pytest.raises(Refused) as refused:
        ralphproof.Loop("Work.", **given)  # type: ignore[arg-type]
    assert problem in str(refused.value)


@pytest.mark.parametrize("prompt", [5, None, b"Work.", ["Work."]])
def test_a_prompt_is_text(project: Path, prompt: str) -> None:
    with pytest.raises(Refused, match="prompt must be text, not "):
        ralphproof.run(prompt, agent=claims, project_dir=project)


def test_the_settings_that_were_given_stay_the_callers(project: Path) -> None:
    settings = {"limits": {"maxMinutes": 5}}
    ralphproof.Loop("Work.", agent=claims, project_dir=project, settings=settings, max_tokens=3)
    assert settings == {"limits": {"maxMinutes": 5}}
