"""A git repository as a workspace: every snapshot is a commit under `refs/ralph/`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from ralphproof.base.errors import DiskFull, HarnessFailed, WorkspaceGone, wrap_os_error
from ralphproof.base.files import NO_SPACE_ERRNOS
from ralphproof.base.git_layout import find_blocking_files, is_object_id
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.workspace.files import OWN_NAMES, ChangeTimes, restore_snapshot_files
from ralphproof.workspace.git_command import (
    GitFailed,
    describe_unsafe_path,
    find_unsafe_snapshot_path,
    require_repository,
)
from ralphproof.workspace.git_objects import (
    MODE_FOLDER,
    MODE_SUBMODULE,
    START_NAME,
    CommitStore,
    ObjectMissing,
    ObjectStore,
    TreeStore,
    decode_path,
    read_head,
    read_ref,
    run_ref_name,
    write_ref,
)
from ralphproof.workspace.private_index import PrivateIndex, WorkTreeScanner

PATCH_COMMAND = ("diff-tree", "-p", "-r", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-renames",
         "--no-color")  # fmt: skip


class GitWorkspace:
    """Saves a work tree into its own object store; the user's index, HEAD and files are only read.

    Saved is what git would track: tracked, changed and new files as raw bytes, without what was ignored at the start. A
    file that an edited `.gitignore` hides is still saved; a folder that ignores itself is not. Nested repositories are
    saved as plain files. `.ralph/`, `.ralph-active` and the `own` paths are never saved. `private` is a folder outside
    the repository that no other run uses at the same time.
    """

    kind = "git"

    def __init__(
        self, root: str, private: str, environ: Mapping[str, str] | None = None, own: Iterable[str] = ()
    ) -> None:
        self.root = os.path.realpath(root)
        folders = require_repository(self.root)
        environ = os.environ if environ is None else environ
        self._git_is_link = os.path.islink(os.path.join(self.root, ".git"))  # so the user has it
        self._index = PrivateIndex(self.root, os.path.abspath(private), folders, environ)
        self._index.create()
        self._objects = ObjectStore(self._index.git, folders.objects, folders.algorithm, self._index.env)
        self._trees = TreeStore(self._objects)
        self.commits = CommitStore(self._index, self._objects, self._trees)
        self._work_tree = WorkTreeScanner(self._index, self._objects, self._trees, frozenset(map(os.fsencode, own)))
        self._saved_refs: list[
            tuple[str, str]
        ] = []  # refs that keep what we build on: the first since indexing, the last
        self._change_times = ChangeTimes(self.root, private)
        self._repository_path = os.path.realpath(folders.common)
        self._blocking_at_start = frozenset(
            find_blocking_files(folders.common, objects=False)
        )  # whoever put them there before us
        self._removed_files: list[str] = []

    def mark_iteration_start(self) -> None:
        """Changes from now on belong to the iteration."""
        self._change_times.mark_now()

    def has_activity(self) -> bool:
        """Whether files were changed since the mark, or since the last call."""
        return self._change_times.has_activity()

    def changed_since(self, paths: Iterable[str], instant_ns: int) -> tuple[str, ...]:
        """Those of the paths that were last changed after this instant."""
        return self._change_times.changed_since(paths, instant_ns)

    def begin(self, run: str) -> Snapshot:
        """Save the tree at the start of the run, the user's uncommitted work included."""
        self._work_tree.reset()
        return self.save(run, START_NAME)

    def save(self, run: str, name: str) -> Snapshot:
        """Save the tree under this name of the run. Where that fails, the snapshot has no id and names the problem."""
        ref = run_ref_name(run, name)
        if not os.path.isdir(self.root):
            raise WorkspaceGone(f"{self.root} is gone")
        entry = os.path.join(self.root, ".git")
        planted = entry if os.path.islink(entry) and not self._git_is_link else ""
        if unsafe := planted or find_unsafe_snapshot_path(self.root, self._index.folders, run):
            return self._unknown_snapshot(describe_unsafe_path(unsafe))
        self._remove_blocking_files()
        try:
            return self._save(run, ref, read_head(self._index))
        except OSError as error:
            if error.errno in NO_SPACE_ERRNOS:
                raise DiskFull(f"cannot save the work: {error}") from error
            return self._unknown_snapshot(str(wrap_os_error(error)))
        except (GitFailed, ObjectMissing) as error:
            return self._unknown_snapshot(str(error))
        finally:
            self._objects.discard()

    def _remove_blocking_files(self) -> None:
        """Remove FIFOs and devices that appeared in the repository: git would block on them."""
        folder = self.commits.folders.common
        if os.path.realpath(folder) != self._repository_path:
            return  # a link stands in its place: nothing is removed where it leads
        for name in find_blocking_files(folder, objects=False):
            if name in self._blocking_at_start:
                continue
            try:
                os.unlink(os.path.join(folder, name))
                self._removed_files.append(name)
            except OSError:
                pass

    def take_removed_files(self) -> tuple[str, ...]:
        """The files removed since the last call."""
        removed, self._removed_files = tuple(self._removed_files), []
        return removed

    def _unknown_snapshot(self, problem: str) -> Snapshot:
        self._work_tree.invalidate()
        self._trees.clear_cache()
        return Snapshot(None, None, problem=problem)

    def _save(self, run: str, ref: str, head: str | None) -> Snapshot:
        if not (self._work_tree.ready and self._refs_intact()):
            self._prepare(run, first=ref == run_ref_name(run, START_NAME))
        seen = self._work_tree.scan()
        commit = self._commit(seen.tree, head, ref)
        self._objects.flush()
        write_ref(self._index, ref, commit)
        self._saved_refs = [*self._saved_refs[:1], (ref, commit)]
        if self._work_tree.update_base():
            self._saved_refs = [(ref, commit)]
        return Snapshot(commit, seen.tree, ref, head, seen.left_out, seen.problem)

    def _refs_intact(self) -> bool:
        """Whether the refs of our snapshots are unchanged: else their objects, on which new ones build, may be gone
        too.
        """
        return all(read_ref(self._index, ref) == commit for ref, commit in self._saved_refs)

    def _prepare(self, run: str, first: bool) -> None:
        self._trees.clear_cache()
        self.commits.clear_cache()
        self._saved_refs = []
        self._index.create()
        if first or self._index.read_note("run") != run.encode():
            self._index.copy_ignore_rules()
            self._index.write_note("run", run)
        self._work_tree.index_all(None if first else self._start_of(run))

    def _start_of(self, run: str) -> str | None:
        """The tree of the run's start, from its ref: another process may have begun the run."""
        begun = read_ref(self._index, run_ref_name(run, START_NAME))
        return self.commits.header(begun, b"tree ")[0] if begun and self.commits.has(begun) else None

    def _commit(self, tree: str, head: str | None, ref: str) -> str:
        parent = b"parent %s\n" % head.encode() if head and self.commits.has(head) else b""
        who = b"ralph <ralph@localhost> %d +0000" % time.time()
        lines = (tree.encode(), parent, who, who, ref.encode())
        return self._objects.write(b"commit", b"tree %s\n%sauthor %s\ncommitter %s\n\n%s\n" % lines)

    def find_snapshot(self, run: str, name: str) -> Snapshot | None:
        """The snapshot with this name, as far as its ref tells; None where there is none."""
        ref = run_ref_name(run, name)
        commit = read_ref(self._index, ref)
        if commit is None or not is_object_id(commit) or not self.commits.has(commit):
            return None
        head = next(iter(self.commits.header(commit, b"parent ")), None)
        return Snapshot(commit, self.commits.header(commit, b"tree ")[0], ref, head)

    def change(self, before: Snapshot, after: Snapshot) -> Change:
        """What differs between two snapshots. A file left out of only one of them counts as changed."""
        if before.tree is None or after.tree is None:
            return Change(known=False, rewritten=before.head is not None and self._repository_gone())
        moved = before.head != after.head
        try:
            paths = set(map(decode_path, self._trees.compare(before.tree, after.tree)))
            rewritten = moved and before.head is not None and not self.commits.is_ancestor(before.head, after.head)
        except (ObjectMissing, GitFailed):
            return Change(known=False, tree=after.tree, committed=moved, rewritten=self._commit_missing(before.head))
        paths |= set(before.left_out) ^ set(after.left_out)
        changed = tuple(sorted(paths))
        return Change(
            changed, not after.problem, after.tree, rewritten, moved, self._change_times.unchanged_since_mark(changed)
        )

    def uncommitted_paths(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The paths in which a snapshot differs from its HEAD commit; empty where it has none."""
        if snapshot.tree is None or snapshot.head is None:
            return ()
        try:
            head = self.commits.header(snapshot.head, b"tree ")[0]
            return tuple(map(decode_path, self._trees.compare(head, snapshot.tree)))
        except ObjectMissing as error:
            raise HarnessFailed(f"what was not committed cannot be told: {error}") from error

    def paths_differing_from_head(self) -> tuple[str, ...]:
        """The paths in which the files differ from HEAD; all of them where HEAD has no commit."""
        self._work_tree.reset()
        self._index.copy_ignore_rules()
        self._work_tree.index_all(None)
        try:
            head, seen = read_head(self._index), self._work_tree.scan()
            tree = self.commits.header(head, b"tree ")[0] if head else None
            compared = self._trees.compare(tree, seen.tree)
            modules = tuple(path + b"/" for path, (was, _) in compared.items() if was and was[0] == MODE_SUBMODULE)
            outside_submodules = (path for path in compared if not (modules and (path + b"/").startswith(modules)))
            paths = (path for path in outside_submodules if path.split(b"/")[0] not in OWN_NAMES)
            return tuple(path for path in map(decode_path, sorted(paths)) if path not in seen.left_out)
        except ObjectMissing as error:
            raise HarnessFailed(f"what differs cannot be told: {error}") from error
        finally:
            self._objects.discard()

    def _commit_missing(self, head: str | None) -> bool:
        """Whether git says that the commit does not exist."""
        try:
            return head is not None and not self.commits.has(head)
        except GitFailed:
            return False

    def _repository_gone(self) -> bool:
        return not os.path.exists(self._index.folders.objects)

    def log(self, lines: int) -> tuple[str, ...]:
        """The last commits, newest first, one line each; empty where there is no history."""
        try:
            head = read_head(self._index)
            return self.commits.log(head, lines) if head else ()
        except (OSError, GitFailed):
            return ()

    def diff(self, before: Snapshot, after: Snapshot) -> bytes:
        """The difference as a patch that `git apply` takes, binary files included."""
        try:
            return self._index.run_checked(*PATCH_COMMAND, _tree_of(before), _tree_of(after)).out
        except GitFailed as error:
            raise HarnessFailed(f"cannot show the difference: {error}") from error

    def content(self, snapshot: Snapshot, path: str) -> bytes | None:
        """The content of a file in a snapshot; None where there was none, or it cannot be read."""
        entry = self.commits.read_entry(snapshot.id, os.fsencode(path)) if snapshot.id else None
        try:
            return self.commits.read_blob(entry[1]) if entry and entry[0] != MODE_FOLDER else None
        except ObjectMissing:
            return None

    def restore(self, target: Snapshot, now: Snapshot) -> tuple[str, ...]:
        """Restore the files of `target`; files that either snapshot left out stay as they are."""
        ignored = {*target.left_out, *now.left_out}
        try:
            differing = self._trees.compare(_tree_of(now), _tree_of(target))
            wanted = {path: want for path, (_, want) in differing.items() if decode_path(path) not in ignored}
            return restore_snapshot_files(self.root, wanted, lambda name: self._objects.read(name)[1])
        except ObjectMissing as error:
            raise HarnessFailed(f"cannot put files back: {error}") from error

    def close(self) -> None:
        """End helper processes."""
        self._objects.close()


def _tree_of(snapshot: Snapshot) -> str:
    if snapshot.tree is None:
        raise HarnessFailed(f"the tree was not saved: {snapshot.problem}")
    return snapshot.tree
