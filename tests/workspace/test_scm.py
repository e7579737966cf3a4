from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralphproof.base.errors import Refused
from ralphproof.base.value import pack, replace, unpack
from ralphproof.engine.sandbox import CONTINUE
from ralphproof.engine.workspace import CommitRequest, CommitResult, Snapshot
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.store.run_folder import RunFolder
from ralphproof.workspace.git_workspace import GitWorkspace
from ralphproof.workspace.scm import CommandScm, GitScm, TurnProgramRunner

if TYPE_CHECKING:
    from tests.workspace.conftest import Repo

    Opens = Callable[..., GitWorkspace]


class Calm:
    """Looks on and wants nothing."""

    def output(self, chunk: bytes) -> None:
        pass

    def tick(self) -> int:
        return CONTINUE


class Run:
    """A run that began on the repository as it is now."""

    def __init__(
        self, repo: Repo, workspace: GitWorkspace, programs: TurnProgramRunner, tasks: tuple[str, ...]
    ) -> None:
        self.repo, self.workspace, self.programs, self.iteration = repo, workspace, programs, 0
        self.scm = GitScm(workspace.root, tasks or ("commit",), programs, environ=repo.environ)
        self.began = workspace.begin("r")

    def work(self, message: str = "work") -> CommitRequest:
        self.iteration += 1
        return CommitRequest(self.iteration, message, self.began, self.workspace.save("r", str(self.iteration)))

    def keep(self, message: str = "work") -> CommitResult:
        return self.scm.commit(self.work(message), Calm())

    def committed(self) -> set[str]:
        listed = self.repo.git("show", "-z", "--name-only", "--format=", "--no-renames", "HEAD")
        return set(listed.split("\0")) - {""}


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Callable[..., TurnProgramRunner]]:
    """Makes what runs programs in a folder; their logs and turn files lie elsewhere."""
    keeper = KeeperClient()
    (tmp_path / "elsewhere").mkdir()

    def made(root: Path, run: str = "r", **more: float) -> TurnProgramRunner:
        folder = RunFolder(str(tmp_path / "elsewhere"), run, str(tmp_path / "state"))
        return TurnProgramRunner(DirectRunner(keeper), folder, str(root), **more)

    yield made
    keeper.close()


@pytest.fixture
def begin(repo: Repo, open_git: Opens, turns: Callable[..., TurnProgramRunner]) -> Callable[..., Run]:
    def begun(*tasks: str, at: Path | None = None, of: Repo = repo, private: str = "private", **more: float) -> Run:
        root = at or of.path
        return Run(of, open_git(of, root, private), turns(root, private, **more), tasks)

    return begun


def hook(repo: Repo, name: str, script: str) -> None:
    repo.write(f".git/hooks/{name}", f"#!/bin/sh\n{script}\n").chmod(0o755)


def test_exactly_the_runs_changes_are_committed(repo: Repo, begin: Callable[..., Run]) -> None:
    """SC-12: new files too."""
    run = begin()
    repo.sh("echo x > src/f1; rm src/f2; mkdir n; echo n > n/new; chmod +x src/f3; ln -s f4 src/link;"
            "echo o > -dash; mkdir build; echo b > build/out; echo e > .env; echo .env >> .gitignore;"
            "mkdir .ralph; echo l > .ralph/log; touch .ralph-active; printf x > \"$(printf 'a\\nb')\";"
            "rm src/f5; mkdir src/f5; echo d > src/f5/d")  # fmt: skip
    kept = run.keep()
    assert kept == CommitResult(repo.git("rev-parse", "HEAD"))
    assert run.committed() == {"src/f1", "src/f2", "n/new", "src/f3", "src/link", "-dash", ".gitignore", "a\nb",
                               "src/f5", "src/f5/d"}  # fmt: skip
    assert repo.git("status", "--porcelain", "--", ".", ":!.ralph", ":!.ralph-active") == ""
    assert repo.git("log", "-1", "--format=%an %B") == "U work\n"[:-1]


def test_what_the_user_had_begun_stays_byte_for_byte(repo: Repo, begin: Callable[..., Run]) -> None:
    """SC-13: staged or not."""
    repo.sh("echo mine >> src/f1; echo staged > src/f2; git add src/f2; echo more >> src/f2; echo new > untracked;"
            "echo added > added; git add added; git rm -q --cached src/f3; rm src/f4; git rm -q src/f5")  # fmt: skip
    status = repo.git("status", "--porcelain", "-uall")
    staged = repo.git("diff", "--cached", "--full-index")
    worktree = repo.git("diff", "--full-index")
    run = begin()
    repo.sh("echo run > src/f6; echo fresh > fresh")
    kept = run.keep()
    assert kept.error == ""
    assert kept.left == ()
    assert run.committed() == {"src/f6", "fresh"}
    assert repo.git("status", "--porcelain", "-uall") == status
    assert repo.git("diff", "--cached", "--full-index") == staged
    assert repo.git("diff", "--full-index") == worktree
    assert (repo.path / "src/f1").read_text() == "1\nmine\n"


@pytest.mark.parametrize("theirs", [
    "echo mine >> src/f1",
    "echo mine >> src/f1; git add src/f1",
    "echo mine >> src/f1; git add src/f1; git checkout -q HEAD -- src/f2; echo 1 > src/f1",
    "git rm -q --cached src/f1",
    "rm src/f1",
    "git update-index --skip-worktree src/f1",
    "git update-index --assume-unchanged src/f1",
    "chmod +x src/f1",
])  # fmt: skip
def test_a_path_that_was_the_users_is_left_and_named(repo: Repo, begin: Callable[..., Run], theirs: str) -> None:
    repo.sh(theirs)
    staged = repo.git("diff", "--cached", "--full-index")
    run = begin()
    repo.sh("echo run > src/f1; echo run > src/f2")
    kept = run.keep()
    assert (kept.error, kept.left) == ("", ("src/f1",))
    assert run.committed() == {"src/f2"}
    assert repo.git("diff", "--cached", "--full-index") == staged
    assert (repo.path / "src/f1").read_text() == "run\n"


def test_an_untracked_file_of_the_users_is_not_swept_in(repo: Repo, begin: Callable[..., Run]) -> None:
    """SC-13: though the run changed others."""
    repo.write("notes", "mine")
    run = begin()
    repo.write("notes", "changed by the run")
    kept = run.keep()
    assert kept == CommitResult(left=("notes",))
    assert repo.git("status", "--porcelain") == "?? notes"


@pytest.mark.parametrize("theirs", ["echo mine > plan", "echo mine > plan; git add plan", "true"])
def test_a_file_of_the_loop_goes_with_the_work_whoever_changed_it_before(
    repo: Repo, begin: Callable[..., Run], theirs: str
) -> None:
    repo.sh(f"{theirs}; echo mine > notes; echo mine > src/f1; git add src/f1")
    run = begin()
    repo.sh("echo run > plan; echo run > notes; echo run > src/f2")
    kept = run.scm.commit(replace(run.work("work"), user_paths=("plan",), loop_paths=("plan", "never there")), Calm())
    assert (kept.error, kept.left) == ("", ("notes",))
    assert run.committed() == {"plan", "src/f2"}
    assert repo.git("status", "--porcelain").split("\n") == ["M  src/f1", "?? notes"]


def test_a_file_of_the_loop_that_was_written_after_the_work_was_saved_goes_with_it(
    repo: Repo, begin: Callable[..., Run]
) -> None:
    repo.sh("echo old > plan; git add plan; git commit -qm plan")
    run = begin()
    work = replace(run.work("work"), loop_paths=("plan",))
    repo.sh("echo new > plan; echo mine > notes")
    kept = run.scm.commit(work, Calm())
    assert (kept.error, kept.left, run.committed()) == ("", (), {"plan"})
    assert repo.git("status", "--porcelain") == "?? notes"


def test_nothing_to_commit_is_no_error(repo: Repo, begin: Callable[..., Run]) -> None:
    run, head = begin(), repo.git("rev-parse", "HEAD")
    assert run.keep() == CommitResult()
    repo.sh("echo x > src/f1; git commit -qam own")
    assert run.keep() == CommitResult()
    assert repo.git("rev-parse", "HEAD~1") == head


def test_a_second_commit_holds_only_what_came_later(repo: Repo, begin: Callable[..., Run]) -> None:
    run = begin()
    repo.write("src/f1", "one")
    assert run.keep("first").commit
    repo.write("src/f2", "two")
    assert run.keep("second").commit
    assert run.committed() == {"src/f2"}


def test_what_is_as_it_was_at_the_start_again_is_committed_so(repo: Repo, begin: Callable[..., Run]) -> None:
    """Whoever committed something else meanwhile, us or the agent: the commit is of the tree that was checked."""
    run, before = begin(), (repo.path / "src/f1").read_text()
    repo.write("src/f1", "one")
    assert run.keep("first").commit
    repo.sh("echo two > src/f2; git add -A; git commit -qm sly; git checkout -q HEAD~1 -- src/f2; git reset -q")
    repo.write("src/f1", before)
    assert run.keep("third").commit
    assert run.committed() == {"src/f1", "src/f2"}
    assert repo.git("diff", "HEAD", "--", "src") == ""


def test_what_an_agent_committed_that_we_never_save_stays_committed(repo: Repo, begin: Callable[..., Run]) -> None:
    run = begin()
    repo.sh("mkdir .ralph; echo '*' > .ralph/.gitignore; echo one > src/f1; git add -f .ralph src; git commit -qm its")
    kept = run.keep("ours")
    assert (kept.commit, kept.error) == (None, "")
    assert repo.git("ls-files", ".ralph").split() == [".ralph/.gitignore"]


def test_an_edit_in_the_second_of_the_users_commit_is_not_taken_for_clean(
    repo: Repo, begin: Callable[..., Run]
) -> None:
    until_next_second()
    repo.sh("echo a > src/f1; git commit -qam a")
    run = begin()
    repo.write("src/f1", "b\n")
    until_next_second()
    assert run.keep().commit
    assert repo.blob("HEAD", "src/f1") == b"b\n"


def until_next_second() -> None:
    """git compares times in whole seconds (2.39 as Debian builds it)."""
    time.sleep(1.0 - time.time() % 1.0)


def test_line_endings_and_filters_are_the_users(repo: Repo, begin: Callable[..., Run]) -> None:
    repo.sh("git config filter.up.clean 'tr a-z A-Z'; git config filter.up.smudge 'tr A-Z a-z';"
            "printf '*.up filter=up\\n*.txt text eol=crlf\\n' > .gitattributes; printf 'abc' > x.up;"
            "printf 'a\\r\\n' > x.txt; git add -A; git commit -qm attributes")  # fmt: skip
    run = begin()
    repo.sh("printf 'def' > x.up; printf 'b\\r\\n' > x.txt")
    kept = run.keep()
    assert (kept.error, kept.left) == ("", ())
    assert repo.blob("HEAD", "x.up") == b"DEF"
    assert repo.blob("HEAD", "x.txt") == b"b\n"
    assert repo.git("status", "--porcelain") == ""


MESSAGES = {
    "an option": ("--amend", "--amend"),
    "a file option": ("-F/etc/passwd", "-F/etc/passwd"),
    "many lines": ("subject\n\nbody\n# kept", "subject\n\nbody\n# kept"),
    "a comment only": ("# heading", "# heading"),
    "NUL": ("a\0b", "ab"),
    "a lone surrogate": ("a\udcff", "a?"),
    "long": ("x" * 1_000_000, "x" * 10_000),
    "shell": ("$(touch ran) `touch ran`", "$(touch ran) `touch ran`"),
}


@pytest.mark.parametrize(("message", "kept"), MESSAGES.values(), ids=MESSAGES)
def test_any_message_is_one_value(repo: Repo, begin: Callable[..., Run], message: str, kept: str) -> None:
    """SC-09: whatever it looks like."""
    run = begin()
    repo.write("src/f1", "x")
    assert run.keep(message).error == ""
    assert repo.git("log", "-1", "--format=%B").rstrip("\n") == kept
    assert repo.git("rev-list", "--count", "HEAD") == "2"
    assert not (repo.path / "ran").exists()


@pytest.mark.parametrize("message", ["", " \n", "\0"])
def test_without_a_message_nothing_is_committed(repo: Repo, begin: Callable[..., Run], message: str) -> None:
    """SC-09: and blanks are none."""
    run = begin()
    repo.write("src/f1", "x")
    assert run.keep(message) == CommitResult(error="no commit message")


def test_the_users_hooks_run_and_may_refuse(repo: Repo, begin: Callable[..., Run]) -> None:
    """SC-11: what they say is told, and nothing goes round them."""
    hook(repo, "pre-commit", "git diff --cached --name-only > ~/seen\ntest ! -e stop || { echo no luck >&2; exit 1; }")
    hook(repo, "commit-msg", "echo signed >> $1")
    run, head = begin(), repo.git("rev-parse", "HEAD")
    repo.sh("echo x > src/f1; echo stop > stop")
    before = repo.git("status", "--porcelain")
    assert "no luck" in run.keep().error
    assert (repo.git("rev-parse", "HEAD"), repo.git("status", "--porcelain")) == (head, before)
    (repo.path / "stop").unlink()
    assert run.keep().error == ""
    assert (repo.home / "seen").read_text() == "src/f1\n"
    assert "signed" in repo.git("log", "-1", "--format=%B")
    assert os.listdir(repo.path / ".git").count("index") == 1
    assert not [name for name in os.listdir(repo.path / ".git") if name.startswith("ralph-index")]


def test_a_hook_that_formats_and_adds_is_followed(repo: Repo, begin: Callable[..., Run]) -> None:
    hook(repo, "pre-commit", "echo formatted > src/f1; git add src/f1")
    run = begin()
    repo.write("src/f1", "ugly")
    assert run.keep().error == ""
    assert repo.blob("HEAD", "src/f1") == b"formatted\n"
    assert repo.git("status", "--porcelain") == ""


@pytest.mark.parametrize("name", ["pre-commit", "post-commit"])
def test_a_hook_that_hangs_is_ended(repo: Repo, begin: Callable[..., Run], name: str) -> None:
    """SC-11: in its time."""
    hook(repo, name, "sleep 60 & echo $! > ~/pid; wait")
    run = begin(timeout_s=1.0)
    repo.write("src/f1", "x")
    started = time.monotonic()
    kept = run.keep()
    assert time.monotonic() - started < 20
    assert "did not finish in time" in kept.error
    assert (kept.commit is not None) == (name == "post-commit")
    assert (repo.git("status", "--porcelain") == "") == (name == "post-commit"), "the index follows what was committed"
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{(repo.home / 'pid').read_text().strip()}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not running(int((repo.home / "pid").read_text()))


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


CHANGED = {
    "a new hook": "printf '#!/bin/sh\\ntouch ~/ran\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "an edited hook": "echo 'touch ~/ran' >> .git/hooks/post-commit",
    "a hook made to run": "chmod +x .git/hooks/commit-msg",
    "another hooks folder": "mkdir h; printf '#!/bin/sh\\ntouch ~/ran\\n' > h/pre-commit; chmod +x h/pre-commit;"
    "git config core.hooksPath h",
    "a filter": "git config filter.e.clean 'touch ~/ran; cat'; echo '* filter=e' > .gitattributes",
    "a signing program": "printf '#!/bin/sh\\ntouch ~/ran\\nexit 1\\n' > ~/gpg; chmod +x ~/gpg;"
    "git config gpg.program ~/gpg; git config commit.gpgsign true",
    "a file that a hook obeys": "echo x > .pre-commit-config.yaml",
    "an included file": "printf '[core]\\nhooksPath = h\\n' > ~/more; git config include.path ~/more",
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_what_a_commit_would_run_may_not_change_during_the_run(
    repo: Repo, begin: Callable[..., Run], change: str
) -> None:
    hook(repo, "post-commit", "true")
    repo.write(".git/hooks/commit-msg", "#!/bin/sh\ntouch ~/ran\n")
    run, head = begin(), repo.git("rev-parse", "HEAD")
    repo.write("src/f1", "x")
    repo.sh(change)
    kept = run.keep()
    assert kept.commit is None
    assert "changed during the run" in kept.error
    assert repo.git("rev-parse", "HEAD") == head
    assert not (repo.home / "ran").exists()


def test_a_resumed_run_still_knows_the_hooks_of_its_start(repo: Repo, begin: Callable[..., Run]) -> None:
    run = begin()
    hook(repo, "pre-commit", "touch ~/ran")
    repo.write("src/f1", "x")
    start = unpack(pack(run.scm.baseline))
    assert start == run.scm.baseline
    run.scm = GitScm(str(repo.path), ("commit",), run.programs, start, repo.environ)
    assert "changed during the run" in run.keep().error


def test_hooks_are_followed_into_the_repository(repo: Repo, begin: Callable[..., Run]) -> None:
    repo.sh("mkdir -p .husky/_; printf '#!/bin/sh\\n. .husky/pre-commit\\n' > .husky/_/pre-commit;"
            "chmod +x .husky/_/pre-commit; echo true > .husky/pre-commit; git config core.hooksPath .husky/_;"
            "git add -A; git commit -qm husky")  # fmt: skip
    run = begin()
    repo.write(".husky/pre-commit", "touch ~/ran")
    assert ".husky/pre-commit" in run.keep().error
    assert not (repo.home / "ran").exists()


REFUSED = {
    "a merge": ("git checkout -qb o; echo o > src/f1; git commit -qam o; git checkout -q main; echo m > src/f1;"
                "git commit -qam m; git merge o || true", "in progress"),
    "a rebase": ("mkdir .git/rebase-merge", "in progress"),
    "a lock": ("touch .git/index.lock", "index.lock"),
}  # fmt: skip


@pytest.mark.parametrize(("script", "word"), REFUSED.values(), ids=REFUSED)
def test_unfinished_business_of_the_users_is_not_touched(
    repo: Repo, begin: Callable[..., Run], script: str, word: str
) -> None:
    run = begin()
    repo.write("src/f2", "x")
    repo.sh(script)
    head = repo.git("rev-parse", "HEAD")
    assert word in run.keep().error
    assert repo.git("rev-parse", "HEAD") == head
    if word == "index.lock":
        assert (repo.path / ".git/index.lock").exists()


def test_an_unknown_state_is_not_committed(repo: Repo, begin: Callable[..., Run]) -> None:
    run = begin()
    assert "unknown" in run.scm.commit(CommitRequest(1, "m", run.began, Snapshot(None, None)), Calm()).error
    assert "unknown" in run.scm.commit(CommitRequest(2, "m", Snapshot(None, None), run.began), Calm()).error


def test_a_detached_head_and_the_first_commit_work(
    repo: Repo, make_repo: Callable[..., Repo], begin: Callable[..., Run]
) -> None:
    repo.git("checkout", "-q", "--detach")
    run = begin()
    repo.write("src/f1", "x")
    assert run.keep().commit == repo.git("rev-parse", "HEAD")
    empty = make_repo(first=False, name="empty")
    empty.write("mine", "x")
    run = begin(of=empty, private="p2")
    empty.write("a/new", "x")
    assert run.keep().commit == empty.git("rev-parse", "HEAD")
    assert empty.git("status", "--porcelain") == "?? mine"


def test_a_linked_worktree_commits_on_its_own_branch(repo: Repo, begin: Callable[..., Run]) -> None:
    repo.git("worktree", "add", "-q", "-b", "side", "../side")
    side = repo.base / "side"
    run = begin(at=side)
    (side / "src/f1").write_text("x")
    assert run.keep().commit == repo.git("rev-parse", "side")
    assert repo.git("-C", str(side), "status", "--porcelain") == ""


def test_work_in_a_repository_inside_is_left(repo: Repo, begin: Callable[..., Run]) -> None:
    run = begin()
    repo.sh("git init -q sub; echo w > sub/w; echo x > src/f1")
    kept = run.keep()
    assert (kept.error, kept.left) == ("", ("sub/w",))
    assert run.committed() == {"src/f1"}


def test_a_missing_name_is_said_in_one_line(repo: Repo, begin: Callable[..., Run]) -> None:
    (repo.home / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    run = begin()
    repo.write("src/f1", "x")
    error = run.keep().error
    assert "user.email" in error or "user.name" in error
    assert "\n" not in error


def test_push_follows_the_commit_and_its_failure_is_told(repo: Repo, begin: Callable[..., Run]) -> None:
    repo.sh("git init -q --bare ../far; git remote add origin ../far; git push -q -u origin main")
    run = begin("commit", "push")
    repo.write("src/f1", "x")
    kept = run.keep()
    assert kept.error == ""
    assert repo.git("ls-remote", "origin", "main").split()[0] == kept.commit
    repo.sh("rm -rf ../far")
    repo.write("src/f1", "y")
    kept = run.keep()
    assert kept.commit == repo.git("rev-parse", "HEAD")
    assert kept.error.startswith("git push: ")
    assert "\n" not in kept.error


def test_a_push_goes_nowhere_else_than_at_the_start(repo: Repo, begin: Callable[..., Run]) -> None:
    repo.sh("git init -q --bare ../far; git init -q --bare ../evil; git remote add origin ../far;"
            "git push -q -u origin main")  # fmt: skip
    run = begin("commit", "push")
    repo.write("src/f1", "x")
    repo.sh("git remote set-url origin ../evil")
    kept = run.keep()
    assert kept.commit
    assert "remote.origin.url" in kept.error
    assert repo.git("ls-remote", "../evil") == ""


def test_push_never_asks(repo: Repo, begin: Callable[..., Run]) -> None:
    """SC-10: it fails, and that is told."""
    asks = "#!/bin/sh\nread x </dev/tty && exit 0\necho no terminal >&2; exit 1\n"
    repo.write("../git-remote-ask", asks).chmod(0o755)
    repo.environ["PATH"] = f"{repo.base}:{repo.environ['PATH']}"
    repo.sh("git remote add origin ask::x; git config branch.main.remote origin")
    run = begin("push", timeout_s=10)
    assert run.keep().error.startswith("git push: ")


@pytest.mark.parametrize("task", ["--upload-pack=x", "", "-c"])
def test_a_task_is_never_an_option(repo: Repo, begin: Callable[..., Run], task: str) -> None:
    assert "not a git command" in begin(task).keep().error


def test_commit_runs_only_when_asked_for(repo: Repo, begin: Callable[..., Run]) -> None:
    run = begin("status")
    repo.write("src/f1", "x")
    assert run.keep() == CommitResult()
    assert repo.git("rev-list", "--count", "HEAD") == "1"


def test_nothing_is_committed_while_git_does_not_tell_what_head_is(repo: Repo, begin: Callable[..., Run]) -> None:
    """Upon the empty tree, a commit would delete all files that it does not name."""
    run = begin()
    repo.write("src/f1", "x")
    work, environ = run.work(), repo.asking_first('case "$*" in *"--verify HEAD"*) exit 0;; esac')
    scm = GitScm(run.workspace.root, ("commit",), run.programs, run.scm.baseline, environ)
    assert "which is no commit" in scm.commit(work, Calm()).error
    assert repo.git("rev-list", "--count", "HEAD") == "1"


def test_a_repository_around_ours_is_never_committed_to(repo: Repo, begin: Callable[..., Run]) -> None:
    repo.sh("git init -q inner; cd inner; git commit -q --allow-empty -m x")
    run = begin(at=repo.path / "inner")
    repo.write("inner/x", "x")
    work = run.work()
    repo.sh("rm -rf inner/.git")
    assert run.scm.commit(work, Calm()).error
    assert repo.git("rev-list", "--count", "HEAD") == "1"


def test_a_folder_without_git_is_refused(tmp_path: Path, turns: Callable[..., TurnProgramRunner]) -> None:
    with pytest.raises(Refused):
        GitScm(str(tmp_path), ("commit",), turns(tmp_path))


def test_another_scm_gets_each_task_and_the_message_as_one_argument(
    tmp_path: Path, turns: Callable[..., TurnProgramRunner]
) -> None:
    program = tmp_path / "bin" / "fake"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\npwd >> ../said\nfor a; do printf '<%s>' \"$a\"; done >> ../said\n"
                       "test $2 != fails || { echo broken >&2; exit 3; }\n")  # fmt: skip
    program.chmod(0o755)
    root = tmp_path / "root"
    root.mkdir()
    environ = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    scm = CommandScm("fake --quiet", ("commit", "push"), str(root), turns(root), environ)
    nothing = Snapshot(None, None)
    kept = CommitResult(done=("commit", "push"))
    work = CommitRequest(1, "--amend 'x'\n$(y)", nothing, nothing)
    assert scm.commit(work, Calm()) == kept
    said = (tmp_path / "said").read_text()
    assert said == f"{root}\n<--quiet><commit><-m><--amend 'x'\n$(y)>{root}\n<--quiet><push>"
    assert scm.commit(work, Calm()) == kept
    assert (tmp_path / "said").read_text() == said, "what ran for this iteration does not run again"
    failing = CommandScm("fake -q", ("status", "fails", "push"), str(root), turns(root), environ)
    failed = failing.commit(CommitRequest(2, "m", nothing, nothing), Calm())
    assert failed == CommitResult(None, "fake fails: broken", (), ("status",))
    assert scm.commit(CommitRequest(3, "", nothing, nothing), Calm()).error == "no commit message"
    with pytest.raises(Refused):
        CommandScm("nonesuch", ("commit",), str(root), turns(root), environ)


@pytest.mark.parametrize("hooks", [{}, {"post-commit": "exit 1"}, {"pre-commit": "echo y > src/f1; git add src/f1"}])
def test_a_commit_that_a_dead_harness_ran_is_told_and_not_made_again(
    repo: Repo, begin: Callable[..., Run], hooks: dict[str, str]
) -> None:
    for name, script in hooks.items():
        hook(repo, name, script)
    run = begin()
    repo.write("src/f1", "x")
    work = run.work()
    first = run.scm.commit(work, Calm())
    assert run.scm.commit(work, Calm()) == first == CommitResult(repo.git("rev-parse", "HEAD"))
    assert repo.git("rev-list", "--count", "HEAD") == "2"
    assert repo.git("status", "--porcelain") == ""


def test_a_refused_commit_of_a_dead_harness_is_told_and_not_tried_again(repo: Repo, begin: Callable[..., Run]) -> None:
    hook(repo, "pre-commit", "echo >> ~/asked; echo no luck; exit 1")
    run = begin()
    repo.write("src/f1", "x")
    work = run.work()
    assert run.scm.commit(work, Calm()).error == run.scm.commit(work, Calm()).error == "git commit: no luck"
    assert (repo.home / "asked").read_text() == "\n"


def test_indexes_that_dead_processes_left_are_swept_and_those_of_living_ones_stay(
    repo: Repo, begin: Callable[..., Run]
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    names = [f"ralph-index-{ended.pid}", f"ralph-index-{ended.pid}.lock", f"ralph-index-{os.getpid()}.lock"]
    for name in (*names, f"ralph-index-{os.getppid()}", "ralph-index-x"):
        repo.write(f".git/{name}", "x")
    run = begin()
    repo.write("src/f1", "x")
    assert run.keep().error == ""
    left = {name for name in os.listdir(repo.path / ".git") if name.startswith("ralph-index")}
    assert left == {f"ralph-index-{os.getppid()}", "ralph-index-x"}


def test_only_the_end_of_a_long_output_is_told(repo: Repo, begin: Callable[..., Run]) -> None:
    hook(repo, "pre-commit", "seq 100000; echo the reason; exit 1")
    run = begin()
    repo.write("src/f1", "x")
    error = run.keep().error
    assert error.startswith("git commit: ... ")
    assert error.endswith("100000 the reason")
    assert len(error) < 600
