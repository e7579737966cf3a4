"""The stories of a run: how it goes through them, and what became of each so far."""

from __future__ import annotations

from ralphproof.ledgers.folder import RunFolder
from ralphproof.notebook import MEMORY
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.metric import Reviewed
    from ralphproof.plans.story_tasks import Manner
    from ralphproof.value import Json
    from ralphproof.views.project import Project


def manner_in(facts: dict[str, Json]) -> Manner | None:
    """How a run went through stories, as its beginning tells; None for a run of another kind."""
    match facts.get("stories"):
        case {"folder": str(folder), "cap": int(cap), "skipReview": bool(skips), "capIsFailure": bool(fails)}:
            from ralphproof.plans.story_tasks import Manner

            return Manner(folder, cap, skips, fails)
        case _:
            return None


def criteria_in(project: Project, row: RunRow) -> dict[str, tuple[str, ...]]:
    """What each story of a run asks for, masked, as its harness remembers it."""
    from ralphproof.plans.story_memory import recalled

    note = RunFolder(row.directory, row.id, project.store, project.mask).noted(MEMORY)
    stories = recalled(note).good["userStories"] if isinstance(note, dict) else ()
    return {one["id"]: tuple(map(project.mask, one["acceptanceCriteria"])) for one in stories}


def reviewed_in(project: Project, row: RunRow, facts: dict[str, Json]) -> tuple[Reviewed, ...]:
    """What became of a run's stories so far, masked, as its harness remembers them; nothing where it has none."""
    if manner_in(facts) is None:
        return ()
    from ralphproof.plans.story_memory import recalled
    from ralphproof.plans.story_tally import reviewed

    note = RunFolder(row.directory, row.id, project.store, project.mask).noted(MEMORY)
    stories, mask = reviewed(recalled(note)) if isinstance(note, dict) else (), project.mask
    return tuple(replace(one, title=mask(one.title), found=tuple(map(mask, one.found))) for one in stories)
