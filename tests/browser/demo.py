"""A project with every kind of run in it: green, lying, cancelled, running, tasks and stories."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from ralphproof.engine.plan import Stage
from tests.browser.past import past
from tests.cli.steering import reached
from tests.misbehaviour.tasks import completion, external, promise, semantic
from tests.ralph import Ralph, Step, say

TESTS = """\
import unittest
from stockroom import reserve, total


class Stock(unittest.TestCase):
    def test_total_of_nothing(self): self.assertEqual(total([]), 0)
    def test_total_of_some(self): self.assertEqual(total([2, 3]), 5)
    def test_reserve_takes_from_stock(self): self.assertEqual(reserve(5, 2), 3)
    def test_reserve_of_all(self): self.assertEqual(reserve(2, 2), 0)
    def test_reserve_refuses_more_than_there_is(self):
        with self.assertRaises(ValueError): reserve(1, 2)
    def test_reserve_refuses_less_than_nothing(self):
        with self.assertRaises(ValueError): reserve(1, -2)
"""
STUB = "def total(counts):\n    return None\n\n\ndef reserve(stock, wanted):\n    return None\n"
HALF = "def total(counts):\n    return sum(counts)\n\n\ndef reserve(stock, wanted):\n    return stock - wanted\n"
WHOLE = HALF.replace(
    "    return stock - wanted",
    '    if not 0 <= wanted <= stock:\n        raise ValueError(f"{wanted} of {stock}")\n    return stock - wanted',
)
CHECKS = ("--check", "python3 -B -m unittest -q test_stockroom", "--check", "python3 -B -m compileall -q stockroom.py")


class Stockroom(Ralph):
    """The project, under a name that looks well."""

    @property
    def root(self) -> Path:
        return self.folder / "stockroom"


def emit(kind: str, **fields: Any) -> Step:
    """A step: an event as the agent's own stream has it."""
    return {"raw": json.dumps({"is": kind, **fields}) + "\n"}


def todos(*items: tuple[str, str]) -> Step:
    """A step: the agent's own list."""
    return emit("TodosChanged", items=[{"is": "Todo", "text": text, "state": state} for text, state in items])


def tool(name: str, summary: str, output: str = "", ok: bool = True) -> Step:
    return {"tool": {"name": name, "summary": summary, "output": output, "ok": ok}}


def spent(usd: float, tokens: int) -> list[Step]:
    return [{"cost": usd}, {"tokens": tokens}]


def lay(ralph: Ralph) -> None:
    """The project as its user has it."""
    ralph.write({"stockroom.py": STUB, "test_stockroom.py": TESTS, "README.md": "# Stockroom\n"})
    ralph.write({".gitignore": "__pycache__/\n.ralph-active\n"})
    ralph.commit()
    for name, told in (("user.name", "user"), ("user.email", "user@localhost")):
        ralph.git("config", name, told)


def green(ralph: Ralph) -> str:
    """Red, a lie, then green and verified."""
    first = [
        todos(("Read the tests", "active"), ("Write total", "pending"), ("Write reserve", "pending")),
        tool("Read", "test_stockroom.py", TESTS), say("Six tests. I begin with the sum."),
        {"write": {"stockroom.py": STUB.replace("return None\n\n\ndef r", "return sum(counts)\n\n\ndef r")}},
        tool("Edit", "stockroom.py"), *spent(0.11, 14_200), say("total works. reserve comes next."),
    ]  # fmt: skip
    lie = [
        tool("Edit", "stockroom.py"), {"write": {"stockroom.py": HALF}}, *spent(0.19, 21_900),
        say("All six tests pass now.\n\n<response>DONE</response>"),
    ]  # fmt: skip
    third = [
        tool("Bash", "python3 -m unittest -q", "FAILED (failures=2)", ok=False), tool("Edit", "stockroom.py"),
        {"write": {"stockroom.py": WHOLE}}, tool("Bash", "python3 -m unittest -q", "Ran 6 tests\n\nOK"),
        *spent(0.16, 17_400),
        say("reserve refuses what is not there.\n\n<response>DONE</response>"),
    ]  # fmt: skip
    return _run(ralph, "Make the stock functions pass their tests", first, lie, third, most=10)


def lying(ralph: Ralph) -> str:
    """Claims every time, and is refused every time."""
    ralph.write({"stockroom.py": STUB})
    ralph.commit()
    lies = [
        [{"write": {"notes.md": f"attempt {number}\n"}}, tool("Write", "notes.md"), *spent(0.07, 8_000),
         say(f"Everything works, I checked it {number} times.\n\n<response>DONE</response>")]
        for number in (1, 2, 3)
    ]  # fmt: skip
    return _run(ralph, "Round prices half to even, everywhere", *lies, most=3)


def cancelled(ralph: Ralph) -> str:
    agent = ralph.script([say("I look around."), {"write": {"../looks": ""}}, {"until": "../never"}], name="endless")
    run = detached_as(ralph, "Rewrite the importer in one file", agent, "-m", "8")
    reached(ralph, "looks")
    assert ralph("cancel", run).code == 0
    return run


def tasks(ralph: Ralph) -> None:
    """Tasks in all lanes: one done, one sent back, some to do."""
    there = external("test -f exported")
    ways = {"coder": there, "reviewer": semantic("Every article is in the file"), "tester": there}
    criteria = ("Every article is in the file", "The file opens in a spreadsheet")
    _task(ralph, "EXP-1", "Export the stock as CSV", criteria, ways)
    _task(ralph, "EXP-2", "Export by a schedule", ("It runs at night",), ways, after=("EXP-1",))
    _task(ralph, "IMP-1", "Import counts from the scanner", ("Wrong codes are named",), ways)
    _task(ralph, "LBL-1", "Print labels with a code", ("The scanner reads it",), ways)
    _task(ralph, "IMP-2", "Undo an import", ("Nothing else changes",), ways, after=("IMP-1",))
    script = ralph.script(
        promise("coder", {"write": {"exported": "yes\n"}}, tool("Write", "exported"), *spent(0.21, 30_000)),
        [*spent(0.05, 6_000), say("The separator is missing in empty rows.\n\n<promise>CHANGES_REQUESTED</promise>")],
        promise("coder", {"write": {"exported": "yes, with separators\n"}}, *spent(0.12, 12_000)),
        promise("reviewer", *spent(0.04, 5_000)), promise("tester", *spent(0.06, 7_000)),
        answer=[{"judge": "yes"}], name="tasks",
    )  # fmt: skip
    told = ralph("work", "EXP-1", "--agent", script, "--skip", "qa")
    assert told.code == 0, told
    at_work(ralph, "IMP-1", "Import counts from the scanner", "coder", "reviewer")
    at_work(ralph, "LBL-1", "Print labels with a code", "coder", "reviewer", "tester")


def at_work(ralph: Ralph, task: str, title: str, *stages: str) -> None:
    """A task that is at its last stage, as records: this process passes for the one that works on it."""
    from ralphproof.base.processes import current_process
    from ralphproof.engine.records import RunBegan
    from ralphproof.store.run_folder import new_run_id
    from tests.cli.tasking import HERE, PASSED, iteration, opened

    run = new_run_id(time.time() - 60, os.urandom(3))
    hats = [Stage(name, max_iterations=10) for name in stages]
    told = [iteration(number, task, hat, (), None if hat is hats[-1] else PASSED) for number, hat in enumerate(hats, 1)]
    facts = {"agent": "claude", "model": "opus", "preset": "pipeline", "title": title, "work": task}
    with opened(ralph) as ledger:
        ledger.begin_run(run, str(ralph.root), time.time() - 60, current_process(), task=task)
        ledger.append(run, (RunBegan(run, HERE, {**facts}), *(record for one in told for record in one)))


def stories(ralph: Ralph) -> str:
    """Two stories approved, one sent back, one open."""
    titles = {"US-001": "List the articles", "US-002": "Find one by its code", "US-003": "Order what runs out"}

    def one(id: str, status: str | None = None, count: int = 0, feedback: str = "") -> dict[str, Any]:
        return {
            "id": id, "title": titles[id], "description": "", "acceptanceCriteria": [f"{titles[id]} works"],
            "priority": int(id[-1]), "passes": status == "approved", "reviewStatus": status, "reviewCount": count,
            "reviewFeedback": feedback, "notes": "made" if status else "", "dependsOn": [],
        }  # fmt: skip

    def turn(*stories: dict[str, Any], **files: str) -> list[Step]:
        about = {"project": "stockroom", "branchName": "ralph/x", "description": "d"}
        text = json.dumps({**about, "verifyCommands": ["test -f README.md"], "userStories": list(stories)}, indent=2)
        return [{"write": {"ralph/tasks.json": text, **files}}, *spent(0.06, 7_000), say("ok")]

    a, b, c = titles
    ralph.write({"ralph/prd.md": "# What\n", "ralph/progress.txt": "# Progress\n---\n"})
    first = turn(one(a), one(b), one(c))[0]["write"]["ralph/tasks.json"]
    ralph.write({"ralph/tasks.json": first})
    ralph.commit()
    script = ralph.script(
        turn(one(a, "needs_review"), one(b), one(c), **{"list.py": "1\n"}),
        turn(one(a, "approved", 1), one(b), one(c)),
        turn(one(a, "approved", 1), one(b, "needs_review"), one(c), **{"find.py": "1\n"}),
        turn(one(a, "approved", 1), one(b, "changes_requested", 1, "a code with a dash is not found"), one(c)),
        name="stories",
    )
    env = {"RALPH__SANDBOX__BACKEND": "null"}
    told = ralph("run", "--preset", "stories", "--agent", script, "-m", "4", "--max-cost-usd", "3", env=env)
    assert told.code in (0, 1), told
    return ralph.runs()[0].id


def running(ralph: Ralph) -> str:
    """One that is at work, in its third iteration."""
    ralph.write({"stockroom.py": STUB})
    ralph.commit()
    first = [
        tool("Read", "stockroom.py", STUB), {"write": {"stockroom.py": HALF}}, *spent(0.14, 18_000),
        say("Half of it is there.\n\n<response>DONE</response>"),
    ]  # fmt: skip
    second = [
        tool("Bash", "ls", "README.md\nstockroom.py\ntest_stockroom.py"), {"write": {"stockroom.py": HALF + "\n"}},
        *spent(0.05, 7_000), say("I looked for the rest."),
    ]  # fmt: skip
    third = [
        todos(
            ("Read what failed", "done"), ("Refuse more than there is", "active"),
            ("Refuse less than nothing", "pending"), ("Run the tests", "pending"),
        ),
        say("Two tests fail: reserve takes whatever is asked for. I read how it is called first."),
        tool("Grep", "reserve(", "stockroom.py:5:def reserve(stock, wanted):"),
        tool("Read", "test_stockroom.py", TESTS), tool("Edit", "stockroom.py"),
        {"append": {"stockroom.py": "# refuse\n"}},
        tool("Bash", "python3 -m unittest -q", "FAILED (failures=1)", ok=False), *spent(0.08, 9_400),
        say("One left. A number below zero passes the comparison; it has to be refused by itself."),
        emit("ToolStarted", id="9", name="Edit", summary="stockroom.py"),
        {"run": ["sh", "-c", "touch ../works; while ! test -f ../works-go; do sleep 0.02; done"]},
    ]  # fmt: skip
    agent = ralph.script(first, second, third, name="running")
    limits = ("-m", "10", "--max-cost-usd", "5", "--max-minutes", "30")
    run = detached_as(ralph, "Refuse reservations that the stock cannot meet", agent, *CHECKS, *limits)
    reached(ralph, "works")
    return run


def detached_as(ralph: Ralph, title: str, agent: str, *flags: str) -> str:
    told = ralph("run", "-p", title, "--agent", agent, "--detach", "--json", *flags)
    assert told.code == 0, told
    run: str = told.json["run"]
    return run


def _run(ralph: Ralph, title: str, *iterations: list[Step], most: int) -> str:
    agent = ralph.script(*iterations, name=title.split()[0])
    told = ralph("run", "-p", title, "--agent", agent, *CHECKS, "-m", str(most), "--max-cost-usd", "5")
    assert told.code in (0, 1), told
    return ralph.runs()[0].id


def _task(
    ralph: Ralph, id: str, title: str, criteria: tuple[str, ...], ways: dict[str, Any], after: tuple[str, ...] = ()
) -> None:
    from ralphproof.store.tasks import TaskRow
    from tests.cli.tasking import keep

    told = {**completion(**ways), "outcome": f"{title}, shown by a machine", "acceptance_criteria": list(criteria)}
    keep(ralph, TaskRow(id, id[:3].lower(), title, f"{title}.", dependencies=after, completion=json.dumps(told)))


def whole(folder: str) -> tuple[Stockroom, dict[str, str]]:
    """All of it; the ids of the runs by what they are."""
    ralph = Stockroom(Path(folder))
    ralph.env["RALPH__SANDBOX__BACKEND"] = "null"
    os.environ.setdefault("GIT_CONFIG_NOSYSTEM", "1")
    lay(ralph)
    past(ralph, 60)
    ids = {"green": green(ralph), "lying": lying(ralph), "cancelled": cancelled(ralph), "stories": stories(ralph)}
    tasks(ralph)
    return ralph, ids | {"running": running(ralph)}
