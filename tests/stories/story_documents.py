"""Documents of stories in every state that a review cycle knows."""

from __future__ import annotations

import json
from typing import Any

from ralphproof.stories.schema import APPROVED, CHANGES_REQUESTED, NEEDS_REVIEW

Story = dict[str, Any]
Document = dict[str, Any]
A, B, C = "US-001", "US-002", "US-003"


def story(name: str = A, **fields: Any) -> Story:
    """A story that nobody began, but for these fields."""
    return {
        "id": name, "title": f"Make {name}", "description": "", "acceptanceCriteria": [f"{name} works"], "priority": 1,
        "passes": False, "reviewStatus": None, "reviewCount": 0, "reviewFeedback": "", "notes": "", "dependsOn": [],
        **fields,
    }  # fmt: skip


def submitted(name: str = A, count: int = 0, **fields: Any) -> Story:
    """One that waits for its review."""
    return story(name, reviewStatus=NEEDS_REVIEW, reviewCount=count, **fields)


def requested(name: str = A, count: int = 1, **fields: Any) -> Story:
    """One that its review sent back."""
    sent = {"reviewStatus": CHANGES_REQUESTED, "reviewCount": count, "reviewFeedback": "Mend line 3."}
    return story(name, **(sent | fields))


def approved(name: str = A, count: int = 1, **fields: Any) -> Story:
    """One that its review approved."""
    sent = {"passes": True, "reviewStatus": APPROVED, "reviewCount": count, "notes": "Done."}
    return story(name, **(sent | fields))


def document(*stories: Story, **top: Any) -> Document:
    """A whole file."""
    about = {"project": "p", "branchName": "ralph/p", "description": "d", "verifyCommands": ["make test"]}
    return {**about, "userStories": list(stories or (story(),)), **top}


def encoded(thing: Any) -> bytes:
    return json.dumps(thing).encode()
