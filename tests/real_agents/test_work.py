"""Tasks that real agents take through their stages, and that real agents judge."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ralphproof.checks.judge import answer_schema
from ralphproof.engine.check import Finding
from ralphproof.engine.outcome import Passed, Retry, SentBack
from ralphproof.engine.plan import Job
from ralphproof.engine.records import CheckEnded, Judged, Picked, Resumed
from tests.agents import isolated_network
from tests.agents.model.judging import nonce_in
from tests.agents.model_server import shown
from tests.misbehaviour.crashing import booked, ended_alone
from tests.misbehaviour.invariants import hold
from tests.ralph import Ended, Live, Ralph, until
from tests.real_agents.conftest import Json, Real, says, writes

pytestmark = [pytest.mark.thorough, pytest.mark.parametrize("agent", ["claude"])]

TASK = """\
task:
  id: GREET-1
  title: "Greet somebody by name"
  description: "A function in greeting.py greets somebody, and main.py calls it."
  completion:
    outcome: "main.py greets whoever is named on its command line"
    acceptance_criteria:
      - greet returns a greeting with the name in it
      - main.py greets the name that it is given
    coder:
      promise: "GREETING_WRITTEN"
      verification_method: external
      verification_config: {command: "test \\"$(python3 -B main.py Ada)\\" = 'Hello, Ada!'"}
    reviewer:
      promise: "GREETING_REVIEWED"
      verification_method: semantic
      verification_config:
        check_for: [an empty name is refused, no name is written into the code]
        max_cost_usd: 5
    tester:
      promise: "GREETING_TESTED"
      verification_method: external
      verification_config: {command: "python3 -B -m unittest -q test_greeting"}
    qa:
      promise: "GREETING_ACCEPTED"
      verification_method: multi_stage
      verification_config:
        stages:
          - {name: all_tests, method: external, config: {command: "python3 -B -m unittest -q"}}
          - {name: accepted, method: semantic, config: {check_for: "{{acceptance_criteria}}"}}
"""
CRITERIA = ("an empty name is refused", "no name is written into the code")
SCRIPT_CONCERN = ["main.py: the script of the check was written during the run"]
ACCEPTANCE = ("greet returns a greeting with the name in it", "main.py greets the name that it is given")
COSTLY = {"input": 2_000_000}  # a dollar, for the smallest of models
GREETS = '    return f"Hello, {name}!"'
REFUSES = '        raise ValueError("a name is needed")'
CALLS = "print(greet(sys.argv[1]))"
CARELESS = f"def greet(name: str) -> str:\n{GREETS}\n"
CAREFUL = f"def greet(name: str) -> str:\n    if not name:\n{REFUSES}\n{GREETS}\n"
MAIN = f"import sys\n\nfrom greeting import greet\n\n{CALLS}\n"
TEST = """\
import unittest

from greeting import greet


class Greeting(unittest.TestCase):
    def test_it_greets_by_name(self):
        self.assertEqual(greet("Ada"), "Hello, Ada!")

    def test_no_name_is_refused(self):
        self.assertRaises(ValueError, greet, "")
"""
FAULT = "greeting.py:2 greets nobody where the name is empty. Refuse it."
USUAL, DEAR = "claude-sonnet-4-5", "claude-opus-4-5"
REVIEWED = ("--skip", "tester", "--skip", "qa")  # a task that is done when it is reviewed


def promise(word: str, text: str = "I am done.", **more: Any) -> Json:
    """A turn: the model claims that its stage is done."""
    return says(f"{text}\n\n<promise>{word}</promise>", **more)


def rules(*quotations: str | None, **more: Any) -> Json:
    """A turn: the model answers a judge's question, with what shows each criterion to be met, or None."""
    return {"rules": list(quotations), **more}


def mends(name: str, content: str, **more: Any) -> Json:
    """A turn: the model writes a file anew, which Claude Code lets it do when it has read it."""
    return {"text": f"I mend {name}.", "calls": [{"read": name}, {"write": [name, content]}], **more}


WRITTEN = (writes("greeting.py", CAREFUL), writes("main.py", MAIN), promise("GREETING_WRITTEN"))
"""The three turns of a coder."""


@pytest.fixture
def real(ralph: Ralph, agent: str) -> Real:
    """A project with a task, and two models: the usual one, and one for reviews."""
    made = Real(ralph, agent, ("codex",))
    ralph.settings(agent={"model": USUAL}, stages={"reviewer": {"model": DEAR}})
    path = ralph.folder / "task.yaml"
    path.write_text(TASK, encoding="utf-8")
    assert ralph("task", "import", str(path)).code == 0
    return made


def work(real: Real, turns: Sequence[Json], *argv: str) -> Ended:
    """`ralph work` to its end."""
    ended = real.ralph("work", "--agent", real.agent, *argv, via=real._via(turns, {}), timeout_s=120)
    hold(real.ralph, ended)
    return ended


def requests(real: Real, judge: bool) -> list[Json]:
    """What the model was asked, by judges or by all others."""
    return [one for one in isolated_network.requests_in(real.asked) if bool(nonce_in(one["body"])) is judge]


def models(requests: list[Json]) -> list[str]:
    return [request["body"]["model"] for request in requests]


def verdicts(real: Real) -> list[tuple[str, type]]:
    """Each iteration's stage, and what followed from it."""
    jobs = [record.choice for record in real.recorded(Picked) if isinstance(record.choice, Job)]
    kinds = [type(record.verdict) for record in real.recorded(Judged)]
    return [(job.stage.name, kind) for job, kind in zip(jobs, kinds, strict=False)]  # one more may be picked than begun


def rulings(real: Real) -> list[Finding]:
    """What judges found, oldest first."""
    return [record.finding for record in real.recorded(CheckEnded) if record.finding.judged]


def paid(real: Real) -> int:
    """What Claude Code says that all its calls cost, in micro-dollars."""
    logs = [path.stem for path in real.ralph.run_folder().glob("*.ndjson")]
    return sum(round(real.printed(log)[-1]["total_cost_usd"] * 1_000_000) for log in logs)


def offered(request: Json) -> set[str]:
    """The tools that a model may call; Claude Code keeps the place of one that it never has (2.1.325)."""
    return {tool["name"] for tool in request["body"].get("tools") or [] if not tool.get("defer_loading")}


def test_a_task_is_written_sent_back_mended_reviewed_tested_and_accepted(real: Real) -> None:
    turns = [
        writes("greeting.py", CARELESS), writes("main.py", MAIN), promise("GREETING_WRITTEN"),
        promise("CHANGES_REQUESTED", FAULT),
        mends("greeting.py", CAREFUL), promise("GREETING_WRITTEN"),
        promise("GREETING_REVIEWED"), rules(REFUSES, CALLS),
        writes("test_greeting.py", TEST), promise("GREETING_TESTED"),
        promise("GREETING_ACCEPTED"), rules(GREETS, CALLS),
    ]  # fmt: skip
    ended = work(real, [{**turn, "usage": {"input": 1000 * place}} for place, turn in enumerate(turns, 1)])
    outcome = real.ralph.outcome()
    assert (ended.code, outcome["proof"], outcome["concerns"]) == (0, "verified", SCRIPT_CONCERN), ended
    assert real.answered() == list(range(len(turns))), "nothing was asked twice"
    assert verdicts(real) == [
        ("coder", Passed), ("reviewer", SentBack), ("coder", Passed), ("reviewer", Passed), ("tester", Passed),
        ("qa", Passed),
    ]  # fmt: skip
    assert FAULT in real.shown(4)
    assert [(one.check, one.passed, one.runs) for one in rulings(real)] == [
        ("reviewer.semantic", True, 1), ("accepted", True, 1)
    ]  # fmt: skip
    assert models(requests(real, judge=False)) == [USUAL] * 3 + [DEAR] + [USUAL] * 2 + [DEAR] + [USUAL] * 3
    assert ["haiku" in model for model in models(requests(real, judge=True))] == [True, True]
    added_up(real)
    shown_to_judges(real)


def added_up(real: Real) -> None:
    """Every call stands in the book once, and all of them make up the price of the run."""
    book = booked(real.ralph)
    assert list(book) == [
        "agent_001", "agent_002", "agent_003", "agent_004", "judge_004_1_1_reviewer.semantic", "agent_005",
        "agent_006", "judge_006_1_1_accepted",
    ]  # fmt: skip
    costs = [cost or 0 for cost in book.values()]
    assert min(costs) > 0
    assert sum(costs) == paid(real) == round(real.ralph.outcome()["costUSD"] * 1_000_000)
    assert real.ralph.state().spend.tokens == sum(1000 * place + 50 + 800 + 10 for place in range(1, 13))


def shown_to_judges(real: Real) -> None:
    """The whole work and the criteria, and no tool but the one that takes the answer."""
    review, acceptance = requests(real, judge=True)
    for request, criteria in ((review, CRITERIA), (acceptance, ACCEPTANCE)):
        nonce, text = nonce_in(request["body"]), shown(request)
        for number, criterion in enumerate(criteria, 1):
            assert f"===== BEGIN CRITERION {number} {nonce} =====\n{criterion}\n" in text
        for line in ("+++ b/greeting.py", f"+{REFUSES}", f"+{GREETS}", "+++ b/main.py", f"+{CALLS}"):
            assert line in text.splitlines()
        assert offered(request) == {"StructuredOutput"}
        (form,) = [tool for tool in request["body"]["tools"] if tool["name"] == "StructuredOutput"]
        assert form["input_schema"] == json.loads(answer_schema(2))
    assert ["+++ b/test_greeting.py" in shown(one) for one in (review, acceptance)] == [False, True]
    assert nonce_in(review["body"]) != nonce_in(acceptance["body"])


def test_a_judge_that_quotes_what_is_not_there_completes_nothing(real: Real) -> None:
    careless = [writes("greeting.py", CARELESS), *WRITTEN[1:]]
    invented = rules(REFUSES, CALLS)
    ended = work(real, [*careless, promise("GREETING_REVIEWED"), invented, says("I see.")], *REVIEWED, "-m", "3")
    assert (ended.code, real.ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS"), ended
    assert verdicts(real) == [("coder", Passed), ("reviewer", SentBack), ("coder", Retry)]
    (found,) = rulings(real)
    assert (found.passed, found.errored, found.why) == (False, False, "1 of 2 criteria not met")
    assert found.output.startswith(f"NOT met: 1. {CRITERIA[0]} | why: the judge quoted what is not in the work.")
    assert "the judge quoted what is not in the work" in real.shown(5)


def test_a_judge_whose_service_fails_is_waited_for_and_asked_again(real: Real) -> None:
    failing = [{"status": status, "times": 3} for status in (500, 529)]
    turns = [
        writes("test_greeting.py", TEST), *WRITTEN, promise("GREETING_REVIEWED"), failing[0], rules(REFUSES, CALLS),
        promise("GREETING_ACCEPTED"), failing[1], rules(GREETS, CALLS),
    ]  # fmt: skip
    ended = work(real, turns, "--skip", "tester", "-m", "4")
    assert (ended.code, real.ralph.outcome().get("proof")) == (0, "verified"), ended
    assert verdicts(real) == [("coder", Passed), ("reviewer", Passed), ("qa", Passed)]
    for found, status in zip(rulings(real), (500, 529), strict=True):
        assert (found.passed, found.errored, found.runs) == (True, False, 2)
        assert str(status) in found.output
    assert real.ralph.outcome()["concerns"] == SCRIPT_CONCERN


def test_a_judge_that_spends_more_than_is_left_completes_nothing_by_its_yes(real: Real) -> None:
    turns = [*WRITTEN, promise("GREETING_REVIEWED"), rules(REFUSES, CALLS, usage=COSTLY)]
    ended = work(real, turns, *REVIEWED, "--max-cost-usd", "0.2")
    assert (ended.code, real.ralph.outcome()["reason"]) == (1, "COST_LIMIT"), ended
    assert real.answered() == [0, 1, 2, 3, 4]
    assert sum(cost or 0 for cost in booked(real.ralph).values()) == paid(real) > 1_000_000
    assert real.ralph.outcome()["costUSD"] == paid(real) / 1_000_000


def test_a_judge_may_spend_what_is_left_and_no_more(real: Real) -> None:
    """Claude Code tells its model what it was told."""
    work(real, [*WRITTEN, promise("GREETING_REVIEWED"), rules(REFUSES, CALLS)], *REVIEWED, "--max-cost-usd", "0.2")
    coder, reviewer, _ = (cost or 0 for cost in booked(real.ralph).values())
    (request,) = requests(real, judge=True)
    assert f"USD budget: $0/${(200_000 - coder - reviewer) / 1e6:g};" in shown(request)


def test_a_judge_is_not_asked_when_the_money_is_gone(real: Real) -> None:
    """Nobody knows the price of this model before Claude Code says what the turn has cost."""
    real.ralph.settings(agent={"model": USUAL}, stages={"reviewer": {"model": "claude-nobody-7"}})
    turns = [*WRITTEN, promise("GREETING_REVIEWED", usage=COSTLY), rules(REFUSES, CALLS)]
    ended = work(real, turns, *REVIEWED, "--max-cost-usd", "0.2")
    assert (ended.code, real.ralph.outcome()["reason"]) == (1, "COST_LIMIT"), ended
    assert requests(real, judge=True) == []


def test_codex_reviews_and_judges_what_claude_wrote(real: Real) -> None:
    real.ralph.settings(agent={"model": USUAL}, stages={"reviewer": {"agent": "codex"}})
    ended = work(real, [*WRITTEN, promise("GREETING_REVIEWED"), rules(REFUSES, CALLS)], *REVIEWED)
    assert (ended.code, real.ralph.outcome()["proof"]) == (0, "verified"), ended
    *coder, reviewer = requests(real, judge=False)
    (judge,) = requests(real, judge=True)
    assert models([*coder, reviewer, judge]) == [USUAL] * 3 + ["fake-model"] * 2
    form = judge["body"]["text"]["format"]
    assert (form["type"], form["strict"], form["schema"]) == ("json_schema", True, json.loads(answer_schema(2)))
    assert not judge["body"].get("tools")
    assert "text" not in reviewer["body"] or "format" not in reviewer["body"]["text"]
    for part in (*CRITERIA, f"+{REFUSES}", f"+{CALLS}"):
        assert part in shown(judge)
    (found,) = rulings(real)
    assert (found.passed, found.runs) == (True, 1)
    assert found.spent is not None
    assert found.spent.usage is not None
    assert (found.spent.micro_usd, found.spent.usage.total) == (None, 1860)
    assert real.ralph.outcome()["cost"]["atLeast"] is True, "what Codex costs is not known here"


def begin(real: Real, gate: Path) -> Live:
    """A task that is taken up again when the file `resume` is there; its judge answers when the gate is open."""
    program = shlex.join((sys.executable, "-m", "ralphproof", "work"))
    again = f'"$@"; until test -e {real.ralph.folder}/resume; do sleep 0.05; done; exec {program}'
    turns = [*WRITTEN, promise("GREETING_REVIEWED"), rules(REFUSES, CALLS, hold=str(gate))]
    on_stage = (*real._via(turns, {}), "sh", "-c", again, "sh")
    live = real.ralph.start("work", "--agent", real.agent, *REVIEWED, via=on_stage)
    until(lambda: requests(real, judge=True), "the judge is asked", 60)
    return live


@pytest.mark.parametrize("alone", [False, True], ids=["adopted", "ended-alone"])
def test_a_judge_whose_harness_was_killed_is_asked_and_paid_once(real: Real, alone: bool) -> None:
    gate = real.ralph.folder / "gate"
    live = begin(real, gate)
    (row,) = real.ralph.runs()
    os.kill(row.pid, signal.SIGKILL)
    if alone:
        gate.touch()
        (path,) = Path(real.ralph.project.store, "runs", row.id).glob("judge_*.turn")
        ended_alone(real.ralph, path.stem)
    (real.ralph.folder / "resume").touch()
    until(lambda: len(real.recorded(Resumed)) == 1, "the run is taken up", 40)
    gate.touch()
    ended = live.end()
    hold(real.ralph, ended)
    assert (ended.code, real.ralph.outcome()["proof"]) == (0, "verified"), ended
    assert real.answered() == [0, 1, 2, 3, 4]
    (found,) = rulings(real)
    assert (found.passed, found.runs) == (True, 1)
    book = booked(real.ralph)
    assert list(book) == ["agent_001", "agent_002", "judge_002_1_1_reviewer.semantic"]
    assert sum(cost or 0 for cost in book.values()) == paid(real) == real.ralph.state().spend.micro_usd
