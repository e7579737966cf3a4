from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.ralph import Ralph, done, say, until, write

ALL = ("--days", "0", "--keep", "0")


@pytest.fixture(autouse=True)
def temporary(ralph: Ralph) -> Path:
    """A folder for temporary ones that nobody else uses."""
    place = ralph.folder / "temporary"
    place.mkdir()
    ralph.env["TMPDIR"] = str(place)
    return place


def worked(ralph: Ralph, content: str = "done\n", *flags: str) -> str:
    """A run that wrote a file; its id."""
    if not (ralph.root / ".git").exists():
        ralph.write({"file": "start\n"})
        ralph.commit()
    agent = ralph.script([write(file=content), done()])
    assert ralph("run", "-p", "make it so", "--agent", agent, *flags).code == 0
    return ralph.runs()[0].id


def landed(ralph: Ralph, content: str = "done\n") -> str:
    """The same, and its work is committed."""
    run = worked(ralph, content)
    ralph.commit()
    return run


def refs(ralph: Ralph, run: str) -> str:
    return ralph.git("for-each-ref", f"refs/ralph/{run}/")


def remains(ralph: Ralph, run: str) -> list[str]:
    """What is left of a run."""
    places = (Path(ralph.project.store) / "runs" / run, ralph.run_folder(run), ralph.root / ".git/refs/ralph" / run)
    has_refs = (ralph.root / ".git").exists() and refs(ralph, run)
    return [str(path) for path in places if path.exists()] + (["refs"] if has_refs else [])


def test_nothing_goes_while_git_cannot_tell_what_is_saved(ralph: Ralph) -> None:
    """What cannot be asked for is not pruned: it may be the only copy."""
    run = worked(ralph)
    ralph.git("checkout", "-q", "file")
    program = f'#!/bin/sh\ncase "$*" in *"cat-file --batch"*) kill -9 $$;; esac\nexec {shutil.which("git")} "$@"\n'
    (ralph.folder / "first").mkdir()
    (ralph.folder / "first/git").write_text(program)
    (ralph.folder / "first/git").chmod(0o755)
    ralph.env["PATH"] = f"{ralph.folder}/first:{ralph.env.get('PATH', os.environ['PATH'])}"
    told = ralph("gc", "--yes", *ALL)
    assert told.code == 3
    assert "could not be asked" in told.err
    assert refs(ralph, run)


def test_what_old_runs_keep_goes_and_their_records_stay(ralph: Ralph) -> None:
    first, second = landed(ralph, "one\n"), landed(ralph, "two\n")
    told = ralph("gc", "--yes", "--days", "0", "--keep", "1")
    assert told.code == 0, told.err
    assert (remains(ralph, first), bool(remains(ralph, second))) == ([], True)
    assert [row.id for row in ralph.runs()] == [second, first]
    assert ralph.outcome(second)["status"] == "COMPLETED"
    assert len(ralph.records(first)) > 5
    again = ralph("gc", "--yes", "--days", "0", "--keep", "1")
    assert "Nothing is to be removed" in again.out
    assert ralph("gc", "--yes", *ALL).code == 0
    assert remains(ralph, second) == []
    assert not os.path.lexists(ralph.root / ".ralph/latest")
    assert ralph.git("fsck", "--no-dangling") == ""


@pytest.mark.parametrize("flags", [("--days", "0"), ("--days", "1", "--keep", "0"), ()], ids=["new", "young", "usual"])
def test_the_newest_and_the_young_stay(ralph: Ralph, flags: tuple[str, ...]) -> None:
    run = landed(ralph)
    assert ralph("gc", "--yes", *flags).code == 0
    assert len(remains(ralph, run)) == 4


def test_work_that_is_in_no_branch_stays_and_the_way_to_keep_it_is_named(ralph: Ralph) -> None:
    run = worked(ralph)
    told = ralph("gc", "--yes", *ALL)
    assert told.code == 0
    assert f"ralph branch {run} 1" in told.out
    assert "--unlanded" in told.out
    assert len(remains(ralph, run)) == 4
    assert ralph("branch", run, "1").code == 0
    assert ralph("gc", "--yes", *ALL).code == 0
    assert remains(ralph, run) == []
    second = worked(ralph, "again\n")
    assert ralph("gc", "--yes", *ALL, "--unlanded").code == 0
    assert remains(ralph, second) == []


def test_work_that_is_only_saved_by_another_run_is_in_no_branch(ralph: Ralph) -> None:
    first = worked(ralph)
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0  # its start has the same tree
    ralph.git("stash", "-q")
    assert ralph("gc", "--yes", *ALL).code == 0
    assert len(remains(ralph, first)) == 4


def test_a_commit_of_the_run_itself_is_its_work_in_a_branch(ralph: Ralph) -> None:
    ralph.git("init", "-q")
    ralph.git("config", "user.name", "u")
    ralph.git("config", "user.email", "u@example.com")
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    ralph.write({"file": "start\n", "theirs": "1\n"})
    ralph.commit()
    ralph.write({"theirs": "uncommitted, so the tree is no commit's\n"})
    agent = ralph.script([write(file="done\n"), done()], message=[{"text": "did it"}])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    assert "did it" in ralph.git("log", "-1", "--format=%s")
    run = ralph.runs()[0].id
    assert ralph("gc", "--yes", *ALL).code == 0
    assert remains(ralph, run) == []


def test_what_a_rewind_saved_and_no_branch_has_stays(ralph: Ralph) -> None:
    run = landed(ralph)
    ralph.write({"file": "mine, and nowhere else\n"})
    assert ralph("rewind", run, "0", "--yes").code == 0
    told = ralph("gc", "--yes", *ALL)
    assert told.code == 0, told.err
    assert len(remains(ralph, run)) == 4
    assert f"ralph rewind {run} before-rewind-" in told.out
    shown = ralph("gc", "--dry-run", *ALL, "--json").json["unlanded"]
    assert [(one["run"], [name[:14] for name in one["saves"]]) for one in shown] == [(run, ["before-rewind-"])]
    name = shown[0]["saves"][0]
    assert ralph("rewind", run, name, "--yes").code == 0
    ralph.commit()
    assert ralph("gc", "--yes", *ALL).code == 0
    assert remains(ralph, run) == []


@pytest.mark.parametrize("name", ["mine", ".env"])
def test_what_you_had_not_committed_stays_where_the_run_removed_it(ralph: Ralph, name: str) -> None:
    ralph.write({"file": "start\n"})
    ralph.commit()
    ralph.write({name: "PRECIOUS=1\n"})
    agent = ralph.script([{"run": ["rm", name]}, write(file="done\n"), done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    run = ralph.runs()[0].id
    ralph.commit()
    told = ralph("gc", "--yes", *ALL)
    assert len(remains(ralph, run)) == 4
    assert f"{run} 0" in told.out
    if name == "mine":
        assert ralph("branch", run, "0").code == 0
    else:
        assert ralph("rewind", run, "0", "--yes").code == 0
    assert ralph("gc", "--yes", *ALL).code == 0
    assert remains(ralph, run) == []


def test_what_you_had_not_committed_keeps_no_run_once_a_commit_has_it(ralph: Ralph) -> None:
    ralph.write({"file": "start\n"})
    ralph.commit()
    ralph.write({"mine": "half\n"})
    run = landed(ralph)
    ralph.write({"mine": "whole\n"})
    assert ralph("gc", "--yes", *ALL).code == 0
    assert remains(ralph, run) == []


def test_git_frees_what_was_saved_and_nothing_else(ralph: Ralph) -> None:
    worked(ralph, "only this run had it\n")
    ralph.write({"file": "kept\n"})
    kept = landed(ralph, "kept as well\n")
    blob = _blob(ralph, b"only this run had it\n")
    ralph.git("cat-file", "-e", blob)
    assert ralph("gc", "--yes", "--days", "0", "--keep", "1", "--unlanded").code == 0
    ralph.git("gc", "-q", "--prune=now")
    with pytest.raises(subprocess.CalledProcessError):
        ralph.git("cat-file", "-e", blob)
    ralph.git("cat-file", "-e", f"refs/ralph/{kept}/1")


def _blob(ralph: Ralph, content: bytes) -> str:
    asked = ["git", "hash-object", "--stdin"]
    return subprocess.run(asked, input=content, cwd=ralph.root, capture_output=True, check=True).stdout.decode().strip()


def test_a_dry_run_shows_and_changes_nothing(ralph: Ralph) -> None:
    run = landed(ralph)
    other = worked(ralph, "in no branch, so it is compared\n")
    before = _everything(ralph)
    told = ralph("gc", "--dry-run", *ALL)
    assert told.code == 0
    assert run in told.out
    assert "Nothing was removed." in told.out
    shown = ralph("gc", "--dry-run", *ALL, "--json").json
    assert [one["run"] for one in shown["runs"]] == [run]
    assert shown["unlanded"] == [{"run": other, "iteration": 1, "saves": ["1"]}]
    assert shown["bytes"] > 1000
    assert _everything(ralph) == before


def _everything(ralph: Ralph) -> set[str]:
    return {str(path) for path in (*ralph.folder.rglob("*"),) if "__pycache__" not in str(path)}


def test_without_a_terminal_yes_is_needed(ralph: Ralph) -> None:
    run = landed(ralph)
    for flags in ((), ("--json",)):
        told = ralph("gc", *ALL, *flags, stdin="y\n")
        assert told.code == 2
        assert "--yes" in told.err
    assert len(remains(ralph, run)) == 4


def test_at_a_terminal_it_asks(ralph: Ralph) -> None:
    run = landed(ralph)
    for answer, left in (("", 4), ("y", 0)):
        at = Terminal(ralph, "gc", *ALL)
        at.answer(("(y/N): ", answer))
        assert at.end() == 0
        assert run in at.shown
        assert len(remains(ralph, run)) == left


def test_a_run_that_is_open_stays_and_nothing_is_done_beside_it(ralph: Ralph) -> None:
    old = landed(ralph)
    ralph.start("run", "-p", "x", "--agent", ralph.script([write(started="1"), {"until": "go"}, done()]))
    until(lambda: (ralph.root / "started").exists(), "the agent is at work")
    live = ralph.runs()[0].id
    told = ralph("gc", "--yes", *ALL, "--unlanded")
    assert told.code == 2
    assert live in told.err
    os.kill(ralph.live[0].process.pid, signal.SIGKILL)
    ralph.live[0].process.wait()
    for _ in ("orphaned", "crashed"):
        assert ralph("gc", "--yes", *ALL, "--unlanded").code == 0
        assert (remains(ralph, old), len(remains(ralph, live)) > 2) == ([], True)
        (ralph.root / "go").touch()
        until(lambda: not ralph.processes(live), "the agent has ended")


def test_a_run_that_waits_for_somebody_stays(ralph: Ralph) -> None:
    ralph.write({"file": "start\n"})
    ralph.commit()
    wait = {"run": ["sh", "-c", 'echo "which colour?" > "$TASK_FOLDER/WAIT_WITHOUT_RESTART"']}
    assert ralph("run", "-p", "x", "--agent", ralph.script([write(file="half\n"), wait, say("I wait")])).code == 4
    run = ralph.runs()[0].id
    assert ralph("gc", "--yes", *ALL, "--unlanded").code == 0
    assert len(remains(ralph, run)) == 4


def test_no_run_begins_while_it_works(ralph: Ralph) -> None:
    from ralphproof.runs.gc import FolderLocks

    landed(ralph)
    with FolderLocks(ralph.project, [str(ralph.root)]):
        told = ralph("run", "-p", "x", "--agent", ralph.script([done()]))
    assert told.code == 2
    assert len(ralph.runs()) == 1


def test_a_run_of_another_worktree_goes_too_unless_somebody_works_there(ralph: Ralph) -> None:
    landed(ralph)
    ralph.git("worktree", "add", "-q", "../other", "-b", "other")
    other = ralph.folder / "other"
    agent = ralph.script([write(file="elsewhere\n"), done()])
    assert ralph("run", "-p", "x", "--agent", agent, cwd=other).code == 0
    run = ralph.runs()[0].id
    from ralphproof.store.locks import DirectoryLock

    lock = DirectoryLock(ralph.project.state_dir, str(other), "20261115-210507-k3f9")
    lock.take()
    told = ralph("gc", "--yes", *ALL, "--unlanded")
    assert str(other) in told.out
    assert refs(ralph, run)
    lock.release()
    assert ralph("gc", "--yes", *ALL, "--unlanded").code == 0
    assert remains(ralph, run) == []
    assert not (other / ".ralph/runs" / run).exists()


def test_links_that_an_agent_made_are_not_followed(ralph: Ralph) -> None:
    run, precious = landed(ralph), ralph.folder / "precious"
    (precious / run).mkdir(parents=True)
    (precious / run / "file").write_text("1")
    (ralph.run_folder(run) / "out").symlink_to(precious)
    (ralph.run_folder(run) / "task/closed/inner").mkdir(parents=True)
    (ralph.run_folder(run) / "task/closed").chmod(0)
    assert ralph("gc", "--yes", *ALL).code == 0
    assert (precious / run / "file").exists()
    second = landed(ralph, "more\n")
    runs = ralph.root / ".ralph/runs"
    (precious / second).mkdir()
    runs.rename(ralph.folder / "aside")
    runs.symlink_to(precious)
    told = ralph("gc", "--yes", *ALL)
    assert (precious / second).exists()
    assert "Traceback" not in told.err


def test_without_git_copies_go_and_those_of_other_runs_stay(ralph: Ralph) -> None:
    ralph.write({"file": "start\n", "same": "shared by both\n"})
    agents = [ralph.script([write(file=text), done()], name=text) for text in ("first", "second")]
    for agent in agents:
        assert ralph("run", "-p", "x", "--agent", agent).code == 0
    second, first = (row.id for row in ralph.runs())
    assert ralph("gc", "--yes", "--days", "0", "--keep", "1").code == 0
    assert remains(ralph, first), "nothing but the copies holds its work"
    for flags in (("--dry-run",), ("--yes",), ("--dry-run", "--unlanded")):
        told = ralph("gc", "--days", "0", "--keep", "1", *flags).out
        assert first in told
        assert not {"git", "branch"} & set(re.findall(r"\w+", told)), told
    trees = Path(ralph.project.store) / "trees"
    before = len(list(trees.rglob("objects/*/*")))
    assert ralph("gc", "--yes", "--days", "0", "--keep", "1", "--unlanded").code == 0
    assert remains(ralph, first) == []
    assert 0 < len(list(trees.rglob("objects/*/*"))) < before
    assert ralph("rewind", second, "0", "--yes").code == 0
    assert ((ralph.root / "file").read_text(), (ralph.root / "same").read_text()) == ("first", "shared by both\n")
    assert ralph("gc", "--yes", *ALL, "--unlanded").code == 0
    assert list(trees.iterdir()) == []


def test_without_git_what_a_rewind_saved_stays(ralph: Ralph) -> None:
    ralph.write({"file": "start\n"})
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    run = ralph.runs()[0].id
    ralph.write({"file": "mine, and nowhere else\n"})
    assert ralph("rewind", run, "0", "--yes").code == 0
    told = ralph("gc", "--yes", *ALL)
    assert f"ralph rewind {run} before-rewind-" in told.out
    assert remains(ralph, run)
    assert ralph("gc", "--yes", *ALL, "--unlanded").code == 0
    assert remains(ralph, run) == []


def test_leftovers_in_the_temporary_folder_go_when_they_are_old(ralph: Ralph, temporary: Path) -> None:
    landed(ralph)
    place = temporary
    names = ("ralph-look-old", "ralph-look-new", "somebody-else")
    for name in names:
        (place / name / "inner").mkdir(parents=True)
    past = time.time() - 3 * 86_400
    for name in ("ralph-look-old", "somebody-else"):
        os.utime(place / name, (past, past))
    told = ralph("gc", "--yes")
    assert told.code == 0, told.err
    assert sorted(path.name for path in place.iterdir()) == ["ralph-look-new", "somebody-else"]


@pytest.mark.parametrize("part", [0.1, 0.3, 0.45, 0.6, 0.75, 0.9])
def test_killed_at_any_step_it_leaves_a_whole_run_or_one_that_the_next_gc_finishes(ralph: Ralph, part: float) -> None:
    log = ralph.folder / "steps"
    worked(ralph, "sacrificed\n")
    assert ralph("gc", "--yes", *ALL, "--unlanded", dies=(str(log), "steps", "0")).code == 0
    number = max(1, round(part * len(log.read_text().splitlines())))
    run = worked(ralph, "the other one\n")
    whole = remains(ralph, run)
    died = ralph("gc", "--yes", *ALL, "--unlanded", dies=(str(log), "steps", str(number)))
    assert died.code == -signal.SIGKILL
    ended = ralph("gc", "--yes")
    assert ended.code == 0, ended.err
    assert remains(ralph, run) in ([], whole), "what is usual would keep it, so it was whole, or is finished now"
    assert ralph("gc", "--yes", *ALL, "--unlanded").code == 0
    assert remains(ralph, run) == []


def test_what_cannot_be_removed_is_said_and_tried_again(ralph: Ralph) -> None:
    run = landed(ralph)
    lock = ralph.root / ".git/packed-refs.lock"
    ralph.git("pack-refs", "--all")
    lock.touch()
    told = ralph("gc", "--yes", *ALL)
    assert told.code == 1
    assert "packed-refs" in told.out
    assert "0 runs and 0 leftovers removed, 0 bytes in files." in told.out
    assert "git gc" not in told.out
    left = remains(ralph, run)
    assert left
    shown = ralph("diff", run, "1")
    assert shown.code == 2
    assert "ralph gc began to remove" in shown.err
    again = ralph("gc", "--yes", "--json")
    assert (again.code, again.json["runs"], again.json["bytes"]) == (1, [], 0)
    lock.unlink()
    assert ralph("gc", "--yes").code == 0
    assert remains(ralph, run) == []


@pytest.mark.parametrize("flags", [("--days", "-1"), ("--days", "x"), ("--keep", "1.5"), ("--keep", "-1"), ("more",)])
def test_bad_arguments_are_refused_in_one_line(ralph: Ralph, flags: tuple[str, ...]) -> None:
    told = ralph("gc", *flags)
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)


def test_a_project_without_runs_has_nothing_to_remove(ralph: Ralph) -> None:
    told = ralph("gc", "--yes")
    assert told.code == 0
    assert "Nothing is to be removed" in told.out


@pytest.mark.parametrize("argv", [("logs",), ("diff",), ("rewind", "0", "--yes"), ("branch", "1"), ("pr",)])
def test_other_verbs_say_that_the_files_are_gone(ralph: Ralph, argv: tuple[str, ...]) -> None:
    run = landed(ralph)
    assert ralph("gc", "--yes", *ALL).code == 0
    told = ralph(argv[0], run, *argv[1:])
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)
    assert "removed by ralph gc" in told.err
    shown = ralph("status", run)
    assert shown.code == 0
    assert "removed by ralph gc" in shown.out


def test_a_run_whose_files_are_gone_is_not_taken_up_again(ralph: Ralph) -> None:
    ralph.write({"file": "start\n"})
    ralph.commit()
    agent = ralph.script([write(file="half\n")])
    assert ralph("run", "-p", "x", "--agent", agent, "-m", "1", "--check", "false").code == 1
    run = ralph.runs()[0].id
    assert ralph("gc", "--yes", *ALL, "--unlanded").code == 0
    for flags in ((), ("--detach",)):
        told = ralph("run", "--resume", run, "-m", "2", *flags)
        assert (told.code, len(told.err.splitlines())) == (2, 1)
        assert "removed by ralph gc" in told.err


def test_the_bytes_of_leftovers_are_told(ralph: Ralph, temporary: Path) -> None:
    landed(ralph)
    place = temporary / "ralph-look-old"
    place.mkdir()
    (place / "file").write_text("x" * 5000)
    past = time.time() - 3 * 86_400
    os.utime(place, (past, past))
    told = ralph("gc", "--yes", "--json").json
    assert (told["leftovers"], told["bytes"]) == ([str(place)], 5000)
