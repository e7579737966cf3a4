"""What single tests say of a pass, in whole runs with the real pytest and the real node: fewer, skipped, flaky, old."""

from __future__ import annotations

import sys
from shutil import which
from typing import Any

import pytest

from ralphproof.engine.records import CheckEnded
from tests.needs import require
from tests.ralph import Ended, Ralph, Step, done, say

PYTEST = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -B -m pytest -p no:cacheprovider"
NODE = "node --test --test-reporter=spec"
SUMS = {
    ".gitignore": "r.xml\n",
    "sums.py": "SLOW = False\n\n\ndef add(a, b):\n    return a + b\n",
    "tests/test_add.py": "import sums\n\n\ndef test_adds():\n    assert sums.add(1, 2) == 3\n",
    "tests/test_more.py": "import sums\n\n\ndef test_negatives():\n    assert sums.add(-1, 1) == 0\n\n\n"
    "def test_zero():\n    assert sums.add(0, 0) == 0\n",
    "conftest.py": "",
}
NODE_SUMS = {
    "sums.js": "exports.add = (a, b) => a + b;\n",
    "sums.test.js": "const { test } = require('node:test');\nconst assert = require('node:assert');\n"
    "test('adds', () => assert.equal(require('./sums.js').add(1, 2), 3));\n",
}


def project(ralph: Ralph, files: dict[str, str], **settings: Any) -> None:
    ralph.write(files)
    if settings:
        ralph.settings(**settings)
    ralph.commit()


def run(ralph: Ralph, *iterations: list[Step], check: str = "", most: int = 3) -> Ended:
    """A run of an agent that does this, checked by this command beside what the settings name."""
    agent = ralph.script(*iterations)
    flags = ("--check", check) if check else ()
    return ralph("run", "-p", "make it so", "--agent", agent, "-m", str(most), *flags)


def concerns(ralph: Ralph, ended: Ended) -> list[str]:
    """Those of a run that completed."""
    outcome = ralph.outcome()
    assert (ended.code, outcome["status"], outcome["proof"]) == (0, "COMPLETED", "verified"), ended
    found: list[str] = outcome["concerns"]
    assert all(f"concern: {one}" in ended.out for one in found)
    return found


def weakened(ralph: Ralph, ended: Ended) -> str:
    """What a run says that was stopped because its checks say less."""
    outcome = ralph.outcome()
    assert (ended.code, outcome["status"], outcome.get("reason")) == (1, "ABORTED", "CHECKS_WEAKENED"), ended
    said: str = outcome["details"]["message"]
    return said


def of(command: str, said: list[str]) -> list[str]:
    return [one.removeprefix(f"{command}: ") for one in said if one.startswith(f"{command}: ")]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("-v", "tests that were there before the run began are gone: tests/test_add.py::test_adds"),
        ("-q", "2 of its tests gave an answer; before the run began it had 3"),
        ("-q --junitxml=r.xml", "tests that were there before the run began are gone: tests.test_add::test_adds"),
    ],
)
def test_a_test_that_is_deleted_is_told_with_the_pass(ralph: Ralph, flags: str, named: str) -> None:
    project(ralph, SUMS)
    check = f"{PYTEST} {flags}"
    ended = run(ralph, [{"delete": ["tests/test_add.py"]}, done()], check=check)
    assert of(check, concerns(ralph, ended)) == [named]


def test_a_run_that_only_adds_tests_has_nothing_to_be_told(ralph: Ralph) -> None:
    project(ralph, SUMS)
    check = f"{PYTEST} -v"
    new = {"write": {"tests/test_new.py": "def test_new():\n    pass\n"}}
    assert of(check, concerns(ralph, run(ralph, [new, done()], check=check))) == []


SKIPS = {"replace": {"tests/test_add.py": ["def test_adds", "import pytest\n\n\n@pytest.mark.skip\ndef test_adds"]}}
XFAILS = {"replace": {"tests/test_add.py": ["def test_adds", "import pytest\n\n\n@pytest.mark.xfail\ndef test_adds"]}}


@pytest.mark.parametrize(("step", "word"), [(SKIPS, "skipped"), (XFAILS, "expected to fail")], ids=["skip", "xfail"])
def test_a_test_that_is_excused_is_told_with_the_pass(ralph: Ralph, step: Step, word: str) -> None:
    project(ralph, SUMS)
    check = f"{PYTEST} -q"
    said = of(check, concerns(ralph, run(ralph, [step, done()], check=check)))
    assert said == [f"1 of its tests is {word}; before the run began none were"]


# What the product says decides here whether its tests run: no file of the tests changes.
BY_THE_PRODUCT = SUMS | {
    "tests/test_add.py": "import pytest\n\nimport sums\n\n\ndef test_adds():\n    if sums.SLOW:\n"
    "        pytest.skip('slow')\n    assert sums.add(1, 2) == 3\n"
}
SLOW = {"replace": {"sums.py": ["SLOW = False", "SLOW = True"]}}


def test_where_tests_are_protected_one_that_the_product_has_skipped_stops_the_run(ralph: Ralph) -> None:
    project(ralph, BY_THE_PRODUCT, protectTests=True)
    check = f"{PYTEST} -q"
    ended = run(ralph, [SLOW, done()], check=check)
    assert weakened(ralph, ended) == f"{check}: 1 of its tests is skipped; before the run began none were"
    assert "CHECKS_WEAKENED" in ended.out.splitlines()[-1]
    assert ralph.outcome()["iterations"] == 1


def test_where_tests_are_not_protected_it_is_told(ralph: Ralph) -> None:
    project(ralph, BY_THE_PRODUCT)
    check = f"{PYTEST} -q"
    said = of(check, concerns(ralph, run(ralph, [SLOW, done()], check=check)))
    assert said == ["1 of its tests is skipped; before the run began none were"]


def test_protected_tests_are_no_reason_to_stop_honest_work(ralph: Ralph) -> None:
    broken = SUMS | {"sums.py": "SLOW = False\n\n\ndef add(a, b):\n    return a - b\n"}
    project(ralph, broken, protectTests=True)
    mends = {"replace": {"sums.py": ["a - b", "a + b"]}}
    check = f"{PYTEST} -v"
    assert of(check, concerns(ralph, run(ralph, [mends, done()], check=check))) == []


EMPTIED = [
    pytest.param([{"delete": ["sums.test.js"]}], id="no file of tests"),
    pytest.param([{"write": {"sums.test.js": "'use strict';\n"}}], id="a file without a test"),
    pytest.param([{"replace": {"sums.test.js": ["test('adds'", "test.skip('adds'"]}}], id="all skipped"),
]


@pytest.mark.parametrize("steps", EMPTIED)
def test_a_pass_of_node_without_any_test_stops_the_run(ralph: Ralph, steps: list[Step]) -> None:
    require(which("node") is not None, "node")
    project(ralph, NODE_SUMS)
    ended = run(ralph, [*steps, done()], check=NODE)
    said = weakened(ralph, ended)
    assert f"{NODE}: no test of it gives an answer any more; before the run began it had 1" in said


def test_a_pass_of_node_with_all_its_tests_completes(ralph: Ralph) -> None:
    require(which("node") is not None, "node")
    project(ralph, NODE_SUMS)
    more = {"write": {"more.test.js": "require('node:test').test('more', () => {});\n"}}
    assert of(NODE, concerns(ralph, run(ralph, [more, done()], check=NODE))) == []


def test_a_pass_of_pytest_with_all_its_tests_skipped_stops_the_run(ralph: Ralph) -> None:
    skipping = "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef slow():\n    import sums\n\n"
    files = SUMS | {"conftest.py": f"{skipping}    if sums.SLOW:\n        pytest.skip('slow')\n"}
    project(ralph, files)
    check = f"{PYTEST} -q"
    said = weakened(ralph, run(ralph, [SLOW, done()], check=check))
    assert said == f"{check}: no test of it gives an answer any more; before the run began it had 3"


# Luck

FLAKY = 'test -f work || exit 1\ntest -f "$HOME/again" && exit 0\ntouch "$HOME/again"\nexit 1\n'
WORK = {"write": {"work": "done\n"}}


def test_a_check_that_passes_when_it_is_tried_again_is_flaky(ralph: Ralph) -> None:
    project(ralph, {"check.sh": FLAKY}, guardrails=[{"command": "sh check.sh", "failAction": "APPEND", "retries": 1}])
    said = concerns(ralph, run(ralph, [WORK, done()]))
    assert "sh check.sh is flaky: on this very tree it failed once before it passed" in said
    findings = [record.finding for record in ralph.records() if isinstance(record, CheckEnded)]
    assert [(one.passed, one.runs, one.flaky) for one in findings] == [(False, 2, 0), (True, 2, 1)]


def test_a_check_that_failed_on_the_same_tree_in_an_earlier_iteration_is_flaky(ralph: Ralph) -> None:
    project(ralph, {"check.sh": FLAKY})
    said = concerns(ralph, run(ralph, [WORK, done()], [done()], check="sh check.sh"))
    assert ralph.outcome()["iterations"] == 2
    assert "sh check.sh is flaky: on this very tree it failed once before it passed" in said


def test_a_check_that_passes_because_of_the_work_is_not_flaky(ralph: Ralph) -> None:
    project(ralph, {"check.sh": "test -f work\n"})
    ended = run(ralph, [say("working")], [WORK, done()], check="sh check.sh")
    assert not [one for one in concerns(ralph, ended) if "flaky" in one]


# Red before green


def test_where_a_check_must_fail_first_and_none_does_no_agent_is_started(ralph: Ralph) -> None:
    project(ralph, {"check.sh": "exit 0\n"}, mustFailFirst=True)
    ended = run(ralph, [{"write": {"seen": "by an agent"}}, done()], check="sh check.sh")
    assert ended.code == 2, ended
    (why,) = [line for line in (ended.out + ended.err).splitlines() if "mustFailFirst" in line]
    assert "every check passed before any agent was started" in why
    assert not (ralph.root / "seen").exists()
    assert not list(ralph.run_folder().glob("agent_*"))


def test_where_a_check_must_fail_first_what_was_green_from_the_start_is_named(ralph: Ralph) -> None:
    project(
        ralph, {"check.sh": "test -f work\n"}, mustFailFirst=True,
        guardrails=[{"command": "sh check.sh", "failAction": "APPEND"}, {"command": "true", "failAction": "APPEND"}],
    )  # fmt: skip
    said = concerns(ralph, run(ralph, [WORK, done()]))
    assert said == ["passed before the run began as well, so no evidence of this work: true"]


def test_where_all_checks_failed_first_nothing_is_to_be_told(ralph: Ralph) -> None:
    project(ralph, {"check.sh": "test -f work\n"}, mustFailFirst=True)
    assert concerns(ralph, run(ralph, [WORK, done()], check="sh check.sh")) == []


def test_without_a_check_nothing_can_fail_first(ralph: Ralph) -> None:
    project(ralph, {"a": "1"}, mustFailFirst=True)
    ended = run(ralph, [{"write": {"seen": "by an agent"}}, done()])
    assert ended.code == 2, ended
    assert "mustFailFirst" in ended.out + ended.err
    assert not (ralph.root / "seen").exists()


# Old and new


@pytest.mark.parametrize("flags", ["-q", "-q --junitxml=r.xml"])
def test_the_next_prompt_tells_old_failures_from_new_ones(ralph: Ralph, flags: str) -> None:
    old = "def test_old():\n    raise AssertionError\n"
    project(ralph, SUMS | {"tests/test_old.py": old})
    breaks = {"replace": {"sums.py": ["a + b", "abs(a) + b"]}}
    run(ralph, [breaks], [say("I give up")], check=f"{PYTEST} {flags}", most=2)
    prompt = (ralph.run_folder() / "prompt_002.txt").read_text()
    told = "1 of its failing tests failed before the run began as well; these are new:\n"
    assert f"{told}- tests/test_more.py::test_negatives\n" in prompt
