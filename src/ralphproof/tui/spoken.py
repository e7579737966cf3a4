"""What an agent says and does, as lines."""

from __future__ import annotations

from ralphproof.display.clean import clean
from ralphproof.display.excerpt import excerpt
from ralphproof.tui.ink import BAD, DIM, GOOD, LIVE, PLAIN, STRONG, TOOL, WARN
from ralphproof.tui.texts import joined, many, one
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from rich.text import Text

    from ralphproof.tui.ink import Signs

LINES, CHARS = 6, 1000  # of a tool's output
SUMMARY = 300


def lines_of(event: Mapping[str, Any], signs: Signs) -> list[Text]:
    """An event as lines; none where it only changes figures, or the list of things to do."""
    match event:
        case {"type": "said", "text": str(text)}:
            return many(text.strip("\n"))
        case {"type": "toolstarted", "name": name, "summary": summary}:
            call = joined((signs.call, TOOL), " ", (name, f"bold {TOOL}"), " ")
            return [call.append_text(one(str(summary)[:SUMMARY], TOOL))]
        case {"type": "toolended", "ok": ok, "output": str(output)}:
            return _output(bool(ok), output, signs)
        case {"type": "progress", "text": str(text)}:
            return [joined((f"{signs.dot} ", DIM), (text, DIM))]
        case {"type": "ended", "ok": True}:
            return [joined((f"{signs.good} ended", GOOD))]
        case _:
            return _remark(event, signs)


def _remark(event: Mapping[str, Any], signs: Signs) -> list[Text]:
    match event:
        case {"type": "started"}:
            facts = [f"{name} {event[name]}" for name in ("model", "version", "session") if event.get(name)]
            return [joined((f"{signs.dot} {', '.join(facts)}", DIM))] if facts else []
        case {"type": "denied", "tool": tool}:
            why = f" ({event['why']})" if event.get("why") else ""
            return [joined((f"{signs.lost} denied: {tool}{why}", WARN))]
        case {"type": "asked", "question": question}:
            return [joined((f"? asked, and nobody is there to answer: {question}", WARN))]
        case {"type": "limited", "message": message}:
            return [joined((f"{signs.waits} the service refuses for now: {message}", WARN))]
        case {"type": "ended"}:
            return [joined((f"{signs.bad} ended with an error: {event.get('error') or 'unknown'}", BAD))]
        case {"type": "unparsed", "raw": raw}:
            return [one(raw, DIM)]
        case _:
            return []


def _output(ok: bool, output: str, signs: Signs) -> list[Text]:
    first, last, whole = excerpt(clean(output).strip("\n"), LINES, CHARS, signs.cut)
    head = [] if ok else [joined((f"  {signs.bad} failed", BAD))]
    shown = first + ([] if whole else [signs.cut]) + last
    return [*head, *(joined((f"  | {line}", DIM)) for line in shown if line.strip())]


def todo_lines(items: Sequence[Mapping[str, Any]], most: int, signs: Signs) -> list[Text]:
    """The agent's own list: its count, and below it the part around what it is at; where there is no room, that."""
    done = sum(item.get("state") == "done" for item in items)
    at = next((place for place, item in enumerate(items) if item.get("state") != "done"), len(items))
    if most < 2:
        now = items[at].get("text", "") if at < len(items) else "all done"
        return [joined((f"to do: {done} of {len(items)} done, now: ", STRONG), (now, LIVE))]
    start = max(0, min(at - 1, len(items) - most))
    lines = [joined((f"to do: {done} of {len(items)} done", STRONG))]
    for item in items[start : start + most]:
        sign, style = {"done": (signs.good, DIM), "active": (signs.running, LIVE)}.get(
            str(item.get("state")), (signs.todo, PLAIN)
        )
        lines.append(joined((f" {sign} ", ""), (item.get("text", ""), style)))
    return lines
