"""`ralph fleet`: loops on many machines, driven by a Temporal server."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from ralphproof.base import interpreter
from ralphproof.base.errors import NotThere, Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.standard_streams import flush_streams
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.cli.parser import SUPPRESS, Parser, Subverbs, positive_int, positive_number, seconds
from ralphproof.cli.run_flags import (
    add_loop_flags,
    add_prompt_flags,
    loop_request,
    parse_with_prompt,
    prompt_from_flags,
    settings_from_flags,
)
from ralphproof.cli.serve import port_number
from ralphproof.display.output import print_json, print_lines, print_result
from ralphproof.fleet.artifacts import ArtifactFolder
from ralphproof.fleet.dev_server import run_dev_server
from ralphproof.fleet.governor import Allowance
from ralphproof.fleet.messages import FleetTiming
from ralphproof.fleet.submission import SubmitOptions, build_submission
from ralphproof.runs.request import RunRequest, TaskRequest
from ralphproof.settings.declarations import PIPELINE_STAGES
from ralphproof.store.project import ensure_state_dir

if TYPE_CHECKING:
    from ralphproof.fleet.client import TemporalServer
    from ralphproof.fleet.worker import StepPool


ABOUT = """Run many loops on many machines that share only a git remote. A Temporal server drives them.

{verbs}

ralph fleet VERB --help shows details. RALPH_FLEET_ADDRESS, _NAMESPACE, _TLS_CERT, _TLS_KEY and _TLS_CA replace the
flags of the same names, TEMPORAL_API_KEY is the API key. For several loops on one machine: ralph work --parallel."""
EXAMPLES = (
    "ralph fleet dev",
    "ralph fleet worker --slots 4",
    'ralph fleet submit --repo https://git.example/app.git -p "make the tests pass" --check "make test" --wait',
    "ralph fleet submit --repo /srv/git/app.git --tasks tasks.yaml --land main --total-cost-usd 50",
    "ralph fleet status",
)
FLEET_VERBS = {
    "worker": "run steps of loops on this machine",
    "submit": "submit loops",
    "status": "show the state and cost of loops",
    "cancel": "end loops",
    "logs": "show the output of a loop's agent and checks",
    "dev": "run a local Temporal server",
}
MISSING_TEMPORAL = "ralph fleet needs temporalio and fsspec; install them: pip install 'ralphproof[fleet]'"

SUBVERBS = Subverbs("fleet", ABOUT, EXAMPLES, FLEET_VERBS, "status")
fleet_parser, fleet_main = SUBVERBS.build_parser, SUBVERBS.main


SERVER_FLAGS = ("address", "namespace", "tls_cert", "tls_key", "tls_ca")


def add_server_flags(parser: Parser) -> None:
    """Add the flags that name the server."""
    add, server = parser.add, parser.add_argument_group("server")
    add("--address HOST:PORT", "server address (default: 127.0.0.1:7233)", server)
    add("--namespace N", "server namespace (default: default)", server)
    add("--tls-cert FILE", "client certificate", server)
    add("--tls-key FILE", "key of the client certificate", server)
    add("--tls-ca FILE", "CA certificate of the server", server)


def server_from_flags(args: Namespace) -> TemporalServer:
    """The server that the flags name; refuses invalid flags and a missing library."""
    try:
        from ralphproof.fleet.client import TemporalServer
    except ModuleNotFoundError:
        raise Refused(MISSING_TEMPORAL) from None
    return TemporalServer.of({name: getattr(args, name) for name in SERVER_FLAGS}, os.environ)


def run_client_and_exit(args: Namespace, work: Callable[[Any], Awaitable[int]]) -> NoReturn:
    """Run `work` with a client of the server, and end this process with its exit code."""
    server = server_from_flags(args)

    async def run() -> int:
        from ralphproof.fleet.client import run_with_client

        return await run_with_client(server, work)

    run_and_exit(lambda: asyncio.run(run()), args.json)


def run_and_exit(work: Callable[[], int], as_json: bool) -> NoReturn:
    """Run `work`, flush the output, and end this process with its exit code.

    A process that used a client of the server and exits normally is sometimes aborted by it (temporalio 1.35). The
    library's log is silenced: it has a traceback for each lost step, which we report ourselves.
    """
    import logging

    from ralphproof.cli.dispatch import run_to_exit_code

    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    code = run_to_exit_code(work, ["--json"] if as_json else [])
    flush_streams()
    os._exit(code)


# ralph fleet dev


DEV_ABOUT = """Run a local Temporal server until Ctrl-C. It listens on 127.0.0.1.

It is for experiments; docs/fleet-setup.md explains a production server. Without --db it forgets everything at its end.
Exit codes: 0 ended by a signal, 2 cannot be started, 3 ended by itself."""
DEV_EXAMPLES = ("ralph fleet dev", "ralph fleet dev --db fleet.db", "ralph fleet dev --port 7300 --ui-port 8300")


def dev_parser() -> Parser:
    parser = Parser("fleet dev", DEV_ABOUT, DEV_EXAMPLES)
    add = parser.add
    add("--port N", "port; 0 takes a free one (default: 7233)", type=port_number, default=7233)
    add("--ui-port N", "port of the server's web UI (default: none)", type=port_number)
    add("--db FILE", "database file (default: in memory)")
    return parser


def dev_main(argv: list[str]) -> int:
    args = dev_parser().parse(argv)

    def print_ready(port: int, pid: int) -> None:
        if args.json:
            print_json("dev", {"address": f"127.0.0.1:{port}", "pid": os.getpid(), "serverPid": pid})
        else:
            print(f"Temporal server ready at 127.0.0.1:{port}")
        sys.stdout.flush()

    run_dev_server(args.port, args.ui_port, args.db, print_ready)
    return 0


# ralph fleet worker


WORKER_ABOUT = """Run steps of loops on this machine, as many at once as there are slots, until Ctrl-C or SIGTERM.

Running a worker is consent to the commands of every repository that is submitted to it. At shutdown it takes no new
step and gives running ones --grace seconds; then it leaves them: their agents continue, and a worker started in the
same folder within the heartbeat takes them over, else another one continues the loops from git. A worker that cannot
reach its server for longer than the heartbeat ends its agents itself. Exit codes: 0 ended by a signal, 2 cannot work
here."""
WORKER_EXAMPLES = (
    "ralph fleet worker",
    "ralph fleet worker --slots 4 --work-dir /var/lib/ralph",
    "ralph fleet worker --address temporal.example:7233 --namespace ralph --tls-cert w.pem --tls-key w.key",
)


def worker_parser() -> Parser:
    parser = Parser("fleet worker", WORKER_ABOUT, WORKER_EXAMPLES)
    add = parser.add
    add("--work-dir DIR", "folder for clones and turns (default: fleet in the state directory)")
    add("--slots N", "concurrent steps (default: 2)", type=positive_int, default=2)
    add("--name NAME", "worker name (default: host name and a random part)")
    grace = "seconds that running steps get at shutdown (default: 10)"
    add("--grace S", grace, type=seconds, default=10.0)
    add("--turn-program CMD", SUPPRESS)
    add_server_flags(parser)
    return parser


def worker_main(argv: list[str]) -> int:
    args = worker_parser().parse(argv)
    server = server_from_flags(args)
    pool = _open_step_pool(args)

    async def run() -> int:
        from ralphproof.fleet.client import connect
        from ralphproof.fleet.worker import run_worker

        client = await connect(server)
        shutdown = asyncio.Event()
        _shut_down_on_signal(shutdown, args)
        await run_worker(client, pool, args.grace, shutdown, lambda: _print_ready(args, pool.name, server.address))
        return 0

    run_and_exit(lambda: asyncio.run(run()), args.json)


def _open_step_pool(args: Namespace) -> StepPool:
    """Lock the worker's folder, choose its name, and return its step pool; refuses a folder of another worker."""
    from ralphproof.fleet.worker import STEP_PROGRAM, StepPool, lock_worker_folder, worker_name

    folder = os.path.abspath(args.work_dir) if args.work_dir else os.path.join(ensure_state_dir(os.environ), "fleet")
    lock_worker_folder(folder)
    name = worker_name(folder, args.name)
    argv = shlex.split(args.turn_program) if args.turn_program else interpreter.module_command(STEP_PROGRAM)
    return StepPool(name, folder, args.slots, argv)


def _shut_down_on_signal(shutdown: asyncio.Event, args: Namespace) -> None:
    """Shut down at the first signal; exit at once at the second."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if shutdown.is_set():
            os._exit(130)
        if not args.quiet:
            print("ralph: shutting down; running steps get some time to finish", file=sys.stderr, flush=True)
        shutdown.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, on_signal)


def _print_ready(args: Namespace, name: str, where: str) -> None:
    if args.json:
        print_json("worker", {"name": name, "at": where, "slots": args.slots, "pid": os.getpid()})
    elif not args.quiet:
        print(f"worker {name} is ready, {args.slots} slot{'s' if args.slots > 1 else ''}, {where}")
    sys.stdout.flush()


# ralph fleet submit


SUBMIT_ABOUT = """Submit loops: one for a prompt, or one per task of a file. Prints their ids.

Everything that can be checked without the repository is checked before anything is sent. All loops are accepted, or
none. A task starts when its dependencies have completed. Cost limits hold over all workers: --max-cost-usd per loop,
--total-cost-usd for this submission, --daily-cost-usd for all your loops in the fleet. With --wait the exit code is
the highest of the loops: 0 means all completed."""
SUBMIT_EXAMPLES = (
    'ralph fleet submit --repo https://git.example/app.git -p "make the tests pass" --check "make test"',
    "ralph fleet submit --repo /srv/git/app.git --ref main --tasks tasks.yaml --land main --wait",
    "ralph fleet submit --repo git@git.example:app.git -f prompt.md --total-cost-usd 20",
)


def submit_parser() -> Parser:
    parser = Parser("fleet submit", SUBMIT_ABOUT, SUBMIT_EXAMPLES)
    add = parser.add
    add("words", "same as --prompt", nargs="?", metavar="PROMPT")
    add("--repo URL", "repository that all workers can reach: a URL or a path")
    add("--ref B", "branch or commit to start from (default: the default branch)", default="")
    add_prompt_flags(parser)
    add("--tasks FILE", "task file, one loop per task; repeatable; - is stdin", action="append")
    skip = "with --tasks: skip a stage; repeatable"
    add("--skip STAGE", skip, action="append", choices=PIPELINE_STAGES)
    add_loop_flags(parser)
    total = "cost limit for all loops of this submission"
    add("--total-cost-usd USD", total, type=positive_number)
    daily = "cost limit for all your loops in the fleet per UTC day"
    add("--daily-cost-usd USD", daily, type=positive_number)
    add("--max-parallel N", "most concurrent turns of yours", type=positive_int)
    add("--fleet-parallel N", "most concurrent turns of all submitters", type=positive_int)
    folder = "folder for logs that workers and you can reach (any fsspec URL)"
    add("--artifacts URL", folder, default="")
    add("--land BRANCH", "land completed work on this branch (default: ralph/LOOP)", default="")
    add("--submitter NAME", "submitter's name (default: your login name)", default="")
    silent = "a worker silent for S seconds loses its turns (default: 30)"
    add("--heartbeat S", silent, type=positive_number, default=30.0)
    add("--wait", "wait until all loops have ended")
    add_server_flags(parser)
    return parser


def submit_main(argv: list[str]) -> int:
    args = parse_with_prompt(argv, submit_parser())
    if not args.repo:
        raise Refused("no repository; use --repo URL (see ralph fleet submit --help)")
    options = SubmitOptions(
        args.repo, args.ref, args.land, args.artifacts, args.submitter, tuple(args.tasks or ()),
        _allowance_from_flags(args), FleetTiming(heartbeat_s=max(1.0, args.heartbeat)),
    )  # fmt: skip
    submission = build_submission(options, _submit_request(args))

    async def submit(client: Any) -> int:
        from ralphproof.fleet.client import submit_loops, wait_for_submission

        await submit_loops(client, submission)
        _print_submitted(submission.id, [one.spec.loop for one in submission.loops], args)
        try:
            return _print_ends(await wait_for_submission(client, submission.id), args.json) if args.wait else 0
        except asyncio.CancelledError:  # Ctrl-C
            print("ralph: the loops continue; ralph fleet cancel ends them", file=sys.stderr, flush=True)
            raise

    run_client_and_exit(args, submit)


def _submit_request(args: Namespace) -> RunRequest:
    """The request of each loop. A prompt file is read now: it is on this machine alone."""
    has_prompt = any(text is not None for text in (args.words, args.prompt, args.prompt_file))
    if args.tasks and has_prompt:
        raise Refused("give a prompt or --tasks, not both")
    if args.skip and (not args.tasks or set(args.skip) == set(PIPELINE_STAGES)):
        raise Refused("--skip leaves no stage; keep one" if args.tasks else "--skip is for --tasks")
    if any(not check.strip() for check in args.check or ()):
        raise Refused("--check needs a command; one of them is empty")
    settings = settings_from_flags(args)
    if args.tasks:
        settings["preset"] = "pipeline"
        request = loop_request(args, ("", None), settings, task=TaskRequest(skip_stages=tuple(args.skip or ())))
    else:
        text, file = prompt_from_flags(args)
        text = _read_prompt_file(file) if file is not None else text
        if not (text or "").strip():
            raise Refused("no prompt; use -p TEXT, -f FILE or --tasks FILE")
        request = loop_request(args, (text, None), settings)
    return replace(request, project_dir=None)


def _read_prompt_file(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            return opened.read().removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except OSError as error:
        raise Refused(f"the prompt file {file} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise Refused(f"the prompt file {file} is not text") from None


def _allowance_from_flags(args: Namespace) -> Allowance:
    total, daily = (
        None if usd is None else max(1, round(usd * 1_000_000)) for usd in (args.total_cost_usd, args.daily_cost_usd)
    )
    return Allowance(total, daily, args.max_parallel, args.fleet_parallel)


def _print_submitted(id: str, loops: list[str], args: Namespace) -> None:
    if not args.json:
        print_lines(*loops)
    elif not args.wait:
        print_json("submit", {"submission": id, "loops": [*loops]})
    sys.stdout.flush()


def _print_ends(loops: list[dict[str, Any]], as_json: bool) -> int:
    code = max((loop["exitCode"] or 0 for loop in loops), default=0)
    print_result(as_json, "submit", {"loops": [*loops], "exitCode": code}, *map(loop_line, loops))
    return code


# ralph fleet cancel


CANCEL_ABOUT = "End loops; their agents are ended, and their work is kept."
CANCEL_EXAMPLES = (
    "ralph fleet cancel 20261117-171500-k3f9-1",
    "ralph fleet cancel --all",
    "ralph fleet cancel --all --json",
)


def cancel_parser() -> Parser:
    parser = Parser("fleet cancel", CANCEL_ABOUT, CANCEL_EXAMPLES)
    parser.add("loops", "loop ids", nargs="*", metavar="LOOP")
    parser.add("--all", "all loops that have not ended")
    add_server_flags(parser)
    return parser


def cancel_main(argv: list[str]) -> int:
    args = cancel_parser().parse(argv)
    if bool(args.loops) == args.all:
        raise Refused("name loops, or use --all (see ralph fleet cancel --help)")

    async def cancel(client: Any) -> int:
        from ralphproof.fleet.client import cancel_all, cancel_loops

        loops = await cancel_all(client) if args.all else await cancel_loops(client, args.loops)
        print_result(
            args.json,
            "cancel",
            {"loops": [*loops]},
            f"cancelled: {', '.join(loops)}" if loops else "no loop is running",
        )
        return 0

    run_client_and_exit(args, cancel)


# ralph fleet logs


LOGS_ABOUT = """Show the output of a loop's agent and checks, whichever machine it ran on.

The logs are in the folder that was given to submit with --artifacts. Without --name they are listed, or all logs of an
iteration are printed."""
LOGS_EXAMPLES = (
    "ralph fleet logs 20261117-171500-k3f9-1",
    "ralph fleet logs 20261117-171500-k3f9-1 --iteration 2",
    "ralph fleet logs 20261117-171500-k3f9-1 --name outcome.json",
)


def logs_parser() -> Parser:
    parser = Parser("fleet logs", LOGS_ABOUT, LOGS_EXAMPLES)
    parser.add("loop", "loop id", metavar="LOOP")
    parser.add("--iteration N", "print all logs of this iteration", type=positive_int)
    parser.add("--name FILE", "print this log")
    parser.add("--artifacts URL", "folder of the logs (default: the one given to submit)")
    add_server_flags(parser)
    return parser


def logs_main(argv: list[str]) -> int:
    args = logs_parser().parse(argv)
    if args.artifacts:
        return print_logs(args, args.artifacts)

    async def find_logs(client: Any) -> int:
        from ralphproof.fleet.client import find_loop

        return print_logs(args, str((await find_loop(client, args.loop)).get("artifacts") or ""))

    run_client_and_exit(args, find_logs)


def print_logs(args: Namespace, url: str) -> int:
    """Print the selected logs, or the names of all."""
    if not url:
        raise Refused(f"loop {args.loop} was submitted without --artifacts: its logs exist only on its worker")
    folder = ArtifactFolder(url, args.loop)
    names = folder.names()
    if args.name is not None or args.iteration is not None:
        mark = f"_{args.iteration:03d}" if args.iteration is not None else ""
        names = tuple(name for name in names if (name == args.name if args.name else mark in name))
        if not names:
            raise NotThere(f"loop {args.loop} has no such log; ralph fleet logs {args.loop} lists them")
        if not args.json:
            for name in names:
                sys.stdout.write(sanitize(folder.read(name).decode("utf-8", "replace")))
            return 0
    print_result(args.json, "logs", {"loop": args.loop, "logs": [*names]}, *names or ("no log yet",))
    return 0


# ralph fleet status


STATUS_ABOUT = "Show the state and cost of loops."
STATUS_EXAMPLES = ("ralph fleet status", "ralph fleet status 20261117-171500-k3f9-1", "ralph fleet status --json")


def status_parser() -> Parser:
    parser = Parser("fleet status", STATUS_ABOUT, STATUS_EXAMPLES)
    parser.add("loop", "loop id (default: all loops)", nargs="?", metavar="LOOP")
    add_server_flags(parser)
    return parser


def status_main(argv: list[str]) -> int:
    args = status_parser().parse(argv)

    async def find_status(client: Any) -> int:
        from ralphproof.fleet.client import find_loop, list_loops

        loops = [await find_loop(client, args.loop)] if args.loop else await list_loops(client)
        if args.json:
            print_json("loop", loops[0]) if args.loop else print_json("fleet", {"loops": [*loops]})
        else:
            print_lines(*map(loop_line, loops) if loops else ["no loop was submitted"])
        return 0

    run_client_and_exit(args, find_status)


def loop_line(loop: dict[str, Any]) -> str:
    """One line about a loop."""
    cost = f"${loop['knownCostUSD']:.2f}" if loop["costUSD"] is not None else f"at least ${loop['knownCostUSD']:.2f}"
    progress = f"{loop['iterations']} iteration{'' if loop['iterations'] == 1 else 's'}, {cost}"
    return "  ".join(part for part in (loop["loop"], loop_status_text(loop), progress, loop.get("title", "")) if part)


def loop_status_text(loop: dict[str, Any]) -> str:
    """The state of a loop in a few words."""
    if loop["status"]:
        detail = loop["reason"] or loop["proof"]
        error = loop["message"] if loop["status"] == "ERROR" else ""
        return f"{loop['status']}{f' ({detail})' if detail else ''}{f': {error}' if error else ''}"
    trouble = f" (trouble: {loop['trouble']})" if loop.get("trouble") else ""
    return f"{'on ' + loop['worker'] if loop['worker'] else 'waits'}{trouble}"
