"""All that decides over the checks of a run, in the project as it now is."""

from __future__ import annotations

import fnmatch
import os

from ralphproof.checks.pin_files import ProjectFiles
from ralphproof.checks.pin_piece import PACKAGE, SCRIPT, SETTINGS, TARGET, VARIABLE, Piece, piece
from ralphproof.checks.pin_reach import Reach
from ralphproof.checks.pin_runners import RUNNERS, TESTING, rows_for
from ralphproof.checks.pin_settings import settings_in, tables_in
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralphproof.value import Json

FACTS = ("programs", "runners", "folders", "packages", "python_paths")  # sets of a Reach


class Survey:
    """The pieces that commands lead to.

    `known` are facts of an earlier survey: what was looked at is looked at again.
    """

    def __init__(
        self, root: str, commands: Iterable[tuple[str, str]], env: Mapping[str, str], known: Json = None
    ) -> None:
        self.files, self._env = ProjectFiles(root), env
        self.reach = Reach(self.files)
        self._home = env.get("HOME", "")
        self._take(known)
        self._started_in: set[str] = set()
        for command, folder in commands:
            self._started_in.add(os.path.normpath(folder or "."))
            self.reach.follow(command, os.path.normpath(folder or "."))
        if self.reach.programs:
            self._environment()
        self.pieces = self.reach.pieces
        if self.reach.runners:
            self._settings()
        if self.reach.python:
            self._startup()
        if self._home.startswith("/") and (self.reach.runners or self.reach.python):
            self._at_home()
        self._programs()

    @property
    def facts(self) -> Json:
        """What must be known to look at the same things again."""
        made: dict[str, Json] = {name: [*sorted(getattr(self.reach, name))] for name in FACTS}
        return made | {"python": self.reach.python, "home": self._home}

    def _take(self, known: Json) -> None:
        if not isinstance(known, dict):
            return
        for name in FACTS:
            found = known.get(name)
            getattr(self.reach, name).update(map(str, found) if isinstance(found, list) else ())
        self.reach.python = known.get("python") is True
        self._home = str(known.get("home") or "")

    def _environment(self) -> None:
        """Variables of the run's start that have programs load something of the project."""
        places = (self.files.from_root(one) or (one == self.files.root and ".") for one in self._paths("PYTHONPATH"))
        self.reach.python_paths.update(place for place in places if place)
        self.reach.follow(f"node {self._env.get('NODE_OPTIONS', '')} --test" if "NODE_OPTIONS" in self._env else "")
        if "BASH_ENV" in self._env:
            self.reach.follow(f". {self._env['BASH_ENV']}")

    def _paths(self, name: str) -> list[str]:
        return [one for one in self._env.get(name, "").split(os.pathsep) if one]

    def _settings(self) -> None:
        """The settings of every runner; what they run may be a runner again."""
        done: set[tuple[str, str]] = set()
        for _ in range(3):
            left = {(folder, one) for folder in self.reach.folders for one in self.reach.runners} - done
            for folder in sorted({folder for folder, _ in left}):
                self._in_folder(folder, frozenset(one for place, one in left if place == folder))
            done |= left

    def _in_folder(self, folder: str, runners: frozenset[str]) -> None:
        names = self.files.names(folder)
        for runner in sorted(runners):
            for rank, (pattern, section) in enumerate(RUNNERS[runner].rows):
                within, _, last = pattern.rpartition("/")
                for name in fnmatch.filter(self.files.names(f"{folder}/{within}") if within else names, last):
                    path = os.path.normpath(os.path.join(folder, within, name))
                    self._setting(path, runner, rank, section)

    def _setting(self, path: str, runner: str, rank: int, section: str) -> None:
        text = self.files.text(path)
        if text is None:
            return
        made = setting(path, runner, rank, section, text)
        if made is not None:
            self.pieces[made.key] = made
            self._read(path, runner, section, text)

    def _read(self, path: str, runner: str, section: str, text: str) -> None:
        """What the settings of some runners lead to in turn."""
        folder = os.path.dirname(path) or "."
        if runner not in ("pytest", "tox", "nox", "hatch"):
            return
        if not section:
            self.reach.words(text, folder)
            return
        for keys in (tables_in(os.path.basename(path), section, text) or {}).values():
            for key, given in keys.items():
                lines = given if isinstance(given, list) else str(given).split("\n")
                if key == "pythonpath":
                    words = [word for line in lines for word in str(line).split()]
                    found = (self.files.from_root(word, folder) for word in words)
                    self.reach.python_paths.update(one for one in found if one)
                elif key == "addopts":
                    self.reach.follow(f"pytest {' '.join(map(str, lines))}", folder)
                elif runner in ("tox", "hatch"):
                    self.reach.follow("\n".join(map(str, lines)), folder)

    def _startup(self) -> None:
        from ralphproof.checks import pin_startup

        found: list[Piece] = []
        if self.reach.runners & TESTING:
            found += pin_startup.conftests(self.files)
        found += pin_startup.modules(self.files, {".", "src"}, self.reach.python_paths)
        found += pin_startup.environments(self.files)
        self.pieces.update((one.key, one) for one in found)

    def _at_home(self) -> None:
        from ralphproof.checks.pin_home import home_pieces

        found = home_pieces(self._home, self.reach.runners, self.reach.python)
        self.pieces.update((one.key, one) for one in found)

    def _programs(self) -> None:
        if not self.reach.programs:
            return
        from ralphproof.checks.pin_path import SearchPath

        folders = self.reach.folders | self._started_in
        path = SearchPath(self.files, self._env.get("PATH", ""), folders, self.reach.packages)
        named = self.reach.programs | self.reach.runners
        self.pieces.update((one.key, one) for one in path.programs(named))

    def beside(self, path: str) -> list[Piece]:
        """The settings in a file that no command leads to, as far as it would be one of a runner's."""
        if (os.path.dirname(path) or ".") in self.reach.folders:
            return []
        text, rows = self.files.text(path), rows_for(os.path.basename(path), frozenset(self.reach.runners))
        made = [setting(path, runner, rank, section, text) for runner, rank, section in rows if text is not None]
        return [one for one in made if one is not None]

    def again(self, pieces: Iterable[Piece]) -> dict[str, Piece]:
        """These pieces as they now are, whether a command still leads to them or not."""
        from ralphproof.checks.pin_make import MakeCall

        once = Reach(self.files)
        for one in pieces:
            folder, name = os.path.split(one.path)
            if one.kind == SCRIPT:
                once.script(one.path, ".", 0)
            elif one.kind == TARGET:
                once.make(MakeCall(folder or ".", name, (one.name,)), 0)
            elif one.kind == VARIABLE:
                once.variable(one.path, one.name)
            elif one.kind == PACKAGE:
                once.scripts(one.path, (one.name.partition(" ")[2],))
        return once.pieces


def setting(path: str, runner: str, rank: int, section: str, text: str) -> Piece | None:
    """The settings of a runner in a file; None where it has none there."""
    bits = settings_in(os.path.basename(path), section, text)
    return None if bits is None else piece(SETTINGS, path, f"{runner} {section}".strip(), bits, runner, rank)
