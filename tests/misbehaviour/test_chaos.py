"""Kills at every step and at random: a run that is taken up again and again ends as one that nobody killed.

Nothing that ended is done twice, nothing is lost, and every limit holds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ralphproof.engine.limits import COST_LIMIT, MAX_ITERATIONS
from ralphproof.engine.outcome import Aborted, Completed, Outcome
from ralphproof.engine.records import RunEnded, Saved, TurnEnded
from ralphproof.engine.state import RunOver
from ralphproof.process import turn_journal
from ralphproof.process.tree import child_pids, is_alive
from ralphproof.runs.assembly import PROTECTED_COPIES_FOLDER
from ralphproof.store.run_state import list_turn_files
from tests.conftest import COUNTED, SAID
from tests.misbehaviour import invariants
from tests.misbehaviour.crashing import (
    RUN,
    START,
    booked,
    count,
    keeper_of,
    kill,
    nothing_left,
    resume,
    turns,
    walk,
    whys,
)
from tests.misbehaviour.machine import command_line, recorded
from tests.ralph import Ended, Live, Ralph, Step, done, say, until, write

pytestmark = pytest.mark.thorough

Tell = Callable[[str, object], None]


# A kill after every record, and at every few steps


@dataclass(frozen=True)
class End:
    """All that a run came to, without names and times of its own."""

    code: int
    iterations: int
    micro_usd: int
    reason: str
    starts: int
    checks: tuple[int, int]
    log: str
    status: str
    refs: tuple[str, ...]
    booked: dict[str, int | None]
    files: dict[str, str]
    left: list[int]


MESSAGE = [START, {"cost": 0.01}, write(stray="x", kept="changed by the call"), say("Do it")]
CHECKS = ("grep -q [23] work; s=$?; echo check >> ../checks; exit $s", "echo check >> ../others; date +%N > written")
DONE: list[list[Step]] = [
    [START, {"cost": 0.1}, write(work="1")],
    [START, {"cost": 0.1}, write(work="2")],
    [START, {"cost": 0.1}, write(work="3"), done()],
]
TRIPPED: list[list[Step]] = [DONE[0], [START, {"cost": 0.1}, write(work="2", guarded="changed"), done()]]


def made(ralph: Ralph) -> None:
    ralph.write({"kept": "as it was", "guarded": "as it was"})
    ralph.commit()
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})


def argv(ralph: Ralph, script: list[list[Step]]) -> tuple[str, ...]:
    agent = ralph.script(*script, message=MESSAGE)
    checks = [word for check in CHECKS for word in ("--check", check)]
    return (*RUN, "--agent", agent, "--protect", "guarded", *checks)


def ended(ralph: Ralph, code: int) -> End:
    """What came of it; whatever is counted was counted outside of the project."""
    invariants.readable(ralph)
    invariants.unaltered(ralph)
    invariants.unlocked(ralph)
    phase = ralph.state().phase
    assert isinstance(phase, RunOver)
    reason = phase.outcome.reason if isinstance(phase.outcome, Aborted) else ""
    refs = (name.rpartition("/")[2] for name in ralph.git("for-each-ref", "--format=%(refname)", "refs/ralph").split())
    files = {name: (ralph.root / name).read_text() for name in ("kept", "guarded", "work")}
    assert not list((ralph.root / ".git").glob("*.lock"))
    return End(
        code, phase.outcome.iterations, phase.outcome.spend.micro_usd, reason, count(ralph, "starts"),
        (count(ralph, "checks"), count(ralph, "others")), ralph.git("log", "--format=%s %T"),
        ralph.git("status", "--porcelain"), tuple(sorted(name for name in refs if "theirs" not in name)),
        booked(ralph), files, [pid for row in ralph.runs() for pid in ralph.processes(row.id)],
    )  # fmt: skip


def killed(folder: Path, script: list[list[Step]], kinds: str, number: int) -> tuple[list[str], End]:
    """A run that died at this point and was taken up again; what it had done until then, and its end."""
    ralph = Ralph(folder)
    try:
        made(ralph)
        words, log = argv(ralph, script), folder / "log"
        first = ralph(*words, dies=(str(log), kinds, str(number)))
        did, code = log.read_text().splitlines(), first.code
        if number and code == -signal.SIGKILL:
            again = resume(ralph)
            invariants.no_traceback(again)
            code = again.code
            if "there is no run to resume" in again.err:
                code = ralph(*words).code
            elif code == 2:  # it was over, and only that was not said
                assert "is completed" in again.err or "ended for good" in again.err, again
                (end,) = recorded(ralph, RunEnded)
                code = end.outcome.exit_code
        return did, ended(ralph, code)
    finally:
        ralph.close()


PARTS = [slice(part, None, 4) for part in range(4)]


@pytest.mark.parametrize("script", [DONE, TRIPPED], ids=["done", "tripped"])
@pytest.mark.parametrize("part", PARTS, ids=range(4))
def test_a_run_killed_after_any_record_ends_as_one_that_was_not(
    tmp_path: Path, script: list[list[Step]], part: slice, record_property: Tell
) -> None:
    """PR-10, PR-13: the same iterations, commits, starts, checks, files and bill."""
    points, _ = walk(tmp_path, lambda folder, at: killed(folder, script, "records", at), part)
    record_property(SAID, f"killed after each of {points} records, and taken up")
    record_property(COUNTED, points)
    assert points >= 2


SPARSE = [slice(3 + 8 * part, None, 31) for part in range(4)]


@pytest.mark.parametrize("part", SPARSE, ids=range(4))
def test_a_run_killed_between_its_records_ends_as_one_that_was_not(
    tmp_path: Path, part: slice, record_property: Tell
) -> None:
    """PR-10, PR-13: every 31st step, in four parts that begin elsewhere."""
    points, _ = walk(tmp_path, lambda folder, at: killed(folder, DONE, "steps", at), part)
    record_property(SAID, f"killed at {points} steps, and taken up")
    record_property(COUNTED, points)
    assert points >= 10


def test_what_a_run_could_not_do_after_its_end_whoever_looks_next_does(ralph: Ralph) -> None:
    """Outcome, proof and figures are published, the figures once; what was kept for the time of the run goes."""
    made(ralph)
    words, log = argv(ralph, DONE), ralph.folder / "log"
    assert ralph(*words, dies=(str(log), "records", "0")).code == 0
    last = len(log.read_text().splitlines())
    assert ralph(*words, dies=(str(log), "records", str(last))).code == -signal.SIGKILL
    run = ralph.run_folder().readlink().name
    assert not (ralph.run_folder() / "outcome.json").exists()
    assert ralph("status", "--json").json["id"] == run
    assert ralph.outcome()["status"] == "COMPLETED"
    assert json.loads((ralph.run_folder() / "proof/proof.json").read_text())["run"] == run
    store = Path(ralph.project.store)
    (store / "unpublished" / run).touch()  # as if that one had died too, before it had removed this
    assert ralph("runs", "--json").code == 0
    assert not list((store / "unpublished").iterdir())
    figures = (ralph.root / ".ralph/metrics/loops.jsonl").read_text().splitlines()
    assert [json.loads(line)["run"] for line in figures].count(run) == 1
    vault = store / "runs" / run / PROTECTED_COPIES_FOLDER
    assert list(vault.iterdir())
    assert "is completed" in resume(ralph).err
    after = ralph(*RUN, "--agent", ralph.script([done()], name="next"))
    invariants.hold(ralph, after)
    assert list(vault.iterdir()) == []


# Kills at random

LAST = 12
KILLS = 20
GATES = {4: 7, 8: 14, LAST: KILLS}  # these iterations wait until so many were killed


def paced(number: int, last: bool, scm: bool) -> list[Step]:
    """A turn that tells outside of the project which one it is, and leaves work at its beginning and at its end."""
    gate: list[Step] = [{"until": f"../gate-{number}"}] if number in GATES else []
    name = f"file{number}"
    steps: list[Step] = [
        write(**{name: "begun"}), {"append": {"../starts": f"{number}\n"}}, {"cost": 0.01}, {"sleep": 0.25}, *gate,
        write(**{name: "done"}), {"cost": 0.02},
    ]  # fmt: skip
    return [*steps, done()] if last else [*steps, say("not yet")] if not scm else steps


class Chaos:
    """Kills harness, keeper or both of a run, at random, and takes it up until it is over."""

    def __init__(self, ralph: Ralph, seed: int, spared: int = LAST) -> None:
        self._ralph, self._dice, self._spared = ralph, random.Random(seed), spared
        self.killed: Counter[str] = Counter()

    def run(self, *argv: str) -> Outcome:
        """To its end."""
        live = self._ralph.start(*argv)
        while True:
            try:
                live.process.wait(self._dice.choice((self._dice.uniform(0.02, 0.3), self._dice.uniform(0.3, 1.2))))
            except subprocess.TimeoutExpired:
                self._strike(live)
                self._open_gates()
            if live.process.poll() is None:
                continue
            ended, runs = live.end(), self._ralph.runs()
            phase = self._ralph.state().phase if runs else None
            if isinstance(phase, RunOver):
                if ended.code != -signal.SIGKILL:  # else it had no time to say more
                    invariants.hold(self._ralph, ended)
                return phase.outcome
            assert ended.code == -signal.SIGKILL, ended
            live = self._ralph.start(*(("run", "--resume") if runs else argv))

    def _strike(self, live: Live) -> None:
        what = self._dice.choice(("harness", "keeper", "both"))
        keeper = self._keeper(live) if what != "harness" else 0
        if what != "harness" and not keeper:
            return
        if what == "both":
            os.kill(live.process.pid, signal.SIGSTOP)  # it sees nothing of its keeper's end
        try:
            if keeper:
                os.kill(keeper, signal.SIGKILL)
        except ProcessLookupError:  # its harness was faster, and ended it
            live.process.send_signal(signal.SIGCONT)
            return
        if what != "keeper":
            live.process.kill()
            live.process.wait()
        self.killed[what] += 1

    def _keeper(self, live: Live) -> int:
        """A keeper that is stopped, and may be killed: what runs under it is no work of the last iteration.

        An agent must have said that it started: else nobody could count it. Git that dies in mid-commit leaves its own
        locks in the repository, and only a person may take them away: it is spared.
        """
        keeper = (keeper_of(self._ralph) if self._ralph.runs() else 0) or self._idle_keeper(live)
        try:
            if keeper:
                os.kill(keeper, signal.SIGSTOP)
        except ProcessLookupError:
            keeper = 0
        if not keeper:
            return 0
        kind, number = self._at_work()
        deadline = time.monotonic() + 2
        while kind == "agent" and number not in self.starts and time.monotonic() < deadline:
            time.sleep(0.01)
        if number < self._spared and kind != "task" and (kind != "agent" or number in self.starts):
            return keeper
        os.kill(keeper, signal.SIGCONT)
        return 0

    def _idle_keeper(self, live: Live) -> int:
        found = [pid for pid in child_pids(live.process.pid) if b"/ralphproof/keeper/__main__.py" in command_line(pid)]
        return found[0] if found else 0

    def _at_work(self) -> tuple[str, int]:
        """(kind, iteration) of what a keeper runs now."""
        for row in self._ralph.runs()[:1]:
            for file in list_turn_files(self._ralph.project, row.id):
                past = turn_journal.read_turn_file(file)
                if past.result is None and is_alive(*past.keeper):
                    kind, number, *task = Path(file).stem.split("_")
                    return "task" if kind == "scm" and task else kind, int(number)
        return "", 0

    @property
    def starts(self) -> list[int]:
        """The iterations whose agent said that it started."""
        path = self._ralph.folder / "starts"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _open_gates(self) -> None:
        for number, kills in GATES.items():
            if self.killed.total() >= kills:
                (self._ralph.folder / f"gate-{number}").touch()


def told_costs(ralph: Ralph) -> dict[str, int | None]:
    """What each agent's own lines say that its turn had cost, in micro-dollars."""
    found: dict[str, int | None] = {}
    for file in list_turn_files(ralph.project, ralph.runs()[0].id):
        path = Path(file).with_suffix(".ndjson")
        if path.exists():
            events = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            found[path.stem] = next((one["micro_usd"] for one in reversed(events) if one["is"] == "Spent"), None)
    return found


def check_everything(ralph: Ralph, chaos: Chaos, over: Outcome) -> None:
    """What holds of such a run, however it ended."""
    nothing_left(ralph)
    invariants.readable(ralph)
    invariants.unaltered(ralph)
    invariants.unlocked(ralph)
    every = list(range(1, over.iterations + 1))
    assert chaos.starts == every, "each iteration's agent was started once"
    assert turns(ralph) == [(number, 1) for number in every]
    saved = {record.iteration: record.snapshot.ref for record in recorded(ralph, Saved)}
    for record in recorded(ralph, TurnEnded):
        kept = ralph.git("show", f"{saved[record.iteration]}:file{record.iteration}")
        assert kept == "done" or (kept == "begun" and record.reply.exit.why == "interrupted")
    costs = told_costs(ralph)
    assert booked(ralph) == costs, "booked once, as the agent said"
    assert ralph.state().spend.micro_usd == sum(cost or 0 for cost in costs.values())
    answered_once(ralph)


def answered_once(ralph: Ralph) -> None:
    """Of the runs of a check for one iteration only the last one came to its end."""
    ends: dict[str, list[str]] = {}
    for file in list_turn_files(ralph.project, ralph.runs()[0].id):
        name = Path(file).stem
        if name.startswith("guardrail_"):
            result = turn_journal.read_turn_file(file).result
            assert result is not None
            ends.setdefault("_".join(name.split("_")[:2]), []).append(result["why"])
    for name, whys_of_it in ends.items():
        assert sorted(whys_of_it) == sorted(["exit"] + ["interrupted"] * (len(whys_of_it) - 1)), name


def settings(ralph: Ralph, **more: Any) -> None:
    ralph.write({"kept": "as it was"})
    ralph.commit()
    ralph.settings(limits={"stallIterations": None, "sameErrorIterations": None}, **more)


CHECK = "sleep 0.2; echo check >> ../checks; test $(cat file12 2>/dev/null || echo no) = done"


def said(chaos: Chaos, seed: int, record_property: Tell) -> None:
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(chaos.killed.items()))
    record_property(SAID, f"seed {seed}: killed at random {chaos.killed.total()} times ({kinds})")
    record_property(COUNTED, chaos.killed.total())


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_killed_twenty_times_starts_each_agent_once_and_loses_nothing(
    ralph: Ralph, seed: int, record_property: Tell
) -> None:
    """PR-10: harness, keeper or both, at any moment."""
    settings(ralph)
    script = ralph.script(*(paced(number, number == LAST, scm=False) for number in range(1, LAST + 1)))
    chaos = Chaos(ralph, seed)
    over = chaos.run(*RUN, "--agent", script, "--check", CHECK, "-m", str(LAST), "--max-cost-usd", "1")
    said(chaos, seed, record_property)
    assert isinstance(over, Completed), (seed, over)
    check_everything(ralph, chaos, over)
    assert chaos.killed.total() >= KILLS, (seed, chaos.killed)
    assert min(chaos.killed[kind] for kind in ("harness", "keeper", "both")) > 0, (seed, chaos.killed)
    assert (over.iterations, over.verified) == (LAST, True)
    assert set(whys(ralph)) <= {"exit", "interrupted"}


@pytest.mark.parametrize("seed", [3])
def test_commits_of_a_run_that_is_killed_at_random_are_made_once(
    ralph: Ralph, seed: int, record_property: Tell
) -> None:
    """PR-13: and nothing that an agent finished stays out of them."""
    settings(ralph, scm={"command": "git", "tasks": ["commit"]})
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")
    turns_of_it = [paced(number, number == LAST, scm=True) for number in range(1, LAST + 1)]
    script = ralph.script(*turns_of_it, message=[{"cost": 0.001}, {"sleep": 0.1}, say("Do it")])
    chaos = Chaos(ralph, seed)
    over = chaos.run(*RUN, "--agent", script, "--check", "sleep 0.1", "-m", str(LAST))
    said(chaos, seed, record_property)
    assert isinstance(over, Completed), (seed, over)
    check_everything(ralph, chaos, over)
    added = ralph.git("log", "--diff-filter=A", "--format=", "--name-only").split()
    assert len(set(added)) == len(added)
    finished = {f"file{number}" for number, why in enumerate(whys(ralph), start=1) if why == "exit"}
    assert finished <= set(added)
    assert ralph.git("fsck", "--strict", "--no-dangling") == ""
    assert ralph.git("diff", "HEAD", "--stat", "--", "kept", *finished) == ""


@pytest.mark.parametrize(
    ("flags", "reason", "seed"),
    [(("-m", "6"), MAX_ITERATIONS, 4), (("--max-cost-usd", "0.1"), COST_LIMIT, 5)], ids=["iterations", "money"],
)  # fmt: skip
def test_limits_hold_over_every_kill(
    ralph: Ralph, flags: tuple[str, ...], reason: str, seed: int, record_property: Tell
) -> None:
    settings(ralph)
    script = ralph.script(*(paced(number, last=False, scm=False) for number in range(1, 30)))
    for number in GATES:
        (ralph.folder / f"gate-{number}").touch()
    chaos = Chaos(ralph, seed, spared=100)
    over = chaos.run(*RUN, "--agent", script, "--check", "sleep 0.1; exit 1", "-m", "20", *flags)
    said(chaos, seed, record_property)
    assert isinstance(over, Aborted), (seed, over)
    assert over.reason == reason
    check_everything(ralph, chaos, over)
    if reason == COST_LIMIT:
        assert 100_000 <= ralph.state().spend.micro_usd <= 120_000, "not one turn more"
    else:
        assert over.iterations == 6


# An adopted turn and its twin


@dataclass(frozen=True)
class Twin:
    """How a turn ended."""

    why: str
    seconds: float
    reason: str
    micro_usd: int | None


def twin(ralph: Ralph, over: Ended) -> Twin:
    invariants.hold(ralph, over)
    assert count(ralph, "starts") == 1
    (reply,) = [record.reply for record in recorded(ralph, TurnEnded)]
    return Twin(reply.exit.why, reply.exit.seconds, str(ralph.outcome().get("reason")), reply.micro_usd)


def both(
    tmp_path: Path, steps: list[Step], flags: tuple[str, ...], dead_s: float, **agent: float
) -> tuple[Twin, Twin]:  # fmt: skip
    """How this turn ends under one harness, and under two: after a second nobody is there for so long."""
    found = []
    for name, dies in (("whole", False), ("killed", True)):
        ralph = Ralph(tmp_path / name)
        try:
            ralph.settings(agent=agent)
            live = ralph.start(*RUN, "--agent", ralph.script([START, {"cost": 0.25}, *steps]), *flags)
            if dies:
                until(lambda ralph=ralph: count(ralph, "starts"), "the agent is at work")  # type: ignore[misc]
                time.sleep(1)
                kill(live)
                time.sleep(dead_s)
                found.append(twin(ralph, resume(ralph)))
            else:
                found.append(twin(ralph, live.end()))
        finally:
            ralph.close()
    return found[0], found[1]


TALKS: list[Step] = [step for number in range(6) for step in (say(f"word {number}"), {"sleep": 0.25})]
STIRS: list[Step] = [step for number in range(24) for step in (write(work=str(number)), {"sleep": 0.25})]
LONG: Step = {"sleep": 60}
ONE = ("-m", "1")


@pytest.mark.parametrize(
    ("steps", "flags", "dead_s", "agent", "why", "reason", "least_s"),
    [
        pytest.param([LONG], ONE, 1, {"timeoutSeconds": 3}, "timeout", MAX_ITERATIONS, 3, id="timeout"),
        pytest.param([*TALKS, LONG], ONE, 1, {"idleTimeoutSeconds": 1.8}, "idle", MAX_ITERATIONS, 3, id="idle"),
        pytest.param([*STIRS, LONG], ONE, 4, {"idleTimeoutSeconds": 3}, "idle", MAX_ITERATIONS, 6, id="idle-files"),
        pytest.param([LONG], ("--max-minutes", "0.06"), 1, {}, "timeout", "TIME_LIMIT", 2, id="minutes"),
    ],
)  # fmt: skip
def test_the_clocks_of_an_adopted_turn_are_those_of_its_twin(
    tmp_path: Path, steps: list[Step], flags: tuple[str, ...], dead_s: float, agent: dict[str, float], why: str,
    reason: str, least_s: float,
) -> None:  # fmt: skip
    whole, adopted = both(tmp_path, steps, flags, dead_s, **agent)
    for one in (whole, adopted):
        assert (one.why, one.reason, one.micro_usd) == (why, reason, 250_000), one
        assert one.seconds >= least_s
    assert abs(whole.seconds - adopted.seconds) < 3


def test_money_that_an_agent_spends_while_nobody_looks_ends_it_all_the_same(ralph: Ralph) -> None:
    """PR-10: somebody stands in for the harness, and knows the limit."""
    half = write(work="half", **{"../working": ""})
    steps = [START, {"cost": 0.5}, half, {"until": "../go"}, {"cost": 3}, LONG, done()]
    live = ralph.start(*RUN, "--agent", ralph.script(steps), "--check", "true", "--max-cost-usd", "1")
    until((ralph.folder / "working").exists, "the agent is at work")
    kill(live)
    (ralph.folder / "go").touch()
    file = next(list_turn_files(ralph.project, ralph.runs()[0].id))
    file = file.replace(Path(file).name, "agent_001.turn")
    until(lambda: turn_journal.read_turn_file(file).result, "the agent is ended", 30)
    result = turn_journal.read_turn_file(file).result
    assert result is not None
    assert result["why"] == "stopped"
    over = resume(ralph)
    invariants.hold(ralph, over)
    assert (over.code, ralph.outcome()["reason"]) == (1, COST_LIMIT), over
    assert (count(ralph, "starts"), booked(ralph)) == (1, {"agent_001": 3_000_000})
    (reply,) = [record.reply for record in recorded(ralph, TurnEnded)]
    assert (reply.exit.why, (ralph.root / "work").read_text()) == ("stopped", "half")
