"""The program that takes one step of a loop: `python -m ralphproof.fleet.step_program WORKFOLDER`.

The protocol is in `fleet/step_process.py`. It is a separate process so that if it or the worker dies, the agent
continues under its keeper and the next step adopts it.
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
from ralphproof.process.interrupts import take_over_signals
from ralphproof.process.keeper_client import KeeperClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from ralphproof.base.value import Json
    from ralphproof.fleet.step import Step
    from ralphproof.fleet.step_process import StepRequest

PATIENCE_VARIABLE = "RALPH_FLEET_PATIENCE_SECONDS"


class WorkerPipe:
    """Connection to the worker by standard input and output. When the worker is gone, this process exits."""

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
        """Read further commands in a thread. At the end of input, exit at once and leave everything as it is."""
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
        """Pass commands to this handler from now on, starting with those that arrived earlier."""
        self.handler = handler
        while self._pending:
            handler(self._pending.pop(0))

    def send(self, report: dict[str, Json]) -> None:
        """Write a report and flush it."""
        data = step_process.encode_report(report)
        with self._writing:
            try:
                while data:
                    data = data[os.write(1, data) :]
            except BrokenPipeError:
                kill_self()


def kill_self() -> None:
    """Exit like `kill -9`, without cleaning up: the next step finds everything it needs."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> NoReturn:
    """Entry point; the argument is `WORKFOLDER`."""
    code = take_step(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # a thread may still block on its input or on a store


def take_step(argv: list[str]) -> int:
    """Take one step; the last output line is the final report. The exit code is 0 if it rested or was fenced."""
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
    keeper = KeeperClient()
    try:
        return _take_turn(step, keeper, worker)
    except LeaseLost:
        return _report_fenced(step)
    finally:
        keeper.close()


def _patience_s(environ: Mapping[str, str]) -> float:
    """How long an unreachable remote is retried."""
    text = environ.get(PATIENCE_VARIABLE, "")
    return float(text) if text.isascii() and text.isdigit() else PATIENCE_S


def _take_turn(step: Step, keeper: KeeperClient, worker: WorkerPipe) -> dict[str, Json]:
    take_over_signals(
        lambda times: step.handle_command(step_process.STOP_STEP if times == 1 else step_process.KILL_STEP)
    )
    worker.set_handler(step.handle_command)
    return step.run(keeper)


def _report_fenced(step: Step) -> dict[str, Json]:
    """Another worker has the loop: end our processes and save our unpublished work."""
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
    """The report of an error: one line, with secrets masked."""
    return step_process.failed_report(
        mask_text("; ".join(message.splitlines()), find_environment_secrets(os.environ)), exit_code
    )


def log_line(line: str) -> None:
    """Write a line to the worker's log."""
    from ralphproof.base.escaping import collapse_lines, sanitize

    print(collapse_lines(sanitize(line)), file=sys.stderr, flush=True)
