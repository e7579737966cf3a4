"""The files of a git work tree as a tree object: a base that git indexed, and what differs from it."""

from __future__ import annotations

import time

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.files import Files, Unreadable
from ralphproof.workspaces.index import GitFailed
from ralphproof.workspaces.listing import Listing, fold_away
from ralphproof.workspaces.objects import ObjectMissing
from ralphproof.workspaces.rules import flat, is_ignore_file
from ralphproof.workspaces.trees import LINK, decode

if TYPE_CHECKING:
    from ralphproof.workspaces.index import PrivateIndex
    from ralphproof.workspaces.objects import Objects
    from ralphproof.workspaces.trees import Entry, Trees

ABSORB_PAST = 500  # changed paths that are looked at one by one; more go into the private index
SLOW_S = 0.05


@value
class Seen:
    """One look at all files. A problem names what could not be read and may have changed."""

    tree: str
    left_out: tuple[str, ...]
    problem: str


class WorkTree:
    """Reads the files again and again, each time only those that may have changed."""

    def __init__(self, index: PrivateIndex, objects: Objects, trees: Trees, own: frozenset[bytes]) -> None:
        self._index, self._objects, self._trees = index, objects, trees
        self._files = Files(index.root, lambda content: objects.write(b"blob", content))
        self._listing = Listing(index, own)
        self._base: str | None = None
        self._overlay: dict[bytes, Entry | None] = {}
        self._start: str | None = None
        self._rules: str | None = None  # the ignore rules of the start, flattened into a file
        self._rules_moved = False
        self._quickest_s, self._slow, self._fooled = float("inf"), False, False
        self._unread: dict[bytes, tuple[int, ...]] = {}
        self._tolerated: tuple[dict[bytes, tuple[int, ...]], set[str]] | None = None

    def begin(self) -> None:
        """Forget everything: the next look sets the rules."""
        self.distrust()
        self._start = self._rules = self._tolerated = None
        self._rules_moved = False

    def distrust(self) -> None:
        """Build on nothing that was read before."""
        self._base = None
        self._files.forget()

    @property
    def ready(self) -> bool:
        return self._base is not None and self._index.as_left

    def prepare(self, start: str | None) -> None:
        """Index everything anew. `start` is the tree that the run began with, None when this is it."""
        self._overlay = {}
        self._base, unreadable = self._index.fill(self._listing.everything())
        self._listing.settle(unreadable)
        self._files.forget()
        if start and start != self._start:
            self._start, self._rules = start, None
        if self._start:
            self._rules_moved = self._rules_differ(self._start, self._base)

    def _rules_differ(self, start: str, base: str) -> bool:
        try:
            return any(map(is_ignore_file, self._trees.compare(start, base)))
        except ObjectMissing:  # the object store is another one than at the start
            self._start = self._rules = None
            return False

    def look(self) -> Seen:
        """The tree as it is now."""
        assert self._base is not None, "prepare comes first"
        self._unread = {}
        self._files.begin()
        paths = self._timed_listing()
        overlay = self._unlisted(paths) | self._entries(paths)
        heavy: set[bytes] = set()
        if self._start and (self._rules_moved or any(map(is_ignore_file, overlay))):
            kept, heavy = fold_away(self._listing.unhidden(self._start_rules(self._start)) - paths)
            overlay |= self._entries(kept)
        self._overlay = overlay
        tree = self._trees.build(self._base, overlay)
        self._start = self._start or tree
        return self._seen(tree, heavy)

    def _unlisted(self, paths: set[bytes]) -> dict[bytes, Entry | None]:
        """What may have changed unseen by git. The index cannot be mended there: one that lies is not kept."""
        ripe = self._index.ripe  # asked before they are read: what changes from now on, git sees
        found = self._entries(self._index.fresh - paths)
        self._fooled = bool(found) and self._trees.build(self._base, found) != self._base
        if ripe and not self._fooled:
            self._index.fresh = set()
        return found

    def _timed_listing(self) -> set[bytes]:
        started = time.monotonic()
        paths = self._listing.changed()
        took_s = time.monotonic() - started
        self._quickest_s = min(self._quickest_s, took_s)
        self._slow = took_s > SLOW_S + 2 * self._quickest_s
        return paths

    def _entries(self, paths: set[bytes]) -> dict[bytes, Entry | None]:
        overlay: dict[bytes, Entry | None] = {}
        for path in sorted(paths):
            try:
                overlay[path] = self._files.look(path)
            except Unreadable as error:
                self._unread[path] = error.signature
                if path in self._overlay:
                    overlay[path] = self._overlay[path]
        return overlay

    def _seen(self, tree: str, heavy: set[bytes]) -> Seen:
        """What was unreadable at the start and is untouched since is left out; anything newer is a problem."""
        complaints = self._listing.complaints
        first = self._tolerated is None
        known, said = self._tolerated = self._tolerated or (dict(self._unread), set(complaints))
        fresh = sorted(path for path, signature in self._unread.items() if known.get(path) != signature)
        told = [f"cannot read {decode(path)}" for path in fresh[:5]] + sorted(complaints - said)[:5]
        if first:
            told = [f"cannot read {decode(path)}" for path in sorted(known)[:5]] + sorted(complaints)[:5]
        left_out = self._files.large | heavy | self._unread.keys()
        return Seen(tree, tuple(sorted(map(decode, left_out))), "; ".join(told))

    def settle(self) -> bool:
        """Make the next look short again; return whether there is a new base.

        A long list of changes goes into the index. After a checkout that touched many files their times do.
        """
        try:
            if not self._fooled:
                return self._settled()
        except GitFailed:
            pass
        self.distrust()
        return False

    def _settled(self) -> bool:
        if len(self._overlay) <= ABSORB_PAST:
            if self._slow:
                self._index.refresh()
            return False
        self._rules_moved = self._rules_moved or any(map(is_ignore_file, self._overlay))
        self._base, self._overlay = self._index.absorb(self._overlay), {}
        return True

    def _start_rules(self, start: str) -> str:
        if self._rules is None:
            listed = self._index.must("ls-tree", "-r", "-z", "--full-tree", start).out
            found = []
            for record in listed.split(b"\0")[:-1]:
                about, _, path = record.partition(b"\t")
                mode, _, name = about.split(b" ", 2)
                if is_ignore_file(path) and mode != LINK:
                    found.append((path, self._objects.read(name.decode())[1]))
            text = self._index.noted("info/exclude") + b"\n" + flat(found)
            self._rules = self._index.note("rules-of-the-start", text)
        return self._rules
