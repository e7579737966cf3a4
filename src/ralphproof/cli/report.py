"""`ralph report`: how the loops of a day, or of many days, went: rates, averages, costs, and what to look at."""

from __future__ import annotations

import os
import time

from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.errors import Refused
from ralphproof.figure import Figures, date_of
from ralphproof.purse import day_of
from ralphproof.report import markdown
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.project import Project
from ralphproof.views.report_json import DATE, as_json, cost_limit, day_named

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.figure import Slot

ABOUT = "how the loops of a day, or of many days, went: rates, averages, costs, and what to look at."
EXAMPLES = (
    "ralph report",
    "ralph report --date yesterday",
    "ralph report --from 2026-02-01 --to 2026-02-28 --chart",
    "ralph report --from 2026-01-01 --json",
)
NOTHING = "nothing to draw: no loop ended in these days"


def parser() -> Parser:
    made = Parser("report", ABOUT, EXAMPLES)
    add = made.add_argument
    add("--date", metavar="D", help=f"the day: {DATE} (default: today)")
    add("--from", dest="first", metavar="A", help="the first of many days")
    add("--to", dest="last", metavar="B", help="the last of them (default: today)")
    add("--chart", action="store_true", help="draw cost, iterations and outcomes, here and in .ralph/metrics/")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    first_day, last_day = days_of(args, day_of(time.time()))
    project = Project.seen(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        figures = ledger.figures(first_day, last_day)
        slots = ledger.slots(first_day, last_day) if args.chart else ()
    finally:
        ledger.close()
    limit = cost_limit(project.root)
    if args.chart:
        show_with_charts(project.root, figures, slots, limit, args)
    else:
        show(figures, limit, args)
    return 0


def show_with_charts(
    root: str, figures: Figures, slots: tuple[Slot, ...], limit_micro_usd: int | None, args: Namespace
) -> None:
    """The page, the same drawn below it, and where the files are. If they cannot be made, nothing is shown."""
    from ralphproof.cli import charts, plots

    charts.must_draw()
    if not figures.runs.count:
        show(figures, limit_micro_usd, args)
        if not args.json:
            put("", NOTHING)
        return
    files = charts.write(root, figures, slots)
    show(figures, limit_micro_usd, args, files)
    if not args.json:
        plots.show(figures, slots, args.no_color)
        put("", *(f"chart: {file}" for file in files))


def days_of(args: Namespace, today: int) -> tuple[int, int]:
    """The first and the last day that were asked for; raises Refused for those that there are not."""
    if args.date is not None and (args.first is not None or args.last is not None):
        raise Refused("--date is one day, --from and --to are many; give one or the other")
    if args.last is not None and args.first is None:
        raise Refused("--to needs a --from")
    if args.first is None:
        day = day_named("--date", args.date, today)
        return day, day
    first, last = day_named("--from", args.first, today), day_named("--to", args.last, today)
    if first > last:
        raise Refused(f"--from {date_of(first)} is after --to {date_of(last)}")
    return first, last


def show(figures: Figures, limit_micro_usd: int | None, args: Namespace, files: tuple[str, ...] = ()) -> None:
    """The page for people, or one object for programs."""
    if args.json:
        put_json("report", as_json(figures, limit_micro_usd) | {"charts": list(files)})
    else:
        put(*markdown(figures, limit_micro_usd, not args.no_emoji).splitlines())
