"""`ralph skills`, and what `--explain` says."""

from __future__ import annotations

import json

import pytest

from ralphproof.runs.displays import print_fitness
from ralphproof.runs.preflight import WorkIntent, assess_fitness
from ralphproof.settings.skills import Skill
from tests.ralph import Ralph

OWN = "code-cleanup, systematic-debugging, tasks, tdd"
MINE = """---
name: mine
description: My own way.
promise: OK
verification: touch executed
criteria: [done]
---
# Mine

## Self-Correction

Again.
"""


def test_the_skills_that_come_along_are_listed(ralph: Ralph) -> None:
    told = ralph("skills", "list")
    assert (told.code, told.err) == (0, "")
    for name in OWN.split(", "):
        ready = "not ready for a loop, 2 missing" if name == "tasks" else "ready for a loop"
        assert f"{name}  ({ready}; comes with ralph)\n    " in told.out


def test_the_list_tells_of_shadowed_skills_and_of_problems(ralph: Ralph) -> None:
    ralph.write({
        ".ralph/skills/tdd/SKILL.md": "# Ours\n",
        ".claude/skills/broken/SKILL.md": "---\nname: other\n---\n",
    })  # fmt: skip
    lines = ralph("skills", "list").out.splitlines()
    assert lines[:2] == ["tdd  (not ready for a loop, 4 missing; .ralph/skills/tdd/SKILL.md)", "    no description"]
    assert lines[-2] == "not used: tdd (comes with ralph); another one of this name takes precedence"
    assert lines[-1].startswith(
        "problem: .claude/skills/broken/SKILL.md: its name is 'other' and its folder's is 'broken'"
    )


def test_the_list_for_programs(ralph: Ralph) -> None:
    ralph.write(
        {".ralph/skills/tdd/SKILL.md": "# Ours\n", ".ralph/skills/A/SKILL.md": "", ".ralph/skills/mine/SKILL.md": MINE}
    )
    told = ralph("skills", "list", "--json").json
    assert (told["v"], told["type"]) == (1, "skills")
    assert told["skills"][0] == {
        "name": "mine", "description": "My own way.", "promise": "OK", "verification": ["touch executed"],
        "criteria": ["done"], "source": ".ralph/skills/mine/SKILL.md", "ready": True, "lacking": [],
    }  # fmt: skip
    assert (told["skills"][1]["promise"], told["skills"][1]["ready"], len(told["skills"][1]["lacking"])) == (
        None,
        False,
        4,
    )
    assert [(skill["name"], skill["source"]) for skill in told["shadowed"]] == [("tdd", "comes with ralph")]
    assert len(told["problems"]) == 1


def test_one_skill_is_shown_whole(ralph: Ralph) -> None:
    ralph.write({".ralph/skills/mine/SKILL.md": MINE})
    assert ralph("skills", "show", "mine").out == (
        "mine: My own way.\nfound: .ralph/skills/mine/SKILL.md\npromise: OK\nverified by: touch executed\n"
        "criterion: done\nuse it: ralph run --skill mine -p PROMPT\n\n# Mine\n\n## Self-Correction\n\nAgain.\n"
    )
    told = ralph("skills", "show", "mine", "--json").json
    assert (told["type"], told["name"], told["body"]) == ("skill", "mine", "# Mine\n\n## Self-Correction\n\nAgain.")


def test_a_skill_that_is_not_ready_says_what_it_lacks(ralph: Ralph) -> None:
    ralph.write({".ralph/skills/mine/SKILL.md": "# Mine\n"})
    told = ralph("skills", "show", "mine").out
    assert told.count("lacks: no ") == 4
    assert "use it" not in told


def test_nothing_is_executed_and_nothing_is_written(ralph: Ralph) -> None:
    ralph.write({".ralph/skills/mine/SKILL.md": MINE})
    for argv in (["list"], ["show", "mine"], ["list", "--json"]):
        assert ralph("skills", *argv).code == 0
    assert {path.name for path in ralph.root.rglob("*")} == {".ralph", "skills", "mine", "SKILL.md"}
    assert not ralph.state_dir.exists()


def test_nothing_in_a_skill_reaches_the_terminal_but_text(ralph: Ralph) -> None:
    front = '---\ndescription: "a \\u001b]0;title\\u0007b\\u001b[2Jc"\n---\n'
    ralph.write({".ralph/skills/mine/SKILL.md": f"{front}# Mine \x1b[2J\x1b]0;over\nlines\x07 end\u202e\n"})
    for argv in (["list"], ["show", "mine"]):
        out = ralph("skills", *argv).out
        assert "\x1b" not in out
        assert "\x07" not in out
        assert "\u202e" not in out
    shown = ralph("skills", "show", "mine").out
    assert "mine: a bc\n" in shown
    assert shown.endswith("\n# Mine  end\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["show", "tddd"], f"no skill is called 'tddd'; there are: {OWN}; did you mean tdd?"),
        (["show"], f"which skill? ralph skills show NAME; available: {OWN}"),
        (["list", "tdd"], "ralph skills list takes no name; to see one skill: ralph skills show tdd"),
        (["lsit"], "invalid choice"),
        ([], "required"),
    ],
)  # fmt: skip
def test_a_slip_is_refused_in_one_line(ralph: Ralph, argv: list[str], message: str) -> None:
    told = ralph("skills", *argv)
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)
    assert message in told.err


def test_skills_are_found_from_a_folder_below(ralph: Ralph) -> None:
    ralph.settings()
    ralph.write({".ralph/skills/mine/SKILL.md": MINE, "deep/er/x": ""})
    assert ralph("skills", "show", "mine", cwd=ralph.root / "deep/er").code == 0


# --explain


def test_work_that_is_fit_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    found = assess_fitness(WorkIntent("Fix the crash in parse()", checks=("make test",)), None)
    assert print_fitness(found, None, as_json=False) == 0
    assert capsys.readouterr().out == (
        "yes  verification: decided by make test\n"
        'yes  scope: bug, guessed from "fix"; --type says it for sure\n'
        "yes  risk: low, since the prompt has no risky word; --risk says it for sure\n"
        "yes  skill: no skill: the loop runs the prompt as it is\n"
        "\n"
        "fit for a loop\n"
    )


def test_work_that_is_not_fit_is_told_why_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    skill = Skill("mine")
    assert print_fitness(assess_fitness(WorkIntent("improve the login architecture"), skill), skill, as_json=False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line[:5] for line in lines[:4]] == ["no   "] * 4
    assert lines[5] == "not fit for a loop: verification, scope, risk, skill"
    assert len(lines) == 10
    assert "--check CMD" in lines[6]


def test_the_explanation_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    skill = Skill("mine", promise="OK", verification=("x",), criteria=("c",), body="## Self-Correction\nx")
    found = assess_fitness(WorkIntent("Fix the login form", checks=("x",)), skill)
    assert print_fitness(found, skill, as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    conditions = told.pop("conditions")
    assert told == {
        "v": 1, "type": "explain", "fit": False, "taskType": "bug", "risk": "high", "skill": "mine",
    }  # fmt: skip
    assert [(each["name"], each["met"]) for each in conditions] == [
        ("verification", True), ("scope", True), ("risk", False), ("skill", True),
    ]  # fmt: skip
    assert conditions[0]["reason"] == "decided by x"


def test_a_command_with_escapes_is_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_fitness(assess_fitness(WorkIntent("Fix parse()", checks=("\x1b[2Jmake\ntest",)), None), None, as_json=False)
    assert "decided by make test\n" in capsys.readouterr().out
