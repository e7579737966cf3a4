"""Tasks for tests: the command line without a process of its own, and runs that worked on a task, as records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ralphproof.base.processes import ProcessIdentity, current_process
from ralphproof.cli.dispatch import dispatch
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import CheckReport, Finding
from ralphproof.engine.claim import ParsedClaim
from ralphproof.engine.limits import Breach, Spend
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome, Passed, Retry, Verdict
from ralphproof.engine.plan import Job, Stage, Task
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.records import (
    CheckBegan,
    CheckEnded,
    Judged,
    Picked,
    Record,
    RunBegan,
    RunEnded,
    Saved,
    TurnBegan,
    TurnEnded,
)
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.tasks import TaskRow
from tests.ralph import Ended, Ralph

Command = Callable[..., Ended]
NOBODY = ProcessIdentity(2**22 + 1, "1", "another boot")  # a process that there is not
COMPLETION = '{"outcome": "All of it works at once", "acceptance_criteria": ["it is fast", "it is right"]}'
HERE = Snapshot(None, None)
NEEDED = ("--outcome", "All of it works at once", "--acceptance", "it is fast")


def command_line(ralph: Ralph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`ralph` in this process, on the project; a tenth of the time."""
    for name, text in ralph.env.items():
        monkeypatch.setenv(name, text)
    monkeypatch.chdir(ralph.root)

    def run(*argv: str) -> Ended:
        capsys.readouterr()
        code = dispatch(list(argv))
        told = capsys.readouterr()
        return Ended(code, told.out, told.err)

    return run


@contextmanager
def opened(ralph: Ralph) -> Iterator[SqliteLedger]:
    """The project's ledger."""
    ledger = ralph.project.ledger(read_only=False)
    try:
        yield ledger
    finally:
        ledger.close()


def keep(ralph: Ralph, *rows: TaskRow) -> None:
    """Tasks, as nothing but the ledger sees them."""
    with opened(ralph) as ledger:
        ledger.tasks.add(rows)


def iteration(
    number: int, task: str, stage: Stage, findings: tuple[Finding, ...] = (), verdict: Verdict | None = None
) -> tuple[Record, ...]:
    """The records of one iteration; without a verdict it goes on."""
    job = Job(Task(task, ""), stage)
    begun: tuple[Record, ...] = (Picked(number, job), TurnBegan(number, 1, "digest", (), "claude"))
    if verdict is None:
        return begun
    asked = [record for one in findings for record in (CheckBegan(number, 1, one.check), CheckEnded(number, 1, one))]
    return (
        *begun, TurnEnded(number, 1, Turn(Exit(0), "done")), Saved(number, 1, HERE, Change(), ParsedClaim()), *asked,
        Judged(number, 1, verdict, float(number)),
    )  # fmt: skip


def worked(
    ralph: Ralph,
    run: str,
    task: str,
    *records: Record,
    end: Outcome | None = None,
    process: ProcessIdentity | None = None,
) -> None:
    """A run that worked on a task: with an end it is over, without one it goes on, or its process is gone."""
    ended = (RunEnded(end),) if end else ()
    with opened(ralph) as ledger:
        ledger.begin_run(run, str(ralph.root), time.time(), process or current_process(), task=task)
        ledger.append(run, (RunBegan(run, HERE, {"agent": "claude"}), *records, *ended))


CODER, TESTER = Stage("coder", max_iterations=15), Stage("tester", max_iterations=10)
RETRY, PASSED = Retry(Feedback()), Passed(CheckReport())


def completed(**more: bool) -> Completed:
    return Completed(2, Spend(), 1.0, "done", more.get("verified", True), judged=more.get("judged", False))


def aborted(reason: str) -> Aborted:
    return Aborted(Breach(reason, f"the facts of {reason}"), 3, Spend(), 1.0, "")


FAILED = Failed("the machine is gone", 1)
