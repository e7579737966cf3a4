"""The stories of a tasks.json as tasks: the verify commands become checks, what is approved is done."""

from __future__ import annotations

from ralphproof.plan import EXTERNAL, MULTI_STAGE, SEMANTIC
from ralphproof.plans.rules import KIB, choice, flag, of_table, prose, text, texts, whole
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ralphproof.plans.rules import Rule

_NOTE = prose(KIB * KIB, blank=True)
_FILE: dict[str, Rule] = {
    "project": text(200, blank=True), "branchName": text(200, blank=True), "description": _NOTE,
    "verifyCommands": texts(prose(100 * KIB), 99), "userStories": lambda _: iter(()), "$schema": text(2000),
}  # fmt: skip
_STORY: dict[str, Rule] = {
    "id": text(200), "title": text(500), "description": _NOTE,
    "acceptanceCriteria": texts(text(2000, lines=True), 200, least=1), "priority": whole(-(2**31), 2**31 - 1),
    "passes": flag, "reviewStatus": choice("needs_review", "changes_requested", "approved"),
    "reviewCount": whole(0, 1_000_000), "reviewFeedback": _NOTE, "notes": _NOTE, "dependsOn": texts(text(200), 1000),
}  # fmt: skip
_KEPT = ("reviewStatus", "reviewCount", "reviewFeedback", "notes")
_ASKED = {"name": "acceptance_criteria", "method": SEMANTIC, "config": {"check_for": "{{acceptance_criteria}}"}}


def stories_of(document: dict[str, Any]) -> Iterator[tuple[object, tuple[str, ...]]]:
    """Each story as a task would be written, and what is wrong with it in the words of its own file."""
    if wrong := tuple(of_table(document, "", _FILE)):
        yield None, wrong
    stories = document["userStories"]
    if stories is not None and not isinstance(stories, list):
        yield None, ("userStories must be a list",)
        return
    for place, story in enumerate(stories or ()):
        faults = tuple(_faults(story, f"userStories[{place}]"))
        if faults and isinstance(story, dict) and isinstance(story.get("id"), str):
            yield {"id": story["id"], "title": story["id"]}, faults  # they are named by it
        else:
            yield (None, faults) if faults else (_task(story, {} if wrong else document), ())


def _faults(story: object, path: str) -> Iterator[str]:
    yield from of_table(story, path, _STORY, ("id", "title", "acceptanceCriteria"))
    if isinstance(story, dict):
        status = story.get("reviewStatus")
        if (story.get("passes") is True and status not in (None, "approved")) or (
            status == "approved" and story.get("passes") is not True
        ):
            yield f"{path}.passes and {path}.reviewStatus disagree; only what is approved passes"


def _task(story: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: story[name] for name in _KEPT if story.get(name)}
    if document.get("branchName"):
        metadata["branchName"] = document["branchName"]
    told = str(story.get("description") or "").strip()
    return {
        "id": story["id"], "spec_id": document.get("project"), "title": story["title"],
        "description": story.get("description"), "priority": story.get("priority"),
        "dependencies": story.get("dependsOn"), "status": "done" if story.get("passes") else "todo",
        "metadata": metadata,
        "completion": {
            "outcome": told if 0 < len(told) <= 2000 and not list(text(2000, lines=True)(told)) else story["title"],
            "acceptance_criteria": story["acceptanceCriteria"],
            **_stages(document.get("verifyCommands") or []),
        },
    }  # fmt: skip


def _stages(commands: list[str]) -> dict[str, Any]:
    """What the stages ask where the file has verify commands; else the settings say it."""
    if not commands:
        return {}
    parts = [
        {"name": f"verify_{place}", "method": EXTERNAL, "config": {"command": command}}
        for place, command in enumerate(commands, 1)
    ]
    every = "Every verify command passes"
    if len(commands) == 1:
        checked = {"verification_method": EXTERNAL, "verification_config": parts[0]["config"]}
    else:
        checked = {"verification_method": MULTI_STAGE, "verification_config": {"stages": parts}}
    both = {"verification_method": MULTI_STAGE, "verification_config": {"stages": [*parts, _ASKED]}}
    return {
        "coder": {"promise": "IMPLEMENTATION_COMPLETE", "description": every, **checked},
        "tester": {"promise": "TESTS_PASSED", "description": every, **checked},
        "qa": {"promise": "QA_PASSED", "description": f"{every}, and every acceptance criterion is met", **both},
    }
