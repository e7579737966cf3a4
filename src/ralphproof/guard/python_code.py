"""Effects of Python code, as equivalent commands."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.nested import OPAQUE, REMOTE, REVERSE, SQL, Nested, code, shell, words
from ralphproof.guard.simple import UNKNOWN, unknown

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

DEEPEST = 40
RUNS = {
    "system", "popen", "run", "call", "Popen", "check_call", "check_output", "getoutput", "getstatusoutput", "spawn",
    "execv", "execvp", "execl", "execlp", "spawnl", "spawnv", "create_subprocess_shell",
}  # fmt: skip
RUNNERS = {"os", "subprocess", "pty", "commands", "asyncio", "sp", "__import__"}
SAME = {"Path", "PurePath", "PosixPath", "str", "expanduser", "abspath", "realpath", "resolve", "absolute", "fspath"}
DOES = {  # method or function: the command, with the paths it is given
    "rmtree": ("rm", "-rf"), "remove": ("rm",), "unlink": ("rm",), "rmdir": ("rm",), "removedirs": ("rm",),
    "move": ("mv",), "rename": ("mv",), "replace": ("mv",), "symlink": ("ln", "-s"), "symlink_to": ("ln", "-s"),
    "copy": ("cp",), "copy2": ("cp",), "copyfile": ("cp",), "copytree": ("cp", "-r"),
    "read_text": ("<",), "read_bytes": ("<",), "write_text": (">",), "write_bytes": (">",), "truncate": (">",),
}  # fmt: skip
OF_MODULES = {"remove", "rename", "replace", "move", "copy", "copy2", "copyfile", "copytree", "symlink", "removedirs"}
MODULES = {"os", "shutil", "__import__"}
OF_PATHS = {"unlink", "rmdir", "read_text", "read_bytes", "write_text", "write_bytes"}
DECODES = {"fromhex", "b64decode", "b32decode", "b85decode", "decompress", "unhexlify", "chr", "bytes", "loads"}
FETCHES = {"urlopen", "urlretrieve", "get", "request", "read"}


def done_by(text: str) -> list[Nested]:
    """What a piece of code would do; unreadable code does nothing known."""
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    reader = _Reader(nodes)
    found = [one for call in calls for one in reader.of(call)]
    said = {_last(call.func) for call in calls}
    if "socket" in said and said & {"dup2", "spawn"}:
        found.append(words(REVERSE, text))
    return found


def _last(node: ast.expr) -> str:
    import ast

    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _first(node: ast.expr) -> str:
    """The module or variable at the front of `a.b.c`."""
    import ast

    for _ in range(DEEPEST):
        if isinstance(node, ast.Attribute):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            break
    return node.id if isinstance(node, ast.Name) else ""


class _Reader:
    """Reads calls; simple names stand for the literals they were given."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        import ast

        self.names: dict[str, str] = {}
        for node in nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.names[node.targets[0].id] = self.text(node.value)
            elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name):
                self.names[node.target.id] = self._each(node.iter)

    def _each(self, node: ast.expr) -> str:
        """One of the things that a loop goes through, an absolute path first."""
        import ast

        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return min((self.text(one) for one in node.elts), key=lambda text: text[:1] not in ("/", "~"), default="")
        return self.text(node)

    def text(self, node: ast.expr, depth: int = 0) -> str:
        """The text of an expression with marks for what is not known."""
        import ast

        if depth > DEEPEST:
            return unknown()
        match node:
            case ast.Constant(value=str(found)):
                return found.replace("\0", "")
            case ast.Constant(value=int(number)):
                return str(number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return "-" + self.text(operand, depth + 1)
            case ast.JoinedStr(values=values):
                return "".join(self.text(one, depth + 1) for one in values)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.text(left, depth + 1) + self.text(right, depth + 1)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return f"{self.text(left, depth + 1)}/{self.text(right, depth + 1)}"
            case ast.Name(id=name):
                return self.names.get(name, unknown(name))
            case ast.Call():
                return self._called(node, depth)
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name))):
                return "~" if name == "HOME" else unknown(name)
            case _:
                return unknown()

    def _called(self, node: ast.Call, depth: int) -> str:
        name, given = _last(node.func), [self.text(one, depth + 1) for one in node.args]
        owner = getattr(node.func, "value", None)
        if name == "home" or (name in ("getenv", "get") and given[:1] == ["HOME"]):
            return "~"
        if name in ("getcwd", "cwd"):
            return "."
        if name in ("glob", "iglob", "listdir", "scandir") and given:
            return given[0] if "glob" in name else f"{given[0]}/*"
        if name == "join" and len(given) > 1:
            return "/".join(given)
        if name in SAME:
            return given[0] if given else self.text(owner, depth + 1) if owner is not None else unknown()
        return unknown()

    def of(self, call: ast.Call) -> Iterator[Nested]:
        """The commands that do what one call does."""
        import ast

        name, module = _last(call.func), _first(call.func)
        if name in RUNS and module in RUNNERS and call.args:
            yield from self._run(call.args[0])
        elif name in ("exec", "eval", "compile") and call.args:
            yield from self._executed(call.args[0])
        elif name == "open" and (call.args or isinstance(call.func, ast.Attribute)):
            yield from self._opened(call)
        elif name in DOES:
            yield from self._does(call, name, module)
        elif name in ("execute", "executescript") and call.args:
            yield words(SQL, self.text(call.args[0]))
        elif name == "kill" and module == "os" and len(call.args) == 2:
            yield words("kill", "-" + self.text(call.args[1]), self.text(call.args[0]))
        elif name in ("post", "put") and any(one.arg == "files" for one in call.keywords):
            yield words("curl", "-F", "f=@x", self.text(call.args[0]) if call.args else "")
        elif name == "print":
            yield from self._printed(call)

    def _run(self, given: ast.expr) -> Iterator[Nested]:
        import ast

        if isinstance(given, ast.List | ast.Tuple):
            yield words(*(self.text(one) for one in given.elts))
        elif _mentions(given, DECODES):
            yield words(OPAQUE, "exec(…)")
        else:
            text = self.text(given)
            if not text.startswith(UNKNOWN):
                yield shell(text)

    def _executed(self, given: ast.expr) -> Iterator[Nested]:
        import ast

        if isinstance(given, ast.Constant) and isinstance(given.value, str):
            yield code("python", given.value)
        elif _mentions(given, {"urlopen", "requests", "urllib", "httpx"}):
            yield words(REMOTE, "exec(…)")
        elif _mentions(given, DECODES):
            yield words(OPAQUE, "exec(…)")

    def _opened(self, call: ast.Call) -> Iterator[Nested]:
        import ast

        of_path = isinstance(call.func, ast.Attribute) and _last(call.func.value) not in ("io", "codecs", "os", "gzip")
        path = self.text(call.func.value) if of_path and isinstance(call.func, ast.Attribute) else ""
        given = call.args if of_path else call.args[1:]
        mode = (
            self.text(given[0]) if given else next((self.text(k.value) for k in call.keywords if k.arg == "mode"), "")
        )
        path = path or self.text(call.args[0])
        if not path.startswith(UNKNOWN):
            yield words(">" if set(mode) & set("wax+") and len(mode) < 5 else "<", path)

    def _does(self, call: ast.Call, name: str, module: str) -> Iterator[Nested]:
        owner = getattr(call.func, "value", None)
        if name in OF_MODULES and module not in MODULES:
            return
        paths = [self.text(one) for one in call.args]
        if name in OF_PATHS and module not in MODULES and owner is not None:
            paths = [self.text(owner)]
        if paths and not paths[0].startswith(UNKNOWN):
            yield words(*DOES[name], *paths)

    def _printed(self, call: ast.Call) -> Iterator[Nested]:
        import ast

        for given in call.args:
            if (isinstance(given, ast.Attribute) and given.attr == "environ") or (
                isinstance(given, ast.Call) and _last(given.func) == "dict" and _mentions(given, {"environ"})
            ):
                yield words("printenv")
            elif _mentions(given, {"environ", "getenv"}):
                yield from (words("printenv", text) for text in _strings(given))


def _mentions(node: ast.AST, names: set[str]) -> bool:
    import ast

    every = (one for one in ast.walk(node) if isinstance(one, ast.Attribute | ast.Name))
    return any(_last(one) in names for one in every)


def _strings(node: ast.AST) -> Iterator[str]:
    import ast

    yield from (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))
