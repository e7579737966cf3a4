"""How one stage of a task is verified: as the task says, else the settings; what neither says has a usual meaning."""

from __future__ import annotations

from ralphproof.config.keys import VERIFICATION
from ralphproof.config.methods import STAGE_NAMES, problems
from ralphproof.config.stage_leaves import method_of
from ralphproof.errors import Refused
from ralphproof.plan import EXTERNAL, MULTI_STAGE, SEMANTIC, External, MultiStage, Semantic
from ralphproof.plans.task import way
from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from ralphproof.config.settings import StageSettings
    from ralphproof.plan import Criteria, Task, Verification


@value
class StageWay:
    """How a stage is verified, and whether the repository's guardrails are asked before that."""

    how: Verification | None = None
    guardrails: bool = False


def way_of(task: Task, criteria: Criteria, own: StageSettings) -> StageWay:
    """How this stage of the task is verified; raises Refused where that cannot be.

    A method that is told nothing has its usual meaning: `external` asks the guardrails, `semantic` judges the task's
    acceptance criteria, `multi_stage` does both.
    """
    where = f"task {task.id}, stage {own.name}"
    how = criteria.how
    if how is None and not own.config and own.method in VERIFICATION:
        return _usual(own.method, Semantic(task.acceptance))
    if how is None:
        if wrong := problems(own.method, own.config, f"stages.{own.name}", STAGE_NAMES, criteria.promise, task):
            raise Refused("; ".join(f"{where}: {line}" for line in wrong))
        how = way(own.method, own.config, task)
    match how:
        case External(command="") | MultiStage(parts=()):
            return _usual(method_of(how), Semantic(task.acceptance))
        case Semantic(check_for=(), negative_patterns=()):
            return _usual(SEMANTIC, replace(how, check_for=task.acceptance))
        case _:
            return StageWay(_completed(how, task, where))


def _usual(method: str, judge: Semantic) -> StageWay:
    """What a method means that is told nothing; where there is nothing to judge either, the promise alone is left."""
    judged = judge if judge.check_for and method in (SEMANTIC, MULTI_STAGE) else None
    return StageWay(judged, method in (EXTERNAL, MULTI_STAGE))


def _completed(how: Verification, task: Task, where: str) -> Verification:
    """The same, where a judge that is told nothing goes by the acceptance criteria."""
    match how:
        case MultiStage(parts):
            whole = (replace(part, how=_completed(part.how, task, f"{where}, {part.name}")) for part in parts)
            return replace(how, parts=tuple(whole))
        case Semantic(check_for=(), negative_patterns=()):
            if not task.acceptance:
                raise Refused(f"{where}: nothing is to be judged; give it check_for, or the task acceptance criteria")
            return replace(how, check_for=task.acceptance)
        case _:
            return how
