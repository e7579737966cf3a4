"""A commit of exactly the given paths, for the user, with their hooks."""

from __future__ import annotations

import os

from ralphproof.base.child_processes import RegisterChild, unregister_child
from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.git_layout import git_folders, is_object_id
from ralphproof.base.run_program import ProgramResult, find_program, run_program
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.workspace import CommitResult
from ralphproof.workspace.git_command import (
    NO_HOOKS_OPTIONS,
    disabled_filters_environment,
    find_local_filters,
    user_git_environment,
)
from ralphproof.workspace.scm import OUTPUT_TAIL_BYTES, OUTPUT_TAIL_CHARS
from ralphproof.workspace.staging import (
    GIT_TIMEOUT_S,
    UNFINISHED_OPERATIONS,
    USER_HOOKS_OPTIONS,
    TemporaryIndex,
    git_ignored_paths,
    list_raw_changes,
)
from ralphproof.workspace.unsafe_paths import refuse_unsafe_repository

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from subprocess import Popen

HOOKS_TIMEOUT_S = 600.0
GRACE_S = 2.0


class PathCommit:
    """Commits paths of the repository whose work tree is `root`; raises Refused where git fails.

    `commit_id` is set as soon as the commit exists, even if an interrupt follows.
    """

    def __init__(self, root: str, environ: Mapping[str, str]) -> None:
        self._root = os.path.realpath(root)
        folders, git = git_folders(self._root), find_program("git", environ.get("PATH", os.defpath), outside=self._root)
        if folders is None or git is None:
            raise Refused(f"{self._root}: no git repository, or no git")
        self._git, self._git_dir, self.commit_id = git, folders.git_dir, ""
        self._folders = folders
        above = os.path.dirname(self._root)  # a repository around ours is not ours
        self._env = user_git_environment(environ) | {"GIT_CEILING_DIRECTORIES": above}
        self._env |= disabled_filters_environment(find_local_filters(git, self._root, folders, self._env))

    def refuse_unfinished(self) -> None:
        """Raise Refused during a merge or the like, while another git process runs, or where links lead elsewhere."""
        refuse_unsafe_repository(self._root, self._folders)
        for name in UNFINISHED_OPERATIONS:
            if os.path.lexists(os.path.join(self._git_dir, name)):
                raise Refused(f"a merge, rebase or the like is in progress ({name}); finish it first")
        lock = os.path.join(self._git_dir, "index.lock")
        if os.path.lexists(lock):
            raise Refused(f"another git process seems to be at work: {lock} exists")

    def commit(self, add: Sequence[str], remove: Sequence[str], message: str) -> CommitResult:
        """Commit the present content of the paths in `add` and the removal of those in `remove`; no commit without a
        change.

        Ignored paths are left out. A failure after the commit is returned in `error`.
        """
        self.refuse_unfinished()
        self.commit_id = ""
        ignored, before = set(self.list_ignored(add)), self._head_or_empty_tree()
        wanted = [path for path in add if path not in ignored]
        with TemporaryIndex(self._git_dir) as index:
            env = self._env | {"GIT_INDEX_FILE": index.path}
            merge = ("-i", "-m") if index.copied else ()
            self._run_git("read-tree", *merge, before, env=env)
            for paths, how in ((remove, "--force-remove"), (wanted, "--replace")):
                if paths:
                    self._run_git("update-index", "--add", how, "-z", "--stdin", env=env, stdin=_path_list(paths))
            if self._run_git("write-tree", env=env).out != self._run_git("rev-parse", f"{before}^{{tree}}").out:
                self._run(message, before, env)
        try:
            self._update_user_index(before, [*wanted, *remove])
        except Refused as refusal:
            return CommitResult(self.commit_id or None, f"committed, but the index could not follow: {refusal}")
        return CommitResult(self.commit_id or None)

    def _run(self, message: str, before: str, env: Mapping[str, str]) -> None:
        argv = [self._git, "-C", self._root, *USER_HOOKS_OPTIONS, "commit", "-q", "--cleanup=whitespace", "-m", message]
        try:
            trouble = run_with_hooks(argv, env)
        except KeyboardInterrupt:
            if self._head_or_empty_tree() == before:
                raise
            trouble = ""  # it came too late
        after = self._head_or_empty_tree()
        if after == before:
            raise Refused(f"git commit: {trouble or 'nothing was committed'}")
        self.commit_id = after

    def _update_user_index(self, before: str, paths: Sequence[str]) -> None:
        """Update the user's index at the committed paths: they show as clean, all others as before."""
        if not os.path.exists(os.path.join(self._git_dir, "index")) and before != self._empty_tree():
            return  # they have none
        if self.commit_id:
            entries = b"".join(change.index_line for change in list_raw_changes(self._run_git, before, self.commit_id))
        else:
            entries = self._entries(before, paths)
        self._run_git("update-index", "-z", "--index-info", stdin=entries)
        self._run_git("update-index", "-q", "--refresh", good=(0, 1))

    def _entries(self, commit: str, paths: Sequence[str]) -> bytes:
        """The entries of a commit at these paths, as input of `update-index --index-info`; mode 0 removes a path."""
        if not paths:
            return b""
        listed = self._run_git("ls-tree", "-z", "--full-tree", commit, "--", *paths).out
        has = {line.partition(b"\t")[2]: line + b"\0" for line in listed.split(b"\0") if line}
        nothing = b"0" * len(self._empty_tree())
        return b"".join(has.get(path, b"0 %s\t%s\0" % (nothing, path)) for path in map(os.fsencode, paths))

    def list_ignored(self, paths: Sequence[str]) -> list[str]:
        """Those of the paths that are ignored by git."""
        ignored = git_ignored_paths(self._run_git, map(os.fsencode, paths))
        return [path for path in paths if os.fsencode(path) in ignored]

    def is_detached(self) -> bool:
        """Whether no branch is checked out."""
        return self._run_git("symbolic-ref", "-q", "HEAD", good=(0, 1)).code != 0

    def _head_or_empty_tree(self) -> str:
        reply = self._run_git("rev-parse", "-q", "--verify", "HEAD", good=(0, 1))
        if reply.code:
            return self._empty_tree()
        commit = reply.out.strip().decode()
        if not is_object_id(commit):
            raise Refused(f"git rev-parse: HEAD is {commit!r}, which is no commit")
        return commit

    def _empty_tree(self) -> str:
        return self._run_git("hash-object", "-t", "tree", "-w", "--stdin").out.strip().decode()

    def _run_git(
        self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, good: tuple[int, ...] = (0,)
    ) -> ProgramResult:
        reply = run_program(
            [self._git, "-C", self._root, *NO_HOOKS_OPTIONS, *args], env or self._env, stdin, timeout_s=GIT_TIMEOUT_S
        )
        if reply.code not in good:
            raise Refused(f"git {args[0]}: {reply.said or reply.code}")
        return reply


def _path_list(paths: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def run_with_hooks(argv: Sequence[str], env: Mapping[str, str], timeout_s: float = HOOKS_TIMEOUT_S) -> str:
    """Run a program that may run the user's hooks. Returns its error output, or nothing. An interrupt ends the program.

    The output goes to a file: a process that a hook leaves behind could hold a pipe open for ever.
    """
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as output:
        try:
            with RegisterChild() as note:
                process = subprocess.Popen(
                    argv, env=dict(env), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
                note(process.pid)
        except OSError as error:
            raise HarnessFailed(f"cannot start {argv[0]}: {error.strerror}") from error
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            _terminate(process)
            return f"it did not finish in time ({timeout_s:g} s)"
        except BaseException:
            _terminate(process)
            raise
        finally:
            unregister_child(process.pid)
        output.seek(max(0, output.seek(0, os.SEEK_END) - OUTPUT_TAIL_BYTES))
        text = " ".join(output.read().decode("utf-8", "replace").split())
    if process.returncode == 0:
        return ""
    text = text if len(text) <= OUTPUT_TAIL_CHARS else f"... {text[-OUTPUT_TAIL_CHARS:]}"
    return text or f"it ended with {process.returncode}"


def _terminate(process: Popen[bytes]) -> None:
    """End a program and its children: SIGTERM first, so that it can remove its locks."""
    import signal
    import subprocess

    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.wait()
