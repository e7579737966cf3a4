"""`ralph run --detach` and `ralph run --worktree`: runs in a process or a worktree of their own."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.display.output import print_json, print_lines
from ralphproof.engine.outcome import Completed
from ralphproof.landing.worktree_run import discard_unused_worktree, finish_worktree_run, move_to_worktree
from ralphproof.runs.children import submit_child_request
from ralphproof.runs.detach import BEGIN_FLAG, RESUME_FLAG, read_harness_log_tail, spawn_run, wait_until_begun
from ralphproof.runs.observers import execute_observed
from ralphproof.runs.open_project import open_project
from ralphproof.runs.request import load_request, save_request
from ralphproof.runs.resume import load_resumed_request
from ralphproof.runs.spec import prepare_spec
from ralphproof.runs.target import RUN_ID_VARIABLE, find_enclosing_run
from ralphproof.sandbox.selection import SANDBOX_VARIABLE
from ralphproof.store.run_folder import RunFolder, new_run_id

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.engine.outcome import Outcome
    from ralphproof.process.keeper_client import KeeperClient
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec
    from ralphproof.runs.target import RunTarget
    from ralphproof.store.project import Project


def run_in_worktree(spec: RunSpec, keeper: KeeperClient, args: Namespace, target: RunTarget) -> Outcome:
    """Run to the end in a worktree of its own, then keep or remove that worktree."""
    try:
        outcome = execute_observed(spec, keeper, args, target)
    except RalphError:
        discard_unused_worktree(spec.project)
        raise
    run = target.row.id if target.row else target.run
    for line in finish_worktree_run(spec.project, run, isinstance(outcome, Completed)):
        if not args.quiet:
            print(collapse_lines(sanitize(spec.project.mask(line))), file=sys.stderr)
    return outcome


def run_detached(args: Namespace, request: RunRequest) -> int:
    """Start a run in a background process. An invalid request is refused here and not in a log."""
    for flag in ("dry_run", "explain", "step"):
        if getattr(args, flag, False):
            raise Refused(f"--detach and --{flag.replace('_', '-')} do not go together; give one")
    if args.resume is not None:
        return _resume_detached(args, request)
    project = prepare_spec(request).project
    run, request = new_run_id(time.time(), os.urandom(3)), replace(request, project_dir=project.root)
    if request.in_worktree:
        request, worktree, notes = move_to_worktree(request, project, run)
        project = replace(project, root=worktree.path)
        for line in notes:
            print(sanitize(project.mask(line)), file=sys.stderr)
    if parent := _request_from_parent(project, run, request):
        # Inside a sandbox the records cannot be read.
        begun = not os.environ.get(SANDBOX_VARIABLE) and wait_until_begun(project, run) is None
        return _print_started(run, args, f"run {run} is requested; {parent} starts it", begun)
    save_request(RunFolder(project.root, run, project.store), request, project.mask)
    return _spawn_and_wait(project, run, args, BEGIN_FLAG)


def _resume_detached(args: Namespace, request: RunRequest) -> int:
    row, request = load_resumed_request(open_project(args.project_dir, os.environ), args.resume, request)
    project = prepare_spec(request).project
    save_request(RunFolder(project.root, row.id, project.store), request, project.mask)
    return _spawn_and_wait(project, row.id, args, RESUME_FLAG)


def _spawn_and_wait(project: Project, run: str, args: Namespace, how: str) -> int:
    """Start the background process and wait until it owns the run; if it fails, print its log and return its code."""
    code = wait_until_begun(project, run, spawn_run(run, project.root, project.store, os.environ, how))
    if code is None:
        return _print_started(run, args, f"run {run} continues in the background", True)
    sys.stderr.write(sanitize(project.mask(read_harness_log_tail(project.store, run))))
    return code or 1


def _request_from_parent(project: Project, run: str, request: RunRequest) -> str:
    """Inside an agent's turn, hand the request to the enclosing run's harness and return that run; else empty.

    A process started here would end with the turn.
    """
    folder = os.environ.get("TASK_FOLDER", "")
    boxed = os.environ.get(RUN_ID_VARIABLE, "") if os.environ.get(SANDBOX_VARIABLE) else ""
    parent = (boxed or find_enclosing_run(project)) if folder else ""
    if parent:
        submit_child_request(folder, run, request, project.mask)
    return parent


def _print_started(run: str, args: Namespace, line: str, begun: bool) -> int:
    if args.json:
        print_json("detached", {"run": run, "begun": begun})
    else:
        print_lines(f"{line}; follow it: ralph attach {run}; end it: ralph cancel {run}")
    return 0


def load_ordered_request(run: str, folder: str | None) -> RunRequest:
    """The request that `--detach` saved for a run."""
    project = open_project(folder, os.environ)
    saved = load_request(RunFolder(project.root, run, project.store))
    if saved is None:
        raise Refused(f"no run was requested as {run}; --begin is for ralph itself, ralph run begins one")
    return saved[0]
