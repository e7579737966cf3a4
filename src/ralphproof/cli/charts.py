"""Charts of many runs: cost, iterations and outcomes along the time, as SVG and PNG."""

from __future__ import annotations

import os
import time

from ralphproof.cli.series import Series, series_of, smooth
from ralphproof.errors import Refused
from ralphproof.ledgers.metrics import MetricsFolder
from ralphproof.purse import DAY_S
from ralphproof.report import dates, file_name, loops, percent
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ralphproof.figure import Figures, Slot

MISSING = "--chart needs matplotlib and plotext; install them: pip install 'ralphproof[report]'"
MOST_BARS, MOST_STACKS, MOST_DATES = 366, 92, 13
CROWDED = 60  # from so many bars on a mean of seven tells more than each
LEFT = 0.075  # of the page
NAN = float("nan")
# Okabe and Ito's colours, which those who see few colours can tell apart; they also differ in lightness.
BLUE, ORANGE, VERMILION, INK, GREY, PALE = "#0072B2", "#E69F00", "#A8321A", "#222222", "#6B6B6B", "#E3E3E3"
LIGHT_BLUE = "#A9CCE3"
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 10, "text.color": INK, "axes.labelcolor": GREY,
    "xtick.color": GREY, "ytick.color": GREY, "axes.edgecolor": PALE, "axes.grid": True, "axes.grid.axis": "y",
    "grid.color": PALE, "grid.linewidth": 0.8, "axes.axisbelow": True, "axes.spines.top": False,
    "axes.spines.right": False, "axes.spines.left": False, "xtick.major.size": 0, "ytick.major.size": 0,
    "xtick.major.pad": 8, "legend.frameon": False, "svg.hashsalt": "ralph", "figure.dpi": 160,
    "figure.facecolor": "white", "text.parse_math": False,
}  # fmt: skip


def write(root: str, figures: Figures, slots: tuple[Slot, ...]) -> tuple[str, ...]:
    """Draw the chart of at least one run into `.ralph/metrics/` of a project, as SVG and PNG; the paths."""
    from io import BytesIO

    made, folder, paths = _drawn(figures, slots), MetricsFolder(root), []
    for ending in ("svg", "png"):
        image = BytesIO()
        made.savefig(image, format=ending, metadata={"Date": None} if ending == "svg" else None)
        paths.append(folder.put(file_name(figures.first_day, figures.last_day, ending), image.getvalue()))
    return tuple(paths)


def must_draw() -> None:
    """Refuse where a library is missing.

    matplotlib reads the `matplotlibrc` of the current folder when it is first loaded. A repository's could make it run
    programs, so it is loaded from elsewhere.
    """
    from importlib import import_module

    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.chdir("/")
    try:
        import_module("plotext")
        import_module("matplotlib").rcdefaults()
    except ImportError as error:
        raise Refused(MISSING) from error
    finally:
        os.fchdir(here)
        os.close(here)


def _drawn(figures: Figures, slots: tuple[Slot, ...]) -> Figure:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    fine, coarse = (series_of(slots, figures.first_day, figures.last_day, most) for most in (MOST_BARS, MOST_STACKS))
    with rc_context(STYLE):
        made = Figure(figsize=(11, 8.5))
        cost, iterations, outcomes = made.subplots(3, 1, sharex=True)
        made.subplots_adjust(left=LEFT, right=0.935, top=0.83, bottom=0.06, hspace=0.4)
        _head(made, figures)
        _cost(cost, fine)
        _iterations(iterations, fine, figures.p95_iterations)
        _outcomes(outcomes, coarse)
        _time_axis(outcomes, fine)
    return made


def _head(made: Figure, figures: Figures) -> None:
    runs, days = figures.runs, dates(figures.first_day, figures.last_day)
    cost = f"${runs.sum('at_least_micro_usd') / 1_000_000:,.2f}"
    unknown = f"   ·   {loops(runs.unpriced)} of unknown cost" if runs.unpriced else ""
    done = f"   ·   {percent(runs.completed, runs)} completed   ·   {cost}{unknown}"
    made.text(LEFT, 0.935, "Ralph Loop Performance", fontsize=18, fontweight="bold")
    made.text(LEFT, 0.9, f"{days} (UTC)   ·   {runs.count:,} loop{'s' * (runs.count != 1)}{done}", color=GREY)


def _cost(axes: Axes, series: Series) -> None:
    costs = [micro_usd / 1_000_000 for micro_usd in series.column("micro_usd")]
    crowded = len(costs) > CROWDED
    axes.bar(series.middles, costs, series.widths, color=LIGHT_BLUE if crowded else BLUE)
    if crowded:
        _mean_line(axes, series, smooth(costs))
    _finish(axes, f"Cost per {series.unit}", max(costs))
    digits = 2 if axes.get_ylim()[1] < 5 else 0
    axes.yaxis.set_major_formatter(lambda usd, _: f"${usd:,.{digits}f}")


def _iterations(axes: Axes, series: Series, p95: int | None) -> None:
    iterations, runs = (list(map(float, series.column(name))) for name in ("iterations", "runs"))
    means = _ratios(iterations, runs)
    if len(means) > CROWDED:
        axes.plot(series.middles, means, ".", color=LIGHT_BLUE, markersize=5)
        _mean_line(axes, series, _ratios(smooth(iterations), smooth(runs)))
    else:
        axes.plot(series.middles, means, color=BLUE, linewidth=1.6, marker="o", markersize=4)
    if p95 is not None:
        axes.axhline(p95, color=ORANGE, linewidth=1.4, linestyle=(0, (5, 3)), zorder=1)
        axes.text(1.005, p95, f"p95: {p95}", fontsize=9, va="center", transform=axes.get_yaxis_transform())
    top = max([p95 or 0, *(mean for mean in means if mean == mean)])  # NAN is not
    _finish(axes, f"Iterations per loop, mean of each {series.unit}", top, whole=True)


def _ratios(some: list[float], others: list[float]) -> list[float]:
    """Where there is nothing, a line has a gap."""
    return [one / other if other else NAN for one, other in zip(some, others, strict=True)]


def _mean_line(axes: Axes, series: Series, numbers: list[float]) -> None:
    label = "mean of 7 days" if series.unit == "day" else "running mean"
    axes.plot(series.middles, numbers, color=BLUE, linewidth=1.8, label=label)
    _legend(axes)


def _outcomes(axes: Axes, series: Series) -> None:
    below = [0] * len(series.slots)
    for name, colour in (("completed", BLUE), ("aborted", ORANGE), ("errors", VERMILION)):
        counts = series.column(name)
        axes.bar(series.middles, counts, series.widths, bottom=below, color=colour, label=name)
        below = [low + count for low, count in zip(below, counts, strict=True)]
    _legend(axes)
    _finish(axes, f"Outcomes per {series.unit}", max(below), whole=True)


def _legend(axes: Axes) -> None:
    """In the line of the title, to the right."""
    axes.legend(loc="lower right", bbox_to_anchor=(1.01, 1.02), ncols=3, fontsize=9, borderaxespad=0.3)


def _finish(axes: Axes, title: str, top: float, whole: bool = False) -> None:
    """The same for every part: from nothing up to a little more than the most."""
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, loc="left", fontsize=11.5, fontweight="bold", pad=10)
    axes.set_ylim(0, top * 1.06 or 1)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=whole, steps=[1, 2, 5, 10]))


def _time_axis(axes: Axes, series: Series) -> None:
    first, last = series.edges[0], series.edges[-1]
    axes.set_xlim(first, last - 1e-4)  # matplotlib knows no day after the last of 9999
    if series.unit == "hour":
        axes.set_xticks([first + hour / 24 for hour in range(0, 25, 3)], [f"{hour:02}:00" for hour in range(0, 25, 3)])
    elif series.unit == "day" and last - first <= MOST_STACKS:  # the days under their bars
        some = slice(None, None, -(-len(series.slots) // MOST_DATES))
        named = [time.strftime("%d %b", time.gmtime(day * DAY_S)) for day in series.edges[:-1]]
        axes.set_xticks(series.middles[some], named[some])
    else:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(minticks=3, maxticks=MOST_DATES)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        shown = ConciseDateFormatter(locator, show_offset=False)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(shown)
