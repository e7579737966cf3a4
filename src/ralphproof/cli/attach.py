"""`ralph attach`: look on at a run that goes on elsewhere, as its own terminal would show it."""

from __future__ import annotations

import os
import sys

from ralphproof.cli.follow import Lookout, order_of
from ralphproof.cli.named_run import named_run
from ralphproof.cli.parser import Parser
from ralphproof.cli.view import observers, say
from ralphproof.display.clean import clean, flat
from ralphproof.display.people import People
from ralphproof.errors import RalphError
from ralphproof.ledgers.folder import RunFolder
from ralphproof.record import RunEnded
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.onward import lost
from ralphproof.views.project import Project
from ralphproof.views.stance import Stance
from ralphproof.views.trail import Trail

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.cli.order import Order
    from ralphproof.config.settings import Settings
    from ralphproof.ledger import Observer
    from ralphproof.ledgers.sqlite import Sqlite

ABOUT = """look on at a run that goes on elsewhere, as its own terminal would show it.

Ctrl-C leaves; the run goes on. As many as like may look on, and nothing that they do disturbs it. With --json every
record is a line, as with ralph run --json, after a first one that says where the run stands. Exit codes: that of the
run when it ends, or has ended; 0 you left; 2 it lost its harness."""
EXAMPLES = ("ralph attach", "ralph attach 20261115-21", "ralph attach --json")


def parser() -> Parser:
    made = Parser("attach", ABOUT, EXAMPLES)
    made.add_argument("run", nargs="?", metavar="RUN", help="an id or its beginning (default: the latest run)")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.seen(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        return Attached(args, project, ledger).look_on()
    finally:
        ledger.close()


class Attached:
    """One onlooker."""

    def __init__(self, args: Namespace, project: Project, ledger: Sqlite) -> None:
        self._args, self._project, self._ledger = args, project, ledger
        row = named_run(ledger, args.run, args, shown=True)
        self._trail = Trail(ledger, row)
        self._stance = Stance.of(ledger, row, project)
        self._order = order_of(project, row.id, row.directory)

    def look_on(self) -> int:
        """Until the run ends, or somebody leaves."""
        run = self._trail.row.id
        self._first()
        shown = self._shown()
        agents = self._order.agents if self._order else ()
        try:
            outcome = Lookout(self._trail, self._project, shown, agents, self._say).to_the_end()
        except KeyboardInterrupt:
            _leave(shown)
            self._say(f"run {run} goes on; look on again: ralph attach {run}")
            return 0
        _leave(shown)
        if outcome is None:
            raise lost(self._project, self._trail.row, self._trail.state, self._trail.standing(self._project))
        say(run, outcome, self._args, self._project.mask)
        return outcome.exit_code

    def _first(self) -> None:
        if self._args.json:
            from ralphproof.cli.out import put_json

            put_json("attached", self._stance.facts())
            sys.stdout.flush()
        if not self._stance.over:
            self._say(f"{self._stance.first_line()}; Ctrl-C leaves, the run goes on")

    def _shown(self) -> tuple[Observer, ...]:
        """The displays. Records from before are known to them; a program that reads is told of an end in any case."""
        trail, project = self._trail, self._project
        folder = RunFolder(trail.row.directory, trail.row.id, project.store, project.mask)
        made = observers(folder, self._args, _settings(self._order, trail.row.directory), project.mask)
        for one in made:
            if isinstance(one, People):
                one.catch_up(trail.earlier, self._stance.since or 0.0)
            elif isinstance(trail.last, RunEnded):
                one.saw(trail.last)
        return made

    def _say(self, line: str) -> None:
        if not self._args.quiet:
            print(flat(clean(self._project.mask(line))), file=sys.stderr, flush=True)


def _settings(order: Order | None, directory: str) -> Settings:
    """Those of the run, else those that are there now, else ours."""
    from ralphproof.config.load import load

    if order is not None:
        return order.loaded.settings
    try:
        return load(directory, os.environ).settings
    except RalphError:
        return load(os.devnull, {"RALPH_CONFIG_DIR": os.devnull}).settings


def _leave(shown: tuple[Observer, ...]) -> None:
    for one in shown:
        if isinstance(one, People):
            one.close()
