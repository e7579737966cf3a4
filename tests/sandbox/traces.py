"""What a command in a sandbox could leave behind: processes, containers, folders, groups, mounts."""

from __future__ import annotations

import os
from pathlib import Path

from tests.sandbox.processes import processes
from tests.sandbox.worlds import CONTAINER, World

SCRIPT = "setsid nohup sleep {0} > /dev/null 2>&1 & setsid sh -c 'sleep {0} & sleep {0}' & echo ready; sleep {0}"


def mark(world: World) -> str:
    """A number of seconds that nobody else sleeps."""
    return f"7777.{int.from_bytes(world.top.name.encode()[-6:], 'big')}"


def lingering(world: World) -> str:
    """A script that starts processes which try to outlive it, and says that it is ready."""
    return SCRIPT.format(mark(world))


def traces(world: World, kind: str) -> list[str]:
    """Everything that is left of the commands in this world, in words."""
    found = [f"process {words}" for word in (mark(world), str(world.top)) for _, words in processes(word)]
    found += [f"folder {path}" for path in world.store.rglob("*.tmp")]
    found += [f"in the project {path}" for path in world.project.iterdir() if path.name != ".git"]
    found += [f"mount {line}" for line in Path("/proc/mounts").read_text().splitlines() if str(world.top) in line]
    found += [f"group {path}" for path in _groups(world.top.name.replace("-", "_"))]
    if kind == CONTAINER:
        asked = world.call("podman", "ps", "--all", "--quiet", "--filter", f"volume={world.project}")
        assert asked.returncode == 0, asked.stderr
        found += [f"container {name}" for name in asked.stdout.split()]
    return found


def _groups(name: str) -> list[str]:
    """Groups of processes that have this in their names."""
    every = (os.path.join(top, one) for top, folders, _ in os.walk("/sys/fs/cgroup") for one in folders)
    return [path for path in every if name in os.path.basename(path)]
