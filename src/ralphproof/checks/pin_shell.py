"""The simple commands in a shell's text: which programs it would start, with which words, in which folder.

No shell's grammar: what stands in quotes stays together, and what a variable would give is not known.
"""

from __future__ import annotations

import os
import re

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator

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
