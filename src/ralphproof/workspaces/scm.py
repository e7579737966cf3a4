"""Keeping passed work where the user keeps theirs: a commit that holds the run's changes and nothing else."""

from __future__ import annotations

import os
import shlex

from ralphproof.check import slugs
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.workspace import Committed
from ralphproof.workspaces.astray import astray, elsewhere
from ralphproof.workspaces.beside import IndexBeside
from ralphproof.workspaces.gitcall import NOTHING_RUNS, Reply, call, find_program, plain_environment
from ralphproof.workspaces.layout import git_folders, is_id
from ralphproof.workspaces.pinned import changed, hook_marks, settings_marks
from ralphproof.workspaces.staging import choose, raw_changes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.sandbox import Watch
    from ralphproof.workspace import Work
    from ralphproof.workspaces.owned import Programs
    from ralphproof.workspaces.pinned import Marks
    from ralphproof.workspaces.staging import Staging

TIMEOUT_S = 60.0  # of a git call that runs no hook
LONGEST_MESSAGE = 10_000
UNFINISHED = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
USERS_HOOKS_RUN = ("-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false")


class _Refusal(Exception):
    """Nothing was committed, and this is why."""


@value
class ScmStart:
    """What a commit would have run, and what the user had staged, when the run began. Kept for a resumed run."""

    commit_marks: Marks
    send_marks: Marks
    staged: tuple[str, ...]
    branch: str = ""  # empty: none was checked out


class GitScm:
    """Commits with the user's own hooks and settings, as they were when the run began.

    The user's index keeps what they staged; their files are only read. Whatever may run hooks is run by `programs`.
    """

    def __init__(
        self, root: str, tasks: tuple[str, ...], programs: Programs, start: ScmStart | None = None,
        environ: Mapping[str, str] | None = None, inside: Programs | None = None,
    ) -> None:  # fmt: skip
        """`inside` runs programs in the run's sandbox: hooks start what the project holds, and an agent wrote that."""
        self.root, self.tasks, self._programs, self._inside = os.path.realpath(root), tasks, programs, inside
        environ = os.environ if environ is None else environ
        folders = git_folders(self.root)
        git = find_program("git", environ.get("PATH", os.defpath), outside=self.root)
        if folders is None or git is None:
            raise Refused(f"{self.root}: no git repository, or no git")
        self._git, self._git_dir, self._folders = git, folders.git_dir, folders
        above = os.path.dirname(self.root)  # a repository around ours is not ours
        self._env = plain_environment(environ) | {"GIT_CEILING_DIRECTORIES": above}
        try:
            self.start = start or self._look()
        except _Refusal as refusal:
            raise Refused(str(refusal)) from refusal

    def _look(self) -> ScmStart:
        listed = self._ask("diff-index", "--cached", "-z", "--name-only", "--no-renames", self._base()).out
        staged = tuple(sorted(path.decode("utf-8", "surrogateescape") for path in listed.split(b"\0") if path))
        return ScmStart(*self._marks(), staged, self._branch())

    def _branch(self) -> str:
        """The branch that is checked out; empty where none is."""
        name = self._ask("symbolic-ref", "-q", "HEAD", good=(0, 1)).out.decode("utf-8", "surrogateescape")
        return name.strip().removeprefix("refs/heads/")

    def _elsewhere(self) -> str:
        """What to say where the commit is not on the branch that the run began on."""
        begun, now = self.start.branch, self._branch()
        if begun == now:
            return ""
        place = f"on branch {now}" if now else "on no branch"
        if not begun:
            return f"committed {place}; the run began on none"
        merge = shlex.quote(now) if now else "COMMIT"
        back = f"git switch {shlex.quote(begun)} && git merge {merge}"
        return f"committed {place}, not on {begun}, where the run began; to have it there: {back}"

    def _marks(self) -> tuple[Marks, Marks]:
        settings = self._ask("config", "-z", "--list").out
        found = call([self._git, "-C", self.root, "rev-parse", "--git-path", "hooks"], self._env)
        if found.code != 0:
            raise _Refusal(f"git rev-parse: {found.said or found.code}")
        hooks = os.path.normpath(os.path.join(self.root, os.fsdecode(found.out[:-1])))
        commit = tuple(sorted(settings_marks(settings, sending=False) + hook_marks(hooks, self.root)))
        return commit, settings_marks(settings, sending=True)

    def keep(self, work: Work, watch: Watch) -> Committed:
        """Commit exactly what the run changed, then do whatever else was asked for. The first failure ends it."""
        kept = Committed()
        for task, slug in zip(self.tasks, slugs(self.tasks), strict=True):
            name = f"scm_{work.iteration:03d}_{slug}"
            try:
                kept = self._commit(work, name, watch) if task == "commit" else self._other(task, kept, name, watch)
            except (_Refusal, OSError) as refusal:
                return replace(kept, error=str(refusal))
            if kept.error:
                return kept
        return kept

    def _commit(self, work: Work, name: str, watch: Watch) -> Committed:
        text, began, now = clean_message(work.message), work.began, work.now
        if not text:
            raise _Refusal("no commit message")
        if began.tree is None or now.tree is None:
            raise _Refusal("the state of the files is unknown, so nothing is committed")
        if self._programs.began(name):  # by a harness that died: what it left out is not known any more
            return self._run_commit(text, now.head or self._empty(), name, self._env, watch)
        self._must_be_free()
        self._must_be_unchanged(self.start.commit_marks, self._marks()[0])
        theirs, ours = frozenset((*self.start.staged, *work.theirs)), frozenset(work.ours)
        staging = choose(self._ask, self.root, began, now, self._empty(), theirs, ours)
        if not (staging.add or staging.remove):
            return Committed(left=staging.left)
        with IndexBeside(self._git_dir) as index:
            env, before = self._env | {"GIT_INDEX_FILE": index.path}, self._base()
            if self._stage(staging, index, before, env):
                return replace(self._run_commit(text, before, name, env, watch), left=staging.left)
        return Committed(left=staging.left)

    def _must_be_free(self) -> None:
        for name in UNFINISHED:
            if os.path.lexists(os.path.join(self._git_dir, name)):
                raise _Refusal(f"a merge, rebase or the like is in progress ({name}); finish it first")
        lock = os.path.join(self._git_dir, "index.lock")
        if os.path.lexists(lock):
            raise _Refusal(f"another git process seems to be at work: {lock} exists")
        self._must_lead_nowhere()

    def _must_lead_nowhere(self) -> None:
        """Git would write what an agent says to where an agent's link leads."""
        if found := astray(self.root, self._folders):
            raise _Refusal(elsewhere(found))

    def _must_be_unchanged(self, before: Marks, now: Marks) -> None:
        if names := changed(before, now):
            raise _Refusal("refused, because this changed during the run: " + ", ".join(names[:5]))

    def _stage(self, staging: Staging, index: IndexBeside, base: str, env: Mapping[str, str]) -> bool:
        """Make the index that of HEAD and the run's changes; whether that differs from HEAD."""
        merge = ("-i", "-m") if index.copied else ()  # keeps what is known of unchanged files
        self._ask("read-tree", *merge, base, env=env)
        for paths, how in ((staging.remove, "--force-remove"), (staging.add, "--replace")):
            if paths:
                stdin = b"".join(path + b"\0" for path in paths)
                self._ask("update-index", "--add", how, "-z", "--stdin", env=env, stdin=stdin)
        return self._ask("write-tree", env=env).out != self._ask("rev-parse", f"{base}^{{tree}}").out

    def _run_commit(self, text: str, before: str, name: str, env: Mapping[str, str], watch: Watch) -> Committed:
        argv = (self._git, *USERS_HOOKS_RUN, "commit", "-q", "--cleanup=whitespace", "-m", text)
        programs = self._inside if self._inside and self._hooks() else self._programs
        trouble = programs.run(name, argv, env, watch)
        after = self._base()
        if after == before:
            raise _Refusal(f"git commit{trouble or ' committed nothing'}")
        behind = self._show_as_clean(before, after)  # also where git was cut off when it had committed
        return Committed(after, f"git commit{trouble}" if trouble else behind, elsewhere=self._elsewhere())

    def _show_as_clean(self, before: str, after: str) -> str:
        """Bring the user's index up to date at the committed paths only; return what went wrong."""
        if not os.path.exists(os.path.join(self._git_dir, "index")) and before != self._empty():
            return ""  # they have none: nothing to bring up to date
        try:
            self._must_lead_nowhere()  # hooks ran meanwhile
            changes = raw_changes(self._ask, before, after)
            self._ask("update-index", "-z", "--index-info", stdin=b"".join(change.for_index for change in changes))
            self._ask("update-index", "-q", "--refresh", good=(0, 1))
        except _Refusal as refusal:
            return f"committed, but the index could not follow: {refusal}"
        return ""

    def _other(self, task: str, kept: Committed, name: str, watch: Watch) -> Committed:
        if not task or task.startswith("-"):
            raise _Refusal(f"{task!r} is not a git command")
        if not self._programs.began(name):
            self._must_lead_nowhere()
            now = self._marks()
            self._must_be_unchanged(self.start.commit_marks + self.start.send_marks, now[0] + now[1])
        if self._inside and (hooks := self._hooks()):
            raise _Refusal(f"git {task} is left to you: it needs your login, and might run a hook outside ({hooks[0]})")
        trouble = self._programs.run(name, (self._git, *USERS_HOOKS_RUN, task), self._env, watch)
        return replace(kept, error=f"git {task}{trouble}") if trouble else kept

    def _hooks(self) -> list[str]:
        """The hooks that the user had when the run began."""
        return [name.removeprefix("hook ") for name, _ in self.start.commit_marks if name.startswith("hook ")]

    def _base(self) -> str:
        """The commit that HEAD names, or the empty tree before the first one."""
        reply = self._ask("rev-parse", "-q", "--verify", "HEAD", good=(0, 1))
        if reply.code:
            return self._empty()
        found = reply.out.strip().decode()
        if not is_id(found):  # on the empty tree, a commit would delete everything that it does not name
            raise _Refusal(f"git rev-parse: HEAD is {found!r}, which is no commit")
        return found

    def _empty(self) -> str:
        return self._ask("hash-object", "-t", "tree", "-w", "--stdin").out.strip().decode()

    def _ask(
        self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, good: tuple[int, ...] = (0,)
    ) -> Reply:
        argv = [self._git, "-C", self.root, *NOTHING_RUNS, *args]
        reply = call(argv, env or self._env, stdin, timeout_s=TIMEOUT_S)
        if reply.code not in good:
            raise _Refusal(f"git {args[0]}: {reply.said or reply.code}")
        return reply


def clean_message(message: str) -> str:
    """The message as one argument that every SCM takes: no NUL, no lone surrogate, bounded."""
    return message.replace("\0", "").strip()[:LONGEST_MESSAGE].encode("utf-8", "replace").decode()
