"""The flags that describe a task: what it is, and for each stage what done means."""

from __future__ import annotations

import argparse

from ralphproof.claim import without_tags
from ralphproof.cli.parser import positive
from ralphproof.config.keys import STAGES
from ralphproof.errors import Refused
from ralphproof.ledgers.tasks import MOST
from ralphproof.plan import EXTERNAL
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import Any

    from ralphproof.cli.parser import Parser

OF_STAGE = (
    "promise", "description", "verify", "verify_cmd", "verify_config", "verify_template", "with", "max_iterations",
)  # fmt: skip


def add_task_flags(made: Parser) -> None:
    """What a task is."""
    add = made.add_argument
    add("--outcome", metavar="TEXT", help="one sentence: what is true when it is done, so that it can be measured")
    add("--acceptance", action="append", metavar="TEXT", help="a requirement that can be checked; repeat it")
    add("--description", metavar="TEXT", help="what somebody must know who works on it")
    add("--priority", type=_whole, metavar="N", help="a lower number is worked on first (default: 0)")
    add("--depends-on", action="append", metavar="ID", help="a task that must be done before; repeat it")
    add("--assignee", metavar="NAME", help="whose it is")
    add("--metadata", action="append", metavar="KEY=VALUE", help="whatever else you want kept with it; repeat it")


def add_stage_flags(made: Parser) -> None:
    """What done means for each stage. The flags of the first one stand in the help for those of all."""
    named = f"{', '.join(STAGES[1:-1])} and {STAGES[-1]}"
    group = made.add_argument_group("what done means for each stage", f"The same with {named} instead of {STAGES[0]}.")
    for stage in STAGES:

        def add(name: str, help: str, first: bool = stage == STAGES[0], of: str = stage, **more: Any) -> None:
            group.add_argument(f"--{of}-{name}", help=help if first else argparse.SUPPRESS, **more)

        add("promise", "the word that claims it (default: that of the settings)", metavar="WORD")
        add("description", "what it must achieve", metavar="TEXT")
        add("verify", "string_match, external, semantic, multi_stage, or one that you installed", metavar="METHOD")
        add("verify-cmd", "a command that must succeed; alone it means external", metavar="CMD")
        add("verify-config", "what the method needs to know, as a JSON object", metavar="JSON")
        add("verify-template", "a ready-made way; see ralph task templates", metavar="NAME")
        add("with", "a parameter of the template; repeat it", action="append", metavar="KEY=VALUE")
        add("max-iterations", "how often it may be tried", type=positive, metavar="N")


def _whole(text: str) -> int:
    """A whole number that is not beyond all bounds."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 16 and abs(int(text)) <= MOST):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def pairs(flag: str, given: list[str] | None, problems: list[str]) -> dict[str, str]:
    """KEY=VALUE, several times. What is none of these is a problem."""
    made: dict[str, str] = {}
    for text in given or ():
        key, equals, inner = text.partition("=")
        if not equals or not key:
            problems.append(f"{flag} {text!r} is no KEY=VALUE")
        made[key] = inner
    return made


def completion_of(
    args: Namespace, before: dict[str, Any], promise: Callable[[str], str], problems: list[str]
) -> dict[str, Any]:
    """A completion spec with what the command line says of it in place of what was there before."""
    made = dict(before)
    if args.outcome is not None:
        made["outcome"] = args.outcome
    if args.acceptance is not None:
        made["acceptance_criteria"] = [text for text in args.acceptance if text]
    for stage in STAGES:
        given = {what: vars(args)[f"{stage}_{what}"] for what in OF_STAGE}
        if said := {what: text for what, text in given.items() if text is not None}:
            old = made.get(stage)
            made[stage] = _criteria(stage, said, old if isinstance(old, dict) else {}, promise, problems)
    return made


def _criteria(
    stage: str, said: dict[str, Any], before: dict[str, Any], promise: Callable[[str], str], problems: list[str]
) -> dict[str, Any]:
    made: dict[str, Any] = {**before}
    made |= {what: said[what] for what in ("promise", "description", "max_iterations") if what in said}
    made["promise"] = without_tags(str(made.get("promise") or promise(stage)))
    method, config = _way(stage, said, before, problems)
    if method:
        made = {name: inner for name, inner in made.items() if name not in ("verification_template", "with")}
        made |= {"verification_method": method, "verification_config": config}
    return made


def _way(stage: str, said: dict[str, Any], before: dict[str, Any], problems: list[str]) -> tuple[str, dict[str, Any]]:
    """Method and config."""
    told = _json(stage, said, problems)
    told |= {"command": said["verify_cmd"]} if "verify_cmd" in said else {}
    by_template = "verify_template" in said or "with" in said
    method, config = _template(stage, said, problems) if by_template else _kept(said, before)
    if "verify_cmd" in said and method not in ("", EXTERNAL):
        problems.append(f"--{stage}-verify-cmd is for {EXTERNAL}, not for {method}")
    if told and not method and not by_template:
        problems.append(f"--{stage}-verify-config says nothing without a method: add --{stage}-verify METHOD")
    return method, {**config, **told}


def _kept(said: dict[str, Any], before: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The method that is meant; where it stays the same, what it was told before stays too."""
    old, config = str(before.get("verification_method") or ""), before.get("verification_config")
    method = said.get("verify") or (EXTERNAL if "verify_cmd" in said else old)
    return method, dict(config) if method == old and isinstance(config, dict) else {}


def _template(stage: str, said: dict[str, Any], problems: list[str]) -> tuple[str, dict[str, Any]]:
    if "verify_template" not in said:
        problems.append(f"--{stage}-with goes with --{stage}-verify-template")
        return "", {}
    from ralphproof.plans.templates import expanded

    name = said["verify_template"]
    try:
        method, config = expanded(name, _told(name, stage, said.get("with"), problems))
    except Refused as error:
        problems += [f"--{stage}-verify-template: {line}" for line in str(error).splitlines()]
        return "", {}
    if said.get("verify", method) != method:
        problems.append(f"--{stage}-verify-template {name} is {method}, not {said['verify']}")
    return method, dict(config)


def _told(name: str, stage: str, given: list[str] | None, problems: list[str]) -> dict[str, Any]:
    """What a template is told, as its parameters want it: numbers, texts, or lists of them."""
    from ralphproof.plans.templates import templates

    kinds = {one.name: one.kind for template in templates() if template.name == name for one in template.parameters}
    flag = f"--{stage}-with"
    made: dict[str, Any] = {}
    for key, text in (pair for one in given or () for pair in pairs(flag, [one], problems).items()):
        match kinds.get(key):
            case "percent" | "status" | "seconds":
                made[key] = _number(text)
            case "texts" | "paths":
                made[key] = [*made.get(key, []), text]
            case _:
                made[key] = text
    return made


def _number(text: str) -> int | float | str:
    """A number, where it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _json(stage: str, said: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    if "verify_config" not in said:
        return {}
    import json

    try:
        found = json.loads(said["verify_config"])
    except (ValueError, RecursionError) as error:
        problems.append(f"--{stage}-verify-config is no JSON: {error}")
        return {}
    if not isinstance(found, dict):
        problems.append(f"--{stage}-verify-config is no JSON object")
    return found if isinstance(found, dict) else {}
