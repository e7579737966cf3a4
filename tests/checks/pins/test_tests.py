"""Tests that ask less than they did, and files that say what is run elsewhere."""

from __future__ import annotations

import pytest

from ralphproof.evidence.pins import is_ci, is_test
from tests.checks.pins.project import STOPS, TOLD, Pinned

PYTHON = """\
import pytest
def test_a():
    assert f(1) == 2
    assert f(2) == 3
class TestB:
    def test_b(self):
        self.assertEqual(f(3), 4)
"""
NODE = """\
const { test } = require('node:test');
test('a', () => { assert.equal(f(1), 2); expect(f(2)).toBe(3); });
it('b', () => { assert.ok(f(3)); });
"""
GO = 'func TestA(t *testing.T) {\n\tif f(1) != 2 {\n\t\tt.Errorf("no")\n\t}\n}\n'
RUST = "#[test]\nfn a() {\n    assert_eq!(f(1), 2);\n    assert!(f(2));\n}\n"

LESS: dict[str, tuple[str, str, str | None, str]] = {
    "deleted": ("tests/test_a.py", PYTHON, None, "a test was deleted"),
    "an assertion less": ("test_a.py", PYTHON, PYTHON.replace("    assert f(2) == 3\n", ""), "1 assertion fewer"),
    "commented out": ("test_a.py", PYTHON, PYTHON.replace("    assert f", "    # assert f"), "2 assertions fewer"),
    "an assertion that always holds": ("test_a.py", PYTHON, PYTHON.replace("f(1) == 2", "True"), "1 assertion fewer"),
    "a test less": ("test_a.py", PYTHON, PYTHON.replace("def test_b", "def nothing_b"), "1 test fewer"),
    "skipped": ("test_a.py", PYTHON, PYTHON.replace("def test_a", "@pytest.mark.skip\ndef test_a"),
                "skips 1 test more"),
    "may fail": ("test_a.py", PYTHON, PYTHON.replace("class", "@pytest.mark.xfail(reason='x')\nclass"),
                 "skips 1 test more"),
    "skipped by unittest": ("a_test.py", PYTHON, PYTHON.replace("class", "@unittest.skip('x')\nclass"),
                            "skips 1 test more"),
    "skipped from within": ("test_a.py", PYTHON,
                            PYTHON.replace("    assert f(1)", "    pytest.skip('x')\n    assert f(1)"),
                            "skips 1 test more"),
    "node: skipped": ("a.test.js", NODE, NODE.replace("it('b'", "it.skip('b'"), "skips 1 test more"),
    "node: alone": ("a.spec.ts", NODE, NODE.replace("test('a'", "test.only('a'"), "skips 1 test more"),
    "node: to do": ("test/a.js", NODE, NODE.replace("'b', ()", "'b', { todo: true }, ()"), "skips 1 test more"),
    "node: switched off": ("__tests__/a.js", NODE, NODE.replace("it('b'", "xit('b'"),
                           "1 test fewer, skips 1 test more"),
    "node: an assertion less": ("a.test.js", NODE, NODE.replace("expect(f(2)).toBe(3);", ""), "1 assertion fewer"),
    "go: skipped": ("a_test.go", GO, GO.replace("{\n\tif", '{\n\tt.Skip("x")\n\tif'), "skips 1 test more"),
    "go: an assertion less": ("a_test.go", GO, GO.replace('t.Errorf("no")', ""), "1 assertion fewer"),
    "rust: ignored": ("tests/a.rs", RUST, RUST.replace("#[test]", "#[test]\n#[ignore]"), "skips 1 test more"),
    "rust: an assertion less": ("tests/a.rs", RUST, RUST.replace("    assert!(f(2));\n", ""), "1 assertion fewer"),
}  # fmt: skip


@pytest.mark.parametrize("case", LESS)
def test_a_test_that_asks_less_is_told(pinned: Pinned, case: str) -> None:
    """RH-01, RH-02, FC-20"""
    path, before, after, what = LESS[case]
    pinned.write({path: before})
    pinned.begin("true")
    pinned.write({path: after})
    assert pinned.told() == [(f"{path}: {what}", TOLD)]


EDITS = {"another word": PYTHON.replace("f(1)", "g(1)"), "an assertion more": PYTHON + "        assert True is not g\n"}


@pytest.mark.parametrize("edit", EDITS)
def test_that_a_test_was_edited_is_told(pinned: Pinned, edit: str) -> None:
    pinned.write({"test_a.py": PYTHON})
    pinned.begin("true")
    pinned.write({"test_a.py": EDITS[edit]})
    assert pinned.told() == [("test_a.py: a test that was there was changed", TOLD)]


MORE = {
    "a test more": ("tests/new/test_b.py", PYTHON),
    "no test": ("app.py", "x = 1\n"),
}


@pytest.mark.parametrize("case", MORE)
def test_of_what_is_new_or_no_test_nothing_is_said(pinned: Pinned, case: str) -> None:
    path, after = MORE[case]
    pinned.write({"test_a.py": PYTHON, "app.py": "assert a\nassert b\n"})
    pinned.begin("true")
    pinned.write({path: after})
    assert pinned.told() == []


def test_a_test_that_was_only_moved_is_not_gone(pinned: Pinned) -> None:
    pinned.write({"test_a.py": PYTHON})
    pinned.begin("true")
    pinned.write({"test_a.py": None, "tests/test_a.py": PYTHON})
    assert pinned.told() == []


def test_a_protected_test_may_neither_change_nor_go(pinned: Pinned) -> None:
    """RH-01, FC-20"""
    pinned.protect = True
    pinned.write(
        {"tests/test_a.py": PYTHON, "tests/test_b.py": PYTHON, "tests/data.json": "{}", "tests/test_c.py": PYTHON}
    )
    pinned.begin("true")
    pinned.write({
        "tests/test_a.py": None, "tests/test_b.py": PYTHON.replace("f(1)", "g(1)"), "tests/data.json": "[]",
        "tests/test_c.py": PYTHON.replace("    assert f(2) == 3\n", ""), "tests/test_d.py": PYTHON, "tests/run.log": "",
    })  # fmt: skip
    assert pinned.told() == [
        ("tests/data.json: a protected test was changed", STOPS),
        ("tests/test_a.py: a test was deleted", STOPS),
        ("tests/test_b.py: a protected test was changed", STOPS),
        ("tests/test_c.py: a protected test was changed: 1 assertion fewer", STOPS),
    ]


CI = (".github/workflows/ci.yml", ".gitlab-ci.yml", ".circleci/config.yml", "Jenkinsfile", "azure-pipelines.yml",
      ".drone.yml", "bitbucket-pipelines.yml")  # fmt: skip


@pytest.mark.parametrize("path", CI)
def test_files_that_say_what_is_run_elsewhere_are_told(pinned: Pinned, path: str) -> None:
    pinned.begin("true")
    pinned.write({path: "a"})
    assert pinned.told() == [(f"{path}: new; it says what is run elsewhere", TOLD)]


def test_files_of_ci_that_change_or_go_are_told(pinned: Pinned) -> None:
    pinned.write({CI[0]: "a", CI[1]: "a"})
    pinned.begin("true")
    pinned.write({CI[0]: "b", CI[1]: None})
    assert pinned.told() == [
        (f"{CI[0]}: was changed; it says what is run elsewhere", TOLD),
        (f"{CI[1]}: is gone; it says what is run elsewhere", TOLD),
    ]


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("test_a.py", True), ("src/a_test.go", True), ("a/ATest.java", True), ("a_spec.rb", True), ("x.snap", True),
     ("spec/x", True), ("src/contest.py", False), ("latest.py", False), ("tests/conftest.py", False),
     ("tests/__pycache__/a.pyc", False), ("attest/a.py", False), ("src/testing.py", False)],
)  # fmt: skip
def test_which_files_are_tests(path: str, is_one: bool) -> None:
    assert is_test(path) is is_one
    assert not is_ci(path)
