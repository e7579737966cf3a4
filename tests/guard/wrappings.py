"""Ways to say the same command: what a shell runs in the end does not change."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

quoted = shlex.quote
NAMED: dict[str, Callable[[str], str]] = {
    "after": lambda line: f"true; {line}",
    "and": lambda line: f"true && {line}",
    "or": lambda line: f"false || {line}",
    "newline": lambda line: f"cd src\ncd ..\n{line}",
    "background": lambda line: f"{line} &",
    "subshell": lambda line: f"( {line} )",
    "braces": lambda line: f"{{ {line}; }}",
    "if": lambda line: f"if true; then {line}; fi",
    "while": lambda line: f"while true; do {line}; break; done",
    "for": lambda line: f"for i in 1 2; do {line}; done",
    "case": lambda line: f"case $1 in *) {line};; esac",
    "function": lambda line: f"f() {{ {line}; }}; f",
    "substitution": lambda line: f'echo "$( {line} )"',
    "backticks": lambda line: f"echo `{line}`" if "`" not in line and "\\" not in line else line,
    "process": lambda line: f"cat <( {line} )",
    "bash -c": lambda line: f"bash -c {quoted(line)}",
    "twice": lambda line: f"sh -c {quoted(f'bash -lc {quoted(line)}')}",
    "eval": lambda line: f"eval {quoted(line)}",
    "variable": lambda line: f'x={quoted(line)}; eval "$x"',
    "here-string": lambda line: f"bash <<< {quoted(line)}",
    "here-document": lambda line: f"bash -s <<'END'\n{line}\nEND",
    "pipe": lambda line: f"echo {quoted(line)} | sh" if "\\" not in line else line,
    "script": lambda line: f"cat > x.sh <<'END'\n{line}\nEND\nsh x.sh",
    "xargs": lambda line: f"echo x | xargs -I% bash -c {quoted(line)}" if "%" not in line else line,
    "find": lambda line: f"find . -name x -exec sh -c {quoted(line)} \\;",
    "trap": lambda line: f"trap {quoted(line)} EXIT",
    "watch": lambda line: f"watch -n 9 {quoted(line)}",
}
# These stand in front of a program: not of a redirection, an assignment or a word of the shell's grammar.
IN_FRONT: dict[str, Callable[[str], str]] = {
    "env": lambda line: f"env A=1 {line}",
    "assignment": lambda line: f"A=1 {line}",
    "timeout": lambda line: f"timeout -k 5 60 {line}",
    "nohup": lambda line: f"nohup {line}",
    "command": lambda line: f"command {line}",
    "nice": lambda line: f"nice -n 5 stdbuf -oL {line}",
    "time": lambda line: f"time {line}",
    "backslash": lambda line: f"\\{line}",
    "quotes": lambda line: f"'{line[0]}'{line[1:]}",
    "double quotes": lambda line: f'{line[:1]}""{line[1:]}',
}
WAYS = NAMED | IN_FRONT
STATEMENT = re.compile(
    r"[^\w./~]|\w+=|\w+ ?\(\)|(if|for|while|until|case|select|declare|export|eval|set|trap|alias|time|coproc|exec)\b"
)


def fits(way: str, line: str) -> bool:
    """Whether the wrapping leaves the meaning as it is."""
    if way in IN_FRONT:
        return STATEMENT.match(line) is None
    if line.rstrip().endswith("&"):
        return way not in ("background", "braces", "if", "while", "for", "case", "function")
    return way != "find" or "{}" not in line
