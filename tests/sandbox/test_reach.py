"""All that a sandbox shows of this machine beside the system: in order, without doubles, and without too much."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ralphproof.base.interpreter import PACKAGE
from ralphproof.sandbox.host_mounts import filter_mounts, interpreter_mounts, system_login_covers
from ralphproof.sandbox.plan import DEV_NULL, READ_ONLY, Mount
from tests.sandbox.sight import SECRETS, Home, can_read, seen_at


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.put(*SECRETS, "tools/bin/a", "tools/lib/b", "state/runs/1/log", "state/ledger")
    return made


def kept(home: Home, *mounts: tuple[str, ...]) -> list[tuple[str, str]]:
    """What stays of these, told from the home."""
    top = f"{home}/"
    made = [Mount(READ_ONLY, *(one if one.startswith("/") else top + one for one in paths)) for paths in mounts]
    found = filter_mounts(made, str(home), home.environ(), (f"{home}/state",))
    return [(one.path.removeprefix(top), one.source.removeprefix(top)) for one in found]


@pytest.mark.parametrize(
    ("mounts", "left"),
    [
        # Folders come before what is in them, whatever the order; what another shows is not shown again.
        ([("tools/lib", "tools/bin"), ("tools",)], [("tools", ""), ("tools/lib", "tools/bin")]),
        ([("tools/lib",), ("tools",)], [("tools", "")]),
        ([("tools",), ("tools",)], [("tools", "")]),
        # What covers stays.
        ([("tools",), ("tools/lib/b", DEV_NULL)], [("tools", ""), ("tools/lib/b", DEV_NULL)]),
        # Too much.
        ([("",)], []),
        ([(".ssh",)], []),
        ([("tools/x", ".ssh")], []),
        ([("other", ".aws/credentials")], []),
        ([("state",)], []),
        ([("state/runs/1/log",)], [("state/runs/1/log", "")]),
    ],
)
def test_what_stays_of_mounts(home: Home, mounts: list[tuple[str, ...]], left: list[tuple[str, str]]) -> None:
    assert kept(home, *mounts) == left


def test_sockets_among_them_are_covered(home: Home) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{home}/tools/s")
        assert kept(home, ("tools",)) == [("tools", ""), ("tools/s", DEV_NULL)]


def test_a_login_that_a_variable_names_in_the_system_is_covered(home: Home, tmp_path: Path) -> None:
    service = Home(tmp_path / "etc")
    service.put("cloud/key.json", "cloud/keys/one", "other")
    mounts = [Mount(READ_ONLY, "/etc", str(service))]
    environ = home.environ(
        GOOGLE_APPLICATION_CREDENTIALS=f"{service}/cloud/key.json", GNUPGHOME=f"{service}/cloud/keys"
    )
    assert system_login_covers(mounts, str(home), environ, "/empty") == (
        Mount(READ_ONLY, "/etc/cloud/keys", "/empty"),
        Mount(READ_ONLY, "/etc/cloud/key.json", DEV_NULL),
    )


def test_this_interpreter_and_this_package_are_there() -> None:
    mounts = interpreter_mounts()
    assert {mount.kind for mount in mounts} == {READ_ONLY}
    outside_of_the_system = [path for path in (sys.executable, PACKAGE, os.__file__) if not path.startswith("/usr")]
    assert [path for path in outside_of_the_system if not can_read(mounts, path)] == []


def test_settings_of_the_environment_that_it_is_installed_in_are_covered(tmp_path: Path) -> None:
    """`pip config --site` writes addresses with passwords there."""
    made = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    (made / "pip.conf").write_text("[global]\nproxy = https://me:secret@proxy.test\n")
    told = (
        "from ralphproof.sandbox.host_mounts import interpreter_mounts; "
        "print([(m.path, m.source) for m in interpreter_mounts()])"
    )
    env = {**os.environ, "PYTHONPATH": os.path.dirname(PACKAGE), "HOME": str(tmp_path)}
    ended = subprocess.run([made / "bin/python", "-c", told], env=env, capture_output=True, text=True, check=True)
    mounts = [Mount(READ_ONLY, path, source) for path, source in eval(ended.stdout)]
    assert can_read(mounts, made / "pyvenv.cfg")
    assert seen_at(mounts, made / "pip.conf") == []
