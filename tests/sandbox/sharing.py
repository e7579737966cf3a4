"""What takes long and is the same for all workers of one test run is done by the first that needs it."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from typing import Any

import pytest


def shared(request: pytest.FixtureRequest, name: str, make: Callable[[], Any]) -> Any:
    """What `make` returns, which must be JSON; made once in a test run."""
    if request.getfixturevalue("worker_id") == "master":
        return make()
    folder = request.getfixturevalue("tmp_path_factory").getbasetemp().parent
    made = folder / f"{name}-{request.getfixturevalue('testrun_uid')}.json"
    with open(made, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if not (text := file.read()):
            file.write(text := json.dumps(make()))
    return json.loads(text)
