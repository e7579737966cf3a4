"""YAML: files as plain JSON values, the front matter of Markdown, and writing.

YAML 1.2's core schema, without tags, anchors and aliases: what is read is as large as what was written.
"""

from __future__ import annotations

import math
import re

from ralphproof.base.errors import Refused
from ralphproof.base.json_text import UnusableFile, decode_utf8, parse_json
from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from ralphproof.base.value import Json

MAX_YAML_BYTES = 10 << 20
MAX_YAML_DEPTH = 64
MAX_DIGITS = 4000
_NULL = ("", "~", "null", "Null", "NULL")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_UNPRINTABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # to YAML


class YamlFault(Exception):
    """Why a text cannot be read, and in which line."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"{line}: {why}")
        self.line, self.why = line, why


def parse_yaml_documents(data: bytes, name: str) -> list[object]:
    """The documents of a YAML or JSON file. Raises Refused with name and line."""
    if len(data) > MAX_YAML_BYTES:
        raise Refused(f"{name} is larger than {MAX_YAML_BYTES >> 20} MiB")
    text = decode_utf8(data)
    if isinstance(text, UnusableFile):
        raise Refused(f"{name}:{text.why}")
    is_json = name.lower().endswith(".json")
    if is_json or text.lstrip()[:1] in ("{", "["):
        parsed = parse_json(text)
        if not parsed.faults:
            return [parsed.data]
        if is_json:
            fault = parsed.faults[0]
            raise Refused(f"{name}:{fault}" if fault[0].isdigit() else f"{name}: {fault}")
    try:
        return _parse(text, resolve_scalar)
    except YamlFault as fault:
        raise Refused(f"{name}:{fault}") from fault


def resolve_scalar(text: str) -> object:
    """The value of a plain scalar. What JSON does not know, such as a date, is text."""
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if re.fullmatch(r"[-+]?\d+|0o[0-7]+|0x[0-9a-fA-F]+", text) and len(text) <= MAX_DIGITS:
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if re.fullmatch(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?", text) and math.isfinite(float(text)):
        return float(text)
    return text


def _parse(text: str, resolve: Callable[[str], object]) -> list[object]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if found := re.search(_UNPRINTABLE, text):
        line = text.count("\n", 0, found.start()) + 1
        raise YamlFault(line, f"holds the character U+{ord(found[0]):04X}; remove it")
    builder = _Builder(resolve)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            builder.add(event)
    except MarkedYAMLError as error:
        mark, why = error.problem_mark or error.context_mark, error.problem or "it ends too early"
        tab = "'\\t'" in why
        reason = "a tab cannot indent in YAML; use blanks" if tab else f"is not YAML: {why.splitlines()[0]}"
        raise YamlFault(mark.line + 1 if mark else builder.line, reason) from error
    except (YAMLError, ValueError, OverflowError) as error:  # it lets a bad escape through to Python
        raise YamlFault(builder.line, f"is not YAML: {str(error).splitlines()[0]}") from error
    return builder.documents


class _Builder:
    """Builds plain values from a parser's events, without recursion."""

    def __init__(self, resolve: Callable[[str], object]) -> None:
        self.line, self.documents = 1, list[object]()
        self._resolve = resolve
        self._open: list[dict[str, object] | list[object]] = []
        self._keys: list[str | None] = []  # of each open mapping the key that waits for its value

    def add(self, event: Any) -> None:
        self.line = event.start_mark.line + 1
        if getattr(event, "tag", None) is not None:
            raise YamlFault(self.line, f"the tag {str(event.tag)[:40]} is not allowed; write the value alone")
        match type(event).__name__:
            case "MappingStartEvent":
                self._begin({})
            case "SequenceStartEvent":
                self._begin([])
            case "MappingEndEvent" | "SequenceEndEvent":
                self._keys.pop()
                self._put(self._open.pop())
            case "AliasEvent":
                raise YamlFault(self.line, f"the alias *{event.anchor[:40]} is not followed; write the value out")
            case "ScalarEvent" if self._awaits_key():
                mapping = self._open[-1]
                if event.value in mapping:
                    raise YamlFault(self.line, f"the key {event.value[:40]} is given twice")
                self._keys[-1] = event.value
            case "ScalarEvent":
                self._put(self._resolve(event.value) if event.implicit[0] else event.value)

    def _awaits_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1], dict) and self._keys[-1] is None

    def _begin(self, node: dict[str, object] | list[object]) -> None:
        if self._awaits_key():
            raise YamlFault(self.line, "a key must be text")
        if len(self._open) >= MAX_YAML_DEPTH:
            raise YamlFault(self.line, f"is nested more than {MAX_YAML_DEPTH} deep")
        self._open.append(node)
        self._keys.append(None)

    def _put(self, found: object) -> None:
        if not self._open:
            self.documents.append(found)
            return
        node, key = self._open[-1], self._keys[-1]
        if isinstance(node, list):
            node.append(found)
        elif key is not None:
            node[key] = found
            self._keys[-1] = None


# Front matter


@value
class FrontMatter:
    """The values by key, and the text below. A `fault` begins with its line; then nothing else is of use."""

    values: dict[str, str | tuple[str, ...]]
    body: str = ""
    fault: str = ""


def parse_front_matter(text: str, wanted: Collection[str]) -> FrontMatter:
    """The texts and lists of texts under the wanted keys. A text that does not begin with --- has none.

    Where people write what is no YAML, such as `description: Use it when: always`, each line's value is one text.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    begin = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if lines[begin].rstrip() != "---":
        return FrontMatter({}, "\n".join(lines))
    end = next((at for at, line in enumerate(lines) if at > begin and line.rstrip() in ("---", "...")), None)
    if end is None:
        return FrontMatter({}, fault=f"{begin + 1}: the front matter has no end; close it with a line ---")
    matter, body = lines[begin + 1 : end], "\n".join(lines[end + 1 :])
    for attempt in (matter, [_quote_value(line) for line in matter]):
        try:
            return FrontMatter(_wanted_values("\n".join(attempt), wanted), body)
        except YamlFault as error:
            fault = error
    return FrontMatter({}, fault=f"{begin + 1 + fault.line}: {fault.why}")


def _wanted_values(matter: str, wanted: Collection[str]) -> dict[str, str | tuple[str, ...]]:
    documents = _parse(matter, lambda text: "" if text in _NULL else text) or [{}]
    found = documents[0] or {}
    if not isinstance(found, dict):
        raise YamlFault(1, "this is no key with a value; write key: value, and indent what belongs to it")
    values: dict[str, str | tuple[str, ...]] = {}
    for key in wanted:
        match found.get(key):
            case None:
                continue
            case str(text):
                values[key] = _clean(text)
            case [*items] if all(isinstance(item, str) for item in items):
                values[key] = tuple(map(_clean, items))
            case _:
                raise YamlFault(1, f"{key} must be a text or a list of texts; quote what holds a colon or a bracket")
    return values


def _clean(text: str) -> str:
    return text.strip("\n").encode("utf-8", "replace").decode()


def _quote_value(line: str) -> str:
    """The line with its value in quotes, where a colon in it or its first character means something else in YAML."""
    found = re.fullmatch(r"(\s*(?:-\s+|[\w-]+:\s+))((?![\"'\[{|>#]).*(?::\s|:$).*|[*&!%@`].*)", line)
    if found is None:
        return line
    text = re.sub(r"\s+#.*", "", found[2]).replace("'", "''")
    return f"{found[1]}'{text}'"


# Writing


# Words that some YAML reader takes for something else than text.
_RESERVED_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"))


def dump_yaml(data: Json) -> str:
    """YAML as people write it: block scalars for several lines, and quotes only where a reader may need them."""
    from io import StringIO

    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 1 << 30
    yaml.representer.ignore_aliases = lambda _: True
    text = StringIO()
    yaml.dump(_styled(data), text)
    return text.getvalue()


def _styled(data: Json) -> object:
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    match data:
        case dict():
            return {_styled(key): _styled(inner) for key, inner in data.items()}
        case list():
            return [_styled(inner) for inner in data]
        case str() if _has_plain_lines(data):
            return LiteralScalarString(data)
        case str() if not re.fullmatch(r"[A-Za-z_][\w.-]*", data, re.ASCII) or data.lower() in _RESERVED_WORDS:
            return DoubleQuotedScalarString(data)
        case _:
            return data


def _has_plain_lines(text: str) -> bool:
    """Whether a text has several lines, and a block scalar gives back each of them as it is."""
    if "\n" not in text or re.search("[^\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text):
        return False
    return text[0] not in " \n" and not re.search("[\u2028\u2029\ufeff]|(?m:^ +$)", text)
