"""Prompt templates of the stages: packaged ones, and a project's own in their place."""

from __future__ import annotations

import os
import re

from ralphproof.base.errors import Refused
from ralphproof.base.json_text import UnusableFile, decode_utf8, read_bounded_file
from ralphproof.settings.keys import PIPELINE_STAGES

TEMPLATES_FOLDER = ".ralph/templates"  # of a project
MAX_TEMPLATE_BYTES = 64 << 10
# Placeholders that a template may contain.
TEMPLATE_FIELDS = (
    "id", "spec", "title", "description", "outcome", "acceptance_criteria", "stage", "success_criteria",
    "verification_method", "promise", "refusal", "iteration", "max_iterations",
)  # fmt: skip
REQUIRED_FIELDS = ("title", "description")  # without them an agent does not know what to do
_TASK_FIELDS = frozenset((*REQUIRED_FIELDS, "outcome"))
_PLACEHOLDER = r"\{\{ *(\w+) *\}\}"
_BRACES = r"\{\{([^{}\n]{0,60})\}\}"
_PACKAGED_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "templates")


def load_stage_template(root: str, stage: str) -> str:
    """The template of a stage: the project's own, else the one that comes with the program.

    Raises Refused where the project's own cannot be used.
    """
    own = _read_project_template(root, stage)
    return _read_packaged_template(stage) if own is None else own


def load_stage_templates(root: str) -> dict[str, str]:
    """The template of every stage; raises Refused where one cannot be used."""
    return {stage: load_stage_template(root, stage) for stage in PIPELINE_STAGES}


def warn_about_templates(root: str) -> tuple[str, ...]:
    """A warning for each project template that lacks the placeholders of the task."""
    warnings: list[str] = []
    for stage in PIPELINE_STAGES:
        own = _read_project_template(root, stage)
        lacking = [] if own is None else [name for name in REQUIRED_FIELDS if name not in find_placeholders(own)]
        if lacking:
            fields = " and ".join(f"{{{{{name}}}}}" for name in lacking)
            warnings.append(f"{_template_path(stage)} has no {fields}: the {stage} is not told all of its task")
    return tuple(warnings)


def find_placeholders(template: str) -> frozenset[str]:
    """The field names of a template's placeholders."""
    return frozenset(re.findall(_PLACEHOLDER, template))


def drop_empty_sections(template: str, lacking: frozenset[str]) -> str:
    """The template without sections whose fields are empty.

    A section begins with `## `. One that also describes the task itself stays, with these fields left empty.
    """
    sections = re.split(r"(?m)^(?=## )", template)
    text = "".join(part for number, part in enumerate(sections) if number == 0 or not _is_empty_section(part, lacking))
    for name in lacking:  # a heading of nothing else goes with its place
        text = re.sub(rf"(?m)^(?:#+ *)?\{{\{{ *{name} *\}}\}} *\n*|\{{\{{ *{name} *\}}\}}", "", text)
    return text


def single_pass_template(template: str, lacking: frozenset[str]) -> str:
    """The template of a single-pass stage: without promise and counters."""
    text = drop_empty_sections(template, lacking | {"promise", "refusal", "iteration", "max_iterations"})
    return f"{text.rstrip()}\n\n{_read_packaged_template('single_pass')}"


def _is_empty_section(section: str, lacking: frozenset[str]) -> bool:
    places = find_placeholders(section)
    return bool(places & lacking) and not places & (_TASK_FIELDS - lacking)


def _read_packaged_template(name: str) -> str:
    with open(os.path.join(_PACKAGED_FOLDER, f"{name}.md"), encoding="utf-8") as file:
        return file.read()


def _template_path(stage: str) -> str:
    return f"{TEMPLATES_FOLDER}/{stage}.md"


def _read_project_template(root: str, stage: str) -> str | None:
    """The project's own template; None where it has none."""
    path = os.path.join(root, *_template_path(stage).split("/"))
    if not os.path.lexists(path):
        return None
    text = _read_template_file(path, os.path.realpath(root))
    if isinstance(text, str) and (unknown := _find_unknown_field(text)):
        text = UnusableFile(unknown)
    if isinstance(text, UnusableFile):
        raise Refused(f"{_template_path(stage)}: {text.why}")
    return text


def _read_template_file(path: str, root: str) -> str | UnusableFile | None:
    """The text of a file; a link that leads out of the project is refused."""
    if not os.path.realpath(path).startswith(os.path.join(root, "")):
        return UnusableFile("is a link that leads out of the project, and was not followed")
    data = read_bounded_file(path)
    if not isinstance(data, bytes):
        return data
    if len(data) > MAX_TEMPLATE_BYTES:
        return UnusableFile(f"is larger than {MAX_TEMPLATE_BYTES >> 10} KiB")
    if b"\0" in data:
        return UnusableFile("holds a NUL byte")
    text = decode_utf8(data)
    return (
        UnusableFile("is empty; write a template or remove it") if isinstance(text, str) and not text.strip() else text
    )


def _find_unknown_field(text: str) -> str:
    """Why a placeholder cannot be filled; empty if all can."""
    for match in re.finditer(_BRACES, text):
        if not re.fullmatch(_PLACEHOLDER, match[0]) or match[1].strip() not in TEMPLATE_FIELDS:
            from ralphproof.settings.field_rules import suggest_name

            line = text.count("\n", 0, match.start()) + 1
            known = suggest_name(match[1].strip(), TEMPLATE_FIELDS) or f"; there are: {', '.join(TEMPLATE_FIELDS)}"
            return f"line {line}: {match[0]} is no field of a template{known}"
    return ""
