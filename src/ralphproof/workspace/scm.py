"""Committing passed work for the user, with git or another program, with their hooks as they were at the start."""

from __future__ import annotations

import os
import shlex

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import git_folders, head_commit, is_object_id
from ralphproof.base.run_program import ProgramResult, find_program, run_program
from ralphproof.base.text import unique_slugs
from ralphproof.base.value import TYPE_CHECKING, Protocol, replace, value
from ralphproof.engine.sandbox import Command
from ralphproof.engine.workspace import CommitResult
from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS, user_git_environment
from ralphproof.workspace.git_objects import decode_path
from ralphproof.workspace.unsafe_paths import describe_unsafe_path, find_unsafe_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from ralphproof.engine.environment import RunFiles
    from ralphproof.engine.sandbox import CommandWatcher, Exit, Sandbox
    from ralphproof.engine.workspace import CommitRequest, Snapshot

    RunGit = Callable[..., ProgramResult]  # raises where git fails
    Fingerprints = tuple[tuple[str, str], ...]  # what, digest


# Which of a run's changes may go into the user's commit: those that were not the user's work in progress.


RAW_DIFF_COMMAND = ("diff-tree", "-r", "-z", "--no-renames", "--raw", "--full-index", "--no-ext-diff", "--no-textconv")


@value
class StagingPlan:
    """Paths to add, paths to remove, and what the run changed that stays out."""

    add: tuple[bytes, ...]
    remove: tuple[bytes, ...]
    left_out: tuple[str, ...]


@value
class RawChange:
    """One line of `git diff-tree --raw`."""

    path: bytes
    old_mode: bytes
    new_mode: bytes
    old: str
    new: str

    @property
    def index_line(self) -> bytes:
        """As `git update-index --index-info` wants it."""
        mode = b"0" if self.new_mode == b"000000" else self.new_mode
        return b"%s %s 0\t%s\0" % (mode, self.new.encode(), self.path)


def list_raw_changes(ask: RunGit, before: str, after: str) -> list[RawChange]:
    """Every file that differs between two trees or commits."""
    fields = ask(*RAW_DIFF_COMMAND, before, after).out.split(b"\0")
    changes = []
    for about, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, old, new, _ = about.lstrip(b":").split(b" ")
        changes.append(RawChange(path, old_mode, new_mode, old.decode(), new.decode()))
    return changes


def choose_staged_paths(
    ask: RunGit, root: str, began: Snapshot, now: Snapshot, empty: str, staged: frozenset[str],
    ours: frozenset[str] = frozenset(),
) -> StagingPlan:  # fmt: skip
    """What to stage. A path that was changed, staged or flagged by the user before is theirs and is left.

    Files of `ours` go with the work in any case: we may have written them after it was saved.
    """
    if began.tree is None or now.tree is None:
        return StagingPlan((), (), ())
    run, moved = list_raw_changes(ask, began.tree, now.tree), now.head not in (None, began.head)
    old = list_raw_changes(ask, began.head or empty, began.tree) if run or moved else []
    dirty = {change.path: change for change in old}
    run += _reverted_changes(ask, root, now, {*dirty, *(change.path for change in run)}, staged) if moved else []
    flagged = _flagged_paths(ask) if run or ours else set()
    add: list[bytes] = []
    remove: list[bytes] = []
    left: list[str] = []
    for change in run:
        path = change.path
        theirs = decode_path(path) in staged or (path in dirty and not _is_same_after_filters(ask, dirty[path]))
        if (theirs and decode_path(path) not in ours) or path in flagged or _is_in_nested_repository(root, path):
            left.append(decode_path(path))
        else:
            (remove if change.new_mode == b"000000" else add).append(path)
    known = {change.path for change in run} | flagged
    add += [path for path in map(os.fsencode, sorted(ours)) if path not in known and _is_file(root, path)]
    ignored = git_ignored_paths(ask, add)
    return StagingPlan(tuple(path for path in add if path not in ignored), tuple(remove), tuple(left))


def _is_file(root: str, path: bytes) -> bool:
    return os.path.isfile(os.path.join(os.fsencode(root), path)) and not _is_in_nested_repository(root, path)


def _reverted_changes(
    ask: RunGit, root: str, now: Snapshot, known: set[bytes], staged: frozenset[str]
) -> list[RawChange]:
    """What an agent committed and was put back since: its commit is not what the run came to."""
    uncommitted = [
        change for change in list_raw_changes(ask, now.head or "", now.tree or "") if not _is_unsaved(root, change)
    ]
    return [change for change in uncommitted if change.path not in known and decode_path(change.path) not in staged]


def _is_unsaved(root: str, change: RawChange) -> bool:
    """Whether a file seems to be gone that is there: our own are never saved, nor is what was ignored."""
    return change.new_mode == b"000000" and os.path.lexists(os.path.join(os.fsencode(root), change.path))


def _is_same_after_filters(ask: RunGit, change: RawChange) -> bool:
    """Whether a file that differs byte for byte is what git would have committed all the same (line ends, LFS)."""
    if change.old_mode != change.new_mode or change.new_mode not in (b"100644", b"100755"):
        return False
    content = ask("cat-file", "blob", change.new).out
    made = ask("hash-object", "--stdin", f"--path={os.fsdecode(change.path)}", stdin=content).out
    return made.strip().decode() == change.old


def _flagged_paths(ask: RunGit) -> set[bytes]:
    """Paths that the user marked skip-worktree or assume-unchanged."""
    records = ask("ls-files", "-z", "-v").out.split(b"\0")
    return {record[2:] for record in records if record and (record[:1] == b"S" or record[:1].islower())}


def _is_in_nested_repository(root: str, path: bytes) -> bool:
    """Whether the path lies in a repository of its own."""
    folder = os.path.dirname(path)
    while folder:
        if os.path.lexists(os.path.join(os.fsencode(root), folder, b".git")):
            return True
        folder = os.path.dirname(folder)
    return False


def git_ignored_paths(ask: RunGit, paths: Iterable[bytes]) -> set[bytes]:
    """Those of the paths that the user's rules keep out of commits; what is tracked already is not.

    `git check-ignore` takes no literal names, so each is written such that it is no pattern.
    """
    asked = {b"./" + path: path for path in paths}
    if not asked:
        return set()
    words = ("--no-literal-pathspecs", "check-ignore", "-z", "--stdin")
    reply = ask(*words, stdin=b"".join(path + b"\0" for path in asked), good=(0, 1))
    return {asked[path] for path in reply.out.split(b"\0") if path in asked}


# An index beside the user's own, for as long as one commit takes.


INDEX_PREFIX = "ralph-index-"  # the number of the process that made it follows


class TemporaryIndex:
    """A copy of the user's index to change at will. Those that dead processes left behind are swept first."""

    def __init__(self, git_dir: str) -> None:
        self._git_dir = git_dir
        self.user_index = os.path.join(git_dir, "index")
        self.path = os.path.join(git_dir, f"{INDEX_PREFIX}{os.getpid()}")
        self.copied = False

    def __enter__(self) -> Self:
        for name in os.listdir(self._git_dir):
            if name.startswith(INDEX_PREFIX) and _is_abandoned(name):
                os.unlink(os.path.join(self._git_dir, name))
        if os.path.exists(self.user_index):
            self._copy()
        return self

    def __exit__(self, *_: object) -> None:
        for leftover in (self.path, self.path + ".lock"):
            if os.path.lexists(leftover):
                os.unlink(leftover)

    def _copy(self) -> None:
        with open(self.user_index, "rb") as source, open(self.path, "wb") as copy:
            copy.write(source.read())
            written = os.fstat(source.fileno()).st_mtime_ns
        os.utime(self.path, ns=(written, written))  # git mistrusts files as new as their index; a newer copy would not
        self.copied = True


def _is_abandoned(name: str) -> bool:
    """Whether nobody works with this file: its maker is gone, or had our number before us."""
    number = name.removeprefix(INDEX_PREFIX).removesuffix(".lock")
    if not number.isdigit():
        return False
    if int(number) == os.getpid():
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


# What a commit or a push would run, fingerprinted, so that a later change is noticed.


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
    """Marks of the settings that name a program, or decide where work is sent; from `git config -z --list`."""
    found: dict[str, list[bytes]] = {}
    for record in listed.split(b"\0"):
        name, _, text = record.partition(b"\n")
        key = name.decode("utf-8", "replace")
        if _is_push_key(key) if sending else key in COMMIT_KEYS or key.startswith(COMMIT_SECTIONS):
            found.setdefault(key, []).append(text)
    return tuple((f"setting {key}", _digest(b"\0".join(texts))) for key, texts in sorted(found.items()))


def _is_push_key(key: str) -> bool:
    where = key.startswith("branch.") and key.endswith((".remote", ".pushremote", ".merge"))
    return where or key.startswith(PUSH_SECTIONS)


def hook_fingerprints(hooks: str, root: str) -> Fingerprints:
    """Marks of the hooks that git would run, and of the files that well-known hooks take their orders from."""
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
    """Marks of the files of the project that a command names."""
    named = (os.path.normpath(os.path.join(root, word)) for word in words)
    marks: dict[str, str] = {}
    for file in named:
        if file.startswith(root + "/"):
            marks |= _file_fingerprint(file, "program")
    return tuple(sorted(marks.items()))


def _file_fingerprint(file: str, what: str = "hook") -> dict[str, str]:
    """Links are followed: what would run is what they lead to."""
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
    import hashlib

    return hashlib.sha256(content).hexdigest()


def changed_fingerprints(before: Fingerprints, now: Fingerprints) -> list[str]:
    """What is not as it was."""
    return sorted({name for name, _ in set(before) ^ set(now)})


# Keeping passed work where the user keeps theirs: a commit that holds the run's changes and nothing else.


GIT_TIMEOUT_S = 60.0  # of a git call that runs no hook
MAX_MESSAGE_CHARS = 10_000
UNFINISHED_OPERATIONS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
USER_HOOKS_OPTIONS = ("-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false")


class _CommitRefused(Exception):
    """Nothing was committed, and this is why."""


@value
class ScmBaseline:
    """What a commit would have run, and what the user had staged, when the run began. Kept for a resumed run."""

    commit_fingerprints: Fingerprints
    push_fingerprints: Fingerprints
    staged: tuple[str, ...]
    branch: str = ""  # empty: none was checked out


class GitScm:
    """Commits with the user's own hooks and settings, as they were when the run began.

    The user's index keeps what they staged; their files are only read. Whatever may run hooks is run by `programs`.
    """

    def __init__(
        self, root: str, tasks: tuple[str, ...], programs: ProgramRunner, baseline: ScmBaseline | None = None,
        environ: Mapping[str, str] | None = None, sandboxed: ProgramRunner | None = None,
    ) -> None:  # fmt: skip
        """`sandboxed` runs programs in the sandbox of the run: hooks may execute files of the project that an agent wrote."""
        self.root, self.tasks, self._programs, self._sandboxed = os.path.realpath(root), tasks, programs, sandboxed
        environ = os.environ if environ is None else environ
        folders = git_folders(self.root)
        git = find_program("git", environ.get("PATH", os.defpath), outside=self.root)
        if folders is None or git is None:
            raise Refused(f"{self.root}: no git repository, or no git")
        self._git, self._git_dir, self._folders = git, folders.git_dir, folders
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
        """The branch that is checked out; empty where none is."""
        name = self._run_git("symbolic-ref", "-q", "HEAD", good=(0, 1)).out.decode("utf-8", "surrogateescape")
        return name.strip().removeprefix("refs/heads/")

    def _describe_other_branch(self) -> str:
        """What to say where the commit is not on the branch that the run began on."""
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
        found = run_program([self._git, "-C", self.root, "rev-parse", "--git-path", "hooks"], self._env)
        if found.code != 0:
            raise _CommitRefused(f"git rev-parse: {found.said or found.code}")
        hooks = os.path.normpath(os.path.join(self.root, os.fsdecode(found.out[:-1])))
        commit = tuple(sorted(config_fingerprints(settings, sending=False) + hook_fingerprints(hooks, self.root)))
        return commit, config_fingerprints(settings, sending=True)

    def commit(self, work: CommitRequest, watch: CommandWatcher) -> CommitResult:
        """Commit exactly what the run changed, then do whatever else was asked for. The first failure ends it."""
        kept = CommitResult()
        for task, slug in zip(self.tasks, unique_slugs(self.tasks), strict=True):
            name = f"scm_{work.iteration:03d}_{slug}"
            try:
                kept = self._commit(work, name, watch) if task == "commit" else self._run_task(task, kept, name, watch)
            except (_CommitRefused, OSError) as refusal:
                return replace(kept, error=str(refusal))
            if kept.error:
                return kept
        return kept

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
        theirs, ours = frozenset((*self.baseline.staged, *work.theirs)), frozenset(work.ours)
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
        """Git would write what an agent says to where an agent's link leads."""
        if found := find_unsafe_path(self.root, self._folders):
            raise _CommitRefused(describe_unsafe_path(found))

    def _refuse_changed(self, before: Fingerprints, now: Fingerprints) -> None:
        if names := changed_fingerprints(before, now):
            raise _CommitRefused("refused, because this changed during the run: " + ", ".join(names[:5]))

    def _stage(self, staging: StagingPlan, index: TemporaryIndex, base: str, env: Mapping[str, str]) -> bool:
        """Make the index that of HEAD and the run's changes; whether that differs from HEAD."""
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
        """Bring the user's index up to date at the committed paths only; return what went wrong."""
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

    def _run_task(self, task: str, kept: CommitResult, name: str, watch: CommandWatcher) -> CommitResult:
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
        return replace(kept, error=f"git {task}{trouble}") if trouble else kept

    def _hooks(self) -> list[str]:
        """The hooks that the user had when the run began."""
        return [name.removeprefix("hook ") for name, _ in self.baseline.commit_fingerprints if name.startswith("hook ")]

    def _head_or_empty_tree(self) -> str:
        """The commit that HEAD names, or the empty tree before the first one."""
        reply = self._run_git("rev-parse", "-q", "--verify", "HEAD", good=(0, 1))
        if reply.code:
            return self._empty_tree()
        found = reply.out.strip().decode()
        if not is_object_id(found):  # on the empty tree, a commit would delete everything that it does not name
            raise _CommitRefused(f"git rev-parse: HEAD is {found!r}, which is no commit")
        return found

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
    """The message as one argument that every SCM takes: no NUL, no lone surrogate, bounded."""
    return message.replace("\0", "").strip()[:MAX_MESSAGE_CHARS].encode("utf-8", "replace").decode()


# Keeping passed work with another program than git: it is called with each task, and stages as it likes.


class CommandScm:
    """Runs `<command> <task>` for each task; a commit gets the message as one argument."""

    def __init__(
        self, command: str, tasks: tuple[str, ...], root: str, programs: ProgramRunner,
        environ: Mapping[str, str] | None = None, baseline: ScmBaseline | None = None,
    ) -> None:  # fmt: skip
        """`baseline` is that of the run's start, for a resumed run."""
        import shlex

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

    def commit(self, work: CommitRequest, watch: CommandWatcher) -> CommitResult:
        """Run the tasks in order; the first that fails ends it."""
        names = [f"scm_{work.iteration:03d}_{slug}" for slug in unique_slugs(self.tasks)]
        began = any(map(self._programs.was_started, names))
        if not began and (
            other := changed_fingerprints(
                self.baseline.commit_fingerprints, program_fingerprints(self._command, self.root)
            )
        ):
            return CommitResult(error="refused, because this changed during the run: " + ", ".join(other))
        before = work.now.head if began else self._head()
        kept = self._run(clean_message(work.message), names, watch)
        after = self._head()
        return replace(kept, commit=after) if after != before else kept

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
        """Where the project is a git repository all the same: the commit that HEAD names."""
        folders = git_folders(self.root)
        try:
            return head_commit(folders) if folders else None
        except OSError:
            return None


# Programs that an SCM runs for the user: each is a turn, owned, timed, and ended with its whole tree.


PROGRAM_TIMEOUT_S = 600.0
OUTPUT_TAIL_BYTES = 4096  # of the end of its output are looked at
OUTPUT_TAIL_CHARS = 500  # of it are told


class ProgramRunner(Protocol):
    """Runs what may run the user's hooks."""

    def was_started(self, name: str) -> bool:
        """Whether a program of this name was started before. Then `run` starts none: it tells how that one ended."""

    def run(self, name: str, argv: tuple[str, ...], env: Mapping[str, str], watch: CommandWatcher) -> str:
        """Run to the end; what went wrong, in words that follow the program's name, or nothing."""


class TurnProgramRunner:
    """Runs programs in the project. Turn file, mark and log have the name that it is given."""

    def __init__(self, sandbox: Sandbox, folder: RunFiles, root: str, timeout_s: float = PROGRAM_TIMEOUT_S) -> None:
        self._sandbox, self._folder, self._root, self._timeout_s = sandbox, folder, root, timeout_s

    def was_started(self, name: str) -> bool:
        """Whether a program of this name was started before."""
        turn_file = self._folder.turn_file(name)
        return os.path.exists(turn_file) and os.path.getsize(turn_file) > 0

    def run(self, name: str, argv: tuple[str, ...], env: Mapping[str, str], watch: CommandWatcher) -> str:
        """Run to the end, or tell how the one of this name ended."""
        ear = _OutputTail(watch)
        command = Command(
            argv, self._root, tuple(env.items()), out=self._folder.log_base(name) + ".log",
            turn_file=self._folder.turn_file(name), mark=f"{self._folder.run}/{name}", timeout_s=self._timeout_s,
        )  # fmt: skip
        end = self._sandbox.run(command, ear)
        self._folder.publish(name)
        left = f"; processes of it could not be ended ({', '.join(map(str, end.survivors))})" if end.survivors else ""
        return self._trouble(end, _last_output_line(ear.output_tail)) + left

    def _trouble(self, end: Exit, said: str) -> str:
        match end.why:
            case "exit" if end.code == 0:
                return ""
            case "exit":
                return f": {said}" if said else f" ended with {_describe_exit(end)}"
            case "timeout":
                how = f" did not finish in time ({self._timeout_s:g} s)"
            case "stopped" | "killed":
                how = " was stopped"
            case "interrupted":
                how = f" was cut off, {end.error or 'its keeper died'}"
            case _:
                return f": {end.error or end.why}"
        return f"{how}; it said: {said}" if said else how


class _OutputTail:
    """Keeps the end of what a program prints."""

    def __init__(self, watch: CommandWatcher) -> None:
        self.output_tail = b""
        self._watch = watch

    def output(self, chunk: bytes) -> None:
        self.output_tail = (self.output_tail + chunk)[-OUTPUT_TAIL_BYTES:]
        self._watch.output(chunk)

    def tick(self) -> int:
        return self._watch.tick()


def _last_output_line(said: bytes) -> str:
    """The output's end in one line: what went wrong is mostly said last."""
    lines = said.decode("utf-8", "replace").splitlines()
    text = " ".join(line.strip() for line in lines if line.strip())
    return text if len(text) <= OUTPUT_TAIL_CHARS else "... " + text[-OUTPUT_TAIL_CHARS:]


def _describe_exit(end: Exit) -> str:
    return f"exit code {end.code}" if end.signal is None else f"signal {end.signal}"
