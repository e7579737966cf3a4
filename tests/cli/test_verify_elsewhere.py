"""Somebody who has the repository and the file, and nothing else of the run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.proof_files import CHECK, WORKSPACE, begun, clone, elsewhere, exported, finished, listing, settled
from tests.misbehaviour.machine import give, strangers_project
from tests.needs import require
from tests.ralph import Ralph, done


def test_the_file_alone_is_enough_in_a_second_clone(ralph: Ralph) -> None:
    run = settled(ralph)
    file, other = exported(ralph), clone(ralph)
    ended = elsewhere(ralph, other, file)
    assert ended.code == 0, ended
    assert ended.out.splitlines()[-1].startswith(f"HOLDS: the proof of run {run}; 1 check passed again")


def test_a_saved_tree_is_fetched_by_the_words_that_it_says(ralph: Ralph) -> None:
    run = finished(ralph)
    file, other = exported(ralph), clone(ralph)
    ended = elsewhere(ralph, other, file, "--yes")
    assert ended.code == 2, ended
    ref = f"refs/ralph/{run}/1"
    assert f"git fetch REMOTE {ref}:{ref}" in ended.out
    subprocess.run(["git", "fetch", "-q", "origin", f"{ref}:{ref}"], cwd=other, env=ralph.env, check=True)
    assert elsewhere(ralph, other, file, "--yes").code == 0


def test_a_commit_with_the_very_tree_will_do(ralph: Ralph) -> None:
    finished(ralph)
    file = exported(ralph)
    ralph.git("add", "-A", ":!.ralph")
    ralph.git("commit", "-qm", "what the run came to")
    ended = elsewhere(ralph, clone(ralph), file, "--yes")
    assert ended.code == 0, ended
    assert f"{ralph.git('rev-parse', 'HEAD').strip()} has the very same tree" in ended.out


def test_so_will_one_that_has_the_settings_beside_it(ralph: Ralph) -> None:
    finished(ralph, guardrails=[{"command": CHECK}])
    file = exported(ralph)
    ralph.git("add", "-A")
    ralph.git("commit", "-qm", "what the run came to")
    other = clone(ralph)
    ended = elsewhere(ralph, other, file)
    assert ended.code == 0, ended
    (ralph.root / "work").write_text("something else\n")
    ralph.git("commit", "-qam", "and more")
    later = elsewhere(ralph, clone(ralph, "later"), file)
    assert later.code == 0, "a commit before HEAD has it"
    assert f"{ralph.git('rev-parse', 'HEAD~1').strip()} has the very same tree" in later.out
    ralph.git("reset", "-q", "--hard", "HEAD~2")
    assert elsewhere(ralph, clone(ralph, "before"), file).code == 2


def test_a_shallow_clone_will_do_where_it_has_the_commit(ralph: Ralph) -> None:
    settled(ralph)
    file, other = exported(ralph), ralph.folder / "shallow"
    words = ["git", "clone", "-q", "--depth=1", f"file://{ralph.root}", str(other)]
    subprocess.run(words, env=ralph.env, check=True, capture_output=True)
    assert elsewhere(ralph, other, file).code == 0


def test_a_linked_worktree_will_do(ralph: Ralph) -> None:
    settled(ralph)
    file = exported(ralph)
    ralph.git("worktree", "add", "-q", "../linked", "HEAD~1")
    assert elsewhere(ralph, ralph.folder / "linked", file).code == 0


def test_commands_of_stories_and_of_several_stages_stand_in_the_settings_too(ralph: Ralph) -> None:
    parts = [{"name": "one", "method": "external", "config": {"command": "test -f work"}}]
    stages = {"name": "all", "method": "multi_stage", "config": {"stages": parts}}
    ralph.write({"ralph/tasks.json": json.dumps({"verifyCommands": ["true", CHECK]})})
    finished(ralph, "--check", CHECK, "--check", "test -f work", guardrails=[stages])
    told = ralph("verify", str(exported(ralph)), "--json")  # of a saved tree: the settings are those it stands on
    assert told.code == 0, told
    assert {one["command"] for one in told.json["reruns"]} >= {CHECK, "test -f work"}


@pytest.mark.parametrize(
    ("check", "made"),
    [("cat ignored", "project/ignored"), ("cat ~/own", "home/own"), ("cat ../beside", "beside")],
    ids=["ignored-file", "home", "beside-the-project"],
)
def test_a_check_that_leans_on_what_is_not_in_the_commit_fails_there(ralph: Ralph, check: str, made: str) -> None:
    (ralph.folder / made).write_text("here alone\n")
    settled(ralph, check)
    file, other = exported(ralph), clone(ralph)
    ended = elsewhere(ralph, other, file)
    assert ended.code == 1, ended
    assert "No such file or directory" in ended.out


def test_in_a_continuous_integration_nothing_is_written_into_the_repository(ralph: Ralph) -> None:
    settled(ralph, f"{WORKSPACE} || {{ echo x > made; git add -A; git stash; git gc -q; git tag here; }}")
    file, other = exported(ralph), clone(ralph)
    before, original = listing(other), listing(ralph.root)
    ended = elsewhere(ralph, other, file)
    assert ended.code == 0, ended
    assert listing(other) == before
    assert listing(ralph.root) == original
    assert not (other / ".ralph/runs").exists()
    assert not (ralph.folder / "none").exists(), "nor is a record begun"


def test_outside_of_a_repository_it_cannot_be_checked(ralph: Ralph) -> None:
    settled(ralph)
    file, place = exported(ralph), ralph.folder / "empty-place"
    place.mkdir()
    ended = elsewhere(ralph, place, file)
    assert ended.code == 2
    assert "there is no git repository here" in ended.out
    assert elsewhere(ralph, place, file, "-d", str(ralph.root)).code == 0


def test_another_repository_does_not_have_the_commit(ralph: Ralph) -> None:
    settled(ralph)
    file, place = exported(ralph), ralph.folder / "another"
    subprocess.run(["git", "init", "-q", str(place)], env=ralph.env, check=True)
    ended = elsewhere(ralph, place, file)
    assert ended.code == 2
    assert "is not in this repository; fetch it: git fetch REMOTE" in ended.out


def test_held_out_commands_are_found_in_the_settings_of_the_commit(ralph: Ralph) -> None:
    settled(ralph, finalChecks=["test -f work"])
    file, other = exported(ralph), clone(ralph)
    told = elsewhere(ralph, other, file, "--json")
    assert told.code == 0, told
    assert [one["command"] for one in told.json["reruns"]] == [CHECK, "test -f work"]


def test_what_is_withheld_and_nowhere_else_leaves_the_verdict_open(ralph: Ralph) -> None:
    run = settled(ralph, finalChecks=["test -f work"])
    (file,) = (ralph.run_folder(run) / "proof").glob("*.md")
    told = elsewhere(ralph, clone(ralph), file, "--json")
    assert (told.code, told.json["result"]) == (2, "unchecked"), told
    assert [one["holds"] for one in told.json["reruns"]] == [True]
    assert "its command is withheld" in told.json["notRun"][0]["reason"]


def test_another_user_with_an_empty_home_can_check_a_repository_of_somebody_else() -> None:
    with strangers_project() as (ralph, via):
        settled(ralph)
        file = exported(ralph)
        home, temporary = ralph.folder / "theirs", ralph.folder / "tmp"
        home.mkdir()
        temporary.mkdir()
        file.chmod(0o644)
        give(home, temporary)
        env = {"HOME": str(home), "TMPDIR": str(temporary), "RALPH_STATE_DIR": str(home / "state")}
        ended = ralph("verify", str(file), via=via, env=env)
        assert ended.code == 0, ended
        assert list(temporary.iterdir()) == []
        assert not (home / "state").exists()


def test_so_does_a_clone_of_their_own_at_another_path_and_what_leans_on_a_home_fails() -> None:
    with strangers_project() as (ralph, via):
        (ralph.home / "own").write_text("here alone\n")
        settled(ralph, CHECK, {"command": "cat ~/own", "name": "leans"})
        file, other, home = exported(ralph), clone(ralph, "a path/of their own"), ralph.folder / "theirs"
        home.mkdir()
        file.chmod(0o644)
        give(other, home)
        env = {"HOME": str(home), "TMPDIR": str(home), "RALPH_STATE_DIR": str(home / "state")}
        told = ralph("verify", str(file), "--json", via=via, env=env, cwd=other)
        assert (told.code, told.json["result"]) == (1, "differs"), told
        assert [(one["name"], one["holds"]) for one in told.json["reruns"]] == [(CHECK, True), ("leans", False)]
        assert list(home.iterdir()) == []


# Real projects

PYTEST = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -q -p no:cacheprovider"
PYTHON = {
    "pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['tests']\npythonpath = ['src']\n",
    "src/calc.py": "def add(a, b):\n    return a - b\n",
    "tests/test_calc.py": """from calc import add

def test_add():
    assert add(2, 3) == 5

def test_nothing():
    assert add(0, 0) == 0
""",
}
NODE = {
    "package.json": '{"name": "calc", "type": "module", "scripts": {"test": "node --test"}}\n',
    "calc.js": "export const add = (a, b) => a - b;\n",
    "test/calc.test.js": """import test from "node:test";
import assert from "node:assert";
import { add } from "../calc.js";
test("adds", () => assert.equal(add(2, 3), 5));
test("nothing", () => assert.equal(add(0, 0), 0));
""",
}


@pytest.mark.parametrize(
    ("files", "mended", "check", "runner"),
    [
        (PYTHON, {"src/calc.py": "def add(a, b):\n    return a + b\n"}, PYTEST, "pytest"),
        (NODE, {"calc.js": "export const add = (a, b) => a + b;\n"}, "node --test", "node"),
    ],
    ids=["pytest", "node"],
)
def test_a_real_project_is_checked_again_test_by_test(
    ralph: Ralph, files: dict[str, str], mended: dict[str, str], check: str, runner: str
) -> None:
    if runner == "node":
        require(subprocess.run(["sh", "-c", "command -v node"], capture_output=True).returncode == 0, "node is there")
    ralph.write({**files, ".gitignore": "__pycache__/\n"})
    ralph.settings(guardrails=[{"command": check, "name": "tests"}], scm={"command": "git", "tasks": ["commit"]})
    begun(ralph)
    agent = ralph.script([{"write": mended}, done()], message=[{"text": "add adds"}])
    ran = ralph("run", "-p", "make the tests pass", "--agent", agent)
    assert ran.code == 0, ran.err
    told = elsewhere(ralph, clone(ralph), exported(ralph), "--json")
    assert told.code == 0, told
    (tests,) = told.json["reruns"]
    assert tests["recordedTests"]["passedCount"] == tests["tests"]["passedCount"] == 2
    assert tests["tests"]["runner"].startswith(runner)
