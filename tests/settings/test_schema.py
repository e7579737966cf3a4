"""One table of examples, judged by the walker and by the published schema alike."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ralphproof.settings.declarations import SETTINGS_SCHEMA
from ralphproof.settings.reference import JSON_SCHEMA_DRAFT, json_schema, reference_markdown
from ralphproof.settings.schema import default_values, leaf_keys, normalize
from ralphproof.settings.validation import SettingsProblem, validate_layer
from tests.settings.project import EXAMPLE

GOOD: list[dict[str, Any]] = [
    {},
    EXAMPLE,
    {"$schema": "https://example.org/settings.json", "scm": None},
    {"limits": {"stallIterations": None, "sameErrorIterations": 1, "maxCostUsd": 0.5, "pauseMilliseconds": 0}},
    {"guardrails": [{"command": "true", "failAction": "prepend", "retries": 0, "hint": ""}]},
    {"agent": {"env": {"A_B": "", "C": "x"}, "flags": [""], "model": None, "idleTimeoutSeconds": None}},
    {"completionResponse": "<promise>COMPLETE</promise>", "agent": {"timeoutSeconds": 1.5}},
    {"scm": {"tasks": ["commit"]}},
    {"prices": {"small-1.5": {"input": 0.25, "output": 0}}, "caps": {"costUsd": 3}},
    {"prices": {"m": {"input": 1, "output": 2, "cacheRead": 0.5, "cacheWrite": None}}},
    {"agent": {"env": {"ANTHROPIC_API_KEY": None}, "fallbacks": ["codex -m x", "claude"]}},
    {"guardrails": [{"method": "semantic", "config": {"check_for": ["no secrets"]}}, {"command": "x", "config": {}}]},
    {"stages": {"qa": {"verification": None, "maxIterations": None, "verificationConfig": {"x": [1]}}}},
]
NUMBER_ONE = "a whole number of 1 or more"
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"maximumIteration": 3}, "maximumIteration", "unknown key maximumIteration; did you mean maximumIterations?"),
    ({"MaximumIterations": 3}, "MaximumIterations", "unknown key MaximumIterations; did you mean maximumIterations?"),
    ({"agent": {"comand": "x"}}, "agent.comand", "unknown key agent.comand; did you mean agent.command?"),
    ({"zzz": 1}, "zzz", "unknown key zzz"),
    ({"agent": {"$schema": "x"}}, "agent.$schema", "unknown key agent.$schema"),
    ({"maximumIterations": "ten"}, "maximumIterations", f'maximumIterations must be {NUMBER_ONE}, not "ten"'),
    ({"maximumIterations": 1.5}, "maximumIterations", f"maximumIterations must be {NUMBER_ONE}, not 1.5"),
    ({"maximumIterations": True}, "maximumIterations", f"maximumIterations must be {NUMBER_ONE}, not true"),
    ({"maximumIterations": [3]}, "maximumIterations", f"maximumIterations must be {NUMBER_ONE}, not [3]"),
    ({"maximumIterations": 0}, "maximumIterations", f"maximumIterations must be {NUMBER_ONE}, not 0"),
    ({"maximumIterations": -1}, "maximumIterations", f"maximumIterations must be {NUMBER_ONE}, not -1"),
    ({"maximumIterations": 10**400}, "maximumIterations", "maximumIterations must be at most 1000000000, not 1000"),
    ({"outputTruncateChars": 0}, "outputTruncateChars", f"outputTruncateChars must be {NUMBER_ONE}, not 0"),
    ({"agent": {"timeoutSeconds": 0}}, "agent.timeoutSeconds", "must be a number of 1 or more, not 0"),
    ({"agent": {"timeoutSeconds": False}}, "agent.timeoutSeconds", "must be a number of 1 or more, not false"),
    ({"agent": {"idleTimeoutSeconds": -5}}, "agent.idleTimeoutSeconds", "must be a number of 1 or more or null"),
    ({"guardrails": [{"command": "x", "timeoutSeconds": 0}]}, "guardrails[0].timeoutSeconds", "1 or more, not 0"),
    ({"guardrails": [{"command": "x", "retries": -1}]}, "guardrails[0].retries", "0 or more, not -1"),
    ({"limits": {"stallIterations": 0}}, "limits.stallIterations", f"must be {NUMBER_ONE} or null, not 0"),
    ({"limits": {"sameErrorIterations": -2}}, "limits.sameErrorIterations", f"must be {NUMBER_ONE} or null, not -2"),
    ({"limits": {"pauseMilliseconds": -1}}, "limits.pauseMilliseconds", "0 or more, not -1"),
    ({"limits": {"maxCostUsd": 0}}, "limits.maxCostUsd", "must be a number above 0 or null, not 0"),
    ({"limits": {"maxCostUsd": 1e300}}, "limits.maxCostUsd", "must be at most 1000000000"),
    ({"agent": None}, "agent", "agent may not be null"),
    ({"guardrails": None}, "guardrails", "guardrails may not be null"),
    ({"agent": {"flags": None}}, "agent.flags", "agent.flags may not be null"),
    ({"maximumIterations": None}, "maximumIterations", "maximumIterations may not be null"),
    ({"agent": "claude"}, "agent", 'agent must be an object, not "claude"'),
    ({"guardrails": {"command": "x"}}, "guardrails", "guardrails must be a list of objects, not {"),
    ({"guardrails": ["make test"]}, "guardrails[0]", 'guardrails[0] must be an object, not "make test"'),
    ({"guardrails": [{"hint": "x"}]}, "guardrails[0].command", "guardrails[0].command is missing"),
    ({"guardrails": [{"command": ""}]}, "guardrails[0].command", "must be text that is not blank"),
    ({"guardrails": [{"command": " \t"}]}, "guardrails[0].command", "must be text that is not blank"),
    ({"guardrails": [{"command": "x"}, {"command": "y", "failAction": "DROP"}]}, "guardrails[1].failAction", '"DROP"'),
    ({"completionResponse": ""}, "completionResponse", "must be a word that is not blank"),
    ({"completionResponse": "  "}, "completionResponse", "must be a word that is not blank"),
    ({"agent": {"command": " "}}, "agent.command", "must be text that is not blank"),
    ({"agent": {"flags": "--x"}}, "agent.flags", "must be a list of texts"),
    ({"agent": {"flags": [1]}}, "agent.flags[0]", "must be text, not 1"),
    ({"agent": {"env": {"A=B": "x"}}}, "agent.env", "names are not blank and hold no ="),
    ({"agent": {"env": {"A": 1}}}, "agent.env.A", "must be text or null, not 1"),
    ({"agent": {"fallbacks": "codex"}}, "agent.fallbacks", "must be a list of texts"),
    ({"agent": {"fallbacks": [" "]}}, "agent.fallbacks[0]", "must be text that is not blank"),
    ({"agent": {"fallbacks": [None]}}, "agent.fallbacks[0]", "may not be null"),
    ({"prices": {"m": {"input": 1}}}, "prices.m.output", "prices.m.output is missing"),
    ({"prices": {"m": 3}}, "prices.m", "prices.m must be an object, not 3"),
    ({"prices": {"m": {"input": -1, "output": 1}}}, "prices.m.input", "must be a number of 0 or more, not -1"),
    ({"prices": {"m": {"input": 1, "output": "2"}}}, "prices.m.output", 'must be a number of 0 or more, not "2"'),
    ({"prices": {" ": {"input": 1, "output": 2}}}, "prices", "names are not blank"),
    ({"scm": {"command": "git", "tasks": []}}, "scm.tasks", "not empty"),
    ({"checksWhen": "CLAIM"}, "checksWhen", "one of always, claim"),
    ({"streamAgentOutput": 1}, "streamAgentOutput", "must be true or false, not 1"),
    ({"guardrails": [{"method": "semantic", "config": []}]}, "guardrails[0].config", "must be an object, not []"),
    ({"stages": {"coder": {"maxIterations": 0}}}, "stages.coder.maxIterations", f"must be {NUMBER_ONE} or null, not 0"),
    ({"sandbox": {"allowLocalPorts": [70000]}}, "sandbox.allowLocalPorts[0]", "at most 65535"),
]


@pytest.mark.parametrize("data", GOOD)
def test_good_settings_have_no_problem_and_fit_the_schema(data: dict[str, Any]) -> None:
    assert validate_layer(data, "file") == []
    assert valid(data, json_schema())


@pytest.mark.parametrize(("data", "path", "message"), BAD)
def test_bad_settings_are_named_by_their_path_and_do_not_fit_the_schema(
    data: dict[str, Any], path: str, message: str
) -> None:
    (problem,) = validate_layer(data, "file")
    assert problem.path == path
    assert message in problem.message
    assert path in problem.message
    assert str(problem).startswith("file: ")
    assert not valid(data, json_schema())


# What a schema cannot say, or JSON cannot hold.
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"completionResponse": "<response> </response>"}, "must be a word that is not blank"),
        ({"limits": {"maxCostUsd": float("inf")}}, "must be a number above 0 or null, not Infinity"),
        ({"limits": {"maxCostUsd": float("nan")}}, "must be a number above 0 or null, not NaN"),
        ({"agent": {"command": "a\0b"}}, "agent.command holds a NUL character"),
        ({"agent": {"command": "a\udc80b"}}, "agent.command holds characters that are not Unicode"),
    ],
)
def test_values_that_no_program_can_use_are_refused(data: dict[str, Any], message: str) -> None:
    (problem,) = validate_layer(data, "file")
    assert message in problem.message


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    data = {"maximumIterations": 0, "agent": {"command": ""}, "guardrails": [{}, {"command": "x", "failAction": 3}]}
    paths = [problem.path for problem in validate_layer(data, "file")]
    assert paths == ["maximumIterations", "agent.command", "guardrails[0].command", "guardrails[1].failAction"]


def test_settings_that_are_no_object_are_one_problem() -> None:
    assert validate_layer([1], "file") == [SettingsProblem("file", "", "settings must be an object, not [1]")]


def test_fail_actions_are_normalised_to_upper_case_and_guardrails_completed() -> None:
    made = normalize({"guardrails": [{"command": "x", "failAction": "Replace"}]}, SETTINGS_SCHEMA)
    assert made == {
        "guardrails": [
            {
                "command": "x",
                "failAction": "REPLACE",
                "hint": "",
                "name": None,
                "timeoutSeconds": 600,
                "retries": 0,
                "method": "external",
                "config": {},
            }
        ]
    }


def test_defaults_are_fresh_each_time() -> None:
    one: Any = default_values(SETTINGS_SCHEMA)
    one["agent"]["flags"].append("x")
    one["agent"]["env"]["A"] = "x"
    again: Any = default_values(SETTINGS_SCHEMA)
    assert again["agent"]["flags"] == []
    assert again["agent"]["env"] == {}


def test_every_default_satisfies_its_own_key() -> None:
    for path, key in leaf_keys(SETTINGS_SCHEMA):
        if key.default is not None:
            name = path.replace("[]", "").replace(".*", ".any")
            data: Any = key.default
            for part in reversed(name.split(".")):
                data = {part: data}
            if "[]" not in path:
                assert validate_layer(data, path) == [], path


def test_every_key_has_one_sentence() -> None:
    for path, key in leaf_keys(SETTINGS_SCHEMA):
        assert re.fullmatch(r"[A-Z].*[.`]", key.doc), path
        assert ". " not in key.doc.replace("`Iteration X of Y, Z remaining.`", ""), path


def test_the_schema_closes_every_object_of_the_table() -> None:
    schema = json_schema()
    assert schema["$schema"] == JSON_SCHEMA_DRAFT
    assert set(schema["properties"]) == {"$schema", *SETTINGS_SCHEMA.keys}
    assert schema["additionalProperties"] is False
    assert schema["properties"]["guardrails"]["items"]["anyOf"] == [{"required": ["command"]}, {"required": ["method"]}]
    assert schema["properties"]["prices"]["additionalProperties"]["required"] == ["input", "output"]
    assert "required" not in schema["properties"]["scm"]  # another layer may hold the rest
    json.dumps(schema, allow_nan=False)


def test_the_page_of_settings_is_what_the_table_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    assert page.read_text(encoding="utf-8") == reference_markdown()


def test_the_page_names_every_key_once() -> None:
    page = reference_markdown()
    for path, _ in leaf_keys(SETTINGS_SCHEMA):
        assert page.count(f"| `{path}`") == 1, path


def valid(data: Any, schema: dict[str, Any]) -> bool:
    """As much of a JSON Schema validator as our own schema needs; an unknown word is an error in the test."""
    known = {
        "$schema", "title", "description", "default", "type", "enum", "anyOf", "properties", "additionalProperties",
        "propertyNames", "required", "items", "minItems", "pattern", "minimum", "maximum", "exclusiveMinimum",
    }  # fmt: skip
    assert set(schema) <= known, set(schema) - known
    return all(_holds(word, rule, data, schema) for word, rule in schema.items())


def _holds(word: str, rule: Any, data: Any, schema: dict[str, Any]) -> bool:
    number = isinstance(data, int | float) and not isinstance(data, bool)
    match word:
        case "type":
            return any(_is(name, data) for name in ([rule] if isinstance(rule, str) else rule))
        case "enum":
            return data in rule
        case "anyOf":
            return any(valid(data, one) for one in rule)
        case "properties" if isinstance(data, dict):
            return all(valid(data[name], one) for name, one in rule.items() if name in data)
        case "additionalProperties" if isinstance(data, dict):
            others = [inner for name, inner in data.items() if name not in schema.get("properties", {})]
            return not others if rule is False else all(valid(inner, rule) for inner in others)
        case "propertyNames" if isinstance(data, dict):
            return all(valid(name, rule) for name in data)
        case "required" if isinstance(data, dict):
            return all(name in data for name in rule)
        case "items" if isinstance(data, list):
            return all(valid(inner, rule) for inner in data)
        case "minItems" if isinstance(data, list):
            return bool(len(data) >= rule)
        case "pattern" if isinstance(data, str) or "type" not in schema:
            return isinstance(data, str) and re.search(rule, data) is not None
        case "minimum" if number:
            return bool(data >= rule)
        case "maximum" if number:
            return bool(data <= rule)
        case "exclusiveMinimum" if number:
            return bool(data > rule)
        case _:
            return True


def _is(name: str, data: Any) -> bool:
    kinds: dict[str, tuple[type, ...]] = {
        "string": (str,), "integer": (int,), "number": (int, float), "object": (dict,), "array": (list,),
        "boolean": (bool,), "null": (type(None),),
    }  # fmt: skip
    return isinstance(data, kinds[name]) and (name == "boolean" or not isinstance(data, bool))
