"""Settings that we read when a run is taken up, and that its agent may have changed: no tripwire was asked yet."""

from __future__ import annotations

import os

from ralphproof.cli.family import at_work
from ralphproof.cli.leftover import READ, live_turn
from ralphproof.errors import Refused
from ralphproof.keeper import journal
from ralphproof.phase import Checking, Turned, Turning
from ralphproof.record import Resumed
from ralphproof.state import SCM, State
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.views.found import ended_ns, quiet_ns
from ralphproof.views.standing import turn_file
from ralphproof.world import numbered

if TYPE_CHECKING:
    from ralphproof.cli.order import Order
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.skill import Skill
    from ralphproof.views.project import Project
    from ralphproof.workspaces.tripwires import Wires


@value
class Unjudged:
    """Work whose tripwires are asked by this `name` later on. `over_ns` is when it ended, 0 where nobody can tell."""

    name: str
    over_ns: int = 0
    at_work: bool = False


def opened(state: State) -> State:
    """Where a run stands as soon as it is taken up."""
    return state.after(Resumed(state.session + 1, state.began_s, state.elapsed_s))


def unjudged(project: Project, ledger: Sqlite, run: str, state: State, brought: bool) -> Unjudged | None:
    """What was open of a run that stands there; None where all was judged, or never began.

    An agent that is `brought` along is a function, and leaves no trace of its beginning.
    """
    agent, alive = numbered(f"agent_{state.iteration:03d}", state.turn), live_turn(project, run) is not None
    match state.phase:
        case Turning() | Turned():
            name = agent
        case Checking() if state.awaited_s is not None:
            below = ledger.descendants(run)
            busy = alive or any(at_work(project, row) for row in below)
            over_ns = 0 if busy else quiet_ns(project, (run, *(row.id for row in below)))
            return Unjudged(f"{agent}_joined", over_ns, busy)
        case _ if SCM in state.begun:
            name = f"scm_{state.iteration:03d}"
        case _:
            return None
    began = alive or journal.read(turn_file(project, run, name)).began
    return Unjudged(name, ended_ns(project, run, state), alive) if began or brought else None


def refuse_tampered(order: Order, run: str, work: Unjudged, wires: Wires) -> None:
    """Raise Refused where what this process read of the project is not the user's. What is over is put back then."""
    wires.spare(work.over_ns)
    tampered = wires.changed(work.name, READ, _read(order)) or _other_skills(order)
    if not tampered:
        return
    named = ", ".join(tampered)
    if work.at_work:
        raise Refused(
            f"{named} had been changed when this was begun, and run {run} still has somebody at work here who may have "
            f"done it; resume it when that is over, or end it: ralph cancel {run}"
        )
    stays = [
        f"{one.path} could not be put back: {one.trouble}" for one in wires.sprung(work.name).touched if one.trouble
    ]
    raise Refused(
        f"{named} had been changed by the agent of run {run}, and this run had read that already: "
        f"{'; '.join([*stays, 'start it again'])}"
    )


def _read(order: Order) -> dict[str, str]:
    """The settings files of the project, with their digests as they were read."""
    named = ((os.path.relpath(path, order.project.root), digest) for path, digest in order.loaded.files)
    return {path: digest for path, digest in named if path.startswith(READ)}


def _other_skills(order: Order) -> tuple[str, ...]:
    """Skills that are not the ones that were read. The files are as they were when the turn began."""
    known = [skill for skill in (order.skill, order.debugging) if skill is not None]
    return tuple(sorted({skill.source for skill in known if _now(order.project.root, skill.name) != skill}))


def _now(root: str, name: str) -> Skill | None:
    from ralphproof.config.skills import skill_named

    try:
        return skill_named(root, name)
    except Refused:
        return None
