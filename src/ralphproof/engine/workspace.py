"""Snapshots, changes and commits, and the protocols of workspace, tripwires and SCM."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, Protocol, value
from ralphproof.engine.sandbox import CommandWatcher

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_NAMED_PATHS = 10  # in a message


@value
class Snapshot:
    """The saved tree at one moment. `id` is a commit (git) or a content digest (plain). `left_out` names files too
    large to save. Without an `id` the state is unknown: conclude nothing from it.
    """

    id: str | None
    tree: str | None
    ref: str | None = None
    head: str | None = None
    left_out: tuple[str, ...] = ()
    problem: str = ""


@value
class Change:
    """The difference between two snapshots. Paths are relative, `/`-separated, undecodable bytes as surrogates. `known`
    False means that it could not be determined, which is not "nothing changed".
    """

    paths: tuple[str, ...] = ()
    known: bool = True
    tree: str | None = None
    rewritten: bool = False  # the commit that the run began on is no longer an ancestor of HEAD
    committed: bool = False  # HEAD moved
    older: tuple[str, ...] = ()  # the paths last modified before the iteration: by a check or a person
    undone: tuple[str, ...] = ()  # changes of a read-only stage: reverted, and not in `paths`
    kept: str = ""  # where a rewritten history is backed up, and how to restore it

    @property
    def agent_paths(self) -> tuple[str, ...]:
        """The paths changed by the iteration's agent."""
        older = {*self.older}
        return tuple(path for path in self.paths if path not in older)

    @property
    def is_empty(self) -> bool:
        """The iteration is known to have changed no file and committed nothing."""
        return self.same_tree and not self.committed

    @property
    def same_tree(self) -> bool:
        """The iteration changed no file; a commit of existing changes, or an empty one, changes none."""
        return self.known and len(self.paths) == len(self.older)


@value
class TouchedPath:
    """A watched path that changed during the turn.

    `rule` names why it is watched. If it `stops`, the run ends; all others are reverted and reported. `trouble` says
    why it could not be reverted. `held_by` names commits or branches that contain the change, where files alone do not
    show it; `way_out` is the command that removes it from them.
    """

    path: str
    rule: str
    stops: bool = False
    trouble: str = ""
    held_by: str = ""
    way_out: str = ""


@value
class TripwireReport:
    """Result of the tripwires after a turn. `patch` is the file with the reverted change; `remarks` stop nothing.
    `switched` names the branch checked out before the turn and the one after it, where they differ; an empty name is no
    branch.
    """

    touched: tuple[TouchedPath, ...] = ()
    patch: str = ""
    remarks: tuple[str, ...] = ()
    switched: tuple[str, ...] = ()


@value
class CommitResult:
    """Result of a commit to the user's SCM; `error` is empty on success.

    `left` names what the run changed and the commit leaves out, because it was the user's before. `done` are tasks of
    another SCM than git that succeeded. `elsewhere`: the commit is on another branch than the run began on.
    """

    commit: str | None = None
    error: str = ""
    left: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    elsewhere: str = ""

    @property
    def concerns(self) -> tuple[str, ...]:
        """Warnings for the user about work that is not in their SCM as expected."""
        more = f" and {len(self.left) - MAX_NAMED_PATHS} more" if len(self.left) > MAX_NAMED_PATHS else ""
        left = f"left out, because it was not the run's alone: {', '.join(self.left[:MAX_NAMED_PATHS])}{more}"
        return tuple(filter(None, (self.error, self.elsewhere, left if self.left else "")))


@value
class CommitRequest:
    """Passed work to commit: the run's first and present trees, and the agent's message. `user_paths`
    were changed by the user meanwhile; `loop_paths` are the loop's own files, whoever changed them before.
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
        """Mark the start of an iteration, from which `change` tells earlier from later modifications."""

    def has_activity(self) -> bool:
        """Whether files were modified since the mark, or since the last call."""

    def changed_since(self, paths: Iterable[str], instant_ns: int) -> tuple[str, ...]:
        """The paths modified after this instant; a deleted one is judged by its folder."""

    def save(self, run: str, name: str) -> Snapshot:
        """Save the present tree under this name of the run."""

    def find_snapshot(self, run: str, name: str) -> Snapshot | None:
        """The snapshot saved under this name of the run by any process; None where there is none."""

    def change(self, before: Snapshot, after: Snapshot) -> Change:
        """The difference between two snapshots."""

    def diff(self, before: Snapshot, after: Snapshot) -> bytes:
        """The same as a patch."""

    def content(self, snapshot: Snapshot, path: str) -> bytes | None:
        """The content of a file in a snapshot; of a link, its target. None where there was no file, or it cannot be
        read.
        """

    def restore(self, target: Snapshot, now: Snapshot) -> tuple[str, ...]:
        """Restore the files of `target`; returns the paths written or removed. Index and HEAD stay."""

    def log(self, lines: int) -> tuple[str, ...]:
        """The last commits, newest first, one line each; empty where there is no history."""

    def close(self) -> None:
        """End helper processes."""


class Tripwires(Protocol):
    """Watches paths that no agent may change, by content and independently of git."""

    def start_watching(self) -> tuple[str, ...]:
        """At an iteration's start, store the watched content durably, out of the agent's reach; returns warnings."""

    def history_backup(self) -> str:
        """Where the history that the run began on is stored, and how to restore it; empty without a backup."""

    def repository_damage(self) -> str:
        """Why the repository's present state makes all work invalid, and how to repair it."""

    def final_warnings(self) -> tuple[str, ...]:
        """The same for the end of the run, if not reported before."""

    def check_and_restore(self, name: str) -> TripwireReport:
        """Detect changes since the start, revert them, and store them as a patch of this name. A repeated call with the
        same name, even after a crash in the middle, gives the same result.
        """

    def discard(self) -> None:
        """Delete the stored content at the end of the run."""


class Scm(Protocol):
    """Commits passed work to the user's version control."""

    def commit(self, work: CommitRequest, watch: CommandWatcher) -> CommitResult:
        """Commit exactly what the run changed, then run the configured SCM tasks. A commit already begun for this
        iteration is not begun again: its result is returned.
        """
