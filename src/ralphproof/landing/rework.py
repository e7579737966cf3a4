"""Rework: one more iteration for finished work that could not land."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine.check import CheckReport
from ralphproof.landing.results import rejection_reason
from ralphproof.store.landings import MergeConflict, MergedChecksFailed, NotVerified
from ralphproof.workspace.git_command import UserGit

if TYPE_CHECKING:
    from ralphproof.runs.request import RunRequest
    from ralphproof.store.landings import LandingRejected
    from ralphproof.workspace.worktrees import RunWorktree


STAGES = ("coder", "reviewer", "tester", "qa")
MAX_LISTED, MAX_OUTPUT_CHARS = 20, 4000
CONFLICT_MARKER_PATTERN = "^(<<<<<<<|>>>>>>>) "  # a line of seven equal signs may underline a headline


@value
class Rework:
    """Work that was rejected: `commit` was merged onto the target's commit `onto`, which gave `tree`.

    `message` tells the agent what to fix; `paths` are files with conflict markers.
    """

    onto: str
    tree: str
    commit: str
    why: str
    message: str
    paths: tuple[str, ...] = ()

    @staticmethod
    def of(end: LandingRejected, target: str) -> Rework | None:
        """The rework of a rejection; None where the agent cannot fix it."""
        why = end.why
        if isinstance(why, NotVerified) or not why.tree:
            return None
        first = (
            f"Your work on this task was finished, and then it could not be put onto the branch {target}, which has "
            f"moved on since. The files here are now those of {target} with your work merged into them. "
        )
        paths = why.paths if isinstance(why, MergeConflict) else ()
        return Rework(why.onto, why.tree, end.item.commit, rejection_reason(why), first + _rework_prompt(why), paths)


def _rework_prompt(why: MergeConflict | MergedChecksFailed) -> str:
    if isinstance(why, MergeConflict):
        named = "\n".join(f"- {path}" for path in why.paths[:MAX_LISTED])
        return (
            f"Both changed the same places, and these files hold conflict markers:\n\n{named}\n\nResolve every "
            "conflict so that both changes keep their meaning, and leave no marker behind."
        )
    shown = CheckReport(why.findings).visible.failed  # findings of hidden checks are not shown to agents
    failed = "\n\n".join(f"{one.check}: {one.why}\n{one.output[-MAX_OUTPUT_CHARS:]}" for one in shown[:MAX_LISTED])
    return (
        "Each passes its checks alone, and together they fail. Fix that without undoing what the other did. "
        f"What failed:\n\n{failed}"
    )


def prepare_rework(request: RunRequest, worktree: RunWorktree, rework: Rework) -> RunRequest:
    """Check the merged files out in the worktree, and return the request for one more iteration.

    The work as it was stays in the refs of its run. The worktree's branch is moved to the target's commit, so that all
    that differs from it belongs to this task.
    """
    git = UserGit(worktree.path, os.environ)
    git.run("read-tree", "--reset", "-u", rework.tree)
    git.run("update-ref", "-m", "ralph: on top of what landed", f"refs/heads/{worktree.branch}", rework.onto)
    git.run("symbolic-ref", "HEAD", f"refs/heads/{worktree.branch}")  # the agent may have checked out another branch
    git.run("read-tree", "--reset", "-i", rework.onto)
    left = [stage for stage in STAGES if stage not in request.skip_stages]
    flags = {**request.flags, "maximumIterations": 1}
    return replace(
        request,
        project_dir=worktree.path,
        in_worktree=True,
        message=rework.message,
        flags=flags,
        skip_stages=(*request.skip_stages, *left[1:]),
    )


def files_with_conflict_markers(git: UserGit, commit: str, base: str) -> list[str]:
    """Files with conflict markers that `base` does not have: checks that do not read the files would miss them."""

    def marked(revision: str) -> set[str]:
        argv = ("grep", "-l", "-z", "-I", "-E", "--full-name", "-e", CONFLICT_MARKER_PATTERN, revision, "--")
        names = git.run(*argv, good=(0, 1)).out.split(b"\0")
        return {name.partition(b":")[2].decode("utf-8", "replace") for name in names if name}

    return sorted(marked(commit) - marked(base))
