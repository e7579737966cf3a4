"""Stop hook: checks what an agent leaves behind against the rules of its turn, and sends it back to fix it.

The loop checks the same rules after the turn, since an agent may ignore its hooks.
"""

from __future__ import annotations

import json
import os
import sys
import time

from ralphproof.base.programs import find_program, run_program
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.hooks.session import (
    MARKER_NAME,
    REFUSALS_PREFIX,
    MalformedMarker,
    current_run_id,
    find_project,
    is_for_this_session,
    is_loop_alive,
    log_line,
    read_event,
    read_marker,
    read_regular_file,
    session_file_path,
    text_digest,
    text_field,
    to_single_line,
    update_session_file,
)
from ralphproof.stories import review, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

# Claude Code 2.1.325 lets an agent stop after so many refusals in a row, and loses its last message. Codex has no cap.
HOST_REFUSAL_CAP = 8
MAX_REFUSAL_CAP = 100
MAX_SAME_REASON = 3  # in a row
GIT_TIMEOUT_S = 10.0
MAX_GIT_OUTPUT_BYTES = 4 << 20
# Looking at a repository must not run programs that it configures.
GIT_OPTIONS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
GIT_STATUS_COMMAND = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
MAX_READS, READ_PAUSE_S = 5, 0.1  # a file may be half-written when we look
MAX_REASON_CHARS = 10_000
COMMIT_REMINDER = (
    "Uncommitted changes: {files}. Before you stop: (1) update {folder}/progress.txt with what was accomplished and "
    "what was learned, (2) consider whether a lasting pattern belongs in CLAUDE.md or .claude/rules/, (3) commit ALL "
    "changes, progress.txt and tasks.json included."
)


@value
class TurnRules:
    """The rules of a turn. `before` and `pinned` are None where the marker has none: other tools write markers too."""

    folder: str
    skip_review: bool
    cap: int
    mode: str
    story: str
    before: dict[str, dict[str, Any]] | None
    pinned: dict[str, Any] | None
    dirty_before: list[str]
    commits: bool
    faults: tuple[str, ...]


def parse_turn_rules(marker: Mapping[str, Any]) -> TurnRules:
    """The rules in a marker, with defaults for missing fields. A malformed field is reported as a fault."""
    faults: list[str] = []

    def field(name: str, is_valid: Callable[[Any], bool], default: Any, expected: str) -> Any:
        setting = marker.get(name)
        if setting is None or is_valid(setting):
            return default if setting is None else setting
        faults.append(
            f"{MARKER_NAME}: {name} is {schema.show_value(setting)}, and must be {expected}. "
            "That file is the loop's own."
        )
        return default

    skip = field("skipReview", _is_flag, False, "true or false")
    before = field("preIterationSnapshot", _is_snapshot, None, "passes, reviewStatus and reviewCount of every story")
    mode = field("iterationMode", schema.MODES.__contains__, "", f"one of {', '.join(schema.MODES)}")
    if before is not None and not mode and not skip and marker.get("iterationMode") is None:
        faults.append(f"{MARKER_NAME}: iterationMode is missing. That file is the loop's own.")
    return TurnRules(
        field("ralphDir", _is_project_folder, "ralph", "a folder inside the project"),
        skip,
        field("reviewCap", _is_cap, review.DEFAULT_REVIEW_CAP, "a positive integer"),
        mode,
        field("story", _is_text, "", "the id of a story"),
        before,
        field("pinned", _is_pinned_plan, None, "the verifyCommands and userStories that must stay"),
        field("dirtyBefore", _is_text_list, [], "an array of paths"),
        field("commits", _is_flag, True, "true or false"),
        tuple(faults),
    )


def _is_flag(item: object) -> bool:
    return isinstance(item, bool)


def _is_text(item: object) -> bool:
    return isinstance(item, str)


def _is_text_list(item: object) -> bool:
    return isinstance(item, list) and all(isinstance(one, str) for one in item)


def _is_count(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and item >= 0


def _is_cap(item: object) -> bool:
    return _is_count(item) and item != 0


def _is_project_folder(item: object) -> bool:
    if not isinstance(item, str) or not item.isprintable() or not item:
        return False
    return not os.path.isabs(item) and ".." not in item.split("/")


def _is_snapshot(item: object) -> bool:
    return isinstance(item, dict) and all(
        isinstance(one, dict)
        and _is_flag(one.get("passes"))
        and one.get("reviewStatus", "") in schema.STATUSES
        and _is_count(one.get("reviewCount"))
        for one in item.values()
    )


def _is_pinned_plan(item: object) -> bool:
    stories = item.get("userStories") if isinstance(item, dict) else None
    return (
        isinstance(item, dict)
        and _is_text_list(item.get("verifyCommands", []))
        and isinstance(stories, list)
        and all(
            isinstance(one, dict)
            and _is_text(one.get("id"))
            and _is_text_list(one.get("acceptanceCriteria"))
            and _is_text_list(one.get("dependsOn", []))
            for one in stories
        )
    )


def should_refuse_stop(event: dict[str, Any], reason: str) -> bool:
    """Whether to refuse this stop, which is counted. An agent that cannot do better must be able to end."""
    session, again = text_field(event, "session_id"), event.get("stop_hook_active")
    turn, digest = _turn_digest(event), text_digest(reason)
    refused: list[str] = []  # digests of the reasons given in this turn

    def add_refusal(content: str) -> str:
        counted_turn, *digests = content.split("\n")
        refused.extend(digests if counted_turn == turn and (turn or again is not False) else ())
        return "\n".join((turn, *refused, digest))

    if not session or not update_session_file(session_file_path(REFUSALS_PREFIX, session), add_refusal):
        return again is not True
    in_a_row = next((at for at, one in enumerate(reversed(refused)) if one != digest), len(refused))
    return len(refused) < _max_refusals() and in_a_row < MAX_SAME_REASON


def _turn_digest(event: dict[str, Any]) -> str:
    """Identifies the turn across its stops, whatever the agent says of earlier refusals; empty where unknown."""
    name = text_field(event, "prompt_id") or text_field(event, "turn_id")
    return text_digest(name) if name else ""


def _max_refusals() -> int:
    """One less than the agent's own cap, at least one: other hooks may refuse too."""
    try:
        cap = int(os.environ.get("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", ""))
    except ValueError:
        cap = HOST_REFUSAL_CAP
    return max(1, min(cap, MAX_REFUSAL_CAP) - 1) if cap > 0 else HOST_REFUSAL_CAP - 1


def uncommitted_files(project: str, before: Iterable[str]) -> list[str]:
    """Uncommitted files other than those in `before`; none outside a git repository."""
    if not os.path.lexists(os.path.join(project, ".git")):
        return []
    listed = _git_status(project)
    if listed is None:
        log_line("git status failed; the loop checks for uncommitted files again")
        return []
    known = set(before)
    return [path for path in _parse_status(listed) if path not in known and not _is_ralph_path(path)]


def _git_status(project: str) -> bytes | None:
    """The output of git status; None where it fails or takes too long.

    GIT_* variables are removed: they could point git to another repository.
    """
    env = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    git = find_program("git", env.get("PATH", os.defpath), outside=project)
    if git is None:
        return None
    reply = run_program(
        (git, "-C", project, *GIT_OPTIONS, *GIT_STATUS_COMMAND), env | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        timeout_s=GIT_TIMEOUT_S, most_bytes=MAX_GIT_OUTPUT_BYTES,
    )  # fmt: skip
    if len(reply.out) > MAX_GIT_OUTPUT_BYTES:
        return reply.out.rpartition(b"\0")[0]
    return reply.out if reply.good else None


def _is_ralph_path(path: str) -> bool:
    return path == ".ralph-active" or path.startswith(".ralph/")


def _parse_status(listed: bytes) -> Iterable[str]:
    return (entry[3:].decode("utf-8", "backslashreplace") for entry in listed.split(b"\0") if len(entry) > 3)


def main() -> int:
    """Allow the stop (no output), or print what the agent must fix."""
    event = read_event()
    project = find_project(event) if event else ""
    try:
        content = read_marker(project) if project else {}
    except MalformedMarker as malformed:
        reason = to_single_line(str(malformed))
        log_line(reason)
        return _answer(event, lambda: reason) if current_run_id() else 0
    if not content or not is_for_this_session(content):
        return 0
    if not is_loop_alive(content):
        log_line(f"{MARKER_NAME} was left by a loop that is over; nothing is checked")
        return 0
    return _answer(event, lambda: _refusal_reason(project, parse_turn_rules(content)))


def _answer(event: dict[str, Any], find_reason: Callable[[], str]) -> int:
    """Print a refusal if there is a reason for one. If this hook itself fails, the stop is refused once."""
    try:
        reason = find_reason()
        if reason and should_refuse_stop(event, reason):
            _print_refusal(reason)
    except Exception as error:  # noqa: BLE001
        why = f"the rules of this loop could not be checked ({error!r}); look at them, and end your turn again"
        log_line(why)
        return _fail_closed(why) if event.get("stop_hook_active") is not True else 0
    return 0


def _fail_closed(why: str) -> int:
    """Return the exit code that blocks a stop; print the refusal too, for a shell that hides the exit code."""
    try:
        _print_refusal(why)
    except (OSError, ValueError):
        pass
    return 2


def _print_refusal(reason: str) -> None:
    print(json.dumps({"decision": "block", "reason": reason}), flush=True)


def _refusal_reason(project: str, rules: TurnRules) -> str:
    """Why the agent must not stop yet; empty where it may."""
    reason = "\n".join(to_single_line(fault) for fault in (*rules.faults, *_find_faults(project, rules)))
    return reason if len(reason) <= MAX_REASON_CHARS else f"{reason[:MAX_REASON_CHARS]} ..."


def _find_faults(project: str, rules: TurnRules) -> list[str]:
    file = f"{rules.folder}/tasks.json"
    document = _read_stories(os.path.join(project, file))
    if isinstance(document, schema.UnreadableStories):
        return [f"{file}: {document.why}"]
    if invalid := schema.validate_stories(document):
        return [f"{file}: {fault}" for fault in invalid]
    faults = _broken_rules(document, rules)
    left = uncommitted_files(project, rules.dirty_before) if rules.commits else []
    if left:
        more = f" and {len(left) - schema.MAX_NAMED} more" if len(left) > schema.MAX_NAMED else ""
        faults.append(COMMIT_REMINDER.format(files=", ".join(left[: schema.MAX_NAMED]) + more, folder=rules.folder))
    return faults


def _read_stories(path: str) -> dict[str, Any] | schema.UnreadableStories:
    for tries_left in reversed(range(MAX_READS)):
        try:
            document = schema.parse_stories(read_regular_file(path, schema.MAX_BYTES))
        except OSError as error:
            document = schema.UnreadableStories(f"it cannot be read: {error.strerror}")
        if not isinstance(document, schema.UnreadableStories) or not tries_left:
            return document
        time.sleep(READ_PAUSE_S)
    return document


def _broken_rules(document: dict[str, Any], rules: TurnRules) -> list[str]:
    """Violations of the review rules, and of the rules that hold in every mode."""
    before, pinned = rules.before, rules.pinned
    weakened = review.check_not_weakened(pinned, document) if pinned is not None else ()
    if rules.skip_review:
        gone = review.check_stories_kept(before, document) if before is not None else ()
        others = (
            review.check_without_review(before, document, rules.story) if before is not None and rules.story else ()
        )
        return [*gone, *others, *weakened]
    if before is None and not rules.faults:
        log_line(f"{MARKER_NAME} has no preIterationSnapshot; transitions are not checked")
    known = before is not None and rules.mode
    moved = review.check_transitions(before or {}, document, rules.mode, rules.cap, rules.story) if known else ()
    return [*moved, *review.check_invariants(document, rules.cap, before), *weakened]


if __name__ == "__main__":
    sys.exit(main())
