from __future__ import annotations

import json

from ralphproof.settings.reference import json_schema
from tests.ralph import Ralph


def test_the_merged_settings_are_shown_with_defaults_and_without_secrets(ralph: Ralph) -> None:
    ralph.settings(agent={"command": "tool", "env": {"API_TOKEN": "abcdef0123456789"}}, maximumIterations=3)
    ralph.write({".ralph/settings.local.json": '{"maximumIterations": 4}'})
    told = ralph("config", "show")
    shown = json.loads(told.out)
    assert (shown["maximumIterations"], shown["completionResponse"]) == (4, "DONE")
    assert shown["agent"]["command"] == "tool"
    assert "abcdef0123456789" not in told.out


def test_each_setting_says_where_it_comes_from(ralph: Ralph) -> None:
    ralph.settings(maximumIterations=3, outputTruncateChars=100)
    ralph.write({".ralph/settings.local.json": '{"maximumIterations": 4}'})
    told = ralph("config", "show", "--origin", env={"RALPH__AGENT__COMMAND": "tool"})
    lines = told.out.splitlines()
    assert "maximumIterations = 4  (.ralph/settings.local.json)" in lines
    assert "outputTruncateChars = 100  (.ralph/settings.json)" in lines
    assert 'agent.command = "tool"  (RALPH__AGENT__COMMAND)' in lines
    assert "streamAgentOutput = true  (default)" in lines
    told = ralph("config", "show", "--json")
    assert told.json["origins"]["maximumIterations"] == ".ralph/settings.local.json"
    assert told.json["settings"]["maximumIterations"] == 4


def test_what_is_dropped_and_names_with_dots_are_shown_as_they_are(ralph: Ralph) -> None:
    ralph.settings(agent={"env": {"ANTHROPIC_API_KEY": None}, "fallbacks": ["codex -m x"]})
    (ralph.folder / "config").mkdir()
    user = ralph.folder / "config/settings.json"
    user.write_text('{"prices": {"small-1.5": {"input": 0.25, "output": 2}}}')
    shown = ralph("config", "show", "--json").json["settings"]
    assert shown["agent"]["env"] == {"ANTHROPIC_API_KEY": None}
    price = {"input": 0.25, "output": 2, "cacheRead": None, "cacheWrite": None}
    assert shown["prices"] == {"small-1.5": price}
    lines = ralph("config", "show", "--origin").out.splitlines()
    assert "agent.env.ANTHROPIC_API_KEY = null  (.ralph/settings.json)" in lines
    assert 'agent.fallbacks = ["codex -m x"]  (.ralph/settings.json)' in lines
    assert f"prices.small-1.5.input = 0.25  ({user})" in lines


def test_a_setting_above_the_cap_is_noted(ralph: Ralph) -> None:
    ralph.settings(maximumIterations=500)
    assert ralph("config", "show", "--json").json["warnings"]
    assert ralph("config", "show").out.startswith("note: maximumIterations is 500")


def test_all_problems_are_told_at_once(ralph: Ralph) -> None:
    ralph.settings(maximumIteration=3, outputTruncateChars="x")
    told = ralph("config", "show", "--json")
    assert told.code == 2
    assert "maximumIterations" in told.err
    assert "outputTruncateChars" in told.err
    assert told.json["type"] == "error"


def test_the_schema_is_printed(ralph: Ralph) -> None:
    assert json.loads(ralph("config", "schema").out) == json_schema()
    assert ralph("config", "schema", "--json").json["schema"] == json_schema()
