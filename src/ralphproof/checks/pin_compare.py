"""What became of a piece that decides over a check: nothing, something to be told, or something that stops the run."""

from __future__ import annotations

import os

from ralphproof.checks import pin_make
from ralphproof.checks.pin_files import ProjectFiles
from ralphproof.checks.pin_path import CONTENT, NAMED, SHADOWS, VIRTUAL
from ralphproof.checks.pin_path import PACKAGE as FROM
from ralphproof.checks.pin_piece import (
    CONFTEST,
    DECLARED,
    PACKAGE,
    PLUGIN,
    PROGRAM,
    SCRIPT,
    SETTINGS,
    SHADOW,
    STARTUP,
    TARGET,
    VARIABLE,
    Piece,
    listed,
    shown,
)
from ralphproof.checks.pin_reach import MADE, PHONY
from ralphproof.checks.pin_runners import NEEDED
from ralphproof.pin import Altered
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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

    def all(self) -> Iterator[Altered]:
        """Everything that is not as it was."""
        for key in sorted({*self.known, *self.now}):
            old, new = self.known.get(key), self.now.get(key)
            if old is None or new is None or old.bits != new.bits:
                yield from self.one(old, new)

    def one(self, old: Piece | None, new: Piece | None) -> Iterator[Altered]:
        """What became of one piece."""
        kind = (new or old or Piece("", "")).kind
        judges = {
            SCRIPT: self._script, TARGET: self._target, VARIABLE: self._variable, PACKAGE: self._package,
            SETTINGS: self._settings, CONFTEST: self._conftest, STARTUP: self._startup, SHADOW: self._shadow,
            PLUGIN: self._plugin, PROGRAM: self._program,
        }  # fmt: skip
        if kind in judges:
            yield from judges[kind](old, new)

    def _script(self, old: Piece | None, new: Piece | None) -> Iterator[Altered]:
        if new is None and old is not None:
            yield Altered(old.path, f"the script of the check {GONE}", stops=True)
        elif new is not None:
            what = f"the script of the check {WRITTEN if old is None else 'was changed'}"
            yield Altered(new.path, what, stops=old is not None)

    def _target(self, old: Piece | None, new: Piece | None) -> Iterator[Altered]:
        name = f"target {shown((new or old or Piece('', '')).name)}"
        if new is None and old is not None:
            yield Altered(old.path, f"{name} {GONE}", stops=True)
            return
        assert new is not None
        if old is None:
            yield self._new_target(new, name)
        else:
            texts = [one for one in _differing(old, new) if not one.startswith("\t")]
            yield from (Altered(file, f"{name} was changed", stops=True) for file in texts)
            if PHONY in old.by_name and PHONY not in new.by_name:
                yield Altered(new.path, f"{name} is no longer .PHONY", stops=True)
        if MADE in new.by_name and old is not None and MADE not in old.by_name:
            path = os.path.normpath(os.path.join(os.path.dirname(new.path), new.name))
            yield Altered(path, f"new; make takes it for {name} and does nothing", stops=new.name in _ACTIONS)

    def _new_target(self, new: Piece, name: str) -> Altered:
        folder = os.path.dirname(new.path)
        others = [os.path.join(folder, one) for one in pin_make.NAMES]
        before = [one.path for one in self.known.values() if one.kind == TARGET and one.path in others]
        if before and new.path not in before:
            return Altered(new.path, f"new; it takes the place of {shown(before[0])}", stops=True)
        return Altered(new.path, f"{name} {WRITTEN}", stops=new.name.startswith(".") and bool(before))

    def _variable(self, old: Piece | None, new: Piece | None) -> Iterator[Altered]:
        name = f"variable {shown((new or old or Piece('', '')).name)}"
        if new is None and old is not None:
            yield Altered(old.path, f"{name} {GONE}", stops=True)
        elif new is not None and old is not None:
            yield from (Altered(file, f"{name} was changed", stops=True) for file in _differing(old, new))
        elif new is not None and any(one.kind == TARGET and one.path == new.path for one in self.known.values()):
            yield from (Altered(file, f"{name} is new", stops=True) for file, _ in new.bits)

    def _package(self, old: Piece | None, new: Piece | None) -> Iterator[Altered]:
        if new is None and old is not None:
            yield Altered(old.path, f"{shown(old.name)} {GONE}", stops=True)
        elif new is not None and old is None:
            yield Altered(new.path, f"{shown(new.name)} {WRITTEN}")
        elif new is not None and old is not None:
            parts = [one for one in _differing(old, new) if f"script {one}" != new.name]
            beside = f": {listed(parts)}" if parts else ""
            yield Altered(new.path, f"{shown(new.name)} was changed{beside}", stops=True)

    def _settings(self, old: Piece | None, new: Piece | None) -> Iterator[Altered]:
        from ralphproof.checks.pin_compare_settings import settings_altered

        return settings_altered(old, new, self)

    def _conftest(self, old: Piece | None, new: Piece | None) -> Iterator[Altered]:
        from ralphproof.checks.pin_conftest import UNREADABLE, WEIGHTY, deciding

        if new is None and old is not None:
            yield Altered(old.path, GONE, stops=True)
            return
        assert new is not None
        before = old.by_name if old is not None else {}
        how = "new" if old is None else "was changed"
        unread = UNREADABLE in new.by_name
        why = "it cannot be read" if unread else deciding(self.files.text(new.path) or "", before)
        lost = [one for one, weight in before.items() if one not in new.by_name and weight == WEIGHTY]
        if why or lost or UNREADABLE in before:
            yield Altered(new.path, f"{how}; {why}" if why else how, stops=True)
        else:
            what = "it" if old is None else "what was added"
            every = ", some of them for every test (autouse)" if "autouse" in (self.files.text(new.path) or "") else ""
            yield Altered(new.path, f"{how}; {what} only defines fixtures{every}")

    def _startup(self, old: Piece | None, new: Piece | None) -> Iterator[Altered]:
        told = "Python loads it before everything else"
        yield Altered((new or old or Piece("", "")).path, f"{_how(old, new)}; {told}", stops=True)

    def _shadow(self, old: Piece | None, new: Piece | None) -> Iterator[Altered]:
        made = new or old or Piece("", "")
        if made.rank == 0:
            yield Altered(made.path, f"{_how(old, new)}; it shadows the module {shown(made.runner)}", stops=True)
        elif old is None:
            what = f"new; it shadows Python's own module {shown(made.runner)}"
            yield Altered(made.path, what, stops=made.runner in NEEDED)

    def _plugin(self, old: Piece | None, new: Piece | None) -> Iterator[Altered]:
        from ralphproof.checks.pin_startup import adds_plugins

        site = os.path.dirname((new or Piece("", "")).path)
        if new is None:
            return
        if new.name and old is not None:  # the packages of an environment that was there
            for package in _differing(old, new):
                if package in new.by_name and adds_plugins(self.files, new.path, package):
                    yield Altered(f"{new.path}/{package}", "new; it hooks into pytest by being installed")
        elif not new.name and any(one.kind == PLUGIN and one.path == site for one in self.known.values()):
            yield Altered(new.path, f"{_how(old, new)}; Python runs what it holds before everything else")

    def _program(self, old: Piece | None, new: Piece | None) -> Iterator[Altered]:
        """A program that was nowhere before, or that the project said it needs, was installed.

        Any other one that stands before another shadows it.
        """
        if new is None:
            if old is not None and NAMED in old.by_name:
                yield Altered(old.path, f"the program {shown(old.runner)} of the check {GONE}", stops=True)
            return
        if old is not None and old.by_name.get(CONTENT) == new.by_name.get(CONTENT):
            return
        named = NAMED in new.by_name
        others = any(one.kind == PROGRAM and one.runner == new.runner for one in self.known.values())
        needed = any(one.kind == DECLARED and new.by_name.get(FROM, "-") in one.by_name for one in self.known.values())
        if old is None and (needed or not (SHADOWS in new.by_name or others)):
            yield Altered(new.path, f"the program {shown(new.runner)} of the check was installed during the run")
            return
        spared = VIRTUAL in new.by_name and not named
        yield Altered(new.path, f"{_how(old, new)}; it shadows {shown(new.runner)}", stops=not spared)


def _how(old: Piece | None, new: Piece | None) -> str:
    return "new" if old is None else GONE if new is None else "was changed"


def _differing(old: Piece, new: Piece) -> list[str]:
    """The bits that are not the same."""
    before, after = old.by_name, new.by_name
    return sorted(one for one in {*before, *after} if before.get(one) != after.get(one))
