"""Landing of a completed loop on a branch of the remote: merged, checked as merged, and moved atomically."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from contextlib import closing

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.programs import ProgramResult, run_program
from ralphproof.fleet.loop_spec import LoopSpec
from ralphproof.fleet.mirror import Mirror
from ralphproof.landing.landing_items import build_landing_item, rejection_reason
from ralphproof.landing.merge_queue import Lander, MergedCheckRunner
from ralphproof.landing.targets import RemoteBranch
from ralphproof.process.signals import RunClock
from ralphproof.store.landings import Landed
from ralphproof.store.project import Project
from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS, USER_GIT_TIMEOUT_S, UserGit

LANDING_TRIES, MAX_RETRY_WAIT_S = 12, 20.0  # others may land meanwhile; each attempt merges onto their work


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


def land_on_remote(spec: LoopSpec, project: Project, mirror: Mirror, clock: RunClock) -> tuple[str, str]:
    """Land the loop's work on its target branch; the commit that the target has now, or the reason why there is none.

    Idempotent: work that the target already has is not merged again. Raises KeyboardInterrupt if interrupted,
    HarnessFailed if the target could not be reached or updated.
    """
    with (
        closing(project.ledger(read_only=False)) as ledger,
        tempfile.TemporaryDirectory(prefix="ralph-land-") as private,
    ):
        row = ledger.row(spec.loop)
        if row is None:
            raise HarnessFailed(f"loop {spec.loop} is not on record here")
        item = build_landing_item(project, ledger, row, os.environ)
        clone = UserGit(project.root, os.environ)
        remote = IsolatedRemote(clone, mirror, os.path.join(private, "git"))
        target = RemoteBranch(clone, spec.repo, spec.target, remote.run)
        _create_target(target, spec, clone, remote)
        with MergedCheckRunner(project, os.environ, clock, _log_line, sandbox=item.sandbox or None) as run_checks:
            for left in range(LANDING_TRIES - 1, -1, -1):
                lander = Lander(
                    project, ledger, target, run_checks, _log_line, environ=os.environ,
                    raise_if_stopped=run_checks.raise_if_stopped,
                )  # fmt: skip
                try:
                    (end,) = lander.land((item,))
                except Refused as error:
                    if not left:
                        raise HarnessFailed(f"{spec.target} could not be moved: {error}") from error
                    _log_line(str(error))
                    run_checks.raise_if_stopped()
                    time.sleep(random.uniform(0.1, 1.0) * MAX_RETRY_WAIT_S / (left + 1))  # noqa: S311 (jitter)
                else:
                    return (end.commit, "") if isinstance(end, Landed) else ("", rejection_reason(end.why))
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
