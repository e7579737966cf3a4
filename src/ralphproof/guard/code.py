"""Code of other languages in a command (`python -c`, `node -e`, here-documents), judged by what it spells out.

No language is parsed. String literals are put together where that is plain to see, and a table says what a call does
with the literals that it is given: each becomes the command that would do the same. What a literal does not say, such
as a path that is computed, is not known and not objected to.
"""

from __future__ import annotations

import re

from ralphproof.base.shell import unknown
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.command import OPAQUE, REMOTE, REVERSE, SQL
from ralphproof.guard.nesting import NestedCode, shell, words

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHONS = ("python", "pypy", "ipython")
LITERAL = r"""[rbfu]{0,2}(?:"(?:[^"\\]|\\.){0,999}"|'(?:[^'\\]|\\.){0,999}'|`[^`]{0,999}`)"""
ARGUMENT = rf"(?:\w+\s*=\s*)?(?:{LITERAL}|[A-Za-z_]\w*(?![\w(.\[]))"
# The home folder in several languages, and calls that leave a literal what it is.
HOME = (
    r"(?:pathlib\.)?Path\.home\(\)|(?:require\(['\"](?:node:)?os['\"]\)|\bos)\.homedir\(\)|process\.env\.HOME\b|\bDir\.home\b"
    r"|(?:os\.environ|\bENV)\[['\"]HOME['\"]\]|(?:os\.)?getenv\(['\"]HOME['\"]\)|\$ENV\{HOME\}"
)
MODULE = r"(?:(?<![\w.])[\w.]{1,60}\.)?\b"
SAME = rf"{MODULE}(?:Path|PurePath|str|expanduser|abspath|realpath|fspath|i?glob)\s*\(?\s*({LITERAL})\s*\)"
SAME_METHOD = rf"({LITERAL})\s*\.\s*(?:expanduser|resolve|absolute)\(\)"
IN_BRACKETS = rf"(?<![\w\])])\(\s*({LITERAL})\s*\)"
JOINED = rf"({LITERAL})\s*([+/])\s*({LITERAL})"
JOIN_CALL = rf"\bjoin\(\s*({LITERAL})\s*,\s*({LITERAL})\s*(?=[,)])"
GIVEN_NAME = rf"\b([A-Za-z_]\w*)\s*(?:=|\bin\b\s*[(\[]?)\s*({LITERAL})(?!\s*[+%/])"
# What a call is: its names, the owners in front of its dot that it must have (any by default), and the command.
CALLS = (
    ("system popen call Popen check_call check_output getoutput getstatusoutput execv execvp execvpe execl execlp"
     " spawnl spawnv spawnlp create_subprocess_shell create_subprocess_exec execSync spawnSync execFile execFileSync"
     " shell_exec passthru proc_open capture2 capture3 capture2e", "", "run"),
    ("run exec spawn", r"os|subprocess|pty|asyncio|sp|cp|child_process|IO|Open3|Kernel|\)|", "run"),
    ("execute", "os", "run"),
    ("execute executescript", r"(?!os$).*", SQL),
    ("rmtree rmSync rimraf remove_tree rm_rf rm_r removeSync emptyDirSync rmdirSync removedirs", "", "rm -rf"),
    ("rm", r"fs|fsp|promises|FileUtils|\)", "rm -rf"),
    ("unlink unlinkSync rmdir", "", "rm"),
    ("remove delete", "os|fs|Deno|File|FileUtils", "rm"),
    ("move", "shutil|FileUtils|fs", "mv"),
    ("rename replace renameSync", r"os|fs|File|\)", "mv"),
    ("copy copy2 copyfile copytree copyFileSync cpSync", r"shutil|fs|FileUtils|\)", "cp -r"),
    ("symlink symlinkSync", r"os|fs|File|\)", "ln -s"),
    ("read_text read_bytes readFileSync readFile readTextFile file_get_contents", "", "<"),
    ("write_text write_bytes writeFileSync writeFile appendFileSync file_put_contents writeTextFileSync", "", ">"),
    ("read", "File|IO", "<"),
    ("write", "File|IO", ">"),
    ("open fopen", "", "open"),
)  # fmt: skip
VERBS = dict.fromkeys(name for names, _, _ in CALLS for name in names.split())
CALL = (
    rf"(?:({LITERAL}|\w+|\))\s*\.\s*|(?<![.\w]))\b({'|'.join(VERBS)})\b(?:\s*\(|\s+(?=['\"]|glob))\s*(?:glob\s*\(?\s*)?"
    rf"[\[(]?\s*((?:{ARGUMENT}(?:\s*,\s*\[?\s*(?=[\w'\"`]))?)*)"
)
OF_PATH = {"unlink", "rmdir", "read_text", "read_bytes", "write_text", "write_bytes", "open"}  # methods of a path
BACKTICKS = r"`([^`]{1,999})`|%x[({\[]([^)}\]]{1,999})|qx[({/]([^)}/]{1,999})"
AWK_COMMANDS = r'"((?:[^"\\]|\\.){0,999})"\s*\|&?\s*getline|print[^;}]{0,99}\|\s*"((?:[^"\\]|\\.){0,999})"'
KILL = r"\bkill\s*\(?\s*['\"]?-?(\w+)['\"]?\s*,\s*(-?\d+)"
UPLOAD = rf"\.(?:post|put)\s*\(\s*({LITERAL})[^;\n]{{0,200}}\bfiles\s*="
RUNS_TEXT = r"\b(?:eval|exec|compile|system|popen|Function|create_function|instance_eval|assert)\b"
DECODES = (
    r"fromhex|unhexlify|b\d\d(?:de|)code|b64decode|decode64|base64|decompress|\bpack\s*\(|Buffer\.from|\batob\b|gzinflate"
    r"|fromCharCode|rot13|\bunhex|\bchr\s*\(|\bbytes\s*\("
)
EVALUATES = r"\beval\b|(?<![.\w])exec\s*\(|\bFunction\s*\(|create_function|instance_eval|vm\.runIn"
FETCHES = (
    r"https?['\"]?\)?\.(?:get|request)|\bLWP\b|\bfetch\s*\(|open-uri|Net::HTTP|URI\.open|\bget\s*\(?\s*['\"]http|urlopen"
    r"|requests\.|httpx\."
)
SOCKETS = r"\bSocket\b|\bsocket\.socket\b|TCPSocket|fsockopen|net\.(?:connect|Socket|createConnection)|/inet/tcp"
SHELLS = r"\bdup2\b|\b(?:exec|spawn|popen|system|shell_exec|proc_open)\b|/bin/(?:ba)?sh|\|&"
PRINT = r"(?:\bprint|console\.\w+|\bputs|\becho|\bp|\bpprint|\.write)\b\s*\(?"
ENVIRONMENT = r"(?:os\.environ|process\.env|\bENV)\b"
PRINTS_ALL = (
    rf"{PRINT}\s*(?:(?:dict|str|list|sorted|[\w.]*dumps|JSON\.stringify|Object\.\w+)\()?\s*{ENVIRONMENT}"
    r"(?:\.(?:items|inspect|to_h|copy)\b(?:\(\))?)?\s*(?:[),;]|$)"
    rf"|\bin\s+(?:sorted\()?{ENVIRONMENT}(?:\.items\(\))?\)?\s*:\s*{PRINT}"
)
PRINTS_ONE = (
    rf"{PRINT}[^;\n]{{0,80}}?(?:{ENVIRONMENT}|\bgetenv\b)(?:\.get)?\s*[\[.({{]+\s*['\"]?"
    r"(?!(?:get|items|copy)\b)([A-Za-z_]\w*)"
)


def effects_of_code(language: str, text: str) -> Iterator[NestedCode]:
    """The commands that would do what a piece of code spells out."""
    text = "\n".join(" ".join(line.split()) for line in text.split("\n"))  # long runs of blanks take patterns long
    if language != "php":
        text = re.sub(r"(?m)^#.*$", "", text)
    yield from _code_that_is_made(text)
    text = _put_together(text)
    names = {name: _content(literal) for name, literal in re.findall(GIVEN_NAME, text)}
    for found in re.finditer(CALL, text):
        yield from _effect_of_call(language, found, names)
    patterns = {"perl": BACKTICKS, "ruby": BACKTICKS, "php": BACKTICKS, "awk": AWK_COMMANDS}
    for found in re.finditer(patterns[language], text) if language in patterns else ():
        yield shell(next(group for group in found.groups() if group is not None))
    for found in re.finditer(KILL, text):
        signal, process = (found[2], found[1]) if language in PYTHONS else (found[1], found[2])
        yield words("kill", f"-{signal}", process)
    for address in re.findall(UPLOAD, text):
        yield words("curl", "-F", "f=@x", _content(address))
    if re.search(PRINTS_ALL, text):
        yield words("printenv")
    for name in re.findall(PRINTS_ONE, text):
        yield words("printenv", name)


def _code_that_is_made(text: str) -> Iterator[NestedCode]:
    """Code that is fetched or decoded before it runs, and shells on a connection."""
    if re.search(EVALUATES, text) and re.search(FETCHES, text):
        yield words(REMOTE, text)
    elif re.search(rf"{RUNS_TEXT}\s*\(?[^;\n]{{0,200}}?(?:{DECODES})", text):
        yield words(OPAQUE, text)
    if re.search(SOCKETS, text) and re.search(SHELLS, text):
        yield words(REVERSE, text)


def _put_together(text: str) -> str:
    """The text with literals joined, and calls taken out that leave a path what it is."""
    text = re.sub(HOME, "'~'", text)
    for _ in range(4):
        before = text
        for pattern in (SAME, SAME_METHOD, IN_BRACKETS):
            text = re.sub(pattern, r"\1", text)
        text = re.sub(
            rf"\b(?:listdir|scandir)\(\s*({LITERAL})\s*\)", lambda found: repr(_content(found[1]) + "/*"), text
        )
        text = re.sub(JOINED, _join, text)
        text = re.sub(JOIN_CALL, lambda found: f"join({_content(found[1]) + '/' + _content(found[2])!r}", text)
        text = re.sub(rf"{MODULE}join\(\s*({LITERAL})\s*\)", r"\1", text)
        if text == before:
            break
    return text


def _join(found: re.Match[str]) -> str:
    return repr(_content(found[1]) + ("/" if found[2] == "/" else "") + _content(found[3]))


def _content(literal: str) -> str:
    """What a literal says, with a mark for what is put in."""
    prefix = re.match(r"[rbfu]*", literal)
    start = prefix.end() if prefix else 0
    text = re.sub(r"\\(.)", r"\1", literal[start + 1 : -1])
    inserted = r"\{[^}]*\}" if "f" in literal[:start] else r"[$#]\{[^}]*\}"
    return re.sub(inserted, unknown(), text)


def _effect_of_call(language: str, found: re.Match[str], names: dict[str, str]) -> Iterator[NestedCode]:
    owner, verb = found[1] or "", found[2]
    positional = (one for one in re.findall(ARGUMENT, found[3]) if not re.match(r"(?!mode)\w+\s*=", one))
    arguments = [_argument(one, names) for one in positional]
    ways = ((owners, command) for names, owners, command in CALLS if verb in names.split())
    command = next((command for owners, command in ways if not owners or re.fullmatch(owners, owner)), None)
    path = _argument(owner, names) if owner and verb in OF_PATH else None
    if command == "open":
        given = arguments if path is not None else arguments[1:]
        mode = given[0] if given and given[0] is not None else ""
        command = ">" if set(mode) & set("wax+>") and len(mode) < 5 else "<"
        arguments = [
            arguments[2] if mode in (">", ">>", "<") and len(arguments) > 2 else arguments[0] if arguments else None
        ]
    if path is not None:
        arguments = [path]
    known = [text if text is not None else unknown() for text in arguments]
    if command is None or not known or arguments[0] is None:
        return
    if found.string[found.end() :].lstrip().startswith(("+", "%", ".format")) and len(known) == 1:
        known[0] += unknown()
    if command != "run":
        paths = known[:1] if command in ("<", ">") else known[:2] if command in ("mv", "cp -r", "ln -s") else known
        yield words(*command.split(), *paths)
    elif verb == "exec" and language in PYTHONS:
        yield NestedCode(language=language, code=known[0])
    elif len(known) > 1 and " " not in known[0]:
        listed = verb in ("execv", "execvp", "execvpe", "execl", "execlp", "spawnl", "spawnlp")  # the name comes twice
        yield words(*(known[1:] if listed else known))
    else:
        yield shell(known[0])


def _argument(text: str, names: dict[str, str]) -> str | None:
    """What a literal, or a name for one, says; None where that is not known."""
    text = re.sub(r"^\w+\s*=\s*", "", text)
    if re.fullmatch(LITERAL, text):
        return _content(text)
    return names.get(text)
