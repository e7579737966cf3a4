"""The user's own commands around a run and its iterations: settings `on`."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.tasking import NEEDED
from tests.ralph import Ralph, done, say, until, write

TOLD = 'echo "$RALPH_HOOK $RALPH_ITERATION/$RALPH_MAX_ITERATIONS ${RALPH_VERDICT-}${RALPH_OUTCOME-} ${RALPH_REASON-}"'


@pytest.fixture
def seen(ralph: Ralph) -> Path:
    """A file beside the project that hooks write to."""
    return ralph.folder / "seen"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def hooks_of(ralph: Ralph) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ralph("status", "--json").json["hooks"]
    return found


def test_hooks_run_around_a_run_and_its_iterations_and_are_told_where_it_stands(ralph: Ralph, seen: Path) -> None:
    tell = f"{TOLD} >> {seen}"
    ralph.settings(on={
        "beforeRun": [tell, "echo second; test -d $RALPH_RUN_DIR && test $RALPH_PROJECT_DIR = $PWD"],
        "beforeIteration": tell, "afterIteration": tell, "afterRun": f"{tell}; exit 3",
    })  # fmt: skip
    ralph.commit()
    agent = ralph.script([done()], [write(yes="1"), done()])
    asked = ("run", "-p", "x", "--agent", agent, "--check", f"echo check >> {seen}; test -f yes", "-m", "3")
    dry = ralph(*asked, "--dry-run", "--json").json
    assert [*dry["on"]] == ["beforeRun", "beforeIteration", "afterIteration", "afterRun"]
    assert lines(seen) == []
    ended = ralph(*asked, "--json")
    assert ended.code == 0, ended.err
    assert lines(seen) == [
        "beforeRun 0/3  ", "check",
        "beforeIteration 1/3  ", "check", "afterIteration 1/3 retry ",
        "beforeIteration 2/3  ", "check", "afterIteration 2/3 passed ",
        "afterRun 2/3 COMPLETED ",
    ]  # fmt: skip
    kinds = [line["type"] for line in ended.lines]
    assert kinds.count("hook.started") == kinds.count("hook.ended") == 7
    assert kinds[-1] == "run.ended"
    told = hooks_of(ralph)
    assert [(one["name"], one["passed"], one["exitCode"]) for one in told][-1] == ("afterRun", False, 3)
    assert (ralph.root / told[1]["log"]).read_text() == "second\n"
    assert "second" in ralph("logs", "--iteration", "0").out


@pytest.mark.parametrize(
    ("hook", "iterations"), [("beforeRun", 0), ("beforeIteration", 0)]
)  # fmt: skip
def test_a_failing_hook_before_blocks_the_run_until_it_is_mended(
    ralph: Ralph, seen: Path, hook: str, iterations: int
) -> None:
    ralph.settings(
        on={hook: ["true", "no-such-program --now", f"echo never >> {seen}"], "afterRun": f"{TOLD} >> {seen}"}
    )
    ralph.commit()
    agent = ralph.script([write(yes="1"), done()])
    ended = ralph("run", "-p", "x", "--agent", agent, "--check", "test -f yes")
    assert ended.code == 1
    outcome = ralph.outcome()
    message = outcome["details"]["message"]
    assert (outcome["reason"], outcome["iterations"]) == ("BLOCKED", iterations)
    assert message.startswith(f"{hook} failed with exit code 127 ")
    assert "no-such-program --now" in message
    assert "not found" in message
    assert (ralph.root / message.rpartition("log: ")[2]).exists()
    assert lines(seen) == ["afterRun 0/10 ABORTED BLOCKED"]
    assert hook in ralph("status").out
    ralph.program("no-such-program", "exit 0")
    assert ralph("run", "--resume").code == 0
    assert lines(seen)[1:] == ["never", "afterRun 1/10 COMPLETED "]


def test_what_a_hook_changes_is_no_work_of_the_agents(ralph: Ralph) -> None:
    ralph.settings(
        on={"beforeIteration": "date +%N > theirs", "afterIteration": "date +%N > after"},
        limits={"stallIterations": 2}, scm={"command": "git", "tasks": ["commit"]},
    )  # fmt: skip
    ralph.commit()
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")
    agent = ralph.script([write(mine="1")], [say("hm")], message=[say("one")])
    ended = ralph("run", "-p", "x", "--agent", agent, "--check", "true")
    assert ended.code == 1
    assert (ralph.outcome()["reason"], ralph.outcome()["iterations"]) == ("STALL", 3)
    assert ralph.git("show", "--name-only", "--format=", "HEAD").split() == ["mine"]
    assert [one["files"] for one in hooks_of(ralph)][:2] == [["theirs"], ["after"]]


def test_a_hook_cannot_launder_what_an_agent_does_to_its_checks(ralph: Ralph) -> None:
    ralph.write({"test.sh": "test -f yes\n", "tidy.sh": "true\n"})
    ralph.settings(on={"beforeIteration": "sh tidy.sh", "afterRun": "touch after"})
    ralph.commit()
    agent = ralph.script([write(tidy__sh="echo true > test.sh\n")], [done()])
    ended = ralph("run", "-p", "x", "--agent", agent, "--check", "sh test.sh")
    assert (ended.code, ralph.outcome()["reason"]) == (1, "CHECKS_WEAKENED")
    assert not (ralph.root / "after").exists()
    assert "afterRun is not run after CHECKS_WEAKENED" in ended.err


def test_ctrl_c_ends_a_hook_with_all_that_it_started_and_it_runs_again_on_resume(ralph: Ralph, seen: Path) -> None:
    pid = ralph.folder / "pid"
    ralph.settings(shutdownGraceSeconds=0, on={
        "beforeRun": f"echo began >> {seen}; sleep 1000 & echo $! > {pid}; wait",
            "afterRun": "sleep 1000",
    })  # fmt: skip
    ralph.commit()
    live = ralph.start("run", "-p", "x", "--agent", ralph.script([done()]), "--no-stream-agent-output")
    until(lambda: lines(pid), "the hook began")
    os.kill(live.process.pid, signal.SIGINT)
    ended = live.end()
    assert (ended.code, ralph.outcome()["reason"]) == (130, "INTERRUPTED")
    assert ralph.processes(ralph.runs()[0].id) == []
    first = int(lines(pid)[0])
    assert not os.path.exists(f"/proc/{first}")
    ralph.settings(on={"beforeRun": f"echo began >> {seen}; sleep 1000 & echo $! > {pid}"})
    assert ralph("run", "--resume").code == 0
    assert lines(seen) == ["began", "began"]
    assert not os.path.exists(f"/proc/{lines(pid)[0]}")  # a daemon is ended with its hook


def test_after_a_crash_no_hook_runs_twice(ralph: Ralph, seen: Path) -> None:
    wait = "while ! test -f ../go; do sleep 0.05; done"
    ralph.settings(on={
        "beforeRun": f"echo run >> {seen}", "beforeIteration": f"echo iteration >> {seen}; {wait}",
    })  # fmt: skip
    ralph.commit()
    live = ralph.start("run", "-p", "x", "--agent", ralph.script([write(yes="1"), done()]), "--check", "test -f yes")
    until(lambda: len(lines(seen)) == 2, "the second hook began")
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    assert "beforeIteration" in ralph("status").out
    (ralph.folder / "go").touch()
    ended = ralph("run", "--resume")
    assert ended.code == 0, ended.err
    assert lines(seen) == ["run", "iteration"]
    assert [one["passed"] for one in hooks_of(ralph)] == [True, True]


@pytest.mark.thorough
def test_a_kill_after_any_record_repeats_no_hook_and_leaves_none_out(tmp_path: Path) -> None:
    wanted = [
        "beforeRun 0",
        "beforeIteration 1",
        "afterIteration 1",
        "beforeIteration 2",
        "afterIteration 2",
        "afterRun 2",
    ]
    number = 0
    while True:
        number += 1
        ralph = Ralph(tmp_path / str(number))
        try:
            seen, log = ralph.folder / "seen", ralph.folder / "log"
            tell = f'echo "$RALPH_HOOK $RALPH_ITERATION" >> {seen}; echo x > $RALPH_HOOK'
            ralph.settings(on=dict.fromkeys(("beforeRun", "beforeIteration", "afterIteration", "afterRun"), tell))
            ralph.commit()
            agent = ralph.script([say("-")], [write(yes="1"), done()])
            words = ("run", "-p", "x", "--agent", agent, "--check", "test -f yes")
            ended = ralph(*words, dies=(str(log), "records", str(number)))
            if ended.code == 0:
                assert number > 10
                return
            died = log.read_text().splitlines()[-1]
            assert ended.code == -signal.SIGKILL, died
            assert "RunEnded" in died or ralph("run", "--resume").code == 0, died
            assert lines(seen) == wanted, died
            assert [one["files"] for one in hooks_of(ralph)][:2] == [["beforeRun"], ["beforeIteration"]], died
        finally:
            ralph.close()


def test_every_kind_of_loop_runs_them_and_planning_does_not(ralph: Ralph, seen: Path) -> None:
    ralph.settings(on={"beforeRun": f"{TOLD} >> {seen}"})
    ralph.commit()
    assert ralph("supervise", "--", "sh", "-c", 'touch "$TASK_FOLDER/DONE"').code == 0
    assert len(lines(seen)) == 1
    assert ralph("task", "create", "T1", "S1", "a task", *NEEDED).code == 0
    ralph("work", "--agent", ralph.script([say("no")]), "-m", "1", "--check", "true")
    assert len(lines(seen)) == 2
    drafted = ralph("task", "generate", "make it fast", "--agent", ralph.script([say("no")]), "-m", "1")
    assert (drafted.code, len(lines(seen))) == (1, 2)
