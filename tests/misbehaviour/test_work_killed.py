"""`ralph work` that is killed: the task goes on in the stage where it was, and ends as one that nobody killed.

No turn, check or judgement that had ended is done again, and all of it is paid for once.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ralphproof.engine.outcome import Completed
from ralphproof.engine.state import RunOver
from ralphproof.process import turn_journal
from ralphproof.process.tree import is_alive
from ralphproof.store.run_state import find_live_turn, list_turn_files
from ralphproof.store.spend import live_spend_by_run
from tests.conftest import COUNTED, SAID
from tests.misbehaviour import invariants
from tests.misbehaviour.agents import prompt
from tests.misbehaviour.crashing import booked, kill, kill_both, nothing_left, quiet, walk
from tests.misbehaviour.tasks import (
    BACK,
    external,
    hats,
    keep,
    part,
    promise,
    semantic,
    several,
    skipped,
    status,
    verdicts,
)
from tests.ralph import Ended, Live, Ralph, Step, until, write

pytestmark = pytest.mark.thorough

Tell = Callable[[str, object], None]
AGENT_USD, JUDGE_USD = 0.1, 0.01


def counted(name: str, command: str) -> str:
    """A check that leaves a line when it has come to its end."""
    return f"{command}; s=$?; echo {name} >> ../checks; exit $s"


def start(stage: str) -> Step:
    """A step: leave a line at the beginning of a turn."""
    return {"append": {"../starts": f"{stage}\n"}}


def the_task(ralph: Ralph, id: str = "T-1") -> None:
    """Four stages, each with a check, two of them with a judge; the last one asks several checks at once."""
    keep(
        ralph, id,
        coder=external(counted("coder", "test -f made")),
        reviewer=several(part("style", external(counted("style", "test -f made"))), part("review", semantic())),
        tester=external(counted("tester", "test -f tests")),
        qa=several(
            *(part(name, external(counted(name, "sleep 0.1"))) for name in ("unit", "e2e", "load")),
            part("accepted", semantic()),
        ),
    )  # fmt: skip


def answer(ralph: Ralph) -> list[Step]:
    return [{"append": {str(ralph.folder / "judged"): "judged\n"}}, {"cost": JUDGE_USD}, {"judge": "yes"}]


def turn(stage: str, *steps: Step, word: str = "") -> list[Step]:
    return promise(word or stage, start(stage), {"cost": AGENT_USD}, *steps)


COURSE = [
    turn("coder", write(made="a first piece of work")),
    turn("reviewer", word=BACK),
    turn("coder", write(made="a mended piece of work")),
    turn("reviewer"),
    turn("tester", write(tests="a piece of test")),
    turn("qa"),
]
HATS = ["coder", "reviewer", "coder", "reviewer", "tester", "qa"]


@dataclass(frozen=True)
class End:
    """All that became of a task, without names and times of its own."""

    code: int
    told: str
    hats: list[str]
    verdicts: list[str]
    proof: str
    micro_usd: int
    booked: dict[str, int | None]
    paid: int
    starts: list[str]
    checks: dict[str, int]
    judged: int
    status: tuple[str, str]
    files: dict[str, str]


def lines(ralph: Ralph, name: str) -> list[str]:
    path = ralph.folder / name
    return path.read_text().splitlines() if path.exists() else []


def booked_all(ralph: Ralph) -> list[int]:
    """What every call of every run has cost, in micro-dollars."""
    database = sqlite3.connect(ralph.state_dir / "spend.db")
    rows = database.execute("SELECT micro_usd FROM booking").fetchall()
    database.close()
    return [int(cost) for (cost,) in rows]


def the_end(ralph: Ralph, ended: Ended) -> End:
    """What became of it; whatever is counted was counted outside of the project."""
    invariants.readable(ralph)
    invariants.unaltered(ralph)
    invariants.unlocked(ralph)
    nothing_left(ralph)
    phase, task = ralph.state().phase, status(ralph)
    assert isinstance(phase, RunOver)
    assert isinstance(phase.outcome, Completed), phase.outcome
    return End(
        ended.code, ended.out.splitlines()[-1], hats(ralph), verdicts(ralph), phase.outcome.proof,
        phase.outcome.spend.micro_usd, booked(ralph), sum(booked_all(ralph)), lines(ralph, "starts"),
        Counter(lines(ralph, "checks")),
        len(lines(ralph, "judged")), (task["status"], task["proof"]),
        {name: (ralph.root / name).read_text() for name in ("made", "tests")},
    )  # fmt: skip


def project(folder: Path) -> Ralph:
    ralph = Ralph(folder)
    ralph.write({"README": "A project.\n"})
    ralph.commit()
    the_task(ralph)
    return ralph


def command(ralph: Ralph, script: list[list[Step]] = COURSE) -> tuple[str, ...]:
    return ("work", "--agent", ralph.script(*script, answer=answer(ralph)))


# A kill of the harness after every record, and at every few steps


def killed(folder: Path, kinds: str, number: int) -> tuple[list[str], End]:
    """A task whose run died at this point and was gone on with; what had been done until then, and its end."""
    ralph = project(folder)
    try:
        words, log = command(ralph), folder / "log"
        ended = ralph(*words, dies=(str(log), kinds, str(number)))
        did = log.read_text().splitlines()
        reached = kinds == "records" or len(did) >= number  # how many steps a run takes differs by a few
        if number and reached:
            assert ended.code == -signal.SIGKILL, ended
            quiet(ralph)
            ended = ralph(*words)
            invariants.no_traceback(ended)
        if "nothing to do: every task is done" in ended.out:  # it was over, and only that was not said
            ended = Ended(ended.code, "T-1  done, verified", ended.err)
        return did, the_end(ralph, ended)
    finally:
        ralph.close()


@pytest.mark.parametrize("part", [slice(part, None, 4) for part in range(4)], ids=range(4))
def test_a_task_killed_after_any_record_ends_as_one_that_was_not(
    tmp_path: Path, part: slice, record_property: Tell
) -> None:
    """PR-10: the same stages, turns, checks, judgements, files and bill."""
    points, whole = walk(tmp_path, lambda folder, at: killed(folder, "records", at), part)
    assert (whole.hats, whole.starts) == (HATS, HATS)
    record_property(SAID, f"a task killed after each of {points} records, and gone on with")
    record_property(COUNTED, points)
    assert points >= 8


STEPS = [slice(5 + 13 * part, None, 53) for part in range(4)]


@pytest.mark.parametrize("part", STEPS, ids=range(4))
def test_a_task_killed_between_its_records_ends_as_one_that_was_not(
    tmp_path: Path, part: slice, record_property: Tell
) -> None:
    """PR-10: every 53rd step, in four parts that begin elsewhere."""
    points, whole = walk(tmp_path, lambda folder, at: killed(folder, "steps", at), part)
    assert (whole.hats, whole.starts) == (HATS, HATS)
    record_property(SAID, f"a task killed at {points} steps, and gone on with")
    record_property(COUNTED, points)
    assert points >= 8


# Kills of the harness, the keeper or both, in the middle of each thing that is done

TURNS = ("coder", "reviewer", "tester", "qa")
BATCH = ("unit", "e2e", "load")
CHECKS = ("coder-check", "style", "tester-check")
JUDGEMENTS = ("review", "accepted")
ALONE = (*TURNS, *CHECKS, *JUDGEMENTS)  # things that are at work without others beside them
MENDED = "a mended piece of work"


@dataclass
class Gated:
    """A task of which every turn, check and judgement waits at its gate; each says at `../at` that it has begun.

    The review sends the task back once: its check is not content with the coder's first turn.
    """

    ralph: Ralph

    def __post_init__(self) -> None:
        ralph = self.ralph
        ralph.write({"README": "A project.\n"})
        ralph.commit()
        keep(
            ralph,
            coder=external(self.check("coder-check", "test -f made")),
            reviewer=several(part("style", external(self.check("style", "grep -q mended made"))),
                             part("review", semantic())),
            tester=external(self.check("tester-check", "test -f tests")),
            qa=several(*(part(name, external(self.check(name, "true"))) for name in BATCH),
                       part("accepted", semantic())),
        )  # fmt: skip
        coded: Step = {"run": ["sh", "-c", f"test -e made && echo '{MENDED}' > made || echo 'a first piece' > made"]}
        does = {"coder": coded, "tester": write(tests="a piece of test")}
        judges = {"reviewer": "review", "qa": "accepted"}
        agents = {stage: {"agent": self.agent(stage, does.get(stage), judges.get(stage, ""))} for stage in TURNS}
        ralph.settings(stages=agents, agent={"command": agents["coder"]["agent"]})

    def check(self, name: str, command: str) -> str:
        """The gate is open before the first turn: the baseline is no work of anybody's."""
        gate = f"echo {name} >> ../at; until test -e ../go-{name}; do sleep 0.01; done"
        return f"if test -e ../starts; then {gate}; fi; {counted(name, command)}"

    def agent(self, stage: str, does: Step | None, judge: str) -> str:
        at, judged = str(self.ralph.folder / "at"), str(self.ralph.folder / "judged")
        steps = turn(stage, {"append": {"../at": f"{stage}\n"}}, {"until": f"../go-{stage}"}, *([does] if does else []))
        gate: list[Step] = [{"append": {at: f"{judge}\n"}}, {"until": str(self.ralph.folder / f"go-{judge}")}]
        asked: list[Step] = [{"append": {judged: f"{judge}\n"}}, {"cost": JUDGE_USD}, *gate, {"judge": "yes"}]
        return self.ralph.script(steps, answer=asked, name=stage)

    def open(self, *names: str, but: tuple[str, ...] = ()) -> None:
        """Let these go on, or all but some."""
        for name in names or (*ALONE, *BATCH):
            if name not in but:
                (self.ralph.folder / f"go-{name}").touch()

    def at(self, *names: str) -> Live:
        """`ralph work`, up to the moment at which these are at work and nothing else is."""
        self.open(but=names)
        live = self.ralph.start("work")
        until(lambda: set(names) <= set(lines(self.ralph, "at")), f"{names} at work")
        until(self.heard, "what it has cost so far is in its log")
        return live

    def heard(self) -> bool:
        """What agents and judges at work said of their cost is kept: it may be on its way to their keeper."""
        files = (Path(path) for path in list_turn_files(self.ralph.project, self.ralph.runs()[0].id))
        at_work = [file for file in files if turn_journal.read_turn_file(str(file)).result is None]
        logs = [file.with_suffix(".ndjson") for file in at_work if file.name.startswith(("agent", "judge"))]
        return all(log.exists() and "Spent" in log.read_text() for log in logs)

    def keepers(self) -> list[int]:
        """Those that have something of the run at work."""
        run = self.ralph.runs()[0].id
        pasts = [turn_journal.read_turn_file(path) for path in list_turn_files(self.ralph.project, run)]
        return [past.keeper[0] for past in pasts if past.began and past.result is None and is_alive(*past.keeper)]

    def on(self) -> Ended:
        """`ralph work` again when all has ended that was at work, with every gate open, to its end."""
        self.open()
        quiet(self.ralph)
        return self.ralph("work")

    def on_from(self, live: Live, *names: str) -> Ended:
        """Let everything go on as soon as these are at work for the second time, to the end."""
        until(lambda: all(lines(self.ralph, "at").count(name) == 2 for name in names), f"{names} at work again")
        self.open()
        return live.end()


@pytest.fixture
def gated(ralph: Ralph) -> Gated:
    return Gated(ralph)


STARTS = ["coder", "reviewer", "coder", "reviewer", "tester", "qa"]
# Each check is asked once before the first turn, then in its stage, and at the end by the last stage.
WHOLE = {"coder-check": 4, "style": 4, "tester-check": 3, **dict.fromkeys(BATCH, 2)}
# What a turn left that was cut off is looked at by its stage's checks.
LOOKED_AT = {"coder": ("coder-check",), "reviewer": ("style",), "tester": ("tester-check",), "qa": tuple(WHOLE)}


def done(gated: Gated, ended: Ended, again: str = "") -> None:
    """The task ended as if nobody had been killed, but that this turn or judgement had to be begun again."""
    ralph = gated.ralph
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "T-1  done, verified"), ended
    invariants.hold(ralph, ended)
    nothing_left(ralph)
    place = STARTS.index(again) if again in STARTS else 0
    starts = [*STARTS[:place], again, *STARTS[place:]] if again in STARTS else STARTS
    assert (lines(ralph, "starts"), hats(ralph)) == (starts, starts)
    assert lines(ralph, "judged") == [name for name in JUDGEMENTS for _ in range(1 + (name == again))]
    looked_at = LOOKED_AT.get(again, ())
    assert Counter(lines(ralph, "checks")) == {name: times + (name in looked_at) for name, times in WHOLE.items()}
    assert (ralph.root / "made").read_text() == f"{MENDED}\n"
    spent = round(1e6 * (AGENT_USD * len(starts) + JUDGE_USD * len(lines(ralph, "judged"))))
    assert sum(cost or 0 for cost in booked(ralph).values()) == spent
    assert ralph.state().spend.micro_usd == spent
    assert (status(ralph)["status"], status(ralph)["proof"]) == ("done", "verified")


EACH = [*((name,) for name in ALONE), BATCH[:2]]  # at least two checks are asked at once, on any machine


@pytest.mark.parametrize("at", EACH, ids="+".join)
def test_a_harness_killed_in_the_middle_of_anything_costs_nothing(gated: Gated, at: tuple[str, ...]) -> None:
    """PR-10: what was at work ends by itself, and its result is used."""
    kill(gated.at(*at))
    done(gated, gated.on())
    begun = Counter(lines(gated.ralph, "at"))
    assert {name: begun[name] + 1 for name in WHOLE} == WHOLE, "none was begun twice"


@pytest.mark.parametrize("at", EACH, ids="+".join)
def test_what_dies_with_its_keeper_and_its_harness_is_done_again_and_nothing_else_is(
    gated: Gated, at: tuple[str, ...]
) -> None:
    """PR-10"""
    live = gated.at(*at)
    os.kill(live.process.pid, signal.SIGSTOP)  # it must not see that its keepers are gone
    for keeper in gated.keepers():
        os.kill(keeper, signal.SIGKILL)
    kill(live)
    done(gated, gated.on_from(gated.ralph.start("work"), *at), again=at[0])


@pytest.mark.parametrize("at", EACH, ids="+".join)
def test_a_keeper_that_dies_alone_is_no_loss(gated: Gated, at: tuple[str, ...]) -> None:
    """PR-10: the harness sees it, and begins again what it had at work."""
    live = gated.at(*at)
    for keeper in gated.keepers():
        os.kill(keeper, signal.SIGKILL)
    done(gated, gated.on_from(live, *at), again=at[0])


@pytest.mark.parametrize("named", [(), ("T-1",)], ids=["all", "named"])
@pytest.mark.parametrize("at", EACH, ids="+".join)
def test_what_is_still_at_work_is_followed_to_its_end(
    gated: Gated, at: tuple[str, ...], named: tuple[str, ...]
) -> None:
    """PR-10: nobody has to wait until a turn without a harness is over."""
    kill(gated.at(*at))
    live = gated.ralph.start("work", *named)
    until(lambda: "Taken up again" in Path(live.err.name).read_text() or live.process.poll() is not None, "it goes on")
    gated.open()
    done(gated, live.end())
    begun = Counter(lines(gated.ralph, "at"))
    assert {name: begun[name] + 1 for name in WHOLE} == WHOLE, "none was begun twice"


# Between two tasks


def two_tasks(ralph: Ralph) -> tuple[str, ...]:
    """The command that works on two tasks, the second of which needs the first."""
    ralph.write({"README": "A project.\n"})
    ralph.commit()
    for id, after in (("T-1", ()), ("T-2", ("T-1",))):
        keep(ralph, id, after, coder=external(f"echo {id} >> ../checks; test -f made"))
    agent = ralph.script(turn("coder", {"run": ["sh", "-c", "echo $RALPH_TASK >> ../tasks"]}, write(made="some work")))
    return ("work", "--agent", agent, *skipped("coder"))


def between(tmp_path: Path) -> range:
    """The records around the end of the first task, and the beginning of the second one."""
    ralph = Ralph(tmp_path / "whole")
    words, log = two_tasks(ralph), tmp_path / "log"
    assert ralph(*words, dies=(str(log), "records", "0")).code == 0
    ralph.close()
    did = log.read_text().splitlines()
    second = did.index("begin_run", 1) + 1
    return range(second - 2, second + 3)


def test_a_kill_between_two_tasks_repeats_neither(tmp_path: Path) -> None:
    """PR-10"""
    for number in between(tmp_path):
        ralph = Ralph(tmp_path / str(number))
        words, log = two_tasks(ralph), ralph.folder / "log"
        ended = ralph(*words, dies=(str(log), "records", str(number)))
        assert ended.code == -signal.SIGKILL, ended
        quiet(ralph)
        ended = ralph(*words)
        assert ended.code == 0, (number, ended)
        invariants.hold(ralph, ended)
        assert lines(ralph, "tasks") == ["T-1", "T-2"], number
        assert Counter(lines(ralph, "checks")) == {"T-1": 2, "T-2": 2}, number
        assert [status(ralph, id)["proof"] for id in ("T-1", "T-2")] == ["verified", "verified"]
        assert sum(booked_all(ralph)) == round(2e6 * AGENT_USD)
        nothing_left(ralph)
        ralph.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_a_signal_ends_the_whole_work_and_the_next_task_is_not_begun(ralph: Ralph, number: int) -> None:
    words = two_tasks(ralph)
    steps = json.loads((ralph.folder / "script.json").read_text())["iterations"][0]
    waits: list[Step] = [write(**{"../working": ""}), {"until": "../go"}]
    ralph.script([*waits, *steps])
    live = ralph.start(*words)
    until((ralph.folder / "working").exists, "the first task is at work")
    pressed(live, number)
    (ralph.folder / "go").touch()
    ended = live.end()
    assert (ended.code, lines(ralph, "tasks"), len(ralph.runs())) == (130, ["T-1"], 1), ended
    assert [status(ralph, id)["status"] for id in ("T-1", "T-2")] == ["todo", "todo"]
    assert ralph(*words).code == 0
    assert lines(ralph, "tasks") == ["T-1", "T-2"]


# Signals, and ralph cancel


def hasty(gated: Gated) -> Gated:
    """Nobody waits long for what was asked to end."""
    settings = json.loads((gated.ralph.root / ".ralph/settings.json").read_text())
    gated.ralph.settings(**settings, shutdownGraceSeconds=0.2)
    return gated


@pytest.mark.parametrize("at", EACH, ids="+".join)
def test_a_task_is_cancelled_in_the_middle_of_anything(gated: Gated, at: tuple[str, ...]) -> None:
    live = hasty(gated).at(*at)
    asked = gated.ralph("cancel", "T-1")
    assert (asked.code, asked.out.splitlines()[-1]) == (0, "task T-1 is cancelled"), asked
    ended = live.end()
    assert ended.code == 130, ended
    invariants.hold(gated.ralph, ended)
    assert ended.out.splitlines()[-1].startswith("T-1  CANCELLED"), ended.out
    assert gated.ralph.state().bill.micro_usd == sum(booked_all(gated.ralph))
    nothing_left(gated.ralph)
    before = lines(gated.ralph, "at")
    again = gated.ralph("work")
    assert (again.code, again.out) == (0, "nothing to do: no task is open (see ralph task list)\n"), again
    assert (lines(gated.ralph, "at"), status(gated.ralph)["status"]) == (before, "cancelled")


def pressed(live: Live, number: int = signal.SIGINT) -> None:
    """Send a signal, and wait until it was heard."""
    live.process.send_signal(number)
    until(lambda: "shutting down" in Path(live.err.name).read_text(), "the signal is heard")


def interrupted(gated: Gated, live: Live) -> None:
    """The run ended as one that was asked to, and says of money what the user's book says."""
    ended = live.end()
    assert ended.code == 130, ended
    invariants.hold(gated.ralph, ended)
    assert ended.out.splitlines()[-1].startswith("T-1  INTERRUPTED"), ended.out
    nothing_left(gated.ralph)
    assert status(gated.ralph)["status"] == "todo"
    assert gated.ralph.state().bill.micro_usd == sum(booked_all(gated.ralph))


@pytest.mark.parametrize("at", EACH, ids="+".join)
def test_after_ctrl_c_what_is_at_work_may_finish_and_is_not_done_again(gated: Gated, at: tuple[str, ...]) -> None:
    live = gated.at(*at)
    pressed(live)
    gated.open()
    interrupted(gated, live)
    done(gated, gated.on())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
@pytest.mark.parametrize("at", EACH, ids="+".join)
def test_what_does_not_finish_in_its_grace_is_ended_and_the_task_goes_on(
    gated: Gated, at: tuple[str, ...], number: int
) -> None:
    live = hasty(gated).at(*at)
    pressed(live, number)
    interrupted(gated, live)
    done(gated, gated.on_from(gated.ralph.start("work"), *at), again=at[0])


@pytest.mark.parametrize("at", EACH, ids="+".join)
def test_a_second_ctrl_c_ends_everything_at_once(gated: Gated, at: tuple[str, ...]) -> None:
    live = gated.at(*at)
    pressed(live)
    began = time.monotonic()
    live.process.send_signal(signal.SIGINT)
    interrupted(gated, live)
    assert time.monotonic() - began < 8, "of the ten seconds that one signal leaves"
    done(gated, gated.on_from(gated.ralph.start("work"), *at), again=at[0])


# Money, and prompts, while nobody looks


def dear(ralph: Ralph) -> Live:
    """A task whose judge waits, to spend far more than the run may as soon as it may go on."""
    ralph.write({"README": "A project.\n"})
    ralph.commit()
    keep(ralph, coder=several(part("green", external("true")), part("judge", semantic(max_cost_usd=5))))
    begins, waits = write(**{str(ralph.folder / "judging"): ""}), {"until": str(ralph.folder / "go")}
    spends: list[Step] = [{"cost": 0.25}, begins, waits, {"cost": 3}, {"sleep": 20}, {"judge": "yes"}]
    agent = ralph.script(turn("coder", write(made="some work")), answer=spends)
    live = ralph.start("work", "--agent", agent, *skipped("coder"), "--max-cost-usd", "1")
    until((ralph.folder / "judging").exists, "the judge is asked")
    until(lambda: live_spend_by_run(str(ralph.state_dir)) == {ralph.runs()[0].id: 250_000}, "what it has cost is told")
    return live


def test_a_judge_that_spends_while_nobody_looks_is_ended_for_its_cost(ralph: Ralph) -> None:
    """PR-10, RU-14: as an agent is."""
    kill(dear(ralph))
    (ralph.folder / "go").touch()
    (row,) = ralph.runs()
    until(lambda: find_live_turn(ralph.project, row.id) is None, "the judge is ended", 10)


def test_what_a_judge_had_cost_is_told_when_its_run_is_cancelled_without_a_harness(ralph: Ralph) -> None:
    """RU-14: what was last heard of it."""
    kill(dear(ralph))
    assert ralph("cancel", "T-1").code == 0
    assert (ralph.outcome()["costUSD"], ralph.outcome()["cost"]["atLeast"]) == (0.35, True)
    assert booked(ralph) == {"agent_001": 100_000, "judge_001_1_1_judge-stopped1": 250_000}
    assert live_spend_by_run(str(ralph.state_dir)) == {}


def test_what_a_judge_had_cost_is_booked_once_where_the_next_run_closes_its_own(ralph: Ralph) -> None:
    """RU-14, EN-16: the first of two that come upon it writes it down; the other one finds it written."""
    kill_both(ralph, dear(ralph))
    agent = ralph.script(promise("coder", {"cost": AGENT_USD}))
    ended = [ralph("run", "-p", "x", "--agent", agent, "-m", "1") for _ in range(2)]
    assert "its judge cost at least $0.25" in ended[0].err
    assert "its judge cost" not in ended[1].err
    assert [cost for call, cost in booked(ralph).items() if "judge" in call] == [250_000]


FINE = "# {{title}}\n\n{{description}}\n\nSay that it is fine.\n\n{{promise}}\n"


@pytest.mark.parametrize("cut_off", [False, True], ids=["ended", "cut-off"])
def test_a_stage_is_not_told_what_an_agent_wrote_before_the_harness_died(ralph: Ralph, cut_off: bool) -> None:
    """RH-05: it is put back, and nobody goes on with what was read before that."""
    ralph.write({"README": "A project.\n"})
    ralph.commit()
    keep(ralph, coder=external("test -f made"), reviewer=external("test -f made"))
    hack = write(**{".ralph/templates/reviewer.md": FINE, "../working": ""})
    made = write(made="some work")
    script = [turn("coder", hack, {"until": "../go"}, made), turn("coder", made), turn("reviewer")]
    words = ("work", "--agent", ralph.script(*script), *skipped("coder", "reviewer"))
    live = ralph.start(*words)
    until((ralph.folder / "working").exists, "the agent is at work")
    if cut_off:
        kill_both(ralph, live)
    else:
        kill(live)
        (ralph.folder / "go").touch()
    quiet(ralph)
    ended = ralph(*words)
    ended = ralph(*words) if ended.code == 2 else ended
    assert ended.code == 0, ended
    assert hats(ralph)[-1] == "reviewer"
    assert "Say that it is fine" not in prompt(ralph, len(hats(ralph)))
