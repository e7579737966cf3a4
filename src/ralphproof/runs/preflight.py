"""Pre-flight warnings and refusals: agents, their cost, sandbox, git, risk of the task."""

from __future__ import annotations

import os

from ralphproof.agents.adapter import COST_COMPUTED, COST_UNKNOWN
from ralphproof.agents.selection import UNGUARDED
from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import enclosing_repository
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.checks.check_plan import CLEAN_CHECKOUT
from ralphproof.runs import assembly
from ralphproof.runs.pipeline import StagePlan

if TYPE_CHECKING:
    from ralphproof.agents.selection import SelectedAgent
    from ralphproof.runs.fitness import Fitness
    from ralphproof.runs.request import RunRequest
    from ralphproof.settings.skills import Skill
    from ralphproof.settings.typed_settings import Settings


UNKNOWN_COST_ADVICE = "add --allow-unknown-cost, and limit the run with --max-iterations and --max-minutes"
COST_UNREPORTED = f"cannot report its cost, nor its tokens, so {{limit}} could not be held; {UNKNOWN_COST_ADVICE}"
TOKENS_UNREPORTED = f"tells no tokens, so maxTokens could not be held; {UNKNOWN_COST_ADVICE}"
TOKENS_UNPRICED = (
    "reports tokens alone, which have no known price, so {limit} could not be held; set --max-tokens as well, or add "
    "--allow-unknown-cost"
)
HOOKED_AGENTS = ("claude", "codex")  # they call the command guard before every tool
NO_COMMIT_MESSAGE = (
    "scm: a program without a prompt cannot be asked for a commit message; the work is saved, not committed"
)
MODEL_UNPRICED = (
    "reports tokens alone, and the price of its model is not known, so {limit} could not be held; name the model "
    "with --model, or its price in prices of your own settings, or set --max-tokens as well, or add "
    "--allow-unknown-cost"
)


def refuse_unknown_cost(settings: Settings, agents: tuple[SelectedAgent, ...], allowed: bool) -> None:
    """Raise Refused where the user set a limit on cost or tokens that cannot be enforced, because an agent does not
    report them.

    Caps alone only warn. A token limit is enough where an agent reports tokens.
    """
    limits = settings.limits
    cost_limits = (("maxCostUsd", limits.max_cost_micro_usd), ("dailyCostUsd", limits.daily_cost_micro_usd))
    limit = next((name for name, amount in cost_limits if amount is not None), None)
    for one in () if allowed else agents:
        if limit is not None and not one.agent.reports_cost and (limits.max_tokens is None or not one.reports_tokens):
            why = (
                COST_UNREPORTED
                if not one.reports_tokens
                else MODEL_UNPRICED
                if one.cost == COST_COMPUTED
                else TOKENS_UNPRICED
            )
            raise Refused(f"agent {one.agent.name} {why.format(limit=limit)}")
        if limits.max_tokens is not None and not one.reports_tokens:
            raise Refused(f"agent {one.agent.name} {TOKENS_UNREPORTED}")


def warn_about_agents(settings: Settings, agents: tuple[SelectedAgent, ...], cost_allowed: bool) -> list[str]:
    """Warnings about agents without restrictions or with unknown cost."""
    remarks = [_guard_warning(one) for one in agents if one.permissions == UNGUARDED]
    remarks += [
        f"agent {one.agent.name}: its own flags decide what it may do ({one.deciding_flag})"
        for one in agents
        if one.deciding_flag
    ]
    if not cost_allowed:
        has_own_limit = settings.limits.max_cost_micro_usd is not None
        name = "limits.maxCostUsd" if has_own_limit else "caps.costUsd"
        limit = f"{name} ({settings.cost_limit_micro_usd / 1_000_000:g})"
        remarks += [warning for one in agents if (warning := _cost_warning(one, limit))]
    if settings.limits.max_tokens is not None:
        silent = (one.agent.name for one in agents if not one.reports_tokens)
        remarks += [f"agent {name} tells no tokens, so maxTokens cannot be held" for name in silent]
    return list(dict.fromkeys(remarks))


def warn_about_missing_sandbox(agents: tuple[SelectedAgent, ...], origin: str) -> list[str]:
    """Warnings where the preset has a sandbox and the settings turn it off: how each agent is restricted instead."""
    guarded = {one.agent.name: one.permissions for one in agents if one.permissions.startswith("guarded")}
    return [f"no sandbox, as {origin} says: {name} runs {permissions} instead" for name, permissions in guarded.items()]


def _guard_warning(one: SelectedAgent) -> str:
    """What restricts an agent without a sandbox."""
    name = one.agent.name
    if name in HOOKED_AGENTS:
        return f"agent {name} runs as --no-sandbox says: the command guard refuses accidents, but is no boundary"
    return f"agent {name} runs without a guard, as --no-sandbox says: it may do all that you may do"


def _cost_warning(one: SelectedAgent, limit: str) -> str:
    """Why the cost of an agent may stay unknown, as far as can be told without the price list, which loads slowly."""
    if one.cost == COST_UNKNOWN:
        return f"agent {one.agent.name} cannot report its cost, so {limit} cannot be held"
    if one.cost == COST_COMPUTED and one.model is None:
        return (
            f"agent {one.agent.name}: its model is not named, so its cost may stay unknown and {limit} could not be "
            "held; name one with --model"
        )
    return ""


def warn_about_install_location(root: str) -> list[str]:
    """A warning where this program is installed in the project: sandboxes mount that folder read-only."""
    from ralphproof.base.interpreter import installation_folders

    inside = os.path.join(os.path.realpath(root), "")
    folder = next((installed for installed in installation_folders() if installed.startswith(inside)), "")
    if not folder:
        return []
    name = os.path.relpath(folder, inside)
    return [
        f"ralph is installed in the project ({name}), so agents and checks cannot write there in a sandbox; to let "
        "them, install it elsewhere: uv tool install ralphproof"
    ]


def warn_about_git(root: str, settings: Settings) -> list[str]:
    """A warning where snapshots cannot be kept in git; raises Refused where the user wants commits."""
    if assembly.is_git_missing(root, os.environ):
        return ["git was not found on PATH; what changes is seen by comparing files, and history is not watched"]
    repository = enclosing_repository(root)
    if repository is None:
        return []
    message = (
        f"{root} is a folder of the repository at {repository}: work is saved by comparing files, in the state folder, "
        "and not under refs; .ralph/ at the top of the repository changes that"
    )
    if settings.scm is not None and os.path.basename(settings.scm.command) == "git":
        raise Refused(f"scm git: {message}")
    return [message]


def refuse_unavailable_features(request: RunRequest, settings: Settings, stage_plan: StagePlan, root: str) -> None:
    """Raise Refused for settings that cannot work here."""
    if settings.must_fail_first and not any(leaf.required and not leaf.late for leaf in stage_plan.leaves.values()):
        raise Refused("mustFailFirst is set and there is no check that could fail first; add one with --check")
    if settings.verify_in == CLEAN_CHECKOUT and not os.path.lexists(os.path.join(root, ".git")):
        raise Refused("verifyIn is clean, and that needs a git repository at the project's top; run git init")
    if settings.setup and settings.verify_in != CLEAN_CHECKOUT and not request.in_worktree:
        raise Refused('setup prepares clean checkouts and worktrees, and there are none; set "verifyIn": "clean"')
    if settings.otel:
        from ralphproof.reports.otel_exporter import MISSING_OPENTELEMETRY, is_opentelemetry_installed

        if not is_opentelemetry_installed():
            raise Refused(MISSING_OPENTELEMETRY)


def refuse_unknown_risk_or_type(request: RunRequest) -> None:
    """Raise Refused for an unknown risk or type, which only callers from Python can pass."""
    if not (request.risk or request.task_type):
        return
    from ralphproof.runs.fitness import RISK_LEVELS, WORK_TYPES

    for name, word, known in (("risk", request.risk, RISK_LEVELS), ("type", request.task_type, WORK_TYPES)):
        if word and word not in known:
            raise Refused(f"the {name} of a task is one of {', '.join(known)}, not {word!r}")


def refuse_hosts_without_sandbox(request: RunRequest, settings: Settings) -> None:
    if request.allow_hosts and request.sandbox_kind(settings) is None:
        raise Refused("--allow-host says what may be reached from a sandbox, and there is none; add --sandbox")


def assess_request_fitness(request: RunRequest, prompt: str, settings: Settings, skill: Skill | None) -> Fitness | None:
    """Whether this is work for a loop; None where nobody asks, because guessing takes time."""
    if not (request.skill or request.risk or request.task_type or request.explain):
        return None
    from ralphproof.runs.fitness import WorkIntent, assess_fitness

    checks = (*(guardrail.shown for guardrail in settings.guardrails), *(check.name for check in request.custom.checks))
    return assess_fitness(WorkIntent(prompt, request.task_type, request.risk, checks, settings.protected_paths), skill)


def refuse_risky_task(request: RunRequest, fitness: Fitness | None, remarks: list[str]) -> None:
    """Raise Refused for risky work, unless the user forces it."""
    if fitness is None or not fitness.risky:
        return
    reason = next(condition.reason for condition in fitness.conditions if condition.name == "risk")
    if not request.force:
        raise Refused(f"this is no work for a loop: {reason}; --explain says more, --force runs it all the same")
    remarks.append(f"run all the same, as --force says: {reason}")
