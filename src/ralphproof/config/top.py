"""The files at the top of a project, and what they propose. Reads; executes nothing."""

from __future__ import annotations

import os
import re

from ralphproof.config.jsontext import Unusable, contents, decode, parse
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from typing import Any

MOST_NAMES = 2000  # of a folder are looked at


@value
class Proposal:
    """A check that a project seems to have, and the file that says so."""

    command: str
    source: str


class Top:
    """The top of a project. Each file is read once, never more than 1 MiB of it; `notes` tells what was passed over."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._texts: dict[str, str] = {}
        self.notes: list[str] = []

    def has(self, *names: str) -> str:
        """The first of these that is there; empty where none is."""
        return next((name for name in names if os.path.exists(os.path.join(self._root, name))), "")

    def runs(self, *names: str) -> str:
        """The first of these that is a program; empty where none is."""
        paths = {name: os.path.join(self._root, name) for name in names}
        return next((name for name, path in paths.items() if os.path.isfile(path) and os.access(path, os.X_OK)), "")

    def names(self, folder: str, shape: str) -> list[str]:
        """The files of a folder whose whole names match, with the folder before them; none where it cannot be read."""
        from itertools import islice

        try:
            with os.scandir(os.path.join(self._root, folder)) as entries:
                found = [entry.name for entry in islice(entries, MOST_NAMES)]
        except OSError:
            return []
        return sorted(os.path.join(folder, name) for name in found if re.fullmatch(shape, name))

    def text(self, name: str) -> str:
        """A file's text; empty where there is none that can be used."""
        if name not in self._texts:
            self._texts[name] = self._read(name)
        return self._texts[name]

    def _read(self, name: str) -> str:
        data = contents(os.path.join(self._root, name))
        text = decode(data) if isinstance(data, bytes) else data
        if isinstance(text, Unusable):
            self.notes.append(f"{name} was passed over: {text.why}")
        return text if isinstance(text, str) else ""

    def json(self, name: str) -> dict[str, Any]:
        if not (text := self.text(name)):
            return {}
        parsed = parse(text)
        if not parsed.faults and isinstance(parsed.data, dict):
            return parsed.data
        self.notes.append(f"{name} was passed over: {'; '.join(parsed.faults) or 'it holds no object'}")
        return {}

    def toml(self, name: str) -> dict[str, Any]:
        import tomllib

        try:
            return tomllib.loads(self.text(name))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            self.notes.append(f"{name} was passed over: {error}")
            return {}

    def sections(self, name: str) -> set[str]:
        """The section names of an INI file."""
        return set(re.findall(r"^\[([^\]\n]+)\]", self.text(name), re.MULTILINE))
