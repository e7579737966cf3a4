"""`ralph run --step`: one iteration, then a look."""

from __future__ import annotations

import pytest

from tests.ralph import Ralph, done, say, write


def test_a_step_takes_one_iteration_and_the_next_goes_on_from_there(ralph: Ralph) -> None:
    ralph.commit()
    agent = ralph.script([say("one")], [say("two")], [write(yes="1"), done()])
    asked = ("run", "-p", "x", "--agent", agent, "--check", "test -f yes", "--step")
    ended = ralph(*asked)
    outcome = ralph.outcome()
    assert (ended.code, outcome["reason"], outcome["iterations"]) == (4, "STEP", 1)
    run = ralph.runs()[0].id
    assert f"ralph run --resume {run} --step" in ended.err
    shown = ralph("status")
    assert f"go on: ralph run --resume {run} --step" in shown.out
    assert ralph("status", "--json").json["state"] == "stopped"
    assert ralph("run", "--resume", "--step").code == 4
    assert ralph.outcome()["iterations"] == 2
    assert ralph("resume", "--step").code == 0  # completed, which --step does not hide
    assert (ralph.outcome()["iterations"], ralph.outcome()["status"]) == (3, "COMPLETED")


def test_a_resume_without_step_goes_to_the_end_and_a_limit_beats_a_step(ralph: Ralph) -> None:
    ralph.commit()
    agent = ralph.script([say("one")], [say("two")], [write(yes="1"), done()])
    asked = ("run", "-p", "x", "--agent", agent, "--check", "test -f yes")
    assert ralph(*asked, "--step", "-m", "1").code == 1
    assert ralph.outcome()["reason"] == "MAX_ITERATIONS"
    assert ralph(*asked, "--step").code == 4
    assert ralph("run", "--resume").code == 0
    assert ralph.outcome()["iterations"] == 3


@pytest.mark.parametrize("resume", [(), ("--resume",)])
def test_a_step_is_taken_where_somebody_looks_on(ralph: Ralph, resume: tuple[str, ...]) -> None:
    ended = ralph("run", *(resume or ("-p", "x")), "--step", "--detach")
    assert (ended.code, ended.err) == (2, "ralph: --detach and --step do not go together; give one\n")
