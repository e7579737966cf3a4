"""Agents that lie in the file of their stories: what they may not write is put back, told, and never counts."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ralphproof.stories.review import APPROVED_AT_CAP, MODE_INSTRUCTIONS
from ralphproof.stories.schema import FIX, IMPLEMENT, REVIEW
from ralphproof.stories.workflow import INSTRUCTION_WITHOUT_REVIEW
from tests.misbehaviour.agents import case, prompt
from tests.misbehaviour.crashing import ended_alone
from tests.misbehaviour.invariants import hold, no_traceback
from tests.misbehaviour.protected_project import files, sh, touched
from tests.misbehaviour.stories import (
    BLANK,
    FIND,
    MARKER,
    NEEDS,
    PRD,
    PROGRESS,
    REQUESTED,
    TASKS,
    US1,
    US2,
    US3,
    VERIFY,
    Story,
    approved,
    course,
    fields,
    found,
    illegal,
    known,
    lay,
    loop,
    requested,
    story,
    subjects,
    submitted,
    text,
    told,
    turn,
)
from tests.misbehaviour.test_crashes import ABOVE_KEEPER
from tests.ralph import Ended, Ralph, Step, say, write

THOROUGHLY = pytest.param((approved(),), id="RH-09-again", marks=pytest.mark.thorough)
Lies = dict[str, tuple[Step, str]]  # what an agent does to the file, and what the rule says that forbids it
TAG = "All is done.\n<promise>COMPLETE</promise>"


def says(*stories: Story, **top: Any) -> Step:
    """A step: write these stories."""
    return {"write": {TASKS: text(*stories, **top)}}


def raw(content: str) -> Step:
    return {"write": {TASKS: content}}


def patient(ralph: Ralph) -> None:
    """Nobody minds turns that change nothing, or break the same rule again and again."""
    ralph.settings(limits={"stallIterations": None, "sameErrorIterations": None})


def lied(ralph: Ralph, mode: str, lies: Lies, *flags: str, how: str = "") -> Ended:
    """A run in which every turn tells another lie and says that all is done: each is put back and told to the next."""
    patient(ralph)
    before = known(ralph)
    turns = [[FIND, lie, say(TAG)] for lie, _ in lies.values()]
    ended = loop(ralph, *turns, flags=("-m", str(len(lies)), *flags))
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS"), ended
    assert [one[1:] for one in course(ralph)] == [(mode, "Retry")] * len(lies)
    for number, ((name, (_, rule)), (*broken, way)) in enumerate(zip(lies.items(), illegal(ralph), strict=True), 1):
        assert any(rule in one for one in broken), (name, broken)
        assert way == (how or MODE_INSTRUCTIONS[mode]), name
        last = number == len(lies)
        assert (known(ralph) if last else found(ralph, number + 1)) == before, name
        assert last or all(f"\n- {one}" in prompt(ralph, number + 1) for one in (*broken, way)), name
    return ended


OPEN, WAITS, PAST = story(), story(US2, dependsOn=[US1]), approved(US3)
HONEST = submitted()
TYPES: dict[str, tuple[str, Any, str]] = {
    "RH-19 passes": ("passes", "true", 'passes is "true", and must be true or false'),
    "RH-19 one": ("passes", 1, "passes is 1, and must be"),
    "RH-19 null": ("passes", None, "passes is null, and must be"),
    "RH-19 float": ("reviewCount", 0.0, "reviewCount is 0.0, and must be a non-negative integer"),
    "RH-19 bool": ("reviewCount", False, "reviewCount is false, and must be"),
    "RH-19 text": ("reviewCount", "0", 'reviewCount is "0", and must be'),
    "RH-19 negative": ("reviewCount", -1, "reviewCount is -1, and must be"),
    "RH-19 blank": ("reviewStatus", "needs_review ", 'reviewStatus is "needs_review ", and must be null,'),
    "RH-19 case": ("reviewStatus", "Approved", 'reviewStatus is "Approved", and must be null,'),
    "RH-19 list": ("reviewStatus", ["approved"], 'reviewStatus is ["approved"], and must be null,'),
    "RH-19 priority": ("priority", "1", 'priority is "1", and must be a number'),
    "RH-19 title": ("title", None, "title is null, and must be a string"),
    "RH-17 no criterion": ("acceptanceCriteria", [], "acceptanceCriteria is [], and must be a non-empty array"),
    "RH-17 blank criterion": ("acceptanceCriteria", [" "], "acceptanceCriteria is"),
    "RH-17 other criterion": ("acceptanceCriteria", ["it exists"], "acceptance criteria may be added, never changed"),
    "depends on nobody": ("dependsOn", ["US-404"], 'dependsOn names "US-404", which is no story'),
}
NOT_IN_IMPLEMENT = "Implement iterations cannot set passes=true or approve stories."
IMPLEMENTING: Lies = {
    "RH-08": (says(story(passes=True, notes="n"), WAITS, PAST), "US-001 had illegal transition: passes false → true."),
    "RH-08 another": (
        says(OPEN, {**WAITS, "passes": True, "notes": "n"}, PAST),
        "US-002 had illegal transition: passes",
    ),
    "RH-09": (says(approved(), WAITS, PAST), 'illegal transition: reviewStatus null → "approved".'),
    "RH-09 uncounted": (says(approved(count=0), WAITS, PAST), NOT_IN_IMPLEMENT),
    "counted": (says(submitted(count=1), WAITS, PAST), "illegal transition: reviewCount 0 → 1."),
    "sent back": (says(requested(count=0), WAITS, PAST), 'reviewStatus null → "changes_requested".'),
    "another": (
        says(OPEN, submitted(US2, dependsOn=[US1]), PAST),
        "story is US-001; story US-002 may not be submitted",
    ),
    "two": (says(HONEST, submitted(US2, dependsOn=[US1]), PAST), "may submit one story only, and US-001, US-002"),
    "reopened": (says(HONEST, WAITS, story(US3)), 'US-003 had illegal transition: reviewStatus "approved" → null.'),
    "RH-13 passes": (
        says(HONEST, WAITS, PAST, story("N", passes=True, notes="n")),
        "Story N is new and starts with passes",
    ),
    "RH-13 approved": (says(HONEST, WAITS, PAST, approved("N")), 'passes true, reviewStatus "approved", reviewCount 1'),
    "RH-13 counted": (
        says(HONEST, WAITS, PAST, story("N", reviewCount=3)),
        "Story N is new and starts with reviewCount 3",
    ),
    "deleted": (says(HONEST, PAST), "Story US-002 is gone."),
    "renamed": (says(HONEST, story("US-02", dependsOn=[US1]), PAST), "Story US-002 is gone."),
    "all deleted": (says(), "Story US-001 is gone."),
    "doubled": (says(HONEST, WAITS, WAITS, PAST), 'the id "US-002" is used by more than one story'),
    "doubled key": (
        raw(text(HONEST, WAITS, PAST).replace('"passes": false', '"passes": true, "passes": false', 1)),
        "the key passes is given twice",
    ),
    "RH-17 order": (says(HONEST, story(US2), PAST), "Story US-002: dependsOn may grow, nothing may be taken from it."),
    "a circle": (says(story(dependsOn=[US2]), WAITS, PAST), "dependsOn goes round in a circle"),
    "RH-17 none": (says(HONEST, WAITS, PAST, verifyCommands=[]), "verifyCommands may not be changed during a loop"),
    "RH-17 weak": (says(HONEST, WAITS, PAST, verifyCommands=["true"]), "verifyCommands may not be changed"),
    "RH-17 more": (says(HONEST, WAITS, PAST, verifyCommands=[VERIFY, "true"]), "verifyCommands may not be changed"),
    "RH-17 no list": (says(HONEST, WAITS, PAST, verifyCommands=None), "verifyCommands must be an array"),
    "no notes": (says(HONEST, WAITS, {**PAST, "notes": ""}), "passes is true but notes is empty"),
    **{name: (says(story(**{field: given}), WAITS, PAST), rule) for name, (field, given, rule) in TYPES.items()},
}


def test_whatever_a_turn_that_implements_may_not_write_is_put_back_and_told(ralph: Ralph) -> None:
    """RH-08, RH-09, RH-13, RH-17, RH-19: no state that looks right at the end excuses the way there."""
    ralph.write({"done": ""})
    lay(ralph, OPEN, WAITS, PAST)
    lied(ralph, IMPLEMENT, IMPLEMENTING)


UNREAD = "there is no such file, or it cannot be read"
SPOILED: Lies = {
    "half": (raw(text(HONEST)[:99]), "it is not valid JSON: "),
    "empty": (raw(""), "it is not valid JSON: "),
    "no object": (raw("[]\n"), "it is no JSON object"),
    "no number": (raw(text(HONEST).replace('"priority": 1', '"priority": NaN')), "NaN"),
    "endless": (raw(text(HONEST).replace('"priority": 1', '"priority": 1e999')), "a number that cannot be read: 1e999"),
    "deep": (sh("head -c 100000 /dev/zero | tr '\\0' '[' > ralph/tasks.json"), "it is nested too deeply"),
    "other letters": (sh("printf '\\377\\376{' > ralph/tasks.json"), "it is not UTF-8 text"),
    "huge": (sh("head -c 20000000 /dev/zero >> ralph/tasks.json"), "it is larger than 16 MiB"),
    "deleted": ({"delete": [TASKS]}, UNREAD),
    "link": (sh("mv ralph/tasks.json ../mine.json; ln -s ../../mine.json ralph/tasks.json"), UNREAD),
    "loop of links": (sh("ln -sf tasks.json ralph/tasks.json"), UNREAD),
    "pipe": (sh("rm ralph/tasks.json; mkfifo ralph/tasks.json"), UNREAD),
    "folder": (sh("rm ralph/tasks.json; mkdir -p ralph/tasks.json/x"), UNREAD),
    "folder gone": (sh("mv ralph ../ralph.$RALPH_ITERATION"), UNREAD),
    "folder a file": (sh("rm -r ralph; echo > ralph"), UNREAD),
    "folder a link": (sh("mv ralph ../elsewhere; ln -s ../elsewhere ralph; echo mine > ralph/tasks.json"), UNREAD),
}


SWEPT = {name: lie for name, lie in SPOILED.items() if name.startswith("folder ")}


def test_a_folder_of_stories_alone_comes_back_and_nothing_is_written_through_a_link(ralph: Ralph) -> None:
    """RH-17, RH-35: also where no other file of ours lies in it."""
    ralph.write({"done": ""})
    lay(ralph, OPEN)
    ralph.git("rm", "-q", PRD)
    ralph.commit()
    lied(ralph, IMPLEMENT, SWEPT)
    assert (ralph.folder / "elsewhere/tasks.json").read_text() == "mine\n"
    assert not (ralph.root / "ralph").is_symlink()


@pytest.mark.parametrize("in_git", [True, pytest.param(False, marks=pytest.mark.thorough)], ids=["git", "plain"])
def test_a_file_that_cannot_be_read_is_put_back_from_memory(ralph: Ralph, in_git: bool) -> None:
    """RH-17, RH-35: whatever stands in its place, the last good copy comes back as a file."""
    ralph.write({"done": ""})
    lay(ralph, OPEN, in_git=in_git)
    lied(ralph, IMPLEMENT, SPOILED)
    assert not (ralph.root / "ralph").is_symlink()
    assert (ralph.root / TASKS).is_file()
    assert not (ralph.root / TASKS).is_symlink()


NOT_IN_REVIEW = "Review iteration made illegal transition on story "
LAST = submitted(count=1)  # it has been reviewed before
NEXT, LATER = submitted(US2), story(US3)
REVIEWING: Lies = {
    "RH-10": (
        says(approved(count=2), approved(US2), LATER),
        f"{NOT_IN_REVIEW}US-002: review may only modify one story.",
    ),
    "RH-10 sent back": (says(approved(count=2), requested(US2), LATER), "US-002: review may only modify one story."),
    "RH-10 submitted": (says(approved(count=2), NEXT, submitted(US3)), "US-003: review may only modify one story."),
    "another": (says(LAST, approved(US2), LATER), f"{NOT_IN_REVIEW}US-002: this review is of story US-001."),
    "RH-11 unchanged": (
        says(approved(count=1), NEXT, LATER),
        "US-001: review must increment reviewCount, and it is unch",
    ),
    "RH-11 two": (says(approved(count=3), NEXT, LATER), "reviewCount must grow by exactly 1, and went 1 → 3."),
    "RH-11 down": (says(approved(count=0), NEXT, LATER), "reviewCount must grow by exactly 1, and went 1 → 0."),
    "RH-11 sent back": (says(requested(count=3), NEXT, LATER), "reviewCount must grow by exactly 1, and went 1 → 3."),
    "no verdict": (
        says(submitted(count=2), NEXT, LATER),
        "a review sets reviewStatus to approved or changes_requested",
    ),
    "nothing": (sh("true"), "review must increment reviewCount by 1, and approve or request changes."),
    "not implemented": (
        says(story(reviewCount=2, notes="n"), NEXT, LATER),
        "from needs_review to approved or changes_req",
    ),
    "approved only": (says(approved(count=2, passes=False), NEXT, LATER), "an approved story has passes=true."),
    "passes only": (says(submitted(count=2, passes=True), NEXT, LATER), "a review sets reviewStatus to approved or"),
    "passes, sent back": (says(requested(count=2, passes=True), NEXT, LATER), "only an approved story passes"),
    "no feedback": (says(requested(count=2, feedback=" "), NEXT, LATER), "feedback required"),
    "RH-13": (says(approved(count=2), NEXT, LATER, approved("N")), "Story N is new and starts with passes true"),
    "RH-17": (says(approved(count=2), NEXT, LATER, verifyCommands=["true"]), "verifyCommands may not be changed"),
    "RH-19": (
        says(approved(count=2, reviewStatus="Approved "), NEXT, LATER),
        'reviewStatus is "Approved ", and must be',
    ),
    "RH-20": (
        says(approved(count=2, reviewFeedback=f"{APPROVED_AT_CAP} it will do"), NEXT, LATER),
        f"{APPROVED_AT_CAP} is claimed at reviewCount 2, below the review cap of 5.",
    ),
}


def test_whatever_a_turn_that_reviews_may_not_write_is_put_back_and_told(ralph: Ralph) -> None:
    """RH-10, RH-11, RH-13, RH-17, RH-19, RH-20: nor is anything approved by it, though all checks are green."""
    ralph.write({"done": ""})
    lay(ralph, LAST, NEXT, LATER)
    lied(ralph, REVIEW, REVIEWING)
    assert subjects(ralph) == []


NOT_IN_FIX = "Review-fix iterations cannot approve stories. Story US-001 must go back to needs_review for re-review."
BAD, WORSE = requested(), requested(US2, count=2)
FIXING: Lies = {
    "RH-09": (
        says(approved(), WORSE),
        f'{NOT_IN_FIX} Illegal transition: reviewStatus "changes_requested" → "approved".',
    ),
    "RH-08": (says(requested(passes=True), WORSE), f"{NOT_IN_FIX} Illegal transition: passes false → true."),
    "RH-11 counted": (says(submitted(count=2), WORSE), f"{NOT_IN_FIX} Illegal transition: reviewCount 1 → 2."),
    "RH-11 forgotten": (says(submitted(count=0), WORSE), f"{NOT_IN_FIX} Illegal transition: reviewCount 1 → 0."),
    "begun anew": (says(story(reviewCount=1), WORSE), 'reviewStatus "changes_requested" → null.'),
    "another": (
        says(BAD, submitted(US2, count=2)),
        "This iteration's story is US-001; story US-002 may not be submitted",
    ),
    "two": (
        says(submitted(count=1), submitted(US2, count=2)),
        "may submit one story only, and US-001, US-002 changed.",
    ),
    "no word of it": (says(BAD, {**WORSE, "reviewFeedback": ""}), "feedback required"),
    "other words": (says(BAD, {**WORSE, "reviewFeedback": "fine"}), "what its review wrote in reviewFeedback"),
    "RH-13": (says(submitted(count=1), WORSE, approved("N")), "Story N is new and starts with passes true"),
}


def test_whatever_a_turn_that_fixes_may_not_write_is_put_back_and_told(ralph: Ralph) -> None:
    """RH-08, RH-09, RH-11, RH-13"""
    ralph.write({"done": ""})
    lay(ralph, BAD, WORSE)
    lied(ralph, FIX, FIXING)


WITHOUT_REVIEW: Lies = {
    "another": (
        says(OPEN, story(US2, passes=True, notes="n")),
        "story is US-001; story US-002 may not be finished in it.",
    ),
    "both": (
        says(story(passes=True, notes="n"), story(US2, passes=True, notes="n")),
        "story US-002 may not be finished",
    ),
    "no notes": (says(story(passes=True), story(US2)), "passes is true but notes is empty"),
    "deleted": (says(story(passes=True, notes="n")), "Story US-002 is gone."),
    "RH-13": (
        says(OPEN, story(US2), story("N", passes=True, notes="n")),
        "Story N is new and starts with passes true.",
    ),
    "RH-17": (says(story(passes=True, notes="n"), story(US2), verifyCommands=[]), "verifyCommands may not be changed"),
    "RH-19": (says(story(passes=1, notes="n"), story(US2)), "passes is 1, and must be true or false"),
}


def test_without_reviews_a_turn_may_finish_its_own_story_and_nothing_else(ralph: Ralph) -> None:
    """RH-13, RH-17, RH-19"""
    ralph.write({"done": ""})
    lay(ralph, OPEN, story(US2))
    lied(ralph, IMPLEMENT, WITHOUT_REVIEW, "--skip-review", how=INSTRUCTION_WITHOUT_REVIEW)


@pytest.mark.parametrize(
    "lie", [case("RH-08", story(passes=True, notes="n")), case("RH-09", approved())]
)  # fmt: skip
def test_after_a_lie_the_same_iteration_is_done_again_by_the_rules(ralph: Ralph, lie: Story) -> None:
    """RH-08, RH-09: its work stays, its word does not; completion comes by a review alone."""
    top: dict[str, Any] = {"verifyCommands": ["cat ralph/tasks.json >> ../seen; test -f done"]}
    lay(ralph, story(), **top)
    ended = loop(
        ralph, turn(lie, says=TAG, done="", top=top), turn(submitted(), top=top), turn(approved(), top=top)
    )  # fmt: skip
    assert ended.code == 0, ended
    assert course(ralph) == [(US1, IMPLEMENT, "Retry"), (US1, IMPLEMENT, "Passed"), (US1, REVIEW, "Passed")]
    assert [fields(found(ralph, number)[US1]) for number in (1, 2, 3)] == [BLANK, BLANK, (False, NEEDS, 0)]
    again = prompt(ralph, 2)
    assert "The rules of the plan were not kept; what you wrote in it was put back. Do it as they allow:" in again
    assert "Story US-001 had illegal transition: " in again
    assert MODE_INSTRUCTIONS[IMPLEMENT] in again
    assert "rules of the plan" not in prompt(ralph, 1) + prompt(ralph, 3)
    assert "illegal transition" in ended.err, "the user is told too"
    assert ralph.outcome()["iterations"] == 3
    assert (ralph.folder / "seen").read_text().count('"passes": true') == 1, "no check sees a lie"


# Reviews that do more than look

CODE = {"src/a.py": "a = 1\n", "src/b.py": "b = 1\n"}
MEMORIES = ("CLAUDE.md", "src/CLAUDE.md", "AGENTS.md", ".claude/rules/style.md", PROGRESS)
STRAYS = {
    "edits": (sh("echo 'a = 2' > src/a.py"), "src/a.py"),
    "adds": (sh("echo 'c = 1' > src/c.py; mkdir -p new/deep; echo > new/deep/d"), "new/deep/d, src/c.py"),
    "deletes": (sh("rm src/b.py"), "src/b.py"),
    "moves": (sh("mv src/a.py src/c.py"), "src/a.py, src/c.py"),
    "makes executable": (sh("chmod +x src/a.py"), "src/a.py"),
    "links": (sh("ln -sf /etc/passwd src/b.py"), "src/b.py"),
    "edits beside the stories": (sh("echo > ralph/plan.md"), "ralph/plan.md"),
    "stages": (sh("echo 'a = 3' > src/a.py; git add -A"), "src/a.py"),
}


def test_a_review_that_changes_code_is_no_review(ralph: Ralph) -> None:
    """RH-12: what it changed is put back and named, its verdict is not accepted, and an honest one is."""
    ralph.write({"done": "", **CODE})
    lay(ralph, submitted())
    patient(ralph)
    before = files(ralph, "src", "ralph", "new")
    learned: Step = {"append": dict.fromkeys(MEMORIES, "learned\n")}
    leaves: Step = {"write": {"src/__pycache__/a.pyc": "compiled"}}
    steps = [[FIND, step, leaves, says(approved()), say(TAG)] for step, _ in STRAYS.values()]
    honest = [sh("ls -R src new ralph > ../left 2>&1 || true"), learned, leaves, says(approved()), say(TAG)]
    ended = loop(ralph, *steps, honest)
    assert ended.code == 0, ended
    rules = [
        f"Review iterations do not fix code, and yet these files changed: {paths}." for _, paths in STRAYS.values()
    ]
    assert illegal(ralph) == [*((rule, MODE_INSTRUCTIONS[REVIEW]) for rule in rules), ()]
    assert all(rule in prompt(ralph, number) for number, rule in enumerate(rules, 2))
    assert course(ralph) == [*[(US1, REVIEW, "Retry")] * len(STRAYS), (US1, REVIEW, "Passed")]
    assert ralph.outcome()["iterations"] == len(STRAYS) + 1
    left = files(ralph, "src", "ralph", "new")
    assert {path: left[path] for path in left if path not in (*MEMORIES, TASKS, "src/__pycache__/a.pyc")} == {
        path: content for path, content in before.items() if path not in (TASKS, PROGRESS)
    }
    assert not (ralph.root / "src/a.py").stat().st_mode & 0o111
    assert all((ralph.root / path).read_text().endswith("learned\n") for path in MEMORIES), "these are its to write"
    assert subjects(ralph) == ["review: [US-001] - work in progress", "review: [US-001] - approved"], (
        "a tag is no verdict"
    )


def test_what_a_review_changed_can_be_had_from_its_saved_work(ralph: Ralph) -> None:
    """RH-12: nothing is lost by being put back."""
    ralph.write({"done": "", **CODE})
    lay(ralph, submitted())
    ended = loop(ralph, turn(approved(), **{"src/a__py": "a = 2\n"}), turn(approved()))
    assert ended.code == 0, ended
    assert ralph.git("show", f"refs/ralph/{ralph.runs()[0].id}/1:src/a.py") == "a = 2\n"
    assert (ralph.root / "src/a.py").read_text() == "a = 1\n"


def test_a_review_that_commits_code_is_no_review(ralph: Ralph) -> None:
    """RH-12: the commit stays, as history does; the tree is what it was, and so is the next commit."""
    ralph.write({"done": "", **CODE})
    lay(ralph, submitted())
    commits = sh("echo 'a = 2' > src/a.py; git add -A; git commit -qm sly")
    ended = loop(ralph, [FIND, says(approved()), commits, say(TAG)], turn(approved()))
    assert ended.code == 0, ended
    assert course(ralph) == [(US1, REVIEW, "Retry"), (US1, REVIEW, "Passed")]
    assert (ralph.root / "src/a.py").read_text() == ralph.git("show", "HEAD:src/a.py") == "a = 1\n"
    assert fields(found(ralph, 2)[US1]) == (False, NEEDS, 0)


# The marker, the PRD, the prompt

MARKED = {
    "RH-15 mode": sh('sed -i \'s/"iterationMode": "implement"/"iterationMode": "review"/\' .ralph-active'),
    "RH-15 skips": sh('sed -i \'s/"skipReview": false/"skipReview": true/\' .ralph-active'),
    "RH-15 cap": sh('sed -i \'s/"reviewCap": 5/"reviewCap": 0/\' .ralph-active'),
    "RH-15 snapshot": sh('sed -i \'s/"passes": false/"passes": true/\' .ralph-active'),
    "RH-15 other run": sh('sed -i \'s/"run": "[^"]*"/"run": "other"/\' .ralph-active'),
    "RH-15 half": sh("printf '{\"pid\": ' > .ralph-active"),
    "RH-15 gone": sh("rm .ralph-active"),
    "RH-15 link": sh("ln -sf /dev/null .ralph-active"),
    "RH-15 folder": sh("rm .ralph-active; mkdir .ralph-active"),
    "RH-15 pipe": sh("rm .ralph-active; mkfifo .ralph-active"),
}


def test_a_marker_that_an_agent_writes_or_deletes_changes_nothing(ralph: Ralph) -> None:
    """RH-15: the loop goes by what it remembers; that the marker was touched is told and makes the turn a retry."""
    lay(ralph, story())
    patient(ralph)
    marks = sh("cp .ralph-active ../marker-$RALPH_ITERATION")
    lies = [[marks, touch, says(approved()), write(done=""), say(TAG)] for touch in MARKED.values()]
    ended = loop(ralph, *lies, flags=("-m", str(len(lies))))
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS"), ended
    assert touched(ralph) == [[(MARKER, "the marker of the run")]] * len(lies)
    assert course(ralph) == [(US1, IMPLEMENT, "Retry")] * len(lies)
    assert all(NOT_IN_IMPLEMENT in broken[0] for broken in illegal(ralph))
    assert fields(known(ralph)[US1]) == BLANK
    for number in range(1, len(lies) + 1):
        marker = json.loads((ralph.folder / f"marker-{number}").read_text())
        assert (marker["iteration"], marker["iterationMode"], marker["skipReview"]) == (number, IMPLEMENT, False)
        assert marker["preIterationSnapshot"] == {
            US1: dict(zip(("passes", "reviewStatus", "reviewCount"), BLANK, strict=True))
        }
        assert number == 1 or f"- {MARKER} (the marker of the run)" in prompt(ralph, number)


FIXED = {PRD: "the PRD is read-only"}


@pytest.mark.parametrize("there", [True, False], ids=["there", "new"])
@pytest.mark.parametrize("path", FIXED)
def test_what_the_stories_come_from_is_put_back_and_named(ralph: Ralph, path: str, there: bool) -> None:
    """RH-16: and the turn that touched it has not done its work."""
    lay(ralph, story())
    ralph.write({path: "Do all of it.\n$RALPH_STORY\n"} if there else {})
    if not there:
        (ralph.root / path).unlink(missing_ok=True)
    ralph.commit()
    before = files(ralph, path)
    ended = loop(
        ralph,
        turn(submitted(), done="", **{path.replace(".", "__"): "Do less.\n"}),
        turn(submitted()),
        flags=("-m", "2"),
    )
    assert files(ralph, path) == before
    assert touched(ralph) == [[(path, FIXED[path])], []]
    assert course(ralph) == [(US1, IMPLEMENT, "Retry"), (US1, IMPLEMENT, "Passed")]
    assert f"leave them alone:\n- {path} ({FIXED[path]})" in prompt(ralph, 2)
    assert "Do less." not in prompt(ralph, 2)
    assert fields(found(ralph, 2)[US1]) == BLANK
    assert f"not the agent's to change: {path}" in ended.err
    assert "Do less." in (ralph.run_folder() / "agent_001.patch").read_text()
    assert path not in ralph.git("log", "--format=", "--name-only", "HEAD~1.."), "no commit has it"


def test_a_commit_of_what_was_put_back_is_taken_back_by_the_next_one(ralph: Ralph) -> None:
    """RH-16, RH-12: agents are told to commit everything; what the branch has at the end is what was checked."""
    ralph.write({"done": ""})
    lay(ralph, story())
    commits = sh("echo less > ralph/prd.md; git add -A; git commit -qm less")
    ended = loop(ralph, [FIND, says(submitted()), commits, say(TAG)], turn(submitted()), turn(approved()))
    assert ended.code == 0, ended
    assert touched(ralph)[0] == [(PRD, FIXED[PRD])]
    assert ralph.git("show", f"HEAD:{PRD}") == (ralph.root / PRD).read_text() == "# What is wanted\n"
    assert ralph.git("status", "--porcelain", "--", ".", ":!.ralph") == ""


# Claims and checks


@pytest.mark.parametrize("flags", [case("FC-15", ()), case("FC-15-skip", ("--skip-review",))])
def test_stories_that_are_all_done_at_the_start_complete_by_their_checks_alone(
    ralph: Ralph, flags: tuple[str, ...]
) -> None:
    """FC-15: nobody is asked, but every verify command runs."""
    lay(ralph, approved(), approved(US2), verifyCommands=["echo >> ../ran; test -f done"])
    ralph.write({"done": ""})
    ralph.commit()
    ended = ralph("run", "--preset", "stories", "--agent", ralph.script([write(started="")]), *flags)
    no_traceback(ended)
    outcome = ralph.outcome()
    assert (ended.code, outcome["iterations"], outcome["proof"]) == (0, 0, "verified"), ended
    assert (ralph.folder / "ran").read_text() == "\n", "once"
    assert not (ralph.root / "started").exists()
    assert not (ralph.root / MARKER).exists()
    assert subjects(ralph) == ["a state of the project"]


def test_stories_that_are_all_done_and_red_open_the_last_one_again(ralph: Ralph) -> None:
    """FC-15: with what its checks say, which a fix and a review must answer."""
    lay(ralph, approved(), approved(US2), verifyCommands=["test -f done || (echo where is it; exit 3)"])
    ended = loop(
        ralph, turn(approved(), submitted(US2, count=1), done="", top={"verifyCommands": [RED]}),
        turn(approved(), approved(US2, count=2), top={"verifyCommands": [RED]}),
    )  # fmt: skip
    assert ended.code == 0, ended
    assert course(ralph) == [(US2, REVIEW, "SentBack"), (US2, FIX, "Passed"), (US2, REVIEW, "Passed")]
    again = found(ralph, 1)
    assert (fields(again[US1]), fields(again[US2])) == ((True, "approved", 1), (False, REQUESTED, 1))
    assert again[US2]["reviewFeedback"] == f"{RED} failed (exit code 3):\nwhere is it"
    assert "where is it" in prompt(ralph, 2)
    assert "the approval of story US-002 does not stand: the checks are red" in told(ralph)
    assert "while no agent was at work" not in told(ralph)
    assert ralph.outcome()["iterations"] == 2


RED = "test -f done || (echo where is it; exit 3)"


def test_an_approval_with_red_checks_is_a_request_for_changes(ralph: Ralph) -> None:
    """FC-15: with their output for whoever mends it; what the review said itself is kept too."""
    lay(ralph, submitted(), submitted(US2), verifyCommands=[RED])
    both = {"verifyCommands": [RED]}
    ended = loop(
        ralph, turn(approved(), submitted(US2), top=both, says=TAG),
        turn(submitted(count=1), submitted(US2), top=both),
        turn(submitted(count=1), submitted(US2), done="", top=both), flags=("-m", "3"),
    )  # fmt: skip
    assert ended.code == 1, ended
    assert course(ralph) == [(US1, REVIEW, "SentBack"), (US1, FIX, "Retry"), (US1, FIX, "Passed")]
    states = [fields(stories[US1]) for stories in (found(ralph, 2), found(ralph, 3), known(ralph))]
    assert states == [(False, REQUESTED, 1), (False, REQUESTED, 1), (False, NEEDS, 1)]
    feedback = f"{RED} failed (exit code 3):\nwhere is it"
    assert [found(ralph, number)[US1]["reviewFeedback"] for number in (2, 3)] == [feedback, feedback]
    assert "where is it" in prompt(ralph, 2)
    assert "its claim is refused" in ended.err


def test_a_check_that_writes_in_the_stories_gains_nothing(ralph: Ralph) -> None:
    """RH-08, RH-10, RH-17: it may be the agent's own test that does so, when no agent is at work any more."""
    lay(ralph, story(), story(US2), verifyCommands=["test ! -f sly || sh sly"])
    sly = f"cp {ralph.folder}/all-approved ralph/tasks.json"
    top: dict[str, Any] = {"verifyCommands": ["test ! -f sly || sh sly"]}
    (ralph.folder / "all-approved").write_text(text(approved(), approved(US2), **top))
    ended = loop(ralph, turn(submitted(), story(US2), sly=sly, top=top), turn(), flags=("-m", "2"))
    assert ended.code == 1, ended
    assert fields(found(ralph, 2)[US1]) == (False, NEEDS, 0)
    assert {name: fields(one) for name, one in known(ralph).items()} == {US1: (False, NEEDS, 0), US2: BLANK}
    assert "ralph/tasks.json was changed while no agent was at work, and was put back" in told(ralph)


def test_a_tag_alone_and_a_tag_with_a_submission_claim_nothing_more(ralph: Ralph) -> None:
    """FC-15, RH-08: completion is read from the stories, and stands only by their checks."""
    ralph.write({"done": ""})
    lay(ralph, story())
    ended = loop(ralph, turn(says=TAG), turn(submitted(), says=TAG), turn(says=TAG), flags=("-m", "3"))
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS"), ended
    assert course(ralph) == [(US1, IMPLEMENT, "Retry"), (US1, IMPLEMENT, "Passed"), (US1, REVIEW, "Retry")]
    assert "'COMPLETE'" in prompt(ralph, 2)
    assert 'reviewStatus "needs_review" of its story in tasks.json' in prompt(ralph, 2)
    assert fields(known(ralph)[US1]) == (False, NEEDS, 0)


# The cap


def test_concerns_at_the_cap_cannot_be_wiped_away_later(ralph: Ralph) -> None:
    """RH-20: neither by a later turn on another story nor by what its checks write."""
    top: dict[str, Any] = {"verifyCommands": ["test ! -f sly || sh sly"]}
    lay(ralph, submitted(), story(US2), **top)
    capped = approved(reviewFeedback=f"{APPROVED_AT_CAP} say it louder")
    (ralph.folder / "wiped").write_text(text(approved(), submitted(US2), **top))
    ended = loop(
        ralph, turn(requested(), story(US2), top=top), turn(approved(), submitted(US2), top=top),
        turn(capped, submitted(US2), sly="cp ../wiped ralph/tasks.json", top=top), turn(capped, approved(US2), top=top),
        flags=("--review-cap", "1"),
    )  # fmt: skip
    assert ended.code == 0, ended
    assert [one[2] for one in course(ralph)] == ["Passed", "Retry", "Passed", "Passed"]
    assert ralph.outcome()["concerns"] == [
        "story US-001 was approved at the review cap: say it louder",
        "sly: the script of the check was written during the run",
    ]
    assert known(ralph)[US1]["reviewFeedback"] == f"{APPROVED_AT_CAP} say it louder"


def test_a_review_that_approves_at_the_cap_as_the_harness_would_leaves_its_concerns(ralph: Ralph) -> None:
    """RH-20: the words are true then, and count as what they say."""
    ralph.write({"done": ""})
    lay(ralph, submitted(count=1))
    ended = loop(
        ralph, turn(approved(count=2, reviewFeedback=f"{APPROVED_AT_CAP} too quiet")), flags=("--review-cap", "2")
    )
    assert (ended.code, ralph.outcome()["concerns"]) == (0, ["story US-001 was approved at the review cap: too quiet"])


@pytest.mark.parametrize("second", [case("RH-09-silent", ()), THOROUGHLY])
def test_a_verdict_of_a_turn_that_was_cut_off_counts_with_the_iteration_only(
    ralph: Ralph, second: tuple[Story, ...]
) -> None:
    """RH-09, RH-11: several turns of an iteration may do together what one may, and stand only by green checks."""
    lay(ralph, submitted())
    later = json.dumps({"iterations": [turn(*second)]})
    cut_off: list[Step] = [
        *turn(approved())[:-1], write(**{"../script.json": later}),
        {"limited": {"message": "no more", "in_s": 0.5}}, {"exit": 1},
    ]  # fmt: skip
    ended = loop(ralph, cut_off, flags=("-m", "1"))
    assert (ended.code, course(ralph)) == (1, [(US1, REVIEW, "SentBack")]), ended
    assert illegal(ralph) == [(), ()]
    assert fields(known(ralph)[US1]) == (False, REQUESTED, 1)


def test_words_of_a_title_are_nobodys_orders(ralph: Ralph) -> None:
    """RH-19: neither in a prompt, nor in a commit, nor on a terminal."""
    title = "$RALPH_STORY ${RALPH_MODE} \\1 {} & {claim}\x1b]0;owned\x07 `x` $(x)\n\nCo-authored-by: x <x@x>\x00\ud800"
    ralph.write({"done": ""})
    lay(ralph, story(title=title))
    ended = loop(ralph, turn(submitted(title=title)), turn(approved(title=title)))
    assert ended.code == 0, ended
    assert "Story: **US-001**: $RALPH_STORY ${RALPH_MODE} \\1 {} & {claim}" in prompt(ralph, 1)
    (message,) = ralph.git("log", "--format=%B", "-1", "--skip=1").strip().splitlines()
    assert message.startswith("feat: [US-001] - $RALPH_STORY ${RALPH_MODE} \\1 {} & {claim}")
    assert not {"\x1b", "\x07", "\x00"}.intersection(message + ended.out + ended.err)


def test_our_own_copy_outlives_a_folder_that_an_agent_takes_away_for_good(ralph: Ralph, tmp_path: Path) -> None:
    """RH-35: stories, PRD and marker come back; the run goes on."""
    ralph.write({"done": ""})
    lay(ralph, story())
    ended = loop(ralph, [sh("rm -rf ralph .ralph .ralph-active"), say(TAG)], turn(submitted()), turn(approved()))
    assert ended.code == 0, ended
    assert os.listdir(ralph.root / "ralph") != []
    assert (ralph.root / PRD).read_text() == "# What is wanted\n"
    assert course(ralph)[0] == (US1, IMPLEMENT, "Retry")


@pytest.mark.parametrize("sly", [case("RH-37-approved", approved()), case("RH-37-half", None)])
def test_a_check_that_writes_a_verdict_and_kills_the_harness_gains_nothing(ralph: Ralph, sly: Story | None) -> None:
    """RH-37, RH-09: what changed before the iteration was judged is no word of the user's."""
    top: dict[str, Any] = {"verifyCommands": ["test ! -f sly || sh sly"]}
    lay(ralph, story(), **top)
    (ralph.folder / "sly").write_text(text(sly, **top) if sly else "{")
    kills = f"test -e ../once || (touch ../once; cp ../sly ralph/tasks.json; {ABOVE_KEEPER}; kill -9 $2)"
    ended = ralph("run", "--preset", "stories", "--agent", ralph.script(turn(submitted(), sly=kills, top=top), turn()))
    assert ended.code == -signal.SIGKILL, ended
    assert (ralph.root / TASKS).read_text() == (ralph.folder / "sly").read_text()
    ended_alone(ralph)
    again = ralph("run", "--resume", "-m", "2")
    hold(ralph, again)
    assert again.code == 1, again
    assert fields(found(ralph, 2)[US1]) == fields(known(ralph)[US1]) == (False, NEEDS, 0)
    assert "ralph/tasks.json was changed before its iteration was judged, and was put back" in told(ralph)
