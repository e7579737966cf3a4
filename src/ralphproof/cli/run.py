"""`ralph run`: loop an agent until the checks show that the work is done."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from ralphproof.base.errors import RalphError, Refused, SettingsWrong, StoriesWrong
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.standard_streams import flush_streams, read_stdin_text
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.cli.parser import SUPPRESS, Parser
from ralphproof.cli.verbs import VERBS
from ralphproof.display.output import print_json, print_lines
from ralphproof.display.terminal import DisplayFlags
from ralphproof.engine.outcome import Completed, Outcome
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.runs.children import (
    BEGIN_FLAG,
    RESUME_FLAG,
    read_harness_log_tail,
    spawn_run,
    submit_child_request,
    wait_until_begun,
)
from ralphproof.runs.displays import execute_observed, print_dry_run, print_fitness
from ralphproof.runs.execute import load_resumed_request
from ralphproof.runs.open_project import open_project
from ralphproof.runs.recovery import recover_folder
from ralphproof.runs.request import (
    FRESH_RUN,
    LATEST_RUN,
    RUN_ID_VARIABLE,
    CheckRequest,
    FitnessRequest,
    RunRequest,
    RunTarget,
    StoriesRequest,
    find_enclosing_run,
    load_request,
    save_request,
)
from ralphproof.runs.spec import RunSpec, prepare_spec
from ralphproof.sandbox.selection import SANDBOX_VARIABLE
from ralphproof.settings.declarations import is_guarded, settings_from_flags
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder, new_run_id

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any


def run_in_worktree(spec: RunSpec, keeper: KeeperClient, args: Namespace, target: RunTarget) -> Outcome:
    """Run to the end in a worktree of its own, then keep or remove that worktree."""
    from ralphproof.landing.worktree_run import discard_unused_worktree, finish_worktree_run

    try:
        outcome = execute_observed(spec, keeper, DisplayFlags.of(args), target)
    except RalphError:
        discard_unused_worktree(spec.project)
        raise
    run = target.row.id if target.row else target.run
    for line in finish_worktree_run(spec.project, run, isinstance(outcome, Completed)):
        if not args.quiet:
            print(collapse_lines(sanitize(spec.project.mask(line))), file=sys.stderr)
    return outcome


def run_detached(args: Namespace, request: RunRequest) -> int:
    """Start a run in a background process. An invalid request is refused here and not in a log."""
    for flag in ("dry_run", "explain", "step"):
        if getattr(args, flag, False):
            raise Refused(f"--detach and --{flag.replace('_', '-')} do not go together; give one")
    if args.resume is not None:
        return _resume_detached(args, request)
    project = prepare_spec(request).project
    run, request = new_run_id(time.time(), os.urandom(3)), replace(request, project_dir=project.root)
    if request.in_worktree:
        from ralphproof.landing.worktree_run import move_to_worktree

        request, worktree, notes = move_to_worktree(request, project, run)
        project = replace(project, root=worktree.path)
        for line in notes:
            print(sanitize(project.mask(line)), file=sys.stderr)
    if parent := _request_from_parent(project, run, request):
        # Inside a sandbox the records cannot be read.
        begun = not os.environ.get(SANDBOX_VARIABLE) and wait_until_begun(project, run) is None
        return _print_started(run, args, f"run {run} is requested; {parent} starts it", begun)
    save_request(RunFolder(project.root, run, project.store), request, project.mask)
    return _spawn_and_wait(project, run, args, BEGIN_FLAG)


def _resume_detached(args: Namespace, request: RunRequest) -> int:
    row, request = load_resumed_request(open_project(args.project_dir, os.environ), args.resume, request)
    project = prepare_spec(request).project
    save_request(RunFolder(project.root, row.id, project.store), request, project.mask)
    return _spawn_and_wait(project, row.id, args, RESUME_FLAG)


def _spawn_and_wait(project: Project, run: str, args: Namespace, how: str) -> int:
    """Start the background process and wait until it owns the run; if it fails, print its log and return its code."""
    code = wait_until_begun(project, run, spawn_run(run, project.root, project.store, os.environ, how))
    if code is None:
        return _print_started(run, args, f"run {run} continues in the background", True)
    sys.stderr.write(sanitize(project.mask(read_harness_log_tail(project.store, run))))
    return code or 1


def _request_from_parent(project: Project, run: str, request: RunRequest) -> str:
    """Inside an agent's turn, hand the request to the enclosing run's harness and return that run; else empty.

    A process started here would end with the turn.
    """
    folder = os.environ.get("TASK_FOLDER", "")
    boxed = os.environ.get(RUN_ID_VARIABLE, "") if os.environ.get(SANDBOX_VARIABLE) else ""
    parent = (boxed or find_enclosing_run(project)) if folder else ""
    if parent:
        submit_child_request(folder, run, request, project.mask)
    return parent


def _print_started(run: str, args: Namespace, line: str, begun: bool) -> int:
    if args.json:
        print_json("detached", {"run": run, "begun": begun})
    else:
        print_lines(f"{line}; follow it: ralph attach {run}; end it: ralph cancel {run}")
    return 0


def load_ordered_request(run: str, folder: str | None) -> RunRequest:
    """The request that `--detach` saved for a run."""
    project = open_project(folder, os.environ)
    saved = load_request(RunFolder(project.root, run, project.store))
    if saved is None:
        raise Refused(f"no run was requested as {run}; --begin is for ralph itself, ralph run begins one")
    return saved[0]


# `ralph run`: loop an agent until the checks show that the work is done.


# Only what parses flags is imported at the top: the keeper starts before everything else is loaded.


ABOUT = "Loop an agent on this project until its checks show that the work is done, or a limit stops it."
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
NO_NEW_PROMPT = "--resume uses the prompt of the run; to add to it: ralph say RUN TEXT"
TYPES = ("feature", "bug", "refactor", "other")
RISKS = ("low", "medium", "high", "critical")


def build_parser() -> Parser:
    parser = Parser("run", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("words", nargs="?", metavar="PROMPT", help="same as --prompt")
    add_prompt_flags(parser)
    add("--ralph-dir", metavar="PATH", help="with stories: their folder, relative to the project (default ralph)")
    add("--skill", metavar="NAME", help="skill to put into the prompt; see ralph skills list")
    add("--type", choices=TYPES, metavar="TYPE", help=f"kind of task: {', '.join(TYPES)}")
    add("--risk", choices=RISKS, metavar="RISK", help=f"risk of the task: {', '.join(RISKS)}")
    add("--explain", action="store_true", help="explain whether the task fits a loop; start nothing")
    add("--force", action="store_true", help="run a high-risk task anyway")
    add_loop_flags(parser)
    add_start_flags(parser)
    add("--step", action="store_true", help="stop after one iteration with exit code 4; continue with --resume --step")
    add("--worktree", action="store_true", help="work in a separate worktree and branch, not in your files")
    add("--begin", metavar="RUN", help=SUPPRESS)  # how --detach starts the run
    return parser


def add_prompt_flags(parser: Parser) -> None:
    """Add the prompt flags."""
    add = parser.add_argument
    add("-p", "--prompt", metavar="TEXT", help="what the agent should achieve")
    add("-f", "--prompt-file", metavar="FILE", help="read the prompt from a file before each iteration; - is stdin")


def add_loop_flags(parser: Parser) -> None:
    """Add the flags of settings, and those for checks and the sandbox."""
    add = parser.add_argument
    add_check_flags(parser)
    add("--judge", action="append", metavar="CRITERION", help="criterion that a small model judges; repeatable")
    add("--may-change", action="append", metavar="PATH", help="file of the checks that the work may change; repeatable")
    add_agent_flags(parser)


def add_check_flags(parser: Parser) -> None:
    """Add the flags for check commands."""
    add = parser.add_argument
    default = "default: those of the settings, else detected ones"
    about = f"command that must succeed; repeatable; auto detects commands ({default})"
    add("--check", action="append", metavar="CMD", help=about)
    add("--no-check", action="store_true", help="run no checks, neither configured nor detected ones")
    add(
        "--allow-missing-check",
        action="store_true",
        help="start although a check cannot run yet: the agent will create it",
    )


def add_agent_flags(parser: Parser) -> None:
    """Add the flags of settings, and those for what an agent may do and cost."""
    add = parser.add_argument
    parser.add_setting_flags()
    add("--allow-unknown-cost", action="store_true", help="allow a cost limit with an agent that reports no cost")
    add("--no-sandbox", action="store_true", help="give a known agent all your permissions, under the command guard")


def add_start_flags(parser: Parser) -> None:
    """Add the flags for starting, resuming and detaching a run."""
    add = parser.add_argument
    add(
        "--resume",
        nargs="?",
        const=LATEST_RUN,
        metavar="RUN",
        help="continue a run that was cut off, was stopped, or waits",
    )
    add("--detach", action="store_true", help="run in the background; ralph attach follows it")
    add("--dry-run", action="store_true", help="print prompt, arguments and checks; start nothing")


def main(argv: list[str]) -> int:
    return run_from_flags(parse_with_prompt(argv, build_parser()), request_from_flags)


def run_from_flags(args: Namespace, build_request: Callable[[Namespace], RunRequest]) -> int:
    """Run in the foreground or detached, or explain or print the run without starting it."""
    if args.detach:
        return run_detached(args, build_request(args))
    # First of all, so that the keeper starts while the rest is prepared.
    keeper = None if args.dry_run or args.explain else KeeperClient()
    try:
        return _run(args, keeper, build_request)
    finally:
        if keeper is not None:
            keeper.close()


def parse_with_prompt(argv: list[str], parser: Parser) -> Namespace:
    """Parse the arguments with the prompt taken out first: a prompt that looks like a flag is none."""
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


def _run(args: Namespace, keeper: KeeperClient | None, build_request: Callable[[Namespace], RunRequest]) -> int:
    request, target = _requested_run(args, build_request)
    try:
        spec = prepare_spec(request)
    except (SettingsWrong, StoriesWrong):
        if keeper is None or args.resume is not None:
            raise
        if not (notes := recover_folder(request.project_dir)):
            raise
        spec = prepare_spec(request)
        spec = replace(spec, remarks=(*notes, *spec.remarks))
    if request.in_worktree and keeper is not None and target.row is None and not target.run:
        from ralphproof.landing.worktree_run import begin_in_worktree

        spec, target = begin_in_worktree(spec)
    if spec.fitness is not None and args.explain:
        return print_fitness(spec.fitness, spec.skill, args.json)
    if keeper is None:
        return print_dry_run(spec, args.json)
    if spec.request.in_worktree:
        outcome = run_in_worktree(spec, keeper, args, target)
    else:
        outcome = execute_observed(spec, keeper, DisplayFlags.of(args), target)
    flush_streams()
    return outcome.exit_code


def _requested_run(args: Namespace, build_request: Callable[[Namespace], RunRequest]) -> tuple[RunRequest, RunTarget]:
    """The request, and the run it is for."""
    if args.begin is not None:
        return load_ordered_request(args.begin, args.project_dir), RunTarget(args.begin)
    if args.resume is None:
        return build_request(args), FRESH_RUN
    if any(text is not None for text in (args.words, args.prompt, args.prompt_file)):
        raise Refused(NO_NEW_PROMPT)
    row, request = load_resumed_request(open_project(args.project_dir, os.environ), args.resume, build_request(args))
    return request, RunTarget(row=row)


def request_from_flags(args: Namespace) -> RunRequest:
    """The request of a command line."""
    prompt = ("", None) if args.resume is not None else prompt_from_flags(args)
    return base_request(
        args,
        prompt,
        settings_from_flags(args),
        skill=args.skill or "",
        fitness=FitnessRequest(args.type or "", args.risk or "", args.force, args.explain),
        stories=StoriesRequest(args.ralph_dir or ""),
        in_worktree=args.worktree,
        step=args.step,
    )


def prompt_from_flags(args: Namespace) -> tuple[str | None, str | None]:
    """Text and file of the prompt; at most one of them is set."""
    if args.words in VERBS:
        raise Refused(f'{args.words} is a command, and a command comes first; if it is a prompt, say -p "{args.words}"')
    prompts = [text for text in (args.words, args.prompt, args.prompt_file) if text is not None]
    if len(prompts) > 1:
        raise Refused("give one prompt: --prompt, --prompt-file or PROMPT, not several")
    if not prompts:
        return None, None  # stories need none
    if args.prompt_file is None:
        return prompts[0], None
    if args.prompt_file != "-":
        return None, os.path.realpath(args.prompt_file)
    return read_stdin_text("-f -"), None


def base_request(
    args: Namespace, prompt: tuple[str | None, str | None], settings: dict[str, Any], **more: Any
) -> RunRequest:
    """A request with these settings, the flags that all verbs have that start runs, and what is the verb's own."""
    return RunRequest(
        prompt,
        settings | check_settings_from_flags(args),
        args.project_dir,
        checks=CheckRequest(
            tuple(args.check or ()),
            tuple(args.judge or ()),
            tuple(args.may_change or ()),
            find=True,
            allow_missing=args.allow_missing_check,
        ),
        protect=tuple(args.protect or ()),
        guarded=is_guarded(args),
        allow_hosts=tuple(args.allow_host or ()),
        allow_unknown_cost=args.allow_unknown_cost,
        verbose=args.verbose,
        **more,
    )


def check_settings_from_flags(args: Namespace) -> dict[str, Any]:
    """What these flags say in the settings' own shape; raises Refused where they contradict each other."""
    if args.no_check and args.check:
        raise Refused("--no-check and --check contradict each other; give one of them")
    return {"guardrails": [], "finalChecks": []} if args.no_check else {}
