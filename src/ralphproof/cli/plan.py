"""`ralph plan`: write the stories of a feature with an agent, and take no plan that a loop could not begin with."""

from __future__ import annotations

import os
import sys

from ralphproof.cli.parser import Parser, amount
from ralphproof.cli.run import AGENT, add_holding
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.views.project import Project

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ralphproof.cli.planning_desk import Desk
    from ralphproof.cli.planning_result import Planned

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


def parser() -> Parser:
    made = Parser("plan", ABOUT, EXAMPLES)
    add = made.add_argument
    add("--from", dest="source", metavar="FILE", help="ask nobody: the requirements are in FILE; - is standard input")
    add("--ralph-dir", metavar="PATH", help="the folder of the stories, from the project's top (default ralph)")
    add("--agent", metavar="CMD", help=AGENT)
    add("--model", metavar="M", help="the model that the agent is asked to use")
    add("--force", action="store_true", help="let stories with progress, or with --from a prd.md, be written anew")
    add("--max-cost-usd", type=amount, metavar="USD", help="with --from: stop when the run has spent so much")
    add("--max-minutes", type=amount, metavar="M", help="with --from: stop after M minutes")
    add("--allow-unknown-cost", action="store_true", help="with a cost limit, run an agent that cannot report its cost")
    add_holding(made)
    return made


def main(argv: list[str]) -> int:
    from ralphproof.cli.out import let_go
    from ralphproof.cli.planning_desk import MODES, Desk, planning_folder
    from ralphproof.cli.planning_leftover import mended
    from ralphproof.cli.planning_result import onward_of, publish, show

    args = parser().parse(argv)
    project = Project.at(args.project_dir, os.environ)
    folder = planning_folder(project.root, args.ralph_dir)
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
    let_go()
    return planned.exit_code


def _planned(args: Namespace, desk: Desk, text: str, project: Project, say: Callable[[str], None]) -> Planned:
    from ralphproof.cli.order import prepare
    from ralphproof.cli.planning_prompt import prompt_of
    from ralphproof.cli.planning_run import PlanReader, drafted, wish_of

    attended, reader = args.source is None, PlanReader(desk)
    order = prepare(wish_of(args, prompt_of(desk, attended, text), reader, project, attended))
    if not attended:
        return drafted(args, order, desk, reader, say)
    from ralphproof.cli.planning_talk import Talk

    for remark in order.remarks:
        say(remark)
    return Talk(order, desk, say).hold()


def _saying(args: Namespace, project: Project) -> Callable[[str], None]:
    """Progress is told on standard error, unless nobody wants it."""
    from ralphproof.display.clean import clean, flat

    def say(line: str) -> None:
        try:
            if not args.quiet:
                print(flat(clean(project.mask(line))), file=sys.stderr, flush=True)
        except OSError:
            pass  # the terminal is gone

    return say


def _refuse_nobody(args: Namespace) -> None:
    """Raise Refused where there is nobody to ask and nothing to read, or a limit that nobody would hold."""
    from ralphproof.cli.planning_terminal import at_terminal

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

    from ralphproof.cli.story_folder import flags_for
    from ralphproof.plans.inline import Inline

    if args.source is None:
        return ""
    if args.source == "-":
        from ralphproof.cli.standard_input import read_text

        text = Inline(read_text("--from -"), called="standard input").read().tasks[0].prompt
    else:
        path = os.path.realpath(args.source)
        if _same(path, os.path.join(root, desk.prd)):
            if desk.blank:
                raise Refused(f"{desk.prd} says nothing yet; write it, or give another FILE")
            return ""
        text = Inline(None, path, called=f"--from {args.source}").read().tasks[0].prompt
    if not desk.blank and not args.force:
        flags = shlex.quote(os.path.relpath(os.path.join(root, desk.prd))) + flags_for(desk.folder)
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
