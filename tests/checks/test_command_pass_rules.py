"""A command as a check: exit code, what its whole output holds and lacks, the folder that it runs in."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.text import TRUNCATION_MARK
from ralphproof.base.value import replace
from ralphproof.checks.command import MAX_READ_BYTES, CommandCheck, CommandCheckSpec
from ralphproof.engine.check import CheckReport, Finding, Inspection
from ralphproof.engine.prompt import format_failure
from ralphproof.engine.sandbox import CONTINUE
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.store.run_folder import RunFolder

ENV = (("PATH", os.environ["PATH"]), ("PWD", "/somewhere/else"), ("COLOUR", "red"))
SMALL = (4096, 4096, 2)  # bytes of a log's beginning, of a part of it, and how many parts stay


class Patient:
    """Looks on, and wants nothing."""

    def output(self, chunk: bytes) -> None: ...

    def tick(self) -> int:
        return CONTINUE


class Project:
    """A folder in which questions are asked, each in an iteration of its own."""

    def __init__(self, path: Path) -> None:
        self.root, self.keepers = path / "project", [KeeperClient()]
        self.root.mkdir()
        self.folder = RunFolder(str(self.root), "run", str(path / "state"))
        self.folder.begin()
        self.iteration = 0

    def check(self, command: str, root: Path | None = None, **more: Any) -> CommandCheck:
        question = CommandCheckSpec(command, "text", "tests", **{"timeout_s": 60.0, **more})
        return CommandCheck(question, DirectRunner(self.keepers[-1]), self.folder, str(root or self.root), ENV)

    def ask(self, command: str, **more: Any) -> Finding:
        self.iteration += 1
        inspection = Inspection(self.iteration, 1, "", Snapshot("s", "t"), Change())
        return self.check(command, **more).run(inspection, Patient())

    def said(self, text: bytes, **more: Any) -> Finding:
        """What is found where a command prints this."""
        (self.root / "text").write_bytes(text)
        return self.ask("cat text", **more)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    for keeper in made.keepers:
        keeper.close()


@pytest.mark.parametrize(
    ("command", "wanted", "passed", "code", "why"),
    [
        ("true", {}, True, 0, "exit"),
        ("exit 3", {}, False, 3, "exit"),
        ("exit 3", {"success_code": 3}, True, 3, "exit"),
        ("true", {"success_code": 3}, False, 0, "exit code 0, expected 3"),
        ("exit 4", {"success_code": 3}, False, 4, "exit code 4, expected 3"),
        ("echo 5 passed", {"contains": "passed"}, True, 0, "exit"),
        ("echo 5 passed >&2", {"contains": "passed"}, True, 0, "exit"),
        ("echo 5 PASSED", {"contains": "passed"}, False, 0, "output that does not contain 'passed'"),
        ("true", {"contains": "passed"}, False, 0, "output that does not contain 'passed'"),
        ("echo passed; exit 1", {"contains": "passed"}, False, 1, "exit"),
        ("echo FAILED", {"lacks": "FAILED"}, False, 0, "output that contains 'FAILED'"),
        ("echo FAILED >&2", {"lacks": "FAILED"}, False, 0, "output that contains 'FAILED'"),
        ("echo failed", {"lacks": "FAILED"}, True, 0, "exit"),
        ("true", {"lacks": "FAILED"}, True, 0, "exit"),
        ("echo passed", {"contains": "passed", "lacks": "FAILED"}, True, 0, "exit"),
        ("echo passed FAILED", {"contains": "passed", "lacks": "FAILED"}, False, 0, "output that contains 'FAILED'"),
        ("printf 'a\\nb'", {"contains": "a\nb"}, True, 0, "exit"),
        ("no-such-program", {}, False, 127, "exit"),
        ("no-such-program", {"success_code": 127}, True, 127, "exit"),
        ("./text", {}, False, 126, "exit"),
        ("./text", {"success_code": 126}, True, 126, "exit"),
        ("kill -9 $$", {}, False, None, "signal 9"),
        ("kill -9 $$", {"success_code": 137}, False, None, "signal 9"),
        ("echo passed; kill -15 $$", {"contains": "passed"}, False, None, "signal 15"),
    ],
)
def test_a_command_passes_by_its_exit_code_and_its_output(
    project: Project, command: str, wanted: dict[str, Any], passed: bool, code: int | None, why: str
) -> None:
    (project.root / "text").write_text("no program")
    found = project.ask(command, **wanted)
    assert (found.passed, found.code, found.why, found.errored) == (passed, code, why, False)
    assert bool(found.fingerprint) is not passed


def test_a_reason_that_speaks_of_passing_is_no_success(project: Project) -> None:
    found = project.ask("echo 'verification passed: 0 failed'; exit 0", contains="External verification passed")
    assert found.passed is False
    assert "passed" in found.why
    assert not CheckReport((found,)).passed
    assert project.ask("echo passed; exit 1", contains="passed").passed is False


@pytest.mark.parametrize(
    ("command", "wanted", "told"),
    [
        ("exit 3", {}, "failed with exit code 3."),
        ("exit 3", {"success_code": 1}, "failed with exit code 3, expected 1."),
        ("true", {"contains": "ok"}, "failed with output that does not contain 'ok'."),
        ("echo bad", {"lacks": "bad"}, "failed with output that contains 'bad'."),
        ("sleep 60", {"timeout_s": 0.2}, "failed with a timeout after 0.2 s."),
    ],
)
def test_the_agent_is_told_what_was_expected(project: Project, command: str, wanted: dict[str, Any], told: str) -> None:
    assert format_failure(project.ask(command, **wanted)).startswith(f'Guardrail "{command}" {told}\n')


FILL = b"y" * 79 + b"\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (FILL * 20_000, FILL * 20_000),  # in the middle, which is not looked at otherwise
        (b"y" * (MAX_READ_BYTES - 3), b"y" * MAX_READ_BYTES),  # where two blocks meet, without any end of a line
        (b"y" * (MAX_READ_BYTES - 6), b"y" * MAX_READ_BYTES),
        (b"y\n" * (MAX_READ_BYTES // 2 - 2), b"y" * MAX_READ_BYTES),
        (b"y" * (MAX_READ_BYTES - 1) + b"\n", FILL),
        (b"", b"\xff\xfe" * MAX_READ_BYTES),  # no text at all
        (FILL * 20_000, b""),
    ],
)
@pytest.mark.parametrize("text", ["grün ✓", "12 of\n12 done"])
def test_the_whole_output_is_looked_at(project: Project, before: bytes, after: bytes, text: str) -> None:
    assert project.said(before + text.encode() + after, contains=text).passed
    assert project.said(before + after, lacks=text).passed


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (b"y" * (MAX_READ_BYTES - 1) + b"5\x1b[0m passed", "5 passed"),
        (b"y" * (MAX_READ_BYTES - 1) + b"5\x1b[0m passed", "5\x1b[0m passed"),
        (b"12345678\n12" + b"y" * MAX_READ_BYTES, "12345678\n12"),
        (b"\x1b[1m2345678\n12" + b"y" * MAX_READ_BYTES, "\x1b[1m2345678\n12"),
    ],
)
def test_a_text_that_two_blocks_share_is_found_with_its_codes_and_without(
    project: Project, printed: bytes, text: str
) -> None:
    assert project.said(printed, contains=text).passed


def test_output_outside_the_shown_part_counts(project: Project) -> None:
    half = FILL * 14_000
    found = project.said(half + b"3 FAILED\n" + half, lacks="FAILED")
    assert (found.passed, found.why) == (False, "output that contains 'FAILED'")
    assert "FAILED" not in found.output
    assert project.said(half + b"passed\n" + half, contains="passed").passed


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (b"\x1b[32m5\x1b[0m \x1b[1mpassed\x1b[0m\n", "5 passed"),
        (b"one\r\ntwo\r\n", "one\ntwo"),
        (b"\x1b[31mFAILED\x1b[0m a.py", "FAILED a.py"),
        (b"\x1b[31m1 failed", "\x1b[31m1"),  # who asks for the codes gets them
        (b"\x1b]0;a title that never ends\n 3 FAILED\n", "3 FAILED"),  # and codes hide nothing
    ],
)
def test_escape_codes_neither_split_a_text_nor_hide_it(project: Project, printed: bytes, text: str) -> None:
    assert project.said(printed, contains=text).passed
    assert not project.said(printed, lacks=text).passed
    assert not project.said(printed, contains=f"{text}?").passed


def test_a_long_output_is_searched_without_being_held(project: Project) -> None:
    line = b"z" * (3 * MAX_READ_BYTES) + b"\n"
    (project.root / "text").write_bytes(line * 3 + FILL * 200_000 + b"passed")
    tracemalloc.start()
    found = project.ask("cat text", contains="passed", lacks="FAILED")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.passed
    assert peak < 14 * MAX_READ_BYTES  # of 24


def test_what_a_log_dropped_is_not_vouched_for(project: Project) -> None:
    project.keepers.append(KeeperClient(sizes=SMALL))
    flood = b"first\n" + FILL * 1000 + b"last\n"
    assert project.said(flood, contains="first").passed
    assert project.said(flood, contains="last").passed
    assert project.said(flood).passed
    missing = project.said(flood, contains="middle")
    assert missing.why.startswith("output that does not contain 'middle' (")
    assert missing.why.endswith(" bytes of it were dropped)")
    assert project.said(flood, lacks="first").why == "output that contains 'first'"
    unsure = project.said(flood, lacks="FAILED")
    assert not unsure.passed
    assert unsure.why.startswith("output that may contain 'FAILED': ")


@pytest.mark.parametrize("text", ["bytes dropped", TRUNCATION_MARK, "\n... ", "] 6"])
def test_what_the_log_says_of_itself_is_not_the_output(project: Project, text: str) -> None:
    project.keepers.append(KeeperClient(sizes=SMALL))
    found = project.said(FILL * 1000, contains=text)
    assert TRUNCATION_MARK in found.output
    assert not found.passed
    assert project.said(b"... [truncated] 12 bytes dropped\n", contains="12 bytes dropped").passed


def test_an_output_that_the_disk_did_not_take_is_not_vouched_for(project: Project) -> None:
    def ask(**more: Any) -> Finding:
        os.mkdir(project.folder.log_base(f"guardrail_{project.iteration + 1:03d}_text") + ".log")
        return project.ask("echo fine", **more)

    found = ask(lacks="FAILED")
    assert (found.passed, found.code) == (False, 0)
    assert found.why == "output that may contain 'FAILED': the disk did not take all of it"
    assert not ask(contains="fine").passed
    assert ask().passed


def test_a_command_that_hangs_fails_and_its_whole_tree_is_gone(project: Project) -> None:
    nap = f"{os.getpid() + 2000}.{time.monotonic_ns()}"
    found = project.ask(
        "(env -i setsid sleep $NAP &); setsid sleep $NAP & sleep $NAP", timeout_s=0.3, env=(("NAP", nap),)
    )
    assert (found.passed, found.why, found.code) == (False, "a timeout after 0.3 s", None)
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in lines if nap.encode() in line]


def test_a_command_that_floods_fails_at_its_timeout(project: Project) -> None:
    project.keepers.append(KeeperClient(sizes=(1 << 20, 1 << 20, 2)))
    found = project.ask("yes passed", timeout_s=0.3, contains="passed")
    assert (found.passed, found.why) == (False, "a timeout after 0.3 s")
    assert len(found.output) < 6000


def test_it_runs_in_its_folder_and_is_told_so(project: Project) -> None:
    inner = project.root / "sub" / "inner"
    inner.mkdir(parents=True)
    (project.root / "link").symlink_to("sub")
    told = "pwd -P; tr '\\0' '\\n' < /proc/$$/environ | grep ^PWD="
    for folder, place in (("sub", "sub"), ("sub/inner/", "sub/inner"), ("link/inner", "sub/inner"), ("./", ".")):
        found, path = project.ask(told, folder=folder), os.path.normpath(project.root / place)
        assert found.output.split() == [path, f"PWD={path}"]
    assert project.ask(told, folder=str(inner)).output.split()[0] == str(inner)
    assert project.ask(told).output.split() == [str(project.root), f"PWD={project.root}"]


def test_a_project_that_is_reached_by_a_link_has_its_folders(project: Project, tmp_path: Path) -> None:
    (project.root / "sub").mkdir()
    (tmp_path / "other").symlink_to(project.root)
    assert project.ask("pwd -P", root=tmp_path / "other", folder="sub").output == f"{project.root}/sub\n"


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("missing", "no folder 'missing' in the project"),
        ("file", "no folder 'file' in the project"),
        ("loop", "no folder 'loop' in the project"),
        ("nul\0", "no folder 'nul\\x00' in the project"),
        ("..", "a folder outside of the project: '..' leads to '{parent}'"),
        ("/", "a folder outside of the project: '/' leads to '/'"),
        ("sub/../..", "a folder outside of the project: 'sub/../..' leads to '{parent}'"),
        ("out", "a folder outside of the project: 'out' leads to '{parent}/elsewhere'"),
        ("out/deep", "a folder outside of the project: 'out/deep' leads to '{parent}/elsewhere/deep'"),
        ("beside", "a folder outside of the project: 'beside' leads to '{parent}/project-2'"),
    ],
)
def test_a_folder_that_is_none_of_the_project_fails_and_nothing_runs(
    project: Project, tmp_path: Path, folder: str, why: str
) -> None:
    for name in ("elsewhere/deep", "project-2", "project/sub"):
        (tmp_path / name).mkdir(parents=True)
    (project.root / "file").touch()
    for name, goal in (("loop", "loop"), ("out", "../elsewhere"), ("beside", "../project-2")):
        (project.root / name).symlink_to(goal)
    found = project.ask(f"touch {tmp_path}/ran", folder=folder, retries=2, required=False, hint="look")
    assert (found.passed, found.errored, found.runs, found.required) == (False, False, 0, False)
    assert found.why == why.format(parent=tmp_path)
    assert (found.key, found.hint, bool(found.fingerprint)) != ("", "", False)
    assert not (tmp_path / "ran").exists()


def test_a_folder_replaced_by_a_link_out_of_the_project_fails(project: Project, tmp_path: Path) -> None:
    (project.root / "sub").mkdir()
    check = project.check("pwd", folder="sub")
    asked = Inspection(1, 1, "", Snapshot("s", "t"), Change())
    assert check.run(asked, Patient()).passed
    (project.root / "sub").rmdir()
    (project.root / "sub").symlink_to(tmp_path)
    assert not check.run(replace(asked, iteration=2), Patient()).passed


def test_its_environment_is_added_to_that_of_all_checks(project: Project) -> None:
    found = project.ask('echo "$COLOUR $SHAPE"', env=(("SHAPE", "round"),))
    assert found.output == "red round\n"
    assert project.ask('echo "$COLOUR $SHAPE"', env=(("COLOUR", "blue"),)).output == "blue \n"


def test_a_failure_of_any_kind_may_be_tried_again(project: Project) -> None:
    found = project.ask("cat word; echo passed >> word", contains="passed", retries=2)
    assert (found.passed, found.runs) == (True, 2)
    assert project.ask("true", contains="passed", retries=2).runs == 3


QUESTION = CommandCheckSpec("make", "slug", "name", timeout_s=5, env=(("A", "1"), ("B", "2")))


def key(question: CommandCheckSpec) -> str:
    return CommandCheck(question, DirectRunner(Unused()), RunFolder("/", "run", "/"), "/", ()).key


class Unused:
    """Runs nothing."""

    def run(self, command: object, watch: object) -> Any:
        raise AssertionError("nothing is to be run")


@pytest.mark.parametrize(
    "change",
    [
        {"command": "make all"}, {"timeout_s": 6.0}, {"retries": 1}, {"success_code": 1}, {"contains": "x"},
        {"lacks": "x"}, {"folder": "sub"}, {"required": False}, {"env": (("A", "1"), ("B", "3"))}, {"env": ()},
    ],
)  # fmt: skip
def test_settings_that_affect_the_result_change_the_key(change: dict[str, Any]) -> None:
    assert key(replace(QUESTION, **change)) != key(QUESTION)


@pytest.mark.parametrize(
    "change",
    [
        {"slug": "other"}, {"name": "other"}, {"action": "PREPEND"}, {"hint": "look"}, {"clip_chars": 1},
        {"clip_mode": "head"}, {"timeout_s": 5.0}, {"folder": "./"}, {"env": (("B", "2"), ("A", "1"))},
    ],
)  # fmt: skip
def test_display_settings_do_not_change_the_key(change: dict[str, Any]) -> None:
    assert key(replace(QUESTION, **change)) == key(QUESTION) != ""


def test_every_finding_has_the_key_and_says_whether_it_is_required(project: Project) -> None:
    wanted: list[Callable[[], Finding]] = [
        lambda: project.ask("true", required=False),
        lambda: project.ask("false", required=False),
        lambda: project.ask("true", required=False, timeout_s=59.0),
    ]
    passed, failed, other = (ask() for ask in wanted)
    assert passed.key == project.check("true", required=False).key
    assert len({passed.key, failed.key, other.key}) == 3
    assert [found.required for found in (passed, failed, other)] == [False] * 3
    assert project.ask("true").required
