"""`ralph watch`: runs and tasks on a board in the terminal, live, with keys to look closer and to steer."""

from __future__ import annotations

import os
import sys

from ralphproof.cli.out import let_go, put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.view import colour
from ralphproof.errors import RalphError, Refused
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.project import Project

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.views.board import Board

ABOUT = """runs and tasks on a board in the terminal, live, with keys to look closer and to steer.

The keys are in the last line; ? shows all of them. q and Ctrl-C leave, and every run goes on. Without a terminal, or
with TERM=dumb, what there is to tell is printed once. Exit codes: 0 you left; 130 a signal ended it; 2 refused."""
EXAMPLES = ("ralph watch", "ralph watch latest", "ralph watch --no-color --no-emoji", "ralph watch --json")
MISSING = "ralph watch needs Textual; install it: pip install 'ralphproof[tui]'"
HINT = "ralph attach follows one run"


def parser() -> Parser:
    made = Parser("watch", ABOUT, EXAMPLES)
    made.add_argument("run", nargs="?", metavar="RUN", help="the run to open at once: an id, its beginning, or latest")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.seen(args.project_dir, os.environ)
    if args.json:
        return _tell_programs(args, project)
    if not _at_terminal():
        return _tell_once(args, project)
    return _open(args, project)


def _at_terminal() -> bool:
    """Whether there is a terminal that a board can be drawn on: Textual draws on standard error."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    at_terminal = all(stream is not None and stream.isatty() for stream in streams)
    return at_terminal and os.environ.get("TERM", "dumb") not in ("dumb", "")


def _tell_programs(args: Namespace, project: Project) -> int:
    from ralphproof.views.board import Board

    board = Board(project)
    if args.run is None:
        put_json("runs", board.runs())
    else:
        put_json("run", board.run(board.find(args.run)))
    return 0


def _tell_once(args: Namespace, project: Project) -> int:
    """What the board would show first, as lines."""
    from ralphproof.cli.named_run import named_run
    from ralphproof.cli.status import show_all, show_one

    ledger = project.ledger()
    try:
        if args.run is None:
            show_all(ledger, project, for_programs=False)
        else:
            show_one(ledger, named_run(ledger, args.run, args, shown=True), project, for_programs=False)
    finally:
        ledger.close()
    if not args.quiet:
        print(HINT, file=sys.stderr)
    return 0


def _open(args: Namespace, project: Project) -> int:
    from ralphproof.views.board import Board

    try:
        from ralphproof.tui.terminal import Seat
        from ralphproof.tui.watch import Watch
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        raise Refused(MISSING) from error
    from ralphproof.cli.helm import Steersman
    from ralphproof.tui.ink import ASCII, UNICODE
    from ralphproof.tui.page import Outlook
    from ralphproof.views.overhear import Overhearing

    board = Board(project)
    opens = board.find(args.run) if args.run else ""
    unicode = (sys.stderr.encoding or "").lower().replace("-", "") == "utf8"
    signs = UNICODE if unicode and not args.no_emoji else ASCII
    coloured = colour(args.no_color, "auto", at_terminal=True)
    if not coloured:
        os.environ["NO_COLOR"] = "1"  # Textual reads it when it begins
    outlook = Outlook(board, Steersman(project), lambda run, hear: Overhearing(project, run, hear), signs)
    code = Seat(Watch(outlook, opens, coloured)).sit()
    _say_goodbye(args, board)
    return code


def _say_goodbye(args: Namespace, board: Board) -> None:
    """Whoever leaves is told what goes on without them. The terminal may be gone, or the ledger not to be read."""
    try:
        if not args.quiet and (line := _goes_on(board)):
            print(line, file=sys.stderr)
    except (RalphError, OSError):
        pass
    let_go()


def _goes_on(board: Board) -> str:
    runs = board.runs()["runs"]
    assert isinstance(runs, list)
    live = [str(run["run"]) for run in runs if isinstance(run, dict) and run["state"] in ("running", "paused")]
    on = f"run {live[0]} goes on" if len(live) == 1 else f"{len(live)} runs go on"
    return f"{on}; look again: ralph watch" if live else ""
