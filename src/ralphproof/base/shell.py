"""Shell text: the simple commands in it, and the quoting at a place in it."""

from __future__ import annotations

import os
import re

from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator


# The simple commands in a shell's text: which programs it would start, with which words, in which folder.
#
# No shell's grammar: what stands in quotes stays together, and what a variable would give is not known.


MOST_CHARS = 256 * 1024
WORDS, CHAIN = 500, 8  # of one command; programs that start one another
# A quoted string, an escaped letter, what ends a command, or a piece of a word.
_LETTERS = (
    r"(?s)'(?P<hard>[^']*)'|\"(?P<soft>(?:[^\"\\]|\\.)*)\"|\\(?P<escaped>.)|(?P<note>(?<!\S)#[^\n]*)"
    r"|(?P<inner>\$\()|(?P<end>\|\||&&|\d*[<>]&\d|;;|[\n;|&()`])|(?P<redirect>\d*(?:<<<|<<-?|>>|[<>])\|?)"
    r"|(?P<blank>[ \t\r]+)|(?P<plain>[^\s'\"\\;|&()`<>$]+|[$'\"\\])"
)
_SET = r"[A-Za-z_][A-Za-z0-9_]*\+?="
_KEYWORDS = frozenset(("if", "then", "elif", "else", "do", "while", "until", "!", "{", "}", "time", "fi", "done"))
# Programs that start another one, and which of their options take a word.
_STARTERS = {
    "env": ("-u", "-C", "-S"), "exec": ("-a",), "command": (), "nohup": (), "nice": ("-n",), "sudo": ("-u", "-g"),
    "timeout": ("-s", "-k"), "xargs": ("-n", "-P", "-I", "-L", "-d"), "stdbuf": ("-i", "-o", "-e"), "setsid": (),
    "builtin": (), "eatmydata": (), "xvfb-run": ("-s", "-n"), "cross-env": (), "dotenv": ("-e", "-f"),
    "ionice": ("-c",),
    "unbuffer": (), "faketime": (), "chronic": (), "catchsegv": (), "flock": ("-w", "-E"),
}  # fmt: skip
_FIRST_IS_NO_PROGRAM = frozenset(("timeout", "flock", "faketime"))
# `uv run X`: the word behind which a program stands.
_RUNNING = {
    "uv": "run", "poetry": "run", "pipenv": "run", "pdm": "run", "rye": "run", "hatch": "run", "pixi": "run",
    "conda": "run", "bundle": "exec", "coverage": "run", "mise": "exec",
}  # fmt: skip


@value
class ShellCommand:
    """One command: the program as it is written, its words, and the folder from the root that it would run in."""

    program: str
    words: tuple[str, ...] = ()
    folder: str = "."
    sets: tuple[str, ...] = ()  # what it is started with: NAME=VALUE

    @property
    def name(self) -> str:
        return os.path.basename(self.program)


def commands_in(text: str, folder: str = ".") -> Iterator[ShellCommand]:
    """Every simple command of a text, in order; a `cd` counts until its parenthesis closes."""
    above: list[str] = []
    words: list[str] = []
    for kind, word in _tokens(text[:MOST_CHARS]):
        if kind == "word":
            words.append(word)
            continue
        yield from (made := _simples(words, folder))
        folder = next((_moved(one) for one in made if one.name in ("cd", "pushd")), folder)
        words = []
        if word == "(":
            above.append(folder)
        elif word == ")" and above:
            folder = above.pop()
    yield from _simples(words, folder)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Words and what is between them."""
    word, open_word, skip = "", False, False
    for found in re.finditer(_LETTERS, text):
        kind = found.lastgroup or ""
        if kind in ("hard", "soft", "escaped", "plain"):
            letters = found[kind]
            joined = kind == "escaped" and letters == "\n"
            word, open_word = (word, open_word) if joined else (word + letters, True)
            continue
        if open_word and not skip:
            yield "word", word
        skip = skip and not open_word and kind == "blank"
        word, open_word = "", False
        if kind == "redirect":
            skip = True  # the next word is a file
        elif kind in ("end", "inner"):
            skip = False
            if "&" not in found[0] or found[0] in ("&", "&&"):
                yield "end", found[0].lstrip("$")
    if open_word and not skip:
        yield "word", word


def _simples(words: list[str], folder: str) -> list[ShellCommand]:
    """The command that these words are, and the one that it would start in turn."""
    made: list[ShellCommand] = []
    left, sets = words[:WORDS], []
    while left and len(made) < CHAIN:
        if left[0] in _KEYWORDS or left[0].lstrip("@-+") == "":
            left.pop(0)
        elif re.match(_SET, left[0]):
            sets.append(left.pop(0))
        else:
            program, rest = left[0].lstrip("@+-"), left[1:]  # a recipe's marks
            made.append(ShellCommand(program, tuple(rest), folder, tuple(sets)))
            left = _started(os.path.basename(program), rest)
    return made


def _started(name: str, words: list[str]) -> list[str]:
    """What a program that starts another one is told to start."""
    if name in _RUNNING:
        at = words.index(_RUNNING[name]) if _RUNNING[name] in words else len(words)
        return _behind_options(words[at + 1 :], ("--with", "--extra", "--group", "-p", "--python", "-n", "--rcfile"))
    if name not in _STARTERS:
        return []
    left = _behind_options(words, _STARTERS[name])
    while left and name in ("env", "cross-env") and re.match(_SET, left[0]):
        left = left[1:]
    return left[1:] if name in _FIRST_IS_NO_PROGRAM else left


def _behind_options(words: list[str], taking: tuple[str, ...]) -> list[str]:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            return words[at + 1 :]
        at += 2 if words[at] in taking else 1
    return words[at:]


def _moved(command: ShellCommand) -> str:
    to = next((word for word in command.words if not word.startswith("-")), "")
    if not to or "$" in to or to.startswith(("/", "~")):
        return command.folder
    return os.path.normpath(os.path.join(command.folder, to))


# Where in a shell's command something stands: outside of quotes, inside of them, or where nobody can tell.


UNQUOTED, DOUBLE_QUOTED, SINGLE_QUOTED, UNKNOWN_QUOTING = "bare", "double", "single", "unclear"

_VARIABLE = r"\$\{[^{}'\"\\`$]*\}"  # a variable, and nothing in it that is quoted
_ARITHMETIC = r"\$\(\([^(){}'\"\\`]*\)\)"
_BACKQUOTES = r"`[^`{}'\"\\]*`"
_ANSI_C_QUOTED = r"\$'[^'{}\\]*'"
# From here on nobody can tell: a here-document, arithmetic, and whatever the patterns above leave of the others.
_UNKNOWN = r"\$\{|\$\(\(|`|<<|\(\(|\$'"
_UNKNOWN_IN_DOUBLE = r"\$\{|\$\(\(|`"
_COMMENT = r"#[^\n]*"
# The next word is a program for another shell, or for something like one, which would parse the text once more.
_NESTED_PROGRAM = (
    r"(?:^|[\s/;&|(])(?:(?:(?:ba|da|a|k|z|c|fi)?sh|su)\s+(?:[^\s;&|]+\s+){0,5}?-\w*c"
    r"|python[\d.]*\s+(?:-\S+\s+)*-\w*c|(?:perl|ruby|node)\s+(?:-\S+\s+)*-\w*e|php\s+(?:-\S+\s+)*-r)\s+$"
)
# Any of the words that follow may be a part of one.
_NESTED_PROGRAMS = r"(?:^|\(|\b(?:then|do|else|sudo|exec|time|env|command)\s|!\s)\s*(?:eval|ssh|trap)\s"
_NEAR = 500  # characters, within which the program's name stands


@value
class QuotedMatch:
    """Where one match stands, and how."""

    start: int
    end: int
    name: str
    how: str


def find_quoted_matches(command: str, place: str) -> Iterator[QuotedMatch]:
    """Every match of the pattern `place`, which has one group: its name."""
    sought = re.compile(place)
    if not sought.search(command):
        return
    for start, how in _steps(command, sought):
        found = sought.match(command, start)
        if found:
            yield QuotedMatch(start, found.end(), found[1], how)


def _steps(command: str, place: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Where a match begins, and how it stands there."""
    at, how = 0, UNQUOTED
    words, depths = [0], [0]  # the word's start and the open brackets, of each command inside of double quotes too
    while at < len(command):
        if found := place.match(command, at):
            yield at, UNKNOWN_QUOTING if _parsed_again(command, words, at, how) else how
            at = found.end()
            continue
        size, how = _next_step(command, at, how, depths)
        if how == UNKNOWN_QUOTING:
            yield from ((found.start(), UNKNOWN_QUOTING) for found in place.finditer(command, at))
            return
        words = words[: len(depths)] if len(depths) <= len(words) else [*words, at + size]
        if how == UNQUOTED and command[at] in " \t\n;&|()<>":
            words[-1] = at + size
        at += size


def _parsed_again(command: str, words: list[int], at: int, how: str) -> bool:
    slashes = 0
    while slashes < at and command[at - slashes - 1] == "\\":
        slashes += 1
    if slashes % 2 and how != SINGLE_QUOTED:
        return True  # what would stand here is escaped
    begin = max(command.rfind(end, 0, at) for end in ";&|\n") + 1
    simple = command[begin : min(at, begin + _NEAR)]
    return any(_is_nested_program(command, word, at) for word in words) or bool(re.search(_NESTED_PROGRAMS, simple))


def _is_nested_program(command: str, word: int, at: int) -> bool:
    """Whether the word that begins here is one; its option may stand in it too."""
    option = re.match(r"-\w+(?=['\"])", command[word : min(at, word + _NEAR)])
    before = command[max(0, word - _NEAR) : word]
    return bool(re.search(_NESTED_PROGRAM, before + (f"{option[0]} " if option else "")))


def _next_step(command: str, at: int, how: str, depths: list[int]) -> tuple[int, str]:
    """How long what stands here is, and how the next thing stands."""
    match how:
        case "single":
            return 1, UNQUOTED if command[at] == "'" else SINGLE_QUOTED
        case "double":
            return _in_double(command, at, depths)
        case _:
            return _in_bare(command, at, depths)


def _in_double(command: str, at: int, depths: list[int]) -> tuple[int, str]:
    if found := _whole(command, at, _VARIABLE, _ARITHMETIC, _BACKQUOTES):
        return found, DOUBLE_QUOTED
    if re.compile(_UNKNOWN_IN_DOUBLE).match(command, at):
        return 1, UNKNOWN_QUOTING
    if command.startswith("$(", at):
        depths.append(0)
        return 2, UNQUOTED
    if command[at] == "\\" and command[at + 1 : at + 2] in ("\\", '"', "$", "`"):
        return 2, DOUBLE_QUOTED
    return 1, UNQUOTED if command[at] == '"' else DOUBLE_QUOTED


def _in_bare(command: str, at: int, depths: list[int]) -> tuple[int, str]:
    if found := _whole(command, at, _VARIABLE, _ARITHMETIC, _BACKQUOTES, _ANSI_C_QUOTED):
        return found, UNQUOTED
    if re.compile(_UNKNOWN).match(command, at):
        return 1, UNKNOWN_QUOTING
    if command[at] == "#" and (at == 0 or command[at - 1] in " \t\n;&|()"):
        return _whole(command, at, _COMMENT), UNQUOTED
    match command[at]:
        case "\\":
            return (1 if command[at + 1 : at + 2] == "{" else 2), UNQUOTED
        case "'":
            return 1, SINGLE_QUOTED
        case '"':
            return 1, DOUBLE_QUOTED
        case "(":
            depths[-1] += 1
        case ")":
            return _closed(depths)
        case "c" if len(depths) > 1 and re.compile(r"\bcase\b").match(command, at):
            return 1, UNKNOWN_QUOTING  # its brackets have no partners
    return 1, UNQUOTED


def _closed(depths: list[int]) -> tuple[int, str]:
    """After a closing bracket: the end of a command inside of double quotes leads back into them."""
    if len(depths) > 1 and depths[-1] == 0:
        depths.pop()
        return 1, DOUBLE_QUOTED
    depths[-1] -= 1
    return 1, UNQUOTED


def _whole(command: str, at: int, *patterns: str) -> int:
    """The length of the first of these that stands here; 0 where none does."""
    found = (re.compile(pattern).match(command, at) for pattern in patterns)
    return next((match.end() - at for match in found if match), 0)
