"""A command as a check in a clean checkout: what it answers, and what it says where it never came to its turn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphproof.base.errors import DiskFull, HarnessFailed, RalphError
from ralphproof.checks.clean_checkout import CLEAN_CHECKOUT_NOTE, CleanCheckoutCheck, PreparedCheckout
from ralphproof.checks.command import STOPPED, CommandCheck, CommandCheckSpec
from ralphproof.engine.check import Finding, Inspection, PassRule
from ralphproof.engine.sandbox import CONTINUE, STOP
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.store.run_folder import RunFolder


class Lookout:
    """Looks on, and wants what it is told to want."""

    wanted = CONTINUE

    def output(self, chunk: bytes) -> None: ...

    def tick(self) -> int:
        return self.wanted


class Bare:
    """A room of one folder that is as the last one left it."""

    def __init__(self, tmp_path: Path) -> None:
        self.place = tmp_path / "place"
        self.place.mkdir()
        self.project = tmp_path / "project"
        self.project.mkdir()
        self.keeper = KeeperClient()
        self.folder = RunFolder(str(self.project), "run", str(tmp_path / "state"))
        self.folder.begin()
        self.entered: list[str] = []
        self.kept = 0
        self.number = 1
        self.broken: RalphError | None = None
        self.setup: tuple[str, ...] = ()
        self.look = Lookout()

    def check_out(self, inspection: Inspection, check: str) -> PreparedCheckout:
        if self.broken:
            raise self.broken
        self.entered.append(check)
        return PreparedCheckout(
            str(self.place), DirectRunner(self.keeper), self.number, not self.setup or self.kept > 0
        )

    def setup_done(self) -> None:
        self.kept += 1

    def check(self, command: str, **more: object) -> CleanCheckoutCheck:
        question = CommandCheckSpec(command, "clean_it", "it (clean)", **more)  # type: ignore[arg-type]
        return CleanCheckoutCheck(question, self, self.folder, str(self.project), tuple(os.environ.items()))

    def ask(self, command: str, iteration: int = 1, **more: object) -> Finding:
        looked = Inspection(iteration, 1, "", Snapshot("s", "t"), Change())
        return self.check(command, **more).run(looked, self.look)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Bare]:
    made = Bare(tmp_path)
    yield made
    made.keeper.close()


def test_it_runs_in_the_checkout_and_its_answer_says_so(room: Bare) -> None:
    found = room.ask('test "$PWD" = "$(pwd -P)" && pwd -P', timeout_s=7.0, contains="place")
    assert (found.passed, found.check, found.output.strip()) == (True, "it (clean)", str(room.place.resolve()))
    assert found.rule == PassRule(".", 0, "place", "", 7.0, clean=True)
    assert (found.why, found.log) == ("exit", ".ralph/runs/run/guardrail_001_clean_it.log")
    assert (room.project / found.log).exists()
    assert room.entered == ["clean_it"]


def test_a_failure_says_that_it_was_in_a_clean_checkout(room: Bare) -> None:
    found = room.ask("echo no; exit 3", hint="look")
    assert (found.passed, found.code, found.why) == (False, 3, f"exit code 3 {CLEAN_CHECKOUT_NOTE}")
    assert (found.output, found.hint, found.errored) == ("no\n", "look", False)
    assert found.fingerprint
    assert found.same_as(room.ask("echo no; exit 3", 2, hint="look"))


def test_setup_runs_before_it_in_order_and_what_it_made_is_kept_once(room: Bare) -> None:
    room.setup = ("echo 1 >> made", "echo 2 >> made")
    assert room.ask("cat made").output == "1\n2\n"
    assert room.ask("cat made", 2).output == "1\n2\n"
    assert room.kept == 1
    assert (room.project / ".ralph/runs/run/setup_001_echo_1_made.log").exists()


def test_a_setup_that_fails_is_its_failure_and_nothing_after_it_runs(room: Bare) -> None:
    room.setup = ("echo out; exit 4", "touch never")
    found = room.ask("touch never", required=True)
    assert (found.passed, found.code, found.check, found.command) == (False, 4, "it (clean)", "touch never")
    assert found.why.startswith("its preparation: setup command 'echo out; exit 4' failed with exit code 4 in a clean")
    assert (found.output, found.log) == ("out\n", ".ralph/runs/run/setup_001_echo_out_exit_4.log")
    assert found.rule is not None
    assert found.rule.clean
    assert (room.kept, (room.place / "never").exists()) == (0, False)


def test_another_checkout_is_prepared_anew_whatever_the_logs_of_an_earlier_one_tell(room: Bare) -> None:
    room.setup = ("echo 1 >> made; exit 1",)
    assert room.ask("true").runs == 1
    room.ask("true")
    assert (room.place / "made").read_text() == "1\n", "what has ended for this checkout is not begun again"
    room.number = 2
    room.ask("true")
    assert (room.place / "made").read_text() == "1\n1\n"


def test_a_stop_during_setup_is_not_a_failure_of_the_work(room: Bare) -> None:
    room.setup, room.look.wanted = ("exec sleep 60",), STOP
    found = room.ask("true")
    assert (found.why, found.passed, found.check, room.kept) == (STOPPED, False, "it (clean)", 0)


def test_a_checkout_that_cannot_be_had_is_a_failure_that_says_nothing_of_the_work(room: Bare) -> None:
    room.broken = HarnessFailed("git is broken")
    found = room.ask("true")
    assert (found.passed, found.errored) == (False, True)
    assert found.why == "no clean checkout to run in: git is broken"
    room.broken = DiskFull("no space")
    with pytest.raises(DiskFull):
        room.ask("true")


def test_a_folder_that_is_not_in_the_checkout_is_a_failure(room: Bare) -> None:
    (room.project / "only").mkdir()
    found = room.ask("true", folder="only")
    assert not found.passed
    assert found.why == f"no folder 'only' in the project {CLEAN_CHECKOUT_NOTE}"
    assert found.rule == PassRule("only", clean=True)


def test_the_key_differs_from_the_same_command_elsewhere_or_with_other_setup(room: Bare) -> None:
    same = room.check("true").key
    there = CommandCheck(CommandCheckSpec("true", "x"), DirectRunner(room.keeper), room.folder, str(room.project), ())
    assert same not in (there.key, room.check("false").key, room.check("true", hidden=True).key)
    assert same == room.check("true", hint="other").key
    room.setup = ("npm ci",)
    assert room.check("true").key != same


def test_a_hidden_check_publishes_no_log(room: Bare) -> None:
    found = room.ask("echo secret; exit 1", hidden=True)
    assert (found.hidden, os.path.isabs(found.log)) == (True, True)
    assert not [path for path in (room.project / ".ralph/runs/run").iterdir() if "clean_it" in path.name]
