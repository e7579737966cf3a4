"""What reviews of stories came to is counted by what stands, once, and outlives a crash."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ralphproof.base.errors import Refused
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import CheckReport, Finding
from ralphproof.engine.limits import Breach
from ralphproof.engine.outcome import Passed, Retry, SentBack, Stopped, StoryReview, Verdict
from ralphproof.engine.plan import STORY_MEMORY_NOTE, Iteration, Job, Stage, Task
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.stories.plan import StoryPlan
from ralphproof.stories.schema import serialize_stories
from ralphproof.stories.workflow import (
    MAX_FINDING_CHARS,
    MAX_FINDINGS,
    MAX_TITLE_CHARS,
    StoryWorkflow,
    summarize_reviews,
    update_tally,
)

Story = dict[str, Any]
GREEN = CheckReport((Finding("verify", True, "make test", 0),))
RED = CheckReport((Finding("verify", False, "make test", 2, output="1 failed"),))
PASSED, BACK, RETRY = Passed(GREEN), SentBack(("review-fix",), Feedback()), Retry(Feedback())
NOT_JUDGED = Stopped(Breach("MAX_ITERATIONS", "enough"))


def story(name: str = "A", **fields: Any) -> Story:
    return {
        "id": name, "title": f"Make {name}", "acceptanceCriteria": ["made"], "priority": 1, "passes": False,
        "reviewStatus": None, "reviewCount": 0, "reviewFeedback": "", "notes": "made", **fields,
    }  # fmt: skip


def waits(count: int = 0, **fields: Any) -> Story:
    return story(reviewStatus="needs_review", reviewCount=count, **fields)


def asks(count: int, feedback: str = "louder", **fields: Any) -> Story:
    return story(reviewStatus="changes_requested", reviewCount=count, reviewFeedback=feedback, **fields)


def fine(count: int, **fields: Any) -> Story:
    return story(passes=True, reviewStatus="approved", reviewCount=count, **fields)


class MemoryStorage:
    """The file and the notes of one run; notes go through JSON, as on disk."""

    def __init__(self, *stories: Story) -> None:
        self.notes: dict[str, str] = {}
        self.write_stories(*stories)

    def write_stories(self, *stories: Story) -> None:
        about = {"project": "p", "branchName": "b", "description": "d", "verifyCommands": ["make test"]}
        self.data = serialize_stories({**about, "userStories": list(stories)})

    def read(self) -> bytes | None:
        return self.data

    def write(self, data: bytes) -> None:
        self.data = data

    def read_only_files(self) -> dict[str, bytes | None]:
        return {}

    def restore(self, name: str, data: bytes | None) -> None:
        raise AssertionError("nothing else is written")

    def note(self, name: str, data: Any) -> None:
        self.notes[name] = json.dumps(data)

    def noted(self, name: str) -> Any:
        return json.loads(self.notes[name]) if name in self.notes else None

    def write_marker(self, marker: dict[str, Any]) -> None:
        """No hook reads it."""

    def remove_marker(self) -> None:
        """There is none."""


class StoryRun:
    """A run by stories, iteration by iteration, as its loop would drive it."""

    def __init__(self, *stories: Story, **workflow: Any) -> None:
        self.storage, self._workflow, self._number = MemoryStorage(*stories), StoryWorkflow(**workflow), 0
        self.crash()

    def crash(self) -> None:
        """Another process takes it up."""
        self.plan = StoryPlan("ralph/tasks.json", self._workflow, self.storage)

    def turn(self, mode: str, *stories: Story, checks: CheckReport = GREEN, taken: bool = True) -> Iteration:
        """A turn on the first story, examined and not judged yet."""
        self._number += 1
        job = Job(Task(stories[0]["id"], ""), Stage(mode, checks=("verify",)))
        turn, name = Turn(Exit(0), taken=taken), str(self._number)
        self.plan.begin_turn(self._number, job, None)
        if taken:
            self.storage.write_stories(*stories)
            self.plan.review_edits(name, job, Change())
        return Iteration(self._number, job, turn, Snapshot("s", "t"), Change(), checks)

    def go(self, mode: str, *stories: Story, verdict: Verdict = PASSED, checks: CheckReport = GREEN) -> StoryReview:
        """The same, judged; its story then."""
        self.plan.apply_verdict(self.turn(mode, *stories, checks=checks), verdict)
        return self.first

    @property
    def first(self) -> StoryReview:
        return self.plan.story_reviews()[0]


def test_reviews_are_counted_and_what_they_asked_for_is_kept_oldest_first() -> None:
    run = StoryRun(story(), story("B"))
    rest = story("B")
    assert run.go("implement", waits(), rest) == StoryReview("A", "Make A", "needs_review")
    assert run.go("review", asks(1, " louder "), rest, verdict=BACK).found == ("louder",)
    assert run.go("review-fix", waits(1), rest) == StoryReview(
        "A", "Make A", "needs_review", 1, False, ("louder",), 1, 1
    )
    assert run.go("review", asks(2, "still"), rest, verdict=BACK).status == "changes_requested"
    run.go("review-fix", waits(2), rest)
    done = run.go("review", fine(3), rest)
    assert done == StoryReview("A", "Make A", "approved", 3, False, ("louder", "still"), 3, 2, True)
    assert run.plan.story_reviews()[1] == StoryReview("B", "Make B", "open")


def test_an_approval_that_red_checks_refuse_has_found_what_they_say() -> None:
    run = StoryRun(waits())
    found = run.go("review", fine(1), verdict=BACK, checks=RED)
    assert (found.status, found.reviews, found.made, found.requested) == ("changes_requested", 1, 1, 1)
    assert found.found == ("make test failed (exit code 2):\n1 failed",)
    both = StoryRun(waits()).go("review", asks(1), verdict=BACK, checks=RED)
    assert both.found == ("louder\n\nmake test failed (exit code 2):\n1 failed",)
    assert both.requested == 1


@pytest.mark.parametrize(
    ("mode", "before", "written", "verdict", "checks"),
    [
        ("review", waits(), fine(1), RETRY, GREEN),
        ("review", waits(), asks(1), NOT_JUDGED, GREEN),
        ("review", waits(), fine(3), RETRY, GREEN),  # illegal, and put back
        ("review-fix", asks(1), waits(1), RETRY, RED),
        ("implement", story(), waits(), RETRY, RED),
    ],
)
def test_what_does_not_stand_counts_for_nothing(
    mode: str, before: Story, written: Story, verdict: Verdict, checks: CheckReport
) -> None:
    run = StoryRun(before)
    found = run.go(mode, written, verdict=verdict, checks=checks)
    assert (found.made, found.requested, found.found, found.finished) == (0, 0, (), False)
    assert (found.status, found.reviews) == (before["reviewStatus"] or "open", before["reviewCount"])


def test_a_turn_that_nobody_judged_yet_counts_for_nothing() -> None:
    run = StoryRun(waits())
    run.turn("review", fine(1))
    assert run.first == StoryReview("A", "Make A", "needs_review")


def test_what_was_stopped_and_is_judged_by_a_later_session_counts_once() -> None:
    run = StoryRun(waits())
    facts = run.turn("review", asks(1))
    run.plan.apply_verdict(facts, NOT_JUDGED)
    run.crash()
    for _ in range(2):
        run.plan.apply_verdict(facts, BACK)
        run.crash()
    assert (run.first.made, run.first.requested, run.first.found) == (1, 1, ("louder",))


@pytest.mark.parametrize("feedback", ["louder", "[AUTO-APPROVED AT CAP] louder"])
def test_an_approval_at_the_cap_is_marked_and_keeps_what_its_review_found(feedback: str) -> None:
    by_harness = StoryRun(waits(1), cap=2).go("review", asks(2, feedback), verdict=BACK)
    assert by_harness == StoryReview("A", "Make A", "approved", 2, True, ("louder",), 1, 1, True)


def test_a_reviewer_that_approves_at_the_cap_itself_has_asked_for_nothing() -> None:
    found = StoryRun(waits(1), cap=2).go("review", fine(2, reviewFeedback="[AUTO-APPROVED AT CAP] louder"))
    assert found == StoryReview("A", "Make A", "approved", 2, True, ("louder",), 1, 0, True)


def test_a_fix_that_the_harness_approves_at_the_cap_is_finished_without_another_review() -> None:
    run = StoryRun(waits(1), cap=2)
    run.go("review", asks(2), verdict=BACK, checks=RED)
    done = run.go("review-fix", waits(2))
    assert (done.status, done.reviews, done.capped, done.made, done.finished) == ("approved", 2, True, 1, True)
    assert len(done.found) == 1


def test_what_was_done_or_reviewed_before_the_run_is_no_work_of_it() -> None:
    run = StoryRun(fine(3), waits(2) | {"id": "B", "title": "Make B"})
    second = {"id": "B", "title": "Make B"}
    run.go("review", fine(3) | second, fine(3))
    done, other = {one.story: one for one in run.plan.story_reviews()}["A"], run.plan.story_reviews()[0]
    assert (done.reviews, done.made, done.finished) == (3, 0, False)
    assert (other.story, other.reviews, other.made, other.finished) == ("B", 3, 1, True)


def test_a_story_that_was_done_before_and_is_only_looked_at_again_is_not_finished_by_the_run() -> None:
    run = StoryRun(fine(2))
    run.plan.apply_verdict(run.turn("review", fine(2), taken=False), PASSED)
    assert run.first == StoryReview("A", "Make A", "approved", 2)


def test_checks_that_take_an_approval_back_ask_for_changes_without_a_review() -> None:
    run = StoryRun(fine(2))
    run.plan.apply_verdict(run.turn("review", fine(2), checks=RED, taken=False), BACK)
    assert (run.first.status, run.first.made, run.first.requested) == ("changes_requested", 0, 1)
    run.go("review-fix", waits(2))
    assert run.go("review", fine(3)).finished


def test_without_reviews_what_passes_is_done() -> None:
    run = StoryRun(story(), skip_review=True)
    assert run.go("implement", story(passes=True)) == StoryReview("A", "Make A", "passes", finished=True)
    left = StoryRun(waits(1), skip_review=True).go("implement", waits(1, passes=True))
    assert (left.status, left.made, left.finished) == ("passes", 0, True)


def test_what_was_counted_outlives_a_crash() -> None:
    run = StoryRun(waits())
    run.go("review", asks(1), verdict=BACK)
    before = run.plan.story_reviews()
    run.crash()
    assert run.plan.story_reviews() == before
    run.go("review-fix", waits(1))
    assert run.go("review", asks(2, "more"), verdict=BACK).found == ("louder", "more")


def test_a_note_of_an_earlier_version_is_understood() -> None:
    run = StoryRun(waits())
    run.go("review", asks(1), verdict=BACK)
    note = json.loads(run.storage.notes[STORY_MEMORY_NOTE])
    del note["tally"]
    run.storage.notes[STORY_MEMORY_NOTE] = json.dumps(note)
    run.crash()
    assert run.first == StoryReview("A", "Make A", "changes_requested", 1)
    run.go("review-fix", waits(1))
    assert run.go("review", fine(2)) == StoryReview("A", "Make A", "approved", 2, made=1, finished=True)


def test_a_run_that_could_not_read_its_stories_has_none_to_tell_of() -> None:
    run = StoryRun(story(priority="high"))
    with pytest.raises(Refused):
        run.plan.read()
    assert run.plan.story_reviews() == ()


def test_what_is_kept_of_a_story_is_bounded_and_no_word_is_halved() -> None:
    run = StoryRun(waits(title="t " * MAX_TITLE_CHARS), cap=99)
    for count in range(1, MAX_FINDINGS + 4):
        run.go(
            "review", asks(count, f"{count} " + "secret " * 5000 + "end", title="t " * MAX_TITLE_CHARS), verdict=BACK
        )
        run.go("review-fix", waits(count, title="t " * MAX_TITLE_CHARS))
    found = run.first
    assert (found.made, found.requested, len(found.found)) == (MAX_FINDINGS + 3, MAX_FINDINGS + 3, MAX_FINDINGS)
    assert found.found[0].startswith("4 secret ")
    assert found.found[-1].startswith(f"{MAX_FINDINGS + 3} secret ")
    for text in found.found:
        assert len(text) < MAX_FINDING_CHARS + 40
        assert text.endswith(" secret end")
        assert set(text.split()[1:]) == {"secret", "...", "[truncated]", "end"}
    assert len(found.title) < MAX_TITLE_CHARS + 40


def test_a_text_without_a_gap_is_left_out_rather_than_cut() -> None:
    before, after = waits(), asks(1, "x" * 10_000)
    assert update_tally({}, "review", before, after, after)["A"]["found"] == ["... [truncated]"]


def test_a_tally_to_which_nothing_is_added_stays_the_same() -> None:
    tally: dict[str, dict[str, Any]] = {}
    assert update_tally(tally, "implement", story(), waits(), waits()) is tally


def test_an_id_may_have_any_name() -> None:
    run = StoryRun(waits() | {"id": "is"})
    run.go("review", asks(1) | {"id": "is"}, verdict=BACK)
    run.crash()
    assert (run.first.story, run.first.requested) == ("is", 1)
    assert summarize_reviews(run.plan._load_state()) == run.plan.story_reviews()


@pytest.mark.parametrize("checks", [GREEN, RED], ids=["green", "red"])
@pytest.mark.parametrize("wrote", [fine(1), asks(1)], ids=["approves", "asks"])
@pytest.mark.parametrize("verdict", [PASSED, BACK, RETRY], ids=["passed", "sent-back", "retry"])
def test_a_review_that_a_limit_kept_from_being_judged_counts_once_when_it_is(
    checks: CheckReport, wrote: Story, verdict: Verdict
) -> None:
    once, stopped = StoryRun(waits()), StoryRun(waits())
    once.plan.apply_verdict(once.turn("review", wrote, checks=checks), verdict)
    facts = stopped.turn("review", wrote, checks=checks)
    stopped.plan.apply_verdict(facts, NOT_JUDGED)
    assert stopped.first == StoryReview("A", "Make A", "needs_review")
    stopped.crash()
    stopped.plan.apply_verdict(facts, verdict)
    assert (stopped.first, stopped.plan.document) == (once.first, once.plan.document)
