"""A harness as a program, for tests that kill it: harness_main.py FOLDER TURN TIMEOUT SCRIPT; ORDERS has the rest."""

import json
import os
import sys

from tests.process.workbench import ObeyingWatcher, Workbench


def main(folder: str, turn: str, timeout: str, script: str) -> None:
    from pathlib import Path

    from ralphproof.process import keeper_client

    orders = json.loads(os.environ["ORDERS"])
    keeper_client._KEEPER_MAIN = orders["keeper_script"] or keeper_client._KEEPER_MAIN
    bench = Workbench(Path(folder))
    bench.nap = os.environ["NAP"]
    keeper = bench.keeper(sizes=tuple(orders["sizes"]))
    if orders["stand_in"]:
        keeper.options.stand_in = lambda _: (tuple(orders["stand_in"]), dict(os.environ))
    print(keeper.pid, flush=True)
    if orders["hold"]:  # the keeper reads START only when the test lets it
        os.kill(keeper.pid, 19)
    if orders["kill_at"]:
        from tests.process.fault_injection import kill_harness_at

        kill_harness_at(orders["kill_at"])
    more = {"mark": f"{folder}-{turn}", "timeout_s": float(timeout), **orders["more"]}
    command = bench.command("/bin/sh", "-c", script, turn=turn, **more)
    if orders["hold"]:
        print("sending", flush=True)
    print(keeper.run(command, ObeyingWatcher()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
