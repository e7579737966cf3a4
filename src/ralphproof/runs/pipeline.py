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
    from ralphproof.settings.model import Settings
    from ralphproof.settings.skills import Skill
    from ralphproof.store.project import Project


def build_preset_pipeline(
    preset: dict[str, Any], settings: Settings, template: str = "{prompt}", own: tuple[str, ...] = ()
) -> Pipeline:
    """The stages of a preset, with the user's own word and guardrails in them, and the checks that a caller brings."""
    rails = plan_guardrails(settings)
    final = tuple(leaf.name for leaf in plan_final_checks(settings, rails.specs))
    stages = (
        Stage(
            name=stage["name"],
            claim=_preset_claim(stage.get("claim"), settings.completion_response),
            checks=(*rails.checks, *own),
            template=template,
            max_iterations=stage.get("maxIterations"),
            edits=stage.get("edits", True),
            judges=rails.judges,
            together=rails.parallel_groups,
            trusts=not (rails.has_mechanical or own or final),
            back=tuple(stage.get("back", ())),
            commit=stage.get("commit", ""),
            fills=preset.get("stories", False),
            final=final if stage.get("ends", True) else (),
        )
        for stage in (preset["stages"] if settings.review.enabled else preset.get("withoutReview", preset["stages"]))
    )
    return Pipeline(tuple(stages), stage_first=preset.get("stageFirst", False))


def _preset_claim(data: dict[str, str] | None, response: str) -> ClaimRule:
    """A stage without a claim needs none; one that names no word of its own takes the user's."""
    if data is None:
        return ClaimRule()
    marker = data.get("marker")
    word = data.get("word") or marker or strip_claim_tags(response)  # a rule without a word would accept anything
    return ClaimRule(word, data.get("element", "response"), marker, data.get("refusal"), data.get("made", ""))


# How a run goes: its stages, every check of theirs, and the agents that are a stage's own.


NO_PROMPT = 'no prompt; say what should become true: ralph run -p "make the tests pass"'


@value
class StagePlan:
    """The stages of a run, its checks by their names, and who answers them.

    `crew` are the agents that are a stage's own; they stand behind the run's. `judges` has who is asked by each check
    that a model answers. `task` is the one that is worked on by its criteria.
    """

    pipeline: Pipeline
    leaves: dict[str, CheckSpec]
    agents: tuple[SelectedAgent, ...] = ()
    judges: dict[str, SelectedAgent] = {}  # noqa: RUF012 (never changed)
    task: Task | None = None
    remarks: tuple[str, ...] = ()

    @property
    def has_machine_check(self) -> bool:
        """Whether a machine is asked for something that must be so."""
        return any(leaf.is_mechanical and leaf.required for leaf in self.leaves.values())

    def judge_in(self, call: str) -> str:
        """The agent that a call of this name asks, where that is a judge's; else nothing."""
        if not self.judges or not call.startswith("judge_"):
            return ""
        from ralphproof.checks.judge import judge_of_call

        judge = judge_of_call(call, self.judges)
        return self.judges[judge].agent.name if judge else ""

    @property
    def check_labels(self) -> list[str]:
        """Its checks for lists: a command by itself, others by their names."""
        asked = (leaf for leaf in self.leaves.values() if not (leaf.hidden or leaf.clean))
        return [getattr(leaf.verification, "command", "") or leaf.name for leaf in asked]


def open_plan(request: RunRequest, project: Project, remarks: list[str]) -> PlanSource:
    """What is to be done: a task of the ledger, else the prompt."""
    if not request.task_id:
        if request.prompt == (None, None):
            raise Refused(NO_PROMPT)
        return PromptPlan(*request.prompt, wordless=bool(request.program))
    from ralphproof.tasks.plans import FixedPlan

    return FixedPlan(
        replace(_load_task(project, request.task_id, remarks), depends_on=())
    )  # it is taken up when those are done


def _load_task(project: Project, name: str, remarks: list[str]) -> Task:
    """A task of the ledger; raises TaskWrong with all that is wrong with it.

    One of an older version, which says nothing of when it is done, is worked on by the word of its stages.
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
    if wrong := validate_draft(draft, is_known_method):
        raise TaskWrong("; ".join(wrong))
    return task_from_draft(draft)


def build_stage_plan(
    request: RunRequest, plan: PlanSource, loaded: LoadedSettings, skill: Skill | None, root: str, usual: int
) -> StagePlan:
    """How a run of this plan goes. `usual` is how many agents the run has beside those of its stages."""
    settings = loaded.settings
    if not read_preset(settings.preset).get("tasks"):
        return _assign_judges(_preset_stage_plan(request, settings, skill), request, settings, root)
    if isinstance(plan, PromptPlan):
        plan.titled = True
    try:
        return _assign_judges(
            _task_stage_plan(request, plan.read().tasks[0], settings, root, usual), request, settings, root
        )
    except TaskWrong:
        raise
    except Refused as error:
        raise (TaskWrong(str(error)) if request.task_id else error) from error


def _preset_stage_plan(request: RunRequest, settings: Settings, skill: Skill | None) -> StagePlan:
    template = skill_template(skill, settings.completion_response) if skill else PROMPT_PLACEHOLDER
    own = tuple(check.name for check in request.custom.checks)
    pipeline = build_preset_pipeline(read_preset(settings.preset), settings, template, own)
    rails = plan_guardrails(settings).specs
    return StagePlan(pipeline, {leaf.name: leaf for leaf in (*rails, *plan_final_checks(settings, rails))})


def _task_stage_plan(request: RunRequest, task: Task, settings: Settings, root: str, usual: int) -> StagePlan:
    from ralphproof.agents.selection import select_stage_agents
    from ralphproof.tasks.pipeline import build_task_pipeline
    from ralphproof.tasks.stage_prompts import load_stage_templates, warn_about_templates

    boxed = request.sandbox_kind(settings) is not None
    known = (
        select_stage_agents(settings, root, os.environ, request.guarded, boxed) if request.custom.agent is None else ()
    )
    own = [one for one in known if one[0] not in request.skip_stages]
    places = {name: usual + number for number, (name, _) in enumerate(own)}
    custom = tuple(check.name for check in request.custom.checks)
    pipeline, leaves = build_task_pipeline(
        task, settings, load_stage_templates(root), places, request.skip_stages, custom
    )
    crew = tuple(chosen for _, chosen in own)
    return StagePlan(pipeline, leaves, crew, task=task, remarks=warn_about_templates(root))


def _assign_judges(stage_plan: StagePlan, request: RunRequest, settings: Settings, root: str) -> StagePlan:
    """The same with somebody to ask for every judgement: who is named, else who works."""
    found: dict[str, SelectedAgent] = {}
    for name, leaf in stage_plan.leaves.items():
        if isinstance(leaf.verification, SemanticVerification) and leaf.verification.check_for:
            found[name] = _select_judge(leaf.verification, leaf, request, settings, root)
    return replace(stage_plan, judges=found) if found else stage_plan


def _select_judge(
    semantic: SemanticVerification, leaf: CheckSpec, request: RunRequest, settings: Settings, root: str
) -> SelectedAgent:
    from ralphproof.agents.selection import select_judge

    if not semantic.agent and request.custom.agent is not None:
        return select_custom_agent(request.custom.agent)
    if not semantic.agent and request.program:
        raise Refused(f"check {leaf.name}: a program without a prompt cannot judge; name an agent for it in its config")
    return select_judge(semantic, leaf.stage, settings, root, os.environ)
