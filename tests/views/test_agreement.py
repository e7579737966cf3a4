"""What one view says of a run, every other one says too."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ralphproof.ledgers.folder import RunFolder
from ralphproof.ledgers.process import this_process
from ralphproof.record import RunBegan, RunEnded, Saved
from ralphproof.tui.ink import UNICODE
from ralphproof.tui.run_head import head
from ralphproof.value import replace
from ralphproof.views.board import Board
from ralphproof.views.budgets import NOTE
from ralphproof.workspace import Change
from tests.cli.tasking import CODER, HERE, NOBODY, RETRY, Command, aborted, command_line, iteration, opened, worked
from tests.ralph import Ralph

RUN = "20260101-000001-aaaa"


@pytest.fixture
def cli(ralph: Ralph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(ralph, monkeypatch, capsys)


def line_of(ralph: Ralph, run: str = RUN) -> Any:
    """What the list says of a run."""
    lines: Any = Board(ralph.project).runs()["runs"]
    return next(line for line in lines if line["run"] == run)


def page_of(ralph: Ralph, run: str = RUN) -> Any:
    return Board(ralph.project).run(run)


def head_of(ralph: Ralph, run: str = RUN) -> str:
    """The head of its page on the board."""
    page = page_of(ralph, run)
    return "\n".join(line.plain for line in head(page, 200, UNICODE, page["since"] + 30))


def test_a_run_that_nobody_is_at_does_nothing(ralph: Ralph, cli: Command) -> None:
    worked(ralph, RUN, "", *iteration(1, "T", CODER), process=NOBODY)
    assert cli("status").out.startswith(f"run {RUN} crashed: its harness is gone, and nothing of it is at work\n")
    assert cli("status", "--json").out.count("the agent works") == 0
    assert (line_of(ralph)["state"], line_of(ralph)["doing"]) == ("crashed", "")
    assert (page_of(ralph)["state"], page_of(ralph)["doing"]) == ("crashed", "")
    assert "for 30 s" not in head_of(ralph)


def test_an_iteration_counts_in_every_view_once_it_has_begun(ralph: Ralph, cli: Command) -> None:
    worked(ralph, RUN, "", *iteration(1, "T", CODER, (), RETRY), *iteration(2, "T", CODER))
    assert "so far: 2 iterations, " in cli("status").out
    assert "  2 iterations  " in cli("status", "--tree").out
    assert (line_of(ralph)["iterations"], page_of(ralph)["iterationCount"]) == (2, 2)


def test_what_a_check_wrote_is_no_file_of_the_agents_in_any_view(ralph: Ralph, cli: Command) -> None:
    change = Change(("made", "report.txt"), older=("report.txt",))
    records = [
        replace(one, change=change) if isinstance(one, Saved) else one for one in iteration(1, "T", CODER, (), RETRY)
    ]
    worked(ralph, RUN, "", *records)
    assert ["1", "ended", "1"] in [line.split()[:3] for line in cli("status").out.splitlines()]
    assert cli("status", "--json").json["iterations"][0]["files"] == ["made"]
    (told,) = page_of(ralph)["iterations"]
    assert (told["files"], told["fileCount"]) == (["made"], 1)


def test_a_limit_that_was_raised_is_the_same_in_every_view(ralph: Ralph, cli: Command) -> None:
    began = RunBegan(RUN, HERE, {"agent": "claude", "maximumIterations": 1, "sandbox": {"name": "direct"}})
    for end in ((), (RunEnded(aborted("MAX_ITERATIONS")),)):
        run = RUN.replace("aaaa", f"aaa{len(end)}")
        with opened(ralph) as ledger:
            ledger.begin_run(run, str(ralph.root), time.time(), this_process())
            ledger.append(run, (began, *iteration(1, "T", CODER, (), RETRY), *end))
        folder = RunFolder(str(ralph.root), run, ralph.project.store)
        folder.note(NOTE, {"budget": {"iterations": 3, "micro_usd": 2_000_000}})  # as whoever takes it up does
        told = cli("status", run, "--json").json["facts"]
        line, page = line_of(ralph, run), page_of(ralph, run)
        assert "at most 3 iterations" in cli("status", run).out
        for one in (told, line, page, page["facts"]):
            assert (one["maximumIterations"], one["maxCostUsd"]) == (3, 2.0)
