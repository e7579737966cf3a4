"""Secrets that pass through a run are in nothing that it wrote."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.misbehaviour.invariants import hold
from tests.ralph import Ended, Ralph, done, say, write

IN_ENVIRONMENT = "canary-in-the-coal-mine-1234"
IN_A_URL = "p4ssw0rd-of-the-proxy"
KEY_SHAPED = "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
IN_SETTINGS = "only-the-agent-gets-this"
SECRETS = (IN_ENVIRONMENT, IN_A_URL, KEY_SHAPED, IN_SETTINGS)
# As `grep --color` prints it.
COLOURED = f"{IN_ENVIRONMENT[:6]}\x1b[01;31m\x1b[K{IN_ENVIRONMENT[6:9]}\x1b[m\x1b[K{IN_ENVIRONMENT[9:]}"
ALL = " and ".join((*SECRETS, COLOURED))
GIVEN = {"ANTHROPIC_API_KEY": IN_ENVIRONMENT, "HTTPS_PROXY": f"http://user:{IN_A_URL}@localhost:1"}


def written(ralph: Ralph) -> Iterator[tuple[Path, bytes]]:
    """Every file that the run wrote, as far as the agent's own work is not in it; those of git unpacked."""
    for top in (ralph.state_dir, ralph.root / ".ralph"):
        for path in top.rglob("*"):
            if path.is_file() and not path.is_symlink():
                data = path.read_bytes()
                yield path, zlib.decompress(data) if "objects" in path.parts and data[:1] == b"\x78" else data


def leaks(ralph: Ralph, *, but: tuple[str, ...] = ()) -> list[str]:
    """Where a secret can be read."""
    return [
        f"{path.relative_to(ralph.folder)}: {secret}"
        for path, data in written(ralph)
        for secret in shown_in(data.decode("utf-8", "replace"))
        if path.name not in but
    ]


def shown_in(text: str) -> list[str]:
    """The secrets that can be read in a text, whatever colours it has."""
    plain = re.sub(r"(?:\x1b|\\u001b)\[[0-9;]*[mK]", "", text)
    return [secret for secret in SECRETS if secret in text or secret in plain]


@pytest.mark.parametrize("in_git", [True, False])
@pytest.mark.parametrize("flags", [("--verbose",), ("--json",)])
def test_a_secret_is_in_nothing_that_a_run_wrote(ralph: Ralph, in_git: bool, flags: tuple[str, ...]) -> None:
    """SC-06: the agent says it, on both streams and in a tool's output, checks print it, prompts and names hold it."""
    if in_git:
        ralph.commit()
        ralph.git("config", "user.name", "user")
        ralph.git("config", "user.email", "user@localhost")
    guardrails = [
        {"command": f"echo {ALL}; env; test -f work", "name": f"check {IN_ENVIRONMENT}", "hint": f"try {KEY_SHAPED}"},
        {"command": "test -f work"},
    ]
    scm = {"scm": {"command": "git", "tasks": ["commit"]}} if in_git else {}
    ralph.settings(guardrails=guardrails, agent={"env": {"OTHER_TOKEN": IN_SETTINGS}}, **scm)
    tool = {"tool": {"name": "cat", "summary": ALL, "output": ALL}}
    agent = ralph.script(
        [say(f"I use {ALL}."), {"stderr": ALL}, tool, {"raw": f"{ALL}\n"}, say(f"Not yet: {ALL}")],
        [write(work="1"), {"append": {".ralph/latest/task/note": "mine"}}, say(f"{ALL}\n<response>DONE</response>")],
        message=[say(f"Use {KEY_SHAPED} and {IN_ENVIRONMENT}")],
    )
    ended = ralph("run", "-p", f"use {ALL}", "--agent", agent, "-m", "3", *flags, env=GIVEN)
    hold(ralph, ended if "--json" not in flags else Ended(ended.code, "", ended.err))
    assert ended.code == 0, ended
    assert leaks(ralph, but=("settings.json",)) == [], "what the user wrote down himself is his"
    assert shown_in(ended.err + ended.out) == []
    if in_git:
        everything = "\n".join(ralph.git("cat-file", "-p", name) for name in names_in(ralph))
        assert shown_in(everything) == []


def names_in(ralph: Ralph) -> list[str]:
    """Every commit that a ref of the project leads to: the saves, and what the SCM step committed."""
    return ralph.git("rev-list", "--all").split()


def test_a_secret_that_the_agent_writes_into_a_file_is_its_own_work(ralph: Ralph) -> None:
    """SC-06: files are saved as they are; what is said about them is not."""
    ralph.commit()
    agent = ralph.script([write(**{"config.py": f'KEY = "{IN_ENVIRONMENT}"\n'}), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", "cat config.py", "-m", "1", env=GIVEN)
    assert ended.code == 0
    hold(ralph, ended)
    assert ralph.git("show", f"{ralph.state().trees.current.ref}:config.py") == f'KEY = "{IN_ENVIRONMENT}"\n'
    assert leaks(ralph) == []


def test_verbs_that_only_look_show_no_secret(ralph: Ralph) -> None:
    """SC-06"""
    ralph.settings(agent={"env": {"OTHER_TOKEN": IN_SETTINGS}})
    agent = ralph.script([say(f"I use {ALL}."), {"stderr": ALL}, write(work="1"), done()])
    ralph("run", "-p", f"use {ALL}", "--agent", agent, "--check", f"echo {ALL}", "-m", "1", env=GIVEN)
    for argv in (["status"], ["status", "--json"], ["logs"], ["logs", "--json"], ["diff"]):
        shown = ralph(*argv, env=GIVEN)
        assert shown_in(shown.out + shown.err) == [], argv


def test_a_dry_run_shows_no_secret(ralph: Ralph) -> None:
    """SC-06"""
    ralph.settings(agent={"env": {"OTHER_TOKEN": IN_SETTINGS}})
    for flags in ([], ["--json"]):
        shown = ralph("run", "-p", f"use {ALL}", "--agent", "true", "--check", ALL, "--dry-run", *flags, env=GIVEN)
        assert shown.code == 0, shown
        assert shown_in(shown.out + shown.err) == []
