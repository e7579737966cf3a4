"""The settings of a runner in a file, key by key, each known by a digest; a threshold is known itself."""

from __future__ import annotations

import re

from ralphproof.checks.pin_files import digest
from ralphproof.checks.pin_piece import NUMBER, WHOLE
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

BETWEEN = "\t"  # a section and a key of it
UNREADABLE = "unreadable"
DEEP = 6
KEYS = 500
_COVERED = "lines|branches|functions|statements"
_THRESHOLD = rf"(?i)fail[_-]under|coverageThreshold\..*|thresholds?\..*|(?:check-coverage\.)?(?:{_COVERED})"
_IN_OPTIONS = r"--(?:cov-)?fail-under[= ](\d+(?:\.\d+)?)"
_IN_CODE = rf"[\"']?\b({_COVERED})\b[\"']?\s*:\s*(\d+(?:\.\d+)?)"


def settings_in(name: str, section: str, text: str) -> dict[str, str] | None:
    """The bits of these sections; None where the file has none. Without a section it is the whole file."""
    if not section:
        bits = {WHOLE: digest(text.encode("utf-8", "surrogatepass"))}
        return bits | {f"{BETWEEN}{key}": NUMBER + number for key, number in reversed(re.findall(_IN_CODE, text))}
    tables = tables_in(name, section, text)
    if tables is None:
        return {UNREADABLE: digest(text.encode("utf-8", "surrogatepass"))}
    if not tables:
        return {} if name.lstrip(".") in ("pytest.ini", "pytest.toml") else None
    bits = {}
    for table, keys in tables.items():
        for key, given in keys.items():
            bits |= {f"{table}{BETWEEN}{one}": known for one, known in _known(key, given)}
    return dict(list(bits.items())[:KEYS])


def tables_in(name: str, section: str, text: str) -> dict[str, dict[str, Any]] | None:
    """The sections that begin so, each with its keys; None where the file cannot be understood."""
    if name.endswith(".toml"):
        return _toml(section, text)
    return _json(section, text) if name.endswith(".json") else _ini(section, text)


def _known(key: str, given: Any) -> Iterator[tuple[str, str]]:
    if isinstance(given, bool | int | float) and not isinstance(given, bool) and re.fullmatch(_THRESHOLD, key):
        yield key, f"{NUMBER}{given}"
        return
    if isinstance(given, str) and re.fullmatch(_THRESHOLD, key) and re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", given):
        yield key, NUMBER + given.strip()
        return
    words = given if isinstance(given, str) else repr(given)
    if key.rpartition(".")[2] == "addopts" and (found := re.search(_IN_OPTIONS, words)):
        yield f"{key} --cov-fail-under", NUMBER + found[1]
        words = re.sub(_IN_OPTIONS, "", words)
    yield key, digest(words.encode("utf-8", "surrogatepass"))


def _flat(table: dict[str, Any], above: str = "", deep: int = DEEP) -> Iterator[tuple[str, Any]]:
    for key, given in table.items():
        if isinstance(given, dict) and deep:
            yield from _flat(given, f"{above}{key}.", deep - 1)
        else:
            yield f"{above}{key}", given


def _toml(section: str, text: str) -> dict[str, dict[str, Any]] | None:
    import tomllib

    try:
        found: Any = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    for part in section.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        return {}
    tables: dict[str, dict[str, Any]] = {}
    for key, given in _flat(found):
        inner, _, name = key.rpartition(".")
        tables.setdefault(f"[{section}{'.' if inner else ''}{inner}]", {})[name] = given
    return tables


def _ini(section: str, text: str) -> dict[str, dict[str, Any]] | None:
    if section != "*" and f"[{section}" not in text:
        return {}
    import configparser

    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except (configparser.Error, ValueError):
        return None
    exact = section in ("pytest", "tool:pytest", "tox")
    names = [
        one for one in parser.sections() if section == "*" or (one == section if exact else one.startswith(section))
    ]
    return {f"[{name}]": dict(parser.items(name)) for name in names}


def _json(section: str, text: str) -> dict[str, dict[str, Any]] | None:
    import json

    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    given = found.get(section) if isinstance(found, dict) else None
    if given is None:
        return {}
    return {section: dict(_flat(given))} if isinstance(given, dict) else {section: {"value": given}}
