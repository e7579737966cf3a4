"""Places such as {{title}} in what a task asks for, and the variables that a command reads them from.

What stands in a field is never taken for a place. A command never holds the text of a field, only the name of a
variable, quoted as the place where it stands needs it: no shell parses the text.
"""

from __future__ import annotations

import re

from ralphproof.plans.rules import nearest, unfit
from ralphproof.plans.shell import BARE, DOUBLE, SINGLE, UNCLEAR, standings
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.plan import Task

VARIABLES = {
    "id": "RALPH_TASK_ID", "spec_id": "RALPH_TASK_SPEC", "title": "RALPH_TASK_TITLE",
    "description": "RALPH_TASK_DESCRIPTION", "outcome": "RALPH_TASK_OUTCOME",
    "acceptance_criteria": "RALPH_TASK_ACCEPTANCE",
}  # fmt: skip
ACCEPTANCE = "acceptance_criteria"
MOST_BYTES = 100 * 1024  # of one variable: Linux starts no program with one of more than 128 KiB
_QUOTED = {BARE: '"{}"', DOUBLE: "{}", SINGLE: "'\"{}\"'"}
PLACE = r"\{\{[ \t]*([A-Za-z_]\w*)[ \t]*\}\}"


def values(task: Task) -> dict[str, str]:
    """The text of every field; the acceptance criteria one a line."""
    return {
        "id": task.id, "spec_id": task.spec, "title": task.title, "description": task.prompt, "outcome": task.outcome,
        ACCEPTANCE: "\n".join(" ".join(criterion.split("\n")) for criterion in task.acceptance),
    }  # fmt: skip


def exports(task: Task) -> dict[str, str]:
    """The variables that a task's commands may read. A text that no program can be started with is left out."""
    return {VARIABLES[field]: text for field, text in values(task).items() if _fits(text)}


def _fits(text: str) -> bool:
    return not unfit(text) and len(text.encode()) <= MOST_BYTES


def left_out(task: Task, command: str) -> tuple[str, ...]:
    """The fields that a command reads and `exports` leaves out."""
    text, given = in_command(command), exports(task)
    return tuple(field for field, name in VARIABLES.items() if name not in given and re.search(rf"\b{name}\b", text))


def in_command(command: str) -> str:
    """The command with variables where fields are, each a part of the word that it stands in, whatever its text is.

    Other places stay: docker and helm have their own. So do those of `unclear`.
    """
    made, end = "", 0
    for place in standings(command, PLACE):
        if place.name in VARIABLES and place.how in _QUOTED:
            made += command[end : place.start] + _QUOTED[place.how].format(f"${{{VARIABLES[place.name]}}}")
            end = place.end
    return made + command[end:]


def unclear(command: str) -> tuple[str, ...]:
    """The fields that stand where nobody can tell what a shell would make of them."""
    found = (place.name for place in standings(command, PLACE) if place.how == UNCLEAR and place.name in VARIABLES)
    return tuple(dict.fromkeys(found))


def asked(check_for: object, task: Task) -> tuple[str, ...]:
    """What a judge is asked, one criterion each: a place of the acceptance criteria alone is all of them."""
    texts = check_for if isinstance(check_for, list) else [check_for]
    return tuple(question for text in texts if isinstance(text, str) for question in _questions(text.strip(), task))


def _questions(text: str, task: Task) -> tuple[str, ...]:
    whole = re.fullmatch(PLACE, text)
    if whole and whole[1] == ACCEPTANCE:
        return task.acceptance
    known = values(task)
    return (re.sub(PLACE, lambda found: known.get(found[1], found[0]), text),)


def unknown(text: str) -> Iterator[str]:
    """What is wrong with the places of a text."""
    for name in dict.fromkeys(re.findall(PLACE, text)):
        if name not in VARIABLES:
            yield f" has no field {{{{{name}}}}} to put in{nearest(name, VARIABLES)}"
