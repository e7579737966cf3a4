"""`ralph race`: several agents at one task."""

from __future__ import annotations

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser, positive_int, positive_number
from ralphproof.cli.run import AGENT_HELP, add_limit_flags, add_prompt_flags, parse_with_prompt
from ralphproof.landing.race import DEFAULT_CRITERIA

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.runs.request import RunRequest

ABOUT = f"""Let several agents work on one task, each in its own worktree; the first verified one wins.

N agents start at your current commit. As soon as the checks pass for one, the others are ended; their work is kept in
their refs. With --best all run to their end, and the best of the verified ones wins, by these criteria in order of
weight: checks, judge (criteria of --judge that are met), diff (fewer changed lines), cost, time. Default:
{",".join(DEFAULT_CRITERIA)}. The winner's work is on its branch; your files stay.
Exit codes: 0 an agent won, 1 none did, 2 refused, 130 interrupted."""
EXAMPLES = (
    'ralph race 3 -p "make the tests pass" --check "make test"',
    'ralph race 2 -f prompt.md --agent claude --agent codex --check "make test" --total-cost-usd 10',
    'ralph race 3 -f prompt.md --agent claude --model haiku --model sonnet --model opus --check "make test" --best',
    'ralph race 2 -p "fix it" --agent "mytool --temperature 0" --agent "mytool --temperature 1" --check ./verify.sh',
    'ralph race 4 -f prompt.md --check "make test" --judge "the API stays as it is" --best --by judge,cost',
    "ralph race --resume latest",
)
MIN_AGENTS, MAX_AGENTS = 2, 64
UNAVAILABLE_FLAGS = (
    ("--detach", "--detach: ralph race cannot be detached in this version; use: nohup ralph race … &"),
)


def build_parser() -> Parser:
    parser = Parser("race", ABOUT, EXAMPLES, UNAVAILABLE_FLAGS)
    add = parser.add_argument
    add("count", nargs="?", metavar="N", help=f"number of agents, {MIN_AGENTS} to {MAX_AGENTS}")
    add("words", nargs="?", metavar="PROMPT", help="same as --prompt")
    add_prompt_flags(parser)
    add("--agent", action="append", metavar="CMD", help=f"{AGENT_HELP}; repeatable: assigned in turn")
    add("--model", action="append", metavar="M", help="model; repeatable: one per agent, or several for one agent")
    add(
        "-m",
        "--maximum-iterations",
        "-n",
        "--max-iterations",
        type=positive_int,
        metavar="N",
        help="most iterations per agent",
    )
    add_limit_flags(parser)
    add("--total-cost-usd", type=positive_number, metavar="USD", help="cost limit for all agents together")
    add("--best", action="store_true", help="let all finish and take the best")
    add(
        "--by",
        metavar="LIST",
        help=f"with --best: criteria by weight (default {','.join(DEFAULT_CRITERIA)})",
    )
    add("--parallel", type=positive_int, metavar="N", help="most concurrent agents (default: all)")
    add("--resume", metavar="RACE", help="continue an interrupted race; latest is the newest")
    add("--dry-run", action="store_true", help="print the agents; start nothing")
    return parser


def main(argv: list[str]) -> int:
    args = parse_with_prompt(argv, build_parser())
    from ralphproof.landing.race import Race

    if args.resume is not None:
        if args.count is not None or args.prompt is not None or args.prompt_file is not None:
            raise Refused("--resume continues a race with its own arguments; give no others")
        return Race.resumed(args).run()
    if not (args.count or "").isdigit() or not MIN_AGENTS <= int(args.count) <= MAX_AGENTS:
        raise Refused(f"give the number of agents, {MIN_AGENTS} to {MAX_AGENTS}, for example: ralph race 3 -p …")
    if args.by is not None and not args.best:
        raise Refused("--by needs --best")
    return Race.begun(args, lambda agent, model: race_request(args, agent, model)).run()


def race_request(args: Namespace, agent: str, model: str) -> RunRequest:
    """The request for one agent."""
    from ralphproof.cli.run import prompt_from_flags
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.request_flags import check_settings_from_flags, drop_unset, is_guarded

    cost_limits = [limit for limit in (args.max_cost_usd, args.total_cost_usd) if limit is not None]
    flags = {
        "maximumIterations": args.maximum_iterations,
        "agent": {"command": agent or None, "model": model or None},
        "limits": {
            "maxCostUsd": min(cost_limits, default=None),
            "maxMinutes": args.max_minutes,
            "maxTokens": args.max_tokens,
        },
        "sandbox": {"backend": args.sandbox},
    }
    return RunRequest(
        prompt_from_flags(args), drop_unset(flags) | check_settings_from_flags(args), args.project_dir,
        tuple(args.check or ()), tuple(args.protect or ()), find_checks=True,
        allow_missing_check=args.allow_missing_check,
        guarded=is_guarded(args), allow_unknown_cost=args.allow_unknown_cost, verbose=args.verbose,
        judge=tuple(args.judge or ()), allow_hosts=tuple(args.allow_host or ()),
        may_change=tuple(args.may_change or ()),
        in_worktree=True,
    )  # fmt: skip
