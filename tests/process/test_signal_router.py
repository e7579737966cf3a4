"""Signals for all runs of one process."""

from __future__ import annotations

from ralphproof.engine.limits import INTERRUPTED
from ralphproof.engine.sandbox import CONTINUE, KILL
from ralphproof.process.signals import RunClock, SignalRouter


class SignalOnRelease:
    """A lock at whose release a signal arrives: the run is registered and not yet notified."""

    def __init__(self, router: SignalRouter) -> None:
        self._router = router

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._router._on_signals(1)


def test_a_signal_during_registration_is_counted_once() -> None:
    router, clock = SignalRouter(), RunClock(60.0)
    router._lock = SignalOnRelease(router)  # type: ignore[assignment]
    router.register("one", clock)
    assert clock.stop_reason() == INTERRUPTED
    assert clock.stop_level() == CONTINUE, "it has its grace period"
    router._on_signals(2)
    assert clock.stop_level() == KILL
    clock.close()


def test_a_run_that_registers_after_two_signals_is_killed_at_once() -> None:
    router, clock = SignalRouter(), RunClock(60.0)
    router.end_all()
    router.end_all()
    router.register("one", clock)
    assert clock.stop_level() == KILL
    clock.close()
