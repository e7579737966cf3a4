"""Pinned pieces of a project, known by digests, and the bounded reading of its files."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping

from ralphproof.base.text import quote_excerpt
from ralphproof.base.value import Json, value

# Files of the project as pins look at them: bounded, without following links out of it, never waiting for a pipe.


READ_BYTES = 1024 * 1024  # of a file that is to be understood; of a larger one only the digest is known
DIGEST_BYTES = 64 * READ_BYTES  # of a file that is to be told from another one
LINKS = 8  # followed one after the other
OWN = (".git", ".ralph", ".ralph-active")


def digest(content: bytes) -> str:
    """A short name of a content."""
    return hashlib.sha256(content).hexdigest()[:20]


def inside(path: str) -> str:
    """A path from the root in its plain form; empty where it leads out, is the root, or is not the project's own."""
    plain = os.path.normpath(path) if path else "."
    if plain in (".", "..") or plain.startswith(("../", "/")) or "\0" in plain:
        return ""
    return "" if plain.split("/", 1)[0] in OWN or ".git" in plain.split("/") else plain


class ProjectFiles:
    """The files of a project now; what was read once is kept as long as this is."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self._known: dict[str, tuple[bytes, str] | None] = {}

    def read(self, path: str) -> bytes | None:
        """What a file holds, through links inside the project; None where there is none.

        Of one that is too large it is the beginning.
        """
        found = self._found(path)
        return found[0] if found else None

    def text(self, path: str) -> str | None:
        """The same as a text; None also where it is none."""
        content = self.read(path)
        return None if content is None or b"\0" in content[:8192] else content.decode("utf-8", "replace")

    def digest(self, path: str) -> str:
        """The same for two equal files; empty where there is none."""
        found = self._found(path)
        return found[1] if found else ""

    def there(self, path: str) -> bool:
        """Whether anything is there, a file or not."""
        return bool(inside(path)) and os.path.lexists(os.path.join(self.root, path))

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(os.path.join(self.root, path))

    def list_files(self, folder: str, most: int = 5000) -> list[str]:
        """What lies in a folder, sorted; nothing where it is none."""
        try:
            with os.scandir(os.path.join(self.root, folder)) as entries:
                return sorted(entry.name for entry, _ in zip(entries, range(most), strict=False))
        except (OSError, ValueError):
            return []

    def from_root(self, path: str, folder: str = ".") -> str:
        """The path from the root of what a command in this folder calls so; empty where it lies elsewhere."""
        if not path or "\0" in path:
            return ""
        whole = os.path.normpath(os.path.join(self.root, folder, path))
        return inside(os.path.relpath(whole, self.root)) if whole.startswith("/") else ""

    def _found(self, path: str) -> tuple[bytes, str] | None:
        if path not in self._known:
            self._known[path] = self._look(path) if inside(path) else None
        return self._known[path]

    def _look(self, path: str) -> tuple[bytes, str] | None:
        """The content and its digest. A link that leads out of the project is known by where it leads."""
        led, at = b"", path
        for _ in range(LINKS):
            whole = os.path.join(self.root, at)
            try:
                lead = os.fsencode(os.readlink(whole))
            except (OSError, ValueError):
                break
            led += lead + b"\n"
            at = self.from_root(os.fsdecode(lead), os.path.dirname(at))
            if not at:
                return led, digest(led)
        found = _regular(os.path.join(self.root, at))
        if found is None:
            return (led, digest(led)) if led else None
        return found if not led else (found[0], digest(led + found[1].encode()))


def _regular(path: str) -> tuple[bytes, str] | None:
    """The beginning of a regular file, and the digest of all of it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return None
        content = os.read(descriptor, READ_BYTES)
        if len(content) == facts.st_size:
            return content, digest(content)
        return content, _whole(descriptor, content, facts)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _whole(descriptor: int, beginning: bytes, facts: os.stat_result) -> str:
    """Of a file that is huge, the rest is known by its size and time."""
    known, size = hashlib.sha256(beginning), len(beginning)
    while size < DIGEST_BYTES and (chunk := os.read(descriptor, READ_BYTES)):
        known.update(chunk)
        size += len(chunk)
    if size < facts.st_size:
        known.update(f"{facts.st_size} {facts.st_mtime_ns}".encode())
    return known.hexdigest()[:20]


# A part of the project that decides over a check: known by the digests of its bits, and never by what it holds.


NAME_CHARS = 80
WHOLE = ""  # the name of the only bit of a piece that has one
NUMBER = "n:"  # what begins a bit that is a threshold: then it is known itself
# What a piece is, and so how a change of it is judged.
SCRIPT, TARGET, VARIABLE, PACKAGE, SETTINGS = "script", "target", "variable", "package", "settings"
CONFTEST, STARTUP, SHADOW, PLUGIN, PROGRAM = "conftest", "startup", "shadow", "plugin", "program"
DECLARED = "declared"  # what a package says that it needs: free to change, and known as it was


@value
class Piece:
    """A part of a file. `name` is the part's own, empty where it is the whole file; `bits` are sorted by their names.

    `runner` is the program that the piece configures. `rank` tells which of two pieces of one runner counts: the lower.
    """

    kind: str
    path: str
    name: str = ""
    bits: tuple[tuple[str, str], ...] = ()
    runner: str = ""
    rank: int = 0

    @property
    def key(self) -> str:
        return f"{self.kind}\n{self.path}\n{self.name}"

    @property
    def by_name(self) -> dict[str, str]:
        return dict(self.bits)


def piece(kind: str, path: str, name: str, bits: Mapping[str, str], runner: str = "", rank: int = 0) -> Piece:
    """A piece of these bits."""
    return Piece(kind, path, name, tuple(sorted(bits.items())), runner, rank)


def whole(kind: str, path: str, digest: str, runner: str = "", rank: int = 0) -> Piece:
    """A piece that is a whole file."""
    return Piece(kind, path, "", ((WHOLE, digest),), runner, rank)


def shown(name: str) -> str:
    """A name out of a file as it can stand in a sentence."""
    return name if name.isprintable() and len(name) <= NAME_CHARS else quote_excerpt(name)


def listed(names: list[str], most: int = 5) -> str:
    """Some names in a sentence."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


def to_note(pieces: Mapping[str, Piece]) -> Json:
    """What is kept of pieces."""
    return [[one.kind, one.path, one.name, dict(one.bits), one.runner, one.rank] for one in pieces.values()]


def from_note(noted: Json) -> dict[str, Piece] | None:
    """The pieces that were kept; None where they cannot be read."""
    try:
        rows = [tuple(row) for row in noted]  # type: ignore[union-attr, arg-type]
        made = [
            Piece(
                str(kind),
                str(path),
                str(name),
                tuple(sorted((str(a), str(b)) for a, b in bits.items())),
                str(runner),
                int(rank),
            )
            for kind, path, name, bits, runner, rank in rows
        ]
    except (TypeError, ValueError, AttributeError):
        return None
    return {one.key: one for one in made}
