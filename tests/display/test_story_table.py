"""The stories of a run as people read them: aligned, bounded, and harmless whatever they are called."""

from __future__ import annotations

from ralphproof.display.console import MAX_STORIES, story_table
from ralphproof.display.terminal import YELLOW
from ralphproof.engine.outcome import StoryReview

CYCLE = (
    StoryReview(
        "US-001", "Say hello", "approved", 2, found=("louder\nplease", "more"), made=2, requested=2, finished=True
    ),
    StoryReview("US-002", "Say more", "approved", 5, True, ("never mind",), 5, 4, True),
    StoryReview("US-10", "Wave", "changes_requested", 1, made=1, requested=1),
    StoryReview("US-11", "Bow", "needs_review"),
    StoryReview("US-12", "Leave", "open"),
    StoryReview("US-13", "Stay", "passes", finished=True),
)


def lines(*stories: StoryReview, found: bool = False) -> list[str]:
    return [line for line, _ in story_table(stories, found=found)]


def test_every_story_has_a_line_with_its_status_and_reviews() -> None:
    assert lines(*CYCLE) == [
        "Stories: 3 of 6 done; 8 reviews in this run; changes requested 7 times; "
        "1 approved at the review cap and may need manual attention",
        "  US-001  approved             2 reviews  Say hello",
        "  US-002  APPROVED AT THE CAP  5 reviews  Say more",
        "  US-10   changes requested    1 review   Wave",
        "  US-11   needs review         0 reviews  Bow",
        "  US-12   open                 0 reviews  Leave",
        "  US-13   done, not reviewed   0 reviews  Stay",
    ]


def test_what_was_approved_at_the_cap_stands_out() -> None:
    coloured = [line for line, colour in story_table(CYCLE) if colour == YELLOW]
    assert [line[:8] for line in coloured] == ["Stories:", "  US-002"]
    assert not any(colour for _, colour in story_table(CYCLE[:1]))


def test_what_was_asked_for_stands_below_its_story_where_it_is_wanted() -> None:
    shown = lines(*CYCLE[:2], found=True)
    assert shown[2:4] == ["      asked for: louder please", "      asked for: more"]
    assert shown[5] == "      asked for: never mind"
    assert "asked for" not in "".join(lines(*CYCLE[:2]))


def test_what_did_not_happen_is_not_told() -> None:
    assert lines(CYCLE[4])[0] == "Stories: 0 of 1 done"
    assert lines() == []


def test_very_many_stories_are_cut_and_counted() -> None:
    shown = lines(*[StoryReview(f"S{number}", "t", "open") for number in range(MAX_STORIES + 7)])
    assert len(shown) == MAX_STORIES + 2
    assert (shown[0], shown[-1]) == (f"Stories: 0 of {MAX_STORIES + 7} done", "  and 7 more")


def test_no_text_of_others_moves_the_cursor_breaks_its_line_or_shows_a_secret() -> None:
    evil = "\x1b]0;owned\x07a\nb\x1b[2J hunter2 \u202e" + "x" * 1000
    one = StoryReview(f"US {evil}", evil, "approved", 1, True, (evil,))
    for line, _ in story_table((one,), lambda text: text.replace("hunter2", "***"), found=True):
        assert line.isprintable()
        assert "hunter2" not in line
        assert len(line) < 200
    assert any("*** " in line for line, _ in story_table((one,), lambda text: text.replace("hunter2", "***")))
