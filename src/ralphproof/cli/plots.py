"""The same charts in the terminal, in its width, with or without colours."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.cli.series import YEAR, Series, series_of
from ralphproof.cli.view import colour
from ralphproof.purse import DAY_S
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ralphproof.figure import Figures, Slot

LEAST, MOST = 40, 120  # columns
SIDES = 10  # columns beside the bars
ROWS = 11
LABEL = 12  # columns that a date needs, with some space
BLUE, ORANGE, VERMILION = 32, 214, 160  # of the terminal's 256
# Signs that can be told apart without colours, from the top of a bar to its foot.
OUTCOMES = (("errors", "×", VERMILION), ("aborted", "▒", ORANGE), ("completed", "█", BLUE))


@value
class Bars:
    """Bars of one sign; the next ones are drawn over them."""

    heights: list[float]
    sign: str
    tint: int


def show(figures: Figures, slots: tuple[Slot, ...], no_color: bool) -> None:
    """Draw cost, iterations and outcomes on standard output."""
    tinted = colour(no_color, "auto", sys.stdout.isatty() and os.environ.get("TERM") != "dumb")
    columns = min(MOST, max(LEAST, _columns()))
    series = series_of(slots, figures.first_day, figures.last_day, columns - SIDES)
    for title, layers, told in _parts(series):
        plot = _plot(series, columns, layers, told).build().string(colorless=not tinted)
        print("", title, *(line.rstrip() for line in plot.splitlines()), sep="\n")


def _columns() -> int:
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
    except (OSError, ValueError):
        return 80


def _parts(series: Series) -> Iterator[tuple[str, list[Bars], Callable[[float], str]]]:
    """Titles, bars, and how their heights are told."""
    cost = [micro_usd / 1_000_000 for micro_usd in series.column("micro_usd")]
    yield f"Cost per {series.unit}", [Bars(cost, "█", BLUE)], "${:,.2f}".format
    pairs = zip(series.column("iterations"), series.column("runs"), strict=True)
    means = [iterations / runs if runs else 0.0 for iterations, runs in pairs]
    yield f"Iterations per loop, mean of each {series.unit}", [Bars(means, "█", BLUE)], "{:.1f}".format
    names = [name for name, _, _ in OUTCOMES]
    legend = ", ".join(f"{sign} {name}" for name, sign, _ in reversed(OUTCOMES))
    stacked = [
        Bars([float(sum(getattr(slot, name) for name in names[at:])) for slot in series.slots], sign, tint)
        for at, (_, sign, tint) in enumerate(OUTCOMES)
    ]
    yield f"Outcomes per {series.unit} ({legend})", stacked, "{:.0f}".format


def _plot(series: Series, columns: int, layers: list[Bars], told: Callable[[float], str]) -> Any:
    from importlib import import_module

    plotext = import_module("plotext")
    plotext.terminal.limit(False, False)
    figure = plotext.figure  # there is one for all
    figure.clear()
    figure.theme("simple")
    figure.plot_size(columns, ROWS)
    places = range(len(series.slots))
    for layer in layers:
        there = [place for place in places if layer.heights[place]]  # no height is a line at the foot
        if there:
            mark = plotext.marker(layer.sign, pixel=layer.tint)
            figure.draw(figure.bar(there, [layer.heights[place] for place in there], marker=mark, width=0.6))
    top = max(layers[0].heights) or 1.0
    half = top / 2 if told(top / 2) != told(top) and not (top % 2 and told(top).isdigit()) else 0.0
    step = max(1, -(-len(places) * LABEL // columns))
    figure.ruler("x").lim(-0.5, len(places) - 0.5)
    figure.ruler("x").ticks(list(places[::step]), [_when(series, place) for place in places[::step]])
    figure.ruler("y").lim(0, top)
    figure.ruler("y").ticks([0, half, top], [told(0), told(half), told(top)])
    return figure


def _when(series: Series, place: int) -> str:
    if series.unit == "hour":
        return f"{place:02}:00"
    form = "%d %b" if series.edges[-1] - series.edges[0] <= YEAR else "%b %Y"
    return time.strftime(form, time.gmtime(series.edges[place] * DAY_S))
