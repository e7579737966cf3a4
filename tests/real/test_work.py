"""Tasks that real agents take through their stages, and that real agents judge."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from ralphproof.check import Finding
from ralphproof.judgement import schema
from ralphproof.record import CheckEnded, Judged, Picked, Resumed
from ralphproof.stage import Job
from ralphproof.verdict import Passed, Retry, SentBack
from tests.agents import stage
from tests.agents.model.judging import nonce_in
from tests.agents.model_server import shown
from tests.misbehaviour.crashing import booked, ended_alone
from tests.misbehaviour.invariants import hold
from tests.ralph import Ended, Live, Ralph, until
from tests.real.conftest import Json, Real, says, writes

pytestmark = [pytest.mark.thorough, pytest.mark.parametrize("agent", ["claude"])]

TASK = """\
task:
  id: GREET-1
  title: "Greet somebody by name"
  description: "A function in greeting.py greets somebody, and main.py calls it."
  completion:
    outcome: "main.py greets whoever is named on its command line"
    acceptance_criteria:
      - "greet returns a greeting with the name in it"
      - "main.py greets the name that it is given"
    coder:
      promise: "GREETING_WRITTEN"
      verification_method: external
      verification_config: {command: "test \\"$(python3 -B main.py Ada)\\" = 'Hello, Ada!'"}
    reviewer:
      promise: "GREETING_REVIEWED"
      verification_method: semantic
      verification_config:
        check_for: ["an empty name is refused", "no name is written into the code"]
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
HOUSE_RULE = "Whoever reads this has read the settings of the user."
USUAL, DEAR = "claude-sonnet-4-5", "claude-opus-4-5"


def promise(word: str, text: str = "I am done.", **more: Any) -> Json:
    """A turn: the model claims that its stage is done."""
    return says(f"{text}\n\n<promise>{word}</promise>", **more)


def rules(*quotations: str | None, **more: Any) -> Json:
    """A turn: the model answers a judge's question, with what shows each criterion to be met, or None."""
    return {"rules": list(quotations), **more}


def replaces(name: str, content: str) -> Json:
    return {"text": f"I mend {name}.", "calls": [{"read": name}, {"write": [name, content]}]}


def work(real: Real, turns: list[Json], *argv: str) -> Ended:
    """`ralph work` to its end."""
    ended = real.ralph("work", "--agent", real.agent, *argv, via=real._via(turns, {}), timeout_s=120)
    hold(real.ralph, ended)
    return ended


def asked(real: Real, judge: bool) -> list[Json]:
    """What the model was asked, by judges or by all others."""
    requests = (request for request in stage.requests_in(real.asked) if request["method"] == "POST")
    return [request for request in requests if bool(nonce_in(request["body"])) is judge]


def findings(real: Real, iteration: int) -> dict[str, Finding]:
    ended = (record for record in real.recorded(CheckEnded) if record.iteration == iteration)
    return {record.finding.check: record.finding for record in ended}


@pytest.fixture()
def task(real: Real) -> None:
    path = real.ralph.folder / "task.yaml"
    path.write_text(TASK, encoding="utf-8")
    assert real.ralph("task", "import", str(path)).code == 0

WRITTEN = (writes("greeting.py", CAREFUL), writes("main.py", MAIN), promise("GREETING_WRITTEN"))
REVIEW_ONLY = ("--skip", "tester", "--skip", "qa")


def show(real, ended):
    print(ended.out); print(ended.err)
    for r in stage.requests_in(real.asked):
        b=r["body"]; print(r["method"],r["path"],r["turn"],b.get("model"),len(json.dumps(b)),[t["name"] for t in b.get("tools",[])][:4])
    print(real.ralph.outcome()); print(booked(real.ralph))
    for p in sorted(real.ralph.run_folder().glob("judge*")): print(p.name, p.read_text()[:600] if p.is_file() else "")
    for r in real.recorded(CheckEnded):
        if r.finding.judged: print(r.finding)


def test_gone(real: Real, task: None) -> None:
    """Money is gone before the judge is asked."""
    real.ralph.settings(agent={"model": USUAL}, stages={"reviewer": {"model": "haiku"}})
    turns = [*WRITTEN, promise("GREETING_REVIEWED", usage={"input": 2_000_000}), rules(REFUSES, CALLS)]
    ended = real.ralph("work", "--agent", real.agent, *REVIEW_ONLY, "-m", "3", "--max-cost-usd", "0.2", via=real._via(turns, {}), timeout_s=120)
    show(real, ended)
    assert 0

def test_codex(ralph: Ralph, agent: str) -> None:
    real = Real(ralph, "claude", ("codex",))
    path = real.ralph.folder / "task.yaml"
    path.write_text(TASK, encoding="utf-8")
    assert real.ralph("task", "import", str(path)).code == 0
    real.ralph.settings(agent={"model": USUAL}, stages={"reviewer": {"agent": "codex"}})
    turns = [*WRITTEN, promise("GREETING_REVIEWED"), rules(REFUSES, CALLS)]
    ended = real.ralph("work", "--agent", real.agent, *REVIEW_ONLY, "-m", "3", via=real._via(turns, {}), timeout_s=120)
    show(real, ended)
    for r in asked(real, True): print(json.dumps(r)[:6000])
    assert 0
