"""Commits made from saved trees, without files that must stay out.

A saved tree has raw bytes, and lacks files that are never saved. So a commit is built from the parent's tree and the
differences, each converted as git would store it.
"""

from __future__ import annotations

import os

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.workspace.files import OWN_NAMES
from ralphproof.workspace.git_command import UserGit
from ralphproof.workspace.git_objects import (
    MODE_EXECUTABLE,
    MODE_FILE,
    MODE_FOLDER,
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
from ralphproof.workspace.staging import flagged_paths, is_in_nested_repository

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

    from ralphproof.engine.workspace import Snapshot
    from ralphproof.workspace.git_objects import Entry

    # From a path, its content, and the parent's content there: why it must stay out, or nothing.
    ExclusionRule = Callable[[str, bytes, bytes | None], str]
    TreeDifferences = dict[bytes, tuple[Entry | None, Entry | None]]

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
        import tempfile

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
        import shutil

        self._objects.discard()
        self._objects.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def plan(self, snapshot: Snapshot, judge: ExclusionRule) -> CommitPlan:
        """The commit that this snapshot would become. `judge` returns why a file must stay out, or nothing."""
        if snapshot.tree is None:
            raise HarnessFailed(f"the tree was not saved: {snapshot.problem}")
        try:
            return self._plan(snapshot, judge)
        except ObjectMissing as error:
            raise Refused(f"what was saved is no longer there; was it pruned? ({error})") from error

    def _plan(self, snapshot: Snapshot, judge: ExclusionRule) -> CommitPlan:
        assert snapshot.tree is not None
        parent = snapshot.head if snapshot.head and self.commits.has(snapshot.head) else None
        base = self.commits.header(parent, b"tree ")[0] if parent else None
        raw = self._without_unsaved(self._trees.compare(base, snapshot.tree), snapshot)
        differing = self._apply_conversions(raw)
        excluded = {ExcludedFile(path, TOO_LARGE) for path in snapshot.left_out}
        accepted: TreeDifferences = {}
        for path, (was, now) in differing.items():
            if why := self._exclusion_reason(path, was, raw[path][1], judge):
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
        import hashlib

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

    def _exclusion_reason(self, path: bytes, was: Entry | None, now: Entry | None, judge: ExclusionRule) -> str:
        if now is None or now[0] not in BLOB_MODES:
            return ""
        if was is None and is_in_nested_repository(self.user_git.root, path):
            return NESTED_REPOSITORY
        if path in self._unfiltered:
            return FILTER_NOT_RUN.format(self._unfiltered[path])
        before = self._objects.read(was[1])[1] if was and was[0] in BLOB_MODES else None
        return judge(decode_path(path), self._objects.read(now[1])[1], before)

    def content_digest(self, tree: str) -> str:
        """A digest of a tree without our own files: trees with the same digest contain the same work."""
        import hashlib

        entries = self._trees.entries(tree).items()
        lines = sorted(
            b"%s %s\0%s" % (mode, name, object_id.encode())
            for name, (mode, object_id) in entries
            if name not in OWN_NAMES
        )
        return hashlib.sha256(b"\n".join(lines)).hexdigest()

    def snapshot_of(self, commit: str) -> Snapshot:
        """The snapshot with this commit, as far as the commit tells."""
        from ralphproof.engine.workspace import Snapshot

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
        *above, name = path.split(b"/")
        try:
            for folder in above:
                mode, tree = self._trees.entries(tree).get(folder, (b"", ""))
                if mode != MODE_FOLDER:
                    return ""
            return self._trees.entries(tree).get(name, (b"", ""))[1]
        except ObjectMissing:
            return ""

    def _file_has_content(self, folder: str, path: bytes, blob: str) -> bool:
        """Whether the file or link still has this content."""
        import stat

        place = os.path.join(os.fsencode(folder), path)
        try:
            content, state = self._objects.read(blob)[1], os.lstat(place)
            if stat.S_ISLNK(state.st_mode):
                return os.readlink(place) == content
            if not stat.S_ISREG(state.st_mode) or state.st_size != len(content):
                return False
            with open(place, "rb") as file:
                return file.read(len(content) + 1) == content
        except (OSError, ObjectMissing):
            return False

    def differing_paths(self, checked: str, tree: str) -> tuple[str, ...] | None:
        """The paths in which two trees differ, without our own; None where one cannot be read."""
        try:
            paths = self._trees.compare(checked, tree)
        except ObjectMissing:
            return None
        return tuple(
            decode_path(path) for path in sorted(paths) if not {*OWN_NAMES}.intersection(_path_and_parents(path))
        )

    def excluded_in_commits(self, tip: str, known: Iterable[str], judge: ExclusionRule) -> tuple[ExcludedFile, ...]:
        """Files that must stay out and are in a commit that `tip` has and the known commits do not."""
        excluded: dict[str, str] = {}
        for commit, paths in self.commits.list_new_commits([tip], known):
            parent = next(iter(self.commits.header(commit, b"parent ")), None)
            for path in paths:
                now, was = (
                    self.commits.read_entry(commit, path),
                    self.commits.read_entry(parent, path) if parent else None,
                )
                if why := self._exclusion_reason(path, was, now, judge):
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
