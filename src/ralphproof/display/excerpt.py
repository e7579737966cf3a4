"""As much of a stranger's text as a display has room for, masked and clean."""

from __future__ import annotations

from ralphproof.display.clean import clean, flat
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Looked at beyond what is shown: a secret that a cut would halve is still seen whole.
MARGIN_CHARS = 4096


def excerpt(text: str, lines: int, chars: int, cut: str) -> tuple[list[str], list[str], bool]:
    """The first and the last lines of a clean text, at most so many lines and characters, and whether it is whole.

    Ends matter: test summaries stand there. `cut` stands where a line is broken off. One line is the first one.
    """
    below = lines // 2
    if len(text) > chars:
        end_chars = chars // 2 if below else 0
        first = _cut_after(text, chars - end_chars, cut)[: lines - below]
        return first, _cut_before(text, end_chars, cut)[-below:] if end_chars else [], False
    every = text.splitlines()
    if len(every) <= lines:
        return every, [], True
    return every[: lines - below], every[len(every) - below :], False


def _cut_after(text: str, chars: int, cut: str) -> list[str]:
    lines = text[:chars].splitlines()
    if text[chars : chars + 1] not in ("", "\n") and not text[:chars].endswith("\n"):
        lines[-1] += cut
    return lines


def _cut_before(text: str, chars: int, cut: str) -> list[str]:
    lines = text[-chars:].splitlines()
    if text[-chars - 1] != "\n" and not text[-chars:].startswith("\n"):
        lines[0] = cut + lines[0]
    return lines


def window(text: str, chars: int, mask: Callable[[str], str]) -> str:
    """What an excerpt of so many characters is made from, without blank lines around it, however long the text is."""
    most = chars + MARGIN_CHARS
    if len(text) <= 2 * most:
        return clean(mask(text)).rstrip().lstrip("\n")
    return f"{clean(mask(text[:most])).lstrip(chr(10))}\n{clean(mask(text[-most:])).rstrip()}"


def one_line(text: str, chars: int, cut: str, mask: Callable[[str], str] = str) -> str:
    """The text in one line of at most so many characters."""
    text = mask(text[: chars + MARGIN_CHARS])
    if not text.isprintable():
        text = flat(clean(text)).strip()
    return text if len(text) <= chars else text[: max(0, chars - len(cut))] + cut
