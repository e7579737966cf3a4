"""`ralph work`: order of tasks, stages, resuming and reports."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from ralphproof.engine import limits
from ralphproof.engine.outcome import Outcome, Passed
from ralphproof.engine.plan import AllDone, Job
from ralphproof.engine.records import CheckEnded, Judged, Picked, TurnBegan
from ralphproof.landing.schedulers import TaskQueue
from ralphproof.store.tasks import TaskRow
from tests.cli.tasking import CODER, aborted, completed, iteration, keep, opened, worked
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


def cut_off(ralph: Ralph, agent: str, *flags: str) -> None:
    """Kill the work when the file `begun` is there, and let its turn end."""
    live = ralph.start("work", "--agent", agent, *flags)
    until((ralph.root / "begun").exists, "its turn")
    os.kill(live.process.pid, signal.SIGKILL)
    live.process.wait()
    (ralph.folder / "go").touch()


def held_up(ralph: Ralph) -> list[Step]:
    """Steps of a turn that `cut_off` can cut off."""
    return [write(begun="yes"), {"until": str(ralph.folder / "go")}]


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


def test_a_failed_task_blocks_only_its_dependents(ralph: Ralph) -> None:
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
    waits = (  # not before the work: then they are run one by one, and what one leaves the other would find later
        "test -f done || exit 8; touch {0} && n=0; until test -f {1}; do n=$((n+1)); test $n -lt 200 || exit 9; "
        "sleep 0.05; done"
    )
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


def test_json_has_each_run_and_then_all_tasks(ralph: Ralph) -> None:
    ralph.commit()
    create(ralph, "T")
    ended = ralph("work", "--json", "--agent", ralph.script(*straight(done="yes"), answer=YES))
    *lines, last = ended.lines
    tasks = [{"task": "T", "end": "done, verified"}]
    assert last == {"v": 1, "type": "work", "tasks": tasks, "new": [], "exitCode": 0}
    began = next(line for line in lines if line["type"] == "run.started")
    assert began["data"]["task"] == "T"
    assert ralph("status", "--json").json["stages"] == list(STAGES)
    assert next(line for line in lines if line["type"] == "run.ended")["data"]["proof"] == "verified"


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


def test_an_interrupted_task_is_resumed_before_new_ones_begin(ralph: Ralph) -> None:
    ralph.commit()
    create(ralph, "CUT", "--priority", "9")
    agent = ralph.script([*held_up(ralph), say("On it.")], *straight(done="yes"), answer=YES)
    cut_off(ralph, agent)
    create(ralph, "URGENT", "--priority", "0")
    ended = ralph("work", "--agent", agent)
    assert ended.code == 0, ended.err
    assert [line.split()[0] for line in ended.out.splitlines() if "done, verified" in line] == ["CUT", "URGENT"]
    assert len(ralph.runs()) == 2


# What is left in the end


def failed(ralph: Ralph, task: str = "T", end: Outcome | None = None) -> None:
    """A task, and a run of it that ended some time ago."""
    keep(ralph, TaskRow(task, title="Make it"))
    worked(ralph, f"run-{task}", task, *iteration(1, task, CODER), end=end or aborted(limits.STALL))


def waiting(ralph: Ralph) -> None:
    failed(ralph, end=aborted(limits.WAITING))


def both(ralph: Ralph) -> None:
    failed(ralph, "OLD")
    waiting(ralph)


def working(ralph: Ralph) -> None:
    keep(ralph, TaskRow("T", title="Make it"))
    worked(ralph, "run-T", "T", *iteration(1, "T", CODER))


def cancelled(ralph: Ralph) -> None:
    failed(ralph, end=aborted(limits.CANCELLED))
    failed(ralph, "DONE", completed())


FAILED = "failed before: STALL: the facts of STALL; ralph work {0} begins it anew"
WAITS = "waits: the facts of WAITING; ralph work T goes on with it"


@pytest.mark.parametrize(
    ("there_is", "code", "ends"),
    [
        pytest.param(failed, 1, {"T": FAILED.format("T")}, id="failed"),
        pytest.param(waiting, 4, {"T": WAITS}, id="waiting"),
        pytest.param(both, 1, {"OLD": FAILED.format("OLD"), "T": WAITS}, id="failed and waiting"),
        pytest.param(working, 1, {"T": "run run-T works on it; ralph attach run-T"}, id="working"),
        pytest.param(cancelled, 0, {}, id="cancelled"),
    ],
)
def test_work_that_finds_nothing_to_do_names_what_is_not_done(
    ralph: Ralph, there_is: Any, code: int, ends: dict[str, str]
) -> None:
    there_is(ralph)
    told = ralph("work", "--agent", ralph.script([]))
    lines = [f"{task}  {end}" for task, end in ends.items()]
    assert (told.code, told.out.splitlines()) == (
        code, ["nothing to do: no task is open (see ralph task list)", *lines]
    )  # fmt: skip
    told = ralph("work", "--json", "--agent", ralph.script([]))
    assert (told.code, told.json["exitCode"], told.json["type"]) == (code, code, "work")
    assert {one["task"]: one["end"] for one in told.json["tasks"]} == ends


def test_what_failed_before_is_named_also_where_all_others_are_done(ralph: Ralph) -> None:
    failed(ralph, "OLD")
    create(ralph, "T")
    agent = ralph.script(*straight(done="yes"), answer=YES)
    ended = ralph("work", "--agent", agent)
    assert (ended.code, ended.out.splitlines()[-2:]) == (1, ["T  done, verified", f"OLD  {FAILED.format('OLD')}"])
    assert ralph("work", "T", "--agent", agent).code == 0, "who names tasks asks for no others"


# What changes meanwhile


def tool(ralph: Ralph) -> None:
    """The program itself, for agents."""
    ralph.program("ralph", 'exec python3 -m ralphproof "$@"')


def sh(script: str) -> Step:
    return {"run": ["sh", "-c", script]}


@pytest.mark.parametrize("names", [(), ("T",)], ids=["all", "by name"])
def test_tasks_that_an_agent_makes_are_named_and_left_for_the_next_call(ralph: Ralph, names: tuple[str, ...]) -> None:
    ralph.commit()
    tool(ralph)
    create(ralph, "T")
    makes = sh("ralph task create MORE spec More --outcome 'More is there' --acceptance 'more' > /dev/null")
    coder, *others = straight(done="yes")
    agent = ralph.script([makes, *coder], *others, answer=YES)
    ended = ralph("work", *names, "--agent", agent)
    assert ended.code == 0, ended.err
    assert "created meanwhile, and left for the next ralph work: MORE" in ended.err
    assert statuses(ralph) == {"T": "done", "MORE": "todo"}


def test_a_task_that_was_changed_meanwhile_is_not_taken_up(ralph: Ralph) -> None:
    ralph.commit()
    create(ralph, "A", "--priority", "1")
    create(ralph, "B", "--priority", "2")
    create(ralph, "C", "--priority", "3", "--depends-on", "B")
    coder, *others = straight(done="yes")
    agent = ralph.script([*held_up(ralph), *coder], *others, answer=YES)
    live = ralph.start("work", "--agent", agent)
    until((ralph.root / "begun").exists, "the turn of A")
    assert ralph("task", "edit", "B", "--coder-verify-cmd", "true").code == 0
    (ralph.folder / "go").touch()
    ended = live.end()
    (run,) = (run.id for run in ralph.runs())
    assert ended.code == 1, ended.err
    assert statuses(ralph) == {"A": "done", "B": "todo", "C": "todo"}
    told = f"task B was changed while run {run} was at work; look at it: ralph task show B; then ralph work B"
    assert told in ended.err
    assert "C waits for B (changed)" in ended.err
    assert f"B  changed while run {run} was at work" in ended.out
    assert work(ralph, *straight(done="yes")).code == 0


UNMARKED = "env -u RALPH_RUN_ID -u RALPH_TURN"


@pytest.mark.parametrize(
    "verb", [f"{UNMARKED} ralph task edit B --coder-verify-cmd true", f"{UNMARKED} ralph task edit B --status done"]
)
def test_an_agent_without_its_run_variables_cannot_change_tasks(ralph: Ralph, verb: str) -> None:
    ralph.commit()
    tool(ralph)
    create(ralph, "A", "--priority", "1")
    create(ralph, "B", "--priority", "2", check="test -f never")
    ralph.settings(stages={"coder": {"maxIterations": 1}})
    coder, *others = straight(done="yes")
    ended = work(ralph, [sh(f"{verb} > ../said 2>&1 || true"), *coder], *others)
    said = (ralph.folder / "said").read_text()
    assert "ralph task edit is not for agents: run " in said
    assert ended.code == 1
    assert statuses(ralph) == {"A": "done", "B": "failed"}


def test_only_tasks_whose_state_may_have_changed_are_read_again(ralph: Ralph) -> None:
    keep(ralph, *(TaskRow(id, title="t") for id in ("worked", "untouched", "edited")))
    failed(ralph, "over")
    board = TaskQueue(ralph.project, ())
    before = dict(board.views)
    with opened(ralph) as ledger:
        ledger.tasks.change("edited", {"title": "other"})
        ledger.tasks.add([TaskRow("late", title="t")])
    worked(ralph, "r", "worked", *iteration(1, "worked", CODER), end=completed())
    board.refresh("worked")
    assert [id for id, view in board.views.items() if view is before.get(id)] == ["untouched", "over"]
    assert (board.views["worked"].status, board.views["edited"].title) == ("done", "other")
    assert (board.changed, board.new) == ({"edited": "r"}, ["late"])
    assert board.next(["untouched"]) == AllDone()


# Other stages than the run had


def test_a_run_that_goes_on_keeps_its_stages(ralph: Ralph) -> None:
    ralph.commit()
    create(ralph, "T")
    coder, _, tester, qa = straight(done="yes")
    agent = ralph.script([*held_up(ralph), *coder], tester, qa, answer=YES)
    cut_off(ralph, agent, "--skip", "reviewer")
    create(ralph, "OTHER")
    (run,) = (run.id for run in ralph.runs())
    ended = ralph("work", "--agent", agent, "--skip", "reviewer", "--skip", "qa")
    assert ended.code == 2
    why = f"task T is left out: run {run} was begun without reviewer, and goes on so: leave --skip away"
    assert f"{why}, or begin anew: ralph cancel T, then ralph work T --skip reviewer --skip qa" in ended.err
    assert statuses(ralph) == {"T": "todo", "OTHER": "done"}
    assert ralph("work", "T", "--skip", "qa", "--dry-run").code == 2
    agent = ralph.script([], coder, tester, qa, answer=YES)  # the other task's run closed the turn that was cut off
    same = ralph("work", "T", "--agent", agent, "--skip", "reviewer")
    assert same.code == 0, same.err
    assert stages(ralph, run) == ["coder", "coder", "tester", "qa"]


def test_a_task_that_was_interrupted_can_be_begun_anew_with_other_stages_as_the_refusal_says(ralph: Ralph) -> None:
    ralph.commit()
    ralph.settings(shutdownGraceSeconds=0.2)
    create(ralph, "T")
    coder, _, tester, _ = straight(done="yes")
    live = ralph.start("work", "--agent", ralph.script([*held_up(ralph), *coder]))
    until((ralph.root / "begun").exists, "its turn")
    live.process.send_signal(signal.SIGINT)
    assert live.end().code == 130
    argv = ("work", "T", "--skip", "reviewer", "--skip", "qa", "--agent", ralph.script(coder, tester))
    refused = ralph(*argv)
    assert refused.code == 2
    assert "was begun with every stage, and goes on so" in refused.out
    assert ralph("cancel", "T").code == 0
    assert ralph(*argv).code == 0
    assert stages(ralph) == ["coder", "tester"]
    assert len(ralph.runs()) == 2


# Dry runs, and tasks that cannot be worked on


def test_a_dry_run_tells_programs_one_object(ralph: Ralph) -> None:
    create(ralph, "T", "--priority", "9")
    create(ralph, "LATER", "--depends-on", "T")
    told = ralph("work", "--dry-run", "--json", "--agent", ralph.script([]))
    assert told.code == 0, told.err
    assert {name: told.json[name] for name in ("v", "type", "dryRun", "exitCode")} == {
        "v": 1, "type": "work", "dryRun": True, "exitCode": 0,
    }  # fmt: skip
    tasks = told.json["tasks"]
    assert [(one["task"], one["title"], one["end"]) for one in tasks] == [
        ("T", "Make T", "would be worked on"), ("LATER", "Make LATER", "would be worked on"),
    ]  # fmt: skip
    assert [stage["name"] for stage in tasks[0]["stages"]] == list(STAGES)
    assert ralph.runs() == ()


PLUGIN = """
class Refusing:
    def __init__(self, name, config, context):
        if config.get("bad"):
            raise ValueError("this config is bad")
        self.name = name
    def run(self, inspection, watch):
        return True
"""


def test_a_task_that_a_plug_in_refuses_is_left_out_and_the_others_go_on(ralph: Ralph) -> None:
    site = ralph.folder / "site"
    info = site / "refusing-1.dist-info"
    info.mkdir(parents=True)
    (site / "refusing.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: refusing\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ralphproof.checks]\nrefusing = refusing:Refusing\n")
    ralph.env["PYTHONPATH"] += f":{site}"
    ralph.commit()
    create(ralph, "BAD", "--qa-verify", "refusing", "--qa-verify-config", '{"bad": true}')
    create(ralph, "GOOD", "--qa-verify", "refusing", "--priority", "9")
    ended = work(ralph, *straight(done="yes"))
    assert ended.code == 2
    assert "this config is bad" in ended.err
    assert ended.out.splitlines()[-1] == "GOOD  done, verified"
    assert statuses(ralph) == {"BAD": "todo", "GOOD": "done"}


def test_a_task_that_is_changed_after_it_was_cut_off_is_begun_anew(ralph: Ralph) -> None:
    ralph.commit()
    create(ralph, "T")
    go = ralph.folder / "go"
    agent = ralph.script([write(begun="yes"), {"until": str(go)}, say("On it.")], *straight(done="yes"), answer=YES)
    live = ralph.start("work", "--agent", agent)
    until((ralph.root / "begun").exists, "its turn")
    live.process.send_signal(signal.SIGINT)
    go.touch()
    assert live.end().code == 130
    assert ralph("task", "edit", "T", "--acceptance", "It is another file").code == 0
    refused = ralph("run", "--resume")
    assert refused.code == 2
    assert "task T was changed since run" in refused.err
    assert ralph("work", "--agent", agent).code == 0
    assert len(ralph.runs()) == 2, "what the first one had passed says nothing of what is asked now"
