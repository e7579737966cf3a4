"""What is sent to those who look on: messages of `text/event-stream`, made once for all who get the same."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.web.answers import encoded

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.value import Json
    from ralphproof.views.board import Board
    from ralphproof.views.overhear import Overheard

FIRST = b"retry: 1000\n\n"  # how soon a browser comes again, in milliseconds
MOVING = ("seq", "iterations", "complete", "limits", "headline")  # what differs between two pages that say the same
MOST_RUNS = 200


def frame(event: str, data: bytes, number: int | None = None) -> bytes:
    """One message; with a number a browser that comes again says it."""
    mark = b"" if number is None else b"id: %d\n" % number
    return b"event: %s\n%sdata: %s\n\n" % (event.encode(), mark, data)


GONE = frame("gone", b"{}")
TASKS = frame("tasks", b"{}")
STILL_HERE = frame("still", b"{}")  # no comment: a page cannot see one, and must tell a quiet server from a dead one


@value
class RunFrame:
    """A run's page since some record: the message, and what it says beside the iterations that it brings."""

    seq: int
    says: bytes
    brings: bool
    message: bytes


def run_frame(board: Board, run: str, after: int) -> RunFrame:
    """What has happened to a run since a record. One that is not reached yet is another ledger's: then all of it."""
    page: dict[str, Any] = board.run(run, after)
    if after > page["seq"]:
        page = board.run(run, 0)
    says = encoded({name: part for name, part in page.items() if name not in MOVING})
    moving = encoded({name: page[name] for name in MOVING})
    return RunFrame(
        page["seq"], says, bool(page["iterations"]), frame("run", says[:-1] + b"," + moving[1:], page["seq"])
    )


@value
class Lineup:
    """All runs, each as its JSON, of which project they are, and where the tasks stand."""

    seq: int
    tasks: int
    total: int
    project: str
    lines: dict[str, bytes]


NOBODY = Lineup(0, 0, -1, "", {})


def lineup(board: Board) -> Lineup:
    tasks = board.moment().tasks
    found: dict[str, Any] = board.runs(MOST_RUNS)
    lines = {line["run"]: encoded(line) for line in found["runs"]}
    return Lineup(found["seq"], tasks, found["total"], found["project"], lines)


def changed(now: Lineup, before: Lineup, control: bool) -> bytes:
    """The message that leads from one lineup to the next; empty where there is nothing to say.

    The first says whose runs they are: who comes again may have known another project's, from another server.
    """
    lines = [line for run, line in now.lines.items() if before.lines.get(run) != line]
    if not lines and now.total == before.total:
        return b""
    told: dict[str, Json] = {"seq": now.seq, "total": now.total, "complete": before is NOBODY}
    if before is NOBODY:
        told |= {"project": now.project, "control": control}
    return frame("runs", b'%s,"runs":[%s]}' % (encoded(told)[:-1], b",".join(lines)))


@value
class Earful:
    """What an agent said and did at once, as a message, and where it stands in its turn."""

    turn: str
    first: int
    count: int
    message: bytes


def earful(heard: Overheard) -> Earful:
    told: dict[str, Json] = {
        "turn": heard.turn, "first": heard.first, "dropped": heard.dropped, "events": [*heard.events],
    }  # fmt: skip
    return Earful(heard.turn, heard.first, len(heard.events), frame("agent", encoded(told)))


def lost(count: int, before: Earful) -> bytes:
    """The message that says how much of what an agent did somebody who read too slowly has missed."""
    told: dict[str, Json] = {"turn": before.turn, "first": before.first, "dropped": count, "events": []}
    return frame("agent", encoded(told))
