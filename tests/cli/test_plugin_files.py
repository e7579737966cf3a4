"""The files of the plugin: that they agree with each other, with the program, and with what they are made from."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from ralphproof import __version__
from ralphproof.agents.hook_commands import GUARD_VERB, HOOK_EVENTS, installed_guard_command
from ralphproof.cli.dispatch import split_verb
from ralphproof.cli.verbs import VERBS, verb_function
from ralphproof.setup.plugin import MARKETPLACE, PLUGIN_NAME
from ralphproof.stories import review, schema
from ralphproof.stories.story_folder import TEMPLATES
from tests.cli.plugin_skills import PLUGIN, SHARED, skills
from tests.needs import require
from tests.ralph import PROGRAM, Ralph, until

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = PLUGIN / ".claude-plugin"
SKILLS = ("ralph-plan", "ralph-tasks", *SHARED)
PAGES = [PLUGIN / "skills" / name / "SKILL.md" for name in SKILLS]
HOOKS: dict[str, Any] = json.loads((PLUGIN / "hooks/hooks.json").read_text("utf-8"))["hooks"]


def manifest(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


# Its files


def test_the_plugin_has_the_version_of_the_package() -> None:
    for folder, name in ((PLUGIN, PLUGIN_NAME), (PLUGIN / "guard", f"{PLUGIN_NAME}-guard")):
        own = manifest(folder / ".claude-plugin/plugin.json")
        assert (own["name"], own["version"]) == (name, __version__)
        assert own["author"]["name"]


@pytest.mark.parametrize(
    ("market", "source"), [(MANIFESTS, "./"), (ROOT / ".claude-plugin", "./src/ralphproof/plugin")]
)
def test_a_marketplace_offers_the_plugin(market: Path, source: str) -> None:
    told = manifest(market / "marketplace.json")
    assert told["name"] == MARKETPLACE
    for offered, name, folder in zip(
        told["plugins"], (PLUGIN_NAME, f"{PLUGIN_NAME}-guard"), (PLUGIN, PLUGIN / "guard"), strict=True
    ):
        assert (offered["name"], offered["version"]) == (name, __version__)
        assert (market.parent / offered["source"]).resolve() == folder
    assert told["plugins"][0]["source"] == source


@pytest.mark.parametrize(("event", "verb"), [(event, verb) for event, verb, _ in HOOK_EVENTS])
def test_every_hook_is_wired_to_its_event(event: str, verb: str) -> None:
    ((group),) = HOOKS[event]
    (hook,) = group["hooks"]
    assert group.get("matcher") == (".*" if "Tool" in event else None)
    assert (hook["type"], f"ralphproof hook {verb} " in hook["command"]) == ("command", True)
    assert 0 < hook["timeout"] <= 30


def test_no_other_event_is_wired() -> None:
    assert set(HOOKS) == {event for event, _, _ in HOOK_EVENTS}


def test_the_guard_is_called_before_every_tool_and_holds_back_what_it_gave_no_answer_to(ralph: Ralph) -> None:
    hooks = manifest(PLUGIN / "guard/hooks/hooks.json")["hooks"]
    (group,) = hooks.pop("PreToolUse")
    (hook,) = group["hooks"]
    assert (hooks, group["matcher"], hook["command"]) == ({}, ".*", installed_guard_command())
    for fault in (None, "exit 3", "kill -9 $$"):
        if fault:
            ralph.program("ralphproof", fault)
        code, out, err = called("sh", hook["command"], ralph.bin)
        assert (code, json.loads(out)["hookSpecificOutput"]["permissionDecision"]) == (2, "deny")
        assert "this call was not made" in err
    ralph.program("ralphproof", 'read -r line; echo "$@: $line"')
    assert called("sh", hook["command"], ralph.bin) == (0, f"hook {GUARD_VERB}: the event\n", "")


def called(shell: str, command: str, path: Path) -> tuple[int, str, str]:
    require(shutil.which(shell) is not None, f"{shell}, to read what a hook is")
    argv = [str(shutil.which(shell)), "-c", command]
    env = {"PATH": str(path), "HOME": str(path)}
    ran = subprocess.run(argv, env=env, input="the event", capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish"])
@pytest.mark.parametrize("event", HOOKS)
def test_a_hook_calls_the_program_and_is_silent_where_there_is_none(ralph: Ralph, shell: str, event: str) -> None:
    command = HOOKS[event][0]["hooks"][0]["command"]
    assert called(shell, command, ralph.bin) == (0, "", "")
    ralph.program("ralphproof", 'read -r line; echo "$@: $line"')
    (verb,) = (verb for name, verb, _ in HOOK_EVENTS if name == event)
    assert called(shell, command, ralph.bin) == (0, f"hook {verb}: the event\n", "")


@pytest.mark.parametrize("fault", ["exit 2", "exit 3", "kill -9 $$", "#!/nowhere/python\n"])
def test_a_program_that_fails_neither_blocks_nor_disturbs(ralph: Ralph, fault: str) -> None:
    ralph.program("ralphproof", fault)
    for groups in HOOKS.values():
        code, out, _ = called("sh", groups[0]["hooks"][0]["command"], ralph.bin)
        assert (code, out) == (0, "")


# Its skills


@pytest.mark.parametrize("path", skills(), ids=lambda path: path.parent.name)
def test_what_a_skill_has_from_elsewhere_is_as_it_is_there(path: Path) -> None:
    assert path.read_text("utf-8") == skills()[path], "write it anew: python -m tests.cli.plugin_skills"


def test_there_are_just_these_skills() -> None:
    assert sorted(path.name for path in (PLUGIN / "skills").iterdir()) == sorted(SKILLS)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.parent.name)
def test_a_skill_says_what_it_is_for(path: Path) -> None:
    _, front, body = path.read_text("utf-8").split("---\n", 2)
    told = YAML(typ="safe").load(front)
    assert told["name"] == path.parent.name
    assert 40 < len(told["description"]) <= 1024
    assert body.startswith("# ")


def test_the_planner_comes_by_each_of_its_phrases() -> None:
    text = PAGES[0].read_text("utf-8")
    told = YAML(typ="safe").load(text.split("---\n", 2)[1])["description"]
    for phrase in ("/ralph-plan", "plan this feature for ralph", "create a ralph prd", "generate tasks for ralph"):
        assert f'"{phrase}"' in told
    assert "## Mode 1: full planning" in text
    assert "## Mode 2: tasks from a PRD that is there" in text
    assert "ralph init --preset stories" in text


def test_the_planner_knows_the_sections_of_the_prd() -> None:
    wanted = re.findall(r"^## (\d+\. .+)$", (Path(TEMPLATES) / "prd.md").read_text("utf-8"), re.MULTILINE)
    assert re.findall(r"^   (\d+\. [A-Z].+)$", PAGES[0].read_text("utf-8"), re.MULTILINE) == wanted


def blocks(path: Path, kind: str) -> list[str]:
    found = re.findall(rf"^ *```{kind}\n(.*?)^ *```$", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    return found


def test_the_form_that_the_planner_shows_can_be_run() -> None:
    (form,) = blocks(PAGES[0], "json")
    document = json.loads(form)
    assert (schema.validate_stories(document), review.check_invariants(document)) == ((), ())
    template = manifest(Path(TEMPLATES) / "tasks.json")
    assert (set(document), set(document["userStories"][0])) == (set(template), set(template["userStories"][0]))


def test_a_story_that_is_added_by_hand_is_a_legal_newcomer() -> None:
    (form,) = blocks(PAGES[1], "json")
    document = {"project": "", "branchName": "", "description": "", "userStories": [json.loads(form)]}
    assert (schema.validate_stories(document), review.check_stories_kept({}, document)) == ((), ())


@pytest.mark.parametrize("mode", schema.MODES)
def test_the_rules_of_a_mode_are_the_ones_that_hold(mode: str) -> None:
    assert f"| `{mode}` | {review.MODE_INSTRUCTIONS[mode]} |" in PAGES[1].read_text("utf-8")


def test_the_words_of_the_review_are_the_ones_that_hold() -> None:
    text = PAGES[1].read_text("utf-8")
    for word in (*schema.STATUSES[1:], *schema.REVIEW_FIELDS, review.APPROVED_AT_CAP):
        assert f"{word}" in text


@pytest.mark.parametrize("path", [*PAGES, ROOT / "docs/plugin.md", PLUGIN / "README.md"], ids=str)
def test_every_command_that_is_shown_is_one(path: Path) -> None:
    text = path.read_text("utf-8")
    shown = [line.strip() for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    for line in filter(None, shown):
        program, *argv = shlex.split(line, comments=True)
        assert program == "ralph"
        verb, rest = split_verb(argv)
        verb_function(verb, "parser")().parse(rest)
    assert set(re.findall(r"`ralph ([a-z]+)", text)) <= {*VERBS}


@pytest.mark.parametrize("name", SHARED)
def test_with_persist_a_loop_does_the_work_until_the_checks_pass(ralph: Ralph, name: str) -> None:
    word = {"tdd": "COMPLETE", "systematic-debugging": "BUG_FIXED", "code-cleanup": "LINT_CLEAN"}[name]
    ralph.write({"Makefile": "test:\n\ttest -e done\nlint:\n\ttrue\n"})
    ralph.commit()
    agent = ralph.script([{"cost": 0.01}, {"write": {"done": ""}}, {"text": f"<promise>{word}</promise>"}])
    ralph.settings(agent={"command": agent})
    ralph.program("ralph", f'exec {shlex.join(PROGRAM)} "$@"')
    path = PLUGIN / "skills" / name / "SKILL.md"
    explain, start = (line.strip() for block in blocks(path, "sh") for line in block.splitlines() if " run " in line)
    for line in (explain, start):
        line = line.replace("TASK", "Fix parse() for empty input, don'\\''t touch others")
        ran = subprocess.run(["/bin/sh", "-c", line], cwd=ralph.root, env=ralph.env, capture_output=True, text=True)
        assert ran.returncode == 0, ran
    until(lambda: (ralph.run_folder() / "outcome.json").exists(), "the end of the loop")
    ended = ralph.outcome()
    assert (ended["status"], ended["proof"], ended["iterations"]) == ("COMPLETED", "verified", 1)
    assert "don't touch others" in (ralph.run_folder() / "prompt_001.txt").read_text("utf-8")
