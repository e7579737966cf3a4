"""The pipeline that a task goes through, and every check of it: from the task's own criteria, the settings, or both."""

from __future__ import annotations

from ralphproof.claim import ClaimRule, same_word
from ralphproof.config.keys import STAGES
from ralphproof.config.stage_final import final_leaves
from ralphproof.config.stage_guardrails import guardrail_inquiry
from ralphproof.config.stage_leaves import NOTHING_ASKED, Inquiry, Leaf, inquiry, method_of
from ralphproof.config.stage_templates import fitted, single_pass
from ralphproof.config.stage_ways import StageWay, way_of
from ralphproof.errors import Refused
from ralphproof.plan import EXTERNAL, MULTI_STAGE, REFUSAL, STRING_MATCH, Criteria, Custom, MultiStage, StringMatch
from ralphproof.stage import Pipeline, Stage
from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralphproof.config.load import Loaded
    from ralphproof.config.settings import Settings
    from ralphproof.plan import Task

EDITING = ("coder", "tester")  # their turns change files; those of the others are put back


@value
class Drawn:
    """A stage in the making. `own` is what it asks for itself, the guardrails aside."""

    name: str
    loops: bool
    criteria: Criteria
    way: StageWay
    own: Inquiry
    max_iterations: int

    def called(self, shared: frozenset[str]) -> Callable[[str], str]:
        """How its checks are called: with its own name before those that others have too."""
        return lambda name: f"{self.name}.{name}" if name in shared else name


def pipeline_for(
    task: Task,
    settings: Settings,
    templates: Mapping[str, str],
    places: Mapping[str, int] | None = None,
    skip: tuple[str, ...] = (),
    brought: tuple[str, ...] = (),
) -> tuple[Pipeline, dict[str, Leaf]]:
    """The stages of one task, less those to skip, and every check that they name.

    `templates` has the prompt of each stage, `places` the place of its agent where it has its own. Checks that a caller
    has `brought` along are asked as guardrails are, behind those. Raises Refused where the task, or the settings for
    it, ask for what cannot be.
    """
    names = tuple(name for name in STAGES if name not in skip)
    if not names:
        raise Refused(f"task {task.id}: every stage is skipped; nothing is left to do")
    own = Inquiry(tuple((Leaf(name, Custom("")),) for name in brought))
    rails = guardrail_inquiry(settings).plus(own)
    drawn = _told_apart(tuple(_drawn(task, settings, name) for name in names), rails)
    machine = rails.machine or bool(settings.final_checks) or any(one.own.machine for one in drawn)
    stages = []
    for number, one in enumerate(drawn):
        last = number == len(drawn) - 1
        asked, back = _asked(one, rails, drawn[:number] if last else None), _back(one, names)
        template = _template(one, task, templates[one.name], bool(back))
        made = replace(_stage(one, asked, back), template=template, place=(places or {}).get(one.name))
        stages.append(replace(made, trusts=not (last and machine)))
    leaves = (*rails.leaves, *(leaf for one in drawn for leaf in one.own.leaves))
    final = final_leaves(settings, leaves)
    stages[-1] = replace(stages[-1], final=tuple(leaf.name for leaf in final))
    leaves = (*leaves, *final)
    return Pipeline(tuple(stages)), {leaf.name: leaf for leaf in leaves if leaf.name not in brought}


def _stage(one: Drawn, asked: Inquiry, back: tuple[str, ...]) -> Stage:
    return Stage(
        name=one.name,
        claim=_claim(one, back),
        checks=asked.checks,
        max_iterations=one.max_iterations,
        edits=one.name in EDITING,
        looks=one.name not in EDITING,
        judges=asked.judges,
        together=asked.together,
        stops_early=one.own.checks if one.own.stops_early else (),
        back=back,
        describes=one.criteria.description,
        method=_method(one, asked),
    )


def task_iterations(loaded: Loaded) -> int:
    """How many iterations a task may use in all its stages: what somebody set, else what the user's caps allow."""
    settings = loaded.settings
    return settings.maximum_iterations if loaded.chosen("maximumIterations") else settings.caps.iterations


def _drawn(task: Task, settings: Settings, name: str) -> Drawn:
    own, loops = settings.pipeline.stage(name), settings.pipeline.loops(name)
    wanted = task.criteria_of(name) or Criteria(own.promise)
    if same_word(wanted.promise, REFUSAL):
        raise Refused(f"task {task.id}, stage {name}: {REFUSAL} sends a task back; give the promise another word")
    described = wanted.description or f"Complete the {name} stage for: {task.title or task.id}"
    criteria = replace(wanted, promise=wanted.promise or own.promise, description=described)
    way = way_of(task, criteria, own)
    return Drawn(
        name, loops, criteria, way, _inquiry(name, way, criteria.promise, loops),
        (wanted.max_iterations or own.max_iterations) if loops else 1,
    )  # fmt: skip


def _inquiry(name: str, way: StageWay, promise: str, loops: bool) -> Inquiry:
    """What a stage asks for itself. The promise alone is its claim, and no check; a single pass needs none at all."""
    if way.how is None or isinstance(way.how, StringMatch):
        return NOTHING_ASKED
    rule = ClaimRule(promise, "promise")
    asked = inquiry(f"{name}.{method_of(way.how)}", way.how).each(lambda leaf: replace(leaf, stage=name, rule=rule))
    return asked if loops else asked.only(leaf for leaf in asked.leaves if not isinstance(leaf.how, StringMatch))


def _told_apart(drawn: tuple[Drawn, ...], rails: Inquiry) -> tuple[Drawn, ...]:
    """Every check with a name of its own in the whole run: `qa.unit_tests` where others have `unit_tests` too."""
    given = [leaf.name for leaf in rails.leaves]
    every = [*given, *(name for one in drawn for name in {leaf.name for leaf in one.own.leaves})]
    shared = frozenset(name for name in every if every.count(name) > 1)
    taken = set(given)
    return tuple(replace(one, own=one.own.told_apart(taken, one.called(shared))) for one in drawn)


def _asked(one: Drawn, rails: Inquiry, earlier: tuple[Drawn, ...] | None) -> Inquiry:
    """What a stage asks: guardrails where it goes by them, then its own.

    The last one, which has `earlier` ones, asks the guardrails in any case, and whatever a machine can be asked of
    those that must have passed before: later turns may have broken it, and done means that all of it holds at once.
    """
    if earlier is None:
        return rails.plus(one.own) if one.way.guardrails else one.own
    again = NOTHING_ASKED
    for before in earlier:
        repeated = before.own.only(leaf for leaf in before.own.leaves if leaf.machine and leaf.required)
        again = again.plus(repeated.each(lambda leaf: replace(leaf, late=False)))
    return rails.plus(again).plus(one.own)


def _back(one: Drawn, names: tuple[str, ...]) -> tuple[str, ...]:
    """The stages that are gone through again where this one finds a fault: from the one that mends it, to itself."""
    earlier = names[: names.index(one.name)]
    mender = next((name for name in EDITING if name in earlier), None)
    return names[names.index(mender) : len(earlier) + 1] if one.loops and mender else ()


def _claim(one: Drawn, back: tuple[str, ...]) -> ClaimRule:
    return ClaimRule(one.criteria.promise, "promise", refusal=REFUSAL if back else None) if one.loops else ClaimRule()


def _template(one: Drawn, task: Task, template: str, goes_back: bool) -> str:
    lacking = {"acceptance_criteria": bool(task.acceptance), "refusal": goes_back, "title": bool(task.title)}
    missing = frozenset(name for name, there in lacking.items() if not there)
    return fitted(template, missing) if one.loops else single_pass(template, missing)


def _method(one: Drawn, asked: Inquiry) -> str:
    """How the work is verified, in one word: by all that is asked about it."""
    if isinstance(one.way.how, MultiStage):
        return MULTI_STAGE
    methods = {method_of(leaf.how) or EXTERNAL for leaf in asked.leaves}
    return methods.pop() if len(methods) == 1 else MULTI_STAGE if methods else STRING_MATCH
