"""`ralph run --dry-run`: what would be done, without doing any of it."""

from __future__ import annotations

import sys

from ralphproof.agent import Brief
from ralphproof.cli.begin import Order
from ralphproof.config.build import rules_of
from ralphproof.display.clean import clean
from ralphproof.prompt import Count, compose
from ralphproof.stage import Job, choose
from ralphproof.verdict import Feedback


def show(order: Order, as_json: bool) -> int:
    """Print the first prompt, the argument list and the checks."""
    settings = order.loaded.settings
    rules = rules_of(settings)
    job = choose(order.plan.read(), rules.pipeline, frozenset())
    assert isinstance(job, Job)
    prompt = compose(job, Feedback(), Count(1, rules.limits.budget.iterations) if rules.show_count else None)
    masked = order.project.mask(prompt)
    argv = [
        order.project.mask(part)
        for part in order.agents[0].argv(Brief(prompt, "<prompt file>", order.project.root, (), "", "", "", 0.0))
    ]
    checks = [order.project.mask(guardrail.command) for guardrail in settings.guardrails]
    if as_json:
        import json

        print(json.dumps({"v": 1, "type": "dry-run", "prompt": masked, "argv": argv, "checks": checks}))
        return 0
    import shlex

    for remark in order.remarks:
        print(clean(remark), file=sys.stderr)
    print(f"Project: {order.project.root}")
    print(f"Agent: {clean(shlex.join(argv))}")
    print("Checks:" if checks else "Checks: none; the agent's word alone would end the run")
    for check in checks:
        print(f"  {clean(check)}")
    print(f"Prompt of iteration 1 of {settings.maximum_iterations}:\n{clean(masked)}")
    return 0
