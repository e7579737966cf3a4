"""Runs as a list shows them, and how a user's name for one is understood."""

from __future__ import annotations

from ralphproof.errors import HarnessFailed, NotThere, Refused
from ralphproof.ledgers.process import LoopProcess
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Sequence

LATEST = "latest"
PAUSE, RESUME, CANCEL = "pause", "resume", "cancel"
WISHES = (PAUSE, RESUME, CANCEL, "")  # the last one is another word for RESUME
_SHOWN = 6


@value
class RunRow:
    """One run at a glance. `parent` is the run that it belongs to or follows; empty for most."""

    id: str
    began_at: float
    directory: str
    pid: int
    pid_start: str
    boot: str
    ended: bool
    parent: str = ""
    host: str = ""

    @property
    def process(self) -> LoopProcess:
        """The process that has, or had, this run."""
        return LoopProcess(self.pid, self.pid_start, self.boot, self.host)


def understood(wish: str) -> str:
    """The same wish; raises HarnessFailed for one that no run understands."""
    if wish not in WISHES:
        raise HarnessFailed(f"no run understands the wish {wish!r}")
    return wish


def wanted(wishes: Sequence[str]) -> str:
    """What is wanted in the end by whoever asked for all this in turn. Nothing takes a cancel back."""
    if CANCEL in wishes:
        return CANCEL
    return PAUSE if wishes and wishes[-1] == PAUSE else ""


def pick(name: str, found: Sequence[str]) -> str:
    """The run that `name` means, of those found for it; raises Refused where there is not exactly one."""
    if len(found) == 1:
        return found[0]
    if name in found:
        return name
    if not found:
        wanted = "no run yet" if name == LATEST else f"no run is called {name!r}, and none begins so"
        raise NotThere(f"{wanted}; see: ralph status")
    shown = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    raise Refused(f"several runs begin with {name!r}: {shown}")
