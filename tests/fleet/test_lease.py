"""While an agent is at work somebody else may take the loop: then it works for nobody."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ralphproof.base.errors import Refused
from ralphproof.fleet import step
from ralphproof.fleet.artifacts import ArtifactFolder, list_growing_logs, list_logs
from ralphproof.fleet.remote import LeaseLost, LoopLease, Mirror, RemoteUnreachable
from ralphproof.store.serialization import chain_digest
from tests.fleet.machines import Remote, git, order_for

ChainRow = tuple[str, int, int, str, str, float, str, str]
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


def chain(loop: str, length: int) -> tuple[ChainRow, ...]:
    rows: list[ChainRow] = []
    for number in range(length):
        row = (loop, number, 0, "Noticed", "Noticed", 1.5, "{}")
        rows.append((*row, chain_digest(rows[-1][-1] if rows else "", row)))
    return tuple(rows)


def baton(room: Path, remote: Remote, epoch: int, place: str, url: str = "") -> LoopLease:
    mirror = Mirror(str(room / f"{place}.git"), url or remote.url, ENV, patience_s=0.5)
    return LoopLease(mirror, remote.loop, epoch, f"worker of {place}", place)


def test_the_higher_epoch_has_the_loop_and_the_lower_one_writes_nothing_more(remote: Remote, room: Path) -> None:
    base, rows = git("rev-parse", "main", cwd=remote.bare).strip(), chain(remote.loop, 4)
    low, high = baton(room, remote, 1, "low"), baton(room, remote, 2, "high")
    low.mirror.fetch([f"+{base}:refs/base"])
    assert low.read() is None
    low.claim(base)
    low.publish(rows[:1], {"request": b"{}"}, {"0": base})
    seen = high.read()
    assert seen is not None
    assert (seen.rows, seen.notes, seen.meta.base) == (rows[:1], {"request": b"{}"}, base)
    high.claim(base)
    head = remote.refs()["record"]
    with pytest.raises(LeaseLost):
        low.publish(rows[:2], {}, {"1": base})
    with pytest.raises(LeaseLost):
        baton(room, remote, 2, "other").read()
    assert (remote.refs()["record"], "work/1" in remote.refs()) == (head, False)
    assert low.has_moved()
    assert not high.has_moved()
    assert all(ref in git("for-each-ref", cwd=remote.bare) for ref in low.save_lost(rows, {"1": base}))
    high.publish(rows, {}, {})
    again = baton(room, remote, 3, "third").read()
    assert again is not None
    assert again.rows == rows


def test_who_does_not_answer_has_not_refused(remote: Remote, room: Path) -> None:
    with pytest.raises(RemoteUnreachable, match="nowhere did not answer"):
        baton(room, remote, 1, "a", f"file://{room}/nowhere").read()


def test_the_step_is_told_when_the_loop_is_another_ones(
    remote: Remote, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "LEASE_CHECK_S", 0.0)
    monkeypatch.setattr(step, "TICK_S", 0.01)
    told = threading.Event()
    held = baton(room, remote, 1, "a")
    order = order_for(remote, "scripted x")
    with step.BackgroundSync(order, held, str(room), str(room), told.set) as watch:
        git("update-ref", f"{held.home}record", "main", cwd=remote.bare)
        assert told.wait(20)
    watch.finish()


def test_a_branch_that_somebody_else_made_is_not_overwritten(remote: Remote, room: Path) -> None:
    base, held = git("rev-parse", "main", cwd=remote.bare).strip(), baton(room, remote, 1, "a")
    held.mirror.fetch([f"+{base}:refs/base"])
    held.read()
    held.claim(base)
    git("branch", f"ralph/{remote.loop}", "main", cwd=remote.bare)
    head = remote.refs()["record"]
    made = held.mirror.create_commit("refs/made", base, {"new": b"x"}, "made")
    with pytest.raises(Refused, match="that this loop did not make"):
        held.publish(chain(remote.loop, 1), {}, {}, [(made, held.branch)], made)
    assert (remote.refs()["record"], remote.refs()[held.branch]) == (head, base)


@pytest.mark.parametrize("kind", ["memory://kept", "file://{}/kept"])
def test_logs_are_read_back_as_they_were_copied(room: Path, kind: str) -> None:
    for name in ("agent_001.ndjson", "agent_001.turn", "request.json"):
        (room / name).write_text(name)
    (room / "agent_002.ndjson").symlink_to(room / "request.json")
    kept = ArtifactFolder(kind.format(room), "loop")
    assert kept.copy_changed(list_logs(str(room), str(room / "none"))) == ""
    assert kept.names() == ("agent_001.ndjson",)
    (room / "agent_001.ndjson").write_text("more of it")
    assert kept.copy_changed(list_growing_logs(str(room))) != ""  # a link is not followed, and that is told
    assert kept.read("agent_001.ndjson", 5) == b"of it"


@pytest.mark.parametrize("link", [".ralph", ".ralph/runs", ".ralph/runs/loop", ".ralph/runs/loop/proof"])
def test_a_link_in_the_agent_s_reach_leads_to_no_artifacts(room: Path, link: str) -> None:
    secret = room / "elsewhere"
    (secret / "runs" / "loop" / "proof").mkdir(parents=True)
    for folder in (secret, *(path for path in secret.rglob("*") if path.is_dir())):
        for made in (folder, folder / "loop", folder / "proof", folder / "loop" / "proof"):
            made.mkdir(exist_ok=True)
            (made / "outcome.json").write_text("secret")
    made = room / "tree" / link
    made.parent.mkdir(parents=True)
    made.symlink_to(secret)
    assert list_logs(str(room / "none"), str(room / "tree" / ".ralph" / "runs" / "loop")) == []
