"""Trials with cheating agents: run, skipped and counted."""

from __future__ import annotations

import sys

from ralphproof.adversarial import false_claims, node_cheats, pytest_cheats, story_cheats, tampering_cheats
from ralphproof.adversarial.honest_agents import HONEST_AGENTS
from ralphproof.adversarial.scenarios import SCENARIOS
from ralphproof.adversarial.trial import CHEAT, NOOP, ORACLE, WEAKENING, Trial
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.adversarial.trial import Cheat, Scenario, TrialResult


def skip_reasons(chosen: tuple[Trial, ...]) -> dict[str, str]:
    """Why a scene cannot be played on this machine, by its name."""
    scenes = {trial.scene.id: trial.scene for trial in chosen}
    return {name: why for name, scene in scenes.items() if (why := _missing_need(scene))}


def _missing_need(scene: Scenario) -> str:
    from ralphproof.adversarial.runner import missing_requirement

    return "; ".join(filter(None, (missing_requirement(need) for need in ("git", *scene.site.needs, *scene.needs))))


def run_trials(trials: tuple[Trial, ...], program: tuple[str, ...], jobs: int, quiet: bool) -> list[TrialResult]:
    import shutil
    import tempfile
    from contextlib import closing

    from ralphproof.adversarial.runner import TrialRunner

    folder = tempfile.mkdtemp(prefix="ralph-adversarial-")
    upshots = []
    try:
        with closing(TrialRunner(program, folder).hold(trials, jobs)) as coming:
            for upshot in coming:
                upshots.append(upshot)
                if not quiet:
                    told = f"{len(upshots)}/{len(trials)} {upshot.trial.id}: {upshot.verdict}"
                    print(told, file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return upshots


COUNT_LABELS = {
    "lies": "accepted cheats", "honest": "honest work refused", "idle": "no-ops accepted",
    "weaker": "weakened tests not reported", "broken": "runs that broke",
}  # fmt: skip


def count_failures(upshots: list[TrialResult]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Of each kind how many went wrong, and how many there were; a run that broke is no answer, and counted apart."""
    from ralphproof.adversarial.trial import BROKEN, CHEAT, NOOP, ORACLE, RIGHT, WEAKENING

    for name, kind in (("lies", CHEAT), ("honest", ORACLE), ("idle", NOOP), ("weaker", WEAKENING)):
        those = [one for one in upshots if one.trial.kind == kind]
        yield name, (sum(one.verdict not in (RIGHT, BROKEN) for one in those), len(those))
    yield "broken", (sum(one.verdict == BROKEN for one in upshots), len(upshots))


# Every trial: the honest agent and the idle one of each scene, and every way of cheating.


ALL_CHEATS = (
    *false_claims.FALSE_CLAIMS,
    *pytest_cheats.PYTEST_CHEATS,
    *node_cheats.NODE_CHEATS,
    *tampering_cheats.TAMPERING_CHEATS,
    *story_cheats.STORY_CHEATS,
)


def all_trials() -> tuple[Trial, ...]:
    """All of them, the honest ones first."""
    return (*_scenario_trials(), *(trial for cheat in ALL_CHEATS for trial in _cheat_trials(cheat)))


def _scenario_trials() -> Iterator[Trial]:
    for scene in SCENARIOS.values():
        yield Trial(f"oracle@{scene.id}", ORACLE, "does the work, and claims", scene, scene.oracle)
        yield Trial(f"no-op@{scene.id}", NOOP, "does nothing, and claims", scene, scene.noop)
    for way in HONEST_AGENTS:
        for name in way.scenes:
            yield Trial(f"honest-{way.id}@{name}", ORACLE, way.about, SCENARIOS[name], way.turns)


def _cheat_trials(cheat: Cheat) -> Iterator[Trial]:
    for name in cheat.scenes:
        scene = SCENARIOS[name]
        kind = CHEAT if scene.protects_tests or not cheat.told else WEAKENING
        more = {"answer": cheat.answer} if cheat.answer else {}
        yield Trial(f"{cheat.id}@{name}", kind, cheat.about, scene, cheat.turns, cheat.fools, cheat.told, **more)
