"""`ralph watch` as a program at a terminal: it is left as it was found, however the board ends; and without one."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cli.missing_packages import without
from tests.cli.steering import let, over, reached
from tests.cli.terminal import Terminal
from tests.ralph import Ralph, done, until
from tests.tui.scene import CHECK, at_work

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"  # the other screen
ESCAPE = "\x1b[27u"  # as newer terminals send it: no key that follows can be taken for a part of it
COLOURS = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:[;m])")


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ralph]:
    """A project with a run that is over."""
    made = Ralph(tmp_path_factory.mktemp("watch") / "idle")
    made.commit()
    assert made("run", "-p", "say hello", "--agent", made.script([done()])).code == 0
    yield made
    made.close()


class Seated(Terminal):
    """Somebody at a terminal of a certain size who has `ralph watch` before them."""

    def size(self, columns: int, rows: int) -> None:
        termios.tcsetwinsize(self._ours, (rows, columns))

    def opened(self) -> Seated:
        self.expect(ENTER)
        self.expect("say hello")
        return self

    def restored(self, before: list[object]) -> bool:
        """The first screen is back, the cursor is seen, no mouse is reported, and keys are what they were."""
        self._pull(0)
        last = {mode: self.shown.rfind(f"\x1b[?{mode}") for mode in ("1049", "25", "1000", "1003", "2004", "7")}
        ends = {mode: self.shown[at + 3 + len(mode)] for mode, at in last.items() if at >= 0}
        known = {"1049": "l", "25": "h", "1000": "l", "1003": "l", "2004": "l", "7": "h"}
        return ends == {mode: known[mode] for mode in ends} and "1049" in ends and self.modes() == before


def seated(ralph: Ralph, *argv: str, via: tuple[str, ...] = (), env: Mapping[str, str] | None = None) -> Seated:
    made = Seated(ralph, "watch", *argv, via=via, env=env)
    made.size(80, 24)
    return made


def last_words(terminal: Terminal) -> str:
    """What is on the first screen after the board."""
    return terminal.shown.rpartition(LEAVE)[2]


@pytest.mark.parametrize("key", ["q", "\x03"], ids=["q", "Ctrl-C"])
def test_leaving_restores_the_terminal(idle: Ralph, key: str) -> None:
    terminal = seated(idle)
    before = terminal.modes()
    terminal.opened().type(key)
    until_restored(terminal, before)
    assert terminal.end() == 0
    assert "Traceback" not in terminal.shown


def until_restored(terminal: Seated, before: list[object]) -> None:
    terminal.expect(LEAVE)
    until(lambda: terminal.restored(before), "the terminal is as it was")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_restores_the_terminal(idle: Ralph, number: signal.Signals) -> None:
    """WB-13: the watcher is ended while it has the other screen."""
    terminal = seated(idle)
    before = terminal.modes()
    terminal.opened()
    os.kill(terminal.pid, number)
    until_restored(terminal, before)
    assert terminal.end() == 130
    assert "Traceback" not in terminal.shown


BROKEN = """
import sys
from ralphproof.views.read_model import ReadModel
real = ReadModel.{method}
calls = []
def broken(*args, **kwargs):
    calls.append(1)
    if len(calls) > {after}:
        raise {error}
    return real(*args, **kwargs)
ReadModel.{method} = broken
sys.argv = sys.argv[3:]  # less `python -m ralphproof`
from ralphproof.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("method", "error", "code", "line"),
    [
        (
            "runs",
            "ValueError('[red]secret words of an agent[/]')",
            3,
            "internal error (ValueError: [red]secret",
        ),
        ("moment", "KeyError('n')", 3, "internal error (KeyError: 'n')"),
    ],
)
def test_an_exception_in_a_page_restores_the_terminal_and_is_one_line(
    idle: Ralph, tmp_path: Path, method: str, error: str, code: int, line: str
) -> None:
    """WB-13: our own fault while the board has the other screen."""
    script = tmp_path / "broken.py"
    script.write_text(BROKEN.format(method=method, error=error, after=0 if method == "runs" else 3))
    terminal = seated(idle, via=(sys.executable, str(script)))
    before = terminal.modes()
    terminal.expect(ENTER)
    until_restored(terminal, before)
    assert terminal.end() == code
    words = [word for word in last_words(terminal).splitlines() if "ralph" in word]
    assert len(words) == 1
    assert line in words[0]
    assert "Traceback" not in terminal.shown


def test_what_cannot_be_read_is_said_and_the_board_stays(idle: Ralph, tmp_path: Path) -> None:
    script = tmp_path / "refused.py"
    script.write_text(BROKEN.format(method="runs", error="OSError(5, 'Input/output error', 'ledger.db')", after=1))
    terminal = seated(idle, via=(sys.executable, str(script)))
    terminal.opened().type("2")
    terminal.expect("no task yet")
    terminal.type("1")
    terminal.expect("Input/output error")
    terminal.type("q")
    assert terminal.end() == 0


def test_a_terminal_that_is_taken_away_ends_the_watcher(idle: Ralph) -> None:
    """WB-13: a window is closed, or a connection lost."""
    terminal = seated(idle).opened()
    assert terminal.hang_up() == 130


def home(terminal: Seated) -> bool:
    """Whether the way back to the list leads there."""
    before = len(terminal.shown)
    for key in (ESCAPE, "1"):
        terminal.type(key)
        terminal._pull(0.1)
    for columns in (79, 80):
        terminal.size(columns, 24)
        terminal._pull(0.2)
    return "1 in all" in terminal.shown[before:]


def test_a_tiny_terminal_and_a_storm_of_sizes_do_no_harm(idle: Ralph) -> None:
    """WB-12: one cell, and a hundred sizes one after another, on every page."""
    terminal = Seated(idle, "watch")
    terminal.size(1, 1)
    terminal.expect(ENTER)
    choose = random.Random(7)
    for key in ("", "\r", "\r", ESCAPE, "d", ESCAPE, "l", "\r", "2", "?", ESCAPE, "1", "s", *[ESCAPE] * 4):
        terminal.type(key)
        for _ in range(8):
            terminal.size(choose.choice((1, 2, 7, 20, 80, 120, 200)), choose.choice((1, 2, 5, 24, 60)))
            terminal._pull(0.01)
    until(lambda: home(terminal), "the list of runs is seen")  # a key may have met a page that was not there yet
    terminal.expect("say hello")
    terminal.type("\x03")
    assert terminal.end() == 0
    assert "Traceback" not in terminal.shown


def test_without_colour_no_colour_is_sent(idle: Ralph) -> None:
    for flags, env in ((("--no-color", "--no-emoji"), {}), ((), {"NO_COLOR": "1"})):
        terminal = seated(idle, *flags, env={"COLORTERM": "truecolor", **env}).opened()
        terminal.type("q")
        assert terminal.end() == 0
        assert COLOURS.findall(terminal.shown) == []
    coloured = seated(idle, env={"COLORTERM": "truecolor"}).opened()
    coloured.type("q")
    assert coloured.end() == 0
    assert COLOURS.findall(coloured.shown)


def test_the_board_follows_a_run_and_says_at_the_end_that_it_goes_on(ralph: Ralph) -> None:
    ralph.write({"check.sh": CHECK})
    ralph.commit()
    run = at_work(ralph)
    reached(ralph, "second")
    terminal = seated(ralph, "latest")
    terminal.expect("iteration 2: the agent works")
    terminal.expect("Nesting needs a stack")
    terminal.type("q")
    assert terminal.end() == 0
    assert f"run {run} continues; open again: ralph watch" in last_words(terminal)
    let(ralph, "second")
    assert over(ralph, run)["status"] == "COMPLETED"


# Without a terminal


def test_without_a_terminal_it_prints_once(idle: Ralph) -> None:
    """WB-12: no terminal at any stream."""
    data = idle("watch")
    assert (data.code, data.err) == (0, "ralph attach follows one run\n")
    assert data.out == idle("status", "--all").out
    assert idle("watch", "-q").err == ""
    assert idle("watch", "latest").out.startswith("run ")
    data = idle("watch", "nowhere")
    assert (data.code, data.out) == (2, "")


def test_json_is_one_object(idle: Ralph) -> None:
    data = idle("watch", "--json").json
    assert (data["v"], data["type"], data["total"]) == (1, "runs", 1)
    assert data["runs"][0]["title"] == "say hello"
    data = idle("watch", "latest", "--json").json
    assert (data["type"], data["title"], len(data["timeline"])) == ("run", "say hello", 1)


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_gets_lines(idle: Ralph, term: str) -> None:
    """WB-12: TERM=dumb, or none."""
    terminal = seated(idle, env={"TERM": term})
    assert terminal.end() == 0
    assert "ralph attach follows one run" in terminal.shown
    assert "\x1b" not in terminal.shown


@pytest.mark.parametrize("stream", ["0</dev/null", ">/dev/null", "2>/dev/null"])
def test_one_stream_that_is_no_terminal_is_enough(idle: Ralph, stream: str) -> None:
    """WB-12: the board needs all three; what is printed goes where it was sent."""
    terminal = seated(idle, via=("/bin/sh", "-c", f'"$@" {stream}', "sh"))
    assert terminal.end() == 0
    assert "\x1b" not in terminal.shown


def test_a_missing_extra_is_named_in_one_line(idle: Ralph) -> None:
    terminal = seated(idle, env=without(idle, "textual"))
    assert terminal.end() == 2
    assert terminal.shown.splitlines() == [
        "ralph: ralph watch needs Textual; install it: pip install 'ralphproof[tui]'"
    ]


def test_no_other_verb_pays_for_the_board(idle: Ralph) -> None:
    code = """
import sys
from ralphproof.cli.dispatch import dispatch
dispatch(["status"]), dispatch(["watch"]), dispatch(["watch", "--json"])
print([name for name in sys.modules if name.partition(".")[0] in ("textual", "rich")])
"""
    data = subprocess.run(
        [sys.executable, "-c", code], cwd=idle.root, env=idle.env, capture_output=True, text=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert data.stdout.splitlines()[-1] == "[]", data
