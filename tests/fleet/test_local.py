"""The local engine, with a stand-in for the program that takes steps."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from ralphproof.fleet import local_engine
from ralphproof.fleet.connection import FleetTiming
from ralphproof.fleet.governor import Allowance, BookedSpend
from ralphproof.fleet.local_engine import LocalFleet
from ralphproof.fleet.step_process import StepPool, StepProcess
from ralphproof.fleet.submission import FleetSubmission, LoopSpec, SubmittedLoop
from tests.fleet.fleet import STAND_IN

TEMPO = FleetTiming(heartbeat_s=3.0, cancel_s=3.0, kill_s=3.0)


def submitted(folder: Path, *, timing: FleetTiming = TEMPO, **play: Any) -> LocalFleet:
    (folder / "remote").mkdir()
    fleet = LocalFleet(str(folder))
    wish: Any = {"play": {"turns": 1, "cost": 1000, "log": str(folder / "log"), **play}}
    order = LoopSpec("loop", str(folder / "remote"), "main", wish, submitter="ann", agent="scripted")
    allowance = Allowance(total_micro_usd=50_000)
    fleet.submit(FleetSubmission("sub", "ann", (SubmittedLoop(order, "loop", budget=5000),), allowance, timing))
    return fleet


def worked(folder: Path) -> None:
    place = StepPool("one", str(folder / "work"), 1, shlex.split(STAND_IN))
    work = local_engine.run_local_worker(str(folder), place, 1.0, asyncio.Event(), until_idle=True)
    asyncio.run(asyncio.wait_for(work, 60))


def booked(fleet: LocalFleet) -> BookedSpend:
    (day,) = fleet.load_governor().days["ann"].values()
    return day


@pytest.mark.thorough
def test_a_step_that_fails_is_taken_again(tmp_path: Path) -> None:
    fleet = submitted(tmp_path, fails=1)
    worked(tmp_path)
    shown = fleet.loop("loop").published
    assert (shown["status"], shown["costUSD"], booked(fleet)) == ("COMPLETED", 0.001, BookedSpend(1000, 0, 1))
    assert (tmp_path / "log").read_text().count("start") == 1


@pytest.mark.thorough
def test_a_fenced_step_settles_nothing(tmp_path: Path) -> None:
    fleet = submitted(tmp_path)
    (tmp_path / "remote" / "loop.json").write_text(json.dumps({"epoch": 2, "records": []}))
    worked(tmp_path)
    assert (fleet.loop("loop").published["status"], booked(fleet)) == ("COMPLETED", BookedSpend(1000, 0, 1))


def test_what_a_lost_turn_cost_that_was_cancelled_is_not_known(tmp_path: Path) -> None:
    fleet = submitted(tmp_path, timing=FleetTiming(tries=0))
    want = {"what": "want", "loop": "loop", "number": 1, "submission": "sub", "submitter": "ann", "agent": "scripted"}
    assert fleet.permit({**want, "budget": 5000}) is not None  # a worker had it, and died
    fleet.cancel(["loop"])
    (tmp_path / "remote" / "loop.json").write_text(json.dumps({"epoch": 2, "records": []}))
    worked(tmp_path)
    shown = fleet.loop("loop").published
    assert (shown["reason"], shown["costUSD"], booked(fleet)) == ("CANCELLED", None, BookedSpend(5000, 0, 1, 1))


def test_a_worker_that_waits_for_long_gathers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engine, "POLL_S", 0.001)
    looks, leave = [0], asyncio.Event()

    class Watched(LocalFleet):
        def open_loops(self) -> list[Any]:
            looks[0] += 1
            if looks[0] == 100:
                looks.append(len(asyncio.all_tasks()))
                leave.set()
            return []

    monkeypatch.setattr(local_engine, "LocalFleet", Watched)
    place = StepPool("one", str(tmp_path), 1, ())
    asyncio.run(local_engine.run_local_worker(str(tmp_path), place, 0.0, leave, until_idle=False))
    assert looks[1] < 5


def test_what_a_step_has_to_tell_is_in_the_worker_s_log(capfd: pytest.CaptureFixture[str]) -> None:
    said = "import sys; print('artifacts: no \\x1b store', file=sys.stderr); print('{\"type\": \"fenced\"}')"

    async def through() -> None:
        step = StepProcess((sys.executable, "-c", said), "folder", {"spec": {"loop": "one"}})
        assert (await step.done).report == {"type": "fenced"}

    asyncio.run(through())
    assert capfd.readouterr().err == "one: artifacts: no   store\n"


def test_a_turn_whose_end_nobody_reports_has_no_known_cost() -> None:
    words = [{"type": "begun"}, {"type": "spent", "microUsd": 7, "tokens": 3}, {"type": "failed", "message": "x"}]
    said = f"print({chr(10).join(map(json.dumps, words))!r})"

    async def through() -> None:
        done = await StepProcess((sys.executable, "-c", said), "folder", {"spec": {"loop": "one"}}).done
        assert (done.micro_usd, done.tokens) == (None, 3)

    asyncio.run(through())
