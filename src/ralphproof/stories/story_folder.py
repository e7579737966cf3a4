"""The stories folder: its files, scaffold templates, safe access, and the names of its archives."""

from __future__ import annotations

import os
import re
import stat

from ralphproof.base.errors import Refused
from ralphproof.base.files import explain_os_error, remove_file, sync_file, write_atomically
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.stories import schema
from ralphproof.stories.files import MARKER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any


# The files of a stories folder.


PROMPT, PRD, TASKS, PROGRESS = "prompt.md", "prd.md", "tasks.json", "progress.txt"
FILES = (PROMPT, PRD, TASKS, PROGRESS)
DEFAULT_FOLDER = "ralph"  # the folder, where nobody names another
ARCHIVES = "ralph-archive"
RESERVED_FOLDERS = (".git", ".ralph", ARCHIVES)  # what lies there is not for stories
BRANCH_PREFIX = "ralph/"
DATE, NAME = "{{DATE}}", "{{PROJECT_NAME}}"
REMEDY = "name another folder with --ralph-dir"
ARCHIVES_REMEDY = f"{ARCHIVES} must be a folder of its own; move what is there away"
MAX_BRANCH_CHARS = 200  # in bytes: a part of it is the name of a file, with an ending
TEMPLATES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "templates", "stories")
_OPEN_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not allowed in a branch name (git check-ref-format), but for the rules about the ends of its parts.
_NO_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]+|\.{2,}|@\{")
# Our temporary files, with the process id of their writer.
_TEMPORARY_FILE = re.compile(
    r"\.\.?(?:prompt\.md|prd\.md|tasks\.json|progress\.txt)(?:\.\d+\.part)?\.(\d+)\.(?:tmp|part)"
)


# Location and safe access


def stories_folder(root: str, given: str | None) -> str:
    """The stories folder, relative to the project's root; raises Refused for one outside, also through a link."""
    wanted = given or DEFAULT_FOLDER
    top = os.path.realpath(root)
    path = os.path.relpath(os.path.realpath(os.path.join(top, wanted)), top)
    first = path.split(os.sep)[0]
    if first in (".", ".."):
        raise Refused(f"{wanted} must be a folder inside the project; {REMEDY}")
    if first in RESERVED_FOLDERS:
        raise Refused(f"{wanted} is no place for stories; {REMEDY}")
    return path


def folder_flags(folder: str) -> str:
    """The flag that a suggested command needs for this folder; empty for the default one."""
    import shlex

    return "" if folder == DEFAULT_FOLDER else f" --ralph-dir {shlex.quote(folder)}"


def missing_folder_error(folder: str) -> Refused:
    """The error for a missing stories folder."""
    init = f"ralph init --preset stories{folder_flags(folder)}"
    return Refused(f"there is no folder {folder} with stories; make one: {init}")


def open_folder(root: str, path: str, make: bool = False) -> int:
    """A descriptor of a folder of the project, with `make` created where it is missing. Links are not followed."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in path.split(os.sep):
        try:
            inner = _open_inside(folder, name, make)
        except FileNotFoundError as error:
            raise missing_folder_error(path) from error
        except OSError as error:
            remedy = ARCHIVES_REMEDY if path.split(os.sep)[0] == ARCHIVES else REMEDY
            raise explain_os_error(error, os.path.join(root, path), remedy) from error
        finally:
            os.close(folder)
        folder = inner
    return folder


def _open_inside(folder: int, name: str, make: bool) -> int:
    try:
        return os.open(name, _OPEN_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
        os.mkdir(name, dir_fd=folder)  # of the mode that the user wants: it is to be committed
        sync_file(folder)
        return os.open(name, _OPEN_FLAGS, dir_fd=folder)


def stat_name(folder: int, name: str) -> os.stat_result | None:
    """The status of a name in a folder; None where it is free."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def remove_temporary_files(folder: int) -> None:
    """Remove temporary files of dead processes."""
    from ralphproof.base.processes import ProcessIdentity

    for name in os.listdir(folder):
        if (left := _TEMPORARY_FILE.fullmatch(name)) and not ProcessIdentity(int(left[1])).alive:
            remove_file(folder, name)


# Content


def scaffold_files(project: str, verify: Iterable[str], date: str, branch: str = "") -> dict[str, bytes]:
    """The content of new files, by name. Without a branch the template's is used."""
    words = {DATE: date, NAME: project}
    document = _template_document(words)
    document |= {"project": project, "branchName": branch or document["branchName"], "verifyCommands": [*verify]}
    return {
        name: schema.serialize_stories(document)
        if name == TASKS
        else _fill_template(read_template(name), words).encode()
        for name in FILES
    }


def is_unedited_template(name: str, data: bytes) -> bool:
    """Whether a file is still its template, whatever project and date it was created for.

    A PRD counts as one that says no more than its template: sections may be missing, and comments say nothing.
    """
    if name == TASKS:
        found, scaffold = schema.parse_stories(data), _template_document()
        if isinstance(found, schema.UnreadableStories) or not found.keys() <= scaffold.keys():
            return False
        return all(found.get(key) == scaffold[key] for key in ("description", "userStories"))
    try:
        text = data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        return False
    if name == PRD:
        known = [_template_pattern(line) + r"\s*" for line in _lines_without_comments(read_template(name))]
        lines = [f"{line} " for line in _lines_without_comments(text)]  # a field at the end of a line may be empty
        return bool(lines) and all(any(re.fullmatch(one, line) for one in known) for line in lines)
    pattern = _template_pattern(read_template(name).rstrip())
    pattern = pattern.replace("\\\n", "[^\\S\n]*\n")  # tools of the user's may add blanks, or take them away
    return re.fullmatch(pattern + r"\s*", text) is not None


def _template_pattern(text: str) -> str:
    """A regular expression for a text of a template, with anything in its fields."""
    return "".join(".*" if part in (DATE, NAME) else re.escape(part) for part in _template_parts(text))


def _lines_without_comments(text: str) -> list[str]:
    without = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return [line for raw in without.splitlines() if (line := " ".join(raw.split()))]


def template_branch() -> str:
    """The placeholder branch in the template."""
    return str(_template_document()["branchName"])


def project_name(root: str, given: str | None) -> str:
    """The project's name: the given one, else that of its folder."""
    from ralphproof.base.escaping import collapse_lines, sanitize

    if given is None:
        return collapse_lines(sanitize(os.path.basename(root))).strip() or "project"
    if not given.strip() or not given.isprintable():
        raise Refused("--name must be one line of text that can be shown")
    return given.strip()


def branch_name(name: str) -> str:
    """A branch name that git allows, from any text."""
    short = name.encode()[:MAX_BRANCH_CHARS].decode(errors="ignore")
    made = "/".join(filter(None, map(_branch_part, _NO_BRANCH.sub("-", short).split("/"))))
    if not made:
        raise Refused(f"--name {name!r} has nothing in it that a branch can be called")
    return BRANCH_PREFIX + made


def _branch_part(text: str) -> str:
    text = text.strip(".-")
    while text.lower().endswith(".lock"):
        text = text[: -len(".lock")].strip(".-")
    return text


def read_template(name: str) -> str:
    """A template file with its fields unfilled."""
    with open(os.path.join(TEMPLATES, name), encoding="utf-8") as file:
        return file.read()


def _template_document(words: dict[str, str] | None = None) -> dict[str, Any]:
    import json

    quoted = {word: json.dumps(text)[1:-1] for word, text in (words or {}).items()}
    found = schema.parse_stories(_fill_template(read_template(TASKS), quoted).encode())
    if isinstance(found, schema.UnreadableStories):
        raise AssertionError(f"the template {TASKS}: {found.why}")
    return found


def _template_parts(text: str) -> list[str]:
    return re.split(f"({re.escape(DATE)}|{re.escape(NAME)})", text)


def _fill_template(text: str, words: dict[str, str]) -> str:
    """Fill in fields; text that was filled in is not searched for fields."""
    return "".join(words.get(part, part) for part in _template_parts(text))


ARCHIVE_SUMMARY, ARCHIVE_MARK = "summary.md", ".unfinished"


def unfinished_archives(root: str) -> list[str]:
    """The names of archives that a crash interrupted."""
    top = os.path.join(root, ARCHIVES)
    names = sorted(os.listdir(top)) if os.path.isdir(top) and not os.path.islink(top) else []
    return [
        name
        for name in names
        if not name.startswith(".")
        and not os.path.islink(os.path.join(top, name))
        and os.path.lexists(os.path.join(top, name, ARCHIVE_MARK))
    ]


# The marker in .gitignore.


GITIGNORE = ".gitignore"


def gitignore_with_marker(root: str, environ: Mapping[str, str]) -> bytes | None:
    """The new content of .gitignore that ignores the marker; None where it is ignored already.

    Raises Refused where the file cannot be changed.
    """
    path = os.path.join(root, GITIGNORE)
    said = _ignored_by_git(root, environ)
    if said:
        return None
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return f"{MARKER}\n".encode()
    if not stat.S_ISREG(mode):
        raise Refused(f"{path} is no file (git follows no link there); make it one, or add {MARKER} to it yourself")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}; add {MARKER} to it yourself") from error
    if said is None and _names_marker(data):
        return None
    end = b"\r\n" if data[: data.find(b"\n") + 1].endswith(b"\r\n") else b"\n"
    return data + (b"" if not data or data.endswith(b"\n") else end) + MARKER.encode() + end


def write_gitignore(root: str, data: bytes) -> None:
    """Replace .gitignore, and keep its mode."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path = os.path.join(root, GITIGNORE)
        mode = stat.S_IMODE(os.lstat(path).st_mode) if os.path.lexists(path) else None
        write_atomically(folder, GITIGNORE, data, private=False)
        if mode is not None:
            os.chmod(path, mode)
    except OSError as error:
        raise Refused(f"cannot write {os.path.join(root, GITIGNORE)}: {error.strerror}") from error
    finally:
        os.close(folder)


def is_marker_ignored(root: str, environ: Mapping[str, str]) -> bool:
    """Whether the marker is ignored."""
    said = _ignored_by_git(root, environ)
    if said is not None:
        return said
    try:
        with open(os.path.join(root, GITIGNORE), "rb") as file:
            return _names_marker(file.read())
    except OSError:
        return False


def _ignored_by_git(root: str, environ: Mapping[str, str]) -> bool | None:
    """Whether git ignores the marker; None without git or a repository.

    A project may be a folder of a repository, whose rules apply to it too.
    """
    from ralphproof.base.programs import find_program, run_program
    from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS, user_git_environment

    git = find_program("git", environ.get("PATH", os.defpath), outside=root)
    if git is None:
        return None
    check = ("--no-literal-pathspecs", "check-ignore", "-q", "--no-index", "--", MARKER)
    argv = [git, "-C", root, *NO_HOOKS_OPTIONS, *check]
    return {0: True, 1: False}.get(run_program(argv, user_git_environment(environ), timeout_s=30.0).code)


def _names_marker(rules: bytes) -> bool:
    """Whether a line of these rules is the marker itself."""
    return any(line.strip().removeprefix(b"/") == MARKER.encode() for line in rules.splitlines())
