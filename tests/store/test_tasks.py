"""Tasks in the ledger: stored whole or not at all, and bound to the runs that work on them."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest

from ralphproof.base.errors import HarnessFailed, LedgerBroken, RalphError, Refused
from ralphproof.base.processes import current_process
from ralphproof.base.redaction import mask_text
from ralphproof.base.value import replace
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.tasks import TaskRow, TaskTable
from tests.store.subprocesses import python, said

SECRET = "sk-ant-" + "a1b2c3d4" * 4  # shaped like a key, and none
FULL = TaskRow(
    "TASK-001", "auth", "Implement JWT auth", "Add it.\nTo all of it.", "todo", -3, ("TASK-000", "ü"), "claude",
    '{"points": 3}', '{"outcome": "o", "acceptance_criteria": ["a"]}',
)  # fmt: skip


def ids(tasks: TaskTable) -> list[str]:
    return [row.id for row in tasks.rows()]


def kept(row: TaskRow) -> TaskRow:
    """A row as it was given to `add`."""
    return replace(row, created_at=0.0, updated_at=0.0)


def begin(ledger: SqliteLedger, run: str, task: str = "") -> None:
    ledger.begin_run(run, "/project", 1.0, current_process(), task=task)


def test_a_task_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(tmp_path))
    assert (ledger.has_tasks(), ledger.tasks.rows(), ledger.tasks.row("TASK-001")) == (False, (), None)
    ledger.tasks.add((FULL, TaskRow("b")))
    ledger.close()
    reader = SqliteLedger.open(str(tmp_path), read_only=True)
    first, second = reader.tasks.rows()
    assert (kept(first), kept(second), reader.has_tasks()) == (FULL, TaskRow("b"), True)
    assert first == reader.tasks.row("TASK-001")
    assert first.created_at == first.updated_at > 1_600_000_000
    assert second.completion is None
    reader.close()


HOSTILE = {
    "sql": "'); DROP TABLE task;--",
    "emoji": "🦀 👩‍👩‍👧 ü",
    "escapes": "\x1b]0;title\x07\x1b[2J\r\n\t\0 behind",
    "half a character": "caf\udce9",
    "a megabyte": "x" * (1 << 20),
    "quotes": "\"'`$(id)\\",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_whatever_a_task_holds_is_kept_literally(tmp_path: Path, what: str) -> None:
    """DB-08"""
    text = HOSTILE[what]
    ledger = SqliteLedger.open(str(tmp_path))
    spec = json.dumps({"outcome": text, text[:100]: [text]})
    ledger.tasks.add((TaskRow(text, text, text, text, "todo", 0, (text,), text, json.dumps({"k": text}), spec),))
    plain = text.encode("utf-8", "backslashreplace").decode()
    (row,) = ledger.tasks.rows()
    assert (row.id, row.spec_id, row.title, row.description, row.assignee) == (plain,) * 5
    assert row.dependencies == (plain,)
    assert json.loads(row.completion or "") == {"outcome": text, text[:100]: [text]}
    assert json.loads(row.metadata) == {"k": text}
    assert ledger.tasks.row(text) == row
    ledger.close()


def test_all_tasks_are_kept_or_none(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(tmp_path))
    ledger.tasks.add((TaskRow("a"),))
    with pytest.raises(Refused, match="there is a task a already"):
        ledger.tasks.add((TaskRow("b"), TaskRow("a"), TaskRow("c")))
    with pytest.raises(Refused, match="there is a task d already"):
        ledger.tasks.add((TaskRow("d"), TaskRow("d")))
    assert ids(ledger.tasks) == ["a"]
    ledger.tasks.add((TaskRow("A"),))
    assert ids(ledger.tasks) == ["a", "A"]
    ledger.close()


@pytest.mark.parametrize(
    "wrong", [TaskRow("x", status="working"), TaskRow("x", priority=1 << 70), TaskRow("x", priority=-(1 << 70))]
)
def test_what_has_no_place_in_a_column_is_refused(tmp_path: Path, wrong: TaskRow) -> None:
    ledger = SqliteLedger.open(str(tmp_path))
    with pytest.raises(Refused):
        ledger.tasks.add((wrong,))
    assert ids(ledger.tasks) == []
    ledger.close()


def test_several_changes_are_one_transaction(tmp_path: Path) -> None:
    ledger, other = SqliteLedger.open(str(tmp_path)), SqliteLedger.open(str(tmp_path), busy_s=0.05)
    tasks = ledger.tasks

    def work() -> None:
        tasks.add((TaskRow("a"),))
        tasks.change("a", {"title": "inside"})
        assert ids(other.tasks) == []
        with pytest.raises(HarnessFailed, match="locked"):
            other.tasks.add((TaskRow("meanwhile"),))
        assert ledger.runs() == ()

    def broken() -> None:
        tasks.add((TaskRow("b"),))
        tasks.change("nowhere", {"title": "x"})

    tasks.together(work)
    with pytest.raises(Refused, match="no task is called 'nowhere'"):
        tasks.together(broken)
    assert [(row.id, row.title) for row in other.tasks.rows()] == [("a", "inside")]
    ledger.close()
    other.close()


def test_changed_fields_change_and_others_stay(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(tmp_path))
    ledger.tasks.add((FULL,))
    before = ledger.tasks.rows()[0]
    fields = {"title": "t", "dependencies": ("x",), "completion": None, "priority": 7}
    ledger.tasks.change("TASK-001", fields)
    after = ledger.tasks.rows()[0]
    assert after == replace(before, **fields, updated_at=after.updated_at)
    assert after.updated_at >= before.updated_at
    with pytest.raises(KeyError):
        ledger.tasks.change("TASK-001", {"id": "other"})
    ledger.close()


def test_secrets_are_masked_wherever_they_stand(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(tmp_path), lambda text: mask_text(text, ("hunter22",)))
    spec = json.dumps({"is": SECRET, "coder": {"verification_config": {"command": f"curl -H {SECRET}"}}, "hunter22": 1})
    ledger.tasks.add(
        (TaskRow("a", "hunter22", SECRET, f"use {SECRET}", completion=spec, metadata='{"k": "hunter22"}'),)
    )
    ledger.tasks.change("a", {"assignee": SECRET})
    ledger.close()
    for name in os.listdir(tmp_path):
        data = (tmp_path / name).read_bytes()
        assert SECRET.encode() not in data
        assert b"hunter22" not in data
    reader = SqliteLedger.open(str(tmp_path), read_only=True)
    (row,) = reader.tasks.rows()
    reader.close()
    assert (row.spec_id, row.title, row.description, row.assignee) == ("***", "***", "use ***", "***")
    assert json.loads(row.completion or "")["coder"]["verification_config"]["command"] == "curl -H ***"


def test_a_completion_that_is_no_json_is_kept_as_it_is(tmp_path: Path) -> None:
    """DB-07"""
    ledger = SqliteLedger.open(str(tmp_path))
    ledger.tasks.add((TaskRow("a", completion="{cut off"),))
    assert ledger.tasks.rows()[0].completion == "{cut off"
    ledger.close()


def test_dependencies_that_cannot_be_read_are_not_taken_for_none(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(tmp_path))
    ledger.tasks.add((TaskRow("a", dependencies=("b",)),))
    ledger.close()
    connection = sqlite3.connect(tmp_path / "ledger.db")
    connection.execute("UPDATE task SET dependencies = '[' ")
    connection.commit()
    connection.close()
    reader = SqliteLedger.open(str(tmp_path), read_only=True)
    with pytest.raises(LedgerBroken, match="the dependencies of task a cannot be read"):
        reader.tasks.rows()
    reader.close()


# Runs


def test_a_run_is_begun_with_its_task_or_not_at_all(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(tmp_path))
    ledger.tasks.add((TaskRow("a"), TaskRow("b")))
    begin(ledger, "r0")
    for run, task in (("r1", "a"), ("r2", "b"), ("r3", "a")):
        begin(ledger, run, task)
    with pytest.raises(RalphError):
        begin(ledger, "r4", "nowhere")
    assert [row.id for row in ledger.runs()] == ["r3", "r2", "r1", "r0"]
    assert (ledger.tasks.attempts("a"), ledger.tasks.attempts("b")) == (("r1", "r3"), ("r2",))
    assert ledger.tasks.attempts("nowhere") == ()
    assert [ledger.tasks.task_of_run(run) for run in ("r0", "r1", "r2", "r3", "r4")] == [None, "a", "b", "a", None]
    assert [row.run for row in ledger.tasks.rows()] == ["r3", "r2"]
    ledger.close()


def test_the_users_word_holds_until_somebody_works_on_the_task(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(tmp_path))
    ledger.tasks.add((TaskRow("a"), TaskRow("b")))

    def word(id: str) -> tuple[bool, str]:
        row = ledger.tasks.row(id)
        assert row
        return row.said, row.status

    assert (word("a"), word("b")) == ((True, "todo"), (True, "todo"))
    begin(ledger, "r1", "a")
    begin(ledger, "r2", "b")
    assert (word("a"), word("b")) == ((False, "todo"), (False, "todo"))
    ledger.tasks.change("a", {"status": "done"})
    ledger.tasks.change("b", {"title": "another"})
    assert (word("a"), word("b")) == ((True, "done"), (False, "todo"))
    begin(ledger, "r3", "b")
    assert word("a") == (True, "done")
    begin(ledger, "r4", "a")
    assert word("a") == (False, "done")
    ledger.close()


def test_a_run_that_is_taken_up_again_is_the_latest_attempt(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(tmp_path))
    ledger.tasks.add((TaskRow("a"),))
    begin(ledger, "r1", "a")
    begin(ledger, "r2", "a")
    ledger.tasks.change("a", {"status": "todo"})
    assert [(row.run, row.said) for row in ledger.tasks.rows()] == [("r2", True)]
    ledger.assign_process("r1", current_process())
    assert [(row.run, row.said) for row in ledger.tasks.rows()] == [("r1", False)]
    assert ledger.tasks.attempts("a") == ("r2", "r1")
    ledger.close()


# Files


def test_there_are_no_tasks_where_there_is_no_file(tmp_path: Path) -> None:
    reader = SqliteLedger.open(str(tmp_path / "nowhere"), read_only=True)
    assert (reader.has_tasks(), reader.tasks.rows()) == (False, ())
    reader.close()
    assert not (tmp_path / "nowhere").exists()


ADD = """
import sys
from ralphproof.base.errors import Refused
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.tasks import TaskRow
ledger = SqliteLedger.open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
won = 0
for number in range(20):
    try:
        ledger.tasks.add((TaskRow(f"t{number}"), TaskRow(f"{sys.argv[2]}-{number}")))
        won += 1
    except Refused:
        pass
print(won)
"""


def test_of_two_processes_that_make_the_same_task_one_is_refused(tmp_path: Path) -> None:
    SqliteLedger.open(str(tmp_path)).close()
    both = [python(ADD, str(tmp_path), name) for name in ("one", "two")]
    assert [said(process) for process in both] == ["ready", "ready"]
    for process in both:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    won = [int(process.communicate(timeout=30)[0]) for process in both]
    ledger = SqliteLedger.open(str(tmp_path))
    assert sum(won) == 20
    assert sorted(ids(ledger.tasks)) == sorted({*ids(ledger.tasks)})
    assert len(ids(ledger.tasks)) == 40
    ledger.close()
