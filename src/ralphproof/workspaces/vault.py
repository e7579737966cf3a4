"""Where what is watched is kept out of the agent's reach, so that a harness that dies can be followed by another."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING, pack, unpack, value
from ralphproof.workspace import Sprung
from ralphproof.workspaces.contents import Contents, put_whole
from ralphproof.workspaces.layout import read_small
from ralphproof.workspaces.refs import ALLOWED
from ralphproof.workspaces.wire import Wire

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.value import Json
    from ralphproof.workspaces.lost import Work
    from ralphproof.workspaces.watched import Root, Seen, Sight

    Plan = dict[str, dict[bytes, Seen | None]]  # by place: what a path must become; None where nothing may be

INDEX, ANSWER = "index.json", "answer-"


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
    """What was watched when the wires were armed, by place, and the wires themselves: others may be laid later."""

    sights: dict[str, Sight]
    roots: dict[str, tuple[Root, ...]]
    besides: Besides = Besides()
    wires: dict[str, tuple[Wire, ...]] = {}  # noqa: RUF012 (never changed)


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
    """A private folder of one run: what was armed, with the contents of it, and the answers that were given."""

    def __init__(self, folder: str) -> None:
        self._folder, self.contents = folder, Contents(folder)

    @property
    def scratch(self) -> str:
        """A file for whoever needs one for a moment."""
        return os.path.join(self._folder, "scratch")

    def load(self) -> Armed | None:
        """What was saved last; None where nothing was, or it can no longer be read."""
        data = self._json(INDEX)
        try:
            self.contents.know(data["held"])
            sights = {name: _sight(found) for name, found in data["sights"].items()}
            roots = {name: _roots(found) for name, found in data["roots"].items()}
            besides = unpack(data["besides"])
            wires = {name: _wires(found) for name, found in data.get("wires", {}).items()}
            return Armed(sights, roots, besides, wires) if isinstance(besides, Besides) else None
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def save(self, armed: Armed, plan: Plan) -> None:
        """Make this durable, with every content held so far that it names, or the plan does; forget all others."""
        wanted = {seen[1] for found in armed.sights.values() for seen in found.values()}
        wanted |= {seen[1] for planned in plan.values() for seen in planned.values() if seen}
        data: dict[str, Json] = {
            "held": self.contents.settle(wanted),
            "sights": {name: _plain(found) for name, found in armed.sights.items()},
            "roots": {name: [[_text(path), wire] for path, wire in found] for name, found in armed.roots.items()},
            "besides": pack(armed.besides),
            "wires": {name: [[w.pattern, w.rule, w.stops] for w in laid] for name, laid in armed.wires.items()},
        }
        self._put(INDEX, data)
        self.contents.sweep()

    def clear(self) -> None:
        """Forget everything: nothing of it is needed any more."""
        for name in os.listdir(self._folder) if os.path.isdir(self._folder) else ():
            if not os.path.isdir(os.path.join(self._folder, name)):
                os.unlink(os.path.join(self._folder, name))
        self.contents.know({})

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


def _wires(data: list[tuple[str, str, bool]]) -> tuple[Wire, ...]:
    return tuple(Wire(str(pattern), str(rule), bool(stops)) for pattern, rule, stops in data)


def _seen(data: Any) -> Seen | None:
    return None if data is None else (str(data[0]).encode(), str(data[1]), int(data[2]))


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
