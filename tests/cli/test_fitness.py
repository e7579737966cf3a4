"""What `ralph run` says and does about work that may not be left to a loop, and about paths that are no paths."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from ralphproof.engine.records import RunBegan
from tests.needs import require
from tests.ralph import Ended, Ralph, done, write

GOOD = "Fix the crash in parse_line() when the line is empty"
RISKY = "Fix the login page of the shop"


def run(ralph: Ralph, *argv: str, word: str = "DONE") -> Ended:
    """A run whose agent leaves the file `started` behind."""
    return ralph("run", "--agent", ralph.script([write(started="yes"), done(word)]), *argv)


def started(ralph: Ralph) -> bool:
    return (ralph.root / "started").exists()


def refused(ralph: Ralph, ended: Ended, *words: str) -> None:
    """It is said why, and nothing has begun."""
    assert (ended.code, ended.out, started(ralph), ralph.runs()) == (2, "", False, ()), ended
    assert all(line.startswith("ralph: ") for line in ended.err.splitlines()), ended
    for word in words:
        assert word in ended.err


def facts(ralph: Ralph) -> dict[str, Any]:
    (began,) = (record for record in ralph.records() if isinstance(record, RunBegan))
    return began.facts


def prompt(ralph: Ralph) -> str:
    return (ralph.run_folder() / "prompt_001.txt").read_text(encoding="utf-8")


# --protect


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "names nothing"),
        ("./", "names nothing"),
        ("/etc/passwd", "is absolute; write it from the project's root: etc/passwd"),
        ("../other", "leads out of the project"),
        ("src/../../other", "leads out of the project"),
        ("~/notes", "leads out of the project"),
        ("src\\auth", "holds a backslash; folders are separated by /"),
        ("**", "would protect every file"),
        (".git/config", "names .git, where git itself writes"),
        (".ralph/runs/", "names .ralph, where ralph itself writes"),
    ],
)
def test_a_path_that_cannot_be_protected_is_refused(ralph: Ralph, path: str, why: str) -> None:
    refused(ralph, run(ralph, "-p", GOOD, "--protect", path), "protectedPaths[0]", why)


def test_all_that_is_wrong_with_paths_is_told_at_once(ralph: Ralph) -> None:
    ralph.settings(protectedPaths=["src/auth/"])
    ended = run(ralph, "-p", GOOD, "--protect", "/a", "--protect", "fine", "--protect", "../b")
    assert (ended.code, started(ralph)) == (2, False), ended
    first, second = ended.err.splitlines()
    assert "protectedPaths[1] is absolute" in first
    assert "protectedPaths[3] leads out" in second


def test_a_path_that_is_given_joins_those_of_the_settings(ralph: Ralph) -> None:
    ralph.write({"kept.txt": "as it was\n", "also.txt": "as it was\n"})
    ralph.settings(protectedPaths=["kept.txt"])
    agent = ralph.script([write(kept__txt="x", also__txt="x", free__txt="x"), done()])
    ended = ralph("run", "-p", GOOD, "--agent", agent, "--check", "true", "--protect", "also.txt")
    outcome = ralph.outcome()
    assert (ended.code, outcome["reason"]) == (1, "PROHIBITED_PATH"), ended
    assert outcome["details"]["files"] == ["also.txt", "kept.txt"]
    assert [(ralph.root / name).read_text() for name in ("kept.txt", "also.txt", "free.txt")] == ["as it was\n"] * 2 + [
        "x"
    ]


# --risk, --type and --force


@pytest.mark.parametrize(
    ("task", "flags", "why"),
    [
        (RISKY, ("--type", "bug"), 'high, guessed from "login"'),
        (RISKY, ("--skill", "tdd"), 'high, guessed from "login"'),
        (GOOD, ("--risk", "high"), "high, as you say"),
        (GOOD, ("--risk", "critical"), "critical, as you say"),
        ("Fix src/auth/token.py: it raises", ("--type", "bug", "--protect", "src/auth/"), "the prompt names src/auth/"),
    ],
)
def test_work_of_high_risk_is_refused(ralph: Ralph, task: str, flags: tuple[str, ...], why: str) -> None:
    ended = run(ralph, "-p", task, "--check", "true", *flags)
    refused(ralph, ended, "this is no work for a loop: ", why, "--explain", "--force")


def test_it_is_run_where_somebody_says_so(ralph: Ralph) -> None:
    ended = run(ralph, "-p", RISKY, "--check", "true", "--type", "bug", "--force")
    assert (ended.code, started(ralph)) == (0, True), ended
    assert 'note: run all the same, as --force says: high, guessed from "login"' in ended.err
    assert facts(ralph)["taskType"] == "bug"


@pytest.mark.parametrize("risk", ["low", "medium"])
def test_the_users_word_beats_a_guess(ralph: Ralph, risk: str) -> None:
    ended = run(ralph, "-p", RISKY, "--check", "true", "--risk", risk)
    assert (ended.code, started(ralph), "--force" in ended.err) == (0, True, False), ended


def test_where_nobody_asks_nothing_is_guessed(ralph: Ralph) -> None:
    ended = run(ralph, "-p", RISKY, "--check", "true")
    assert (ended.code, started(ralph), facts(ralph)["taskType"]) == (0, True, ""), ended


def test_force_alone_changes_nothing(ralph: Ralph) -> None:
    ended = run(ralph, "-p", GOOD, "--check", "true", "--type", "bug", "--force")
    assert (ended.code, "--force" in ended.err) == (0, False), ended


def test_work_that_is_vague_is_not_refused_only_explained(ralph: Ralph) -> None:
    """Only risk asks for somebody's eyes; the rest costs no more than a loop's limits allow."""
    assert run(ralph, "-p", "improve architecture", "--type", "other").code == 0
    assert run(ralph, "-p", "improve architecture", "--type", "other", "--explain").code == 1


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--type", "epic"), "feature"),
        (("--risk", "none"), "critical"),
        (("--skill", "nosuch"), "nosuch"),
        (("--skill", "../tdd"), "../tdd"),
    ],
)
def test_a_word_that_nobody_knows_is_refused(ralph: Ralph, flags: tuple[str, ...], why: str) -> None:
    ended = run(ralph, "-p", GOOD, *flags)
    assert (ended.code, started(ralph), ralph.runs()) == (2, False, ()), ended
    assert why in ended.err


# --explain


@pytest.mark.parametrize(
    ("task", "flags", "code", "unmet"),
    [
        (GOOD, ("--check", "true"), 0, []),
        (GOOD, (), 1, ["verification"]),
        (GOOD, ("--skill", "tdd"), 1, ["verification"]),
        ("improve architecture", ("--check", "true"), 1, ["scope"]),
        (RISKY, ("--check", "true"), 1, ["risk"]),
        (RISKY, ("--check", "true", "--force"), 1, ["risk"]),
        (RISKY, ("--check", "true", "--risk", "low"), 0, []),
        (GOOD, ("--check", "true", "--skill", "tdd"), 0, []),
        ("improve the architecture of payments in production", ("--skill", "half"), 1,
         ["verification", "scope", "risk", "skill"]),
    ],
)  # fmt: skip
def test_explain_says_why_and_starts_nothing(
    ralph: Ralph, task: str, flags: tuple[str, ...], code: int, unmet: list[str]
) -> None:
    ralph.write({".ralph/skills/half/SKILL.md": "---\nname: half\n---\nDo half of it.\n"})
    shown = run(ralph, "-p", task, *flags, "--explain")
    assert (shown.code, started(ralph), ralph.runs()) == (code, False, ()), shown
    verdict = f"not fit for a loop: {', '.join(unmet)}" if unmet else "fit for a loop"
    lines = shown.out.splitlines()
    assert verdict in lines
    assert [line.split()[1] for line in lines if line.startswith("no ")] == [f"{name}:" for name in unmet]
    assert not (ralph.root / ".ralph" / "runs").exists()
    told = run(ralph, "-p", task, *flags, "--explain", "--json")
    assert (told.code, told.json["fit"], started(ralph)) == (code, not unmet, False), told
    assert [condition["name"] for condition in told.json["conditions"] if not condition["met"]] == unmet
    assert all(condition["reason"] for condition in told.json["conditions"])


def test_explain_tells_programs_what_the_work_was_taken_for(ralph: Ralph) -> None:
    told = run(ralph, "-p", GOOD, "--check", "true", "--skill", "tdd", "--explain", "--json").json
    assert {name: told[name] for name in ("v", "type", "taskType", "risk", "skill")} == {
        "v": 1, "type": "explain", "taskType": "bug", "risk": "low", "skill": "tdd",
    }  # fmt: skip
    said = run(ralph, "-p", GOOD, "--type", "refactor", "--risk", "medium", "--explain", "--json").json
    assert (said["taskType"], said["risk"], said["skill"]) == ("refactor", "medium", None)


# --skill


def test_a_skill_tells_how_to_work_and_brings_its_promise(ralph: Ralph) -> None:
    ended = run(ralph, "-p", GOOD, "--check", "true", "--skill", "systematic-debugging", word="BUG_FIXED")
    assert ended.code == 0, ended
    told = prompt(ralph)
    assert "Mend nothing before you know the cause." in told
    assert told.index("Mend nothing") < told.index("## Task") < told.index(GOOD)
    assert told.count("\n<promise>BUG_FIXED</promise>\n") == 1
    assert (facts(ralph)["skill"], facts(ralph)["taskType"]) == ("systematic-debugging", "bug")


def test_a_word_that_is_given_beats_that_of_the_skill(ralph: Ralph) -> None:
    flags = ("--check", "true", "--skill", "systematic-debugging", "--promise", "MENDED")
    ended = run(ralph, "-p", GOOD, *flags, word="MENDED")
    assert ended.code == 0, ended
    assert "BUG_FIXED" not in prompt(ralph)
    assert "<promise>MENDED</promise>" in prompt(ralph)


def test_a_skill_of_the_project_comes_before_one_that_ships(ralph: Ralph) -> None:
    ralph.write({".ralph/skills/tdd/SKILL.md": "---\nname: tdd\npromise: OURS\n---\nOur own way.\n"})
    assert run(ralph, "-p", GOOD, "--check", "true", "--skill", "tdd", word="OURS").code == 0
    assert "Our own way." in prompt(ralph)


def test_a_skill_that_finds_no_check_is_refused(ralph: Ralph) -> None:
    ended = run(ralph, "-p", GOOD, "--skill", "tdd", word="COMPLETE")
    refused(ralph, ended, "skill tdd: auto found no check in this project; name one: --check CMD")


def test_a_skill_takes_the_checks_of_the_project(ralph: Ralph) -> None:
    require(shutil.which("make") is not None, "make runs the project's check")
    ralph.write({"Makefile": "test:\n\ttest -f started\n"})
    ended = run(ralph, "-p", GOOD, "--skill", "tdd", word="COMPLETE")
    assert (ended.code, facts(ralph)["checks"]) == (0, ("make test",)), ended
    assert "note: check of skill tdd: make test" in ended.err
