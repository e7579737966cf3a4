"""What preparing a checkout made, kept for the next one: dependencies, while what they follow from is the same.

What was made of the project's own files holds for that very tree alone.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re

from ralphproof.errors import DiskFull, HarnessFailed, from_system
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.clean_place import KEPT, remove
from ralphproof.workspaces.gitcall import call, find_program
from ralphproof.workspaces.layout import read_small

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ralphproof.workspaces.checkout import Fresh

MANIFESTS = (
    "package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "pnpm-workspace.yaml", "yarn.lock",
    "bun.lock", "bun.lockb", ".npmrc", ".yarnrc*", "pyproject.toml", "poetry.lock", "uv.lock", "pdm.lock", "Pipfile*",
    "requirements*.txt", "constraints*.txt", "setup.py", "setup.cfg", "Cargo.toml", "Cargo.lock", "go.mod", "go.sum",
    "Gemfile*", "*.gemspec", "composer.json", "composer.lock", "mix.exs", "mix.lock", ".python-version", ".nvmrc",
    ".node-version", ".tool-versions",
)  # fmt: skip
MAKEFILES = ("Makefile", "makefile", "GNUmakefile", "*.mk")
BETWEEN_WORDS = r"[\s'\"`;&|()<>=]+"  # a file that a command names decides over what it makes
# Folders in which nothing but dependencies lies: from them alone the manifests tell what is in them.
DEPENDENCIES = ("node_modules", ".venv", "venv", ".yarn", ".pnpm-store", "vendor", ".bundle", "deps", "*.egg-info")
OF_ANY, OF_ONE = "any", "one"  # what is kept for all trees with these manifests, and for one tree
MOST, HALF, TIMEOUT_S = 2, ".half-", 1800.0
OWN_CODE = b"direct_url.json"  # pip notes in it where a package came from


class Kept:
    """What is kept in a folder of ours, at most two of them. One that was not written to its end is never used."""

    def __init__(self, folder: str, setup: tuple[str, ...], environ: Mapping[str, str]) -> None:
        self._folder, self._setup, self._environ = os.path.join(folder, KEPT), setup, environ

    def names(self, fresh: Fresh, tree: str) -> tuple[str, ...]:
        """By which names something may be kept for a checkout of this tree: for all with its manifests, for it alone.

        To be asked before anything ran there: it could make the files seem to be others.
        """
        entries = (entry.split(b"\t", 1) for entry in fresh.ask("ls-tree", "-r", "-z", tree).out.split(b"\0") if entry)
        words = {word.removeprefix("./") for command in self._setup for word in re.split(BETWEEN_WORDS, command)}
        files = (*MANIFESTS, *(MAKEFILES if "make" in words else ()))
        known = [(path, about) for about, path in entries if _matches(path, files) or os.fsdecode(path) in words]
        return _name(OF_ANY, (self._setup, known)), _name(OF_ONE, (self._setup, tree))

    def put_back(self, fresh: Fresh, names: tuple[str, ...]) -> bool:
        """Lay what was kept into a fresh checkout; whether there was something that fits it."""
        found = next((path for name in names if os.path.isdir(path := os.path.join(self._folder, name))), "")
        if not found:
            return False
        try:
            paths = list(_below(found, read_small(os.fsencode(os.path.join(found, "paths"))).split(b"\0")))
            if not all(_free(fresh.place, path) for _, path in paths):
                return False
            self._copy(paths, os.fsencode(fresh.place))
            os.utime(found)  # those that are used stay
        except OSError as error:
            raise from_system(error) from error
        return True

    def keep(self, fresh: Fresh, names: tuple[str, ...]) -> None:
        """Keep what lies in a checkout beside its files, by the first of its names where it is dependencies alone."""
        listed = fresh.ask("ls-files", "-z", "--others", "--directory").out.split(b"\0")
        paths = sorted(path.rstrip(b"/") for path in listed if path)
        if not paths:
            return  # whatever it made lies elsewhere, and is of this tree
        foreign = all(_matches(path, DEPENDENCIES) for path in paths) and not _own_code(fresh.place, paths)
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._drop_halves()
            half = self._half(os.fsencode(fresh.place), paths)
            os.sync()  # else a loss of power could leave empty files in what looks whole
            remove(whole := os.path.join(self._folder, names[0] if foreign else names[1]))
            os.rename(half, whole)
            self._drop_old()
        except OSError as error:
            raise from_system(error) from error
        finally:
            self._drop_halves()

    def _half(self, place: bytes, paths: list[bytes]) -> str:
        """What lies at these paths, where nobody looks for it yet."""
        half = os.path.join(self._folder, f"{HALF}{os.getpid()}")
        os.makedirs(files := os.path.join(half, "files"))
        self._copy([(os.path.join(place, path), path) for path in paths], os.fsencode(files))
        with open(os.path.join(half, "paths"), "wb") as file:
            file.write(b"\0".join(paths))
        return half

    def _drop_halves(self) -> None:
        for name in os.listdir(self._folder) if os.path.isdir(self._folder) else ():
            if name.startswith(HALF):
                remove(os.path.join(self._folder, name))

    def _copy(self, paths: Iterable[tuple[bytes, bytes]], place: bytes) -> None:
        """Copies, so that who changes one of them changes no other. Links stay links."""
        program = find_program("cp", self._environ.get("PATH", os.defpath), outside="") or "/bin/cp"
        for source, path in paths:
            target = os.path.join(place, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            env = {"PATH": self._environ.get("PATH", os.defpath), "LC_ALL": "C"}
            reply = call((program, "-a", "--", source, target), env, timeout_s=TIMEOUT_S)
            if reply.code != 0:
                full = b"No space left" in reply.err or b"quota exceeded" in reply.err
                raise (DiskFull if full else HarnessFailed)(f"cannot copy what setup made: {reply.said}")

    def _drop_old(self) -> None:
        paths = [os.path.join(self._folder, name) for name in os.listdir(self._folder)]
        for path in sorted(paths, key=lambda path: os.stat(path).st_mtime_ns, reverse=True)[MOST:]:
            remove(path)


def _name(kind: str, told: object) -> str:
    return f"{kind}-{hashlib.sha256(repr(told).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _below(found: str, paths: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    files = os.path.join(os.fsencode(found), b"files")
    return ((os.path.join(files, path), path) for path in paths if path)


def _free(place: str, path: bytes) -> bool:
    """Whether something can be laid there: nothing is, and every folder above it is one. A link could lead anywhere."""
    *above, _ = path.split(b"/")
    at = os.fsencode(place)
    for name in above:
        at = os.path.join(at, name)
        if os.path.islink(at) or not os.path.isdir(at):
            return not os.path.lexists(at)
    return not os.path.lexists(os.path.join(os.fsencode(place), path))


def _matches(path: bytes, names: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(os.fsdecode(os.path.basename(path)), one) for one in names)


def _own_code(place: str, paths: Iterable[bytes]) -> bool:
    """Whether pip installed a copy of something in the checkout: that is made of its files."""
    from urllib.parse import quote

    here = f"file://{quote(place)}".encode()
    for path in paths:
        if path.endswith(b"node_modules"):
            continue
        for folder, _, files in os.walk(os.path.join(os.fsencode(place), path)):
            if folder.endswith(b".dist-info") and OWN_CODE in files:
                told = _text(os.path.join(folder, OWN_CODE))
                if here in told and b'"editable": true' not in told:
                    return True
    return False


def _text(path: bytes) -> bytes:
    try:
        return read_small(path, 1 << 16)
    except OSError:
        return b""
