"""Client of the keeper: a keeper process, or a pool of them, that runs commands and adopts turns of a dead harness.

Imported first of all by verbs that run something: the keeper process then starts while the harness still imports.
"""

from __future__ import annotations

import _socket
import os
import select
import time
from _thread import allocate_lock
from time import monotonic

from ralphproof.base import interpreter
from ralphproof.base.errors import HarnessFailed, KeeperLost
from ralphproof.base.programs import spawn
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.sandbox import ACTIVE, CONTINUE, KILL, RESULT_SAID, STOP, Exit
from ralphproof.process import dead_turns, protocol, turn_journal
from ralphproof.process.dead_turns import signal_keeper
from ralphproof.process.output import LOG_SIZES, LogReader
from ralphproof.process.protocol import StartMessage
from ralphproof.process.tree import (
    TURN_VARIABLE,
    become_subreaper,
    is_alive,
    is_stopped,
    signal_each,
    start_time,
    with_descendants,
)

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from ralphproof.engine.sandbox import Command, CommandWatcher
    from ralphproof.process.turn_journal import TurnHistory

    StandIn = Callable[[Command], tuple[tuple[str, ...], Mapping[str, str]] | None]
else:
    import _signal

ANSWER_TIMEOUT_S = 10.0  # for a keeper to report the end of a turn that is due
STOPPED_TIMEOUT_S = 5.0  # a keeper that is stopped for so long is continued, though nothing is requested of it
_CHECK_INTERVAL_S = 0.05
_MAX_INTERVAL_S = 2.0  # a longer time between two checks means that this process was suspended: it does not count


class KeeperWatchdog:
    """Kills a keeper, with all processes below it, that is long over the time of its turn.

    An agent can stop its keeper (SIGSTOP), and again whenever it is continued: then no timer of the keeper runs.
    """

    def __init__(self, command: Command) -> None:
        self.lost = ""  # why the keeper was killed
        self._timeout_s, self._grace_s = command.timeout_s, command.grace_s
        self.restart()

    def restart(self) -> None:
        """A keeper was given the turn, or was found with it: its time starts now."""
        self._left_s = self._timeout_s + self._grace_s + ANSWER_TIMEOUT_S
        self._urgency = CONTINUE
        self._stopped_s = 0.0
        self._checked = monotonic()

    @property
    def why(self) -> str:
        """How a turn without a result ended: `killed` if its keeper was killed after an end was requested."""
        return "killed" if self.lost and self._urgency > CONTINUE else "interrupted"

    def expect_end(self, request: int) -> None:
        """The keeper was told to end the turn: from now on it has less time."""
        if request > self._urgency:
            self._urgency, self._stopped_s = request, 0.0
            self._left_s = min(self._left_s, ANSWER_TIMEOUT_S + (self._grace_s if request == STOP else 0.0))

    def check(self, keeper: tuple[int, int]) -> None:
        """Continue a keeper that is stopped where it must act; kill one whose time is over."""
        now = monotonic()
        passed_s = now - self._checked
        if passed_s < _CHECK_INTERVAL_S or not is_alive(*keeper):
            return
        self._checked = now
        self._left_s -= min(passed_s, _MAX_INTERVAL_S)
        self._continue(keeper[0], min(passed_s, _MAX_INTERVAL_S))
        if self._left_s <= 0.0:
            self._kill(keeper[0], "did not answer")

    def _continue(self, pid: int, passed_s: float) -> None:
        if not is_stopped(pid):
            return
        if self._urgency == KILL and self._stopped_s:  # it was continued before, and stopped again
            self._kill(pid, "was stopped again and again")
            return
        self._stopped_s += passed_s
        if self._urgency > CONTINUE or self._stopped_s >= STOPPED_TIMEOUT_S:
            signal_each([pid], _signal.SIGCONT)

    def _kill(self, pid: int, why: str) -> None:
        """Kill it and all below it: what it leaves is cleaned up as after any keeper that died."""
        self.lost = f"its keeper {why} and was ended with all that it ran"
        signal_each([other for other in reversed(with_descendants([pid])) if other != os.getpid()], _signal.SIGKILL)


# Observing a turn that another keeper runs: its output, ticks, requests and exit.


TICK_S = 0.5
OBSERVE_POLL_S = 0.02
_ACK_BYTES = 1 << 20


class TurnOutput:
    """Hands each byte of a turn's log to the watcher once, in order, whichever keeper wrote it."""

    def __init__(self, command: Command, watch: CommandWatcher, sizes: tuple[int, int, int]) -> None:
        self._watch = watch
        self._reader = LogReader(command.out, sizes)
        self._max_bytes = sizes[1]
        self._ack_bytes = min(_ACK_BYTES, sizes[1])
        self._acknowledged = 0

    @property
    def offset(self) -> int:
        """How far the log has been read."""
        return self._reader.offset

    def pull(self) -> bool:
        """Hand on new output, at most a segment of it: a flood must not keep the watcher from ticking.

        Whether there may be more at once.
        """
        goal = self.offset + self._max_bytes
        for data in self._reader.read_new():
            self._watch.output(data)
            if self.offset >= goal:
                return True
        return False

    def should_acknowledge(self) -> bool:
        """Whether enough was read since the last acknowledgement to tell the keeper how far."""
        if self.offset < self._acknowledged + self._ack_bytes:
            return False
        self._acknowledged = self.offset
        return True

    def tick(self) -> int:
        """The watcher's request."""
        return self._watch.tick()

    def finish(self, result: Mapping[str, Any]) -> Exit:
        """Hand on the rest of the log; the exit that a turn's result describes."""
        lost = int(result.get("lost_bytes", 0))
        stored = int(result.get("out_bytes", 0)) - lost
        for data in self._reader.read_rest(stored, int(result.get("dropped_bytes", 0)) - lost):
            self._watch.output(data)
        known = {name: result[name] for name in Exit.__match_args__ if name in result}
        return Exit(**known | {"survivors": tuple(result.get("survivors", ()))})


class TurnObserver:
    """Follows a turn by its files, and steers it by signals to its keeper. The watcher sees no difference to its own.

    An observer cannot slow the program down as its own harness can: a watcher that is so slow that parts of the log
    are deleted before they are read gets a notice of how much is missing. `request` is the watcher's most urgent
    request so far.
    """

    def __init__(self, read: Callable[[], TurnHistory], output: TurnOutput, *, steering: bool) -> None:
        self.request = CONTINUE
        self.ticked = False
        self.more_output = False
        self._read, self._output, self._steering = read, output, steering
        self._next_tick = 0.0
        self._signalled = CONTINUE

    def poll(self, *, woken: bool) -> TurnHistory:
        """Read the turn file, hand on new output, tick when it is time, and pass the watcher's request on."""
        history = self._read()
        self.ticked = history.result is None and (self._pull(history) or woken or monotonic() >= self._next_tick)
        if self.ticked:
            self._next_tick = monotonic() + TICK_S
            self._pass_on(self._output.tick(), history)
        return history

    def _pull(self, history: TurnHistory) -> bool:
        """Whether there was new output."""
        before = self._output.offset
        self.more_output = history.began and self._output.pull()  # before that, a log of this name is an older one
        return self._output.offset > before

    def _pass_on(self, request: int, history: TurnHistory) -> None:
        self.request = max(self.request, request)
        if not (self._steering and history.began):
            return
        if request in (RESULT_SAID, ACTIVE):
            signal_keeper(history, request)
        if self.request > self._signalled:  # it may have been made before there was a keeper to signal
            signal_keeper(history, self.request)
            self._signalled = self.request


def wait_for_wakeup(seconds: float, wake_fd: int | None, link: _socket.socket | None = None) -> bool:
    """Sleep until `link` is readable or a byte comes on `wake_fd`, which is read; whether it was the latter."""
    poll = select.poll()
    if link is not None:
        poll.register(link, select.POLLIN)
    if wake_fd is not None:
        poll.register(wake_fd, select.POLLIN)
    woken = wake_fd in [fd for fd, _ in poll.poll(seconds * 1000)]
    if wake_fd is not None and woken:
        os.read(wake_fd, 4096)
    return woken


class TurnFollower:
    """A command runner that runs nothing: it hands a turn's output to a watcher while another keeper runs it.

    It takes no lock, not even for a moment: whoever resumes the turn must not find it locked. Of the command only
    `turn_file` and `out` matter.
    """

    name = "following"
    strength = "none"

    def __init__(
        self,
        may_begin: Callable[[], bool],
        *,
        steering: bool = False,
        sizes: tuple[int, int, int] = LOG_SIZES,
        on_caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        """A turn that has not begun is waited for while `may_begin` returns True.

        `on_caught_up` is called whenever all output that is there has been handed on.

        With `steering` the watcher's requests are sent to the keeper. This is for a turn whose harness is dead: a
        living one may be at its next turn when the signal reaches the keeper.
        """
        self._may_begin, self._steering, self._sizes = may_begin, steering, sizes
        self._on_caught_up = on_caught_up

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Follow to the end. Without `steering` a watcher that requests an end stops following at once: `stopped`."""
        output = TurnOutput(command, watch, self._sizes)
        observer = TurnObserver(lambda: turn_journal.read_turn_file(command.turn_file), output, steering=self._steering)
        watchdog = KeeperWatchdog(replace(command, timeout_s=float("inf")))  # the keeper knows the turn's timeout
        while True:
            history = observer.poll(woken=False)
            if self._steering and history.began:
                watchdog.expect_end(observer.request)
                watchdog.check(history.keeper)
            if history.result is not None:
                return output.finish(history.result)
            if not observer.more_output:
                self._on_caught_up()
            if observer.request >= STOP and not self._steering:
                return Exit(None, why="stopped")
            if observer.ticked and not self._goes_on(history):
                now = turn_journal.read_turn_file(command.turn_file)  # it may have ended, or begun, just before
                if now.result is None and now.began == history.began:
                    return _abandoned_exit(history, output)
            time.sleep(0.0 if observer.more_output else OBSERVE_POLL_S)

    def _goes_on(self, history: TurnHistory) -> bool:
        return is_alive(*history.keeper) if history.began else self._may_begin()


def _abandoned_exit(history: TurnHistory, output: TurnOutput) -> Exit:
    if not history.began:
        return Exit(None, why="unstartable", error="it never began")
    while output.pull():
        pass
    return Exit(None, why="interrupted")


# Client of the keeper: a keeper process, or a pool of them, that runs commands and adopts turns of a dead harness.


_KEEPER_MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
_CONTROL_FD = 3  # the descriptor of the control socket in the keeper process
_MAX_STARTS = 3
_EXIT_TIMEOUT_S = 5.0
ENDING_POLL_S = 0.1  # between ticks while a turn is being ended
_POOL_POLL_S = 0.003
_OPEN_LINKS: set[_socket.socket] = set()  # to keepers that run a turn for this process


def start_message(
    command: Command, secrets: tuple[bytes, ...], sizes: tuple[int, int, int], stand_in: StandIn | None
) -> StartMessage:
    """The message that starts a command. All processes of the turn, the stand-in too, carry the turn's mark."""
    mark = {TURN_VARIABLE.encode(): encode_text(command.mark)}
    argv, env = (stand_in(command) if stand_in else None) or ((), None)
    return StartMessage(
        argv=_encode_argv(command.argv),
        env=_encode_environment(command.env) | mark,
        cwd=_encode_path(command.cwd),
        stdin=_encode_path(command.stdin or os.devnull),
        out=_encode_path(command.out),
        err=None if command.err is None else _encode_path(command.err),
        timeout_s=command.timeout_s,
        idle_s=command.idle_s,
        linger_s=command.linger_s,
        grace_s=command.grace_s,
        secrets=secrets,
        sizes=sizes,
        stand_in=_encode_argv(argv),
        stand_in_env={} if env is None else _encode_environment(env.items()) | mark,
    )


def read_command_history(command: Command) -> turn_journal.TurnHistory:
    """What the turn file says about this command. Raises HarnessFailed for the file of another command.

    A command that is taken up may have been started with other arguments, so they are not compared.
    """
    history = turn_journal.read_turn_file(command.turn_file)
    checksum = turn_journal.argv_checksum(_encode_argv(command.argv))
    if not command.taken_up and history.argv_checksum not in (None, checksum):
        raise HarnessFailed(f"{command.turn_file} tells of another command than {command.argv[0]}")
    return history


def encode_text(text: str) -> bytes:
    """The bytes of a text whatever the locale: UTF-8, and undecodable bytes as they came from the system."""
    return text.encode("utf-8", "surrogateescape")


def _encode_argv(argv: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(map(encode_text, argv))


def _encode_environment(env: Iterable[tuple[str, str]]) -> dict[bytes, bytes]:
    return {encode_text(name): encode_text(text) for name, text in env}


def _encode_path(path: str) -> bytes:
    return encode_text(os.path.abspath(path))


def suspend() -> None:
    """Stop all running programs before this process is stopped. May be called from a signal handler."""
    _send_to_all(b"Z")


def resume() -> None:
    """Continue what `suspend` stopped."""
    _send_to_all(b"C")


def _send_to_all(order: bytes) -> None:
    for link in tuple(_OPEN_LINKS):
        try:
            link.send(order, protocol.NO_SIGNAL)
        except OSError:
            continue  # full, or closed: that program goes on


class KeeperOptions:
    """How commands are started. The keepers of a pool share one object; it may change between two commands.

    `stand_in` returns, for a command, the program (arguments and environment) that the keeper starts if this process
    dies before the command has ended; it observes the turn in our place. `held_descriptors` returns descriptors that
    the keeper holds open while the command runs: locks that must outlive this process.
    """

    def __init__(self, secrets: Iterable[str], stderr_path: str | None, log_sizes: tuple[int, int, int]) -> None:
        self.stand_in: StandIn | None = None
        self.held_descriptors: Callable[[], tuple[int, ...]] = tuple
        self.secrets: tuple[bytes, ...] = ()
        self.stderr_path = stderr_path or os.devnull
        self.log_sizes = log_sizes
        self.add_secrets(secrets)

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Mask these too, from the next command on."""
        self.secrets += tuple(encode_text(secret) for secret in secrets)


class KeeperClient:
    """One process that runs one command at a time. It is started at once, and again when it is needed and gone."""

    def __init__(
        self,
        secrets: Iterable[str] = (),
        stderr_path: str | None = None,
        *,
        wake_fd: int | None = None,
        sizes: tuple[int, int, int] = LOG_SIZES,
        options: KeeperOptions | None = None,
    ) -> None:
        """A byte on `wake_fd` (see `signal.set_wakeup_fd`) causes a tick at once; it is read here.

        `options` are those of another keeper; they replace the other arguments.
        """
        self.pid = 0
        self.wake_fd = wake_fd
        self.options = options or KeeperOptions(secrets, stderr_path, sizes)
        self._spawn()
        become_subreaper()

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Run a command to its end. One that ran before is not run again: its recorded result is returned.

        One that still runs under another keeper is followed to its end; one whose keeper died is cleaned up after.
        """
        sizes = self.options.log_sizes
        output, watchdog = TurnOutput(command, watch, sizes), KeeperWatchdog(command)
        children_before = dead_turns.own_children()
        for _ in range(_MAX_STARTS):
            lock = self._adopt_running_turn(command, output, watchdog)
            try:
                history = read_command_history(command)
                if history.result is not None:
                    return output.finish(history.result)
                if history.began:
                    result = dead_turns.finish_interrupted_turn(
                        command, lock, history, children_before, sizes, watchdog.why, watchdog.lost
                    )
                    return output.finish(result)
                link = self._send_start(command, lock)
            finally:
                if lock >= 0:
                    os.close(lock)
            started = self._follow_turn(link, output, watchdog)
            if started is not None:
                return output.finish(started)
        raise KeeperLost(f"the keeper died {_MAX_STARTS} times before it could start {command.argv[0]}")

    def close(self) -> None:
        """End the keeper process. No turn may be running."""
        self._control.close()
        deadline = time.monotonic() + _EXIT_TIMEOUT_S
        while not self._reaped():
            if time.monotonic() > deadline or is_stopped(self.pid):
                os.kill(self.pid, _signal.SIGKILL)
            time.sleep(0.001)

    def _spawn(self) -> None:
        self._control, theirs = _socket.socketpair()
        argv = interpreter.script_command(_KEEPER_MAIN, str(_CONTROL_FD))
        opened: list[int] = []
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
            opened.append(nowhere)
            errors = os.open(self.options.stderr_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            opened.append(errors)
            with dead_turns.KEEPER_SPAWN_LOCK:
                self.pid = spawn(argv, _keeper_environment(), (nowhere, nowhere, errors, theirs.fileno()))
                dead_turns.KEEPER_PIDS.add(self.pid)
        except OSError as error:
            self._control.close()
            raise KeeperLost(f"the keeper could not be started: {error.strerror}") from error
        finally:
            theirs.close()
            for descriptor in opened:
                os.close(descriptor)

    def _send_start(self, command: Command, lock: int) -> _socket.socket:
        """Send the turn with its lock; returns our end of its link. A keeper that died meanwhile is replaced."""
        ours, theirs = _socket.socketpair()
        options = self.options
        start = start_message(command, options.secrets, options.log_sizes, options.stand_in)
        fields = tuple(getattr(start, name) for name in StartMessage.__match_args__)
        descriptors = (lock, theirs.fileno(), *options.held_descriptors())
        try:
            try:
                protocol.send_frame(self._control, fields, descriptors)
            except (BrokenPipeError, ConnectionResetError):
                self.close()
                self._spawn()
                protocol.send_frame(self._control, fields, descriptors)
        finally:
            theirs.close()
        return ours

    def _reaped(self) -> bool:
        try:
            gone = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        except ChildProcessError:
            gone = True
        if gone:
            dead_turns.KEEPER_PIDS.discard(self.pid)
        return gone

    def _follow_turn(
        self, link: _socket.socket, output: TurnOutput, watchdog: KeeperWatchdog
    ) -> Mapping[str, Any] | None:
        """Follow a turn that we started to its result; None if its keeper died, was lost, or refused it."""
        link.setblocking(False)
        orders, reply, urgency, more_output = _OrderQueue(link), b"", CONTINUE, False
        keeper = self.pid, start_time(self.pid)
        watchdog.restart()
        _OPEN_LINKS.add(link)
        try:
            while not reply.endswith(b"\n"):
                data = self._receive(link, 0.0 if more_output else TICK_S if urgency == CONTINUE else ENDING_POLL_S)
                if data == b"":
                    return None
                if data:
                    reply += data if reply else data.lstrip(b"d")
                if data or more_output:
                    more_output = output.pull()
                    if output.should_acknowledge():
                        orders.put(b"A" + output.offset.to_bytes(8, "little"))
                if reply.startswith(b"X"):
                    return None
                request = output.tick()
                if request < CONTINUE:
                    orders.put(b"E" if request == RESULT_SAID else b"T")
                elif request > urgency:
                    orders.put(b"S" if request == STOP else b"K")
                    watchdog.expect_end(request)
                    urgency = request
                orders.flush()
                watchdog.check(keeper)
            return turn_journal.parse_entry(reply[1:])
        except BaseException:  # the watcher failed: no program may go on without one
            orders.put(b"K")
            if not orders.flush():  # there is no later to send it
                dead_turns.signal_keeper(turn_journal.TurnHistory((self.pid, start_time(self.pid))), KILL)
            raise
        finally:
            _OPEN_LINKS.discard(link)
            link.close()

    def _receive(self, link: _socket.socket, timeout_s: float) -> bytes | None:
        """What the keeper sent; empty when it closed the link, None if nothing came in time."""
        wait_for_wakeup(timeout_s, self.wake_fd, link)
        try:
            return link.recv(1 << 16)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def _adopt_running_turn(self, command: Command, output: TurnOutput, watchdog: KeeperWatchdog) -> int:
        """A descriptor of the turn's lock, as soon as no other keeper has it; -1 when the turn has its result."""
        observer = TurnObserver(lambda: read_command_history(command), output, steering=True)
        woken = False
        while (lock := turn_journal.lock_turn_file(command.turn_file)) is None:
            history = observer.poll(woken=woken)
            if history.result is not None:
                return -1
            watchdog.expect_end(observer.request)
            watchdog.check(history.keeper)
            woken = wait_for_wakeup(0.0 if observer.more_output else OBSERVE_POLL_S, self.wake_fd)
        return lock


class _OrderQueue:
    """Orders for the keeper of a turn. One that finds no room in the socket is kept: of each kind the latest."""

    def __init__(self, link: _socket.socket) -> None:
        self._link = link
        self._pending: dict[int, bytes] = {}

    def put(self, order: bytes) -> None:
        """Have it sent by the next `flush` that finds room."""
        self._pending[order[0]] = order

    def flush(self) -> bool:
        """Send what is pending; whether nothing is left."""
        for kind, order in list(self._pending.items()):
            try:
                self._link.send(order, protocol.NO_SIGNAL)
            except BlockingIOError:
                return False
            except OSError:
                pass  # the keeper is leaving: the next receive sees the end of the link
            del self._pending[kind]
        return True


def _keeper_environment() -> dict[str, str]:
    """Almost nothing; but a keeper inside another's turn is found by that turn's mark."""
    outer = os.environ.get(TURN_VARIABLE)
    return {"LANG": "C.UTF-8"} | ({TURN_VARIABLE: outer} if outer else {})


class KeeperPool:
    """Runs as many commands at the same time as it is asked to, from as many threads, each under a keeper of its own.

    The first keeper belongs to the caller: `close` leaves it alone. It runs whatever is run alone, and only it reads
    its `wake_fd`. Others are started when all are busy, with the same options, and ended when nothing runs: a start
    takes 20 ms, while an idle one would keep 3.5 MB for as long as an agent works.
    """

    def __init__(self, first: KeeperClient) -> None:
        self._first = first
        self._lock = allocate_lock()
        self._idle = [first]  # the first one, if it is idle, is the last
        self._busy: list[KeeperClient] = []
        self._wake_pipes: dict[KeeperClient, tuple[int, int]] = {}  # of all but the first: that one's is the caller's

    @property
    def wake_fd(self) -> int | None:
        """The wake-up descriptor of the first keeper."""
        return self._first.wake_fd

    @wake_fd.setter
    def wake_fd(self, fd: int | None) -> None:
        self._first.wake_fd = fd

    @property
    def options(self) -> KeeperOptions:
        """How all keepers of the pool start commands."""
        return self._first.options

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """As `Keeper.run`. A watcher that requests an end causes a tick of all other commands at once."""
        keeper = self._acquire()
        try:
            return keeper.run(command, _NotifyingWatcher(watch, lambda: self._wake_others(keeper)))
        finally:
            self._release(keeper)

    def close(self) -> None:
        """End the idle keepers that the pool started. A busy one is ended after its command."""
        with self._lock:
            ending = [(keeper, self._wake_pipes.pop(keeper)) for keeper in self._idle if keeper is not self._first]
            self._idle = [keeper for keeper in self._idle if keeper is self._first]
        for keeper, pipe in ending:
            keeper.close()
            for fd in pipe:
                os.close(fd)

    def _acquire(self) -> KeeperClient:
        """An idle keeper, or a new one.

        Nothing starts while a dead keeper is cleaned up after: a process that was just started may be taken for one
        that it left. A keeper that was ended by that mistake had done nothing yet, and is started again.
        """
        with self._lock:
            keeper = self._idle.pop() if self._idle else self._start()
        while self._cleanup_pending():
            time.sleep(_POOL_POLL_S)
        with self._lock:
            self._busy.append(keeper)
        return keeper

    def _start(self) -> KeeperClient:
        pipe = os.pipe()
        try:
            for fd in pipe:
                os.set_blocking(fd, False)
            keeper = KeeperClient(wake_fd=pipe[0], options=self.options)
        except BaseException:
            for fd in pipe:
                os.close(fd)
            raise
        self._wake_pipes[keeper] = pipe
        return keeper

    def _cleanup_pending(self) -> bool:
        """Whether a keeper has died during its command."""
        with self._lock:
            pids = [keeper.pid for keeper in self._busy]
            return not all(is_alive(pid, start_time(pid)) for pid in pids)

    def _release(self, keeper: KeeperClient) -> None:
        with self._lock:
            self._busy.remove(keeper)
            self._idle.insert(len(self._idle) if keeper is self._first else 0, keeper)
            if self._busy:
                return
        self.close()

    def _wake_others(self, waker: KeeperClient) -> None:
        """Have the watchers of all other commands asked at once."""
        with self._lock:
            for keeper in self._busy:
                if keeper is not waker and keeper in self._wake_pipes:
                    try:
                        os.write(self._wake_pipes[keeper][1], b"!")
                    except BlockingIOError:
                        continue  # a wake-up is pending already


class _NotifyingWatcher:
    """A watcher that calls `notify` when it requests something more urgent than before."""

    def __init__(self, watch: CommandWatcher, notify: Callable[[], None]) -> None:
        self._watch, self._notify = watch, notify
        self._urgency = CONTINUE

    def output(self, chunk: bytes) -> None:
        self._watch.output(chunk)

    def tick(self) -> int:
        request = self._watch.tick()
        if request > self._urgency:
            self._urgency = request
            self._notify()
        return request
