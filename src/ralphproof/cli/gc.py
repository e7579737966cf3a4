"""`ralph gc`: delete what old runs have kept."""

from __future__ import annotations

import os
from argparse import Namespace

from ralphproof.base.value import Json
from ralphproof.cli.parser import Parser, positive_int, seconds
from ralphproof.display.output import MAX_LISTED, confirm, indented_list, print_json, print_lines, require_confirmation
from ralphproof.display.phrases import format_count
from ralphproof.runs.gc import REMOVAL_UNFINISHED, GcPlan, RetentionDecision, RetentionPolicy, execute_gc, plan_gc
from ralphproof.runs.open_project import open_project, view_project
from ralphproof.views.run_status import format_date

ABOUT = """Delete what old runs have saved: snapshots, logs, and their copies in .ralph/runs.

The record of every run stays. Never deleted: live runs, runs that lost their harness or wait for a person, the newest
runs, runs that ended a short while ago; and, without --unlanded, runs that hold the only copy of something: their last
work, your uncommitted changes at their start, or the files that a rewind saved. A repository copy that ralph restore
needs is deleted only when the repository has all of it again. The list is shown first, and you are asked. Space that
git uses is freed by the next git gc.
Exit codes: 0 done, 1 something could not be deleted, 2 refused."""
EXAMPLES = ("ralph gc --dry-run", "ralph gc --days 7 --keep 5", "ralph gc --yes && git gc --prune=now")
DEFAULT_DAYS, DEFAULT_KEEP = 30.0, 20


def gc_parser() -> Parser:
    parser = Parser("gc", ABOUT, EXAMPLES)
    add = parser.add
    add(
        "--days D",
        f"only runs that ended at least D days ago (default {DEFAULT_DAYS:g})",
        type=seconds,
        default=DEFAULT_DAYS,
    )
    add("--keep K", f"keep the newest K runs (default {DEFAULT_KEEP})", type=_whole_number, default=DEFAULT_KEEP)
    add("--unlanded", "also delete runs that hold the only copy of their work")
    add("--dry-run", "only show what would be deleted")
    add("--yes", "do not ask for confirmation")
    return parser


def _whole_number(text: str) -> int:
    """A whole number, 0 or more."""
    return 0 if text == "0" else positive_int(text)


def gc_main(argv: list[str]) -> int:
    args = gc_parser().parse(argv)
    require_confirmation(args.yes or args.dry_run, args.json, "gc removes files")
    policy = RetentionPolicy(args.days, args.keep, args.unlanded)
    if args.dry_run:
        _print_plan(plan_gc(view_project(args.project_dir, os.environ), policy), args, dry=True)
        return 0
    project = open_project(args.project_dir, os.environ)
    plan = plan_gc(project, policy)
    if not args.json:
        _print_plan(plan, args, dry=False)
    if not plan.removed and not plan.leftovers:
        if args.json:
            _print_result(plan, [], args)
        return 0
    if not args.yes and not confirm("Remove this?"):
        print_lines("Nothing was removed.")
        return 0
    result = execute_gc(project, policy, plan)
    _print_result(result.done, [*result.failed, *result.busy], args)
    return 1 if result.failed else 0


def _print_plan(plan: GcPlan, args: Namespace, dry: bool) -> None:
    if args.json:
        _print_result(plan, [], args)
        return
    if plan.removed:
        in_git = ", and what git holds of them" if _any_in_git(plan.removed) else ""
        print_lines(f"{format_count(len(plan.removed), 'run')} would go, {_format_size(plan.bytes)} in files{in_git}:")
        print_lines(*indented_list([_decision_line(one, plan.sizes[one.row.id]) for one in plan.removed]))
    print_lines(*(f"leftover: {path}  {_format_size(plan.sizes[path])}" for path in plan.leftovers[:MAX_LISTED]))
    print_lines(*_unsaved_work_lines(plan))
    note = "kept: the copy of .git from run {}, because the repository lost some of it; ralph restore {}"
    print_lines(*(note.format(run, run) for run in plan.only_copies))
    if not plan.removed and not plan.leftovers:
        print_lines(f"Nothing is to be removed; {format_count(len(plan.decisions), 'run')} kept.")
    elif dry:
        print_lines("Nothing was removed.")


def _decision_line(decision: RetentionDecision, size: int) -> str:
    why = ", an earlier gc was cut off" if decision.reason == REMOVAL_UNFINISHED else ""
    return f"{decision.row.id}  {format_date(decision.row.began_at)}  {decision.outcome}  {_format_size(size)}{why}"


def _unsaved_work_lines(plan: GcPlan) -> list[str]:
    """Old runs that stay because they hold the only copy of their work, and how to save it."""
    if not plan.unlanded:
        return []
    where = "in no branch" if _any_in_git(plan.unlanded) else "nowhere else"
    head = (
        f"{format_count(len(plan.unlanded), 'run')} kept, because what they saved is {where} (--unlanded lets it go):"
    )
    return [head, *indented_list([*map(_keep_hint, plan.unlanded)])]


def _keep_hint(decision: RetentionDecision) -> str:
    """A run that stays, and the commands that turn its snapshots into a branch or files."""
    verbs = [
        (name, "branch" if name.isdigit() and decision.kind == "git" else "rewind") for name in decision.unique_saves
    ]
    ways = [f"ralph {verb} {decision.row.id} {name}" for name, verb in verbs]
    return f"{decision.row.id}  have it: {'; '.join(ways)}"


def _any_in_git(decisions: list[RetentionDecision]) -> bool:
    return any(decision.kind == "git" for decision in decisions)


def _print_result(plan: GcPlan, failed: list[tuple[str, str]], args: Namespace) -> None:
    if args.json:
        runs: list[Json] = [{"run": one.row.id, "bytes": plan.sizes.get(one.row.id, 0)} for one in plan.removed]
        kept: list[Json] = [_unlanded_json(one) for one in plan.unlanded]
        wrong: list[Json] = [{"what": what, "why": why} for what, why in failed]
        print_json(
            "gc",
            {"dryRun": args.dry_run, "runs": runs, "bytes": plan.bytes, "unlanded": kept, "failed": wrong}
            | {"leftovers": [*plan.leftovers], "repositoryCopies": [*plan.only_copies]},
        )
        return
    print_lines(*(f"{what} stays for now: {why}" for what, why in failed))
    summary = f"{format_count(len(plan.removed), 'run')} and {format_count(len(plan.leftovers), 'leftover')} removed"
    print_lines(f"{summary}, {_format_size(plan.bytes)} in files.")
    if _any_in_git(plan.removed):
        print_lines("What git held of them is freed by: git gc --prune=now")


def _unlanded_json(decision: RetentionDecision) -> Json:
    return {"run": decision.row.id, "iteration": decision.last_iteration, "saves": [*decision.unique_saves]}


def _format_size(size: int) -> str:
    amount, unit = float(size), "bytes"
    for bigger in ("kB", "MB", "GB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, bigger
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
