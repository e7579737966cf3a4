"""The tasks of a database as a plan."""

from __future__ import annotations

from ralphproof.plan import PlanSource, Task
from ralphproof.plans.database import Database, Fixed
from ralphproof.plans.draft import Draft
from tests.plans.samples import block, completion, draft, with_way


def test_all_tasks_are_the_plan_and_the_database_says_which_are_done() -> None:
    rows = [(draft(id="A", status="done"), False), (draft(id="B", dependencies=("A",)), True)]
    source: PlanSource = Database(lambda: rows)
    first, second = source.read().tasks
    assert (first.id, first.done, second.id, second.done, second.depends_on) == ("A", False, "B", True, ("A",))


def test_old_and_unreadable_rows_load_with_a_warning_and_the_others_as_they_are() -> None:
    rows = [
        (draft(id="OLD", completion=None), False),
        (draft(id="BENT", completion=completion(coder=block("nonsense"))), True),
        (draft(id="GOOD", completion=completion(coder=block("string_match"))), False),
    ]
    source = Database(lambda: rows)
    old, bent, good = source.read().tasks
    assert [len(task.criteria) for task in (old, bent, good)] == [0, 0, 1]
    assert (bent.done, bent.outcome) == (True, "Every request needs a token")
    assert [warning.partition(":")[0] for warning in source.warnings] == ["OLD", "BENT"]
    assert source.read().tasks == (old, bent, good)
    assert len(source.warnings) == 2


def test_a_plan_is_read_anew_each_time() -> None:
    rows: list[tuple[Draft, bool]] = [(draft(), False)]
    source = Database(lambda: rows)
    before = source.read()
    rows[0] = (draft(title="Other"), True)
    rows.append((draft(id="T-2", completion=None), False))
    after = source.read()
    assert [task.title for task in before.tasks] == ["Tokens"]
    assert [(task.title, task.done) for task in after.tasks] == [("Other", True), ("Tokens", False)]
    rows.pop()
    source.read()
    assert source.warnings == ()


def test_methods_of_plug_ins_are_asked_for() -> None:
    rows = [(with_way("mutation", {"least": 80}), False)]
    assert Database(lambda: rows).read().tasks[0].criteria == ()
    known = Database(lambda: rows, lambda name: name == "mutation")
    assert len(known.read().tasks[0].criteria) == 1
    assert known.warnings == ()


def test_a_fixed_task_stays_the_same() -> None:
    source: PlanSource = Fixed(Task("T-1", "do it"))
    assert source.read().tasks == (Task("T-1", "do it"),)
    assert source.read() == source.read()
