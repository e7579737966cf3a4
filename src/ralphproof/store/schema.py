"""Tables of the ledger's SQLite file, and the check of a file's schema version."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from _sqlite3 import Connection


@value
class DatabaseSchema:
    """The version of a database file (`PRAGMA user_version`) and the statements that create it.

    Increase `version` with every change of the statements or of the values that are stored (names of `@value` classes
    and their fields): files of another version are refused, there are no migrations.
    """

    version: int
    statements: tuple[str, ...]


# - A run's `seq`, not its time, tells which run is newer: clocks are set back.
# - The index on record(run) contains seq too, so a run's records come out in order and its last one is found at once.
# - `run_stats` has one row per finished run. Triggers update the sums by group and day (`stats_sum`) in the same
#   transaction, so a report over a million runs adds up some thousand rows. The indexes by iterations and by cost cover
#   the percentile queries. A run that ends a second time has its row replaced, and the old one leaves the sums.
# - Few runs have a parent, so the index of parents is partial.
# - `review_stats` has rows for runs with stories only, one per day; they are deleted with the run's row in `run_stats`.
# - A task's `status` is what the user set after attempt number `said_after`; a later attempt overrides it. A
#   resumed run becomes the latest attempt, so its attempt number grows.
# - `landing` is append-only: the last step of an item tells where it is.
LEDGER_SCHEMA = DatabaseSchema(
    8,
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
        """CREATE TABLE control_request (
            seq INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run(id), kind TEXT NOT NULL, at REAL NOT NULL)""",
        "CREATE INDEX control_request_of_run ON control_request(run)",
        """CREATE TABLE run_stats (
            run INTEGER PRIMARY KEY REFERENCES run(seq), day INTEGER NOT NULL, began REAL NOT NULL, ended REAL NOT NULL,
            status TEXT NOT NULL, reason TEXT NOT NULL, skill TEXT NOT NULL, type TEXT NOT NULL, agent TEXT NOT NULL,
            model TEXT NOT NULL, preset TEXT NOT NULL, iterations INTEGER NOT NULL, milliseconds INTEGER NOT NULL,
            micro_usd INTEGER, at_least INTEGER NOT NULL, tokens INTEGER NOT NULL, files INTEGER NOT NULL,
            tests_fixed INTEGER, claimed INTEGER NOT NULL, verified INTEGER NOT NULL, saved INTEGER)""",
        "CREATE INDEX run_stats_by_day ON run_stats(day, iterations, micro_usd)",
        "CREATE INDEX run_stats_by_iterations ON run_stats(iterations, day)",
        "CREATE INDEX run_stats_by_cost ON run_stats(micro_usd, day) WHERE micro_usd IS NOT NULL",
        """CREATE TABLE stats_group (
            id INTEGER PRIMARY KEY, skill TEXT NOT NULL, agent TEXT NOT NULL, status TEXT NOT NULL,
            reason TEXT NOT NULL, UNIQUE (skill, agent, status, reason))""",
        """CREATE TABLE stats_sum (
            kind INTEGER NOT NULL REFERENCES stats_group(id), day INTEGER NOT NULL, runs INTEGER NOT NULL,
            iterations INTEGER NOT NULL, milliseconds INTEGER NOT NULL, priced INTEGER NOT NULL,
            micro_usd INTEGER NOT NULL, at_least INTEGER NOT NULL, tokens INTEGER NOT NULL, verified INTEGER NOT NULL,
            saved INTEGER NOT NULL, PRIMARY KEY (kind, day)) WITHOUT ROWID""",
        """CREATE TRIGGER run_stats_added AFTER INSERT ON run_stats BEGIN
            INSERT INTO stats_group (skill, agent, status, reason)
                VALUES (new.skill, new.agent, new.status, new.reason) ON CONFLICT DO NOTHING;
            INSERT INTO stats_sum SELECT
                id, new.day, 1, new.iterations, new.milliseconds, new.micro_usd IS NOT NULL,
                ifnull(new.micro_usd, 0), new.at_least, new.tokens, new.verified, ifnull(new.saved, 0)
            FROM stats_group
            WHERE (skill, agent, status, reason) = (new.skill, new.agent, new.status, new.reason)
            ON CONFLICT (kind, day) DO UPDATE SET
                runs = runs + 1, iterations = iterations + excluded.iterations,
                milliseconds = milliseconds + excluded.milliseconds, priced = priced + excluded.priced,
                micro_usd = micro_usd + excluded.micro_usd, at_least = at_least + excluded.at_least,
                tokens = tokens + excluded.tokens, verified = verified + excluded.verified,
                saved = saved + excluded.saved;
        END""",
        """CREATE TRIGGER run_stats_removed AFTER DELETE ON run_stats BEGIN
            UPDATE stats_sum SET
                runs = runs - 1, iterations = iterations - old.iterations,
                milliseconds = milliseconds - old.milliseconds, priced = priced - (old.micro_usd IS NOT NULL),
                micro_usd = micro_usd - ifnull(old.micro_usd, 0), at_least = at_least - old.at_least,
                tokens = tokens - old.tokens, verified = verified - old.verified,
                saved = saved - ifnull(old.saved, 0)
            WHERE day = old.day AND kind = (SELECT id FROM stats_group
                WHERE (skill, agent, status, reason) = (old.skill, old.agent, old.status, old.reason));
            DELETE FROM stats_sum
            WHERE runs = 0 AND day = old.day AND kind = (SELECT id FROM stats_group
                WHERE (skill, agent, status, reason) = (old.skill, old.agent, old.status, old.reason));
        END""",
        "CREATE INDEX run_of_parent ON run(parent) WHERE parent != ''",
        """CREATE TABLE user_message (
            seq INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run(id), at REAL NOT NULL, data TEXT NOT NULL)""",
        "CREATE INDEX user_message_of_run ON user_message(run)",
        """CREATE TABLE task (
            seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, spec_id TEXT NOT NULL, title TEXT NOT NULL,
            description TEXT NOT NULL, status TEXT NOT NULL, said_after INTEGER NOT NULL, priority INTEGER NOT NULL,
            dependencies TEXT NOT NULL, assignee TEXT NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
            metadata TEXT NOT NULL, completion_spec TEXT)""",
        """CREATE TABLE attempt (
            seq INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE REFERENCES run(id),
            task INTEGER NOT NULL REFERENCES task(seq))""",
        "CREATE INDEX attempt_of_task ON attempt(task)",
        """CREATE TABLE review_stats (
            day INTEGER NOT NULL, run INTEGER NOT NULL REFERENCES run(seq), stories INTEGER NOT NULL,
            reviews INTEGER NOT NULL, changes_requested INTEGER NOT NULL, capped INTEGER NOT NULL,
            first INTEGER NOT NULL, counted INTEGER NOT NULL, once INTEGER NOT NULL, twice INTEGER NOT NULL,
            thrice INTEGER NOT NULL, four_times INTEGER NOT NULL, oftener INTEGER NOT NULL,
            PRIMARY KEY (day, run)) WITHOUT ROWID""",
        """CREATE TRIGGER review_stats_removed AFTER DELETE ON run_stats BEGIN
            DELETE FROM review_stats WHERE day = old.day AND run = old.run;
        END""",
        """CREATE TABLE landing (
            seq INTEGER PRIMARY KEY, target TEXT NOT NULL, run TEXT NOT NULL, named TEXT NOT NULL, at REAL NOT NULL,
            item TEXT NOT NULL, step TEXT NOT NULL)""",
        "CREATE INDEX landing_of_target ON landing(target)",
    ),
)


def schema_version(database: Connection) -> int:
    """The schema version of a file; 0 for a file without tables."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def require_schema_version(found: int, expected: int, path: str) -> None:
    """Raise Refused for a file of another schema version, with the command that moves the state folder away."""
    if found in (0, expected):
        return
    import shlex

    folder = _state_folder(path)
    kept = _unused_path(f"{folder}.old")
    writer = "an older version of ralph;" if found < expected else "a newer version of ralph; use that version, or"
    raise Refused(f"{folder} was written by {writer} move it away: mv {shlex.quote(folder)} {shlex.quote(kept)}")


def _state_folder(path: str) -> str:
    """The state folder of a database: its own folder, or the one above `repos/<id>`."""
    folder = os.path.dirname(path)
    parent = os.path.dirname(folder)
    return os.path.dirname(parent) if os.path.basename(parent) == "repos" else folder


def _unused_path(path: str) -> str:
    name, number = path, 1
    while os.path.lexists(name):
        number += 1
        name = f"{path}-{number}"
    return name


def create_tables(database: Connection, schema: DatabaseSchema = LEDGER_SCHEMA) -> None:
    """Create the tables of an empty file in one transaction. The caller holds a lock against concurrent creation."""
    if schema_version(database):
        return
    database.execute("BEGIN IMMEDIATE")
    for statement in schema.statements:
        database.execute(statement)
    database.execute(f"PRAGMA user_version = {schema.version}")
    database.execute("COMMIT")
