"""Integrity of a proof, seen from the proof alone: its form, its digests, and fields that its records deny."""

from __future__ import annotations

from ralphproof.base.errors import LedgerBroken
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.records import (
    BaselineSaved,
    ChildWorkJoined,
    Record,
    RunBegan,
    Saved,
    ScmEnded,
    UserChangesSaved,
)
from ralphproof.proof.evidence import fields_from_records, parse_record
from ralphproof.proof.schema import (
    chain_digest,
    get_integers,
    get_object,
    get_objects,
    proof_digest,
    to_json_types,
    validate_shape,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ralphproof.base.value import Json

    Exhibits = dict[int, tuple[float, Record]]

PARTLY_RECORDED_FIELDS = ("task", "subject", "settings", "versions")  # the repository and the machine tell the rest
SNAPSHOT_RECORDS = ("Saved", "ChildWorkJoined", "UserChangesSaved", "ScmEnded")
FIELDS_OF_ALL_RECORDS = ("tampering", "integrity")  # are read from all records of the evidence together


def find_proof_faults(proof: dict[str, Json]) -> tuple[str, ...]:
    """Why this is no intact proof, in sentences: its form, its digests, or fields that its evidence contradicts.

    An intact proof does not say that the work is good: only that no part of it was changed alone.
    """
    wrong = validate_shape(proof)
    if wrong:
        return wrong
    if proof["digest"] != proof_digest(proof):
        return ("it was changed: its digest is not that of its content",)
    return tuple(_chain_faults(proof)) or tuple(_denied_fields(proof))


def _chain_faults(proof: dict[str, Json]) -> Iterator[str]:
    """Evidence that does not match the chain of digests."""
    records = get_object(proof, "records")
    chain: Any = records["chain"]
    if records["count"] != len(chain) or records["last"] != (chain[-1][5] if chain else ""):
        yield "the chain of records has lost its end"
    if get_object(proof, "outcome")["status"] == "COMPLETED" and (not chain or chain[-1][3] != "RunEnded"):
        yield "the run is said to be completed, and the chain of its records does not end with its end"
    for place, data in sorted(get_object(records, "evidence").items(), key=lambda item: int(item[0])):
        at = int(place)
        *row, digest = chain[at]
        if chain_digest(chain[at - 1][5] if at else "", (proof["run"], *row, data)) != digest:
            yield f"record {at + 1} of the chain ({row[2][:60]}) is not the one that its digest is of"


def _denied_fields(proof: dict[str, Json]) -> Iterator[str]:
    """Fields that contradict the evidence."""
    records = get_object(proof, "records")
    chain: Any = records["chain"]
    try:
        exhibits = {
            int(place): (float(chain[int(place)][4]), parse_record(str(data), f"record {place}"))
            for place, data in get_object(records, "evidence").items()
        }
        lacking = (*_missing_records(proof, exhibits), *_subject_faults(proof, exhibits))
        found = to_json_types(fields_from_records(exhibits))
    except (LedgerBroken, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError):
        yield "a record of its evidence cannot be read"
        return
    yield from lacking
    if isinstance(found, dict):
        yield from _contradicted_fields(proof, found, bool(records["withheld"]))


def _missing_records(proof: dict[str, Json], exhibits: Exhibits) -> list[str]:
    """Required records that are not shown: start and end of the run, and all checks of the last round."""
    records = get_object(proof, "records")
    chain: Any = records["chain"]
    kinds = {row[3]: place for place, row in enumerate(chain)}  # of each the last one
    judged = {row[0] for row in chain if row[3] == "Judged"}
    asked = {place: row[0] for place, row in enumerate(chain) if row[3] == "CheckEnded"}
    last = max((number for number in asked.values() if number in judged), default=0)
    wanted = {kinds.get(kind, 0) for kind in ("RunBegan", "RunEnded", "Judged")}
    wanted |= {place for place, number in asked.items() if number in (0, last)}
    there = {*exhibits, *get_integers(records["withheld"])}
    return [f"record {place + 1} of the chain is not shown" for place in sorted(wanted - there)]


def _contradicted_fields(proof: dict[str, Json], expected: dict[str, Json], partly: bool) -> Iterator[str]:
    """Contradicted fields. With withheld evidence, fields that need all of it cannot be compared."""
    for name, expected_value in expected.items():
        actual = proof[name]
        if partly and name in FIELDS_OF_ALL_RECORDS:
            continue
        if partly and name == "checks":
            yield from _check_faults(get_objects(actual), get_objects(expected_value))
        elif not (
            _includes(actual, expected_value)
            if name in PARTLY_RECORDED_FIELDS or partly
            else _equal_json(actual, expected_value)
        ):
            yield f"{name} is not what the records say"


def _equal_json(actual: Json, expected: Json) -> bool:
    """Whether both have the same JSON text: true is not 1."""
    import json

    return json.dumps(actual, sort_keys=True) == json.dumps(expected, sort_keys=True)


def _includes(actual: Json, expected: Json) -> bool:
    """Whether an object has all fields of the evidence, which need not have all of its."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        return all(name in actual and _equal_json(actual[name], item) for name, item in expected.items())
    return _equal_json(actual, expected)


def _check_faults(actual: list[dict[str, Json]], expected: list[dict[str, Json]]) -> Iterator[str]:
    """A check without a shown record must be a withheld one."""
    known = {str(check["name"]): check for check in expected}
    for check in actual:
        name = str(check["name"])
        told_of_it = known.pop(name, None)
        if told_of_it is None and not check.get("withheld"):
            yield f"no record tells of the check {name[:100]!r}"
        elif told_of_it is not None and not _equal_json(_without_baseline(check), _without_baseline(told_of_it)):
            yield f"check {name[:100]!r} is not what the records say"
    yield from (f"the check {name[:100]!r} is missing, of which the records tell" for name in known)


def _without_baseline(check: dict[str, Json]) -> Json:
    """A check without its baseline, whose record may be withheld."""
    return {name: item for name, item in check.items() if name not in ("before", "oldFailures", "newFailures")}


def _subject_faults(proof: dict[str, Json], exhibits: Exhibits) -> Iterator[str]:
    """The subject's commit must be named by a record."""
    subject, known, first = get_object(proof, "subject"), set[str | None](), set[str | None]()
    for _, record in exhibits.values():
        match record:
            case ScmEnded(committed=committed):
                known.add(committed.commit)
            case Saved(snapshot=tree) | ChildWorkJoined(snapshot=tree) | UserChangesSaved(snapshot=tree):
                known |= {tree.id, tree.head}
            case RunBegan(snapshot=tree) | BaselineSaved(snapshot=tree):
                first |= {tree.id, tree.head}
            case _:
                pass
    records = get_object(proof, "records")
    chain: Any = records["chain"]
    untold = any(chain[place][3] in SNAPSHOT_RECORDS for place in get_integers(records["withheld"]))
    if subject["kind"] != "files" and not untold and subject["commit"] not in (known or first):
        yield "subject.commit is not what the records say"
