"""Settings and published objects: `ralph config`, `ralph schema` and `ralph skills`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.git_layout import resolve_project_root
from ralphproof.base.text import did_you_mean
from ralphproof.base.value import Json
from ralphproof.cli.parser import Parser
from ralphproof.display.output import align_columns, print_json, print_lines, print_result
from ralphproof.settings.loader import LoadedSettings, json_lines, load_settings, mask_settings
from ralphproof.settings.reference import json_schema as settings_schema
from ralphproof.settings.skills import Skill, SkillCatalog, find_skills, load_skill, missing_skill_parts
from ralphproof.views.published_json import NOUNS, json_schema

# ralph config


CONFIG_ABOUT = "Show the settings in force and where each comes from, or the schema of a settings file."
CONFIG_EXAMPLES = (
    "ralph config show",
    "ralph config show --origin",
    "ralph config schema > .ralph/settings.schema.json",
)


def config_parser() -> Parser:
    parser = Parser("config", CONFIG_ABOUT, CONFIG_EXAMPLES)
    parser.add("what", "show the merged settings, or the JSON Schema of a settings file", choices=("show", "schema"))
    parser.add("--origin", "with show: one setting per line with its origin")
    return parser


def config_main(argv: list[str]) -> int:
    args = config_parser().parse(argv)
    if args.what == "schema":
        _print_schema(args.json)
        return 0
    loaded = load_settings(resolve_project_root(args.project_dir), os.environ)
    settings = mask_settings(loaded.raw)
    if args.json:
        data: dict[str, Json] = {"settings": settings, "origins": dict(setting_origins(loaded))}
        print_json("config", data | {"warnings": list(loaded.warnings)})
        return 0
    print_lines(*(f"note: {warning}" for warning in loaded.warnings))
    print_lines(*(_setting_lines(loaded, settings) if args.origin else json_lines(settings)))
    return 0


def _print_schema(for_programs: bool) -> None:
    print_result(for_programs, "schema", {"schema": settings_schema()}, *json_lines(settings_schema()))


def _setting_lines(loaded: LoadedSettings, settings: Any) -> Iterator[str]:
    for path, data, origin in _walk_settings(settings, "", loaded.origins):
        yield f"{path} = {json.dumps(data, ensure_ascii=False)}  ({origin})"


def setting_origins(loaded: LoadedSettings) -> Iterator[tuple[str, str]]:
    """Path and origin of every value, in the order of the settings."""
    yield from ((path, origin) for path, _, origin in _walk_settings(loaded.raw, "", loaded.origins))


def _walk_settings(data: dict[str, Any], path: str, known: dict[str, str]) -> Iterator[tuple[str, Any, str]]:
    """Path, value and origin. A path cannot be looked up again: model names contain dots."""
    for name, inner in data.items():
        if isinstance(inner, dict) and inner and path + name not in known:
            yield from _walk_settings(inner, f"{path}{name}.", known)
        else:
            yield path + name, inner, known.get(path + name, "default")


# ralph schema


SCHEMA_ABOUT = """Print the JSON Schema of an object that --json, the HTTP API, outcome.json or a proof has in it.

Without NOUN: all of them. The same object has the same fields everywhere."""
SCHEMA_EXAMPLES = ("ralph schema", "ralph schema run", "ralph schema check > check.schema.json", "ralph schema --json")


def schema_parser() -> Parser:
    parser = Parser("schema", SCHEMA_ABOUT, SCHEMA_EXAMPLES)
    parser.add("noun", "object, such as run, iteration, check or task", nargs="?", metavar="NOUN")
    return parser


def schema_main(argv: list[str]) -> int:
    args = schema_parser().parse(argv)
    if args.noun is None:
        _print_nouns(args.json)
        return 0
    if args.noun not in NOUNS:
        raise Refused(f"there is no {args.noun!r}{did_you_mean(args.noun, NOUNS)}; ralph schema lists all")
    print(json.dumps(json_schema(args.noun), indent=None if args.json else 2))
    return 0


def _print_nouns(for_programs: bool) -> None:
    if for_programs:
        nouns: list[Json] = [{"name": noun.name, "about": noun.about} for noun in NOUNS.values()]
        print_json("schemas", {"nouns": nouns})
    else:
        print("\n".join(align_columns([(noun.name, noun.about) for noun in NOUNS.values()])))


# ralph skills


SKILLS_ABOUT = """List the skills that an agent can be given, or show one.

A skill is searched in .ralph/skills/NAME/SKILL.md, then in .claude/skills/NAME/SKILL.md, then among those that come
with ralph. Nothing that a skill names is executed."""
SKILLS_EXAMPLES = ("ralph skills list", "ralph skills show tdd", "ralph skills list --json")


def skills_parser() -> Parser:
    parser = Parser("skills", SKILLS_ABOUT, SKILLS_EXAMPLES)
    parser.add("what", "list all skills, or show one", choices=("list", "show"))
    parser.add("name", "with show: skill name", nargs="?", metavar="NAME")
    return parser


def skills_main(argv: list[str]) -> int:
    args = skills_parser().parse(argv)
    root = resolve_project_root(args.project_dir)
    if args.what == "show":
        if args.name is None:
            known = ", ".join(skill.name for skill in find_skills(root).skills)
            raise Refused(f"which skill? ralph skills show NAME; available: {known}")
        print_skill(load_skill(root, args.name), args.json)
        return 0
    if args.name is not None:
        raise Refused(f"ralph skills list takes no name; to see one skill: ralph skills show {args.name}")
    print_skills(find_skills(root), args.json)
    return 0


def print_skills(catalog: SkillCatalog, for_programs: bool) -> None:
    """Print all skills, then shadowed ones, then invalid files."""
    if for_programs:
        skills, shadowed = ([skill_json(skill) for skill in group] for group in (catalog.skills, catalog.shadowed))
        data: dict[str, Json] = {"skills": [*skills], "shadowed": [*shadowed], "problems": [*catalog.problems]}
        print_json("skills", data)
        return
    for skill in catalog.skills:
        print_lines(f"{skill.name}  ({readiness(skill)}; {skill.source})")
        print_lines(f"    {skill.description or 'no description'}")
    print_lines(
        *(
            f"not used: {skill.name} ({skill.source}); another one of this name takes precedence"
            for skill in catalog.shadowed
        )
    )
    print_lines(*(f"problem: {problem}" for problem in catalog.problems))


def readiness(skill: Skill) -> str:
    """Whether a loop can use the skill."""
    lacks = len(missing_skill_parts(skill))
    return "ready for a loop" if not lacks else f"not ready for a loop, {lacks} missing"


def print_skill(skill: Skill, for_programs: bool) -> None:
    """Print one skill completely."""
    if for_programs:
        print_json("skill", skill_json(skill) | {"body": skill.body})
        return
    print_lines(f"{skill.name}: {skill.description or 'no description'}", f"found: {skill.source}")
    print_lines(f"promise: {skill.promise or 'none'}")
    print_lines(f"verified by: {', '.join(skill.verification) or 'nothing'}")
    print_lines(*(f"criterion: {criterion}" for criterion in skill.criteria))
    lacks = missing_skill_parts(skill)
    print_lines(
        *(f"lacks: {lack}" for lack in lacks) if lacks else (f"use it: ralph run --skill {skill.name} -p PROMPT",)
    )
    print_lines("", *sanitize(skill.body).split("\n"))


def skill_json(skill: Skill) -> dict[str, Json]:
    """The JSON object of a skill, without its text."""
    lacks = missing_skill_parts(skill)
    return {
        "name": skill.name,
        "description": skill.description,
        "promise": skill.promise or None,
        "verification": [*skill.verification],
        "criteria": [*skill.criteria],
        "source": skill.source,
        "ready": not lacks,
        "lacking": [*lacks],
    }
