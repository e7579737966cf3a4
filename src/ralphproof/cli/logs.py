"""`ralph logs`: output of the agent, checks and hooks of a run."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import sanitize
from ralphproof.cli.parser import Parser, find_named_run, positive_int
from ralphproof.display.output import print_json
from ralphproof.runs.open_project import view_project
from ralphproof.store.run_state import refuse_collected_run
from ralphproof.views.logs import LineSplitter, LogFilter, LogOutput, RunLogs, format_scripted_event, log_part_json

ABOUT = "Show the output of the agent and the checks of a run, in the order in which they ran."
EXAMPLES = (
    "ralph logs",
    "ralph logs -f",
    "ralph logs 20261115-21 --iteration 2 --checks",
    "ralph logs --agent --stderr",
    "ralph logs --raw --agent --iteration 1 > agent.ndjson",
)


def logs_parser() -> Parser:
    parser = Parser("logs", ABOUT, EXAMPLES)
    add = parser.add
    parser.add_run()
    add("-f, --follow", "follow until the run ends")
    add("--iteration N", "only this iteration; 0: the checks before the first one", type=iteration_number)
    add("--agent", "the agent's output; with the next three: only the named ones")
    add("--checks", "output of the checks")
    add("--prompt", "the prompts")
    add("--stderr", "the agent's standard error")
    add("--raw", "print unescaped bytes: unsafe on a terminal")
    return parser


def iteration_number(text: str) -> int:
    """An iteration number, or 0."""
    return 0 if text == "0" else positive_int(text)


def logs_main(argv: list[str]) -> int:
    args = logs_parser().parse(argv)
    if args.follow and args.json:
        raise Refused("-f and --json cannot be combined; to follow a run as JSON: ralph attach --json")
    project = view_project(args.project_dir, os.environ)
    with project.ledger() as ledger:
        row = find_named_run(ledger, args.run, args)
        refuse_collected_run(project, row.id)
        logs = RunLogs(ledger, project, row, _log_filter(args))
        if not (args.follow and logs.active):  # a followed run may yet begin the iteration
            logs.refuse_missing_iteration()
        if args.json:
            print_json("logs", {"run": row.id, "logs": [log_part_json(part) for part in logs.parts()]})
        elif args.raw:
            _print_raw(logs.follow() if args.follow else logs.read())
        else:
            _print_text(logs.follow() if args.follow else logs.read(), logs.scripted)
    return 0


def _log_filter(args: Namespace) -> LogFilter:
    return LogFilter(args.iteration, args.agent, args.checks, args.prompt, args.stderr)


def _print_raw(outputs: Iterator[LogOutput]) -> None:
    for output in outputs:
        sys.stdout.flush()
        for chunk in output.chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.flush()


def _print_text(outputs: Iterator[LogOutput], scripted: bool) -> None:
    """Print lines that no terminal would obey; of the scripted agent's events what it said and did."""
    lines = LineSplitter()
    for output in outputs:
        if output.opened:
            lines = LineSplitter()
            print(sanitize(output.part.heading))
        events = scripted and output.part.path.endswith(".ndjson")
        for chunk in output.chunks:
            _print_lines(lines.feed(chunk), events)
        if output.finished:
            _print_lines(lines.end(), events)
            print()
        sys.stdout.flush()


def _print_lines(lines: Iterable[str], events: bool) -> None:
    for line in lines:
        sys.stdout.write(sanitize(format_scripted_event(line) if events else line))
