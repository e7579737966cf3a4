"""The stream of Codex 0.166.0: items that begin, change and are completed, and the end of the turn."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ralphproof.agents.complaint import CREDIT, LOGIN, MODEL, OUTAGE, TOO_LONG, Complaint, failed
from ralphproof.agents.dialect import LINE_CHARS, Dialect, Hearing, ended_tool, one_line, summary, tokens
from ralphproof.agents.lenient import decode, loaded
from ralphproof.agents.tally import Tally
from ralphproof.event import Denied, Ended, Progress, Said, Started, Todo, TodosChanged, ToolStarted, Usage
from ralphproof.sandbox import Exit

TOOLS = {
    "command_execution": "shell", "file_change": "apply_patch", "web_search": "web_search", "mcp_tool_call": "",
    "collab_tool_call": "",
}  # fmt: skip
# Codes in an answer of the service that it hands on as it came.
KINDS = {
    "context_length_exceeded": TOO_LONG, "model_not_found": MODEL, "invalid_api_key": LOGIN,
    "insufficient_quota": CREDIT,
}  # fmt: skip
RETRIES = "Reconnecting..."  # how it begins to say that it tries again; without a network it does so without end
MOST_TODOS = 200
MOST_RUNNING = 1000  # calls at a time; nobody makes more
MOST_DENIED = 1000  # calls that are told; nobody reads more
COMPLAINS, BLOCKED = " ERROR codex_core::tools::router: error=", " blocked by PreToolUse hook: "
PATCH = "*** Begin Patch"
_SHELL = re.compile(r"\S{0,200}sh -l?c (?=['\"])")
_QUOTED = re.compile(r"""'([^']*)(?:'|$)|"((?:\\.|[^"\\])*)(?:"|$)""", re.DOTALL)


class _Item(Struct, gc=False):
    id: Any = None
    type: str = ""
    text: Any = None
    message: Any = None
    status: Any = None
    command: Any = None
    aggregated_output: Any = None
    exit_code: Any = None
    changes: Raw = Raw()
    server: Any = None
    tool: Any = None
    arguments: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()
    query: Any = None
    prompt: Any = None
    items: Raw = Raw()


class _Line(Struct, gc=False):
    type: str = ""
    item: _Item | None = None
    thread_id: str | None = None
    usage: Any = None
    message: Any = None
    error: Any = None


_LINES = msgspec.json.Decoder(_Line)


class CodexStream:
    """Reads one turn."""

    def __init__(self, dialect: Dialect, hearing: Hearing, notional: bool = False) -> None:
        self._dialect, self._hearing, self._tell = dialect, hearing, hearing.tell
        self._tally = Tally(hearing)
        self._tally.notional = notional
        self._final = ""  # the last message, until a tool runs
        self._running: set[str] = set()
        self._todos: tuple[Todo, ...] = ()
        self._spawned = False  # agents of its own, whose tokens it does not count
        self._trouble = ""  # the error that it told last, until it gets on
        self._ended = self._failed = False

    def hear(self, line: bytes) -> None:
        said = decode(line, _LINES)
        match said.type:
            case "item.started" | "item.updated" | "item.completed" if said.item is not None:
                self._item(said.item, done=said.type == "item.completed")
            case "error":
                self._trouble = one_line(said.message or "an error without words")
                self._tell(Progress(self._trouble))
            case "turn.completed":
                self._account(said.usage)
                if not self._failed:  # which this turn does not take back
                    self._end(Ended(True, self._final))
            case "turn.failed":
                self._fail(said.error)
            case "thread.started":
                self._tell(Started(said.thread_id, self._hearing.model))
            case "turn.started":
                self._failed = False
            case _:
                raise ValueError(said.type)

    def close(self, end: Exit) -> None:
        """An error that it told last is why there is no end of the turn."""
        if self._ended or not self._trouble:
            return
        if self._trouble.startswith(RETRIES):
            self._end(failed(self._dialect, Complaint(OUTAGE, self._trouble), self._final))
        elif end.why == "exit":
            self._end(Ended(False, self._final, self._trouble))

    def _end(self, ended: Ended) -> None:
        self._ended = True
        self._tell(ended)

    def _item(self, item: _Item, done: bool) -> None:
        if item.type in TOOLS:
            self._tool(item, done)
        elif item.type == "agent_message" and done and isinstance(item.text, str):
            self._final = item.text
            self._tell(Said(item.text))
        elif item.type == "todo_list":
            self._list(loaded(item.items))
        elif item.type == "error":  # a warning, on healthy turns too
            self._tell(Progress(one_line(item.message)))
            return
        elif item.type != "reasoning":
            raise ValueError(item.type)
        self._trouble = ""

    def _tool(self, item: _Item, done: bool) -> None:
        """A tool that begins makes the message before it not the last one; one that only ends does not.

        Commands that still run when the turn ends are completed after the last message, or never.
        """
        call, name = str(item.id), TOOLS[item.type] or _name(item)
        if call not in self._running:
            if len(self._running) < MOST_RUNNING:
                self._running.add(call)
            self._final = ""
            self._spawned |= name == "spawn_agent"
            self._tell(ToolStarted(call, name, _summary(item)))
        if done:
            self._running.discard(call)
            ok = item.status in ("completed", None) and item.exit_code in (0, None)  # older ones name no status
            self._tell(ended_tool(call, ok, _output(item)))
            if item.status == "declined":
                self._tell(Denied(name, _summary(item)))

    def _list(self, items: Any) -> None:
        found = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        todos = tuple(
            Todo(one_line(item.get("text")), "done" if item.get("completed") is True else "pending")
            for item in found[:MOST_TODOS]
        )
        if todos != self._todos:  # it is told once more when the turn ends
            self._todos = todos
            self._tell(TodosChanged(todos))

    def _account(self, used: Any) -> None:
        """Its count is of the whole session. Input holds what the cache gave and took, and output the reasoning.

        No count, and one of nothing at all, come of a service that does not count.
        """
        counts = used if isinstance(used, dict) else {}
        read, written = tokens(counts.get("cached_input_tokens")), tokens(counts.get("cache_write_input_tokens"))
        fresh = max(0, tokens(counts.get("input_tokens")) - read - written)
        usage = Usage(fresh, tokens(counts.get("output_tokens")), read, written)
        if usage.total:
            self._tally.close(usage, at_least=self._spawned)

    def _fail(self, error: Any) -> None:
        self._failed = True
        said = error.get("message") if isinstance(error, dict) else error
        message, code = _worded(str(said or "the agent reported an error"))
        if kind := KINDS.get(code):
            self._end(failed(self._dialect, Complaint(kind, one_line(message)), self._final))
        else:
            self._end(Ended(False, self._final, one_line(message)))


def denials(complained: str) -> tuple[Denied, ...]:
    """The calls that hooks denied: its stream tells nothing of them, its standard error why and what."""
    found: list[Denied] = []
    for piece in complained.split(COMPLAINS)[1:]:
        kind, _, rest = piece.partition(BLOCKED)
        why, _, what = rest.partition(". Command: " if kind == "Command" else ". Tool: ")
        if kind == "Command":  # it calls a patch so, too
            found.append(Denied("apply_patch" if what.startswith(PATCH) else "shell", one_line(why)))
        elif kind == "Tool call":
            found.append(Denied(one_line(what.partition("\n")[0]) or "tool", one_line(why)))
    return tuple(found[:MOST_DENIED])


def _worded(message: str) -> tuple[str, str]:
    """What an error says, and its code where it is the whole answer of a service."""
    try:
        answer = msgspec.json.decode(message) if message.startswith("{") else None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return message, ""
    error = answer["error"] if isinstance(answer.get("error"), dict) else answer
    return str(error.get("message") or error.get("detail") or message), str(error.get("code"))


def _name(item: _Item) -> str:
    return f"{item.server}.{item.tool}" if item.server else str(item.tool or "tool")


def _summary(item: _Item) -> str:
    match item.type:
        case "command_execution":
            return one_line(_unwrapped(str(item.command or "")))
        case "file_change":
            changes = loaded(item.changes)
            found = [one for one in changes if isinstance(one, dict)] if isinstance(changes, list) else []
            return one_line(", ".join(str(one.get("path")) for one in found[:20]))
        case "mcp_tool_call":
            return summary(loaded(item.arguments))
        case _:
            return one_line(item.query or item.prompt or "")


def _unwrapped(command: str) -> str:
    """The beginning of a command without the shell that it is given to: `/bin/bash -lc 'make test'`."""
    wrapped = _SHELL.match(command)
    return _QUOTED.sub(_unquoted, command[wrapped.end() : 4 * LINE_CHARS]) if wrapped else command


def _unquoted(part: re.Match[str]) -> str:
    return re.sub(r"\\(.)", r"\1", part[2]) if part[1] is None else part[1]


def _output(item: _Item) -> str:
    """What a tool printed, or why it failed."""
    if isinstance(item.aggregated_output, str):
        return item.aggregated_output
    result, error = loaded(item.result), loaded(item.error)
    blocks = result.get("content") if isinstance(result, dict) else None
    texts = [str(one.get("text", "")) for one in blocks if isinstance(one, dict)] if isinstance(blocks, list) else []
    return "\n".join(texts) or (str(error.get("message", "")) if isinstance(error, dict) else "")
