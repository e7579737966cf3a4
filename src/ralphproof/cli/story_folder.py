"""The files of a stories folder: where they lie, what they say when they are fresh, and whether they still say it."""

from __future__ import annotations

import os
import re

from ralphproof import story
from ralphproof.errors import Refused
from ralphproof.ledgers.files import explain, remove, sync, write_whole
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

PROMPT, PRD, TASKS, PROGRESS = "prompt.md", "prd.md", "tasks.json", "progress.txt"
FILES = (PROMPT, PRD, TASKS, PROGRESS)
USUAL = "ralph"  # the folder, where nobody names another
ARCHIVES = "ralph-archive"
TAKEN = (".git", ".ralph", ARCHIVES)  # what lies there is not for stories
BRANCHES = "ralph/"
DATE, NAME = "{{DATE}}", "{{PROJECT_NAME}}"
REMEDY = "name another folder with --ralph-dir"
MOVE = f"{ARCHIVES} must be a folder of its own; move what is there away"
LONGEST_BRANCH = 200  # in bytes: a part of it is the name of a file, with an ending
TEMPLATES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "templates", "stories")
_IN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# What no branch of git may have in its name (git check-ref-format), as far as it is not about the ends of its parts.
_NO_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]+|\.{2,}|@\{")
# A file of ours that was being written, by the number of the process.
_LEFT = re.compile(
    r"\.\.?(?:summary\.md|unfinished|prompt\.md|prd\.md|tasks\.json|progress\.txt)(?:\.\d+\.part)?\.(\d+)\.(?:tmp|part)"
)


# Where they lie


def folder_in(root: str, given: str | None) -> str:
    """The folder of the stories, from the project's root; it lies inside, also where a link leads to it."""
    wanted = given or USUAL
    top = os.path.realpath(root)
    path = os.path.relpath(os.path.realpath(os.path.join(top, wanted)), top)
    first = path.split(os.sep)[0]
    if first in (".", ".."):
        raise Refused(f"{wanted} must be a folder inside the project; {REMEDY}")
    if first in TAKEN:
        raise Refused(f"{wanted} is no place for stories; {REMEDY}")
    return path


def flags_for(folder: str) -> str:
    """What a suggested command needs so that it is about this folder; empty for the usual one."""
    import shlex

    return "" if folder == USUAL else f" --ralph-dir {shlex.quote(folder)}"


def no_folder(folder: str) -> Refused:
    """Why nothing can be done with stories that are not there."""
    init = f"ralph init --preset stories{flags_for(folder)}"
    return Refused(f"there is no folder {folder} with stories; make one: {init}")


def opened(root: str, path: str, make: bool = False) -> int:
    """A descriptor of a folder of the project, made where it is missing and may be. No link is followed."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in path.split(os.sep):
        try:
            inner = _inside(folder, name, make)
        except FileNotFoundError as error:
            raise no_folder(path) from error
        except OSError as error:
            remedy = MOVE if path.split(os.sep)[0] == ARCHIVES else REMEDY
            raise explain(error, os.path.join(root, path), remedy) from error
        finally:
            os.close(folder)
        folder = inner
    return folder


def _inside(folder: int, name: str, make: bool) -> int:
    try:
        return os.open(name, _IN, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
        os.mkdir(name, dir_fd=folder)  # of the mode that the user wants: it is to be committed
        sync(folder)
        return os.open(name, _IN, dir_fd=folder)


def there(folder: int, name: str) -> os.stat_result | None:
    """What is known of a name in a folder; None where it is free."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def place(folder: int, name: str, data: bytes) -> bool:
    """Put a file where none is, whole; False where there is something, which stays as it is."""
    if there(folder, name):
        return False
    part = f".{name}.{os.getpid()}.part"
    write_whole(folder, part, data, private=False)
    try:
        os.link(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:  # made in this moment, by an editor that saved
        return False
    except OSError:  # some file systems know no second name of a file
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        remove(folder, part)
    sync(folder)
    return True


def tidy(folder: int, ours: bool = False) -> None:
    """Remove what dead processes left half-written; in a folder that is `ours` alone, what any did."""
    from ralphproof.ledgers.process import LoopProcess

    for name in os.listdir(folder):
        if (left := _LEFT.fullmatch(name)) and (ours or not LoopProcess(int(left[1])).alive):
            remove(folder, name)


# What they say


def fresh(project: str, verify: Iterable[str], date: str, branch: str = "") -> dict[str, bytes]:
    """Every file as it is at the beginning, by its name. Without a branch it is the template's."""
    words = {DATE: date, NAME: project}
    document = _document(words)
    document |= {"project": project, "branchName": branch or document["branchName"], "verifyCommands": [*verify]}
    return {
        name: story.text_of(document) if name == TASKS else _filled(template(name), words).encode() for name in FILES
    }


def untouched(name: str, data: bytes) -> bool:
    """Whether a file says no more than its template does, whichever project and day it was made for."""
    if name == TASKS:
        found, scaffold = story.read(data), _document()
        if isinstance(found, story.Unreadable) or not found.keys() <= scaffold.keys():
            return False
        return all(found.get(key) == scaffold[key] for key in ("description", "userStories"))
    try:
        text = data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        return False
    parts = (".*" if part in (DATE, NAME) else re.escape(part) for part in _parts(template(name).rstrip()))
    pattern = "".join(parts).replace("\\\n", "[^\\S\n]*\n")  # tools of the user's may add blanks, or take them away
    return re.fullmatch(pattern + r"\s*", text) is not None


def usual_branch() -> str:
    """The branch of which a template says that it is to be named."""
    return str(_document()["branchName"])


def project_name(root: str, given: str | None) -> str:
    """What the project is called: as the user says, else as its folder."""
    from ralphproof.display.clean import clean, flat

    if given is None:
        return flat(clean(os.path.basename(root))).strip() or "project"
    if not given.strip() or not given.isprintable():
        raise Refused("--name must be one line of text that can be shown")
    return given.strip()


def branch_of(name: str) -> str:
    """A branch that git allows, called like this as far as it may be."""
    short = name.encode()[:LONGEST_BRANCH].decode(errors="ignore")
    made = "/".join(filter(None, map(_part, _NO_BRANCH.sub("-", short).split("/"))))
    if not made:
        raise Refused(f"--name {name!r} has nothing in it that a branch can be called")
    return BRANCHES + made


def _part(text: str) -> str:
    text = text.strip(".-")
    while text.lower().endswith(".lock"):
        text = text[: -len(".lock")].strip(".-")
    return text


def template(name: str) -> str:
    """A file of the scaffold as it is before its fields are filled in."""
    with open(os.path.join(TEMPLATES, name), encoding="utf-8") as file:
        return file.read()


def _document(words: dict[str, str] | None = None) -> dict[str, Any]:
    import json

    quoted = {word: json.dumps(text)[1:-1] for word, text in (words or {}).items()}
    found = story.read(_filled(template(TASKS), quoted).encode())
    if isinstance(found, story.Unreadable):
        raise AssertionError(f"the template {TASKS}: {found.why}")
    return found


def _parts(text: str) -> list[str]:
    return re.split(f"({re.escape(DATE)}|{re.escape(NAME)})", text)


def _filled(text: str, words: dict[str, str]) -> str:
    """Each word once, as it stands: what is put in is not looked through again."""
    return "".join(words.get(part, part) for part in _parts(text))
