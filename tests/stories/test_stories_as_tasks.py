"""The stories of a tasks.json become tasks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ralphproof.engine.plan import ExternalVerification, MultiStageVerification, SemanticVerification, VerificationPart
from ralphproof.tasks.draft import task_from_draft, validate_draft
from ralphproof.tasks.files import ParsedTask, parse_tasks
from tests.tasks.samples import file


def story(**more: Any) -> dict[str, Any]:
    (template,) = json.loads(file("tasks-template.json"))["userStories"]
    return {**template, "title": "Filter", "acceptanceCriteria": ["Has All, Active, Done"], **more}


def listed(*stories: Any, **more: Any) -> tuple[ParsedTask, ...]:
    document = {**json.loads(file("tasks-template.json")), "project": "todo-app", "userStories": list(stories), **more}
    return parse_tasks(json.dumps(document).encode(), "tasks.json")


def test_a_story_becomes_a_task() -> None:
    told = story(description="As a user I filter by state", priority=3, dependsOn=["US-000"], notes="see api.py",
                 reviewStatus="changes_requested", reviewCount=2, reviewFeedback="no Done")  # fmt: skip
    (found,) = listed(told)
    assert found.draft is not None
    assert validate_draft(found.draft) == ()
    made = found.draft
    assert (made.id, made.spec_id, made.title, made.status) == ("US-001", "todo-app", "Filter", "todo")
    assert (made.description, made.priority, made.dependencies) == ("As a user I filter by state", 3, ("US-000",))
    assert made.completion == {
        "outcome": "As a user I filter by state", "acceptance_criteria": ["Has All, Active, Done"]
    }  # fmt: skip
    assert made.metadata == {
        "reviewStatus": "changes_requested", "reviewCount": 2, "reviewFeedback": "no Done", "notes": "see api.py",
        "branchName": "ralph/feature-name",
    }  # fmt: skip


@pytest.mark.parametrize("description", ["", " ", None, "x" * 2001, "a\x07b"])
def test_the_title_is_the_outcome_where_the_description_cannot_be(description: Any) -> None:
    (found,) = listed(story(description=description))
    assert found.draft is not None
    assert found.draft.completion is not None
    assert found.draft.completion["outcome"] == "Filter"
    assert validate_draft(found.draft) == ()


@pytest.mark.parametrize(
    ("passes", "review", "status"),
    [(True, "approved", "done"), (True, None, "done"), (False, None, "todo"), (False, "needs_review", "todo")],
)
def test_what_passed_is_done(passes: bool, review: str | None, status: str) -> None:
    (found,) = listed(story(passes=passes, reviewStatus=review))
    assert found.draft is not None
    assert found.draft.status == status
    assert task_from_draft(found.draft).done is (status == "done")


def test_verify_commands_are_checks_of_coder_tester_and_qa() -> None:
    (found,) = listed(story(), verifyCommands=["make test", "make lint"])
    assert found.draft is not None
    assert validate_draft(found.draft) == ()
    task = task_from_draft(found.draft)
    both = (
        VerificationPart("verify_1", ExternalVerification("make test")),
        VerificationPart("verify_2", ExternalVerification("make lint")),
    )
    judged = VerificationPart("acceptance_criteria", SemanticVerification(("Has All, Active, Done",)))
    assert {stage: criteria.how for stage, criteria in task.criteria} == {
        "coder": MultiStageVerification(both), "tester": MultiStageVerification(both),
        "qa": MultiStageVerification((*both, judged)),
    }  # fmt: skip


def test_one_verify_command_is_a_check_by_itself() -> None:
    (found,) = listed(story(), verifyCommands=["make test"])
    assert found.draft is not None
    criteria = task_from_draft(found.draft).criteria_for("coder")
    assert criteria is not None
    assert (criteria.promise, criteria.how) == ("IMPLEMENTATION_COMPLETE", ExternalVerification("make test"))


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"title": ""}, "title is blank"),
        ({"acceptanceCriteria": []}, "acceptanceCriteria is empty"),
        ({"acceptanceCriteria": None}, "acceptanceCriteria is missing"),
        ({"priority": "1"}, 'priority must be a whole number from -2147483648 to 2147483647, not "1"'),
        ({"passes": 1}, "passes must be true or false, not 1"),
        ({"reviewStatus": "aproved"}, "reviewStatus must be one of needs_review, changes_requested, approved, not "
                                      '"aproved"; did you mean approved?'),
        ({"reviewCount": -1}, "reviewCount must be a whole number from 0 to 1000000, not -1"),
        ({"dependsOn": "US-002"}, 'dependsOn must be a list, not "US-002"'),
        ({"notes": 3}, "notes must be text, not 3; put it in quotes"),
    ],
)  # fmt: skip
def test_a_malformed_story_is_told_in_the_words_of_its_file(change: dict[str, Any], wrong: str) -> None:
    good, found = listed(story(id="US-000"), story(**change))
    assert good.draft is not None
    assert (found.draft, found.name) == (None, "US-001")
    assert found.problems == (f"US-001: userStories[1].{wrong}",)


@pytest.mark.parametrize(
    ("passes", "status"), [(True, "needs_review"), (True, "changes_requested"), (False, "approved")]
)
def test_a_story_that_passes_is_approved(passes: bool, status: str) -> None:
    (found,) = listed(story(passes=passes, reviewStatus=status))
    assert found.problems == (
        "US-001: userStories[0].passes and userStories[0].reviewStatus disagree; only what is approved passes",
    )  # fmt: skip


def test_unknown_keys_and_what_is_no_story_are_told() -> None:
    file_wide, first, second = listed(story(acceptance=1), "x", verifyCommands=[" "], verifyComands=[])
    assert file_wide.problems == (
        "tasks.json: unknown key verifyComands; did you mean verifyCommands?", "tasks.json: verifyCommands[0] is blank",
    )  # fmt: skip
    assert first.problems == ("US-001: unknown key userStories[0].acceptance; did you mean acceptanceCriteria?",)
    assert second.problems == ('tasks.json: userStories[1] must be a mapping, not "x"',)
    assert listed(userStories={})[0].problems == ("tasks.json: userStories must be a list",)


def test_the_template_itself_asks_to_be_filled_in() -> None:
    (found,) = parse_tasks(file("tasks-template.json"), "tasks.json")
    assert len(found.problems) == 2
