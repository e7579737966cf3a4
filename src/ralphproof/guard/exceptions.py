"""The project's own lists: what the guard lets pass, and what it refuses beside its own rules.

An entry is the id of a rule, the name of a category, or a command. Of a command every word counts, as it is written or
with `*` for any characters in it. What is allowed is the whole command, unless its last word is `*`; what is denied is
whatever begins so. A tool other than a shell is a command of its name and its path or address: `Read .env`.
"""

from __future__ import annotations

import fnmatch
import re
import shlex

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.verdict import CATEGORIES, Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphproof.guard.verdict import Act, Exceptions, Ground, Objection

DENIED = Rule("denied-here", "tampering", "is on this project's list of what is denied", "do without it")
OPERATORS = re.compile(r"[;&|<>()`\n]|\$\(")
MOST_CHARS = 1000
NEAR = 0.84


def denied(act: Act, lists: Exceptions, at: Ground) -> bool:
    """Whether the project refuses this, whatever the rules say."""
    patterns = [words for entry in lists.deny if (words := _command(entry))]
    return any(_fits(words, way, at, whole=False) for words in patterns for way in act.ways)


def allowed(act: Act, lists: Exceptions, at: Ground) -> bool:
    """Whether the project lets this very command pass; others of the same line stand for themselves."""
    patterns = [words for entry in lists.allow if (words := _command(entry))]
    return any(_fits(words, way, at, whole=True) for words in patterns for way in act.ways)


def spared(objection: Objection, lists: Exceptions) -> bool:
    """Whether the rule, or its whole category, does not hold in this project. What is denied by name holds."""
    named = {objection.rule, objection.category}
    return bool(named & set(lists.allow)) and not named & set(lists.deny)


def _command(entry: str) -> list[str]:
    """The words of an entry that is a command; empty where it is a rule or a category."""
    if entry in CATEGORIES or ("-" in entry and " " not in entry and entry in _ids()):
        return []
    try:
        return shlex.split(entry)
    except ValueError:
        return []


def _ids() -> set[str]:
    from ralphproof.guard.rules.table import every

    return {rule.id for rule in every()}


def _fits(pattern: Sequence[str], words: Sequence[str], at: Ground, whole: bool) -> bool:
    more = pattern[-1:] == ["*"]
    wanted = pattern[:-1] if more else pattern
    if len(words) < len(wanted) or (whole and not more and len(words) > len(wanted)):
        return False
    return bool(pattern) and all(_same(part, word, at) for part, word in zip(wanted, words, strict=False))


def _same(part: str, word: str, at: Ground) -> bool:
    return fnmatch.fnmatchcase(_home(word, at), _home(part, at).replace("[", "[[]").replace("?", "[?]"))


def _home(word: str, at: Ground) -> str:
    return at.home + word[1:] if word == "~" or word.startswith("~/") else word


def allow_entry_problem(entry: str) -> str:
    """What is wrong with an entry of `guard.allow`, in words that follow its name; empty where nothing is."""
    return _entry_problem(entry, "; that turns the guard off")


def deny_entry_problem(entry: str) -> str:
    """The same for an entry of `guard.deny`."""
    return _entry_problem(entry, "")


def _entry_problem(entry: str, consequence: str) -> str:
    if not entry.strip() or not entry.isprintable():
        return "is blank, or holds characters that cannot be printed"
    if entry != entry.strip() or len(entry) > MOST_CHARS:
        return f"has blanks around it, or more than {MOST_CHARS} characters"
    if OPERATORS.search(entry):
        return "is more than one command; the guard looks at each command of a line by itself"
    try:
        words = shlex.split(entry)
    except ValueError:
        return "has a quote that is not closed"
    if not words or not words[0].strip("*"):
        return f"would hold for every command{consequence}"
    return _misspelled(entry) if len(words) == 1 else ""


def _misspelled(entry: str) -> str:
    """A word that is nearly a rule's or a category's name was meant to be it."""
    import difflib

    names = {*CATEGORIES, *_ids()}
    near = difflib.get_close_matches(entry, names, 1, NEAR) if entry not in names and "-" in entry else []
    return f"is no rule and no category; nearest: {near[0]}" if near else ""
