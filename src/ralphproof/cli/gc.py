"""`ralph gc`: delete what old runs have kept."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser, positive_int, seconds
from ralphproof.display.output import confirm, print_json, print_lines, require_confirmation
from ralphproof.display.phrases import format_count
from ralphproof.runs.gc import (
    REMOVAL_UNFINISHED,
    REMOVED,
    FolderLocks,
    GcPlan,
    RetentionDecision,
    disk_usage,
    plan_gc,
    record_removals,
    remove_runs,
    run_folders,
)
from ralphproof.runs.open_project import open_project, view_project
from ralphproof.store.project import Project
from ralphproof.views.run_status import format_date

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.base.value import Json


# `ralph gc`: tidy up what old runs have kept.


ABOUT = """tidy up what old runs have kept: saved trees, logs, and their copies in .ralph/runs.

The record of every run stays. Never touched: a run that is at work, lost its harness or waits for somebody, the newest
ones, and those that ended a short while ago; and, unless you say --unlanded, one that alone has something: its last
work, what you had not committed when it began, or what a rewind saved, where no branch has it and your files do not.
A copy of the repository that ralph restore needs goes only when the repository has all of it again.
What goes is shown first, and you are asked. What it had saved in git is freed by the next git gc.
Exit codes: 0 done, 1 something could not be removed, 2 refused."""
EXAMPLES = ("ralph gc --dry-run", "ralph gc --days 7 --keep 5", "ralph gc --yes && git gc --prune=now")
DEFAULT_DAYS, DEFAULT_KEEP = 30.0, 20
MAX_LISTED = 20


def build_parser() -> Parser:
    parser = Parser("gc", ABOUT, EXAMPLES)
    add = parser.add_argument
    add(
        "--days",
        type=seconds,
        default=DEFAULT_DAYS,
        metavar="D",
        help=f"only runs that ended so long ago (default {DEFAULT_DAYS:g})",
    )
    add(
        "--keep",
        type=_whole_number,
        default=DEFAULT_KEEP,
        metavar="K",
        help=f"never the newest K (default {DEFAULT_KEEP})",
    )
    add("--unlanded", action="store_true", help="also runs with work that is nowhere else: it is gone then")
    add("--dry-run", action="store_true", help="only show what would go")
    add("--yes", action="store_true", help="do not ask")
    return parser


def _whole_number(text: str) -> int:
    """A whole number; none is one too."""
    return 0 if text == "0" else positive_int(text)


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    require_confirmation(args.yes or args.dry_run, args.json, "gc removes files")
    project = view_project(args.project_dir, os.environ)
    if args.dry_run:
        found = plan_gc(project, args)
        _print_plan(found, args, dry=True)
        return 0
    project = open_project(args.project_dir, os.environ)
    found = plan_gc(project, args)
    if not args.json:
        _print_plan(found, args, dry=False)
    if not found.going and not found.leftovers:
        if args.json:
            _print_result(found, [], [], args)
        return 0
    if not args.yes and not confirm("Remove this?"):
        print_lines("Nothing was removed.")
        return 0
    return _execute_plan(project, args, found)


def _execute_plan(project: Project, args: Namespace, seen: GcPlan) -> int:
    """Do what was shown, and no more: what changed since is judged anew while nobody can begin."""
    from ralphproof.workspace.pruning import remove_folder

    wanted = {fate.row.id for fate in seen.going}
    with FolderLocks(project, {fate.row.directory for fate in seen.going}) as held:
        again = plan_gc(project, args)
        going = [fate for fate in again.going if fate.row.id in wanted and fate.row.directory not in held.busy]
        gone = {fate.row.id for fate in going}
        stay = [fate.row for fate in again.fates if fate.row.id not in gone]
        sweeping = [one for one in record_removals(project, _without_earlier_notes(going)) if one.run in gone]
        failed = remove_runs(project, sweeping, stay)
        removed = sorted({*again.leftovers} & {*seen.leftovers})
        for path in removed:
            try:
                remove_folder(path)
            except OSError as error:
                failed.append((path, str(error)))
        freed = {fate.row.id: again.sizes[fate.row.id] - disk_usage(*run_folders(project, fate)) for fate in going}
        freed |= {path: again.sizes[path] - disk_usage(path) for path in removed}
    skipped = [(one, held.busy[one]) for one in sorted(held.busy)]
    still = {what for what, _ in failed}
    done = [fate for fate in going if fate.row.id not in still]
    left = [path for path in removed if path not in still]
    _print_result(GcPlan([*done, *again.unlanded], left, freed, again.only_copies), failed, skipped, args)
    return 1 if failed else 0


def _without_earlier_notes(going: list[RetentionDecision]) -> list[RetentionDecision]:
    """Without those whose note an earlier gc wrote: it knows what they had."""
    return [fate for fate in going if fate.what == REMOVED]


def _print_plan(found: GcPlan, args: Namespace, dry: bool) -> None:
    if args.json:
        _print_result(found, [], [], args)
        return
    if found.going:
        held = ", and what git holds of them" if _any_in_git(found.going) else ""
        print_lines(f"{format_count(len(found.going), 'run')} would go, {_format_size(found.bytes)} in files{held}:")
        print_lines(
            *(_fate_line(fate, found.sizes[fate.row.id]) for fate in found.going[:MAX_LISTED]),
            *_more_lines(found.going),
        )
    print_lines(*(f"leftover: {path}  {_format_size(found.sizes[path])}" for path in found.leftovers[:MAX_LISTED]))
    print_lines(*_unsaved_work_lines(found))
    kept = "kept: the copy of .git from run {}, because the repository lost some of it; ralph restore {}"
    print_lines(*(kept.format(run, run) for run in found.only_copies))
    if not found.going and not found.leftovers:
        print_lines(f"Nothing is to be removed; {format_count(len(found.fates), 'run')} kept.")
    elif dry:
        print_lines("Nothing was removed.")


def _fate_line(fate: RetentionDecision, size: int) -> str:
    why = ", an earlier gc was cut off" if fate.what == REMOVAL_UNFINISHED else ""
    return f"  {fate.row.id}  {format_date(fate.row.began_at)}  {fate.ended}  {_format_size(size)}{why}"


def _more_lines(fates: list[RetentionDecision]) -> list[str]:
    return [f"  ... and {len(fates) - MAX_LISTED} more"] if len(fates) > MAX_LISTED else []


def _unsaved_work_lines(found: GcPlan) -> list[str]:
    """Old runs that stay because their work is nowhere else, and the way to have it elsewhere."""
    if not found.unlanded:
        return []
    where = "in no branch" if _any_in_git(found.unlanded) else "nowhere else"
    head = (
        f"{format_count(len(found.unlanded), 'run')} kept, because what they saved is {where} (--unlanded lets it go):"
    )
    return [head, *map(_keep_hint, found.unlanded[:MAX_LISTED]), *_more_lines(found.unlanded)]


def _keep_hint(fate: RetentionDecision) -> str:
    """A run that stays, and how each save that is nowhere else becomes a branch, or files."""
    verbs = [(name, "branch" if name.isdigit() and fate.kind == "git" else "rewind") for name in fate.only]
    ways = [f"ralph {verb} {fate.row.id} {name}" for name, verb in verbs]
    return f"  {fate.row.id}  have it: {'; '.join(ways)}"


def _any_in_git(fates: list[RetentionDecision]) -> bool:
    return any(fate.kind == "git" for fate in fates)


def _print_result(found: GcPlan, failed: list[tuple[str, str]], busy: list[tuple[str, str]], args: Namespace) -> None:
    if args.json:
        runs: list[Json] = [{"run": one.row.id, "bytes": found.sizes.get(one.row.id, 0)} for one in found.going]
        kept: list[Json] = [_unlanded_json(one) for one in found.unlanded]
        wrong: list[Json] = [{"what": what, "why": why} for what, why in (*failed, *busy)]
        print_json(
            "gc",
            {"dryRun": args.dry_run, "runs": runs, "bytes": found.bytes, "unlanded": kept, "failed": wrong}
            | {"leftovers": [*found.leftovers], "repositoryCopies": [*found.only_copies]},
        )
        return
    print_lines(*(f"{what} stays for now: {why}" for what, why in (*failed, *busy)))
    told = f"{format_count(len(found.going), 'run')} and {format_count(len(found.leftovers), 'leftover')} removed"
    print_lines(f"{told}, {_format_size(found.bytes)} in files.")
    if _any_in_git(found.going):
        print_lines("What git held of them is freed by: git gc --prune=now")


def _unlanded_json(fate: RetentionDecision) -> Json:
    return {"run": fate.row.id, "iteration": fate.number, "saves": [*fate.only]}


def _format_size(size: int) -> str:
    amount, unit = float(size), "bytes"
    for bigger in ("kB", "MB", "GB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, bigger
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
