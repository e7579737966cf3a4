"""The agent's own to-do list, followed through its tool calls."""

from __future__ import annotations

import re

from ralphproof.agents.adapter import one_line
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.events import Todo, TodosChanged

if TYPE_CHECKING:
    from typing import Any

TODO_STATES = {"pending": "pending", "in_progress": "active", "completed": "done"}
MAX_TODOS = 200
TODO_TOOLS = ("TodoWrite", "todo_write", "TaskCreate", "TaskUpdate")


class TodoTracker:
    """The to-do list as the tool calls leave it."""

    def __init__(self) -> None:
        self._tasks: dict[str, Todo] = {}
        self._calls: dict[str, tuple[str, Any]] = {}
        self._created = 0

    def start_call(self, call: str, tool: str, arguments: Any) -> None:
        """Note a call that may change the list once it has succeeded."""
        if tool in TODO_TOOLS and len(self._calls) < MAX_TODOS:
            self._calls[call] = (tool, arguments)

    def end_call(self, call: str, ok: bool, output: str) -> TodosChanged | None:
        """The list after this call, if the call changed it."""
        tool, arguments = self._calls.pop(call, ("", None))
        # Where a session is gone on with, the first task of this turn need not be its first.
        if ok and tool == "TaskCreate" and (said := re.match(r"Task #(\d{1,9}) ", output)):
            self._created = int(said[1]) - 1
        return self.apply(tool, arguments) if ok else None

    def apply(self, tool: str, arguments: Any) -> TodosChanged | None:
        """The list after this call, if the call changes it."""
        if not isinstance(arguments, dict):
            return None
        match tool:
            case "TodoWrite" | "todo_write":
                todos = arguments.get("todos")
                items = [item for item in todos if isinstance(item, dict)] if isinstance(todos, list) else []
                return TodosChanged(
                    tuple(_make_todo(item.get("content"), item.get("status")) for item in items[:MAX_TODOS])
                )
            case "TaskCreate" if len(self._tasks) < MAX_TODOS:
                # It numbers tasks from 1 in the order of their creation.
                self._created += 1
                self._tasks[str(self._created)] = _make_todo(arguments.get("subject"), "pending")
            case "TaskUpdate" if str(arguments.get("taskId")) in self._tasks:
                self._update(str(arguments.get("taskId")), arguments.get("subject"), arguments.get("status"))
            case _:
                return None
        return TodosChanged(tuple(self._tasks.values()))

    def _update(self, task: str, subject: object, state: object) -> None:
        """Fields that an update leaves out stay as they are."""
        if state == "deleted":
            del self._tasks[task]
            return
        was = self._tasks[task]
        self._tasks[task] = Todo(one_line(subject or was.text), TODO_STATES.get(str(state), was.state))


def _make_todo(text: object, state: object) -> Todo:
    return Todo(one_line(text), TODO_STATES.get(str(state), "pending"))
