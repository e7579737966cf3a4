"""The run that the argument RUN of a command names."""

from __future__ import annotations

import sys

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.store.run_state import find_run
from ralphproof.store.runs import LATEST

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.store.runs import RunRow
    from ralphproof.store.sqlite_ledger import SqliteLedger


def find_named_run(ledger: SqliteLedger, name: str | None, args: Namespace, shown: bool = False) -> RunRow:
    """The run of this name, else the latest.

    The latest is named on standard error, unless the command shows the id itself.
    """
    row = find_run(ledger, name)
    if name in (None, LATEST) and not (shown or args.json or args.quiet):
        print(f"the latest run is {row.id}", file=sys.stderr)
    return row
