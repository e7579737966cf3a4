"""Tasks and stories by where they stand, as the lanes of a board."""

from __future__ import annotations

from ralphproof.backlog import CANCELLED, DONE, WORKING
from ralphproof.config.keys import STAGES
from ralphproof.record import RunEnded
from ralphproof.state import state_of
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.bills import spend_json

if TYPE_CHECKING:
    from ralphproof.ledgers.sqlite import Sqlite
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


def task_lanes(ledger: Sqlite, views: tuple[TaskView, ...]) -> list[Json]:
    """Every task in its lane, those at work first, then by priority."""
    cards: dict[str, list[Json]] = {lane: [] for lane in LANES}
    for view in sorted(views, key=lambda one: (one.status != WORKING, one.priority, one.id)):
        lane = lane_of(view)
        cards[lane].append({**view.published(), "lane": lane, "spend": _spend(ledger, view.run)})
    return [{"name": lane, "tasks": cards[lane]} for lane in LANES]


def _spend(ledger: Sqlite, run: str) -> Json:
    """What the last run of a task has cost."""
    if not run:
        return None
    end = ledger.end_of(run)
    spend = end.outcome.spend if isinstance(end, RunEnded) else state_of(ledger.records(run)).bill
    return spend_json(spend)


def story_lanes(stories: tuple[Reviewed, ...]) -> list[Json]:
    """Every story of a run in its lane, in the plan's order."""
    return [
        {"name": lane, "stories": [_story(one, lane) for one in stories if one.status in states]}
        for lane, states in STORY_LANES.items()
    ]


def _story(one: Reviewed, lane: str) -> dict[str, Json]:
    return {
        "id": one.story, "title": one.title, "status": one.status, "reviews": one.reviews, "capped": one.capped,
        "found": [*one.found], "lane": lane,
    }  # fmt: skip
