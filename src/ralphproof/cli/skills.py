"""`ralph skills`: the skills that can be used here, and what each tells the agent."""

from __future__ import annotations

from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.config.skills import find_skills, skill_named
from ralphproof.display.clean import clean
from ralphproof.errors import Refused
from ralphproof.skill import Skill, lacking
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.root import root_of

if TYPE_CHECKING:
    from ralphproof.config.skills import Found
    from ralphproof.value import Json

ABOUT = """the skills that can be used here, and what each tells the agent.

A skill is looked for in .ralph/skills/NAME/SKILL.md, then in .claude/skills/NAME/SKILL.md, then among those that come
with ralph. Nothing that a skill names is executed."""
EXAMPLES = ("ralph skills list", "ralph skills show tdd", "ralph skills list --json")


def parser() -> Parser:
    made = Parser("skills", ABOUT, EXAMPLES)
    made.add_argument("what", choices=("list", "show"), help="all skills in short, or one of them whole")
    made.add_argument("name", nargs="?", metavar="NAME", help="with show: the skill")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    root = root_of(args.project_dir)
    if args.what == "show":
        if args.name is None:
            known = ", ".join(skill.name for skill in find_skills(root).skills)
            raise Refused(f"which skill? ralph skills show NAME; there are: {known}")
        show(skill_named(root, args.name), args.json)
        return 0
    if args.name is not None:
        raise Refused(f"ralph skills list takes no name; to see one skill: ralph skills show {args.name}")
    list_all(find_skills(root), args.json)
    return 0


def list_all(found: Found, for_programs: bool) -> None:
    """Every skill in short, then those that are not used, then the files that cannot be."""
    if for_programs:
        skills, shadowed = ([as_json(skill) for skill in group] for group in (found.skills, found.shadowed))
        told: dict[str, Json] = {"skills": [*skills], "shadowed": [*shadowed], "problems": [*found.problems]}
        put_json("skills", told)
        return
    for skill in found.skills:
        put(f"{skill.name}  ({readiness(skill)}; {skill.source})")
        put(f"    {skill.description or 'no description'}")
    put(*(f"not used: {skill.name} ({skill.source}); another of its name comes first" for skill in found.shadowed))
    put(*(f"problem: {problem}" for problem in found.problems))


def readiness(skill: Skill) -> str:
    """Whether a loop can use it, in a few words."""
    lacks = len(lacking(skill))
    return "ready for a loop" if not lacks else f"not ready for a loop, {lacks} missing"


def show(skill: Skill, for_programs: bool) -> None:
    """One skill with all that it says."""
    if for_programs:
        put_json("skill", as_json(skill) | {"body": skill.body})
        return
    put(f"{skill.name}: {skill.description or 'no description'}", f"found: {skill.source}")
    put(f"promise: {skill.promise or 'none'}")
    put(f"verified by: {', '.join(skill.verification) or 'nothing'}")
    put(*(f"criterion: {criterion}" for criterion in skill.criteria))
    lacks = lacking(skill)
    put(*(f"lacks: {lack}" for lack in lacks) if lacks else (f"use it: ralph run --skill {skill.name} -p PROMPT",))
    put("", *clean(skill.body).split("\n"))


def as_json(skill: Skill) -> dict[str, Json]:
    """What programs read of a skill, its text aside."""
    lacks = lacking(skill)
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
