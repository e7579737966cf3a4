"""A repository with finished work in it, and somebody who lands it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralphproof.engine.check import PassRule
from ralphproof.landing.merge_queue import Lander, MergedCheckRunner
from ralphproof.landing.targets import LandingTarget, LocalBranch
from ralphproof.proof.verification import StopRequests
from ralphproof.store.landings import AttestedCheck, Landed, LandingItem, LandingResult
from ralphproof.workspace.git_command import UserGit
from tests.ralph import Ralph

TARGET = "ralph/main"
CHECK = "sh check.sh"
# Green where no part is broken, and while there are fewer than three steps that do not fit together.
CHECKS = """set -e
for part in parts/*; do test -e "$part" || continue; grep -q good "$part"; done
test ! -e left -o ! -e right
"""


class Calm:
    """Nobody wants anything to end."""

    wake_fd = None

    def stop_reason(self) -> str:
        return ""

    def stop_level(self) -> int:
        return 0


def check(command: str = CHECK, **rule: object) -> AttestedCheck:
    return AttestedCheck(command, command, "", PassRule(**rule), True, False, True, 0, "exit", None, "")  # type: ignore[arg-type]


@dataclass
class Yard:
    """The repository of a project, where branches have finished work."""

    ralph: Ralph
    told: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ralph.write({"check.sh": CHECKS, "file": "".join(f"line {n}\n" for n in range(9))})
        self.ralph.commit()
        for name in ("name", "email"):
            self.git("config", f"user.{name}", "user")
        self.git("branch", TARGET)

    @property
    def users(self) -> UserGit:
        return UserGit(str(self.ralph.root), self.ralph.env)

    def git(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.ralph.root, env=self.ralph.env | dict(env or {}), capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def tip(self, branch: str = TARGET) -> str:
        return self.git("rev-parse", branch)

    def work(self, files: Mapping[str, str | None], on: str = "main", author: str = "ann", message: str = "") -> str:
        """A commit of these files on top of another one; None removes a file. Nobody's checkout is touched."""
        env = {"GIT_INDEX_FILE": str(self.ralph.folder / "index"), "GIT_WORK_TREE": str(self.ralph.folder)}
        self.git("read-tree", on, env=env)
        for name, text in files.items():
            if text is None:
                self.git("update-index", "--force-remove", name, env=env)
                continue
            done = subprocess.run(
                ["git", "hash-object", "-w", "--stdin"], cwd=self.ralph.root, env=self.ralph.env, input=text.encode(),
                capture_output=True, check=True,
            )  # fmt: skip
            self.git("update-index", "--add", "--cacheinfo", f"100644,{done.stdout.decode().strip()},{name}", env=env)
        who = {"GIT_AUTHOR_NAME": author, "GIT_AUTHOR_EMAIL": f"{author}@localhost", "GIT_AUTHOR_DATE": "@1000 +0100"}
        tree = self.git("write-tree", env=env)
        return self.git("commit-tree", tree, "-p", on, "-m", message or f"work on {', '.join(files)}", env=who)

    def item(self, run: str, files: Mapping[str, str | None], on: str = "main", *checks: AttestedCheck) -> LandingItem:
        return LandingItem(run, self.work(files, on), f"the work of {run}", checks or (check(),), task=f"T-{run}")

    def part(self, run: str, text: str = "good\n") -> LandingItem:
        """Work that goes with any other; it is red where it is not good."""
        return self.item(run, {f"parts/{run}": text})

    def land(
        self, *parcels: LandingItem, during: Callable[[], None] | None = None, **options: object
    ) -> list[LandingResult]:
        """Land them; what became of each, in the order in which it was decided."""
        project, environ = self.ralph.project, self.ralph.env
        ledger = project.ledger(read_only=False)
        target: LandingTarget = options.pop("target", None) or LocalBranch(self.users, TARGET)  # type: ignore[assignment]
        wishes: StopRequests = options.pop("wishes", None) or Calm()  # type: ignore[assignment]
        with MergedCheckRunner(project, environ, wishes, self.told.append) as examine:

            def counted(commit: str, checks: tuple[AttestedCheck, ...], setup: tuple[str, ...]) -> object:
                self.asked.append(commit)
                found = examine(commit, checks, setup)
                if during:
                    during()
                return found

            try:
                lander = Lander(
                    project, ledger, target, counted, self.told.append, environ=environ, **options,  # type: ignore[arg-type]
                )  # fmt: skip
                return list(lander.land(parcels))
            finally:
                ledger.close()

    def green(self, revision: str = TARGET) -> bool:
        """Whether the checks pass in a fresh clone."""
        with tempfile.TemporaryDirectory(dir=self.ralph.folder) as place:
            self.git("clone", "-q", "--no-checkout", "--shared", str(self.ralph.root), place)
            subprocess.run(["git", "checkout", "-q", self.tip(revision)], cwd=place, env=self.ralph.env, check=True)
            return subprocess.run(["sh", "check.sh"], cwd=place, check=False, capture_output=True).returncode == 0

    def files(self, revision: str = TARGET) -> set[str]:
        return set(self.git("ls-tree", "-r", "--name-only", revision).splitlines())


def landed(ends: Iterable[LandingResult]) -> list[str]:
    return [end.item.run for end in ends if isinstance(end, Landed)]


def turned_away(ends: Iterable[LandingResult]) -> list[str]:
    return [end.item.run for end in ends if not isinstance(end, Landed)]


def bytes_of(root: Path) -> dict[str, bytes]:
    """Files, index and HEAD of a checkout; nothing else of its repository."""
    files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    return {
        name: text
        for name, text in files.items()
        if not name.startswith(".git/") or name in (".git/HEAD", ".git/index")
    }
