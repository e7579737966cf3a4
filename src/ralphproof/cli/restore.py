"""`ralph restore`: restore a destroyed repository from a run's copy."""

from __future__ import annotations

import os

from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.runs.open_project import view_project
from ralphproof.runs.saved_work import SHORT_HASH_CHARS, RestoreResult, restore_repository

ABOUT = """Restore a destroyed repository from the copy that a run kept.

Every run copies .git to the state folder when it begins. If the repository provably has all of it when the run ends,
the copy is deleted; else it stays, and the run says so. This command restores it: history, branches, tags, snapshots
of runs, index, hooks and settings, as of the last turn that began before the damage, or else as of the run's start.

The present .git is moved aside, never deleted, and its new path is printed. Your files are not touched; those that
differ from the restored commit are listed. It refuses if the present repository has commits that the copy lacks;
--force moves them aside too. It can be repeated, also after it was killed.
Exit codes: 0 done, or nothing to do; 2 refused; 3 the copy could not be read or written."""
EXAMPLES = (
    "ralph restore",
    "ralph restore 20261115-21 --dry-run",
    "ralph restore latest --force   # over a newly created repository",
    "mkdir project && ralph restore 20261115-21 -d project && git -C project checkout -- .",
)
MAX_LISTED = 20


def build_parser() -> Parser:
    parser = Parser("restore", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("run", nargs="?", metavar="RUN", help="run id, unique prefix, or latest: the newest kept copy (default)")
    add("--force", action="store_true", help="restore even if the present repository has commits that the copy lacks")
    add("--dry-run", action="store_true", help="only print what would be done")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    result = restore_repository(project, args.run, force=args.force, dry_run=args.dry_run)
    if args.json:
        print_json("restore", result.to_json())
    else:
        print_lines(*_result_lines(result))
    return 0


def _result_lines(result: RestoreResult) -> list[str]:
    if not result.lost and not result.restored and not result.dry_run:
        done = f"The repository has everything in the copy of run {result.run}; nothing was changed."
        return [done, *_aside_lines(result)]
    when = "its last turn" if result.latest else "its start"
    head = f", HEAD at {result.head[:SHORT_HASH_CHARS]}" if result.head else ""
    verb = "is" if result.restored else "would be"
    lines = [f"The repository {verb} that of run {result.run} at {when}: {result.refs} refs{head}."]
    if result.lost:
        lines.append(f"It {'was' if result.restored else 'would be'} put back because {result.lost}.")
    lines += [f"Later commits are kept: git log {one}" for one in result.named[:MAX_LISTED]]
    lines += [*_aside_lines(result), *_file_lines(result)]
    if not result.restored:
        newer = result.newer[:MAX_LISTED]
        lines += [f"Only the present repository has {one.ref} ({one.commit[:SHORT_HASH_CHARS]})." for one in newer]
        lines.append("Nothing was changed.")
    return lines


def _aside_lines(result: RestoreResult) -> list[str]:
    now = (
        [f"The previous .git is now {result.moved_aside}; delete it when you do not need it."]
        if result.moved_aside
        else []
    )
    return [*now, *(f"Moved aside earlier: {one}" for one in result.before)]


def _file_lines(result: RestoreResult) -> list[str]:
    if not result.restored:
        return []
    if result.differing is None:
        return ["Your files were not touched. Whether they differ from HEAD is unknown; see: git status"]
    if not result.differing:
        return ["Your files match HEAD."]
    more = [f"  ... and {len(result.differing) - MAX_LISTED} more"] if len(result.differing) > MAX_LISTED else []
    head = f"Your files were not touched; {len(result.differing)} of them differ from HEAD:"
    return [head, *(f"  {path}" for path in result.differing[:MAX_LISTED]), *more]
