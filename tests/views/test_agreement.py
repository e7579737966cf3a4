"""What one view says of a run, every other one says too."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.processes import current_process
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.agent import Spent, Turn
from ralphproof.engine.check import Finding
from ralphproof.engine.limits import Spend
from ralphproof.engine.plan import AllDone, Job, Task
from ralphproof.engine.records import CheckBegan, CheckEnded, Picked, RunBegan, RunEnded, Saved, TurnEnded
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Change
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import turn_file_path
from ralphproof.store.spend import SpendStore
from ralphproof.tui.runs_pages import run_header
from ralphproof.tui.style import UNICODE
from ralphproof.views.published_json import epoch_seconds, time_json
from ralphproof.views.read_model import ReadModel
from ralphproof.views.run_status import LIMITS_NOTE
from tests.cli.tasking import (
    CODER,
    HERE,
    NOBODY,
    RETRY,
    Command,
    aborted,
    command_line,
    completed,
    iteration,
    opened,
    worked,
)
from tests.ralph import Ralph

if TYPE_CHECKING:
    from ralphproof.base.value import Json

ONE_PASSED = {"v": 1, "type": "checkCounts", "passedCount": 1, "failedCount": 0}
RUN = "20260101-000001-aaaa"


@pytest.fixture
def cli(ralph: Ralph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(ralph, monkeypatch, capsys)


def line_of(ralph: Ralph, run: str = RUN) -> Any:
    """What the list says of a run."""
    lines: Any = ReadModel(ralph.project).runs()["runs"]
    return next(line for line in lines if line["id"] == run)


def page_of(ralph: Ralph, run: str = RUN) -> Any:
    return ReadModel(ralph.project).run(run)


def head_of(ralph: Ralph, run: str = RUN) -> str:
    """The head of its page on the board."""
    page = page_of(ralph, run)
    return "\n".join(line.plain for line in run_header(page, 200, UNICODE, epoch_seconds(page["updatedAt"]) + 30))


def test_a_run_that_nobody_is_at_does_nothing(ralph: Ralph, cli: Command) -> None:
    worked(ralph, RUN, "", *iteration(1, "T", CODER), process=NOBODY)
    assert cli("status").out.startswith(f"run {RUN} crashed: its harness is gone, and nothing of it is at work\n")
    assert cli("status", "--json").out.count("the agent works") == 0
    assert (line_of(ralph)["state"], line_of(ralph)["activity"]) == ("crashed", "")
    assert (page_of(ralph)["state"], page_of(ralph)["activity"]) == ("crashed", "")
    assert "for 30 s" not in head_of(ralph)


def test_an_iteration_counts_in_every_view_once_it_has_begun(ralph: Ralph, cli: Command) -> None:
    worked(ralph, RUN, "", *iteration(1, "T", CODER, (), RETRY), *iteration(2, "T", CODER))
    assert "so far: 2 iterations, " in cli("status").out
    assert "  2 iterations  " in cli("status", "--tree").out
    assert (line_of(ralph)["iterations"], page_of(ralph)["iterations"]) == (2, 2)


def spent(ralph: Ralph, run: str, usd: float | None) -> None:
    """What a run has booked."""
    book = SpendStore.open(str(ralph.state_dir))
    book.book(run, "agent_001", Spent(None if usd is None else int(usd * 1_000_000)), time.time())
    book.close()


def bills(told: Any) -> tuple[Any, Any]:
    """What a run spent itself, and with those that it began."""
    together = told["costWithChildren"]
    return told["cost"]["usd"], together and (together["usd"], together["atLeast"])


def family(ralph: Ralph, own: float, end: bool) -> None:
    """A run that spent this itself, and one that it began."""
    turn = Turn(Exit(0), "done", micro_usd=int(own * 1_000_000))
    records = [
        replace(one, reply=turn) if isinstance(one, TurnEnded) else one for one in iteration(1, "T", CODER, (), RETRY)
    ]
    facts: dict[str, Json] = {"maxCostUsd": 0.9}
    over = RunEnded(replace(aborted("COST_LIMIT"), spend=Spend(int((own + 0.8) * 1_000_000))))
    with opened(ralph) as ledger:
        ledger.begin_run(RUN, str(ralph.root), time.time(), current_process())
        ledger.append(RUN, (RunBegan(RUN, HERE, facts), *records, *((over,) if end else ())))
        ledger.begin_run("child", str(ralph.root), time.time(), NOBODY, parent=RUN)


@pytest.mark.parametrize("end", [False, True])
def test_what_children_spend_is_told_beside_a_runs_own_bill_in_every_view(
    ralph: Ralph, cli: Command, end: bool
) -> None:  # fmt: skip
    family(ralph, 0.1, end)
    spent(ralph, "child", 0.8)
    page, both = page_of(ralph), (0.1, (0.9, False))
    assert (bills(line_of(ralph)), bills(page), bills(cli("status", RUN, "--json").json)) == (both, both, both)
    assert bills(cli("status", RUN, "--tree", "--json").json["runs"][0]) == both
    assert next(one for one in page["limits"] if one["name"] == "cost") == {
        "v": 1, "type": "limit", "name": "cost", "used": 0.9, "max": 0.9, "unit": "usd", "atLeast": False,
    }  # fmt: skip
    assert "its own cost $0.10; with runs of its own cost $0.90" in cli("status", RUN).out
    assert "runs of its own: 1, $0.90 with them" in head_of(ralph)


def test_what_a_child_spends_is_seen_at_its_parent_at_once_and_unknown_stays_unknown(ralph: Ralph) -> None:
    family(ralph, 0.1, end=False)
    board = ReadModel(ralph.project)
    first: Any = board.runs()["runs"]
    assert [bills(line) for line in first if line["id"] == RUN] == [(0.1, None)], "it has spent nothing"
    spent(ralph, "child", None)
    with opened(ralph) as ledger:
        ledger.append("child", (RunBegan("child", HERE, {}),))
    then: Any = board.runs()["runs"]
    assert [bills(line) for line in then if line["id"] == RUN] == [(0.1, (0.1, True))]


def test_what_a_check_wrote_is_no_file_of_the_agents_in_any_view(ralph: Ralph, cli: Command) -> None:
    change = Change(("made", "report.txt"), older=("report.txt",))
    records = [
        replace(one, change=change) if isinstance(one, Saved) else one for one in iteration(1, "T", CODER, (), RETRY)
    ]
    worked(ralph, RUN, "", *records)
    assert ["1", "ended", "1"] in [line.split()[:3] for line in cli("status").out.splitlines()]
    assert cli("status", "--json").json["timeline"][0]["files"] == ["made"]
    (told,) = page_of(ralph)["timeline"]
    assert (told["files"], told["fileCount"]) == (["made"], 1)


def test_an_iteration_took_equally_long_in_every_view(ralph: Ralph, cli: Command) -> None:
    asked = CheckEnded(0, 0, Finding("make test", False, seconds=0.25))
    first, second = iteration(1, "T", CODER, (), RETRY), iteration(2, "T", CODER, (), RETRY)
    worked(ralph, RUN, "", CheckBegan(0, 0, "make test"), asked, *first, *second)
    told = [one["durationSeconds"] for one in cli("status", "--json").json["timeline"]]
    assert told == [one["durationSeconds"] for one in page_of(ralph)["timeline"]] == [0.75, 1.0]


def test_a_turn_that_outlived_its_harness_took_as_long_as_it_was_at_work(ralph: Ralph) -> None:
    worked(ralph, RUN, "", *iteration(1, "T", CODER), process=NOBODY)
    file = Path(turn_file_path(ralph.project, RUN, "agent_001"))
    file.parent.mkdir(parents=True)
    file.touch()
    began = epoch_seconds(page_of(ralph)["timeline"][0]["startedAt"])
    os.utime(file, (began + 30, began + 30))  # its keeper wrote its end so much later
    page = page_of(ralph)
    (told,) = page["timeline"]
    assert page["state"] == "crashed"
    assert (told["endedAt"], told["turns"][0]["endedAt"]) == (time_json(began + 30),) * 2
    age = next(one["used"] for one in page["limits"] if one["name"] == "time")
    assert (told["durationSeconds"], age) == (pytest.approx(30, abs=1), pytest.approx(30, abs=1))


def test_the_checks_of_a_run_that_has_ended_are_in_the_list_as_on_its_page(ralph: Ralph) -> None:
    red, green = Finding("lint", False), Finding("make test", True)
    first, second = (iteration(number, "T", CODER, (red, green), RETRY) for number in (1, 2))
    anew = (CheckBegan(2, 1, "lint", 2), CheckEnded(2, 1, replace(red, passed=True), 2))  # of another tree
    worked(ralph, RUN, "", *first, *second[:-1], *anew, second[-1], end=completed())
    assert page_of(ralph)["checkCounts"] == ONE_PASSED
    assert line_of(ralph)["checkCounts"] == ONE_PASSED
    worked(ralph, "none", "", *iteration(1, "T", CODER, (), RETRY), end=completed())
    assert (page_of(ralph, "none")["checkCounts"], line_of(ralph, "none")["checkCounts"]) == (None, None)


def test_tokens_that_nobody_told_are_not_zero_in_any_view(ralph: Ralph, cli: Command) -> None:
    worked(ralph, RUN, "", *iteration(1, "T", CODER, (), RETRY))
    told = (
        line_of(ralph),
        page_of(ralph),
        cli("status", "--json").json,
        cli("runs", "--tree", "--json").json["runs"][0],
    )
    assert [one["tokens"] for one in told] == [None] * 4


def test_a_run_without_a_title_of_its_own_has_that_of_what_it_works_on_now(ralph: Ralph) -> None:
    first, second = (Picked(number, Job(Task(f"US-{number}", "", f"Story {number}"), CODER)) for number in (1, 2))
    records = (first, *iteration(1, "T", CODER, (), RETRY)[1:], second, *iteration(2, "T", CODER, (), RETRY)[1:])
    for end in (None, completed()):
        run = f"{RUN}-{end is None}"
        worked(ralph, run, "", *records, *((Picked(3, AllDone()),) if end else ()), end=end)
        assert (page_of(ralph, run)["title"], line_of(ralph, run)["title"]) == ("Story 2", "Story 2")


def test_a_supervised_run_is_named_by_its_command(ralph: Ralph) -> None:
    assert ralph("supervise", "-m", "1", "--", "sh", "-c", "echo hello").code == 1
    run = ralph.runs()[0].id
    assert (page_of(ralph, run)["title"], line_of(ralph, run)["title"]) == ("sh -c 'echo hello'",) * 2


def test_a_limit_that_was_raised_is_the_same_in_every_view(ralph: Ralph, cli: Command) -> None:
    began = RunBegan(RUN, HERE, {"agent": "claude", "maximumIterations": 1, "sandbox": {"name": "direct"}})
    for end in ((), (RunEnded(aborted("MAX_ITERATIONS")),)):
        run = RUN.replace("aaaa", f"aaa{len(end)}")
        with opened(ralph) as ledger:
            ledger.begin_run(run, str(ralph.root), time.time(), current_process())
            ledger.append(run, (began, *iteration(1, "T", CODER, (), RETRY), *end))
        folder = RunFolder(str(ralph.root), run, ralph.project.store)
        folder.note(LIMITS_NOTE, {"budget": {"iterations": 3, "micro_usd": 2_000_000}})  # as whoever takes it up does
        told = cli("status", run, "--json").json["facts"]
        line, page = line_of(ralph, run), page_of(ralph, run)
        assert "at most 3 iterations" in cli("status", run).out
        for one in (told, line, page, page["facts"]):
            assert (one["maximumIterations"], one["maxCostUsd"]) == (3, 2.0)
