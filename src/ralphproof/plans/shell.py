"""Where in a shell's command something stands: outside of quotes, inside of them, or where nobody can tell."""

from __future__ import annotations

import re

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator

BARE, DOUBLE, SINGLE, UNCLEAR = "bare", "double", "single", "unclear"

_NAMED = r"\$\{[^{}'\"\\`$]*\}"  # a variable, and nothing in it that is quoted
_SUM = r"\$\(\([^(){}'\"\\`]*\)\)"
_OLD_RUN = r"`[^`{}'\"\\]*`"
_ESCAPED = r"\$'[^'{}\\]*'"
# From here on nobody can tell: a here-document, arithmetic, and whatever the patterns above leave of the others.
_UNCLEAR = r"\$\{|\$\(\(|`|<<|\(\(|\$'"
_UNCLEAR_IN_DOUBLE = r"\$\{|\$\(\(|`"
_COMMENT = r"#[^\n]*"
# The next word is a program for another shell, or for something like one, which would parse the text once more.
_PROGRAM = (
    r"(?:^|[\s/;&|(])(?:(?:(?:ba|da|a|k|z|c|fi)?sh|su)\s+(?:[^\s;&|]+\s+){0,5}?-\w*c"
    r"|python[\d.]*\s+(?:-\S+\s+)*-\w*c|(?:perl|ruby|node)\s+(?:-\S+\s+)*-\w*e|php\s+(?:-\S+\s+)*-r)\s+$"
)
# Any of the words that follow may be a part of one.
_PROGRAMS = r"(?:^|\(|\b(?:then|do|else|sudo|exec|time|env|command)\s|!\s)\s*(?:eval|ssh|trap)\s"
_NEAR = 500  # characters, within which the program's name stands


@value
class Standing:
    """Where one match stands, and how."""

    start: int
    end: int
    name: str
    how: str


def standings(command: str, place: str) -> Iterator[Standing]:
    """Every match of the pattern `place`, which has one group: its name."""
    sought = re.compile(place)
    if not sought.search(command):
        return
    for start, how in _steps(command, sought):
        found = sought.match(command, start)
        if found:
            yield Standing(start, found.end(), found[1], how)


def _steps(command: str, place: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Where a match begins, and how it stands there."""
    at, how = 0, BARE
    words, depths = [0], [0]  # the word's start and the open brackets, of each command inside of double quotes too
    while at < len(command):
        if found := place.match(command, at):
            yield at, UNCLEAR if _parsed_again(command, words, at, how) else how
            at = found.end()
            continue
        size, how = _step(command, at, how, depths)
        if how == UNCLEAR:
            yield from ((found.start(), UNCLEAR) for found in place.finditer(command, at))
            return
        words = words[: len(depths)] if len(depths) <= len(words) else [*words, at + size]
        if how == BARE and command[at] in " \t\n;&|()<>":
            words[-1] = at + size
        at += size


def _parsed_again(command: str, words: list[int], at: int, how: str) -> bool:
    slashes = 0
    while slashes < at and command[at - slashes - 1] == "\\":
        slashes += 1
    if slashes % 2 and how != SINGLE:
        return True  # what would stand here is escaped
    begin = max(command.rfind(end, 0, at) for end in ";&|\n") + 1
    simple = command[begin : min(at, begin + _NEAR)]
    return any(_program(command, word, at) for word in words) or bool(re.search(_PROGRAMS, simple))


def _program(command: str, word: int, at: int) -> bool:
    """Whether the word that begins here is one; its option may stand in it too."""
    option = re.match(r"-\w+(?=['\"])", command[word : min(at, word + _NEAR)])
    before = command[max(0, word - _NEAR) : word]
    return bool(re.search(_PROGRAM, before + (f"{option[0]} " if option else "")))


def _step(command: str, at: int, how: str, depths: list[int]) -> tuple[int, str]:
    """How long what stands here is, and how the next thing stands."""
    match how:
        case "single":
            return 1, BARE if command[at] == "'" else SINGLE
        case "double":
            return _in_double(command, at, depths)
        case _:
            return _in_bare(command, at, depths)


def _in_double(command: str, at: int, depths: list[int]) -> tuple[int, str]:
    if found := _whole(command, at, _NAMED, _SUM, _OLD_RUN):
        return found, DOUBLE
    if re.compile(_UNCLEAR_IN_DOUBLE).match(command, at):
        return 1, UNCLEAR
    if command.startswith("$(", at):
        depths.append(0)
        return 2, BARE
    if command[at] == "\\" and command[at + 1 : at + 2] in ("\\", '"', "$", "`"):
        return 2, DOUBLE
    return 1, BARE if command[at] == '"' else DOUBLE


def _in_bare(command: str, at: int, depths: list[int]) -> tuple[int, str]:
    if found := _whole(command, at, _NAMED, _SUM, _OLD_RUN, _ESCAPED):
        return found, BARE
    if re.compile(_UNCLEAR).match(command, at):
        return 1, UNCLEAR
    if command[at] == "#" and (at == 0 or command[at - 1] in " \t\n;&|()"):
        return _whole(command, at, _COMMENT), BARE
    match command[at]:
        case "\\":
            return (1 if command[at + 1 : at + 2] == "{" else 2), BARE
        case "'":
            return 1, SINGLE
        case '"':
            return 1, DOUBLE
        case "(":
            depths[-1] += 1
        case ")":
            return _closed(depths)
        case "c" if len(depths) > 1 and re.compile(r"\bcase\b").match(command, at):
            return 1, UNCLEAR  # its brackets have no partners
    return 1, BARE


def _closed(depths: list[int]) -> tuple[int, str]:
    """After a closing bracket: the end of a command inside of double quotes leads back into them."""
    if len(depths) > 1 and depths[-1] == 0:
        depths.pop()
        return 1, DOUBLE
    depths[-1] -= 1
    return 1, BARE


def _whole(command: str, at: int, *patterns: str) -> int:
    """The length of the first of these that stands here; 0 where none does."""
    found = (re.compile(pattern).match(command, at) for pattern in patterns)
    return next((match.end() - at for match in found if match), 0)
