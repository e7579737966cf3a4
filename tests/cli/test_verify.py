from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.boxes import both, needs
from tests.cli.proof_files import CHECK, TESTS, WORKSPACE, exported, finished, listing, settled, told_of
from tests.cli.terminal import Terminal
from tests.ralph import Ended, Ralph, done, until, write


@pytest.fixture
def temporary(ralph: Ralph) -> Path:
    """Where throw-away folders are made."""
    place = ralph.folder / "temporary"
    place.mkdir()
    ralph.env["TMPDIR"] = str(place)
    return place


def last(ended: Ended) -> str:
    return ended.out.splitlines()[-1]


def test_a_proof_holds_whose_checks_pass_again_on_a_clean_checkout(ralph: Ralph, temporary: Path) -> None:
    run = finished(ralph)
    ralph.write({"work": "", "check.sh": "exit 1", "own": "made after the run"})
    before = listing(ralph.root)
    ended = ralph("verify", "latest")
    assert ended.code == 0, ended
    assert last(ended).startswith(f"HOLDS: the proof of run {run}; 1 check passed again on a clean checkout of ")
    assert f"holds     {CHECK}: exit code 0 after" in ended.out
    assert "on record: exit code 0" in ended.out
    assert ended.err.splitlines()[0] == f"runs {CHECK}"
    assert f"{CHECK} passed after 0.0 s" in ended.err
    assert (listing(ralph.root), list(temporary.iterdir())) == (before, []), "only a throw-away folder is written to"


def test_for_programs_it_is_one_object(ralph: Ralph) -> None:
    run = finished(ralph, check=f"{TESTS} 3")
    told = ralph("verify", run, "--json", "-q")
    assert (told.code, told.err) == (0, "")
    assert (told.json["type"], told.json["result"], told.json["run"]) == ("verification", "holds", run)
    commit, tree = told.json["commit"], told.json["tree"]
    assert ralph.git("rev-parse", f"{commit}^{{tree}}").strip() == tree
    (check,) = told.json["reruns"]
    assert (check["name"], check["command"], check["holds"]) == (check["command"], check["name"], True)
    assert (check["recordedExitCode"], check["recordedTests"]["passedCount"]) == (0, 3)
    assert (check["exitCode"], check["exitReason"], check["tests"]["passedCount"]) == (0, "exit", 3)
    assert check["durationSeconds"] > 0
    assert (told.json["reasons"], told.json["notRun"]) == ([], [])
    assert isinstance(told.json["concerns"], list)


def test_a_check_that_leans_on_an_ignored_file_does_not_hold_and_its_output_is_shown(ralph: Ralph) -> None:
    ralph.write({"ignored": "here alone"})
    run = finished(ralph, check="cat ignored")
    ended = ralph("verify", run)
    assert (ended.code, last(ended).split(":")[0]) == (1, "DOES NOT HOLD")
    assert "DIFFERS   cat ignored: exit code 1 after" in ended.out
    assert "    | cat: ignored: No such file or directory" in ended.out
    told = ralph("verify", run, "--json").json
    assert told["result"] == "differs"
    assert told["reasons"] == ["cat ignored: it failed with exit code 1; on record: exit code 0"]
    assert "No such file" in told["reruns"][0]["output"]


def test_each_check_has_a_checkout_of_its_own(ralph: Ralph) -> None:
    settled(ralph, "touch left", f"{WORKSPACE} || test ! -e left")
    ended = ralph("verify", "latest")
    assert ended.code == 0, ended.out


def test_a_command_that_two_checks_share_is_run_once(ralph: Ralph) -> None:
    settled(ralph, verifyIn="clean")
    ended = ralph("verify", "latest")
    assert (ended.code, ended.err.count(f"runs {CHECK}")) == (0, 1), ended


def test_setup_prepares_every_checkout(ralph: Ralph) -> None:
    ralph.write({"ready": "here"})
    settled(ralph, CHECK, "cat ready", setup=["echo 1 > ready"], verifyIn="clean")
    ended = ralph("verify", "latest")
    assert ended.code == 0, ended
    assert ended.err.count("runs echo 1 > ready") == 2


def test_a_setup_that_fails_does_not_hold(ralph: Ralph) -> None:
    network = ralph.folder / "network"
    network.touch()
    command = f"cat {network}"
    settled(ralph, setup=[command], verifyIn="clean")
    network.unlink()
    ended = ralph("verify", "latest")
    assert ended.code == 1, ended
    assert f"what prepares the checkout failed with exit code 1: {command}" in ended.out
    assert "No such file" in ended.out


@pytest.mark.parametrize(
    ("config", "command"),
    [
        ({"success_exit_code": 3}, "exit 3"),
        ({"output_contains": "fine"}, "sh check.sh"),
        ({"output_not_contains": "bad"}, "sh check.sh"),
        ({"working_dir": "sub"}, "test -f inner"),
    ],
)
def test_a_check_passes_again_by_its_own_rule(ralph: Ralph, config: dict[str, Any], command: str) -> None:
    ralph.write({"sub/inner": "here"})
    settled(ralph, {"command": command, "method": "external", "config": config})
    ended = ralph("verify", "latest")
    assert ended.code == 0, ended


@pytest.mark.parametrize(
    ("rule", "command", "why"),
    [
        ({"config": {"success_exit_code": 3}}, f"{WORKSPACE} && exit 3; exit 0", "exit code 0, expected 3"),
        ({"config": {"output_contains": "fine"}}, f"{WORKSPACE} && echo fine; true", "does not contain 'fine'"),
        ({"config": {"output_not_contains": "bad"}}, f"{WORKSPACE} || echo bad", "output that contains 'bad'"),
        ({"timeoutSeconds": 1}, f"{WORKSPACE} || sleep 60", "a timeout after 1 s"),
    ],
)
def test_and_fails_by_it(ralph: Ralph, rule: dict[str, Any], command: str, why: str) -> None:
    settled(ralph, {"command": command, "method": "external", **rule})
    told = ralph("verify", "latest", "--json")
    assert told.code == 1, told
    assert why in told.json["reruns"][0]["exitReason"]


def test_fewer_tests_than_on_record_do_not_hold_although_the_check_passes(ralph: Ralph) -> None:
    counted = f"{WORKSPACE} && n=3 || n=2; {TESTS} $n"
    settled(ralph, {"command": counted, "name": "tests"})
    ended = ralph("verify", "latest")
    assert ended.code == 1
    assert "  tests: 2 tests passed; on record: 3" in ended.out


def test_another_output_is_told_and_decides_nothing(ralph: Ralph) -> None:
    settled(ralph, "pwd")
    ended = ralph("verify", "latest")
    assert ended.code == 0
    assert "; the output is another one" in ended.out


def test_a_check_that_only_warns_and_a_judge_are_not_asked_again(ralph: Ralph) -> None:
    ralph.write({"check.sh": "true"})
    ralph.commit()
    agent = ralph.script([write(work="done\n"), done()], answer=[{"judge": "yes"}])
    ended = ralph("run", "-p", "x", "--agent", agent, "--check", CHECK, "--judge", "the work is neat")
    assert ended.code == 0, ended.err
    told = ralph("verify", "latest", "--json").json
    assert told["result"] == "holds", told
    assert [one["reason"] for one in told["notRun"]] == ["a model's word"]
    assert "a model's word" in ralph("verify", "latest").out


def test_held_out_checks_are_asked_again_too(ralph: Ralph) -> None:
    settled(ralph, finalChecks=[f"{WORKSPACE} || test -f work"])
    told = ralph("verify", "latest", "--json").json
    assert told["result"] == "holds", told
    assert [one["command"] for one in told["reruns"]] == [CHECK, f"{WORKSPACE} || test -f work"]


def test_concerns_are_repeated(ralph: Ralph) -> None:
    odd = f"{WORKSPACE} || exit 0; n=$(($(cat ../n || echo 0) + 1)); echo $n > ../n; test $((n % 2)) = 0"
    settled(ralph, {"command": odd, "name": "fickle", "retries": 1})
    concerns = ralph.outcome()["concerns"]
    assert concerns
    ended = ralph("verify", "latest")
    assert all(f"concern: {one}" in ended.out for one in concerns)
    assert "caveat: " in ended.out


@both
def test_in_a_sandbox_a_check_reaches_git_and_nothing_of_yours(ralph: Ralph, kind: str) -> None:
    needs(kind)
    (ralph.home / "own").write_text("mine")
    settled(ralph, "git log -1 --format=%s", f"cat {ralph.home}/own")
    told = ralph("verify", "latest", f"--sandbox={kind}", "--json")
    assert (told.code, [one["holds"] for one in told.json["reruns"]]) == (1, [True, False]), told
    assert ralph("verify", "latest", "-q").code == 0


# What cannot be checked


def claimed(ralph: Ralph) -> None:
    ralph.commit()
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0


def judged(ralph: Ralph) -> None:
    ralph.commit()
    agent = ralph.script([write(work="done"), done()], answer=[{"judge": "yes"}])
    ended = ralph("run", "-p", "x", "--agent", agent, "--judge", "all is neat")
    assert ended.code == 0, ended.err


def aborted(ralph: Ralph) -> None:
    ralph.commit()
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()]), "--check", "false", "-m", "1").code == 1


def without_git(ralph: Ralph) -> None:
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()]), "--check", "true").code == 0


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (claimed, "the agent's word alone ended the run"),
        (judged, "only a model judged the work"),
        (aborted, "the run was not completed: it ended ABORTED MAX_ITERATIONS"),
        (without_git, "the run had no git repository"),
    ],
)
def test_what_no_machine_could_show_again_cannot_be_checked(ralph: Ralph, world: Any, why: str) -> None:
    world(ralph)
    ended = ralph("verify", "latest")
    assert (ended.code, last(ended).split(":")[0]) == (2, "CANNOT BE CHECKED")
    assert f"  {why}" in ended.out
    told = ralph("verify", "latest", "--json")
    assert (told.code, told.json["result"], told.json["reruns"]) == (2, "unchecked", [])


def test_a_saved_tree_that_was_pruned_cannot_be_checked_and_it_says_what_to_fetch(ralph: Ralph) -> None:
    run = finished(ralph)
    file = exported(ralph)
    ref = ralph.git("for-each-ref", "--format=%(refname)", f"refs/ralph/{run}/1").strip()
    for name in ralph.git("for-each-ref", "--format=%(refname)", "refs/ralph").split():
        ralph.git("update-ref", "-d", name)
    ralph.git("reflog", "expire", "--expire=now", "--all")
    ralph.git("gc", "-q", "--prune=now")
    ended = ralph("verify", str(file), "--yes")
    assert ended.code == 2, ended
    assert f"git fetch REMOTE {ref}:{ref}" in ended.out
    assert f"ralph branch {run} 1" in ended.out


@pytest.mark.parametrize("path", ["work", ".ralph/settings.json"])
def test_what_git_lost_says_nothing_of_the_work(ralph: Ralph, path: str) -> None:
    settled(ralph)
    name = ralph.git("rev-parse", f"HEAD:{path}").strip()
    (ralph.root / ".git/objects" / name[:2] / name[2:]).unlink()
    ended = ralph("verify", "latest")
    assert (ended.code, last(ended).split(":")[0]) == (2, "CANNOT BE CHECKED"), ended


def test_a_run_that_goes_on_has_proved_nothing_yet(ralph: Ralph) -> None:
    ralph.commit()
    ralph.start("run", "-p", "x", "--agent", ralph.script([write(started="1"), {"until": "go"}, done()]))
    until(lambda: (ralph.root / "started").exists(), "the agent is at work")
    ended = ralph("verify", "latest")
    assert (ended.code, "the run has not ended" in ended.out) == (2, True), ended


# Wrong arguments


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "RUN|FILE"),
        ([""], "name a run, latest, or the file of a proof"),
        (["nope"], "no run is called 'nope'"),
        (["nope.md"], "nope.md is not there"),
        (["./"], "is a directory"),
        (["/dev/zero"], "is not a regular file"),
        (["latest", "more"], "unknown argument more"),
        (["latest", "--yess"], "did you mean --yes?"),
        (["a\0b.md"], ""),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(ralph: Ralph, words: list[str], why: str) -> None:
    if words == ["a\0b.md"]:
        words = ["\udcff.md"]
    ended = ralph("verify", *words)
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1), ended
    assert why in ended.err


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is no proof"),
        (b"# A page\n\nof prose\n", "is no proof"),
        (b"{}", "is no proof"),
        (b'{"type": "proof", "v": 2}', "is no proof"),
        (b"\xff\xfe\0", "not UTF-8"),
        (b"[" * 100_000, "is no proof"),
        (b'{"v": 1, "type": "proof", "v": 1e999}', ""),
    ],
)
def test_what_is_no_proof_cannot_be_checked(ralph: Ralph, content: bytes, why: str) -> None:
    ralph.commit()
    (ralph.folder / "file.md").write_bytes(content)
    ended = ralph("verify", str(ralph.folder / "file.md"))
    assert ended.code == 2, ended
    assert why in ended.out
    assert ended.err == ""


def test_a_file_that_is_too_large_is_refused(ralph: Ralph) -> None:
    with (ralph.folder / "file.md").open("wb") as file:
        file.truncate((16 << 20) + 1)
    ended = ralph("verify", str(ralph.folder / "file.md"))
    assert (ended.code, ended.out) == (2, "")
    assert "is larger than 16 MiB" in ended.err


# Nothing is left


def test_what_a_check_leaves_running_or_closed_is_gone_afterwards(ralph: Ralph, temporary: Path) -> None:
    left = (
        f"{WORKSPACE} || {{ mkdir -p a/b; touch a/b/c; chmod 0 a/b a; (setsid sleep 300 &) ; echo $$ > ../../group; }}"
    )
    settled(ralph, left)
    ended = ralph("verify", "latest")
    assert ended.code == 0, ended
    assert list(temporary.iterdir()) == [temporary / "group"]
    assert told_of(temporary) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_leaves_nothing(ralph: Ralph, temporary: Path, number: int) -> None:
    settled(ralph, f"{WORKSPACE} || {{ touch ../../at-work; sleep 300; }}")
    live = ralph.start("verify", "latest")
    until(lambda: (temporary / "at-work").exists(), "the check is at work")
    os.kill(live.process.pid, number)
    ended = live.end(20)
    assert ended.code == 130, ended
    assert ended.out == ""
    assert list(temporary.iterdir()) == [temporary / "at-work"]
    assert told_of(temporary) == []


def test_at_a_terminal_it_asks_before_it_runs_what_no_settings_name(ralph: Ralph) -> None:
    finished(ralph)
    file = exported(ralph)
    at = Terminal(ralph, "verify", str(file))
    at.answer(("Run these commands? (y/N): ", ""))
    assert at.end() == 2
    assert f"  {CHECK}" in at.shown
    at = Terminal(ralph, "verify", str(file))
    at.answer(("(y/N): ", "y"))
    assert at.end() == 0, at.shown
    at = Terminal(ralph, "verify", str(file))
    at.expect("(y/N): ")
    at.type("\x03")
    assert at.end() == 130
