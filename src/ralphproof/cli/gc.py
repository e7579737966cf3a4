"""`ralph gc`: tidy up what old runs have kept."""

from __future__ import annotations

import os
import time

from ralphproof.cli.gc_policy import GOES, OPEN, UNFINISHED, UNLANDED, Fate, Fates, Policy
from ralphproof.cli.gc_sweep import Held, begun, leftovers, repository_copies, size_of, sweep
from ralphproof.cli.out import answered_yes, must_ask, put, put_json
from ralphproof.cli.parser import Parser, delay, positive
from ralphproof.display.words import count
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.views.project import Project
from ralphproof.views.stance import date

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.value import Json

ABOUT = """tidy up what old runs have kept: saved trees, logs, and their copies in .ralph/runs.

The record of every run stays. Never touched: a run that is at work, lost its harness or waits for somebody, the newest
ones, and those that ended a short while ago; and, unless you say --unlanded, one that alone has something: its last
work, what you had not committed when it began, or what a rewind saved, where no branch has it and your files do not.
A copy of the repository that ralph restore needs goes only when the repository has all of it again.
What goes is shown first, and you are asked. What it had saved in git is freed by the next git gc.
Exit codes: 0 done, 1 something could not be removed, 2 refused."""
EXAMPLES = ("ralph gc --dry-run", "ralph gc --days 7 --keep 5", "ralph gc --yes && git gc --prune=now")
DAYS, KEEP = 30.0, 20
SHOWN = 20


def parser() -> Parser:
    made = Parser("gc", ABOUT, EXAMPLES)
    add = made.add_argument
    add("--days", type=delay, default=DAYS, metavar="D", help=f"only runs that ended so long ago (default {DAYS:g})")
    add("--keep", type=_number, default=KEEP, metavar="K", help=f"never the newest K (default {KEEP})")
    add("--unlanded", action="store_true", help="also runs with work that is nowhere else: it is gone then")
    add("--dry-run", action="store_true", help="only show what would go")
    add("--yes", action="store_true", help="do not ask")
    return made


def _number(text: str) -> int:
    """A whole number; none is one too."""
    return 0 if text == "0" else positive(text)


@value
class Findings:
    """What gc would do: the runs and what is to become of them, folders that nobody uses, and the bytes of each run."""

    fates: list[Fate]
    leftovers: list[str]
    sizes: dict[str, int]
    only_copies: list[str]  # runs whose copy of the repository alone has something

    @property
    def going(self) -> list[Fate]:
        return [fate for fate in self.fates if fate.goes]

    @property
    def unlanded(self) -> list[Fate]:
        return [fate for fate in self.fates if fate.what == UNLANDED]

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    must_ask(args.yes or args.dry_run, args.json, "gc removes files")
    project = Project.seen(args.project_dir, os.environ)
    if args.dry_run:
        found = _look(project, args)
        _show(found, args, dry=True)
        return 0
    project = Project.at(args.project_dir, os.environ)
    found = _look(project, args)
    if not args.json:
        _show(found, args, dry=False)
    if not found.going and not found.leftovers:
        if args.json:
            _tell(found, [], [], args)
        return 0
    if not args.yes and not answered_yes("Remove this?"):
        put("Nothing was removed.")
        return 0
    return _carry_out(project, args, found)


def _look(project: Project, args: Namespace) -> Findings:
    ledger = project.ledger()
    try:
        fates = _fates(project, ledger, args)
    finally:
        ledger.close()
    live = any(fate.what == OPEN for fate in fates)
    unneeded, needed = repository_copies(project)
    found = [*leftovers(project, args.days, live), *unneeded]
    sizes = {fate.row.id: size_of(*_places(project, fate)) for fate in fates if fate.goes}
    return Findings(fates, found, sizes | {path: size_of(path) for path in found}, needed)


def _fates(project: Project, ledger: Sqlite, args: Namespace) -> list[Fate]:
    policy = Policy(args.days, args.keep, args.unlanded)
    with Fates(project, ledger, policy, time.time()) as fates:
        return fates.all()


def _places(project: Project, fate: Fate) -> list[str]:
    shown = {os.path.join(root, ".ralph", "runs", fate.row.id) for root in (project.root, fate.row.directory)}
    return [os.path.join(project.store, "runs", fate.row.id), *sorted(shown)]


def _carry_out(project: Project, args: Namespace, seen: Findings) -> int:
    """Do what was shown, and no more: what changed since is judged anew while nobody can begin."""
    from ralphproof.workspaces.sweep import remove_folder

    wanted = {fate.row.id for fate in seen.going}
    with Held(project, {fate.row.directory for fate in seen.going}) as held:
        again = _look(project, args)
        going = [fate for fate in again.going if fate.row.id in wanted and fate.row.directory not in held.busy]
        gone = {fate.row.id for fate in going}
        stay = [fate.row for fate in again.fates if fate.row.id not in gone]
        sweeping = [one for one in begun(project, _fresh(going)) if one.run in gone]
        failed = sweep(project, sweeping, stay)
        removed = sorted({*again.leftovers} & {*seen.leftovers})
        for path in removed:
            try:
                remove_folder(path)
            except OSError as error:
                failed.append((path, str(error)))
        freed = {fate.row.id: again.sizes[fate.row.id] - size_of(*_places(project, fate)) for fate in going}
        freed |= {path: again.sizes[path] - size_of(path) for path in removed}
    skipped = [(one, held.busy[one]) for one in sorted(held.busy)]
    still = {what for what, _ in failed}
    done = [fate for fate in going if fate.row.id not in still]
    left = [path for path in removed if path not in still]
    _tell(Findings([*done, *again.unlanded], left, freed, again.only_copies), failed, skipped, args)
    return 1 if failed else 0


def _fresh(going: list[Fate]) -> list[Fate]:
    """Without those whose note an earlier gc wrote: it knows what they had."""
    return [fate for fate in going if fate.what == GOES]


def _show(found: Findings, args: Namespace, dry: bool) -> None:
    if args.json:
        _tell(found, [], [], args)
        return
    if found.going:
        held = ", and what git holds of them" if _in_git(found.going) else ""
        put(f"{count(len(found.going), 'run')} would go, {_size(found.bytes)} in files{held}:")
        put(*(_line(fate, found.sizes[fate.row.id]) for fate in found.going[:SHOWN]), *_more(found.going))
    put(*(f"leftover: {path}  {_size(found.sizes[path])}" for path in found.leftovers[:SHOWN]))
    put(*_kept_for_its_work(found))
    kept = "kept: the copy of .git from run {}, because the repository lost some of it; ralph restore {}"
    put(*(kept.format(run, run) for run in found.only_copies))
    if not found.going and not found.leftovers:
        put(f"Nothing is to be removed; {count(len(found.fates), 'run')} kept.")
    elif dry:
        put("Nothing was removed.")


def _line(fate: Fate, size: int) -> str:
    why = ", an earlier gc was cut off" if fate.what == UNFINISHED else ""
    return f"  {fate.row.id}  {date(fate.row.began_at)}  {fate.ended}  {_size(size)}{why}"


def _more(fates: list[Fate]) -> list[str]:
    return [f"  ... and {len(fates) - SHOWN} more"] if len(fates) > SHOWN else []


def _kept_for_its_work(found: Findings) -> list[str]:
    """Old runs that stay because their work is nowhere else, and the way to have it elsewhere."""
    if not found.unlanded:
        return []
    where = "in no branch" if _in_git(found.unlanded) else "nowhere else"
    head = f"{count(len(found.unlanded), 'run')} kept, because what they saved is {where} (--unlanded lets it go):"
    return [head, *map(_way_to_keep, found.unlanded[:SHOWN]), *_more(found.unlanded)]


def _way_to_keep(fate: Fate) -> str:
    """A run that stays, and how each save that is nowhere else becomes a branch, or files."""
    verbs = [(name, "branch" if name.isdigit() and fate.kind == "git" else "rewind") for name in fate.only]
    ways = [f"ralph {verb} {fate.row.id} {name}" for name, verb in verbs]
    return f"  {fate.row.id}  have it: {'; '.join(ways)}"


def _in_git(fates: list[Fate]) -> bool:
    return any(fate.kind == "git" for fate in fates)


def _tell(found: Findings, failed: list[tuple[str, str]], busy: list[tuple[str, str]], args: Namespace) -> None:
    if args.json:
        runs: list[Json] = [{"run": one.row.id, "bytes": found.sizes.get(one.row.id, 0)} for one in found.going]
        kept: list[Json] = [_unlanded(one) for one in found.unlanded]
        wrong: list[Json] = [{"what": what, "why": why} for what, why in (*failed, *busy)]
        put_json(
            "gc",
            {"dryRun": args.dry_run, "runs": runs, "bytes": found.bytes, "unlanded": kept, "failed": wrong}
            | {"leftovers": [*found.leftovers], "repositoryCopies": [*found.only_copies]},
        )
        return
    put(*(f"{what} stays for now: {why}" for what, why in (*failed, *busy)))
    told = f"{count(len(found.going), 'run')} and {count(len(found.leftovers), 'leftover')} removed"
    put(f"{told}, {_size(found.bytes)} in files.")
    if _in_git(found.going):
        put("What git held of them is freed by: git gc --prune=now")


def _unlanded(fate: Fate) -> Json:
    return {"run": fate.row.id, "iteration": fate.number, "saves": [*fate.only]}


def _size(size: int) -> str:
    amount, unit = float(size), "bytes"
    for bigger in ("kB", "MB", "GB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, bigger
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
