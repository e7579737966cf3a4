"""When an agent wants to stop: hold what it leaves behind against the rules of its run, and send it back to mend it.

The loop holds it against the same rules once more: an agent's program may ignore its hooks.
"""

from __future__ import annotations

import json
import os
import sys
import time

from ralphproof import review, story
from ralphproof.hooks import given, once
from ralphproof.hooks.uncommitted import uncommitted
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

BLOCKS = "ralph-stop-blocks"
HOST_CAP = 8  # blocks in a row, after which Claude Code lets an agent stop, and loses its last message
SAME = 3  # times that one reason is worth telling
READS, PAUSE_S = 5, 0.1  # a file that is being written is whole a moment later
COMMIT = (
    "Uncommitted changes: {files}. Before you stop: (1) update {folder}/progress.txt with what was accomplished and "
    "what was learned, (2) consider whether a lasting pattern belongs in CLAUDE.md or .claude/rules/, (3) commit ALL "
    "changes, progress.txt and tasks.json included."
)


def main() -> int:
    """Let it stop (0 and nothing said), or say what to mend."""
    event = given.event()
    if not event:
        return 0
    try:
        project = given.project_of(event)
        reason = _reason(project) if project else ""
    except Exception as error:  # noqa: BLE001 (to let it pass because we failed would be no check at all)
        reason = f"The rules of this loop could not be checked: {error!r}"
    if reason and _worth_telling(event, reason):
        print(json.dumps({"decision": "block", "reason": reason}))
    return 0


def _reason(project: str) -> str:
    """Why the agent may not stop yet; empty where it may."""
    try:
        marker = given.marker_in(project)
    except given.Malformed as malformed:
        return str(malformed) if os.environ.get("RALPH_RUN_ID") else ""
    if not marker or not given.is_ours(marker):
        return ""
    if not given.lives(marker):
        print(f"ralph hook: {given.MARKER} was left by a loop that is over; nothing is checked", file=sys.stderr)
        return ""
    faults = _faults(project, marker)
    return "\n".join(faults)


def _faults(project: str, marker: dict[str, Any]) -> list[str]:
    folder = marker.get("ralphDir", "ralph")
    if not isinstance(folder, str) or os.path.isabs(folder) or ".." in folder.split("/"):
        return [f"{given.MARKER}: ralphDir must be a folder inside the project"]
    document = _document(os.path.join(project, folder, "tasks.json"))
    if isinstance(document, story.Unreadable):
        return [f"{folder}/tasks.json: {document.why}"]
    if faults := story.schema(document):
        return [f"{folder}/tasks.json: {fault}" for fault in faults]
    found = _broken(document, marker)
    left = [] if marker.get("commits") is False else uncommitted(project, marker.get("dirtyBefore"))
    if left:
        more = f" and {len(left) - story.NAMED} more" if len(left) > story.NAMED else ""
        found.append(COMMIT.format(files=", ".join(left[: story.NAMED]) + more, folder=folder))
    return found


def _document(path: str) -> dict[str, Any] | story.Unreadable:
    for tries_left in reversed(range(READS)):
        try:
            with open(path, "rb") as file:
                document = story.read(file.read(story.MOST_BYTES + 1))
        except OSError as error:
            document = story.Unreadable(f"it cannot be read: {error.strerror}")
        if not isinstance(document, story.Unreadable) or not tries_left:
            return document
        time.sleep(PAUSE_S)
    return document


def _broken(document: dict[str, Any], marker: dict[str, Any]) -> list[str]:
    """Checks 2 and 2.5."""
    before, mode, cap = (marker.get(name) for name in ("preIterationSnapshot", "iterationMode", "reviewCap"))
    cap = cap if isinstance(cap, int) and not isinstance(cap, bool) and cap > 0 else review.CAP
    pinned = marker.get("pinned")
    kept = list(review.constancy(pinned, document)) if isinstance(pinned, dict) else []
    if marker.get("skipReview") is True:
        return kept
    if before is None:
        print(f"ralph hook: {given.MARKER} has no preIterationSnapshot; transitions are not checked", file=sys.stderr)
        return [*review.invariants(document, cap), *kept]
    if mode not in story.MODES or not _is_snapshot(before):
        return [
            f"{given.MARKER}: iterationMode or preIterationSnapshot is malformed",
            *review.invariants(document, cap),
        ]
    active = marker.get("story")
    moved = review.transitions(before, document, mode, cap, active if isinstance(active, str) else "")
    return [*moved, *review.invariants(document, cap, before), *kept]


def _is_snapshot(given_one: object) -> bool:
    return isinstance(given_one, dict) and all(
        isinstance(one, dict) and all(name in one for name in story.WATCHED) for one in given_one.values()
    )


def _worth_telling(event: dict[str, Any], reason: str) -> bool:
    """Whether to block once more. An agent that cannot do better must end, before its host loses patience."""
    session = given.text(event, "session_id")
    if not session:
        return event.get("stop_hook_active") is not True
    again: list[bool] = []

    def count(before: str) -> str:
        said = before.split("\n") if event.get("stop_hook_active") is True and before else []
        mark = str(hash_of(reason))
        in_a_row = 0
        for one in reversed(said):
            if one != mark:
                break
            in_a_row += 1
        again.append(len(said) < _cap() - 1 and in_a_row < SAME)
        return "\n".join([*said, mark])

    told = once.change(once.path_of(BLOCKS, session), count)
    return again[0] if told and again else event.get("stop_hook_active") is not True


def hash_of(reason: str) -> str:
    import hashlib

    return hashlib.sha256(reason.encode("utf-8", "replace")).hexdigest()[:16]


def _cap() -> int:
    try:
        said = int(os.environ.get("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", ""))
    except ValueError:
        return HOST_CAP
    return said if said > 0 else HOST_CAP


if __name__ == "__main__":
    sys.exit(main())
