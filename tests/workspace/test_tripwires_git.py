"""What an agent does inside `.git`: settings that execute something, branches, commits, and the user's own work."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralphproof.base.errors import HarnessFailed
from ralphproof.base.programs import ProgramResult, run_program
from ralphproof.base.value import replace
from ralphproof.engine.workspace import TripwireReport
from ralphproof.workspace import git_objects, history_tripwires, repository_backup
from ralphproof.workspace.git_command import GitFailed
from ralphproof.workspace.repository_tripwires import ConfigReverter, is_executing_setting
from tests.workspace.tripwire_project import RUN, STOPS, TripwireProject, all_files, create_files

pytestmark = pytest.mark.thorough

if TYPE_CHECKING:
    from ralphproof.workspace.git_workspace import GitWorkspace
    from tests.workspace.conftest import Repo

    OpenTripwires = Callable[..., TripwireProject]


@pytest.fixture
def traps(repo: Repo, open_git: Callable[..., GitWorkspace]) -> OpenTripwires:
    def lays(setup: str = "", stops: tuple[str, ...] = STOPS) -> TripwireProject:
        create_files(repo)
        repo.sh(setup)
        return TripwireProject(repo, open_git(repo), stops).arm()

    return lays


def held(sprung: TripwireReport) -> list[tuple[str, str]]:
    """(path, who holds it), without the commit's name."""
    assert all(one.stops for one in sprung.touched)
    return [(one.path, "; ".join(part.split(",")[0] for part in one.held_by.split("; "))) for one in sprung.touched]


PROTECTED = "src/auth/a.py"


def imported(head: str, branches: list[str], more: int) -> bytes:
    """For `git fast-import`: empty commits upon `head`, one a branch, and one with a change; empty ones upon it."""
    mark = "committer a <a@localhost> 1700000000 +0000\ndata 0\n"
    empty = [f"commit refs/heads/{name}\n{mark}from {head}\n" for name in branches]
    evil = f"commit refs/heads/z\n{mark}from {head}\nM 100644 inline {PROTECTED}\ndata 5\nevil\n\n"
    return "".join([*empty, evil, *[f"commit refs/heads/z\n{mark}\n"] * more]).encode()


@pytest.mark.parametrize(("branches", "more"), [(0, 2500), (120, 0)], ids=["many commits", "many branches"])
def test_a_commit_with_a_protected_path_is_found_among_many_refs(
    repo: Repo, traps: OpenTripwires, branches: int, more: int
) -> None:  # fmt: skip
    trap = traps()
    names = [f"a{number:03d}" for number in range(branches)]
    repo.git("fast-import", "--quiet", stdin=imported(repo.git("rev-parse", "HEAD"), names, more))
    assert held(trap.after("")) == [(PROTECTED, "branch z")]


def test_too_many_new_commits_raise_an_error(repo: Repo, traps: OpenTripwires, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = traps()
    monkeypatch.setattr(git_objects, "MAX_COMMITS", 3)
    repo.git("fast-import", "--quiet", stdin=imported(repo.git("rev-parse", "HEAD"), [], 4))
    with pytest.raises(HarnessFailed, match="more than 3 new commits"):
        trap.after("")


def test_settings_stay_as_they_were_while_git_cannot_tell_what_they_were(repo: Repo) -> None:
    asked: list[str] = []

    def ask(*args: str) -> ProgramResult:
        asked.append(args[0])
        if len(asked) == 1:
            raise GitFailed("git config: it was ended")
        return run_program(["/usr/bin/env", "git", *args], repo.environ)

    configuration = ConfigReverter(ask, str(repo.base / "scratch"))
    before = b"[core]\n\tbare = false\n"
    with pytest.raises(GitFailed):
        configuration.revert(before, before + b"\tfsmonitor = evil\n")
    mended = configuration.revert(b"[no section", before + b"\tfsmonitor = evil\n")
    assert mended.rules == ("core.fsmonitor executes a program",)
    assert b"evil" not in mended.content


EXECUTING = [
    ("core.hooksPath", "evil"), ("core.fsmonitor", "evil"), ("core.sshCommand", "evil"), ("core.pager", "evil"),
    ("core.editor", "evil"), ("core.askPass", "evil"), ("core.gitProxy", "evil"), ("core.alternateRefsCommand", "evil"),
    ("sequence.editor", "evil"), ("credential.helper", "!evil"), ("credential.https://x.y.helper", "evil"),
    ("filter.a.b.clean", "evil"), ("filter.lfs.smudge", "evil"), ("filter.x.process", "evil"),
    ("diff.x.command", "evil"), ("diff.x.textconv", "evil"), ("diff.external", "evil"), ("merge.x.driver", "evil"),
    ("difftool.x.cmd", "evil"), ("difftool.x.path", "evil"), ("mergetool.x.cmd", "evil"), ("mergetool.x.path", "evil"),
    ("alias.st", "!evil"), ("gpg.program", "evil"), ("gpg.ssh.program", "evil"), ("gpg.ssh.defaultKeyCommand", "evil"),
    ("pager.log", "evil"), ("interactive.diffFilter", "evil"), ("trailer.x.command", "evil"), ("trailer.x.cmd", "evil"),
    ("uploadpack.packObjectsHook", "evil"), ("remote.origin.uploadpack", "evil"), ("remote.o.receivepack", "evil"),
    ("remote.origin.vcs", "evil"), ("submodule.x.update", "!evil"), ("include.path", "/tmp/x"),
    ("includeIf.gitdir:/x/.path", "/tmp/x"), ("init.templateDir", "evil"), ("protocol.ext.allow", "always"),
    ("protocol.allow", "always"), ("browser.x.cmd", "evil"), ("man.x.cmd", "evil"), ("web.browser", "evil"),
    ("tar.x.command", "evil"), ("hook.x.command", "evil"), ("lfs.customtransfer.x.path", "evil"),
]  # fmt: skip
HARMLESS = [
    ("user.name", "me"), ("branch.main.remote", "origin"), ("remote.origin.url", "https://x/y"), ("alias.st", "status"),
    ("core.autocrlf", "true"), ("pull.rebase", "true"), ("submodule.x.update", "merge"), ("diff.tool", "vimdiff"),
    ("http.proxy", "http://x"), ("lfs.url", "https://x"), ("merge.conflictStyle", "diff3"), ("gpg.format", "ssh"),
    ("credential.username", "me"), ("protocol.version", "2"), ("core.hooksPathX", "x"), ("filter.x.required", "true"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "text"), EXECUTING, ids=[one[0] for one in EXECUTING])
def test_a_setting_that_executes_something_is_known(key: str, text: str) -> None:
    section, _, rest = key.partition(".")
    inner, dot, name = rest.rpartition(".")
    assert is_executing_setting(f"{section.lower()}.{inner}{dot}{name.lower()}", text)


@pytest.mark.parametrize(("key", "text"), HARMLESS, ids=[one[0] for one in HARMLESS])
def test_settings_that_execute_nothing_may_change(traps: OpenTripwires, repo: Repo, key: str, text: str) -> None:
    assert traps().after(f"git config {key} {text}") == TripwireReport()
    assert repo.git("config", key) == text


def test_executing_settings_are_put_back_one_by_one_and_others_stay(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps("git config core.editor mine; git config --add credential.helper one;"
                 "git config --add credential.helper two; git config alias.x '!mine'")  # fmt: skip
    sprung = trap.after(
        "git config core.hooksPath evil; git config core.editor evil; git config --unset-all credential.helper;"
        "git config --add credential.helper '!evil'; git config alias.x status; git config filter.a.b.clean evil;"
        "git config user.name agent; printf '[core]\\n\\tfsmonitor\\n' >> .git/config"
    )
    keys = ["alias.x", "core.editor", "core.fsmonitor", "core.hookspath", "credential.helper", "filter.a.b.clean"]
    assert [(one.path, one.rule) for one in sprung.touched] == [
        (".git/config", f"{k} executes a program") for k in keys
    ]
    assert not any(one.stops or one.trouble for one in sprung.touched)
    assert repo.git("config", "core.editor") == "mine"
    assert repo.git("config", "--get-all", "credential.helper") == "one\ntwo"
    assert repo.git("config", "alias.x") == "!mine"
    assert repo.git("config", "user.name") == "agent"
    assert repo.git("config", "--name-only", "--get-regexp", "hookspath|fsmonitor|filter", check=False) == ""
    assert b"+\thooksPath = evil" in Path(sprung.patch).read_bytes()
    assert trap.wires.check_and_restore("agent_001_2") == TripwireReport()


def test_git_is_not_led_to_another_folder(traps: OpenTripwires, repo: Repo) -> None:
    sprung = traps().after("git config core.bare true; git config core.worktree /; git config user.name agent")
    assert [one.rule for one in sprung.touched] == [
        "core.bare would make git work elsewhere", "core.worktree would make git work elsewhere",
    ]  # fmt: skip
    assert repo.git("rev-parse", "--show-toplevel") == os.path.realpath(repo.path)
    assert repo.git("config", "user.name") == "agent"


WHOLE = {
    "unreadable": "echo '[core' >> .git/config",
    "deleted": "rm .git/config",
    "a link": "cp .git/config ../c; echo '[core]\n\tpager = evil' >> ../c; rm .git/config; ln -s ../../c .git/config",
    "a pipe": "rm .git/config; mkfifo .git/config",
    "many settings": "for i in $(seq 30); do git config alias.x$i '!evil'; done",
}


@pytest.mark.parametrize("script", WHOLE.values(), ids=WHOLE)
def test_a_configuration_that_cannot_be_mended_is_put_back_whole(traps: OpenTripwires, repo: Repo, script: str) -> None:
    trap = traps()
    before = (repo.path / ".git/config").read_bytes()
    sprung = trap.after(script)
    assert {one.path for one in sprung.touched} == {".git/config"}
    assert (repo.path / ".git/config").read_bytes() == before
    assert not (repo.path / ".git/config").is_symlink()


def test_a_setting_that_cannot_be_written_again_as_it_was_brings_the_whole_file_back(
    traps: OpenTripwires, repo: Repo
) -> None:
    trap = traps("printf '[core]\\n\\tfsmonitor\\n' >> .git/config")
    before = (repo.path / ".git/config").read_bytes()
    sprung = trap.after("git config core.fsmonitor evil; git config user.name agent")
    assert [one.rule for one in sprung.touched] == ["core.fsmonitor executes a program"]
    assert (repo.path / ".git/config").read_bytes() == before


def test_the_settings_of_a_worktree_are_watched_too(traps: OpenTripwires, repo: Repo) -> None:
    sprung = traps().after("git config extensions.worktreeConfig true; git config --worktree core.pager evil;"
                           "git config --worktree user.name x")  # fmt: skip
    rules = [(one.path, one.rule) for one in sprung.touched]
    assert rules == [(".git/config.worktree", "core.pager executes a program")]
    assert repo.git("config", "--worktree", "--list") == "user.name=x"


def test_nothing_that_the_agent_configured_is_run_while_it_is_mended(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps("mkdir evil; for n in post-index-change reference-transaction; do "
                 "printf '#!/bin/sh\\ntouch ~/ran\\n' > evil/$n; chmod +x evil/$n; done")  # fmt: skip
    repo.environ["GIT_CONFIG_GLOBAL"] = os.devnull
    trap.after("git config core.hooksPath $PWD/evil; git config core.fsmonitor 'touch ~/ran'; git branch -D x || true;"
               "git config core.pager 'touch ~/ran'; git config alias.config '!touch ~/ran'; rm -f ~/ran")  # fmt: skip
    assert not (repo.home / "ran").exists()


BRANCHES = [
    ("the branch that is worked on", "echo x >> src/auth/a.py; git commit -qam x; git checkout -q HEAD~1 -- src/auth",
     [("src/auth/a.py", "branch main")]),
    ("another branch", "git checkout -qb side; echo x >> src/auth/a.py; git commit -qam x; git checkout -q main",
     [("src/auth/a.py", "branch side")]),
    ("an older branch", "git checkout -q old; echo x >> migrations/001.sql; git commit -qam x; git checkout -q main",
     [("migrations/001.sql", "branch old")]),
    ("a tag", "git checkout -q --detach; echo x >> src/auth/a.py; git commit -qam x; git tag t; git checkout -q main",
     [("src/auth/a.py", "tag t")]),
    ("an annotated tag", "git checkout -q --detach; echo x >> src/auth/a.py; git commit -qam x; git tag -am t t;"
     "git checkout -q main", [("src/auth/a.py", "tag t")]),
    ("no branch at all", "git checkout -q --detach; echo x >> src/auth/a.py; git commit -qam x;"
     "git checkout -q HEAD~1 -- src/auth", [("src/auth/a.py", "HEAD")]),
    ("two branches", "git checkout -qb s1; git rm -q src/auth/a.py; git commit -qam x; git branch s2;"
     "git checkout -q main", [("src/auth/a.py", "branch s1; branch s2")]),
    ("a commit made without files",
     "b=$(echo x | git hash-object -w --stdin); export GIT_INDEX_FILE=$PWD/../i; git read-tree HEAD;"
     "git update-index --add --cacheinfo 100644,$b,src/auth/new.py;"
     "git branch odd $(git commit-tree -m x -p HEAD $(git write-tree))", [("src/auth/new.py", "branch odd")]),
    ("a rename", "git checkout -qb side; git mv src/auth/a.py b.py; git commit -qm x; git checkout -q main",
     [("src/auth/a.py", "branch side")]),
    ("a rename into it", "git checkout -qb side; git mv src/f1 src/auth/n.py; git commit -qm x; git checkout -q main",
     [("src/auth/n.py", "branch side")]),
    ("the file too", "echo x >> src/auth/a.py; git commit -qam x", [("src/auth/a.py", "branch main")]),
    ("a file that is staged", "echo x >> src/auth/a.py; git add -A", [("src/auth/a.py", "the index")]),
    ("a new file that is staged", "echo x > src/auth/n.py; git add -A", [("src/auth/n.py", "the index")]),
    ("a file that is not staged", "echo x >> src/auth/a.py", [("src/auth/a.py", "")]),
    ("a merge that changes what no parent did", "git checkout -qb side; echo x > n; git add n; git commit -qm n;"
     "git checkout -qb other main; git commit -q --allow-empty -m o; git merge -q --no-commit side || true;"
     "echo x >> src/auth/a.py; git add -A; git commit -qm m; git checkout -q main",
     [("src/auth/a.py", "branch other")]),
    ("what was pushed", "git init -q --bare ../origin; git checkout -qb side; echo x >> src/auth/a.py;"
     "git commit -qam x; git push -q ../origin side; git remote add origin ../origin; git fetch -q origin;"
     "git checkout -q main", [("src/auth/a.py", "branch side")]),
    ("an ignored file that was forced in", "git add -f .env; git commit -qm x", [(".env", "branch main")]),
]  # fmt: skip


@pytest.mark.parametrize(("script", "told"), [way[1:] for way in BRANCHES], ids=[way[0] for way in BRANCHES])
def test_commits_that_hold_a_change_of_a_protected_path_are_told(
    traps: OpenTripwires, repo: Repo, script: str, told: list[tuple[str, str]]
) -> None:
    trap = traps("git branch old")
    before = all_files(repo.path)
    sprung = trap.after(script)
    assert held(sprung) == told
    assert not any(one.trouble for one in sprung.touched)
    assert {path: one for path, one in all_files(repo.path).items() if path in before} == before
    assert trap.wires.check_and_restore("agent_001_2") == TripwireReport()


NOT_HELD = [
    ("work elsewhere", "echo x >> src/f1; git commit -qam x; git checkout -qb n; echo y >> src/f2; git commit -qam y"),
    ("a branch at an old commit", "git branch o HEAD~1"),
    ("a branch that follows another", "git branch -f old feature"),
    ("a branch of a remote branch", "git branch o refs/remotes/origin/r"),
    ("a merge of the user's branch into another", "git checkout -q old; git merge -q feature; git checkout -q main"),
    ("a rebase of the user's branch", "git checkout -q feature; echo > n; git add n; git commit -qm n;"
     "git checkout -q main; echo > o; git add o; git commit -qm o; git rebase -q main feature; git checkout -q main"),
    ("a commit on top of a branch that changed it", "git checkout -q feature; echo > n; git add n; git commit -qm n;"
     "git checkout -q main"),
    ("the user's own changes", "git add -A; git commit -qm all; git checkout -qb n; git mv dirty d; git commit -qm n"),
    ("a fetch", "git init -q ../up; cd ../up; mkdir -p src/auth; echo x > src/auth/a.py; git add -A;"
     "git commit -qm u; cd ../repo; git remote add up ../up; git fetch -q up"),
]  # fmt: skip


@pytest.mark.parametrize("script", [way[1] for way in NOT_HELD], ids=[way[0] for way in NOT_HELD])
def test_changes_committed_before_the_turn_are_ignored(traps: OpenTripwires, script: str) -> None:
    trap = traps("git branch old; git checkout -qb feature; echo x >> src/auth/a.py; git commit -qam f;"
                 "git branch tmp; git checkout -q main; git update-ref refs/remotes/origin/r tmp~0;"
                 "git branch -qD tmp; echo dirty > dirty")  # fmt: skip
    assert trap.after(script).touched == ()


def test_changes_staged_by_the_user_are_ignored(traps: OpenTripwires) -> None:
    sprung = traps("echo mine >> src/auth/a.py; git add -A").after("echo x >> src/auth/a.py")
    assert held(sprung) == [("src/auth/a.py", "")]


def test_a_touch_that_is_reverted_by_commits_is_told_and_stops_nothing(traps: OpenTripwires, repo: Repo) -> None:
    sprung = traps().after("echo x >> src/auth/a.py; git commit -qam x; git revert --no-edit HEAD > /dev/null")
    assert sprung.touched == ()
    (remark,) = sprung.remarks
    commit = repo.git("rev-parse", "--short=12", "HEAD")
    assert remark == f"src/auth/a.py was changed and changed back: branch main, commit {commit}"


def test_without_protected_paths_no_commit_is_looked_through(traps: OpenTripwires) -> None:
    assert traps(stops=()).after("echo x >> src/auth/a.py; git commit -qam x") == TripwireReport()


LOST = [
    ("a deleted branch", "git branch -qD side", "branch side was deleted; it was at {side}", "git branch side {side}"),
    ("a deleted packed branch", "git pack-refs --all; git branch -qD side", "branch side was deleted; it was at {side}",
     "git branch side {side}"),
    ("a deleted tag", "git tag -d v1 > /dev/null", "tag v1 was deleted; it was at {v1}", "git tag v1 {v1}"),
    ("a deleted annotated tag", "git tag -d v2 > /dev/null", "tag v2 was deleted; it was at {v2}", "git tag v2 {v2}"),
    ("a moved tag", "git tag -f v1 HEAD > /dev/null", "tag v1 was moved from {v1} to {main}, which does not contain it",
     "git tag v1-before {v1}"),
    ("a branch moved back", "git branch -qf side main", "branch side was moved from {side} to {main}, which does not "
     "contain it", "git branch side-before {side}"),
    ("a branch with an odd name", "git branch -qD 'o;dd'", "branch o;dd was deleted; it was at {side}",
     "git branch 'o;dd' {side}"),
]  # fmt: skip
SIDE = "git checkout -qb side; echo s > s; git add s; git commit -qm s; git branch 'o;dd'; git checkout -q main;"


@pytest.mark.parametrize(("script", "what", "command"), [way[1:] for way in LOST], ids=[way[0] for way in LOST])
def test_a_lost_branch_or_tag_is_told_and_can_be_had_back_even_after_a_collection(
    traps: OpenTripwires, repo: Repo, script: str, what: str, command: str
) -> None:
    trap = traps(SIDE + "git tag v1 side; git tag -am v2 v2 side")
    names = {name: repo.git("rev-parse", name)[:12] for name in ("side", "v1", "v2", "main")}
    sprung = trap.after(script)
    assert sprung.touched == ()
    assert sprung.remarks == (f"{what.format(**names)}; get it back: {command.format(**names)}",)
    repo.sh("git reflog expire --expire=now --expire-unreachable=now --all; git gc -q --prune=now")
    repo.sh(command.format(**names))
    assert trap.wires.check_and_restore("agent_001_2").remarks == ()


def test_commits_survive_a_collection_in_the_same_turn(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps(SIDE + "git tag -am v2 v2 side; git branch -qD 'o;dd'")
    side = repo.git("rev-parse", "side")
    sprung = trap.after(
        "git branch -qD side; git tag -d v2; git reflog expire --expire=now --all; git gc -q --prune=now"
    )
    assert [remark.partition(";")[0] for remark in sprung.remarks][:1] == ["branch side was deleted"]
    assert "no longer in the repository" in sprung.remarks[1]
    assert repo.git("cat-file", "-t", side) == "commit"
    assert f"{side} refs/heads/side" in repo.git("log", "-1", "--format=%B", f"refs/ralph/{RUN}/tips")
    repo.git("fsck", "--strict")


def test_a_branch_that_grows_is_no_loss(traps: OpenTripwires) -> None:
    assert traps(SIDE).after("git checkout -q side; echo x > x; git add x; git commit -qm x; git checkout -q main;"
                             "git merge -q side; git branch more") == TripwireReport()  # fmt: skip


def test_many_lost_branches_are_told_together(traps: OpenTripwires) -> None:
    trap = traps("for i in $(seq 14); do git branch b$i; done")
    remarks = trap.after(
        "git for-each-ref --format='delete %(refname)' 'refs/heads/b*' | git update-ref --stdin"
    ).remarks
    assert len(remarks) == 11
    assert remarks[-1] == f"4 more branches, tags and stashes were lost; git log -1 refs/ralph/{RUN}/tips names all"


def test_with_very_many_branches_lost_ones_alone_are_kept(
    traps: OpenTripwires, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_tripwires, "MAX_TIPS", 1)
    trap = traps(SIDE)
    assert repo.git("for-each-ref", f"refs/ralph/{RUN}/tips") == ""
    side = repo.git("rev-parse", "side")
    assert len(trap.after("git branch -qD side; git branch -qD 'o;dd'").remarks) == 2
    assert repo.git("rev-parse", f"refs/ralph/{RUN}/lost-{side[:12]}") == side


ASIDE = "mkdir evil; cp -r $(git rev-parse --git-common-dir)/* evil; git config -f evil/config core.fsmonitor evil;"


def test_settings_that_git_is_led_to_elsewhere_do_not_count(traps: OpenTripwires, repo: Repo) -> None:
    sprung = traps().after(f"{ASIDE} echo ../evil > .git/commondir; git config core.fsmonitor")
    assert [(one.path, one.rule) for one in sprung.touched] == [(".git/commondir", "where git looks for its settings")]
    assert not (repo.path / ".git/commondir").exists()
    assert repo.git("config", "core.fsmonitor", check=False) == ""


def test_settings_that_a_linked_worktree_is_redirected_to_do_not_count(
    repo: Repo, open_git: Callable[..., GitWorkspace]
) -> None:
    create_files(repo)
    repo.sh("git worktree add -q -b side ../side")
    main, repo.path = repo.path, repo.path.parent / "side"
    own = main / ".git/worktrees/side/commondir"
    before = own.read_text()
    sprung = TripwireProject(repo, open_git(repo)).arm().after(f"{ASIDE} echo $PWD/evil > {own}")
    assert [one.path for one in sprung.touched] == [".git/commondir"]
    assert own.read_text() == before


def test_moves_of_branches_of_other_worktrees_are_ignored(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps("git worktree add -q -b theirs ../theirs")
    theirs = "cd ../theirs; echo x >> src/auth/a.py; git commit -qam x; git commit -q --amend -m y"
    assert trap.after(theirs) == TripwireReport()
    sprung = trap.after("git worktree add -q -b mine ../mine; cd ../mine; echo x >> src/auth/a.py; git commit -qam x",
                        "agent_001_2")  # fmt: skip
    assert held(sprung) == [("src/auth/a.py", "branch mine")]


def test_a_linked_worktree_is_watched_like_any_other(repo: Repo, open_git: Callable[..., GitWorkspace]) -> None:
    create_files(repo)
    repo.sh("git worktree add -q -b side ../side; cp .env ../side")
    main, repo.path = repo.path, repo.base / "side"
    trap = TripwireProject(repo, open_git(repo, repo.path)).arm()
    sprung = trap.after("echo x > $(git rev-parse --git-path hooks)/pre-push; git config core.pager evil; rm .env;"
                        "git config extensions.worktreeConfig true; git config --worktree core.editor evil;"
                        "git -C ../repo commit -q --allow-empty -m theirs; "
                        "git -C ../repo commit -q --allow-empty --amend -m mended")  # fmt: skip
    assert [(one.path, one.rule.split()[0]) for one in sprung.touched] == [
        (".env", "protectedPaths:"), (".git/config", "core.pager"), (".git/config.worktree", "core.editor"),
        (".git/hooks/pre-push", "the"),
    ]  # fmt: skip
    assert sprung.remarks == ()
    assert not (main / ".git/hooks/pre-push").exists()
    assert (repo.path / ".env").read_text() == "SECRET=1\n"


def test_refs_that_are_no_files_are_asked_of_git(repo: Repo, open_git: Callable[..., GitWorkspace]) -> None:
    create_files(repo)
    repo.sh(SIDE)
    git = open_git(repo)
    git._index.folders = replace(git._index.folders, ref_files=False)
    trap = TripwireProject(repo, git).arm()
    side = repo.git("rev-parse", "side")
    sprung = trap.after("git branch -qD side; git checkout -qb n; echo x >> src/auth/a.py; git commit -qam x;"
                        "git checkout -q main")  # fmt: skip
    assert held(sprung) == [("src/auth/a.py", "branch n")]
    assert sprung.remarks == (
        f"branch side was deleted; it was at {side[:12]}; get it back: git branch side {side[:12]}",
    )


SHAPES = {
    "packed refs": "git pack-refs --all --prune",
    "detached HEAD": "git checkout -q --detach",
    "git dir elsewhere": "mv .git ../elsewhere; echo 'gitdir: ../elsewhere' > .git",
    "git dir behind a link": "mv .git ../elsewhere; ln -s ../elsewhere .git",
    "shallow": "git commit -q --allow-empty -m 2; git clone -q --depth 1 file://$PWD ../c; rm -rf .git;"
    "mv ../c/.git .git",
    "a symbolic branch": "git symbolic-ref refs/heads/alias refs/heads/main; git symbolic-ref HEAD refs/heads/alias",
    "no commits": "rm -rf .git; git init -q",
    "an empty config": ": > .git/config",
    "a tag of a file": "git tag blob $(git hash-object -w src/f1)",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_shape_of_repository_is_watched(traps: OpenTripwires, repo: Repo, shape: str) -> None:
    trap = traps(shape)
    assert trap.after("echo x >> src/f1; git add -A; git commit -qm x") == TripwireReport()
    sprung = trap.after("echo x > $(git rev-parse --git-path hooks)/pre-push; git config core.pager evil;"
                        "echo x >> src/auth/a.py; git commit -qam y", "agent_002")  # fmt: skip
    assert [one.path for one in sprung.touched] == ["src/auth/a.py", ".git/config", ".git/hooks/pre-push"]
    assert sprung.touched[0].held_by
    assert not any(one.trouble for one in sprung.touched)
    assert trap.wires.check_and_restore("agent_003") == TripwireReport()


@pytest.mark.parametrize("wide", [False, True], ids=["sha1", "sha256"])
def test_both_kinds_of_ids_are_understood(
    make_repo: Callable[..., Repo], open_git: Callable[..., GitWorkspace], wide: bool
) -> None:
    repo = make_repo(*(["--object-format=sha256"] if wide else []))
    create_files(repo)
    repo.sh(SIDE + "echo mine >> src/f1")
    trap = TripwireProject(repo, open_git(repo)).arm()
    sprung = trap.after("git branch -qD side; git stash -q; echo x >> src/auth/a.py; git commit -qam x")
    assert held(sprung) == [("src/auth/a.py", "branch main")]
    assert len(sprung.remarks) == 2


def test_a_repository_that_is_deleted_is_told_once_and_files_are_still_watched(
    traps: OpenTripwires, repo: Repo
) -> None:
    trap = traps("git config core.editor mine; echo x > .git/hooks/pre-push")
    sprung = trap.after("rm -rf .git; echo x >> src/auth/a.py")
    assert [(one.path, one.trouble) for one in sprung.touched] == [("src/auth/a.py", "")]
    assert len(sprung.remarks) == 1
    assert ".git was deleted" in sprung.remarks[0]
    assert not (repo.path / ".git").exists()
    trap.wires.discard()
    assert list(trap.vault.iterdir()) == []
    trap.wires.start_watching()
    sprung = trap.after("rm .env", "agent_002")
    assert ([one.path for one in sprung.touched], sprung.remarks) == ([".env"], ())


def test_a_repository_that_is_deleted_can_be_put_together_again(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps(SIDE + "git gc -q; git tag -am v v; echo n > n; git add n; git commit -qm n; echo s > n;"
                 "git add n; echo mine >> src/f1; cd .git/hooks; rm *; echo > pre-push; chmod +x pre-push")  # fmt: skip
    tell = "git for-each-ref; git log --all --oneline; git status --porcelain; git config -l --local; ls .git/hooks"
    before = repo.sh(tell)
    (remark,) = trap.after("rm -rf .git").remarks
    assert remark.endswith(f"ralph restore {RUN}")
    (start,) = repository_backup.list_backups(str(trap.backup))
    restoring = repository_backup.RepositoryRestore(str(trap.backup), start, repo.environ)
    restoring.build()
    assert restoring.install() == ""
    assert repo.sh(tell) == before
    repo.git("fsck", "--strict")
    assert os.access(repo.path / ".git/hooks/pre-push", os.X_OK)


def test_the_copy_of_a_repository_goes_when_the_run_is_over(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps()
    assert [kept.run for kept in repository_backup.list_backups(str(trap.backup))] == [RUN]
    trap.wires.discard()
    assert repository_backup.list_backups(str(trap.backup)) == []
    assert list(trap.vault.iterdir()) == []
    repo.git("fsck", "--strict")


def test_where_no_copy_can_be_made_the_start_says_so(
    traps: OpenTripwires, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository_backup, "MAX_LOOSE_OBJECTS", 0)
    trap = traps()
    (told,) = trap.told
    assert told.startswith("no copy of .git is kept")
    assert "git gc" in told
    (remark,) = trap.after("rm -rf .git").remarks
    assert remark.endswith("look for it where you pushed to")


def test_what_is_too_much_to_copy_is_linked_and_that_is_said(
    traps: OpenTripwires, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository_backup, "MAX_COPIED_BYTES", 0)
    monkeypatch.setattr(repository_backup, "FICLONE", 0)
    trap = traps("git gc -q")
    assert "by links, not copies" in "".join(trap.told)
    assert any(path.stat().st_nlink == 2 for path in (trap.backup / "pool").rglob("*.pack"))
    assert trap.after("rm -rf .git").remarks[0].endswith(f"ralph restore {RUN}")


def test_a_repository_that_is_made_anew_loses_its_branches(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps("git config core.editor mine; echo mine > .git/hooks/pre-push")
    sprung = trap.after("rm -rf .git; git init -q -b main; git add -A; git commit -qm again")
    assert [(one.path, one.rule) for one in sprung.touched] == [
        (".git/config", "core.editor executes a program"), (".git/hooks/pre-push", "the hooks of git"),
    ]  # fmt: skip
    (remark,) = sprung.remarks
    assert remark.startswith("branch main was moved from ")
    assert remark.endswith("that is no longer in the repository")
    assert (repo.path / ".git/hooks/pre-push").read_text() == "mine\n"


SWEEPS = {
    "stash": "git stash -q -u",
    "checkout": "git checkout -q .; rm new.py",
    "reset and clean": "git reset -q --hard; git clean -qfd",
    "removal": "rm src/f1 new.py",
}


@pytest.mark.parametrize("script", SWEEPS.values(), ids=SWEEPS)
def test_uncommitted_work_that_is_swept_away_is_told_once_with_the_way_to_get_it_back(
    traps: OpenTripwires, repo: Repo, script: str
) -> None:
    trap = traps("echo mine >> src/f1; echo new > new.py; rm src/f2; echo ignored > build.log")
    sprung = trap.after(script)
    (remark,) = sprung.remarks
    assert sprung.touched == ()
    assert "your uncommitted work in new.py, src/f1 is gone" in remark or "build.log, new.py, src/f1" in remark
    command = f"git restore --source=refs/ralph/{RUN}/0 -- "
    assert command in remark
    assert f"ralph rewind {RUN} 0" in remark
    repo.sh(f"{command} new.py; {command} src/f1")
    assert (repo.path / "src/f1").read_text() == "1\nmine\n"
    assert (repo.path / "new.py").read_text() == "new\n"
    assert trap.anew().check_and_restore("agent_001") == sprung
    trap.wires.start_watching()
    assert trap.after(script, "agent_002").remarks == ()


KEPT = {
    "a commit of it": "git add -A; git commit -qm all",
    "more of it": "echo more >> src/f1; echo more >> new.py",
    "a rewrite of it": "echo other > src/f1; echo other > new.py",
    "a deletion of other files": "rm src/f3",
    "a deletion that is undone": "git checkout -q -- src/f2",
}


@pytest.mark.parametrize("script", KEPT.values(), ids=KEPT)
def test_uncommitted_work_that_goes_on_is_not_lost(traps: OpenTripwires, script: str) -> None:
    assert traps("echo mine >> src/f1; echo new > new.py; rm src/f2").after(script) == TripwireReport()


def test_work_that_is_swept_away_later_is_not_told_again(traps: OpenTripwires) -> None:
    trap = traps("echo mine >> src/f1; echo new > new.py")
    assert len(trap.after("git checkout -q src/f1").remarks) == 1
    trap.wires.start_watching()
    assert trap.after("rm new.py", "agent_002").remarks == ()


def test_work_that_went_before_the_turn_was_not_lost_in_it(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps("echo mine >> src/f1; echo new > new.py")
    assert trap.after("true") == TripwireReport()
    repo.sh("git checkout -q src/f1")
    trap.wires.start_watching()
    (remark,) = trap.after("rm new.py", "agent_002").remarks
    assert "src/f1" not in remark


@pytest.mark.parametrize(
    "setup",
    ["git config core.autocrlf true; rm src/f1; git checkout -q src/f1; grep -q $(printf '\\r') src/f1",
     "printf 'version https://git-lfs.github.com/spec/v1\\noid x\\n' > src/f1; git commit -qam p; echo big > src/f1"],
    ids=["line ends", "large file storage"],
)  # fmt: skip
def test_conversions_by_git_are_not_uncommitted_work(traps: OpenTripwires, setup: str) -> None:
    assert traps(setup).after("rm src/f1") == TripwireReport()


def test_an_unchanged_repository_costs_no_process(traps: OpenTripwires, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = traps(SIDE + "git tag v1; git pack-refs --all; git branch loose; echo mine >> src/f1")
    started: list[object] = []
    start = os.posix_spawn

    def spawn(*args: object, **more: object) -> int:
        started.append(args)
        return start(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "posix_spawn", spawn)
    for number in range(3):
        trap.wires.start_watching()
        assert trap.wires.check_and_restore(f"agent_{number:03d}") == TripwireReport()
    assert started == []


def test_without_git_hooks_are_still_watched(repo: Repo) -> None:
    create_files(repo)
    trap = TripwireProject(repo, None).arm()
    sprung = trap.after("echo x > .git/hooks/pre-push; git config core.pager evil; git branch -q n; git branch -qD n")
    assert [one.path for one in sprung.touched] == [".git/hooks/pre-push"]


def test_a_project_without_a_repository_is_watched(repo: Repo) -> None:
    create_files(repo)
    subprocess.run(["rm", "-rf", ".git"], cwd=repo.path, check=True)
    sprung = (
        TripwireProject(repo, None).arm().after("echo x >> .env; mkdir -p .git/hooks; echo x > .git/hooks/pre-push")
    )
    assert [one.path for one in sprung.touched] == [".env"]
