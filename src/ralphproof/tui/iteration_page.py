"""The page and the table row of one iteration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.display.phrases import format_count
from ralphproof.tui.log_pages import DiffPage, LogsPage
from ralphproof.tui.page import DashboardContext, Page
from ralphproof.tui.style import (
    BAD,
    CHECK_STYLES,
    DIM,
    GOOD,
    HEAD,
    LIVE,
    PLAIN,
    STRONG,
    WARN,
    Symbols,
    check_count_text,
    check_symbol,
    duration_text,
    format_spend,
    format_thousands,
    join_parts,
    plain_line,
    plain_lines,
)
from ralphproof.tui.widgets import Column, TextView, event_lines
from ralphproof.views.published_json import epoch_seconds

if TYPE_CHECKING:
    from textual.app import ComposeResult


ITERATION_COLUMNS = (
    Column("#", 3, align_right=True),
    Column("stage", 9, priority=5),
    Column("agent", 10),
    Column("tools", 5, priority=2, align_right=True),
    Column("files", 5, priority=4, align_right=True),
    Column("checks", 7),
    Column("verdict", 0),
    Column("tokens", 7, priority=1, align_right=True),
    Column("cost", 7, priority=3, align_right=True),
    Column("time", 9, priority=6, align_right=True),
)
VERDICT_STYLES = {"passed": GOOD, "retry": PLAIN, "sentBack": WARN, "waiting": WARN, "stopped": BAD}


def iteration_row(data: Mapping[str, Any], symbols: Symbols, now_s: float) -> list[Text]:
    """The cells of one iteration."""
    turns = data["turns"]
    seconds = data["durationSeconds"] if data["durationSeconds"] is not None else _elapsed_s(data, now_s)
    files = str(data["fileCount"]) if data["filesKnown"] else symbols.dash
    cost = format_spend(data["cost"] if turns else None, symbols)
    return [
        Text(str(data["number"]), end=""), plain_line(data["stage"] or symbols.dash, DIM), _agent_cell(data, symbols),
        Text(str(sum(turn["toolCalls"] for turn in turns)), DIM, end=""), Text(files, end=""),
        check_count_text(_test_counts(data), symbols), _verdict_cell(data, symbols),
        Text(_tokens_cell(turns, symbols), DIM, end=""), Text(cost, end=""),
        Text(duration_text(seconds, symbols), DIM, end=""),
    ]  # fmt: skip


def _elapsed_s(data: Mapping[str, Any], now_s: float) -> float | None:
    """Time since the start of a running iteration; None for one that was interrupted."""
    return max(0.0, now_s - epoch_seconds(data["timedFrom"])) if data["endedAt"] is None else None


def _agent_cell(data: Mapping[str, Any], symbols: Symbols) -> Text:
    """How its last turn ended."""
    turns = data["turns"]
    if not turns:
        return Text("not asked" if data["verdict"] else symbols.dash, DIM, end="")
    last = turns[-1]
    match last:
        case {"endedAt": None}:
            return join_parts((f"{symbols.running} works", LIVE))
        case {"error": str()}:
            return join_parts(("error", BAD))
        case {"exitReason": "exit", "exitCode": 0}:
            return join_parts(("ended", PLAIN))
        case {"exitReason": "exit", "exitCode": int(code)}:
            return join_parts((f"exit {code}", WARN))
        case {"signal": int(number)}:
            return join_parts((f"signal {number}", WARN))
        case _:
            return join_parts((last["exitReason"] or "ended", WARN))


def _test_counts(data: Mapping[str, Any]) -> Mapping[str, int] | None:
    states = [check["state"] for check in data["checks"] if check["state"] not in ("running", "stopped")]
    return (
        {"passedCount": states.count("passed"), "failedCount": len(states) - states.count("passed")} if states else None
    )


def _verdict_cell(data: Mapping[str, Any], symbols: Symbols) -> Text:
    running = next((check["name"] for check in data["checks"] if check["state"] == "running"), None)
    if running is not None:
        return join_parts((f"{running} runs", LIVE))
    found = data["verdict"]
    return (
        join_parts((found["label"], VERDICT_STYLES.get(found["result"], PLAIN)))
        if found
        else Text(symbols.dash, DIM, end="")
    )


def _tokens_cell(turns: list[Mapping[str, Any]], symbols: Symbols) -> str:
    known = [turn["tokens"] for turn in turns if turn["tokens"] is not None]
    return format_thousands(sum(known)) if known else symbols.dash


MAX_FILES = 200


def iteration_lines(data: Mapping[str, Any], activity: Mapping[str, list[Any]], symbols: Symbols) -> Iterator[Text]:
    """Full description: verdict first, agent output last."""
    job = " ".join(str(data[name]) for name in ("stage", "task", "title")) if data["title"] else ""
    yield join_parts(
        (f"Iteration {data['number']}", HEAD),
        (f"  {job}", STRONG),
        (f"  {duration_text(data['durationSeconds'], symbols)}", DIM),
    )
    if verdict := data["verdict"]:
        style = VERDICT_STYLES.get(verdict["result"], PLAIN)
        yield join_parts(
            ("verdict: ", DIM), (verdict["label"], style or STRONG), ("  ", ""), (verdict["reason"], PLAIN)
        )
    yield from _claim_lines(data)
    notices = [*(finding["message"] for finding in data["findings"]), *data["notices"]]
    yield from (join_parts((f"{symbols.lost} {notice}", WARN)) for notice in notices)
    for check in data["checks"]:
        yield from _check_lines(check, symbols)
    yield from _file_lines(data)
    for turn in data["turns"]:
        yield from _turn_lines(turn, activity.get(turn["log"], []), symbols)


def _claim_lines(data: Mapping[str, Any]) -> Iterator[Text]:
    if data["claim"] is not None:
        yield join_parts(("it claims: ", DIM), (data["claim"], STRONG))
    for word in data["ignoredClaims"]:
        yield join_parts(("not counted as a claim: ", DIM), (word, WARN))
    if scm := data["scm"]:
        yield join_parts(("commit: ", DIM), (scm["error"] or f"{str(scm['commit'])[:12]} {scm['message']}", PLAIN))
    if data["snapshot"]:
        yield join_parts(("saved as ", DIM), (data["snapshot"], DIM))


def _check_lines(check: Mapping[str, Any], symbols: Symbols) -> Iterator[Text]:
    style = CHECK_STYLES.get(check["state"], PLAIN)
    kind = "judge" if check["judged"] else "check"
    why = f" ({check['exitReason']})" if check["exitReason"] not in ("", "exit", None) else ""
    yield Text("", end="")
    text = join_parts(
        (f"{check_symbol(check['state'], symbols)} {check['state']}", style), f"  {kind} ", (check["name"], STRONG)
    )
    command = check["command"] if check["command"] != check["name"] else ""
    text.append_text(
        join_parts((f"{why}  {command}".rstrip(), DIM), (f"  {duration_text(check['durationSeconds'], symbols)}", DIM))
    )
    yield text
    if check["tests"] and check["tests"]["failing"]:
        yield join_parts((f"  failing: {', '.join(check['tests']['failing'])}", BAD))
    if check["output"].strip():
        yield from plain_lines(check["output"].strip("\n"), DIM, "  | ")


def _file_lines(data: Mapping[str, Any]) -> Iterator[Text]:
    yield Text("", end="")
    if not data["filesKnown"]:
        yield join_parts(("what changed is not known", DIM))
        return
    yield join_parts((f"{format_count(data['fileCount'], 'file')} changed", HEAD))
    yield from (join_parts("  ", (path, PLAIN)) for path in data["files"][:MAX_FILES])


def _turn_lines(turn: Mapping[str, Any], events: list[Any], symbols: Symbols) -> Iterator[Text]:
    yield Text("", end="")
    who = " ".join(str(turn[name]) for name in ("log", "agent", "model") if turn[name])
    yield join_parts(
        (who, HEAD), "  ", (turn["error"] or turn["exitReason"] or "at work", BAD if turn["error"] else DIM)
    )
    if turn["retryReason"]:
        yield join_parts((f"taken once more: {turn['retryReason']}", WARN))
    yield from (join_parts((f"{symbols.lost} denied: {what}", WARN)) for what in turn["denied"])
    yield from (join_parts((f"{symbols.lost} blocked by the sandbox: {what}", WARN)) for what in turn["blockedHosts"])
    lines = [line for event in events for line in event_lines(event, symbols)]
    yield from lines or plain_lines(turn["text"])


class IterationPage(Page):
    """Everything about one iteration."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "step(-1)", "before", key_display="["),
        Binding("right_square_bracket", "step(1)", "after", key_display="]"),
        Binding("d", "diff", "diff"),
        Binding("l", "logs", "logs"),
    ]

    def __init__(self, context: DashboardContext, run: str, number: int) -> None:
        super().__init__(context, run)
        self._number, self._seq = number, 0
        self._shown = 0
        self._known: dict[int, dict[str, Any]] = {}

    @property
    def path(self) -> str:
        return f"{self._run} {self.symbols.at} iteration {self._number}"

    def body(self) -> ComposeResult:
        yield TextView()

    async def load(self) -> None:
        data = await self.in_thread(self.read_model.run, self._run, self._seq)
        touched = {one["number"]: one for one in data["timeline"]}
        self._known |= touched
        self._seq = data["seq"]
        number = self._number
        if number in self._known and (number in touched or self._shown != number):
            self._shown = number
            await self._show(self._known[number])

    async def _show(self, shown: dict[str, Any]) -> None:
        activity = {turn["log"]: await self.turn_events(self._run, turn) for turn in shown["turns"]}
        self.query_one(TextView).show(list(iteration_lines(shown, activity, self.symbols)))
        self._draw_title()

    def action_step(self, by: int) -> None:
        if self._number + by in self._known:
            self._number += by
            self.query_one(TextView).scroll_home(animate=False)
            self.mark_stale()

    def action_diff(self) -> None:
        self.app.push_screen(DiffPage(self.context, self._run, self._number))

    def action_logs(self) -> None:
        self.app.push_screen(LogsPage(self.context, self._run, self._number))
