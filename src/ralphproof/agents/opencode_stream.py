"""The stream of OpenCode 1.18.33: a JSON object a line, each a part of a message that has ended."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from ralphproof.agent import bounded
from ralphproof.agents.complaint import LOGIN, TOO_LONG, Complaint, failed
from ralphproof.agents.dialect import Dialect, Hearing, ended_tool, micro_usd, one_line, summary, tokens
from ralphproof.agents.lenient import decode, loaded
from ralphproof.agents.todo_tools import TodoTools
from ralphproof.event import Denied, Ended, Progress, Said, Spent, Started, ToolStarted, Usage
from ralphproof.sandbox import Exit

KNOWN = ("text", "tool_use", "step_start", "step_finish", "error", "reasoning")
REFUSALS = ("The user rejected permission to use", "The user has specified a rule which prevents you from using")
UNREADABLE = "invalid"  # the tool that takes calls of none
SUBAGENT = "task"
ENOUGH = "stop"  # the one reason with which the model has said what it had to say
CUT_OFF = "the model's last message was cut off at its greatest length"
ERROR_CHARS = 1000  # a service's message tells when to come back at its end
LOG = "~/.local/share/opencode/log"


class _Metadata(Struct, gc=False):
    exit: Any = None


class _State(Struct, gc=False):
    status: Any = None
    input: Raw = Raw()
    output: Any = None
    error: Any = None
    metadata: _Metadata | None = None


class _Cache(Struct, gc=False):
    read: Any = 0
    write: Any = 0


class _Tokens(Struct, gc=False):
    """What the model thought is counted beside its output."""

    input: Any = 0
    output: Any = 0
    reasoning: Any = 0
    cache: _Cache | None = None

    def value(self) -> Usage:
        cache = self.cache or _Cache()
        wrote = tokens(self.output) + tokens(self.reasoning)
        return Usage(tokens(self.input), wrote, tokens(cache.read), tokens(cache.write))


class _Part(Struct, gc=False):
    messageID: Any = None
    text: Any = None
    synthetic: Any = None
    tool: Any = None
    callID: Any = None
    state: _State | None = None
    reason: Any = None
    cost: Any = None
    tokens: _Tokens | None = None


class _Line(Struct, gc=False):
    type: str = ""
    sessionID: Any = None
    part: _Part | None = None
    error: Any = None


_LINES = msgspec.json.Decoder(_Line)


class OpenCodeStream:
    """Reads one turn. It has no last word: how the turn went is known when the program has ended."""

    def __init__(self, dialect: Dialect, hearing: Hearing) -> None:
        self._dialect, self._hearing, self._tell = dialect, hearing, hearing.tell
        self._todos = TodoTools()
        self._started = self._working = self._denied = self._overflowed = False
        self._error: Ended | None = None  # that it named, and no step came after it
        self._message: object = None  # the one that was told last, and its text
        self._text = ""
        self._reason: str | None = None  # why the last step ended
        self._spent = Spent(0, Usage(), at_least=True)
        self._more = False  # was spent than it says

    def hear(self, line: bytes) -> None:
        said = decode(line, _LINES)
        if said.type not in KNOWN:
            raise ValueError(said.type)
        if not self._started:
            self._started = True
            session = said.sessionID if isinstance(said.sessionID, str) else None
            self._tell(Started(session, self._hearing.model))
        part = said.part or _Part()
        match said.type:
            case "text":
                self._say(part)
            case "tool_use":
                self._use(part)
            case "step_start":
                self._reason = self._error = None
                self._working, self._denied = True, False
            case "step_finish":
                self._finish(part)
            case "error":
                self._fail(said.error)

    def close(self, end: Exit) -> None:
        """It may exit with 0 and have failed, and with 1 after an error that it got over."""
        by_itself = end.why in ("exit", "lingered")
        if self._started:
            known = by_itself and not self._working and not self._more
            spent = self._spent
            self._tell(Spent(spent.micro_usd, spent.usage, not known, spent.notional))
        if self._error is not None:
            self._tell(self._error)
        elif self._overflowed and by_itself and not end.clean:
            self._tell(failed(self._dialect, Complaint(TOO_LONG, "it was summed up on the way"), self._text))
        elif self._reason == ENOUGH:
            self._tell(Ended(True, self._text))
        elif by_itself and self._started:
            self._tell(Ended(False, self._text, self._why()))

    def _why(self) -> str:
        match self._reason:
            case None:
                return "the agent ended in the middle of a step"
            case "tool-calls" if self._denied:
                return "the agent stopped where a tool was not permitted"
            case "tool-calls":
                return "the agent stopped after a tool call and said no last word"
            case "length":
                return CUT_OFF
            case reason:
                return f"the model stopped: {one_line(reason)}"

    def _say(self, part: _Part) -> None:
        if part.synthetic or not isinstance(part.text, str):  # what it prompts itself with is nobody's word
            return
        self._text = bounded(self._text + part.text if part.messageID == self._message else part.text)
        self._message = part.messageID
        if part.text.strip():
            self._tell(Said(part.text))

    def _use(self, part: _Part) -> None:
        """A call is told once, when it has ended."""
        state = part.state or _State()
        arguments = loaded(state.input)
        call, tool = str(part.callID), str(part.tool)
        error = state.error if isinstance(state.error, str) else ""
        ran = state.metadata is None or state.metadata.exit in (0, None)
        ok = state.status == "completed" and ran and tool != UNREADABLE
        self._tell(ToolStarted(call, tool, summary(arguments)))
        self._tell(ended_tool(call, ok, state.output if isinstance(state.output, str) else error))
        if error.startswith(REFUSALS):
            self._denied = True
            self._tell(Denied(tool, summary(arguments)))
        if tool == "todowrite" and ok and (changed := self._todos.called("TodoWrite", arguments)):
            self._tell(changed)
        self._more = self._more or tool == SUBAGENT  # what that spent is told nowhere

    def _finish(self, part: _Part) -> None:
        self._working, self._reason = False, part.reason if isinstance(part.reason, str) else "no reason was told"
        if part.messageID != self._message:
            self._message, self._text = part.messageID, ""
        usage, before = part.tokens.value() if part.tokens else Usage(), self._spent
        cost, notional = micro_usd(part.cost) if usage.total or part.cost else None, before.notional
        if cost == 0:  # so it tells prices that it does not know, and what a subscription pays
            cost = self._hearing.cost(self._hearing.model, usage)
            notional = notional or cost is not None
        total = None if cost is None or before.micro_usd is None else before.micro_usd + cost
        self._spent = Spent(total, usage.plus(before.usage or Usage()), True, notional)
        self._tell(self._spent)

    def _fail(self, error: object) -> None:
        name, data = (error.get("name"), error.get("data")) if isinstance(error, dict) else (None, None)
        told = data if isinstance(data, dict) else {}
        message = one_line(told.get("message") or name or "the agent reported an error", ERROR_CHARS)
        if isinstance(status := told.get("statusCode"), int):
            message = f"API error {status}: {message}"
        match name:
            case "ProviderAuthError":
                self._error = failed(self._dialect, Complaint(LOGIN, message), "")
            case "ContextOverflowError":
                self._overflowed = True
                self._error = failed(self._dialect, Complaint(TOO_LONG, message), "")
                self._tell(Progress(message))
            case "UnknownError":
                self._error = Ended(False, "", f"{message} (its log is in {LOG})")
            case _:
                self._error = Ended(False, "", message)
