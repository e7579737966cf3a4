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
from ralphproof.guard.rules import CATEGORIES, RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphproof.guard.verdict import Act, Exceptions, Ground, Objection

OPERATORS = r"[;&|<>()`\n]|\$\("
MAX_ENTRY_CHARS = 1000
SIMILARITY = 0.84


def is_denied(act: Act, lists: Exceptions, at: Ground) -> bool:
    """Whether the project refuses this, whatever the rules say."""
    return any(_describes(entry, way, at, whole=False) for entry in lists.deny for way in act.ways)


def is_allowed(act: Act, lists: Exceptions, at: Ground) -> bool:
    """Whether the project lets this very command pass; others of the same line stand for themselves."""
    return any(_describes(entry, way, at, whole=True) for entry in lists.allow for way in act.ways)


def is_waived(objection: Objection, lists: Exceptions) -> bool:
    """Whether the rule, or its whole category, does not hold in this project. What is denied by name holds."""
    named = {objection.rule, objection.category}
    return bool(named & set(lists.allow)) and not named & set(lists.deny)


def _describes(entry: str, words: Sequence[str], at: Ground, whole: bool) -> bool:
    """Whether an entry is a command, and these words are it."""
    if entry in CATEGORIES or entry in RULES:
        return False
    try:
        pattern = shlex.split(entry)
    except ValueError:
        return False
    more = pattern[-1:] == ["*"]
    wanted = pattern[:-1] if more else pattern
    if not pattern or len(words) < len(wanted) or (whole and not more and len(words) > len(wanted)):
        return False
    return all(_is_same(part, word, at) for part, word in zip(wanted, words, strict=False))


def _is_same(part: str, word: str, at: Ground) -> bool:
    part, word = (at.home + one[1:] if one == "~" or one.startswith("~/") else one for one in (part, word))
    return fnmatch.fnmatchcase(word, part.replace("[", "[[]").replace("?", "[?]"))


def allow_entry_problem(entry: str) -> str:
    """What is wrong with an entry of `guard.allow`, in words that follow its name; empty where nothing is."""
    return _entry_problem(entry, "; that turns the guard off")


def deny_entry_problem(entry: str) -> str:
    """The same for an entry of `guard.deny`."""
    return _entry_problem(entry, "")


def _entry_problem(entry: str, consequence: str) -> str:
    if not entry.strip() or not entry.isprintable():
        return "is blank, or holds characters that cannot be printed"
    if entry != entry.strip() or len(entry) > MAX_ENTRY_CHARS:
        return f"has blanks around it, or more than {MAX_ENTRY_CHARS} characters"
    if re.search(OPERATORS, entry):
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

    names = {*CATEGORIES, *RULES}
    near = difflib.get_close_matches(entry, names, 1, SIMILARITY) if entry not in names and "-" in entry else []
    return f"is no rule and no category; nearest: {near[0]}" if near else ""
