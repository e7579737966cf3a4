"""Merges made in the object store alone: no work tree, no index and no ref is touched, and nothing configured runs."""

from __future__ import annotations

import os
import re

from ralphproof.errors import Refused
from ralphproof.landing import Clash, Conflict
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.commits import Commits
from ralphproof.workspaces.index import GitFailed, PrivateIndex
from ralphproof.workspaces.objects import Objects
from ralphproof.workspaces.trees import Trees, decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from ralphproof.landing import Parcel
    from ralphproof.workspaces.users_git import UsersGit

EMPTY = "files"
NEEDED = (2, 38)  # the first git that merges without files
MERGE = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages")
ATTRIBUTES = b".gitattributes"
KEPT_HEADS = (b"encoding ",)  # what a replayed commit says besides its author: in which letters it is written
UNRELATED = "their histories have nothing in common"


@value
class OnTop:
    """A parcel on top of what lay there: `commit` has both."""

    parcel: Parcel
    commit: str


@value
class Pile:
    """Parcels on top of each other, on `base`. `there` are those that it had before; those that clash lie beside it."""

    base: str
    top: str
    tree: str
    laid: tuple[OnTop, ...]
    there: tuple[Parcel, ...] = ()
    clashes: tuple[Clash, ...] = ()


class Merging:
    """Lays parcels on top of a commit. New objects are on the disk before they are named.

    A line in the .gitattributes at the top of `base` may ask for one of git's own ways to merge; no program is run.
    """

    def __init__(self, users: UsersGit, environ: Mapping[str, str], scratch: str, rebase: bool = False) -> None:
        """`scratch` is an empty folder for it alone. Raises Refused where git is too old."""
        self._users, self._rebase = users, rebase
        self._ident = users.ident()
        _refuse_old(users.ask("version").out.decode("utf-8", "replace"))
        self._scratch = scratch
        files = os.path.join(scratch, EMPTY)
        os.mkdir(files, 0o700)
        index = PrivateIndex(files, scratch, users.folders, environ)
        index.git = users.git  # found outside of the project
        index.make()
        self._objects = Objects(index.git, users.folders.objects, users.folders.algorithm, index.env)
        self._commits = Commits(index, self._objects, Trees(self._objects))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._objects.discard()
        self._objects.close()

    def pile(self, base: str, parcels: Iterable[Parcel]) -> Pile:
        """The parcels one on top of the other, without those that clash. Raises Refused where a commit is not there."""
        self._take_attributes(base)
        top = base
        laid: list[OnTop] = []
        there: list[Parcel] = []
        clashes: list[Clash] = []
        for parcel in parcels:
            self._must_be_there(parcel)
            if self._commits.descends(parcel.commit, top):
                there.append(parcel)
                continue
            replays = self._rebase and parcel.run  # what the user committed has its names in other places already
            found = self._replayed(top, parcel) if replays else self._merged(top, parcel)
            if isinstance(found, Conflict):
                clashes.append(Clash(parcel, found, alone=not laid))
                continue
            top = found
            laid.append(OnTop(parcel, top))
        self._objects.flush()
        return Pile(base, top, self.tree_of(top), tuple(laid), tuple(there), tuple(clashes))

    def tree_of(self, commit: str) -> str:
        """The tree of a commit."""
        return self._commits.header(commit, b"tree ")[0]

    def _must_be_there(self, parcel: Parcel) -> None:
        if not self._commits.has(parcel.commit):
            whose = f" of run {parcel.run}" if parcel.run else ""
            raise Refused(f"commit {parcel.commit}{whose} is not in this repository any more; was it pruned?")

    def _take_attributes(self, base: str) -> None:
        entry = self._commits.entry(base, ATTRIBUTES)
        text = self._commits.blob(entry[1]) if entry and entry[0] in (b"100644", b"100755") else b""
        with open(os.path.join(self._scratch, EMPTY, os.fsdecode(ATTRIBUTES)), "wb") as file:
            file.write(text)

    def _merged(self, top: str, parcel: Parcel) -> str | Conflict:
        tree = self._tree(top, parcel.commit)
        if isinstance(tree, Conflict):
            return tree
        who, message = self._ident, parcel.message.encode("utf-8", "replace")
        return self._commit(tree, (top, parcel.commit), who, message)

    def _tree(self, onto: str, commit: str, unrelated: bool = False) -> str | Conflict:
        """The tree of two commits merged."""
        more = ("--allow-unrelated-histories",) if unrelated else ()
        self._objects.flush()
        reply = self._commits.ask(*MERGE, *more, onto, commit)
        if reply.code == 128 and b"unrelated histories" in reply.err:
            return Conflict((), "", onto, UNRELATED)
        if reply.code not in (0, 1):
            raise GitFailed(f"git merge-tree: {reply.said or reply.code}")
        tree, *paths = reply.out.split(b"\0")
        if reply.code == 0:
            return tree.strip().decode()
        return Conflict(tuple(dict.fromkeys(decode(path) for path in paths if path)), tree.strip().decode(), onto)

    def _replayed(self, top: str, parcel: Parcel) -> str | Conflict:
        """Every commit of the parcel that is no merge, once more on top. What its merges decided comes last."""
        onto, merges = top, False
        for name, parents in self._new(top, parcel.commit):
            merges = merges or len(parents) > 1
            made = onto if len(parents) > 1 else self._again(onto, name, parents)
            if isinstance(made, Conflict):
                return Conflict(made.paths, made.tree, top, made.said)
            onto = made
        if not merges:
            return onto
        whole = self._tree(top, parcel.commit)
        if isinstance(whole, Conflict) or whole == self.tree_of(onto):
            return whole if isinstance(whole, Conflict) else onto
        return self._commit(whole, (onto,), self._ident, parcel.message.encode("utf-8", "replace"))

    def _new(self, top: str, commit: str) -> list[tuple[str, tuple[str, ...]]]:
        """The commits that `commit` has and `top` has not, oldest first, each with its parents."""
        reply = self._commits.ask("rev-list", "--reverse", "--topo-order", "--parents", commit, f"^{top}", "--")
        if reply.code != 0:
            raise GitFailed(f"git rev-list: {reply.said}")
        rows = (line.split() for line in reply.out.decode("ascii").splitlines())
        return [(name, tuple(parents)) for name, *parents in rows]

    def _again(self, onto: str, name: str, parents: tuple[str, ...]) -> str | Conflict:
        """One commit on top of another, by its own author and with its message; nothing new where it changes nothing.

        A commit that has the files of `onto` and the parent of `name` differs from that parent as all before it did:
        so a merge of both is this one commit's change on top.
        """
        tree = self.tree_of(onto)
        stand_in = self._commit(tree, parents, self._ident, b"")
        made = self._tree(stand_in, name, unrelated=not parents)
        if isinstance(made, Conflict):
            return made
        if made == tree and not (parents and self.tree_of(name) == self.tree_of(parents[0])):
            return onto
        head, _, message = self._objects.read(name)[1].partition(b"\n\n")
        lines = head.split(b"\n")
        author = next(line[len(b"author ") :] for line in lines if line.startswith(b"author "))
        return self._commit(made, (onto,), author, message, [line for line in lines if line.startswith(KEPT_HEADS)])

    def _commit(
        self, tree: str, parents: Iterable[str], author: bytes, message: bytes, heads: Iterable[bytes] = ()
    ) -> str:
        on = [b"parent " + parent.encode() for parent in parents]
        told = [b"tree " + tree.encode(), *on, b"author " + author, b"committer " + self._ident, *heads]
        return self._objects.write(b"commit", b"\n".join(told) + b"\n\n" + message)


def _refuse_old(told: str) -> None:
    found = re.search(r"(\d+)\.(\d+)", told)
    if found and (int(found[1]), int(found[2])) < NEEDED:
        raise Refused(
            f"landing needs git {NEEDED[0]}.{NEEDED[1]} or newer, which merges without files; this is {found[0]}. "
            "Install a newer one, or merge by hand: ralph branch RUN N, then git merge"
        )
