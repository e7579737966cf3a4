"""Validation rules for the fields of tasks, stories and verification configs.

A rule takes a value and yields its problems, each worded to follow the field's path.
"""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Rule = Callable[[object], Iterator[str]]

MAX_KEY_CHARS = 120
KIB = 1024


def show_value(data: object) -> str:
    """A value as JSON, truncated to 60 characters."""
    import json

    text = json.dumps(data, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def suggest_name(name: str, known: Iterable[str]) -> str:
    """A suffix such as "; did you mean pytest?"; empty if no known name is similar."""
    import difflib

    folded = {item.casefold(): item for item in known}
    close = difflib.get_close_matches(name[:MAX_KEY_CHARS].casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[close[0]]}?" if close else ""


def unsafe_characters(text: str) -> str:
    """Names the characters that neither files nor program arguments accept; empty if there are none."""
    if "\0" in text:
        return "a NUL character"
    return "characters that are not Unicode" if re.search(r"[\ud800-\udfff]", text) else ""


def _control(text: str, lines: bool) -> str:
    """Problem of the first control character; empty if there is none. Emoji joiners and wide blanks are allowed."""
    first = r"\x00-\x08\x0b-\x1f" if lines else r"\x00-\x1f"
    match = re.search(rf"[{first}\x7f-\x9f\u2028\u2029]", text)
    if match and match[0] in "\n\r" and not lines:
        return " must be one line"
    return f" holds the character U+{ord(match[0]):04X}" if match else ""


def text(most: int, blank: bool = False, lines: bool = False) -> Rule:
    """Printable text of at most `most` characters; several lines only if `lines`."""

    def problems(data: object) -> Iterator[str]:
        if not isinstance(data, str):
            yield f" must be text, not {show_value(data)}{_quoting_hint(data)}"
        elif not blank and not data.strip():
            yield " is blank"
        elif len(data) > most:
            yield f" has {len(data)} characters; at most {most} are allowed"
        elif problem := unsafe_characters(data):
            yield f" holds {problem}"
        elif problem := _control(data, lines):
            yield problem

    return problems


def any_text(most_bytes: int, blank: bool = False) -> Rule:
    """Text of at most `most_bytes` bytes; control characters except NUL are allowed."""

    def problems(data: object) -> Iterator[str]:
        if not isinstance(data, str):
            yield f" must be text, not {show_value(data)}{_quoting_hint(data)}"
        elif not blank and not data.strip():
            yield " is blank"
        elif problem := unsafe_characters(data):
            yield f" holds {problem}"
        elif len(data.encode()) > most_bytes:
            yield f" has {len(data.encode())} bytes; at most {most_bytes // KIB} KiB are allowed"

    return problems


def _quoting_hint(data: object) -> str:
    return "; put it in quotes" if isinstance(data, bool | int | float) else ""


def list_of(item: Rule, most: int, least: int = 0) -> Rule:
    """A list whose items all follow one rule."""

    def problems(data: object) -> Iterator[str]:
        if not isinstance(data, list | tuple):
            yield f" must be a list, not {show_value(data)}"
        elif len(data) < least:
            yield " is empty"
        elif len(data) > most:
            yield f" has {len(data)} entries; at most {most} are allowed"
        else:
            yield from (f"[{place}]{fault}" for place, inner in enumerate(data) for fault in item(inner))

    return problems


def integer(least: int, most: int) -> Rule:
    """An integer within inclusive bounds."""

    def problems(data: object) -> Iterator[str]:
        if isinstance(data, bool) or not isinstance(data, int) or not least <= data <= most:
            yield f" must be a whole number from {least} to {most}, not {show_value(data)}"

    return problems


def number(most: float, least: float | None = None) -> Rule:
    """A number of at most `most` that is at least `least`, or above 0 without it."""

    def problems(data: object) -> Iterator[str]:
        known = isinstance(data, int | float) and not isinstance(data, bool)
        if not (known and (data > 0 if least is None else least <= data) and data <= most):  # type: ignore[operator]
            bounds = "above 0" if least is None else f"of {least:g} or more"
            yield f" must be a number {bounds}, at most {most:g}, not {show_value(data)}"

    return problems


def boolean(data: object) -> Iterator[str]:
    """True or false."""
    if not isinstance(data, bool):
        yield f" must be true or false, not {show_value(data)}"


def choice(*names: str) -> Rule:
    """One of these names."""

    def problems(data: object) -> Iterator[str]:
        if not isinstance(data, str) or data not in names:
            near = suggest_name(data, names) if isinstance(data, str) else ""
            yield f" must be one of {', '.join(names)}, not {show_value(data)}{near}"

    return problems


def mapping(data: object) -> Iterator[str]:
    """A mapping with any contents."""
    if not isinstance(data, dict):
        yield f" must be a mapping, not {show_value(data)}"


def project_folder(data: object) -> Iterator[str]:
    """A path relative to the project's root that does not leave it."""
    import os

    if faults := list(text(4096)(data)):
        yield from faults
    elif isinstance(data, str) and (os.path.isabs(data) or os.path.normpath(data).split(os.sep)[0] == os.pardir):
        yield f" must be a folder inside the project, written from its root, not {show_value(data)}"


def validate_mapping(data: object, path: str, table: Mapping[str, Rule], needed: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield every problem of a mapping by the rules of its keys. A key with the value None counts as absent."""
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
