"""Plain JSON grown from the events of a YAML parser: no tags, no recursion, and aliases that cannot blow it up."""

from __future__ import annotations

import math
import re

from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Never

MOST_LEVELS = 64
MOST_WEIGHT = 200_000  # entries met on the way through it all, aliases followed; a long text weighs as several
_NULL = ("", "~", "null", "Null", "NULL")
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_DATE = r"\d{4}-\d\d?-\d\d?(?:[Tt \t].*)?"
_NUMBER = r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?"


@value
class Odd:
    """What YAML knows and JSON does not, as it was written."""

    text: str
    what: str


def weight_of(text: str) -> int:
    """How much a text weighs among other entries."""
    return 1 + len(text) // 100


def resolved(text: str) -> object:
    """The value of a plain word by YAML 1.2's core schema. A date, which other readers make of it, is odd."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if re.fullmatch(r"[-+]?\d+|0o[0-7]+|0x[0-9a-fA-F]+", text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text, base) if len(text) <= 4000 else Odd(text[:20], "a number with too many digits")
    if re.fullmatch(_NUMBER, text) and math.isfinite(float(text)):
        return float(text)
    if re.fullmatch(rf"{_NUMBER}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", text):
        return Odd(text, "no number that JSON knows")
    return Odd(text, "a date") if re.fullmatch(_DATE, text) else text


class _Branch:
    """A list or a mapping that is still being read."""

    def __init__(self, items: list[object] | dict[str, object], anchor: str | None, weight: int) -> None:
        self.items, self.anchor, self.weight = items, anchor, weight
        self.key: str | None = None
        self.merges = False  # the value that comes next is that of `<<`
        self.merged: list[object] = []


class Tree:
    """Grows plain JSON from a parser's events, without recursion."""

    def __init__(self, name: str) -> None:
        self.name, self.line, self.documents = name, 1, list[object]()
        self._open: list[_Branch] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._weight = 0

    def grow(self, event: Any) -> None:
        """Take in what comes next."""
        self.line = event.start_mark.line + 1
        if getattr(event, "tag", None) is not None:
            self._refuse(f"the tag {str(event.tag)[:40]} is not allowed; write the value alone")
        match type(event).__name__:
            case "DocumentStartEvent":
                self._anchors.clear()
                if event.version not in (None, (1, 2)):
                    self._refuse("is YAML 1.1; only 1.2 is read")
            case "MappingStartEvent" | "SequenceStartEvent":
                self._begin({} if type(event).__name__ == "MappingStartEvent" else [], event.anchor)
            case "MappingEndEvent" | "SequenceEndEvent":
                self._end()
            case "AliasEvent":
                self._alias(event.anchor)
            case "ScalarEvent":
                self._scalar(event)

    def _refuse(self, why: str) -> Never:
        raise Refused(f"{self.name}:{self.line}: {why}")

    def _begin(self, items: list[object] | dict[str, object], anchor: str | None) -> None:
        if self._awaits_key():
            self._refuse("a key must be text")
        if len(self._open) >= MOST_LEVELS:
            self._refuse(f"is nested more than {MOST_LEVELS} deep")
        self._open.append(_Branch(items, anchor, self._weight))
        self._weigh(1)

    def _end(self) -> None:
        branch = self._open.pop()
        if isinstance(branch.items, dict):
            for name, inner in _pairs(branch.merged):
                branch.items.setdefault(name, inner)
        self._known(branch.anchor, branch.items, self._weight - branch.weight)
        self._put(branch.items)

    def _alias(self, anchor: str) -> None:
        if self._awaits_key():
            self._refuse("a key must be text")
        if any(branch.anchor == anchor for branch in self._open):
            self._refuse(f"*{anchor[:40]} refers to itself")
        if anchor not in self._anchors:
            self._refuse(f"*{anchor[:40]} refers to nothing")
        target, weight = self._anchors[anchor]
        self._weigh(weight)
        self._put(target)

    def _scalar(self, event: Any) -> None:
        text: str = event.value
        self._weigh(weight_of(text))
        if self._awaits_key():
            self._known(event.anchor, text, weight_of(text))
            self._key(text, merges=text == "<<" and event.implicit[0])
            return
        found = resolved(text) if event.implicit[0] else text
        self._known(event.anchor, found, weight_of(text))
        self._put(found)

    def _key(self, text: str, merges: bool) -> None:
        branch = self._open[-1]
        if text in branch.items or (merges and branch.merged):
            self._refuse(f"the key {text[:40]} is given twice")
        branch.key, branch.merges = text, merges

    def _put(self, found: object) -> None:
        if not self._open:
            self.documents.append(found)
            return
        branch = self._open[-1]
        if isinstance(branch.items, list):
            branch.items.append(found)
        elif branch.merges:
            branch.merged = found if isinstance(found, list) else [found]
            if not branch.merged or not all(isinstance(one, dict) for one in branch.merged):
                self._refuse("<< must stand before a mapping")
        elif branch.key is not None:
            branch.items[branch.key] = found
        branch.key = None

    def _awaits_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].items, dict) and self._open[-1].key is None

    def _known(self, anchor: str | None, found: object, weight: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = found, weight

    def _weigh(self, weight: int) -> None:
        self._weight += weight
        if self._weight > MOST_WEIGHT:
            self._refuse(f"holds too much: more than {MOST_WEIGHT} entries, aliases followed")


def _pairs(merged: list[object]) -> Iterator[tuple[str, object]]:
    return (pair for one in merged if isinstance(one, dict) for pair in one.items())
