"""Whoever decides by light records decides as by whole ones."""

from __future__ import annotations

import json

from hypothesis import example, given, settings
from hypothesis import strategies as some

from ralphproof.base.value import replace, unpack
from ralphproof.engine.actions import Action, Conclude, EndRun, RunConditions
from ralphproof.engine.events import Limited
from ralphproof.engine.limits import Limits
from ralphproof.engine.next_action import next_action
from ralphproof.engine.outcome import Aborted, Stopped
from ralphproof.engine.records import Record
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.state import State
from ralphproof.engine.workspace import Change, TouchedPath
from ralphproof.fleet.record_format import MAX_TEXT_CHARS, compact_record
from tests.engine.fake_environment import CLAIMING, CRASHING, EMPTY, RULES, WORKING, FakeEnvironment, Step

LONG = "x" * (MAX_TEXT_CHARS // 2 + 50)
NAMES = tuple(f"src/file_{number}.py" for number in range(200))
ERRORS = (f"{LONG} at 12:00:01 {LONG}", f"{LONG} at 13:05:59 {LONG}", f"{LONG} at port 80 {LONG}")
REPLIES = (
    WORKING, replace(WORKING, text=LONG * 2), CLAIMING, replace(CLAIMING, text=LONG + CLAIMING.text), CRASHING, EMPTY,
    *(replace(CRASHING, error=error) for error in ERRORS), replace(WORKING, micro_usd=None, exit=Exit(None, "timeout")),
    replace(CRASHING, limited=Limited("usage limit reached", 1_500.0)),
)  # fmt: skip
CHANGES = (
    Change(NAMES),
    Change(NAMES, older=NAMES),
    Change(NAMES, older=NAMES[:-1]),
    Change(),
    Change(("a",), tree="t"),
)
STEPS = some.builds(
    Step, some.sampled_from(REPLIES), some.sampled_from(CHANGES), some.sampled_from(((), ("tests",))),
    some.sampled_from(((), (TouchedPath("b", "a rule"),))),
)  # fmt: skip
TIGHT = replace(RULES, limits=Limits(replace(RULES.limits.budget, iterations=9), stall=3, same_error=3))


def told(step: Action) -> tuple[str, ...]:
    """What matters of an action: its kind, and why."""
    match step:
        case EndRun(Aborted(breach)) | Conclude(Stopped(breach)):
            return type(step).__name__, breach.reason
        case EndRun(outcome) | Conclude(outcome):
            return type(step).__name__, type(outcome).__name__
        case _:
            return (type(step).__name__,)


def after(state: State, record: object) -> State:
    assert isinstance(record, Record)
    return state.after(record)


@settings(max_examples=20, deadline=None)
@example([Step(replace(CRASHING, error=ERRORS[number])) for number in (0, 1, 0)])
@example([Step(replace(CRASHING, error=ERRORS[number])) for number in (0, 2, 0)])
@given(some.lists(STEPS, min_size=1, max_size=6))
def test_the_next_action_is_the_same_at_every_record(steps: list[Step]) -> None:
    world = FakeEnvironment(*steps, rules=TIGHT)
    world.run()
    whole, cut = State(), State()
    for record in world.ledger.appended:
        whole, cut = after(whole, record), after(cut, unpack(json.loads(json.dumps(compact_record(record)))))
        now = RunConditions(whole.run.elapsed_s, 1_000.0)
        assert told(next_action(cut, TIGHT, now)) == told(next_action(whole, TIGHT, now))
        assert (cut.spend, cut.iteration, cut.turn, cut.passed) == (
            whole.spend,
            whole.iteration,
            whole.turn,
            whole.passed,
        )


def test_fifty_iterations_stay_under_a_megabyte() -> None:
    step = Step(replace(WORKING, text=LONG * 60), Change(NAMES * 5, older=NAMES), ("tests",))
    world = FakeEnvironment(step, rules=replace(RULES, limits=Limits(replace(RULES.limits.budget, iterations=50))))
    world.run()
    sizes = [len(json.dumps(compact_record(record))) for record in world.ledger.appended]
    assert len(world.rebuilt().history.iterations) == 50
    assert sum(sizes) < 1_000_000
