"""A task as somebody wrote it, before anything is checked."""

from __future__ import annotations

from ralphproof.plan import Task
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from ralphproof.value import Json

STAGES = ("coder", "reviewer", "tester", "qa")
STATUSES = ("todo", "working", "done", "failed", "cancelled", "waiting")


@value
class Draft:
    """One task with its completion as plain JSON, so that writing it out again loses nothing."""

    id: str
    spec_id: str = ""
    title: str = ""
    description: str = ""
    priority: int = 0
    dependencies: tuple[str, ...] = ()
    status: str = "todo"
    assignee: str = ""
    metadata: dict[str, Json] = {}  # noqa: RUF012 (never changed)
    completion: dict[str, Json] | None = None


def data_of(draft: Draft) -> dict[str, Json]:
    """A draft as the mapping that somebody would write for it, without what is empty."""
    return {
        "id": draft.id,
        **({"spec_id": draft.spec_id} if draft.spec_id else {}),
        "title": draft.title,
        **({"description": draft.description} if draft.description else {}),
        "priority": draft.priority,
        "dependencies": list(draft.dependencies),
        **({"status": draft.status} if draft.status != "todo" else {}),
        **({"assignee": draft.assignee} if draft.assignee else {}),
        **({"metadata": draft.metadata} if draft.metadata else {}),
        **({"completion": draft.completion} if draft.completion is not None else {}),
    }


def bare(draft: Draft) -> Task:
    """The task without its criteria; outcome and acceptance as far as they can be read."""
    completion = draft.completion or {}
    outcome, wanted = completion.get("outcome"), completion.get("acceptance_criteria")
    texts = [text.strip() for text in wanted if isinstance(text, str)] if isinstance(wanted, list) else []
    return Task(
        draft.id,
        draft.description if draft.description.strip() else draft.title,
        draft.title,
        draft.priority,
        draft.dependencies,
        draft.status == "done",
        outcome=outcome.strip() if isinstance(outcome, str) else "",
        acceptance=tuple(text for text in texts if text),
        spec=draft.spec_id,
    )
