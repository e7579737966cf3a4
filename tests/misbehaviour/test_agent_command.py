"""What a user may write as the agent's command, and what is started then."""

from __future__ import annotations

import json

import pytest

from tests.misbehaviour.agents import TAG, case, plain, run, seen
from tests.misbehaviour.invariants import hold, refusal
from tests.ralph import Ralph, done


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        case("CF-20-two-words", ["--model opus"], ["--model", "opus"]),
        case("CF-20-several", ["--model  opus", "-x", "--as if so"], ["--model", "opus", "-x", "--as", "if", "so"]),
        case("CF-20-no-dash", ["a b", "$HOME", "", "*"], ["a b", "$HOME", "", "*"]),
    ],
)  # fmt: skip
def test_a_flag_with_a_space_is_two_words(ralph: Ralph, flags: list[str], words: list[str]) -> None:
    """CF-20"""
    ralph.settings(agent={"flags": flags})
    agent = plain(ralph, [{"record": "../seen"}, done()])
    ended = run(ralph, "--check", "true", agent=agent)
    hold(ralph, ended)
    assert ended.code == 0, ended
    argv = seen(ralph)[0]["argv"]
    assert argv[argv.index("--plain") + 1 :] == words


@pytest.mark.parametrize(
    ("place", "command", "where"),
    [
        case("CF-21-home", "home/tools/agent", "~/tools/agent", "root"),
        case("CF-21-home-arguments", "home/tools/agent", "~/tools/agent --now", "root"),
        case("CF-21-home-spaces", "home/my tools/the agent", "~/my tools/the agent", "below"),
        case("CF-21-relative", "project/tools/agent", "tools/agent", "root"),
        case("CF-21-relative-from-below", "project/tools/agent", "tools/agent", "below"),
        case("CF-21-relative-from-elsewhere", "project/agent.sh", "./agent.sh", "elsewhere"),
        case("CF-21-spaces", "project/my tools/the agent", "my tools/the agent", "root"),
        case("CF-21-spaces-from-below", "project/my tools/the agent", "my tools/the agent", "below"),
        case("CF-21-spaces-from-elsewhere", "project/my tools/the agent", "./my tools/the agent", "elsewhere"),
        case("CF-21-quoted", "project/my tools/the agent", "'my tools/the agent' --now", "elsewhere"),
        case("CF-21-on-path-with-a-space", "bin/the agent", "'the agent'", "root"),
    ],
)
def test_an_agent_is_found_from_wherever_ralph_is_called(ralph: Ralph, place: str, command: str, where: str) -> None:
    """CF-21: relative to the project, in the home folder, or on PATH; a path may hold spaces."""
    path = ralph.folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\npwd > ../where\necho '{TAG}'\n")
    path.chmod(0o755)
    ralph.settings(agent={"command": command})
    (ralph.root / "src").mkdir()
    cwd = {"root": ralph.root, "below": ralph.root / "src", "elsewhere": ralph.home}[where]
    words = ("-d", str(ralph.root)) if where == "elsewhere" else ()
    ended = ralph("run", "-p", "make it so", "--check", "true", *words, cwd=cwd)
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert (ralph.folder / "where").read_text() == f"{ralph.root}\n"


def test_a_command_with_half_a_quote_is_refused(ralph: Ralph) -> None:
    """CF-21"""
    refusal(ralph, run(ralph, agent="agent 'it"), "agent 'it", "quotes")


def test_an_agent_that_nobody_knows_is_started_as_it_is(ralph: Ralph) -> None:
    """CF-22: no flag is added, and what it prints is text, whatever it looks like."""
    event = json.dumps({"type": "result", "is_error": True, "result": TAG})
    ralph.program("mystery", f"echo $# > ../count; cat > ../got; echo '{event}'; echo '{TAG}'")
    ended = run(ralph, "--check", "true", "-m", "1", agent="mystery")
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert (ralph.folder / "count").read_text() == "0\n"
    assert (ralph.folder / "got").read_text().startswith("make it so\n\n")
    assert ralph.state().history.latest.turn.text == f"{event}\n{TAG}\n"


def test_a_model_for_an_agent_that_nobody_knows_is_refused(ralph: Ralph) -> None:
    """CF-22: how to say it would be a guess."""
    ralph.program("mystery", "touch started")
    refusal(ralph, run(ralph, "--model", "opus", agent="mystery"), "mystery", "agent.flags")
