"""Runs that an agent begins: inside its turn, or asked for to outlive it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.processes import ProcessIdentity, current_process
from ralphproof.base.value import replace
from ralphproof.engine.agent import Spent
from ralphproof.engine.limits import Budget, Limits, Spend
from ralphproof.engine.next_action import RunRules
from ralphproof.engine.outcome import Aborted, Completed, Failed
from ralphproof.engine.plan import Pipeline
from ralphproof.engine.records import ChildRunsAwaited, ChildWorkJoined, RunBegan, RunEnded
from ralphproof.engine.state import RunOver
from ralphproof.process.tree import child_pids
from ralphproof.runs.children import (
    LedgerChildRuns,
    RunConstraints,
    cap_budget_by_ancestors,
    load_constraints,
    save_constraints,
)
from ralphproof.runs.request import (
    CheckRequest,
    FitnessRequest,
    RunRequest,
    load_request,
    save_request,
    serialize_request,
)
from ralphproof.runs.spec import prepare_spec
from ralphproof.store.ledger import RunRow
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.spend import SpendStore
from tests.misbehaviour.invariants import no_traceback, unlocked
from tests.misbehaviour.machine import there
from tests.ralph import PROGRAM, Ended, Ralph, Step, done, until, write

CHILD = "20261116-000000-abcd"
NO_SECRETS = str
ENDLESS: list[Step] = [write(**{"../child-works": ""}), {"until": "../never"}]


@pytest.fixture(autouse=True)
def _project(ralph: Ralph) -> None:
    ralph.write({"readme": "hello"})
    ralph.commit()


def child(ralph: Ralph, steps: list[Step], *flags: str, name: str = "child") -> Step:
    """A step of the parent's script: begin a run with this script."""
    agent = ralph.script(steps, name=name)
    return {"run": [*PROGRAM, "run", "-p", "a part of it", "--agent", agent, *flags]}


def parent_and_child(ralph: Ralph) -> tuple[RunRow, RunRow]:
    newest, oldest = ralph.runs()
    assert newest.parent == oldest.id
    return oldest, newest


def outcome_of(ralph: Ralph, run: str) -> object:
    phase = ralph.state(run).phase
    assert isinstance(phase, RunOver), phase
    return phase.outcome


def ended(ralph: Ralph, *argv: str) -> Ended:
    result = ralph(*argv)
    no_traceback(result)
    assert [run.id for run in ralph.runs() if ralph.processes(run.id)] == []
    assert there(ralph.folder / "child.json") == []
    unlocked(ralph)
    return result


def test_a_run_inside_a_turn_knows_its_parent_and_shares_its_directory(ralph: Ralph) -> None:
    inside = child(ralph, [write(part="1"), done()], "--check", "test -f part")
    result = ended(ralph, "run", "-p", "all", "--agent", ralph.script([inside, done()]), "--check", "test -f part")
    assert result.code == 0, result
    parent, inner = parent_and_child(ralph)
    assert isinstance(outcome_of(ralph, inner.id), Completed)
    began = next(record for record in ralph.records(inner.id) if isinstance(record, RunBegan))
    assert began.facts["parent"] == parent.id


def test_a_second_child_at_the_same_time_in_the_same_directory_is_refused(ralph: Ralph) -> None:
    agent = ralph.script([write(**{"../first": ""}), {"until": "../tried"}, done()], name="child")
    first = {"spawn": {"argv": [*PROGRAM, "run", "-p", "x", "--agent", agent, "--check", "true"]}}
    other = ralph.script([done()], name="other")
    command = " ".join(map(str, (*PROGRAM, "run", "-p", "y", "--agent", f"'{other}'")))
    second = {"run": ["sh", "-c", f"{command} 2>../refused; echo $? >../code; touch ../tried"]}
    script = ralph.script([first, {"until": "../first"}, second, {"sleep": 0.5}, done()])
    result = ended(ralph, "run", "-p", "all", "--agent", script, "--check", "true")
    assert result.code == 0, result
    assert (ralph.folder / "code").read_text().strip() == "2"
    assert "works in" in (ralph.folder / "refused").read_text()


def test_done_waits_for_a_child_and_the_checks_see_its_work(ralph: Ralph) -> None:
    """FC-14: the claim comes first, the child's work later; only then anything is judged."""
    asked = child(ralph, [{"until": "../go"}, write(part="1"), done()], "--check", "test -f part", "--detach")
    agent = ralph.script([asked, done()])
    live = ralph.start("run", "-p", "all", "--agent", agent, "--check", "test -f part", "-m", "1")
    until(lambda: len(ralph.runs()) == 2, "the child is begun")
    parent, inner = parent_and_child(ralph)
    until(lambda: any(isinstance(record, ChildRunsAwaited) for record in ralph.records(parent.id)), "the parent waits")
    (ralph.folder / "go").touch()
    result = live.end()
    assert result.code == 0, result
    assert isinstance(outcome_of(ralph, inner.id), Completed)
    assert any(isinstance(record, ChildWorkJoined) for record in ralph.records(parent.id))
    assert ralph.outcome(parent.id)["verificationPassed"] is True
    unlocked(ralph)


def test_a_child_that_is_never_over_ends_the_run_and_is_ended(ralph: Ralph) -> None:
    """PR-32: a bounded wait, then the failure that is documented."""
    ralph.settings(supervise={"waitTimeoutSeconds": 1, "pollIntervalSeconds": 0.1})
    agent = ralph.script([child(ralph, ENDLESS, "--detach"), {"until": "../child-works"}, done()])
    result = ended(ralph, "run", "-p", "all", "--agent", agent, "--check", "true")
    assert result.code == 1, result
    assert "CHILDREN_TIMEOUT" in result.out
    _, inner = parent_and_child(ralph)
    assert inner.id in result.out
    cancelled = outcome_of(ralph, inner.id)
    assert isinstance(cancelled, Aborted)
    assert cancelled.reason == "CANCELLED"


def test_cancel_reaches_children(ralph: Ralph) -> None:
    agent = ralph.script([child(ralph, ENDLESS, "--detach"), {"until": "../never"}])
    live = ralph.start("run", "-p", "all", "--agent", agent, "--check", "true")
    until((ralph.folder / "child-works").exists, "the child works")
    parent, inner = parent_and_child(ralph)
    assert ralph("cancel", parent.id).code == 0
    assert live.end().code == 130
    for run in (parent, inner):
        outcome = outcome_of(ralph, run.id)
        assert isinstance(outcome, Aborted)
        assert outcome.reason == "CANCELLED"
    assert there(ralph.folder / "child.json") == []


@pytest.mark.thorough
def test_an_interrupt_of_the_parent_ends_its_children(ralph: Ralph) -> None:
    agent = ralph.script([child(ralph, ENDLESS, "--detach"), {"until": "../child-works"}, {"until": "../never"}])
    live = ralph.start("run", "-p", "all", "--agent", agent, "--check", "true")
    until((ralph.folder / "child-works").exists, "the child works")
    live.process.send_signal(signal.SIGINT)
    until(lambda: "shutting down" in Path(live.err.name).read_text(), "the first signal is heard")
    live.process.send_signal(signal.SIGINT)
    assert live.end().code == 130
    _, inner = parent_and_child(ralph)
    assert isinstance(outcome_of(ralph, inner.id), Aborted)
    assert there(ralph.folder / "child.json") == []


def test_what_a_child_spends_counts_to_its_parent(ralph: Ralph) -> None:
    spending: list[Step] = [{"cost": 0.6}, write(part="1"), done()]
    asked = child(ralph, spending, "--check", "test -f part", "--detach")
    agent = ralph.script([{"cost": 0.5}, asked, done()])
    result = ended(ralph, "run", "-p", "all", "--agent", agent, "--check", "test -f part", "--max-cost-usd", "1")
    assert result.code == 1, result
    parent, inner = parent_and_child(ralph)
    assert "COST_LIMIT" in result.out
    assert ralph.outcome(parent.id)["costUSD"] == pytest.approx(1.1)
    book = SpendStore.open(str(ralph.state_dir))
    assert book.spend_of((parent.id,)) == Spend(500_000, 0)
    assert book.spend_of((inner.id,)) == Spend(600_000, 0)
    book.close()


@pytest.mark.thorough
def test_a_child_may_spend_no_more_than_its_parent_has_left(ralph: Ralph) -> None:
    greedy: list[Step] = [{"cost": 0.9}, {"sleep": 30}, done()]
    asked = child(ralph, greedy, "--max-cost-usd", "5", "--detach")
    first: list[Step] = [{"cost": 0.8}, write(a="1")]
    agent = ralph.script(first, [{"cost": 0.05}, asked, {"until": "../never"}])
    result = ended(ralph, "run", "-p", "all", "--agent", agent, "--check", "test -f b", "--max-cost-usd", "1")
    assert result.code == 1, result
    _, inner = parent_and_child(ralph)
    outcome = outcome_of(ralph, inner.id)
    assert isinstance(outcome, Aborted)
    assert outcome.reason in ("COST_LIMIT", "CANCELLED")
    assert "COST_LIMIT" in result.out


@pytest.mark.thorough
def test_a_child_outlives_a_killed_harness_and_the_resumed_run_waits_for_it(ralph: Ralph) -> None:
    asked = child(ralph, [write(**{"../child-works": ""}), {"until": "../go"}, write(part="1"), done()], "--detach")
    agent = ralph.script([asked, {"until": "../child-works"}, done()])
    live = ralph.start("run", "-p", "all", "--agent", agent, "--check", "test -f part")
    until((ralph.folder / "child-works").exists, "the child works")
    parent, inner = parent_and_child(ralph)
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    again = ralph.start("run", "--resume", parent.id)
    until(lambda: any(isinstance(record, ChildRunsAwaited) for record in ralph.records(parent.id)), "the parent waits")
    (ralph.folder / "go").touch()
    result = again.end()
    assert result.code == 0, result
    assert isinstance(outcome_of(ralph, inner.id), Completed)
    assert ralph.outcome(parent.id)["verificationPassed"] is True


SENSELESS: dict[str, str] = {
    "garbage": "{",
    "a list": "[]",
    "no wish": '{"flags": {}}',
    "odd fields": json.dumps({"request": {"is": "RunRequest", "prompt": 3, "flags": {}, "checks": "rm"}, "flags": {}}),
    "another value": json.dumps({"request": {"is": "Exit", "code": 0}, "flags": {}}),
}


@pytest.mark.parametrize("text", SENSELESS.values(), ids=SENSELESS)
def test_a_request_that_makes_no_sense_begins_nothing(ralph: Ralph, text: str) -> None:
    plant = f"mkdir -p $TASK_FOLDER/children && printf '%s' '{text}' > $TASK_FOLDER/children/20261116-000000-abcd.json"
    result = ended(
        ralph, "run", "-p", "x", "--agent", ralph.script([{"run": ["sh", "-c", plant]}, done()]), "--check", "true"
    )
    assert result.code == 0, result
    assert len(ralph.runs()) == 1
    assert list((ralph.root / ".ralph").glob("runs/*/task/children/*")) == []


@pytest.mark.thorough
def test_requests_that_are_no_files_hold_nothing_up(ralph: Ralph) -> None:
    plant = (
        "cd $TASK_FOLDER && mkdir -p children/20261116-000000-aaaa.json && mkfifo children/20261116-000000-bbbb.json "
        "&& ln -s /etc/passwd children/20261116-000000-cccc.json"
    )
    result = ended(
        ralph, "run", "-p", "x", "--agent", ralph.script([{"run": ["sh", "-c", plant]}, done()]), "--check", "true"
    )
    assert result.code == 0, result
    assert len(ralph.runs()) == 1


def test_a_stranger_in_the_environment_is_no_parent(ralph: Ralph) -> None:
    result = ralph(
        "run", "-p", "x", "--agent", ralph.script([done()]), "--check", "true",
        env={"RALPH_RUN_ID": "20200101-000000-aaaa", "TASK_FOLDER": str(ralph.folder)},
    )  # fmt: skip
    assert result.code == 0, result
    (run,) = ralph.runs()
    assert run.parent == ""


# A request that the agent writes itself, so that it need not wait for what comes of it.


def request(ralph: Ralph, wish: RunRequest, run: str = CHILD) -> Step:
    """A step: ask for a run, and go on at once."""
    file = ralph.folder / f"{run}.request"
    file.write_bytes(serialize_request(wish, NO_SECRETS))
    place = "$TASK_FOLDER/children"
    move = f"mkdir -p {place} && cp {shlex.quote(str(file))} {place}/r.tmp && mv {place}/r.tmp {place}/{run}.json"
    return {"run": ["sh", "-c", move]}


def wanting(ralph: Ralph, steps: list[Step], **fields: Any) -> RunRequest:
    flags = {"agent": {"command": ralph.script(steps, name="child")}, **fields.pop("flags", {})}
    return replace(RunRequest(("a part of it", None), flags), **fields)


def run_with(ralph: Ralph, steps: list[Step], *flags: str) -> Ended:
    return ended(ralph, "run", "-p", "all", "--agent", ralph.script(steps), *flags)


def told(ralph: Ralph, run: str) -> str:
    return "\n".join(str(record) for record in ralph.records(run))


def files_of(ralph: Ralph, run: str) -> RunFolder:
    return RunFolder(str(ralph.root), run, ralph.project.store)


def bounds_of(ralph: Ralph, run: str) -> RunConstraints:
    bounds = load_constraints(files_of(ralph, run))
    assert bounds is not None
    return bounds


def test_a_claim_waits_for_a_run_that_was_asked_for_a_moment_before(ralph: Ralph) -> None:
    asked = request(ralph, wanting(ralph, [write(part="1"), done()]))
    result = run_with(ralph, [asked, done()], "--check", "test -f part", "-m", "1")
    assert result.code == 0, result
    _, inner = parent_and_child(ralph)
    assert isinstance(outcome_of(ralph, inner.id), Completed)


def test_a_run_that_was_begun_a_moment_before_its_parent_ends_is_ended_with_it(ralph: Ralph) -> None:
    result = run_with(ralph, [request(ralph, wanting(ralph, ENDLESS))], "--check", "false", "-m", "1")
    assert result.code == 1, result
    _, inner = parent_and_child(ralph)
    outcome = outcome_of(ralph, inner.id)
    assert isinstance(outcome, Aborted)
    assert outcome.reason == "CANCELLED"


@pytest.mark.parametrize(("parent", "why"), [("", "is over"), ("20200101-000000-aaaa", "not on record")])
def test_a_run_whose_parent_is_gone_is_not_begun(ralph: Ralph, parent: str, why: str) -> None:
    assert run_with(ralph, [done()], "--check", "true").code == 0
    (row,) = ralph.runs()
    wish = wanting(ralph, [write(part="1"), done()], project_dir=str(ralph.root))
    save_request(files_of(ralph, CHILD), wish, NO_SECRETS, parent or row.id)
    result = ralph("run", "--begin", CHILD)
    assert result.code == 2, result
    assert why in result.err
    assert len(result.err.splitlines()) == 1
    assert len(ralph.runs()) == 1


LAX = ("--no-sandbox", "--allow-unknown-cost", "--force")


@pytest.mark.parametrize("how", ["inside the turn", "asked for"])
def test_a_child_is_held_as_its_parent_is(ralph: Ralph, how: str) -> None:
    """It touches what its parent may not touch, and asks for more of everything."""
    steps: list[Step] = [{"cost": 0.01}, write(readme="mine"), done()]
    if how == "asked for":
        own = {"protectedPaths": ["other"], "limits": {"maxMinutes": 600, "maxTokens": 10**9, "dailyCostUsd": 500}}
        lax = {"guarded": False, "allow_unknown_cost": True, "fitness": FitnessRequest(force=True)}
        asked = request(ralph, wanting(ralph, steps, flags=own, **lax))
    else:
        asked = child(ralph, steps, *LAX, "--protect", "other", "--max-minutes", "600", "--max-tokens", "1000000000")
        asked = {"run": ["sh", "-c", f"{shlex.join(map(str, asked['run']))} || true"]}
    strict = ("--protect", "readme", "--max-minutes", "1", "--max-tokens", "1000", "--max-cost-usd", "2")
    run_with(ralph, [asked, done()], "--check", "true", "-m", "1", *strict)
    parent, inner = parent_and_child(ralph)
    bounds = bounds_of(ralph, inner.id)
    assert set(bounds.protected) == {"readme", "other"}
    assert (bounds.guarded, bounds.allow_unknown_cost, bounds.force) == (True, False, False)
    assert bounds.budget.seconds is not None
    assert 0 < bounds.budget.seconds <= 60
    assert bounds.budget.tokens == 1000
    assert bounds.budget.micro_usd == 2_000_000
    assert bounds.budget.daily_micro_usd == bounds_of(ralph, parent.id).budget.daily_micro_usd
    outcome = outcome_of(ralph, inner.id)
    assert isinstance(outcome, Aborted)
    assert outcome.reason == "PROHIBITED_PATH"
    assert (ralph.root / "readme").read_text() == "hello"
    kept = load_request(files_of(ralph, inner.id))
    assert kept is not None
    assert kept[0].guarded
    assert "has no --no-sandbox" in told(ralph, inner.id)


def test_a_child_may_be_as_loose_as_its_parent(ralph: Ralph) -> None:
    asked = child(ralph, [write(part="1"), done()], *LAX)
    result = run_with(ralph, [asked, done()], "--check", "test -f part", *LAX)
    assert result.code == 0, result
    _, inner = parent_and_child(ralph)
    bounds = bounds_of(ralph, inner.id)
    assert (bounds.guarded, bounds.allow_unknown_cost, bounds.force) == (False, True, True)


def test_a_child_that_cannot_tell_its_cost_is_refused_under_a_limit_on_cost(ralph: Ralph) -> None:
    ralph.program("mute", "touch part")
    command = shlex.join([*PROGRAM, "run", "-p", "x", "--agent", "mute {prompt_file}", "--allow-unknown-cost"])
    asked: Step = {"run": ["sh", "-c", f"{command} 2>../refused; echo $? >../code"]}
    result = run_with(ralph, [asked, done()], "--check", "true", "--max-cost-usd", "1")
    assert result.code == 0, result
    assert (ralph.folder / "code").read_text().strip() == "2"
    assert "report its cost" in (ralph.folder / "refused").read_text()
    assert not (ralph.root / "part").exists()


@pytest.mark.parametrize("folder", ["/", "../elsewhere", "nowhere"])
def test_a_request_for_a_place_that_is_none_hurts_nobody(ralph: Ralph, folder: str) -> None:
    (ralph.folder / "elsewhere").mkdir()
    wish = wanting(ralph, [write(part="1"), done()], project_dir=folder)
    result = run_with(ralph, [request(ralph, wish), done()], "--check", "true")
    assert result.code == 0, result
    (row,) = ralph.runs()
    assert f"is not begun: '{CHILD}.json'" in told(ralph, row.id)
    assert list((ralph.root / ".ralph").glob("runs/*/task/children/*")) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"project_dir": "a\0b"},
        {"prompt": ("a\0b", None)},
        {"checks": CheckRequest(("a\0b",))},
        {"flags": {"agent": {"command": "a\0b"}}},
    ],
    ids=str,
)
def test_a_request_that_no_program_could_be_told_begins_nothing(ralph: Ralph, fields: dict[str, Any]) -> None:
    result = run_with(ralph, [request(ralph, wanting(ralph, [done()], **fields)), done()], "--check", "true")
    assert result.code == 0, result
    (row,) = ralph.runs()
    assert "the request cannot be understood" in told(ralph, row.id)


def test_a_request_that_comes_to_nothing_holds_nothing_up(ralph: Ralph) -> None:
    wish = wanting(ralph, [done()], fitness=FitnessRequest(task_type="no such type"))
    result = run_with(ralph, [request(ralph, wish), done()], "--check", "true")
    assert result.code == 0, result
    assert len(ralph.runs()) == 1


KEY = "canary-1234-abcd-5678"


def test_a_request_gets_no_variable_that_its_agent_does_not_have(ralph: Ralph) -> None:
    ralph.settings(agent={"env": {"API_KEY": None}})
    ralph.env["API_KEY"] = KEY
    named = wanting(ralph, [{"record": "../seen"}, done()], prompt=("\x1aAPI_KEY\x1a", None))
    result = run_with(ralph, [request(ralph, named), done()], "--check", "true")
    assert result.code == 0, result
    assert len(ralph.runs()) == 1
    assert not (ralph.folder / "seen").exists()


@pytest.mark.thorough
def test_a_request_keeps_what_its_agent_knows(ralph: Ralph) -> None:
    ralph.env["API_KEY"] = KEY
    words = shlex.join([*PROGRAM, "run", "-p", "x", "--agent", ralph.script([done()], name="child"), "--detach"])
    asked: Step = {"run": ["sh", "-c", f'{words} --check "printf %s $API_KEY >../seen"']}
    assert run_with(ralph, [asked, done()], "--check", "true").code == 0
    assert (ralph.folder / "seen").read_text() == KEY


@pytest.mark.thorough
def test_what_has_ended_is_reaped_whatever_became_of_its_request(ralph: Ralph) -> None:
    rest: list[Step] = [{"run": ["sh", "-c", "rm -rf $TASK_FOLDER/children"]}, write(**{"../gone": ""})]
    inside = child(ralph, [{"until": "../gone"}, done()], "--detach")
    live = ralph.start("run", "-p", "all", "--agent", ralph.script([inside, *rest, {"until": "../go"}, done()]))
    until((ralph.folder / "gone").exists, "the request is gone")
    until(lambda: len(ralph.runs()) == 2 and ralph.runs()[0].ended, "the child is over")
    until(lambda: not ralph.runs()[0].process.alive, "its process has ended")
    until(lambda: not zombies(live.process.pid), "nothing of it is left", timeout_s=5)
    (ralph.folder / "go").touch()
    assert live.end().code == 0


def zombies(pid: int) -> list[int]:
    def state(one: int) -> str:
        try:
            return Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return ""

    return [one for one in child_pids(pid) if state(one) == "Z"]


@pytest.mark.thorough
def test_children_of_a_run_that_is_closed_after_a_crash_are_asked_to_end(ralph: Ralph) -> None:
    other = ralph.folder / "other"
    ralph.git("worktree", "add", "-q", str(other))
    asked = child(ralph, [write(**{"../child-works": ""}), {"until": "../never"}], "-d", str(other), "--detach")
    live = ralph.start("run", "-p", "all", "--agent", ralph.script([asked, {"until": "../child-works"}]))
    until((ralph.folder / "child-works").exists, "the child works")
    parent, inner = parent_and_child(ralph)
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    until(lambda: ralph.processes(f"{parent.id}/agent") == [] or not ralph.processes(parent.id), "its turn is over")
    result = ralph("run", "-p", "x", "--agent", ralph.script([done()], name="next"), "--check", "true")
    assert result.code == 0, result
    assert f"run {inner.id} of it goes on, and is asked to end" in told(ralph, ralph.runs()[0].id)
    until(lambda: ralph.runs()[1].ended, "the child is over")
    outcome = outcome_of(ralph, inner.id)
    assert isinstance(outcome, Aborted)
    assert outcome.reason == "CANCELLED"


def test_a_new_limit_of_the_parent_is_the_one_that_its_children_get(ralph: Ralph) -> None:
    first = run_with(ralph, [{"cost": 0.6}, write(a="1")], "--check", "test -f b", "--max-cost-usd", "0.5")
    assert first.code == 1, first
    (parent,) = ralph.runs()
    agent = ralph.script([child(ralph, [done()]), done()])
    ended(ralph, "run", "--resume", "--max-cost-usd", "1", "--agent", agent, "-m", "2")
    _, inner = parent_and_child(ralph)
    assert bounds_of(ralph, parent.id).budget.micro_usd == 1_000_000
    assert bounds_of(ralph, inner.id).budget.micro_usd == 400_000


# The family by itself: a parent on record, and what lies around it.


class Home:
    """A parent that is on record as this process, and everything that its `Kin` touches."""

    parent = "20261115-000000-aaaa"

    def __init__(self, ralph: Ralph) -> None:
        self.project = replace(ralph.project, root=str(ralph.root))
        self.ledger = self.project.ledger(read_only=False)
        self.purse = SpendStore.open(str(ralph.state_dir))
        self.folder = RunFolder(str(ralph.root), self.parent, self.project.store)
        self.folder.begin()
        self.begin(self.parent, "")
        self.requests = Path(self.folder.task_folder) / "children"

    def begin(self, run: str, parent: str, process: ProcessIdentity | None = None) -> None:
        self.ledger.begin_run(run, self.project.root, time.time(), process or current_process(), parent)

    def kin(self) -> LedgerChildRuns:
        return LedgerChildRuns(self.folder, self.project, self.ledger, self.purse, {})

    def ask(self, wish: RunRequest, run: str = CHILD) -> None:
        self.requests.mkdir(exist_ok=True)
        (self.requests / f"{run}.json").write_bytes(serialize_request(wish, NO_SECRETS))

    def limit(self, run: str, budget: Budget) -> None:
        order = prepare_spec(RunRequest(("x", None), {"agent": {"command": "scripted -"}}, self.project.root))
        rules = RunRules(Pipeline(()), Limits(budget))
        save_constraints(RunFolder(self.project.root, run, self.project.store), rules, order, "direct")

    def spend(self, run: str, micro_usd: int) -> None:
        self.purse.book(run, f"{run}/{time.monotonic_ns()}", Spent(micro_usd), time.time())


@pytest.fixture
def home(ralph: Ralph, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setenv("RALPH_STATE_DIR", str(ralph.state_dir))
    home = Home(ralph)
    yield home
    home.ledger.close()
    home.purse.close()


def test_a_run_that_ends_begins_nothing_more_and_says_so(ralph: Ralph, home: Home) -> None:
    home.ask(wanting(ralph, ENDLESS))
    kin = home.kin()
    assert kin.stop_all() == (f"this run ends, so one that it asked for is not begun: {CHILD}",)
    assert list(home.requests.iterdir()) == []
    assert kin.status().active == ()
    assert not (Path(home.project.store) / "runs" / CHILD).exists()


@pytest.mark.parametrize(("ago_s", "may_come"), [(1, True), (60, False), (-3600, False)])
def test_a_run_that_an_earlier_harness_began_is_waited_for_though_not_for_long(
    home: Home, ago_s: float, may_come: bool
) -> None:
    home.folder.note("children", {CHILD: time.time() - ago_s})
    kin = home.kin()
    assert kin.status().active == ((CHILD,) if may_come else ())
    assert any(CHILD in remark for remark in kin.remarks()) is not may_come
    home.begin(CHILD, home.parent, ProcessIdentity(1 << 30))
    assert kin.status().active == ()


def test_a_request_for_an_old_run_leaves_that_as_it_is(ralph: Ralph, home: Home) -> None:
    home.begin(CHILD, "")
    for number in range(101):
        home.begin(f"20261117-000000-{number:04d}", "")
    home.ask(wanting(ralph, ENDLESS))
    kin = home.kin()
    assert kin.status().active == ()
    assert any("such a run already" in remark for remark in kin.remarks())
    assert not (Path(home.project.store) / "runs" / CHILD).exists()


def test_that_a_child_was_at_work_is_told_once(home: Home) -> None:
    kin = home.kin()
    assert not kin.has_activity()
    home.begin(CHILD, home.parent)
    assert kin.has_activity()
    assert kin.has_activity(), "it is still at work"
    home.ledger.append(CHILD, (RunEnded(Failed("x", 0)),))
    assert kin.has_activity()
    assert not kin.has_activity()
    assert home.kin().has_activity(), "who takes the run up has seen nothing of it yet"


@pytest.mark.parametrize(
    ("parents", "childs", "own", "spent", "most"),
    [
        ((1000, 1000), 5000, 5000, (0, 0, 0), 1000),
        ((1000, 1000), None, None, (0, 0, 0), 1000),
        ((1000, 1000), 300, 5000, (0, 0, 0), 300),
        ((1000, 1000), 5000, 5000, (100, 0, 0), 900),
        ((1000, 1000), 5000, 400, (100, 50, 0), 400),
        ((1000, 1000), 5000, 5000, (100, 50, 650), 850),
        ((1000, 1000), 5000, 5000, (1000, 0, 0), 1),
        ((None, None), 5000, 5000, (100, 50, 0), 4950),
        ((None, None), None, None, (100, 50, 0), None),
    ],
    ids=str,
)
def test_a_run_has_no_more_than_each_run_above_it_has_left_and_its_own_use_is_its_own(
    home: Home, parents: tuple[int | None, int | None], childs: int | None, own: int | None,
    spent: tuple[int, int, int], most: int | None,
) -> None:  # fmt: skip
    """A grandchild that is taken up: what it has spent itself is not taken from it twice."""
    grandchild = "20261117-000000-bbbb"
    home.begin(CHILD, home.parent)
    home.begin(grandchild, CHILD)
    home.limit(home.parent, Budget(None, parents[0], parents[1]))
    home.limit(CHILD, Budget(None, childs))
    for run, micro_usd in zip((home.parent, CHILD, grandchild), spent, strict=True):
        home.spend(run, micro_usd)
    budget = cap_budget_by_ancestors(Budget(None, own), grandchild, home.project, home.ledger, home.purse, CHILD)
    assert budget.micro_usd == most
    assert budget.tokens == parents[1]
