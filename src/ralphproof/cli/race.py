"""`ralph race`: several agents at one task."""

from __future__ import annotations

import os
from argparse import Namespace

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import Json
from ralphproof.cli.parser import Parser, positive_number
from ralphproof.cli.run_flags import (
    add_loop_flags,
    add_prompt_flags,
    bounded_settings,
    loop_request,
    parse_with_prompt,
    progress_printer,
    prompt_from_flags,
)
from ralphproof.display.output import print_json, print_lines
from ralphproof.display.phrases import format_cost, format_duration
from ralphproof.display.terminal import DisplayFlags
from ralphproof.engine.limits import Spend
from ralphproof.landing.race import (
    Race,
    RaceOutcome,
    RaceRecord,
    RaceResult,
    load_race,
    prepare_race,
)
from ralphproof.process.signals import SignalRouter
from ralphproof.runs.displays import PoolDisplay
from ralphproof.runs.execute import RunPool
from ralphproof.runs.open_project import open_project
from ralphproof.runs.request import RunRequest
from ralphproof.runs.spec import RunSpec
from ralphproof.store.project import Project
from ralphproof.store.spend import InProcessSharedBudget

ABOUT = """Let several agents work on one task, each in its own worktree; the first verified one wins.

N agents start at your current commit. As soon as the checks pass for one, the others are ended; their work is kept in
their refs. The winner's work is on its branch; your files stay.
Exit codes: 0 an agent won, 1 none did, 2 refused, 130 interrupted."""
EXAMPLES = (
    'ralph race 3 -p "make the tests pass" --check "make test"',
    'ralph race 2 -f prompt.md --agent claude --agent codex --check "make test" --total-cost-usd 10',
    'ralph race 3 -f prompt.md --agent claude --model haiku --model sonnet --model opus --check "make test"',
    'ralph race 2 -p "fix it" --agent "mytool --temperature 0" --agent "mytool --temperature 1" --check ./verify.sh',
    "ralph race --resume latest",
)
MIN_AGENTS, MAX_AGENTS = 2, 64
UNAVAILABLE_FLAGS = (
    ("--detach", "--detach: ralph race cannot be detached in this version; use: nohup ralph race … &"),
)


def race_parser() -> Parser:
    parser = Parser("race", ABOUT, EXAMPLES, UNAVAILABLE_FLAGS)
    add = parser.add
    add("count", f"number of agents, {MIN_AGENTS} to {MAX_AGENTS}", nargs="?", metavar="N")
    add("words", "same as --prompt", nargs="?", metavar="PROMPT")
    add_prompt_flags(parser)
    add("--agent CMD", "agent command; repeatable: assigned in turn", action="append")
    add("--model M", "model; repeatable: one per agent, or several for one agent", action="append")
    add_loop_flags(parser)
    add("--total-cost-usd USD", "cost limit for all agents together", type=positive_number)
    add("--resume RACE", "continue an interrupted race; latest is the newest")
    add("--dry-run", "print the agents; start nothing")
    return parser


def race_main(argv: list[str]) -> int:
    args = parse_with_prompt(argv, race_parser())
    if args.resume is not None:
        if args.count is not None or args.prompt is not None or args.prompt_file is not None:
            raise Refused("--resume continues a race with its own arguments; give no others")
        project = open_project(args.project_dir, os.environ)
        return _run(args, project, load_race(project, args.resume))
    if not (args.count or "").isdigit() or not MIN_AGENTS <= int(args.count) <= MAX_AGENTS:
        raise Refused(f"give the number of agents, {MIN_AGENTS} to {MAX_AGENTS}, for example: ralph race 3 -p …")
    total = None if args.total_cost_usd is None else round(args.total_cost_usd * 1_000_000)
    agents, models = tuple(args.agent or ()), tuple(args.model or ())
    record, specs = prepare_race(
        int(args.count), agents, models, total, lambda agent, model: race_request(args, agent, model)
    )
    return _run(args, specs[0].project, record, specs)


def _run(args: Namespace, project: Project, record: RaceRecord, specs: list[RunSpec] | None = None) -> int:
    """Run a race; `specs` are those of a new one, whose worktrees are created first."""
    if args.dry_run:
        return _print_outcome(args, project, record, RaceOutcome(()))
    pool = RunPool(PoolDisplay(DisplayFlags.of(args)), SignalRouter(), InProcessSharedBudget(record.total_micro_usd))
    race = Race(project, record, pool, progress_printer(project, args.quiet))
    if specs is not None:
        race.create_worktrees(specs)
    return _print_outcome(args, project, record, race.run())


def _print_outcome(args: Namespace, project: Project, record: RaceRecord, outcome: RaceOutcome) -> int:
    """Print the winner, every result and the cost; the exit code."""
    if args.json:
        print_json("race", _race_json(record, outcome, args.dry_run))
        return outcome.exit_code
    lines = [_result_line(one) for one in outcome.results]
    lines = lines or [f"{one.label}  would race" for one in record.entries]
    if not args.dry_run:
        lines.append(_verdict_line(record, outcome.results, outcome.winner, outcome.branch))
    print_lines(*(collapse_lines(sanitize(project.mask(line))) for line in lines))
    return outcome.exit_code


def _result_line(one: RaceResult) -> str:
    facts = [one.why, format_duration(one.seconds), _total_cost((one,))]
    return f"{one.entry.label}  {', '.join(facts)}; run {one.run}"


def _verdict_line(record: RaceRecord, results: tuple[RaceResult, ...], winner: RaceResult | None, branch: str) -> str:
    spent = f"all together: {_total_cost(results)}"
    if winner is None:
        return f"Race {record.id}: nobody won; {spent}"
    where = f"its work is on branch {branch}; take it: git merge {branch}" if branch else f"run {winner.run}"
    return f"Race {record.id}: {winner.entry.label} won, the first that was verified; {where}; {spent}"


def _total_cost(results: tuple[RaceResult, ...]) -> str:
    known = [one.micro_usd for one in results if one.micro_usd is not None]
    return format_cost(Spend(sum(known), unpriced=len(results) - len(known)))


def _race_json(record: RaceRecord, outcome: RaceOutcome, dry_run: bool) -> dict[str, Json]:
    results, winner = outcome.results, outcome.winner
    entrants: list[Json] = [
        {"number": one.number, "agent": one.agent or None, "model": one.model or None} for one in record.entries
    ]
    unknown = any(one.micro_usd is None for one in results)
    spent = sum(one.micro_usd or 0 for one in results) / 1_000_000
    return {
        "race": record.id, "dryRun": dry_run, "entrants": entrants,
        "arrivals": [_result_json(one) for one in results], "winner": winner.run if winner else None,
        "branch": outcome.branch or None, "costUSD": None if unknown else spent, "atLeastUSD": spent,
        "exitCode": outcome.exit_code,
    }  # fmt: skip


def _result_json(one: RaceResult) -> Json:
    return {
        "number": one.entry.number, "run": one.run, "verified": one.verified, "end": one.why,
        "costUSD": None if one.micro_usd is None else one.micro_usd / 1_000_000,
        "seconds": round(one.seconds, 3),
    }  # fmt: skip


def race_request(args: Namespace, agent: str, model: str) -> RunRequest:
    """The request for one agent."""
    chosen = {name: given for name, given in (("command", agent), ("model", model)) if given}
    settings = bounded_settings(args) | ({"agent": chosen} if chosen else {})
    return loop_request(args, prompt_from_flags(args), settings, in_worktree=True)
