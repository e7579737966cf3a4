"""`ralph serve` that waits for nobody for long, and fails where a test wants it to.

While the file `FAULTS/moment` is there, the thread that looks for changes fails; while `FAULTS/run` is, every page of
a run does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ralphproof.cli import serve
from ralphproof.views import board
from ralphproof.web import asked, connection, events, pulse

if TYPE_CHECKING:
    from ralphproof.value import Json

FAULTS = Path(os.environ["FAULTS"])
WAIT_S = float(os.environ.get("WAIT_S", "0.5"))


class Faulty(board.Board):
    """Fails on demand."""

    def moment(self) -> board.Mark:
        self._fail("moment")
        return super().moment()

    def run(self, run: str, after: int = 0) -> dict[str, Json]:
        self._fail("run")
        return super().run(run, after)

    def _fail(self, name: str) -> None:
        if (FAULTS / name).exists():
            raise ZeroDivisionError(f"planted in {name}")


def impatient(clients: int, onlookers: int) -> connection.Endurance:
    return known(clients, onlookers, WAIT_S, WAIT_S)


if __name__ == "__main__":
    known = connection.Endurance
    connection.Endurance = impatient  # type: ignore[misc,assignment]
    board.Board = Faulty  # type: ignore[misc]
    events.QUIET_S, pulse.AGAIN_S, asked.BODY_S = 0.1, 0.1, WAIT_S
    sys.exit(serve.main(sys.argv[1:]))
