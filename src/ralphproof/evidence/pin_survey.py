"""The survey of all that decides over the checks of a run: settings, search path, home directory."""

from __future__ import annotations

import fnmatch
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from ralphproof.base.text import quote_excerpt
from ralphproof.base.value import TYPE_CHECKING, Json
from ralphproof.evidence.pin_reach import (
    CONFTEST,
    MODULES,
    OWN,
    PACKAGE,
    PLUGIN,
    PROGRAM,
    RUNNERS,
    SCRIPT,
    SETTINGS,
    SHADOW,
    STARTUP,
    TARGET,
    TESTING,
    VARIABLE,
    MakeCall,
    Piece,
    ProjectFiles,
    Reach,
    digest,
    piece,
    rows_for,
    settings_in,
    tables_in,
    whole,
)

if TYPE_CHECKING:
    import ast


# Whether a conftest only defines fixtures, or takes part in what the test runner decides.


UNREADABLE = "unreadable"
PLAIN, WEIGHTY = "plain", "weighty"  # a statement that may go again, and one that may not
STATEMENTS, CHARS = 500, 256 * 1024
_DECIDING = frozenset((
    "skip", "skipif", "xfail", "importorskip", "_exit", "exit", "quit", "add_marker", "modules", "settrace",
    "setprofile", "builtins", "__builtins__", "outcomes", "outcome", "exec", "eval", "compile", "__import__", "gc",
    "ctypes", "_pytest", "pluggy", "pluginmanager", "hookimpl", "hookspec", "atexit", "TestReport", "CallInfo",
    "longrepr", "wasxfail", "__code__", "__globals__", "__subclasses__", "globals", "import_module", "hookwrapper",
    "testsfailed", "exitstatus", "session_finish", "collect_ignore", "collect_ignore_glob", "deselect",
    "addoption", "setattr_builtin", "register_assert_rewrite", "kill", "abort", "__init_subclass__",
))  # fmt: skip
_JUDGES = frozenset(("pytest", "unittest", "sys", "builtins", "operator", "os"))  # whose parts nobody may exchange
_FIXTURES = ("fixture", "contextmanager", "cache", "wraps", "dataclass", "property", "staticmethod", "classmethod")
_PURE = frozenset((
    "Path", "pathlib", "frozenset", "dict", "list", "set", "tuple", "int", "str", "float", "bool", "len", "sorted",
    "range", "TypeVar", "Decimal", "namedtuple", "date", "datetime", "timedelta", "UUID", "uuid", "getenv", "bytes",
    "dirname", "abspath", "join", "realpath", "resolve", "getLogger", "cast", "ParamSpec", "NewType", "get",
    "read_text", "joinpath", "insert", "append", "setdefault", "re", "with_suffix", "replace", "strip", "compile_",
))  # fmt: skip


def statements(text: str) -> dict[str, str]:
    """Every statement of a conftest by its digest, however it is laid out."""
    tree = _parsed(text)
    try:
        if tree is not None and len(tree.body) <= STATEMENTS:
            return {_known(node): _weight(node) for node in tree.body}
    except RecursionError:
        pass
    return unread(text.encode("utf-8", "surrogatepass"))


def unread(content: bytes) -> dict[str, str]:
    """A conftest that nobody can read is known as a whole."""
    return {UNREADABLE: digest(content)}


def deciding(text: str, known: Iterable[str]) -> str:
    """How what is new in a conftest takes part in what the runner decides, in words; empty where it does not."""
    tree, before = _parsed(text), frozenset(known)
    try:
        if tree is not None and len(tree.body) <= STATEMENTS:
            fresh = [node for node in tree.body if _known(node) not in before]
            return next((why for node in fresh if (why := _why(node))), "")
    except RecursionError:
        pass
    return "it cannot be read"


def _known(node: ast.stmt) -> str:
    import ast

    return digest(ast.dump(node).encode("utf-8", "surrogatepass"))


def _parsed(text: str) -> ast.Module | None:
    import ast
    import warnings

    if len(text) > CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _weight(node: ast.stmt) -> str:
    import ast

    words = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return PLAIN if words or isinstance(node, ast.Import | ast.ImportFrom) else WEIGHTY


def _why(node: ast.stmt) -> str:
    """What is wrong with a statement at the top of a conftest."""
    import ast

    for inner in ast.walk(node):
        if hook := _hook(inner):
            return f"it hooks into the test runner ({quote_excerpt(hook)[1:-1]})"
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Pass():
            return ""
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            named = (_last(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list)
            return "" if all(name.endswith(_FIXTURES) for name in named) else "it decorates by what is not known"
        case ast.If() | ast.Try():
            bodies = [*node.body, *node.orelse, *(getattr(node, "finalbody", ()))]
            bodies += [one for handler in getattr(node, "handlers", ()) for one in handler.body]
            return next((why for one in bodies if (why := _why(one))), "")
        case ast.Assign() | ast.AnnAssign() | ast.Expr() | ast.AugAssign():
            return "" if _pure(node) else "it runs code when it is loaded"
        case _:
            return "it runs code when it is loaded"


def _hook(node: ast.AST) -> str:
    """The name by which a part of a statement takes part in what is decided."""
    import ast

    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("pytest_"):
            return name
        case ast.Name(id=name) if name in _DECIDING or (name.startswith("pytest_") and isinstance(node.ctx, ast.Store)):
            return name
        case ast.Attribute(attr=name) if name in _DECIDING:
            return name
        case ast.Attribute(value=ast.Name(id=name)) if name in _JUDGES and isinstance(node.ctx, ast.Store | ast.Del):
            return f"{name}.{node.attr}"
        case ast.Call(func=ast.Name(id="setattr" | "getattr" | "delattr" as name), args=[ast.Name(id=of), *_]):
            return f"{name} {of}" if of in _JUDGES else ""
        case ast.ImportFrom(names=names, module=module):
            told = [one.asname or one.name for one in names]
            bad = [one for one in told if one == "*" or one.startswith("pytest_") or one in _DECIDING]
            return (bad or [""])[0] or ("_pytest" if (module or "").split(".")[0] in ("_pytest", "pluggy") else "")
        case ast.Import(names=names):
            return next((one.name for one in names if one.name.split(".")[0] in _DECIDING), "")
        case _:
            return ""


def _pure(node: ast.stmt) -> bool:
    """Whether a statement only gives names to constants, or says where modules and settings are."""
    import ast

    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    stored = [one for one in ast.walk(node) if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store)]
    others = (ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
    environ = all(_last(one.value) == "environ" for one in stored)
    return (
        environ
        and all(_last(one.func) in _PURE for one in calls)
        and not any(isinstance(n, others) for n in ast.walk(node))
    )


def _last(node: ast.expr) -> str:
    """The last name of a dotted one."""
    import ast

    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# What Python and pytest load unasked: conftest files, start-up modules, modules that stand before the runner's own.


FOLDERS = 20_000  # entries of folders that are looked through
CONFTESTS = 500  # that are read; of others it is only known whether they changed
STARTS = ("sitecustomize", "usercustomize")
ENDINGS = (".py", ".pyc", ".so", ".pyd")
VENV_CONFIG = "pyvenv.cfg"
WEAK = 1  # the rank of a module that stands before one of Python's own
_PASSED_OVER = frozenset((*OWN, "node_modules", "__pycache__"))


def conftests(files: ProjectFiles) -> Iterator[Piece]:
    """Every conftest that pytest might load."""
    for number, path in enumerate(_found(files, "conftest.py")):
        content = files.read(path) or b""
        known = statements(content.decode("utf-8", "replace")) if number < CONFTESTS else unread(content)
        yield piece(CONFTEST, path, "", known)


def _found(files: ProjectFiles, wanted: str) -> Iterator[str]:
    """Where files of this name lie; hidden folders and virtual environments are passed over, as pytest does."""
    waiting, left = [""], FOLDERS
    while waiting and left > 0:
        folder = waiting.pop(0)
        below: list[str] = []
        found = virtual = False
        try:
            with os.scandir(os.path.join(files.root, folder)) as entries:
                for entry in entries:
                    left -= 1
                    name = entry.name
                    found, virtual = found or name == wanted, virtual or name == VENV_CONFIG
                    if not name.startswith(".") and name not in _PASSED_OVER and entry.is_dir(follow_symlinks=False):
                        below.append(f"{folder}{name}/")
        except OSError:
            continue
        if virtual:
            continue
        if found:
            yield folder + wanted
        waiting += sorted(below)


def modules(files: ProjectFiles, folders: Iterable[str], first: Iterable[str]) -> Iterator[Piece]:
    """Modules that would be loaded instead of the runner's own, or before everything else.

    Those of `first` come before Python's own modules too.
    """
    own, standard = frozenset(first), sys.stdlib_module_names
    for folder in sorted(set(folders) | own):
        for name in files.list_files(folder):
            stem = name.partition(".")[0]
            path = name if folder == "." else f"{folder}/{name}"
            known = stem in MODULES or stem in STARTS
            if not (known or (folder in own and stem in standard)) or not _is_module(files, path):
                continue
            kind = STARTUP if stem in STARTS else SHADOW
            digests = _digests(files, path)
            if digests:
                yield piece(kind, path, "", digests, stem, 0 if known else WEAK)


def _is_module(files: ProjectFiles, path: str) -> bool:
    """A folder without an `__init__` never stands before a module that is installed."""
    if path.endswith(ENDINGS):
        return not files.is_folder(path)
    return "." not in os.path.basename(path) and any(one.startswith("__init__.") for one in files.list_files(path))


def _digests(files: ProjectFiles, path: str) -> dict[str, str]:
    if not files.is_folder(path):
        return {"": files.digest(path)}
    return {name: files.digest(f"{path}/{name}") for name in files.list_files(path, 200) if name.endswith(ENDINGS)}


def environments(files: ProjectFiles) -> Iterator[Piece]:
    """What virtual environments inside the project load by themselves."""
    for site in _sites(files):
        names = files.list_files(site, 20_000)
        yield piece(PLUGIN, site, "packages", {name: "" for name in names if name.endswith(".dist-info")})
        for name in names:
            if name.endswith(".pth"):
                yield whole(PLUGIN, f"{site}/{name}", files.digest(f"{site}/{name}"))
            elif name.partition(".")[0] in STARTS and _is_module(files, f"{site}/{name}"):
                yield piece(STARTUP, f"{site}/{name}", "", _digests(files, f"{site}/{name}"), name.partition(".")[0])


def _sites(files: ProjectFiles) -> Iterator[str]:
    above = [name for name in files.list_files(".") if name not in _PASSED_OVER and files.is_folder(name)]
    below = [
        f"{folder}/{name}"
        for folder in above[:200]
        if "." not in folder and not files.there(f"{folder}/{VENV_CONFIG}")
        for name in files.list_files(folder)[:200]
        if name in ("venv", ".venv", "env", ".env", "virtualenv")
    ]
    for folder in (*above, *below):
        if files.there(f"{folder}/{VENV_CONFIG}"):
            libs = [f"{folder}/lib/{name}/site-packages" for name in files.list_files(f"{folder}/lib")]
            yield from (site for site in (*libs, f"{folder}/Lib/site-packages") if files.is_folder(site))


def adds_plugins(files: ProjectFiles, site: str, package: str) -> bool:
    """Whether an installed package hooks into pytest by being there."""
    return "[pytest11]" in (files.text(f"{site}/{package}/entry_points.txt") or "")


# The survey of all that decides over the checks of a run: settings, search path, home directory.


# Programs that are found inside the project before, or instead of, those of the machine.


SHADOWS, NAMED, VIRTUAL, PACKAGE_BIN = "shadows", "named", "virtual", "package"  # facts of a program beside its content
# The package of a program that npm or its kin put there.
_WHERE = r"(?:^|/)(?:node_modules/|\.\./)((?:@[^/\s\"']+/)?[^/.\s\"'][^/\s\"']*)/"
CONTENT = ""


class SearchPath:
    """A PATH, as commands in these folders of the project search it; npm's come first where it is `packages`'."""

    def __init__(self, files: ProjectFiles, path: str, folders: Iterable[str], packages: Iterable[str]) -> None:
        self._files = files
        self._outside: list[str] = []
        self._inside: list[tuple[str, int]] = []  # with how many of the outside folders come before
        for package in sorted(packages):
            self._inside.append((os.path.normpath(os.path.join(package, "node_modules/.bin")), 0))
        for entry in path.split(os.pathsep):
            for folder in sorted({*folders, "."}) if not os.path.isabs(entry) else (".",):
                own = self._own(entry, folder)
                if own:
                    self._inside.append((own, len(self._outside)))
            if os.path.isabs(entry) and not self._own(entry, "."):
                self._outside.append(entry)

    def _own(self, entry: str, folder: str) -> str:
        """The folder from the root that an entry means; empty where it lies outside."""
        if not os.path.isabs(entry):
            plain = os.path.normpath(os.path.join(folder, entry))
            return "" if plain.startswith("..") else plain
        real = os.path.realpath(entry)
        if real == self._files.root:
            return "."
        return os.path.relpath(real, self._files.root) if real.startswith(self._files.root + "/") else ""

    def programs(self, named: Iterable[str]) -> Iterator[Piece]:
        """Every program in the project's own folders that the checks name, or that stands before another one."""
        wanted = frozenset(named)
        for folder, before in dict(reversed(self._inside)).items():
            virtual = self._files.there(os.path.normpath(os.path.join(folder, "..", "pyvenv.cfg")))
            for name in self._files.list_files(folder):
                path = os.path.normpath(os.path.join(folder, name))
                behind = self._behind(name, before)
                if not (name in wanted or behind) or self._files.is_folder(path) or not self._runs(path):
                    continue
                facts = {SHADOWS: "1" if behind else "", NAMED: "1" if name in wanted else ""}
                bits = {CONTENT: self._files.digest(path)} | {fact: "1" for fact, true in facts.items() if true}
                bits |= {VIRTUAL: "1"} if virtual else {}
                package = self._package(path) if folder.endswith("node_modules/.bin") else ""
                yield piece(PROGRAM, path, "", bits | ({PACKAGE_BIN: package} if package else {}), name)

    def _package(self, path: str) -> str:
        """The package that a program was installed from: a link leads there; pnpm's are short scripts that name it."""
        try:
            text = os.readlink(os.path.join(self._files.root, path))
        except OSError:
            text = (self._files.text(path) or "")[:4096] if "/.pnpm/" in (self._files.text(path) or "")[:4096] else ""
        found = [one for one in re.findall(_WHERE, text) if one != ".pnpm"]
        return found[-1] if found else ""

    def _behind(self, name: str, before: int) -> bool:
        """Whether a program of this name would be found further on."""
        return any(os.access(os.path.join(folder, name), os.X_OK) for folder in self._outside[before:])

    def _runs(self, path: str) -> bool:
        return os.access(os.path.join(self._files.root, path), os.X_OK)


# What runners load from the home directory of the user: no part of the project, and an agent may reach it.


# Files that no program writes by itself.
_FILES = {
    "npm": (".npmrc",),
    "pnpm": (".npmrc",),
    "yarn": (".npmrc",),
    "cargo": (".cargo/config.toml", ".cargo/config"),
}
_STARTS = ("usercustomize.py", "sitecustomize.py")
_LIBRARIES = ".local/lib"


def home_pieces(home: str, runners: Iterable[str], python: bool) -> Iterator[Piece]:
    """Settings and start-up modules there, by paths that begin with `~`."""
    files = ProjectFiles(home)
    for runner in sorted(runners):
        for path in _FILES.get(runner, ()):
            if known := files.digest(path):
                yield whole(SETTINGS, f"~/{path}", known, runner)
    versions = [name for name in files.list_files(_LIBRARIES, 50) if name.startswith("python")] if python else []
    for version in versions:
        for name in _STARTS:
            path = f"{_LIBRARIES}/{version}/site-packages/{name}"
            if known := files.digest(path):
                yield whole(STARTUP, f"~/{path}", known, name.partition(".")[0])


# All that decides over the checks of a run, in the project as it now is.


FACTS = ("programs", "runners", "folders", "packages", "python_paths")  # sets of a Reach


class Survey:
    """The pieces that commands lead to.

    `known` are facts of an earlier survey: what was looked at is looked at again.
    """

    def __init__(
        self, root: str, commands: Iterable[tuple[str, str]], env: Mapping[str, str], known: Json = None
    ) -> None:
        self.files, self._env = ProjectFiles(root), env
        self.reach = Reach(self.files)
        self._home = env.get("HOME", "")
        self._take(known)
        self._started_in: set[str] = set()
        for command, folder in commands:
            self._started_in.add(os.path.normpath(folder or "."))
            self.reach.follow(command, os.path.normpath(folder or "."))
        if self.reach.programs:
            self._environment()
        self.pieces = self.reach.pieces
        if self.reach.runners:
            self._settings()
        if self.reach.python:
            self._startup()
        if self._home.startswith("/") and (self.reach.runners or self.reach.python):
            self._at_home()
        self._programs()

    @property
    def facts(self) -> Json:
        """What must be known to look at the same things again."""
        made: dict[str, Json] = {name: [*sorted(getattr(self.reach, name))] for name in FACTS}
        return made | {"python": self.reach.python, "home": self._home}

    def _take(self, known: Json) -> None:
        if not isinstance(known, dict):
            return
        for name in FACTS:
            found = known.get(name)
            getattr(self.reach, name).update(map(str, found) if isinstance(found, list) else ())
        self.reach.python = known.get("python") is True
        self._home = str(known.get("home") or "")

    def _environment(self) -> None:
        """Variables of the run's start that have programs load something of the project."""
        places = (self.files.from_root(one) or (one == self.files.root and ".") for one in self._paths("PYTHONPATH"))
        self.reach.python_paths.update(place for place in places if place)
        self.reach.follow(f"node {self._env.get('NODE_OPTIONS', '')} --test" if "NODE_OPTIONS" in self._env else "")
        if "BASH_ENV" in self._env:
            self.reach.follow(f". {self._env['BASH_ENV']}")

    def _paths(self, name: str) -> list[str]:
        return [one for one in self._env.get(name, "").split(os.pathsep) if one]

    def _settings(self) -> None:
        """The settings of every runner; what they run may be a runner again."""
        done: set[tuple[str, str]] = set()
        for _ in range(3):
            left = {(folder, one) for folder in self.reach.folders for one in self.reach.runners} - done
            for folder in sorted({folder for folder, _ in left}):
                self._in_folder(folder, frozenset(one for place, one in left if place == folder))
            done |= left

    def _in_folder(self, folder: str, runners: frozenset[str]) -> None:
        names = self.files.list_files(folder)
        for runner in sorted(runners):
            for rank, (pattern, section) in enumerate(RUNNERS[runner].rows):
                within, _, last = pattern.rpartition("/")
                for name in fnmatch.filter(self.files.list_files(f"{folder}/{within}") if within else names, last):
                    path = os.path.normpath(os.path.join(folder, within, name))
                    self._setting(path, runner, rank, section)

    def _setting(self, path: str, runner: str, rank: int, section: str) -> None:
        text = self.files.text(path)
        if text is None:
            return
        made = setting(path, runner, rank, section, text)
        if made is not None:
            self.pieces[made.key] = made
            self._read(path, runner, section, text)

    def _read(self, path: str, runner: str, section: str, text: str) -> None:
        """What the settings of some runners lead to in turn."""
        folder = os.path.dirname(path) or "."
        if runner not in ("pytest", "tox", "nox", "hatch"):
            return
        if not section:
            self.reach.words(text, folder)
            return
        for keys in (tables_in(os.path.basename(path), section, text) or {}).values():
            for key, given in keys.items():
                lines = given if isinstance(given, list) else str(given).split("\n")
                if key == "pythonpath":
                    words = [word for line in lines for word in str(line).split()]
                    found = (self.files.from_root(word, folder) for word in words)
                    self.reach.python_paths.update(one for one in found if one)
                elif key == "addopts":
                    self.reach.follow(f"pytest {' '.join(map(str, lines))}", folder)
                elif runner in ("tox", "hatch"):
                    self.reach.follow("\n".join(map(str, lines)), folder)

    def _startup(self) -> None:
        found: list[Piece] = []
        if self.reach.runners & TESTING:
            found += conftests(self.files)
        found += modules(self.files, {".", "src"}, self.reach.python_paths)
        found += environments(self.files)
        self.pieces.update((one.key, one) for one in found)

    def _at_home(self) -> None:

        found = home_pieces(self._home, self.reach.runners, self.reach.python)
        self.pieces.update((one.key, one) for one in found)

    def _programs(self) -> None:
        if not self.reach.programs:
            return

        folders = self.reach.folders | self._started_in
        path = SearchPath(self.files, self._env.get("PATH", ""), folders, self.reach.packages)
        named = self.reach.programs | self.reach.runners
        self.pieces.update((one.key, one) for one in path.programs(named))

    def beside(self, path: str) -> list[Piece]:
        """The settings in a file that no command leads to, as far as it would be one of a runner's."""
        if (os.path.dirname(path) or ".") in self.reach.folders:
            return []
        text, rows = self.files.text(path), rows_for(os.path.basename(path), frozenset(self.reach.runners))
        made = [setting(path, runner, rank, section, text) for runner, rank, section in rows if text is not None]
        return [one for one in made if one is not None]

    def again(self, pieces: Iterable[Piece]) -> dict[str, Piece]:
        """These pieces as they now are, whether a command still leads to them or not."""
        once = Reach(self.files)
        for one in pieces:
            folder, name = os.path.split(one.path)
            if one.kind == SCRIPT:
                once.script(one.path, ".", 0)
            elif one.kind == TARGET:
                once.make(MakeCall(folder or ".", name, (one.name,)), 0)
            elif one.kind == VARIABLE:
                once.variable(one.path, one.name)
            elif one.kind == PACKAGE:
                once.scripts(one.path, (one.name.partition(" ")[2],))
        return once.pieces


def setting(path: str, runner: str, rank: int, section: str, text: str) -> Piece | None:
    """The settings of a runner in a file; None where it has none there."""
    bits = settings_in(os.path.basename(path), section, text)
    return None if bits is None else piece(SETTINGS, path, f"{runner} {section}".strip(), bits, runner, rank)
