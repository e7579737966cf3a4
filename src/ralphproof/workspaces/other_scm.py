"""Keeping passed work with another program than git: it is called with each task, and stages as it likes."""

from __future__ import annotations

import os

from ralphproof.check import slugs
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.workspace import Committed
from ralphproof.workspaces.gitcall import find_program, plain_environment
from ralphproof.workspaces.layout import git_folders, head_commit
from ralphproof.workspaces.pinned import changed, program_marks
from ralphproof.workspaces.scm import ScmStart, clean_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.sandbox import Watch
    from ralphproof.workspace import Work
    from ralphproof.workspaces.owned import Programs


class OtherScm:
    """Runs `<command> <task>` for each task; a commit gets the message as one argument."""

    def __init__(
        self, command: str, tasks: tuple[str, ...], root: str, programs: Programs,
        environ: Mapping[str, str] | None = None, start: ScmStart | None = None,
    ) -> None:  # fmt: skip
        """`start` is what a resumed run had seen when it began."""
        import shlex

        self.root, self.tasks, self._programs = os.path.realpath(root), tasks, programs
        self._env = plain_environment(os.environ if environ is None else environ)
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise Refused(f"scm.command: {command!r} cannot be read: {error}") from error
        if not self._command:
            raise Refused(f"scm.command: {command!r} names no program")
        named, path = self._command[0], self._env.get("PATH", os.defpath)
        place = os.path.join(self.root, named) if "/" in named else named  # a path is relative to the project
        program = find_program(place, path, self.root)
        if program is None:
            where = "is no program" if "/" in named else "was not found in PATH"
            raise Refused(f"scm.command: {place} {where}")
        self._command[0] = program
        self.start = start or ScmStart(program_marks(self._command, self.root), (), ())

    def keep(self, work: Work, watch: Watch) -> Committed:
        """Run the tasks in order; the first that fails ends it."""
        names = [f"scm_{work.iteration:03d}_{slug}" for slug in slugs(self.tasks)]
        began = any(map(self._programs.began, names))
        if not began and (other := changed(self.start.commit_marks, program_marks(self._command, self.root))):
            return Committed(error="refused, because this changed during the run: " + ", ".join(other))
        before = work.now.head if began else self._head()
        kept = self._run(clean_message(work.message), names, watch)
        after = self._head()
        return replace(kept, commit=after) if after != before else kept

    def _run(self, text: str, names: list[str], watch: Watch) -> Committed:
        called = os.path.basename(self._command[0])
        for place, (task, name) in enumerate(zip(self.tasks, names, strict=True)):
            if task == "commit" and not text:
                return Committed(error="no commit message", done=self.tasks[:place])
            more = ("-m", text) if task == "commit" else ()
            if trouble := self._programs.run(name, (*self._command, task, *more), self._env, watch):
                return Committed(error=f"{called} {task}{trouble}", done=self.tasks[:place])
        return Committed(done=self.tasks)

    def _head(self) -> str | None:
        """Where the project is a git repository all the same: the commit that HEAD names."""
        folders = git_folders(self.root)
        try:
            return head_commit(folders) if folders else None
        except OSError:
            return None
