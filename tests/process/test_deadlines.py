"""Deadlines of a turn, and the signals that end it, with a fake time."""

from __future__ import annotations

import signal

from ralphproof.process.keeper import Termination, TurnDeadlines


def test_each_deadline_has_its_own_reason() -> None:
    clock = TurnDeadlines(100.0, timeout_s=50.0, idle_s=10.0, linger_s=3.0)
    assert (clock.due, clock.over(109.0), clock.over(110.0)) == (110.0, "", "idle")
    clock.on_activity(145.0)
    assert (clock.due, clock.over(150.0)) == (150.0, "timeout")
    clock.said_result(146.0)
    assert clock.over(149.0) == "lingered"
    clock.on_activity(148.0)
    assert clock.over(149.0) == ""


def test_a_repeated_result_notice_gives_no_more_time() -> None:
    clock = TurnDeadlines(0.0, timeout_s=50.0, idle_s=None, linger_s=3.0)
    clock.said_result(5.0)
    clock.said_result(7.0)
    assert (clock.due, clock.over(8.0)) == (8.0, "lingered")


def test_without_an_idle_limit_only_the_total_counts() -> None:
    clock = TurnDeadlines(0.0, timeout_s=50.0, idle_s=None, linger_s=3.0)
    assert (clock.due, clock.over(49.0)) == (50.0, "")


def test_a_suspension_moves_every_deadline() -> None:
    clock = TurnDeadlines(0.0, timeout_s=50.0, idle_s=10.0, linger_s=3.0)
    clock.said_result(5.0)
    clock.slip(100.0)
    assert (clock.due, clock.over(107.0), clock.paused_s) == (108.0, "", 100.0)


def test_termination_sends_term_once_then_kill_until_it_gives_up() -> None:
    ending = Termination(0.0, grace_s=5.0)
    assert [ending.next(now) for now in (0.0, 0.1, 4.9)] == [signal.SIGTERM, 0, 0]
    assert [ending.next(now) for now in (5.0, 5.001, 5.006)] == [signal.SIGKILL, 0, signal.SIGKILL]
    assert (ending.given_up(34.9), ending.given_up(35.0)) == (False, True)


def test_termination_can_be_hurried_but_not_delayed() -> None:
    ending = Termination(0.0, grace_s=5.0)
    ending.next(0.0)
    ending.hurry(1.0, 0.5)
    ending.hurry(2.0, 9.0)
    assert [ending.next(now) for now in (1.4, 1.5)] == [0, signal.SIGKILL]


def test_termination_without_grace_sends_kill_at_once() -> None:
    assert Termination(0.0, grace_s=0.0).next(0.0) == signal.SIGKILL
