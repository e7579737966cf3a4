"""Commits of passed work: exactly the run's changes, with the agent's message."""

from __future__ import annotations

import json

import pytest

from ralphproof.engine.records import Saved, ScmEnded
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


def hook(ralph: Ralph, name: str, script: str) -> None:
    path = ralph.root / ".git" / "hooks" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_green_iteration_is_committed_with_the_agents_message(ralph: Ralph) -> None:
    """SC-12: with the files that are new."""
    prepared(ralph)
    agent = ralph.script([write(made__txt="x"), done()], message=[say("Add made.txt")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "test -f made.txt")
    assert ended.code == 0, ended.err
    assert ralph.git("log", "-1", "--format=%s").strip() == "Add made.txt"
    assert ralph.git("show", "--name-only", "--format=").split() == ["made.txt"]


def test_what_was_dirty_before_the_run_is_not_swept_in(ralph: Ralph) -> None:
    """SC-13: what the user had begun is theirs."""
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
    check = "n=$(cat ../n 2>/dev/null || echo 0); echo $((n+1)) > ../n; test $n -ge 2"  # red before, red once more
    agent = ralph.script([write(made__txt="x"), done()], [done()], message=[say("Add made.txt")])
    assert ralph("run", "-p", "go", "--agent", agent, "--check", check).code == 0
    assert [record.iteration for record in committed(ralph)] == [2]
    assert ralph.git("show", "--name-only", "--format=").split() == ["made.txt"]


def test_without_a_message_the_step_fails_clearly_and_the_work_stays(ralph: Ralph) -> None:
    """SC-09: the run's own status is what it was."""
    prepared(ralph)
    agent = ralph.script([write(made__txt="x"), done()], message=[{"exit": 0}])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true")
    assert ended.code == 0
    assert "the agent gave no commit message" in ended.err
    assert "the agent gave no commit message" in ended.out
    assert committed(ralph)[0].committed.commit is None
    assert (ralph.root / "made.txt").read_text() == "x"


def test_files_that_the_message_call_changes_are_put_back_and_check_output_is_not(ralph: Ralph) -> None:
    prepared(ralph)
    meddle = [write(made__txt="meddled", extra__txt="x"), say("Add made.txt")]
    agent = ralph.script([write(made__txt="x"), done()], message=meddle)
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "cp made.txt report.xml; true")
    assert (ralph.root / "made.txt").read_text() == "x"
    assert not (ralph.root / "extra.txt").exists()
    assert (ralph.root / "report.xml").read_text() == "x"
    assert "put back: extra.txt, made.txt" in ended.err
    assert ralph.git("show", "HEAD:made.txt") == "x"


def test_the_users_commit_hooks_run_and_one_that_the_agent_changed_never_does(ralph: Ralph) -> None:
    prepared(ralph)
    hook(ralph, "pre-commit", "touch ../hook-ran")
    agent = ralph.script([write(made__txt="x"), done()], message=[say("Add made.txt")])
    assert ralph("run", "-p", "go", "--agent", agent, "--check", "true").code == 0
    (ralph.folder / "hook-ran").unlink()
    evil = {"write": {".git/hooks/pre-commit": "#!/bin/sh\ntouch ../evil-ran\n", "more.txt": "y"}}
    ended = ralph("run", "-p", "go", "--agent", ralph.script([evil, done()], [done()]), "--check", "true")
    assert "not the agent's to change: .git/hooks/pre-commit (the hooks of git); put back" in ended.err
    assert committed(ralph)[0].committed.commit == ralph.git("rev-parse", "HEAD").strip()
    assert (ralph.folder / "hook-ran").exists(), "the user's own is back before anything is committed"
    assert not (ralph.folder / "evil-ran").exists()


def test_without_a_sandbox_a_commit_hook_does_not_keep_a_push_back(ralph: Ralph) -> None:
    prepared(ralph, scm={"command": "git", "tasks": ["commit", "push"]})
    ralph.git("init", "-q", "--bare", "../remote.git")
    ralph.git("remote", "add", "origin", "../remote.git")
    ralph.git("push", "-qu", "origin", "main")
    hook(ralph, "pre-commit", "true")
    agent = ralph.script([write(made__txt="x"), done()], message=[say("Add made.txt")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true")
    assert (ended.code, ralph.outcome()["concerns"]) == (0, [])
    assert ralph.git("-C", "../remote.git", "log", "-1", "--format=%s", "main").strip() == "Add made.txt"


def test_the_committer_may_come_from_the_environment(ralph: Ralph) -> None:
    ralph.commit()
    ralph.settings(**GIT)
    roles = {"AUTHOR": "Ann", "COMMITTER": "Cem"}
    who = {f"GIT_{role}_NAME": name for role, name in roles.items()}
    who |= {f"GIT_{role}_EMAIL": f"{name}@example.org" for role, name in roles.items()}
    ralph.git("config", "user.useConfigOnly", "true")
    agent = ralph.script([write(made__txt="x"), done()], message=[say("Add made.txt")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true", env=who)
    assert (ended.code, ralph.outcome()["concerns"]) == (0, [])
    assert ralph.git("log", "-1", "--format=%an %ae %cn").strip() == "Ann Ann@example.org Cem"


def test_a_path_in_the_scm_command_is_relative_to_the_project(ralph: Ralph) -> None:
    """A program of the project that the agent changed does not run."""
    prepared(ralph, scm={"command": "tools/keep", "tasks": ["commit"]})
    ralph.write({"tools/keep": '#!/bin/sh\nprintf %s "$*" > ../kept\n', "src/f": ""})
    (ralph.root / "tools/keep").chmod(0o755)
    agent = ralph.script([write(made__txt="x"), done()], message=[say("Add made.txt")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true", cwd=ralph.root / "src")
    assert (ended.code, ralph.outcome()["concerns"]) == (0, []), ended.err
    assert (ralph.folder / "kept").read_text() == "commit -m Add made.txt"
    evil = {"write": {"tools/keep": "#!/bin/sh\ntouch ../evil-ran\n"}}
    ralph("run", "-p", "go", "--agent", ralph.script([evil, done()], message=[say("m")]), "--check", "true")
    assert ralph.outcome()["concerns"] == [
        f"scm: refused, because this changed during the run: program {ralph.root}/tools/keep"
    ]
    assert not (ralph.folder / "evil-ran").exists()
    ralph.settings(scm={"command": "tools/none", "tasks": ["commit"]})
    refused = ralph("run", "-p", "go", "--agent", agent, "--check", "true")
    assert refused.code == 2
    assert f"scm.command: {ralph.root}/tools/none is no program" in refused.err


def test_a_commit_by_ralph_is_not_progress(ralph: Ralph) -> None:
    prepared(ralph, limits={"stallIterations": 2, "pauseMilliseconds": 0})
    agent = ralph.script([write(made__txt="x"), say("working")], [say("idle")], message=[say("Add made.txt")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true", "-m", "9")
    assert ralph.outcome()["reason"] == "STALL", ended.out
    assert len(ralph.state().history.iterations) == 3


def test_a_commit_that_failed_is_a_concern_wherever_the_outcome_is_told(ralph: Ralph) -> None:
    prepared(ralph)
    hook(ralph, "pre-commit", "echo no luck >&2; exit 1")
    agent = ralph.script([write(made__txt="x"), done()], message=[say("Add made.txt")])
    ended = ralph("run", "-q", "-p", "go", "--agent", agent, "--check", "true")
    concern = "scm: git commit: no luck"
    assert (ended.code, ended.err) == (0, "")
    assert f"concern: {concern}\n" in ended.out
    assert ralph.outcome()["concerns"] == [concern]
    assert f"concern: {concern}\n" in ralph("status").out
    told = ralph("run", "--json", "-p", "go", "--agent", ralph.script([write(more="y"), done()]), "--check", "true")
    assert json.loads(told.out.splitlines()[-1])["data"]["concerns"] == [concern]


def test_a_later_successful_commit_clears_the_concern(ralph: Ralph) -> None:
    prepared(ralph)
    hook(ralph, "pre-commit", "test -e ../refused || { touch ../refused; exit 1; }")
    agent = ralph.script([write(made__txt="x"), say("working")], [done()], message=[say("Add made.txt")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true")
    assert [bool(record.committed.error) for record in committed(ralph)] == [True, False]
    assert ralph.outcome()["concerns"] == [], ended


def test_what_a_commit_leaves_out_is_named(ralph: Ralph) -> None:
    prepared(ralph)
    ralph.write({"kept.txt": "the user is at work here\n"})
    agent = ralph.script([write(made__txt="x", kept__txt="so is the agent"), done()], message=[say("Add made.txt")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true")
    assert ralph.git("show", "--name-only", "--format=").split() == ["made.txt"]
    (line,) = [line for line in ended.err.splitlines() if "kept in commit" in line]
    assert line.endswith("; left out, because it was not the run's alone: kept.txt")
    assert ralph.outcome()["concerns"] == ["scm: left out, because it was not the run's alone: kept.txt"]


@pytest.mark.parametrize(("reply", "subject"), [("Fix it", "Fix it"), ("", "a state of the project")])
def test_an_agent_that_echoes_its_prompt_does_not_commit_under_it(ralph: Ralph, reply: str, subject: str) -> None:
    prepared(ralph)
    ralph.program(
        "echoing",
        f"""prompt=$(cat); echo "$prompt"
        case $prompt in Provide*) echo "{reply}";; *) echo x > made.txt; echo '<response>DONE</response>';; esac""",
    )
    assert ralph("run", "-p", "go", "--agent", "echoing", "--check", "true").code == 0
    assert ralph.git("log", "-1", "--format=%s").strip() == subject


def test_an_empty_reply_after_a_commit_by_ralph_is_not_progress(ralph: Ralph) -> None:
    prepared(ralph)
    ralph.program(
        "silent",
        """case $(cat) in Provide*) echo "Add made.txt"; exit;; esac
        n=$(cat ../n 2>/dev/null || echo 0); echo $((n+1)) > ../n
        case $n in 0) echo x > made.txt; echo working;; 1|2) ;; *) echo '<response>DONE</response>';; esac""",
    )
    ended = ralph("run", "-p", "go", "--agent", "silent", "--check", "true")
    assert ended.code == 0, ended
    saved = [record for record in ralph.records() if isinstance(record, Saved)]
    assert [(record.iteration, record.turn) for record in saved] == [(1, 1), (2, 1), (2, 2), (2, 3)]
    assert [record.change.is_empty for record in saved] == [False, True, True, True]


def test_a_commit_by_another_program_is_not_progress(ralph: Ralph) -> None:
    prepared(ralph, scm={"command": "saver -q", "tasks": ["commit"]})
    ralph.program("saver", 'git add -A . && git commit -q "$3" "$4"')
    agent = ralph.script([write(made__txt="x"), say("working")], [done()], message=[say("Add made.txt")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true")
    assert ended.code == 0, ended
    assert committed(ralph)[0].committed.commit == ralph.git("rev-parse", "HEAD").strip()
    assert [record.change.is_empty for record in ralph.records() if isinstance(record, Saved)] == [False, True]


def test_the_reply_that_holds_the_message_is_not_taken_for_work(ralph: Ralph) -> None:
    prepared(ralph)
    agent = ralph.script([write(made__txt="x"), done()], message=[say("Add made.txt")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true")
    (line,) = [line for line in ended.err.splitlines() if "Add made.txt" in line]
    assert "kept in commit" in line


def test_a_message_that_costs_too_much_beats_the_pass(ralph: Ralph) -> None:
    prepared(ralph)
    agent = ralph.script([write(made__txt="x"), {"cost": 0.5}, done()], message=[{"cost": 0.75}, say("Add made.txt")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true", "--max-cost-usd", "1")
    outcome = ralph.outcome()
    assert (ended.code, outcome["reason"], outcome["details"]["checksPassed"]) == (1, "COST_LIMIT", True)
