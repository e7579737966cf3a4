"""Charts of many runs, as SVG, as PNG and in the terminal: cost, iterations and outcomes over time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from io import BytesIO
from itertools import pairwise
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display.terminal import use_color
from ralphproof.engine.limits import SECONDS_PER_DAY
from ralphproof.reports.daily_report import count_loops, format_date_range, format_percent, report_file_name
from ralphproof.reports.metrics import MetricsFolder
from ralphproof.store.statistics import PeriodTotals, TimeSlotTotals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Time series: consecutive slots, as many as a chart has room for.


STEPS = ((1, "day"), (7, "week"), (28, "4 weeks"), (91, "quarter"), (364, "year"))
YEAR_DAYS = 366
HOURS_PER_DAY = 24
MAX_SPACED_BARS = 92  # more bars are drawn without gaps


@value
class TimeSeries:
    """Consecutive time spans, all equal but the first, which may be shorter or longer.

    `edges` are their starts and the end of the last, in days since 1970.
    """

    unit: str
    edges: tuple[float, ...]
    slots: tuple[TimeSlotTotals, ...]

    @property
    def middles(self) -> list[float]:
        return [(low + high) / 2 for low, high in pairwise(self.edges)]

    @property
    def widths(self) -> list[float]:
        """Widths of bars."""
        part = 0.8 if len(self.slots) <= MAX_SPACED_BARS else 1.0
        return [(high - low) * part for low, high in pairwise(self.edges)]

    def column(self, name: str) -> list[int]:
        """One number of every slot."""
        return [getattr(slot, name) for slot in self.slots]


def build_time_series(slots: tuple[TimeSlotTotals, ...], first_day: int, last_day: int, most: int) -> TimeSeries:
    """The hours of one day, or all days, grouped if they are more than `most`.

    Of more than a year only the part in which runs ended is kept, or the first year if none did.
    """
    known = {slot.at: slot for slot in slots}
    if first_day == last_day:
        hours = tuple(known.get(hour, TimeSlotTotals(hour)) for hour in range(HOURS_PER_DAY))
        return TimeSeries("hour", tuple(first_day + hour / HOURS_PER_DAY for hour in range(HOURS_PER_DAY + 1)), hours)
    if last_day - first_day >= YEAR_DAYS:
        first_day, last_day = min(known, default=first_day), max(known, default=first_day + YEAR_DAYS - 1)
    days = last_day - first_day + 1
    step, unit = next((found for found in STEPS if -(-days // found[0]) <= most), STEPS[-1])
    edges = _slot_edges(first_day, last_day + 1, step)
    joined = (_sum_slots(known, low, high) for low, high in pairwise(edges))
    return TimeSeries(unit, tuple(map(float, edges)), tuple(joined))


def _slot_edges(first: int, end: int, step: int) -> list[int]:
    """All spans are whole but the first: the remainder stands alone or, if it is small, with the next span."""
    whole, rest = divmod(end - first, step)
    starts = [end - step * number for number in range(whole, -1, -1)]
    if not rest:
        return starts
    return [first, *(starts if 2 * rest >= step or not whole else starts[1:])]


def _sum_slots(known: dict[int, TimeSlotTotals], low: int, high: int) -> TimeSlotTotals:
    slots = [known[day] for day in range(low, high) if day in known]
    return TimeSlotTotals(
        low, *(sum(getattr(slot, name) for slot in slots) for name in TimeSlotTotals.__match_args__[1:])
    )


def moving_average(numbers: list[float]) -> list[float]:
    """The mean of each number and the six around it, as far as they exist."""
    around = [numbers[max(0, at - 3) : at + 4] for at in range(len(numbers))]
    return [sum(some) / len(some) for some in around]


# Charts as SVG and PNG.


MISSING_LIBRARIES = "--chart needs matplotlib and plotext; install them: pip install 'ralphproof[report]'"
MAX_BARS, MAX_STACKS, MAX_DATES = 366, 92, 13
MOVING_AVERAGE_FROM = 60  # number of bars above which a moving average is drawn
LEFT_MARGIN = 0.075  # of the page
NAN = float("nan")
# The colour-blind safe palette of Okabe and Ito; its colours also differ in lightness.
BLUE, ORANGE, VERMILION, TEXT_COLOUR, GREY, PALE = "#0072B2", "#E69F00", "#A8321A", "#222222", "#6B6B6B", "#E3E3E3"
LIGHT_BLUE = "#A9CCE3"
CHART_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 10, "text.color": TEXT_COLOUR, "axes.labelcolor": GREY,
    "xtick.color": GREY, "ytick.color": GREY, "axes.edgecolor": PALE, "axes.grid": True, "axes.grid.axis": "y",
    "grid.color": PALE, "grid.linewidth": 0.8, "axes.axisbelow": True, "axes.spines.top": False,
    "axes.spines.right": False, "axes.spines.left": False, "xtick.major.size": 0, "ytick.major.size": 0,
    "xtick.major.pad": 8, "legend.frameon": False, "svg.hashsalt": "ralph", "figure.dpi": 160,
    "figure.facecolor": "white", "text.parse_math": False,
}  # fmt: skip


def write_charts(root: str, figures: PeriodTotals, slots: tuple[TimeSlotTotals, ...]) -> tuple[str, ...]:
    """Write the chart of at least one run to `.ralph/metrics/` as SVG and PNG; the paths."""
    figure, folder, paths = _draw_figure(figures, slots), MetricsFolder(root), []
    for extension in ("svg", "png"):
        image = BytesIO()
        figure.savefig(image, format=extension, metadata={"Date": None} if extension == "svg" else None)
        paths.append(folder.put(report_file_name(figures.first_day, figures.last_day, extension), image.getvalue()))
    return tuple(paths)


def require_chart_libraries() -> None:
    """Import the libraries; raises Refused if one is missing.

    matplotlib reads `matplotlibrc` of the current folder when it is first imported. That of a repository could run
    programs, so matplotlib is imported in another folder.
    """
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.chdir("/")
    try:
        import_module("plotext")
        import_module("matplotlib").rcdefaults()
    except ImportError as error:
        raise Refused(MISSING_LIBRARIES) from error
    finally:
        os.fchdir(here)
        os.close(here)


def _draw_figure(figures: PeriodTotals, slots: tuple[TimeSlotTotals, ...]) -> Figure:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    fine, coarse = (
        build_time_series(slots, figures.first_day, figures.last_day, most) for most in (MAX_BARS, MAX_STACKS)
    )
    with rc_context(CHART_STYLE):
        made = Figure(figsize=(11, 8.5))
        cost, iterations, outcomes = made.subplots(3, 1, sharex=True)
        made.subplots_adjust(left=LEFT_MARGIN, right=0.935, top=0.83, bottom=0.06, hspace=0.4)
        _draw_title(made, figures)
        _draw_cost(cost, fine)
        _draw_iterations(iterations, fine, figures.p95_iterations)
        _draw_outcomes(outcomes, coarse)
        _time_axis(outcomes, fine)
    return made


def _draw_title(made: Figure, figures: PeriodTotals) -> None:
    runs, days = figures.runs, format_date_range(figures.first_day, figures.last_day)
    cost = f"${runs.sum('at_least_micro_usd') / 1_000_000:,.2f}"
    unknown = f"   ·   {count_loops(runs.unpriced)} of unknown cost" if runs.unpriced else ""
    done = f"   ·   {format_percent(runs.completed, runs)} completed   ·   {cost}{unknown}"
    made.text(LEFT_MARGIN, 0.935, "Ralph Loop Performance", fontsize=18, fontweight="bold")
    made.text(LEFT_MARGIN, 0.9, f"{days} (UTC)   ·   {runs.count:,} loop{'s' * (runs.count != 1)}{done}", color=GREY)


def _draw_cost(axes: Axes, series: TimeSeries) -> None:
    costs = [micro_usd / 1_000_000 for micro_usd in series.column("micro_usd")]
    crowded = len(costs) > MOVING_AVERAGE_FROM
    axes.bar(series.middles, costs, series.widths, color=LIGHT_BLUE if crowded else BLUE)
    if crowded:
        _mean_line(axes, series, moving_average(costs))
    _finish_axes(axes, f"Cost per {series.unit}", max(costs))
    digits = 2 if axes.get_ylim()[1] < 5 else 0
    axes.yaxis.set_major_formatter(lambda usd, _: f"${usd:,.{digits}f}")


def _draw_iterations(axes: Axes, series: TimeSeries, p95: int | None) -> None:
    iterations, runs = (list(map(float, series.column(name))) for name in ("iterations", "runs"))
    means = _ratios_with_gaps(iterations, runs)
    if len(means) > MOVING_AVERAGE_FROM:
        axes.plot(series.middles, means, ".", color=LIGHT_BLUE, markersize=5)
        _mean_line(axes, series, _ratios_with_gaps(moving_average(iterations), moving_average(runs)))
    else:
        axes.plot(series.middles, means, color=BLUE, linewidth=1.6, marker="o", markersize=4)
    if p95 is not None:
        axes.axhline(p95, color=ORANGE, linewidth=1.4, linestyle=(0, (5, 3)), zorder=1)
        axes.text(1.005, p95, f"p95: {p95}", fontsize=9, va="center", transform=axes.get_yaxis_transform())
    top = max([p95 or 0, *(mean for mean in means if mean == mean)])  # NaN is not equal to itself
    _finish_axes(axes, f"Iterations per loop, mean of each {series.unit}", top, whole=True)


def _ratios_with_gaps(some: list[float], others: list[float]) -> list[float]:
    """The ratios of two lists; NaN, which leaves a gap in the line, where the divisor is 0."""
    return [one / other if other else NAN for one, other in zip(some, others, strict=True)]


def _mean_line(axes: Axes, series: TimeSeries, numbers: list[float]) -> None:
    label = "mean of 7 days" if series.unit == "day" else "running mean"
    axes.plot(series.middles, numbers, color=BLUE, linewidth=1.8, label=label)
    _draw_legend(axes)


def _draw_outcomes(axes: Axes, series: TimeSeries) -> None:
    below = [0] * len(series.slots)
    for name, colour in (("completed", BLUE), ("aborted", ORANGE), ("errors", VERMILION)):
        counts = series.column(name)
        axes.bar(series.middles, counts, series.widths, bottom=below, color=colour, label=name)
        below = [low + count for low, count in zip(below, counts, strict=True)]
    _draw_legend(axes)
    _finish_axes(axes, f"Outcomes per {series.unit}", max(below), whole=True)


def _draw_legend(axes: Axes) -> None:
    """Draw the legend in the title line, to the right."""
    axes.legend(loc="lower right", bbox_to_anchor=(1.01, 1.02), ncols=3, fontsize=9, borderaxespad=0.3)


def _finish_axes(axes: Axes, title: str, top: float, whole: bool = False) -> None:
    """Set the title, and a scale from zero to a little more than the maximum."""
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, loc="left", fontsize=11.5, fontweight="bold", pad=10)
    axes.set_ylim(0, top * 1.06 or 1)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=whole, steps=[1, 2, 5, 10]))


def _time_axis(axes: Axes, series: TimeSeries) -> None:
    first, last = series.edges[0], series.edges[-1]
    axes.set_xlim(first, last - 1e-4)  # matplotlib has no dates after the year 9999
    if series.unit == "hour":
        axes.set_xticks([first + hour / 24 for hour in range(0, 25, 3)], [f"{hour:02}:00" for hour in range(0, 25, 3)])
    elif series.unit == "day" and last - first <= MAX_STACKS:  # the days under their bars
        some = slice(None, None, -(-len(series.slots) // MAX_DATES))
        named = [time.strftime("%d %b", time.gmtime(day * SECONDS_PER_DAY)) for day in series.edges[:-1]]
        axes.set_xticks(series.middles[some], named[some])
    else:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(minticks=3, maxticks=MAX_DATES)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        shown = ConciseDateFormatter(locator, show_offset=False)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(shown)


# Charts in the terminal.


MIN_WIDTH, MAX_WIDTH = 40, 120  # columns
MARGIN_COLUMNS = 10  # columns beside the bars
PLOT_ROWS = 11
LABEL_COLUMNS = 12  # columns that a date needs, with some space
TERMINAL_BLUE, TERMINAL_ORANGE, TERMINAL_VERMILION = 32, 214, 160  # of the terminal's 256
# Marks that differ without colours too, from the top of a bar to its bottom.
OUTCOME_BARS = (
    ("errors", "×", TERMINAL_VERMILION),
    ("aborted", "▒", TERMINAL_ORANGE),
    ("completed", "█", TERMINAL_BLUE),
)


@value
class BarSeries:
    """Bars of one character; later series are drawn over earlier ones."""

    heights: list[float]
    sign: str
    tint: int


def print_charts(figures: PeriodTotals, slots: tuple[TimeSlotTotals, ...], no_color: bool) -> None:
    """Draw cost, iterations and outcomes on standard output."""
    tinted = use_color(no_color, "auto", sys.stdout.isatty() and os.environ.get("TERM") != "dumb")
    columns = min(MAX_WIDTH, max(MIN_WIDTH, _terminal_width()))
    series = build_time_series(slots, figures.first_day, figures.last_day, columns - MARGIN_COLUMNS)
    for title, layers, number_format in _chart_parts(series):
        plot = _plot(series, columns, layers, number_format).build().string(colorless=not tinted)
        print("", title, *(line.rstrip() for line in plot.splitlines()), sep="\n")


def _terminal_width() -> int:
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
    except (OSError, ValueError):
        return 80


def _chart_parts(series: TimeSeries) -> Iterator[tuple[str, list[BarSeries], Callable[[float], str]]]:
    """Titles, bars, and their number formats."""
    cost = [micro_usd / 1_000_000 for micro_usd in series.column("micro_usd")]
    yield f"Cost per {series.unit}", [BarSeries(cost, "█", TERMINAL_BLUE)], "${:,.2f}".format
    pairs = zip(series.column("iterations"), series.column("runs"), strict=True)
    means = [iterations / runs if runs else 0.0 for iterations, runs in pairs]
    yield f"Iterations per loop, mean of each {series.unit}", [BarSeries(means, "█", TERMINAL_BLUE)], "{:.1f}".format
    names = [name for name, _, _ in OUTCOME_BARS]
    legend = ", ".join(f"{sign} {name}" for name, sign, _ in reversed(OUTCOME_BARS))
    stacked = [
        BarSeries([float(sum(getattr(slot, name) for name in names[at:])) for slot in series.slots], sign, tint)
        for at, (_, sign, tint) in enumerate(OUTCOME_BARS)
    ]
    yield f"Outcomes per {series.unit} ({legend})", stacked, "{:.0f}".format


def _plot(series: TimeSeries, columns: int, layers: list[BarSeries], format_number: Callable[[float], str]) -> Any:
    plotext = import_module("plotext")
    plotext.terminal.limit(False, False)
    figure = plotext.figure  # a global object
    figure.clear()
    figure.theme("simple")
    figure.plot_size(columns, PLOT_ROWS)
    places = range(len(series.slots))
    for layer in layers:
        drawn = [place for place in places if layer.heights[place]]  # a bar of height 0 would be drawn as a line
        if drawn:
            mark = plotext.marker(layer.sign, pixel=layer.tint)
            figure.draw(figure.bar(drawn, [layer.heights[place] for place in drawn], marker=mark, width=0.6))
    top = max(layers[0].heights) or 1.0
    odd_count = top % 2 and format_number(top).isdigit()
    half = top / 2 if format_number(top / 2) != format_number(top) and not odd_count else 0.0
    step = max(1, -(-len(places) * LABEL_COLUMNS // columns))
    figure.ruler("x").lim(-0.5, len(places) - 0.5)
    figure.ruler("x").ticks(list(places[::step]), [_format_tick(series, place) for place in places[::step]])
    figure.ruler("y").lim(0, top)
    figure.ruler("y").ticks([0, half, top], [format_number(0), format_number(half), format_number(top)])
    return figure


def _format_tick(series: TimeSeries, place: int) -> str:
    if series.unit == "hour":
        return f"{place:02}:00"
    date_format = "%d %b" if series.edges[-1] - series.edges[0] <= YEAR_DAYS else "%b %Y"
    return time.strftime(date_format, time.gmtime(series.edges[place] * SECONDS_PER_DAY))
