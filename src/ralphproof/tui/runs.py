"""The list of runs: how each stands, what it came to, and what it cost."""

from __future__ import annotations

import time

from rich.text import Text

from ralphproof.tui.filtered import Filtered, FilterLine
from ralphproof.tui.gauge import checks_of
from ralphproof.tui.ink import DIM, LIVE, PLAIN, mark_of
from ralphproof.tui.listing import Column, Listing
from ralphproof.tui.page import marked
from ralphproof.tui.run import RunPage
from ralphproof.tui.texts import ago, money, one
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from textual.app import ComposeResult

    from ralphproof.tui.ink import Signs
    from ralphproof.tui.page import Outlook

TOGETHER = "together"  # what a run spent with those that its agent began
COLUMNS = (
    Column("state", 16),
    Column("run", 20, need=3),
    Column("title", 0),
    Column("agent", 9, need=6),
    Column("preset", 9, need=1),
    Column("sandbox", 10, need=0),
    Column("iter", 5, right=True),
    Column("checks", 6, need=7),
    Column("spend", 8, need=8, right=True),
    Column(TOGETHER, 8, need=4, right=True),
    Column("age", 5, need=5, right=True),
)
MOST = 200
INDENT, DEEPEST = "  ", 4


def nested(runs: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    """The same in their order, but each below the run whose agent began it, with how deep it stands."""
    known = {run["run"] for run in runs}
    below: dict[object, list[Mapping[str, Any]]] = {}
    for run in runs:
        below.setdefault(run.get("parent") if run.get("parent") in known - {run["run"]} else None, []).append(run)
    told: list[tuple[Mapping[str, Any], int]] = []
    ahead = [(run, 0) for run in reversed(below.get(None, ()))]
    while ahead:
        run, depth = ahead.pop()
        told.append((run, depth))
        ahead += [(child, depth + 1) for child in reversed(below.get(run["run"], ()))]
    return told


def row_of(run: Mapping[str, Any], signs: Signs, now_s: float, depth: int = 0) -> list[Text]:
    """The cells of one run that stands so deep below others."""
    most = run.get("maximumIterations")
    title = run.get("title") or run.get("task") or signs.dash
    running = run["state"] == "running" and run.get("doing")
    agent = f"{run.get('agent') or signs.dash}"
    return [
        marked(mark_of(run, signs)), one(run["run"], DIM),
        Text(INDENT * min(depth, DEEPEST), end="").append_text(one(title, LIVE if running else PLAIN)), one(agent),
        one(run.get("preset") or signs.dash, DIM), one(_box(run.get("sandbox"), signs), DIM),
        Text(f"{run['iterations']}" + (f"/{most}" if most else ""), end=""), checks_of(run.get("checks"), signs),
        Text(money(run.get("spend"), signs), end=""),
        Text(money(run["spendWithChildren"], signs) if run.get("spendWithChildren") else "", end=""),
        Text(ago(run.get("beganAt"), now_s), DIM, end=""),
    ]  # fmt: skip


def _box(sandbox: Mapping[str, Any] | None, signs: Signs) -> str:
    if not sandbox:
        return signs.dash
    return "none" if sandbox["strength"] == "none" else str(sandbox["name"])


def matches(words: str, run: Mapping[str, Any], signs: Signs) -> bool:
    """Whether every word is found in what is told of a run."""
    told = " ".join(str(run.get(name) or "") for name in ("run", "title", "agent", "model", "preset", "task", "state"))
    told = f"{told} {mark_of(run, signs)[1]}".casefold()
    return all(word in told for word in words.casefold().split())


class RunsPage(Filtered):
    """All runs, the newest first, those that an agent began below the one it belongs to."""

    def __init__(self, outlook: Outlook) -> None:
        super().__init__(outlook)
        self._runs: list[Any] = []
        self._total = 0

    @property
    def run(self) -> str:
        return self.query_one(Listing).key

    @property
    def path(self) -> str:
        more = f", the newest {len(self._runs)} shown" if self._total > len(self._runs) else ""
        return f"{self._total} in all{more}" if self._total else ""

    def body(self) -> ComposeResult:
        empty = 'no run yet; begin one: ralph run -p "make the tests pass"'
        table = Listing(COLUMNS, self.signs, empty, id="runs")
        table.hidden = (TOGETHER,)
        yield table
        yield FilterLine()

    async def load(self) -> None:
        told = await self.aside(self.board.runs, MOST)
        self._runs, self._total = list(told["runs"]), told["total"]
        self.put()
        self._put_top()

    def tick(self) -> None:
        self.put()

    def put(self) -> None:
        now = time.time()
        shown = [(run, depth) for run, depth in nested(self._runs) if matches(self.words, run, self.signs)]
        table = self.query_one(Listing)
        table.hidden = () if any(run.get("spendWithChildren") for run, _ in shown) else (TOGETHER,)
        table.show([(str(run["run"]), row_of(run, self.signs, now, depth)) for run, depth in shown])

    def settle(self) -> None:
        self.query_one(Listing).focus()

    def on_listing_chosen(self, event: Listing.Chosen) -> None:
        self.app.push_screen(RunPage(self.outlook, event.key))
