"""Where what is watched is kept out of the agent's reach, so that a harness that dies can be followed by another."""

from __future__ import annotations

import errno
import os

from ralphproof.value import TYPE_CHECKING, pack, unpack, value
from ralphproof.workspace import Sprung
from ralphproof.workspaces.durable import sync_folders, write_all
from ralphproof.workspaces.layout import read_small
from ralphproof.workspaces.refs import ALLOWED

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.value import Json
    from ralphproof.workspaces.lost import Work
    from ralphproof.workspaces.watched import Root, Seen, Sight

    Plan = dict[str, dict[bytes, Seen | None]]  # by place: what a path must become; None where nothing may be

MOST_BYTES = 1 << 30  # of all copies; what comes after is only known by its digest, and cannot be put back
INDEX, PACK, ANSWER = "index.json", "pack-", "answer-"


@value
class Besides:
    """What else must be remembered of a repository: whether it was gone, and other worktrees with their branches.

    `work` is what the user had not committed; None before the run's first turn.
    """

    gone: bool = False
    elsewhere: tuple[tuple[str, str], ...] = ()
    work: Work | None = None


@value
class Armed:
    """What was watched when the wires were armed, by place."""

    sights: dict[str, Sight]
    roots: dict[str, tuple[Root, ...]]
    besides: Besides = Besides()


@value
class Answer:
    """What was found, what must be put back for it, and whether that was done.

    `told` says that the user hears of uncommitted work that was swept away, as they do once in a run.
    """

    sprung: Sprung
    plan: Plan
    told: bool = False
    done: bool = False


class Vault:
    """A private folder of one run. Contents lie in a few files, many in each, and are named by their digest."""

    def __init__(self, folder: str) -> None:
        import hashlib

        self._folder, self._digest = folder, hashlib.sha256
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._held: dict[str, tuple[str, int, int]] = {}  # digest: file, offset, length
        self._bytes = 0
        self.taking = False
        self._writing: tuple[str, int] | None = None

    @property
    def scratch(self) -> str:
        """A file for whoever needs one for a moment."""
        return os.path.join(self._folder, "scratch")

    @property
    def spare(self) -> str:
        """The folder for a spare of the repository."""
        return os.path.join(self._folder, "spare")

    @property
    def repository(self) -> str:
        """The folder in which it is put together when it is needed."""
        return os.path.join(self._folder, "repository")

    def load(self) -> Armed | None:
        """What was saved last; None where nothing was, or it can no longer be read."""
        data = self._json(INDEX)
        try:
            self._held = {digest: (str(file), int(at), int(size)) for digest, (file, at, size) in data["held"].items()}
            sights = {name: _sight(found) for name, found in data["sights"].items()}
            roots = {name: _roots(found) for name, found in data["roots"].items()}
            besides = unpack(data["besides"])
            return Armed(sights, roots, besides) if isinstance(besides, Besides) else None
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def save(self, armed: Armed, plan: Plan) -> None:
        """Make this durable, with every content held so far that it names, or the plan does; forget all others."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        if self._writing:
            os.fsync(self._writing[1])
            os.close(self._writing[1])
            self._writing = None
        wanted = {seen[1] for found in armed.sights.values() for seen in found.values()}
        wanted |= {seen[1] for planned in plan.values() for seen in planned.values() if seen}
        self._held = {digest: place for digest, place in self._held.items() if digest in wanted}
        self._bytes = sum(size for _, _, size in self._held.values())
        data: dict[str, Json] = {
            "held": {digest: list(place) for digest, place in self._held.items()},
            "sights": {name: _plain(found) for name, found in armed.sights.items()},
            "roots": {name: [[_text(path), wire] for path, wire in found] for name, found in armed.roots.items()},
            "besides": pack(armed.besides),
        }
        self._put(INDEX, data)
        needed = {file for file, _, _ in self._held.values()}
        for name in os.listdir(self._folder):
            if name.startswith(PACK) and name not in needed:
                os.unlink(os.path.join(self._folder, name))

    def name(self, content: bytes) -> str:
        """What a content is called."""
        return self._digest(content).hexdigest()

    def take(self, content: bytes) -> str:
        """The name of a content; while `taking`, it is held as well."""
        return self.hold(content) if self.taking else self.name(content)

    def hold(self, content: bytes) -> str:
        """Keep a content until the next `save`; return its name."""
        digest = self.name(content)
        if not self.holds(digest) and self._bytes + len(content) <= MOST_BYTES:
            name, descriptor = self._writing or self._start()
            at = os.lseek(descriptor, 0, os.SEEK_CUR)
            write_all(descriptor, content)
            self._held[digest] = (name, at, len(content))
            self._bytes += len(content)
        return digest

    def holds(self, digest: str) -> bool:
        return digest in self._held

    def clear(self) -> None:
        """Forget everything: nothing of it is needed any more."""
        for name in os.listdir(self._folder) if os.path.isdir(self._folder) else ():
            if not os.path.isdir(os.path.join(self._folder, name)):
                os.unlink(os.path.join(self._folder, name))
        self._held, self._bytes = {}, 0

    def _start(self) -> tuple[str, int]:
        number = 1
        while os.path.lexists(os.path.join(self._folder, f"{PACK}{number}")):
            number += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._writing = (f"{PACK}{number}", os.open(os.path.join(self._folder, f"{PACK}{number}"), flags, 0o600))
        return self._writing

    def read(self, digest: str) -> bytes:
        """A content that is held. Raises OSError where there is no true copy."""
        if digest not in self._held:
            raise OSError(errno.ENOENT, "no copy of it was kept")
        name, at, size = self._held[digest]
        descriptor = os.open(os.path.join(self._folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            content = os.pread(descriptor, size, at)
        finally:
            os.close(descriptor)
        if self.name(content) != digest:
            raise OSError(errno.EIO, "the copy of it was damaged")
        return content

    def answer(self, name: str) -> Answer | None:
        """What was found under this name, if it was."""
        data = self._json(_answer(name))
        try:
            plan = {place: _wanted(found) for place, found in data["plan"].items()}
            sprung = unpack(data["sprung"])
            return Answer(sprung, plan, data["told"], data["done"]) if isinstance(sprung, Sprung) else None
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def keep(self, name: str, answer: Answer) -> None:
        """Make an answer durable."""
        plan: Json = {place: _plain(found) for place, found in answer.plan.items()}
        sprung = pack(answer.sprung)
        self._put(_answer(name), {"sprung": sprung, "plan": plan, "told": answer.told, "done": answer.done})

    def unfinished(self) -> list[str]:
        """The names of answers that were not acted on to the end."""
        if not os.path.isdir(self._folder):
            return []
        files = (file for file in os.listdir(self._folder) if file.startswith(ANSWER) and file.endswith(".json"))
        answers = {name: self.answer(name) for name in (file[len(ANSWER) : -len(".json")] for file in files)}
        return sorted(name for name, answer in answers.items() if answer and not answer.done)

    def _json(self, name: str) -> Any:
        import json

        try:
            return json.loads(read_small(os.fsencode(os.path.join(self._folder, name))))
        except (OSError, ValueError):
            return None

    def _put(self, name: str, data: Json) -> None:
        import json

        put_whole(os.path.join(self._folder, name), json.dumps(data, separators=(",", ":")).encode())


def put_whole(path: str, content: bytes) -> None:
    """Write a private file, so that it is there whole or not at all, whatever happens."""
    descriptor = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(path + ".new", path)
    sync_folders({os.fsencode(os.path.dirname(path))})


def _answer(name: str) -> str:
    if not name or set(name) - ALLOWED:
        raise ValueError(f"{name!r} cannot be the name of an answer")
    return f"{ANSWER}{name}.json"


def _plain(found: dict[bytes, Seen | None] | Sight) -> Json:
    return {_text(path): [seen[0].decode(), seen[1], seen[2]] if seen else None for path, seen in found.items()}


def _wanted(data: dict[str, Any]) -> dict[bytes, Seen | None]:
    return {_bytes(path): _seen(seen) for path, seen in data.items()}


def _sight(data: dict[str, Any]) -> Sight:
    return {path: seen for path, seen in _wanted(data).items() if seen}


def _roots(data: list[tuple[str, int]]) -> tuple[Root, ...]:
    return tuple((_bytes(path), int(wire)) for path, wire in data)


def _seen(data: Any) -> Seen | None:
    return None if data is None else (str(data[0]).encode(), str(data[1]), int(data[2]))


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
