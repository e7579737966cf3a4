"""What runners load from the home directory of the user: no part of the project, and an agent may reach it."""

from __future__ import annotations

from ralphproof.checks.pin_files import ProjectFiles
from ralphproof.checks.pin_piece import SETTINGS, STARTUP, Piece, whole
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    versions = [name for name in files.names(_LIBRARIES, 50) if name.startswith("python")] if python else []
    for version in versions:
        for name in _STARTS:
            path = f"{_LIBRARIES}/{version}/site-packages/{name}"
            if known := files.digest(path):
                yield whole(STARTUP, f"~/{path}", known, name.partition(".")[0])
