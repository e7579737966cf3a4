"""Landing: parcels merged, checked and moved onto a target, each step on record before the next one."""

from __future__ import annotations

from ralphproof.cli.landing_rooms import new_room
from ralphproof.errors import Refused
from ralphproof.landing import (
    MOST_OVERTAKEN,
    VERIFIED,
    Docket,
    FoundThere,
    Green,
    Landed,
    Moving,
    Overtaken,
    Queued,
    Red,
    RedTogether,
    TurnedAway,
    Unshown,
    setups,
    union,
    way_of,
)
from ralphproof.ledgers.landings import TargetLock
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.clean_place import remove
from ralphproof.workspaces.layout import is_id
from ralphproof.workspaces.merging import Merging
from ralphproof.workspaces.refs import ref_name
from ralphproof.workspaces.users_git import UsersGit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ralphproof.attested import Attested
    from ralphproof.check import Finding
    from ralphproof.landing import Examine, LandingEnd, Parcel, Target
    from ralphproof.ledgers.landings import LandingRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.views.project import Project
    from ralphproof.workspaces.merging import Pile

PARCEL = "parcel"  # the name of ours that keeps a parcel's commit from being pruned
SHORT = 12


class Lander:
    """Lands parcels on one target. One object belongs to the thread that opened its ledger, which must be writable.

    Nothing is moved that is not green by the checks of all that moves and of all that stands. A parcel that is turned
    away keeps its work. Whatever dies on the way, the next one that lands on this target goes on from the record.
    """

    def __init__(
        self, project: Project, ledger: Sqlite, target: Target, examine: Examine, told: Callable[[str], None], *,
        environ: Mapping[str, str], standing: Iterable[Attested] = (), setup: Iterable[str] = (), base: str = "",
        rebase: bool = False, unverified: bool = False, heed: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`standing` are checks that hold for the target already, `setup` what prepares a checkout for them.

        Those of all that landed on the target before stand too, but for what a commit `base` has: the user merged it.
        `heed` raises KeyboardInterrupt where all of it should end. With `unverified` work may land that no check shows.
        """
        self.target, self.standing, self._setup = target, tuple(standing), tuple(setup)
        self._landings, self._examine, self._told, self._heed = ledger.landings, examine, told, heed
        self._store, self._environ = project.store, environ
        self._users = UsersGit(project.root, environ)
        self._base, self._rebase, self._unverified = base, rebase, unverified
        self._known: dict[object, tuple[Finding, ...]] = {}  # what was asked of a tree already

    def land(self, parcels: Iterable[Parcel]) -> tuple[LandingEnd, ...]:
        """Land these, in this order; what became of each. What others left half done on the target is settled too."""
        wanted = _distinct(parcels)
        self._keep(wanted)
        self._announce(wanted)
        lock = TargetLock(self._store, self.target.name)
        lock.heed = self._heed
        self._known.clear()  # a check that is not always of one mind may be asked again
        with lock:
            rows = self.settle()
            there = self._there(rows)
            self._stand(self._unmerged(there.values()))
            new, ended = self._new(wanted, there)
            waiting = {row.parcel.key for row in rows if isinstance(row.step, Queued)}
            self._landings.queue(self.target.name, [one for one in new if one.key not in waiting])
            return (*ended, *self._decided(new)) if new else tuple(ended)

    def _decided(self, parcels: list[Parcel]) -> tuple[LandingEnd, ...]:
        """What became of each, one trial after the other."""
        docket, room = Docket.of(parcels), new_room(self._store)
        try:
            with Merging(self._users, self._environ, room, self._rebase) as merging:
                while docket.next_trial:
                    docket = self._tried(docket, merging)
        finally:
            remove(room)
        return docket.ended

    def _keep(self, parcels: list[Parcel]) -> None:
        """Let refs of ours name their commits, so that git prunes none of them."""
        for one in parcels:
            if not is_id(one.commit):
                raise Refused(f"{one.commit!r} is no commit; a parcel names one by its whole id")
        lines = [f"update {ref_name(one.run, PARCEL)} {one.commit}\n" for one in parcels if one.run]
        if lines:
            self._users.ask("update-ref", "--stdin", stdin="".join(lines).encode())

    def _announce(self, parcels: list[Parcel]) -> None:
        """Have new ones on record before anything is waited for."""
        known = {row.parcel.key for row in self._landings.rows(self.target.name)}
        self._landings.queue(self.target.name, [one for one in parcels if one.key not in known])

    def settle(self) -> tuple[LandingRow, ...]:
        """Bring what was cut off to its end, by what the target names now; all rows of it. For who has the lock.

        Where the target names what it did before the move, all checks had passed for that move: it is made now.
        """
        name = self.target.name
        moving = [(row.parcel, row.step) for row in self._landings.rows(name) if isinstance(row.step, Moving)]
        if moving:
            tip = self._tip()
            for old, new in dict.fromkeys((step.old, step.new) for _, step in moving):
                if tip == old and self._users.commit_of(new) and self.target.move(old, new):
                    self._told(f"{name} moved to {new[:SHORT]}: this was cut off")
            self._settle(moving)
        return self._landings.rows(name)

    def _settle(self, moving: list[tuple[Parcel, Moving]]) -> None:
        tip = self._tip()
        known = [(parcel, step, bool(self._users.commit_of(step.commit))) for parcel, step in moving]
        there = [(parcel, step) for parcel, step, found in known if found and self._users.holds(tip, step.commit)]
        done = [(parcel, Landed(parcel, step.commit, self.target.name, step.asked)) for parcel, step in there]
        keys = {parcel.key for parcel, _ in done}
        self._landings.note(self.target.name, [*done, *((one, Queued()) for one, _ in moving if one.key not in keys)])

    def _there(self, rows: Iterable[LandingRow]) -> dict[str, Landed]:
        """What landed and the target still has, by run: somebody may have moved it back, or begun it anew."""
        landed = [row.step for row in rows if isinstance(row.step, Landed)]
        known = self._history() if landed else set()
        return {one.parcel.run: one for one in landed if one.commit in known}

    def _unmerged(self, landed: Iterable[Landed]) -> list[Parcel]:
        """Of what landed here before that which the user has not merged yet."""
        every = tuple(landed)
        known = self._history(f"^{self._base}") if every and self._base else set()
        return [one.parcel for one in every if not self._base or one.commit in known]

    def _history(self, *without: str) -> set[str]:
        """All commits that the target has."""
        return set(self._users.ask("rev-list", self._tip(), *without, "--").out.decode("ascii", "replace").split())

    def _new(self, wanted: list[Parcel], landed: dict[str, Landed]) -> tuple[list[Parcel], list[LandingEnd]]:
        """What is to be tried, and what is decided without that: it landed before, or nothing could show it."""
        new: list[Parcel] = []
        ended: list[LandingEnd] = []
        for parcel in wanted:
            if parcel.run in landed:
                ended.append(landed[parcel.run])
            elif self._shown(parcel):
                new.append(parcel)
            else:
                end = TurnedAway(parcel, Unshown(parcel.proof))
                self._landings.note(self.target.name, [(parcel, end)])
                ended.append(end)
        return new, ended

    def _shown(self, parcel: Parcel) -> bool:
        """Whether some check is there for it, or nobody asks for one. What the user committed is their own."""
        fine = self._unverified or not parcel.run or (parcel.proof == VERIFIED and parcel.asked)
        return bool(fine or union((), self.standing))

    def _tip(self) -> str:
        tip = self.target.tip()
        if not tip:
            raise Refused(f"there is no branch {self.target.name}; nothing can land on it")
        return tip

    def _tried(self, docket: Docket, merging: Merging) -> Docket:
        """One trial: merged, checked, moved."""
        self._heed()
        pile = merging.pile(self._tip(), docket.next_trial)
        for parcel in pile.there:
            landed = Landed(parcel, parcel.commit, self.target.name)
            self._landings.note(self.target.name, [(parcel, landed)])
            docket = docket.after(FoundThere(landed))
        for clash in pile.clashes:
            if clash.alone:
                self._landings.note(self.target.name, [(clash.parcel, TurnedAway(clash.parcel, clash.conflict))])
            docket = docket.after(clash)
        return self._checked(docket, pile) if pile.laid else docket

    def _checked(self, docket: Docket, pile: Pile) -> Docket:
        parcels = tuple(one.parcel for one in pile.laid)
        checks, setup = union(parcels, self.standing), setups(parcels, self._setup)
        findings = self._asked(pile, checks, setup)
        self._heed()
        if all(finding.passed for finding in findings):
            return self._moved(docket, pile, len(checks))
        red = Red(findings, pile.base, pile.tree)
        if len(parcels) == 1:
            self._landings.note(self.target.name, [(parcels[0], TurnedAway(parcels[0], red))])
        else:
            self._told(f"{len(parcels)} together are red; a part of them is tried")
        return docket.after(RedTogether(red))

    def _asked(self, pile: Pile, checks: tuple[Attested, ...], setup: tuple[str, ...]) -> tuple[Finding, ...]:
        """What the checks answer; of a tree that was asked the same before, what they answered then."""
        key = (pile.tree, frozenset(map(way_of, checks)), setup)
        if checks and key not in self._known:
            titles = ", ".join(one.parcel.run or one.parcel.title for one in pile.laid)
            self._told(f"on {pile.base[:SHORT]}: {titles}")
            self._known[key] = self._examine(pile.top, checks, setup)
        return self._known.get(key, ())

    def _moved(self, docket: Docket, pile: Pile, asked: int) -> Docket:
        """Move the target, all at once; durable before and after."""
        name, laid = self.target.name, pile.laid
        self._landings.note(name, [(one.parcel, Moving(pile.base, pile.top, one.commit, asked)) for one in laid])
        try:
            moved = self.target.move(pile.base, pile.top)
        except Refused:
            self._landings.note(name, [(one.parcel, Queued()) for one in laid])
            raise
        if not moved:
            self._landings.note(name, [(one.parcel, Queued()) for one in laid])
            self._told(f"{name} was moved by somebody else meanwhile; all of it again, on top of that")
            after = docket.after(Overtaken())
            if after.overtaken >= MOST_OVERTAKEN:
                raise Refused(f"{name} moved {after.overtaken} times while checks ran; nothing is lost: ralph land")
            return after
        landed = tuple(Landed(one.parcel, one.commit, name, asked) for one in laid)
        self._landings.note(name, [(one.parcel, one) for one in landed])
        self._stand(one.parcel for one in laid)
        return docket.after(Green(landed))

    def _stand(self, parcels: Iterable[Parcel]) -> None:
        """What has landed has to hold from now on."""
        every = tuple(parcels)
        self.standing, self._setup = union(every, self.standing), setups(every, self._setup)


def _distinct(parcels: Iterable[Parcel]) -> list[Parcel]:
    return list({parcel.key: parcel for parcel in parcels}.values())
