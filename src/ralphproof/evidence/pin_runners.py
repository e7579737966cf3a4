"""Test runners, their configuration files, and the settings in them."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator
from typing import Any

from ralphproof.base.value import value
from ralphproof.evidence.pin_pieces import NUMBER, WHOLE, digest

# What configures the programs that checks run: for each, the files, or the sections of shared files, in their order.
#
# A row is a file's name, in which `*` may stand for anything, and the sections of it: all that begin so, or `*` for all
# of them; empty for the file as a whole. Where a program reads only one of several files, the first of them counts.


_JS = ("js", "cjs", "mjs", "ts", "cts", "mts", "json")


def _config(name: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"{name}.{ending}", "") for ending in _JS)


@value
class Runner:
    """A program that checks. `language` tells which manifest a project would have."""

    language: str
    rows: tuple[tuple[str, str], ...] = ()


RUNNERS = {
    "pytest": Runner("python", (
        ("pytest.toml", "pytest"), (".pytest.toml", "pytest"), ("pytest.ini", "pytest"), (".pytest.ini", "pytest"),
        ("pyproject.toml", "tool.pytest"), ("tox.ini", "pytest"), ("setup.cfg", "tool:pytest"))),
    "coverage": Runner("python", (
        (".coveragerc", "*"), ("setup.cfg", "coverage:"), ("tox.ini", "coverage:"),
        ("pyproject.toml", "tool.coverage"))),
    "tox": Runner("python", (
        ("tox.ini", "tox"), ("tox.ini", "testenv"), ("pyproject.toml", "tool.tox"), ("setup.cfg", "tox:tox"),
        ("tox.toml", ""))),
    "nox": Runner("python", (("noxfile.py", ""),)),
    "unittest": Runner("python", (("unittest.cfg", ""), ("nose2.cfg", ""))),
    "hatch": Runner("python", (("pyproject.toml", "tool.hatch.envs"), ("hatch.toml", ""))),
    "ruff": Runner("python", (("ruff.toml", ""), (".ruff.toml", ""), ("pyproject.toml", "tool.ruff"))),
    "mypy": Runner("python", (
        ("mypy.ini", "*"), (".mypy.ini", "*"), ("pyproject.toml", "tool.mypy"), ("setup.cfg", "mypy"))),
    "pyright": Runner("python", (("pyrightconfig.json", ""), ("pyproject.toml", "tool.pyright"))),
    "flake8": Runner("python", ((".flake8", "*"), ("setup.cfg", "flake8"), ("tox.ini", "flake8"))),
    "pylint": Runner("python", (
        (".pylintrc", ""), ("pylintrc", ""), ("pyproject.toml", "tool.pylint"), ("setup.cfg", "pylint"))),
    "black": Runner("python", (("pyproject.toml", "tool.black"),)),
    "pre-commit": Runner("", ((".pre-commit-config.yaml", ""),)),
    "jest": Runner("js", (*_config("jest.config"), ("package.json", "jest"))),
    "vitest": Runner("js", (
        *_config("vitest.config"), *_config("vite.config"), *_config("vitest.workspace"), ("package.json", "vitest"))),
    "mocha": Runner("js", ((".mocharc*", ""), ("package.json", "mocha"))),
    "ava": Runner("js", (*_config("ava.config"), ("package.json", "ava"))),
    "c8": Runner("js", ((".c8rc*", ""), (".nycrc*", ""), ("package.json", "c8"))),
    "nyc": Runner("js", ((".nycrc*", ""), *_config("nyc.config"), ("package.json", "nyc"))),
    "playwright": Runner("js", _config("playwright.config")),
    "cypress": Runner("js", (*_config("cypress.config"), ("cypress.json", ""))),
    "npm": Runner("js", ((".npmrc", ""), ("package.json", "config"))),
    "pnpm": Runner("js", ((".npmrc", ""), (".pnpmfile.cjs", ""))),
    "yarn": Runner("js", ((".yarnrc", ""), (".yarnrc.yml", ""), (".npmrc", ""))),
    "bun": Runner("js", (("bunfig.toml", ""),)),
    "eslint": Runner("js", (
        *_config("eslint.config"), (".eslintrc*", ""), (".eslintignore", ""), ("package.json", "eslintConfig"))),
    "tsc": Runner("js", (("tsconfig*.json", ""),)),
    "biome": Runner("js", (("biome.json", ""), ("biome.jsonc", ""))),
    "prettier": Runner("js", (
        (".prettierrc*", ""), *_config("prettier.config"), (".prettierignore", ""), ("package.json", "prettier"))),
    "cargo": Runner("rust", ((".cargo/config.toml", ""), (".cargo/config", ""), (".config/nextest.toml", ""))),
    "golangci-lint": Runner("go", ((".golangci.*", ""),)),
    "rspec": Runner("ruby", ((".rspec", ""),)),
    "phpunit": Runner("php", (("phpunit.xml*", ""),)),
}  # fmt: skip

ALSO = {
    "py.test": "pytest", "pytest-cov": "coverage", "npx": "npm", "npm-run-all": "npm", "run-s": "npm", "run-p": "npm",
    "vite": "vitest", "nose2": "unittest", "basedpyright": "pyright", "pnpx": "pnpm", "bunx": "bun", "vue-tsc": "tsc",
    "ts-node": "tsc", "dmypy": "mypy", "stestr": "unittest",
}  # fmt: skip
MANIFESTS = {
    "python": ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "tox.ini"),
    "js": ("package.json",), "rust": ("Cargo.toml",), "go": ("go.mod",), "ruby": ("Gemfile",),
    "php": ("composer.json",),
}  # fmt: skip
# Programs that Python runs, so that they load what Python loads unasked.
PYTHON = r"(?:python[0-9.]*|pypy[0-9.]*|py\.?test|coverage|tox|nox|unittest|nose2|stestr|hatch)"
TESTING = frozenset(("pytest", "coverage", "tox", "nox", "hatch"))  # those that may have pytest load a conftest
MODULES = ("pytest", "_pytest", "pluggy", "iniconfig", "coverage", "pytest_cov", "xdist", "unittest", "tox", "nox",
           "hypothesis", "nose2", "packaging", "pygments", "exceptiongroup", "tomli", "py")  # fmt: skip
# Settings of pytest that choose no test and hide no failure.
HARMLESS = (
    r"testpaths|pythonpath|minversion|markers|asyncio_\w+|anyio_mode|trio_mode|log_\w+|console_output_style|cache_dir"
    r"|timeout\w*|required_plugins|tmp_path_retention_\w+|junit_\w+|DJANGO_SETTINGS_MODULE|env"
)
# Options of pytest that choose no test and hide no failure.
OPTIONS = (
    r"-[qvsxlr]\w*|-r\w+|-ra|--strict\S*|--tb=\w+|--color=\w+|--import-mode=\w+|--durations\S*|--showlocals|--verbose"
    r"|--quiet|--cov(?:-report|-branch|-context|-append)?(?:=\S+)?|--cov-fail-under=\S+|--disable-warnings"
    r"|--junitxml=\S+|-n=?\w*|auto|logical|\d+|-W|error(?:::\w+)?|--no-header|--no-summary|--asyncio-mode=\w+|--maxfail=\d+|--capture=\w+|--doctest-modules"
)


def runner_of(word: str) -> str:
    """The runner that a word of a command names; empty where it names none."""
    name = word.rpartition("/")[2].removesuffix(".cmd")
    name = ALSO.get(name, name)
    if name in RUNNERS:
        return name
    return "coverage" if word.startswith("--cov") else ""


def rows_for(name: str, runners: frozenset[str]) -> list[tuple[str, int, str]]:
    """Which runner a file of this name configures, in which row, by which sections."""
    return [
        (runner, rank, section)
        for runner in sorted(runners)
        for rank, (pattern, section) in enumerate(RUNNERS[runner].rows)
        if fnmatch.fnmatchcase(name, pattern.rpartition("/")[2])
    ]


# Modules of Python's own that its runners load at once, and that nobody would write another of.
NEEDED = frozenset((
    "argparse", "ast", "atexit", "bdb", "contextlib", "copyreg", "dataclasses", "dis", "enum", "errno", "fnmatch",
    "functools", "gc", "gettext", "glob", "importlib", "inspect", "itertools", "keyword", "linecache", "locale",
    "logging", "opcode", "pathlib", "pprint", "re", "reprlib", "shlex", "shutil", "subprocess", "tempfile", "textwrap",
    "threading", "tokenize", "traceback", "typing", "warnings", "weakref", "zipfile", "zlib",
))  # fmt: skip


# The settings of a runner in a file, key by key, each known by a digest; a threshold is known itself.


BETWEEN = "\t"  # a section and a key of it
UNREADABLE = "unreadable"
DEEP = 6
KEYS = 500
_COVERED = "lines|branches|functions|statements"
_THRESHOLD = rf"(?i)fail[_-]under|coverageThreshold\..*|thresholds?\..*|(?:check-coverage\.)?(?:{_COVERED})"
_IN_OPTIONS = r"--(?:cov-)?fail-under[= ](\d+(?:\.\d+)?)"
_IN_CODE = rf"[\"']?\b({_COVERED})\b[\"']?\s*:\s*(\d+(?:\.\d+)?)"


def settings_in(name: str, section: str, text: str) -> dict[str, str] | None:
    """The bits of these sections; None where the file has none. Without a section it is the whole file."""
    if not section:
        bits = {WHOLE: digest(text.encode("utf-8", "surrogatepass"))}
        return bits | {f"{BETWEEN}{key}": NUMBER + number for key, number in reversed(re.findall(_IN_CODE, text))}
    tables = tables_in(name, section, text)
    if tables is None:
        return {UNREADABLE: digest(text.encode("utf-8", "surrogatepass"))}
    if not tables:
        return {} if name.lstrip(".") in ("pytest.ini", "pytest.toml") else None
    bits = {}
    for table, keys in tables.items():
        for key, given in keys.items():
            bits |= {f"{table}{BETWEEN}{one}": known for one, known in _known(key, given)}
    return dict(list(bits.items())[:KEYS])


def tables_in(name: str, section: str, text: str) -> dict[str, dict[str, Any]] | None:
    """The sections that begin so, each with its keys; None where the file cannot be understood."""
    if name.endswith(".toml"):
        return _toml(section, text)
    return _json(section, text) if name.endswith(".json") else _ini(section, text)


def _known(key: str, given: Any) -> Iterator[tuple[str, str]]:
    if isinstance(given, bool | int | float) and not isinstance(given, bool) and re.fullmatch(_THRESHOLD, key):
        yield key, f"{NUMBER}{given}"
        return
    if isinstance(given, str) and re.fullmatch(_THRESHOLD, key) and re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", given):
        yield key, NUMBER + given.strip()
        return
    words = given if isinstance(given, str) else repr(given)
    if key.rpartition(".")[2] == "addopts" and (found := re.search(_IN_OPTIONS, words)):
        yield f"{key} --cov-fail-under", NUMBER + found[1]
        words = re.sub(_IN_OPTIONS, "", words)
    yield key, digest(words.encode("utf-8", "surrogatepass"))


def _flat(table: dict[str, Any], above: str = "", deep: int = DEEP) -> Iterator[tuple[str, Any]]:
    for key, given in table.items():
        if isinstance(given, dict) and deep:
            yield from _flat(given, f"{above}{key}.", deep - 1)
        else:
            yield f"{above}{key}", given


def _toml(section: str, text: str) -> dict[str, dict[str, Any]] | None:
    import tomllib

    try:
        found: Any = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    for part in section.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        return {}
    tables: dict[str, dict[str, Any]] = {}
    for key, given in _flat(found):
        inner, _, name = key.rpartition(".")
        tables.setdefault(f"[{section}{'.' if inner else ''}{inner}]", {})[name] = given
    return tables


def _ini(section: str, text: str) -> dict[str, dict[str, Any]] | None:
    if section != "*" and f"[{section}" not in text:
        return {}
    import configparser

    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except (configparser.Error, ValueError):
        return None
    exact = section in ("pytest", "tool:pytest", "tox")
    names = [
        one for one in parser.sections() if section == "*" or (one == section if exact else one.startswith(section))
    ]
    return {f"[{name}]": dict(parser.items(name)) for name in names}


def _json(section: str, text: str) -> dict[str, dict[str, Any]] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    given = found.get(section) if isinstance(found, dict) else None
    if given is None:
        return {}
    return {section: dict(_flat(given))} if isinstance(given, dict) else {section: {"value": given}}
