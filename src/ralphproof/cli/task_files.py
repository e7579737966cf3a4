"""Files of tasks: read, and sorted into what can be kept and what cannot."""

from __future__ import annotations

from ralphproof.cli.standard_input import read_bytes
from ralphproof.cli.task_store import wrong_with
from ralphproof.errors import Refused
from ralphproof.plans.graph import circles, tangles
from ralphproof.plans.reading import read
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralphproof.plans.draft import Draft
    from ralphproof.plans.reading import Reading

STDIN = "-"
MOST_BYTES = 64 << 20


@value
class SortedOut:
    """The tasks of some files: those with nothing wrong, and all that is wrong with the others."""

    good: tuple[Draft, ...]
    problems: tuple[str, ...]


@value
class TaskEntry:
    """A task of a file."""

    file: str
    reading: Reading


def entries(names: Iterable[str]) -> tuple[TaskEntry, ...]:
    """All tasks in these files; - is standard input. Raises Refused for a file that cannot be read."""
    return tuple(entry for name in names for entry in _read(name))


def _read(name: str) -> tuple[TaskEntry, ...]:
    shown = "standard input" if name == STDIN else name
    too_much = f"{shown} has more than {MOST_BYTES >> 20} MiB; tasks of this size are a mistake"
    if name == STDIN:
        data = read_bytes(STDIN, MOST_BYTES, too_much)
    else:
        try:
            with open(name, "rb") as source:
                data = source.read(MOST_BYTES + 1)
        except OSError as error:
            raise Refused(f"cannot read {shown}: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise Refused(too_much)
    return tuple(TaskEntry(shown, reading) for reading in read(data, shown))


def sorted_out(found: tuple[TaskEntry, ...], known: Mapping[str, tuple[str, ...]], update: bool) -> SortedOut:
    """Tell good from bad. One that depends on a bad one is bad; `update` says that known ones may come again."""
    problems: list[str] = []
    good: dict[str, Draft] = {}
    ids = _counted(found)
    for entry in found:
        draft, wrong = entry.reading.draft, list(entry.reading.problems)
        if draft:
            wrong += wrong_with(draft)
            wrong += [f"{draft.id}: the id is given {ids[draft.id]} times"] if ids[draft.id] > 1 else []
            taken = draft.id in known and not update
            wrong += [f"{draft.id}: there is a task of this id already; --update changes it"] if taken else []
        problems += [f"{entry.file}: {line}" for line in dict.fromkeys(wrong)]
        if draft and not wrong:
            good[draft.id] = draft
    while lost := _lost(good, known, ids):
        problems += [line for lines in lost.values() for line in lines]
        for id in lost:
            del good[id]
    return SortedOut(tuple(good.values()), tuple(problems))


def _counted(found: tuple[TaskEntry, ...]) -> dict[str, int]:
    """How often each id is given."""
    counts: dict[str, int] = {}
    for draft in (entry.reading.draft for entry in found):
        if draft:
            counts[draft.id] = counts.get(draft.id, 0) + 1
    return counts


def _lost(
    good: dict[str, Draft], known: Mapping[str, tuple[str, ...]], given: Mapping[str, int]
) -> dict[str, list[str]]:  # fmt: skip
    """Those that depend on nothing that there is, or on themselves, and what is wrong with each."""
    names = {*known, *good}
    lost = [draft for draft in good.values() if not names.issuperset(draft.dependencies)]
    if lost:
        every = dict.fromkeys((*names, *given), ())
        return {draft.id: [*_unfit(draft, names, given), *tangles((draft,), every)] for draft in lost}
    edges = {**known, **{id: draft.dependencies for id, draft in good.items()}}
    around = {id: circle for circle in circles(edges) for id in circle if id in good}
    return {id: [f"{id}: dependencies go in a circle: {' -> '.join(circle)}"] for id, circle in around.items()}


def _unfit(draft: Draft, names: set[str], given: Mapping[str, int]) -> list[str]:
    bad = [id for id in dict.fromkeys(draft.dependencies) if id in given and id not in names]
    return [f"{draft.id}: it depends on {id}, which is not valid" for id in bad]
