"""All that is wrong with one task, and what is allowed and yet worth a warning."""

from __future__ import annotations

import re

from ralphproof.plan import STRING_MATCH
from ralphproof.plans.criteria import completion_problems
from ralphproof.plans.draft import STAGES, STATUSES, bare, data_of
from ralphproof.plans.rules import (
    KIB,
    MOST_KEY_CHARS,
    choice,
    mapping,
    of_table,
    prose,
    shown,
    text,
    texts,
    unfit,
    whole,
)
from ralphproof.plans.yaml_tree import Odd
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralphproof.plans.draft import Draft
    from ralphproof.plans.rules import Rule

_ID = text(200)
_LINE = text(200, blank=True)
_VAGUE = (
    r"(?i)^\W*(improve|enhance|optimi[sz]e|clean up)\b(?!.*\d)",
    r"(?i)\bworks? (well|fine|correctly|properly|as expected)\b",
)


def _id(data: object) -> Iterator[str]:
    yield from _ID(data)
    if isinstance(data, str) and data.strip() and data != data.strip():
        yield f" has blanks around it: {shown(data)}"


def _metadata(data: object) -> Iterator[str]:
    import json

    yield from mapping(data)
    if isinstance(data, dict) and len(json.dumps(data, default=str)) > KIB * KIB:
        yield " has more than 1024 KiB"


TASK: dict[str, Rule] = {
    "id": _id, "spec_id": _LINE, "title": text(500), "description": prose(KIB * KIB, blank=True),
    "priority": whole(-(2**31), 2**31 - 1), "dependencies": texts(_id, 1000), "status": choice(*STATUSES),
    "assignee": _LINE, "metadata": _metadata, "completion": mapping,
}  # fmt: skip


def no_plug_ins(_: str) -> bool:
    """Only the four methods are known."""
    return False


def problems(draft: Draft, methods: Callable[[str], bool] = no_plug_ins) -> tuple[str, ...]:
    """Everything that is wrong with a task, each in one line; none where it may be created and run."""
    data = data_of(draft)
    found = (
        *of_table(data, "", TASK, ("id", "title")),
        *strange(data, ""),
        *completion_problems(draft.completion, bare(draft), methods),
    )
    return tuple(f"{label(draft.id)}: {line}" for line in dict.fromkeys(found))


def label(name: object, otherwise: str = "task") -> str:
    """What a task is called in a message."""
    return name if isinstance(name, str) and not list(_id(name)) else otherwise


def strange(data: object, path: str) -> Iterator[str]:
    """What in a value neither JSON nor a file can hold, wherever it stands."""
    if isinstance(data, Odd):
        yield f"{path} is {data.what}: {data.text}; put it in quotes"
    elif isinstance(data, str) and (found := unfit(data)):
        yield f"{path} holds {found}"
    elif isinstance(data, list):
        for place, inner in enumerate(data):
            yield from strange(inner, f"{path}[{place}]")
    elif isinstance(data, dict):
        for name, inner in data.items():
            if unfit(name) or len(name) > MOST_KEY_CHARS:
                why = f"holds {unfit(name)}" if unfit(name) else f"is longer than {MOST_KEY_CHARS} characters"
                yield f"{path or 'the task'} has a key that {why}: {shown(name)}"
            else:
                yield from strange(inner, f"{path}.{name}" if path else name)


def remarks(draft: Draft) -> tuple[str, ...]:
    """What may stand so, and may not be meant so, each in one line."""
    completion, outcome = draft.completion or {}, bare(draft).outcome
    found = []
    if outcome and (len(outcome.split()) < 3 or any(re.search(pattern, outcome) for pattern in _VAGUE)):
        found.append(f"completion.outcome is hard to measure: {shown(outcome)}; say what a machine could see")
    for stage in STAGES:
        block = completion.get(stage)
        if isinstance(block, dict) and block.get("verification_method") == STRING_MATCH:
            found.append(f"completion.{stage} is verified by its promise alone, which is the agent's own word")
    return tuple(f"{label(draft.id)}: {line}" for line in found)
