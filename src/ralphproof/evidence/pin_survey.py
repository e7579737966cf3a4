"""The survey of all that decides over the checks of a run: settings, search path, home directory."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Mapping

from ralphproof.base.value import Json
from ralphproof.evidence import pin_startup
from ralphproof.evidence.pin_make import MakeCall
from ralphproof.evidence.pin_pieces import (
    PACKAGE,
    PROGRAM,
    SCRIPT,
    SETTINGS,
    STARTUP,
    TARGET,
    VARIABLE,
    Piece,
    ProjectFiles,
    piece,
    whole,
)
from ralphproof.evidence.pin_reach import Reach
from ralphproof.evidence.pin_runners import RUNNERS, TESTING, rows_for, settings_in, tables_in

# Programs that are found inside the project before, or instead of, those of the machine.


SHADOWS, NAMED, VIRTUAL, PACKAGE_BIN = "shadows", "named", "virtual", "package"  # facts of a program beside its content
# The package of a program that npm or its kin put there.
_WHERE = r"(?:^|/)(?:node_modules/|\.\./)((?:@[^/\s\"']+/)?[^/.\s\"'][^/\s\"']*)/"
CONTENT = ""


class SearchPath:
    """A PATH, as commands in these folders of the project search it; npm's come first where it is `packages`'."""

    def __init__(self, files: ProjectFiles, path: str, folders: Iterable[str], packages: Iterable[str]) -> None:
        self._files = files
        self._outside: list[str] = []
        self._inside: list[tuple[str, int]] = []  # with how many of the outside folders come before
        for package in sorted(packages):
            self._inside.append((os.path.normpath(os.path.join(package, "node_modules/.bin")), 0))
        for entry in path.split(os.pathsep):
            for folder in sorted({*folders, "."}) if not os.path.isabs(entry) else (".",):
                own = self._own(entry, folder)
                if own:
                    self._inside.append((own, len(self._outside)))
            if os.path.isabs(entry) and not self._own(entry, "."):
                self._outside.append(entry)

    def _own(self, entry: str, folder: str) -> str:
        """The folder from the root that an entry means; empty where it lies outside."""
        if not os.path.isabs(entry):
            plain = os.path.normpath(os.path.join(folder, entry))
            return "" if plain.startswith("..") else plain
        real = os.path.realpath(entry)
        if real == self._files.root:
            return "."
        return os.path.relpath(real, self._files.root) if real.startswith(self._files.root + "/") else ""

    def programs(self, named: Iterable[str]) -> Iterator[Piece]:
        """Every program in the project's own folders that the checks name, or that stands before another one."""
        wanted = frozenset(named)
        for folder, before in dict(reversed(self._inside)).items():
            virtual = self._files.there(os.path.normpath(os.path.join(folder, "..", "pyvenv.cfg")))
            for name in self._files.list_files(folder):
                path = os.path.normpath(os.path.join(folder, name))
                behind = self._behind(name, before)
                if not (name in wanted or behind) or self._files.is_folder(path) or not self._runs(path):
                    continue
                facts = {SHADOWS: "1" if behind else "", NAMED: "1" if name in wanted else ""}
                bits = {CONTENT: self._files.digest(path)} | {fact: "1" for fact, true in facts.items() if true}
                bits |= {VIRTUAL: "1"} if virtual else {}
                package = self._package(path) if folder.endswith("node_modules/.bin") else ""
                yield piece(PROGRAM, path, "", bits | ({PACKAGE_BIN: package} if package else {}), name)

    def _package(self, path: str) -> str:
        """The package that a program was installed from: a link leads there; pnpm's are short scripts that name it."""
        try:
            text = os.readlink(os.path.join(self._files.root, path))
        except OSError:
            text = (self._files.text(path) or "")[:4096] if "/.pnpm/" in (self._files.text(path) or "")[:4096] else ""
        found = [one for one in re.findall(_WHERE, text) if one != ".pnpm"]
        return found[-1] if found else ""

    def _behind(self, name: str, before: int) -> bool:
        """Whether a program of this name would be found further on."""
        return any(os.access(os.path.join(folder, name), os.X_OK) for folder in self._outside[before:])

    def _runs(self, path: str) -> bool:
        return os.access(os.path.join(self._files.root, path), os.X_OK)


# What runners load from the home directory of the user: no part of the project, and an agent may reach it.


# Files that no program writes by itself.
_FILES = {
    "npm": (".npmrc",),
    "pnpm": (".npmrc",),
    "yarn": (".npmrc",),
    "cargo": (".cargo/config.toml", ".cargo/config"),
}
_STARTS = ("usercustomize.py", "sitecustomize.py")
_LIBRARIES = ".local/lib"


def home_pieces(home: str, runners: Iterable[str], python: bool) -> Iterator[Piece]:
    """Settings and start-up modules there, by paths that begin with `~`."""
    files = ProjectFiles(home)
    for runner in sorted(runners):
        for path in _FILES.get(runner, ()):
            if known := files.digest(path):
                yield whole(SETTINGS, f"~/{path}", known, runner)
    versions = [name for name in files.list_files(_LIBRARIES, 50) if name.startswith("python")] if python else []
    for version in versions:
        for name in _STARTS:
            path = f"{_LIBRARIES}/{version}/site-packages/{name}"
            if known := files.digest(path):
                yield whole(STARTUP, f"~/{path}", known, name.partition(".")[0])


# All that decides over the checks of a run, in the project as it now is.


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
        names = self.files.list_files(folder)
        for runner in sorted(runners):
            for rank, (pattern, section) in enumerate(RUNNERS[runner].rows):
                within, _, last = pattern.rpartition("/")
                for name in fnmatch.filter(self.files.list_files(f"{folder}/{within}") if within else names, last):
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
        found: list[Piece] = []
        if self.reach.runners & TESTING:
            found += pin_startup.conftests(self.files)
        found += pin_startup.modules(self.files, {".", "src"}, self.reach.python_paths)
        found += pin_startup.environments(self.files)
        self.pieces.update((one.key, one) for one in found)

    def _at_home(self) -> None:

        found = home_pieces(self._home, self.reach.runners, self.reach.python)
        self.pieces.update((one.key, one) for one in found)

    def _programs(self) -> None:
        if not self.reach.programs:
            return

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
