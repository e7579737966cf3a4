"""How this program starts Python for itself: the one place that knows the interpreter, its flags and its search path.

An agent can write what it likes into the project, and the environment may point Python there. So an interpreter of
ours takes no module from the working folder and reads no `PYTHON*` variable (`-I`): a `json.py` in the project must
never run outside of the sandbox. The variables themselves are passed on as they are: they are for the user's own
commands.

Nothing is imported here that is not loaded already, and so not `__future__`: `isolate` comes before all other imports.
"""

import os
import sys

PACKAGE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(PACKAGE)
START = os.path.join(PACKAGE, "isolated.py")
MARKS = (".git", ".ralph")  # what a folder has that agents work in


def executable() -> str:
    """This Python's own program."""
    return sys.executable


def script(path: str, *words: str) -> tuple[str, ...]:
    """Run a file of ours that needs the standard library alone, and of this package what it looks up itself."""
    return (executable(), "-I", "-S", path, *words)


def module(name: str, *words: str) -> tuple[str, ...]:
    """Run `main()` of a module of this package, with all that is installed for this interpreter."""
    utf8 = ("-X", "utf8") if sys.flags.utf8_mode else ()  # else file names would be other words there than here
    return (executable(), "-I", *utf8, START, *_installed(), "--", name, *words)


def ralph(*words: str) -> tuple[str, ...]:
    """Run this very program."""
    return module("ralphproof.__main__", *words)


def isolate() -> None:
    """Take out of this interpreter's search path what a project may hold; called before anything else is imported.

    `python -m` searches the working folder first, and `PYTHONPATH` comes before the standard library.
    """
    sys.path[:] = search_path()


def search_path() -> list[str]:
    """Where modules may be found: the standard library, what is installed, then what `PYTHONPATH` adds to it.

    Of that nothing counts that lies in the working folder, in a repository or in a project of ours. This package itself
    does, wherever it is.
    """
    first = next((place for place, path in enumerate(sys.path) if _standard(path)), 0)
    begin = 0 if sys.flags.safe_path else 1  # the first is the working folder, or the one that the script lies in
    added = [path for path in sys.path[begin:first] if path != ROOT and not _of_a_project(path)]
    return list(dict.fromkeys((*sys.path[first:], *added, ROOT)))


def _installed() -> list[str]:
    """The folders that an interpreter of ours may have to be told of: user site, `PYTHONPATH`, this package's own."""
    return [path for path in search_path() if os.path.isabs(path) and not _standard(path)]


def _standard(path: str) -> bool:
    library = os.path.dirname(os.__file__)
    archive = f"python{sys.version_info[0]}{sys.version_info[1]}.zip"
    return path in (library, os.path.join(library, "lib-dynload"), os.path.join(os.path.dirname(library), archive))


def _of_a_project(path: str) -> bool:
    if not os.path.isabs(path):
        return True
    here, path = os.path.realpath(os.curdir), os.path.realpath(path)
    if path == here or path.startswith(os.path.join(here, "")):
        return True
    while True:
        if any(os.path.lexists(os.path.join(path, mark)) for mark in MARKS):
            return True
        path, below = os.path.dirname(path), path
        if path == below:
            return False
