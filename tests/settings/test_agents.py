"""Which agents a run has, what they are started with, and what is refused before anything starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.adapter import (
    COST_COMPUTED,
    COST_REPORTED,
    COST_UNKNOWN,
    AgentAdapter,
    AgentInvocation,
    ReaderContext,
    StreamReader,
)
from ralphproof.agents.cli_agent import CliAgent
from ralphproof.agents.command import CommandAgent
from ralphproof.agents.cost import build_price_list
from ralphproof.agents.selection import (
    KNOWN_AGENTS,
    SelectedAgent,
    find_agent_problems,
    find_installed_agent,
    load_adapter,
    resolve_program,
    select_agents,
    warn_about_command,
)
from ralphproof.base.errors import AgentUnusable
from ralphproof.engine.agent import TurnInput, Usage
from tests.settings.project import Project

BRIEF = TurnInput("what", "/tmp/prompt", "/tmp", (), "", "", "", 0.0)
GUARDED = ("claude", "codex", "gemini", "qwen", "opencode", "copilot")
UNGUARDED = ("amp", "pi")


def put(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(mode)
    return path


class Machine:
    """A PATH with every known agent and one that nobody knows, and a project's settings."""

    def __init__(self, project: Project, bin: Path) -> None:
        self.project, self.bin = project, bin
        for name in (*KNOWN_AGENTS, "tool"):
            put(bin / name)

    def crew(self, guarded: bool = True, prices: object = None, **agent: Any) -> tuple[SelectedAgent, ...]:
        """The agents of a run with these settings."""
        if prices is not None:
            self.project.write(self.project.user, {"prices": prices})
        settings = self.project.load({"agent": agent}).settings
        return select_agents(settings, str(self.project.root), {"PATH": str(self.bin)}, guarded)

    def argv(self, guarded: bool = True, **agent: Any) -> tuple[str, ...]:
        """The argument list of the usual agent, without the folder of its program."""
        program, *rest = self.crew(guarded, **agent)[0].agent.argv(BRIEF)
        return program.removeprefix(f"{self.bin}/"), *rest

    def refused(self, guarded: bool = True, **agent: Any) -> str:
        """The one line with which these settings are refused."""
        with pytest.raises(AgentUnusable) as caught:
            self.crew(guarded, **agent)
        assert caught.value.exit_code == 2
        assert "\n" not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def machine(project: Project, tmp_path: Path) -> Machine:
    return Machine(project, tmp_path / "bin")


def test_the_known_agents_are_these() -> None:
    assert set(KNOWN_AGENTS) == {*GUARDED, *UNGUARDED}
    assert KNOWN_AGENTS[:2] == ("claude", "codex")


@pytest.mark.parametrize("name", KNOWN_AGENTS)
def test_a_known_name_speaks_its_dialect(machine: Machine, name: str) -> None:
    (chosen,) = machine.crew(guarded=False, command=name)
    assert isinstance(chosen.agent, CliAgent)
    assert chosen.agent.name == load_adapter(name).name == name
    assert chosen.program == str(machine.bin / name)
    assert chosen.cost in (COST_REPORTED, COST_COMPUTED, COST_UNKNOWN)
    assert chosen.agent.argv(BRIEF)[0] == chosen.program


def test_an_agent_is_known_by_the_base_name_of_its_program(machine: Machine) -> None:
    put(machine.project.root / "tools/claude")
    for command in (str(machine.bin / "claude"), "tools/claude", "./tools/claude"):
        assert isinstance(machine.crew(command=command)[0].agent, CliAgent)
    assert isinstance(machine.crew(command=str(put(machine.bin / "claude-of-mine")))[0].agent, CommandAgent)


@pytest.mark.parametrize("name", KNOWN_AGENTS)
@pytest.mark.parametrize("guarded", [True, False])
def test_what_every_dialect_says_of_its_guard_holds(machine: Machine, name: str, guarded: bool) -> None:
    spoken = load_adapter(name)
    assert bool(spoken.guard) == (name in GUARDED)
    if guarded and not spoken.guard:
        refused = machine.refused(command=name)
        assert f"agent {name} has no mode that asks nothing and still limits what it does" in refused
        assert "--sandbox limits it, --no-sandbox lets it do all that you may" in refused
        return
    (chosen,) = machine.crew(guarded, command=name)
    assert chosen.permissions == (f"guarded ({spoken.guard})" if guarded else "unguarded")


@pytest.mark.parametrize(
    ("command", "guarded", "permissions"),
    [
        ("claude", True, "guarded (acceptEdits)"),
        ("claude --model x", True, "guarded (acceptEdits)"),
        ("claude", False, "unguarded"),
        ("claude --permission-mode plan", True, "as given"),
        ("claude --permission-mode=plan", False, "as given"),
        ("claude --dangerously-skip-permissions", True, "as given"),
        ("codex --sandbox read-only", True, "as given"),
        ("codex", True, "guarded (workspace-write)"),
        ("gemini --yolo", True, "as given"),
        ("pi", False, "unguarded"),
        ("tool", True, "as given"),
        ("tool", False, "as given"),
        ("claude -p {prompt_file}", False, "as given"),
    ],
)
def test_permissions_are_ours_unless_the_flags_decide(
    machine: Machine, command: str, guarded: bool, permissions: str
) -> None:
    assert machine.crew(guarded, command=command)[0].permissions == permissions


def test_words_after_the_program_are_its_first_flags_and_the_chosen_model_comes_last(machine: Machine) -> None:
    argv = machine.argv(command="claude --effort 'very high'", flags=["--add-dir /x", "a b"], model="opus")
    assert argv == (
        "claude", "-p", "--effort", "very high", "--add-dir", "/x", "a b", "--permission-mode", "acceptEdits",
        "--model", "opus", "--output-format", "stream-json", "--verbose",
    )  # fmt: skip
    assert "--dangerously-skip-permissions" in machine.argv(False, command="claude")


@pytest.mark.parametrize("name", KNOWN_AGENTS)
def test_the_chosen_model_reaches_every_dialect(machine: Machine, name: str) -> None:
    argv = machine.argv(guarded=False, command=name, model="model-of-mine")
    assert argv.count("model-of-mine") == 1


@pytest.mark.parametrize("command", ["tool", "tool --model a", "claude {prompt}"])
def test_a_plain_command_cannot_be_given_a_model(machine: Machine, command: str) -> None:
    name = command.split()[0]
    assert machine.refused(command=command, model="b") == (
        f"agent {name}: how to give it a model is not known; put its flag in agent.flags"
    )
    assert isinstance(machine.crew(command=command)[0].agent, CommandAgent)


def test_a_plain_command_is_started_as_it_is_given(machine: Machine) -> None:
    assert machine.argv(command="tool -x 'a b'", flags=["--y z", "p q"]) == ("tool", "-x", "a b", "--y", "z", "p q")
    (chosen,) = machine.crew(command="tool")
    assert (chosen.agent.name, chosen.cost, chosen.agent.reports_cost) == ("tool", COST_UNKNOWN, False)


@pytest.mark.parametrize("name", ["claude", "tool", "pi"])
def test_a_command_line_that_says_where_the_prompt_goes_is_taken_as_it_is(machine: Machine, name: str) -> None:
    assert machine.argv(command=f"{name} -f {{prompt_file}}") == (name, "-f", "/tmp/prompt")
    assert machine.argv(command=f"{name} --text={{prompt}}") == (name, "--text=what")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("claude 'x", "cannot be split into words"),
        ("no-such-agent -x", "agent no-such-agent was not found on PATH"),
        ("./no/claude", "does not exist"),
    ],
)
def test_a_command_that_cannot_be_is_refused_in_one_line(machine: Machine, command: str, said: str) -> None:
    assert said in machine.refused(command=command)
    assert f"agent.fallbacks[1]: agent {command.split()[0]}" in machine.refused(
        command="claude", fallbacks=["codex", command]
    )


def test_no_agent_at_all_is_refused_with_the_flag_that_names_one(machine: Machine) -> None:
    assert machine.refused().endswith("name one: --agent")


# Fallbacks


def test_fallbacks_come_after_the_usual_agent_with_flags_of_their_own(machine: Machine) -> None:
    crew = machine.crew(command="claude", flags=["-x"], model="opus", fallbacks=["codex -m small", "tool -y", "claude"])
    assert [one.agent.name for one in crew] == ["claude", "codex", "tool", "claude"]
    usual, codex, tool, again = (one.agent.argv(BRIEF) for one in crew)
    assert {"-x", "opus"} < set(usual)
    assert "small" in codex
    assert tool[1:] == ("-y",)
    for argv in (codex, tool, again):
        assert not {"-x", "opus"} & set(argv)


def test_a_fallback_that_is_not_there_is_named(machine: Machine) -> None:
    (machine.bin / "gemini").unlink()
    said = machine.refused(command="claude", fallbacks=["codex", "gemini -m x"])
    assert said.startswith("agent.fallbacks[1]: agent gemini was not found on PATH")


def test_a_fallback_without_a_guard_is_refused_as_the_usual_agent_would_be(machine: Machine) -> None:
    said = machine.refused(command="claude", fallbacks=["pi"])
    assert said.startswith("agent.fallbacks[0]: agent pi has no mode that asks nothing")
    crew = machine.crew(guarded=False, command="claude", fallbacks=["pi"])
    assert [one.permissions for one in crew] == ["unguarded", "unguarded"]


# Prices


def test_the_users_prices_make_an_unknown_model_affordable(machine: Machine) -> None:
    (before,) = machine.crew(command="codex", model="house-model-3")
    assert (before.cost, before.agent.reports_cost) == (COST_COMPUTED, False)
    (after,) = machine.crew(prices={"house-model": {"input": 1, "output": 2}}, command="codex", model="house-model-3")
    assert after.agent.reports_cost is True


def test_a_price_that_is_left_out_for_the_cache_is_that_of_input(machine: Machine) -> None:
    prices = {"a": {"input": 3, "output": 15, "cacheRead": 0}, "b": {"input": 1, "output": 2, "cacheWrite": None}}
    machine.project.write(machine.project.user, {"prices": prices})
    rates = build_price_list(machine.project.load().settings.prices)
    million = 1_000_000
    read, written = Usage(cache_read=million), Usage(cache_write=million)
    assert [rates.cost(model, used) for model in ("a", "b") for used in (read, written)] == [
        0, 3 * million, million, million,
    ]  # fmt: skip


# An agent that nobody named


def test_only_an_agent_with_a_guard_is_taken_unasked_and_claude_before_codex(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    put(one / "codex")
    put(one / "claude", 0o644)
    for name in UNGUARDED:
        put(two / name)
    (two / "claude").mkdir()
    path = f"{two}{os.pathsep}{one}"
    assert find_installed_agent({"PATH": path}, "/nowhere") == "codex"
    (one / "claude").chmod(0o755)
    assert find_installed_agent({"PATH": path}, "/nowhere") == "claude"
    assert find_installed_agent({"PATH": str(two)}, "/nowhere") is None
    assert find_installed_agent({"PATH": ""}, "/nowhere") is None


@pytest.mark.parametrize("name", GUARDED)
def test_every_agent_with_a_guard_is_found(tmp_path: Path, name: str) -> None:
    put(tmp_path / name)
    assert find_installed_agent({"PATH": str(tmp_path)}, "/nowhere") == name


def test_an_agent_that_the_project_brings_along_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "claude")
    put(tmp_path / "bin/claude")
    monkeypatch.chdir(tmp_path)
    path = os.pathsep.join(("", ".", "bin", str(tmp_path / "bin")))
    assert find_installed_agent({"PATH": path}, str(tmp_path)) is None


@pytest.mark.parametrize(
    ("command", "said"),
    [(name, False) for name in GUARDED]
    + [(name, True) for name in UNGUARDED]
    + [("sh", False), ("/opt/pi --x", True), ("pi {prompt_file}", False), ("some.module:Name", False)],
)
def test_an_agent_without_a_guard_is_remarked_on_when_it_is_written_down(command: str, said: bool) -> None:
    assert ("--no-sandbox" in warn_about_command(command)) == said


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
        resolve_program((given,), str(tmp_path), "/bin")
    assert given in str(caught.value)
    assert str(tmp_path / "agent") in str(caught.value)


def test_a_path_is_relative_to_the_project(tmp_path: Path) -> None:
    put(tmp_path / "tools/agent")
    assert resolve_program(("tools/agent", "-x"), str(tmp_path), "") == (str(tmp_path / "tools/agent"), "-x")


# Dialects of others


class Tool(AgentAdapter):
    """A dialect that somebody else wrote, for a program that is called `tool`."""

    name = "tool"
    cost = COST_REPORTED
    guard = "careful"
    resumes = False
    login = "log in"
    credentials: tuple[str, ...] = ()
    updates_off: Mapping[str, str] = {}

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        return (*call.flags, "--careful" if call.guarded else "--bold")

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return model

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        return {}

    def reader(self, hearing: ReaderContext) -> StreamReader:
        raise NotImplementedError


class Needy(Tool):
    def __init__(self, what: str) -> None:
        self.what = what


def test_a_dialect_of_others_is_named_by_its_dotted_path_and_runs_its_own_program(machine: Machine) -> None:
    command = f"{__name__}:Tool -x"
    assert machine.argv(command=command) == ("tool", "-x", "--careful")
    assert machine.argv(False, command=command, model="m") == ("tool", "-x", "--bold")
    (chosen,) = machine.crew(command="claude", fallbacks=[command])[1:]
    assert (chosen.agent.name, chosen.permissions) == ("tool", "guarded (careful)")


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed distribution that knows a program called `tool`, and one that it cannot load."""
    info = tmp_path / "site/ralph_tool-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ralph-tool\nVersion: 1.0\n")
    points = f"tool = {__name__}:Tool\nbroken = ralph_tool_broken:Broken\nclaude = {__name__}:Tool\nloud = loud:Thing\n"
    (info / "entry_points.txt").write_text(f"[ralphproof.agents]\n{points}")
    (tmp_path / "site/ralph_tool_broken.py").write_text("this is no Python\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


@pytest.mark.usefixtures("plugin")
def test_an_installed_dialect_is_known_by_the_name_of_its_program(machine: Machine) -> None:
    assert machine.argv(command="tool", model="m") == ("tool", "--careful")
    assert machine.argv(command="claude")[1] == "-p"
    assert "agents 'broken' cannot be loaded" in machine.refused(command=str(put(machine.bin / "broken")))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no.such.module:Thing", "cannot be loaded"),
        (f"{__name__}:Nothing", "cannot be loaded"),
        (f"{__name__}:Needy", "is no agent adapter"),
        (f"{__name__}:BRIEF", "is no agent adapter"),
        ("ralphproof.base.errors:Refused", "is no agent adapter: it is no ralphproof.agents.adapter.AgentAdapter"),
        (":", "cannot be loaded"),
    ],
)
def test_what_is_no_dialect_is_refused_in_one_line(machine: Machine, name: str, said: str) -> None:
    assert said in machine.refused(command=name)


def test_without_msgspec_a_known_agent_is_refused_and_a_plain_one_is_not(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("ralphproof.agents.claude", "msgspec"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    monkeypatch.setitem(sys.modules, "msgspec.json", None)
    said = machine.refused(command="claude")
    assert "agents 'claude' cannot be loaded: msgspec" in said
    assert said.endswith("is not installed (pip install ralphproof)")
    assert machine.argv(command="tool") == ("tool",)


# What `ralph doctor` asks


@pytest.mark.usefixtures("plugin")
def test_doubts_name_every_agent_that_cannot_be_used_and_load_nothing_of_others(machine: Machine, plugin: Path) -> None:
    ran = plugin / "ran"
    (plugin / "loud.py").write_text(f"open({str(ran)!r}, 'w')\n")
    put(machine.bin / "loud")
    wrong = ["codex", "gone", "./gone", "loud:Thing", "loud", "tool", "scripted x", "claude 'x"]
    settings = machine.project.load({"agent": {"command": "broken-path/x", "fallbacks": wrong}}).settings
    said = find_agent_problems(settings, str(machine.project.root), {"PATH": str(machine.bin)})
    assert [line.split(":")[0].removeprefix("agent ").split()[0] for line in said] == [
        "broken-path/x", "gone", "./gone", "claude",
    ]  # fmt: skip
    assert not ran.exists()
    plain = machine.project.load({"agent": {"command": "claude", "model": "x", "fallbacks": ["pi"]}}).settings
    assert find_agent_problems(plain, str(machine.project.root), {"PATH": str(machine.bin)}) == ()


def test_a_model_for_a_plain_command_is_a_doubt(machine: Machine) -> None:
    settings = machine.project.load({"agent": {"command": "/bin/sh", "model": "x"}}).settings
    (said,) = find_agent_problems(settings, str(machine.project.root), {"PATH": ""})
    assert said.startswith("agent sh: how to give it a model is not known")
