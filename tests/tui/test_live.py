"""The board while something happens: it follows a run, hears its agent, and steers it."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from ralphproof.base.processes import current_process
from ralphproof.base.value import replace
from ralphproof.engine.records import RunBegan, RunEnded, TurnBegan, UserMessageAdded
from ralphproof.tui.log_pages import WINDOW_BYTES
from ralphproof.tui.page import DashboardContext
from ralphproof.tui.widgets import MAX_PANEL_LINES, AgentPanel, TextView
from ralphproof.views.events import EventBatch
from tests.cli.steering import detached, has, let, over, reached, rests, waits_for
from tests.cli.tasking import HERE
from tests.cli.tasking import opened as ledger_of
from tests.ralph import Ralph, Step, done, say
from tests.tui.looking import LARGE, opened, outlook_of, run_async
from tests.tui.scene import CHECK, at_work


def begun(ralph: Ralph) -> str:
    """A run whose agent is in the midst of its second turn."""
    ralph.write({"check.sh": CHECK})
    ralph.commit()
    run = at_work(ralph)
    reached(ralph, "second")
    return run


def test_a_run_is_followed_from_its_turn_to_its_end(ralph: Ralph) -> None:
    run = begun(ralph)

    async def look() -> None:
        async with opened(outlook_of(ralph), LARGE, initial_run=run) as onlooker:
            await onlooker.sees("● running", "iteration 2: the agent works", "● works", "7 → 4")
            await onlooker.sees(
                "live · agent_002", "Nesting needs a stack", "to do: 3 of 4 done", "▸ Read src/parser.py"
            )
            let(ralph, "second")
            await onlooker.sees("✓ verified", "COMPLETED, verified by its checks: 3 iterations", "7 → 0", "agent_003")
            await onlooker.press("escape")
            await onlooker.sees("1 in all", "✓ verified")

    run_async(look())
    over(ralph, run)


def test_the_list_tells_of_a_run_that_begins(ralph: Ralph) -> None:
    ralph.commit()

    async def look() -> None:
        async with opened(outlook_of(ralph)) as onlooker:
            await onlooker.sees("no run yet")
            run = detached(ralph, ralph.script([waits_for("there"), done()]))
            await onlooker.sees("● running", "make it so")
            let(ralph, "there")
            await onlooker.sees("≈ claimed")
            over(ralph, run)

    run_async(look())


def test_keys_pause_tell_resume_and_cancel_a_live_run(ralph: Ralph) -> None:
    run = begun(ralph)

    async def look() -> None:
        async with opened(outlook_of(ralph), LARGE, initial_run=run) as onlooker:
            await onlooker.sees("iteration 2: the agent works")
            await onlooker.press("p")
            await onlooker.sees(f"run {run} will rest before its next turn", "it will rest before its next turn")
            let(ralph, "second")
            await onlooker.sees("‖ rests", "rests before its turn")
            rests(ralph, run)
            await onlooker.press("s")
            await onlooker.sees("Say to run")
            await onlooker.press(*"mind [red]the[/] gap", "enter")
            await onlooker.sees("1 message of yours for its next prompt")
            await onlooker.press("r")
            await onlooker.sees("✓ verified")

    run_async(look())
    over(ralph, run)
    data = [record.text for record in ralph.records(run) if isinstance(record, UserMessageAdded)]
    assert data == ["mind [red]the[/] gap"]


def test_a_cancel_is_asked_for_and_then_ends_the_run(ralph: Ralph) -> None:
    run = begun(ralph)

    async def look() -> None:
        async with opened(outlook_of(ralph), LARGE) as onlooker:
            await onlooker.sees("● running")
            await onlooker.press("c")
            await onlooker.sees(f"End run {run}")
            await onlooker.press("n")
            await onlooker.sees("● running", without="End run")
            assert not has(ralph, run, RunEnded)
            await onlooker.press("c", "y")
            await onlooker.sees("CANCELLED")

    run_async(look())
    assert over(ralph, run)["reason"] == "CANCELLED"


def test_leaving_the_board_leaves_the_run_alone(ralph: Ralph) -> None:
    run = begun(ralph)

    async def look() -> None:
        async with opened(outlook_of(ralph), initial_run=run) as onlooker:
            await onlooker.sees("iteration 2: the agent works")
            await onlooker.press("q")

    run_async(look())
    let(ralph, "second")
    assert over(ralph, run)["status"] == "COMPLETED"
    assert sum(isinstance(record, TurnBegan) for record in ralph.records(run)) == 3


# What an agent prints must be seen as it is, and do nothing.
HOSTILE = (
    "[red]x[/] [@click=app.exit]leave[/] [link=file:///etc]y[/link]",
    "\x1b[2J\x1b]0;owned\x07\x1b[31mred \x9b5n\x1b[?1049l\x1b[?25hafter",
    "right \u202eto left\u202c \u05e9\u05dc\u05d5\u05dd and back",
    "{{ n }} {style} %s \x00\x07\x08 end",
    "w" * 5000,
)


def test_hostile_words_are_shown_and_do_nothing(ralph: Ralph) -> None:
    ralph.commit()
    tool = {"tool": {"name": "[b]Bash[/b]\x1b[2J", "summary": HOSTILE[0], "output": HOSTILE[1], "ok": False}}
    todos = {"is": "TodosChanged", "items": [{"is": "Todo", "text": HOSTILE[0] + HOSTILE[1], "state": "active"}]}
    steps: list[Step] = [
        {"raw": json.dumps(todos) + "\n"},
        tool,
        *map(say, HOSTILE),
        {"write": {"[red]\x1b[2Jfile": "+ [b]y\x1b[2J\n"}},
    ]
    agent = ralph.script([*steps, waits_for("there"), done("[red]DONE[/]")])
    run = detached(ralph, agent, "-p", f"title {HOSTILE[0]} {HOSTILE[1]}", "-c", "[red]DONE[/]", "-m", "1")
    reached(ralph, "there")

    async def look() -> None:
        async with opened(outlook_of(ralph), LARGE, colour=True) as onlooker:
            pages = [await onlooker.sees("title [red]x[/]")]
            await onlooker.press("enter")
            pages.append(await onlooker.sees("[@click=app.exit]leave[/]", "red after", "[b]Bash[/b]", "www"))
            let(ralph, "there")
            await onlooker.sees("≈ claimed")
            await onlooker.press("enter")
            pages.append(await onlooker.sees("it claims: [red]DONE[/]"))
            await onlooker.press("escape", "d")
            pages.append(await onlooker.sees("+ [b]y"))
            await onlooker.press("escape", "l", "enter")
            pages.append(await onlooker.sees('"is": "Said"'))
            assert all(page.replace("\n", "").isprintable() and "\u202e" not in page for page in pages)
            assert onlooker.app.is_running

    run_async(look())
    over(ralph, run)


def test_a_flood_is_batched_and_keys_are_heard_meanwhile(ralph: Ralph) -> None:
    run = begun(ralph)
    over_it = threading.Event()

    class Flood:
        """A thousand events a second, and more."""

        def __init__(self, run: str, hear: Callable[[EventBatch], None]) -> None:
            self._hear, self._thread = hear, threading.Thread(target=self._pour)

        def start(self) -> None:
            self._thread.start()

        def stop(self) -> None:
            over_it.set()
            self._thread.join()

        def _pour(self) -> None:
            for first in range(0, 1_000_000, 500):
                words: tuple[Any, ...] = tuple(
                    {"number": first + at, "kind": "said", "text": f"word {first + at}"} for at in range(500)
                )
                self._hear(EventBatch("agent_002", first, first, words))
                if over_it.wait(0.1):
                    return

    context = replace(outlook_of(ralph), listen=Flood)
    assert isinstance(context, DashboardContext)

    async def look() -> None:
        async with opened(context, LARGE, initial_run=run) as onlooker:
            await onlooker.until(
                lambda: max(map(int, re.findall(r"word (\d+)", onlooker.text)), default=0) > 5000, "it flows"
            )
            before = time.monotonic()
            await onlooker.press("question_mark")
            await onlooker.sees("leave; every run goes on")
            assert time.monotonic() - before < 10
            await onlooker.press("escape")
            view = onlooker.app.screen.query_one(AgentPanel).query_one(TextView)
            assert 0 < len(view._lines) <= MAX_PANEL_LINES
            assert not over_it.is_set()
            await onlooker.press("escape")
            await onlooker.until(over_it.is_set, "nobody listens any more")

    run_async(look())
    let(ralph, "second")
    over(ralph, run)


def test_a_log_of_five_gigabytes_is_read_in_parts(ralph: Ralph) -> None:
    """WB-14: the page shows the end, and one part more for each page up; it never holds more than a window."""
    ralph.commit()
    lines = "".join(f"line {number} of the log, and so on to its end\n" for number in range(30_000))
    run = ralph("run", "-p", "x", "--agent", ralph.script([done()]), "--check", "true", "--json").lines[-1]["run"]
    kept = next(ralph.state_dir.glob(f"repos/*/runs/{run}/guardrail_001_true.log"))
    with kept.open("r+b") as file:
        file.truncate(5 << 30)
        file.seek(0, 2)
        file.write(lines.encode())

    async def look() -> None:
        async with opened(outlook_of(ralph), initial_run=run) as onlooker:
            await onlooker.sees("COMPLETED")
            await onlooker.press("l", "G", "enter")
            await onlooker.sees("line 29999 of", "of 5.4 GB", "PgUp: 5.4 GB before it")
            view = onlooker.app.screen.query_one(TextView)
            seen = {view._lines[1].plain}
            while len(seen) < 10:
                await onlooker.press("g", "pageup")
                await onlooker.until(lambda: view._lines[1].plain not in seen, "the part before it")
                seen.add(view._lines[1].plain)
                assert sum(len(line.plain) for line in view._lines) <= WINDOW_BYTES
            numbers = [int(line.plain.split()[1]) for line in view._lines[1:-1]]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "nothing is lost between two parts"
            last = view._lines[-2].plain
            await onlooker.press("G", "pagedown")
            await onlooker.until(lambda: view._lines[-2].plain != last, "the part after it")
            await onlooker.press("f")
            await onlooker.sees("line 29999 of", "follows")

    run_async(look())


def test_what_an_agent_began_stands_below_its_run(ralph: Ralph) -> None:
    began = {"parent": "", "another": "", "child": "parent"}
    with ledger_of(ralph) as ledger:
        for name, parent in began.items():
            ledger.begin_run(name, str(ralph.root), time.time(), current_process(), parent=parent)
            ledger.append(name, (RunBegan(name, HERE, {"title": f"the {name} run"}),))

    async def look() -> None:
        async with opened(outlook_of(ralph)) as onlooker:
            text = await onlooker.sees("the child run")
            lines = {name: line for line in text.splitlines() for name in began if f"the {name}" in line}
            assert [*lines] == ["another", "parent", "child"]
            assert lines["child"].index("the ") == lines["parent"].index("the ") + 2

    run_async(look())
