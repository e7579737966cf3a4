"""Text that people wrote, as plain JSON: YAML 1.2 or JSON, bounded in size, depth and in what aliases make of it."""

from __future__ import annotations

import math
import re

from ralphproof.errors import Refused
from ralphproof.plans.yaml_tree import MOST_LEVELS, MOST_WEIGHT, Tree, weight_of
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Never

MOST_BYTES = 10 * 1024 * 1024
_UNPRINTABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # to YAML


def parsed(data: bytes, name: str) -> list[object]:
    """The documents of a file as plain JSON, with `Odd` where a value is none. Raises Refused with name and line."""
    if len(data) > MOST_BYTES:
        raise Refused(f"{name} is larger than {MOST_BYTES // 1024 // 1024} MiB")
    text = _decoded(data, name)
    if name.lower().endswith(".json") or text.lstrip()[:1] in ("{", "["):
        found = _json(text, name)
        if found is not None or name.lower().endswith(".json"):
            return [found]
    return _yaml(text, name)


def _decoded(data: bytes, name: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Refused(f"{name} is UTF-16; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise Refused(f"{name}:{line}: is not UTF-8; save it as UTF-8") from error


def _json(text: str, name: str) -> object:
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
        raise Refused(f"{name} is nested more than {MOST_LEVELS} deep") from error
    except ValueError as error:
        raise Refused(f"{name} holds a number with too many digits") from error
    _bounded(data, name)
    return data


def _bounded(data: object, name: str) -> None:
    level, weight = [data], 0
    for _ in range(MOST_LEVELS + 1):
        weight += sum(weight_of(item) if isinstance(item, str) else 1 for item in level)
        if weight > MOST_WEIGHT:
            raise Refused(f"{name} holds too much: more than {MOST_WEIGHT} entries")
        branches = [item for item in level if isinstance(item, dict | list)]
        level = [inner for item in branches for inner in (item.values() if isinstance(item, dict) else item)]
    if level:
        raise Refused(f"{name} is nested more than {MOST_LEVELS} deep")


def _yaml(text: str, name: str) -> list[object]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if found := re.search(_UNPRINTABLE, text):
        line = text.count("\n", 0, found.start()) + 1
        raise Refused(f"{name}:{line}: holds the character U+{ord(found[0]):04X}; remove it")
    tree = Tree(name)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            tree.grow(event)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Refused(f"{name}:{mark.line + 1 if mark else tree.line}: {_why(error.problem)}") from error
    except (YAMLError, ValueError, OverflowError) as error:  # it lets a bad escape or version through to Python
        raise Refused(f"{name}:{tree.line}: is not YAML: {str(error).splitlines()[0]}") from error
    return tree.documents


def _why(problem: str | None) -> str:
    if problem and "'\\t'" in problem:
        return "a tab cannot indent in YAML; use blanks"
    return f"is not YAML: {(problem or 'it ends too early').splitlines()[0]}"
