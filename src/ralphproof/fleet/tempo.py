"""How long a fleet waits for what: few numbers, all from one."""

from __future__ import annotations

from ralphproof.value import value

HEARTBEAT_S = 30.0
ASK_S, ASK_MOST_S = 60.0, 3600.0  # until a loop that waits for a permit asks once more
CLAIM_S, PROMISE_S = 5.0, 10.0  # a worker without a slot is asked for so long; a slot is kept for so long
CLAIMS = 8  # that one worker answers at once
RETRY_S, RETRY_MOST_S = 1.0, 10.0  # until a claim, or a word to the governor, is tried once more
TELL_S = 5.0  # between two words to the governor about what a step has spent
LOST_MOST_S = 30.0


@value
class Tempo:
    """`heartbeat_s` is how long a worker may be silent before its turns are taken from it.

    A worker that cannot reach the server for so long ends its agents itself. A cancelled turn has `cancel_s` to end
    as it likes, then it is killed; `kill_s` later its program is given up. `tries` is how often in a row a step may
    be lost before the loop is given up; `steps` how many steps one history holds, and `events` how many words one of
    the governor's; `sweep_s` how often it looks for loops that are gone.
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
        """Between two signs of life."""
        return max(0.2, min(2.0, self.heartbeat_s / 4))

    @property
    def adopt_s(self) -> float:
        """So long a worker that was lost may come back and go on with its turn; then another one gets it."""
        return self.heartbeat_s


def ask_again_s(asked: int) -> float:
    """Until a loop asks for its permit once more, which it did so often: thousands may wait, all for one governor."""
    return min(ASK_S * 2.0 ** min(asked - 1, 16), ASK_MOST_S)


def lost_s(tries: int) -> float:
    """Until a step that was lost so often in a row is asked for again."""
    return min(2.0**tries / 4, LOST_MOST_S)
