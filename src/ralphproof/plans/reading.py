"""Tasks from a file that somebody wrote: one, a list, or the stories of a tasks.json."""

from __future__ import annotations

from ralphproof.plans.criteria import completion_problems
from ralphproof.plans.draft import Draft, bare
from ralphproof.plans.problems import TASK, label, strange
from ralphproof.plans.rules import nearest, of_table, shown
from ralphproof.plans.stories import stories_of
from ralphproof.plans.yaml_text import parsed
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_OTHER_NAMES = {"spec": "spec_id", "depends_on": "dependencies", "completion_spec": "completion"}
_KEPT = ("created_at", "updated_at", "iteration")  # what others keep of a task; ours is in its records


@value
class Reading:
    """One task of a file. Where its own fields are wrong there is no draft, and `problems` has all that is wrong.

    A draft's completion is looked at by `problems(draft)`.
    """

    draft: Draft | None
    name: str
    problems: tuple[str, ...] = ()


def read(data: bytes, name: str) -> tuple[Reading, ...]:
    """The tasks of a file, YAML or JSON; none where it is empty. Raises Refused where the text cannot be parsed."""
    found: list[Reading] = []
    for document in parsed(data, name):
        for raw, wrong in _raw(document):
            place = name if raw is None and wrong else f"task {len(found) + 1}"
            found.append(_reading(raw, wrong, place))
    return tuple(found)


def _raw(document: object) -> Iterator[tuple[object, tuple[str, ...]]]:
    """Each task as it was written, and what is wrong around it."""
    if isinstance(document, dict) and "userStories" in document:
        yield from stories_of(document)
    elif isinstance(document, dict) and ("task" in document or "tasks" in document):
        key = "task" if "task" in document else "tasks"
        yield from ((None, (line,)) for line in _beside(document, key))
        yield from _raw(document[key]) if key == "task" else _listed(document[key])
    elif isinstance(document, list):
        yield from _listed(document)
    elif document is not None:
        yield document, ()


def _listed(document: object) -> Iterator[tuple[object, tuple[str, ...]]]:
    if isinstance(document, list):
        yield from ((raw, ()) for raw in document)
    elif document is not None:
        yield None, (f"tasks must be a list, not {shown(document)}",)


def _beside(document: dict[str, object], key: str) -> Iterator[str]:
    for other in document:
        if other != key:
            yield f"unknown key {shown(other)[1:-1]} beside {key}{nearest(other, (key,))}"


def _reading(raw: object, wrong: tuple[str, ...], place: str) -> Reading:
    if not isinstance(raw, dict):
        found = wrong or (f"must be a mapping with id, title and completion, not {shown(raw)}",)
        return Reading(None, place, tuple(f"{place}: {line}" for line in found))
    fields, doubled = _renamed(raw)
    name = label(fields.get("id"), place)
    found = (*wrong, *doubled, *of_table(fields, "", TASK, ("id", "title")), *strange(fields, ""))
    if not found:
        return Reading(_draft(fields), name)
    completion = fields.get("completion")
    if isinstance(completion, dict):  # all at once; which methods plug-ins bring is not known here
        found += tuple(completion_problems(completion, bare(Draft("", completion=completion)), lambda _: True))
    return Reading(None, name, tuple(f"{name}: {line}" for line in dict.fromkeys(found)))


def _renamed(raw: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields under their one name, and where two names of a field disagree."""
    fields: dict[str, Any] = {}
    wrong: list[str] = []
    for name, inner in raw.items():
        own = _OTHER_NAMES.get(name, name)
        if fields.get(own) is not None and inner is not None and fields[own] != inner:
            other = next(other for other, one in _OTHER_NAMES.items() if one == own)
            wrong.append(f"{own} and {other} differ; give one")
        if fields.get(own) is None:
            fields[own] = inner
    kept = {name: fields.pop(name) for name in _KEPT if name in fields}
    kept = {name: inner for name, inner in kept.items() if inner is not None}
    if kept and isinstance(fields.get("metadata") or {}, dict):
        fields["metadata"] = {**kept, **(fields.get("metadata") or {})}
    return fields, tuple(wrong)


def _draft(fields: dict[str, Any]) -> Draft:
    given = {name: inner for name, inner in fields.items() if inner is not None}
    return Draft(**{**given, "dependencies": tuple(given.get("dependencies", ()))})
