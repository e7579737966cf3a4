"""When an agent wants to stop: hold what it leaves behind against the rules of its run, and send it back to mend it.

The loop holds it against the same rules once more: an agent's program may ignore its hooks.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time

from ralphproof import review, story
from ralphproof.hooks import given, marker
from ralphproof.hooks.duty import duty_of
from ralphproof.hooks.patience import worth_telling
from ralphproof.hooks.uncommitted import uncommitted
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ralphproof.hooks.duty import Duty

READS, PAUSE_S = 5, 0.1  # a file that is being written is whole a moment later
REASON_CHARS = 10_000
COMMIT = (
    "Uncommitted changes: {files}. Before you stop: (1) update {folder}/progress.txt with what was accomplished and "
    "what was learned, (2) consider whether a lasting pattern belongs in CLAUDE.md or .claude/rules/, (3) commit ALL "
    "changes, progress.txt and tasks.json included."
)


def main() -> int:
    """Let it stop (0 and nothing said), or say what to mend."""
    event = given.event()
    project = marker.project_of(event) if event else ""
    try:
        found = marker.marker_in(project) if project else {}
    except marker.Malformed as malformed:
        why = given.clean(str(malformed))
        given.say(why)
        return _answer(event, lambda: why) if marker.in_a_run() else 0
    if not found or not marker.is_ours(found):
        return 0
    if not marker.lives(found):
        given.say(f"{marker.NAME} was left by a loop that is over; nothing is checked")
        return 0
    return _answer(event, lambda: _reason(project, duty_of(found)))


def _answer(event: dict[str, Any], asked: Callable[[], str]) -> int:
    """Tell the agent's program. To let an agent pass because we failed would be no check at all; once is enough."""
    try:
        reason = asked()
        if reason and worth_telling(event, reason):
            _refuse(reason)
    except Exception as error:  # noqa: BLE001
        why = f"the rules of this loop could not be checked ({error!r}); look at them, and end your turn again"
        given.say(why)
        return _failed(why) if event.get("stop_hook_active") is not True else 0
    return 0


def _failed(why: str) -> int:
    """The one exit code that holds an agent back. A shell that hides it hands on what was said."""
    try:
        _refuse(why)
    except (OSError, ValueError):
        pass
    return 2


def _refuse(reason: str) -> None:
    print(json.dumps({"decision": "block", "reason": reason}), flush=True)


def _reason(project: str, duty: Duty) -> str:
    """Why the agent may not stop yet; empty where it may."""
    reason = "\n".join(given.clean(fault) for fault in (*duty.faults, *_faults(project, duty)))
    return reason if len(reason) <= REASON_CHARS else f"{reason[:REASON_CHARS]} ..."


def _faults(project: str, duty: Duty) -> list[str]:
    file = f"{duty.folder}/tasks.json"
    document = _document(os.path.join(project, file))
    if isinstance(document, story.Unreadable):
        return [f"{file}: {document.why}"]
    if faults := story.schema(document):
        return [f"{file}: {fault}" for fault in faults]
    found = _broken(document, duty)
    left = uncommitted(project, duty.dirty_before) if duty.commits else []
    if left:
        more = f" and {len(left) - story.NAMED} more" if len(left) > story.NAMED else ""
        found.append(COMMIT.format(files=", ".join(left[: story.NAMED]) + more, folder=duty.folder))
    return found


def _document(path: str) -> dict[str, Any] | story.Unreadable:
    for tries_left in reversed(range(READS)):
        try:
            document = story.read(_contents(path))
        except OSError as error:
            document = story.Unreadable(f"it cannot be read: {error.strerror}")
        if not isinstance(document, story.Unreadable) or not tries_left:
            return document
        time.sleep(PAUSE_S)
    return document


def _contents(path: str) -> bytes:
    """What is in a file. Nothing else is read: nobody may ever write to a pipe."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        with open(file, "rb", closefd=False) as opened:
            return opened.read(story.MOST_BYTES + 1)
    finally:
        os.close(file)


def _broken(document: dict[str, Any], duty: Duty) -> list[str]:
    """Checks 2 and 2.5, and what no mode may do."""
    before, pinned = duty.before, duty.pinned
    kept = review.constancy(pinned, document) if pinned is not None else ()
    if duty.skip_review:
        gone = review.kept(before, document) if before is not None else ()
        others = review.alone(before, document, duty.story) if before is not None and duty.story else ()
        return [*gone, *others, *kept]
    if before is None and not duty.faults:
        given.say(f"{marker.NAME} has no preIterationSnapshot; transitions are not checked")
    known = before is not None and duty.mode
    moved = review.transitions(before or {}, document, duty.mode, duty.cap, duty.story) if known else ()
    return [*moved, *review.invariants(document, duty.cap, before), *kept]


if __name__ == "__main__":
    sys.exit(main())
