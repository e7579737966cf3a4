"""`ralph run`: loop an agent on this project until its checks show that the work is done, or a limit says stop."""

from __future__ import annotations

import os
import sys

from ralphproof.claim import same_word, without_tags
from ralphproof.cli.parser import SUPPRESS, Parser, amount, positive
from ralphproof.cli.verbs import VERBS
from ralphproof.errors import Refused, SettingsWrong, StoriesWrong
from ralphproof.keeper.client import Keeper
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import Any

    from ralphproof.cli.begin import Begun
    from ralphproof.cli.order import Order, Wish
    from ralphproof.cli.to_the_end import Which
    from ralphproof.verdict import Outcome

ABOUT = "loop an agent on this project until its checks show that the work is done, or a limit says stop."
EXAMPLES = (
    'ralph run -p "make the tests pass"',
    'ralph run -f prompt.md --check "make test" --check "make lint" -m 20',
    'ralph run -f prompt.md --check "make test" --judge "no secret is written to the log"',
    'ralph run "fix the flaky test" --agent "mytool --batch {prompt_file}" --check ./verify.sh',
    'ralph run --skill tdd "Implement user registration" --max-cost-usd 5',
    'ralph run --skill tdd "Implement user registration" --explain',
    'ralph run -f prompt.md --check "make test" --sandbox --allow-host pypi',
    "ralph run -f - --json < prompt.md",
    'ralph run -p "say hello" --dry-run',
    'ralph run -f prompt.md --check "make test" --detach',
    'ralph run -f prompt.md --check "make test" --worktree',
    "ralph run --resume",
    "ralph run --resume --step",
    "ralph run --resume 20261115-21 -m 30",
)
LATEST = "latest"
NO_NEW_PROMPT = "--resume goes on with the prompt that the run has; to say more: ralph say RUN TEXT"
TYPES = ("feature", "bug", "refactor", "other")
RISKS = ("low", "medium", "high", "critical")
AGENT = "the agent's command (default: the first known one on PATH); a path is relative to the project"


def parser() -> Parser:
    made = Parser("run", ABOUT, EXAMPLES)
    add = made.add_argument
    add("words", nargs="?", metavar="PROMPT", help="the same as --prompt")
    add_prompt(made)
    add("-m", "--maximum-iterations", "-n", "--max-iterations", type=positive, metavar="N", help="stop after so many")
    add("-c", "--completion-response", metavar="WORD", help="the word that claims completion (default DONE)")
    add("--promise", metavar="WORD", help="the same as --completion-response")
    add("--agent", metavar="CMD", help=AGENT)
    add("--model", metavar="M", help="the model that the agent is asked to use")
    add("--preset", metavar="P", help="the style of loop (default harness)")
    add("--skip-review", action="store_true", default=None, help="with stories: do without reviews")
    add("--review-cap", type=positive, metavar="N", help="with stories: review a story at most so often (default 5)")
    add("--ralph-dir", metavar="PATH", help="with stories: their folder, from the project's top (default ralph)")
    add("--skill", metavar="NAME", help="a way of working that the agent is told; see ralph skills list")
    add("--type", choices=TYPES, metavar="TYPE", help=f"what kind of task it is: {', '.join(TYPES)}")
    add("--risk", choices=RISKS, metavar="RISK", help=f"how risky it is: {', '.join(RISKS)}")
    add("--explain", action="store_true", help="say why the task is or is not fit for a loop; start nothing")
    add("--force", action="store_true", help="run a task of high risk all the same")
    add_bounds(made)
    add_ways(made)
    add("--step", action="store_true", help="stop after one iteration, exit 4; --resume --step takes the next one")
    add("--worktree", action="store_true", help="work in a worktree and on a branch of its own, beside your files")
    add("--begin", metavar="RUN", help=SUPPRESS)  # what --detach starts
    return made


def add_prompt(made: Parser) -> None:
    """The flags by which every kind of loop is told what to do."""
    add = made.add_argument
    add("-p", "--prompt", metavar="TEXT", help="what should become true")
    add("-f", "--prompt-file", metavar="FILE", help="the same from a file, read anew each iteration; - is stdin")


def add_bounds(made: Parser) -> None:
    """The flags that say what every kind of loop is held to."""
    add = made.add_argument
    add_checks(made)
    add("--judge", action="append", metavar="CRITERION", help="a criterion that a small model judges; repeat it")
    add("--max-cost-usd", type=amount, metavar="USD", help="stop when the run has spent so much")
    add("--max-minutes", type=amount, metavar="M", help="stop after M minutes")
    add("--max-tokens", type=positive, metavar="N", help="stop when the run has used so many tokens")
    add("--protect", action="append", metavar="PATH", help="a file or folder that no agent may change; repeat it")
    add("--may-change", action="append", metavar="PATH", help="what checks go by, and the work may change; repeat it")
    add("--allow-unknown-cost", action="store_true", help="with a cost limit, run an agent that cannot report its cost")
    add_holding(made)


def add_checks(made: Parser) -> None:
    """The flags that say by which commands the work is checked."""
    add = made.add_argument
    found = "default: those of the settings, else what is found"
    add("--check", action="append", metavar="CMD", help=f"a command that must succeed; repeat it; auto finds ({found})")
    add("--no-check", action="store_true", help="take no checks, neither of the settings nor what is found")
    add("--allow-missing-check", action="store_true", help="begin although a check cannot be run: the agent brings it")


def check_flags(args: Namespace) -> dict[str, Any]:
    """What these flags say in the settings' own shape; raises Refused where they contradict each other."""
    if args.no_check and args.check:
        raise Refused("--no-check and --check contradict each other; give one of them")
    return {"guardrails": [], "finalChecks": []} if args.no_check else {}


def add_holding(made: Parser) -> None:
    """The flags that say what holds an agent."""
    add = made.add_argument
    kinds = "bubblewrap, container, docker-sandbox, landlock, sandbox-exec"
    add("--sandbox", metavar="[=KIND]", help=f"run agents and checks in a sandbox: the strongest, or {kinds}")
    add("--no-sandbox", action="store_true", help="let a known agent do all that you may do, under the command guard")
    add("--allow-host", action="append", metavar="HOST", help="a host that may be reached from the sandbox; repeat it")


def add_ways(made: Parser) -> None:
    """The flags that say how every kind of loop is begun and shown."""
    add = made.add_argument
    add_stream(made)
    add("--resume", nargs="?", const=LATEST, metavar="RUN", help="go on with a run that was cut off, stopped or waits")
    add("--detach", action="store_true", help="let it run by itself; ralph attach looks on")
    add("--dry-run", action="store_true", help="print prompt, argument list and checks; start nothing")


def add_stream(made: Parser) -> None:
    """The flags that say whether the agent's own words are shown."""
    add = made.add_argument
    add("--stream-agent-output", action="store_true", default=None, help="show what the agent prints as it comes")
    add("--no-stream-agent-output", action="store_false", dest="stream_agent_output", help="do not show it")


def main(argv: list[str]) -> int:
    return carry_out(parsed(argv, parser()), wish_of)


def carry_out(args: Namespace, wish_of: Callable[[Namespace], Wish]) -> int:
    """Run, or whatever else the flags want of such a run."""
    if args.detach:
        from ralphproof.cli.detached import detached

        return detached(args, wish_of(args))
    # First of all: the keeper's own start hides behind everything that follows.
    keeper = None if args.dry_run or args.explain else Keeper()
    try:
        return _run(args, keeper, wish_of)
    finally:
        if keeper is not None:
            keeper.close()


def parsed(argv: list[str], made: Parser) -> Namespace:
    """The arguments. The prompt is taken out before they are read: whatever it looks like, it is no flag."""
    rest: list[str] = []
    prompt = None
    words = iter(argv)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word.startswith("--prompt="):
            prompt = word.removeprefix("--prompt=")
        elif word in ("-p", "--prompt") and (text := next(words, None)) is not None:
            prompt = text
        else:
            rest.append(word)
    args = made.parse(rest)
    args.prompt = args.prompt if prompt is None else prompt
    return args


def _run(args: Namespace, keeper: Keeper | None, wish_of: Callable[[Namespace], Wish]) -> int:
    from ralphproof.cli.order import prepare

    wish, which = _meant(args, wish_of)
    try:
        order = prepare(wish)
    except (SettingsWrong, StoriesWrong):
        if keeper is None or args.resume is not None:
            raise
        from ralphproof.cli.leftover import closed_before

        if not (told := closed_before(wish.folder)):
            raise
        order = prepare(wish)
        order = replace(order, remarks=(*told, *order.remarks))
    if wish.apart and keeper is not None and which.row is None and not which.run:
        from ralphproof.cli.apart import begun_apart

        order, which = begun_apart(order)
    if order.fitness is not None and args.explain:
        from ralphproof.cli.explain import show as explain

        return explain(order.fitness, order.skill, args.json)
    if keeper is None:
        from ralphproof.cli.dry import show

        return show(order, args.json)
    from ralphproof.cli.out import let_go

    if order.wish.apart:
        from ralphproof.cli.apart import looped_apart

        outcome = looped_apart(order, keeper, args, which)
    else:
        outcome = looped(order, keeper, args, which)
    let_go()
    return outcome.exit_code


def _meant(args: Namespace, wish_of: Callable[[Namespace], Wish]) -> tuple[Wish, Which]:
    """What is wanted, and of which run."""
    from ralphproof.cli.to_the_end import ANEW, Which

    if args.begin is not None:
        from ralphproof.cli.detached import ordered

        return ordered(args.begin, args.project_dir), Which(args.begin)
    if args.resume is None:
        return wish_of(args), ANEW
    from ralphproof.cli.resume_run import wanted
    from ralphproof.views.project import Project

    if any(text is not None for text in (args.words, args.prompt, args.prompt_file)):
        raise Refused(NO_NEW_PROMPT)
    row, wish = wanted(Project.at(args.project_dir, os.environ), args.resume, wish_of(args))
    return wish, Which(row=row)


def looped(order: Order, keeper: Keeper, args: Namespace, which: Which) -> Outcome:
    """Run it to its end, before the eyes that the flags ask for."""
    from ralphproof.cli.to_the_end import to_the_end
    from ralphproof.cli.view import observers

    return to_the_end(
        order,
        keeper,
        lambda folder, settings: observers(folder, args, settings, order.project.mask),
        lambda begun, outcome: _tell(begun, outcome, order, args),
        which=which,
    )


def _tell(begun: Begun, outcome: Outcome, order: Order, args: Namespace) -> None:
    """Say how it ended, here and elsewhere."""
    from ralphproof.cli.view import say
    from ralphproof.display.clean import clean

    mask = order.project.mask
    say(begun.run if begun.recorded else "", outcome, args, mask)
    for trouble in begun.tell(outcome):
        print(clean(mask(trouble)), file=sys.stderr)


def wish_of(args: Namespace) -> Wish:
    """What the command line asks for."""
    from ralphproof.cli.order import Wish

    prompt = ("", None) if args.resume is not None else prompt_of(args)
    return Wish(
        prompt, flags_of(args) | check_flags(args), args.project_dir, tuple(args.check or ()),
        tuple(args.protect or ()), find_checks=True, allow_missing_check=args.allow_missing_check,
        guarded=guarded(args), allow_unknown_cost=args.allow_unknown_cost, verbose=args.verbose,
        skill=args.skill or "", type=args.type or "", risk=args.risk or "", force=args.force,
        explain=args.explain, judge=tuple(args.judge or ()), stories=args.ralph_dir or "",
        hosts=tuple(args.allow_host or ()), may_change=tuple(args.may_change or ()), apart=args.worktree,
        step=args.step,
    )  # fmt: skip


def guarded(args: Namespace) -> bool:
    """Whether something is to hold the agent; raises Refused where the flags say both."""
    if args.no_sandbox and (args.sandbox is not None or args.allow_host):
        other = "--sandbox" if args.sandbox is not None else "--allow-host"
        raise Refused(f"--no-sandbox and {other} contradict each other; give one of them")
    return not args.no_sandbox


def flags_of(args: Namespace) -> dict[str, Any]:
    """The flags that are settings, in the settings' own shape; what was not given is not there."""
    settings: dict[str, Any] = {
        "preset": args.preset,
        "maximumIterations": args.maximum_iterations,
        "completionResponse": _word(args.completion_response, args.promise),
        "streamAgentOutput": args.stream_agent_output,
        "agent": {"command": args.agent, "model": args.model},
        "review": {"enabled": False if args.skip_review else None, "cap": args.review_cap},
        "limits": {"maxCostUsd": args.max_cost_usd, "maxMinutes": args.max_minutes, "maxTokens": args.max_tokens},
        "sandbox": {"backend": args.sandbox},
    }
    return given(settings)


def given(settings: dict[str, Any]) -> dict[str, Any]:
    """Those settings that hold something."""
    kept = {name: given(item) if isinstance(item, dict) else item for name, item in settings.items()}
    return {name: item for name, item in kept.items() if item is not None and item != {}}


def _word(response: str | None, promise: str | None) -> str | None:
    if response is not None and promise is not None and not same_word(without_tags(response), without_tags(promise)):
        raise Refused("--completion-response and --promise are one setting, and were given two values; give one")
    return response if response is not None else promise


def prompt_of(args: Namespace) -> tuple[str | None, str | None]:
    """(text, file), exactly one of them."""
    if args.words in VERBS:
        raise Refused(f'{args.words} is a command, and a command comes first; if it is a prompt, say -p "{args.words}"')
    given = [text for text in (args.words, args.prompt, args.prompt_file) if text is not None]
    if len(given) > 1:
        raise Refused("give one prompt: --prompt, --prompt-file or PROMPT, not several")
    if not given:
        return None, None  # stories need none
    if args.prompt_file is None:
        return given[0], None
    if args.prompt_file != "-":
        return None, os.path.realpath(args.prompt_file)
    from ralphproof.cli.standard_input import read_text

    return read_text("-f -"), None
