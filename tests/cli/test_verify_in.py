"""Whole runs whose work is verified in a clean checkout of what would be committed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from ralphproof.engine.records import CheckEnded
from tests.boxes import needs
from tests.ralph import Ended, Ralph, done, until, write

WHERE = "in a clean checkout of what would be committed; files that git ignores, or leaves out, are not there"


def lay(ralph: Ralph, *setup: str, check: str = "test -f made", **more: object) -> None:
    """A project that is verified in a clean checkout."""
    ralph.write({".gitignore": "*.out\nnode_modules\n", "package.json": "{}\n"})
    ralph.settings(verifyIn="clean", setup=list(setup), guardrails=[{"command": check}], **more)
    ralph.commit()
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")


def run(ralph: Ralph, *iterations: list[dict[str, object]], most: int = 2) -> Ended:
    agent = ralph.script(*iterations, message=[{"text": "<commit_message>work</commit_message>"}])
    return ralph("run", "-p", "make it so", "--agent", agent, "-m", str(most))


def answers(ralph: Ralph) -> list[tuple[int, str, bool, bool]]:
    """Iteration, check, whether it passed, and whether that was in a clean checkout."""
    return [
        (told.iteration, told.finding.check, told.finding.passed, bool(told.finding.rule and told.finding.rule.clean))
        for told in ralph.records()
        if isinstance(told, CheckEnded)
    ]


def places(ralph: Ralph) -> list[str]:
    """What is left of checkouts; what setup made may stay."""
    found = (ralph.state_dir / "repos").glob("*/clean/*/*")
    return [path.name for path in found if path.name != "cache"]


def beside(ralph: Ralph, name: str = "ran") -> Path:
    return ralph.folder / name


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def prompt(ralph: Ralph, iteration: int) -> str:
    return (ralph.run_folder() / f"prompt_{iteration:03d}.txt").read_text()


def test_work_that_leans_on_an_ignored_file_is_not_done_and_the_agent_is_told_why(ralph: Ralph) -> None:
    lay(ralph, check="test -f made.out || test -f made")
    ended = run(ralph, [write(made__out="1"), done()], [write(made="1"), done()])
    name = "test -f made.out || test -f made"
    assert (ended.code, ralph.outcome()["status"], ralph.outcome()["iterations"]) == (0, "COMPLETED", 2), ended
    assert answers(ralph) == [
        (0, name, False, False), (1, name, True, False), (1, f"{name} (clean)", False, True), (2, name, True, False),
        (2, f"{name} (clean)", True, True),
    ]  # fmt: skip
    assert f'Guardrail "{name}" failed with exit code 1 {WHERE}.' in prompt(ralph, 2)
    assert places(ralph) == []


def test_work_that_never_holds_in_a_clean_checkout_does_not_complete(ralph: Ralph) -> None:
    lay(ralph, check="test -f made.out")
    ended = run(ralph, [write(made__out="1"), done()])
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS"), ended
    log = ralph.run_folder() / "guardrail_001_clean_test_f_made_out.log"
    assert log.exists()
    assert "Output file: .ralph/runs/" in prompt(ralph, 2)
    assert log.name in prompt(ralph, 2)


def test_setup_runs_once_for_all_iterations_and_again_when_a_manifest_changed(ralph: Ralph) -> None:
    ran = beside(ralph)
    setup = f"pwd >> {ran}; mkdir node_modules; echo ready > node_modules/dep"
    lay(ralph, setup, check="test -f node_modules/dep; test -f made")
    first, second = [write(other="1"), done()], [write(made="1"), done()]
    (ralph.root / "node_modules").mkdir()
    ended = run(ralph, [write(made__out="1"), done()], first, second, most=3)
    assert ended.code == 0, ended
    clean = [answer for answer in answers(ralph) if answer[3]]
    assert [one[2] for one in clean] == [True]
    assert len(lines(ran)) == 1
    ended = run(ralph, [write(made="2"), done()])
    assert (ended.code, len(lines(ran))) == (0, 1), ended
    ended = run(ralph, [{"write": {"package.json": '{"name": "x"}\n', "made": "3"}}, done()])
    assert (ended.code, len(lines(ran))) == (0, 2), ended
    assert len(set(lines(ran))) == 1, "it is the same place every time"
    assert str(ralph.root) not in lines(ran)[0]
    assert places(ralph) == []


def test_what_a_check_writes_into_what_setup_made_is_not_there_for_the_next_one(ralph: Ralph) -> None:
    check = "test ! -f node_modules/stain && echo x > node_modules/stain; cat node_modules/dep && test -f made"
    lay(ralph, "mkdir node_modules; echo ready > node_modules/dep", check=f"test -d .ralph || {{ {check}; }}")
    assert run(ralph, [write(made="1"), done()]).code == 0
    assert run(ralph, [write(made="2"), done()]).code == 0
    assert [answer[2] for answer in answers(ralph) if answer[3]] == [True]


def test_what_setup_makes_of_the_projects_own_files_is_made_anew_for_another_tree(ralph: Ralph) -> None:
    ran = beside(ralph)
    lay(ralph, f"echo x >> {ran}; cp source built.out", check="test ! -f built.out || grep -q right built.out")
    ralph.write({"source": "wrong\n"})
    ralph.commit()
    ended = run(ralph, [write(other="1"), done()], [write(source="right\n"), done()])
    assert (ended.code, ralph.outcome()["iterations"], len(lines(ran))) == (0, 2, 2), ended


def test_a_setup_that_fails_is_told_with_its_command_its_exit_code_and_its_log(ralph: Ralph) -> None:
    lay(ralph, "echo no such package; exit 7", check="true")
    ended = run(ralph, [write(made="1"), done()])
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS"), ended
    told = prompt(ralph, 2)
    command = "'echo no such package; exit 7'"
    assert f"failed with its preparation: setup command {command} failed with exit code 7 {WHERE}" in told
    assert "setup_001_echo_no_such_package_exit_7.log" in told
    assert (ralph.run_folder() / "setup_001_echo_no_such_package_exit_7.log").read_text() == "no such package\n"


def test_with_an_scm_a_file_that_was_dirty_before_the_run_is_not_in_the_checkout(ralph: Ralph) -> None:
    seen = beside(ralph)
    check = f"ls > {seen}; cat tracked >> {seen}; git rev-parse HEAD^{{tree}} >> {seen}; test -f made"
    lay(ralph, check=check, scm={"command": "git", "tasks": ["commit"]})
    ralph.write({"tracked": "committed\n"})
    ralph.commit()
    ralph.write({"tracked": "mine\n", "new-of-mine": "1\n"})
    ended = run(ralph, [write(made="1"), done()])
    assert ended.code == 0, ended
    assert lines(seen) == [
        "made",
        "package.json",
        "tracked",
        "committed",
        ralph.git("rev-parse", "HEAD^{tree}").strip(),
    ]
    assert ralph.git("show", "--format=", "--name-only", "HEAD").split() == ["made"]


def test_without_an_scm_all_that_is_saved_is_in_the_checkout(ralph: Ralph) -> None:
    seen = beside(ralph)
    lay(ralph, check=f"ls > {seen}; git status --short >> {seen}; test -f made")
    ralph.write({"new-of-mine": "1\n"})
    assert run(ralph, [write(made="1"), done()]).code == 0
    assert lines(seen) == ["made", "new-of-mine", "package.json"]


def test_held_out_checks_run_in_a_clean_checkout_too(ralph: Ralph) -> None:
    config = Path(ralph.env["RALPH_CONFIG_DIR"])
    config.mkdir()
    (config / "settings.json").write_text('{"finalChecks": ["test -f made"]}')
    lay(ralph, "true", check="true")
    ended = run(ralph, [write(made__out="1"), done()], [write(made="1"), done()])
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 2), ended
    held = [answer for answer in answers(ralph) if answer[1].startswith("final: ")]
    assert held == [(1, "final: test -f made", False, True), (2, "final: test -f made", True, True)]
    assert "clean checkout" not in prompt(ralph, 2)


def waiting(ralph: Ralph, *setup: str, first: str = "true") -> tuple[Path, Path]:
    """A project whose clean check says that it is there, and waits for a word; in the project it does neither."""
    there, word = pipe(ralph)
    waits = f"{first}; echo $PWD >> {there}; read x < {word}; test -f made"
    lay(ralph, *setup, check=f"test -d .ralph || {{ {waits}; }}")
    return there, word


def pipe(ralph: Ralph) -> tuple[Path, Path]:
    """Where something says that it is there, and where it waits; who stops it is not patient."""
    ralph.env["RALPH__SHUTDOWN_GRACE_SECONDS"] = "0.1"
    os.mkfifo(word := beside(ralph, "word"))
    return beside(ralph, "there"), word


def test_ctrl_c_in_a_clean_check_leaves_nothing_of_the_checkout(ralph: Ralph) -> None:
    there, _ = waiting(ralph)
    live = ralph.start("run", "-p", "x", "--agent", ralph.script([write(made="1"), done()]))
    until(lambda: lines(there), "the clean check")
    assert Path(lines(there)[0], "made").exists()
    os.kill(live.process.pid, signal.SIGINT)
    ended = live.end()
    assert (ended.code, places(ralph)) == (130, []), ended


def test_a_run_that_was_stopped_in_a_clean_check_asks_it_in_a_new_checkout(ralph: Ralph) -> None:
    there, word = waiting(ralph)
    live = ralph.start("run", "-p", "x", "--agent", ralph.script([write(made="1"), done()]))
    until(lambda: lines(there), "the clean check")
    os.kill(live.process.pid, signal.SIGINT)
    assert live.end().code == 130
    live = ralph.start("run", "--resume", "latest")
    until(lambda: len(lines(there)) == 2, "the clean check once more")
    word.write_text("go\n")
    ended = live.end()
    assert (ended.code, ralph.outcome()["iterations"], len(set(lines(there)))) == (0, 1, 1), ended
    assert places(ralph) == []


def test_killed_in_a_clean_check_a_run_is_taken_up_there_and_the_check_ran_once(ralph: Ralph) -> None:
    ran = beside(ralph)
    there, word = waiting(ralph, f"echo x >> {ran}; mkdir node_modules", first="echo x > node_modules/stain")
    live = ralph.start("run", "-p", "x", "--agent", ralph.script([write(made="1"), done()]))
    until(lambda: lines(there), "the clean check")
    os.kill(live.process.pid, signal.SIGKILL)
    live.process.wait(20)
    assert "tree" in places(ralph)
    live = ralph.start("run", "--resume", "latest")
    until(lambda: "Resumed" in [type(told).__name__ for told in ralph.records()], "the run's second process")
    word.write_text("go\n")
    ended = live.end()
    assert (ended.code, ralph.outcome()["status"], len(lines(there)), len(lines(ran))) == (0, "COMPLETED", 1, 1), ended
    assert places(ralph) == []
    assert not list((ralph.state_dir / "repos").glob("*/clean/*/kept/*/files/node_modules/stain"))


def test_killed_while_setup_runs_a_run_is_taken_up_there_and_setup_ran_once(ralph: Ralph) -> None:
    there, word = pipe(ralph)
    lay(ralph, "true", f"echo x >> {there}; read x < {word}; mkdir node_modules", check="test -f made")
    live = ralph.start("run", "-p", "x", "--agent", ralph.script([write(made="1"), done()]))
    until(lambda: lines(there), "setup")
    os.kill(live.process.pid, signal.SIGKILL)
    live.process.wait(20)
    live = ralph.start("run", "--resume", "latest")
    until(lambda: "Resumed" in [type(told).__name__ for told in ralph.records()], "the run's second process")
    word.write_text("go\n")
    ended = live.end()
    assert (ended.code, len(lines(there)), places(ralph)) == (0, 1, []), ended


def test_a_run_that_was_stopped_while_setup_ran_prepares_a_new_checkout_from_the_beginning(ralph: Ralph) -> None:
    there, word = pipe(ralph)
    check = "test -d .ralph || { test -d node_modules && test -f made; }"
    lay(ralph, "mkdir node_modules", f"echo x >> {there}; read x < {word}", check=check)
    live = ralph.start("run", "-p", "x", "--agent", ralph.script([write(made="1"), done()]))
    until(lambda: lines(there), "setup")
    os.kill(live.process.pid, signal.SIGINT)
    assert (live.end().code, places(ralph)) == (130, [])
    live = ralph.start("run", "--resume", "latest")
    until(lambda: len(lines(there)) == 2, "setup once more")
    word.write_text("go\n")
    ended = live.end()
    assert (ended.code, ralph.outcome()["iterations"], places(ralph)) == (0, 1, []), ended


def test_what_a_dead_run_left_is_removed_by_the_next_one_also_where_that_wants_no_checkout(ralph: Ralph) -> None:
    there, word = waiting(ralph)
    live = ralph.start("run", "-p", "x", "--agent", ralph.script([write(made="1"), done()]))
    until(lambda: lines(there), "the clean check")
    os.kill(live.process.pid, signal.SIGKILL)
    live.process.wait(20)
    word.write_text("go\n")
    until(lambda: not ralph.processes(ralph.runs()[0].id), "the check's end")
    ended = ralph("run", "-p", "x", "--agent", ralph.script([done()]), env={"RALPH__VERIFY_IN": "workspace"})
    assert (ended.code, places(ralph)) == (0, []), ended


def test_what_cannot_be_had_is_refused_in_one_line(ralph: Ralph) -> None:
    ralph.settings(verifyIn="clean", guardrails=[{"command": "true"}])
    ended = ralph("run", "-p", "x", "--agent", ralph.script([done()]))
    assert (ended.code, len(ended.err.splitlines())) == (2, 1), ended
    assert "needs a git repository" in ended.err
    ralph.settings(setup=["true"], guardrails=[{"command": "true"}])
    ralph.commit()
    ended = ralph("run", "-p", "x", "--agent", ralph.script([done()]))
    assert (ended.code, len(ended.err.splitlines())) == (2, 1), ended
    assert "verifyIn" in ended.err


def test_in_a_sandbox_setup_and_the_clean_check_are_in_one_too(ralph: Ralph) -> None:
    needs("bubblewrap")
    outside = ralph.home / "secret"
    outside.write_text("sesame\n")
    setup = f"mkdir node_modules; cat {outside} > node_modules/seen; ls {ralph.root} > node_modules/project; true"
    unseen = f"! test -s node_modules/seen && ! test -e {outside} && ! grep -q readme node_modules/project"
    held = f"touch {ralph.root}/stray; git cat-file -e HEAD^{{tree}} && test -f made"
    ralph.write({"readme": "1\n"})
    lay(ralph, setup, check=f'test "$PWD" = {ralph.root} || {{ {unseen} && {{ {held}; }}; }}')
    agent = ralph.script([write(made="1"), done()])
    ended = ralph("run", "-p", "x", "--agent", agent, "-m", "1", "--sandbox=bubblewrap")
    assert ended.code == 0, (ended, [p.read_text() for p in ralph.run_folder().glob("*clean*.log")])
    assert [answer[2] for answer in answers(ralph) if answer[3]] == [True]
    assert not (ralph.root / "stray").exists()
    assert places(ralph) == []
