"""A way of working that an agent is told beside its task, and what it must say to be of use in a loop."""

from __future__ import annotations

import re

from ralphproof.claim import Heard, read, same_word
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator

AUTO = "auto"  # stands for the project's own checks
LINTERS = "auto:lint"  # stands for its linters, and needs at least one
PROMISE, CRITERIA, CORRECTION = "ralph integration", "completion criteria", "self correction"  # headings, in words

_HEADING = r" {0,3}(#{1,6})\s+(\S.*)"
_FENCE = r"\s*(```+(?=[^`]*$)|~~~+)(.*)"
_ITEM = r"\s*(?:[-*+]|\d{1,9}[.)])\s+(?:\[[ xX]\]\s+)?(\S.*)"


@value
class Skill:
    """A way of working.

    `promise` is the word that claims completion, without its tags, empty where there is none. `verification` holds
    shell commands, or words that stand for the project's own. `source` tells people where the skill was found.
    """

    name: str
    description: str = ""
    promise: str = ""
    verification: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    body: str = ""
    source: str = ""


def lacking(skill: Skill) -> tuple[str, ...]:
    """What a skill would need for a loop and does not have, each with the way to add it; empty where it is ready."""
    needs = (
        (skill.promise, f"no completion promise: {_promise_wanted(skill.body)}"),
        (skill.criteria, "no success criteria: list them under criteria, or under a heading Completion Criteria"),
        (section(skill.body, CORRECTION), "no way on after a failure: tell it under a heading Self-Correction"),
        (skill.verification, f"no verification: name a command under verification, or {AUTO}"),
    )
    return tuple(told for has, told in needs if not has)


def _promise_wanted(body: str) -> str:
    way = "name its word under promise, or show its tag on a line of its own under a heading Ralph Integration"
    seen = heard_in(body).uncounted
    return f"{way} ({seen[0]})" if seen else way


def heard_in(body: str) -> Heard:
    """The promise that a skill's own text shows where it speaks of the loop."""
    return read(section(body, PROMISE))


def criteria_in(body: str) -> tuple[str, ...]:
    """The items of the list of criteria in a skill's own text."""
    found: list[str] = []
    for line, fenced in _lines(section(body, CRITERIA)):
        if item := None if fenced else re.match(_ITEM, line):
            found.append(item[1].rstrip())
        elif found and not fenced and line[:1] in (" ", "\t") and line.strip():
            found[-1] += f" {line.strip()}"
    return tuple(found)


def section(body: str, title: str) -> str:
    """The text below the first heading with these words in it, up to the next heading as high; empty where none is."""
    kept: list[str] = []
    level = 0
    for line, fenced in _lines(body):
        heading = None if fenced else re.match(_HEADING, line)
        if heading and level and len(heading[1]) <= level:
            break
        if level:
            kept.append(line)
        elif heading and f" {title} " in f" {' '.join(re.findall(r'[a-z0-9]+', heading[2].lower()))} ":
            level = len(heading[1])
    return "\n".join(kept).strip("\n")


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it belongs to a code fence."""
    opened = ""
    for line in text.split("\n"):
        mark = re.match(_FENCE, line)
        yield line, bool(opened or mark)
        if mark and not opened:
            opened = mark[1]
        elif mark and mark[1].startswith(opened) and not mark[2].strip():
            opened = ""


def template_of(skill: Skill, word: str = "") -> str:
    """How a prompt is told with this skill: its text, and the task behind it.

    Criteria that the text does not list are added. `word` is what the run takes for a claim where that is another.
    """
    listed = section(skill.body, CRITERIA) or not skill.criteria
    criteria = "\n".join(f"- [ ] {sentence}" for sentence in skill.criteria)
    parts = [advice_of(skill, word), *([] if listed else [f"## Completion Criteria\n\n{criteria}"])]
    # A prompt has one place in a template, and a skill that speaks of that place must not become a second one.
    told = "\n\n".join(part for part in parts if part).replace("{prompt}", "{ prompt }")
    return f"{told}\n\n## Task\n\n{{prompt}}".lstrip("\n")


def advice_of(skill: Skill, word: str = "") -> str:
    """The text of a skill, for a run that takes `word` for a claim: its own tags then show that word."""
    body = skill.body.strip("\n")
    if not word or not skill.promise or same_word(word, skill.promise):
        return body
    shown = rf"(?i)<(promise|response)>\s*{re.escape(skill.promise)}\s*</\1>"
    return re.sub(shown, lambda tag: f"<{tag[1]}>{word}</{tag[1]}>", body)
