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
    from ralphproof.settings.model import Settings
    from ralphproof.settings.skills import Skill


# What there is to say, or to refuse, before a run begins: of its agents, their cost, and where its work is kept.


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


def refuse_unknown_cost(settings: Settings, crew: tuple[SelectedAgent, ...], allowed: bool) -> None:
    """Raise Refused where the user set a limit on cost or tokens that an agent's silence would make a lie.

    Caps alone only warn. A limit on tokens stands in for one on cost, for an agent that tells its tokens.
    """
    limits = settings.limits
    chosen = (("maxCostUsd", limits.max_cost_micro_usd), ("dailyCostUsd", limits.daily_cost_micro_usd))
    limit = next((name for name, most in chosen if most is not None), None)
    for one in () if allowed else crew:
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


def warn_about_agents(settings: Settings, crew: tuple[SelectedAgent, ...], cost_allowed: bool) -> list[str]:
    """What to say of agents that may do anything, or cost anything."""
    remarks = [_guard_warning(one) for one in crew if one.permissions == UNGUARDED]
    remarks += [
        f"agent {one.agent.name}: its own flags decide what it may do ({one.deciding_flag})"
        for one in crew
        if one.deciding_flag
    ]
    if not cost_allowed:
        chosen = settings.limits.max_cost_micro_usd is not None
        limit = f"{'limits.maxCostUsd' if chosen else 'caps.costUsd'} ({settings.cost_limit_micro_usd / 1_000_000:g})"
        remarks += [doubt for one in crew if (doubt := _cost_warning(one, limit))]
    if settings.limits.max_tokens is not None:
        untold = (one.agent.name for one in crew if not one.reports_tokens)
        remarks += [f"agent {name} tells no tokens, so maxTokens cannot be held" for name in untold]
    return list(dict.fromkeys(remarks))


def warn_about_missing_sandbox(crew: tuple[SelectedAgent, ...], origin: str) -> list[str]:
    """What to say where a sandbox is the usual thing, and the settings want none: how each agent is held instead."""
    guarded = {one.agent.name: one.permissions for one in crew if one.permissions.startswith("guarded")}
    return [f"no sandbox, as {origin} says: {name} runs {how} instead" for name, how in guarded.items()]


def _guard_warning(one: SelectedAgent) -> str:
    """What holds an agent that may do anything."""
    name = one.agent.name
    if name in HOOKED_AGENTS:
        return f"agent {name} runs as --no-sandbox says: the command guard refuses accidents, but is no boundary"
    return f"agent {name} runs without a guard, as --no-sandbox says: it may do all that you may do"


def _cost_warning(one: SelectedAgent, limit: str) -> str:
    """Why its cost may stay unknown, as far as that can be told without the list of prices, which takes its time."""
    if one.cost == COST_UNKNOWN:
        return f"agent {one.agent.name} cannot report its cost, so {limit} cannot be held"
    if one.cost == COST_COMPUTED and one.model is None:
        return (
            f"agent {one.agent.name}: its model is not named, so its cost may stay unknown and {limit} could not be "
            "held; name one with --model"
        )
    return ""


def warn_about_install_location(root: str) -> list[str]:
    """What to say where this program is installed in the project: a sandbox holds that place read-only."""
    from ralphproof.base.interpreter import installation_folders

    inside = os.path.join(os.path.realpath(root), "")
    found = next((place for place in installation_folders() if place.startswith(inside)), "")
    if not found:
        return []
    name = os.path.relpath(found, inside)
    return [
        f"ralph is installed in the project ({name}), so agents and checks cannot write there in a sandbox; to let "
        "them, install it elsewhere: uv tool install ralphproof"
    ]


def warn_about_git(root: str, settings: Settings) -> list[str]:
    """What to say where work cannot be kept in git; raises Refused where the user wants it committed all the same."""
    if assembly.is_git_missing(root, os.environ):
        return ["git was not found on PATH; what changes is seen by comparing files, and history is not watched"]
    around = enclosing_repository(root)
    if around is None:
        return []
    plain = (
        f"{root} is a folder of the repository at {around}: work is saved by comparing files, in the state folder, "
        "and not under refs; .ralph/ at the top of the repository changes that"
    )
    if settings.scm is not None and os.path.basename(settings.scm.command) == "git":
        raise Refused(f"scm git: {plain}")
    return [plain]


def refuse_unavailable_features(request: RunRequest, settings: Settings, stage_plan: StagePlan, root: str) -> None:
    """Settings that ask for what cannot be had here."""
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
    """The command line knows its own words; from Python anything may come."""
    if not (request.risk or request.task_type):
        return
    from ralphproof.runs.fitness import RISK_LEVELS, WORK_TYPES

    for what, said, known in (("risk", request.risk, RISK_LEVELS), ("type", request.task_type, WORK_TYPES)):
        if said and said not in known:
            raise Refused(f"the {what} of a task is one of {', '.join(known)}, not {said!r}")


def refuse_hosts_without_sandbox(request: RunRequest, settings: Settings) -> None:
    if request.allow_hosts and request.sandbox_kind(settings) is None:
        raise Refused("--allow-host says what may be reached from a sandbox, and there is none; add --sandbox")


def assess_request_fitness(request: RunRequest, prompt: str, settings: Settings, skill: Skill | None) -> Fitness | None:
    """Whether this is work for a loop, where somebody asks; to guess it takes its time."""
    if not (request.skill or request.risk or request.task_type or request.explain):
        return None
    from ralphproof.runs.fitness import WorkIntent, assess_fitness

    checks = (*(guardrail.shown for guardrail in settings.guardrails), *(check.name for check in request.custom.checks))
    return assess_fitness(WorkIntent(prompt, request.task_type, request.risk, checks, settings.protected_paths), skill)


def refuse_risky_task(request: RunRequest, fit: Fitness | None, remarks: list[str]) -> None:
    """Work that needs a person's eyes is not begun without a person's word."""
    if fit is None or not fit.risky:
        return
    why = next(condition.reason for condition in fit.conditions if condition.name == "risk")
    if not request.force:
        raise Refused(f"this is no work for a loop: {why}; --explain says more, --force runs it all the same")
    remarks.append(f"run all the same, as --force says: {why}")
