"""Displays of a running loop, chosen by flags and settings."""

from __future__ import annotations

import atexit
import sys

from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.display.console import ConsoleObserver
from ralphproof.display.terminal import Style, stream_style
from ralphproof.engine.limits import INTERRUPTED, STEP, WAITING
from ralphproof.engine.outcome import Aborted
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.settings.keys import Settings

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ralphproof.engine.environment import Observer
    from ralphproof.engine.outcome import Outcome
    from ralphproof.runs.context import RunContext
    from ralphproof.runs.request import RunTarget
    from ralphproof.runs.spec import RunSpec
    from ralphproof.store.run_folder import RunFolder


def execute_observed(spec: RunSpec, keeper: KeeperClient, args: Namespace, target: RunTarget) -> Outcome:
    """Run the loop to its end, with the displays that the flags ask for."""
    from ralphproof.runs.execute import execute

    return execute(
        spec,
        keeper,
        lambda folder, settings: create_observers(folder, args, settings, spec.project.mask),
        lambda begun, outcome: _report_outcome(begun, outcome, spec, args),
        target=target,
    )


def _report_outcome(context: RunContext, outcome: Outcome, spec: RunSpec, args: Namespace) -> None:
    """Print the outcome, and deliver notifications."""
    from ralphproof.base.escaping import sanitize

    mask = spec.project.mask
    print_outcome(context.run if context.recorded else "", outcome, args, mask)
    for trouble in context.notifiers.deliver(outcome):
        print(sanitize(mask(trouble)), file=sys.stderr)


def create_observers(
    folder: RunFolder, args: Namespace, settings: Settings, mask: Callable[[str], str]
) -> tuple[Observer, ...]:
    """The observers that the flags ask for."""
    console = _create_console(stream_style(sys.stderr, args, settings), settings, mask)
    atexit.register(console.flush)  # however the program ends, what the agent said last is shown
    observers: list[Observer] = [console]
    if args.json:
        from ralphproof.display.ndjson import NdjsonObserver

        observers.append(NdjsonObserver(sys.stdout, folder.run, args.verbose, mask))
    if args.verbose:
        from ralphproof.display.console import VerboseContext, VerboseObserver

        commands = {guardrail.name: guardrail.shown for guardrail in settings.guardrails}
        conditions = VerboseContext(settings.maximum_iterations, settings.completion_response, commands)
        observers.append(VerboseObserver(sys.stderr, conditions, lambda *turn: _read_prompt_start(folder, *turn), mask))
    return tuple(observers)


class PoolDisplay:
    """Displays of parallel runs: lines prefixed with the name of their run."""

    def __init__(self, args: Namespace) -> None:
        self._args = args

    def create_observers(
        self, name: str, folder: RunFolder, settings: Settings, mask: Callable[[str], str]
    ) -> tuple[Observer, ...]:
        from ralphproof.display.terminal import PrefixedStream

        style = replace(stream_style(sys.stderr, self._args, settings), live=False, stream=False)
        console: Observer = ConsoleObserver(PrefixedStream(sys.stderr, name), style, mask)  # type: ignore[arg-type]
        if not self._args.json:
            return (console,)
        from ralphproof.display.ndjson import NdjsonObserver

        return (console, NdjsonObserver(sys.stdout, folder.run, self._args.verbose, mask))

    def warn(self, name: str, text: str) -> None:
        from ralphproof.base.escaping import sanitize

        print(f"{name}  {sanitize(text)}", file=sys.stderr)


def _create_console(style: Style, settings: Settings, mask: Callable[[str], str]) -> ConsoleObserver:
    """The console: a log of attempts for supervised programs, else iterations."""
    if settings.preset != "supervise":
        return ConsoleObserver(sys.stderr, style, mask)
    from ralphproof.display.attempt_log import create_attempt_log

    return create_attempt_log(sys.stderr, style, mask, settings.agent.timeout_seconds)


def _read_prompt_start(folder: RunFolder, iteration: int, turn: int) -> str:
    """The start of a prompt, from its published file."""
    from ralphproof.engine.iteration import turn_file_name
    from ralphproof.views.logs import read_finished_log

    path = folder.published_path(f"prompt_{turn_file_name(f'{iteration:03d}', turn)}") + ".txt"
    return next(read_finished_log(path), b"")[:4096].decode("utf-8", "replace")


def _next_steps(run: str, outcome: Outcome) -> str:
    """Commands that make sense after this outcome."""
    reason = outcome.reason if isinstance(outcome, Aborted) else ""
    if reason == WAITING:
        return f"run {run} waits; answer with ralph say {run} TEXT, and go on: ralph run --resume {run}"
    if reason == STEP:
        from ralphproof.views.run_status import next_step_hint

        return f"run {run} has taken its step; ralph status, logs and diff say more; go on: {next_step_hint(run)}"
    onward = f"; go on: ralph run --resume {run}" if reason == INTERRUPTED else ""
    return f"run {run} is over; ralph status, logs and diff say more{onward}"


def print_outcome(run: str, outcome: Outcome, args: Namespace, mask: Callable[[str], str]) -> None:
    """Print the last lines of a run; `run` is empty where it has no record. A closed output is ignored: the exit code
    tells.
    """
    from ralphproof.base.escaping import collapse_lines, sanitize
    from ralphproof.display import phrases

    try:
        if args.json:
            return
        if run and not args.quiet:
            print(_next_steps(run, outcome), file=sys.stderr)
        for line in phrases.describe_outcome(outcome):
            print(collapse_lines(sanitize(mask(line))), flush=True)
    except OSError:
        pass
