"""The merge queue: landing items merged, checked and moved onto a target branch."""

from __future__ import annotations

import os
import threading

from ralphproof.base.errors import Refused, wrap_os_error
from ralphproof.base.files import remove_tree
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
from ralphproof.proof.schema import get_object, parse_checks, parse_setup, verification_remarks
from ralphproof.proof.verification import DisposableCheckout
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
    from ralphproof.landing.batch import LandingTarget, RunChecks
    from ralphproof.landing.tree_merge import MergeStack
    from ralphproof.process.signals import SignalRouter
    from ralphproof.proof.verification import StopRequests
    from ralphproof.runs.saved_work import SavedWork
    from ralphproof.store.landings import AttestedCheck, LandingResult, LandingRow
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project


# Scratch folders in the store. Their names hold the process id and start time, so that those of dead processes can be
# removed.


SCRATCH_FOLDER = "rooms"


def new_scratch_folder(store: str) -> str:
    """A new folder for this process; the caller removes it. Folders of processes that died are removed first."""
    parent, pid = os.path.join(store, FOLDER, SCRATCH_FOLDER), os.getpid()
    _remove_abandoned(parent)
    folder = os.path.join(parent, f"{pid}-{start_time(pid)}-{os.urandom(4).hex()}")
    try:
        os.makedirs(folder, mode=0o700)
    except OSError as error:
        raise wrap_os_error(error) from error
    return folder


def _remove_abandoned(parent: str) -> None:
    for name in os.listdir(parent) if os.path.isdir(parent) else ():
        pid, _, rest = name.partition("-")
        start = rest.partition("-")[0]
        if pid.isdigit() and start.isdigit() and not is_alive(int(pid), int(start)):
            remove_tree(os.path.join(parent, name))


ITEM_REF = "parcel"  # last part of the ref that keeps an item's commit from being pruned
SHORT_HASH_CHARS = 12


class Lander:
    """Lands items on one target. Not thread-safe: it belongs to the thread that opened its ledger, which must be
    writable.

    The target is moved only when the checks of all items in the batch and of everything that landed before pass on
    the merged tree. The work of a rejected item is kept. Every step is recorded before the next one, so after a
    crash the next Lander for this target continues from the record.
    """

    def __init__(
        self, project: Project, ledger: SqliteLedger, target: LandingTarget, run_checks: RunChecks,
        notify: Callable[[str], None], *,
        environ: Mapping[str, str], target_checks: Iterable[AttestedCheck] = (), target_setup: Iterable[str] = (),
        base: str = "", rebase: bool = False, unverified: bool = False,
        raise_if_stopped: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`target_checks` already hold for the target; `target_setup` prepares a checkout for them.

        The checks of items that landed on the target earlier are added, except of those that commit `base` contains:
        the user has merged them. `raise_if_stopped` raises KeyboardInterrupt to stop the landing. With `unverified`,
        work may land that no check verified.
        """
        self.target, self.target_checks, self._target_setup = target, tuple(target_checks), tuple(target_setup)
        self._landings, self._run_checks = ledger.landings, run_checks
        self._notify, self._raise_if_stopped = notify, raise_if_stopped
        self._store, self._environ = project.store, environ
        self._user_git = UserGit(project.root, environ)
        self._base, self._rebase, self._unverified = base, rebase, unverified
        self._findings: dict[object, tuple[Finding, ...]] = {}  # by tree, checks and setup

    def land(self, items: Iterable[LandingItem]) -> tuple[LandingResult, ...]:
        """Land these items in this order, and return the result of each. Interrupted landings on the target are
        finished first.
        """
        wanted = _distinct_items(items)
        self._create_refs(wanted)
        self._queue_new(wanted)
        lock = TargetLock(self._store, self.target.name)
        lock.raise_if_stopped = self._raise_if_stopped
        self._findings.clear()  # a flaky check may be run again
        with lock:
            rows = self.finish_interrupted()
            landed = self._landed_by_run(rows)
            self._add_target_checks(self._not_merged_by_user(landed.values()))
            new, results = self._select_new(wanted, landed)
            waiting = {row.item.key for row in rows if isinstance(row.step, LandingQueued)}
            self._landings.queue(self.target.name, [one for one in new if one.key not in waiting])
            return (*results, *self._land_batches(new)) if new else tuple(results)

    def _land_batches(self, items: list[LandingItem]) -> tuple[LandingResult, ...]:
        """Try one batch after the other until every item has a result."""
        plan, scratch = BatchPlan.of(items), new_scratch_folder(self._store)
        try:
            with TreeMerger(self._user_git, self._environ, scratch, self._rebase) as merger:
                while plan.next_batch:
                    plan = self._try_batch(plan, merger)
        finally:
            remove_tree(scratch)
        return plan.results

    def _create_refs(self, items: list[LandingItem]) -> None:
        """Create refs for the commits, so that git does not prune them."""
        for one in items:
            if not is_object_id(one.commit):
                raise Refused(f"{one.commit!r} is no commit; a landing item names one by its whole id")
        lines = [f"update {run_ref_name(one.run, ITEM_REF)} {one.commit}\n" for one in items if one.run]
        if lines:
            self._user_git.run("update-ref", "--stdin", stdin="".join(lines).encode())

    def _queue_new(self, items: list[LandingItem]) -> None:
        """Record new items before waiting for the lock."""
        known = {row.item.key for row in self._landings.rows(self.target.name)}
        self._landings.queue(self.target.name, [one for one in items if one.key not in known])

    def finish_interrupted(self) -> tuple[LandingRow, ...]:
        """Finish moves that were interrupted, and return all rows of the target. The caller holds the target's lock.

        A recorded move had passed all checks, so it is made now if the target still names the old commit.
        """
        name = self.target.name
        moving = [(row.item, row.step) for row in self._landings.rows(name) if isinstance(row.step, LandingMoving)]
        if moving:
            tip = self._tip()
            for old, new in dict.fromkeys((step.old, step.new) for _, step in moving):
                if tip == old and self._user_git.resolve_commit(new) and self.target.move(old, new):
                    self._notify(f"{name} moved to {new[:SHORT_HASH_CHARS]}: this was cut off")
            self._record_interrupted(moving)
        return self._landings.rows(name)

    def _record_interrupted(self, moving: list[tuple[LandingItem, LandingMoving]]) -> None:
        tip = self._tip()
        steps = [(item, step, bool(self._user_git.resolve_commit(step.commit))) for item, step in moving]
        moved = [(item, step) for item, step, exists in steps if exists and self._user_git.contains(tip, step.commit)]
        done = [(item, Landed(item, step.commit, self.target.name, step.checks_passed)) for item, step in moved]
        keys = {item.key for item, _ in done}
        self._landings.note(
            self.target.name, [*done, *((one, LandingQueued()) for one, _ in moving if one.key not in keys)]
        )

    def _landed_by_run(self, rows: Iterable[LandingRow]) -> dict[str, Landed]:
        """Landed items that the target still contains, by run. It may have been moved back or recreated."""
        landed = [row.step for row in rows if isinstance(row.step, Landed)]
        commits = self._target_commits() if landed else set()
        return {one.item.run: one for one in landed if one.commit in commits}

    def _not_merged_by_user(self, landed: Iterable[Landed]) -> list[LandingItem]:
        """Landed items that the user has not merged into their branch yet."""
        items = tuple(landed)
        unmerged_commits = self._target_commits(f"^{self._base}") if items and self._base else set()
        return [one.item for one in items if not self._base or one.commit in unmerged_commits]

    def _target_commits(self, *without: str) -> set[str]:
        """All commits that the target contains."""
        return set(self._user_git.run("rev-list", self._tip(), *without, "--").out.decode("ascii", "replace").split())

    def _select_new(
        self, wanted: list[LandingItem], landed: dict[str, Landed]
    ) -> tuple[list[LandingItem], list[LandingResult]]:
        """The items to try, and results of the others: they landed before, or no check can verify them."""
        new: list[LandingItem] = []
        results: list[LandingResult] = []
        for item in wanted:
            if item.run in landed:
                results.append(landed[item.run])
            elif self._may_land(item):
                new.append(item)
            else:
                end = LandingRejected(item, NotVerified(item.proof))
                self._landings.note(self.target.name, [(item, end)])
                results.append(end)
        return new, results

    def _may_land(self, item: LandingItem) -> bool:
        """Whether some check verifies the item or none is required. Commits of the user need no verification."""
        fine = self._unverified or not item.run or (item.proof == VERIFIED and item.rerunnable_checks)
        return bool(fine or combined_checks((), self.target_checks))

    def _tip(self) -> str:
        tip = self.target.tip()
        if not tip:
            raise Refused(f"there is no branch {self.target.name}; nothing can land on it")
        return tip

    def _try_batch(self, plan: BatchPlan, merger: TreeMerger) -> BatchPlan:
        """Merge, check and move the next batch."""
        self._raise_if_stopped()
        stack = merger.stack(self._tip(), plan.next_batch)
        for item in stack.already_merged:
            landed = Landed(item, item.commit, self.target.name)
            self._landings.note(self.target.name, [(item, landed)])
            plan = plan.after(AlreadyLanded(landed))
        for clash in stack.clashes:
            if clash.alone:
                self._landings.note(self.target.name, [(clash.item, LandingRejected(clash.item, clash.conflict))])
            plan = plan.after(clash)
        return self._check_stack(plan, stack) if stack.merged else plan

    def _check_stack(self, plan: BatchPlan, stack: MergeStack) -> BatchPlan:
        items = tuple(one.item for one in stack.merged)
        checks, setup = combined_checks(items, self.target_checks), combined_setup(items, self._target_setup)
        findings = self._cached_findings(stack, checks, setup)
        self._raise_if_stopped()
        if all(finding.passed for finding in findings):
            return self._move_target(plan, stack, len(checks))
        failure = MergedChecksFailed(findings, stack.base, stack.tree)
        if len(items) == 1:
            self._landings.note(self.target.name, [(items[0], LandingRejected(items[0], failure))])
        else:
            self._notify(f"{len(items)} together are red; a part of them is tried")
        return plan.after(BatchFailed(failure))

    def _cached_findings(
        self, stack: MergeStack, checks: tuple[AttestedCheck, ...], setup: tuple[str, ...]
    ) -> tuple[Finding, ...]:
        """Findings of the checks on the merged tree; checks do not run twice on the same tree."""
        key = (stack.tree, frozenset(map(check_identity, checks)), setup)
        if checks and key not in self._findings:
            titles = ", ".join(one.item.run or one.item.title for one in stack.merged)
            self._notify(f"on {stack.base[:SHORT_HASH_CHARS]}: {titles}")
            self._findings[key] = self._run_checks(stack.top, checks, setup)
        return self._findings.get(key, ())

    def _move_target(self, plan: BatchPlan, stack: MergeStack, checks_passed: int) -> BatchPlan:
        """Move the target to the merged commit; recorded before and after."""
        name, merged = self.target.name, stack.merged
        self._landings.note(
            name, [(one.item, LandingMoving(stack.base, stack.top, one.commit, checks_passed)) for one in merged]
        )
        try:
            moved = self.target.move(stack.base, stack.top)
        except Refused:
            self._landings.note(name, [(one.item, LandingQueued()) for one in merged])
            raise
        if not moved:
            self._landings.note(name, [(one.item, LandingQueued()) for one in merged])
            self._notify(f"{name} was moved by somebody else meanwhile; all of it again, on top of that")
            after = plan.after(TargetMoved())
            if after.target_moves >= MAX_TARGET_MOVES:
                raise Refused(f"{name} moved {after.target_moves} times while checks ran; nothing is lost: ralph land")
            return after
        landed = tuple(Landed(one.item, one.commit, name, checks_passed) for one in merged)
        self._landings.note(name, [(one.item, one) for one in landed])
        self._add_target_checks(one.item for one in merged)
        return plan.after(BatchPassed(landed))

    def _add_target_checks(self, items: Iterable[LandingItem]) -> None:
        """Require the checks of landed items from every later batch."""
        landed = tuple(items)
        self.target_checks = combined_checks(landed, self.target_checks)
        self._target_setup = combined_setup(landed, self._target_setup)


def _distinct_items(items: Iterable[LandingItem]) -> list[LandingItem]:
    return list({item.key: item for item in items}.values())


NO_TESTS_REPORTED = "it reported no test"


class MergedCheckRunner:
    """Runs checks on merged commits. All share one disposable checkout folder and one keeper, created by the first
    call.

    When `stop_requests` has a reason to stop, running commands are ended with their process trees and
    KeyboardInterrupt is raised. `notify` is called with progress, in the caller's thread.
    """

    def __init__(
        self, project: Project, environ: Mapping[str, str], stop_requests: StopRequests,
        notify: Callable[[str], None], *,
        sandbox: str | None = None,
    ) -> None:  # fmt: skip
        """`sandbox` is the kind of sandbox that commands run in; None runs them without one."""
        self._project, self._environ, self._stop_requests, self._notify = project, environ, stop_requests, notify
        self._sandbox, self._scratch = sandbox, ""
        self._checkout: DisposableCheckout | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        checkout, self._checkout = self._checkout, None
        if checkout is not None:
            checkout.__exit__(kind, error, trace)
            remove_tree(self._scratch)

    def __call__(self, commit: str, checks: tuple[AttestedCheck, ...], setup: tuple[str, ...]) -> tuple[Finding, ...]:
        """The findings of the checks on this commit."""
        checkout = self._checkout or self._open_checkout()
        checkout.commit = commit
        return tuple(self._run_check(checkout, check, setup) for check in checks)

    def raise_if_stopped(self) -> None:
        """Raise KeyboardInterrupt if a stop was requested."""
        if self._stop_requests.stop_reason():
            raise KeyboardInterrupt

    def _open_checkout(self) -> DisposableCheckout:
        self._scratch = new_scratch_folder(self._project.store)
        project = self._project
        checkout = DisposableCheckout(
            project.root,
            "",
            self._environ,
            project.secrets,
            self._sandbox,
            self._stop_requests,
            self._scratch,
            keeps=True,
        )
        self._checkout = checkout.__enter__()
        return self._checkout

    def _run_check(self, checkout: DisposableCheckout, check: AttestedCheck, setup: tuple[str, ...]) -> Finding:
        finding = checkout.ask(check, setup, lambda command: self._notify(f"runs {command}"))
        finding = replace(finding, hidden=check.hidden, log="")  # its log is removed with the checkout
        if finding.passed and finding.mute and check.tests_passed:
            # A merge that switches tests off has not passed.
            finding = replace(finding, passed=False, why=NO_TESTS_REPORTED)
        self._notify(f"{check.name} {'passed' if finding.passed else 'failed'}")
        return finding


def land_items(
    project: Project, ledger: SqliteLedger, items: tuple[LandingItem, ...], stop_requests: StopRequests,
    notify: Callable[[str], None], *,
    environ: Mapping[str, str], onto: str = "", rebase: bool = False, unverified: bool = False,
    sandbox: str | None = None,
) -> tuple[LandingResult, ...]:  # fmt: skip
    """Land items on branch `onto`, by default on the landing branch of the current branch; the result of each.

    What the user committed meanwhile lands first; its result is an item without a run. The ledger must be writable and
    opened by this thread. On a stop request KeyboardInterrupt is raised and the target is not moved. Checks run in the
    kind of sandbox that the runs had, or in `sandbox`.
    """
    user_git = UserGit(project.root, environ)
    target, user_commits = landing_target(user_git, onto)
    base = "" if onto else user_git.branch_commit(current_branch(user_git))
    kind = sandbox or next((one.sandbox for one in items if one.sandbox), None)
    with MergedCheckRunner(project, environ, stop_requests, notify, sandbox=kind) as run_checks:
        lander = Lander(
            project, ledger, target, run_checks, notify, environ=environ, base=base, rebase=rebase,
            unverified=unverified, raise_if_stopped=run_checks.raise_if_stopped,
            target_checks=load_project_checks(project, target, items, environ),
        )  # fmt: skip
        return lander.land((*((user_commits,) if user_commits else ()), *items))


def load_project_checks(
    project: Project, target: LandingTarget, items: tuple[LandingItem, ...], environ: Mapping[str, str]
) -> tuple[AttestedCheck, ...]:
    """The checks of the target's project settings; empty if all items are verified by checks of their own."""
    from ralphproof.engine.check import PassRule
    from ralphproof.proof.source import read_allowed_commands
    from ralphproof.store.landings import AttestedCheck

    if all(one.proof == VERIFIED for one in items):
        return ()
    rules = read_allowed_commands(project.root, target.tip(), environ).rules
    return tuple(
        AttestedCheck(
            command, command, "", PassRule(folder, code, has, lacks), required=True, judged=False, passed=True, code=0,
            why="exit", tests=None, output="",
        )
        for command, folder, code, has, lacks in rules
    )  # fmt: skip


THREAD_NAME = "landing"


class LandingQueue:
    """Lands items on one target in a thread. All items that wait at the same time are one batch."""

    def __init__(
        self, project: Project, target: LandingTarget, signals: SignalRouter, notify: Callable[[str], None], *,
        rebase: bool = False, unverified: bool = False, base: str = "",
    ) -> None:  # fmt: skip
        from queue import SimpleQueue

        self._project, self._target, self._signals, self._notify = project, target, signals, notify
        self._rebase, self._unverified, self._base = rebase, unverified, base
        self._items: SimpleQueue[LandingItem | None] = SimpleQueue()
        self._results: SimpleQueue[LandingResult | BaseException] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.waiting: set[str] = set()  # runs whose work has not landed yet

    def send(self, item: LandingItem) -> None:
        """Queue an item for landing."""
        self.waiting.add(item.run)
        self._items.put(item)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_thread, name=THREAD_NAME, daemon=True)
            self._thread.start()

    def next(self) -> LandingResult | None:
        """The next result; None if there is none yet. Raises the error that stopped the thread, after which nothing
        waits.
        """
        if self._results.empty():
            return None
        result = self._results.get()
        if isinstance(result, BaseException):
            self.waiting.clear()
            self._thread = None
            raise result
        self.waiting.discard(result.item.run)
        return result

    def close(self) -> None:
        """End the thread after the items that it has."""
        if self._thread is not None:
            self._items.put(None)
            self._thread.join()
            self._thread = None

    def _run_thread(self) -> None:
        try:
            self._land_batches()
        except BaseException as error:  # noqa: BLE001 (it is raised where somebody waits for it)
            self._results.put(error)

    def _land_batches(self) -> None:
        clock = RunClock()
        self._signals.register(THREAD_NAME, clock)
        ledger = self._project.ledger(read_only=False)
        try:
            while batch := self._next_batch():
                for result in self._land(batch, ledger, clock):
                    self._results.put(result)
        finally:
            ledger.close()
            self._signals.unregister(THREAD_NAME)
            clock.close()

    def _land(self, batch: list[LandingItem], ledger: SqliteLedger, clock: RunClock) -> tuple[LandingResult, ...]:
        """Land a batch; its checks run in the kind of sandbox that its runs had."""
        kind = next((item.sandbox for item in batch if item.sandbox), None)
        with MergedCheckRunner(self._project, os.environ, clock, self._notify, sandbox=kind) as run_checks:
            lander = Lander(
                self._project, ledger, self._target, run_checks, self._notify, environ=os.environ, base=self._base,
                rebase=self._rebase, unverified=self._unverified, raise_if_stopped=run_checks.raise_if_stopped,
                target_checks=load_project_checks(self._project, self._target, tuple(batch), os.environ),
            )  # fmt: skip
            return lander.land(batch)

    def _next_batch(self) -> list[LandingItem]:
        """All items that wait, at least one; empty after `close`."""
        batch: list[LandingItem] = []
        while not batch or not self._items.empty():
            item = self._items.get()
            if item is None:
                if batch:
                    self._items.put(None)  # ends the thread after this batch
                return batch
            batch.append(item)
        return batch


MAX_PATHS_LISTED = 20


def build_landing_item(project: Project, ledger: SqliteLedger, row: RunRow, environ: Mapping[str, str]) -> LandingItem:
    """The landing item of a completed run; raises Refused for any other run. Called again it gives the same commit.

    Files that are left out (too large, or they look like secrets) are named in its remarks.
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
    commit, remarks = _commit_of_work(project, work, records, proof, environ, ledger.last_written_at(row.id) or 0.0)
    sandbox = get_object(proof, "sandbox")
    return LandingItem(
        row.id, commit, work.title, parse_checks(proof), parse_setup(proof), ledger.tasks.task_of_run(row.id) or "",
        end.outcome.proof, "" if sandbox.get("strength") == "none" else str(sandbox.get("name") or ""),
        tuple(map(project.mask, remarks)),
    )  # fmt: skip


def _commit_of_work(
    project: Project, work: SavedWork, records: Iterable[Record], proof: dict[str, Json], environ: Mapping[str, str],
    at: float,
) -> tuple[str, tuple[str, ...]]:  # fmt: skip
    """The commit with the run's work, created if there is none yet, and remarks for the user."""
    from ralphproof.workspace.commit_builder import CommitBuilder

    subject = get_object(proof, "subject")
    with CommitBuilder(_work_tree_of_run(project, work.row), environ) as builder:
        user_git = builder.user_git
        if subject.get("kind") == "commit" and (commit := user_git.resolve_commit(str(subject.get("commit")))):
            return commit, verification_remarks(proof)
        plan = builder.plan(work.snapshot, secret_reason)
        remarks = [f"left out: {one.path}: {one.reason}" for one in plan.excluded]
        if plan.empty and plan.parent:
            return plan.parent, tuple(remarks)
        began = next((one.snapshot for one in records if isinstance(one, RunBegan)), None)
        before = builder.plan(began, secret_reason).changes if began and began.tree else ()
        changed = {path for _, path in plan.changes}
        if user_changes := [path for _, path in before if path in changed]:
            remarks.append(f"has what you had not committed when the run began: {_list_paths(user_changes)}")
        return user_git.commit(plan.tree, plan.parent, work.message, at), tuple(remarks)


def _work_tree_of_run(project: Project, row: RunRow) -> str:
    """The run's worktree if it still belongs to this repository, else the project's root."""
    run_git, project_git = git_folders(row.directory), git_folders(project.root)
    return row.directory if run_git and project_git and run_git.common == project_git.common else project.root


def _list_paths(paths: list[str]) -> str:
    more = f" and {len(paths) - MAX_PATHS_LISTED} more" if len(paths) > MAX_PATHS_LISTED else ""
    return f"{', '.join(' '.join(path.split()) for path in paths[:MAX_PATHS_LISTED])}{more}"
