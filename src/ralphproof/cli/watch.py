"""`ralph watch`: the dashboard of runs and tasks in the terminal."""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.standard_streams import flush_streams
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json
from ralphproof.display.style import use_color
from ralphproof.runs.open_project import view_project
from ralphproof.store.project import Project

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.views.read_model import ReadModel

ABOUT = """runs and tasks on a board in the terminal, live, with keys to look closer and to steer.

The keys are in the last line; ? shows all of them. q and Ctrl-C leave, and every run goes on. Without a terminal, or
with TERM=dumb, what there is to tell is printed once. Exit codes: 0 you left; 130 a signal ended it; 2 refused."""
EXAMPLES = ("ralph watch", "ralph watch latest", "ralph watch --no-color --no-emoji", "ralph watch --json")
MISSING_TEXTUAL = "ralph watch needs Textual; install it: pip install 'ralphproof[tui]'"
ATTACH_HINT = "ralph attach follows one run"


def build_parser() -> Parser:
    parser = Parser("watch", ABOUT, EXAMPLES)
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help="the run to open at once: run id, unique prefix, or latest"
    )
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    if args.json:
        return _print_json(args, project)
    if not _has_terminal():
        return _print_once(args, project)
    return _open_dashboard(args, project)


def _has_terminal() -> bool:
    """Whether there is a terminal that a board can be drawn on: Textual draws on standard error."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    at_terminal = all(stream is not None and stream.isatty() for stream in streams)
    return at_terminal and os.environ.get("TERM", "dumb") not in ("dumb", "")


def _print_json(args: Namespace, project: Project) -> int:
    from ralphproof.views.read_model import ReadModel

    board = ReadModel(project)
    if args.run is None:
        print_json("runs", board.runs())
    else:
        print_json("run", board.run(board.find(args.run)))
    return 0


def _print_once(args: Namespace, project: Project) -> int:
    """What the board would show first, as lines."""
    from ralphproof.cli.status import print_all_runs, print_run
    from ralphproof.views.run_list import find_named_run

    ledger = project.ledger()
    try:
        if args.run is None:
            print_all_runs(ledger, project, for_programs=False)
        else:
            print_run(ledger, find_named_run(ledger, args.run, args, shown=True), project, for_programs=False)
    finally:
        ledger.close()
    if not args.quiet:
        print(ATTACH_HINT, file=sys.stderr)
    return 0


def _open_dashboard(args: Namespace, project: Project) -> int:
    from ralphproof.views.read_model import ReadModel

    try:
        from ralphproof.tui.app import Dashboard, TerminalSession
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        raise Refused(MISSING_TEXTUAL) from error
    from ralphproof.runs.control import LedgerRunControl
    from ralphproof.tui.page import DashboardContext
    from ralphproof.tui.style import ASCII, UNICODE
    from ralphproof.views.live_events import LiveEvents

    board = ReadModel(project)
    opens = board.find(args.run) if args.run else ""
    unicode = (sys.stderr.encoding or "").lower().replace("-", "") == "utf8"
    signs = UNICODE if unicode and not args.no_emoji else ASCII
    coloured = use_color(args.no_color, "auto", at_terminal=True)
    if not coloured:
        os.environ["NO_COLOR"] = "1"  # Textual reads it when it begins
    outlook = DashboardContext(
        board, LedgerRunControl(project), lambda run, hear: LiveEvents(project, run, hear), signs
    )
    code = TerminalSession(Dashboard(outlook, opens, coloured)).sit()
    _print_goodbye(args, board)
    return code


def _print_goodbye(args: Namespace, board: ReadModel) -> None:
    """Whoever leaves is told what goes on without them. The terminal may be gone, or the ledger not to be read."""
    try:
        if not args.quiet and (line := _live_runs_note(board)):
            print(line, file=sys.stderr)
    except (RalphError, OSError):
        pass
    flush_streams()


def _live_runs_note(board: ReadModel) -> str:
    runs = board.runs()["runs"]
    assert isinstance(runs, list)
    live = [str(run["run"]) for run in runs if isinstance(run, dict) and run["state"] in ("running", "paused")]
    on = f"run {live[0]} goes on" if len(live) == 1 else f"{len(live)} runs go on"
    return f"{on}; look again: ralph watch" if live else ""
