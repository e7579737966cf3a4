"""Figures of runs: files that are torn or meddled with, no figures at all, and figures that cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.errors import HarnessFailed
from ralphproof.base.value import replace
from ralphproof.engine.limits import format_utc_day, utc_day
from ralphproof.engine.outcome import Failed, Metrics
from ralphproof.engine.records import RunEnded
from tests.misbehaviour.agents import case
from tests.misbehaviour.invariants import hold
from tests.ralph import Ended, Ralph, Step, say, until
from tests.store.samples import metrics


def run(ralph: Ralph, *steps: Step, flags: tuple[str, ...] = ("-m", "1")) -> Ended:
    agent = ralph.script([*steps, say("on it")])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", "test -f done", *flags)
    hold(ralph, ended)
    return ended


def lines(ralph: Ralph) -> Path:
    return ralph.root / ".ralph" / "metrics" / "loops.jsonl"


def reported(ralph: Ralph, *argv: str) -> Any:
    """What programs get to read; a figure that is no number would not be JSON."""
    ended = ralph("report", "--json", *argv)
    assert (ended.code, ended.err) == (0, ""), ended
    return json.loads(ended.out, parse_constant=lambda word: pytest.fail(f"{word} is no number"))


def test_a_torn_line_costs_itself_alone(ralph: Ralph) -> None:
    """DB-09: nobody reads the file back, so a report misses nothing."""
    run(ralph)
    torn = lines(ralph).read_text()[:-40]
    lines(ralph).write_text(torn)
    run(ralph)
    first, second = lines(ralph).read_text().splitlines()
    assert first == torn
    assert json.loads(second)["run"] == ralph.runs()[0].id
    assert reported(ralph)["overall"]["loops"] == 2


WRITER = """
import os, sys
from ralphproof.reports.metrics import MetricsFolder
folder, number = MetricsFolder(sys.argv[1]), 0
while not os.path.exists(sys.argv[2]):
    folder.add({"run": sys.argv[3], "number": number, "filler": "x" * 3000})
    number += 1
print(number)
"""


def test_lines_of_many_writers_never_run_into_one_another(ralph: Ralph) -> None:
    """DB-09: two others write without a pause while a run ends. A line in the making may look torn."""
    argv = [sys.executable, "-c", WRITER, str(ralph.root), str(ralph.folder / "stop")]
    others = [subprocess.Popen([*argv, name], env=ralph.env, stdout=subprocess.PIPE, text=True) for name in "ab"]
    until(lambda: lines(ralph).exists() and lines(ralph).stat().st_size > 50_000, "the others write")
    run(ralph)
    (ralph.folder / "stop").touch()
    counts = {name: int(other.communicate(timeout=20)[0]) for name, other in zip("ab", others, strict=True)}
    found = [json.loads(line) for line in lines(ralph).read_text().splitlines() if line]
    for name, count in counts.items():
        assert [line["number"] for line in found if line["run"] == name] == list(range(count))
    assert [line["run"] for line in found if line["run"] not in counts] == [ralph.runs()[0].id]


def test_a_day_without_runs_has_a_report(ralph: Ralph) -> None:
    """DB-10"""
    told = reported(ralph)["overall"]
    assert (told["loops"], told["avgIterations"], told["avgCostUSD"], told["p95Iterations"]) == (0, None, None, None)
    ended = ralph("report")
    assert (ended.code, "No loop ended on this day." in ended.out) == (0, True)


ABSURD: dict[str, dict[str, object]] = {
    "endless": {"seconds": 1e300},
    "backwards": {"seconds": -5.0, "began_s": 4e9},
    "free": {"micro_usd": -7, "at_least_micro_usd": -7},
    "dear": {"micro_usd": 10**30, "at_least_micro_usd": 10**30, "tokens": 10**30},
    "fewer-than-none": {"iterations": -3, "tokens": -1, "files": -1},
    "unknown-end": {"status": "GONE", "reason": "|](x)", "skill": "\x1b[31m", "agent": "a\nb"},
    "nothing-known": {"micro_usd": None, "tests_fixed": -(10**30), "saved_micro_usd": -(10**30)},
}


def ended_today(ralph: Ralph, *figures: Metrics) -> None:
    """Runs with these figures, on record."""
    ledger = ralph.project.ledger(read_only=False)
    for number, one in enumerate(figures):
        ledger.append(f"run-{number}", (RunEnded(Failed("gone", 0), replace(one, ended_s=time.time())),))
    ledger.close()


def test_figures_that_cannot_be_spoil_no_report(ralph: Ralph) -> None:
    """DB-10: and a run that ends beside them writes the page of its day all the same."""
    ended_today(ralph, *(metrics(**absurd) for absurd in ABSURD.values()))
    told = reported(ralph, "--from", "2026-01-01")["overall"]
    assert told["loops"] == len(ABSURD)
    assert all(figure is None or figure >= 0 for name, figure in told.items() if name != "savedUSD")
    run(ralph)
    page = (lines(ralph).parent / f"ralph-report-{format_utc_day(utc_day(time.time()))}.md").read_text()
    assert f"Total loops: {len(ABSURD) + 1}" in page
    assert ralph("report").out == page
    assert "nan" not in page


@pytest.mark.parametrize("seconds", [case("DB-10-nan", float("nan")), case("DB-10-inf", float("inf"))])
def test_what_is_no_number_never_gets_on_record(ralph: Ralph, seconds: float) -> None:
    """DB-10"""
    with pytest.raises(HarnessFailed, match="a number that JSON does not have"):
        ended_today(ralph, metrics(seconds=seconds))
    assert reported(ralph)["overall"]["loops"] == 0


MEDDLES = """
echo '{"iteration": 0, "cost": 0}' > .ralph/state.json
: > .ralph/metrics/loops.jsonl
for page in .ralph/metrics/*.md; do echo '- Total loops: 0' > "$page"; done
umask 077; echo '{"iterations": 0, "costUSD": 0}' > .ralph/runs/$RALPH_RUN_ID/outcome.json
"""


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        case("RH-34-cost", ("-m", "9", "--max-cost-usd", "0.5"), "COST_LIMIT"),
        case("RH-34-iterations", ("-m", "2"), "MAX_ITERATIONS"),
    ],
)
def test_limits_hold_and_reports_are_true_whatever_is_done_to_our_files(
    ralph: Ralph, flags: tuple[str, ...], reason: str
) -> None:
    """RH-34: what counts is in memory, and in the ledger, which is somewhere else."""
    ralph.commit()
    run(ralph)
    meddles: list[Step] = [{"append": {"work": "more\n"}}, {"run": ["sh", "-ec", MEDDLES]}, {"cost": 0.3}]
    ended = run(ralph, *meddles, flags=flags)
    assert (ended.code, ralph.outcome()["reason"], ralph.outcome()["iterations"]) == (1, reason, 2), ended
    assert ralph.outcome()["costUSD"] == 0.6
    told = reported(ralph)
    assert (told["overall"]["loops"], told["overall"]["atLeastUSD"]) == (2, 0.6)
    assert told["abortReasons"] in ({"MAX_ITERATIONS": 1, reason: 1}, {"MAX_ITERATIONS": 2})
    assert [json.loads(line)["run"] for line in lines(ralph).read_text().splitlines()] == [ralph.runs()[0].id]
