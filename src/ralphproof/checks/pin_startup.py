"""What Python and pytest load unasked: conftest files, start-up modules, modules that stand before the runner's own."""

from __future__ import annotations

import os
import sys

from ralphproof.checks.pin_conftest import statements, unread
from ralphproof.checks.pin_files import OWN, ProjectFiles
from ralphproof.checks.pin_piece import CONFTEST, PLUGIN, SHADOW, STARTUP, Piece, piece, whole
from ralphproof.checks.pin_runners import MODULES
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FOLDERS = 20_000  # entries of folders that are looked through
CONFTESTS = 500  # that are read; of others it is only known whether they changed
STARTS = ("sitecustomize", "usercustomize")
ENDINGS = (".py", ".pyc", ".so", ".pyd")
VIRTUAL = "pyvenv.cfg"
WEAK = 1  # the rank of a module that stands before one of Python's own
_PASSED_OVER = frozenset((*OWN, "node_modules", "__pycache__"))


def conftests(files: ProjectFiles) -> Iterator[Piece]:
    """Every conftest that pytest might load."""
    for number, path in enumerate(_found(files, "conftest.py")):
        content = files.read(path) or b""
        known = statements(content.decode("utf-8", "replace")) if number < CONFTESTS else unread(content)
        yield piece(CONFTEST, path, "", known)


def _found(files: ProjectFiles, wanted: str) -> Iterator[str]:
    """Where files of this name lie; hidden folders and virtual environments are passed over, as pytest does."""
    waiting, left = [""], FOLDERS
    while waiting and left > 0:
        folder = waiting.pop(0)
        below: list[str] = []
        found = virtual = False
        try:
            with os.scandir(os.path.join(files.root, folder)) as entries:
                for entry in entries:
                    left -= 1
                    name = entry.name
                    found, virtual = found or name == wanted, virtual or name == VIRTUAL
                    if not name.startswith(".") and name not in _PASSED_OVER and entry.is_dir(follow_symlinks=False):
                        below.append(f"{folder}{name}/")
        except OSError:
            continue
        if virtual:
            continue
        if found:
            yield folder + wanted
        waiting += sorted(below)


def modules(files: ProjectFiles, folders: Iterable[str], first: Iterable[str]) -> Iterator[Piece]:
    """Modules that would be loaded instead of the runner's own, or before everything else.

    Those of `first` come before Python's own modules too.
    """
    own, standard = frozenset(first), sys.stdlib_module_names
    for folder in sorted(set(folders) | own):
        for name in files.names(folder):
            stem = name.partition(".")[0]
            path = name if folder == "." else f"{folder}/{name}"
            known = stem in MODULES or stem in STARTS
            if not (known or (folder in own and stem in standard)) or not _is_module(files, path):
                continue
            kind = STARTUP if stem in STARTS else SHADOW
            digests = _digests(files, path)
            if digests:
                yield piece(kind, path, "", digests, stem, 0 if known else WEAK)


def _is_module(files: ProjectFiles, path: str) -> bool:
    """A folder without an `__init__` never stands before a module that is installed."""
    if path.endswith(ENDINGS):
        return not files.is_folder(path)
    return "." not in os.path.basename(path) and any(one.startswith("__init__.") for one in files.names(path))


def _digests(files: ProjectFiles, path: str) -> dict[str, str]:
    if not files.is_folder(path):
        return {"": files.digest(path)}
    return {name: files.digest(f"{path}/{name}") for name in files.names(path, 200) if name.endswith(ENDINGS)}


def environments(files: ProjectFiles) -> Iterator[Piece]:
    """What virtual environments inside the project load by themselves."""
    for site in _sites(files):
        names = files.names(site, 20_000)
        yield piece(PLUGIN, site, "packages", {name: "" for name in names if name.endswith(".dist-info")})
        for name in names:
            if name.endswith(".pth"):
                yield whole(PLUGIN, f"{site}/{name}", files.digest(f"{site}/{name}"))
            elif name.partition(".")[0] in STARTS and _is_module(files, f"{site}/{name}"):
                yield piece(STARTUP, f"{site}/{name}", "", _digests(files, f"{site}/{name}"), name.partition(".")[0])


def _sites(files: ProjectFiles) -> Iterator[str]:
    above = [name for name in files.names(".") if name not in _PASSED_OVER and files.is_folder(name)]
    below = [
        f"{folder}/{name}"
        for folder in above[:200]
        if "." not in folder and not files.there(f"{folder}/{VIRTUAL}")
        for name in files.names(folder)[:200]
        if name in ("venv", ".venv", "env", ".env", "virtualenv")
    ]
    for folder in (*above, *below):
        if files.there(f"{folder}/{VIRTUAL}"):
            libs = [f"{folder}/lib/{name}/site-packages" for name in files.names(f"{folder}/lib")]
            yield from (site for site in (*libs, f"{folder}/Lib/site-packages") if files.is_folder(site))


def adds_plugins(files: ProjectFiles, site: str, package: str) -> bool:
    """Whether an installed package hooks into pytest by being there."""
    return "[pytest11]" in (files.text(f"{site}/{package}/entry_points.txt") or "")
