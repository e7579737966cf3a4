"""Finished work on its way onto a branch: what lands is green, what does not is kept, no checkout is touched."""

from __future__ import annotations

import shutil
import threading

import pytest

from ralphproof.base.errors import Refused
from ralphproof.base.value import replace
from ralphproof.engine.sandbox import STOP
from ralphproof.landing.targets import LocalBranch
from ralphproof.store.landings import Landed, LandingItem, LandingRejected, MergeConflict, MergedChecksFailed
from tests.cli.landing import TARGET, Calm, Yard, bytes_of, check, landed, turned_away
from tests.ralph import Ralph


@pytest.fixture
def yard(ralph: Ralph) -> Yard:
    return Yard(ralph)


def test_parcels_land_as_merges_and_no_checkout_is_touched(yard: Yard) -> None:
    yard.ralph.write({"file": "dirty\n", "mine": "not committed\n"})
    before = bytes_of(yard.ralph.root)
    first, second = yard.part("r1"), yard.part("r2")
    ends = yard.land(first, second)
    assert landed(ends) == ["r1", "r2"]
    assert len(yard.asked) == 1, "one asking for all"
    assert bytes_of(yard.ralph.root) == before
    assert {"parts/r1", "parts/r2"} <= yard.files()
    last = ends[-1]
    assert isinstance(last, Landed)
    assert last.commit == yard.tip()
    assert yard.git("log", "-1", "--format=%P", TARGET).split()[1] == second.commit
    message = yard.git("log", "-1", "--format=%B", TARGET)
    assert message == "the work of r2\n\nRalph-Run: r2\nRalph-Task: T-r2"
    assert yard.green()


def test_a_conflict_is_turned_away_with_its_paths_and_the_rest_lands(yard: Yard) -> None:
    one = yard.item("r1", {"file": "one\n"})
    other = yard.item("r2", {"file": "other\n"})
    ends = yard.land(one, other, yard.part("r3"))
    assert (sorted(landed(ends)), turned_away(ends)) == (["r1", "r3"], ["r2"])
    away = ends[-1]
    assert isinstance(away, LandingRejected)
    assert isinstance(away.why, MergeConflict)
    assert away.why.paths == ("file",)
    assert "<<<<<<<" in yard.git("cat-file", "blob", f"{away.why.tree}:file")
    assert yard.git("cat-file", "-t", "refs/ralph/r2/parcel") == "commit", "its work is kept"
    assert yard.green()


def test_what_clashes_only_with_something_red_lands(yard: Yard) -> None:
    red = yard.item("r1", {"file": "one\n", "parts/r1": "bad\n"})
    ends = yard.land(red, yard.item("r2", {"file": "other\n"}))
    assert (landed(ends), turned_away(ends)) == (["r2"], ["r1"])


def test_green_apart_and_red_together_is_caught(yard: Yard) -> None:
    ends = yard.land(yard.item("r1", {"left": "x\n"}), yard.item("r2", {"right": "x\n"}))
    assert (landed(ends), turned_away(ends)) == (["r1"], ["r2"])
    away = ends[-1]
    assert isinstance(away, LandingRejected)
    assert isinstance(away.why, MergedChecksFailed)
    assert [one.code for one in away.why.failed] == [1]
    assert len(yard.asked) == 2, "both together, then the first one; the second one on top is what both together were"
    assert yard.green()


def test_of_five_with_a_red_one_four_land_and_the_target_was_green_after_every_move(yard: Yard) -> None:
    tips: list[str] = []
    parcels = [yard.part(f"r{n}", "bad\n" if n == 3 else "good\n") for n in range(1, 6)]
    ends = yard.land(*parcels, during=lambda: tips.append(yard.tip()))
    assert (sorted(landed(ends)), turned_away(ends)) == (["r1", "r2", "r4", "r5"], ["r3"])
    assert all(yard.green(tip) for tip in {*tips, yard.tip()})
    assert len({*tips, yard.tip()}) >= 3


def test_checks_of_what_landed_before_stand(yard: Yard) -> None:
    strict = yard.item("r1", {"strict": "x\n"}, "main", check("test ! -e loose"))
    assert landed(yard.land(strict)) == ["r1"]
    ends = yard.land(yard.item("r2", {"loose": "x\n"}, "main", check("true")))
    assert turned_away(ends) == ["r2"]
    assert "loose" not in yard.files()


def test_what_the_target_has_is_not_checked_or_landed_again(yard: Yard) -> None:
    parcel = yard.part("r1")
    yard.land(parcel)
    tip = yard.tip()
    yard.asked.clear()
    (end,) = yard.land(parcel)
    assert isinstance(end, Landed)
    assert end.commit == tip
    yard.git("update-ref", f"refs/heads/{TARGET}", parcel2 := yard.work({"parts/r2": "good\n"}, TARGET))
    (end,) = yard.land(LandingItem("r2", parcel2, "by hand", (check(),)))
    assert isinstance(end, Landed)
    assert end.commit == parcel2
    assert (yard.asked, yard.tip()) == ([], parcel2)


def test_what_somebody_took_back_lands_again_and_is_not_called_landed_before(yard: Yard) -> None:
    parcel, before = yard.part("r1"), yard.tip()
    yard.land(parcel)
    yard.git("update-ref", f"refs/heads/{TARGET}", before)
    (end,) = yard.land(parcel)
    assert isinstance(end, Landed)
    assert end.commit == yard.tip() != before
    assert "parts/r1" in yard.files()


def test_a_target_that_moves_while_checks_run_loses_nothing(yard: Yard) -> None:
    moves: list[str] = []

    def race() -> None:
        if len(moves) < 2:
            moves.append(yard.work({f"raced-{len(moves)}": "x\n"}, TARGET))
            yard.git("update-ref", f"refs/heads/{TARGET}", moves[-1])

    ends = yard.land(yard.part("r1"), during=race)
    assert landed(ends) == ["r1"]
    assert {"raced-0", "raced-1", "parts/r1"} <= yard.files()
    assert len(yard.asked) == 3
    assert yard.git("rev-list", "--count", "--merges", TARGET) == "1"


@pytest.mark.thorough
def test_a_target_that_never_rests_is_given_up_and_the_parcel_is_kept(yard: Yard) -> None:
    def race() -> None:
        yard.git("update-ref", f"refs/heads/{TARGET}", yard.work({f"raced-{len(yard.asked)}": "x\n"}, TARGET))

    with pytest.raises(Refused, match="nothing is lost"):
        yard.land(yard.part("r1"), during=race)
    ledger = yard.ralph.project.ledger()
    (row,) = ledger.landings.rows(TARGET)
    ledger.close()
    assert row.open
    assert row.item.run == "r1"


def test_by_rebase_authors_dates_and_messages_stay(yard: Yard) -> None:
    one = yard.work({"a": "1\n"}, author="ann", message="first\n\nwith a body")
    two = yard.work({"b": "2\n"}, one, author="bob", message="second")
    parcel = LandingItem("r1", two, "both", (check(),))
    yard.land(yard.part("r0"))
    (end,) = yard.land(parcel, rebase=True)
    assert isinstance(end, Landed)
    told = yard.git("log", "-2", "--format=%an %ad %B", "--date=raw", TARGET)
    assert told == "bob 1000 +0100 second\n\nann 1000 +0100 first\n\nwith a body"
    assert yard.git("rev-list", "--merges", "--count", "-2", TARGET) == "1", "only the one of r0"
    assert {"a", "b", "parts/r0"} <= yard.files()


@pytest.mark.thorough
def test_by_rebase_what_a_merge_decided_is_not_lost(yard: Yard) -> None:
    ours, theirs = yard.work({"file": "ours\n"}), yard.work({"file": "theirs\n", "more": "x\n"})
    tree = yard.git("rev-parse", yard.work({"file": "both\n", "more": "x\n"}) + "^{tree}")
    merge = yard.git("commit-tree", tree, "-p", ours, "-p", theirs, "-m", "a merge that decides")
    (end,) = yard.land(LandingItem("r1", merge, "a merge", (check(),)), rebase=True)
    assert isinstance(end, LandingRejected), "its commits cannot be replayed without what the merge decided"
    (end,) = yard.land(LandingItem("r1", merge, "a merge", (check(),)))
    assert isinstance(end, Landed)
    assert yard.git("cat-file", "blob", f"{TARGET}:file") == "both"


def test_a_branch_that_is_checked_out_is_not_moved(yard: Yard) -> None:
    yard.git("worktree", "add", "-q", str(yard.ralph.folder / "other"), TARGET)
    before, tip = bytes_of(yard.ralph.folder / "other"), yard.tip()
    with pytest.raises(Refused, match="is checked out in"):
        yard.land(yard.part("r1"))
    assert (bytes_of(yard.ralph.folder / "other"), yard.tip()) == (before, tip)


def test_a_work_tree_that_is_added_at_the_last_moment_is_not_harmed(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, swap = yard.ralph.folder / "other", LocalBranch._swap

    def late(self: LocalBranch, old: str, new: str) -> bool:
        if not place.exists():
            yard.git("worktree", "add", "-q", str(place), TARGET)
        return swap(self, old, new)

    monkeypatch.setattr(LocalBranch, "_swap", late)
    tip = yard.tip()
    with pytest.raises(Refused, match="is checked out in"):
        yard.land(yard.part("r1"))
    assert yard.tip() == tip
    assert yard.git("-C", str(place), "status", "--porcelain") == ""


class Died(Exception):
    """Stands for `kill -9`: nothing of ours catches it."""


@pytest.mark.parametrize("rebase", [False, True], ids=["merge", "rebase"])
@pytest.mark.parametrize("moved", [False, True], ids=["before", "after"])
def test_cut_off_at_its_move_it_is_settled_by_the_branch_and_asked_nothing(
    yard: Yard, moved: bool, rebase: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = LocalBranch.move

    def dies(self: LocalBranch, old: str, new: str) -> bool:
        if moved:
            move(self, old, new)
        raise Died

    yard.git("update-ref", f"refs/heads/{TARGET}", yard.work({"there": "x\n"}))
    parcels = [yard.part("r1"), yard.part("r2")]
    with monkeypatch.context() as patched:
        patched.setattr(LocalBranch, "move", dies)
        with pytest.raises(Died):
            yard.land(*parcels, rebase=rebase)
    yard.asked.clear()
    ends = yard.land(*parcels, rebase=rebase)
    assert (landed(ends), yard.asked) == (["r1", "r2"], [])
    assert isinstance(ends[-1], Landed)
    assert ends[-1].commit == yard.tip()
    assert yard.git("rev-list", "--count", "--first-parent", TARGET) == "4", "two of before, and one for each parcel"


def test_a_thread_lands_and_is_stopped_by_whoever_is_asked(yard: Yard) -> None:
    at, tip = yard.ralph.folder / "at", yard.tip()
    ended: list[object] = []

    class Wishes(Calm):
        def stop_reason(self) -> str:
            return "INTERRUPTED" if at.exists() else ""

        def stop_level(self) -> int:
            return STOP if at.exists() else 0

    def work() -> None:
        try:
            yard.land(yard.item("r1", {"a": "1\n"}, "main", check(f"touch {at}; sleep 300")), wishes=Wishes())
        except KeyboardInterrupt:
            ended.append("stopped")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert (ended, yard.tip()) == (["stopped"], tip)
    thread = threading.Thread(target=lambda: ended.extend(landed(yard.land(yard.part("r2")))))
    thread.start()
    thread.join(60)
    assert ended == ["stopped", "r2"]


def test_what_prepares_a_checkout_runs_once_for_many_checks_and_trees(yard: Yard) -> None:
    ran = yard.ralph.folder / "ran"
    setup = (f"mkdir node_modules && echo x > node_modules/x && echo ran >> {ran}",)
    checks = [check(), check("test -e node_modules/x"), check("test ! -e left -o ! -e right")]
    parcels = [replace(yard.item(f"r{n}", {name: "x\n"}, "main", *checks), setup=setup)
               for n, name in enumerate(("left", "right"))]  # fmt: skip
    ends = yard.land(*parcels)
    assert (landed(ends), turned_away(ends)) == (["r0"], ["r1"])
    assert ran.read_text() == "ran\n"


def test_a_git_that_cannot_merge_without_files_is_refused_with_the_way_on(yard: Yard) -> None:
    real = shutil.which("git")
    yard.ralph.program(
        "git", f'for one; do test "$one" = version && echo git version 2.34.1 && exit; done; exec {real} "$@"'
    )
    with pytest.raises(Refused, match=r"needs git 2\.38 or newer"):
        yard.land(yard.part("r1"))
