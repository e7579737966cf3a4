"""Results of completed loops: commits and landing on a branch of the remote."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.run_program import ProgramResult, run_program
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.outcome import Completed
from ralphproof.engine.state import RunOver, build_state
from ralphproof.landing.merge_queue import Lander, MergedCheckRunner, build_landing_item
from ralphproof.landing.results import rejection_reason
from ralphproof.landing.targets import RemoteBranch
from ralphproof.runs.saved_work import load_saved_work
from ralphproof.store.landings import Landed
from ralphproof.views.snapshots import snapshots_by_iteration
from ralphproof.workspace.commit_builder import CommitBuilder
from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS, USER_GIT_TIMEOUT_S, UserGit
from ralphproof.workspace.secret_files import secret_reason

if TYPE_CHECKING:
    from ralphproof.base.value import Json
    from ralphproof.engine.records import Record
    from ralphproof.fleet.mirror import Mirror
    from ralphproof.fleet.submission import LoopSpec
    from ralphproof.process.signals import RunClock
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project


# Landing on a branch of the remote: merge without a work tree, check the merged tree, move the branch atomically.


LANDING_TRIES, MAX_RETRY_WAIT_S = 12, 20.0  # others may land meanwhile; each attempt merges onto their work


@value
class FleetLandingResult:
    """Result of landing a loop's work: the commit that the target has now, or the reason why there is none."""

    commit: str = ""
    why: str = ""

    @property
    def published(self) -> dict[str, Json]:
        return {"commit": self.commit, "why": self.why}


class IsolatedRemote:
    """Runs git commands to the remote in a bare repository of its own that shares the objects of the loop's clone.

    Only the worker's git settings apply: those of the clone can be written by an agent.
    """

    def __init__(self, clone: UserGit, mirror: Mirror, folder: str) -> None:
        self._git, self._folder = clone.git, folder
        self._env = mirror.env | {"GIT_OBJECT_DIRECTORY": os.path.join(clone.folders.common, "objects")}
        self.run("init", "-q", "--bare")
        if head := clone.resolve_commit("HEAD"):
            self.run("update-ref", "refs/have", head)  # so that only what is missing is fetched

    def run(self, *args: str, good: tuple[int, ...] = (0,), timeout_s: float = USER_GIT_TIMEOUT_S) -> ProgramResult:
        """The result of a git command; raises Refused if its exit code is not among the accepted ones."""
        argv = [self._git, "--git-dir", self._folder, *NO_HOOKS_OPTIONS, *args]
        result = run_program(argv, self._env, timeout_s=timeout_s)
        if result.code not in good:
            raise Refused(f"git {' '.join(args)[:200]}: {result.said or result.code}")
        return result


def land_on_remote(spec: LoopSpec, project: Project, mirror: Mirror, clock: RunClock) -> FleetLandingResult:
    """Land the loop's work on its target branch. Idempotent: work that the target already has is not merged again.

    Raises KeyboardInterrupt if interrupted, HarnessFailed if the target could not be reached or updated.
    """
    ledger = project.ledger(read_only=False)
    try:
        row = ledger.row(spec.loop)
        if row is None:
            raise HarnessFailed(f"loop {spec.loop} is not on record here")
        with tempfile.TemporaryDirectory(prefix="ralph-land-") as private:
            clone = UserGit(project.root, os.environ)
            remote = IsolatedRemote(clone, mirror, os.path.join(private, "git"))
            return _land_item(spec, project, ledger, row, clone, remote, clock)
    finally:
        ledger.close()


def _land_item(
    spec: LoopSpec,
    project: Project,
    ledger: SqliteLedger,
    row: RunRow,
    clone: UserGit,
    remote: IsolatedRemote,
    clock: RunClock,
) -> FleetLandingResult:
    item = build_landing_item(project, ledger, row, os.environ)
    target = RemoteBranch(clone, spec.repo, spec.target, remote.run)
    _create_target(target, spec, clone, remote)
    with MergedCheckRunner(project, os.environ, clock, _log_line, sandbox=item.sandbox or None) as run_checks:
        for left in range(LANDING_TRIES - 1, -1, -1):
            try:
                lander = Lander(
                    project, ledger, target, run_checks, _log_line, environ=os.environ,
                    raise_if_stopped=run_checks.raise_if_stopped,
                )  # fmt: skip
                (end,) = lander.land((item,))
                return (
                    FleetLandingResult(end.commit)
                    if isinstance(end, Landed)
                    else FleetLandingResult(why=rejection_reason(end.why))
                )
            except Refused as error:
                if not left:
                    raise HarnessFailed(f"{spec.target} could not be moved: {error}") from error
                _log_line(str(error))
                run_checks.raise_if_stopped()
                time.sleep(random.uniform(0.1, 1.0) * MAX_RETRY_WAIT_S / (left + 1))  # noqa: S311 (jitter)
    raise AssertionError("the last attempt returns or raises")


def _create_target(target: RemoteBranch, spec: LoopSpec, clone: UserGit, remote: IsolatedRemote) -> None:
    """Create the target branch on the remote if it is missing, at the loop's base commit."""
    if target.tip():
        return
    base = RemoteBranch(clone, spec.repo, spec.base, remote.run).tip() or clone.resolve_commit(spec.base)
    if not base:
        raise HarnessFailed(f"there is no branch {spec.target} on the remote, and no {spec.base} to make it of")
    target.move("", base)


def _log_line(line: str) -> None:
    print(f"landing: {line}", file=sys.stderr)


# The result of a completed loop as a commit, and its refs on the remote.


@value
class LoopResult:
    """The commit of a completed loop, and a description of the files that it leaves out."""

    commit: str
    left_out: tuple[str, ...] = ()


def load_loop_result(project: Project, row: RunRow, records: tuple[Record, ...]) -> LoopResult | None:
    """The result; None if the run has not ended or was not completed."""
    state = build_state(records)
    if not (isinstance(state.phase, RunOver) and isinstance(state.phase.outcome, Completed)):
        return None
    if state.scm.committed.commit and not state.scm.uncommitted:
        return LoopResult(state.scm.committed.commit)
    work = load_saved_work(project, row, records, max(snapshots_by_iteration(records)))
    with CommitBuilder(project.root, os.environ) as landable:
        landing = landable.plan(work.snapshot, secret_reason)
        commit = landing.parent if landing.empty else None
        commit = commit or landable.user_git.commit(landing.tree, landing.parent, work.message)
    return LoopResult(commit, tuple(f"{one.path}: {one.reason}" for one in landing.excluded))


def result_refs(spec: LoopSpec, result: LoopResult) -> tuple[tuple[str, str], ...]:
    """(commit, ref) pairs of the result, pushed atomically with the last record.

    The ref is the loop's own branch, so that the work is on the remote even if landing fails.
    """
    return ((result.commit, f"refs/heads/ralph/{spec.loop}"),)
