"""Whether a conftest only defines fixtures, or takes part in what the test runner decides."""

from __future__ import annotations

from ralphproof.checks.pin_files import digest
from ralphproof.claim import quoted
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable

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
            return f"it hooks into the test runner ({quoted(hook)[1:-1]})"
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
