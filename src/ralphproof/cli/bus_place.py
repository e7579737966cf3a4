"""Which bus is meant: the project's, or that of a task."""

from __future__ import annotations

import os

from ralphproof.errors import Refused
from ralphproof.ledgers.bus import project_bus, task_bus
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.root import root_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ralphproof.ledgers.bus import Bus

PROJECT, TASK = "project", "task"


class Place:
    """Which bus is meant, and what is said of a message beside its text."""

    def __init__(self, args: Namespace, name: str | None) -> None:
        self._args, self._environ = args, os.environ
        if args.task_folder == "":
            raise Refused("the task folder has an empty name; name a folder, or leave it out")
        named = args.run or args.task_folder or self._environ.get("TASK_FOLDER")
        self.name = name or (TASK if named else PROJECT)
        self.run, self._run_folder = _run(args) if args.run else ("", "")

    def bus(self) -> Bus:
        if self.name == PROJECT:
            return project_bus(root_of(self._args.project_dir), _mask())
        folder = self._run_folder or self._args.task_folder or self._environ.get("TASK_FOLDER")
        if not folder:
            raise Refused("which task? name its run with --run RUN (or latest), or its folder with --task-folder DIR")
        if self._args.task_folder and not os.path.isdir(folder):
            raise Refused(f"{folder} is not a directory; --task-folder names that of a task")
        return task_bus(folder, _mask())

    def tags(self) -> dict[str, str]:
        """What a new message carries: whose it is, and that is not the run to whose bus it is posted."""
        args, environ = self._args, self._environ
        return {
            "run": environ.get("RALPH_RUN_ID") or self.run,
            "project": args.project if args.project is not None else environ.get("RALPH_PROJECT", ""),
            "task": args.task if args.task is not None else environ.get("RALPH_TASK", ""),
        }


def _mask() -> Callable[[str], str]:
    from ralphproof.secret import mask, secrets_in

    secrets = secrets_in(os.environ)
    return lambda text: mask(text, secrets)


def _run(args: Namespace) -> tuple[str, str]:
    """The id of the run that is meant, and the folder of its task."""
    from ralphproof.cli.named_run import named_run
    from ralphproof.views.project import Project
    from ralphproof.views.standing import files_of

    project = Project.seen(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = named_run(ledger, args.run, args)
        facts = getattr(next(iter(ledger.records(row.id)), None), "facts", {})
        return row.id, str(facts.get("taskFolder") or os.path.join(files_of(project, row), "task"))
    finally:
        ledger.close()
