"""The pages of `docs/` that are made from the program itself: `python -m tests.cli.pages` writes them anew."""

from __future__ import annotations

from argparse import SUPPRESS, Action
from collections.abc import Iterator
from pathlib import Path

from ralphproof.cli.parser import Parser
from ralphproof.cli.verbs import VERBS, verb_function, verb_module
from ralphproof.engine.limits import ABORT_REASONS
from ralphproof.settings.reference import reference_markdown as settings_markdown
from ralphproof.views.published_json import reference_markdown

DOCS = Path(__file__).resolve().parents[2] / "docs"
INTRODUCTION = """\
# Commands

`ralph VERB --help` says the same. `RUN` is a run's id, a beginning of it that no other run has, or `latest`: the newest
run of the project, in whichever worktree. A run that an agent of another run began is part of that one, and never the
latest. A verb that took the latest says which run that is.

Exit codes: 0 completed, 1 a limit or a tripwire ended the run, 2 refused, 3 a fault of ralph's own, 4 waiting for
somebody, 130 interrupted or cancelled. A verb that means something else by one says so.
"""


def pages() -> dict[Path, str]:
    """Every such page and what must stand in it."""
    return {
        DOCS / "commands.md": commands(),
        DOCS / "settings.md": settings_markdown(),
        DOCS / "json.md": json_lines(),
    }


JSON = """\
# JSON

Every command takes `--json` and prints one object on standard output. Progress for people goes to standard error. The
same object has the same fields in every output: `ralph run --json`, `status --json`, `runs --json`, `watch --json`, the
HTTP API of `ralph serve`, `outcome.json` and the proof. `ralph schema NOUN` prints its JSON Schema.

- Every object has `v`, the version, and `type`, its noun. `v` is raised when a field changes its meaning or goes; new
  fields and types may come at any time.
- A name has one type and one meaning wherever it occurs. An object has its own key under `id`, `number` or `name`;
  others refer to it by its noun: `run`, `iteration`, `task`.
- Times are ISO 8601 in UTC. Money is an object: `usd`, and `atLeast`, which is true where a part is unknown. What is
  unknown is null, never zero.

`ralph run --json` prints one `event` a line, in the order in which things happen, each once it is in the ledger: its
`type` says what happened, and its `data` is the object that it is about. With `-V` what the agent says and does comes
too, as it happens. `ralph attach --json` prints the same lines from where it came in, after a first one of the type
`run.attached`. `ralph work --json` prints the lines of every run, and ends with one of the type `work`.

This page is made by `python -m tests.cli.pages`.

"""
REASONS = """
## Reasons of an aborted run

| reason | exit code | can be resumed | meaning |
|---|---|---|---|
"""
STORIES = """
## Verbs about stories

| type | fields |
|---|---|
| `init` | `path`, `settings` (null: those that were there stay); with stories `stories` |
| `plan` | `status`, `mode`, `valid`, `prd`, `tasks`, `stories`, `next`, `sentBack`, `problems` and others |
| `archive` | `action`, `archive`, `folder`, `commit`, `completed`, `total`, `concerns`, `remarks` |
| `plugin` | `plugin`, `version`, `path`; but for `ralph plugin path` also `agents`, `warnings` |

`stories` of `init` has `folder`, the paths that were `written` and `kept`, `setAside` (by the path, where `--force` put
what was there), `ignored` (whether a line was added to `.gitignore`) and `verifyCommands`.
`mode` of `plan` is `full` or `tasks`: both files are written, or the stories alone. Each of its `stories` has `id`,
`title`, `priority`, `dependsOn` and the number of `acceptanceCriteria`. `copies` is the folder with what was there
before, null where nothing was written anew; there are also `remarks` and `exitCode`. `run` is null for a plan at your
terminal; with `--from` the fields of `outcome.json` come too. `next` is the command that begins the loop, null where
the plan is not `valid`.
`action` of `archive` is `archived`, or `finished`: an archive that a crash interrupted, with nothing new to archive.
Each of `agents` of `plugin` has `agent`, its `program`, whether it is `installed` there, the `commands` that were
given, and an `error` or null.
"""


def json_lines() -> str:
    """The published objects, and the reasons of aborted runs."""
    reasons = "\n".join(
        f"| `{name}` | {one.exit_code} | {'yes' if one.resumable else 'no'} | {one.sentence} |"
        for name, one in ABORT_REASONS.items()
    )
    return JSON + "\n".join(reference_markdown()).rstrip("\n") + "\n" + REASONS + reasons + "\n" + STORIES


def commands() -> str:
    """All verbs, with their arguments and examples."""
    parsers = {verb: verb_function(verb, "parser")() for verb in VERBS}
    common = {flag for action in Parser("", "", ())._actions for flag in action.option_strings}
    shared = [action for action in parsers["run"]._actions if {*action.option_strings} & common]
    parts = [INTRODUCTION, "## Flags that every verb takes\n", *_table(shared)]
    for verb, parser in parsers.items():
        parts += _verb(f"## `ralph {verb}`", parser, common)
        module = verb_module(verb)
        for inner, below in module.SUBVERBS.build_parsers().items() if hasattr(module, "SUBVERBS") else ():
            parts += _verb(f"### `ralph {verb} {inner}`", below, common)
    return "\n".join(parts)


def _verb(heading: str, parser: Parser, common: set[str]) -> Iterator[str]:
    own = [action for action in parser._actions if not {*action.option_strings} & common]
    yield from (f"{heading}\n", f"{_sentence(parser.description)}\n", *_table(own))
    yield f"```sh\n{_examples(parser)}\n```\n"


def _sentence(about: str | None) -> str:
    text = about or ""
    return text[:1].upper() + text[1:]


def _examples(parser: Parser) -> str:
    lines = (parser.epilog or "").splitlines()[1:]
    return "\n".join(line.strip() for line in lines)


def _table(actions: list[Action]) -> Iterator[str]:
    if shown := [action for action in actions if action.help != SUPPRESS]:
        rows = "\n".join(f"| {_name(action)} | {(action.help or '').replace('|', '&#124;')} |" for action in shown)
        yield f"| argument | meaning |\n|---|---|\n{rows}\n"


def _name(action: Action) -> str:
    if not action.option_strings:
        chosen = ", ".join(f"`{word}`" for word in action.choices or ())
        return chosen or f"`{action.metavar or action.dest.upper()}`"
    takes = f" {action.metavar}" if action.metavar else ""
    return ", ".join(f"`{flag}{takes if flag == action.option_strings[-1] else ''}`" for flag in action.option_strings)


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
