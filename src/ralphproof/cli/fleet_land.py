"""A completed loop's work onto a branch of the remote: merged by plumbing, checked as merged, moved in one step."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time

from ralphproof.cli.landing_drive import Lander
from ralphproof.cli.landing_examine import Examiner
from ralphproof.cli.landing_parcel import parcel_of
from ralphproof.cli.landing_told import reason
from ralphproof.errors import HarnessFailed, Refused
from ralphproof.landing import Landed
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.gitcall import NOTHING_RUNS, Reply, call
from ralphproof.workspaces.targets import REACHED, RemoteBranch
from ralphproof.workspaces.users_git import TIMEOUT_S, UsersGit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.cli.signals import Present
    from ralphproof.fleet.order import LoopOrder
    from ralphproof.fleet.remote import Mirror
    from ralphproof.ledgers.runs import RunRow
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


class Apart(UsersGit):
    """The loop's clone. Its remote is spoken to by the worker's settings alone: those of the clone are an agent's."""

    def __init__(self, root: str, environ: Mapping[str, str], mirror: Mirror, private: str) -> None:
        super().__init__(root, environ)
        self._bare, self._objects = private, os.path.join(self.folders.common, "objects")
        self._reaching = mirror.env | {"GIT_OBJECT_DIRECTORY": self._objects}
        self._apart("init", "-q", "--bare")
        if have := self.commit_of("HEAD"):
            self._apart("update-ref", "refs/have", have)  # so that not all of it is fetched

    def ask(
        self, *args: str, stdin: bytes = b"", good: tuple[int, ...] = (0,), env: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Reply:  # fmt: skip
        if args[: len(REACHED)] != REACHED:
            return super().ask(*args, stdin=stdin, good=good, env=env, timeout_s=timeout_s)
        reply = self._apart(*args, timeout_s=timeout_s)
        if reply.code not in good:
            raise Refused(f"git {args[len(REACHED)]}: {reply.said or reply.code}")
        return reply

    def _apart(self, *args: str, timeout_s: float = TIMEOUT_S) -> Reply:
        return call([self.git, "--git-dir", self._bare, *NOTHING_RUNS, *args], self._reaching, timeout_s=timeout_s)


def land_on_remote(order: LoopOrder, project: Project, mirror: Mirror, present: Present) -> FleetLanding:
    """Land the loop's work on its target. Asked twice, it lands once: what the target has already is not merged again.

    Raises KeyboardInterrupt where somebody wants it to end, and HarnessFailed where the target could not be had.
    """
    ledger = project.ledger(read_only=False)
    try:
        row = ledger.row(order.loop)
        if row is None:
            raise HarnessFailed(f"loop {order.loop} is not on record here")
        with tempfile.TemporaryDirectory(prefix="ralph-land-") as private:
            users = Apart(project.root, os.environ, mirror, os.path.join(private, "git"))
            return _landed(order, project, ledger, row, users, present)
    finally:
        ledger.close()


def _landed(
    order: LoopOrder, project: Project, ledger: Sqlite, row: RunRow, users: UsersGit, present: Present
) -> FleetLanding:
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
