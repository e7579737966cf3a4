"""Runs one command on a ration, as the outer program does: `python -I -S rationed.py SOURCE MEMORY PROCESSES WHAT …`.

WHAT is the name of a program below, or `die`: then it leaves a sleeping process in its groups and dies without a word.
Tells as JSON by what the ration was held, how the command ended, what it said, and what limit it reached.
"""

from __future__ import annotations

import json
import os
import sys

PROGRAMS = {
    "eat": "x = bytearray(300 << 20); print('ate')",
    "fork": """
import os, time
count = 0
try:
    for _ in range(100):
        if os.fork() == 0:
            os.setsid()
            time.sleep(60)
            os._exit(0)
        count += 1
except OSError:
    pass
print(count, flush=True)
""",
    "rest": "print('well')",
    "sleep": "import time; print('asleep', flush=True); time.sleep(60)",
}


def main(source: str, memory: str, processes: str, what: str) -> None:
    """Hold a program to its ration from its start to its end."""
    sys.path.append(source)
    from ralphproof.sandbox.plan import ResourceLimits
    from ralphproof.sandbox.resource_limits import LimitedCommand, find_limit_mechanism

    limits = ResourceLimits(int(memory), int(processes))
    by = find_limit_mechanism(limits)
    enclosure = LimitedCommand(by, limits, f"{what}.stay")
    says, said = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(said, 1)
        enclosure.enter()
        argv = [*by.prefix, sys.executable, "-I", "-S", "-c", PROGRAMS["sleep" if what == "die" else what]]
        os.execvp(argv[0], argv)
    heard = os.read(says, 100).decode() if what == "die" else ""
    if what == "die":
        print(json.dumps({"name": by.name, "child": child, "said": heard}), flush=True)
        os._exit(0)
    os.close(said)
    status = os.waitpid(child, 0)[1]
    limit_reached = enclosure.limit_reached()
    enclosure.close()
    with open(says, "rb") as file:  # which ends when all that could write to it have ended
        heard = file.read().decode()
    told = {
        "name": by.name,
        "held": by.enforced,
        "code": os.waitstatus_to_exitcode(status),
        "full": limit_reached,
        "said": heard,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
