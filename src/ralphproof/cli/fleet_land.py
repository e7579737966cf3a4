"""A completed loop's work onto a branch of the remote: merged by plumbing, checked as merged, moved in one step."""

from __future__ import annotations

import os
import random
import sys
import time

from ralphproof.cli.landing_drive import Lander
from ralphproof.cli.landing_examine import Examiner
from ralphproof.cli.landing_parcel import parcel_of
from ralphproof.cli.landing_told import reason
from ralphproof.errors import HarnessFailed, Refused
from ralphproof.landing import Landed
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.targets import RemoteBranch
from ralphproof.workspaces.users_git import UsersGit

if TYPE_CHECKING:
    from ralphproof.cli.signals import Present
    from ralphproof.fleet.order import LoopOrder
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.value import Json
    from ralphproof.views.project import Project

TRIES, WAIT_S = 12, 20.0  # others may land all the time; each try is on top of what they landed


@value
class FleetLanding:
    """What became of a loop's work: the commit that brought it to its target, or why there is none."""

    commit: str = ""
    why: str = ""

    @property
    def published(self) -> dict[str, Json]:
        return {"commit": self.commit, "why": self.why}


def land_on_remote(order: LoopOrder, project: Project, present: Present) -> FleetLanding:
    """Land the loop's work on its target. Asked twice, it lands once: what the target has already is not merged again.

    Raises KeyboardInterrupt where somebody wants it to end, and HarnessFailed where the target could not be had.
    """
    ledger = project.ledger(read_only=False)
    try:
        row = ledger.row(order.loop)
        if row is None:
            raise HarnessFailed(f"loop {order.loop} is not on record here")
        return _landed(order, project, ledger, present)
    finally:
        ledger.close()


def _landed(order: LoopOrder, project: Project, ledger: Sqlite, present: Present) -> FleetLanding:
    row = ledger.row(order.loop)
    assert row is not None
    users = UsersGit(project.root, os.environ)
    parcel = parcel_of(project, ledger, row, os.environ)
    target = RemoteBranch(users, order.repo, order.target)
    _made(target, order, users)
    with Examiner(project, os.environ, present, _say, sandbox=parcel.sandbox or None) as examiner:
        for left in range(TRIES - 1, -1, -1):
            try:
                lander = Lander(project, ledger, target, examiner, _say, environ=os.environ, heed=examiner.heed)
                (end,) = lander.land((parcel,))
                return FleetLanding(end.commit) if isinstance(end, Landed) else FleetLanding(why=reason(end.why))
            except Refused as error:
                if not left:
                    raise HarnessFailed(f"{order.target} could not be moved: {error}") from error
                _say(str(error))
                examiner.heed()
                time.sleep(random.uniform(0.1, 1.0) * WAIT_S / (left + 1))  # noqa: S311 (so that two do not meet again)
    raise AssertionError("it landed, or it was told why not")


def _made(target: RemoteBranch, order: LoopOrder, users: UsersGit) -> None:
    """Have the target on the remote: one that nobody made begins where the loop does."""
    if target.tip():
        return
    base = RemoteBranch(users, order.repo, order.base).tip() or users.commit_of(order.base)
    if not base:
        raise HarnessFailed(f"there is no branch {order.target} on the remote, and no {order.base} to make it of")
    target.move("", base)


def _say(line: str) -> None:
    print(f"landing: {line}", file=sys.stderr)
