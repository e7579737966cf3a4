"""Commits of passed work for the user, with git or another program, with their hooks as they were at the start."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import git_folders, head_commit, is_object_id
from ralphproof.base.programs import ProgramResult, find_program, run_program
from ralphproof.base.text import unique_slugs
from ralphproof.base.value import replace, value
from ralphproof.engine.environment import RunFiles
from ralphproof.engine.sandbox import Command, CommandWatcher, Exit, Sandbox
from ralphproof.engine.workspace import CommitRequest, CommitResult
from ralphproof.workspace.commits import (
    GIT_TIMEOUT_S,
    UNFINISHED_OPERATIONS,
    USER_HOOKS_OPTIONS,
    StagingPlan,
    TemporaryIndex,
    choose_staged_paths,
    list_raw_changes,
)
from ralphproof.workspace.git_command import (
    NO_HOOKS_OPTIONS,
    describe_unsafe_path,
    find_git,
    find_unsafe_path,
    require_repository,
    user_git_environment,
)

Fingerprints = tuple[tuple[str, str], ...]  # what, digest


# Fingerprints of what a commit or a push would execute, by which later changes are noticed.


COMMIT_KEYS = frozenset((
    "core.hookspath", "core.fsmonitor", "core.attributesfile", "core.worktree", "core.sshcommand", "core.gitproxy",
    "core.askpass", "commit.gpgsign", "commit.template", "user.signingkey", "core.alternaterefscommand",
))  # fmt: skip
COMMIT_SECTIONS = ("gpg.", "filter.", "hook.")
PUSH_SECTIONS = ("remote.", "url.", "credential.", "alias.", "push.", "http.", "https.", "protocol.", "ssh.")
HOOK_TOOL_FILES = (
    ".pre-commit-config.yaml",
    "lefthook.yml",
    "lefthook.yaml",
    ".lefthook.yml",
    ".huskyrc",
    ".lintstagedrc",
)
MAX_HASHED_BYTES = 1 << 22


def config_fingerprints(listed: bytes, sending: bool) -> Fingerprints:
    """Fingerprints of settings that name a program or decide where work is sent; from `git config -z --list`."""
    values: dict[str, list[bytes]] = {}
    for record in listed.split(b"\0"):
        name, _, text = record.partition(b"\n")
        key = name.decode("utf-8", "replace")
        if _is_push_key(key) if sending else key in COMMIT_KEYS or key.startswith(COMMIT_SECTIONS):
            values.setdefault(key, []).append(text)
    return tuple((f"setting {key}", _digest(b"\0".join(texts))) for key, texts in sorted(values.items()))


def _is_push_key(key: str) -> bool:
    where = key.startswith("branch.") and key.endswith((".remote", ".pushremote", ".merge"))
    return where or key.startswith(PUSH_SECTIONS)


def hook_fingerprints(hooks: str, root: str) -> Fingerprints:
    """Fingerprints of the hooks that git would run, and of the configuration files of well-known hook tools."""
    marks = dict(_folder_fingerprints(hooks))
    if not marks:
        return ()
    above = os.path.dirname(hooks)
    if os.path.realpath(hooks).startswith(root + "/") and ".git" not in hooks.split("/") and above != root:
        marks |= _folder_fingerprints(above)
    for name in HOOK_TOOL_FILES:
        marks |= _file_fingerprint(os.path.join(root, name))
    return tuple(sorted(marks.items()))


def _folder_fingerprints(folder: str) -> Iterator[tuple[str, str]]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if not name.endswith(".sample"):
            yield from _file_fingerprint(os.path.join(folder, name)).items()


def program_fingerprints(words: Sequence[str], root: str) -> Fingerprints:
    """Fingerprints of the project's files that a command names."""
    named = (os.path.normpath(os.path.join(root, word)) for word in words)
    marks: dict[str, str] = {}
    for file in named:
        if file.startswith(root + "/"):
            marks |= _file_fingerprint(file, "program")
    return tuple(sorted(marks.items()))


def _file_fingerprint(file: str, what: str = "hook") -> dict[str, str]:
    """Links are followed: their target is what would run."""
    try:
        if not os.path.isfile(file):
            return {}
        with open(file, "rb") as opened:
            content = opened.read(MAX_HASHED_BYTES)
        runs = b"x" if os.access(file, os.X_OK) else b"-"
    except OSError as error:
        return {f"{what} {file}": f"unreadable {error.errno}"}
    return {f"{what} {file}": _digest(runs + content)}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def changed_fingerprints(before: Fingerprints, now: Fingerprints) -> list[str]:
    """The names of fingerprints that differ."""
    return sorted({name for name, _ in set(before) ^ set(now)})


MAX_MESSAGE_CHARS = 10_000


class _CommitRefused(Exception):
    """Nothing was committed; the text is the reason."""


@value
class ScmBaseline:
    """What a commit would execute, and what the user had staged, at the start of the run. Stored for a resumed run."""

    commit_fingerprints: Fingerprints
    push_fingerprints: Fingerprints
    staged: tuple[str, ...]
    branch: str = ""  # empty: none was checked out


class GitScm:
    """Commits with the user's hooks and settings, as they were at the start of the run.

    The user's index keeps what they staged; their files are only read. `programs` runs everything that may run hooks.
    """

    def __init__(
        self, root: str, tasks: tuple[str, ...], programs: TurnProgramRunner, baseline: ScmBaseline | None = None,
        environ: Mapping[str, str] | None = None, sandboxed: TurnProgramRunner | None = None,
    ) -> None:  # fmt: skip
        """`sandboxed` runs programs in the run's sandbox: hooks may execute files that an agent wrote."""
        self.root, self.tasks, self._programs, self._sandboxed = os.path.realpath(root), tasks, programs, sandboxed
        environ = os.environ if environ is None else environ
        self._git, self._folders = find_git(environ, self.root), require_repository(self.root)
        self._git_dir = self._folders.git_dir
        above = os.path.dirname(self.root)  # a repository around ours is not ours
        self._env = user_git_environment(environ) | {"GIT_CEILING_DIRECTORIES": above}
        try:
            self.baseline = baseline or self._read_baseline()
        except _CommitRefused as refusal:
            raise Refused(str(refusal)) from refusal

    def _read_baseline(self) -> ScmBaseline:
        listed = self._run_git(
            "diff-index", "--cached", "-z", "--name-only", "--no-renames", self._head_or_empty_tree()
        ).out
        staged = tuple(sorted(path.decode("utf-8", "surrogateescape") for path in listed.split(b"\0") if path))
        return ScmBaseline(*self._fingerprints(), staged, self._branch())

    def _branch(self) -> str:
        """The branch that is checked out; empty where HEAD is detached."""
        name = self._run_git("symbolic-ref", "-q", "HEAD", good=(0, 1)).out.decode("utf-8", "surrogateescape")
        return name.strip().removeprefix("refs/heads/")

    def _describe_other_branch(self) -> str:
        """A note where the commit is not on the branch on which the run began."""
        begun, now = self.baseline.branch, self._branch()
        if begun == now:
            return ""
        place = f"on branch {now}" if now else "on no branch"
        if not begun:
            return f"committed {place}; the run began on none"
        merge = shlex.quote(now) if now else "COMMIT"
        back = f"git switch {shlex.quote(begun)} && git merge {merge}"
        return f"committed {place}, not on {begun}, where the run began; to have it there: {back}"

    def _fingerprints(self) -> tuple[Fingerprints, Fingerprints]:
        settings = self._run_git("config", "-z", "--list").out
        hooks_path = run_program([self._git, "-C", self.root, "rev-parse", "--git-path", "hooks"], self._env)
        if hooks_path.code != 0:
            raise _CommitRefused(f"git rev-parse: {hooks_path.said or hooks_path.code}")
        hooks = os.path.normpath(os.path.join(self.root, os.fsdecode(hooks_path.out[:-1])))
        commit = tuple(sorted(config_fingerprints(settings, sending=False) + hook_fingerprints(hooks, self.root)))
        return commit, config_fingerprints(settings, sending=True)

    def commit(self, request: CommitRequest, watch: CommandWatcher) -> CommitResult:
        """Commit exactly the changes of the run, then do the other tasks. The first failure ends it."""
        result = CommitResult()
        for task, slug in zip(self.tasks, unique_slugs(self.tasks), strict=True):
            name = f"scm_{request.iteration:03d}_{slug}"
            try:
                result = (
                    self._commit(request, name, watch)
                    if task == "commit"
                    else self._run_task(task, result, name, watch)
                )
            except (_CommitRefused, OSError) as refusal:
                return replace(result, error=str(refusal))
            if result.error:
                return result
        return result

    def _commit(self, work: CommitRequest, name: str, watch: CommandWatcher) -> CommitResult:
        text, began, now = clean_message(work.message), work.began, work.now
        if not text:
            raise _CommitRefused("no commit message")
        if began.tree is None or now.tree is None:
            raise _CommitRefused("the state of the files is unknown, so nothing is committed")
        if self._programs.was_started(name):  # by a harness that died: what it left out is not known any more
            return self._run_commit(text, now.head or self._empty_tree(), name, self._env, watch)
        self._refuse_unfinished()
        self._refuse_changed(self.baseline.commit_fingerprints, self._fingerprints()[0])
        theirs, ours = frozenset((*self.baseline.staged, *work.user_paths)), frozenset(work.loop_paths)
        staging = choose_staged_paths(self._run_git, self.root, began, now, self._empty_tree(), theirs, ours)
        if not (staging.add or staging.remove):
            return CommitResult(left=staging.left_out)
        with TemporaryIndex(self._git_dir) as index:
            env, before = self._env | {"GIT_INDEX_FILE": index.path}, self._head_or_empty_tree()
            if self._stage(staging, index, before, env):
                return replace(self._run_commit(text, before, name, env, watch), left=staging.left_out)
        return CommitResult(left=staging.left_out)

    def _refuse_unfinished(self) -> None:
        for name in UNFINISHED_OPERATIONS:
            if os.path.lexists(os.path.join(self._git_dir, name)):
                raise _CommitRefused(f"a merge, rebase or the like is in progress ({name}); finish it first")
        lock = os.path.join(self._git_dir, "index.lock")
        if os.path.lexists(lock):
            raise _CommitRefused(f"another git process seems to be at work: {lock} exists")
        self._refuse_unsafe()

    def _refuse_unsafe(self) -> None:
        """Raise where git would write through links that an agent may have made."""
        if unsafe := find_unsafe_path(self.root, self._folders):
            raise _CommitRefused(describe_unsafe_path(unsafe))

    def _refuse_changed(self, before: Fingerprints, now: Fingerprints) -> None:
        if names := changed_fingerprints(before, now):
            raise _CommitRefused("refused, because this changed during the run: " + ", ".join(names[:5]))

    def _stage(self, staging: StagingPlan, index: TemporaryIndex, base: str, env: Mapping[str, str]) -> bool:
        """Stage HEAD and the changes of the run; return whether that differs from HEAD."""
        merge = ("-i", "-m") if index.copied else ()  # keeps what is known of unchanged files
        self._run_git("read-tree", *merge, base, env=env)
        for paths, how in ((staging.remove, "--force-remove"), (staging.add, "--replace")):
            if paths:
                stdin = b"".join(path + b"\0" for path in paths)
                self._run_git("update-index", "--add", how, "-z", "--stdin", env=env, stdin=stdin)
        return self._run_git("write-tree", env=env).out != self._run_git("rev-parse", f"{base}^{{tree}}").out

    def _run_commit(
        self, text: str, before: str, name: str, env: Mapping[str, str], watch: CommandWatcher
    ) -> CommitResult:
        argv = (self._git, *USER_HOOKS_OPTIONS, "commit", "-q", "--cleanup=whitespace", "-m", text)
        programs = self._sandboxed if self._sandboxed and self._hooks() else self._programs
        trouble = programs.run(name, argv, env, watch)
        after = self._head_or_empty_tree()
        if after == before:
            raise _CommitRefused(f"git commit{trouble or ' committed nothing'}")
        behind = self._update_user_index(before, after)  # also where git was cut off when it had committed
        return CommitResult(
            after, f"git commit{trouble}" if trouble else behind, elsewhere=self._describe_other_branch()
        )

    def _update_user_index(self, before: str, after: str) -> str:
        """Update the user's index at the committed paths only; return what went wrong."""
        if not os.path.exists(os.path.join(self._git_dir, "index")) and before != self._empty_tree():
            return ""  # they have none: nothing to bring up to date
        try:
            self._refuse_unsafe()  # hooks ran meanwhile
            changes = list_raw_changes(self._run_git, before, after)
            self._run_git("update-index", "-z", "--index-info", stdin=b"".join(change.index_line for change in changes))
            self._run_git("update-index", "-q", "--refresh", good=(0, 1))
        except _CommitRefused as refusal:
            return f"committed, but the index could not follow: {refusal}"
        return ""

    def _run_task(self, task: str, result: CommitResult, name: str, watch: CommandWatcher) -> CommitResult:
        if not task or task.startswith("-"):
            raise _CommitRefused(f"{task!r} is not a git command")
        if not self._programs.was_started(name):
            self._refuse_unsafe()
            now = self._fingerprints()
            self._refuse_changed(self.baseline.commit_fingerprints + self.baseline.push_fingerprints, now[0] + now[1])
        if self._sandboxed and (hooks := self._hooks()):
            raise _CommitRefused(
                f"git {task} is left to you: it needs your login, and might run a hook outside ({hooks[0]})"
            )
        trouble = self._programs.run(name, (self._git, *USER_HOOKS_OPTIONS, task), self._env, watch)
        return replace(result, error=f"git {task}{trouble}") if trouble else result

    def _hooks(self) -> list[str]:
        """The hooks at the start of the run."""
        return [name.removeprefix("hook ") for name, _ in self.baseline.commit_fingerprints if name.startswith("hook ")]

    def _head_or_empty_tree(self) -> str:
        """The commit of HEAD, or the empty tree before the first commit."""
        reply = self._run_git("rev-parse", "-q", "--verify", "HEAD", good=(0, 1))
        if reply.code:
            return self._empty_tree()
        commit = reply.out.strip().decode()
        if not is_object_id(commit):  # on the empty tree, a commit would delete everything that it does not name
            raise _CommitRefused(f"git rev-parse: HEAD is {commit!r}, which is no commit")
        return commit

    def _empty_tree(self) -> str:
        return self._run_git("hash-object", "-t", "tree", "-w", "--stdin").out.strip().decode()

    def _run_git(
        self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, good: tuple[int, ...] = (0,)
    ) -> ProgramResult:
        argv = [self._git, "-C", self.root, *NO_HOOKS_OPTIONS, *args]
        reply = run_program(argv, env or self._env, stdin, timeout_s=GIT_TIMEOUT_S)
        if reply.code not in good:
            raise _CommitRefused(f"git {args[0]}: {reply.said or reply.code}")
        return reply


def clean_message(message: str) -> str:
    """The message as one argument that every SCM accepts: no NUL, no lone surrogate, bounded."""
    return message.replace("\0", "").strip()[:MAX_MESSAGE_CHARS].encode("utf-8", "replace").decode()


class CommandScm:
    """Runs `<command> <task>` for each task; a commit gets the message as one argument."""

    def __init__(
        self, command: str, tasks: tuple[str, ...], root: str, programs: TurnProgramRunner,
        environ: Mapping[str, str] | None = None, baseline: ScmBaseline | None = None,
    ) -> None:  # fmt: skip
        """`baseline` is that of the run's start, for a resumed run."""
        self.root, self.tasks, self._programs = os.path.realpath(root), tasks, programs
        self._env = user_git_environment(os.environ if environ is None else environ)
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise Refused(f"scm.command: {command!r} cannot be read: {error}") from error
        if not self._command:
            raise Refused(f"scm.command: {command!r} names no program")
        named, path = self._command[0], self._env.get("PATH", os.defpath)
        place = os.path.join(self.root, named) if "/" in named else named  # a path is relative to the project
        program = find_program(place, path, self.root)
        if program is None:
            where = "is no program" if "/" in named else "was not found in PATH"
            raise Refused(f"scm.command: {place} {where}")
        self._command[0] = program
        self.baseline = baseline or ScmBaseline(program_fingerprints(self._command, self.root), (), ())

    def commit(self, request: CommitRequest, watch: CommandWatcher) -> CommitResult:
        """Run the tasks in order; the first that fails ends it."""
        names = [f"scm_{request.iteration:03d}_{slug}" for slug in unique_slugs(self.tasks)]
        began = any(map(self._programs.was_started, names))
        if not began and (
            other := changed_fingerprints(
                self.baseline.commit_fingerprints, program_fingerprints(self._command, self.root)
            )
        ):
            return CommitResult(error="refused, because this changed during the run: " + ", ".join(other))
        before = request.now.head if began else self._head()
        result = self._run(clean_message(request.message), names, watch)
        after = self._head()
        return replace(result, commit=after) if after != before else result

    def _run(self, text: str, names: list[str], watch: CommandWatcher) -> CommitResult:
        called = os.path.basename(self._command[0])
        for place, (task, name) in enumerate(zip(self.tasks, names, strict=True)):
            if task == "commit" and not text:
                return CommitResult(error="no commit message", done=self.tasks[:place])
            more = ("-m", text) if task == "commit" else ()
            if trouble := self._programs.run(name, (*self._command, task, *more), self._env, watch):
                return CommitResult(error=f"{called} {task}{trouble}", done=self.tasks[:place])
        return CommitResult(done=self.tasks)

    def _head(self) -> str | None:
        """The commit of HEAD, if the project is a git repository too."""
        folders = git_folders(self.root)
        try:
            return head_commit(folders) if folders else None
        except OSError:
            return None


# Programs run for the user: each one supervised like a turn, with a timeout, and ended with its process tree.


PROGRAM_TIMEOUT_S = 600.0
OUTPUT_TAIL_BYTES = 4096  # of the end of its output are looked at
OUTPUT_TAIL_CHARS = 500  # of it are told


class TurnProgramRunner:
    """Runs programs in the project that may run the user's hooks. Turn file, mark and log have the given name."""

    def __init__(self, sandbox: Sandbox, folder: RunFiles, root: str, timeout_s: float = PROGRAM_TIMEOUT_S) -> None:
        self._sandbox, self._folder, self._root, self._timeout_s = sandbox, folder, root, timeout_s

    def was_started(self, name: str) -> bool:
        """Whether a program with this name was started before. Then `run` starts none: it returns how that ended."""
        turn_file = self._folder.turn_file(name)
        return os.path.exists(turn_file) and os.path.getsize(turn_file) > 0

    def run(self, name: str, argv: tuple[str, ...], env: Mapping[str, str], watch: CommandWatcher) -> str:
        """Run to the end. Returns what went wrong, as text that follows the program's name, or nothing."""
        tail = _OutputTail(watch)
        command = Command(
            argv, self._root, tuple(env.items()), out=self._folder.log_base(name) + ".log",
            turn_file=self._folder.turn_file(name), mark=f"{self._folder.run}/{name}", timeout_s=self._timeout_s,
        )  # fmt: skip
        end = self._sandbox.run(command, tail)
        self._folder.publish(name)
        left = f"; processes of it could not be ended ({', '.join(map(str, end.survivors))})" if end.survivors else ""
        return self._trouble(end, _last_output_line(tail.output_tail)) + left

    def _trouble(self, end: Exit, output: str) -> str:
        match end.why:
            case "exit" if end.code == 0:
                return ""
            case "exit":
                return f": {output}" if output else f" ended with {_describe_exit(end)}"
            case "timeout":
                how = f" did not finish in time ({self._timeout_s:g} s)"
            case "stopped" | "killed":
                how = " was stopped"
            case "interrupted":
                how = f" was cut off, {end.error or 'its keeper died'}"
            case _:
                return f": {end.error or end.why}"
        return f"{how}; it said: {output}" if output else how


class _OutputTail:
    """Keeps the end of a program's output."""

    def __init__(self, watch: CommandWatcher) -> None:
        self.output_tail = b""
        self._watch = watch

    def output(self, chunk: bytes) -> None:
        self.output_tail = (self.output_tail + chunk)[-OUTPUT_TAIL_BYTES:]
        self._watch.output(chunk)

    def tick(self) -> int:
        return self._watch.tick()


def _last_output_line(output: bytes) -> str:
    """The end of the output as one line: errors are mostly printed last."""
    lines = output.decode("utf-8", "replace").splitlines()
    text = " ".join(line.strip() for line in lines if line.strip())
    return text if len(text) <= OUTPUT_TAIL_CHARS else "... " + text[-OUTPUT_TAIL_CHARS:]


def _describe_exit(end: Exit) -> str:
    return f"exit code {end.code}" if end.signal is None else f"signal {end.signal}"
