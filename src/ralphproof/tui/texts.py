"""Text for the board. What strangers wrote is made harmless here, and is never read as markup."""

from __future__ import annotations

from rich.text import Text

from ralphproof.display.clean import clean, flat
from ralphproof.display.words import duration
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ralphproof.tui.ink import Signs

TAB = 4
LINE_CHARS = 4000  # of one line that are shown; the log has the rest


def one(text: object, style: str = "") -> Text:
    """Anything in one harmless line."""
    return Text(flat(clean(str(text)[: 2 * LINE_CHARS])).expandtabs(TAB).strip()[:LINE_CHARS], style, end="")


def many(text: str, style: str = "", indent: str = "") -> list[Text]:
    """Every line of a text, each harmless; long ones are cut."""
    return [
        Text(indent + flat(line[:LINE_CHARS]).expandtabs(TAB).rstrip(), style, end="")
        for line in clean(text).split("\n")
    ]


def joined(*parts: tuple[object, str] | str | Text) -> Text:
    """One line of several parts. A pair is anybody's text and its style; a string alone is ours."""
    made = Text(end="")
    for part in parts:
        match part:
            case Text():
                made.append_text(part)
            case str():
                made.append(part)
            case text, style:
                made.append(flat(clean(str(text)[:LINE_CHARS])).expandtabs(TAB), style)
    return made


def fitted(text: Text, width: int, signs: Signs) -> Text:
    """A copy that takes so many cells at most, with a sign where something is cut."""
    made = text.copy()
    if made.cell_len > width:
        made.truncate(max(0, width - 1))
        made.append(signs.cut if width > 0 else "")
    return made


def money(spend: Mapping[str, Any] | None, signs: Signs) -> str:
    """What was spent. Unknown is no zero; what a subscription pays for has a tilde before it."""
    if spend is None:
        return signs.dash
    about = "~" if spend.get("notional") else ""
    if spend.get("usd") is not None:
        return f"{about}${spend['usd']:.2f}"
    least = spend.get("atLeastUsd") or 0.0
    return f"{signs.least}{about}${least:.2f}" if least else "unknown"


def priced(spend: Mapping[str, Any] | None, signs: Signs) -> str:
    """The same where no heading says that it is money."""
    told = money(spend, signs)
    return f"cost {told}" if told == "unknown" else told


def thousands(number: float) -> str:
    """`940`, `12.4k`, `3.1M`."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return f"{number:.0f}"


def size_of(count: int) -> str:
    """`940 B`, `12.4 kB`, `5.0 GB`."""
    for size, letter in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {letter}"
    return f"{count} B"


def ago(epoch_s: float | None, now_s: float) -> str:
    """How long ago that was, in one unit."""
    if epoch_s is None:
        return ""
    seconds = max(0.0, now_s - epoch_s)
    for size, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size:.0f} {letter}"
    return f"{seconds:.0f} s"


def lasted(seconds: float | None, signs: Signs) -> str:
    return signs.dash if seconds is None else duration(seconds)
