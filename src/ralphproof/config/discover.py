"""Looks for agents and checks that are already there. Reads files; executes nothing."""

from __future__ import annotations

import os
import re

from ralphproof.config.jsontext import Unusable, contents, decode, parse
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

AGENTS = ("claude", "codex", "amp", "gemini", "opencode", "qwen", "copilot", "pi")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")  # make takes the first of these
_LOCKS = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}
_RULE = re.compile(r"^([^\s#:=][^#:=]*?)\s*::?(?![:=])(.*)$")
_ASSIGNMENT = re.compile(r"^\s*((export|override|private)\s+)*[\w.-]+\s*(::?:?|\+|\?|!)?=")


@value
class Proposal:
    """A check that a project seems to have, and the file that says so."""

    command: str
    source: str


@value
class Survey:
    """What a project's files propose, and which of them could not be read."""

    proposals: tuple[Proposal, ...]
    notes: tuple[str, ...] = ()


def find_agent(environ: Mapping[str, str]) -> str | None:
    """The first known agent on PATH. Folders relative to the project do not count: it could bring its own."""
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    return next((name for name in AGENTS if any(_runs(os.path.join(folder, name)) for folder in folders)), None)


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def propose_checks(root: str) -> tuple[Proposal, ...]:
    """Commands that check this project, by its own files; a Makefile's targets stand for the tools beneath them."""
    return survey(root).proposals


def survey(root: str) -> Survey:
    """The proposals, with a note on each file that was passed over."""
    project = _Project(root)
    made = list(_make(project))
    has = {proposal.command.split()[-1] for proposal in made}
    for aim, proposal in (*_node(project), *_python(project), *_others(project)):
        if aim not in has and not (aim == "test" and "check" in has):
            made.append(proposal)
    return Survey(tuple(made), tuple(project.notes))


class _Project:
    """The files at the top of a project, each read once and never more than 1 MiB of it."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.notes: list[str] = []

    def has(self, *names: str) -> str:
        """The first of these that is there; empty where none is."""
        return next((name for name in names if os.path.exists(os.path.join(self._root, name))), "")

    def text(self, name: str) -> str:
        """A file's text; empty where there is none that can be used."""
        data = contents(os.path.join(self._root, name))
        text = decode(data) if isinstance(data, bytes) else data
        if isinstance(text, Unusable):
            self.notes.append(f"{name} was passed over: {text.why}")
        return text if isinstance(text, str) else ""

    def json(self, name: str) -> dict[str, Any]:
        if not (text := self.text(name)):
            return {}
        parsed = parse(text)
        if not parsed.faults and isinstance(parsed.data, dict):
            return parsed.data
        self.notes.append(f"{name} was passed over: {'; '.join(parsed.faults) or 'it holds no object'}")
        return {}

    def toml(self, name: str) -> dict[str, Any]:
        import tomllib

        try:
            return tomllib.loads(self.text(name))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            self.notes.append(f"{name} was passed over: {error}")
            return {}

    def sections(self, name: str) -> set[str]:
        """The section names of an INI file."""
        return set(re.findall(r"^\[([^\]\n]+)\]", self.text(name), re.MULTILINE))


def _make(project: _Project) -> Iterator[Proposal]:
    name = project.has(*_MAKEFILES)
    targets = set(make_targets(project.text(name))) if name else ()
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


def _node(project: _Project) -> Iterator[tuple[str, Proposal]]:
    scripts = project.json("package.json").get("scripts")
    tool = _LOCKS.get(project.has(*_LOCKS), "npm")
    for name in ("lint", "typecheck", "test"):
        script = scripts.get(name) if isinstance(scripts, dict) else None
        if isinstance(script, str) and script.strip() and "no test specified" not in script:
            run = "" if name == "test" and tool != "bun" else "run "  # `bun test` is bun's own runner, not the script
            yield name, Proposal(f"{tool} {run}{name}", "package.json")


def _python(project: _Project) -> Iterator[tuple[str, Proposal]]:
    tools = project.toml("pyproject.toml").get("tool")
    tools = tools if isinstance(tools, dict) else {}
    setup = project.sections("setup.cfg")
    uv = "uv run " if project.has("uv.lock") else ""
    if source := project.has("ruff.toml", ".ruff.toml") or ("ruff" in tools and "pyproject.toml"):
        yield "lint", Proposal(f"{uv}ruff check .", source)
    mypy = tools.get("mypy")
    if source := project.has("mypy.ini", ".mypy.ini") or ("mypy" in tools and "pyproject.toml"):
        where = "" if isinstance(mypy, dict) and ("files" in mypy or "packages" in mypy) else " ."
        yield "typecheck", Proposal(f"{uv}mypy{where}", source)
    if source := _pytest(project, tools, setup):
        yield "test", Proposal("uv run pytest" if uv else "python -m pytest -q", source)
    elif source := project.has("tox.ini") or ("tox" in tools and "pyproject.toml"):
        yield "test", Proposal(f"{uv}tox", source)
    elif source := project.has("noxfile.py"):
        yield "test", Proposal(f"{uv}nox", source)


def _pytest(project: _Project, tools: dict[str, Any], setup: set[str]) -> str:
    """The file that says that pytest runs here; empty where none does."""
    if "pytest" in tools:
        return "pyproject.toml"
    if source := project.has("pytest.ini", ".pytest.ini"):
        return source
    return "setup.cfg" if "tool:pytest" in setup or (project.has("setup.cfg") and project.has("tests")) else ""


def _others(project: _Project) -> Iterator[tuple[str, Proposal]]:
    if project.has("Cargo.toml"):
        yield "test", Proposal("cargo test", "Cargo.toml")
    if project.has("go.mod"):
        yield "test", Proposal("go test ./...", "go.mod")
