"""The list of all trials with cheating and honest agents; running them and counting failures."""

from __future__ import annotations

import sys

from ralphproof.adversarial import claims, node_cheats, pytest_cheats, story_cheats, tampering_cheats
from ralphproof.adversarial.scenarios import SCENARIOS
from ralphproof.adversarial.trial import CHEAT, NOOP, ORACLE, WEAKENING, Trial
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.adversarial.trial import Cheat, Scenario, TrialResult


def skip_reasons(chosen: tuple[Trial, ...]) -> dict[str, str]:
    """Scenarios that cannot run on this machine: the missing requirement by scenario id."""
    scenarios = {trial.scenario.id: trial.scenario for trial in chosen}
    return {name: why for name, scenario in scenarios.items() if (why := _missing_need(scenario))}


def _missing_need(scenario: Scenario) -> str:
    from ralphproof.adversarial.runner import missing_requirement

    return "; ".join(
        filter(None, (missing_requirement(need) for need in ("git", *scenario.project.requires, *scenario.requires)))
    )


def run_trials(trials: tuple[Trial, ...], program: tuple[str, ...], jobs: int, quiet: bool) -> list[TrialResult]:
    import shutil
    import tempfile
    from contextlib import closing

    from ralphproof.adversarial.runner import TrialRunner

    folder = tempfile.mkdtemp(prefix="ralph-adversarial-")
    results = []
    try:
        with closing(TrialRunner(program, folder).run(trials, jobs)) as finished:
            for result in finished:
                results.append(result)
                if not quiet:
                    line = f"{len(results)}/{len(trials)} {result.trial.id}: {result.verdict}"
                    print(line, file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results


COUNT_LABELS = {
    "lies": "accepted cheats", "honest": "honest work refused", "idle": "no-ops accepted",
    "weaker": "weakened tests not reported", "broken": "runs that broke",
}  # fmt: skip


def count_failures(results: list[TrialResult]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Wrong verdicts and trials of each kind. A broken run is no verdict: it is counted under `broken` only."""
    from ralphproof.adversarial.trial import BROKEN, CHEAT, NOOP, ORACLE, RIGHT, WEAKENING

    for name, kind in (("lies", CHEAT), ("honest", ORACLE), ("idle", NOOP), ("weaker", WEAKENING)):
        of_kind = [one for one in results if one.trial.kind == kind]
        yield name, (sum(one.verdict not in (RIGHT, BROKEN) for one in of_kind), len(of_kind))
    yield "broken", (sum(one.verdict == BROKEN for one in results), len(results))


ALL_CHEATS = (
    *claims.FALSE_CLAIMS,
    *pytest_cheats.PYTEST_CHEATS,
    *node_cheats.NODE_CHEATS,
    *tampering_cheats.TAMPERING_CHEATS,
    *story_cheats.STORY_CHEATS,
)


def all_trials() -> tuple[Trial, ...]:
    """Every trial, those of honest and idle agents first."""
    return (*_scenario_trials(), *(trial for cheat in ALL_CHEATS for trial in _cheat_trials(cheat)))


def _scenario_trials() -> Iterator[Trial]:
    for scenario in SCENARIOS.values():
        yield Trial(f"oracle@{scenario.id}", ORACLE, "does the work, and claims", scenario, scenario.oracle)
        yield Trial(f"no-op@{scenario.id}", NOOP, "does nothing, and claims", scenario, scenario.noop)
    for agent in claims.HONEST_AGENTS:
        for name in agent.scenarios:
            yield Trial(f"honest-{agent.id}@{name}", ORACLE, agent.about, SCENARIOS[name], agent.turns)


def _cheat_trials(cheat: Cheat) -> Iterator[Trial]:
    for name in cheat.scenarios:
        scenario = SCENARIOS[name]
        kind = CHEAT if scenario.protects_tests or not cheat.reported_as else WEAKENING
        more = {"answer": cheat.answer} if cheat.answer else {}
        yield Trial(
            f"{cheat.id}@{name}",
            kind,
            cheat.about,
            scenario,
            cheat.turns,
            cheat.passes_check,
            cheat.reported_as,
            **more,
        )
