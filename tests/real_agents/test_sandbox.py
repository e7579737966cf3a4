"""Real agents in bubblewrap, whose model is a host that only the proxy reaches: all of their work, and nothing else."""

from __future__ import annotations

import pytest

from ralphproof.engine.outcome import Passed, Retry
from ralphproof.engine.records import Judged, TurnBegan, TurnEnded
from tests.ralph import Ralph
from tests.real_agents.conftest import claims, runs, writes
from tests.real_agents.sandboxed_project import ATTEMPTS, BLOCKED, HOST, OTHER, SECRET, Boxed, edits, holds, refused

pytestmark = pytest.mark.thorough

SKIPS = {"claude": "--dangerously-skip-permissions", "codex": "--dangerously-bypass-approvals-and-sandbox"}
COMMITS = "git add -A && git commit -qm 'It is made' && git log -1 --format=%an"


@pytest.fixture
def boxed(ralph: Ralph, agent: str) -> Boxed:
    holds("bubblewrap", ralph)
    return Boxed(ralph, agent)


def test_outside_every_attempt_succeeds(ralph: Ralph) -> None:
    """Else the others would show nothing."""
    boxed = Boxed(ralph, "claude")
    ralph.state_dir.mkdir()
    (ralph.state_dir / "registry.json").touch()
    assert refused(boxed.outside()) == set()
    assert (ralph.folder / "made.txt").exists()
    assert (ralph.home / ".bashrc").exists()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_whole_loop_reaches_its_model_and_nothing_else(boxed: Boxed, scheme: str) -> None:
    if scheme == "https":
        boxed.over_tls()
    ralph = boxed.ralph
    ralph.git("config", "--global", "user.name", "Ada")
    ralph.git("config", "--global", "user.email", "ada@localhost")
    ralph.write({"work.txt": "half of it\n"})
    ralph.commit()
    turns = [
        edits("work.txt", "half", "all"), runs("sh attempts.sh"), claims(), writes("done.txt"), runs(COMMITS), claims(),
    ]  # fmt: skip
    ended = boxed.run(turns, "--sandbox=bubblewrap")
    assert (ended.code, boxed.answered()) == (0, [0, 1, 2, 3, 4, 5]), ended
    assert refused(boxed.shown(2)) == set(ATTEMPTS)
    nothing_came_of_it(boxed)
    told(boxed, ended.err)
    first, second = (record.verdict for record in boxed.recorded(Judged))
    assert (type(first), type(second)) == (Retry, Passed)
    assert "MISSING: done.txt" in boxed.shown(3)
    assert (ralph.git("log", "-1", "--format=%s/%an"), ralph.git("show", "HEAD:work.txt")) == (
        "It is made/Ada\n", "all of it\n",
    )  # fmt: skip


def nothing_came_of_it(boxed: Boxed) -> None:
    """What was tried outside the project, and in its protected places, is not there."""
    ralph = boxed.ralph
    assert SECRET not in boxed.shown(2)
    assert not (ralph.folder / "made.txt").exists()
    assert not (ralph.home / ".bashrc").exists()
    assert (ralph.root / "kept/a.txt").read_text() == "kept\n"
    for name in (".claude", ".codex", ".git/hooks/pre-commit", "elsewhere"):
        assert not (ralph.root / name).exists(), name


def told(boxed: Boxed, display: str) -> None:
    """The user, the record, the log and the agent know what was blocked; the log names the model."""
    assert "sandbox bubblewrap (strong)" in display
    assert f"blocked by the sandbox: {', '.join(BLOCKED)}; --allow-host" in display
    first, second = (record.reply.exit.blocked for record in boxed.recorded(TurnEnded))
    assert (list(first), second) == (BLOCKED, ())
    hosts = "\n".join(f"- {place}" for place in BLOCKED)
    assert f"You are in a sandbox that cannot reach these hosts; do the work without them:\n{hosts}" in boxed.shown(3)
    how = "CONNECT" if boxed.tls else "HTTP"
    for turn in ("agent_001", "agent_002"):
        allowed = {(line["host"], line["how"]) for line in boxed.audit(turn) if line["allowed"] and not line["why"]}
        assert allowed == {(HOST, how)}
    assert {line["host"] for line in boxed.audit() if not line["allowed"]} == {"127.0.0.1", OTHER, HOST}
    for record in boxed.recorded(TurnBegan):
        assert SKIPS[boxed.agent] in record.argv
