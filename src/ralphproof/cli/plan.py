"""`ralph plan`: requirements and stories written with an agent."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.standard_streams import flush_streams, read_stdin_text
from ralphproof.base.value import TYPE_CHECKING, Json, replace
from ralphproof.cli.parser import Parser
from ralphproof.cli.run import add_agent_flags
from ralphproof.display.output import align_columns, print_json, print_lines
from ralphproof.display.phrases import describe_outcome, format_count
from ralphproof.engine.outcome import ABORTED, COMPLETED, outcome_fields
from ralphproof.planning.drafting import PlanCheck, plan_request, plan_unattended
from ralphproof.planning.plan_dialogue import has_terminal, plan_interactively
from ralphproof.planning.plan_files import FULL, MODES, PlanFiles, PlanResult
from ralphproof.runs.open_project import open_project
from ralphproof.runs.spec import prepare_spec
from ralphproof.settings.loader import load_settings
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.project import Project
from ralphproof.stories.story_folder import folder_flags
from ralphproof.tasks.plans import PromptPlan

if TYPE_CHECKING:
    from argparse import Namespace


ABOUT = """Write the requirements and stories of a feature with an agent.

At a terminal the agent takes it over, asks you, and writes ralph/prd.md and ralph/tasks.json; when you leave its
session, the plan is checked. If prd.md has content already, the stories are derived from it, and it stays. The agent's
own program reports the cost of such a session.

With --from nobody is asked: the requirements come from FILE, and planning is a normal run with records and limits. If
prd.md has content already, name it as FILE, or replace it with --force.

An invalid plan is sent back to the agent with all its errors, at most 5 times. Stories with progress are overwritten
only with --force, and a copy is kept. After an interruption the agent's files stay, except for half-written stories:
the last complete ones are restored.

Exit codes: 0 written and valid; 1 invalid after all tries, or a limit was reached; 2 refused; 130 interrupted."""
EXAMPLES = (
    "ralph plan",
    "ralph plan --agent codex",
    "ralph plan --from docs/export.md --max-cost-usd 2",
    "ralph plan --from ralph/prd.md --json",
)
NO_TERMINAL = "ralph plan needs a terminal to ask questions; without one use --from FILE (- is stdin)"
STDIN_IS_TERMINAL = "--from - reads standard input, which is a terminal; pipe the requirements in"
NEEDS_FROM = "{} needs --from: you end a session at your terminal yourself"


def build_parser() -> Parser:
    parser = Parser("plan", ABOUT, EXAMPLES)
    add = parser.add_argument
    add(
        "--from",
        dest="source",
        metavar="FILE",
        help="read the requirements from FILE and ask nothing; - is standard input",
    )
    add("--ralph-dir", metavar="PATH", help="folder of the stories, relative to the project (default ralph)")
    add("--force", action="store_true", help="overwrite stories with progress and, with --from, prd.md")
    add_agent_flags(parser)
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
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
    tell = _progress_printer(args, project)
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
    spec = prepare_spec(plan_request(args, project.root, prompt, check, interactive))
    if not interactive:
        again = f"ralph plan --from {shlex.quote(args.source)}{folder_flags(files.folder)}"
        return plan_unattended(args, spec, files, check, again, tell)
    for remark in spec.remarks:
        tell(remark)
    return plan_interactively(spec, files, tell)


def _progress_printer(args: Namespace, project: Project) -> Callable[[str], None]:
    """A function that prints progress on standard error, unless --quiet is given."""

    def tell(line: str) -> None:
        try:
            if not args.quiet:
                print(collapse_lines(sanitize(project.mask(line))), file=sys.stderr, flush=True)
        except OSError:
            pass  # the terminal is gone

    return tell


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
