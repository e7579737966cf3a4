"""Front matter of a Markdown text: the subset of YAML that people write there.

Keys that nobody asks for may hold anything. In the others a colon within a text is a part of it.
"""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_KEY = r"""(?:"([^"]+)"\s*+|'([^']+)'\s*+|([^\s:#"'\[\]{}-][^:]*+)):(?:\s+(.*))?$"""
_BLOCK = r"([|>])[+-]?([1-9]?)[+-]?\s*(?:#.*)?"
_QUOTED = r"""("(?:[^"\\]|\\.)*+"|'(?:[^']|'')*+')"""
_FLOW = rf"""\s*+(?:{_QUOTED}|((?!["'#])[^,\[\]{{}}]*+))\s*+([,\]])"""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "", "e": ""}


@value
class FrontMatter:
    """The values by key, and the text below. A `fault` begins with its line; then nothing else is of use."""

    values: dict[str, str | tuple[str, ...]]
    body: str = ""
    fault: str = ""


@value
class FrontMatterEntry:
    """A key or an item with what stands behind it, and the lines that belong to it."""

    line: int
    key: str
    rest: str
    block: tuple[str, ...] = ()


class _UnsupportedSyntax(Exception):
    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"{line}: {why}")


def parse_front_matter(text: str, wanted: Collection[str]) -> FrontMatter:
    """What the wanted keys hold. A text that does not begin with --- has none."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    begin = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if lines[begin].rstrip() != "---":
        return FrontMatter({}, "\n".join(lines))
    end = next((at for at, line in enumerate(lines) if at > begin and line.rstrip() in ("---", "...")), None)
    if end is None:
        return FrontMatter({}, fault=f"{begin + 1}: the front matter has no end; close it with a line ---")
    values: dict[str, str | tuple[str, ...]] = {}
    seen: set[str] = set()
    try:
        for entry in _entries(lines[begin + 1 : end], begin + 2):
            if entry.key in seen:
                raise _UnsupportedSyntax(entry.line, f"the key {entry.key} is given twice")
            seen.add(entry.key)
            if entry.key in wanted:
                values[entry.key] = _value(entry)
    except _UnsupportedSyntax as unclear:
        return FrontMatter({}, fault=str(unclear))
    return FrontMatter(values, "\n".join(lines[end + 1 :]))


def _entries(lines: list[str], first: int) -> Iterator[FrontMatterEntry]:
    """The keys at the margin, each with the lines that belong to it."""
    key, rest, at, block = "", "", 0, list[str]()
    for number, line in enumerate(lines, first):
        if line.startswith("#"):
            continue
        if not line.strip() or line[0] in " \t-]}":
            if line.strip() and not at:
                raise _UnsupportedSyntax(number, "this line belongs to no key")
            block.append(line)
            continue
        found = re.match(_KEY, line)
        if found is None:
            raise _UnsupportedSyntax(
                number, "this is no key with a value; write key: value, and indent what belongs to it"
            )
        if at:
            yield FrontMatterEntry(at, key, rest, tuple(block))
        key, rest, at, block = found[1] or found[2] or found[3].rstrip(), (found[4] or "").strip(), number, []
    if at:
        yield FrontMatterEntry(at, key, rest, tuple(block))


def _value(entry: FrontMatterEntry) -> str | tuple[str, ...]:
    if not _uncommented(entry.rest):
        below = [line for line in entry.block if not re.match(r"\s*(#|$)", line)]
        first = below[0].strip() if below else ""
        if re.match(r"-(\s|$)", first):
            return tuple(_text(item) for item in _items(entry.line, below))
        if re.match(r"[^\s\"'\[]+:(\s|$)", first):
            raise _UnsupportedSyntax(
                entry.line, f"{entry.key} holds keys of its own; a text or a list of texts is wanted"
            )
        entry = FrontMatterEntry(entry.line, entry.key, first, tuple(below[1:]))
    if entry.rest.startswith("["):
        return tuple(_flow(entry))
    return _text(entry)


def _items(line: int, below: list[str]) -> Iterator[FrontMatterEntry]:
    """The items of a list that is written one a line."""
    margin = len(below[0]) - len(below[0].lstrip())
    item: list[str] = []
    for each in [*below, ""]:
        begins = re.match(r"\s*-(?:\s|$)", each) and len(each) - len(each.lstrip()) <= margin
        if item and (begins or not each):
            yield FrontMatterEntry(line, "an item", item[0].strip()[1:].strip(), tuple(item[1:]))
            item = []
        item.append(each)


def _text(entry: FrontMatterEntry) -> str:
    """The text of an entry, in whichever way it is written."""
    if block := re.fullmatch(_BLOCK, entry.rest):
        return _indented(block[1] == ">", int(block[2] or 0), entry.block)
    if entry.rest[:1] in ('"', "'"):
        return _unquoted(entry)
    if entry.rest[:1] and entry.rest[0] in "&*!%@`{}[],|>":
        raise _UnsupportedSyntax(
            entry.line, f"{entry.key} begins with {entry.rest[0]}, which means something else; quote it"
        )
    told = _folded([_uncommented(line) for line in (entry.rest, *entry.block)])
    return "" if told in ("~", "null") else told


def _uncommented(line: str) -> str:
    return re.sub(r"(?:^|(?<=\s))#.*", "", line).strip()


def _folded(lines: list[str]) -> str:
    """Lines in one; an empty line between them is a line break."""
    whole = "\n".join(line.strip() for line in lines).strip()
    return "\n".join(part.replace("\n", " ") for part in re.split(r"\n\n+", whole))


def _indented(folds: bool, given: int, block: tuple[str, ...]) -> str:
    first = next((line for line in block if line.strip()), "")
    margin = given or len(first) - len(first.lstrip())
    lines = [line[margin:].rstrip() if not line[:margin].strip() else line.strip() for line in block]
    return _folded(lines) if folds else "\n".join(lines).strip("\n")


def _unquoted(entry: FrontMatterEntry) -> str:
    whole = _folded([entry.rest, *entry.block])
    found = re.match(_QUOTED, whole, re.DOTALL)
    if found is None:
        raise _UnsupportedSyntax(entry.line, f"{entry.key} has a quotation mark that is not closed")
    if _uncommented(whole[found.end() :]):
        raise _UnsupportedSyntax(entry.line, f"{entry.key} goes on behind its quotation marks")
    return _plain(found[0])


def _plain(quoted: str) -> str:
    """What stands between quotation marks."""
    if quoted[0] == "'":
        return quoted[1:-1].replace("''", "'")
    return re.sub(r"(?s)\\(?:u([0-9a-fA-F]{4})|(.))", _unescape, quoted[1:-1])


def _unescape(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return _ESCAPES.get(escape[2], escape[2])
    return chr(int(escape[1], 16)).encode("utf-8", "replace").decode()


def _flow(entry: FrontMatterEntry) -> Iterator[str]:
    """The items of a list that is written in brackets."""
    whole = _folded([entry.rest, *entry.block])
    at, sign = 1, ","
    while sign == ",":
        found = re.compile(_FLOW).match(whole, at)
        if found is None:
            raise _UnsupportedSyntax(
                entry.line, f"{entry.key} is a list that cannot be read; write one item a line: - item"
            )
        at, sign = found.end(), found[3]
        if item := _plain(found[1]) if found[1] else found[2].strip():
            yield item
    if _uncommented(whole[at:]):
        raise _UnsupportedSyntax(entry.line, f"{entry.key} goes on behind its bracket")
