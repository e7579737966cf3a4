"""`ralph watch`: the terminal dashboard of runs and tasks."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.standard_streams import flush_streams
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.cli.status import print_all_runs, print_run
from ralphproof.display.output import print_json
from ralphproof.display.terminal import use_color
from ralphproof.runs.control import RunControl
from ralphproof.runs.open_project import view_project
from ralphproof.store.project import Project
from ralphproof.views.events import LiveEvents
from ralphproof.views.read_model import ReadModel

ABOUT = """Open a terminal dashboard of runs and tasks, with keys for details and control.

The last line shows the main keys, ? shows all. q and Ctrl-C quit; every run continues. Without a terminal, or with
TERM=dumb, the state is printed once. Exit codes: 0 you quit; 130 a signal ended it; 2 refused."""
EXAMPLES = ("ralph watch", "ralph watch latest", "ralph watch --no-color --no-emoji", "ralph watch --json")
MISSING_TEXTUAL = "ralph watch needs Textual; install it: pip install 'ralphproof[tui]'"
ATTACH_HINT = "ralph attach follows one run"


def watch_parser() -> Parser:
    parser = Parser("watch", ABOUT, EXAMPLES)
    parser.add_run("run to open: run id, unique prefix, or latest")
    return parser


def watch_main(argv: list[str]) -> int:
    args = watch_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    if args.json:
        return _print_json(args, project)
    if not _has_terminal():
        return _print_once(args, project)
    return _open_dashboard(args, project)


def _has_terminal() -> bool:
    """Whether a dashboard can be drawn: Textual draws on standard error."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    at_terminal = all(stream is not None and stream.isatty() for stream in streams)
    return at_terminal and os.environ.get("TERM", "dumb") not in ("dumb", "")


def _print_json(args: Namespace, project: Project) -> int:
    model = ReadModel(project)
    if args.run is None:
        print_json("runs", model.runs())
    else:
        print_json("run", model.run(model.find(args.run)))
    return 0


def _print_once(args: Namespace, project: Project) -> int:
    """Print the first page of the dashboard as lines."""
    with project.ledger() as ledger:
        if args.run is None:
            print_all_runs(ledger, project, for_programs=False)
        else:
            print_run(ledger, find_named_run(ledger, args.run, args, shown=True), project, for_programs=False)
    if not args.quiet:
        print(ATTACH_HINT, file=sys.stderr)
    return 0


def _open_dashboard(args: Namespace, project: Project) -> int:
    try:
        from ralphproof.tui.app import Dashboard, TerminalSession
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        raise Refused(MISSING_TEXTUAL) from error
    from ralphproof.tui.page import DashboardContext
    from ralphproof.tui.style import ASCII, UNICODE

    model = ReadModel(project)
    run = model.find(args.run) if args.run else ""
    unicode = (sys.stderr.encoding or "").lower().replace("-", "") == "utf8"
    symbols = UNICODE if unicode and not args.no_emoji else ASCII
    color = use_color(args.no_color, "auto", at_terminal=True)
    if not color:
        os.environ["NO_COLOR"] = "1"  # Textual reads it at start
    context = DashboardContext(model, RunControl(project), lambda run, hear: LiveEvents(project, run, hear), symbols)
    code = TerminalSession(Dashboard(context, run, color)).run()
    _print_goodbye(args, model)
    return code


def _print_goodbye(args: Namespace, model: ReadModel) -> None:
    """Print which runs continue. The terminal may be closed, or the ledger unreadable."""
    try:
        if not args.quiet and (line := _live_runs_note(model)):
            print(line, file=sys.stderr)
    except (RalphError, OSError):
        pass
    flush_streams()


def _live_runs_note(model: ReadModel) -> str:
    runs = model.runs()["runs"]
    assert isinstance(runs, list)
    live = [str(run["id"]) for run in runs if isinstance(run, dict) and run["state"] in ("running", "paused")]
    summary = f"run {live[0]} continues" if len(live) == 1 else f"{len(live)} runs continue"
    return f"{summary}; open again: ralph watch" if live else ""
