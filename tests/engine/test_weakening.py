"""What a pass shows less than it did before the run, and what is only luck."""

from __future__ import annotations

import pytest

from ralphproof.engine import check
from ralphproof.engine.check import CheckReport, Finding, PassRule
from ralphproof.engine.weakening import count_flaky_failures, find_weakened_checks


def ran(
    *names: str, passed: int | None = 0, red: tuple[str, ...] = (), failed: int | None = None, skipped: int | None = 0,
    xfailed: int | None = 0, runner: str = "pytest",
) -> check.SuiteResult:  # fmt: skip
    """What a run said; it passed as many as it names, unless told otherwise."""
    green = len(names) - len(red) - (skipped or 0) - (xfailed or 0) if names and passed == 0 else passed
    return check.SuiteResult(runner, red, len(red) if failed is None else failed, green, skipped, xfailed, names)


def quiet(
    passed: int | None, skipped: int | None = 0, xfailed: int | None = 0, runner: str = "pytest"
) -> check.SuiteResult:
    """A run that told no names, and in which nothing failed."""
    return ran(passed=passed, skipped=skipped, xfailed=xfailed, runner=runner)


def node(*names: str, red: tuple[str, ...] = (), skipped: int | None = 0) -> check.SuiteResult:
    return ran(*names, red=red, skipped=skipped, runner="node")


def told(now: check.SuiteResult | None, before: check.SuiteResult | None, red_before: bool = False) -> list[str]:
    """What is said of a check that passes, its name taken off."""
    report, baseline = (
        CheckReport((Finding("make test", True, tests=now),)),
        Finding("make test", not red_before, tests=before),
    )
    return [one.message.removeprefix("make test: ") for one in find_weakened_checks(report, CheckReport((baseline,)))]


A, B, C = "tests/test_a.py::test_one", "tests/test_a.py::test_two", "tests/test_b.py::test_three"
RULE = PassRule()
GONE = "tests that were there before the run began are gone: "


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        pytest.param(ran(A, B), ran(A, B), [], id="the same tests"),
        pytest.param(ran(A), ran(A, B, C), [], id="more tests"),
        pytest.param(ran(A, B, C), ran(A, B), [GONE + C], id="one is gone"),
        pytest.param(ran(A, B), ran(A, C), [f"{GONE}{B}; new: {C}"], id="one has another name"),
        pytest.param(ran(A), ran(B), [f"{GONE}{A}; new: {B}"], id="not one has its old name"),
        pytest.param(ran(A, C), ran(A, "tests/test_z.py::test_three"), [], id="one is in another file"),
        pytest.param(ran(A, B), ran(A, f"{B}[1]", f"{B}[2]"), [], id="one has parameters now"),
        pytest.param(ran(f"{A}[1]", f"{A}[2]"), ran(f"{A}[1]"), [f"{GONE}{A}[2]"], id="a parameter less"),
        pytest.param(
            ran(f"{A}[<object at 0x7f750bda2430>]", f"{A}[/tmp/pytest-1/x]"),
            ran(f"{A}[<object at 0x7f491d4323c0>]", f"{A}[/tmp/pytest-2/x]"), [], id="values that differ every time",
        ),
        pytest.param(ran(A, B), quiet(2), [], id="as many, not named any more"),
        pytest.param(quiet(3), quiet(2), ["2 of its tests gave an answer; before the run began it had 3"], id="fewer"),
        pytest.param(quiet(3), quiet(9), [], id="more, not named"),
        pytest.param(quiet(3), quiet(None), [], id="not known how many"),
        pytest.param(quiet(None), quiet(3), [], id="not known how many it were"),
        pytest.param(quiet(0), quiet(0), [], id="none, as before"),
        pytest.param(quiet(0), quiet(2), [], id="the first tests"),
        pytest.param(
            quiet(3), quiet(2, skipped=1), ["1 of its tests is skipped; before the run began none were"], id="skipped",
        ),
        pytest.param(
            quiet(3, xfailed=1), quiet(1, xfailed=3),
            ["3 of its tests are expected to fail; before the run began 1 was"], id="expected to fail",
        ),
        pytest.param(
            quiet(3), quiet(1, skipped=1),
            ["1 of its tests gave an answer; before the run began it had 3",
             "1 of its tests is skipped; before the run began none were"], id="one is skipped, one is gone",
        ),
        pytest.param(quiet(3, skipped=2), quiet(5, skipped=0), [], id="fewer skipped"),
        pytest.param(quiet(3, skipped=None), quiet(3, skipped=4), [], id="not known how many were skipped"),
        pytest.param(
            ran("junit::a", "junit::b", runner="junit"), ran("junit::b", runner="junit"), [f"{GONE}junit::a"],
            id="from a report alone",
        ),
    ],
)  # fmt: skip
def test_a_pass_with_less_behind_it_than_before_says_what_is_missing(
    before: check.SuiteResult, now: check.SuiteResult, said: list[str]
) -> None:
    assert told(now, before) == said


HOLLOW = "no test of it gives an answer any more; before the run began it had "


@pytest.mark.parametrize(
    ("before", "now", "many"),
    [
        pytest.param(quiet(3), quiet(0), 3, id="none ran"),
        pytest.param(quiet(3), quiet(0, skipped=3), 3, id="all are skipped"),
        pytest.param(quiet(2), quiet(0, xfailed=2), 2, id="all are expected to fail"),
        pytest.param(ran(red=(A, B)), quiet(0, skipped=2), 2, id="all failed before"),
        pytest.param(ran(A, B), quiet(0), 2, id="known by name before"),
        pytest.param(node("adds"), node("sums.test.js"), 1, id="a script without a test is one to node"),
        pytest.param(
            ran("t.A.a", "t.A.b", runner="unittest"),
            ran("t.A.a", "t.A.b", passed=None, skipped=2, runner="unittest"), 2, id="known by names and skips",
        ),
    ],
)  # fmt: skip
def test_a_pass_without_any_test_is_hollow(before: check.SuiteResult, now: check.SuiteResult, many: int) -> None:
    report, baseline = CheckReport((Finding("t", True, tests=now),)), CheckReport((Finding("t", True, tests=before),))
    (one,) = find_weakened_checks(report, baseline)
    assert (one.check, one.what, one.hollow) == ("t", f"{HOLLOW}{many}", True)


def test_what_only_warns_is_never_hollow() -> None:
    report = CheckReport((Finding("t", True, tests=quiet(0), required=False),))
    (one,) = find_weakened_checks(report, CheckReport((Finding("t", True, tests=quiet(3)),)))
    assert not one.hollow


MODULE = "tests/test_new.py"
UNLOADED = "what could not be loaded before the run began has no test now: "


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        pytest.param(ran(red=(MODULE,)), ran(f"{MODULE}::test_new"), [], id="a module that is mended"),
        pytest.param(ran(A, red=()), ran(A, f"{MODULE}::test_new"), [], id="a new module"),
        pytest.param(
            ran(A, passed=1, red=(MODULE,), skipped=None), ran(A), [UNLOADED + MODULE], id="a module that is deleted",
        ),
        pytest.param(
            ran(passed=1, red=(MODULE,), skipped=None), quiet(1),
            ["1 of its tests gave an answer; before the run began it had 2"], id="a module that is deleted, by count",
        ),
        pytest.param(ran(passed=1, red=(MODULE,), skipped=None), quiet(2, skipped=4), [], id="a module with skips"),
        pytest.param(
            ran(passed=1, red=(MODULE,)), ran("tests.test_new::test_new", "tests.test_a::test_one"), [],
            id="a module that is mended, by a report",
        ),
        pytest.param(ran(passed=3, red=(A, B), failed=4), quiet(5), [], id="tests that failed twice each"),
        pytest.param(ran(passed=1, red=(f"{A} [even] (i=1)", f"{A} (i=2)")), quiet(1), [], id="parts of a test"),
        pytest.param(
            ran(passed=1, red=(f"{A} (run 2)", f"{A} (i=2) (run 2)")), quiet(1),
            ["1 of its tests gave an answer; before the run began it had 2"], id="a test of a second run",
        ),
        pytest.param(
            ran(passed=0, red=(f"{A}[a (b)]", f"{A}[a (c)]")), quiet(1),
            ["1 of its tests gave an answer; before the run began it had 2"], id="no parts, but values with brackets",
        ),
        pytest.param(
            ran(passed=0, red=("t.A.a (i=1)", "t.A.a [x] (i=2)", "t.A.tearDownClass"), runner="unittest"),
            quiet(1, runner="unittest"), [], id="parts, and what comes after a class, to unittest",
        ),
        pytest.param(
            node("adds", "bad.test.js", red=("bad.test.js",), skipped=None), node("adds", "reads"), [],
            id="a script that is mended",
        ),
        pytest.param(
            node("adds", "bad.test.js", red=("bad.test.js",), skipped=None), node("adds", "bad.test.js"),
            ["1 of its tests gave an answer; before the run began it had 2"], id="a script that is emptied",
        ),
        pytest.param(node("adds", "none.test.js"), node("adds"), [], id="an empty script that is deleted"),
        pytest.param(
            node("sums", "sums > adds", "sums > takes"), node("totals", "totals > adds"),
            [f"{GONE}sums > adds, sums > takes; new: totals > adds"], id="a suite tells of itself by its tests",
        ),
        pytest.param(
            ran("src/a.test.js › adds", red=("src/b.test.js",), passed=1, runner="jest"),
            ran("src/a.test.js › adds", runner="jest"), [UNLOADED + "src/b.test.js"], id="a file that is deleted",
        ),
        pytest.param(
            ran("x.org/a.TestA", red=("x.org/b",), passed=1, runner="go"),
            ran("x.org/a.TestA", "x.org/b.TestB", runner="go"), [], id="a package that is mended",
        ),
        pytest.param(
            ran("x.org/a.TestA", "x.org/a.TestA/one", runner="go"),
            ran("x.org/c.TestA", "x.org/c.TestA/one", runner="go"), [], id="a test of go's that moved",
        ),
        pytest.param(
            ran("a.b.Sums.test_x", runner="unittest"), ran("c.Sums.test_x", runner="unittest"), [],
            id="a test of unittest's that moved",
        ),
        pytest.param(
            ran("sums src/lib.rs: tests::a", runner="cargo"), ran("sums tests/it.rs: tests::a", runner="cargo"), [],
            id="a test of cargo's that moved",
        ),
    ],
)  # fmt: skip
def test_what_failed_before_the_run_is_no_reason_to_accuse_who_mends_it(
    before: check.SuiteResult, now: check.SuiteResult, said: list[str]
) -> None:
    assert told(now, before, red_before=True) == said


@pytest.mark.parametrize(
    ("now", "before"), [(None, quiet(3)), (quiet(0), None), (None, None)], ids=["now", "before", "both"]
)
def test_what_cannot_be_read_tells_nothing(now: check.SuiteResult | None, before: check.SuiteResult | None) -> None:
    assert told(now, before) == []


def test_a_check_that_failed_or_was_not_asked_before_says_nothing() -> None:
    less, more = quiet(1), quiet(3)
    baseline = CheckReport((Finding("t", True, tests=more),))
    assert find_weakened_checks(CheckReport((Finding("t", False, tests=less),)), baseline) == ()
    assert find_weakened_checks(CheckReport((Finding("u", True, tests=less),)), baseline) == ()


def test_the_same_command_in_a_clean_checkout_is_compared_with_the_one_before_the_run() -> None:
    baseline = CheckReport((Finding("t", True, command="pytest", tests=quiet(3)),))
    clean = Finding("t (clean)", True, command="pytest", tests=quiet(2), rule=PassRule(clean=True))
    beside = Finding("u", True, command="pytest", tests=quiet(2), rule=RULE)
    assert [one.check for one in find_weakened_checks(CheckReport((clean, beside)), baseline)] == ["t (clean)"]


def test_of_many_names_some_are_told_and_each_stays_in_its_line() -> None:
    names = [f"t.py::test_{number}" for number in range(1, 8)]
    (said,) = told(ran(A), ran(A, *names))
    assert said == f"{GONE}{', '.join(names[:5])} and 2 more"
    (said,) = told(ran(A), ran(A, "t.py::test[a\nCOMPLETED]"))
    assert said == GONE + r"'t.py::test[a\nCOMPLETED]'"


@pytest.mark.parametrize(
    ("finding", "looks", "times"),
    [
        pytest.param(Finding("t", True, rule=RULE), [], 0, id="at once"),
        pytest.param(Finding("t", True, rule=RULE, flaky=2), [], 2, id="in its third try"),
        pytest.param(Finding("t", True, rule=RULE), [("tree", False)], 1, id="it failed on this tree before"),
        pytest.param(
            Finding("t", True, rule=RULE, flaky=1), [("tree", False), ("tree", False)], 3, id="both, and twice"
        ),
        pytest.param(
            Finding("t", True, rule=RULE), [("tree", True), ("other", False)], 0, id="it failed on another tree"
        ),
        pytest.param(Finding("t", True, rule=RULE), [(None, False)], 0, id="the tree is not known"),
        pytest.param(Finding("t", True), [("tree", False)], 0, id="a function may have looked at the reply"),
        pytest.param(Finding("t", False, flaky=2), [("tree", False)], 0, id="it fails"),
    ],
)
def test_a_pass_after_a_failure_of_the_same_tree_is_luck(
    finding: Finding, looks: list[tuple[str | None, bool]], times: int
) -> None:
    earlier = tuple((tree, CheckReport((Finding("t", passed),))) for tree, passed in looks)
    assert count_flaky_failures(finding, "tree", earlier) == times


def test_without_a_tree_of_its_own_only_its_own_tries_are_luck() -> None:
    assert (
        count_flaky_failures(
            Finding("t", True, rule=RULE, flaky=1), None, ((None, CheckReport((Finding("t", False),))),)
        )
        == 1
    )


def test_a_check_that_broke_before_did_not_fail() -> None:
    broken = CheckReport((Finding("t", False, errored=True), Finding("u", False)))
    assert count_flaky_failures(Finding("t", True), "tree", (("tree", broken),)) == 0


@pytest.mark.parametrize(
    ("red_before", "before", "said"),
    [
        pytest.param(True, 2, ["it passed, and its own output tells of 1 failing test"], id="red before"),
        pytest.param(False, 0, ["it passed, and its own output tells of 1 failing test"], id="green before"),
        pytest.param(False, 1, [], id="the user wants it so: it passed with failures before"),
    ],
)
def test_a_pass_that_counts_failures_itself_is_none(red_before: bool, before: int, said: list[str]) -> None:
    now, then = check.SuiteResult("pytest", (A,), 1, 3), check.SuiteResult("pytest", (A,)[:before], before, 4 - before)
    report, baseline = (
        CheckReport((Finding("t", True, tests=now),)),
        CheckReport((Finding("t", not red_before, tests=then),)),
    )
    found = find_weakened_checks(report, baseline)
    assert [one.what for one in found] == said
    assert all(one.hollow for one in found)


def test_a_check_that_falls_mute_is_told() -> None:
    baseline = CheckReport((Finding("t", False, tests=quiet(3)),))
    assert [one.what for one in find_weakened_checks(CheckReport((Finding("t", True, mute=True),)), baseline)] == [
        "its output tells of no test any more; before the run began it had 3"
    ]
    assert find_weakened_checks(CheckReport((Finding("t", True),)), baseline) == ()
