"""Output that floods, is no text, or is meant for a terminal."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from tests.misbehaviour.agents import heard, plain
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import Terminal, exits
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
