"""Discovery of the checks that a project already has, from its own files, and the checks of a skill."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from ralphproof.base.json_text import UnusableFile, decode_utf8, parse_json, read_bounded_file
from ralphproof.base.programs import find_program
from ralphproof.base.value import value
from ralphproof.settings.skills import AUTO_CHECKS, AUTO_LINTERS, Skill

MAX_ENTRIES = 2000  # per folder


@value
class ProposedCheck:
    """A check that a project seems to have, and the file that indicates it."""

    command: str
    source: str


class ProjectFiles:
    """The top folder of a project. Each file is read once, at most 1 MiB; `notes` lists files that were skipped."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._texts: dict[str, str] = {}
        self.notes: list[str] = []

    def first_existing(self, *names: str) -> str:
        """The first of these that exists; empty where none does."""
        return next((name for name in names if os.path.exists(os.path.join(self._root, name))), "")

    def executable(self, *names: str) -> str:
        """The first of these that is executable; empty where none is."""
        paths = {name: os.path.join(self._root, name) for name in names}
        return next((name for name, path in paths.items() if os.path.isfile(path) and os.access(path, os.X_OK)), "")

    def list_files(self, folder: str, pattern: str) -> list[str]:
        """The paths of the files in a folder whose whole names match; empty where it cannot be read."""
        try:
            with os.scandir(os.path.join(self._root, folder)) as entries:
                names = [entry.name for entry in islice(entries, MAX_ENTRIES)]
        except OSError:
            return []
        return sorted(os.path.join(folder, name) for name in names if re.fullmatch(pattern, name))

    def text(self, name: str) -> str:
        """The text of a file; empty where it is missing or unusable."""
        if name not in self._texts:
            self._texts[name] = self._read(name)
        return self._texts[name]

    def _read(self, name: str) -> str:
        data = read_bounded_file(os.path.join(self._root, name))
        text = decode_utf8(data) if isinstance(data, bytes) else data
        if isinstance(text, UnusableFile):
            self.notes.append(f"{name} was passed over: {text.why}")
        return text if isinstance(text, str) else ""

    def json(self, name: str) -> dict[str, Any]:
        if not (text := self.text(name)):
            return {}
        parsed = parse_json(text)
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


VENV_FOLDERS = (".venv", "venv")
PYPROJECT_FILE = "pyproject.toml"
MAX_TEST_FILES = 20  # read, to recognize tests for pytest
_TEST_FILE = r"test_.*\.py|.*_test\.py"
_PYTEST = re.compile(r"\s*pytest(?![a-z0-9])", re.IGNORECASE)  # pytest-cov and similar packages depend on it
_ONLY_PYTEST = re.compile(r"^(?:(?:async )?def test_|import pytest\b|from pytest\b)", re.MULTILINE)


def python_checks(top: ProjectFiles, environ: Mapping[str, str]) -> Iterator[tuple[str, ProposedCheck]]:
    """The purpose of each check, and the check."""
    project = top.toml(PYPROJECT_FILE)
    tools = _toml_table(project, "tool")
    if source := top.first_existing("ruff.toml", ".ruff.toml") or ("ruff" in tools and PYPROJECT_FILE):
        yield "lint", ProposedCheck(f"{_tool_path(top, 'ruff')} check .", source)
    if source := top.first_existing("mypy.ini", ".mypy.ini") or ("mypy" in tools and PYPROJECT_FILE):
        where = "" if {"files", "packages"} & set(_toml_table(tools, "mypy")) else " ."
        yield "typecheck", ProposedCheck(f"{_tool_path(top, 'mypy')}{where}", source)
    if source := _pytest_source(top, project, tools):
        yield "test", _pytest_check(top, environ, source)
    elif source := top.first_existing("tox.ini") or ("tox" in tools and PYPROJECT_FILE):
        yield "test", ProposedCheck(_tool_path(top, "tox"), source)
    elif source := top.first_existing("noxfile.py"):
        yield "test", ProposedCheck(_tool_path(top, "nox"), source)
    else:
        yield from (("test", proposal) for proposal in _checks_by_test_files(top, environ))


def _toml_table(data: dict[str, Any], name: str) -> dict[str, Any]:
    inner = data.get(name)
    return inner if isinstance(inner, dict) else {}


def _tool_path(top: ProjectFiles, name: str) -> str:
    """A program of the project's own environment, else its plain name."""
    if top.first_existing("uv.lock"):
        return f"uv run {name}"
    return top.executable(*(f"{folder}/bin/{name}" for folder in VENV_FOLDERS)) or name


def _python_path(top: ProjectFiles, environ: Mapping[str, str]) -> str:
    """The project's own Python, else `python3`; many machines have no `python`, or an old one by that name."""
    if python := top.executable(*(f"{folder}/bin/python" for folder in VENV_FOLDERS)):
        return python
    path = environ.get("PATH", os.defpath)
    return "python" if not find_program("python3", path) and find_program("python", path) else "python3"


def _pytest_check(top: ProjectFiles, environ: Mapping[str, str], source: str) -> ProposedCheck:
    runner = "uv run pytest" if top.first_existing("uv.lock") else f"{_python_path(top, environ)} -m pytest -q"
    return ProposedCheck(runner, source)


def _pytest_source(top: ProjectFiles, project: dict[str, Any], tools: dict[str, Any]) -> str:
    """The file that shows that the project uses pytest; empty where none does."""
    if "pytest" in tools or any(map(_PYTEST.match, _requirements(project, tools))):
        return PYPROJECT_FILE
    if source := top.first_existing(
        "pytest.ini", ".pytest.ini", "conftest.py", "tests/conftest.py", "test/conftest.py"
    ):
        return source
    setup = top.sections("setup.cfg")
    if "tool:pytest" in setup or (setup and top.first_existing("tests")) or _names_pytest(top.text("setup.cfg")):
        return "setup.cfg"
    if "pytest" in top.sections("tox.ini"):
        return "tox.ini"
    return next((name for name in top.list_files("", r"requirements.*\.txt") if _names_pytest(top.text(name))), "")


def _names_pytest(text: str) -> bool:
    return any(map(_PYTEST.match, text.splitlines()))


def _requirements(project: dict[str, Any], tools: dict[str, Any]) -> Iterator[str]:
    """All dependencies that a project file names."""
    about, poetry = _toml_table(project, "project"), _toml_table(tools, "poetry")
    lists = [about.get("dependencies"), *_toml_table(about, "optional-dependencies").values()]
    for holder, name in ((project, "dependency-groups"), (_toml_table(tools, "pdm"), "dev-dependencies")):
        lists += _toml_table(holder, name).values()
    for listed in lists:
        yield from (entry for entry in listed if isinstance(entry, str)) if isinstance(listed, list) else ()
    groups: Iterable[Any] = _toml_table(poetry, "group").values()
    for holder in (poetry, *(group for group in groups if isinstance(group, dict))):
        yield from (*_toml_table(holder, "dependencies"), *_toml_table(holder, "dev-dependencies"))


def _checks_by_test_files(top: ProjectFiles, environ: Mapping[str, str]) -> Iterator[ProposedCheck]:
    """Tests without a configured runner: unittest, unless they are written for pytest."""
    folders = {folder: names for folder in ("", "tests", "test") if (names := top.list_files(folder, _TEST_FILE))}
    files = [name for names in folders.values() for name in names]
    if source := next((name for name in files[:MAX_TEST_FILES] if _ONLY_PYTEST.search(top.text(name))), ""):
        yield _pytest_check(top, environ, source)
        return
    run = ("uv run python" if top.first_existing("uv.lock") else _python_path(top, environ)) + " -m unittest discover"
    importable = [
        names[0] for folder, names in folders.items() if not folder or top.first_existing(f"{folder}/__init__.py")
    ]
    if importable:
        yield ProposedCheck(run, importable[0])
    for folder, names in folders.items():
        if names[0] not in importable:
            yield ProposedCheck(f"{run} -s {folder}", names[0])


# Only reads files; executes nothing.


_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")  # make takes the first of these
_NODE_LOCK_FILES = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}
_RULE = re.compile(r"^([^\s#:=][^#:=]*?)\s*::?(?![:=])(.*)$")
_ASSIGNMENT = re.compile(r"^\s*((export|override|private)\s+)*[\w.-]+\s*(::?:?|\+|\?|!)?=")


@value
class DiscoveredChecks:
    """The proposed checks, and notes on files that could not be read."""

    proposals: tuple[ProposedCheck, ...]
    notes: tuple[str, ...] = ()


def propose_checks(root: str, environ: Mapping[str, str] = os.environ) -> tuple[ProposedCheck, ...]:
    """Commands that check this project, from its files; Makefile targets take precedence over the tools they call."""
    return discover_checks(root, environ).proposals


def discover_checks(root: str, environ: Mapping[str, str] = os.environ) -> DiscoveredChecks:
    """The proposals, with a note on each file that was skipped."""
    top = ProjectFiles(root)
    proposals = list(_make_checks(top))
    make_targets = {proposal.command.split()[-1] for proposal in proposals}
    for purpose, proposal in (*_node_checks(top), *python_checks(top, environ), *_other_checks(top)):
        if purpose not in make_targets and not (purpose == "test" and "check" in make_targets):
            proposals.append(proposal)
    return DiscoveredChecks(tuple(proposals), tuple(top.notes))


def _make_checks(top: ProjectFiles) -> Iterator[ProposedCheck]:
    name = top.first_existing(*_MAKEFILES)
    targets = set(parse_make_targets(top.text(name))) if name else ()
    for target in ("lint", "check", "test"):
        if target in targets:
            yield ProposedCheck(f"make {target}", name)


def parse_make_targets(text: str) -> list[str]:
    """The targets of a Makefile's rules, without variables, recipes, comments and definitions."""
    targets: list[str] = []
    in_definition = False
    for line in text.replace("\r\n", "\n").split("\n"):
        if line.startswith(("define ", "endef")):
            in_definition = line.startswith("define ")
        rule = None if in_definition else _RULE.match(line)
        if rule and not _ASSIGNMENT.match(rule[2]):
            targets += rule[1].split()
    return targets


def _node_checks(top: ProjectFiles) -> Iterator[tuple[str, ProposedCheck]]:
    scripts = top.json("package.json").get("scripts")
    tool = _NODE_LOCK_FILES.get(top.first_existing(*_NODE_LOCK_FILES), "npm")
    for name in ("lint", "typecheck", "test"):
        script = scripts.get(name) if isinstance(scripts, dict) else None
        if isinstance(script, str) and script.strip() and "no test specified" not in script:
            run = "" if name == "test" and tool != "bun" else "run "  # `bun test` is bun's own runner, not the script
            yield name, ProposedCheck(f"{tool} {run}{name}", "package.json")


def _other_checks(top: ProjectFiles) -> Iterator[tuple[str, ProposedCheck]]:
    if top.first_existing("Cargo.toml"):
        yield "test", ProposedCheck("cargo test", "Cargo.toml")
    if top.first_existing("go.mod"):
        yield "test", ProposedCheck("go test ./...", "go.mod")


_LINTER = r"(?i)(?<![a-z])(?:[a-z]*lint|lints|ruff|typecheck|mypy|pyright|flake8|clippy|biome|tsc|vet)(?![a-z])"


@value
class SkillChecks:
    """The commands, and a message for each keyword that found no check."""

    commands: tuple[str, ...]
    missing: tuple[str, ...] = ()


def resolve_skill_checks(
    skill: Skill, root: str, own: tuple[str, ...] = (), environ: Mapping[str, str] = os.environ
) -> SkillChecks:
    """The checks of a skill. `own` are the checks in the settings, for which `auto` stands.

    Without any in the settings, those proposed by the project's files.
    """
    commands: list[str] = []
    missing: list[str] = []
    for word in skill.verification:
        resolved = _resolve_check_word(word, root, own, environ)
        commands += resolved
        if not resolved:
            what = "check" if word == AUTO_CHECKS else "linter"
            missing.append(f"skill {skill.name}: {word} found no {what} in this project; name one: --check CMD")
    return SkillChecks(tuple(dict.fromkeys(commands)), tuple(missing))


def _resolve_check_word(word: str, root: str, own: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    if word not in (AUTO_CHECKS, AUTO_LINTERS):
        return (word,)

    def matches(command: str) -> bool:
        return word == AUTO_CHECKS or re.search(_LINTER, command) is not None

    configured = tuple(filter(matches, own))
    return configured or tuple(filter(matches, (proposal.command for proposal in propose_checks(root, environ))))
