"""`ralph task import`, `export` and `validate`: files of tasks, all or nothing."""

from __future__ import annotations

import json
import os
import pty
import stat
from typing import Any

import pytest

from ralphproof.store.tasks import TaskRow
from tests.cli.tasking import (
    CODER,
    COMPLETION,
    PASSED,
    Command,
    command_line,
    completed,
    iteration,
    keep,
    opened,
    worked,
)
from tests.ralph import PROGRAM, Ralph

YAML = """\
task:
  id: TASK-001
  spec_id: auth-feature
  title: "Implement JWT authentication"
  description: |
    Add JWT-based authentication to all API endpoints.
    Include login, logout, and token refresh functionality.
  priority: 1
  dependencies: []
  completion:
    outcome: "All API endpoints require valid JWT tokens for access"
    acceptance_criteria:
      - "JWT middleware validates tokens on all protected routes"
      - "Invalid/expired tokens return 401 Unauthorized"
    coder:
      promise: "AUTH_IMPLEMENTED"
      description: "JWT authentication fully implemented and committed"
      verification_method: external
      verification_config:
        command: |
          test -f src/auth/middleware.py &&
          grep -q "jwt.verify" src/auth/middleware.py
        success_exit_code: 0
      max_iterations: 15
    qa:
      promise: "AUTH_QA_COMPLETE"
      description: "Full QA validation"
      verification_method: multi_stage
      verification_config:
        require_all: true
        stages:
          - name: "all_tests_pass"
            method: external
            config:
              command: "pytest tests/ -v"
            required: true
          - name: "acceptance_verified"
            method: semantic
            config:
              check_for: "{{acceptance_criteria}}"
"""


@pytest.fixture
def run(ralph: Ralph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(ralph, monkeypatch, capsys)


def item(id: str, *dependencies: str, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "title": f"title of {id}",
        "dependencies": [*dependencies],
        "completion": json.loads(COMPLETION),
    } | more


def rows(ralph: Ralph) -> dict[str, TaskRow]:
    with opened(ralph) as ledger:
        return {row.id: row for row in ledger.tasks.rows()}


def test_a_file_that_somebody_wrote_is_imported_and_comes_out_again(ralph: Ralph, run: Command) -> None:
    ralph.write({"task.yaml": YAML})
    told = run("task", "import", "task.yaml")
    assert (told.code, told.out, told.err) == (0, "added: TASK-001\n", "")
    row = rows(ralph)["TASK-001"]
    assert (row.spec_id, row.priority, row.dependencies) == ("auth-feature", 1, ())
    assert row.description.endswith("token refresh functionality.\n")
    spec = json.loads(row.completion or "")
    assert spec["coder"]["max_iterations"] == 15
    assert spec["coder"]["verification_config"]["command"].count("\n") == 2
    assert [stage["name"] for stage in spec["qa"]["verification_config"]["stages"]] == [
        "all_tests_pass", "acceptance_verified",
    ]  # fmt: skip
    out = run("task", "export", "TASK-001").out
    assert out.startswith("task:\n  id: TASK-001\n")
    ralph.write({"again.yaml": out})
    told = run("task", "import", "--update", "again.yaml")
    assert (told.code, told.out) == (0, "unchanged: TASK-001\n")


def test_all_tasks_come_out_as_a_list_and_make_the_same_ones_elsewhere(ralph: Ralph, run: Command) -> None:
    rest = {"description": "'); DROP TABLE task;-- 🦀\n  x\n", "metadata": {"k": [1, {"is": None}]}, "priority": -4}
    ralph.write({"tasks.json": json.dumps([item("a", "b", **rest), item("b", status="done"), item("c")])})
    assert run("task", "import", "tasks.json").out == "added: a, b, c\n"
    before = rows(ralph)
    told = run("task", "export", "-o", "out/all.yaml")
    assert (told.code, told.err) == (
        2,
        "ralph: cannot write out/all.yaml: No such file or directory; name another file\n",
    )
    assert run("task", "export", "-o", "all.yaml").out == "3 tasks written to all.yaml\n"
    assert stat.S_IMODE((ralph.root / "all.yaml").stat().st_mode) == 0o666 & ~_umask()
    assert run("task", "export").out == (ralph.root / "all.yaml").read_text("utf-8")
    ralph.env["RALPH_STATE_DIR"] = str(ralph.folder / "elsewhere")
    assert ralph("task", "import", "all.yaml").code == 0
    told = ralph("task", "export", "--json").json
    assert (told["shape"], told["tasks"], told["file"]) == ("list", 3, None)
    assert told["text"] == (ralph.root / "all.yaml").read_text("utf-8")
    after = rows(ralph)
    assert [(row.status, row.metadata, row.completion, row.description) for row in before.values()] == [
        (row.status, row.metadata, row.completion, row.description) for row in after.values()
    ]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_standard_input_is_a_file_too(ralph: Ralph) -> None:
    told = ralph("task", "import", "-", stdin=json.dumps([item("a")]))
    assert (told.code, told.out) == (0, "added: a\n")
    assert ralph("task", "validate", "-", "--json", stdin=YAML).json == {
        "v": 1, "type": "validate", "valid": True, "tasks": 1, "problems": [], "remarks": [],
    }  # fmt: skip
    told = ralph("task", "import", "-", stdin="]")
    assert (told.code, told.out, "standard input" in told.err) == (2, "", True)


BAD: dict[str, tuple[list[Any], list[str], list[str]]] = {
    # what is in the file; what is said; what is kept with --partial
    "one without criteria": (
        [item("a"), {"id": "b", "title": "t"}, item("c", "a")],
        ["tasks.json: b: completion is missing"],
        ["a", "c"],
    ),
    "two problems": (
        [item("a", priority="x", title=""), item("b")],
        ["tasks.json: a: priority must be", "tasks.json: a: title is blank"],
        ["b"],
    ),
    "a doubled id": ([item("a"), item("b"), item("a")], ["tasks.json: a: the id is given 2 times"], ["b"]),
    "an id that there is": ([item("old"), item("b")], ["tasks.json: old: there is a task of this id already"], ["b"]),
    "unknown dependencies": (
        [item("a", "x"), item("b", "a"), item("c", "old")],
        ["a: dependencies name x, which is no task", "b: it depends on a, which is not valid"],
        ["c"],
    ),
    "a circle": (
        [item("a", "b"), item("b", "a"), item("c", "b"), item("d")],
        ["a: dependencies go in a circle", "b: dependencies go in a circle", "c: it depends on b, which is not valid"],
        ["d"],
    ),
    "no task at all": (["x", item("b")], ["tasks.json: task 1: must be a mapping"], ["b"]),
}


@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("what", BAD)
def test_one_bad_task_keeps_all_out_unless_a_part_is_enough(
    ralph: Ralph, run: Command, what: str, partial: bool
) -> None:
    tasks, said, good = BAD[what]
    keep(ralph, TaskRow("old", title="t", completion=COMPLETION))
    ralph.write({"tasks.json": json.dumps(tasks)})
    told = run("task", "import", "tasks.json", *(["--partial"] if partial else []))
    assert told.code == 2
    lines = told.out.splitlines() if partial else told.err.splitlines()
    assert all(any(words in line for line in lines) for words in said), lines
    assert {*rows(ralph)} == {"old", *(good if partial else ())}
    if partial:
        assert lines[0] == f"added: {', '.join(good)}"
        assert all(line.startswith("left out: ") for line in lines[1:])
    else:
        assert told.out == ""
        validated = run("task", "validate", "tasks.json")
        assert validated.code == (0 if what == "an id that there is" else 2)


def test_dependencies_may_come_from_another_file_or_the_record(ralph: Ralph, run: Command) -> None:
    keep(ralph, TaskRow("old"))
    ralph.write({"one.json": json.dumps(item("a", "b", "old")), "two.json": json.dumps(item("b"))})
    assert run("task", "import", "one.json").code == 2
    assert run("task", "import", "one.json", "two.json").code == 0
    assert rows(ralph)["a"].dependencies == ("b", "old")


def test_a_dry_run_says_the_same_and_does_nothing(ralph: Ralph, run: Command) -> None:
    ralph.write({"tasks.json": json.dumps([item("a"), item("b")]), "bad.json": json.dumps([item("a", "x")])})
    told = run("task", "import", "--dry-run", "tasks.json")
    assert (told.code, told.out) == (0, "would be added: a, b\n")
    assert run("task", "import", "--dry-run", "bad.json").code == 2
    assert not ralph.state_dir.exists()
    keep(ralph, TaskRow("a"))
    told = run("task", "import", "--dry-run", "--update", "tasks.json", "--json")
    assert (told.json["added"], told.json["changed"], told.json["dryRun"]) == (["b"], ["a"], True)
    assert rows(ralph)["a"].title == ""


def test_an_update_changes_what_the_file_says_and_opens_nothing_again(ralph: Ralph, run: Command) -> None:
    keep(ralph, *(TaskRow(id, title="before", completion=COMPLETION) for id in ("a", "b", "c", "d")))
    with opened(ralph) as ledger:
        ledger.tasks.change("a", {"status": "done"})
    worked(ralph, "r", "b", *iteration(1, "b", CODER, (), PASSED), end=completed())
    same = {"title": "before", "completion": json.loads(COMPLETION)}
    tasks = [item("a"), item("b", status="done"), item("c", status="cancelled", **same), {"id": "d", **same}, item("e")]
    ralph.write({"tasks.json": json.dumps(tasks)})
    told = run("task", "import", "--update", "tasks.json", "--json").json
    assert (told["added"], told["changed"], told["unchanged"]) == (["e"], ["a", "b", "c"], ["d"])
    found = {view["id"]: view for view in run("task", "list", "--json").json["tasks"]}
    assert {id: (view["status"], view["title"]) for id, view in found.items()} == {
        "a": ("done", "title of a"), "b": ("done", "title of b"), "c": ("cancelled", "before"), "d": ("todo", "before"),
        "e": ("todo", "title of e"),
    }  # fmt: skip
    assert found["b"]["proof"] == "verified"


def test_an_update_of_a_task_that_a_run_works_on_changes_nothing_at_all(ralph: Ralph, run: Command) -> None:
    keep(ralph, TaskRow("a", title="before", completion=COMPLETION))
    worked(ralph, "r", "a", *iteration(1, "a", CODER))
    ralph.write({"tasks.json": json.dumps([item("b"), item("a")])})
    told = run("task", "import", "--update", "tasks.json")
    assert (told.code, "run r works on task a" in told.err) == (2, True)
    assert {id: row.title for id, row in rows(ralph).items()} == {"a": "before"}


@pytest.mark.parametrize(
    ("name", "why"), [("nowhere", "No such file"), (".", "Is a directory"), ("binary", "binary"), ("deep", "deep")]
)
def test_a_file_that_cannot_be_read_is_named_in_one_line(ralph: Ralph, run: Command, name: str, why: str) -> None:
    (ralph.root / "binary").write_bytes(b"\xff\xfe\0\1")
    ralph.write({"deep": "[" * 100_000})
    for verb in ("import", "validate"):
        told = run("task", verb, name)
        assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1), told.err
        assert (why in told.err) or name in told.err


def test_a_file_without_tasks_is_said(ralph: Ralph, run: Command) -> None:
    ralph.write({"empty.yaml": "", "list.yaml": "[]"})
    for name in ("empty.yaml", "list.yaml"):
        told = run("task", "import", name)
        assert (told.code, told.out) == (0, "the files contain no task\n")
    assert run("task", "validate", "empty.yaml").out == "0 tasks: all valid\n"
    assert run("task", "import").code == 2


def test_one_task_alone_has_its_own_shape(ralph: Ralph, run: Command) -> None:
    keep(ralph, TaskRow("a", title="t"), TaskRow("b", title="t"))
    assert run("task", "export", "a").out.startswith("task:\n")
    assert run("task", "export", "a", "--shape", "list").out.startswith("- id: a\n")
    assert run("task", "export", "b", "a", "b").out.startswith("- id: b\n")
    told = run("task", "export", "--shape", "task")
    assert (told.code, "needs exactly one task, not 2" in told.err) == (2, True)
    assert run("task", "export", "--shape", "tree").code == 2


def test_an_export_to_a_terminal_is_clean(ralph: Ralph) -> None:
    keep(ralph, TaskRow("a", title="\x1b]0;x\x07\x1b[2J\u202e evil"))
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ralph.root)
        os.execve(PROGRAM[0], [*PROGRAM, "task", "export"], ralph.env)
    seen = b""
    try:
        while piece := os.read(terminal, 65536):
            seen += piece
    except OSError:
        pass  # Linux says so that the other end is closed
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert b"evil" in seen
    assert b"\x1b" not in seen
    assert "\u202e".encode() not in seen


def test_many_tasks_are_imported_in_little_time(ralph: Ralph, run: Command) -> None:
    ralph.write({"tasks.json": json.dumps([item(f"t{n}", *([f"t{n - 1}"] if n else [])) for n in range(1500)])})
    assert run("task", "import", "tasks.json").code == 0
    assert len(rows(ralph)) == 1500
