"""Rules on destroying data in databases."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.matching import shown, told
from ralphproof.guard.nested import SQL
from ralphproof.guard.simple import Simple, named, split
from ralphproof.guard.verdict import Objection, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.matching import Table
    from ralphproof.guard.verdict import Ground

DROP = Rule(
    "sql-drop", "database", "drops tables, schemas or whole databases",
    "write a migration, and try it on a test database",
)  # fmt: skip
ALL_ROWS = Rule(
    "sql-all-rows", "database", "changes or deletes every row of a table",
    "add a WHERE that names the rows",
)  # fmt: skip
FLUSH = Rule("store-flush", "database", "empties a whole data store", "delete single keys or documents")
RESET = Rule(
    "schema-reset", "database", "drops and rebuilds a database",
    "migrate forward, or set the test environment",
)  # fmt: skip
FROM_FILE = Rule(
    "sql-file-drop", "database", "runs a file of SQL whose name says that it destroys",
    "show what is in it, and run a migration",
)  # fmt: skip
RULES = (DROP, ALL_ROWS, FLUSH, RESET, FROM_FILE)
SPEAK_SQL = {
    "psql", "mysql", "mariadb", "sqlite3", "sqlcmd", "clickhouse-client", "clickhouse", "cqlsh", "duckdb", "sqlplus",
    "usql",
    "pgcli", "mycli", "bq", "snowsql", "cockroach", SQL,
}  # fmt: skip
MONGO = {"mongosh", "mongo"}
COMMENT = re.compile(r"--[^\n]*")
TEXT = re.compile(r"'[^']*'")
DROPS = re.compile(
    r"\b(drop\s+(database|schema|table|keyspace|view|materialized|role|user|owned|collection|index\s+concurrently)"
    r"|truncate\s+(table\s+)?\w|alter\s+table\s+\S+\s+drop)\b|\btruncate\b\s+\w", re.IGNORECASE
)  # fmt: skip
ROWS = re.compile(r"\b(delete\s+from|update\s+\S+\s+set)\b", re.IGNORECASE)
WHERE = re.compile(r"\b(where|limit)\b", re.IGNORECASE)
MONGO_DROPS = re.compile(r"dropDatabase|\.drop\s*\(|deleteMany\s*\(\s*\{\s*\}|remove\s*\(\s*\{\s*\}")
DESTROYS = re.compile(r"(^|[/_-])(drop|truncate|wipe|nuke|destroy|purge)", re.IGNORECASE)
TABLE: Table = {
    "dropdb": (("", DROP),), "dropuser": (("", DROP),), "mysqladmin": (("drop", DROP),),
    "pg_restore": (("+-c|--clean", DROP),),
    "redis-cli": (("FLUSHALL|FLUSHDB|flushall|flushdb|Flushall", FLUSH),),
    "valkey-cli": (("FLUSHALL|flushall|FLUSHDB|flushdb", FLUSH),),
    "prisma": (("migrate reset", RESET), ("db push +--force-reset|--accept-data-loss", RESET)),
    "sequelize-cli": (("db:drop|db:migrate:undo:all", RESET),), "sequelize": (("db:drop|db:migrate:undo:all", RESET),),
    "rails": (("db:drop*|db:reset*|db:purge*|db:schema:load*", RESET),),
    "rake": (("db:drop*|db:reset*|db:purge*", RESET),),
    "artisan": (("migrate:fresh|migrate:reset|db:wipe|migrate:refresh", RESET),),
    "alembic": (("downgrade base", RESET),),
    "mix": (("ecto.drop|ecto.reset", RESET),), "typeorm": (("schema:drop", RESET),),
    "knex": (("migrate:rollback +--all", RESET),),
    "manage.py": (("flush|reset_db|sqlflush", RESET),), "flyway": (("clean", RESET),),
    "diesel": (("database reset|drop", RESET),),
    "supabase": (("db reset", RESET),), "dbmate": (("drop", RESET),), "goose": (("* * reset", RESET),),
    "drizzle-kit": (("drop", RESET),), "doctrine": (("database:drop|schema:drop", RESET),),
    "influx": (("bucket delete", DROP),),
}  # fmt: skip
TAKES = {"redis-cli": "-h -p -n -a -u --user", "mysqladmin": "-u -p -h", "alembic": "-c -n"}
TESTS = ("RAILS_ENV", "NODE_ENV", "APP_ENV", "MIX_ENV", "DJANGO_ENV", "RACK_ENV", "FLASK_ENV")


def found(one: Simple, _: Ground) -> Iterator[Objection]:
    """What a command does to data."""
    if one.name in SPEAK_SQL:
        yield from _sql(one)
    elif one.name in MONGO:
        if any(MONGO_DROPS.search(text) for text in _texts(one)):
            yield FLUSH.about(shown(one))
    elif not any(name in TESTS and "test" in text for name, text in one.given):
        yield from told(_program(one), TABLE, TAKES)


def _program(one: Simple) -> Simple:
    """`python manage.py flush` and `php artisan x` are commands of the script."""
    from ralphproof.base.value import replace

    if one.name in ("python", "php") and len(one.words) > 1 and named(one.words[1]) in TABLE:
        return replace(one, words=one.words[1:])
    return one


def _texts(one: Simple) -> list[str]:
    return [*one.words[1:], *([one.text] if one.text else [])]


def _bare(text: str) -> str:
    """SQL without its comments and texts."""
    first, *rest = text.replace('"', " ").split("/*")
    plain = first + " ".join(part.partition("*/")[2] for part in rest)
    return COMMENT.sub(" ", TEXT.sub(" '' ", plain))


def _sql(one: Simple) -> Iterator[Objection]:
    if ":memory:" in one.words:
        return
    options, _ = split(one.words[1:], ("-f", "--file"))
    if any(option.startswith(("-f=", "--file=")) and DESTROYS.search(option.partition("=")[2]) for option in options):
        yield FROM_FILE.about(shown(one))
    for text in _texts(one):
        for statement in _bare(text).split(";"):
            if DROPS.search(statement):
                yield DROP.about(shown(one))
            elif ROWS.search(statement) and not WHERE.search(statement):
                yield ALL_ROWS.about(shown(one))
