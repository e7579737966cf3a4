from __future__ import annotations

import os
import re
import signal

import pytest

from tests.cli.terminal import Terminal
from tests.ralph import Ralph, done, until, write


def finished(ralph: Ralph, git: bool = True) -> str:
    ralph.write({"file": "start\n", ".gitignore": "ignored\n", "ignored": "mine\n"})
    if git:
        ralph.commit()
    agent = ralph.script([write(file="first\n", extra="1\n")], [{"delete": ["extra"]}, write(file="second\n"), done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    return ralph.runs()[0].id


def files(ralph: Ralph) -> dict[str, str]:
    found = (path for path in ralph.root.rglob("*") if path.is_file())
    inner = {str(path.relative_to(ralph.root)): path for path in found}
    return {name: path.read_text() for name, path in inner.items() if not name.startswith((".git/", ".ralph/"))}


@pytest.mark.parametrize("git", [True, False], ids=["git", "plain"])
def test_files_become_those_of_an_iteration_and_it_can_be_undone(ralph: Ralph, git: bool) -> None:
    run = finished(ralph, git)
    ralph.write({"own": "made after the run\n"})
    before = files(ralph)
    told = ralph("rewind", run, "1", "--yes")
    assert told.code == 0, told.err
    assert files(ralph) == {"file": "first\n", "extra": "1\n", ".gitignore": "ignored\n", "ignored": "mine\n"}
    assert "  file\n" in told.out
    assert "  own\n" in told.out
    undo = re.search(r"ralph rewind (\S+) (before-rewind-\S+)", told.out)
    assert undo
    assert ralph("rewind", undo[1], undo[2], "--yes").code == 0
    assert files(ralph) == before
    assert ralph("rewind", "latest", "0", "--yes").code == 0
    assert files(ralph)["file"] == "start\n"
    assert "extra" not in files(ralph)


def test_index_and_head_stay(ralph: Ralph) -> None:
    run = finished(ralph)
    ralph.git("add", "file")
    staged, head = ralph.git("diff", "--cached"), ralph.git("rev-parse", "HEAD")
    assert ralph("rewind", run, "0", "--yes").code == 0
    assert (ralph.git("diff", "--cached"), ralph.git("rev-parse", "HEAD")) == (staged, head)


def test_two_rewinds_in_one_second_can_both_be_undone(ralph: Ralph) -> None:
    run = finished(ralph)
    told = [ralph("rewind", run, number, "--yes", "--json").json for number in ("1", "0", "2", "1")]
    assert len({item["saved"] for item in told}) == 4
    assert told[0]["paths"] == ["extra", "file"]
    assert ralph("rewind", run, told[1]["saved"], "--yes").code == 0
    assert files(ralph)["file"] == "first\n"


def test_at_a_terminal_it_asks(ralph: Ralph) -> None:
    run = finished(ralph)
    before = files(ralph)
    at = Terminal(ralph, "rewind", run, "0")
    at.answer((f"Restore the files of the start of run {run}? (y/N): ", ""))
    assert at.end() == 0
    assert "Nothing was changed." in at.shown
    assert files(ralph) == before
    at = Terminal(ralph, "rewind", run, "0")
    at.answer(("(y/N): ", "y"))
    assert at.end() == 0
    assert files(ralph)["file"] == "start\n"


def test_without_a_terminal_yes_is_needed_and_nothing_happens(ralph: Ralph) -> None:
    run = finished(ralph)
    before, refs = files(ralph), ralph.git("for-each-ref")
    ended = ralph("rewind", run, "0", stdin="y\n")
    assert ended.code == 2
    assert "--yes" in ended.err
    assert (files(ralph), ralph.git("for-each-ref")) == (before, refs)


def test_what_is_there_already_is_said(ralph: Ralph) -> None:
    run = finished(ralph)
    assert "already" in ralph("rewind", run, "2", "--yes").out


@pytest.mark.parametrize(
    "where", ["9", "-1", "x", "before-rewind-1", "../../heads/main", "before-rewind-../x", "1-scm"]
)
def test_a_place_that_is_not_there_is_refused(ralph: Ralph, where: str) -> None:
    run = finished(ralph)
    before = files(ralph)
    assert ralph("rewind", "--yes", "--", run, where).code == 2
    assert files(ralph) == before


def test_nothing_is_done_while_a_run_works_here(ralph: Ralph) -> None:
    run = finished(ralph)
    ralph.start("run", "-p", "x", "--agent", ralph.script([write(started="1"), {"until": "go"}, done()]))
    until(lambda: (ralph.root / "started").exists(), "the agent is at work")
    live = ralph.runs()[0].id
    ended = ralph("rewind", run, "0", "--yes")
    assert ended.code == 2
    assert f"ralph cancel {live}" in ended.err
    os.kill(ralph.live[0].process.pid, signal.SIGKILL)
    ralph.live[0].process.wait()
    ended = ralph("rewind", run, "0", "--yes")
    assert ended.code == 2
    assert f"ralph cancel {live}" in ended.err
    assert files(ralph)["file"] == "second\n"
    assert ralph("cancel").code == 0
    assert ralph("rewind", run, "0", "--yes").code == 0


def test_nothing_is_done_in_the_pause_between_two_iterations(ralph: Ralph) -> None:
    run = finished(ralph)
    agent = ralph.script([write(file="third\n")])
    ralph.start("run", "-p", "x", "--agent", agent, env={"RALPH__LIMITS__PAUSE_MILLISECONDS": "60000"})
    until(lambda: len(ralph.state().history.iterations) == 1 and ralph.runs()[0].id != run, "the pause")
    assert ralph("rewind", run, "0", "--yes").code == 2
    assert files(ralph)["file"] == "third\n"


def test_the_run_of_another_worktree_is_rewound_there(ralph: Ralph) -> None:
    run = finished(ralph)
    ralph.git("worktree", "add", "-q", "../other", "-b", "other")
    ended = ralph("rewind", run, "0", "--yes", cwd=ralph.folder / "other")
    assert ended.code == 2
    assert str(ralph.root) in ended.err
