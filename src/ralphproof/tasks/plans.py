"""Plans of a single task (from a prompt, a prompt file, or a draft), and the next task of a backlog."""

from __future__ import annotations

import hashlib
import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import value
from ralphproof.engine.plan import AllDone, Blocked, Plan, Task
from ralphproof.store.tasks import DONE, TODO, WORKING

# One task, from the command line or from a file that is read anew before every iteration.


MAX_PROMPT_BYTES = 10 * 1024 * 1024
TITLE_CHARS = 80


class PromptPlan:
    """A plan of one task, from a text or from the real path of a file, not both. A `wordless` one may have no text.

    A `titled` one uses its first line as the title. `called` is its name in messages.
    """

    titled = False

    def __init__(
        self, text: str | None = None, file: str | None = None, wordless: bool = False, called: str = ""
    ) -> None:
        self._text, self._file, self._wordless = text, file, wordless
        self._called = called or ("the prompt" if file is None else f"prompt file {file}")

    def read(self) -> Plan:
        """The task with the current text of the file."""
        what = self._called
        text = self._text if self._file is None else _read_prompt_file(self._file, what)
        if text is None or not (text.strip() or self._wordless):
            raise Refused(f"{what} is empty; say what should become true")
        if "\0" in text:
            raise Refused(f"{what} holds a NUL character; remove it")
        title = next(line.strip() for line in text.split("\n") if line.strip())[:TITLE_CHARS] if self.titled else ""
        return Plan((Task("task", text, title),), digest=prompt_digest(text) if self._file else "")


def prompt_digest(text: str) -> str:
    """Digest of a prompt text, to notice changes of the file."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def refuse_symlink(path: str, what: str) -> None:
    """Raise Refused if a link leads from this real path elsewhere.

    An agent may have created the link to get a file into its prompt that its sandbox hides.
    """
    if (real := os.path.realpath(path)) != path:
        raise Refused(f"{what} leads to {real} now; put a file there again, or begin a new run with another one")


def _read_prompt_file(path: str, what: str) -> str:
    refuse_symlink(path, what)
    if not os.path.isfile(path):
        why = "is not a file" if os.path.exists(path) else "does not exist"
        raise Refused(f"{what} {why}")
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_PROMPT_BYTES + 1)
    except OSError as error:
        raise Refused(f"{what} cannot be read: {error.strerror}") from error
    if len(data) > MAX_PROMPT_BYTES:
        raise Refused(f"{what} has more than {MAX_PROMPT_BYTES // 1024 // 1024} MiB")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


# The plan of one task as it was when the run began: what is changed in it later is for the next run.


class FixedPlan:
    """A plan of one task that never changes."""

    def __init__(self, task: Task) -> None:
        self._plan = Plan((task,))

    def read(self) -> Plan:
        """The task."""
        return self._plan


# The next task of a backlog, by priority and dependencies.


@value
class BacklogItem:
    """A task and its status. One that is `begun` has a run that can be resumed."""

    task: Task
    status: str = TODO
    begun: bool = False


def next_task(
    items: tuple[BacklogItem, ...], wanted: frozenset[str] = frozenset(), over: frozenset[str] = frozenset()
) -> Task | AllDone | Blocked:
    """The task to work on next. Without `wanted` names every open task counts; a named one also where it failed.

    Tasks in `over` had their turn. Begun tasks come first: another run would close theirs. Then a lower number is a
    higher priority; of equal ones the first listed comes first.
    """
    status = {item.task.id: item.status for item in items}
    left = [item for item in items if item.task.id not in over and _is_open(item, wanted)]
    if not left:
        return AllDone()
    ready = [item for item in left if not item.task.depends_on or _dependencies_done(item.task, status)]
    if ready:
        return min(ready, key=lambda item: (not item.begun, item.task.priority)).task
    return Blocked(tuple(item.task.id for item in left), "; ".join(_waiting_for(item.task, status) for item in left))


def _is_open(item: BacklogItem, wanted: frozenset[str]) -> bool:
    """Whether it may be worked on. Tasks in work belong to another run."""
    return item.task.id in wanted and item.status not in (DONE, WORKING) if wanted else item.status == TODO


def _dependencies_done(task: Task, status: dict[str, str]) -> bool:
    return all(status.get(name) == DONE for name in task.depends_on)


def _waiting_for(task: Task, status: dict[str, str]) -> str:
    for_what = [f"{name} ({status.get(name, 'which there is not')})" for name in task.depends_on]
    missing = [text for name, text in zip(task.depends_on, for_what, strict=True) if status.get(name) != DONE]
    return f"{task.id} waits for {', '.join(missing)}"
