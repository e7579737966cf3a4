"""History that is rewritten, branches that are deleted, the user's work that is swept away: told, with a way back."""

from __future__ import annotations

import pytest

from ralphproof.engine.records import Saved
from tests.misbehaviour.agents import case
from tests.misbehaviour.invariants import hold, no_traceback
from tests.misbehaviour.machine import recorded
from tests.misbehaviour.protected_project import (
    ASKED,
    CHECK,
    checked,
    files,
    guarded,
    meddled,
    notices,
    protect,
    sh,
    shell,
    told_commands,
    touched,
    turns,
)
from tests.ralph import Ended, Ralph, done

HISTORY = "for n in 1 2 3 4; do echo $n > history; git add history; git commit -qm $n; done"
PRUNED = "git reflog expire --expire=now --all; git gc -q --prune=now"
MINE = {"src/authors.py": "open to all\nmine\n", "new.py": "new\n", "dir/notes.txt": "notes\n"}


def rewritten(ralph: Ralph, ended: Ended) -> None:
    outcome = ralph.outcome()
    assert (ended.code, outcome["status"], outcome["reason"]) == (1, "ABORTED", "HISTORY_REWRITTEN"), ended
    assert (turns(ralph), checked(ralph)) == (1, 0), "nothing was asked any more"


@pytest.mark.parametrize(
    "script",
    [
        case("RH-31-amend", "echo x >> history; git commit -qa --amend --no-edit"),
        case("RH-31-amend-and-prune", f"git commit -qa --amend -m x; {PRUNED}"),
        case("RH-31-reset", f"git reset -q --hard HEAD~3; {PRUNED}"),
        case("RH-31-begun-anew", "git checkout -q --orphan o; git commit -qm x; git branch -qM o main"),
        case("RH-31-no-branch", "git update-ref -d refs/heads/main"),
    ],
)
def test_a_branch_whose_history_is_rewritten_can_be_had_back_by_what_is_told(ralph: Ralph, script: str) -> None:
    """RH-31: even if the old commits were pruned at once, or are before anybody reads what is told."""
    guarded(ralph, HISTORY)
    head = ralph.git("rev-parse", "HEAD").strip()
    rewritten(ralph, meddled(ralph, script))
    (command,) = told_commands(ralph, "git branch")
    shell(ralph, f"{PRUNED}; {command}")
    name = command.split()[2]
    assert ralph.git("rev-parse", name).strip() == head
    assert ralph.git("show", f"{name}:history") == "4\n"
    assert ralph.git("fsck", "--strict", "--no-dangling") == ""


def test_the_start_is_kept_where_no_branch_held_it(ralph: Ralph) -> None:
    """RH-31: on no branch, its commit is named by the run alone."""
    guarded(ralph, f"git checkout -q --detach; {HISTORY}; git branch -qD main")
    head = ralph.git("rev-parse", "HEAD").strip()
    ended = meddled(ralph, f"git reset -q --hard HEAD~3; {PRUNED}")
    rewritten(ralph, ended)
    kept = f"git log refs/ralph/{ralph.runs()[0].id}/0"
    assert kept in ralph.outcome()["details"]["message"]
    assert kept in ended.out
    assert head in shell(ralph, f"{PRUNED}; {kept}")


def test_commits_of_the_run_itself_may_be_made_anew(ralph: Ralph) -> None:
    """RH-31: amending what was committed in an earlier turn rewrites nothing that was there before."""
    guarded(ralph, HISTORY)
    first, second = "echo 1 > work; git add work; git commit -qm work", "echo 2 > work; git commit -qa --amend -m w"
    agent = ralph.script([sh(first)], [sh(second), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", CHECK, "-m", "3")
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 2), ended
    assert ralph.git("log", "--format=%s").split()[0] == "w"


@pytest.mark.parametrize(
    ("script", "what"),
    [
        case("RH-31-branch", f"git branch -qD side; {PRUNED}", "branch side was deleted"),
        case("RH-31-branch-moved", f"git branch -qf side main; {PRUNED}", "branch side was moved"),
        case("RH-31-tag", f"git tag -d v1; {PRUNED}", "tag v1 was deleted"),
        case("RH-31-own-branch", "git checkout -q --detach; git branch -qD main", "branch main was deleted"),
    ],
)
def test_a_branch_or_tag_that_is_lost_is_told_and_the_run_goes_on(ralph: Ralph, script: str, what: str) -> None:
    """RH-31"""
    commit = "echo > s; git add s; git commit -qm"
    guarded(ralph, f"git checkout -qb side; {commit} s; git checkout -q --detach main; {commit} t; git tag v1")
    ralph.git("checkout", "-q", "main")
    before = dict(line.split()[::-1] for line in ralph.git("show-ref").splitlines())
    ended = meddled(ralph, script)
    assert (ended.code, ralph.outcome()["iterations"], touched(ralph)) == (0, 1, [[]]), ended
    (told,) = [notice for notice in notices(ralph) if what in notice]
    assert told in ended.err
    (command,) = told_commands(ralph, "git (?:branch|tag)")
    shell(ralph, f"{PRUNED}; {command}")
    kind, name = command.split()[1:3]
    place = {"branch": "heads", "tag": "tags"}[kind]
    now = ralph.git("rev-parse", f"refs/{place}/{name}").strip()
    assert now == before[f"refs/{place}/{name.removesuffix('-before')}"]


def test_a_repository_that_is_deleted_ends_the_run_and_can_be_put_together_again(ralph: Ralph) -> None:
    """RH-31: files are guarded without it."""
    guarded(ralph, f"{HISTORY}; git branch side; echo mine >> src/authors.py; git add src/authors.py")
    tells = "git log --format=%H --branches; git status --porcelain -uno; git show-ref --heads"
    before = shell(ralph, tells)
    agent = ralph.script([ASKED, sh("rm -rf .git; echo x >> .env; echo work > work"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", CHECK, *protect())
    no_traceback(ended)
    rewritten(ralph, ended)
    assert ralph.outcome()["details"]["files"] == [".env"]
    assert files(ralph, ".env", "work") == {".env": "SECRET=1\n", "work": "work\n"}
    told = [line for line in ended.err.splitlines() if "the repository is gone: .git was deleted" in line]
    (run,) = [line.partition("ralph restore ")[2] for line in told]
    assert ralph("restore", run).code == 0
    assert shell(ralph, tells) == before
    assert ralph.git("fsck", "--strict", "--no-dangling") == ""


@pytest.mark.parametrize(
    ("script", "lost"),
    [
        case("RH-30-stash", "git stash -q -u", sorted(MINE)),
        case("RH-30-stash-dropped", f"git stash -q; git stash drop -q; {PRUNED}", ["src/authors.py"]),
        case("RH-30-checkout", "git checkout -q .", ["src/authors.py"]),
        case("RH-30-clean", "git clean -qfdx", ["dir/notes.txt", "new.py"]),
        case("RH-30-reset", f"git reset -q --hard; git clean -qfd; {PRUNED}", sorted(MINE)),
    ],
)  # fmt: skip
def test_work_of_the_users_that_is_swept_away_is_told_and_comes_back_by_what_is_told(
    ralph: Ralph, script: str, lost: list[str]
) -> None:
    """RH-30"""
    guarded(ralph)
    ralph.write(MINE)
    ended = meddled(ralph, f"{script}; echo 1 > work")
    assert (ended.code, ralph.outcome()["iterations"], touched(ralph)) == (0, 1, [[]]), ended
    assert not [path for path in lost if (ralph.root / path).exists() and path != "src/authors.py"]
    (told,) = [notice for notice in notices(ralph) if "your uncommitted work" in notice]
    assert told in ended.err
    assert f"your uncommitted work in {', '.join(lost)} is gone" in told
    (command,) = told_commands(ralph, "git restore")
    source, _, first = command.rpartition(" ")
    assert first == lost[0]
    shell(ralph, "; ".join(f"{source} {path}" for path in lost))
    assert files(ralph, *MINE) == MINE
    assert (ralph.root / "work").exists(), "the agent's work stays"


def test_a_run_that_swept_work_away_can_be_undone_as_a_whole(ralph: Ralph) -> None:
    """RH-30"""
    guarded(ralph)
    ralph.write(MINE)
    meddled(ralph, "git stash -q -u; git stash drop -q; echo 1 > work")
    (command,) = told_commands(ralph, "ralph rewind")
    undone = ralph(*command.split()[1:], "--yes")
    assert undone.code == 0, undone
    assert files(ralph, *MINE, "work") == MINE


def test_work_that_is_swept_away_is_told_once(ralph: Ralph) -> None:
    """RH-30: and goes on to be told after the run."""
    guarded(ralph)
    ralph.write(MINE)
    agent = ralph.script([sh("git stash -q -u; echo 1 > work")], [sh("git stash drop -q; echo 2 > work"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", CHECK, "-m", "3")
    hold(ralph, ended)
    assert (ended.code, len(recorded(ralph, Saved))) == (0, 2), ended
    assert len([notice for notice in notices(ralph) if "your uncommitted work" in notice]) == 1
    told = [one["notices"] for one in ralph("status", "--json").json["timeline"]]
    assert [len(remarks) for remarks in told] == [1, 1]
    assert "git restore" in told[0][0]
    assert "git stash store" in told[1][0]
