"""A task's way through its stages: forward where they pass, back where one finds a fault that is not its to mend."""

from __future__ import annotations

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import Check, CheckWatcher, Finding, Inspection
from ralphproof.engine.claim import ClaimRule
from ralphproof.engine.limits import Budget, Limits
from ralphproof.engine.next_action import AgentRules, RunRules
from ralphproof.engine.outcome import Aborted, Completed, Passed, Retry, SentBack
from ralphproof.engine.plan import Job, Pipeline, Stage, Task
from ralphproof.engine.records import CheckBegan, Judged, Noticed, Picked, Saved
from ralphproof.engine.sandbox import CONTINUE, STOP
from ralphproof.engine.state import TurnFinished, TurnRunning
from tests.engine.fake_environment import EDITED, NOTHING, WORKING, Crash, FakeEnvironment, Step

BACK = "CHANGES_REQUESTED"
TEMPLATE = "{{stage}} {{iteration}}/{{max_iterations}} of {{title}}: {{description}}\n\n{{promise}}"
TASK = Task("T-1", "Add tokens.", "Tokens {{promise}}", outcome="Tokens work.", acceptance=("They expire.",))


def stage(name: str, word: str, most: int, **more: object) -> Stage:
    made = Stage(name, ClaimRule(word, "promise"), template=TEMPLATE, max_iterations=most)
    return replace(made, **more)


def refusing(word: str) -> ClaimRule:
    return ClaimRule(word, "promise", refusal=BACK)


CODER = stage("coder", "CODED", 15, checks=("build",))
REVIEWER = stage(
    "reviewer",
    "REVIEWED",
    5,
    claim=refusing("REVIEWED"),
    judges=("judge",),
    edits=False,
    looks=True,
    back=("coder", "reviewer"),
)
TESTER = stage(
    "tester", "TESTED", 10, claim=refusing("TESTED"), checks=("tests",), back=("coder", "reviewer", "tester")
)
QA = stage(
    "qa", "QA", 5, claim=refusing("QA"), checks=("build", "tests"), judges=("judge",), edits=False, looks=True,
    trusts=False,
    back=("coder", "reviewer", "tester", "qa"),
)  # fmt: skip
PIPELINE = Pipeline((CODER, REVIEWER, TESTER, QA))
RULES = RunRules(PIPELINE, Limits(Budget(iterations=50)), agent=AgentRules(pause_s=0.0))


def say(word: str, text: str = "I looked at it.") -> Turn:
    return replace(WORKING, text=f"{text}\n<promise>{word}</promise>")


CODED, REVIEWED = Step(say("CODED")), Step(say("REVIEWED"), NOTHING)
TESTED, QA_DONE = Step(say("TESTED")), Step(say("QA"), NOTHING)
FORWARD = (CODED, REVIEWED, TESTED, QA_DONE)


def through(*steps: Step, rules: RunRules = RULES) -> FakeEnvironment:
    return FakeEnvironment(*steps, rules=rules, tasks=lambda _: (TASK,))


def stages(env: FakeEnvironment) -> list[str]:
    picked = [record.choice for record in env.ledger.appended if isinstance(record, Picked)]
    return [choice.stage.name for choice in picked if isinstance(choice, Job)]


def verdicts(env: FakeEnvironment) -> list[type]:
    return [type(record.verdict) for record in env.ledger.appended if isinstance(record, Judged)]


def prompts(env: FakeEnvironment) -> list[str]:
    return [brief.prompt for brief in env.turn_inputs if brief.stream]


def test_a_task_without_faults_wears_each_hat_once() -> None:
    env = through(*FORWARD)
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert (outcome.proof, outcome.iterations, outcome.concerns) == ("verified", 4, ())
    assert stages(env) == ["coder", "reviewer", "tester", "qa"]
    assert outcome.spend.micro_usd == 4 * 1_000 + 2 * 100, "what the judges cost counts"
    assert env.daily_spend.spend_of(("r1",)).micro_usd == outcome.spend.micro_usd, "and is booked"


def test_the_way_back_step_by_step() -> None:
    faults = "src/auth.py:12 logs the token.\nMend it by leaving it out."
    env = through(CODED, Step(say(BACK, faults), NOTHING), CODED, REVIEWED, TESTED, QA_DONE)
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert stages(env) == ["coder", "reviewer", "coder", "reviewer", "tester", "qa"]
    assert verdicts(env) == [Passed, SentBack, Passed, Passed, Passed, Passed]
    told = prompts(env)
    heads = [text.split("\n")[0] for text in told]
    assert heads[0].startswith("coder 1/15 of Tokens {{promise}}: Add tokens."), "a field is no place for another"
    assert [head.split(" of ")[0] for head in heads[1:]] == [
        "reviewer 1/5", "coder 2/15", "reviewer 2/5", "tester 1/10", "qa 1/5",
    ]  # fmt: skip
    assert (
        f"Stage reviewer found faults, and sent the task back. This is what its agent said:\n\n```\n{faults}" in told[2]
    )
    assert "found faults" not in told[3], "what was mended is not told to the next one"
    assert [text.count("<promise>") for text in (told[0], told[3])] == [1, 1]


@pytest.mark.parametrize(
    ("step", "verdict"),
    [
        pytest.param(Step(say("REVIEWED"), NOTHING, failing=("judge",)), SentBack, id="its judge finds a fault"),
        pytest.param(Step(say(BACK), NOTHING), SentBack, id="it says so itself"),
        pytest.param(Step(say("CODED"), NOTHING), Retry, id="it says another stage's word"),
        pytest.param(Step(WORKING, NOTHING), Retry, id="it claims nothing"),
        pytest.param(Step(say("REVIEWED"), NOTHING, failing=("judge errs",)), Passed, id="its judge cannot answer"),
    ],
)
def test_what_a_reviewer_can_come_to(step: Step, verdict: type) -> None:
    rest = {SentBack: FORWARD, Retry: FORWARD[1:], Passed: FORWARD[2:]}[verdict]
    env = through(CODED, step, *rest)
    outcome = env.run()
    assert verdicts(env)[1] is verdict
    assert isinstance(outcome, Completed)
    doubts = ("stage reviewer: judge could not answer, so the promise alone counted",) if verdict is Passed else ()
    assert outcome.concerns == doubts


def test_what_another_stage_promised_is_named_to_the_one_that_said_it() -> None:
    env = through(Step(say("TESTED")), *FORWARD)
    env.run()
    assert verdicts(env)[0] is Retry
    assert "Your last reply said 'TESTED'; completion is claimed with <promise>CODED</promise>." in prompts(env)[1]


def test_a_stage_that_mends_its_own_faults_is_tried_again() -> None:
    env = through(CODED, REVIEWED, Step(say("TESTED"), failing=("tests",)), TESTED, QA_DONE)
    assert isinstance(env.run(), Completed)
    assert stages(env) == ["coder", "reviewer", "tester", "tester", "qa"]


def test_a_judge_that_cannot_answer_never_completes_a_run_with_machine_checks() -> None:
    erring = replace(QA_DONE, failing=("judge errs",))
    env = through(*FORWARD[:3], erring, erring, QA_DONE)
    assert isinstance(env.run(), Completed)
    assert stages(env)[3:] == ["qa", "qa", "qa"], "nobody is sent back for what a judge could not say"
    assert verdicts(env)[3:] == [Retry, Retry, Passed]


def test_reviews_that_never_end_are_ended_by_their_own_limit() -> None:
    env = through(*(CODED, Step(say(BACK), NOTHING)) * 9)
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert outcome.breach.reason == "MAX_ITERATIONS"
    assert outcome.breach.message == "stage reviewer of T-1 was tried 5 times"
    assert stages(env) == ["coder", "reviewer"] * 5 + ["coder"], "what it found last is mended by nobody"
    assert len(prompts(env)) == 10


def test_whoever_mends_is_told_which_check_refused_and_nothing_of_anothers_reply() -> None:
    refused = Step(say("REVIEWED", "All is well."), NOTHING, failing=("judge",))
    env = through(CODED, refused, *FORWARD)
    env.run()
    mender = prompts(env)[2]
    assert 'Stage reviewer sent the task back: "judge" refused it.' in mender
    assert "Your last reply" not in mender
    assert "All is well." not in mender


def test_no_judge_is_paid_for_work_that_its_checks_refuse_or_nobody_claims() -> None:
    env = through(
        *FORWARD[:3], replace(QA_DONE, failing=("tests",)), *FORWARD[:3], Step(WORKING, NOTHING), QA_DONE,
    )  # fmt: skip
    env.run()
    assert [number for number, name in env.checks_run if name == "judge"] == [2, 6, 9]


def test_what_a_stage_changes_that_only_looks_is_put_back_and_said() -> None:
    env = through(CODED, Step(say("REVIEWED"), EDITED), TESTED, QA_DONE)
    assert isinstance(env.run(), Completed)
    assert [now.id for _, now in env.restored] == ["saved 2"]
    said = [record.message for record in env.ledger.appended if isinstance(record, Noticed)]
    assert said == [
        "stage reviewer only looks: edits to the files while it works are set aside, and kept",
        "stage reviewer only looks; what changed meanwhile was put back: src/a.py; it is kept, and if it was yours "
        "this brings it back: git apply aside_2.patch",
        "stage qa only looks: edits to the files while it works are set aside, and kept",
    ]
    saved = [record for record in env.ledger.appended if isinstance(record, Saved)]
    assert saved[1].snapshot.id == "saved 2-put-back"
    assert [record.change.undone for record in saved] == [(), ("src/a.py",), (), ()], "checks can tell that it was so"


def test_what_a_stage_commits_that_only_looks_is_looked_at_again() -> None:
    env = through(CODED, Step(say("REVIEWED"), EDITED), REVIEWED, TESTED, QA_DONE)
    env.heads = {"saved 2": "another"}
    assert isinstance(env.run(), Completed)
    assert stages(env) == ["coder", "reviewer", "reviewer", "tester", "qa"]
    assert env.restored == []
    assert (
        "You only look in this stage, and yet these files changed. Look at all of it again:\n- src/a.py"
        in prompts(env)[2]
    )


def test_what_somebody_changed_while_nobody_of_ours_was_there_is_left_alone() -> None:
    steps, open_turns = (CODED, Step(say("REVIEWED"), EDITED), REVIEWED, TESTED, QA_DONE), 0
    for at in range(40):
        env = through(*steps)
        env.ledger.crash_at, env.ledger.crash_after = at, True
        try:
            env.run()
        except Crash:
            state = env.rebuilt()
            if state.iteration == 2 and isinstance(state.phase, TurnRunning | TurnFinished):
                open_turns += 1
                assert isinstance(env.run(), Completed)
                assert env.restored == [], "whose the changes are is not known"
                assert stages(env) == ["coder", "reviewer", "reviewer", "tester", "qa"], "so they are looked at again"
    assert open_turns


def test_no_judge_is_asked_when_no_money_is_left() -> None:
    limited = replace(RULES, limits=Limits(Budget(iterations=50, micro_usd=2_000)))
    env = through(*FORWARD, rules=limited)
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert outcome.breach.reason == "COST_LIMIT"
    assert "judge" not in [name for _, name in env.checks_run]


def test_checks_of_a_group_are_asked_together_and_judges_after_them() -> None:
    checks = ("a", "b", "c")
    last = replace(QA, checks=checks, together=(("a", "b"),))
    env = through(QA_DONE, rules=replace(RULES, pipeline=Pipeline((last,))))
    asked: list[tuple[str, ...]] = []

    def together(checks: tuple[Check, ...], looked: Inspection, watch: CheckWatcher) -> tuple[Finding, ...]:
        asked.append(tuple(check.name for check in checks))
        return tuple(check.run(looked, watch) for check in checks)

    env.loop(together).run()
    assert asked == [("a", "b"), ("c",), ("judge",)]
    began = [record.check for record in env.ledger.appended if isinstance(record, CheckBegan)]
    assert began == ["a", "b", "c", "judge"]


@pytest.mark.parametrize("early", [True, False])
def test_the_first_fault_is_enough_where_all_are_required_together(early: bool) -> None:
    only = replace(CODER, checks=("a", "b"), stops_early=("b",) if early else ())
    env = through(replace(CODED, failing=("a",)), CODED, rules=replace(RULES, pipeline=Pipeline((only,))))
    env.run()
    assert [name for number, name in env.checks_run if number == 1] == (["a"] if early else ["a", "b"])


def test_killed_at_any_point_a_task_goes_on_in_its_stage_and_repeats_nothing() -> None:
    steps = (CODED, Step(say(BACK), NOTHING), CODED, REVIEWED, TESTED, QA_DONE)
    whole = through(*steps)
    whole.run()
    for after in (False, True):
        for at in range(whole.ledger.appends):
            env = through(*steps)
            env.ledger.crash_at, env.ledger.crash_after = at, after
            with pytest.raises(Crash):
                env.run()
            outcome = env.run()
            assert isinstance(outcome, Completed), (at, after)
            assert stages(env) == stages(whole)
            assert len(env.turns) == 6, "no turn was taken twice"
            assert outcome.spend.micro_usd == env.daily_spend.spend_of(("r1",)).micro_usd == 6 * 1_000 + 2 * 100


def test_a_judge_may_take_as_long_as_the_run_has_left() -> None:
    timed = replace(RULES, limits=Limits(Budget(iterations=50, seconds=60.0)))
    env = through(*FORWARD, rules=timed)
    wanted: list[tuple[str, int]] = []

    def together(checks: tuple[Check, ...], looked: Inspection, watch: CheckWatcher) -> tuple[Finding, ...]:
        env.clock.now += 61 if checks[0].name == "judge" else 0
        wanted.append((checks[0].name, watch.tick()))
        return tuple(check.run(looked, watch) for check in checks)

    outcome = env.loop(together).run()
    assert wanted == [("build", CONTINUE), ("judge", STOP)]
    assert isinstance(outcome, Aborted)
    assert outcome.breach.reason == "TIME_LIMIT"
