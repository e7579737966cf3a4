"""One simple command with its words resolved, its options, and patterns that describe commands.

A pattern is a program, the operands after it, and options:

"pulumi stack rm"                       `|` parts ways to say it, `*` stands for any characters
"terraform apply +-y|--yes !--plan"     with one of these options, and none of those
"""

from __future__ import annotations

import fnmatch
import re

from ralphproof.base.shell import MARKS, UNKNOWN, program_name, unknown
from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

OUTPUT, FILE, GAP, BAR = list(MARKS)[-4:]  # in the name of a substitution: its kind, and what parts words and lists
QUIET = (">", "<", "=")  # names of redirections and assignments
PIECE = re.compile(f"{UNKNOWN}([^{UNKNOWN}]*){UNKNOWN}")
# Names of commands that nobody can type, for what code does without a command.
OPAQUE, REMOTE, REVERSE, SQL, BOMB = "(opaque)", "(remote)", "(reverse-shell)", "(sql)", "(bomb)"


@value
class SimpleCommand:
    """A command, a redirection (its name is `>` or `<`) or an assignment (`=`)."""

    words: tuple[str, ...]
    cwd: str  # empty where it is not known
    given: tuple[tuple[str, str], ...] = ()  # the NAME=value in front of it
    sources: tuple[SimpleCommand, ...] = ()  # whose output it reads, nearest last
    text: str | None = None  # what it reads, where that is known
    outer: tuple[tuple[str, ...], ...] = ()  # the same command with its wrappers, outermost first
    odd: bool = False  # its name is spelled so that nobody would read it
    fetched: bool = False  # it runs what an earlier command of the line brought from elsewhere
    contained: bool = False  # it runs in a container, where paths mean something else

    @property
    def name(self) -> str:
        """The program's name without its folder and version; with unknown parts as they are."""
        return program_name(self.words[0])

    @property
    def shown(self) -> str:
        """The command as it is told to the agent."""
        return "=".join(self.words[1:]) if self.name == "=" else " ".join(self.words)

    def operands(self, *takes: str) -> list[str]:
        """What is not an option; an option of `takes` is followed by its own argument."""
        return split(self.words[1:], takes)[1]

    def options(self, *takes: str) -> list[str]:
        """The options, each with its argument."""
        return split(self.words[1:], takes)[0]


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


def has(options: Iterable[str], *wanted: str, takes: str = "") -> bool:
    """Whether one of these is set: `-f` also in `-rf`, `--force` also as `--force=x` and shortened.

    `takes` are the letters whose argument may follow in the same word.
    """
    return any(_is_set(option, want, takes) for option in options for want in wanted)


def _is_set(option: str, want: str, takes: str) -> bool:
    head = option.partition("=")[0]
    if head == want:
        return True
    if want.startswith("--"):
        return len(head) > 5 and head.startswith("--") and want.startswith(head)
    if len(want) != 2 or option.startswith("--"):
        return False
    letters = re.match(f"[A-Za-z0-9]*?{want[1]}", option[1:])
    return letters is not None and not set(letters[0][:-1]) & set(takes)


def value_of(options: Iterable[str], *wanted: str) -> str | None:
    """The argument of an option, as `split` joined it or as it was written."""
    for option in options:
        head, sign, text = option.partition("=")
        if sign and head in wanted:
            return text
        if not option.startswith("--") and len(option) > 2 and option[:2] in wanted:
            return option[2:].removeprefix("=")
    return None


def describes(pattern: str, options: Sequence[str], operands: Sequence[str]) -> bool:
    """Whether options and operands are as a pattern says, its program left out."""
    parts = pattern.split()
    places = [part for part in parts if part[0] not in "+!"]
    if len(operands) < len(places) or not all(
        any(fnmatch.fnmatchcase(word, one) for one in part.split("|"))
        for part, word in zip(places, operands, strict=False)
    ):
        return False
    return all(has(options, *part[1:].split("|")) == (part[0] == "+") for part in parts if part[0] in "+!")


# What is known of text that a substitution makes.


def label_substitution(kind: str, first: Iterable[str], names: Iterable[str]) -> str:
    """Unknown text that tells which commands make it: the first one's words, and the names of all."""

    def tame(words: Iterable[str]) -> str:
        return GAP.join(re.sub(r"[^\w./+-]", "", word) for word in words)

    return unknown(kind + tame(first) + BAR + tame(names))


def substitutions(word: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """(kind, first command's words, names of all commands) of each substitution in a word."""
    for name in PIECE.findall(word):
        if name[:1] in (OUTPUT, FILE):
            first, _, names = name[1:].partition(BAR)
            yield name[0], first.split(GAP), names.split(GAP)


def made_by(word: str, names: set[str]) -> bool:
    """Whether a word holds output of one of these programs."""
    return any(names & set(every) for _, _, every in substitutions(word))


def variables(word: str) -> list[str]:
    """The names of the variables that a word takes unknown text from."""
    return [name for name in PIECE.findall(word) if name[:1] not in (OUTPUT, FILE)]
