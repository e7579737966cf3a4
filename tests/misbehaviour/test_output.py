"""Output of agents and of checks that floods, is no text, lies, or is meant for a terminal."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from tests.misbehaviour.agents import TAG, heard, plain, prompt
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import Terminal, exits
from tests.misbehaviour.streams import done as claims
from tests.misbehaviour.streams import plays, run, turn
from tests.ralph import Ended, Ralph, done, say, until, write

MIB = 1 << 20


def test_an_endless_flood_is_bounded_and_ended(ralph: Ralph) -> None:
    """RU-15"""
    ralph.settings(agent={"timeoutSeconds": 1}, streamAgentOutput=False)
    ralph.program("flood", 'test "$RALPH_ITERATION" = 1 && exec yes; echo "<response>DONE</response>"')
    live = ralph.start("run", "-p", "make it so", "--agent", "flood", "--check", "true", "-m", "2")
    peak = 0
    while live.process.poll() is None:
        peak = max(peak, resident(live.process.pid))
        time.sleep(0.02)
    ended = live.end()
    hold(ralph, ended)
    assert (ended.code, [end.why for end in exits(ralph)]) == (0, ["timeout", "exit"]), ended
    assert peak < 200 * MIB
    log = ralph.run_folder() / "agent_001.ndjson"
    assert log.stat().st_size <= 80 * MIB
    if exits(ralph)[0].dropped_bytes:
        assert b"[truncated]" in log.read_bytes()


def resident(pid: int) -> int:
    """How much memory a process takes now, in bytes."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


NOISE = "\x00\xff\xfe\x80\xc3\x28\xed\xa0\x80"  # no text in any encoding that we know


def test_bytes_that_are_no_text_do_not_drown_a_claim(ralph: Ralph) -> None:
    """RU-18"""
    agent = plain(ralph, [{"raw": f"{NOISE}\n"}, {"stderr": "x"}, write(work="1"), done(), {"raw": f"{NOISE}\n"}])
    ended = ralph(
        "run", "-p", "make it so", "--agent", agent, "--check", f"printf '{NOISE[1:4]}'; test -f work", "-m", "1"
    )
    hold(ralph, ended)
    assert (ended.code, heard(ralph)) == (0, ["DONE"]), ended
    log = (ralph.run_folder() / "agent_001.ndjson").read_bytes()
    assert log.count(NOISE.encode("latin-1")) == 2, "raw"
    assert ralph("logs").code == ralph("status").code == 0


TRICKS = {
    "clipboard": "\x1b]52;c;cHduZWQ=\x07",
    "link": "\x1b]8;;http://localhost/\x1b\\click\x1b]8;;\x1b\\",
    "title": "\x1b]0;pwned\x07",
    "clear": "\x1b[2J\x1b[H",
    "answer": "\x1b[6n",
    "device": "\x1bP$q\x1b\\",
    "c1": "\x9b2J\x9d0;pwned\x9c",
    "unfinished": "\x1b]0;never ends",
}


@pytest.mark.parametrize("name", TRICKS)
def test_what_only_a_terminal_would_obey_never_reaches_one(ralph: Ralph, name: str) -> None:
    """RU-21: on the way through, in what verbs show later, and in names; the log has it as it was."""
    trick = TRICKS[name]
    ralph.settings(guardrails=[{"command": "cat trick; test -f work", "name": f"check {trick}"}])
    agent = plain(
        ralph, [write(trick=trick), say(f"before {trick}\n"), {"tool": {"name": trick}}], [write(work="1"), done()]
    )
    with Terminal() as terminal:
        process = terminal.start(ralph, "run", "-p", f"make {trick} so", "--agent", agent, "-m", "2", "--verbose")
        until(lambda: terminal.read() and process.poll() is not None, "the run is over")
        shown = terminal.read().decode("utf-8", "surrogateescape")
    assert process.returncode == 0, shown
    for text in (shown, ralph("status").out, ralph("logs").out, ralph("logs", "--iteration", "1").out):
        assert no_orders(text), repr(text)
    assert trick.encode() in (ralph.run_folder() / "agent_001.ndjson").read_bytes()
    hold(ralph, Ended(process.returncode, shown, ""))


def no_orders(text: str) -> bool:
    """Nothing but colours is left of what a terminal would obey."""
    return not re.search("[\x1b\x07\x80-\x9f]", re.sub(r"\x1b\[[0-9;]*m", "", text))


@pytest.mark.parametrize("mode", ["ends", "head"])
def test_a_letter_is_never_cut_in_two_where_an_output_is_cut(ralph: Ralph, mode: str) -> None:
    """RU-19: of a check that prints more than is looked at, with letters of three bytes."""
    ralph.settings(outputTruncateMode=mode)
    ralph.write({"printed": "x" + "漢" * MIB})
    plays(ralph, "claude", turn("claude"))
    run(ralph, "claude", check="cat printed; exit 1", most=2)
    shown = prompt(ralph, 2)
    assert "... [truncated]" in shown
    assert "\ufffd" not in shown
    assert 4990 <= shown.count("漢") <= 5000


def test_a_check_that_prints_without_end_is_cut(ralph: Ralph) -> None:
    """RU-30: in its log, which keeps both ends, and more so in the prompt."""
    plays(ralph, "claude", turn("claude"))
    once = "test -e ../before || { touch ../before; exit 1; }; mkdir ../asked || exit 1"
    check = f"{once}; echo first; yes | head -c {90 * MIB}; echo last; exit 1"
    run(ralph, "claude", check=check, most=2)
    finding = ralph.state().history.iterations[0].report.findings[0]
    kept = (ralph.root / finding.log).read_bytes()
    assert kept.startswith(b"first\ny\n")
    assert kept.endswith(b"y\nlast\n")
    assert b"[truncated]" in kept
    assert 64 * MIB <= len(kept) <= 80 * MIB
    shown = prompt(ralph, 2)
    assert "first\ny\n" in shown
    assert "... [truncated]" in shown
    assert len(shown) < 6000


@pytest.mark.parametrize("code", [0, 1])
def test_a_tag_that_a_check_prints_completes_nothing(ralph: Ralph, code: int) -> None:
    """RU-32: not when it is printed, nor when the next prompt shows it, nor when that prompt is echoed."""
    ralph.program("parrot", "cat")
    ended = run(ralph, "parrot", check=f"echo '{TAG}'; exit {code}", most=3)
    assert (ended.code, heard(ralph)) == (1, [None, None, None]), ended
    assert (f"Output (truncated):\n{TAG}\n" in prompt(ralph, 2)) is bool(code)


def test_checks_whose_names_look_alike_have_logs_of_their_own(ralph: Ralph) -> None:
    """RU-33: also two that leave nothing of their names."""
    names = ("…", "¿")
    for name in names:
        ralph.write({name: f"#!/bin/sh\necho {name}\n"})
        (ralph.root / name).chmod(0o755)
    commands = ["echo a b", "echo  a-b", "echo A B", *(f"./{name}" for name in names)]
    ralph.settings(guardrails=[{"command": command} for command in commands])
    plays(ralph, "claude", claims())
    ended = ralph("run", "-p", "make it so", "--agent", "claude", "-m", "1")
    hold(ralph, ended)
    assert ended.code == 0, ended
    logs = [finding.log for finding in ralph.state().history.latest.report.findings]
    assert [(ralph.root / path).read_text() for path in logs] == ["a b\n", "a-b\n", "A B\n", "…\n", "¿\n"]
    assert len({path.casefold() for path in logs}) == len(commands)
