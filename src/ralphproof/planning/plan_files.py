"""prd.md and tasks.json of a project while they are planned: before, now, and copies."""

from __future__ import annotations

import os
import time

from ralphproof.base.errors import Refused, wrap_os_error
from ralphproof.base.files import explain_os_error, make_private_folder, read_file
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.planning.recovery import HALF, WHOLE, note_text, put_file
from ralphproof.planning.validation import (
    is_scaffold,
    planned,
    prd_faults,
    prd_remarks,
    progress_in,
    stories_in,
    story_faults,
    story_remarks,
    text_of,
)
from ralphproof.runs.open_project import refuse_active_marker
from ralphproof.runs.resume import PLANNING_NOTE, plannings_folder
from ralphproof.store.run_folder import new_run_id
from ralphproof.stories import schema
from ralphproof.stories.story_folder import (
    PRD,
    TASKS,
    folder_flags,
    missing_folder_error,
    read_template,
    stories_folder,
)

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.store.project import Project

FULL, DERIVED = "full", "tasks"  # the modes: both files are written, or the stories alone
MODES = {
    FULL: "full planning, prd.md and tasks.json",
    DERIVED: "task derivation, tasks.json from the prd.md that is there",
}
REMEDY = "set RALPH_STATE_DIR to a directory of yours"
NAMED = 5  # stories, in a sentence


def find_stories_folder(root: str, given: str | None) -> str:
    """The folder of the stories, from the project's root; raises Refused where it is not there, or not inside."""
    folder = stories_folder(root, given)
    if not os.path.isdir(os.path.join(root, folder)):
        raise missing_folder_error(folder)
    return folder


class Desk:
    """`prd.md` and `tasks.json` of one project. `before` is how they were when planning began.

    `id` names this planning; `place` is its folder out of the agent's reach.
    """

    def __init__(self, project: Project, folder: str) -> None:
        self.folder, self.id = folder, f"plan-{new_run_id(time.time(), os.urandom(3))}"
        self.place = os.path.join(plannings_folder(project.store), self.id)
        self.kept = ""  # what there is to say of copies, once there are some
        self._note: dict[str, Any] = {}
        self._root, self._path = project.root, os.path.join(project.root, folder)
        self.prd, self.tasks = f"{folder}/{PRD}", f"{folder}/{TASKS}"  # as messages name them
        self.before = self._both()
        self._good = self.before[1]  # the stories as they were last, whole
        self._scaffold = read_template(PRD)
        self._refuse_strange()
        self._blank = is_scaffold(text_of(self.before[0]) or "", self._scaffold)
        self.mode = FULL if self._blank else DERIVED

    def _refuse_strange(self) -> None:
        """A link, a folder, bytes that are no text: what cannot be read says something to somebody."""
        for name, data in zip((PRD, TASKS), self.before, strict=True):
            path = os.path.join(self._path, name)
            if text_of(data) is None and (data is not None or os.path.lexists(path)):
                raise Refused(f"{self.folder}/{name} is no plain file of UTF-8 text; mend it, or move it away")

    def _both(self) -> tuple[bytes | None, bytes | None]:
        return read_file(os.path.join(self._path, PRD)), read_file(os.path.join(self._path, TASKS))

    # Before the agent begins

    def refuse_progress(self, force: bool) -> None:
        """Raise Refused where stories would be lost that somebody has worked on, or may have: nobody can tell."""
        data = self.before[1]
        if force or not (data or b"").strip():
            return
        document = stories_in(data)
        if isinstance(document, schema.UnreadableStories):
            raise Refused(f"{self.tasks}: {document.why}; mend it, or say --force: a copy of it is kept then")
        if found := progress_in(document):
            named = ", ".join(found[:NAMED]) + (f" and {len(found) - NAMED} more" if len(found) > NAMED else "")
            raise Refused(
                f"{self.tasks} has progress ({named}); archive it first: ralph archive{folder_flags(self.folder)}, "
                "or say --force: a copy is kept"
            )

    def refuse_others(self) -> None:
        """Raise Refused where a loop is at work here by its marker, or somebody wrote the files since we looked."""
        refuse_active_marker(self._root)
        if self._both() != self.before:
            raise Refused(f"{self.prd} or {self.tasks} was changed at this moment; look at it, and plan again")

    def keep(self, run: str = "", again: str = "") -> str:
        """Put copies of what somebody wrote out of everybody's reach; what there is to say of it.

        From now on planning is under way, in this `run` where it is one; `again` is the command to plan again.
        """
        for name, data in self._worth().items():
            self.write(name, data)
        self._note = {"root": self._root, "folder": self.folder, "run": run, "again": again}
        self._remember(self._good)
        self.write(PLANNING_NOTE, note_text(self._note | {"open": True}))
        anew = [f"{self.folder}/{name}" for name in self._worth() if name == TASKS or self.mode == FULL]
        self.kept = f"to be written anew: {' and '.join(anew)}; a copy is kept in {self.place}" if anew else ""
        return self.kept

    def close(self) -> None:
        """Planning is over: what lies there now is nobody's half-written work."""
        if self._note:
            self.write(PLANNING_NOTE, note_text(self._note | {"open": False}))

    def _remember(self, whole: bytes | None) -> None:
        """Whole stories, also for whoever comes after us if we are killed."""
        self._good = whole
        if whole is not None:
            self.write(WHOLE, whole)

    def _worth(self) -> dict[str, bytes]:
        """What is more than the scaffold."""
        prd, tasks = self.before
        document = stories_in(tasks)
        own = planned(document) if isinstance(document, dict) else bool((tasks or b"").strip())
        return ({PRD: prd} if prd and not self._blank else {}) | ({TASKS: tasks} if tasks and own else {})

    @property
    def blank(self) -> bool:
        """Whether the PRD said nothing when planning began."""
        return self._blank

    def rewrite(self) -> None:
        """Let the PRD be written anew, whatever it says."""
        self.mode = FULL

    def write(self, name: str, data: bytes) -> str:
        """A file of this planning, for the owner alone; its path."""
        path = os.path.join(self.place, name)
        try:
            make_private_folder(self.place)
            put_file(path, data, private=True)
        except OSError as error:
            raise explain_os_error(error, path, REMEDY) from error
        return path

    # After a session of the agent

    def signature(self) -> tuple[object, ...]:
        """Changes whenever somebody writes one of the files, be it with the same words."""
        found: list[object] = []
        for name in (PRD, TASKS):
            try:
                stat = os.stat(os.path.join(self._path, name), follow_symlinks=False)
            except OSError:
                found.append(None)
                continue
            found.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
        return tuple(found)

    def hold(self) -> str:
        """Put a PRD back that was not to be changed, and remember whole stories; what there is to say of it."""
        now = self._both()
        if now[1] != self._good and isinstance(stories_in(now[1]), dict):
            self._remember(now[1])
        if self.mode == FULL or now[0] == self.before[0] or self.before[0] is None:
            return ""
        if now[0] is not None:
            self.write(f"changed-{PRD}", now[0])
        self._replace(PRD, self.before[0])
        kept = "" if now[0] is None else f" (what it had become is kept in {self.place})"
        return f"{self.prd} was changed, and was put back{kept}"

    def faults(self) -> tuple[str, ...]:
        """Everything that is wrong with the plan as it now is."""
        prd, tasks = self._both()
        wrong = tuple(f"{self.tasks}: {fault}" for fault in story_faults(stories_in(tasks)))
        return (*wrong, *(prd_faults(prd, self._scaffold, self.prd) if self.mode == FULL else ()))

    def remarks(self) -> tuple[str, ...]:
        """What should be looked at in a plan that is valid."""
        prd, tasks = self._both()
        document = stories_in(tasks)
        told = [f"{self.tasks}: {one}" for one in story_remarks(document)] if isinstance(document, dict) else []
        return (*told, *(prd_remarks(text_of(prd) or "", self.prd) if self.mode == FULL else ()))

    def document(self) -> dict[str, Any] | None:
        """The stories; None where they are not valid."""
        found = stories_in(self._both()[1])
        return found if isinstance(found, dict) and not self.faults() else None

    def mend(self) -> str:
        """Put the last whole stories in the place of half-written ones; what there is to say of it."""
        now = self._both()[1]
        if now == self._good or isinstance(stories_in(now), dict):
            return ""
        kept = f" (what there was is kept in {self.place})" if now is not None else ""
        if now is not None:
            self.write(HALF, now)
        if self._good is not None:
            self._replace(TASKS, self._good)
            return f"{self.tasks} was not left whole; the last whole one was put back{kept}"
        self._remove(TASKS)
        return f"{self.tasks} was not left whole; it was taken away, as there was none before{kept}"

    def _replace(self, name: str, data: bytes) -> None:
        try:
            os.makedirs(self._path, exist_ok=True)
            put_file(os.path.join(self._path, name), data, private=False)
        except OSError as error:
            raise wrap_os_error(error) from error

    def _remove(self, name: str) -> None:
        try:
            os.unlink(os.path.join(self._path, name))
        except OSError as error:
            raise wrap_os_error(error) from error
