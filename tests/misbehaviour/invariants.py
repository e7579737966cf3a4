"""What holds after every run, whatever the agent did."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

from ralphproof.engine.outcome import Failed
from ralphproof.engine.records import Record, Resumed, RunBegan, RunEnded, TurnEnded
from ralphproof.engine.state import RunOver, build_state
from tests.ralph import Ended, Ralph

AGENTS_OWN = ("agents", "cache")  # what they keep there, inside a sandbox, has the modes that they give it
GIT_STORE = "trees"  # git itself writes into the folders in this one, with whatever modes it likes


def hold(ralph: Ralph, ended: Ended, refused: bool = False, most: int = 0) -> None:
    """All that must be true now that `ralph run` is over. `refused`: it may not even have begun a run.

    `most` is the limit on iterations where it was raised after the beginning.
    """
    no_traceback(ended)
    readable(ralph)  # before anything is opened that would mend it
    runs = ralph.runs() if ralph.state_dir.exists() else ()
    if refused:
        assert ended.code == 2, ended
        assert runs == (), "a refused run left a record"
    else:
        assert runs, f"nothing was recorded: {ended}"
        one_end(ralph, ended, most)
        proved(ralph, ended)
    for run in runs:
        assert ralph.processes(run.id) == [], f"processes of run {run.id} are still alive"
    unaltered(ralph)
    private(ralph)
    unlocked(ralph)


def refusal(ralph: Ralph, ended: Ended, *words: str) -> None:
    """Nothing was begun, no agent left the file `started`, and the message holds these words."""
    hold(ralph, ended, refused=True)
    assert not (ralph.root / "started").exists()
    for word in words:
        assert word in ended.err


def no_traceback(ended: Ended) -> None:
    """We never die of an exception that nobody caught."""
    assert "Traceback" not in ended.err + ended.out, ended.err


def one_end(ralph: Ralph, ended: Ended, raised: int = 0) -> None:
    """Every run has one end, or was taken up after it. Record, outcome.json and exit code tell the same of the last."""
    for row in ralph.runs():
        records = ralph.records(row.id)
        after = [records[place + 1 : place + 2] for place, record in enumerate(records) if isinstance(record, RunEnded)]
        assert after.pop() == (), f"run {row.id} went on after its end"
        assert all(isinstance(one, Resumed) for (one,) in after), f"run {row.id} ended more than once"
        if not any(isinstance(record, RunBegan) for record in records):
            assert isinstance(records[-1], RunEnded)
            assert isinstance(records[-1].outcome, Failed), f"run {row.id} ended well and never began"
            continue
        state, most = build_state(records), _facts(records)["maximumIterations"]
        assert isinstance(most, int)
        assert state.history.turn_count <= (raised or most)
    phase, outcome = ralph.state().phase, ralph.outcome()
    assert isinstance(phase, RunOver)
    assert ended.code == phase.outcome.exit_code == outcome["exitCode"], ended
    status = {0: "COMPLETED", 2: "ERROR", 3: "ERROR"}.get(ended.code, "ABORTED")
    assert outcome["status"] == status, outcome


def proved(ralph: Ralph, ended: Ended) -> None:
    """A run that succeeded and has checks was shown to be right by them, after its agent was dead."""
    records = ralph.records()
    outcome = ralph.outcome()
    if ended.code != 0:
        return
    if not _checks(records):
        assert outcome["verificationPassed"] is False
        assert "nothing verified it" in ended.out
        return
    assert outcome["verificationPassed"] is True
    latest = ralph.state().history.latest
    assert latest.report.verified
    named = [finding.command or finding.check for finding in latest.report.findings]
    if _stages(records):
        assert set(named) <= set(_checks(records))
    else:
        assert named == list(_checks(records))
    last_turn = max(place for place, record in enumerate(records) if isinstance(record, TurnEnded))
    for finding in latest.report.findings:
        assert finding.judged or finding.code == 0
        assert (ralph.root / finding.log).is_file(), finding
        asked = [place for place, record in enumerate(records) if getattr(record, "finding", None) == finding]
        assert min(asked) > last_turn, f"{finding.check} was asked before the agent had ended"


def readable(ralph: Ralph) -> None:
    """Whatever is written down can be read."""
    for path in _ours(ralph):
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".turn":
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            assert lines or crashed(ralph, path.parent.name), f"{path} tells nothing"
        elif path.suffix == ".db":
            with sqlite3.connect(path) as database:
                assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)], path
            database.close()


def unaltered(ralph: Ralph) -> None:
    """The ledger is as it was written."""
    ledger = ralph.project.ledger()
    try:
        assert [ledger.verify_chain(row.id) for row in ledger.runs()] == [None] * len(ledger.runs())
    finally:
        ledger.close()


def crashed(ralph: Ralph, run: str) -> bool:
    """A later run found this one without its harness: its last turn may have been named and never begun."""
    phase = ralph.state(run).phase
    return isinstance(phase, RunOver) and isinstance(phase.outcome, Failed) and "(crashed)" in phase.outcome.error


def private(ralph: Ralph) -> None:
    """Nobody but the owner may read what we write, nor reach what git writes for us."""
    for path in _ours(ralph):
        wanted = 0o700 if path.is_dir() else 0o600
        assert S_IMODE(path.lstat().st_mode) == wanted, f"{path} has mode {S_IMODE(path.lstat().st_mode):o}"


def unlocked(ralph: Ralph) -> None:
    """No lock is held."""
    for path in _ours(ralph):
        if path.suffix in (".lock", ".turn"):
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _facts(records: tuple[Record, ...]) -> dict[str, object]:
    first = next(record for record in records if isinstance(record, RunBegan))
    return dict(first.facts)


def _stages(records: tuple[Record, ...]) -> object:
    """The stages of a run that has several: each asks what is its own."""
    return next((record.facts.get("stages") for record in records if isinstance(record, RunBegan)), None)


def _checks(records: tuple[Record, ...]) -> tuple[str, ...]:
    checks = _facts(records)["checks"]
    assert isinstance(checks, list | tuple)
    return tuple(str(check) for check in checks)


def _ours(ralph: Ralph) -> Iterator[Path]:
    """Our folders and files; links, what agents write and what lies in git's aside."""
    for top in (ralph.state_dir, ralph.root / ".ralph" / "runs"):
        for folder, folders, files in os.walk(top):
            yield Path(folder)
            folders[:] = [name for name in folders if name != "task"]
            if Path(folder).name in AGENTS_OWN:
                folders.clear()
                continue
            if Path(folder).parent.name == GIT_STORE:
                folders.clear()
            else:
                yield from (Path(folder, name) for name in files if not Path(folder, name).is_symlink())
