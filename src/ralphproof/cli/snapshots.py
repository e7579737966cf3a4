"""What iterations saved: `ralph diff`, `ralph rewind`, `ralph branch` and `ralph restore`."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.value import Json
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display.output import (
    MAX_LISTED,
    confirm,
    indented_list,
    print_json,
    print_lines,
    print_result,
    require_confirmation,
)
from ralphproof.display.phrases import format_count, format_diffstat, parse_diffstat
from ralphproof.display.terminal import DIM, GREEN, PLAIN, RED, use_color
from ralphproof.runs.open_project import open_project, view_project
from ralphproof.runs.saved_work import (
    SHORT_HASH_CHARS,
    RestoreResult,
    RewindTarget,
    SavedWork,
    branch_saved_work,
    excluded_file_lines,
    load_saved_work,
    parse_rewind_target,
    restore_repository,
    rewind_files,
)
from ralphproof.views.snapshots import diff_summary_json, run_patch
from ralphproof.workspace.commits import CommitPlan

# ralph diff


DIFF_ABOUT = """Show what a run or one of its iterations changed, as a patch.

Without N: everything from the start of the run to its last snapshot. With N: the changes of that iteration. A single
number of up to three digits is an iteration of the latest run."""
DIFF_EXAMPLES = (
    "ralph diff",
    "ralph diff --stat",
    "ralph diff 2",
    "ralph diff 20261115-21 3 --raw | git apply --check -R",
)


def diff_parser() -> Parser:
    parser = Parser("diff", DIFF_ABOUT, DIFF_EXAMPLES)
    parser.add_run()
    parser.add("number", "iteration (default: the whole run)", nargs="?", metavar="N")
    parser.add("--stat", "print only the changed lines per file")
    parser.add("--raw", "print the unescaped bytes, for git apply")
    return parser


def diff_main(argv: list[str]) -> int:
    args = diff_parser().parse(argv)
    name, number = parse_target(args.run, args.number)
    project = view_project(args.project_dir, os.environ)
    with project.ledger() as ledger:
        row = find_named_run(ledger, name, args)
        records = ledger.records(row.id)
    print_patch(run_patch(project, row, records, number), row.id, number, args)
    return 0


def parse_target(run: str | None, number: str | None) -> tuple[str | None, int | None]:
    """The run and iteration that the arguments name."""
    if number is None and run is not None and run.isascii() and run.isdigit() and len(run) <= 3:
        run, number = None, run
    if number is None:
        return run, None
    if not (number.isascii() and number.isdigit() and int(number) > 0):
        raise Refused(f"{number!r} is not an iteration; they are counted from 1")
    return run, int(number)


def print_patch(patch: bytes, run: str, number: int | None, args: Namespace) -> None:
    """Print the patch or its statistics."""
    if args.json:
        data = diff_summary_json(run, number, patch)
        print_json("diff", data if args.stat else data | {"patch": patch.decode("utf-8", "surrogateescape")})
    elif args.stat:
        print_lines(*format_diffstat(parse_diffstat(patch)))
    elif args.raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(patch)
    else:
        _print_patch_lines(patch, args.no_color)


def _print_patch_lines(patch: bytes, no_color: bool) -> None:
    coloured = use_color(no_color, "auto", sys.stdout.isatty())
    for line in patch.decode("utf-8", "replace").split("\n")[:-1]:
        tint = {"+": GREEN, "-": RED, "@": DIM}.get(line[:1], "") if coloured else ""
        print(f"{tint}{sanitize(line)}{PLAIN if tint else ''}")


# ralph rewind


REWIND_ABOUT = """Restore the files as an iteration of a run left them; 0 is the start of the run.

The present files are saved first, so this can be undone: the name to go back to is printed. Only files change: index,
HEAD, branches and ignored files stay. Refused while a run works here."""
REWIND_EXAMPLES = (
    "ralph rewind latest 2",
    "ralph rewind 20261115-21 0 --yes",
    "ralph rewind latest before-rewind-20261115-213000",
)


def rewind_parser() -> Parser:
    parser = Parser("rewind", REWIND_ABOUT, REWIND_EXAMPLES)
    parser.add("run", "run id, unique prefix, or latest", metavar="RUN")
    parser.add("where", "an iteration, 0, or the name that an earlier rewind printed", metavar="N")
    parser.add("--yes", "do not ask for confirmation")
    return parser


def rewind_main(argv: list[str]) -> int:
    args = rewind_parser().parse(argv)
    where = parse_rewind_target(args.where)
    require_confirmation(args.yes, args.json, "rewind changes files")
    project = open_project(args.project_dir, os.environ)
    with project.ledger() as ledger:
        row = find_named_run(ledger, args.run, args)
        target = RewindTarget(row, ledger.records(row.id), where)

        def accept(paths: tuple[str, ...]) -> bool:
            if not args.json:
                print_lines(f"{format_count(len(paths), 'file')} would change:", *indented_list(paths))
            return args.yes or confirm(f"Restore the files of {target.place}?")

        result = rewind_files(project, ledger, target, accept)
    if result is None:
        print_lines("Nothing was changed.")
    elif args.json:
        print_json("rewind", {"run": row.id, "to": where, "saved": result.saved, "paths": [*result.paths]})
    elif not result.paths:
        print_lines(f"The files are already those of {target.place}.")
    else:
        print_lines(
            f"The files are those of {target.place}; {format_count(len(result.paths), 'file')} changed.",
            f"Undo: ralph rewind {row.id} {result.saved}",
        )
    return 0


# ralph branch


BRANCH_ABOUT = """Create a branch with an iteration's work.

The branch has one commit of yours on top of the commit that the iteration was based on; 0 is the start of the run, with
your uncommitted changes of that time. Index, HEAD and files stay, and no hook runs. Left out and listed are files too
large to be saved, new files that look like secrets, and files whose filter only .git/config defines.
Exit codes: 0 done, 2 refused."""
BRANCH_EXAMPLES = (
    "ralph branch latest 2",
    "ralph branch 20261115-21 0 --name what-i-had",
    "ralph branch latest 3 --name login --force",
)


def branch_parser() -> Parser:
    parser = Parser("branch", BRANCH_ABOUT, BRANCH_EXAMPLES)
    parser.add("run", "run id, unique prefix, or latest", metavar="RUN")
    parser.add("number", "iteration; 0 is the start of the run", metavar="N")
    parser.add("--name BRANCH", "branch name (default: ralph/RUN-N)")
    parser.add("--force", "move an existing branch, unless it is checked out")
    return parser


def branch_main(argv: list[str]) -> int:
    args = branch_parser().parse(argv)
    if not (args.number.isascii() and args.number.isdigit() and len(args.number) < 10):
        raise Refused(f"{args.number!r} is not an iteration; they are counted from 1, and 0 is the start")
    project = view_project(args.project_dir, os.environ)
    with project.ledger() as ledger:
        row = find_named_run(ledger, args.run, args, shown=True)
        records = ledger.records(row.id)
    work = load_saved_work(project, row, records, int(args.number))
    name, commit, plan = branch_saved_work(project, work, args.name, force=args.force)
    _print_branch(args, work, name, commit, plan)
    return 0


def _print_branch(args: Namespace, work: SavedWork, name: str, commit: str, plan: CommitPlan) -> None:
    if args.json:
        excluded: list[Json] = [{"path": one.path, "why": one.reason} for one in plan.excluded]
        facts: dict[str, Json] = {"run": work.row.id, "iteration": work.number, "branch": name, "commit": commit}
        paths: list[Json] = [path for _, path in plan.changes]
        print_json("branch", facts | {"parent": plan.parent, "paths": paths, "leftOut": excluded})
        return
    base = f"on top of {plan.parent[:12]}" if plan.parent else "without a parent"
    summary = "no change to its base commit" if plan.empty else format_count(len(plan.changes), "file")
    print_lines(
        f"Branch {name} has {work.place}, {base}: {summary}.",
        *excluded_file_lines(plan),
        f"Show it: git log -p -1 {name}",
    )


# ralph restore


RESTORE_ABOUT = """Restore a destroyed repository from the copy that a run kept.

Every run copies .git to the state folder when it begins. If the repository provably has all of it when the run ends,
the copy is deleted; else it stays, and the run says so. This command restores it: history, branches, tags, snapshots
of runs, index, hooks and settings, as of the last turn that began before the damage, or else as of the run's start.

The present .git is moved aside, never deleted, and its new path is printed. Your files are not touched; those that
differ from the restored commit are listed. It refuses if the present repository has commits that the copy lacks;
--force moves them aside too. It can be repeated, also after it was killed.
Exit codes: 0 done, or nothing to do; 2 refused; 3 the copy could not be read or written."""
RESTORE_EXAMPLES = (
    "ralph restore",
    "ralph restore 20261115-21 --dry-run",
    "ralph restore latest --force   # over a newly created repository",
    "mkdir project && ralph restore 20261115-21 -d project && git -C project checkout -- .",
)


def restore_parser() -> Parser:
    parser = Parser("restore", RESTORE_ABOUT, RESTORE_EXAMPLES)
    add = parser.add
    parser.add_run("run id, unique prefix, or latest: the newest kept copy (default)")
    add("--force", "restore even if the present repository has commits that the copy lacks")
    add("--dry-run", "only print what would be done")
    return parser


def restore_main(argv: list[str]) -> int:
    args = restore_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    result = restore_repository(project, args.run, force=args.force, dry_run=args.dry_run)
    print_result(args.json, "restore", result.to_json(), *_restore_lines(result))
    return 0


def _restore_lines(result: RestoreResult) -> list[str]:
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
    lines = [f"Moved aside earlier: {one}" for one in result.before]
    if result.moved_aside:
        lines.insert(0, f"The previous .git is now {result.moved_aside}; delete it when you do not need it.")
    return lines


def _file_lines(result: RestoreResult) -> list[str]:
    if not result.restored:
        return []
    if result.differing is None:
        return ["Your files were not touched. Whether they differ from HEAD is unknown; see: git status"]
    if not result.differing:
        return ["Your files match HEAD."]
    head = f"Your files were not touched; {len(result.differing)} of them differ from HEAD:"
    return [head, *indented_list(result.differing)]
