from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.cli.terminal import Terminal
from tests.ralph import Ralph

AGENT = "Agent command (e.g., claude, codex, amp, or other LLM CLI): "
FLAGS = "Agent flags (comma-separated, optional): "
ITERATIONS = "Maximum iterations [10]: "
RESPONSE = "Completion response [DONE]: "
GUARDRAIL = "Add guardrail command (leave blank to finish): "
ACTION = "  Fail action (APPEND|PREPEND|REPLACE): "
HINT = "  Hint (optional, guidance for agent on failure): "
SCM = "Configure SCM? (y/N): "
EXAMPLE = """
Agent command (e.g., claude, codex, amp, or other LLM CLI): claude
Agent flags (comma-separated, optional): --model,opus
Maximum iterations [10]: 
Completion response [DONE]: 
Add guardrail command (leave blank to finish): make lint
  Fail action (APPEND|PREPEND|REPLACE): APPEND
  Hint (optional, guidance for agent on failure): Fix lint errors only. Do not change behavior.
Add guardrail command (leave blank to finish): make test
  Fail action (APPEND|PREPEND|REPLACE): APPEND
  Hint (optional, guidance for agent on failure): 
Add guardrail command (leave blank to finish): 
Configure SCM? (y/N): y
  SCM command (e.g., git): git
  SCM tasks (comma-separated, e.g., commit,push): commit

Settings written to .ralph/settings.json
"""  # noqa: W291
SHORT = [(AGENT, "tool"), (FLAGS, ""), (ITERATIONS, ""), (RESPONSE, ""), (GUARDRAIL, ""), (SCM, "")]


@pytest.fixture(autouse=True)
def _nothing_found(ralph: Ralph) -> None:
    ralph.env["PATH"] = str(ralph.bin)


def written(ralph: Ralph) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ralph.root / ".ralph/settings.json").read_text(encoding="utf-8"))
    return found


def nothing_written(ralph: Ralph) -> bool:
    return not (ralph.root / ".ralph").exists()


def test_the_dialogue_is_the_one_of_the_example_and_its_answers_are_written(ralph: Ralph) -> None:
    at = Terminal(ralph, "init")
    at.answer(
        (AGENT, "claude"), (FLAGS, "--model,opus"), (ITERATIONS, ""), (RESPONSE, ""), (GUARDRAIL, "make lint"),
        (ACTION, "APPEND"), (HINT, "Fix lint errors only. Do not change behavior."), (GUARDRAIL, "make test"),
        (ACTION, "APPEND"), (HINT, ""), (GUARDRAIL, ""), (SCM, "y"), ("  SCM command (e.g., git): ", "git"),
        ("  SCM tasks (comma-separated, e.g., commit,push): ", "commit"),
    )  # fmt: skip
    assert at.end() == 0
    assert at.shown == EXAMPLE
    assert written(ralph) == {
        "maximumIterations": 10, "completionResponse": "DONE", "outputTruncateChars": 5000, "streamAgentOutput": True,
        "includeIterationCountInPrompt": False, "agent": {"command": "claude", "flags": ["--model", "opus"]},
        "guardrails": [
            {"command": "make lint", "failAction": "APPEND", "hint": "Fix lint errors only. Do not change behavior."},
            {"command": "make test", "failAction": "APPEND"},
        ],
        "scm": {"command": "git", "tasks": ["commit"]},
    }  # fmt: skip
    assert "!/settings.json" in (ralph.root / ".ralph/.gitignore").read_text(encoding="utf-8")
    assert ralph("config", "show").code == 0


def test_wrong_answers_are_asked_again_and_the_fail_action_is_put_in_capitals(ralph: Ralph) -> None:
    at = Terminal(ralph, "init")
    at.answer(
        (AGENT, ""), (AGENT, "  "), (AGENT, 'a "b'), (AGENT, "tool"), (FLAGS, " , -a ,, b "), (ITERATIONS, "0"),
        (ITERATIONS, "-3"), (ITERATIONS, "two"), (ITERATIONS, "1.5"), (ITERATIONS, "99999999999"), (ITERATIONS, "7"),
        (RESPONSE, "FINISHED"), (GUARDRAIL, "true"), (ACTION, ""), (ACTION, "later"), (ACTION, "prepend"), (HINT, ""),
        (GUARDRAIL, ""), (SCM, "yes"), ("SCM command", ""), ("SCM command", "hg"), ("SCM tasks", " , "),
        ("SCM tasks", "commit, push"),
    )  # fmt: skip
    assert at.end() == 0
    made = written(ralph)
    assert made["agent"] == {"command": "tool", "flags": ["-a", "b"]}
    assert (made["maximumIterations"], made["completionResponse"]) == (7, "FINISHED")
    assert made["guardrails"] == [{"command": "true", "failAction": "PREPEND"}]
    assert made["scm"] == {"command": "hg", "tasks": ["commit", "push"]}


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["Ctrl-C", "end of input"])
@pytest.mark.parametrize("asked", range(len(SHORT)))
def test_leaving_in_the_middle_writes_nothing(ralph: Ralph, key: str, asked: int) -> None:
    """EN-31"""
    at = Terminal(ralph, "init")
    at.answer(*SHORT[:asked])
    at.expect(SHORT[asked][0])
    at.type(key)
    assert at.end() == 130
    assert "Traceback" not in at.shown
    assert nothing_written(ralph)


def test_what_is_found_is_named_before_it_is_asked_for(ralph: Ralph) -> None:
    ralph.program("codex", "exit 1")
    ralph.write({"Makefile": "test:\n\ttrue\nlint:\n\ttrue\n"})
    at = Terminal(ralph, "init")
    at.answer(*SHORT)
    assert at.end() == 0
    assert at.shown.startswith(f"Found on PATH: codex\n\n{AGENT}")
    assert f"\nChecks this project names: make lint, make test\n{GUARDRAIL}" in at.shown
    assert written(ralph)["guardrails"] == [], "none is wanted of those that were named"


def test_where_no_check_is_found_the_settings_leave_it_to_the_runs_to_look(ralph: Ralph) -> None:
    assert ralph("init", "--yes", "--agent", "tool").code == 0
    assert "guardrails" not in written(ralph)


def test_an_agent_that_is_given_is_not_asked_for(ralph: Ralph) -> None:
    at = Terminal(ralph, "init", "--agent", "mine --batch")
    at.answer(*SHORT[1:])
    assert at.end() == 0
    assert AGENT not in at.shown
    assert written(ralph)["agent"]["command"] == "mine --batch"


@pytest.mark.parametrize("answer", ["", "n", "nonsense"])
def test_existing_settings_are_shown_and_kept_unless_somebody_says_yes(ralph: Ralph, answer: str) -> None:
    ralph.settings(agent={"command": "old", "flags": ["-a"]}, maximumIterations=4)
    ralph.write({".ralph/settings.local.json": '{"agent": {"flags": ["-b"]}}'})
    before = (ralph.root / ".ralph/settings.json").read_bytes()
    at = Terminal(ralph, "init")
    at.answer(("Overwrite? (y/N): ", answer))
    assert at.end() == 0
    shown, _, rest = at.shown.partition("Loaded from ")
    assert json.loads(shown) == {"agent": {"command": "old", "flags": ["-b"]}, "maximumIterations": 4}
    assert shown.startswith('{\n  "agent": {\n')
    assert rest.startswith(".ralph/settings.json (with local overlay from settings.local.json)\nOverwrite? (y/N): ")
    assert (ralph.root / ".ralph/settings.json").read_bytes() == before


def test_existing_settings_are_overwritten_on_a_yes(ralph: Ralph) -> None:
    ralph.settings(agent={"command": "old"}, maximumIterations=4)
    at = Terminal(ralph, "init")
    at.answer(("Loaded from .ralph/settings.json\nOverwrite? (y/N): ", "y"), *SHORT)
    assert at.end() == 0
    assert written(ralph)["agent"]["command"] == "tool"
    assert os.listdir(ralph.root / ".ralph").count("settings.json") == 1
    assert not [name for name in os.listdir(ralph.root / ".ralph") if name.endswith(".tmp")]


def test_broken_settings_are_told_and_can_be_overwritten(ralph: Ralph) -> None:
    ralph.write({".ralph/settings.json": "{nonsense"})
    at = Terminal(ralph, "init")
    at.answer(("Overwrite? (y/N): ", "y"), *SHORT)
    assert at.end() == 0
    assert ".ralph/settings.json:1:2" in at.shown
    assert written(ralph)["agent"]["command"] == "tool"


@pytest.mark.parametrize(("agent", "said"), [("pi --x", True), ("claude", False), ("mine", False)])
def test_an_agent_that_will_need_the_users_word_is_remarked_on(ralph: Ralph, agent: str, said: bool) -> None:
    ended = ralph("init", "--yes", "--agent", agent)
    assert ended.code == 0
    assert ("Note: agent pi has no mode that asks nothing" in ended.out) == said
    assert ("ralph run needs --sandbox or --no-sandbox for it\n" in ended.out) == said


@pytest.mark.parametrize(("typed", "word"), [("", "COMPLETE"), ("FINISHED", "FINISHED")])
def test_a_wrapper_has_a_word_of_its_own_unless_another_is_typed(ralph: Ralph, typed: str, word: str) -> None:
    at = Terminal(ralph, "init", "--preset", "wrapper")
    at.answer(*SHORT[:3], ("Completion response [COMPLETE]: ", typed), *SHORT[4:])
    assert at.end() == 0
    assert (written(ralph)["preset"], written(ralph)["completionResponse"]) == ("wrapper", word)


@pytest.mark.parametrize(("preset", "word"), [("wrapper", "COMPLETE"), ("harness", "DONE")])
def test_where_nothing_is_asked_the_preset_decides_the_word(ralph: Ralph, preset: str, word: str) -> None:
    assert ralph("init", "--yes", "--agent", "tool", "--preset", preset).code == 0
    assert written(ralph)["completionResponse"] == word


def test_without_a_terminal_yes_is_needed(ralph: Ralph) -> None:
    """EN-31"""
    ended = ralph("init", stdin="claude\n\n\n\n\n\n")
    assert ended.code == 2
    assert "--yes" in ended.err
    assert nothing_written(ralph)


def test_yes_takes_the_agent_and_the_checks_that_it_finds(ralph: Ralph) -> None:
    ralph.program("claude", "exit 1")
    ralph.write({"Makefile": "test:\n\ttrue\n"})
    ended = ralph("init", "--yes")
    assert ended.code == 0
    assert ended.out.endswith("\nSettings written to .ralph/settings.json\n")
    made = written(ralph)
    assert made["agent"] == {"command": "claude", "flags": []}
    assert made["guardrails"] == [{"command": "make test", "failAction": "APPEND"}]
    assert ralph("config", "show").code == 0


def test_yes_keeps_existing_settings_unless_forced(ralph: Ralph) -> None:
    ralph.settings(maximumIterations=4)
    refused = ralph("init", "--yes", "--agent", "new")
    assert refused.code == 2
    assert "--force" in refused.err
    assert written(ralph) == {"maximumIterations": 4}
    assert ralph("init", "--yes", "--agent", "new", "--force", "--json").json["settings"]["agent"]["command"] == "new"
    assert written(ralph)["agent"]["command"] == "new"


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["--yes"], "--agent"),
        (["--yes", "--agent", "a", "--name", "n"], "--name is for stories"),
        (["--yes", "--agent", "a", "--ralph-dir", "d", "--preset", "wrapper"], "--ralph-dir is for stories"),
        (["--yes", "--agent", "a", "--preset", "nonsense"], "not available"),
        (["--yes", "--agent", " "], "agent.command"),
        (["--json"], "--yes"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(ralph: Ralph, argv: list[str], word: str) -> None:
    ended = ralph("init", *argv)
    assert (ended.code, nothing_written(ralph)) == (2, True)
    assert word in ended.err


def test_settings_are_never_written_through_a_link(ralph: Ralph) -> None:
    (ralph.folder / "elsewhere").mkdir()
    (ralph.root / ".ralph").symlink_to(ralph.folder / "elsewhere")
    ended = ralph("init", "--yes", "--agent", "a")
    assert ended.code == 2
    assert "cannot write" in ended.err
    assert not list((ralph.folder / "elsewhere").iterdir())


def test_an_answer_that_is_no_text_is_refused(ralph: Ralph) -> None:
    at = Terminal(ralph, "init")
    at.answer((AGENT, "to\udcffol"), *SHORT[1:])
    assert at.end() == 2
    assert "agent.command" in at.shown
    assert nothing_written(ralph)


def test_files_that_are_to_be_committed_have_the_mode_that_the_user_wants(ralph: Ralph) -> None:
    ralph.program("claude", "exit 1")
    assert ralph("init", "--yes", via=("/bin/sh", "-c", 'umask 027; exec "$@"', "sh")).code == 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in (ralph.root / ".ralph").iterdir()}
    assert modes == {"settings.json": 0o640, ".gitignore": 0o640}


def test_a_directory_in_the_settings_place_is_left_there(ralph: Ralph) -> None:
    (ralph.root / ".ralph/settings.json").mkdir(parents=True)
    told = ralph("init", "--yes", "--force", "--agent", "claude")
    assert (told.code, "is a directory" in told.err) == (2, True)
    assert (ralph.root / ".ralph/settings.json").is_dir()
