"""The pipeline that a task goes through: its stages, how each is verified, and every check of them."""

from __future__ import annotations

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.checks.check_plan import (
    EMPTY_CHECK_PLAN,
    CheckPlan,
    CheckSpec,
    plan_checks,
    plan_final_checks,
    plan_guardrails,
    verification_method,
)
from ralphproof.engine.claim import ClaimRule, is_same_word
from ralphproof.engine.plan import (
    CHANGES_REQUESTED,
    EXTERNAL,
    MULTI_STAGE,
    SEMANTIC,
    STRING_MATCH,
    CompletionCriteria,
    CustomVerification,
    ExternalVerification,
    MultiStageVerification,
    Pipeline,
    SemanticVerification,
    Stage,
    StringMatchVerification,
)
from ralphproof.settings.schema import PIPELINE_STAGES, VERIFICATION_METHODS
from ralphproof.settings.verification import STAGE_METHOD_KEYS, find_method_problems, parse_verification
from ralphproof.tasks.stage_prompts import drop_empty_sections, single_pass_template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralphproof.engine.plan import Task, Verification
    from ralphproof.settings.loader import LoadedSettings
    from ralphproof.settings.model import Settings, StageSettings


# Verification of a stage: the task's, else the settings', else the default of the method.


@value
class StageVerification:
    """The verification of a stage, and whether the guardrails run before it."""

    how: Verification | None = None
    guardrails: bool = False


def resolve_stage_verification(task: Task, criteria: CompletionCriteria, own: StageSettings) -> StageVerification:
    """How this stage of the task is verified; raises Refused where that cannot be.

    A method that is told nothing has its usual meaning: `external` asks the guardrails, `semantic` judges the task's
    acceptance criteria, `multi_stage` does both.
    """
    where = f"task {task.id}, stage {own.name}"
    how = criteria.how
    if how is None and not own.config and own.method in VERIFICATION_METHODS:
        return _default_verification(own.method, SemanticVerification(task.acceptance))
    if how is None:
        if wrong := find_method_problems(
            own.method, own.config, f"stages.{own.name}", STAGE_METHOD_KEYS, criteria.promise, task
        ):
            raise Refused("; ".join(f"{where}: {line}" for line in wrong))
        how = parse_verification(own.method, own.config, task)
    match how:
        case ExternalVerification(command="") | MultiStageVerification(parts=()):
            return _default_verification(verification_method(how), SemanticVerification(task.acceptance))
        case SemanticVerification(check_for=(), negative_patterns=()):
            return _default_verification(SEMANTIC, replace(how, check_for=task.acceptance))
        case _:
            return StageVerification(_with_acceptance_criteria(how, task, where))


def _default_verification(method: str, judge: SemanticVerification) -> StageVerification:
    """What a method means that is told nothing; where there is nothing to judge either, the promise alone is left."""
    judged = judge if judge.check_for and method in (SEMANTIC, MULTI_STAGE) else None
    return StageVerification(judged, method in (EXTERNAL, MULTI_STAGE))


def _with_acceptance_criteria(how: Verification, task: Task, where: str) -> Verification:
    """The same, where a judge that is told nothing goes by the acceptance criteria."""
    match how:
        case MultiStageVerification(parts):
            whole = (
                replace(part, how=_with_acceptance_criteria(part.how, task, f"{where}, {part.name}")) for part in parts
            )
            return replace(how, parts=tuple(whole))
        case SemanticVerification(check_for=(), negative_patterns=()):
            if not task.acceptance:
                raise Refused(f"{where}: nothing is to be judged; give it check_for, or the task acceptance criteria")
            return replace(how, check_for=task.acceptance)
        case _:
            return how


# The pipeline and its checks, from the task's criteria and the settings.


EDITING_STAGES = ("coder", "tester")  # their turns change files; those of the others are put back


@value
class StageDraft:
    """A stage that is being built. `own` are its checks without the guardrails."""

    name: str
    loops: bool
    criteria: CompletionCriteria
    way: StageVerification
    own: CheckPlan
    max_iterations: int

    def called(self, shared: frozenset[str]) -> Callable[[str], str]:
        """How its checks are called: with its own name before those that others have too."""
        return lambda name: f"{self.name}.{name}" if name in shared else name


def build_task_pipeline(
    task: Task,
    settings: Settings,
    templates: Mapping[str, str],
    places: Mapping[str, int] | None = None,
    skip: tuple[str, ...] = (),
    brought: tuple[str, ...] = (),
) -> tuple[Pipeline, dict[str, CheckSpec]]:
    """The stages of one task, less those to skip, and every check that they name.

    `templates` has the prompt of each stage, `places` the place of its agent where it has its own. Checks that a caller
    has `brought` along are asked as guardrails are, behind those. Raises Refused where the task, or the settings for
    it, ask for what cannot be.
    """
    names = tuple(name for name in PIPELINE_STAGES if name not in skip)
    if not names:
        raise Refused(f"task {task.id}: every stage is skipped; nothing is left to do")
    own = CheckPlan(tuple((CheckSpec(name, CustomVerification("")),) for name in brought))
    rails = plan_guardrails(settings).then(own)
    drawn = _qualify_check_names(tuple(_draft_stage(task, settings, name) for name in names), rails)
    machine = rails.has_mechanical or bool(settings.final_checks) or any(one.own.has_mechanical for one in drawn)
    stages = []
    for number, one in enumerate(drawn):
        last = number == len(drawn) - 1
        asked, back = _plan_stage_checks(one, rails, drawn[:number] if last else None), _stages_to_repeat(one, names)
        template = _stage_template(one, task, templates[one.name], bool(back))
        made = replace(_build_stage(one, asked, back), template=template, place=(places or {}).get(one.name))
        stages.append(replace(made, trusts=not (last and machine)))
    leaves = (*rails.specs, *(leaf for one in drawn for leaf in one.own.specs))
    final = plan_final_checks(settings, leaves)
    stages[-1] = replace(stages[-1], final=tuple(leaf.name for leaf in final))
    leaves = (*leaves, *final)
    return Pipeline(tuple(stages)), {leaf.name: leaf for leaf in leaves if leaf.name not in brought}


def _build_stage(one: StageDraft, asked: CheckPlan, back: tuple[str, ...]) -> Stage:
    return Stage(
        name=one.name,
        claim=_stage_claim(one, back),
        checks=asked.checks,
        max_iterations=one.max_iterations,
        edits=one.name in EDITING_STAGES,
        looks=one.name not in EDITING_STAGES,
        judges=asked.judges,
        together=asked.parallel_groups,
        stops_early=one.own.checks if one.own.stops_early else (),
        back=back,
        describes=one.criteria.description,
        method=_stage_method(one, asked),
    )


def max_task_iterations(loaded: LoadedSettings) -> int:
    """How many iterations a task may use in all its stages: what somebody set, else what the user's caps allow."""
    settings = loaded.settings
    return settings.maximum_iterations if loaded.chosen("maximumIterations") else settings.caps.iterations


def _draft_stage(task: Task, settings: Settings, name: str) -> StageDraft:
    own, loops = settings.pipeline.stage(name), settings.pipeline.loops(name)
    wanted = task.criteria_for(name) or CompletionCriteria(own.promise)
    if is_same_word(wanted.promise, CHANGES_REQUESTED):
        raise Refused(
            f"task {task.id}, stage {name}: {CHANGES_REQUESTED} sends a task back; give the promise another word"
        )
    described = wanted.description or f"Complete the {name} stage for: {task.title or task.id}"
    criteria = replace(wanted, promise=wanted.promise or own.promise, description=described)
    way = resolve_stage_verification(task, criteria, own)
    return StageDraft(
        name, loops, criteria, way, _plan_own_checks(name, way, criteria.promise, loops),
        (wanted.max_iterations or own.max_iterations) if loops else 1,
    )  # fmt: skip


def _plan_own_checks(name: str, way: StageVerification, promise: str, loops: bool) -> CheckPlan:
    """What a stage asks for itself. The promise alone is its claim, and no check; a single pass needs none at all."""
    if way.how is None or isinstance(way.how, StringMatchVerification):
        return EMPTY_CHECK_PLAN
    rule = ClaimRule(promise, "promise")
    asked = plan_checks(f"{name}.{verification_method(way.how)}", way.how).map(
        lambda leaf: replace(leaf, stage=name, claim_rule=rule)
    )
    return (
        asked
        if loops
        else asked.keep_only(leaf for leaf in asked.specs if not isinstance(leaf.verification, StringMatchVerification))
    )


def _qualify_check_names(drawn: tuple[StageDraft, ...], rails: CheckPlan) -> tuple[StageDraft, ...]:
    """Every check with a name of its own in the whole run: `qa.unit_tests` where others have `unit_tests` too."""
    given = [leaf.name for leaf in rails.specs]
    every = [*given, *(name for one in drawn for name in {leaf.name for leaf in one.own.specs})]
    shared = frozenset(name for name in every if every.count(name) > 1)
    taken = set(given)
    return tuple(replace(one, own=one.own.with_unique_names(taken, one.called(shared))) for one in drawn)


def _plan_stage_checks(one: StageDraft, rails: CheckPlan, earlier: tuple[StageDraft, ...] | None) -> CheckPlan:
    """What a stage asks: guardrails where it goes by them, then its own.

    The last one, which has `earlier` ones, asks the guardrails in any case, and whatever a machine can be asked of
    those that must have passed before: later turns may have broken it, and done means that all of it holds at once.
    """
    if earlier is None:
        return rails.then(one.own) if one.way.guardrails else one.own
    again = EMPTY_CHECK_PLAN
    for before in earlier:
        repeated = before.own.keep_only(leaf for leaf in before.own.specs if leaf.is_mechanical and leaf.required)
        again = again.then(repeated.map(lambda leaf: replace(leaf, late=False)))
    return rails.then(again).then(one.own)


def _stages_to_repeat(one: StageDraft, names: tuple[str, ...]) -> tuple[str, ...]:
    """The stages that are gone through again where this one finds a fault: from the one that mends it, to itself."""
    earlier = names[: names.index(one.name)]
    mender = next((name for name in EDITING_STAGES if name in earlier), None)
    return names[names.index(mender) : len(earlier) + 1] if one.loops and mender else ()


def _stage_claim(one: StageDraft, back: tuple[str, ...]) -> ClaimRule:
    return (
        ClaimRule(one.criteria.promise, "promise", refusal=CHANGES_REQUESTED if back else None)
        if one.loops
        else ClaimRule()
    )


def _stage_template(one: StageDraft, task: Task, template: str, goes_back: bool) -> str:
    lacking = {"acceptance_criteria": bool(task.acceptance), "refusal": goes_back, "title": bool(task.title)}
    missing = frozenset(name for name, there in lacking.items() if not there)
    return drop_empty_sections(template, missing) if one.loops else single_pass_template(template, missing)


def _stage_method(one: StageDraft, asked: CheckPlan) -> str:
    """How the work is verified, in one word: by all that is asked about it."""
    if isinstance(one.way.how, MultiStageVerification):
        return MULTI_STAGE
    methods = {verification_method(leaf.verification) or EXTERNAL for leaf in asked.specs}
    return methods.pop() if len(methods) == 1 else MULTI_STAGE if methods else STRING_MATCH
