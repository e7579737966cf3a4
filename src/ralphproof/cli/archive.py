"""`ralph archive`: archive the stories of a loop, or undo that."""

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

ABOUT = """Archive the stories of a loop and start with empty ones.

prd.md, tasks.json and progress.txt move to ralph-archive/DATE-LABEL/, with a summary.md of the stories, their reviews
and open concerns. Empty files take their place; prompt.md stays. In git exactly these paths are committed, with your
hooks; if the commit fails, everything is moved back. Refused while a loop runs here. An archive that a crash
interrupted is completed by the next call, which then does its own work.
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
    add("--label", metavar="L", help="archive name after the date (default: the branch of the stories)")
    add("--undo", metavar="LABEL", nargs="?", const="", help="restore the last archive, or the one with this label")
    add("--force", action="store_true", help="with --undo: move files written since aside instead of refusing")
    add("--no-commit", action="store_true", help="do not commit")
    add("--ralph-dir", metavar="PATH", help="the folder of the stories, from the project's top (default ralph)")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    if args.undo is not None and args.label is not None:
        raise Refused("--label names a new archive, --undo restores one; leave one of them out")
    if args.force and args.undo is None:
        raise Refused("--force needs --undo: archiving overwrites nothing")
    project = open_project(args.project_dir, os.environ)
    folder = stories_folder(project.root, args.ralph_dir)
    with ProjectLock(project, "archive") as lock:
        archivist = Archivist(project.root, os.environ, commits=not args.no_commit)
        result = _archive_or_undo(archivist, folder, args)
    _print_result(result, [*lock.remarks, *archivist.remarks], args)
    return 0


def _archive_or_undo(archivist: Archivist, folder: str, args: Namespace) -> Filed:
    """Finish an interrupted archive, then do what was asked for, unless that was the same."""
    recovered = archivist.end_unfinished()
    restored = [each for each in recovered if each.action == UNDONE and args.undo is not None]
    if match := next((each for each in restored if means(args.undo, each.name, each.label)), None):
        return match
    notes = [f"finished the interrupted archive: {os.path.join(ARCHIVES, each.name)}" for each in recovered]
    try:
        if args.undo is not None:
            result = archivist.undo(args.undo, args.ralph_dir, args.force)
        else:
            result = archivist.archive(folder, args.label)
    except NothingToArchive:
        if not recovered:
            raise
        return recovered[-1]
    except Refused as error:
        raise Refused("; ".join((str(error), *notes))) from error
    archivist.remarks += notes
    return result


def _print_result(result: Filed, remarks: list[str], args: Namespace) -> None:
    place = os.path.join(ARCHIVES, result.name)
    if args.json:
        facts: dict[str, Json] = {
            "action": result.action,
            "archive": place,
            "folder": result.folder,
            "commit": result.commit,
        }
        facts |= {"label": result.label, "concerns": [*result.concerns]}
        counts = {"completed": result.completed, "total": result.total}
        print_json("archive", {**facts, **counts, "remarks": [*remarks]})
        return
    stories = f"{result.completed} of {result.total} stories completed"
    committed = f", committed as {result.commit[:12]}" if result.commit else ""
    if result.action == UNDONE:
        print_lines(f"{place} is restored to {result.folder}: {stories}{committed}")
    else:
        prefix = "Finished the interrupted archive: " if result.action == FINISHED else ""
        print_lines(f"{prefix}{place} contains the stories: {stories}{committed}")
        print_lines(f"{result.folder} has empty files. Undo: ralph archive --undo {result.name}")
    print_lines(*(f"Note: {remark}" for remark in remarks))
