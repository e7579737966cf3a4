"""The verbs of the fleet: what is wrong is said before anything is sent; and loops on one machine without a server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ralphproof.fleet.connection import find_free_port
from ralphproof.fleet.local_engine import LocalFleet
from tests.needs import require
from tests.ralph import Ralph, done, until, write
from tests.ralph import ralph as ralph

LOCAL = {"RALPH_FLEET_ENGINE": "local"}
ORDER = ("fleet", "submit", "--repo", "/nowhere.git", "--ref", "main", "-p", "make it so")
TASK = {
    "id": "A", "title": "a", "completion": {
        "outcome": "it is there", "acceptance_criteria": ["it is there"], "coder": {"promise": "CODE_COMPLETE"},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["fleet", "worke"], "did you mean worker?"),
        (["fleet", "submit", "-p", "x"], "--repo URL"),
        ([*ORDER[:6]], "no prompt; use"),
        ([*ORDER, "--tasks", "t.yaml"], "not both"),
        ([*ORDER, "--check", " "], "one of them is empty"),
        ([*ORDER, "--rate", "claude"], "AGENT=N/min"),
        ([*ORDER, "--rate", "claude=2/hour"], "turns per minute"),
        ([*ORDER, "--rate", "claude=0/min"], "above zero"),
        ([*ORDER, "--total-cost-usd", "-1"], "above zero"),
        ([*ORDER, "--land", "no branch"], "must be a branch"),
        ([*ORDER, "--submitter", " "], "is not a name"),
        ([*ORDER, "--artifacts", "nostore://x"], "not known: nostore"),
        ([*ORDER, "--check", "auto", "--max-cost-usd", "nan"], "above zero"),
        (["fleet", "submit", "--repo", "ext::sh -c x", "--ref", "main", "-p", "x"], "no address of a repository"),
        (["fleet", "submit", "--repo", "/nowhere.git", "-p", "x"], "cannot be reached"),
        (["fleet", "submit", "--repo", "/nowhere.git", "--ref", "main", "--tasks", "missing.yaml"], "missing.yaml"),
        (["fleet", "worker", "--name", "a b"], "is no name"),
        (["fleet", "worker", "--engine", "local", "--address", "x:1"], "has no server"),
        (["fleet", "cancel"], "--all"),
        (["fleet", "cancel", "--engine", "local", "nobody"], "there is no loop 'nobody'"),
        (["fleet", "status", "--engine", "local", "nobody"], "there is no loop 'nobody'"),
        (["fleet", "status", "--engine", "temporal", "--address", "nonsense"], "HOST:PORT"),
        (["fleet", "status", "--engine", "temporal", "--tls-cert", "x"], "needed both"),
        (["fleet", "dev", "--port", "99999"], "is no port"),
        (["fleet", "dev", "--db", "/no/such/folder/x.db", "--port", "0"], "no such folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_refused_in_one_line(ralph: Ralph, argv: list[str], said: str) -> None:
    told = ralph(*argv, env=LOCAL)
    assert (told.code, told.out) == (2, "")
    assert said in told.err
    assert len(told.err.splitlines()) == 1


def test_a_task_that_cannot_be_worked_on_is_named_before_anything_is_sent(ralph: Ralph) -> None:
    ralph.write({"tasks.json": json.dumps({"tasks": [TASK, {"id": "B", "title": "b", "dependencies": ["C"]}]})})
    argv = ("fleet", "submit", "--repo", "/nowhere.git", "--ref", "main", "--tasks", "tasks.json")
    told = ralph(*argv, env=LOCAL)
    assert told.code == 2
    assert "B" in told.err
    assert ralph("fleet", "status", "--json", env=LOCAL).json["loops"] == []


def test_a_server_that_does_not_answer_is_one_line_and_exit_code_2(ralph: Ralph) -> None:
    require(find_spec("temporalio") is not None, "temporalio")
    told = ralph("fleet", "status", "--address", f"127.0.0.1:{find_free_port()}", via=["env"])
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)
    assert "no Temporal server answers" in told.err
    assert "ralph fleet dev" in told.err


def bare(ralph: Ralph) -> str:
    ralph.write({"check.sh": "test -f done\n"})
    ralph.commit()
    goal = str(ralph.folder / "remote.git")
    ralph.git("clone", "-q", "--bare", ".", goal)
    return goal


def submit(ralph: Ralph, agent: str, *flags: str) -> str:
    """One loop; its id."""
    words = ("fleet", "submit", "--repo", bare(ralph), "-p", "make it so", "--agent", agent, "--check", "sh check.sh")
    told = ralph(*words, "--json", *flags, env=LOCAL)
    assert told.code == 0, told.err
    (loop,) = told.json["loops"]
    return str(loop)


def test_a_loop_without_a_server_is_worked_on_by_the_real_program(ralph: Ralph) -> None:
    artifacts = ralph.folder / "artifacts"
    agent = ralph.script([{"cost": 0.02}, write(done="yes"), done()])
    loop = submit(ralph, agent, "--artifacts", f"file://{artifacts}", "--total-cost-usd", "5")
    worked = ralph("fleet", "worker", "--until-idle", env=LOCAL)
    assert worked.code == 0, worked.err
    shown = ralph("fleet", "status", loop, "--json", env=LOCAL).json
    assert (shown["status"], shown["proof"], shown["costUSD"]) == ("COMPLETED", "verified", 0.02)
    (day,) = LocalFleet(str(ralph.state_dir)).load_governor().days[shown["submitter"]].values()
    assert (day.micro_usd, day.unknown) == (20_000, 0)
    assert ralph.git("ls-remote", str(ralph.folder / "remote.git"), f"refs/heads/ralph/{loop}")
    assert "outcome.json" in ralph("fleet", "logs", loop, env=LOCAL).out


@pytest.mark.thorough
def test_a_killed_local_worker_s_turn_is_adopted_by_the_next(ralph: Ralph, tmp_path: Path) -> None:
    log, go = ralph.folder / "log", ralph.folder / "go"
    agent = ralph.script([{"append": {str(log): "start\n"}}, {"until": str(go)}, write(done="yes"), done()])
    loop = submit(ralph, agent, "--allow-unknown-cost")
    worker = subprocess.Popen(
        [sys.executable, "-m", "ralphproof", "fleet", "worker", "-q"], env=ralph.env | LOCAL, cwd=ralph.root
    )
    until(log.exists, "the agent works", 60)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    go.touch()
    assert ralph("fleet", "worker", "--until-idle", env=LOCAL).code == 0
    assert ralph("fleet", "status", loop, "--json", env=LOCAL).json["status"] == "COMPLETED"
    assert log.read_text() == "start\n"


def test_a_cancelled_loop_that_never_began_ends_as_cancelled(ralph: Ralph) -> None:
    loop = submit(ralph, ralph.script([done()]))
    assert ralph("fleet", "cancel", loop, env=LOCAL).code == 0
    assert ralph("fleet", "worker", "--until-idle", env=LOCAL).code == 0
    shown = ralph("fleet", "status", loop, "--json", env=LOCAL).json
    assert (shown["reason"], shown["exitCode"]) == ("CANCELLED", 130)


@pytest.mark.thorough
def test_a_task_goes_on_from_the_work_of_the_one_that_it_depends_on(ralph: Ralph) -> None:
    tasks = [{**TASK, "id": "A"}, {**TASK, "id": "B", "dependencies": ["A"]}]
    agent = ralph.script([write(done="yes"), {"append": {"trace": "x\n"}}, done("CODE_COMPLETE")])
    remote = bare(ralph)
    ralph.write({"tasks.json": json.dumps({"tasks": tasks})})
    skip = [word for stage in ("reviewer", "tester", "qa") for word in ("--skip", stage)]
    words = ["fleet", "submit", "--repo", remote, "--tasks", "tasks.json", "--agent", agent, "--check", "sh check.sh"]
    loops = ralph(*words, *skip, "--allow-unknown-cost", "--json", env=LOCAL).json["loops"]
    worked = ralph("fleet", "worker", "--until-idle", env=LOCAL)
    assert worked.code == 0, worked.err
    shown = {one["loop"]: one for one in ralph("fleet", "status", "--json", env=LOCAL).json["loops"]}
    assert [shown[loop]["status"] for loop in loops] == ["COMPLETED"] * 2, shown
    traces = [ralph.git("-C", remote, "show", f"ralph/{loop}:trace") for loop in loops]
    assert traces == ["x\n", "x\nx\n"]
