"""The tasks table of the ledger, and which runs worked on which task."""

from __future__ import annotations

import json
import time
from _sqlite3 import Connection
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ralphproof.base.errors import LedgerBroken, Refused
from ralphproof.base.value import TYPE_CHECKING, Json, value
from ralphproof.store.database import DatabaseTables
from ralphproof.store.serialization import to_valid_utf8

if TYPE_CHECKING:
    T = TypeVar("T")


TODO, WORKING, DONE, FAILED, CANCELLED, WAITING = "todo", "working", "done", "failed", "cancelled", "waiting"
TASK_STATUSES = (TODO, WORKING, DONE, FAILED, CANCELLED, WAITING)
SETTABLE_STATUSES = (TODO, DONE, CANCELLED)  # by the user
MAX_INTEGER = 2**53  # of a priority; the largest exact integer in JSON
_FIELD_COLUMNS = {
    "spec_id": "spec_id", "title": "title", "description": "description", "status": "status", "priority": "priority",
    "dependencies": "dependencies", "assignee": "assignee", "metadata": "metadata", "completion": "completion_spec",
}  # fmt: skip
TASK_FIELDS = tuple(_FIELD_COLUMNS)  # fields that can be changed
_ROW = """SELECT task.id, spec_id, title, description, status, priority, dependencies, assignee, metadata,
        completion_spec, created_at, updated_at, said_after, ifnull(last.run, ''), ifnull(last.seq, 0)
    FROM task LEFT JOIN attempt AS last ON last.seq = (SELECT max(seq) FROM attempt WHERE task = task.seq) """
_ADD = """INSERT INTO task (id, {columns}, created_at, updated_at, said_after)
    VALUES (?, {places}, ?, ?, 0) ON CONFLICT DO NOTHING"""
_NOW = "said_after = (SELECT ifnull(max(seq), 0) FROM attempt)"
_ATTEMPTS = """SELECT run FROM attempt WHERE task = (SELECT seq FROM task WHERE id = ?) ORDER BY seq"""
_TASK_OF_RUN = "SELECT id FROM task WHERE seq = (SELECT task FROM attempt WHERE run = ?)"


@value
class TaskRow:
    """A task as it is stored.

    `status` is what the user set; `said` tells whether it still counts, or a run has worked on the task since.
    `metadata` and `completion` are JSON texts, unparsed. `run` is the run that last worked on it, `attempt` its number
    among all.
    """

    id: str
    spec_id: str = ""
    title: str = ""
    description: str = ""
    status: str = TODO
    priority: int = 0
    dependencies: tuple[str, ...] = ()
    assignee: str = ""
    metadata: str = "{}"
    completion: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    said_after: int = 0
    run: str = ""
    attempt: int = 0

    @property
    def said(self) -> bool:
        """Whether no run has worked on it since the user last set its status."""
        return self.attempt <= self.said_after


class TaskTable(DatabaseTables):
    """The tasks in a ledger's file.

    Every change is one transaction; `together` joins several. Secrets are masked in what is stored.
    """

    def __init__(self, connection: Connection, path: str, mask: Callable[[str], str]) -> None:
        super().__init__(connection, path)
        self._mask = mask

    def add(self, rows: Iterable[TaskRow]) -> None:
        """Add new tasks: all of them, or none. Raises Refused for an id that exists."""
        tasks = [(row.id, self._columns(row)) for row in rows]
        statement = _ADD.format(columns=", ".join(_FIELD_COLUMNS.values()), places=", ".join("?" * len(_FIELD_COLUMNS)))

        def work() -> None:
            now = time.time()
            for id, values in tasks:
                if not self._database.execute(statement, (self._text(id), *values, now, now)).rowcount:
                    raise Refused(f"there is a task {id} already; change it: ralph task edit {id}")

        self._transaction(work)

    def row(self, id: str) -> TaskRow | None:
        """The task with this id."""
        return next(iter(self._rows(_ROW + "WHERE task.id = ?", self._text(id))), None)

    def rows(self) -> tuple[TaskRow, ...]:
        """All tasks, oldest first."""
        return self._rows(_ROW + "ORDER BY task.seq")

    def change(self, id: str, fields: Mapping[str, object]) -> None:
        """Change fields of a task, named as in TaskRow."""
        sets = [f"{_FIELD_COLUMNS[name]} = ?" for name in fields] + ([_NOW] if "status" in fields else [])
        values = [self._cell(name, given) for name, given in fields.items()]
        statement = f"UPDATE task SET {', '.join([*sets, 'updated_at = ?'])} WHERE id = ?"  # noqa: S608 (our names)

        def work() -> None:
            if not self._database.execute(statement, (*values, time.time(), self._text(id))).rowcount:
                raise Refused(f"no task is called {id!r}; see: ralph task list")

        self._transaction(work)

    def attempts(self, id: str) -> tuple[str, ...]:
        """The runs that worked on a task, oldest first; a resumed one counts from its resumption."""
        return tuple(run for (run,) in self._query(_ATTEMPTS, self._text(id)))

    def task_of_run(self, run: str) -> str | None:
        """The task that a run works on."""
        return next((str(id) for (id,) in self._query(_TASK_OF_RUN, run)), None)

    def together(self, work: Callable[[], T]) -> T:
        """Do several things in one transaction: all or nothing, without writes of others in between.

        `work` may be repeated.
        """
        return self._transaction(work)

    def _rows(self, query: str, *values: object) -> tuple[TaskRow, ...]:
        return tuple(map(_parse_row, self._query(query, *values)))

    def _columns(self, row: TaskRow) -> tuple[object, ...]:
        return tuple(self._cell(name, getattr(row, name)) for name in _FIELD_COLUMNS)

    def _cell(self, name: str, given: Any) -> object:
        """A field as its column stores it."""
        match name:
            case "priority":
                if not -MAX_INTEGER <= given <= MAX_INTEGER:
                    raise Refused(f"a priority of {given} is out of all bounds")
                return int(given)
            case "status":
                if given not in SETTABLE_STATUSES:
                    raise Refused(f"a task's status can be {', '.join(SETTABLE_STATUSES)}, not {given!r}")
                return given
            case "dependencies":
                return json.dumps([self._text(id) for id in given])
            case "metadata" | "completion":
                return None if given is None else self._masked(given)
            case _:
                return self._text(given)

    def _text(self, given: str) -> str:
        return to_valid_utf8(self._mask(given))

    def _masked(self, text: str) -> str:
        """JSON with each text masked; a text that is not JSON is masked as a whole."""
        try:
            return json.dumps(_map_texts(json.loads(text), self._mask))
        except (ValueError, RecursionError):
            return self._text(text)


def _parse_row(cells: tuple[Any, ...]) -> TaskRow:
    fields = dict(zip(TaskRow.__match_args__, cells, strict=True))
    return TaskRow(**{**fields, "dependencies": _parse_names(fields["dependencies"], fields["id"])})


def _map_texts(data: Json, mask: Callable[[str], str]) -> Json:
    if isinstance(data, str):
        return mask(data)
    if isinstance(data, list):
        return [_map_texts(item, mask) for item in data]
    return {mask(name): _map_texts(item, mask) for name, item in data.items()} if isinstance(data, dict) else data


def _parse_names(text: str, id: str) -> tuple[str, ...]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise LedgerBroken(f"the dependencies of task {id} cannot be read: {error}") from error
    return tuple(map(str, found)) if isinstance(found, list) else ()
