"""`ralph run --explain`: whether the work may be left to a loop, condition by condition."""

from __future__ import annotations

from ralphproof.cli.out import put, put_json
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.fitness import Condition, Fitness
    from ralphproof.skill import Skill
    from ralphproof.value import Json

WAYS = {
    "verification": "name a command that can show it: --check CMD",
    "scope": "ask for one feature, bug or refactor, and say where; --type names it where the guess is wrong",
    "risk": "do it with somebody watching, or say --risk low or --risk medium if that is what it is",
    "skill": "add to the skill what it lacks, or run without --skill",
}


def show(fitness: Fitness, skill: Skill | None, as_json: bool) -> int:
    """Say each condition, the verdict and what to do; 0 where the work is fit for a loop, else 1."""
    unmet = [condition for condition in fitness.conditions if not condition.met]
    if as_json:
        put_json("explain", _told(fitness, skill))
    else:
        put(*(f"{'yes' if each.met else 'no ':<3}  {each.name}: {each.reason}" for each in fitness.conditions))
        put("", verdict(unmet), *(f"  {WAYS[condition.name]}" for condition in unmet))
    return 1 if unmet else 0


def verdict(unmet: list[Condition]) -> str:
    """The answer in one line."""
    if not unmet:
        return "fit for a loop"
    return f"not fit for a loop: {', '.join(condition.name for condition in unmet)}"


def _told(fitness: Fitness, skill: Skill | None) -> dict[str, Json]:
    conditions: list[Json] = [
        {"name": condition.name, "met": condition.met, "reason": condition.reason} for condition in fitness.conditions
    ]
    told: dict[str, Json] = {"fit": fitness.fit, "taskType": fitness.type, "risk": fitness.risk}
    return told | {"skill": skill.name if skill else None, "conditions": conditions}
