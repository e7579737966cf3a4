"""Tasks and stories on the board: how often each was worked on, what that cost, and what came of it."""

from __future__ import annotations

from typing import Any

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.agent import Turn
from ralphproof.engine.limits import Spend
from ralphproof.engine.records import Record, TurnEnded
from ralphproof.engine.sandbox import Exit
from ralphproof.store.tasks import TaskRow
from ralphproof.tui.style import UNICODE
from ralphproof.tui.task_pages import story_card, story_lines, task_card, task_lines
from ralphproof.views.read_model import ReadModel
from tests.cli.tasking import (
    COMPLETION,
    NOBODY,
    RETRY,
    TESTER,
    aborted,
    command_line,
    completed,
    iteration,
    keep,
    worked,
)
from tests.misbehaviour.stories import US1, US2, approved, lay, story, submitted, turn
from tests.ralph import Ralph


def card_of(ralph: Ralph, task: str) -> Any:
    lanes: Any = ReadModel(ralph.project).tasks()["lanes"]
    return next(card for lane in lanes for card in lane["tasks"] if card["id"] == task)


def cost(micro_usd: int | None, *records: Record) -> list[Record]:
    """The same with turns of this price."""
    turn = Turn(Exit(0), "done", micro_usd=micro_usd)
    return [replace(one, reply=turn) if isinstance(one, TurnEnded) else one for one in records]


def test_a_task_took_what_all_its_runs_took(ralph: Ralph) -> None:
    keep(ralph, TaskRow("T-1", "spec", "a title", completion=COMPLETION))
    worked(ralph, "first", "T-1", end=replace(aborted("MAX_ITERATIONS"), iterations=2, spend=Spend(1_000_000)))
    tries = [one for number in (1, 2, 3) for one in cost(500_000, *iteration(number, "T-1", TESTER, (), RETRY))]
    worked(ralph, "second", "T-1", *tries, process=NOBODY)
    task: Any = ReadModel(ralph.project).task("T-1")
    for told in (card_of(ralph, "T-1"), task):
        assert (told["iterations"], told["cost"]["usd"]) == (5, 2.5)
    assert "5 iterations in all" in [*task_lines(task, UNICODE)][1].plain
    assert "$2.50" in [*task_lines(task, UNICODE)][1].plain


def test_a_story_tells_its_iterations_their_cost_its_criteria_and_its_verdicts(ralph: Ralph) -> None:
    asks: dict[str, Any] = {"acceptanceCriteria": ["it is fast"]}
    made, good = submitted(US1, **asks), approved(US1, **asks)
    lay(ralph, story(US1, **asks), story(US2))
    agent = ralph.script(
        [{"cost": 0.25}, *turn(made, story(US2), done="x")], [{"cost": 0.5}, *turn(good, story(US2))],
        turn(good, story(US2)),
    )  # fmt: skip
    assert ralph("run", "--preset", "stories", "--agent", agent, "--no-sandbox", "-m", "3").code == 1
    lanes: Any = ReadModel(ralph.project).stories(ralph.runs()[0].id)["lanes"]
    told = {one["id"]: one for lane in lanes for one in lane["stories"]}
    one, two = told[US1], told[US2]
    assert (one["iterations"], one["cost"]["usd"], [it["text"] for it in one["criteria"]]) == (2, 0.75, ["it is fast"])
    assert [(it["number"], it["stage"], it["verdict"]["result"]) for it in one["timeline"]] == [
        (1, "implement", "passed"), (2, "review", "passed"),
    ]  # fmt: skip
    assert (two["iterations"], two["cost"]["usd"], len(two["timeline"])) == (1, None, 1)
    assert [line.plain for line in story_card(one, UNICODE)][1:] == [f"  {US1} · 2 iterations", "  $0.75 · 1 review"]
    page = "\n".join(line.plain for line in story_lines(one, UNICODE))
    assert "it is fast" in page
    assert "iteration 2, review: done" in page


def test_a_task_is_never_called_done_without_what_shows_it(
    ralph: Ralph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    cli = command_line(ralph, monkeypatch, capsys)
    keep(ralph, *(TaskRow(id, "spec", "a title", completion=COMPLETION) for id in ("T-1", "T-2", "T-3")))
    worked(ralph, "first", "T-1", end=completed(verified=False))
    worked(ralph, "second", "T-2", end=completed())
    assert cli("task", "edit", "T-3", "--status", "done").code == 0
    for out in (cli("task", "list").out, cli("status").out):
        lines = [" ".join(line.split()) for line in out.splitlines()]
        assert "T-1 done, claimed: nothing verified it" in "\n".join(lines)
        assert "T-2 done, verified" in "\n".join(lines)
        assert "T-3 done, by your word" in "\n".join(lines)
    assert (card_of(ralph, "T-3")["status"], card_of(ralph, "T-3")["reason"]) == ("done", "by your word")


def test_a_cost_that_nobody_knows_stands_first_on_the_card(ralph: Ralph) -> None:
    keep(ralph, TaskRow("T-1", "spec", "a title", completion=COMPLETION))
    worked(ralph, "first", "T-1", *iteration(1, "T-1", TESTER, (), RETRY), process=NOBODY)
    assert card_of(ralph, "T-1")["cost"]["usd"] is None
    assert task_card(card_of(ralph, "T-1"), UNICODE)[-1].plain.startswith("  cost unknown · ")
