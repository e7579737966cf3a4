"""Wrapper commands, and the command that is left without them."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.guard.prints import listed
from ralphproof.guard.simple import Simple, has, named, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

# Name, or name and subcommand: the options that are followed by an argument; `+N` words come before the command.
WRAPPERS = {
    "sudo": "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir",
    "doas": "-u -C -a",
    "pkexec": "--user",
    "run0": "-u --user",
    "env": "-u -C --unset --chdir",
    "nohup": "",
    "nice": "-n --adjustment",
    "ionice": "-c -n -p",
    "chrt": "+1",
    "taskset": "+1",
    "timeout": "-s -k --signal --kill-after +1",
    "gtimeout": "-s -k +1",
    "time": "-f -o",
    "command": "",
    "builtin": "",
    "exec": "-a",
    "coproc": "",
    "stdbuf": "-i -o -e",
    "setsid": "",
    "unbuffer": "",
    "caffeinate": "-t -w",
    "strace": "-e -o -p -s -P",
    "ltrace": "-e -o -p",
    "valgrind": "",
    "chroot": "+1",
    "flock": "-w -E --timeout +1",
    "busybox": "",
    "toybox": "",
    "xargs": "-I -n -P -L -d -a -s -E --max-args --max-procs --delimiter --arg-file --replace",
    "parallel": "-j -a -S --jobs",
    "xvfb-run": "-s -n",
    "dbus-run-session": "",
    "systemd-run": "-p --property --unit",
    "cross-env": "",
    "sshpass": "-p -f",
    "entr": "",
    "dotenv": "-f -e -c",
    "npx": "-p --package",
    "bunx": "",
    "pnpx": "",
    "uvx": "--from --with --python",
    "npm exec": "-p --package -w",
    "npm x": "-p --package -w",
    "pnpm exec": "",
    "pnpm dlx": "--package",
    "yarn exec": "",
    "yarn dlx": "-p",
    "poetry run": "",
    "pipenv run": "",
    "uv run": "--with --python --extra --group",
    "uvx run": "",
    "pipx run": "--spec",
    "bundle exec": "",
    "rbenv exec": "",
    "mise exec": "",
    "conda run": "-n -p",
    "direnv exec": "+1",
    "op run": "--env-file",
    "doppler run": "-p -c",
    "perf stat": "-e -o",
}  # fmt: skip
# The same for commands that run in a container: their paths are not ours.
CONTAINED = {
    "docker exec": "-u -e -w --user --env --workdir --env-file +1",
    "podman exec": "-u -e -w --user --env --workdir +1",
    "docker compose exec": "-u -e -w --user --env --workdir --index +1",
    "docker compose run": "-u -e -w --user --env --workdir --name +1",
    "docker-compose exec": "-u -e -w +1",
    "docker-compose run": "-u -e -w +1",
    "kubectl exec": "-n -c --namespace --container +1",
    "heroku run": "-a --app",
    "fly ssh": "-C -a +1",
}  # fmt: skip
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
MOST = 12  # wrappers of one command


def unwrapped(one: Simple) -> Iterator[Simple]:
    """The command as it stands, then without its wrapper, and so on to the innermost."""
    yield one
    for _ in range(MOST):
        stripped = _without(one)
        if stripped is None:
            return
        one = replace(stripped, outer=(*one.outer, one.words))
        yield one


def _entry(words: tuple[str, ...]) -> tuple[int, str, bool] | None:
    """(words of the wrapper's own name, its options, whether it enters a container)."""
    names = [named(words[0]), *(words[1:3] if len(words) > 1 else ())]
    for count in (3, 2, 1):
        key = " ".join(names[:count])
        if len(names) >= count and (key in WRAPPERS or key in CONTAINED):
            return count, WRAPPERS.get(key, CONTAINED.get(key, "")), key in CONTAINED
    return None


def _without(one: Simple) -> Simple | None:
    entry = _entry(one.words)
    if entry is None:
        return None
    count, options, contained = entry
    takes = [word for word in options.split() if word[0] == "-"]
    words, given, seen = _past_options(list(one.words[count:]), takes)
    if one.name == "command" and has(seen, "-v", "-V"):
        return None
    skip = next((int(word) for word in options.split() if word[0] == "+"), 0)
    words = words[skip:]
    while words and (words[0] == "--" or (contained and words[0].startswith("-"))):
        words = words[1:]
    if one.name in ("xargs", "parallel"):
        words = _fed(one, words, seen)
    if not words or not words[0]:
        return None
    return replace(one, words=tuple(words), given=(*one.given, *given), cwd="" if one.name == "chroot" else one.cwd)


def _past_options(words: list[str], takes: list[str]) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    given, seen = [], []
    while words:
        match = ASSIGNMENT.fullmatch(words[0])
        if match:
            given.append((match[1], match[2]))
        elif words[0].startswith("-") and words[0] != "--" and len(words[0]) > 1:
            seen.append(words[0])
            if words[0] in takes and len(words) > 1:
                seen[-1] += "=" + words.pop(1)
        else:
            break
        words = words[1:]
    return words, given, seen


def _fed(one: Simple, words: list[str], seen: list[str]) -> list[str]:
    """The words with what flows in put in its place."""
    if ":::" in words:
        cut = words.index(":::")
        return [*words[:cut], *words[cut + 1 :]]
    flowing = one.text.split() if one.text is not None else listed(one.sources)
    items = [unknown()] if flowing is None else flowing
    mark = next((option[2:].lstrip("=") or "{}" for option in seen if option.startswith("-I")), "")
    if not mark and one.name == "parallel" and any("{}" in word for word in words):
        mark = "{}"
    if not mark:
        return [*words, *items] if words else []
    out = []
    for word in words:
        out.extend([word.replace(mark, item) for item in items[:8]] if mark in word else [word])
    return out


def is_contained(one: Simple) -> bool:
    """Whether a command runs in a container, where paths mean something else."""
    return any(entry is not None and entry[2] for entry in map(_entry, one.outer))
