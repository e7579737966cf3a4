"""`ralph task`: making tasks, changing them, and listing them."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from ralphproof.cli.setup import describe_verb
from ralphproof.cli.task import TASK_VERBS
from ralphproof.setup.completion import bash_script as completion_script
from ralphproof.store.tasks import TaskRow
from tests.cli.tasking import (
    CODER,
    COMPLETION,
    NEEDED,
    NOBODY,
    Command,
    aborted,
    command_line,
    completed,
    iteration,
    keep,
    opened,
    worked,
)
from tests.needs import require
from tests.ralph import PROGRAM, Ralph

SECRET = "sk-ant-" + "a1b2c3d4" * 4  # shaped like a key, and none
STAGES = ("coder", "reviewer", "tester", "qa")


@pytest.fixture
def run(ralph: Ralph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(ralph, monkeypatch, capsys)


def rows(ralph: Ralph) -> tuple[TaskRow, ...]:
    with opened(ralph) as ledger:
        return ledger.tasks.rows()


def completion(ralph: Ralph, id: str) -> Any:
    with opened(ralph) as ledger:
        row = ledger.tasks.row(id)
    assert row
    return json.loads(row.completion or "null")


# The verb itself


def test_alone_it_says_what_its_verbs_are(run: Command) -> None:
    told = run("task")
    assert (told.code, told.err) == (0, "")
    assert all(f"\n    {verb} " in told.out for verb in TASK_VERBS)
    assert run("task", "--json").json["verbs"] == TASK_VERBS


@pytest.mark.parametrize("argv", [["crate"], ["--json", "crate"], ["-d", ".", "crate"]], ids=" ".join)
def test_an_unknown_verb_is_answered_with_the_nearest(run: Command, argv: list[str]) -> None:
    told = run("task", *argv)
    assert told.code == 2
    assert told.err == "ralph: unknown command task crate; did you mean create? (see ralph task --help)\n"


@pytest.mark.parametrize("verb", TASK_VERBS)
def test_every_verb_has_help_with_examples(run: Command, verb: str) -> None:
    told = run("task", verb, "--help")
    assert (told.code, told.err) == (0, "")
    assert f"usage: ralph task {verb}" in told.out
    assert "examples:\n  ralph task " in told.out
    assert "--json" in told.out


def test_flags_of_all_verbs_may_stand_before_it(ralph: Ralph, run: Command) -> None:
    keep(ralph, TaskRow("a"))
    for argv in (["--json", "task", "list"], ["task", "-qd", ".", "--json", "list"], ["task", "list", "--json"]):
        assert [task["id"] for task in run(*argv).json["tasks"]] == ["a"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["task", "cre"], ["create"]),
        (["task", "create"], ["create"]),
        (["task", "create", "--tester-verify-t"], ["--tester-verify-template"]),
        (["task", "list", "--st"], ["--status"]),
        (["task", "--js"], ["--json"]),
        (["task", "nonsense", "--st"], []),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else None,
)
def test_bash_completes_its_verbs_and_their_flags(words: list[str], offered: list[str]) -> None:
    require(shutil.which("bash") is not None, "bash")
    typed = " ".join(f"'{word}'" for word in ["ralph", *words])
    ask = f"COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _ralph; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    script = completion_script([describe_verb("task", "about")])
    told = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True)
    assert (told.stderr, told.stdout.split()) == ("", offered)


# Creating


def test_a_task_is_made_as_it_is_described(ralph: Ralph, run: Command) -> None:
    told = run(
        "task", "create", "TASK-001", "my-spec", "Implement JWT auth", "--outcome", "All endpoints require a token",
        "--acceptance", "Login returns a token", "--acceptance", "Invalid tokens return 401", "--description", "x\ny",
        "--priority", "-2", "--assignee", "me", "--metadata", "points=3", "--metadata", "url=a=b",
        "--coder-promise", "<promise>AUTH_IMPLEMENTED</promise>", "--coder-verify", "external",
        "--coder-verify-cmd", "grep -r 'jwt.verify' src/", "--coder-max-iterations", "7",
        "--tester-verify-cmd", "pytest tests", "--tester-description", "all tests pass",
        "--reviewer-verify", "semantic", "--reviewer-verify-config", '{"check_for": ["no secrets"]}',
    )  # fmt: skip
    assert (told.code, told.err) == (0, "")
    assert told.out == "task TASK-001 is kept; work on it: ralph work TASK-001\n"
    (row,) = rows(ralph)
    assert (row.spec_id, row.title, row.description, row.status, row.priority, row.assignee) == (
        "my-spec", "Implement JWT auth", "x\ny", "todo", -2, "me",
    )  # fmt: skip
    assert json.loads(row.metadata) == {"points": "3", "url": "a=b"}
    assert completion(ralph, "TASK-001") == {
        "outcome": "All endpoints require a token",
        "acceptance_criteria": ["Login returns a token", "Invalid tokens return 401"],
        "coder": {
            "promise": "AUTH_IMPLEMENTED", "max_iterations": 7, "verification_method": "external",
            "verification_config": {"command": "grep -r 'jwt.verify' src/"},
        },
        "tester": {
            "promise": "TESTS_PASSED", "description": "all tests pass", "verification_method": "external",
            "verification_config": {"command": "pytest tests"},
        },
        "reviewer": {
            "promise": "REVIEW_PASSED", "verification_method": "semantic",
            "verification_config": {"check_for": ["no secrets"]},
        },
    }  # fmt: skip
    assert run("task", "validate").code == 0


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_may_be_told_by_a_template_and_its_promise_by_the_settings(
    ralph: Ralph, run: Command, stage: str
) -> None:
    ralph.settings(stages={stage: {"promise": "MY_WORD"}})
    flags = (f"--{stage}-verify-template", "pytest_coverage", f"--{stage}-with", "minimum=90.5")
    told = run("task", "create", "a", "s", "t", *NEEDED, *flags)
    assert (told.code, told.err) == (0, "")
    made = completion(ralph, "a")[stage]
    assert (made["promise"], made["verification_method"]) == ("MY_WORD", "external")
    assert "--cov-fail-under=90.5" in made["verification_config"]["command"]


WRONG = {
    "nothing said": ([], ["completion.outcome is missing", "completion.acceptance_criteria is missing"]),
    "no json": (["--qa-verify", "external", "--qa-verify-config", "{"], ["--qa-verify-config is not JSON"]),
    "no object": (["--qa-verify", "external", "--qa-verify-config", "[]"], ["--qa-verify-config is not a JSON object"]),
    "no method": (["--qa-verify-config", '{"a": 1}'], ["add --qa-verify METHOD"]),
    "another method": (
        ["--coder-verify", "semantic", "--coder-verify-cmd", "x"],
        ["is for external, not for semantic"],
    ),
    "unknown method": (
        ["--coder-verify", "externl"],
        ["completion.coder.verification_method", "did you mean external"],
    ),
    "no template": (["--qa-with", "a=b"], ["--qa-with needs --qa-verify-template"]),
    "unknown template": (["--qa-verify-template", "pytst"], ["--qa-verify-template: ", "did you mean pytest"]),
    "bad parameter": (
        ["--qa-verify-template", "pytest_coverage", "--qa-with", "minimum=much"],
        ["--qa-verify-template: ", "minimum"],
    ),
    "two methods": (
        ["--qa-verify-template", "pytest", "--qa-verify", "semantic"],
        ["--qa-verify-template pytest is external, not semantic"],
    ),
    "no pair": (["--metadata", "x", "--qa-verify-template", "pytest", "--qa-with", "=y"], ["--metadata 'x'", "'=y'"]),
    "unknown dependency": (["--depends-on", "b", "--depends-on", "c"], ["name b, which", "name c, which"]),
    "itself": (["--depends-on", "a"], ["in a circle: a -> a"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_everything_that_is_wrong_is_said_and_nothing_is_kept(ralph: Ralph, run: Command, what: str) -> None:
    flags, told = WRONG[what]
    ended = run("task", "create", "a", "s", "t", *flags, *(NEEDED if flags else ()))
    assert (ended.code, ended.out) == (2, "")
    assert all(words in ended.err for words in told), ended.err
    assert all(line.startswith("ralph: ") for line in ended.err.splitlines())
    assert rows(ralph) == ()


def test_problems_of_flags_fields_and_dependencies_come_at_once(ralph: Ralph, run: Command) -> None:
    told = run("task", "create", " a ", "s", "\x1b[2J", "--metadata", "x", "--depends-on", "b", "--json")
    assert told.code == 2
    lines = told.err.splitlines()
    assert len(lines) == 6, lines
    assert told.json["exitCode"] == 2
    assert "\x1b" not in told.err
    assert rows(ralph) == ()


@pytest.mark.parametrize(
    "flags",
    [["--priority", "high"], ["--priority", "9" * 30], ["--coder-max-iterations", "0"], ["--outcom", "x"], ["more"]],
    ids=" ".join,
)
def test_what_is_no_flag_or_number_is_refused_in_one_line(ralph: Ralph, run: Command, flags: list[str]) -> None:
    told = run("task", "create", "a", "s", "t", *NEEDED, *flags)
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)
    assert rows(ralph) == ()


def test_an_id_is_given_once(ralph: Ralph, run: Command) -> None:
    assert run("task", "create", "a", "s", "first", *NEEDED).code == 0
    told = run("task", "create", "a", "s", "second", *NEEDED)
    assert (told.code, told.err) == (2, "ralph: a: there is a task of this id already\n")
    assert [row.title for row in rows(ralph)] == ["first"]


def test_of_two_that_make_the_same_task_at_once_one_is_refused(ralph: Ralph) -> None:
    ralph.project.ledger(read_only=False).close()
    both = [ralph.start("task", "create", "a", "s", title, *NEEDED) for title in ("one", "two")]
    ends = [live.end() for live in both]
    assert sorted(end.code for end in ends) == [0, 2], ends
    assert len(rows(ralph)) == 1


HOSTILE = ["'); DROP TABLE task;--", "🦀 👩‍👩‍👧 ü", "$(touch x) `id` \"'\\", "-x=y", "{{title}} %s {0}"]


@pytest.mark.parametrize("title", HOSTILE)
def test_any_printable_title_is_kept_and_shown_literally(ralph: Ralph, run: Command, title: str) -> None:
    """DB-08"""
    assert run("task", "create", "a", "s", *NEEDED, f"--description={title * 10_000}", "--", title).code == 0
    (row,) = rows(ralph)
    assert (row.title, row.description) == (title, title * 10_000)
    for verb in (["list"], ["show", "a"]):
        assert title in run("task", *verb).out
    assert run("task", "show", "a", "--json").json["title"] == title


def test_a_megabyte_of_description_is_kept(ralph: Ralph, run: Command) -> None:
    """DB-08"""
    text = "wide ü " * (1 << 17)
    ralph.write({"tasks.json": json.dumps([{"id": "a", "title": "t", "description": text[: 1 << 19], **_needed()}])})
    assert run("task", "import", "tasks.json").code == 0
    assert rows(ralph)[0].description == text[: 1 << 19]
    assert len(run("task", "show", "a").out) > 1 << 19
    assert len(run("task", "list").out) < 1000


def _needed() -> dict[str, Any]:
    return {"completion": json.loads(COMPLETION)}


def test_what_came_into_the_record_otherwise_never_reaches_the_terminal(ralph: Ralph, run: Command) -> None:
    evil = "\x1b]0;title\x07\x1b[2J\r\nnext line\u202e \x9b31m"
    spec = json.dumps({"outcome": evil, "acceptance_criteria": [evil], "coder": {"promise": evil, "description": evil}})
    keep(
        ralph, TaskRow("a" + evil, evil, evil, evil, assignee=evil, metadata=json.dumps({evil: evil}), completion=spec)
    )
    worked(ralph, "r", "a" + evil, *iteration(1, "a" + evil, CODER), end=aborted(evil))
    for argv in (["task", "list"], ["task", "show", "a" + evil], ["status"], ["task", "validate"]):
        told = run(*argv)
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & {*told.out, *told.err}, argv
    assert len(run("task", "list").out.splitlines()) == 2
    keep(ralph, TaskRow("long", title="x" * (1 << 20)), TaskRow("宽", title="wide"))
    lines = run("task", "list").out.splitlines()
    assert lines[2].endswith("xxx…")
    assert len(lines[2]) < 400
    assert lines[2].index("todo") == lines[3].index("todo") + 1  # a wide letter takes two columns


def test_secrets_are_not_kept_and_that_is_said(ralph: Ralph, run: Command) -> None:
    told = run("task", "create", "a", "s", "t", *NEEDED, "--coder-verify-cmd", f"curl -H {SECRET} host")
    assert told.code == 0
    assert "note: task a holds a secret, which is not kept" in told.out
    assert completion(ralph, "a")["coder"]["verification_config"] == {"command": "curl -H *** host"}


def test_what_may_not_be_meant_is_said(run: Command) -> None:
    told = run("task", "create", "a", "s", "t", *NEEDED, "--qa-verify", "string_match", "--json").json
    assert (told["id"], told["status"], len(told["warnings"])) == ("a", "todo", 1)
    assert "promise alone" in told["warnings"][0]


def test_settings_that_are_wrong_matter_only_where_they_are_asked(ralph: Ralph, run: Command) -> None:
    ralph.settings(nonsense=1)
    assert run("task", "create", "a", "s", "t", *NEEDED).code == 0
    told = run("task", "create", "b", "s", "t", *NEEDED, "--qa-description", "x")
    assert (told.code, "nonsense" in told.err) == (2, True)


# Following up


def test_a_followup_depends_on_its_parent_and_takes_its_spec(ralph: Ralph, run: Command) -> None:
    keep(ralph, TaskRow("a", "auth", completion=COMPLETION), TaskRow("b", completion=COMPLETION))
    told = run("task", "followup", "a", "c", "Rotate", *NEEDED, "--depends-on", "b", "--metadata", "x=y")
    assert (told.code, told.err) == (0, "")
    row = rows(ralph)[2]
    assert (row.id, row.spec_id, row.dependencies) == ("c", "auth", ("a", "b"))
    assert json.loads(row.metadata) == {"x": "y", "followup_of": "a"}
    assert run("task", "followup", "a", "d", "t").code == 2
    told = run("task", "followup", "A", "d", "t", *NEEDED)
    assert (told.code, "no task is called 'A'" in told.err) == (2, True)


# Editing


@pytest.fixture
def task(ralph: Ralph, run: Command) -> str:
    """A task with a coder and a tester."""
    flags = ("--coder-verify-cmd", "make", "--tester-verify-template", "pytest", "--metadata", "x=y")
    assert run("task", "create", "a", "s", "t", *NEEDED, *flags, "--description", "d").code == 0
    return "a"


@pytest.mark.parametrize(
    ("flags", "field", "now"),
    [
        (["--title", "T"], "title", "T"),
        (["--spec", "S"], "spec_id", "S"),
        (["--description", ""], "description", ""),
        (["--priority", "9"], "priority", 9),
        (["--assignee", "me"], "assignee", "me"),
        (["--metadata", "x=", "--metadata", "z=1"], "metadata", '{"z": "1"}'),
        (["--depends-on", "b"], "dependencies", ("b",)),
        (["--depends-on", ""], "dependencies", ()),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else None,
)
def test_a_field_is_changed_and_no_other(
    ralph: Ralph, run: Command, task: str, flags: list[str], field: str, now: object
) -> None:
    keep(ralph, TaskRow("b"))
    with opened(ralph) as ledger:
        ledger.tasks.change("a", {"dependencies": ("b",)} if flags == ["--depends-on", ""] else {})
    before = rows(ralph)[0]
    told = run("task", "edit", task, *flags)
    assert (told.code, told.err) == (0, "")
    assert told.out == f"task a is changed: {field}\n"
    after = rows(ralph)[0]
    assert getattr(after, field) == now
    same = [name for name in TaskRow.__match_args__ if getattr(before, name) == getattr(after, name)]
    assert {*TaskRow.__match_args__} - {*same} == {field, "updated_at"}


@pytest.mark.parametrize(
    ("flags", "stage", "now"),
    [
        (
            ["--coder-verify-config", '{"timeout": 5}'],
            "coder",
            {"promise": "IMPLEMENTATION_COMPLETE", "verification_method": "external",
             "verification_config": {"command": "make", "timeout": 5}},
        ),
        (
            ["--coder-verify", "semantic", "--coder-verify-config", '{"check_for": ["x"]}'],
            "coder",
            {"promise": "IMPLEMENTATION_COMPLETE", "verification_method": "semantic",
             "verification_config": {"check_for": ["x"]}},
        ),
        (
            ["--coder-promise", "P", "--coder-max-iterations", "3"],
            "coder",
            {"promise": "P", "max_iterations": 3, "verification_method": "external",
             "verification_config": {"command": "make"}},
        ),
        (["--clear-coder"], "coder", None),
        (["--clear-coder", "--coder-promise", "P"], "coder", {"promise": "P"}),
        (["--qa-promise", "Q"], "qa", {"promise": "Q"}),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else None,
)  # fmt: skip
def test_a_stage_keeps_what_is_not_said_anew(
    ralph: Ralph, run: Command, task: str, flags: list[str], stage: str, now: object
) -> None:
    before = completion(ralph, task)
    told = run("task", "edit", task, *flags)
    assert (told.code, told.err) == (0, "")
    after = completion(ralph, task)
    assert after.pop(stage, None) == now
    before.pop(stage, None)
    assert after == before


def test_a_template_gives_way_to_a_method_that_is_said_later(ralph: Ralph, run: Command) -> None:
    block = {"promise": "P", "verification_template": "pytest", "with": {"path": "t"}}
    spec = {**json.loads(COMPLETION), "qa": block}
    keep(ralph, TaskRow("a", title="t", completion=json.dumps(spec)))
    assert run("task", "edit", "a", "--qa-verify-cmd", "make").code == 0
    assert completion(ralph, "a")["qa"] == {
        "promise": "P", "verification_method": "external", "verification_config": {"command": "make"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], "nothing to change"),
        (["--title", "t"], "nothing to change"),
        (["--title", ""], "title is blank"),
        (["--acceptance", ""], "completion.acceptance_criteria"),
        (["--depends-on", "a"], "in a circle"),
        (["--depends-on", "nowhere"], "dependencies name nowhere"),
        (["--status", "working"], "invalid choice"),
        (["--coder-verify", "nope"], "verification_method"),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else None,
)
def test_a_change_that_breaks_something_is_refused(
    ralph: Ralph, run: Command, task: str, flags: list[str], told: str
) -> None:
    before = rows(ralph)
    ended = run("task", "edit", task, *flags)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert rows(ralph) == before


def test_what_was_wrong_before_is_no_reason_to_refuse_another_change(ralph: Ralph, run: Command) -> None:
    """DB-07"""
    keep(ralph, TaskRow("old", title="t"), TaskRow("cut", title="t", completion="{cut"))
    for id in ("old", "cut"):
        assert run("task", "edit", id, "--title", "new").code == 0
    assert [(row.title, row.completion) for row in rows(ralph)] == [("new", None), ("new", "{cut")]
    assert run("task", "edit", "cut", *NEEDED).code == 0
    assert completion(ralph, "cut")["acceptance_criteria"] == ["it is fast"]


def test_a_task_that_is_not_there_is_named_with_the_nearest(run: Command, task: str) -> None:
    for verb in ("edit", "show", "export"):
        told = run("task", verb, "aa")
        assert (told.code, told.out) == (2, "")
        assert "no task is called 'aa'; did you mean a?" in told.err


def test_a_task_that_a_run_works_on_is_not_changed(ralph: Ralph, run: Command, task: str) -> None:
    worked(ralph, "r1", task, process=NOBODY)
    assert run("task", "edit", task, "--title", "x").code == 0
    worked(ralph, "r2", task, *iteration(1, task, CODER))
    told = run("task", "edit", task, "--title", "y")
    assert (told.code, told.out) == (2, "")
    assert "run r2 works on task a" in told.err
    assert rows(ralph)[0].title == "x"


# Agents


@pytest.fixture
def inside(ralph: Ralph, monkeypatch: pytest.MonkeyPatch) -> None:
    """We are in the turn of an agent whose run works on a task."""
    monkeypatch.setattr(
        "ralphproof.process.tree.enclosing_turn_files", lambda: [f"{ralph.state_dir}/repos/x/runs/r/agent_001.turn"]
    )
    keep(ralph, TaskRow("mine", title="t", completion=COMPLETION), TaskRow("other", title="t", completion=COMPLETION))
    worked(ralph, "r", "mine", *iteration(1, "mine", CODER))
    monkeypatch.setenv("RALPH_RUN_ID", "r")


def test_an_agent_makes_tasks_and_changes_none(
    ralph: Ralph, inside: None, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_RUN_ID", "r")
    item = {"title": "t", **_needed()}
    ralph.write({"new.json": json.dumps({"id": "n", **item}), "old.json": json.dumps({"id": "other", **item})})
    assert run("task", "create", "a", "s", "t", *NEEDED).code == 0
    assert run("task", "followup", "mine", "b", "t", *NEEDED).code == 0
    assert run("task", "import", "new.json").code == 0
    before = rows(ralph)
    for argv in (["edit", "other", "--title", "easy"], ["import", "--update", "old.json"]):
        told = run("task", *argv)
        assert (told.code, told.out) == (2, "")
        assert "is not for agents: run r" in told.err
    assert rows(ralph) == before
    monkeypatch.setattr(
        "ralphproof.process.tree.enclosing_turn_files", lambda: ["/another/state/repos/x/runs/r/agent_001.turn"]
    )
    assert run("task", "edit", "other", "--title", "easy").code == 0


# Listing and showing


def test_tasks_are_listed_in_columns(ralph: Ralph, run: Command) -> None:
    assert run("task", "list").out == "no task yet; create one: ralph task create, or ralph task import\n"
    keep(ralph, TaskRow("short", "s", "first"), TaskRow("a longer id", "z", "second", priority=-10))
    worked(ralph, "r", "short", *iteration(1, "short", CODER), end=completed())
    assert run("task", "list").out.splitlines() == [
        "id           status          stage       priority  title",
        "short        done, verified  coder 1/15  0         first",
        "a longer id  todo                        -10       second",
    ]
    assert run("task", "list", "--status", "todo").out.splitlines()[1:] == [
        "a longer id  todo           -10       second"
    ]
    assert [task["id"] for task in run("task", "list", "--spec", "s", "--json").json["tasks"]] == ["short"]
    assert run("task", "list", "--spec", "none", "--json").json["tasks"] == []
    assert run("task", "list", "--status", "over").code == 2


def test_looking_makes_no_file(ralph: Ralph, run: Command) -> None:
    for argv in (["list"], ["export"], ["validate"], ["templates"]):
        assert run("task", *argv).code == 0
    assert run("task", "show", "a").code == 2
    assert not ralph.state_dir.exists()


def test_a_completion_spec_that_cannot_be_read_is_shown_as_it_is(ralph: Ralph, run: Command) -> None:
    """DB-07"""
    keep(ralph, TaskRow("cut", title="t", completion='{"outcome": "half'), TaskRow("old", title="t"))
    told = run("task", "show", "cut")
    assert told.code == 0
    assert "its completion spec cannot be read: Unterminated string" in told.out
    assert '    {"outcome": "half' in told.out
    data = run("task", "show", "cut", "--json").json
    assert (data["completion"], data["completionText"]) == (None, '{"outcome": "half')
    assert "no completion spec" in run("task", "show", "old").out
    told = run("task", "validate")
    assert told.code == 2
    assert told.out.splitlines()[0].startswith("cut: its completion spec cannot be read")
    assert told.out.splitlines()[1].startswith("old: completion is missing")
    assert run("task", "list").code == 0
    assert (run("task", "export", "cut").code, run("task", "export", "old").code) == (2, 0)


def test_templates_are_listed_and_one_is_shown(run: Command) -> None:
    told = run("task", "templates")
    assert told.code == 0
    names = [line.split()[0] for line in told.out.splitlines()]
    assert {"pytest", "pytest_coverage", "ruff"} <= {*names}
    shown = run("task", "templates", "pytest_coverage").out
    assert "with minimum: " in shown
    assert "default: 80" in shown
    (template,) = run("task", "templates", "pytest_coverage", "--json").json["templates"]
    assert [one["name"] for one in template["parameters"]] == ["path", "source", "minimum"]
    told = run("task", "templates", "pytst")
    assert (told.code, "did you mean pytest?" in told.err) == (2, True)


def test_a_reader_that_leaves_early_is_no_error(ralph: Ralph) -> None:
    keep(ralph, *(TaskRow(f"task-{number}", title="x" * 200) for number in range(400)))
    for argv in ("task list", "task export", "status"):
        command = f"{' '.join(PROGRAM)} {argv} | head -1"
        told = subprocess.run(["/bin/sh", "-c", command], cwd=ralph.root, env=ralph.env, capture_output=True, text=True)
        assert told.stderr == ""
