"""A harness of its own process, for tests that kill it: harness.py FOLDER TURN TIMEOUT SCRIPT."""

import os
import sys

from tests.keeper.desk import Desk, Seen


def main(folder: str, turn: str, timeout: str, script: str) -> None:
    from pathlib import Path

    desk = Desk(Path(folder))
    desk.nap = os.environ["NAP"]
    keeper = desk.keeper()
    print(keeper.pid, flush=True)
    if os.environ.get("HOLD"):  # the keeper reads START only when the test lets it
        os.kill(keeper.pid, 19)
    more = {"mark": f"{folder}-{turn}", "timeout_s": float(timeout), "linger_s": 0.3}
    command = desk.command("/bin/sh", "-c", script, turn=turn, **more)
    if os.environ.get("HOLD"):
        print("sending", flush=True)
    print(keeper.run(command, Seen()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
