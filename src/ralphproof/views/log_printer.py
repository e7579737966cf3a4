"""Logs of a run in the order of its commands, printed and followed."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display.phrases import describe_iteration
from ralphproof.store.project import Project
from ralphproof.store.run_state import ORPHANED, RUNNING, CommandLog, list_command_logs, public_run_folder, run_state
from ralphproof.views.logs import GrowingLog, LineSplitter, format_scripted_event, prompt_file_name, read_finished_log

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator

    from ralphproof.base.value import Json
    from ralphproof.store.runs import RunRow
    from ralphproof.store.sqlite_ledger import SqliteLedger


# `ralph logs`: what the agent, the checks and your own commands of a run printed, in the order in which they ran.


POLL_S = 0.2
MAX_JSON_BYTES = 64 * 1024  # of each log's end are in --json; the paths are there for the rest


@value
class LogPart:
    """One file of a run. `turn_file` is empty for a prompt, which never grows."""

    log: CommandLog
    what: str
    path: str
    turn_file: str

    @property
    def heading(self) -> str:
        return f"==> {describe_iteration(self.log.iteration)}, {self.what}: {os.path.basename(self.path)} <=="


class LogPrinter:
    def __init__(self, ledger: SqliteLedger, project: Project, row: RunRow, args: Namespace) -> None:
        self._ledger, self._project, self._row, self._args = ledger, project, row, args
        self._folder = public_run_folder(project, row)
        self._events: bool | None = None

    def must_have(self, iteration: int | None) -> None:
        """Refuse an iteration that was never begun. One that is waited for may yet come."""
        if iteration is None or (self._args.follow and self._goes_on):
            return
        begun = {log.iteration for log in list_command_logs(self._project, self._row.id)}
        if iteration not in begun:
            begun.discard(0)
            there = f"{min(begun)} to {max(begun)}" if begun else "none"
            raise Refused(f"run {self._row.id} has no iteration {iteration}; there are: {there}")

    @property
    def _goes_on(self) -> bool:
        return run_state(self._ledger, self._row, self._project) in (RUNNING, ORPHANED)

    def parts(self) -> list[LogPart]:
        """The files that were asked for, in the order in which they came to be."""
        wanted = self._args.iteration
        logs = (log for log in list_command_logs(self._project, self._row.id) if wanted in (None, log.iteration))
        return [part for log in logs for part in self._parts_of(log)]

    def _parts_of(self, log: CommandLog) -> Iterator[LogPart]:
        args = self._args
        everything = not (args.agent or args.checks or args.prompt or args.stderr)
        if log.kind in ("guardrail", "setup"):
            if args.checks or everything:
                what = "setup" if log.kind == "setup" else "check"
                yield LogPart(log, what, self._place(log, ".log"), log.turn_file)
            return
        if log.kind == "hook":
            if everything:
                yield LogPart(log, log.name.split("_")[2], self._place(log, ".log"), log.turn_file)
            return
        if log.kind == "task":
            if everything:
                yield LogPart(log, f"scm {log.name.split('_', 2)[2]}", self._place(log, ".log"), log.turn_file)
            return
        asked = {"scm": "commit message", "judge": "judge"}.get(log.kind, "agent")
        if args.prompt:
            path = os.path.join(self._folder, f"{prompt_file_name(log)}.txt")
            yield LogPart(log, f"prompt of the {asked}", path, "")
        if args.agent or everything or (args.checks and log.kind == "judge"):
            yield LogPart(log, asked, self._place(log, ".ndjson"), log.turn_file)
        if args.stderr:
            yield LogPart(log, f"standard error of the {asked}", self._place(log, ".stderr.log"), log.turn_file)

    def _place(self, log: CommandLog, ending: str) -> str:
        """Where the output is: beside the turn file, or, where it was removed from there, its copy for people."""
        kept, copy = log.turn_file.removesuffix(".turn") + ending, os.path.join(self._folder, log.name + ending)
        return copy if os.path.isfile(copy) and not os.path.lexists(kept) else kept

    def read(self) -> None:
        """Everything that is there now."""
        for part in self.parts():
            self._head(part)
            self._show(part, read_finished_log(part.path), LineSplitter(), last=True)

    def follow(self) -> None:
        """The same, and all that comes until the run is over. Of commands that run at once, one after the other."""
        finished: set[LogPart] = set()
        current: tuple[LogPart, GrowingLog, LineSplitter] | None = None
        while True:
            over = not self._goes_on
            parts = [part for part in self.parts() if part not in finished and (over or _has_begun(part.log))]
            latest = parts[-1].log if parts else None
            parts.sort(key=lambda part: current is None or part != current[0])  # the one that is shown stays so
            for part in parts:
                if current is None or current[0] != part:
                    current = part, GrowingLog(part.path, part.turn_file), LineSplitter()
                    self._head(part)
                last = over or not part.turn_file or _has_ended(part.log, latest)
                self._show(part, current[1].rest() if last else current[1].more(), current[2], last)
                if not last:
                    break
                finished.add(part)
            sys.stdout.flush()
            if over:
                return
            time.sleep(POLL_S)

    def _head(self, part: LogPart) -> None:
        if not self._args.raw:
            print(sanitize(part.heading))

    def _show(self, part: LogPart, pieces: Iterable[bytes], lines: LineSplitter, last: bool) -> None:
        if self._args.raw:
            sys.stdout.flush()
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            return
        events = part.path.endswith(".ndjson") and self._speaks_events
        for piece in pieces:
            self._print(lines.feed(piece), events)
        if last:
            self._print(lines.end(), events)
            print()

    def _print(self, lines: Iterable[str], events: bool) -> None:
        for line in lines:
            sys.stdout.write(sanitize(format_scripted_event(line) if events else line))

    @property
    def _speaks_events(self) -> bool:
        """Whether the agent's log holds events in our own form, as the scripted agent's does."""
        if self._events is None:
            began = next(iter(self._ledger.records(self._row.id)), None)
            facts = getattr(began, "facts", {})
            self._events = facts.get("agent") == "scripted"
        return self._events


def _has_begun(log: CommandLog) -> bool:
    """Whether a command has begun: until then a log of that name is an older one."""
    from ralphproof.process import turn_journal

    return not os.path.exists(log.turn_file) or turn_journal.read_turn_file(log.turn_file).began


def _has_ended(log: CommandLog, latest: CommandLog | None) -> bool:
    """Whether a command has ended. Where its end could not be recorded, nobody is responsible for it any more.

    But of the latest one that may be so because its keeper died, and somebody will be.
    """
    from ralphproof.process import turn_journal

    if turn_journal.read_turn_file(log.turn_file).result is not None:
        return True
    return log != latest and not turn_journal.is_turn_locked(log.turn_file)


def log_part_json(part: LogPart) -> dict[str, Json]:
    try:
        size = os.lstat(part.path).st_size
    except OSError:
        size = 0
    text = next(read_finished_log(part.path, max(0, size - MAX_JSON_BYTES)), b"")[:MAX_JSON_BYTES]
    return {
        "iteration": part.log.iteration, "what": part.what, "path": part.path, "bytes": size,
        "text": text.decode("utf-8", "replace"), "truncated": size > MAX_JSON_BYTES,
    }  # fmt: skip
