"""One run in figures: what is left of it when nobody wants the details."""

from __future__ import annotations

from ralphproof.value import value

COMPLETED, ABORTED, ERROR = "COMPLETED", "ABORTED", "ERROR"


@value
class Metrics:
    """The figures of one run. None is unknown, never zero.

    `micro_usd` is None where a part of the cost is not known; `at_least` is what is known of it. `tests_fixed` is how
    many tests fewer fail now than before the first iteration. `saved_micro_usd` is how much more the run would have
    cost with the last model of its ladder alone.
    """

    run: str
    began_s: float
    ended_s: float
    status: str
    reason: str = ""
    skill: str = ""
    task_type: str = ""
    agent: str = ""
    model: str = ""
    preset: str = ""
    iterations: int = 0
    seconds: float = 0.0
    micro_usd: int | None = None
    at_least_micro_usd: int = 0
    tokens: int = 0
    files: int = 0
    tests_fixed: int | None = None
    claimed: bool = False
    verified: bool = False
    saved_micro_usd: int | None = None
