"""What is wrong with a task's completion: outcome, acceptance criteria, and how each stage is verified."""

from __future__ import annotations

from ralphproof.claim import same_word
from ralphproof.plan import EXTERNAL, MULTI_STAGE, REFUSAL, SEMANTIC, STRING_MATCH
from ralphproof.plans import fields, templates
from ralphproof.plans.draft import STAGES
from ralphproof.plans.graph import circles
from ralphproof.plans.rules import (
    KIB,
    flag,
    inside,
    mapping,
    nearest,
    number,
    of_table,
    prose,
    shown,
    text,
    texts,
    whole,
)
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ralphproof.plan import Task
    from ralphproof.plans.rules import Rule

METHODS = (STRING_MATCH, EXTERNAL, SEMANTIC, MULTI_STAGE)
MOST_LEVELS = 5  # of stages within stages
MOST_STAGES = 100
MOST_ASKED = 200  # criteria of one judgement
MOST_TIMEOUT_S = 86_400
SENTENCE = text(2000, lines=True)
BLOCK_NAMES = ("verification_method", "verification_config", "verification_template")
PART_NAMES = ("method", "config", "template")


def _any(_: object) -> Iterator[str]:
    yield from ()  # looked at where the rest of its mapping is known


def _promise(data: object) -> Iterator[str]:
    yield from text(200)(data)
    if isinstance(data, str) and ("<" in data or ">" in data):
        yield f" may not hold < or >; the tags are put around it, so write the word alone, not {shown(data)}"
    if isinstance(data, str) and data.strip().casefold() == REFUSAL.casefold():
        yield f" may not be {REFUSAL}, which sends a task back; choose another word"


def _check_for(data: object) -> Iterator[str]:
    one = [data] if isinstance(data, str) else data
    wrong = list(texts(SENTENCE, 200)(one))
    yield from (fault.removeprefix("[0]") if isinstance(data, str) else fault for fault in wrong)
    for place, question in enumerate(one) if not wrong and isinstance(one, list) else ():
        where = "" if isinstance(data, str) else f"[{place}]"
        yield from (where + fault for fault in fields.unknown(question))


_COMPLETION: dict[str, Rule] = {
    "outcome": SENTENCE, "acceptance_criteria": texts(SENTENCE, 200, least=1), **dict.fromkeys(STAGES, _any),
}  # fmt: skip
_BLOCK: dict[str, Rule] = {
    "promise": _promise, "description": text(2000, blank=True, lines=True), "verification_method": _any,
    "verification_config": mapping, "max_iterations": whole(1, 1_000_000), "verification_template": _any, "with": _any,
}  # fmt: skip
_EXTERNAL: dict[str, Rule] = {
    "command": prose(100 * KIB), "success_exit_code": whole(0, 255), "output_contains": prose(100 * KIB, blank=True),
    "output_not_contains": prose(100 * KIB, blank=True), "timeout": number(MOST_TIMEOUT_S), "working_dir": inside,
}  # fmt: skip
_SEMANTIC: dict[str, Rule] = {
    "check_for": _check_for, "negative_patterns": texts(SENTENCE, 200), "model": text(200), "agent": text(200),
    "max_cost_usd": number(10_000), "timeout": number(MOST_TIMEOUT_S),
}  # fmt: skip
_MULTI_STAGE: dict[str, Rule] = {"stages": texts(_any, MOST_STAGES, least=1), "require_all": flag, "parallel": flag}
_PART: dict[str, Rule] = {
    "name": text(200), "method": _any, "config": mapping, "required": flag,
    "depends_on": texts(text(200), MOST_STAGES), "template": _any, "with": _any,
}  # fmt: skip


@value
class Scope:
    """What is known where a verification is looked at: its task, its stage's promise, and methods of plug-ins."""

    task: Task
    methods: Callable[[str], bool]
    promise: object = None
    level: int = 1


def completion_problems(completion: object, task: Task, methods: Callable[[str], bool]) -> Iterator[str]:
    """All that is wrong with a completion; each line names the path of a field."""
    if completion is None:
        yield "completion is missing; give an outcome and at least one acceptance criterion"
        return
    yield from of_table(completion, "completion", _COMPLETION, ("outcome", "acceptance_criteria"))
    blocks = completion if isinstance(completion, dict) else {}
    for stage in STAGES:
        if (block := blocks.get(stage)) is not None:
            path = f"completion.{stage}"
            yield from of_table(block, path, _BLOCK, ("promise",))
            if isinstance(block, dict):
                scope = Scope(task, methods, block.get("promise"))
                yield from _chosen(block, path, BLOCK_NAMES, scope, needed=False)


def _chosen(block: dict[str, Any], path: str, names: tuple[str, str, str], scope: Scope, needed: bool) -> Iterator[str]:
    """What is wrong with the way that a block chooses: by a method and its config, or by a template."""
    method, config, template = (block.get(name) for name in names)
    if template is not None:
        if method is not None or config is not None:
            yield f"{path}.{names[2]} stands for a method and its config; leave out {names[0]} and {names[1]}"
        wrong = list(templates.faults(template, given := block.get("with"), path, names[2]))
        yield from wrong
        if not wrong and isinstance(template, str) and (given is None or isinstance(given, dict)):
            yield from way_problems(*templates.expanded(template, given), path, scope, names)
        return
    if block.get("with") is not None:
        yield f"{path}.with belongs to a template; name it in {path}.{names[2]}"
    if method is None and (needed or config):
        yield f"{path}.{names[0]} is missing"
    elif method is not None:
        yield from way_problems(method, config, path, scope, names)


def way_problems(
    method: object, config: object, path: str, scope: Scope, names: tuple[str, str, str] = BLOCK_NAMES
) -> Iterator[str]:
    """What is wrong with a method and its config; `names` are the keys under which `path` has them."""
    where = f"{path}.{names[1]}"
    if config is not None and not isinstance(config, dict):
        return  # said already
    match method:
        case "string_match":
            yield from _string_match(config or {}, where, scope)
        case "external":
            yield from _external(config or {}, where, scope)
        case "semantic":
            yield from of_table(config or {}, where, _SEMANTIC)
            named = any((config or {}).get(key) not in (None, []) for key in ("check_for", "negative_patterns"))
            if not named and not scope.task.acceptance:  # those stand in
                yield f"{where} needs check_for or negative_patterns"
            if (count := len(fields.asked((config or {}).get("check_for"), scope.task))) > MOST_ASKED:
                yield f"{where}.check_for asks for {count} criteria with those of the task; at most {MOST_ASKED}"
        case "multi_stage":
            yield from _multi_stage(config or {}, where, scope)
        case str() if scope.methods(method):
            pass
        case _:
            near = nearest(method, METHODS) if isinstance(method, str) else ""
            yield f"{path}.{names[0]} must be one of {', '.join(METHODS)}, or installed; not {shown(method)}{near}"


def _string_match(config: dict[str, object], path: str, scope: Scope) -> Iterator[str]:
    yield from of_table(config, path, {"promise": _promise})
    word, promise = config.get("promise"), scope.promise
    if isinstance(word, str) and isinstance(promise, str) and not same_word(word, promise):
        yield f"{path}.promise is {shown(word)}, and the stage's promise {shown(promise)}; leave it out here"


def _external(config: dict[str, object], path: str, scope: Scope) -> Iterator[str]:
    yield from of_table(config, path, _EXTERNAL, ("command",))
    command = config.get("command")
    if not isinstance(command, str):
        return
    for field in fields.left_out(scope.task, command):
        yield f"{path}.command uses {{{{{field}}}}}, which is too long for a variable (100 KiB)"
    for field in fields.unclear(command):
        yield (
            f"{path}.command has {{{{{field}}}}} where it cannot be quoted safely; "
            f"write the variable ${fields.VARIABLES[field]} there, quoted as any variable"
        )


def _multi_stage(config: dict[str, object], path: str, scope: Scope) -> Iterator[str]:
    yield from of_table(config, path, _MULTI_STAGE, ("stages",))
    stages = config.get("stages")
    if not isinstance(stages, list) or not stages or len(stages) > MOST_STAGES:
        return
    if scope.level > MOST_LEVELS:
        yield f"{path}.stages is nested more than {MOST_LEVELS} deep"
        return
    for place, part in enumerate(stages):
        where = f"{path}.stages[{place}]"
        yield from of_table(part, where, _PART, ("name",))
        if isinstance(part, dict):
            inner = Scope(scope.task, scope.methods, scope.promise, scope.level + 1)
            yield from _chosen(part, where, PART_NAMES, inner, needed=True)
    parts = [part for part in stages if isinstance(part, dict)]
    if parts and all(part.get("required") is False for part in parts):
        yield f"{path}.stages: no stage is required, so nothing would be verified"
    yield from _order(stages, f"{path}.stages")


def _order(stages: list[object], path: str) -> Iterator[str]:
    """What is wrong with the names of stages, and with who waits for whom."""
    edges: dict[str, tuple[str, ...]] = {}
    for place, part in enumerate(stages):
        name = part.get("name") if isinstance(part, dict) else None
        if isinstance(part, dict) and isinstance(name, str):
            if name in edges:
                yield f"{path}[{place}].name: another stage is named {shown(name)}"
            after = part.get("depends_on")
            edges[name] = tuple(one for one in after if isinstance(one, str)) if isinstance(after, list) else ()
    for place, part in enumerate(stages):
        after = part.get("depends_on") if isinstance(part, dict) else None
        for spot, one in enumerate(after) if isinstance(after, list) else ():
            if isinstance(one, str) and one not in edges:
                yield f"{path}[{place}].depends_on[{spot}]: no stage is named {shown(one)}{nearest(one, edges)}"
    for circle in circles(edges):
        yield f"{path}: depends_on goes in a circle: {' -> '.join(circle)}"
