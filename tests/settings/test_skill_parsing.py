"""What a skill says of itself, what it lacks for a loop, and how a prompt is told with it."""

from __future__ import annotations

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.claim import ClaimRule, parse_claim
from ralphproof.engine.plan import Job, Stage, Task
from ralphproof.engine.prompt import Feedback, compose_prompt
from ralphproof.settings.skills import (
    Skill,
    claim_in_skill,
    criteria_in_skill,
    find_skills,
    markdown_section,
    missing_skill_parts,
    skill_advice,
    skill_template,
)

BODY = """# Title

## Ralph Integration

When executed in Ralph mode, this skill outputs:

<promise>COMPLETE</promise>

when ALL acceptance criteria are met.

## Completion Criteria

- [ ] All tests pass (npm test exit code 0)
- [x] Coverage >= 80%
- [ ] No TypeScript errors, and that means
  none at all

## Self-Correction

1. Read the output.
"""
READY = Skill("tdd", promise="COMPLETE", verification=("npm test",), criteria=("All pass",), body=BODY)
PACKAGED = {skill.name: skill for skill in find_skills("/nowhere").skills}
OWN = {name: skill for name, skill in PACKAGED.items() if name != "tasks"}  # which is for an answer, not for a loop


def told(skill: Skill, prompt: str, word: str = "") -> str:
    """The prompt of the first iteration."""
    stage = Stage("work", ClaimRule(word or skill.promise or "DONE"), template=skill_template(skill, word))
    return compose_prompt(Job(Task("1", prompt), stage), Feedback())


# What the text says


def test_promise_and_criteria_are_read_from_the_text() -> None:
    claim = claim_in_skill(BODY).claim
    assert claim is not None
    assert claim.word == "COMPLETE"
    assert criteria_in_skill(BODY) == (
        "All tests pass (npm test exit code 0)",
        "Coverage >= 80%",
        "No TypeScript errors, and that means none at all",
    )


@pytest.mark.parametrize(
    ("heading", "found"),
    [
        ("## Self-Correction", True),
        ("### 3. Self-Correction Pattern", True),
        ("## SELF CORRECTION ##", True),
        ("   # Self-correction", True),
        ("Self-Correction", False),
        ("##Self-Correction", False),
        ("## Correction", False),
        ("## Myself-Corrections", False),
        ("```\n## Self-Correction\n```", False),
    ],
)
def test_a_section_is_found_by_the_words_of_its_heading(heading: str, found: bool) -> None:
    assert bool(markdown_section(f"# A\n\n{heading}\n\ntext\n", "self correction")) is found


def test_a_section_ends_at_the_next_heading_as_high_and_not_in_a_fence() -> None:
    body = "# A\n## Self-Correction\none\n### deeper\ntwo\n```sh\n# a comment\n```\nthree\n## Next\nfour\n"
    assert markdown_section(body, "self correction") == "one\n### deeper\ntwo\n```sh\n# a comment\n```\nthree"


@pytest.mark.parametrize(
    ("body", "criteria"),
    [
        ("## Completion Criteria\n* one\n+ two\n1. three\n2) four\n", ("one", "two", "three", "four")),
        ("## Completion Criteria\n```\n- [ ] fenced\n```\n- [ ] real\n", ("real",)),
        ("## Completion Criteria\nwords alone\n", ()),
        ("## Criteria\n- [ ] elsewhere\n", ()),
        ("## Completion Criteria\n- one\n\n## Next\n- two\n", ("one",)),
    ],
)
def test_criteria_are_the_items_of_their_list(body: str, criteria: tuple[str, ...]) -> None:
    assert criteria_in_skill(body) == criteria


# What it lacks


def test_a_skill_that_has_all_is_ready() -> None:
    assert missing_skill_parts(READY) == ()


@pytest.mark.parametrize(
    ("change", "lack"),
    [
        ({"promise": ""}, "no completion promise"),
        ({"criteria": ()}, "no success criteria"),
        ({"body": "# Title"}, "no way on after a failure"),
        ({"body": "## Self-Correction\n\n## Next\nx"}, "no way on after a failure"),
        ({"verification": ()}, "no verification"),
    ],
)
def test_each_thing_that_is_missing_is_named(change: dict[str, object], lack: str) -> None:
    lacks = missing_skill_parts(replace(READY, **change))
    assert [line.partition(":")[0] for line in lacks] == [lack]


def test_a_skill_that_says_nothing_lacks_everything() -> None:
    assert len(missing_skill_parts(Skill("empty"))) == 4


def test_a_promise_that_no_agent_could_copy_is_pointed_out() -> None:
    body = "## Ralph Integration\n\n```\n<promise>X</promise>\n```\n"
    assert claim_in_skill(body).claim is None
    assert "inside a code fence" in missing_skill_parts(Skill("x", body=body))[0]


def test_a_tag_elsewhere_in_the_text_promises_nothing() -> None:
    assert claim_in_skill("# X\n\n<promise>STUCK</promise>\n\n## Ralph Integration\n\nNone.\n").claim is None


# How it is told


def test_the_prompt_stands_behind_the_skill_as_it_is() -> None:
    prompt = "Make {this} work.\n\n{prompt} and {0} stay."
    assert told(READY, prompt) == f"{BODY.strip()}\n\n## Task\n\n{prompt}"


def test_a_skill_that_speaks_of_the_placeholder_does_not_repeat_the_prompt() -> None:
    skill = Skill("x", body="Write {prompt} here, and {pro{prompt}mpt}.", promise="OK")
    template = skill_template(skill)
    assert template.count("{prompt}") == 1
    assert told(skill, "TASK").count("TASK") == 1


def test_a_skill_without_a_text_tells_the_task_alone() -> None:
    assert skill_template(Skill("x")) == "## Task\n\n{prompt}"


def test_criteria_that_the_text_does_not_list_are_told() -> None:
    assert skill_template(Skill("x", body="# X", criteria=("a", "b"))) == (
        "# X\n\n## Completion Criteria\n\n- [ ] a\n- [ ] b\n\n## Task\n\n{prompt}"
    )
    assert skill_template(READY).count("Completion Criteria") == 1


def test_the_tag_is_shown_once_by_the_skill_or_by_the_prompt() -> None:
    assert told(READY, "x").count("<promise>COMPLETE</promise>") == 1
    bare = Skill("x", promise="OK", body="# X")
    assert told(bare, "x").count(">OK<") == 1


def test_a_run_with_another_word_shows_that_word() -> None:
    assert skill_advice(READY) == skill_advice(READY, "complete") == BODY.strip("\n")
    shown = told(READY, "x", "SHIPPED")
    assert "COMPLETE<" not in shown
    assert shown.count("<promise>SHIPPED</promise>") == 1


# Those that come along


def test_three_skills_for_loops_come_along() -> None:
    assert {name: skill.promise for name, skill in OWN.items()} == {
        "tdd": "COMPLETE",
        "systematic-debugging": "BUG_FIXED",
        "code-cleanup": "LINT_CLEAN",
    }


def test_the_skill_for_tasks_brings_no_checks_of_its_own_and_needs_no_promise() -> None:
    skill = PACKAGED["tasks"]
    assert (skill.promise, skill.verification) == ("", ())
    assert len(missing_skill_parts(skill)) == 2
    assert len(skill.body) < 4000


@pytest.mark.parametrize("name", OWN)
def test_a_skill_that_comes_along_is_ready(name: str) -> None:
    skill = OWN[name]
    assert missing_skill_parts(skill) == ()
    assert skill.description
    assert len(skill.criteria) >= 3
    assert f"\n\n<promise>{skill.promise}</promise>\n\n" in skill.body
    assert len(skill.body) < 4000


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(
    "reply",
    [
        "{tag}",
        "All criteria are met.\n\n{tag}",
        "{criteria}\n\n{tag}",
        "{ticked}\n{tag}\n",
        "The cause: it was off by one.\n\n{tag}",
    ],
)
def test_an_agent_that_follows_the_skill_is_heard(name: str, reply: str) -> None:
    skill = OWN[name]
    criteria = "\n".join(f"- [ ] {line}" for line in skill.criteria)
    tag = f"<promise>{skill.promise}</promise>"
    said = reply.format(tag=tag, criteria=criteria, ticked=criteria.replace("[ ]", "[x]"))
    claim = parse_claim(said, told(skill, "Fix the parser.")).claim
    assert claim is not None
    assert claim.word == skill.promise


@pytest.mark.parametrize("name", OWN)
def test_an_echo_of_the_prompt_is_no_claim(name: str) -> None:
    prompt = told(OWN[name], "Fix the parser.")
    assert parse_claim(prompt, prompt).claim is None
