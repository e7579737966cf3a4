"""The pipeline of a task: its stages, their prompt templates, how each is verified, and all of their checks."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from ralphproof.base.errors import Refused
from ralphproof.base.json_text import UnusableFile, decode_utf8, read_bounded_file
from ralphproof.base.value import replace, value
from ralphproof.checks.check_plan import (
    EMPTY_CHECK_PLAN,
    CheckPlan,
    CheckSpec,
    plan_checks,
    plan_final_checks,
    plan_guardrails,
    verification_method,
)
from ralphproof.checks.methods import STAGE_METHOD_KEYS, find_method_problems, has_default, parse_verification
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
    Task,
    Verification,
)
from ralphproof.settings.declarations import PIPELINE_STAGES, Settings, StageSettings
from ralphproof.settings.field_rules import suggest_name
from ralphproof.settings.loader import LoadedSettings

# Verification of a stage: the task's, else the settings', else the default of the method.


@value
class StageVerification:
    """The verification of a stage, and whether the guardrails run before it."""

    how: Verification | None = None
    guardrails: bool = False


def resolve_stage_verification(
    task: Task, criteria: CompletionCriteria, stage: str, own: StageSettings
) -> StageVerification:
    """How this stage of the task is verified; raises Refused if its method or config is invalid.

    A method without a config has a default: `external` runs the guardrails, `semantic` judges the task's acceptance
    criteria, `multi_stage` does both.
    """
    where = f"task {task.id}, stage {stage}"
    how = criteria.how
    if how is None and not own.verification_config and has_default(own.verification):
        return _default_verification(own.verification, SemanticVerification(task.acceptance))
    if how is None:
        if wrong := find_method_problems(
            own.verification, own.verification_config, f"stages.{stage}", STAGE_METHOD_KEYS, criteria.promise, task
        ):
            raise Refused("; ".join(f"{where}: {line}" for line in wrong))
        how = parse_verification(own.verification, own.verification_config, task)
    match how:
        case ExternalVerification(command="") | MultiStageVerification(parts=()):
            return _default_verification(verification_method(how), SemanticVerification(task.acceptance))
        case SemanticVerification(check_for=(), negative_patterns=()):
            return _default_verification(SEMANTIC, replace(how, check_for=task.acceptance))
        case _:
            return StageVerification(_with_acceptance_criteria(how, task, where))


def _default_verification(method: str, judge: SemanticVerification) -> StageVerification:
    """The default of a method without a config; without acceptance criteria to judge, only the promise remains."""
    judged = judge if judge.check_for and method in (SEMANTIC, MULTI_STAGE) else None
    return StageVerification(judged, method in (EXTERNAL, MULTI_STAGE))


def _with_acceptance_criteria(how: Verification, task: Task, where: str) -> Verification:
    """The verification, with the acceptance criteria for each judge that has no criteria of its own."""
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
        """A function that prefixes the stage's name to check names that other stages use too."""
        return lambda name: f"{self.name}.{name}" if name in shared else name


def build_task_pipeline(
    task: Task,
    settings: Settings,
    templates: Mapping[str, str],
    places: Mapping[str, int] | None = None,
    skip: tuple[str, ...] = (),
    extra_checks: tuple[str, ...] = (),
) -> tuple[Pipeline, dict[str, CheckSpec]]:
    """The stages of a task without those to skip, and every check that they name.

    `templates` has the prompt of each stage, `places` the index of its agent if it has its own. `extra_checks` are a
    caller's own checks, which run after the guardrails. Raises Refused if the task or its settings are inconsistent.
    """
    names = tuple(name for name in PIPELINE_STAGES if name not in skip)
    if not names:
        raise Refused(f"task {task.id}: every stage is skipped; nothing is left to do")
    extra_plan = CheckPlan(tuple((CheckSpec(name, CustomVerification("")),) for name in extra_checks))
    guardrails = plan_guardrails(settings).then(extra_plan)
    drafts = _qualify_check_names(tuple(_draft_stage(task, settings, name) for name in names), guardrails)
    mechanical = any(draft.own.has_mechanical for draft in drafts)
    machine = guardrails.has_mechanical or bool(settings.final_checks) or mechanical
    stages = []
    for number, draft in enumerate(drafts):
        last = number == len(drafts) - 1
        plan = _plan_stage_checks(draft, guardrails, drafts[:number] if last else None)
        back = _stages_to_repeat(draft, names)
        template = _stage_template(draft, task, templates[draft.name], bool(back))
        stage = replace(_build_stage(draft, plan, back), template=template, place=(places or {}).get(draft.name))
        stages.append(replace(stage, trusts=not (last and machine)))
    specs = (*guardrails.specs, *(spec for draft in drafts for spec in draft.own.specs))
    final = plan_final_checks(settings, specs)
    stages[-1] = replace(stages[-1], final=tuple(spec.name for spec in final))
    specs = (*specs, *final)
    return Pipeline(tuple(stages)), {spec.name: spec for spec in specs if spec.name not in extra_checks}


def _build_stage(draft: StageDraft, plan: CheckPlan, back: tuple[str, ...]) -> Stage:
    return Stage(
        name=draft.name,
        claim=_stage_claim(draft, back),
        checks=plan.checks,
        max_iterations=draft.max_iterations,
        edits=draft.name in EDITING_STAGES,
        looks=draft.name not in EDITING_STAGES,
        judges=plan.judges,
        together=plan.parallel_groups,
        stops_early=draft.own.checks if draft.own.stops_early else (),
        back=back,
        describes=draft.criteria.description,
        method=_stage_method(draft, plan),
    )


def max_task_iterations(loaded: LoadedSettings) -> int:
    """Iteration limit of a task over all stages: the setting if it was set, else the user's cap."""
    settings = loaded.settings
    return settings.maximum_iterations if loaded.chosen("maximumIterations") else settings.caps.iterations


def _draft_stage(task: Task, settings: Settings, name: str) -> StageDraft:
    own = settings.stages.by_name[name]
    loops = settings.pipeline.enabled and own.enabled
    wanted = task.criteria_for(name) or CompletionCriteria(own.promise)
    if is_same_word(wanted.promise, CHANGES_REQUESTED):
        raise Refused(
            f"task {task.id}, stage {name}: {CHANGES_REQUESTED} sends a task back; give the promise another word"
        )
    described = wanted.description or f"Complete the {name} stage for: {task.title or task.id}"
    criteria = replace(wanted, promise=wanted.promise or own.promise, description=described)
    way = resolve_stage_verification(task, criteria, name, own)
    return StageDraft(
        name, loops, criteria, way, _plan_own_checks(name, way, criteria.promise, loops),
        (wanted.max_iterations or own.max_iterations) if loops else 1,
    )  # fmt: skip


def _plan_own_checks(name: str, way: StageVerification, promise: str, loops: bool) -> CheckPlan:
    """The stage's own checks. A promise alone is a claim, not a check; a single-pass stage has no promise."""
    if way.how is None or isinstance(way.how, StringMatchVerification):
        return EMPTY_CHECK_PLAN
    rule = ClaimRule(promise, "promise")
    plan = plan_checks(f"{name}.{verification_method(way.how)}", way.how).map(
        lambda leaf: replace(leaf, stage=name, claim_rule=rule)
    )
    return (
        plan
        if loops
        else plan.keep_only(leaf for leaf in plan.specs if not isinstance(leaf.verification, StringMatchVerification))
    )


def _qualify_check_names(drafts: tuple[StageDraft, ...], guardrails: CheckPlan) -> tuple[StageDraft, ...]:
    """The drafts with check names that are unique in the run: `qa.unit_tests` if others have `unit_tests` too."""
    guardrail_names = [leaf.name for leaf in guardrails.specs]
    every = [*guardrail_names, *(name for one in drafts for name in {leaf.name for leaf in one.own.specs})]
    shared = frozenset(name for name in every if every.count(name) > 1)
    taken = set(guardrail_names)
    return tuple(replace(one, own=one.own.with_unique_names(taken, one.called(shared))) for one in drafts)


def _plan_stage_checks(draft: StageDraft, guardrails: CheckPlan, earlier: tuple[StageDraft, ...] | None) -> CheckPlan:
    """All checks of a stage: the guardrails if it uses them, then its own.

    The last stage (which gets `earlier`) always runs the guardrails, and repeats the required mechanical checks of
    earlier stages: later turns may have broken them, and all must hold at the same time.
    """
    if earlier is None:
        return guardrails.then(draft.own) if draft.way.guardrails else draft.own
    again = EMPTY_CHECK_PLAN
    for before in earlier:
        repeated = before.own.keep_only(leaf for leaf in before.own.specs if leaf.is_mechanical and leaf.required)
        again = again.then(repeated.map(lambda leaf: replace(leaf, late=False)))
    return guardrails.then(again).then(draft.own)


def _stages_to_repeat(draft: StageDraft, names: tuple[str, ...]) -> tuple[str, ...]:
    """The stages that run again if this one finds a fault: from the one that fixes it up to this one."""
    earlier = names[: names.index(draft.name)]
    mender = next((name for name in EDITING_STAGES if name in earlier), None)
    return names[names.index(mender) : len(earlier) + 1] if draft.loops and mender else ()


def _stage_claim(draft: StageDraft, back: tuple[str, ...]) -> ClaimRule:
    return (
        ClaimRule(draft.criteria.promise, "promise", refusal=CHANGES_REQUESTED if back else None)
        if draft.loops
        else ClaimRule()
    )


def _stage_template(draft: StageDraft, task: Task, template: str, goes_back: bool) -> str:
    lacking = {"acceptance_criteria": bool(task.acceptance), "refusal": goes_back, "title": bool(task.title)}
    missing = frozenset(name for name, there in lacking.items() if not there)
    return drop_empty_sections(template, missing) if draft.loops else single_pass_template(template, missing)


def _stage_method(draft: StageDraft, plan: CheckPlan) -> str:
    """The method that describes all checks of the stage in one word."""
    if isinstance(draft.way.how, MultiStageVerification):
        return MULTI_STAGE
    methods = {verification_method(leaf.verification) or EXTERNAL for leaf in plan.specs}
    return methods.pop() if len(methods) == 1 else MULTI_STAGE if methods else STRING_MATCH


# Prompt templates of the stages: packaged ones, and a project's own in their place.


TEMPLATES_FOLDER = ".ralph/templates"  # of a project
MAX_TEMPLATE_BYTES = 64 << 10
# Placeholders that a template may contain.
TEMPLATE_FIELDS = (
    "id", "spec", "title", "description", "outcome", "acceptance_criteria", "stage", "success_criteria",
    "verification_method", "promise", "refusal", "iteration", "max_iterations",
)  # fmt: skip
REQUIRED_FIELDS = ("title", "description")  # without them an agent does not know what to do
_TASK_FIELDS = frozenset((*REQUIRED_FIELDS, "outcome"))
_PLACEHOLDER = r"\{\{ *(\w+) *\}\}"
_BRACES = r"\{\{([^{}\n]{0,60})\}\}"
_PACKAGED_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "templates")


def load_stage_template(root: str, stage: str) -> str:
    """The template of a stage: the project's own, else the one that comes with the program.

    Raises Refused where the project's own cannot be used.
    """
    own = _read_project_template(root, stage)
    return _read_packaged_template(stage) if own is None else own


def load_stage_templates(root: str) -> dict[str, str]:
    """The template of every stage; raises Refused where one cannot be used."""
    return {stage: load_stage_template(root, stage) for stage in PIPELINE_STAGES}


def warn_about_templates(root: str) -> tuple[str, ...]:
    """A warning for each project template that lacks the placeholders of the task."""
    warnings: list[str] = []
    for stage in PIPELINE_STAGES:
        own = _read_project_template(root, stage)
        lacking = [] if own is None else [name for name in REQUIRED_FIELDS if name not in find_placeholders(own)]
        if lacking:
            fields = " and ".join(f"{{{{{name}}}}}" for name in lacking)
            warnings.append(f"{_template_path(stage)} has no {fields}: the {stage} is not told all of its task")
    return tuple(warnings)


def find_placeholders(template: str) -> frozenset[str]:
    """The field names of a template's placeholders."""
    return frozenset(re.findall(_PLACEHOLDER, template))


def drop_empty_sections(template: str, lacking: frozenset[str]) -> str:
    """The template without sections whose fields are empty.

    A section begins with `## `. One that also describes the task itself stays, with these fields left empty.
    """
    sections = re.split(r"(?m)^(?=## )", template)
    text = "".join(part for number, part in enumerate(sections) if number == 0 or not _is_empty_section(part, lacking))
    for name in lacking:  # a heading of nothing else goes with its place
        text = re.sub(rf"(?m)^(?:#+ *)?\{{\{{ *{name} *\}}\}} *\n*|\{{\{{ *{name} *\}}\}}", "", text)
    return text


def single_pass_template(template: str, lacking: frozenset[str]) -> str:
    """The template of a single-pass stage: without promise and counters."""
    text = drop_empty_sections(template, lacking | {"promise", "refusal", "iteration", "max_iterations"})
    return f"{text.rstrip()}\n\n{_read_packaged_template('single_pass')}"


def _is_empty_section(section: str, lacking: frozenset[str]) -> bool:
    places = find_placeholders(section)
    return bool(places & lacking) and not places & (_TASK_FIELDS - lacking)


def _read_packaged_template(name: str) -> str:
    with open(os.path.join(_PACKAGED_FOLDER, f"{name}.md"), encoding="utf-8") as file:
        return file.read()


def _template_path(stage: str) -> str:
    return f"{TEMPLATES_FOLDER}/{stage}.md"


def _read_project_template(root: str, stage: str) -> str | None:
    """The project's own template; None where it has none."""
    path = os.path.join(root, *_template_path(stage).split("/"))
    if not os.path.lexists(path):
        return None
    text = _read_template_file(path, os.path.realpath(root))
    if isinstance(text, str) and (unknown := _find_unknown_field(text)):
        text = UnusableFile(unknown)
    if isinstance(text, UnusableFile):
        raise Refused(f"{_template_path(stage)}: {text.why}")
    return text


def _read_template_file(path: str, root: str) -> str | UnusableFile | None:
    """The text of a file; a link that leads out of the project is refused."""
    if not os.path.realpath(path).startswith(os.path.join(root, "")):
        return UnusableFile("is a link that leads out of the project, and was not followed")
    data = read_bounded_file(path)
    if not isinstance(data, bytes):
        return data
    if len(data) > MAX_TEMPLATE_BYTES:
        return UnusableFile(f"is larger than {MAX_TEMPLATE_BYTES >> 10} KiB")
    if b"\0" in data:
        return UnusableFile("holds a NUL byte")
    text = decode_utf8(data)
    return (
        UnusableFile("is empty; write a template or remove it") if isinstance(text, str) and not text.strip() else text
    )


def _find_unknown_field(text: str) -> str:
    """Why a placeholder cannot be filled; empty if all can."""
    for match in re.finditer(_BRACES, text):
        if not re.fullmatch(_PLACEHOLDER, match[0]) or match[1].strip() not in TEMPLATE_FIELDS:
            line = text.count("\n", 0, match.start()) + 1
            known = suggest_name(match[1].strip(), TEMPLATE_FIELDS) or f"; there are: {', '.join(TEMPLATE_FIELDS)}"
            return f"line {line}: {match[0]} is no field of a template{known}"
    return ""
