"""A command as a check: what it says of single tests, and when two failures of it are one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ralphproof.base.text import TRUNCATION_MARK
from ralphproof.base.value import replace
from ralphproof.checks.command import CommandCheck, CommandCheckSpec
from ralphproof.engine.check import Finding, Inspection
from ralphproof.engine.sandbox import CONTINUE
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.store.run_folder import RunFolder
from tests.checks.recordings import one

LINE = f"{'y' * 79}\n"

Ask = Callable[..., Finding]


class Patient:
    """Looks on, and wants nothing."""

    def output(self, chunk: bytes) -> None: ...

    def tick(self) -> int:
        return CONTINUE


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Print a text in the project, then run a command there, as a check."""
    project = tmp_path / "project"
    project.mkdir()
    keeper, folder = KeeperClient(), RunFolder(str(project), "run", str(tmp_path / "state"))
    folder.begin()
    turns = iter(range(1, 100))

    def asked(text: str, then: str = "exit 1", timeout_s: float = 60.0) -> Finding:
        (project / "text").write_text(text, "utf-8")
        question = CommandCheckSpec(f"cat text; {then}", "text", "tests", timeout_s=timeout_s)
        check = CommandCheck(question, DirectRunner(keeper), folder, str(project), tuple(os.environ.items()))
        return check.run(Inspection(next(turns), 1, "", Snapshot("s", "t"), Change()), Patient())

    yield asked
    keeper.close()


def test_the_failing_tests_are_told_and_are_the_failure(ask: Ask) -> None:
    first, second = one("pytest-9.2.0/order-1"), one("pytest-9.2.0/order-2")
    found, again = ask(first.text), ask(second.text, "exit 2")
    assert (found.tests, again.tests) == (first.tests, second.tests)
    assert found.same_as(again)
    assert not found.same_as(ask(one("pytest-9.2.0/fail").text))


def test_what_passed_is_told_and_is_no_failure(ask: Ask) -> None:
    recording = one("pytest-9.2.0/pass")
    found = ask(recording.text, "exit 0")
    assert (found.passed, found.tests, found.fingerprint) == (True, recording.tests, "")


def test_where_all_tests_passed_and_the_check_did_not_its_text_is_the_failure(ask: Ask) -> None:
    recording = one("pytest-9.2.0/pass")
    found, again = ask(f"{recording.text}coverage is low\n"), ask(f"{recording.text}lines are long\n")
    assert found.tests == again.tests == recording.tests
    assert found.fingerprint
    assert not found.same_as(again)


@pytest.mark.parametrize("then", ["kill -9 $$", "exec sleep 60", "trap 'exit 1' TERM; sleep 60 & wait"])
def test_a_command_that_did_not_end_by_itself_has_not_told_all_tests(ask: Ask, then: str) -> None:
    found = ask(one("pytest-9.2.0/fail").text, then, 60.0 if "kill" in then else 0.3)
    assert not found.passed
    assert found.tests is None
    assert found.fingerprint


def test_an_output_whose_middle_is_not_looked_at_has_not_told_all_tests(ask: Ask) -> None:
    found = ask(LINE * 30_000 + one("pytest-9.2.0/fail").text)
    assert found.tests is None
    assert f"\n{TRUNCATION_MARK}\n" in found.output


def test_failures_that_differ_only_behind_what_a_prompt_shows_differ(ask: Ask) -> None:
    first, half = "x" * 5000, LINE * 10_000
    assert not ask(f"{first} a").same_as(ask(f"{first} b"))
    assert not ask(f"{half}a\n{half}").same_as(ask(f"{half}b\n{half}")), "in the middle"
    assert not ask(f"{half * 3}a\n").same_as(ask(f"{half * 3}b\n")), "behind a middle that is not looked at"


def test_a_time_above_does_not_shift_where_a_long_output_is_cut(ask: Ask) -> None:
    long = LINE * 30_000
    assert ask(f"took 9.5s\n{long}took 9.5s\n").same_as(ask(f"took 10.25s\n{long}took 10.25s\n"))


def test_names_of_a_project_among_temporary_files_are_told_apart(ask: Ask, tmp_path: Path) -> None:
    root = tmp_path / "project"
    assert not ask(f"{root}/a.py:1: boom").same_as(ask(f"{root}/b.py:1: boom"))
    assert ask(f"{root}/a.py:1: boom").same_as(ask(f"{root}/a.py:12: boom"))
    assert ask("/tmp/some/a/x: boom").same_as(ask("/tmp/some/b/y: boom"))


def test_where_a_runner_names_files_in_full_the_project_is_left_out(ask: Ask, tmp_path: Path) -> None:
    found = ask(one("node-20.20.2/load-tap").text.replace("/srv/project", str(tmp_path / "project")))
    assert found.tests is not None
    assert found.tests.failing == ("bad_import.test.js", "bad_syntax.test.js", "exits.test.js")


def test_a_question_of_which_only_the_command_is_said_is_about_its_exit_code_alone(ask: Ask) -> None:
    for code in range(3):
        found = ask("FAILED\npassed\n", f"exit {code}")
        assert (found.passed, found.code, found.why, found.required) == (code == 0, code, "exit", True)


def test_every_run_of_a_check_has_a_log_of_its_own(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    keeper, folder = KeeperClient(), RunFolder(str(project), "run", str(tmp_path / "state"))
    folder.begin()
    check = CommandCheck(CommandCheckSpec("false", "text", retries=1), DirectRunner(keeper), folder, str(project), ())
    looked = Inspection(1, 1, "", Snapshot("s", "t"), Change())
    logs = [check.run(replace(looked, turn=turn, round=round), Patient()).log for turn in (1, 2) for round in (1, 2)]
    keeper.close()
    ends = ("-run2", "-round2-run2", "-turn2-run2", "-turn2-round2-run2")
    assert logs == [f".ralph/runs/run/guardrail_001_text{end}.log" for end in ends]
    assert all((project / log).exists() for log in logs)
