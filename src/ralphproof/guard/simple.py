"""One simple command with its words resolved, as the rules see it.

Characters that Unicode leaves to programs, and that are taken out of every text first, stand for what is not known.
"""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

UNKNOWN = "\ufdd0"  # around the name of something that may be empty
SOME = "\ufdd1"  # something that is not empty
SPLIT = "\ufdd2"  # parts the words that one unquoted expansion makes
OPEN, COMMA, CLOSE = "\ufdd3", "\ufdd4", "\ufdd5"  # braces outside of quotes
OUTPUT, FILE, GAP, BAR = "\ufdd6", "\ufdd7", "\ufdd8", "\ufdd9"  # in the name of a substitution
MARKS = UNKNOWN + SOME + SPLIT + OPEN + COMMA + CLOSE + OUTPUT + FILE + GAP + BAR
QUIET = (">", "<", "=")  # names of redirections and assignments
PIECE = re.compile(f"{UNKNOWN}([^{UNKNOWN}]*){UNKNOWN}")


def unknown(name: str = "") -> str:
    """Text of which only a name is known."""
    return f"{UNKNOWN}{name}{UNKNOWN}"


def substituted(kind: str, first: Iterable[str], names: Iterable[str]) -> str:
    """Unknown text that a substitution makes: its first command's words, and the names of all."""
    return unknown(kind + GAP.join(map(_tame, first)) + BAR + GAP.join(map(_tame, names)))


def _tame(word: str) -> str:
    return re.sub(r"[^\w./+-]", "", word)


def substitutions(word: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """(kind, first command's words, names of all commands) of each substitution in a word."""
    for name in PIECE.findall(word):
        if name[:1] in (OUTPUT, FILE):
            first, _, names = name[1:].partition(BAR)
            yield name[0], first.split(GAP), names.split(GAP)


def variables(word: str) -> list[str]:
    """The names of the variables that a word takes unknown text from."""
    return [name for name in PIECE.findall(word) if name[:1] not in (OUTPUT, FILE)]


@value
class Simple:
    """A command, a redirection (its name is `>` or `<`) or an assignment (`=`)."""

    words: tuple[str, ...]
    cwd: str  # empty where it is not known
    given: tuple[tuple[str, str], ...] = ()  # the NAME=value in front of it
    sources: tuple[Simple, ...] = ()  # whose output it reads, nearest last
    text: str | None = None  # what it reads, where that is known
    outer: tuple[tuple[str, ...], ...] = ()  # the same command with its wrappers, outermost first
    odd: bool = False  # its name is spelled so that nobody would read it
    fetched: bool = False  # it runs what an earlier command of the line brought from elsewhere

    @property
    def name(self) -> str:
        """The program's name without its folder and version; with unknown parts as they are."""
        return named(self.words[0])

    def variable(self, name: str) -> str | None:
        """What this command finds in a variable that is set just for it."""
        return next((text for one, text in self.given if one == name), None)


VERSIONED = re.compile(r"(python|pip|perl|ruby|php|node|lua|pypy|psql|clang|gcc)[\d.]+")


def named(word: str) -> str:
    """A program's name, however it is written."""
    name = word.rsplit("/", 1)[-1].removesuffix(".exe")
    match = VERSIONED.fullmatch(name)
    return match[1] if match else name


def split(words: Sequence[str], takes: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """(options, operands) of the words after a name; an option of `takes` is followed by its own argument."""
    options: list[str] = []
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            operands.extend(rest)
        elif len(word) < 2 or word[0] != "-":
            operands.append(word)
        else:
            options.append(word)
            if word in takes:
                options[-1] += "=" + next(rest, "")
    return options, operands


def operands(one: Simple, takes: Iterable[str] = ()) -> list[str]:
    """What is not an option."""
    return split(one.words[1:], takes)[1]


def has(options: Iterable[str], *wanted: str, takes: str = "") -> bool:
    """Whether one of these is set: `-f` also in `-rf`, `--force` also as `--force=x` and shortened.

    `takes` are the letters whose argument may follow in the same word.
    """
    return any(_is(option, want, takes) for option in options for want in wanted)


def _is(option: str, want: str, takes: str) -> bool:
    head = option.partition("=")[0]
    if head == want:
        return True
    if want.startswith("--"):
        return len(head) > 5 and head.startswith("--") and want.startswith(head)
    if len(want) != 2 or option.startswith("--"):
        return False
    letters = re.match("[A-Za-z0-9]*", option[1:])
    for letter in letters[0] if letters else "":
        if letter == want[1]:
            return True
        if letter in takes:
            return False
    return False


def value_of(options: Iterable[str], *wanted: str) -> str | None:
    """The argument of an option, as `split` joined it or as it was written."""
    for option in options:
        head, sign, text = option.partition("=")
        if sign and head in wanted:
            return text
        short = next((want for want in wanted if len(want) == 2 and option.startswith(want) and len(option) > 2), None)
        if short is not None and not option.startswith("--"):
            return option[2:].removeprefix("=")
    return None
