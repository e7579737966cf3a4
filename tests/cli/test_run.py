"""What `ralph run` says and does at its beginning."""

from __future__ import annotations

import json
import re

import pytest

from tests.ralph import Ended, Ralph, done, write


def in_a_repository(ralph: Ralph) -> None:
    """The project becomes a folder of a repository that begins above it."""
    ralph.write({"file": "x\n"})
    ralph.git("init", "-q", "..")


def test_a_project_that_is_a_folder_of_a_repository_is_told_so(ralph: Ralph) -> None:
    in_a_repository(ralph)
    ralph.settings(agent={"command": ralph.script([write(file="y"), done()])})
    told = ralph("run", "-p", "x")
    assert told.code == 0
    assert f"note: {ralph.root} is a folder of the repository at {ralph.folder}: " in told.err
    assert "not under refs" in told.err


def test_such_a_project_cannot_have_its_work_committed_by_git(ralph: Ralph) -> None:
    in_a_repository(ralph)
    agent = ralph.script([write(file="y"), done()])
    ralph.settings(agent={"command": agent}, scm={"command": "git", "tasks": ["commit"]})
    told = ralph("run", "-p", "x")
    assert (told.code, told.out) == (2, "")
    assert f"ralph: scm git: {ralph.root} is a folder of the repository at {ralph.folder}: " in told.err
    assert ralph.runs() == ()


@pytest.mark.parametrize("git", [True, False])
def test_other_projects_are_told_nothing_of_the_kind(ralph: Ralph, git: bool) -> None:
    if git:
        ralph.commit()
    assert "a folder of the repository" not in ralph("run", "-p", "x", "--agent", ralph.script([done()])).err


def test_the_runs_of_a_project_that_becomes_a_repository_stay_its_own(ralph: Ralph) -> None:
    ralph.write({"file": "x\n"})
    assert ralph("run", "-p", "x", "--agent", ralph.script([write(file="y\n"), done()])).code == 0
    ralph.commit()
    assert ralph("status", "--json").json["state"] == "ended"
    assert "+y" in ralph("diff").out
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    assert len(ralph.runs()) == 2


@pytest.mark.parametrize(("name", "said"), [("amp", True), ("claude", False), ("mine", False)])
def test_an_agent_that_this_version_does_not_know_is_started_as_it_is_and_remarked_on(
    ralph: Ralph, name: str, said: bool
) -> None:
    ralph.program(name, "echo $# > ../count; echo '<response>DONE</response>'")
    told = ralph("run", "-p", "x", "--agent", name)
    assert told.code == 0
    assert (f"note: agent {name} is started as it is given" in told.err) == said
    assert ((ralph.folder / "count").read_text() == "0\n") == (name != "claude")


def test_an_agent_without_a_known_guard_is_never_taken_unasked(ralph: Ralph) -> None:
    ralph.program("amp", "touch started")
    told = ralph("run", "-p", "x", env={"PATH": f"{ralph.bin}:/usr/bin:/bin"})
    assert (told.code, (ralph.root / "started").exists()) == (2, False)
    assert "--agent" in told.err


def verbose_lines(told: Ended) -> list[str]:
    return [line.removeprefix("[ralph] ") for line in told.err.splitlines() if line.startswith("[ralph] ")]


def test_verbose_tells_what_is_read_what_holds_and_what_is_done(ralph: Ralph) -> None:
    agent = ralph.script([done("MAYBE")], [done()])
    ralph.settings(guardrails=[{"command": "test -n x", "name": "fine"}], agent={"env": {"API_TOKEN": "sesame-open"}})
    ralph.write({".ralph/settings.local.json": '{"maximumIterations": 3}'})
    told = ralph("run", "-V", "-p", "make it so\nsesame-open " + "x" * 300, "--agent", agent)
    lines = verbose_lines(told)
    assert told.code == 0
    assert lines[:2] == [
        "Loading settings from .ralph/settings.json", "Loading settings from .ralph/settings.local.json",
    ]  # fmt: skip
    merged = next(line for line in lines if line.startswith("Settings: "))
    assert '"maximumIterations": 3' in merged
    assert "sesame-open" not in told.err
    prompt = next(line for line in lines if line.startswith("Prompt (first 200 characters): "))
    assert prompt.partition(": ")[2].startswith("make it so *** xxx")
    assert len(prompt.partition(": ")[2]) == 200
    assert next(line for line in lines if line.startswith("Agent command: ")).endswith("script.json")
    assert "Iteration 1/3 starting" in lines
    assert "Running guardrail: test -n x" in lines
    assert any(re.fullmatch(r"Guardrail exited with code 0 \(\d+\.\ds\)", line) for line in lines)
    assert "Completion detection: looked for DONE, found MAYBE" in lines
    assert "Completion detection: looked for DONE, found DONE" in lines
    assert any(re.match(r"Agent ended \(exit, code 0, \d+\.\ds, ", line) for line in lines)
    assert any(line.startswith("Run ended: COMPLETED, verified by its checks: 2 iterations, ") for line in lines)


def test_verbose_names_the_files_even_where_they_cannot_be_used(ralph: Ralph) -> None:
    ralph.write({".ralph/settings.json": "{"})
    told = ralph("run", "-V", "-p", "x")
    assert told.code == 2
    assert verbose_lines(told) == ["Loading settings from .ralph/settings.json"]


def test_verbose_tells_of_a_commit_with_its_time(ralph: Ralph) -> None:
    ralph.commit()
    ralph.git("config", "user.name", "u")
    ralph.git("config", "user.email", "u@localhost")
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    agent = ralph.script([write(file="x"), done()], message=[{"text": "Write it"}])
    told = ralph("run", "-V", "-p", "x", "--agent", agent, "--check", "true")
    assert told.code == 0
    scm = next(line for line in verbose_lines(told) if line.startswith("SCM: "))
    assert re.fullmatch(r"SCM: kept in commit .*: Write it \(message: \d+\.\ds\)", scm)


def test_without_verbose_nothing_of_the_kind_is_said(ralph: Ralph) -> None:
    assert verbose_lines(ralph("run", "-p", "x", "--agent", ralph.script([done()]))) == []


@pytest.mark.parametrize("flags", [["--json"], ["--json", "-V"]])
def test_events_are_streamed_to_programs_that_want_everything(ralph: Ralph, flags: list[str]) -> None:
    told = ralph("run", *flags, "-p", "x", "--agent", ralph.script([{"text": "hello"}, done()]))
    said = [line["text"] for line in told.lines if line["type"] == "agent.said"]
    assert said == (["hello", "<response>DONE</response>"] if "-V" in flags else [])


def test_a_letter_that_comes_in_two_pieces_is_shown_as_one(ralph: Ralph) -> None:
    ralph.program("slow", r"printf 'gr\303'; sleep 0.3; printf '\274n\n<response>DONE</response>\n\303'")
    told = ralph("run", "-p", "x", "--agent", "slow")
    assert told.code == 0
    assert "grün\n" in told.err
    assert told.err.count("\ufffd") == 1


def test_a_lock_that_was_never_given_back_is_told(ralph: Ralph) -> None:
    agent = ralph.script([done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    (lock,) = (ralph.state_dir / "locks").glob("*.lock")
    lock.write_text(json.dumps({"pid": 999_999_999, "run": "lost", "boot": "", "start": "1"}) + "\n")
    told = ralph("run", "-p", "x", "--agent", agent)
    assert told.code == 0
    assert "note: run lost (pid 999999999) did not end properly; its lock was taken over" in told.err
