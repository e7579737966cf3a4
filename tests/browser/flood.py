"""An agent's stream that does not stop: `python flood.py SECONDS EVENTS_A_SECOND`."""

from __future__ import annotations

import json
import sys
import time

SECONDS, EACH = int(sys.argv[1]), int(sys.argv[2])
began, number = time.monotonic(), 0
while number < SECONDS * EACH:
    due = min(SECONDS * EACH, int((time.monotonic() - began) * EACH))
    for one in range(number, due):
        if one % 2:
            print(json.dumps({"is": "Said", "text": f"word {one} of a flood"}))
        else:
            print(json.dumps({"is": "ToolStarted", "id": str(one), "name": "Bash", "summary": f"ls {one}"}))
    sys.stdout.flush()
    number = due
    time.sleep(0.02)
