"""One iteration as a page: its verdict, its checks, what it changed, and all that its agent said and did."""

from __future__ import annotations

from rich.text import Text
from textual.binding import Binding, BindingType

from ralphproof.display.words import count
from ralphproof.tui.diff import DiffPage
from ralphproof.tui.ink import BAD, CHECKS, DIM, HEAD, PLAIN, STRONG, WARN, check_sign
from ralphproof.tui.iteration_row import VERDICTS
from ralphproof.tui.logs import LogsPage
from ralphproof.tui.page import Page
from ralphproof.tui.sheet import Sheet
from ralphproof.tui.spoken import lines_of
from ralphproof.tui.texts import joined, lasted, many
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, ClassVar

    from textual.app import ComposeResult

    from ralphproof.tui.ink import Signs
    from ralphproof.tui.page import Outlook

FILES = 200


def page_of(told: Mapping[str, Any], activity: Mapping[str, list[Any]], signs: Signs) -> Iterator[Text]:
    """All about it: the verdict first, the agent's words last."""
    job = " ".join(str(told[name]) for name in ("stage", "task", "title")) if told["title"] else ""
    yield joined(
        (f"Iteration {told['number']}", HEAD), (f"  {job}", STRONG), (f"  {lasted(told['seconds'], signs)}", DIM)
    )
    if verdict := told["verdict"]:
        style = VERDICTS.get(verdict["kind"], PLAIN)
        yield joined(("verdict: ", DIM), (verdict["words"], style or STRONG), ("  ", ""), (verdict["why"], PLAIN))
    yield from _claims(told)
    yield from (joined((f"{signs.lost} {notice}", WARN)) for notice in told["notices"])
    for check in told["checks"]:
        yield from _check(check, signs)
    yield from _files(told)
    for turn in told["turns"]:
        yield from _turn(turn, activity.get(turn["name"], []), signs)


def _claims(told: Mapping[str, Any]) -> Iterator[Text]:
    if told["claim"] is not None:
        yield joined(("it claims: ", DIM), (told["claim"], STRONG))
    for word in told["uncounted"]:
        yield joined(("not counted as a claim: ", DIM), (word, WARN))
    if commit := told["commit"]:
        yield joined(("commit: ", DIM), (commit["error"] or f"{str(commit['id'])[:12]} {commit['message']}", PLAIN))
    if told["saved"]:
        yield joined(("saved as ", DIM), (told["saved"], DIM))


def _check(check: Mapping[str, Any], signs: Signs) -> Iterator[Text]:
    style = CHECKS.get(check["state"], PLAIN)
    kind = "judge" if check["judged"] else "check"
    why = f" ({check['why']})" if check["why"] not in ("", "exit", None) else ""
    yield Text("", end="")
    made = joined(
        (f"{check_sign(check['state'], signs)} {check['state']}", style), f"  {kind} ", (check["name"], STRONG)
    )
    command = check["command"] if check["command"] != check["name"] else ""
    made.append_text(joined((f"{why}  {command}".rstrip(), DIM), (f"  {lasted(check['seconds'], signs)}", DIM)))
    yield made
    if check["failing"]:
        yield joined((f"  failing: {', '.join(check['failing'])}", BAD))
    if check["output"].strip():
        yield from many(check["output"].strip("\n"), DIM, "  | ")


def _files(told: Mapping[str, Any]) -> Iterator[Text]:
    yield Text("", end="")
    if not told["filesKnown"]:
        yield joined(("what changed is not known", DIM))
        return
    yield joined((f"{count(told['fileCount'], 'file')} changed", HEAD))
    yield from (joined("  ", (path, PLAIN)) for path in told["files"][:FILES])


def _turn(turn: Mapping[str, Any], events: list[Any], signs: Signs) -> Iterator[Text]:
    yield Text("", end="")
    who = " ".join(str(turn[name]) for name in ("name", "agent", "model") if turn[name])
    yield joined((who, HEAD), "  ", (turn["error"] or turn["why"] or "at work", BAD if turn["error"] else DIM))
    if turn["again"]:
        yield joined((f"taken once more: {turn['again']}", WARN))
    yield from (joined((f"{signs.lost} denied: {what}", WARN)) for what in turn["denied"])
    yield from (joined((f"{signs.lost} blocked by the sandbox: {what}", WARN)) for what in turn["blocked"])
    lines = [line for event in events for line in lines_of(event, signs)]
    yield from lines or many(turn["text"])


class IterationPage(Page):
    """Everything about one iteration."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "step(-1)", "before", key_display="["),
        Binding("right_square_bracket", "step(1)", "after", key_display="]"),
        Binding("d", "diff", "diff"),
        Binding("l", "logs", "logs"),
    ]

    def __init__(self, outlook: Outlook, run: str, number: int) -> None:
        super().__init__(outlook)
        self._run, self._number, self._seq = run, number, 0
        self._shown = 0
        self._known: dict[int, dict[str, Any]] = {}

    @property
    def run(self) -> str:
        return self._run

    @property
    def path(self) -> str:
        return f"{self._run} {self.signs.at} iteration {self._number}"

    def body(self) -> ComposeResult:
        yield Sheet()

    async def load(self) -> None:
        told = await self.aside(self.board.run, self._run, self._seq)
        touched = {one["number"]: one for one in told["iterations"]}
        self._known |= touched
        self._seq = told["seq"]
        number = self._number
        if number in self._known and (number in touched or self._shown != number):
            self._shown = number
            await self._show(self._known[number])

    async def _show(self, shown: dict[str, Any]) -> None:
        activity = {turn["name"]: await self.heard(self._run, turn) for turn in shown["turns"]}
        self.query_one(Sheet).show(list(page_of(shown, activity, self.signs)))
        self._put_top()

    def action_step(self, by: int) -> None:
        if self._number + by in self._known:
            self._number += by
            self.query_one(Sheet).scroll_home(animate=False)
            self.stale()

    def action_diff(self) -> None:
        self.app.push_screen(DiffPage(self.outlook, self._run, self._number))

    def action_logs(self) -> None:
        self.app.push_screen(LogsPage(self.outlook, self._run, self._number))
