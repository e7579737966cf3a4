from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ralphproof.workspace.git_workspace import GitWorkspace


class Repo:
    """A real repository with its own home, so that nothing of this machine's git settings takes part."""

    def __init__(self, base: Path, *init: str, first: bool = True, name: str = "repo") -> None:
        self.base, self.path, self.home = base, base / name, base / "home"
        self.path.mkdir()
        self.home.mkdir(exist_ok=True)
        (self.home / ".gitconfig").write_text("[user]\n\tname = U\n\temail = u@example.com\n")
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LC_ALL": "C"}
        self.git("init", "-q", "-b", "main", *init)
        if first:
            for number in range(1, 7):
                self.write(f"src/f{number}", f"{number}\n")
            self.write(".gitignore", "build/\n")
            self.git("add", "-A")
            self.git("commit", "-qm", "first")

    def write(self, path: str, text: str | bytes) -> Path:
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def git(self, *args: str, check: bool = True, stdin: bytes = b"") -> str:
        ran = subprocess.run(["git", *args], cwd=self.path, env=self.environ, input=stdin, capture_output=True)
        assert ran.returncode == 0 or not check, ran.stderr.decode()
        return ran.stdout.decode("utf-8", "surrogateescape").rstrip("\n")

    def sh(self, script: str) -> str:
        ran = subprocess.run(["sh", "-ec", script], cwd=self.path, env=self.environ, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    def asking_first(self, script: str) -> dict[str, str]:
        """An environment in which this is run before git is, with the same words; where it ends, git is not asked."""
        program = f'#!/bin/sh\n{script}\nexec {shutil.which("git")} "$@"\n'
        self.write("../asked-first/git", program).chmod(0o755)
        return self.environ | {"PATH": f"{self.base}/asked-first:{self.environ['PATH']}"}

    def blob(self, commit: str | None, path: str) -> bytes:
        return subprocess.run(["git", "cat-file", "blob", f"{commit}:{path}"], cwd=self.path, env=self.environ,
                              capture_output=True, check=True).stdout  # fmt: skip

    def files(self, commit: str | None) -> set[str]:
        listed = self.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", str(commit))
        return set(listed.split("\0")) - {""}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path)


@pytest.fixture
def make_repo(tmp_path: Path) -> Callable[..., Repo]:
    return lambda *init, **more: Repo(tmp_path, *init, **more)


@pytest.fixture
def open_git(tmp_path: Path) -> Iterator[Callable[..., GitWorkspace]]:
    """Opens workspaces and closes them all at the end."""
    opened: list[GitWorkspace] = []

    def opens(repo: Repo, path: Path | None = None, private: str = "private") -> GitWorkspace:
        opened.append(GitWorkspace(str(path or repo.path), str(tmp_path / private), repo.environ))
        return opened[-1]

    yield opens
    for workspace in opened:
        workspace.close()
