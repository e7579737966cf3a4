"""The stage plan of a run: the pipeline of its preset or task, its checks, and the agents and judges of its stages."""

from __future__ import annotations

import os

from ralphproof.agents.selection import select_custom_agent
from ralphproof.base.errors import Refused, TaskWrong
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.checks.check_plan import plan_final_checks, plan_guardrails
from ralphproof.engine.claim import ClaimRule, strip_claim_tags
from ralphproof.engine.plan import PROMPT_PLACEHOLDER, Pipeline, SemanticVerification, Stage
from ralphproof.settings.loader import read_preset
from ralphproof.settings.skills import skill_template
from ralphproof.tasks.plans import PromptPlan

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.agents.selection import SelectedAgent
    from ralphproof.checks.check_plan import CheckSpec
    from ralphproof.engine.plan import PlanSource, Task
    from ralphproof.runs.request import RunRequest
    from ralphproof.settings.loader import LoadedSettings
    from ralphproof.settings.skills import Skill
    from ralphproof.settings.typed_settings import Settings
    from ralphproof.store.project import Project


def build_preset_pipeline(
    preset: dict[str, Any], settings: Settings, template: str = "{prompt}", custom_checks: tuple[str, ...] = ()
) -> Pipeline:
    """The stages of a preset, with the user's completion word and guardrails, and the checks of the caller."""
    guardrails = plan_guardrails(settings)
    final = tuple(leaf.name for leaf in plan_final_checks(settings, guardrails.specs))
    stages = (
        Stage(
            name=stage["name"],
            claim=_preset_claim(stage.get("claim"), settings.completion_response),
            checks=(*guardrails.checks, *custom_checks),
            template=template,
            max_iterations=stage.get("maxIterations"),
            edits=stage.get("edits", True),
            judges=guardrails.judges,
            together=guardrails.parallel_groups,
            trusts=not (guardrails.has_mechanical or custom_checks or final),
            back=tuple(stage.get("back", ())),
            commit=stage.get("commit", ""),
            fills=preset.get("stories", False),
            final=final if stage.get("ends", True) else (),
        )
        for stage in (preset["stages"] if settings.review.enabled else preset.get("withoutReview", preset["stages"]))
    )
    return Pipeline(tuple(stages), stage_first=preset.get("stageFirst", False))


def _preset_claim(data: dict[str, str] | None, response: str) -> ClaimRule:
    """The claim rule of a stage: none where it names none; the user's completion word where it names no word."""
    if data is None:
        return ClaimRule()
    marker = data.get("marker")
    word = data.get("word") or marker or strip_claim_tags(response)  # a rule without a word would accept anything
    return ClaimRule(word, data.get("element", "response"), marker, data.get("refusal"), data.get("made", ""))


NO_PROMPT = 'no prompt; say what should become true: ralph run -p "make the tests pass"'


@value
class StagePlan:
    """The stages of a run, its checks by name, and the agents for them.

    `agents` are those of single stages; they are numbered after the run's own. `judges` has the agent of each check
    that a model answers. `task` is the task whose criteria are checked.
    """

    pipeline: Pipeline
    leaves: dict[str, CheckSpec]
    agents: tuple[SelectedAgent, ...] = ()
    judges: dict[str, SelectedAgent] = {}  # noqa: RUF012 (never changed)
    task: Task | None = None
    remarks: tuple[str, ...] = ()

    @property
    def has_machine_check(self) -> bool:
        """Whether a required check is mechanical, and not judged by a model."""
        return any(leaf.is_mechanical and leaf.required for leaf in self.leaves.values())

    def judge_in(self, call: str) -> str:
        """The name of the agent that a judge's call uses; empty for other calls."""
        if not self.judges or not call.startswith("judge_"):
            return ""
        from ralphproof.checks.judge import judge_of_call

        judge = judge_of_call(call, self.judges)
        return self.judges[judge].agent.name if judge else ""

    @property
    def check_labels(self) -> list[str]:
        """The checks for lists: a command, or the name of a check without one."""
        shown = (leaf for leaf in self.leaves.values() if not (leaf.hidden or leaf.clean))
        return [getattr(leaf.verification, "command", "") or leaf.name for leaf in shown]


def open_plan(request: RunRequest, project: Project, remarks: list[str]) -> PlanSource:
    """The plan of a run: a task of the ledger, or the prompt."""
    if not request.task_id:
        if request.prompt == (None, None):
            raise Refused(NO_PROMPT)
        return PromptPlan(*request.prompt, wordless=bool(request.program))
    from ralphproof.tasks.plans import FixedPlan

    return FixedPlan(
        replace(_load_task(project, request.task_id, remarks), depends_on=())
    )  # a task is started when those are done


def _load_task(project: Project, name: str, remarks: list[str]) -> Task:
    """A task of the ledger; raises TaskWrong with everything that is wrong with it.

    A task of an older version without completion criteria is done when its stages claim so.
    """
    from ralphproof.tasks.draft import task_from_draft, task_from_unusable_draft, validate_draft
    from ralphproof.tasks.store import draft_from_row, is_known_method

    ledger = project.ledger()
    try:
        row = ledger.tasks.row(name)
    finally:
        ledger.close()
    if row is None:
        raise TaskWrong(f"there is no task {name}; see: ralph task list")
    draft, unreadable = draft_from_row(row)
    if draft.completion is None:
        task, warning = task_from_unusable_draft(draft)
        remarks.append(f"task {name}: {unreadable}" if unreadable else warning)
        return task
    if problems := validate_draft(draft, is_known_method):
        raise TaskWrong("; ".join(problems))
    return task_from_draft(draft)


def build_stage_plan(
    request: RunRequest, plan: PlanSource, loaded: LoadedSettings, skill: Skill | None, root: str, agent_count: int
) -> StagePlan:
    """The stage plan of a run. `agent_count` is the number of the run's own agents, which precede those of stages."""
    settings = loaded.settings
    if not read_preset(settings.preset).get("tasks"):
        return _assign_judges(_preset_stage_plan(request, settings, skill), request, settings, root)
    if isinstance(plan, PromptPlan):
        plan.titled = True
    try:
        return _assign_judges(
            _task_stage_plan(request, plan.read().tasks[0], settings, root, agent_count), request, settings, root
        )
    except TaskWrong:
        raise
    except Refused as error:
        raise (TaskWrong(str(error)) if request.task_id else error) from error


def _preset_stage_plan(request: RunRequest, settings: Settings, skill: Skill | None) -> StagePlan:
    template = skill_template(skill, settings.completion_response) if skill else PROMPT_PLACEHOLDER
    custom_checks = tuple(check.name for check in request.custom.checks)
    pipeline = build_preset_pipeline(read_preset(settings.preset), settings, template, custom_checks)
    guardrails = plan_guardrails(settings).specs
    return StagePlan(pipeline, {leaf.name: leaf for leaf in (*guardrails, *plan_final_checks(settings, guardrails))})


def _task_stage_plan(request: RunRequest, task: Task, settings: Settings, root: str, agent_count: int) -> StagePlan:
    from ralphproof.agents.selection import select_stage_agents
    from ralphproof.tasks.pipeline import build_task_pipeline
    from ralphproof.tasks.stage_prompts import load_stage_templates, warn_about_templates

    sandboxed = request.sandbox_kind(settings) is not None
    stage_agents = (
        select_stage_agents(settings, root, os.environ, request.guarded, sandboxed)
        if request.custom.agent is None
        else ()
    )
    used = [entry for entry in stage_agents if entry[0] not in request.skip_stages]
    agent_indexes = {name: agent_count + number for number, (name, _) in enumerate(used)}
    custom_checks = tuple(check.name for check in request.custom.checks)
    pipeline, leaves = build_task_pipeline(
        task, settings, load_stage_templates(root), agent_indexes, request.skip_stages, custom_checks
    )
    agents = tuple(agent for _, agent in used)
    return StagePlan(pipeline, leaves, agents, task=task, remarks=warn_about_templates(root))


def _assign_judges(stage_plan: StagePlan, request: RunRequest, settings: Settings, root: str) -> StagePlan:
    """The plan with an agent for every judged check: the one that the check names, or the run's own."""
    judges: dict[str, SelectedAgent] = {}
    for name, leaf in stage_plan.leaves.items():
        if isinstance(leaf.verification, SemanticVerification) and leaf.verification.check_for:
            judges[name] = _select_judge(leaf.verification, leaf, request, settings, root)
    return replace(stage_plan, judges=judges) if judges else stage_plan


def _select_judge(
    semantic: SemanticVerification, leaf: CheckSpec, request: RunRequest, settings: Settings, root: str
) -> SelectedAgent:
    from ralphproof.agents.selection import select_judge

    if not semantic.agent and request.custom.agent is not None:
        return select_custom_agent(request.custom.agent)
    if not semantic.agent and request.program:
        raise Refused(f"check {leaf.name}: a program without a prompt cannot judge; name an agent for it in its config")
    return select_judge(semantic, leaf.stage, settings, root, os.environ)
