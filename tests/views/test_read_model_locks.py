"""What a question to the read model costs the others."""

from __future__ import annotations

import threading
from typing import Any

from ralphproof.views.read_model import ReadModel
from tests.cli.steering import detached, let, over, reached, waits_for
from tests.ralph import Ralph, done, say, until

SEGMENT_BYTES = 8 << 20


def test_what_takes_long_neither_waits_for_the_others_nor_holds_them_up(ralph: Ralph) -> None:
    """A patch and a turn are read while somebody keeps the list."""
    ralph.commit()
    assert ralph("run", "-p", "make it so", "--agent", ralph.script([done()])).code == 0
    run, board, found = ralph.runs()[0].id, ReadModel(ralph.project), list[Any]()

    def look() -> None:
        found.extend((board.find(run[:-1]), board.diff(run)["truncated"], board.activity(run, "agent_001")["log"]))

    with board._guard:
        reading = threading.Thread(target=look, daemon=True)
        reading.start()
        reading.join(20)
        assert found == [run, False, "agent_001"]


def events_of(ralph: Ralph, run: str) -> list[dict[str, Any]]:
    told: Any = ReadModel(ralph.project).activity(run, "agent_001")
    return list(told["events"])


def test_of_a_turn_that_goes_on_the_last_is_told_however_much_it_said(ralph: Ralph) -> None:
    much = [say("x" * 100_000)] * (SEGMENT_BYTES // 100_000 + 2)
    run = detached(ralph, ralph.script([*much, say("the last"), waits_for("one"), done()]))
    reached(ralph, "one")
    until(lambda: [one for one in events_of(ralph, run) if one.get("text") == "the last"], "it is told", 10)
    let(ralph, "one")
    over(ralph, run)


def test_a_line_that_is_not_finished_is_no_event_yet(ralph: Ralph) -> None:
    half = '{"is": "Said", '
    run = detached(ralph, ralph.script([say("first"), {"raw": half}, waits_for("one"), {"raw": "\n"}, done()]))
    board = ReadModel(ralph.project)
    reached(ralph, "one")
    until(lambda: str(board.log(run, "agent_001")["text"]).endswith(half), "that is in the log")
    assert [one["kind"] for one in events_of(ralph, run)] == ["started", "said"]
    let(ralph, "one")
    over(ralph, run)
    assert [one["kind"] for one in events_of(ralph, run)] == ["started", "said", "unparsed", "said", "ended"]
