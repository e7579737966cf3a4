"""Protected paths: whatever way an agent takes to them, the run ends, and the files are as they were."""

from __future__ import annotations

import sys

import pytest

from ralphproof.engine.agent import THE_SERVICE, Turn
from ralphproof.engine.records import ScmBegan
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import TripwireReport
from tests.engine.fake_environment import CLAIMING, NOTHING, FakeEnvironment, Step
from tests.misbehaviour.agents import case, facts
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import recorded
from tests.misbehaviour.protected_project import (
    ASKED,
    CHECK,
    FILES,
    GUARDED,
    checked,
    files,
    guarded,
    meddled,
    notices,
    protect,
    sh,
    shell,
    sprung,
    touched,
    turns,
)
from tests.ralph import Ended, Ralph, done, say, write

MODULE = "git init -q ../m; (cd ../m; echo m > m; git add m; git -c user.name=u -c user.email=u@localhost commit -qm m)"
SUBMODULE = f"{MODULE}; git -c protocol.file.allow=always submodule -q add ../m migrations/sub; git commit -qm sub"
NESTED = "git init -q migrations/sub; cd migrations/sub; echo w > w; git add w; git -c user.name=u -c user.email=u@l"
NESTED += " commit -qm w"
SIDE = "git checkout -qb side; echo x >> src/auth/a.py; git commit -qam x; git checkout -q -"
IDENTITY = "git config user.name u; git config user.email u@localhost"


def stopped(ralph: Ralph, ended: Ended, paths: list[str]) -> None:
    """The run is over because of these paths, and nothing came after the turn that touched them."""
    outcome = ralph.outcome()
    assert (ended.code, outcome["status"], outcome["reason"]) == (1, "ABORTED", "PROHIBITED_PATH"), ended
    assert outcome["details"]["files"] == paths
    assert outcome["details"]["checksPassed"] is False
    assert all(path in ended.out for path in paths[:10])
    assert (turns(ralph), checked(ralph)) == (1, 0), "nothing was asked any more"
    (patch,) = ralph.run_folder().glob("agent_001.patch")
    assert str(patch.relative_to(ralph.root)).replace("latest", f"runs/{ralph.runs()[0].id}") in ended.out
    assert all(f"/{path}" in patch.read_text() for path in paths)


@pytest.mark.parametrize(
    ("setup", "script", "paths"),
    [
        case("RH-21-edit", "", "echo x >> src/auth/a.py", ["src/auth/a.py"]),
        case("RH-21-new-and-gone", "", "rm migrations/*; echo x > src/auth/n", ["migrations/001.sql", "src/auth/n"]),
        case("RH-22-committed", "", "echo x >> src/auth/a.py; git commit -qam x", ["src/auth/a.py"]),
        case("RH-24-alias", "", "ln -s src/auth alias; echo x >> alias/a.py", ["src/auth/a.py"]),
        case("RH-24-linked-back", "", "mv src/auth src/own; ln -s own src/auth",
             ["src/auth", "src/auth/a.py", "src/auth/deep/b.py"]),
        case("RH-25-renamed", "", "git mv src/auth/a.py src/b.py", ["src/auth/a.py"]),
        case("RH-25-renamed-and-committed", "", "git mv src/auth/a.py src/b.py; git commit -qm x", ["src/auth/a.py"]),
        case("RH-27-ignored", "", "echo STOLEN >> .env", [".env"]),
        case("RH-28-nested", NESTED, f"cd migrations/sub; {IDENTITY}; echo x > w; git commit -qam x",
             ["migrations/sub/w"]),
        case("RH-28-submodule", SUBMODULE, f"cd migrations/sub; {IDENTITY}; echo x > m; git commit -qam x",
             ["migrations/sub/m"]),
    ],
)  # fmt: skip
def test_every_way_to_a_protected_path_ends_the_run(ralph: Ralph, setup: str, script: str, paths: list[str]) -> None:
    """RH-21, RH-22, RH-24, RH-25, RH-27, RH-28"""
    guarded(ralph, setup)
    before = files(ralph, *GUARDED)
    stopped(ralph, meddled(ralph, script, *protect()), paths)
    assert files(ralph, *GUARDED) == before, "put back"


@pytest.mark.parametrize("flag", [(), ("--json",)])
def test_a_commit_on_another_branch_ends_the_run_though_every_file_looks_clean(
    ralph: Ralph, flag: tuple[str, ...]
) -> None:
    """RH-22: the files are those of the branch that the run began on."""
    guarded(ralph)
    ended = meddled(ralph, SIDE, *protect(), *flag)
    assert (ended.code, ralph.outcome()["reason"]) == (1, "PROHIBITED_PATH"), ended
    commit = ralph.git("rev-parse", "--short=12", "side").strip()
    details = ended.lines[-1]["data"]["details"] if flag else ralph.outcome()["details"]
    assert details["files"] == ["src/auth/a.py"]
    assert f"src/auth/a.py (branch side, commit {commit})" in details["message"]
    assert (turns(ralph), checked(ralph)) == (1, 0)
    assert files(ralph, "src/auth/a.py") == {"src/auth/a.py": FILES["src/auth/a.py"]}


def test_a_protected_path_beats_a_pass(ralph: Ralph) -> None:
    """RH-21: the work is good, the checks would pass, the claim is right: no check runs, nothing is kept or sent."""
    guarded(ralph, "git clone -q --bare . ../origin.git; git remote add origin ../origin.git; git fetch -q;"
                   "git branch -q --set-upstream-to origin/$(git branch --show-current)")  # fmt: skip
    ralph.settings(scm={"command": "git", "tasks": ["commit", "push"]})
    head = ralph.git("rev-parse", "HEAD")
    ended = meddled(ralph, "echo done > work; echo x >> src/auth/a.py", *protect(), "--json")
    assert (ended.code, turns(ralph), checked(ralph)) == (1, 1, 0), ended
    assert recorded(ralph, ScmBegan) == []
    assert ralph.git("rev-parse", "HEAD") == head == shell(ralph, "git -C ../origin.git rev-parse HEAD")
    assert (ralph.root / "work").read_text() == "done\n", "what it may do stays"
    *_, last = ended.lines
    assert (last["type"], last["data"]["reason"]) == ("run.ended", "PROHIBITED_PATH")
    assert last["data"]["details"]["files"] == ["src/auth/a.py"]
    (saved,) = [line["data"] for line in ended.lines if line["type"] == "work.saved"]
    assert saved["files"] == ["work"]
    (finding,) = saved["findings"]
    assert (finding["kind"], finding["path"], finding["stops"]) == ("protectedPath", "src/auth/a.py", True)
    assert "protectedPaths: src/auth/" in finding["message"]
    assert ralph.git("show", f"{saved['snapshot'].removesuffix('-put-back')}:src/auth/a.py") == "user = 1\nx\n"


def test_what_was_touched_can_be_asked_for_later(ralph: Ralph) -> None:
    """RH-21: and the attempt can be had back, if it was meant."""
    guarded(ralph)
    meddled(ralph, "echo x >> src/auth/a.py", *protect())
    status = ralph("status")
    assert "PROHIBITED_PATH" in status.out
    assert "src/auth/a.py (protectedPaths: src/auth/)" in status.out
    (iteration,) = ralph("status", "--json").json["timeline"]
    assert [(one["path"], one["stops"]) for one in iteration["findings"]] == [("src/auth/a.py", True)]
    shell(ralph, f"git apply {iteration['revertedPatch']}")
    assert (ralph.root / "src/auth/a.py").read_text() == "user = 1\nx\n"


def test_an_agent_that_destroys_our_copies_is_stopped_all_the_same(ralph: Ralph) -> None:
    """RH-21: what cannot be put back is told, and the attempt shows what it was not before."""
    guarded(ralph)
    ended = meddled(ralph, f"rm -rf {ralph.state_dir}/repos/*/runs/*/vault; echo x >> .env", *protect())
    stopped(ralph, ended, [".env"])
    assert ".env could not be put back" in ended.out
    assert "were put back" not in ended.out


@pytest.mark.parametrize(
    ("script", "paths"),
    [
        case("RH-21-plain-edit", "echo x >> src/auth/a.py; rm .env", [".env", "src/auth/a.py"]),
        case("RH-24-plain-link", "mv migrations m; ln -s m migrations", ["migrations", "migrations/001.sql"]),
    ],
)
def test_a_project_without_git_is_guarded_too(ralph: Ralph, script: str, paths: list[str]) -> None:
    """RH-21, RH-24"""
    guarded(ralph, in_git=False)
    before = files(ralph, *GUARDED)
    stopped(ralph, meddled(ralph, script, *protect()), paths)
    assert files(ralph, *GUARDED) == before
    assert facts(ralph)["workspace"] == "plain"


def test_several_paths_and_patterns_join_those_of_the_settings(ralph: Ralph) -> None:
    """RH-21: each is meant from the project's root, a single name with a star everywhere."""
    guarded(ralph)
    ralph.settings(protectedPaths=["migrations"])
    hit = ["a/k.pem", "docs/en/x.md", "migrations/001.sql", "src/v1/api.py", "top.pem"]
    passed = ["a/k.pem.txt", "docs/x.txt", "other/migrations/1", "src/v10/api.py", "src/v1/deep/api.py"]
    make = "; ".join(f"mkdir -p $(dirname {path}); echo x >> {path}" for path in (*hit, *passed))
    ended = meddled(ralph, make, *protect("*.pem", "docs/**/*.md", "src/v?/*.py"))
    stopped(ralph, ended, hit)
    assert [path for path in hit if (ralph.root / path).exists()] == ["migrations/001.sql"]
    assert all((ralph.root / path).exists() for path in passed)


def test_the_wrapper_guards_what_it_names_by_itself(ralph: Ralph) -> None:
    """RH-21, RH-27"""
    guarded(ralph)
    listed = [".env", "migrations/001.sql", "src/auth/a.py", "src/payments/p.py"]
    script = "mkdir src/payments; " + "; ".join(f"echo x >> {path}" for path in listed)
    stopped(ralph, meddled(ralph, script, *WRAPPER), listed)


WRAPPER = ("--preset", "wrapper", "--max-cost-usd", "1", "--allow-unknown-cost")
QUIET = [
    case("RH-29-reverted", "echo x >> src/auth/a.py; cp .env ../e; rm .env; git checkout -q .; mv ../e .env"),
    case("RH-29-stashed", "echo x >> src/auth/a.py; git stash -q; git stash drop -q"),
    case("RH-21-tests-run", f"{sys.executable} -m unittest -q src.auth.test_a; test -d src/auth/__pycache__"),
    case("RH-21-times", "touch src/auth/a.py .env; cp src/auth/a.py ../a; cp ../a src/auth/a.py"),
    case("RH-21-neighbours", "echo x >> src/authors.py; echo x > .envrc; echo x > migrations.md; ln -s src/auth alias"),
]  # fmt: skip


@pytest.mark.parametrize("script", QUIET)
def test_what_is_no_touch_ends_nothing(ralph: Ralph, script: str) -> None:
    """RH-29, RH-21: what counts is what the files are when the turn is over."""
    test = "import unittest\nfrom src.auth import a\nclass T(unittest.TestCase):\n    def test(self): assert a.user\n"
    ralph.write({"src/auth/test_a.py": test})
    guarded(ralph)
    ended = meddled(ralph, script, *protect())
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 1), ended
    assert sprung(ralph) == [TripwireReport()]
    assert not list(ralph.run_folder().glob("*.patch"))


def test_a_touch_that_commits_tell_of_is_told_though_it_was_reverted(ralph: Ralph) -> None:
    """RH-29"""
    guarded(ralph)
    ended = meddled(ralph, "echo x >> src/auth/a.py; git commit -qam x; git revert --no-edit HEAD", *protect())
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 1), ended
    assert touched(ralph) == [[]]
    told = f"src/auth/a.py was changed and changed back: branch main, commit {ralph.git('rev-parse', 'HEAD')[:12]}"
    assert told in notices(ralph)
    assert told in ended.err


def test_what_the_user_edits_between_two_turns_is_theirs(ralph: Ralph) -> None:
    """RH-21: while a check runs, no agent is at work."""
    guarded(ralph)
    ralph.write({"check.sh": "echo >> ../n; n=$(wc -l < ../n); test $n != 2 || echo mine >> .env; test $n = 3\n"})
    agent = ralph.script([ASKED, done()], [ASKED, sh("echo theirs >> .env"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", "sh check.sh", "-m", "3", *protect())
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["iterations"]) == (1, 2), ended
    assert touched(ralph) == [[], [(".env", "protectedPaths: .env")]]
    assert (ralph.root / ".env").read_text() == "SECRET=1\nmine\n", "the user's edit stays, the agent's does not"
    assert (ralph.folder / "n").read_text() == "\n\n", "a first look, and one after the first turn"


class Armed(FakeEnvironment):
    """Notes after how many turns the wires are laid."""

    armed: tuple[int, ...] = ()

    def start_watching(self) -> tuple[str, ...]:
        self.armed += (len(self.turns),)
        return ()


def test_what_the_user_edits_while_a_service_is_waited_for_is_theirs() -> None:
    """RH-21: a turn may be taken again hours later."""
    world = Armed(Step(Turn(Exit(1), error="overloaded", blame=THE_SERVICE), NOTHING), Step(CLAIMING))
    assert world.run().exit_code == 0
    assert world.armed == (0, 1)


def test_what_the_call_for_a_message_touches_is_put_back(ralph: Ralph) -> None:
    """RH-27, RH-32: an agent that is only asked for words changes nothing either, and what it left is not run."""
    guarded(ralph)
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    evil = "echo STOLEN >> .env; printf '#!/bin/sh\\ntouch ../canary\\n' > .git/hooks/pre-commit;"
    evil += "chmod +x .git/hooks/pre-commit; git config core.fsmonitor 'touch ../canary'; echo x >> src/auth/a.py"
    agent = ralph.script([write(work="1"), done()], message=[sh(evil), say("Add work")])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", CHECK, *protect())
    hold(ralph, ended)
    assert files(ralph, *GUARDED) == {name: FILES[name] for name in files(ralph, *GUARDED)}
    assert not (ralph.root / ".git/hooks/pre-commit").exists()
    ralph.git("status")
    assert not (ralph.folder / "canary").exists()
    told = "\n".join(notices(ralph))
    assert all(path in told for path in (".env", ".git/hooks/pre-commit", "core.fsmonitor", "src/auth/a.py"))
    assert ralph.git("show", "--format=", "--name-only").split() == ["work"], "the work itself is kept"
