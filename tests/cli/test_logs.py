from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.ralph import PROGRAM, Live, Ralph, done, say, until, write

EVIL = "\x1b]0;owned\x07\x1b[2Jred \x1b[31mletters\x1b[0m\r"


def finished(ralph: Ralph) -> str:
    ralph.write({"check.sh": f"printf '%s\\n' 'looking {EVIL}'; test -f made"})
    ralph.commit()
    agent = ralph.script(
        [say(f"first {EVIL}"), {"stderr": "a complaint"}, {"tool": {"name": "Edit", "summary": "made"}}, done()],
        [write(made="yes"), say("second"), done()],
    )
    assert ralph("run", "-p", "make it so", "--agent", agent, "--check", "sh check.sh", "--check", "true").code == 0
    return ralph.runs()[0].id


def kept(ralph: Ralph) -> Path:
    """Where the latest run's logs lie, out of the agent's reach."""
    return Path(ralph.project.store) / "runs" / ralph.runs()[0].id


def headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("==> ")]


def test_everything_is_shown_in_order_and_clean(ralph: Ralph) -> None:
    finished(ralph)
    told = ralph("logs")
    assert told.code == 0
    assert headings(told.out) == [
        "==> before the first iteration, check: guardrail_000_sh_check_sh.log <==",
        "==> before the first iteration, check: guardrail_000_true.log <==",
        "==> iteration 1, agent: agent_001.ndjson <==",
        "==> iteration 1, check: guardrail_001_sh_check_sh.log <==",
        "==> iteration 1, check: guardrail_001_true.log <==",
        "==> iteration 2, agent: agent_002.ndjson <==",
        "==> iteration 2, check: guardrail_002_sh_check_sh.log <==",
        "==> iteration 2, check: guardrail_002_true.log <==",
    ]
    assert "first red letters" in told.out
    assert "looking red letters" in told.out
    assert "> Edit made" in told.out
    assert "\x1b" not in told.out
    assert "owned" not in told.out


@pytest.mark.parametrize(
    ("argv", "there", "missing"),
    [
        (["--iteration", "2"], "second", "first"),
        (["--iteration", "0"], "looking", "==> iteration"),
        (["--iteration", "1"], "looking", "==> before"),
        (["--agent"], "second", "looking"),
        (["--checks"], "looking", "second"),
        (["--stderr"], "a complaint", "second"),
        (["--prompt"], "make it so", "second"),
        (["--agent", "--stderr", "--iteration", "1"], "a complaint", "second"),
        (["latest", "--raw", "--agent", "--iteration", "1"], '{"is": "Started"', "==>"),
        (["--raw", "--checks", "--iteration", "1"], "\x1b[2J", "==>"),
    ],
)
def test_parts_can_be_chosen(ralph: Ralph, argv: list[str], there: str, missing: str) -> None:
    finished(ralph)
    told = ralph("logs", *argv)
    assert told.code == 0
    assert there in told.out
    assert missing not in told.out


def test_logs_for_programs(ralph: Ralph) -> None:
    run = finished(ralph)
    told = ralph("logs", "--json", "--checks", "--iteration", "1").json
    assert (told["v"], told["type"], told["run"]) == (1, "logs", run)
    first = told["logs"][0]
    assert (first["iteration"], first["kind"], first["truncated"]) == (1, "guardrail", False)
    assert first["text"].startswith("looking ")
    assert ralph("logs", "--json", "-f").code == 2


def test_a_plain_program_prints_as_it_is(ralph: Ralph) -> None:
    program = ralph.program("tool", 'echo \'{"is": "Said", "text": "json"}\'; echo "<response>DONE</response>"')
    assert ralph("run", "-p", "x", "--agent", str(program)).code == 0
    assert '{"is": "Said", "text": "json"}\n' in ralph("logs").out


def test_what_the_copies_in_the_project_say_does_not_count(ralph: Ralph) -> None:
    finished(ralph)
    told = ralph("logs", "--stderr", "--agent", "--checks").out
    (ralph.run_folder() / "agent_001.ndjson").write_text("forged")
    assert ralph("logs", "--stderr", "--agent", "--checks").out == told
    shutil.rmtree(ralph.root / ".ralph")
    assert ralph("logs", "--stderr", "--agent", "--checks").out == told


def test_where_only_the_copies_are_left_they_are_read(ralph: Ralph) -> None:
    finished(ralph)
    told = ralph("logs").out
    for path in [*kept(ralph).glob("*.ndjson"), *kept(ralph).glob("*.log")]:
        path.unlink()
    assert ralph("logs").out == told


@pytest.mark.parametrize("in_project", [True, False])
def test_something_else_in_a_logs_place_is_not_read(ralph: Ralph, in_project: bool) -> None:
    finished(ralph)
    for name in ("agent_001.ndjson", "guardrail_001_true.log"):
        (kept(ralph) / name).unlink()
        (ralph.run_folder() / name).unlink()
    folder = ralph.run_folder() if in_project else kept(ralph)
    (folder / "agent_001.ndjson").symlink_to(ralph.root / "check.sh")
    os.mkfifo(folder / "guardrail_001_true.log")
    told = ralph("logs", "--iteration", "1")
    assert told.code == 0
    assert "printf" not in told.out


def test_following_shows_output_as_it_comes_and_ends_with_the_run(ralph: Ralph) -> None:
    ralph.commit()
    agent = ralph.script([say("early"), {"until": "go"}, say("late"), {"write": {"x": "y"}}, done()])
    live = ralph.start("run", "-p", "x", "--agent", agent, "--check", "echo checked")
    until(lambda: "early" in ralph("logs").out if ralph.runs() else False, "the agent has spoken")
    reader = ralph.start("logs", "-f")
    until(lambda: "early" in (ralph.folder / "live-1.out").read_text(), "early")
    assert "late" not in (ralph.folder / "live-1.out").read_text()
    (ralph.root / "go").touch()
    assert live.end().code == 0
    told = reader.end()
    assert told.code == 0
    assert told.out == ralph("logs").out
    assert [line.split(":")[0] for line in headings(told.out)] == [
        "==> before the first iteration, check", "==> iteration 1, agent", "==> iteration 1, check",
    ]  # fmt: skip
    before, turn, after = (told.out.index(line) for line in headings(told.out))
    assert before < told.out.index("\nchecked\n") < turn
    assert turn < told.out.index("early") < told.out.index("late") < after < told.out.rindex("\nchecked\n")


def test_following_standard_error_waits_for_the_same_turn(ralph: Ralph) -> None:
    ralph.commit()
    agent = ralph.script([say("early"), {"until": "go"}, say("late"), {"stderr": "oops"}, done()])
    live = ralph.start("run", "-p", "x", "--agent", agent)
    until(lambda: ralph.runs() and "early" in ralph("logs").out, "the agent has spoken")
    reader = ralph.start("logs", "-f", "--agent", "--stderr", "--prompt")
    until(lambda: "early" in (ralph.folder / "live-1.out").read_text(), "early")
    (ralph.root / "go").touch()
    assert live.end().code == 0
    told = reader.end().out
    assert told.index("early") < told.index("late") < told.index("oops")


@pytest.mark.parametrize("closed_by", ["cancel", "the next run"])
def test_the_logs_of_a_run_whose_harness_died_are_for_people_when_it_is_closed(ralph: Ralph, closed_by: str) -> None:
    agent = ralph.script([say("early"), {"until": "go"}, say("late"), done()])
    live = ralph.start("run", "-p", "x", "--agent", agent)
    until(lambda: ralph.runs() and "early" in ralph("logs").out, "the agent has spoken")
    log = ralph.run_folder(ralph.runs()[0].id) / "agent_001.ndjson"
    live.close()
    assert not log.exists()
    (ralph.root / "go").touch()
    until(lambda: "late" in ralph("logs").out, "the keeper goes on without it")
    run = ("run", "-p", "x", "--agent", ralph.script([done()], name="next"))
    until(lambda: ralph(*(("cancel",) if closed_by == "cancel" else run)).code == 0, "it is closed")
    assert log.read_bytes() == (kept(ralph).parent / log.parent.name / log.name).read_bytes()
    assert b"late" in log.read_bytes()


def at_once(ralph: Ralph) -> Live:
    """A run of which two checks are being asked at the same time; each speaks, and waits for a word to speak again."""
    check = "test -f work || exit 1; echo {} early; while ! test -f go; do sleep 0.02; done; echo {} late"
    parts = [
        {"name": name, "method": "external", "config": {"command": check.format(name, name)}} for name in ("one", "two")
    ]
    ralph.settings(guardrails=[{"name": "both", "method": "multi_stage", "config": {"stages": parts}}])
    live = ralph.start("run", "-p", "x", "--agent", ralph.script([write(work="done"), done()]))
    until(lambda: ralph.runs() and ralph("logs").out.count(" early\n") == 2, "both have spoken")
    return live


def test_following_shows_all_of_several_commands_that_run_at_once(ralph: Ralph) -> None:
    live = at_once(ralph)
    reader = ralph.start("logs", "-f", "--checks", "--iteration", "1")
    until(lambda: " early\n" in (ralph.folder / "live-1.out").read_text(), "one is shown")
    (ralph.root / "go").touch()
    assert live.end().code == 0
    told, there = reader.end().out, ralph("logs", "--checks", "--iteration", "1").out
    assert sorted(told.split("==> ")) == sorted(there.split("==> "))
    assert told.count(" late\n") == 2


def test_the_logs_of_commands_that_ran_at_once_when_the_harness_died_are_all_for_people(ralph: Ralph) -> None:
    at_once(ralph).close()
    (ralph.root / "go").touch()
    until(lambda: ralph("logs").out.count(" late\n") == 2, "the keepers go on without it")
    until(lambda: ralph("cancel").code == 0, "it is closed")
    shown = ralph.run_folder(ralph.runs()[0].id).glob("guardrail_001_*.log")
    assert sorted(log.read_text() for log in shown) == ["one early\none late\n", "two early\ntwo late\n"]


def test_following_ends_on_ctrl_c(ralph: Ralph) -> None:
    ralph.commit()
    ralph.start("run", "-p", "x", "--agent", ralph.script([say("early"), {"until": "go"}, done()]))
    until(lambda: ralph.runs() and "early" in ralph("logs").out, "the agent has spoken")
    at = Terminal(ralph, "logs", "-f")
    at.expect("early")
    at.type("\x03")
    assert at.end() == 130
    assert "Traceback" not in at.shown


def test_a_large_log_is_read_in_little_memory(ralph: Ralph) -> None:
    finished(ralph)
    log = kept(ralph) / "guardrail_001_true.log"
    size = 600 << 20
    with log.open("wb") as file:
        file.truncate(size)  # a hole: it costs no disk
    limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))"
    run = f"{limit}; sys.argv[0] = 'ralph'; runpy.run_module('ralphproof', run_name='__main__')"
    process = subprocess.run(
        [PROGRAM[0], "-c", run, "logs", "-q", "--checks", "--raw"],
        cwd=ralph.root,
        env=ralph.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert (process.returncode, process.stderr) == (0, b"")
    listed = ralph("logs", "--json", "--checks").json["logs"]
    assert [item["bytes"] for item in listed if item["path"] == str(log)] == [size]


def test_a_reader_that_leaves_is_no_error(ralph: Ralph) -> None:
    finished(ralph)
    log = kept(ralph) / "guardrail_001_true.log"
    log.write_text("a line\n" * 200_000)
    command = f"{' '.join(PROGRAM)} logs -q | head -1"
    told = subprocess.run(["/bin/sh", "-c", command], cwd=ralph.root, env=ralph.env, capture_output=True, text=True)
    first = "==> before the first iteration, check: guardrail_000_sh_check_sh.log <==\n"
    assert (told.stdout, told.stderr) == (first, "")


@pytest.mark.parametrize("argv", [["--iteration", "77"], ["--iteration", "77", "--json"], ["--iteration", "77", "-f"]])
def test_an_iteration_that_was_never_begun_is_said_in_one_line(ralph: Ralph, argv: list[str]) -> None:
    run = finished(ralph)
    told = ralph("logs", run, *argv)
    assert (told.code, told.err) == (2, f"ralph: run {run} has no iteration 77; there are: 1 to 2\n")


def test_a_run_without_checks_has_nothing_before_its_first_iteration(ralph: Ralph) -> None:
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    told = ralph("logs", "-q", "--iteration", "0")
    assert (told.code, told.err) == (2, f"ralph: run {ralph.runs()[0].id} has no iteration 0; there are: 1 to 1\n")


def test_the_checks_before_the_first_iteration_can_be_followed(ralph: Ralph) -> None:
    check = "echo looking; while ! test -f go; do sleep 0.05; done; echo seen"
    live = ralph.start("run", "-p", "x", "--agent", ralph.script([done()]), "--check", check)
    until(lambda: ralph.runs() and "\nlooking\n" in ralph("logs", "--iteration", "0").out, "the check looks")
    reader = ralph.start("logs", "-f", "--iteration", "0")
    until(lambda: "\nlooking\n" in (ralph.folder / "live-1.out").read_text(), "looking")
    (ralph.root / "go").touch()
    assert live.end().code == 0
    told = reader.end()
    assert (told.code, told.out) == (0, ralph("logs", "--iteration", "0").out)
    assert told.out.endswith("<==\nlooking\nseen\n\n")
