"""A task or a story in full: what it asks for, how it stands, and what was found wrong with it."""

from __future__ import annotations

from rich.text import Text
from textual.binding import Binding, BindingType

from ralphproof.display.words import count
from ralphproof.tui.ink import BAD, CHECKS, DIM, GOOD, HEAD, PLAIN, STORIES, STRONG, TASKS, WARN, card_sign, check_sign
from ralphproof.tui.page import Page
from ralphproof.tui.sheet import Sheet
from ralphproof.tui.texts import joined, many, priced
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, ClassVar

    from textual.app import ComposeResult

    from ralphproof.tui.ink import Signs
    from ralphproof.tui.page import Outlook

BLANK = Text("", end="")


def task_lines(task: Mapping[str, Any], signs: Signs) -> Iterator[Text]:
    """All about a task."""
    style = TASKS.get(task["status"], PLAIN)
    yield joined(
        (f"{card_sign(task['status'], signs)} {task['status']}", style or STRONG), "   ", (task["title"], STRONG)
    )
    stage = task["stage"]
    most = f" of {stage['maxIterations']}" if stage and stage["maxIterations"] else ""
    at = f"{stage['name']}, iteration {stage['iteration']}{most}" if stage else "not begun"
    dot = f" {signs.dot} "
    facts = [task["id"], at, f"{count(task['iteration'], 'iteration')} in all", f"priority {task['priority']}"]
    facts += [priced(task["spend"], signs)] if task["spend"] else []
    facts += [str(task[name]) for name in ("proof", "assignee") if task[name]]
    yield joined((dot.join(map(str, facts)), DIM))
    if task["reason"]:
        yield joined((task["reason"], WARN))
    if others := task.get("dependsOn"):
        yield joined(
            ("depends on " + ", ".join(f"{one['id']} ({one['status'] or 'there is none'})" for one in others), DIM)
        )
    if task["description"]:
        yield from (BLANK, *many(task["description"]))
    yield from _criteria(task, signs)
    yield from _stages(task)
    yield from _history(task, signs)


def _criteria(task: Mapping[str, Any], signs: Signs) -> Iterator[Text]:
    completion = task.get("completion") or {}
    yield from (BLANK, joined(("Outcome", HEAD)))
    yield joined((completion.get("outcome") or task.get("completionProblem") or "none is written down", PLAIN))
    yield from (BLANK, joined(("Acceptance criteria", HEAD)))
    for one in task["acceptance"]:
        sign, style = {True: (signs.good, GOOD), False: (signs.bad, BAD), None: (signs.waits, DIM)}[one["met"]]
        yield joined((f"{sign} ", style), (one["criterion"], PLAIN))
        if one.get("why"):
            yield joined((f"    {one['why']}", WARN if one["met"] is False else DIM))


def _stages(task: Mapping[str, Any]) -> Iterator[Text]:
    completion = task.get("completion") or {}
    asked = [(name, completion[name]) for name in ("coder", "reviewer", "tester", "qa") if completion.get(name)]
    if asked:
        yield from (BLANK, joined(("Stages", HEAD)))
    for name, spec in asked:
        if isinstance(spec, dict):
            method = spec.get("verification_method") or "as the settings say"
            yield joined((f"{name:<9}", STRONG), (f"{method}, promise {spec.get('promise')}", PLAIN))
            yield from many(str(spec.get("description") or ""), DIM, "         ") if spec.get("description") else ()
            command = (spec.get("verification_config") or {}).get("command")
            yield from [joined((f"         $ {command}", DIM))] if command else []


def _history(task: Mapping[str, Any], signs: Signs) -> Iterator[Text]:
    """Every verification, the last one first: it is what counts."""
    if not task["verification"]:
        return
    yield from (BLANK, joined(("Verification, the last first", HEAD)))
    for passage in reversed(task["verification"]):
        stage = f", {passage['stage']}" if passage["stage"] else ""
        when = f"iteration {passage['iteration']}" if passage["iteration"] else "before the first iteration"
        verdict = passage["verdictWords"] or "not judged"
        told = f": {verdict}" if passage["iteration"] else ""
        yield joined((f"{when}{stage}{told}", STRONG), (f"   run {passage['run']}", DIM))
        for check in passage["checks"]:
            style = CHECKS.get(check["result"], PLAIN)
            by = "judge" if check["judged"] else "check"
            made = joined((f"  {check_sign(check['result'], signs)} {check['result']:<8}", style), f" {by} ")
            made.append_text(joined((check["command"] or check["check"], PLAIN)))
            yield made.append_text(joined((f"  {check['why']}", DIM))) if check["why"] else made


def story_lines(story: Mapping[str, Any], signs: Signs) -> Iterator[Text]:
    """All about a story: what it asks for, what every review found, and every verification, the last one first."""
    style = STORIES.get(story["status"], PLAIN)
    status = str(story["status"]).replace("_", " ")
    yield joined((f"{card_sign(story['status'], signs)} {status}", style or STRONG), "   ", (story["title"], STRONG))
    capped = ", approved at the cap" if story["capped"] else ""
    facts = [story["id"], count(story["iterations"], "iteration"), f"{count(story['reviews'], 'review')}{capped}"]
    facts += [priced(story["spend"], signs)] if story["spend"] else []
    yield joined((f" {signs.dot} ".join(map(str, facts)), DIM))
    yield from (BLANK, joined(("Acceptance criteria", HEAD)))
    yield from (joined((f"{signs.dot} ", DIM), (one, PLAIN)) for one in story["acceptance"])
    yield from (BLANK, joined(("What reviews found, the last first", HEAD)))
    if not story["found"]:
        yield joined(("nothing so far", DIM))
    for found in reversed(story["found"]):
        yield from many(found, WARN)
    yield from _history(story, signs)


class TaskPage(Page):
    """One task."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("o", "open_run", "its run")]

    def __init__(self, outlook: Outlook, task: str) -> None:
        super().__init__(outlook)
        self._about = task
        self._told: dict[str, Any] = {}

    @property
    def run(self) -> str:
        return str(self._told.get("run") or "")

    @property
    def path(self) -> str:
        return self._about

    def body(self) -> ComposeResult:
        yield Sheet()

    async def load(self) -> None:
        self._told = await self.aside(self.board.task, self._about)
        self.query_one(Sheet).show(list(task_lines(self._told, self.signs)))

    def action_open_run(self) -> None:
        if self._at_hand("open"):
            from ralphproof.tui.run import RunPage

            self.app.push_screen(RunPage(self.outlook, self.run))


class StoryPage(Page):
    """One story of a run."""

    def __init__(self, outlook: Outlook, run: str, story: str) -> None:
        super().__init__(outlook)
        self._run, self._story = run, story

    @property
    def run(self) -> str:
        return self._run

    @property
    def path(self) -> str:
        return f"{self._run} {self.signs.at} {self._story}"

    def body(self) -> ComposeResult:
        yield Sheet()

    async def load(self) -> None:
        told = await self.aside(self.board.stories, self._run)
        every = {str(story["id"]): story for lane in told["lanes"] for story in lane["stories"]}
        if (story := every.get(self._story)) is not None:
            self.query_one(Sheet).show(list(story_lines(story, self.signs)))
