"""Words of the user's to a run."""

from __future__ import annotations

import json
import signal

import pytest

from ralphproof.engine.prompt import USER_MESSAGE_INTRO
from tests.cli.steering import detached, let, lose_harness, over, reached, waits_for
from tests.ralph import Ralph, Step, done, say, write

SEEN: Step = {"record": "../seen"}


@pytest.fixture(autouse=True)
def _project(ralph: Ralph) -> None:
    ralph.commit()


def prompts(ralph: Ralph) -> list[str]:
    """What the agent was told, turn by turn."""
    return [json.loads(line)["prompt"] for line in (ralph.folder / "seen").read_text().splitlines()]


def test_words_reach_one_prompt_and_are_marked_as_the_users(ralph: Ralph) -> None:
    agent = ralph.script([SEEN, waits_for("one"), say("no")], [SEEN, write(a="1"), say("no")], [SEEN, done()])
    run = detached(ralph, agent)
    reached(ralph, "one")
    told = ralph("say", run, "leave", "the tests alone")
    assert (told.code, told.out) == (0, f"run {run} reads it in its next prompt\n")
    assert ralph("say", run[:15], "-", stdin="and the docs,\nall of them\n").code == 0
    assert ralph("status", "--json").json["unreadMessages"] == 2
    assert "2 messages of yours wait for its next prompt" in ralph("status").out
    let(ralph, "one")
    over(ralph, run)
    first, second, third = prompts(ralph)
    assert [prompt.count("leave the tests alone") for prompt in (first, second, third)] == [0, 1, 0]
    assert (
        f"{USER_MESSAGE_INTRO}\n\nleave the tests alone\n\n{USER_MESSAGE_INTRO}\n\nand the docs,\nall of them\n"
        in second
    )
    assert USER_MESSAGE_INTRO not in first + third
    assert ralph("status", "--json").json["unreadMessages"] == 0


def test_words_for_programs(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([waits_for("one"), done()]))
    told = ralph("say", "latest", "x", "--json").json
    assert told.pop("number") > 0
    assert told == {"v": 1, "type": "say", "run": run, "state": "running", "kept": False}


REFUSED = [
    (["latest", ""], "", "nothing to say"),
    (["latest", " \n "], "", "nothing to say"),
    (["latest", "-"], "", "nothing to say"),
    (["latest", "-"], "x" * (64 * 1024 + 1), "more than 64 KiB"),
    (["latest", "-"], "a\0b", "NUL"),
    (["latest"], "", "TEXT"),
    (["nonsense", "x"], "", "nonsense"),
]


def test_what_cannot_be_said_is_refused(ralph: Ralph) -> None:
    assert ralph("run", "-p", "x", "--agent", ralph.script([say("no")]), "-m", "1").code == 1
    for argv, stdin, why in REFUSED:
        told = ralph("say", *argv, stdin=stdin)
        assert (told.code, told.out) == (2, ""), argv
        assert why in told.err
    assert ralph("status", "--json").json["unreadMessages"] == 0


def test_as_much_as_may_be_said_is_taken(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([waits_for("one"), say("no")], [SEEN, done()]))
    reached(ralph, "one")
    assert ralph("say", run, "-", stdin="é" * (32 * 1024)).code == 0
    let(ralph, "one")
    over(ralph, run)
    assert "é" * (32 * 1024) in prompts(ralph)[0]


def test_a_run_that_is_over_for_good_hears_nothing(ralph: Ralph) -> None:
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    told = ralph("say", "latest", "well done")
    assert (told.code, told.out) == (2, "")
    assert "is completed; it has no next prompt that could carry your words" in told.err
    assert ralph("status", "--json").json["unreadMessages"] == 0


def test_a_run_that_waits_hears_it_when_it_goes_on(ralph: Ralph) -> None:
    wait: Step = {"run": ["sh", "-c", 'echo "which colour?" > "$TASK_FOLDER/WAIT_WITHOUT_RESTART"']}
    agent = ralph.script([wait, say("I wait")], [SEEN, done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 4
    run = ralph.runs()[0].id
    told = ralph("say", run, "green")
    assert (told.code, told.out) == (0, f"kept; run {run} reads it when it goes on: ralph run --resume {run}\n")
    assert ralph("resume", run).code == 0
    assert prompts(ralph)[0].count(f"{USER_MESSAGE_INTRO}\n\ngreen") == 1


def test_a_run_that_was_cut_off_hears_it_when_it_is_taken_up(ralph: Ralph) -> None:
    agent = ralph.script([waits_for("one"), say("no")], [SEEN, done()])
    run = detached(ralph, agent)
    reached(ralph, "one")
    lose_harness(ralph, run)
    told = ralph("say", run, "go on like this")
    assert told.code == 0
    assert f"take it up: ralph run --resume {run}" in told.out
    assert ralph("say", run, "x", "--json").json["kept"] is True
    let(ralph, "one")
    assert ralph("resume", run).code == 0
    assert prompts(ralph)[0].count("go on like this") == 1


def test_words_before_an_interrupt_are_not_lost(ralph: Ralph) -> None:
    agent = ralph.script([waits_for("one"), say("no")], [SEEN, done()])
    live = ralph.start("run", "-p", "x", "--agent", agent, env={"RALPH__SHUTDOWN_GRACE_SECONDS": "0.1"})
    reached(ralph, "one")
    assert ralph("say", "latest", "remember me").code == 0
    live.process.send_signal(signal.SIGINT)
    assert live.end().code == 130
    let(ralph, "one")
    assert ralph("resume").code == 0
    assert prompts(ralph)[0].count("remember me") == 1
