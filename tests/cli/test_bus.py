"""`ralph bus` as an agent in its turn and a person at a terminal use it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.base.processes import current_process
from ralphproof.engine.records import RunBegan
from ralphproof.engine.workspace import Snapshot
from ralphproof.store.message_bus import (
    SPOOL_FILE,
    TYPES,
    MessageBus,
    drain_spool,
    is_message_id,
    open_project_bus,
    open_task_bus,
)
from tests.needs import require
from tests.ralph import SOURCE, Ralph, until

ID = "20261115-210507-048213-k3f9x2ab"
# Root may write everywhere, unless it leaves this right behind.
MORTAL = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search")


@pytest.fixture
def task(ralph: Ralph) -> Path:
    """The task folder of an agent's turn."""
    made = ralph.root / ".ralph/runs/r/task"
    made.mkdir(parents=True)
    return made


def turn(task: Path) -> dict[str, str]:
    """The environment of an agent's turn."""
    return {
        "TASK_FOLDER": str(task), "RALPH_RUN_ID": "r", "RALPH_ITERATION": "3", "RALPH_PROJECT": "calc",
        "RALPH_TASK": "parser",
    }  # fmt: skip


def begun(ralph: Ralph, run: str, **facts: str) -> None:
    """Make a run known as a loop does."""
    ledger = ralph.project.ledger(read_only=False)
    ledger.begin_run(run, str(ralph.root), 1.0, current_process())
    ledger.append(run, (RunBegan(run, Snapshot(None, None), dict(facts)),))
    ledger.close()


def on(bus: MessageBus) -> list[tuple[str, str]]:
    return [(message.kind, message.body) for message in bus.messages()]


# Posting


def test_a_person_posts_to_the_project_and_gets_an_id(ralph: Ralph) -> None:
    told = ralph("bus", "post", "the parser is done")
    assert (told.code, told.err) == (0, "")
    bus = open_project_bus(str(ralph.root))
    (message,) = bus.messages()
    assert (message.id + "\n", message.kind, message.body) == (told.out, "INFO", "the parser is done")
    assert (message.run, message.iteration, message.project, message.task) == ("", None, "", "")
    assert not ralph.state_dir.exists()
    assert not list(ralph.home.rglob("*"))


def test_an_agent_posts_to_its_task_and_its_messages_say_whose_they_are(ralph: Ralph, task: Path) -> None:
    told = ralph("bus", "post", "--type", "wait_without_restart", "for the review", env=turn(task))
    assert (told.code, told.err) == (0, "")
    (message,) = open_task_bus(str(task)).messages()
    assert (message.kind, message.run, message.iteration, message.project, message.task) == (
        "WAIT", "r", 3, "calc", "parser",
    )  # fmt: skip
    assert not ralph.state_dir.exists()


def test_flags_say_more_than_the_environment(ralph: Ralph, task: Path) -> None:
    question = ralph("bus", "post", "--to", "project", "--type", "Question", "which?", env=turn(task)).out.strip()
    flags = ("--reply-to", question, "--reply-to", ID, "--project", "other", "--task", "", "--to=project")
    told = ralph("bus", "post", *flags, "--type=answer", "--json", "this", env=turn(task)).json
    bus = open_project_bus(str(ralph.root))
    assert (told["v"], told["type"], told["kind"], told["body"]) == (1, "message", "ANSWER", "this")
    assert (told["parents"], told["project"], told["task"], told["run"]) == ([question, ID], "other", None, "r")
    assert (told["path"], told["spooled"]) == (bus.path, False)
    assert [message.id for message in bus.messages()] == [question, told["id"]]
    assert list(task.iterdir()) == []


def test_standard_input_is_posted_whole(ralph: Ralph) -> None:
    assert ralph("bus", "post", "--type", "decision", "-", stdin="\none\n\n> two\n### INFO x\n\n").code == 0
    assert on(open_project_bus(str(ralph.root))) == [("DECISION", "one\n\n> two\n### INFO x")]


def test_a_text_may_look_like_a_flag(ralph: Ralph) -> None:
    assert ralph("bus", "post", "--", "--type").code == 0
    assert on(open_project_bus(str(ralph.root))) == [("INFO", "--type")]


def test_secrets_of_the_environment_are_masked(ralph: Ralph) -> None:
    ralph("bus", "post", "it is hunter22-hunter22", "--task", "hunter22-hunter22", env={"API_KEY": "hunter22-hunter22"})
    (message,) = open_project_bus(str(ralph.root)).messages()
    assert (message.body, message.task) == ("it is ***", "***")


def test_the_project_is_found_from_below(ralph: Ralph) -> None:
    ralph.commit()
    (ralph.root / "deep/er").mkdir(parents=True)
    assert ralph("bus", "post", "x", cwd=ralph.root / "deep/er").code == 0
    assert ralph("bus", "post", "y", "-d", str(ralph.root), cwd=ralph.folder).code == 0
    assert on(open_project_bus(str(ralph.root))) == [("INFO", "x"), ("INFO", "y")]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "required"),
        (["psot", "x"], "invalid choice"),
        (["post"], "no message; use: ralph bus post TEXT"),
        (["post", ""], "a message needs a text"),
        (["post", "a", "b"], "unknown argument b"),
        (["post", "--tpye", "INFO", "x"], "did you mean --type?"),
        (["post", "--type", "shout", "x"], f"'shout' is no type of message; there are: {', '.join(TYPES)}"),
        (["post", "--type", "info", "--type", "fact", "x"], "a message has one type"),
        (["post", "--reply-to", "7", "x"], "'7' is no message id"),
        (["post", "--to", "all", "x"], "invalid choice"),
        (["post", "--to", "task", "x"], "which task? name its run with --run"),
        (["post", "--run", "nope", "x"], "no run is called 'nope'"),
        (["post", "--task-folder", "nowhere", "x"], "nowhere is not a directory"),
        (["post", "--run", "r", "--task-folder", ".", "x"], "not allowed with"),
        (["post", "--since", ID, "x"], "--since does not go with ralph bus post"),
        (["post", "-n", "3", "x"], "-n does not go with ralph bus post"),
        (["post", "--from", "task", "x"], "--from does not go with ralph bus post"),
        (["post", "-d", "nowhere", "x"], "nowhere is not a directory"),
        (["post", "x" * 65537], "a message holds at most 65536 bytes, and this has 65537"),
        (["read", "x"], "ralph bus read takes no text"),
        (["read", "--to", "task"], "--to does not go with ralph bus read"),
        (["follow", "--reply-to", ID], "--reply-to does not go with ralph bus follow"),
        (["read", "-n", "0"], "not a whole number above zero"),
        (["read", "--since", "x"], "'x' is no message id"),
        (["read", "--since", ID], f"no message on .*PROJECT-MESSAGE-BUS.md has the id '{ID}'"),
        (["follow", "--since", ID], f"no message on .*PROJECT-MESSAGE-BUS.md has the id '{ID}'"),
        (["read", "--from", "task"], "which task?"),
    ],
)
def test_a_slip_is_refused_in_one_line(ralph: Ralph, argv: list[str], message: str) -> None:
    told = ralph("bus", *argv)
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)
    assert message.replace(".*", f"{ralph.root}/.ralph/bus/") in told.err
    assert list(ralph.root.iterdir()) == []


def test_more_than_a_message_holds_is_refused_while_it_is_read(ralph: Ralph) -> None:
    told = ralph("bus", "post", "-", stdin="x" * 5_000_000)
    assert (told.code, told.err) == (
        2, "ralph: a message has at most 65536 bytes; standard input has more\n",
    )  # fmt: skip


# Which task


def test_a_run_is_named_and_its_task_folder_is_the_one_on_record(ralph: Ralph, task: Path) -> None:
    own = ralph.folder / "own"
    own.mkdir()
    begun(ralph, "20261115-100000-aaaa", taskFolder=str(own))
    begun(ralph, "r")
    assert ralph("bus", "post", "--run", "20261115", "one").code == 0
    assert ralph("bus", "post", "--run", "latest", "two").code == 0
    assert ralph("bus", "post", "--task-folder", str(own), "three").code == 0
    assert [(message.body, message.run) for message in open_task_bus(str(own)).messages()] == [
        ("one", "20261115-100000-aaaa"), ("three", ""),
    ]  # fmt: skip
    assert on(open_task_bus(str(task))) == [("INFO", "two")]
    assert "one" in ralph("bus", "read", "--run", "20261115").out


def test_a_run_on_the_projects_bus_means_its_messages(ralph: Ralph) -> None:
    begun(ralph, "r")
    ralph("bus", "post", "--to", "project", "--run", "r", "ours")
    ralph("bus", "post", "theirs")
    assert ralph("bus", "read", "--from", "project", "--run", "r", "--json").json["messages"][0]["body"] == "ours"
    assert len(ralph("bus", "read", "--from", "project", "--run", "r", "--json").json["messages"]) == 1


def test_an_agent_that_posts_to_another_run_does_not_speak_for_it(ralph: Ralph, task: Path) -> None:
    """Else it could let that one wait."""
    begun(ralph, "other", taskFolder=str(ralph.folder))
    assert ralph("bus", "post", "--run", "other", "--type", "wait", "x", env=turn(task)).code == 0
    (message,) = open_task_bus(str(ralph.folder)).messages()
    assert (message.run, message.iteration) == ("r", 3)


def test_a_run_without_a_task_folder_has_an_empty_bus_that_takes_nothing(ralph: Ralph) -> None:
    begun(ralph, "r")
    assert ralph("bus", "read", "--run", "r").out == ""
    told = ralph("bus", "post", "--run", "r", "x")
    assert (told.code, told.err) == (2, f"ralph: {ralph.root}/.ralph/runs/r/task is not there\n")


# Where the project may not be written


def test_what_the_sandbox_refuses_is_kept_and_passed_on_later(ralph: Ralph, task: Path) -> None:
    via = MORTAL if os.geteuid() == 0 else ()
    require(not via or shutil.which("setpriv") is not None, "only setpriv makes root obey permissions")
    bus = ralph.root / ".ralph/bus"
    bus.mkdir()
    bus.chmod(0o500)
    try:
        told = ralph("bus", "post", "--to", "project", "--type", "question", "which?", env=turn(task), via=via)
        assert told.code == 0
        where = f"the run will forward the message from {task / SPOOL_FILE}"
        assert told.err == f"ralph: the project's bus cannot be written from here; {where}\n"
        assert ralph("bus", "post", "--to=project", "--json", "x", env=turn(task), via=via).json["spooled"] is True
        refused = ralph("bus", "post", "x", via=via)
        assert (refused.code, len(refused.err.splitlines())) == (2, 1)
        assert "cannot write" in refused.err
    finally:
        bus.chmod(0o700)
    found = open_project_bus(str(ralph.root))
    assert on(found) == []
    assert drain_spool(str(task), found).posted == 2
    assert next(iter(found.messages())).id == told.out.strip()
    assert on(found) == [("QUESTION", "which?"), ("INFO", "x")]


# Reading


def test_messages_are_read_oldest_first_and_clean(ralph: Ralph) -> None:
    bus = open_project_bus(str(ralph.root))
    first = bus.post("QUESTION", "which?\nsay", run="r", iteration=2, project="calc", task="t")
    second = bus.post("ANSWER", "this", parents=[first.id])
    with open(bus.path, "ab") as file:
        file.write(
            f"### INFO {ID} <!-- lines=2 bytes=21 run=%1B]0;x -->\n> \x1b[2Jclear\x1b]0;t\n> \x07 end\0\n".encode()
        )
        file.write(b"foreign\n")
    told = ralph("bus", "read")
    assert told.out == (
        f"QUESTION {first.id}  (run r, iteration 2, project calc, task t)\n    which?\n    say\n\n"
        f"ANSWER {second.id}  (answers {first.id})\n    this\n\n"
        f"INFO {ID}  (run 0;x)\n    clear end\n\n"
    )
    assert told.err == f"ralph: {bus.path}: skipped 1 lines that belong to no complete message\n"
    assert ralph("bus", "read", "-q").err == ""


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], "abcd"),
        (["-n", "2"], "cd"),
        (["-n", "9"], "abcd"),
        (["--type", "warning"], "b"),
        (["--type", "WARNING", "--type", "wait_without_restart"], "bd"),
        (["--type", "fact", "-n1"], "c"),
        (["--project", "calc"], "ac"),
        (["--project", "calc", "--task", "t"], "c"),
        (["--task", ""], "abd"),
        (["--since", "FIRST"], "bcd"),
        (["--since", "FIRST", "-n", "1", "--project", "calc"], "c"),
    ],
)
def test_what_is_wanted_can_be_said(ralph: Ralph, argv: list[str], expected: str) -> None:
    bus = open_project_bus(str(ralph.root))
    first = bus.post("INFO", "a", project="calc")
    bus.post("WARNING", "b")
    bus.post("FACT", "c", project="calc", task="t")
    bus.post("WAIT", "d")
    told = ralph("bus", "read", "--json", *(first.id if word == "FIRST" else word for word in argv))
    assert "".join(message["body"] for message in told.json["messages"]) == expected


def test_a_bus_for_programs(ralph: Ralph) -> None:
    bus = open_project_bus(str(ralph.root))
    assert ralph("bus", "read", "--json").json == {
        "v": 1, "type": "bus", "path": bus.path, "messages": [], "skipped": 0,
    }  # fmt: skip
    message = bus.post("INFO", "a\0b ☃")
    with open(bus.path, "ab") as file:
        file.write(b"foreign\n")
    told = ralph("bus", "read", "--json").json
    assert (told["messages"], told["skipped"]) == ([{"v": 1, "type": "message", **message.published()}], 1)


def test_reading_makes_nothing(ralph: Ralph) -> None:
    assert (ralph("bus", "read").out, ralph("bus", "read").code) == ("", 0)
    assert list(ralph.root.iterdir()) == []


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("argv", [["post", "x"], ["read"], ["follow"]], ids=" ".join)
def test_whatever_stands_in_its_place_is_refused_at_once(
    ralph: Ralph, task: Path, put: Callable[[Path], object], argv: list[str]
) -> None:
    put(task / "TASK-MESSAGE-BUS.md")
    told = ralph("bus", *argv, env=turn(task), timeout_s=20)
    assert (told.code, told.out) == (2, "")
    assert told.err == f"ralph: {task}/TASK-MESSAGE-BUS.md is not a file; move it away\n"


# Following


def test_following_shows_what_comes_until_ctrl_c_which_is_its_normal_end(ralph: Ralph) -> None:
    bus = open_project_bus(str(ralph.root))
    live = ralph.start("bus", "follow", "--json", "--project", "calc")
    out = ralph.folder / "live-0.out"
    posted = []
    for word in ("one", "two"):
        bus.post("INFO", "another's")
        posted.append(bus.post("INFO", word, project="calc").published())
        until(lambda word=word: f'"{word}"' in out.read_text(), word)  # type: ignore[misc]
    live.process.send_signal(signal.SIGINT)
    told = live.end()
    assert (told.code, told.err) == (0, "")
    assert told.lines == [{"v": 1, "type": "message", **message} for message in posted]


def test_following_begins_with_the_last_ones(ralph: Ralph) -> None:
    bus = open_project_bus(str(ralph.root))
    for word in ("one", "two", "three"):
        bus.post("INFO", word)
    live = ralph.start("bus", "follow", "-n", "1")
    out = ralph.folder / "live-0.out"
    until(lambda: "three" in out.read_text(), "three")
    bus.post("INFO", "four")
    until(lambda: "four" in out.read_text(), "four")
    live.process.send_signal(signal.SIGINT)
    assert [line.strip() for line in live.end().out.splitlines() if line.startswith(" ")] == ["three", "four"]


# The cost of a post


def test_a_post_loads_neither_the_ledger_nor_what_else_is_slow(ralph: Ralph, task: Path) -> None:
    program = (
        "import sys; from ralphproof.cli.dispatch import dispatch; dispatch(['bus', 'post', 'x']); print(*sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(SOURCE)!r}); {program}"],
        env=ralph.env | turn(task), cwd=ralph.root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    id, loaded = ran.stdout.splitlines()
    assert is_message_id(id)
    slow = {"sqlite3", "json", "subprocess", "typing", "dataclasses", "pathlib", "shutil", "tempfile", "logging"}
    assert (
        set(loaded.split())
        & (slow | {"ralphproof.engine.environment", "ralphproof.store.ledger", "ralphproof.engine.records"})
        == set()
    )


def test_json_errors_are_json(ralph: Ralph) -> None:
    told = ralph("bus", "post", "--json", "")
    assert json.loads(told.out)["exitCode"] == 2
