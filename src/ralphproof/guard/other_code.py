"""Effects of Perl, Ruby, JavaScript, PHP, Lua and awk code, as equivalent commands."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.nested import OPAQUE, REMOTE, REVERSE, Nested, shell, words
from ralphproof.guard.simple import unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

LITERAL = r"""(?:"((?:[^"\\]|\\.){0,999})"|'((?:[^'\\]|\\.){0,999})'|`([^`]{0,999})`)"""
RUNS = (
    "system", "exec", "execSync", "spawn", "spawnSync", "execFile", "execFileSync", "popen", "shell_exec", "passthru",
    "proc_open", "capture2", "capture3", "execute", "qx",
)  # fmt: skip
DOES = {
    "rmSync": ("rm", "-rf"), "rm": ("rm", "-rf"), "rmdirSync": ("rm", "-rf"), "unlinkSync": ("rm",), "unlink": ("rm",),
    "rimraf": ("rm", "-rf"), "remove_tree": ("rm", "-rf"), "rmtree": ("rm", "-rf"), "rm_rf": ("rm", "-rf"),
    "rm_r": ("rm", "-rf"), "remove_dir": ("rm", "-rf"), "delete": ("rm",), "rmdir": ("rm",), "remove": ("rm",),
    "removeSync": ("rm", "-rf"), "emptyDirSync": ("rm", "-rf"), "readFileSync": ("<",), "readFile": ("<",),
    "read": ("<",), "file_get_contents": ("<",), "readTextFile": ("<",), "writeFileSync": (">",), "writeFile": (">",),
    "appendFileSync": (">",), "file_put_contents": (">",), "renameSync": ("mv",), "write": (">",),
}  # fmt: skip
OWNED = {"read": "File|IO", "write": "File|IO", "delete": "File", "remove": "os|Deno|fs"}  # only of these
CALL = re.compile(rf"(?:\b(\w+)\.)?\b({'|'.join((*RUNS, *DOES))})\b\s*\(?\s*(?:glob\s*\(?\s*)?\[?\s*{LITERAL}")
MORE = re.compile(rf"\s*,\s*\[?\s*{LITERAL}")
TICKS = re.compile(r"`([^`]{1,999})`|%x[({\[]([^)}\]]{1,999})|qx[({/]([^)}/]{1,999})")
EVALUATES = re.compile(r"\b(eval|Function|assert|create_function|instance_eval|vm\.runIn\w+)\b")
DECODES = re.compile(r"pack\s*\(|base64|Buffer\.from|\batob\b|fromCharCode|gzinflate|rot13|unhex|chr\s*\(|decode64")
FETCHES = re.compile(
    r"https?['\"]?\)?\.(get|request)|LWP|\bfetch\s*\(|open-uri|Net::HTTP|URI\.open|\bget\s*\(?\s*['\"]http"
)
SOCKETS = re.compile(r"\bSocket\b|TCPSocket|fsockopen|net\.(connect|Socket|createConnection)|IO::Socket|/inet/tcp")
SHELLS = re.compile(r"\b(exec|spawn|popen|system|shell_exec|proc_open)\b|/bin/(ba)?sh|\|&")
PRINTS = re.compile(
    r"console\.log\(\s*process\.env(?:\.(\w+)|\[['\"](\w+)['\"]\])?\s*\)|\bENV\.(?:inspect|to_h)|p ENV\b"
)
INTERPOLATED = re.compile(r"\$\{[^}]*\}|#\{[^}]*\}")
GETLINE = re.compile(r'"((?:[^"\\]|\\.){0,999})"\s*\|&?\s*getline|print[^;}]{0,99}\|\s*"((?:[^"\\]|\\.){0,999})"')
KILL = re.compile(r"\bkill\s*\(?\s*['\"]?-?(\w+)['\"]?\s*,\s*(-?\d+)")


def done_by(language: str, text: str) -> Iterator[Nested]:
    """What a piece of code would do."""
    text = " ".join(text.split())  # long runs of blanks take the patterns long
    for found in CALL.finditer(text):
        yield from _called(found, text)
    if language in ("perl", "ruby", "php"):
        for found in TICKS.finditer(text):
            yield shell(_literal(found.groups()))
    if language == "awk":
        for found in GETLINE.finditer(text):
            yield shell(_literal(found.groups()))
    for found in KILL.finditer(text):
        yield words("kill", f"-{found[1]}", found[2])
    if EVALUATES.search(text) and FETCHES.search(text):
        yield words(REMOTE, text)
    elif EVALUATES.search(text) and DECODES.search(text):
        yield words(OPAQUE, text)
    if SOCKETS.search(text) and SHELLS.search(text):
        yield words(REVERSE, text)
    for found in PRINTS.finditer(text):
        yield words("printenv", *filter(None, found.groups()))


def _literal(groups: tuple[str | None, ...]) -> str:
    text = next((one for one in groups if one is not None), "")
    return INTERPOLATED.sub(unknown(), re.sub(r"\\(.)", r"\1", text))


def _called(found: re.Match[str], text: str) -> Iterator[Nested]:
    owner, name, first = found[1] or "", found[2], _literal(found.groups()[2:])
    if name in OWNED and not re.fullmatch(OWNED[name], owner):
        return
    rest: list[str] = []
    end = found.end()
    while len(rest) < 20 and (more := MORE.match(text, end)):
        rest.append(_literal(more.groups()))
        end = more.end()
    if name in DOES:
        yield words(*DOES[name], first, *(rest if DOES[name][0] == "rm" else rest[:1] if name == "renameSync" else ()))
    elif rest and " " not in first:
        yield words(first, *rest)
    else:
        yield shell(first)
