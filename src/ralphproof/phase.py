"""Where in an iteration a run stands."""

from __future__ import annotations

from ralphproof.agent import Turn
from ralphproof.iteration import Iteration
from ralphproof.stage import Choice, Job
from ralphproof.value import value
from ralphproof.verdict import Outcome, Verdict


@value
class Ready:
    """Between iterations."""


@value
class Picking:
    """The plan was read; the turn has not begun."""

    choice: Choice


@value
class Turning:
    """A turn began and its end is not recorded."""

    job: Job


@value
class Turned:
    """The agent is gone; its work is not saved yet."""

    job: Job
    reply: Turn


@value
class Checking:
    """The work is saved; the iteration's report grows."""

    facts: Iteration


@value
class Concluded:
    """Judged. `kept` where the SCM had its turn."""

    facts: Iteration
    verdict: Verdict
    kept: bool = False


@value
class Over:
    outcome: Outcome


Phase = Ready | Picking | Turning | Turned | Checking | Concluded | Over
