"""Commits of exactly some paths: which changes go in, which stay out, and the tree that results."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Self

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.git_layout import read_regular_file
from ralphproof.base.processes import accepts_signals
from ralphproof.base.programs import ProgramResult
from ralphproof.base.redaction import StreamMasker, is_harmless_name, is_secret_name
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.workspace import Snapshot
from ralphproof.workspace.files import OWN_NAMES
from ralphproof.workspace.git_command import UserGit
from ralphproof.workspace.git_objects import (
    MODE_EXECUTABLE,
    MODE_FILE,
    MODE_LINK,
    MODE_SUBMODULE,
    CommitStore,
    ObjectMissing,
    ObjectStore,
    TreeStore,
    decode_path,
)
from ralphproof.workspace.history_tripwires import LFS_POINTER
from ralphproof.workspace.private_index import PrivateIndex

RunGit = Callable[..., ProgramResult]  # raises where git fails

if TYPE_CHECKING:
    from ralphproof.workspace.git_objects import Entry

    TreeDifferences = dict[bytes, tuple[Entry | None, Entry | None]]


# The changes of a run that go into the user's commit: not the user's own work in progress.


RAW_DIFF_COMMAND = ("diff-tree", "-r", "-z", "--no-renames", "--raw", "--full-index", "--no-ext-diff", "--no-textconv")


@value
class StagingPlan:
    """Paths to add, paths to remove, and changes of the run that are left out."""

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
        """As input of `git update-index --index-info`."""
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
    """The paths to stage. A path that the user had changed, staged or flagged before the run is left out.

    Files of `ours` are always staged: we may have written them after the snapshot.
    """
    if began.tree is None or now.tree is None:
        return StagingPlan((), (), ())
    run, moved = list_raw_changes(ask, began.tree, now.tree), now.head not in (None, began.head)
    old = list_raw_changes(ask, began.head or empty, began.tree) if run or moved else []
    dirty = {change.path: change for change in old}
    run += _reverted_changes(ask, root, now, {*dirty, *(change.path for change in run)}, staged) if moved else []
    flagged = flagged_paths(ask) if run or ours else set()
    add: list[bytes] = []
    remove: list[bytes] = []
    left: list[str] = []
    for change in run:
        path = change.path
        theirs = decode_path(path) in staged or (path in dirty and not _is_same_after_filters(ask, dirty[path]))
        if (theirs and decode_path(path) not in ours) or path in flagged or is_in_nested_repository(root, path):
            left.append(decode_path(path))
        else:
            (remove if change.new_mode == b"000000" else add).append(path)
    known = {change.path for change in run} | flagged
    add += [path for path in map(os.fsencode, sorted(ours)) if path not in known and _is_file(root, path)]
    ignored = git_ignored_paths(ask, add)
    return StagingPlan(tuple(path for path in add if path not in ignored), tuple(remove), tuple(left))


def _is_file(root: str, path: bytes) -> bool:
    return os.path.isfile(os.path.join(os.fsencode(root), path)) and not is_in_nested_repository(root, path)


def _reverted_changes(
    ask: RunGit, root: str, now: Snapshot, known: set[bytes], staged: frozenset[str]
) -> list[RawChange]:
    """Changes that an agent committed and that were reverted since: its commit is not the result of the run."""
    uncommitted = [
        change for change in list_raw_changes(ask, now.head or "", now.tree or "") if not _is_unsaved(root, change)
    ]
    return [change for change in uncommitted if change.path not in known and decode_path(change.path) not in staged]


def _is_unsaved(root: str, change: RawChange) -> bool:
    """Whether a file is missing in the snapshot only, since our own and ignored files are not saved."""
    return change.new_mode == b"000000" and os.path.lexists(os.path.join(os.fsencode(root), change.path))


def _is_same_after_filters(ask: RunGit, change: RawChange) -> bool:
    """Whether a file whose bytes differ is stored by git as the same blob (line endings, LFS)."""
    if change.old_mode != change.new_mode or change.new_mode not in (b"100644", b"100755"):
        return False
    content = ask("cat-file", "blob", change.new).out
    object_id = ask("hash-object", "--stdin", f"--path={os.fsdecode(change.path)}", stdin=content).out
    return object_id.strip().decode() == change.old


def flagged_paths(ask: RunGit) -> set[bytes]:
    """Paths that the user marked skip-worktree or assume-unchanged."""
    records = ask("ls-files", "-z", "-v").out.split(b"\0")
    return {record[2:] for record in records if record and (record[:1] == b"S" or record[:1].islower())}


def is_in_nested_repository(root: str, path: bytes) -> bool:
    """Whether the path lies in a repository below the root."""
    folder = os.path.dirname(path)
    while folder:
        if os.path.lexists(os.path.join(os.fsencode(root), folder, b".git")):
            return True
        folder = os.path.dirname(folder)
    return False


def git_ignored_paths(ask: RunGit, paths: Iterable[bytes]) -> set[bytes]:
    """Those of the paths that ignore rules keep out of commits; tracked paths are not among them.

    `git check-ignore` knows no literal pathspecs, so each path is written such that it is no pattern.
    """
    patterns = {b"./" + path: path for path in paths}
    if not patterns:
        return set()
    words = ("--no-literal-pathspecs", "check-ignore", "-z", "--stdin")
    reply = ask(*words, stdin=b"".join(path + b"\0" for path in patterns), good=(0, 1))
    return {patterns[path] for path in reply.out.split(b"\0") if path in patterns}


INDEX_PREFIX = "ralph-index-"  # the number of the process that made it follows


class TemporaryIndex:
    """A temporary copy of the user's index, for one commit. Copies of dead processes are removed first."""

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
    """Whether the process that made this file is gone, or had our process id before us."""
    number = name.removeprefix(INDEX_PREFIX).removesuffix(".lock")
    return number.isdigit() and (int(number) == os.getpid() or not accepts_signals(int(number)))


GIT_TIMEOUT_S = 60.0  # of a git call that runs no hook
UNFINISHED_OPERATIONS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
USER_HOOKS_OPTIONS = ("-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false")


# Detection of files that look like secrets, by name or content.


SECRET_FILE_PATTERNS = (
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "credentials*.json", "service[-_]account*.json",
    "*.tfstate", "*.tfstate.backup", "id_ecdsa_sk", "id_ed25519_sk",
)  # fmt: skip
TOKEN_FILES = (".npmrc", ".pypirc", ".netrc", "_netrc", ".yarnrc.yml")  # often without one, and then harmless
TOKEN_PATTERN = re.compile(
    rb"(?im)(?:_auth(?:token)?|_password|npmAuthToken|password|passwd)[\"']?\s*[=:\s]\s*[\"']?[^\s\"'$]"
)
PRIVATE_KEY_PATTERN = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")
SECRET_NAME, CONTAINS_TOKEN, CONTAINS_KEY = (
    "its name is that of a secret",
    "it holds a token or a password",
    "it holds a key",
)


def secret_reason(path: str, content: bytes, before: bytes | None) -> str:
    """Why a file looks secret; empty where it does not. `before` is its content in the parent commit.

    A tracked file is judged by its new content only: its name was the user's choice.
    """
    name = path.rsplit("/", 1)[-1].lower()
    if name in TOKEN_FILES:
        return (
            CONTAINS_TOKEN
            if _token_lines(content) - _token_lines(before or b"")
            else _key_reason(content, before or b"")
        )
    if before is None and _has_secret_name(name):
        return SECRET_NAME
    return _key_reason(content, before or b"")


def _has_secret_name(name: str) -> bool:
    ours = any(fnmatch.fnmatchcase(name, one) for one in SECRET_FILE_PATTERNS) and not is_harmless_name(name)
    return ours or is_secret_name(name)


def _token_lines(content: bytes) -> set[bytes]:
    return {line for line in content.splitlines() if TOKEN_PATTERN.search(line)}


def _key_reason(content: bytes, before: bytes) -> str:
    """A key that the file had before, as in a test fixture, does not count."""
    if PRIVATE_KEY_PATTERN.search(content) and not PRIVATE_KEY_PATTERN.search(before):
        return CONTAINS_KEY
    return CONTAINS_KEY if _key_lines(content) - _key_lines(before) else ""


def _key_lines(content: bytes) -> set[bytes]:
    """The lines that contain something shaped like a well-known key."""
    if not content or StreamMasker(()).flush(content) == content:
        return set()
    return {line for line in content.split(b"\n") if StreamMasker(()).flush(line) != line}


# Commits made from saved trees, without files that must stay out.


SCRATCH_PREFIX = "ralph-branch-"
BLOB_MODES = (MODE_FILE, MODE_EXECUTABLE, MODE_LINK)
TOO_LARGE, NESTED_REPOSITORY = "too large to be saved, or unreadable", "it lies in a repository of its own"
FILTER_NOT_RUN = (
    "its filter {} is set up in .git/config alone, which runs nothing here; set it up with git config --global"
)
CONVERSION_ATTRIBUTES = (
    "text",
    "eol",
    "crlf",
    "filter",
    "ident",
    "working-tree-encoding",
)  # attributes by which git converts
NO_CONVERSION = (b"unspecified", b"unset")


@value
class ExcludedFile:
    """A file that stays out of a commit, and the reason."""

    path: str
    reason: str


@value
class CommitPlan:
    """A tree on top of a parent, None where history begins with it. `changes` are letters (A, M, D) and paths."""

    tree: str
    parent: str | None
    changes: tuple[tuple[str, str], ...]
    excluded: tuple[ExcludedFile, ...] = ()
    empty: bool = False  # the parent has this very tree


class UnstoredObjects(ObjectStore):
    """The same objects; new ones get an id and are not stored."""

    def write(self, kind: bytes, body: bytes) -> str:
        return self._hash(b"%s %d\0%s" % (kind, len(body), body)).hexdigest()


class CommitBuilder:
    """Builds commits from the saved trees of one repository. Works in a temporary folder, beside live runs.

    Without `store` nothing is written into the repository, and its plans cannot be committed.
    """

    def __init__(self, root: str, environ: Mapping[str, str], store: bool = True) -> None:
        self.user_git, self._store = UserGit(root, environ), store
        self._scratch = tempfile.mkdtemp(prefix=SCRATCH_PREFIX)
        index = PrivateIndex(self.user_git.root, self._scratch, self.user_git.folders, environ)
        index.create()
        folders = self.user_git.folders
        objects = ObjectStore if store else UnstoredObjects
        self._objects = objects(index.git, folders.objects, folders.algorithm, index.env)
        self._trees = TreeStore(self._objects)
        self._unfiltered: dict[bytes, str] = {}  # paths, and the filters that are not run for them
        self.commits = CommitStore(index, self._objects, self._trees)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._objects.discard()
        self._objects.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def plan(self, snapshot: Snapshot) -> CommitPlan:
        """The commit that this snapshot would become."""
        if snapshot.tree is None:
            raise HarnessFailed(f"the tree was not saved: {snapshot.problem}")
        try:
            return self._plan(snapshot)
        except ObjectMissing as error:
            raise Refused(f"what was saved is no longer there; was it pruned? ({error})") from error

    def _plan(self, snapshot: Snapshot) -> CommitPlan:
        assert snapshot.tree is not None
        parent = snapshot.head if snapshot.head and self.commits.has(snapshot.head) else None
        base = self.commits.header(parent, b"tree ")[0] if parent else None
        raw = self._without_unsaved(self._trees.compare(base, snapshot.tree), snapshot)
        differing = self._apply_conversions(raw)
        excluded = {ExcludedFile(path, TOO_LARGE) for path in snapshot.left_out}
        accepted: TreeDifferences = {}
        for path, (was, now) in differing.items():
            if why := self._exclusion_reason(path, was, raw[path][1]):
                excluded.add(ExcludedFile(decode_path(path), why))
            else:
                accepted[path] = (was, now)
        tree = self._trees.build(base, {path: now for path, (_, now) in accepted.items()})
        self._objects.flush()
        excluded_files = tuple(sorted(excluded, key=lambda one: one.path))
        return CommitPlan(tree, parent, _changed_paths(accepted), excluded_files, tree == base)

    def _without_unsaved(self, differing: TreeDifferences, snapshot: Snapshot) -> TreeDifferences:
        """Without files that are missing only because they are never saved: our own, large ones, submodules, sparse
        files.
        """
        sparse = flagged_paths(self.user_git.run) if any(now is None for _, now in differing.values()) else set()
        ignored = {path for path, (was, _) in differing.items() if was is not None and was[0] == MODE_SUBMODULE}
        ignored |= {*OWN_NAMES, *map(os.fsencode, snapshot.left_out)}
        ignored |= {path for path, (_, now) in differing.items() if now is None and path in sparse}
        return {path: pair for path, pair in differing.items() if not ignored.intersection(_path_and_parents(path))}

    def _apply_conversions(self, differing: TreeDifferences) -> TreeDifferences:
        """Each file as git would store it: line endings, encodings and the user's filters (LFS) applied."""
        paths = [path for path, (_, now) in differing.items() if now and now[0] in (MODE_FILE, MODE_EXECUTABLE)]
        stored = dict(differing)
        for path in self._converted_paths(paths):
            was, now = differing[path]
            assert now is not None
            if path in self._unfiltered:
                if was and self._is_lfs_pointer_of(was[1], now[1]):
                    del stored[path]
                continue
            options = ("-w",) if self._store else ()
            content = self._objects.read(now[1])[1]
            blob = self.user_git.run("hash-object", *options, "--stdin", f"--path={os.fsdecode(path)}", stdin=content)
            entry = (now[0], blob.out.strip().decode())
            if entry == was:
                del stored[path]
            else:
                stored[path] = (was, entry)
        return stored

    def _is_lfs_pointer_of(self, pointer: str, blob: str) -> bool:
        """Whether a committed blob is the LFS pointer of this content."""
        known = self._objects.read(pointer)[1]
        return (
            known.startswith(LFS_POINTER) and hashlib.sha256(self._objects.read(blob)[1]).hexdigest().encode() in known
        )

    def _converted_paths(self, paths: list[bytes]) -> Iterable[bytes]:
        if not paths:
            return ()
        stdin = b"".join(path + b"\0" for path in paths)
        words = self.user_git.run("check-attr", "-z", "--stdin", *CONVERSION_ATTRIBUTES, stdin=stdin).out.split(b"\0")
        attributes = list(zip(words[::3], words[1::3], words[2::3], strict=False))
        converted = {path for path, _, value in attributes if value not in NO_CONVERSION}
        filtered = ((path, os.fsdecode(value)) for path, name, value in attributes if name == b"filter")
        self._unfiltered = {path: value for path, value in filtered if value in self.user_git.unused_filters}
        if self.user_git.run_line("config", "core.autocrlf") in ("true", "input"):
            converted |= {path for path, name, value in attributes if (name, value) == (b"text", b"unspecified")}
        return sorted(converted & set(paths))

    def _exclusion_reason(self, path: bytes, was: Entry | None, now: Entry | None) -> str:
        if now is None or now[0] not in BLOB_MODES:
            return ""
        if was is None and is_in_nested_repository(self.user_git.root, path):
            return NESTED_REPOSITORY
        if path in self._unfiltered:
            return FILTER_NOT_RUN.format(self._unfiltered[path])
        before = self._objects.read(was[1])[1] if was and was[0] in BLOB_MODES else None
        return secret_reason(decode_path(path), self._objects.read(now[1])[1], before)

    def content_digest(self, tree: str) -> str:
        """A digest of a tree without our own files: trees with the same digest contain the same work."""
        entries = self._trees.entries(tree).items()
        lines = sorted(
            b"%s %s\0%s" % (mode, name, object_id.encode())
            for name, (mode, object_id) in entries
            if name not in OWN_NAMES
        )
        return hashlib.sha256(b"\n".join(lines)).hexdigest()

    def snapshot_of(self, commit: str) -> Snapshot:
        """The snapshot with this commit, as far as the commit tells."""
        head = next(iter(self.commits.header(commit, b"parent ")), None)
        return Snapshot(commit, self.commits.header(commit, b"tree ")[0], head=head)

    def files_only_in(self, saved: Snapshot, landing: CommitPlan, trees: Iterable[str], folder: str) -> tuple[str, ...]:
        """Files of a snapshot that were in no commit, and whose content is neither in these trees nor now in the
        folder.
        """
        assert saved.tree is not None
        paths = {path for letter, path in landing.changes if letter != "D"} | {one.path for one in landing.excluded}
        others, missing = [*trees], []
        for path in sorted(paths):
            name = path.encode("utf-8", "surrogateescape")
            ids = {self._blob_at(tree, name) for tree in (saved.tree, landing.tree)} - {""}
            known = {self._blob_at(tree, name) for tree in others}
            if ids and not ids & known and not self._file_has_content(folder, name, self._blob_at(saved.tree, name)):
                missing.append(path)
        return tuple(missing)

    def _blob_at(self, tree: str, path: bytes) -> str:
        """The id of a tree's file at a path; empty where there is none, or the tree cannot be read."""
        entry = self.commits.read_entry(tree, path)
        return entry[1] if entry else ""

    def _file_has_content(self, folder: str, path: bytes, blob: str) -> bool:
        """Whether the file or link still has this content."""
        place = os.path.join(os.fsencode(folder), path)
        try:
            content = self._objects.read(blob)[1]
            now = os.readlink(place) if os.path.islink(place) else read_regular_file(place, len(content))
        except (OSError, ObjectMissing):
            return False
        return now == content

    def differing_paths(self, checked: str, tree: str) -> tuple[str, ...] | None:
        """The paths in which two trees differ, without our own; None where one cannot be read."""
        try:
            paths = self._trees.compare(checked, tree)
        except ObjectMissing:
            return None
        return tuple(
            decode_path(path) for path in sorted(paths) if not {*OWN_NAMES}.intersection(_path_and_parents(path))
        )

    def excluded_in_commits(self, tip: str, known: Iterable[str]) -> tuple[ExcludedFile, ...]:
        """Files that must stay out and are in a commit that `tip` has and the known commits do not."""
        excluded: dict[str, str] = {}
        for commit, paths in self.commits.list_new_commits([tip], known):
            parent = next(iter(self.commits.header(commit, b"parent ")), None)
            for path in paths:
                now, was = (
                    self.commits.read_entry(commit, path),
                    self.commits.read_entry(parent, path) if parent else None,
                )
                if why := self._exclusion_reason(path, was, now):
                    excluded.setdefault(decode_path(path), why)
        return tuple(ExcludedFile(path, why) for path, why in sorted(excluded.items()))

    def changed_paths(self, before: str | None, after: str) -> tuple[tuple[str, str], ...]:
        """The differences between two commits, as letters and paths."""
        trees = [self.commits.header(one, b"tree ")[0] if one else None for one in (before, after)]
        return _changed_paths(self._trees.compare(*trees))


def create_branch(git: UserGit, plan: CommitPlan, message: str, name: str, force: bool) -> str:
    """Set a branch to a commit of the planned tree, which is the parent where that has the tree; the commit."""
    commit = plan.parent if plan.empty else None
    commit = commit or git.commit(plan.tree, plan.parent, message)
    git.set_branch(name, commit, force)
    return commit


def _path_and_parents(path: bytes) -> Iterable[bytes]:
    """A path and its parent folders."""
    while path:
        yield path
        path = os.path.dirname(path)


def _changed_paths(differing: TreeDifferences) -> tuple[tuple[str, str], ...]:
    changes = (("A" if was is None else "D" if now is None else "M", path) for path, (was, now) in differing.items())
    return tuple((letter, decode_path(path)) for letter, path in changes)
