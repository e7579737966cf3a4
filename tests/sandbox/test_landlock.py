"""The back end Landlock: which fence a box becomes, and that a program behind it has what the box says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphproof.sandbox.landlock import DEVICES, PROC_FOLDER, Landlock, list_around, list_readable_by_others
from ralphproof.sandbox.plan import (
    DEV_NULL,
    EMPTY_FOLDER,
    PROXY_BY_PORT,
    READ_ONLY,
    WRITABLE,
    Backend,
    EgressPolicy,
    LandlockRules,
    Mount,
    SandboxPlan,
)
from tests.needs import require
from tests.sandbox.fenced import ENTER, OURSELVES, SOURCE, Place, place

BACKEND: Backend = Landlock()


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """A folder that everybody may read, with a few entries that only their owner may."""
    for name in (
        "open/a",
        "open/deep/b",
        "mixed/a",
        "mixed/key",
        "mixed/deep/b",
        "closed/a",
        "project/src/a",
        "temp/x",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(0o644)
    for folder in [path for path in tmp_path.rglob("*") if path.is_dir()]:
        folder.chmod(0o755)
    (tmp_path / "mixed/key").chmod(0o600)
    (tmp_path / "closed").chmod(0o711)
    yield tmp_path
    (tmp_path / "closed").chmod(0o755)


def fence(
    tree: Path, *mounts: tuple[str, str] | tuple[str, str, str], root: bool = False, home: str = "home"
) -> LandlockRules:
    """The fence of a box with these mounts, whose paths are told from the tree."""
    made = tuple(Mount(kind, *(f"{tree}/{one}".rstrip("/") for one in paths)) for kind, *paths in mounts)
    return Landlock().landlock(SandboxPlan(f"{tree}/project", f"{tree}/{home}", f"{tree}/temp", made), root)


def named(tree: Path, paths: tuple[str, ...]) -> list[str]:
    return sorted(path.removeprefix(f"{tree}/") for path in paths if path != PROC_FOLDER and path not in DEVICES)


@pytest.mark.parametrize(
    ("mounts", "read", "write"),
    [
        ([(READ_ONLY, "open"), (WRITABLE, "project")], ["open"], ["project", "temp"]),
        # What is held in a folder that is written cannot be held, and needs no right of its own.
        ([(WRITABLE, "project"), (READ_ONLY, "project/src"), (WRITABLE, "project/src/a")], [], ["project", "temp"]),
        ([(WRITABLE, ""), (WRITABLE, "project")], [], ["."]),
        # What lies elsewhere is listed where it really is.
        ([(READ_ONLY, "elsewhere", "open"), (WRITABLE, "state", "project/src")], ["open"], ["project/src", "temp"]),
        ([(WRITABLE, "project"), (READ_ONLY, "project/src", "open")], ["open"], ["project", "temp"]),
        # What comes later lies over what comes before.
        ([(READ_ONLY, "open"), (WRITABLE, "open")], [], ["open", "temp"]),
        ([(WRITABLE, "open/deep"), (READ_ONLY, "open")], ["open"], ["temp"]),
        ([(READ_ONLY, "open/deep"), (EMPTY_FOLDER, "open")], [], ["temp"]),
        ([(EMPTY_FOLDER, "open"), (READ_ONLY, "open/deep")], ["open/deep"], ["temp"]),
        # What is covered is not shown.
        ([(READ_ONLY, "open"), (EMPTY_FOLDER, "open/deep")], ["open/a"], ["temp"]),
        (
            [(READ_ONLY, "open"), (EMPTY_FOLDER, "open/deep"), (READ_ONLY, "open/deep/b")],
            ["open/a", "open/deep/b"],
            ["temp"],
        ),
        ([(READ_ONLY, "open"), (READ_ONLY, "open/deep/b", "closed/a")], ["closed/a", "open/a"], ["temp"]),
        ([(READ_ONLY, "elsewhere", "open"), (EMPTY_FOLDER, "elsewhere/deep")], ["open/a"], ["temp"]),
        ([(READ_ONLY, "open"), (EMPTY_FOLDER, "open/gone")], ["open"], ["temp"]),
        (
            [(READ_ONLY, "open"), (READ_ONLY, "open/deep"), (WRITABLE, "open/a")],
            ["open", "open/deep"],
            ["open/a", "temp"],
        ),
    ],
)
def test_a_box_becomes_a_fence(
    mounts: list[tuple[str, str] | tuple[str, str, str]], read: list[str], write: list[str], tree: Path
) -> None:
    made = fence(tree, *mounts)
    assert named(tree, made.read) == read
    assert named(tree, made.write) == ([str(tree)] if write == ["."] else write)


def test_a_file_that_is_covered_by_nothing_is_not_shown(tree: Path) -> None:
    plan = SandboxPlan("", "", "", (Mount(READ_ONLY, f"{tree}/open"), Mount(READ_ONLY, f"{tree}/open/a", DEV_NULL)))
    assert named(tree, Landlock().landlock(plan, False).read) == ["open/deep"]


def test_processes_are_read_and_a_few_devices_are_written(tree: Path) -> None:
    made = fence(tree, (READ_ONLY, "open"))
    assert PROC_FOLDER in made.read
    assert set(made.write) == {*DEVICES, f"{tree}/temp"}
    assert not {"/dev", "/dev/shm", "/dev/pts", "/dev/ptmx"} & {*made.read, *made.write}


def test_the_way_is_a_fence_and_a_port(tree: Path) -> None:
    plan = SandboxPlan(
        str(tree), "/nowhere", "", (Mount(WRITABLE, str(tree)),), egress=EgressPolicy(local_ports=(5432,))
    )
    way = BACKEND.entry(plan)
    assert (way.argv, way.proxy_access, way.no_entrypoint) == ((), PROXY_BY_PORT, False)
    assert way.landlock is not None
    assert way.landlock.ports == (5432,)


def test_a_link_that_was_put_into_the_project_opens_nothing(tree: Path) -> None:
    (tree / "project/temp").symlink_to(tree / "closed")
    plan = SandboxPlan(f"{tree}/project", "", f"{tree}/project/temp", (Mount(WRITABLE, f"{tree}/project"),))
    assert named(tree, Landlock().landlock(plan, False).write) == ["project"]


@pytest.mark.parametrize(
    ("mount", "home", "read"),
    [
        ("open", "home", ["open"]),
        ("mixed", "home", ["mixed/a", "mixed/deep"]),
        ("", "home", ["mixed/a", "mixed/deep", "open", "project", "temp"]),  # the last is written too
        # Named itself, or the user's own.
        ("mixed/key", "home", ["mixed/key"]),
        ("closed", "home", ["closed"]),
        ("mixed", "", ["mixed"]),
    ],
)
def test_for_root_what_others_may_not_read_is_left_out(mount: str, home: str, read: list[str], tree: Path) -> None:
    tree.chmod(0o755)
    made = fence(tree, (READ_ONLY, mount), root=True, home=home)
    assert named(tree, made.read) == read


def test_a_mode_that_was_changed_from_inside_shows_a_later_command_no_more(tree: Path) -> None:
    backend, plan = Landlock(), SandboxPlan("", "", "", (Mount(READ_ONLY, f"{tree}/mixed"),))
    before = backend.landlock(plan, True)
    (tree / "mixed/key").chmod(0o644)
    assert backend.landlock(plan, True) == before


def test_links_are_not_followed(tree: Path) -> None:
    (tree / "mixed/link").symlink_to(tree / "closed/a")
    assert named(tree, list_readable_by_others(f"{tree}/mixed")) == ["mixed/a", "mixed/deep"]
    assert named(tree, list_around(f"{tree}/mixed", (f"{tree}/mixed/key",))) == ["mixed/a", "mixed/deep"]


def test_here_it_can_be_used() -> None:
    require(sys.platform == "linux", "Linux")
    problem = BACKEND.problem()
    require(problem is None, f"Landlock: {problem}")
    assert BACKEND.prepare(SandboxPlan("", "", "", ()), None) == ""  # type: ignore[arg-type]


@pytest.fixture
def here() -> Iterator[Place]:
    require(BACKEND.problem() is None, "a kernel with Landlock")
    with place(OURSELVES) as made:
        yield made


def entered(here: Place, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a box of the system, this Python, and one folder."""
    roots = ("/usr", "/bin", "/lib", "/lib64", "/etc", sys.prefix, sys.base_prefix, str(SOURCE))
    mounts = (*(Mount(READ_ONLY, path) for path in roots if os.path.exists(path)), Mount(WRITABLE, str(here.inside)))
    way = BACKEND.entry(SandboxPlan(str(here.inside), os.path.expanduser("~"), "", mounts))
    assert way.landlock is not None
    wanted = {"read": way.landlock.read, "write": way.landlock.write, "ports": way.landlock.ports}
    enter = [sys.executable, "-I", "-S", "-c", ENTER, str(SOURCE), json.dumps(wanted)]
    return subprocess.run([*enter, *argv], env=here.env, cwd=here.inside, capture_output=True, text=True)


@pytest.mark.parametrize(
    "shell",
    [
        "grep -q localhost /etc/hosts && id -un && getent hosts localhost",
        "git init -q . && git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x",
        "python3 -c 'import ssl; ssl.create_default_context()'",
    ],
)
def test_the_system_is_there(shell: str, here: Place) -> None:
    ended = entered(here, "sh", "-c", shell)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("path", ["/etc/shadow", "/etc/gshadow", "/tmp", "/root", "/dev/shm", "/sys"])
def test_what_is_not_of_the_system_is_refused(path: str, here: Place) -> None:
    require(os.geteuid() == 0, "root, who can read it")
    assert subprocess.run(["ls" if os.path.isdir(path) else "cat", path], capture_output=True).returncode == 0
    ended = entered(here, "ls" if os.path.isdir(path) else "cat", path)
    assert "Permission denied" in ended.stderr
