"""Looking on at a run from another terminal."""

from __future__ import annotations

import signal

import pytest

from ralphproof.engine.agent import Event, Said
from ralphproof.engine.records import Record
from ralphproof.engine.sandbox import CONTINUE, STOP
from ralphproof.runs.displays import MAX_EARLIER_EVENTS, EventRelay
from tests.cli.steering import detached, let, lose_harness, over, reached, shown, shows, waits_for
from tests.ralph import Ralph, done, say, until, write


@pytest.fixture(autouse=True)
def _project(ralph: Ralph) -> None:
    ralph.commit()


def test_records_and_words_are_shown_live_and_the_end_with_its_exit_code(ralph: Ralph) -> None:
    one = [say("before you came"), waits_for("one"), say("and after"), write(a="1")]
    run = detached(ralph, ralph.script(one, [waits_for("two"), say("two speaks"), done()]), "--check", "test -f a")
    reached(ralph, "one")
    live = ralph.start("attach")
    shows(live, "before you came")
    assert shown(live).startswith(f"run {run} is running (pid ")
    assert "; iteration 1: the agent works, for " in shown(live)
    assert "; Ctrl-C detaches, the run continues\n" in shown(live)
    let(ralph, "one")
    shows(live, "Iteration 2 of 10\n")
    assert "and after\n[OK] Complete" in shown(live)
    assert "guardrail test -f a passed" in shown(live)
    let(ralph, "two")
    ended = live.end()
    assert ended.code == 0
    assert ended.out.startswith("COMPLETED, verified by its checks: 2 iterations")
    assert "two speaks" in ended.err
    assert ended.err.endswith(f"run {run} is over; ralph status, logs and diff say more\n")


def test_turns_that_are_over_before_anybody_looks_are_shown_whole_and_in_order(ralph: Ralph) -> None:
    quick = [[say(f"turn {number}"), write(a=str(number))] for number in (2, 3, 4)]
    detached(ralph, ralph.script([waits_for("one"), say("turn 1")], *quick, [say("turn 5"), done()]))
    reached(ralph, "one")
    live = ralph.start("attach")
    shows(live, "the agent works")
    let(ralph, "one")
    told = live.end().err.splitlines()
    wanted = [line for number in range(1, 6) for line in (f"Iteration {number} of 10", f"turn {number}")][1:]
    assert [line for line in told if line.startswith(("Iteration", "turn"))] == wanted


def test_two_look_on_at_once_and_see_the_same(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([say("hello"), waits_for("one"), done()]))
    reached(ralph, "one")
    both = [ralph.start("attach", run) for _ in range(2)]
    for live in both:
        shows(live, "hello")
    let(ralph, "one")
    first, second = (live.end() for live in both)
    assert (first.code, second.code) == (0, 0)
    assert first.out == second.out
    assert first.err.splitlines()[1:] == second.err.splitlines()[1:]


def test_ctrl_c_leaves_and_the_run_goes_on(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([say("hello"), waits_for("one"), done()]))
    reached(ralph, "one")
    before = ralph.records(run)
    live = ralph.start("attach")
    shows(live, "hello")
    live.process.send_signal(signal.SIGINT)
    ended = live.end()
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines()[-1] == f"run {run} continues; attach again: ralph attach {run}"
    assert ralph("status", "--json").json["state"] == "running"
    assert ralph.records(run) == before
    let(ralph, "one")
    assert over(ralph, run)["status"] == "COMPLETED"


def test_programs_read_where_it_stands_then_every_record_then_the_end(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([waits_for("one"), say("hi"), done()]), "--check", "true")
    reached(ralph, "one")
    live = ralph.start("attach", "--json", "-V", "-q")
    until(lambda: '"run.attached"' in (ralph.folder / "live-0.out").read_text(), "it is attached")
    let(ralph, "one")
    ended = live.end()
    first, *lines = ended.lines
    assert (first["type"], first["run"], first["data"]["state"]) == ("run.attached", run, "running")
    assert first["data"]["activity"] == "iteration 1: the agent works"
    kinds = [line["type"] for line in lines]
    assert [kind for kind in kinds if not kind.startswith("agent.")] == [
        "turn.ended", "work.saved", "check.started", "check.ended", "iteration.ended", "plan.finished", "run.ended",
    ]  # fmt: skip
    assert {"text": "hi"}.items() <= next(line for line in lines if line["type"] == "agent.said")["data"].items()
    assert lines[-1]["data"]["status"] == "COMPLETED"


@pytest.mark.parametrize(("steps", "code", "word"), [([done()], 0, "COMPLETED"), ([say("no")], 1, "MAX_ITERATIONS")])
def test_a_run_that_has_ended_tells_its_end_at_once(ralph: Ralph, steps: list[object], code: int, word: str) -> None:
    assert ralph("run", "-p", "x", "--agent", ralph.script(steps), "-m", "1").code == code  # type: ignore[arg-type]
    told = ralph("attach")
    assert told.code == code
    assert word in told.out
    lines = ralph("attach", "latest", "--json").lines
    assert [line["type"] for line in lines] == ["run.attached", "run.ended"]
    assert lines[-1]["data"]["exitCode"] == code


def test_a_run_that_lost_its_harness_says_so_with_the_way_on(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([say("hello"), waits_for("one"), done()]))
    reached(ralph, "one")
    live = ralph.start("attach")
    shows(live, "hello")
    lose_harness(ralph, run)
    for told in (live.end(), ralph("attach", run)):
        assert (told.code, told.out) == (2, "")
        assert f"run {run} lost its harness" in told.err
        assert "its harness died while the agent was at iteration 1; the turn is still at work" in told.err
        assert f"take it up: ralph run --resume {run}; close it: ralph cancel {run}" in told.err


def test_a_run_that_was_taken_up_in_mid_turn_is_followed_too(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([say("hello"), waits_for("one"), done()]))
    reached(ralph, "one")
    lose_harness(ralph, run)
    harness = ralph.start("resume", run)
    until(lambda: ralph.state(run).run.session == 2, "it is taken up")
    live = ralph.start("attach")
    shows(live, "hello")
    let(ralph, "one")
    assert (harness.end().code, live.end().code) == (0, 0)


def test_without_its_agent_records_alone_are_shown_and_that_is_said(ralph: Ralph) -> None:
    ralph.settings(agent={"command": ralph.script([say("hello"), waits_for("one"), done()])})
    told = ralph("run", "-p", "x", "--detach")
    assert told.code == 0
    reached(ralph, "one")
    ralph.settings(agent={"command": "another-agent"})
    live = ralph.start("attach")
    shows(live, "what scripted says cannot be shown from here; ralph logs -f shows it raw\n")
    let(ralph, "one")
    ended = live.end()
    assert ended.code == 0
    assert "[OK] Complete" in ended.err
    assert "hello" not in ended.err
    assert ralph("attach").code == 0


def test_without_a_run_there_is_nothing_to_look_at(ralph: Ralph) -> None:
    told = ralph("attach")
    assert told.code == 2
    assert "no run yet" in told.err


class Wall:
    """Whoever looks on."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_record(self, record: Record) -> None:
        """Nothing is recorded here."""

    def on_events(self, events: list[Event]) -> None:
        self.events += events

    def tick(self) -> None:
        """Time tells nothing."""


def test_of_a_long_turn_only_the_last_is_shown_to_whoever_comes_late() -> None:
    wall, said = Wall(), list[str]()
    gaze = EventRelay((wall,), lambda: True, said.append, late=True)
    every: list[Event] = [Said(str(number)) for number in range(MAX_EARLIER_EVENTS + 7)]
    gaze.events(every[:3])
    gaze.events(every[3:])
    assert wall.events == []
    gaze.catch_up()
    assert wall.events == every[7:]
    assert said == ["7 earlier things that the agent said and did are in ralph logs"]
    gaze.catch_up()
    gaze.events([Said("new")])
    assert wall.events == [*every[7:], Said("new")]
    assert len(said) == 1


def test_a_turn_is_left_once_its_run_has_no_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr("ralphproof.runs.displays.time.monotonic", lambda: now_s[0])
    gaze = EventRelay((Wall(),), lambda: now_s[0] < 101, lambda _: None, late=False)
    assert gaze.tick() == CONTINUE
    now_s[0] += 2
    assert gaze.tick() == STOP
