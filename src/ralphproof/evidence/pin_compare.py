"""Comparison of pinned pieces and runner settings with what they have become."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from ralphproof.engine.check import AlteredCheckInput
from ralphproof.evidence import pin_reach
from ralphproof.evidence.pin_reach import (
    BETWEEN,
    CONFTEST,
    DECLARED,
    HARMLESS,
    MADE,
    NEEDED,
    NUMBER,
    OPTIONS,
    PACKAGE,
    PHONY,
    PLUGIN,
    PROGRAM,
    RUNNERS,
    SCRIPT,
    SETTINGS,
    SHADOW,
    STARTUP,
    TARGET,
    UNREADABLE,
    VARIABLE,
    WHOLE,
    Piece,
    ProjectFiles,
    listed,
    shown,
    tables_in,
)
from ralphproof.evidence.pin_survey import CONTENT, NAMED, SHADOWS, VIRTUAL, adds_plugins
from ralphproof.evidence.pin_survey import PACKAGE_BIN as FROM

# What became of a piece that decides over a check: nothing, something to be told, or something that stops the run.


GONE, WRITTEN = "is gone", "was written during the run"
# Targets that are no files, whatever the Makefile forgot to say.
_ACTIONS = frozenset(
    ("test", "tests", "check", "checks", "lint", "verify", "ci", "spec", "specs", "unit", "e2e", "typecheck")
)


class Comparison:
    """Compares the pieces of a run's start with those of now. `manifests` are the languages that it had one of."""

    def __init__(
        self, known: Mapping[str, Piece], now: Mapping[str, Piece], files: ProjectFiles, manifests: frozenset[str]
    ) -> None:
        self.known, self.now, self.files, self.manifests = known, now, files, manifests

    def all(self) -> Iterator[AlteredCheckInput]:
        """Everything that is not as it was."""
        for key in sorted({*self.known, *self.now}):
            old, new = self.known.get(key), self.now.get(key)
            if old is None or new is None or old.bits != new.bits:
                yield from self.one(old, new)

    def one(self, old: Piece | None, new: Piece | None) -> Iterator[AlteredCheckInput]:
        """What became of one piece."""
        kind = (new or old or Piece("", "")).kind
        judges = {
            SCRIPT: self._script, TARGET: self._target, VARIABLE: self._variable, PACKAGE: self._package,
            SETTINGS: self._settings, CONFTEST: self._conftest, STARTUP: self._startup, SHADOW: self._shadow,
            PLUGIN: self._plugin, PROGRAM: self._program,
        }  # fmt: skip
        if kind in judges:
            yield from judges[kind](old, new)

    def _script(self, old: Piece | None, new: Piece | None) -> Iterator[AlteredCheckInput]:
        if new is None and old is not None:
            yield AlteredCheckInput(old.path, f"the script of the check {GONE}", stops=True)
        elif new is not None:
            what = f"the script of the check {WRITTEN if old is None else 'was changed'}"
            yield AlteredCheckInput(new.path, what, stops=old is not None)

    def _target(self, old: Piece | None, new: Piece | None) -> Iterator[AlteredCheckInput]:
        name = f"target {shown((new or old or Piece('', '')).name)}"
        if new is None and old is not None:
            yield AlteredCheckInput(old.path, f"{name} {GONE}", stops=True)
            return
        assert new is not None
        if old is None:
            yield self._new_target(new, name)
        else:
            texts = [one for one in _differing(old, new) if not one.startswith("\t")]
            yield from (AlteredCheckInput(file, f"{name} was changed", stops=True) for file in texts)
            if PHONY in old.by_name and PHONY not in new.by_name:
                yield AlteredCheckInput(new.path, f"{name} is no longer .PHONY", stops=True)
        if MADE in new.by_name and old is not None and MADE not in old.by_name:
            path = os.path.normpath(os.path.join(os.path.dirname(new.path), new.name))
            yield AlteredCheckInput(path, f"new; make takes it for {name} and does nothing", stops=new.name in _ACTIONS)

    def _new_target(self, new: Piece, name: str) -> AlteredCheckInput:
        folder = os.path.dirname(new.path)
        others = [os.path.join(folder, one) for one in pin_reach.NAMES]
        before = [one.path for one in self.known.values() if one.kind == TARGET and one.path in others]
        if before and new.path not in before:
            return AlteredCheckInput(new.path, f"new; it takes the place of {shown(before[0])}", stops=True)
        return AlteredCheckInput(new.path, f"{name} {WRITTEN}", stops=new.name.startswith(".") and bool(before))

    def _variable(self, old: Piece | None, new: Piece | None) -> Iterator[AlteredCheckInput]:
        name = f"variable {shown((new or old or Piece('', '')).name)}"
        if new is None and old is not None:
            yield AlteredCheckInput(old.path, f"{name} {GONE}", stops=True)
        elif new is not None and old is not None:
            yield from (AlteredCheckInput(file, f"{name} was changed", stops=True) for file in _differing(old, new))
        elif new is not None and any(one.kind == TARGET and one.path == new.path for one in self.known.values()):
            yield from (AlteredCheckInput(file, f"{name} is new", stops=True) for file, _ in new.bits)

    def _package(self, old: Piece | None, new: Piece | None) -> Iterator[AlteredCheckInput]:
        if new is None and old is not None:
            yield AlteredCheckInput(old.path, f"{shown(old.name)} {GONE}", stops=True)
        elif new is not None and old is None:
            yield AlteredCheckInput(new.path, f"{shown(new.name)} {WRITTEN}")
        elif new is not None and old is not None:
            parts = [one for one in _differing(old, new) if f"script {one}" != new.name]
            beside = f": {listed(parts)}" if parts else ""
            yield AlteredCheckInput(new.path, f"{shown(new.name)} was changed{beside}", stops=True)

    def _settings(self, old: Piece | None, new: Piece | None) -> Iterator[AlteredCheckInput]:

        return settings_altered(old, new, self)

    def _conftest(self, old: Piece | None, new: Piece | None) -> Iterator[AlteredCheckInput]:
        from ralphproof.evidence.pin_survey import UNREADABLE, WEIGHTY, deciding

        if new is None and old is not None:
            yield AlteredCheckInput(old.path, GONE, stops=True)
            return
        assert new is not None
        before = old.by_name if old is not None else {}
        how = "new" if old is None else "was changed"
        unread = UNREADABLE in new.by_name
        why = "it cannot be read" if unread else deciding(self.files.text(new.path) or "", before)
        lost = [one for one, weight in before.items() if one not in new.by_name and weight == WEIGHTY]
        if why or lost or UNREADABLE in before:
            yield AlteredCheckInput(new.path, f"{how}; {why}" if why else how, stops=True)
        else:
            what = "it" if old is None else "what was added"
            every = ", some of them for every test (autouse)" if "autouse" in (self.files.text(new.path) or "") else ""
            yield AlteredCheckInput(new.path, f"{how}; {what} only defines fixtures{every}")

    def _startup(self, old: Piece | None, new: Piece | None) -> Iterator[AlteredCheckInput]:
        told = "Python loads it before everything else"
        yield AlteredCheckInput((new or old or Piece("", "")).path, f"{_how(old, new)}; {told}", stops=True)

    def _shadow(self, old: Piece | None, new: Piece | None) -> Iterator[AlteredCheckInput]:
        made = new or old or Piece("", "")
        if made.rank == 0:
            yield AlteredCheckInput(
                made.path, f"{_how(old, new)}; it shadows the module {shown(made.runner)}", stops=True
            )
        elif old is None:
            what = f"new; it shadows Python's own module {shown(made.runner)}"
            yield AlteredCheckInput(made.path, what, stops=made.runner in NEEDED)

    def _plugin(self, old: Piece | None, new: Piece | None) -> Iterator[AlteredCheckInput]:
        site = os.path.dirname((new or Piece("", "")).path)
        if new is None:
            return
        if new.name and old is not None:  # the packages of an environment that was there
            for package in _differing(old, new):
                if package in new.by_name and adds_plugins(self.files, new.path, package):
                    yield AlteredCheckInput(f"{new.path}/{package}", "new; it hooks into pytest by being installed")
        elif not new.name and any(one.kind == PLUGIN and one.path == site for one in self.known.values()):
            yield AlteredCheckInput(new.path, f"{_how(old, new)}; Python runs what it holds before everything else")

    def _program(self, old: Piece | None, new: Piece | None) -> Iterator[AlteredCheckInput]:
        """A program that was nowhere before, or that the project said it needs, was installed.

        Any other one that stands before another shadows it.
        """
        if new is None:
            if old is not None and NAMED in old.by_name:
                yield AlteredCheckInput(old.path, f"the program {shown(old.runner)} of the check {GONE}", stops=True)
            return
        if old is not None and old.by_name.get(CONTENT) == new.by_name.get(CONTENT):
            return
        named = NAMED in new.by_name
        others = any(one.kind == PROGRAM and one.runner == new.runner for one in self.known.values())
        needed = any(one.kind == DECLARED and new.by_name.get(FROM, "-") in one.by_name for one in self.known.values())
        if old is None and (needed or not (SHADOWS in new.by_name or others)):
            yield AlteredCheckInput(
                new.path, f"the program {shown(new.runner)} of the check was installed during the run"
            )
            return
        spared = VIRTUAL in new.by_name and not named
        yield AlteredCheckInput(new.path, f"{_how(old, new)}; it shadows {shown(new.runner)}", stops=not spared)


def _how(old: Piece | None, new: Piece | None) -> str:
    return "new" if old is None else GONE if new is None else "was changed"


def _differing(old: Piece, new: Piece) -> list[str]:
    """The bits that are not the same."""
    before, after = old.by_name, new.by_name
    return sorted(one for one in {*before, *after} if before.get(one) != after.get(one))


# What became of a runner's settings: a threshold that is lower, keys that changed, settings that are new.


def settings_altered(old: Piece | None, new: Piece | None, at: Comparison) -> Iterator[AlteredCheckInput]:
    """What became of the settings of a runner."""
    if new is None and old is not None:
        for section in _sections(old):
            yield AlteredCheckInput(old.path, f"{section} is gone" if section else "is gone", stops=True)
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


def _changed(section: str, keys: list[str], old: Piece, new: Piece) -> AlteredCheckInput:
    what = f"{section} was changed" if section else "was changed"
    moved = {key: _moved(f"{section}{BETWEEN}{key}", old, new) for key in keys}
    told = [word for word in moved.values() if word] or [key for key in keys if key not in (WHOLE, UNREADABLE)]
    return AlteredCheckInput(new.path, what + (f": {listed(told)}" if told else ""), stops=True)


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


def _new(new: Piece, at: Comparison) -> AlteredCheckInput:
    """Settings that were not there. What the project had none of, the user left to the work."""
    runner, sections = new.runner, [section for section in _sections(new) if section]
    named = f"{listed(sections)} is new" if sections else "new"
    what = f"{named}; it configures {runner}"
    others = [one for one in at.known.values() if one.kind == SETTINGS and one.runner == runner]
    folder = os.path.dirname(new.path)
    beaten = [one for one in others if os.path.dirname(one.path) == folder and one.rank > new.rank]
    if beaten and runner == "pytest":
        return AlteredCheckInput(new.path, f"{what} instead of {shown(beaten[0].path)}", stops=True)
    if others and runner == "pytest" and os.path.dirname(others[0].path) == folder:
        return AlteredCheckInput(new.path, f"{what}, but another file comes first")
    if runner == "pytest":
        keys = _weighty(new, at)
        return AlteredCheckInput(new.path, what + (f": {listed(keys)}" if keys else ""), stops=bool(keys))
    had = RUNNERS[runner].language in at.manifests
    variant = os.path.basename(new.path).startswith("tsconfig.") and os.path.basename(new.path) != "tsconfig.json"
    return AlteredCheckInput(new.path, what, stops=had and not variant)


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
