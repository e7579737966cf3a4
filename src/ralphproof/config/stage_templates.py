"""The prompts of the stages: those that come with the program, and a project's own in their place."""

from __future__ import annotations

import os
import re

from ralphproof.config.jsontext import Unusable, contents, decode
from ralphproof.config.keys import STAGES
from ralphproof.errors import Refused

FOLDER = ".ralph/templates"  # of a project
MOST_BYTES = 64 << 10
# The places that a template may have; the prompt is made by filling them.
FIELDS = (
    "id", "spec", "title", "description", "outcome", "acceptance_criteria", "stage", "success_criteria",
    "verification_method", "promise", "refusal", "iteration", "max_iterations",
)  # fmt: skip
WANTED = ("title", "description")  # without them an agent does not know what to do
_TASK = frozenset((*WANTED, "outcome"))
_PLACE = r"\{\{ *(\w+) *\}\}"
_BRACES = r"\{\{([^{}\n]{0,60})\}\}"
_OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "templates")


def template_for(root: str, stage: str) -> str:
    """The template of a stage: the project's own, else the one that comes with the program.

    Raises Refused where the project's own cannot be used.
    """
    own = _own(root, stage)
    return _packaged(stage) if own is None else own


def templates_for(root: str) -> dict[str, str]:
    """The template of every stage; raises Refused where one cannot be used."""
    return {stage: template_for(root, stage) for stage in STAGES}


def template_remarks(root: str) -> tuple[str, ...]:
    """A line for each template of the project's own that leaves the agent without its task."""
    made: list[str] = []
    for stage in STAGES:
        own = _own(root, stage)
        lacking = [] if own is None else [name for name in WANTED if name not in places_in(own)]
        if lacking:
            fields = " and ".join(f"{{{{{name}}}}}" for name in lacking)
            made.append(f"{_shown(stage)} has no {fields}: the {stage} is not told all of its task")
    return tuple(made)


def places_in(template: str) -> frozenset[str]:
    """The fields that a template has a place for."""
    return frozenset(re.findall(_PLACE, template))


def fitted(template: str, lacking: frozenset[str]) -> str:
    """The template less its sections about what there is nothing to say of.

    A section begins with `## `. One that also tells of the task itself stays, with these places left empty.
    """
    sections = re.split(r"(?m)^(?=## )", template)
    kept = "".join(part for number, part in enumerate(sections) if number == 0 or not _idle(part, lacking))
    for name in lacking:  # a heading of nothing else goes with its place
        kept = re.sub(rf"(?m)^(?:#+ *)?\{{\{{ *{name} *\}}\}} *\n*|\{{\{{ *{name} *\}}\}}", "", kept)
    return kept


def single_pass(template: str, lacking: frozenset[str]) -> str:
    """The template of a stage that is gone through once: no promise is asked for, and nothing is counted."""
    told = fitted(template, lacking | {"promise", "refusal", "iteration", "max_iterations"})
    return f"{told.rstrip()}\n\n{_packaged('single_pass')}"


def _idle(section: str, lacking: frozenset[str]) -> bool:
    places = places_in(section)
    return bool(places & lacking) and not places & (_TASK - lacking)


def _packaged(name: str) -> str:
    with open(os.path.join(_OWN, f"{name}.md"), encoding="utf-8") as file:
        return file.read()


def _shown(stage: str) -> str:
    return f"{FOLDER}/{stage}.md"


def _own(root: str, stage: str) -> str | None:
    """The project's own template; None where it has none."""
    path = os.path.join(root, *_shown(stage).split("/"))
    if not os.path.lexists(path):
        return None
    text = _text(path, os.path.realpath(root))
    if isinstance(text, str) and (unknown := _unknown(text)):
        text = Unusable(unknown)
    if isinstance(text, Unusable):
        raise Refused(f"{_shown(stage)}: {text.why}")
    return text


def _text(path: str, root: str) -> str | Unusable | None:
    """What a file holds; one that a link leads out of the project to is not followed."""
    if not os.path.realpath(path).startswith(os.path.join(root, "")):
        return Unusable("is a link that leads out of the project, and was not followed")
    data = contents(path)
    if not isinstance(data, bytes):
        return data
    if len(data) > MOST_BYTES:
        return Unusable(f"is larger than {MOST_BYTES >> 10} KiB")
    if b"\0" in data:
        return Unusable("holds a NUL byte")
    text = decode(data)
    return Unusable("is empty; write a template or remove it") if isinstance(text, str) and not text.strip() else text


def _unknown(text: str) -> str:
    """Why a place in it cannot be filled; empty where all can."""
    for found in re.finditer(_BRACES, text):
        if not re.fullmatch(_PLACE, found[0]) or found[1].strip() not in FIELDS:
            from ralphproof.config.schema import nearest

            line = text.count("\n", 0, found.start()) + 1
            near = nearest(found[1].strip(), FIELDS)
            return f"line {line}: {found[0]} is no field of a template{near or '; there are: ' + ', '.join(FIELDS)}"
    return ""
