"""`ralph run --worktree`."""

from __future__ import annotations

from pathlib import Path

from tests.ralph import Ralph, done, say, write

CHECK = ("--check", "test -f done")


def create_project(ralph: Ralph) -> None:
    ralph.write({"a.txt": "a\n"})
    ralph.commit()


def worktree_paths(ralph: Ralph) -> list[str]:
    """All work trees but the user's own."""
    output = ralph.git("worktree", "list", "--porcelain").splitlines()
    return [line.split(" ", 1)[1] for line in output if line.startswith("worktree ")][1:]


def test_the_work_is_on_a_branch_and_the_users_files_are_as_they_were(ralph: Ralph) -> None:
    create_project(ralph)
    ralph.write({"a.txt": "mine\n"})
    ended = ralph("run", "-p", "make it so", "--agent", ralph.script([write(done="yes"), done()]), *CHECK, "--worktree")
    run = ralph.runs()[0].id
    assert ended.code == 0, ended
    assert ralph.git("show", f"ralph/{run}:done") == "yes"
    assert ralph.git("show", f"ralph/{run}:a.txt") == "a\n", "what is not committed is not in the worktree"
    assert "what is not committed here is not in the worktree" in ended.err
    assert ralph.git("status", "--porcelain", "--", "a.txt", "done") == " M a.txt\n"
    assert worktree_paths(ralph) == []
    assert (ralph.run_folder(run) / "outcome.json").exists(), "what the run left for people is in the project"


def test_an_incomplete_run_keeps_its_worktree_and_is_resumed_there(ralph: Ralph) -> None:
    create_project(ralph)
    agent = ralph.script([write(half="x"), say("not yet")], [write(done="yes"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, *CHECK, "--worktree", "-m", "1")
    assert ended.code == 1
    (tree,) = worktree_paths(ralph)
    assert (Path(tree) / "half").exists()
    again = ralph("run", "--resume", "-m", "3")
    assert again.code == 0, again
    run = ralph.runs()[0].id
    assert ralph.git("show", f"ralph/{run}:done") == "yes"
    assert worktree_paths(ralph) == []


def test_setup_runs_in_the_worktree_before_the_agent(ralph: Ralph) -> None:
    create_project(ralph)
    ralph.settings(setup=["echo ready > prepared"])
    ralph.commit()
    agent = ralph.script([{"run": ["test", "-f", "prepared"]}, write(done="yes"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, *CHECK, "--worktree")
    assert ended.code == 0, ended
    assert ralph.outcome()["iterations"] == 1
    assert "prepared" not in ralph.state().history.latest.change.paths, "what setup wrote is no work of the agent's"


def test_a_failing_setup_command_begins_no_run(ralph: Ralph) -> None:
    create_project(ralph)
    ralph.settings(setup=["echo no such thing; exit 3"])
    ralph.commit()
    ended = ralph("run", "-p", "make it so", "--agent", ralph.script([done()]), *CHECK, "--worktree")
    assert ended.code == 2
    assert "setup command" in ended.err
    assert "exit 3" in ended.err
    log = Path(ended.err.strip().rpartition("log: ")[2])
    assert "no such thing" in log.read_text(encoding="utf-8"), "what it says is there to be read"
    assert worktree_paths(ralph) == []
    assert ralph.runs() == ()


def test_a_worktree_run_needs_a_git_repository(ralph: Ralph) -> None:
    ended = ralph("run", "-p", "make it so", "--agent", ralph.script([done()]), *CHECK, "--worktree")
    assert ended.code == 2
    assert "run git init" in ended.err


def test_a_worktree_run_can_be_detached(ralph: Ralph) -> None:
    create_project(ralph)
    agent = ralph.script([write(done="yes"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, *CHECK, "--worktree", "--detach")
    assert ended.code == 0, ended
    attached = ralph("attach")
    assert attached.code == 0, attached


def test_commits_that_an_agent_left_on_its_branch_keep_a_ref(ralph: Ralph) -> None:
    create_project(ralph)
    commit = "git -c user.name=a -c user.email=a@b commit -q"
    first, then = f"echo 1 > one; git add one; {commit} -m one", f"echo > done; git add done; {commit} -m two"
    script = f"{first}; git checkout -q -b other HEAD~1; {then}"
    agent = ralph.script([{"run": ["sh", "-ec", script]}, done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, *CHECK, "--worktree")
    run = ralph.runs()[0].id
    assert ended.code == 0, ended
    assert ralph.git("log", "-1", "--format=%s", f"ralph/{run}") == "two\n"
    assert ralph.git("show", f"refs/ralph/{run}/aside:one") == "1\n"


def test_work_can_be_landed_from_refs_after_the_agent_removed_the_worktrees_git(ralph: Ralph) -> None:
    create_project(ralph)
    agent = ralph.script([{"run": ["rm", ".git"]}, write(done="yes"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, *CHECK, "--worktree")
    run = ralph.runs()[0].id
    assert ended.code == 0, "as the record says"
    assert f"its refs have it: ralph land {run}" in ended.err
    assert ralph("land", run).code == 0
    assert ralph.git("show", "ralph/main:done") == "yes"
