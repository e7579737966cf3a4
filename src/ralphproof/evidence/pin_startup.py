"""Python modules that a test runner loads unasked, and what a conftest decides."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

from ralphproof.base.text import quote_excerpt
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.evidence.pin_pieces import (
    CONFTEST,
    OWN,
    PLUGIN,
    SHADOW,
    STARTUP,
    Piece,
    ProjectFiles,
    digest,
    piece,
    whole,
)
from ralphproof.evidence.pin_runners import MODULES

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
VIRTUAL = "pyvenv.cfg"
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
                    found, virtual = found or name == wanted, virtual or name == VIRTUAL
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
        if "." not in folder and not files.there(f"{folder}/{VIRTUAL}")
        for name in files.list_files(folder)[:200]
        if name in ("venv", ".venv", "env", ".env", "virtualenv")
    ]
    for folder in (*above, *below):
        if files.there(f"{folder}/{VIRTUAL}"):
            libs = [f"{folder}/lib/{name}/site-packages" for name in files.list_files(f"{folder}/lib")]
            yield from (site for site in (*libs, f"{folder}/Lib/site-packages") if files.is_folder(site))


def adds_plugins(files: ProjectFiles, site: str, package: str) -> bool:
    """Whether an installed package hooks into pytest by being there."""
    return "[pytest11]" in (files.text(f"{site}/{package}/entry_points.txt") or "")
