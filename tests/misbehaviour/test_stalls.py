"""Runs that get nowhere: nothing changes, or the same thing fails again and again, whatever it looks like."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import pytest

from ralphproof.engine.records import CheckEnded, Escalated, Saved
from tests.misbehaviour.agents import Kind, both, case, prompt
from tests.misbehaviour.invariants import hold, refusal
from tests.misbehaviour.machine import recorded
from tests.ralph import Ended, Ralph, Step, done, say, write

IDLE: list[Step] = [say("thinking")]
BUSY: Step = {"append": {"work": "more\n"}}
WHO = ("-c", "user.name=agent", "-c", "user.email=agent@localhost")
ADVICE = "Mend nothing before you know the cause."  # of the skill systematic-debugging


def limits(ralph: Ralph, stall: int | None = None, same_error: int | None = None, **more: Any) -> None:
    """Settings in which so many idle or alike iterations end a run; None: never."""
    ralph.settings(limits={"stallIterations": stall, "sameErrorIterations": same_error, **more})


def run(ralph: Ralph, agent: str, *flags: str, check: str = "false", most: int = 9) -> Ended:
    """A run with one check that fails by itself, after which everything holds that must."""
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", check, "-m", str(most), *flags)
    hold(ralph, ended)
    return ended


def stopped(ralph: Ralph) -> tuple[object, ...]:
    """The exit code of the run, why it was aborted, and at which iteration."""
    outcome = ralph.outcome()
    return outcome["exitCode"], outcome["reason"], outcome["iterations"]


def shell(script: str) -> Step:
    return {"run": ["sh", "-ec", script]}


# No change


def test_five_iterations_without_a_change_end_the_run(ralph: Ralph) -> None:
    """ST-01: a failure that is the same every time is a stall first of all."""
    ralph.commit()
    ended = run(ralph, ralph.script(IDLE))
    assert stopped(ralph) == (1, "STALL", 5), ended
    assert "STALL: 5 iterations in a row changed no file" in ended.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("says", "check"), [case("ST-01-red-and-claimed", done(), "false"), case("ST-01-green-and-not", say("no"), "true")]
)
def test_what_is_said_is_no_progress(ralph: Ralph, says: Step, check: str) -> None:
    """ST-01"""
    limits(ralph, stall=2)
    run(ralph, ralph.script([says]), check=check)
    assert stopped(ralph) == (1, "STALL", 2)


def test_a_stall_is_answered_once_with_how_to_debug_and_the_next_one_ends_the_run(ralph: Ralph) -> None:
    """ST-01: idle iterations are counted anew from the answer on, and a change begins them anew as well."""
    limits(ralph, stall=2, escalateToDeepDebug=True)
    ralph.commit()
    ended = run(ralph, ralph.script(IDLE, IDLE, IDLE, [BUSY, *IDLE], IDLE))
    assert stopped(ralph) == (1, "STALL", 6), ended
    assert [number for number in range(1, 7) if ADVICE in prompt(ralph, number)] == [3]
    assert [(told.iteration, told.deep) for told in recorded(ralph, Escalated)] == [(3, True)]
    assert "BUG_FIXED" not in prompt(ralph, 3), "the advice shows the word of this run"


def test_an_answer_that_helps_lets_the_run_go_on(ralph: Ralph) -> None:
    """ST-01"""
    limits(ralph, stall=2, escalateToDeepDebug=True)
    ended = run(ralph, ralph.script(IDLE, IDLE, [write(work="1"), done()]), check="test -f work")
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 3), ended


def test_work_that_is_committed_at_once_is_progress(ralph: Ralph) -> None:
    """ST-03: the tree is clean after every turn, and never the one of before."""
    limits(ralph, stall=1)
    ralph.commit()
    commits: list[Step] = [BUSY, {"git": ["add", "work"]}, {"git": [*WHO, "commit", "-qm", "more"]}, say("on it")]
    ended = run(ralph, ralph.script(commits, commits, commits, IDLE))
    assert stopped(ralph) == (1, "STALL", 4), ended
    past = ralph.state().history.iterations
    assert [(one.change.paths, one.change.committed) for one in past] == [(("work",), True)] * 3 + [((), False)]


def test_what_was_uncommitted_before_the_run_is_no_progress(ralph: Ralph) -> None:
    """ST-04"""
    limits(ralph, stall=2)
    ralph.write({"tracked": "1\n"})
    ralph.commit()
    ralph.write({"tracked": "2\n", "new": "3\n"})
    ended = run(ralph, ralph.script(IDLE))
    assert stopped(ralph) == (1, "STALL", 2), ended
    assert (ralph.root / "tracked").read_text() == "2\n"


NOTHING: list[Step] = [
    write(**{".ralph/notes": "at it", ".ralph/state.json": "{}"}),
    shell("umask 077; cd .ralph/runs/$RALPH_RUN_ID; echo more >> task/log; echo more >> mine"),
    shell("touch -d '2001-01-01' kept"),
    shell("cat kept > ../same; cat ../same > kept"),
    shell("cp kept ../same; rm kept; mv ../same kept"),
    shell("date > made; rm made; mkdir empty"),
]


@pytest.mark.parametrize("in_git", [case("ST-05-git", True), case("ST-05-plain", False)])
def test_our_own_folder_times_of_files_and_work_undone_are_no_progress(ralph: Ralph, in_git: bool) -> None:
    """ST-05: what counts is what files hold."""
    limits(ralph, stall=len(NOTHING))
    ralph.write({"kept": "as it is\n"})
    if in_git:
        ralph.commit()
    ended = run(ralph, ralph.script(*([step, *IDLE] for step in NOTHING)))
    assert stopped(ralph) == (1, "STALL", len(NOTHING)), ended
    assert [one.change.paths for one in ralph.state().history.iterations] == [()] * len(NOTHING)


def test_white_space_is_a_change_like_any_other(ralph: Ralph) -> None:
    """ST-05: for many files it means something, and a run that has nothing else to do ends by its other limits."""
    limits(ralph, stall=1)
    ralph.write({"kept": "as it is\n"})
    ralph.commit()
    blank: list[Step] = [{"append": {"kept": " \n"}}, *IDLE]
    run(ralph, ralph.script(blank, blank, IDLE))
    assert stopped(ralph) == (1, "STALL", 3)
    assert [one.change.paths for one in ralph.state().history.iterations] == [("kept",), ("kept",), ()]


def test_without_git_files_tell_whether_there_is_progress(ralph: Ralph) -> None:
    """ST-15: neither is everything a stall, nor nothing."""
    limits(ralph, stall=2)
    ralph.write({"work": "1\n", "old": "x\n"})
    agent = ralph.script([BUSY, *IDLE], [{"delete": ["old"]}, *IDLE], IDLE, [write(new="1"), *IDLE], IDLE)
    ended = run(ralph, agent)
    assert stopped(ralph) == (1, "STALL", 6), ended
    paths = [one.change.paths for one in ralph.state().history.iterations]
    assert paths == [("work",), ("old",), (), ("new",), (), ()]


# git that does not work


FAILING = [
    case("ST-16-index-lock", "touch .git/index.lock"),
    case("ST-16-index", "echo no index > .git/index"),
    case("ST-16-config", "echo '[[[' > .git/config"),
    case("ST-16-program", "printf '#!/bin/sh\\nexit 1\\n' > ../bin/git; chmod 755 ../bin/git"),
]


@pytest.mark.parametrize("broken", FAILING)
def test_git_that_fails_while_files_change_makes_no_stall(ralph: Ralph, broken: str) -> None:
    """ST-16: our own saves need nothing of the user's that an agent can break, so the work is known all the same."""
    limits(ralph, stall=1)
    ralph.write({"kept": "x\n"})
    ralph.commit()
    ended = run(ralph, ralph.script([shell(broken), BUSY, *IDLE], [BUSY, *IDLE]), most=2)
    assert stopped(ralph) == (1, "MAX_ITERATIONS", 2), ended
    past = ralph.state().history.iterations
    assert [(one.change.known, one.change.paths) for one in past] == [(True, ("work",))] * 2


def test_a_repository_that_cannot_be_read_is_said_and_is_no_stall(ralph: Ralph) -> None:
    """ST-16: unknown is not nothing."""
    limits(ralph, stall=1)
    ralph.commit()
    ended = run(ralph, ralph.script([shell("echo nowhere > .git/HEAD"), BUSY, *IDLE]))
    assert ended.code == 3, ended
    assert "the agent's work could not be saved" in ended.out
    assert [saved.change.known for saved in recorded(ralph, Saved)] == [False]
    assert (ralph.root / "work").read_text() == "more\n", "it lies where it was left"


# The same failure


def test_the_same_failure_five_times_ends_the_run_and_is_told(ralph: Ralph) -> None:
    """ST-07: though files change. The failure of before the run is not one of the five."""
    ralph.commit()
    agent, check = ralph.script([BUSY, *IDLE]), "echo looking; echo 'FAIL: expected 3, got 4' >&2; exit 1"
    ended = run(ralph, agent, "--json", check=check)
    assert stopped(ralph) == (1, "SAME_ERROR_5X", 5), ended
    for told in (ralph.outcome(), ended.lines[-1]["data"]):
        assert told["details"]["error"] == "FAIL: expected 3, got 4"
        assert told["details"]["message"].startswith("5 iterations in a row failed in the same way")


# What a check prints in one iteration and in the next, and whether both are the same failure.
Pair = tuple[str, str]
ALIKE: dict[str, Pair] = {
    "timestamp": ("2026-11-16T03:04:05.678Z no", "2026-11-17 14:15:16,999 no"),
    "clock": ("[03:04:05] no", "[23:59:59] no"),
    "date": ("Mon Nov 16 03:04:05 2026: no", "Tue Nov 17 13:04:06 2026: no"),
    "epoch": ("at 1763262245: no", "at 1763262999: no"),
    "duration": ("1 failed in 0.43s", "1 failed in 12.9s"),
    "milliseconds": ("no (3 ms)", "no (4711 ms)"),
    "took": ("took=0.5 no", "took=17 no"),
    "address": ("<Thing object at 0x7f3a5c0012d0>", "<Thing object at 0x55d0c8aa91e0>"),
    "temporary": ("cannot open /tmp/tmp.Xa81k/out", "cannot open /tmp/tmp.99bcd/out"),
    "temporary-mac": ("no /private/var/folders/zz/T/a1/f", "no /private/var/folders/zz/T/b2/f"),
    "line": ("src/calc.py:12: no", "src/calc.py:348: no"),
    "column": ("src/calc.ts(3,14): error no", "src/calc.ts(27,1): error no"),
    "line-in-words": ('File "calc.py", line 7, in add', 'File "calc.py", line 1007, in add'),
    "pid": ("worker died (pid 4711)", "worker died (pid 31337)"),
    "process": ("(node:123) Warning: no", "(node:98765) Warning: no"),
    "goroutine": ("goroutine 7 [running]: no", "goroutine 1234 [running]: no"),
    "uuid": ("id 123e4567-e89b-12d3-a456-426614174000", "id 00000000-0000-4000-8000-00000000abcd"),
    "colour": ("\x1b[1;31mno\x1b[0m", "no"),
    "carriage-return": ("no\r\nno", "no\nno"),
}
UNLIKE: dict[str, Pair] = {
    "port": ("connect to 127.0.0.1:8080 failed", "connect to 127.0.0.1:8081 failed"),
    "name": ("FAIL test_add", "FAIL test_subtract"),
    "count": ("3 failed, 7 passed", "2 failed, 8 passed"),
    "value": ("expected 3, got 4", "expected 3, got 5"),
    "file": ("src/a.py:12: no", "src/b.py:12: no"),
    "parameter": ("FAILED test_waits[5s]", "FAILED test_waits[6s]"),
    "silence": ("no", ""),
}


def reds(ralph: Ralph, pairs: dict[str, Pair]) -> dict[str, bool]:
    """A run of two iterations with a check for each pair; whether both failures are one."""
    ralph.write({f"said/{name}.{n}": text for name, pair in pairs.items() for n, text in enumerate(pair, 1)})
    checks = [{"name": name, "command": f"cat said/{name}.$(cat turn) 2>&1; exit 1"} for name in pairs]
    ralph.settings(guardrails=checks, limits={"stallIterations": None, "sameErrorIterations": 2})
    agent = ralph.script(*([write(turn=turn), say("on it")] for turn in ("1", "2", "none")))
    hold(ralph, ralph("run", "-p", "make it so", "--agent", agent, "-m", "3"))
    found = {(told.iteration, told.finding.check): told.finding for told in recorded(ralph, CheckEnded)}
    return {name: found[1, name].same_as(found[2, name]) for name in pairs}


def test_what_changes_by_itself_does_not_make_a_failure_another_one(ralph: Ralph) -> None:
    """ST-08"""
    assert reds(ralph, ALIKE) == dict.fromkeys(ALIKE, True)
    assert stopped(ralph) == (1, "SAME_ERROR_5X", 2)


def test_what_a_failure_is_about_makes_it_another_one(ralph: Ralph) -> None:
    """ST-08"""
    assert reds(ralph, UNLIKE) == dict.fromkeys(UNLIKE, False)
    assert stopped(ralph) == (1, "MAX_ITERATIONS", 3)


TESTS = """\
import sys, unittest
class Calc(unittest.TestCase):
    def test_add(self): self.fail("add")
    def test_divide(self): self.fail("divide")
    def test_subtract(self): self.assertTrue(True)
def load_tests(loader, tests, pattern):
    suite = unittest.TestSuite()
    names = open("order").read().split()
    suite.addTests(Calc("test_" + name) for name in names)
    return suite
"""


def test_the_same_tests_that_fail_in_another_order_are_the_same_failure(ralph: Ralph) -> None:
    """ST-11"""
    limits(ralph, same_error=3)
    ralph.write({"test_calc.py": TESTS, "order": "add divide"})
    orders = ("add divide subtract", "divide subtract add", "subtract divide add")
    agent = ralph.script(*([write(order=order), say("on it")] for order in orders))
    ended = run(ralph, agent, check=f"{shlex.quote(sys.executable)} -B -m unittest")
    assert stopped(ralph) == (1, "SAME_ERROR_5X", 3), ended
    details = ralph.outcome()["details"]
    assert "the same tests failed" in details["message"]
    assert details["error"].endswith(" (test_calc.Calc.test_add, test_calc.Calc.test_divide)")


FILL = "printf '%06000d' 0"


@pytest.mark.parametrize(
    ("mode", "check"),
    [
        case("ST-12-head", "head", f"{FILL}; cat turn; exit 1"),
        case("ST-12-middle", "ends", f"{FILL}; cat turn; {FILL}; exit 1"),
    ],
)
def test_failures_that_differ_only_where_the_prompt_leaves_something_out_are_two(
    ralph: Ralph, mode: str, check: str
) -> None:
    """ST-12"""
    ralph.settings(outputTruncateMode=mode, limits={"stallIterations": None, "sameErrorIterations": 2})
    words = ("one", "two", "two")
    ended = run(ralph, ralph.script(*([write(turn=word), BUSY, *IDLE] for word in words)), check=check)
    assert stopped(ralph) == (1, "SAME_ERROR_5X", 3), ended
    told = {finding.output for one in ralph.state().history.iterations for finding in one.report.findings}
    assert len(told) == 1, "the prompt tells all of them alike"


# Back and forth


AROUND = [
    case("ST-10-errors", lambda n: write(turn=str(n % 2), work=str(n)), "echo no $(cat turn); exit 1", "the failure"),
    case("ST-10-trees", lambda n: write(work=str(n % 2)), "true", "the tree"),
]


@pytest.mark.parametrize(("step", "check", "what"), AROUND)
def test_going_back_and_forth_between_two_states_ends_the_run(ralph: Ralph, step: Any, check: str, what: str) -> None:
    """ST-10: at twice the threshold."""
    limits(ralph, stall=2, same_error=2)
    ended = run(ralph, ralph.script(*([step(n), say("on it")] for n in range(6))), check=check)
    assert stopped(ralph) == (1, "OSCILLATION", 4), ended
    assert f"{what} went back and forth between two states 4 times" in ralph.outcome()["details"]["message"]


def test_a_round_of_three_is_ended_by_the_other_limits(ralph: Ralph) -> None:
    """ST-10"""
    limits(ralph, stall=1, same_error=2)
    agent = ralph.script(*([write(turn=str(n % 3), work=str(n)), say("on it")] for n in range(5)))
    run(ralph, agent, check="echo no $(cat turn); exit 1", most=5)
    assert stopped(ralph) == (1, "MAX_ITERATIONS", 5)


# The agent itself


@both
def test_an_agent_that_dies_in_the_same_way_every_time_is_not_started_for_ever(ralph: Ralph, kind: Kind) -> None:
    """ST-13"""
    limits(ralph, same_error=3)
    dies: list[Step] = [BUSY, {"stderr": "panic: out of ideas"}, {"exit": 1}]
    ended = run(ralph, kind(ralph, dies), check="true", most=50)
    assert stopped(ralph) == (1, "SAME_ERROR_5X", 3), ended
    details = ralph.outcome()["details"]
    assert "the agent itself failed" in details["message"]
    assert details["error"] == "the agent exited with code 1"


def test_how_and_of_what_an_agent_dies_tells_two_failures_apart(ralph: Ralph) -> None:
    """ST-13: and not when, or how long it took."""
    limits(ralph, same_error=2)
    errors = ("no route to 10.0.0.1", "lost after 3.5s at 12:03:04", "lost after 17.2s at 12:04:55")
    ways: list[Step] = [{"exit": 1}, {"exit": 2}, {"signal": 9}, *({"error": error} for error in errors)]
    run(ralph, ralph.script(*([BUSY, way] for way in ways)), check="true")
    assert stopped(ralph) == (1, "SAME_ERROR_5X", len(ways))
    assert ralph.outcome()["details"]["error"] == errors[-1]


# The settings


@pytest.mark.parametrize("place", ["file", "environment"])
def test_two_is_two(ralph: Ralph, place: str) -> None:
    """ST-14"""
    if place == "file":
        limits(ralph, stall=2)
    else:
        ralph.env["RALPH__LIMITS__STALL_ITERATIONS"] = "2"
    run(ralph, ralph.script(IDLE))
    assert stopped(ralph) == (1, "STALL", 2)


NONE = [case("ST-14-0", "0"), case("ST-14--1", "-1"), case("ST-14-word", '"x"'), case("ST-14-true", "true")]


@pytest.mark.parametrize("place", ["file", "environment"])
@pytest.mark.parametrize("number", NONE)
def test_a_threshold_that_is_none_is_refused(ralph: Ralph, number: str, place: str) -> None:
    """ST-14"""
    names = {"stallIterations": "STALL_ITERATIONS", "sameErrorIterations": "SAME_ERROR_ITERATIONS"}
    if place == "file":
        ralph.settings(limits=dict.fromkeys(names, json.loads(number)))
    else:
        ralph.env |= {f"RALPH__LIMITS__{name}": number for name in names.values()}
    ended = ralph("run", "-p", "make it so", "--agent", ralph.script([write(started="")]))
    refusal(ralph, ended, *(f"limits.{name}" for name in names))
