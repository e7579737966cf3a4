"""Passed work goes to the user's SCM: exactly the run's, with the agent's message, and never at the user's cost."""

from __future__ import annotations

from ralphproof.record import ScmEnded
from tests.ralph import Ralph, done, say, write

GIT = {"scm": {"command": "git", "tasks": ["commit"]}}


def committed(ralph: Ralph) -> list[ScmEnded]:
    return [record for record in ralph.records() if isinstance(record, ScmEnded)]


def prepared(ralph: Ralph, **settings: object) -> None:
    ralph.write({"kept.txt": "as it was\n"})
    ralph.commit()
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")
    ralph.settings(**(GIT | settings))


def test_a_green_iteration_is_committed_with_the_agents_message(ralph: Ralph) -> None:
    prepared(ralph)
    agent = ralph.script([write(made__txt="x"), done()], message=[say("Add made.txt")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "test -f made.txt")
    assert ended.code == 0, ended.err
    assert ralph.git("log", "-1", "--format=%s").strip() == "Add made.txt"
    assert ralph.git("show", "--name-only", "--format=").split() == ["made.txt"]


def test_what_was_dirty_before_the_run_is_not_swept_in(ralph: Ralph) -> None:
    prepared(ralph)
    ralph.write({"kept.txt": "the user is at work here\n", "notes.txt": "the user's, untracked\n", "staged.txt": "s\n"})
    ralph.git("add", "staged.txt")
    agent = ralph.script([write(made__txt="x"), done()], message=[say("Add made.txt")])
    assert ralph("run", "-p", "go", "--agent", agent, "--check", "true").code == 0
    assert ralph.git("show", "--name-only", "--format=").split() == ["made.txt"]
    dirty = set(ralph.git("status", "--porcelain").splitlines())
    assert dirty == {" M kept.txt", "A  staged.txt", "?? .ralph/", "?? notes.txt"}


def test_red_work_is_not_committed_and_is_when_it_turns_green_untouched(ralph: Ralph) -> None:
    prepared(ralph)
    check = "n=$(cat ../n 2>/dev/null || echo 0); echo $((n+1)) > ../n; test $n -ge 1"
    agent = ralph.script([write(made__txt="x"), done()], [done()], message=[say("Add made.txt")])
    assert ralph("run", "-p", "go", "--agent", agent, "--check", check).code == 0
    assert [record.iteration for record in committed(ralph)] == [2]
    assert ralph.git("show", "--name-only", "--format=").split() == ["made.txt"]


def test_without_a_message_the_step_fails_clearly_and_the_work_stays(ralph: Ralph) -> None:
    prepared(ralph)
    agent = ralph.script([write(made__txt="x"), done()], message=[{"exit": 0}])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true")
    assert ended.code == 0
    assert "the agent gave no commit message" in ended.err
    assert committed(ralph)[0].committed.commit is None
    assert (ralph.root / "made.txt").read_text() == "x"


def test_files_that_the_message_call_changes_are_put_back_and_check_output_is_not(ralph: Ralph) -> None:
    prepared(ralph)
    meddle = [write(made__txt="meddled", extra__txt="x"), say("Add made.txt")]
    agent = ralph.script([write(made__txt="x"), done()], message=meddle)
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "echo r > report.xml")
    assert (ralph.root / "made.txt").read_text() == "x"
    assert not (ralph.root / "extra.txt").exists()
    assert (ralph.root / "report.xml").read_text() == "r\n"
    assert "put back: extra.txt, made.txt" in ended.err
    assert ralph.git("show", "HEAD:made.txt") == "x"


def test_the_users_commit_hooks_run_and_one_that_the_agent_changed_is_refused(ralph: Ralph) -> None:
    prepared(ralph)
    hook = ralph.root / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\ntouch ../hook-ran\n")
    hook.chmod(0o755)
    agent = ralph.script([write(made__txt="x"), done()], message=[say("Add made.txt")])
    assert ralph("run", "-p", "go", "--agent", agent, "--check", "true").code == 0
    assert (ralph.folder / "hook-ran").exists()
    evil = {"write": {".git/hooks/pre-commit": "#!/bin/sh\ntouch ../evil-ran\n", "more.txt": "y"}}
    ended = ralph("run", "-p", "go", "--agent", ralph.script([evil, done()]), "--check", "true")
    assert not (ralph.folder / "evil-ran").exists()
    assert committed(ralph)[0].committed.error
    assert "hook" in ended.err


def test_our_own_commit_is_no_progress_of_the_agent(ralph: Ralph) -> None:
    prepared(ralph, limits={"stallIterations": 2, "pauseMilliseconds": 0})
    agent = ralph.script([write(made__txt="x"), say("working")], [say("idle")], message=[say("Add made.txt")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true", "-m", "9")
    assert ralph.outcome()["reason"] == "STALL", ended.out
    assert len(ralph.state().history.iterations) == 3
