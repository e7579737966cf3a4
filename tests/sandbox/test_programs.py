"""What a program needs to be started: shown, with its links, its installation and its interpreter; never a login."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ralphproof.sandbox.host_mounts import (
    FIRST_LINE_BYTES,
    find_hidden_paths,
    installation_folder,
    path_folders,
    program_mounts,
    script_interpreter,
)
from ralphproof.sandbox.plan import DEV_NULL
from tests.sandbox.sight import SECRETS, Home, can_read, seen_at


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.put(*SECRETS)
    return made


def unseen(home: Home, path: str, *folders: str) -> list[str]:
    """The secrets that can be seen once this program is shown: none."""
    mounts = program_mounts(f"{home}/{path}", home.environ(*folders))
    return [secret for secret in SECRETS if seen_at(mounts, f"{home}/{secret}")]


@pytest.mark.parametrize(
    ("files", "links", "started", "seen", "not_seen"),
    [
        # A program by itself, and one in a folder that others keep things in.
        (["tool"], {}, "tool", ["tool"], []),
        ([".local/bin/tool", ".local/share/x/data"], {}, ".local/bin/tool", [".local/bin/tool"],
         [".local/share/x/data"]),
        # An installation is shown as a whole; a folder that somebody works in is not.
        (["app/bin/tool", "app/lib/a.so", "app/README"], {}, "app/bin/tool", ["app/lib/a.so", "app/README"], []),
        (["work/bin/tool", "work/lib/a", "work/.git/config"], {}, "work/bin/tool", ["work/bin/tool"],
         ["work/lib/a", "work/.git/config"]),
        (["data/tool", "data/lib/x"], {}, "data/tool", ["data/tool"], ["data/lib/x"]),
        # Through links, each of which stays one.
        (["opt/agent/2.1/agent"], {".local/bin/agent": "../../opt/agent/2.1/agent"}, ".local/bin/agent",
         [".local/bin/agent", "opt/agent/2.1/agent"], []),
        (["nvm/v20/lib/node_modules/agent/cli.js", "nvm/v20/lib/node_modules/dep/a.js", "nvm/v20/bin/node"],
         {"nvm/v20/bin/agent": "../lib/node_modules/agent/cli.js"}, "nvm/v20/bin/agent",
         ["nvm/v20/bin/agent", "nvm/v20/lib/node_modules/dep/a.js", "nvm/v20/bin/node"], []),
        (["tools/node_modules/agent/cli.js", "tools/node_modules/dep/a.js", "tools/private"],
         {"tools/node_modules/.bin/agent": "../agent/cli.js"}, "tools/node_modules/.bin/agent",
         ["tools/node_modules/agent/cli.js", "tools/node_modules/dep/a.js"], ["tools/private"]),
    ],
)  # fmt: skip
def test_a_program_is_there_with_what_it_is_installed_in(
    home: Home, files: list[str], links: dict[str, str], started: str, seen: list[str], not_seen: list[str]
) -> None:
    home.program(*files)
    for name, target in links.items():
        home.link(name, target)
    mounts = program_mounts(f"{home}/{started}", home.environ())
    assert [one for one in seen if not can_read(mounts, f"{home}/{one}")] == []
    assert [one for one in (*not_seen, *SECRETS) if seen_at(mounts, f"{home}/{one}")] == []


def test_what_the_system_shows_anyway_is_not_shown_again(home: Home) -> None:
    assert program_mounts("/usr/bin/env", home.environ()) == ()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("#!~/py/bin/python -I", "~/py/bin/python"),
        ("#! ~/py/bin/python", "~/py/bin/python"),
        ("#!/usr/bin/env python", "~/py/bin/python"),
        ("#!/usr/bin/env -S A=b python -I", "~/py/bin/python"),
        ("#!/usr/bin/env nothing", ""),
        ("#!/usr/bin/env", ""),
        ("#!python", ""),
        ("#!", ""),
        ("plain", ""),
        # Neither a folder nor a file that cannot be started is an interpreter.
        ("#!~/other", ""),
        ("#!~/notes.txt", ""),
        ("#!~/gone", ""),
        ("#!/usr/bin/env notes.txt", ""),
    ],
)
def test_an_interpreter_is_told_by_the_first_line(home: Home, line: str, found: str) -> None:
    home.program("py/bin/python")
    home.program("script", text=line.replace("~", str(home)) + "\nrest")
    environ = home.environ("~/py/bin", "~")
    assert script_interpreter(f"{home}/script", environ) == found.replace("~", str(home))


def test_the_interpreter_is_shown_too_and_its_own(home: Home) -> None:
    home.program("py/bin/python", "py/lib/os.py")
    home.program("wrapped/run", text=f"#!{home}/py/bin/python\n")
    home.program("bin/tool", text=f"#!{home}/wrapped/run\n")
    mounts = program_mounts(f"{home}/bin/tool", home.environ())
    assert can_read(mounts, f"{home}/py/lib/os.py")
    assert can_read(mounts, f"{home}/wrapped/run")


def test_a_pipe_is_not_waited_for_and_a_long_first_line_is_cut(home: Home) -> None:
    os.mkfifo(home.path / "pipe")
    home.put("long", text="#!" + "x" * FIRST_LINE_BYTES * 4)
    assert script_interpreter(f"{home}/pipe", {}) == ""
    assert script_interpreter(f"{home}/long", {}) == ""


@pytest.mark.parametrize("secret", [one for one in SECRETS if one not in ("notes.txt", "other/.env")])
def test_a_first_line_that_names_a_login_does_not_show_it(home: Home, secret: str) -> None:
    (home.path / secret).chmod(0o755)
    home.program("project/tool", text=f"#!{home}/{secret}\n")
    assert unseen(home, "project/tool") == []


@pytest.mark.parametrize("target", [".ssh/id_ed25519", ".ssh", ".aws", ".", ".config/gh/hosts.yml"])
def test_nor_does_a_link(home: Home, target: str) -> None:
    home.link("project/tool", f"../{target}")
    home.link("project/bin", f"../{target}")
    assert unseen(home, "project/tool") == []
    assert unseen(home, "project/bin/tool") == []


def test_nor_is_a_login_shown_that_is_named_itself(home: Home) -> None:
    assert [secret for secret in SECRETS if unseen(home, secret) not in ([], ["notes.txt"], ["other/.env"])] == []


def test_logins_and_sockets_among_an_installation_are_covered(home: Home, tmp_path: Path) -> None:
    home.program("app/bin/tool", "app/lib/x")
    home.put("app/pip.conf", "app/etc/npmrc")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{home}/app/s")
        mounts = program_mounts(f"{home}/app/bin/tool", home.environ())
    covered = {mount.path for mount in mounts if mount.source == DEV_NULL}
    assert covered == {f"{home}/app/pip.conf", f"{home}/app/etc/npmrc", f"{home}/app/s"}


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("app/bin/tool", "app"), ("app/bin", "app"), ("app/tool", "app/tool"), ("bin/tool", "bin/tool"), ("bin", "bin"),
        (".local/bin", ".local/bin"), ("a/node_modules/b/node_modules/c/cli.js", "a/node_modules"),
    ],
)  # fmt: skip
def test_an_installation_is_the_folder_around_programs_unless_too_much_lies_in_it(
    home: Home, place: str, found: str
) -> None:
    home.put("app/lib/x", "app/bin/tool", "app/tool", "bin/tool", "lib/x", ".local/bin/x", ".local/lib/x")
    assert installation_folder(f"{home}/{place}", find_hidden_paths(str(home))) == f"{home}/{found}"


def test_programs_are_looked_for_in_whole_paths_only() -> None:
    assert list(path_folders({"PATH": "/a:.:b::/c/../d:/e/"})) == ["/a", "/d", "/e"]
