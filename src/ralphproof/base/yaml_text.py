"""Reading YAML and JSON files into plain JSON values: bounded, no tags, limited aliases."""

from __future__ import annotations

import math
import re

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Never


# Plain JSON grown from the events of a YAML parser: no tags, no recursion, and aliases that cannot blow it up.


MAX_YAML_DEPTH = 64
MAX_YAML_WEIGHT = 200_000  # entries met on the way through it all, aliases followed; a long text weighs as several
_NULL = ("", "~", "null", "Null", "NULL")
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_DATE = r"\d{4}-\d\d?-\d\d?(?:[Tt \t].*)?"
_NUMBER = r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?"


@value
class UnsupportedYaml:
    """What YAML knows and JSON does not, as it was written."""

    text: str
    what: str


def text_weight(text: str) -> int:
    """How much a text weighs among other entries."""
    return 1 + len(text) // 100


def resolve_scalar(text: str) -> object:
    """The value of a plain word by YAML 1.2's core schema. A date, which other readers make of it, is odd."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if re.fullmatch(r"[-+]?\d+|0o[0-7]+|0x[0-9a-fA-F]+", text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text, base) if len(text) <= 4000 else UnsupportedYaml(text[:20], "a number with too many digits")
    if re.fullmatch(_NUMBER, text) and math.isfinite(float(text)):
        return float(text)
    if re.fullmatch(rf"{_NUMBER}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", text):
        return UnsupportedYaml(text, "no number that JSON knows")
    return UnsupportedYaml(text, "a date") if re.fullmatch(_DATE, text) else text


class _OpenNode:
    """A list or a mapping that is still being read."""

    def __init__(self, items: list[object] | dict[str, object], anchor: str | None, weight: int) -> None:
        self.items, self.anchor, self.weight = items, anchor, weight
        self.key: str | None = None
        self.merges = False  # the value that comes next is that of `<<`
        self.merged: list[object] = []


class YamlTreeBuilder:
    """Grows plain JSON from a parser's events, without recursion."""

    def __init__(self, name: str) -> None:
        self.name, self.line, self.documents = name, 1, list[object]()
        self._open: list[_OpenNode] = []
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
        if len(self._open) >= MAX_YAML_DEPTH:
            self._refuse(f"is nested more than {MAX_YAML_DEPTH} deep")
        self._open.append(_OpenNode(items, anchor, self._weight))
        self._weigh(1)

    def _end(self) -> None:
        branch = self._open.pop()
        if isinstance(branch.items, dict):
            for name, inner in _merged_pairs(branch.merged):
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
        self._weigh(text_weight(text))
        if self._awaits_key():
            self._known(event.anchor, text, text_weight(text))
            self._key(text, merges=text == "<<" and event.implicit[0])
            return
        found = resolve_scalar(text) if event.implicit[0] else text
        self._known(event.anchor, found, text_weight(text))
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
        if self._weight > MAX_YAML_WEIGHT:
            self._refuse(f"holds too much: more than {MAX_YAML_WEIGHT} entries, aliases followed")


def _merged_pairs(merged: list[object]) -> Iterator[tuple[str, object]]:
    return (pair for one in merged if isinstance(one, dict) for pair in one.items())


# Text that people wrote, as plain JSON: YAML 1.2 or JSON, bounded in size, depth and in what aliases make of it.


MAX_YAML_BYTES = 10 * 1024 * 1024
_UNPRINTABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # to YAML


def parse_yaml_documents(data: bytes, name: str) -> list[object]:
    """The documents of a file as plain JSON, with `Odd` where a value is none. Raises Refused with name and line."""
    if len(data) > MAX_YAML_BYTES:
        raise Refused(f"{name} is larger than {MAX_YAML_BYTES // 1024 // 1024} MiB")
    text = _decode_utf8(data, name)
    if name.lower().endswith(".json") or text.lstrip()[:1] in ("{", "["):
        found = _parse_json(text, name)
        if found is not None or name.lower().endswith(".json"):
            return [found]
    return _parse_yaml(text, name)


def _decode_utf8(data: bytes, name: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Refused(f"{name} is UTF-16; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise Refused(f"{name}:{line}: is not UTF-8; save it as UTF-8") from error


def _parse_json(text: str, name: str) -> object:
    """The value of a JSON text; None where it is no JSON and yet may be YAML."""
    import json

    def refused(constant: str) -> Never:
        raise Refused(f"{name}: {constant} is not JSON; leave it out or give a number")

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        made: dict[str, object] = {}
        for key, inner in pairs:
            if key in made:
                raise Refused(f"{name}: the key {key[:40]} is given twice")
            made[key] = inner
        return made

    def finite(digits: str) -> float:
        return float(digits) if math.isfinite(float(digits)) else refused(digits[:40])

    try:
        data: object = json.loads(text, object_pairs_hook=once, parse_constant=refused, parse_float=finite)
    except json.JSONDecodeError as error:
        if not name.lower().endswith(".json"):
            return None
        raise Refused(f"{name}:{error.lineno}: is not JSON: {error.msg[:1].lower()}{error.msg[1:]}") from error
    except RecursionError as error:
        raise Refused(f"{name} is nested more than {MAX_YAML_DEPTH} deep") from error
    except ValueError as error:
        raise Refused(f"{name} holds a number with too many digits") from error
    _check_bounds(data, name)
    return data


def _check_bounds(data: object, name: str) -> None:
    level, weight = [data], 0
    for _ in range(MAX_YAML_DEPTH + 1):
        weight += sum(text_weight(item) if isinstance(item, str) else 1 for item in level)
        if weight > MAX_YAML_WEIGHT:
            raise Refused(f"{name} holds too much: more than {MAX_YAML_WEIGHT} entries")
        branches = [item for item in level if isinstance(item, dict | list)]
        level = [inner for item in branches for inner in (item.values() if isinstance(item, dict) else item)]
    if level:
        raise Refused(f"{name} is nested more than {MAX_YAML_DEPTH} deep")


def _parse_yaml(text: str, name: str) -> list[object]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if found := re.search(_UNPRINTABLE, text):
        line = text.count("\n", 0, found.start()) + 1
        raise Refused(f"{name}:{line}: holds the character U+{ord(found[0]):04X}; remove it")
    tree = YamlTreeBuilder(name)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            tree.grow(event)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Refused(f"{name}:{mark.line + 1 if mark else tree.line}: {_yaml_reason(error.problem)}") from error
    except (YAMLError, ValueError, OverflowError) as error:  # it lets a bad escape or version through to Python
        raise Refused(f"{name}:{tree.line}: is not YAML: {str(error).splitlines()[0]}") from error
    return tree.documents


def _yaml_reason(problem: str | None) -> str:
    if problem and "'\\t'" in problem:
        return "a tab cannot indent in YAML; use blanks"
    return f"is not YAML: {(problem or 'it ends too early').splitlines()[0]}"
