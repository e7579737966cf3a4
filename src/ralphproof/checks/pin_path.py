"""Programs that are found inside the project before, or instead of, those of the machine."""

from __future__ import annotations

import os
import re

from ralphproof.checks.pin_files import ProjectFiles
from ralphproof.checks.pin_piece import PROGRAM, Piece, piece
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHADOWS, NAMED, VIRTUAL, PACKAGE = "shadows", "named", "virtual", "package"  # facts of a program beside its content
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
            for name in self._files.names(folder):
                path = os.path.normpath(os.path.join(folder, name))
                behind = self._behind(name, before)
                if not (name in wanted or behind) or self._files.is_folder(path) or not self._runs(path):
                    continue
                facts = {SHADOWS: "1" if behind else "", NAMED: "1" if name in wanted else ""}
                bits = {CONTENT: self._files.digest(path)} | {fact: "1" for fact, true in facts.items() if true}
                bits |= {VIRTUAL: "1"} if virtual else {}
                package = self._package(path) if folder.endswith("node_modules/.bin") else ""
                yield piece(PROGRAM, path, "", bits | ({PACKAGE: package} if package else {}), name)

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
