"""Effects of a command on those after it in the line."""

from __future__ import annotations

import os.path

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.prints import listed, said
from ralphproof.guard.simple import SPLIT, Simple, operands, split, unknown, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphproof.guard.line import Scene

FETCHERS = {"curl", "wget", "fetch", "aria2c", "lynx", "http", "https", "xh", "axel", "w3m", "links", "gh", "scp", "nc"}
CURL_TAKES = ("-H", "-X", "-d", "-u", "-A", "-e", "-b", "-c", "-F", "-m", "--retry", "--header", "--data", "--request")


def apply(one: Simple, scene: Scene) -> None:
    """Follow a command that moves, names or writes something."""
    words = operands(one)
    match one.name:
        case "cd" | "pushd":
            _go(one.name, words, scene)
        case "popd":
            scene.cwd = scene.stack.pop() if scene.stack else ""
        case "read" | "mapfile" | "readarray":
            _read(one, scene)
        case "printf" if one.words[1:2] == ("-v",) and len(one.words) > 2:
            scene.variables[one.words[2]] = said(one) or unknown()
        case "set" if "--" in one.words:
            position(scene, one.words[one.words.index("--") + 1 :])
        case "alias":
            scene.aliases |= {word.partition("=")[0]: word.partition("=")[2] for word in words if "=" in word}
        case "tee":
            _wrote(words, said(one), one.sources, scene)
        case "cp" | "mv" if len(words) == 2:
            _moved(words[0], words[1], scene)
        case "git":
            scene.fetched |= _brought(one, scene)
        case "curl" | "wget" | "aria2c" | "fetch":
            scene.fetched |= {path for word in saved(one) if (path := scene.path(word))}


def _brought(one: Simple, scene: Scene) -> set[str]:
    """The folder that git clones into, or the remote that it is told of."""
    words = operands(one, ("-b", "--branch", "--depth", "-o", "--origin", "-C", "-c", "--reference"))
    if words[:1] == ["clone"] and len(words) > 1:
        goal = words[2] if len(words) > 2 else words[1].rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
        return {path for path in [scene.path(goal)] if path}
    return {remote(words[2])} if words[:2] in (["remote", "add"], ["remote", "set-url"]) and len(words) > 3 else set()


def remote(name: str) -> str:
    """How a remote is kept among what came from elsewhere."""
    return f"remote {name}"


def _go(name: str, words: list[str], scene: Scene) -> None:
    before, goal = scene.cwd, words[0] if words else "~"
    if name == "pushd":
        scene.stack.append(before)
    scene.go(scene.variables.get("OLDPWD", "") or unknown() if goal == "-" else goal)
    scene.variables["OLDPWD"] = before


def _read(one: Simple, scene: Scene) -> None:
    flowing = one.text.split("\n")[:1] if one.text is not None else listed(one.sources)
    first = flowing[0] if flowing is not None and len(flowing) == 1 else unknown("read")
    for name in operands(one, ("-p", "-t", "-d", "-n", "-N", "-u", "-i")) or ["REPLY"]:
        scene.variables[name] = first


def position(scene: Scene, words: Sequence[str]) -> None:
    """Set `$1`, `$2`, and so on."""
    scene.variables |= {str(i): word for i, word in enumerate(words, 1)}
    scene.variables["@"] = SPLIT.join(words)


def wrote(word: str, produced: Sequence[Simple], scene: Scene, adds: bool) -> None:
    """Note what a redirection has put into a file."""
    path = scene.path(word)
    if not path:
        return
    texts = [said(one) for one in produced]
    known = [text for text in texts if text is not None]
    if produced and len(known) == len(texts):
        scene.scripts[path] = (scene.scripts.get(path, "") if adds else "") + "".join(known)
    if any(one.name in FETCHERS for one in produced):
        scene.fetched.add(path)


def _wrote(words: list[str], text: str | None, sources: Sequence[Simple], scene: Scene) -> None:
    paths = [path for word in words if (path := scene.path(word))]
    if text is not None:
        scene.scripts |= dict.fromkeys(paths, text)
    if any(one.name in FETCHERS for one in sources):
        scene.fetched |= set(paths)


def _moved(source: str, target: str, scene: Scene) -> None:
    old, new = scene.path(source), scene.path(target)
    if old in scene.scripts:
        scene.scripts[new] = scene.scripts[old]
    if old in scene.fetched:
        scene.fetched.add(new)


def saved(one: Simple) -> list[str]:
    """The files in which a fetcher keeps what it brings."""
    options, words = split(one.words[1:], (*CURL_TAKES, "-o", "-O", "--output", "--output-document", "-P"))
    last = os.path.basename(words[-1].partition("?")[0]) if words else ""
    if one.name == "curl":
        urls = [option.removeprefix("-O=") for option in options if option.startswith("-O=")]
        named = value_of([option for option in options if not option.startswith("-O=")], "-o", "--output")
        remote = bool(urls) or any(
            option in ("-O", "--remote-name", "-LO", "-sO", "-sLO", "-fsSLO") for option in options
        )
        return [named] if named else [os.path.basename(url) for url in urls if url] or ([last] if remote else [])
    named = value_of(options, "-O", "-o", "--output-document", "-qO", "--out")
    return [named] if named else [last]
