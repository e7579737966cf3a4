"""`ralph fleet status`: where loops stand, and what they cost."""

from __future__ import annotations

import os

from ralphproof.cli.fleet_common import add_server, engine_of, with_client
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

ABOUT = "where loops stand, and what they cost."
EXAMPLES = ("ralph fleet status", "ralph fleet status 20261117-171500-k3f9-1", "ralph fleet status --json")


def parser() -> Parser:
    made = Parser("fleet status", ABOUT, EXAMPLES)
    made.add_argument("loop", nargs="?", metavar="LOOP", help="one loop by its id (default: all)")
    add_server(made)
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    if engine_of(args) == "local":
        from ralphproof.fleet.local import LocalFleet
        from ralphproof.ledgers.place import state_dir

        fleet = LocalFleet(state_dir(os.environ))
        found = [fleet.loop(args.loop)] if args.loop else fleet.loops()
        return _tell([one.shown for one in found], args.loop, args.json)

    async def look(client: Any) -> int:
        from ralphproof.fleet import client as asking

        found = [await asking.loop(client, args.loop)] if args.loop else await asking.loops(client)
        return _tell(found, args.loop, args.json)

    with_client(args, look)


def _tell(found: list[dict[str, Any]], one: str | None, as_json: bool) -> int:
    if as_json:
        put_json("loop", found[0]) if one else put_json("fleet", {"loops": [*found]})
    elif not found:
        put("no loop was submitted")
    else:
        put(*(line_of(loop) for loop in found))
    return 0


def line_of(loop: dict[str, Any]) -> str:
    """A loop in one line."""
    cost = f"${loop['knownCostUSD']:.2f}" if loop["costUSD"] is not None else f"at least ${loop['knownCostUSD']:.2f}"
    done = f"{loop['iterations']} iteration{'' if loop['iterations'] == 1 else 's'}, {cost}"
    return "  ".join(part for part in (loop["loop"], stance_of(loop), done, loop.get("title", "")) if part)


def stance_of(loop: dict[str, Any]) -> str:
    """What can be said of it in few words."""
    if loop["status"]:
        how = loop["reason"] or loop["proof"]
        why = loop["message"] if loop["status"] == "ERROR" else ""
        return f"{loop['status']}{f' ({how})' if how else ''}{f': {why}' if why else ''}"
    trouble = f" (trouble: {loop['trouble']})" if loop.get("trouble") else ""
    return f"{'on ' + loop['worker'] if loop['worker'] else 'waits'}{trouble}"
