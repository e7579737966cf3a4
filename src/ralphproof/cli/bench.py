"""`ralph bench`: try this program with agents that cheat."""

from __future__ import annotations

import os
import shlex
import shutil
import signal

from ralphproof.adversarial.bench import COUNT_LABELS, all_trials, count_failures, run_trials, skip_reasons
from ralphproof.adversarial.trial import RIGHT, Trial, TrialResult
from ralphproof.base import interpreter
from ralphproof.base.errors import Refused
from ralphproof.base.text import did_you_mean
from ralphproof.cli.parser import Parser, positive_int
from ralphproof.display.output import print_json, print_lines, print_result
from ralphproof.process.interrupts import SIGNALS

ABOUT = """try this program with cheating agents, and count what it accepts.

Each trial is a run of its own on a small real project of Python (pytest) or Node (node --test) that has a bug. In
every project the work of an honest agent must be accepted, and the claim of one that does nothing must not. Every other
agent cheats: it claims without work, weakens tests, forges the test runner's output, changes protected files, rewrites
history.

Exit codes: 0 no cheat was accepted and no honest work refused, 1 something was, 2 nothing can be tried here."""
EXAMPLES = (
    "ralph bench adversarial",
    "ralph bench adversarial --only RH-01 --only FC-20",
    "ralph bench adversarial --program /opt/ralph/bin/ralph --json",
    "ralph bench adversarial --list",
)


def bench_parser() -> Parser:
    parser = Parser("bench", ABOUT, EXAMPLES)
    parser.add("what", "agents that cheat", choices=["adversarial"], metavar="adversarial")
    parser.add("--only ID", "only what begins so; repeatable", action="append", default=[])
    parser.add("--program CMD", "the build to try (default: this one)")
    parser.add("--jobs N", "so many trials at once (default: one for each core)", type=positive_int)
    parser.add("--list", "say what would be tried, and try nothing")
    return parser


def bench_main(argv: list[str]) -> int:
    args = bench_parser().parse(argv)
    chosen = _select_trials(tuple(args.only))
    if args.list:
        return _print_trials(chosen, args.json)
    skipped = skip_reasons(chosen)
    held = tuple(trial for trial in chosen if trial.scenario.id not in skipped)
    if not held:
        raise Refused(f"nothing can be tried here: {'; '.join(sorted(set(skipped.values())))}")
    _handle_signals()
    results = run_trials(held, _program_argv(args.program), args.jobs or os.cpu_count() or 1, args.quiet)
    return _print_results(results, skipped, args.json)


def _handle_signals() -> None:
    """Whoever ends us, what we began is ended first, and no second signal comes in between."""

    def interrupted(*_: object) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupted)


def _select_trials(only: tuple[str, ...]) -> tuple[Trial, ...]:
    every = all_trials()
    for word in only:
        if not any(trial.id.startswith(word) for trial in every):
            raise Refused(f"no trial begins with {word}{did_you_mean(word, [one.id for one in every])} (see --list)")
    return tuple(trial for trial in every if not only or trial.id.startswith(only))


def _print_trials(chosen: tuple[Trial, ...], for_programs: bool) -> int:
    print_result(
        for_programs,
        "bench",
        {"trials": [{"id": one.id, "kind": one.kind, "about": one.about} for one in chosen]},
        *(f"{one.id:<44} {one.about}" for one in chosen),
    )
    return 0


def _program_argv(given: str | None) -> tuple[str, ...]:
    """The command of the build that is tried."""
    if given is None:
        return interpreter.ralph_command()
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise Refused(f"--program {given!r} is no command: {error}") from error
    found = shutil.which(words[0]) if words else None
    if found is None:
        raise Refused(f"--program {given!r} was not found, or may not be executed")
    return (os.path.abspath(found), *words[1:])


def _print_results(results: list[TrialResult], skipped: dict[str, str], for_programs: bool) -> int:
    wrong = sorted((one for one in results if one.verdict != RIGHT), key=lambda one: one.trial.id)
    tally = dict(count_failures(results))
    if for_programs:
        print_json(
            "bench",
            {
                **{name: {"wrong": bad, "tried": tried} for name, (bad, tried) in tally.items()},
                "wrong": [{"id": one.trial.id, "verdict": one.verdict, "why": one.why} for one in wrong],
                "skipped": dict(skipped),
            },
        )
        return 1 if wrong else 0
    print_lines(*(f"{one.trial.id}: {one.verdict}: {one.why} ({one.trial.about})" for one in wrong))
    print_lines(*(f"not tried: {name}: {why}" for name, why in skipped.items()))
    print_lines(
        "; ".join(
            f"{COUNT_LABELS[name]}: {bad} of {tried}{' tried' * (name == 'lies')}"
            for name, (bad, tried) in tally.items()
        )
    )
    return 1 if wrong else 0
