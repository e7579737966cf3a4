"""Command lines that start this program's own Python, and its module search path.

An agent can write what it likes into the project, and the environment may point Python there. So an interpreter of
ours takes no module from the working folder and reads no `PYTHON*` variable (`-I`): a `json.py` in the project must
never run outside of the sandbox. The variables themselves are passed on as they are: they are for the user's own
commands.

Nothing is imported here that is not loaded already, and so not `__future__`: `isolate` comes before all other imports.
"""

import os
import sys

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(PACKAGE)
LAUNCHER = os.path.join(PACKAGE, "base", "run_isolated.py")
PROJECT_MARKERS = (".git", ".ralph")  # what a folder has that agents work in
SITE_FOLDERS = ("site-packages", "dist-packages")  # folders that packages are installed in
_projects: list[str] = []  # known by now
_isolated = False


def python_executable() -> str:
    """This Python's own program."""
    return sys.executable


def script_command(path: str, *words: str) -> tuple[str, ...]:
    """Run a file of ours that needs the standard library alone, and of this package what it looks up itself."""
    return (python_executable(), "-I", "-S", path, *words)


def module_command(name: str, *words: str) -> tuple[str, ...]:
    """Run `main()` of a module of this package, with all that is installed for this interpreter."""
    utf8 = ("-X", "utf8") if sys.flags.utf8_mode else ()  # else file names would be other words there than here
    return (python_executable(), "-I", *utf8, LAUNCHER, *_installed_folders(), "--", name, *words)


def ralph_command(*words: str) -> tuple[str, ...]:
    """Run this very program."""
    return module_command("ralphproof.__main__", *words)


def installation_folders() -> tuple[str, ...]:
    """Where this program and its interpreter are installed: who may write there can change what we run."""
    package = ROOT if os.path.basename(ROOT) in SITE_FOLDERS else PACKAGE
    folders = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, package)
    return tuple(dict.fromkeys(os.path.realpath(folder) for folder in folders))


def isolate_search_path() -> None:
    """Take out of this interpreter's search path what a project may hold; called before anything else is imported.

    `python -m` searches the working folder first, and `PYTHONPATH` comes before the standard library.
    """
    global _isolated
    sys.path[:], _isolated = search_path(), True


def exclude_project(project: str) -> None:
    """Search nothing of a project, in the interpreters that we start and, where it is isolated, in this one."""
    if (real := os.path.realpath(project)) not in _projects:
        _projects.append(real)
        if _isolated:
            sys.path[:] = search_path()


def search_path() -> list[str]:
    """Where modules may be found: the standard library, what is installed, then what `PYTHONPATH` adds to it.

    Of what `PYTHONPATH` adds nothing counts that lies in the working folder, in a repository or in a project of ours. A
    project may also be installed beside this package by a link to its source: that is left out of the project that we
    work on. This package itself counts, wherever it is.
    """
    first = next((place for place, path in enumerate(sys.path) if is_standard_path(path)), 0)
    begin = 0 if sys.flags.safe_path else 1  # the first is the working folder, or the one that the script lies in
    added = [path for path in sys.path[begin:first] if path != ROOT and not _is_in_any_project(path)]
    installed = [path for path in sys.path[first:] if _is_site_folder(path) or not _is_in_this_project(path)]
    return list(dict.fromkeys((*installed, *added, ROOT)))


def _installed_folders() -> list[str]:
    """The folders that an interpreter of ours may have to be told of: user site, `PYTHONPATH`, this package's own."""
    return [path for path in search_path() if os.path.isabs(path) and not is_standard_path(path)]


def is_standard_path(path: str) -> bool:
    library = os.path.dirname(os.__file__)
    archive = f"python{sys.version_info[0]}{sys.version_info[1]}.zip"
    return path in (library, os.path.join(library, "lib-dynload"), os.path.join(os.path.dirname(library), archive))


def _is_site_folder(path: str) -> bool:
    return path == ROOT or is_standard_path(path) or os.path.basename(path) in SITE_FOLDERS


def _is_in_this_project(path: str) -> bool:
    if not os.path.isabs(path):
        return True
    path = os.path.join(os.path.realpath(path), "")
    return any(path.startswith(os.path.join(folder, "")) for folder in (os.path.realpath(os.curdir), *_projects))


def _is_in_any_project(path: str) -> bool:
    if _is_in_this_project(path):
        return True
    path = os.path.realpath(path)
    while True:
        if any(os.path.lexists(os.path.join(path, mark)) for mark in PROJECT_MARKERS):
            return True
        path, below = os.path.dirname(path), path
        if path == below:
            return False
