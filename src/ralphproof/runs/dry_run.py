"""Preview of a run: first prompt, agents, checks, stages, fitness of the task."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.value import Json
from ralphproof.display.output import print_json, print_lines
from ralphproof.engine.agent import TurnInput
from ralphproof.engine.plan import Blocked, Job, choose_next_job
from ralphproof.engine.prompt import Feedback, IterationCount, compose_prompt
from ralphproof.runs.preflight import Fitness, FitnessCondition
from ralphproof.runs.spec import RunSpec
from ralphproof.settings.skills import Skill

# `ralph run --dry-run`: what would be done, without doing any of it.


SANDBOX_NAMES = {None: "none", "auto": "the strongest that holds here"}


def print_dry_run(spec: RunSpec, as_json: bool) -> int:
    """Print the first prompt, the argument lists of all agents and the checks."""
    settings = spec.loaded.settings
    rules = spec.rules
    job, limit = choose_next_job(spec.plan.read(), rules.pipeline, frozenset()), rules.limits.budget.iterations
    if isinstance(job, Blocked):
        raise Refused(f"nothing can be worked on: {job.why}")
    assert isinstance(job, Job)
    exports = {"RALPH_ITERATION": "1", **({"RALPH_MAX_ITERATIONS": str(limit)} if limit is not None else {})}
    prompt = compose_prompt(
        job, Feedback(), IterationCount(1, limit) if rules.prompt.show_count else None, exports=exports
    )
    masked = spec.project.mask(prompt)
    turn_input = TurnInput(prompt, "<prompt file>", spec.project.root, (), "", "", "", 0.0)
    argv, *fallbacks = ([spec.project.mask(part) for part in agent.argv(turn_input)] for agent in spec.agents)
    checks = [spec.project.mask(check) for check in spec.stage_plan.check_labels] if spec.stage_plan else []
    sandbox = spec.request.sandbox_kind(settings)
    hooks = {hook: [spec.project.mask(one) for one in commands] for hook, commands in settings.on.by_name}
    if as_json:
        data = {
            "prompt": masked,
            "argv": argv,
            "fallbacks": fallbacks,
            "checks": checks,
            "sandbox": sandbox,
            "on": hooks,
        }
        print(json.dumps({"v": 1, "type": "dry-run", **data}))
        return 0
    for remark in spec.remarks:
        print(sanitize(spec.project.mask(remark)), file=sys.stderr)
    print(f"Project: {spec.project.root}")
    for line in (
        *_agent_lines(argv, fallbacks),
        *_check_lines(checks),
        *_hook_lines(hooks),
        f"Sandbox: {SANDBOX_NAMES.get(sandbox, sandbox)}",
    ):
        print(sanitize(line))
    print(f"Prompt of iteration 1 of {settings.maximum_iterations}:\n{sanitize(masked)}")
    return 0


def stages_json(spec: RunSpec) -> list[Json]:
    """The stages that a task would go through, for programs."""
    return [
        {"name": one.name, "promise": one.claim.word, "checks": [*one.checks], "judges": [*one.judges],
         "maxIterations": one.max_iterations, "back": [*one.back]}
        for one in spec.rules.pipeline.stages
    ]  # fmt: skip


def print_stages(spec: RunSpec) -> None:
    """Print the stages that a task would go through: the claim, the checks and the number of attempts of each."""
    task = spec.plan.read().tasks[0]
    for remark in spec.remarks:
        print(sanitize(spec.project.mask(remark)), file=sys.stderr)
    print(sanitize(f"{task.id}: {task.title}"))
    for stage in spec.rules.pipeline.stages:
        verified_by = (
            ", ".join((*stage.checks, *(f"{judge} (judged)" for judge in stage.judges))) or "nothing; its word counts"
        )
        claim = f"says {stage.claim.word}" if stage.claim.word else "single pass"
        print(
            sanitize(
                spec.project.mask(f"  {stage.name}: at most {stage.max_iterations}, {claim}; verified by {verified_by}")
            )
        )
    for line in _hook_lines(dict(spec.loaded.settings.on.by_name)):
        print(sanitize(spec.project.mask(f"  {line}")))


def _agent_lines(argv: list[str], fallbacks: list[list[str]]) -> list[str]:
    listed = [f"  {shlex.join(other)}" for other in fallbacks]
    return [f"Agent: {shlex.join(argv)}", *(["Fallbacks:", *listed] if listed else [])]


def _check_lines(checks: list[str]) -> list[str]:
    if not checks:
        return ["Checks: none; the agent's word alone would end the run"]
    return ["Checks:", *(f"  {check}" for check in checks)]


def _hook_lines(hooks: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"{hook}: {command}" for hook, commands in hooks.items() for command in commands]


# `ralph run --explain`: whether the work may be left to a loop, condition by condition.


REMEDIES = {
    "verification": "name a command that can show it: --check CMD",
    "scope": "ask for one feature, bug or refactor, and say where; --type names it where the guess is wrong",
    "risk": "do it with somebody watching, or say --risk low or --risk medium if that is what it is",
    "skill": "add to the skill what it lacks, or run without --skill",
}


def print_fitness(fitness: Fitness, skill: Skill | None, as_json: bool) -> int:
    """Print each condition, the verdict and the remedies; 0 where the work is fit for a loop, else 1."""
    unmet = [condition for condition in fitness.conditions if not condition.met]
    if as_json:
        print_json("explain", _fitness_json(fitness, skill))
    else:
        print_lines(*(f"{'yes' if each.met else 'no ':<3}  {each.name}: {each.reason}" for each in fitness.conditions))
        print_lines("", fitness_verdict(unmet), *(f"  {REMEDIES[condition.name]}" for condition in unmet))
    return 1 if unmet else 0


def fitness_verdict(unmet: list[FitnessCondition]) -> str:
    """The verdict in one line."""
    if not unmet:
        return "fit for a loop"
    return f"not fit for a loop: {', '.join(condition.name for condition in unmet)}"


def _fitness_json(fitness: Fitness, skill: Skill | None) -> dict[str, Json]:
    conditions: list[Json] = [
        {"name": condition.name, "met": condition.met, "reason": condition.reason} for condition in fitness.conditions
    ]
    data: dict[str, Json] = {"fit": fitness.fit, "taskType": fitness.type, "risk": fitness.risk}
    return data | {"skill": skill.name if skill else None, "conditions": conditions}
