"""Tells people who are elsewhere that a run has ended, waits, or comes near a limit.

A child delivers, so that nothing that hangs, floods or fails out there is felt by the loop.
"""

from __future__ import annotations

import os
import select
import time

from ralphproof import interpreter
from ralphproof.errand import Starting, over
from ralphproof.observers.deliver import LEAVES_S, TOLD_ALL
from ralphproof.observers.note import ENDED, Note, note_of
from ralphproof.observers.target import shown
from ralphproof.record import Record, TurnAgain, TurnBegan
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Iterable, Mapping

    from ralphproof.event import Event
else:
    import _signal

INFINITE_S = float("inf")
LONG_WAIT_S = 3600.0
IN_ORDER_S = 2.0  # at the end, so long what comes next waits for what was told before
MOST_QUEUED = 8  # what one child is given; all of it fits into a pipe


class Notify:
    """An observer that starts a child for what is worth telling, and never waits for one. `close` must be called.

    One child at a time is at work, so all is told in its order. Only at the end the last one is not kept waiting for
    long by another that hangs.

    Targets have passed `bad_target`. Commands run in `root` with this environment.
    """

    def __init__(
        self, targets: Iterable[str], run: str, project_name: str, mask: Callable[[str], str],
        environ: Mapping[str, str], root: str = ".",
    ) -> None:  # fmt: skip
        self._targets, self._root = tuple(dict.fromkeys(targets)), os.path.abspath(root)
        self._run, self._project, self._mask = run, project_name, mask
        # The variable that sets the targets holds their secrets too.
        self._environ = {name: text for name, text in environ.items() if not name.upper().startswith("RALPH__NOTIFY")}
        self._queue: list[Note] = []
        self._children: dict[int, int] = {}  # the pipe on which each tells what failed
        self._faults: dict[int, str] = {}  # by the place of the target
        self._ended = False
        self._place, self._untils = 0, dict[int, float]()  # which agent is asked, and until when others may not be
        self._refused: TurnAgain | None = None  # until it is seen whether another agent goes on
        self._told_wait = 0  # the last iteration of which a wait was told

    @property
    def failures(self) -> list[str]:
        """What could not be delivered, a line for each target, without its secrets."""
        return [f"notify: {shown(self._targets[place])}: {why}" for place, why in sorted(self._faults.items())]

    def saw(self, record: Record) -> None:
        if isinstance(record, TurnBegan):
            self._place, self._refused = record.place, None
        elif isinstance(record, TurnAgain):
            self._untils[self._place], self._refused = record.until, record
        elif note := note_of(record, self._run, self._project, self._mask, time.time()):
            self._tell(note)

    def heard(self, events: list[Event]) -> None:
        """What an agent says is for those who sit before it."""

    def tick(self) -> None:
        """Time passes: a refusal that no turn followed is a wait, and children end."""
        refused, self._refused = self._refused, None
        if refused is not None:
            self._wait_began(refused, time.time())
        if self._children:
            self._reap()
        if self._queue and not self._children:
            self._start()

    def close(self, grace_s: float = 10.0, patience_s: Callable[[], float] = lambda: INFINITE_S) -> None:
        """Give what is under way so long in all, then end it: nothing is left running.

        `patience_s` tells again and again how much longer somebody is willing to wait.
        """
        deadline = time.monotonic() + grace_s
        waiting, self._queue = self._queue, []
        for notes in filter(None, (waiting[:-1], waiting[-1:])):  # the end is not kept back by what hangs before it
            self._attend(min(grace_s / 4, IN_ORDER_S), patience_s)
            self._queue = notes
            self._start()
        self._attend(deadline - time.monotonic(), patience_s)
        for send, number in ((os.kill, _signal.SIGTERM), (os.killpg, _signal.SIGKILL)):
            for pid in self._children:
                try:
                    send(pid, number)
                except OSError:
                    continue  # it ended by itself
            self._attend(LEAVES_S, lambda: INFINITE_S)

    def _wait_began(self, refused: TurnAgain, now: float) -> None:
        """Tell a wait: the first of an iteration, and each that is long."""
        until = min((until for until in self._untils.values() if until > now), default=now)
        if refused.iteration == self._told_wait and until - now < LONG_WAIT_S:
            return
        if note := note_of(replace(refused, until=until), self._run, self._project, self._mask, now):
            self._told_wait = refused.iteration
            self._tell(note)

    def _tell(self, note: Note) -> None:
        if self._ended:
            return  # nothing comes after the end, and it comes once
        self._ended = note.event == ENDED
        self._queue.append(note)
        if len(self._queue) > MOST_QUEUED:
            self._queue.pop(0)
            self._fail(range(len(self._targets)), "some were left out: too many at once")
        self._reap()
        if not self._children:
            self._start()

    def _start(self) -> None:
        import json

        events = [note.published() for note in self._queue]
        self._queue.clear()
        order = {"targets": self._targets, "events": events, "root": self._root}
        try:
            pid, told = _spawn(json.dumps(order, ensure_ascii=False).encode("utf-8", "surrogatepass"), self._environ)
            self._children[pid] = told
        except OSError as error:
            self._fail(range(len(self._targets)), f"its delivery could not be started: {error.strerror}")

    def _attend(self, seconds: float, patience_s: Callable[[], float]) -> None:
        """Wait so long for children to end, or less where somebody loses patience."""
        deadline = time.monotonic() + seconds
        self._reap()
        while self._children and (left := deadline - time.monotonic()) > 0:
            deadline = min(deadline, time.monotonic() + patience_s())
            poll = select.poll()
            for told in self._children.values():
                poll.register(told, 0)  # its end alone
            poll.poll(min(left, 0.05) * 1000)
            self._reap()

    def _reap(self) -> None:
        for pid, told in [*self._children.items()]:
            if _gone(pid):
                over(pid)
                del self._children[pid]
                self._hear(os.read(told, 1 << 16))
                os.close(told)

    def _hear(self, said: bytes) -> None:
        *lines, end = said.decode(errors="replace").split("\n")
        for place, _, why in (line.partition(" ") for line in lines):
            self._fail([int(place)], why)
        if end.encode() != TOLD_ALL:
            self._fail(range(len(self._targets)), "its delivery was cut off")

    def _fail(self, places: Iterable[int], why: str) -> None:
        for place in places:
            self._faults.setdefault(place, why)


def _spawn(order: bytes, environ: Mapping[str, str]) -> tuple[int, int]:
    """A child that has its order, and the pipe on which it tells."""
    argv = interpreter.module("ralphproof.observers.deliver")
    (read, give), (told, tell) = os.pipe(), os.pipe()
    try:
        os.set_blocking(give, False)
        if os.write(give, order) < len(order):
            raise OSError(0, "there is too much to tell")
        with Starting() as note:
            pid = os.posix_spawn(
                argv[0], argv, environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, read, 0),
                    (os.POSIX_SPAWN_DUP2, tell, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsid=True, setsigmask=(), setsigdef=(_signal.SIGTERM, _signal.SIGALRM, _signal.SIGCHLD),
            )  # fmt: skip
            note(pid)
    except OSError:
        os.close(told)
        raise
    finally:
        for end in (read, give, tell):
            os.close(end)
    return pid, told


def _gone(pid: int) -> bool:
    """Whether a child and all of its group that we adopted are gone. What outlives the child is ended."""
    try:
        while ended := os.waitpid(-pid, os.WNOHANG)[0]:
            if ended == pid:
                os.killpg(pid, _signal.SIGKILL)
    except OSError:  # no such child, or no such group
        return True
    return False
