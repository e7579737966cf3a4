"""`ralph fleet logs`: what the agent and the checks of a loop printed, whichever machine it was on."""

from __future__ import annotations

import os
import sys

from ralphproof.cli.fleet_common import add_server, engine_of, with_client
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser, positive
from ralphproof.display.clean import clean
from ralphproof.errors import NotThere, Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

ABOUT = """what the agent and the checks of a loop printed, whichever machine it was on.

Logs are in the folder that was given to submit with --artifacts; without --name they are listed, or all of an
iteration are shown."""
EXAMPLES = (
    "ralph fleet logs 20261117-171500-k3f9-1",
    "ralph fleet logs 20261117-171500-k3f9-1 --iteration 2",
    "ralph fleet logs 20261117-171500-k3f9-1 --name outcome.json",
)


def parser() -> Parser:
    made = Parser("fleet logs", ABOUT, EXAMPLES)
    made.add_argument("loop", metavar="LOOP", help="the loop by its id")
    made.add_argument("--iteration", type=positive, metavar="N", help="all logs of this iteration")
    made.add_argument("--name", metavar="FILE", help="one log by its name")
    made.add_argument("--artifacts", metavar="URL", help="the folder (default: as it was submitted)")
    add_server(made)
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    engine = engine_of(args)
    if args.artifacts:
        return show(args, args.artifacts)
    if engine == "local":
        from ralphproof.fleet.local import LocalFleet
        from ralphproof.ledgers.place import state_dir

        return show(args, LocalFleet(state_dir(os.environ)).loop(args.loop).given["order"]["artifacts"])

    async def look(client: Any) -> int:
        from ralphproof.fleet import client as asking

        return show(args, str((await asking.loop(client, args.loop)).get("artifacts") or ""))

    with_client(args, look)


def show(args: Namespace, url: str) -> int:
    """Print the logs, or their names."""
    from ralphproof.fleet.artifacts import Artifacts

    if not url:
        raise Refused(f"loop {args.loop} was submitted without --artifacts: its logs are on its worker alone")
    folder = Artifacts(url, args.loop)
    names = folder.names()
    if args.name is not None or args.iteration is not None:
        mark = f"_{args.iteration:03d}" if args.iteration is not None else ""
        names = tuple(name for name in names if (name == args.name if args.name else mark in name))
        if not names:
            raise NotThere(f"loop {args.loop} has no such log; ralph fleet logs {args.loop} lists them")
        if not args.json:
            for name in names:
                sys.stdout.write(clean(folder.read(name).decode("utf-8", "replace")))
            return 0
    if args.json:
        put_json("logs", {"loop": args.loop, "logs": [*names]})
    else:
        put(*names or ("there is no log yet",))
    return 0
