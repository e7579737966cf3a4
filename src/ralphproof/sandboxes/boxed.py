"""A sandbox around every command: what it can reach is planned anew each time, and told to the outer program."""

from __future__ import annotations

import os
import sys

from ralphproof import interpreter
from ralphproof.sandbox import Exit
from ralphproof.sandboxes.egress_audit import blocked_in
from ralphproof.sandboxes.load import Load, clear, read_report, write_load
from ralphproof.value import TYPE_CHECKING, Protocol, replace

if TYPE_CHECKING:
    from ralphproof.sandbox import Command, Watch
    from ralphproof.sandboxes.box import Backend, Box
    from ralphproof.sandboxes.ghosts import Ghosts

OUTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "outer.py")
LOAD, REPORT, AUDIT = ".load", ".stay", ".egress.ndjson"


class Owner(Protocol):
    """Whoever owns a command's processes from their start to their verified end."""

    def run(self, command: Command, watch: Watch) -> Exit:
        """Run to the end and tell how it ended."""


class Plan(Protocol):
    """Says what a command can reach."""

    def box(self, command: Command) -> Box:
        """As things are now."""


class Boxed:
    """Runs commands inside a sandbox of one kind."""

    def __init__(self, owner: Owner, backend: Backend, plan: Plan, ghosts: Ghosts, limits: str = "") -> None:
        """`limits` says what of the machine is limited inside, and by what."""
        self.limits = limits
        self.name, self.strength, self.weak = backend.name, backend.strength, backend.weak
        self._owner, self._backend, self._plan, self._ghosts = owner, backend, plan, ghosts

    def run(self, command: Command, watch: Watch) -> Exit:
        """Run to the end and tell how it ended. One that could not be entered was never run."""
        base = os.path.splitext(command.turn_file)[0]
        held = self._ghosts.hold()
        box: Box | None = None
        try:
            box = self._plan.box(command)
            self._ghosts.lay([path for path in box.ghosts if path not in box.hollow], box.hollow, box.unseen)
            if why := self._backend.ready(box, command):
                return Exit(None, why="unstartable", error=f"sandbox {self.name}: {why}")
            load = Load(box, self._backend.way(box), base + AUDIT, base + REPORT, self._ghosts.lock)
            write_load(base + LOAD, load)
            try:
                end = self._owner.run(entering(command, base + LOAD), watch)
            finally:
                self._backend.over(box)
        finally:
            if box is not None:
                _sweep(box, base + REPORT)
            self._ghosts.lift(held)
        return self._told(end, base)

    def _told(self, end: Exit, base: str) -> Exit:
        stay = read_report(base + REPORT)
        if end.why == "exit" and (stay is None or not stay.entered):
            what = "broke down" if stay is None else "could not be entered"
            why = f"sandbox {self.name} {what} (exit code {end.code}); its words are in the log"
            return replace(end, why="unstartable", code=None, error=why)
        return replace(end, blocked=blocked_in(base + AUDIT))


def _sweep(box: Box, report: str) -> None:
    """Do what the outer program could not do where it was ended before."""
    clear(box.temp)
    if read_report(report) is None and sys.platform == "linux":
        from ralphproof.sandboxes.ration import sweep

        sweep(box.ration)


def entering(command: Command, load: str) -> Command:
    """The same command as the outer program starts it."""
    return replace(command, argv=interpreter.script(OUTER, load, *command.argv))
