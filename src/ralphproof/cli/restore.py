"""`ralph restore`: restore a destroyed repository from a run's copy."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.runs.open_project import view_project
from ralphproof.runs.restore import SHORT_HASH_CHARS, find_repository_copy, refuse_live_runs, restore_repository
from ralphproof.store.locks import DirectoryLock

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.base.value import Json
    from ralphproof.runs.restore import RestoreResult


ABOUT = """put a destroyed repository together again, from the copy that a run kept.

Every run copies .git to the state folder when it begins. If the repository provably has all of it when the run ends,
the copy is deleted; else it stays, and the run says so. This command puts it back: history, branches, tags, what runs
saved, the index, hooks and settings, as of the last turn that began before the damage, or else as of the run's start.

The present .git is moved aside, never deleted, and the message says where to. Your files are not touched; those that
differ from the restored commit are listed. It refuses where the present repository has commits that the copy lacks;
--force moves them aside too. You can repeat it, also after it was killed.
Exit codes: 0 done, or there was nothing to do; 2 refused; 3 the copy could not be read or written."""
EXAMPLES = (
    "ralph restore",
    "ralph restore 20261115-21 --dry-run",
    "ralph restore latest --force   # over a repository that was made anew",
    "mkdir project && ralph restore 20261115-21 -d project && git -C project checkout -- .",
)
MAX_LISTED = 20


def build_parser() -> Parser:
    parser = Parser("restore", ABOUT, EXAMPLES)
    add = parser.add_argument
    add(
        "run", nargs="?", metavar="RUN", help="run id, unique prefix, or latest: the newest copy that is kept (default)"
    )
    add("--force", action="store_true", help="also where the present repository has commits that the copy lacks")
    add("--dry-run", action="store_true", help="only say what would be done")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    copy = find_repository_copy(project, args.run)
    lock = DirectoryLock(project.state_dir, project.root, "restore")
    lock.take()
    try:
        for store in dict.fromkeys((copy.store, project.store)):
            refuse_live_runs(replace(project, store=store))
        done = restore_repository(copy, args)
    finally:
        lock.release()
    _print_result(args, done)
    return 0


def _print_result(args: Namespace, done: RestoreResult) -> None:
    if args.json:
        newer: list[Json] = [{"ref": one.ref, "commit": one.commit} for one in done.newer]
        facts: dict[str, Json] = {"run": done.run, "restored": done.restored, "dryRun": args.dry_run, "lost": done.lost}
        facts |= {"aside": done.aside or None, "earlierAsides": [*done.before], "refs": done.refs, "newer": newer}
        files: Json = None if done.differing is None else [*done.differing]
        print_json(
            "restore",
            facts
            | {
                "head": done.head or None,
                "asOfLatestTurn": done.latest,
                "differing": files,
                "laterRefs": [*done.named],
            },
        )
        return
    if not done.lost and not done.restored and not args.dry_run:
        print_lines(
            f"The repository has all that the copy of run {done.run} has; nothing was changed.", *_aside_lines(done)
        )
        return
    when = "its last turn" if done.latest else "its start"
    head = f", HEAD at {done.head[:SHORT_HASH_CHARS]}" if done.head else ""
    verb = "is" if done.restored else "would be"
    print_lines(f"The repository {verb} that of run {done.run} at {when}: {done.refs} refs{head}.")
    if done.lost:
        print_lines(
            f"It was put back because {done.lost}." if done.restored else f"It would be put back because {done.lost}."
        )
    print_lines(*(f"What was committed since is kept: git log {one}" for one in done.named[:MAX_LISTED]))
    print_lines(*_aside_lines(done), *_file_lines(done))
    if not done.restored:
        print_lines(
            *(
                f"Only the present repository has {one.ref} ({one.commit[:SHORT_HASH_CHARS]})."
                for one in done.newer[:MAX_LISTED]
            )
        )
        print_lines("Nothing was changed.")


def _aside_lines(done: RestoreResult) -> list[str]:
    now = [f"What stood in its place is now {done.aside}; delete it when you do not need it."] if done.aside else []
    return [*now, *(f"Moved aside earlier: {one}" for one in done.before)]


def _file_lines(done: RestoreResult) -> list[str]:
    if not done.restored:
        return []
    if done.differing is None:
        return ["Your files were not touched. Whether they differ from HEAD could not be told; see: git status"]
    if not done.differing:
        return ["Your files are those of HEAD."]
    more = [f"  ... and {len(done.differing) - MAX_LISTED} more"] if len(done.differing) > MAX_LISTED else []
    head = f"Your files were not touched; {len(done.differing)} of them differ from HEAD:"
    return [head, *(f"  {path}" for path in done.differing[:MAX_LISTED]), *more]
