"""The plugin in real programs: installed from the wheel by `ralph plugin install`, in a home of its own, offline.

What they record of it, that their models are told of its skills, and that its hooks act where they should and nowhere
else. One run of Codex takes six seconds here: it waits at its end for a network that it does not have.
"""

from __future__ import annotations

import filecmp
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ralphproof import __version__
from ralphproof.setup.plugin import PLUGIN, PLUGIN_FOLDER
from tests.agents import isolated_network, real_clis
from tests.agents.model_server import shown
from tests.needs import require
from tests.ralph import SOURCE, Ended, Ralph
from tests.real_agents.conftest import AGENTS, Json, runs, says, writes

pytestmark = pytest.mark.thorough

ROOT = SOURCE.parent
SKILLS = ("ralph-plan", "ralph-tasks", "tdd", "systematic-debugging", "code-cleanup")
LIST = ("plugin", "list", "--json")
CODEX_OWN = "# mine\n" + real_clis.CODEX_SETTINGS.replace("plugins = false", "plugins = true")
TASKS = {"project": "", "branchName": "", "description": "", "userStories": []}


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a wheel that was installed."""
    require(importlib.util.find_spec("hatchling") is not None, "hatchling builds the wheel")
    folder = tmp_path_factory.mktemp("installed")
    told: dict[str, Any] = {"check": True, "capture_output": True, "cwd": ROOT}
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], **told)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    into = ["--python", str(folder / "venv/bin/python"), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([sys.executable, "-m", "pip", *into, str(wheel)], **told)
    return folder / "venv" / "bin"


class Session:
    """A user's own sessions of one program, with `ralph` installed beside it."""

    def __init__(self, ralph: Ralph, agent: str, programs: Path) -> None:
        require(real_clis.program(agent) is not None, f"{agent} is not installed; `make agents` installs it")
        self.ralph, self.agent, self.asked = ralph, agent, ralph.folder / "requests.jsonl"
        del ralph.env["PYTHONPATH"]  # what is installed is what is used
        beside = (str(programs), str(real_clis.folder(agent) / "node_modules" / ".bin"))
        ralph.env["PATH"] = os.pathsep.join([*beside, ralph.env["PATH"]])
        self.env = {"CODEX_HOME": str(ralph.home / "codex"), "HOME": str(ralph.home)}
        (ralph.home / "codex").mkdir()
        self.config.write_text(CODEX_OWN, "utf-8")
        ralph.write({"README.md": "a project\n"})
        ralph.commit()

    @property
    def config(self) -> Path:
        return self.ralph.home / "codex" / "config.toml"

    def __call__(self, *argv: str, turns: Sequence[Json] = (), env: Json | None = None) -> Ended:
        """Run a command where the only network is a model that says these turns."""
        script = self.ralph.folder / "model.json"
        script.write_text(json.dumps({"turns": list(turns)}), "utf-8")
        self.asked.unlink(missing_ok=True)
        via = isolated_network.via(script, self.asked, [self.agent], self.ralph.home, self.env | (env or {}))
        ran = subprocess.run(
            [*via, *argv], cwd=self.ralph.root, env=self.ralph.env, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        return Ended(ran.returncode, ran.stdout, ran.stderr)

    def install(self) -> Ended:
        told = self("ralph", "plugin", "install", "--agent", self.agent, "--json")
        assert told.code == 0, told
        return told

    def has(self) -> Json | None:
        """The plugin as the program lists it."""
        told = self(self.agent, *LIST).json
        rows = told["installed"] if isinstance(told, dict) else told
        return next((row for row in rows if PLUGIN in (row.get("id"), row.get("pluginId"))), None)

    def prompt(self, text: str, *turns: Json, flags: Sequence[str] = (), env: Json | None = None) -> list[Json]:
        """A session of one prompt; what it printed, a line each."""
        told = self(*self._argv, *flags, text, turns=turns, env=env)
        assert told.code == 0, told
        return told.lines

    @property
    def _argv(self) -> tuple[str, ...]:
        if self.agent == "claude":
            return ("claude", "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions")
        url = 'model_providers.fake.base_url="http://127.0.0.1:{port}/v1"'
        return ("codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "-c", url)

    @property
    def trusted(self) -> tuple[str, ...]:
        """Flags that stand for a user who has trusted the hooks."""
        return ("--dangerously-bypass-hook-trust",) if self.agent == "codex" else ()

    def shown(self) -> list[str]:
        """What the model was shown, for each turn that it gave."""
        return [shown(request) for request in isolated_network.requests_in(self.asked) if request["turn"] is not None]

    def older(self) -> Path:
        """Have the program take an older plugin from elsewhere."""
        folder = self.ralph.folder / "older"
        shutil.copytree(PLUGIN_FOLDER, folder)
        for manifest in (folder / ".claude-plugin").iterdir():
            manifest.write_text(manifest.read_text("utf-8").replace(f'"{__version__}"', '"0.0.1"'), "utf-8")
        install = "install" if self.agent == "claude" else "add"
        for words in (("marketplace", "add", str(folder)), (install, PLUGIN)):
            told = self(self.agent, "plugin", *words)
            assert told.code == 0, told
        found = self.has()
        assert found
        assert found["version"] == "0.0.1"
        return folder


@pytest.fixture(params=AGENTS)
def session(request: pytest.FixtureRequest, ralph: Ralph, programs: Path) -> Session:
    return Session(ralph, request.param, programs)


@pytest.fixture
def claude(ralph: Ralph, programs: Path) -> Session:
    return Session(ralph, "claude", programs)


@pytest.mark.parametrize(
    ("target", "flags"),
    [
        (PLUGIN_FOLDER, ["--strict"]),
        (PLUGIN_FOLDER, ["--profile", "directory"]),
        (f"{PLUGIN_FOLDER}/.claude-plugin/plugin.json", ["--strict"]),
        (f"{PLUGIN_FOLDER}/.claude-plugin/marketplace.json", ["--strict"]),
        (str(ROOT), ["--strict"]),
    ],
)
def test_claude_code_finds_nothing_wrong_with_it(claude: Session, target: str, flags: list[str]) -> None:
    told = claude("claude", "plugin", "validate", *flags, target)
    assert (told.code, "Validation passed" in told.out) == (0, True), told


def test_the_wheel_brings_the_whole_plugin(claude: Session) -> None:
    path = claude("ralph", "plugin", "path").out.strip()
    assert path != PLUGIN_FOLDER
    files = [file.relative_to(PLUGIN_FOLDER) for file in Path(PLUGIN_FOLDER).rglob("*") if file.is_file()]
    assert len(files) == 11
    assert filecmp.cmpfiles(PLUGIN_FOLDER, path, [str(file) for file in files], shallow=False)[1:] == ([], [])


def test_it_is_installed_from_its_folder_and_taken_away_without_a_trace(session: Session) -> None:
    own = session.ralph.home / ".claude" / "settings.json"
    own.parent.mkdir()
    own.write_text('{"permissions": {"allow": ["Bash(ls:*)"]}}', "utf-8")
    (told,) = session.install().json["agents"]
    assert (told["installed"], told["error"]) == (True, None)
    found = session.has()
    assert found
    assert (found["version"], found["enabled"]) == (__version__, True)
    again = session.install().json["agents"]
    assert again[0]["commands"] == ([] if session.agent == "claude" else [["codex", "plugin", "add", PLUGIN]])
    gone = session("ralph", "plugin", "uninstall", "--agent", session.agent)
    assert (gone.code, session.has()) == (0, None), gone
    assert session.config.read_text("utf-8") == CODEX_OWN
    assert {name: what for name, what in json.loads(own.read_text("utf-8")).items() if what} == {
        "permissions": {"allow": ["Bash(ls:*)"]}
    }


def test_the_repository_itself_is_a_marketplace(session: Session) -> None:
    add = "install" if session.agent == "claude" else "add"
    assert session(session.agent, "plugin", "marketplace", "add", str(ROOT)).code == 0
    assert session(session.agent, "plugin", add, PLUGIN).code == 0
    found = session.has()
    assert found
    assert found["version"] == __version__


def test_an_older_one_from_elsewhere_is_brought_up_to_date(session: Session) -> None:
    session.older()
    session.install()
    found = session.has()
    assert found
    assert (found["version"], found["enabled"]) == (__version__, True)


@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_a_folder_that_is_gone_is_no_obstacle(session: Session, verb: str) -> None:
    shutil.rmtree(session.older())
    told = session("ralph", "plugin", verb, "--agent", session.agent)
    assert (told.code, told.err) == (0, ""), told
    found = session.has()
    assert (found is not None and found["version"] == __version__) is (verb == "install")


def test_a_session_of_claude_code_has_its_skills(claude: Session) -> None:
    claude.install()
    lines = claude.prompt("/ralph:tdd Add a flag --persist", says("done"))
    (begun,) = (line for line in lines if line.get("subtype") == "init")
    assert {f"ralph:{name}" for name in SKILLS} <= set(begun["skills"]) & set(begun["slash_commands"])
    (plugin,) = (one for one in begun["plugins"] if one["name"] == "ralph")
    assert (plugin["source"], plugin["version"]) == (PLUGIN, __version__)
    (asked,) = claude.shown()
    assert "ARGUMENTS: Add a flag --persist" in asked
    assert "ralph run --skill tdd 'TASK' --preset wrapper -m 20 --max-cost-usd 5 --detach" in asked


def test_a_session_of_codex_has_its_skills(ralph: Ralph, programs: Path) -> None:
    codex = Session(ralph, "codex", programs)
    codex.install()
    codex.prompt("$ralph:tdd Add a flag --persist", says("done"))
    (asked,) = codex.shown()
    assert all(f"- ralph:{name}: " in asked for name in SKILLS)
    assert "ralph run --skill tdd 'TASK' --preset wrapper -m 20 --max-cost-usd 5 --detach" in asked


def marked(session: Session) -> None:
    """Stories that no turn of run r1 may leave behind so, and how they would be right."""
    marker = {"run": "r1", "pid": os.getpid(), "commits": False, "iterationMode": "implement"}
    session.ralph.write({
        ".ralph-active": json.dumps(marker | {"preIterationSnapshot": {}}), "ralph/tasks.json": "{",
        "right.json": json.dumps(TASKS),
    })  # fmt: skip


MENDS = (says("I am done."), runs("cp right.json ralph/tasks.json"), says("Now I am."))


def test_an_end_that_breaks_the_rules_is_refused_to_a_session_of_the_run(session: Session) -> None:
    session.install()
    marked(session)
    session.prompt("Do it", *MENDS, flags=session.trusted, env={"RALPH_RUN_ID": "r1"})
    asked = session.shown()
    assert len(asked) == 3
    assert "ralph/tasks.json: it is not valid JSON" not in asked[0]
    assert "ralph/tasks.json: it is not valid JSON" in asked[1]


@pytest.mark.parametrize(
    "env",
    [{}, {"RALPH_RUN_ID": "r2"}, {"RALPH_RUN_ID": "r1", "RALPH_HOOKED": "1"}],
    ids=["of nobody", "of another run", "of a run with its own hooks"],
)
def test_any_other_session_ends_as_it_likes(session: Session, env: Json) -> None:
    session.install()
    marked(session)
    session.prompt("Do it", *MENDS, flags=session.trusted, env=env)
    assert len(session.shown()) == 1


def test_hooks_that_codex_was_not_told_to_trust_do_nothing(ralph: Ralph, programs: Path) -> None:
    codex = Session(ralph, "codex", programs)
    codex.install()
    marked(codex)
    codex.prompt("Do it", *MENDS, env={"RALPH_RUN_ID": "r1"})
    assert len(codex.shown()) == 1


@pytest.mark.parametrize("there", [True, False], ids=["silent", "not on PATH"])
def test_a_large_event_that_nobody_reads_disturbs_no_session(claude: Session, there: bool) -> None:
    claude.install()
    env = {"RALPH_HOOKED": "1"}
    if not there:
        env["PATH"] = os.pathsep.join(claude.ralph.env["PATH"].split(os.pathsep)[1:])
    turns = (writes("large.txt", "x" * 400_000), runs("false"), says("done"))
    lines = claude.prompt("Do it", *turns, flags=["--include-hook-events"], env=env)
    hooks = [line for line in lines if line.get("subtype") == "hook_response"]
    assert {hook["hook_event"] for hook in hooks} == {"SessionStart", "PostToolUse", "PostToolUseFailure", "Stop"}
    assert {(hook["exit_code"], hook["outcome"], hook["output"]) for hook in hooks} == {(0, "success", "")}
    assert len(claude.shown()) == 3


def test_the_guard_judges_every_call_of_a_session_where_it_is_asked_for(session: Session) -> None:
    """The installed venv has no parser of shell lines: a line that needs none is denied by the user's own list."""
    settings = session.ralph.folder / "config/settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"guard": {"deny": ["touch denied"]}}), "utf-8")
    turns = (runs("touch denied"), runs("touch fine"), says("done"))
    told = session("ralph", "plugin", "install", "--agent", session.agent, "--guard", "--json").json
    assert [agent["guard"] for agent in told["agents"]] == [True]
    session.prompt("Do it", *turns, flags=session.trusted)
    assert "ralph guard [denied-here]: touch denied" in session.shown()[1]
    assert sorted(path.name for path in session.ralph.root.glob("[df]*")) == ["fine"]
    assert session("ralph", "plugin", "uninstall", "--agent", session.agent, "--guard").code == 0
    session.prompt("Do it", *turns, flags=session.trusted)
    assert (session.ralph.root / "denied").exists()
