"""What a question to the read model costs the others."""

from __future__ import annotations

import threading
from typing import Any

from ralphproof.views.board import Board
from tests.ralph import Ralph, done


def test_what_takes_long_neither_waits_for_the_others_nor_holds_them_up(ralph: Ralph) -> None:
    """A patch and a turn are read while somebody keeps the list."""
    ralph.commit()
    assert ralph("run", "-p", "make it so", "--agent", ralph.script([done()])).code == 0
    run, board, found = ralph.runs()[0].id, Board(ralph.project), list[Any]()

    def look() -> None:
        found.extend((board.find(run[:-1]), board.diff(run)["truncated"], board.activity(run, "agent_001")["turn"]))

    with board._guard:
        reading = threading.Thread(target=look, daemon=True)
        reading.start()
        reading.join(20)
        assert found == [run, False, "agent_001"]
