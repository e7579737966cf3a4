"""The merge queue: landing items merged, checked and moved onto a target branch."""

from __future__ import annotations

import os
import threading

from ralphproof.base.errors import Refused, wrap_os_error
from ralphproof.base.git_layout import git_folders, is_object_id
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.outcome import Completed
from ralphproof.engine.records import RunBegan, RunEnded
from ralphproof.landing.batch import (
    MAX_TARGET_MOVES,
    AlreadyLanded,
    BatchFailed,
    BatchPassed,
    BatchPlan,
    TargetMoved,
    check_identity,
    combined_checks,
    combined_setup,
)
from ralphproof.landing.targets import current_branch, landing_target
from ralphproof.landing.tree_merge import TreeMerger
from ralphproof.process.signals import RunClock
from ralphproof.process.tree import is_alive, start_time
from ralphproof.proof.rerun import DisposableCheckout
from ralphproof.proof.schema import get_object, parse_checks, parse_setup
from ralphproof.proof.verdict import verification_remarks
from ralphproof.runs.saved_work import load_saved_work
from ralphproof.store.landings import (
    FOLDER,
    VERIFIED,
    Landed,
    LandingItem,
    LandingMoving,
    LandingQueued,
    LandingRejected,
    MergedChecksFailed,
    NotVerified,
    TargetLock,
)
from ralphproof.views.snapshots import snapshots_by_iteration
from ralphproof.workspace.checkouts import remove_tree
from ralphproof.workspace.git_command import UserGit
from ralphproof.workspace.git_objects import run_ref_name
from ralphproof.workspace.secret_files import secret_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from ralphproof.base.value import Json
    from ralphproof.engine.check import Finding
    from ralphproof.engine.records import Record
    from ralphproof.landing.batch import Examine, LandingTarget
    from ralphproof.landing.tree_merge import MergeStack
    from ralphproof.process.signals import SignalRouter
    from ralphproof.proof.rerun import StopRequests
    from ralphproof.runs.saved_work import SavedWork
    from ralphproof.store.landings import AttestedCheck, LandingResult, LandingRow
    from ralphproof.store.project import Project
    from ralphproof.store.runs import RunRow
    from ralphproof.store.sqlite_ledger import SqliteLedger


# Folders in the store for a landing's throw-away files. Their names tell whose they are, so the dead leave none.


SCRATCH_FOLDER = "rooms"


def new_scratch_folder(store: str) -> str:
    """A folder of this process alone; whoever has it removes it. Those of processes that died are gone then."""
    place, pid = os.path.join(store, FOLDER, SCRATCH_FOLDER), os.getpid()
    _remove_abandoned(place)
    room = os.path.join(place, f"{pid}-{start_time(pid)}-{os.urandom(4).hex()}")
    try:
        os.makedirs(room, mode=0o700)
    except OSError as error:
        raise wrap_os_error(error) from error
    return room


def _remove_abandoned(place: str) -> None:
    for name in os.listdir(place) if os.path.isdir(place) else ():
        pid, _, rest = name.partition("-")
        start = rest.partition("-")[0]
        if pid.isdigit() and start.isdigit() and not is_alive(int(pid), int(start)):
            remove_tree(os.path.join(place, name))


# Landing: parcels merged, checked and moved onto a target, each step on record before the next one.


ITEM_REF = "parcel"  # the name of ours that keeps a parcel's commit from being pruned
SHORT_HASH_CHARS = 12


class Lander:
    """Lands parcels on one target. One object belongs to the thread that opened its ledger, which must be writable.

    Nothing is moved that is not green by the checks of all that moves and of all that stands. A parcel that is turned
    away keeps its work. Whatever dies on the way, the next one that lands on this target goes on from the record.
    """

    def __init__(
        self, project: Project, ledger: SqliteLedger, target: LandingTarget, examine: Examine,
        told: Callable[[str], None], *,
        environ: Mapping[str, str], standing: Iterable[AttestedCheck] = (), setup: Iterable[str] = (), base: str = "",
        rebase: bool = False, unverified: bool = False, heed: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`standing` are checks that hold for the target already, `setup` what prepares a checkout for them.

        Those of all that landed on the target before stand too, but for what a commit `base` has: the user merged it.
        `heed` raises KeyboardInterrupt where all of it should end. With `unverified` work may land that no check shows.
        """
        self.target, self.standing, self._setup = target, tuple(standing), tuple(setup)
        self._landings, self._examine, self._told, self._heed = ledger.landings, examine, told, heed
        self._store, self._environ = project.store, environ
        self._users = UserGit(project.root, environ)
        self._base, self._rebase, self._unverified = base, rebase, unverified
        self._known: dict[object, tuple[Finding, ...]] = {}  # what was asked of a tree already

    def land(self, parcels: Iterable[LandingItem]) -> tuple[LandingResult, ...]:
        """Land these, in this order; what became of each. What others left half done on the target is settled too."""
        wanted = _distinct_items(parcels)
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
            waiting = {row.item.key for row in rows if isinstance(row.step, LandingQueued)}
            self._landings.queue(self.target.name, [one for one in new if one.key not in waiting])
            return (*ended, *self._decided(new)) if new else tuple(ended)

    def _decided(self, parcels: list[LandingItem]) -> tuple[LandingResult, ...]:
        """What became of each, one trial after the other."""
        docket, room = BatchPlan.of(parcels), new_scratch_folder(self._store)
        try:
            with TreeMerger(self._users, self._environ, room, self._rebase) as merging:
                while docket.next_trial:
                    docket = self._tried(docket, merging)
        finally:
            remove_tree(room)
        return docket.ended

    def _keep(self, parcels: list[LandingItem]) -> None:
        """Let refs of ours name their commits, so that git prunes none of them."""
        for one in parcels:
            if not is_object_id(one.commit):
                raise Refused(f"{one.commit!r} is no commit; a parcel names one by its whole id")
        lines = [f"update {run_ref_name(one.run, ITEM_REF)} {one.commit}\n" for one in parcels if one.run]
        if lines:
            self._users.run("update-ref", "--stdin", stdin="".join(lines).encode())

    def _announce(self, parcels: list[LandingItem]) -> None:
        """Have new ones on record before anything is waited for."""
        known = {row.item.key for row in self._landings.rows(self.target.name)}
        self._landings.queue(self.target.name, [one for one in parcels if one.key not in known])

    def settle(self) -> tuple[LandingRow, ...]:
        """Bring what was cut off to its end, by what the target names now; all rows of it. For who has the lock.

        Where the target names what it did before the move, all checks had passed for that move: it is made now.
        """
        name = self.target.name
        moving = [(row.item, row.step) for row in self._landings.rows(name) if isinstance(row.step, LandingMoving)]
        if moving:
            tip = self._tip()
            for old, new in dict.fromkeys((step.old, step.new) for _, step in moving):
                if tip == old and self._users.resolve_commit(new) and self.target.move(old, new):
                    self._told(f"{name} moved to {new[:SHORT_HASH_CHARS]}: this was cut off")
            self._settle(moving)
        return self._landings.rows(name)

    def _settle(self, moving: list[tuple[LandingItem, LandingMoving]]) -> None:
        tip = self._tip()
        known = [(parcel, step, bool(self._users.resolve_commit(step.commit))) for parcel, step in moving]
        there = [(parcel, step) for parcel, step, found in known if found and self._users.contains(tip, step.commit)]
        done = [(parcel, Landed(parcel, step.commit, self.target.name, step.asked)) for parcel, step in there]
        keys = {parcel.key for parcel, _ in done}
        self._landings.note(
            self.target.name, [*done, *((one, LandingQueued()) for one, _ in moving if one.key not in keys)]
        )

    def _there(self, rows: Iterable[LandingRow]) -> dict[str, Landed]:
        """What landed and the target still has, by run: somebody may have moved it back, or begun it anew."""
        landed = [row.step for row in rows if isinstance(row.step, Landed)]
        known = self._history() if landed else set()
        return {one.item.run: one for one in landed if one.commit in known}

    def _unmerged(self, landed: Iterable[Landed]) -> list[LandingItem]:
        """Of what landed here before that which the user has not merged yet."""
        every = tuple(landed)
        known = self._history(f"^{self._base}") if every and self._base else set()
        return [one.item for one in every if not self._base or one.commit in known]

    def _history(self, *without: str) -> set[str]:
        """All commits that the target has."""
        return set(self._users.run("rev-list", self._tip(), *without, "--").out.decode("ascii", "replace").split())

    def _new(
        self, wanted: list[LandingItem], landed: dict[str, Landed]
    ) -> tuple[list[LandingItem], list[LandingResult]]:
        """What is to be tried, and what is decided without that: it landed before, or nothing could show it."""
        new: list[LandingItem] = []
        ended: list[LandingResult] = []
        for parcel in wanted:
            if parcel.run in landed:
                ended.append(landed[parcel.run])
            elif self._shown(parcel):
                new.append(parcel)
            else:
                end = LandingRejected(parcel, NotVerified(parcel.proof))
                self._landings.note(self.target.name, [(parcel, end)])
                ended.append(end)
        return new, ended

    def _shown(self, parcel: LandingItem) -> bool:
        """Whether some check is there for it, or nobody asks for one. What the user committed is their own."""
        fine = self._unverified or not parcel.run or (parcel.proof == VERIFIED and parcel.asked)
        return bool(fine or combined_checks((), self.standing))

    def _tip(self) -> str:
        tip = self.target.tip()
        if not tip:
            raise Refused(f"there is no branch {self.target.name}; nothing can land on it")
        return tip

    def _tried(self, docket: BatchPlan, merging: TreeMerger) -> BatchPlan:
        """One trial: merged, checked, moved."""
        self._heed()
        pile = merging.pile(self._tip(), docket.next_trial)
        for parcel in pile.there:
            landed = Landed(parcel, parcel.commit, self.target.name)
            self._landings.note(self.target.name, [(parcel, landed)])
            docket = docket.after(AlreadyLanded(landed))
        for clash in pile.clashes:
            if clash.alone:
                self._landings.note(self.target.name, [(clash.item, LandingRejected(clash.item, clash.conflict))])
            docket = docket.after(clash)
        return self._checked(docket, pile) if pile.laid else docket

    def _checked(self, docket: BatchPlan, pile: MergeStack) -> BatchPlan:
        parcels = tuple(one.item for one in pile.laid)
        checks, setup = combined_checks(parcels, self.standing), combined_setup(parcels, self._setup)
        findings = self._asked(pile, checks, setup)
        self._heed()
        if all(finding.passed for finding in findings):
            return self._moved(docket, pile, len(checks))
        red = MergedChecksFailed(findings, pile.base, pile.tree)
        if len(parcels) == 1:
            self._landings.note(self.target.name, [(parcels[0], LandingRejected(parcels[0], red))])
        else:
            self._told(f"{len(parcels)} together are red; a part of them is tried")
        return docket.after(BatchFailed(red))

    def _asked(
        self, pile: MergeStack, checks: tuple[AttestedCheck, ...], setup: tuple[str, ...]
    ) -> tuple[Finding, ...]:
        """What the checks answer; of a tree that was asked the same before, what they answered then."""
        key = (pile.tree, frozenset(map(check_identity, checks)), setup)
        if checks and key not in self._known:
            titles = ", ".join(one.item.run or one.item.title for one in pile.laid)
            self._told(f"on {pile.base[:SHORT_HASH_CHARS]}: {titles}")
            self._known[key] = self._examine(pile.top, checks, setup)
        return self._known.get(key, ())

    def _moved(self, docket: BatchPlan, pile: MergeStack, asked: int) -> BatchPlan:
        """Move the target, all at once; durable before and after."""
        name, laid = self.target.name, pile.laid
        self._landings.note(name, [(one.item, LandingMoving(pile.base, pile.top, one.commit, asked)) for one in laid])
        try:
            moved = self.target.move(pile.base, pile.top)
        except Refused:
            self._landings.note(name, [(one.item, LandingQueued()) for one in laid])
            raise
        if not moved:
            self._landings.note(name, [(one.item, LandingQueued()) for one in laid])
            self._told(f"{name} was moved by somebody else meanwhile; all of it again, on top of that")
            after = docket.after(TargetMoved())
            if after.overtaken >= MAX_TARGET_MOVES:
                raise Refused(f"{name} moved {after.overtaken} times while checks ran; nothing is lost: ralph land")
            return after
        landed = tuple(Landed(one.item, one.commit, name, asked) for one in laid)
        self._landings.note(name, [(one.item, one) for one in landed])
        self._stand(one.item for one in laid)
        return docket.after(BatchPassed(landed))

    def _stand(self, parcels: Iterable[LandingItem]) -> None:
        """What has landed has to hold from now on."""
        every = tuple(parcels)
        self.standing, self._setup = combined_checks(every, self.standing), combined_setup(every, self._setup)


def _distinct_items(parcels: Iterable[LandingItem]) -> list[LandingItem]:
    return list({parcel.key: parcel for parcel in parcels}.values())


# The checks of parcels asked on a merged commit, each in a fresh checkout that is thrown away.


NO_TESTS_REPORTED = "it told of no test"


class MergedCheckRunner:
    """What a landing asks about a commit. One place and one keeper for all of it, made when it is first asked.

    Where `wishes` tell that it should end, what runs is ended with its tree and KeyboardInterrupt is raised. `told`
    hears what is run, from the thread that asks.
    """

    def __init__(
        self, project: Project, environ: Mapping[str, str], wishes: StopRequests,
    told: Callable[[str], None], *,
        sandbox: str | None = None,
    ) -> None:  # fmt: skip
        """`sandbox` is the kind that commands run in; None is none."""
        self._project, self._environ, self._wishes, self._told = project, environ, wishes, told
        self._sandbox, self._own = sandbox, ""
        self._room: DisposableCheckout | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.__exit__(kind, error, trace)
            remove_tree(self._own)

    def __call__(self, commit: str, checks: tuple[AttestedCheck, ...], setup: tuple[str, ...]) -> tuple[Finding, ...]:
        """What each of the checks answers there."""
        room = self._room or self._entered()
        room.commit = commit
        return tuple(self._asked(room, check, setup) for check in checks)

    def heed(self) -> None:
        """Raise KeyboardInterrupt where somebody wants it to end."""
        if self._wishes.stop_reason():
            raise KeyboardInterrupt

    def _entered(self) -> DisposableCheckout:
        self._own = new_scratch_folder(self._project.store)
        project = self._project
        room = DisposableCheckout(
            project.root, "", self._environ, project.secrets, self._sandbox, self._wishes, self._own, keeps=True
        )
        self._room = room.__enter__()
        return self._room

    def _asked(self, room: DisposableCheckout, check: AttestedCheck, setup: tuple[str, ...]) -> Finding:
        found = room.ask(check, setup, lambda command: self._told(f"runs {command}"))
        found = replace(found, hidden=check.hidden, log="")  # its log goes with the checkout
        if found.passed and found.mute and check.tests_passed:
            found = replace(
                found, passed=False, why=NO_TESTS_REPORTED
            )  # a merge that switches tests off is no green one
        self._told(f"{check.name} {'passed' if found.passed else 'failed'}")
        return found


# Parcels landed on a branch of this repository as every verb does it: after what the user committed meanwhile.


def land_items(
    project: Project, ledger: SqliteLedger, parcels: tuple[LandingItem, ...], wishes: StopRequests,
    told: Callable[[str], None], *,
    environ: Mapping[str, str], onto: str = "", rebase: bool = False, unverified: bool = False,
    sandbox: str | None = None,
) -> tuple[LandingResult, ...]:  # fmt: skip
    """Land these on `onto`, else on the branch of its own that the current one has; what became of each.

    What the user committed meanwhile lands first, and is told like the rest, without a run. The ledger must be
    writable, and opened by this thread. Where `wishes` tell that it should end, KeyboardInterrupt is raised, nothing
    moved. Checks run in the kind of sandbox that the runs had, or in the one that is named.
    """
    users = UserGit(project.root, environ)
    target, theirs = landing_target(users, onto)
    base = "" if onto else users.branch_commit(current_branch(users))
    box = sandbox or next((one.sandbox for one in parcels if one.sandbox), None)
    with MergedCheckRunner(project, environ, wishes, told, sandbox=box) as examine:
        lander = Lander(
            project, ledger, target, examine, told, environ=environ, base=base, rebase=rebase, unverified=unverified,
            heed=examine.heed, standing=load_project_checks(project, target, parcels, environ),
        )  # fmt: skip
        return lander.land((*((theirs,) if theirs else ()), *parcels))


def load_project_checks(
    project: Project, target: LandingTarget, parcels: tuple[LandingItem, ...], environ: Mapping[str, str]
) -> tuple[AttestedCheck, ...]:
    """The checks of the project's settings on the target, where something lands that no check verified."""
    from ralphproof.engine.check import PassRule
    from ralphproof.proof.source import read_allowed_commands
    from ralphproof.store.landings import AttestedCheck

    if all(one.proof == VERIFIED for one in parcels):
        return ()
    ways = read_allowed_commands(project.root, target.tip(), environ).rules
    rules = [(command, PassRule(folder, code, has, lacks)) for command, folder, code, has, lacks in ways]
    return tuple(
        AttestedCheck(command, command, "", rule, True, False, True, 0, "exit", None, "") for command, rule in rules
    )


# Where finished work waits to be landed while other work goes on: one thread, one batch after the other.


THREAD_NAME = "landing"


class LandingQueue:
    """Lands what it is sent on one target, all that waits at a time as one batch. Whatever happens is in `ended`."""

    def __init__(
        self, project: Project, target: LandingTarget, conductor: SignalRouter, told: Callable[[str], None], *,
        rebase: bool = False, unverified: bool = False, base: str = "",
    ) -> None:  # fmt: skip
        from queue import SimpleQueue

        self._project, self._target, self._conductor, self._told = project, target, conductor, told
        self._rebase, self._unverified, self._base = rebase, unverified, base
        self._sent: SimpleQueue[LandingItem | None] = SimpleQueue()
        self._ended: SimpleQueue[LandingResult | BaseException] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.waiting: set[str] = set()  # the runs whose work is on its way

    def send(self, parcel: LandingItem) -> None:
        """Have it landed."""
        self.waiting.add(parcel.run)
        self._sent.put(parcel)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=THREAD_NAME, daemon=True)
            self._thread.start()

    def next(self) -> LandingResult | None:
        """What became of a parcel; None where there is no news. Raises what went wrong with all of it."""
        if self._ended.empty():
            return None
        found = self._ended.get()
        if isinstance(found, BaseException):
            self.waiting.clear()
            self._thread = None
            raise found
        self.waiting.discard(found.item.run)
        return found

    def close(self) -> None:
        """Let the thread go when it has done what it is at."""
        if self._thread is not None:
            self._sent.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        try:
            self._landing()
        except BaseException as error:  # noqa: BLE001 (it is raised where somebody waits for it)
            self._ended.put(error)

    def _landing(self) -> None:
        present = RunClock()
        self._conductor.register(THREAD_NAME, present)
        ledger = self._project.ledger(read_only=False)
        try:
            while batch := self._batch():
                for end in self._land(batch, ledger, present):
                    self._ended.put(end)
        finally:
            ledger.close()
            self._conductor.unregister(THREAD_NAME)
            present.close()

    def _land(self, batch: list[LandingItem], ledger: SqliteLedger, present: RunClock) -> tuple[LandingResult, ...]:
        """Land a batch; its checks run in the kind of sandbox that its runs had."""
        kind = next((parcel.sandbox for parcel in batch if parcel.sandbox), None)
        with MergedCheckRunner(self._project, os.environ, present, self._told, sandbox=kind) as examiner:
            lander = Lander(
                self._project, ledger, self._target, examiner, self._told, environ=os.environ, base=self._base,
                rebase=self._rebase, unverified=self._unverified, heed=examiner.heed,
                standing=load_project_checks(self._project, self._target, tuple(batch), os.environ),
            )  # fmt: skip
            return lander.land(batch)

    def _batch(self) -> list[LandingItem]:
        """All that waits by now, once something does; nothing where no more will come."""
        batch: list[LandingItem] = []
        while not batch or not self._sent.empty():
            parcel = self._sent.get()
            if parcel is None:
                if batch:
                    self._sent.put(None)  # to be heard once more when these have landed
                return batch
            batch.append(parcel)
        return batch


# The parcel of a completed run: its work as one commit, and the checks that it was completed by.


MAX_PATHS_LISTED = 20


def build_landing_item(project: Project, ledger: SqliteLedger, row: RunRow, environ: Mapping[str, str]) -> LandingItem:
    """What a completed run has to land; raises Refused for any other run. Asked twice it is the same commit.

    Files that stay out of it (too large, or secret by their looks) are named in its remarks.
    """
    from ralphproof.proof.builder import build_run_proof

    end, records = ledger.run_end(row.id), ledger.records(row.id)
    if not isinstance(end, RunEnded):
        raise Refused(f"run {row.id} has not ended, so nothing of it can land; see: ralph status {row.id}")
    if not isinstance(end.outcome, Completed):
        raise Refused(
            f"run {row.id} was not completed ({end.outcome.status}), so it does not land; "
            f"its work can be had as a branch: ralph branch {row.id} N"
        )
    number = max((number for number, one in snapshots_by_iteration(records).items() if one.tree is not None), default=0)
    work, proof = load_saved_work(project, row, records, number), build_run_proof(project, row, ledger)
    commit, told = _commit_of_work(project, work, records, proof, environ, ledger.last_written_at(row.id) or 0.0)
    box = get_object(proof, "sandbox")
    return LandingItem(
        row.id, commit, work.title, parse_checks(proof), parse_setup(proof), ledger.tasks.task_of_run(row.id) or "",
        end.outcome.proof, "" if box.get("strength") == "none" else str(box.get("name") or ""),
        tuple(map(project.mask, told)),
    )  # fmt: skip


def _commit_of_work(
    project: Project, work: SavedWork, records: Iterable[Record], proof: dict[str, Json], environ: Mapping[str, str],
    at: float,
) -> tuple[str, tuple[str, ...]]:  # fmt: skip
    """The commit that has the work, made if there is none yet, and what a reader must know of it."""
    from ralphproof.workspace.commit_builder import CommitBuilder

    subject = get_object(proof, "subject")
    with CommitBuilder(_work_tree_of_run(project, work.row), environ) as landable:
        users = landable.user_git
        if subject.get("kind") == "commit" and (commit := users.resolve_commit(str(subject.get("commit")))):
            return commit, verification_remarks(proof)
        landing = landable.plan(work.snapshot, secret_reason)
        told = [f"left out: {one.path}: {one.reason}" for one in landing.excluded]
        if landing.empty and landing.parent:
            return landing.parent, tuple(told)
        began = next((one.snapshot for one in records if isinstance(one, RunBegan)), None)
        before = landable.plan(began, secret_reason).changes if began and began.tree else ()
        changed = {path for _, path in landing.changes}
        if theirs := [path for _, path in before if path in changed]:
            told.append(f"has what you had not committed when the run began: {_list_paths(theirs)}")
        return users.commit(landing.tree, landing.parent, work.message, at), tuple(told)


def _work_tree_of_run(project: Project, row: RunRow) -> str:
    """The work tree of the run, where it is still one of this repository; else the project."""
    there, here = git_folders(row.directory), git_folders(project.root)
    return row.directory if there and here and there.common == here.common else project.root


def _list_paths(paths: list[str]) -> str:
    more = f" and {len(paths) - MAX_PATHS_LISTED} more" if len(paths) > MAX_PATHS_LISTED else ""
    return f"{', '.join(' '.join(path.split()) for path in paths[:MAX_PATHS_LISTED])}{more}"
