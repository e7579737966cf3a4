"""Base of the readers of agents' streams: JSON lines become events, tool calls, to-do lists and a sum of the usage."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, TypeVar

from msgspec import Raw
from msgspec.json import Decoder

from ralphproof.agents.adapter import (
    MAX_RESET_DELAY_S,
    MICRO_PER_USD,
    AgentAdapter,
    ReaderContext,
    one_line,
)
from ralphproof.agents.error_messages import FailureReason, failure_event
from ralphproof.base.text import MAX_TEXT_CHARS, truncate
from ralphproof.engine.agent import Denied, Ended, Spent, Todo, TodosChanged, ToolEnded, ToolStarted, Usage
from ralphproof.engine.sandbox import Exit

T = TypeVar("T")
MAX_MICRO_USD = 10**11  # 100,000 dollars: no turn costs more
MAX_TOKENS = 10**12
MAX_TOOL_OUTPUT_CHARS = 64 * 1024  # of one tool's output in an event
MAX_RUNNING_CALLS = 200  # tool calls at a time that a reader keeps track of
MAX_DENIALS = 1000  # denied calls that are reported
# Errors of turns that a model ended before it was done.
CUT_OFF_MESSAGE = "the model's last message was cut off at its greatest length"
NO_FINAL_MESSAGE = "the agent stopped after a tool call and said no last word"


class JsonStream:
    """Reads one turn: a JSON object with a `type` in each line.

    `handlers` has the method for each type that tells something.
    """

    handlers: ClassVar[Mapping[str, Callable[[Any, dict[str, Any]], None]]] = {}
    ignored: ClassVar[Collection[str]] = ()  # other known types, or their parts before a dot

    def __init__(self, adapter: AgentAdapter, context: ReaderContext, notional: bool = False) -> None:
        self.adapter, self.context, self.emit = adapter, context, context.emit
        self.tally, self.todos = UsageTally(context), TodoTracker()
        self.tally.notional = notional
        self.running: dict[str, tuple[str, str]] = {}  # names and summaries of running tools, by call
        self._denied: set[str] = set()

    def read_line(self, line: bytes) -> None:
        entry = decode_line(line, ANY_DECODER)
        if not isinstance(entry, dict):
            raise ValueError("no object")
        kind = str(entry.get("type"))
        if handler := self.handlers.get(kind):
            handler(self, entry)
        elif kind.partition(".")[0] not in self.ignored:
            raise ValueError(kind)

    def close(self, end: Exit) -> None:
        """Emit what is known only at the end: nothing where a result line comes last."""

    def start_tool(self, call: str, name: str, arguments: object) -> None:
        """Report a tool call."""
        summary = summarize_arguments(arguments)
        if len(self.running) < MAX_RUNNING_CALLS:
            self.running[call] = name, summary
        self.emit(ToolStarted(call, name, summary))
        self.todos.start_call(call, name, arguments)

    def end_tool(self, call: str, ok: bool, output: str) -> tuple[str, str]:
        """Report the end of a tool call; returns its name and summary."""
        self.emit(make_tool_ended(call, ok, output))
        if changed := self.todos.end_call(call, ok, output):
            self.emit(changed)
        return self.running.pop(call, ("tool", ""))

    def deny(self, tool: str, why: object, call: str = "") -> None:
        """Report a denied call, once where its id is known."""
        if len(self._denied) < MAX_DENIALS and call not in self._denied:
            self._denied.add(call or f"#{len(self._denied)}")
            self.emit(Denied(tool, one_line(why) if isinstance(why, str) else ""))

    def fail(self, message: object, text: str = "", kind: str = "") -> None:
        """End the turn with an error; `kind` is one of the error kinds, where that is known."""
        why = one_line(message)
        self.emit(failure_event(self.adapter, FailureReason(kind, why), text) if kind else Ended(False, text, why))


# Values of untrusted type.


def parse_micro_usd(dollars: object) -> int | None:
    """A cost that an agent reports, in micro-dollars; None for an impossible one."""
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        return None
    if not 0 <= dollars < MAX_MICRO_USD / MICRO_PER_USD:  # refuses NaN too
        return None
    return round(dollars * MICRO_PER_USD)


def parse_token_count(count: object) -> int:
    """A token count that an agent reports; 0 for an impossible one."""
    if type(count) is int and 0 <= count < MAX_TOKENS:  # the usual case; this is called a thousand times a second
        return count
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 <= count < MAX_TOKENS:
        return 0
    return int(count)


def parse_reset_time(epoch_s: object, now_s: float) -> float | None:
    """When a limit ends, as an agent reports it (epoch seconds); None for an impossible time."""
    if isinstance(epoch_s, bool) or not isinstance(epoch_s, int | float) or not 0 < epoch_s < now_s + MAX_RESET_DELAY_S:
        return None
    return float(epoch_s)


def make_tool_ended(call: str, ok: bool, output: str) -> ToolEnded:
    """The end of a tool call, with bounded output and the size of the whole."""
    lines = output.count("\n") + (not output.endswith("\n")) if output else 0
    return ToolEnded(call, ok, output[:MAX_TOOL_OUTPUT_CHARS], lines, len(output))


# The arguments of a tool call that describe it best, in order of preference.
SUMMARY_ARGUMENTS = (
    "command", "cmd", "file_path", "filePath", "absolute_path", "path", "notebook_path", "pattern", "query", "url",
    "description", "subject", "prompt",
)  # fmt: skip


def summarize_arguments(arguments: object) -> str:
    """The arguments of a tool call in one line."""
    if not isinstance(arguments, dict):
        return "" if arguments is None else one_line(arguments)
    for name in SUMMARY_ARGUMENTS:
        if argument := arguments.get(name):
            break
    else:
        argument = next((item for item in arguments.values() if isinstance(item, str)), "")
    return one_line(" ".join(map(str, argument)) if isinstance(argument, list) else argument)


def content_text(content: object) -> str:
    """The text of a message or of a tool's output: a string, or a list of blocks of which some have text."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))


def inner_table(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A table in another one, empty where it is missing; raises ValueError for anything else."""
    found = table.get(name)
    if found is not None and not isinstance(found, dict):
        raise ValueError(name)
    return found or {}


def text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


class MessageBuffer:
    """A message that comes in pieces; the middle of a very long one is dropped."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._chars = 0

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._chars += len(piece)
        if self._chars > 4 * MAX_TEXT_CHARS:
            shortened = truncate(self.text, 2 * MAX_TEXT_CHARS)
            self._pieces, self._chars = [shortened], len(shortened)

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def clear(self) -> None:
        self._pieces, self._chars = [], 0


# JSON lines.


MAX_REPAIR_BYTES = 1 << 20  # repairing a longer line would take too much memory
ANY_DECODER = Decoder()
MAX_DIGITS = 30  # of a number; a longer one is dropped


def decode_line(line: bytes, decoder: Decoder[T]) -> T:
    """The decoded line; raises ValueError or RecursionError where it is not JSON or not of this type.

    Invalid UTF-8, half of a surrogate pair, NaN and numbers out of bounds lose that value, not the line.
    """
    try:
        return decoder.decode(line)
    except ValueError:
        if len(line) > MAX_REPAIR_BYTES or not line.lstrip().startswith((b"{", b"[", b'"')):
            raise
        return decoder.decode(_repair_line(line))


def decode_raw(raw: Raw) -> Any:
    """The value of an undecoded part of a line; None where it is missing."""
    try:
        return ANY_DECODER.decode(raw)
    except ValueError:
        return decode_line(bytes(raw), ANY_DECODER) if bytes(raw) else None


def _repair_line(line: bytes) -> bytes:
    decoded = json.loads(
        line.decode("utf-8", "replace"),
        parse_constant=_parse_constant,
        parse_int=_parse_int,
        parse_float=_parse_float,
        strict=False,
    )
    return json.dumps(decoded, ensure_ascii=False).encode("utf-8", "replace")


def _parse_constant(_: str) -> None:
    return None


def _parse_int(digits: str) -> int | None:
    return int(digits) if len(digits) <= MAX_DIGITS else None


def _parse_float(digits: str) -> float | None:
    number = float(digits)
    return number if abs(number) != float("inf") else None


# The agent's own to-do list, followed through its tool calls.


TODO_STATES = {"pending": "pending", "in_progress": "active", "completed": "done"}
MAX_TODOS = 200
TODO_TOOLS = ("TodoWrite", "todo_write", "todowrite", "TaskCreate", "TaskUpdate")


class TodoTracker:
    """The to-do list as the tool calls leave it."""

    def __init__(self) -> None:
        self._tasks: dict[str, Todo] = {}
        self._calls: dict[str, tuple[str, Any]] = {}
        self._created = 0

    def start_call(self, call: str, tool: str, arguments: Any) -> None:
        """Note a call that may change the list once it has succeeded."""
        if tool in TODO_TOOLS and len(self._calls) < MAX_TODOS:
            self._calls[call] = (tool, arguments)

    def end_call(self, call: str, ok: bool, output: str) -> TodosChanged | None:
        """The list after this call, if the call changed it."""
        tool, arguments = self._calls.pop(call, ("", None))
        # In a resumed session the first task of this turn may have a higher number than 1.
        if ok and tool == "TaskCreate" and (number := re.match(r"Task #(\d{1,9}) ", output)):
            self._created = int(number[1]) - 1
        return self.apply(tool, arguments) if ok else None

    def apply(self, tool: str, arguments: Any) -> TodosChanged | None:
        """The list after this call, if the call changes it."""
        if not isinstance(arguments, dict):
            return None
        match tool:
            case "TodoWrite" | "todo_write" | "todowrite":
                todos = arguments.get("todos")
                items = [item for item in todos if isinstance(item, dict)] if isinstance(todos, list) else []
                return TodosChanged(
                    tuple(_make_todo(item.get("content"), item.get("status")) for item in items[:MAX_TODOS])
                )
            case "TaskCreate" if len(self._tasks) < MAX_TODOS:
                # Claude Code numbers tasks from 1 in the order of their creation.
                self._created += 1
                self._tasks[str(self._created)] = _make_todo(arguments.get("subject"), "pending")
            case "TaskUpdate" if str(arguments.get("taskId")) in self._tasks:
                self._update(str(arguments.get("taskId")), arguments.get("subject"), arguments.get("status"))
            case _:
                return None
        return TodosChanged(tuple(self._tasks.values()))

    def _update(self, task: str, subject: object, state: object) -> None:
        """Fields that an update leaves out stay as they are."""
        if state == "deleted":
            del self._tasks[task]
            return
        before = self._tasks[task]
        self._tasks[task] = Todo(one_line(subject or before.text), TODO_STATES.get(str(state), before.state))


def _make_todo(text: object, state: object) -> Todo:
    return Todo(one_line(text), TODO_STATES.get(str(state), "pending"))


# The usage of a turn.


# Messages whose usage may still grow, and as many before them; older ones are no longer tracked.
MAX_OPEN_MESSAGES = 500
MAX_MODELS = 100  # of one turn; the usage of further models is counted without a model, so the cost is unknown


class UsageTally:
    """The running sum of a stream's usage; emits `Spent` when it has grown and all output so far was read.

    The total that the agent reports at the end replaces it. If the price of one model is unknown, so is the whole cost.
    """

    def __init__(self, context: ReaderContext) -> None:
        self.notional = False
        self._context = context
        self._by_model: dict[str | None, list[int]] = {}
        self._messages: dict[str, tuple[int, ...]] = {}
        self._older: dict[str, tuple[int, ...]] = {}
        self._grown = False
        self._reported = Spent(0, Usage())  # the last total that the agent reported
        context.on_idle(self.flush)

    def message(self, name: str, model: str | None, counts: tuple[int, int, int, int]) -> None:
        """The usage of one message as it now stands: it is reported in several lines and counted once.

        `counts` are those of `Usage`, in its order: a tuple is faster, and a stream may hold a million messages.
        """
        before = self._messages.get(name) or self._older.get(name)
        if before is None:  # the usual case
            if len(self._messages) >= MAX_OPEN_MESSAGES:
                self._older, self._messages = self._messages, {}
            self._messages[name] = counts
            self._add(model, counts)
        elif before != counts and (now := tuple(map(max, before, counts))) != before:
            self._messages[name] = now
            self._add(model, tuple(new - old for new, old in zip(now, before, strict=True)))

    def add(self, model: str | None, usage: Usage) -> None:
        """Add usage that is reported once."""
        self._add(model, _usage_counts(usage))

    def _add(self, model: str | None, counts: tuple[int, ...]) -> None:
        sums = self._by_model.get(model)
        if sums is None and len(self._by_model) >= MAX_MODELS:
            model, sums = None, self._by_model.get(None)
        if sums is None:
            self._by_model[model] = list(counts)
        else:
            for index in range(4):
                sums[index] += counts[index]
        self._grown = True

    def flush(self) -> None:
        """Emit the sum if it has grown."""
        if self._grown:
            self._grown = False
            self._context.emit(self.spent(at_least=True))

    def spent(self, at_least: bool) -> Spent:
        """The last total that the agent reported, if any, plus the usage counted since."""
        total, costs = self._reported.usage or Usage(), [self._reported.micro_usd]
        for model, counts in self._by_model.items():
            usage = Usage(*counts)
            total = total.plus(usage)
            costs.append(self._context.cost(model, usage))
        known = [cost for cost in costs if cost is not None]
        return Spent(sum(known) if len(known) == len(costs) else None, total, at_least, self.notional)

    def close(self, usage: Usage | None = None, at_least: bool = False) -> None:
        """Finish where the agent reports no cost: price the tokens that it reports, else those that were counted."""
        self._grown = False
        if usage is None:
            counted = self._by_model or self._reported.usage != Usage()
            self._context.emit(self.spent(at_least) if counted else Spent(None, notional=self.notional))
            return
        models = list(self._by_model) or [self._context.model]
        of_turn = self._of_turn(usage)
        cost = self._context.cost(models[0], of_turn) if len(models) == 1 else self.spent(at_least=False).micro_usd
        self._context.emit(Spent(cost, of_turn, at_least, self.notional))

    def settle(self, micro_usd: int | None, usage: Usage | None) -> None:
        """Take the total that the agent reports; in a resumed session it may include earlier turns."""
        self._grown = False
        counted = self.spent(at_least=True).micro_usd or 0
        billed = self._context.billed.micro_usd or 0
        if micro_usd is not None and micro_usd - billed >= counted / 2:  # else it does not include earlier turns
            micro_usd -= billed
        self._reported = Spent(micro_usd, None if usage is None else self._of_turn(usage), notional=self.notional)
        self._by_model.clear()
        self._context.emit(self._reported)

    def _of_turn(self, usage: Usage) -> Usage:
        """This turn's part of a session's usage. Usage smaller than that of earlier turns does not include them."""
        difference = usage.less(self._context.billed.usage or Usage())
        return difference if min(_usage_counts(difference)) >= 0 else usage


def _usage_counts(usage: Usage) -> tuple[int, int, int, int]:
    return usage.input, usage.output, usage.cache_read, usage.cache_write
