"""Finds and reads skills: those of the project, and those that come with the program. Executes nothing."""

from __future__ import annotations

import os
import re

from ralphproof.claim import same_word, without_tags
from ralphproof.config.frontmatter import read_matter
from ralphproof.config.jsontext import Unusable, contents, decode
from ralphproof.errors import Refused
from ralphproof.skill import AUTO, LINTERS, Skill, criteria_in, heard_in
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDERS = (".ralph/skills", ".claude/skills")  # of a project; the first wins
FILE = "SKILL.md"
KEYS = ("name", "description", "promise", "verification", "criteria")
MOST_BYTES = 256 << 10
MOST_NAMES = 2000  # of a folder are looked at
MOST_LETTERS = 200  # of a promise
PACKAGED = "comes with ralph"
_NAME = r"[a-z0-9][a-z0-9-]{0,63}"
_OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "skills")
_LINTER = r"(?i)(?<![a-z])(?:[a-z]*lint|lints|ruff|typecheck|mypy|pyright|flake8|clippy|biome|tsc|vet)(?![a-z])"


@value
class Found:
    """The skills that can be used, a line for each file that cannot, and the skills that another one stands before."""

    skills: tuple[Skill, ...]
    problems: tuple[str, ...] = ()
    shadowed: tuple[Skill, ...] = ()


@value
class Shelf:
    """A folder of skills, how people call it, and the folder that nothing on it may lead out of."""

    path: str
    shown: str
    inside: str

    def file(self, name: str) -> str:
        return os.path.join(self.path, name, FILE)

    def source(self, name: str) -> str:
        return f"{self.shown}/{name}/{FILE}" if self.shown else PACKAGED


@value
class Verification:
    """The commands that decide, and a line for each word that stands for a check and found none."""

    commands: tuple[str, ...]
    missing: tuple[str, ...] = ()


def find_skills(root: str) -> Found:
    """Every skill, in the order in which they are looked for. A file that cannot be used still takes its name."""
    skills: list[Skill] = []
    problems: list[str] = []
    shadowed: list[Skill] = []
    taken: set[str] = set()
    files: set[str] = set()
    for shelf in _shelves(root, problems):
        for name in _names(shelf, problems):
            found, file = _look(shelf, name), os.path.realpath(shelf.file(name))
            if found is None or file in files:  # one folder may be a link to the other
                continue
            files.add(file)
            if isinstance(found, Unusable):
                problems.append(f"{shelf.source(name)}: {found.why}")
            elif name in taken:
                shadowed.append(found)
            else:
                skills.append(found)
            taken.add(name)
    return Found(tuple(skills), tuple(problems), tuple(shadowed))


def skill_named(root: str, name: str) -> Skill:
    """The skill of this name; raises Refused where there is none, or where its file cannot be used."""
    if re.fullmatch(_NAME, name):
        for shelf in _shelves(root, []):
            match _look(shelf, name):
                case Skill() as skill:
                    return skill
                case Unusable(why):
                    raise Refused(f"skill {name} cannot be used: {shelf.source(name)}: {why}")
                case None:
                    pass
    from ralphproof.config.schema import nearest

    known = sorted(skill.name for skill in find_skills(root).skills)
    raise Refused(f"no skill is called {name!r}; there are: {', '.join(known)}{nearest(name, known)}")


def verification_of(
    skill: Skill, root: str, own: tuple[str, ...] = (), environ: Mapping[str, str] = os.environ
) -> Verification:
    """What a skill is verified by. `own` are the checks that the settings name: they are what `auto` stands for.

    Where they name none, the project's files propose them.
    """
    commands: list[str] = []
    missing: list[str] = []
    for word in skill.verification:
        stands_for = _meant(word, root, own, environ)
        commands += stands_for
        if not stands_for:
            what = "check" if word == AUTO else "linter"
            missing.append(f"skill {skill.name}: {word} found no {what} in this project; name one: --check CMD")
    return Verification(tuple(dict.fromkeys(commands)), tuple(missing))


def _meant(word: str, root: str, own: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    if word not in (AUTO, LINTERS):
        return (word,)
    from ralphproof.config.discover import propose_checks

    def suits(command: str) -> bool:
        return word == AUTO or re.search(_LINTER, command) is not None

    named = tuple(filter(suits, own))
    return named or tuple(filter(suits, (proposal.command for proposal in propose_checks(root, environ))))


def _shelves(root: str, problems: list[str]) -> Iterator[Shelf]:
    """The folders to look in, those of the project first."""
    inside = os.path.realpath(root)
    for shown in FOLDERS:
        path = os.path.join(root, *shown.split("/"))
        if _below(os.path.realpath(path), inside):
            yield Shelf(path, shown, inside)
        else:
            problems.append(f"{shown}: is a link that leads out of the project, and was not followed")
    yield Shelf(_OWN, "", os.path.realpath(_OWN))


def _names(shelf: Shelf, problems: list[str]) -> list[str]:
    from itertools import islice

    try:
        with os.scandir(shelf.path) as entries:
            names = [entry.name for entry in islice(entries, MOST_NAMES + 1)]
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{shelf.shown}: cannot be read: {error.strerror}")
        return []
    if len(names) > MOST_NAMES:
        problems.append(f"{shelf.shown}: has more than {MOST_NAMES} entries; the rest was passed over")
    return sorted(names[:MOST_NAMES])


def _look(shelf: Shelf, name: str) -> Skill | Unusable | None:
    """The skill that a folder holds; None where it holds none."""
    path = shelf.file(name)
    if not os.path.lexists(path):
        return None
    if not re.fullmatch(_NAME, name):
        return Unusable("its folder has no name for a skill: small letters, digits and hyphens, 64 at most")
    if not _below(os.path.realpath(path), shelf.inside):
        return Unusable("is a link that leads out of the project, and was not followed")
    text = _text(path)
    return _read(name, text, shelf.source(name)) if isinstance(text, str) else text


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


def _text(path: str) -> str | Unusable | None:
    data = contents(path)
    if _size(path) > MOST_BYTES or (isinstance(data, bytes) and len(data) > MOST_BYTES):
        return Unusable(f"is larger than {MOST_BYTES >> 10} KiB")
    if not isinstance(data, bytes):
        return data
    return Unusable("holds a NUL byte") if b"\0" in data else decode(data)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path) if os.path.isfile(path) else 0
    except OSError:
        return 0


def _read(name: str, text: str, source: str) -> Skill | Unusable:
    matter = read_matter(text, KEYS)
    if matter.fault:
        return Unusable(f"line {matter.fault}")
    body, shown = matter.body.strip("\n"), heard_in(matter.body).claim
    texts = {key: held for key, held in matter.values.items() if isinstance(held, str)}
    for key in ("name", "description", "promise"):
        if key in matter.values and key not in texts:
            return Unusable(f"{key} is a list; a text is wanted")
    promise = without_tags(texts.get("promise", ""))
    skill = Skill(
        name=texts.get("name") or name,
        description=" ".join(texts.get("description", "").split()),
        promise=promise or (shown.word if shown else ""),
        verification=_listed(matter.values.get("verification", ())),
        criteria=_listed(matter.values.get("criteria", ())) or criteria_in(body),
        body=body,
        source=source,
    )
    why = _disagreement(skill, name, shown.word if shown else "")
    return Unusable(why) if why else skill


def _listed(held: str | tuple[str, ...]) -> tuple[str, ...]:
    """A list, one item for each line of a text."""
    items = held.split("\n") if isinstance(held, str) else held
    return tuple(item.strip() for item in items if item.strip())


def _disagreement(skill: Skill, folder: str, shown: str) -> str:
    """What a skill says that cannot hold; empty where all is well."""
    if skill.name != folder:
        return f"its name is {skill.name!r} and its folder's is {folder!r}; they must be the same"
    if len(skill.promise) > MOST_LETTERS or re.search(r"[<>\n]", skill.promise):
        return f"its promise must be a word or a few, without tags, in one line, {MOST_LETTERS} letters at most"
    if shown and not same_word(shown, skill.promise):
        return f"its front matter promises {skill.promise!r} and its text {shown!r}; they must be the same"
    if any("\n" in command for command in skill.verification):
        return "a command under verification has several lines; write one item for each command"
    return ""
