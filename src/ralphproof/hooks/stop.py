"""Stop hook: checks what an agent leaves behind against the rules of its turn, and sends it back to fix it."""

from __future__ import annotations

import errno
import json
import os
import select
import stat
import sys
import time

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.hooks import hook_input, marker, session_files
from ralphproof.hooks.hook_input import log_line
from ralphproof.hooks.marker import MARKER_NAME
from ralphproof.stories import review, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any


# What a marker demands of a turn. A field of another type than it must have is a fault: nothing is guessed.


@value
class TurnRules:
    """The rules of a turn. `before` and `pinned` are None where the marker has none: others write markers too."""

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
    """What this marker demands, with what is usual in place of what is missing or malformed."""
    faults: list[str] = []

    def field(name: str, fits: Callable[[Any], bool], usual: Any, wanted: str) -> Any:
        found = marker.get(name)
        if found is None or fits(found):
            return usual if found is None else found
        faults.append(
            f"{MARKER_NAME}: {name} is {schema.show_value(found)}, and must be {wanted}. That file is the loop's own."
        )
        return usual

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


def _is_flag(given: object) -> bool:
    return isinstance(given, bool)


def _is_text(given: object) -> bool:
    return isinstance(given, str)


def _is_text_list(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(one, str) for one in given)


def _is_count(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _is_cap(given: object) -> bool:
    return _is_count(given) and given != 0


def _is_project_folder(given: object) -> bool:
    if not isinstance(given, str) or not given.isprintable() or not given:
        return False
    return not os.path.isabs(given) and ".." not in given.split("/")


def _is_snapshot(given: object) -> bool:
    return isinstance(given, dict) and all(
        isinstance(one, dict)
        and _is_flag(one.get("passes"))
        and one.get("reviewStatus", "") in schema.STATUSES
        and _is_count(one.get("reviewCount"))
        for one in given.values()
    )


def _is_pinned_plan(given: object) -> bool:
    stories = given.get("userStories") if isinstance(given, dict) else None
    return (
        isinstance(given, dict)
        and _is_text_list(given.get("verifyCommands", []))
        and isinstance(stories, list)
        and all(
            isinstance(one, dict)
            and _is_text(one.get("id"))
            and _is_text_list(one.get("acceptanceCriteria"))
            and _is_text_list(one.get("dependsOn", []))
            for one in stories
        )
    )


# How often an end is refused. An agent that cannot do better must end, before its host loses patience with us.


# Refusals in a row, after which Claude Code lets an agent stop and loses its last message (2.1.325). Codex has none.
HOST_REFUSAL_CAP = 8
MAX_REFUSAL_CAP = 100
MAX_SAME_REASON = 3  # times that one reason is worth telling


def should_refuse_stop(event: dict[str, Any], reason: str) -> bool:
    """Whether to refuse this end, which counts as refused from now on."""
    session, again = hook_input.text_field(event, "session_id"), event.get("stop_hook_active")
    turn, mark = _turn_digest(event), session_files.text_digest(reason)
    told: list[str] = []

    def count(before: str) -> str:
        of, *marks = before.split("\n")
        told.extend(marks if of == turn and (turn or again is not False) else ())
        return "\n".join((turn, *told, mark))

    if not session or not session_files.update_session_file(
        session_files.session_file_path(session_files.REFUSALS_PREFIX, session), count
    ):
        return again is not True
    in_a_row = next((at for at, one in enumerate(reversed(told)) if one != mark), len(told))
    return len(told) < _max_refusals() and in_a_row < MAX_SAME_REASON


def _turn_digest(event: dict[str, Any]) -> str:
    """What all ends of one turn have in common, whatever its host says of earlier refusals; empty where unknown."""
    name = hook_input.text_field(event, "prompt_id") or hook_input.text_field(event, "turn_id")
    return session_files.text_digest(name) if name else ""


def _max_refusals() -> int:
    """One less than the host takes, and one at the least: other hooks may refuse too."""
    try:
        cap = int(os.environ.get("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", ""))
    except ValueError:
        cap = HOST_REFUSAL_CAP
    return max(1, min(cap, MAX_REFUSAL_CAP) - 1) if cap > 0 else HOST_REFUSAL_CAP - 1


# What a project's git has not got yet.


GIT_TIMEOUT_S = 10.0
MAX_GIT_OUTPUT_BYTES = 4 << 20
CHUNK_BYTES = 64 << 10
SIGKILL = 9  # the `signal` module would import `enum`
# Nothing that the repository configures runs because somebody looks at it.
GIT_OPTIONS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
GIT_STATUS_COMMAND = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")


def uncommitted_files(project: str, before: Iterable[str]) -> list[str]:
    """Files that changed and are not committed, without those that were so `before`; none where there is no git."""
    if not os.path.lexists(os.path.join(project, ".git")):
        return []
    listed = _run_program(("git", "-C", project, *GIT_OPTIONS, *GIT_STATUS_COMMAND))
    if listed is None:
        log_line("git did not tell what is uncommitted; the loop looks again")
        return []
    known = set(before)
    return [path for path in _parse_status(listed) if path not in known and not _is_ralph_path(path)]


def _is_ralph_path(path: str) -> bool:
    return path == ".ralph-active" or path.startswith(".ralph/")


def _parse_status(listed: bytes) -> Iterable[str]:
    return (entry[3:].decode("utf-8", "backslashreplace") for entry in listed.split(b"\0") if len(entry) > 3)


def _run_program(argv: tuple[str, ...]) -> bytes | None:
    """What a program says, as far as it is worth reading; None where it fails or takes too long.

    Nothing that points git to another repository reaches it. `subprocess` takes longer to load than git to answer.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    out, to_us = os.pipe()
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 2)]
    try:
        env = kept | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
        actions = [*nowhere, (os.POSIX_SPAWN_DUP2, to_us, 1)]
        child = os.posix_spawnp(argv[0], argv, env, file_actions=actions, setpgroup=0)
    except OSError:
        os.close(to_us)
        os.close(out)
        return None
    os.close(to_us)
    try:
        return _read_output(child, out)
    finally:
        os.close(out)


def _kill(group: int) -> None:
    try:
        os.killpg(group, SIGKILL)
    except OSError:
        pass  # it has just ended


def _read_output(child: int, out: int) -> bytes | None:
    deadline, said, ended = time.monotonic() + GIT_TIMEOUT_S, b"", False
    while not ended and len(said) < MAX_GIT_OUTPUT_BYTES and (left_s := deadline - time.monotonic()) > 0:
        if select.select([out], [], [], left_s)[0]:
            piece = os.read(out, CHUNK_BYTES)
            said, ended = said + piece, not piece
    if not ended:
        _kill(child)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if len(said) >= MAX_GIT_OUTPUT_BYTES:
        return said.rpartition(b"\0")[0]
    return said if ended and code == 0 else None


# When an agent wants to stop: hold what it leaves behind against the rules of its run, and send it back to mend it.
#
# The loop holds it against the same rules once more: an agent's program may ignore its hooks.


MAX_READS, READ_PAUSE_S = 5, 0.1  # a file that is being written is whole a moment later
MAX_REASON_CHARS = 10_000
COMMIT_REMINDER = (
    "Uncommitted changes: {files}. Before you stop: (1) update {folder}/progress.txt with what was accomplished and "
    "what was learned, (2) consider whether a lasting pattern belongs in CLAUDE.md or .claude/rules/, (3) commit ALL "
    "changes, progress.txt and tasks.json included."
)


def main() -> int:
    """Let it stop (0 and nothing said), or say what to mend."""
    event = hook_input.read_event()
    project = marker.find_project(event) if event else ""
    try:
        found = marker.read_marker(project) if project else {}
    except marker.MalformedMarker as malformed:
        why = hook_input.to_single_line(str(malformed))
        hook_input.log_line(why)
        return _answer(event, lambda: why) if marker.current_run_id() else 0
    if not found or not marker.is_for_this_session(found):
        return 0
    if not marker.is_loop_alive(found):
        hook_input.log_line(f"{marker.MARKER_NAME} was left by a loop that is over; nothing is checked")
        return 0
    return _answer(event, lambda: _refusal_reason(project, parse_turn_rules(found)))


def _answer(event: dict[str, Any], asked: Callable[[], str]) -> int:
    """Tell the agent's program. To let an agent pass because we failed would be no check at all; once is enough."""
    try:
        reason = asked()
        if reason and should_refuse_stop(event, reason):
            _print_refusal(reason)
    except Exception as error:  # noqa: BLE001
        why = f"the rules of this loop could not be checked ({error!r}); look at them, and end your turn again"
        hook_input.log_line(why)
        return _fail_closed(why) if event.get("stop_hook_active") is not True else 0
    return 0


def _fail_closed(why: str) -> int:
    """The one exit code that holds an agent back. A shell that hides it hands on what was said."""
    try:
        _print_refusal(why)
    except (OSError, ValueError):
        pass
    return 2


def _print_refusal(reason: str) -> None:
    print(json.dumps({"decision": "block", "reason": reason}), flush=True)


def _refusal_reason(project: str, duty: TurnRules) -> str:
    """Why the agent may not stop yet; empty where it may."""
    reason = "\n".join(hook_input.to_single_line(fault) for fault in (*duty.faults, *_find_faults(project, duty)))
    return reason if len(reason) <= MAX_REASON_CHARS else f"{reason[:MAX_REASON_CHARS]} ..."


def _find_faults(project: str, duty: TurnRules) -> list[str]:
    file = f"{duty.folder}/tasks.json"
    document = _read_stories(os.path.join(project, file))
    if isinstance(document, schema.UnreadableStories):
        return [f"{file}: {document.why}"]
    if faults := schema.validate_stories(document):
        return [f"{file}: {fault}" for fault in faults]
    found = _broken_rules(document, duty)
    left = uncommitted_files(project, duty.dirty_before) if duty.commits else []
    if left:
        more = f" and {len(left) - schema.MAX_NAMED} more" if len(left) > schema.MAX_NAMED else ""
        found.append(COMMIT_REMINDER.format(files=", ".join(left[: schema.MAX_NAMED]) + more, folder=duty.folder))
    return found


def _read_stories(path: str) -> dict[str, Any] | schema.UnreadableStories:
    for tries_left in reversed(range(MAX_READS)):
        try:
            document = schema.parse_stories(_read_regular_file(path))
        except OSError as error:
            document = schema.UnreadableStories(f"it cannot be read: {error.strerror}")
        if not isinstance(document, schema.UnreadableStories) or not tries_left:
            return document
        time.sleep(READ_PAUSE_S)
    return document


def _read_regular_file(path: str) -> bytes:
    """What is in a file. Nothing else is read: nobody may ever write to a pipe."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        with open(file, "rb", closefd=False) as opened:
            return opened.read(schema.MAX_BYTES + 1)
    finally:
        os.close(file)


def _broken_rules(document: dict[str, Any], duty: TurnRules) -> list[str]:
    """Checks 2 and 2.5, and what no mode may do."""
    before, pinned = duty.before, duty.pinned
    kept = review.check_not_weakened(pinned, document) if pinned is not None else ()
    if duty.skip_review:
        gone = review.check_stories_kept(before, document) if before is not None else ()
        others = review.check_without_review(before, document, duty.story) if before is not None and duty.story else ()
        return [*gone, *others, *kept]
    if before is None and not duty.faults:
        hook_input.log_line(f"{marker.MARKER_NAME} has no preIterationSnapshot; transitions are not checked")
    known = before is not None and duty.mode
    moved = review.check_transitions(before or {}, document, duty.mode, duty.cap, duty.story) if known else ()
    return [*moved, *review.check_invariants(document, duty.cap, before), *kept]


if __name__ == "__main__":
    sys.exit(main())
