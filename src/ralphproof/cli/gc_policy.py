"""Which runs keep what they have, and which may go."""

from __future__ import annotations

import os

from ralphproof.cli.rewind import BEFORE
from ralphproof.cli.withheld import why_secret
from ralphproof.errors import Refused
from ralphproof.record import Grounded, RunEnded, ScmEnded
from ralphproof.state import State
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.views.account import shown_state
from ralphproof.views.changes import kind_of
from ralphproof.views.gc_note import noted
from ralphproof.views.kept import Kept, private_of, snapshots_of
from ralphproof.views.standing import ENDED, STOPPED, standing, turn_at_work
from ralphproof.workspaces.layout import git_folders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.record import Record
    from ralphproof.views.project import Project
    from ralphproof.workspace import Snapshot
    from ralphproof.workspaces.landable import Landable

DAY_S = 86_400.0
UNFINISHED = "unfinished"  # an earlier gc was cut off: it goes whatever the policy says now
GOES, UNLANDED, NEW, YOUNG, OPEN = "goes", "unlanded", "new", "young", "open"


@value
class Policy:
    """Never the `keep` newest, never one that ended less than `days` ago. `unlanded` lets go of work that is nowhere
    else too."""

    days: float
    keep: int
    unlanded: bool


@value
class Fate:
    """What is to become of a run: it goes, or `what` keeps it. `number` is its last saved iteration.

    `only` names the saves that hold what is nowhere else: iterations, and what a rewind saved.
    """

    row: RunRow
    kind: str
    what: str
    ended: str = ""
    number: int = 0
    only: tuple[str, ...] = ()

    @property
    def goes(self) -> bool:
        return self.what in (GOES, UNFINISHED)


class Fates:
    """The runs of a repository, judged one by one. To be closed: history is looked through with git's help."""

    def __init__(self, project: Project, ledger: Sqlite, policy: Policy, now: float) -> None:
        self._project, self._ledger, self._policy, self._now = project, ledger, policy, now
        self._landable: Landable | None = None
        self._works: set[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._landable is not None:
            self._landable.__exit__()

    def all(self) -> list[Fate]:
        """Every run that still has something, the newest first."""
        found = (self._fate(place, row) for place, row in enumerate(self._ledger.runs()))
        return [fate for fate in found if fate is not None]

    def _fate(self, place: int, row: RunRow) -> Fate | None:
        known = noted(self._project, row.id)
        if known and known.done:
            return None
        what = UNFINISHED if known else self._kept_by(place, row)
        if what and not known:
            return Fate(row, "", what)
        records, end = self._ledger.records(row.id), self._ledger.end_of(row.id)
        snapshots = {number: one for number, one in snapshots_of(records).items() if one.tree is not None}
        only: tuple[str, ...] = ()
        if not what:
            only = () if self._policy.unlanded else self._only_here(row, records, snapshots)
            what = UNLANDED if only else GOES
        told = end.outcome.status if isinstance(end, RunEnded) else ""
        return Fate(row, kind_of(records), what, told, max(snapshots, default=0), only)

    def _kept_by(self, place: int, row: RunRow) -> str:
        """What keeps a run, whatever it did; empty where nothing does. First match wins."""
        if self._open(row):
            return OPEN
        if place < self._policy.keep:
            return NEW
        ended_s = self._ledger.written_at(row.id) or row.began_at
        return YOUNG if self._now - ended_s < self._policy.days * DAY_S else ""

    def _open(self, row: RunRow) -> bool:
        """Whether anybody is at work on it, or may take it up: it lost its harness, or waits for an answer."""
        end = self._ledger.end_of(row.id)
        if end is None or standing(self._ledger, row, self._project) != ENDED:
            return True
        return shown_state(ENDED, State().after(end)) == STOPPED or turn_at_work(self._project, row.id) is not None

    def _only_here(self, row: RunRow, records: tuple[Record, ...], snapshots: dict[int, Snapshot]) -> tuple[str, ...]:
        """The saves of a run that hold what is nowhere else: its last, its start, and those before a rewind."""
        began = {one.snapshot.tree for one in records if isinstance(one, Grounded)}
        began |= {snapshots[0].tree} if 0 in snapshots else set()
        number = max(snapshots, default=0)
        last = snapshots.get(number)
        unchanged = last is None or last.tree in began
        if kind_of(records) != "git":
            known = began | ({last.tree} if last else set())
            saves = [name for name, tree in self._copies(row) if tree not in known]
            return (*(() if unchanged else (str(number),)), *saves)
        if git_folders(self._project.root) is None:
            return () if unchanged else (str(number),)
        landed = self._landed_trees(records, None if unchanged else last)
        found = [] if landed or unchanged else [str(number)]
        others = {"0": snapshots[0]} if 0 in snapshots and "0" not in found else {}
        others |= self._before_rewinds(row)
        return (*found, *(name for name, one in others.items() if not self._elsewhere(one, landed, row.directory)))

    def _landed_trees(self, records: tuple[Record, ...], last: Snapshot | None) -> list[str]:
        """The trees by which history has what the run came to; empty where it has not."""
        from ralphproof.workspaces.sweep import reachable

        landable = self._opened()
        commits = [one.committed.commit for one in records if isinstance(one, ScmEnded) and one.committed.commit]
        own = commits[-1] if commits and reachable(landable.users, commits[-1]) else ""
        trees = [landable.commits.header(own, b"tree ")[0]] if own else []
        return [*trees, *filter(None, [self._in_history(last) if last else ""])]

    def _before_rewinds(self, row: RunRow) -> dict[str, Snapshot]:
        from ralphproof.workspaces.sweep import saved_names

        names = saved_names(self._opened().users, row.id)
        return {name: self._opened().saved_as(names[name]) for name in sorted(names) if name.startswith(BEFORE)}

    def _copies(self, row: RunRow) -> Iterator[tuple[str, str | None]]:
        """The same of a run without git: names and trees."""
        from ralphproof.workspaces.sweep import copied_names

        names = [name for name in copied_names(private_of(self._project, row), row.id) if name.startswith(BEFORE)]
        if not names:
            return
        with Kept(self._project, row, "plain", own_folder=True) as kept:
            for name in names:
                saved = kept.workspace.saved(row.id, name)
                yield name, saved.tree if saved else None

    def _elsewhere(self, saved: Snapshot, landed: list[str], folder: str) -> bool:
        """Whether history, or the folder as it is now, has every content of a save."""
        from ralphproof.workspaces.sweep import reachable

        landable = self._opened()
        if saved.id is None or not landable.commits.has(saved.id):
            return True
        try:
            landing = landable.landing(saved, why_secret)
        except Refused:
            return False
        if not landing.withheld and landable.work_in(landing.tree) in self._history():
            return True
        if landing.parent and not reachable(landable.users, landing.parent):
            return False
        head = landable.users.line("rev-parse", "-q", "--verify", "HEAD^{tree}")
        return not landable.only_in(saved, landing, [*landed, *filter(None, [head])], folder)

    def _in_history(self, last: Snapshot) -> str:
        """The tree by which history has a save; empty where it has not."""
        from ralphproof.workspaces.sweep import reachable

        if last.id is None or not self._opened().commits.has(last.id):
            return str(last.tree)  # what it saved was pruned: there is nothing left to lose
        try:
            landing = self._opened().landing(last, why_secret)
        except Refused:
            return ""  # git cannot tell, so nobody knows
        if landing.empty and landing.parent:
            return landing.tree if reachable(self._opened().users, landing.parent) else ""
        return landing.tree if self._opened().work_in(landing.tree) in self._history() else ""

    def _history(self) -> set[str]:
        """The work in all commits since the first run began: no earlier one can have that of a run."""
        from ralphproof.workspaces.sweep import trees_since

        if self._works is None:
            first, landable = min(row.began_at for row in self._ledger.runs()), self._opened()
            self._works = {landable.work_in(tree) for tree in trees_since(landable.users, first - DAY_S)}
        return self._works

    def _opened(self) -> Landable:
        from ralphproof.workspaces.landable import Landable

        if self._landable is None:
            self._landable = Landable(self._project.root, os.environ, store=False)
        return self._landable
