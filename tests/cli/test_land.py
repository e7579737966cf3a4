"""`ralph land`: completed runs onto a branch of their own, from the first one to the one that was cut off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.errors import Refused
from ralphproof.landing.targets import RemoteBranch, landing_target
from ralphproof.store.landings import Landed
from tests.cli.landing import TARGET, Yard, bytes_of, check, landed
from tests.ralph import Ralph, Step, done, until, write

GATED = "test ! -e {gate} || {{ touch {at}; sleep 300; }}"


@pytest.fixture
def yard(ralph: Ralph) -> Yard:
    return Yard(ralph)


def ran(yard: Yard, *steps: Step, flags: tuple[str, ...] = ("--check", "sh check.sh")) -> str:
    """A completed run; the checkout is as before."""
    agent = yard.ralph.script([*steps, done()])
    ended = yard.ralph("run", "-p", "make it so", "--agent", agent, *flags)
    assert ended.code == 0, ended.err
    yard.git("checkout", "-q", ".")
    yard.git("clean", "-fdq")
    return yard.ralph.runs()[0].id


def test_completed_runs_land_on_a_branch_of_their_own(yard: Yard) -> None:
    yard.git("branch", "-D", TARGET)
    runs = [ran(yard, write(one="1\n")), ran(yard, write(two="2\n", key__pem="secret\n"))]
    yard.ralph.write({"mine": "not committed\n", "file": "dirty\n"})
    before = bytes_of(yard.ralph.root)
    ended = yard.ralph("land", *runs)
    assert ended.code == 0, ended
    assert bytes_of(yard.ralph.root) == before
    lines = [line for line in ended.out.splitlines() if not line.startswith(" ")]
    assert [line.split()[:3] for line in lines] == [["landed:", "run", run] for run in runs]
    assert "left out: key.pem" in ended.out
    assert {"one", "two"} <= yard.files()
    assert "key.pem" not in yard.files()
    assert yard.green()
    again = yard.ralph("land")
    assert (again.code, "nothing to land" in again.out) == (0, True)
    tip = yard.tip()
    assert yard.ralph("land", runs[0]).code == 0
    assert yard.tip() == tip, "it landed once"


def test_what_is_turned_away_is_named_kept_and_tried_again(yard: Yard) -> None:
    left, right = ran(yard, write(left="1\n")), ran(yard, write(right="1\n"))
    ended = yard.ralph("land", left, right, "--json")
    assert ended.code == 1, ended
    told: list[dict[str, Any]] = ended.json["parcels"]
    assert [(one["run"], one["landed"]) for one in told] == [(left, True), (right, False)]
    assert told[1]["red"]["checks"][0]["code"] == 1
    assert yard.green()
    again = yard.ralph("land")
    assert (again.code, f"turned away: run {right}" in again.out) == (1, True)
    yard.git("update-ref", f"refs/heads/{TARGET}", yard.work({"check.sh": "test -e right\n"}, TARGET))
    assert yard.ralph("land").code == 0, "who mended the target lands it"


def test_only_completed_runs_land_and_a_claim_is_never_called_verified(yard: Yard) -> None:
    claimed = ran(yard, write(one="1\n"), flags=())
    refused = yard.ralph("land", claimed)
    assert (refused.code, "nothing verified it (claimed)" in refused.out) == (1, True)
    assert "one" not in yard.files()
    given = yard.ralph("land", claimed, "--unverified")
    assert (given.code, "claimed and not verified" in given.out) == (0, True), given
    stopped = yard.ralph("run", "-p", "x", "--agent", yard.ralph.script([]), "--check", "false", "-m", "1")
    assert stopped.code == 1
    refused = yard.ralph("land", "latest")
    assert (refused.code, "was not completed" in refused.err, len(refused.err.splitlines())) == (2, True, 1)


@pytest.mark.thorough
def test_a_claim_lands_by_the_checks_of_the_project(yard: Yard) -> None:
    yard.git("update-ref", f"refs/heads/{TARGET}", yard.work({".ralph/settings.json": json.dumps(
        {"guardrails": [{"command": "test ! -e forbidden"}]})}, TARGET))  # fmt: skip
    fine, bad = ran(yard, write(one="1\n"), flags=()), ran(yard, write(forbidden="1\n"), flags=())
    ended = yard.ralph("land", fine, bad)
    assert ended.code == 1
    assert {"one"} == yard.files() & {"one", "forbidden"}
    assert "claimed and not verified, 1 check passed" in ended.out


def test_what_the_user_committed_meanwhile_lands_first_and_what_they_merged_is_followed(yard: Yard) -> None:
    run = ran(yard, write(one="1\n"))
    assert yard.ralph("land", run).code == 0
    yard.ralph.write({"theirs": "x\n"})
    yard.git("add", "theirs")
    yard.git("commit", "-qm", "of mine")
    target, theirs, _ = landing_target(yard.users)
    assert theirs is not None
    assert theirs.commit == yard.tip("main")
    second = ran(yard, write(two="2\n"))
    ended = yard.ralph("land", second)
    assert (ended.code, ended.out.startswith("landed: what you committed")) == (0, True), ended
    assert {"theirs", "one", "two"} <= yard.files()
    yard.git("merge", "-q", TARGET)
    yard.git("commit", "-q", "--allow-empty", "-m", "more of mine")
    assert landing_target(yard.users)[1] is None
    assert yard.tip() == yard.tip("main")
    assert target.name == TARGET


@pytest.mark.parametrize("state", ["detached", "on-the-target", "no-such-branch"])
def test_where_nothing_can_land_one_line_says_why(yard: Yard, state: str) -> None:
    run = ran(yard, write(one="1\n"))
    onto = ("--onto", "none") if state == "no-such-branch" else ()
    if state != "no-such-branch":
        yard.git("checkout", "-q", *(("--detach",) if state == "detached" else (TARGET,)))
    refused = yard.ralph("land", run, *onto)
    assert (refused.code, refused.out, len(refused.err.splitlines())) == (2, "", 1)


@pytest.mark.thorough
def test_a_commit_of_the_runs_own_lands_as_it_is(yard: Yard) -> None:
    yard.ralph.settings(guardrails=[{"command": "sh check.sh"}], scm={"command": "git", "tasks": ["commit"]})
    yard.git("add", "-A")
    yard.git("commit", "-qm", "settings")
    agent = yard.ralph.script([write(one="1\n"), done()], message=[{"text": "one is made"}])
    assert yard.ralph("run", "-p", "make it so", "--agent", agent).code == 0
    made = yard.tip("main")
    yard.git("branch", "-f", TARGET, "main~2")
    yard.git("branch", "other", "main~1")
    ended = yard.ralph("land", "latest", "--onto", "other", "--json")
    assert ended.code == 0, ended
    assert ended.json["parcels"][0]["work"] == made
    assert "one is made" in yard.git("log", "--format=%s", "other")


def test_a_run_in_a_work_tree_of_its_own_lands_from_the_project(yard: Yard) -> None:
    place = yard.ralph.folder / "task"
    yard.git("worktree", "add", "-q", "-b", "task", str(place))
    agent = yard.ralph.script([write(one="1\n"), done()])
    ended = yard.ralph("run", "-p", "x", "--agent", agent, "--check", "sh check.sh", cwd=place)
    assert ended.code == 0, ended.err
    run = yard.ralph.runs()[0].id
    assert yard.ralph("land", run).code == 0
    assert "one" in yard.files()
    assert yard.git("rev-parse", "task") == yard.tip("main"), "its branch is as it left it"


def test_ctrl_c_ends_the_check_moves_nothing_and_it_goes_on_next_time(yard: Yard) -> None:
    gate, at = yard.ralph.folder / "gate", yard.ralph.folder / "at"
    run = ran(yard, write(one="1\n"), flags=("--check", GATED.format(gate=gate, at=at)))
    gate.touch()
    tip, live = yard.tip(), yard.ralph.start("land", run)
    until(at.exists, "the check is at work")
    live.process.send_signal(signal.SIGINT)
    ended = live.end()
    assert (ended.code, yard.tip()) == (130, tip), ended
    assert not list((Path(yard.ralph.project.store) / "landing" / "rooms").iterdir())
    gate.unlink()
    assert yard.ralph("land").code == 0
    assert "one" in yard.files()


@pytest.mark.thorough
def test_two_at_the_same_time_land_everything_once(yard: Yard) -> None:
    runs = [ran(yard, write(**{f"file{n}": "x\n"})) for n in range(3)]
    lives = [yard.ralph.start("land", *runs[:2]), yard.ralph.start("land", *runs[1:])]
    assert [live.end().code for live in lives] == [0, 0]
    assert {"file0", "file1", "file2"} <= yard.files()
    subjects = yard.git("log", "--merges", "--format=%(trailers:key=Ralph-Run,valueonly,separator=)", TARGET)
    assert sorted(subjects.splitlines()) == sorted(runs)
    assert yard.green()


# A branch of a remote


def remote(yard: Yard) -> Path:
    place = yard.ralph.folder / "remote.git"
    yard.git("clone", "-q", "--bare", str(yard.ralph.root), str(place))
    yard.git("remote", "add", "origin", str(place))
    return place


def test_work_lands_on_a_branch_of_a_remote_beside_what_others_push(yard: Yard) -> None:
    place = remote(yard)
    target = RemoteBranch(yard.users, "origin", TARGET)
    raced: list[str] = []

    def race() -> None:
        if not raced:
            raced.append(yard.work({"raced": "x\n"}, target.tip()))
            yard.git("push", "-q", "origin", f"{raced[0]}:refs/heads/{TARGET}")

    refs = yard.git("for-each-ref", "refs/heads")
    ends = yard.land(yard.part("r1"), during=race, target=target)
    assert landed(ends) == ["r1"]
    tip = subprocess.run(["git", "rev-parse", TARGET], cwd=place, capture_output=True, text=True, check=True).stdout
    assert isinstance(ends[0], Landed)
    assert ends[0].commit == tip.strip() == target.tip()
    assert {"raced", "parts/r1"} <= yard.files(tip.strip())
    assert yard.git("for-each-ref", "refs/heads") == refs


def test_what_a_remote_does_not_take_is_refused_and_kept(yard: Yard) -> None:
    place = remote(yard)
    hook = place / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    parcel = yard.part("r1")
    with pytest.raises(Refused, match="does not take"):
        yard.land(parcel, target=RemoteBranch(yard.users, "origin", TARGET))
    os.unlink(hook)
    assert landed(yard.land(parcel, target=RemoteBranch(yard.users, "origin", TARGET))) == ["r1"]


def test_nothing_that_the_repository_configures_runs_in_a_merge(yard: Yard) -> None:
    mark = yard.ralph.folder / "ran"
    yard.git("config", "merge.evil.driver", f"touch {mark}; false")
    yard.git("config", "core.hooksPath", str(yard.ralph.folder / "hooks"))
    hook = yard.ralph.folder / "hooks" / "reference-transaction"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
    hook.chmod(0o755)
    based = yard.work({".gitattributes": "file merge=evil\n"})
    yard.git("-c", "core.hooksPath=/dev/null", "update-ref", f"refs/heads/{TARGET}", based)
    text = "".join(f"line {n}\n" for n in range(9))
    one = yard.item("r1", {"file": text.replace("line 0", "first")}, based, check())
    two = yard.item("r2", {"file": text.replace("line 8", "last")}, based, check())
    assert landed(yard.land(one, two)) == ["r1", "r2"]
    assert not mark.exists()
