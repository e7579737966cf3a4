"""Merges in git's object store, without a work tree or index."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Self

from ralphproof.base.errors import Refused
from ralphproof.base.value import value
from ralphproof.store.landings import LandingItem, MergeConflict
from ralphproof.workspace.git_command import GitFailed, UserGit
from ralphproof.workspace.git_objects import CommitStore, ObjectStore, TreeStore, decode_path
from ralphproof.workspace.private_index import PrivateIndex

EMPTY_WORK_TREE = "files"
MIN_GIT_VERSION = (2, 38)  # the first with merge-tree --write-tree
MERGE_TREE_COMMAND = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages")
ATTRIBUTES_FILE = b".gitattributes"
KEPT_COMMIT_HEADERS = (b"encoding ",)  # copied to a replayed commit besides its author
UNRELATED_HISTORIES = "their histories have nothing in common"


@value
class MergedItem:
    """An item and the commit that merges it onto the items below."""

    item: LandingItem
    commit: str


@value
class MergeClash:
    """An item that could not be merged. With `alone` it conflicts with the target itself, otherwise maybe with an item
    of the same batch.
    """

    item: LandingItem
    conflict: MergeConflict
    alone: bool


@value
class MergeStack:
    """Items merged one after the other onto `base`. `already_merged` are those that `base` or a lower item contains;
    `clashes` could not be merged.
    """

    base: str
    top: str
    tree: str
    merged: tuple[MergedItem, ...]
    already_merged: tuple[LandingItem, ...] = ()
    clashes: tuple[MergeClash, ...] = ()


class TreeMerger:
    """Merges or rebases items onto a commit. New objects are flushed to disk before a ref names them.

    The .gitattributes at the top of `base` may select git's built-in merge drivers; no external program is run.
    """

    def __init__(self, user_git: UserGit, environ: Mapping[str, str], scratch: str, rebase: bool = False) -> None:
        """`scratch` is an empty folder for this object. Raises Refused where git is too old."""
        self._user_git, self._rebase = user_git, rebase
        self._ident = user_git.identity()
        _refuse_old_git(user_git.run("version").out.decode("utf-8", "replace"))
        self._scratch = scratch
        files = os.path.join(scratch, EMPTY_WORK_TREE)
        os.mkdir(files, 0o700)
        index = PrivateIndex(files, scratch, user_git.folders, environ)
        index.git = user_git.git  # a path that was resolved outside of the project
        index.create()
        self._objects = ObjectStore(index.git, user_git.folders.objects, user_git.folders.algorithm, index.env)
        self._commits = CommitStore(index, self._objects, TreeStore(self._objects))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._objects.discard()
        self._objects.close()

    def stack(self, base: str, items: Iterable[LandingItem]) -> MergeStack:
        """Merge the items one after the other, leaving out those that conflict. Raises Refused where a commit is
        missing.
        """
        self._write_attributes(base)
        top = base
        merged: list[MergedItem] = []
        already_merged: list[LandingItem] = []
        clashes: list[MergeClash] = []
        for item in items:
            self._refuse_missing_commit(item)
            if self._commits.is_ancestor(item.commit, top):
                already_merged.append(item)
                continue
            replays = self._rebase and item.run  # commits of the user are not rewritten: others may have them
            merge_result = self._replay(top, item) if replays else self._merge(top, item)
            if isinstance(merge_result, MergeConflict):
                clashes.append(MergeClash(item, merge_result, alone=not merged))
                continue
            top = merge_result
            merged.append(MergedItem(item, top))
        self._objects.flush()
        return MergeStack(base, top, self.tree_of(top), tuple(merged), tuple(already_merged), tuple(clashes))

    def tree_of(self, commit: str) -> str:
        """The tree of a commit."""
        return self._commits.header(commit, b"tree ")[0]

    def _refuse_missing_commit(self, item: LandingItem) -> None:
        if not self._commits.has(item.commit):
            whose = f" of run {item.run}" if item.run else ""
            raise Refused(f"commit {item.commit}{whose} is not in this repository any more; was it pruned?")

    def _write_attributes(self, base: str) -> None:
        entry = self._commits.read_entry(base, ATTRIBUTES_FILE)
        text = self._commits.read_blob(entry[1]) if entry and entry[0] in (b"100644", b"100755") else b""
        with open(os.path.join(self._scratch, EMPTY_WORK_TREE, os.fsdecode(ATTRIBUTES_FILE)), "wb") as file:
            file.write(text)

    def _merge(self, top: str, item: LandingItem) -> str | MergeConflict:
        tree = self._merge_trees(top, item.commit)
        if isinstance(tree, MergeConflict):
            return tree
        who, message = self._ident, item.message.encode("utf-8", "replace")
        return self._commit(tree, (top, item.commit), who, message)

    def _merge_trees(self, onto: str, commit: str, unrelated: bool = False) -> str | MergeConflict:
        """The tree of two merged commits."""
        more = ("--allow-unrelated-histories",) if unrelated else ()
        self._objects.flush()
        reply = self._commits.run(*MERGE_TREE_COMMAND, *more, onto, commit)
        if reply.code == 128 and b"unrelated histories" in reply.err:
            return MergeConflict((), "", onto, UNRELATED_HISTORIES)
        if reply.code not in (0, 1):
            raise GitFailed(f"git merge-tree: {reply.said or reply.code}")
        tree, *paths = reply.out.split(b"\0")
        if reply.code == 0:
            return tree.strip().decode()
        return MergeConflict(
            tuple(dict.fromkeys(decode_path(path) for path in paths if path)), tree.strip().decode(), onto
        )

    def _replay(self, top: str, item: LandingItem) -> str | MergeConflict:
        """Rebase the item's non-merge commits onto `top`. A last commit has what its merges resolved."""
        onto, merges = top, False
        for name, parents in self._new_commits(top, item.commit):
            merges = merges or len(parents) > 1
            result = onto if len(parents) > 1 else self._replay_commit(onto, name, parents)
            if isinstance(result, MergeConflict):
                return MergeConflict(result.paths, result.tree, top, result.said)
            onto = result
        if not merges:
            return onto
        whole = self._merge_trees(top, item.commit)
        if isinstance(whole, MergeConflict) or whole == self.tree_of(onto):
            return whole if isinstance(whole, MergeConflict) else onto
        return self._commit(whole, (onto,), self._ident, item.message.encode("utf-8", "replace"))

    def _new_commits(self, top: str, commit: str) -> list[tuple[str, tuple[str, ...]]]:
        """The commits that `commit` contains and `top` does not, oldest first, each with its parents."""
        reply = self._commits.run("rev-list", "--reverse", "--topo-order", "--parents", commit, f"^{top}", "--")
        if reply.code != 0:
            raise GitFailed(f"git rev-list: {reply.said}")
        rows = (line.split() for line in reply.out.decode("ascii").splitlines())
        return [(name, tuple(parents)) for name, *parents in rows]

    def _replay_commit(self, onto: str, name: str, parents: tuple[str, ...]) -> str | MergeConflict:
        """Cherry-pick one commit onto `onto`, with its author and message; returns `onto` where it changes nothing.

        git merge-tree takes no merge base (before 2.40), so a stand-in commit has the files of `onto` and the parents
        of `name`: merging it with `name` applies just the change of `name`.
        """
        tree = self.tree_of(onto)
        stand_in = self._commit(tree, parents, self._ident, b"")
        new_tree = self._merge_trees(stand_in, name, unrelated=not parents)
        if isinstance(new_tree, MergeConflict):
            return new_tree
        if new_tree == tree and not (parents and self.tree_of(name) == self.tree_of(parents[0])):
            return onto
        head, _, message = self._objects.read(name)[1].partition(b"\n\n")
        lines = head.split(b"\n")
        author = next(line[len(b"author ") :] for line in lines if line.startswith(b"author "))
        return self._commit(
            new_tree, (onto,), author, message, [line for line in lines if line.startswith(KEPT_COMMIT_HEADERS)]
        )

    def _commit(
        self, tree: str, parents: Iterable[str], author: bytes, message: bytes, headers: Iterable[bytes] = ()
    ) -> str:
        parent_lines = [b"parent " + parent.encode() for parent in parents]
        lines = [b"tree " + tree.encode(), *parent_lines, b"author " + author, b"committer " + self._ident, *headers]
        return self._objects.write(b"commit", b"\n".join(lines) + b"\n\n" + message)


def _refuse_old_git(version: str) -> None:
    found = re.search(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < MIN_GIT_VERSION:
        raise Refused(
            f"landing needs git {MIN_GIT_VERSION[0]}.{MIN_GIT_VERSION[1]} or newer, which merges without files; "
            f"this is {found[0]}. "
            "Install a newer one, or merge by hand: ralph branch RUN N, then git merge"
        )
