"""The head of a run's page: how it stands, what it may still use, and whether it gets better."""

from __future__ import annotations

from ralphproof.display.words import count, duration, held_by, moment
from ralphproof.tui.gauge import gauges, spark
from ralphproof.tui.ink import BAD, DIM, GOOD, STRONG, WARN, mark_of
from ralphproof.tui.texts import ago, fitted, joined, priced, thousands
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from rich.text import Text

    from ralphproof.tui.ink import Signs

ASKED = {"pause": "it will rest before its next turn", "cancel": "it is asked to end"}
WORDS = 3  # of a run's last lines


def head(run: Mapping[str, Any], width: int, signs: Signs, now_s: float) -> list[Text]:
    """All lines of it."""
    lines = [_title(run, signs), *_now(run, now_s), fitted(_facts(run, signs, now_s), width, signs)]
    lines += gauges(run.get("limits") or [], width, signs)
    bars = spark(run.get("failing") or [], width, signs)
    return [*lines, *([bars] if bars else [])]


def _title(run: Mapping[str, Any], signs: Signs) -> Text:
    sign, word, style = mark_of(run, signs)
    return joined((f"{sign} {word}", style), "   ", (run.get("title") or run.get("task") or run["run"], STRONG))


def _now(run: Mapping[str, Any], now_s: float) -> Iterator[Text]:
    """What it is at, or how it ended; and what waits for it."""
    over = run["state"] in ("ended", "stopped")
    if over:
        style = {"COMPLETED": GOOD if run.get("proof") == "verified" else WARN, "ERROR": BAD}.get(
            str(run.get("status")), WARN
        )
        yield from (joined((line, style)) for line in list(run.get("words") or [])[-WORDS:])
    elif run.get("doing"):
        since = run.get("since")
        lasting = f", for {duration(max(0.0, now_s - since))}" if since else ""
        asked = f"; {ASKED[run['asked']]}" if run.get("asked") in ASKED else ""
        yield joined((f"{run['doing']}{lasting}{asked}", WARN if asked else ""))
    if run.get("found"):
        yield joined((f"found: {run['found']}", BAD))
    if waits := run.get("waits"):
        yield joined((f"waits until {moment(waits['until'], now_s)}: {waits['why']}", WARN))
    if unread := run.get("unread"):
        yield joined((f"{count(unread, 'message')} of yours for its next prompt", WARN))


def _facts(run: Mapping[str, Any], signs: Signs, now_s: float) -> Text:
    """Who works, how, where."""
    dot = f" {signs.dot} "
    agent = " ".join(str(run.get(name) or "") for name in ("agent", "model")).strip()
    spend = run.get("spend")
    parts = [agent, run.get("preset"), f"sandbox {held_by(run.get('sandbox'))}", priced(spend, signs)]
    parts += [f"{thousands(spend['tokens'])} tokens"] if spend and spend.get("tokens") else []
    parts += [f"began {ago(run.get('beganAt'), now_s)} ago"]
    kin, together = run.get("kin") or [], run.get("spendWithChildren")
    spent = f", {priced(together, signs)} with them" if together else ""
    parts += [f"runs of its own: {len(kin)}{spent}"] if kin else []
    parts += [f"in run {run['parent']}"] if run.get("parent") else []
    return joined((dot.join(str(part) for part in parts if part), DIM))
