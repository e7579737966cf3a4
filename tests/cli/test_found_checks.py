"""Checks that nobody named, and checks that cannot be run."""

from __future__ import annotations

import pytest

from tests.ralph import Ralph, done, write

RUN = ("run", "-p", "make it so")
WORKS = [write(made="x"), done()]
FOUND = "checks found: make test (Makefile); --check CMD names others, --no-check runs without"
MAKEFILE = {"Makefile": "test:\n\ttest -f made\n"}


def checks_of(ralph: Ralph, *flags: str) -> tuple[list[str], str]:
    """The checks that a run would have, and what is said of them."""
    told = ralph(*RUN, "--agent", ralph.script(WORKS), "--dry-run", *flags)
    listed = ralph(*RUN, "--agent", ralph.script(WORKS), "--dry-run", "--json", *flags).json["checks"]
    assert told.code == 0, told.err
    return listed, "\n".join(line for line in told.err.splitlines() if "check" in line)


def test_a_run_takes_the_checks_that_it_finds_and_keeps_to_them(ralph: Ralph) -> None:
    ralph.write(MAKEFILE)
    ralph.commit()
    agent = ralph.script([{"write": {"Makefile": "test:\n\ttest -f made\nlint:\n\tfalse\n"}}, done()], WORKS)
    stopped = ralph(*RUN, "--agent", agent, "-m", "1")
    assert (stopped.code, stopped.err.count(FOUND)) == (1, 1), stopped.err
    ended = ralph("run", "--resume", "-m", "2")
    assert (ended.code, ralph.outcome()["proof"]) == (0, "verified"), ended.err
    assert {finding.check for finding in ralph.state().history.latest.report.findings} == {"make test"}


def test_settings_and_flags_say_otherwise(ralph: Ralph) -> None:
    ralph.write(MAKEFILE)
    ralph.commit()
    assert checks_of(ralph) == (["make test"], FOUND)
    assert "[OK]   checks: found: make test (Makefile)\n" in ralph("doctor").out
    assert checks_of(ralph, "--judge", "it is so")[0] == ["make test", "judged"]
    assert checks_of(ralph, "--check", "true") == (["true"], "")
    assert checks_of(ralph, "--no-check") == ([], "")
    both = ralph(*RUN, "--no-check", "--check", "true", "--agent", ralph.script(WORKS))
    assert (both.code, both.err) == (2, "ralph: --no-check and --check contradict each other; give one of them\n")
    ralph.settings(guardrails=[])
    listed, said = checks_of(ralph)
    assert (listed, "guardrails is an empty list (.ralph/settings.json)" in said) == ([], True)
    ralph.settings(guardrails=[{"command": "true"}])
    assert checks_of(ralph) == (["true"], "")
    supervised = ralph("supervise", "--dry-run", "--json", "--", "true")
    assert supervised.json["checks"] == ["true"]
    ralph.settings()
    assert ralph("supervise", "--dry-run", "--json", "--", "true").json["checks"] == []
    (ralph.root / "Makefile").unlink()
    assert "no check was found in the project's top folder" in checks_of(ralph)[1]


def test_a_task_without_settings_is_verified_by_what_is_found(ralph: Ralph) -> None:
    ralph.write(MAKEFILE)
    ralph.commit()
    made = ralph("task", "create", "T-1", "S-1", "Make it", "--outcome", "it is made", "--acceptance", "made is there")
    assert made.code == 0, made.err
    (task,) = ralph("work", "--dry-run", "--json", "--agent", ralph.script(WORKS)).json["tasks"]
    stages = {stage["name"]: stage["checks"] for stage in task["stages"]}
    assert (stages["coder"], stages["tester"]) == (["make test"], ["make test"])


def test_a_judge_that_is_told_nothing_goes_by_the_acceptance_criteria(ralph: Ralph) -> None:
    ralph.commit()
    ralph.settings(stages={"qa": {"verification": "semantic", "verificationConfig": {"model": "small"}}})
    ends = ("--outcome", "it is made", "--acceptance", "made is there")
    made = ralph("task", "create", "T-1", "S-1", "Make it", *ends, "--reviewer-promise", "OK",
                 "--reviewer-verify", "semantic")  # fmt: skip
    assert made.code == 0, made.err
    told = ralph("work", "--dry-run", "--json", "--agent", ralph.script(WORKS))
    (task,) = told.json["tasks"]
    judges = {stage["name"]: stage["judges"] for stage in task["stages"]}
    assert (judges["reviewer"], judges["qa"]) == (["reviewer.semantic"], ["qa.semantic"])


def test_a_task_whose_check_cannot_be_run_is_left_open_and_the_others_go_on(ralph: Ralph) -> None:
    ralph.commit()
    for name, check in (("T-1", "./none.sh"), ("T-2", "test -f made")):
        flags = ("--coder-promise", "DONE", "--coder-verify", "external", "--coder-verify-cmd", check)
        done_when = ("--outcome", "it is made", "--acceptance", "made is there")
        assert ralph("task", "create", name, "S-1", "Make it", *done_when, *flags).code == 0
    work = (
        "work",
        "--json",
        "--agent",
        ralph.script(WORKS),
        *(f"--skip={one}" for one in ("reviewer", "tester", "qa")),
    )
    first = ralph(*work)
    ends = {task["task"]: task["end"] for task in first.lines[-1]["tasks"]}
    assert first.code == 2
    assert ends["T-1"].startswith("ERROR: the check coder.external (./none.sh) cannot be run (exit code 127")
    assert ends["T-2"] == "done, verified"
    ralph.write({"none.sh": "#!/bin/sh\ntest -f made\n"})
    (ralph.root / "none.sh").chmod(0o755)
    assert "--allow-missing-check" in ends["T-1"]
    assert "--no-check" not in ends["T-1"], "it does not drop a task's own check"
    again = ralph(*work)
    assert (again.code, again.lines[-1]["tasks"]) == (0, [{"task": "T-1", "end": "done, verified"}]), again.err


@pytest.mark.parametrize(
    ("check", "why"),
    [
        ("pytst -q", "exit code 127, not found: "),
        ("./plain", "exit code 126, not executable: "),
        ("python3 -S -m no_such_runner -q", "No module named no_such_runner"),
        ("make test", "no-such-runner-at-all: "),
        (
            "echo 'sh: 1: jest: not found'; echo npm notice; exit 127",
            "exit code 127, not found: sh: 1: jest: not found",
        ),
        ("make chekc", "No rule to make target 'chekc'."),
        ("python3 tests/none.py", "can't open file "),
    ],
)
def test_a_check_that_cannot_be_run_refuses_the_start(ralph: Ralph, check: str, why: str) -> None:
    ralph.write({"plain": "true", "Makefile": "test:\n\tno-such-runner-at-all\n"})
    ralph.commit()
    agent = ralph.script([{"run": ["touch", "../begun"]}, done()])
    ended = ralph(*RUN, "--agent", agent, "--check", check)
    assert ended.code == 2
    (line,) = ended.out.splitlines()
    assert line.startswith(f"ERROR: the check {check} cannot be run (")
    assert why in line
    assert "--no-check" in line
    assert "--allow-missing-check" in line
    assert not (ralph.folder / "begun").exists()
    assert ralph.outcome()["iterations"] == 0
    again = ralph("run", "--resume")
    assert (again.code, again.err.rstrip().endswith("begin a new run")) == (2, True)


@pytest.mark.parametrize(
    "check",
    [
        "make test",  # a file that the target needs is the agent's to write
        "sh -c 'echo sh: 1: tool: not found; exit 1'",
        "cat said; false",  # a test runner speaks in it, whatever else is said there
    ],
)
def test_a_check_that_was_run_and_is_red_refuses_nothing(ralph: Ralph, check: str) -> None:
    bar = "=" * 20
    said = f"python3: No module named x\n{bar} short test summary info {bar}\nFAILED test_a.py::test_x - assert 0\n"
    said += f"{bar} 1 failed, 2 passed in 0.10s {bar}\n"
    ralph.write({"Makefile": "test: made\n\ttrue\n", "said": said})
    ralph.commit()
    ended = ralph(*RUN, "--agent", ralph.script(WORKS), "--check", check, "-m", "1")
    assert ended.code != 2, ended.err


def test_what_the_agent_brings_itself_is_only_claimed(ralph: Ralph) -> None:
    ralph.commit()
    brings = {"write": {"check.sh": "#!/bin/sh\ntrue\n"}}
    agent = ralph.script([brings, {"run": ["chmod", "+x", "check.sh"]}, done()])
    ended = ralph(*RUN, "--agent", agent, "--check", "./check.sh", "--allow-missing-check")
    outcome = ralph.outcome()
    assert (ended.code, outcome["proof"]) == (0, "claimed"), ended.err
    ralph.settings(requireProof=True)
    refused = ralph(*RUN, "--agent", agent, "--check", "./check.sh", "--allow-missing-check")
    assert (refused.code, "a check that the agent brings proves nothing" in refused.err) == (2, True)
    brought = "./check.sh could not be run before the run began: the agent brought it, so its pass is only claimed"
    assert brought in outcome["concerns"]
