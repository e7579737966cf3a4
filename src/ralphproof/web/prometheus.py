"""Metrics in Prometheus text format."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from ralphproof import __version__
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.limits import utc_day
from ralphproof.store.run_state import ENDED, STOPPED
from ralphproof.store.statistics import PeriodTotals, RunTotals
from ralphproof.views.read_model import ReadModel
from ralphproof.web.api import ReaderPool
from ralphproof.web.http import MAX_INTEGER

Sample = tuple[Mapping[str, str], float]

if TYPE_CHECKING:
    from starlette.requests import Request


PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_RECENT_RUNS = 200  # among which runs that go on are looked for
FINISHED_STATES = (ENDED, STOPPED)  # one that waits for somebody has ended, and is counted there
COUNTERS = (
    ("ralph_iterations_total", "iterations", 1, "Iterations of runs that have ended."),
    ("ralph_run_seconds_total", "milliseconds", 1000, "Time that they took."),
    ("ralph_cost_usd_total", "at_least_micro_usd", 1_000_000, "What is known of their cost."),
    ("ralph_tokens_total", "tokens", 1, "Tokens that they used, as far as they are known."),
)  # fmt: skip


class MetricsEndpoint:
    """The /metrics endpoint."""

    def __init__(self, read_model: ReadModel, readers: ReaderPool) -> None:
        self._read_model, self._readers = read_model, readers

    async def page(self, _: Request) -> Response:
        return Response(await self._readers(self._text), headers={"content-type": PROMETHEUS_TYPE})

    def _text(self) -> bytes:
        ledger = self._read_model.project.ledger()
        try:
            figures = ledger.statistics(0, utc_day(time.time()))
        finally:
            ledger.close()
        found: dict[str, Any] = self._read_model.runs(MAX_RECENT_RUNS)
        newest = found["runs"]
        today = self._read_model.spent_today()
        spent_usd = today.known_usd if today else None
        return metrics_text(figures, newest, spent_usd, self._limit(newest)).encode("utf-8", "replace")

    def _limit(self, newest: list[dict[str, Any]]) -> float | None:
        """Daily cost limit of the newest run."""
        if not newest:
            return None
        page: dict[str, Any] = self._read_model.run(newest[0]["id"], MAX_INTEGER)
        return next((one["max"] for one in page["limits"] if one["name"] == "dailyCost"), None)


def metrics_text(
    figures: PeriodTotals, newest: list[dict[str, Any]], spent_usd: float | None, limit_usd: float | None
) -> str:
    """All metric families."""
    parts = [
        metric_family("ralph_build_info", "gauge", "Which ralph this is.", [({"version": __version__}, 1)]),
        metric_family("ralph_runs_total", "counter", "Runs that have ended.", _outcome_samples(figures.runs)),
        *(
            metric_family(
                name, "counter", about,
                [({"agent": agent}, runs.sum(of) / unit) for agent, runs in _runs_by_agent(figures)],
            )
            for name, of, unit, about in COUNTERS
        ),
        metric_family(
            "ralph_runs_verified_total", "counter", "Completed runs that checks have verified.",
            [({"agent": agent}, runs.completed.sum("verified")) for agent, runs in _runs_by_agent(figures)],
        ),
        metric_family(
            "ralph_runs_unknown_cost_total", "counter", "Runs whose cost is not wholly known.",
            [({"agent": agent}, runs.unpriced) for agent, runs in _runs_by_agent(figures)],
        ),
        *_live_run_metrics(newest),
        *(
            metric_family(name, "gauge", about, [({}, amount)])
            for name, about, amount in (
                ("ralph_spent_today_usd", "What is known to have been spent today (UTC), in all projects.", spent_usd),
                ("ralph_daily_limit_usd", "What may be spent in a day.", limit_usd),
            )
            if amount is not None
        ),
    ]  # fmt: skip
    return "".join(parts)


def metric_family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> str:
    """One metric with all its samples."""
    lines = [f"# HELP {name} {_escape_label(about)}", f"# TYPE {name} {kind}"]
    for labels, amount in samples:
        shown = ",".join(f'{label}="{_escape_label(said, True)}"' for label, said in labels.items())
        lines.append(f"{name}{{{shown}}} {_format_number(amount)}" if shown else f"{name} {_format_number(amount)}")
    return "\n".join(lines) + "\n"


def _live_run_metrics(newest: list[dict[str, Any]]) -> list[str]:
    going = [run for run in newest if run["state"] not in FINISHED_STATES]
    states = sorted({run["state"] for run in going} | {"running"})
    counts = [({"state": state}, float(sum(run["state"] == state for run in going))) for state in states]
    asked = [run["checkCounts"] for run in going if run["checkCounts"]]
    results = [
        ({"result": result}, float(sum(one[f"{result}Count"] for one in asked))) for result in ("passed", "failed")
    ]
    return [
        metric_family(
            "ralph_runs_open", "gauge", f"Runs that have not ended, of the {MAX_RECENT_RUNS} newest.", counts
        ),
        metric_family("ralph_open_checks", "gauge", "Their checks when they were asked last.", results),
    ]


def _outcome_samples(runs: RunTotals) -> list[Sample]:
    summed: dict[tuple[str, str, str], int] = {}
    for cell in runs.cells:
        key = cell.agent, cell.status, cell.reason
        summed[key] = summed.get(key, 0) + cell.runs
    return [
        ({"agent": agent, "status": status, "reason": reason}, count)
        for (agent, status, reason), count in sorted(summed.items())
    ]


def _runs_by_agent(figures: PeriodTotals) -> list[tuple[str, RunTotals]]:
    return sorted(figures.runs.by("agent"), key=lambda part: part[0])


def _format_number(amount: float) -> str:
    return str(int(amount)) if amount == int(amount) else repr(float(amount))


def _escape_label(said: str, quoted: bool = False) -> str:
    said = said.replace("\\", "\\\\").replace("\n", "\\n")
    return said.replace('"', '\\"') if quoted else said
