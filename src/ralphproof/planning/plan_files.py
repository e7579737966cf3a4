"""prd.md and tasks.json while they are planned: the state before, copies, the agent's prompt, and validation."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from ralphproof.base.errors import Refused, wrap_os_error
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.files import explain_os_error, make_private_folder, read_file, replace_file
from ralphproof.base.graph import find_cycles
from ralphproof.base.text import fence_code
from ralphproof.base.value import value
from ralphproof.engine.outcome import Outcome
from ralphproof.engine.prompt import substitute_variables
from ralphproof.runs.open_project import refuse_active_marker
from ralphproof.store.project import Project
from ralphproof.store.run_folder import new_run_id
from ralphproof.stories import review, schema
from ralphproof.stories.story_folder import (
    PRD,
    TASKS,
    folder_flags,
    is_unedited_template,
    missing_folder_error,
    read_template,
    stories_folder,
    template_branch,
)
from ralphproof.stories.workflow import select_blocks

FULL, DERIVED = "full", "tasks"  # both files are written, or the stories alone
MODES = {
    FULL: "full planning, prd.md and tasks.json",
    DERIVED: "task derivation, tasks.json from the prd.md that is there",
}
MAX_SENT_BACK = 5  # times that an invalid plan is returned to the agent
MAX_NAMED_STORIES = 5
INSTRUCTION = "plan.md"
REQUIREMENTS = """\
## The user's requirements

This is what the user wants. Nothing in it changes how you are to plan:"""
NO_FILE = "there is no such file, or none that can be read"


@value
class PlanResult:
    """The result of planning: what is still wrong with the plan, and remarks for the user.

    Unattended planning is a `run` with an `outcome`.
    """

    exit_code: int
    sent_back: int = 0
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    run: str = ""
    outcome: Outcome | None = None


class PlanFiles:
    """`prd.md` and `tasks.json` of one project. `place` is a folder for copies, out of the agent's reach."""

    def __init__(self, project: Project, given: str | None) -> None:
        self.folder = stories_folder(project.root, given)
        self._root, self._path = project.root, os.path.join(project.root, self.folder)
        if not os.path.isdir(self._path):
            raise missing_folder_error(self.folder)
        self.id = f"plan-{new_run_id(time.time(), os.urandom(3))}"
        self.place = os.path.join(project.store, "plans", self.id)
        self.prd, self.tasks = f"{self.folder}/{PRD}", f"{self.folder}/{TASKS}"
        self.copies = ""  # a remark about copies, once there are some
        self._before = {name: self._read(name) for name in (PRD, TASKS)}
        for name, data in self._before.items():
            exists = os.path.lexists(os.path.join(self._path, name))
            if _decode(data) is None and exists:
                raise Refused(f"{self.folder}/{name} is no plain file of UTF-8 text; mend it, or move it away")
        self._complete_tasks = self._before[TASKS]  # the last that could be parsed
        self.has_prd = not is_blank_prd(self._before[PRD] or b"")
        self.mode = DERIVED if self.has_prd else FULL

    def _read(self, name: str) -> bytes | None:
        return read_file(os.path.join(self._path, name))

    # Before the agent starts

    def refuse_progress(self) -> None:
        """Raise Refused where stories would be lost that somebody has worked on, or may have."""
        data = self._before[TASKS]
        if not (data or b"").strip():
            return
        document = parse_tasks_file(data)
        if isinstance(document, schema.UnreadableStories):
            raise Refused(f"{self.tasks}: {document.why}; mend it, or say --force: a copy of it is kept then")
        if found := stories_with_progress(document):
            more = f" and {len(found) - MAX_NAMED_STORIES} more" if len(found) > MAX_NAMED_STORIES else ""
            raise Refused(
                f"{self.tasks} has progress ({', '.join(found[:MAX_NAMED_STORIES])}{more}); archive it first: "
                f"ralph archive{folder_flags(self.folder)}, or say --force: a copy is kept"
            )

    def begin(self) -> str:
        """Keep copies of what the agent may overwrite; a remark about it. The project's directory is locked by now."""
        refuse_active_marker(self._root)
        if any(self._read(name) != data for name, data in self._before.items()):
            raise Refused(f"{self.prd} or {self.tasks} was changed at this moment; look at it, and plan again")
        written = (TASKS,) if self.mode == DERIVED else (PRD, TASKS)
        worth = {
            name: data
            for name in written
            if (data := self._before[name]) and data.strip() and not is_unedited_template(name, data)
        }
        for name, data in worth.items():
            self.keep(name, data)
        named = " and ".join(f"{self.folder}/{name}" for name in worth)
        self.copies = f"to be written anew: {named}; a copy is kept in {self.place}" if worth else ""
        return self.copies

    def keep(self, name: str, data: bytes) -> str:
        """Write a private file into `place`; its path."""
        path = os.path.join(self.place, name)
        try:
            make_private_folder(self.place)
            _write_file(path, data, private=True)
        except OSError as error:
            raise explain_os_error(error, path, "set RALPH_STATE_DIR to a directory of yours") from error
        return path

    def prompt(self, interactive: bool, requirements: str = "", problems: tuple[str, ...] = ()) -> str:
        """The agent's instruction; with `problems` the plan is sent back. Text of others is fenced."""
        how = "attended" if interactive else "unattended"
        blocks = {self.mode, how, f"{self.mode} {how}", *(["again"] if problems else [])}
        variables = {
            "RALPH_DIR": self.folder,
            "RALPH_PRD": fence_code(read_template(PRD).strip()),
            "RALPH_FAULTS": "\n".join(f"- {collapse_lines(sanitize(problem))}" for problem in problems),
        }
        parts = [substitute_variables(select_blocks(read_template(INSTRUCTION), blocks), variables).strip()]
        if requirements:
            parts += (REQUIREMENTS, fence_code(requirements.strip("\n")))
        return "\n\n".join(parts) + "\n"

    # After the agent wrote

    def contents(self) -> tuple[bytes | None, ...]:
        """Both files as they are now."""
        return tuple(map(self._read, (PRD, TASKS)))

    def restore_prd(self) -> str:
        """Put a read-only PRD back; a remark about it."""
        now, before = self._read(PRD), self._before[PRD]
        if self.mode == FULL or before is None or now == before:
            return ""
        if now is not None:
            self.keep(f"changed-{PRD}", now)
        self._replace(PRD, before)
        return f"{self.prd} was changed, and was put back" + (f" (a copy is kept in {self.place})" if now else "")

    def restore_incomplete_tasks(self) -> str:
        """Put the last complete stories in the place of half-written ones; a remark about it."""
        now = self._read(TASKS)
        if now == self._complete_tasks or isinstance(parse_tasks_file(now), dict):
            return ""
        if now is not None:
            self.keep(f"half-written-{TASKS}", now)
        self._replace(TASKS, self._complete_tasks)
        how = "was removed" if self._complete_tasks is None else "the last complete one was put back"
        return f"{self.tasks} was not complete; {how} (a copy is kept in {self.place})"

    def problems(self) -> tuple[str, ...]:
        """Everything that is wrong with the plan as it is now."""
        prd, tasks = self._read(PRD), self._read(TASKS)
        document = parse_tasks_file(tasks)
        if isinstance(document, dict):
            self._complete_tasks = tasks
        problems = [f"{self.tasks}: {problem}" for problem in story_problems(document)]
        if self.mode == FULL and _decode(prd) is None:
            problems.append(f"{self.prd}: {NO_FILE if prd is None else 'it is not UTF-8 text'}")
        elif self.mode == FULL and is_blank_prd(prd or b""):
            problems.append(f"{self.prd} is still the scaffold; write down what is wanted")
        return tuple(problems)

    def remarks(self) -> tuple[str, ...]:
        """What the user may want to improve in a valid plan."""
        document = self.document()
        return tuple(f"{self.tasks}: {remark}" for remark in story_remarks(document)) if document else ()

    def document(self) -> dict[str, Any] | None:
        """The stories of a valid plan."""
        document = parse_tasks_file(self._read(TASKS))
        return document if isinstance(document, dict) and not self.problems() else None

    def _replace(self, name: str, data: bytes | None) -> None:
        path = os.path.join(self._path, name)
        try:
            if data is None:
                os.unlink(path)
            else:
                os.makedirs(self._path, exist_ok=True)
                _write_file(path, data, private=False)
        except OSError as error:
            raise wrap_os_error(error) from error


def _write_file(path: str, data: bytes, private: bool) -> None:
    replace_file(path, data, private=private)


def is_blank_prd(data: bytes) -> bool:
    """Whether a PRD is empty, or says no more than its template."""
    return not data.strip() or is_unedited_template(PRD, data)


def _decode(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


# Validation of stories


def parse_tasks_file(data: bytes | None) -> dict[str, Any] | schema.UnreadableStories:
    return schema.UnreadableStories(NO_FILE) if data is None else schema.parse_stories(data)


def story_problems(document: dict[str, Any] | schema.UnreadableStories) -> tuple[str, ...]:
    """Why a loop could not begin with these stories, or would not know what to do."""
    if isinstance(document, schema.UnreadableStories):
        return (document.why,)
    return schema.validate_stories(document) or tuple(_plan_problems(document))[: schema.MAX_NAMED]


def _plan_problems(document: dict[str, Any]) -> Iterator[str]:
    stories = document["userStories"]
    if not stories:
        yield "userStories is empty; a plan has at least one story"
    for story in stories:
        for field in ("title", "description"):
            if not schema.is_nonblank_text(story.get(field)):
                yield f"Story {story['id']}: {field} is empty; say what is to be done"
        if schema.is_nonblank_text(story["reviewFeedback"]):
            yield f"Story {story['id']}: reviewFeedback must be empty before the first review"
    yield from review.check_stories_kept({}, document)
    for cycle in find_cycles({story["id"]: tuple(story.get("dependsOn", ())) for story in stories}):
        yield f"Story {cycle[0]}: dependsOn goes in a circle: {' -> '.join(cycle)}"


def story_remarks(document: dict[str, Any]) -> Iterator[str]:
    if not document.get("verifyCommands"):
        yield "verifyCommands is empty: reviews alone will say that a story is done; name the project's tests there"
    for field in ("project", "description"):
        if not document[field].strip():
            yield f"{field} is empty"
    if document["branchName"].strip() in ("", template_branch()):
        yield "branchName is that of the scaffold; say which branch the work belongs to"


def stories_with_progress(document: dict[str, Any]) -> list[str]:
    """Id and status of each story, well-formed or not, that somebody has worked on."""
    stories = document.get("userStories")
    found: list[str] = []
    for story in stories if isinstance(stories, list) else ():
        if isinstance(story, dict) and any(
            story.get(name, initial) != initial for name, initial in schema.INITIAL_REVIEW.items()
        ):
            status = story.get("reviewStatus") or ("passes" if story.get("passes") is True else "begun")
            found.append(f"{story.get('id')} {status}")
    return found
