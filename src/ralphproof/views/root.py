"""The project that a folder belongs to, without the rest of a project: who posts a message needs no more."""

from __future__ import annotations

import os

from ralphproof import interpreter
from ralphproof.errors import Refused
from ralphproof.workspaces.identity import find_root


def root_of(folder: str | None) -> str:
    """The top of the project that a folder belongs to; None is the folder we are in."""
    if folder == "":
        raise Refused("the project's folder has an empty name; name one with --project-dir, or leave it out")
    try:
        start = os.path.abspath(folder or os.getcwd())
    except FileNotFoundError as error:
        raise Refused("the current directory no longer exists; go to a project, or name its --project-dir") from error
    if not os.path.isdir(start):
        raise Refused(f"{start} is not a directory; name a project with --project-dir")
    root = find_root(start)
    interpreter.leave_out(root)
    return root
