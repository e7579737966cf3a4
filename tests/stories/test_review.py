"""The rules of a review cycle: which states stories may be in, and what each mode may do to them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from ralphproof.stories.review import (
    APPROVED_AT_CAP,
    MODE_INSTRUCTIONS,
    check_invariants,
    check_not_weakened,
    check_stories_kept,
    check_transitions,
    check_unchanged,
    check_without_review,
)
from ralphproof.stories.schema import FIX, IMPLEMENT, MAX_NAMED, MODES, REVIEW, review_snapshot, validate_stories
from tests.stories.story_documents import A, B, C, Document, Story, approved, document, requested, story, submitted

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
NEW = "New stories start incomplete: passes=false, reviewStatus=null, reviewCount=0."
STAY = "Stories may be added, split and reordered, never deleted or renamed."


# Check 2


@pytest.mark.parametrize("status", [None, "needs_review", "changes_requested"])
def test_what_passes_is_approved(status: str | None) -> None:
    shown = "null" if status is None else status
    found = check_invariants(document(story(passes=True, reviewStatus=status, reviewFeedback="x", notes="n")))
    assert found == (f"Story {A} has passes=true but reviewStatus is '{shown}', not 'approved'. {ONLY_REVIEWS}",)


def test_an_approved_story_that_passes_is_well() -> None:
    assert check_invariants(document(approved(A), submitted(B), requested(C), story("US-004"))) == ()


def test_what_is_approved_passes() -> None:
    (found,) = check_invariants(document(approved(passes=False)))
    assert "out of sync" in found
    assert found.startswith(f"Story {A} has reviewStatus 'approved' but passes=false")


@pytest.mark.parametrize("feedback", ["", "  \n"])
def test_changes_are_requested_with_feedback(feedback: str) -> None:
    (found,) = check_invariants(document(requested(reviewFeedback=feedback)))
    assert "feedback required" in found


@pytest.mark.parametrize(
    ("count", "cap", "before", "fault"),
    [
        (6, 5, None, False),
        (7, 5, None, True),
        (2, 1, None, False),
        (3, 1, None, True),
        (8, 5, 7, False),  # another cap allowed it once
        (9, 5, 7, True),
        (10**80, 5, None, True),
    ],
)
def test_a_count_far_over_the_cap_is_a_damaged_one(count: int, cap: int, before: int | None, fault: bool) -> None:
    known = None if before is None else review_snapshot(document(submitted(count=before)))
    found = check_invariants(document(submitted(count=count)), cap, known)
    assert [one.startswith(f"Story {A} has reviewCount {str(count)[:77]}") for one in found] == [True] * fault
    assert all(len(one) < 300 for one in found)


# Check 2.5


def after(before: Document, **changes: dict[str, Any]) -> Document:
    """The document with fields of its stories changed; `A` stands for the first one's id, and so on."""
    by = {{"A": A, "B": B, "C": C}[name]: fields for name, fields in changes.items()}
    return before | {"userStories": [one | by.get(one["id"], {}) for one in before["userStories"]]}


APPROVAL = {"passes": True, "reviewStatus": "approved", "reviewCount": 1, "notes": "Done."}
REJECTION = {"reviewStatus": "changes_requested", "reviewCount": 1, "reviewFeedback": "Mend line 3."}


@pytest.mark.parametrize(
    ("mode", "before", "changes"),
    [
        (IMPLEMENT, (story(),), {}),
        (IMPLEMENT, (story(),), {"A": {"reviewStatus": "needs_review"}}),
        (IMPLEMENT, (story(),), {"A": {"reviewStatus": "needs_review", "priority": 9, "title": "other", "notes": "n"}}),
        (IMPLEMENT, (approved(A), story(B, dependsOn=[A])), {"B": {"reviewStatus": "needs_review"}}),
        (REVIEW, (submitted(),), {"A": APPROVAL}),
        (REVIEW, (submitted(),), {"A": REJECTION}),
        (REVIEW, (submitted(count=1),), {"A": APPROVAL | {"reviewCount": 2}}),
        (REVIEW, (submitted(count=1),), {"A": REJECTION | {"reviewCount": 2}}),
        (
            REVIEW,
            (submitted(count=4),),
            {"A": APPROVAL | {"reviewCount": 5, "reviewFeedback": f"{APPROVED_AT_CAP} slow"}},
        ),
        (FIX, (requested(),), {}),
        (FIX, (requested(),), {"A": {"reviewStatus": "needs_review", "reviewFeedback": ""}}),
    ],
)
def test_what_a_mode_is_for_is_legal(mode: str, before: tuple[Story, ...], changes: dict[str, dict[str, Any]]) -> None:
    first = document(*before)
    now = after(first, **changes)
    active = next(iter(changes), "A")
    for known in ("", {"A": A, "B": B}[active]):
        assert check_transitions(review_snapshot(first), now, mode, 5, known) == ()
    assert (
        validate_stories(now)
        == check_invariants(now, 5, review_snapshot(first))
        == check_not_weakened(first, now)
        == ()
    )


@pytest.mark.parametrize(
    ("before", "changes", "moves"),
    [
        (story(), {"passes": True}, ["passes false → true"]),
        (story(), {"reviewStatus": "approved"}, ['reviewStatus null → "approved"']),
        (story(), {"reviewCount": 1}, ["reviewCount 0 → 1"]),
        (story(), APPROVAL, ["passes false → true", 'reviewStatus null → "approved"', "reviewCount 0 → 1"]),
        (story(), {"reviewStatus": "changes_requested"}, ['reviewStatus null → "changes_requested"']),
        (submitted(), {"reviewStatus": None}, ['reviewStatus "needs_review" → null']),
        (submitted(), {"reviewStatus": "approved"}, ['reviewStatus "needs_review" → "approved"']),
        (requested(), {"reviewStatus": "needs_review"}, ['reviewStatus "changes_requested" → "needs_review"']),
        (approved(), {"passes": False}, ["passes true → false"]),
        (approved(count=3), {"reviewCount": 2}, ["reviewCount 3 → 2"]),
    ],
)
def test_an_implementer_neither_passes_nor_approves_nor_counts(
    before: Story, changes: dict[str, Any], moves: list[str]
) -> None:
    first = document(before)
    found = check_transitions(review_snapshot(first), after(first, A=changes), IMPLEMENT)
    assert found == tuple(NO_IMPLEMENT.format(A, move) for move in moves)


@pytest.mark.parametrize(
    ("before", "changes", "moves"),
    [
        (requested(), {"passes": True}, ["passes false → true"]),
        (requested(), {"reviewStatus": "approved"}, ['reviewStatus "changes_requested" → "approved"']),
        (requested(), {"reviewCount": 2}, ["reviewCount 1 → 2"]),
        (requested(), {"reviewStatus": "needs_review", "reviewCount": 0}, ["reviewCount 1 → 0"]),
        (requested(), {"reviewStatus": None}, ['reviewStatus "changes_requested" → null']),
        (story(), {"reviewStatus": "needs_review"}, ['reviewStatus null → "needs_review"']),
        (submitted(), {"reviewStatus": "approved"}, ['reviewStatus "needs_review" → "approved"']),
    ],
)
def test_who_fixes_hands_back_and_nothing_else(before: Story, changes: dict[str, Any], moves: list[str]) -> None:
    first = document(before)
    found = check_transitions(review_snapshot(first), after(first, A=changes), FIX)
    assert found == tuple(NO_FIX.format(A, move) for move in moves)


UNMOVED = "a review sets reviewStatus to approved or changes_requested, and it is unchanged"
WENT = "a review moves reviewStatus from needs_review to approved or changes_requested, and it went reviewStatus "


@pytest.mark.parametrize(
    ("before", "changes", "details"),
    [
        (submitted(), {}, ["review must increment reviewCount by 1, and approve or request changes"]),
        (submitted(), APPROVAL | {"reviewCount": 0}, ["review must increment reviewCount, and it is unchanged"]),
        (submitted(), REJECTION | {"reviewCount": 0}, ["review must increment reviewCount, and it is unchanged"]),
        (submitted(), APPROVAL | {"reviewCount": 2}, ["reviewCount must grow by exactly 1, and went 0 → 2"]),
        (submitted(count=3), APPROVAL | {"reviewCount": 2}, ["reviewCount must grow by exactly 1, and went 3 → 2"]),
        (submitted(), {"reviewCount": 1}, [UNMOVED]),
        (submitted(), {"passes": True}, ["review must increment reviewCount, and it is unchanged", UNMOVED]),
        (submitted(), {"reviewCount": 1, "reviewStatus": None}, [f'{WENT}"needs_review" → null']),
        (submitted(), APPROVAL | {"passes": False}, ["an approved story has passes=true"]),
        (submitted(), REJECTION | {"passes": True}, ["only an approved story passes, and passes false → true"]),
        (
            submitted(),
            REJECTION | {"reviewFeedback": " "},
            ["changes_requested needs feedback: feedback required in reviewFeedback"],
        ),
        (
            submitted(),
            APPROVAL | {"reviewFeedback": f"\n{APPROVED_AT_CAP} slow"},
            [f"{APPROVED_AT_CAP} is claimed at reviewCount 1, below the review cap of 5"],
        ),
        (story(), APPROVAL, [f'{WENT}null → "approved"']),
        (requested(), APPROVAL | {"reviewCount": 2}, [f'{WENT}"changes_requested" → "approved"']),
        (approved(), REJECTION | {"passes": False, "reviewCount": 2}, [f'{WENT}"approved" → "changes_requested"']),
    ],
)
def test_a_review_counts_itself_and_says_one_of_two_things(
    before: Story, changes: dict[str, Any], details: list[str]
) -> None:
    first = document(before)
    found = check_transitions(review_snapshot(first), after(first, A=changes), REVIEW)
    assert found == tuple(NO_REVIEW.format(A, detail) for detail in details)


def test_a_review_with_nothing_to_review_says_so() -> None:
    first = document(approved())
    assert NO_REVIEW.format("(none)", "review must")[:-1] in check_transitions(review_snapshot(first), first, REVIEW)[0]


def test_a_review_is_of_one_story() -> None:
    first = document(submitted(A), submitted(B))
    both = after(first, A=APPROVAL, B=APPROVAL)
    assert check_transitions(review_snapshot(first), both, REVIEW) == (
        NO_REVIEW.format(B, "review may only modify one story"),
    )
    assert check_transitions(review_snapshot(first), both, REVIEW, 5, B) == (
        NO_REVIEW.format(A, "review may only modify one story"),
    )
    other = after(first, B=APPROVAL)
    assert check_transitions(review_snapshot(first), other, REVIEW, 5, A) == (
        NO_REVIEW.format(B, f"this review is of story {A}"),
    )


@pytest.mark.parametrize(("mode", "make", "name"), [(IMPLEMENT, story, "Implement"), (FIX, requested, "Review-fix")])
def test_one_story_is_submitted_and_it_is_the_iterations_own(mode: str, make: Any, name: str) -> None:
    first = document(make(A), make(B))
    hand_in = {"reviewStatus": "needs_review"}
    assert check_transitions(review_snapshot(first), after(first, A=hand_in, B=hand_in), mode) == (
        f"{name} iterations may submit one story only, and {A}, {B} changed.",
    )
    assert check_transitions(review_snapshot(first), after(first, B=hand_in), mode, 5, A) == (
        f"This iteration's story is {A}; story {B} may not be submitted in it.",
    )
    assert check_transitions(review_snapshot(first), after(first, B=hand_in), mode, 5, B) == ()


@pytest.mark.parametrize("other", [story(A), submitted(A), requested(A)])
def test_what_depends_on_something_open_is_not_submitted(other: Story) -> None:
    first = document(other, story(B, dependsOn=[A]))
    assert check_transitions(review_snapshot(first), after(first, B={"reviewStatus": "needs_review"}), IMPLEMENT) == (
        f"Story {B} depends on {A}, and cannot be submitted before that is done.",
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("new", "wrong"),
    [
        (story(B, passes=True, notes="n"), "passes true"),
        (submitted(B), 'reviewStatus "needs_review"'),
        (story(B, reviewCount=3), "reviewCount 3"),
        (approved(B), 'passes true, reviewStatus "approved", reviewCount 1'),
    ],
)
def test_a_new_story_has_no_past(mode: str, new: Story, wrong: str) -> None:
    first = document(story(A))
    now = first | {"userStories": [*first["userStories"], new]}
    assert f"Story {B} is new and starts with {wrong}. {NEW}" in check_transitions(review_snapshot(first), now, mode)
    assert check_stories_kept(review_snapshot(first), now) == check_unchanged(review_snapshot(first), now) != ()


@pytest.mark.parametrize("mode", MODES)
def test_a_new_story_that_nobody_began_is_legal_in_every_mode(mode: str) -> None:
    first, changes = {
        IMPLEMENT: (document(story(A)), {}),
        REVIEW: (document(submitted(A)), APPROVAL),
        FIX: (document(requested(A)), {}),
    }[mode]
    now = after(first, A=changes)
    now = now | {"userStories": [story(C), *now["userStories"], story(B)]}
    assert check_transitions(review_snapshot(first), now, mode) == ()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("left", [[], [story(B)], [story(f"{A} ")]])
def test_no_story_vanishes_or_is_renamed(mode: str, left: list[Story]) -> None:
    first = document(submitted(A))
    now = first | {"userStories": left}
    assert f"Story {A} is gone. {STAY}" in check_transitions(review_snapshot(first), now, mode)
    assert f"Story {A} is gone. {STAY}" in check_stories_kept(review_snapshot(first), now)


def test_a_value_of_another_type_is_a_change_though_it_equals_the_old_one() -> None:
    first = document(submitted(count=1))
    assert (
        "reviewCount 1 → true"
        in check_transitions(review_snapshot(first), after(first, A={"reviewCount": True}), IMPLEMENT)[0]
    )


def test_without_a_turn_nothing_happens_to_stories() -> None:
    first = document(submitted(A), approved(B))
    assert check_unchanged(review_snapshot(first), after(first, A={"title": "other"})) == ()
    assert check_unchanged(review_snapshot(first), after(first, A={"reviewStatus": None})) == (
        f'Story {A} changed: reviewStatus "needs_review" → null.',
    )


def test_without_reviews_an_iteration_finishes_its_own_story_alone() -> None:
    first = document(story(A), story(B), approved(C))
    passed = {"passes": True, "notes": "n"}
    assert check_without_review(review_snapshot(first), after(first, A=passed), A) == ()
    assert check_without_review(review_snapshot(first), after(first, C={"passes": False}), A) == ()
    assert check_without_review(review_snapshot(first), after(first, A=passed, B=passed), A) == (
        f"This iteration's story is {A}; story {B} may not be finished in it.",
    )


@pytest.mark.parametrize(
    ("changes", "move"),
    [({"reviewStatus": "approved"}, 'reviewStatus null → "approved"'), ({"reviewCount": 1}, "reviewCount 0 → 1")],
)
def test_without_reviews_nobody_writes_of_one(changes: dict[str, Any], move: str) -> None:
    first = document(story(A))
    now = after(first, A={"passes": True, "notes": "n"} | changes)
    assert check_without_review(review_snapshot(first), now, A) == (f"Nobody reviews in this loop. Story {A}: {move}.",)


def test_not_more_is_told_than_anybody_reads() -> None:
    first = document(*(story(f"US-{number}") for number in range(100)))
    passed = first | {"userStories": [one | APPROVAL for one in first["userStories"]]}
    unsound = first | {"userStories": [one | {"passes": True} for one in first["userStories"]]}
    none = first | {"userStories": []}
    assert len(check_transitions(review_snapshot(first), passed, IMPLEMENT)) == MAX_NAMED
    assert (
        len(check_without_review(review_snapshot(first), passed, A))
        == len(check_unchanged(review_snapshot(first), passed))
        == MAX_NAMED
    )
    assert len(check_invariants(unsound)) == len(check_stories_kept(review_snapshot(first), none)) == MAX_NAMED


def test_every_mode_says_how_it_is_done() -> None:
    assert set(MODE_INSTRUCTIONS) == set(MODES)


# What no mode may do


CRITERIA = f"Story {A}: acceptance criteria may be added, never changed or removed."
ORDER = f"Story {A}: dependsOn may grow, nothing may be taken from it."
COMMANDS = "verifyCommands may not be changed during a loop: they say when the work is done."
WORDS = f"Story {A}: what its review wrote in reviewFeedback may grow, never be changed or removed."


@pytest.mark.parametrize(
    ("before", "changes", "faults"),
    [
        (story(acceptanceCriteria=["x", "y"]), {"acceptanceCriteria": ["y", "new", "x"]}, ()),
        (story(acceptanceCriteria=["x", "y"]), {"acceptanceCriteria": ["x"]}, (CRITERIA,)),
        (story(acceptanceCriteria=["x", "y"]), {"acceptanceCriteria": ["x", "y, or not"]}, (CRITERIA,)),
        (story(), {"acceptanceCriteria": []}, (CRITERIA,)),
        (story(dependsOn=[B]), {"dependsOn": []}, (ORDER,)),
        (story(dependsOn=[B]), {"dependsOn": [C]}, (ORDER,)),
        (story(dependsOn=[B]), {"dependsOn": [C, B]}, ()),
        (requested(), {"reviewFeedback": "Mend line 3. Line 4 too."}, ()),
        (requested(), {"reviewFeedback": "All is well."}, (WORDS,)),
        (requested(), {"reviewFeedback": "No need to: Mend line 3."}, (WORDS,)),
        (requested(), {"reviewStatus": "needs_review", "reviewFeedback": ""}, ()),
        (approved(reviewFeedback=f"{APPROVED_AT_CAP} slow"), {"reviewFeedback": "slow"}, (WORDS,)),
        (
            approved(reviewFeedback=f"{APPROVED_AT_CAP} slow"),
            {"reviewFeedback": f"once {APPROVED_AT_CAP} slow"},
            (WORDS,),
        ),
        (approved(reviewFeedback=f"{APPROVED_AT_CAP} slow"), {"reviewFeedback": f"{APPROVED_AT_CAP} slow"}, ()),
        (approved(), {"reviewFeedback": "nice"}, ()),
        (approved(), {"reviewFeedback": f"{APPROVED_AT_CAP} slow"}, (WORDS,)),
        (submitted(reviewFeedback="x"), {"reviewFeedback": ""}, ()),
    ],
)
def test_what_the_work_is_held_against_only_grows(
    before: Story, changes: dict[str, Any], faults: tuple[str, ...]
) -> None:
    first = document(before, story(B), story(C))
    assert check_not_weakened(first, after(first, A=changes)) == faults


def test_a_field_that_is_taken_away_is_one_that_is_emptied() -> None:
    first = document(story(dependsOn=[B]), story(B))
    now = after(first)
    del now["userStories"][0]["dependsOn"]
    del now["verifyCommands"]
    assert check_not_weakened(first, now) == (COMMANDS, ORDER)


@pytest.mark.parametrize("commands", [[], ["true"], ["make test", "true"], ["make test || true"]])
def test_verify_commands_stay_as_they_are(commands: list[str]) -> None:
    first = document()
    assert check_not_weakened(first, first | {"verifyCommands": commands}) == (COMMANDS,)


def test_no_commands_are_no_commands_however_that_is_said() -> None:
    first = document(verifyCommands=[])
    del first["verifyCommands"]
    assert check_not_weakened(first, first | {"verifyCommands": []}) == ()


@pytest.mark.parametrize(
    ("changes", "stuck"),
    [
        ({"A": {"dependsOn": [A]}}, f"{A}, {B}, {C}"),  # those wait for it
        ({"A": {"dependsOn": [B]}}, f"{A}, {B}, {C}"),
        ({"B": {"dependsOn": [A, C]}}, f"{B}, {C}"),
        ({"A": {"dependsOn": []}, "C": {"dependsOn": [A, B]}}, ""),
    ],
)
def test_stories_are_not_made_to_wait_for_each_other(changes: dict[str, Any], stuck: str) -> None:
    first = document(story(A), story(B, dependsOn=[A]), story(C, dependsOn=[B]))
    circle = f"dependsOn goes round in a circle, so that stories could never begin: {stuck}."
    assert check_not_weakened(first, after(first, **changes)) == ((circle,) if stuck else ())


def test_a_circle_that_was_there_before_is_nobodys_fault() -> None:
    first = document(story(A, dependsOn=[B]), story(B, dependsOn=[A]), story(C))
    assert check_not_weakened(first, first) == ()
    assert len(check_not_weakened(first, after(first, C={"dependsOn": [C]}))) == 1


def test_nobody_waits_for_what_is_done() -> None:
    first = document(approved(A), story(B, dependsOn=[A]))
    assert check_not_weakened(first, after(first, A={"dependsOn": [B]})) == ()


def test_a_story_that_a_turn_calls_done_is_not_done_yet() -> None:
    first = document(story(A), story(B, reviewStatus="needs_review"))
    assert (
        len(check_not_weakened(first, after(first, B={"dependsOn": [B], "passes": True, "reviewStatus": "approved"})))
        == 1
    )


def test_a_long_row_of_stories_is_judged_at_once() -> None:
    names = [f"US-{number}" for number in range(20_000)]
    row = document(*(story(name, dependsOn=[last]) for last, name in pairwise(names)), story("US-0"))
    assert check_not_weakened(row, row) == ()
