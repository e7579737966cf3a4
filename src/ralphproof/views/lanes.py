"""Tasks and stories by where they stand, as the lanes of a board."""

from __future__ import annotations

from ralphproof.backlog import CANCELLED, DONE, WORKING
from ralphproof.config.keys import STAGES
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.story_work import StoryWork

if TYPE_CHECKING:
    from ralphproof.metric import Reviewed
    from ralphproof.value import Json
    from ralphproof.views.task_view import TaskView

TODO_LANE, DONE_LANE = "todo", "done"
LANES = (TODO_LANE, *STAGES, DONE_LANE)
STORY_LANES = {
    "open": ("open",), "needs_review": ("needs_review", "passes"), "changes_requested": ("changes_requested",),
    "approved": ("approved",),
}  # fmt: skip


def lane_of(view: TaskView) -> str:
    """Where a task stands: in the stage that it is at, or was when it stopped; else before or behind all of them."""
    if view.status in (DONE, CANCELLED):
        return DONE_LANE
    return view.stage if view.stage in STAGES else TODO_LANE


def task_lanes(views: tuple[TaskView, ...]) -> list[Json]:
    """Every task in its lane, those at work first, then by priority."""
    cards: dict[str, list[Json]] = {lane: [] for lane in LANES}
    for view in sorted(views, key=lambda one: (one.status != WORKING, one.priority, one.id)):
        lane = lane_of(view)
        cards[lane].append({**view.published(), "lane": lane})
    return [{"name": lane, "tasks": cards[lane]} for lane in LANES]


def story_lanes(stories: tuple[Reviewed, ...], works: dict[str, StoryWork]) -> list[Json]:
    """Every story of a run in its lane, in the plan's order, with the work on it."""
    return [
        {"name": lane, "stories": [_story(one, lane, works) for one in stories if one.status in states]}
        for lane, states in STORY_LANES.items()
    ]


def _story(one: Reviewed, lane: str, works: dict[str, StoryWork]) -> dict[str, Json]:
    return works.get(one.story, StoryWork()).published() | {
        "id": one.story, "title": one.title, "status": one.status, "reviews": one.reviews, "capped": one.capped,
        "found": [*one.found], "lane": lane,
    }  # fmt: skip
