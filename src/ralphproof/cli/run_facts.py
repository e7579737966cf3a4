"""What the record says of a run at its beginning, for readers."""

from __future__ import annotations

import os
import sys

from ralphproof import __version__
from ralphproof.agents.versions import version_of
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.cli.order import Order
    from ralphproof.config.agents import Chosen
    from ralphproof.plans.story_tasks import Manner
    from ralphproof.sandbox import Sandbox
    from ralphproof.value import Json

TITLE_CHARS = 120


def facts_of(order: Order, sandbox: Sandbox, workspace: str, task_folder: str, parent: str) -> dict[str, Json]:
    """The facts of a run of this order."""
    settings = order.loaded.settings
    usual, places = order.crew[0], len(order.crew) - len(settings.agent.fallbacks)
    fallbacks = [_told(one) for one in order.crew[places:]]
    return {
        "title": _title(order.wish.prompt[0] or _command(order.wish.plain)),
        "version": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "system": " ".join(os.uname()[::2]) if hasattr(os, "uname") else sys.platform,
        "preset": settings.preset,
        **_told(usual),
        "model": usual.model or "",
        "ladder": list(settings.agent.ladder),
        "rotate": list(settings.agent.rotate),
        "fallbacks": [*fallbacks],
        "checks": [*(order.course.shown if order.course else ()), *(own.name for own in order.brought.checks)],
        "skill": order.skill.name if order.skill else "",
        "taskType": order.fitness.type if order.fitness else "",
        "sandbox": _held(sandbox, order),
        "workspace": workspace,
        "maximumIterations": settings.maximum_iterations,
        "maxCostUsd": settings.cost_limit_micro_usd / 1_000_000,
        "maxTokens": settings.limits.max_tokens,
        "maxSeconds": settings.limits.max_seconds,
        "dailyCostUsd": settings.daily_limit_micro_usd / 1_000_000,
        "protectedPaths": list(settings.protected_paths),
        "promptFile": order.prompt_file,
        "settingsDigest": order.loaded.digest,
        "mustFailFirst": settings.must_fail_first,
        "protectTests": settings.protect_tests,
        "verifyIn": settings.verify_in,
        "setup": list(settings.setup),
        "mayChange": list(order.wish.may_change),
        "directory": order.project.root,
        "taskFolder": task_folder,
        "project": order.wish.project,
        "task": order.wish.task,
        "parent": parent,
        "work": order.wish.work,
        "stages": _stages(order),
        **({"stories": _manner(order.stories)} if order.stories else {}),
    }


def _command(words: tuple[str, ...]) -> str:
    """A program that is restarted, as somebody would type it; empty where it is none."""
    if not words:
        return ""
    import shlex

    return shlex.join(words)


def _title(prompt: str) -> str:
    """A prompt in one line, for lists; empty where it is a file's, or a task's."""
    first = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    return first if len(first) <= TITLE_CHARS else first[: TITLE_CHARS - 1] + "…"


def _held(sandbox: Sandbox, order: Order) -> dict[str, Json]:
    """What the record says of the sandbox: which, how strong, what it does not hold, and what it lets be reached."""
    told: dict[str, Json] = {"name": sandbox.name, "strength": sandbox.strength}
    if sandbox.strength == "none":
        return told
    box = order.loaded.settings.sandbox
    weak, limits = getattr(sandbox, "weak", ()), getattr(sandbox, "limits", "")
    return told | {
        "weak": list(weak), "limits": limits, "allowHosts": list(box.allow_hosts),
        "allowLocalPorts": list(box.allow_local_ports), "readPaths": list(box.read_paths),
    }  # fmt: skip


def _stages(order: Order) -> list[Json]:
    """What the record says of the stages, where there are several."""
    stages = order.course.pipeline.stages if order.course else ()
    return [
        {
            "name": one.name,
            "agent": order.agents[one.place or 0].name,
            "maxIterations": one.max_iterations,
            "promise": one.claim.word,
            "verification": one.method,
        }
        for one in (stages if len(stages) > 1 else ())
    ]


def _manner(manner: Manner) -> dict[str, Json]:
    """How stories are gone through, for whoever has to put them in order when the run is dead."""
    return {
        "folder": manner.folder,
        "cap": manner.cap,
        "skipReview": manner.skip_review,
        "capIsFailure": manner.cap_is_failure,
    }


def _told(one: Chosen) -> dict[str, Json]:
    """What the record says of an agent."""
    return {
        "agent": one.agent.name,
        "agentVersion": version_of(one.program) if one.program else None,
        "permissions": one.permissions,
    }
