"""`ralph archive`: put the stories of a loop away, and begin with fresh ones."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.planning.archive import FINISHED, UNDONE, Archivist
from ralphproof.planning.archive_draft import NothingToArchive
from ralphproof.planning.archive_record import means
from ralphproof.runs.open_project import open_project
from ralphproof.runs.project_lock import ProjectLock
from ralphproof.stories.story_folder import ARCHIVES, stories_folder

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.base.value import Json
    from ralphproof.planning.archive import Filed

ABOUT = """put the stories of a loop away, and begin with fresh ones.

prd.md, tasks.json and progress.txt are moved to ralph-archive/DATE-LABEL/, with a summary.md of the stories, their
reviews and what somebody should look at. Fresh ones take their place; prompt.md stays as it is. In git exactly these
paths are committed, with your hooks; where that fails everything is moved back. While a loop works here nothing is
done. What a crash cut off is ended by the next call, which then does what it is asked for.
Exit codes: 0 done, 2 refused, 130 interrupted."""
EXAMPLES = (
    "ralph archive",
    "ralph archive --label login",
    "ralph archive --undo",
    "ralph archive --undo login",
)


def build_parser() -> Parser:
    parser = Parser("archive", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("--label", metavar="L", help="what the archive is called, after the date (default: the branch of the stories)")
    add("--undo", metavar="LABEL", nargs="?", const="", help="bring the last archive back, or the one of this name")
    add("--force", action="store_true", help="with --undo: set aside what was written since, instead of refusing")
    add("--no-commit", action="store_true", help="leave git alone")
    add("--ralph-dir", metavar="PATH", help="the folder of the stories, from the project's top (default ralph)")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    if args.undo is not None and args.label is not None:
        raise Refused("--label names a new archive, and --undo brings one back; leave one of them out")
    if args.force and args.undo is None:
        raise Refused("--force goes with --undo: an archive overwrites nothing")
    project = open_project(args.project_dir, os.environ)
    folder = stories_folder(project.root, args.ralph_dir)
    with ProjectLock(project, "archive") as alone:
        archivist = Archivist(project.root, os.environ, commits=not args.no_commit)
        filed = _archive_or_undo(archivist, folder, args)
    _print_result(filed, [*alone.remarks, *archivist.remarks], args)
    return 0


def _archive_or_undo(archivist: Archivist, folder: str, args: Namespace) -> Filed:
    """End what was cut off, then do what is asked for, unless that was it."""
    ended = archivist.end_unfinished()
    back = [one for one in ended if one.action == UNDONE and args.undo is not None]
    if meant := next((one for one in back if means(args.undo, one.name, one.label)), None):
        return meant
    finished = [f"what was cut off is finished: {os.path.join(ARCHIVES, one.name)}" for one in ended]
    try:
        if args.undo is not None:
            filed = archivist.undo(args.undo, args.ralph_dir, args.force)
        else:
            filed = archivist.archive(folder, args.label)
    except NothingToArchive:
        if not ended:
            raise
        return ended[-1]
    except Refused as error:
        raise Refused("; ".join((str(error), *finished))) from error
    archivist.remarks += finished
    return filed


def _print_result(filed: Filed, remarks: list[str], args: Namespace) -> None:
    place = os.path.join(ARCHIVES, filed.name)
    if args.json:
        facts: dict[str, Json] = {
            "action": filed.action,
            "archive": place,
            "folder": filed.folder,
            "commit": filed.commit,
        }
        facts |= {"label": filed.label, "concerns": [*filed.concerns]}
        counts = {"completed": filed.completed, "total": filed.total}
        print_json("archive", {**facts, **counts, "remarks": [*remarks]})
        return
    stories = f"{filed.completed} of {filed.total} stories completed"
    committed = f", committed as {filed.commit[:12]}" if filed.commit else ""
    if filed.action == UNDONE:
        print_lines(f"{place} is back in {filed.folder}: {stories}{committed}")
    else:
        again = "What was cut off is finished: " if filed.action == FINISHED else ""
        print_lines(f"{again}{place} has the stories: {stories}{committed}")
        print_lines(f"{filed.folder} has fresh files. Undo: ralph archive --undo {filed.name}")
    print_lines(*(f"Note: {remark}" for remark in remarks))
