"""Held-out checks: run last, never told to the agent, and decisive all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ralphproof.engine.records import CheckEnded
from tests.ralph import Ralph, done, write

WORD = "hunter"  # stands in the held-out command alone
NEUTRAL = "Checks that you are not shown were run as well, and not all of them passed."


def held_out(ralph: Ralph, command: str, **more: object) -> None:
    """A project with a visible check, and one that is held out in the user's own settings."""
    config = Path(ralph.env["RALPH_CONFIG_DIR"])
    config.mkdir(exist_ok=True)
    (config / "settings.json").write_text(json.dumps({"finalChecks": [command]}))
    ralph.settings(guardrails=[{"command": "test -f visible"}], **more)
    ralph.write({".gitignore": "__pycache__\n"})
    ralph.commit()


def read_by_agents(ralph: Ralph) -> str:
    """All that lies in the project, and all that agents were told."""
    files = (path for path in ralph.root.rglob("*") if path.is_file() and ".git" not in path.parts)
    return "\n".join(path.read_text("utf-8", "replace") for path in files)


def asked(ralph: Ralph) -> list[tuple[int, str, bool]]:
    return [
        (record.iteration, record.finding.check, record.finding.passed)
        for record in ralph.records()
        if isinstance(record, CheckEnded)
    ]


def test_work_that_only_meets_the_visible_check_is_not_done_and_the_word_on_it_is_neutral(ralph: Ralph) -> None:
    """RH-36"""
    held_out(ralph, f"echo {WORD}; test -f general")
    agent = ralph.script([write(visible="1"), done()], [write(visible="1", general="1"), done()])
    ended = ralph("run", "-p", "x", "--agent", agent)
    assert (ended.code, ralph.outcome()["iterations"], ralph.outcome()["proof"]) == (0, 2, "verified"), ended
    final = f"final: echo {WORD}; test -f general"
    assert asked(ralph) == [
        (0, "test -f visible", False), (1, "test -f visible", True), (1, final, False), (2, "test -f visible", True),
        (2, final, True),
    ]  # fmt: skip
    prompt = (ralph.run_folder() / "prompt_002.txt").read_text()
    assert NEUTRAL in prompt
    assert "test -f general" not in read_by_agents(ralph)
    assert WORD not in read_by_agents(ralph)


def test_what_is_held_out_is_not_told_in_the_context_of_the_next_prompt_either(ralph: Ralph) -> None:
    held_out(ralph, f"echo {WORD}; exit 7", contextInjection=True)
    agent = ralph.script([write(visible="1"), done()], [write(visible="2"), done()])
    ended = ralph("run", "-p", "x", "--agent", agent, "-m", "2")
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS")
    assert WORD not in read_by_agents(ralph)
    assert NEUTRAL in (ralph.run_folder() / "prompt_002.txt").read_text()


def test_no_run_completes_while_a_held_out_check_fails(ralph: Ralph) -> None:
    held_out(ralph, "false")
    ended = ralph("run", "-p", "x", "--agent", ralph.script([write(visible="1"), done()]), "-m", "3")
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS")
    assert ralph.outcome()["status"] == "ABORTED"


def test_a_held_out_check_is_not_asked_before_the_work_is_claimed_and_green(ralph: Ralph) -> None:
    held_out(ralph, "echo ran >> ../ran; true")
    agent = ralph.script([write(other="1"), done()], [write(visible="1")], [write(visible="2"), done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    assert (ralph.folder / "ran").read_text() == "ran\n"


def test_held_out_checks_alone_verify_a_run_and_meet_require_proof(ralph: Ralph) -> None:
    ralph.settings(finalChecks=["test -f general"], requireProof=True)
    ralph.commit()
    agent = ralph.script([done()], [write(general="1"), done()])
    ended = ralph("run", "-p", "x", "--agent", agent)
    assert (ended.code, ralph.outcome()["proof"], ralph.outcome()["iterations"]) == (0, "verified", 2), ended


def test_the_user_sees_what_the_agent_does_not(ralph: Ralph) -> None:
    held_out(ralph, f"echo {WORD}; false")
    ended = ralph("run", "-p", "x", "--agent", ralph.script([write(visible="1"), done()]), "-m", "1")
    assert f"echo {WORD}; false" in ended.err
    told = ralph("status", "--json").json["timeline"][0]["checks"]
    assert [one["hidden"] for one in told] == [False, True]
    logs = {log["name"]: log["path"] for log in ralph("logs", "--checks", "--json").json["logs"]}
    assert WORD in Path(logs[told[1]["log"]]).read_text(), "its log is where no agent in a sandbox can read it"
    assert str(ralph.root) not in logs[told[1]["log"]]


def test_in_a_pipeline_the_last_stage_alone_asks_them(ralph: Ralph) -> None:
    ralph.settings(
        preset="pipeline", finalChecks=["echo x >> ../ran"], guardrails=[{"command": "true"}],
        stages={name: {"verification": "external"} for name in ("coder", "reviewer", "tester", "qa")},
    )  # fmt: skip
    ralph.commit()
    words = ("IMPLEMENTATION_COMPLETE", "REVIEW_PASSED", "TESTS_PASSED", "QA_PASSED")
    agent = ralph.script(*([{"text": f"<promise>{word}</promise>"}] for word in words))
    ended = ralph("run", "-p", "x", "--agent", agent)
    assert ended.code == 0, ended
    assert (ralph.folder / "ran").read_text() == "x\n"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mustFailFirst": True}, "mustFailFirst is set and there is no check that could fail first"),
        ({"setup": ["true"]}, 'set "verifyIn": "clean"'),
        ({"finalChecks": "make"}, "finalChecks"),
    ],
)
def test_settings_that_ask_for_what_cannot_be_are_refused_in_one_line(
    ralph: Ralph, settings: dict[str, object], said: str
) -> None:
    ralph.settings(**settings)
    ended = ralph("run", "-p", "x", "--agent", ralph.script([done()]))
    assert ended.code == 2
    assert said in ended.err
    assert ralph.runs() == ()


def test_a_run_that_protects_tests_tells_its_agent_so(ralph: Ralph) -> None:
    ralph.settings(protectTests=True)
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    assert "The tests that are there are fixed" in (ralph.run_folder() / "prompt_001.txt").read_text()
