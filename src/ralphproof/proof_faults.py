"""Whether a proof is one that a run made, and nobody changed a part of it: seen from the proof alone."""

from __future__ import annotations

from ralphproof import record as told
from ralphproof.errors import LedgerBroken
from ralphproof.proof_shape import as_json, bound, digest_of, misshapen, object_in, objects_in, places_in
from ralphproof.testimony import record_in, testimony
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ralphproof.value import Json

    Exhibits = dict[int, tuple[float, told.Record]]

IN_PART = ("task", "subject", "settings", "versions")  # the repository and the machine tell the rest
SAVES = ("Saved", "Joined", "Regained", "ScmEnded")
FROM_ALL = ("tampering", "integrity")  # are read from all records of the evidence together


def faults(proof: dict[str, Json]) -> tuple[str, ...]:
    """Why this is no proof that a run made, in sentences: its form, its digests, or fields that its evidence denies.

    Nothing here says that the work is good: only that nobody changed a part of the proof, and not the rest of it.
    """
    wrong = misshapen(proof)
    if wrong:
        return wrong
    if proof["digest"] != digest_of(proof):
        return ("it was changed: its digest is not that of its content",)
    return tuple(_unbound(proof)) or tuple(_denied(proof))


def _unbound(proof: dict[str, Json]) -> Iterator[str]:
    """Where the evidence is not what the chain of records is made of."""
    records = object_in(proof, "records")
    chain: Any = records["chain"]
    if records["count"] != len(chain) or records["last"] != (chain[-1][5] if chain else ""):
        yield "the chain of records has lost its end"
    if object_in(proof, "outcome")["status"] == "COMPLETED" and (not chain or chain[-1][3] != "RunEnded"):
        yield "the run is said to be completed, and the chain of its records does not end with its end"
    for place, data in sorted(object_in(records, "evidence").items(), key=lambda item: int(item[0])):
        at = int(place)
        *row, digest = chain[at]
        if bound(chain[at - 1][5] if at else "", (proof["run"], *row, data)) != digest:
            yield f"record {at + 1} of the chain ({row[2][:60]}) is not the one that its digest is of"


def _denied(proof: dict[str, Json]) -> Iterator[str]:
    """Fields that say something else than the evidence."""
    records = object_in(proof, "records")
    chain: Any = records["chain"]
    try:
        exhibits = {
            int(place): (float(chain[int(place)][4]), record_in(str(data), f"record {place}"))
            for place, data in object_in(records, "evidence").items()
        }
        lacking = (*_lacking(proof, exhibits), *_another_subject(proof, exhibits))
        found = as_json(testimony(exhibits))
    except (LedgerBroken, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError):
        yield "a record of its evidence cannot be read"
        return
    yield from lacking
    if isinstance(found, dict):
        yield from _contradicted(proof, found, bool(records["withheld"]))


def _lacking(proof: dict[str, Json], exhibits: Exhibits) -> list[str]:
    """The records that must be shown, and are not: the ends of the run, and all checks of the last look."""
    records = object_in(proof, "records")
    chain: Any = records["chain"]
    kinds = {row[3]: place for place, row in enumerate(chain)}  # of each the last one
    judged = {row[0] for row in chain if row[3] == "Judged"}
    asked = {place: row[0] for place, row in enumerate(chain) if row[3] == "CheckEnded"}
    last = max((number for number in asked.values() if number in judged), default=0)
    wanted = {kinds.get(kind, 0) for kind in ("RunBegan", "RunEnded", "Judged")}
    wanted |= {place for place, number in asked.items() if number in (0, last)}
    there = {*exhibits, *places_in(records["withheld"])}
    return [f"record {place + 1} of the chain is not shown" for place in sorted(wanted - there)]


def _contradicted(proof: dict[str, Json], found: dict[str, Json], partly: bool) -> Iterator[str]:
    """Where a part of the evidence is withheld, what is read from all of it cannot be compared."""
    for name, said in found.items():
        given = proof[name]
        if partly and name in FROM_ALL:
            continue
        if partly and name == "checks":
            yield from _other_checks(objects_in(given), objects_in(said))
        elif not (_holds(given, said) if name in IN_PART or partly else _same(given, said)):
            yield f"{name} is not what the records say"


def _same(given: Json, said: Json) -> bool:
    """Whether both are written alike: in JSON, true is not 1."""
    import json

    return json.dumps(given, sort_keys=True) == json.dumps(said, sort_keys=True)


def _holds(given: Json, said: Json) -> bool:
    """Whether an object says what the evidence does, which need not tell all of it."""
    if isinstance(given, dict) and isinstance(said, dict):
        return all(name in given and _same(given[name], item) for name, item in said.items())
    return _same(given, said)


def _other_checks(given: list[dict[str, Json]], said: list[dict[str, Json]]) -> Iterator[str]:
    """A check of which no record is shown must be one that is withheld."""
    known = {str(check["name"]): check for check in said}
    for check in given:
        name = str(check["name"])
        told_of_it = known.pop(name, None)
        if told_of_it is None and not check.get("withheld"):
            yield f"no record tells of the check {name[:100]!r}"
        elif told_of_it is not None and not _same(_alone(check), _alone(told_of_it)):
            yield f"check {name[:100]!r} is not what the records say"
    yield from (f"the check {name[:100]!r} is missing, of which the records tell" for name in known)


def _alone(check: dict[str, Json]) -> Json:
    """A check without what was said before the run: the record of that may be withheld."""
    return {name: item for name, item in check.items() if name not in ("before", "oldFailures", "newFailures")}


def _another_subject(proof: dict[str, Json], exhibits: Exhibits) -> Iterator[str]:
    """A commit that no record names was not what the run came to."""
    subject, known, first = object_in(proof, "subject"), set[str | None](), set[str | None]()
    for _, record in exhibits.values():
        match record:
            case told.ScmEnded(committed=committed):
                known.add(committed.commit)
            case told.Saved(snapshot=tree) | told.Joined(snapshot=tree) | told.Regained(snapshot=tree):
                known |= {tree.id, tree.head}
            case told.RunBegan(snapshot=tree) | told.Grounded(snapshot=tree):
                first |= {tree.id, tree.head}
            case _:
                pass
    records = object_in(proof, "records")
    chain: Any = records["chain"]
    untold = any(chain[place][3] in SAVES for place in places_in(records["withheld"]))
    if subject["kind"] != "files" and not untold and subject["commit"] not in (known or first):
        yield "subject.commit is not what the records say"
