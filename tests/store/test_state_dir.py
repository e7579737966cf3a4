"""Where state is kept, with a home directory and without."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ralphproof.base.errors import Refused
from ralphproof.store.project import account_home, ensure_state_dir, network_kind
from tests.needs import require
from tests.store.subprocesses import environment


def test_the_first_of_three_places_counts(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    home = {"HOME": str(tmp_path / "home")}
    assert ensure_state_dir(home) == str(tmp_path / "home" / ".local" / "state" / "ralphproof")
    xdg = {**home, "XDG_STATE_HOME": str(tmp_path / "xdg")}
    assert ensure_state_dir(xdg) == str(tmp_path / "xdg" / "ralphproof")
    own = {**xdg, "RALPH_STATE_DIR": str(tmp_path / "own")}
    assert ensure_state_dir(own) == str(tmp_path / "own")
    unusable = {**home, "XDG_STATE_HOME": "relative", "RALPH_STATE_DIR": ""}
    assert ensure_state_dir(unusable) == ensure_state_dir(home)


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_it_is_made_private_and_an_existing_one_stays_as_it_is(tmp_path: Path, umask: int) -> None:
    (tmp_path / "mine").mkdir(mode=0o755)
    old = os.umask(umask)
    try:
        made = ensure_state_dir({"RALPH_STATE_DIR": str(tmp_path / "a" / "b")})
        ensure_state_dir({"RALPH_STATE_DIR": str(tmp_path / "mine")})
    finally:
        os.umask(old)
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (made, os.path.dirname(made))] == [0o700, 0o700]
    assert stat.S_IMODE(os.stat(tmp_path / "mine").st_mode) == 0o755


@pytest.mark.parametrize("home", [None, "", "relative", "{}/missing/home", "/dev/null"])
def test_without_a_home_the_user_database_knows_one(tmp_path: Path, home: str | None) -> None:
    environ = {} if home is None else {"HOME": home.format(tmp_path)}
    assert ensure_state_dir(environ, lambda: str(tmp_path)) == str(tmp_path / ".local" / "state" / "ralphproof")
    assert os.listdir(tmp_path) == [".local"]


def test_an_unusable_home_falls_back_to_the_one_in_the_user_database(tmp_path: Path) -> None:
    (tmp_path / "account").mkdir()
    (tmp_path / ".local").write_text("not a directory")
    made = ensure_state_dir({"HOME": str(tmp_path)}, lambda: str(tmp_path / "account"))
    assert made == str(tmp_path / "account" / ".local" / "state" / "ralphproof")


@pytest.mark.parametrize("account", ["", "/dev/null/missing"])
def test_with_no_home_at_all_the_setting_is_named(account: str) -> None:
    with pytest.raises(Refused, match=r"no home directory.*RALPH_STATE_DIR"):
        ensure_state_dir({}, lambda: account)


def test_the_user_database_is_asked_for_this_user() -> None:
    assert account_home() == pwd.getpwuid(os.geteuid()).pw_dir


ASK = """
import os, pwd, sys
from ralphproof.base.errors import RalphError
from ralphproof.store.project import ensure_state_dir
os.setgid(65534); os.setuid(65534)
try:
    print(ensure_state_dir(dict(part.split("=", 1) for part in sys.argv[1:])))
except RalphError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("name", ["HOME", "XDG_STATE_HOME", "RALPH_STATE_DIR"])
def test_an_unwritable_place_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    require(os.geteuid() == 0, "only root can become another user")
    result = subprocess.run(
        [sys.executable, "-c", ASK, f"{name}={tmp_path}"],
        env=environment(TMPDIR="/dev/null/missing"), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert result.stderr == ""
    assert result.stdout.startswith("Refused")
    assert "RALPH_STATE_DIR" in result.stdout
    assert len(result.stdout.splitlines()) == 1


def test_a_link_of_mine_is_followed_and_a_foreign_or_dangling_one_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    assert ensure_state_dir({"RALPH_STATE_DIR": str(link)}) == str(link)
    (tmp_path / "real").rmdir()
    with pytest.raises(Refused, match="symbolic link"):
        ensure_state_dir({"RALPH_STATE_DIR": str(link)})
    require(os.geteuid() == 0, "only root can give a link to another user")
    (tmp_path / "real").mkdir()
    os.chown(link, 65534, 65534, follow_symlinks=False)
    with pytest.raises(Refused, match="another user"):
        ensure_state_dir({"RALPH_STATE_DIR": str(link)})


MOUNTS = r"""/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
tmpfs /home/me/local tmpfs rw 0 0
//nas/share /mnt/with\040space cifs rw 0 0
C:\134 /mnt/c 9p rw 0 0
me@host:/ /mnt/ssh fuse.sshfs rw 0 0
/dev/vdb /mnt/ssh/over xfs rw 0 0
server:/x /opt nfs rw 0 0
/dev/vdc /opt ext4 rw 0 0
torn
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/x", ""),
        ("/home/me", "nfs4"),
        ("/home", "nfs4"),
        ("/homestead", ""),
        ("/home/me/local/state", ""),
        ("/mnt/with space/state", "cifs"),
        ("/mnt/c/Users", "9p"),
        ("/mnt/ssh/x", "fuse.sshfs"),
        ("/mnt/ssh/over/x", ""),
        ("/opt/later/mount/wins", ""),
    ],
)
def test_a_network_file_system_is_known_by_the_mounts(path: str, kind: str) -> None:
    assert network_kind(path, MOUNTS) == kind


def test_a_network_file_system_is_refused(tmp_path: Path) -> None:
    mounts = f"/dev/a / ext4 rw 0 0\nnas:/x {tmp_path} nfs4 rw 0 0\n"
    with pytest.raises(Refused, match=r"network file system \(nfs4\).*RALPH_STATE_DIR"):
        ensure_state_dir({"RALPH_STATE_DIR": str(tmp_path / "state")}, mounts=lambda: mounts)
    assert os.listdir(tmp_path) == []
