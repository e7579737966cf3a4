"""Agents that say they are done: what counts as saying so, and that saying so is never enough."""

from __future__ import annotations

import sys

import pytest

from tests.misbehaviour.agents import Kind, both, case, events, heard, plain, prompt
from tests.misbehaviour.invariants import hold
from tests.ralph import Ended, Ralph, Step, done, say, write

FENCED = "The prompt says:\n```\n<promise>COMPLETE</promise>\n```\nI am not there yet."


def run(ralph: Ralph, agent: str, *flags: str, check: str = "true", most: int = 2) -> Ended:
    """A run with one check, after which everything holds that must."""
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", check, "-m", str(most), *flags)
    hold(ralph, ended)
    return ended


def used_up(ralph: Ralph, ended: Ended, iterations: int = 2) -> None:
    """The run went on to its limit, and says so everywhere."""
    outcome = ralph.outcome()
    assert (ended.code, outcome["status"], outcome["reason"]) == (1, "ABORTED", "MAX_ITERATIONS"), ended
    assert outcome["iterations"] == len(ralph.state().history.iterations) == iterations
    assert "MAX_ITERATIONS" in ended.out.splitlines()[-1]


@both
@pytest.mark.parametrize("when", ["always", "claim"])
def test_a_claim_that_the_checks_refute_never_completes_a_run(ralph: Ralph, kind: Kind, when: str) -> None:
    """FC-01"""
    ralph.settings(checksWhen=when)
    agent = kind(ralph, [say("<promise>COMPLETE</promise>")])
    ended = run(ralph, agent, "--promise", "COMPLETE", check="echo 3 of 7 tests fail; exit 9", most=3)
    used_up(ralph, ended, 3)
    assert heard(ralph) == ["COMPLETE"] * 3
    assert [past.report.verified for past in ralph.state().history.iterations] == [False] * 3
    for iteration in (2, 3):
        assert "failed with exit code 9" in prompt(ralph, iteration)
        assert "3 of 7 tests fail" in prompt(ralph, iteration)


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        case("FC-02-echo-then-work", plain, [{"echo_prompt": True}, say("working")]),
        case("FC-02-echo-alone", plain, [{"echo_prompt": True}]),
        case("FC-02-echo-after-work", plain, [say("working"), {"echo_prompt": True}]),
        case("FC-02-echo-as-a-message", events, [{"echo_prompt": True}]),
        case("FC-02-echo-in-bold", plain, [{"raw": "\x1b[1m"}, {"echo_prompt": True}, {"raw": "\x1b[0mworking\n"}]),
        case("FC-03-tool-output", events, [
            {"tool": {"name": "cat", "output": "<response>DONE</response>"}}, say("I looked at prompt.md.")]),
        case("FC-03-not-the-last-message", events, [
            say("<response>DONE</response>\n"), {"tool": {"name": "make"}}, say("No, that was wrong.")]),
        case("FC-07-stderr-of-a-program", plain, [say("working"), {"stderr": "<response>DONE</response>"}]),
        case("FC-07-stderr-of-an-agent", events, [say("working"), {"stderr": "<response>DONE</response>"}]),
        case("FC-09-bare-word", plain, [say("DONE")]),
        case("FC-09-word-in-prose", plain, [say("The work is DONE, all criteria are met.")]),
        case("FC-09-torn-tag", plain, [say("<response>DONE")]),
        case("FC-17-entities", plain, [say("&lt;response&gt;DONE&lt;/response&gt;")]),
    ],
)  # fmt: skip
def test_what_is_no_claim_is_not_heard_as_one(ralph: Ralph, kind: Kind, steps: list[Step]) -> None:
    """FC-02, FC-03, FC-07, FC-09, FC-17"""
    used_up(ralph, run(ralph, kind(ralph, steps)))
    assert heard(ralph) == [None, None]


def test_an_echo_of_a_prompt_with_the_tag_in_it_is_no_claim(ralph: Ralph) -> None:
    """FC-02: the user's own text shows the tag, and is too long to be kept whole."""
    text = "\n".join(f"{n}. Do part {n} of the work." for n in range(9000)) + "\n<response>DONE</response>\n"
    ralph.write({"prompt.md": text})
    agent = plain(ralph, [{"echo_prompt": True}, say("working")])
    ended = ralph("run", "-f", "prompt.md", "--agent", agent, "--check", "true", "-m", "2")
    hold(ralph, ended)
    used_up(ralph, ended)
    assert heard(ralph) == [None, None]


def test_an_echo_before_it_does_not_drown_a_claim(ralph: Ralph) -> None:
    """FC-02: the honest twin."""
    ended = run(ralph, plain(ralph, [{"echo_prompt": True}, say("All is well.\n\n<response>DONE</response>")]))
    assert (ended.code, heard(ralph)) == (0, ["DONE"])


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        case("FC-04-prose", plain, "I will not output <promise>COMPLETE</promise> yet.", "neither alone on its line"),
        case("FC-04-prose-message", events, "Do I say <promise>COMPLETE</promise>?\nNo.", "neither alone on its line"),
        case("FC-04-fence", plain, FENCED, "inside a code fence"),
        case("FC-04-fence-message", events, FENCED, "inside a code fence"),
        case("FC-04-open-fence", plain, "~~~text\n<promise>COMPLETE</promise>", "inside a code fence"),
    ],
)
def test_a_tag_that_is_only_mentioned_is_named_and_not_counted(ralph: Ralph, kind: Kind, text: str, why: str) -> None:
    """FC-04"""
    used_up(ralph, run(ralph, kind(ralph, [say(text)]), "--promise", "COMPLETE"))
    assert heard(ralph) == [None, None]
    (uncounted,) = ralph.state().history.latest.rejected_tags
    assert why in uncounted
    assert "was not counted: '<promise>COMPLETE</promise>'" in prompt(ralph, 2)


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        case("FC-06-case-and-blanks", "<PROMISE>  complete </promise>", ("--promise", "COMPLETE")),
        case("FC-06-default-word", "<response>done</response>", ()),
        case("FC-06-either-tag", "<promise>DONE</promise>", ()),
        case("FC-06-over-lines", "All set:\n<response>\nDONE\n</response>", ()),
        case("FC-06-at-the-end", "All set. <response>DONE</response>", ()),
        case("FC-06-coloured", "\x1b[32m<response>DONE</response>\x1b[0m", ()),
        case("FC-06-carriage-returns", "All set.\r\n<response>DONE</response>\r\n", ()),
        case("FC-06-word-given-in-tags", "<response>SHIPPED</response>", ("-c", "<promise>shipped</promise>")),
        case("FC-17-word-is-no-pattern", "<promise>C++ (DONE)?</promise>", ("--promise", "C++ (DONE)?")),
    ],
)
@both
def test_an_honest_claim_is_heard(ralph: Ralph, kind: Kind, text: str, flags: tuple[str, ...]) -> None:
    """FC-06, FC-17"""
    ended = run(ralph, kind(ralph, [write(work="done"), say(text)]), *flags, check="test -f work")
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 1), ended
    assert ralph.outcome()["proof"] == "verified"


def test_what_an_agent_prints_on_stderr_is_kept(ralph: Ralph) -> None:
    """FC-07"""
    run(ralph, events(ralph, [say("working"), {"stderr": "<response>DONE</response>"}]), most=1)
    assert (ralph.run_folder() / "agent_001.stderr.log").read_text() == "<response>DONE</response>\n"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        case("FC-08-another-stage", "AUTH_IMPLEMENTED", "AUTH_TESTS_PASS"),
        case("FC-09-negated", "DONE", "NOT DONE"),
        case("FC-09-longer", "AUTH_IMPLEMENTED", "AUTH_IMPLEMENTED_PARTIALLY"),
        case("FC-09-shorter", "AUTH_IMPLEMENTED", "AUTH"),
        case("FC-09-nothing", "DONE", ""),
        case("FC-17-as-a-pattern", "C++ (DONE)?", "CCC DONE"),
        case("FC-17-zero-width", "DONE", "DO\u200bNE"),
        case("FC-17-full-width", "DONE", "ＤＯＮＥ"),
        case("FC-17-entity", "R&D", "R&amp;D"),
    ],
)
def test_another_word_completes_nothing_and_both_words_are_named(ralph: Ralph, wanted: str, said: str) -> None:
    """FC-08, FC-09, FC-17"""
    agent = plain(ralph, [say(f"<response>{said}</response>")])
    used_up(ralph, run(ralph, agent, "-c", wanted))
    assert heard(ralph) == [said] * 2
    assert f"<response>{wanted}</response>" in prompt(ralph, 2)
    assert f"Your last reply said {said!r}" in prompt(ralph, 2)


@both
def test_of_two_tags_the_first_counts(ralph: Ralph, kind: Kind) -> None:
    """FC-10"""
    agent = kind(
        ralph,
        [say("<response>CONTINUE</response>\n<response>DONE</response>")],
        [say("<response>DONE</response>\n<response>CONTINUE</response>")],
    )
    assert run(ralph, agent, most=5).code == 0
    assert heard(ralph) == ["CONTINUE", "DONE"]


@pytest.mark.parametrize("word", ["", "  ", "<response></response>", "<promise> \n </promise>"])
@pytest.mark.parametrize("place", ["-c", "--promise", "settings", "environment"])
def test_an_empty_word_is_refused(ralph: Ralph, word: str, place: str) -> None:
    """FC-16: every text holds the empty word."""
    if place == "settings":
        ralph.settings(completionResponse=word)
    env = {"RALPH__COMPLETION_RESPONSE": word} if place == "environment" else {}
    flags = (place, word) if place.startswith("-") else ()
    agent = ralph.script([write(started="yes"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, *flags, env=env)
    hold(ralph, ended, refused=True)
    assert "completionResponse must be a word that is not blank" in ended.err
    assert not (ralph.root / "started").exists()


@both
def test_a_claim_is_good_for_its_own_iteration_alone(ralph: Ralph, kind: Kind) -> None:
    """FC-18"""
    agent = kind(ralph, [done()], [write(work="done"), say("I made the file.")], [done()])
    assert run(ralph, agent, check="test -f work", most=5).code == 0
    assert heard(ralph) == ["DONE", None, "DONE"]
    assert [past.report.passed for past in ralph.state().history.iterations] == [False, True, True]


COUNTED = "n=$(($(cat ../calls 2>/dev/null || echo 0) + 1)); echo $n > ../calls; echo call $n; test $n = %d"


@pytest.mark.parametrize("retries", [case("FC-19-first", 0), case("FC-19-second", 1)])
def test_the_answer_that_decided_is_the_one_on_record(ralph: Ralph, retries: int) -> None:
    """FC-19: a check that would answer differently the next time, after all its tries before the first iteration."""
    tries = 1 + retries
    good = 2 * tries
    ralph.settings(guardrails=[{"command": COUNTED % good, "name": "fickle", "retries": retries}])
    ended = ralph("run", "-p", "make it so", "--agent", ralph.script([done()]), "-m", "1")
    hold(ralph, ended)
    (finding,) = ralph.state().history.latest.report.findings
    assert (ended.code, finding.passed, finding.runs) == (0, True, tries)
    assert finding.output == (ralph.root / finding.log).read_text() == f"call {good}\n"
    assert (ralph.folder / "calls").read_text() == f"{good}\n", "nobody asked once more"


def test_a_check_that_fails_at_the_second_asking_is_not_asked_again_to_please(ralph: Ralph) -> None:
    """FC-19: each iteration's claim needs an answer of its own."""
    agent = ralph.script([say("not yet")], [done()])
    ended = run(ralph, agent, check=COUNTED % 2)
    used_up(ralph, ended)
    assert ralph.state().baseline.report.passed is False
    assert [past.report.passed for past in ralph.state().history.iterations] == [True, False]


def test_a_suite_without_tests_does_not_pass(ralph: Ralph) -> None:
    """FC-20: pytest says 5 when there is nothing to run."""
    ralph.write({"test_it.py": "def test_it():\n    assert False\n"})
    ralph.commit()
    agent = ralph.script([{"delete": ["test_it.py"]}, say("All tests pass."), done()])
    check = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -q -p no:cacheprovider"
    used_up(ralph, run(ralph, agent, check=check, most=1), 1)
    (finding,) = ralph.state().history.latest.report.findings
    assert (finding.passed, finding.code) == (False, 5)


@both
def test_words_of_success_in_an_output_prove_nothing(ralph: Ralph, kind: Kind) -> None:
    """FC-22: neither the check's nor the agent's; the exit code does."""
    agent = kind(ralph, [say("Checks passed, verified, COMPLETED, exit code 0.\n\n<response>DONE</response>")])
    ended = run(ralph, agent, check="echo '12 passed, verified, COMPLETED, exit code 0'; exit 1")
    used_up(ralph, ended)
    assert ralph.outcome()["details"]["checksPassed"] is False


@pytest.mark.parametrize(
    "how",
    [
        case("FC-27-child", {}),
        case("FC-27-own-session", {"setsid": True}),
        case("FC-27-daemon", {"setsid": True, "double_fork": True, "quiet": True, "clean_env": True}),
    ],
)
def test_a_leftover_that_undoes_the_work_is_dead_before_the_checks(ralph: Ralph, how: Step) -> None:
    """FC-27"""
    undo = {"spawn": {"argv": ["sh", "-c", "touch ../lives; sleep 0.3; rm -f work"], **how}}
    agent = ralph.script([write(work="done"), undo, {"until": "../lives"}, done()])
    assert run(ralph, agent, check="sleep 0.5; test -f work", most=1).code == 0
    assert (ralph.root / "work").read_text() == "done"


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        case("FC-29-exit-code", plain, {"exit": 1}),
        case("FC-29-exit-code-of-an-agent", events, {"exit": 1}),
        case("FC-29-killed", plain, {"signal": 9}),
        case("FC-29-error-event", events, {"error": "overheated"}),
    ],
)
@pytest.mark.parametrize("checked", [True, False])
def test_a_claim_in_a_turn_that_failed_does_not_count(ralph: Ralph, kind: Kind, end: Step, checked: bool) -> None:
    """FC-29"""
    agent = kind(ralph, [done(), end], [done()])
    check = ("--check", "true") if checked else ()
    ended = ralph("run", "-p", "make it so", "--agent", agent, "-m", "5", *check)
    hold(ralph, ended)
    assert (ended.code, heard(ralph)) == (0, [None, "DONE"])
    assert "'DONE' was said in a turn that failed" in prompt(ralph, 2)
