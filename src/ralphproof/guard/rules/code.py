"""Rules on code from elsewhere, or code that cannot be read before it runs; applied to every command."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.effects import FETCHERS
from ralphproof.guard.matching import shown
from ralphproof.guard.nest import INTERPRETERS, SHELLS, reads_code, script
from ralphproof.guard.nested import OPAQUE, REMOTE
from ralphproof.guard.rules.tunnels import connected
from ralphproof.guard.simple import FILE, QUIET, UNKNOWN, Simple, operands, substitutions, variables
from ralphproof.guard.verdict import Objection, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.verdict import Ground

REMOTE_PIPE = Rule(
    "remote-pipe", "remote-code", "runs code as it comes from elsewhere",
    "save it to a file of the project, read it, and say why it should run",
)  # fmt: skip
FETCHED = Rule(
    "fetched-script", "remote-code", "runs a file that the same line has brought from elsewhere",
    "read the file before it runs",
)  # fmt: skip
FROM_URL = Rule(
    "run-url", "remote-code", "runs a program straight from an address",
    "install it as a dependency of the project",
)  # fmt: skip
UNREAD = Rule(
    "decoded-code", "opaque-code", "runs code that is decoded or put together on the way",
    "write the commands out, so that they can be read",
)  # fmt: skip
UNKNOWN_NAME = Rule(
    "unknown-command", "opaque-code", "runs a command whose name is not known before it runs", "write the command out",
)  # fmt: skip
EVALUATED = Rule(
    "eval-unknown", "opaque-code", "runs text that is not known before it runs", "write the commands out, without eval",
)  # fmt: skip
ODD = Rule(
    "odd-spelling", "opaque-code", "runs a command whose name is spelled so that nobody can read it",
    "write its name",
)  # fmt: skip
UNREADABLE = Rule("unreadable", "opaque-code", "cannot be read as a shell would", "write it as shorter, plain commands")
RULES = (REMOTE_PIPE, FETCHED, FROM_URL, UNREAD, UNKNOWN_NAME, EVALUATED, ODD, UNREADABLE)

AWAY = FETCHERS | {
    "ssh",
    "telnet",
    "ncat",
    "socat",
    "ftp",
    "sftp",
    "rsync",
    "openssl-s_client",
    "aws",
    "gsutil",
    "kubectl",
}
SETTING_UP = {  # what these print is there to be evaluated
    "pyenv", "rbenv", "nodenv", "goenv", "jenv", "direnv", "starship", "zoxide", "fnm", "mise", "conda", "mamba",
    "dircolors", "opam", "asdf", "luarocks", "brew", "register-python-argcomplete", "thefuck", "atuin", "lesspipe",
    "sed",
    "resize", "tset", "keychain", "fzf", "uv", "pixi", "rustup", "ng", "kubectl", "helm", "gh",
}  # fmt: skip
COMMAND_NAMES = re.compile(
    r"[A-Z_]*(PYTHON3?|PIP|NODE|NPM|YARN|PNPM|CC|CXX|LD|AR|MAKE|CMAKE|GO|CARGO|RUSTC|JAVA|MVN|GRADLE|RUBY|PHP|DOCKER"
    r"|COMPOSE|KUBECTL|HELM|EDITOR|PAGER|BROWSER|TEST_CMD|RUNNER|PYTEST|GIT|BIN)|@|\d"
)
PLAIN_READERS = {"<", "cat", "head", "tail", "tee", "sed", "grep"}
ESCAPED = re.compile(r"\\(x[0-9a-fA-F]{2}|0?[0-7]{3})")
RUNS_URLS = {"npx", "bunx", "pnpx", "deno", "uvx", "node", "bun", "tsx"}


def found(one: Simple, _: Ground) -> Iterator[Objection]:
    """Which code a command runs that has not been seen."""
    if one.name in QUIET:
        return
    if one.name == OPAQUE:
        yield UNREAD.about(shown(one))
    elif one.name == REMOTE:
        yield REMOTE_PIPE.about(shown(one))
    elif one.odd:
        yield ODD.about(shown(one))
    elif one.fetched and one.name != "git":
        yield FETCHED.about(shown(one))
    elif UNKNOWN in one.name:
        yield from _unknown(one)
    else:
        yield from _running(one)


def _unknown(one: Simple) -> Iterator[Objection]:
    names, ways = variables(one.name), list(substitutions(one.name))
    if any(AWAY & set(every) for _, _, every in ways):
        yield REMOTE_PIPE.about(shown(one))
    elif ways or not all(COMMAND_NAMES.fullmatch(name) for name in names):
        yield UNKNOWN_NAME.about(shown(one))


def _running(one: Simple) -> Iterator[Objection]:
    if one.name in RUNS_URLS and any(re.match(r"https?://|git\+|github:", word) for word in operands(one)[:2]):
        yield FROM_URL.about(shown(one))
    if one.name not in SHELLS and one.name not in INTERPRETERS and one.name not in ("eval", "source", "."):
        return
    rule = _by_words(one) or (_by_sources(one) if reads_code(one) and one.text is None else None)
    if rule is None and one.text is not None and reads_code(one):
        spelled = any(ESCAPED.search(word) for source in one.sources for word in source.words)
        rule = UNREAD if spelled else _by_text(one.text)
    if rule is not None:
        yield rule.about(shown(one))


def _by_words(one: Simple) -> Rule | None:
    """Code in an argument, or a file that is a process's output."""
    words = [word for word in one.words[1:] if UNKNOWN in word]
    made = [(kind, first, names) for word in words for kind, first, names in substitutions(word)]
    runs_file = script(one)
    if any(AWAY & set(names) for kind, _, names in made if kind != FILE or one.name in SHELLS or runs_file):
        return REMOTE_PIPE
    if one.name == "eval":
        return EVALUATED if words and not all(_sets_up(word) for word in words) else None
    if one.name in ("source", "."):
        first = one.words[1] if len(one.words) > 1 else ""
        whole = first.startswith(UNKNOWN) and first.endswith(UNKNOWN)
        return EVALUATED if whole and not _sets_up(first) else None
    code = next((word for word in operands(one) if _is_code(one)), "")
    if code.startswith(UNKNOWN) and one.name in SHELLS:
        return REMOTE_PIPE if _away(one) else EVALUATED
    return None


def _is_code(one: Simple) -> bool:
    return any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*|--command", word) for word in one.words[1:])


def _sets_up(word: str) -> bool:
    ways = list(substitutions(word))
    return bool(ways) and not variables(word) and all(first[:1] and first[0] in SETTING_UP for _, first, _ in ways)


def _away(one: Simple) -> bool:
    return any(source.name in AWAY for source in one.sources)


def _by_sources(one: Simple) -> Rule | None:
    names = [source.name for source in one.sources]
    if connected(one):
        return None  # a matter of tunnels
    if _away(one):
        return REMOTE_PIPE
    if not names or set(names) <= PLAIN_READERS:
        return None
    return UNREAD


def _by_text(text: str) -> Rule | None:
    """What flows in is known but for some of it."""
    if any(AWAY & set(names) for _, _, names in substitutions(text)):
        return REMOTE_PIPE
    return EVALUATED if text.startswith(UNKNOWN) else None
