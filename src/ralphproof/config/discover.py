"""Looks for checks that a project already has. Reads files; executes nothing."""

from __future__ import annotations

import os
import re

from ralphproof.config.python import python_checks
from ralphproof.config.top import Proposal, Top
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")  # make takes the first of these
_LOCKS = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}
_RULE = re.compile(r"^([^\s#:=][^#:=]*?)\s*::?(?![:=])(.*)$")
_ASSIGNMENT = re.compile(r"^\s*((export|override|private)\s+)*[\w.-]+\s*(::?:?|\+|\?|!)?=")


@value
class Survey:
    """What a project's files propose, and which of them could not be read."""

    proposals: tuple[Proposal, ...]
    notes: tuple[str, ...] = ()


def propose_checks(root: str, environ: Mapping[str, str] = os.environ) -> tuple[Proposal, ...]:
    """Commands that check this project, by its own files; a Makefile's targets stand for the tools beneath them."""
    return survey(root, environ).proposals


def survey(root: str, environ: Mapping[str, str] = os.environ) -> Survey:
    """The proposals, with a note on each file that was passed over."""
    top = Top(root)
    made = list(_make(top))
    has = {proposal.command.split()[-1] for proposal in made}
    for aim, proposal in (*_node(top), *python_checks(top, environ), *_others(top)):
        if aim not in has and not (aim == "test" and "check" in has):
            made.append(proposal)
    return Survey(tuple(made), tuple(top.notes))


def _make(top: Top) -> Iterator[Proposal]:
    name = top.has(*_MAKEFILES)
    targets = set(make_targets(top.text(name))) if name else ()
    for target in ("lint", "check", "test"):
        if target in targets:
            yield Proposal(f"make {target}", name)


def make_targets(text: str) -> list[str]:
    """The targets that a Makefile has rules for; variables, recipes, comments and definitions are none."""
    found: list[str] = []
    inside = False
    for line in text.replace("\r\n", "\n").split("\n"):
        if line.startswith(("define ", "endef")):
            inside = line.startswith("define ")
        rule = None if inside else _RULE.match(line)
        if rule and not _ASSIGNMENT.match(rule[2]):
            found += rule[1].split()
    return found


def _node(top: Top) -> Iterator[tuple[str, Proposal]]:
    scripts = top.json("package.json").get("scripts")
    tool = _LOCKS.get(top.has(*_LOCKS), "npm")
    for name in ("lint", "typecheck", "test"):
        script = scripts.get(name) if isinstance(scripts, dict) else None
        if isinstance(script, str) and script.strip() and "no test specified" not in script:
            run = "" if name == "test" and tool != "bun" else "run "  # `bun test` is bun's own runner, not the script
            yield name, Proposal(f"{tool} {run}{name}", "package.json")


def _others(top: Top) -> Iterator[tuple[str, Proposal]]:
    if top.has("Cargo.toml"):
        yield "test", Proposal("cargo test", "Cargo.toml")
    if top.has("go.mod"):
        yield "test", Proposal("go test ./...", "go.mod")
