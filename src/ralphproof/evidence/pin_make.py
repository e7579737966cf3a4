"""The rules, prerequisites and variables of a Makefile target."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator

from ralphproof.base.value import value

NAMES = ("GNUmakefile", "makefile", "Makefile")
INCLUDED = 4  # levels of files that include others
REACHED, FILES, PATTERNS = 500, 50, 100  # targets, included files, rules for many names
EXPANDED, EXPANDED_CHARS, MEANT_CHARS = 5, 64 * 1024, 1000  # rounds of putting in what variables stand for
_TAKING = ("-C", "--directory", "-f", "--file", "--makefile", "-j", "-l", "-o", "-W", "-I", "--include-dir")
# What decides over every recipe.
_ALWAYS = ("SHELL", ".SHELLFLAGS", "MAKEFLAGS", "GNUMAKEFLAGS", ".RECIPEPREFIX", "VPATH", "PATH")
_SPECIAL = (".IGNORE", ".ONESHELL", ".POSIX", ".DEFAULT", ".EXPORT_ALL_VARIABLES", ".NOTPARALLEL", ".DELETE_ON_ERROR")
_ASSIGNS = (
    r"(?s)^\s*(?P<export>(?:override\s+|export\s+|private\s+)*)(?P<name>[^\s:#=+?!]+)\s*(?:::?:?=|[+?!]?=)(?P<text>.*)$"
)
_RULE = r"(?s)^(?P<names>[^\t#=:][^#=:]*)(?P<how>::?)(?!=)(?P<needs>[^;]*)(?:;(?P<first>.*))?$"
_BRANCH = r"^\s*(?:ifeq|ifneq|ifdef|ifndef|else|endif)\b"
_USES = r"\$(?:[({](?:call\s+|value\s+|origin\s+)?([A-Za-z0-9_.%-]+)|([A-Za-z]))"


@value
class MakeCall:
    """What `make` is asked for: in which folder from the root, by which file, which targets."""

    folder: str
    file: str = ""
    targets: tuple[str, ...] = ()


@value
class MakePassage:
    """A rule or a variable as a file has it, with the conditions that it stands under."""

    name: str
    file: str
    text: str
    needs: tuple[str, ...] = ()
    exported: bool = False


def make_call(words: tuple[str, ...], folder: str) -> MakeCall:
    """What these words ask of make."""
    file, targets, left = "", [], list(words)
    while left:
        word = left.pop(0)
        option, given, text = word.partition("=") if word.startswith("--") else (word, "", "")
        if word[:2] in ("-C", "-f") and len(word) > 2 and word[1] != "-":
            option, given, text = word[:2], "=", word[2:]
        if option in _TAKING:
            numbers = option in ("-j", "-l") and not (left and left[0].isdigit())
            text = text if given or numbers or not left else left.pop(0)
            folder = os.path.normpath(os.path.join(folder, text)) if option in ("-C", "--directory") else folder
            file = text if option in ("-f", "--file", "--makefile") else file
        elif not word.startswith("-") and "=" not in word and "$" not in word:
            targets.append(word)
    return MakeCall(folder, file, tuple(targets))


class Makefile:
    """A Makefile with all that it includes. `read` gives the text of a file by its path from the root."""

    def __init__(self, path: str, read: Callable[[str], str | None]) -> None:
        self.path, self._read = path, read
        self.passages: dict[str, list[MakePassage]] = {}
        self.rules: list[str] = []
        self.files: list[str] = []
        self._folder = os.path.dirname(path)
        self._meanings = {"MAKE": "make"}
        self._take(path, INCLUDED)
        self._patterns = [name for name in dict.fromkeys(self.rules) if "%" in name and len(name) < 200][:PATTERNS]
        self._phony = {need for rule in self.passages.get(".PHONY", ()) for need in rule.needs}

    def default(self) -> tuple[str, ...]:
        """What is made where nothing is asked for."""
        told = self.passages.get("=.DEFAULT_GOAL")
        if told:
            return (told[-1].text.rpartition("=")[2].strip(),)
        return next(((name,) for name in self.rules if not name.startswith(".") and "%" not in name), ())

    def phony(self, target: str) -> bool:
        return target in self._phony

    def reached(self, targets: tuple[str, ...]) -> tuple[dict[str, list[MakePassage]], dict[str, list[MakePassage]]]:
        """The rules that these targets lead to, and the variables that they use, by their names."""
        rules: dict[str, list[MakePassage]] = {}
        waiting = list(targets)
        while waiting and len(rules) < REACHED:
            name = waiting.pop(0)
            if name in rules:
                continue
            rules[name] = self._rules(name)
            waiting += [need for rule in rules[name] for need in rule.needs]
        rules |= {name: self.passages[name] for name in _SPECIAL if name in self.passages}
        found = {name: passages for name, passages in rules.items() if passages or name in targets}
        return found, self._used(found)

    def _rules(self, name: str) -> list[MakePassage]:
        plain = self.passages.get(name, [])
        if any("\n\t" in rule.text or ";" in rule.text for rule in plain):
            return plain
        patterns = [one for one in self._patterns if fnmatch.fnmatchcase(name, one.replace("%", "*"))]
        return plain + [rule for one in patterns[:10] for rule in self.passages[one]]

    def _used(self, rules: dict[str, list[MakePassage]]) -> dict[str, list[MakePassage]]:
        every = {name[1:]: passages for name, passages in self.passages.items() if name.startswith("=")}
        used = {name for name, passages in every.items() if name in _ALWAYS or any(one.exported for one in passages)}
        waiting = [passage.text for passages in rules.values() for passage in passages]
        waiting += [passage.text for name in used for passage in every[name]]
        while waiting:
            names = {found[1] or found[2] for found in re.finditer(_USES, waiting.pop())}
            for name in names & every.keys() - used:
                used.add(name)
                waiting += [passage.text for passage in every[name]]
        return {name: every[name] for name in used}

    def expanded(self, passages: list[MakePassage]) -> str:
        """The recipes as a shell would see them, as far as plain variables tell."""
        text = "\n".join(re.sub(r"(?m)^[ \t]+[@+-]*", "", one.text.partition("\n\t")[2]) for one in passages)
        text += "".join(f"\n{one.text.partition(';')[2]}" for one in passages if ";" in one.text.split("\n\t")[0])
        for _ in range(EXPANDED):
            text = re.sub(r"\$[({]([A-Za-z0-9_.-]+)[)}]", self._meant, text)[:EXPANDED_CHARS]
        return text.replace("$$", "$")

    def _meant(self, found: re.Match[str]) -> str:
        name = found[1]
        if name not in self._meanings:
            values = [one.text.partition("=")[2].strip() for one in self.passages.get(f"={name}", ())]
            self._meanings[name] = " ".join(values)[:MEANT_CHARS] if values else " "
        return self._meanings[name]

    def _take(self, path: str, deep: int) -> None:
        text = self._read(path)
        if text is None or path in self.files or len(self.files) >= FILES:
            return
        self.files.append(path)
        branches: list[str] = []
        names: list[str] = []  # of the rule that a recipe would belong to
        for line, body in _logical(text):
            if re.match(_BRANCH, line):
                _turn(branches, line.strip())
                for name in names if body else ():
                    self._add(name, MakePassage(name, path, "\n".join([*branches, body])))
            elif (included := re.match(r"^\s*[-s]?include\s+(.*)$", line)) and deep:
                for word in included[1].split("#")[0].split():
                    self._take(os.path.normpath(os.path.join(self._folder, word)), deep - 1)
            else:
                names = self._note(path, line, body, "\n".join(branches))

    def _note(self, path: str, line: str, body: str, under: str) -> list[str]:
        """Keep what a line says; the names of the rule that it begins. A `#` behind `;` is the shell's."""
        line = line if ";" in line.partition("#")[0] else line.partition("#")[0].rstrip()
        whole = f"{under}\n{line}{body}"
        if made := re.match(_ASSIGNS, line):
            exported = "export" in made["export"]
            self._add(f"={made['name']}", MakePassage(made["name"], path, whole, exported=exported))
        elif found := re.match(r"^\s*(define|export)\s+(\S+)", line):
            self._add(f"={found[2]}", MakePassage(found[2], path, whole, exported=found[1] == "export"))
        elif rule := re.match(_RULE, line):
            own = re.match(_ASSIGNS, rule["needs"])  # a variable of this target alone
            needs = () if own else tuple(word for word in rule["needs"].split() if word != "|" and "$" not in word)
            names = rule["names"].split()
            for name in names:
                self._add(name, MakePassage(name, path, whole, needs))
            self.rules += names
            return names
        return []

    def _add(self, name: str, passage: MakePassage) -> None:
        self.passages.setdefault(name, []).append(passage)


def _turn(branches: list[str], line: str) -> None:
    """The conditions that hold behind a line with one."""
    if line.startswith("if"):
        branches.append(line)
    elif line.startswith("else") and branches:
        branches[-1] += f" {line}"
    elif branches:
        branches.pop()


def _logical(text: str) -> Iterator[tuple[str, str]]:
    """Every line that is none of a recipe, its continuations joined, with the recipe or definition below it."""
    line, body, defining = "", "", False
    for row in _rows(text):
        if defining or (row.startswith("\t") and line):
            plain = row.strip() and not row.strip().startswith("#")
            body += f"\n\t{row.strip()}" if plain else ""
            defining = defining and row.strip() != "endef"
            continue
        if not row.strip() or row.lstrip().startswith("#"):
            continue
        if line:
            yield line, body
        line, body, defining = row.rstrip(), "", bool(re.match(r"\s*(?:override\s+)?define\s", row))
    if line:
        yield line, body


def _rows(text: str) -> list[str]:
    """The lines of a Makefile; recipes begin with a tab, whatever it says that they begin with."""
    prefix = re.search(r"(?m)^\s*\.RECIPEPREFIX\s*:?:?=\s*(\S)", text)
    rows: list[str] = []
    open_row: list[str] = []  # a line that goes on in the next one
    for row in text.replace("\r\n", "\n").split("\n"):
        plain = "\t" + row[1:] if prefix and row.startswith(prefix[1]) and not open_row else row
        if plain.endswith("\\") and (open_row or not plain.startswith("\t")):
            open_row.append(plain[:-1].rstrip() if not open_row else plain[:-1].strip())
            continue
        rows.append(" ".join([*open_row, plain.strip()]) if open_row else plain)
        open_row = []
    return rows + ([" ".join(open_row)] if open_row else [])
