"""The merge queue: landing items merged, checked and moved onto a target branch."""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from ralphproof.base.errors import Refused, wrap_os_error
from ralphproof.base.files import remove_tree
from ralphproof.base.git_layout import is_object_id
from ralphproof.base.value import replace, value
from ralphproof.engine.check import Finding, PassRule
from ralphproof.landing.targets import LandingTarget
from ralphproof.process.signals import RunClock, SignalRouter
from ralphproof.process.tree import is_alive, start_time
from ralphproof.proof.source import read_allowed_commands
from ralphproof.proof.verification import DisposableCheckout, StopRequests
from ralphproof.store.landings import (
    FOLDER,
    VERIFIED,
    AttestedCheck,
    Landed,
    LandingItem,
    LandingMoving,
    LandingQueued,
    LandingRejected,
    LandingResult,
    LandingRow,
    MergeConflict,
    MergedChecksFailed,
    NotVerified,
    target_lock,
)
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.project import Project
from ralphproof.workspace.git_command import GitFailed, UserGit
from ralphproof.workspace.git_objects import CommitStore, ObjectStore, TreeStore, decode_path, run_ref_name
from ralphproof.workspace.private_index import PrivateIndex

# Merges in git's object store, without a work tree or index


EMPTY_WORK_TREE = "files"
MIN_GIT_VERSION = (2, 38)  # the first with merge-tree --write-tree
MERGE_TREE_COMMAND = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages")
ATTRIBUTES_FILE = b".gitattributes"
KEPT_COMMIT_HEADERS = (b"encoding ",)  # copied to a replayed commit besides its author
UNRELATED_HISTORIES = "their histories have nothing in common"


@value
class MergedItem:
    """An item and the commit that merges it onto the items below."""

    item: LandingItem
    commit: str


@value
class MergeClash:
    """An item that could not be merged. With `alone` it conflicts with the target itself, otherwise maybe with an item
    of the same batch.
    """

    item: LandingItem
    conflict: MergeConflict
    alone: bool


@value
class MergeStack:
    """Items merged one after the other onto `base`. `already_merged` are those that `base` or a lower item contains;
    `clashes` could not be merged.
    """

    base: str
    top: str
    tree: str
    merged: tuple[MergedItem, ...]
    already_merged: tuple[LandingItem, ...] = ()
    clashes: tuple[MergeClash, ...] = ()


class TreeMerger:
    """Merges or rebases items onto a commit. New objects are flushed to disk before a ref names them.

    The .gitattributes at the top of `base` may select git's built-in merge drivers; no external program is run.
    """

    def __init__(self, user_git: UserGit, environ: Mapping[str, str], scratch: str, rebase: bool = False) -> None:
        """`scratch` is an empty folder for this object. Raises Refused where git is too old."""
        self._user_git, self._rebase = user_git, rebase
        self._ident = user_git.identity()
        _refuse_old_git(user_git.run("version").out.decode("utf-8", "replace"))
        self._scratch = scratch
        files = os.path.join(scratch, EMPTY_WORK_TREE)
        os.mkdir(files, 0o700)
        index = PrivateIndex(files, scratch, user_git.folders, environ)
        index.git = user_git.git  # a path that was resolved outside of the project
        index.create()
        self._objects = ObjectStore(index.git, user_git.folders.objects, user_git.folders.algorithm, index.env)
        self._commits = CommitStore(index, self._objects, TreeStore(self._objects))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._objects.discard()
        self._objects.close()

    def stack(self, base: str, items: Iterable[LandingItem]) -> MergeStack:
        """Merge the items one after the other, leaving out those that conflict. Raises Refused where a commit is
        missing.
        """
        self._write_attributes(base)
        top = base
        merged: list[MergedItem] = []
        already_merged: list[LandingItem] = []
        clashes: list[MergeClash] = []
        for item in items:
            self._refuse_missing_commit(item)
            if self._commits.is_ancestor(item.commit, top):
                already_merged.append(item)
                continue
            replays = self._rebase and item.run  # commits of the user are not rewritten: others may have them
            merge_result = self._replay(top, item) if replays else self._merge(top, item)
            if isinstance(merge_result, MergeConflict):
                clashes.append(MergeClash(item, merge_result, alone=not merged))
                continue
            top = merge_result
            merged.append(MergedItem(item, top))
        self._objects.flush()
        return MergeStack(base, top, self.tree_of(top), tuple(merged), tuple(already_merged), tuple(clashes))

    def tree_of(self, commit: str) -> str:
        """The tree of a commit."""
        return self._commits.header(commit, b"tree ")[0]

    def _refuse_missing_commit(self, item: LandingItem) -> None:
        if not self._commits.has(item.commit):
            whose = f" of run {item.run}" if item.run else ""
            raise Refused(f"commit {item.commit}{whose} is not in this repository any more; was it pruned?")

    def _write_attributes(self, base: str) -> None:
        entry = self._commits.read_entry(base, ATTRIBUTES_FILE)
        text = self._commits.read_blob(entry[1]) if entry and entry[0] in (b"100644", b"100755") else b""
        with open(os.path.join(self._scratch, EMPTY_WORK_TREE, os.fsdecode(ATTRIBUTES_FILE)), "wb") as file:
            file.write(text)

    def _merge(self, top: str, item: LandingItem) -> str | MergeConflict:
        tree = self._merge_trees(top, item.commit)
        if isinstance(tree, MergeConflict):
            return tree
        who, message = self._ident, item.message.encode("utf-8", "replace")
        return self._commit(tree, (top, item.commit), who, message)

    def _merge_trees(self, onto: str, commit: str, unrelated: bool = False) -> str | MergeConflict:
        """The tree of two merged commits."""
        more = ("--allow-unrelated-histories",) if unrelated else ()
        self._objects.flush()
        reply = self._commits.run(*MERGE_TREE_COMMAND, *more, onto, commit)
        if reply.code == 128 and b"unrelated histories" in reply.err:
            return MergeConflict((), "", onto, UNRELATED_HISTORIES)
        if reply.code not in (0, 1):
            raise GitFailed(f"git merge-tree: {reply.said or reply.code}")
        tree, *paths = reply.out.split(b"\0")
        if reply.code == 0:
            return tree.strip().decode()
        return MergeConflict(
            tuple(dict.fromkeys(decode_path(path) for path in paths if path)), tree.strip().decode(), onto
        )

    def _replay(self, top: str, item: LandingItem) -> str | MergeConflict:
        """Rebase the item's non-merge commits onto `top`. A last commit has what its merges resolved."""
        onto, merges = top, False
        for name, parents in self._new_commits(top, item.commit):
            merges = merges or len(parents) > 1
            result = onto if len(parents) > 1 else self._replay_commit(onto, name, parents)
            if isinstance(result, MergeConflict):
                return MergeConflict(result.paths, result.tree, top, result.said)
            onto = result
        if not merges:
            return onto
        whole = self._merge_trees(top, item.commit)
        if isinstance(whole, MergeConflict) or whole == self.tree_of(onto):
            return whole if isinstance(whole, MergeConflict) else onto
        return self._commit(whole, (onto,), self._ident, item.message.encode("utf-8", "replace"))

    def _new_commits(self, top: str, commit: str) -> list[tuple[str, tuple[str, ...]]]:
        """The commits that `commit` contains and `top` does not, oldest first, each with its parents."""
        reply = self._commits.run("rev-list", "--reverse", "--topo-order", "--parents", commit, f"^{top}", "--")
        if reply.code != 0:
            raise GitFailed(f"git rev-list: {reply.said}")
        rows = (line.split() for line in reply.out.decode("ascii").splitlines())
        return [(name, tuple(parents)) for name, *parents in rows]

    def _replay_commit(self, onto: str, name: str, parents: tuple[str, ...]) -> str | MergeConflict:
        """Cherry-pick one commit onto `onto`, with its author and message; returns `onto` where it changes nothing.

        git merge-tree takes no merge base (before 2.40), so a stand-in commit has the files of `onto` and the parents
        of `name`: merging it with `name` applies just the change of `name`.
        """
        tree = self.tree_of(onto)
        stand_in = self._commit(tree, parents, self._ident, b"")
        new_tree = self._merge_trees(stand_in, name, unrelated=not parents)
        if isinstance(new_tree, MergeConflict):
            return new_tree
        if new_tree == tree and not (parents and self.tree_of(name) == self.tree_of(parents[0])):
            return onto
        head, _, message = self._objects.read(name)[1].partition(b"\n\n")
        lines = head.split(b"\n")
        author = next(line[len(b"author ") :] for line in lines if line.startswith(b"author "))
        return self._commit(
            new_tree, (onto,), author, message, [line for line in lines if line.startswith(KEPT_COMMIT_HEADERS)]
        )

    def _commit(
        self, tree: str, parents: Iterable[str], author: bytes, message: bytes, headers: Iterable[bytes] = ()
    ) -> str:
        parent_lines = [b"parent " + parent.encode() for parent in parents]
        lines = [b"tree " + tree.encode(), *parent_lines, b"author " + author, b"committer " + self._ident, *headers]
        return self._objects.write(b"commit", b"\n".join(lines) + b"\n\n" + message)


def _refuse_old_git(version: str) -> None:
    found = re.search(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < MIN_GIT_VERSION:
        raise Refused(
            f"landing needs git {MIN_GIT_VERSION[0]}.{MIN_GIT_VERSION[1]} or newer, which merges without files; "
            f"this is {found[0]}. "
            "Install a newer one, or merge by hand: ralph branch RUN N, then git merge"
        )


RunChecks = Callable[[str, tuple[AttestedCheck, ...], tuple[str, ...]], tuple[Finding, ...]]


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


# Checks that a merged tree has to pass


def combined_checks(
    items: Iterable[LandingItem], target_checks: Iterable[AttestedCheck] = ()
) -> tuple[AttestedCheck, ...]:
    """The checks of all items and of the target, without duplicates."""
    own = (check for item in items for check in item.rerunnable_checks)
    inherited = (check for check in target_checks if check.runs_again)
    by_identity: dict[object, AttestedCheck] = {}
    for check in (*own, *inherited):
        by_identity.setdefault(check_identity(check), check)
    return tuple(by_identity.values())


def check_identity(check: AttestedCheck) -> tuple[object, ...]:
    """Equal for checks that give the same answer on the same tree: same command, same rule."""
    return check.command, replace(check.rule, clean=False)


def combined_setup(items: Iterable[LandingItem], target_setup: Iterable[str] = ()) -> tuple[str, ...]:
    """The setup commands of the target and of all items, each once."""
    return tuple(dict.fromkeys([*target_setup, *(command for item in items for command in item.setup)]))


# Landing on one target


MAX_TARGET_MOVES = 5  # consecutive times that the target may move while checks run
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
        lock = target_lock(self._store, self.target.name, self._raise_if_stopped)
        self._findings.clear()  # a flaky check may be run again
        with lock:
            rows = self.finish_interrupted()
            landed = self._landed_by_run(rows)
            self._add_target_checks(self._not_merged_by_user(landed.values()))
            new, results = self._select_new(wanted, landed)
            waiting = {row.item.key for row in rows if isinstance(row.step, LandingQueued)}
            self._landings.queue(self.target.name, [one for one in new if one.key not in waiting])
            return (*results, *(self._land_batches(new) if new else ()))

    def _land_batches(self, items: list[LandingItem]) -> list[LandingResult]:
        """Try one batch after the other until every item has a result."""
        batches, self._target_moves = deque([items]), 0
        results: list[LandingResult] = []
        scratch = new_scratch_folder(self._store)
        try:
            with TreeMerger(self._user_git, self._environ, scratch, self._rebase) as merger:
                while batches:
                    self._raise_if_stopped()
                    results += self._try_batch(merger, batches)
        finally:
            remove_tree(scratch)
        return results

    def _try_batch(self, merger: TreeMerger, batches: deque[list[LandingItem]]) -> list[LandingResult]:
        """Merge, check and land the first batch; what has no result yet goes back to the batches.

        A batch that fails is halved until the item that makes it fail is alone. An item that conflicts with others of
        its batch is tried again after these have landed or were rejected.
        """
        stack = merger.stack(self._tip(), batches.popleft())
        batches.extend([clash.item] for clash in stack.clashes if not clash.alone)
        landed_before = [Landed(item, item.commit, self.target.name) for item in stack.already_merged]
        rejected = [LandingRejected(one.item, one.conflict) for one in stack.clashes if one.alone]
        results = self._record([*landed_before, *rejected])
        batch = [one.item for one in stack.merged]
        if not batch:
            return results
        checks, failure = self._check(stack)
        if failure is None:
            landed = self._move_target(stack, checks)
            if not landed:
                batches.appendleft(batch)
            return [*results, *landed]
        if len(batch) == 1:
            return [*results, *self._record([LandingRejected(batch[0], failure)])]
        self._notify(f"{len(batch)} together are red; a part of them is tried")
        half = len(batch) // 2
        batches.extendleft((batch[half:], batch[:half]))
        return results

    def _record(self, results: list[LandingResult]) -> list[LandingResult]:
        self._landings.note(self.target.name, [(one.item, one) for one in results])
        return results

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

    def _check(self, stack: MergeStack) -> tuple[int, MergedChecksFailed | None]:
        """The number of checks that hold for the merged tree, and their findings if one of them fails."""
        items = tuple(one.item for one in stack.merged)
        checks, setup = combined_checks(items, self.target_checks), combined_setup(items, self._target_setup)
        findings = self._cached_findings(stack, checks, setup)
        self._raise_if_stopped()
        passed = all(finding.passed for finding in findings)
        return len(checks), None if passed else MergedChecksFailed(findings, stack.base, stack.tree)

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

    def _move_target(self, stack: MergeStack, checks_passed: int) -> list[LandingResult]:
        """Move the target to the merged commit, recorded before and after; empty if somebody else moved it."""
        name, merged = self.target.name, stack.merged
        self._landings.note(
            name, [(one.item, LandingMoving(stack.base, stack.top, one.commit, checks_passed)) for one in merged]
        )
        try:
            moved = self.target.move(stack.base, stack.top)
        except Refused:
            self._landings.note(name, [(one.item, LandingQueued()) for one in merged])
            raise
        if moved:
            self._target_moves = 0
            self._add_target_checks(one.item for one in merged)
            return self._record([Landed(one.item, one.commit, name, checks_passed) for one in merged])
        self._landings.note(name, [(one.item, LandingQueued()) for one in merged])
        self._notify(f"{name} was moved by somebody else meanwhile; all of it again, on top of that")
        self._target_moves += 1
        if self._target_moves >= MAX_TARGET_MOVES:
            raise Refused(f"{name} moved {self._target_moves} times while checks ran; nothing is lost: ralph land")
        return []

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
        project, self._scratch = self._project, new_scratch_folder(self._project.store)
        checkout = DisposableCheckout(
            project.root, "", self._environ, project.secrets, self._sandbox, self._stop_requests, self._scratch,
            keeps=True,
        )  # fmt: skip
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


@value
class LandingOptions:
    """`base` is the user's commit: what it contains needs no further checks. With `rebase` commits are replayed, not
    merged; with `unverified` work may land that no check verified. Checks run in the kind of sandbox that the runs had,
    or in `sandbox`.
    """

    base: str = ""
    rebase: bool = False
    unverified: bool = False
    sandbox: str | None = None


def land_items(
    project: Project, ledger: SqliteLedger, target: LandingTarget, items: tuple[LandingItem, ...],
    stop_requests: StopRequests, notify: Callable[[str], None], environ: Mapping[str, str], options: LandingOptions,
) -> tuple[LandingResult, ...]:  # fmt: skip
    """Land items on a branch of this repository; the result of each.

    The ledger must be writable and opened by this thread. On a stop request KeyboardInterrupt is raised and the target
    is not moved.
    """
    kind = options.sandbox or next((one.sandbox for one in items if one.sandbox), None)
    with MergedCheckRunner(project, environ, stop_requests, notify, sandbox=kind) as run_checks:
        lander = Lander(
            project, ledger, target, run_checks, notify, environ=environ, base=options.base, rebase=options.rebase,
            unverified=options.unverified, raise_if_stopped=run_checks.raise_if_stopped,
            target_checks=load_project_checks(project, target, items, environ),
        )  # fmt: skip
        return lander.land(items)


def load_project_checks(
    project: Project, target: LandingTarget, items: tuple[LandingItem, ...], environ: Mapping[str, str]
) -> tuple[AttestedCheck, ...]:
    """The checks of the target's project settings; empty if all items are verified by checks of their own."""
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
        self, project: Project, target: LandingTarget, signals: SignalRouter, notify: Callable[[str], None],
        options: LandingOptions,
    ) -> None:  # fmt: skip
        self._project, self._target, self._signals, self._notify = project, target, signals, notify
        self._options = options
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
        try:
            with closing(self._project.ledger(read_only=False)) as ledger:
                while batch := self._next_batch():
                    for result in land_items(
                        self._project, ledger, self._target, tuple(batch), clock, self._notify, os.environ,
                        self._options,
                    ):  # fmt: skip
                        self._results.put(result)
        finally:
            self._signals.unregister(THREAD_NAME)
            clock.close()

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
