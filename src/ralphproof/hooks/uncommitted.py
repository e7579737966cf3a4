"""What a project's git has not got yet."""

from __future__ import annotations

import os
import subprocess

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

TIMEOUT_S = 10
# Nothing that the repository configures runs because somebody looks at it.
QUIET = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")
OURS = (".ralph/", ".ralph-active")


def uncommitted(project: str, before: object = None) -> list[str]:
    """Files that changed and are not committed, without those that were so `before`; none where there is no git."""
    known = set(before) if isinstance(before, list) and all(isinstance(one, str) for one in before) else set()
    if not os.path.lexists(os.path.join(project, ".git")):
        return []
    argv = ["git", *QUIET, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames"]
    env = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(argv, cwd=project, env=env, capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []  # the loop looks again
    if done.returncode:
        return []
    return [path for path in _paths(done.stdout) if path not in known and not path.startswith(OURS)]


def _paths(listed: bytes) -> Iterable[str]:
    return (entry[3:].decode("utf-8", "backslashreplace") for entry in listed.split(b"\0") if len(entry) > 3)
