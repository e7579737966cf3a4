"""`ralph report`: how the loops of a day, or of many days, went: rates, averages, costs, and what to look at."""

from __future__ import annotations

import os
import re
import time

from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.project import Project
from ralphproof.errors import Refused
from ralphproof.figure import Figures, Runs, date_of
from ralphproof.limit import STALL
from ralphproof.metric import reviews_told
from ralphproof.purse import day_of
from ralphproof.report import alerts, markdown
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.figure import Slot
    from ralphproof.value import Json

EXAMPLES = (
    "ralph report",
    "ralph report --date yesterday",
    "ralph report --from 2026-02-01 --to 2026-02-28 --chart",
    "ralph report --from 2026-01-01 --json",
)
NOTHING = "nothing to draw: no loop ended in these days"
DATE = "YYYY-MM-DD, today or yesterday, by the UTC calendar"


def parser() -> Parser:
    made = Parser("report", __doc__.split(": ", 1)[1], EXAMPLES)
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
    limit = _limit(project.root)
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
        day = _day("--date", args.date, today)
        return day, day
    first, last = _day("--from", args.first, today), _day("--to", args.last, today)
    if first > last:
        raise Refused(f"--from {date_of(first)} is after --to {date_of(last)}")
    return first, last


def _day(flag: str, text: str | None, today: int) -> int:
    if text is None:
        return today
    if text in ("today", "yesterday"):
        return today - (text == "yesterday")
    from datetime import date

    try:
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            raise ValueError
        return date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        raise Refused(f"{flag} {text!r} is no day; write {DATE}") from None


def _limit(root: str) -> int | None:
    """What a run may cost by the settings in force; a report needs no settings, so wrong ones are no hindrance."""
    from ralphproof.config.load import load

    try:
        return load(root, os.environ).settings.cost_limit_micro_usd
    except Refused:
        return None


def show(figures: Figures, limit_micro_usd: int | None, args: Namespace, files: tuple[str, ...] = ()) -> None:
    """The page for people, or one object for programs."""
    if args.json:
        put_json("report", as_json(figures, limit_micro_usd) | {"charts": list(files)})
    else:
        put(*markdown(figures, limit_micro_usd, not args.no_emoji).splitlines())


def as_json(figures: Figures, limit_micro_usd: int | None) -> dict[str, Json]:
    """Everything that the page tells."""
    runs, reviews = figures.runs, figures.reviews
    return {
        "from": date_of(figures.first_day),
        "to": date_of(figures.last_day),
        "overall": {
            **_part(runs),
            "p95Iterations": figures.p95_iterations,
            "p95CostUSD": _usd(figures.p95_micro_usd),
            "stalled": runs.of(reason=STALL).count,
            "errors": runs.errors.count,
            "tokens": runs.sum("tokens"),
            "durationSeconds": runs.sum("milliseconds") / 1000,
            "savedUSD": runs.sum("saved_micro_usd") / 1_000_000,
        },
        "bySkill": {name: _part(part) for name, part in runs.by("skill")},
        "byAgent": {name: _part(part) for name, part in runs.by("agent")},
        "abortReasons": {name: part.count for name, part in runs.aborted.by("reason")},
        "reviews": {"loops": reviews.runs, **reviews_told(reviews)} if reviews.runs else None,
        "alerts": list(alerts(figures, limit_micro_usd)),
    }


def _part(runs: Runs) -> dict[str, Json]:
    completed = runs.completed
    return {
        "loops": runs.count,
        "completed": completed.count,
        "verified": completed.sum("verified"),
        "avgIterations": runs.mean_iterations,
        "avgIterationsToComplete": completed.mean_iterations,
        "avgCostUSD": _usd(runs.mean_micro_usd),
        "avgCostPerCompletionUSD": _usd(completed.mean_micro_usd),
        "atLeastUSD": runs.sum("at_least_micro_usd") / 1_000_000,
        "unknownCosts": runs.unpriced,
    }


def _usd(micro_usd: int | None) -> float | None:
    return None if micro_usd is None else micro_usd / 1_000_000
