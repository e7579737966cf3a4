"""What a sandbox shows of this machine: system, programs and tools, never a login or another private place."""

from __future__ import annotations

import os
import pwd
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.base.interpreter import PACKAGE
from ralphproof.sandbox.ecosystems import CARGO, ECOSYSTEMS, NPM, PYPI, Ecosystem
from ralphproof.sandbox.host_mounts import (
    FIRST_LINE_BYTES,
    MAX_LINKS,
    _private_entry_covers,
    filter_mounts,
    find_hidden_paths,
    follow_links,
    home_folder,
    installation_folder,
    interpreter_mounts,
    is_in_system,
    locate_path,
    mounts_for_path,
    path_folders,
    program_mounts,
    script_interpreter,
    socket_covers,
    system_login_covers,
    system_mounts,
    tool_mounts,
)
from ralphproof.sandbox.plan import DEV_NULL, READ_ONLY, Mount, expand_home, is_within
from tests.needs import require
from tests.sandbox.sight import SECRETS, Home, can_read, place_of, seen_at


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.put(*SECRETS)
    return made


@pytest.mark.parametrize(
    ("path", "folder", "lies"),
    [
        ("/a", "/a", True), ("/a/b", "/a", True), ("/ab", "/a", False), ("/a", "/a/b", False), ("/a", "/", True),
        ("/", "/", True), ("/a/b", "/a/", True),
    ],
)  # fmt: skip
def test_a_path_is_within_a_folder_by_whole_names(path: str, folder: str, lies: bool) -> None:
    assert is_within(path, folder) is lies


# The last two lie there by chance: they are not shown because nothing names them.
@pytest.mark.parametrize("name", SECRETS[:-2])
def test_a_login_is_out_of_sight_with_what_holds_it_and_what_is_in_it(home: Home, name: str) -> None:
    home.put(name)
    out = find_hidden_paths(str(home))
    assert out.exposed_by(f"{home}/{name}")
    assert out.exposed_by(os.path.dirname(f"{home}/{name}"))
    assert out.private_exposed_by(f"{home}/{name}")


@pytest.mark.parametrize(
    "path",
    ["/", "/home", "/root", "/var", "~", "~/.config", "~/.local", "~/.local/share", "~/.cache", "~/.local/state"],
)
def test_folders_in_which_everything_lies_are_not_shown_as_a_whole(home: Home, path: str) -> None:
    assert find_hidden_paths(str(home)).exposed_by(path.replace("~", str(home)))


@pytest.mark.parametrize(
    "path", ["~/.pyenv", "~/.config/nvm", "~/.local/share/uv/tools", "~/project", "/usr", "/opt/x"]
)
def test_other_folders_are(home: Home, path: str) -> None:
    assert not find_hidden_paths(str(home)).exposed_by(path.replace("~", str(home)))


def test_so_is_the_state_of_this_program_of_which_single_files_are_shown(home: Home, tmp_path: Path) -> None:
    out = find_hidden_paths(str(home), {}, [str(tmp_path / "state")])
    assert out.exposed_by(str(tmp_path / "state"))
    assert out.exposed_by(str(tmp_path))
    assert not out.exposed_by(str(tmp_path / "state/runs/1/prompt.md"))


def test_a_login_behind_a_link_is_out_of_sight_where_it_really_is(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault/keys").mkdir()
    home.link(".ssh", str(tmp_path / "vault/keys"))
    home.link("tools", str(home.path / ".aws"))
    home.put(".aws/credentials")
    out = find_hidden_paths(str(home))
    for path in (tmp_path / "vault", tmp_path / "vault/keys", tmp_path / "vault/keys/id", home.path / "tools"):
        assert out.exposed_by(str(path)), path


def test_a_home_behind_a_link_hides_the_same(home: Home, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home.path)
    out = find_hidden_paths(str(tmp_path / "link"))
    assert out.exposed_by(f"{tmp_path}/link/.ssh/id")
    assert out.exposed_by(f"{home}/.ssh/id")
    assert out.exposed_by(str(home))


def test_the_home_that_the_system_knows_is_hidden_whatever_HOME_says(home: Home) -> None:
    own = pwd.getpwuid(os.getuid()).pw_dir
    assert find_hidden_paths(str(home)).exposed_by(own)
    assert find_hidden_paths(str(home)).exposed_by(f"{own}/.ssh/id_ed25519")


@pytest.mark.parametrize(
    ("variable", "moved", "secret"),
    [
        ("XDG_CONFIG_HOME", "~/cfg", "~/cfg/gh/hosts.yml"),
        ("XDG_CONFIG_HOME", "~/cfg", "~/cfg"),
        ("XDG_DATA_HOME", "~/data", "~/data/keyrings/login.keyring"),
        ("XDG_CACHE_HOME", "~/cache", "~/cache"),
        ("CARGO_HOME", "~/rust", "~/rust/credentials.toml"),
        ("CARGO_HOME", "~/rust", "~/rust"),
        ("GRADLE_USER_HOME", "~/g", "~/g/gradle.properties"),
        ("COMPOSER_HOME", "~/php", "~/php/auth.json"),
        ("GNUPGHOME", "~/keys", "~/keys/private"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/a/b", "~/a"),
        ("KUBECONFIG", "~/k/one:~/k/two", "~/k/two"),
        ("NPM_CONFIG_USERCONFIG", "~/n/rc", "~/n/rc"),
        ("PIP_CONFIG_FILE", "~/p/pip", "~/p/pip"),
        ("GIT_CONFIG_GLOBAL", "~/.gitconfig-work", "~/.gitconfig-work"),
    ],
)
def test_what_a_variable_moves_is_hidden_there(home: Home, variable: str, moved: str, secret: str) -> None:
    environ, path = home.environ(**{variable: moved}), secret.replace("~", str(home))
    assert find_hidden_paths(str(home), environ).exposed_by(path)
    assert not find_hidden_paths(str(home), home.environ()).exposed_by(path)


def test_a_variable_that_names_nothing_hides_nothing(home: Home) -> None:
    environ = home.environ(GIT_CONFIG_GLOBAL="/dev/null", KUBECONFIG="", XDG_DATA_HOME="relative")
    assert find_hidden_paths(str(home), environ) == find_hidden_paths(str(home))


def test_what_is_shown_has_its_name_and_the_one_without_links(home: Home) -> None:
    home.put("real/file")
    home.link("link", "real")
    assert list(mounts_for_path(f"{home}/real")) == [Mount(READ_ONLY, f"{home}/real")]
    assert list(mounts_for_path(f"{home}/link")) == [
        Mount(READ_ONLY, f"{home}/real"),
        Mount(READ_ONLY, f"{home}/link", f"{home}/real"),
    ]
    assert list(mounts_for_path(f"{home}/gone")) == []


def test_links_are_followed_one_by_one_from_both_names_of_their_folder(home: Home) -> None:
    home.put("versions/2/bin/tool")
    home.link("current", "versions/2")
    home.link("versions/2/bin/alias", "tool")
    home.link("bin/tool", "../current/bin/alias")
    assert list(follow_links(f"{home}/bin/tool")) == [
        f"{home}/bin/tool", f"{home}/current/bin/alias", f"{home}/current/bin/tool", f"{home}/versions/2/bin/tool",
        f"{home}/versions/2/bin/alias",
    ]  # fmt: skip


def test_links_in_a_circle_and_to_nowhere_come_to_an_end(home: Home) -> None:
    home.link("a", "b")
    home.link("b", "a")
    home.link("c", "gone")
    assert list(follow_links(f"{home}/a")) == [f"{home}/a", f"{home}/b"]
    assert list(follow_links(f"{home}/c")) == [f"{home}/c"]
    for number in range(MAX_LINKS + 5):
        home.link(f"n{number}", f"n{number + 1}")
    home.put(f"n{MAX_LINKS + 5}")
    assert len(list(follow_links(f"{home}/n0"))) == MAX_LINKS


@pytest.mark.parametrize(
    ("variable", "usual", "environ", "places"),
    [
        ("", "~/.x", {}, [("~/.x", "~/.x")]),
        ("X_HOME", "~/.x", {}, [("~/.x", "~/.x")]),
        ("X_HOME", "~/.x", {"X_HOME": "/there"}, [("/there", "/there")]),
        ("X_HOME", "~/.x", {"X_HOME": "there"}, [("~/.x", "~/.x")]),
        # Its own variable comes inside, those that move many do not: it is looked for where it usually is.
        ("", "~/.config/x", {"XDG_CONFIG_HOME": "/c"},
         [("~/.config/x", "~/.config/x"), ("/c/x", "/c/x"), ("/c/x", "~/.config/x")]),
        ("X_HOME", "~/.cache/x", {"XDG_CACHE_HOME": "/c", "X_HOME": "/x"}, [("/x", "/x")]),
    ],
)  # fmt: skip
def test_a_place_is_where_its_variable_says(
    variable: str, usual: str, environ: dict[str, str], places: list[tuple[str, str]]
) -> None:
    found = list(locate_path(variable, usual, environ, "/h"))
    assert found == [(one.replace("~", "/h"), two.replace("~", "/h")) for one, two in places]


def test_a_home_is_what_the_environment_says_or_the_users_own() -> None:
    assert home_folder({"HOME": "/x"}) == "/x"
    assert home_folder({}) == home_folder({"HOME": ""}) == os.path.expanduser("~")
    assert (expand_home("~/a/../b", "/h"), expand_home("/a", "/h"), expand_home("", "/h")) == ("/h/b", "/a", "/h")


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


def kept(home: Home, *mounts: tuple[str, ...]) -> list[tuple[str, str]]:
    """What stays of these, told from the home."""
    home.put("tools/bin/a", "tools/lib/b", "state/runs/1/log", "state/ledger")
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
    home.put("tools/bin/a")
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


# By tool: what there is, what is on PATH, variables, what is seen, and what is not.
LAYOUTS: dict[str, tuple[list[str], list[str], dict[str, str], list[str], list[str]]] = {
    "pyenv": (
        [".pyenv/shims/python", ".pyenv/libexec/pyenv", ".pyenv/versions/3.12/bin/python3",
         ".pyenv/versions/3.12/pip.conf", ".pyenv/versions/3.12/envs/work/pip.conf",
         ".pyenv/versions/3.12/envs/work/bin/python"],
        ["~/.pyenv/shims"], {},
        [".pyenv/shims/python", ".pyenv/libexec/pyenv", ".pyenv/versions/3.12/envs/work/bin/python"],
        [".pyenv/versions/3.12/pip.conf", ".pyenv/versions/3.12/envs/work/pip.conf"],
    ),
    "pyenv elsewhere": (
        ["py/shims/python", "py/libexec/pyenv", "py/versions/3.12/pip.conf"], [], {"PYENV_ROOT": "~/py"},
        ["py/libexec/pyenv"], ["py/versions/3.12/pip.conf"],
    ),
    "an environment in the home": (
        ["venv/bin/python", "venv/bin/pytest", "venv/pyvenv.cfg", "venv/pip.conf",
         "venv/lib/python3.12/site-packages/a.py"],
        ["~/venv/bin"], {},
        ["venv/bin/pytest", "venv/pyvenv.cfg", "venv/lib/python3.12/site-packages/a.py"], ["venv/pip.conf"],
    ),
    "an environment that is switched on": (
        ["work/env/bin/python", "work/env/pip.conf", "work/secret"], [], {"VIRTUAL_ENV": "~/work/env"},
        ["work/env/bin/python"], ["work/env/pip.conf", "work/secret"],
    ),
    "environments by name": (
        [".virtualenvs/a/bin/python", ".virtualenvs/a/pip.conf"], [], {}, [".virtualenvs/a/bin/python"],
        [".virtualenvs/a/pip.conf"],
    ),
    "pipx and uv": (
        [".local/bin/ruff", ".local/share/pipx/venvs/ruff/bin/ruff", ".local/share/pipx/venvs/ruff/pip.conf",
         ".local/share/uv/tools/black/bin/black", ".local/share/uv/python/cpython-3.12/bin/python",
         ".local/share/app/data"],
        ["~/.local/bin"], {},
        [".local/bin/ruff", ".local/share/pipx/venvs/ruff/bin/ruff", ".local/share/uv/tools/black/bin/black",
         ".local/share/uv/python/cpython-3.12/bin/python"],
        [".local/share/pipx/venvs/ruff/pip.conf", ".local/share/app/data"],
    ),
    "nvm": (
        [".nvm/versions/node/v20/bin/node", ".nvm/versions/node/v20/etc/npmrc", ".nvm/.npmrc", ".nvm/alias/default",
         ".nvm/versions/node/v20/lib/node_modules/npm/bin/npm-cli.js"],
        ["~/.nvm/versions/node/v20/bin"], {},
        [".nvm/versions/node/v20/bin/node", ".nvm/versions/node/v20/lib/node_modules/npm/bin/npm-cli.js",
         ".nvm/alias/default"],
        [".nvm/versions/node/v20/etc/npmrc", ".nvm/.npmrc"],
    ),
    "fnm": (
        [".local/share/fnm/node-versions/v20/installation/bin/node",
         ".local/share/fnm/node-versions/v20/installation/etc/npmrc"],
        [], {}, [".local/share/fnm/node-versions/v20/installation/bin/node"],
        [".local/share/fnm/node-versions/v20/installation/etc/npmrc"],
    ),
    "asdf": (
        [".asdf/shims/node", ".asdf/installs/nodejs/20/bin/node", ".asdf/installs/nodejs/20/etc/npmrc",
         ".asdf/installs/python/3.12/pip.conf", ".tool-versions"],
        ["~/.asdf/shims"], {}, [".asdf/shims/node", ".asdf/installs/nodejs/20/bin/node", ".tool-versions"],
        [".asdf/installs/nodejs/20/etc/npmrc", ".asdf/installs/python/3.12/pip.conf"],
    ),
    "npm -g": (
        [".npm-global/bin/tsc", ".npm-global/lib/node_modules/typescript/bin/tsc", ".npm-global/etc/npmrc"],
        ["~/.npm-global/bin"], {}, [".npm-global/lib/node_modules/typescript/bin/tsc"], [".npm-global/etc/npmrc"],
    ),
    "npm in a home": (
        ["node_modules/.bin/tsc", "node_modules/typescript/bin/tsc", "package.json"], ["~/node_modules/.bin"], {},
        ["node_modules/typescript/bin/tsc"], ["package.json"],
    ),
    "rustup and cargo": (
        [".cargo/bin/cargo", ".cargo/registry/cache/a.crate", ".cargo/config.toml",
         ".rustup/toolchains/stable/bin/rustc", ".rustup/settings.toml"],
        ["~/.cargo/bin"], {},
        [".cargo/bin/cargo", ".cargo/registry/cache/a.crate", ".cargo/config.toml", ".rustup/settings.toml",
         ".rustup/toolchains/stable/bin/rustc"], [],
    ),
    "cargo elsewhere": (
        ["rust/bin/cargo", "rust/registry/a", "rust/credentials.toml", "rust/credentials"], ["~/rust/bin"],
        {"CARGO_HOME": "~/rust"}, ["rust/bin/cargo", "rust/registry/a"], ["rust/credentials.toml", "rust/credentials"],
    ),
    "dotnet": (
        [".dotnet/dotnet", ".dotnet/sdk/8/a.dll"], ["~/.dotnet"], {}, [".dotnet/dotnet", ".dotnet/sdk/8/a.dll"], [],
    ),
    "rye": ([".rye/shims/python", ".rye/py/3.12/bin/python"], [], {}, [".rye/py/3.12/bin/python"], []),
    "conda": (
        ["miniconda3/bin/python", "miniconda3/.condarc", "miniconda3/envs/a/pip.conf", "miniconda3/envs/a/bin/python"],
        [], {}, ["miniconda3/envs/a/bin/python"], ["miniconda3/.condarc", "miniconda3/envs/a/pip.conf"],
    ),
    "programs of one's own": (["bin/tool", "lib/x"], ["~/bin"], {}, ["bin/tool"], ["lib/x"]),
    "certificates": (["certs/ca.pem", "certs/key.pem"], [], {"SSL_CERT_FILE": "~/certs/ca.pem"}, ["certs/ca.pem"],
                     ["certs/key.pem"]),
    "wheels": (["wheels/a.whl"], [], {"PIP_FIND_LINKS": "~/wheels"}, ["wheels/a.whl"], []),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_tool_is_there_without_the_logins_among_it(home: Home, name: str) -> None:
    files, path, variables, seen, unseen = LAYOUTS[name]
    home.put(*files)
    mounts = tool_mounts(home.environ(*path, **variables), str(home), (PYPI, NPM, CARGO))
    assert {mount.kind for mount in mounts} <= {READ_ONLY}
    assert [one for one in seen if not can_read(mounts, f"{home}/{one}")] == []
    assert [one for one in (*unseen, *SECRETS) if seen_at(mounts, f"{home}/{one}")] == []


@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"])
def test_what_was_moved_is_seen_where_it_is_looked_for(home: Home, variable: str, tmp_path: Path) -> None:
    usual = {"XDG_CONFIG_HOME": ".config", "XDG_DATA_HOME": ".local/share", "XDG_CACHE_HOME": ".cache"}[variable]
    inner = {"XDG_CONFIG_HOME": "nvm/nvm.sh", "XDG_DATA_HOME": "uv/tools/a/bin/a", "XDG_CACHE_HOME": "pre-commit/db"}[
        variable
    ]
    moved = Home(tmp_path / "moved")
    moved.put(inner, "gh/hosts.yml", "keyrings/login.keyring", "huggingface/token")
    mounts = tool_mounts(home.environ(**{variable: str(moved)}), str(home), (PYPI,))
    assert sorted(seen_at(mounts, moved.path / inner)) == sorted([f"{moved}/{inner}", f"{home}/{usual}/{inner}"])
    for secret in ("gh/hosts.yml", "keyrings/login.keyring", "huggingface/token"):
        assert seen_at(mounts, moved.path / secret) == []


@pytest.mark.parametrize(
    "path",
    [
        "~",
        "~/",
        "/",
        "~/.ssh",
        "~/.config",
        "~/.config/gh",
        "~/.local",
        "~/.aws/..",
        "~/tools",
        ".",
        "",
        "/home",
        "/var",
    ],
)
def test_a_path_that_leads_to_everything_or_to_logins_shows_nothing(home: Home, path: str) -> None:
    home.link("tools", ".ssh")
    mounts = tool_mounts(home.environ(path), str(home), ())
    assert [secret for secret in SECRETS if seen_at(mounts, f"{home}/{secret}")] == []


@pytest.mark.parametrize(
    "variable", ["VIRTUAL_ENV", "PYENV_ROOT", "JAVA_HOME", "NVM_DIR", "SSL_CERT_DIR", "CONDA_PREFIX"]
)
@pytest.mark.parametrize(
    "place", ["/", "~", "/var", "/home", "/tmp", "/srv", "~/.ssh", "~/.config", "~/.aws/credentials"]
)
def test_nor_does_a_variable_that_does(home: Home, variable: str, place: str) -> None:
    mounts = tool_mounts(home.environ(**{variable: place}), str(home), ())
    assert [mount for mount in mounts if mount.host_path == place.replace("~", str(home))] == []
    assert [secret for secret in SECRETS if seen_at(mounts, f"{home}/{secret}")] == []


def test_a_link_to_a_login_among_tools_is_covered_where_it_leads(home: Home) -> None:
    home.put(".nvm/kept/npmrc-of-work")
    home.link(".nvm/.npmrc", "kept/npmrc-of-work")
    home.link(".pyenv", ".ssh")
    mounts = tool_mounts(home.environ(), str(home), ())
    assert seen_at(mounts, f"{home}/.nvm/kept/npmrc-of-work") == []
    assert seen_at(mounts, f"{home}/.ssh/id_ed25519") == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('[build]\ntarget-dir = "/x"\n', True),
        ('[registry]\ntoken = "abc"\n', False),
        ('[registries.work]\nindex = "https://me:pw@registry.test/"\n', False),
        ('[http]\nproxy = "https://proxy.test"\n', True),
    ],
)
def test_settings_of_cargo_are_shown_unless_they_hold_a_login(home: Home, text: str, shown: bool) -> None:
    home.put(".cargo/config.toml", text=text)
    mounts = tool_mounts(home.environ(), str(home), (CARGO,))
    assert bool(seen_at(mounts, f"{home}/.cargo/config.toml")) is shown


def test_caches_are_those_of_the_projects_ecosystems(home: Home) -> None:
    home.put(".npm/_cacache/index", ".npm/_logs/log", ".cargo/registry/a", ".cache/pip/http", ".m2/repository/a.jar")
    shown = tool_mounts(home.environ(), str(home), (NPM,))
    for name, there in ((".npm/_cacache/index", True), (".npm/_logs/log", False), (".cargo/registry/a", False),
                        (".cache/pip/http", False), (".m2/repository/a.jar", False)):  # fmt: skip
        assert can_read(shown, f"{home}/{name}") is there, name


def test_folders_of_other_people_on_PATH_are_passed_over(tmp_path: Path, home: Home) -> None:
    other = Home(tmp_path / "other")
    other.program("bin/tool", "lib/x")
    assert seen_at(tool_mounts(home.environ(f"{other}/bin"), str(home), ()), f"{other}/bin/tool") == []


PARTS = sorted({file for files, *_ in LAYOUTS.values() for file in files})
FOLDERS = [
    "~",
    "/",
    "~/bin",
    "~/.local/bin",
    "~/.ssh",
    "~/.config",
    "~/.cargo/bin",
    "~/.nvm/versions/node/v20/bin",
    "~/link",
]
VARIABLES = [
    "PYENV_ROOT", "NVM_DIR", "CARGO_HOME", "RUSTUP_HOME", "VIRTUAL_ENV", "JAVA_HOME", "XDG_CONFIG_HOME",
    "XDG_DATA_HOME", "XDG_CACHE_HOME", "GOPATH", "npm_config_cache", "SSL_CERT_DIR", "DOTNET_ROOT", "PIPX_HOME",
]  # fmt: skip
PLACES = [
    "~",
    "/",
    "~/.ssh",
    "~/.config",
    "~/.cargo",
    "~/.pyenv",
    "~/.local/share",
    "~/.aws/credentials",
    "~/link",
    "~/.dotnet",
]
TARGETS = [".ssh", ".aws", ".", ".config", ".pyenv", ".cargo", ".local", "/"]


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.sampled_from(PARTS), max_size=12),
    st.lists(st.sampled_from(FOLDERS), max_size=4),
    st.dictionaries(st.sampled_from(VARIABLES), st.sampled_from(PLACES), max_size=4),
    st.dictionaries(
        st.sampled_from(["link", ".goenv", ".rbenv", "sdk", ".bun", ".nix-profile"]), st.sampled_from(TARGETS)
    ),
    st.lists(st.sampled_from(ECOSYSTEMS), max_size=3),
)
def test_whatever_a_home_is_made_of_no_login_is_seen(
    parts: set[str], path: list[str], variables: dict[str, str], links: dict[str, str], ecosystems: list[Ecosystem]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        home.put(*SECRETS, *parts)
        for name, target in links.items():
            home.link(name, target)
        environ = home.environ(*path, **variables)
        mounts = tool_mounts(environ, str(home), ecosystems)
        logins = [
            f"{home}/{one}" for one in (*SECRETS, *parts) if os.path.basename(one) in ("pip.conf", ".npmrc", "npmrc")
        ]
        shown = [one for one in (*(f"{home}/{one}" for one in SECRETS), *logins) if seen_at(mounts, one)]
        assert shown == []
        assert {mount.kind for mount in mounts} <= {READ_ONLY}
        kept = filter_mounts(mounts, str(home), environ, ())
        assert [one for one in (*(f"{home}/{one}" for one in SECRETS), *logins) if seen_at(kept, one)] == []
        assert [one.path for one in mounts if place_of(mounts, one.path)[1] != place_of(kept, one.path)[1]] == []
