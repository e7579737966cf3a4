"""The program that takes one step of a loop on this machine; `interpreter.module` starts it with WORKFOLDER.

`fleet/turn.py` has what is said to it and what it says. It is a process of its own so that whatever becomes of it, or
of the worker, the agent goes on under its keeper, and the next step finds it.
"""

from __future__ import annotations

import os
import signal
import sys

from ralphproof.cli.dispatch import hold_streams
from ralphproof.cli.interrupts import take_over
from ralphproof.errors import HarnessFailed, RalphError, Refused, from_system
from ralphproof.fleet import turn
from ralphproof.fleet.baton import Baton, Fenced
from ralphproof.fleet.folder import LoopFolder
from ralphproof.fleet.order import MOST_BYTES
from ralphproof.fleet.remote import PATIENCE_S, Mirror, Unreachable
from ralphproof.keeper.client import Keeper
from ralphproof.secret import mask, secrets_in
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from ralphproof.cli.fleet_work import StepWork
    from ralphproof.fleet.turn import StepAsked
    from ralphproof.value import Json

PATIENCE = "RALPH_FLEET_PATIENCE_SECONDS"


class Worker:
    """Whoever asked for the step: heard on standard input, told on standard output. Without them this process dies."""

    def __init__(self) -> None:
        from threading import Lock

        self._said: list[str] = []
        self._rest = b""
        self._writing = Lock()
        self.heard: Callable[[str], None] = self._said.append

    def first(self) -> bytes:
        """The first line."""
        while b"\n" not in self._rest and len(self._rest) <= MOST_BYTES:
            piece = os.read(0, 1 << 16)
            if not piece:
                break
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def listen(self) -> None:
        """Hear the rest from now on; when nobody is there any more, die at once, and leave all as it is."""
        from threading import Thread

        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                word = line.strip().decode("ascii", "replace")
                if word in turn.WORDS:
                    self.heard(word)
            piece = os.read(0, 1 << 12)
            if not piece:
                die()
            self._rest = (self._rest + piece)[-(1 << 16) :]

    def told_to(self, heard: Callable[[str], None]) -> None:
        """From now on words go here; those that came before do first."""
        self.heard = heard
        while self._said:
            heard(self._said.pop(0))

    def tell(self, report: dict[str, Json]) -> None:
        """Say it, now."""
        data = turn.line_of(report)
        with self._writing:
            try:
                while data:
                    data = data[os.write(1, data) :]
            except BrokenPipeError:
                die()


def die() -> None:
    """End as `kill -9` does: nothing is put in order, because whoever is next finds all that they need."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> NoReturn:
    """The program: `WORKFOLDER`."""
    code = take_step(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # a thread may still wait for its input, or for a store that does not answer


def take_step(argv: list[str]) -> int:
    """Take one step; the last line says what came of it. The exit code is 0 where it came to a rest, or was fenced."""
    hold_streams()
    worker = Worker()
    try:
        if len(argv) != 1 or argv[0].startswith("-"):
            raise Refused("say one folder for the worker's own files")
        asked = turn.asked_of(worker.first())
        worker.listen()
        report = _step(argv[0], asked, worker)
    except RalphError as error:
        report = _failed(str(error), error.exit_code)
    except Unreachable as error:
        report = _failed(str(error), HarnessFailed.exit_code)
    except OSError as error:
        report = _failed(str(from_system(error)), from_system(error).exit_code)
    except Exception as error:  # noqa: BLE001 (a fault of our own is a report too; where it lies is in the log)
        report = _own_fault(error)
    worker.tell(report)
    code = report.get("exitCode", 0)
    return code if isinstance(code, int) else 0


def _step(work: str, asked: StepAsked, worker: Worker) -> dict[str, Json]:
    folder = LoopFolder(work, asked.order)
    folder.lock()
    environ, patience_s = folder.environ(os.environ), _patience_s(os.environ)
    os.environ.clear()
    os.environ.update(environ)
    from ralphproof.cli.fleet_work import StepWork

    mirror = Mirror(folder.mirror, asked.order.repo, environ, patience_s)
    baton = Baton(mirror, asked.order.loop, asked.epoch, asked.standing, folder.place)
    step = StepWork(asked, folder, baton, worker.tell)
    keeper = Keeper()
    try:
        return _taken(step, keeper, worker)
    except Fenced:
        return _fenced(step)
    finally:
        keeper.close()


def _patience_s(environ: Mapping[str, str]) -> float:
    """How long a remote that does not answer is tried again."""
    given = environ.get(PATIENCE, "")
    return float(given) if given.isascii() and given.isdigit() else PATIENCE_S


def _taken(step: StepWork, keeper: Keeper, worker: Worker) -> dict[str, Json]:
    take_over(lambda times: step.heard(turn.HALT if times == 1 else turn.KILL))
    worker.told_to(step.heard)
    return step.take(keeper)


def _fenced(step: StepWork) -> dict[str, Json]:
    """Somebody else goes on: nothing of ours stays at work, and nothing that we have is lost."""
    try:
        for ref in step.give_up():
            say(f"fenced; what was done here is kept in {ref}")
    except (RalphError, Unreachable) as error:
        say(f"fenced; what was done here stays here until the next step of the loop on this machine: {error}")
    return turn.fenced()


def _own_fault(error: Exception) -> dict[str, Json]:
    import traceback

    traceback.print_exc(file=sys.stderr)
    return _failed(f"ralph failed: {type(error).__name__}: {error}", HarnessFailed.exit_code)


def _failed(message: str, exit_code: int) -> dict[str, Json]:
    """The report of a fault: one line, without secrets."""
    return turn.failed(mask("; ".join(message.splitlines()), secrets_in(os.environ)), exit_code)


def say(line: str) -> None:
    """A line for the worker's log."""
    from ralphproof.display.clean import clean, flat

    print(flat(clean(line)), file=sys.stderr, flush=True)
