"""`ralph plan`: write the stories of a feature with an agent."""

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

ABOUT = """write the stories of a feature with an agent: what is wanted, and the tasks that lead there.

At a terminal the agent takes it over, asks you, and writes ralph/prd.md and ralph/tasks.json; when you leave its
session, the plan is checked. Where prd.md says something already, the stories are derived from it, and it stays as it
is. What such a session costs, the agent's own program tells you.

With --from nobody is asked: the requirements come from FILE, and planning is a run as every other, with its record and
its limits. Where prd.md says something already, name it as FILE, or have it written anew by --force.

An invalid plan is sent back to the agent with all that is wrong with it, at most 5 times. Stories that somebody has
worked on are overwritten only by --force, and a copy is kept. An interrupted plan leaves what the agent wrote, but for
half-written stories: the last whole ones are put back. What is changed outside ralph/ is named, and left as it is.

Exit codes: 0 written and valid; 1 not valid after all tries, or a limit was reached; 2 refused; 130 interrupted."""
EXAMPLES = (
    "ralph plan",
    "ralph plan --agent codex",
    "ralph plan --from docs/export.md --max-cost-usd 2",
    "ralph plan --from ralph/prd.md --json",
)
NO_TERMINAL = "ralph plan asks questions, and there is no terminal; give it the requirements: --from FILE (- is stdin)"
PIPED = "--from - reads standard input, and that is a terminal; pipe the requirements in"
ALONE = "{} is for --from: in a session at your terminal you decide when it ends"


def build_parser() -> Parser:
    parser = Parser("plan", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("--from", dest="source", metavar="FILE", help="ask nobody: the requirements are in FILE; - is standard input")
    add("--ralph-dir", metavar="PATH", help="the folder of the stories, from the project's top (default ralph)")
    add("--agent", metavar="CMD", help=AGENT_HELP)
    add("--model", metavar="M", help="the model that the agent is asked to use")
    add("--force", action="store_true", help="let stories with progress, or with --from a prd.md, be written anew")
    add("--max-cost-usd", type=positive_number, metavar="USD", help="with --from: stop when the run has spent so much")
    add("--max-minutes", type=positive_number, metavar="M", help="with --from: stop after M minutes")
    add("--allow-unknown-cost", action="store_true", help="with a cost limit, run an agent that cannot report its cost")
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
    _refuse_nobody(args)
    left = mended(project, folder)
    desk = Desk(project, folder)
    desk.refuse_progress(args.force)
    text, onward = _requirements(args, desk, project.root), onward_of(project, folder)
    say = _saying(args, project)
    say(f"mode: {MODES[desk.mode]}")
    planned = _planned(args, desk, text, project, say)
    planned = replace(planned, remarks=(*left, *filter(None, [desk.kept]), *planned.remarks))
    desk.close()
    try:
        (publish if args.json else show)(planned, desk, onward, project)
    except OSError:
        pass  # nobody reads it any more; the exit code tells
    flush_streams()
    return planned.exit_code


def _planned(args: Namespace, desk: Desk, text: str, project: Project, say: Callable[[str], None]) -> Planned:
    from ralphproof.planning.prompt import prompt_of
    from ralphproof.planning.unattended import PlanReader, drafted, wish_of
    from ralphproof.runs.spec import prepare_spec

    attended, reader = args.source is None, PlanReader(desk)
    order = prepare_spec(wish_of(args, prompt_of(desk, attended, text), reader, project, attended))
    if not attended:
        return drafted(args, order, desk, reader, say)
    from ralphproof.planning.interactive import Talk

    for remark in order.remarks:
        say(remark)
    return Talk(order, desk, say).hold()


def _saying(args: Namespace, project: Project) -> Callable[[str], None]:
    """Progress is told on standard error, unless nobody wants it."""
    from ralphproof.base.escaping import collapse_lines, sanitize

    def say(line: str) -> None:
        try:
            if not args.quiet:
                print(collapse_lines(sanitize(project.mask(line))), file=sys.stderr, flush=True)
        except OSError:
            pass  # the terminal is gone

    return say


def _refuse_nobody(args: Namespace) -> None:
    """Raise Refused where there is nobody to ask and nothing to read, or a limit that nobody would hold."""
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
    """What is wanted, by FILE; empty where the user is asked, or the PRD says it. Raises Refused where both would."""
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
        if _same(path, os.path.join(root, desk.prd)):
            if desk.blank:
                raise Refused(f"{desk.prd} says nothing yet; write it, or give another FILE")
            return ""
        text = PromptPlan(None, path, called=f"--from {args.source}").read().tasks[0].prompt
    if not desk.blank and not args.force:
        flags = shlex.quote(os.path.relpath(os.path.join(root, desk.prd))) + folder_flags(desk.folder)
        raise Refused(
            f"{desk.prd} says already what is wanted; plan by it: ralph plan --from {flags}, "
            "or say --force to have it written anew: a copy is kept"
        )
    desk.rewrite()
    return text


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
