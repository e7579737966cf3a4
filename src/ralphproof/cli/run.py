"""Starting and continuing runs: `ralph run`, `ralph resume` and `ralph supervise`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from ralphproof.base.errors import RalphError, Refused, SettingsWrong, StoriesWrong
from ralphproof.base.escaping import sanitize
from ralphproof.base.standard_streams import flush_streams
from ralphproof.base.value import replace
from ralphproof.cli.parser import SUPPRESS, Parser
from ralphproof.cli.run_flags import (
    NO_NEW_PROMPT,
    add_loop_flags,
    add_prompt_flags,
    add_start_flags,
    loop_request,
    parse_with_prompt,
    progress_printer,
    prompt_from_flags,
    settings_from_flags,
)
from ralphproof.display.output import print_result
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
from ralphproof.runs.control import unpause_run
from ralphproof.runs.displays import execute_observed, print_dry_run, print_fitness
from ralphproof.runs.execute import load_resumed_request
from ralphproof.runs.open_project import open_project, refuse_unrelated_run_in_turn
from ralphproof.runs.recovery import recover_folder
from ralphproof.runs.request import (
    FRESH_RUN,
    RUN_ID_VARIABLE,
    FitnessRequest,
    RunRequest,
    RunTarget,
    StoriesRequest,
    TaskRequest,
    find_enclosing_run,
    load_request,
    resolve_task_folder,
    save_request,
)
from ralphproof.runs.spec import RunSpec, prepare_spec
from ralphproof.sandbox.selection import SANDBOX_VARIABLE
from ralphproof.store.ledger import LATEST, RunRow
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder, new_run_id
from ralphproof.store.run_state import RUNNING, find_run, run_state

# ralph run


def run_in_worktree(spec: RunSpec, keeper: KeeperClient, args: Namespace, target: RunTarget) -> Outcome:
    """Run to the end in a worktree of its own, then keep or remove that worktree."""
    from ralphproof.landing.worktree_run import discard_unused_worktree, finish_worktree_run

    try:
        outcome = execute_observed(spec, keeper, DisplayFlags.of(args), target)
    except RalphError:
        discard_unused_worktree(spec.project)
        raise
    run = target.row.id if target.row else target.run
    tell = progress_printer(spec.project, args.quiet)
    for line in finish_worktree_run(spec.project, run, isinstance(outcome, Completed)):
        tell(line)
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
    print_result(
        args.json,
        "detached",
        {"run": run, "begun": begun},
        f"{line}; follow it: ralph attach {run}; end it: ralph cancel {run}",
    )
    return 0


def load_ordered_request(run: str, folder: str | None) -> RunRequest:
    """The request that `--detach` saved for a run."""
    project = open_project(folder, os.environ)
    saved = load_request(RunFolder(project.root, run, project.store))
    if saved is None:
        raise Refused(f"no run was requested as {run}; --begin is for ralph itself, ralph run begins one")
    return saved[0]


RUN_ABOUT = "Loop an agent on this project until its checks show that the work is done, or a limit stops it."
RUN_EXAMPLES = (
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
TYPES = ("feature", "bug", "refactor", "other")
RISKS = ("low", "medium", "high", "critical")


def run_parser() -> Parser:
    parser = Parser("run", RUN_ABOUT, RUN_EXAMPLES)
    add = parser.add
    add("words", "same as --prompt", nargs="?", metavar="PROMPT")
    add_prompt_flags(parser)
    add("--ralph-dir PATH", "with stories: their folder, relative to the project (default ralph)")
    add("--skill NAME", "skill to put into the prompt; see ralph skills list")
    add("--type TYPE", f"kind of task: {', '.join(TYPES)}", choices=TYPES)
    add("--risk RISK", f"risk of the task: {', '.join(RISKS)}", choices=RISKS)
    add("--explain", "explain whether the task fits a loop; start nothing")
    add("--force", "run a high-risk task anyway")
    add_loop_flags(parser)
    add_start_flags(parser)
    add("--step", "stop after one iteration with exit code 4; continue with --resume --step")
    add("--worktree", "work in a separate worktree and branch, not in your files")
    add("--begin RUN", SUPPRESS)  # how --detach starts the run
    return parser


def run_main(argv: list[str]) -> int:
    return run_from_flags(parse_with_prompt(argv, run_parser()), request_from_flags)


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
    return loop_request(
        args,
        prompt,
        settings_from_flags(args),
        skill=args.skill or "",
        fitness=FitnessRequest(args.type or "", args.risk or "", args.force, args.explain),
        stories=StoriesRequest(args.ralph_dir or ""),
        in_worktree=args.worktree,
        step=args.step,
    )


# ralph resume


RESUME_ABOUT = """Continue a run that is paused, was cut off, was stopped, or waits for a person.

A run whose harness lives is un-paused and takes no flags. Any other run is continued here, as with ralph run --resume
RUN, with all flags of ralph run: -m 30 is its new total of iterations. Your changes made while no agent worked count
as yours: no commit of the run contains them. Exit codes: those of ralph run; 0 for a run that was paused."""
RESUME_EXAMPLES = ("ralph resume", "ralph resume 20261115-21", "ralph resume latest -m 30 --max-cost-usd 20")
# Values of the `ralph run` flags that do not exist here.
RESUME_UNSET_FLAGS = {
    "words": None,
    "prompt": None,
    "prompt_file": None,
    "resume": None,
    "begin": None,
    "explain": False,
}
UNAVAILABLE_FLAGS = (("-f", NO_NEW_PROMPT), ("--prompt-file", NO_NEW_PROMPT))


def resume_parser() -> Parser:
    parser = Parser("resume", RESUME_ABOUT, RESUME_EXAMPLES, UNAVAILABLE_FLAGS)
    parser.add_run()
    known = parser.flags()
    for action in run_parser()._actions:
        if action.option_strings and action.dest not in RESUME_UNSET_FLAGS and action.option_strings[0] not in known:
            parser._add_action(action)
    parser.set_defaults(**RESUME_UNSET_FLAGS)
    return parser


def resume_main(argv: list[str]) -> int:
    parser = resume_parser()
    args = parse_with_prompt(argv, parser)
    project = open_project(args.project_dir, os.environ)
    row = _find_live_run(project, args.run)
    if row is None:
        args.resume = args.run or LATEST
        return run_from_flags(args, request_from_flags)
    _refuse_flags(args, parser.parse([]), row.id)
    return _unpause(project, row, args)


def _refuse_flags(args: Namespace, defaults: Namespace, run: str) -> None:
    """Refuse flags for a live run: they could not take effect."""
    common = {"run", *vars(Parser("", "", ()).parse([]))}
    for name, flag in vars(args).items():
        if name not in common and flag != getattr(defaults, name):
            raise Refused(f"run {run} is live, and --{name.replace('_', '-')} cannot change it; leave it out")


def _find_live_run(project: Project, name: str | None) -> RunRow | None:
    """The selected run, if its harness lives."""
    with project.ledger() as ledger:
        if not ledger.runs(1):
            return None
        row = find_run(ledger, name)
        refuse_unrelated_run_in_turn("resume", ledger, row)
        return row if run_state(ledger, row, project) == RUNNING else None


def _unpause(project: Project, row: RunRow, args: Namespace) -> int:
    with project.ledger(read_only=False) as ledger:
        was_requested, was_paused, message = unpause_run(ledger, row)
    print_result(
        args.json, "resume", {"run": row.id, "rested": was_paused and was_requested, "wasAsked": was_requested}, message
    )
    return 0


# ralph supervise


SUPERVISE_ABOUT = """Restart a command until its DONE file and the checks agree.

The command is restarted whatever its exit code. Exit codes: 0 done, 1 restarted too often or stopped by another limit,
2 the command cannot be started or the settings are wrong, 4 waiting for a person, 130 interrupted.
"""
SUPERVISE_EXAMPLES = (
    "ralph supervise -- ./agent.sh",
    'ralph supervise --check "make test" -m 10 --restart-delay 5 -- ./agent.sh --fast',
    "ralph supervise --task-folder /srv/tasks/17 --project shop --task 17 -- ./agent.sh",
    "ralph supervise -f prompt.md --timeout 600 -- claude --model opus",
    "ralph supervise --resume -m 200",
)
NO_COMMAND = "no command; put it after --: ralph supervise -- CMD..."
NO_DASHES = "put the command after --: ralph supervise -- {}"
RESUME_KEEPS = "--resume uses the {} of the run; leave it out"
# Values of the `ralph run` flags that do not exist here.
SUPERVISE_UNSET_FLAGS = {
    "words": None, "skill": None, "type": None, "risk": None, "force": False, "explain": False, "begin": None,
    "worktree": False, "step": False, "ralph_dir": None,
}  # fmt: skip


def supervise_parser() -> Parser:
    parser = Parser("supervise", SUPERVISE_ABOUT, SUPERVISE_EXAMPLES)
    add = parser.add
    add("command", "command and arguments, after --", nargs="*", metavar="-- CMD")
    add("--task-folder DIR", "folder for the DONE file (default: a folder of the run)")
    add("--project P", "project name in RALPH_PROJECT and in bus messages")
    add("--task T", "task name in RALPH_TASK and in bus messages")
    add_prompt_flags(parser)
    add_loop_flags(parser)
    add_start_flags(parser)
    parser.set_defaults(**SUPERVISE_UNSET_FLAGS)
    return parser


def supervise_main(argv: list[str]) -> int:
    return run_from_flags(_parse_arguments(argv), supervise_request)


def _parse_arguments(argv: list[str]) -> Namespace:
    """Parse the arguments; everything after `--` is the command."""
    at = argv.index("--") if "--" in argv else len(argv)
    args = parse_with_prompt(argv[:at], supervise_parser())
    if args.command:
        raise Refused(NO_DASHES.format(" ".join(args.command)))
    args.command = argv[at + 1 :]
    _refuse_bad_command(args)
    if args.resume is None and args.prompt is None and args.prompt_file is None:
        args.prompt, args.plain = "", tuple(args.command)
    else:
        args.plain = ()
    return args


def _refuse_bad_command(args: Namespace) -> None:
    """Refuse a missing command, and flags that a resumed run already has."""
    if args.resume is None and not args.command:
        raise Refused(NO_COMMAND)
    if args.resume is None:
        return
    values = {"command": args.command, "task folder": args.task_folder, "names": args.project or args.task}
    for name, value in values.items():
        if value:
            raise Refused(RESUME_KEEPS.format(name))


def supervise_request(args: Namespace) -> RunRequest:
    """The request of a command line."""
    request = request_from_flags(args)
    folder = resolve_task_folder(args.task_folder) if args.task_folder is not None else ""
    task = TaskRequest(folder=folder, project=args.project or "", name=args.task or "")
    return replace(request, flags=_supervise_settings(args, request.flags), program=args.plain, task=task)


def _supervise_settings(args: Namespace, flags: dict[str, Any]) -> dict[str, Any]:
    """The settings of the flags, with the agent. A resumed run has its preset already; one limit has two names."""
    settings = dict(flags) if args.resume is not None else {**flags, "preset": "supervise"}
    if args.max_restarts is not None:
        settings["maximumIterations"] = args.max_restarts
    if args.command and not args.plain:
        settings["agent"] = {**settings.get("agent", {}), "command": shlex.join(args.command)}
    return settings
