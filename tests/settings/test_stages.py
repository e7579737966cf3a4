"""The pipeline of a task: which stages, which checks in which order, which words, and who mends what."""

from __future__ import annotations

from typing import Any

import pytest

from ralphproof.base.errors import Refused
from ralphproof.checks.check_plan import CheckSpec, plan_checks
from ralphproof.engine.claim import ClaimRule
from ralphproof.engine.plan import (
    CompletionCriteria,
    CustomVerification,
    ExternalVerification,
    MultiStageVerification,
    Pipeline,
    SemanticVerification,
    Stage,
    StringMatchVerification,
    Task,
    Verification,
    VerificationPart,
)
from ralphproof.settings.declarations import PIPELINE_STAGES, Settings
from ralphproof.tasks.pipeline import build_task_pipeline
from tests.settings.project import Project

TEMPLATES = dict.fromkeys(PIPELINE_STAGES, "{{title}} {{description}}")
MAKE = {"guardrails": [{"command": "make test"}, {"command": "make lint"}]}
RAILS = ("make test", "make lint")
JUDGED = SemanticVerification(("it works", "it is safe"))


def task(**criteria: Verification | CompletionCriteria | None) -> Task:
    made = tuple(
        (stage, how if isinstance(how, CompletionCriteria) else CompletionCriteria(f"{stage.upper()}_OK", how=how))
        for stage, how in criteria.items()
    )
    return Task("T-1", "Do it.", title="Doing it", outcome="It is done", acceptance=JUDGED.check_for, criteria=made)


def built(
    project: Project, what: Task, flags: dict[str, Any] | None = None, **more: Any
) -> tuple[dict[str, Stage], dict[str, CheckSpec]]:
    pipeline, leaves = build_task_pipeline(what, settings(project, flags), TEMPLATES, **more)
    assert [stage.name for stage in pipeline.stages] == [
        name for name in PIPELINE_STAGES if name not in more.get("skip", ())
    ]
    for stage in pipeline.stages:
        hold(stage, leaves, more.get("extra_checks", ()))
    return {stage.name: stage for stage in pipeline.stages}, leaves


def settings(project: Project, flags: dict[str, Any] | None = None) -> Settings:
    return project.load({"preset": "pipeline", **(flags or {})}).settings


def hold(stage: Stage, leaves: dict[str, CheckSpec], extra_checks: tuple[str, ...]) -> None:
    """What holds of every stage."""
    named = (*stage.checks, *stage.judges)
    assert len(set(named)) == len(named)
    assert {*named} <= {*leaves, *extra_checks}
    assert all(set(group) <= set(stage.checks) and len(group) > 1 for group in stage.together)
    assert not any(
        isinstance(leaves[name].verification, SemanticVerification) for name in stage.checks if name in leaves
    )


def multi(*parts: VerificationPart, require_all: bool = True, parallel: bool = True) -> MultiStageVerification:
    return MultiStageVerification(parts, require_all, parallel)


def run(name: str, command: str = "", required: bool = True, after: tuple[str, ...] = ()) -> VerificationPart:
    return VerificationPart(name, ExternalVerification(command or f"run {name}"), required, after)


def test_a_task_without_criteria_goes_by_guardrails_and_acceptance_criteria(project: Project) -> None:
    stages, leaves = built(project, task(), MAKE)
    assert {name: (stage.checks, stage.judges) for name, stage in stages.items()} == {
        "coder": (RAILS, ()),
        "reviewer": ((), ("reviewer.semantic",)),
        "tester": (RAILS, ()),
        "qa": (RAILS, ("qa.semantic",)),
    }
    assert leaves["reviewer.semantic"].verification == leaves["qa.semantic"].verification == JUDGED
    assert [stage.method for stage in stages.values()] == ["external", "semantic", "external", "multi_stage"]
    assert not any(stage.together for stage in stages.values()), "guardrails are asked one by one"
    assert not any(stage.stops_early for stage in stages.values()), "and all of them are"


def test_without_guardrails_and_acceptance_criteria_only_the_promises_are_left(project: Project) -> None:
    stages, leaves = built(project, Task("T", "Do it."))
    assert leaves == {}
    assert [stage.method for stage in stages.values()] == ["string_match"] * 4
    assert [stage.claim.word for stage in stages.values()] == [
        "IMPLEMENTATION_COMPLETE", "REVIEW_PASSED", "TESTS_PASSED", "QA_PASSED",
    ]  # fmt: skip
    assert all(stage.trusts for stage in stages.values())


def test_hats_limits_and_words_come_from_the_task_then_from_the_settings(project: Project) -> None:
    own = CompletionCriteria("BUILT", "It builds", StringMatchVerification(), 3)
    stages, _ = built(project, task(coder=own, tester=CompletionCriteria("T_OK")), places={"qa": 2})
    assert stages["coder"].claim == ClaimRule("BUILT", "promise")
    assert stages["reviewer"].claim == ClaimRule("REVIEW_PASSED", "promise", refusal="CHANGES_REQUESTED")
    assert [stage.max_iterations for stage in stages.values()] == [3, 5, 10, 5]
    assert [stage.edits for stage in stages.values()] == [True, False, True, False]
    assert [stage.place for stage in stages.values()] == [None, None, None, 2]
    assert [stage.describes for stage in stages.values()] == [
        "It builds",
        "Complete the reviewer stage for: Doing it",
        "Complete the tester stage for: Doing it",
        "Complete the qa stage for: Doing it",
    ]


@pytest.mark.parametrize(
    ("method", "checks", "judges"),
    [
        ("string_match", (), ()),
        ("external", RAILS, ()),
        ("semantic", (), ("coder.semantic",)),
        ("multi_stage", RAILS, ("coder.semantic",)),
        (None, (), ()),
    ],
)
def test_a_method_that_is_told_nothing_has_its_usual_meaning(
    project: Project, method: str | None, checks: tuple[str, ...], judges: tuple[str, ...]
) -> None:
    stages, _ = built(project, task(), {**MAKE, "stages": {"coder": {"verification": method}}})
    assert (stages["coder"].checks, stages["coder"].judges) == (checks, judges)


@pytest.mark.parametrize("how", [ExternalVerification(""), MultiStageVerification(())])
def test_so_has_one_that_a_task_names_without_telling_it_anything(project: Project, how: Verification) -> None:
    stages, _ = built(project, task(reviewer=how), MAKE)
    assert stages["reviewer"].checks == RAILS


def test_a_judge_that_is_told_only_whom_to_ask_goes_by_the_acceptance_criteria(project: Project) -> None:
    asked = SemanticVerification(model="large")
    _, leaves = built(project, task(coder=asked, qa=multi(VerificationPart("inner", asked))))
    assert leaves["coder.semantic"].verification == SemanticVerification(JUDGED.check_for, model="large")
    assert leaves["inner"].verification == SemanticVerification(JUDGED.check_for, model="large")
    with pytest.raises(Refused, match="task T, stage qa, inner: nothing is to be judged"):
        built(project, Task("T", "x", criteria=task(qa=multi(VerificationPart("inner", asked))).criteria))


def test_the_settings_of_a_stage_hold_where_the_task_is_silent_and_its_fields_are_put_in(project: Project) -> None:
    flags = {
        "stages": {
            "coder": {"verificationConfig": {"command": "grep '{{title}}' notes", "timeout": 9}},
            "reviewer": {"verificationConfig": {"check_for": ["{{title}} is readable", "{{acceptance_criteria}}"]}},
            "tester": {"verification": "some.package:Way", "verificationConfig": {"deep": [1]}},
        }
    }
    stages, leaves = built(project, task(tester=CompletionCriteria("T_OK"), qa=StringMatchVerification()), flags)
    assert leaves["coder.external"].verification == ExternalVerification(
        "grep ''\"${RALPH_TASK_TITLE}\"'' notes", timeout_s=9.0
    )
    assert leaves["reviewer.semantic"].verification == SemanticVerification(("Doing it is readable", *JUDGED.check_for))
    assert leaves["tester.some.package:Way"].verification == CustomVerification("some.package:Way", {"deep": [1]})
    assert stages["tester"].claim.word == "T_OK"
    assert stages["tester"].method == "some.package:Way"


def test_a_command_that_a_tasks_text_is_too_long_for_is_refused_by_name(project: Project) -> None:
    flags = {"stages": {"coder": {"verificationConfig": {"command": "echo {{description}}"}}}}
    long = Task("T-9", "x" * 200_000, title="t")
    with pytest.raises(Refused, match=r"^task T-9, stage coder: stages.coder.verificationConfig.command uses"):
        built(project, long, flags)


def test_the_last_stage_asks_again_whatever_a_machine_was_asked_before(project: Project) -> None:
    what = task(
        coder=ExternalVerification("build"),
        reviewer=JUDGED,
        tester=multi(
            run("unit"),
            run("slow", required=False),
            VerificationPart("look", JUDGED),
            VerificationPart("plug", CustomVerification("tidy")),
        ),
        qa=multi(run("smoke"), VerificationPart("accepted", JUDGED)),
    )
    stages, leaves = built(project, what, MAKE)
    assert stages["coder"].checks == ("coder.external",)
    assert stages["tester"].checks == ("unit", "slow", "plug")
    assert stages["qa"].checks == (*RAILS, "coder.external", "unit", "plug", "smoke")
    assert stages["qa"].judges == ("accepted",)
    assert stages["qa"].together == (("unit", "plug"),)
    assert set(leaves) == {
        *RAILS, "coder.external", "reviewer.semantic", "unit", "slow", "look", "plug", "smoke", "accepted",
    }  # fmt: skip
    assert [stage.trusts for stage in stages.values()] == [True, True, True, False]


def test_what_waited_for_a_judge_is_asked_again_with_the_other_machines(project: Project) -> None:
    what = task(
        coder=multi(VerificationPart("look", JUDGED), run("deploy", after=("look",))), qa=StringMatchVerification()
    )
    stages, _ = built(project, what)
    assert (stages["coder"].checks, stages["coder"].judges) == ((), ("look", "deploy"))
    assert (stages["qa"].checks, stages["qa"].judges) == (("deploy",), ())


@pytest.mark.parametrize("skip", [("qa",), ("tester", "qa"), ("reviewer", "tester", "qa")])
def test_whichever_stage_is_the_last_asks_all(project: Project, skip: tuple[str, ...]) -> None:
    stages, _ = built(
        project, task(coder=ExternalVerification("build"), reviewer=StringMatchVerification()), MAKE, skip=skip
    )
    last = list(stages.values())[-1]
    assert last.checks == (*RAILS, "coder.external")
    assert not last.trusts


def test_a_machine_in_an_early_stage_keeps_the_last_one_from_being_believed(project: Project) -> None:
    stages, _ = built(project, task(coder=ExternalVerification("build"), qa=JUDGED))
    assert [stage.trusts for stage in stages.values()] == [True, True, True, False]
    stages, _ = built(project, task(coder=StringMatchVerification(), qa=JUDGED))
    assert [stage.trusts for stage in stages.values()] == [True, True, True, True]


def test_a_run_without_any_stage_is_refused(project: Project) -> None:
    with pytest.raises(Refused, match="every stage is skipped"):
        built(project, task(), skip=PIPELINE_STAGES)


@pytest.mark.parametrize(
    ("skip", "back"),
    [
        ((), {"coder": (), "reviewer": PIPELINE_STAGES[:2], "tester": PIPELINE_STAGES[:3], "qa": PIPELINE_STAGES}),
        (("coder",), {"reviewer": (), "tester": (), "qa": ("tester", "qa")}),
        (("reviewer",), {"coder": (), "tester": ("coder", "tester"), "qa": ("coder", "tester", "qa")}),
        (("coder", "tester"), {"reviewer": (), "qa": ()}),
    ],
)
def test_a_fault_goes_back_to_who_can_mend_it(
    project: Project, skip: tuple[str, ...], back: dict[str, tuple[str, ...]]
) -> None:
    stages, _ = built(project, task(), skip=skip)
    assert {name: stage.back for name, stage in stages.items()} == back
    refusals = {name: stage.claim.refusal for name, stage in stages.items()}
    assert refusals == {name: "CHANGES_REQUESTED" if way else None for name, way in back.items()}


def test_only_who_can_send_back_is_told_how(project: Project) -> None:
    templates = dict.fromkeys(
        PIPELINE_STAGES, "{{title}} {{description}}\n\n## Faults\n{{refusal}}\n\n## Done\n{{promise}}\n"
    )
    pipeline, _ = build_task_pipeline(task(), settings(project), templates, skip=("coder",))
    assert [("{{refusal}}" in stage.template) for stage in pipeline.stages] == [False, False, True]


@pytest.mark.parametrize("flags", [{"pipeline": {"enabled": False}}, {"stages": {"reviewer": {"enabled": False}}}])
def test_a_stage_whose_loop_is_off_is_a_single_pass(project: Project, flags: dict[str, Any]) -> None:
    how = multi(run("lint"), VerificationPart("word", StringMatchVerification()), VerificationPart("judged", JUDGED))
    stages, leaves = built(project, task(reviewer=CompletionCriteria("R", "Looks good", how, 7)), flags)
    one = stages["reviewer"]
    assert (one.max_iterations, one.claim, one.back) == (1, ClaimRule(), ())
    assert (one.checks, one.judges) == (("lint",), ("judged",)), "no promise is needed"
    assert "word" not in leaves
    assert "single pass" in one.template
    assert (stages["coder"].max_iterations == 1) is ("pipeline" in flags)


def test_a_promise_among_several_ways_is_asked_last_and_knows_its_word(project: Project) -> None:
    stages, leaves = built(project, task(coder=multi(VerificationPart("word", StringMatchVerification()), run("unit"))))
    assert (stages["coder"].checks, stages["coder"].judges) == (("unit",), ("word",))
    assert leaves["word"].claim_rule == ClaimRule("CODER_OK", "promise")


ORDERS: list[tuple[MultiStageVerification, tuple[str, ...], tuple[tuple[str, ...], ...], tuple[str, ...]]] = [
    (multi(run("a"), run("b"), run("c")), ("a", "b", "c"), (("a", "b", "c"),), ()),
    (multi(run("a"), run("b"), parallel=False), ("a", "b"), (), ()),
    (multi(run("a", after=("c",)), run("b"), run("c")), ("b", "c", "a"), (("b", "c"),), ()),
    (multi(run("a"), run("b", after=("a",)), run("c", after=("b",))), ("a", "b", "c"), (), ()),
    (multi(VerificationPart("j", JUDGED), run("a"), VerificationPart("k", JUDGED)), ("a",), (), ("j", "k")),
    (multi(run("a", after=("j",)), VerificationPart("j", JUDGED), run("b")), ("b",), (), ("j", "a")),
    (
        multi(run("x"), VerificationPart("in", multi(run("a"), run("b", after=("a",)))), run("y", after=("in",))),
        ("x", "in/a", "in/b", "y"),
        (("x", "in/a"),),
        (),
    ),
    (
        multi(run("x"), VerificationPart("in", multi(run("a"), run("b"), parallel=False))),
        ("x", "in/a", "in/b"),
        (("x", "in/a"),),
        (),
    ),
    (
        multi(run("x"), VerificationPart("in", multi(run("a"), run("b"))), parallel=False),
        ("x", "in/a", "in/b"),
        (("in/a", "in/b"),),
        (),
    ),
    (
        multi(run("y", after=("in",)), VerificationPart("in", multi(run("a"), VerificationPart("j", JUDGED)))),
        ("in/a",),
        (),
        ("in/j", "y"),
    ),
    (
        multi(VerificationPart("j", JUDGED), VerificationPart("in", multi(run("a"), run("b")), after=("j",))),
        (),
        (),
        ("j", "in/a", "in/b"),
    ),
]


@pytest.mark.parametrize(("how", "checks", "together", "judges"), ORDERS)
def test_several_ways_are_asked_in_their_order_and_at_once_where_they_may_be(
    how: MultiStageVerification, checks: tuple[str, ...], together: tuple[tuple[str, ...], ...], judges: tuple[str, ...]
) -> None:
    made = plan_checks("all", how)
    assert (made.checks, made.parallel_groups, made.judges) == (checks, together, judges)


def test_what_only_warns_makes_all_that_is_in_it_only_warn(project: Project) -> None:
    inner = multi(run("a"), run("b", required=False))
    _, leaves = built(
        project,
        task(qa=multi(run("x"), VerificationPart("soft", inner, required=False), VerificationPart("hard", inner))),
    )
    assert {name: leaf.required for name, leaf in leaves.items()} | {"reviewer.semantic": True} == {
        "reviewer.semantic": True, "x": True, "soft/a": False, "soft/b": False, "hard/a": True, "hard/b": False,
    }  # fmt: skip


@pytest.mark.parametrize("require_all", [True, False])
def test_the_first_fault_is_enough_where_all_are_required(project: Project, require_all: bool) -> None:
    stages, _ = built(project, task(qa=multi(run("x"), run("y"), require_all=require_all)), MAKE)
    assert stages["qa"].stops_early == (("x", "y") if require_all else ())
    assert not stages["coder"].stops_early


def test_every_check_has_a_name_of_its_own_in_the_whole_run(project: Project) -> None:
    flags = {"guardrails": [{"command": "lint"}, {"command": "a", "name": "qa.unit"}]}
    what = task(
        coder=multi(run("unit"), run("lint")), tester=multi(run("unit"), run("other")),
        qa=multi(run("unit"), run("in/a"), VerificationPart("in", multi(run("a")))),
    )  # fmt: skip
    stages, leaves = built(project, what, flags)
    assert stages["coder"].checks == ("coder.unit", "coder.lint")
    assert stages["tester"].checks == ("tester.unit", "other")
    assert stages["qa"].checks[-3:] == ("qa.unit (2)", "in/a", "in/a (2)")
    assert leaves["lint"].verification == ExternalVerification("lint", timeout_s=600.0)
    assert leaves["coder.lint"].verification == ExternalVerification("run lint")


def test_guardrails_of_other_methods_take_their_places(project: Project) -> None:
    parts = [{"name": name, "method": "external", "config": {"command": name}} for name in ("a", "b")]
    flags = {
        "guardrails": [
            {"command": "make", "retries": 2, "hint": "h"},
            {"name": "reviewed", "method": "semantic", "config": {"check_for": ["x"]}, "failAction": "PREPEND"},
            {"name": "many", "method": "multi_stage", "config": {"stages": parts}},
        ]
    }
    stages, leaves = built(project, task(reviewer=StringMatchVerification()), flags)
    for name in ("coder", "tester", "qa"):
        assert stages[name].checks == ("make", "many/a", "many/b")
        assert stages[name].judges[0] == "reviewed"
        assert stages[name].together == (("many/a", "many/b"),)
    assert stages["reviewer"].checks == ()
    assert (leaves["make"].retries, leaves["make"].hint, leaves["make"].log_name) == (2, "h", "make")
    assert (leaves["reviewed"].action, leaves["reviewed"].late) == ("PREPEND", True)
    assert leaves["many/a"].stage == ""


def test_checks_that_a_caller_brings_are_asked_as_guardrails_are(project: Project) -> None:
    stages, leaves = built(project, task(qa=StringMatchVerification()), MAKE, extra_checks=("mine",))
    assert stages["coder"].checks == stages["qa"].checks == (*RAILS, "mine")
    assert "mine" not in leaves
    assert not stages["qa"].trusts


def test_a_promise_that_would_send_back_is_refused(project: Project) -> None:
    with pytest.raises(Refused, match="task T-1, stage coder: CHANGES_REQUESTED sends a task back"):
        built(project, task(coder=CompletionCriteria("changes_requested")))


def test_parts_that_wait_for_each_other_are_refused_and_not_waited_for() -> None:
    with pytest.raises(Refused, match="wait for each other: a, b"):
        plan_checks("x", multi(run("a", after=("b",)), run("b", after=("a",))))


def test_a_pipeline_is_the_same_each_time_it_is_drawn(project: Project) -> None:
    what = task(coder=multi(run("unit"), run("x")), qa=multi(run("unit"), VerificationPart("j", JUDGED)))
    one: Pipeline = build_task_pipeline(what, settings(project, MAKE), TEMPLATES)[0]
    assert build_task_pipeline(what, settings(project, MAKE), TEMPLATES)[0] == one
