"""What became of a runner's settings: a threshold that is lower, keys that changed, settings that are new."""

from __future__ import annotations

import os
import re

from ralphproof.checks.pin_piece import NUMBER, SETTINGS, WHOLE, Piece, listed, shown
from ralphproof.checks.pin_runners import HARMLESS, OPTIONS, RUNNERS
from ralphproof.checks.pin_settings import BETWEEN, UNREADABLE, tables_in
from ralphproof.pin import Altered
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.checks.pin_compare import Comparison


def settings_altered(old: Piece | None, new: Piece | None, at: Comparison) -> Iterator[Altered]:
    """What became of the settings of a runner."""
    if new is None and old is not None:
        for section in _sections(old):
            yield Altered(old.path, f"{section} is gone" if section else "is gone", stops=True)
    elif new is not None and old is None:
        yield _new(new, at)
    elif new is not None and old is not None:
        for section, keys in _by_section(old, new).items():
            yield _changed(section, keys, old, new)


def _sections(piece: Piece) -> list[str]:
    """The sections that a piece has keys in; one without a name is the whole file."""
    found = {name.partition(BETWEEN)[0] if BETWEEN in name else "" for name, _ in piece.bits}
    return sorted(found) if found and "" not in found else [""]


def _by_section(old: Piece, new: Piece) -> dict[str, list[str]]:
    before, after = old.by_name, new.by_name
    found: dict[str, list[str]] = {}
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            section, _, key = name.partition(BETWEEN) if BETWEEN in name else ("", "", name)
            found.setdefault(shown(section), []).append(key)
    return found


def _changed(section: str, keys: list[str], old: Piece, new: Piece) -> Altered:
    what = f"{section} was changed" if section else "was changed"
    moved = {key: _moved(f"{section}{BETWEEN}{key}", old, new) for key in keys}
    told = [word for word in moved.values() if word] or [key for key in keys if key not in (WHOLE, UNREADABLE)]
    return Altered(new.path, what + (f": {listed(told)}" if told else ""), stops=True)


def _moved(name: str, old: Piece, new: Piece) -> str:
    """How a threshold moved, in words; empty where it is none."""
    key = name.partition(BETWEEN)[2]
    before, after = old.by_name.get(name, ""), new.by_name.get(name, "")
    if not before.startswith(NUMBER):
        return ""
    least = before.removeprefix(NUMBER)
    if not after.startswith(NUMBER):
        return f"{key} {least} is gone"
    now = after.removeprefix(NUMBER)
    return f"{key} {'lowered' if float(now) < float(least) else 'raised'} from {least} to {now}"


def _new(new: Piece, at: Comparison) -> Altered:
    """Settings that were not there. What the project had none of, the user left to the work."""
    runner, sections = new.runner, [section for section in _sections(new) if section]
    named = f"{listed(sections)} is new" if sections else "new"
    what = f"{named}; it configures {runner}"
    others = [one for one in at.known.values() if one.kind == SETTINGS and one.runner == runner]
    folder = os.path.dirname(new.path)
    beaten = [one for one in others if os.path.dirname(one.path) == folder and one.rank > new.rank]
    if beaten and runner == "pytest":
        return Altered(new.path, f"{what} instead of {shown(beaten[0].path)}", stops=True)
    if others and runner == "pytest" and os.path.dirname(others[0].path) == folder:
        return Altered(new.path, f"{what}, but another file comes first")
    if runner == "pytest":
        keys = _weighty(new, at)
        return Altered(new.path, what + (f": {listed(keys)}" if keys else ""), stops=bool(keys))
    had = RUNNERS[runner].language in at.manifests
    variant = os.path.basename(new.path).startswith("tsconfig.") and os.path.basename(new.path) != "tsconfig.json"
    return Altered(new.path, what, stops=had and not variant)


def _weighty(new: Piece, at: Comparison) -> list[str]:
    """The keys of new settings of pytest that may choose tests, or hide failures."""
    text = at.files.text(new.path) or ""
    name, section = os.path.basename(new.path), new.name.partition(" ")[2]
    tables = tables_in(name, section, text)
    if tables is None:
        return ["it cannot be read"]
    found = []
    for keys in tables.values():
        for key, given in keys.items():
            words = [str(one) for one in given] if isinstance(given, list) else str(given).split()
            plain = key == "addopts" and all(re.fullmatch(OPTIONS, word) for word in words)
            if not (plain or re.fullmatch(HARMLESS, key)):
                found.append(key)
    return found
