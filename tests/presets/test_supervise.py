"""`ralph supervise`: a program is restarted until it leaves DONE and the checks pass."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import CheckReport
from ralphproof.engine.next_action import RunConditions, RunRules, TakeTurn, pre_turn_action
from ralphproof.engine.plan import History, Iteration, Pipeline
from ralphproof.engine.records import ClaimFound, Noticed, Saved, TurnBegan
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.state import NO_TREE, RunInfo, State
from ralphproof.runs.assembly import build_rules
from ralphproof.settings.loader import load_settings
from tests.engine.fake_environment import JOB, NOTHING
from tests.ralph import Ended, Ralph, until

COUNT = "echo x >> ../starts; n=$(wc -l < ../starts)\n"  # the number of this start
FAST = ("--restart-delay", "0")
STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ")


def supervise(ralph: Ralph, text: str, *flags: str) -> Ended:
    """Supervise a shell script that knows the number of its start as $n."""
    ralph.write({"agent.sh": COUNT + text})
    return ralph("supervise", *FAST, *flags, "--", "sh", "agent.sh")


def starts(ralph: Ralph) -> int:
    path = ralph.folder / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def log(ended: Ended) -> list[str]:
    """The dated lines, without their date, notes and the first one."""
    dated = [line for line in ended.err.splitlines() if STAMP.match(line)]
    return [bare for line in dated if not (bare := STAMP.sub("", line, count=1)).startswith(("Note: ", "Run "))]


def notes(ralph: Ralph) -> str:
    return "\n".join(record.message for record in ralph.records() if isinstance(record, Noticed))


def marker(ralph: Ralph, name: str = "DONE") -> Path:
    """A task folder that the user names, with this marker in it."""
    path = ralph.folder / "task" / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    return path


# Success, at once, later, and never.


def test_a_program_that_leaves_done_at_once_is_started_once(ralph: Ralph) -> None:
    ended = supervise(ralph, 'echo "Task completed successfully" > "$TASK_FOLDER/DONE"')
    assert (ended.code, starts(ralph)) == (0, 1), ended
    outcome = ralph.outcome()
    assert (outcome["status"], outcome["proof"], outcome["verificationPassed"]) == ("COMPLETED", "claimed", False)
    assert "CLAIMED by the agent; nothing verified it" in ended.out
    assert log(ended) == [
        "Starting agent (attempt 1)", "Attempt 1: Agent succeeded", "DONE marker present",
        "task completed (DONE marker present, no active children)", "Claimed only: nothing verified it",
    ]  # fmt: skip


def test_it_is_restarted_whatever_it_exits_with_until_it_leaves_done(ralph: Ralph) -> None:
    bad = "case $n in 1) exit 1;; 2) exit 0;; 3) kill -9 $$;; esac"
    ended = supervise(ralph, f'{bad}; touch "$TASK_FOLDER/DONE"; exit 7')
    assert (ended.code, starts(ralph)) == (0, 4), ended
    assert log(ended)[:-2] == [
        "Starting agent (attempt 1)", "Attempt 1: Agent failed (exit 1), restarting...",
        "Restarting agent (attempt 2/100)", "Attempt 2: Agent succeeded",
        "Restarting agent (attempt 3/100)", "Attempt 3: Agent failed (signal 9), restarting...",
        "Restarting agent (attempt 4/100)", "Attempt 4: Agent failed (exit 7)", "DONE marker present",
    ]  # fmt: skip


def test_too_many_restarts_end_it(ralph: Ralph) -> None:
    ended = supervise(ralph, "exit 1", "-m", "3")
    assert (ended.code, starts(ralph)) == (1, 3), ended
    outcome = ralph.outcome()
    assert outcome["reason"] == "MAX_ITERATIONS"
    assert outcome["details"]["message"] == "max restarts exceeded: 3 of 3 iterations are used"
    assert log(ended)[-2:] == ["Attempt 3: Agent failed (exit 1)", "Attempt 3: Max restarts exceeded, stopping"]
    bus = (ralph.root / ".ralph" / "bus" / "PROJECT-MESSAGE-BUS.md").read_text()
    assert bus.count("max restarts exceeded") == 1
    again = ralph("supervise", "--resume", "-m", "4")
    assert (again.code, starts(ralph)) == (1, 4), again
    more = ralph("run", "--resume", "-m", "5")
    assert (more.code, starts(ralph)) == (1, 5), more


def test_the_cap_on_iterations_is_not_for_restarts(ralph: Ralph) -> None:
    told = ralph("supervise", "-m", "51", "--dry-run", "--", "true")
    assert (told.code, told.err) == (0, "agent true cannot report its cost, so caps.costUsd (10) cannot be held\n")
    assert "of iteration 1 of 51" in told.out


# DONE before, after, and refused.


def test_done_before_a_start_completes_without_one(ralph: Ralph) -> None:
    folder = marker(ralph).parent
    ended = supervise(ralph, "exit 1", "--task-folder", str(folder))
    assert (ended.code, starts(ralph)) == (0, 0), ended
    assert ralph.outcome()["proof"] == "claimed"
    assert ralph.outcome()["iterations"] == 0
    assert log(ended)[0] == "DONE marker present before a start, agent not started"
    assert [record for record in ralph.records() if isinstance(record, ClaimFound)] == [ClaimFound(1, 1)]


def test_done_before_a_start_is_checked_and_refused_where_the_checks_are_red(ralph: Ralph) -> None:
    folder = marker(ralph).parent
    flags = ("--task-folder", str(folder), "--check", "test -f made", "-m", "2")
    text = 'cat "$RALPH_PROMPT_FILE" > "../told-$n"; cat > ../stdin; test $n = 1 || touch made "$TASK_FOLDER/DONE"'
    ended = supervise(ralph, f'echo "$RALPH_ITERATION/$RALPH_MAX_ITERATIONS" >> ../numbers; {text}', *flags)
    assert (ended.code, starts(ralph)) == (0, 2), ended
    assert (ralph.folder / "numbers").read_text().split() == ["1/2", "2/2"]
    assert ralph.outcome()["proof"] == "verified"
    lines = log(ended)
    assert lines.index("DONE refused: 1 check failed") < lines.index("Starting agent (attempt 1)")
    assert lines[-1] == "Verified by its checks"
    feedback = (ralph.folder / "told-1").read_text()
    assert feedback.startswith('Guardrail "test -f made" failed with exit code 1.')
    assert (ralph.folder / "stdin").read_bytes() == b"", "a shell would run what it reads there"


def test_a_limit_counts_starts_and_holds_whatever_leaves_markers(ralph: Ralph) -> None:
    """A check that claims anew whenever a claim is looked at would be looked at for ever."""
    done = marker(ralph)
    flags = ("--task-folder", str(done.parent), "--check", f"touch {done}; false", "-m", "2")
    ended = supervise(ralph, "exit 0", *flags)
    assert (ended.code, starts(ralph), ralph.outcome()["iterations"]) == (1, 2, 2), ended
    assert log(ended)[-1] == "Attempt 2: Max restarts exceeded, stopping"


def test_done_with_a_prompt_is_refused_with_the_checks_words_in_the_next_prompt(ralph: Ralph) -> None:
    claim = {"run": ["sh", "-c", 'touch "$TASK_FOLDER/DONE"']}
    record = {"record": "../seen"}
    agent = ralph.script([record, claim, {"text": "done"}], [record, {"write": {"made": ""}}, claim])
    ended = ralph("supervise", *FAST, "-p", "make it so", "--check", "test -f made", "--", *agent.split())
    assert ended.code == 0, ended
    first, second = (json.loads(line)["prompt"] for line in (ralph.folder / "seen").read_text().splitlines())
    assert first == (
        "make it so\n\nWhen the work is complete, create the file DONE in the folder that $TASK_FOLDER names."
    )
    assert 'Guardrail "test -f made" failed with exit code 1.' in second
    assert "said that the work is done. The checks say that it is not:" in second
    assert "The file DONE was taken away; create it again when the work is done." in second
    assert "<response>" not in second


def test_a_promise_completes_nothing_and_the_prompt_explains_the_marker(ralph: Ralph) -> None:
    agent = ralph.script([{"record": "../seen"}, {"text": "<promise>COMPLETE</promise>"}])
    ended = ralph("supervise", *FAST, "-m", "2", "-p", "make it so", "--", *agent.split())
    assert ended.code == 1, ended
    second = json.loads((ralph.folder / "seen").read_text().splitlines()[1])["prompt"]
    assert "'COMPLETE'; completion is claimed with the file DONE in the folder that $TASK_FOLDER names." in second


def test_a_marker_of_an_earlier_run_is_put_away_and_said(ralph: Ralph) -> None:
    folder = ralph.folder / "task"
    flags = ("--task-folder", str(folder), "-m", "1")
    assert supervise(ralph, 'touch "$TASK_FOLDER/DONE"', *flags).code == 0
    ended = supervise(ralph, "exit 1", *flags)
    assert (ended.code, starts(ralph)) == (1, 2), ended
    (stale,) = folder.glob("DONE.stale-*")
    assert f"a marker of an earlier run was put away as {stale.name}" in notes(ralph)
    marker(ralph)  # a new one counts
    assert supervise(ralph, "exit 1", *flags).code == 0
    assert starts(ralph) == 2


def test_a_refused_done_is_put_away_and_is_no_claim_any_more(ralph: Ralph) -> None:
    """Else a program could neither wait after it, nor claim anew."""
    text = 'd="$TASK_FOLDER/DONE"; test $n = 1 && touch "$d"; test $n = 2 && exit 42; test $n = 3 && touch made "$d"'
    ended = supervise(ralph, text, "--check", "test -f made")
    assert (ended.code, ralph.outcome()["reason"], starts(ralph)) == (4, "WAITING", 2), ended
    folder = ralph.run_folder() / "task"
    (away,) = folder.glob("DONE.refused-*")
    assert f"DONE was refused, and put away as {away.name}" in notes(ralph)
    assert not (folder / "DONE").exists()
    assert ralph("run", "--resume").code == 0
    assert starts(ralph) == 3


def test_after_a_crash_attempts_are_counted_on(ralph: Ralph) -> None:
    ralph.write(
        {"agent.sh": COUNT + "test $n = 1 && exit 1\ntouch ../up; while ! test -f ../go; do sleep 0.05; done; exit 3"}
    )
    live = ralph.start("supervise", *FAST, "-m", "2", "--", "sh", "agent.sh")
    until((ralph.folder / "up").exists, "the second attempt is at work")
    live.process.send_signal(signal.SIGKILL)
    live.end()
    (ralph.folder / "go").touch()
    ended = ralph("run", "--resume")
    assert (ended.code, starts(ralph)) == (1, 2), ended
    assert log(ended)[-2:] == ["Attempt 2: Agent failed (exit 3)", "Attempt 2: Max restarts exceeded, stopping"]


# Waiting.


@pytest.mark.parametrize(
    ("wait", "reason"),
    [
        ("exit 42", "exit code 42"),
        ('echo "for the review" > "$TASK_FOLDER/WAIT_WITHOUT_RESTART"', "for the review"),
        ('ralph bus post --type wait_without_restart "for user input"', "for user input"),
    ],
    ids=["exit", "marker", "bus"],
)
def test_a_program_that_waits_is_not_restarted_until_somebody_resumes_it(ralph: Ralph, wait: str, reason: str) -> None:
    ralph.program("ralph", f'exec {sys.executable} -m ralphproof "$@"')
    ended = supervise(ralph, f'test $n = 2 && touch "$TASK_FOLDER/DONE" && exit 0\n{wait}', "--check", "true")
    assert (ended.code, starts(ralph)) == (4, 1), ended
    outcome = ralph.outcome()
    assert (outcome["reason"], outcome["details"]["message"]) == ("WAITING", reason)
    assert "Wait-without-restart signal detected" in log(ended)
    assert log(ended)[-1] == f"Stopped, waiting for: {reason}"
    assert "is stopped: it waits for somebody" in ralph("status").out
    again = ralph("run", "--resume")
    assert (again.code, starts(ralph)) == (0, 2), again
    assert [record.iteration for record in ralph.records() if isinstance(record, TurnBegan)] == [1, 2]
    assert not (ralph.run_folder() / "task" / "WAIT_WITHOUT_RESTART").exists()


@pytest.mark.thorough
def test_another_exit_code_may_mean_that_it_waits(ralph: Ralph) -> None:
    assert supervise(ralph, "exit 75", "--wait-exit-code", "75").code == 4
    assert supervise(ralph, "exit 42", "--wait-exit-code", "75", "-m", "1").code == 1


# Its end from outside.


def test_a_signal_ends_program_and_run(ralph: Ralph) -> None:
    ralph.settings(shutdownGraceSeconds=0)
    ralph.write({"agent.sh": "touch ../up; sleep 60 & wait"})
    live = ralph.start("supervise", "--", "sh", "agent.sh")
    until((ralph.folder / "up").exists, "it runs")
    live.process.send_signal(signal.SIGINT)
    ended = live.end()
    assert (ended.code, ralph.outcome()["reason"]) == (130, "INTERRUPTED"), ended
    assert log(ended)[-2:] == ["Attempt 1: Agent stopped", "Interrupted, stopping"]
    assert ralph.processes(ralph.runs()[0].id) == []


def test_a_run_that_only_waits_for_its_restart_ends_at_once(ralph: Ralph) -> None:
    live = ralph.start("supervise", "--restart-delay", "600", "--", "false")
    until(lambda: ralph.state_dir.exists() and _saved(ralph), "the first attempt is over")
    live.process.send_signal(signal.SIGTERM)
    ended = live.end(timeout_s=10)
    assert (ended.code, ralph.outcome()["iterations"]) == (130, 1), ended
    assert log(ended)[-1] == "Interrupted, stopping"


def _saved(ralph: Ralph) -> bool:
    return bool(ralph.runs()) and any(isinstance(record, Saved) for record in ralph.records())


@pytest.mark.thorough
def test_a_run_by_itself_is_cancelled_from_elsewhere(ralph: Ralph) -> None:
    ralph.write({"agent.sh": "touch ../up; sleep 60"})
    began = ralph("supervise", "--detach", "--json", "--", "sh", "agent.sh")
    assert began.code == 0, began
    until((ralph.folder / "up").exists, "it runs")
    assert ralph("cancel", began.json["run"]).code == 0
    assert ralph.outcome(began.json["run"])["reason"] == "CANCELLED"


# Processes.


def test_the_program_knows_its_task_and_is_told_nothing_else(ralph: Ralph) -> None:
    folder = ralph.folder / "given"
    ended = supervise(
        ralph, 'env > ../env; cat > ../stdin; touch "$TASK_FOLDER/DONE"', "--task-folder", "../given",
        "--project", "shop", "--task", "17", "-m", "5",
    )  # fmt: skip
    assert ended.code == 0, ended
    env = dict(line.split("=", 1) for line in (ralph.folder / "env").read_text().splitlines() if "=" in line)
    known = {name: text for name, text in env.items() if name.startswith(("RALPH_", "TASK_"))}
    assert known["TASK_FOLDER"] == str(folder)
    assert known["RALPH_RUN_ID"] == ralph.runs()[0].id
    assert (known["RALPH_ITERATION"], known["RALPH_MAX_ITERATIONS"]) == ("1", "5")
    assert (known["RALPH_PROJECT"], known["RALPH_TASK"]) == ("shop", "17")
    assert (ralph.folder / "stdin").read_bytes() == b""
    assert "project=shop" in (folder / "TASK-MESSAGE-BUS.md").read_text()


def test_arguments_are_passed_unchanged(ralph: Ralph) -> None:
    odd = ["--json", "-m", "{prompt}", "a  b", "", "--", "$HOME"]
    ralph.write({"agent.sh": 'for word; do echo "<$word>"; done > ../argv; touch "$TASK_FOLDER/DONE"'})
    ended = ralph("supervise", "--", "sh", "agent.sh", *odd)
    assert ended.code == 0, ended
    assert (ralph.folder / "argv").read_text().splitlines() == [f"<{word}>" for word in odd]


def test_nothing_of_an_attempt_lives_when_the_next_one_begins(ralph: Ralph) -> None:
    text = """
    if [ $n = 1 ]; then
        setsid sh -c 'trap "" TERM; echo $$ > ../left; sleep 60' > /dev/null 2>&1 &
        while ! test -s ../left; do sleep 0.01; done; exit 1
    fi
    kill -0 $(cat ../left) 2> /dev/null && exit 1
    touch "$TASK_FOLDER/DONE"
    """
    ended = supervise(ralph, text, "-m", "2")
    assert (ended.code, starts(ralph)) == (0, 2), ended
    assert ralph.processes(ralph.runs()[0].id) == []


def test_an_attempt_that_takes_too_long_is_killed_and_counts_as_failed(ralph: Ralph) -> None:
    ended = supervise(ralph, "test $n = 2 && touch $TASK_FOLDER/DONE && exit 0\nsleep 60 & sleep 60", "--timeout", "1")
    assert (ended.code, starts(ralph)) == (0, 2), ended
    assert log(ended)[1:5] == [
        "Agent timeout after 1s, killing process group", "Process group killed, treating as failure",
        "Attempt 1: Agent failed (timeout), restarting...", "Restarting agent (attempt 2/100)",
    ]  # fmt: skip
    assert ralph.processes(ralph.runs()[0].id) == []


def test_signal_files_in_the_project_are_not_counted_as_work(ralph: Ralph) -> None:
    ralph.commit()
    ended = supervise(ralph, 'echo x > "$TASK_FOLDER/work"; touch "$TASK_FOLDER/DONE"', "--task-folder", "tasks/1")
    assert ended.code == 0, ended
    assert [record.change.paths for record in ralph.records() if isinstance(record, Saved)] == [("tasks/1/work",)]


@pytest.mark.thorough
def test_passed_work_is_not_committed_where_nobody_can_be_asked_for_a_message(ralph: Ralph) -> None:
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    ralph.commit()
    before = ralph.git("rev-parse", "HEAD")
    ended = supervise(ralph, 'echo x > made; touch "$TASK_FOLDER/DONE"', "--check", "test -f made")
    assert (ended.code, starts(ralph)) == (0, 1), ended
    assert ralph.git("rev-parse", "HEAD") == before
    assert "cannot be asked for a commit message" in notes(ralph)


# What is shown.


def test_json_tells_the_records_and_the_log_stays_on_standard_error(ralph: Ralph) -> None:
    ended = supervise(ralph, 'echo hello; touch "$TASK_FOLDER/DONE"', "--json")
    assert [line["type"] for line in ended.lines][-1] == "run.ended"
    assert ended.lines[-1]["data"]["proof"] == "claimed"
    assert log(ended)[0] == "Starting agent (attempt 1)"


def test_a_quiet_run_says_only_how_it_ended(ralph: Ralph) -> None:
    ended = supervise(ralph, 'echo hello; touch "$TASK_FOLDER/DONE"', "-q")
    assert (ended.err, len(ended.out.splitlines())) == ("", 1)


@pytest.mark.thorough
@pytest.mark.parametrize(("flag", "shown"), [("--stream-agent-output", True), ("--no-stream-agent-output", False)])
def test_the_programs_own_words_are_shown_or_not(ralph: Ralph, flag: str, shown: bool) -> None:
    ended = supervise(ralph, 'echo hello; touch "$TASK_FOLDER/DONE"', flag)
    assert ("hello" in ended.err.splitlines()) is shown


# Settings.


def rules(ralph: Ralph, **keys: object) -> RunRules:
    settings = load_settings(str(ralph.root), ralph.env, {"preset": "supervise", **keys}).settings
    return build_rules(settings, Pipeline(()))


def test_settings_decide_delay_limit_and_waits(ralph: Ralph) -> None:
    ralph.settings(
        supervise={"maxRestarts": 7, "restartDelaySeconds": 5, "pollIntervalSeconds": 0.5, "waitTimeoutSeconds": 60}
    )
    made = rules(ralph)
    assert (made.limits.budget.iterations, made.agent.pause_s, made.children.poll_s, made.children.timeout_s) == (
        7,
        5.0,
        0.5,
        60.0,
    )
    assert (
        made.agent.wait_code,
        made.agent.max_empty_replies,
        made.limits.stall_iterations,
        made.limits.same_error_iterations,
    ) == (
        42,
        None,
        None,
        None,
    )


def test_without_settings_a_second_is_waited_and_a_hundred_starts_are_made(ralph: Ralph) -> None:
    made = rules(ralph)
    assert (made.agent.pause_s, made.limits.budget.iterations, made.children.timeout_s, made.children.poll_s) == (
        1.0,
        100,
        300.0,
        1.0,
    )


@pytest.mark.thorough
def test_a_file_limits_restarts_and_a_flag_beats_it(ralph: Ralph) -> None:
    ralph.settings(supervise={"maxRestarts": 1, "restartDelaySeconds": 0})
    assert (supervise(ralph, "exit 1").code, starts(ralph)) == (1, 1)
    assert (supervise(ralph, "exit 1", "-m", "2").code, starts(ralph)) == (1, 3)


# Pauses.


def pause_s(rules: RunRules, *turns: Turn) -> float:
    """The pause before the attempt that follows these."""
    past = tuple(Iteration(number, JOB, turn, NO_TREE, NOTHING, CheckReport()) for number, turn in enumerate(turns, 1))
    state = State(RunInfo("r1"), iteration=len(past) + 1, turn=1, history=History(past))
    step = pre_turn_action(state, rules, RunConditions(0.0), JOB)
    assert isinstance(step, TakeTurn)
    return step.pause_s


def test_the_delay_doubles_while_the_program_dies_at_once_and_never_exceeds_a_minute(ralph: Ralph) -> None:
    death, made = Turn(Exit(1, seconds=0.005)), rules(ralph)
    assert [pause_s(made, *[death] * count) for count in range(10)] == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize(
    "last",
    [Turn(Exit(0, seconds=0.1)), Turn(Exit(1, seconds=6.0)), Turn(Exit(None, "timeout", seconds=60.0))],
    ids=["well", "late", "timeout"],
)
def test_a_long_or_successful_attempt_resets_the_delay(ralph: Ralph, last: Turn) -> None:
    death = Turn(Exit(1, seconds=0.1))
    assert pause_s(rules(ralph), death, death, death, last) == 1
    assert pause_s(rules(ralph), death, death, last, death) == 1


@pytest.mark.parametrize("delay", [0, 1, 90])
def test_a_configured_delay_does_not_grow(ralph: Ralph, delay: int) -> None:
    made = rules(ralph, supervise={"restartDelaySeconds": delay})
    death = Turn(Exit(1, seconds=0.1))
    assert [pause_s(made, *[death] * count) for count in (1, 2, 3)] == [delay] * 3


def test_only_restarts_have_a_growing_delay(ralph: Ralph) -> None:
    death = Turn(Exit(1, seconds=0.1))
    made = replace(rules(ralph), agent=replace(rules(ralph).agent, back_off=False))
    assert pause_s(made, death, death, death) == 1


# Bad input.


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], ["no command", "--"]),
        (["--"], ["no command", "--"]),
        (["-p", "make it so"], ["no command", "--"]),
        (["./agent.sh"], ["after --: ralph supervise -- ./agent.sh"]),
        (["--max-restart", "3", "--", "true"], ["did you mean --max-restarts?"]),
        (["-m", "0", "--", "true"], ["must be a whole number of 1 or more"]),
        (["--restart-delay", "-1", "--", "true"], ["must be a number of 0 or more", "not -1"]),
        (["--restart-delay", "nan", "--", "true"], ["must be a number of 0 or more", 'not "nan"']),
        (["--wait-exit-code", "256", "--", "true"], ["--wait-exit-code: must be at most 255"]),
        (["--timeout", "0", "--", "true"], ["must be a number of 1 or more"]),
        (["--task-folder", "agent.sh", "--", "true"], ["agent.sh is not a directory"]),
        (["--task-folder", "", "--", "true"], ["the task folder has an empty name"]),
        (["--", "no-such-program"], ["no-such-program was not found on PATH", "name another behind --"]),
        (["--", "./nowhere"], ["nowhere does not exist"]),
        (["--", "./agent.sh"], ["agent.sh may not be executed"]),
        (["--max-cost-usd", "1", "--", "true"], ["cannot report its cost", "--allow-unknown-cost"]),
        (["--resume"], ["there is no run to resume"]),
        (["--resume", "--", "true"], ["the command of the run"]),
        (["--resume", "--task-folder", "x"], ["the task folder of the run"]),
        (["--resume", "-p", "x"], ["the prompt of the run"]),
        (["--detach", "--dry-run", "--", "true"], ["do not go together"]),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else None,
)
def test_what_makes_no_sense_is_refused_in_one_line(ralph: Ralph, argv: list[str], words: list[str]) -> None:
    ralph.write({"agent.sh": "touch ../started"})
    ended = ralph("supervise", *argv)
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1), ended
    for word in words:
        assert word in ended.err
    assert not (ralph.folder / "started").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"supervise": {"maxRestarts": 3}, "maximumIterations": 5}, "are one limit and differ"),
        ({"supervise": {"restartDelaySeconds": -1}}, "supervise.restartDelaySeconds"),
        ({"supervise": {"maxRestart": 3}}, "maxRestarts"),
        ({"requireProof": True}, "no check is configured"),
    ],
)
def test_settings_that_make_no_sense_are_refused(ralph: Ralph, settings: dict[str, object], message: str) -> None:
    ralph.settings(**settings)
    ended = supervise(ralph, "exit 1")
    assert (ended.code, starts(ralph)) == (2, 0), ended
    assert message in ended.err
