"""What shows that a run's work is done: one object that anybody can check again, made of the run's records."""

from __future__ import annotations

from ralphproof import record as told
from ralphproof.proof_faults import faults as faults
from ralphproof.proof_shape import TYPE, VERSION, as_json, object_in, objects_in, places_in
from ralphproof.proof_shape import digest_of as digest_of
from ralphproof.reviewing import reviews
from ralphproof.state import State, state_of
from ralphproof.testimony import names, record_in, testimony
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspace import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphproof.iteration import Iteration
    from ralphproof.record import Record
    from ralphproof.value import Json

    Row = tuple[str, int, int, str, str, float, str, str]  # run, iteration, turn, step, kind, at, data, digest

WITHHELD = "held-out check {}"
MOST_CHARS = 1 << 20  # of a record: one that names every file of a large tree is not shown


@value
class Subject:
    """What the proof speaks of, as the workspace tells it: a commit, its tree, and where that is not what was checked.

    `kind` is commit, for one that is part of the user's history, tree, for one that only saves, or files.
    """

    kind: str
    commit: str | None = None
    tree: str | None = None
    differs: tuple[str, ...] = ()


@value
class RunPast:
    """All rows of a run in the ledger, the records behind them, and where those leave it."""

    rows: tuple[Row, ...]
    records: tuple[Record, ...]
    state: State

    @staticmethod
    def of(rows: tuple[Row, ...]) -> RunPast:
        """The past that these rows tell; raises LedgerBroken."""
        records = tuple(record_in(row[6], f"{row[3]} of run {row[0]}") for row in rows)
        return RunPast(rows, records, state_of(records))


@value
class Provable:
    """All that a proof is made of: a run's past, and what the repository and the machine say."""

    past: RunPast
    project: str
    subject: Subject
    settings_file: str | None = None
    versions: dict[str, str] = {}  # noqa: RUF012 (never changed)
    title: str = ""  # for a task that has none of its own


def shown_of(state: State) -> Iteration | None:
    """The iteration whose checks are shown: the last judged one with findings, else the last judged one."""
    past = state.history.iterations
    return next((one for one in reversed(past) if one.report.findings), past[-1] if past else None)


def saved_of(state: State) -> Snapshot:
    """The tree that the run came to, as it was last saved and judged."""
    return state.history.latest.snapshot if state.history.iterations else state.began


def proof_of(facts: Provable, mask: Callable[[str], str] = str) -> dict[str, Json]:
    """The proof of a run; of one that was not completed it tells what is known."""
    rows, records, state = facts.past.rows, facts.past.records, facts.past.state
    exhibits = {place: (rows[place][5], records[place]) for place in _evidence(records, state)}
    found, subject = testimony(exhibits), facts.subject
    place: dict[str, Json] = {
        "kind": subject.kind, "commit": subject.commit, "tree": subject.tree, "differs": names(subject.differs),
        "ref": None, "head": None, "base": None, "checked": None, "leftOut": [],
    }  # fmt: skip
    made: dict[str, Json] = {
        **_BLANK, **found,
        "v": VERSION, "type": TYPE, "run": state.run, "project": facts.project,
        "task": {"title": facts.title, **object_in(found, "task"), "prompt": state.digest},
        "subject": place | object_in(found, "subject"),
        "settings": {"file": facts.settings_file, **object_in(found, "settings")},
        "versions": {**facts.versions, **object_in(found, "versions")},
        "reviews": [*reviews(records, state.history)],
    }  # fmt: skip
    unshown = _unshown(rows, exhibits, mask)
    closed = {record.finding.check for place in unshown if isinstance(record := records[place], told.CheckEnded)}
    made["checks"] = [
        {**check, "withheld": True} if check["name"] in closed else check for check in objects_in(made["checks"])
    ]
    masked = _masked(as_json(made), mask)
    sealed = {**masked, "records": _records(rows, exhibits, unshown, mask)} if isinstance(masked, dict) else {}
    return sealed | {"digest": digest_of(sealed)}


_BLANK: dict[str, Json] = {
    "began": 0.0, "ended": 0.0, "checks": [], "logs": {}, "verifyIn": "workspace", "setup": [], "tampering": [],
    "outcome": {
        "status": "", "proof": None, "iterations": 0, "costUSD": None, "durationSeconds": 0.0, "concerns": [],
    },
    "integrity": {"protectTests": False, "mayChange": [], "altered": [], "weaker": []},
    "sandbox": {"name": "unknown", "strength": "none"},
}  # fmt: skip


def _evidence(records: tuple[Record, ...], state: State) -> list[int]:
    """The places of the records that the proof is read from."""
    looked, past = shown_of(state), state.history.iterations
    numbers = {looked.number, past[-1].number} if looked else set()
    last: dict[type, int] = {type(record): place for place, record in enumerate(records)}
    chosen = {last[kind] for kind in (told.Judged, told.ScmEnded, told.RunEnded) if kind in last}
    for place, record in enumerate(records):
        match record:
            case told.RunBegan() | told.Grounded() | told.Resumed() | told.CheckEnded(iteration=0):
                chosen.add(place)
            case told.CheckEnded(number) if looked and number == looked.number:
                chosen.add(place)
            case told.Saved(number) | told.Joined(number) | told.Regained(number) if number in numbers:
                chosen.add(place)
            case told.Judged(number) if number in numbers:
                chosen.add(place)
            case told.Picked(number) if number == max(numbers, default=0):
                chosen.add(place)
            case _:
                pass
    return sorted(chosen)


def _unshown(rows: tuple[Row, ...], exhibits: Iterable[int], mask: Callable[[str], str]) -> list[int]:
    """Records of the evidence that cannot be shown: they hold a secret that was not known then, or far too much."""
    import json

    def shown(data: str, kind: str) -> bool:
        found = json.loads(data)
        return (len(data) <= MOST_CHARS or kind == "CheckEnded") and _masked(found, mask) == found

    return [place for place in exhibits if not shown(rows[place][6], rows[place][4])]


def _records(
    rows: tuple[Row, ...], exhibits: Iterable[int], unshown: list[int], mask: Callable[[str], str]
) -> dict[str, Json]:
    """The chain, and of the evidence the text that its digests are of."""
    chain: list[Json] = [[row[1], row[2], mask(row[3]), row[4], row[5], row[7]] for row in rows]
    return {
        "chain": chain, "evidence": {str(place): rows[place][6] for place in exhibits if place not in unshown},
        "withheld": [*unshown], "count": len(rows), "last": rows[-1][7] if rows else "",
    }  # fmt: skip


def without_held_out(proof: dict[str, Json]) -> dict[str, Json]:
    """The same as agents may read it: held-out checks are there, and what they ask is not."""
    import json

    known = objects_in(proof["checks"])
    hidden = [str(check["name"]) for check in known if check["hidden"]]
    called = {name: WITHHELD.format(number) for number, name in enumerate(hidden, 1)}
    records, evidence = object_in(proof, "records"), object_in(object_in(proof, "records"), "evidence")
    told_of = {int(place) for place, data in evidence.items() if _tells(json.loads(str(data)), hidden)}
    kept: dict[str, Json] = {place: data for place, data in evidence.items() if int(place) not in told_of}
    open_part: dict[str, Json] = {
        **proof,
        "checks": [_closed(check) if check["hidden"] else check for check in known],
        "logs": {name: text for name, text in object_in(proof, "logs").items() if name not in hidden},
        "records": {**records, "evidence": {}, "chain": _unnamed(records["chain"], set(kept))},
    }
    renamed = _masked(open_part, lambda text: _renamed(text, called))
    made: dict[str, Json] = {**renamed} if isinstance(renamed, dict) else {}
    withheld: list[Json] = [*sorted({*told_of, *places_in(records["withheld"])})]
    made["records"] = {**object_in(made, "records"), "evidence": kept, "withheld": withheld}
    return made | {"digest": digest_of(made)}


def _unnamed(chain: Json, shown: set[str]) -> Json:
    """The chain without the names of checks, but for those whose record is shown."""
    rows = [row for row in chain if isinstance(row, list)] if isinstance(chain, list) else []
    return [
        [*row[:2], row[3], *row[3:]] if str(row[3]).startswith("Check") and str(place) not in shown else row
        for place, row in enumerate(rows)
    ]


def _closed(check: dict[str, Json]) -> dict[str, Json]:
    blank = {"command": None, "commandDigest": None, "contains": "", "lacks": "", "output": "", "log": "", "why": ""}
    nameless: dict[str, Json] = {"before": None, "oldFailures": [], "newFailures": []}
    return {**check, **blank, **nameless, "withheld": True}


def _tells(data: Json, hidden: list[str]) -> bool:
    """Whether a record says what a held-out check asks."""
    if isinstance(data, str):
        return any(name in data for name in hidden)
    if isinstance(data, dict):
        return data.get("hidden") is True or any(_tells(item, hidden) for item in data.values())
    return isinstance(data, list) and any(_tells(item, hidden) for item in data)


def _renamed(text: str, called: dict[str, str]) -> str:
    for name, other in called.items():
        text = text.replace(name, other)
    return text


def _masked(data: Json, mask: Callable[[str], str]) -> Json:
    if isinstance(data, str):
        return mask(data)
    if isinstance(data, list):
        return [_masked(item, mask) for item in data]
    return {mask(name): _masked(item, mask) for name, item in data.items()} if isinstance(data, dict) else data
