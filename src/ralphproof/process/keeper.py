"""The keeper: a process that starts one command, drains its output, holds its clocks and ends its whole tree."""

from __future__ import annotations

import _socket
import errno
import os
import select
import time
from time import monotonic

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.process import turn_journal
from ralphproof.process.output import OutputDrain
from ralphproof.process.protocol import (
    ACTIVE,
    CONTINUE,
    KILL,
    SAID,
    STOP,
    SUSPEND,
    HarnessLink,
    SignalPipe,
    StartMessage,
    receive_frame,
)
from ralphproof.process.tree import (
    KILL_TIMEOUT_S,
    LINUX,
    become_subreaper,
    child_pids,
    die_with_parent,
    is_stopped,
    process_group,
    signal_each,
    signal_group,
    start_time,
    with_descendants,
)

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Iterable, Iterator
    from typing import NoReturn
else:
    import _signal


_PROGRAM_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGPIPE", "SIGCHLD", "SIGXFSZ")
_MAX_FORKS = 20
_FORK_PAUSE_S = 0.05
_EXEC_TIMEOUT_S = 30.0


def spawn_program(start: StartMessage, out: int, err: int) -> tuple[int, int]:
    """Start a program in a session of its own with three descriptors; its process id, and a pipe for an exec error."""
    stdin = os.open(start.stdin, os.O_RDONLY | os.O_CLOEXEC)
    error_reader, error_writer = os.pipe()
    keeper = os.getpid()
    try:
        pid = _fork()
        if pid == 0:
            _become_program(start, (stdin, out, err), error_writer, keeper)
    except OSError:
        os.close(error_reader)
        raise
    finally:
        os.close(stdin)
        os.close(error_writer)
    return pid, error_reader


def read_exec_error(pipe: int) -> str:
    """Why the program could not be executed; empty if it was, or if it hangs: that is for the turn's timeout."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    data = os.read(pipe, 4096) if poll.poll(_EXEC_TIMEOUT_S * 1000) else b""
    os.close(pipe)
    return data.decode(errors="replace")


def _fork() -> int:
    """Fork; a machine that is out of processes for a moment gets a second."""
    for _ in range(_MAX_FORKS):
        try:
            return os.fork()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ENOMEM):
                raise
        time.sleep(_FORK_PAUSE_S)
    return os.fork()


def _become_program(start: StartMessage, descriptors: tuple[int, int, int], error_writer: int, keeper: int) -> NoReturn:
    try:
        os.setsid()
        die_with_parent()
        if os.getppid() != keeper:  # it died before we asked to die with it
            os._exit(127)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        # Ignored signals stay ignored over exec, and both Python and the keeper ignore some.
        for name in _PROGRAM_SIGNALS:
            _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
        os.write(error_writer, (_enter_folder(start.cwd) or _exec_program(start)).encode())
    finally:
        os._exit(127)


def _enter_folder(folder: bytes) -> str:
    try:
        os.chdir(folder)
    except OSError as error:
        return f"cannot enter {os.fsdecode(folder)!a}: {error.strerror}"
    return ""


def _exec_program(start: StartMessage) -> str:
    """Execute the program; returns only with the reason why not."""
    reason = os.strerror(errno.ENOENT)
    for path in _candidate_paths(start.argv[0], start.env):
        try:
            os.execve(path, start.argv, start.env)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.exists(path):
                reason = "the interpreter that its first line names is missing"
        except PermissionError as error:
            reason = "it is a directory" if os.path.isdir(path) else f"{error.strerror}"
        except (OSError, ValueError) as error:
            reason = str(getattr(error, "strerror", None) or error)
            break
    return f"cannot start {os.fsdecode(start.argv[0])!a}: {reason}"


def _candidate_paths(name: bytes, env: dict[bytes, bytes]) -> Iterator[bytes]:
    if b"/" in name:
        yield name
        return
    for folder in env.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        if folder:
            yield folder + b"/" + name


_STAND_IN_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGPIPE", "SIGCHLD", "SIGXFSZ", "SIGUSR1", "SIGUSR2")


def start_stand_in(start: StartMessage) -> int:
    """Start the program that observes a turn in place of its dead harness; its process id, 0 if there is none.

    It is a child of ours in a session of its own, with our working folder, our stderr, and no other descriptor. Nothing
    depends on it.
    """
    if not start.stand_in:
        return 0
    try:
        return os.posix_spawn(
            start.stand_in[0],
            start.stand_in,
            start.stand_in_env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=[getattr(_signal, name) for name in _STAND_IN_SIGNALS],
        )
    except (OSError, ValueError):
        return 0


# One turn: start a program, drain it, enforce its deadlines, end its process tree, record its result.


MAX_SLEEP_S = 1.0  # the longest sleep: a longer absence than this was not our choice
SUSPENSION_GAP_S = 1.0  # a wake-up later than this means that we were suspended
SWEEP_PAUSE_S = 0.005
NEVER = float("inf")


class TurnDeadlines:
    """The deadlines of a running turn. A suspension of the machine moves all of them. Methods get the current time."""

    def __init__(self, now: float, timeout_s: float, idle_s: float | None, linger_s: float) -> None:
        self.paused_s = 0.0
        self._idle_s = NEVER if idle_s is None else idle_s
        self._linger_s = linger_s
        self._timeout = now + timeout_s
        self._idle = now + self._idle_s
        self._linger = NEVER

    def on_activity(self, now: float) -> None:
        """The program printed something, or was active elsewhere."""
        self._idle = now + self._idle_s
        if self._linger != NEVER:
            self._linger = now + self._linger_s

    def said_result(self, now: float) -> None:
        """The agent has said its result: from now on it should exit. Repeating this gives it no more time."""
        if self._linger == NEVER:
            self._linger = now + self._linger_s

    def slip(self, by: float) -> None:
        """We were suspended for so long."""
        self.paused_s += by
        self._timeout += by
        self._idle += by
        self._linger += by

    @property
    def due(self) -> float:
        """The earliest deadline."""
        return min(self._timeout, self._idle, self._linger)

    def over(self, now: float) -> str:
        """Why the turn must end now; empty if it must not."""
        if now >= self._linger:
            return "lingered"
        if now >= self._timeout:
            return "timeout"
        return "idle" if now >= self._idle else ""


class Termination:
    """TERM at once, KILL after the grace, and KILL again until nothing is left or `KILL_TIMEOUT_S` is over."""

    def __init__(self, now: float, grace_s: float) -> None:
        self.due = now
        self._kill = now + grace_s
        self._give_up = self._kill + KILL_TIMEOUT_S

    def hurry(self, now: float, grace_s: float) -> None:
        """Wait no longer than this before KILL."""
        self._kill = min(self._kill, now + grace_s)
        self._give_up = self._kill + KILL_TIMEOUT_S
        self.due = min(self.due, self._kill)

    def slip(self, by: float) -> None:
        """We were suspended for so long."""
        self.due += by
        self._kill += by
        self._give_up += by

    def next(self, now: float) -> int:
        """The signal to send now, 0 for none."""
        if now < self.due:
            return 0
        if now >= self._kill:
            self.due = now + SWEEP_PAUSE_S
            return _signal.SIGKILL
        self.due = self._kill
        return _signal.SIGTERM

    def given_up(self, now: float) -> bool:
        """Whether KILL has had its time."""
        return now >= self._give_up


LEFTOVER_GRACE_S = 5.0  # for what a program leaves behind when it ends by itself
_MAX_SUSPEND_PASSES = 10  # looks at a tree that is suspended: what it forked meanwhile is stopped too


class KeeperTurn:
    """Runs one turn. Nothing of the program is alive afterwards except `survivors`."""

    def __init__(self, start: StartMessage, lock: int, link: HarnessLink, wake: SignalPipe) -> None:
        self.survivors: tuple[int, ...] = ()
        self._start, self._lock, self._link, self._wake = start, lock, link, wake
        self._began = self._woke = monotonic()
        self._clock = TurnDeadlines(self._began, start.timeout_s, start.idle_s, start.linger_s)
        self._ending: Termination | None = None
        self._why = self._error = ""
        self._pid = self._stand_in = 0
        self._status: int | None = None
        self._died = 0.0
        self._cpu_s = 0.0
        self._suspended: set[int] = set()  # processes that we stopped because the harness is suspended
        self._poll = select.poll()

    def run(self) -> None:
        """Run the turn to its recorded result; a turn that began before is refused."""
        if os.fstat(self._lock).st_size:
            os.close(self._lock)
            self._link.refuse()
            self._link.close()
            return
        self._wake.orders()  # meant for the turn before
        self._drain = OutputDrain(self._start, self._link, self._poll)
        try:
            self._launch()
        except OSError as error:
            about = f"{os.fsdecode(error.filename)!a}: " if error.filename else ""
            self._error = f"cannot start {os.fsdecode(self._start.argv[0])!a}: {about}{error.strerror}"
        self._woke = monotonic()
        while not self._reap() and not (self._ending and self._ending.given_up(monotonic())):
            self._decide(self._time(0.0))
            self._wait()
        self._finish()

    def _launch(self) -> None:
        """Write `began`, and only then start anything."""
        turn_journal.append_entry(
            self._lock, turn_journal.began_entry(self._start.argv, os.getpid(), start_time(os.getpid()))
        )
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(self._link, select.POLLIN)
        writers = self._drain.pipes()
        try:
            self._pid, error_reader = spawn_program(self._start, writers[0], writers[-1])
        finally:
            for writer in writers:
                os.close(writer)
        self._name_agent()
        self._error = read_exec_error(error_reader)

    def _name_agent(self) -> None:
        """Record the program's process id, for a harness that finds the keeper dead. Without it there is still the
        mark.
        """
        try:
            turn_journal.append_entry(self._lock, {"agent": self._pid, "start": start_time(self._pid)})
        except OSError as error:
            self._drain.out.error = f"{error.strerror}"

    def _wait(self) -> None:
        """Sleep until something happens or is due, and handle what happened."""
        due = self._ending.due if self._ending else self._clock.due
        slept_s = min(max(0.0, due - monotonic()), MAX_SLEEP_S)
        events = self._poll.poll(slept_s * 1000 + 0.5)
        now = self._time(slept_s)
        for fd, _ in events:
            if fd in self._drain:
                if self._drain.pump(fd, now):
                    self._clock.on_activity(now)
            elif fd == self._wake.fileno():
                self._wake.drain()
            else:
                self._listen(now)
        if self._drain.held_since:
            self._clock.on_activity(now)
            self._drain.release(now)

    def _time(self, slept_s: float) -> float:
        """The current time. If much more of it passed than we slept for, we were suspended, and all deadlines move."""
        now = monotonic()
        late = now - self._woke - (0.0 if self._suspended else slept_s)
        self._woke = now
        if late > SUSPENSION_GAP_S or self._suspended:
            self._clock.slip(late)
            if self._ending:
                self._ending.slip(late)
        return now

    def _listen(self, now: float) -> None:
        """Obey the harness. If it is gone, the turn goes on, and the stand-in is started."""
        self._obey(self._link.orders(), now)
        if not self._link.alive:
            self._continue()
            self._poll.unregister(self._link)
            if self._status is None and self._ending is None and not self._error:
                self._stand_in = start_stand_in(self._start)

    def _obey(self, orders: Iterable[int], now: float) -> None:
        for order in orders:
            if order == ACTIVE:
                self._clock.on_activity(now)
            elif order == SAID:
                self._clock.said_result(now)
            elif order == STOP:
                self._end("stopped", now, self._start.grace_s)
            elif order == KILL:
                self._kill(now)
            elif order == SUSPEND:
                self._suspend()
            elif order == CONTINUE:
                self._continue()

    def _decide(self, now: float) -> None:
        """Start or continue to end the tree, if it must end."""
        if self._status is not None:
            self._end("exit", now, LEFTOVER_GRACE_S)
            if self._ending:
                self._ending.hurry(self._died, LEFTOVER_GRACE_S)
            if self._stand_in:  # there is nothing left to look at: nobody waits for it, nor for what it started
                signal_each(with_descendants([self._stand_in]), _signal.SIGKILL)
        self._obey(self._wake.orders(), now)
        if why := self._clock.over(now):
            self._end(why, now, self._start.grace_s)
        if self._ending and (number := self._ending.next(now)):
            self._sweep(number)

    def _end(self, why: str, now: float, grace_s: float) -> None:
        """The first reason counts."""
        self._continue()
        if self._ending is None:
            self._why, self._ending = why, Termination(now, grace_s)

    def _kill(self, now: float) -> None:
        self._end("killed", now, 0.0)
        if self._why == "stopped":
            self._why = "killed"
        if self._ending:
            self._ending.hurry(now, 0.0)

    def _suspend(self) -> None:
        """Stop the tree with the harness, which is suspended; all timers rest until it continues, or dies."""
        for _ in range(0 if self._ending else _MAX_SUSPEND_PASSES):
            new = [
                pid
                for pid in with_descendants(child_pids(os.getpid()))
                if pid not in self._suspended and not is_stopped(pid)
            ]
            if not new:
                return
            signal_each(new, _signal.SIGSTOP)
            self._suspended.update(new)

    def _continue(self) -> None:
        """Continue what we stopped, parents last: none of them sees a stopped child."""
        if self._suspended:
            tree = reversed(with_descendants(child_pids(os.getpid())))
            signal_each([pid for pid in tree if pid in self._suspended], _signal.SIGCONT)
            self._suspended.clear()

    def _sweep(self, number: int) -> None:
        """Signal the whole tree; stopped processes are continued so that they can obey."""
        tree = with_descendants(child_pids(os.getpid()))
        if self._pid and self._status is None:  # after the reap the number may belong to someone else
            signal_group(self._pid, number)
            outside = [pid for pid in tree if process_group(pid) != self._pid]  # a second TERM often means "at once"
        else:
            outside = tree
        signal_each(outside, number)
        if number == _signal.SIGTERM:
            signal_each(tree, _signal.SIGCONT)

    def _reap(self) -> bool:
        """Reap ended children; whether none is left. We inherit every orphan, so no child means no process."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._stand_in:
                self._stand_in = 0
                continue
            self._cpu_s += usage.ru_utime + usage.ru_stime
            if pid == self._pid:
                self._status, self._died = status, monotonic()

    def _finish(self) -> None:
        """Assemble the logs, write the result, and only then report it."""
        if self._ending and not self._reap():
            self.survivors = tuple(with_descendants(child_pids(os.getpid())))
        if not LINUX and self._pid:
            signal_group(self._pid, _signal.SIGKILL)
        self._drain.finish()
        line = self._record()
        os.close(self._lock)
        self._link.report(line)
        self._link.close()

    def _record(self) -> bytes:
        result = self._result()
        self._link.orders()  # learns whether the harness is still there
        try:
            line = turn_journal.append_entry(self._lock, result)
            if not self._link.alive:  # a living one records it at once; else it must outlast the machine
                os.fsync(self._lock)
        except OSError as error:
            result["error"] = f"{self._error} the result could not be recorded: {error.strerror}".strip()
            return turn_journal.encode_entry(result)
        return line

    def _result(self) -> dict[str, object]:
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        out, err = self._drain.out, self._drain.err
        errors = (out.error, err.error if err else "")
        return {
            "result": True,
            "code": None if self._error or code is None or code < 0 else code,
            "signal": -code if code is not None and code < 0 else None,
            "why": "unstartable" if self._error else self._why or "exit",
            "seconds": monotonic() - self._began,
            "out_bytes": out.stored + out.lost,
            "dropped_bytes": out.dropped,
            "lost_bytes": out.lost,
            "cpu_s": self._cpu_s,
            "error": self._error,
            "survivors": self.survivors,
            "paused_s": self._clock.paused_s,
            "log_error": "; ".join(error for error in errors if error),
        }


# The keeper's main loop: turns that come over the control socket.


def serve(fd: int) -> None:
    """Run the turns that come over the control socket, one after the other, each to its end."""
    os.set_inheritable(fd, False)
    _close_other_descriptors(fd)
    os.chdir("/")
    become_subreaper()
    control, wake = _socket.socket(fileno=fd), SignalPipe()
    while True:
        fields, descriptors = receive_frame(control)
        if fields is None:
            break
        lock, line, *held = descriptors
        turn = KeeperTurn(StartMessage(*fields), lock, HarnessLink(_socket.socket(fileno=line)), wake)
        turn.run()
        for descriptor in held:
            os.close(descriptor)
        if turn.survivors:  # they would be taken for the next turn's
            break
    os._exit(0)


def _close_other_descriptors(fd: int) -> None:
    """Close what the harness's parents left open, so that their pipes reach end of file without us."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2 and int(name) != fd:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself
