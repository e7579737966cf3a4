"""The thread that lands finished work, and the checks that it runs."""

from __future__ import annotations

import threading
from typing import Any

from ralphproof.landing.merge_queue import LandingOptions, LandingQueue, combined_checks
from ralphproof.store.landings import LandingItem
from tests.cli.landing import check

NOBODY: Any = None


def test_closing_the_queue_lands_waiting_items_and_ends_the_thread() -> None:
    queue = LandingQueue(NOBODY, NOBODY, NOBODY, print, LandingOptions())
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


def test_a_command_runs_once_for_each_pass_rule() -> None:
    checks = [check("a"), check("a", clean=True), check("a", folder="sub"), check("b")]
    combined = combined_checks([LandingItem("r", "c", "t", tuple(checks[:3]))], checks)
    assert [(one.command, one.rule.folder) for one in combined] == [("a", "."), ("a", "sub"), ("b", ".")]
