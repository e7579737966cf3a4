"""`ralph fleet submit`: loops built from flags and task files."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, pack, replace
from ralphproof.cli.fleet import add_server_flags, run_client_and_exit
from ralphproof.cli.parser import Parser, positive_int, positive_number
from ralphproof.cli.run import AGENT_HELP, add_limit_flags, add_prompt_flags, parse_with_prompt, prompt_from_flags
from ralphproof.display.output import print_json, print_lines
from ralphproof.runs.request import check_settings_from_flags, drop_unset, is_guarded, settings_from_flags
from ralphproof.settings.keys import PIPELINE_STAGES

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from ralphproof.fleet.governor import Allowance
    from ralphproof.fleet.submission import FleetSubmission, LoopSpec, SubmittedLoop
    from ralphproof.runs.request import RunRequest
    from ralphproof.settings.typed_settings import Settings
    from ralphproof.tasks.draft import TaskDraft


LS_REMOTE_TIMEOUT_S = 30.0
PRIVATE_SETTINGS = ("notify", "otel")  # user settings that are not sent: their addresses contain tokens


def submitter_name(args: Namespace) -> str:
    """The submitter's name; by default the login name."""
    name: str | None = args.submitter
    if name is None:
        import getpass

        try:
            name = getpass.getuser()
        except (KeyError, OSError):
            name = f"uid {os.getuid()}"
    if not name.strip() or not name.isprintable() or len(name) > 100:
        raise Refused(f"--submitter {name!r} is not a name")
    return name


def loops_from_flags(args: Namespace, id: str, submitter: str) -> tuple[SubmittedLoop, ...]:
    """All loops of a submission: one for a prompt, or one per task."""
    from ralphproof.fleet.submission import SubmittedLoop

    if args.tasks and any(text is not None for text in (args.prompt, args.prompt_file)):
        raise Refused("give a prompt or --tasks, not both")
    if args.skip and (not args.tasks or set(args.skip) == set(PIPELINE_STAGES)):
        raise Refused("--skip leaves no stage; keep one" if args.tasks else "--skip is for --tasks")
    if args.tasks:
        return _loops_of_tasks(args, id, submitter)
    request = _prompt_request(args)
    settings, user = _load_settings(request)
    spec = _build_loop_spec(args, f"{id}-1", submitter, request, settings, user)
    title = (request.prompt[0] or "").strip().splitlines()
    return (SubmittedLoop(spec, title[0] if title else "", (), settings.cost_limit_micro_usd),)


def _loops_of_tasks(args: Namespace, id: str, submitter: str) -> tuple[SubmittedLoop, ...]:
    from ralphproof.fleet.submission import SubmittedLoop
    from ralphproof.store.tasks import CANCELLED, DONE
    from ralphproof.tasks.files import read_task_files, validate_entries

    validated = validate_entries(read_task_files(args.tasks), {}, update=False)
    if validated.problems:
        raise Refused("\n".join(validated.problems))
    drafts = [draft for draft in validated.good if draft.status not in (DONE, CANCELLED)]
    if not drafts:
        raise Refused(f"no open task in {', '.join(args.tasks)}")
    names = {draft.id: f"{id}-{number}" for number, draft in enumerate(drafts, 1)}
    loops = []
    for draft in drafts:
        request = _task_request(args, draft)
        settings, user = _load_settings(request)
        dependencies = tuple(names[one] for one in draft.dependencies if one in names)
        if len(dependencies) > 1 and not args.land:
            raise Refused(f"{draft.id} depends on several tasks; name the branch that joins their work: --land BRANCH")
        spec = _build_loop_spec(args, names[draft.id], submitter, request, settings, user, draft)
        title = f"{draft.id}: {draft.title}"
        loops.append(SubmittedLoop(spec, title, dependencies, settings.cost_limit_micro_usd))
    return tuple(loops)


def _prompt_request(args: Namespace) -> RunRequest:
    from ralphproof.runs.request import RunRequest

    text, file = prompt_from_flags(args)
    if file is not None:
        text = _read_prompt_file(file)
    if not (text or "").strip():
        raise Refused("no prompt; use -p TEXT, -f FILE or --tasks FILE")
    return replace(_add_bounds(args, RunRequest((text, None), settings_from_flags(args))), checks=_check_commands(args))


def _task_request(args: Namespace, draft: TaskDraft) -> RunRequest:
    from ralphproof.runs.request import RunRequest

    flags: dict[str, Any] = {**settings_from_flags(args), "preset": "pipeline"}
    request = RunRequest(
        ("", None), drop_unset(flags), task=draft.id, task_id=draft.id, skip_stages=tuple(args.skip or ())
    )
    return replace(_add_bounds(args, request), checks=_check_commands(args))


def _add_bounds(args: Namespace, request: RunRequest) -> RunRequest:
    return replace(
        request, flags=request.flags | check_settings_from_flags(args), protect=tuple(args.protect or ()),
        guarded=is_guarded(args),
        find_checks=True, allow_missing_check=args.allow_missing_check, allow_unknown_cost=args.allow_unknown_cost,
        judge=tuple(args.judge or ()), allow_hosts=tuple(args.allow_host or ()),
        may_change=tuple(args.may_change or ()),
    )  # fmt: skip


def _check_commands(args: Namespace) -> tuple[str, ...]:
    checks = tuple(args.check or ())
    if any(not check.strip() for check in checks):
        raise Refused("--check needs a command; one of them is empty")
    return checks


def _read_prompt_file(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            return opened.read().removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except OSError as error:
        raise Refused(f"the prompt file {file} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise Refused(f"the prompt file {file} is not text") from None


def _load_settings(request: RunRequest) -> tuple[Settings, dict[str, Any]]:
    """The settings without those of the repository, and the user's own settings that are sent along."""
    import tempfile

    from ralphproof.settings.loader import load_settings, read_settings_files

    with tempfile.TemporaryDirectory(prefix="ralph-fleet-") as nowhere:
        flags = dict(request.flags)
        if checks := [check for check in request.checks if check != "auto"]:
            flags["guardrails"] = [{"command": check} for check in checks]
        loaded = load_settings(nowhere, os.environ, flags)
        file_settings = read_settings_files(nowhere, os.environ)[0].data
    own = dict(file_settings) if isinstance(file_settings, dict) else {}
    user = {name: item for name, item in own.items() if name not in PRIVATE_SETTINGS}
    if isinstance(agent := user.get("agent"), dict):
        user["agent"] = {name: item for name, item in agent.items() if name != "env"}
    return loaded.settings, user


def _build_loop_spec(
    args: Namespace, loop: str, submitter: str, request: RunRequest, settings: Settings, user: dict[str, Any],
    draft: TaskDraft | None = None,
) -> LoopSpec:  # fmt: skip
    from ralphproof.fleet.submission import parse_loop_spec
    from ralphproof.runs.request import serialize_request

    if args.artifacts:
        from ralphproof.fleet.artifacts import refuse_unknown_store

        refuse_unknown_store(args.artifacts)
    if not args.ref:
        args.ref = _default_branch(repository_address(args.repo))
    agent = (settings.agent.command or "").split()
    task: Any = pack(draft) if draft else None
    return parse_loop_spec(
        {
            "loop": loop, "repo": repository_address(args.repo), "base": args.ref, "submitter": submitter, "user": user,
            "request": json.loads(serialize_request(request, lambda text: text)), "artifacts": args.artifacts,
            "target": args.land,
            "task": {name: item for name, item in task.items() if name != "is"} if task else None,
            "agent": os.path.basename(agent[0]) if agent else "",
        }
    )  # fmt: skip


def repository_address(repo: str) -> str:
    """The repository's address; a local folder by its absolute path."""
    return os.path.abspath(repo) if os.path.isdir(repo) else repo


def _default_branch(repo: str) -> str:
    """The default branch of a repository; refuses one that cannot be reached."""
    from ralphproof.base.run_program import find_program, run_program
    from ralphproof.fleet.submission import without_password
    from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS, user_git_environment

    shown = without_password(repo)
    if repo.startswith("-") or "::" in repo.partition("/")[0]:
        raise Refused(f"{shown[:200]!r} is no repository address; use file, git, ssh or https")
    git = find_program("git", os.environ.get("PATH", os.defpath))
    if git is None:
        raise Refused("git is not installed; give --ref")
    argv = [git, *NO_HOOKS_OPTIONS, "ls-remote", "--symref", "--", repo, "HEAD"]
    reply = run_program(argv, user_git_environment(os.environ), timeout_s=LS_REMOTE_TIMEOUT_S)
    if reply.code:
        error = reply.said.replace(repo, shown)
        raise Refused(f"the repository {shown} cannot be reached ({error}); give --ref, or another --repo")
    for line in reply.out.decode("utf-8", "replace").splitlines():
        if line.startswith("ref: refs/heads/"):
            return line.removeprefix("ref: refs/heads/").split("\t")[0]
    raise Refused(f"the repository {shown} has no default branch; give --ref")


SUBMIT_ABOUT = """Submit loops: one for a prompt, or one per task of a file. Prints their ids.

Everything that can be checked without the repository is checked before anything is sent. All loops are accepted, or
none. A task starts when its dependencies have completed. Cost limits hold over all workers: --max-cost-usd per loop,
--total-cost-usd for this submission, --daily-cost-usd for all your loops in the fleet. With --wait the exit code is
the highest of the loops: 0 means all completed."""
SUBMIT_EXAMPLES = (
    'ralph fleet submit --repo https://git.example/app.git -p "make the tests pass" --check "make test"',
    "ralph fleet submit --repo /srv/git/app.git --ref main --tasks tasks.yaml --land main --wait",
    "ralph fleet submit --repo git@git.example:app.git -f prompt.md --total-cost-usd 20 --rate claude=10/min",
)
UNUSED_FLAGS: dict[str, Any] = {
    "words": None, "preset": None, "stream_agent_output": None, "skip_review": None, "review_cap": None,
    "resume": None, "skill": None, "type": None, "risk": None, "force": False, "explain": False, "ralph_dir": None,
}  # fmt: skip


def submit_parser() -> Parser:
    parser = Parser("fleet submit", SUBMIT_ABOUT, SUBMIT_EXAMPLES)
    add = parser.add_argument
    add("--repo", metavar="URL", help="repository that all workers can reach: a URL or a path")
    add("--ref", metavar="B", help="branch or commit to start from (default: the repository's default branch)")
    add_prompt_flags(parser)
    add("--tasks", action="append", metavar="FILE", help="task file, one loop per task; repeatable; - is stdin")
    add(
        "--skip",
        action="append",
        choices=PIPELINE_STAGES,
        metavar="STAGE",
        help="with --tasks: skip a stage; repeatable",
    )
    add(
        "-m",
        "--maximum-iterations",
        "-n",
        "--max-iterations",
        type=positive_int,
        metavar="N",
        help="stop after N iterations",
    )
    add("-c", "--completion-response", metavar="WORD", help="word by which the agent claims completion (default DONE)")
    add("--promise", metavar="WORD", help="same as --completion-response")
    add("--agent", metavar="CMD", help=AGENT_HELP)
    add("--model", metavar="M", help="model to request from the agent")
    add_limit_flags(parser)
    add(
        "--total-cost-usd",
        type=positive_number,
        metavar="USD",
        help="cost limit for all loops of this submission",
    )
    add(
        "--daily-cost-usd",
        type=positive_number,
        metavar="USD",
        help="cost limit for all your loops in the fleet per UTC day",
    )
    add("--max-parallel", type=positive_int, metavar="N", help="most concurrent turns of yours")
    add("--fleet-parallel", type=positive_int, metavar="N", help="most concurrent turns of all submitters")
    add("--rate", action="append", metavar="AGENT=N/min", help="most turns of an agent per minute; repeatable")
    add("--agent-parallel", action="append", metavar="AGENT=N", help="most concurrent turns of an agent; repeatable")
    add(
        "--artifacts", default="", metavar="URL", help="folder for logs that workers and you can reach (any fsspec URL)"
    )
    add("--land", default="", metavar="BRANCH", help="land completed work on this branch (default: ralph/LOOP)")
    add("--submitter", metavar="NAME", help="submitter's name (default: your login name)")
    add(
        "--heartbeat",
        type=positive_number,
        metavar="S",
        help="a worker silent for S seconds loses its turns (default: 30)",
    )
    add("--wait", action="store_true", help="wait until all loops have ended")
    add_server_flags(parser)
    parser.set_defaults(**UNUSED_FLAGS)
    return parser


def submit_main(argv: list[str]) -> int:
    args = parse_with_prompt(argv, submit_parser())
    submission = submission_from_flags(args)

    async def send(client: Any) -> int:
        from ralphproof.fleet import client as fleet_client

        await fleet_client.submit_loops(client, submission)
        _print_submitted(submission, args)
        try:
            return _print_ends(await fleet_client.wait_for_submission(client, submission.id), args) if args.wait else 0
        except asyncio.CancelledError:  # Ctrl-C
            _print_loops_continue()
            raise

    run_client_and_exit(args, send)


def _print_loops_continue() -> None:
    """Say that interrupting the wait ends no loop."""
    print("ralph: the loops continue; ralph fleet cancel ends them", file=sys.stderr, flush=True)


def submission_from_flags(args: Namespace) -> FleetSubmission:
    """The submission of a command line; refuses an invalid one."""
    from ralphproof.fleet.connection import HEARTBEAT_S, FleetTiming
    from ralphproof.fleet.submission import FleetSubmission, submission_json
    from ralphproof.store.run_folder import new_run_id

    if not args.repo:
        raise Refused("no repository; use --repo URL (see ralph fleet submit --help)")
    allowance, submitter = allowance_from_flags(args), submitter_name(args)
    id = new_run_id(time.time(), os.urandom(3))
    timing = FleetTiming(heartbeat_s=max(1.0, args.heartbeat or HEARTBEAT_S))
    submission = FleetSubmission(id, submitter, loops_from_flags(args, id, submitter), allowance, timing)
    submission_json(submission)
    return submission


def allowance_from_flags(args: Namespace) -> Allowance:
    """Cost and concurrency limits from the flags."""
    from ralphproof.fleet.governor import Allowance

    agent_limits = _parse_pairs(args.agent_parallel, "AGENT=N")
    rates = _parse_pairs(args.rate, "AGENT=N/min")
    return Allowance(
        _micro_usd(args.total_cost_usd), _micro_usd(args.daily_cost_usd), args.max_parallel, args.fleet_parallel,
        {name: _parse_count(text, f"--agent-parallel {name}") for name, text in agent_limits},
        {name: _parse_count(_parse_per_minute(text), f"--rate {name}") for name, text in rates},
    )  # fmt: skip


def _micro_usd(usd: float | None) -> int | None:
    return None if usd is None else max(1, round(usd * 1_000_000))


def _parse_pairs(texts: list[str] | None, form: str) -> list[tuple[str, str]]:
    pairs = []
    for text in texts or ():
        name, mark, number = text.rpartition("=")
        if not mark or not name:
            raise Refused(f"{text!r} is not of the form {form}")
        pairs.append((name, number))
    return pairs


def _parse_per_minute(text: str) -> str:
    number, slash, unit = text.partition("/")
    if slash and unit not in ("min", "minute", "m"):
        raise Refused(f"a rate is a number of turns per minute: AGENT=N/min, not {text!r}")
    return number


def _parse_count(text: str, where: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise Refused(f"{where}: {text!r} is not a whole number above zero")
    return number


def _print_submitted(submission: FleetSubmission, args: Namespace) -> None:
    loops = [one.spec.loop for one in submission.loops]
    if args.json and not args.wait:
        print_json("submit", {"submission": submission.id, "loops": [*loops]})
    elif not args.json:
        print_lines(*loops)
    sys.stdout.flush()


def _print_ends(loops: list[dict[str, Any]], args: Namespace) -> int:
    from ralphproof.cli.fleet import loop_line

    code = max((loop["exitCode"] or 0 for loop in loops), default=0)
    if args.json:
        print_json("submit", {"loops": [*loops], "exitCode": code})
    else:
        print_lines(*(loop_line(loop) for loop in loops))
    return code
