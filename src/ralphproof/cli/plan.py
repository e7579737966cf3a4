"""Plans with stories: `ralph plan` and `ralph archive`."""

from __future__ import annotations

import os
import shlex
from argparse import Namespace
from collections.abc import Callable

from ralphproof.base.errors import Refused
from ralphproof.base.standard_streams import flush_streams, read_stdin_text
from ralphproof.base.value import Json, replace
from ralphproof.cli.parser import Parser
from ralphproof.cli.run_flags import add_agent_flags, agent_request, progress_printer, settings_from_flags
from ralphproof.display.output import align_columns, print_json, print_lines
from ralphproof.display.phrases import describe_outcome, format_count
from ralphproof.display.terminal import DisplayFlags
from ralphproof.engine.outcome import ABORTED, COMPLETED, outcome_fields
from ralphproof.planning.archive import FINISHED, Archiver, ArchiveResult, NothingToArchive
from ralphproof.planning.drafting import PlanCheck, plan_request, plan_unattended
from ralphproof.planning.plan_dialogue import has_terminal, plan_interactively
from ralphproof.planning.plan_files import FULL, MODES, PlanFiles, PlanResult
from ralphproof.runs.open_project import ProjectLock, open_project
from ralphproof.runs.spec import prepare_spec
from ralphproof.settings.loader import load_settings
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.project import Project
from ralphproof.stories.story_folder import folder_flags, stories_folder
from ralphproof.tasks.plans import PromptPlan

# ralph plan


PLAN_ABOUT = """Write the requirements and stories of a feature with an agent.

At a terminal the agent takes it over, asks you, and writes ralph/prd.md and ralph/tasks.json; when you leave its
session, the plan is checked. If prd.md has content already, the stories are derived from it, and it stays. The agent's
own program reports the cost of such a session.

With --from nobody is asked: the requirements come from FILE, and planning is a normal run with records and limits. If
prd.md has content already, name it as FILE, or replace it with --force.

An invalid plan is sent back to the agent with all its errors, at most 5 times. Stories with progress are overwritten
only with --force, and a copy is kept. After an interruption the agent's files stay, except for half-written stories:
the last complete ones are restored.

Exit codes: 0 written and valid; 1 invalid after all tries, or a limit was reached; 2 refused; 130 interrupted."""
PLAN_EXAMPLES = (
    "ralph plan",
    "ralph plan --agent codex",
    "ralph plan --from docs/export.md --max-cost-usd 2",
    "ralph plan --from ralph/prd.md --json",
)
NO_TERMINAL = "ralph plan needs a terminal to ask questions; without one use --from FILE (- is stdin)"
STDIN_IS_TERMINAL = "--from - reads standard input, which is a terminal; pipe the requirements in"
NEEDS_FROM = "{} needs --from: you end a session at your terminal yourself"


def plan_parser() -> Parser:
    parser = Parser("plan", PLAN_ABOUT, PLAN_EXAMPLES)
    add = parser.add
    add("--from FILE", "read the requirements from FILE and ask nothing; - is standard input", dest="source")
    add("--ralph-dir PATH", "folder of the stories, relative to the project (default ralph)")
    add("--force", "overwrite stories with progress and, with --from, prd.md")
    add_agent_flags(parser)
    return parser


def plan_main(argv: list[str]) -> int:
    args = plan_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    lock = DirectoryLock(project.state_dir, project.root, "plan")
    lock.take()  # while somebody else works here, the files are not complete
    try:
        files = PlanFiles(project, args.ralph_dir)
    finally:
        lock.release()
    _refuse_missing_input(args)
    if not args.force:
        files.refuse_progress()
    requirements, next_command = _requirements(args, files, project.root), _run_command(project, files.folder)
    tell = progress_printer(project, args.quiet)
    tell(f"mode: {MODES[files.mode]}")
    result = _make_plan(args, files, requirements, project, tell)
    result = replace(result, remarks=(*filter(None, [files.copies]), *result.remarks))
    try:
        (_print_json if args.json else _print_text)(result, files, next_command, project)
    except OSError:
        pass  # the output is closed; the exit code tells the result
    flush_streams()
    return result.exit_code


def _make_plan(
    args: Namespace, files: PlanFiles, requirements: str, project: Project, tell: Callable[[str], None]
) -> PlanResult:
    interactive, check = args.source is None, PlanCheck(files)
    prompt = files.prompt(interactive, requirements)
    request = agent_request(args, ("", None), settings_from_flags(args))
    spec = prepare_spec(plan_request(request, project.root, prompt, check, interactive))
    if not interactive:
        again = f"ralph plan --from {shlex.quote(args.source)}{folder_flags(files.folder)}"
        return plan_unattended(DisplayFlags.of(args), spec, files, check, again, tell)
    for remark in spec.remarks:
        tell(remark)
    return plan_interactively(spec, files, tell)


def _refuse_missing_input(args: Namespace) -> None:
    """Refuse a plan without a terminal or --from, and limits without --from."""
    if args.source == "-" and has_terminal():
        raise Refused(STDIN_IS_TERMINAL)
    if args.source is not None:
        return
    for name in ("max_cost_usd", "max_minutes"):
        if getattr(args, name) is not None:
            raise Refused(NEEDS_FROM.format(f"--{name.replace('_', '-')}"))
    if not has_terminal():
        raise Refused(NO_TERMINAL)


def _requirements(args: Namespace, files: PlanFiles, root: str) -> str:
    """The requirements in FILE; empty if the user is asked or prd.md has them. Refuses both at once."""
    if args.source is None:
        return ""
    if args.source == "-":
        text = PromptPlan(read_stdin_text("--from -"), called="standard input").read().tasks[0].prompt
    else:
        path = os.path.realpath(args.source)
        if path == os.path.realpath(os.path.join(root, files.prd)):
            if not files.has_prd:
                raise Refused(f"{files.prd} is empty; write it, or give another FILE")
            return ""
        text = PromptPlan(None, path, called=f"--from {args.source}").read().tasks[0].prompt
    if files.has_prd and not args.force:
        flags = shlex.quote(os.path.relpath(os.path.join(root, files.prd))) + folder_flags(files.folder)
        raise Refused(
            f"{files.prd} has requirements already; plan by them: ralph plan --from {flags}, "
            "or replace it with --force: a copy is kept"
        )
    files.mode = FULL
    return text


def _run_command(project: Project, folder: str) -> str:
    """The command that begins a loop over the stories."""
    preset = "" if load_settings(project.root, os.environ).settings.preset == "stories" else " --preset stories"
    return f"ralph run{preset}{folder_flags(folder)}"


def _print_json(result: PlanResult, files: PlanFiles, next_command: str, project: Project) -> None:
    document = files.document()
    stories: list[Json] = [
        {
            "id": story["id"], "title": story["title"], "priority": story["priority"],
            "dependsOn": story.get("dependsOn", []), "acceptanceCriteria": len(story["acceptanceCriteria"]),
        }
        for story in (document["userStories"] if document else ())
    ]  # fmt: skip
    outcome = (
        outcome_fields(result.outcome) if result.outcome else {"status": ABORTED if result.exit_code else COMPLETED}
    )
    print_json("plan", {
        **{name: inner for name, inner in outcome.items() if name not in ("output", "lastOutput")},
        "mode": files.mode, "valid": document is not None, "prd": files.prd, "tasks": files.tasks, "stories": stories,
        "sentBack": result.sent_back,
        "problems": [project.mask(line) for line in result.problems],
        "remarks": [project.mask(line) for line in result.remarks],
        "copies": files.place if files.copies else None,
        "run": result.run or None, "next": next_command if document else None, "exitCode": result.exit_code,
    })  # fmt: skip


def _print_text(result: PlanResult, files: PlanFiles, next_command: str, project: Project) -> None:
    lines: list[str] = []
    document = files.document() if result.exit_code == 0 else None
    if document:
        rows = [
            (story["id"], f"{story['priority']:g}", ", ".join(story.get("dependsOn", ())),
             str(len(story["acceptanceCriteria"])), story["title"])
            for story in document["userStories"]
        ]  # fmt: skip
        lines += align_columns([("id", "priority", "depends on", "criteria", "title"), *rows])
        lines += (f"verify: {command}" for command in document.get("verifyCommands", ()))
        last = f"review {files.prd} and {files.tasks}, then begin: {next_command}"
    else:
        if result.problems:
            times = format_count(result.sent_back, "time")
            lines += (
                f"the plan is not valid, sent back {times}; still wrong:",
                *(f"  {one}" for one in result.problems),
            )
        if result.outcome:
            lines += describe_outcome(result.outcome)
        again = f"mend it by hand, or plan again: ralph plan{folder_flags(files.folder)}"
        last = f"{files.folder}/ is left as it is; {again}" if result.problems else f"begin: {next_command}"
        if result.exit_code == 130:
            valid = "" if result.problems else f"; as it stands it is valid, and {next_command} would begin with it"
            last = f"interrupted; what was written stays in {files.folder}/{valid}"
    lines += (f"note: {remark}" for remark in result.remarks)
    print_lines(*map(project.mask, (*lines, last)))


# ralph archive


ARCHIVE_ABOUT = """Archive the stories of a loop and start with empty ones.

prd.md, tasks.json and progress.txt move to ralph-archive/DATE-LABEL/, with a summary.md of the stories, their reviews
and open concerns. Empty files take their place; prompt.md stays. In git exactly these paths are committed, without
hooks; git revert brings the stories back. Refused while a loop runs here. An archive that a crash interrupted is
finished by the next call, which then does its own work.
Exit codes: 0 done, 2 refused, 130 interrupted."""
ARCHIVE_EXAMPLES = ("ralph archive", "ralph archive --label login")


def archive_parser() -> Parser:
    parser = Parser("archive", ARCHIVE_ABOUT, ARCHIVE_EXAMPLES)
    add = parser.add
    add("--label L", "archive name after the date (default: the branch of the stories)")
    add("--no-commit", "do not commit")
    add("--ralph-dir PATH", "the folder of the stories, from the project's top (default ralph)")
    return parser


def archive_main(argv: list[str]) -> int:
    args = archive_parser().parse(argv)
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
