"""`ralph race`: several agents at one task, each in a worktree of its own; the first whose work is verified wins."""

from __future__ import annotations

from ralphproof.cli.parser import Parser, amount, positive
from ralphproof.cli.run import AGENT, add_bounds, add_prompt, parsed
from ralphproof.contest import USUAL
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.cli.order import Wish

ABOUT = f"""several agents at one task, each in a worktree of its own; the first whose work is verified wins.

N of them begin at the commit that you are on. As soon as the checks pass for one, the others are ended; what they did
is kept in their refs. With --best all go to their end, and the best of the verified ones wins, by these criteria from
the weightiest on: checks, judge (criteria of --judge that are met), diff (fewer changed lines), cost, time. Usual is
{",".join(USUAL)}. The winner's work is on its branch; your files stay as they are.
Exit codes: 0 somebody won, 1 nobody did, 2 refused, 130 interrupted."""
EXAMPLES = (
    'ralph race 3 -p "make the tests pass" --check "make test"',
    'ralph race 2 -f prompt.md --agent claude --agent codex --check "make test" --total-cost-usd 10',
    'ralph race 3 -f prompt.md --agent claude --model haiku --model sonnet --model opus --check "make test" --best',
    'ralph race 2 -p "fix it" --agent "mytool --temperature 0" --agent "mytool --temperature 1" --check ./verify.sh',
    'ralph race 4 -f prompt.md --check "make test" --judge "the API stays as it is" --best --by judge,cost',
    "ralph race --resume latest",
)
FEWEST, MOST = 2, 64
ABSENT = (("--detach", "--detach: ralph race cannot be detached in this version; nohup ralph race … & does it"),)


def parser() -> Parser:
    made = Parser("race", ABOUT, EXAMPLES, ABSENT)
    add = made.add_argument
    add("count", nargs="?", metavar="N", help=f"how many race, {FEWEST} to {MOST}")
    add("words", nargs="?", metavar="PROMPT", help="the same as --prompt")
    add_prompt(made)
    add("--agent", action="append", metavar="CMD", help=f"{AGENT}; repeat it: they take turns")
    add("--model", action="append", metavar="M", help="a model; repeat it: one for each agent, or all for one agent")
    add(
        "-m", "--maximum-iterations", "-n", "--max-iterations", type=positive, metavar="N", help="most for each of them"
    )
    add_bounds(made)
    add("--total-cost-usd", type=amount, metavar="USD", help="stop all when they have spent so much together")
    add("--best", action="store_true", help="let all go to their end, and take the best")
    add("--by", metavar="LIST", help=f"with --best: criteria, the weightiest first (default {','.join(USUAL)})")
    add("--parallel", type=positive, metavar="N", help="so many at a time (default: all)")
    add("--resume", metavar="RACE", help="go on with a race that was cut off; latest is the newest")
    add("--dry-run", action="store_true", help="say who would race; start nothing")
    return made


def main(argv: list[str]) -> int:
    args = parsed(argv, parser())
    from ralphproof.cli.race_run import Race

    if args.resume is not None:
        if args.count is not None or args.prompt is not None or args.prompt_file is not None:
            raise Refused("--resume goes on with a race as it was begun; leave all else away")
        return Race.resumed(args).run()
    if not (args.count or "").isdigit() or not FEWEST <= int(args.count) <= MOST:
        raise Refused(f"say how many race: a number from {FEWEST} to {MOST}, such as ralph race 3 -p …")
    if args.by is not None and not args.best:
        raise Refused("--by says how the best is found; add --best")
    return Race.begun(args).run()


def wish_of(args: Namespace, agent: str, model: str) -> Wish:
    """What the command line asks of one of them."""
    from ralphproof.cli.order import Wish
    from ralphproof.cli.run import check_flags, given, guarded, prompt_of

    most = [limit for limit in (args.max_cost_usd, args.total_cost_usd) if limit is not None]
    flags = {
        "maximumIterations": args.maximum_iterations,
        "agent": {"command": agent or None, "model": model or None},
        "limits": {"maxCostUsd": min(most, default=None), "maxMinutes": args.max_minutes, "maxTokens": args.max_tokens},
        "sandbox": {"backend": args.sandbox},
    }
    return Wish(
        prompt_of(args), given(flags) | check_flags(args), args.project_dir, tuple(args.check or ()),
        tuple(args.protect or ()), find_checks=True, allow_missing_check=args.allow_missing_check,
        guarded=guarded(args), allow_unknown_cost=args.allow_unknown_cost, verbose=args.verbose,
        judge=tuple(args.judge or ()), hosts=tuple(args.allow_host or ()), may_change=tuple(args.may_change or ()),
        apart=True,
    )  # fmt: skip
