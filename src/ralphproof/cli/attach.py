"""`ralph attach`: follow a run that another process drives."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from ralphproof.base.errors import RalphError
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display.console import ConsoleObserver
from ralphproof.display.terminal import DisplayFlags
from ralphproof.engine.environment import Observer
from ralphproof.engine.records import RunEnded
from ralphproof.runs.displays import RunFollower, create_observers, load_run_spec, print_outcome
from ralphproof.runs.open_project import view_project
from ralphproof.runs.spec import RunSpec
from ralphproof.settings.declarations import Settings
from ralphproof.settings.loader import load_settings
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.views.events import NdjsonObserver
from ralphproof.views.run_status import load_run, lost_harness_error
from ralphproof.views.timeline import RecordTail

ABOUT = """Follow a run that another process drives, as its own terminal would show it.

Ctrl-C detaches; the run continues. Any number of terminals can attach without disturbing the run. With --json every
record is a line, as with ralph run --json, after a first line with the state of the run. Exit codes: that of the run
when it ends or has ended; 0 you detached; 2 the run lost its harness."""
EXAMPLES = ("ralph attach", "ralph attach 20261115-21", "ralph attach --json")


def attach_parser() -> Parser:
    parser = Parser("attach", ABOUT, EXAMPLES)
    parser.add_run()
    return parser


def attach_main(argv: list[str]) -> int:
    args = attach_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    with project.ledger() as ledger:
        return AttachedDisplay(args, project, ledger).follow()


class AttachedDisplay:
    """The display of a run in this terminal."""

    def __init__(self, args: Namespace, project: Project, ledger: SqliteLedger) -> None:
        self._args, self._project, self._ledger = args, project, ledger
        row = find_named_run(ledger, args.run, args, shown=True)
        self._trail = RecordTail(ledger, row)
        self._view = load_run(ledger, row, project)
        self._order = load_run_spec(project, row.id, row.directory)

    def follow(self) -> int:
        """Show the run until it ends or the user detaches; the exit code."""
        run = self._trail.row.id
        self._print_state()
        displays = self._create_displays()
        agents = self._order.agents if self._order else ()
        try:
            outcome = RunFollower(self._trail, self._project, displays, agents, self._print).follow()
        except KeyboardInterrupt:
            _close_consoles(displays)
            self._print(f"run {run} continues; attach again: ralph attach {run}")
            return 0
        _close_consoles(displays)
        if outcome is None:
            raise lost_harness_error(
                self._project, self._trail.row, self._trail.state, self._trail.standing(self._project)
            )
        print_outcome(run, outcome, DisplayFlags.of(self._args), self._project.mask)
        return outcome.exit_code

    def _print_state(self) -> None:
        assert self._view.detail is not None
        if not self._view.over:
            self._print(f"{self._view.detail.headline}; Ctrl-C detaches, the run continues")

    def _create_displays(self) -> tuple[Observer, ...]:
        """Displays that have seen the earlier records; a JSON display of an ended run gets the end record again."""
        trail, project = self._trail, self._project
        folder = RunFolder(trail.row.directory, trail.row.id, project.store, project.mask)
        displays = create_observers(
            folder, DisplayFlags.of(self._args), _display_settings(self._order, trail.row.directory), project.mask
        )
        for display in displays:
            if isinstance(display, ConsoleObserver):
                display.catch_up(trail.earlier, self._view.updated_s)
                continue
            if isinstance(display, NdjsonObserver):
                display.put_view("run.attached", self._view)
                display.catch_up(trail.earlier, self._view.updated_s)
            if isinstance(trail.last, RunEnded):
                display.on_record(trail.last)
        return displays

    def _print(self, line: str) -> None:
        if not self._args.quiet:
            print(collapse_lines(sanitize(self._project.mask(line))), file=sys.stderr, flush=True)


def _display_settings(order: RunSpec | None, directory: str) -> Settings:
    """The run's settings, else the current ones, else the defaults."""
    if order is not None:
        return order.loaded.settings
    try:
        return load_settings(directory, os.environ).settings
    except RalphError:
        return load_settings(os.devnull, {"RALPH_CONFIG_DIR": os.devnull}).settings


def _close_consoles(displays: tuple[Observer, ...]) -> None:
    for display in displays:
        if isinstance(display, ConsoleObserver):
            display.close()
