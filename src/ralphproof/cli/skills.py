"""`ralph skills`: the skills that can be used here."""

from __future__ import annotations

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.git_layout import resolve_project_root
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.settings.skills import Skill, find_skills, load_skill, missing_skill_parts

if TYPE_CHECKING:
    from ralphproof.base.value import Json
    from ralphproof.settings.skills import SkillCatalog

ABOUT = """the skills that can be used here, and what each tells the agent.

A skill is looked for in .ralph/skills/NAME/SKILL.md, then in .claude/skills/NAME/SKILL.md, then among those that come
with ralph. Nothing that a skill names is executed."""
EXAMPLES = ("ralph skills list", "ralph skills show tdd", "ralph skills list --json")


def build_parser() -> Parser:
    parser = Parser("skills", ABOUT, EXAMPLES)
    parser.add_argument("what", choices=("list", "show"), help="all skills in short, or one of them whole")
    parser.add_argument("name", nargs="?", metavar="NAME", help="with show: the skill")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    root = resolve_project_root(args.project_dir)
    if args.what == "show":
        if args.name is None:
            known = ", ".join(skill.name for skill in find_skills(root).skills)
            raise Refused(f"which skill? ralph skills show NAME; there are: {known}")
        print_skill(load_skill(root, args.name), args.json)
        return 0
    if args.name is not None:
        raise Refused(f"ralph skills list takes no name; to see one skill: ralph skills show {args.name}")
    print_skills(find_skills(root), args.json)
    return 0


def print_skills(found: SkillCatalog, for_programs: bool) -> None:
    """Every skill in short, then those that are not used, then the files that cannot be."""
    if for_programs:
        skills, shadowed = ([skill_json(skill) for skill in group] for group in (found.skills, found.shadowed))
        told: dict[str, Json] = {"skills": [*skills], "shadowed": [*shadowed], "problems": [*found.problems]}
        print_json("skills", told)
        return
    for skill in found.skills:
        print_lines(f"{skill.name}  ({readiness(skill)}; {skill.source})")
        print_lines(f"    {skill.description or 'no description'}")
    print_lines(
        *(f"not used: {skill.name} ({skill.source}); another of its name comes first" for skill in found.shadowed)
    )
    print_lines(*(f"problem: {problem}" for problem in found.problems))


def readiness(skill: Skill) -> str:
    """Whether a loop can use it, in a few words."""
    lacks = len(missing_skill_parts(skill))
    return "ready for a loop" if not lacks else f"not ready for a loop, {lacks} missing"


def print_skill(skill: Skill, for_programs: bool) -> None:
    """One skill with all that it says."""
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
    """What programs read of a skill, its text aside."""
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
