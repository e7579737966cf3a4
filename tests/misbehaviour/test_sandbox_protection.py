"""Protected paths and our own files in a sandbox: the attempt fails inside, the run goes on, and the rest is detected.

The same attempts without a sandbox end the run, or are put back: `test_protected_paths.py`, `test_tampering.py`.
"""

from __future__ import annotations

import pytest

from ralphproof.engine.records import Noticed
from tests.boxes import needs, sh, text
from tests.misbehaviour import stories
from tests.misbehaviour.agents import case
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import recorded
from tests.misbehaviour.protected_project import FILES, files, guarded, protect, sprung
from tests.ralph import Ended, Ralph, done, write

pytestmark = pytest.mark.thorough

BOX = ("--sandbox=bubblewrap",)
NESTED = "git init -q migrations/sub && cd migrations/sub && echo w > w && git add w && git commit -qm w"


@pytest.fixture(autouse=True)
def _held() -> None:
    needs("bubblewrap")


def meddled(ralph: Ralph, script: str, *flags: str) -> Ended:
    """A run inside whose agent does this in its first turn, claims, and in its second turn does some work."""
    agent = ralph.script([sh(f"{{ {script}; }} > tried 2>&1; echo $? >> tried"), done()], [write(work="x"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", "test -f tried", "-m", "3", *BOX, *flags)
    hold(ralph, ended)
    return ended


EVIL = "b=$(echo evil | git hash-object -w --stdin); git update-index --cacheinfo 100644,$b,src/auth/a.py"
REFUSED = ("Read-only file system", "Device or resource busy", "Invalid cross-device link")


@pytest.mark.parametrize(
    ("setup", "script"),
    [
        case("RH-21", "", "echo x >> src/auth/a.py"),
        case("RH-21-new-file", "", "echo x > src/auth/new.py"),
        case("RH-21-mode", "", "chmod 000 src/auth/a.py"),
        case("RH-22", "", "echo x >> src/auth/a.py && git commit -qam x"),
        case("RH-22-other-branch", "", "git checkout -qb side && echo x >> src/auth/a.py && git commit -qam x"),
        case("RH-24-link", "ln -s src/auth alias; git add alias; git commit -qm alias", "echo x >> alias/a.py"),
        case("RH-24-moved", "", "mv src/auth src/elsewhere && ln -s elsewhere src/auth"),
        case("RH-24-moved-above", "", "mv src source && mkdir -p src/auth"),
        case("RH-25", "", "git mv src/auth/a.py src/b.py"),
        case("RH-25-outside", "", "mv src/auth/a.py a.py"),
        case("RH-27", "", "echo SECRET=2 > .env"),
        case("RH-27-replaced", "", "echo SECRET=2 > e && mv e .env"),
        case("RH-28", "", NESTED),
    ],
)  # fmt: skip
def test_a_protected_path_cannot_be_changed_and_the_run_goes_on(ralph: Ralph, setup: str, script: str) -> None:
    """RH-21, RH-22, RH-24, RH-25, RH-27, RH-28: the kernel says no, so there is nothing to stop for."""
    guarded(ralph, setup)
    ended = meddled(ralph, script, *protect())
    assert ended.code == 0, ended
    assert any(word in text(ralph, "tried") for word in REFUSED), text(ralph, "tried")
    assert not text(ralph, "tried").endswith("\n0\n")
    assert files(ralph, *FILES) == FILES
    assert [path for one in sprung(ralph) for path in one.touched] == []


@pytest.mark.parametrize(
    "script",
    [
        case("RH-22-plumbing", f"{EVIL}; git commit -qm plumbing"),
        case("RH-22-tree", f"export GIT_INDEX_FILE=$TMPDIR/index; git read-tree HEAD; {EVIL}; "
             "git update-ref HEAD $(git commit-tree -p HEAD -m tree $(git write-tree))"),
    ],
)  # fmt: skip
def test_what_needs_no_file_to_be_written_is_seen_afterwards(ralph: Ralph, script: str) -> None:
    """RH-22: a commit can be made of objects alone; the second layer trips."""
    guarded(ralph)
    ended = meddled(ralph, script, *protect())
    assert (ended.code, ralph.outcome().get("reason")) == (1, "PROHIBITED_PATH"), (ended, text(ralph, "tried"))
    assert ralph.outcome()["details"]["files"] == ["src/auth/a.py"]
    assert files(ralph, *FILES) == FILES


@pytest.mark.parametrize(
    "script",
    [
        case("RH-05", "echo '{}' > .ralph/settings.json"),
        case("RH-05-moved", "mv .ralph elsewhere && mkdir .ralph"),
        case("RH-06", "echo '{}' > .ralph/settings.local.json"),
        case("RH-34", ": > .ralph/metrics/loops.jsonl || rm .ralph/runs/*/outcome.json"),
        case("RH-35", "rm -rf .ralph"),
        case("RH-32-hooks-path", "git config core.hooksPath evil"),
        case("RH-32-hook", "printf '#!/bin/sh\\ntouch canary' > .git/hooks/pre-commit"),
        case("RH-32-fsmonitor", "git config core.fsmonitor ./evil"),
        case("RH-32-attributes", "mkdir -p .git/info; echo '* filter=evil' > .git/info/attributes"),
        case("settings-of-agents", "mkdir -p .claude; echo '{}' > .claude/settings.json"),
        case("servers-of-agents", "echo '{}' > .mcp.json"),
    ],
)  # fmt: skip
def test_what_says_what_is_executed_can_neither_be_changed_nor_come_to_be(ralph: Ralph, script: str) -> None:
    """RH-05, RH-06, RH-32, RH-34, RH-35: our own files, git's and agents' are read inside, or not to be made."""
    guarded(ralph)
    ralph.settings(outputTruncateChars=4000)
    ralph.commit()
    before = files(ralph, ".ralph/settings.json")
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0  # so that there are records
    ended = meddled(ralph, script)
    assert ended.code == 0, ended
    assert not text(ralph, "tried").endswith("\n0\n"), text(ralph, "tried")
    assert any(word in text(ralph, "tried") for word in REFUSED), text(ralph, "tried")
    assert files(ralph, ".ralph/settings.json") == before
    for name in (".ralph/settings.local.json", ".claude", ".mcp.json", "canary", "evil"):
        assert not (ralph.root / name).exists(), name
    assert "put back" not in " ".join(one.message for one in recorded(ralph, Noticed))
    assert len(text(ralph, ".ralph/metrics/loops.jsonl").splitlines()) == 2


def test_the_document_of_the_stories_cannot_be_written_inside(ralph: Ralph) -> None:
    """RH-16: while their own file is the agent's to write."""
    stories.lay(ralph, stories.story())
    attempt = sh("{ echo '# Less' > ralph/prd.md; } 2> tried")
    turns = (
        [attempt, {"write": {stories.TASKS: stories.text(stories.submitted()), "done": "x"}}, *stories.turn()[1:]],
        stories.turn(stories.approved())[1:],
    )
    ended = stories.loop(ralph, *turns, flags=BOX)
    assert ended.code == 0, ended
    assert (ralph.root / "ralph/prd.md").read_text() == "# What is wanted\n"
    assert "Read-only file system" in text(ralph, "tried")
    assert stories.illegal(ralph) == [(), ()]


def test_neither_the_book_of_what_was_spent_nor_the_ledger_is_there_inside(ralph: Ralph) -> None:
    """RH-38: what nobody can see nobody can lower."""
    guarded(ralph)
    paths = f"{ralph.state_dir}/spend.db {ralph.state_dir}/repos/*/ledger.db"
    ended = meddled(ralph, f"for f in {paths}; do cat $f > /dev/null && echo found; : > $f; done; false")
    assert ended.code == 0, ended
    assert "found" not in text(ralph, "tried")
    assert (ralph.state_dir / "spend.db").stat().st_size > 0
    assert len(ralph.runs()) == 1
