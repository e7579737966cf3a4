"""A plan that agents write in: what a turn may write there, and what the harness makes of it."""

from __future__ import annotations

from ralphproof.claim import Claim
from ralphproof.iteration import Iteration
from ralphproof.metric import Reviewed
from ralphproof.stage import Job
from ralphproof.value import Protocol, value
from ralphproof.verdict import Verdict
from ralphproof.workspace import Change

MEMORY = "stories"  # the note of a run that holds what it knows of its stories


@value
class Examined:
    """What a turn did to the plan. `illegal` has every rule that it broke: its writing is put back then.

    `claim` is what the plan says of the job now. `strays` are files that this stage may not touch.
    """

    illegal: tuple[str, ...] = ()
    claim: Claim | None = None
    strays: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def meddled(self) -> bool:
        """Whether something is not as the turn left it."""
        return bool(self.illegal or self.strays)


NOTHING = Examined()


class Notebook(Protocol):
    """The plan's own file. The harness's memory is the truth; whatever stands in the file is held against it.

    Every step may be taken again after a crash, and comes to the same.
    """

    @property
    def files(self) -> tuple[str, ...]:
        """What the loop itself writes in the project: it is kept with the work, whoever changed it before."""

    def begin(self, iteration: int, job: Job, window: int | None) -> None:
        """A turn on this job is about to begin: whoever looks from inside it can see what is asked of it.

        `window` is how many tokens the context of its agent holds, where that is known.
        """

    def examine(self, name: str, job: Job, change: Change) -> Examined:
        """Hold the file against the rules after the turn of this name. What is illegal is put back."""

    def settle(self, facts: Iteration, verdict: Verdict) -> tuple[str, ...]:
        """Make the plan say what was judged; what there is to tell of it."""

    def says(self, task: str) -> str:
        """What the plan says of a task now, in a word; empty where it says nothing."""

    def regain(self, busy: bool) -> tuple[str, ...]:
        """Nobody of ours was at work: what changed in the file since is the user's. What there is to tell of it.

        While work was being committed others were `busy`, and nothing is sure to be the user's.
        """

    def reviewed(self) -> tuple[Reviewed, ...]:
        """What became of each part of the plan so far, of what was judged; nothing where nothing is known of it."""

    def close(self) -> None:
        """The run is over, or rests: nobody is inside a turn any more."""


class Blank:
    """A plan that no agent writes in."""

    files: tuple[str, ...] = ()

    def begin(self, iteration: int, job: Job, window: int | None) -> None:
        """Nobody needs to know."""

    def examine(self, name: str, job: Job, change: Change) -> Examined:
        return NOTHING

    def settle(self, facts: Iteration, verdict: Verdict) -> tuple[str, ...]:
        return ()

    def says(self, task: str) -> str:
        return ""

    def regain(self, busy: bool) -> tuple[str, ...]:
        return ()

    def reviewed(self) -> tuple[Reviewed, ...]:
        return ()

    def close(self) -> None:
        """Nothing is open."""
