"""Proofs that show less than the settings of their commit ask for, by honest runs and by forgers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.proof_files import CHECK, WORKSPACE, exported, finished, read, reforged, settled
from tests.ralph import Ralph, done, write

SCM = {"command": "git", "tasks": ["commit"]}


@pytest.mark.parametrize("more", [{"guardrails": [CHECK, "false"]}, {"finalChecks": ["false"]}], ids=str)
def test_what_the_settings_ask_and_the_proof_does_not_show_is_not_held_to_be_so(
    ralph: Ralph, more: dict[str, list[str]]
) -> None:
    """The run itself was asked for less, by settings of the user's own."""
    asked = [{"command": one} for one in more.get("guardrails", [CHECK])]
    shared: dict[str, Any] = {"guardrails": asked, "finalChecks": more.get("finalChecks", []), "scm": SCM}
    ralph.settings(guardrails=[{"command": CHECK}])
    local = ralph.root / ".ralph" / "settings.local.json"
    local.write_text(json.dumps({"guardrails": [{"command": CHECK}], "finalChecks": []}))
    finished(ralph, **shared)
    ended = ralph("verify", str(exported(ralph)))
    assert ended.code == 2, ended
    assert "a check of that commit's settings is no part of the proof: false" in ended.out


def test_a_command_that_the_settings_have_for_something_else_prepares_nothing(ralph: Ralph) -> None:
    """A held-out check that mends the work must not be what prepares its checkout."""
    settled(ralph, finalChecks=["touch ../../canary; touch work"])
    file = exported(ralph)

    def in_record(data: Any) -> None:
        if data.get("is") == "RunBegan":
            data["facts"]["setup"] = ["touch ../../canary; touch work"]

    def in_fields(proof: dict[str, Any]) -> None:
        proof["setup"] = ["touch ../../canary; touch work"]

    ended = ralph("verify", str(reforged(file, in_record, in_fields)))
    assert ended.code == 2, ended
    assert "setup: touch" in ended.out


def test_the_settings_of_a_commit_are_its_own_where_it_has_some(ralph: Ralph) -> None:
    """A forger names a plain commit a saved tree, so that the settings of the commit before it would count."""
    settled(ralph)
    file = exported(ralph)
    ralph.settings(guardrails=[{"command": "false"}], scm=SCM)
    ralph.git("commit", "-qam", "a check that fails")
    subject = read(file)["subject"]
    others = {subject["commit"]: ralph.git("rev-parse", "HEAD").strip()}
    others[subject["tree"]] = ralph.git("rev-parse", "HEAD^{tree}").strip()

    def swapped(data: Any) -> Any:
        if isinstance(data, dict):
            return {name: swapped(item) for name, item in data.items()}
        return [swapped(item) for item in data] if isinstance(data, list) else others.get(data, data)

    def in_record(data: Any) -> None:
        data |= swapped(data)

    def in_fields(proof: dict[str, Any]) -> None:
        proof["subject"] = {**swapped(proof["subject"]), "kind": "tree"}

    ended = ralph("verify", str(reforged(file, in_record, in_fields)))
    assert ended.code == 1, ended
    assert "the settings file of that commit: it is not the one that the proof was made with" in ended.out


RED = "=== short test summary info ===\\nFAILED tests/test_a.py::test_b - x\\n1 failed, 3 passed in 0.01s\\n"


@pytest.mark.parametrize(
    ("later", "said"),
    [
        pytest.param("true", "its output tells of no test; on record: 3 tests passed", id="silent"),
        pytest.param(f"printf '{RED}'", "its output counts 1 failing", id="counts failures"),
    ],
)
def test_a_pass_that_shows_less_than_was_shown_does_not_hold(ralph: Ralph, later: str, said: str) -> None:
    settled(ralph, f"if {WORKSPACE}; then printf '3 passed in 0.01s\\n'; else {later}; fi")
    ended = ralph("verify", "latest")
    assert (ended.code, said in ended.out) == (1, True), ended


def test_a_record_of_another_form_is_a_fault_of_the_file_not_of_ours(ralph: Ralph) -> None:
    settled(ralph)
    file = exported(ralph)

    def in_record(data: Any) -> None:
        if data.get("is") == "Saved":
            data["snapshot"] = "nothing"

    ended = ralph("verify", str(reforged(file, in_record, lambda _: None)))
    assert ended.code == 1, ended
    assert "cannot be read" in ended.out or "is not what the records say" in ended.out
    assert "internal error" not in ended.err
    assert read(file)["type"] == "proof"


def test_settings_that_were_committed_only_with_the_work_are_told_and_no_fault(ralph: Ralph, tmp_path: Path) -> None:
    ralph.write({"check.sh": "test -f work\n"})
    ralph.commit()
    ralph.settings(guardrails=[{"command": "sh check.sh"}])
    agent = ralph.script([write(work="done\n"), done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    file = exported(ralph)
    for name in ("name", "email"):
        ralph.git("config", f"user.{name}", "user")
    ralph.git("add", "-A")
    ralph.git("commit", "-qm", "the work, and how it is checked")
    for name in ralph.git("for-each-ref", "--format=%(refname)", "refs/ralph").split():
        ralph.git("update-ref", "-d", name)
    ralph.git("gc", "-q", "--prune=now")
    ended = ralph("verify", str(file), env={"RALPH_STATE_DIR": str(tmp_path / "none")})
    assert ended.code == 0, ended
    assert "the settings file of that commit is another one than the run's" in ended.out
