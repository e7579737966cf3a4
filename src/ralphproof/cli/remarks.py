"""What there is to say, or to refuse, before a run begins: of its agents, their cost, and where its work is kept."""

from __future__ import annotations

import os

from ralphproof.agents.dialect import COMPUTED, UNKNOWN
from ralphproof.config import build
from ralphproof.config.agents import UNGUARDED
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.identity import repository_around

if TYPE_CHECKING:
    from ralphproof.config.agents import Chosen
    from ralphproof.config.settings import Settings

BOUND = "add --allow-unknown-cost, and limit the run with --max-iterations and --max-minutes"
UNREPORTED = f"cannot report its cost, nor its tokens, so {{limit}} could not be held; {BOUND}"
UNCOUNTED = f"tells no tokens, so maxTokens could not be held; {BOUND}"
UNVALUED = (
    "reports tokens alone, which have no known price, so {limit} could not be held; set --max-tokens as well, or add "
    "--allow-unknown-cost"
)
HOOKED = ("claude", "codex")  # they call the command guard before every tool
NO_MESSAGE = "scm: a program without a prompt cannot be asked for a commit message; the work is saved, not committed"
UNPRICED = (
    "reports tokens alone, and the price of its model is not known, so {limit} could not be held; name the model "
    "with --model, or its price in prices of your own settings, or set --max-tokens as well, or add "
    "--allow-unknown-cost"
)


def refuse_unknown_cost(settings: Settings, crew: tuple[Chosen, ...], allowed: bool) -> None:
    """Raise Refused where the user set a limit on cost or tokens that an agent's silence would make a lie.

    Caps alone only warn. A limit on tokens stands in for one on cost, for an agent that tells its tokens.
    """
    limits = settings.limits
    chosen = (("maxCostUsd", limits.max_cost_micro_usd), ("dailyCostUsd", limits.daily_cost_micro_usd))
    limit = next((name for name, most in chosen if most is not None), None)
    for one in () if allowed else crew:
        if limit is not None and not one.agent.reports_cost and (limits.max_tokens is None or not one.tells_tokens):
            why = UNREPORTED if not one.tells_tokens else UNPRICED if one.cost == COMPUTED else UNVALUED
            raise Refused(f"agent {one.agent.name} {why.format(limit=limit)}")
        if limits.max_tokens is not None and not one.tells_tokens:
            raise Refused(f"agent {one.agent.name} {UNCOUNTED}")


def about_agents(settings: Settings, crew: tuple[Chosen, ...], cost_allowed: bool) -> list[str]:
    """What to say of agents that may do anything, or cost anything."""
    remarks = [_about_guard(one) for one in crew if one.permissions == UNGUARDED]
    remarks += [
        f"agent {one.agent.name}: its own flags decide what it may do ({one.decided})" for one in crew if one.decided
    ]
    if not cost_allowed:
        chosen = settings.limits.max_cost_micro_usd is not None
        limit = f"{'limits.maxCostUsd' if chosen else 'caps.costUsd'} ({settings.cost_limit_micro_usd / 1_000_000:g})"
        remarks += [doubt for one in crew if (doubt := _about_cost(one, limit))]
    if settings.limits.max_tokens is not None:
        untold = (one.agent.name for one in crew if not one.tells_tokens)
        remarks += [f"agent {name} tells no tokens, so maxTokens cannot be held" for name in untold]
    return list(dict.fromkeys(remarks))


def about_sandbox(crew: tuple[Chosen, ...], origin: str) -> list[str]:
    """What to say where a sandbox is the usual thing, and the settings want none: how each agent is held instead."""
    guarded = {one.agent.name: one.permissions for one in crew if one.permissions.startswith("guarded")}
    return [f"no sandbox, as {origin} says: {name} runs {how} instead" for name, how in guarded.items()]


def _about_guard(one: Chosen) -> str:
    """What holds an agent that may do anything."""
    name = one.agent.name
    if name in HOOKED:
        return f"agent {name} runs as --no-sandbox says: the command guard refuses accidents, but is no boundary"
    return f"agent {name} runs without a guard, as --no-sandbox says: it may do all that you may do"


def _about_cost(one: Chosen, limit: str) -> str:
    """Why its cost may stay unknown, as far as that can be told without the list of prices, which takes its time."""
    if one.cost == UNKNOWN:
        return f"agent {one.agent.name} cannot report its cost, so {limit} cannot be held"
    if one.cost == COMPUTED and one.model is None:
        return (
            f"agent {one.agent.name}: its model is not named, so its cost may stay unknown and {limit} could not be "
            "held; name one with --model"
        )
    return ""


def about_own_place(root: str) -> list[str]:
    """What to say where this program is installed in the project: a sandbox holds that place read-only."""
    from ralphproof.interpreter import own_folders

    inside = os.path.join(os.path.realpath(root), "")
    found = next((place for place in own_folders() if place.startswith(inside)), "")
    if not found:
        return []
    name = os.path.relpath(found, inside)
    return [
        f"ralph is installed in the project ({name}), so agents and checks cannot write there in a sandbox; to let "
        "them, install it elsewhere: uv tool install ralphproof"
    ]


def about_git(root: str, settings: Settings) -> list[str]:
    """What to say where work cannot be kept in git; raises Refused where the user wants it committed all the same."""
    if build.lacks_git(root, os.environ):
        return ["git was not found on PATH; what changes is seen by comparing files, and history is not watched"]
    around = repository_around(root)
    if around is None:
        return []
    plain = (
        f"{root} is a folder of the repository at {around}: work is saved by comparing files, in the state folder, "
        "and not under refs; .ralph/ at the top of the repository changes that"
    )
    if settings.scm is not None and os.path.basename(settings.scm.command) == "git":
        raise Refused(f"scm git: {plain}")
    return [plain]
