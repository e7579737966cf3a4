"""A command run by hand in the sandbox, at the user's terminal."""

from __future__ import annotations

import contextlib
import os
import sys

from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.sandbox import Command
from ralphproof.process.tree import become_subreaper, child_pids, kill_until_gone, signal_each, with_descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    from ralphproof.sandbox.plan import Backend
    from ralphproof.sandbox.planner import SandboxConfig

FORWARDED_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
KEYBOARD_SIGNALS = (2, 3)  # SIGINT, SIGQUIT


def run_in_sandbox(backend: Backend, config: SandboxConfig, argv: tuple[str, ...], agent: str) -> int:
    """Run the command to its end; its exit code."""
    from ralphproof.sandbox import runner
    from ralphproof.sandbox.egress_proxy import read_blocked_hosts
    from ralphproof.sandbox.plan import LaunchSpec, write_launch_spec
    from ralphproof.sandbox.planner import SandboxPlanner
    from ralphproof.sandbox.read_only_paths import Placeholders

    planner = SandboxPlanner(config, backend)
    base = os.path.join(planner.private, f"by-hand-{os.getpid()}")
    here = os.path.realpath(os.getcwd())
    cwd = here if (here + "/").startswith(config.root + "/") else config.root
    command = Command(argv, cwd, config.environ, f"{base}.log", f"{base}.turn", "by-hand", agent=agent)
    placeholders = Placeholders(planner.private)
    placeholders.release()
    lock = placeholders.acquire()
    try:
        plan = replace(planner.plan(command), interactive=os.isatty(0))
        placeholders.create(plan.placeholder_files, plan.placeholder_folders, plan.hidden_placeholders)
        if why := backend.prepare(plan, command):
            print(f"ralph: sandbox {backend.name}: {why}", file=sys.stderr)
            return 126
        audit = os.path.join(planner.private, "by-hand.egress.ndjson")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(audit)
        write_launch_spec(
            base + runner.LAUNCH_SPEC_SUFFIX,
            LaunchSpec(plan, backend.entry(plan), audit, base + runner.REPORT_SUFFIX, placeholders.lock_file),
        )
        code = _run_to_end(runner.wrap_command(command, base + runner.LAUNCH_SPEC_SUFFIX))
        backend.clean_up(plan)
        if read_blocked_hosts(audit):
            print(f"ralph: what was called, and what became of it, is in {audit}", file=sys.stderr)
        return code
    finally:
        placeholders.release(lock)
        for ending in (runner.LAUNCH_SPEC_SUFFIX, runner.REPORT_SUFFIX):
            if os.path.exists(base + ending):
                os.unlink(base + ending)


def _run_to_end(command: Command) -> int:
    import signal

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
    import signal

    for name in FORWARDED_SIGNALS:
        signal.signal(getattr(signal, name), heard)


def _exec_command(command: Command, mask: Iterable[int]) -> NoReturn:
    import signal

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
    return [pid for pid in everybody if _foreground_group(pid) != front]


def _foreground_group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _end_leftovers() -> list[int]:
    """Processes of the command that were reparented to us and still exist."""
    for pid in child_pids(os.getpid()):
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
    return with_descendants(child_pids(os.getpid()))
