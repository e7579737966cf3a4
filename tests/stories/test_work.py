"""`ralph work` from task to task: who comes first, who wears which hat, what goes on after an end, what is told."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from ralphproof.record import CheckEnded, Judged, Picked, TurnBegan
from ralphproof.stage import Job
from ralphproof.verdict import Passed
from tests.misbehaviour.agents import prompt
from tests.misbehaviour.invariants import hold
from tests.ralph import Ended, Ralph, Step, say, until, write

STAGES = ("coder", "reviewer", "tester", "qa")
WORDS = ("IMPLEMENTATION_COMPLETE", "REVIEW_PASSED", "TESTS_PASSED", "QA_PASSED")
YES: list[Step] = [{"judge": "yes"}]


def promise(word: str) -> Step:
    return say(f"So it is.\n\n<promise>{word}</promise>")


def create(ralph: Ralph, id: str, *more: str, check: str = "test -f done") -> None:
    """A task whose coder and tester are verified by a command."""
    done = ralph(
        "task", "create", id, "spec", f"Make {id}", "--outcome", f"The file of {id} is there", "--acceptance",
        "The file is there", "--coder-verify-cmd", check, "--tester-verify-cmd", check, *more,
    )  # fmt: skip
    assert done.code == 0, done.err


def straight(**files: str) -> list[list[Step]]:
    """The iterations of a task that goes well: these files grow by these words."""
    grown: Step = {"append": {name: f"{words}\n" for name, words in files.items()}}
    return [[grown, promise(WORDS[0])], *([promise(word)] for word in WORDS[1:])]


def stages(ralph: Ralph, run: str = "latest") -> list[str]:
    picked = [one.choice for one in ralph.records(run) if isinstance(one, Picked)]
    return [choice.stage.name for choice in picked if isinstance(choice, Job)]


def statuses(ralph: Ralph) -> dict[str, str]:
    return {task["id"]: task["status"] for task in ralph("task", "list", "--json").json["tasks"]}


def work(ralph: Ralph, *iterations: list[Step], tasks: tuple[str, ...] = (), **more: Any) -> Ended:
    agent = ralph.script(*iterations, answer=YES, **more)
    return ralph("work", *tasks, "--agent", agent)


def test_tasks_come_by_priority_after_those_that_they_depend_on(ralph: Ralph) -> None:
    ralph.commit()
    create(ralph, "LATE", "--priority", "9")
    create(ralph, "FIRST", "--priority", "1")
    create(ralph, "NEXT", "--priority", "0", "--depends-on", "FIRST")
    ended = work(ralph, *straight(done="yes"))
    assert ended.code == 0, ended.err
    assert [line.split()[0] for line in ended.out.splitlines() if "done, verified" in line] == ["FIRST", "NEXT", "LATE"]
    assert statuses(ralph) == dict.fromkeys(("LATE", "FIRST", "NEXT"), "done")
    again = work(ralph, *straight(done="yes"))
    assert (again.code, again.out) == (0, "nothing to do: every task is done\n")


def test_one_that_fails_holds_up_only_those_that_wait_for_it(ralph: Ralph) -> None:
    ralph.commit()
    create(ralph, "BAD", check="test -f never")
    create(ralph, "AFTER", "--depends-on", "BAD")
    create(ralph, "FREE", "--priority", "5")
    ralph.settings(stages={"coder": {"maxIterations": 2}})
    ended = work(ralph, *straight(done="yes"))
    assert ended.code == 1
    assert statuses(ralph) == {"BAD": "failed", "AFTER": "todo", "FREE": "done"}
    assert "BAD  MAX_ITERATIONS: stage coder of BAD was tried 2 times" in ended.out
    assert "AFTER  BLOCKED" in ended.out
    assert "nothing more can be worked on: AFTER waits for BAD (failed)" in ended.err
    unasked = work(ralph, *straight(done="yes"))
    assert unasked.code == 1, "what failed is not begun again unasked"
    assert len(ralph.runs()) == 2
    work(ralph, *straight(never="yes", done="yes"), tasks=("BAD", "AFTER"))
    assert statuses(ralph) == {"BAD": "done", "AFTER": "done", "FREE": "done"}


def test_what_an_earlier_run_left_is_seen_by_the_judge_of_the_next_one(ralph: Ralph) -> None:
    ralph.commit()
    create(ralph, "T", check="test -f more")
    ralph.settings(stages={"coder": {"maxIterations": 1}})
    assert work(ralph, [write(first="the first half"), promise(WORDS[0])]).code == 1
    assert work(ralph, *straight(more="the second half"), tasks=("T",)).code == 0
    (asked,) = ralph.run_folder().glob("judge_002_*.txt")
    assert "the first half" in asked.read_text()
    assert "the second half" in asked.read_text()


def test_every_stage_may_have_an_agent_of_its_own(ralph: Ralph) -> None:
    ralph.commit()
    create(ralph, "T")
    other = ralph.script([promise(WORDS[1])], answer=YES, name="reviewer")
    ralph.settings(stages={"reviewer": {"agent": other}})
    ended = work(ralph, [write(done="yes"), promise(WORDS[0])], [{"exit": 9}], [promise(WORDS[2])], [promise(WORDS[3])])
    assert ended.code == 0, ended.err
    began = [one for one in ralph.records() if isinstance(one, TurnBegan)]
    assert [one.place for one in began] == [0, 1, 0, 0]
    assert other.split()[1] in began[1].argv


def test_a_stage_whose_loop_is_off_is_a_single_pass_without_a_promise(ralph: Ralph) -> None:
    ralph.commit()
    create(ralph, "T")
    ralph.settings(stages={"coder": {"enabled": False}})
    ended = work(ralph, [write(done="yes"), say("I wrote it.")], *straight()[1:])
    assert ended.code == 0, ended.err
    assert "<promise>" not in prompt(ralph, 1)
    create(ralph, "U", check="test -f never")
    failed = work(ralph, [say("I wrote nothing.")])
    assert failed.code == 1
    assert "stage coder of U was tried once, and may be tried no more" in failed.out


def test_a_stage_that_is_skipped_is_not_gone_through(ralph: Ralph) -> None:
    ralph.commit()
    create(ralph, "T")
    agent = ralph.script([write(done="yes"), promise(WORDS[0])], [promise(WORDS[2])])
    assert ralph("work", "--agent", agent, "--skip", "reviewer", "--skip", "qa").code == 0
    assert stages(ralph) == ["coder", "tester"]
    assert ralph("work", *(f"--skip={stage}" for stage in STAGES)).code == 2


def test_several_checks_of_one_stage_run_at_the_same_time(ralph: Ralph) -> None:
    ralph.commit()
    waits = "touch {0} && n=0; until test -f {1}; do n=$((n+1)); test $n -lt 200 || exit 9; sleep 0.05; done"
    parts = [
        {"name": name, "method": "external", "config": {"command": waits.format(f".{name}", f".{other}")}}
        for name, other in (("one", "two"), ("two", "one"))
    ]
    advisory = {"name": "extra", "method": "external", "config": {"command": "false"}, "required": False}
    config = json.dumps({"stages": [*parts, advisory], "require_all": False})
    create(ralph, "T", "--qa-verify", "multi_stage", "--qa-verify-config", config)
    ralph.write({".gitignore": ".one\n.two\n"})
    ended = work(ralph, *straight(done="yes"))
    assert ended.code == 0, ended.err
    ends = [one for one in ralph.records() if isinstance(one, CheckEnded) and one.iteration == 4]
    passed = {one.finding.check: one.finding.passed for one in ends}
    assert (passed["one"], passed["two"], passed["extra"]) == (True, True, False)
    assert "concern: stage qa: extra failed, and only warns" in ended.out


def test_programs_are_told_each_run_and_then_all_tasks(ralph: Ralph) -> None:
    ralph.commit()
    create(ralph, "T")
    ended = ralph("work", "--json", "--agent", ralph.script(*straight(done="yes"), answer=YES))
    *lines, last = ended.lines
    tasks = [{"task": "T", "end": "done, verified"}]
    assert last == {"v": 1, "type": "work", "tasks": tasks, "new": [], "exitCode": 0}
    began = next(line for line in lines if line["type"] == "run.began")
    assert began["facts"]["work"] == "T"
    assert [stage["name"] for stage in began["facts"]["stages"]] == list(STAGES)
    assert next(line for line in lines if line["type"] == "run.ended")["proof"] == "verified"


@pytest.mark.parametrize("alive", [True, False], ids=["its turn is at work", "its turn ended meanwhile"])
def test_a_killed_work_goes_on_in_its_stage(ralph: Ralph, alive: bool) -> None:
    ralph.commit()
    create(ralph, "T")
    create(ralph, "OTHER", "--depends-on", "T")
    go = ralph.folder / "go"
    begun: Step = {"append": {str(ralph.folder / "turns"): "x"}}
    coder, reviewer, tester, qa = straight(done="yes")
    agent = ralph.script(
        [begun, *coder], [begun, *reviewer], [begun, {"until": str(go)}, *tester], [begun, *qa], answer=YES
    )
    live = ralph.start("work", "--agent", agent)
    until(lambda: (ralph.folder / "turns").exists() and (ralph.folder / "turns").read_text() == "xxx", "the third turn")
    os.kill(live.process.pid, signal.SIGKILL)
    live.process.wait()
    if not alive:
        go.touch()
        until(lambda: statuses(ralph)["T"] == "todo", "the turn is over")
    again = ralph.start("work", "--agent", agent)
    if alive:
        until(lambda: any(type(one).__name__ == "Resumed" for one in ralph.records()), "it is taken up")
        go.touch()
    ended = again.end()
    assert ended.code == 0, ended.err
    assert statuses(ralph) == {"T": "done", "OTHER": "done"}
    assert (ralph.folder / "turns").read_text() == "x" * 8, "no turn of either task was taken twice"
    first = sorted(run.id for run in ralph.runs())[0]
    assert stages(ralph, first) == list(STAGES)
    verdicts = [one.verdict for one in ralph.records(first) if isinstance(one, Judged)]
    assert all(isinstance(one, Passed) for one in verdicts)
    assert len(verdicts) == 4
    hold(ralph, ended)


def test_what_was_cut_off_goes_on_before_anything_else_is_begun(ralph: Ralph) -> None:
    ralph.commit()
    create(ralph, "CUT", "--priority", "9")
    go = ralph.folder / "go"
    agent = ralph.script([write(begun="yes"), {"until": str(go)}, say("On it.")], *straight(done="yes"), answer=YES)
    live = ralph.start("work", "--agent", agent)
    until((ralph.root / "begun").exists, "its turn")
    os.kill(live.process.pid, signal.SIGKILL)
    live.process.wait()
    go.touch()
    create(ralph, "URGENT", "--priority", "0")
    ended = ralph("work", "--agent", agent)
    assert ended.code == 0, ended.err
    assert [line.split()[0] for line in ended.out.splitlines() if "done, verified" in line] == ["CUT", "URGENT"]
    assert len(ralph.runs()) == 2
