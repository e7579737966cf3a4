"""What is known of a run whose files `ralph gc` removed, or began to remove: a note in the state."""

from __future__ import annotations

import os

from ralphproof.errors import Refused
from ralphproof.ledgers.files import private_folder, read_whole, write_whole
from ralphproof.ledgers.folder import is_run_id
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from ralphproof.views.project import Project

SWEPT, ENDING = "swept", ".json"


@value
class Sweeping:
    """One run that is to go. It goes on from here until it is `done`, whoever is killed over it.

    `trees` is the name of the folder in which its workspace kept things.
    """

    run: str
    directory: str
    trees: str
    kind: str
    at: float
    done: bool = False


def note(project: Project, sweeping: Sweeping) -> None:
    """Write it down, durably."""
    import json

    place = os.path.join(project.store, SWEPT)
    private_folder(place)
    facts = {name: getattr(sweeping, name) for name in Sweeping.__match_args__}
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        write_whole(folder, sweeping.run + ENDING, json.dumps(facts).encode() + b"\n")
    finally:
        os.close(folder)


def noted(project: Project, run: str) -> Sweeping | None:
    """What was written down of a run; None where nothing was, or it cannot be read."""
    import json

    if not is_run_id(run):
        return None
    data = read_whole(os.path.join(project.store, SWEPT, run + ENDING)) or b""
    try:
        facts = json.loads(data)
        directory, trees, kind = (str(facts[name]) for name in ("directory", "trees", "kind"))
        return Sweeping(run, directory, trees, kind, float(facts["at"]), facts["done"] is True)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def all_noted(project: Project) -> list[Sweeping]:
    """All of them."""
    place = os.path.join(project.store, SWEPT)
    names = sorted(os.listdir(place)) if os.path.isdir(place) else []
    found = (noted(project, name.removesuffix(ENDING)) for name in names if name.endswith(ENDING))
    return [one for one in found if one is not None]


def swept(project: Project, run: str) -> str:
    """That the files of a run were removed, or some of them, and when; empty where they were not."""
    import time

    found = noted(project, run)
    if found is None:
        return ""
    day = time.strftime("%Y-%m-%d", time.gmtime(found.at))
    if not found.done:
        return f"ralph gc began to remove the files of run {run} on {day}, and has not finished; again: ralph gc"
    return f"the files of run {run} were removed by ralph gc on {day}; its records are kept"


def refuse_swept(project: Project, run: str) -> None:
    """Raise Refused for a run whose files are gone."""
    if told := swept(project, run):
        raise Refused(told)
