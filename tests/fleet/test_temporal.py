"""Loops on a real Temporal server: what dies is replaced, what was done is not done again, and nobody overspends."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.errors import Refused
from ralphproof.base.value import replace
from ralphproof.fleet import client
from ralphproof.fleet.dev_server import find_temporal
from tests.fleet.fleet import TEMPO, Crew, Server, query_governor, serving
from tests.fleet.machines import Remote, git
from tests.needs import require
from tests.ralph import SOURCE, Ralph, Step, done, until, write
from tests.ralph import ralph as ralph

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    try:
        find_temporal()
    except Refused as missing:
        require(False, str(missing))
    with serving(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.fixture
def crew(server: Server, tmp_path: Path) -> Iterator[Crew]:
    made = Crew(tmp_path / "crew", server.address)
    try:
        yield made
    finally:
        made.ask(client.cancel_all)
        made.close()


TASK = {
    "title": "t", "completion": {
        "outcome": "it is there", "acceptance_criteria": ["it is there"], "coder": {"promise": "CODE_COMPLETE"},
    },
}  # fmt: skip


def test_a_prompt_is_submitted_worked_on_and_looked_at_by_the_verbs(crew: Crew, ralph: Ralph) -> None:
    def fleet(verb: str, *words: str) -> Any:
        return ralph("fleet", verb, *words, "--address", crew.address, "--json", via=["env"])

    crew.work("one", program=None)
    agent = ralph.script([{"cost": 0.02}, write(done="yes"), done()])
    words = ("--repo", str(crew.bare()), "-p", "make it so", "--agent", agent, "--check", "sh check.sh", "--wait")
    told = fleet("submit", *words, "--artifacts", f"file://{ralph.folder}/artifacts", "--total-cost-usd", "5")
    assert told.code == 0, told.err
    loop = told.json["loops"][0]["loop"]
    shown = fleet("status", loop).json
    assert (shown["status"], shown["proof"], shown["costUSD"]) == ("COMPLETED", "verified", 0.02)
    assert "outcome.json" in fleet("logs", loop).json["logs"]
    for verb in ("status", "cancel", "logs"):
        told = fleet(verb, "nobody")
        assert (told.code, "there is no loop 'nobody'" in told.err) == (2, True)


def test_a_task_goes_on_from_the_work_of_the_one_that_it_depends_on(crew: Crew, ralph: Ralph) -> None:
    crew.work("one", program=None)
    bare, tasks = crew.bare(), [{**TASK, "id": "A"}, {**TASK, "id": "B", "dependencies": ["A"]}]
    ralph.write({"tasks.json": json.dumps({"tasks": tasks})})
    agent = ralph.script([write(done="yes"), {"append": {"trace": "x\n"}}, done("CODE_COMPLETE")])
    words = ["fleet", "submit", "--repo", str(bare), "--tasks", "tasks.json", "--agent", agent]
    words += ["--check", "sh check.sh"]
    words += [word for stage in ("reviewer", "tester", "qa") for word in ("--skip", stage)]
    told = ralph(*words, "--allow-unknown-cost", "--wait", "--json", "--address", crew.address, via=["env"])
    loops = told.json["loops"]
    assert [loop["status"] for loop in loops] == ["COMPLETED"] * 2, loops
    assert [git("show", f"ralph/{loop['loop']}:trace", cwd=bare) for loop in loops] == ["x\n", "x\nx\n"]


def test_twenty_loops_outlive_a_worker_and_the_server(server: Server, crew: Crew) -> None:
    bare, go, tempo = crew.bare(), crew.folder / "go", replace(TEMPO, heartbeat_s=12.0)

    def turn(loop: str, *more: Step) -> list[Step]:
        return [{"append": {str(crew.log): f"start {loop}\n"}}, {"cost": 0.001}, *more, write(done="yes"), done()]

    held: list[Step] = [{"until": str(go)}]
    names = [f"loop-{number}" for number in range(20)]
    orders = [
        crew.real_order(name, bare, turn(name, *(held if number < 4 else []))) for number, name in enumerate(names)
    ]
    crew.work("one", "--slots", "4", program=None)
    crew.work("two", "--slots", "4", program=None)
    crew.submit("twenty", *orders, timing=tempo, budget=1_000_000, total_micro_usd=30_000_000, parallel=8)
    until(lambda: {f"start {name}" for name in names[:4]} <= set(crew.lines("start")), "some wait", 60)
    server.kill()
    crew.kill("one")
    server.start()
    crew.work("one", "--slots", "4", program=None)  # goes on with what its agents do meanwhile
    go.touch()
    ended = crew.outcome("twenty", 120)
    assert {name: loop["status"] for name, loop in ended.items()} == dict.fromkeys(names, "COMPLETED")
    assert sorted(crew.lines("start")) == sorted(f"start {name}" for name in names)
    assert sum(loop["knownCostUSD"] for loop in ended.values()) == pytest.approx(0.02)
    governor = crew.ask(query_governor)
    assert governor is not None
    assert sum(day.micro_usd for day in governor.days["ann"].values()) == 20_000
    assert governor.permits == {}


def test_a_step_that_fails_or_is_fenced_is_taken_again_and_costs_once(crew: Crew) -> None:
    (crew.remote / "fenced.json").write_text(json.dumps({"epoch": 2, "records": []}))
    crew.work("one", "--slots", "2")
    before = crew.ask(query_governor)
    crew.submit("s-again", crew.spec("again", fails=1), crew.spec("fenced"), budget=5000)
    ended = crew.outcome("s-again")
    assert [(loop["status"], loop["costUSD"]) for loop in ended.values()] == [("COMPLETED", 0.001)] * 2
    assert sorted(crew.lines("start")) == ["start again 1", "start fenced 1"]
    after = crew.ask(query_governor)
    assert after is not None

    def booked(governor: Any) -> list[int]:
        return [day.unknown for day in governor.days.get("ann", {}).values()] if governor else []

    assert sum(booked(after)) == sum(booked(before))


def test_workers_of_two_users_share_the_remote_alone_and_a_killed_agent_is_a_turn_cut_off(
    server: Server, room: Path, served: Remote
) -> None:
    require(os.geteuid() == 0 and shutil.which("setpriv") is not None, "root, to be several users")
    crew = Crew(room / "crew", server.address)
    crew.folder.chmod(0o755)
    crew.log.touch()
    crew.log.chmod(0o666)
    try:
        crew.work("one", "--slots", "1", uid=65534, program=None)
        crew.work("two", "--slots", "1", uid=65533, program=None)
        who, never = "echo start $PPID $(id -u) $PWD >> " + str(crew.log), str(room / "never")
        work: list[Step] = [write(done="3"), done()]
        orders = [
            crew.real_order(loop, served.url, [{"run": ["sh", "-c", who]}, {"until": never}], work)
            for loop in (f"{served.loop}-a", f"{served.loop}-b")
        ]
        crew.submit("s-users", *orders)
        until(lambda: len(crew.lines("start")) == 2, "both work", 60)
        for line in crew.lines("start"):
            os.kill(int(line.split()[1]), signal.SIGKILL)
        ended = crew.outcome("s-users")
        assert {line.split()[2] for line in crew.lines("start")} == {"65533", "65534"}
        assert [(loop["status"], loop["iterations"]) for loop in ended.values()] == [("COMPLETED", 2)] * 2
        assert [loop["costUSD"] for loop in ended.values()] == [None] * 2  # nobody knows what a killed agent cost
    finally:
        crew.close()


def test_a_dead_worker_s_loop_goes_to_another_without_anybody_s_help(crew: Crew) -> None:
    go = crew.folder / "go"
    crew.work("one")
    crew.submit("s-dead", crew.spec("dead", turns=2, hold=str(go)))
    until(lambda: crew.lines("start dead 1"), "it works")
    crew.kill("one")
    crew.work("two")
    go.touch()
    ended = crew.outcome("s-dead")["dead"]
    assert (ended["status"], ended["iterations"], ended["worker"]) == ("COMPLETED", 2, "two")


def test_a_worker_cut_off_while_another_takes_over_leaves_one_result(crew: Crew) -> None:
    go = crew.folder / "go"
    crew.work("one")
    crew.submit("s-cut", crew.spec("cut", hold=str(go)))
    until(lambda: crew.lines("start cut 1"), "it works")
    crew.kill("one", signal.SIGSTOP)
    crew.work("two")
    until(lambda: len(crew.lines("start cut 1")) == 2, "another has it", 40)
    crew.kill("one", signal.SIGCONT)
    until(lambda: crew.lines("kill cut 1"), "the first one ends its agent", 40)
    go.touch()
    ended = crew.outcome("s-cut")["cut"]
    assert (ended["status"], ended["worker"], ended["iterations"]) == ("COMPLETED", "two", 1)
    assert len(crew.lines("end cut")) == 1


def test_both_sides_of_a_partition_finish_and_one_result_lands(crew: Crew) -> None:
    bare, go = crew.bare(), crew.folder / "go"
    turn: list[Step] = [
        {"run": ["sh", "-c", f"echo start $PPID >> {crew.log}"]},
        {"until": str(go)},
        write(done="x"),
        done(),
    ]
    crew.work("one", program=None)
    crew.submit("s-both", replace(crew.real_order("both", bare, turn), target="landing"))
    until(lambda: len(crew.lines("start")) == 1, "it works", 60)
    crew.kill("one", signal.SIGSTOP)  # its step and its agent go on
    crew.work("two", program=None)
    until(lambda: len(crew.lines("start")) == 2, "another has it", 60)
    go.touch()
    ended = crew.outcome("s-both", 90)["both"]
    crew.kill("one", signal.SIGCONT)
    assert (ended["status"], ended["worker"]) == ("COMPLETED", "two"), ended
    assert git(
        "log", "--first-parent", "--format=%(trailers:key=Ralph-Run,valueonly)", "landing", cwd=bare
    ).split() == ["both"]
    agents = [int(line.split()[1]) for line in crew.lines("start")]
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in agents), "no agent is left", 30)


def test_what_depends_on_others_begins_where_they_landed(crew: Crew) -> None:
    bare = crew.bare()
    crew.work("one", "--slots", "2", program=None)
    first, second = ([write(done="x", **{name: "x"}), done()] for name in ("alpha", "beta"))
    third: list[Step] = [{"run": ["test", "-f", "alpha"]}, {"run": ["test", "-f", "beta"]}, write(gamma="x"), done()]
    orders = [
        replace(crew.real_order(name, bare, turn), target="landing")
        for name, turn in (("a", first), ("b", second), ("c", third))
    ]
    crew.submit("s-after", *orders, after={"c": ("a", "b")})
    ended = crew.outcome("s-after", 90)
    assert {name: (one["status"], one["iterations"]) for name, one in ended.items()} == dict.fromkeys(
        "abc", ("COMPLETED", 1)
    ), ended
    told = git("log", "--first-parent", "--format=%(trailers:key=Ralph-Run,valueonly)", "landing", cwd=bare)
    assert sorted(told.split()) == ["a", "b", "c"]


def test_cancelling_ends_the_agent_itself_and_its_record_says_so(crew: Crew) -> None:
    bare, never = crew.bare(), str(crew.folder / "never")
    turn: list[Step] = [{"run": ["sh", "-c", f"echo start $PPID >> {crew.log}"]}, write(half="x"), {"until": never}]
    crew.work("one", program=None)
    crew.submit("s-end", crew.real_order("end-me", bare, turn))
    until(lambda: crew.lines("start"), "it works", 60)
    agent = int(crew.lines("start")[0].split()[1])
    crew.ask(lambda server: client.cancel_loop(server, "end-me"))
    ended = crew.outcome("s-end", 60)["end-me"]
    assert not Path(f"/proc/{agent}").exists()
    assert (ended["status"], ended["reason"], ended["exitCode"]) == ("ABORTED", "CANCELLED", 130)
    assert git("show", "refs/ralph/fleet/end-me/work/1:half", cwd=bare) == "x", "what it had done is kept"


def test_cancelling_reaches_the_agent_and_is_what_the_record_says(crew: Crew) -> None:
    crew.work("one")
    crew.submit("s-cancel", crew.spec("stop-me", hold=str(crew.folder / "never")))
    until(lambda: crew.lines("start stop-me 1"), "it works")
    assert crew.loop("stop-me")["worker"] == "one"
    crew.ask(lambda server: client.cancel_loop(server, "stop-me"))
    until(lambda: crew.lines("cancel stop-me 1"), "its agent is ended", TEMPO.cancel_s + TEMPO.heartbeat_s + 10)
    ended = crew.outcome("s-cancel")["stop-me"]
    assert (ended["status"], ended["reason"], ended["exitCode"]) == ("ABORTED", "CANCELLED", 130)
    assert ended["costUSD"] == 0.0  # its turn has no recorded end


def test_what_is_cancelled_before_a_worker_comes_is_shown_and_never_begun(crew: Crew) -> None:
    crew.submit("s-early", crew.spec("s-early-1"), crew.spec("s-early-2"))
    crew.submit("s-late", crew.spec("s-late-1"), crew.spec("s-late-2"))
    assert (crew.loop("s-early-1")["running"], crew.loop("s-early-1")["title"]) == (True, "s-early-1")
    crew.ask(lambda server: client.cancel_loop(server, "s-early-1"))
    until(lambda: "s-late-2" in crew.ask(_waiting), "the server lists it")
    assert {"s-late-1", "s-late-2"} <= set(crew.ask(client.cancel_all))
    crew.submit("s-one", crew.spec("s-one-1"), crew.spec("s-one-2"))
    crew.ask(lambda server: client.cancel_loop(server, "s-one-1"))
    crew.work("one")
    ended = {**crew.outcome("s-late"), **crew.outcome("s-early"), **crew.outcome("s-one")}
    assert {name: loop["exitCode"] for name, loop in ended.items() if name != "s-one-2"} == dict.fromkeys(
        ("s-early-1", "s-early-2", "s-late-1", "s-late-2", "s-one-1"), 130
    )
    assert crew.lines("start") == ["start s-one-2 1"]
    assert crew.loop("s-late-1")["reason"] == "CANCELLED"
    crew.ask(lambda server: client.cancel_loop(server, "s-one-2"))  # it is over, and stays so
    assert crew.loop("s-one-2")["status"] == "COMPLETED"


async def _waiting(server: Any) -> list[str]:
    return [one["loop"] for one in await client.list_loops(server) if one["running"]]


def test_a_wish_to_end_outlives_the_change_of_histories_and_a_turn_that_failed_has_cost_something(crew: Crew) -> None:
    """Cancelled while its first step, which does not succeed, waits to be taken again."""
    crew.work("one")
    tempo = replace(TEMPO, steps=0)  # a new history whenever nothing stands against it
    crew.submit("s-fail", crew.spec("fails", fails=6), timing=tempo, budget=5000, total_micro_usd=9000)
    until(lambda: crew.lines("end fails 1"), "its turn is over")
    until(lambda: crew.loop("fails").get("trouble") == "the remote is away", "it waits to be taken again")
    crew.ask(lambda server: client.cancel_loop(server, "fails"))
    ended = crew.outcome("s-fail")["fails"]
    assert ended["exitCode"] == 130
    governor = crew.ask(query_governor)
    assert governor is not None
    assert sum(day.unknown for day in governor.days["ann"].values()) >= 1


def test_money_goes_out_once_and_then_loops_end(crew: Crew) -> None:
    crew.work("one", "--slots", "4")
    orders = [crew.spec(f"dear-{number}", turns=3, cost=4000) for number in range(3)]
    crew.submit("s-dear", *orders, budget=12_000, total_micro_usd=20_000)
    ended = crew.outcome("s-dear")
    assert sum(loop["knownCostUSD"] for loop in ended.values()) == pytest.approx(0.02)
    assert len(crew.lines("end dear")) == 5
    assert {loop["reason"] for loop in ended.values()} <= {"", "COST_LIMIT"}


def test_waits_hold_no_slot_and_histories_stay_short(crew: Crew) -> None:
    crew.work("one", "--slots", "1")
    tempo = replace(TEMPO, steps=2, events=3)  # the governor begins a new history again and again
    crew.submit("s-rest", crew.spec("rests", turns=5, pause=2), crew.spec("works", turns=2), timing=tempo)
    ended = crew.outcome("s-rest")
    assert [loop["status"] for loop in ended.values()] == ["COMPLETED"] * 2
    assert ended["rests"]["iterations"] == 5
    assert ended["rests"]["costUSD"] == pytest.approx(0.005)
    order = crew.lines("end")
    assert order.index("end works 2") < order.index("end rests 5")


def test_a_worker_asked_to_leave_leaves_its_turn_to_be_adopted(crew: Crew) -> None:
    go = crew.folder / "go"
    crew.work("one", "--grace", "0.5")
    crew.submit("s-leave", crew.spec("left", hold=str(go)), timing=replace(TEMPO, heartbeat_s=15.0))
    until(lambda: crew.lines("start left 1"), "it works")
    crew.kill("one", signal.SIGTERM)
    assert crew.workers.pop("one").wait(20) == 0
    crew.work("one")
    go.touch()
    assert crew.outcome("s-leave")["left"]["status"] == "COMPLETED"
    assert len(crew.lines("start left")) == 1


def test_the_development_server_ends_with_its_verb_and_leaves_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "ralphproof", "fleet", "dev", "--port", "0", "--json", "--db", str(tmp_path / "db")]
    env = os.environ | {"PYTHONPATH": str(SOURCE), "RALPH_STATE_DIR": str(tmp_path)}
    verb = subprocess.Popen(words, stdout=subprocess.PIPE, env=env, text=True)
    assert verb.stdout is not None
    told = json.loads(verb.stdout.readline())
    look = [sys.executable, "-m", "ralphproof", "fleet", "status", "--json", "--address", told["address"]]
    until(lambda: subprocess.run(look, env=env, capture_output=True).returncode == 0, "it answers", 60)
    verb.send_signal(signal.SIGTERM)
    with verb:
        assert verb.wait(30) == 0
    assert not Path(f"/proc/{told['serverPid']}").exists()


def test_whoever_waits_outlives_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    from temporalio.service import RPCError, RPCStatusCode

    says: list[Any] = [RPCStatusCode.UNAVAILABLE, RPCStatusCode.NOT_FOUND, {"loops": [{"loop": "a"}]}]

    class Handle:
        async def result(self) -> Any:
            said = says.pop(0)
            if isinstance(said, RPCStatusCode):
                raise RPCError("away", said, b"")
            return said

    class Asked:
        def get_workflow_handle_for(self, *_: object) -> Handle:
            return Handle()

    monkeypatch.setattr(client, "RETRY_S", 0.0)
    asked: Any = Asked()
    assert asyncio.run(client.wait_for_submission(asked, "s")) == [{"loop": "a"}]
    says[:] = [RPCStatusCode.PERMISSION_DENIED]
    with pytest.raises(RPCError):
        asyncio.run(client.wait_for_submission(asked, "s"))
