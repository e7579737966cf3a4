"""A harness of its own process, for tests that kill it: harness.py FOLDER TURN TIMEOUT SCRIPT; ORDERS has the rest."""

import json
import os
import sys

from tests.process.desk import Desk, Minding


def main(folder: str, turn: str, timeout: str, script: str) -> None:
    from pathlib import Path

    from ralphproof.process import client

    orders = json.loads(os.environ["ORDERS"])
    client._KEEPER_MAIN = orders["door"] or client._KEEPER_MAIN
    desk = Desk(Path(folder))
    desk.nap = os.environ["NAP"]
    keeper = desk.keeper(sizes=tuple(orders["sizes"]))
    if orders["stand_in"]:
        keeper.options.stand_in = lambda _: (tuple(orders["stand_in"]), dict(os.environ))
    print(keeper.pid, flush=True)
    if orders["hold"]:  # the keeper reads START only when the test lets it
        os.kill(keeper.pid, 19)
    if orders["curse"]:
        from tests.process.curse import curse_harness

        curse_harness(orders["curse"])
    more = {"mark": f"{folder}-{turn}", "timeout_s": float(timeout), **orders["more"]}
    command = desk.command("/bin/sh", "-c", script, turn=turn, **more)
    if orders["hold"]:
        print("sending", flush=True)
    print(keeper.run(command, Minding()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
