"""`ralph run --preset stories` from the first turn to the outcome."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from ralphproof.engine.records import TurnBegan
from ralphproof.stories.review import APPROVED_AT_CAP
from ralphproof.stories.schema import FIX, IMPLEMENT, REVIEW
from tests.cli.steering import gone, let, reached, rests, waits_for
from tests.misbehaviour.agents import case, prompt
from tests.misbehaviour.crashing import ended_alone, kill, kill_both, resume
from tests.misbehaviour.invariants import hold, no_traceback
from tests.misbehaviour.machine import recorded
from tests.misbehaviour.protected_project import sh
from tests.misbehaviour.stories import (
    APPROVED,
    BLANK,
    FIND,
    MARKER,
    NEEDS,
    REQUESTED,
    TASKS,
    US1,
    US2,
    US3,
    VERIFY,
    approved,
    course,
    document,
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
from tests.ralph import Ended, Live, Ralph, Step, say, until, write

STORIES = ("run", "--preset", "stories")


def test_the_life_of_a_story(ralph: Ralph) -> None:
    """Implemented, reviewed, sent back, fixed, reviewed again, approved: what each turn finds, and the commits."""
    lay(ralph, story(title="Say hello"))
    named: dict[str, Any] = {"title": "Say hello"}
    ended = loop(
        ralph,
        turn(submitted(**named), done="x", says="made"),
        turn(requested(feedback="say it louder", **named), says="too quiet"),
        turn(submitted(count=1, **named), loud="x", says="louder now"),
        turn(approved(count=2, **named), says="good\n<promise>COMPLETE</promise>"),
    )
    assert ended.code == 0, ended
    assert ended.out.splitlines()[-1].startswith("COMPLETED, verified by its checks: 4 iterations")
    assert course(ralph) == [
        (US1, IMPLEMENT, "Passed"), (US1, REVIEW, "SentBack"), (US1, FIX, "Passed"), (US1, REVIEW, "Passed")
    ]  # fmt: skip
    states = [found(ralph, number)[US1] for number in range(1, 5)]
    assert [fields(one) for one in states] == [BLANK, (False, NEEDS, 0), (False, REQUESTED, 1), (False, NEEDS, 1)]
    assert [one["reviewFeedback"] for one in states] == ["", "", "say it louder", ""]
    assert fields(known(ralph)[US1]) == (True, APPROVED, 2)
    assert subjects(ralph) == [
        "feat: [US-001] - Say hello", "review: [US-001] - changes requested",
        "fix: [US-001] - address review feedback", "review: [US-001] - approved",
    ]  # fmt: skip
    assert ralph.git("status", "--porcelain", "--", ".", ":!.ralph") == ""
    assert ralph.git("show", "--format=", "--name-only", "HEAD~3").split() == ["done", TASKS]
    assert (ralph.outcome()["proof"], ralph.outcome()["concerns"]) == ("verified", [])
    prompts = [prompt(ralph, number) for number in range(1, 5)]
    assert [one.split("\n")[0] for one in prompts] == [f"# Ralph loop: iteration {n} of 15" for n in range(1, 5)]
    assert [f"Mode: **{mode}**" in one for mode, one in zip((IMPLEMENT, REVIEW, FIX, REVIEW), prompts, strict=True)]
    assert "say it louder" in prompts[2]
    assert "increment `reviewcount` of us-001 by 1 (it is 1 now)" in prompts[3].lower()
    assert "$RALPH_" not in "".join(prompts)
    assert "1 of 1 stories to do × ~3 iterations each = ~3 iterations needed" in ended.err


def test_fixes_come_before_reviews_and_reviews_before_new_work(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    new, waiting, back = story(), submitted(US2), requested(US3)
    lay(ralph, new, waiting, back)
    ended = loop(
        ralph,
        turn(new, waiting, submitted(US3, count=1)),
        turn(new, approved(US2), submitted(US3, count=1)),
        turn(new, approved(US2), approved(US3, count=2)),
        turn(submitted(), approved(US2), approved(US3, count=2)),
        turn(approved(), approved(US2), approved(US3, count=2)),
    )
    assert ended.code == 0, ended
    assert [one[:2] for one in course(ralph)] == [
        (US3, FIX),
        (US2, REVIEW),
        (US3, REVIEW),
        (US1, IMPLEMENT),
        (US1, REVIEW),
    ]


def test_stories_begin_by_priority_after_their_dependencies(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    late: dict[str, Any] = {"priority": 3}
    soon: dict[str, Any] = {"priority": 1.5}
    after: dict[str, Any] = {"priority": 1, "dependsOn": [US1]}
    lay(ralph, story(**late), story(US2, **soon), story(US3, **after))
    ended = loop(
        ralph,
        turn(story(**late), story(US2, passes=True, notes="n", **soon), story(US3, **after)),
        turn(story(passes=True, notes="n", **late), story(US2, passes=True, notes="n", **soon), story(US3, **after)),
        turn(*(story(id, passes=True, notes="n", **how) for id, how in ((US1, late), (US2, soon), (US3, after)))),
        flags=("--skip-review",),
    )
    assert ended.code == 0, ended
    assert [one[0] for one in course(ralph)] == [US2, US1, US3]


def test_a_story_that_is_too_large_is_cut_up(ralph: Ralph) -> None:
    """New stories and what depends on them are legal; the turn has not done its own story, and the parts go first."""
    ralph.write({"done": ""})
    lay(ralph, story())
    cut, part = story(dependsOn=["US-001a"]), story("US-001a", priority=9)
    ended = loop(ralph, turn(cut, part), turn(cut, submitted("US-001a", priority=9)), turn(), flags=("-m", "3"))
    assert ended.code == 1, ended
    assert course(ralph) == [(US1, IMPLEMENT, "Retry"), ("US-001a", IMPLEMENT, "Passed"), ("US-001a", REVIEW, "Retry")]
    assert illegal(ralph)[:2] == [(), ()]


def test_a_reformatted_stories_file_is_accepted(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, story())
    backwards = dict(reversed(document(story()).items()))
    flat: list[Step] = [{"write": {TASKS: "\ufeff" + json.dumps(backwards, ensure_ascii=True)}}, say("laid out")]
    ended = loop(ralph, flat, turn(submitted()), turn(approved()))
    assert (ended.code, illegal(ralph)) == (0, [(), (), ()]), ended


def test_stories_that_wait_for_each_other_end_the_run_by_name(ralph: Ralph) -> None:
    lay(ralph, story(dependsOn=[US2]), story(US2, dependsOn=[US1]), approved(US3))
    ended = loop(ralph, turn())
    assert (ended.code, ralph.outcome()["reason"], ralph.outcome()["iterations"]) == (1, "BLOCKED", 0), ended
    assert "nothing can be worked on (each waits for another): US-001, US-002" in ended.out


def test_what_a_review_says_at_length_is_cut_in_the_prompt_alone(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, submitted())
    feedback = f"first {'x' * 1_000_000} last"
    ended = loop(ralph, turn(requested(feedback=feedback)), turn(), flags=("-m", "2"))
    assert ended.code == 1, ended
    told_to_it = prompt(ralph, 2)
    assert len(told_to_it) < 20_000
    assert "first xxx" in told_to_it
    assert "xxx last" in told_to_it
    assert found(ralph, 2)[US1]["reviewFeedback"] == feedback


# The review cap


def test_at_the_cap_the_harness_approves_what_is_green_and_says_so(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, submitted())
    ended = loop(ralph, turn(requested()), flags=("--review-cap", "1"))
    assert ended.code == 0, ended
    one = known(ralph)[US1]
    assert (fields(one), one["reviewFeedback"]) == ((True, APPROVED, 1), f"{APPROVED_AT_CAP} say it louder")
    concern = "story US-001 was approved at the review cap: say it louder"
    assert f"concern: {concern}" in ended.out.splitlines()
    assert ended.out.splitlines()[-1].startswith("COMPLETED with 1 concern, verified by its checks: ")
    assert ralph.outcome()["concerns"] == [concern]
    assert "has reached 1" in prompt(ralph, 1)
    assert f"concern: {concern}" in ralph("status").out


def test_red_at_the_cap_is_fixed_until_it_is_green(ralph: Ralph) -> None:
    """The count stays at the cap, and nobody reviews it again."""
    lay(ralph, submitted())
    ended = loop(
        ralph, turn(requested()), turn(submitted(count=1)), turn(submitted(count=1), done=""),
        flags=("--review-cap", "1", "--json"),
    )  # fmt: skip
    assert ended.code == 0, ended
    assert course(ralph) == [(US1, REVIEW, "SentBack"), (US1, FIX, "Retry"), (US1, FIX, "Passed")]
    assert [fields(found(ralph, number)[US1]) for number in (2, 3)] == [(False, REQUESTED, 1)] * 2
    one = known(ralph)[US1]
    assert fields(one) == (True, APPROVED, 1)
    assert one["reviewFeedback"].startswith(f"{APPROVED_AT_CAP} say it louder\n\n{VERIFY} failed (exit code 1):")
    last = ended.lines[-1]["data"]
    assert (last["status"], last["proof"], len(last["concerns"])) == ("COMPLETED", "verified", 1)
    assert last["concerns"][0].startswith("story US-001 was approved at the review cap: say it louder")


@pytest.mark.parametrize("green", [True, False], ids=["green", "red"])
def test_a_cap_that_is_a_failure_stops_the_run(ralph: Ralph, green: bool) -> None:
    ralph.write({"done": ""} if green else {})
    lay(ralph, submitted(), story(US2))
    ralph.settings(review={"capIsFailure": True, "cap": 1})
    ended = loop(ralph, turn(requested(), story(US2)))
    assert (ended.code, ralph.outcome()["reason"]) == (1, "BLOCKED"), ended
    assert "(reviewed 1 times and not approved (review.capIsFailure)): US-001" in ended.out
    assert fields(known(ralph)[US1]) == (False, REQUESTED, 1)


def test_without_a_claim_no_check_was_asked_and_the_cap_approves_nothing(ralph: Ralph) -> None:
    """`checksWhen: claim` runs them when somebody says that it is done: a review that objects does not."""
    lay(ralph, submitted())
    ralph.settings(checksWhen="claim")
    ended = loop(ralph, turn(requested()), turn(submitted(count=1)), flags=("--review-cap", "1", "-m", "2"))
    assert ended.code == 1, ended
    assert [fields(found(ralph, 2)[US1]), fields(known(ralph)[US1])] == [(False, REQUESTED, 1)] * 2
    assert "= ~3 iterations needed; the limit is 2: raise it with -m" in ended.err


# Other ways


def test_without_reviews_a_story_passes_by_its_checks(ralph: Ralph) -> None:
    lay(ralph, story(), story(US2, dependsOn=[US1]))
    second = story(US2, dependsOn=[US1])
    ended = loop(
        ralph,
        turn(story(passes=True, notes="n"), second),
        turn(story(passes=True, notes="n"), second, done=""),
        turn(story(passes=True, notes="n"), {**second, "passes": True, "notes": "n"}),
        flags=("--skip-review",),
    )
    assert ended.code == 0, ended
    assert course(ralph) == [(US1, IMPLEMENT, "Retry"), (US1, IMPLEMENT, "Passed"), (US2, IMPLEMENT, "Passed")]
    assert {name: fields(one) for name, one in known(ralph).items()} == dict.fromkeys((US1, US2), (True, None, 0))
    assert "story US-001 stays open: the checks are red" in told(ralph)
    assert subjects(ralph) == ["feat: [US-001] - Make US-001", "feat: [US-002] - Make US-002"]
    assert "review" not in prompt(ralph, 1).partition("## Step 4")[0].partition("Review yourself")[0].lower()
    assert "2 of 2 stories to do × ~1 iterations each = ~2 iterations needed" in ended.err


def test_stories_may_be_in_another_folder(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, story(), folder="plans/hello")
    at = "plans/hello/tasks.json"
    marks = sh("cp .ralph-active ../marker")
    steps: list[Step] = [marks, {"write": {at: text(submitted()), "plans/hello/progress.txt": "x"}}, say("ok")]
    ended = loop(ralph, steps, [{"write": {at: text(approved())}}, say("ok")], flags=("--ralph-dir", "plans/hello"))
    assert ended.code == 0, ended
    assert "Read `plans/hello/prd.md`" in prompt(ralph, 1)
    assert json.loads((ralph.folder / "marker").read_text())["ralphDir"] == "plans/hello"
    assert fields(known(ralph, at)[US1]) == (True, APPROVED, 1)


OWN = """\
$RALPH_MODE $RALPH_STORY ${RALPH_ITERATION}/$RALPH_MAX_ITERATIONS in $RALPH_DIR,
$RALPH_REVIEW_COUNT of $RALPH_REVIEW_CAP
<!-- for: implement -->
Title: $RALPH_TITLE $HOME $RALPH_NOBODY
<!-- end -->
<!-- for: review -->
Look at it.
<!-- end -->
"""


@pytest.mark.parametrize("given", [False, True], ids=["prompt.md", "-f"])
def test_a_prompt_of_the_users_own_is_filled_in_once_and_literally(ralph: Ralph, given: bool) -> None:
    """CF-18: whatever stands in a title is no name of ours."""
    ralph.write({"done": "", "own.md" if given else "ralph/prompt.md": OWN})
    title = r"$RALPH_STORY ${RALPH_MODE} \1 \g<0> {} & %s"
    lay(ralph, story(title=title))
    flags = ("-f", "own.md") if given else ()
    ended = loop(ralph, turn(submitted(title=title)), turn(approved(title=title)), flags=flags)
    assert ended.code == 0, ended
    first, second = (prompt(ralph, number) for number in (1, 2))
    assert first == f"implement US-001 1/15 in ralph,\n0 of 5\nTitle: {title} $HOME $RALPH_NOBODY\n"
    assert second == "review US-001 2/15 in ralph,\n0 of 5\nLook at it.\n"


def test_the_prompt_of_stories_may_be_edited_while_an_agent_works(ralph: Ralph) -> None:
    """In a review too, which may change nothing else."""
    ralph.write({"done": "", "ralph/prompt.md": "First $RALPH_MODE.\n"})
    lay(ralph, story())
    edit = {"ralph/prompt__md": "Then $RALPH_MODE.\n"}
    ended = loop(ralph, turn(submitted()), turn(requested(), **edit), turn(submitted(count=1)), flags=("-m", "3"))
    told = [prompt(ralph, number).split("\n")[0] for number in (1, 2, 3)]
    assert told == ["First implement.", "First review.", "Then review-fix."]
    assert "ralph/prompt.md changed during iteration 2; used from now on" in ended.err
    assert course(ralph) == [(US1, IMPLEMENT, "Passed"), (US1, REVIEW, "SentBack"), (US1, FIX, "Passed")]


def test_the_prompt_of_stories_is_never_read_through_a_link(ralph: Ralph) -> None:
    """An agent could have put it there to be shown what its sandbox hides."""
    ralph.write({"done": "", "ralph/prompt.md": "First $RALPH_MODE.\n", "../key": "secret"})
    lay(ralph, story())
    lead = [{"run": ["ln", "-sf", "../../key", "ralph/prompt.md"]}]
    ended = loop(ralph, [*lead, *turn(submitted())], turn(approved()))
    assert (ended.code, ralph.outcome()["iterations"]) == (2, 1)
    assert f"ralph/prompt.md leads to {ralph.folder}/key now" in ralph.outcome()["error"]


def test_hooks_run_around_stories_and_cannot_approve_them(ralph: Ralph) -> None:
    """An agent may have written what a hook runs."""
    lay(ralph, story())
    (ralph.folder / "forged").write_text(text(approved()))
    ralph.write({"done": "", "tidy.sh": "cp ../forged ralph/tasks.json"})
    tell = "echo $RALPH_HOOK $RALPH_ITERATION $RALPH_STAGE ${RALPH_VERDICT-} >> ../told"
    ralph.settings(on={"beforeIteration": tell, "afterIteration": [tell, "sh tidy.sh"]})
    ralph.commit()
    ended = loop(ralph, turn(submitted()), turn(approved()))
    assert ended.code == 0, ended
    assert course(ralph) == [(US1, IMPLEMENT, "Passed"), (US1, REVIEW, "Passed")]
    assert (ralph.folder / "told").read_text().splitlines() == [
        "beforeIteration 1 implement", "afterIteration 1 implement passed",
        "beforeIteration 2 review", "afterIteration 2 review passed",
    ]  # fmt: skip
    assert "ralph/tasks.json was changed before its iteration was judged, and was put back" in ended.err


def test_without_verify_commands_only_reviews_decide(ralph: Ralph) -> None:
    lay(ralph, story(), verifyCommands=[])
    top: dict[str, Any] = {"verifyCommands": []}
    ended = loop(ralph, turn(submitted(), top=top), turn(approved(), top=top))
    assert ended.code == 0, ended
    assert (ralph.outcome()["proof"], ralph.outcome()["verificationPassed"]) == ("claimed", False)
    assert "nothing verified it" in ended.out


def test_checks_of_the_settings_stand_beside_the_verify_commands(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, story())
    ralph.settings(guardrails=[{"command": "test -f other"}, {"command": VERIFY, "hint": "make it"}])
    ended = loop(ralph, turn(submitted()), turn(submitted(), other=""), turn(approved()))
    assert ended.code == 0, ended
    assert course(ralph)[0] == (US1, IMPLEMENT, "Retry")
    last = ralph.state().history.latest.report.findings
    assert sorted(one.command for one in last) == sorted([VERIFY, "test -f other"])


@pytest.mark.parametrize("in_git", [True, False], ids=["git", "plain"])
def test_files_that_were_dirty_before_are_not_committed(ralph: Ralph, in_git: bool) -> None:
    """And a project without git does as well, without commits."""
    ralph.write({"done": "", "mine": "first\n"})
    lay(ralph, story(), in_git=in_git)
    ralph.write({"mine": "in progress\n", "new": "in progress\n"})
    ended = loop(ralph, turn(submitted(), work="x"), turn(approved()))
    assert ended.code == 0, ended
    assert (ralph.root / "mine").read_text() == (ralph.root / "new").read_text() == "in progress\n"
    if in_git:
        assert ralph.git("log", "--format=", "--name-only", "-2").split() == [TASKS, TASKS, "work"]
        assert "dirtyBefore" not in ended.err
        assert ralph.git("status", "--porcelain", "--", "mine", "new").splitlines() == [" M mine", "?? new"]


# Before a run


FAULTY = document(
    story(passes="no", reviewCount=-1), {**story(US2), "id": US1}, story(US3, acceptanceCriteria=[], dependsOn=["X"]),
    verifyCommands=[""], branchName=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("content", "faults"),
    [
        case("all-at-once", json.dumps(FAULTY), (
            "branchName is null", "verifyCommands must be", 'Story US-001: passes is "no"', "reviewCount is -1",
            'the id "US-001" is used by more than one', "Story US-003: acceptanceCriteria is []", 'names "X"',
        )),
        case("half", text(story())[:50], ("it is not valid JSON",)),
        case("command", text(story(), verifyCommands=["echo \0"]), ("a character that no command can have",)),
        case("none", json.dumps(document()), ("there are no stories in it",)),
        case("impossible", text(story(passes=True, notes="n")), ("passes=true but reviewStatus is 'null'",)),
        case("counted", text(submitted(count=99)), ()),
    ],
)  # fmt: skip
def test_stories_that_are_malformed_at_the_start_are_refused_in_one_line(
    ralph: Ralph, content: str, faults: tuple[str, ...]
) -> None:
    lay(ralph, story())
    ralph.write({TASKS: content})
    ended = ralph(*STORIES, "--agent", ralph.script([write(started="")]), "-m", "1")
    if not faults:  # an earlier run with a higher cap may have counted so far
        assert ended.code == 1, ended
        return
    hold(ralph, ended, refused=True)
    (line,) = ended.err.splitlines()
    assert line.startswith("ralph: ralph/tasks.json: ")
    assert all(fault in line for fault in faults), line
    assert not (ralph.root / "started").exists()
    assert not (ralph.root / MARKER).exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        case("prompt", ("-p", "do it"), "the stories say what should become true"),
        case("skill", ("--skill", "tdd", "--check", "true"), "a run by stories has its own way of working"),
        case("outside", ("--ralph-dir", "../elsewhere"), "must be a folder inside the project"),
        case("nowhere", ("--ralph-dir", "nothing"), "ralph init --preset stories"),
        case("no-prompt", ("-f", "nothing.md"), "nothing.md"),
        case("no-cap", ("--review-cap", "0"), "--review-cap"),
    ],
)
def test_flags_that_contradict_stories_are_refused(ralph: Ralph, flags: tuple[str, ...], words: str) -> None:
    lay(ralph, story())
    ended = ralph(*STORIES, "--agent", ralph.script([write(started="")]), *flags)
    hold(ralph, ended, refused=True)
    assert words in ended.err
    assert not (ralph.root / "started").exists()


# While a run is at work


def at_work(ralph: Ralph, *later: list[Step], flags: tuple[str, ...] = ()) -> Live:
    """A run whose agent is in the middle of its first turn, which submits its story when it may go on."""
    first = [FIND, waits_for("one"), {"write": {TASKS: text(submitted()), "done": ""}}, say("ok")]
    live = ralph.start(*STORIES, "--agent", ralph.script(first, *later), *flags)
    reached(ralph, "one")
    return live


def ends(ralph: Ralph, live: Live) -> Ended:
    ended = live.end()
    hold(ralph, ended)
    assert not (ralph.root / MARKER).exists()
    return ended


def test_a_second_loop_is_refused_and_told_of_worktrees(ralph: Ralph) -> None:
    lay(ralph, story())
    live = at_work(ralph, turn(approved()))
    before = (ralph.root / MARKER).read_bytes()
    second = ralph(*STORIES, "--agent", ralph.script([write(started="")], name="second"))
    assert (second.code, len(second.err.splitlines())) == (2, 1), second
    assert "git worktree add" in second.err
    assert not (ralph.root / "started").exists()
    assert (ralph.root / MARKER).read_bytes() == before
    let(ralph, "one")
    assert ends(ralph, live).code == 0


def test_what_the_user_adds_while_an_agent_works_counts(ralph: Ralph) -> None:
    """Whoever writes in the file during a turn is held to the turn's rules: new stories are welcome."""
    lay(ralph, story())
    submits = sh(f'sed -i \'0,/"reviewStatus": null/s//"reviewStatus": "{NEEDS}"/\' ralph/tasks.json')
    adds = [FIND, waits_for("one"), submits, write(done=""), say("ok")]
    live = ralph.start(*STORIES, "--agent", ralph.script(adds, turn()), "-m", "2")
    reached(ralph, "one")
    ralph.write({TASKS: text(story(), story(US2))})
    let(ralph, "one")
    assert ends(ralph, live).code == 1
    assert {name: fields(one) for name, one in known(ralph).items()} == {US1: (False, NEEDS, 0), US2: BLANK}


def test_what_the_user_writes_while_the_run_rests_is_theirs_to_write(ralph: Ralph) -> None:
    """Even what no agent may: here they take an approval into their own hands, and the checks have the last word."""
    lay(ralph, story(), story(US2))
    first = [FIND, waits_for("one"), {"write": {TASKS: text(submitted(), story(US2)), "done": ""}}, say("ok")]
    live = ralph.start(*STORIES, "--agent", ralph.script(first, turn()), "-m", "2")
    reached(ralph, "one")
    assert ralph("pause").code == 0
    let(ralph, "one")
    rests(ralph, ralph.runs()[0].id)
    ralph.write({TASKS: text(approved(notes="looked at it myself"), story(US2, acceptanceCriteria=["another one"]))})
    assert ralph("resume").code == 0
    ended = ends(ralph, live)
    assert "ralph/tasks.json was edited while the run rested: the run goes on with what it says now" in ended.err
    assert [one[:2] for one in course(ralph)] == [(US1, IMPLEMENT), (US2, IMPLEMENT)]
    assert "another one" in prompt(ralph, 2)
    assert fields(known(ralph)[US1]) == (True, APPROVED, 1)


@pytest.mark.parametrize("green", [True, False], ids=["green", "red"])
def test_stories_that_the_user_approved_while_the_run_rested_are_checked(ralph: Ralph, green: bool) -> None:
    lay(ralph, story())
    live = at_work(ralph, turn(), flags=("-m", "2"))
    assert ralph("pause").code == 0
    let(ralph, "one")
    rests(ralph, ralph.runs()[0].id)
    ralph.write({TASKS: text(approved())})
    if not green:
        (ralph.root / "done").unlink()
    assert ralph("resume").code == 0
    ended = live.end()
    no_traceback(ended)
    assert ended.code == (0 if green else 1), ended
    assert fields(known(ralph)[US1]) == ((True, APPROVED, 1) if green else (False, REQUESTED, 1))


# Ways out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_a_signal_leaves_no_marker_and_the_run_can_be_taken_up(ralph: Ralph, number: int) -> None:
    lay(ralph, story())
    ralph.settings(shutdownGraceSeconds=0.2)
    live = at_work(ralph, turn(submitted(), done=""), turn(approved()))
    live.process.send_signal(number)
    ended = ends(ralph, live)
    assert (ended.code, ralph.outcome()["reason"]) == (130, "INTERRUPTED"), ended
    assert fields(known(ralph)[US1]) == BLANK
    again = resume(ralph)
    hold(ralph, again)
    assert (again.code, ralph.outcome()["proof"]) == (0, "verified"), again
    assert not (ralph.root / MARKER).exists()
    assert fields(known(ralph)[US1]) == (True, APPROVED, 1)


SLOW = "test ! -e ../slow || (touch ../checking; sleep 60)"


@pytest.mark.parametrize("anew", [False, True], ids=["resumed", "anew"])
def test_what_was_not_judged_when_the_run_was_interrupted_does_not_stand(ralph: Ralph, anew: bool) -> None:
    """Whoever begins anew finds its story as it was; whoever takes the run up goes on with the verdict."""
    top: dict[str, Any] = {"verifyCommands": [SLOW]}
    lay(ralph, submitted(), story(US2), **top)
    ralph.settings(shutdownGraceSeconds=0.2)
    first = [*turn(approved(), story(US2), top=top)[:-1], sh("touch ../slow"), say("good")]
    live = ralph.start(*STORIES, "--agent", ralph.script(first, turn()), "-m", "2")
    until((ralph.folder / "checking").exists, "the checks are at work")
    live.process.send_signal(signal.SIGINT)
    assert ends(ralph, live).code == 130
    assert fields(known(ralph)[US1]) == (False, NEEDS, 0)
    (ralph.folder / "slow").unlink()
    ralph.write({TASKS: text(submitted(), story(US2), story(US3), **top)})
    again = loop(ralph, turn(), flags=("-m", "1")) if anew else resume(ralph)
    hold(ralph, again)
    assert again.code == 1, again
    assert fields(known(ralph)[US1]) == ((False, NEEDS, 0) if anew else (True, APPROVED, 1))
    assert course(ralph)[-1][:2] == ((US1, REVIEW) if anew else (US2, IMPLEMENT))
    assert US3 in known(ralph), "the user's own edit stays"


def test_an_agent_that_cannot_start_leaves_no_marker(ralph: Ralph) -> None:
    lay(ralph, story())
    ralph.program("broken", "#!/nowhere/sh\n")
    ended = ralph(*STORIES, "--agent", "broken")
    no_traceback(ended)
    assert ended.code == 2, ended
    assert not (ralph.root / MARKER).exists()


@pytest.mark.parametrize("with_keeper", [False, True], ids=["harness", "both"])
def test_a_run_that_was_killed_goes_on_with_its_stories(ralph: Ralph, with_keeper: bool) -> None:
    """A turn that ended is used, one that was cut off is done again; the marker is the run's own once more."""
    lay(ralph, story())
    live = at_work(ralph, turn(submitted(), done="") if with_keeper else turn(approved()), turn(approved()))
    if with_keeper:
        kill_both(ralph, live)
    else:
        kill(live)
        let(ralph, "one")
        ended_alone(ralph)
    assert json.loads((ralph.root / MARKER).read_text())["run"] == ralph.runs()[0].id
    ended = resume(ralph)
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert not (ralph.root / MARKER).exists()
    assert fields(known(ralph)[US1]) == (True, APPROVED, 1)
    assert len(recorded(ralph, TurnBegan)) == (3 if with_keeper else 2)
    assert "edited while the run rested" not in told(ralph)


@pytest.mark.parametrize("with_keeper", [False, True], ids=["harness", "both"])
def test_after_a_kill_a_new_run_knows_a_stale_marker_and_what_was_not_judged(ralph: Ralph, with_keeper: bool) -> None:
    """It had read what the dead run's agent wrote, and reads again what was put back."""
    lay(ralph, story(), story(US2))
    lie: list[Step] = [{"write": {TASKS: text(approved(), story(US2)), "done": ""}}, waits_for("one"), say("ok")]
    live = ralph.start(*STORIES, "--agent", ralph.script(lie))
    reached(ralph, "one")
    if with_keeper:
        kill_both(ralph, live)
    else:
        kill(live)
        let(ralph, "one")
        ended_alone(ralph)
    dead = ralph.runs()[0].id
    assert json.loads((ralph.root / MARKER).read_text())["run"] == dead
    words = (*STORIES, "--agent", ralph.script(turn(), name="next"), "-m", "1")
    ended = ralph(*words)
    hold(ralph, ended)
    assert f"run {dead} crashed and is closed" in ended.err
    assert "ralph/tasks.json had been changed by its agent, and was put back" in ended.err
    assert not (ralph.root / MARKER).exists()
    assert (ended.code, course(ralph)) == (1, [(US1, IMPLEMENT, "Retry")]), ended
    assert fields(found(ralph, 1)[US1]) == BLANK


def test_a_marker_that_a_dead_program_left_holds_nobody_up(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, submitted())
    ralph.write({MARKER: json.dumps({"pid": 2**22 + 1, "run": "20200101-000000-gone", "mode": "direct"})})
    ended = loop(ralph, turn(approved()))
    assert ended.code == 0, ended


def test_another_programs_live_marker_is_respected(ralph: Ralph) -> None:
    lay(ralph, story())
    ralph.write({MARKER: json.dumps({"pid": os.getpid(), "mode": "direct"})})
    ended = ralph(*STORIES, "--agent", ralph.script([write(started="")]))
    hold(ralph, ended, refused=True)
    assert f"(pid {os.getpid()})" in ended.err
    assert "git worktree add" in ended.err
    assert json.loads((ralph.root / MARKER).read_text())["pid"] == os.getpid()


def test_a_run_that_goes_by_itself_takes_its_marker_away(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, submitted())
    begun = ralph(*STORIES, "--agent", ralph.script(turn(approved())), "--detach", "--json")
    assert begun.code == 0, begun
    until(lambda: gone(ralph, begun.json["run"]), "it is over")
    assert (ralph.outcome()["status"], (ralph.root / MARKER).exists()) == ("COMPLETED", False)


def test_a_dry_run_shows_the_first_prompt_and_touches_nothing(ralph: Ralph) -> None:
    lay(ralph, story(), submitted(US2))
    ended = ralph(*STORIES, "--agent", ralph.script([write(started="")]), "--dry-run")
    assert ended.code == 0, ended
    assert "Mode: **review**" in ended.out
    assert "Story: **US-002**" in ended.out
    assert VERIFY in ended.out
    assert not (ralph.root / MARKER).exists()
