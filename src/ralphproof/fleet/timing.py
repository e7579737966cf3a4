"""Timeouts and intervals of a fleet."""

from __future__ import annotations

from ralphproof.base.value import value

HEARTBEAT_S = 30.0
PERMIT_RETRY_S, PERMIT_RETRY_MAX_S = 60.0, 3600.0  # until a waiting loop repeats its request for a permit
CLAIM_TIMEOUT_S, CLAIM_HOLD_S = 5.0, 10.0  # a claim waits this long for a slot; a claimed slot is reserved this long
MAX_CLAIMS = 8  # concurrent claims per worker
RETRY_S, RETRY_MAX_S = 1.0, 10.0  # until a claim or an event to the governor is retried
SPEND_REPORT_S = 5.0  # between two spend reports of a step to the governor
LOST_RETRY_MAX_S = 30.0
FAILED_RETRY_MAX_S = 300.0


@value
class FleetTiming:
    """Timeouts and intervals of a fleet, chosen by the submitter.

    `heartbeat_s` is how long a worker may be silent before its turns are given to another one; a worker that cannot
    reach the server for that long ends its agents itself. A cancelled turn has `cancel_s` to end gracefully, then it is
    killed; `kill_s` later its program is abandoned. `tries` is how many times in a row a step may be lost before the
    loop fails. `steps` is the number of steps in one workflow history, `events` the number of events in one history of
    the governor; `sweep_s` is how often the governor looks for loops that no longer exist.
    """

    heartbeat_s: float = HEARTBEAT_S
    cancel_s: float = 20.0
    kill_s: float = 10.0
    tries: int = 8
    steps: int = 200
    sweep_s: float = 300.0
    events: int = 2000

    @property
    def beat_s(self) -> float:
        """Seconds between two heartbeats."""
        return max(0.2, min(2.0, self.heartbeat_s / 4))

    @property
    def adopt_s(self) -> float:
        """How long a lost worker has to come back and continue its turn before another worker takes over."""
        return self.heartbeat_s


def permit_retry_s(attempts: int) -> float:
    """Seconds until a loop repeats its request. Backs off: thousands of loops may wait for one governor."""
    return min(PERMIT_RETRY_S * 2.0 ** min(attempts - 1, 16), PERMIT_RETRY_MAX_S)


def lost_retry_s(tries: int) -> float:
    """Seconds until a lost step is retried, by the number of losses in a row."""
    return min(2.0**tries / 4, LOST_RETRY_MAX_S)
