"""Deletion of snapshots: refs in git, copies where there is no git."""

from __future__ import annotations

import os

from ralphproof.base.errors import HarnessFailed
from ralphproof.base.files import remove_tree
from ralphproof.base.git_layout import is_object_id, read_regular_file
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.workspace.git_objects import run_ref_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ralphproof.workspace.git_command import UserGit

# All refs but snapshots, stashes and notes.
HISTORY_OPTIONS = ("--exclude=refs/ralph/*", "--exclude=refs/stash", "--exclude=refs/notes/*", "--all")


def delete_run_refs(git: UserGit, run: str) -> None:
    """Delete every ref of a run in one transaction. Git prunes the unreferenced objects later."""
    place = os.path.dirname(run_ref_name(run, "0"))
    listed = git.run("for-each-ref", "--format=%(refname)", f"{place}/").out.splitlines()
    if listed:
        git.run("update-ref", "--no-deref", "-z", "--stdin", stdin=b"".join(b"delete %s\0\0" % ref for ref in listed))
    if git.folders.ref_files:  # git lists no ref that is broken, and leaves locks of the dead
        remove_tree(os.path.join(git.folders.common, place), strict=True)


def list_run_refs(git: UserGit, run: str) -> dict[str, str]:
    """The commits of a run's refs, by the last part of their names."""
    place = os.path.dirname(run_ref_name(run, "0"))
    listed = git.run("for-each-ref", "--format=%(refname) %(objectname)", f"{place}/").out.decode("utf-8", "replace")
    rows = (line.rpartition(" ") for line in listed.splitlines())
    return {os.path.basename(ref): commit for ref, _, commit in rows}


def is_reachable(git: UserGit, commit: str) -> bool:
    """Whether a commit is reachable from refs other than snapshots."""
    if not git.resolve_commit(commit):
        return False
    return not git.run("rev-list", "--max-count=1", commit, "--not", *HISTORY_OPTIONS).out.strip()


def list_trees_since(git: UserGit, since: float) -> set[str]:
    """The trees of all commits since this time (epoch seconds), snapshots aside."""
    command = ("log", "--format=%T", f"--since=@{int(since)}", *HISTORY_OPTIONS)
    return set(git.run(*command).out.decode("ascii", "replace").split())


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
