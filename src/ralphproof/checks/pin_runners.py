"""What configures the programs that checks run: for each, the files, or the sections of shared files, in their order.

A row is a file's name, in which `*` may stand for anything, and the sections of it: all that begin so, or `*` for all
of them; empty for the file as a whole. Where a program reads only one of several files, the first of them counts.
"""

from __future__ import annotations

import fnmatch

from ralphproof.value import value

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
