"""What JUnit reports say, which of them are believed, and how they go with what was printed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.checks import junit
from ralphproof.checks.junit import ExpectedReport, find_expected_report
from ralphproof.engine import check
from tests.needs import require

NODE = "node --test --test-reporter=spec --test-reporter-destination=stdout"


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("pytest --junitxml=out/r.xml -q", "out/r.xml"),
        ("pytest --junitxml out/r.xml", "out/r.xml"),
        ("pytest --junit-xml=r.xml", "r.xml"),
        ("python -m pytest --junit-xml 'my report.xml'", "my report.xml"),
        ("gotestsum --junitfile r.xml ./...", "r.xml"),
        ("gotestsum --junitfile=r.xml", "r.xml"),
        ("JEST_JUNIT_OUTPUT_FILE=r.xml npx jest --reporters=jest-junit", "r.xml"),
        (f"{NODE} --test-reporter=junit --test-reporter-destination=r.xml", "r.xml"),
        ("node --test --test-reporter junit --test-reporter-destination r.xml", "r.xml"),
        ("node --test --test-reporter=junit --test-reporter-destination=stdout", None),
        (NODE, None),
        ("pytest", None),
        ("pytest --junitxml", None),
        ("pytest --junitxml=$OUT", None),
        ("pytest --junitxml=~/r.xml", None),
        ("pytest --junitxml=a.xml && pytest --junitxml=b.xml", None),
        ("pytest --junitxml='r.xml", None),
        ("echo junitxml r.xml", None),
        ("pytest --junit-prefix=p", None),
    ],
)
def test_a_command_names_the_one_report_that_it_writes(command: str, file: str | None, tmp_path: Path) -> None:
    report = find_expected_report(command, str(tmp_path), str(tmp_path))
    assert (None if report is None else report.path) == (file and str(tmp_path / file))


def told(root: Path, text: str | bytes, tests: check.SuiteResult | None = None) -> check.SuiteResult | None:
    """What comes of an output together with a report of this text, which is written in the run."""
    report = find_expected_report("pytest --junitxml=r.xml", str(root), str(root))
    assert report is not None
    (root / "r.xml").write_bytes(text.encode() if isinstance(text, str) else text)
    return report.merge_into(tests)


def case(name: str, inner: str = "", of: str = "tests.test_a") -> str:
    return f'<testcase classname="{of}" name="{name}" time="0.1">{inner}</testcase>'


def suite(*cases: str) -> str:
    inner = f'<testsuite name="pytest">{"".join(cases)}</testsuite>'
    return f'<?xml version="1.0" encoding="utf-8"?><testsuites>{inner}</testsuites>'


def junit_tests(*told: Any) -> check.SuiteResult:
    return check.SuiteResult("junit", *told)


FAILURE, ERROR = '<failure message="assert 0">assert 0</failure>', '<error message="failed on teardown"/>'
SKIPPED, XFAILED = '<skipped type="pytest.skip" message="later"/>', '<skipped type="pytest.xfail" message=""/>'
UNLOADED = case("tests.test_b", '<error message="collection failure">no such module</error>', of="")
LEFT_OUT = case("tests.test_c", '<skipped message="collection skipped">not here</skipped>', of="")
A, B = "tests.test_a::one", "tests.test_a::two"


@pytest.mark.parametrize(
    ("cases", "tests"),
    [
        pytest.param([case("one"), case("two")], junit_tests((), 0, 2, 0, 0, (A, B)), id="passed"),
        pytest.param([case("one", FAILURE), case("two")], junit_tests((A,), 1, 1, 0, 0, (A, B)), id="failed"),
        pytest.param([case("one", SKIPPED), case("two")], junit_tests((), 0, 1, 1, 0, (A, B)), id="skipped"),
        pytest.param([case("one", XFAILED), case("two")], junit_tests((), 0, 1, 0, 1, (A, B)), id="xfailed"),
        pytest.param([case("one", FAILURE), case("one", ERROR)], junit_tests((A,), 2, 0, 0, 0, (A,)), id="twice"),
        pytest.param([case("one", ERROR + SKIPPED)], junit_tests((A,), 1, 0, 0, 0, (A,)), id="skipped too late"),
        pytest.param([UNLOADED, case("one")], junit_tests(("tests.test_b",), 1, 1, None, None, (A,)), id="no module"),
        pytest.param([LEFT_OUT, case("one")], junit_tests((), 0, 1, 1, 0, (A,)), id="a module left out"),
        pytest.param([], junit_tests((), 0, 0, 0, 0), id="nothing"),
        pytest.param(
            [case("one", "<system-out>&lt;failure/&gt;<properties><failure/></properties></system-out>")],
            junit_tests((), 0, 1, 0, 0, (A,)), id="what is printed is no end",
        ),
    ],
)  # fmt: skip
def test_where_the_output_says_nothing_the_report_says_all(
    cases: list[str], tests: check.SuiteResult, tmp_path: Path
) -> None:
    assert told(tmp_path, suite(*cases)) == tests


def test_names_of_the_project_are_told_from_its_root(tmp_path: Path) -> None:
    tests = told(tmp_path, suite(case(f"{tmp_path}/a.test.js", of="")))
    assert tests is not None
    assert tests.names == ("a.test.js",)


DEEP = "<testsuite>" * 60 + case("one") + "</testsuite>" * 60
LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
NO_REPORTS = {
    "nothing": "",
    "no xml": "all is well",
    "cut off": suite(case("one"))[:-12],
    "another root": f"<html>{case('one')}</html>",
    "a document type": f"<!DOCTYPE testsuite><testsuite>{case('one')}</testsuite>",
    "entities": f"{LAUGHS}<testsuite>{case('&b;')}</testsuite>",
    "an entity of its own": f"<testsuite>{case('&own;')}</testsuite>",
    "too deep": DEEP,
    "a test in a test": suite(case("one", case("two"))),
    "a test without a name": suite(case("")),
    "a name without an end": suite(case("x" * 3000)),
    "an encoding that is none": '<?xml version="1.0" encoding="nothing-of-that-name"?><testsuite/>',
    "bytes": b"\xff\xfe\x00<testsuite/>",
}


@pytest.mark.parametrize("text", NO_REPORTS.values(), ids=NO_REPORTS)
def test_what_is_no_sound_report_says_nothing(text: str | bytes, tmp_path: Path) -> None:
    assert told(tmp_path, text) is None
    said = check.SuiteResult("pytest", (), 0, 1, 0, 0, ("t.py::test_x",))
    assert told(tmp_path, text, said) == check.SuiteResult("pytest", (), 0, 1, 0, 0)


def test_of_a_report_only_so_much_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = suite(case("one"), case("two"))
    monkeypatch.setattr(junit, "MAX_BYTES", len(text) - 1)
    assert told(tmp_path, text) is None
    monkeypatch.setattr(junit, "MAX_BYTES", len(text))
    assert told(tmp_path, text) is not None
    monkeypatch.setattr(junit, "MAX_CASES", 1)
    assert told(tmp_path, text) is None


@given(
    st.lists(
        st.sampled_from(
            [
                "<testsuite>",
                "</testsuite>",
                "<testcase name='a'",
                "/>",
                ">",
                "&amp;",
                "]]>",
                "<!--",
                "-->",
                "<![CDATA[",
                "<?x ?>",
                "<!DOCTYPE",
                "\0",
                "é",
                "<failure/>",
                "</testcase>",
            ]
        )
        | st.text(max_size=4),
        max_size=20,
    )
)
@settings(max_examples=100, deadline=None)  # fmt: skip
def test_arbitrary_reports_raise_nothing(pieces: list[str]) -> None:
    cases = junit._parse_cases("".join(pieces).encode("utf-8", "replace"))
    assert cases is None or all(name for _, name, _ in cases)


SAID = check.SuiteResult("pytest", (), 0, 2, 0, 0, ("tests/test_a.py::one", "tests/test_a.py::two"))


@pytest.mark.parametrize(
    ("said", "cases", "names", "skipped"),
    [
        pytest.param(SAID, [case("one"), case("two")], (A, B), 0, id="the same, with the names of the report"),
        pytest.param(SAID, [case("one")], (), 0, id="fewer passed"),
        pytest.param(SAID, [case("one"), case("two", SKIPPED)], (), 0, id="one was skipped"),
        pytest.param(SAID, [case("one"), case("two"), case("three")], (), 0, id="more passed"),
        pytest.param(
            check.SuiteResult("pytest", (), 0, 1, 0, 1), [case("one"), case("two")], (A, B), 0,
            id="one might have failed",
        ),
        pytest.param(
            check.SuiteResult("pytest", ("x",), 1, 1, 0, 0), [case("one"), case("two")], (), 0, id="none failed"
        ),
        pytest.param(
            check.SuiteResult("pytest", ("x",), 1, 1, 0, 0), [case("one"), case("two", XFAILED)], (), 0,
            id="none failed, all else agrees",
        ),
        pytest.param(
            check.SuiteResult("unittest", (), 0), [case("one"), case("two", SKIPPED)], (A, B), 1,
            id="only it tells how many",
        ),
    ],
)  # fmt: skip
def test_where_both_say_the_same_the_report_adds_and_else_neither_names_anything(
    said: check.SuiteResult, cases: list[str], names: tuple[str, ...], skipped: int, tmp_path: Path
) -> None:
    tests = told(tmp_path, suite(*cases), said)
    assert tests is not None
    assert (tests.runner, tests.failing, tests.failed, tests.passed) == (
        said.runner,
        said.failing,
        said.failed,
        said.passed,
    )
    assert (tests.names, tests.skipped) == (names, skipped)


GOOD = suite(case("one"))


def old(root: Path) -> None:
    """It was there before, and stays as it was."""


def set_back(root: Path) -> None:
    (root / "r.xml").write_text(GOOD)
    os.utime(root / "r.xml", (1_000_000_000, 1_000_000_000))


def a_link(root: Path) -> None:
    (root / "r.xml").rename(root / "there.xml")
    (root / "there.xml").write_text(GOOD)
    (root / "r.xml").symlink_to("there.xml")


def a_pipe(root: Path) -> None:
    (root / "r.xml").unlink()
    os.mkfifo(root / "r.xml")


def a_folder(root: Path) -> None:
    (root / "r.xml").unlink()
    (root / "r.xml").mkdir()


def none(root: Path) -> None:
    (root / "r.xml").unlink()


@pytest.mark.parametrize("ahead_s", [0, 1_000_000_000], ids=["of now", "of a day to come"])
@pytest.mark.parametrize("happens", [old, set_back, a_link, a_pipe, a_folder, none])
def test_only_a_file_that_was_written_in_this_run_is_a_report(
    happens: Callable[[Path], None], ahead_s: int, tmp_path: Path
) -> None:
    (tmp_path / "r.xml").write_text(GOOD)
    now_s = time.time()
    os.utime(tmp_path / "r.xml", (now_s + ahead_s, now_s + ahead_s))
    report = find_expected_report("pytest --junitxml=r.xml", str(tmp_path), str(tmp_path))
    assert report is not None
    happens(tmp_path)
    assert report.merge_into(None) is None


def test_what_lay_there_from_before_is_left_there(tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text("mine")
    os.utime(tmp_path / "r.xml", (1_000_000_000, 1_000_000_000))
    report = find_expected_report("pytest --junitxml=r.xml", str(tmp_path), str(tmp_path))
    assert report is not None
    assert report.merge_into(None) is None
    assert (tmp_path / "r.xml").read_text() == "mine"


@pytest.mark.parametrize("name", ["../r.xml", "{outside}/r.xml", "way_out/r.xml"])
def test_a_report_outside_of_the_project_is_not_read(name: str, tmp_path: Path) -> None:
    root, outside = tmp_path / "project", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "way_out").symlink_to(outside)
    report = find_expected_report(f"pytest --junitxml={name.format(outside=outside)}", str(root), str(root))
    assert report is not None
    Path(report.path).write_text(GOOD)
    assert report.merge_into(None) is None


def written(root: Path, command: str, *argv: str) -> check.SuiteResult | None:
    """What is read after a real runner has written its report."""
    report = find_expected_report(command, str(root), str(root))
    assert isinstance(report, ExpectedReport)
    env = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST", "NODE_"))}
    subprocess.run(argv, cwd=root, env=env, capture_output=True, timeout=60)
    return report.merge_into(None)


def test_a_report_of_the_real_pytest_is_read(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_good(): pass\n@pytest.mark.skip\ndef test_later(): pass\n"
        "@pytest.mark.xfail\ndef test_known(): assert 0\nclass TestA:\n    def test_bad(self): assert 0\n"
    )
    pytest_here = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=r.xml")
    tests = written(tmp_path, "pytest --junitxml=r.xml", *pytest_here)
    names = ("test_it.TestA::test_bad", "test_it::test_good", "test_it::test_known", "test_it::test_later")
    assert tests == junit_tests(("test_it.TestA::test_bad",), 1, 1, 1, 1, names)


def test_a_report_of_the_real_node_is_read(tmp_path: Path) -> None:
    from shutil import which

    require(which("node") is not None, "node")
    (tmp_path / "a.test.js").write_text(
        "const { test } = require('node:test');\ntest('good', () => {});\ntest('bad', () => { throw 1; });\n"
        "test.skip('later', () => {});\n"
    )
    command = "node --test --test-reporter=junit --test-reporter-destination=r.xml"
    tests = written(tmp_path, command, *command.split())
    assert tests == junit_tests(("test::bad",), 1, 1, 1, 0, ("test::bad", "test::good", "test::later"))
