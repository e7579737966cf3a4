"""The pipeline preset with a scripted agent, real commands and real judges."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.command import ScriptedAgent
from ralphproof.base.errors import Refused
from ralphproof.base.processes import current_process
from ralphproof.checks.factory import CheckContext, CheckDependencies, create_checks
from ralphproof.checks.parallel import run_checks_in_parallel
from ralphproof.engine.environment import AgentAccess, CheckAccess, LoopEnvironment, PlanAccess, SpendAccess, WorkAccess
from ralphproof.engine.limits import Budget, Limits
from ralphproof.engine.loop import Loop
from ralphproof.engine.next_action import AgentRules, RunRules
from ralphproof.engine.outcome import Aborted, Completed, Outcome
from ralphproof.engine.plan import (
    CompletionCriteria,
    CustomVerification,
    ExternalVerification,
    MultiStageVerification,
    Plan,
    SemanticVerification,
    StringMatchVerification,
    Task,
    Verification,
    VerificationPart,
)
from ralphproof.engine.state import State, build_state
from ralphproof.process.keeper_client import KeeperClient, KeeperPool
from ralphproof.process.signals import RunClock
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.settings.loader import load_settings
from ralphproof.store.ledger import MemoryLedger
from ralphproof.store.run_folder import RunFolder
from ralphproof.tasks.pipeline import build_task_pipeline, load_stage_templates
from ralphproof.workspace.plain_workspace import PlainWorkspace
from tests.engine.fake_environment import NoHooks, NoTripwires
from tests.in_memory_spend import InMemorySpend

Step = dict[str, Any]
JUDGED = SemanticVerification(("the file is there",))
BACK = "CHANGES_REQUESTED"


def promise(word: str, *steps: Step) -> list[Step]:
    return [*steps, {"text": f"I am done.\n\n<promise>{word}</promise>"}]


def write(**files: str) -> Step:
    return {"write": files}


def task(title: str = "Make it", **criteria: Verification) -> Task:
    all_criteria = tuple((stage, CompletionCriteria(stage.upper(), how=how)) for stage, how in criteria.items())
    return Task("T-1", "Make it so.", title=title, outcome="It is so", acceptance=("It is so",), criteria=all_criteria)


@dataclass
class Bench:
    """A project, and runs of tasks in it."""

    folder: Path
    keepers: list[KeeperClient] = field(default_factory=list)
    pools: list[KeeperPool] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.folder / "project"

    def work(
        self, spec: Task, *iterations: list[Step], answer: list[Step] | None = None, skip: tuple[str, ...] = (),
        settings: dict[str, Any] | None = None, max_iterations: int = 12,
    ) -> tuple[Outcome, State]:  # fmt: skip
        """Run a task to its end with an agent that plays these iterations."""
        script = self.folder / "script.json"
        script.write_text(json.dumps({"iterations": list(iterations), "answer": answer or [{"judge": "yes"}]}))
        loaded = load_settings(
            str(self.root), {"HOME": str(self.folder)}, {"preset": "pipeline", **(settings or {})}
        ).settings
        pipeline, leaves = build_task_pipeline(spec, loaded, load_stage_templates(str(self.root)), skip=skip)
        agent, ledger, keeper = ScriptedAgent(str(script)), MemoryLedger(), KeeperClient()
        self.keepers.append(keeper)
        pool = KeeperPool(keeper)
        self.pools.append(pool)
        sandbox, env = DirectRunner(pool), tuple(os.environ.items())
        folder = RunFolder(str(self.root), "run", str(self.folder / "state"))
        workspace = PlainWorkspace(str(self.root), str(self.folder / "private"))
        dependencies = CheckDependencies(
            str(self.root), env, folder, sandbox, workspace.diff, env, dict.fromkeys(leaves, agent), spec
        )
        checks = create_checks(leaves.values(), dependencies)
        ledger.begin_run("run", str(self.root), 0.0, current_process())
        environment = LoopEnvironment(
            AgentAccess((agent,), sandbox, env),
            PlanAccess(FixedPlan(spec)),
            CheckAccess(checks, run_checks_in_parallel),
            WorkAccess(workspace, NoTripwires()),
            SpendAccess(InMemorySpend()),
            ledger,
            folder,
            RunClock(),
            NoHooks(),
        )
        outcome = Loop(
            "run",
            RunRules(pipeline, Limits(Budget(iterations=max_iterations)), agent=AgentRules(pause_s=0.0)),
            environment,
        ).run()
        return outcome, build_state(ledger.records("run"))

    def prompt(self, iteration: int) -> str:
        return (self.root / ".ralph" / "runs" / "run" / f"prompt_{iteration:03d}.txt").read_text("utf-8")


class FixedPlan:
    """A plan with fixed tasks."""

    def __init__(self, *tasks: Task) -> None:
        self._plan = Plan(tasks)

    def read(self) -> Plan:
        return self._plan


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    workbench = Bench(tmp_path)
    workbench.root.mkdir()
    yield workbench
    for pool in workbench.pools:
        pool.close()
    for keeper in workbench.keepers:
        keeper.close()


def stage_names(state: State) -> list[str]:
    return [iteration.job.stage.name for iteration in state.history.iterations]


def check_results(state: State, place: int = -1) -> dict[str, bool]:
    return {finding.check: finding.passed for finding in state.history.iterations[place].report.findings}


def test_a_task_goes_through_its_stages_and_is_verified_at_the_end(bench: Bench) -> None:
    spec = task(
        coder=ExternalVerification("test -f made"),
        reviewer=JUDGED,
        tester=ExternalVerification("test -f test_made"),
        qa=JUDGED,
    )
    outcome, state = bench.work(
        spec, promise("CODER", write(made="x")), promise("REVIEWER"), promise("TESTER", write(test_made="x")),
        promise("QA"),
    )  # fmt: skip
    assert isinstance(outcome, Completed)
    assert (outcome.verified, outcome.proof, outcome.concerns) == (True, "verified", ())
    assert stage_names(state) == ["coder", "reviewer", "tester", "qa"]
    assert check_results(state) == {"coder.external": True, "tester.external": True, "qa.semantic": True}


def test_a_promise_that_is_not_kept_is_asked_for_again_with_what_failed(bench: Bench) -> None:
    spec = task(coder=ExternalVerification("echo it is not there; test -f made"))
    outcome, state = bench.work(
        spec, promise("CODER"), promise("CODER", write(made="x")), skip=("reviewer", "tester", "qa")
    )
    assert isinstance(outcome, Completed)
    assert stage_names(state) == ["coder", "coder"]
    assert "- **Iteration**: 2/15\n- **Agent**: coder" in bench.prompt(2)
    assert "it is not there" in bench.prompt(2)


def test_a_reviewer_sends_the_task_back_and_reviews_again(bench: Bench) -> None:
    spec = task(coder=ExternalVerification("test -f made"), reviewer=StringMatchVerification())
    faults = [{"text": f"made:1 is empty. Write a word.\n\n<promise>{BACK}</promise>"}]
    outcome, state = bench.work(
        spec, promise("CODER", write(made="")), faults, promise("CODER", write(made="word")), promise("REVIEWER"),
        skip=("tester", "qa"),
    )  # fmt: skip
    assert isinstance(outcome, Completed)
    assert stage_names(state) == ["coder", "reviewer", "coder", "reviewer"]
    assert "made:1 is empty. Write a word." in bench.prompt(3)


def test_the_last_stage_finds_what_a_later_stage_broke(bench: Bench) -> None:
    spec = task(
        coder=ExternalVerification("grep -q good made"),
        tester=ExternalVerification("test -f tested"),
        qa=StringMatchVerification(),
    )
    outcome, state = bench.work(
        spec, promise("CODER", write(made="good")), promise("TESTER", write(tested="x", made="bad")), promise("QA"),
        promise("CODER", write(made="good")), promise("TESTER"), promise("QA"), skip=("reviewer",),
    )  # fmt: skip
    assert isinstance(outcome, Completed)
    assert outcome.verified
    assert stage_names(state) == ["coder", "tester", "qa", "coder", "tester", "qa"]
    assert check_results(state, 2) == {"coder.external": False, "tester.external": True}


def test_a_single_pass_needs_no_promise_and_its_failure_ends_the_task(bench: Bench) -> None:
    once = {"stages": {"coder": {"enabled": False}}}
    spec = task(coder=ExternalVerification("test -f made"))
    outcome, state = bench.work(spec, [{"text": "I tried."}], settings=once, skip=("reviewer", "tester", "qa"))
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, stage_names(state)) == ("MAX_ITERATIONS", ["coder"])
    assert "single pass" in bench.prompt(1)
    assert "<promise>" not in bench.prompt(1)


def test_a_single_pass_that_passes_is_verified_without_a_word(bench: Bench) -> None:
    once = {"pipeline": {"enabled": False}}
    spec = task(coder=ExternalVerification("test -f made"), reviewer=StringMatchVerification())
    agent = [write(made="x"), {"text": "I am done."}], [{"text": "I looked."}]
    outcome, state = bench.work(spec, *agent, settings=once, skip=("tester", "qa"))
    assert isinstance(outcome, Completed)
    assert outcome.verified
    assert stage_names(state) == ["coder", "reviewer"]


def test_a_stage_has_its_own_number_of_tries(bench: Bench) -> None:
    most = {"stages": {"coder": {"maxIterations": 2}}}
    outcome, state = bench.work(task(coder=ExternalVerification("false")), promise("CODER"), settings=most)
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, stage_names(state)) == ("MAX_ITERATIONS", ["coder", "coder"])


BROKEN: list[Step] = [{"exit": 9}]


def test_a_judge_that_cannot_answer_leaves_the_promise_where_no_machine_is_asked(bench: Bench) -> None:
    outcome, _ = bench.work(
        task(coder=JUDGED), promise("CODER", write(made="x")), answer=BROKEN, skip=("reviewer", "tester", "qa")
    )
    assert isinstance(outcome, Completed)
    assert outcome.proof == "claimed"
    assert outcome.concerns == ("stage coder: coder.semantic could not answer, so the promise alone counted",)


def test_a_run_with_a_machine_never_completes_on_a_judge_that_cannot_answer(bench: Bench) -> None:
    spec = task(coder=ExternalVerification("test -f made"), qa=JUDGED)
    outcome, state = bench.work(
        spec,
        promise("CODER", write(made="x")),
        promise("QA"),
        answer=BROKEN,
        skip=("reviewer", "tester"),
        max_iterations=3,
    )
    assert isinstance(outcome, Aborted)
    assert stage_names(state) == ["coder", "qa", "qa"]


def test_fields_of_a_task_reach_its_commands_as_text_and_never_as_code(bench: Bench) -> None:
    spec = task("a; touch hacked $(touch hacked) `touch hacked`")
    config = {"command": 'test "{{title}}" = "$(cat title)"'}
    settings = {"stages": {"coder": {"verificationConfig": config}}}
    outcome, _ = bench.work(
        spec, promise("IMPLEMENTATION_COMPLETE", write(title=spec.title)), settings=settings,
        skip=("reviewer", "tester", "qa"),
    )  # fmt: skip
    assert isinstance(outcome, Completed)
    assert outcome.verified
    assert not (bench.root / "hacked").exists()


def test_several_checks_are_asked_at_once_and_advice_only_warns(bench: Bench) -> None:
    """Each of the two waits for the other: one after the other, both would fail."""
    meet = "touch {0}; for i in $(seq 100); do test -f {1} && exit 0; sleep 0.05; done; exit 1"
    parts = (
        VerificationPart("one", ExternalVerification(meet.format("one", "two"))),
        VerificationPart("two", ExternalVerification(meet.format("two", "one"))),
        VerificationPart("after", ExternalVerification("test -f one && test -f two"), after=("one", "two")),
        VerificationPart("nice", ExternalVerification("false"), required=False),
    )
    outcome, state = bench.work(
        task(coder=MultiStageVerification(parts)), promise("CODER", write(made="x")), skip=("reviewer", "tester", "qa")
    )
    assert isinstance(outcome, Completed)
    assert outcome.concerns == ("stage coder: nice failed, and only warns",)
    assert stage_names(state) == ["coder"]
    assert check_results(state) == {"one": True, "two": True, "nice": False, "after": True}


ONLY_CODER = ("reviewer", "tester", "qa")


def test_every_pass_rule_of_a_command_applies(bench: Bench) -> None:
    command = "cat ../said; exit 3"
    how = ExternalVerification(
        command, success_exit_code=3, output_contains="good", output_not_contains="bad", folder="sub"
    )
    said = ("nothing", "good and bad", "good")
    outcome, state = bench.work(
        task(coder=how), *(promise("CODER", {"write": {"said": text, "sub/x": "x"}}) for text in said), skip=ONLY_CODER
    )
    assert isinstance(outcome, Completed)
    assert stage_names(state) == ["coder", "coder", "coder"]
    assert "output that does not contain 'good'" in bench.prompt(2)
    assert "output that contains 'bad'" in bench.prompt(3)


def test_a_judge_is_a_guardrail_like_any_other_and_is_told_the_task(bench: Bench) -> None:
    guardrail = {
        "name": "reviewed", "method": "semantic", "config": {"check_for": ["no secrets"]}, "failAction": "PREPEND",
        "hint": "Look at the keys.",
    }  # fmt: skip
    outcome, state = bench.work(
        task("Keys of the house"), promise("IMPLEMENTATION_COMPLETE", write(made="x")), answer=[{"judge": "no"}],
        settings={"guardrails": [guardrail]}, max_iterations=2, skip=ONLY_CODER,
    )  # fmt: skip
    assert isinstance(outcome, Aborted)
    assert check_results(state) == {"reviewed": False}
    assert bench.prompt(2).startswith('Guardrail "reviewed" failed with 1 of 1 criteria not met.\nHint: Look at the')
    question = (bench.root / ".ralph" / "runs" / "run" / "judge_001_reviewed.txt").read_text("utf-8")
    assert "Keys of the house\n\nMake it so.\n\nOutcome: It is so" in question


PLUG_IN = '''
class Sized:
    """A file is not empty."""

    def __init__(self, name, config, context):
        if set(config) != {"file"}:
            raise ValueError("it needs file, and nothing else")
        self.name, self.path = name, f"{context.root}/{config['file']}"
        self.task = context.task.id, context.stage
        self.key = config["file"]

    def run(self, inspection, watch):
        import os

        size = os.path.getsize(self.path)
        return size > 0, f"{self.path} has {size} bytes ({self.task})"


def broken(name, config, context):
    raise KeyError("no such thing")


def shapeless(name, config, context):
    return 3
'''


@pytest.fixture
def plug_in(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    (bench.folder / "sized_by_file.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(str(bench.folder))
    return bench


def test_a_plug_in_verifies_and_what_it_raises_is_no_answer(plug_in: Bench) -> None:
    spec = task(coder=CustomVerification("sized_by_file:Sized", {"file": "made"}))
    outcome, state = plug_in.work(
        spec, promise("CODER"), promise("CODER", write(made="")), promise("CODER", write(made="x")),
        skip=("reviewer", "tester", "qa"),
    )  # fmt: skip
    assert isinstance(outcome, Completed)
    assert outcome.verified
    found = [iteration.report.findings[0] for iteration in state.history.iterations]
    assert [(one.passed, one.errored) for one in found] == [(False, True), (False, False), (True, False)]
    assert found[0].output.startswith("FileNotFoundError: ")
    assert found[1].output.endswith("made has 0 bytes (('T-1', 'coder'))")
    assert "made has 0 bytes" in plug_in.prompt(3)


def test_a_plug_ins_answer_serves_every_check_that_asks_the_same(plug_in: Bench) -> None:
    same = CustomVerification("sized_by_file:Sized", {"file": "made"})
    parts = (VerificationPart("a", same), VerificationPart("b", same), VerificationPart("advice", same, required=False))
    outcome, state = plug_in.work(
        task(coder=MultiStageVerification(parts, parallel=False)), promise("CODER", write(made="x")),
        skip=("reviewer", "tester", "qa"),
    )  # fmt: skip
    assert isinstance(outcome, Completed)
    found = state.history.iterations[0].report.findings
    assert [(one.check, one.runs, one.required) for one in found] == [
        ("a", 1, True), ("b", 0, True), ("advice", 1, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "config", "why"),
    [
        ("sized_by_file:Sized", {}, "it needs file, and nothing else"),
        ("sized_by_file:broken", {}, "'no such thing'"),
        ("sized_by_file:shapeless", {}, "it made 3, which has no run()"),
        ("sized_by_file:Nothing", {}, "checks 'sized_by_file:Nothing' cannot be loaded"),
        ("no_such_module_anywhere:X", {}, "cannot be loaded: No module named 'no_such_module_anywhere'"),
        ("sized_by_file:PLUG", {}, "cannot be loaded"),
    ],
)
def test_a_plug_in_that_cannot_be_made_is_refused_by_task_stage_and_method(
    plug_in: Bench, method: str, config: dict[str, Any], why: str
) -> None:
    with pytest.raises(Refused) as caught:
        plug_in.work(task(tester=CustomVerification(method, config)), promise("CODER"))
    said = str(caught.value)
    assert said.startswith(f"task T-1, stage tester, check tester.{method}: method {method} cannot be used: ")
    assert why in said


def test_arguments_of_a_plug_in_are_documented() -> None:
    page = inspect.getdoc(CheckContext) or ""
    assert [name for name in CheckContext.__match_args__ if f"\n    {name} " not in page] == []
