"""A project with tripwires, as the tests of them need it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from ralphproof.workspace.git_workspace import GitWorkspace
from ralphproof.workspace.protected_paths import ReservedPath, reserved_paths
from ralphproof.workspace.tripwires import ProtectedFileTripwires

if TYPE_CHECKING:
    from ralphproof.engine.workspace import TripwireReport
    from tests.workspace.conftest import Repo

RUN = "run-1"
STOPS = ("src/auth/", "migrations/", ".env")
SUBMODULE = (
    "git init -q ../m; (cd ../m; echo m > m; git add m; git commit -qm m);"
    "git -c protocol.file.allow=always submodule -q add ../m migrations/sub; git commit -qm sub"
)


class TripwireProject:
    """A run with its wires. `wires` may be made anew on the same vault, as after a crash."""

    def __init__(
        self, repo: Repo, git: GitWorkspace | None, stops: tuple[str, ...] = STOPS, own: tuple[ReservedPath, ...] = ()
    ) -> None:
        self.repo, self.git, self.stops = repo, git, stops
        self.own = own or reserved_paths(str(repo.path), {"PROMPT.md": "the prompt"})
        self.vault, self.kept, self.backup = repo.base / "vault", repo.base / "kept", repo.base / "backup"
        self.told: tuple[str, ...] = ()  # what arming said
        self.kept.mkdir(exist_ok=True)
        self.wires = self.anew()

    def anew(self) -> ProtectedFileTripwires:
        """Another process on the same vault, as far as that can be had in one."""
        root, vault = str(self.repo.path), str(self.vault)
        return ProtectedFileTripwires(
            root,
            vault,
            RUN,
            self.stops,
            self.own,
            self.git,
            lambda name: str(self.kept / name),
            backup=str(self.backup),
        )

    def arm(self) -> TripwireProject:
        if self.git:
            self.git.begin(RUN)
        self.told = self.wires.start_watching()
        return self

    def after(self, script: str, name: str = "agent_001") -> TripwireReport:
        """What the wires say after an agent did this."""
        self.repo.sh(script)
        return self.wires.check_and_restore(name)


def create_files(repo: Repo) -> None:
    """Files to protect, and others beside them."""
    repo.write("src/auth/a.py", "user = 1\nname = 2\n")
    repo.write("src/auth/deep/b.py", "deep\n")
    repo.write("src/auth/run.sh", "#!/bin/sh\n").chmod(0o755)
    repo.write("src/authors.py", "unprotected\n")
    repo.write("migrations/001.sql", "create;\n")
    repo.write(".gitignore", ".env\n.envrc\n__pycache__/\nbuild/\n")
    repo.write(".env", "SECRET=1\n").chmod(0o600)
    repo.write(".envrc", "export X=1\n")
    repo.write(".ralph/settings.json", "{}\n")
    repo.write("PROMPT.md", "do it\n")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "second")


def all_files(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its kind, permissions and content, git's own and our logs aside."""
    found = {}
    for above, names, files in os.walk(folder):
        names[:] = [name for name in names if name != ".git"]
        for name in (*files, *(one for one in names if os.path.islink(os.path.join(above, one)))):
            path = os.path.join(above, name)
            mode = os.lstat(path).st_mode
            content = os.fsencode(os.readlink(path)) if stat.S_ISLNK(mode) else b""
            content = Path(path).read_bytes() if stat.S_ISREG(mode) else content
            found[os.path.relpath(path, folder)] = (mode, content)
    return found


def watched(files: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    """Those of them that are protected."""
    return {path: one for path, one in files.items() if f"{path}/".startswith((".env/", "src/auth/", "migrations/"))}
