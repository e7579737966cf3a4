"""`ralph report` as people and programs see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from importlib.util import find_spec
from pathlib import Path

import pytest

from ralphproof.base.errors import Refused
from ralphproof.base.value import replace
from ralphproof.cli.report import parse_days, report_parser
from ralphproof.engine.limits import format_utc_day
from ralphproof.engine.outcome import Metrics
from ralphproof.engine.records import RunEnded
from ralphproof.reports.charts import build_time_series
from ralphproof.store.statistics import TimeSlotTotals
from tests.cli.missing_packages import without
from tests.cli.terminal import Terminal
from tests.cli.test_status import everything
from tests.needs import require
from tests.ralph import Ralph, done, say
from tests.store.samples import DAY, NOON_S, metrics, one_of_each

OUTCOME = one_of_each()[-1].outcome  # type: ignore[union-attr]
TODAY = format_utc_day(int(time.time() // 86_400))  # a test that runs over midnight may fail once


def record(ralph: Ralph, *ended: Metrics) -> None:
    """Runs that ended, in the record of the project."""
    ledger = ralph.project.ledger(read_only=False)
    first = len(ledger.runs())
    for number, one in enumerate(ended, first):
        ledger.append(f"run-{number}", (RunEnded(OUTCOME, one),))
    ledger.close()


def a_few(ralph: Ralph) -> None:
    """Three on 2026-02-20, one on the next day."""
    record(
        ralph, metrics(iterations=4), metrics(status="ABORTED", reason="STALL", agent="codex", skill=""),
        metrics(micro_usd=None, at_least_micro_usd=5), metrics(ended_s=NOON_S + 86_400),
    )  # fmt: skip


# Days


@pytest.mark.parametrize(
    ("argv", "days"),
    [
        ([], (DAY, DAY)),
        (["--date", "today"], (DAY, DAY)),
        (["--date", "yesterday"], (DAY - 1, DAY - 1)),
        (["--date", "1970-01-01"], (0, 0)),
        (["--date=1969-12-31"], (-1, -1)),
        (["--from", "2026-02-01", "--to", "2026-02-28"], (DAY - 19, DAY + 8)),
        (["--from", "yesterday"], (DAY - 1, DAY)),
        (["--from", "2026-02-20", "--to", "2026-02-20"], (DAY, DAY)),
    ],
)
def test_days_are_understood(argv: list[str], days: tuple[int, int]) -> None:
    assert parse_days(report_parser().parse(argv), DAY) == days


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--date", "2026-02-30"], "--date '2026-02-30' is no day; write YYYY-MM-DD, today or yesterday"),
        (["--date", "20260220"], "is no day"),
        (["--date", "2026-W08-5"], "is no day"),
        (["--date", "20.2.2026"], "is no day"),
        (["--date", "tomorrow"], "is no day"),
        (["--date", ""], "is no day"),
        (["--date", "２０２６-02-20"], "is no day"),
        (["--from", "x"], "--from 'x' is no day"),
        (["--from", "2026-02-20", "--to", "y"], "--to 'y' is no day"),
        (["--from", "2026-02-21", "--to", "2026-02-20"], "--from 2026-02-21 is after --to 2026-02-20"),
        (["--date", "today", "--from", "today"], "--date is one day"),
        (["--date", "today", "--to", "today"], "--date is one day"),
        (["--to", "today"], "--to needs a --from"),
    ],
)
def test_days_that_make_no_sense_are_refused_in_one_line(argv: list[str], why: str) -> None:
    with pytest.raises(Refused) as refusal:
        parse_days(report_parser().parse(argv), DAY)
    assert why in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_refusal_is_exit_code_2(ralph: Ralph) -> None:
    ended = ralph("report", "--date", "soon")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1


# The page


def test_a_day_is_a_page(ralph: Ralph) -> None:
    a_few(ralph)
    told = ralph("report", "--date", "2026-02-20")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("# Ralph Loop Performance Report - 2026-02-20\n\n## Overall Stats\n- Total loops: 3\n")
    assert "### TDD\n- Loops: 2\n- Completion: 100%\n- Avg iterations: 2.5\n" in told.out
    assert "### No skill\n" in told.out
    assert "### codex\n" in told.out
    assert "⚠️ The cost of 1 loop is not wholly known" in told.out


def test_many_days_are_one_page(ralph: Ralph) -> None:
    a_few(ralph)
    told = ralph("report", "--from", "2026-02-01", "--to", "2026-02-28")
    assert told.out.startswith("# Ralph Loop Performance Report - 2026-02-01 to 2026-02-28\n")
    assert "- Total loops: 4\n" in told.out


@pytest.mark.parametrize("argv", [[], ["--date", "2026-02-20"], ["--from", "2026-01-01", "--to", "2026-12-31"]])
def test_a_project_in_which_nothing_ran_has_an_empty_page(ralph: Ralph, argv: list[str]) -> None:
    told = ralph("report", *argv)
    assert told.code == 0
    assert "- Total loops: 0\n\nNo loop ended " in told.out
    assert "⚠️ None" in told.out


def test_the_day_is_today_unless_another_is_named(ralph: Ralph) -> None:
    record(ralph, metrics(ended_s=time.time()), metrics())
    told = ralph("report")
    assert told.out.startswith(f"# Ralph Loop Performance Report - {TODAY}\n")
    assert "- Total loops: 1\n" in told.out


def test_programs_get_one_object(ralph: Ralph) -> None:
    a_few(ralph)
    told = ralph("report", "--date", "2026-02-20", "--json").json
    assert (told["v"], told["type"], told["from"], told["to"]) == (1, "report", "2026-02-20", "2026-02-20")
    overall = told["overall"]
    assert (overall["loops"], overall["completed"], overall["stalled"], overall["errors"]) == (3, 2, 1, 0)
    assert (overall["avgIterations"], overall["p95Iterations"]) == (2.0, 4)
    assert (overall["avgCostUSD"], overall["p95CostUSD"], overall["unknownCosts"]) == (0.000012, 0.000012, 1)
    assert told["bySkill"]["tdd"]["loops"] == 2
    assert told["byAgent"]["codex"]["completed"] == 0
    assert told["abortReasons"] == {"STALL": 1}
    assert any("not wholly known" in alert for alert in told["alerts"])
    empty = ralph("report", "--date", "2020-01-01", "--json").json
    assert (empty["overall"]["loops"], empty["overall"]["avgIterations"], empty["overall"]["avgCostUSD"]) == (
        0,
        None,
        None,
    )


def test_without_emoji_it_is_plain(ralph: Ralph) -> None:
    a_few(ralph)
    assert ralph("report", "--date", "2026-02-20", "--no-emoji").out.isascii()


def test_names_that_anybody_chose_reach_neither_terminal_nor_page_as_commands(ralph: Ralph) -> None:
    evil = "\x1b]0;owned\x07<img src=x>\n# Forged"
    record(ralph, metrics(skill=evil, agent=evil))
    told = ralph("report", "--date", "2026-02-20").out
    assert "\x1b" not in told
    assert "\n# Forged" not in told
    assert r"\<img src=x\>" in told
    assert evil in ralph("report", "--date", "2026-02-20", "--json").json["bySkill"]


def test_a_cost_near_the_limit_of_the_settings_is_an_alert(ralph: Ralph) -> None:
    record(ralph, metrics(micro_usd=4_500_000))
    assert "near the limit" not in ralph("report", "--date", "2026-02-20").out
    ralph.settings(limits={"maxCostUsd": 5})
    assert "⚠️ p95 cost $4.50 is near the limit of a loop ($5.00)" in ralph("report", "--date", "2026-02-20").out


def test_wrong_settings_are_no_hindrance(ralph: Ralph) -> None:
    a_few(ralph)
    ralph.write({".ralph/settings.json": "{ broken"})
    assert "- Total loops: 3\n" in ralph("report", "--date", "2026-02-20").out


def test_looking_writes_nothing_and_starts_nothing(ralph: Ralph) -> None:
    a_few(ralph)
    ralph.commit()
    ralph.settings(agent={"command": "touch started"}, guardrails=[{"command": "touch started"}])
    before = everything(ralph.folder)
    for argv in ([], ["--json"], ["--from", "2026-01-01"]):
        assert ralph("report", *argv).code == 0
    assert everything(ralph.folder) == before


def test_a_torn_or_edited_metrics_file_changes_no_report(ralph: Ralph) -> None:
    a_few(ralph)
    before = ralph("report", "--date", "2026-02-20").out
    ralph.write({".ralph/metrics/loops.jsonl": '{"torn', ".ralph/metrics/ralph-report-2026-02-20.md": "lies"})
    assert ralph("report", "--date", "2026-02-20").out == before


def test_a_run_is_in_the_report_of_its_day_and_in_the_published_lines(ralph: Ralph) -> None:
    ralph.write({"check.sh": "test -f made"})
    ralph.commit()
    agent = ralph.script([say("no"), done()], [{"write": {"made": "yes"}}, done()])
    assert ralph("run", "-p", "x", "--agent", agent, "--check", "sh check.sh").code == 0
    assert ralph("run", "-p", "x", "--agent", ralph.script([say("no")]), "-m", "1").code == 1
    told = ralph("report", "--json").json
    assert (told["overall"]["loops"], told["overall"]["completed"], told["overall"]["verified"]) == (2, 1, 1)
    assert told["abortReasons"] == {"MAX_ITERATIONS": 1}
    published = ralph.root / ".ralph" / "metrics"
    first, second = [json.loads(line) for line in (published / "loops.jsonl").read_text().splitlines()]
    assert (first["status"], first["iterations"], first["filesModified"]) == ("COMPLETED", 2, 1)
    assert (first["completionPromiseDetected"], first["verificationPassed"]) == (True, True)
    assert (second["status"], second["abortReason"]) == ("ABORTED", "MAX_ITERATIONS")
    assert (published / f"ralph-report-{TODAY}.md").read_text() == ralph("report").out


def test_it_loads_only_what_it_uses(ralph: Ralph) -> None:
    a_few(ralph)
    slow = {"subprocess", "dataclasses", "asyncio", "inspect", "shutil", "logging", "matplotlib", "plotext"}
    look = "import sys; from ralphproof.cli.dispatch import dispatch; dispatch(['report'])"
    told = subprocess.run(
        [sys.executable, "-S", "-c", f"{look}; print({slow} & {{*sys.modules}})"],
        cwd=ralph.root, env=ralph.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.splitlines()[-1] == "set()"


# Charts


def charts(ralph: Ralph) -> Path:
    return ralph.root / ".ralph" / "metrics"


@pytest.fixture
def drawn(ralph: Ralph, tmp_path_factory: pytest.TempPathFactory) -> Ralph:
    """A project with runs on two days. What matplotlib finds out about fonts is kept for the next test."""
    require(all(find_spec(name) for name in ("matplotlib", "plotext")), "charts need the extra `report`")
    ralph.env["MPLCONFIGDIR"] = str(tmp_path_factory.getbasetemp() / "matplotlib")
    a_few(ralph)
    return ralph


@pytest.mark.thorough
def test_a_chart_is_drawn_here_and_into_files(drawn: Ralph) -> None:
    told = drawn("report", "--from", "2026-02-18", "--to", "2026-02-21", "--chart", env={"COLUMNS": "72"})
    assert (told.code, told.err) == (0, "")
    for title in ("Cost per day", "Iterations per loop, mean of each day", "Outcomes per day (█ completed"):
        assert f"\n{title}" in told.out
    plot = told.out.split("\nCost per day\n")[1]
    assert max(len(line) for line in plot.splitlines() if "│" in line) <= 72
    assert "\x1b" not in told.out
    name = "ralph-report-2026-02-18_to_2026-02-21"
    assert told.out.endswith(f"chart: {charts(drawn) / name}.svg\nchart: {charts(drawn) / name}.png\n")
    assert (charts(drawn) / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert ET.parse(charts(drawn) / f"{name}.svg").getroot().tag.endswith("svg")
    assert sorted(os.listdir(charts(drawn))) == [f"{name}.png", f"{name}.svg"]


@pytest.mark.parametrize(
    ("argv", "env", "coloured"),
    [([], {}, True), (["--no-color"], {}, False), ([], {"NO_COLOR": "1"}, False)],
)
def test_a_terminal_has_colours_unless_somebody_does_not_want_them(
    drawn: Ralph, argv: list[str], env: dict[str, str], coloured: bool
) -> None:
    terminal = Terminal(drawn, "report", "--date", "2026-02-20", "--chart", *argv, env=env)
    assert terminal.end() == 0
    assert "Outcomes per hour" in terminal.shown
    assert ("\x1b[" in terminal.shown) is coloured


@pytest.mark.thorough
def test_programs_get_the_paths_of_the_charts(drawn: Ralph) -> None:
    told = drawn("report", "--date", "2026-02-20", "--chart", "--json")
    assert told.json["charts"] == [
        str(charts(drawn) / f"ralph-report-2026-02-20.{ending}") for ending in ("svg", "png")
    ]


@pytest.mark.thorough
def test_of_nothing_no_chart_is_drawn(drawn: Ralph) -> None:
    told = drawn("report", "--date", "2020-02-20", "--chart")
    assert (told.code, told.err) == (0, "")
    assert told.out.endswith("\n\nnothing to draw: no loop ended in these days\n")
    assert drawn("report", "--date", "2020-02-20", "--chart", "--json").json["charts"] == []
    assert not charts(drawn).exists()


@pytest.mark.thorough
def test_all_of_time_can_be_drawn(drawn: Ralph) -> None:
    told = drawn("report", "--from", "0001-01-01", "--to", "9999-12-31", "--chart", timeout_s=30)
    assert (told.code, told.err) == (0, "")
    assert "- Total loops: 4\n" in told.out
    assert "Outcomes per day" in told.out


@pytest.mark.parametrize("package", ["matplotlib", "plotext"])
def test_a_missing_library_is_one_clear_line(ralph: Ralph, package: str) -> None:
    a_few(ralph)
    told = ralph("report", "--chart", env=without(ralph, package))
    assert (told.code, told.out) == (2, "")
    assert told.err == ("ralph: --chart needs matplotlib and plotext; install them: pip install 'ralphproof[report]'\n")
    assert not charts(ralph).exists()


@pytest.mark.thorough
@pytest.mark.parametrize("whose", ["the repository's", "the user's"])
def test_nobody_elses_settings_decide_how_charts_are_drawn(drawn: Ralph, whose: str) -> None:
    place = drawn.root if whose == "the repository's" else drawn.home
    noisy = "no.such.key: is told when it is read\n" if whose == "the repository's" else ""
    (place / "matplotlibrc").write_text(f"text.usetex: True\n{noisy}")
    drawn.program("latex", f"touch {drawn.folder}/ran")
    told = drawn("report", "--date", "2026-02-20", "--chart", env={"MATPLOTLIBRC": str(drawn.home)})
    assert (told.code, told.err) == (0, "")
    assert not (drawn.folder / "ran").exists()


@pytest.mark.thorough
def test_charts_are_not_written_through_a_link(drawn: Ralph) -> None:
    elsewhere = drawn.folder / "elsewhere"
    elsewhere.mkdir()
    (drawn.root / ".ralph").mkdir(exist_ok=True)
    charts(drawn).symlink_to(elsewhere)
    told = drawn("report", "--date", "2026-02-20", "--chart")
    assert (told.code, told.out) == (2, "")
    assert "symbolic link" in told.err
    assert os.listdir(elsewhere) == []


# What is in them


def slot(day: int, runs: int = 1) -> TimeSlotTotals:
    return TimeSlotTotals(day, runs, 0, 0, 2 * runs, 10 * runs)


@pytest.mark.parametrize(
    ("days", "most", "unit", "count"),
    [
        (2, 366, "day", 2),
        (366, 366, "day", 366),
        (367, 366, "week", 52),
        (31, 30, "week", 4),
        (2000, 92, "4 weeks", 71),
    ],
)
def test_days_are_put_together_until_they_fit(days: int, most: int, unit: str, count: int) -> None:
    slots = tuple(slot(day) for day in range(DAY, DAY + days))
    series = build_time_series(slots, DAY, DAY + days - 1, most)
    assert (series.unit, len(series.slots)) == (unit, count)
    assert sum(series.column("runs")) == days
    assert (series.edges[0], series.edges[-1]) == (DAY, DAY + days)
    assert len(series.edges) == count + 1 == len(series.middles) + 1


def test_a_day_without_runs_is_a_slot_all_the_same() -> None:
    series = build_time_series((slot(DAY + 2),), DAY, DAY + 4, 366)
    assert series.column("runs") == [0, 0, 1, 0, 0]


def test_one_day_is_its_hours() -> None:
    series = build_time_series((slot(23, 5),), DAY, DAY, 366)
    assert (series.unit, series.column("runs")) == ("hour", [0] * 23 + [5])


def test_of_many_years_only_those_with_runs_are_drawn() -> None:
    series = build_time_series((slot(DAY), slot(DAY + 9)), -719_162, DAY + 900_000, 366)
    assert (series.unit, len(series.slots)) == ("day", 10)
    assert len(build_time_series((), -719_162, DAY + 900_000, 366).slots) == 366


@pytest.mark.parametrize(("days", "first"), [(8, 8), (10, 10), (11, 4), (13, 6), (14, 7)])
def test_what_is_left_at_the_beginning_stands_alone_only_if_it_is_much(days: int, first: int) -> None:
    series = build_time_series(tuple(slot(day) for day in range(DAY, DAY + days)), DAY, DAY + days - 1, 7)
    assert series.column("runs")[0] == first
    assert series.slots[-1] == replace(series.slots[-1], completed=7) or days < 11
