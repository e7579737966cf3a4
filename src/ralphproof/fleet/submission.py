"""What is submitted together: loops, the order among them, and what they may cost."""

from __future__ import annotations

from ralphproof.errors import Refused
from ralphproof.fleet.order import LoopOrder, packed_order
from ralphproof.fleet.permit import Allowance
from ralphproof.fleet.tempo import Tempo
from ralphproof.value import TYPE_CHECKING, pack, value

if TYPE_CHECKING:
    from typing import Any

MOST_BYTES = 1_500_000  # a history takes no larger word
TITLE_CHARS = 80


@value
class Submitted:
    """One loop of a submission. It begins when the loops named in `after` have completed; `wish` is all it may cost."""

    order: LoopOrder
    title: str = ""
    after: tuple[str, ...] = ()
    wish: int | None = None


@value
class FleetSubmission:
    """Loops that somebody submits together. `allowance` is theirs to give: nobody else says what may be spent."""

    id: str
    submitter: str
    loops: tuple[Submitted, ...]
    allowance: Allowance = Allowance()
    tempo: Tempo = Tempo()


def packed_submission(submission: FleetSubmission) -> dict[str, Any]:
    """As JSON for both engines; raises Refused where it is too large for one message."""
    import json

    packed = {
        "submission": submission.id,
        "submitter": submission.submitter,
        "allowance": pack(submission.allowance),
        "tempo": pack(submission.tempo),
        "loops": [
            {
                "order": packed_order(one.order),
                "after": list(one.after),
                "wish": one.wish,
                "memo": {
                    "title": one.title[:TITLE_CHARS],
                    "submitter": submission.submitter,
                    "artifacts": one.order.artifacts,
                },
            }
            for one in submission.loops
        ],
    }
    if (size := len(json.dumps(packed))) > MOST_BYTES:
        raise Refused(f"the submission has {size} bytes, and at most {MOST_BYTES} can be sent; submit it in parts")
    return packed
