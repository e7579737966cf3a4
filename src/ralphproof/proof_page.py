"""A proof as a page: for a reader with two minutes, and at its end, for programs, the whole of it."""

from __future__ import annotations

from ralphproof.check import fenced
from ralphproof.errors import Refused
from ralphproof.ink import Bare, Ink, Markdown, in_line, visible
from ralphproof.proof_shape import misshapen, object_in, objects_in
from ralphproof.proof_words import (
    about_checks,
    about_integrity,
    about_reviews,
    about_subject,
    about_versions,
    checks_table,
    how_to_check,
    listed,
    verdict,
)
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.value import Json

MOST_CHARS = 64 << 20
OPEN, CLOSE = "\n```json\n", "\n```\n"
_HARMLESS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "`": "\\u0060"}


def render(proof: dict[str, Json]) -> str:
    """The page. The same proof makes the same page, byte for byte, also when it was read from one."""
    ink = Markdown()
    blocks = [f"# {_title(proof, ink)}", verdict(proof, ink)]
    checks = objects_in(proof["checks"])
    for heading, lines in _sections(proof, ink):
        table = [*checks_table(checks, ink), ""] if heading == "Checks" and checks else []
        body = [*table, *(f"- {line}" for line in lines)]
        blocks.append("\n".join([f"## {heading}", "", *body]).rstrip("\n"))
    blocks += _logs(proof, ink)
    return "\n\n".join([*blocks, "## The proof itself, for programs"]) + "\n" + OPEN + _data(proof) + CLOSE


def lines(proof: dict[str, Json]) -> Iterator[str]:
    """What people read of it, for a terminal."""
    ink = Bare()
    yield _title(proof, ink)
    yield verdict(proof, ink)
    for heading, body in _sections(proof, ink):
        told = [*about_checks(objects_in(proof["checks"]), ink), *body] if heading == "Checks" else body
        if told:
            yield ""
            yield f"{heading}:"
            yield from (f"  {line}" for line in told)


def parsed(text: str) -> dict[str, Json]:
    """The proof in a page, or in a file that is nothing but its JSON; raises Refused where there is none."""
    import json

    if len(text) > MOST_CHARS:
        raise Refused("it is too long to be a proof")
    data = text if text.lstrip()[:1] == "{" else _block(text)
    try:
        proof = json.loads(data, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Refused(f"its data cannot be read: {error}") from error
    wrong = misshapen(proof)
    if wrong:
        raise Refused(f"it is no proof: {'; '.join(wrong[:3])}")
    found: dict[str, Json] = proof
    return found


def _block(text: str) -> str:
    """The JSON at the end of a page: no page has the sign of a fence inside it."""
    at = text.rfind(OPEN)
    if at < 0 or not text.endswith(CLOSE):
        raise Refused("it is no proof: no data stand at its end")
    return text[at + len(OPEN) : -len(CLOSE)]


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is there twice")
    return found


def _no_number(name: str) -> Json:
    raise ValueError(f"{name} is no number")


def _data(proof: dict[str, Json]) -> str:
    """The JSON, with nothing in it that could close its fence or be taken for a tag."""
    import json

    text = json.dumps(proof, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for sign, harmless in _HARMLESS.items():
        text = text.replace(sign, harmless)
    return text


def _title(proof: dict[str, Json], ink: Ink) -> str:
    title = in_line(str(object_in(proof, "task")["title"]))
    return f"Proof of run {ink.text(str(proof['run']))}" + (f": {ink.text(title)}" if title else "")


def _sections(proof: dict[str, Json], ink: Ink) -> Iterator[tuple[str, list[str]]]:
    checks = objects_in(proof["checks"])
    yield "Checks", [*listed(checks, ink)] if checks else ["none"]
    outcome = object_in(proof, "outcome")
    yield "Concerns", _texts(outcome["concerns"], ink) or ["none"]
    if reviews := [*about_reviews(objects_in(proof["reviews"]), ink)]:
        yield "Reviews", reviews
    yield "What it speaks of", [*about_subject(proof, ink)]
    yield "Integrity of the checks", [*about_integrity(object_in(proof, "integrity"), ink)]
    yield "Who could have tampered", _texts(proof["tampering"], ink)
    yield "Versions and settings", [*about_versions(proof, ink)]
    yield "How to check it", [*how_to_check(proof, ink)]


def _texts(data: Json, ink: Ink) -> list[str]:
    return [ink.text(str(one)) for one in data] if isinstance(data, list) else []


def _logs(proof: dict[str, Json], ink: Ink) -> Iterator[str]:
    logs = object_in(proof, "logs")
    if not logs:
        return
    yield "## What the checks printed"
    for name in sorted(logs):
        said = visible(str(logs[name]), keep="\n\t").strip("\n")
        yield (
            f"{ink.code(name) or ink.code('a check')}:\n\n{fenced(said)}"
            if said.strip()
            else f"{ink.code(name)}: nothing"
        )
