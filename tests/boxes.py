"""Runs in a sandbox: which kinds hold here, and what a test does and sees in one.

Inside, the folder around the project is not there: agents leave what they see in the project.
"""

from __future__ import annotations

import os
import shlex
import sys
from functools import cache

import pytest

from ralphproof.sandbox.selection import try_backends
from tests.needs import require
from tests.ralph import Ended, Ralph, Step

KINDS = ("bubblewrap", "landlock")
STRENGTH = {"bubblewrap": "strong", "landlock": "partial"}
both = pytest.mark.parametrize("kind", KINDS)
# A name that needs no network to be refused: the way out of the sandbox does that.
CALL = f"{shlex.quote(sys.executable)} -c 'import urllib.request as web; web.urlopen(\"http://a.test/\")'"


@cache
def holds(kind: str) -> bool:
    """Whether a kind of sandbox holds on this machine."""
    return any(one.problem is None for one in try_backends(kind, os.environ, "/nowhere"))


def needs(*kinds: str) -> None:
    """Go on only where these hold."""
    for kind in kinds:
        require(holds(kind), f"sandbox {kind} must hold here")


def sh(script: str) -> Step:
    """A step: the agent runs this, whatever comes of it."""
    return {"run": ["sh", "-c", f"{script}\nexit 0"]}


def lay(ralph: Ralph, **files: str) -> None:
    """A project in git, with an identity of its own, and a secret of the user's beside it."""
    ralph.write({"readme": "hello\n", **files})
    ralph.git("init", "-q")
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")
    ralph.commit()
    (ralph.home / "secret").write_text("sesame\n")


def run(ralph: Ralph, *iterations: list[Step], flags: tuple[str, ...] = ("--sandbox=bubblewrap",)) -> Ended:
    """`ralph run` in a sandbox."""
    return ralph("run", "-p", "make it so", "--agent", ralph.script(*iterations), *flags)


def text(ralph: Ralph, name: str) -> str:
    """What somebody inside left in the project; empty where nobody did."""
    path = ralph.root / name
    return path.read_text() if path.exists() else ""
