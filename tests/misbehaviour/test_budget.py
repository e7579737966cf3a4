"""Budgets that runs share, warnings before they are used up, and those who would rather not be counted."""

from __future__ import annotations

import os
import shlex
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphproof.engine.agent import Spent, Turn, TurnInput, TurnWatcher
from ralphproof.engine.limits import SECONDS_PER_DAY, Budget, DaySpend, Limits, utc_day
from ralphproof.engine.outcome import Aborted
from ralphproof.engine.records import CheckBegan, TurnBegan, Warned
from ralphproof.engine.sandbox import Sandbox
from ralphproof.store.spend import SpendStore
from tests.engine.fake_environment import CLAIMING, WORKING, Crash, FakeEnvironment, with_limits
from tests.engine.fake_environment import Step as Turned
from tests.misbehaviour.agents import case
from tests.misbehaviour.crashing import kill_both
from tests.misbehaviour.invariants import hold, refusal
from tests.misbehaviour.machine import exits, recorded, there
from tests.misbehaviour.streams import Play, done, patient, plays, turn
from tests.misbehaviour.streams import run as run_known
from tests.ralph import Ended, Live, Ralph, Step, say, until, write
from tests.ralph import done as claims

Row = tuple[str, str, int, float, int | None]
ON: Step = {"append": {"work": "more\n"}}


def daily(ralph: Ralph, usd: float, **limits: object) -> None:
    """Settings with a budget for the day, in which no repetition ends a run."""
    ralph.settings(limits={"stallIterations": None, "sameErrorIterations": None, "dailyCostUsd": usd, **limits})


def run(ralph: Ralph, agent: str, *flags: str, most: int = 9, check: str = "false") -> Ended:
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", check, "-m", str(most), *flags)
    hold(ralph, ended)
    return ended


def start(ralph: Ralph, agent: str, most: int = 9) -> Live:
    return ralph.start("run", "-p", "make it so", "--agent", agent, "--check", "false", "-m", str(most))


def costing(*dollars: float) -> list[list[Step]]:
    """Iterations that cost so much each."""
    return [[ON, {"cost": cost}, say("on it")] for cost in dollars]


def stopped(ralph: Ralph) -> tuple[object, ...]:
    outcome = ralph.outcome()
    return outcome["exitCode"], outcome["reason"], outcome["iterations"]


def file(ralph: Ralph) -> Path:
    return ralph.state_dir / "spend.db"


def booked(ralph: Ralph) -> list[Row]:
    """All bookings of the user, in their order."""
    database = sqlite3.connect(file(ralph))
    try:
        return database.execute("SELECT run, call, day, at, micro_usd FROM booking ORDER BY seq").fetchall()
    finally:
        database.close()


def at_work(ralph: Ralph) -> dict[str, int]:
    """What calls have cost that are not over, as all runs of the user see it."""
    if not file(ralph).exists():
        return {}
    database = sqlite3.connect(file(ralph))
    try:
        return {call.rpartition("/")[2]: cost for call, cost in database.execute("SELECT call, micro_usd FROM live")}
    except sqlite3.OperationalError:
        return {}  # it is being made
    finally:
        database.close()


def today(ralph: Ralph) -> DaySpend:
    """What was spent today, as the next run would see it."""
    book = SpendStore.open(str(ralph.state_dir))
    try:
        return book.day_spend(time.time())
    finally:
        book.close()


def book(ralph: Ralph, micro_usd: int, epoch_s: float) -> None:
    """Something that another run of the user cost."""
    own = SpendStore.open(str(ralph.state_dir))
    own.book("another", f"call at {epoch_s}", Spent(micro_usd), epoch_s)
    own.close()


# Coming near


@pytest.mark.parametrize("flags", [case("RU-08-quiet", ("-q",)), case("RU-08-json", ("--json",))])
def test_a_limit_that_comes_near_is_told_once(ralph: Ralph, flags: tuple[str, ...]) -> None:
    """RU-08: on stderr, to programs and in the record, however quiet it should be."""
    daily(ralph, 1.25)
    ended = run(ralph, ralph.script(*costing(0.9, 0.08, 0.02)), "--max-cost-usd", "1.1", *flags, most=3)
    assert stopped(ralph) == (1, "MAX_ITERATIONS", 3), ended
    wanted = [
        "[Ralph] Cost at 80% of limit: $0.90 / $1.1",
        "[Ralph] Iteration at 90% of limit: 3 / 3",
        "[Ralph] Daily cost at 80% of limit: $1.00 / $1.25",
    ]
    assert [line for line in ended.err.splitlines() if line.startswith("[Ralph]")] == wanted
    assert [(told.iteration, told.message) for told in recorded(ralph, Warned)] == list(
        zip((1, 3, 3), wanted, strict=True)
    )
    if "--json" in flags:
        assert [line["data"]["message"] for line in ended.lines if line["type"] == "warning"] == wanted


def test_a_limit_that_is_passed_at_once_is_told_by_the_end_alone(ralph: Ralph) -> None:
    """RU-08"""
    ended = run(ralph, ralph.script(*costing(2)), "--max-cost-usd", "1", most=5)
    assert stopped(ralph) == (1, "COST_LIMIT", 1), ended
    assert recorded(ralph, Warned) == []


# Runs that share a day


class Beside(Ralph):
    """Another project of the same user."""

    @property
    def state_dir(self) -> Path:
        return self.folder.parent / "state"


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Ralph]:
    """A project beside that of `ralph`."""
    made = Beside(tmp_path / "other")
    yield made
    made.close()


def together(ralph: Ralph, name: str, waits_for: str) -> str:
    """An agent whose first turn lasts until that of another one has begun."""
    meets: list[Step] = [write(**{f"{ralph.folder}/{name}": ""}), {"until": f"{ralph.folder}/{waits_for}"}]
    first, *rest = costing(0.3, 0.3)
    return ralph.script([*meets, *first], *rest, name=name)


def test_two_runs_share_the_budget_of_a_day(ralph: Ralph, other: Ralph) -> None:
    """RU-09: and a third one starts neither its agent nor a check."""
    for one in (ralph, other):
        one.commit()
        daily(one, 1.0)
    lives = start(ralph, together(ralph, "a", "b")), start(other, together(ralph, "b", "a"))
    for one, ended in zip((ralph, other), [live.end() for live in lives], strict=True):
        hold(one, ended)
        assert stopped(one)[:2] == (1, "DAILY_COST_LIMIT"), ended
    costs = [row[4] for row in booked(ralph)]
    assert set(costs) == {300_000}
    assert 1_000_000 <= sum(300_000 for _ in costs) <= 1_600_000
    assert today(ralph) == DaySpend(300_000 * len(costs)), "and nothing in it is doubtful"
    ended = run(other, other.script([write(started="")]), check="touch checked")
    assert stopped(other) == (1, "DAILY_COST_LIMIT", 0), ended
    assert "all runs of this UTC day together spent" in ended.out.splitlines()[-1]
    assert [told for told in other.records() if isinstance(told, CheckBegan | TurnBegan)] == []
    assert {name for name in ("started", "checked") if (other.root / name).exists()} == set()


def test_an_agent_that_spends_what_is_left_of_the_day_is_ended_in_mid_turn(ralph: Ralph) -> None:
    """RU-09: by what others have spent, too."""
    daily(ralph, 1.0)
    book(ralph, 700_000, time.time())
    agent = ralph.script([ON, {"cost": 0.2}, {"cost": 0.31}, {"sleep": 60}])
    ended = run(ralph, agent)
    assert stopped(ralph) == (1, "DAILY_COST_LIMIT", 1), ended
    assert [(end.why, end.seconds < 20) for end in exits(ralph)] == [("stopped", True)]
    assert booked(ralph)[-1][4] == 310_000
    assert ralph.outcome()["details"]["message"].endswith("spent $1.01 of $1.00")


@pytest.mark.parametrize("dies", [False, True], ids=["", "one-without-its-harness"])
def test_runs_that_spend_at_the_same_time_are_ended_in_mid_turn_when_the_day_is_spent(
    ralph: Ralph, other: Ralph, dies: bool
) -> None:
    """RU-09: none of them alone spends what a day may cost, and none comes to the end of a turn."""
    for one in (ralph, other):
        one.commit()
        daily(one, 1.5)
    first = start(ralph, ralph.script([ON, {"cost": 0.5}, {"cost": 0.75}, {"until": str(ralph.folder / "never")}]))
    until(lambda: sum(at_work(ralph).values()) == 750_000, "the other sees what it has cost")
    meets: list[Step] = [write(**{f"{ralph.folder}/one": ""}), {"until": f"{ralph.folder}/go"}]
    last: list[Step] = [{"cost": 0.8}, {"until": f"{ralph.folder}/never"}]
    second = start(other, other.script([ON, {"cost": 0.7}, *meets, *last]))
    until((ralph.folder / "one").exists, "there is room for both")
    assert first.process.poll() is None
    if dies:
        first.process.kill()
        first.process.wait()
    (ralph.folder / "go").touch()
    assert second.end().code == 1
    if dies:
        until(lambda: not there(ralph.folder / "script.json"), "who stands in ends its turn too")
        ended = ralph("run", "--resume")
    else:
        ended = first.end()
    assert (ended.code, stopped(ralph), stopped(other)) == (1, *[(1, "DAILY_COST_LIMIT", 1)] * 2), ended
    assert sorted(row[4] or 0 for row in booked(ralph)) == [750_000, 800_000]
    assert (at_work(ralph), today(ralph)) == ({}, DaySpend(1_550_000))


def test_what_a_killed_turn_had_cost_counts_until_it_is_booked_and_then_once(ralph: Ralph, other: Ralph) -> None:
    """RU-14"""
    for one in (ralph, other):
        one.commit()
        daily(one, 1.0)
    live = start(ralph, ralph.script([ON, {"cost": 0.9}, {"until": str(ralph.folder / "never")}]))
    until(lambda: at_work(ralph) == {"agent_001": 900_000}, "what it has cost is told")
    kill_both(ralph, live)
    assert start(other, other.script([ON, {"cost": 0.2}, {"until": str(ralph.folder / "never")}])).end().code == 1
    assert stopped(other) == (1, "DAILY_COST_LIMIT", 1)
    told = ralph("cancel", "--json").json["outcome"]
    assert [row[4] for row in booked(ralph)] == [200_000, 900_000]
    assert (at_work(ralph), today(ralph)) == ({}, DaySpend(1_100_000))
    assert told["reason"] == "CANCELLED"


def test_the_call_for_a_commit_message_is_booked_too(ralph: Ralph) -> None:
    """RU-09, RU-14"""
    ralph.settings(scm={"command": "git", "tasks": ["commit"]}, limits={"dailyCostUsd": 0.5})
    ralph.commit()
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")
    agent = ralph.script([write(work="1"), {"cost": 0.25}, claims()], message=[{"cost": 0.5}, say("Add work")])
    ended = run(ralph, agent, check="test -f work")
    assert stopped(ralph) == (1, "DAILY_COST_LIMIT", 1), ended
    assert [(row[1].rpartition("/")[2], row[4]) for row in booked(ralph)] == [
        ("agent_001", 250_000),
        ("scm_001", 500_000),
    ]


def test_the_call_for_a_commit_message_whose_harness_died_has_cost_something(ralph: Ralph) -> None:
    """RU-14: what was last heard of it is booked."""
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    ralph.commit()
    asked = write(**{"../asked": ""})
    agent = ralph.script([write(work="1"), {"cost": 0.25}, claims()], message=[{"cost": 0.5}, asked, {"sleep": 60}])
    live = ralph.start("run", "-p", "make it so", "--agent", agent, "--check", "test -f work")
    until((ralph.folder / "asked").exists, "the agent is asked for a message")
    until(lambda: at_work(ralph) == {"scm_001": 500_000}, "what it has cost is told")
    live.process.kill()
    live.process.wait()
    assert ralph("cancel").code == 0
    found = [(row[1].rpartition("/")[2], row[4]) for row in booked(ralph)]
    assert found == [("agent_001", 250_000), ("scm_001", 500_000)]
    assert at_work(ralph) == {}


def test_the_day_is_capped_by_the_user_alone(ralph: Ralph) -> None:
    """RU-09: a repository may ask for less, and not for more."""
    ralph.settings(caps={"dailyCostUsd": 1000})
    agent = ralph.script([write(started=""), claims()])
    refusal(ralph, ralph("run", "-p", "make it so", "--agent", agent), "caps", "belongs in the user's own settings")
    daily(ralph, 100)
    assert "limits.dailyCostUsd is 100; caps.dailyCostUsd allows 50, so 50 holds" in run(ralph, agent, check="true").err
    book(ralph, 50_000_000, time.time())
    run(ralph, agent)
    assert stopped(ralph) == (1, "DAILY_COST_LIMIT", 0)


# Which day


@pytest.mark.parametrize("zone", [case("RU-10-east", "Etc/GMT-14"), case("RU-10-west", "Etc/GMT+12")])
def test_the_day_is_that_of_utc_wherever_the_user_is(ralph: Ralph, zone: str) -> None:
    """RU-10: what yesterday cost does not count any more, though it may be yesterday still at that place."""
    daily(ralph, 1.0)
    midnight = utc_day(time.time()) * SECONDS_PER_DAY
    book(ralph, 5_000_000, midnight - 1)
    ralph.env["TZ"] = zone
    before = time.time()
    run(ralph, ralph.script(*costing(0.3)), most=1)
    assert stopped(ralph) == (1, "MAX_ITERATIONS", 1)
    *_, (_, _, day, at, micro_usd) = booked(ralph)
    assert (day, micro_usd) == (at // SECONDS_PER_DAY, 300_000)
    assert before <= at <= time.time()


MIDNIGHT = 20_000.0 * SECONDS_PER_DAY


class Night(FakeEnvironment):
    """A world in which midnight passes during the second turn, and the harness may die at any record."""

    def take_turn(self, brief: TurnInput, sandbox: Sandbox, watch: TurnWatcher) -> Turn:
        reply = super().take_turn(brief, sandbox, watch)
        if len(self.turns) == 2:
            self.clock.now = max(self.clock.now, MIDNIGHT + 60)
        return reply


def night(daily_micro_usd: int) -> Night:
    """Three turns, of which the last one does it, from a minute before midnight on."""
    rules = with_limits(Limits(Budget(iterations=5, daily_micro_usd=daily_micro_usd)))
    red = Turned(failing=("tests",))
    world = Night(red, red, Turned(CLAIMING), rules=rules)
    world.clock.now = MIDNIGHT - 60
    return world


COST = WORKING.micro_usd or 0  # of every turn of that night


def test_a_turn_belongs_to_the_day_in_which_it_ended() -> None:
    """RU-10: of three turns the first is yesterday's, and what yesterday cost does not stop today's."""
    world = night(daily_micro_usd=2 * COST + 1)
    world.daily_spend.book("another", "call", Spent(COST), MIDNIGHT - 3600)
    outcome = world.run()
    assert (outcome.status, outcome.iterations) == ("COMPLETED", 3)
    assert (world.daily_spend.day_spend(MIDNIGHT - 1), world.daily_spend.day_spend(MIDNIGHT)) == (
        DaySpend(2 * COST),
        DaySpend(2 * COST),
    )


@pytest.mark.parametrize("after", [False, True])
def test_however_the_harness_dies_over_midnight_a_turn_is_booked_once(after: bool) -> None:
    """RU-10: at whichever record, before or after it is written; whatever is left is done a day later."""
    whole = night(daily_micro_usd=100 * COST)
    whole.run()
    for crash in range(whole.ledger.appends):
        world = night(daily_micro_usd=100 * COST)
        world.ledger.crash_at, world.ledger.crash_after = crash, after
        with pytest.raises(Crash):
            world.run()
        world.clock.now += SECONDS_PER_DAY
        assert world.run().status == "COMPLETED"
        spent = [world.daily_spend.day_spend(MIDNIGHT + days * SECONDS_PER_DAY).micro_usd for days in (-1, 0, 1)]
        assert sum(spent) == 3 * COST, (crash, spent)


# A harness that dies, and a file that somebody holds


def held(ralph: Ralph, path: Path) -> sqlite3.Connection:
    """The write lock of a file of ours."""
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    return holder


def waiting(ralph: Ralph) -> Live:
    """A run whose agent has begun its turn, and costs something as soon as `../go` is there."""
    agent = ralph.script([write(**{"../started": ""}), {"until": "../go"}, {"cost": 0.25}, say("on it")])
    live = start(ralph, agent, most=1)
    until((ralph.folder / "started").exists, "the agent works")
    return live


def go_on(ralph: Ralph, live: Live) -> None:
    """Let the agent end."""
    (ralph.folder / "go").touch()
    script = ralph.folder / "script.json"
    until(lambda: set(there(script)) <= {live.process.pid}, "the agent has ended")


@pytest.mark.parametrize(
    ("name", "micro_usd"),
    [case("RU-09-before-it-is-booked", "spend", None), case("RU-09-before-it-is-recorded", "ledger", 250_000)],
)
def test_what_a_killed_run_cost_is_booked_once_by_the_next_one(ralph: Ralph, name: str, micro_usd: int | None) -> None:
    """RU-09: as unknown, where its harness died before it could say how much."""
    live = waiting(ralph)
    holder = held(ralph, file(ralph) if name == "spend" else Path(ralph.project.store) / "ledger.db")
    go_on(ralph, live)
    if name == "ledger":
        until(lambda: booked(ralph), "the turn is booked")
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    holder.execute("ROLLBACK")
    holder.close()
    (killed,) = ralph.runs()
    for _ in range(2):
        run(ralph, ralph.script([claims()], name="next"), check="true")
    found = [(row[1], row[4]) for row in booked(ralph) if row[0] == killed.id]
    assert found == [(f"{killed.id}/agent_001", micro_usd)]
    assert today(ralph).unknown_reason == ""


def test_a_book_that_another_process_holds_for_a_while_is_waited_for(ralph: Ralph) -> None:
    """RU-09"""
    live = waiting(ralph)
    holder = held(ralph, file(ralph))
    go_on(ralph, live)
    time.sleep(0.5)  # the time that the harness must wait
    assert live.process.poll() is None
    holder.execute("ROLLBACK")
    holder.close()
    hold(ralph, live.end())
    assert stopped(ralph) == (1, "MAX_ITERATIONS", 1)
    assert today(ralph) == DaySpend(250_000)


def test_a_book_that_stays_held_ends_the_run_in_one_clear_line(tmp_path: Path) -> None:
    """RU-09"""
    own = SpendStore.open(str(tmp_path), busy_s=0.2)
    own.book("another", "call", Spent(1), MIDNIGHT)
    world = FakeEnvironment(rules=with_limits(Limits(Budget(daily_micro_usd=10**9))))
    world.daily_spend = own  # type: ignore[assignment]
    holder = sqlite3.connect(tmp_path / "spend.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    outcome = world.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.exit_code, outcome.iterations) == ("DAILY_COST_LIMIT", 1, 1)
    assert f"{tmp_path}/spend.db was locked by another process for too long" in outcome.breach.message
    assert "\n" not in outcome.breach.message
    assert world.saves == 1, "the agent's work is saved all the same"
    holder.close()
    own.close()


# Those who would rather not be counted


def forges(ralph: Ralph, python: str) -> Step:
    """A step: do this with the book; `db` is a connection to it."""
    where = str(ralph.state_dir)
    begin = f"import os, sqlite3; where = {where!r}; path = where + '/spend.db'; db = sqlite3.connect(path)"
    script = f"{begin}; {python}; db.commit()"
    return {"run": [sys.executable, "-I", "-c", script]}


FORGED = [
    case("RH-38-rows", "db.execute('DELETE FROM booking')", "gone or replaced"),
    case("RH-38-file", "[os.unlink(path + end) for end in ('', '-wal', '-shm')]", "deleted or replaced"),
    case("RH-38-everything", "[os.unlink(os.path.join(where, name)) for name in os.listdir(where) if 'spend' in name]",
         "deleted or replaced"),
    case("RH-38-table", "db.execute('DROP TABLE booking')", "damaged"),
]  # fmt: skip
LOWERED = "db.execute('UPDATE booking SET micro_usd = 0')"


@pytest.mark.parametrize(("forged", "why"), FORGED)
def test_bookings_that_vanish_in_mid_run_count_as_all_that_may_be_spent(ralph: Ralph, forged: str, why: str) -> None:
    """RH-38"""
    daily(ralph, 10)
    first, second = costing(0.3, 0.3)
    ended = run(ralph, ralph.script(first, [forges(ralph, forged), *second]))
    assert stopped(ralph) == (1, "DAILY_COST_LIMIT", 2), ended
    message = ralph.outcome()["details"]["message"]
    assert message.startswith("what was spent today is not known, so it counts as all: ")
    assert str(file(ralph)) in message
    assert why in message
    run(ralph, ralph.script([write(started="")]))
    assert stopped(ralph) == (1, "DAILY_COST_LIMIT", 0), "nor may any other run go on"
    assert not (ralph.root / "started").exists()


def test_amounts_that_are_lowered_in_mid_run_lower_nothing(ralph: Ralph) -> None:
    """RH-38: the run remembers what it has seen, and the next one sees that the file was changed."""
    daily(ralph, 1.0)
    first, *rest = costing(0.3, 0.3)
    ended = run(ralph, ralph.script(first, [forges(ralph, LOWERED), *rest[0]]))
    assert stopped(ralph) == (1, "DAILY_COST_LIMIT", 4), ended
    run(ralph, ralph.script([write(started="")]))
    assert stopped(ralph) == (1, "DAILY_COST_LIMIT", 0)
    assert "was changed, or one before it is missing" in ralph.outcome()["details"]["message"]


# Cheaper models first, and agents that take turns


def climbing(ralph: Ralph, **limits: object) -> None:
    ladder = {"ladder": ["haiku", "opus"]}
    ralph.settings(agent=ladder, limits={"stallIterations": 2, "sameErrorIterations": 2, **limits})


def models(ralph: Ralph) -> list[str]:
    """What the program was asked for, turn by turn."""
    lines = (ralph.folder / "arguments").read_text(encoding="utf-8").splitlines()
    return [words[words.index("--model") + 1] for words in map(shlex.split, lines)]


NOTES = 'echo "$*" >> ../arguments'
CLIMBS = [
    case("stall", NOTES, False, "STALL", ["haiku"] * 2 + ["opus"] * 2),
    case("same-error", f"{NOTES}; echo more >> work", False, "SAME_ERROR_5X", ["haiku"] * 2 + ["opus"] * 2),
    case("deep-debug-last", NOTES, True, "STALL", ["haiku"] * 2 + ["opus"] * 4),
]


@pytest.mark.parametrize(("does", "deep", "reason", "asked"), CLIMBS)
def test_a_ladder_is_climbed_where_the_run_would_have_ended(
    ralph: Ralph, does: str, deep: bool, reason: str, asked: list[str]
) -> None:
    """ST-01, ST-07"""
    climbing(ralph, escalateToDeepDebug=deep)
    plays(ralph, "claude", Play(done("working"), does=does))
    ended = run_known(ralph, "claude", check="false", most=20)
    assert (*stopped(ralph), models(ralph)) == (1, reason, len(asked), asked), ended


def test_agents_take_turns(ralph: Ralph) -> None:
    ralph.settings(
        agent={"rotate": [ralph.script([{"append": {name: "x"}}, say("on it")], name=name) for name in ("a", "b")]},
        limits={"stallIterations": None, "sameErrorIterations": None},
    )
    ended = ralph("run", "-p", "make it so", "--check", "false", "-m", "5")
    hold(ralph, ended)
    assert [past.change.paths for past in ralph.state().history.iterations] == [("a",), ("b",), ("a",), ("b",), ("a",)]


@pytest.mark.parametrize("limit", ["--max-cost-usd=1", "RALPH__LIMITS__DAILY_COST_USD"])
def test_a_limit_on_tokens_stands_in_for_a_cost_that_nobody_knows(ralph: Ralph, limit: str) -> None:
    """RU-03"""
    flags = (limit,) if limit.startswith("--") else ()
    ralph.env |= {} if flags else {limit: "1"}
    patient(ralph)
    counted = [*turn("codex")[:-1], {"type": "turn.completed", "usage": {"input_tokens": 900}}]
    plays(ralph, "codex", Play(counted, does="touch started"))
    argv = ("run", "-p", "make it so", "--agent", "codex", "--check", "true", "-m", "5", *flags)
    refusal(ralph, ralph(*argv), "codex", "--max-tokens")
    ended = run_known(ralph, "codex", "--max-tokens", "1000", *flags, most=5)
    assert stopped(ralph) == (1, "TOKEN_LIMIT", 2), ended
