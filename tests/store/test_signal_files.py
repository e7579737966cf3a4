"""Signal files: whatever is put in their place, nothing hangs, and no link is followed."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.base.errors import Refused
from ralphproof.engine.claim import Claim
from ralphproof.store.run_folder import DONE_FILE, WAIT_FILE, SignalFiles
from tests.store.subprocesses import until

every_marker = pytest.mark.parametrize("name", [DONE_FILE, WAIT_FILE])


@pytest.fixture
def task(tmp_path: Path) -> Path:
    made = tmp_path / "task"
    made.mkdir()
    return made


def stamp(path: Path) -> str:
    seen = path.lstat()
    return f"{seen.st_dev}:{seen.st_ino}:{seen.st_ctime_ns}"


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(path.parent)  # the name of a socket is short
        made.bind(path.name)
        os.chdir(here)


def linked(path: Path, target: str) -> None:
    path.symlink_to(target)


def linked_fifo(path: Path) -> None:
    os.mkfifo(path.with_name("fifo"))
    linked(path, "fifo")


def unreadable(path: Path) -> None:
    path.write_text(path.name)
    path.chmod(0)


def test_without_markers_nothing_is_claimed(task: Path) -> None:
    for name in ("done", "DONE.txt", f"{DONE_FILE}.stale-1", f"{WAIT_FILE}.answered-1"):
        (task / name).touch()
    markers = SignalFiles(str(task))
    assert markers.look() is None
    assert markers.put_away(frozenset({stamp(task / "done")}), "x") == markers.consume("x") == markers.remarks() == ()


def test_a_file_done_is_a_claim_whatever_is_in_it(task: Path) -> None:
    (task / DONE_FILE).write_text("not yet!")
    assert SignalFiles(str(task)).look() == Claim("DONE", False, "marker", stamp(task / DONE_FILE))


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", WAIT_FILE),
        (b" \n\t\n", WAIT_FILE),
        (b"the review", "the review"),
        (b"  the review \r\nof the API\n", "the review"),
        (b"\n\nthe review\n", "the review"),
        (b"the review\rof the API", "the review"),
        (b"caf\xe9 \xc3\xa9", "caf\N{REPLACEMENT CHARACTER} é"),
        (b"x" * 500, "x" * 200),
        (b"x" * 5_000_000, "x" * 200),
        ("é".encode() * 4000, "é" * 200),
        (b" " * 5000 + b"late", WAIT_FILE),
        (b"\x1b[31mred", "\x1b[31mred"),
    ],
)
def test_a_file_that_waits_says_for_what_in_its_first_line(task: Path, content: bytes, word: str) -> None:
    (task / WAIT_FILE).write_bytes(content)
    assert SignalFiles(str(task)).look() == Claim(word, True, "marker", stamp(task / WAIT_FILE))


def test_who_waits_is_not_done(task: Path) -> None:
    (task / DONE_FILE).touch()
    (task / WAIT_FILE).write_text("you")
    claim = SignalFiles(str(task)).look()
    assert claim is not None
    assert (claim.word, claim.waiting) == ("you", True)


@every_marker
@pytest.mark.parametrize("how", ["touched", "made anew"])
def test_a_marker_that_is_made_again_is_another_one(task: Path, name: str, how: str) -> None:
    markers, path = SignalFiles(str(task)), task / name

    def found() -> str:
        claim = markers.look()
        assert claim is not None
        return claim.stamp

    def again() -> bool:  # more than once where the clock of the file system ticks slowly
        if how == "made anew":
            path.unlink()
        path.touch()
        return found() != first

    path.touch()
    first = found()
    assert found() == first
    until(again)


@every_marker
def test_a_directory_of_that_name_is_refused_in_one_line(task: Path, name: str) -> None:
    """FC-13"""
    (task / name / "inner").mkdir(parents=True)
    for other in (None, DONE_FILE, WAIT_FILE):
        if other not in (None, name):
            (task / other).touch()
        with pytest.raises(Refused) as refusal:
            SignalFiles(str(task)).look()
        assert str(refusal.value) == f"{name} is a directory: {task / name}; remove it"
    assert (task / name / "inner").is_dir()


ODD: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "socket": listening,
    "link to a file": lambda path: linked(path, "/etc/passwd"),
    "link to a device": lambda path: linked(path, "/dev/zero"),
    "link to a fifo": linked_fifo,
    "no permission": unreadable,
}


@every_marker
@pytest.mark.parametrize("odd", ODD)
def test_whatever_else_has_that_name_counts_and_is_never_opened(task: Path, name: str, odd: str) -> None:
    """FC-13"""
    ODD[odd](task / name)
    markers = SignalFiles(str(task))
    assert markers.look() == Claim(name, name == WAIT_FILE, "marker", stamp(task / name))
    assert markers.remarks() == ()


@every_marker
@pytest.mark.parametrize(
    ("target", "word"), [("nothing", "nothing"), ("", "nothing"), ("/", "a directory"), (".", "a directory")]
)
def test_a_link_that_leads_to_no_file_counts_for_nothing_and_is_told_once(
    task: Path, name: str, target: str, word: str
) -> None:
    """FC-13"""
    linked(task / name, target or name)
    markers = SignalFiles(str(task))
    assert markers.look() is markers.look() is None
    assert markers.remarks() == (f"{name} is a link to {word}, and counts for nothing",)
    assert markers.look() is None
    assert markers.remarks() == markers.consume("x") == ()
    assert (task / name).is_symlink()


def test_markers_that_were_known_are_put_away_and_others_stay(task: Path) -> None:
    (task / DONE_FILE).write_text("old")
    (task / WAIT_FILE).write_text("new")
    known = frozenset({stamp(task / DONE_FILE), "1:2:3"})
    markers = SignalFiles(str(task))
    assert markers.put_away(known, "run-1") == (f"{DONE_FILE}.stale-run-1",)
    assert sorted(os.listdir(task)) == [f"{DONE_FILE}.stale-run-1", WAIT_FILE]
    assert (task / f"{DONE_FILE}.stale-run-1").read_text() == "old"
    assert markers.put_away(known, "run-1") == ()
    (task / DONE_FILE).touch()
    assert markers.put_away(known, "run-1") == ()
    assert markers.put_away(frozenset(map(stamp, task.iterdir())), "x") == (
        f"{DONE_FILE}.stale-x",
        f"{WAIT_FILE}.stale-x",
    )


def test_what_was_put_away_before_is_not_overwritten(task: Path) -> None:
    markers = SignalFiles(str(task))
    found: list[str] = []
    (task / f"{DONE_FILE}.stale-x-3").mkdir()
    (task / f"{WAIT_FILE}.answered-x").symlink_to("nothing")
    for number in range(3):
        (task / DONE_FILE).write_text(str(number))
        found += markers.put_away(frozenset({stamp(task / DONE_FILE)}), "x")
    assert found == [f"{DONE_FILE}.stale-x", f"{DONE_FILE}.stale-x-2", f"{DONE_FILE}.stale-x-4"]
    assert [(task / name).read_text() for name in found] == ["0", "1", "2"]
    (task / WAIT_FILE).touch()
    assert markers.consume("x") == (f"{WAIT_FILE}.answered-x-2",)
    assert (task / f"{WAIT_FILE}.answered-x").is_symlink()


def test_a_wait_that_was_answered_is_over_and_done_stays(task: Path) -> None:
    (task / DONE_FILE).touch()
    (task / WAIT_FILE).write_text("you")
    markers = SignalFiles(str(task))
    assert markers.consume("s2") == (f"{WAIT_FILE}.answered-s2",)
    claim = markers.look()
    assert claim is not None
    assert claim.word == DONE_FILE
    assert markers.consume("s2") == ()
    assert (task / f"{WAIT_FILE}.answered-s2").read_text() == "you"


def test_a_link_is_put_away_itself_and_its_target_stays(task: Path) -> None:
    target = task.with_name("mine")
    target.write_text("mine")
    linked(task / DONE_FILE, str(target))
    assert SignalFiles(str(task)).put_away(frozenset({stamp(task / DONE_FILE)}), "x") == (f"{DONE_FILE}.stale-x",)
    assert (task / f"{DONE_FILE}.stale-x").is_symlink()
    assert target.read_text() == "mine"


def all_of(markers: SignalFiles, known: frozenset[str]) -> tuple[object, ...]:
    return markers.look(), markers.put_away(known, "x"), markers.consume("x"), markers.remarks()


def gone(task: Path, elsewhere: Path) -> None:
    task.rename(elsewhere.with_name("moved"))


def swapped(task: Path, elsewhere: Path) -> None:
    task.rename(elsewhere.with_name("moved"))
    task.symlink_to(elsewhere)


def parent_swapped(task: Path, elsewhere: Path) -> None:
    task.parent.rename(elsewhere.with_name("moved"))
    task.parent.symlink_to(elsewhere.parent)
    assert (task / DONE_FILE).exists()


def a_file(task: Path, elsewhere: Path) -> None:
    gone(task, elsewhere)
    task.write_text("mine")


@pytest.mark.parametrize("change", [gone, swapped, parent_swapped, a_file])
def test_a_folder_that_vanished_or_leads_elsewhere_has_no_markers(
    tmp_path: Path, change: Callable[[Path, Path], None]
) -> None:
    task, elsewhere = tmp_path / "project" / "task", tmp_path / "other" / "task"
    for folder in (task, elsewhere):
        folder.mkdir(parents=True)
        for name in (DONE_FILE, WAIT_FILE):
            (folder / name).touch()
    known = frozenset(stamp(folder / name) for folder in (task, elsewhere) for name in (DONE_FILE, WAIT_FILE))
    markers = SignalFiles(str(task))
    assert markers.look() is not None
    change(task, elsewhere)
    assert all_of(markers, known) == (None, (), (), ())
    assert sorted(os.listdir(elsewhere)) == [DONE_FILE, WAIT_FILE]


def test_a_folder_that_is_made_again_is_looked_into_again(task: Path) -> None:
    markers = SignalFiles(str(task))
    task.rmdir()
    assert all_of(markers, frozenset()) == (None, (), (), ())
    task.mkdir()
    (task / DONE_FILE).touch()
    assert markers.look() is not None


def test_a_link_that_the_user_chose_is_followed(task: Path) -> None:
    (task / DONE_FILE).touch()
    link = task.with_name("link")
    link.symlink_to(task)
    assert SignalFiles(str(link)).look() == Claim("DONE", False, "marker", stamp(task / DONE_FILE))


def test_no_descriptor_stays_open(task: Path) -> None:
    (task / WAIT_FILE).write_text("you")
    (task / DONE_FILE).mkdir()
    markers, nowhere = SignalFiles(str(task)), SignalFiles(str(task / "a" / "b"))
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        with pytest.raises(Refused):
            markers.look()
        markers.consume("x")
        nowhere.look()
    assert len(os.listdir("/dev/fd")) == before
