"""The agent's own list, as its tools leave it."""

from __future__ import annotations

from typing import Any

import pytest

from ralphproof.agents.adapter import MAX_LINE_CHARS
from ralphproof.agents.stream import MAX_TODOS, TodoTracker
from ralphproof.engine.agent import Todo, TodosChanged

A, B = {"subject": "a"}, {"subject": "b"}


def after(*calls: tuple[str, Any]) -> Any:
    """The list after the last of these calls, in pairs."""
    tools = TodoTracker()
    changed = [tools.apply(tool, arguments) for tool, arguments in calls][-1]
    return changed and tuple((item.text, item.state) for item in changed.items)


@pytest.mark.parametrize("tool", ["TodoWrite", "todo_write"])
@pytest.mark.parametrize(
    ("arguments", "items"),
    [
        ({"todos": [{"content": "a", "status": "pending"}]}, (("a", "pending"),)),
        ({"todos": [{"content": "a", "status": "in_progress"}]}, (("a", "active"),)),
        ({"todos": [{"content": "a", "status": "completed"}]}, (("a", "done"),)),
        ({"todos": [{"content": "a", "status": "odd"}, {"content": "a\n  b"}]}, (("a", "pending"), ("a b", "pending"))),
        ({"todos": ["a", None, {}]}, (("None", "pending"),)),
        ({"todos": []}, ()),
        ({"todos": "a"}, ()),
        ({}, ()),
        ([], None),
        (None, None),
    ],
)
def test_a_list_is_written_whole(tool: str, arguments: Any, items: Any) -> None:
    assert after((tool, arguments)) == items


@pytest.mark.parametrize(
    ("calls", "items"),
    [
        ([("TaskCreate", A)], (("a", "pending"),)),
        ([("TaskCreate", A), ("TaskCreate", B)], (("a", "pending"), ("b", "pending"))),
        ([("TaskCreate", A), ("TaskUpdate", {"taskId": "1", "status": "in_progress"})], (("a", "active"),)),
        ([("TaskCreate", A), ("TaskUpdate", {"taskId": 1, "status": "completed"})], (("a", "done"),)),
        ([("TaskCreate", A), ("TaskUpdate", {"taskId": "1", "subject": "c"})], (("c", "pending"),)),
        (
            [
                ("TaskCreate", A), ("TaskUpdate", {"taskId": "1", "status": "completed"}),
                ("TaskUpdate", {"taskId": "1", "description": "more"}),
            ],
            (("a", "done"),),
        ),
        ([("TaskCreate", A), ("TaskUpdate", {"taskId": "1", "status": "deleted"})], ()),
        (
            [("TaskCreate", A), ("TaskUpdate", {"taskId": "1", "status": "deleted"}), ("TaskCreate", B),
             ("TaskUpdate", {"taskId": "2", "status": "completed"})],
            (("b", "done"),),
        ),
        ([("TaskCreate", A), ("TaskUpdate", {"taskId": "2", "status": "completed"})], None),
        ([("TaskUpdate", {"status": "completed"})], None),
        ([("TaskCreate", A), ("TaskList", {})], None),
        ([("Bash", {"command": "ls"})], None),
    ],
)  # fmt: skip
def test_a_list_is_written_bit_by_bit(calls: list[tuple[str, Any]], items: Any) -> None:
    assert after(*calls) == items


def test_a_call_counts_once_it_has_ended_well() -> None:
    tools = TodoTracker()
    tools.start_call("1", "TaskCreate", A)
    assert tools.end_call("1", False, "Task #7 is in the way") is None
    tools.start_call("2", "TaskCreate", B)
    tools.start_call("3", "Bash", {"command": "ls"})
    assert tools.end_call("3", True, "Task #9 created") is None
    assert tools.end_call("2", True, "ok") == TodosChanged((Todo("b", "pending"),))
    assert tools.end_call("2", True, "ok") is None
    tools.start_call("4", "TaskUpdate", {"taskId": "1", "status": "completed"})
    assert tools.end_call("4", True, "Updated task #1") == TodosChanged((Todo("b", "done"),))


def test_a_session_that_goes_on_numbers_its_tasks_from_where_it_was() -> None:
    tools = TodoTracker()
    tools.start_call("1", "TaskCreate", A)
    tools.end_call("1", True, "Task #4 created successfully: a")
    tools.start_call("2", "TaskUpdate", {"taskId": "1", "status": "completed"})
    assert tools.end_call("2", True, "Updated task #1 status") is None
    tools.start_call("3", "TaskUpdate", {"taskId": "4", "status": "completed"})
    assert tools.end_call("3", True, "Updated task #4 status") == TodosChanged((Todo("a", "done"),))


def test_lists_and_their_lines_are_bounded() -> None:
    tools = TodoTracker()
    long = tools.apply("TodoWrite", {"todos": [{"content": "x" * 10_000}] * 1000})
    assert long is not None
    assert (len(long.items), len(long.items[0].text)) == (MAX_TODOS, MAX_LINE_CHARS)
    for _ in range(MAX_TODOS):
        tools.apply("TaskCreate", A)
    assert tools.apply("TaskCreate", B) is None
