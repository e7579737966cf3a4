"""`ralph report`: rates, averages and costs of the loops of some days."""

from __future__ import annotations

import os
import time
from argparse import Namespace

from ralphproof.base.errors import Refused
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_lines, print_result
from ralphproof.engine.limits import format_utc_day, utc_day
from ralphproof.reports import charts
from ralphproof.reports.daily_report import DATE_FORMAT, parse_day, render_markdown_report, report_json, run_cost_limit
from ralphproof.runs.open_project import view_project
from ralphproof.store.statistics import PeriodTotals, TimeSlotTotals

ABOUT = "Report rates, averages, costs and problems of the loops of one or more days."
EXAMPLES = (
    "ralph report",
    "ralph report --date yesterday",
    "ralph report --from 2026-02-01 --to 2026-02-28 --chart",
    "ralph report --from 2026-01-01 --json",
)
NOTHING_TO_DRAW = "nothing to draw: no loop ended in these days"


def report_parser() -> Parser:
    parser = Parser("report", ABOUT, EXAMPLES)
    add = parser.add
    add("--date D", f"day: {DATE_FORMAT} (default: today)")
    add("--from A", "first day of a period", dest="first")
    add("--to B", "last day of the period (default: today)", dest="last")
    add("--chart", "draw cost, iterations and outcomes, here and in .ralph/metrics/")
    return parser


def report_main(argv: list[str]) -> int:
    args = report_parser().parse(argv)
    first_day, last_day = parse_days(args, utc_day(time.time()))
    project = view_project(args.project_dir, os.environ)
    with project.ledger() as ledger:
        figures = ledger.statistics(first_day, last_day)
        slots = ledger.statistics_by_time(first_day, last_day) if args.chart else ()
    limit = run_cost_limit(project.root)
    if args.chart:
        print_report_with_charts(project.root, figures, slots, limit, args)
    else:
        print_report(figures, limit, args)
    return 0


def print_report_with_charts(
    root: str, figures: PeriodTotals, slots: tuple[TimeSlotTotals, ...], limit_micro_usd: int | None, args: Namespace
) -> None:
    """Print the report, the charts, and their files; print nothing if the files cannot be written."""
    charts.require_chart_libraries()
    if not figures.runs.count:
        print_report(figures, limit_micro_usd, args)
        if not args.json:
            print_lines("", NOTHING_TO_DRAW)
        return
    files = charts.write_charts(root, figures, slots)
    print_report(figures, limit_micro_usd, args, files)
    if not args.json:
        charts.print_charts(figures, slots, args.no_color)
        print_lines("", *(f"chart: {file}" for file in files))


def parse_days(args: Namespace, today: int) -> tuple[int, int]:
    """The first and last day that the flags name."""
    if args.date is not None and (args.first is not None or args.last is not None):
        raise Refused("--date is one day, --from and --to are a period; give one or the other")
    if args.last is not None and args.first is None:
        raise Refused("--to needs a --from")
    if args.first is None:
        day = parse_day("--date", args.date, today)
        return day, day
    first, last = parse_day("--from", args.first, today), parse_day("--to", args.last, today)
    if first > last:
        raise Refused(f"--from {format_utc_day(first)} is after --to {format_utc_day(last)}")
    return first, last


def print_report(
    figures: PeriodTotals, limit_micro_usd: int | None, args: Namespace, files: tuple[str, ...] = ()
) -> None:
    """Print the report as Markdown or JSON."""
    print_result(
        args.json,
        "report",
        report_json(figures, limit_micro_usd) | {"charts": list(files)},
        *render_markdown_report(figures, limit_micro_usd, not args.no_emoji).splitlines(),
    )
