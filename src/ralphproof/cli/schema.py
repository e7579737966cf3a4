"""`ralph schema`: the JSON Schema of a published object."""

from __future__ import annotations

import json

from ralphproof.base.errors import Refused
from ralphproof.base.text import did_you_mean
from ralphproof.base.value import Json
from ralphproof.cli.parser import Parser
from ralphproof.display.output import align_columns, print_json
from ralphproof.views.published_json import NOUNS, json_schema

ABOUT = """Print the JSON Schema of an object that --json, the HTTP API, outcome.json or a proof has in it.

Without NOUN: all of them. The same object has the same fields everywhere."""
EXAMPLES = ("ralph schema", "ralph schema run", "ralph schema check > check.schema.json", "ralph schema --json")


def build_parser() -> Parser:
    parser = Parser("schema", ABOUT, EXAMPLES)
    parser.add_argument("noun", nargs="?", metavar="NOUN", help="object, such as run, iteration, check or task")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    if args.noun is None:
        _print_nouns(args.json)
        return 0
    if args.noun not in NOUNS:
        raise Refused(f"there is no {args.noun!r}{did_you_mean(args.noun, NOUNS)}; ralph schema lists all")
    print(json.dumps(json_schema(args.noun), indent=None if args.json else 2))
    return 0


def _print_nouns(for_programs: bool) -> None:
    if for_programs:
        nouns: list[Json] = [{"name": noun.name, "about": noun.about} for noun in NOUNS.values()]
        print_json("schemas", {"nouns": nouns})
    else:
        print("\n".join(align_columns([(noun.name, noun.about) for noun in NOUNS.values()])))
