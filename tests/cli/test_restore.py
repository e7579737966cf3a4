"""`ralph restore`: a repository that an agent destroyed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.misbehaviour.stories import lay, story, submitted, turn
from tests.ralph import done, say, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ralph import Ended, Ralph

AGAIN = "rm -rf .git; git init -q; git add -A; git -c user.name=a -c user.email=a@b commit -qm new"
DESTROYED = {
    "deleted": "rm -rf .git",
    "made anew": AGAIN,
    "replaced by a link": "mv .git ../elsewhere; ln -s ../elsewhere .git",
    "with a FIFO for HEAD": "rm .git/HEAD; mkfifo .git/HEAD",
    "with refs that lead elsewhere": "mkdir ../e; mkfifo ../e/x; mv .git/refs ../r; ln -s ../../e .git/refs",
    "with a FIFO for an object": "cd .git/objects; for f in ??/*; do rm -f $f; mkfifo $f; done",
    "replaced by a file": "rm -rf .git; echo junk > .git",
    "without a HEAD that git can read": "echo junk > .git/HEAD",
    "emptied": "rm -rf .git/* .git/.[!.]*",
    "truncated in place": "find .git/objects -type f -exec chmod u+w {} + -exec truncate -s 0 {} +",
    "overwritten in place": "for f in $(find .git/objects -type f); do chmod u+w $f; echo junk > $f; done",
    "pruned": "git checkout -q --orphan x; git commit -qm new --allow-empty; rm -rf .git/logs .git/refs/ralph;"
    " git branch -qD main; git tag -d v1; git gc -q --prune=now",
}
NEWER = ("made anew", "pruned")


def sh(script: str) -> dict[str, object]:
    return {"run": ["sh", "-c", script]}


def project(ralph: Ralph) -> str:
    """Two commits, a tag, something staged and something changed; what all that is."""
    ralph.write({"a.txt": "one\n", ".gitignore": "ignored\n"})
    ralph.commit()
    ralph.git("tag", "v1")
    ralph.write({"a.txt": "two\n"})
    ralph.commit()
    ralph.git("config", "user.name", "agent")
    ralph.git("config", "user.email", "agent@localhost")
    ralph.write({"staged.txt": "staged\n", "ignored": "x\n"})
    ralph.git("add", "staged.txt")
    ralph.write({"a.txt": "three, not committed\n"})
    return history(ralph)


def history(ralph: Ralph) -> str:
    """Everything that must be as it was: history, names, the index."""
    log = ralph.git("log", "--format=%H %s", "main", "v1")
    refs = ralph.git("for-each-ref", "refs/heads", "refs/tags")
    return f"{log}\n{refs}\n{ralph.git('ls-files', '-s')}\n{ralph.git('rev-parse', '--symbolic-full-name', 'HEAD')}"


def files(ralph: Ralph) -> dict[str, bytes]:
    """The user's files."""
    paths = (path for path in ralph.root.rglob("*") if path.is_file())
    inside = ((str(path.relative_to(ralph.root)), path) for path in paths)
    return {
        name: path.read_bytes()
        for name, path in inside
        if name != ".git" and not name.startswith((".git/", ".git.", ".ralph"))
    }


def ran(ralph: Ralph, script: str, *more: str) -> Ended:
    agent = ralph.script([sh(script), say("hm")])
    return ralph("run", "-p", "x", "--agent", agent, "--check", "test -f never", "-m", "1", *more)


def run_id(ralph: Ralph) -> str:
    """The run, from its own files: its record is that of another repository now."""
    return os.path.basename(os.readlink(ralph.root / ".ralph/latest"))


def copies(ralph: Ralph) -> list[Path]:
    return sorted(ralph.state_dir.glob("repos/*/backup/*.start"))


@pytest.mark.parametrize("how", DESTROYED)
def test_a_destroyed_repository_is_put_together_again(ralph: Ralph, how: str) -> None:
    before = project(ralph)
    ended = ran(ralph, DESTROYED[how])
    run = run_id(ralph)
    assert f"ralph restore {run}" in ended.out + ended.err, ended
    assert "git log refs/ralph" not in ended.out + ended.err, "nothing is named that is not there"
    assert len(copies(ralph)) == 1
    mine, had = files(ralph), os.path.lexists(ralph.root / ".git")
    if had:
        assert run in ralph("gc", "--dry-run", "--json").json["repositoryCopies"]
    shown = ralph("restore", run, "--dry-run", "--json")
    assert (shown.code, shown.json["restored"]) == (0, False), shown
    assert sorted(ralph.root.glob(".git.*")) == []
    if how in NEWER:
        ralph.git("commit", "-qm", "after the run", "--allow-empty")
        refused = ralph("restore", run)
        assert (refused.code, refused.err.count("\n")) == (2, 1), refused
        assert "commits that the copy does not have" in refused.err
        assert "--force" in refused.err
    told = ralph("restore", run, "--json", *(["--force"] if how in NEWER else []))
    assert (told.code, told.json["restored"]) == (0, True), told
    assert history(ralph) == before
    assert files(ralph) == mine
    ralph.git("fsck", "--strict")
    assert ralph.git("log", "-1", "--format=%s", f"refs/ralph/{run}/0").strip() == f"refs/ralph/{run}/0"
    assert told.json["differing"] == ["a.txt", "staged.txt"]
    if how in NEWER:
        (later,) = told.json["laterRefs"]
        assert ralph.git("log", "--format=%s", later) == "new\n"
    aside = told.json["aside"]
    assert os.path.lexists(aside) if had else aside is None
    assert ".git." not in ralph.git("status", "--porcelain", "-uall")
    again = ralph("restore", run)
    assert (again.code, "nothing was changed" in again.out) == (0, True), again
    assert ralph("status", run).code == 0, "its records belong to the repository again"
    if how == "deleted":
        kept = [str(path) for path in copies(ralph)]
        assert ralph("gc", "--yes", "--json").json["leftovers"] == kept
        assert copies(ralph) == []


@pytest.mark.parametrize("who", ["agent", "check", "commit message", "story"])
def test_no_run_completes_on_a_repository_that_lost_its_history(ralph: Ralph, who: str) -> None:
    project(ralph)
    destroy = sh(DESTROYED["overwritten in place"])
    work = [{"write": {"work.txt": "done\n"}}, done()]
    check, task = "test -f work.txt", ["-p", "x"]
    if who in ("check", "story"):
        check += f" && {{ {DESTROYED['overwritten in place']}; }}"
    if who == "story":
        lay(ralph, story(), verifyCommands=[check])
        task, work = ["--preset", "stories"], turn(submitted(), top={"verifyCommands": [check]}, work__txt="done\n")
    else:
        ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    head = ralph.git("rev-parse", "HEAD")
    agent = ralph.script([destroy, *work] if who == "agent" else work, message=[destroy, say("the work")])
    ended = ralph("run", *task, "--agent", agent, "-m", "3", *([] if who == "story" else ["--check", check]))
    outcome, run = ralph.outcome(), run_id(ralph)
    assert (ended.code, outcome.get("reason"), outcome["iterations"]) == (1, "HISTORY_REWRITTEN", 1), (ended, outcome)
    assert f"ralph restore {run}" in ended.out
    assert (ralph.root / ".git/refs/heads/main").read_text() == head, "nothing is committed to what is left of it"
    assert ralph("restore", run).code == 0
    ralph.git("fsck", "--strict")


@pytest.mark.parametrize(
    "planted",
    [
        "mkdir ../o; mv .git/objects/* ../o; mkdir .git/objects/info; (cd ../o; pwd) > .git/objects/info/alternates",
        "git rev-parse HEAD > .git/shallow",
        "git rev-parse HEAD > .git/info/grafts",
        "git replace --graft HEAD",
        "rm .git/index",
        "truncate -s -1 .git/index",
    ],
)
def test_no_run_completes_on_a_repository_that_would_show_another_history(ralph: Ralph, planted: str) -> None:
    before = project(ralph)
    agent = ralph.script([sh(planted), {"write": {"work.txt": "done\n"}}, done()])
    ended = ralph("run", "-p", "x", "--agent", agent, "--check", "test -f work.txt", "-m", "1")
    assert (ended.code, ralph.outcome().get("reason")) == (1, "HISTORY_REWRITTEN"), ended
    run, again = run_id(ralph), ran(ralph, "true")
    assert f"not whole since run {run}" in again.err, "the next run says at its start what nobody has put back"
    assert ralph("restore", run, *(["--force"] if "replace" in planted else [])).code == 0
    assert history(ralph) == before
    ralph.git("fsck", "--strict")


def test_a_repository_that_has_all_it_had_needs_no_copy(ralph: Ralph) -> None:
    project(ralph)
    ended = ran(ralph, "git checkout -qb mine; git commit -qam more; git branch -qD main; git gc -q --prune=now")
    assert "ralph restore" not in ended.out + ended.err, ended
    assert copies(ralph) == []
    refused = ralph("restore")
    assert (refused.code, refused.err.count("\n")) == (2, 1), refused
    assert "no copy of a repository" in refused.err
    assert ralph("restore", "2026").code == 2


def test_what_was_committed_during_the_run_comes_back_too(ralph: Ralph) -> None:
    project(ralph)
    agent = ralph.script([sh("git commit -qam 'by the agent'")], [sh("rm -rf .git")])
    ralph("run", "-p", "x", "--agent", agent, "--check", "test -f never", "-m", "2")
    told = ralph("restore", "--json").json
    assert (told["restored"], told["asOfLatestTurn"]) == (True, True)
    assert ralph.git("log", "-1", "--format=%s").strip() == "by the agent"
    assert ralph.git("rev-parse", f"refs/ralph/{told['run']}/1")


@pytest.mark.parametrize("kills", ["1", "2", "3", "4", "5", "6"])
def test_who_is_killed_over_it_does_it_again(ralph: Ralph, kills: str) -> None:
    """After each step that others could see: a rename, or the removal of what an earlier attempt left."""
    before = project(ralph)
    ran(ralph, AGAIN)
    mine = files(ralph)
    code = (
        "import os, sys\n"
        "left = [int(sys.argv.pop(1))]\n"
        "def mortal(done):\n"
        "    def step(*given, **named):\n"
        "        left[0] -= 1\n"
        "        if left[0] == 0: os.kill(os.getpid(), 9)\n"
        "        out = done(*given, **named)\n"
        "        left[0] -= 1\n"
        "        if left[0] == 0: os.kill(os.getpid(), 9)\n"
        "        return out\n"
        "    return step\n"
        "os.rename, os.sync = mortal(os.rename), mortal(os.sync)\n"
        "from ralphproof.cli.dispatch import dispatch\n"
        "raise SystemExit(dispatch(sys.argv[1:]))\n"
    )
    words = [*PYTHON, "-c", code, kills, "restore", "--force"]
    killed = subprocess.run(words, cwd=ralph.root, env=ralph.env, capture_output=True, check=False)
    assert killed.returncode == -9, killed
    told = ralph("restore", "--force", "--json").json
    assert history(ralph) == before
    assert files(ralph) == mine
    aside = [told["aside"], *told["earlierAsides"]]
    assert any(one and (ralph.root / one / "HEAD").exists() for one in aside), "what the agent made is still there"
    assert not (ralph.root / ".git.restoring").exists()


PYTHON = (sys.executable,)


def test_it_refuses_what_it_cannot_do(ralph: Ralph, tmp_path: Path) -> None:
    project(ralph)
    ralph.git("worktree", "add", "-q", str(tmp_path / "linked"))
    ran(ralph, "rm -rf .git")
    run = run_id(ralph)
    for words in ([run], []):
        linked = ralph("restore", *words, "-d", str(tmp_path / "linked"))
        assert (linked.code, linked.err.count("\n")) == (2, 1), linked
        assert f"is a linked worktree; restore where its repository is: -d {ralph.root}" in linked.err
    (tmp_path / "other").mkdir()
    elsewhere = ralph("restore", run, "-d", str(tmp_path / "other"))
    assert (elsewhere.code, f"-d {ralph.root}" in elsewhere.err) == (2, True), elsewhere
    for file in ralph.state_dir.glob("repos/*/backup/pool/objects/pack/*"):
        file.unlink()
        file.write_bytes(b"")
    damaged = ralph("restore", run)
    assert (damaged.code, damaged.err.count("\n")) == (2, 1), damaged
    assert "not whole" in damaged.err
    assert not (ralph.root / ".git").exists()


def test_while_a_run_works_nothing_is_restored(ralph: Ralph) -> None:
    project(ralph)
    agent = ralph.script([sh("touch ../began; until test -f ../go; do sleep 0.01; done"), done()])
    live = ralph.start("run", "-p", "x", "--agent", agent, "--check", "true", "-m", "1")
    until((ralph.folder / "began").exists, "the agent begins")
    refused = ralph("restore")
    (ralph.folder / "go").touch()
    assert live.end().code == 0
    assert (refused.code, refused.err.count("\n")) == (2, 1), refused


def test_a_project_that_is_gone_gets_its_history_back(ralph: Ralph) -> None:
    project(ralph)
    told = ran(ralph, "cd ..; rm -rf project")
    assert "WORKSPACE_GONE" in told.err + told.out
    (line,) = {line for line in (told.err + told.out).splitlines() if "mkdir" in line}
    run = line.split("ralph restore ")[1].split()[0]
    assert f"mkdir {ralph.root} && ralph restore {run} -d {ralph.root}" in line
    ralph.root.mkdir()
    put = ralph("restore", run, "-d", str(ralph.root), "--json")
    assert put.code == 0, put
    ralph.git("checkout", "-q", "--", ".")
    assert (ralph.root / "a.txt").read_text() == "two\n"
    assert json.loads(put.out)["aside"] is None


def test_a_run_whose_harness_died_over_it_can_be_ended_and_its_repository_restored(ralph: Ralph) -> None:
    before = project(ralph)
    agent = ralph.script([sh("rm -rf .git; touch ../began; sleep 600"), done()])
    live = ralph.start("run", "-p", "x", "--agent", agent, "--check", "true", "-m", "1")
    until((ralph.folder / "began").exists, "the agent has destroyed it")
    live.process.kill()
    live.process.wait()
    at_work = ralph("restore")
    assert (at_work.code, "is at work" in at_work.err) == (2, True), at_work
    run = run_id(ralph)
    ended = ralph("cancel", run)
    assert (ended.code, f"ralph restore {run}" in ended.err) == (0, True), ended
    assert ralph("restore").code == 0
    assert history(ralph) == before


def test_stashes_that_are_dropped_are_told_and_kept_and_end_no_run(ralph: Ralph) -> None:
    project(ralph)
    ralph.git("stash")
    ralph.write({"a.txt": "four\n"})
    ralph.git("stash")
    stashes = ralph.git("log", "-g", "--format=%H", "refs/stash").split()
    agent = ralph.script([sh("git stash pop -q; git stash drop -q; git gc -q --prune=now"), done()])
    ended = ralph("run", "-p", "x", "--agent", agent, "--check", "true", "-m", "1")
    assert ended.code == 0, ended
    for stash in stashes:
        assert f"a stash was deleted; it was at {stash[:12]}; get it back: git stash store {stash[:12]}" in ended.err
        ralph.git("stash", "store", stash[:12])


def test_what_the_user_checks_out_elsewhere_ends_no_run(ralph: Ralph) -> None:
    project(ralph)
    ralph.git("worktree", "add", "-q", "../linked", "-b", "linked")
    ralph.git("checkout", "-q", "--detach")
    ralph.git("commit", "-qm", "on no branch")
    agent = ralph.script([sh("git -C ../project checkout -q -f main"), done()])
    ended = ralph("run", "-p", "x", "--agent", agent, "--check", "true", "-m", "1", cwd=ralph.folder / "linked")
    assert ended.code == 0, ended


def test_a_partial_clone_need_not_have_what_its_remote_has(ralph: Ralph) -> None:
    project(ralph)
    ralph.git("config", "uploadpack.allowFilter", "true")
    ralph.root.rename(ralph.folder / "remote")
    remote = f"file://{ralph.folder / 'remote'}"
    subprocess.run(["git", "clone", "-q", "--filter=blob:none", remote, str(ralph.root)], check=True, env=ralph.env)
    before = history(ralph)
    assert ran(ralph, "git gc -q --prune=now").code == 1
    assert copies(ralph) == [], "nothing is lost that was there"
    ran(ralph, "rm -rf .git")
    assert ralph("restore").code == 0
    assert history(ralph) == before


def test_the_repository_of_a_linked_worktree_is_put_back_by_the_command_that_is_told(ralph: Ralph) -> None:
    project(ralph)
    ralph.git("worktree", "add", "-q", "../linked", "-b", "linked")
    agent, linked = ralph.script([sh("rm -rf ../project/.git"), say("hm")]), ralph.folder / "linked"
    ended = ralph("run", "-p", "x", "--agent", agent, "--check", "test -f never", "-m", "1", cwd=linked)
    told = ended.out.partition("as it was: ralph ")[2].partition(" (")[0].split()
    assert ralph(*told, cwd=linked).code == 0, ended
    ralph.git("-C", "../linked", "log", "linked", "main", "v1")
