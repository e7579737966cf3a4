"""The profile of macOS: its text for one box, and what its rules let a program do; the last one that fits counts."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.base.errors import Refused
from ralphproof.sandbox.plan import (
    DEV_NULL,
    EMPTY_FOLDER,
    PORT_PLACEHOLDER,
    PROXY_BY_PORT,
    READ_ONLY,
    WRITABLE,
    Backend,
    EgressPolicy,
    Mount,
    Protection,
    SandboxPlan,
)
from ralphproof.sandbox.sandbox_exec import MACH_SERVICES, SandboxExec, build_profile, quote_profile_string

ROOT, HOME, TEMP = "/Users/u/work/app", "/Users/u", "/private/var/folders/x/T/1.tmp"
MOUNTS = (
    Mount(READ_ONLY, "/usr"),
    Mount(READ_ONLY, "/etc"),
    Mount(READ_ONLY, "/etc/secret", DEV_NULL),
    Mount(EMPTY_FOLDER, "/etc/closed"),
    Mount(READ_ONLY, f"{HOME}/.nvm"),
    Mount(READ_ONLY, f"{HOME}/.nvm/.npmrc", DEV_NULL),
    Mount(READ_ONLY, "/opt/covered", "/state/empty"),
    Mount(WRITABLE, "/state/cache"),
    Mount(WRITABLE, ROOT),
    Mount(WRITABLE, f"{ROOT}/src"),
    Mount(READ_ONLY, f"{ROOT}/src/auth"),
    Mount(READ_ONLY, f"{ROOT}/.git/hooks"),
    Mount(READ_ONLY, f"{ROOT}/.ralph"),
    Mount(WRITABLE, f"{ROOT}/.ralph/runs/1/task"),
    Mount(WRITABLE, TEMP),
)
GHOSTS = (f"{ROOT}/.mcp.json", f"{ROOT}/conf/new.toml", f"{ROOT}/.vscode")
BOX = SandboxPlan(
    ROOT, HOME, TEMP, MOUNTS, EgressPolicy(("example.org",), (5432,)), protection=Protection(placeholders=GHOSTS)
)


# A small reader of such profiles


@dataclass(frozen=True)
class Rule:
    """One rule: whether it allows, what, and by which filters; none stands for everything."""

    allows: bool
    operations: tuple[str, ...]
    filters: tuple[tuple[str, ...], ...]

    def fits(self, operation: str, path: str) -> bool:
        return any(_covers(one, operation) for one in self.operations) and (
            not self.filters or any(_fits(one, path) for one in self.filters)
        )


def _covers(ruled: str, operation: str) -> bool:
    return ruled == "default" or ruled == operation or (ruled.endswith("*") and operation.startswith(ruled[:-1]))


def _fits(one: tuple[str, ...], path: str) -> bool:
    kind, *words = one
    if kind == "literal":
        return path == words[0]
    if kind == "subpath":
        return path == words[0] or path.startswith(words[0].rstrip("/") + "/")
    return kind == "remote" and path == words[1]


TOKEN = re.compile(r'\s*(?:([()])|"((?:[^"\\]|\\.)*)"|([^\s()"]+))')
Tree = list["Tree | str"]


def parsed(text: str) -> Tree:
    """The expressions of a text, as lists; strings without their quotes."""
    stack: list[Tree] = [[]]
    at = 0
    while text[at:].strip():
        found = TOKEN.match(text, at)
        assert found, text[at:]
        bracket, string, word = found.groups()
        at = found.end()
        if bracket == "(":
            stack.append([])
        elif bracket == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(re.sub(r"\\(.)", r"\1", string) if string is not None else word)
    assert len(stack) == 1
    return stack[0]


def rules(text: str) -> list[Rule]:
    made = []
    for line in parsed(text):
        assert isinstance(line, list)
        verb, *rest = line
        if verb in ("allow", "deny"):
            operations = tuple(one for one in rest if isinstance(one, str))
            filters = tuple(tuple(map(str, one)) for one in rest if isinstance(one, list))
            made.append(Rule(verb == "allow", operations, filters))
    return made


def may(operation: str, path: str, plan: SandboxPlan = BOX) -> bool:
    """Whether the profile of a box lets a program do this."""
    return [rule.allows for rule in rules(build_profile(plan)) if rule.fits(operation, path)][-1]


READING, WRITING, UNLINKING = "file-read-data", "file-write-data", "file-write-unlink"


@pytest.mark.parametrize(
    ("path", "read", "written", "unlinked"),
    [
        (f"{ROOT}/src/a.py", True, True, True),
        (f"{ROOT}/new/deep/file", True, True, True),
        ("/state/cache/x", True, True, True),
        # What is held in what is written; folders above it stay where they are, and so do whole places.
        (f"{ROOT}/src/auth", True, False, False),
        (f"{ROOT}/src/auth/key.py", True, False, False),
        (f"{ROOT}/src/author.py", True, True, True),
        (f"{ROOT}/src", True, True, False),
        (f"{ROOT}/.git", True, True, False),
        (f"{ROOT}/.git/index.lock", True, True, True),
        (f"{ROOT}/.git/hooks/pre-commit", True, False, False),
        (ROOT, True, True, False),
        ("/state/cache", True, True, False),
        (TEMP, True, True, False),
        # Our own folder, and the task's in it.
        (f"{ROOT}/.ralph/settings.json", True, False, False),
        (f"{ROOT}/.ralph/runs/1/task/x", True, True, True),
        (f"{ROOT}/.ralph/runs/1/task", True, True, False),
        # What must not come to be, and the folder that it would lie in.
        (f"{ROOT}/.mcp.json", True, False, False),
        (f"{ROOT}/.vscode/tasks.json", True, False, False),
        (f"{ROOT}/conf/new.toml", True, False, False),
        (f"{ROOT}/conf/other.toml", True, True, True),
        (f"{ROOT}/conf", True, True, False),
        # The system, and what is covered of it.
        ("/usr/bin/git", True, False, False),
        ("/etc/hosts", True, False, False),
        ("/private/etc/hosts", True, False, False),
        ("/etc/secret", False, False, False),
        ("/private/etc/secret", False, False, False),
        ("/etc/closed/key", False, False, False),
        ("/opt/covered/key", False, False, False),
        (f"{HOME}/.nvm/nvm.sh", True, False, False),
        (f"{HOME}/.nvm/.npmrc", False, False, False),
        # Either name of a temporary folder.
        (f"{TEMP}/x", True, True, True),
        ("/var/folders/x/T/1.tmp/x", True, True, True),
        ("/private/var/folders/x/T/2.tmp/x", False, False, False),
        # Nothing else.
        (f"{HOME}/.ssh/id_ed25519", False, False, False),
        ("/Users/u/work/other/a", False, False, False),
        (f"{ROOT}x/a", False, False, False),
        (HOME, False, False, False),
        ("/Users", False, False, False),
        ("/tmp/x", False, False, False),
        ("/dev/null", True, True, False),
        ("/dev/disk0", False, False, False),
        ("/dev/ttys001", False, False, False),
    ],
)
def test_what_a_program_may_do_to_a_path(path: str, read: bool, written: bool, unlinked: bool) -> None:
    assert (may(READING, path), may(WRITING, path), may(UNLINKING, path)) == (read, written, unlinked)


@pytest.mark.parametrize(
    "path", ["/", "/Users", HOME, f"{HOME}/work", "/private", "/tmp", "/var", "/private/var/folders"]
)
def test_folders_above_what_is_there_can_be_looked_at_not_listed(path: str) -> None:
    assert may("file-read-metadata", path)
    assert may(READING, path) is (path == "/")


@pytest.mark.parametrize(
    ("place", "open_"),
    [
        (f"localhost:{PORT_PLACEHOLDER}", True),
        ("localhost:5432", True),
        ("localhost:22", False),
        ("localhost:*", False),
        ("*:*", False),
        ("example.org:443", False),
    ],
)
def test_only_the_proxy_and_listed_ports_of_this_machine_can_be_called(place: str, open_: bool) -> None:
    assert may("network-outbound", place) is open_
    assert not may("network-inbound", place)
    assert not may("network-bind", place)


@pytest.mark.parametrize(
    "operation",
    [
        "mach-register",
        "iokit-open",
        "system-socket",
        "process-info-pidinfo",
        "file-link",
        "file-mount",
        "nvram-set",
        "appleevent-send",
    ],
)
def test_what_nobody_named_is_refused(operation: str) -> None:
    assert not may(operation, "anything")


def test_no_service_holds_passwords() -> None:
    assert not [
        name for name in MACH_SERVICES if re.search(r"(?i)secur|keychain|pasteboard|coreservices|launchd", name)
    ]


PARTS = st.text(
    st.sampled_from(["a", "b", '"', "\\", "(", ")", " ", ";", "'", "é", "*", "\udc80"]), min_size=1, max_size=6
)


@given(PARTS, PARTS)
def test_a_name_of_any_kind_means_itself_and_adds_no_rule(name: str, held: str) -> None:
    root = f"/p/{name}"
    mounts = (Mount(WRITABLE, root), Mount(READ_ONLY, f"{root}/{held}"))
    plan = SandboxPlan(root, HOME, "", mounts, protection=Protection(placeholders=(f"{root}/{held}.new",)))
    assert may(WRITING, f"{root}/x/y", plan)
    assert not may(WRITING, f"{root}/{held}/x", plan)
    assert not may(WRITING, f"{root}/{held}.new", plan)
    plain = SandboxPlan(
        "/p/r",
        HOME,
        "",
        (Mount(WRITABLE, "/p/r"), Mount(READ_ONLY, "/p/r/h")),
        protection=Protection(placeholders=("/p/r/h.new",)),
    )
    assert len(rules(build_profile(plan))) == len(rules(build_profile(plain)))


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "a\x7f", "a\tb", f"a{PORT_PLACEHOLDER}", f"{PORT_PLACEHOLDER}b"])
def test_a_name_that_cannot_be_written_is_refused(name: str) -> None:
    with pytest.raises(Refused, match=r"sandbox-exec cannot name .*: choose a path without such characters") as caught:
        quote_profile_string(f"/p/{name}")
    assert str(caught.value).isprintable()


NAMES = ["a", "b", "a/b", "a/b/c", "d"]


@given(
    st.lists(st.tuples(st.sampled_from([READ_ONLY, WRITABLE, EMPTY_FOLDER]), st.sampled_from(NAMES)), max_size=6),
    st.lists(st.sampled_from(NAMES), max_size=2),
    st.sampled_from(NAMES),
)
def test_of_any_mounts_the_last_one_above_a_path_decides(
    mounts: list[tuple[str, str]], placeholders: list[str], asked: str
) -> None:
    made = tuple(Mount(kind, f"/p/{name}") for kind, name in mounts)
    plan = SandboxPlan(
        "/p/r", HOME, "", made, protection=Protection(placeholders=tuple(f"/p/{name}" for name in placeholders))
    )
    path = f"/p/{asked}/file"
    over = [one for one in made if path.startswith(one.path + "/")]
    held = any(path.startswith(f"/p/{name}/") for name in placeholders)
    assert may(READING, path, plan) is bool(over and over[-1].kind != EMPTY_FOLDER)
    assert may(WRITING, path, plan) is bool(over and over[-1].kind == WRITABLE and not held)


def test_a_box_is_entered_with_its_profile_and_called_through_a_port() -> None:
    backend: Backend = SandboxExec()
    way = backend.entry(BOX)
    assert (way.argv[:2], way.argv[2], way.proxy_access, way.no_entrypoint) == (
        ("/usr/bin/sandbox-exec", "-p"),
        build_profile(BOX),
        PROXY_BY_PORT,
        True,
    )
    problem = backend.problem()
    assert (problem is None) == (sys.platform == "darwin" and os.access("/usr/bin/sandbox-exec", os.X_OK))


def test_the_text_of_a_profile() -> None:
    mounts = (
        Mount(READ_ONLY, "/etc"),
        Mount(READ_ONLY, "/etc/key", DEV_NULL),
        Mount(WRITABLE, "/p"),
        Mount(READ_ONLY, "/p/a/held"),
    )
    plan = SandboxPlan(
        "/p", HOME, "", mounts, EgressPolicy((), (5432,)), protection=Protection(placeholders=("/p/.mcp.json",))
    )
    own = build_profile(plan).partition('(allow file-read* file-write-data file-ioctl (literal "/dev/null")')[2]
    assert own.splitlines()[1:] == [
        '(allow file-read-metadata (literal "/") (literal "/etc") (literal "/p") (literal "/p/a") (literal "/private") '
        '(literal "/private/etc") (literal "/tmp") (literal "/var"))',
        '(allow file-read* (subpath "/etc") (subpath "/private/etc"))',
        '(deny file-write* (subpath "/etc") (subpath "/private/etc"))',
        '(deny file-read* file-write* (subpath "/etc/key") (subpath "/private/etc/key"))',
        '(allow file-read* (subpath "/p"))',
        '(allow file-write* (subpath "/p"))',
        '(allow file-read* (subpath "/p/a/held"))',
        '(deny file-write* (subpath "/p/a/held"))',
        '(deny file-write* (subpath "/p/.mcp.json"))',
        '(deny file-write-unlink (literal "/p") (literal "/p/a"))',
        f'(allow network-outbound (remote ip "localhost:{PORT_PLACEHOLDER}"))',
        '(allow network-outbound (remote ip "localhost:5432"))',
    ]
