"""What a sandbox shows of the system: installed programs and settings, without what is not for everybody."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from ralphproof.sandbox.host_mounts import _private_entry_covers, is_in_system, socket_covers, system_mounts
from ralphproof.sandbox.plan import DEV_NULL, READ_ONLY, Mount
from tests.needs import require
from tests.sandbox.sight import can_read, place_of


@pytest.fixture
def empty(tmp_path: Path) -> str:
    (tmp_path / "empty").mkdir()
    return str(tmp_path / "empty")


def test_programs_libraries_and_settings_are_there_and_nothing_is_written(empty: str) -> None:
    mounts = system_mounts(os.geteuid() == 0, empty)
    assert {mount.kind for mount in mounts} == {READ_ONLY}
    for path in ("/bin/sh", "/usr/bin/env", "/etc/passwd", "/etc/ssl", "/lib"):
        assert can_read(mounts, path), path


@pytest.mark.parametrize(
    "path", ["/root", "/home", "/var", "/var/lib", "/tmp", "/run", "/proc", "/srv", "/mnt", "/media", "/boot", "/sys"]
)
def test_nothing_else_is(empty: str, path: str) -> None:
    assert place_of(system_mounts(True, empty), path) == ("", "")


def test_for_root_what_others_may_not_read_is_covered(empty: str) -> None:
    require(os.geteuid() == 0, "root, who can read it")
    mounts = system_mounts(True, empty)
    hidden = [
        os.path.join(folder, name)
        for folder, folders, files in os.walk("/etc")
        for name in files
        if stat.S_ISREG(mode := os.lstat(os.path.join(folder, name)).st_mode) and not mode & stat.S_IROTH
    ]
    assert "/etc/shadow" in hidden
    assert [path for path in hidden if place_of(mounts, path)[1] == path] == []


def test_of_a_folder_the_nearest_entries_are_covered_first(tmp_path: Path, empty: str) -> None:
    for name, mode in (("open", 0o644), ("key", 0o640), ("deep/key", 0o600), ("deep/open", 0o604)):
        (tmp_path / "etc" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "etc" / name).write_text("")
        (tmp_path / "etc" / name).chmod(mode)
    (tmp_path / "etc/closed").mkdir(mode=0o700)
    (tmp_path / "etc/closed/inner").write_text("")
    (tmp_path / "etc/link").symlink_to("closed")
    covers = list(_private_entry_covers([f"{tmp_path}/etc"], True, empty))
    found = sorted((one.path.removeprefix(f"{tmp_path}/etc/"), one.source) for one in covers)
    assert found == [("closed", empty), ("deep/key", DEV_NULL), ("key", DEV_NULL)]
    assert list(_private_entry_covers([f"{tmp_path}/etc"], False, empty)) == []


def test_a_user_does_not_see_settings_that_a_group_may_read(empty: str) -> None:
    """Only root can make such a file; the user who looks is one of its group."""
    require(os.geteuid() == 0, "root, who can become another user")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from ralphproof.sandbox.host_mounts import system_mounts;"
        "print([one.path for one in system_mounts(False, '/x') if one.source == '/dev/null'])"
    )
    source = str(Path(__file__).resolve().parents[2] / "src")
    group = os.stat("/etc/shadow").st_gid
    prefix = ["setpriv", "--reuid=12345", f"--regid={group}", "--clear-groups"]
    ended = subprocess.run(
        [*prefix, "/usr/bin/python3", "-c", program, source], capture_output=True, text=True, cwd="/"
    )
    require("No such file" not in ended.stderr, "a Python that other users can start")
    assert "/etc/shadow" in ended.stdout, ended.stderr


@pytest.mark.parametrize(
    ("path", "there"),
    [("/usr/bin/env", True), ("/bin", True), ("/etc/passwd", True), ("/etc/shadow", os.geteuid() != 0),
     ("/root", False), ("/usrlocal", False), ("/", False), ("/opt/gone/x", True)],
)  # fmt: skip
def test_whether_the_system_shows_a_path(path: str, there: bool) -> None:
    assert is_in_system(path) is there


def test_sockets_are_covered_wherever_they_can_be_seen(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        one.bind(str(tmp_path / "a b" / "s"))
        two.bind(str(tmp_path / "other"))
        mounts = (Mount(READ_ONLY, f"{tmp_path}/a b"), Mount(READ_ONLY, "/elsewhere", f"{tmp_path}/a b"))
        assert socket_covers(mounts) == (
            Mount(READ_ONLY, f"{tmp_path}/a b/s", DEV_NULL),
            Mount(READ_ONLY, "/elsewhere/s", DEV_NULL),
        )
    assert socket_covers(mounts, str(tmp_path / "no table")) == ()


def test_a_socket_in_a_folder_that_is_searched_is_covered_without_the_kernels_list(tmp_path: Path, empty: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert list(_private_entry_covers([str(tmp_path)], False, empty)) == [
            Mount(READ_ONLY, f"{tmp_path}/s", DEV_NULL)
        ]
