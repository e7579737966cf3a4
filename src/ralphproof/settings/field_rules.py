"""Validation rules for the fields of tasks, stories and verification configs."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Rule = Callable[[object], Iterator[str]]

MAX_KEY_CHARS = 120
KIB = 1024


def show_value(data: object) -> str:
    """A value as it was written, truncated if it is long."""
    import json

    text = json.dumps(data, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def suggest_name(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that says which known name was probably meant; empty where none is near."""
    import difflib

    folded = {item.casefold(): item for item in known}
    close = difflib.get_close_matches(name[:MAX_KEY_CHARS].casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[close[0]]}?" if close else ""


def unsafe_characters(text: str) -> str:
    """Characters that neither a file nor a program accepts; empty if there are none."""
    if "\0" in text:
        return "a NUL character"
    return "characters that are not Unicode" if re.search(r"[\ud800-\udfff]", text) else ""


def _control(text: str, lines: bool) -> str:
    """The first character that is no letter, sign or blank. Joiners of emoji and wide blanks are none of them."""
    first = r"\x00-\x08\x0b-\x1f" if lines else r"\x00-\x1f"
    found = re.search(rf"[{first}\x7f-\x9f\u2028\u2029]", text)
    if found and found[0] in "\n\r" and not lines:
        return " must be one line"
    return f" holds the character U+{ord(found[0]):04X}" if found else ""


def text(most: int, blank: bool = False, lines: bool = False) -> Rule:
    """Printable text of at most so many characters."""

    def wrong(data: object) -> Iterator[str]:
        if not isinstance(data, str):
            yield f" must be text, not {show_value(data)}{_quoting_hint(data)}"
        elif not blank and not data.strip():
            yield " is blank"
        elif len(data) > most:
            yield f" has {len(data)} characters; at most {most} are allowed"
        elif found := unsafe_characters(data):
            yield f" holds {found}"
        elif found := _control(data, lines):
            yield found

    return wrong


def any_text(most_bytes: int, blank: bool = False) -> Rule:
    """Any text that a file can hold, of at most so many bytes."""

    def wrong(data: object) -> Iterator[str]:
        if not isinstance(data, str):
            yield f" must be text, not {show_value(data)}{_quoting_hint(data)}"
        elif not blank and not data.strip():
            yield " is blank"
        elif found := unsafe_characters(data):
            yield f" holds {found}"
        elif len(data.encode()) > most_bytes:
            yield f" has {len(data.encode())} bytes; at most {most_bytes // KIB} KiB are allowed"

    return wrong


def _quoting_hint(data: object) -> str:
    return "; put it in quotes" if isinstance(data, bool | int | float) else ""


def list_of(item: Rule, most: int, least: int = 0) -> Rule:
    """A list of such texts."""

    def wrong(data: object) -> Iterator[str]:
        if not isinstance(data, list | tuple):
            yield f" must be a list, not {show_value(data)}"
        elif len(data) < least:
            yield " is empty"
        elif len(data) > most:
            yield f" has {len(data)} entries; at most {most} are allowed"
        else:
            yield from (f"[{place}]{fault}" for place, inner in enumerate(data) for fault in item(inner))

    return wrong


def integer(least: int, most: int) -> Rule:
    """A whole number within these bounds."""

    def wrong(data: object) -> Iterator[str]:
        if isinstance(data, bool) or not isinstance(data, int) or not least <= data <= most:
            yield f" must be a whole number from {least} to {most}, not {show_value(data)}"

    return wrong


def number(most: float, least: float | None = None) -> Rule:
    """A number up to `most`: from `least` on, or above 0."""

    def wrong(data: object) -> Iterator[str]:
        known = isinstance(data, int | float) and not isinstance(data, bool)
        if not (known and (data > 0 if least is None else least <= data) and data <= most):  # type: ignore[operator]
            bounds = "above 0" if least is None else f"of {least:g} or more"
            yield f" must be a number {bounds}, at most {most:g}, not {show_value(data)}"

    return wrong


def boolean(data: object) -> Iterator[str]:
    """True or false."""
    if not isinstance(data, bool):
        yield f" must be true or false, not {show_value(data)}"


def choice(*names: str) -> Rule:
    """One of these words."""

    def wrong(data: object) -> Iterator[str]:
        if not isinstance(data, str) or data not in names:
            near = suggest_name(data, names) if isinstance(data, str) else ""
            yield f" must be one of {', '.join(names)}, not {show_value(data)}{near}"

    return wrong


def mapping(data: object) -> Iterator[str]:
    """A mapping of whatever."""
    if not isinstance(data, dict):
        yield f" must be a mapping, not {show_value(data)}"


def project_folder(data: object) -> Iterator[str]:
    """A folder below the project's root, written from there."""
    import os

    if faults := list(text(4096)(data)):
        yield from faults
    elif isinstance(data, str) and (os.path.isabs(data) or os.path.normpath(data).split(os.sep)[0] == os.pardir):
        yield f" must be a folder inside the project, written from its root, not {show_value(data)}"


def validate_mapping(data: object, path: str, table: Mapping[str, Rule], needed: tuple[str, ...] = ()) -> Iterator[str]:
    """All that is wrong with a mapping by the rules of its keys. A key without a value counts as left out."""
    if not isinstance(data, dict):
        yield f"{path} must be a mapping, not {show_value(data)}"
        return
    dot = f"{path}." if path else ""
    for name in data:
        if name not in table:
            yield f"unknown key {dot}{name if _is_plain_key(name) else show_value(name)}{suggest_name(name, table)}"
    for name, rule in table.items():
        if data.get(name) is not None:
            yield from (f"{dot}{name}{fault}" for fault in rule(data[name]))
        elif name in needed:
            yield f"{dot}{name} is missing"


def _is_plain_key(name: str) -> bool:
    return len(name) <= MAX_KEY_CHARS and name.isprintable() and bool(name.strip())
