"""Runners of commands: inside a sandbox, or directly as the user."""

from __future__ import annotations

import os
import sys

from ralphproof.base import interpreter
from ralphproof.base.value import TYPE_CHECKING, Protocol, replace
from ralphproof.engine.sandbox import Exit
from ralphproof.sandbox.egress_proxy import read_blocked_hosts
from ralphproof.sandbox.plan import LaunchSpec, read_launch_report, remove_temp_folder, write_launch_spec

if TYPE_CHECKING:
    from ralphproof.engine.sandbox import Command, CommandWatcher
    from ralphproof.sandbox.plan import Backend, SandboxPlan
    from ralphproof.sandbox.read_only_paths import Placeholders


# No sandbox: the command runs as the user. Its processes are owned and ended all the same.


class DirectProcessOwner(Protocol):
    """Whoever owns a command's processes from their start to their verified end."""

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Run to the end and tell how it ended."""


class DirectRunner:
    """Runs commands as they are."""

    name = "direct"
    strength = "none"

    def __init__(self, owner: DirectProcessOwner) -> None:
        self._owner = owner

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Run to the end and tell how it ended."""
        return self._owner.run(command, watch)


# A sandbox around every command: what it can reach is planned anew each time, and told to the outer program.


LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")
LAUNCH_SPEC_SUFFIX, REPORT_SUFFIX, AUDIT_SUFFIX = ".load", ".stay", ".egress.ndjson"


class ProcessOwner(Protocol):
    """Whoever owns a command's processes from their start to their verified end."""

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Run to the end and tell how it ended."""


class Planner(Protocol):
    """Says what a command can reach."""

    def box(self, command: Command) -> SandboxPlan:
        """As things are now."""


class SandboxedRunner:
    """Runs commands inside a sandbox of one kind."""

    def __init__(
        self, owner: ProcessOwner, backend: Backend, plan: Planner, ghosts: Placeholders, limits: str = ""
    ) -> None:
        """`limits` says what of the machine is limited inside, and by what."""
        self.limits = limits
        self.name, self.strength, self.weak = backend.name, backend.strength, backend.weak
        self._owner, self._backend, self._plan, self._ghosts = owner, backend, plan, ghosts

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Run to the end and tell how it ended. One that could not be entered was never run."""
        base = os.path.splitext(command.turn_file)[0]
        held = self._ghosts.hold()
        box: SandboxPlan | None = None
        try:
            box = self._plan.box(command)
            self._ghosts.lay([path for path in box.ghosts if path not in box.hollow], box.hollow, box.unseen)
            if why := self._backend.ready(box, command):
                return Exit(None, why="unstartable", error=f"sandbox {self.name}: {why}")
            load = LaunchSpec(box, self._backend.way(box), base + AUDIT_SUFFIX, base + REPORT_SUFFIX, self._ghosts.lock)
            write_launch_spec(base + LAUNCH_SPEC_SUFFIX, load)
            try:
                end = self._owner.run(wrap_command(command, base + LAUNCH_SPEC_SUFFIX), watch)
            finally:
                self._backend.over(box)
        finally:
            if box is not None:
                _clean_up(box, base + REPORT_SUFFIX)
            self._ghosts.lift(held)
        return self._told(end, base)

    def _told(self, end: Exit, base: str) -> Exit:
        stay = read_launch_report(base + REPORT_SUFFIX)
        if end.why == "exit" and (stay is None or not stay.entered):
            what = "broke down" if stay is None else "could not be entered"
            why = f"sandbox {self.name} {what} (exit code {end.code}); its words are in the log"
            return replace(end, why="unstartable", code=None, error=why)
        return replace(end, blocked=read_blocked_hosts(base + AUDIT_SUFFIX))


def _clean_up(box: SandboxPlan, report: str) -> None:
    """Do what the outer program could not do where it was ended before."""
    remove_temp_folder(box.temp)
    if read_launch_report(report) is None and sys.platform == "linux":
        from ralphproof.sandbox.resource_limits import remove_stale_limits

        remove_stale_limits(box.ration)


def wrap_command(command: Command, load: str) -> Command:
    """The same command as the outer program starts it."""
    return replace(command, argv=interpreter.script_command(LAUNCHER, load, *command.argv))
