"""The source as the house tests see it: files, their syntax trees, and who imports whom."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.needs import require

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ralphproof"


@dataclass(frozen=True)
class Import:
    """One imported module, by its full name."""

    file: str
    line: int
    module: str
    typing_only: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


@cache
def files() -> tuple[str, ...]:
    """Every Python file of the package, relative to it."""
    return tuple(sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")))


def tree_of(file: str) -> ast.Module:
    """Read anew each time: thousands of nodes that were kept would be looked through by every collection."""
    return ast.parse((SOURCE / file).read_text("utf-8"), file)


@dataclass(frozen=True)
class Outline:
    """What the rules ask of a file, without its tree."""

    imports: tuple[Import, ...]
    classes: tuple[tuple[str, tuple[str, ...]], ...]  # the name, the decorators


@cache
def outline_of(file: str) -> Outline:
    """A file is read once for all that is asked of it."""
    text = (SOURCE / file).read_text("utf-8")
    tree = ast.parse(text, file)
    nodes = tuple(statements(tree))
    return Outline(
        tuple(found_in(tree, file, calls=_may_call_for_modules(text))),
        tuple(
            (node.name, tuple(map(ast.unparse, node.decorator_list)))
            for node in nodes
            if isinstance(node, ast.ClassDef)
        ),
    )


def imports_of(file: str) -> tuple[Import, ...]:
    """Everything that a file imports, in functions and under TYPE_CHECKING too."""
    return outline_of(file).imports


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement of a tree, with handlers and cases; of its many more expressions none, as they hold none."""
    found = [tree]
    for node in found:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += getattr(node, part, ())


def _may_call_for_modules(text: str) -> bool:
    """Whether there may be a call that imports; letters that are no ASCII may be others in disguise."""
    return "import_module" in text or "__import__" in text or not text.isascii()


def found_in(tree: ast.Module, file: str, calls: bool = True) -> Iterator[Import]:
    """The imports of a tree as if it were this file; those by a call, too, unless there are none."""
    walk = ast.walk if calls else statements
    hidden = {id(node) for block in _typing_blocks(tree) for node in walk(block)}
    for node in walk(tree):
        for module in _modules(node, file):
            yield Import(file, getattr(node, "lineno", 0), module, id(node) in hidden)


def _typing_blocks(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in statements(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield from node.body


def _modules(node: ast.AST, file: str) -> Iterator[str]:
    match node:
        case ast.Import(names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module, names, level):
            base = _absolute(module or "", level, file)
            for alias in names:
                inner = f"{base}.{alias.name}"
                yield inner if _is_module(inner) else base
        case ast.Call(ast.Name("__import__") | ast.Attribute(attr="import_module"), [ast.Constant(str(module)), *_]):
            yield module


def _absolute(module: str, level: int, file: str) -> str:
    if not level:
        return module
    package = ["ralphproof", *file.split("/")[:-1]]
    return ".".join([*package[: len(package) - level + 1], *([module] if module else [])])


@cache
def _is_module(name: str) -> bool:
    top, _, rest = name.partition(".")
    place = SOURCE / rest.replace(".", "/")
    return top == "ralphproof" and bool(rest) and (place.with_suffix(".py").is_file() or place.is_dir())


def own(module: str) -> str | None:
    """A module of ours without the package's name ("" for the package itself); None where it is not ours."""
    top, _, rest = module.partition(".")
    return rest if top == "ralphproof" else None


@cache
def project_files() -> tuple[str, ...]:
    """What belongs to the repository: tracked, or new and not ignored."""
    require((ROOT / ".git").exists(), "this is a git repository")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True, env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
    )  # fmt: skip
    names = {name for name in listing.stdout.decode("utf-8", "surrogateescape").split("\0") if name}
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))
