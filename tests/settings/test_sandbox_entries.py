"""Entries of the lists that say what a sandbox reaches, and what is wrong with some."""

from __future__ import annotations

from pathlib import Path

import pytest

from ralphproof.sandbox.egress_rules import host_entry_problem
from ralphproof.sandbox.host_mounts import read_path_problem
from tests.sandbox.sight import Home
from tests.settings.project import Project


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path / "home")
    monkeypatch.setenv("HOME", str(made))
    return made


@pytest.mark.parametrize(
    "entry", ["pypi", "crates", "example.org", "*.example.org", "example.org:8443", "private:nas:80"]
)
def test_a_host_is_a_name_or_stands_for_some(entry: str) -> None:
    assert host_entry_problem(entry) == ""


@pytest.mark.parametrize(
    ("entry", "words"),
    [("https://example.org", "leave out https://"), ("*", "every host"), ("127.0.0.1", "private:127.0.0.1"),
     ("pypy", "without a dot")],
)  # fmt: skip
def test_other_entries_are_told_what_is_wrong_with_them(entry: str, words: str) -> None:
    assert words in host_entry_problem(entry)


@pytest.mark.parametrize("entry", ["/data", "~/datasets", "~/.cache/models", "/opt/x", "/mnt/share"])
def test_a_path_may_lie_anywhere(home: Home, entry: str) -> None:
    assert read_path_problem(entry) == ""


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("data", "is not absolute"), ("./x", "is not absolute"), ("", "is not absolute"),
        ("~", "holds your home folder"), ("/", "holds your home folder"), ("~/", "holds your home folder"),
        ("~/x/..", "holds your home folder"), ("~/link", "holds your home folder"), ("~/..", "holds your home folder"),
        ("~/.ssh", ".ssh, which no sandbox shows"), ("~/.ssh/id_ed25519", ".ssh, which"), ("~/.aws", ".aws, which"),
        ("~/.config", "which no sandbox shows"), ("~/keys", ".ssh, which"), ("~/.cargo", ".cargo/credentials, which"),
        ("/var", "/var, which"),
    ],
)  # fmt: skip
def test_a_path_that_shows_too_much_is_refused_by_name(home: Home, entry: str, words: str) -> None:
    home.link("link", ".")
    home.link("keys", ".ssh")
    assert words in read_path_problem(entry)
    if entry:
        assert read_path_problem(entry).startswith(repr(entry))


def test_settings_say_which_entry_is_wrong(project: Project, home: Home) -> None:
    project.write(project.shared, {"sandbox": {"readPaths": ["/data", "~/.ssh"], "allowHosts": ["npm", "*"]}})
    problems = project.problems()
    assert any("sandbox.readPaths[1] '~/.ssh' would show" in one for one in problems)
    assert any("sandbox.allowHosts[1]" in one for one in problems)
    assert not any("[0]" in one for one in problems)
