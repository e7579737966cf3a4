"""`ralph plan`: requirements and stories written with an agent."""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.cli.parser import Parser, positive_number
from ralphproof.cli.run import AGENT_HELP, add_sandbox_flags
from ralphproof.runs.open_project import open_project
from ralphproof.store.project import Project

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ralphproof.planning.plan_files import Desk
    from ralphproof.planning.result import Planned

ABOUT = """Write the requirements and stories of a feature with an agent.

At a terminal the agent takes it over, asks you, and writes ralph/prd.md and ralph/tasks.json; when you leave its
session, the plan is checked. If prd.md has content already, the stories are derived from it, and it stays. The agent's
own program reports the cost of such a session.

With --from nobody is asked: the requirements come from FILE, and planning is a normal run with records and limits. If
prd.md has content already, name it as FILE, or replace it with --force.

An invalid plan is sent back to the agent with all its errors, at most 5 times. Stories with progress are overwritten
only with --force, and a copy is kept. After an interruption the agent's files stay, except for half-written stories:
the last complete ones are restored. Changes outside ralph/ are listed and left alone.

Exit codes: 0 written and valid; 1 invalid after all tries, or a limit was reached; 2 refused; 130 interrupted."""
EXAMPLES = (
    "ralph plan",
    "ralph plan --agent codex",
    "ralph plan --from docs/export.md --max-cost-usd 2",
    "ralph plan --from ralph/prd.md --json",
)
NO_TERMINAL = "ralph plan needs a terminal to ask questions; without one use --from FILE (- is stdin)"
PIPED = "--from - reads standard input, which is a terminal; pipe the requirements in"
ALONE = "{} needs --from: you end a session at your terminal yourself"


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
    add("--agent", metavar="CMD", help=AGENT_HELP)
    add("--model", metavar="M", help="model to request from the agent")
    add("--force", action="store_true", help="overwrite stories with progress and, with --from, prd.md")
    add(
        "--max-cost-usd", type=positive_number, metavar="USD", help="with --from: stop when the run has spent this much"
    )
    add("--max-minutes", type=positive_number, metavar="M", help="with --from: stop after M minutes")
    add("--allow-unknown-cost", action="store_true", help="allow a cost limit with an agent that reports no cost")
    add_sandbox_flags(parser)
    return parser


def main(argv: list[str]) -> int:
    from ralphproof.base.standard_streams import flush_streams
    from ralphproof.planning.plan_files import MODES, Desk, find_stories_folder
    from ralphproof.planning.recovery import mended
    from ralphproof.planning.result import onward_of, publish, show

    args = build_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    folder = find_stories_folder(project.root, args.ralph_dir)
    _refuse_missing_input(args)
    notes = mended(project, folder)
    desk = Desk(project, folder)
    desk.refuse_progress(args.force)
    text, next_command = _requirements(args, desk, project.root), onward_of(project, folder)
    print_progress = _progress_printer(args, project)
    print_progress(f"mode: {MODES[desk.mode]}")
    result = _make_plan(args, desk, text, project, print_progress)
    result = replace(result, remarks=(*notes, *filter(None, [desk.kept]), *result.remarks))
    desk.close()
    try:
        (publish if args.json else show)(result, desk, next_command, project)
    except OSError:
        pass  # the output is closed; the exit code tells the result
    flush_streams()
    return result.exit_code


def _make_plan(
    args: Namespace, desk: Desk, text: str, project: Project, print_progress: Callable[[str], None]
) -> Planned:
    from ralphproof.planning.prompt import prompt_of
    from ralphproof.planning.unattended import PlanReader, drafted, wish_of
    from ralphproof.runs.spec import prepare_spec

    interactive, reader = args.source is None, PlanReader(desk)
    spec = prepare_spec(wish_of(args, prompt_of(desk, interactive, text), reader, project, interactive))
    if not interactive:
        return drafted(args, spec, desk, reader, print_progress)
    from ralphproof.planning.interactive import Talk

    for remark in spec.remarks:
        print_progress(remark)
    return Talk(spec, desk, print_progress).hold()


def _progress_printer(args: Namespace, project: Project) -> Callable[[str], None]:
    """A function that prints progress on standard error, unless --quiet is given."""
    from ralphproof.base.escaping import collapse_lines, sanitize

    def print_progress(line: str) -> None:
        try:
            if not args.quiet:
                print(collapse_lines(sanitize(project.mask(line))), file=sys.stderr, flush=True)
        except OSError:
            pass  # the terminal is gone

    return print_progress


def _refuse_missing_input(args: Namespace) -> None:
    """Refuse a plan without a terminal or --from, and limits without --from."""
    from ralphproof.planning.terminal import at_terminal

    if args.source == "-" and at_terminal():
        raise Refused(PIPED)
    if args.source is not None:
        return
    for name in ("max_cost_usd", "max_minutes"):
        if getattr(args, name) is not None:
            raise Refused(ALONE.format(f"--{name.replace('_', '-')}"))
    if not at_terminal():
        raise Refused(NO_TERMINAL)


def _requirements(args: Namespace, desk: Desk, root: str) -> str:
    """The requirements in FILE; empty if the user is asked or prd.md has them. Refuses both at once."""
    import shlex

    from ralphproof.stories.story_folder import folder_flags
    from ralphproof.tasks.plans import PromptPlan

    if args.source is None:
        return ""
    if args.source == "-":
        from ralphproof.base.standard_streams import read_stdin_text

        text = PromptPlan(read_stdin_text("--from -"), called="standard input").read().tasks[0].prompt
    else:
        path = os.path.realpath(args.source)
        if _is_same_file(path, os.path.join(root, desk.prd)):
            if desk.blank:
                raise Refused(f"{desk.prd} is empty; write it, or give another FILE")
            return ""
        text = PromptPlan(None, path, called=f"--from {args.source}").read().tasks[0].prompt
    if not desk.blank and not args.force:
        flags = shlex.quote(os.path.relpath(os.path.join(root, desk.prd))) + folder_flags(desk.folder)
        raise Refused(
            f"{desk.prd} has requirements already; plan by them: ralph plan --from {flags}, "
            "or replace it with --force: a copy is kept"
        )
    desk.rewrite()
    return text


def _is_same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
