"""Tries to change what is protected in a project. Each attempt has a folder of its own there, `cases/NAME`.

In it `src/auth/`, `kept.txt`, `*.lock` are protected, and `.env` and `vault/`, which are not there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from tests.sandbox.attempts import append, call, inside
from tests.sandbox.escapes import BIND, DETACH, REMOUNT, alone, kernel

EXCHANGE, HERE, RENAME = 2, -100, 276 if os.uname().machine == "aarch64" else 316
PROTECTED = ("cases/*/kept.txt", "cases/*/*.lock")
IN_A_CASE = ("src/auth/", ".env", "vault/")
PROTECTIONS: dict[str, Callable[[], object]] = {}
CASES: list[str] = []  # those that have a folder
MENDED: dict[str, str] = {}  # what an attempt makes elsewhere in the project


def protection(makes: str = "") -> Callable[[Callable[[], object]], Callable[[], object]]:
    """The function tries what is refused wherever paths can be held; `makes` is what it would change or make."""

    def named(function: Callable[[], object]) -> Callable[[], object]:
        name = function.__name__
        PROTECTIONS[name] = function
        if makes:
            MENDED[name] = makes
        else:
            CASES.append(name)
        return function

    return named


def case(path: str = "") -> str:
    return inside(os.path.join("cases", sys._getframe(1).f_code.co_name, path))


def write(path: str) -> None:
    with open(path, "w") as file:
        file.write("changed")


def there_and_back(name: str, sign: str) -> None:
    os.rename(inside(name), inside("elsewhere"))
    os.rename(inside("elsewhere"), inside(name))
    write(inside(sign))


# What is there


@protection()
def edit_a_file() -> None:
    append(case("kept.txt"))


@protection()
def overwrite_a_file() -> None:
    write(case("kept.txt"))


@protection()
def empty_a_file() -> None:
    os.truncate(case("kept.txt"), 0)


@protection()
def delete_a_file() -> None:
    os.unlink(case("kept.txt"))


@protection()
def move_a_file_away() -> None:
    os.rename(case("kept.txt"), case("moved"))


@protection()
def move_another_over_a_file() -> None:
    write(case("other"))
    os.rename(case("other"), case("kept.txt"))


@protection()
def exchange_a_file_for_another() -> None:
    write(case("other"))
    kernel(RENAME, HERE, case("other").encode(), HERE, case("kept.txt").encode(), EXCHANGE)


@protection()
def write_by_another_name_of_a_file() -> None:
    os.link(case("kept.txt"), case("linked"))
    append(case("linked"))


@protection()
def edit_through_a_link() -> None:
    append(case("link"))


@protection()
def edit_by_the_root_of_the_process() -> None:
    append(f"/proc/self/root{case('kept.txt')}")


@protection()
def edit_by_an_open_descriptor() -> None:
    append(f"/proc/self/fd/{os.open(case('kept.txt'), os.O_RDONLY)}")


@protection()
def change_the_mode_of_a_file() -> None:
    os.chmod(case("kept.txt"), 0o777)


@protection()
def change_the_dates_of_a_file() -> None:
    os.utime(case("kept.txt"), (1, 1))


@protection()
def edit_what_a_pattern_means() -> None:
    append(case("a.lock"))


@protection()
def edit_in_a_folder() -> None:
    append(case("src/auth/login.py"))


@protection()
def create_in_a_folder() -> None:
    write(case("src/auth/new.py"))


@protection()
def create_in_a_folder_through_a_link() -> None:
    write(case("folder/new.py"))


@protection()
def delete_a_folder() -> None:
    shutil.rmtree(case("src/auth"))


@protection()
def move_a_folder_away() -> None:
    os.rename(case("src/auth"), case("auth"))


@protection()
def move_another_folder_over_one() -> None:
    os.mkdir(case("other"))
    for name in os.listdir(case("src/auth")):
        os.unlink(case(f"src/auth/{name}"))
    os.rename(case("other"), case("src/auth"))


# What lies above it


@protection()
def move_the_folder_above_away_and_make_another() -> None:
    os.rename(case("src"), case("src2"))
    os.makedirs(case("src/auth"))
    write(case("src/auth/login.py"))


@protection()
def move_the_folder_two_above_away_and_make_another() -> None:
    os.rename(case(), inside("cases/elsewhere"))
    os.makedirs(case("src/auth"))
    write(case("src/auth/login.py"))


@protection()
def move_the_folder_above_away_by_the_shell() -> None:
    script = "mv src src2; mkdir -p src/auth && echo changed > src/auth/login.py"
    subprocess.run(["sh", "-c", script], cwd=case(), check=False, capture_output=True)


@protection()
def delete_the_folder_above() -> None:
    shutil.rmtree(case("src"), ignore_errors=True)


@protection()
def exchange_the_folder_above_for_another() -> None:
    os.makedirs(case("other/auth"))
    write(case("other/auth/login.py"))
    kernel(RENAME, HERE, case("other").encode(), HERE, case("src").encode(), EXCHANGE)


# What holds it


@protection()
def make_what_holds_it_writable() -> None:
    with suppress(OSError):  # where nothing holds it
        call("mount", None, case("kept.txt").encode(), None, REMOUNT | BIND, None)
    append(case("kept.txt"))


@protection()
def make_what_holds_it_writable_in_a_namespace() -> None:
    with suppress(OSError):
        alone()
        call("mount", None, case("kept.txt").encode(), None, REMOUNT | BIND, None)
    append(case("kept.txt"))


@protection()
def take_away_what_holds_it() -> None:
    with suppress(OSError):
        alone()
        call("umount2", case("kept.txt").encode(), DETACH)
    append(case("kept.txt"))


@protection()
def reach_below_what_holds_it() -> None:
    """A folder that is mounted again without what lies in it shows what is below."""
    again, kept = case("again"), case("kept.txt")
    os.makedirs(again, exist_ok=True)
    with suppress(OSError):
        alone()
        call("mount", inside("").encode(), again.encode(), None, BIND, None)
        kept = os.path.join(again, os.path.relpath(kept, inside("")))
    append(kept)


# What is not there


@protection()
def create_a_file() -> None:
    write(case(".env"))


@protection()
def create_a_file_as_a_folder() -> None:
    if os.path.isfile(case(".env")):
        os.unlink(case(".env"))
    os.mkdir(case(".env"))


@protection()
def create_a_folder() -> None:
    os.makedirs(case("vault"), exist_ok=True)
    write(case("vault/new"))


@protection()
def put_a_link_where_a_file_may_not_be() -> None:
    write(case("elsewhere"))
    os.symlink("elsewhere", case("new"))
    os.rename(case("new"), case(".env"))


# What git, agents and this program execute


@protection(makes=".git/config")
def edit_the_settings_of_git() -> None:
    append(inside(".git/config"))


@protection(makes=".git/config")
def set_the_folder_of_hooks() -> None:
    subprocess.run(["git", "config", "core.hooksPath", "hooks"], cwd=inside(""), check=False, capture_output=True)


@protection(makes=".git/hooks/pre-commit")
def create_a_hook() -> None:
    write(inside(".git/hooks/pre-commit"))


@protection(makes=".git/hooks/post-commit")
def exchange_the_folder_of_hooks() -> None:
    shutil.copytree(inside(".git/hooks"), inside(".git/hooks2"))
    os.rename(inside(".git/hooks"), inside(".git/hooks3"))
    os.rename(inside(".git/hooks2"), inside(".git/hooks"))
    write(inside(".git/hooks/post-commit"))


@protection(makes=".git/info/attributes")
def create_attributes_of_git() -> None:
    os.makedirs(inside(".git/info"), exist_ok=True)
    write(inside(".git/info/attributes"))


@protection(makes="moved-git")
def move_the_repository_away_and_make_another() -> None:
    script = "mv .git .git2 && git init -q && rm -r .git && mv .git2 .git && touch moved-git"
    subprocess.run(["sh", "-c", script], cwd=inside(""), check=False, capture_output=True)


@protection(makes=".ralph/config.json")
def edit_our_settings() -> None:
    append(inside(".ralph/config.json"))


@protection(makes=".ralph/new")
def create_beside_our_settings() -> None:
    write(inside(".ralph/new"))


@protection(makes="moved-ralph")
def move_our_folder_away() -> None:
    there_and_back(".ralph", "moved-ralph")


@protection(makes=".claude/settings.json")
def create_settings_of_claude() -> None:
    os.makedirs(inside(".claude"), exist_ok=True)
    write(inside(".claude/settings.json"))


@protection(makes="moved-claude")
def move_the_folder_of_claude_away() -> None:
    os.makedirs(inside(".claude"), exist_ok=True)
    there_and_back(".claude", "moved-claude")


@protection(makes=".mcp.json")
def create_a_list_of_servers() -> None:
    write(inside(".mcp.json"))


@protection(makes=".codex/config.toml")
def create_settings_of_codex() -> None:
    os.makedirs(inside(".codex"), exist_ok=True)
    write(inside(".codex/config.toml"))


@protection(makes=".vscode/tasks.json")
def create_settings_of_the_editor() -> None:
    os.makedirs(inside(".vscode"), exist_ok=True)
    write(inside(".vscode/tasks.json"))
