"""A stand-in for `docker sandbox` and `sbx`: as a program it plays both, and `FakeDocker` puts it on a PATH.

    fake = FakeDocker(tmp_path / "docker")
    environ = fake.environ("sbx")          # what finds it instead of the real one; without "docker" there is only sbx
    fake.calls("create")                   # what it was asked: argv, stdin, names of variables

A sandbox is a record in a file. What is run in one really runs, on this machine, with a home and an environment of its
own: a scripted agent works in it. Only when it is tried out it is closed, by bubblewrap. Two things are as in the real
one. A file of the project that it has seen keeps its content there, whatever is done to it outside, until the sandbox
is stopped; one that is changed inside is changed outside. And `curl` says whether the network policy
would let it reach its host; `nc` reaches nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HOME = "/home/agent"
CALLS, SANDBOXES, OPTIONS = "calls.ndjson", "sandboxes.json", "options.json"
FLAGS_WITH_VALUE = {"-e", "--env", "-u", "--user", "-w", "--workdir", "--name", "-t", "--template"}
REFUSED = 56  # how curl ends when a proxy refuses to connect


class FakeDocker:
    """The program, installed in a folder of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        for name in ("docker", "sbx"):
            (folder / name).mkdir()
            _script(folder / name / name, f'"{folder}" {name}')

    def path(self, kind: str) -> str:
        """The program of this name."""
        return str(self.folder / kind / kind)

    def environ(self, *kinds: str, **more: str) -> dict[str, str]:
        """An environment in which these are found, and no real one is."""
        found = [str(self.folder / kind) for kind in kinds]
        real = [self._without(one, {"docker", "sbx"} - {*kinds}) for one in os.environ["PATH"].split(os.pathsep)]
        return {**os.environ, "PATH": os.pathsep.join((*found, *real)), **more}

    def _without(self, folder: str, names: set[str]) -> str:
        """A folder of programs in which these are not."""
        if not any(os.path.exists(os.path.join(folder, name)) for name in names):
            return folder
        made = self.folder / "real" / folder.strip("/").replace("/", "-")
        made.mkdir(parents=True, exist_ok=True)
        for name in set(os.listdir(folder)) - names - set(os.listdir(made)):
            (made / name).symlink_to(os.path.join(folder, name))
        return str(made)

    def options(self, **options: object) -> None:
        """How it behaves: `plain` (a docker without sandboxes), `prompts` (it waits for a person), `quiet` (lists no
        workspaces), `policy` (of sbx: allow, deny), `open` (nothing is kept from those inside)."""
        (self.folder / OPTIONS).write_text(json.dumps(options))

    def calls(self, verb: str = "") -> list[dict[str, Any]]:
        """What it was asked so far, or all that begins with this word."""
        try:
            lines = (self.folder / CALLS).read_text().splitlines()
        except FileNotFoundError:
            return []
        told = [json.loads(line) for line in lines]
        return [one for one in told if not verb or one["argv"][:1] == [verb]]

    def sandboxes(self) -> dict[str, dict[str, Any]]:
        """Those that are there, by name."""
        return _read(str(self.folder / SANDBOXES))

    def forget_calls(self) -> None:
        (self.folder / CALLS).unlink(missing_ok=True)


def _script(path: Path, arguments: str) -> None:
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{__file__}" {arguments} "$@"\n')
    path.chmod(0o755)


# The program


def main(folder: str, program: str, argv: list[str]) -> int:
    if program == "--verdict":
        return verdict(folder, *argv)
    options = _read(os.path.join(folder, OPTIONS))
    if program == "docker" and (argv[:1] != ["sandbox"] or options.get("plain")):
        print("Usage:  docker [OPTIONS] COMMAND\n\nRun 'docker COMMAND --help' for more information")
        return 0
    argv = argv[1:] if program == "docker" else argv
    said = sys.stdin.read() if argv[0] != "exec" or "-i" in argv else ""
    _record(folder, program, argv, said)
    if options.get("prompts") and argv[0] != "version":
        print("Choose a default network policy:", flush=True)
        signal.pause()
    if argv[0] == "exec":
        return run(folder, argv[1:], said)
    verb = VERBS.get(argv[0])
    if verb is None:
        return fail(f"unknown command: {argv[0]}")
    with _sandboxes(folder) as there:
        return verb(there, argv[1:], options, program)


def _record(folder: str, program: str, argv: list[str], said: str) -> None:
    line = json.dumps({"program": program, "argv": argv, "stdin": said, "env": sorted(os.environ)})
    with open(os.path.join(folder, CALLS), "a") as file:
        file.write(line + "\n")


def fail(why: str) -> int:
    print(f"ERROR: {why}", file=sys.stderr)
    return 1


def version(there: dict[str, Any], argv: list[str], options: Mapping[str, Any], program: str) -> int:
    print(f"{program} version v0.12.0")
    return 0


def ls(there: dict[str, Any], argv: list[str], options: Mapping[str, Any], program: str) -> int:
    if argv != ["--json"]:
        return fail("only --json is played")
    shown = ("agent", "status", *(() if options.get("quiet") else ("workspaces",)))
    listed = [{"name": name, **{key: one[key] for key in shown}} for name, one in there.items()]
    if program == "sbx":
        print("Starting the service ...")
    print(json.dumps({"vms" if program == "docker" else "sandboxes": listed}, indent=2))
    return 0


def create(there: dict[str, Any], argv: list[str], options: Mapping[str, Any], program: str) -> int:
    flags, (agent, *workspaces) = parsed(argv)
    name = flags["--name"][0]
    if name in there:
        return fail(f"sandbox {name} already exists")
    if any(not os.path.isdir(path.removesuffix(":ro")) for path in workspaces):
        return fail("a workspace is no folder")
    there[name] = {"agent": agent, "workspaces": workspaces, "status": "stopped", "policy": {"policy": "allow"}}
    return 0


def rm(there: dict[str, Any], argv: list[str], options: Mapping[str, Any], program: str) -> int:
    name = argv[-1]
    if there.pop(name, None) is None:
        return fail(f"no such sandbox: {name}")
    for kept in ("homes", "copies"):
        shutil.rmtree(os.path.join(sys.argv[1], kept, name), ignore_errors=True)
    return 0


def stop(there: dict[str, Any], argv: list[str], options: Mapping[str, Any], program: str) -> int:
    if argv[-1] not in there:
        return fail(f"no such sandbox: {argv[-1]}")
    there[argv[-1]]["status"] = "stopped"
    return 0


def network(there: dict[str, Any], argv: list[str], options: Mapping[str, Any], program: str) -> int:
    what, name, *rest = argv
    if what != "proxy" or name not in there or program != "docker":
        return fail("network proxy SANDBOX [OPTIONS]")
    known = there[name]["policy"]
    for flag, said in zip(rest[::2], rest[1::2], strict=True):
        if flag == "--policy":
            known["policy"] = said
        else:
            known.setdefault(flag, []).append(said)
    return 0


def policy(there: dict[str, Any], argv: list[str], options: Mapping[str, Any], program: str) -> int:
    if argv != ["ls", "--json"] or program != "sbx":
        return fail("only policy ls --json is played")
    said = options.get("policy", {})
    rules = [{"resource_type": "network", "decision": word, "resources": hosts} for word, hosts in said.items()]
    print(json.dumps({"rules": rules}))
    return 0


VERBS: dict[str, Callable[[dict[str, Any], list[str], Mapping[str, Any], str], int]] = {
    "version": version, "ls": ls, "create": create, "rm": rm, "stop": stop, "network": network, "policy": policy,
}  # fmt: skip


def parsed(argv: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Flags before the first other word, with their values; and the rest."""
    flags: dict[str, list[str]] = {}
    while argv and argv[0].startswith("-"):
        flag = argv.pop(0)
        flags.setdefault(flag, []).append(argv.pop(0) if flag in FLAGS_WITH_VALUE else "")
    return flags, argv


def run(folder: str, argv: list[str], said: str) -> int:
    """`exec`: the program ends as the one inside does, and what that left behind goes on without it."""
    flags, (name, *command) = parsed(argv)
    with _sandboxes(folder) as there:
        if name not in there:
            return fail(f"no such sandbox: {name}")
        fresh, there[name]["status"] = there[name]["status"] == "stopped", "running"
        root, *places = (path.removesuffix(":ro") for path in there[name]["workspaces"])
    home, bin_ = os.path.join(folder, "homes", name), os.path.join(folder, "bin", name)
    os.makedirs(home, exist_ok=True)
    _tools(folder, bin_, name)
    env = {"HOME": home, "USER": "agent", "LANG": "C.UTF-8", "PATH": bin_ + os.pathsep + os.environ["PATH"]}
    for told in (*flags.get("-e", ()), *flags.get("--env", ())):
        variable, given, text = told.partition("=")
        if given or variable in os.environ:
            env[variable] = text if given else os.environ[variable]
    where = (flags.get("-w") or [root])[0]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with synced(root, os.path.join(folder, "copies", name), fresh):
        try:
            words = [home + word[len(HOME):] if word.startswith(HOME) else word for word in command]  # fmt: skip
            words = [*_apart(folder, root, places), *words]
            child = subprocess.Popen(words, cwd=where, env=env, stdin=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            print(f"exec: {error}", file=sys.stderr)
            return 127
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(said.encode())
            child.stdin.close()
        code = child.wait()
    return code if code >= 0 else 128 - code


def _apart(folder: str, root: str, places: list[str]) -> list[str]:
    """When it is tried out it is another machine, unless it is told not to be: then it is none at all."""
    if "ralph-trial-" not in root or _read(os.path.join(folder, OPTIONS)).get("open"):
        return []
    binds = [word for place in (root, *places) for word in ("--bind", place, place)]
    alone = ("--unshare-pid", "--unshare-net", "--proc", "/proc", "--tmpfs", os.path.dirname(root))
    return ["/usr/bin/bwrap", "--dev-bind", "/", "/", *alone, *binds, "--chdir", root]


@contextlib.contextmanager
def synced(root: str, copy: str, fresh: bool) -> Iterator[None]:
    """The project as the sandbox sees it: what it copied once is as it was then."""
    if fresh:
        shutil.rmtree(copy, ignore_errors=True)
    aside = {path: _content(os.path.join(root, path)) for path in _files(copy) if not _same(root, copy, path)}
    for path in aside:
        _put(os.path.join(root, path), _content(os.path.join(copy, path)))
    try:
        yield
    finally:
        kept = {path for path in aside if _same(root, copy, path)}
        for path in set(_files(copy)) - kept:
            os.unlink(os.path.join(copy, path))
        for path in set(_files(root)) - kept:
            _put(os.path.join(copy, path), _content(os.path.join(root, path)))
        for path in kept:
            _put(os.path.join(root, path), aside[path])


Content = tuple[bytes, tuple[int, int], int] | None


def _content(path: str) -> Content:
    try:
        state = os.stat(path)
        with open(path, "rb") as file:
            return file.read(), (state.st_atime_ns, state.st_mtime_ns), stat.S_IMODE(state.st_mode)
    except FileNotFoundError:
        return None


def _put(path: str, content: Content) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    if content is not None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content[0])
        os.utime(path, ns=content[1])
        os.chmod(path, content[2])


def _same(root: str, copy: str, path: str) -> bool:
    one, other = (_content(os.path.join(top, path)) for top in (root, copy))
    return one is other or (one is not None and other is not None and one[0] == other[0])


def _files(top: str) -> list[str]:
    found = [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
    plain = [path for path in found if os.path.isfile(path) and not os.path.islink(path)]
    return [name for path in plain if "/objects/" not in (name := os.path.relpath(path, top))]


def _tools(folder: str, bin_: str, name: str) -> None:
    os.makedirs(bin_, exist_ok=True)
    for tool in ("curl", "nc"):
        _script(Path(bin_, tool), f'"{folder}" --verdict {name} {tool}')


def verdict(folder: str, name: str, tool: str, *arguments: str) -> int:
    """What the sandbox's own proxy says to a call."""
    if tool == "nc":
        return fail("only HTTP and HTTPS pass")
    host = urlsplit(next(word for word in arguments if "://" in word)).hostname or ""
    known = _read(os.path.join(folder, SANDBOXES))[name]["policy"]
    blocked = _listed(host, known.get("--block-host", ()))
    if not blocked and (known["policy"] == "allow" or _listed(host, known.get("--allow-host", ()))):
        print("200")
        return 0
    print(f"curl: (56) {host} is blocked by the network policy", file=sys.stderr)
    return REFUSED


def _listed(host: str, rules: list[str]) -> bool:
    names = [rule.partition(":")[0] for rule in rules]
    return any(host == name or (name.startswith("*.") and host.endswith(name[1:])) for name in names)


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path) as file:
            found: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return {}
    return found


@contextlib.contextmanager
def _sandboxes(folder: str) -> Iterator[dict[str, Any]]:
    import fcntl

    path = os.path.join(folder, SANDBOXES)
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        there = _read(path)
        yield there
        with open(path + ".new", "w") as file:
            json.dump(there, file)
        os.replace(path + ".new", path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
