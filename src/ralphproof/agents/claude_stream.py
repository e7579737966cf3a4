"""The stream of Claude Code 2.1.325, and of agents that imitate it: a JSON object a line, in no fixed order of keys."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from ralphproof.agents.claude_lines import (
    LINES,
    RATE_LIMIT,
    RESULT,
    SYSTEM,
    Block,
    Limit,
    Line,
    Message,
    ModelUsage,
    Result,
    System,
)
from ralphproof.agents.claude_lines import (
    Usage as Used,
)
from ralphproof.agents.complaint import CREDIT, LIMIT, LOGIN, MODEL, OUTAGE, TOO_LONG, Complaint, complaint_in, failed
from ralphproof.agents.dialect import Dialect, Hearing, ended_tool, micro_usd, one_line, reset_at, summary, tokens
from ralphproof.agents.lenient import decode, loaded
from ralphproof.agents.tally import Tally
from ralphproof.agents.todo_tools import TodoTools
from ralphproof.event import Asked, Denied, Ended, Limited, Progress, Said, Started, ToolStarted, Usage
from ralphproof.sandbox import Exit

# Kinds of error that it names, and what they mean to us; of the others its message must tell.
KINDS = {
    "authentication_failed": LOGIN, "oauth_org_not_allowed": LOGIN, "verification_required": LOGIN,
    "cloud_credential_error": LOGIN, "account_on_hold": CREDIT, "billing_error": CREDIT, "rate_limit": LIMIT,
    "overloaded": OUTAGE, "server_error": OUTAGE, "model_not_found": MODEL,
}  # fmt: skip
SYNTHETIC = "<synthetic>"  # the "model" of messages that the program makes up itself
ARGUMENT_BYTES = 256 * 1024  # of a call's arguments: more are not looked into
MOST_DENIED = 1000  # calls that are told; nobody reads more
MOST_RUNNING = 1000  # calls at a time; nobody makes more
GUARD = "ralph guard"  # so begins what our guard says of a call that it denies
CHARS_A_TOKEN = 4  # a message's own count of output comes only with the result; until then its length must do


class ClaudeStream:
    """Reads one turn."""

    def __init__(self, dialect: Dialect, hearing: Hearing) -> None:
        self._dialect, self._hearing, self._tell = dialect, hearing, hearing.tell
        hearing.pause(self._account)
        self._tally, self._todos = Tally(hearing), TodoTools()
        self._denied: set[str] = set()
        self._running: dict[str, str] = {}  # the tools that are called, by call
        self._kind = ""  # of the last error that it named
        self._limited: Limited | None = None
        self._message = Message()  # the one that is being told, in several lines
        self._length = 0  # of it until now

    def hear(self, line: bytes) -> None:
        try:
            said = LINES.decode(line)
        except ValueError:
            said = decode(line, LINES)
        match said.type:
            case "assistant":
                self._assistant(said)
            case "user":
                self._user(said)
            case "system":
                self._system(decode(line, SYSTEM))
            case "rate_limit_event":
                self._limit(decode(line, RATE_LIMIT).rate_limit_info)
            case "result":
                self._result(decode(line, RESULT))
            case "stream_event" | "control_request" | "control_response" | "keep_alive":
                pass
            case _:
                raise ValueError(said.type)

    def close(self, end: Exit) -> None:
        """Everything has been told with its result."""

    def _system(self, said: System) -> None:
        match said.subtype:
            case "init" | None:
                self._tally.notional = said.apiKeySource == "none"  # then an account with a subscription pays
                self._tell(Started(said.session_id, said.model, said.claude_code_version))
            case "api_retry":
                why = said.error_status or said.error
                after = f" in {tokens(said.retry_delay_ms) / 1000:.0f} s"
                self._tell(Progress(f"service error ({why}), retry {said.attempt} of {said.max_retries}{after}"))
            case "permission_denied":
                self._deny(said.tool_name, said.tool_use_id, said.message)

    def _limit(self, limit: Limit) -> None:
        resets_at = reset_at(limit.resetsAt, self._hearing.now())
        name = (limit.rateLimitType or "usage").replace("_", " ")
        if limit.status == "rejected":
            self._limited = Limited(f"the {name} limit is reached", resets_at)
            self._tell(self._limited)
        elif limit.status == "allowed_warning" and isinstance(limit.utilization, int | float):
            self._tell(Progress(f"{limit.utilization:.0%} of the {name} limit is used"))

    def _assistant(self, said: Line) -> None:
        message = said.message
        if not isinstance(message, Message):
            return
        if said.is_api_error_message or message.model == SYNTHETIC:  # the program's own words, no answer of a model
            if said.error is not None and said.parent_tool_use_id is None:
                self._kind = KINDS.get(str(said.error), "")
            return
        self._kind, self._limited = "", None  # whatever it was, it got through
        if message.id != self._message.id:
            self._account()
            self._length = 0
        self._message = message
        for block in message.content if isinstance(message.content, list) else ():
            if block.type == "text" and isinstance(block.text, str):
                self._length += len(block.text)
                if said.parent_tool_use_id is None:
                    self._tell(Said(block.text))
            elif block.type == "tool_use":
                self._length += len(memoryview(block.input))
                self._tool(block)

    def _account(self) -> None:
        """Count the message that was told last."""
        message = self._message
        if message.usage is not None and message.id is not None:
            read, wrote, cache_read, cache_write = _counts(message.usage)
            wrote = max(wrote, self._length // CHARS_A_TOKEN)
            self._tally.message(message.id, message.model, (read, wrote, cache_read, cache_write))

    def _tool(self, block: Block) -> None:
        arguments, name = _arguments(block.input), block.name or "tool"
        self._tell(ToolStarted(block.id or "", name, summary(arguments)))
        if len(self._running) < MOST_RUNNING:
            self._running[block.id or ""] = name
        if name == "AskUserQuestion":
            self._tell(Asked(_question(arguments)))
        self._todos.begun(block.id or "", name, arguments)

    def _user(self, said: Line) -> None:
        content = said.message.content if isinstance(said.message, Message) else None
        for block in content if isinstance(content, list) else ():
            if block.type == "tool_result":
                call, ok, output = block.tool_use_id or "", not block.is_error, _text(loaded(block.content))
                self._tell(ended_tool(call, ok, output))
                name = self._running.pop(call, "tool")
                if not ok and (why := output.removeprefix(f"PreToolUse:{name} hook error: ")).startswith(GUARD):
                    self._deny(name, call, why)
                if changed := self._todos.ended(call, ok, output):
                    self._tell(changed)

    def _deny(self, tool: str, call: str, why: object) -> None:
        if call not in self._denied and len(self._denied) < MOST_DENIED:
            self._denied.add(call)
            self._tell(Denied(tool, one_line(why) if isinstance(why, str) else ""))

    def _result(self, said: Result) -> None:
        for denial in said.permission_denials or ():
            self._deny(str(denial.tool_name), str(denial.tool_use_id), summary(_arguments(denial.tool_input)))
        self._settle(said)
        text = _structured(said.structured_output) or (said.result if isinstance(said.result, str) else "")
        # Older programs, and some that imitate this one, name no subtype: then the text of the result must be there.
        well = said.subtype == "success" or (said.subtype is None and isinstance(said.result, str))
        if well and said.is_error in (None, False) and not said.error and not said.errors:
            self._tell(Ended(True, text, window=_window(said)))
            return
        message = text or _reasons(said) or f"the agent reported {said.subtype or 'a result that is no success'}"
        kind = TOO_LONG if said.terminal_reason == "prompt_too_long" else self._kind or _kind_of(said.api_error_status)
        if not kind:
            self._tell(Ended(False, text, one_line(message)))
            return
        if kind == LIMIT and self._limited is None:
            found = complaint_in(message, self._hearing.now())
            self._tell(Limited(one_line(message), found.resets_at if found else None))
        self._tell(failed(self._dialect, Complaint(kind, one_line(message)), text))

    def _settle(self, said: Result) -> None:
        """Its own account; of all models that it used where it lists them."""
        self._account()
        self._message = Message()
        usage = Usage(*_counts(said.usage)) if said.usage else None
        if said.modelUsage:
            models = [one for one in said.modelUsage.values() if one is not None]
            usage = Usage(*map(sum, zip(*map(_counts, models), strict=True)))
        if said.total_cost_usd is msgspec.UNSET:
            self._tally.close(usage)
        else:
            self._tally.settle(micro_usd(said.total_cost_usd), usage)


def _counts(usage: Used | ModelUsage) -> tuple[int, int, int, int]:
    return (
        tokens(usage.input_tokens), tokens(usage.output_tokens), tokens(usage.cache_read_input_tokens),
        tokens(usage.cache_creation_input_tokens),
    )  # fmt: skip


def _window(said: Result) -> int | None:
    """How much goes into the context of the model that did most of the work."""
    models = [one for one in (said.modelUsage or {}).values() if one is not None]
    used = max(models, key=lambda one: sum(_counts(one)), default=None)
    return (tokens(used.context_window) or None) if used else None


def _kind_of(status: object) -> str:
    """What an HTTP status says of whose fault it is."""
    known = {401: LOGIN, 403: LOGIN, 402: CREDIT, 429: LIMIT}
    return known.get(status, OUTAGE if status >= 500 else "") if isinstance(status, int) else ""


def _structured(answer: Raw) -> str:
    """An answer in the form that was asked for, as the text that it is."""
    text = bytes(answer).decode("utf-8", "replace")
    return "" if text == "null" else text


def _reasons(said: Result) -> str:
    """The errors that a result without a text lists, or an error of its own."""
    listed = "; ".join(map(str, said.errors)) if isinstance(said.errors, list) else ""
    if not listed and isinstance(said.error, dict):
        return str(said.error.get("message") or "")
    return listed or (said.error if isinstance(said.error, str) else "")


def _arguments(raw: Raw) -> Any:
    """The arguments of a call, where they are of a size that somebody may read."""
    return loaded(raw) if len(memoryview(raw)) <= ARGUMENT_BYTES else None


def _text(content: object) -> str:
    """What a tool printed: a text, or a list of blocks of which some are texts."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))


def _question(arguments: object) -> str:
    """The first question of a call that asks some."""
    questions = arguments.get("questions") if isinstance(arguments, dict) else None
    first = questions[0] if isinstance(questions, list) and questions else arguments
    return one_line(first.get("question") or first if isinstance(first, dict) else first)
