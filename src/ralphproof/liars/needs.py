"""What the projects of the trials are run with, and why it is not there."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

from ralphproof.interpreter import executable

OLDEST_NODE = 20
LOOK_S = 30


@cache
def lacking(need: str) -> str:
    """Why a trial that needs this cannot be held on this machine; empty where it can."""
    if need == "pytest":
        said = _said(executable(), "-I", "-m", "pytest", "--version")
        return "" if said.startswith("pytest") else f"{executable()} has no pytest"
    if shutil.which(need) is None:
        return f"{need} is not on PATH"
    if need == "node":
        said = _said("node", "--version")
        number = re.match(r"v(\d+)", said)
        if number is None or int(number[1]) < OLDEST_NODE:
            return f"node is {said or 'mute'}, and its test runner is needed as of v{OLDEST_NODE}"
    return ""


def _said(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LOOK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
