"""How a run goes: its stages, every check of theirs, and the agents that are a stage's own."""

from __future__ import annotations

import os

from ralphproof.config.agents import brought_agent
from ralphproof.config.presets import pipeline_of, read_preset
from ralphproof.config.stage_final import final_leaves
from ralphproof.config.stage_guardrails import guardrail_inquiry
from ralphproof.errors import Refused, TaskWrong
from ralphproof.plan import Semantic
from ralphproof.plans.inline import Inline
from ralphproof.skill import template_of
from ralphproof.stage import PROMPT
from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from ralphproof.cli.order import Wish
    from ralphproof.config.agents import Chosen
    from ralphproof.config.load import Loaded
    from ralphproof.config.settings import Settings
    from ralphproof.config.stage_leaves import Leaf
    from ralphproof.plan import PlanSource, Task
    from ralphproof.skill import Skill
    from ralphproof.stage import Pipeline
    from ralphproof.views.project import Project


NO_PROMPT = 'no prompt; say what should become true: ralph run -p "make the tests pass"'


@value
class Course:
    """The stages of a run, its checks by their names, and who answers them.

    `crew` are the agents that are a stage's own; they stand behind the run's. `judges` has who is asked by each check
    that a model answers. `task` is the one that is worked on by its criteria.
    """

    pipeline: Pipeline
    leaves: dict[str, Leaf]
    crew: tuple[Chosen, ...] = ()
    judges: dict[str, Chosen] = {}  # noqa: RUF012 (never changed)
    task: Task | None = None
    remarks: tuple[str, ...] = ()

    @property
    def machine(self) -> bool:
        """Whether a machine is asked for something that must be so."""
        return any(leaf.machine and leaf.required for leaf in self.leaves.values())

    def judge_in(self, call: str) -> str:
        """The agent that a call of this name asks, where that is a judge's; else nothing."""
        if not self.judges or not call.startswith("judge_"):
            return ""
        from ralphproof.checks.judge import asked_in

        judge = asked_in(call, self.judges)
        return self.judges[judge].agent.name if judge else ""

    @property
    def shown(self) -> list[str]:
        """Its checks for lists: a command by itself, others by their names."""
        asked = (leaf for leaf in self.leaves.values() if not (leaf.hidden or leaf.clean))
        return [getattr(leaf.how, "command", "") or leaf.name for leaf in asked]


def plan_for(wish: Wish, project: Project, remarks: list[str]) -> PlanSource:
    """What is to be done: a task of the ledger, else the prompt."""
    if not wish.work:
        if wish.prompt == (None, None):
            raise Refused(NO_PROMPT)
        return Inline(*wish.prompt, wordless=bool(wish.plain))
    from ralphproof.plans.fixed import Fixed

    return Fixed(replace(_task(project, wish.work, remarks), depends_on=()))  # it is taken up when those are done


def _task(project: Project, name: str, remarks: list[str]) -> Task:
    """A task of the ledger; raises TaskWrong with all that is wrong with it.

    One of an older version, which says nothing of when it is done, is worked on by the word of its stages.
    """
    from ralphproof.cli.task_store import draft_of, known_method
    from ralphproof.plans.problems import problems
    from ralphproof.plans.task import task_of, task_of_old

    ledger = project.ledger()
    try:
        row = ledger.tasks.row(name)
    finally:
        ledger.close()
    if row is None:
        raise TaskWrong(f"there is no task {name}; see: ralph task list")
    draft, unreadable = draft_of(row)
    if draft.completion is None:
        task, warning = task_of_old(draft)
        remarks.append(f"task {name}: {unreadable}" if unreadable else warning)
        return task
    if wrong := problems(draft, known_method):
        raise TaskWrong("; ".join(wrong))
    return task_of(draft)


def course_of(wish: Wish, plan: PlanSource, loaded: Loaded, skill: Skill | None, root: str, usual: int) -> Course:
    """How a run of this plan goes. `usual` is how many agents the run has beside those of its stages."""
    settings = loaded.settings
    if not read_preset(settings.preset).get("tasks"):
        return _judged(_plain(wish, settings, skill), wish, settings, root)
    if isinstance(plan, Inline):
        plan.titled = True
    try:
        return _judged(_through_stages(wish, plan.read().tasks[0], settings, root, usual), wish, settings, root)
    except TaskWrong:
        raise
    except Refused as error:
        raise (TaskWrong(str(error)) if wish.work else error) from error


def _plain(wish: Wish, settings: Settings, skill: Skill | None) -> Course:
    template = template_of(skill, settings.completion_response) if skill else PROMPT
    own = tuple(check.name for check in wish.brought.checks)
    pipeline = pipeline_of(read_preset(settings.preset), settings, template, own)
    rails = guardrail_inquiry(settings).leaves
    return Course(pipeline, {leaf.name: leaf for leaf in (*rails, *final_leaves(settings, rails))})


def _through_stages(wish: Wish, task: Task, settings: Settings, root: str, usual: int) -> Course:
    from ralphproof.config.stage_agents import stage_crew
    from ralphproof.config.stage_templates import template_remarks, templates_for
    from ralphproof.config.stages import pipeline_for

    boxed = wish.boxed_by(settings) is not None
    known = stage_crew(settings, root, os.environ, wish.guarded, boxed) if wish.brought.agent is None else ()
    own = [one for one in known if one[0] not in wish.skip]
    places = {name: usual + number for number, (name, _) in enumerate(own)}
    brought = tuple(check.name for check in wish.brought.checks)
    pipeline, leaves = pipeline_for(task, settings, templates_for(root), places, wish.skip, brought)
    crew = tuple(chosen for _, chosen in own)
    return Course(pipeline, leaves, crew, task=task, remarks=template_remarks(root))


def _judged(course: Course, wish: Wish, settings: Settings, root: str) -> Course:
    """The same with somebody to ask for every judgement: who is named, else who works."""
    found: dict[str, Chosen] = {}
    for name, leaf in course.leaves.items():
        if isinstance(leaf.how, Semantic) and leaf.how.check_for:
            found[name] = _judge(leaf.how, leaf, wish, settings, root)
    return replace(course, judges=found) if found else course


def _judge(semantic: Semantic, leaf: Leaf, wish: Wish, settings: Settings, root: str) -> Chosen:
    from ralphproof.config.stage_agents import judge_of

    if not semantic.agent and wish.brought.agent is not None:
        return brought_agent(wish.brought.agent)
    if not semantic.agent and wish.plain:
        raise Refused(f"check {leaf.name}: a program without a prompt cannot judge; name an agent for it in its config")
    return judge_of(semantic, leaf.stage, settings, root, os.environ)
