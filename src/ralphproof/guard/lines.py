"""Shell text checked against the rules."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.rules import table
from ralphproof.guard.simple import MARKS, Simple
from ralphproof.guard.verdict import Act

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphproof.guard.line import Line
    from ralphproof.guard.verdict import Ground, Objection

LONGEST = 50_000  # characters; what is longer is nothing that anybody typed
# The same operator over and over takes the parser (0.25) long: its time grows with the square of what is wrong.
REPEATED = re.compile(r"(.{1,4}?)\1{600}", re.DOTALL)
HARMLESS = re.compile(r"[\w\s=#*~.-]+")
# Words that mean themselves. Such a line needs no parser, which takes ten times as long to load as all the rest.
PLAIN = re.compile(r"[A-Za-z0-9_@%+:,./~*?-][A-Za-z0-9_@%+:,./~*?=-]*(?: +[A-Za-z0-9_@%+:,./~*?=-]+)* *")
STATEMENTS = {
    "if", "for", "while", "until", "case", "select", "function", "do", "then", "else", "elif", "fi", "done", "esac",
    "coproc", "time", "declare", "export", "local", "readonly", "typeset", "unset", "unsetenv", "let",
}  # fmt: skip
# Characters that nobody sees: a word with one of them in it is not the word that is read.
INVISIBLE = re.compile("[\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\u00ad\x00-\x08\x0e-\x1a\x1c-\x1f]")


def acts_of(text: str, at: Ground) -> Iterator[Act]:
    """Every command of a line with what the rules object to in it; a line that cannot be read is one of them."""
    text = text.translate({ord(mark): None for mark in MARKS})
    if len(text) > LONGEST:
        yield _unreadable(text, f"it has more than {LONGEST} characters")
        return
    if any(not HARMLESS.fullmatch(found[1]) for found in REPEATED.finditer(text)):
        yield _unreadable(text, "it repeats itself")
        return
    line = read(INVISIBLE.sub("", text), at)
    for one in line.found:
        yield Act((one.words, *one.outer), tuple(_objections(one, line.found, at)))
    if line.trouble:
        yield _unreadable(text, line.trouble)
    for broken in line.broken:
        yield _unreadable(broken, "it is no grammar of a shell")
    if INVISIBLE.search(text):
        yield _odd(text)


def words_of(words: Sequence[str], at: Ground) -> Iterator[Act]:
    """The same for a command that no shell has to take apart."""
    from ralphproof.guard.line import Line

    line = Line(at)
    line.run(Simple(tuple(word.translate({ord(mark): None for mark in MARKS}) for word in words), at.cwd))
    if line.trouble or line.broken:
        yield _unreadable(" ".join(words), line.trouble)
    for one in line.found:
        yield Act((one.words, *one.outer), tuple(_objections(one, line.found, at)))


def read(text: str, at: Ground) -> Line:
    """The commands of a line."""
    from ralphproof.guard.line import Line

    line = Line(at)
    words = text.split() if PLAIN.fullmatch(text) else []
    try:
        if words and words[0] not in STATEMENTS and "=" not in words[0]:
            line.run(Simple(tuple(words), at.cwd))
        else:
            line.read(text)
    except RecursionError:
        line.trouble = "it is nested too deeply"
    return line


def _objections(one: Simple, line: Sequence[Simple], at: Ground) -> Iterator[Objection]:
    for objection in table.found(one, at):
        if objection.rule == "print-environment":
            from ralphproof.guard.rules.secrets import only_searched

            if only_searched(one, line):
                continue
        yield objection


def _unreadable(text: str, why: str) -> Act:
    from ralphproof.guard.rules.code import UNREADABLE

    found = UNREADABLE.about(text)
    return Act(((text,),), (found.because(why),))


def _odd(text: str) -> Act:
    from ralphproof.guard.rules.code import ODD

    return Act(((text,),), (ODD.about(text),))
