from __future__ import annotations

import os
from pathlib import Path

import pytest

from ralphproof.agent import Brief
from ralphproof.agents.command import HEADLESS, CommandAgent
from ralphproof.config.agents import KNOWN, find_agent, remark_on, resolve
from ralphproof.errors import AgentUnusable

BRIEF = Brief("what", "/tmp/prompt", "/tmp", (), "", "", "", 0.0)


def put(path: Path, mode: int = 0o755) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(mode)


def test_only_an_agent_whose_guarded_mode_is_known_is_taken_unasked(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    put(one / "codex")
    put(one / "claude", 0o644)
    for name in set(KNOWN) - set(HEADLESS):
        put(two / name)
    (two / "claude").mkdir()
    path = f"{two}{os.pathsep}{one}"
    assert find_agent({"PATH": path}, "/nowhere") == "codex"
    (one / "claude").chmod(0o755)
    assert find_agent({"PATH": path}, "/nowhere") == "claude"
    assert find_agent({"PATH": str(two)}, "/nowhere") is None
    assert find_agent({"PATH": ""}, "/nowhere") is None


def test_an_agent_that_the_project_brings_along_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "claude")
    put(tmp_path / "bin/claude")
    monkeypatch.chdir(tmp_path)
    path = os.pathsep.join(("", ".", "bin", str(tmp_path / "bin")))
    assert find_agent({"PATH": path}, str(tmp_path)) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [("amp", True), ("gemini", True), ("pi", True), ("claude", False), ("codex", False), ("sh", False), ("x", False)],
)
def test_a_known_agent_whose_flags_are_not_known_is_remarked_on(name: str, said: bool) -> None:
    assert bool(remark_on(name)) == said
    assert not said or name in remark_on(name)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: put(path, 0o644), "may not be executed"),
        (lambda path: path.mkdir(), "is a directory"),
    ],
    ids=["missing", "no permission", "directory"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["./agent", "{root}/agent"])
def test_an_agent_given_by_its_path_must_be_a_program(tmp_path: Path, name: str, make: object, said: str) -> None:
    make(tmp_path / "agent")  # type: ignore[operator]
    given = name.format(root=tmp_path)
    with pytest.raises(AgentUnusable, match=said) as caught:
        resolve((given,), str(tmp_path), "/bin")
    assert given in str(caught.value)
    assert str(tmp_path / "agent") in str(caught.value)


def test_a_path_is_relative_to_the_project(tmp_path: Path) -> None:
    put(tmp_path / "tools/agent")
    assert resolve(("tools/agent", "-x"), str(tmp_path), "") == (str(tmp_path / "tools/agent"), "-x")


@pytest.mark.parametrize(
    ("own", "model", "words"),
    [
        (["claude", "--model", "haiku"], "opus", [*HEADLESS["claude"], "--model", "haiku", "--model", "opus"]),
        (["claude"], None, [*HEADLESS["claude"]]),
        (["codex", "-m", "a"], "b", [*HEADLESS["codex"][:-1], "-m", "a", "--model", "b", "-"]),
        (["codex"], "b", [*HEADLESS["codex"][:-1], "--model", "b", "-"]),
        (["other", "--model", "a"], None, ["--model", "a"]),
    ],
)
def test_the_chosen_model_comes_last_and_wins(own: list[str], model: str | None, words: list[str]) -> None:
    assert CommandAgent(tuple(own), model).argv(BRIEF) == (own[0], *words)
