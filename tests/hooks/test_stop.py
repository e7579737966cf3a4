"""The Stop hook sends an agent back while its work breaks the rules of its run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ralphproof.stories.review import APPROVED_AT_CAP
from tests.hooks.session import CLAUDE, CODEX, Session, module, verb
from tests.stories.story_documents import A, B, C, Story, approved, document, requested, story, submitted

ONLY_REVIEWS = "Only review iterations may approve stories. Set passes back to false or complete the review cycle."
NO_IMPLEMENT = (
    "Implement iterations cannot set passes=true or approve stories. Only review iterations may approve. "
    "Story {} had illegal transition: {}."
)
NO_REVIEW = "Review iteration made illegal transition on story {}: {}."
NO_FIX = (
    "Review-fix iterations cannot approve stories. Story {} must go back to needs_review for re-review. "
    "Illegal transition: {}."
)
UNCOUNTED = "review must increment reviewCount, and it is unchanged"
RUN = {"RALPH_RUN_ID": "r1"}
DONE: dict[str, Any] = {"passes": True, "notes": "n"}


def test_without_a_marker_nothing_is_asked(session: Session) -> None:
    session.tasks.write_text("not even JSON")
    answer = session.stops()
    assert (answer.code, answer.out, answer.err) == (0, "", "")


# Check 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "ralph/tasks.json: it cannot be read: No such file or directory"),
        ('{"project": "p"', "ralph/tasks.json: it is not valid JSON: 1:16: expecting ',' delimiter"),
        ("[]", "ralph/tasks.json: it is no JSON object"),
        ('{"userStories": []}', "ralph/tasks.json: project is missing; it must be a string"),
    ],
)
def test_a_file_that_is_no_list_of_stories_is_refused(session: Session, text: str | None, reason: str) -> None:
    session.mark()
    if text is not None:
        session.tasks.write_text(text)
    assert session.stops().reason.startswith(reason)


@pytest.mark.parametrize(
    ("stories", "reason"),
    [
        ((story(passes="true"),), f'Story {A}: passes is "true", and must be true or false'),
        ((story(reviewCount=-1),), f"Story {A}: reviewCount is -1, and must be a non-negative integer"),
        ((story(reviewStatus="Approved "),), f'Story {A}: reviewStatus is "Approved ", and must be null, '),
        ((approved(notes=""),), f"Story {A}: passes is true but notes is empty; write down what was done"),
        ((story(), story()), f'the id "{A}" is used by more than one story'),
    ],
)
def test_a_malformed_story_is_named_with_its_field(session: Session, stories: tuple[Story, ...], reason: str) -> None:
    session.mark()
    session.write(*stories)
    assert session.stops().reason.startswith(f"ralph/tasks.json: {reason}")


# Check 2


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (
            story(passes=True, notes="n"),
            f"Story {A} has passes=true but reviewStatus is 'null', not 'approved'. {ONLY_REVIEWS}",
        ),
        (
            story(passes=True, notes="n", reviewStatus="needs_review"),
            f"Story {A} has passes=true but reviewStatus is 'needs_review', not 'approved'. {ONLY_REVIEWS}",
        ),
        (
            requested(passes=True, notes="n"),
            f"Story {A} has passes=true but reviewStatus is 'changes_requested', not 'approved'. {ONLY_REVIEWS}",
        ),
        (approved(), ""),
        (requested(reviewFeedback=""), "feedback required"),
        (approved(passes=False), "out of sync"),
        (submitted(count=7), f"Story {A} has reviewCount 7, more than the review cap of 5 allows."),
    ],
)
def test_a_state_that_no_review_leaves_is_refused_without_a_snapshot_too(
    session: Session, one: Story, reason: str
) -> None:
    """HK-11: transitions cannot be checked then, and the log says so."""
    session.mark(preIterationSnapshot=None)
    session.write(one)
    answer = session.stops()
    assert reason in answer.reason
    assert bool(reason) == bool(answer.reason)
    assert answer.err == "ralph hook: .ralph-active has no preIterationSnapshot; transitions are not checked\n"


# Check 2.5


@pytest.mark.parametrize(
    ("mode", "before", "now", "reason"),
    [
        ("implement", (story(),), (story(),), ""),
        ("implement", (story(),), (submitted(),), ""),
        ("implement", (story(),), (submitted(), story(B)), ""),
        ("implement", (story(),), (approved(count=0),), NO_IMPLEMENT.format(A, "passes false → true")),
        ("implement", (story(),), (approved(count=0),), NO_IMPLEMENT.format(A, 'reviewStatus null → "approved"')),
        ("implement", (story(),), (story(reviewCount=1),), NO_IMPLEMENT.format(A, "reviewCount 0 → 1")),
        ("implement", (story(),), (story(), approved(B)), "New stories start incomplete"),
        ("implement", (story(), story(B)), (story(),), f"Story {B} is gone."),
        ("review", (submitted(count=1),), (approved(count=2),), ""),
        ("review", (submitted(count=1),), (requested(count=2),), ""),
        ("review", (submitted(),), (approved(count=0),), NO_REVIEW.format(A, UNCOUNTED)),
        ("review", (submitted(),), (submitted(),), "review must increment reviewCount"),
        (
            "review",
            (submitted(A), submitted(B)),
            (approved(A), approved(B)),
            NO_REVIEW.format(B, "review may only modify one story"),
        ),
        (
            "review",
            (submitted(),),
            (approved(reviewFeedback=f"{APPROVED_AT_CAP} slow"),),
            NO_REVIEW.format(A, f"{APPROVED_AT_CAP} is claimed at reviewCount 1, below the review cap of 5"),
        ),
        ("review-fix", (requested(),), (submitted(count=1),), ""),
        ("review-fix", (requested(),), (approved(),), NO_FIX.format(A, "passes false → true")),
        ("review-fix", (requested(),), (submitted(count=2),), NO_FIX.format(A, "reviewCount 1 → 2")),
    ],
)  # fmt: skip
def test_a_turn_does_what_its_mode_is_for(
    session: Session, mode: str, before: tuple[Story, ...], now: tuple[Story, ...], reason: str
) -> None:
    session.mark(*before, mode=mode)
    session.write(*now)
    answer = session.stops()
    assert reason in answer.reason
    assert bool(reason) == bool(answer.reason), answer.reason
    assert answer.err == ""


@pytest.mark.parametrize("way", [module, verb])
@pytest.mark.parametrize("agent", [CLAUDE, CODEX])
def test_what_real_programs_say_is_understood_however_the_hook_is_called(
    session: Session, agent: str, way: Any
) -> None:
    session.mark(story())
    session.write(approved())
    for again in (False, True):
        reason = session.call(way("stop"), session.stop(again, agent)).reason
        assert reason.startswith(NO_IMPLEMENT.format(A, "passes false → true"))
    session.write(submitted())
    answer = session.call(way("stop"), session.stop(agent=agent))
    assert (answer.code, answer.out, answer.err) == (0, "", "")


def test_in_a_run_with_hooks_of_its_own_those_of_a_plugin_are_silent(session: Session) -> None:
    session.mark(story())
    session.write(approved())
    assert session.call(verb("stop"), session.stop(), {"RALPH_HOOKED": "1"}).out == ""
    assert session.stops(env={"RALPH_HOOKED": "1"}).reason != ""


# What the run adds to that


def test_a_turn_is_on_the_story_that_the_run_chose(session: Session) -> None:
    session.mark(story(), story(B), story="US-002")
    session.write(submitted(), story(B))
    assert session.stops().reason == f"This iteration's story is {B}; story {A} may not be submitted in it."


def test_what_the_work_is_held_against_stays(session: Session) -> None:
    session.mark(story(), story(B), pinned=document(story(), story(B, dependsOn=[A])))
    session.write(submitted(acceptanceCriteria=["whatever"]), story(B), verifyCommands=[])
    assert session.stops().reason.splitlines() == [
        "verifyCommands may not be changed during a loop: they say when the work is done.",
        f"Story {A}: acceptance criteria may be added, never changed or removed.",
        f"Story {B}: dependsOn may grow, nothing may be taken from it.",
    ]


def test_the_stories_lie_where_the_marker_says(session: Session) -> None:
    session.mark(story(), ralphDir="work/stories")
    session.write(story())
    assert session.stops().reason.startswith("work/stories/tasks.json: it cannot be read")
    (session.root / "work").mkdir()
    (session.root / "ralph").rename(session.root / "work" / "stories")
    assert session.stops().reason == ""


@pytest.mark.parametrize(
    ("stories", "top", "reason"),
    [
        ((story(passes=True, notes="n"), story(B)), {}, ""),
        ((approved(count=9), story(B)), {}, f"Nobody reviews in this loop. Story {A}: reviewCount 0 → 9."),
        ((story(passes=True), story(B)), {}, "passes is true but notes is empty"),
        ((story(passes=True, notes="n"),), {}, f"Story {B} is gone."),
        ((story(**DONE), story(B), story(C, **DONE)), {}, "New stories start incomplete"),
        ((story(**DONE), story(B, **DONE)), {}, f"story {B} may not be finished in it."),
        ((story(), story(B)), {"verifyCommands": []}, "verifyCommands may not be changed"),
    ],
)  # fmt: skip
def test_without_reviews_the_schema_and_what_must_stay_hold(
    session: Session, stories: tuple[Story, ...], top: dict[str, Any], reason: str
) -> None:
    """HK-12: a story passes by its agent's word then."""
    before = (story(), story(B))
    session.mark(*before, skipReview=True, story=A, pinned=document(*before))
    session.write(*stories, **top)
    found = session.stops().reason
    assert reason in found
    assert bool(reason) == bool(found)


@pytest.mark.parametrize("one", [story(**DONE), approved(count=9), story(reviewStatus="approved")])
def test_without_reviews_the_rules_of_reviews_do_not_hold(session: Session, one: Story) -> None:
    """HK-12: another tool's marker names no story, and leaves it at that."""
    session.mark(story(), skipReview=True)
    session.write(one)
    assert session.stops().reason == ""


def test_without_reviews_uncommitted_work_is_refused(session: Session) -> None:
    """HK-12."""
    session.mark(skipReview=True)
    session.write(story())
    session.commit()
    session.write(story(passes=True, notes="n"))
    assert session.stops().reason.startswith("Uncommitted changes: ralph/tasks.json.")


# Whose session it is


@pytest.mark.parametrize(
    ("run", "environment", "asked"),
    [
        ("r1", {}, False),  # somebody's own session beside the loop
        ("r1", {"RALPH_RUN_ID": "r2"}, False),
        ("r1", RUN, True),
        (None, {}, True),  # another tool's marker
        (None, {"RALPH_RUN_ID": "r2"}, True),
        (7, {"RALPH_RUN_ID": "7"}, False),
    ],
)
def test_only_sessions_of_the_run_are_held_to_its_rules(
    session: Session, run: Any, environment: dict[str, str], asked: bool
) -> None:
    """HK-03."""
    session.mark(story(), run=run)
    session.write(approved())
    answer = session.stops(env=environment)
    assert bool(answer.reason) is asked
    assert answer.err == ""


def over() -> int:
    """The number of a process that is over."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    "fields",
    [
        lambda: {"pid": over()},
        lambda: {"pidStart": "1"},
        *({"pid": bad}.copy for bad in (0, -1, None, "1", True, 10**30)),
    ],
)
def test_a_marker_without_a_living_loop_orders_nothing(session: Session, fields: Callable[[], dict[str, Any]]) -> None:
    """HK-04. A number is given out again: the time of the process's start tells whose it is."""
    session.mark(story(), **fields())
    session.write(approved())
    answer = session.stops()
    assert answer.out == ""
    assert answer.err == "ralph hook: .ralph-active was left by a loop that is over; nothing is checked\n"


def test_a_turn_that_outlives_its_loop_is_held_to_its_rules(session: Session) -> None:
    session.mark(story(), run="r1", pid=over())
    session.write(approved())
    assert session.stops(env=RUN).reason != ""


def test_a_living_loop_is_known_by_its_start(session: Session) -> None:
    start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    session.mark(story(), pidStart=start)
    session.write(approved())
    assert session.stops().reason != ""


@pytest.mark.parametrize("here", ["src/deep", "."])
@pytest.mark.parametrize("git", [True, False])
def test_the_project_is_found_from_inside_it(session: Session, here: str, git: bool) -> None:
    session.mark(story())
    session.write(approved())
    if git:
        session.commit()
    inside = session.root / here
    inside.mkdir(parents=True, exist_ok=True)
    event = session.stop(cwd=str(inside))
    assert session.call(module("stop"), event, cwd=inside).reason != ""
    del event["cwd"]
    assert session.call(module("stop"), event, cwd=inside).reason != ""
    assert session.call(module("stop"), event, {"CLAUDE_PROJECT_DIR": str(inside)}, Path("/")).reason != ""


def test_a_repository_inside_the_project_is_another_project(session: Session) -> None:
    session.mark(story())
    session.write(approved())
    inner = session.root / "vendor"
    inner.mkdir()
    session.git("init", "-q", cwd=inner)
    assert session.call(module("stop"), session.stop(cwd=str(inner)), cwd=inner).out == ""
    assert session.call(module("stop"), session.stop(cwd=str(inner)), {"CLAUDE_PROJECT_DIR": str(session.root)}).out


def test_a_worktree_is_a_project_like_any_other(session: Session, tmp_path: Path) -> None:
    session.mark(story())
    session.write(story())
    session.commit()
    other = tmp_path / "other"
    session.git("worktree", "add", "-q", str(other), "-b", "other")
    (other / ".ralph-active").write_bytes(session.marker.read_bytes())
    event = session.stop(cwd=str(other))
    assert session.call(module("stop"), event, cwd=other).reason == ""
    (other / "new.txt").write_text("x")
    assert session.call(module("stop"), event, cwd=other).reason.startswith("Uncommitted changes: new.txt.")
    assert session.stops().reason == ""


@pytest.mark.parametrize("cwd", ["gone", "relative", "\ud800", "x" * 5000, 7])
def test_a_place_that_is_none_does_no_harm(session: Session, cwd: Any, tmp_path: Path) -> None:
    session.mark(story())
    session.write(approved())
    removed = tmp_path / "removed"
    removed.mkdir()
    script = f'cd {removed} && rmdir {removed} && exec "$@"'
    argv = ["sh", "-c", script, "sh", *module("stop")]
    answer = session.call(argv, session.stop(cwd=str(removed) if cwd == "gone" else cwd))
    assert (answer.code, answer.out) == (0, "")


# Check 3


def test_uncommitted_changes_are_refused_with_what_to_do(session: Session) -> None:
    session.mark(story())
    session.write(story())
    session.commit()
    assert session.stops().reason == ""
    (session.root / "new.py").write_text("x")
    session.write(submitted())
    assert session.stops().reason == (
        "Uncommitted changes: ralph/tasks.json, new.py. Before you stop: (1) update ralph/progress.txt with what was "
        "accomplished and what was learned, (2) consider whether a lasting pattern belongs in CLAUDE.md or "
        ".claude/rules/, (3) commit ALL changes, progress.txt and tasks.json included."
    )


def test_everything_that_is_wrong_is_told_at_once(session: Session) -> None:
    session.mark(story())
    session.write(story())
    session.commit()
    session.write(approved())
    assert [line.partition(" ")[0] for line in session.stops().reason.splitlines()] == [
        "Implement", "Implement", "Implement", "Uncommitted",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "fields", "named"),
    [
        ({".ralph-active.txt": "x", ".ralph/runs/1/log": "x"}, {}, ".ralph-active.txt"),
        ({"mine.txt": "x", "its.txt": "x"}, {"dirtyBefore": ["mine.txt"]}, "its.txt"),
        ({"its.txt": "x"}, {"commits": False}, None),
        ({"a\nb\x1b[31m.txt": "x"}, {}, r"a\nb\x1b[31m.txt"),
        ({f"f{n:02d}": "x" for n in range(23)}, {}, ", ".join(f"f{n:02d}" for n in range(20)) + " and 3 more"),
    ],
)  # fmt: skip
def test_only_what_the_run_changed_is_to_be_committed(
    session: Session, files: dict[str, str], fields: dict[str, Any], named: str | None
) -> None:
    session.mark(story(), **fields)
    session.write(story())
    session.commit()
    for name, content in files.items():
        (session.root / name).parent.mkdir(parents=True, exist_ok=True)
        (session.root / name).write_text(content)
    reason = session.stops().reason
    assert reason.startswith(f"Uncommitted changes: {named}. ") if named else reason == ""


def test_a_name_that_is_no_text_is_known_by_its_bytes(session: Session) -> None:
    session.mark(story(), dirtyBefore=["caf\\xe9"])
    session.write(story())
    session.commit()
    for name in (b"caf\xe9", b"th\xe9"):
        Path(os.fsdecode(os.fsencode(session.root) + b"/" + name)).write_text("x")
    assert session.stops().reason.startswith(r"Uncommitted changes: th\xe9. ")


def test_nothing_leads_git_astray_and_nothing_in_the_repository_is_run(session: Session, tmp_path: Path) -> None:
    session.mark(story())
    session.write(story())
    session.commit()
    canary = tmp_path / "canary"
    session.git("config", "core.fsmonitor", f"touch {canary}; false")
    session.git("config", "status.showUntrackedFiles", "no")
    (session.root / "new.py").write_text("x")
    answer = session.stops(env={"GIT_DIR": str(tmp_path), "GIT_INDEX_FILE": "/nonexistent", "GIT_WORK_TREE": "/"})
    assert answer.reason.startswith("Uncommitted changes: new.py.")
    assert not canary.exists()


@pytest.mark.parametrize("broken", ["repository", "program"])
def test_where_git_cannot_tell_the_loop_looks_again(session: Session, broken: str) -> None:
    session.mark(story())
    session.write(story())
    (session.root / ".git").mkdir()
    answer = session.stops(env={"PATH": "/nonexistent"} if broken == "program" else {})
    assert answer.reason == ""
    assert answer.err == "ralph hook: git status failed; the loop checks for uncommitted files again\n"
