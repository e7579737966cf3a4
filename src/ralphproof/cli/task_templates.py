"""`ralph task templates`: ready-made ways to verify a stage."""

from __future__ import annotations

from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser, nearest
from ralphproof.cli.task_list import aligned
from ralphproof.errors import Refused
from ralphproof.plans.templates import templates
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.plans.templates import Parameter, Template
    from ralphproof.value import Json

ABOUT = """ready-made ways to verify a stage: all of them in short, or one with what it can be told.

A stage is verified so with --coder-verify-template NAME and --coder-with KEY=VALUE, the same for the other stages, or
with verification_template and with in a file of tasks."""
EXAMPLES = (
    "ralph task templates",
    "ralph task templates pytest_coverage",
    "ralph task edit TASK-001 --tester-verify-template pytest_coverage --tester-with minimum=90",
)


def parser() -> Parser:
    made = Parser("task templates", ABOUT, EXAMPLES)
    made.add_argument("name", nargs="?", metavar="NAME", help="one of them, whole")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    known = {template.name: template for template in templates()}
    if args.name is not None and args.name not in known:
        raise Refused(f"there is no template {args.name}{nearest(args.name, known)} (see ralph task templates)")
    chosen = [known[args.name]] if args.name is not None else list(known.values())
    if args.json:
        told: list[Json] = [_published(template) for template in chosen]
        put_json("templates", {"templates": told})
    elif args.name is not None:
        _show(chosen[0])
    else:
        put(*aligned([(template.name, template.method, template.purpose) for template in chosen]))
    return 0


def _show(template: Template) -> None:
    import json

    put(f"{template.name}: {template.purpose}", f"method: {template.method}")
    put(*(f"{key}: {json.dumps(inner, ensure_ascii=False)}" for key, inner in template.config.items()))
    put(*(f"with {parameter.name}: {parameter.about} ({_default(parameter)})" for parameter in template.parameters))


def _default(parameter: Parameter) -> str:
    return "needed" if parameter.default is None else f"default: {parameter.default}"


def _published(template: Template) -> dict[str, Json]:
    parameters: list[Json] = [
        {"name": one.name, "kind": one.kind, "about": one.about, "default": one.default} for one in template.parameters
    ]
    return {
        "name": template.name, "purpose": template.purpose, "method": template.method, "config": template.config,
        "parameters": parameters,
    }  # fmt: skip
