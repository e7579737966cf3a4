"""`ralph fleet submit`: hand in loops."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from ralphproof.cli.fleet_common import add_server, engine_of, with_client
from ralphproof.cli.fleet_order import orders_of, submitter_of
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser, amount, positive
from ralphproof.cli.run import AGENT, add_bounds, add_prompt, parsed
from ralphproof.errors import Refused
from ralphproof.plans.draft import STAGES
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from ralphproof.fleet.permit import Allowance
    from ralphproof.fleet.submission import FleetSubmission

ABOUT = """hand in loops: one for a prompt, or one for each task of a file. Prints their ids.

Everything is checked as far as it can be without the repository before anything is sent. All loops are taken, or none.
A task begins when those that it depends on have completed. What may be spent is yours to say, and holds over all
workers: --max-cost-usd for each loop, --total-cost-usd for all that is handed in here, --daily-cost-usd for all that
you have in the fleet. With --wait the exit code is the worst of the loops': 0 all completed."""
EXAMPLES = (
    'ralph fleet submit --repo https://git.example/app.git -p "make the tests pass" --check "make test"',
    "ralph fleet submit --repo /srv/git/app.git --ref main --tasks tasks.yaml --land main --wait",
    "ralph fleet submit --repo git@git.example:app.git -f wish.md --total-cost-usd 20 --rate claude=10/min",
)
ABSENT: dict[str, Any] = {
    "words": None, "preset": None, "stream_agent_output": None, "skip_review": None, "review_cap": None,
    "resume": None, "skill": None, "type": None, "risk": None, "force": False, "explain": False, "ralph_dir": None,
}  # fmt: skip


def parser() -> Parser:
    made = Parser("fleet submit", ABOUT, EXAMPLES)
    add = made.add_argument
    add("--repo", metavar="URL", help="the repository that all workers can reach; a path on this machine is one too")
    add("--ref", metavar="B", help="the branch or commit that the work begins on (default: the repository's own)")
    add_prompt(made)
    add("--tasks", action="append", metavar="FILE", help="a file of tasks, each a loop; repeat it; - is stdin")
    add("--skip", action="append", choices=STAGES, metavar="STAGE", help="with --tasks: leave a stage out; repeat it")
    add("-m", "--maximum-iterations", "-n", "--max-iterations", type=positive, metavar="N", help="stop after so many")
    add("-c", "--completion-response", metavar="WORD", help="the word that claims completion (default DONE)")
    add("--promise", metavar="WORD", help="the same as --completion-response")
    add("--agent", metavar="CMD", help=AGENT)
    add("--model", metavar="M", help="the model that the agent is asked to use")
    add_bounds(made)
    add("--total-cost-usd", type=amount, metavar="USD", help="all that is handed in here may cost so much together")
    add("--daily-cost-usd", type=amount, metavar="USD", help="all that you have in the fleet, in a UTC day")
    add("--max-parallel", type=positive, metavar="N", help="so many turns of yours at once")
    add("--fleet-parallel", type=positive, metavar="N", help="so many turns of all submitters at once")
    add("--rate", action="append", metavar="AGENT=N/min", help="so many turns of an agent in a minute; repeat it")
    add("--agent-parallel", action="append", metavar="AGENT=N", help="so many turns of an agent at once; repeat it")
    add("--artifacts", default="", metavar="URL", help="a folder for logs that workers and you can reach; fsspec knows")
    add("--land", default="", metavar="BRANCH", help="land completed work on this branch (default: on ralph/LOOP)")
    add("--submitter", metavar="NAME", help="who hands this in (default: you, by your login)")
    add("--heartbeat", type=amount, metavar="S", help="a worker silent for so long loses its turns (default: 30)")
    add("--wait", action="store_true", help="wait until all loops are over")
    add_server(made)
    made.set_defaults(**ABSENT)
    return made


def main(argv: list[str]) -> int:
    args = parsed(argv, parser())
    engine = engine_of(args)
    submission = submission_of(args)
    if engine == "local":
        return _locally(args, submission)

    async def send(client: Any) -> int:
        from ralphproof.fleet import client as asking

        await asking.submit(client, submission)
        _tell(submission, args)
        try:
            return _ended(await asking.outcome(client, submission.id), args) if args.wait else 0
        except asyncio.CancelledError:  # Ctrl-C
            _left_alone()
            raise

    with_client(args, send)


def _locally(args: Namespace, submission: FleetSubmission) -> int:
    from ralphproof.fleet.local import LocalFleet
    from ralphproof.ledgers.place import state_dir

    fleet = LocalFleet(state_dir(os.environ))
    fleet.submit(submission)
    _tell(submission, args)
    names = {one.order.loop for one in submission.loops}
    try:
        while args.wait and any(one.name in names for one in fleet.open()):
            time.sleep(0.2)
    except KeyboardInterrupt:
        _left_alone()
        raise
    return _ended([fleet.loop(name).shown for name in sorted(names)], args) if args.wait else 0


def _left_alone() -> None:
    """Whoever waited waits no more; that ends nothing."""
    print("ralph: the loops go on; ralph fleet cancel ends them", file=sys.stderr, flush=True)


def submission_of(args: Namespace) -> FleetSubmission:
    """What is handed in; raises Refused with what is wrong with it."""
    from ralphproof.fleet.submission import FleetSubmission, packed_submission
    from ralphproof.fleet.tempo import HEARTBEAT_S, Tempo
    from ralphproof.ledgers.folder import new_run_id

    if not args.repo:
        raise Refused("say which repository: --repo URL (see ralph fleet submit --help)")
    allowance, submitter = allowance_of(args), submitter_of(args)
    id = new_run_id(time.time(), os.urandom(3))
    tempo = Tempo(heartbeat_s=max(1.0, args.heartbeat or HEARTBEAT_S))
    made = FleetSubmission(id, submitter, orders_of(args, id, submitter), allowance, tempo)
    packed_submission(made)
    return made


def allowance_of(args: Namespace) -> Allowance:
    """What may be spent, and how much at once."""
    from ralphproof.fleet.permit import Allowance

    return Allowance(
        _micro(args.total_cost_usd), _micro(args.daily_cost_usd), args.max_parallel, args.fleet_parallel,
        {name: _count(text, f"--agent-parallel {name}") for name, text in _pairs(args.agent_parallel, "AGENT=N")},
        {name: _count(_per_minute(text), f"--rate {name}") for name, text in _pairs(args.rate, "AGENT=N/min")},
    )  # fmt: skip


def _micro(usd: float | None) -> int | None:
    return None if usd is None else max(1, round(usd * 1_000_000))


def _pairs(given: list[str] | None, form: str) -> list[tuple[str, str]]:
    found = []
    for text in given or ():
        name, mark, number = text.rpartition("=")
        if not mark or not name:
            raise Refused(f"{text!r} is not of the form {form}")
        found.append((name, number))
    return found


def _per_minute(text: str) -> str:
    number, slash, unit = text.partition("/")
    if slash and unit not in ("min", "minute", "m"):
        raise Refused(f"a rate is so many turns in a minute: AGENT=N/min, not {text!r}")
    return number


def _count(text: str, where: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise Refused(f"{where}: {text!r} is not a whole number above zero")
    return number


def _tell(submission: FleetSubmission, args: Namespace) -> None:
    loops = [one.order.loop for one in submission.loops]
    if args.json and not args.wait:
        put_json("submit", {"submission": submission.id, "loops": [*loops]})
    elif not args.json:
        put(*loops)
    sys.stdout.flush()


def _ended(loops: list[dict[str, Any]], args: Namespace) -> int:
    from ralphproof.cli.fleet_status import line_of

    code = max((loop["exitCode"] or 0 for loop in loops), default=0)
    if args.json:
        put_json("submit", {"loops": [*loops], "exitCode": code})
    else:
        put(*(line_of(loop) for loop in loops))
    return code
