"""Runners of commands: inside a sandbox, directly as the user, or by hand at the terminal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn

from ralphproof.base import interpreter
from ralphproof.base.files import remove_tree
from ralphproof.base.programs import run_program
from ralphproof.base.value import Protocol, replace
from ralphproof.engine.sandbox import CONTINUE, Command, CommandWatcher, Exit
from ralphproof.process.tree import (
    become_subreaper,
    child_pids,
    kill_until_gone,
    process_group,
    signal_each,
    with_descendants,
)
from ralphproof.sandbox.plan import (
    Backend,
    LaunchSpec,
    SandboxPlan,
    read_launch_report,
    read_launch_spec,
    write_launch_spec,
)
from ralphproof.sandbox.planner import SandboxConfig, SandboxPlanner, default_resource_limits, sandbox_state_folder
from ralphproof.sandbox.project_mounts import Placeholders
from ralphproof.sandbox.resource_limits import find_limit_mechanism, remove_stale_limits


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
CONTAINER_NAME_FLAG, CONTAINER_REMOVAL_S = "--name", 30.0
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
            self._placeholders.create(plan.protection)
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
            why = f"sandbox {self.name} {what} (exit code {end.code}); its output says why"
            return replace(end, why="unstartable", code=None, error=why)
        from ralphproof.sandbox.egress_proxy import read_blocked_hosts  # it loads socket and threading

        return replace(end, blocked=read_blocked_hosts(base + AUDIT_SUFFIX))


def _clean_up(plan: SandboxPlan, report: str) -> None:
    """What a killed launcher could not clean up."""
    remove_tree(plan.temp)
    if read_launch_report(report) is None and sys.platform == "linux":
        remove_stale_limits(plan.limits)


def wrap_command(command: Command, spec: str) -> Command:
    """The same command, started by the launcher."""
    return replace(command, argv=interpreter.script_command(LAUNCHER, spec, *command.argv))


def describe_resource_limits(backend: Backend) -> str:
    """What a sandbox limits, and by what: `memory and processes by cgroup v1`."""
    if own := getattr(backend, "limited_by", ""):
        return f"memory and processes by {own}"
    by = find_limit_mechanism(default_resource_limits())
    return f"{' and '.join(by.enforced) or 'nothing'} by {by.name}" if by.enforced else "nothing"


def wrap_in_sandbox(owner: ProcessOwner, backend: Backend, config: SandboxConfig) -> SandboxedRunner:
    """A runner with a sandbox of this kind. Stale placeholders are removed."""
    planner = SandboxPlanner(config, backend)
    placeholders = Placeholders(planner.private)
    placeholders.release()
    return SandboxedRunner(owner, backend, planner, placeholders, describe_resource_limits(backend))


def remove_sandbox_leftovers(store: str, root: str, run: str) -> None:
    """Remove placeholders, temporary folders and containers of a run that died."""
    if not os.path.isdir(os.path.join(store, "box")):
        return
    Placeholders(sandbox_state_folder(store, root)).release()
    folder = os.path.join(store, "runs", run)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        base, ending = os.path.splitext(os.path.join(folder, name))
        if ending == LAUNCH_SPEC_SUFFIX and not os.path.exists(base + REPORT_SUFFIX):
            _end_leftover_sandbox(os.path.join(folder, name))


def _end_leftover_sandbox(file: str) -> None:
    """Clean up for a launcher that was killed."""
    try:
        spec = read_launch_spec(file)
    except (OSError, ValueError, TypeError):
        return
    remove_tree(spec.plan.temp)
    argv = spec.entry.argv
    if CONTAINER_NAME_FLAG in argv:
        removal = (argv[0], "rm", "--force", argv[argv.index(CONTAINER_NAME_FLAG) + 1])
        if not run_program(removal, timeout_s=CONTAINER_REMOVAL_S, env=os.environ).good:
            # If podman's monitor was killed too, the first call only notices that.
            run_program(removal, timeout_s=CONTAINER_REMOVAL_S, env=os.environ)


# A command run by hand in the sandbox, at the user's terminal.


FORWARDED_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
CANNOT_ENTER = 126
KEYBOARD_SIGNALS = (2, 3)  # SIGINT, SIGQUIT


def run_in_sandbox(backend: Backend, config: SandboxConfig, argv: tuple[str, ...], agent: str) -> int:
    """Run the command to its end; its exit code."""
    folder = sandbox_state_folder(config.store, config.root)
    base, audit = os.path.join(folder, f"by-hand-{os.getpid()}"), os.path.join(folder, "by-hand" + AUDIT_SUFFIX)
    here = os.path.realpath(os.getcwd())
    cwd = here if (here + "/").startswith(config.root + "/") else config.root
    command = Command(argv, cwd, config.environ, f"{base}.log", f"{base}.turn", "by-hand", agent=agent)
    sandbox = wrap_in_sandbox(TerminalOwner(), backend, replace(config, interactive=os.isatty(0)))
    try:
        end = sandbox.run(command, Unwatched())
    finally:
        for ending in (LAUNCH_SPEC_SUFFIX, REPORT_SUFFIX):
            if os.path.exists(base + ending):
                os.unlink(base + ending)
        if os.path.exists(base + AUDIT_SUFFIX):
            os.replace(base + AUDIT_SUFFIX, audit)
    if end.code is None:
        print(f"ralph: {end.error}", file=sys.stderr)
        return CANNOT_ENTER
    if end.blocked:
        print(f"ralph: what was called, and what became of it, is in {audit}", file=sys.stderr)
    return end.code


class Unwatched:
    """A watcher that lets a command run to its end."""

    def output(self, chunk: bytes) -> None:
        """Nothing is read."""

    def tick(self) -> int:
        return CONTINUE


class TerminalOwner:
    """Runs a command with the streams of this process, and forwards signals to it."""

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Run the command to its end; how it ended."""
        return Exit(_run_at_terminal(command))


def _run_at_terminal(command: Command) -> int:
    become_subreaper()
    sys.stdout.flush()
    numbers = [getattr(signal, name) for name in FORWARDED_SIGNALS]
    # Without a child to forward it to, a signal would end only this process.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    child = os.fork()
    if child == 0:
        _exec_command(command, before)
    _forward_signals(lambda got, _: signal_each(_signals_blocked(child, got), got))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = os.waitstatus_to_exitcode(_wait_for_exit(child))
    kill_until_gone(_end_leftovers)
    return code if code >= 0 else 128 - code


def _forward_signals(heard: Callable[[int, object], None]) -> None:
    for name in FORWARDED_SIGNALS:
        signal.signal(getattr(signal, name), heard)


def _exec_command(command: Command, mask: Iterable[int]) -> NoReturn:
    try:
        for number in (getattr(signal, name) for name in FORWARDED_SIGNALS):
            if callable(signal.getsignal(number)):  # as the program itself will begin
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.chdir(command.cwd)
        os.execve(command.argv[0], command.argv, dict(command.env))
    finally:
        os._exit(126)


def _wait_for_exit(child: int) -> int:
    """Wait for the exit status. Signals are no longer forwarded once the process is reaped: its pid may be reused."""
    if hasattr(os, "waitid"):  # not on macOS before Python 3.13
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        _forward_signals(_ignore_signal)
    status = os.waitpid(child, 0)[1]
    _forward_signals(_ignore_signal)
    return status


def _ignore_signal(*_: object) -> None:
    """The rest of the command is ended in any case."""


def _signals_blocked(child: int, number: int) -> list[int]:
    """Processes of the command that have not received a signal yet: keys of a terminal reach its foreground group by
    themselves, but nobody in a sandbox with its own session.
    """
    everybody = with_descendants([child])
    if number not in KEYBOARD_SIGNALS or not os.isatty(0):
        return everybody
    front = os.tcgetpgrp(0)
    return [pid for pid in everybody if process_group(pid) != front]


def _end_leftovers() -> list[int]:
    """Processes of the command that were reparented to us and still exist."""
    for pid in child_pids(os.getpid()):
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
    return with_descendants(child_pids(os.getpid()))
