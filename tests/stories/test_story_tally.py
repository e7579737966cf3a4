"""What reviews of stories came to is counted by what stands, once, and outlives a crash."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ralphproof.base.errors import Refused
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import CheckReport, Finding
from ralphproof.engine.iteration import Iteration
from ralphproof.engine.limits import Breach
from ralphproof.engine.metrics import StoryReview
from ralphproof.engine.outcome import Passed, Retry, SentBack, Stopped, Verdict
from ralphproof.engine.plan import STORY_MEMORY_NOTE, Job, Stage, Task
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.stories.plan import StoryPlan
from ralphproof.stories.schema import serialize_stories
from ralphproof.stories.state import MAX_FINDING_CHARS, MAX_FINDINGS, MAX_TITLE_CHARS, summarize_reviews, update_tally
from ralphproof.stories.workflow import StoryWorkflow

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


class Shelf:
    """The file and the notes of one run; notes go through JSON, as on disk."""

    def __init__(self, *stories: Story) -> None:
        self.notes: dict[str, str] = {}
        self.lay(*stories)

    def lay(self, *stories: Story) -> None:
        about = {"project": "p", "branchName": "b", "description": "d", "verifyCommands": ["make test"]}
        self.data = serialize_stories({**about, "userStories": list(stories)})

    def look(self) -> bytes | None:
        return self.data

    def write(self, data: bytes) -> None:
        self.data = data

    def others(self) -> dict[str, bytes | None]:
        return {}

    def restore(self, name: str, data: bytes | None) -> None:
        raise AssertionError("nothing else is written")

    def note(self, name: str, data: Any) -> None:
        self.notes[name] = json.dumps(data)

    def noted(self, name: str) -> Any:
        return json.loads(self.notes[name]) if name in self.notes else None

    def light(self, marker: dict[str, Any]) -> None:
        """Nobody looks."""

    def quench(self) -> None:
        """Nothing is lit."""


class Play:
    """A run by stories, iteration by iteration, as its loop would drive it."""

    def __init__(self, *stories: Story, **manner: Any) -> None:
        self.shelf, self._manner, self._number = Shelf(*stories), StoryWorkflow(**manner), 0
        self.crash()

    def crash(self) -> None:
        """Another process takes it up."""
        self.book = StoryPlan("ralph/tasks.json", self._manner, self.shelf)

    def turn(self, mode: str, *stories: Story, checks: CheckReport = GREEN, taken: bool = True) -> Iteration:
        """A turn on the first story, examined and not judged yet."""
        self._number += 1
        job = Job(Task(stories[0]["id"], ""), Stage(mode, checks=("verify",)))
        turn, name = Turn(Exit(0), taken=taken), str(self._number)
        self.book.begin_turn(self._number, job, None)
        if taken:
            self.shelf.lay(*stories)
            self.book.review_edits(name, job, Change())
        return Iteration(self._number, job, turn, Snapshot("s", "t"), Change(), checks)

    def go(self, mode: str, *stories: Story, verdict: Verdict = PASSED, checks: CheckReport = GREEN) -> StoryReview:
        """The same, judged; its story then."""
        self.book.apply_verdict(self.turn(mode, *stories, checks=checks), verdict)
        return self.first

    @property
    def first(self) -> StoryReview:
        return self.book.story_reviews()[0]


def test_reviews_are_counted_and_what_they_asked_for_is_kept_oldest_first() -> None:
    play = Play(story(), story("B"))
    rest = story("B")
    assert play.go("implement", waits(), rest) == StoryReview("A", "Make A", "needs_review")
    assert play.go("review", asks(1, " louder "), rest, verdict=BACK).found == ("louder",)
    assert play.go("review-fix", waits(1), rest) == StoryReview(
        "A", "Make A", "needs_review", 1, False, ("louder",), 1, 1
    )
    assert play.go("review", asks(2, "still"), rest, verdict=BACK).status == "changes_requested"
    play.go("review-fix", waits(2), rest)
    done = play.go("review", fine(3), rest)
    assert done == StoryReview("A", "Make A", "approved", 3, False, ("louder", "still"), 3, 2, True)
    assert play.book.story_reviews()[1] == StoryReview("B", "Make B", "open")


def test_an_approval_that_red_checks_refuse_has_found_what_they_say() -> None:
    play = Play(waits())
    found = play.go("review", fine(1), verdict=BACK, checks=RED)
    assert (found.status, found.reviews, found.made, found.requested) == ("changes_requested", 1, 1, 1)
    assert found.found == ("make test failed (exit code 2):\n1 failed",)
    both = Play(waits()).go("review", asks(1), verdict=BACK, checks=RED)
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
    play = Play(before)
    found = play.go(mode, written, verdict=verdict, checks=checks)
    assert (found.made, found.requested, found.found, found.finished) == (0, 0, (), False)
    assert (found.status, found.reviews) == (before["reviewStatus"] or "open", before["reviewCount"])


def test_a_turn_that_nobody_judged_yet_counts_for_nothing() -> None:
    play = Play(waits())
    play.turn("review", fine(1))
    assert play.first == StoryReview("A", "Make A", "needs_review")


def test_what_was_stopped_and_is_judged_by_a_later_session_counts_once() -> None:
    play = Play(waits())
    facts = play.turn("review", asks(1))
    play.book.apply_verdict(facts, NOT_JUDGED)
    play.crash()
    for _ in range(2):
        play.book.apply_verdict(facts, BACK)
        play.crash()
    assert (play.first.made, play.first.requested, play.first.found) == (1, 1, ("louder",))


@pytest.mark.parametrize("feedback", ["louder", "[AUTO-APPROVED AT CAP] louder"])
def test_an_approval_at_the_cap_is_marked_and_keeps_what_its_review_found(feedback: str) -> None:
    by_harness = Play(waits(1), cap=2).go("review", asks(2, feedback), verdict=BACK)
    assert by_harness == StoryReview("A", "Make A", "approved", 2, True, ("louder",), 1, 1, True)


def test_a_reviewer_that_approves_at_the_cap_itself_has_asked_for_nothing() -> None:
    found = Play(waits(1), cap=2).go("review", fine(2, reviewFeedback="[AUTO-APPROVED AT CAP] louder"))
    assert found == StoryReview("A", "Make A", "approved", 2, True, ("louder",), 1, 0, True)


def test_a_fix_that_the_harness_approves_at_the_cap_is_finished_without_another_review() -> None:
    play = Play(waits(1), cap=2)
    play.go("review", asks(2), verdict=BACK, checks=RED)
    done = play.go("review-fix", waits(2))
    assert (done.status, done.reviews, done.capped, done.made, done.finished) == ("approved", 2, True, 1, True)
    assert len(done.found) == 1


def test_what_was_done_or_reviewed_before_the_run_is_no_work_of_it() -> None:
    play = Play(fine(3), waits(2) | {"id": "B", "title": "Make B"})
    second = {"id": "B", "title": "Make B"}
    play.go("review", fine(3) | second, fine(3))
    done, other = {one.story: one for one in play.book.story_reviews()}["A"], play.book.story_reviews()[0]
    assert (done.reviews, done.made, done.finished) == (3, 0, False)
    assert (other.story, other.reviews, other.made, other.finished) == ("B", 3, 1, True)


def test_a_story_that_was_done_before_and_is_only_looked_at_again_is_not_finished_by_the_run() -> None:
    play = Play(fine(2))
    play.book.apply_verdict(play.turn("review", fine(2), taken=False), PASSED)
    assert play.first == StoryReview("A", "Make A", "approved", 2)


def test_checks_that_take_an_approval_back_ask_for_changes_without_a_review() -> None:
    play = Play(fine(2))
    play.book.apply_verdict(play.turn("review", fine(2), checks=RED, taken=False), BACK)
    assert (play.first.status, play.first.made, play.first.requested) == ("changes_requested", 0, 1)
    play.go("review-fix", waits(2))
    assert play.go("review", fine(3)).finished


def test_without_reviews_what_passes_is_done() -> None:
    play = Play(story(), skip_review=True)
    assert play.go("implement", story(passes=True)) == StoryReview("A", "Make A", "passes", finished=True)
    left = Play(waits(1), skip_review=True).go("implement", waits(1, passes=True))
    assert (left.status, left.made, left.finished) == ("passes", 0, True)


def test_what_was_counted_outlives_a_crash() -> None:
    play = Play(waits())
    play.go("review", asks(1), verdict=BACK)
    before = play.book.story_reviews()
    play.crash()
    assert play.book.story_reviews() == before
    play.go("review-fix", waits(1))
    assert play.go("review", asks(2, "more"), verdict=BACK).found == ("louder", "more")


def test_a_note_of_an_earlier_version_is_understood() -> None:
    play = Play(waits())
    play.go("review", asks(1), verdict=BACK)
    note = json.loads(play.shelf.notes[STORY_MEMORY_NOTE])
    del note["tally"]
    play.shelf.notes[STORY_MEMORY_NOTE] = json.dumps(note)
    play.crash()
    assert play.first == StoryReview("A", "Make A", "changes_requested", 1)
    play.go("review-fix", waits(1))
    assert play.go("review", fine(2)) == StoryReview("A", "Make A", "approved", 2, made=1, finished=True)


def test_a_run_that_could_not_read_its_stories_has_none_to_tell_of() -> None:
    play = Play(story(priority="high"))
    with pytest.raises(Refused):
        play.book.read()
    assert play.book.story_reviews() == ()


def test_what_is_kept_of_a_story_is_bounded_and_no_word_is_halved() -> None:
    play = Play(waits(title="t " * MAX_TITLE_CHARS), cap=99)
    for count in range(1, MAX_FINDINGS + 4):
        play.go(
            "review", asks(count, f"{count} " + "secret " * 5000 + "end", title="t " * MAX_TITLE_CHARS), verdict=BACK
        )
        play.go("review-fix", waits(count, title="t " * MAX_TITLE_CHARS))
    found = play.first
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
    play = Play(waits() | {"id": "is"})
    play.go("review", asks(1) | {"id": "is"}, verdict=BACK)
    play.crash()
    assert (play.first.story, play.first.requested) == ("is", 1)
    assert summarize_reviews(play.book._remembered()) == play.book.story_reviews()


@pytest.mark.parametrize("checks", [GREEN, RED], ids=["green", "red"])
@pytest.mark.parametrize("wrote", [fine(1), asks(1)], ids=["approves", "asks"])
@pytest.mark.parametrize("verdict", [PASSED, BACK, RETRY], ids=["passed", "sent-back", "retry"])
def test_a_review_that_a_limit_kept_from_being_judged_counts_once_when_it_is(
    checks: CheckReport, wrote: Story, verdict: Verdict
) -> None:
    once, stopped = Play(waits()), Play(waits())
    once.book.apply_verdict(once.turn("review", wrote, checks=checks), verdict)
    facts = stopped.turn("review", wrote, checks=checks)
    stopped.book.apply_verdict(facts, NOT_JUDGED)
    assert stopped.first == StoryReview("A", "Make A", "needs_review")
    stopped.crash()
    stopped.book.apply_verdict(facts, verdict)
    assert (stopped.first, stopped.book.document) == (once.first, once.book.document)
