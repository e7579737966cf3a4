"""The page of one run: status, limits, iterations, agent."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import ModalScreen
from textual.widgets import Static

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.display.phrases import describe_sandbox, format_count, format_duration, format_time
from ralphproof.tui.iteration_page import ITERATION_COLUMNS, IterationPage, iteration_row
from ralphproof.tui.log_pages import DiffPage, LogsPage
from ralphproof.tui.page import DashboardContext, EventListener, FilteredPage, FilterInput, Page, badge_text
from ralphproof.tui.style import (
    BAD,
    DIM,
    GOOD,
    LIVE,
    PLAIN,
    STRONG,
    WARN,
    Symbols,
    check_count_text,
    draw_gauges,
    draw_sparkline,
    fit_width,
    format_age,
    format_spend,
    format_spend_with_unit,
    format_thousands,
    join_parts,
    plain_line,
    run_badge,
)
from ralphproof.tui.task_pages import StoriesPage
from ralphproof.tui.widgets import AgentPanel, Column, SelectionView, TableView
from ralphproof.views.published_json import epoch_seconds

if TYPE_CHECKING:
    from textual.app import ComposeResult


# The head of a run's page: how it stands, what it may still use, and whether it gets better.


REQUESTED_ACTIONS = {"pause": "it will rest before its next turn", "cancel": "it is asked to end"}
MAX_MESSAGES = 3  # of a run's last lines


def run_header(run: Mapping[str, Any], width: int, symbols: Symbols, now_s: float) -> list[Text]:
    """All lines of it."""
    lines = [
        _title_line(run, symbols),
        *_status_lines(run, now_s),
        fit_width(_facts_line(run, symbols, now_s), width, symbols),
    ]
    lines += draw_gauges(run.get("limits") or [], width, symbols)
    bars = draw_sparkline(run.get("failingCounts") or [], width, symbols)
    return [*lines, *([bars] if bars else [])]


def _title_line(run: Mapping[str, Any], symbols: Symbols) -> Text:
    sign, word, style = run_badge(run, symbols)
    return join_parts((f"{sign} {word}", style), "   ", (run.get("title") or run.get("task") or run["id"], STRONG))


def _status_lines(run: Mapping[str, Any], now_s: float) -> Iterator[Text]:
    """What it is at, or how it ended; and what waits for it."""
    over = run["state"] in ("ended", "stopped")
    if over:
        style = {"COMPLETED": GOOD if run.get("proof") == "verified" else WARN, "ERROR": BAD}.get(
            str(run.get("status")), WARN
        )
        yield from (join_parts((line, style)) for line in list(run.get("outcomeLines") or [])[-MAX_MESSAGES:])
    elif run.get("activity"):
        lasting = f", for {format_duration(max(0.0, now_s - epoch_seconds(run['updatedAt'])))}"
        asked = f"; {REQUESTED_ACTIONS[run['requested']]}" if run.get("requested") in REQUESTED_ACTIONS else ""
        yield join_parts((f"{run['activity']}{lasting}{asked}", WARN if asked else ""))
    if run.get("interruption"):
        yield join_parts((f"found: {run['interruption']}", BAD))
    if wait := run.get("wait"):
        until = format_time(epoch_seconds(wait["until"]), now_s)
        yield join_parts((f"waits until {until}: {wait['reason']}", WARN))
    if unread := run.get("unreadMessages"):
        yield join_parts((f"{format_count(unread, 'message')} of yours for its next prompt", WARN))


def _facts_line(run: Mapping[str, Any], symbols: Symbols, now_s: float) -> Text:
    """Who works, how, where."""
    dot = f" {symbols.dot} "
    agent = " ".join(str(run.get(name) or "") for name in ("agent", "model")).strip()
    parts = [
        agent,
        run.get("preset"),
        f"sandbox {describe_sandbox(run.get('sandbox'))}",
        format_spend_with_unit(run.get("cost"), symbols),
    ]
    parts += [f"{format_thousands(run['tokens'])} tokens"] if run.get("tokens") else []
    parts += [f"began {format_age(epoch_seconds(run['startedAt']), now_s)} ago"]
    children, together = run.get("children") or [], run.get("costWithChildren")
    spent = f", {format_spend_with_unit(together, symbols)} with them" if together else ""
    parts += [f"runs of its own: {len(children)}{spent}"] if children else []
    parts += [f"in run {run['parent']}"] if run.get("parent") else []
    return join_parts((dot.join(str(part) for part in parts if part), DIM))


LIVE_STATES = ("running", "orphaned")


class RunPage(Page):
    """Follows one run. Its agent's events are received only while this page is on top."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "diff", "diff"),
        Binding("l", "logs", "logs"),
        Binding("b", "lanes", "board"),
    ]

    def __init__(self, context: DashboardContext, run: str) -> None:
        super().__init__(context, run, run)
        self._data: dict[str, Any] = {}
        self._iterations: dict[int, dict[str, Any]] = {}
        self._cells: dict[int, list[Text]] = {}  # of iterations that are over
        self._shown_turn = ""
        self._listener: EventListener | None = None

    def body(self) -> ComposeResult:
        yield Static(id="head")
        with Container(id="halves"):
            table = TableView(ITERATION_COLUMNS, self.symbols, "no iteration yet", id="iterations")
            table.border_title = "iterations"
            yield table
            yield AgentPanel(self.symbols)

    # Content

    async def load(self) -> None:
        data = await self.in_thread(self.read_model.run, self._run, int(self._data.get("seq", 0)))
        self._iterations |= {one["number"]: one for one in data["timeline"]}
        for one in data["timeline"]:
            self._cells.pop(one["number"], None)
        self._data = data
        self.redraw()
        await self._listen()

    def tick(self) -> None:
        if self._data and self._data["state"] != "ended":
            self.redraw()

    def after_resize(self) -> None:
        super().after_resize()
        if self._data and not self.is_left:
            self.redraw()

    def redraw(self) -> None:
        now, width = time.time(), max(20, self.size.width - 2)
        lines = run_header(self._data, width, self.symbols, now)
        self.query_one("#head", Static).update(Text("\n", end="").join(lines))
        rows = [(str(number), self._row(number, now)) for number in sorted(self._iterations)]
        table = self.query_one("#iterations", TableView)
        table.hidden = () if len(self._data["stages"]) > 1 or self._data["hasStories"] else ("stage",)
        table.show(rows, to_end=True)

    def _row(self, number: int, now_s: float) -> list[Text]:
        """Cells of an iteration; those of an ended one are cached."""
        if number in self._cells:
            return self._cells[number]
        data = self._iterations[number]
        cells = iteration_row(data, self.symbols, now_s)
        if data["endedAt"] is not None:
            self._cells[number] = cells
        return cells

    async def _listen(self) -> None:
        """Receive events while the run is live; otherwise show its last turn."""
        panel = self.query_one(AgentPanel)
        if self._data["state"] in LIVE_STATES:
            self._shown_turn = ""
            if self._listener is None and self.is_current:
                self._listener = self.context.listen(self._run, panel.receive)
                self._listener.start()
            return
        self._stop_listening()
        turns = [turn for _, one in sorted(self._iterations.items()) for turn in one["turns"]]
        if not turns:
            panel.show_idle("no agent was asked yet")
        elif self._shown_turn != (name := str(turns[-1]["log"])):
            self._shown_turn = name
            words = "rests" if self._data["state"] == "paused" else "its last turn"
            panel.show_turn(name, await self.turn_events(self._run, turns[-1]), words)

    def on_screen_suspend(self) -> None:
        if not isinstance(self.app.screen, ModalScreen):  # behind a window it is still seen
            self._stop_listening()

    def on_unmount(self) -> None:
        self._stop_listening()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.stop()
            self._listener = None

    # Keys

    def on_selection_view_chosen(self, event: SelectionView.Chosen) -> None:
        self.app.push_screen(IterationPage(self.context, self._run, int(event.key)))

    def action_diff(self) -> None:
        self.app.push_screen(DiffPage(self.context, self._run))

    def action_logs(self) -> None:
        self.app.push_screen(LogsPage(self.context, self._run))

    def action_lanes(self) -> None:
        if self._data.get("hasStories"):
            self.app.push_screen(StoriesPage(self.context, self._run))
        else:
            self.app.switch_mode("board")


TOTAL_COLUMN = "together"  # what a run spent with those that its agent began
RUN_COLUMNS = (
    Column("state", 16),
    Column("run", 20, priority=3),
    Column("title", 0),
    Column("agent", 9, priority=6),
    Column("preset", 9, priority=1),
    Column("sandbox", 10, priority=0),
    Column("iter", 5, align_right=True),
    Column("checks", 6, priority=7),
    Column("spend", 8, priority=8, align_right=True),
    Column(TOTAL_COLUMN, 8, priority=4, align_right=True),
    Column("age", 5, priority=5, align_right=True),
)
MAX_RUNS = 200
INDENT, MAX_DEPTH = "  ", 4


def nest_runs(runs: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    """The runs in order, each child below its parent, with its depth."""
    known = {run["id"] for run in runs}
    below: dict[object, list[Mapping[str, Any]]] = {}
    for run in runs:
        below.setdefault(run.get("parent") if run.get("parent") in known - {run["id"]} else None, []).append(run)
    data: list[tuple[Mapping[str, Any], int]] = []
    ahead = [(run, 0) for run in reversed(below.get(None, ()))]
    while ahead:
        run, depth = ahead.pop()
        data.append((run, depth))
        ahead += [(child, depth + 1) for child in reversed(below.get(run["id"], ()))]
    return data


def run_row(run: Mapping[str, Any], symbols: Symbols, now_s: float, depth: int = 0) -> list[Text]:
    """Cells of one run at this depth."""
    most = run.get("maximumIterations")
    title = run.get("title") or run.get("task") or symbols.dash
    running = run["state"] == "running" and run.get("activity")
    agent = f"{run.get('agent') or symbols.dash}"
    return [
        badge_text(run_badge(run, symbols)), plain_line(run["id"], DIM),
        Text(INDENT * min(depth, MAX_DEPTH), end="").append_text(plain_line(title, LIVE if running else PLAIN)),
        plain_line(agent), plain_line(run.get("preset") or symbols.dash, DIM),
        plain_line(_sandbox_cell(run.get("sandbox"), symbols), DIM),
        Text(f"{run['iterations']}" + (f"/{most}" if most else ""), end=""),
        check_count_text(run.get("checkCounts"), symbols),
        Text(format_spend(run.get("cost"), symbols), end=""),
        Text(format_spend(run["costWithChildren"], symbols) if run.get("costWithChildren") else "", end=""),
        Text(format_age(epoch_seconds(run["startedAt"]), now_s), DIM, end=""),
    ]  # fmt: skip


def _sandbox_cell(sandbox: Mapping[str, Any] | None, symbols: Symbols) -> str:
    if not sandbox:
        return symbols.dash
    return "none" if sandbox["strength"] == "none" else str(sandbox["name"])


FILTERED_FIELDS = ("id", "title", "agent", "model", "preset", "task", "state")


class RunsPage(FilteredPage):
    """All runs, newest first, children below their parents."""

    def __init__(self, context: DashboardContext) -> None:
        super().__init__(context)
        self._runs: list[Any] = []
        self._total = 0

    @property
    def run(self) -> str:
        return self.query_one(TableView).key

    @property
    def path(self) -> str:
        more = f", the newest {len(self._runs)} shown" if self._total > len(self._runs) else ""
        return f"{self._total} in all{more}" if self._total else ""

    def body(self) -> ComposeResult:
        empty = 'no run yet; begin one: ralph run -p "make the tests pass"'
        table = TableView(RUN_COLUMNS, self.symbols, empty, id="runs")
        table.hidden = (TOTAL_COLUMN,)
        yield table
        yield FilterInput()

    async def load(self) -> None:
        data = await self.in_thread(self.read_model.runs, MAX_RUNS)
        self._runs, self._total = list(data["runs"]), data["total"]
        self.redraw()
        self._draw_title()

    def tick(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        now = time.time()
        shown = [
            (run, depth)
            for run, depth in nest_runs(self._runs)
            if self.matches_filter(*map(run.get, FILTERED_FIELDS), run_badge(run, self.symbols)[1])
        ]
        table = self.query_one(TableView)
        table.hidden = () if any(run.get("costWithChildren") for run, _ in shown) else (TOTAL_COLUMN,)
        table.show([(str(run["id"]), run_row(run, self.symbols, now, depth)) for run, depth in shown])

    def focus_list(self) -> None:
        self.query_one(TableView).focus()

    def on_selection_view_chosen(self, event: SelectionView.Chosen) -> None:
        self.app.push_screen(RunPage(self.context, event.key))
