"""`ralph archive`: archive the stories of a loop."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.planning.archive import FINISHED, Archiver, ArchiveResult, NothingToArchive
from ralphproof.runs.open_project import ProjectLock, open_project
from ralphproof.stories.story_folder import stories_folder

ABOUT = """Archive the stories of a loop and start with empty ones.

prd.md, tasks.json and progress.txt move to ralph-archive/DATE-LABEL/, with a summary.md of the stories, their reviews
and open concerns. Empty files take their place; prompt.md stays. In git exactly these paths are committed, without
hooks; git revert brings the stories back. Refused while a loop runs here. An archive that a crash interrupted is
finished by the next call, which then does its own work.
Exit codes: 0 done, 2 refused, 130 interrupted."""
EXAMPLES = ("ralph archive", "ralph archive --label login")


def build_parser() -> Parser:
    parser = Parser("archive", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("--label", metavar="L", help="archive name after the date (default: the branch of the stories)")
    add("--no-commit", action="store_true", help="do not commit")
    add("--ralph-dir", metavar="PATH", help="the folder of the stories, from the project's top (default ralph)")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    folder = stories_folder(project.root, args.ralph_dir)
    with ProjectLock(project, "archive") as lock:
        archiver = Archiver(project.root, os.environ, commits=not args.no_commit)
        result = _archive(archiver, folder, args.label)
    remarks = [*lock.remarks, *archiver.remarks]
    if args.json:
        print_json("archive", result.as_json() | {"remarks": [*remarks]})
        return 0
    committed = f", committed as {result.commit[:12]}" if result.commit else ""
    prefix = "Finished the interrupted archive: " if result.action == FINISHED else ""
    stories = f"{result.completed} of {result.total} stories completed"
    print_lines(f"{prefix}{result.place} contains the stories: {stories}{committed}")
    print_lines(f"{result.folder} has empty files.", *(f"Note: {remark}" for remark in remarks))
    return 0


def _archive(archiver: Archiver, folder: str, label: str | None) -> ArchiveResult:
    """Finish interrupted archives, then make a new one, unless there is nothing left to archive."""
    finished = archiver.finish_interrupted()
    notes = [f"finished the interrupted archive: {each.place}" for each in finished]
    try:
        result = archiver.archive(folder, label)
    except NothingToArchive:
        if not finished:
            raise
        return finished[-1]
    except Refused as error:
        raise Refused("; ".join((str(error), *notes))) from error
    archiver.remarks += notes
    return result
