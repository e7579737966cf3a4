"""Signals for all runs of one process."""

from __future__ import annotations

from ralphproof.engine.limits import INTERRUPTED
from ralphproof.engine.sandbox import CONTINUE, KILL
from ralphproof.process.signals import RunClock, SignalRouter


class PressedMeanwhile:
    """A lock after which Ctrl-C comes: the run is known by then, and has not heard of it yet."""

    def __init__(self, conductor: SignalRouter) -> None:
        self._conductor = conductor

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._conductor._on_signals(1)


def test_one_ctrl_c_while_a_run_begins_is_no_second_one_to_it() -> None:
    conductor, present = SignalRouter(), RunClock(60.0)
    conductor._lock = PressedMeanwhile(conductor)  # type: ignore[assignment]
    conductor.register("one", present)
    assert present.stop_reason() == INTERRUPTED
    assert present.stop_level() == CONTINUE, "it has its time of grace"
    conductor._on_signals(2)
    assert present.stop_level() == KILL
    present.close()


def test_a_run_that_begins_after_two_of_them_is_ended_at_once() -> None:
    conductor, present = SignalRouter(), RunClock(60.0)
    conductor.end_all()
    conductor.end_all()
    conductor.register("one", present)
    assert present.stop_level() == KILL
    present.close()
