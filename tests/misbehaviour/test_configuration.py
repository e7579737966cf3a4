"""Settings that are wrong, and settings that meet."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.misbehaviour.agents import case, facts, plain, run, seen
from tests.misbehaviour.invariants import hold, refusal
from tests.needs import require
from tests.ralph import Ralph, done, write

SETTINGS = ".ralph/settings.json"
LOCAL = ".ralph/settings.local.json"


@pytest.mark.parametrize(
    ("settings", "flags", "env", "words"),
    [
        case("CF-01-key", {"maximumIteration": 3}, (), {},
             ("unknown key maximumIteration; did you mean maximumIterations?", SETTINGS)),
        case("CF-01-all-at-once", {"gardrails": [], "agent": {"comand": "x"}}, (), {},
             ("did you mean guardrails?", "unknown key agent.comand; did you mean agent.command?")),
        case("CF-01-key-in-a-list", {"guardrails": [{"command": "true", "failActions": "APPEND"}]}, (), {},
             ("did you mean guardrails[0].failAction?",)),
        case("CF-01-flag", {}, ("--maximum-iteration", "3"), {}, ("did you mean --maximum-iterations?",)),
        case("CF-01-variable", {}, (), {"RALPH__MAXIMUM_ITERATION": "3"},
             ("RALPH__MAXIMUM_ITERATION", "did you mean RALPH__MAXIMUM_ITERATIONS?")),
    ],
)  # fmt: skip
def test_a_misspelt_name_is_refused_with_the_right_one(
    ralph: Ralph, settings: dict[str, Any], flags: tuple[str, ...], env: dict[str, str], words: tuple[str, ...]
) -> None:
    """CF-01"""
    ralph.settings(**settings)
    agent = ralph.script([write(started="yes"), done()])
    refusal(ralph, ralph("run", "-p", "make it so", "--agent", agent, *flags, env=env), *words)


@pytest.mark.parametrize("wrong", ["ten", 1.5, True, [3], {"is": 3}])
def test_a_number_of_another_type_is_refused(ralph: Ralph, wrong: object) -> None:
    """CF-02"""
    ralph.settings(maximumIterations=wrong)
    refusal(ralph, run(ralph), f"{SETTINGS}: maximumIterations must be a whole number", json.dumps(wrong))


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        case("CF-02-text", {"completionResponse": 7}, "completionResponse"),
        case("CF-02-boolean", {"streamAgentOutput": "yes"}, "streamAgentOutput"),
        case("CF-02-object", {"agent": "claude"}, "agent"),
        case("CF-02-list", {"guardrails": "make test"}, "guardrails"),
        case("CF-02-item", {"guardrails": ["make test"]}, "guardrails[0]"),
        case("CF-02-choice", {"guardrails": [{"command": "true", "failAction": "IGNORE"}]}, "guardrails[0].failAction"),
        case("CF-02-whole-file", ["maximumIterations"], "settings must be an object"),
    ],
)
def test_a_value_of_another_type_is_refused_by_key_and_file(ralph: Ralph, settings: object, path: str) -> None:
    """CF-02"""
    ralph.write({SETTINGS: json.dumps(settings)})
    refusal(ralph, run(ralph), f"{SETTINGS}: {path}")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        case("CF-03-comment", b'{\n  // how often\n  "maximumIterations": 3\n}', ":2:3: JSON has no comments"),
        case("CF-03-comma", b'{\n  "maximumIterations": 3,\n}', ":3:1: JSON has no comma after the last entry"),
        case("CF-03-utf-16", '{"maximumIterations": 3}'.encode("utf-16"), ":1:1: is UTF-16 or UTF-32"),
        case("CF-03-latin-1", b'{\n "completionResponse": "fertig \xfc"}', ":2:32: is not UTF-8"),
        case("CF-03-torn", b'{"maximumIterations": ', ":1:"),
        case("CF-23-empty", b"", ":1:1: is empty"),
        case("CF-23-blank", b" \n\n", ":1:1: is empty"),
        case("CF-27-doubled", b'{"maximumIterations": 3, "maximumIterations": 30}', "maximumIterations is given twice"),
        case("CF-27-doubled-within", b'{"agent": {"model": "a", "model": "b"}}', "model is given twice"),
    ],
)
def test_a_file_that_is_not_json_is_refused_with_the_place(ralph: Ralph, text: bytes, place: str) -> None:
    """CF-03, CF-23, CF-27"""
    (ralph.root / ".ralph").mkdir()
    (ralph.root / SETTINGS).write_bytes(text)
    ended = run(ralph)
    refusal(ralph, ended, place)
    assert f"ralph: {SETTINGS}:" in ended.err


def test_a_byte_order_mark_does_no_harm(ralph: Ralph) -> None:
    """CF-03"""
    (ralph.root / ".ralph").mkdir()
    (ralph.root / SETTINGS).write_bytes(b'\xef\xbb\xbf{"maximumIterations": 3}')
    ended = run(ralph)
    hold(ralph, ended)
    assert (ended.code, facts(ralph)["maximumIterations"]) == (0, 3)


def test_local_settings_override_scalars_replace_lists_and_merge_objects(ralph: Ralph) -> None:
    """CF-04"""
    agent = plain(ralph, [{"record": "../seen"}, {"run": ["sh", "-c", "echo $BOTH > ../both"]}, done()])
    ralph.settings(
        maximumIterations=4,
        guardrails=[{"command": "false"}, {"command": "exit 3"}],
        agent={"command": agent, "env": {"SHARED": "1", "BOTH": "shared"}},
    )
    ralph.write({LOCAL: json.dumps({"maximumIterations": 2, "guardrails": [{"command": 'test -z "$BOTH"'}],
                                    "agent": {"env": {"BOTH": "local", "OWN": "1"}}})})  # fmt: skip
    ended = ralph("run", "-p", "make it so")
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert facts(ralph)["maximumIterations"] == 2
    assert list(facts(ralph)["checks"]) == ['test -z "$BOTH"'], "what is for the agent is not for the checks"
    assert (ralph.folder / "both").read_text() == "local\n"
    assert {"SHARED", "BOTH", "OWN"} <= set(seen(ralph)[0]["env"])


@pytest.mark.parametrize("path", ["agent", "agent.command", "agent.flags", "guardrails", "limits", "maximumIterations"])
def test_a_null_never_takes_a_setting_away(ralph: Ralph, path: str) -> None:
    """CF-05: a run that loses its guardrails in silence would be proved by nothing."""
    ralph.settings(guardrails=[{"command": "false"}], agent={"command": ralph.script([done()])})
    first, _, second = path.partition(".")
    ralph.write({LOCAL: json.dumps({first: {second: None} if second else None})})
    refusal(ralph, run(ralph), f"{LOCAL}: {path} may not be null")


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize(
    "path",
    ["maximumIterations", "outputTruncateChars", "agent.timeoutSeconds", "agent.idleTimeoutSeconds",
     "limits.maxCostUsd", "limits.maxTokens", "limits.maxMinutes", "limits.stallIterations",
     "limits.sameErrorIterations", "guardrails[0].timeoutSeconds"],
)  # fmt: skip
def test_a_limit_of_nothing_or_less_is_refused(ralph: Ralph, path: str, number: int) -> None:
    """CF-06"""
    first, _, second = path.partition(".")
    if first == "guardrails[0]":
        ralph.settings(guardrails=[{"command": "true", second: number}])
    else:
        ralph.settings(**{first: {second: number} if second else number})
    refusal(ralph, run(ralph), f"{SETTINGS}: {path} must be")


@pytest.mark.parametrize(
    ("flag", "number"),
    [("-m", "0"), ("-m", "-1"), ("-m", "many"), ("-m", ""), ("-m", "1.5"), ("--max-tokens", "0"),
     ("--max-cost-usd", "0"), ("--max-cost-usd", "nan"), ("--max-minutes", "-1"), ("--max-minutes", "inf")],
)  # fmt: skip
def test_a_flag_that_limits_nothing_is_refused(ralph: Ralph, flag: str, number: str) -> None:
    """CF-06"""
    bounds = "a whole number of 1 or more" if flag in ("-m", "--max-tokens") else "a number above 0"
    refusal(ralph, run(ralph, flag, number), flag, f"must be {bounds}, not")


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        case("CF-07-both", (), ("maximumIterations", "limits.maxCostUsd")),
        case("CF-07-cost", ("-m", "3"), ("limits.maxCostUsd",)),
        case("CF-07-iterations", ("--max-cost-usd", "1"), ("maximumIterations",)),
    ],
)
def test_the_wrapper_wants_its_limits_in_so_many_words(
    ralph: Ralph, flags: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    """CF-07"""
    ended = run(ralph, "--preset", "wrapper", *flags)
    refusal(ralph, ended, *(f"{path} must be explicit" for path in missing))
    assert ended.err.count("must be explicit") == len(missing)


@pytest.mark.parametrize("command", ["", "  ", "\n\t"])
@pytest.mark.parametrize("place", ["settings", "flag"])
def test_a_check_that_does_nothing_is_refused(ralph: Ralph, command: str, place: str) -> None:
    """CF-24: the shell is content with an empty command."""
    if place == "settings":
        ralph.settings(guardrails=[{"command": command}])
    ended = run(ralph, *(("--check", command) if place == "flag" else ()))
    refusal(ralph, ended, "guardrails[0].command must be text that is not blank")


@pytest.mark.parametrize(
    ("what", "name"),
    [("directory", SETTINGS), ("directory", LOCAL), ("loop", SETTINGS), ("loop", LOCAL),
     ("dangling", SETTINGS), ("pipe", LOCAL), ("unreadable", SETTINGS)],
)  # fmt: skip
def test_a_settings_file_that_cannot_be_read_is_refused(ralph: Ralph, what: str, name: str) -> None:
    """CF-23"""
    path = ralph.root / name
    path.parent.mkdir()
    match what:
        case "directory":
            path.mkdir()
        case "loop":
            path.symlink_to(path.name)
        case "dangling":
            path.symlink_to("nowhere")
        case "pipe":
            os.mkfifo(path)
        case _:
            require(os.path.exists("/proc/self/mem"), "a file that even root cannot read")
            path.symlink_to("/proc/self/mem")
    refusal(ralph, run(ralph), f"ralph: {name}: ")
