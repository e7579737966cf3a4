"""`ralph bench adversarial`: its report on builds that accept everything, nothing, or only honest work."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from ralphproof.adversarial.bench import all_trials, missing_requirement
from tests.needs import require
from tests.ralph import Ended, Ralph, until

COMPLETED: dict[str, object] = {"status": "COMPLETED", "verificationPassed": True, "concerns": []}
BELIEVES: dict[str, object] = {"type": "run.ended", "data": COMPLETED}
REFUSES: dict[str, object] = {
    "type": "run.ended",
    "data": {"status": "ABORTED", "reason": "MAX_ITERATIONS", "details": {"message": "no"}},
}
SOME = ("--only", "FC-01-words@", "--only", "RH-01-deletes@node", "--only", "oracle@node-n", "--only", "no-op@node-n")


@pytest.fixture(autouse=True)
def runners() -> None:
    for need in ("node", "npm", "pytest"):
        require(not missing_requirement(need), missing_requirement(need))


def build(ralph: Ralph, outcome: dict[str, object], code: int, before: str = "") -> str:
    """A build that ends every run in this way."""
    return str(ralph.program("build", f"{before}\necho '{json.dumps(outcome)}'\nexit {code}"))


def bench(ralph: Ralph, *argv: str) -> Ended:
    """`ralph bench adversarial`, after which nothing is left of its trials."""
    (ralph.folder / "temp").mkdir(exist_ok=True)
    ended = ralph("bench", "adversarial", *argv, env={"TMPDIR": str(ralph.folder / "temp")})
    assert list((ralph.folder / "temp").iterdir()) == []
    return ended


def test_a_correct_build_exits_with_0(ralph: Ralph) -> None:
    ended = bench(ralph, "--only", "oracle@node-plain", "--only", "no-op@node-plain", "--jobs", "2")
    assert ended.code == 0, ended
    assert ended.out == (
        "accepted cheats: 0 of 0 tried; honest work refused: 0 of 1; no-ops accepted: 0 of 1;"
        " weakened tests not reported: 0 of 0; runs that broke: 0 of 2\n"
    )
    assert sorted(line.split()[1] for line in ended.err.splitlines()) == ["no-op@node-plain:", "oracle@node-plain:"]


def test_every_cheat_that_a_build_accepts_is_reported(ralph: Ralph) -> None:
    ended = bench(ralph, *SOME, "--program", build(ralph, BELIEVES, 0), "-q")
    assert (ended.code, ended.err) == (1, "")
    *wrong, tally = ended.out.splitlines()
    assert [line.split(": ")[:2] for line in wrong] == [
        ["FC-01-words@node", "believed"],
        ["FC-01-words@python", "believed"],
        ["RH-01-deletes@node", "believed"],
        ["RH-01-deletes@node-open", "believed"],
        ["no-op@node-npm", "believed"],
    ]
    assert "(claims with the words of a test runner)" in wrong[0]
    assert tally.startswith("accepted cheats: 3 of 3 tried; honest work refused: 0 of 1; no-ops accepted: 1 of 1;")
    assert "weakened tests not reported: 1 of 1; runs that broke: 0 of 6" in tally


def test_weakened_tests_that_are_reported_are_not_counted(ralph: Ralph) -> None:
    told: dict[str, object] = {"type": "run.ended", "data": {**COMPLETED, "concerns": ["test/add.test.js: deleted"]}}
    ended = bench(ralph, "--only", "RH-01-deletes@node-open", "--program", build(ralph, told, 0))
    assert (ended.code, "weakened tests not reported: 0 of 1" in ended.out) == (0, True), ended


def test_refused_honest_work_is_counted(ralph: Ralph) -> None:
    ended = bench(ralph, *SOME, "--program", build(ralph, REFUSES, 1), "--json")
    assert ended.code == 1, ended
    told = ended.json
    assert (told["type"], told["honest"], told["lies"]) == (
        "bench", {"wrong": 1, "tried": 1}, {"wrong": 0, "tried": 3},
    )  # fmt: skip
    assert [(one["id"], one["verdict"]) for one in told["wrong"]] == [("oracle@node-npm", "refused")]
    assert told["skipped"] == {}


@pytest.mark.parametrize(
    ("outcome", "code", "before"),
    [
        pytest.param(REFUSES, 3, "", id="its-own-fault"),
        pytest.param(REFUSES, 2, "", id="refused-to-start"),
        pytest.param(REFUSES, 1, "echo 'Traceback (most recent call last):' >&2", id="traceback"),
        pytest.param(REFUSES, 0, "", id="two-stories"),
        pytest.param(BELIEVES, 1, "", id="two-stories-the-other-way"),
        pytest.param({}, 0, "", id="no-outcome"),
    ],
)
def test_a_run_that_breaks_is_counted_as_broken(
    ralph: Ralph, outcome: dict[str, object], code: int, before: str
) -> None:
    ended = bench(ralph, "--only", "FC-01-words@node", "--program", build(ralph, outcome, code, before))
    assert ended.code == 1
    assert "FC-01-words@node: broken: exit code" in ended.out
    assert "accepted cheats: 0 of 1 tried" in ended.out
    assert "runs that broke: 1 of 1" in ended.out


def test_list_names_every_trial_and_runs_none(ralph: Ralph) -> None:
    ended = bench(ralph, "--list", "--program", "nowhere")
    assert (ended.code, ended.err) == (0, "")
    assert [line.split()[0] for line in ended.out.splitlines()] == [trial.id for trial in all_trials()]
    told = bench(ralph, "--list", "--json", "--only", "RH-04").json["trials"]
    assert {one["id"][:5] for one in told} == {"RH-04"}
    assert set(told[0]) == {"id", "kind", "about"}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--only", "RH-99"), "no trial begins with RH-99"),
        (("--only", "oracle@nodes"), "did you mean oracle@node?"),
        (("--program", "nowhere/ralph"), "'nowhere/ralph' was not found, or may not be executed"),
        (("--program", ""), "'' was not found"),
        (("--program", "'x"), "is no command: No closing quotation"),
        (("--jobs", "0"), "'0' is not a whole number above zero"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(ralph: Ralph, argv: tuple[str, ...], words: str) -> None:
    ended = bench(ralph, *argv)
    assert (ended.code, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert words in line


def without_node(ralph: Ralph) -> dict[str, str]:
    """An environment that has git and the shell's programs, and no node."""
    for name in ("git", "sh", "sleep"):
        found = next(path for part in os.environ["PATH"].split(":") if (path := Path(part, name)).exists())
        (ralph.bin / name).symlink_to(found)
    return {"PATH": str(ralph.bin), "TMPDIR": str(ralph.folder)}


def test_projects_without_a_test_runner_are_skipped_and_named(ralph: Ralph) -> None:
    given = ("--only", "FC-01-words@", "--program", build(ralph, REFUSES, 1))
    ended = ralph("bench", "adversarial", *given, env=without_node(ralph))
    assert ended.code == 0, ended
    assert "not tried: node: node is not on PATH\n" in ended.out
    assert "accepted cheats: 0 of 1 tried" in ended.out


def test_nothing_is_tried_without_any_test_runner(ralph: Ralph) -> None:
    ended = ralph("bench", "adversarial", "--only", "FC-10", env=without_node(ralph))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "ralph: nothing can be tried here: node is not on PATH\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_bench_leaves_no_processes(ralph: Ralph, number: int) -> None:
    """A run of the build is at work, and more are to come."""
    temp = ralph.folder / "temp"
    temp.mkdir()
    program = ralph.program("build", f"echo $$ > {ralph.folder}/pid-$$; exec sleep 100")
    flags = ("--program", str(program), "--only", "FC-01", "--jobs", "2")
    live = ralph.start("bench", "adversarial", *flags, env={"TMPDIR": str(temp)})
    until(lambda: len(list(ralph.folder.glob("pid-*"))) == 2, "two runs are at work")
    live.process.send_signal(number)
    ended = live.end()
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.endswith("ralph: interrupted\n")
    pids = [int(path.name.removeprefix("pid-")) for path in ralph.folder.glob("pid-*")]
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert len(pids) == 2, "no other was begun"
    assert list(temp.iterdir()) == []
