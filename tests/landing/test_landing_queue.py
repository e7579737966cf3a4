"""The thread that lands finished work."""

from __future__ import annotations

import threading
from typing import Any

from ralphproof.landing.merge_queue import LandingQueue
from ralphproof.store.landings import LandingItem

NOBODY: Any = None


def test_closing_the_queue_lands_waiting_items_and_ends_the_thread() -> None:
    queue = LandingQueue(NOBODY, NOBODY, NOBODY, print)
    waits, landed = [LandingItem("run-1", "0" * 40, "one"), LandingItem("run-2", "1" * 40, "two")], []
    for item in waits:
        queue._items.put(item)
    queue._items.put(None)

    def work() -> None:
        while batch := queue._next_batch():
            landed.extend(batch)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive(), "the thread ends"
    assert landed == waits
