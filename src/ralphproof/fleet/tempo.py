"""How long a fleet waits for what: few numbers, all from one."""

from __future__ import annotations

from ralphproof.value import value

HEARTBEAT_S = 30.0


@value
class Tempo:
    """`heartbeat_s` is how long a worker may be silent before its turns are taken from it.

    A worker that cannot reach the server for so long ends its agents itself. A cancelled turn has `cancel_s` to end
    as it likes, then it is killed; `kill_s` later its program is given up. `tries` is how often in a row a step may
    be lost before the loop is given up; `steps` how many steps one history holds; `sweep_s` how often the governor
    looks for loops that are gone.
    """

    heartbeat_s: float = HEARTBEAT_S
    cancel_s: float = 20.0
    kill_s: float = 10.0
    tries: int = 8
    steps: int = 200
    sweep_s: float = 300.0

    @property
    def beat_s(self) -> float:
        """Between two signs of life."""
        return max(0.2, min(2.0, self.heartbeat_s / 4))

    @property
    def adopt_s(self) -> float:
        """So long a worker that was lost may come back and go on with its turn; then another one gets it."""
        return self.heartbeat_s
