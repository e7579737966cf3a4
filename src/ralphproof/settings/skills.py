"""Skills of the project and of the program: finding and parsing SKILL.md."""

from __future__ import annotations

import os
import re

from ralphproof.base.errors import Refused
from ralphproof.base.json_text import UnusableFile, decode_utf8, read_bounded_file
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.base.yaml_text import parse_front_matter
from ralphproof.engine.claim import ParsedClaim, is_same_word, parse_claim, strip_claim_tags

if TYPE_CHECKING:
    from collections.abc import Iterator


# Contents of a skill, and what a loop needs of them.


AUTO_CHECKS = "auto"  # stands for the project's own checks
AUTO_LINTERS = "auto:lint"  # stands for its linters, and needs at least one
PROMISE_HEADING, CRITERIA_HEADING, CORRECTION_HEADING = (
    "ralph integration",
    "completion criteria",
    "self correction",
)  # headings, in words

_HEADING = r" {0,3}(#{1,6})\s+(\S.*)"
_FENCE = r"\s*(```+(?=[^`]*$)|~~~+)(.*)"
_ITEM = r"\s*(?:[-*+]|\d{1,9}[.)])\s+(?:\[[ xX]\]\s+)?(\S.*)"


@value
class Skill:
    """Instructions for the agent from a SKILL.md file.

    `promise` is the word that claims completion, without its tags; empty if there is none. `verification` holds shell
    commands, or `auto` and `auto:lint` for the project's own checks. `source` is the displayed location of the file.
    """

    name: str
    description: str = ""
    promise: str = ""
    verification: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    body: str = ""
    source: str = ""


def missing_skill_parts(skill: Skill) -> tuple[str, ...]:
    """What a skill lacks for use in a loop, each with the way to add it; empty if it is complete."""
    needs = (
        (skill.promise, f"no completion promise: {_promise_wanted(skill.body)}"),
        (skill.criteria, "no success criteria: list them under criteria, or under a heading Completion Criteria"),
        (
            markdown_section(skill.body, CORRECTION_HEADING),
            "no way on after a failure: tell it under a heading Self-Correction",
        ),
        (skill.verification, f"no verification: name a command under verification, or {AUTO_CHECKS}"),
    )
    return tuple(advice for present, advice in needs if not present)


def _promise_wanted(body: str) -> str:
    advice = "name its word under promise, or show its tag on a line of its own under a heading Ralph Integration"
    uncounted = claim_in_skill(body).uncounted
    return f"{advice} ({uncounted[0]})" if uncounted else advice


def claim_in_skill(body: str) -> ParsedClaim:
    """The completion promise in the skill's section "Ralph Integration"."""
    return parse_claim(markdown_section(body, PROMISE_HEADING))


def criteria_in_skill(body: str) -> tuple[str, ...]:
    """The list items of the skill's section "Completion Criteria"."""
    criteria: list[str] = []
    for line, fenced in _lines_with_fences(markdown_section(body, CRITERIA_HEADING)):
        if item := None if fenced else re.match(_ITEM, line):
            criteria.append(item[1].rstrip())
        elif criteria and not fenced and line[:1] in (" ", "\t") and line.strip():
            criteria[-1] += f" {line.strip()}"
    return tuple(criteria)


def markdown_section(body: str, title: str) -> str:
    """The text below the first heading that contains these words, up to the next heading of the same or a higher level;
    empty if there is no such heading.
    """
    lines: list[str] = []
    level = 0
    for line, fenced in _lines_with_fences(body):
        heading = None if fenced else re.match(_HEADING, line)
        if heading and level and len(heading[1]) <= level:
            break
        if level:
            lines.append(line)
        elif heading and f" {title} " in f" {' '.join(re.findall(r'[a-z0-9]+', heading[2].lower()))} ":
            level = len(heading[1])
    return "\n".join(lines).strip("\n")


def _lines_with_fences(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is part of a fenced code block."""
    opened = ""
    for line in text.split("\n"):
        mark = re.match(_FENCE, line)
        yield line, bool(opened or mark)
        if mark and not opened:
            opened = mark[1]
        elif mark and mark[1].startswith(opened) and not mark[2].strip():
            opened = ""


def skill_template(skill: Skill, word: str = "") -> str:
    """Prompt template with this skill: its text, then the task.

    Adds the criteria if the text does not list them. `word` replaces the skill's promise if the run uses another one.
    """
    listed = markdown_section(skill.body, CRITERIA_HEADING) or not skill.criteria
    criteria = "\n".join(f"- [ ] {sentence}" for sentence in skill.criteria)
    parts = [skill_advice(skill, word), *([] if listed else [f"## Completion Criteria\n\n{criteria}"])]
    # A template has one {prompt}; a skill's text that mentions it must not add a second one.
    text = "\n\n".join(part for part in parts if part).replace("{prompt}", "{ prompt }")
    return f"{text}\n\n## Task\n\n{{prompt}}".lstrip("\n")


def skill_advice(skill: Skill, word: str = "") -> str:
    """The skill's text, with `word` in place of its own promise if the run uses another one."""
    body = skill.body.strip("\n")
    if not word or not skill.promise or is_same_word(word, skill.promise):
        return body
    shown = rf"(?i)<(promise|response)>\s*{re.escape(skill.promise)}\s*</\1>"
    return re.sub(shown, lambda tag: f"<{tag[1]}>{word}</{tag[1]}>", body)


# Finding and reading skills of the project and those packaged with the program. Executes nothing.


SKILL_FOLDERS = (".ralph/skills", ".claude/skills")  # of a project; the first wins
SKILL_FILE = "SKILL.md"
SKILL_KEYS = ("name", "description", "promise", "verification", "criteria")
MAX_SKILL_BYTES = 256 << 10
MAX_FOLDER_ENTRIES = 2000  # of a folder are looked at
MAX_PROMISE_CHARS = 200  # of a promise
PACKAGED = "comes with ralph"
_SKILL_NAME = r"[a-z0-9][a-z0-9-]{0,63}"
_PACKAGED_SKILLS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "skills")


@value
class SkillCatalog:
    """Usable skills, a line for each unusable file, and skills hidden by another one of the same name."""

    skills: tuple[Skill, ...]
    problems: tuple[str, ...] = ()
    shadowed: tuple[Skill, ...] = ()


@value
class SkillFolder:
    """A folder of skills: its path, its displayed name, and the folder that links in it may not lead out of."""

    path: str
    shown: str
    inside: str

    def file(self, name: str) -> str:
        return os.path.join(self.path, name, SKILL_FILE)

    def source(self, name: str) -> str:
        return f"{self.shown}/{name}/{SKILL_FILE}" if self.shown else PACKAGED


def find_skills(root: str) -> SkillCatalog:
    """Every skill, in search order. An unusable file still hides later skills of its name."""
    skills: list[Skill] = []
    problems: list[str] = []
    shadowed: list[Skill] = []
    taken: set[str] = set()
    files: set[str] = set()
    for folder in _skill_folders(root, problems):
        for name in _list_entries(folder, problems):
            skill, file = _read_skill(folder, name), os.path.realpath(folder.file(name))
            if skill is None or file in files:  # one folder may be a link to the other
                continue
            files.add(file)
            if isinstance(skill, UnusableFile):
                problems.append(f"{folder.source(name)}: {skill.why}")
            elif name in taken:
                shadowed.append(skill)
            else:
                skills.append(skill)
            taken.add(name)
    return SkillCatalog(tuple(skills), tuple(problems), tuple(shadowed))


def load_skill(root: str, name: str) -> Skill:
    """The skill of this name; raises Refused if there is none or its file is unusable."""
    if re.fullmatch(_SKILL_NAME, name):
        for folder in _skill_folders(root, []):
            match _read_skill(folder, name):
                case Skill() as skill:
                    return skill
                case UnusableFile(why):
                    raise Refused(f"skill {name} cannot be used: {folder.source(name)}: {why}")
                case None:
                    pass
    from ralphproof.settings.field_rules import suggest_name

    known = sorted(skill.name for skill in find_skills(root).skills)
    raise Refused(f"no skill is called {name!r}; there are: {', '.join(known)}{suggest_name(name, known)}")


def _skill_folders(root: str, problems: list[str]) -> Iterator[SkillFolder]:
    """The folders to search, the project's first."""
    inside = os.path.realpath(root)
    for shown in SKILL_FOLDERS:
        path = os.path.join(root, *shown.split("/"))
        if _is_inside(os.path.realpath(path), inside):
            yield SkillFolder(path, shown, inside)
        else:
            problems.append(f"{shown}: is a link that leads out of the project, and was not followed")
    yield SkillFolder(_PACKAGED_SKILLS, "", os.path.realpath(_PACKAGED_SKILLS))


def _list_entries(folder: SkillFolder, problems: list[str]) -> list[str]:
    from itertools import islice

    try:
        with os.scandir(folder.path) as entries:
            names = [entry.name for entry in islice(entries, MAX_FOLDER_ENTRIES + 1)]
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{folder.shown}: cannot be read: {error.strerror}")
        return []
    if len(names) > MAX_FOLDER_ENTRIES:
        problems.append(f"{folder.shown}: has more than {MAX_FOLDER_ENTRIES} entries; the rest was passed over")
    return sorted(names[:MAX_FOLDER_ENTRIES])


def _read_skill(folder: SkillFolder, name: str) -> Skill | UnusableFile | None:
    """The skill in `folder/name`; None if there is no SKILL.md."""
    path = folder.file(name)
    if not os.path.lexists(path):
        return None
    if not re.fullmatch(_SKILL_NAME, name):
        return UnusableFile("its folder has no name for a skill: small letters, digits and hyphens, 64 at most")
    if not _is_inside(os.path.realpath(path), folder.inside):
        return UnusableFile("is a link that leads out of the project, and was not followed")
    text = _read_text(path)
    return _parse_skill(name, text, folder.source(name)) if isinstance(text, str) else text


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


def _read_text(path: str) -> str | UnusableFile | None:
    data = read_bounded_file(path)
    if _file_size(path) > MAX_SKILL_BYTES or (isinstance(data, bytes) and len(data) > MAX_SKILL_BYTES):
        return UnusableFile(f"is larger than {MAX_SKILL_BYTES >> 10} KiB")
    if not isinstance(data, bytes):
        return data
    return UnusableFile("holds a NUL byte") if b"\0" in data else decode_utf8(data)


def _file_size(path: str) -> int:
    try:
        return os.path.getsize(path) if os.path.isfile(path) else 0
    except OSError:
        return 0


def _parse_skill(name: str, text: str, source: str) -> Skill | UnusableFile:
    matter = parse_front_matter(text, SKILL_KEYS)
    if matter.fault:
        return UnusableFile(f"line {matter.fault}")
    body, claim = matter.body.strip("\n"), claim_in_skill(matter.body).claim
    texts = {key: text_value for key, text_value in matter.values.items() if isinstance(text_value, str)}
    for key in ("name", "description", "promise"):
        if key in matter.values and key not in texts:
            return UnusableFile(f"{key} is a list; a text is wanted")
    promise = strip_claim_tags(texts.get("promise", ""))
    skill = Skill(
        name=texts.get("name") or name,
        description=" ".join(texts.get("description", "").split()),
        promise=promise or (claim.word if claim else ""),
        verification=_split_items(matter.values.get("verification", ())),
        criteria=_split_items(matter.values.get("criteria", ())) or criteria_in_skill(body),
        body=body,
        source=source,
    )
    why = _inconsistency(skill, name, claim.word if claim else "")
    return UnusableFile(why) if why else skill


def _split_items(items_or_text: str | tuple[str, ...]) -> tuple[str, ...]:
    """Items of a list, or of a text with one item per line, without blank ones."""
    items = items_or_text.split("\n") if isinstance(items_or_text, str) else items_or_text
    return tuple(item.strip() for item in items if item.strip())


def _inconsistency(skill: Skill, folder: str, shown: str) -> str:
    """Why a parsed skill is unusable; empty if it is usable."""
    if skill.name != folder:
        return f"its name is {skill.name!r} and its folder's is {folder!r}; they must be the same"
    if len(skill.promise) > MAX_PROMISE_CHARS or re.search(r"[<>\n]", skill.promise):
        return f"its promise must be a word or a few, without tags, in one line, {MAX_PROMISE_CHARS} letters at most"
    if shown and not is_same_word(shown, skill.promise):
        return f"its front matter promises {skill.promise!r} and its text {shown!r}; they must be the same"
    if any("\n" in command for command in skill.verification):
        return "a command under verification has several lines; write one item for each command"
    return ""
