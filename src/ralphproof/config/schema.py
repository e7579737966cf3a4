"""Says everything that is wrong with a settings object at once, by the table of keys."""

from __future__ import annotations

import math

from ralphproof.claim import without_tags
from ralphproof.config.keys import KEYS, Key, defaults
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PLURALS = {
    "text": "texts", "integer": "whole numbers", "number": "numbers", "boolean": "booleans",
    "object": "objects", "choice": "choices", "word": "words",
}  # fmt: skip


@value
class Problem:
    """One thing that is wrong: in which file or variable, at which key, and the sentence that says so."""

    where: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def check(data: object, where: str) -> list[Problem]:
    """All problems of one layer of settings; a layer may leave out anything."""
    return [Problem(where, path, message) for path, message in _walk(data, KEYS, "")]


def normal(data: object, key: Key = KEYS) -> object:
    """Checked settings in their one spelling, with the defaults of what the objects of a list or a map leave out."""
    if isinstance(data, dict) and key.kind == "object":
        keys = key.keys or {}
        return {name: normal(inner, keys.get(name) or key) for name, inner in data.items()}
    if isinstance(data, dict) and key.item is not None:
        return {name: _completed(normal(inner, key.item), key.item) for name, inner in data.items()}
    if key.single and isinstance(data, str):
        return [data]
    if isinstance(data, list) and key.item is not None:
        return [_completed(normal(inner, key.item), key.item) for inner in data]
    return data.upper() if key.any_case and isinstance(data, str) else data


def _completed(data: object, key: Key) -> object:
    filled = defaults(key) if isinstance(data, dict) else None
    return {**filled, **data} if isinstance(filled, dict) and isinstance(data, dict) else data


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that says which known name was probably meant; empty where none is near."""
    import difflib

    folded = {item.casefold(): item for item in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[close[0]]}?" if close else ""


def expects(key: Key) -> str:
    """What a key may hold, in words."""
    words = {
        "object": "an object", "free": "an object", "map": "an object", "boolean": "true or false",
        "choice": f"one of {', '.join(key.choices)}", "integer": f"a whole number{_bounds(key)}",
        "number": f"a number{_bounds(key)}", "list": "a list",
        "text": "text" if key.blank else "text that is not blank", "word": "a word that is not blank",
    }[key.kind]  # fmt: skip
    if key.kind == "list" and key.item is not None:
        words = f"a list of {_PLURALS[key.item.kind]}" + (" that is not empty" if key.least else "")
        words = f"{expects(key.item)}, or {words}" if key.single else words
    return f"{words} or null" if key.nullable else words


def _bounds(key: Key) -> str:
    if key.above is not None:
        return f" above {key.above:g}"
    return f" of {key.least:g} or more" if key.least is not None else ""


def _walk(data: object, key: Key, path: str, whole: bool = False) -> Iterator[tuple[str, str]]:
    """`whole`: nothing can be merged into this object any more, so what it needs must be in it."""
    if data is None and key.nullable:
        return
    if data is None and path:
        yield path, f"{path} may not be null; leave the key out, or give {expects(key)}"
    elif key.kind in ("object", "map"):
        yield from _object(data, key, path, whole)
    elif key.single and key.item and isinstance(data, str):
        yield from _walk(data, key.item, path)
    elif key.kind == "list" and isinstance(data, list):
        if key.least is not None and len(data) < key.least:
            yield path, f"{path} must be {expects(key)}"
        for place, inner in enumerate(data):
            yield from _walk(inner, key.item or key, f"{path}[{place}]", whole=True)
    elif wrong := _scalar(data, key):
        yield path, f"{path} {wrong}"


def _object(data: object, key: Key, path: str, whole: bool) -> Iterator[tuple[str, str]]:
    if not isinstance(data, dict):
        yield path, f"{path or 'settings'} must be an object, not {shown(data)}"
        return
    dot = f"{path}." if path else ""
    for name, inner in data.items():
        if key.kind == "map":
            yield from _named(name, inner, key.item or key, path)
        elif name in (key.keys or {}):
            yield from _walk(inner, (key.keys or {})[name], dot + name, whole)
        elif path or name != "$schema":
            known = [dot + item for item in key.keys or {}]
            yield dot + name, f"unknown key {dot}{name}{nearest(dot + name, known)}"
    for name, inner_key in (key.keys or {}).items():
        if whole and inner_key.required and name not in data:
            yield dot + name, f"{dot}{name} is missing"
    if whole and key.any_of and not any(name in data for name in key.any_of):
        yield dot + key.any_of[0], f"{dot}{key.any_of[0]} is missing"


def _named(name: str, inner: object, item: Key, path: str) -> Iterator[tuple[str, str]]:
    if not name.strip() or "=" in name or unprintable(name):
        yield path, f"{path} has {shown(name)} as a name; names are not blank and hold no ="
    else:
        yield from _walk(inner, item, f"{path}.{name}", whole=True)


def _scalar(data: object, key: Key) -> str:
    """Why a value may not stand there; empty where it may."""
    if not _fits(data, key):
        return f"must be {expects(key)}, not {shown(data)}"
    if isinstance(data, str) and (why := unprintable(data)):
        return f"holds {why}"
    if isinstance(data, int | float) and key.most is not None and data > key.most:
        return f"must be at most {key.most:.0f}, not {shown(data)}"
    return ""


def _fits(data: object, key: Key) -> bool:
    match key.kind:
        case "boolean":
            return isinstance(data, bool)
        case "integer":
            return isinstance(data, int) and not isinstance(data, bool) and _in_bounds(data, key)
        case "number":
            return isinstance(data, int | float) and not isinstance(data, bool) and _in_bounds(data, key)
        case "choice":
            return isinstance(data, str) and (data.upper() if key.any_case else data) in key.choices
        case "text":
            return isinstance(data, str) and (key.blank or bool(data.strip()))
        case "word":
            return isinstance(data, str) and bool(without_tags(data))
        case "free":
            return isinstance(data, dict)
        case _:
            return False


def _in_bounds(number: float, key: Key) -> bool:
    return (isinstance(number, int) or math.isfinite(number)) and not (
        (key.least is not None and number < key.least) or (key.above is not None and number <= key.above)
    )


def unprintable(text: str) -> str:
    """What in a text no program can be started with; empty where there is nothing."""
    if "\0" in text:
        return "a NUL character"
    return "characters that are not Unicode" if any("\ud800" <= letter <= "\udfff" for letter in text) else ""


def shown(data: object) -> str:
    """A value as the user wrote it, cut where it is long."""
    import json

    text = json.dumps(data, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
