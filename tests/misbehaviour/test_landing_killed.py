"""A landing that is killed after each git command that it gives: the target is green, and nothing lands twice."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ralphproof.store.landings import AttestedCheck, Landed
from tests.cli.landing import CHECK, TARGET, Yard, check
from tests.conftest import COUNTED, SAID
from tests.misbehaviour import invariants
from tests.misbehaviour.crashing import nothing_left
from tests.ralph import Ended, Ralph, done, write

pytestmark = pytest.mark.thorough

Tell = Callable[[str, object], None]
# What it did is one line in the log; the one that has the number of its line ends whoever asked for it.
GIT = """#!/bin/sh
last() {{ echo "$*" >> {log}; test "$(wc -l < {log})" != "$(cat {number})" || kill -9 $PPID; }}
case "$*" in *--batch) last "$@"; exec {git} "$@";; esac
{git} "$@"
code=$?
last "$@"
exit $code
"""


@dataclass
class Mortal:
    """A yard that is put back as it was before each landing, and a git that kills who asks."""

    yard: Yard

    def __post_init__(self) -> None:
        folder = self.yard.ralph.folder
        self.log, self.number, self.kept = folder / "log", folder / "number", folder / "kept"
        bin = folder / "mortal"
        bin.mkdir()
        git = shutil.which("git")
        (bin / "git").write_text(GIT.format(log=self.log, number=self.number, git=git))
        (bin / "git").chmod(0o755)
        self.path = {"PATH": f"{bin}{os.pathsep}{self.yard.ralph.env['PATH']}"}

    def keep(self) -> None:
        for name in ("project", "state"):
            shutil.copytree(self.yard.ralph.folder / name, self.kept / name, symlinks=True)

    def put_back(self) -> None:
        for name in ("project", "state"):
            shutil.rmtree(self.yard.ralph.folder / name)
            shutil.copytree(self.kept / name, self.yard.ralph.folder / name, symlinks=True)
        for place in (self.log, self.yard.ralph.folder / "asked"):
            place.unlink(missing_ok=True)

    def killed(self, number: int, *words: str) -> tuple[Ended, list[str]]:
        """`ralph land` that dies after the git command of this number, where it is not 0; and all that git did."""
        self.put_back()
        self.number.write_text(str(number))
        ended = self.yard.ralph("land", *words, env=self.path)
        nothing_left(self.yard.ralph)
        return ended, self.log.read_text().splitlines()

    @property
    def asked(self) -> int:
        """How often a check was run to its end."""
        place = self.yard.ralph.folder / "asked"
        return len(place.read_text().splitlines()) if place.exists() else 0

    def landings(self) -> Counter[str]:
        """How often each run landed, by the record and by the branch."""
        (file,) = self.yard.ralph.state_dir.glob("repos/*/ledger.db")
        with sqlite3.connect(file) as database:
            rows = database.execute("SELECT run FROM landing WHERE step LIKE '%Landed%'").fetchall()
        trailer = "--format=%(trailers:key=Ralph-Run,valueonly,separator=)"
        merged = Counter(self.yard.git("log", "--first-parent", trailer, TARGET).split())
        assert merged == Counter(run for (run,) in rows)
        return merged


@pytest.fixture
def mortal(ralph: Ralph) -> Mortal:
    return Mortal(Yard(ralph))


def counting(mortal: Mortal) -> AttestedCheck:
    """The check, which leaves a line when it has come to its end; in the work tree of the merge alone."""
    return check(f"{CHECK}; s=$?; echo asked >> {mortal.yard.ralph.folder}/asked; exit $s")


def the_queue(mortal: Mortal) -> None:
    """One that is good, one that conflicts with it, and one that is red together with it."""
    yard, asks = mortal.yard, counting(mortal)
    parcels = [
        yard.item("good", {"left": "x\n", "file": "good\n"}, "main", asks),
        yard.item("conflict", {"file": "other\n"}, "main", asks),
        yard.item("red", {"right": "x\n"}, "main", asks),
    ]
    ledger = yard.ralph.project.ledger(read_only=False)
    ledger.landings.queue(TARGET, parcels)
    ledger.close()
    for parcel in parcels:
        yard.git("update-ref", f"refs/heads/work/{parcel.run}", parcel.commit)
    mortal.keep()


def steps(mortal: Mortal) -> dict[str, bool]:
    ledger = mortal.yard.ralph.project.ledger()
    found = {row.item.run: isinstance(row.step, Landed) for row in ledger.landings.rows(TARGET) if not row.open}
    ledger.close()
    return found


ENDS = {"good": True, "conflict": False, "red": False}


@pytest.mark.parametrize("part", range(3))
def test_killed_after_any_git_command_it_ends_as_one_that_was_not(
    mortal: Mortal, part: int, record_property: Tell
) -> None:
    the_queue(mortal)
    ended, whole = mortal.killed(0)
    assert (ended.code, steps(mortal), mortal.landings()) == (1, ENDS, {"good": 1}), ended
    points = range(1, len(whole) + 1)[part::3]
    for number in points:
        ended, did = mortal.killed(number)
        where = f"killed at {number}: {did[-1]}"
        assert ended.code == -signal.SIGKILL, (where, ended)
        assert mortal.yard.green(), where
        again = mortal.yard.ralph("land")
        invariants.no_traceback(again)
        assert (again.code, steps(mortal)) == (1, ENDS), (where, again)
        assert mortal.landings() == {"good": 1}, where
        assert mortal.yard.green(), where
    record_property(SAID, f"a landing killed after each of {len(points)} git commands, and gone on with")
    record_property(COUNTED, len(points))
    assert len(whole) >= 40


def test_what_was_checked_is_not_checked_again(mortal: Mortal, record_property: Tell) -> None:
    """A landing of two green parcels from runs, by name: killed also while the parcels are made."""
    yard = mortal.yard
    command = str(counting(mortal).command)
    runs = []
    for name in ("one", "two"):
        ended = yard.ralph(
            "run", "-p", "x", "--agent", yard.ralph.script([write(**{name: "1\n"}), done()]), "--check", command
        )
        assert ended.code == 0, ended
        yard.git("clean", "-fdq")
        runs.append(yard.ralph.runs()[0].id)
    mortal.keep()
    ended, whole = mortal.killed(0, *runs)
    assert (ended.code, mortal.asked) == (0, 1), ended
    move = next(
        at
        for at, words in enumerate(whole, 1)
        if f"update-ref -m ralph land --create-reflog refs/heads/{TARGET}" in words
    )
    points = [*range(2, move - 2, 6), *range(move - 2, len(whole) + 1)]
    for number in points:
        ended, did = mortal.killed(number, *runs)
        assert ended.code == -signal.SIGKILL, (number, ended)
        again = yard.ralph("land", *runs)
        assert again.code == 0, (did[-1], again)
        assert mortal.landings() == Counter(runs), did[-1]
        assert mortal.asked <= (1 if number >= move - 1 else 2), did[-1]
    record_property(COUNTED, len(points))
    assert len(points) >= 10


def test_killed_after_any_step_on_record_it_ends_as_one_that_was_not(mortal: Mortal, record_property: Tell) -> None:
    the_queue(mortal)
    log = mortal.yard.ralph.folder / "records"

    def dies(number: int) -> Ended:
        mortal.put_back()
        log.unlink(missing_ok=True)
        ended = mortal.yard.ralph("land", dies=(str(log), "records", str(number)))
        nothing_left(mortal.yard.ralph)
        return ended

    assert dies(0).code == 1
    points = range(1, len(log.read_text().splitlines()) + 1)
    for number in points:
        assert dies(number).code == -signal.SIGKILL
        assert mortal.yard.green()
        again = mortal.yard.ralph("land")
        assert (again.code, steps(mortal), mortal.landings()) == (1, ENDS, {"good": 1}), (number, again)
        assert mortal.yard.green()
    record_property(COUNTED, len(points))
    assert len(points) >= 5, "queued, moving, landed, turned away twice"
