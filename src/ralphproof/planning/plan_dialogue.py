"""Interactive planning: the agent's own session at the user's terminal, repeated until the plan is valid.

What a session costs is not known here: the agent's program tells its user.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import termios
import uuid
from collections.abc import Callable
from typing import Any

from ralphproof.base.errors import AgentUnusable, Refused
from ralphproof.base.value import replace
from ralphproof.engine.agent import TurnInput
from ralphproof.engine.sandbox import Exit
from ralphproof.planning.plan_files import MAX_SENT_BACK, PlanFiles, PlanResult
from ralphproof.process.tree import (
    TURN_VARIABLE,
    become_subreaper,
    child_pids,
    die_with_parent,
    kill_until_gone,
    signal_each,
    with_descendants,
)
from ralphproof.runs.open_project import ProjectLock
from ralphproof.runs.spec import RunSpec

TERMINAL = 0  # our standard input
NO_INTERACTIVE_MODE = (
    "agent {0}: how it takes a first prompt at a terminal is not known; say where that goes, as in "
    "--agent '{0} {{prompt_file}}' or '{0} {{prompt}}', or give the requirements: --from FILE"
)
IN_BACKGROUND = "ralph plan needs the terminal, and runs in the background; bring it to the front: fg"
INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
INTERRUPTED_CODES = (129, 130, 131, 143)  # exit codes of programs that such a signal made leave


def has_terminal() -> bool:
    """Whether our standard input is a terminal."""
    try:
        return os.isatty(TERMINAL)
    except OSError:
        return False


def plan_interactively(spec: RunSpec, files: PlanFiles, tell: Callable[[str], None]) -> PlanResult:
    """Start the agent again until the plan is valid, it was sent back too often, or the user leaves."""
    session = str(uuid.uuid4())
    _agent_command(spec, files, "", "", session, resume=False)  # refuses an agent that cannot do this
    grace_s = spec.loaded.settings.shutdown_grace_seconds
    remarks: list[str] = []
    problems: tuple[str, ...] = ()
    sent_back, resume = 0, False
    with ProjectLock(spec.project, files.id) as lock:
        for remark in filter(None, (*lock.remarks, files.begin())):
            tell(remark)
        while True:
            before, name = files.contents(), f"{sent_back + 1:03d}"
            prompt = spec.project.mask(files.prompt(True, problems=problems))
            path = files.keep(f"prompt_{name}.txt", prompt.encode("utf-8", "replace"))
            session = session if resume else str(uuid.uuid4())
            argv, env = _agent_command(spec, files, prompt, path, session, resume)
            end = run_in_terminal(argv, spec.project.root, env | {TURN_VARIABLE: f"{files.id}/agent_{name}"}, grace_s)
            remarks += filter(None, [files.restore_prd()])
            if _is_interrupt(end):
                remarks += filter(None, [files.restore_incomplete_tasks()])
                result = PlanResult(130, sent_back, files.problems())
                break
            problems = files.problems()
            if not problems:
                result = PlanResult(0, sent_back, remarks=files.remarks())
                break
            unchanged = files.contents() == before
            if unchanged:
                how = f"by signal {end.signal}" if end.signal else f"with exit code {end.code}"
                tell(f"the agent ended {how}, and changed nothing in {files.folder}/")
            if unchanged or sent_back == MAX_SENT_BACK:
                result = PlanResult(1, sent_back, problems)
                break
            sent_back, resume = sent_back + 1, True
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            tell(f"the plan is not valid yet, and is sent back ({sent_back} of {MAX_SENT_BACK}): {problems[0]}{more}")
    return replace(result, remarks=tuple(dict.fromkeys((*remarks, *result.remarks))))


def _agent_command(
    spec: RunSpec, files: PlanFiles, prompt: str, path: str, session: str, resume: bool
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Arguments and environment of an interactive session; raises AgentUnusable where the agent has none."""
    agent = spec.selected_agents[0].agent
    turn = TurnInput(
        prompt, path, spec.project.root, spec.agent_env, os.path.join(files.place, "agent"), "", files.id, 0.0,
        session=session,
    )  # fmt: skip
    build = getattr(agent, "interactive_command", None)
    command = build(turn, resume) if build else None
    if command is None:
        raise AgentUnusable(NO_INTERACTIVE_MODE.format(agent.name))
    return command[0], dict(command[1])


def _is_interrupt(end: Exit) -> bool:
    """Whether a signal ended the session: the user wants to leave."""
    return end.why == "stopped" or end.signal in INTERRUPTING or end.code in INTERRUPTED_CODES


# The terminal. The program is in our process group, as an editor is in that of `git commit`: Ctrl-C and Ctrl-Z reach it
# directly, and mean nothing to us as long as it runs.


def run_in_terminal(argv: tuple[str, ...], cwd: str, env: dict[str, str], grace_s: float) -> Exit:
    """Run a program at the user's terminal to its end, and end everything that it leaves behind.

    SIGTERM and SIGHUP to us end the program: after `grace_s`, or at the second signal, by SIGKILL.
    """
    modes = termios.tcgetattr(TERMINAL)
    if _foreground_group() not in (None, os.getpgrp()):
        raise Refused(IN_BACKGROUND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    become_subreaper()
    known = set(child_pids(os.getpid()))
    program: subprocess.Popen[bytes] | None = None
    signals = 0

    def shut_down(*_: object) -> None:
        nonlocal signals
        signals += 1
        if program is not None:
            signal_each([program.pid], signal.SIGTERM if signals == 1 else signal.SIGKILL)
            signal_each([program.pid], signal.SIGCONT)
            signal.setitimer(signal.ITIMER_REAL, grace_s)

    ending = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    handlers: dict[int, Any] = dict.fromkeys((*ending, signal.SIGALRM), shut_down)
    handlers |= {number: lambda *_: None for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)}
    handlers[signal.SIGCHLD] = signal.SIG_DFL
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        program = _start(argv, cwd, env)
        if signals:  # one came before there was a program
            signal_each([program.pid], signal.SIGTERM)
        status = _wait(program.pid, modes)
        program.returncode = status  # we have waited for it ourselves
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if program is not None:
            kill_until_gone(lambda: with_descendants(_children_left(known)))
        _take_terminal_back(modes)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    why = "stopped" if signals else "exit"
    if os.WIFSIGNALED(status):
        return Exit(None, why, signal=os.WTERMSIG(status))
    return Exit(os.WEXITSTATUS(status), why)


def _start(argv: tuple[str, ...], cwd: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the program; an output of ours that goes to a file or a pipe is not for it."""
    terminal = os.open(os.ttyname(TERMINAL), os.O_WRONLY | os.O_NOCTTY)
    try:
        out, err = (None if os.isatty(number) else terminal for number in (1, 2))
        return subprocess.Popen(argv, cwd=cwd, env=env, stdout=out, stderr=err, preexec_fn=die_with_parent)
    except OSError as error:
        raise AgentUnusable(
            f"agent {argv[0]} cannot be started: {error.strerror}; name another with --agent"
        ) from error
    finally:
        os.close(terminal)


def _wait(pid: int, modes: list[Any]) -> int:
    """Wait for the program's status. Where it is suspended, so are we, as a shell expects of its job."""
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return status
        its_modes = termios.tcgetattr(TERMINAL)
        _take_terminal_back(modes)
        ignoring = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # returns when the shell continues the job
        signal.signal(signal.SIGTSTP, ignoring)
        termios.tcsetattr(TERMINAL, termios.TCSANOW, its_modes)
        os.kill(pid, signal.SIGCONT)


def _children_left(known: set[int]) -> list[int]:
    """Our children that were not there before; those that have ended are reaped."""
    left = []
    for pid in child_pids(os.getpid()):
        try:
            if pid not in known and os.waitpid(pid, os.WNOHANG) == (0, 0):
                left.append(pid)
        except ChildProcessError:
            continue
    return left


def _foreground_group() -> int | None:
    """The process group in front at our terminal; None where it is not the terminal of our session."""
    try:
        return os.tcgetpgrp(TERMINAL)
    except OSError:
        return None


def _take_terminal_back(modes: list[Any]) -> None:
    """Be in the foreground with the modes from before, whatever the program did."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # else changing the terminal would stop us
    try:
        if _foreground_group() is not None:
            os.tcsetpgrp(TERMINAL, os.getpgrp())
        termios.tcsetattr(TERMINAL, termios.TCSANOW, modes)
    except (OSError, termios.error):
        pass  # the terminal is gone
    finally:
        signal.signal(signal.SIGTTOU, before)
