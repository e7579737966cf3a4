"""The package.json scripts that npm and similar programs run."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Mapping
from typing import Any

from ralphproof.base.shell import ShellCommand
from ralphproof.base.value import value
from ralphproof.evidence.pin_pieces import DECLARED, PACKAGE, Piece, digest, piece

FILE = "package.json"
SCRIPTS = 2000
CALLERS = frozenset(("npm", "pnpm", "yarn", "bun"))
STARTERS = frozenset(("npx", "pnpx", "bunx"))
SEVERAL = frozenset(("npm-run-all", "npm-run-all2", "run-s", "run-p", "concurrently"))
_TAKING = ("--prefix", "-C", "--dir", "--cwd", "-w", "--workspace", "--filter", "-F", "--loglevel")
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
        if option in _TAKING:
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
