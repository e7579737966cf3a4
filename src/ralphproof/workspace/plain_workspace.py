"""A folder without git as a workspace: snapshots are copies in a private folder, named by digest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator

from ralphproof.base.errors import DiskFull, HarnessFailed, WorkspaceGone, wrap_os_error
from ralphproof.base.files import NO_SPACE_ERRNOS, AtomicFileBatch, remove_tree, sync_folders
from ralphproof.base.git_layout import is_object_id, read_regular_file
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.workspace.files import (
    OWN_NAMES,
    ChangeTimes,
    FileReader,
    UnreadableFile,
    file_patch,
    restore_snapshot_files,
)
from ralphproof.workspace.git_objects import decode_path, run_ref_name

if TYPE_CHECKING:
    from ralphproof.workspace.git_objects import Entry

    Manifest = dict[bytes, Entry]

EXCLUDED_NAMES = frozenset((b".git", b"node_modules", b".venv", b"__pycache__"))  # anywhere


class PlainWorkspace:
    """Saves all files below `root` into `private`, a folder outside of it.

    There are no ignore rules. Left out are `.ralph/`, `.ralph-active`, the `own` paths, every `.git`, `node_modules`,
    `.venv` and `__pycache__`, and files over 50 MiB, which the snapshot names.
    """

    kind = "plain"

    def __init__(self, root: str, private: str, own: Iterable[str] = ()) -> None:
        self.root = os.path.realpath(root)
        self._private = os.fsencode(os.path.abspath(private))
        self._store = os.path.join(self._private, b"objects")
        os.makedirs(self._store, mode=0o700, exist_ok=True)
        self._pending = AtomicFileBatch(self._store, 0o600)
        self._digest = hashlib.sha256
        self._own = frozenset(map(os.fsencode, own))
        self._files = FileReader(self.root, self._store_content)
        self._known_unreadable: dict[bytes, object] | None = None
        self._last_manifest: Manifest = {}
        self._manifests: dict[str, Manifest] = {}
        self._change_times = ChangeTimes(self.root, private)

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
        """Save the tree at the start of the run."""
        self._known_unreadable = None
        self._files.clear_cache()
        return self.save(run, "0")

    def save(self, run: str, name: str) -> Snapshot:
        """Save the tree under this name of the run. Where that fails, the snapshot has no id and names the problem."""
        ref = run_ref_name(run, name)
        if not os.path.isdir(self.root):
            raise WorkspaceGone(f"{self.root} is gone")
        try:
            return self._save(ref)
        except OSError as error:
            if error.errno in NO_SPACE_ERRNOS:
                raise DiskFull(f"cannot save the work: {error}") from error
            return Snapshot(None, None, problem=str(wrap_os_error(error)))
        finally:
            self._pending.discard()

    def _save(self, ref: str) -> Snapshot:
        unreadable: dict[bytes, object] = {}
        manifest = self._scan(unreadable)
        body = b"".join(b"%s %s %s\0" % (mode, name.encode(), path) for path, (mode, name) in sorted(manifest.items()))
        tree = self._store_content(body)
        self._pending.flush()
        self._write_ref(os.path.join(self._private, ref.encode()), tree)
        self._last_manifest = manifest
        self._cache_manifest(tree, manifest)
        first = self._known_unreadable is None
        tolerated = self._known_unreadable = unreadable if self._known_unreadable is None else self._known_unreadable
        newly_unreadable = [path for path, state in unreadable.items() if first or tolerated.get(path) != state]
        problem = "; ".join(f"cannot read {decode_path(path)}" for path in sorted(newly_unreadable)[:5])
        left_out = tuple(sorted(map(decode_path, self._files.too_large | unreadable.keys())))
        return Snapshot(tree, tree, ref, None, left_out, problem)

    def _scan(self, unreadable: dict[bytes, object]) -> Manifest:
        self._files.start_scan()
        manifest: Manifest = {}
        for path in self._paths(b"", unreadable):
            try:
                entry = self._files.read_entry(path)
            except UnreadableFile as error:
                unreadable[path] = error.signature
                entry = self._last_manifest.get(path)
            if entry is not None:
                manifest[path] = entry
        for path in unreadable.keys() - manifest.keys():  # an unreadable folder keeps what was known to be in it
            manifest |= {old: entry for old, entry in self._last_manifest.items() if old.startswith(path + b"/")}
        return manifest

    def _paths(self, prefix: bytes, unreadable: dict[bytes, object]) -> Iterator[bytes]:
        folder = os.path.join(self._files.root, prefix)
        try:
            with os.scandir(folder) as listed:
                entries = list(listed)
        except (FileNotFoundError, NotADirectoryError):
            return
        except PermissionError:
            unreadable[prefix.rstrip(b"/")] = os.lstat(folder).st_ctime_ns
            return
        for entry in entries:
            if entry.name in EXCLUDED_NAMES or (not prefix and entry.name in OWN_NAMES):
                continue
            if prefix + entry.name in self._own:
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._paths(prefix + entry.name + b"/", unreadable)
            else:
                yield prefix + entry.name

    def _store_content(self, content: bytes) -> str:
        name = self._digest(content).hexdigest()
        if not self._pending.has(self._content_path(name)):
            self._pending.add(self._content_path(name), content)
        return name

    def _content_path(self, name: str) -> bytes:
        return b"%s/%s/%s" % (self._store, name[:2].encode(), name[2:].encode())

    def _read_content(self, name: str) -> bytes:
        try:
            content = read_regular_file(self._content_path(name))
        except OSError as error:
            raise HarnessFailed(f"saved content is gone: {error}") from error
        if self._digest(content).hexdigest() != name:
            raise HarnessFailed(f"saved content was changed: {name}")
        return content

    def _write_ref(self, file: bytes, tree: str) -> None:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        self._pending.add(file, tree.encode() + b"\n")
        self._pending.flush()
        sync_folders({os.path.dirname(file)})

    def _cache_manifest(self, tree: str, manifest: Manifest) -> None:
        if len(self._manifests) > 3:
            self._manifests.clear()
        self._manifests[tree] = manifest

    def _manifest(self, snapshot: Snapshot) -> Manifest:
        if snapshot.tree is None:
            raise HarnessFailed(f"the tree was not saved: {snapshot.problem}")
        if snapshot.tree not in self._manifests:
            lines = (line.split(b" ", 2) for line in self._read_content(snapshot.tree).split(b"\0")[:-1])
            self._cache_manifest(snapshot.tree, {path: (mode, name.decode()) for mode, name, path in lines})
        return self._manifests[snapshot.tree]

    def find_snapshot(self, run: str, name: str) -> Snapshot | None:
        """The snapshot with this name, as far as its ref tells; None where there is none."""
        ref = run_ref_name(run, name)
        try:
            tree = read_regular_file(os.path.join(self._private, ref.encode())).strip().decode("ascii", "replace")
        except FileNotFoundError:
            return None
        return Snapshot(tree, tree, ref)

    def change(self, before: Snapshot, after: Snapshot) -> Change:
        """What differs between two snapshots. A file left out of only one of them counts as changed."""
        if before.tree is None or after.tree is None:
            return Change(known=False)
        try:
            paths = set(map(decode_path, self._differing(before, after)))
        except HarnessFailed:
            return Change(known=False, tree=after.tree)
        paths |= set(before.left_out) ^ set(after.left_out)
        changed = tuple(sorted(paths))
        return Change(changed, not after.problem, after.tree, older=self._change_times.unchanged_since_mark(changed))

    def _differing(self, before: Snapshot, after: Snapshot) -> dict[bytes, Entry | None]:
        old, new = self._manifest(before), self._manifest(after)
        return {path: new.get(path) for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)}

    def diff(self, before: Snapshot, after: Snapshot) -> bytes:
        """The difference as a patch; binary files are only named."""
        old, differing = self._manifest(before), self._differing(before, after)
        return b"".join(file_patch(path, old.get(path), entry, self._read_content) for path, entry in differing.items())

    def content(self, snapshot: Snapshot, path: str) -> bytes | None:
        """The content of a file in a snapshot; None where there was none, or it cannot be read."""
        try:
            entry = self._manifest(snapshot).get(os.fsencode(path))
            return self._read_content(entry[1]) if entry else None
        except HarnessFailed:
            return None

    def restore(self, target: Snapshot, now: Snapshot) -> tuple[str, ...]:
        """Restore the files of `target`; files that either snapshot left out stay as they are."""
        ignored = {*target.left_out, *now.left_out}
        wanted = {
            path: entry for path, entry in self._differing(now, target).items() if decode_path(path) not in ignored
        }
        return restore_snapshot_files(self.root, wanted, self._read_content)

    def log(self, lines: int) -> tuple[str, ...]:
        """Always empty: there is no history."""
        return ()

    def close(self) -> None:
        """There is nothing to release."""


# Deletion of snapshots.


def delete_run_copies(private: str, run: str) -> None:
    """Delete the snapshot names of a run without git; `prune_copies` then removes unreferenced contents."""
    remove_tree(os.path.join(private, os.path.dirname(run_ref_name(run, "0"))), strict=True)


def list_run_copies(private: str, run: str) -> list[str]:
    """The snapshot names of a run without git."""
    return [*_list_folder(os.path.join(private, os.path.dirname(run_ref_name(run, "0"))))]


def prune_copies(private: str) -> None:
    """Remove contents that no snapshot references. No other process may use the folder meanwhile."""
    objects = os.path.join(private, "objects")
    try:
        named = set(_referenced_contents(private, objects))
    except OSError as error:
        raise HarnessFailed(f"what is still named cannot be read, so nothing is freed: {error}") from error
    for start in _list_folder(objects):
        folder = os.path.join(objects, start)
        if start.startswith("tmp_obj_ralph_"):
            os.unlink(folder)
            continue
        for rest in _list_folder(folder):
            if start + rest not in named:
                os.unlink(os.path.join(folder, rest))


def _referenced_contents(private: str, objects: str) -> Iterator[str]:
    """Every content that a snapshot references: its manifest, and the files in it."""
    for folder, _, names in os.walk(os.path.join(private, "refs", "ralph")):
        for name in names:
            tree = read_regular_file(os.fsencode(os.path.join(folder, name))).strip().decode("ascii", "replace")
            if not is_object_id(tree):
                raise OSError(f"{os.path.join(folder, name)} names nothing")
            yield tree
            lines = read_regular_file(os.fsencode(os.path.join(objects, tree[:2], tree[2:]))).split(b"\0")[:-1]
            yield from (line.split(b" ", 2)[1].decode("ascii", "replace") for line in lines)


def _list_folder(folder: str) -> Iterable[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return ()
