"""Where things are: through links, moved by variables, and out of sight."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from ralphproof.sandbox.host_mounts import (
    MAX_LINKS,
    find_hidden_paths,
    follow_links,
    home_folder,
    locate_path,
    mounts_for_path,
)
from ralphproof.sandbox.plan import READ_ONLY, Mount, expand_home, is_within
from tests.sandbox.sight import SECRETS, Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


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


def test_a_login_behind_a_link_is_out_of_sight_where_it_really_is(home: Home, tmp_path: Path) -> None:
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
