"""The board in tmux, as many people use it over ssh: what is on the screen, by tmux's own account."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.steering import let, over, reached
from tests.needs import require
from tests.ralph import PROGRAM, Ralph, until
from tests.tui.scene import CHECK, at_work


class Tmux:
    """A tmux server of our own with one window of one shell."""

    def __init__(self, ralph: Ralph, columns: int, rows: int) -> None:
        self._ralph = ralph
        self._socket = str(ralph.folder / "tmux")
        self("new-session", "-d", "-x", str(columns), "-y", str(rows), "sh")

    def __call__(self, *words: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *words]
        env = {**self._ralph.env, "PS1": "$ "}
        done = subprocess.run(command, cwd=self._ralph.root, env=env, capture_output=True, text=True, check=True)
        return done.stdout

    @property
    def screen(self) -> str:
        return self("capture-pane", "-p")

    def sees(self, *texts: str) -> str:
        try:
            until(lambda: all(text in self.screen for text in texts), f"{texts}")
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen shows:\n{self.screen}") from error
        return self.screen

    def type(self, *keys: str) -> None:
        self("send-keys", *keys)

    @property
    def alternate(self) -> bool:
        return self("display-message", "-p", "#{alternate_on}").strip() == "1"


@pytest.fixture
def tmux(ralph: Ralph) -> Iterator[Tmux]:
    require(shutil.which("tmux") is not None, "tmux is installed")
    ralph.write({"check.sh": CHECK})
    ralph.commit()
    made = Tmux(ralph, 80, 24)
    yield made
    made("kill-server")


def test_the_board_in_tmux(ralph: Ralph, tmux: Tmux) -> None:
    run = at_work(ralph)
    reached(ralph, "second")
    tmux.type(f"echo before; {' '.join(PROGRAM)} watch", "Enter")
    tmux.sees("1 runs", "● running", "Teach the parse")
    assert tmux.alternate
    tmux.type("Enter")
    tmux.sees("iteration 2: the agent works", "7 → 4", "Nesting needs a stack")
    tmux("resize-window", "-x", "200", "-y", "60")
    tmux.sees("to do: 3 of 4 done", "● works", "tokens")
    tmux("resize-window", "-x", "80", "-y", "24")
    let(ralph, "second")
    tmux.sees("✓ verified", "COMPLETED, verified by its checks")
    tmux.type("Escape")
    tmux.sees("1 in all", "✓ verified")
    tmux.type("q")
    until(lambda: not tmux.alternate, "the first screen is back")
    tmux.type("echo after $?", "Enter")
    tmux.sees("before", "after 0")
    over(ralph, run)
