from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ralphproof.base.value import replace
from ralphproof.display import phrases
from ralphproof.views.published_json import epoch_seconds
from tests.cli.tasking import completed, worked
from tests.ralph import Ralph, done, say, until, write


def finished(ralph: Ralph) -> str:
    """A run of two iterations: a refused claim, then the work."""
    ralph.write({"check.sh": "test -f made"})
    ralph.commit()
    agent = ralph.script([say("\x1b]0;title\x07trying"), done()], [write(made="yes"), done()])
    assert ralph("run", "-p", "make it so", "--agent", agent, "--check", "sh check.sh").code == 0
    return ralph.runs()[0].id


def begun(ralph: Ralph) -> str:
    """A run whose agent works until the file `go` is there."""
    ralph.commit()
    agent = ralph.script([write(started="yes"), {"until": "go"}, done()])
    ralph.start("run", "-p", "wait", "--agent", agent)
    until(lambda: (ralph.root / "started").exists(), "the agent is at work")
    return ralph.runs()[0].id


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    """Each file below a folder, SQLite's shared memory aside, with its size and time."""
    found = {}
    for path in folder.rglob("*"):
        if not path.name.endswith(("-shm", "-wal")) and not path.is_symlink():
            found[str(path)] = (path.stat().st_size, path.stat().st_mtime_ns) if path.is_file() else (0, 0)
    return found


def test_a_finished_run_is_told_with_its_iterations(ralph: Ralph) -> None:
    run = finished(ralph)
    told = ralph("status")
    assert told.code == 0
    lines = told.out.splitlines()
    assert lines[0] == f"run {run} has ended"
    assert lines[1].startswith("COMPLETED, verified by its checks: 2 iterations")
    assert lines[3].split() == ["#", "agent", "files", "checks", "verdict", "time"]
    assert lines[4].split()[:8] == ["1", "ended", "0", "0", "passed,", "1", "failed", "not"]
    assert lines[5].split()[:6] == ["2", "ended", "1", "1", "passed", "done"]
    assert "sandbox none, at most 10 iterations" in told.out
    assert "checks: sh check.sh" in told.out
    assert "before the first iteration: 0 of 1 check passed" in lines


def test_status_for_programs_holds_everything(ralph: Ralph) -> None:
    run = finished(ralph)
    told = ralph("status", run[:15], "--json").json
    assert (told["v"], told["type"], told["id"], told["state"], told["activity"]) == (1, "run", run, "ended", "")
    assert told["outcome"]["status"] == "COMPLETED"
    first, second = told["timeline"]
    assert (first["verdict"]["result"], first["claim"], first["files"]) == ("retry", "DONE", [])
    assert (second["verdict"]["result"], second["files"]) == ("passed", ["made"])
    assert [check["passed"] for check in second["checks"]] == [True]
    assert second["snapshot"] == f"refs/ralph/{run}/2"
    (before,) = told["baseline"]
    assert (before["name"], before["passed"], before["exitCode"]) == ("sh check.sh", False, 1)
    assert before["log"] == "guardrail_000_sh_check_sh"


def test_files_that_only_checks_wrote_are_not_counted_as_the_agents(ralph: Ralph) -> None:
    ralph.commit()
    ralph.env["RALPH__LIMITS__PAUSE_MILLISECONDS"] = "50"  # files are stamped by a clock that ticks slowly
    agent = ralph.script([write(made="yes"), say("working")], [say("thinking")])
    assert ralph("run", "-p", "x", "--agent", agent, "--check", "date +%N > out; false", "-m", "2").code == 1
    rows = [line.split()[:3] for line in ralph("status").out.splitlines()]
    assert [row for row in rows if row[1:2] == ["ended"]] == [["1", "ended", "1"], ["2", "ended", "0"]]


def test_a_live_run_says_what_it_is_doing(ralph: Ralph) -> None:
    run = begun(ralph)
    told = ralph("status")
    assert told.out.startswith(f"run {run} is running (pid {ralph.live[0].process.pid}); iteration 1: the agent works")
    (ralph.root / "go").touch()
    assert ralph.live[0].end().code == 0
    assert ralph("status", "--json").json["state"] == "ended"


@pytest.mark.parametrize(
    ("at_once", "when"), [("false", "before the first iteration"), ("! test -f made", "iteration 1")]
)
def test_a_running_check_is_named(ralph: Ralph, at_once: str, when: str) -> None:
    ralph.commit()
    check = f"{at_once} && exit 1; touch checking; while ! test -f go; do sleep 0.05; done"
    live = ralph.start("run", "-p", "x", "--agent", ralph.script([write(made="yes"), done()]), "--check", check)
    until(lambda: (ralph.root / "checking").exists(), "the check runs")
    assert ralph("status", "--json").json["activity"] == f"{when}: guardrail {check} runs"
    (ralph.root / "go").touch()
    assert live.end().code == 0


def test_the_time_of_the_first_iteration_is_its_own(ralph: Ralph) -> None:
    ralph.commit()
    agent = ralph.script([write(made="yes"), done()])
    assert ralph("run", "-p", "x", "--agent", agent, "--check", "test -f made || sleep 1").code == 0
    told = ralph("status", "--json").json
    assert told["baseline"][0]["durationSeconds"] >= 1
    assert told["timeline"][0]["durationSeconds"] <= told["outcome"]["durationSeconds"] - 1


def test_a_run_that_waits_for_a_service_says_until_when_and_why(ralph: Ralph) -> None:
    resets_at = time.time() + 7200
    agent = ralph.script([{"limited": {"message": "usage limit", "in_s": 7200}}])
    ralph.start("run", "-p", "x", "--agent", agent)
    until(lambda: ralph.runs() and "waits for the agent" in ralph("status").out, "the run waits")
    now = time.time()
    told, data = ralph("status", env={"TZ": "CET-1"}).out, ralph("status", "--json").json
    hour = time.strftime("%H:%M", time.gmtime(epoch_seconds(data["wait"]["until"]) + 3600))
    assert f"; iteration 1: waits for the agent's service until {hour} CET (usage limit), for " in told
    assert resets_at <= epoch_seconds(data["wait"]["until"]) <= time.time() + 7210
    assert phrases.format_time(epoch_seconds(data["wait"]["until"]), now) in data["activity"]
    assert ralph("cancel").code == 0
    ralph.live[0].end()
    assert ralph("status", "--json").json["wait"] is None


def test_a_run_whose_harness_died_is_orphaned_then_crashed(ralph: Ralph) -> None:
    run = begun(ralph)
    os.kill(ralph.live[0].process.pid, signal.SIGKILL)
    ralph.live[0].process.wait()
    orphaned = ralph("status", "--json").json
    assert (orphaned["state"], orphaned["pid"]) == ("orphaned", None)
    died = "its harness died while the agent was at iteration 1"
    lines = ralph("status").out.splitlines()
    assert lines[0].startswith(f"run {run} lost its harness, and what it started is still at work; iteration 1: ")
    way_on = f"take it up: ralph run --resume {run}; close it: ralph cancel {run}"
    assert lines[-2:] == [f"found: {died}; the turn is still at work", way_on]
    (ralph.root / "go").touch()
    until(lambda: ralph("status", "--json").json["state"] == "crashed", "the agent has ended")
    lines = ralph("status").out.splitlines()
    assert lines[0].startswith(f"run {run} crashed: its harness is gone")
    assert lines[-2:] == [f"found: {died}; the turn has ended since", way_on]
    assert ralph("status", "--json").json["interruption"] == f"{died}; the turn has ended since"


def test_a_run_that_waits_for_somebody_is_stopped_and_says_how_to_go_on(ralph: Ralph) -> None:
    ralph.commit()
    wait = {"run": ["sh", "-c", 'echo "which colour?" > "$TASK_FOLDER/WAIT_WITHOUT_RESTART"']}
    assert ralph("run", "-p", "x", "--agent", ralph.script([wait, say("I wait")])).code == 4
    run = ralph.runs()[0].id
    lines = ralph("status").out.splitlines()
    assert lines[0] == (f"run {run} is stopped: it waits for somebody: which colour?; go on: ralph run --resume {run}")
    data = ralph("status", "--json").json
    assert (data["state"], data["activity"], data["outcome"]["reason"]) == ("stopped", "", "WAITING")
    assert ralph("runs", "--json").json["runs"][0]["state"] == "stopped"


def test_all_runs_are_listed_newest_first(ralph: Ralph) -> None:
    finished(ralph)
    failing = ralph("run", "-p", "x", "--agent", ralph.script([say("no")]), "-m", "1")
    assert failing.code == 1
    lines = ralph("status", "--all").out.splitlines()
    assert len(lines) == 2
    assert "ABORTED MAX_ITERATIONS  1 iteration" in lines[0]
    assert "COMPLETED, verified  2 iterations" in lines[1]
    listed = ralph("status", "--all", "--json").json
    assert [run["status"] for run in listed["runs"]] == ["ABORTED", "COMPLETED"]


def test_every_list_says_what_shows_that_a_run_is_done(ralph: Ralph) -> None:
    ends = {
        "claimed": completed(verified=False), "judged": completed(verified=False, judged=True),
        "doubted": replace(completed(), concerns=("a test is flaky", "a warning")),
    }  # fmt: skip
    for run, end in ends.items():
        worked(ralph, run, "", end=end)
    for command in (("runs",), ("status", "--all"), ("watch",), ("runs", "--tree")):
        told = {line.split()[0]: line for line in ralph(*command).out.splitlines()}
        assert "COMPLETED, claimed: nothing verified it  " in told["claimed"], command
        assert "COMPLETED, judged by a model  " in told["judged"], command
        assert "COMPLETED with 2 concerns, verified  " in told["doubted"], command


def test_looking_writes_nothing(ralph: Ralph) -> None:
    ralph.commit()
    before = everything(ralph.folder)
    for argv in (["status"], ["status", "--all"], ["config", "show"], ["status", "nonsense"], ["logs"], ["diff"]):
        ralph(*argv)
    assert everything(ralph.folder) == before
    run = finished(ralph)
    before = everything(ralph.folder)
    for argv in (["status"], ["status", "--all", "--json"], ["logs"], ["diff"], ["diff", run, "1", "--stat"]):
        assert ralph(*argv).code == 0
    assert everything(ralph.folder) == before


def test_a_project_without_runs_says_so(ralph: Ralph) -> None:
    assert "no run yet" in ralph("status").out
    assert ralph("status", "--json").json["runs"] == []
    assert ralph("status", "--all").out == "no run yet\n"


def test_a_run_that_is_not_known_is_refused(ralph: Ralph) -> None:
    finished(ralph)
    ended = ralph("status", "nonsense", "--json")
    assert ended.code == 2
    assert ended.json["type"] == "error"
    assert "nonsense" in ended.err


def test_latest_is_the_newest_run_in_whichever_worktree_and_verbs_say_which_they_took(ralph: Ralph) -> None:
    finished(ralph)
    ralph.git("branch", "other")
    agent = ralph.script([write(made="x"), done()])
    ended = ralph("run", "-p", "x", "--agent", agent, "--check", "test -f made", "--worktree")
    assert ended.code == 0, ended.err
    newest = ralph.runs()[0].id
    for argv in (["status"], ["attach"], ["logs"], ["diff"], ["proof", "show"], ["watch", "latest"], ["cancel"]):
        assert newest in ralph(*argv, "--json").out, argv
        told = ralph(*argv)
        assert newest in told.out + told.err, argv
    for argv in (["verify", "latest"], ["branch", "latest", "1"], ["land", "latest", "--onto", "other"]):
        told = ralph(*argv)
        assert (told.code, newest in told.out + told.err) == (0, True), (argv, told.err)
    assert ralph("diff").err == f"the latest run is {newest}\n"
    assert ralph("diff", "-q").err == ralph("diff", newest).err == ""
    assert ralph.git("show", "other:made") == "x"
    assert (ralph.root / ".ralph/latest").readlink().name == newest


def test_status_loads_only_what_it_uses(ralph: Ralph) -> None:
    finished(ralph)
    slow = {"subprocess", "dataclasses", "typing", "pathlib", "asyncio", "inspect", "shutil", "tempfile", "logging"}
    look = "import sys; from ralphproof.cli.dispatch import dispatch; dispatch([sys.argv[1]])"
    look += f"; print({slow} & {{*sys.modules}})"
    told = subprocess.run(
        [sys.executable, "-S", "-c", look, "status"],
        cwd=ralph.root,
        env=ralph.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines()[-1] == "set()"


def test_a_check_of_several_lines_is_shown_in_one(ralph: Ralph) -> None:
    check = "true\n  true # twice"
    told = ralph("run", "-p", "x", "--agent", ralph.script([done()]), "--check", check)
    assert told.code == 0
    assert "guardrail true true # twice passed" in told.err
    assert "checks: true true # twice\n" in told.err
    assert "checks: true true # twice\n" in ralph("status").out
