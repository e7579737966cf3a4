"""The program that takes one step of a loop: `python -m ralphproof.fleet.step_program WORKFOLDER`.

`fleet/step_process.py` has what is said to it and what it says. It is a process of its own so that whatever becomes of it, or
of the worker, the agent goes on under its keeper, and the next step finds it.
"""

from __future__ import annotations

import os
import signal
import sys

from ralphproof.base.errors import HarnessFailed, RalphError, Refused, wrap_os_error
from ralphproof.base.redaction import find_environment_secrets, mask_text
from ralphproof.base.standard_streams import reopen_closed_streams
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.fleet import step_process
from ralphproof.fleet.folders import LoopFolder
from ralphproof.fleet.lease import LeaseLost, LoopLease
from ralphproof.fleet.mirror import PATIENCE_S, Mirror, RemoteUnreachable
from ralphproof.fleet.submission import MAX_LOOP_SPEC_BYTES
from ralphproof.process.client import Keeper
from ralphproof.process.interrupts import take_over_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from ralphproof.base.value import Json
    from ralphproof.fleet.step import Step
    from ralphproof.fleet.step_process import StepRequest

PATIENCE_VARIABLE = "RALPH_FLEET_PATIENCE_SECONDS"


class WorkerPipe:
    """Whoever asked for the step: heard on standard input, told on standard output. Without them this process dies."""

    def __init__(self) -> None:
        from threading import Lock

        self._pending: list[str] = []
        self._rest = b""
        self._writing = Lock()
        self.handler: Callable[[str], None] = self._pending.append

    def read_first_line(self) -> bytes:
        """The first line."""
        while b"\n" not in self._rest and len(self._rest) <= MAX_LOOP_SPEC_BYTES:
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
                if word in step_process.STEP_COMMANDS:
                    self.handler(word)
            piece = os.read(0, 1 << 12)
            if not piece:
                kill_self()
            self._rest = (self._rest + piece)[-(1 << 16) :]

    def set_handler(self, handler: Callable[[str], None]) -> None:
        """From now on words go here; those that came before do first."""
        self.handler = handler
        while self._pending:
            handler(self._pending.pop(0))

    def send(self, report: dict[str, Json]) -> None:
        """Say it, now."""
        data = step_process.encode_report(report)
        with self._writing:
            try:
                while data:
                    data = data[os.write(1, data) :]
            except BrokenPipeError:
                kill_self()


def kill_self() -> None:
    """End as `kill -9` does: nothing is put in order, because whoever is next finds all that they need."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> NoReturn:
    """The program: `WORKFOLDER`."""
    code = take_step(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # a thread may still wait for its input, or for a store that does not answer


def take_step(argv: list[str]) -> int:
    """Take one step; the last line says what came of it. The exit code is 0 where it came to a rest, or was fenced."""
    reopen_closed_streams()
    worker = WorkerPipe()
    try:
        if len(argv) != 1 or argv[0].startswith("-"):
            raise Refused("say one folder for the worker's own files")
        request = step_process.parse_step_request(worker.read_first_line())
        worker.listen()
        report = _run_step(argv[0], request, worker)
    except RalphError as error:
        report = _failure_report(str(error), error.exit_code)
    except RemoteUnreachable as error:
        report = _failure_report(str(error), HarnessFailed.exit_code)
    except OSError as error:
        report = _failure_report(str(wrap_os_error(error)), wrap_os_error(error).exit_code)
    except Exception as error:  # noqa: BLE001 (a fault of our own is a report too; where it lies is in the log)
        report = _internal_error_report(error)
    worker.send(report)
    code = report.get("exitCode", 0)
    return code if isinstance(code, int) else 0


def _run_step(work: str, request: StepRequest, worker: WorkerPipe) -> dict[str, Json]:
    folder = LoopFolder(work, request.spec)
    folder.lock()
    environ, patience_s = folder.step_environment(os.environ), _patience_s(os.environ)
    os.environ.clear()
    os.environ.update(environ)
    from ralphproof.fleet.step import Step

    mirror = Mirror(folder.mirror, request.spec.repo, environ, patience_s)
    lease = LoopLease(mirror, request.spec.loop, request.epoch, request.worker, folder.work_folder_id)
    step = Step(request, folder, lease, worker.send)
    keeper = Keeper()
    try:
        return _take_turn(step, keeper, worker)
    except LeaseLost:
        return _report_fenced(step)
    finally:
        keeper.close()


def _patience_s(environ: Mapping[str, str]) -> float:
    """How long a remote that does not answer is tried again."""
    given = environ.get(PATIENCE_VARIABLE, "")
    return float(given) if given.isascii() and given.isdigit() else PATIENCE_S


def _take_turn(step: Step, keeper: Keeper, worker: WorkerPipe) -> dict[str, Json]:
    take_over_signals(
        lambda times: step.handle_command(step_process.STOP_STEP if times == 1 else step_process.KILL_STEP)
    )
    worker.set_handler(step.handle_command)
    return step.run(keeper)


def _report_fenced(step: Step) -> dict[str, Json]:
    """Somebody else goes on: nothing of ours stays at work, and nothing that we have is lost."""
    try:
        for ref in step.give_up():
            log_line(f"fenced; what was done here is kept in {ref}")
    except (RalphError, RemoteUnreachable) as error:
        log_line(f"fenced; what was done here stays here until the next step of the loop on this machine: {error}")
    return step_process.fenced_report()


def _internal_error_report(error: Exception) -> dict[str, Json]:
    import traceback

    traceback.print_exc(file=sys.stderr)
    return _failure_report(f"ralph failed: {type(error).__name__}: {error}", HarnessFailed.exit_code)


def _failure_report(message: str, exit_code: int) -> dict[str, Json]:
    """The report of a fault: one line, without secrets."""
    return step_process.failed_report(
        mask_text("; ".join(message.splitlines()), find_environment_secrets(os.environ)), exit_code
    )


def log_line(line: str) -> None:
    """A line for the worker's log."""
    from ralphproof.base.escaping import collapse_lines, sanitize

    print(collapse_lines(sanitize(line)), file=sys.stderr, flush=True)
