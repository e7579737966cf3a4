"""`ralph run --dry-run`: what would be done, without doing any of it."""

from __future__ import annotations

import sys

from ralphproof.agent import Brief
from ralphproof.cli.order import Order
from ralphproof.display.clean import clean
from ralphproof.errors import Refused
from ralphproof.feedback import Feedback
from ralphproof.prompt import Count, compose
from ralphproof.stage import Blocked, Job, choose
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralphproof.value import Json


BOXES = {None: "none", "auto": "the strongest that holds here"}


def show(order: Order, as_json: bool) -> int:
    """Print the first prompt, the argument lists of all agents and the checks."""
    settings = order.loaded.settings
    rules = order.rules
    job, most = choose(order.plan.read(), rules.pipeline, frozenset()), rules.limits.budget.iterations
    if isinstance(job, Blocked):
        raise Refused(f"nothing can be worked on: {job.why}")
    assert isinstance(job, Job)
    exports = {"RALPH_ITERATION": "1", **({"RALPH_MAX_ITERATIONS": str(most)} if most is not None else {})}
    prompt = compose(job, Feedback(), Count(1, most) if rules.show_count else None, exports=exports)
    masked = order.project.mask(prompt)
    brief = Brief(prompt, "<prompt file>", order.project.root, (), "", "", "", 0.0)
    argv, *fallbacks = ([order.project.mask(part) for part in agent.argv(brief)] for agent in order.agents)
    checks = [order.project.mask(check) for check in order.course.shown] if order.course else []
    box = order.wish.boxed_by(settings)
    hooks = {hook: [order.project.mask(one) for one in commands] for hook, commands in settings.on.by_name}
    if as_json:
        import json

        known = {"prompt": masked, "argv": argv, "fallbacks": fallbacks, "checks": checks, "sandbox": box, "on": hooks}
        print(json.dumps({"v": 1, "type": "dry-run", **known}))
        return 0
    for remark in order.remarks:
        print(clean(order.project.mask(remark)), file=sys.stderr)
    print(f"Project: {order.project.root}")
    for line in (*_agents(argv, fallbacks), *_checks(checks), *_hooks(hooks), f"Sandbox: {BOXES.get(box, box)}"):
        print(clean(line))
    print(f"Prompt of iteration 1 of {settings.maximum_iterations}:\n{clean(masked)}")
    return 0


def stages_of(order: Order) -> list[Json]:
    """The stages that a task would go through, for programs."""
    return [
        {"name": one.name, "promise": one.claim.word, "checks": [*one.checks], "judges": [*one.judges],
         "maxIterations": one.max_iterations, "back": [*one.back]}
        for one in order.rules.pipeline.stages
    ]  # fmt: skip


def show_stages(order: Order) -> None:
    """Print the stages that a task would go through, what claims and what verifies each, and how often it is tried."""
    task = order.plan.read().tasks[0]
    for remark in order.remarks:
        print(clean(order.project.mask(remark)), file=sys.stderr)
    print(clean(f"{task.id}: {task.title}"))
    for one in order.rules.pipeline.stages:
        asked = ", ".join((*one.checks, *(f"{judge} (judged)" for judge in one.judges))) or "nothing; its word counts"
        claim = f"says {one.claim.word}" if one.claim.word else "single pass"
        print(clean(order.project.mask(f"  {one.name}: at most {one.max_iterations}, {claim}; verified by {asked}")))
    for line in _hooks(dict(order.loaded.settings.on.by_name)):
        print(clean(order.project.mask(f"  {line}")))


def _agents(argv: list[str], fallbacks: list[list[str]]) -> list[str]:
    import shlex

    listed = [f"  {shlex.join(other)}" for other in fallbacks]
    return [f"Agent: {shlex.join(argv)}", *(["Fallbacks:", *listed] if listed else [])]


def _checks(checks: list[str]) -> list[str]:
    if not checks:
        return ["Checks: none; the agent's word alone would end the run"]
    return ["Checks:", *(f"  {check}" for check in checks)]


def _hooks(hooks: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"{hook}: {command}" for hook, commands in hooks.items() for command in commands]
