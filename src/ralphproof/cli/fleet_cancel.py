"""`ralph fleet cancel`: end loops; their agents are ended, and their work is kept."""

from __future__ import annotations

import os

from ralphproof.cli.fleet_common import add_server, engine_of, with_client
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

ABOUT = "end loops; their agents are ended, and their work is kept."
EXAMPLES = ("ralph fleet cancel 20261117-171500-k3f9-1", "ralph fleet cancel --all", "ralph fleet cancel --all --json")


def parser() -> Parser:
    made = Parser("fleet cancel", ABOUT, EXAMPLES)
    made.add_argument("loops", nargs="*", metavar="LOOP", help="loops by their ids")
    made.add_argument("--all", action="store_true", help="every loop that is not over, and those not yet begun")
    add_server(made)
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    if bool(args.loops) == args.all:
        raise Refused("say which loops: their ids, or --all (see ralph fleet cancel --help)")
    if engine_of(args) == "local":
        return _tell(_here(args.loops), args.json)

    async def end(client: Any) -> int:
        from ralphproof.fleet import client as asking

        if args.all:
            return _tell(await asking.cancel_all(client), args.json)
        for loop in args.loops:
            await asking.loop(client, loop)  # all of them are there, or none is cancelled
        for loop in args.loops:
            await asking.cancel(client, loop)
        return _tell(args.loops, args.json)

    with_client(args, end)


def _here(loops: list[str]) -> list[str]:
    from ralphproof.fleet.local import LocalFleet
    from ralphproof.ledgers.place import state_dir

    fleet = LocalFleet(state_dir(os.environ))
    names = [fleet.loop(name).name for name in loops] or [one.name for one in fleet.open()]
    fleet.cancel(names)
    return names


def _tell(loops: list[str], as_json: bool) -> int:
    if as_json:
        put_json("cancel", {"loops": [*loops]})
    else:
        put(*([f"asked to end: {', '.join(loops)}"] if loops else ["no loop is at work"]))
    return 0
