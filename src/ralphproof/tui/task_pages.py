"""The board: tasks by stage, or stories of a run by review status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import HorizontalScroll
from textual.widgets import Static

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.display.phrases import format_count
from ralphproof.tui.page import DashboardContext, FilteredPage, FilterInput, Page
from ralphproof.tui.style import (
    BAD,
    CHECK_STYLES,
    DIM,
    GOOD,
    HEAD,
    PLAIN,
    STORY_STYLES,
    STRONG,
    TASK_STYLES,
    WARN,
    Symbols,
    check_symbol,
    format_spend_with_unit,
    join_parts,
    plain_lines,
    status_symbol,
)
from ralphproof.tui.widgets import CardColumn, SelectionView, TextView

if TYPE_CHECKING:
    from textual.app import ComposeResult


MAX_REASON_CHARS = 300  # of what a judge says
BLANK_LINE = Text("", end="")


def task_lines(task: Mapping[str, Any], symbols: Symbols) -> Iterator[Text]:
    """Full description of a task."""
    style = TASK_STYLES.get(task["status"], PLAIN)
    yield join_parts(
        (f"{status_symbol(task['status'], symbols)} {task['status']}", style or STRONG), "   ", (task["title"], STRONG)
    )
    stage = task["stage"]
    most = f" of {task['stageMaximumIterations']}" if task["stageMaximumIterations"] else ""
    at = f"{stage}, iteration {task['stageIterations']}{most}" if stage else "not begun"
    dot = f" {symbols.dot} "
    facts = [task["id"], at, f"{format_count(task['iterations'], 'iteration')} in all", f"priority {task['priority']}"]
    facts += [format_spend_with_unit(task["cost"], symbols)] if task["cost"] else []
    facts += [str(task[name]) for name in ("proof", "assignee") if task[name]]
    yield join_parts((dot.join(map(str, facts)), DIM))
    if task["reason"]:
        yield join_parts((task["reason"], WARN))
    if others := task.get("dependsOn"):
        yield join_parts(
            ("depends on " + ", ".join(f"{one['task']} ({one['status'] or 'there is none'})" for one in others), DIM)
        )
    if task["description"]:
        yield from (BLANK_LINE, *plain_lines(task["description"]))
    yield from _criteria_lines(task, symbols)
    yield from _stage_lines(task)
    yield from _verification_lines(task, symbols)


def _criteria_lines(task: Mapping[str, Any], symbols: Symbols) -> Iterator[Text]:
    completion = task.get("completion") or {}
    yield from (BLANK_LINE, join_parts(("Outcome", HEAD)))
    yield join_parts((completion.get("outcome") or task.get("completionProblem") or "none is written down", PLAIN))
    yield from (BLANK_LINE, join_parts(("Acceptance criteria", HEAD)))
    for one in task["criteria"]:
        sign, style = {True: (symbols.good, GOOD), False: (symbols.bad, BAD), None: (symbols.waits, DIM)}[one["met"]]
        yield join_parts((f"{sign} ", style), (one["text"], PLAIN))
        if one["reason"]:
            yield join_parts((f"    {one['reason']}", WARN if one["met"] is False else DIM))


def _stage_lines(task: Mapping[str, Any]) -> Iterator[Text]:
    completion = task.get("completion") or {}
    asked = [(name, completion[name]) for name in ("coder", "reviewer", "tester", "qa") if completion.get(name)]
    if asked:
        yield from (BLANK_LINE, join_parts(("Stages", HEAD)))
    for name, spec in asked:
        if isinstance(spec, dict):
            method = spec.get("verification_method") or "as the settings say"
            yield join_parts((f"{name:<9}", STRONG), (f"{method}, promise {spec.get('promise')}", PLAIN))
            yield from (
                plain_lines(str(spec.get("description") or ""), DIM, "         ") if spec.get("description") else ()
            )
            command = (spec.get("verification_config") or {}).get("command")
            yield from [join_parts((f"         $ {command}", DIM))] if command else []


def _verification_lines(task: Mapping[str, Any], symbols: Symbols) -> Iterator[Text]:
    """All verifications, the last first."""
    if not task["timeline"]:
        return
    yield from (BLANK_LINE, join_parts(("Verification, the last first", HEAD)))
    for passage in reversed(task["timeline"]):
        stage = f", {passage['stage']}" if passage["stage"] else ""
        when = f"iteration {passage['number']}" if passage["number"] else "before the first iteration"
        verdict = passage["verdict"]["label"] if passage["verdict"] else "not judged"
        data = f": {verdict}" if passage["number"] else ""
        yield join_parts((f"{when}{stage}{data}", STRONG), (f"   run {passage['run']}", DIM))
        for check in passage["checks"]:
            style = CHECK_STYLES.get(check["state"], PLAIN)
            by = "judge" if check["judged"] else "check"
            text = join_parts((f"  {check_symbol(check['state'], symbols)} {check['state']:<8}", style), f" {by} ")
            text.append_text(join_parts((check["command"] or check["name"], PLAIN)))
            why = _check_reason(check)
            yield text.append_text(join_parts((f"  {why}", DIM))) if why else text


def _check_reason(check: Mapping[str, Any]) -> str:
    """What a judge said, or how a command ended."""
    if check["exitReason"] not in ("exit", None):
        return str(check["exitReason"])
    if check["judged"] or check["exitCode"] is None:
        return " ".join(str(check["output"]).split())[:MAX_REASON_CHARS]
    return f"exit code {check['exitCode']}"


def story_lines(story: Mapping[str, Any], symbols: Symbols) -> Iterator[Text]:
    """Full description of a story: criteria, review findings, and verifications, the last first."""
    style = STORY_STYLES.get(story["status"], PLAIN)
    status = str(story["status"]).replace("_", " ")
    yield join_parts(
        (f"{status_symbol(story['status'], symbols)} {status}", style or STRONG), "   ", (story["title"], STRONG)
    )
    capped = ", approved at the cap" if story["cappedApproval"] else ""
    facts = [
        story["id"],
        format_count(story["iterations"], "iteration"),
        f"{format_count(story['reviewCount'], 'review')}{capped}",
    ]
    facts += [format_spend_with_unit(story["cost"], symbols)] if story["cost"] else []
    yield join_parts((f" {symbols.dot} ".join(map(str, facts)), DIM))
    yield from (BLANK_LINE, join_parts(("Acceptance criteria", HEAD)))
    yield from (join_parts((f"{symbols.dot} ", DIM), (one["text"], PLAIN)) for one in story["criteria"])
    yield from (BLANK_LINE, join_parts(("What reviews found, the last first", HEAD)))
    if not story["findings"]:
        yield join_parts(("nothing so far", DIM))
    for finding in reversed(story["findings"]):
        yield from plain_lines(finding["message"], WARN)
    yield from _verification_lines(story, symbols)


class TaskPage(Page):
    """One task."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("o", "open_run", "its run")]

    def __init__(self, context: DashboardContext, task: str) -> None:
        super().__init__(context, path=task)

    def body(self) -> ComposeResult:
        yield TextView()

    async def load(self) -> None:
        data = await self.in_thread(self.read_model.task, self.path)
        self._run = str(data["run"] or "")
        self.query_one(TextView).show(list(task_lines(data, self.symbols)))

    def action_open_run(self) -> None:
        if self._has_run("open"):
            from ralphproof.tui.runs_pages import RunPage

            self.app.push_screen(RunPage(self.context, self.run))


class StoryPage(Page):
    """One story of a run."""

    def __init__(self, context: DashboardContext, run: str, story: str) -> None:
        super().__init__(context, run, f"{run} {context.symbols.at} {story}")
        self._story = story

    def body(self) -> ComposeResult:
        yield TextView()

    async def load(self) -> None:
        data = await self.in_thread(self.read_model.stories, self.run)
        every = {str(story["id"]): story for lane in data["lanes"] for story in lane["stories"]}
        if (story := every.get(self._story)) is not None:
            self.query_one(TextView).show(list(story_lines(story, self.symbols)))


MIN_COLUMN_CELLS = 26
FILTERED_FIELDS = ("id", "title", "status", "assignee", "specId", "reason")


def task_card(task: Mapping[str, Any], symbols: Symbols) -> list[Text]:
    """Title; id and iterations; cost, and proof or status."""
    style, dot = TASK_STYLES.get(task["status"], PLAIN), f" {symbols.dot} "
    stage = task["stage"]
    most = f"/{task['stageMaximumIterations']}" if task["stageMaximumIterations"] else ""
    tries = f"{stage} {task['stageIterations']}{most}" if stage else format_count(task["iterations"], "iteration")
    after = task["proof"] or task["reason"] or task["status"]
    return [
        join_parts(
            (f"{status_symbol(task['status'], symbols)} ", style), (task["title"] or task["id"], style or "bold")
        ),
        join_parts((f"  {dot.join((str(task['id']), tries))}", DIM)),
        join_parts((f"  {dot.join(part for part in (*_cost_parts(task, symbols), str(after)) if part)}", DIM)),
    ]


def story_card(story: Mapping[str, Any], symbols: Symbols) -> list[Text]:
    """Title; id and iterations; cost, reviews and the last finding."""
    style, dot = STORY_STYLES.get(story["status"], PLAIN), f" {symbols.dot} "
    reviews = f"{format_count(story['reviewCount'], 'review')}{' at the cap' if story['cappedApproval'] else ''}"
    found, after = story["findings"], dot.join((*_cost_parts(story, symbols), reviews))
    return [
        join_parts(
            (f"{status_symbol(story['status'], symbols)} ", style), (story["title"] or story["id"], style or "bold")
        ),
        join_parts((f"  {story['id']}{dot}{format_count(story['iterations'], 'iteration')}", DIM)),
        join_parts((f"  {after}: {found[-1]['message']}", WARN) if found else (f"  {after}", DIM)),
    ]


def _cost_parts(card: Mapping[str, Any], symbols: Symbols) -> list[str]:
    """Cost of a card; nothing if there is none."""
    return [format_spend_with_unit(card["cost"], symbols)] if card["cost"] else []


class CardBoardPage(FilteredPage):
    """Columns side by side; those beyond the width are reached by keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l,right", "lane(1)", show=False),
        Binding("h,left", "lane(-1)", show=False),
    ]
    empty = ""

    def __init__(self, context: DashboardContext, run: str = "", path: str = "") -> None:
        super().__init__(context, run, path)
        self._lanes: list[tuple[str, list[Any]]] = []

    def body(self) -> ComposeResult:
        yield Static(id="lacking", markup=False)
        yield HorizontalScroll(id="lanes", can_focus=False)
        yield FilterInput()

    async def read(self) -> list[tuple[str, list[Any]]]:
        """All columns with their cards."""
        raise NotImplementedError

    def card(self, data: Mapping[str, Any]) -> list[Text]:
        raise NotImplementedError

    async def load(self) -> None:
        lanes = await self.read()
        place = self.query_one("#lanes", HorizontalScroll)
        if len(place.children) != len(lanes):
            self._lanes = []
            await place.remove_children()
            await place.mount_all(CardColumn(name.replace("_", " "), self.symbols) for name, _ in lanes)
            if self.is_left:
                return
            self._resize_columns()
        self._lanes = lanes
        self.redraw()
        if self.focused is None:
            self.focus_list()

    def after_resize(self) -> None:
        super().after_resize()
        self._resize_columns()

    def _resize_columns(self) -> None:
        """Share the width among the columns."""
        lanes = list(self.query(CardColumn))
        for lane in lanes:
            lane.styles.width = max(MIN_COLUMN_CELLS, self.size.width // len(lanes))

    def redraw(self) -> None:
        shown = 0
        for lane, (_, cards) in zip(self.query(CardColumn), self._lanes, strict=False):
            fit = [data for data in cards if self.matches_filter(*map(data.get, FILTERED_FIELDS))]
            lane.show([(str(data["id"]), self.card(data)) for data in fit])
            shown += len(cards)
        lacking = self.query_one("#lacking", Static)
        lacking.update(self.empty)
        lacking.display = not shown

    def focus_list(self) -> None:
        """Focus the first column that has cards."""
        lanes = list(self.query(CardColumn))
        if lanes:
            next((lane for lane in lanes if lane.cards), lanes[0]).focus()

    def action_lane(self, by: int) -> None:
        lanes = list(self.query(CardColumn))
        at = lanes.index(self.focused) if isinstance(self.focused, CardColumn) else 0
        if lanes:
            lanes[min(max(0, at + by), len(lanes) - 1)].focus()


class BoardPage(CardBoardPage):
    """The tasks of the project."""

    empty = " no task yet; make one: ralph task create, or ralph task import FILE; work on them: ralph work"

    @property
    def run(self) -> str:
        """The run of the task under the cursor."""
        key = self.focused.key if isinstance(self.focused, CardColumn) else ""
        return next((str(task["run"] or "") for _, tasks in self._lanes for task in tasks if task["id"] == key), "")

    async def read(self) -> list[tuple[str, list[Any]]]:
        data = await self.in_thread(self.read_model.tasks)
        return [(lane["name"], lane["tasks"]) for lane in data["lanes"]]

    def card(self, data: Mapping[str, Any]) -> list[Text]:
        return task_card(data, self.symbols)

    def on_selection_view_chosen(self, event: SelectionView.Chosen) -> None:
        self.app.push_screen(TaskPage(self.context, event.key))


class StoriesPage(CardBoardPage):
    """The stories of one run."""

    empty = " this run has no stories"

    def __init__(self, context: DashboardContext, run: str) -> None:
        super().__init__(context, run, f"{run} {context.symbols.at} stories")

    async def read(self) -> list[tuple[str, list[Any]]]:
        data = await self.in_thread(self.read_model.stories, self.run)
        return [(lane["name"], lane["stories"]) for lane in data["lanes"]]

    def card(self, data: Mapping[str, Any]) -> list[Text]:
        return story_card(data, self.symbols)

    def on_selection_view_chosen(self, event: SelectionView.Chosen) -> None:
        self.app.push_screen(StoryPage(self.context, self.run, event.key))
