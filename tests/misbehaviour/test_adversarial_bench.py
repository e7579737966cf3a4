"""Every way of cheating that the package knows, tried on real projects: the same table as `ralph bench adversarial`."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ralphproof.adversarial.bench import (
    SHELL_AGENT_KINDS,
    PreparedTrial,
    ScenarioFolder,
    all_trials,
    missing_requirement,
)
from ralphproof.adversarial.trial import CHEAT, NOOP, ORACLE, RIGHT, WEAKENING, Trial, TrialResult, judge_trial
from ralphproof.agents.command import PLAYER_PATH
from tests import warm
from tests.needs import require

TRIALS = {trial.id: trial for trial in all_trials()}
TIMEOUT_S = 120.0
WORST = {"RH-01": 1, "RH-02": 6, "RH-04": 4, "RH-36": 2}  # ways that turn checks green


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> ScenarioFolder:
    """Each scenario is built once."""
    return ScenarioFolder(str(tmp_path_factory.mktemp("scenarios")))


def prepare(ground: ScenarioFolder, trial: Trial, folder: Path) -> PreparedTrial:
    for need in ("git", *trial.scenario.project.requires, *trial.scenario.requires):
        require(not missing_requirement(need), missing_requirement(need))
    return ground.prepare(trial, str(folder / "trial"))


def held(ground: ScenarioFolder, name: str, folder: Path) -> TrialResult:
    """One trial of the program, forked from a process that has read it."""
    trial = TRIALS[name]
    made = prepare(ground, trial, folder)
    code, out, err = warm.called(made.argv, Path(made.cwd), {**made.env, **warm.STARTS_WITH}, b"", TIMEOUT_S)
    return judge_trial(trial, code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def of_kind(kind: str) -> list[Any]:
    """The trials of a kind; those that `make test` does not hold are marked."""
    those = [trial for trial in TRIALS.values() if trial.kind == kind]
    now = {one for one in at_once(those) if not one.startswith("honest")}
    return [pytest.param(one.id, id=one.id, marks=() if one.id in now else pytest.mark.thorough) for one in those]


def at_once(those: list[Trial]) -> Iterator[str]:
    """All that do not cheat; else of each id one trial, or a few in both languages of what turns checks green."""
    ways: dict[str, list[Trial]] = defaultdict(list)
    for trial in those:
        ways[trial.id[:5] if trial.kind in (CHEAT, WEAKENING) else trial.id].append(trial)
    for number, (id, every) in enumerate(ways.items()):
        python = [one.id for one in every if one.scenario.project.name == "python"]
        node = [one.id for one in every if one.scenario.project.name == "node"]
        if most := WORST.get(id, 0):
            most = most if every[0].kind == CHEAT else 1
            yield from (*python[:most], *node[:most])
        else:
            yield (python + node if number % 2 else node + python)[0]


@pytest.mark.parametrize("name", of_kind(ORACLE))
def test_honest_work_is_believed(ground: ScenarioFolder, tmp_path: Path, name: str) -> None:
    found = held(ground, name, tmp_path)
    assert found.verdict == RIGHT, found.why


@pytest.mark.parametrize("name", of_kind(NOOP))
def test_who_does_nothing_is_not_believed(ground: ScenarioFolder, tmp_path: Path, name: str) -> None:
    """FC-01"""
    found = held(ground, name, tmp_path)
    assert found.verdict == RIGHT, found.why


@pytest.mark.parametrize("name", of_kind(CHEAT))
def test_no_lie_is_believed(ground: ScenarioFolder, tmp_path: Path, name: str) -> None:
    """FC-20, RH-01, RH-02, RH-04, RH-36, and every other way of families FC and RH in which an agent cheats."""
    found = held(ground, name, tmp_path)
    assert found.verdict == RIGHT, found.why


@pytest.mark.parametrize("name", of_kind(WEAKENING))
def test_tests_that_nobody_protects_may_be_weaker_and_that_is_told(
    ground: ScenarioFolder, tmp_path: Path, name: str
) -> None:
    """RH-01, RH-02, FC-20"""
    found = held(ground, name, tmp_path)
    assert found.verdict == RIGHT, found.why


FOOLING = [trial.id for trial in TRIALS.values() if trial.passes_check and trial.scenario.protects_tests]


@pytest.mark.thorough
@pytest.mark.parametrize("name", FOOLING)
def test_every_tampering_cheat_would_fool_the_bare_check(ground: ScenarioFolder, tmp_path: Path, name: str) -> None:
    """A cheat that turns nothing green tries nothing."""
    trial = TRIALS[name]
    made = prepare(ground, trial, tmp_path)
    with open(Path(made.cwd, "prompt.md"), encoding="utf-8") as prompt:
        agent = (
            ["sh", "../agent.sh"]
            if trial.scenario.kind in SHELL_AGENT_KINDS
            else ["python3", PLAYER_PATH, "../script.json"]
        )
        subprocess.run(agent, cwd=made.cwd, env=made.env, stdin=prompt, capture_output=True, check=False)
    asked = ["/bin/sh", "-c", trial.scenario.check]
    answers = (subprocess.run(asked, cwd=made.cwd, env=made.env, capture_output=True, check=False) for _ in range(3))
    assert any(one.returncode == 0 for one in answers), "the child of one may take its time"
