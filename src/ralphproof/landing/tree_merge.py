"""Merges in git's object store, without a work tree or index."""

from __future__ import annotations

import os
import re

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.landing.batch import MergeClash
from ralphproof.store.landings import MergeConflict
from ralphproof.workspace.git_command import GitFailed
from ralphproof.workspace.git_objects import CommitStore, ObjectStore, TreeStore, decode_path
from ralphproof.workspace.private_index import PrivateIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from ralphproof.store.landings import LandingItem
    from ralphproof.workspace.git_command import UserGit

EMPTY_WORK_TREE = "files"
MIN_GIT_VERSION = (2, 38)  # the first git that merges without files
MERGE_TREE_COMMAND = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages")
ATTRIBUTES_FILE = b".gitattributes"
KEPT_COMMIT_HEADERS = (b"encoding ",)  # what a replayed commit says besides its author: in which letters it is written
UNRELATED_HISTORIES = "their histories have nothing in common"


@value
class MergedItem:
    """A parcel on top of what lay there: `commit` has both."""

    item: LandingItem
    commit: str


@value
class MergeStack:
    """Parcels on top of each other, on `base`. `there` are those that it had before; those that clash lie beside it."""

    base: str
    top: str
    tree: str
    laid: tuple[MergedItem, ...]
    there: tuple[LandingItem, ...] = ()
    clashes: tuple[MergeClash, ...] = ()


class TreeMerger:
    """Lays parcels on top of a commit. New objects are on the disk before they are named.

    A line in the .gitattributes at the top of `base` may ask for one of git's own ways to merge; no program is run.
    """

    def __init__(self, users: UserGit, environ: Mapping[str, str], scratch: str, rebase: bool = False) -> None:
        """`scratch` is an empty folder for it alone. Raises Refused where git is too old."""
        self._users, self._rebase = users, rebase
        self._ident = users.identity()
        _refuse_old_git(users.run("version").out.decode("utf-8", "replace"))
        self._scratch = scratch
        files = os.path.join(scratch, EMPTY_WORK_TREE)
        os.mkdir(files, 0o700)
        index = PrivateIndex(files, scratch, users.folders, environ)
        index.git = users.git  # found outside of the project
        index.create()
        self._objects = ObjectStore(index.git, users.folders.objects, users.folders.algorithm, index.env)
        self._commits = CommitStore(index, self._objects, TreeStore(self._objects))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._objects.discard()
        self._objects.close()

    def pile(self, base: str, parcels: Iterable[LandingItem]) -> MergeStack:
        """The parcels one on top of the other, without those that clash. Raises Refused where a commit is not there."""
        self._take_attributes(base)
        top = base
        laid: list[MergedItem] = []
        there: list[LandingItem] = []
        clashes: list[MergeClash] = []
        for parcel in parcels:
            self._must_be_there(parcel)
            if self._commits.is_ancestor(parcel.commit, top):
                there.append(parcel)
                continue
            replays = self._rebase and parcel.run  # what the user committed has its names in other places already
            found = self._replayed(top, parcel) if replays else self._merged(top, parcel)
            if isinstance(found, MergeConflict):
                clashes.append(MergeClash(parcel, found, alone=not laid))
                continue
            top = found
            laid.append(MergedItem(parcel, top))
        self._objects.flush()
        return MergeStack(base, top, self.tree_of(top), tuple(laid), tuple(there), tuple(clashes))

    def tree_of(self, commit: str) -> str:
        """The tree of a commit."""
        return self._commits.header(commit, b"tree ")[0]

    def _must_be_there(self, parcel: LandingItem) -> None:
        if not self._commits.has(parcel.commit):
            whose = f" of run {parcel.run}" if parcel.run else ""
            raise Refused(f"commit {parcel.commit}{whose} is not in this repository any more; was it pruned?")

    def _take_attributes(self, base: str) -> None:
        entry = self._commits.read_entry(base, ATTRIBUTES_FILE)
        text = self._commits.read_blob(entry[1]) if entry and entry[0] in (b"100644", b"100755") else b""
        with open(os.path.join(self._scratch, EMPTY_WORK_TREE, os.fsdecode(ATTRIBUTES_FILE)), "wb") as file:
            file.write(text)

    def _merged(self, top: str, parcel: LandingItem) -> str | MergeConflict:
        tree = self._tree(top, parcel.commit)
        if isinstance(tree, MergeConflict):
            return tree
        who, message = self._ident, parcel.message.encode("utf-8", "replace")
        return self._commit(tree, (top, parcel.commit), who, message)

    def _tree(self, onto: str, commit: str, unrelated: bool = False) -> str | MergeConflict:
        """The tree of two commits merged."""
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

    def _replayed(self, top: str, parcel: LandingItem) -> str | MergeConflict:
        """Every commit of the parcel that is no merge, once more on top. What its merges decided comes last."""
        onto, merges = top, False
        for name, parents in self._new(top, parcel.commit):
            merges = merges or len(parents) > 1
            made = onto if len(parents) > 1 else self._again(onto, name, parents)
            if isinstance(made, MergeConflict):
                return MergeConflict(made.paths, made.tree, top, made.said)
            onto = made
        if not merges:
            return onto
        whole = self._tree(top, parcel.commit)
        if isinstance(whole, MergeConflict) or whole == self.tree_of(onto):
            return whole if isinstance(whole, MergeConflict) else onto
        return self._commit(whole, (onto,), self._ident, parcel.message.encode("utf-8", "replace"))

    def _new(self, top: str, commit: str) -> list[tuple[str, tuple[str, ...]]]:
        """The commits that `commit` has and `top` has not, oldest first, each with its parents."""
        reply = self._commits.run("rev-list", "--reverse", "--topo-order", "--parents", commit, f"^{top}", "--")
        if reply.code != 0:
            raise GitFailed(f"git rev-list: {reply.said}")
        rows = (line.split() for line in reply.out.decode("ascii").splitlines())
        return [(name, tuple(parents)) for name, *parents in rows]

    def _again(self, onto: str, name: str, parents: tuple[str, ...]) -> str | MergeConflict:
        """One commit on top of another, by its own author and with its message; nothing new where it changes nothing.

        A commit that has the files of `onto` and the parent of `name` differs from that parent as all before it did:
        so a merge of both is this one commit's change on top.
        """
        tree = self.tree_of(onto)
        stand_in = self._commit(tree, parents, self._ident, b"")
        made = self._tree(stand_in, name, unrelated=not parents)
        if isinstance(made, MergeConflict):
            return made
        if made == tree and not (parents and self.tree_of(name) == self.tree_of(parents[0])):
            return onto
        head, _, message = self._objects.read(name)[1].partition(b"\n\n")
        lines = head.split(b"\n")
        author = next(line[len(b"author ") :] for line in lines if line.startswith(b"author "))
        return self._commit(
            made, (onto,), author, message, [line for line in lines if line.startswith(KEPT_COMMIT_HEADERS)]
        )

    def _commit(
        self, tree: str, parents: Iterable[str], author: bytes, message: bytes, heads: Iterable[bytes] = ()
    ) -> str:
        on = [b"parent " + parent.encode() for parent in parents]
        told = [b"tree " + tree.encode(), *on, b"author " + author, b"committer " + self._ident, *heads]
        return self._objects.write(b"commit", b"\n".join(told) + b"\n\n" + message)


def _refuse_old_git(told: str) -> None:
    found = re.search(r"(\d+)\.(\d+)", told)
    if found and (int(found[1]), int(found[2])) < MIN_GIT_VERSION:
        raise Refused(
            f"landing needs git {MIN_GIT_VERSION[0]}.{MIN_GIT_VERSION[1]} or newer, which merges without files; "
            f"this is {found[0]}. "
            "Install a newer one, or merge by hand: ralph branch RUN N, then git merge"
        )
