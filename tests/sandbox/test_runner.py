"""Commands in boxes: what is said where a box cannot be entered, and that nothing stays behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from ralphproof.base.files import remove_tree
from ralphproof.engine.sandbox import Command, Exit
from ralphproof.sandbox.launcher import EgressGateway
from ralphproof.sandbox.plan import (
    PROXY_BY_DESCRIPTOR,
    PROXY_BY_PORT,
    PROXY_BY_SOCKET,
    READ_ONLY,
    EgressPolicy,
    LandlockRules,
    LaunchReport,
    LaunchSpec,
    Mount,
    Protection,
    SandboxEntry,
    SandboxPlan,
    read_launch_report,
    read_launch_spec,
    write_launch_report,
    write_launch_spec,
)
from ralphproof.sandbox.project_mounts import Placeholders
from ralphproof.sandbox.runner import AUDIT_SUFFIX, LAUNCH_SPEC_SUFFIX, REPORT_SUFFIX, SandboxedRunner

# Enters a box that is none, as an engine would, and forgets how the program ended.
FORGETS = """
import subprocess, sys
place, *argv = sys.argv[1:]
subprocess.run([word.replace("unix:/run/ralph", f"unix:{place}") for word in argv])
sys.exit(99)
"""


# Calls the first program inside, and leaves when the one that it becomes has begun.
DEPARTS = """
import os, subprocess, sys, time
place, begun, *argv = sys.argv[1:]
subprocess.Popen([word.replace("unix:/run/ralph", f"unix:{place}") for word in argv])
while not os.path.exists(begun):
    time.sleep(0.01)
"""


# Comes to the meeting, and leaves without a word.
LEAVES = """
import socket, sys
with socket.socket(socket.AF_UNIX) as channel:
    channel.connect(sys.argv[1])
    channel.recv(10000)
sys.exit(7)
"""


class Owner:
    """Runs a command, and nothing more."""

    def run(self, command: Command, watch: object) -> Exit:
        with open(command.out, "wb") as out:
            ended = subprocess.run(command.argv, env=dict(command.env), cwd=command.cwd, stdout=out, stderr=out)
        return Exit(ended.returncode)


@dataclass
class Kind:
    """A kind of sandbox whose boxes are entered so."""

    way_in: SandboxEntry
    why: str = ""
    done: list[str] = field(default_factory=list)
    name = "kind"
    strength = "strong"
    weaknesses: tuple[str, ...] = ()
    protects_paths = can_remount = True

    def problem(self) -> None:
        return None

    def entry(self, plan: SandboxPlan) -> SandboxEntry:
        self.done.append("entered")
        return self.way_in

    def prepare(self, plan: SandboxPlan, command: Command) -> str:
        return self.why

    def clean_up(self, plan: SandboxPlan) -> None:
        self.done.append("over")


@dataclass(frozen=True)
class Place:
    """A project, and commands that run in boxes around it."""

    folder: Path

    @property
    def plan(self) -> SandboxPlan:
        root = str(self.folder / "project")
        placeholders = (f"{root}/.env", f"{root}/a/hooks")
        return SandboxPlan(
            root,
            str(self.folder),
            str(self.folder / "1.tmp"),
            (Mount(READ_ONLY, "/"),),
            passed_variables=("PATH", "RALPH_TURN"),
            variables=(("SET", "here"),),
            protection=Protection(placeholders=placeholders, folders=(f"{root}/a", f"{root}/a/hooks")),
        )

    def command(self, *argv: str) -> Command:
        env = (("PATH", os.environ["PATH"]), ("SECRET", "x"))
        return Command(argv, self.plan.root, env, str(self.folder / "1.log"), str(self.folder / "1.turn"), "mark")

    def run(self, kind: Kind, *argv: str) -> Exit:
        boxed = SandboxedRunner(Owner(), kind, Planned(self.plan), Placeholders(str(self.folder / "private")))
        return boxed.run(self.command(*argv), None)  # type: ignore[arg-type]

    @property
    def log(self) -> str:
        return (self.folder / "1.log").read_text()

    def left(self) -> list[str]:
        """What is there but the project and what is to be read later."""
        kept = {"project", "private", "1.log", f"1{LAUNCH_SPEC_SUFFIX}", f"1{REPORT_SUFFIX}", f"1{AUDIT_SUFFIX}"}
        return sorted({path.name for path in self.folder.iterdir()} - kept) + os.listdir(self.plan.root)


@dataclass(frozen=True)
class Planned:
    """The same box for every command."""

    made: SandboxPlan

    def plan(self, command: Command) -> SandboxPlan:
        return self.made


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "project").mkdir()
    return Place(tmp_path)


def test_a_command_runs_in_its_box_with_the_variables_of_it(place: Place) -> None:
    kind = Kind(SandboxEntry((), PROXY_BY_DESCRIPTOR))
    end = place.run(kind, "sh", "-c", "echo $SET$SECRET; ls -A; exit 5")
    assert (end.code, end.why) == (5, "exit")
    assert place.log == "here\n.env\na\n"
    assert kind.done == ["entered", "over"]
    assert place.left() == []


def test_a_kind_that_cannot_be_made_ready_runs_nothing(place: Place) -> None:
    kind = Kind(SandboxEntry((), PROXY_BY_DESCRIPTOR), "the engine is gone")
    end = place.run(kind, "touch", "ran")
    assert (end.code, end.why, end.error) == (None, "unstartable", "sandbox kind: the engine is gone")
    assert kind.done == []
    assert place.left() == []


@pytest.mark.parametrize("meets", [PROXY_BY_DESCRIPTOR, PROXY_BY_SOCKET])
@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("sh", "-c", "echo no room >&2; exit 1"), 1, "no room\n"),
        (("no-such-program",), 126, "ralph sandbox: cannot start 'no-such-program': No such file or directory\n"),
        (("sh", "-c", "exit 0"), 0, ""),
    ],
)
def test_a_box_that_cannot_be_entered_is_told_from_a_command_that_fails(
    meets: str, argv: tuple[str, ...], code: int, words: str, place: Place
) -> None:
    kind = Kind(SandboxEntry(argv, meets))
    end = place.run(kind, "touch", "ran")
    assert (end.code, end.why) == (None, "unstartable")
    assert end.error == f"sandbox kind could not be entered (exit code {code}); its output says why"
    assert place.log == words
    assert kind.done == ["entered", "over"]
    assert place.left() == []


@pytest.mark.parametrize("script", ["exit 5", "kill -TERM $$", "exit 0"])
def test_an_engine_that_loses_how_a_program_ended_is_not_believed(script: str, place: Place) -> None:
    expected = {"exit 5": 5, "kill -TERM $$": 143, "exit 0": 0}[script]
    with TemporaryDirectory() as short:
        os.symlink(place.plan.socket_folder, f"{short}/m")
        way = SandboxEntry((sys.executable, "-c", FORGETS, f"{short}/m"), PROXY_BY_SOCKET)
        assert place.run(Kind(way), "sh", "-c", script).code == expected


def test_a_program_may_outlast_whoever_only_called_its_engine(place: Place, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with TemporaryDirectory() as short:
        os.symlink(place.plan.socket_folder, f"{short}/m")
        way = SandboxEntry((sys.executable, "-c", DEPARTS, f"{short}/m", str(begun)), PROXY_BY_SOCKET)
        assert place.run(Kind(way), "sh", "-c", f"touch '{begun}'; sleep 0.5; exit 5").code == 5


def test_a_program_that_no_signal_reaches_has_them_passed_on(place: Place) -> None:
    script = "trap 'exit 5' TERM; kill -TERM $PPID; sleep 20 & wait; exit 6"
    with TemporaryDirectory() as short:
        os.symlink(place.plan.socket_folder, f"{short}/m")
        way = SandboxEntry((sys.executable, "-c", FORGETS, f"{short}/m"), PROXY_BY_SOCKET, gets_group_signals=False)
        assert place.run(Kind(way), "sh", "-c", script).code == 5


def test_who_comes_to_the_meeting_and_leaves_was_never_inside(place: Place) -> None:
    with TemporaryDirectory() as short:
        os.symlink(place.plan.socket_folder, f"{short}/m")
        end = place.run(
            Kind(SandboxEntry((sys.executable, "-c", LEAVES, f"{short}/m/ctl.sock"), PROXY_BY_SOCKET)), "true"
        )
    assert (end.code, end.why) == (None, "unstartable")


def test_who_dies_in_the_middle_leaves_nothing(place: Place) -> None:
    script = "kill -9 $PPID"  # the outer program is above the one inside
    end = place.run(Kind(SandboxEntry((), PROXY_BY_DESCRIPTOR)), "sh", "-c", script)
    assert (end.why, end.code) == ("unstartable", None)
    assert end.error == "sandbox kind broke down (exit code -9); its output says why"
    assert read_launch_report(str(place.folder / f"1{REPORT_SUFFIX}")) is None
    assert place.left() == []


def test_an_owner_who_fails_leaves_nothing(place: Place) -> None:
    class Failing(Owner):
        def run(self, command: Command, watch: object) -> Exit:
            raise KeyboardInterrupt

    kind = Kind(SandboxEntry((), PROXY_BY_DESCRIPTOR))
    boxed = SandboxedRunner(Failing(), kind, Planned(place.plan), Placeholders(str(place.folder / "private")))
    with pytest.raises(KeyboardInterrupt):
        boxed.run(place.command("true"), None)  # type: ignore[arg-type]
    assert kind.done == ["entered", "over"]
    assert place.left() == []


# What is told


def test_a_load_comes_back_as_it_was(tmp_path: Path) -> None:
    plan = SandboxPlan(
        "/p",
        "/h",
        "/t",
        (Mount(READ_ONLY, "/a\udcff"),),
        EgressPolicy(("a.test",), (80,)),
        protection=Protection(placeholders=("/p/x",)),
    )
    spec = LaunchSpec(
        plan,
        SandboxEntry(("a",), PROXY_BY_PORT, LandlockRules(("/r",), ("/w",), (1,)), (("A", "b"),)),
        "audit",
        "report",
        "lock",
    )
    write_launch_spec(str(tmp_path / "load"), spec)
    assert read_launch_spec(str(tmp_path / "load")) == spec
    assert (tmp_path / "load").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["load"]


def test_what_is_no_load_is_refused(tmp_path: Path) -> None:
    write_launch_report(str(tmp_path / "report"), True, "")
    with pytest.raises(TypeError):
        read_launch_spec(str(tmp_path / "report"))


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"is": "ResourceLimits"}', '{"is": "LaunchReport"}'])
def test_a_report_that_cannot_be_read_is_none(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "report").write_text(text)
    assert read_launch_report(str(tmp_path / "report")) is None


def test_a_report_tells_how_it_went(tmp_path: Path) -> None:
    write_launch_report(str(tmp_path / "report"), True, "memory")
    assert read_launch_report(str(tmp_path / "report")) == LaunchReport(True, "memory")


def test_a_folder_is_cleared_whatever_was_made_of_it_and_nothing_else(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir(mode=0o750)
    (outside / "kept").touch()
    (folder / "closed/deep").mkdir(parents=True)
    (folder / "closed/link").symlink_to(outside)
    (folder / "closed").chmod(0)
    script = (
        "import sys; sys.path.append(sys.argv[1]); from ralphproof.base.files import remove_tree; "
        "remove_tree(sys.argv[2])"
    )
    source = str(Path(__file__).parents[2] / "src")
    # Root is stopped by no mode, but without that right it is.
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    subprocess.run([*without, sys.executable, "-I", "-c", script, source, str(folder)], check=True)
    assert not folder.exists()
    assert ((outside / "kept").exists(), outside.stat().st_mode & 0o777) == (True, 0o750)
    remove_tree(str(folder))
    remove_tree("")


# The gate


@contextmanager
def gate(tmp_path: Path, way: SandboxEntry, **plan: Any) -> Iterator[EgressGateway]:
    box_made = SandboxPlan("/p", "/h", str(tmp_path / "1.tmp"), (), **plan)
    made = EgressGateway(LaunchSpec(box_made, way, str(tmp_path / "audit"), str(tmp_path / "report")))
    yield made
    made.close()


def test_who_is_bare_is_started_as_it_is_and_told_the_port(tmp_path: Path) -> None:
    with gate(
        tmp_path, SandboxEntry(("enter", "-p", "at {port}"), PROXY_BY_PORT, no_entrypoint=True), passed_variables=("A",)
    ) as made:
        argv, env = made.argv("inner", ("program", "{port}")), made.environment({"A": "1", "B": "2"})
        assert made.entered
    port = argv[2].removeprefix("at ")
    assert argv == ("enter", "-p", f"at {port}", "program", "{port}")
    assert env["http_proxy"].endswith(f"@127.0.0.1:{port}")
    assert "B" not in env


@pytest.mark.parametrize(
    ("meets", "place"),
    [(PROXY_BY_DESCRIPTOR, "fd:"), (PROXY_BY_SOCKET, "unix:/run/ralph/ctl.sock"), (PROXY_BY_PORT, "fd:")],
)
def test_who_is_not_bare_starts_with_a_program_of_ours(meets: str, place: str, tmp_path: Path) -> None:
    with gate(tmp_path, SandboxEntry(("enter", "{port}"), meets)) as made:
        argv = made.argv("inner", ("program",))
        assert not made.entered
    assert argv[:6] == ("enter", "{port}", sys.executable, "-I", "-S", "inner")
    assert argv[6].startswith(place)
    assert argv[7:] == ("program",)


def test_the_folder_of_the_meeting_may_have_a_long_name(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["long-name" * 10] * 3)
    with gate(deep, SandboxEntry((), PROXY_BY_SOCKET)):
        assert os.listdir(deep / "1.tmp/meeting") == ["ctl.sock"]


def test_variables_for_the_entering_program_come_last(tmp_path: Path) -> None:
    with gate(
        tmp_path,
        SandboxEntry((), PROXY_BY_SOCKET, env=(("A", "/engine"),)),
        passed_variables=("A", "X"),
        variables=(("X", "2"),),
    ) as made:
        assert made.environment({"A": "/me", "X": "1", "Y": "3"}) == {"A": "/engine", "X": "2"}
