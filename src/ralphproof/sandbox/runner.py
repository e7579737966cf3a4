"""Runners of commands: inside a sandbox, or directly as the user."""

from __future__ import annotations

import os
import sys

from ralphproof.base import interpreter
from ralphproof.base.value import TYPE_CHECKING, Protocol, replace
from ralphproof.engine.sandbox import Exit
from ralphproof.sandbox.plan import LaunchSpec, read_launch_report, remove_temp_folder, write_launch_spec

if TYPE_CHECKING:
    from ralphproof.engine.sandbox import Command, CommandWatcher
    from ralphproof.sandbox.plan import Backend, SandboxPlan
    from ralphproof.sandbox.read_only_paths import Placeholders


class ProcessOwner(Protocol):
    """Starts a command, and owns its processes until all of them have verifiably ended."""

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Run the command to its end; how it ended."""


class DirectRunner:
    """Runs commands without a sandbox."""

    name = "direct"
    strength = "none"

    def __init__(self, owner: ProcessOwner) -> None:
        self._owner = owner

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Run the command to its end; how it ended."""
        return self._owner.run(command, watch)


LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")
LAUNCH_SPEC_SUFFIX, REPORT_SUFFIX, AUDIT_SUFFIX = ".load", ".stay", ".egress.ndjson"


class Planner(Protocol):
    """Plans the sandbox of each command."""

    def plan(self, command: Command) -> SandboxPlan:
        """The plan for this command, with the files as they are now."""


class SandboxedRunner:
    """Runs commands inside a sandbox, planned anew for each command."""

    def __init__(
        self, owner: ProcessOwner, backend: Backend, planner: Planner, placeholders: Placeholders, limits: str = ""
    ) -> None:
        """`limits` describes what of the machine is limited, and by what."""
        self.limits = limits
        self.name, self.strength, self.weaknesses = backend.name, backend.strength, backend.weaknesses
        self._owner, self._backend, self._planner, self._placeholders = owner, backend, planner, placeholders

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Run the command to its end; how it ended. If the sandbox could not be entered, the command was not run."""
        base = os.path.splitext(command.turn_file)[0]
        lock = self._placeholders.acquire()
        plan: SandboxPlan | None = None
        try:
            plan = self._planner.plan(command)
            self._placeholders.create(plan.placeholder_files, plan.placeholder_folders, plan.hidden_placeholders)
            if why := self._backend.prepare(plan, command):
                return Exit(None, why="unstartable", error=f"sandbox {self.name}: {why}")
            entry, lock_file = self._backend.entry(plan), self._placeholders.lock_file
            spec = LaunchSpec(plan, entry, base + AUDIT_SUFFIX, base + REPORT_SUFFIX, lock_file)
            write_launch_spec(base + LAUNCH_SPEC_SUFFIX, spec)
            try:
                end = self._owner.run(wrap_command(command, base + LAUNCH_SPEC_SUFFIX), watch)
            finally:
                self._backend.clean_up(plan)
        finally:
            if plan is not None:
                _clean_up(plan, base + REPORT_SUFFIX)
            self._placeholders.release(lock)
        return self._result(end, base)

    def _result(self, end: Exit, base: str) -> Exit:
        report = read_launch_report(base + REPORT_SUFFIX)
        if end.why == "exit" and (report is None or not report.entered):
            what = "broke down" if report is None else "could not be entered"
            why = f"sandbox {self.name} {what} (exit code {end.code}); its words are in the log"
            return replace(end, why="unstartable", code=None, error=why)
        from ralphproof.sandbox.egress_proxy import read_blocked_hosts  # it loads socket and threading

        return replace(end, blocked=read_blocked_hosts(base + AUDIT_SUFFIX))


def _clean_up(plan: SandboxPlan, report: str) -> None:
    """What a killed launcher could not clean up."""
    remove_temp_folder(plan.temp)
    if read_launch_report(report) is None and sys.platform == "linux":
        from ralphproof.sandbox.resource_limits import remove_stale_limits

        remove_stale_limits(plan.limits)


def wrap_command(command: Command, spec: str) -> Command:
    """The same command, started by the launcher."""
    return replace(command, argv=interpreter.script_command(LAUNCHER, spec, *command.argv))
