"""Shell word expansion: quotes, escapes, variables, braces."""

from __future__ import annotations

import fnmatch
import re

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.simple import CLOSE, COMMA, MARKS, OPEN, SOME, SPLIT, UNKNOWN, unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.guard.line import Scene
    from ralphproof.guard.tree import Node

LONGEST = 20_000  # characters of one word; doubling a variable again and again makes gigabytes
MOST = 64  # words of one brace list
BRACES = str.maketrans("{,}", OPEN + COMMA + CLOSE)
PLAIN = str.maketrans(OPEN + COMMA + CLOSE, "{,}")
GROUP = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*{COMMA}[^{OPEN}{CLOSE}]*){CLOSE}")
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[uU][0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
SLICE = re.compile(r":\s*(\d+)(?::\s*(\d+))?$")
TRIMS = ("%%", "%", "##", "#")


class Speech:
    """Reads words in one text. `substitute` runs a substitution and says what is known of its output."""

    def __init__(self, source: bytes, scene: Scene, substitute: Callable[[Node], str]) -> None:
        self.source, self.scene, self.substitute = source, scene, substitute

    def raw(self, node: Node) -> str:
        """The text as it is written."""
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def words(self, node: Node) -> list[str]:
        """The words that one word becomes: none for an unset variable, more for a list in braces."""
        text = self.text(node)
        if len(text) > LONGEST:
            return [unknown()]
        found = [word.translate(PLAIN) for one in _braces(text) for word in one.split(SPLIT)]
        quoted = node.type in ("string", "raw_string", "concatenation", "ansi_c_string")
        return [word for word in found if word] or ([""] if quoted else [])

    def one(self, node: Node | None) -> str:
        """A word that is not split, such as the value of a variable."""
        text = self.text(node, quoted=True).translate(PLAIN) if node is not None else ""
        return text if len(text) <= LONGEST else unknown()

    def text(self, node: Node, quoted: bool = False) -> str:
        """The text of a node with marks in it for what is not known."""
        match node.type:
            case "raw_string":
                return self.raw(node)[1:-1]
            case "ansi_c_string":
                return unescaped(self.raw(node)[2:-1])
            case "string" | "translated_string":
                return self._joined(node, quoted=True)
            case "concatenation" | "command_name" | "heredoc_body":
                return self._joined(node, quoted)
            case "array":
                elements = [child for child in node.children if child.type not in ("(", ")")]
                return SPLIT.join(word for child in elements for word in self.words(child))
            case "simple_expansion":
                return self._split(self._variable(self.raw(node)[1:]), quoted)
            case "expansion":
                return self._split(self._expansion(node), quoted)
            case "command_substitution" | "process_substitution":
                return self._split(self.substitute(node), quoted)
            case "arithmetic_expansion" | "brace_expression":
                self._joined(node, quoted=True)
                return SOME
            case "string_content" | "heredoc_content":
                return re.sub(r'\\([\\"$`]|\n)', lambda found: found[1].replace("\n", ""), self.raw(node))
            case _:
                return _bare(self.raw(node)) if not node.children else self._joined(node, quoted)

    def _joined(self, node: Node, quoted: bool) -> str:
        """The parts of a node with what stands between them; the tree leaves blanks out."""
        out, position = [], node.start_byte
        for child in node.children:
            out.append(self.source[position : child.start_byte].decode("utf-8", "replace"))
            if child.type not in ('"', '$"'):
                out.append(self.text(child, quoted))
            position = child.end_byte
        if node.type == "heredoc_body":
            out.append(self.source[position : node.end_byte].decode("utf-8", "replace"))
        return "".join(out)

    def _split(self, text: str, quoted: bool) -> str:
        if quoted:
            return text
        blanks = self.scene.variables.get("IFS", " \t\n") or " \t\n"
        return re.sub(f"[{re.escape(blanks)}]+", SPLIT, text)

    def _variable(self, name: str) -> str:
        if name == "IFS" and name not in self.scene.variables:
            return " "
        if name == "PWD":
            return self.scene.cwd or unknown(name)
        return self.scene.variables.get("@" if name == "*" else name, unknown(name))

    def _expansion(self, node: Node) -> str:
        """`${…}`: every part is read, since a default that is not used may still run something."""
        parts = [child for child in node.children if child.type not in ("${", "}")]
        names = [child for child in parts if child.type in ("variable_name", "special_variable_name", "subscript")]
        if not names:
            return unknown("".join(self.text(child, quoted=True) for child in parts).replace(UNKNOWN, ""))
        after = parts[parts.index(names[0]) + 1 :]
        rest = "".join(self.one(child) for child in after[1:])
        name = re.match(r"\w+|.", self.raw(names[0]))
        value = self._variable(name[0] if name else "")
        if parts[0].type == "!":
            return unknown("!")
        if parts[0].type == "#":
            return SOME
        return _operated(value, after[0].type if after else "", rest, self.raw(node)[2:-1])


def _operated(value: str, operator: str, rest: str, raw: str) -> str:
    known = UNKNOWN not in value
    match operator:
        case "":
            return value
        case ":-" | "-" | ":=" | "=":
            return value if known and value else rest
        case ":+" | "+":
            return rest
        case ":?" | "?":
            return value
    if operator in TRIMS and known and SOME not in value and len(value) < 300:
        return _trimmed(value, operator, rest)
    sliced = SLICE.search(raw)
    if operator == ":" and sliced and known:
        start = int(sliced[1])
        return value[start:] if sliced[2] is None else value[start : start + int(sliced[2])]
    return unknown()


def _trimmed(value: str, operator: str, pattern: str) -> str:
    cuts = range(len(value) + 1)
    longest = len(operator) == 2
    if operator[0] == "%":
        ends = cuts if longest else reversed(cuts)
        return next((value[:cut] for cut in ends if fnmatch.fnmatchcase(value[cut:], pattern)), value)
    starts = reversed(cuts) if longest else cuts
    return next((value[cut:] for cut in starts if fnmatch.fnmatchcase(value[:cut], pattern)), value)


def _bare(raw: str) -> str:
    pieces = re.split(r"\\(.)", raw, flags=re.DOTALL)
    return "".join(piece.replace("\n", "") if i % 2 else piece.translate(BRACES) for i, piece in enumerate(pieces))


def _braces(text: str) -> list[str]:
    done: list[str] = []
    todo = [text]
    while todo:
        one = todo.pop(0)
        found = GROUP.search(one)
        if found is None or len(todo) + len(done) > MOST:
            done.append(one)
            continue
        todo = [one[: found.start()] + piece + one[found.end() :] for piece in found[1].split(COMMA)] + todo
    return done


def unescaped(text: str) -> str:
    """The text behind `$'…'` or `printf '…'`."""
    return ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
    elif code[0] in "01234567":
        number = int(code, 8)
    else:
        return LETTERS.get(code, code)
    usable = 0 < number < 0x110000 and not 0xD800 <= number < 0xE000
    return chr(number) if usable and chr(number) not in MARKS else ""
