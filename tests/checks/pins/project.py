"""A project whose checks are pinned: real files, a real workspace, real notes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralphproof.engine.check import AlteredCheckInput
from ralphproof.engine.workspace import Snapshot
from ralphproof.evidence.pins import CheckPins
from ralphproof.store.run_folder import RunFolder
from ralphproof.workspace.plain_workspace import PlainWorkspace

STOPS, TOLD = True, False


@dataclass
class Pinned:
    """A project in `root`. `begin` pins what these commands go by; `altered` is what became of it since."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    allowed: Callable[[str], bool] = lambda _: False
    protect: bool = False
    commands: tuple[tuple[str, str], ...] = ()
    began: Snapshot = field(default_factory=lambda: Snapshot(None, None))
    saves: int = 0

    def __post_init__(self) -> None:
        self.root.mkdir()
        self.env.setdefault("PATH", os.environ["PATH"])
        self.workspace = PlainWorkspace(str(self.root), str(self.folder / "private"))

    @property
    def root(self) -> Path:
        return self.folder / "project"

    def write(self, files: Mapping[str, str | None]) -> None:
        """Write files; None deletes one."""
        for name, text in files.items():
            path = self.root / name
            if text is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if text.startswith("#!"):
                path.chmod(0o755)

    def pins(self) -> CheckPins:
        """As whoever has the run by now makes them."""
        folder = RunFolder(str(self.root), "20260101-000000-aaaa", str(self.folder / "state"))
        return CheckPins(
            str(self.root), self.commands, tuple(self.env.items()), folder, self.workspace, self.allowed, self.protect
        )

    def begin(self, *commands: str, folder: str = ".") -> None:
        self.commands = tuple((command, folder) for command in commands)
        self.began = self.workspace.begin("run")
        self.pins().begin()

    def altered(self, *theirs: str) -> tuple[AlteredCheckInput, ...]:
        """What is not as it was, as a process sees it that has just taken the run up."""
        self.saves += 1
        return self.pins().find_altered(self.began, self.workspace.save("run", str(self.saves)), frozenset(theirs))

    def told(self) -> list[tuple[str, bool]]:
        """The same in short: what is said, and whether it stops the run."""
        return [(one.message, one.stops) for one in self.altered()]
