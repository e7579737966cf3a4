"""Snapshots, changes and commits, and the protocols of workspace, tripwires and SCM."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, Protocol, value
from ralphproof.engine.sandbox import CommandWatcher

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_NAMED_PATHS = 10  # of the paths that a commit leaves out


@value
class Snapshot:
    """The whole tree at one moment, saved. `id` is a commit (git) or a content digest (plain).

    `left_out` names files too large to save. Without an `id` the state is unknown: conclude nothing from it.
    """

    id: str | None
    tree: str | None
    ref: str | None = None
    head: str | None = None
    left_out: tuple[str, ...] = ()
    problem: str = ""


@value
class Change:
    """What differs between two snapshots. Paths are relative, `/`-separated, undecodable bytes as surrogates.

    `known` False means that we could not tell: that is not "nothing changed".
    """

    paths: tuple[str, ...] = ()
    known: bool = True
    tree: str | None = None
    rewritten: bool = False  # the commit that the run began on is no longer an ancestor of HEAD
    committed: bool = False  # HEAD moved
    older: tuple[str, ...] = ()  # those of the paths last touched before the iteration: by a check, or a person
    undone: tuple[str, ...] = ()  # what a stage changed that only looks: it was put back, and is none of the paths
    kept: str = ""  # where the history is that the run began on, and how to have it, where it was rewritten

    @property
    def agent_paths(self) -> tuple[str, ...]:
        """The paths that the iteration's agent touched."""
        older = {*self.older}
        return tuple(path for path in self.paths if path not in older)

    @property
    def is_empty(self) -> bool:
        """The iteration changed no file and committed nothing, as far as we know: and we do know."""
        return self.same_tree and not self.committed

    @property
    def same_tree(self) -> bool:
        """The iteration changed no file; to commit what was there, or nothing, changes none."""
        return self.known and len(self.paths) == len(self.older)


@value
class TouchedPath:
    """Something watched that is not as it was before the turn.

    `rule` names why it is watched. One that `stops` ends the run; all others are put back and told. `trouble` says why
    it could not be put back. `held_by` names commits or branches that hold the change, where files alone do not tell;
    `way_out` is the command that takes it out of them.
    """

    path: str
    rule: str
    stops: bool = False
    trouble: str = ""
    held_by: str = ""
    way_out: str = ""


@value
class TripwireReport:
    """What the tripwires saw after a turn. `patch` is the file that keeps the attempt; `remarks` stop nothing.

    `switched` names the branch that was checked out before the turn, and the one after it, where they differ; an empty
    name is no branch.
    """

    touched: tuple[TouchedPath, ...] = ()
    patch: str = ""
    remarks: tuple[str, ...] = ()
    switched: tuple[str, ...] = ()


@value
class CommitResult:
    """What came of keeping work in the user's SCM; `error` is empty where it worked.

    `left` names what the run changed and the commit does not hold, because it was the user's before. `done` are tasks
    of another SCM than git that ended well: what came of them is its own affair. `elsewhere` says that the commit is on
    another branch than the run began on.
    """

    commit: str | None = None
    error: str = ""
    left: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    elsewhere: str = ""

    @property
    def concerns(self) -> tuple[str, ...]:
        """What a user must know of work that is not where they keep theirs."""
        more = f" and {len(self.left) - MAX_NAMED_PATHS} more" if len(self.left) > MAX_NAMED_PATHS else ""
        left = f"left out, because it was not the run's alone: {', '.join(self.left[:MAX_NAMED_PATHS])}{more}"
        return tuple(filter(None, (self.error, self.elsewhere, left if self.left else "")))


@value
class CommitRequest:
    """Passed work that is to be kept: the trees that the run began on and came to, and the agent's message for it.

    `theirs` is what the user changed meanwhile, `ours` what belongs to the loop whoever changed it before.
    """

    iteration: int
    message: str
    began: Snapshot
    now: Snapshot
    user_paths: tuple[str, ...] = ()
    loop_paths: tuple[str, ...] = ()


class Workspace(Protocol):
    """A project directory. Saving never touches the user's index, HEAD or files."""

    root: str
    kind: str  # git or plain

    def begin(self, run: str) -> Snapshot:
        """Save the tree as the run finds it, the user's uncommitted work included."""

    def mark_iteration_start(self) -> None:
        """An iteration begins: `change` tells what was touched from now on from what was touched before."""

    def has_activity(self) -> bool:
        """Whether files were touched since the mark, or since this was last asked."""

    def changed_since(self, paths: Iterable[str], instant_ns: int) -> tuple[str, ...]:
        """Those of the paths that were last touched after this instant; for a deleted one its folder tells."""

    def save(self, run: str, name: str) -> Snapshot:
        """Save the tree now, under this name of the run."""

    def find_snapshot(self, run: str, name: str) -> Snapshot | None:
        """What was saved under this name of the run before, by whichever process; None where nothing is."""

    def change(self, before: Snapshot, after: Snapshot) -> Change:
        """What differs between two snapshots."""

    def diff(self, before: Snapshot, after: Snapshot) -> bytes:
        """The same as a patch."""

    def content(self, snapshot: Snapshot, path: str) -> bytes | None:
        """What a file held then; a link's is where it leads. None where there was no file, or it cannot be told."""

    def restore(self, target: Snapshot, now: Snapshot) -> tuple[str, ...]:
        """Make the files those of `target`; return the paths written or removed. Index and HEAD stay."""

    def log(self, lines: int) -> tuple[str, ...]:
        """The last commits, newest first, one line each; empty where there is no history."""

    def close(self) -> None:
        """Let go of helper processes."""


class Tripwires(Protocol):
    """Watches what no agent may change: by content, whatever git says of it."""

    def start_watching(self) -> tuple[str, ...]:
        """An iteration begins: remember what is watched as it now is, out of the agent's reach, durably.

        Returned is what the user must know of that.
        """

    def history_backup(self) -> str:
        """Where the history that the run began on is, looked up now, and how to have it; empty where it is nowhere."""

    def repository_damage(self) -> str:
        """Why no work counts on the repository as it now is, and how to have it back as it was."""

    def final_warnings(self) -> tuple[str, ...]:
        """The same to be said at the end of the run, if it was not said before."""

    def check_and_restore(self, name: str) -> TripwireReport:
        """What changed since. It is put back, and the attempt kept as a patch of this name.

        Asked again under the same name, after a crash in the middle of it too, this ends with the same answer.
        """

    def discard(self) -> None:
        """The run is over: forget what was watched."""


class NoTripwires:
    """No tripwires."""

    def start_watching(self) -> tuple[str, ...]:
        return ()

    def history_backup(self) -> str:
        return ""

    def repository_damage(self) -> str:
        return ""

    def final_warnings(self) -> tuple[str, ...]:
        return ()

    def check_and_restore(self, name: str) -> TripwireReport:
        return TripwireReport()

    def discard(self) -> None:
        """Nothing was kept."""


class Scm(Protocol):
    """Keeps passed work where the user keeps theirs."""

    def commit(self, work: CommitRequest, watch: CommandWatcher) -> CommitResult:
        """Commit exactly what the run changed, then whatever else was asked for.

        What was begun for this iteration before is not begun again: its end is told.
        """
