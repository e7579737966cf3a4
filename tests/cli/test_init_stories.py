"""`ralph init --preset stories`: the folder of the stories beside the settings."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.errors import Refused
from ralphproof.base.files import create_file
from ralphproof.runs.stories import prepare_marker
from ralphproof.stories.story_folder import (
    branch_name,
    is_unedited_template,
    project_name,
    remove_temporary_files,
    scaffold_files,
)
from tests.cli.terminal import Terminal
from tests.ralph import Ended, Ralph, done, until, write

FILES = {"prompt.md", "prd.md", "tasks.json", "progress.txt"}
INIT = ("init", "--preset", "stories", "--yes", "--agent", "tool")


def laid(ralph: Ralph, folder: str = "ralph") -> dict[str, str]:
    place = ralph.root / folder
    return {path.name: path.read_text(encoding="utf-8") for path in place.iterdir()} if place.exists() else {}


def tasks(ralph: Ralph, folder: str = "ralph") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ralph.root / folder / "tasks.json").read_text(encoding="utf-8"))
    return found


def settings(ralph: Ralph) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ralph.root / ".ralph/settings.json").read_text(encoding="utf-8"))
    return found


def everything(ralph: Ralph) -> list[str]:
    return sorted(str(path.relative_to(ralph.root)) for path in ralph.root.rglob("*") if ".git/" not in str(path))


def test_the_folder_is_laid_out_from_the_templates(ralph: Ralph) -> None:
    ralph.write({"Makefile": "test:\n\ttrue\nlint:\n\ttrue\n"})
    ralph.commit()
    told = ralph(*INIT)
    assert told.code == 0, told.err
    files = laid(ralph)
    assert files.keys() == FILES
    assert not [name for name, text in files.items() if "{{" in text]
    assert f"Started: {time.strftime('%Y-%m-%d')}\nPRD: project\n" in files["progress.txt"]
    assert files["prd.md"].startswith("# PRD: project\n")
    assert (tasks(ralph)["project"], tasks(ralph)["branchName"]) == ("project", "ralph/feature-name")
    assert tasks(ralph)["verifyCommands"] == ["make lint", "make test"]
    assert tasks(ralph)["userStories"][0]["id"] == "US-001"
    made = settings(ralph)
    assert (made["preset"], "guardrails" in made, made["agent"]["command"]) == ("stories", False, "tool")
    assert (made["maximumIterations"], made["completionResponse"]) == (15, "COMPLETE")
    assert ralph("config", "show").code == 0
    assert (ralph.root / ".gitignore").read_text() == ".ralph-active\n"
    assert told.out.endswith(
        ".ralph-active was added to .gitignore\nNext:\n"
        "  ralph plan    (with an agent; or write ralph/prd.md and ralph/tasks.json yourself)\n  ralph run\n"
    )


def test_without_a_check_it_says_where_stories_name_theirs(ralph: Ralph) -> None:
    told = ralph(*INIT)
    assert "Checks: none found; name them in verifyCommands of tasks.json; without one" in told.out


def test_what_was_just_laid_out_is_not_run_before_somebody_wrote_it(ralph: Ralph) -> None:
    ralph.commit()
    assert ralph(*INIT).code == 0
    unwritten = "ralph: the stories are not written yet: ralph plan, or write ralph/tasks.json\n"
    told = ralph("run", "--agent", ralph.script([done()]))
    assert (told.code, told.err) == (2, unwritten)
    (ralph.root / "ralph/tasks.json").unlink()
    assert ralph("run", "--agent", ralph.script([done()])).err == unwritten
    ralph.write({"ralph-archive/2026-01-02-x/.unfinished": "{}"})
    told = ralph("run", "--agent", ralph.script([done()]))
    assert (told.code, told.err) == (
        2, "ralph: ralph-archive/2026-01-02-x was cut off while stories were moved; end that first: ralph archive\n",
    )  # fmt: skip


def test_before_the_first_run_status_names_the_command_that_begins_one(ralph: Ralph) -> None:
    assert ralph("status").out == 'no run yet; start one: ralph run -p "make the tests pass"\n'
    assert ralph(*INIT).code == 0
    assert ralph("status").out == "no run yet; start one: ralph run\n"


def test_whoever_stands_in_a_folder_of_the_project_hears_which_one_it_is(ralph: Ralph) -> None:
    ralph.write({"src/a.py": ""})
    ralph.commit()
    assert f"Project: {ralph.root}\n" in ralph(*INIT, cwd=ralph.root / "src").out
    assert "Project:" not in ralph(*INIT, "--force").out


def test_suggested_commands_are_about_the_folder_at_hand(ralph: Ralph) -> None:
    ralph.settings(preset="stories")
    for words in (("run",), ("archive",), ("plan", "--from", "x")):
        told = ralph(*words, "--ralph-dir", "my stories")
        assert "make one: ralph init --preset stories --ralph-dir 'my stories'\n" in told.err
    told = ralph(*INIT, "--ralph-dir", "my stories")
    assert "  ralph plan --ralph-dir 'my stories'    (" in told.out
    told = ralph("run", "--ralph-dir", "my stories", "--agent", ralph.script([done()]))
    assert "not written yet: ralph plan --ralph-dir 'my stories', or write my stories/tasks.json\n" in told.err


# Names


NASTY = [
    ("login", "ralph/login"),
    ("My Feature", "ralph/My-Feature"),
    ("feat/log in", "ralph/feat/log-in"),
    ("//a//b//", "ralph/a/b"),
    ("/", None),
    ("...", None),
    ("a..b", "ralph/a-b"),
    (".hidden/.x", "ralph/hidden/x"),
    ("x.lock", "ralph/x"),
    ("x.lock.lock/y.LOCK", "ralph/x/y"),
    ("end.", "ralph/end"),
    ("-n", "ralph/n"),
    ("@", "ralph/@"),
    ("a@{b", "ralph/a-b"),
    ("~^:?*[\\", None),
    ("a~1^2:3?4*5[6\\7", "ralph/a-1-2-3-4-5-6-7"),
    ("größe", "ralph/größe"),
    ("日本", "ralph/日本"),
    ("ö" * 500, "ralph/" + "ö" * 100),
    ("{{DATE}}", "ralph/{{DATE}}"),
    ('a"b\'c$(d)', "ralph/a\"b'c$(d)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "branch"), NASTY)
def test_a_branch_is_called_as_git_allows(name: str, branch: str | None) -> None:
    if branch is None:
        with pytest.raises(Refused, match="nothing in it that a branch can be called"):
            branch_name(name)
        return
    assert branch_name(name) == branch
    assert subprocess.run(["git", "check-ref-format", f"refs/heads/{branch}"]).returncode == 0


def test_a_name_is_taken_literally_wherever_it_stands(ralph: Ralph) -> None:
    name = 'a "b" \\ {{DATE}} </x> {{PROJECT_NAME}} $(id) %s'
    told = ralph(*INIT, "--name", name)
    assert told.code == 0, told.err
    assert tasks(ralph)["project"] == name
    assert tasks(ralph)["branchName"].startswith('ralph/a-"b"')
    assert f"\nPRD: {name}\n" in laid(ralph)["progress.txt"]
    assert laid(ralph)["prd.md"].startswith(f"# PRD: {name}\n")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\tb", "a\x1b[31m", "..", "a\u2028b"])
def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(ralph: Ralph, name: str) -> None:
    told = ralph(*INIT, "--name", name)
    assert (told.code, len(told.err.splitlines())) == (2, 1)
    assert "--name" in told.err
    assert everything(ralph) == []


@pytest.mark.parametrize(
    ("folder", "name"), [("a b", "a b"), ("x\ny", "x y"), ("\udcff", "?"), ("\x1b]0;t\x07", "project")]
)
def test_without_a_name_the_project_is_called_like_its_folder(folder: str, name: str) -> None:
    assert project_name(f"/projects/{folder}", None) == name


# What is there already


def test_what_exists_is_kept_and_named(ralph: Ralph) -> None:
    ralph.write({"ralph/prd.md": "mine\n", "ralph/notes.md": "mine too\n"})
    told = ralph(*INIT)
    assert told.code == 0, told.err
    assert (laid(ralph)["prd.md"], laid(ralph)["notes.md"]) == ("mine\n", "mine too\n")
    assert laid(ralph).keys() == {*FILES, "notes.md"}
    assert "Stories created: ralph/prompt.md, ralph/tasks.json, ralph/progress.txt\n" in told.out
    assert "Kept existing ralph/prd.md\n" in told.out


def test_force_overwrites_the_files_of_the_stories_and_no_others(ralph: Ralph) -> None:
    ralph.write({f"ralph/{name}": "mine\n" for name in (*FILES, "notes.md")})
    assert ralph(*INIT, "--force").code == 0
    kept = {"notes.md", *(f"{name}.before-init" for name in FILES)}
    assert {name for name, text in laid(ralph).items() if text == "mine\n"} == kept


def test_what_force_overwrites_is_set_aside_under_a_name_of_its_own(ralph: Ralph) -> None:
    assert ralph(*INIT).code == 0
    ralph.write({"ralph/prd.md": "first\n"})
    told = ralph(*INIT, "--force", "--name", "again")
    assert "Set aside: ralph/prd.md is now ralph/prd.md.before-init\n" in told.out
    assert laid(ralph).keys() == {*FILES, "prd.md.before-init"}
    ralph.write({"ralph/prd.md": "second\n"})
    told = ralph(*INIT, "--force", "--json")
    assert told.json["stories"]["setAside"] == {"ralph/prd.md": "ralph/prd.md.before-init-2"}
    assert [laid(ralph)[f"prd.md.before-init{end}"] for end in ("", "-2")] == ["first\n", "second\n"]


def test_a_name_that_would_go_nowhere_is_refused(ralph: Ralph) -> None:
    assert ralph(*INIT).code == 0
    told = ralph("init", "--preset", "stories", "--yes", "--agent", "tool", "--name", "x")
    assert (told.code, told.err) == (2, "ralph: ralph/tasks.json exists; --name changes nothing there\n")


def test_where_settings_cannot_be_written_nothing_is_laid_out(ralph: Ralph) -> None:
    (ralph.root / ".ralph/settings.json").mkdir(parents=True)
    before = everything(ralph)
    told = ralph(*INIT, "--force")
    assert (told.code, "Nothing was changed" in told.err) == (2, True)
    assert everything(ralph) == before


def test_existing_settings_stay_and_missing_files_are_laid_out_all_the_same(ralph: Ralph) -> None:
    ralph.settings(maximumIterations=4)
    told = ralph(*INIT)
    assert told.code == 0, told.err
    assert settings(ralph) == {"maximumIterations": 4}
    assert laid(ralph).keys() == FILES
    assert "Kept existing .ralph/settings.json\n" in told.out
    assert "Note: the settings name the preset harness" in told.out
    assert "  ralph run --preset stories\n" in told.out
    again = ralph(*INIT)
    assert again.code == 2
    assert again.err == (
        "ralph: .ralph/settings.json and all files of the stories exist; overwrite them with --force\n"
    )


def test_settings_that_name_stories_already_need_no_flag(ralph: Ralph) -> None:
    ralph.settings(preset="stories")
    told = ralph(*INIT, "--ralph-dir", "docs/my stories")
    assert told.out.endswith("  ralph run --ralph-dir 'docs/my stories'\n")
    assert laid(ralph, "docs/my stories").keys() == FILES


def test_at_a_terminal_it_asks_as_ever_with_the_numbers_of_stories(ralph: Ralph) -> None:
    ralph.write({"Makefile": "test:\n\ttrue\n"})
    ralph.env["PATH"] = str(ralph.bin)
    at = Terminal(ralph, "init", "--preset", "stories", "--name", "login")
    at.answer(
        ("Checks this project names, for the stories: make test\n\nAgent command", "tool"), ("Agent flags", ""),
        ("Maximum iterations [15]: ", ""), ("Completion response [COMPLETE]: ", ""),
        ("Add guardrail command (leave blank to finish): ", ""), ("Configure SCM? (y/N): ", ""),
    )  # fmt: skip
    assert at.end() == 0
    assert (settings(ralph)["maximumIterations"], "guardrails" in settings(ralph)) == (15, False)
    assert tasks(ralph)["verifyCommands"] == ["make test"]
    assert tasks(ralph)["branchName"] == "ralph/login"


def test_at_a_terminal_a_no_keeps_the_settings_and_lays_the_stories_out(ralph: Ralph) -> None:
    ralph.settings(maximumIterations=4)
    at = Terminal(ralph, "init", "--preset", "stories")
    at.answer(("Overwrite? (y/N): ", "n"))
    assert at.end() == 0
    assert settings(ralph) == {"maximumIterations": 4}
    assert laid(ralph).keys() == FILES


def test_leaving_in_the_middle_writes_nothing(ralph: Ralph) -> None:
    at = Terminal(ralph, "init", "--preset", "stories", "--agent", "tool")
    at.expect("Agent flags")
    at.type("\x03")
    assert at.end() == 130
    assert everything(ralph) == []


# The marker is kept out of commits


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, b".ralph-active\n"),
        (b"", b".ralph-active\n"),
        (b"*.pyc\n", b"*.pyc\n.ralph-active\n"),
        (b"*.pyc", b"*.pyc\n.ralph-active\n"),
        (b"*.pyc\r\nbuild/\r\n", b"*.pyc\r\nbuild/\r\n.ralph-active\r\n"),
        (b"*.pyc\r\nbuild/", b"*.pyc\r\nbuild/\r\n.ralph-active\r\n"),
        (b".ralph-active\n", b".ralph-active\n"),
        (b"/.ralph-active", b"/.ralph-active"),
        (b".ralph*\n", b".ralph*\n"),
        (b".*\n!.gitignore\n", b".*\n!.gitignore\n"),
        (b"#.ralph-active\n", b"#.ralph-active\n.ralph-active\n"),
        (b".ralph-active/\n", b".ralph-active/\n.ralph-active\n"),
        (b"sub/.ralph-active\n", b"sub/.ralph-active\n.ralph-active\n"),
        (b".ralph*\n!.ralph-active\n", b".ralph*\n!.ralph-active\n.ralph-active\n"),
    ],
)
@pytest.mark.parametrize("git", [True, False], ids=["git", "plain"])
def test_the_marker_is_ignored_once_and_the_rest_of_the_file_stays(
    ralph: Ralph, before: bytes | None, after: bytes, git: bool
) -> None:
    if not git and before is not None and before == after and b".ralph-active" not in before.splitlines()[0]:
        after += b".ralph-active\n"  # only git knows what a pattern means
    if before is not None:
        (ralph.root / ".gitignore").write_bytes(before)
        (ralph.root / ".gitignore").chmod(0o600)
    if git:
        ralph.git("init", "-q")
    told = ralph(*INIT)
    assert told.code == 0, told.err
    assert (ralph.root / ".gitignore").read_bytes() == after
    assert ("was added to .gitignore" in told.out) == (before != after)
    if before is not None:
        assert stat.S_IMODE((ralph.root / ".gitignore").stat().st_mode) == 0o600
    (ralph.root / ".ralph-active").touch()
    if git:
        assert ralph.git("status", "--porcelain", "--", ".ralph-active") == ""


def test_a_rule_of_the_user_outside_of_the_project_counts_too(ralph: Ralph) -> None:
    ralph.git("init", "-q")
    (ralph.root / ".git/info/exclude").write_text(".ralph-active\n")
    assert ralph(*INIT).code == 0
    assert not (ralph.root / ".gitignore").exists()


@pytest.mark.parametrize(("rule", "written"), [("*-active\n", False), ("other\n", True)])
def test_a_run_adds_no_rule_where_one_ignores_its_marker_already(ralph: Ralph, rule: str, written: bool) -> None:
    ralph.write({".gitignore": rule})
    ralph.commit()
    told = prepare_marker(str(ralph.root), "")
    assert ("/.ralph-active\n" in (ralph.root / ".git/info/exclude").read_text()) == written == bool(told)


def test_a_folder_of_a_repository_has_the_rules_of_the_whole(ralph: Ralph) -> None:
    ralph.git("init", "-q")
    ralph.write({".gitignore": ".ralph-active\n", "part/.ralph/settings.json": "{}"})
    assert ralph(*INIT, "-d", "part").code == 0
    assert laid(ralph, "part/ralph").keys() == FILES
    assert not (ralph.root / "part/.gitignore").exists()


def test_a_linked_gitignore_is_refused_unless_nothing_has_to_be_written(ralph: Ralph) -> None:
    (ralph.folder / "elsewhere").write_text("x\n")
    (ralph.root / ".gitignore").symlink_to(ralph.folder / "elsewhere")
    told = ralph(*INIT)
    assert (told.code, everything(ralph)) == (2, [".gitignore"])
    assert ".gitignore is no file" in told.err
    assert (ralph.folder / "elsewhere").read_text() == "x\n"
    ralph.git("init", "-q")
    (ralph.root / ".git/info/exclude").write_text(".ralph-active\n")
    assert ralph(*INIT).code == 0


# What cannot be


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
@pytest.mark.parametrize("what", ["folder", "file outside", "file nowhere", "directory", "above", "ralph is a file"])
def test_nothing_is_written_through_a_link_or_over_anything_odd(
    ralph: Ralph, what: str, force: tuple[str, ...]
) -> None:
    elsewhere = ralph.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tasks.json").write_text("theirs")
    place = ralph.root / "ralph"
    match what:
        case "folder":
            place.symlink_to(elsewhere)
        case "above":
            (ralph.root / "up").symlink_to(elsewhere)
        case "ralph is a file":
            place.write_text("x")
        case "directory":
            (place / "tasks.json").mkdir(parents=True)
        case _:
            place.mkdir()
            (place / "tasks.json").symlink_to(elsewhere / ("tasks.json" if what == "file outside" else "nothing"))
    before = everything(ralph)
    told = ralph(*INIT, *force, *(("--ralph-dir", "up/in") if what == "above" else ()))
    assert (told.code, len(told.err.splitlines())) == (2, 1), told
    assert everything(ralph) == before
    assert [path.read_text() for path in elsewhere.iterdir()] == ["theirs"]


def test_a_link_inside_the_project_is_an_ordinary_place(ralph: Ralph) -> None:
    (ralph.root / "docs/stories").mkdir(parents=True)
    (ralph.root / "ralph").symlink_to("docs/stories")
    told = ralph(*INIT)
    assert told.code == 0, told.err
    assert laid(ralph, "docs/stories").keys() == FILES
    assert "docs/stories/prd.md" in told.out


@pytest.mark.parametrize("folder", ["..", ".", "/", "../other", ".git/x", ".ralph", "ralph-archive", "ralph-archive/x"])
def test_only_a_folder_of_their_own_inside_the_project_is_for_stories(ralph: Ralph, folder: str) -> None:
    told = ralph(*INIT, "--ralph-dir", folder)
    assert (told.code, everything(ralph)) == (2, [])
    assert "--ralph-dir" in told.err


@pytest.mark.parametrize("flags", [["--name", "n"], ["--ralph-dir", "x"], ["--name", "n", "--preset", "harness"]])
def test_what_is_for_stories_is_refused_elsewhere(ralph: Ralph, flags: list[str]) -> None:
    told = ralph("init", "--yes", "--agent", "tool", *flags)
    assert (told.code, everything(ralph)) == (2, [])
    assert f"{flags[0]} is for stories: ralph init --preset stories" in told.err


def test_stories_are_not_overwritten_while_a_loop_works_on_them(ralph: Ralph) -> None:
    ralph.write({"ralph/prd.md": "mine\n"})
    (ralph.root / ".ralph-active").write_text(json.dumps({"pid": os.getpid()}))
    told = ralph(*INIT, "--force")
    assert told.code == 2
    assert f"a loop is at work here (pid {os.getpid()})" in told.err
    assert laid(ralph) == {"prd.md": "mine\n"}
    (ralph.root / ".ralph-active").unlink()
    agent = ralph.script([{"run": ["touch", "../working"]}, {"until": "../go"}, done()])
    live = ralph.start("run", "-p", "x", "--agent", agent)
    until((ralph.folder / "working").exists, "the agent is at work")
    told = ralph(*INIT, "--force")
    (ralph.folder / "go").touch()
    assert (told.code, laid(ralph)) == (2, {"prd.md": "mine\n"})
    assert "works in" in told.err
    assert live.end().code == 0


# Programs, modes, and small parts


def test_for_programs(ralph: Ralph) -> None:
    ralph.write({"Makefile": "test:\n\ttrue\n", "ralph/prd.md": "mine\n"})
    told: Ended = ralph(*INIT, "--json")
    assert told.json["stories"] == {
        "folder": "ralph", "written": ["ralph/prompt.md", "ralph/tasks.json", "ralph/progress.txt"],
        "kept": ["ralph/prd.md"], "setAside": {}, "ignored": True, "verifyCommands": ["make test"],
    }  # fmt: skip
    assert told.json["settings"]["preset"] == "stories"
    (ralph.root / "ralph/prompt.md").unlink()
    again = ralph(*INIT, "--json").json
    assert (again["settings"], again["stories"]["written"]) == (None, ["ralph/prompt.md"])
    assert again["stories"]["ignored"] is False


def test_the_files_have_the_mode_that_the_user_wants(ralph: Ralph) -> None:
    assert ralph(*INIT, via=("/bin/sh", "-c", 'umask 027; exec "$@"', "sh")).code == 0
    assert {path.stat().st_mode & 0o777 for path in (ralph.root / "ralph").iterdir()} == {0o640}
    assert (ralph.root / "ralph").stat().st_mode & 0o777 == 0o750


def test_only_what_a_template_says_is_untouched() -> None:
    texts = scaffold_files("a name", ["make test"], "2026-11-15", "ralph/x")
    for name, data in texts.items():
        assert is_unedited_template(name, data)
        assert is_unedited_template(name, data.replace(b"\n", b"\r\n"))
        assert is_unedited_template(name, data.replace(b"\n", b"  \n") + b"\n")
        assert is_unedited_template(name, scaffold_files("", [], "")[name])
        assert not is_unedited_template(name, data + b"more\n")
        assert not is_unedited_template(name, b"")
        assert not is_unedited_template(name, b"\xff")
    document = json.loads(texts["tasks.json"])
    changes: tuple[dict[str, object], ...] = ({"description": "x"}, {"userStories": []}, {"more": 1})
    for change in changes:
        assert not is_unedited_template("tasks.json", json.dumps(document | change).encode())


def test_a_file_that_somebody_made_meanwhile_is_never_overwritten(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    assert create_file(folder, "a", b"first")
    assert not create_file(folder, "a", b"second")
    (tmp_path / "b").symlink_to("nowhere")
    assert not create_file(folder, "b", b"x")
    assert sorted(os.listdir(folder)) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == b"first"
    os.close(folder)


def test_only_what_dead_processes_left_half_written_is_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    gone = {f".prd.md.{dead.pid}.tmp", f".tasks.json.{dead.pid}.part", f"..prd.md.{dead.pid}.part.{dead.pid}.tmp"}
    stays = {f".prd.md.{os.getpid()}.tmp", ".other.md.1.tmp", "prd.md", ".prd.md.tmp"}
    for name in (*gone, *stays):
        (tmp_path / name).touch()
    folder = os.open(tmp_path, os.O_RDONLY)
    remove_temporary_files(folder)
    assert set(os.listdir(folder)) == stays
    os.close(folder)


def test_stories_that_were_laid_out_and_written_are_worked_through(ralph: Ralph) -> None:
    ralph.commit()
    assert ralph(*INIT, "--name", "greet").code == 0
    document = tasks(ralph)
    story = document["userStories"][0] | {"title": "Greet", "acceptanceCriteria": ["hello exists"]}
    document |= {"verifyCommands": ["test -f hello"], "userStories": [story]}
    ralph.write({"ralph/tasks.json": json.dumps(document)})
    finished = document | {"userStories": [story | {"passes": True, "notes": "done"}]}
    turn = [write(hello="hi\n"), {"write": {"ralph/tasks.json": json.dumps(finished)}}]
    told = ralph("run", "--skip-review", "--agent", ralph.script(turn))
    assert told.code == 0, (told.out, told.err)
    assert tasks(ralph)["userStories"][0]["passes"] is True
