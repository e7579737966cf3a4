"""The board: tasks in the lanes of their stages, or the stories of a run in those of their reviews."""

from __future__ import annotations

from textual.binding import Binding, BindingType
from textual.containers import HorizontalScroll
from textual.widgets import Static

from ralphproof.display.words import count
from ralphproof.tui.filtered import Filtered, FilterLine
from ralphproof.tui.ink import DIM, PLAIN, STORIES, TASKS, WARN, card_sign
from ralphproof.tui.lane import Lane
from ralphproof.tui.task import StoryPage, TaskPage
from ralphproof.tui.texts import joined, priced
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, ClassVar

    from rich.text import Text
    from textual.app import ComposeResult

    from ralphproof.tui.ink import Signs
    from ralphproof.tui.page import Outlook

LANE_CELLS = 26


def task_card(task: Mapping[str, Any], signs: Signs) -> list[Text]:
    """Title; which task, and how often it was tried; what it cost, and what shows that it is done."""
    style, dot = TASKS.get(task["status"], PLAIN), f" {signs.dot} "
    stage = task["stage"]
    most = f"/{stage['maxIterations']}" if stage and stage["maxIterations"] else ""
    tries = f"{stage['name']} {stage['iteration']}{most}" if stage else count(task["iteration"], "iteration")
    after = task["proof"] or task["reason"] or task["status"]
    return [
        joined((f"{card_sign(task['status'], signs)} ", style), (task["title"] or task["id"], style or "bold")),
        joined((f"  {dot.join((str(task['id']), tries))}", DIM)),
        joined((f"  {dot.join(part for part in (*_spent(task, signs), str(after)) if part)}", DIM)),
    ]


def story_card(story: Mapping[str, Any], signs: Signs) -> list[Text]:
    """Title; which story, and how often it was tried; what it cost, how often it was reviewed, and what was found."""
    style, dot = STORIES.get(story["status"], PLAIN), f" {signs.dot} "
    reviews = f"{count(story['reviews'], 'review')}{' at the cap' if story['capped'] else ''}"
    found, after = story["found"], dot.join((*_spent(story, signs), reviews))
    return [
        joined((f"{card_sign(story['status'], signs)} ", style), (story["title"] or story["id"], style or "bold")),
        joined((f"  {story['id']}{dot}{count(story['iterations'], 'iteration')}", DIM)),
        joined((f"  {after}: {found[-1]}", WARN) if found else (f"  {after}", DIM)),
    ]


def _spent(card: Mapping[str, Any], signs: Signs) -> list[str]:
    """What a card's work has cost; nothing where there was none."""
    return [priced(card["spend"], signs)] if card["spend"] else []


class LanesPage(Filtered):
    """Lanes side by side; those that there is no room for are a key away."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l,right", "lane(1)", show=False),
        Binding("h,left", "lane(-1)", show=False),
    ]
    empty = ""

    def __init__(self, outlook: Outlook) -> None:
        super().__init__(outlook)
        self._lanes: list[tuple[str, list[Any]]] = []

    def body(self) -> ComposeResult:
        yield Static(id="lacking", markup=False)
        yield HorizontalScroll(id="lanes", can_focus=False)
        yield FilterLine()

    async def read(self) -> list[tuple[str, list[Any]]]:
        """Every lane with what is in it."""
        raise NotImplementedError

    def card(self, told: Mapping[str, Any]) -> list[Text]:
        raise NotImplementedError

    @property
    def chosen(self) -> Mapping[str, Any] | None:
        """The one under the cursor."""
        lane = self.focused if isinstance(self.focused, Lane) else None
        keys = {str(told["id"]): told for _, cards in self._lanes for told in cards}
        return keys.get(lane.key) if lane else None

    async def load(self) -> None:
        lanes = await self.read()
        place = self.query_one("#lanes", HorizontalScroll)
        if len(place.children) != len(lanes):
            self._lanes = []
            await place.remove_children()
            await place.mount_all(Lane(name.replace("_", " "), self.signs) for name, _ in lanes)
            if self.left:
                return
            self._share()
        self._lanes = lanes
        self.put()
        if self.focused is None:
            self.settle()

    def resized(self) -> None:
        super().resized()
        self._share()

    def _share(self) -> None:
        """Every lane gets its part of the width, and room for a card."""
        lanes = list(self.query(Lane))
        for lane in lanes:
            lane.styles.width = max(LANE_CELLS, self.size.width // len(lanes))

    def put(self) -> None:
        shown = 0
        for lane, (_, cards) in zip(self.query(Lane), self._lanes, strict=False):
            fit = [told for told in cards if self._fits(told)]
            lane.show([(str(told["id"]), self.card(told)) for told in fit])
            shown += len(cards)
        lacking = self.query_one("#lacking", Static)
        lacking.update(self.empty)
        lacking.display = not shown

    def _fits(self, told: Mapping[str, Any]) -> bool:
        known = " ".join(
            str(told.get(name) or "") for name in ("id", "title", "status", "assignee", "specId", "reason")
        )
        return all(word in known.casefold() for word in self.words.casefold().split())

    def settle(self) -> None:
        """To the first lane that has something."""
        lanes = list(self.query(Lane))
        if lanes:
            next((lane for lane in lanes if lane.cards), lanes[0]).focus()

    def action_lane(self, by: int) -> None:
        lanes = list(self.query(Lane))
        at = lanes.index(self.focused) if isinstance(self.focused, Lane) else 0
        if lanes:
            lanes[min(max(0, at + by), len(lanes) - 1)].focus()


class BoardPage(LanesPage):
    """The tasks of the project."""

    empty = " no task yet; make one: ralph task create, or ralph task import FILE; work on them: ralph work"

    @property
    def run(self) -> str:
        return str((self.chosen or {}).get("run") or "")

    async def read(self) -> list[tuple[str, list[Any]]]:
        told = await self.aside(self.board.tasks)
        return [(lane["name"], lane["tasks"]) for lane in told["lanes"]]

    def card(self, told: Mapping[str, Any]) -> list[Text]:
        return task_card(told, self.signs)

    def on_lane_chosen(self, event: Lane.Chosen) -> None:
        self.app.push_screen(TaskPage(self.outlook, event.key))


class StoriesPage(LanesPage):
    """The stories of one run."""

    empty = " this run has no stories"

    def __init__(self, outlook: Outlook, run: str) -> None:
        super().__init__(outlook)
        self._run = run

    @property
    def run(self) -> str:
        return self._run

    @property
    def path(self) -> str:
        return f"{self._run} {self.signs.at} stories"

    async def read(self) -> list[tuple[str, list[Any]]]:
        told = await self.aside(self.board.stories, self._run)
        return [(lane["name"], lane["stories"]) for lane in told["lanes"]]

    def card(self, told: Mapping[str, Any]) -> list[Text]:
        return story_card(told, self.signs)

    def on_lane_chosen(self, event: Lane.Chosen) -> None:
        self.app.push_screen(StoryPage(self.outlook, self._run, event.key))
