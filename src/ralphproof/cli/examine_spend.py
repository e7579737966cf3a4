"""What a machine has for money and messages: the day's spending, and packages that are not needed for a run."""

from __future__ import annotations

import os
import time

from ralphproof.budget import dollars
from ralphproof.cli.examine import NOTE, OK, PROBLEM, Item
from ralphproof.errors import RalphError, SettingsWrong
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EXTRAS = (("apprise", "notify", "notifications other than commands"), ("matplotlib", "report", "charts as files"),
          ("plotext", "report", "charts in the terminal"), ("opentelemetry", "otel", "spans of runs"),
          ("textual", "tui", "boards in the terminal"), ("uvicorn", "web", "pages in the browser"))  # fmt: skip


def spending(root: str, environ: Mapping[str, str]) -> Iterator[Item]:
    """What all runs of this UTC day cost; nothing where none did."""
    from ralphproof.config.load import load
    from ralphproof.ledgers.place import state_place
    from ralphproof.ledgers.spend import SpendBook

    folder = state_place(environ)
    if not os.path.exists(os.path.join(folder, "spend.db")):
        return
    book = SpendBook.open(folder)
    try:
        most = load(root, environ).settings.daily_limit_micro_usd
        day = book.day(time.time())
    except SettingsWrong:
        return  # told already
    except RalphError as error:
        yield Item("spending", PROBLEM, str(error))
        return
    finally:
        book.close()
    if day.doubt:
        yield Item("spending", PROBLEM, day.doubt)
    else:
        spent = f"{dollars(day.micro_usd)} of {dollars(most)} today (UTC), over all projects"
        yield Item("spending", OK if day.micro_usd < most else PROBLEM, spent)


def extras() -> Iterator[Item]:
    """Packages that add something."""
    from importlib.util import find_spec

    from ralphproof.observers import otel_address

    there = {package: find_spec(package) is not None for package, _, _ in EXTRAS}
    there["opentelemetry"] = otel_address.installed()  # other packages bring parts of it
    for package, extra, what in EXTRAS:
        if there[package]:
            yield Item(package, OK, f"installed, for {what}")
        else:
            yield Item(package, NOTE, f"not installed; {what} need it: pip install 'ralphproof[{extra}]'")
