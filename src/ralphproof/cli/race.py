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

ABOUT = f"""several agents at one task, each in a worktree of its own; the first whose work is verified wins.

N of them begin at the commit that you are on. As soon as the checks pass for one, the others are ended; what they did
is kept in their refs. With --best all go to their end, and the best of the verified ones wins, by these criteria from
the weightiest on: checks, judge (criteria of --judge that are met), diff (fewer changed lines), cost, time. Usual is
{",".join(DEFAULT_CRITERIA)}. The winner's work is on its branch; your files stay as they are.
Exit codes: 0 somebody won, 1 nobody did, 2 refused, 130 interrupted."""
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
    ("--detach", "--detach: ralph race cannot be detached in this version; nohup ralph race … & does it"),
)


def build_parser() -> Parser:
    parser = Parser("race", ABOUT, EXAMPLES, UNAVAILABLE_FLAGS)
    add = parser.add_argument
    add("count", nargs="?", metavar="N", help=f"how many race, {MIN_AGENTS} to {MAX_AGENTS}")
    add("words", nargs="?", metavar="PROMPT", help="the same as --prompt")
    add_prompt_flags(parser)
    add("--agent", action="append", metavar="CMD", help=f"{AGENT_HELP}; repeatable: they take turns")
    add("--model", action="append", metavar="M", help="a model; repeatable: one for each agent, or all for one agent")
    add(
        "-m",
        "--maximum-iterations",
        "-n",
        "--max-iterations",
        type=positive_int,
        metavar="N",
        help="most for each of them",
    )
    add_limit_flags(parser)
    add("--total-cost-usd", type=positive_number, metavar="USD", help="stop all when they have spent so much together")
    add("--best", action="store_true", help="let all go to their end, and take the best")
    add(
        "--by",
        metavar="LIST",
        help=f"with --best: criteria, the weightiest first (default {','.join(DEFAULT_CRITERIA)})",
    )
    add("--parallel", type=positive_int, metavar="N", help="so many at a time (default: all)")
    add("--resume", metavar="RACE", help="go on with a race that was cut off; latest is the newest")
    add("--dry-run", action="store_true", help="say who would race; start nothing")
    return parser


def main(argv: list[str]) -> int:
    args = parse_with_prompt(argv, build_parser())
    from ralphproof.landing.race import Race

    if args.resume is not None:
        if args.count is not None or args.prompt is not None or args.prompt_file is not None:
            raise Refused("--resume goes on with a race as it was begun; leave all else away")
        return Race.resumed(args).run()
    if not (args.count or "").isdigit() or not MIN_AGENTS <= int(args.count) <= MAX_AGENTS:
        raise Refused(f"say how many race: a number from {MIN_AGENTS} to {MAX_AGENTS}, such as ralph race 3 -p …")
    if args.by is not None and not args.best:
        raise Refused("--by says how the best is found; add --best")
    return Race.begun(args, lambda agent, model: race_request(args, agent, model)).run()


def race_request(args: Namespace, agent: str, model: str) -> RunRequest:
    """What the command line asks of one of them."""
    from ralphproof.cli.run import prompt_from_flags
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.request_flags import check_settings_from_flags, drop_unset, is_guarded

    most = [limit for limit in (args.max_cost_usd, args.total_cost_usd) if limit is not None]
    flags = {
        "maximumIterations": args.maximum_iterations,
        "agent": {"command": agent or None, "model": model or None},
        "limits": {"maxCostUsd": min(most, default=None), "maxMinutes": args.max_minutes, "maxTokens": args.max_tokens},
        "sandbox": {"backend": args.sandbox},
    }
    return RunRequest(
        prompt_from_flags(args), drop_unset(flags) | check_settings_from_flags(args), args.project_dir, tuple(args.check or ()),
        tuple(args.protect or ()), find_checks=True, allow_missing_check=args.allow_missing_check,
        guarded=is_guarded(args), allow_unknown_cost=args.allow_unknown_cost, verbose=args.verbose,
        judge=tuple(args.judge or ()), allow_hosts=tuple(args.allow_host or ()), may_change=tuple(args.may_change or ()),
        in_worktree=True,
    )  # fmt: skip
