"""A project in which much has happened: runs of every kind, tasks in every lane, stories, and an agent at work."""

from __future__ import annotations

import json
import time

from ralphproof.base.processes import current_process
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import Finding
from ralphproof.engine.outcome import Outcome, Verdict
from ralphproof.engine.plan import Stage
from ralphproof.engine.records import Record, RunBegan, RunEnded, TurnEnded
from ralphproof.engine.sandbox import Exit
from ralphproof.store.tasks import TaskRow
from tests.cli.steering import waits_for
from tests.cli.tasking import HERE, PASSED, RETRY, TESTER, completed, iteration, keep, opened
from tests.misbehaviour.stories import US1, US2, US3, approved, lay, requested, story, submitted, turn
from tests.ralph import Ralph, Step, done, say

if TYPE_CHECKING:
    from ralphproof.base.value import Json

# Counts down as the file `fixed` counts up, as pytest would tell it.
CHECK = r"""
fixed=$(cat fixed 2>/dev/null || echo 0); left=$((7 - fixed))
if [ "$left" -gt 0 ]; then
  echo "=================== short test summary info ==================="
  for name in quotes escapes comments nesting unicode numbers dates; do
    [ "$left" -gt 0 ] && echo "FAILED tests/test_parser.py::test_$name - AssertionError: wrong token"
    left=$((left - 1))
  done
  echo "=================== $((7 - fixed)) failed, $((fixed + 21)) passed in 0.10s ==================="
  exit 1
fi
echo "=================== 28 passed in 0.10s ==================="
"""
TODO = ("Read the parser's tests", "Fix quotes and escapes", "Fix nesting", "Run all tests")


def todos(active: int) -> Step:
    """The agent's own list, at this place."""
    states = ["done" if place < active else "active" if place == active else "pending" for place in range(len(TODO))]
    items = [{"is": "Todo", "text": text, "state": state} for text, state in zip(TODO, states, strict=True)]
    return {"raw": json.dumps({"is": "TodosChanged", "items": items}) + "\n"}


def fixing(count: int, cost: float) -> list[Step]:
    """A turn after which so many tests are fixed."""
    return [
        todos(min(count // 2, 3)), say(f"After this {7 - count} of 7 will be left. I begin with the tokenizer."),
        {"tool": {"name": "Read", "summary": "src/parser.py", "output": "def parse(text):\n    return text.split()"}},
        {"write": {"src/parser.py": f"def parse(text):\n    # step {count}\n    return tokens(text, depth={count})\n"}},
        {"write": {"fixed": f"{count}\n"}},
        {"tool": {
            "name": "Bash", "summary": "pytest -q", "output": f"{7 - count} failed, {21 + count} passed",
            "ok": count == 7,
        }},
        {"cost": cost}, {"tokens": int(cost * 40_000)},
    ]  # fmt: skip


def build(ralph: Ralph) -> dict[str, str]:
    """The project with runs that have ended, and tasks; the ids of the runs by their kind."""
    ralph.write({"check.sh": CHECK, "src/parser.py": "def parse(text):\n    return text.split()\n"})
    ralph.commit()
    return {"verified": _verified(ralph), "limit": _stopped(ralph), "claimed": _claimed(ralph)} | _tasks(ralph)


def _ended(ralph: Ralph, *flags: str, code: int) -> str:
    ended = ralph("run", *flags)
    assert ended.code == code, ended
    return ralph.runs()[0].id


def _verified(ralph: Ralph) -> str:
    turns = [fixing(3, 0.42), fixing(6, 0.31), [*fixing(7, 0.27), say("All tests pass."), done()]]
    agent = ralph.script(*turns, name="verified")
    given = ("-p", "Make the parser's tests pass", "--agent", agent, "--check", "sh check.sh", "--max-cost-usd", "5")
    return _ended(ralph, *given, code=0)


def _stopped(ralph: Ralph) -> str:
    agent = ralph.script([say("I run_async at it."), {"write": {"notes": "1\n"}}, {"cost": 0.1}], name="stopped")
    return _ended(ralph, "-p", "Port it to Windows", "--agent", agent, "--check", "false", "-m", "2", code=1)


def _claimed(ralph: Ralph) -> str:
    agent = ralph.script([{"write": {"README": "About this.\n"}}, {"cost": 0.05}, done()], name="claimed")
    return _ended(ralph, "-p", "Write a README", "--agent", agent, code=0)


STAGES = (Stage("coder", max_iterations=15), Stage("reviewer", max_iterations=5), TESTER, Stage("qa", max_iterations=5))
TITLES = (
    "Limit the rate of logins", "Issue tokens", "Refresh tokens", "Revoke tokens", "Log every login", "Hash passwords"
)  # fmt: skip
CRITERIA = ("a token is good for an hour", "an expired token is refused")
COMPLETION = {
    "outcome": "Whoever has logged in stays so for an hour, and nobody else does",
    "acceptance_criteria": CRITERIA,
    "coder": {
        "promise": "TOKENS_DONE", "description": "tokens are issued and checked", "verification_method": "external",
        "verification_config": {"command": "make test"},
    },
    "reviewer": {"promise": "REVIEWED", "description": "no secret is logged", "verification_method": "semantic"},
}  # fmt: skip
RED = Finding("make_test", False, command="make test", code=2, output="2 tests fail")
NOT_MET = Finding("review", False, judged=True, output=f"NOT met: 2. {CRITERIA[1]} | why: the clock is never asked")


def _tasks(ralph: Ralph) -> dict[str, str]:
    """One task in every lane, by records alone."""
    keep(
        ralph,
        *(
            TaskRow(f"T-{at}", "login", title, priority=at, completion=json.dumps(COMPLETION))
            for at, title in enumerate(TITLES, 1)
        ),
    )
    for place, found in enumerate((RED, NOT_MET, RED, RED)):
        data: list[Record] = []
        for number, stage in enumerate(STAGES[:place], 1):
            data += _tried(number, f"T-{place + 2}", stage, (), PASSED)
        data += _tried(place + 1, f"T-{place + 2}", STAGES[place], (found,), RETRY)
        _worked(ralph, place + 2, *data)
    _worked(ralph, 6, *_tried(1, "T-6", STAGES[0], (), PASSED), end=completed())
    return {"task": "20260101-000003-task"}


def _tried(number: int, task: str, stage: Stage, found: tuple[Finding, ...], verdict: Verdict) -> list[Record]:
    """An iteration that cost something."""
    turn = Turn(Exit(0), "done", micro_usd=230_000, tools=4, model="sonnet")
    records = iteration(number, task, stage, found, verdict)
    return [TurnEnded(number, 1, turn) if isinstance(one, TurnEnded) else one for one in records]


def _worked(ralph: Ralph, number: int, *records: Record, end: Outcome | None = None) -> None:
    run, task = f"20260101-00000{number}-task", f"T-{number}"
    facts: dict[str, Json] = {
        "agent": "claude", "model": "sonnet", "preset": "pipeline", "title": TITLES[number - 1], "work": task,
        "stages": [{"name": stage.name} for stage in STAGES], "maximumIterations": 10,
    }  # fmt: skip
    with opened(ralph) as ledger:
        ledger.begin_run(run, str(ralph.root), time.time(), current_process(), task=task)
        ledger.append(run, (RunBegan(run, HERE, facts), *records, *([RunEnded(end)] if end else [])))


def at_work(ralph: Ralph, *flags: str) -> str:
    """A run whose agent has begun its second turn and goes on with it until `let(ralph, "second")`; its id."""
    second = [*fixing(6, 0.31)[:3], say("Nesting needs a stack, so I write one."), waits_for("second")]
    last = [*fixing(7, 0.2), done()]
    agent = ralph.script(fixing(3, 0.42), second, last, name="at-work")
    ralph.write({"fixed": "0\n"})
    limits = ("-m", "8", "--max-cost-usd", "2", "--check", "sh check.sh")
    data = ralph("run", "-p", "Teach the parser to nest", "--agent", agent, "--detach", "--json", *limits, *flags)
    assert data.code == 0, data
    run: str = data.json["run"]
    return run


def with_stories(ralph: Ralph) -> str:
    """A project that is gone through by stories, one of them in every state; the id of its run."""
    one, two, three = story(US1, title="Log in"), story(US2, title="Log out"), story(US3, title="Reset a password")
    four = story("US-004", title="Lock an account")
    lay(ralph, one, two, three, four)
    named = ({"title": item["title"]} for item in (one, two, three, four))
    first, second, third, _ = named
    good = approved(US1, **first)
    back = requested(US2, feedback="a session stays alive after it", **second)
    agent = ralph.script(
        turn(submitted(US1, **first), two, three, four, done="x"), turn(good, two, three, four),
        turn(good, submitted(US2, **second), three, four, out="x"), turn(good, back, three, four),
        turn(good, back, submitted(US3, **third), four, reset="x"), name="stories",
    )  # fmt: skip
    ended = ralph("run", "--preset", "stories", "--agent", agent, "--no-sandbox", "-m", "5")
    assert ended.code == 1, ended
    return ralph.runs()[0].id
