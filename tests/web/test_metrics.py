"""Figures for Prometheus."""

from __future__ import annotations

import re
import time
from typing import Any

from ralphproof.engine.limits import Spend, utc_day
from ralphproof.store.spend import spend_on_day
from ralphproof.store.statistics import PeriodTotals, RunGroupTotals, RunTotals
from ralphproof.web.prometheus import metric_family, metrics_text
from tests.ralph import Ralph, done, until
from tests.web.served import Served, serve

SAMPLE = re.compile(r'([a-z_]+)(\{(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*\})? (-?[0-9.e+-]+)')
WIDE = {"skill": "TDD", "runs": 2, "iterations": 7, "milliseconds": 1500, "priced": 1, "micro_usd": 1_000_000,
        "at_least_micro_usd": 1_250_000, "tokens": 4000, "verified": 1, "saved_micro_usd": 0}  # fmt: skip


def cell(agent: str, status: str, reason: str = "") -> RunGroupTotals:
    return RunGroupTotals(agent=agent, status=status, reason=reason, **WIDE)  # type: ignore[arg-type]


def figures(*cells: RunGroupTotals) -> PeriodTotals:
    return PeriodTotals(0, 1, RunTotals(cells))


def test_the_page_is_what_prometheus_reads(served: Served) -> None:
    answer = served.ask("/metrics")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families: dict[str, str] = {}
    for line in answer.body.decode().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            families[name] = kind
        elif not line.startswith("# HELP "):
            found = SAMPLE.fullmatch(line)
            assert found, line
            assert found[1] in families, line
    assert all(name.startswith("ralph_") for name in families)
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in families.items())
    assert 'ralph_runs_total{agent="scripted",status="COMPLETED",reason=""} 1' in answer.body.decode()
    assert 'ralph_iterations_total{agent="scripted"} 2' in answer.body.decode()


def test_it_needs_the_token_and_to_be_asked_for(served: Served, onlooking: Served) -> None:
    assert served.ask("/metrics", known=False).status == 401
    assert onlooking.ask("/metrics").status == 404


def test_a_project_without_runs_has_figures_too(ralph: Ralph) -> None:
    told = serve(ralph, "--metrics").ask("/metrics").body.decode()
    assert 'ralph_runs_open{state="running"} 0' in told
    assert "# TYPE ralph_runs_total counter\n" in told


def test_what_a_turn_has_cost_so_far_is_told_everywhere(ralph: Ralph) -> None:
    ralph.settings(limits={"maxCostUsd": 5})
    agent = ralph.script([{"cost": 1.74}, {"tokens": 500}, {"until": "../go"}, done()])
    live = ralph.start("run", "-p", "make it so", "--agent", agent)
    until(
        lambda: spend_on_day(str(ralph.state_dir), utc_day(time.time())) == Spend(1_740_000, unpriced=1), "it is told"
    )
    assert "cost at least $1.74" in ralph("status").out
    told: list[Any] = [ralph("status", "--json").json, ralph("status", "--tree", "--json").json["runs"][0]]
    server = serve(ralph, "--metrics")
    run = told[0]["id"]
    told += [server.ask("/api/runs").json["runs"][0], server.ask(f"/api/runs/{run}").json]
    assert {(one["cost"]["usd"], one["cost"]["atLeast"]) for one in told} == {(1.74, True)}
    gauges = {one["name"]: (one["used"], one["atLeast"]) for one in told[-1]["limits"] if one["unit"] == "usd"}
    assert gauges == {"cost": (1.74, True), "dailyCost": (1.74, True)}
    assert "ralph_spent_today_usd 1.74\n" in server.ask("/metrics").body.decode()
    (ralph.folder / "go").touch()
    assert live.end().code == 0
    assert server.ask(f"/api/runs/{run}").json["cost"]["usd"] == 1.74


def test_a_run_without_a_price_is_counted_as_that(ralph: Ralph) -> None:
    ralph.commit()
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    told = serve(ralph, "--metrics").ask("/metrics").body.decode()
    assert 'ralph_runs_unknown_cost_total{agent="scripted"} 1' in told
    assert "\nralph_daily_limit_usd 50\n" in told


def test_the_sums_are_those_of_the_ledger() -> None:
    cells = cell("claude", "COMPLETED"), cell("claude", "ABORTED", "STALL"), cell("codex", "ERROR")
    told = metrics_text(figures(*cells), [], 1.5, 50.0)
    for line in (
        'ralph_runs_total{agent="claude",status="ABORTED",reason="STALL"} 2',
        'ralph_cost_usd_total{agent="claude"} 2.5',
        'ralph_run_seconds_total{agent="codex"} 1.5', 'ralph_tokens_total{agent="claude"} 8000',
        'ralph_runs_unknown_cost_total{agent="claude"} 2', 'ralph_runs_verified_total{agent="claude"} 1',
        'ralph_runs_verified_total{agent="codex"} 0', "ralph_spent_today_usd 1.5", "ralph_daily_limit_usd 50",
    ):  # fmt: skip
        assert f"\n{line}\n" in told


def test_what_is_not_known_is_not_told_as_zero() -> None:
    told = metrics_text(figures(), [], None, None)
    assert "ralph_spent_today_usd" not in told
    assert "ralph_daily_limit_usd" not in told


def test_runs_that_go_on_are_told_by_state_with_their_checks() -> None:
    newest: list[dict[str, Any]] = [
        {"state": "running", "checkCounts": {"passedCount": 1, "failedCount": 2}},
        {"state": "running", "checkCounts": None},
        {"state": "orphaned", "checkCounts": None},
        {"state": "ended", "checkCounts": {"passedCount": 9, "failedCount": 9}},
    ]  # fmt: skip
    told = metrics_text(figures(), newest, None, None)
    assert 'ralph_runs_open{state="orphaned"} 1\nralph_runs_open{state="running"} 2\n' in told
    assert 'ralph_open_checks{result="passed"} 1\nralph_open_checks{result="failed"} 2\n' in told


def test_a_run_that_waits_for_somebody_is_counted_once(ralph: Ralph) -> None:
    """It has ended; nothing of it goes on."""
    ralph.commit()
    wait = {"run": ["sh", "-c", 'echo "which colour?" > "$TASK_FOLDER/WAIT_WITHOUT_RESTART"']}
    assert ralph("run", "-p", "x", "--agent", ralph.script([wait])).code == 4
    told = serve(ralph, "--metrics").ask("/metrics").body.decode()
    assert 'ralph_runs_total{agent="scripted",status="ABORTED",reason="WAITING"} 1\n' in told
    assert [line for line in told.splitlines() if line.startswith("ralph_runs_open{")] == [
        'ralph_runs_open{state="running"} 0'
    ]


def test_a_label_may_hold_anything() -> None:
    told = metric_family("ralph_x", "gauge", "a\\b\nc", [({"agent": 'a"b\\c\nd'}, 1)])
    assert told == '# HELP ralph_x a\\\\b\\nc\n# TYPE ralph_x gauge\nralph_x{agent="a\\"b\\\\c\\nd"} 1\n'
