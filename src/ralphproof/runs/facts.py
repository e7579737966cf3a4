"""Facts about a run that its first record holds for readers: versions, agents, limits, checks, sandbox, stages."""

from __future__ import annotations

import os
import sys

from ralphproof import __version__
from ralphproof.agents.selection import installed_version
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.agents.selection import SelectedAgent
    from ralphproof.base.value import Json
    from ralphproof.engine.sandbox import Sandbox
    from ralphproof.runs.spec import RunSpec
    from ralphproof.stories.workflow import StoryWorkflow

MAX_TITLE_CHARS = 120


def build_run_facts(spec: RunSpec, sandbox: Sandbox, workspace: str, task_folder: str, parent: str) -> dict[str, Json]:
    """The facts of a run of this order."""
    settings = spec.loaded.settings
    usual, places = spec.selected_agents[0], len(spec.selected_agents) - len(settings.agent.fallbacks)
    fallbacks = [_agent_facts(one) for one in spec.selected_agents[places:]]
    return {
        "title": _prompt_title(spec.request.prompt[0] or _shell_text(spec.request.program)),
        "version": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "system": " ".join(os.uname()[::2]) if hasattr(os, "uname") else sys.platform,
        "preset": settings.preset,
        **_agent_facts(usual),
        "model": usual.model or "",
        "ladder": list(settings.agent.ladder),
        "rotate": list(settings.agent.rotate),
        "fallbacks": [*fallbacks],
        "checks": [
            *(spec.stage_plan.check_labels if spec.stage_plan else ()),
            *(own.name for own in spec.custom.checks),
        ],
        "skill": spec.skill.name if spec.skill else "",
        "taskType": spec.fitness.type if spec.fitness else "",
        "sandbox": _sandbox_facts(sandbox, spec),
        "workspace": workspace,
        "maximumIterations": settings.maximum_iterations,
        "maxCostUsd": settings.cost_limit_micro_usd / 1_000_000,
        "maxTokens": settings.limits.max_tokens,
        "maxSeconds": settings.limits.max_seconds,
        "dailyCostUsd": settings.daily_limit_micro_usd / 1_000_000,
        "protectedPaths": list(settings.protected_paths),
        "promptFile": spec.prompt_file,
        "settingsDigest": spec.loaded.digest,
        "mustFailFirst": settings.must_fail_first,
        "protectTests": settings.protect_tests,
        "verifyIn": settings.verify_in,
        "setup": list(settings.setup),
        "mayChange": list(spec.request.may_change),
        "directory": spec.project.root,
        "taskFolder": task_folder,
        "project": spec.request.project,
        "task": spec.request.task,
        "parent": parent,
        "work": spec.request.task_id,
        "stages": _stage_facts(spec),
        **({"stories": _story_facts(spec.story_workflow)} if spec.story_workflow else {}),
    }


def _shell_text(words: tuple[str, ...]) -> str:
    """A program that is restarted, as somebody would type it; empty where it is none."""
    if not words:
        return ""
    import shlex

    return shlex.join(words)


def _prompt_title(prompt: str) -> str:
    """A prompt in one line, for lists; empty where it is a file's, or a task's."""
    first = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    return first if len(first) <= MAX_TITLE_CHARS else first[: MAX_TITLE_CHARS - 1] + "…"


def _sandbox_facts(sandbox: Sandbox, spec: RunSpec) -> dict[str, Json]:
    """What the record says of the sandbox: which, how strong, what it does not hold, and what it lets be reached."""
    told: dict[str, Json] = {"name": sandbox.name, "strength": sandbox.strength}
    if sandbox.strength == "none":
        return told
    box = spec.loaded.settings.sandbox
    weak, limits = getattr(sandbox, "weaknesses", ()), getattr(sandbox, "limits", "")
    return told | {
        "weak": list(weak), "limits": limits, "allowHosts": list(box.allow_hosts),
        "allowLocalPorts": list(box.allow_local_ports), "readPaths": list(box.read_paths),
    }  # fmt: skip


def _stage_facts(spec: RunSpec) -> list[Json]:
    """What the record says of the stages, where there are several."""
    stages = spec.stage_plan.pipeline.stages if spec.stage_plan else ()
    return [
        {
            "name": one.name,
            "agent": spec.agents[one.place or 0].name,
            "maxIterations": one.max_iterations,
            "promise": one.claim.word,
            "verification": one.method,
        }
        for one in (stages if len(stages) > 1 else ())
    ]


def _story_facts(manner: StoryWorkflow) -> dict[str, Json]:
    """How stories are gone through, for whoever has to put them in order when the run is dead."""
    return {
        "folder": manner.folder,
        "cap": manner.cap,
        "skipReview": manner.skip_review,
        "capIsFailure": manner.cap_is_failure,
    }


def _agent_facts(one: SelectedAgent) -> dict[str, Json]:
    """What the record says of an agent."""
    return {
        "agent": one.agent.name,
        "agentVersion": installed_version(one.program) if one.program else None,
        "permissions": one.permissions,
    }
