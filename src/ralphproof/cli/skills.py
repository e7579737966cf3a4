"""`ralph skills`: the skills that are available here."""

from __future__ import annotations

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.git_layout import resolve_project_root
from ralphproof.base.value import Json
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.settings.skills import Skill, SkillCatalog, find_skills, load_skill, missing_skill_parts

ABOUT = """List the skills that an agent can be given, or show one.

A skill is searched in .ralph/skills/NAME/SKILL.md, then in .claude/skills/NAME/SKILL.md, then among those that come
with ralph. Nothing that a skill names is executed."""
EXAMPLES = ("ralph skills list", "ralph skills show tdd", "ralph skills list --json")


def build_parser() -> Parser:
    parser = Parser("skills", ABOUT, EXAMPLES)
    parser.add_argument("what", choices=("list", "show"), help="list all skills, or show one")
    parser.add_argument("name", nargs="?", metavar="NAME", help="with show: skill name")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
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
