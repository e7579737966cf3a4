"""The harness's side of the keeper: run one command to its end, whoever dies on the way.

This is imported first of all: the keeper's own start then hides behind the harness's other imports.
"""

from __future__ import annotations

import _socket
import os
import time

from ralphproof import interpreter
from ralphproof.errors import KeeperLost
from ralphproof.keeper import aftermath, frame, journal
from ralphproof.keeper.log import SIZES
from ralphproof.keeper.onlooker import LOOK_S, Onlooker, pause
from ralphproof.keeper.patience import Patience
from ralphproof.keeper.request import as_bytes, past_of, start_of
from ralphproof.keeper.start import Start
from ralphproof.keeper.tree import MARK, become_subreaper, start_time, stopped
from ralphproof.keeper.view import TICK_S, View
from ralphproof.sandbox import GO_ON, KILL, SAID, STOP
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from ralphproof.keeper.request import StandIn
    from ralphproof.sandbox import Command, Exit, Watch
else:
    import _signal

_DOOR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
_CONTROL = 3  # the descriptor that the keeper finds its control socket at
_STARTS = 3
_LEAVE_S = 5.0
ENDING_S = 0.1  # between looks at a keeper that was told to end its turn
_LINES: set[_socket.socket] = set()  # to keepers that run a turn for this process


def suspend() -> None:
    """Have all programs that run stopped: this process is about to be. May be called from a signal handler."""
    _send_all(b"Z")


def resume() -> None:
    """Have them continued."""
    _send_all(b"C")


def _send_all(order: bytes) -> None:
    for line in tuple(_LINES):
        try:
            line.send(order, frame.QUIET)
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
        sizes: tuple[int, int, int] = SIZES,
    ) -> None:
        """A byte on `wake_fd` (see `signal.set_wakeup_fd`) causes a tick at once; it is read here."""
        self.pid = 0
        self.wake_fd = wake_fd
        self._secrets = tuple(as_bytes(secret) for secret in secrets)
        self._stderr = stderr_path or os.devnull
        self._sizes = sizes
        self._spawn()
        become_subreaper()

    def run(self, command: Command, watch: Watch) -> Exit:
        """Run to the end and tell how it ended. A turn that ran before is not run again: its result is told.

        One that still runs under another keeper is followed to its end; one whose keeper died is cleaned up after.
        """
        view, patience = View(command, watch, self._sizes), Patience(command)
        children_before = aftermath.own_children()
        for _ in range(_STARTS):
            lock = self._wait_for(command, view, patience)
            try:
                past = past_of(command)
                if past.result is not None:
                    return view.finish(past.result)
                if past.began:
                    how = patience.why, patience.lost
                    return view.finish(aftermath.settle(command, lock, past, children_before, self._sizes, *how))
                line = self._begin(command, lock)
            finally:
                if lock >= 0:
                    os.close(lock)
            result = self._attend(line, view, patience)
            if result is not None:
                return view.finish(result)
        raise KeeperLost(f"the keeper died {_STARTS} times before it could start {command.argv[0]}")

    def hide(self, secrets: Iterable[str]) -> None:
        """Mask these too, from the next command on."""
        self._secrets += tuple(as_bytes(secret) for secret in secrets)

    def close(self) -> None:
        """Let the keeper go. It ends at once: no turn runs."""
        self._control.close()
        deadline = time.monotonic() + _LEAVE_S
        while not self._reaped():
            if time.monotonic() > deadline or stopped(self.pid):
                os.kill(self.pid, _signal.SIGKILL)
            time.sleep(0.001)

    def _spawn(self) -> None:
        self._control, theirs = _socket.socketpair()
        if theirs.fileno() == _CONTROL:
            os.set_inheritable(_CONTROL, True)
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        argv = interpreter.script(_DOOR, str(_CONTROL))
        try:
            with aftermath.MAKING:
                self.pid = os.posix_spawn(
                    argv[0],
                    argv,
                    _keeper_environment(),
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, theirs.fileno(), _CONTROL),
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                        (os.POSIX_SPAWN_OPEN, 2, self._stderr, append, 0o600),
                    ],
                    setsid=True,
                    setsigmask=(),
                    setsigdef=(_signal.SIGTERM, _signal.SIGCHLD, _signal.SIGQUIT),
                )
                aftermath.KEEPERS.add(self.pid)
        except OSError as error:
            raise KeeperLost(f"the keeper could not be started: {error.strerror}") from error
        finally:
            theirs.close()

    def _begin(self, command: Command, lock: int) -> _socket.socket:
        """Send the turn with its lock; a keeper that went away in between is replaced."""
        ours, theirs = _socket.socketpair()
        start = start_of(command, self._secrets, self._sizes, self.stand_in)
        fields = tuple(getattr(start, name) for name in Start.__match_args__)
        descriptors = (lock, theirs.fileno(), *self.holding())
        try:
            try:
                frame.send(self._control, fields, descriptors)
            except (BrokenPipeError, ConnectionResetError):
                self.close()
                self._spawn()
                frame.send(self._control, fields, descriptors)
        finally:
            theirs.close()
        return ours

    def _reaped(self) -> bool:
        try:
            gone = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        except ChildProcessError:
            gone = True
        if gone:
            aftermath.KEEPERS.discard(self.pid)
        return gone

    def _attend(self, line: _socket.socket, view: View, patience: Patience) -> Mapping[str, Any] | None:
        """Follow a turn that we started to its result; None if its keeper died, was lost, or refused it."""
        line.setblocking(False)
        orders, said, urged, behind = _Orders(line), b"", GO_ON, False
        keeper = self.pid, start_time(self.pid)
        patience.begin()
        _LINES.add(line)
        try:
            while not said.endswith(b"\n"):
                heard = self._hear(line, 0.0 if behind else TICK_S if urged == GO_ON else ENDING_S)
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
                if wanted < GO_ON:
                    orders.give(b"E" if wanted == SAID else b"T")
                elif wanted > urged:
                    orders.give(b"S" if wanted == STOP else b"K")
                    patience.urge(wanted)
                    urged = wanted
                orders.sent()
                patience.look(keeper)
            return journal.parse(said[1:])
        except BaseException:  # whoever looks on failed: nothing may go on unseen
            orders.give(b"K")
            if not orders.sent():  # and there is no later to send it
                aftermath.urge(journal.Past((self.pid, start_time(self.pid))), KILL)
            raise
        finally:
            _LINES.discard(line)
            line.close()

    def _hear(self, line: _socket.socket, seconds: float) -> bytes | None:
        """What the keeper said; empty at its end, None if it said nothing for so long."""
        pause(seconds, self.wake_fd, line)
        try:
            return line.recv(1 << 16)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def _wait_for(self, command: Command, view: View, patience: Patience) -> int:
        """The turn's lock, as soon as nobody else is responsible; -1 when its result is there."""
        onlooker, woken = Onlooker(lambda: past_of(command), view, steering=True), False
        while (lock := journal.take(command.turn_file)) is None:
            past = onlooker.look(woken=woken)
            if past.result is not None:
                return -1
            patience.urge(onlooker.wanted)
            patience.look(past.keeper)
            woken = pause(0.0 if onlooker.behind else LOOK_S, self.wake_fd)
        return lock


class _Orders:
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
                self._line.send(order, frame.QUIET)
            except BlockingIOError:
                return False
            except OSError:
                pass  # it is leaving: its end will be heard
            del self._owed[kind]
        return True


def _keeper_environment() -> dict[str, str]:
    """Almost nothing; but a keeper inside another's turn is found by that turn's mark."""
    outer = os.environ.get(MARK)
    return {"LANG": "C.UTF-8"} | ({MARK: outer} if outer else {})
