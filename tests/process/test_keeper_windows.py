"""Every instant at which somebody may die: what the next one finds is told, and nothing is ever started twice."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from ralphproof.engine.sandbox import Exit
from ralphproof.process import client
from ralphproof.process.cleanup import find_turn_processes
from tests.process.curse import HARNESSES, KEEPERS, door
from tests.process.desk import Desk, Seen, until

SIZES = (64 << 10, 64 << 10, 3)
WORDS = b"".join(b"line %06d\n" % number for number in range(22000))  # the head and three segments: all of it is kept
SCRIPT = "echo started >> starts; cat words; (setsid sleep $NAP &); exit 3"

# By the instant of the death: how the turn ends, and whether all of its output is there.
NOT_BEGUN, CUT, UNTOLD, TOLD = ("exit", True), ("interrupted", False), ("interrupted", True), ("exit", True)
EXPECTED = {
    "before began": NOT_BEGUN, "after began": CUT, "after fork": CUT, "after agent": CUT,
    "before the logs are closed": CUT, "in a segment": UNTOLD, "before a segment goes": UNTOLD,
    "after the logs are closed": UNTOLD, "in the result": UNTOLD, "after the result": TOLD, "before the report": TOLD,
}  # fmt: skip


def _ended_well(desk: Desk, ended: Exit, seen: Seen, why: str, whole: bool) -> None:
    assert (ended.why, ended.code) == (why, 3 if why == "exit" else None)
    assert ended.out_bytes == len(seen.output_bytes)
    assert WORDS.startswith(seen.output_bytes)
    assert (seen.output_bytes == WORDS) or not whole
    assert (desk.folder / "t.out").read_bytes() == seen.output_bytes
    starts = desk.folder / "starts"
    assert not starts.exists() or starts.read_text() in ("", "started\n")  # empty: killed between open and write
    assert (desk.nappers(), find_turn_processes(str(desk.folder))) == ([], [])
    assert not list(desk.folder.glob("t.out.*"))


def test_every_instant_has_its_end() -> None:
    assert tuple(EXPECTED) == KEEPERS


@pytest.mark.parametrize("label", KEEPERS)
def test_a_keeper_may_die_at_any_instant(desk: Desk, label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "words").write_bytes(WORDS)
    monkeypatch.setattr(client, "_KEEPER_MAIN", door(desk.folder, label, both=False))
    desk.keeper(sizes=SIZES)
    seen, again = Seen(), Seen()
    mark = f"{desk.folder}-t"
    ended = desk.sh(SCRIPT, seen, turn="t", mark=mark)
    assert (desk.folder / "struck").exists()
    _ended_well(desk, ended, seen, *EXPECTED[label])
    assert desk.sh(SCRIPT, again, turn="t", mark=mark) == ended
    assert again.output_bytes == seen.output_bytes


@pytest.mark.thorough
@pytest.mark.parametrize("label", KEEPERS)
def test_both_may_die_at_any_instant(desk: Desk, started: Any, label: str) -> None:
    (desk.folder / "words").write_bytes(WORDS)
    harness = started(SCRIPT, sizes=SIZES, door=door(desk.folder, label, both=True))
    harness.process.wait()
    until(harness.keeper_is_gone)
    desk.keeper(sizes=SIZES)
    seen = Seen()
    _ended_well(desk, harness.next(seen), seen, *EXPECTED[label])


@pytest.mark.parametrize("label", HARNESSES)
def test_a_harness_may_die_on_its_way_from_the_lock_to_the_start(desk: Desk, started: Any, label: str) -> None:
    (desk.folder / "words").write_bytes(WORDS)
    harness = started(SCRIPT, sizes=SIZES, curse=label)
    harness.process.wait()
    desk.keeper(sizes=SIZES)
    seen = Seen()
    _ended_well(desk, harness.next(seen), seen, "exit", True)
    assert desk.text("starts") == "started\n"


@pytest.mark.parametrize("label", HARNESSES)
def test_a_second_harness_that_comes_while_the_keeper_sleeps_starts_nothing_twice(
    desk: Desk, started: Any, label: str
) -> None:
    (desk.folder / "words").write_bytes(WORDS)
    harness = started(SCRIPT, sizes=SIZES, curse=label, hold=True)
    harness.process.wait()
    told: list[Exit] = []
    desk.keeper(sizes=SIZES)
    seen = Seen()
    second = threading.Thread(target=lambda: told.append(harness.next(seen)))
    second.start()
    second.join(0.2)
    os.kill(harness.keeper, signal.SIGCONT)
    second.join(20)
    _ended_well(desk, told[0], seen, "exit", True)
    assert desk.text("starts") == "started\n"
