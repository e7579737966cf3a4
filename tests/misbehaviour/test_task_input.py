"""Tasks that are malformed, hostile or old, and commands for them that break: said in one line, and no harm is done."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from ralphproof.engine.records import Noticed
from ralphproof.store.tasks import TaskRow
from tests.cli.tasking import Command, command_line, opened
from tests.misbehaviour.agents import case, prompt
from tests.misbehaviour.machine import there, word
from tests.misbehaviour.protected_project import sh
from tests.misbehaviour.tasks import (
    Way,
    completion,
    external,
    findings,
    keep,
    part,
    promise,
    several,
    skipped,
    sound,
    status,
    verdicts,
    work,
)
from tests.ralph import Ralph, Step, write

MADE = write(made="a piece of work")
CODER = skipped("coder")


@pytest.fixture
def run(ralph: Ralph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(ralph, monkeypatch, capsys)


def _some(table: Iterable[str], *quick: str) -> list[Any]:
    """The rows of a table, of which only some are for every day."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.thorough) for name in table]


def ids(ralph: Ralph) -> set[str]:
    with opened(ralph) as ledger:
        return {row.id for row in ledger.tasks.rows()}


def item(id: str, **fields: Any) -> dict[str, Any]:
    """A task of a file with nothing wrong, but for these fields; None takes one out."""
    whole = {"id": id, "title": "Make it so", "completion": completion(coder=external("true")), **fields}
    return {name: inner for name, inner in whole.items() if inner is not None}


def coder(**fields: Any) -> dict[str, Any]:
    """A completion with a malformed coder."""
    return {"completion": {**completion(), "coder": {"promise": "CODED", **fields}}}


def ext(**config: Any) -> dict[str, Any]:
    return coder(verification_method="external", verification_config={"command": "true", **config})


def sem(**config: Any) -> dict[str, Any]:
    return coder(verification_method="semantic", verification_config={"check_for": ["a"], **config})


def stages(*parts: Any, **config: Any) -> dict[str, Any]:
    return coder(verification_method="multi_stage", verification_config={"stages": list(parts), **config})


ONE = part("one", external("true"))
AT = "completion.coder"
CONFIG = f"{AT}.verification_config"
DEEP: Way = external("true")
for _ in range(6):
    DEEP = several(part("deeper", DEEP))

# What is written, and the field that the message names.
MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "title-missing": ({"title": None}, "title"),
    "title-number": ({"title": 3}, "title"),
    "title-lines": ({"title": "a\nb"}, "title"),
    "title-escape": ({"title": "\x1b[2Ja"}, "title"),
    "title-long": ({"title": "a" * 501}, "title"),
    "description-list": ({"description": ["a"]}, "description"),
    "description-nul": ({"description": "a\0b"}, "description"),
    "description-2-mb": ({"description": "a" * 2_000_000}, "description"),
    "spec-number": ({"spec_id": 3}, "spec_id"),
    "priority-word": ({"priority": "high"}, "priority"),
    "priority-half": ({"priority": 1.5}, "priority"),
    "priority-huge": ({"priority": 10**30}, "priority"),
    "dependencies-word": ({"dependencies": "a"}, "dependencies"),
    "dependencies-number": ({"dependencies": [1]}, "dependencies[0]"),
    "status": ({"status": "finished"}, "status"),
    "metadata": ({"metadata": ["a"]}, "metadata"),
    "unknown-key": ({"titel": "a"}, "titel"),
    "no-completion": ({"completion": None}, "completion"),
    "completion-list": ({"completion": ["a"]}, "completion"),
    "outcome-missing": ({"completion": {"acceptance_criteria": ["a"]}}, "completion.outcome"),
    "outcome-blank": ({"completion": {**completion(), "outcome": " "}}, "completion.outcome"),
    "criteria-none": ({"completion": {**completion(), "acceptance_criteria": []}}, "completion.acceptance_criteria"),
    "criteria-blank": (
        {"completion": {**completion(), "acceptance_criteria": [""]}}, "completion.acceptance_criteria[0]",
    ),
    "stage-unknown": ({"completion": {**completion(), "deployer": {}}}, "completion.deployer"),
    "stage-list": ({"completion": {**completion(), "coder": ["a"]}}, AT),
    "promise-missing": (coder(promise=None), f"{AT}.promise"),
    "promise-blank": (coder(promise=" "), f"{AT}.promise"),
    "promise-tags": (coder(promise="<promise>A</promise>"), f"{AT}.promise"),
    "method-unknown": (coder(verification_method="externl"), f"{AT}.verification_method"),
    "method-list": (coder(verification_method=["external"]), f"{AT}.verification_method"),
    "config-list": (coder(verification_method="external", verification_config=["a"]), CONFIG),
    "config-alone": (coder(verification_config={"command": "true"}), f"{AT}.verification_method"),
    "tries-none": (coder(max_iterations=0), f"{AT}.max_iterations"),
    "tries-true": (coder(max_iterations=True), f"{AT}.max_iterations"),
    "command-missing": (ext(command=None), f"{CONFIG}.command"),
    "command-blank": (ext(command=" "), f"{CONFIG}.command"),
    "command-list": (ext(command=["true"]), f"{CONFIG}.command"),
    "code-word": (ext(success_exit_code="0"), f"{CONFIG}.success_exit_code"),
    "code-256": (ext(success_exit_code=256), f"{CONFIG}.success_exit_code"),
    "contains-number": (ext(output_contains=200), f"{CONFIG}.output_contains"),
    "timeout-none": (ext(timeout=0), f"{CONFIG}.timeout"),
    "timeout-word": (ext(timeout="5"), f"{CONFIG}.timeout"),
    "folder-above": (ext(working_dir="../.."), f"{CONFIG}.working_dir"),
    "folder-above-deep": (ext(working_dir="a/../../b"), f"{CONFIG}.working_dir"),
    "folder-absolute": (ext(working_dir="/etc"), f"{CONFIG}.working_dir"),
    "external-key": (ext(shell=True), f"{CONFIG}.shell"),
    "judge-number": (sem(check_for=3), f"{CONFIG}.check_for"),
    "judge-field": (sem(check_for=["{{titel}}"]), f"{CONFIG}.check_for[0]"),
    "judge-cost": (sem(max_cost_usd=-1), f"{CONFIG}.max_cost_usd"),
    "judge-patterns": (sem(negative_patterns="TODO"), f"{CONFIG}.negative_patterns"),
    "stages-none": (stages(), f"{CONFIG}.stages"),
    "stages-advice": (stages({**ONE, "required": False}), f"{CONFIG}.stages"),
    "stages-twice": (stages(ONE, ONE), f"{CONFIG}.stages[1].name"),
    "stages-unknown": (stages({**ONE, "depends_on": ["two"]}), f"{CONFIG}.stages[0].depends_on[0]"),
    "stages-circle": (stages({**ONE, "depends_on": ["one"]}), f"{CONFIG}.stages"),
    "stages-method": (stages({**ONE, "method": "extern"}), f"{CONFIG}.stages[0].method"),
    "stages-deep": (coder(**DEEP), "stages is nested more than 5 deep"),
    "stages-all": (stages(ONE, require_all="yes"), f"{CONFIG}.require_all"),
}  # fmt: skip


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_task_is_named_with_its_field_and_the_others_are_unharmed(
    ralph: Ralph, run: Command, what: str
) -> None:
    """CF-25: by import, by validate, and with --partial the good ones are kept."""
    fields, path = MALFORMED[what]
    keep(ralph, "OLD", coder=external("true"))
    ralph.write({"tasks.json": json.dumps([item("GOOD"), item("BAD", **fields), item("ALSO")])})
    told = run("task", "import", "tasks.json")
    assert (told.code, told.out, ids(ralph)) == (2, "", {"OLD"})
    (line,) = told.err.splitlines()
    assert line.startswith("ralph: tasks.json: BAD: "), line
    assert path in line
    assert len(line) < 400
    assert "\x1b" not in line
    validated = run("task", "validate", "tasks.json")
    assert (validated.code, validated.out.splitlines()[0]) == (2, line.removeprefix("ralph: "))
    partly = run("task", "import", "tasks.json", "--partial")
    assert (partly.code, partly.out.splitlines()[0], ids(ralph)) == (2, "added: GOOD, ALSO", {"OLD", "GOOD", "ALSO"})


@pytest.mark.parametrize("id", [None, "", " ", 3, "a\nb", "\x1b[31m", "a" * 201, " a"], ids=repr)
def test_a_task_without_a_proper_id_is_named_by_its_place(ralph: Ralph, run: Command, id: object) -> None:
    """CF-25"""
    ralph.write({"tasks.json": json.dumps([item("GOOD"), {**item("x"), "id": id}])})
    told = run("task", "import", "tasks.json")
    assert (told.code, told.out, ids(ralph)) == (2, "", set())
    (line,) = told.err.splitlines()
    assert line.startswith("ralph: tasks.json: task 2: id "), line
    assert "\x1b" not in line


def test_a_promise_that_would_send_the_task_back_is_refused_where_it_is_written(ralph: Ralph, run: Command) -> None:
    """CF-25"""
    ralph.write({"tasks.json": json.dumps([item("BAD", **coder(promise="changes_requested"))])})
    assert run("task", "import", "tasks.json").code == 2
    assert ids(ralph) == set()


NEEDED = ("--outcome", "All of the work is there", "--acceptance", "it is there")
FLAGS: dict[str, tuple[str, ...]] = {
    "blank-title": ("T-1", "s", " ", *NEEDED),
    "escape-title": ("T-1", "s", "\x1b]0;pwned\x07", *NEEDED),
    "no-outcome": ("T-1", "s", "t", "--acceptance", "a"),
    "no-criterion": ("T-1", "s", "t", "--outcome", "All of it is there"),
    "method": ("T-1", "s", "t", *NEEDED, "--coder-verify", "extrnal"),
    "command": ("T-1", "s", "t", *NEEDED, "--coder-verify", "external"),
    "tags": ("T-1", "s", "t", *NEEDED, "--coder-promise", "<b>A</b>"),
    "dependency": ("T-1", "s", "t", *NEEDED, "--depends-on", "T-9"),
    "itself": ("T-1", "s", "t", *NEEDED, "--depends-on", "T-1"),
    "taken": ("OLD", "s", "t", *NEEDED),
    "priority": ("T-1", "s", "t", *NEEDED, "--priority", "high"),
    "flag": ("T-1", "s", "t", *NEEDED, "--codr-verify-cmd", "true"),
}


@pytest.mark.parametrize("what", FLAGS)
def test_a_task_that_flags_describe_badly_is_not_made(ralph: Ralph, run: Command, what: str) -> None:
    """CF-25"""
    keep(ralph, "OLD", coder=external("true"))
    told = run("task", "create", *FLAGS[what])
    assert (told.code, told.out, ids(ralph)) == (2, "", {"OLD"})
    (line,) = told.err.splitlines()
    assert line.startswith("ralph: ")
    assert "\x1b" not in line


# Files that are more than malformed

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]\n" for number in range(1, 12)
)
BOMBS: dict[str, bytes] = {
    "laughs": LAUGHS.encode(),
    "laughs-in-a-task": f"id: a\ntitle: t\nmetadata:\n{indent(LAUGHS, '  ')}".encode(),
    "deep-yaml": b"[" * 50_000,
    "deep-json": b'{"a":' * 50_000,
    "itself": b"a: &a [*a]\n",
    "python": b"!!python/object/apply:os.system ['touch pwned']\n",
    "tag": b"id: !!binary aGVsbG8=\ntitle: t\n",
    "doubled": b"id: a\nid: b\ntitle: t\n",
    "utf-16": "id: a\n".encode("utf-16"),
    "not-text": b"\xff\xfe\xff",
    "nul": b"id: a\0b\ntitle: t\n",
    "escape": b"id: a\ntitle: \x1b[31mred\n",
    "digits": b'{"id": "a", "title": "t", "priority": ' + b"9" * 5000 + b"}",
    "nan": b'{"id": "a", "title": "t", "priority": NaN}',
    "merge": b"<<: *nothing\n",
    "eleven-megabytes": b"id: a\ntitle: " + b"t" * (11 << 20),
    "cut-off": b'{"id": "a", "title',
    "tab": b"id: a\n\ttitle: t\n",
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_file_that_would_blow_up_is_refused_in_little_time(ralph: Ralph, run: Command, what: str) -> None:
    """CF-25: in one line, with nothing kept and nothing executed."""
    (ralph.root / "tasks.yaml").write_bytes(BOMBS[what])
    began = time.process_time()
    told = run("task", "import", "tasks.yaml", "--partial")
    assert time.process_time() - began < 5
    assert (told.code, told.out.partition("left out")[0], ids(ralph)) == (2, "", set())
    said = told.err + told.out
    assert all("tasks.yaml" in line for line in said.splitlines())
    assert len(said.splitlines()) <= 3, said
    assert "\x1b" not in said
    assert not (ralph.root / "pwned").exists()


# Text that a terminal would obey

EVIL = "\x1b]0;pwned\x07\x1b[2J\x1b[31mred\u202e\x9b31m"


@pytest.mark.parametrize(
    "argv",
    [
        ("work", EVIL), ("work", f"--{EVIL}"), ("work", "--skip", EVIL), ("task", EVIL), ("task", "show", EVIL),
        ("task", "import", f"{EVIL}.yaml"), ("task", "validate", f"{EVIL}.yaml"), ("task", "edit", EVIL),
        ("cancel", EVIL), ("task", "create", "T-2", "s", EVIL, *NEEDED), ("task", "export", EVIL),
    ],
    ids=lambda argv: " ".join(argv).replace(EVIL, "X"),
)  # fmt: skip
def test_what_somebody_pasted_into_the_command_line_is_not_obeyed(
    ralph: Ralph, run: Command, argv: tuple[str, ...]
) -> None:
    """RU-21"""
    keep(ralph, coder=external("true"))
    told = run(*argv)
    assert told.code == 2, told
    assert not {"\x1b", "\x07", "\x9b"} & set(told.out + told.err), told
    assert len(told.err.splitlines()) == 1, told.err


def test_a_title_that_came_into_the_record_otherwise_reaches_no_terminal(ralph: Ralph) -> None:
    """RU-21, DB-08: nor do the texts that a judge, an agent and a check have of it."""
    told = json.dumps({**completion(coder=external('echo "$RALPH_TASK_TITLE"; false')), "outcome": f"All {EVIL}"})
    with opened(ralph) as ledger:
        ledger.tasks.add((TaskRow(f"T{EVIL}", EVIL, EVIL, EVIL, completion=told),))
    ended = work(ralph, promise("coder", MADE), flags=(*CODER, "-m", "1"))
    shown = [ralph("task", "list"), ralph("task", "show", f"T{EVIL}"), ralph("status"), ralph("work", "--dry-run")]
    for one in (ended, *shown):
        assert "Traceback" not in one.err
        assert not {"\x1b", "\x07", "\x9b"} & set(one.out + one.err), one


SQL = "'); DROP TABLE task;--"


@pytest.mark.parametrize(
    ("id", "text"),
    [case("sql", SQL, SQL), case("emoji", "🧨-1", "Ünï 👩‍👩‍👧 🧨"), case("format", "{}%s", "{0} %n $HOME `id`")],
)
def test_a_hostile_task_is_kept_and_worked_on_literally(ralph: Ralph, id: str, text: str) -> None:
    """DB-08: its title is a title in the prompt, in the command's environment and in the record."""
    check = 'test "$RALPH_TASK_TITLE" = "$(cat ../title)" && test "{{id}}" = "$(cat ../id)"'
    (ralph.folder / "title").write_text(text)
    (ralph.folder / "id").write_text(id)
    made = ralph("task", "create", id, "s", text, *NEEDED, "--coder-promise", "CODED", "--coder-verify-cmd", check)
    assert made.code == 0, made
    ended = work(ralph, promise("coder", MADE), flags=CODER)
    assert (ended.code, ended.out.splitlines()[-1]) == (0, f"{id}  done, verified"), ended
    assert f"# {text}\n" in prompt(ralph, 1)
    assert (status(ralph, id)["title"], ids(ralph)) == (text, {id})
    assert [path.name for path in ralph.root.iterdir() if path.name != ".ralph"] == ["made"]


def test_a_megabyte_of_description_reaches_the_agent(ralph: Ralph, run: Command) -> None:
    """DB-08"""
    text = "All of it. " * 90_000
    ralph.write({"tasks.json": json.dumps([item("T-1", description=text)])})
    assert run("task", "import", "tasks.json").code == 0
    agent: list[Step] = [{"record": "../seen"}, MADE]
    ended = work(ralph, promise("coder", *agent), flags=CODER)
    assert ended.code == 0, ended
    seen = json.loads((ralph.folder / "seen").read_text())["prompt"]
    assert text.strip() in seen
    sound(ralph, ended)


# Where commands run


def outside(ralph: Ralph) -> Path:
    path = ralph.folder / "outside"
    path.mkdir()
    return path


@pytest.mark.parametrize("made", ["before", "in-mid-run"])
def test_a_folder_that_leads_out_of_the_project_runs_nothing(ralph: Ralph, made: str) -> None:
    """CF-26: whoever made the link, and whenever."""
    place = outside(ralph)
    if made == "before":
        (ralph.root / "link").symlink_to(place)
    else:
        ralph.write({"link/file": "x"})
    keep(ralph, coder=external("touch here", working_dir="link"))
    moves = sh(f"rm -rf link; ln -s {place} link")
    flags = (*CODER, "-m", "1", "--allow-missing-check")
    ended = work(ralph, promise("coder", MADE, *([moves] if made != "before" else [])), flags=flags)
    sound(ralph, ended)
    assert ended.code == 1, ended
    (found,) = findings(ralph, 1).values()
    assert not found.passed
    assert found.why.startswith("a folder outside of the project: 'link' leads to")
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("missing", ["gone", "file"])
def test_a_folder_that_is_not_there_is_a_failure_and_no_crash(ralph: Ralph, missing: str) -> None:
    """CF-26"""
    ralph.write({"file": "x"})
    keep(ralph, coder=external("true", working_dir=missing))
    ended = work(ralph, promise("coder", MADE), flags=(*CODER, "-m", "1", "--allow-missing-check"))
    sound(ralph, ended)
    assert (ended.code, verdicts(ralph)) == (1, ["Retry"])
    assert f"no folder '{missing}' in the project" in ended.err


# Commands that break

STAYS = "(setsid sh -c 'sleep 300; :' {0}) & sh -c 'sleep 300; :' {0}"
DEAF = "trap '' TERM; (trap '' TERM; setsid sh -c 'while :; do sleep 1; done' {0}) & while :; do sleep 1; done"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        case("missing", "no-such-program-anywhere", "exit"),
        case("not-runnable", "./made", "exit"),
        case("killed", "kill -SEGV $$", "signal 11"),
        case("syntax", "if then", "exit"),
    ],
)
def test_a_command_that_cannot_do_its_work_is_a_failure_and_the_loop_goes_on(
    ralph: Ralph, command: str, why: str
) -> None:
    """PR-21: and its name and end are told to the next turn."""
    keep(ralph, coder=external(command))
    flags = (*CODER, "-m", "2", "--allow-missing-check")
    ended = work(ralph, promise("coder", MADE), promise("coder", write(made="2")), flags=flags)
    sound(ralph, ended)
    assert (ended.code, verdicts(ralph)) == (1, ["Retry", "Retry"]), ended
    (found,) = findings(ralph, 1).values()
    assert (found.passed, found.why) == (False, why)
    assert command in prompt(ralph, 2)


@pytest.mark.parametrize("command", [case("hears", STAYS), pytest.param(DEAF, id="deaf", marks=pytest.mark.thorough)])
def test_a_command_that_hangs_is_ended_with_all_that_it_started(ralph: Ralph, command: str) -> None:
    """PR-21: in its own time, also what left its session; before the first turn as well."""
    keep(ralph, coder=external(command.format(word(ralph)), timeout=0.3))
    ended = work(ralph, promise("coder", MADE), flags=(*CODER, "-m", "1"))
    sound(ralph, ended)
    (found,) = findings(ralph, 1).values()
    assert (ended.code, found.passed, found.why) == (1, False, "a timeout after 0.3 s")
    assert there(word(ralph)) == []


# Runs a command line, and writes down the most memory that a process of it had.
MEASURED = """
import pathlib, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
pathlib.Path(sys.argv[1]).write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""


@pytest.mark.thorough
def test_a_command_that_floods_is_searched_to_its_end_in_bounded_memory(ralph: Ralph) -> None:
    """RU-30: a hundred megabytes, of which what is looked for is the middle or the last word."""
    flood = "yes 'a line of no interest' | head -c 50000000"
    keep(
        ralph,
        coder=several(
            part("ends", external(f"{flood}; {flood}; echo NEEDLE", output_contains="NEEDLE")),
            part("middle", external(f"{flood}; echo NEEDLE; {flood}", output_not_contains="NEEDLE")),
            require_all=False,
        ),
    )
    agent, peak = ralph.script(promise("coder", MADE)), ralph.folder / "peak"
    measured = (sys.executable, "-c", MEASURED, str(peak))
    ended = ralph("work", "--agent", agent, *CODER, "-m", "1", via=measured)
    assert 0 < int(peak.read_text()) < 200_000, "kilobytes"
    sound(ralph, ended)
    found = findings(ralph, 1)
    assert not found["middle"].passed
    assert sum(path.stat().st_size for path in ralph.state_dir.rglob("*.log")) < 300 << 20


def test_a_command_that_answers_by_chance_is_asked_anew_at_the_end(ralph: Ralph) -> None:
    """FC-19: what it said of the coder's work is not what decides."""
    flaky = "echo >> ../asked; test $(wc -l < ../asked) -eq 2"  # the baseline, then a pass, and never again
    keep(ralph, coder=external(flaky), tester=external("true"))
    ended = work(ralph, promise("coder", MADE), promise("tester"), flags=(*skipped("coder", "tester"), "-m", "3"))
    sound(ralph, ended)
    assert (ended.code, verdicts(ralph)) == (1, ["Passed", "Retry", "Retry"]), ended


# Rows of older versions


def old_row(ralph: Ralph, id: str, text: str | None) -> None:
    """A task as an older version, or somebody with a database in hand, has written it."""
    database = sqlite3.connect(Path(ralph.project.store) / "ledger.db")
    with database:
        database.execute("UPDATE task SET completion_spec = ? WHERE id = ?", (text, id))
    database.close()


OLD: dict[str, str | None] = {
    "null": None,
    "no-json": "{not json",
    "a-list": "[1, 2]",
    "a-number": "3",
    "deep": "[" * 100_000,
    "empty": "",
}


@pytest.mark.parametrize("what", _some(OLD, "null", "no-json"))
def test_a_row_without_a_completion_that_can_be_read_warns_and_ends_as_claimed(ralph: Ralph, what: str) -> None:
    """DB-07, CF-28: the usual criteria hold; other tasks load, and nothing calls it verified."""
    keep(ralph, "T-1", coder=external("true"))
    keep(ralph, "T-2", coder=external("test -f made"))
    old_row(ralph, "T-1", OLD[what])
    listed = ralph("task", "list")
    assert (listed.code, [line.split()[0] for line in listed.out.splitlines()[1:]]) == (0, ["T-1", "T-2"]), listed
    agent = ralph.script([MADE, *promise("IMPLEMENTATION_COMPLETE")], promise("coder"))
    ended = ralph("work", "--agent", agent, *CODER)
    assert ended.code == 0, ended
    assert ended.out.splitlines()[-2:] == ["T-1  done, claimed", "T-2  done, verified"]
    assert "Traceback" not in ended.err
    first = ralph.runs()[-1].id
    told = [one.message for one in ralph.records(first) if isinstance(one, Noticed)]
    assert any("T-1" in message and "completion" in message for message in told), told


@pytest.mark.parametrize("text", [None, "{not json"], ids=["null", "no-json"])
def test_a_row_without_a_completion_does_not_end_by_its_word_where_a_machine_is_asked(
    ralph: Ralph, text: str | None
) -> None:
    """CF-28, DB-07"""
    ralph.settings(guardrails=[{"command": "false"}])
    keep(ralph, coder=external("true"))
    old_row(ralph, "T-1", text)
    ended = work(ralph, promise("IMPLEMENTATION_COMPLETE", MADE), flags=(*CODER, "-m", "1"))
    sound(ralph, ended)
    assert (ended.code, verdicts(ralph)) == (1, ["Retry"]), ended


SHAPES: dict[str, Any] = {
    "no-outcome": {"acceptance_criteria": ["a"]},
    "method": {**completion(), "coder": {"promise": "CODED", "verification_method": "psychic"}},
    "no-promise": {**completion(), "coder": {"verification_method": "string_match"}},
    "folder": {**completion(), "coder": {"promise": "CODED", **external("true", working_dir="../..")}},
    "tester": {**completion(), "tester": 3},
}


@pytest.mark.parametrize("what", _some(SHAPES, "method"))
def test_a_row_of_another_shape_is_left_out_by_name_and_others_are_done(ralph: Ralph, what: str) -> None:
    """DB-07, CF-25, CF-26"""
    keep(ralph, "T-1", coder=external("true"))
    keep(ralph, "T-2", coder=external("test -f made"))
    old_row(ralph, "T-1", json.dumps(SHAPES[what]))
    ended = work(ralph, promise("coder", MADE), flags=CODER)
    assert ended.code == 2, ended
    assert "Traceback" not in ended.err
    assert ended.out.splitlines()[-2].startswith("T-1  not valid: T-1: completion.")
    assert ended.out.splitlines()[-1] == "T-2  done, verified"
    assert [row.id for row in ralph.runs()] == [status(ralph, "T-2")["run"]], "the first one began nothing"
    assert ralph("task", "validate").code == 2


def test_a_row_whose_dependencies_cannot_be_read_is_named(ralph: Ralph, run: Command) -> None:
    """DB-07"""
    keep(ralph, "T-1", coder=external("true"))
    database = sqlite3.connect(Path(ralph.project.store) / "ledger.db")
    with database:
        database.execute("UPDATE task SET dependencies = '{not json'")
    database.close()
    for argv in (("task", "list"), ("task", "show", "T-1"), ("task", "validate"), ("work", "--dry-run")):
        told = run(*argv)
        assert "Traceback" not in told.err
        assert "internal error" not in told.err
        assert "the dependencies of task T-1 cannot be read" in told.err


# The command itself


def said_to_be(ralph: Ralph, word: str) -> None:
    keep(ralph, "T-1", coder=external("true"))
    with opened(ralph) as ledger:
        ledger.tasks.change("T-1", {"status": word})


def blocked(ralph: Ralph) -> None:
    said_to_be(ralph, "cancelled")
    keep(ralph, "T-2", after=("T-1",), coder=external("true"))


def nothing(ralph: Ralph) -> None:
    """No task."""


def one(ralph: Ralph) -> None:
    keep(ralph, coder=external("true"))


def over(ralph: Ralph) -> None:
    said_to_be(ralph, "done")


@pytest.mark.parametrize(
    ("there_are", "flags", "code", "said"),
    [
        case("no-task", nothing, (), 2, "there is no task yet"),
        case("unknown", one, ("T-2",), 2, "there is no task T-2; did you mean T-1? (see ralph task list)"),
        case("unknown-among", one, ("T-1", "T-9"), 2, "there is no task T-9"),
        case("blocked", blocked, (), 1, "T-2 waits for T-1 (cancelled)"),
        case("blocked-named", blocked, ("T-2",), 1, "T-2  BLOCKED"),
        case("all-done", over, (), 0, "nothing to do: every task is done"),
        case("done-named", over, ("T-1",), 0, "nothing to do: every task is done"),
        case("skip-all", one, skipped(), 2, "--skip leaves no stage; keep one"),
        case("skip-unknown", one, ("--skip", "coders"), 2, "coder"),
        case("flag", one, ("--paralel", "2"), 2, "--paralel"),
        case("parallel", one, ("--parallel", "2"), 2, "run git init"),
        case("no-iterations", one, ("-m", "0"), 2, "-m"),
        case("agent", one, ("--agent", "no-such-program-anywhere"), 2, "no-such-program-anywhere"),
    ],
)
def test_work_that_cannot_be_done_is_refused_before_anything_begins(
    ralph: Ralph, run: Command, there_are: Callable[[Ralph], None], flags: tuple[str, ...], code: int, said: str
) -> None:
    """CF-25: by the command's own words."""
    there_are(ralph)
    agent = () if "--agent" in flags else ("--agent", ralph.script([write(started="yes")]))
    ended = run("work", *flags, *agent)
    assert ended.code == code, ended
    assert said in ended.err + ended.out
    assert "Traceback" not in ended.err
    assert not (ralph.root / "started").exists()
    assert ralph.runs() == () if ralph.state_dir.exists() else True
