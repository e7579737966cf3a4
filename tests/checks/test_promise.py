"""The agent's word as one check among several."""

from __future__ import annotations

import pytest

from ralphproof.checks.factory import ClaimCheck
from ralphproof.engine.agent import Event
from ralphproof.engine.check import CheckReport, Finding, Inspection
from ralphproof.engine.claim import Claim, ClaimRule, parse_claim
from ralphproof.engine.sandbox import CONTINUE
from ralphproof.engine.workspace import Change, Snapshot

RULE = ClaimRule("TESTS_PASSED", "promise")


class Patient:
    """Looks on, and wants nothing."""

    def output(self, chunk: bytes) -> None: ...

    def events(self, events: list[Event]) -> None: ...

    def tick(self) -> int:
        return CONTINUE


def ask(claim: Claim | None, rule: ClaimRule = RULE, required: bool = True, said: str = "") -> Finding:
    inspection = Inspection(1, 1, said, Snapshot("s", "t"), Change(), claim=claim)
    return ClaimCheck("promise", rule, required).run(inspection, Patient())


@pytest.mark.parametrize("word", ["TESTS_PASSED", "tests_passed", " TESTS_PASSED\n"])
def test_the_word_that_was_asked_for_passes(word: str) -> None:
    assert ask(Claim(word)).passed


@pytest.mark.parametrize(
    ("message", "got"),
    [
        ("", "no promise"),
        ("TESTS_PASSED", "no promise"),  # a word is no tag
        ("I will say <promise>TESTS_PASSED</promise> when they do.\nNot yet.", "no promise"),
        ("<promise>NOT TESTS_PASSED</promise>", "the word 'NOT TESTS_PASSED' in a tag"),
        ("<promise>TESTS_PASSED_ALMOST</promise>", "the word 'TESTS_PASSED_ALMOST' in a tag"),
        ("<promise></promise>", "the word '' in a tag"),
    ],
)
def test_whatever_else_is_said_fails_and_both_are_named(message: str, got: str) -> None:
    found = ask(parse_claim(message).claim, said=message)
    assert (found.passed, found.errored, found.why) == (
        False, False, f"{got}, expected <promise>TESTS_PASSED</promise>",
    )  # fmt: skip


def test_an_agent_that_waits_promises_nothing() -> None:
    found = ask(Claim("TESTS_PASSED", waiting=True))
    assert not found.passed
    assert found.why.startswith("the word that it waits ('TESTS_PASSED'), expected ")


def test_where_a_file_claims_a_tag_does_not() -> None:
    rule = ClaimRule("DONE", marker="DONE.md")
    found = ask(Claim("DONE"), rule)
    assert not found.passed
    assert found.why.startswith("the word 'DONE' in a tag, expected the file DONE.md ")
    assert ask(Claim("DONE", source="marker"), rule).passed


def test_a_word_of_any_length_is_told_in_one_short_line() -> None:
    why = ask(Claim("x\n" * 5000)).why
    assert len(why) < 400
    assert "\n" not in why


def test_a_missing_promise_fails_the_report_unless_it_only_warns() -> None:
    assert not CheckReport((ask(None),)).passed
    assert CheckReport((ask(None, required=False),)).passed


def test_a_promise_that_is_given_verifies_nothing() -> None:
    given = ask(Claim("TESTS_PASSED"))
    report = CheckReport((given,))
    assert (report.passed, report.verified, report.judged) == (True, False, False)
    assert report.with_finding(Finding("make", True)).verified
    judged = report.with_finding(Finding("judge", True, judged=True))
    assert (judged.verified, judged.judged) == (False, True)


def test_the_same_wrong_word_is_the_same_failure() -> None:
    assert ask(None).same_as(ask(None))
    assert not ask(None).same_as(ask(Claim("OTHER")))


def test_a_rule_without_a_word_is_refused() -> None:
    with pytest.raises(ValueError, match="promise: the rule requires no word"):
        ClaimCheck("promise", ClaimRule())
