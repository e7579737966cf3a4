"""Runs that ended long ago, written into the ledger as records: many of them, at once."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from ralphproof.base.processes import ProcessIdentity
from ralphproof.engine.agent import Turn
from ralphproof.engine.claim import ParsedClaim
from ralphproof.engine.limits import Breach, Spend
from ralphproof.engine.outcome import Aborted, Completed, Failed, Metrics, Outcome, Retry
from ralphproof.engine.plan import Job, Stage, Task
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.records import Judged, Picked, Record, RunBegan, RunEnded, Saved, TurnBegan, TurnEnded
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.store.run_folder import new_run_id
from tests.ralph import Ralph

NOBODY = ProcessIdentity(2**22 + 1, "1", "another boot")  # a process that there is not
HERE = Snapshot(None, None)
TITLES = (
    "Parse quoted fields in the CSV reader", "Retry uploads that time out", "Make the search ignore accents",
    "Remove the old session table", "Show prices with the customer's tax", "Cache thumbnails on disk",
    "Refuse orders without an address", "Speed up the nightly import", "Translate the checkout",
    "Fix the flaky clock test",
)  # fmt: skip
AGENTS = (("claude", "opus"), ("codex", "gpt-5.5-codex"), ("gemini", "pro"), ("opencode", ""))
REASONS = ("MAX_ITERATIONS", "COST_LIMIT", "STALL", "SAME_ERROR_5X", "TIME_LIMIT", "CANCELLED")
DAY_S = 86400.0


def past(ralph: Ralph, count: int, days: float = 30.0, seed: int = 7, parent: str = "") -> list[str]:
    """So many runs that ended in these days, each with its figures; their ids, the newest last."""
    chance, now = random.Random(f"{seed} {parent}"), time.time()
    began = sorted(now - 3600 - chance.random() * days * DAY_S for _ in range(count))
    ledger = ralph.project.ledger(read_only=False)
    ids = []
    try:
        for at in began:
            run = new_run_id(at, chance.randbytes(3))
            ledger.begin_run(run, str(ralph.root), at, NOBODY, parent)
            records = _records(chance, run, at)
            with patch("ralphproof.store.ledger.time", SimpleNamespace(time=lambda at=at: at + 600.0)):
                ledger.append(run, records)
            ids.append(run)
    finally:
        ledger.close()
    return ids


def _records(chance: random.Random, run: str, at: float) -> tuple[Record, ...]:
    agent, model = chance.choice(AGENTS)
    title, iterations, seconds = chance.choice(TITLES), chance.randint(1, 9), chance.uniform(60, 1500)
    known = agent != "opencode"
    micro_usd = round(chance.uniform(0.08, 0.5) * iterations * 1e6) if known else 0
    spend = Spend(micro_usd, iterations * 21_000, int(not known))
    outcome = _outcome(chance, iterations, spend, seconds)
    box = chance.choice(({"name": "bubblewrap", "strength": "strong"}, {"name": "none", "strength": "none"}))
    facts: dict[str, Any] = {"agent": agent, "model": model, "preset": "harness", "title": title, "sandbox": dict(box)}
    facts |= {"maximumIterations": 10, "maxCostUsd": 5.0}
    job = Job(Task("prompt", title, title), Stage("work"))
    metrics = Metrics(
        run, at, at + seconds, outcome.status, getattr(outcome, "reason", ""), "", "", agent, model, "harness",
        iterations, seconds, spend.micro_usd if known else None, spend.micro_usd, spend.tokens, 4, None, True,
        isinstance(outcome, Completed) and outcome.verified,
    )  # fmt: skip
    one: tuple[Record, ...] = (
        Picked(1, job), TurnBegan(1, 1, "digest", (), agent), TurnEnded(1, 1, Turn(Exit(0), "done")),
        Saved(1, 1, HERE, Change(), ParsedClaim()), Judged(1, 1, Retry(Feedback()), 1.0),
    )  # fmt: skip
    return (RunBegan(run, HERE, facts, at), *one, RunEnded(outcome, metrics))


def _outcome(chance: random.Random, iterations: int, spend: Spend, seconds: float) -> Outcome:
    luck = chance.random()
    if luck < 0.72:
        concerns = ("two tests are skipped",) if luck < 0.08 else ()
        return Completed(iterations, spend, seconds, "done", luck < 0.66, concerns)
    if luck < 0.96:
        reason = chance.choice(REASONS)
        return Aborted(Breach(reason, f"the facts of {reason}"), iterations, spend, seconds, "")
    return Failed("the machine is gone", 1)
