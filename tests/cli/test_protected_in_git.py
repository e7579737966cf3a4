"""Changes of protected paths that are in git alone: they are seen, and the way out that is told works."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.ralph import done, say

if TYPE_CHECKING:
    from tests.ralph import Ralph

COMMITTED = {
    "changed": "echo x >> secret/a; echo w > work; git add -A; git commit -qm x",
    "new": "echo x > secret/new; echo w > work; git add -A; git commit -qm x",
    "deleted": "rm secret/a; echo w > work; git add -A; git commit -qm x",
    "ignored": "git add -f secret/ignored; echo w > work; git add work; git commit -qm x",
    "on another branch": "git checkout -qb other; echo x >> secret/a; echo w > work; git add -A; git commit -qm x;"
    " git checkout -q main",
}
STASHED = {
    "changed": "echo x >> secret/a; git stash -q",
    "new": "echo x > secret/new; git stash -qu",
    "staged": "echo x >> secret/a; git add -A; git stash -q",
    "beneath another": "echo x >> secret/a; git stash -q; echo y >> open; git stash -q",
}


def ended(ralph: Ralph, script: str) -> str:
    """What a run says at its end whose agent did this."""
    ralph.write({"secret/a": "a\n", "open": "o\n", ".gitignore": "ignored\n.ralph\n", "secret/ignored": "mine\n"})
    ralph.git("init", "-q")
    ralph.git("config", "user.name", "u")
    ralph.git("config", "user.email", "u@localhost")
    ralph.commit()
    agent = ralph.script([{"run": ["sh", "-ec", script]}, done()])
    told = ralph("run", "-p", "x", "--agent", agent, "--check", "true", "--protect", "secret/")
    assert (told.code, ralph.outcome()["reason"]) == (1, "PROHIBITED_PATH"), told
    message = ralph.outcome()["details"]["message"]
    assert message in told.out
    return str(message)


def shell(ralph: Ralph, command: str) -> None:
    subprocess.run(["sh", "-ec", command], cwd=ralph.root, env=ralph.env, check=True, capture_output=True)


def way_out(message: str) -> str:
    return message.partition("take it out: ")[2].partition("; the attempt is kept in")[0]


@pytest.mark.parametrize("script", COMMITTED.values(), ids=COMMITTED)
def test_a_protected_change_that_was_committed_can_be_taken_out_by_what_is_told(ralph: Ralph, script: str) -> None:
    message = ended(ralph, script)
    shell(ralph, way_out(message))
    assert ralph.git("ls-tree", "-r", "--name-only", "HEAD").split() == [".gitignore", "open", "secret/a", "work"]
    assert ralph.git("show", "HEAD:secret/a") == "a\n"
    assert ralph.git("status", "--porcelain") == ""
    assert (ralph.root / "secret/ignored").read_text() == "mine\n"


@pytest.mark.parametrize("script", STASHED.values(), ids=STASHED)
def test_a_protected_change_that_is_in_a_stash_alone_is_seen(ralph: Ralph, script: str) -> None:
    message = ended(ralph, script)
    assert "a stash, commit " in message
    before = ralph.git("stash", "list").count("\n")
    shell(ralph, way_out(message))
    assert ralph.git("stash", "list").count("\n") == before - 1
    shown = [ralph.git("stash", "show", "-u", "--name-only", f"stash@{{{number}}}") for number in range(before - 1)]
    assert not any("secret" in one for one in shown)


def test_a_stash_of_what_the_user_had_changed_or_of_other_files_is_no_touch(ralph: Ralph) -> None:
    ralph.write({"secret/a": "a\n", "open": "o\n"})
    ralph.git("init", "-q")
    ralph.git("config", "user.name", "u")
    ralph.git("config", "user.email", "u@localhost")
    ralph.commit()
    script = "echo y >> open; git stash -q; echo z >> secret/a; git checkout -q secret/a"
    agent = ralph.script([{"run": ["sh", "-ec", script]}, say("hm"), done()])
    told = ralph("run", "-p", "x", "--agent", agent, "--check", "true", "--protect", "secret/")
    assert told.code == 0, told
