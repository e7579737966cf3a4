"""The run that a verb is about: the one that the user named, or the latest."""

from __future__ import annotations

import sys

from ralphproof.ledgers.runs import LATEST
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.standing import row_of

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite


def named_run(ledger: Sqlite, name: str | None, args: Namespace, shown: bool = False) -> RunRow:
    """The run of this name. Whoever did not name one is told which it is, unless it is `shown` anyway, as in JSON."""
    row = row_of(ledger, name)
    if name in (None, LATEST) and not (shown or args.json or args.quiet):
        print(f"the latest run is {row.id}", file=sys.stderr)
    return row
