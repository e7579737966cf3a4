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
from ralphproof.views import read_model
from ralphproof.web import event_stream, http, server

if TYPE_CHECKING:
    from ralphproof.base.value import Json

FAULTS = Path(os.environ["FAULTS"])
WAIT_S = float(os.environ.get("WAIT_S", "0.5"))


class Faulty(read_model.ReadModel):
    """Fails on demand."""

    def moment(self) -> read_model.ReadModelVersion:
        self._fail("moment")
        return super().moment()

    def run(self, run: str, after: int = 0) -> dict[str, Json]:
        self._fail("run")
        return super().run(run, after)

    def _fail(self, name: str) -> None:
        if (FAULTS / name).exists():
            raise ZeroDivisionError(f"planted in {name}")


def impatient(clients: int, onlookers: int) -> server.ConnectionLimits:
    return known(clients, onlookers, WAIT_S, WAIT_S)


if __name__ == "__main__":
    known = server.ConnectionLimits
    server.ConnectionLimits = impatient  # type: ignore[misc,assignment]
    serve.ReadModel = Faulty  # type: ignore[attr-defined]
    event_stream.KEEPALIVE_S, event_stream.RETRY_AFTER_FAULT_S, http.BODY_TIMEOUT_S = 0.1, 0.1, WAIT_S
    sys.exit(serve.serve_main(sys.argv[1:]))
