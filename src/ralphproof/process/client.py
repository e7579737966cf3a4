"""Clients of the keeper: one keeper process, or a pool of them, that run commands for the harness."""

from __future__ import annotations

import _socket
import os
import time
from _thread import allocate_lock

from ralphproof.base import interpreter
from ralphproof.base.errors import HarnessFailed, KeeperLost
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.sandbox import CONTINUE, KILL, RESULT_SAID, STOP
from ralphproof.process import cleanup, protocol, turn_journal
from ralphproof.process.observer import OBSERVE_POLL_S, TICK_S, TurnObserver, TurnOutput, wait_for_wakeup
from ralphproof.process.output import LOG_SIZES
from ralphproof.process.protocol import StartMessage
from ralphproof.process.tree import TURN_VARIABLE, become_subreaper, is_alive, is_stopped, start_time
from ralphproof.process.watchdog import KeeperWatchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from ralphproof.engine.sandbox import Command, CommandWatcher, Exit

    StandIn = Callable[[Command], tuple[tuple[str, ...], Mapping[str, str]] | None]


# How a command is told to the keeper, and recognised when it is asked for again.


def start_message(
    command: Command, secrets: tuple[bytes, ...], sizes: tuple[int, int, int], stand_in: StandIn | None
) -> StartMessage:
    """What the keeper is told. Every process of the turn, the stand-in too, carries the turn's mark."""
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
    """What happened of this command. A file that tells of another one is a fault of ours: nothing may build on it.

    One that is taken up may have been begun with other arguments: then its file tells of it all the same.
    """
    past = turn_journal.read_turn_file(command.turn_file)
    if not command.taken_up and past.what not in (None, turn_journal.argv_checksum(_encode_argv(command.argv))):
        raise HarnessFailed(f"{command.turn_file} tells of another command than {command.argv[0]}")
    return past


def encode_text(text: str) -> bytes:
    """As they were where they came from the system, UTF-8 where they came from a file, whatever the locale."""
    return text.encode("utf-8", "surrogateescape")


def _encode_argv(argv: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(map(encode_text, argv))


def _encode_environment(env: Iterable[tuple[str, str]]) -> dict[bytes, bytes]:
    return {encode_text(name): encode_text(text) for name, text in env}


def _encode_path(path: str) -> bytes:
    return encode_text(os.path.abspath(path))


# The harness's side of the keeper: run one command to its end, whoever dies on the way.
#
# This is imported first of all: the keeper's own start then hides behind the harness's other imports.


if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

_KEEPER_MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
_CONTROL_FD = 3  # the descriptor that the keeper finds its control socket at
_MAX_STARTS = 3
_EXIT_TIMEOUT_S = 5.0
ENDING_POLL_S = 0.1  # between looks at a keeper that was told to end its turn
_OPEN_LINKS: set[_socket.socket] = set()  # to keepers that run a turn for this process


def suspend() -> None:
    """Have all programs that run stopped: this process is about to be. May be called from a signal handler."""
    _send_order(b"Z")


def resume() -> None:
    """Have them continued."""
    _send_order(b"C")


def _send_order(order: bytes) -> None:
    for line in tuple(_OPEN_LINKS):
        try:
            line.send(order, protocol.NO_SIGNAL)
        except OSError:
            continue  # it is full, or at its end: the program goes on


class Keeper:
    """One process that runs one command at a time, started at once and again whenever it is needed and gone.

    `stand_in` is asked for each command what to start if we die before it: it looks on in our place. `holding` is asked
    for descriptors that the keeper holds open for as long as the command runs: locks that must outlive us.
    """

    stand_in: StandIn | None = None
    holding: Callable[[], tuple[int, ...]] = staticmethod(lambda: ())

    def __init__(
        self,
        secrets: Iterable[str] = (),
        stderr_path: str | None = None,
        *,
        wake_fd: int | None = None,
        sizes: tuple[int, int, int] = LOG_SIZES,
    ) -> None:
        """A byte on `wake_fd` (see `signal.set_wakeup_fd`) causes a tick at once; it is read here."""
        self.pid = 0
        self.wake_fd = wake_fd
        self._secrets = tuple(encode_text(secret) for secret in secrets)
        self._stderr = stderr_path or os.devnull
        self._sizes = sizes
        self._spawn()
        become_subreaper()

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Run to the end and tell how it ended. A turn that ran before is not run again: its result is told.

        One that still runs under another keeper is followed to its end; one whose keeper died is cleaned up after.
        """
        view, patience = TurnOutput(command, watch, self._sizes), KeeperWatchdog(command)
        children_before = cleanup.own_children()
        for _ in range(_MAX_STARTS):
            lock = self._wait_for(command, view, patience)
            try:
                past = read_command_history(command)
                if past.result is not None:
                    return view.finish(past.result)
                if past.began:
                    how = patience.why, patience.lost
                    return view.finish(
                        cleanup.finish_interrupted_turn(command, lock, past, children_before, self._sizes, *how)
                    )
                line = self._begin(command, lock)
            finally:
                if lock >= 0:
                    os.close(lock)
            result = self._attend(line, view, patience)
            if result is not None:
                return view.finish(result)
        raise KeeperLost(f"the keeper died {_MAX_STARTS} times before it could start {command.argv[0]}")

    def hide(self, secrets: Iterable[str]) -> None:
        """Mask these too, from the next command on."""
        self._secrets += tuple(encode_text(secret) for secret in secrets)

    def close(self) -> None:
        """Let the keeper go. It ends at once: no turn runs."""
        self._control.close()
        deadline = time.monotonic() + _EXIT_TIMEOUT_S
        while not self._reaped():
            if time.monotonic() > deadline or is_stopped(self.pid):
                os.kill(self.pid, _signal.SIGKILL)
            time.sleep(0.001)

    def _spawn(self) -> None:
        self._control, theirs = _socket.socketpair()
        if theirs.fileno() == _CONTROL_FD:
            os.set_inheritable(_CONTROL_FD, True)
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        argv = interpreter.script_command(_KEEPER_MAIN, str(_CONTROL_FD))
        try:
            with cleanup.KEEPER_SPAWN_LOCK:
                self.pid = os.posix_spawn(
                    argv[0],
                    argv,
                    _keeper_environment(),
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, theirs.fileno(), _CONTROL_FD),
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                        (os.POSIX_SPAWN_OPEN, 2, self._stderr, append, 0o600),
                    ],
                    setsid=True,
                    setsigmask=(),
                    setsigdef=(_signal.SIGTERM, _signal.SIGCHLD, _signal.SIGQUIT),
                )
                cleanup.KEEPER_PIDS.add(self.pid)
        except OSError as error:
            raise KeeperLost(f"the keeper could not be started: {error.strerror}") from error
        finally:
            theirs.close()

    def _begin(self, command: Command, lock: int) -> _socket.socket:
        """Send the turn with its lock; a keeper that went away in between is replaced."""
        ours, theirs = _socket.socketpair()
        start = start_message(command, self._secrets, self._sizes, self.stand_in)
        fields = tuple(getattr(start, name) for name in StartMessage.__match_args__)
        descriptors = (lock, theirs.fileno(), *self.holding())
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
            cleanup.KEEPER_PIDS.discard(self.pid)
        return gone

    def _attend(self, line: _socket.socket, view: TurnOutput, patience: KeeperWatchdog) -> Mapping[str, Any] | None:
        """Follow a turn that we started to its result; None if its keeper died, was lost, or refused it."""
        line.setblocking(False)
        orders, said, urged, behind = _PendingOrders(line), b"", CONTINUE, False
        keeper = self.pid, start_time(self.pid)
        patience.begin()
        _OPEN_LINKS.add(line)
        try:
            while not said.endswith(b"\n"):
                heard = self._hear(line, 0.0 if behind else TICK_S if urged == CONTINUE else ENDING_POLL_S)
                if heard == b"":
                    return None
                if heard:
                    said += heard.lstrip(b"d") if not said else heard
                if heard or behind:
                    behind = view.pull()
                    if view.read_more():
                        orders.give(b"A" + view.offset.to_bytes(8, "little"))
                if said.startswith(b"X"):
                    return None
                wanted = view.tick()
                if wanted < CONTINUE:
                    orders.give(b"E" if wanted == RESULT_SAID else b"T")
                elif wanted > urged:
                    orders.give(b"S" if wanted == STOP else b"K")
                    patience.urge(wanted)
                    urged = wanted
                orders.sent()
                patience.look(keeper)
            return turn_journal.parse_entry(said[1:])
        except BaseException:  # whoever looks on failed: nothing may go on unseen
            orders.give(b"K")
            if not orders.sent():  # and there is no later to send it
                cleanup.signal_keeper(turn_journal.TurnHistory((self.pid, start_time(self.pid))), KILL)
            raise
        finally:
            _OPEN_LINKS.discard(line)
            line.close()

    def _hear(self, line: _socket.socket, seconds: float) -> bytes | None:
        """What the keeper said; empty at its end, None if it said nothing for so long."""
        wait_for_wakeup(seconds, self.wake_fd, line)
        try:
            return line.recv(1 << 16)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def _wait_for(self, command: Command, view: TurnOutput, patience: KeeperWatchdog) -> int:
        """The turn's lock, as soon as nobody else is responsible; -1 when its result is there."""
        onlooker, woken = TurnObserver(lambda: read_command_history(command), view, steering=True), False
        while (lock := turn_journal.lock_turn_file(command.turn_file)) is None:
            past = onlooker.look(woken=woken)
            if past.result is not None:
                return -1
            patience.urge(onlooker.wanted)
            patience.look(past.keeper)
            woken = wait_for_wakeup(0.0 if onlooker.behind else OBSERVE_POLL_S, self.wake_fd)
        return lock


class _PendingOrders:
    """What the keeper is told of its turn. What finds no room on the line is owed: of each kind the latest."""

    def __init__(self, line: _socket.socket) -> None:
        self._line = line
        self._owed: dict[int, bytes] = {}

    def give(self, order: bytes) -> None:
        """Have it sent as soon as there is room."""
        self._owed[order[0]] = order

    def sent(self) -> bool:
        """Send what is owed; whether nothing is left of it."""
        for kind, order in list(self._owed.items()):
            try:
                self._line.send(order, protocol.NO_SIGNAL)
            except BlockingIOError:
                return False
            except OSError:
                pass  # it is leaving: its end will be heard
            del self._owed[kind]
        return True


def _keeper_environment() -> dict[str, str]:
    """Almost nothing; but a keeper inside another's turn is found by that turn's mark."""
    outer = os.environ.get(TURN_VARIABLE)
    return {"LANG": "C.UTF-8"} | ({TURN_VARIABLE: outer} if outer else {})


# Several keepers as one: commands that are run at the same time have a keeper each.


_POOL_POLL_S = 0.003


class KeeperPool:
    """Runs as many commands at the same time as it is asked to, from as many threads; else it is like one keeper.

    The first keeper is whose it was: `close` leaves it alone. It runs whatever is run alone, and it alone listens on
    `wake_fd`. Others are made when all are busy, and let go when nothing runs: to start one again takes 20 ms, to
    keep it 3.5 MB for as long as an agent works.
    """

    def __init__(self, first: Keeper) -> None:
        self._first = first
        self._lock = allocate_lock()
        self._idle: list[Keeper] = [first]  # the first one, if it is there, at the end
        self._busy: list[Keeper] = []

    @property
    def wake_fd(self) -> int | None:
        """As of a keeper."""
        return self._first.wake_fd

    @wake_fd.setter
    def wake_fd(self, fd: int | None) -> None:
        self._first.wake_fd = fd

    @property
    def stand_in(self) -> StandIn | None:
        """As of a keeper."""
        return self._first.stand_in

    @stand_in.setter
    def stand_in(self, stand_in: StandIn | None) -> None:
        self._first.stand_in = stand_in

    def hide(self, secrets: Iterable[str]) -> None:
        """Mask these too, from the next command on."""
        self._first.hide(secrets)

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """As of a keeper. What one watcher wants more urgently than before, the others are asked for at once."""
        keeper = self._taken()
        try:
            return keeper.run(command, _NotifyingWatch(watch, lambda: self._ring(keeper)))
        finally:
            self._give_back(keeper)

    def close(self) -> None:
        """Let all go that were made here. One that is busy goes when its command has ended."""
        with self._lock:
            going = [keeper for keeper in self._idle if isinstance(keeper, _PooledKeeper)]
            self._idle = [keeper for keeper in self._idle if keeper not in going]
        for keeper in going:
            keeper.let_go()

    def _taken(self) -> Keeper:
        """One that is idle, or a new one.

        While a command's dead keeper is cleaned up after, a process that was just made may be taken for what it left:
        nothing begins before that is over. Whoever was ended by that mistake had done nothing, and starts anew.
        """
        with self._lock:
            keeper = self._idle.pop() if self._idle else _PooledKeeper(self._first)
        while self._clearing():
            time.sleep(_POOL_POLL_S)
        with self._lock:
            self._busy.append(keeper)
        return keeper

    def _clearing(self) -> bool:
        """Whether a keeper has died over its command."""
        with self._lock:
            return not all(is_alive(keeper.pid, start_time(keeper.pid)) for keeper in self._busy)

    def _give_back(self, keeper: Keeper) -> None:
        with self._lock:
            self._busy.remove(keeper)
            self._idle.insert(len(self._idle) if keeper is self._first else 0, keeper)
            if self._busy:
                return
        self.close()

    def _ring(self, rung_by: Keeper) -> None:
        with self._lock:
            for keeper in self._busy:
                if isinstance(keeper, _PooledKeeper) and keeper is not rung_by:
                    keeper.ring()


class _PooledKeeper(Keeper):
    """One more, like the first in all that it was told. Its wake-ups come from the others."""

    def __init__(self, first: Keeper) -> None:
        self._first = first
        reader, self._bell = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(self._bell, False)
        try:
            super().__init__(stderr_path=first._stderr, wake_fd=reader, sizes=first._sizes)
        except BaseException:
            self._close_pipe(reader)
            raise

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """As any other."""
        self._secrets, self.stand_in = self._first._secrets, self._first.stand_in
        self.holding = self._first.holding
        return super().run(command, watch)

    def ring(self) -> None:
        """Have its watcher asked at once."""
        try:
            os.write(self._bell, b"!")
        except BlockingIOError:
            return  # it is rung already

    def let_go(self) -> None:
        """It is not needed any more. (`close` also makes way for a new process of the same keeper.)"""
        self.close()
        if self.wake_fd is not None:
            self._close_pipe(self.wake_fd)

    def _close_pipe(self, reader: int) -> None:
        os.close(reader)
        os.close(self._bell)


class _NotifyingWatch:
    """A watcher that tells when it wants something more urgently than before."""

    def __init__(self, watch: CommandWatcher, tell: Callable[[], None]) -> None:
        self._watch, self._tell = watch, tell
        self._wanted = CONTINUE

    def output(self, chunk: bytes) -> None:
        self._watch.output(chunk)

    def tick(self) -> int:
        wanted = self._watch.tick()
        if wanted > self._wanted:
            self._wanted = wanted
            self._tell()
        return wanted
