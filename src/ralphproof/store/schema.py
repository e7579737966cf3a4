"""Tables of the ledger's SQLite file, and the check of its schema version."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from _sqlite3 import Connection


@value
class DatabaseSchema:
    """What a file is made of. The number grows with every change of its statements."""

    number: int
    statements: tuple[str, ...]


# `seq` of a run, not its time, tells which is newer: clocks are set back.
# The index on record(run) holds seq too, so a run's records come out in order and its last one is found at once.
# A figure is a finished run in numbers. Their sums, by kind and day, grow with them in the same transaction: a report
# over a million runs adds up some thousand rows, in the order in which they lie. The two indexes by size hold whatever
# a percentile needs. A run that ends a second time has its figure replaced: what is taken out leaves the sums too.
# Few runs have a parent, so only these are in the index of parents.
# What reviews came to is kept of runs by stories alone, day by day, and goes with the run's figure.
# A task's status is the user's own word, said after the attempt of this number: a later attempt has the last word. A
# run that is taken up again is the latest attempt, so its number grows.
# A parcel's steps on its way to a target are only ever added: the last one tells where it is.
LEDGER_SCHEMA = DatabaseSchema(
    7,
    (
        """CREATE TABLE run (
            seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, began_at REAL NOT NULL, directory TEXT NOT NULL,
            host TEXT NOT NULL, pid INTEGER NOT NULL, pid_start TEXT NOT NULL, boot TEXT NOT NULL,
            parent TEXT NOT NULL)""",
        """CREATE TABLE record (
            seq INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run(id), iteration INTEGER NOT NULL,
            turn INTEGER NOT NULL, step TEXT NOT NULL, kind TEXT NOT NULL, at REAL NOT NULL, data TEXT NOT NULL,
            digest TEXT NOT NULL, UNIQUE (run, iteration, turn, step))""",
        "CREATE INDEX record_of_run ON record(run)",
        """CREATE TABLE wish (
            seq INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run(id), kind TEXT NOT NULL, at REAL NOT NULL)""",
        "CREATE INDEX wish_of_run ON wish(run)",
        """CREATE TABLE figure (
            run INTEGER PRIMARY KEY REFERENCES run(seq), day INTEGER NOT NULL, began REAL NOT NULL, ended REAL NOT NULL,
            status TEXT NOT NULL, reason TEXT NOT NULL, skill TEXT NOT NULL, type TEXT NOT NULL, agent TEXT NOT NULL,
            model TEXT NOT NULL, preset TEXT NOT NULL, iterations INTEGER NOT NULL, milliseconds INTEGER NOT NULL,
            micro_usd INTEGER, at_least INTEGER NOT NULL, tokens INTEGER NOT NULL, files INTEGER NOT NULL,
            tests_fixed INTEGER, claimed INTEGER NOT NULL, verified INTEGER NOT NULL, saved INTEGER)""",
        "CREATE INDEX figure_of_day ON figure(day, iterations, micro_usd)",
        "CREATE INDEX figure_by_iterations ON figure(iterations, day)",
        "CREATE INDEX figure_by_cost ON figure(micro_usd, day) WHERE micro_usd IS NOT NULL",
        """CREATE TABLE figure_kind (
            id INTEGER PRIMARY KEY, skill TEXT NOT NULL, agent TEXT NOT NULL, status TEXT NOT NULL,
            reason TEXT NOT NULL, UNIQUE (skill, agent, status, reason))""",
        """CREATE TABLE figure_sum (
            kind INTEGER NOT NULL REFERENCES figure_kind(id), day INTEGER NOT NULL, runs INTEGER NOT NULL,
            iterations INTEGER NOT NULL, milliseconds INTEGER NOT NULL, priced INTEGER NOT NULL,
            micro_usd INTEGER NOT NULL, at_least INTEGER NOT NULL, tokens INTEGER NOT NULL, verified INTEGER NOT NULL,
            saved INTEGER NOT NULL, PRIMARY KEY (kind, day)) WITHOUT ROWID""",
        """CREATE TRIGGER figure_added AFTER INSERT ON figure BEGIN
            INSERT INTO figure_kind (skill, agent, status, reason)
                VALUES (new.skill, new.agent, new.status, new.reason) ON CONFLICT DO NOTHING;
            INSERT INTO figure_sum SELECT
                id, new.day, 1, new.iterations, new.milliseconds, new.micro_usd IS NOT NULL,
                ifnull(new.micro_usd, 0), new.at_least, new.tokens, new.verified, ifnull(new.saved, 0)
            FROM figure_kind
            WHERE (skill, agent, status, reason) = (new.skill, new.agent, new.status, new.reason)
            ON CONFLICT (kind, day) DO UPDATE SET
                runs = runs + 1, iterations = iterations + excluded.iterations,
                milliseconds = milliseconds + excluded.milliseconds, priced = priced + excluded.priced,
                micro_usd = micro_usd + excluded.micro_usd, at_least = at_least + excluded.at_least,
                tokens = tokens + excluded.tokens, verified = verified + excluded.verified,
                saved = saved + excluded.saved;
        END""",
        """CREATE TRIGGER figure_removed AFTER DELETE ON figure BEGIN
            UPDATE figure_sum SET
                runs = runs - 1, iterations = iterations - old.iterations,
                milliseconds = milliseconds - old.milliseconds, priced = priced - (old.micro_usd IS NOT NULL),
                micro_usd = micro_usd - ifnull(old.micro_usd, 0), at_least = at_least - old.at_least,
                tokens = tokens - old.tokens, verified = verified - old.verified,
                saved = saved - ifnull(old.saved, 0)
            WHERE day = old.day AND kind = (SELECT id FROM figure_kind
                WHERE (skill, agent, status, reason) = (old.skill, old.agent, old.status, old.reason));
            DELETE FROM figure_sum
            WHERE runs = 0 AND day = old.day AND kind = (SELECT id FROM figure_kind
                WHERE (skill, agent, status, reason) = (old.skill, old.agent, old.status, old.reason));
        END""",
        "CREATE INDEX run_of_parent ON run(parent) WHERE parent != ''",
        """CREATE TABLE word (
            seq INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run(id), at REAL NOT NULL, data TEXT NOT NULL)""",
        "CREATE INDEX word_of_run ON word(run)",
        """CREATE TABLE task (
            seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, spec_id TEXT NOT NULL, title TEXT NOT NULL,
            description TEXT NOT NULL, status TEXT NOT NULL, said_after INTEGER NOT NULL, priority INTEGER NOT NULL,
            dependencies TEXT NOT NULL, assignee TEXT NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
            metadata TEXT NOT NULL, completion_spec TEXT)""",
        """CREATE TABLE attempt (
            seq INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE REFERENCES run(id),
            task INTEGER NOT NULL REFERENCES task(seq))""",
        "CREATE INDEX attempt_of_task ON attempt(task)",
        """CREATE TABLE figure_review (
            day INTEGER NOT NULL, run INTEGER NOT NULL REFERENCES run(seq), stories INTEGER NOT NULL,
            reviews INTEGER NOT NULL, changes_requested INTEGER NOT NULL, capped INTEGER NOT NULL,
            first INTEGER NOT NULL, counted INTEGER NOT NULL, once INTEGER NOT NULL, twice INTEGER NOT NULL,
            thrice INTEGER NOT NULL, four_times INTEGER NOT NULL, oftener INTEGER NOT NULL,
            PRIMARY KEY (day, run)) WITHOUT ROWID""",
        """CREATE TRIGGER figure_review_removed AFTER DELETE ON figure BEGIN
            DELETE FROM figure_review WHERE day = old.day AND run = old.run;
        END""",
        """CREATE TABLE landing (
            seq INTEGER PRIMARY KEY, target TEXT NOT NULL, run TEXT NOT NULL, named TEXT NOT NULL, at REAL NOT NULL,
            parcel TEXT NOT NULL, step TEXT NOT NULL)""",
        "CREATE INDEX landing_of_target ON landing(target)",
    ),
)


def schema_version(database: Connection) -> int:
    """The number of the file's layout; 0 where nothing was made yet."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def require_schema(version: int, path: str, layout: DatabaseSchema = LEDGER_SCHEMA) -> None:
    """Raise Refused for a file of another layout than ours."""
    if version not in (0, layout.number):
        folder = os.path.dirname(path)
        raise Refused(
            f"{path} was written by another version of ralph (layout {version}, this one has {layout.number}); "
            f"move {folder} away, or set RALPH_STATE_DIR to another directory"
        )


def create_tables(database: Connection, layout: DatabaseSchema = LEDGER_SCHEMA) -> None:
    """Make the tables of an empty file, in one transaction. The caller sees to it that nobody else does meanwhile."""
    if schema_version(database):
        return
    database.execute("BEGIN IMMEDIATE")
    for statement in layout.statements:
        database.execute(statement)
    database.execute(f"PRAGMA user_version = {layout.number}")
    database.execute("COMMIT")
