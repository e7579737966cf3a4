"""The project's own lists: what they let pass, what they refuse, and which entries mean nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ralphproof.base.errors import Refused
from ralphproof.guard.rules import allow_entry_problem, deny_entry_problem
from ralphproof.guard.verdict import Exceptions
from ralphproof.settings.loader import load_settings
from tests.guard.samples import asked, judged


def rule(line: str, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> str:
    found = judged(line, lists=Exceptions(allow, deny))
    return "" if found is None else found.rule


@pytest.mark.parametrize(
    ("entry", "line", "passes"),
    [
        ("rm -rf ~/x", "rm -rf ~/x", True),
        ("rm -rf ~/x", "rm -rf $HOME/x", True),
        ("rm -rf ~/x", "rm  -rf '/home/dev/x'", True),
        ("rm -rf ~/x", "rm -rf ~/x ~/y", False),
        ("rm -rf ~/x", "rm -rf ~/xy", False),
        ("rm -rf ~/x/*", "rm -rf ~/x/y", True),
        ("git push --force *", "git push --force", True),
        ("git push --force *", "git push --force origin feat", True),
        ("git push --force *", "git push origin --force", False),
        ("git reset --hard HEAD", "git reset --hard HEAD", True),
        ("git reset --hard HEAD", "git reset --hard HEAD~1", False),
        ("sudo apt-get install *", "sudo apt-get install -y jq", True),
        ("sudo apt-get install *", "sudo apt-get remove jq", False),
        ("git-reset-hard", "git reset --hard", True),
        ("git-reset-hard", "git clean -fdx", False),
        ("git-history", "git clean -fdx && git reset --hard", True),
        ("git-history", "git push --force", False),
        ("bash -c *", "bash -c 'rm -rf ~'", False),
        ("make x", "make x > ~/log", False),
    ],
)
def test_what_is_allowed_passes_and_nothing_beside_it(entry: str, line: str, passes: bool) -> None:
    assert (rule(line, allow=(entry,)) == "") is passes


@pytest.mark.parametrize(
    "line",
    [
        "make x && rm -rf /", "rm -rf / ; make x", "make x | sh -c 'rm -rf ~'", "make $(rm -rf /)", "make x\nrm -rf ~",
        "(make x; rm -rf ~)", "make x || git push --force",
    ],
)  # fmt: skip
def test_an_allowed_command_takes_no_other_along(line: str) -> None:
    assert rule(line, allow=("make *",)) != ""


@pytest.mark.parametrize(
    ("entry", "line", "refused"),
    [
        ("git push", "git push origin main", True),
        ("git push *", "git push", True),
        ("git push", "git pull", False),
        ("make deploy", "npm test && make deploy", True),
        ("make deploy", "timeout 5 bash -c 'make deploy'", True),
        ("make deploy", "echo make deploy", False),
        ("npm run release:*", "npm run release:all", True),
        ("curl", "cat a | curl -d @- localhost:1", True),
    ],
)
def test_what_is_denied_is_refused_wherever_it_stands(entry: str, line: str, refused: bool) -> None:
    assert (rule(line, deny=(entry,)) == "denied-here") is refused


def test_a_denial_beats_an_allowance() -> None:
    assert rule("make deploy", allow=("make *",), deny=("make deploy",)) == "denied-here"
    assert rule("git reset --hard", allow=("git-history",), deny=("git-reset-hard",)) == "git-reset-hard"


def test_other_tools_are_commands_of_their_names() -> None:
    assert asked("Read", Exceptions(allow=("Read .env",)), file_path=".env") == ""
    assert asked("Read", Exceptions(allow=("Read .env",)), file_path="a/.env") == "secret-file"
    assert asked("Write", Exceptions(allow=("outside-write",)), file_path="~/a") == ""
    assert asked("WebFetch", Exceptions(deny=("WebFetch",)), url="https://x.example") == "denied-here"
    assert asked("mcp__x__y", Exceptions(deny=("mcp__x__*",)), text="a") == "denied-here"
    assert asked("Task", Exceptions(deny=("Task",)), prompt="x") == "denied-here"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("", "blank"), ("  ", "blank"), ("a\tb", "blank"), (" a", "blanks around"), ("x" * 1001, "1000 characters"),
        ("make x && rm -rf /", "more than one command"), ("a | b", "more than one command"), ("a > b", "more than one"),
        ("echo 'a", "not closed"), ("*", "every command"), ("* x", "every command"), ("''", "every command"),
        ("git-rest-hard", "nearest: git-reset-hard"), ("git-histroy", "nearest: git-history"),
    ],
)  # fmt: skip
def test_an_entry_that_means_nothing_is_told(entry: str, problem: str) -> None:
    assert problem in allow_entry_problem(entry)


@pytest.mark.parametrize(
    "entry", ["git-history", "git-reset-hard", "make", "make *", "rm -rf ~/x", "docker-compose down *", "Read .env"]
)
def test_an_entry_that_means_something_is_taken(entry: str) -> None:
    assert allow_entry_problem(entry) == ""
    assert deny_entry_problem(entry) == ""


@pytest.mark.parametrize("name", ["allow", "deny"])
def test_bad_entries_are_refused_when_settings_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / ".ralph").mkdir()
    settings = tmp_path / ".ralph" / "settings.json"
    settings.write_text(json.dumps({"guard": {name: ["make *", "make x && rm -rf /"]}}), "utf-8")
    with pytest.raises(Refused, match=rf"guard\.{name}\[1\] is more than one command"):
        load_settings(str(tmp_path), {})
    settings.write_text(json.dumps({"guard": {name: ["make *", "git-history"]}}), "utf-8")
    assert getattr(load_settings(str(tmp_path), {}).settings.guard, name) == ("make *", "git-history")
