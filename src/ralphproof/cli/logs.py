"""`ralph logs`: what the agent, the checks and your own commands of a run printed, in the order in which they ran."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.cli.named_run import named_run
from ralphproof.cli.out import put_json
from ralphproof.cli.parser import Parser, positive
from ralphproof.display.clean import clean
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.views.gc_note import refuse_swept
from ralphproof.views.printed import Growing, Lines, event_text, whole
from ralphproof.views.project import Project
from ralphproof.views.run_logs import prompt_of
from ralphproof.views.standing import ORPHANED, RUNNING, Log, files_of, logs_of, standing, when

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.value import Json

ABOUT = "what the agent and the checks of a run printed, in the order in which they ran."
EXAMPLES = (
    "ralph logs",
    "ralph logs -f",
    "ralph logs 20261115-21 --iteration 2 --checks",
    "ralph logs --agent --stderr",
    "ralph logs --raw --agent --iteration 1 > agent.ndjson",
)
LOOK_S = 0.2
JSON_BYTES = 64 * 1024  # of each log's end are in --json; the paths are there for the rest


def parser() -> Parser:
    made = Parser("logs", ABOUT, EXAMPLES)
    add = made.add_argument
    add("run", nargs="?", metavar="RUN", help="an id or its beginning (default: the latest run)")
    add("-f", "--follow", action="store_true", help="go on until the run ends")
    add("--iteration", type=numbered, metavar="N", help="of this iteration alone; 0: the checks before the first")
    add("--agent", action="store_true", help="what the agent printed; with the next three: only what is named")
    add("--checks", action="store_true", help="what the checks printed")
    add("--prompt", action="store_true", help="what the agent was told")
    add("--stderr", action="store_true", help="what the agent printed on standard error")
    add("--raw", action="store_true", help="the bytes as they are: unsafe for a terminal where an agent wrote them")
    return made


def numbered(text: str) -> int:
    """An iteration's number, or 0."""
    return 0 if text == "0" else positive(text)


@value
class LogPart:
    """One file of a run. `turn_file` is empty for a prompt, which never grows."""

    log: Log
    what: str
    path: str
    turn_file: str

    @property
    def heading(self) -> str:
        return f"==> {when(self.log.iteration)}, {self.what}: {os.path.basename(self.path)} <=="


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    if args.follow and args.json:
        raise Refused("-f and --json do not go together; a program follows a run with: ralph run --json")
    project = Project.seen(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = named_run(ledger, args.run, args)
        refuse_swept(project, row.id)
        reader = _Reader(ledger, project, row, args)
        reader.must_have(args.iteration)
        if args.json:
            put_json("logs", {"run": row.id, "logs": [_as_json(part) for part in reader.parts()]})
        elif args.follow:
            reader.follow()
        else:
            reader.read()
    finally:
        ledger.close()
    return 0


class _Reader:
    def __init__(self, ledger: Sqlite, project: Project, row: RunRow, args: Namespace) -> None:
        self._ledger, self._project, self._row, self._args = ledger, project, row, args
        self._folder = files_of(project, row)
        self._events: bool | None = None

    def must_have(self, iteration: int | None) -> None:
        """Refuse an iteration that was never begun. One that is waited for may yet come."""
        if iteration is None or (self._args.follow and self._goes_on):
            return
        begun = {log.iteration for log in logs_of(self._project, self._row.id)}
        if iteration not in begun:
            begun.discard(0)
            there = f"{min(begun)} to {max(begun)}" if begun else "none"
            raise Refused(f"run {self._row.id} has no iteration {iteration}; there are: {there}")

    @property
    def _goes_on(self) -> bool:
        return standing(self._ledger, self._row, self._project) in (RUNNING, ORPHANED)

    def parts(self) -> list[LogPart]:
        """The files that were asked for, in the order in which they came to be."""
        wanted = self._args.iteration
        logs = (log for log in logs_of(self._project, self._row.id) if wanted in (None, log.iteration))
        return [part for log in logs for part in self._parts_of(log)]

    def _parts_of(self, log: Log) -> Iterator[LogPart]:
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
            path = os.path.join(self._folder, f"{prompt_of(log)}.txt")
            yield LogPart(log, f"prompt of the {asked}", path, "")
        if args.agent or everything or (args.checks and log.kind == "judge"):
            yield LogPart(log, asked, self._place(log, ".ndjson"), log.turn_file)
        if args.stderr:
            yield LogPart(log, f"standard error of the {asked}", self._place(log, ".stderr.log"), log.turn_file)

    def _place(self, log: Log, ending: str) -> str:
        """Where the output is: beside the turn file, or, where it was removed from there, its copy for people."""
        kept, copy = log.turn_file.removesuffix(".turn") + ending, os.path.join(self._folder, log.name + ending)
        return copy if os.path.isfile(copy) and not os.path.lexists(kept) else kept

    def read(self) -> None:
        """Everything that is there now."""
        for part in self.parts():
            self._head(part)
            self._show(part, whole(part.path), Lines(), last=True)

    def follow(self) -> None:
        """The same, and all that comes until the run is over. Of commands that run at once, one after the other."""
        finished: set[LogPart] = set()
        current: tuple[LogPart, Growing, Lines] | None = None
        while True:
            over = not self._goes_on
            parts = [part for part in self.parts() if part not in finished and (over or _began(part.log))]
            latest = parts[-1].log if parts else None
            parts.sort(key=lambda part: current is None or part != current[0])  # the one that is shown stays so
            for part in parts:
                if current is None or current[0] != part:
                    current = part, Growing(part.path, part.turn_file), Lines()
                    self._head(part)
                last = over or not part.turn_file or _ended(part.log, latest)
                self._show(part, current[1].rest() if last else current[1].more(), current[2], last)
                if not last:
                    break
                finished.add(part)
            sys.stdout.flush()
            if over:
                return
            time.sleep(LOOK_S)

    def _head(self, part: LogPart) -> None:
        if not self._args.raw:
            print(clean(part.heading))

    def _show(self, part: LogPart, pieces: Iterable[bytes], lines: Lines, last: bool) -> None:
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
            sys.stdout.write(clean(event_text(line) if events else line))

    @property
    def _speaks_events(self) -> bool:
        """Whether the agent's log holds events in our own form, as the scripted agent's does."""
        if self._events is None:
            began = next(iter(self._ledger.records(self._row.id)), None)
            facts = getattr(began, "facts", {})
            self._events = facts.get("agent") == "scripted"
        return self._events


def _began(log: Log) -> bool:
    """Whether a command has begun: until then a log of that name is an older one."""
    from ralphproof.keeper import journal

    return not os.path.exists(log.turn_file) or journal.read(log.turn_file).began


def _ended(log: Log, latest: Log | None) -> bool:
    """Whether a command has ended. Where its end could not be recorded, nobody is responsible for it any more.

    But of the latest one that may be so because its keeper died, and somebody will be.
    """
    from ralphproof.keeper import journal

    if journal.read(log.turn_file).result is not None:
        return True
    return log != latest and not journal.held(log.turn_file)


def _as_json(part: LogPart) -> dict[str, Json]:
    try:
        size = os.lstat(part.path).st_size
    except OSError:
        size = 0
    text = next(whole(part.path, max(0, size - JSON_BYTES)), b"")[:JSON_BYTES]
    return {
        "iteration": part.log.iteration, "what": part.what, "path": part.path, "bytes": size,
        "text": text.decode("utf-8", "replace"), "truncated": size > JSON_BYTES,
    }  # fmt: skip
