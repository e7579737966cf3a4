"""Tasks and stories in the lanes of a board, with the work on each story."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine.budget import Spend
from ralphproof.settings.keys import PIPELINE_STAGES
from ralphproof.store.tasks import CANCELLED, DONE, WORKING
from ralphproof.stories.workflow import story_criteria
from ralphproof.views.run_status import spend_json
from ralphproof.views.task_detail import list_task_iterations

if TYPE_CHECKING:
    from ralphproof.base.value import Json
    from ralphproof.engine.metrics import StoryReview
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project
    from ralphproof.views.run_records import RunHistory
    from ralphproof.views.task_detail import TaskIteration
    from ralphproof.views.tasks import TaskView
    from ralphproof.views.timeline import TimelineIteration


# The work on each story, from the records.


@value
class StoryWork:
    """The work on one story: acceptance criteria, iterations, cost and verifications."""

    criteria: tuple[str, ...] = ()
    iterations: int = 0
    spend: Spend = Spend()
    history: tuple[TaskIteration, ...] = ()

    def published(self) -> dict[str, Json]:
        """For programs."""
        return {
            "acceptance": [*self.criteria], "iterations": self.iterations,
            "spend": spend_json(self.spend) if self.iterations else None,
            "verification": [one.published() for one in self.history],
        }  # fmt: skip


def work_by_story(ledger: SqliteLedger, project: Project, row: RunRow, followed: RunHistory) -> dict[str, StoryWork]:
    """The work on every story that is known, by its id."""
    works = {story: StoryWork(criteria) for story, criteria in story_criteria(project, row).items()}
    for span in followed.timeline.spans.values():
        if span.job is not None:
            task = span.job.task
            known = works.get(task.id) or StoryWork(tuple(map(project.mask, task.acceptance)))
            spend = known.spend.plus(iteration_spend(span))
            works[task.id] = replace(known, iterations=known.iterations + 1, spend=spend)
    for passage in list_task_iterations(ledger, (row.id,)):
        if passage.task in works:
            before = works[passage.task]
            works[passage.task] = replace(before, history=(*before.history, passage))
    return works


def iteration_spend(span: TimelineIteration) -> Spend:
    """The cost of an iteration: its turns, its judges, and the call for a commit message."""
    spend = Spend()
    for leg in span.legs:  # one that goes on has cost something, nobody knows what
        spend = spend.plus_turn(leg.reply) if leg.reply else spend.plus(Spend(unpriced=1))
    for one in span.checks:
        if one.finding and one.finding.spent:
            spend = spend.plus(Spend.of(one.finding.spent))
    return spend.plus_turn(span.kept.reply) if span.kept and span.kept.reply else spend


# Lanes.


TODO_LANE, DONE_LANE = "todo", "done"
LANES = (TODO_LANE, *PIPELINE_STAGES, DONE_LANE)
STORY_LANES = {
    "open": ("open",), "needs_review": ("needs_review", "passes"), "changes_requested": ("changes_requested",),
    "approved": ("approved",),
}  # fmt: skip


def task_lane(view: TaskView) -> str:
    """The lane of a task: its stage, also where it stopped; else before or behind all stages."""
    if view.status in (DONE, CANCELLED):
        return DONE_LANE
    return view.stage if view.stage in PIPELINE_STAGES else TODO_LANE


def task_lanes(views: tuple[TaskView, ...]) -> list[Json]:
    """Every task in its lane, active ones first, then by priority."""
    cards: dict[str, list[Json]] = {lane: [] for lane in LANES}
    for view in sorted(views, key=lambda one: (one.status != WORKING, one.priority, one.id)):
        lane = task_lane(view)
        cards[lane].append({**view.published(), "lane": lane})
    return [{"name": lane, "tasks": cards[lane]} for lane in LANES]


def story_lanes(stories: tuple[StoryReview, ...], works: dict[str, StoryWork]) -> list[Json]:
    """Every story of a run in its lane, in the plan's order, with the work on it."""
    return [
        {"name": lane, "stories": [_story_json(one, lane, works) for one in stories if one.status in states]}
        for lane, states in STORY_LANES.items()
    ]


def _story_json(story: StoryReview, lane: str, works: dict[str, StoryWork]) -> dict[str, Json]:
    return works.get(story.story, StoryWork()).published() | {
        "id": story.story, "title": story.title, "status": story.status, "reviews": story.reviews,
        "capped": story.capped, "found": [*story.found], "lane": lane,
    }  # fmt: skip
