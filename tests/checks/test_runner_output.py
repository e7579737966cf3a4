"""Which tests failed, read from what real runners printed, whole and damaged."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.base.text import TRUNCATION_MARK
from ralphproof.checks import runner_output
from ralphproof.checks.runner_output import MAX_NAME_CHARS, MAX_NAMES
from ralphproof.engine import check
from ralphproof.engine.check import failure_fingerprint
from tests.checks.recordings import ALL, CLEAR, FOLDER, Recording, one


def read(output: str) -> check.SuiteResult | None:
    return runner_output.read_runner_output(output)[0]


RUNNERS = ("cargo", "go", "jest", "node", "pytest", "unittest")


@pytest.mark.parametrize("recording", ALL, ids=str)
def test_what_a_real_runner_printed_is_read(recording: Recording) -> None:
    assert read(recording.text) == recording.tests


def test_every_recording_is_in_the_table_and_every_runner_in_two_versions() -> None:
    files = {f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.txt")}
    assert files == {str(recording) for recording in ALL}
    versions = [folder.name.partition("-")[0] for folder in FOLDER.iterdir() if folder.is_dir()]
    assert {runner for runner in RUNNERS if versions.count(runner) >= 2} == set(RUNNERS)


NAMES = {str(recording) for recording in ALL}
PAIRS = [(name, name.replace("order-1", "order-2")) for name in sorted(NAMES) if "order-1" in name]
PAIRS = [pair for pair in PAIRS if pair[1] in NAMES]
PAIRS += [("cargo-1.97.0-nightly/order-1", "cargo-1.97.0-nightly/shuffled")]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_same_tests_in_another_order_are_the_same_failure(first: str, second: str) -> None:
    texts = [one(first).text, one(second).text]
    marks = {failure_fingerprint("make test", 1, text, read(text)) for text in texts}
    assert len(marks) == 1
    assert texts[0] != texts[1]
    tests = one(first).tests
    assert tests is not None
    fewer = check.SuiteResult(tests.runner, tests.failing[1:], tests.failed - 1)
    assert failure_fingerprint("make test", 1, texts[0], fewer) not in marks


@pytest.mark.parametrize("recording", [found for found in CLEAR if found.name.startswith("pass")], ids=str)
def test_a_run_without_failures_says_so(recording: Recording) -> None:
    tests = read(recording.text)
    assert tests is not None
    assert (tests.failing, tests.failed) == ((), 0)


def sound(tests: check.SuiteResult | None) -> bool:
    """What is said is in order: names once each, and none without a failure that was counted."""
    return tests is None or (
        tests.failing == tuple(sorted(set(tests.failing)))
        and bool(tests.failing) == bool(tests.failed)
        and (tests.passed is None or tests.passed >= 0)
        and tests.names == tuple(sorted(set(tests.names)))
        and len(tests.names) <= MAX_NAMES
        and min(tests.skipped or 0, tests.xfailed or 0) >= 0
    )


def complete(tests: check.SuiteResult | None, told: check.SuiteResult | None) -> bool:
    """Nothing is said, or nothing less than what was told."""
    assert told is not None
    return tests is None or (tests.failed >= told.failed and len(tests.failing) >= len(told.failing))


# What go says in one line only, where it is not told to say more.
ONLY_HERE = re.compile(r" *--- FAIL: |FAIL\t.*\[(build|setup) failed\]")
TORN = [
    "pytest-9.2.0/fail", "pytest-9.2.0/fail-quiet", "pytest-8.4.2/sub", "unittest-3.13.0/fail", "unittest-3.13.0/twice",
    "jest-30.5.2/many", "jest-29.7.0/load", "go-1.27.3/fail", "go-1.27.3/panics-verbose", "go-1.21.13/build",
    "cargo-1.95.0/space", "node-24.21.0/hooks-tap", "node-24.21.0/hooks-spec", "node-24.21.0/load-spec",
]  # fmt: skip


@pytest.mark.parametrize("name", TORN)
def test_without_any_one_line_all_failures_are_told_or_none(name: str) -> None:
    recording = one(name)
    lines = recording.lines
    told_twice = [at for at, line in enumerate(lines) if not ONLY_HERE.match(line)]
    read_without = {at: read("\n".join(lines[:at] + lines[at + 1 :])) for at in told_twice}
    assert [lines[at] for at, tests in read_without.items() if not complete(tests, recording.tests)] == []


COUNTED = [found for found in CLEAR if found.runner.startswith(("pytest", "unittest", "jest", "node"))]
ALONE = [found for found in COUNTED if found.name != "twice"]


@given(st.sampled_from(ALONE), st.floats(0, 1), st.booleans())
@settings(max_examples=100, deadline=None)
def test_of_a_run_that_is_cut_all_failures_are_told_or_none(recording: Recording, part: float, head: bool) -> None:
    lines = recording.lines
    at = round(part * len(lines))
    assert complete(read("\n".join(lines[:at] if head else lines[at:])), recording.tests)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A recording with lines lost, doubled, moved, cut or put in."""
    lines = list(draw(st.sampled_from(ALL)).lines)
    for _ in range(draw(st.integers(1, 4))):
        at, to = sorted(draw(st.tuples(*[st.integers(0, len(lines))] * 2)))
        match draw(st.sampled_from(["lose", "double", "turn", "cut", "put", "join"])):
            case "lose":
                del lines[at:to]
            case "double":
                lines[to:to] = lines[at:to]
            case "turn":
                lines[at:to] = lines[at:to][::-1]
            case "cut":
                lines[at : at + 1] = [line[: draw(st.integers(0, 80))] for line in lines[at : at + 1]]
            case "put":
                lines.insert(at, draw(st.text(max_size=60)))
            case _:
                lines[at:at] = draw(st.sampled_from(ALL)).lines
    return "\n".join(lines)


@given(damaged())
@settings(max_examples=100, deadline=None)
def test_results_of_mutated_output_are_consistent(text: str) -> None:
    assert sound(read(text))


PIECES = [
    "=", "= ", " =", "FAILED ", "ERROR ", " - ", "::", "[", "]", "SUBFAILED[", "short test summary info", " in 0.1s",
    "1 failed", "Ran 1 test in 0.1s", "FAILED (failures=1)", "FAIL: ", "-" * 70, "=" * 70, "Test Suites: ", "Tests: ",
    "  ● ", "FAIL a", "--- FAIL: ", "=== RUN ", "FAIL\t", "ok  \t", '{"Action":"', '"}', "running 1 test", "failures:",
    "test result: ", "    a", "# tests 1", "ℹ tests 1", "not ok 1 - ", "1..1", "▶ ", "✖ ", "test at ", "\n", "9" * 5000,
    "\x1b[", "\x1b]", "\r", "\0", "\udcff", "🙂",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=40).map("".join))
@settings(max_examples=150, deadline=None)
def test_arbitrary_text_raises_nothing(text: str) -> None:
    assert sound(read(text))


@pytest.mark.parametrize("piece", [*PIECES, "> ", "    ", "SUBFAILED[] ", "a - ", "  ▶ ", "[" * 50, "a:1 ", "0x", "1."])
def test_repeated_text_is_read_in_linear_time(piece: str) -> None:
    marks = "short test summary info in Ran Test Suites: \t test result: duration_ms TAP version 13\n"
    text = marks + "== short test summary info ==\nFAILED " + piece * (32 * 1024 // len(piece))
    began_s = time.process_time()
    failure_fingerprint("make test", 1, text, read(text))
    assert time.process_time() - began_s < 2.0


NAMED = [
    "pytest-9.2.0/more-verbose", "pytest-9.2.0/more-all", "pytest-9.2.0/more-xdist", "pytest-9.2.0/fail-all",
    "unittest-3.13.0/fail-verbose", "unittest-3.11.7/more-verbose", "jest-30.5.2/pass", "cargo-1.95.0/fail-all",
    "node-24.21.0/load-spec", "node-20.20.2/more-tap", "node-20.20.2/more-spec",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_without_any_one_line_all_tests_have_names_or_none(name: str) -> None:
    recording = one(name)
    assert recording.tests is not None
    lines, counts = recording.lines, (0, len(recording.tests.names))
    read_without = {at: read("\n".join(lines[:at] + lines[at + 1 :])) for at in range(len(lines))}
    assert [lines[at] for at, tests in read_without.items() if tests and len(tests.names) not in counts] == []


VERBOSE, CARGO_ALL = one("pytest-9.2.0/more-verbose").text, one("cargo-1.95.0/fail-all").text
JEST_VERBOSE = one("jest-30.5.2/fail-verbose").text
NAMELESS = {
    "pytest: none are named": one("pytest-9.2.0/pass").text,
    "pytest: a line is made up": VERBOSE.replace("\n\n===", "\ntests/a.py::test_made_up PASSED   [ 99%]\n\n===", 1),
    "pytest: a state is another": VERBOSE.replace("test_one PASSED", "test_one SKIPPED"),
    "pytest: a module was skipped whole": VERBOSE.replace("1 skipped, 1 x", "2 skipped, 1 x"),
    "pytest: skipped ones have a place, no name": one("pytest-9.2.0/more-all").text.replace(
        "8 passed", "8 passed, 1 skipped"
    ),
    "pytest: a test has printed into its line": VERBOSE.replace(
        "test_one PASSED", "test_one here I am PASSED?\nPASSED"
    ),
    "unittest: none are named": one("unittest-3.11.7/pass").text,
    "unittest: one more skipped": one("unittest-3.11.7/more-verbose").text.replace("skipped=1", "skipped=2"),
    "unittest: a class was not made ready": one("unittest-3.13.0/skips").text,
    "unittest: a test has printed into its line": one("unittest-3.11.7/more-verbose").text.replace(
        "test_good (tests.test_more.More.test_good) ... ok",
        "test_good (tests.test_more.More.test_good) \nhere I am\nok",
    ),
    "cargo: quiet": one("cargo-1.95.0/fail-quiet").text,
    "cargo: a line is made up": CARGO_ALL.replace("test works ... ok", "test works ... ok\ntest more ... ok"),
    "cargo: another one failed": CARGO_ALL.replace("test fails ... FAILED", "test other ... FAILED"),
    "go: quiet": one("go-1.27.3/pass").text,
    "jest: none are named": one("jest-30.5.2/order-1").text,
    "jest: a file has no tree": JEST_VERBOSE,
    "node: one more counted": one("node-20.20.2/more-spec").text.replace("ℹ tests 8", "ℹ tests 9"),
    "node: one less counted": one("node-20.20.2/more-tap").text.replace("# suites 3", "# suites 2"),
    "two runs, of which one names none": VERBOSE + one("pytest-9.2.0/pass").text,
}


@pytest.mark.parametrize("text", NAMELESS.values(), ids=NAMELESS)
def test_names_are_told_only_where_they_are_all_there(text: str) -> None:
    tests = read(text)
    assert tests is not None
    assert tests.names == ()


def test_names_that_are_too_many_to_keep_are_not_kept() -> None:
    def said(count: int, name: str) -> int:
        """How many names are read from a run of so many tests."""
        lines = "".join(f"test {name}{number:06} ... ok\n" for number in range(count))
        tests = read(f"\nrunning {count} tests\n{lines}\ntest result: ok. {count} passed; 0 failed; finished in 1s\n")
        assert tests is not None
        assert tests.passed == count
        return len(tests.names)

    assert (said(MAX_NAMES, "t"), said(MAX_NAMES + 1, "t")) == (MAX_NAMES, 0)
    assert said(MAX_NAME_CHARS // 900 + 1, "t" * 900) == 0


@pytest.mark.parametrize("name", ["pytest-9.2.0/more-verbose", "pytest-9.2.0/more-xdist"])
def test_a_test_that_a_class_has_from_another_file_has_its_own_name(name: str) -> None:
    text = one(name).text.replace("::Old::test_old ", "::Old::test_old <- tests/base.py ")
    assert "test_old <- tests/base.py" in text
    assert read(text) == one(name).tests


def test_a_reason_that_tells_of_another_state_changes_nothing() -> None:
    recording = one("pytest-9.2.0/more-verbose")
    text = recording.text.replace("SKIPPED (later (or PASSED))", "SKIPPED (later XFAIL (or PASSED (too)))")
    assert text != recording.text
    assert read(text) == recording.tests


def test_all_trees_of_jest_together_name_all_tests() -> None:
    hooks = JEST_VERBOSE[JEST_VERBOSE.index("FAIL src/hooks") : JEST_VERBOSE.index("FAIL src/console")]
    text = JEST_VERBOSE.replace(hooks, "").replace("4 failed, 1 passed, 5 total", "3 failed, 1 passed, 4 total")
    tests = read(text.replace("11 failed, 1 skipped, 1 todo, 8 passed", "9 failed, 1 skipped, 1 todo, 7 passed"))
    assert tests is not None
    assert (tests.failed, tests.passed, tests.skipped, tests.xfailed, len(tests.names)) == (9, 7, 2, None, 18)
    assert set(tests.failing) <= set(tests.names)
    assert "src/good.test.js › sums › later" in tests.names


UNWHOLE = [
    "pytest-9.2.0/first", "pytest-9.2.0/collect", "pytest-9.2.0/collect-on", "unittest-3.13.0/load",
    "unittest-3.13.0/fixtures", "jest-30.5.2/bail", "jest-30.5.2/load", "go-1.27.3/build-json",
    "go-1.27.3/panics-verbose", "cargo-1.95.0/fail", "node-24.21.0/load-spec", "node-20.20.2/load-tap",
]  # fmt: skip


@pytest.mark.parametrize("name", UNWHOLE)
def test_a_run_that_stopped_or_could_not_load_all_does_not_tell_how_many_are_skipped(name: str) -> None:
    tests = read(one(name).text)
    assert tests is not None
    assert (tests.skipped, tests.xfailed) == (None, None)
    assert tests.failed


def test_a_test_that_passed_and_could_not_be_closed_has_failed() -> None:
    text = (
        "==== ERRORS ====\n____ ERROR at teardown of TestA.test_x ____\n==== short test summary info ====\n"
        "ERROR t.py::TestA::test_x - RuntimeError: end\n2 passed, 1 error in 0.1s\n"
    )
    tests = read(text)
    assert tests is not None
    assert (tests.failing, tests.failed, tests.passed) == (("t.py::TestA::test_x",), 1, 1)


@pytest.mark.parametrize(
    "piece", ["x::y PASSED (", ":: ", "a:: <- ", "[gw1] PASSED a::", "[ 1%] ", "test a ... ", "(b) ..."]
)
def test_repeated_lines_are_read_in_linear_time(piece: str) -> None:
    line = f"{piece * 1000}"[:990] + "\n"
    ends = "1 passed in 0.1s\n" + "-" * 70 + "\nRan 1 test in 0.1s\n\nOK\n", "test result: ok. 1 passed; 0 failed\n"
    for begin, end in (("= test session starts =\n", ends[0]), ("", ends[0]), ("running 1 test\n", ends[1])):
        began_s = time.process_time()
        assert sound(read(begin + line * 300 + end))
        assert time.process_time() - began_s < 1.0


def between(name: str, begin: str, end: str) -> str:
    """A recording from one piece of text to before another."""
    text = one(name).text
    return text[text.index(begin) : text.index(end, text.index(begin))]


PYTEST, JEST, CARGO = (one(name).text for name in ("pytest-9.2.0/fail", "jest-30.5.2/twice", "cargo-1.95.0/fail"))
TAP, SPEC = one("node-24.21.0/fail-tap").text, one("node-24.21.0/fail-spec").text
UNCLEAR = {
    "nothing": "",
    "no runner": "make: *** [test] Error 1",
    "two runners": PYTEST + one("go-1.27.3/fail").text,
    "two runners, of which one passed": one("pytest-9.2.0/pass").text + one("jest-30.5.2/fail").text,
    "cut by ourselves": f"{PYTEST}\n{TRUNCATION_MARK}\n",
    "cut by the keeper": f"{PYTEST}\n{TRUNCATION_MARK} 12 bytes dropped\n",
    "too many lines": PYTEST + "\n" * runner_output.MAX_LINES,
    "pytest: a name too few": PYTEST.replace("FAILED tests", "failed tests", 1),
    "pytest: one more counted": PYTEST.replace("4 failed", "5 failed"),
    "pytest: interrupted": one("pytest-9.2.0/first").text.replace("stopping after 1 failures", "KeyboardInterrupt"),
    "pytest: broken": PYTEST.replace("collected", "INTERNALERROR> collected"),
    "pytest: a run within another": one("pytest-9.2.0/fail-quiet").text.replace("pid ", "1 passed in 0.1s\npid "),
    "pytest: a second run without an end": one("pytest-9.2.0/pass").text + between("pytest-9.2.0/fail", "=", "_____"),
    "jest: a second run without an end": one("jest-30.5.2/pass").text + between("jest-30.5.2/load", "FAIL", "PASS"),
    "jest: half a count": JEST.replace("Test Suites: 1 passed, 1 total\n", ""),
    "go: a second package without an end": between("go-1.27.3/fail", "ok", "FAIL\nFAIL\texample.com/sums/red"),
    "go: a test without an end": between("go-1.27.3/pass-verbose", "=== RUN", "--- SKIP") + "ok  \tx\t0.1s\n",
    "go: an event without an end": between("go-1.27.3/fail-json", "{", '"Action":"fail"'),
    "go: an event of depth": '{"Action":"fail","Package":"x","Output":' + "[" * 100_000,
    "go: a part without its whole": one("go-1.27.3/fail").text.replace("--- FAIL: TestParts (", "--- (", 1),
    "go: a panic in what passed": one("go-1.27.3/panics").text.replace("FAIL\texample.com/sums/beside", "", 1),
    "go: a failed run without a failure": "ok  \tx\t0.1s\nFAIL\n",
    "cargo: a crate that was not compiled": CARGO + one("cargo-1.95.0/broken").text,
    "cargo: a binary that died": CARGO + one("cargo-1.95.0/abort").text,
    "node: a result too few": one("node-24.21.0/pass-tap").text.replace("    ok 3 - someday # TODO", "", 1),
    "node: one less counted": TAP.replace("# fail 14", "# fail 13"),
    "node: a file too few": TAP.replace("location: ", "place: ", 1),
    "node: many less counted": SPEC.replace("ℹ fail 14", "ℹ fail 3"),
    "node: a place too few": SPEC.replace("test at again.test.js:16:1\n", ""),
    "node: a part without its whole": SPEC.replace("▶ sums\n", "", 1),
    "node: a whole that ends in another": re.sub(r"(?m)^✖ parent \(.*\n", "", SPEC, count=1),
    "node: a whole without an end": re.sub(r"(?m)^✖ a > b .*\n", "", one("node-24.21.0/names-spec").text),
    "a number that is none": f"Test Suites: {'9' * 5000} failed\nTests: {'9' * 5000} failed\n",
    "cargo: one more counted": CARGO.replace("4 failed", "5 failed"),
    "cargo: a binary without an end": f"{CARGO}\nrunning 1 test\n",
    "cargo: a binary without its name": one("cargo-1.95.0/space").text.replace("Running unittests", "", 1),
    "cargo: a failure without its list": CARGO + "error: test failed, to rerun pass `--lib`\n",
}


@pytest.mark.parametrize("text", UNCLEAR.values(), ids=UNCLEAR)
def test_what_is_not_clearly_one_whole_runner_is_not_read(text: str) -> None:
    assert read(text) is None


def test_what_only_looks_like_another_runner_does_not_stand_in_the_way() -> None:
    recording = one("pytest-9.2.0/fail")
    noise = 'PASS\nPASS\n\tFAIL\npanic: no\n--- FAIL: it (1)\n{"Action":"login"}\nrunning 3 tests\nrunning 2 tests\n'
    more = "TAP version 13\nnot ok 1 - x\n# tests 3\nFAIL a\n  ● a\nFAIL: a (b)\nRan away\nduration_ms 3\n"
    assert read(noise + more + recording.text) == recording.tests


def test_colours_and_other_line_ends_change_nothing() -> None:
    recording = one("pytest-9.2.0/fail")
    assert read(recording.text.replace("\n", "\r\n")) == recording.tests
    assert read(recording.text.replace("FAILED ", "\x1b[31mFAILED\x1b[0m ")) == recording.tests
    assert read("\x1b]0;title\x07" + recording.text) == recording.tests


def test_runs_of_one_runner_are_joined_and_told_apart() -> None:
    text = "".join(one(f"pytest-9.2.0/{name}").text for name in ("pass", "first", "fail-quiet", "first"))
    tests = read(text)
    assert tests is not None
    assert (tests.runner, tests.failed, tests.passed) == ("pytest", 8, 7)
    assert [name for name in tests.failing if "test_subtracts" in name] == [
        f"tests/test_sums.py::test_subtracts (run {number})" for number in (2, 3, 4)
    ]
    assert tests.failing == tuple(sorted(tests.failing))


@pytest.mark.parametrize("name", ["go-1.27.3/fail", "go-1.27.3/fail-verbose", "go-1.27.3/fail-json"])
def test_go_results_are_the_same_in_all_output_modes(name: str) -> None:
    tests, quiet = read(one(name).text), one("go-1.27.3/fail").tests
    assert tests is not None
    assert quiet is not None
    assert (tests.failing, tests.failed) == (quiet.failing, quiet.failed)


def test_a_test_that_fails_once_in_many_runs_has_failed() -> None:
    text = "=== RUN   TestA\n--- FAIL: TestA (0.00s)\n=== RUN   TestA\n--- PASS: TestA (0.00s)\nFAIL\nFAIL\tp\t0.1s\n"
    tests = read(text)
    assert tests is not None
    assert tests.failing == ("p.TestA",)
