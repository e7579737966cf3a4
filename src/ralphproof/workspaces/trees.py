"""Directory trees as git stores them: read, built from changes, compared."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralphproof.workspaces.objects import Objects

    Entry = tuple[bytes, str]  # mode, object id
    Overlay = Mapping[bytes, Entry | None]  # None: not there

FOLDER = b"40000"
LINK = b"120000"
PROGRAM = b"100755"
FILE = b"100644"
KEPT_IN_MEMORY = 5000


class Trees:
    """The trees of one object store."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: dict[str, dict[bytes, Entry]] = {}

    def forget(self) -> None:
        """Read everything again: the object store may be another one."""
        self._known.clear()

    def entries(self, tree: str) -> dict[bytes, Entry]:
        """What lies directly in a tree, by name."""
        if tree not in self._known:
            self._remember(tree, self._parse(self._objects.read(tree)[1]))
        return self._known[tree]

    def _remember(self, tree: str, entries: dict[bytes, Entry]) -> None:
        if len(self._known) >= KEPT_IN_MEMORY:
            self._known.clear()
        self._known[tree] = entries

    def _parse(self, body: bytes) -> dict[bytes, Entry]:
        entries, at, width = {}, 0, self._objects.bytes
        while at < len(body):
            end = body.index(b"\0", at)
            mode, _, name = body[at:end].partition(b" ")
            at = end + 1 + width
            entries[name] = (mode, body[end + 1 : at].hex())
        return entries

    def build(self, base: str | None, changes: Overlay) -> str:
        """The tree that `base` becomes by these changes."""
        nested: dict[bytes, object] = {}
        for path, entry in changes.items():
            *folders, name = path.split(b"/")
            here = nested
            for folder in folders:
                below = here.setdefault(folder + b"/", {})
                assert isinstance(below, dict)
                here = below
            here[name] = entry
        return self._build(base, nested) or self._objects.write(b"tree", b"")

    def _build(self, base: str | None, nested: dict[bytes, object]) -> str | None:
        entries = dict(self.entries(base)) if base else {}
        for key, change in nested.items():
            name = key.rstrip(b"/")
            old = entries.get(name)
            if isinstance(change, dict):
                below = self._build(old[1] if old and old[0] == FOLDER else None, change)
                entry = (FOLDER, below) if below else None
                if entry is None and (old is None or old[0] != FOLDER):
                    continue  # nothing below a name that is no folder: it keeps what it is
            else:
                assert change is None or isinstance(change, tuple)
                entry = change
                if entry is None and (old is None or old[0] == FOLDER):
                    continue  # a file that became a folder: what is below it speaks for itself
            if entry is None:
                del entries[name]
            else:
                entries[name] = entry
        return self._write(entries) if entries else None

    def _write(self, entries: dict[bytes, Entry]) -> str:
        ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1][0] == FOLDER else item[0])
        body = b"".join(b"%s %s\0%s" % (mode, name, bytes.fromhex(object_id)) for name, (mode, object_id) in ordered)
        tree = self._objects.write(b"tree", body)
        self._remember(tree, entries)
        return tree

    def compare(self, before: str | None, after: str | None) -> dict[bytes, tuple[Entry | None, Entry | None]]:
        """Every file that differs, with what it was and what it is; reads only folders that differ."""
        return dict(self._differences(before, after, b""))

    def _differences(
        self, before: str | None, after: str | None, prefix: bytes
    ) -> Iterator[tuple[bytes, tuple[Entry | None, Entry | None]]]:
        if before == after:
            return
        old, new = self.entries(before) if before else {}, self.entries(after) if after else {}
        for name in sorted(old.keys() | new.keys()):
            was, now = old.get(name), new.get(name)
            if was == now:
                continue
            was_file, was_folder = _split(was)
            now_file, now_folder = _split(now)
            if was_file or now_file:
                yield prefix + name, (was_file, now_file)
            yield from self._differences(was_folder, now_folder, prefix + name + b"/")


def _split(entry: Entry | None) -> tuple[Entry | None, str | None]:
    if entry is not None and entry[0] == FOLDER:
        return None, entry[1]
    return entry, None


def decode(path: bytes) -> str:
    """A path as the rest of the program sees it."""
    return path.decode("utf-8", "surrogateescape")
