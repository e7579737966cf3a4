"""`ralph run`: loop an agent until the checks show that the work is done."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.base.errors import RalphError, Refused, SettingsWrong, StoriesWrong
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.cli.parser import SUPPRESS, Parser, positive_int, positive_number
from ralphproof.cli.verbs import VERBS
from ralphproof.display.output import print_json, print_lines
from ralphproof.engine.outcome import Completed
from ralphproof.landing.worktree_run import discard_unused_worktree, finish_worktree_run
from ralphproof.process.client import Keeper
from ralphproof.runs.detach import BEGIN_FLAG, RESUME_FLAG, read_harness_log_tail, spawn_run, wait_until_begun
from ralphproof.runs.execute import RUN_ID_VARIABLE, find_enclosing_run
from ralphproof.runs.observers import execute_observed
from ralphproof.runs.open_project import open_project
from ralphproof.runs.request import load_request, save_request
from ralphproof.runs.request_flags import LATEST_RUN, check_settings_from_flags, is_guarded, settings_from_flags
from ralphproof.runs.spec import prepare_spec
from ralphproof.sandbox.selection import SANDBOX_VARIABLE
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder, new_run_id

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ralphproof.engine.outcome import Outcome
    from ralphproof.runs.execute import RunTarget
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec


def run_in_worktree(order: RunSpec, keeper: Keeper, args: Namespace, which: RunTarget) -> Outcome:
    """Run it to its end in a work tree of its own, and see to that."""
    from ralphproof.runs.observers import execute_observed

    try:
        outcome = execute_observed(order, keeper, args, which)
    except RalphError:
        discard_unused_worktree(order.project)
        raise
    run = which.row.id if which.row else which.run
    for line in finish_worktree_run(order.project, run, isinstance(outcome, Completed)):
        if not args.quiet:
            print(collapse_lines(sanitize(order.project.mask(line))), file=sys.stderr)
    return outcome


# `ralph run`: loop an agent on this project until its checks show that the work is done, or a limit says stop.


ABOUT = "loop an agent on this project until its checks show that the work is done, or a limit says stop."
EXAMPLES = (
    'ralph run -p "make the tests pass"',
    'ralph run -f prompt.md --check "make test" --check "make lint" -m 20',
    'ralph run -f prompt.md --check "make test" --judge "no secret is written to the log"',
    'ralph run "fix the flaky test" --agent "mytool --batch {prompt_file}" --check ./verify.sh',
    'ralph run --skill tdd "Implement user registration" --max-cost-usd 5',
    'ralph run --skill tdd "Implement user registration" --explain',
    'ralph run -f prompt.md --check "make test" --sandbox --allow-host pypi',
    "ralph run -f - --json < prompt.md",
    'ralph run -p "say hello" --dry-run',
    'ralph run -f prompt.md --check "make test" --detach',
    'ralph run -f prompt.md --check "make test" --worktree',
    "ralph run --resume",
    "ralph run --resume --step",
    "ralph run --resume 20261115-21 -m 30",
)
NO_NEW_PROMPT = "--resume goes on with the prompt that the run has; to say more: ralph say RUN TEXT"
TYPES = ("feature", "bug", "refactor", "other")
RISKS = ("low", "medium", "high", "critical")
AGENT_HELP = "the agent's command (default: the first known one on PATH); a path is relative to the project"


def build_parser() -> Parser:
    parser = Parser("run", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("words", nargs="?", metavar="PROMPT", help="the same as --prompt")
    add_prompt_flags(parser)
    add(
        "-m",
        "--maximum-iterations",
        "-n",
        "--max-iterations",
        type=positive_int,
        metavar="N",
        help="stop after so many",
    )
    add("-c", "--completion-response", metavar="WORD", help="the word that claims completion (default DONE)")
    add("--promise", metavar="WORD", help="the same as --completion-response")
    add("--agent", metavar="CMD", help=AGENT_HELP)
    add("--model", metavar="M", help="the model that the agent is asked to use")
    add("--preset", metavar="P", help="the style of loop (default harness)")
    add("--skip-review", action="store_true", default=None, help="with stories: do without reviews")
    add(
        "--review-cap", type=positive_int, metavar="N", help="with stories: review a story at most so often (default 5)"
    )
    add("--ralph-dir", metavar="PATH", help="with stories: their folder, from the project's top (default ralph)")
    add("--skill", metavar="NAME", help="a way of working that the agent is told; see ralph skills list")
    add("--type", choices=TYPES, metavar="TYPE", help=f"what kind of task it is: {', '.join(TYPES)}")
    add("--risk", choices=RISKS, metavar="RISK", help=f"how risky it is: {', '.join(RISKS)}")
    add("--explain", action="store_true", help="say why the task is or is not fit for a loop; start nothing")
    add("--force", action="store_true", help="run a task of high risk all the same")
    add_limit_flags(parser)
    add_start_flags(parser)
    add("--step", action="store_true", help="stop after one iteration, exit 4; --resume --step takes the next one")
    add("--worktree", action="store_true", help="work in a worktree and on a branch of its own, beside your files")
    add("--begin", metavar="RUN", help=SUPPRESS)  # what --detach starts
    return parser


def add_prompt_flags(parser: Parser) -> None:
    """The flags by which every kind of loop is told what to do."""
    add = parser.add_argument
    add("-p", "--prompt", metavar="TEXT", help="what should become true")
    add("-f", "--prompt-file", metavar="FILE", help="the same from a file, read anew each iteration; - is stdin")


def add_limit_flags(parser: Parser) -> None:
    """The flags that say what every kind of loop is held to."""
    add = parser.add_argument
    add_check_flags(parser)
    add("--judge", action="append", metavar="CRITERION", help="a criterion that a small model judges; repeat it")
    add("--max-cost-usd", type=positive_number, metavar="USD", help="stop when the run has spent so much")
    add("--max-minutes", type=positive_number, metavar="M", help="stop after M minutes")
    add("--max-tokens", type=positive_int, metavar="N", help="stop when the run has used so many tokens")
    add("--protect", action="append", metavar="PATH", help="a file or folder that no agent may change; repeat it")
    add("--may-change", action="append", metavar="PATH", help="what checks go by, and the work may change; repeat it")
    add("--allow-unknown-cost", action="store_true", help="with a cost limit, run an agent that cannot report its cost")
    add_sandbox_flags(parser)


def add_check_flags(parser: Parser) -> None:
    """The flags that say by which commands the work is checked."""
    add = parser.add_argument
    found = "default: those of the settings, else what is found"
    add("--check", action="append", metavar="CMD", help=f"a command that must succeed; repeat it; auto finds ({found})")
    add("--no-check", action="store_true", help="take no checks, neither of the settings nor what is found")
    add("--allow-missing-check", action="store_true", help="begin although a check cannot be run: the agent brings it")


def add_sandbox_flags(parser: Parser) -> None:
    """The flags that say what holds an agent."""
    add = parser.add_argument
    kinds = "bubblewrap, container, docker-sandbox, landlock, sandbox-exec"
    add("--sandbox", metavar="[=KIND]", help=f"run agents and checks in a sandbox: the strongest, or {kinds}")
    add("--no-sandbox", action="store_true", help="let a known agent do all that you may do, under the command guard")
    add("--allow-host", action="append", metavar="HOST", help="a host that may be reached from the sandbox; repeat it")


def add_start_flags(parser: Parser) -> None:
    """The flags that say how every kind of loop is begun and shown."""
    add = parser.add_argument
    add_stream_flags(parser)
    add(
        "--resume",
        nargs="?",
        const=LATEST_RUN,
        metavar="RUN",
        help="go on with a run that was cut off, stopped or waits",
    )
    add("--detach", action="store_true", help="let it run by itself; ralph attach looks on")
    add("--dry-run", action="store_true", help="print prompt, argument list and checks; start nothing")


def add_stream_flags(parser: Parser) -> None:
    """The flags that say whether the agent's own words are shown."""
    add = parser.add_argument
    add("--stream-agent-output", action="store_true", default=None, help="show what the agent prints as it comes")
    add("--no-stream-agent-output", action="store_false", dest="stream_agent_output", help="do not show it")


def main(argv: list[str]) -> int:
    return run_from_flags(parse_with_prompt(argv, build_parser()), request_from_flags)


def run_from_flags(args: Namespace, wish_of: Callable[[Namespace], RunRequest]) -> int:
    """Run, or whatever else the flags want of such a run."""
    if args.detach:
        return run_detached(args, wish_of(args))
    # First of all: the keeper's own start hides behind everything that follows.
    keeper = None if args.dry_run or args.explain else Keeper()
    try:
        return _run(args, keeper, wish_of)
    finally:
        if keeper is not None:
            keeper.close()


def parse_with_prompt(argv: list[str], parser: Parser) -> Namespace:
    """The arguments. The prompt is taken out before they are read: whatever it looks like, it is no flag."""
    rest: list[str] = []
    prompt = None
    words = iter(argv)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word.startswith("--prompt="):
            prompt = word.removeprefix("--prompt=")
        elif word in ("-p", "--prompt") and (text := next(words, None)) is not None:
            prompt = text
        else:
            rest.append(word)
    args = parser.parse(rest)
    args.prompt = args.prompt if prompt is None else prompt
    return args


def _run(args: Namespace, keeper: Keeper | None, wish_of: Callable[[Namespace], RunRequest]) -> int:
    from ralphproof.runs.spec import prepare_spec

    wish, which = _requested_run(args, wish_of)
    try:
        order = prepare_spec(wish)
    except (SettingsWrong, StoriesWrong):
        if keeper is None or args.resume is not None:
            raise
        from ralphproof.runs.recovery import recover_folder

        if not (told := recover_folder(wish.folder)):
            raise
        order = prepare_spec(wish)
        order = replace(order, remarks=(*told, *order.remarks))
    if wish.apart and keeper is not None and which.row is None and not which.run:
        from ralphproof.landing.worktree_run import begin_in_worktree

        order, which = begin_in_worktree(order)
    if order.fitness is not None and args.explain:
        from ralphproof.runs.dry_run import print_fitness as explain

        return explain(order.fitness, order.skill, args.json)
    if keeper is None:
        from ralphproof.runs.dry_run import print_dry_run

        return print_dry_run(order, args.json)
    from ralphproof.base.standard_streams import flush_streams

    if order.wish.apart:
        outcome = run_in_worktree(order, keeper, args, which)
    else:
        outcome = execute_observed(order, keeper, args, which)
    flush_streams()
    return outcome.exit_code


def _requested_run(args: Namespace, wish_of: Callable[[Namespace], RunRequest]) -> tuple[RunRequest, RunTarget]:
    """What is wanted, and of which run."""
    from ralphproof.runs.execute import FRESH_RUN, RunTarget

    if args.begin is not None:
        return load_ordered_request(args.begin, args.project_dir), RunTarget(args.begin)
    if args.resume is None:
        return wish_of(args), FRESH_RUN
    from ralphproof.runs.open_project import open_project
    from ralphproof.runs.resume import load_resumed_request

    if any(text is not None for text in (args.words, args.prompt, args.prompt_file)):
        raise Refused(NO_NEW_PROMPT)
    row, wish = load_resumed_request(open_project(args.project_dir, os.environ), args.resume, wish_of(args))
    return wish, RunTarget(row=row)


def request_from_flags(args: Namespace) -> RunRequest:
    """What the command line asks for."""
    from ralphproof.runs.request import RunRequest

    prompt = ("", None) if args.resume is not None else prompt_from_flags(args)
    return RunRequest(
        prompt, settings_from_flags(args) | check_settings_from_flags(args), args.project_dir, tuple(args.check or ()),
        tuple(args.protect or ()), find_checks=True, allow_missing_check=args.allow_missing_check,
        guarded=is_guarded(args), allow_unknown_cost=args.allow_unknown_cost, verbose=args.verbose,
        skill=args.skill or "", type=args.type or "", risk=args.risk or "", force=args.force,
        explain=args.explain, judge=tuple(args.judge or ()), stories=args.ralph_dir or "",
        hosts=tuple(args.allow_host or ()), may_change=tuple(args.may_change or ()), apart=args.worktree,
        step=args.step,
    )  # fmt: skip


def prompt_from_flags(args: Namespace) -> tuple[str | None, str | None]:
    """(text, file), exactly one of them."""
    if args.words in VERBS:
        raise Refused(f'{args.words} is a command, and a command comes first; if it is a prompt, say -p "{args.words}"')
    given = [text for text in (args.words, args.prompt, args.prompt_file) if text is not None]
    if len(given) > 1:
        raise Refused("give one prompt: --prompt, --prompt-file or PROMPT, not several")
    if not given:
        return None, None  # stories need none
    if args.prompt_file is None:
        return given[0], None
    if args.prompt_file != "-":
        return None, os.path.realpath(args.prompt_file)
    from ralphproof.base.standard_streams import read_stdin_text

    return read_stdin_text("-f -"), None


# `ralph run --detach`: order a run, see that it begins, and leave it to itself.


def run_detached(args: Namespace, wish: RunRequest) -> int:
    """Begin a run in a process of its own. What is wrong with the wish is said here, not in a log."""
    for flag in ("dry_run", "explain", "step"):
        if getattr(args, flag, False):
            raise Refused(f"--detach and --{flag.replace('_', '-')} do not go together; give one")
    if args.resume is not None:
        return _resume_detached(args, wish)
    project = prepare_spec(wish).project
    run, asked = new_run_id(time.time(), os.urandom(3)), replace(wish, folder=project.root)
    if wish.apart:
        from ralphproof.landing.worktree_run import move_to_worktree

        asked, made, told = move_to_worktree(asked, project, run)
        project = replace(project, root=made.place)
        for line in told:
            print(sanitize(project.mask(line)), file=sys.stderr)
    if inside := _request_from_parent(project, run, asked):
        seen = (
            not os.environ.get(SANDBOX_VARIABLE) and wait_until_begun(project, run) is None
        )  # from a sandbox nobody sees the record
        return _print_started(run, args, f"run {run} is asked for; {inside} begins it", seen)
    save_request(RunFolder(project.root, run, project.store), asked, project.mask)
    return _spawn_and_wait(project, run, args, BEGIN_FLAG)


def _resume_detached(args: Namespace, wish: RunRequest) -> int:
    from ralphproof.runs.resume import load_resumed_request

    row, asked = load_resumed_request(open_project(args.project_dir, os.environ), args.resume, wish)
    project = prepare_spec(asked).project
    save_request(RunFolder(project.root, row.id, project.store), asked, project.mask)
    return _spawn_and_wait(project, row.id, args, RESUME_FLAG)


def _spawn_and_wait(project: Project, run: str, args: Namespace, how: str) -> int:
    """Start its process, and see that it has the run; else say what it said, with its exit code."""
    code = wait_until_begun(project, run, spawn_run(run, project.root, project.store, os.environ, how))
    if code is None:
        return _print_started(run, args, f"run {run} goes on by itself", True)
    sys.stderr.write(sanitize(project.mask(read_harness_log_tail(project.store, run))))
    return code or 1


def _request_from_parent(project: Project, run: str, wish: RunRequest) -> str:
    """Inside an agent's turn, leave the wish to the harness: the run whose harness that is, empty where there is none.

    What we start ourselves would end with the turn.
    """
    folder = os.environ.get("TASK_FOLDER", "")
    boxed = os.environ.get(RUN_ID_VARIABLE, "") if os.environ.get(SANDBOX_VARIABLE) else ""
    parent = (boxed or find_enclosing_run(project)) if folder else ""
    if parent:
        from ralphproof.runs.children import submit_child_request

        submit_child_request(folder, run, wish, project.mask)
    return parent


def _print_started(run: str, args: Namespace, line: str, has_begun: bool) -> int:
    if args.json:
        print_json("detached", {"run": run, "begun": has_begun})
    else:
        print_lines(f"{line}; look on: ralph attach {run}; end it: ralph cancel {run}")
    return 0


def load_ordered_request(run: str, folder: str | None) -> RunRequest:
    """The wish under which a run was ordered."""
    project = open_project(folder, os.environ)
    kept = load_request(RunFolder(project.root, run, project.store))
    if kept is None:
        raise Refused(f"no run was ordered as {run}; --begin is for ralph itself, ralph run begins one")
    return kept[0]
