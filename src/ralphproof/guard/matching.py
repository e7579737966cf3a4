"""Commands that their subcommand and options tell: a small notation for tables of them.

"stack|stacks rm"           the words after the name, options left out; `|` parts ways to say it, `*` stands for any
"apply +-y|--yes !--plan"   and one of these options, and none of those
"""

from __future__ import annotations

import fnmatch

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.simple import Simple, has, split

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ralphproof.guard.verdict import Objection, Rule

    Table = Mapping[str, tuple[tuple[str, Rule], ...]]


def told(one: Simple, table: Table, takes: Mapping[str, str]) -> Iterator[Objection]:
    """What a table objects to in a command. `takes` are each program's options that have an argument."""
    rows = table.get(one.name, ())
    if not rows:
        return
    options, words = split(one.words[1:], takes.get(one.name, "").split())
    if "--help" in options:
        return
    for pattern, rule in rows:
        if fits(pattern, options, words):
            yield rule.about(shown(one))
            return


def fits(pattern: str, options: Sequence[str], words: Sequence[str]) -> bool:
    """Whether options and operands are as a pattern says."""
    places = [part for part in pattern.split() if part[0] not in "+!"]
    if len(words) < len(places) or not all(map(_is, places, words)):
        return False
    rest = [part for part in pattern.split() if part[0] in "+!"]
    return all(has(options, *part[1:].split("|")) == (part[0] == "+") for part in rest)


def _is(part: str, word: str) -> bool:
    return any(fnmatch.fnmatchcase(word, one) for one in part.split("|"))


def shown(one: Simple) -> str:
    """A command as it is told to the agent."""
    return " ".join(one.words)
