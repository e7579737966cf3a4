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
    """The facts of a run with this spec."""
    settings = spec.loaded.settings
    agent, fallback_index = spec.selected_agents[0], len(spec.selected_agents) - len(settings.agent.fallbacks)
    fallbacks = [_agent_facts(fallback) for fallback in spec.selected_agents[fallback_index:]]
    return {
        "title": _prompt_title(spec.request.prompt[0] or _shell_text(spec.request.program)),
        "version": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "system": " ".join(os.uname()[::2]) if hasattr(os, "uname") else sys.platform,
        "preset": settings.preset,
        **_agent_facts(agent),
        "model": agent.model or "",
        "ladder": list(settings.agent.ladder),
        "rotate": list(settings.agent.rotate),
        "fallbacks": [*fallbacks],
        "checks": [
            *(spec.stage_plan.check_labels if spec.stage_plan else ()),
            *(check.name for check in spec.custom.checks),
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
    """A supervised program as a shell command; empty where there is none."""
    if not words:
        return ""
    import shlex

    return shlex.join(words)


def _prompt_title(prompt: str) -> str:
    """The first line of a prompt, for lists; empty where the prompt is in a file or a task."""
    first = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    return first if len(first) <= MAX_TITLE_CHARS else first[: MAX_TITLE_CHARS - 1] + "…"


def _sandbox_facts(sandbox: Sandbox, spec: RunSpec) -> dict[str, Json]:
    """The sandbox: kind, strength, weaknesses, and what can be reached from it."""
    facts: dict[str, Json] = {"name": sandbox.name, "strength": sandbox.strength}
    if sandbox.strength == "none":
        return facts
    settings = spec.loaded.settings.sandbox
    weaknesses, limits = getattr(sandbox, "weaknesses", ()), getattr(sandbox, "limits", "")
    return facts | {
        "weak": list(weaknesses), "limits": limits, "allowHosts": list(settings.allow_hosts),
        "allowLocalPorts": list(settings.allow_local_ports), "readPaths": list(settings.read_paths),
    }  # fmt: skip


def _stage_facts(spec: RunSpec) -> list[Json]:
    """The stages, where there are several."""
    stages = spec.stage_plan.pipeline.stages if spec.stage_plan else ()
    return [
        {
            "name": stage.name,
            "agent": spec.agents[stage.place or 0].name,
            "maxIterations": stage.max_iterations,
            "promise": stage.claim.word,
            "verification": stage.method,
        }
        for stage in (stages if len(stages) > 1 else ())
    ]


def _story_facts(workflow: StoryWorkflow) -> dict[str, Json]:
    """The story workflow, which recovery needs after a crash."""
    return {
        "folder": workflow.folder,
        "cap": workflow.cap,
        "skipReview": workflow.skip_review,
        "capIsFailure": workflow.cap_is_failure,
    }


def _agent_facts(selected: SelectedAgent) -> dict[str, Json]:
    """An agent, its version and its permissions."""
    return {
        "agent": selected.agent.name,
        "agentVersion": installed_version(selected.program) if selected.program else None,
        "permissions": selected.permissions,
    }
