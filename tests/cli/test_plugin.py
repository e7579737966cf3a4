"""`ralph plugin` with programs that answer as Claude Code and Codex do; `tests/real/` asks the real ones."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from ralphproof import __version__
from ralphproof.setup.plugin import PLUGIN_FOLDER
from tests.ralph import Ended, Ralph

# A program that takes plugins. It keeps what it has in its home, and says there how it was called.
HOST = """#!{python} -IS
import json, os, sys
name, words, home = os.path.basename(sys.argv[0]), sys.argv[1:], os.environ["HOME"]
called = {{"words": words, "cwd": os.getcwd(), "stdin": sys.stdin.read(), "env": sorted(os.environ)}}
with open(f"{{home}}/{{name}}.calls", "a") as file:
    print(json.dumps(called), file=file)
try:
    with open(f"{{home}}/{{name}}.json") as file:
        has = json.load(file)
except FileNotFoundError:
    has = {{"market": None, "plugin": None, "on": False, "guard": None}}
if words[-1] == "--json":
    codex, market = name.startswith("codex"), words[1] == "marketplace"
    if market:
        rows = [{{"name": "ralphproof", "root" if codex else "path": has["market"]}}] if has["market"] else []
    else:
        own = (("ralph@ralphproof", has["plugin"], has["on"]), ("ralph-guard@ralphproof", has["guard"], True))
        rows = [
            {{"pluginId" if codex else "id": one, "version": version, "enabled": on, "scope": "user"}}
            for one, version, on in own
            if version and (has["market"] or not codex)
        ]
    print(json.dumps({{"marketplaces" if market else "installed": rows}} if codex else rows))
    sys.exit()
if words[1:3] == ["marketplace", "add"]:
    has["market"] = words[3]
elif words[1:3] == ["marketplace", "remove"]:
    has["market"] = None
elif words[1] in ("install", "add", "update"):
    guard = words[2].startswith("ralph-guard@")
    has["on"] = has["on"] or not guard
    with open(has["market"] + ("/guard" if guard else "") + "/.claude-plugin/plugin.json") as file:
        has["guard" if guard else "plugin"] = json.load(file)["version"]
elif words[1] in ("uninstall", "remove"):
    has["guard" if words[2].startswith("ralph-guard@") else "plugin"] = None
with open(f"{{home}}/{{name}}.json", "w") as file:
    json.dump(has, file)
"""
ADDED = f"plugin marketplace add {PLUGIN_FOLDER}"
SILENT = "ralph: ralphproof is not on your PATH, and the hooks need it: until it is, they do nothing\n"


def lists(*rows: Any) -> str:
    """A program that has this whatever it is told."""
    told = [row | {"id": "ralph@ralphproof"} if isinstance(row, dict) else row for row in rows]
    return f"echo {shlex.quote(json.dumps(told))}"


class Hosts:
    """A user who has these programs, and nothing else on PATH."""

    def __init__(self, ralph: Ralph, *names: str) -> None:
        self.ralph = ralph
        ralph.env["PATH"] = str(ralph.bin)
        ralph.program("ralphproof", "true")
        for name in names:
            ralph.program(name, HOST.format(python=sys.executable))

    def __call__(self, *argv: str, **more: Any) -> Ended:
        return self.ralph("plugin", *argv, **more)

    def has(self, name: str, **state: Any) -> None:
        """What the program has before."""
        before = {"market": PLUGIN_FOLDER, "plugin": __version__, "on": True, "guard": None} | state
        (self.ralph.home / f"{name}.json").write_text(json.dumps(before))

    def calls(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.ralph.home / f"{name}.calls").read_text().splitlines()]

    def changes(self, name: str) -> list[str]:
        return [" ".join(call["words"]) for call in self.calls(name) if call["words"][-1] != "--json"]


@pytest.fixture
def both(ralph: Ralph) -> Hosts:
    return Hosts(ralph, "claude", "codex")


def test_the_path_is_the_folder_and_nothing_else(ralph: Ralph) -> None:
    assert ralph("plugin", "path") == Ended(0, f"{PLUGIN_FOLDER}\n", "")
    assert ralph("plugin", "path", "--json").json["path"] == PLUGIN_FOLDER
    assert (Path(PLUGIN_FOLDER) / ".claude-plugin/plugin.json").is_file()


def test_it_is_installed_where_it_can_be_and_every_command_is_shown(both: Hosts) -> None:
    told = both("install")
    assert (told.code, told.err) == (0, "")
    lines = told.out.splitlines()
    assert lines[:2] == [f"Claude Code: claude {ADDED}", "Claude Code: claude plugin install ralph@ralphproof"]
    assert lines[2].startswith(f"Claude Code: ralph {__version__} is installed; ")
    assert lines[3:5] == [f"Codex: codex {ADDED}", "Codex: codex plugin add ralph@ralphproof"]
    assert lines[5].startswith(f"Codex: ralph {__version__} is installed; ")
    assert "trust" in lines[5]
    assert both.changes("claude") == [ADDED, "plugin install ralph@ralphproof"]
    assert both.changes("codex") == [ADDED, "plugin add ralph@ralphproof"]


def test_what_is_up_to_date_stays_as_it_is(both: Hosts) -> None:
    both.has("claude")
    both.has("codex")
    assert both("install", "-q").code == 0
    assert both.changes("claude") == []
    assert both.changes("codex") == ["plugin add ralph@ralphproof"], "Codex has a copy, which may be an older one"


@pytest.mark.parametrize(
    ("before", "changes"),
    [
        ({"plugin": "0.0.1"}, ["plugin update ralph@ralphproof"]),
        ({"on": False}, ["plugin install ralph@ralphproof"]),
        ({"plugin": None}, ["plugin install ralph@ralphproof"]),
        ({"market": "/elsewhere", "plugin": None},
         ["plugin marketplace remove ralphproof", ADDED, "plugin install ralph@ralphproof"]),
    ],
)  # fmt: skip
def test_what_is_older_off_or_elsewhere_is_mended(both: Hosts, before: dict[str, Any], changes: list[str]) -> None:
    both.has("claude", **before)
    told = both("install", "--agent", "claude", "--json").json
    assert both.changes("claude") == changes
    (agent,) = told["agents"]
    assert agent == {
        "agent": "claude", "program": str(both.ralph.bin / "claude"), "installed": True, "guard": False,
        "error": None,
        "commands": [["claude", *change.split()] for change in changes],
    }  # fmt: skip
    assert (told["plugin"], told["version"], told["warnings"]) == ("ralph@ralphproof", __version__, [])


def test_the_programs_are_asked_outside_of_the_project_by_nobody_and_without_a_terminal(both: Hosts) -> None:
    both("install", env={"CLAUDECODE": "1", "CODEX_THREAD_ID": "x", "GIT_DIR": "/x", "KEPT": "1"})
    for call in (*both.calls("claude"), *both.calls("codex")):
        assert (call["cwd"], call["stdin"]) == (str(both.ralph.home), "")
        assert "KEPT" in call["env"]
        assert not {"CLAUDECODE", "CODEX_THREAD_ID", "GIT_DIR"} & set(call["env"])


def test_it_is_taken_away_whole_and_only_if_it_is_there(both: Hosts) -> None:
    both("install")
    told = both("uninstall")
    assert told == Ended(
        0,
        "Claude Code: claude plugin uninstall ralph@ralphproof\n"
        "Claude Code: claude plugin marketplace remove ralphproof\n"
        "Claude Code: ralph is uninstalled\n"
        "Codex: codex plugin remove ralph@ralphproof\n"
        "Codex: codex plugin marketplace remove ralphproof\n"
        "Codex: ralph is uninstalled\n",
        "",
    )
    again = both("uninstall", "-q")
    assert again.out == "Claude Code: ralph was not installed\nCodex: ralph was not installed\n"
    assert [agent["installed"] for agent in both("uninstall", "--json").json["agents"]] == [False, False]


def test_the_guard_is_wired_only_where_it_is_asked_for(both: Hosts) -> None:
    assert [agent["guard"] for agent in both("install", "--json").json["agents"]] == [False, False]
    told = both("install", "--guard", "--json").json
    assert [agent["guard"] for agent in told["agents"]] == [True, True]
    assert both.changes("claude")[-1] == "plugin install ralph-guard@ralphproof"
    assert both.changes("codex")[-1] == "plugin add ralph-guard@ralphproof"
    assert [agent["guard"] for agent in both("install", "--json").json["agents"]] == [True, True], "it is kept"
    alone = both("uninstall", "--guard", "--json").json["agents"]
    assert [(agent["installed"], agent["guard"]) for agent in alone] == [(True, False)] * 2
    assert "the command guard was not installed" in both("uninstall", "--guard").out
    said = both("install", "--guard").out
    judges = "the command guard judges every tool call of new sessions"
    assert f"Claude Code: {judges}; " in said
    assert f"Codex: {judges}, once you trust its hook; " in said
    gone = both("uninstall", "--json").json["agents"]
    assert [(agent["installed"], agent["guard"]) for agent in gone] == [(False, False)] * 2
    (both.ralph.bin / "ralphproof").unlink()
    assert "until it is, every tool call is denied" in both("install", "--guard").err


@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_where_neither_is_found_it_is_refused(ralph: Ralph, verb: str) -> None:
    hosts = Hosts(ralph)
    told = hosts(verb)
    assert (told.code, told.out) == (2, "")
    assert told.err == "ralph: neither claude nor codex is on PATH; ralph plugin path prints its folder\n"
    assert hosts(verb, "--json").json["exitCode"] == 2


@pytest.mark.parametrize("wanted", ["codex", "all"])
def test_one_that_is_wanted_and_missing_is_named(ralph: Ralph, wanted: str) -> None:
    told = Hosts(ralph, "claude")("install", "--agent", wanted, "-q")
    assert (told.code, told.err) == (2, "ralph: codex is not on PATH\n")
    assert ("Claude Code: ralph" in told.out) == (wanted == "all")


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("echo 'fine so far'; printf 'Error: no \\033[2Jroom\\033]0;x\\007 left\\n\\nStack backtrace:\\n' >&2; exit 1",
         "failed: no room left"),
        ("printf '✘ Failed to list\\n' >&2; exit 1", "failed: Failed to list"),
        ("printf 'Error: failed to load:\\n- `x` at /y\\n\\nStack backtrace:' >&2; exit 1",
         "failed: failed to load: - `x` at /y"),
        ("exit 3", "failed: exit code 3"),
        ("kill -9 $$", "failed: exit code -9"),
        ("echo Usage: claude", "gave no JSON; it may be too old for plugins"),
        ("echo '{}'", "Claude Code is updated, but has none; it should have version"),
        (lists({"version": "0.0.1", "enabled": True}), "has version 0.0.1; it"),
        (lists({"version": __version__, "enabled": True, "errors": ["lost"]}), f"has version {__version__} (lost); it"),
        (lists({"version": __version__, "enabled": False}), f"has version {__version__} (switched off); it"),
        (lists({"scope": "project"}, 5), "has none; it should"),
    ],
)  # fmt: skip
def test_one_that_fails_is_told_in_one_line_and_the_other_is_done(both: Hosts, fault: str, line: str) -> None:
    both.ralph.program("claude", fault)
    told = both("install", "--json")
    assert (told.code, len(told.err.splitlines())) == (2, 1)
    assert told.err.startswith("ralph: ")
    assert line in told.err
    assert "\x1b" not in told.err
    claude, codex = told.json["agents"]
    assert (claude["installed"], line in claude["error"], codex["installed"]) == (False, True, True)


def test_a_marketplace_whose_folder_is_gone_spoils_nothing(both: Hosts) -> None:
    """Codex 0.166 lists nothing then."""
    real = both.ralph.program("codex-itself", HOST.format(python=sys.executable))
    gone = both.ralph.home / "gone"
    gone.touch()
    both.ralph.program(
        "codex",
        f'if [ "$4" = --json ] && [ -e {gone} ]; then echo "Error: no such folder" >&2; exit 1; fi\n'
        f'[ "$3" = remove ] && /bin/rm -f {gone}\nexec {real} "$@"',
    )
    told = both("install", "--agent", "codex", "-q")
    assert (told.code, told.err) == (0, "")
    gone.touch()
    assert both("uninstall", "--agent", "codex").code == 0
    assert both.changes("codex-itself")[-2:] == [
        "plugin marketplace remove ralphproof", "plugin remove ralph@ralphproof",
    ]  # fmt: skip


def test_a_program_that_the_project_brings_along_is_not_asked(ralph: Ralph) -> None:
    hosts = Hosts(ralph)
    own = ralph.root / "node_modules/.bin"
    own.mkdir(parents=True)
    ralph.program("claude", HOST.format(python=sys.executable)).rename(own / "claude")
    path = {"PATH": f"{own}{os.pathsep}{ralph.bin}"}
    assert hosts("install", env=path).code == 2
    assert hosts("install", env=path, cwd=ralph.home).code == 0


def test_who_stands_in_their_home_folder_is_in_no_project(ralph: Ralph) -> None:
    hosts = Hosts(ralph)
    own = ralph.home / ".local/bin"
    own.mkdir(parents=True)
    ralph.program("claude", HOST.format(python=sys.executable)).rename(own / "claude")
    assert hosts("install", env={"PATH": f"{own}{os.pathsep}{ralph.bin}"}, cwd=ralph.home).code == 0


def test_hooks_that_will_find_no_program_are_spoken_of(ralph: Ralph) -> None:
    hosts = Hosts(ralph, "claude")
    (ralph.bin / "ralphproof").unlink()
    assert hosts("install").err == SILENT
    assert hosts("install", "--json").json["warnings"] == [SILENT.removeprefix("ralph: ").strip()]
    assert hosts("uninstall").err == ""


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "required"),
        (["instal"], "invalid choice"),
        (["install", "--agent", "gemini"], "invalid choice"),
        (["install", "--agnet", "all"], "did you mean --agent?"),
        (["path", "--agent", "all"], "cannot be used with ralph plugin path"),
        (["path", "--guard"], "--guard cannot be used with ralph plugin path"),
        (["install", "-d", "nowhere"], "is not a directory"),
    ],
)
def test_a_slip_is_refused_in_one_line(both: Hosts, argv: list[str], message: str) -> None:
    told = both(*argv)
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)
    assert message in told.err
