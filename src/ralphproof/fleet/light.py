"""Records for whoever only decides: the same decisions follow from them, and long texts are cut."""

from __future__ import annotations

from ralphproof.check import CUT
from ralphproof.fingerprint import fingerprint
from ralphproof.record import Record
from ralphproof.value import TYPE_CHECKING, pack

if TYPE_CHECKING:
    from ralphproof.value import Json

CHARS, SHORT_CHARS = 2_000, 500  # of one text; of one that is told elsewhere too
ITEMS = 50  # of a list
_SHORT = ("output", "text", "patch", "prompt", "template", "message", "why", "notes")  # fields of which less will do


def light(record: Record) -> Json:
    """The packed record, with every text and list cut that is long.

    A turn's error and a broken rule still differ, or not, from another one as the whole ones do: patterns are found by
    that. A check's finding carries its fingerprint, and the prompt is a digest already. Names of tests, where they are
    many, are left out: what they show went into the verdict, which is a record of its own.
    """
    return _cut(pack(record), "")


def _cut(data: Json, name: str) -> Json:
    match data:
        case str():
            return _text(data, name)
        case list():
            return [_cut(item, name) for item in data[:ITEMS]] if name != "names" or len(data) <= ITEMS else []
        case dict():
            whole = _change(data) if data.get("is") == "Change" else data
            return {field: _cut(item, field) for field, item in whole.items()}
        case _:
            return data


def _text(text: str, name: str) -> str:
    most = SHORT_CHARS if name in _SHORT else CHARS
    if len(text) <= most:
        return text
    mark = f" {fingerprint('', None, text)}" if name in ("error", "illegal") else ""
    return f"{text[: most // 2]}\n{CUT}{mark}\n{text[-most // 2 :]}"


def _change(data: dict[str, Json]) -> dict[str, Json]:
    """Of the paths those first that are the iteration's own: whether there are any decides over a stall."""
    paths, older = data.get("paths", []), data.get("older", [])
    assert isinstance(paths, list)
    assert isinstance(older, list)
    if len(paths) <= ITEMS:
        return data
    before = {str(path) for path in older}
    own = [path for path in paths if str(path) not in before][: ITEMS // 2]
    kept = older[: ITEMS // 2]
    return {**data, "paths": [*own, *kept], "older": list(kept)}
