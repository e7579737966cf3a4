"""`ralph fleet`: many loops on many machines: submitted, worked on, watched and cancelled."""

from __future__ import annotations

from ralphproof.cli.out import put_json
from ralphproof.cli.parser import Parser, nearest
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ABOUT = """many loops on many machines, which share a git remote and nothing else. A Temporal server drives them, or
with --engine local one file on this machine.

{verbs}

ralph fleet VERB --help says more. RALPH_FLEET_ENGINE, _ADDRESS, _NAMESPACE, _TLS_CERT, _TLS_KEY and _TLS_CA stand for
the flags of the same names, TEMPORAL_API_KEY for an API key."""
EXAMPLES = (
    "ralph fleet dev",
    "ralph fleet worker --slots 4",
    'ralph fleet submit --repo https://git.example/app.git -p "make the tests pass" --check "make test" --wait',
    "ralph fleet submit --repo /srv/git/app.git --tasks tasks.yaml --land main --total-cost-usd 50",
    "ralph fleet status",
)
VERBS = {
    "worker": "take steps of loops on this machine",
    "submit": "hand in loops",
    "status": "where loops stand, and what they cost",
    "cancel": "end loops",
    "logs": "what the agent and the checks of a loop printed",
    "dev": "a Temporal server for this machine alone",
}


def parser() -> Parser:
    verbs = "\n".join(f"    {name:<10} {about}" for name, about in VERBS.items())
    made = Parser("fleet", ABOUT.format(verbs=verbs), EXAMPLES)
    made.add_argument("what", choices=tuple(VERBS), metavar="VERB", help="what to do; all of them are said above")
    return made


def parsers() -> dict[str, Parser]:
    """The parser of each verb."""
    return {verb: _module(verb).parser() for verb in VERBS}


def main(argv: list[str]) -> int:
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        at += 2 if argv[at] in ("-d", "--project-dir") else 1
    if at >= len(argv):
        return _help(argv)
    verb, rest = argv[at], [*argv[:at], *argv[at + 1 :]]
    if verb not in VERBS:
        raise Refused(f"unknown command fleet {verb}{nearest(verb, VERBS)} (see ralph fleet --help)")
    main: Callable[[list[str]], int] = _module(verb).main
    return main(rest)


def _help(argv: list[str]) -> int:
    """Without a verb: what the verbs are. Flags are looked at all the same."""
    made = parser()
    made.parse([*argv, "status"])
    if "--json" in argv:
        put_json("fleet", {"verbs": dict(VERBS)})
    else:
        print(made.format_help(), end="")
    return 0


def _module(verb: str) -> Any:
    from importlib import import_module

    return import_module(f"ralphproof.cli.fleet_{verb}")
