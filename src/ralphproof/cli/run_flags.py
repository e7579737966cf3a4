"""Flags of the verbs that start runs, and the run request that they make."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.standard_streams import read_stdin_text
from ralphproof.cli.parser import Parser
from ralphproof.cli.verbs import VERBS
from ralphproof.engine.claim import is_same_word, strip_claim_tags
from ralphproof.runs.request import CheckRequest, RunRequest
from ralphproof.settings.declarations import flags_of
from ralphproof.settings.schema import SettingKey
from ralphproof.store.ledger import LATEST
from ralphproof.store.project import Project

NO_NEW_PROMPT = "--resume uses the prompt of the run; to add to it: ralph say RUN TEXT"


def add_prompt_flags(parser: Parser) -> None:
    """Add the prompt flags."""
    parser.add("-p, --prompt TEXT", "what the agent should achieve")
    parser.add("-f, --prompt-file FILE", "read the prompt from a file before each iteration; - is stdin")


def add_loop_flags(parser: Parser) -> None:
    """Add the flags of settings, and those for checks and the sandbox."""
    add = parser.add
    default = "default: those of the settings, else detected ones"
    add("--check CMD", f"command that must succeed; repeatable; auto detects commands ({default})", action="append")
    add("--no-check", "run no checks, neither configured nor detected ones")
    add("--allow-missing-check", "start although a check cannot run yet: the agent will create it")
    add("--judge CRITERION", "criterion that a small model judges; repeatable", action="append")
    add("--may-change PATH", "file of the checks that the work may change; repeatable", action="append")
    add_agent_flags(parser)


def add_agent_flags(parser: Parser) -> None:
    """Add the flags of settings, and those for what an agent may do and cost."""
    parser.add_setting_flags()
    parser.add("--allow-unknown-cost", "allow a cost limit with an agent that reports no cost")
    parser.add("--no-sandbox", "give a known agent all your permissions, under the command guard")


def add_start_flags(parser: Parser) -> None:
    """Add the flags for starting, resuming and detaching a run."""
    resume = "continue a run that was cut off, was stopped, or waits"
    parser.add("--resume RUN", resume, nargs="?", const=LATEST)
    parser.add("--detach", "run in the background; ralph attach follows it")
    parser.add("--dry-run", "print prompt, arguments and checks; start nothing")


def parse_with_prompt(argv: list[str], parser: Parser) -> Namespace:
    """Parse the arguments with the prompt taken out first: a prompt that looks like a flag is none."""
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
    args = parser.parse(rest)
    args.prompt = args.prompt if prompt is None else prompt
    return args


def prompt_from_flags(args: Namespace) -> tuple[str | None, str | None]:
    """Text and file of the prompt; at most one of them is set."""
    if args.words in VERBS:
        raise Refused(f'{args.words} is a command, and a command comes first; if it is a prompt, say -p "{args.words}"')
    prompts = [text for text in (args.words, args.prompt, args.prompt_file) if text is not None]
    if len(prompts) > 1:
        raise Refused("give one prompt: --prompt, --prompt-file or PROMPT, not several")
    if not prompts:
        return None, None  # stories need none
    if args.prompt_file is None:
        return prompts[0], None
    if args.prompt_file != "-":
        return None, os.path.realpath(args.prompt_file)
    return read_stdin_text("-f -"), None


def loop_request(
    args: Namespace, prompt: tuple[str | None, str | None], settings: dict[str, Any], **more: Any
) -> RunRequest:
    """The request of a verb with loop flags: its prompt, its settings, and what is its own."""
    if args.no_check and args.check:
        raise Refused("--no-check and --check contradict each other; give one of them")
    checks = CheckRequest(
        tuple(args.check or ()),
        tuple(args.judge or ()),
        tuple(args.may_change or ()),
        find=True,
        allow_missing=args.allow_missing_check,
    )
    settings = settings | ({"guardrails": [], "finalChecks": []} if args.no_check else {})
    return agent_request(args, prompt, settings, checks=checks, protect=tuple(args.protect or ()), **more)


def agent_request(
    args: Namespace, prompt: tuple[str | None, str | None], settings: dict[str, Any], **more: Any
) -> RunRequest:
    """The request of a verb with agent flags."""
    if args.no_sandbox and (args.sandbox is not None or args.allow_host):
        other = "--sandbox" if args.sandbox is not None else "--allow-host"
        raise Refused(f"--no-sandbox and {other} contradict each other; give one of them")
    return RunRequest(
        prompt,
        settings,
        args.project_dir,
        guarded=not args.no_sandbox,
        allow_hosts=tuple(args.allow_host or ()),
        allow_unknown_cost=args.allow_unknown_cost,
        verbose=args.verbose,
        **more,
    )


def settings_from_flags(args: Namespace) -> dict[str, Any]:
    """The flags that are settings, in the settings' own shape; raises Refused where two flags contradict each other."""
    settings: dict[str, Any] = {}
    given: dict[str, tuple[str, Any]] = {}
    for path, key, flag in flags_of(args.verb):
        chosen = getattr(args, flag.dest)
        if flag.adds or chosen is None:
            continue
        before, other = given.setdefault(path, (flag.names[-1], chosen))
        if before != flag.names[-1] and not _is_same(chosen, other, key):
            raise Refused(f"{before} and {flag.names[-1]} are one setting, and were given two values; give one")
        *groups, name = path.split(".")
        group = settings
        for one in groups:
            group = group.setdefault(one, {})
        group[name] = chosen
    return settings


def bounded_settings(args: Namespace) -> dict[str, Any]:
    """The settings of flags with a cost limit for all runs together, which holds for each of them too."""
    settings = settings_from_flags(args)
    limits = [limit for limit in (args.max_cost_usd, args.total_cost_usd) if limit is not None]
    return settings | ({"limits": {**settings.get("limits", {}), "maxCostUsd": min(limits)}} if limits else {})


def _is_same(one: Any, other: Any, key: SettingKey) -> bool:
    if key.kind == "word":
        return is_same_word(strip_claim_tags(one), strip_claim_tags(other))
    return bool(one == other)


def progress_printer(project: Project, quiet: bool) -> Callable[[str], None]:
    """A function that prints one line of progress on standard error, unless `quiet`."""

    def tell(line: str) -> None:
        try:
            if not quiet:
                print(collapse_lines(sanitize(project.mask(line))), file=sys.stderr, flush=True)
        except OSError:
            pass  # the terminal is gone

    return tell
