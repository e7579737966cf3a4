"""How an agent's turn ended, as lines."""

from __future__ import annotations

from ralphproof.agent import DENIALS, Turn
from ralphproof.budget import dollars
from ralphproof.display.colours import GREEN, RED, YELLOW, Line
from ralphproof.display.excerpt import one_line
from ralphproof.display.marks import Marks
from ralphproof.event import Spent, Usage
from ralphproof.fault import ending
from ralphproof.sandbox import Exit

PATH_CHARS = 500
NAMED, NAME_CHARS = 3, 100  # denied calls that are named at the end
WAY_ON = "--sandbox lets it do anything inside one; or allow the tool in the agent's own settings, or --no-sandbox"


def completion(reply: Turn, marks: Marks) -> Line:
    """The one line that says how the turn went and what it took."""
    if reply.exit.why == "unstartable":
        return f"{marks.error}Failed: the agent could not be started: {reply.exit.error}", RED
    if not reply.errored:
        return f"{marks.ok}Complete ({_figures(reply)})", GREEN
    how = "Stopped" if reply.exit.why in ("stopped", "killed") else "Failed"
    return f"{marks.error}{how} ({_figures(reply)}): {reply.error or ending(reply)}", RED


def denials(reply: Turn, marks: Marks) -> Line:
    """That the agent was not allowed to do something, and the way on."""
    number = len(reply.denied)
    named = list(dict.fromkeys(one_line(call, NAME_CHARS, marks.cut) for call in reply.denied))
    names = "; ".join(named[:NAMED]) + (f"; {marks.cut}" if len(named) > NAMED else "")
    calls = "1 tool call was" if number == 1 else f"{number}{' or more' if number >= DENIALS else ''} tool calls were"
    return f"{marks.denied}{calls} denied ({names}): {WAY_ON}", YELLOW


def blocked(reply: Turn, marks: Marks) -> Line:
    """What could not be reached from the sandbox, and the way on."""
    hosts = [one_line(host, NAME_CHARS, marks.cut) for host in reply.exit.blocked]
    names = ", ".join(hosts[:NAMED]) + (f" and {len(hosts) - NAMED} more" if len(hosts) > NAMED else "")
    return f"{marks.denied}blocked by the sandbox: {names}; --allow-host HOST lets one be reached", YELLOW


def hindrances(reply: Turn, marks: Marks) -> list[Line]:
    """What the agent was not allowed to do, or to reach, and what the disk did not take of its output."""
    found = [denials(reply, marks)] if reply.denied else []
    found += [blocked(reply, marks)] if reply.exit.blocked else []
    return found + ([unwritten(reply.exit, marks)] if reply.exit.log_error else [])


def unwritten(end: Exit, marks: Marks) -> Line:
    """Why the log is not whole."""
    lost = f", {end.lost_bytes} bytes are lost" if end.lost_bytes else ""
    return f"{marks.denied}the agent's log is not whole{lost}: {one_line(end.log_error, PATH_CHARS, marks.cut)}", YELLOW


def _figures(reply: Turn) -> str:
    paused = f", {brief(reply.exit.paused_s)} of it suspended" if reply.exit.paused_s else ""
    parts = [f"cost: {price(reply.spent)}"]
    if reply.usage is not None:
        parts.append(f"tokens: {tokens(reply.usage)}")
    if reply.usage is not None or reply.tools:
        parts += [f"tools: {reply.tools}", f"errors: {reply.errors}"]
    if reply.unparsed:
        parts.append(f"lines not understood: {reply.unparsed}")
    return ", ".join((*parts, f"time: {brief(reply.exit.seconds)}{paused}"))


def price(spent: Spent) -> str:
    """Money as far as it is known; unknown is not zero."""
    if spent.micro_usd is None:
        return "unknown"
    bound = "at least " if spent.at_least else ""
    return f"{bound}{dollars(spent.micro_usd)}{' (notional)' if spent.notional else ''}"


def tokens(usage: Usage) -> str:
    """All that went in, how much of it came from the cache, and what came out."""
    cached = f" ({short(usage.cache_read)} cached)" if usage.cache_read else ""
    return f"{short(usage.input + usage.cache_read + usage.cache_write)} in{cached} / {short(usage.output)} out"


def short(number: int) -> str:
    """`999`, `1.2K`, `45K`, `1.2M`."""
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= size * 0.9995:
            share = number / size
            return (f"{share:.1f}" if share < 9.95 else f"{share:.0f}").removesuffix(".0") + unit
    return str(number)


def brief(seconds: float) -> str:
    """`0.4s`, `45s`, `6m7s`, `2h3m`."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest}s" if minutes else f"{rest}s"
    return f"{minutes // 60}h{minutes % 60}m"
