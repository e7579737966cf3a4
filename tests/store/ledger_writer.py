"""A small harness, to be killed anywhere: takes the lock, appends what is left to append, writes its files.

Started as a program with the folder to work in. It leaves with 0, or with the number of one of our errors in ERRORS;
words could not be said where every write fails.
"""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import DiskFull, HarnessFailed, RalphError, Refused
from ralphproof.base.processes import current_process
from ralphproof.engine.records import Record, Resumed
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.run_folder import RunFolder
from tests.store.samples import end, notices

ERRORS: list[type[RalphError]] = [DiskFull, HarnessFailed, Refused]
RUN = "new"
GROUPS: tuple[tuple[Record, ...], ...] = (
    notices(1), (*notices(3, first=1), end(iterations=4)), (Resumed(2, 9.0, 5.0), end(2, iterations=7)),
)  # fmt: skip
RECORDS = tuple(record for group in GROUPS for record in group)
OUTCOME = {"status": "COMPLETED", "output": "x" * 2000}
PROMPT = "do it\r\n" * 300


def work(folder: str) -> None:
    state, project = os.path.join(folder, "state"), os.path.join(folder, "project")
    lock = DirectoryLock(state, project, RUN)
    lock.take()
    ledger = SqliteLedger.open(os.path.join(state, "repos", "one"))
    files = RunFolder(project, RUN, state)
    try:
        files.begin()
        if not any(row.id == RUN for row in ledger.runs()):
            ledger.begin_run(RUN, project, 1.0, current_process())
        append(ledger, files)
        files.write_outcome(dict(OUTCOME))
    finally:
        ledger.close()
        lock.release()


def append(ledger: SqliteLedger, files: RunFolder) -> None:
    """Whatever of the groups is not recorded yet."""
    done = len(ledger.records(RUN))
    for number, group in enumerate(GROUPS):
        done -= len(group)
        if done < 0:
            files.write_prompt(f"prompt_{number}", PROMPT)
            files.note("group", {"number": number, "text": PROMPT})
            files.turn_file(f"agent_{number}")
            ledger.append(RUN, group)


if __name__ == "__main__":
    try:
        work(sys.argv[1])
    except RalphError as error:
        sys.exit(ERRORS.index(type(error)) + 10)
