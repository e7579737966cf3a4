"""What is remembered: durably, small, as the user meant it last; whatever lies in the project, nothing hangs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.checks.pins.project import STOPS, TOLD, Pinned

SECRET = "exit 1  # the-secret-word\n"


def test_what_is_remembered_stays_when_it_is_asked_for_again(pinned: Pinned) -> None:
    """RH-02: whoever takes the run up finds what it began with."""
    pinned.write({"a.sh": SECRET})
    pinned.begin("sh a.sh")
    pinned.write({"a.sh": "exit 0\n"})
    pinned.pins().begin()
    assert pinned.told() == [("a.sh: the script of the check was changed", STOPS)]


def test_no_content_is_remembered(pinned: Pinned, tmp_path: Path) -> None:
    pinned.write({"a.sh": SECRET, "Makefile": f"a:\n\t{SECRET}", "pytest.ini": "[pytest]\naddopts = the-secret-word\n"})
    pinned.begin("sh a.sh", "make a", "pytest")
    (note,) = (tmp_path / "state").rglob("pins.json")
    assert "a.sh" in note.read_text()
    assert "the-secret-word" not in note.read_text()


def test_what_the_user_changed_in_a_pause_is_meant(pinned: Pinned) -> None:
    pinned.write(
        {"Makefile": "test:\n\tsh a.sh\n", "a.sh": "exit 1\n", "b.sh": "exit 1\n", "test_a.py": "assert a\nassert b\n"}
    )
    pinned.begin("make test")
    pinned.write({"Makefile": "test:\n\tsh a.sh || sh b.sh\n", "test_a.py": "assert a\n", "conftest.py": "x()\n"})
    theirs = ("Makefile", "conftest.py", "test_a.py")
    pinned.pins().accept_user_changes(theirs)
    assert pinned.altered(*theirs) == ()
    pinned.write({"Makefile": "test:\n\ttrue\n", "test_a.py": "a\n", "b.sh": "exit 0\n"})
    assert [one.message for one in pinned.altered(*theirs)] == [
        "Makefile: target test was changed", "b.sh: the script of the check was changed",
        "test_a.py: 1 assertion fewer",
    ]  # fmt: skip


def test_what_the_agent_changed_before_a_pause_is_told_after_it(pinned: Pinned) -> None:
    pinned.write({"a.sh": "exit 1\n", "b.sh": "exit 1\n"})
    pinned.begin("sh a.sh", "sh b.sh")
    pinned.write({"a.sh": "exit 0\n", "b.sh": "exit 0\n"})
    pinned.pins().accept_user_changes(("b.sh",))
    assert [one.path for one in pinned.altered("b.sh")] == ["a.sh"]


def test_what_the_user_deleted_in_a_pause_may_be_missing(pinned: Pinned) -> None:
    pinned.write({"a.sh": "exit 1\n", "test_a.py": "assert a\n", "conftest.py": "import os\n"})
    pinned.begin("sh a.sh", "pytest")
    theirs = ("a.sh", "test_a.py", "conftest.py")
    pinned.write(dict.fromkeys(theirs))
    pinned.pins().accept_user_changes(theirs)
    assert pinned.altered(*theirs) == ()


def test_what_the_user_lets_the_work_change_is_allowed_and_told(pinned: Pinned) -> None:
    pinned.allowed = lambda path: path == "a.sh"
    pinned.write({"a.sh": "exit 1\n", "b.sh": "exit 1\n"})
    pinned.begin("sh a.sh", "sh b.sh")
    pinned.write({"a.sh": "exit 0\n", "b.sh": "exit 0\n"})
    found = pinned.altered()
    assert [(one.path, one.allowed) for one in found] == [("b.sh", False), ("a.sh", True)], "what stops comes first"
    assert found[1].message == "a.sh: the script of the check was changed, as --may-change allows"


def test_no_more_is_told_than_a_record_can_hold(pinned: Pinned) -> None:
    pinned.protect = True
    pinned.write({f"tests/{n}.txt": "" for n in range(150)})
    pinned.begin("true")
    pinned.write({f"tests/{n}.txt": "x" for n in range(150)})
    assert len(pinned.altered()) == 100


@pytest.mark.parametrize("name", ["a.sh", "Makefile", "package.json", "pytest.ini", "conftest.py", "sitecustomize.py"])
def test_a_pipe_or_a_folder_in_place_of_a_file_hangs_nothing(pinned: Pinned, name: str) -> None:
    pinned.write({name: "{}"})
    pinned.begin("sh a.sh", "make", "npm test", "pytest")
    (pinned.root / name).unlink()
    os.mkfifo(pinned.root / name)
    pinned.altered()
    (pinned.root / name).unlink()
    (pinned.root / name).mkdir()
    pinned.altered()


def test_a_link_out_of_the_project_is_known_by_where_it_leads(pinned: Pinned, tmp_path: Path) -> None:
    (tmp_path / "outside.sh").write_text("exit 1\n")
    (pinned.root / "a.sh").symlink_to(tmp_path / "outside.sh")
    (pinned.root / "b.sh").symlink_to("/dev/zero")
    (pinned.root / "c.sh").symlink_to("c.sh")
    pinned.begin("sh a.sh", "sh b.sh", "sh c.sh")
    (tmp_path / "outside.sh").write_text("exit 0\n")
    assert pinned.told() == []
    (pinned.root / "a.sh").unlink()
    (pinned.root / "a.sh").symlink_to("/bin/true")
    assert pinned.told() == [("a.sh: the script of the check was changed", STOPS)]


def test_a_link_inside_the_project_is_followed(pinned: Pinned) -> None:
    pinned.write({"real/b.sh": "exit 1\n"})
    (pinned.root / "a.sh").symlink_to("real/b.sh")
    pinned.begin("sh a.sh")
    pinned.write({"real/b.sh": "exit 0\n"})
    assert pinned.told() == [("a.sh: the script of the check was changed", STOPS)]


def test_the_end_of_a_long_script_counts(pinned: Pinned) -> None:
    pinned.write({"a.sh": "#" * 3_000_000 + "\nexit 1\n"})
    pinned.begin("sh a.sh")
    pinned.write({"a.sh": "#" * 3_000_000 + "\nexit 0\n"})
    assert pinned.told() == [("a.sh: the script of the check was changed", STOPS)]


def test_names_that_are_no_text_are_kept_and_found_again(pinned: Pinned) -> None:
    name = os.fsdecode(b"t\xffst")
    pinned.write({f"{name}/conftest.py": "import os\n"})
    pinned.begin("pytest")
    assert pinned.told() == []
    pinned.write({f"{name}/conftest.py": "x()\n"})
    assert [(one.path, one.stops) for one in pinned.altered()] == [(f"{name}/conftest.py", STOPS)]


@pytest.mark.parametrize("command", ["'", '"$(', "make -C", "npm", "sh", "sh -c", "python", "make -f", "cd", "a\0b", "",
                                     "((((", "\\", "cd .. && sh x", "sh ../../x", "make -C /etc x",
                                     "npm --prefix"])  # fmt: skip
def test_a_command_that_nobody_understands_is_no_trouble(pinned: Pinned, command: str) -> None:
    pinned.write({"Makefile": ":\n\tx\n=\n::\ndefine\nifeq\n", "package.json": "[1]"})
    pinned.begin(command)
    assert pinned.told() == []


def test_a_file_that_the_work_adds_where_nothing_decides_is_not_told(pinned: Pinned) -> None:
    pinned.begin("make test", "npm test", "pytest", "cargo test")
    pinned.write({"src/a.py": "x = 1\n", ".env": "A=1\n", ".envrc": "export PATH=bin\n", "README.md": "pytest\n"})
    assert pinned.told() == []
    pinned.write({".ralph/x/conftest.py": "x()\n"})
    assert pinned.told() == []


def test_nothing_that_was_said_of_one_turn_is_lost_in_the_next(pinned: Pinned) -> None:
    pinned.begin("sh a.sh")
    pinned.write({"a.sh": "exit 0\n"})
    told = [("a.sh: the script of the check was written during the run", TOLD)]
    assert (pinned.told(), pinned.told()) == (told, told)


HARD = {
    "a Makefile of blanks": ("make test", "Makefile", "test:" + " " * 900_000 + "\n" + "a" * 900_000),
    "lines that go on and on": ("make test", "Makefile", "X = \\\n" * 100_000 + "1\ntest: ; true\n"),
    "variables of variables": ("make test", "Makefile", f"A = {'$(B)' * 9000}\nB = {'$(A)' * 9000}\ntest:\n\t$(A)\n"),
    "a target that needs all": ("make test", "Makefile", "test: " + " ".join(f"t{n}" for n in range(90_000)) + "\n"),
    "programs that start programs": ("sh a.sh", "a.sh", "env " * 60_000),
    "open quotes": ("sh a.sh", "a.sh", "\"'" * 100_000),
    "open parentheses": ("sh a.sh", "a.sh", "$(" * 100_000),
    "a deep conftest": ("pytest", "conftest.py", "x = " + "-" * 20_000 + "1\n"),
    "a long sum": ("pytest", "conftest.py", "x = " + "1 + " * 20_000 + "1\n"),
    "a long chain": ("pytest", "conftest.py", "if 1:\n  pass\n" + "elif 1:\n  pass\n" * 5000),
    "a deep package": ("npm test", "package.json", "[" * 100_000),
    "deep settings": ("pytest", "pyproject.toml", "x = " + "[" * 50_000),
    "comments that never end": ("true", "test_a.js", "/*" * 300_000),
    "calls that never end": ("true", "test_a.js", ".it" * 200_000 + "#[test(" * 50_000),
    "blank lines": ("true", "test_a.py", "\n" * 500_000 + "assert" + " " * 400_000),
}


@pytest.mark.parametrize("case", HARD)
def test_no_file_is_so_hard_to_read_that_it_holds_a_run_up(pinned: Pinned, case: str) -> None:
    command, path, text = HARD[case]
    pinned.write({path: "{}\n"})
    pinned.begin(command)
    pinned.write({path: text})
    began = time.process_time()
    pinned.altered()
    assert time.process_time() - began < 20, "it takes hours where it is no longer in proportion to the file"
