"""What a check's command leads to: make targets, package scripts, scripts and runners."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from ralphproof.base import shell
from ralphproof.base.shell import ShellCommand
from ralphproof.evidence import pin_make, pin_package
from ralphproof.evidence.pin_pieces import SCRIPT, TARGET, VARIABLE, Piece, ProjectFiles, digest, piece, whole
from ralphproof.evidence.pin_runners import PYTHON, runner_of

DEEP = 3  # scripts that run scripts
PIECES = 2000
PHONY, MADE = "\tphony", "\tmade"  # facts of a target beside its text
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash", "busybox"))
_OTHERS = frozenset(("node", "nodejs", "tsx", "ts-node", "deno", "ruby", "perl", "php", "bun"))
# Options that take a word which is no script.
_TAKING = frozenset(("-W", "-X", "-O", "-o", "--conditions", "-C", "--test-reporter", "--test-name-pattern", "-I"))
_NAMING = frozenset((  # options that name a file which decides
    "--config", "--config-file", "--rcfile", "--require", "--import", "--loader", "--experimental-loader",
    "--settings", "--project", "--opts", "--preload", "--setupFiles", "--globalSetup", "--cov-config",
))  # fmt: skip
_SHORT = {"-c": ("pytest", "eslint", "jest", "py.test"), "-r": ("node", "mocha", "ava"), "-p": ("tsc", "pytest")}
_WORD = r"[\w@./=-]+"


class Reach:
    """All that commands lead to, in the project as its files now are."""

    def __init__(self, files: ProjectFiles) -> None:
        self.files = files
        self.pieces: dict[str, Piece] = {}
        self.programs: set[str] = set()
        self.runners: set[str] = set()
        self.folders: set[str] = set()  # where runners look for their settings
        self.packages: set[str] = set()  # where npm looks for programs
        self.python_paths: set[str] = set()
        self.python = False
        self._seen: set[tuple[str, str]] = set()
        self._packages: dict[str, dict[str, Any]] = {}

    def follow(self, text: str, folder: str = ".", deep: int = DEEP) -> None:
        """Take in a shell's text that runs in this folder."""
        if (text, folder) in self._seen or len(self.pieces) > PIECES or deep < -DEEP:
            return
        self._seen.add((text, folder))
        for command in shell.commands_in(text, folder):
            self._command(command, deep)

    def words(self, text: str, folder: str) -> None:
        """Take in what is no shell's text: only the names of runners in it tell something."""
        found = {runner for word in re.findall(_WORD, text[: shell.MAX_CHARS]) if (runner := runner_of(word))}
        if found:
            self.runners |= found
            self.folders.add(folder)
        self.python = self.python or any(re.fullmatch(PYTHON, one) for one in found)

    def _command(self, command: ShellCommand, deep: int) -> None:
        name, folder = command.name, command.folder
        self.programs.add(name)
        every = (command.program, *command.words)
        runners = {runner for word in every if (runner := runner_of(word))}
        if runners:
            self.runners |= runners
            self._look_in(command)
        if any(re.fullmatch(PYTHON, os.path.basename(word)) for word in every):
            self.python = True
            self.python_paths.add(folder)
            self._own_path(command)
        if "/" in command.program:
            self.script(command.program, folder, deep)
        self._named(command, deep)
        self._by_name(name, command, deep)

    def _by_name(self, name: str, command: ShellCommand, deep: int) -> None:
        if name in ("make", "gmake"):
            self.make(pin_make.make_call(command.words, command.folder), deep)
        elif call := pin_package.package_call(command):
            self._package(call, deep)
        elif name in _SHELLS:
            self._shell(command, deep)
        elif name in (".", "source"):
            self.script(next(iter(command.words), ""), command.folder, deep)
        elif re.fullmatch(PYTHON, name) and name.startswith("py") and "test" not in name:
            self._interpreted(command, deep, ("-m", "-c"))
        elif name in _OTHERS and "--test" not in command.words and "test" not in command.words[:1]:
            self._interpreted(command, deep, ("-e", "-p", "--eval", "--print"))

    def _look_in(self, command: ShellCommand) -> None:
        """A runner looks in the folder that it is started in, and in those that it is given."""
        for word in ("", *command.words):
            folder = self.files.from_root(word, command.folder) if word else os.path.normpath(command.folder)
            folder = folder if not word or self.files.is_folder(folder) else os.path.dirname(folder)
            while folder and folder not in self.folders and self.files.is_folder(folder):
                self.folders.add(folder)
                folder = os.path.dirname(folder)
        self.folders.add(".")

    def _own_path(self, command: ShellCommand) -> None:
        for one in command.sets:
            if one.startswith("PYTHONPATH="):
                self.python_paths |= {
                    found for word in one[11:].split(":") if (found := self.files.from_root(word, command.folder))
                }

    def _named(self, command: ShellCommand, deep: int) -> None:
        """Files that an option names as what decides, not as what is looked at."""
        words = [*command.words, *(word for one in command.sets for word in one.partition("=")[2].split())]
        for at, word in enumerate(words):
            option, given, text = word.partition("=")
            if option in _NAMING or (command.name in _SHORT.get(option, ()) and not given):
                path = text if given else words[at + 1] if at + 1 < len(words) else ""
                self.script(path, command.folder, deep)
                if option == "-p":  # a plug-in, by its module's name
                    self.script(path.replace(".", "/") + ".py", command.folder, deep)

    def _shell(self, command: ShellCommand, deep: int) -> None:
        for at, word in enumerate(command.words):
            if re.fullmatch(r"-[a-z]*c", word):
                self.follow(next(iter(command.words[at + 1 :]), ""), command.folder, deep - 1)
                return
            if not word.startswith(("-", "+")):
                self.script(word, command.folder, deep, in_shell=True)
                return

    def _interpreted(self, command: ShellCommand, deep: int, ends: tuple[str, ...]) -> None:
        skip = False
        for word in command.words:
            if skip or word in _TAKING or word in ("-r", "--require", "--import", "--loader"):
                skip = not skip
            elif word in ends:
                return
            elif not word.startswith("-") and word not in ("run", "x"):
                self.script(word, command.folder, deep)
                return

    def script(self, name: str, folder: str, deep: int, in_shell: bool = False) -> None:
        """Take in a script that is run in this folder."""
        path = self.files.from_root(name, folder) if "$" not in name else ""
        text = self.files.text(path) if path else None
        if text is None:
            return
        made = whole(SCRIPT, path, self.files.digest(path))
        self.pieces[made.key] = made
        if deep <= 0 or ("", path) in self._seen:
            return
        self._seen.add(("", path))
        first = text.partition("\n")[0]
        if path.endswith(".py") or "python" in first:
            self.python = True
            self.python_paths.add(os.path.dirname(path) or ".")
        if in_shell or path.endswith((".sh", ".bash")) or re.match(r"#!.*\b(?:ba|da|z|k)?sh\b", first):
            self.follow(text, folder, deep - 1)
        self.words(text, folder)

    def make(self, call: pin_make.MakeCall, deep: int) -> None:
        """Take in what make is asked for."""
        names = (call.file,) if call.file else pin_make.NAMES
        paths = [path for name in names if (path := self.files.from_root(name, call.folder))]
        path = next((one for one in paths if self.files.text(one) is not None), "")
        if not path or deep < 0:
            return
        makefile = pin_make.Makefile(path, self.files.text)
        asked = call.targets or makefile.default()
        rules, variables = makefile.reached(asked)
        for name, passages in rules.items():
            bits = _by_file(passages)
            if bits:
                bits |= {PHONY: "1"} if makefile.phony(name) else {}
                by_itself = name in asked and not makefile.phony(name) and not any("$@" in one.text for one in passages)
                made = by_itself and self.files.there(os.path.normpath(os.path.join(call.folder, name)))
                self._add(piece(TARGET, path, name, bits | ({MADE: "1"} if made else {})))
            self.follow(makefile.expanded(passages), call.folder, deep - 1)
        for name, passages in variables.items():
            self._add(piece(VARIABLE, path, name, _by_file(passages)))
            self.words("\n".join(one.text for one in passages), call.folder)

    def variable(self, path: str, name: str) -> None:
        """Take in a variable of a Makefile."""
        passages = pin_make.Makefile(path, self.files.text).passages.get(f"={name}")
        if passages:
            self._add(piece(VARIABLE, path, name, _by_file(passages)))

    def _package(self, call: pin_package.PackageCall, deep: int) -> None:
        path = pin_package.package_file(call.folder, self.files.there)
        folder = os.path.dirname(path) or "."
        self.packages.add(folder)
        self._add(pin_package.declared_piece(path, self._read_package(path)))
        if call.program:
            self._command(shell.ShellCommand(call.program[0], call.program[1:], call.folder), deep)
        for text in self.scripts(path, call.scripts):
            if deep > 0:
                self.follow(text, folder, deep - 1)

    def scripts(self, path: str, names: tuple[str, ...]) -> list[str]:
        """Take in these scripts of a package; their texts."""
        made = pin_package.script_pieces(path, self._read_package(path), names)
        for one, _ in made:
            self._add(one)
        return [text for _, text in made]

    def _read_package(self, path: str) -> dict[str, Any]:
        if path not in self._packages:
            try:
                found = json.loads(self.files.text(path) or "{}")
            except (ValueError, RecursionError):
                found = {}
            self._packages[path] = found if isinstance(found, dict) else {}
        return self._packages[path]

    def _add(self, made: Piece) -> None:
        self.pieces[made.key] = made


def _by_file(passages: list[pin_make.MakePassage]) -> dict[str, str]:
    """What each file says of a name."""
    texts: dict[str, str] = {}
    for passage in passages:
        texts[passage.file] = f"{texts.get(passage.file, '')}\0{passage.text}"
    return {file: digest(text.encode("utf-8", "surrogatepass")) for file, text in texts.items()}
