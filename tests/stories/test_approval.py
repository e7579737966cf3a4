"""What the harness makes of stories, and that no way of writing leads around a review."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.stories.review import (
    APPROVED_AT_CAP,
    approval_concerns,
    check_invariants,
    check_not_weakened,
    check_transitions,
    settle_story,
)
from ralphproof.stories.schema import (
    APPROVED,
    CHANGES_REQUESTED,
    FIX,
    IMPLEMENT,
    MODES,
    NEEDS_REVIEW,
    REVIEW,
    REVIEW_FIELDS,
    STATUSES,
    parse_stories,
    review_snapshot,
    serialize_stories,
    validate_stories,
)
from tests.stories.story_documents import A, B, C, Document, Story, approved, document, requested, story, submitted

RED = "make test failed (exit code 1):\n1 failed"
CAP = 3


def fields(one: Story) -> tuple[bool, str | None, int, str]:
    return one["passes"], one["reviewStatus"], one["reviewCount"], one["reviewFeedback"]


@pytest.mark.parametrize(
    ("mode", "before", "written", "red", "made"),
    [
        # Green: what was written stands. Who submits a story has no say in its review.
        (IMPLEMENT, story(), submitted(), "", (False, NEEDS_REVIEW, 0, "")),
        (IMPLEMENT, story(), submitted(reviewFeedback="all fine"), "", (False, NEEDS_REVIEW, 0, "")),
        (REVIEW, submitted(), approved(), "", (True, APPROVED, 1, "")),
        (REVIEW, submitted(), requested(), "", (False, CHANGES_REQUESTED, 1, "Mend line 3.")),
        (FIX, requested(), submitted(count=1, reviewFeedback="Mend line 3."), "", (False, NEEDS_REVIEW, 1, "")),
        # Red: whoever implements goes back, a review becomes a request with the output.
        (IMPLEMENT, story(), submitted(), RED, (False, None, 0, "")),
        (FIX, requested(), submitted(count=1), RED, (False, CHANGES_REQUESTED, 1, "Mend line 3.")),
        (REVIEW, submitted(), approved(), RED, (False, CHANGES_REQUESTED, 1, RED)),
        (REVIEW, submitted(), approved(reviewFeedback="nice"), RED, (False, CHANGES_REQUESTED, 1, RED)),
        (REVIEW, submitted(), requested(), RED, (False, CHANGES_REQUESTED, 1, f"Mend line 3.\n\n{RED}")),
        # At the cap the harness decides, if it is green.
        (REVIEW, submitted(count=2), requested(count=3), "", (True, APPROVED, 3, f"{APPROVED_AT_CAP} Mend line 3.")),
        (REVIEW, submitted(count=2), requested(count=3), RED, (False, CHANGES_REQUESTED, 3, f"Mend line 3.\n\n{RED}")),
        (FIX, requested(count=3), submitted(count=3), "", (True, APPROVED, 3, f"{APPROVED_AT_CAP} Mend line 3.")),
        (FIX, requested(count=3), submitted(count=3), RED, (False, CHANGES_REQUESTED, 3, "Mend line 3.")),
        (
            REVIEW,
            submitted(count=2),
            approved(count=3, reviewFeedback=f"{APPROVED_AT_CAP} slow"),
            "",
            (True, APPROVED, 3, f"{APPROVED_AT_CAP} slow"),
        ),
        (
            REVIEW,
            submitted(count=2),
            approved(count=3, reviewFeedback=f" {APPROVED_AT_CAP} slow"),
            RED,
            (False, CHANGES_REQUESTED, 3, f"slow\n\n{RED}"),
        ),
        # A count over the cap, which another cap once allowed, does not grow while it is red.
        (REVIEW, submitted(count=3), approved(count=4), RED, (False, CHANGES_REQUESTED, 3, RED)),
        (REVIEW, submitted(count=7), approved(count=8), RED, (False, CHANGES_REQUESTED, 7, RED)),
        (REVIEW, submitted(count=7), requested(count=8), "", (True, APPROVED, 8, f"{APPROVED_AT_CAP} Mend line 3.")),
        # One that was implemented anew has to be reviewed, however often it was before.
        (IMPLEMENT, story(reviewCount=3), submitted(count=3), "", (False, NEEDS_REVIEW, 3, "")),
        # Without reviews a story passes by its agent's word, if it is green.
        (IMPLEMENT, story(), story(passes=True, notes="n"), "", (True, None, 0, "")),
        (IMPLEMENT, story(), story(passes=True, notes="n"), RED, (False, None, 0, "")),
    ],
)
def test_a_story_after_it_was_judged(
    mode: str, before: Story, written: Story, red: str, made: tuple[bool, str | None, int, str]
) -> None:
    assert fields(settle_story(written, before, mode, stands=True, red=red, cap=CAP)) == made


@pytest.mark.parametrize("red", ["", RED])
@pytest.mark.parametrize(
    ("mode", "before", "written"),
    [
        (IMPLEMENT, story(), submitted()),
        (REVIEW, submitted(count=2), approved(count=3)),
        (REVIEW, submitted(count=2), requested(count=3)),
        (FIX, requested(count=3), submitted(count=3)),
    ],
)
def test_what_does_not_stand_is_as_before_but_for_what_else_was_written(
    mode: str, before: Story, written: Story, red: str
) -> None:
    made = settle_story(written | {"notes": "tried"}, before, mode, stands=False, red=red, cap=CAP)
    assert fields(made) == fields(before)
    assert made["notes"] == "tried"


@pytest.mark.parametrize(
    ("mode", "before", "written", "made"),
    [
        (REVIEW, submitted(count=2), requested(count=3), (False, CHANGES_REQUESTED, 3, "Mend line 3.")),
        (FIX, requested(count=3), submitted(count=3), (False, NEEDS_REVIEW, 3, "")),
        (
            REVIEW,
            submitted(count=2),
            approved(count=3, reviewFeedback=f"{APPROVED_AT_CAP} slow"),
            (False, CHANGES_REQUESTED, 3, "slow"),
        ),
        (REVIEW, submitted(count=2), approved(count=3), (True, APPROVED, 3, "")),
    ],
)
def test_where_the_cap_is_a_failure_nobody_approves_because_of_it(
    mode: str, before: Story, written: Story, made: tuple[bool, str | None, int, str]
) -> None:
    assert fields(settle_story(written, before, mode, True, "", CAP, approve=False)) == made


def test_an_approval_at_the_cap_without_a_concern_still_says_why_it_was_refused() -> None:
    written = approved(count=3, reviewFeedback=APPROVED_AT_CAP)
    made = settle_story(written, submitted(count=2), REVIEW, True, "", CAP, approve=False)
    assert made["reviewFeedback"] != ""
    assert check_invariants(document(made), CAP) == ()


def test_what_the_harness_approves_is_documented() -> None:
    made = settle_story(requested(count=3), submitted(count=2), REVIEW, True, "", CAP)
    assert made["notes"] == "Approved by the harness at the review cap."
    kept = settle_story(requested(count=3, notes="mine"), submitted(count=2), REVIEW, True, "", CAP)
    assert kept["notes"] == "mine"


def test_what_was_approved_at_the_cap_is_a_concern() -> None:
    stories = (
        approved(A, reviewFeedback=f" {APPROVED_AT_CAP} slow\non Mondays "),
        approved(B, reviewFeedback="nice"),
        requested(C, reviewFeedback=f"{APPROVED_AT_CAP} not approved"),
        approved("US-004", reviewFeedback=APPROVED_AT_CAP),
    )
    assert approval_concerns(document(*stories)) == (
        f"story {A} was approved at the review cap: slow\non Mondays",
        "story US-004 was approved at the review cap: its review says no more",
    )


# No way around


words = st.sampled_from(["", "x", " ", APPROVED_AT_CAP, f"{APPROVED_AT_CAP} slow", "Mend line 3."])
changes = st.fixed_dictionaries(
    {},
    optional={
        "passes": st.booleans(),
        "reviewStatus": st.sampled_from(STATUSES),
        "reviewCount": st.integers(0, CAP + 3),
        "reviewFeedback": words,
        "notes": st.sampled_from(["", "n"]),
        "dependsOn": st.lists(st.sampled_from([A, B, C]), max_size=2),
        "acceptanceCriteria": st.lists(st.sampled_from(["US-001 works", "x"]), max_size=2),
        "priority": st.integers(0, 3),
    },
)
# What an agent does to its own story that knows the rules; a review says one of three things.
SUBMIT: dict[str, Any] = {"reviewStatus": NEEDS_REVIEW, "reviewFeedback": ""}
VERDICTS: dict[str, dict[str, Any]] = {
    "approve": {"reviewStatus": APPROVED, "passes": True, "notes": "n"},
    "request": {"reviewStatus": CHANGES_REQUESTED, "reviewFeedback": "Mend line 3."},
    "approve at the cap": {
        "reviewStatus": APPROVED,
        "passes": True,
        "notes": "n",
        "reviewFeedback": f"{APPROVED_AT_CAP} slow",
    },
}
wishes = st.sampled_from([*VERDICTS])
edits = st.dictionaries(st.sampled_from([A, B, C, "own"]), changes, max_size=2)
honest = st.tuples(wishes, st.just({}), st.just(""), st.just(True), st.booleans(), st.just(True))
others = st.tuples(
    wishes,
    edits,
    st.sampled_from(["", "", "", "nothing", "approve anyway", "gone", "new", "renamed", "swapped"]),
    st.booleans(),  # whether its verdict stands
    st.booleans(),  # whether the checks are red
    st.booleans(),  # whether the cap is no failure
)
turns = honest | honest | others
Turn = tuple[str, dict[str, dict[str, Any]], str, bool, bool, bool]


def written(good: Document, mode: str, own: str, turn: Turn) -> Document:
    """What an agent leaves in the file."""
    wish, edits, more, *_ = turn
    stories = {one["id"]: dict(one) for one in good["userStories"]}
    if more != "nothing":
        stories[own] |= VERDICTS[wish] if mode == REVIEW or more == "approve anyway" else SUBMIT
        stories[own]["reviewCount"] += mode == REVIEW
    for name, edit in edits.items():
        stories.get(own if name == "own" else name, {}).update(edit)
    found = list(stories.values())
    if more == "gone":
        found.pop()
    if more == "new":
        found.append(story("US-009", **edits.get("own", {})))
    if more == "renamed":
        found[0]["id"] = "US-010"
    if more == "swapped":
        found.reverse()
    return good | {"userStories": found}


def mode_of(good: Document) -> str:
    """What an iteration is for: fixes before reviews, reviews before new work."""
    found = {one["reviewStatus"] for one in good["userStories"]}
    return FIX if CHANGES_REQUESTED in found else REVIEW if NEEDS_REVIEW in found else IMPLEMENT


def chosen(good: Document, mode: str) -> str | None:
    """The story of an iteration in this mode."""
    status = {IMPLEMENT: None, REVIEW: NEEDS_REVIEW, FIX: CHANGES_REQUESTED}[mode]
    names = [one["id"] for one in good["userStories"] if one["reviewStatus"] == status]
    return names[0] if names else None


def one_of(found: Document, name: str) -> Story:
    return next(one for one in found["userStories"] if one["id"] == name)


@settings(max_examples=300, deadline=None)
@given(st.lists(turns, max_size=20))
def test_no_row_of_legal_turns_passes_a_story_outside_a_review_or_the_cap(row: list[Turn]) -> None:
    good = document(story(A), story(B, dependsOn=[A]), submitted(C, 1))
    for turn in row:
        mode = mode_of(good)
        own = chosen(good, mode)
        if own is None:
            assert all(one["passes"] for one in good["userStories"])
            return
        before, left = review_snapshot(good), parse_stories(serialize_stories(written(good, mode, own, turn)))
        assert isinstance(left, dict)
        if (
            validate_stories(left)
            or check_transitions(before, left, mode, CAP, own)
            or check_invariants(left, CAP, before)
        ):
            continue  # put back as a whole
        if check_not_weakened(good, left):
            continue
        *_, stands, is_red, approve = turn
        made = settle_story(one_of(left, own), one_of(good, own), mode, stands, RED if is_red else "", CAP, approve)
        now = left | {"userStories": [made if one["id"] == own else one for one in left["userStories"]]}
        holds(good, now, mode, own, stands and not is_red)
        good = now


def holds(good: Document, now: Document, mode: str, own: str, green: bool) -> None:
    """What is true after every turn that was taken over."""
    known = {one["id"]: one for one in good["userStories"]}
    assert (
        validate_stories(now)
        == check_invariants(now, CAP, review_snapshot(good))
        == check_not_weakened(good, now)
        == ()
    )
    assert set(known) <= {one["id"] for one in now["userStories"]}
    for one in now["userStories"]:
        was = known.get(one["id"], story(one["id"]))
        if one["id"] != own:
            assert fields(one)[:3] == fields(was)[:3]
        elif one["passes"]:
            assert green
            assert was["reviewStatus"] == {REVIEW: NEEDS_REVIEW, FIX: CHANGES_REQUESTED}[mode]
            reviewed = one["reviewCount"] == was["reviewCount"] + 1
            at_the_cap = one["reviewCount"] >= CAP and one["reviewFeedback"].startswith(APPROVED_AT_CAP)
            assert reviewed if mode == REVIEW else at_the_cap
        assert one["reviewCount"] - was["reviewCount"] in ((0, 1) if mode == REVIEW and one["id"] == own else (0,))


@pytest.mark.parametrize(
    ("verdicts", "iterations"),
    [
        (["approve"], 2),
        (["request", "approve"], 4),
        (["request", "request", "request"], 6),  # the harness approves at the cap
        (["request", "request", "approve at the cap"], 6),
    ],
)
def test_the_ways_that_are_meant_lead_to_the_end(verdicts: list[str], iterations: int) -> None:
    good, said, taken = document(story(A)), iter(verdicts), 0
    while not one_of(good, A)["passes"]:
        mode, before = mode_of(good), review_snapshot(good)
        left = written(good, mode, A, (next(said) if mode == REVIEW else "approve", {}, "", True, False, True))
        assert (
            *check_transitions(before, left, mode, CAP, A),
            *check_invariants(left, CAP, before),
            *check_not_weakened(good, left),
        ) == ()
        made = settle_story(one_of(left, A), one_of(good, A), mode, True, "", CAP)
        holds(good, left | {"userStories": [made]}, mode, A, green=True)
        good, taken = left | {"userStories": [made]}, taken + 1
    assert taken == iterations


states = st.sampled_from([story, submitted, requested, approved])


@settings(max_examples=300, deadline=None)
@given(
    states, st.integers(0, CAP + 2), changes, changes, st.sampled_from(MODES), st.booleans(), st.integers(1, CAP),
    st.booleans(),
)  # fmt: skip
def test_nothing_is_approved_by_a_red_check(
    make: Any, count: int, earlier: dict[str, Any], later: dict[str, Any], mode: str, stands: bool, cap: int, ok: bool
) -> None:
    before = make(A) | {"reviewCount": count} | earlier
    made = settle_story(before | later, before, mode, stands, RED, cap, ok)
    if mode == REVIEW and stands:
        assert fields(made)[:2] == (False, CHANGES_REQUESTED)
        assert RED in made["reviewFeedback"]
    else:
        assert {name: made[name] for name in REVIEW_FIELDS} == {name: before[name] for name in REVIEW_FIELDS}
