"""What a check command reaches: scripts, targets, runners and their settings."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ralphproof.base import shell
from ralphproof.base.shell import ShellCommand
from ralphproof.base.text import quote_excerpt
from ralphproof.base.value import Json, value

# Files of the project as pins look at them: bounded, without following links out of it, never waiting for a pipe.


READ_BYTES = 1024 * 1024  # of a file that is to be understood; of a larger one only the digest is known
DIGEST_BYTES = 64 * READ_BYTES  # of a file that is to be told from another one
LINKS = 8  # followed one after the other
OWN = (".git", ".ralph", ".ralph-active")


def digest(content: bytes) -> str:
    """A short name of a content."""
    return hashlib.sha256(content).hexdigest()[:20]


def inside(path: str) -> str:
    """A path from the root in its plain form; empty where it leads out, is the root, or is not the project's own."""
    plain = os.path.normpath(path) if path else "."
    if plain in (".", "..") or plain.startswith(("../", "/")) or "\0" in plain:
        return ""
    return "" if plain.split("/", 1)[0] in OWN or ".git" in plain.split("/") else plain


class ProjectFiles:
    """The files of a project now; what was read once is kept as long as this is."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self._known: dict[str, tuple[bytes, str] | None] = {}

    def read(self, path: str) -> bytes | None:
        """What a file holds, through links inside the project; None where there is none.

        Of one that is too large it is the beginning.
        """
        found = self._found(path)
        return found[0] if found else None

    def text(self, path: str) -> str | None:
        """The same as a text; None also where it is none."""
        content = self.read(path)
        return None if content is None or b"\0" in content[:8192] else content.decode("utf-8", "replace")

    def digest(self, path: str) -> str:
        """The same for two equal files; empty where there is none."""
        found = self._found(path)
        return found[1] if found else ""

    def there(self, path: str) -> bool:
        """Whether anything is there, a file or not."""
        return bool(inside(path)) and os.path.lexists(os.path.join(self.root, path))

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(os.path.join(self.root, path))

    def list_files(self, folder: str, most: int = 5000) -> list[str]:
        """What lies in a folder, sorted; nothing where it is none."""
        try:
            with os.scandir(os.path.join(self.root, folder)) as entries:
                return sorted(entry.name for entry, _ in zip(entries, range(most), strict=False))
        except (OSError, ValueError):
            return []

    def from_root(self, path: str, folder: str = ".") -> str:
        """The path from the root of what a command in this folder calls so; empty where it lies elsewhere."""
        if not path or "\0" in path:
            return ""
        whole = os.path.normpath(os.path.join(self.root, folder, path))
        return inside(os.path.relpath(whole, self.root)) if whole.startswith("/") else ""

    def _found(self, path: str) -> tuple[bytes, str] | None:
        if path not in self._known:
            self._known[path] = self._look(path) if inside(path) else None
        return self._known[path]

    def _look(self, path: str) -> tuple[bytes, str] | None:
        """The content and its digest. A link that leads out of the project is known by where it leads."""
        led, at = b"", path
        for _ in range(LINKS):
            whole = os.path.join(self.root, at)
            try:
                lead = os.fsencode(os.readlink(whole))
            except (OSError, ValueError):
                break
            led += lead + b"\n"
            at = self.from_root(os.fsdecode(lead), os.path.dirname(at))
            if not at:
                return led, digest(led)
        found = _regular(os.path.join(self.root, at))
        if found is None:
            return (led, digest(led)) if led else None
        return found if not led else (found[0], digest(led + found[1].encode()))


def _regular(path: str) -> tuple[bytes, str] | None:
    """The beginning of a regular file, and the digest of all of it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return None
        content = os.read(descriptor, READ_BYTES)
        if len(content) == facts.st_size:
            return content, digest(content)
        return content, _whole(descriptor, content, facts)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _whole(descriptor: int, beginning: bytes, facts: os.stat_result) -> str:
    """Of a file that is huge, the rest is known by its size and time."""
    known, size = hashlib.sha256(beginning), len(beginning)
    while size < DIGEST_BYTES and (chunk := os.read(descriptor, READ_BYTES)):
        known.update(chunk)
        size += len(chunk)
    if size < facts.st_size:
        known.update(f"{facts.st_size} {facts.st_mtime_ns}".encode())
    return known.hexdigest()[:20]


# A part of the project that decides over a check: known by the digests of its bits, and never by what it holds.


NAME_CHARS = 80
WHOLE = ""  # the name of the only bit of a piece that has one
NUMBER = "n:"  # what begins a bit that is a threshold: then it is known itself
# What a piece is, and so how a change of it is judged.
SCRIPT, TARGET, VARIABLE, PACKAGE, SETTINGS = "script", "target", "variable", "package", "settings"
CONFTEST, STARTUP, SHADOW, PLUGIN, PROGRAM = "conftest", "startup", "shadow", "plugin", "program"
DECLARED = "declared"  # what a package says that it needs: free to change, and known as it was


@value
class Piece:
    """A part of a file. `name` is the part's own, empty where it is the whole file; `bits` are sorted by their names.

    `runner` is the program that the piece configures. `rank` tells which of two pieces of one runner counts: the lower.
    """

    kind: str
    path: str
    name: str = ""
    bits: tuple[tuple[str, str], ...] = ()
    runner: str = ""
    rank: int = 0

    @property
    def key(self) -> str:
        return f"{self.kind}\n{self.path}\n{self.name}"

    @property
    def by_name(self) -> dict[str, str]:
        return dict(self.bits)


def piece(kind: str, path: str, name: str, bits: Mapping[str, str], runner: str = "", rank: int = 0) -> Piece:
    """A piece of these bits."""
    return Piece(kind, path, name, tuple(sorted(bits.items())), runner, rank)


def whole(kind: str, path: str, digest: str, runner: str = "", rank: int = 0) -> Piece:
    """A piece that is a whole file."""
    return Piece(kind, path, "", ((WHOLE, digest),), runner, rank)


def shown(name: str) -> str:
    """A name out of a file as it can stand in a sentence."""
    return name if name.isprintable() and len(name) <= NAME_CHARS else quote_excerpt(name)


def listed(names: list[str], most: int = 5) -> str:
    """Some names in a sentence."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


def to_note(pieces: Mapping[str, Piece]) -> Json:
    """What is kept of pieces."""
    return [[one.kind, one.path, one.name, dict(one.bits), one.runner, one.rank] for one in pieces.values()]


def from_note(noted: Json) -> dict[str, Piece] | None:
    """The pieces that were kept; None where they cannot be read."""
    try:
        rows = [tuple(row) for row in noted]  # type: ignore[union-attr, arg-type]
        made = [
            Piece(
                str(kind),
                str(path),
                str(name),
                tuple(sorted((str(a), str(b)) for a, b in bits.items())),
                str(runner),
                int(rank),
            )
            for kind, path, name, bits, runner, rank in rows
        ]
    except (TypeError, ValueError, AttributeError):
        return None
    return {one.key: one for one in made}


# Test runners, their configuration files, and the settings in them.


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
MAX_INCLUDES = 6
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


def _flat(table: dict[str, Any], above: str = "", deep: int = MAX_INCLUDES) -> Iterator[tuple[str, Any]]:
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


# The package.json scripts that npm and similar programs run.


FILE = "package.json"
SCRIPTS = 2000
CALLERS = frozenset(("npm", "pnpm", "yarn", "bun"))
STARTERS = frozenset(("npx", "pnpx", "bunx"))
SEVERAL = frozenset(("npm-run-all", "npm-run-all2", "run-s", "run-p", "concurrently"))
_PACKAGE_OPTIONS = ("--prefix", "-C", "--dir", "--cwd", "-w", "--workspace", "--filter", "-F", "--loglevel")
_FOLDER = ("--prefix", "-C", "--dir", "--cwd", "-w", "--workspace")
_OWN = {"t": "test", "tst": "test", "test": "test", "start": "start", "stop": "stop", "restart": "restart"}
_LIFE = ("preinstall", "install", "postinstall", "prepare")
_INSTALLS = frozenset(("ci", "install", "i", "clean-install", "install-test", "it", "cit"))


@value
class PackageCall:
    """What npm or its kin is asked for: in which folder, which scripts, or which program with which words."""

    folder: str
    scripts: tuple[str, ...] = ()
    program: tuple[str, ...] = ()


def package_call(command: ShellCommand) -> PackageCall | None:
    """What a command asks of a package; None where it asks nothing."""
    name, left, folder = command.name, list(command.words), command.folder
    if name in SEVERAL:
        return PackageCall(folder, tuple(one.removeprefix("npm:") for one in left if not one.startswith("-")))
    if name not in CALLERS | STARTERS:
        return None
    plain: list[str] = []
    while left:
        word = left.pop(0)
        option, given, text = word.partition("=")
        if option in _PACKAGE_OPTIONS:
            text = text if given or not left else left.pop(0)
            folder = os.path.normpath(os.path.join(folder, text)) if option in _FOLDER else folder
        elif not word.startswith("-") or plain:
            plain.append(word)
    if name in STARTERS:
        return PackageCall(folder, program=tuple(plain))
    return _asked(name, folder, plain)


def _asked(name: str, folder: str, plain: list[str]) -> PackageCall:
    first, rest = (plain[0], plain[1:]) if plain else ("", [])
    if first in ("exec", "x", "dlx"):
        return PackageCall(folder, program=tuple(rest))
    if first in ("run", "run-script", "rum"):
        return PackageCall(folder, tuple(rest[:1]), tuple(rest))
    if first in _INSTALLS or (name == "yarn" and not first):
        return PackageCall(folder, _LIFE if not first.endswith("t") or first == "install" else (*_LIFE, "test"))
    if name == "bun" and first == "test":
        return PackageCall(folder, program=("bun-test",))
    if first in _OWN:
        return PackageCall(folder, (_OWN[first],))
    return PackageCall(folder, (first,), tuple(plain)) if name != "npm" and first else PackageCall(folder)


def package_file(folder: str, there: Callable[[str], bool]) -> str:
    """The package.json that holds for a folder: the nearest one above; its own where there is none."""
    at = folder
    while True:
        path = os.path.normpath(os.path.join(at, FILE))
        if there(path):
            return path
        if at in (".", "", "..") or at.startswith("../"):
            return os.path.normpath(os.path.join(folder, FILE))
        at = os.path.dirname(at) or "."


def declared_piece(path: str, package: Mapping[str, Any]) -> Piece:
    """The packages that a package says it needs."""
    tables = (package.get(f"{kind}ependencies") for kind in ("d", "devD", "optionalD", "peerD"))
    names = [str(name) for table in tables if isinstance(table, dict) for name in table]
    return piece(DECLARED, path, "", dict.fromkeys(names[:SCRIPTS], ""))


def script_pieces(path: str, package: Mapping[str, Any], wanted: tuple[str, ...]) -> list[tuple[Piece, str]]:
    """The scripts that these names stand for, each with what npm runs before and after it, and their texts."""
    every = package.get("scripts")
    rows = list(every.items())[:SCRIPTS] if isinstance(every, dict) else []
    scripts = {str(name): str(text) for name, text in rows}
    names = [
        name for one in wanted for name in scripts if name == one or ("*" in one and fnmatch.fnmatchcase(name, one))
    ]
    made = []
    for name in dict.fromkeys(names):
        around = {one: scripts[one] for one in (f"pre{name}", name, f"post{name}") if one in scripts}
        bits = {one: digest(text.encode("utf-8", "surrogatepass")) for one, text in around.items()}
        made.append((piece(PACKAGE, path, f"script {name}", bits), "\n".join(around.values())))
    return made


# The rules, prerequisites and variables of a Makefile target.


NAMES = ("GNUmakefile", "makefile", "Makefile")
INCLUDED = 4  # levels of files that include others
REACHED, FILES, PATTERNS = 500, 50, 100  # targets, included files, rules for many names
EXPANDED, EXPANDED_CHARS, MEANT_CHARS = 5, 64 * 1024, 1000  # rounds of putting in what variables stand for
_MAKE_OPTIONS = ("-C", "--directory", "-f", "--file", "--makefile", "-j", "-l", "-o", "-W", "-I", "--include-dir")
# What decides over every recipe.
_ALWAYS = ("SHELL", ".SHELLFLAGS", "MAKEFLAGS", "GNUMAKEFLAGS", ".RECIPEPREFIX", "VPATH", "PATH")
_SPECIAL = (".IGNORE", ".ONESHELL", ".POSIX", ".DEFAULT", ".EXPORT_ALL_VARIABLES", ".NOTPARALLEL", ".DELETE_ON_ERROR")
_ASSIGNS = (
    r"(?s)^\s*(?P<export>(?:override\s+|export\s+|private\s+)*)(?P<name>[^\s:#=+?!]+)\s*(?:::?:?=|[+?!]?=)(?P<text>.*)$"
)
_RULE = r"(?s)^(?P<names>[^\t#=:][^#=:]*)(?P<how>::?)(?!=)(?P<needs>[^;]*)(?:;(?P<first>.*))?$"
_BRANCH = r"^\s*(?:ifeq|ifneq|ifdef|ifndef|else|endif)\b"
_USES = r"\$(?:[({](?:call\s+|value\s+|origin\s+)?([A-Za-z0-9_.%-]+)|([A-Za-z]))"


@value
class MakeCall:
    """What `make` is asked for: in which folder from the root, by which file, which targets."""

    folder: str
    file: str = ""
    targets: tuple[str, ...] = ()


@value
class MakePassage:
    """A rule or a variable as a file has it, with the conditions that it stands under."""

    name: str
    file: str
    text: str
    needs: tuple[str, ...] = ()
    exported: bool = False


def make_call(words: tuple[str, ...], folder: str) -> MakeCall:
    """What these words ask of make."""
    file, targets, left = "", [], list(words)
    while left:
        word = left.pop(0)
        option, given, text = word.partition("=") if word.startswith("--") else (word, "", "")
        if word[:2] in ("-C", "-f") and len(word) > 2 and word[1] != "-":
            option, given, text = word[:2], "=", word[2:]
        if option in _MAKE_OPTIONS:
            numbers = option in ("-j", "-l") and not (left and left[0].isdigit())
            text = text if given or numbers or not left else left.pop(0)
            folder = os.path.normpath(os.path.join(folder, text)) if option in ("-C", "--directory") else folder
            file = text if option in ("-f", "--file", "--makefile") else file
        elif not word.startswith("-") and "=" not in word and "$" not in word:
            targets.append(word)
    return MakeCall(folder, file, tuple(targets))


class Makefile:
    """A Makefile with all that it includes. `read` gives the text of a file by its path from the root."""

    def __init__(self, path: str, read: Callable[[str], str | None]) -> None:
        self.path, self._read = path, read
        self.passages: dict[str, list[MakePassage]] = {}
        self.rules: list[str] = []
        self.files: list[str] = []
        self._folder = os.path.dirname(path)
        self._meanings = {"MAKE": "make"}
        self._take(path, INCLUDED)
        self._patterns = [name for name in dict.fromkeys(self.rules) if "%" in name and len(name) < 200][:PATTERNS]
        self._phony = {need for rule in self.passages.get(".PHONY", ()) for need in rule.needs}

    def default(self) -> tuple[str, ...]:
        """What is made where nothing is asked for."""
        told = self.passages.get("=.DEFAULT_GOAL")
        if told:
            return (told[-1].text.rpartition("=")[2].strip(),)
        return next(((name,) for name in self.rules if not name.startswith(".") and "%" not in name), ())

    def phony(self, target: str) -> bool:
        return target in self._phony

    def reached(self, targets: tuple[str, ...]) -> tuple[dict[str, list[MakePassage]], dict[str, list[MakePassage]]]:
        """The rules that these targets lead to, and the variables that they use, by their names."""
        rules: dict[str, list[MakePassage]] = {}
        waiting = list(targets)
        while waiting and len(rules) < REACHED:
            name = waiting.pop(0)
            if name in rules:
                continue
            rules[name] = self._rules(name)
            waiting += [need for rule in rules[name] for need in rule.needs]
        rules |= {name: self.passages[name] for name in _SPECIAL if name in self.passages}
        found = {name: passages for name, passages in rules.items() if passages or name in targets}
        return found, self._used(found)

    def _rules(self, name: str) -> list[MakePassage]:
        plain = self.passages.get(name, [])
        if any("\n\t" in rule.text or ";" in rule.text for rule in plain):
            return plain
        patterns = [one for one in self._patterns if fnmatch.fnmatchcase(name, one.replace("%", "*"))]
        return plain + [rule for one in patterns[:10] for rule in self.passages[one]]

    def _used(self, rules: dict[str, list[MakePassage]]) -> dict[str, list[MakePassage]]:
        every = {name[1:]: passages for name, passages in self.passages.items() if name.startswith("=")}
        used = {name for name, passages in every.items() if name in _ALWAYS or any(one.exported for one in passages)}
        waiting = [passage.text for passages in rules.values() for passage in passages]
        waiting += [passage.text for name in used for passage in every[name]]
        while waiting:
            names = {found[1] or found[2] for found in re.finditer(_USES, waiting.pop())}
            for name in names & every.keys() - used:
                used.add(name)
                waiting += [passage.text for passage in every[name]]
        return {name: every[name] for name in used}

    def expanded(self, passages: list[MakePassage]) -> str:
        """The recipes as a shell would see them, as far as plain variables tell."""
        text = "\n".join(re.sub(r"(?m)^[ \t]+[@+-]*", "", one.text.partition("\n\t")[2]) for one in passages)
        text += "".join(f"\n{one.text.partition(';')[2]}" for one in passages if ";" in one.text.split("\n\t")[0])
        for _ in range(EXPANDED):
            text = re.sub(r"\$[({]([A-Za-z0-9_.-]+)[)}]", self._meant, text)[:EXPANDED_CHARS]
        return text.replace("$$", "$")

    def _meant(self, found: re.Match[str]) -> str:
        name = found[1]
        if name not in self._meanings:
            values = [one.text.partition("=")[2].strip() for one in self.passages.get(f"={name}", ())]
            self._meanings[name] = " ".join(values)[:MEANT_CHARS] if values else " "
        return self._meanings[name]

    def _take(self, path: str, deep: int) -> None:
        text = self._read(path)
        if text is None or path in self.files or len(self.files) >= FILES:
            return
        self.files.append(path)
        branches: list[str] = []
        names: list[str] = []  # of the rule that a recipe would belong to
        for line, body in _logical(text):
            if re.match(_BRANCH, line):
                _turn(branches, line.strip())
                for name in names if body else ():
                    self._add(name, MakePassage(name, path, "\n".join([*branches, body])))
            elif (included := re.match(r"^\s*[-s]?include\s+(.*)$", line)) and deep:
                for word in included[1].split("#")[0].split():
                    self._take(os.path.normpath(os.path.join(self._folder, word)), deep - 1)
            else:
                names = self._note(path, line, body, "\n".join(branches))

    def _note(self, path: str, line: str, body: str, under: str) -> list[str]:
        """Keep what a line says; the names of the rule that it begins. A `#` behind `;` is the shell's."""
        line = line if ";" in line.partition("#")[0] else line.partition("#")[0].rstrip()
        whole = f"{under}\n{line}{body}"
        if made := re.match(_ASSIGNS, line):
            exported = "export" in made["export"]
            self._add(f"={made['name']}", MakePassage(made["name"], path, whole, exported=exported))
        elif found := re.match(r"^\s*(define|export)\s+(\S+)", line):
            self._add(f"={found[2]}", MakePassage(found[2], path, whole, exported=found[1] == "export"))
        elif rule := re.match(_RULE, line):
            own = re.match(_ASSIGNS, rule["needs"])  # a variable of this target alone
            needs = () if own else tuple(word for word in rule["needs"].split() if word != "|" and "$" not in word)
            names = rule["names"].split()
            for name in names:
                self._add(name, MakePassage(name, path, whole, needs))
            self.rules += names
            return names
        return []

    def _add(self, name: str, passage: MakePassage) -> None:
        self.passages.setdefault(name, []).append(passage)


def _turn(branches: list[str], line: str) -> None:
    """The conditions that hold behind a line with one."""
    if line.startswith("if"):
        branches.append(line)
    elif line.startswith("else") and branches:
        branches[-1] += f" {line}"
    elif branches:
        branches.pop()


def _logical(text: str) -> Iterator[tuple[str, str]]:
    """Every line that is none of a recipe, its continuations joined, with the recipe or definition below it."""
    line, body, defining = "", "", False
    for row in _rows(text):
        if defining or (row.startswith("\t") and line):
            plain = row.strip() and not row.strip().startswith("#")
            body += f"\n\t{row.strip()}" if plain else ""
            defining = defining and row.strip() != "endef"
            continue
        if not row.strip() or row.lstrip().startswith("#"):
            continue
        if line:
            yield line, body
        line, body, defining = row.rstrip(), "", bool(re.match(r"\s*(?:override\s+)?define\s", row))
    if line:
        yield line, body


def _rows(text: str) -> list[str]:
    """The lines of a Makefile; recipes begin with a tab, whatever it says that they begin with."""
    prefix = re.search(r"(?m)^\s*\.RECIPEPREFIX\s*:?:?=\s*(\S)", text)
    rows: list[str] = []
    open_row: list[str] = []  # a line that goes on in the next one
    for row in text.replace("\r\n", "\n").split("\n"):
        plain = "\t" + row[1:] if prefix and row.startswith(prefix[1]) and not open_row else row
        if plain.endswith("\\") and (open_row or not plain.startswith("\t")):
            open_row.append(plain[:-1].rstrip() if not open_row else plain[:-1].strip())
            continue
        rows.append(" ".join([*open_row, plain.strip()]) if open_row else plain)
        open_row = []
    return rows + ([" ".join(open_row)] if open_row else [])


# What a check's command leads to: make targets, package scripts, scripts and runners.


DEEP = 3  # scripts that run scripts
PIECES = 2000
PHONY, MADE = "\tphony", "\tmade"  # facts of a target beside its text
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash", "busybox"))
_OTHERS = frozenset(("node", "nodejs", "tsx", "ts-node", "deno", "ruby", "perl", "php", "bun"))
# Options that take a word which is no script.
_TAKING = frozenset(("-W", "-X", "-O", "-o", "--conditions", "-C", "--test-reporter", "--test-name-pattern", "-I"))
_NAMING = frozenset((  # options that name a file which decides
    "--config", "--config-file", "--rcfile", "--require", "--import", "--loader", "--experimental-loader",
    "--settings", "--project", "--opts", "--preload", "--setupFiles", "--globalSetup", "--cov-config",
))  # fmt: skip
_SHORT = {"-c": ("pytest", "eslint", "jest", "py.test"), "-r": ("node", "mocha", "ava"), "-p": ("tsc", "pytest")}
_WORD = r"[\w@./=-]+"


class Reach:
    """All that commands lead to, in the project as its files now are."""

    def __init__(self, files: ProjectFiles) -> None:
        self.files = files
        self.pieces: dict[str, Piece] = {}
        self.programs: set[str] = set()
        self.runners: set[str] = set()
        self.folders: set[str] = set()  # where runners look for their settings
        self.packages: set[str] = set()  # where npm looks for programs
        self.python_paths: set[str] = set()
        self.python = False
        self._seen: set[tuple[str, str]] = set()
        self._packages: dict[str, dict[str, Any]] = {}

    def follow(self, text: str, folder: str = ".", deep: int = DEEP) -> None:
        """Take in a shell's text that runs in this folder."""
        if (text, folder) in self._seen or len(self.pieces) > PIECES or deep < -DEEP:
            return
        self._seen.add((text, folder))
        for command in shell.commands_in(text, folder):
            self._command(command, deep)

    def words(self, text: str, folder: str) -> None:
        """Take in what is no shell's text: only the names of runners in it tell something."""
        found = {runner for word in re.findall(_WORD, text[: shell.MAX_CHARS]) if (runner := runner_of(word))}
        if found:
            self.runners |= found
            self.folders.add(folder)
        self.python = self.python or any(re.fullmatch(PYTHON, one) for one in found)

    def _command(self, command: ShellCommand, deep: int) -> None:
        name, folder = command.name, command.folder
        self.programs.add(name)
        every = (command.program, *command.words)
        runners = {runner for word in every if (runner := runner_of(word))}
        if runners:
            self.runners |= runners
            self._look_in(command)
        if any(re.fullmatch(PYTHON, os.path.basename(word)) for word in every):
            self.python = True
            self.python_paths.add(folder)
            self._own_path(command)
        if "/" in command.program:
            self.script(command.program, folder, deep)
        self._named(command, deep)
        self._by_name(name, command, deep)

    def _by_name(self, name: str, command: ShellCommand, deep: int) -> None:
        if name in ("make", "gmake"):
            self.make(make_call(command.words, command.folder), deep)
        elif call := package_call(command):
            self._package(call, deep)
        elif name in _SHELLS:
            self._shell(command, deep)
        elif name in (".", "source"):
            self.script(next(iter(command.words), ""), command.folder, deep)
        elif re.fullmatch(PYTHON, name) and name.startswith("py") and "test" not in name:
            self._interpreted(command, deep, ("-m", "-c"))
        elif name in _OTHERS and "--test" not in command.words and "test" not in command.words[:1]:
            self._interpreted(command, deep, ("-e", "-p", "--eval", "--print"))

    def _look_in(self, command: ShellCommand) -> None:
        """A runner looks in the folder that it is started in, and in those that it is given."""
        for word in ("", *command.words):
            folder = self.files.from_root(word, command.folder) if word else os.path.normpath(command.folder)
            folder = folder if not word or self.files.is_folder(folder) else os.path.dirname(folder)
            while folder and folder not in self.folders and self.files.is_folder(folder):
                self.folders.add(folder)
                folder = os.path.dirname(folder)
        self.folders.add(".")

    def _own_path(self, command: ShellCommand) -> None:
        for one in command.sets:
            if one.startswith("PYTHONPATH="):
                self.python_paths |= {
                    found for word in one[11:].split(":") if (found := self.files.from_root(word, command.folder))
                }

    def _named(self, command: ShellCommand, deep: int) -> None:
        """Files that an option names as what decides, not as what is looked at."""
        words = [*command.words, *(word for one in command.sets for word in one.partition("=")[2].split())]
        for at, word in enumerate(words):
            option, given, text = word.partition("=")
            if option in _NAMING or (command.name in _SHORT.get(option, ()) and not given):
                path = text if given else words[at + 1] if at + 1 < len(words) else ""
                self.script(path, command.folder, deep)
                if option == "-p":  # a plug-in, by its module's name
                    self.script(path.replace(".", "/") + ".py", command.folder, deep)

    def _shell(self, command: ShellCommand, deep: int) -> None:
        for at, word in enumerate(command.words):
            if re.fullmatch(r"-[a-z]*c", word):
                self.follow(next(iter(command.words[at + 1 :]), ""), command.folder, deep - 1)
                return
            if not word.startswith(("-", "+")):
                self.script(word, command.folder, deep, in_shell=True)
                return

    def _interpreted(self, command: ShellCommand, deep: int, ends: tuple[str, ...]) -> None:
        skip = False
        for word in command.words:
            if skip or word in _TAKING or word in ("-r", "--require", "--import", "--loader"):
                skip = not skip
            elif word in ends:
                return
            elif not word.startswith("-") and word not in ("run", "x"):
                self.script(word, command.folder, deep)
                return

    def script(self, name: str, folder: str, deep: int, in_shell: bool = False) -> None:
        """Take in a script that is run in this folder."""
        path = self.files.from_root(name, folder) if "$" not in name else ""
        text = self.files.text(path) if path else None
        if text is None:
            return
        made = whole(SCRIPT, path, self.files.digest(path))
        self.pieces[made.key] = made
        if deep <= 0 or ("", path) in self._seen:
            return
        self._seen.add(("", path))
        first = text.partition("\n")[0]
        if path.endswith(".py") or "python" in first:
            self.python = True
            self.python_paths.add(os.path.dirname(path) or ".")
        if in_shell or path.endswith((".sh", ".bash")) or re.match(r"#!.*\b(?:ba|da|z|k)?sh\b", first):
            self.follow(text, folder, deep - 1)
        self.words(text, folder)

    def make(self, call: MakeCall, deep: int) -> None:
        """Take in what make is asked for."""
        names = (call.file,) if call.file else NAMES
        paths = [path for name in names if (path := self.files.from_root(name, call.folder))]
        path = next((one for one in paths if self.files.text(one) is not None), "")
        if not path or deep < 0:
            return
        makefile = Makefile(path, self.files.text)
        asked = call.targets or makefile.default()
        rules, variables = makefile.reached(asked)
        for name, passages in rules.items():
            bits = _by_file(passages)
            if bits:
                bits |= {PHONY: "1"} if makefile.phony(name) else {}
                by_itself = name in asked and not makefile.phony(name) and not any("$@" in one.text for one in passages)
                made = by_itself and self.files.there(os.path.normpath(os.path.join(call.folder, name)))
                self._add(piece(TARGET, path, name, bits | ({MADE: "1"} if made else {})))
            self.follow(makefile.expanded(passages), call.folder, deep - 1)
        for name, passages in variables.items():
            self._add(piece(VARIABLE, path, name, _by_file(passages)))
            self.words("\n".join(one.text for one in passages), call.folder)

    def variable(self, path: str, name: str) -> None:
        """Take in a variable of a Makefile."""
        passages = Makefile(path, self.files.text).passages.get(f"={name}")
        if passages:
            self._add(piece(VARIABLE, path, name, _by_file(passages)))

    def _package(self, call: PackageCall, deep: int) -> None:
        path = package_file(call.folder, self.files.there)
        folder = os.path.dirname(path) or "."
        self.packages.add(folder)
        self._add(declared_piece(path, self._read_package(path)))
        if call.program:
            self._command(shell.ShellCommand(call.program[0], call.program[1:], call.folder), deep)
        for text in self.scripts(path, call.scripts):
            if deep > 0:
                self.follow(text, folder, deep - 1)

    def scripts(self, path: str, names: tuple[str, ...]) -> list[str]:
        """Take in these scripts of a package; their texts."""
        made = script_pieces(path, self._read_package(path), names)
        for one, _ in made:
            self._add(one)
        return [text for _, text in made]

    def _read_package(self, path: str) -> dict[str, Any]:
        if path not in self._packages:
            try:
                found = json.loads(self.files.text(path) or "{}")
            except (ValueError, RecursionError):
                found = {}
            self._packages[path] = found if isinstance(found, dict) else {}
        return self._packages[path]

    def _add(self, made: Piece) -> None:
        self.pieces[made.key] = made


def _by_file(passages: list[MakePassage]) -> dict[str, str]:
    """What each file says of a name."""
    texts: dict[str, str] = {}
    for passage in passages:
        texts[passage.file] = f"{texts.get(passage.file, '')}\0{passage.text}"
    return {file: digest(text.encode("utf-8", "surrogatepass")) for file, text in texts.items()}
