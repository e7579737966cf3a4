"""The contract of sandboxes: what is tried in vain inside one of any kind, as root and as somebody without rights.

Without a sandbox the same attempts succeed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from ralphproof.sandbox.plan import ResourceLimits
from tests.needs import require
from tests.ralph import until
from tests.sandbox import attempts, callings, protections
from tests.sandbox.fenced import OURSELVES, Person
from tests.sandbox.probing import probed
from tests.sandbox.processes import processes
from tests.sandbox.traces import lingering, mark, traces
from tests.sandbox.works import WORKS, Work, furnished, wheel
from tests.sandbox.worlds import BUBBLEWRAP, CONTAINER, DIRECT, LANDLOCK, World, held_for, somebody, world


def kinds(*later: str) -> list[ParameterSet]:
    """Every kind for every person; containers, and what has one of these words in its name, only thoroughly."""
    every = [(kind, who) for kind in (DIRECT, BUBBLEWRAP, LANDLOCK, CONTAINER) for who in ("root", "user")]
    thorough = [pytest.mark.thorough]
    names = {*later, CONTAINER}
    return [pytest.param(one, id="-".join(one), marks=thorough if names & {*one} else []) for one in every]


def slow(kind: str) -> ParameterSet:
    return pytest.param(kind, marks=pytest.mark.thorough)


@pytest.mark.parametrize("case", kinds())
def test_whatever_is_tried_in_a_sandbox_fails_and_without_one_it_succeeds(case: tuple[str, str]) -> None:
    """One command inside walks through all ways out, all changes of what is protected, and all calls."""
    kind, person = case[0], somebody(*case)
    probe = probed(kind, person)
    succeeded = {name for name, error in probe.came.items() if not error}
    impossible = attempts.FOR_OTHERS if person.is_root else attempts.FOR_ROOT
    if kind == DIRECT:
        expected = {*probe.came} - {*impossible}
        assert {name: probe.came[name] for name in expected - succeeded} == {}
        return
    expected = {*callings.OPEN} if probe.protects_paths else {*callings.OPEN, *protections.PROTECTIONS}
    assert sorted(succeeded - expected) == []
    assert {name: probe.came[name] for name in expected - succeeded} == {}


def done(kind: str, person: Person) -> dict[str, dict[str, Any]]:
    with world(person) as made:
        furnished(made)
        works = {name: work for name, work in WORKS.items() if kind in work.kinds}
        runs = [
            {"argv": work.argv or ["sh", "-c", work.script.replace("{who}", str(made.person.uid))],
             "stdin": work.stdin, "cwd": str(made.project / work.cwd)}
            for work in works.values()
        ]  # fmt: skip
        entered = made.enter(kind, *runs, protected=[".env", "secrets/"], task=str(made.project / ".ralph/task"))
    return {name: run | {"project": str(made.project)} for name, run in zip(works, entered.runs, strict=True)}


@pytest.mark.parametrize("case", kinds("user"))
def test_ordinary_work_goes_on(case: tuple[str, str]) -> None:
    runs = done(case[0], somebody(*case))
    assert {name: run for name, run in runs.items() if not _went_well(WORKS[name], run)} == {}


def _went_well(work: Work, run: dict[str, Any]) -> bool:
    out = work.out is None or run["out"] == work.out.replace("{project}", run["project"])
    return run["exit"].get("code") == work.code and out and (work.err is None or run["err"] == work.err)


@pytest.fixture(params=[BUBBLEWRAP, slow(CONTAINER)])
def holding(request: pytest.FixtureRequest) -> str:
    """A kind of sandbox in which paths can be held."""
    return str(request.param)


@pytest.fixture
def ours() -> Iterator[World]:
    """A world of whoever runs the tests, with a repository."""
    with world(OURSELVES) as made:
        made.git("init", "-q")
        yield made


REMOUNT = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
done = libc.mount(None, b"/etc", None, 32 | 4096, None)
open(sys.argv[1], "w").close()
"""


DROPPED, SOMEBODY = ["--cap-drop", "ALL"], ["--uid", "1000", "--gid", "1000"]


@pytest.mark.parametrize(
    ("without", "code"), [([], 1), ([SOMEBODY], 1), ([DROPPED], 1), ([DROPPED, SOMEBODY], 0)],
    ids=["whole", "as-root", "capable", "capable-as-root"],
)  # fmt: skip
def test_with_its_capabilities_root_makes_everything_writable_again(
    without: list[list[str]], code: int, ours: World
) -> None:
    require(os.geteuid() == 0, "root")
    signed = Path(f"/etc/signed-{ours.top.name}")
    try:
        run = ours.enter(BUBBLEWRAP, {"argv": ["python3", "-c", REMOUNT, str(signed)]}, without=without).one
        assert (run["exit"]["code"], signed.exists()) == (code, code == 0), run["err"]
    finally:
        signed.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("without", "code"), [([], 2), ([["--ro-bind", "/proc/sys", "/proc/sys"]], 0)], ids=["whole", "uncovered"]
)
def test_without_a_cover_root_sets_what_the_kernel_starts(without: list[list[str]], code: int, ours: World) -> None:
    require(os.geteuid() == 0, "root")
    script = "cat /proc/sys/kernel/core_pattern > now && cat now > /proc/sys/kernel/core_pattern"
    run = ours.enter(BUBBLEWRAP, {"argv": ["sh", "-c", script]}, without=without).one
    assert run["exit"]["code"] == code, run["err"]


@pytest.mark.parametrize(("unpinned", "text"), [(False, "kept"), (True, "changed\n")], ids=["whole", "unpinned"])
def test_where_folders_above_are_not_held_they_are_moved_away(
    unpinned: bool, text: str, holding: str, ours: World
) -> None:
    script = "mv src src2; mkdir -p src/auth; echo changed > src/auth/login"
    (ours.project / "src/auth").mkdir(parents=True)
    (ours.project / "src/auth/login").write_text("kept")
    ours.enter(holding, {"argv": ["sh", "-c", script]}, protected=["src/auth/"], unpinned=unpinned)
    assert (ours.project / "src/auth/login").read_text() == text


@pytest.fixture(params=kinds())
def kept(request: pytest.FixtureRequest) -> Iterator[tuple[str, World]]:
    """Every kind of sandbox, with a world of every person."""
    kind, who = request.param
    with world(somebody(kind, who)) as made:
        made.git("init", "-q")
        yield kind, made


def test_who_is_killed_leaves_nothing(kept: tuple[str, World]) -> None:
    kind, made = kept
    run = made.enter(kind, {"argv": ["sh", "-c", lingering(made)], "until": "ready"}, protected=[".env"]).one
    assert (run["exit"]["why"], run["out"]) == ("killed", "ready\n")
    assert traces(made, kind) == []


def test_who_is_asked_to_end_may_say_good_bye(kept: tuple[str, World]) -> None:
    kind, made = kept
    asked = "trap 'echo bye; asked=yes' TERM; echo ready; until [ $asked ]; do sleep 0.05; done"
    script = f"{asked}; sleep 0.5; exit 3"  # if it were asked again, that would be heard
    run = made.enter(kind, {"argv": ["sh", "-c", script], "until": "ready", "then": "stop"}).one
    assert (run["exit"]["why"], run["exit"]["code"], run["out"]) == ("stopped", 3, "ready\nbye\n"), run
    assert traces(made, kind) == []


def test_nothing_outlives_the_outer_program(kept: tuple[str, World]) -> None:
    kind, made = kept
    if kind == DIRECT:
        return  # it has none
    with made.entering(kind, {"argv": ["sh", "-c", lingering(made)]}, protected=[".env"]) as driver:
        outer = made.outer()
        assert (made.project / ".env").exists() == (kind != LANDLOCK)
        os.kill(outer, signal.SIGKILL)
        said = driver.end()
    assert said["exit"]["signal"] == signal.SIGKILL
    assert traces(made, kind) == []


def test_where_all_who_own_it_are_killed_it_ends_and_what_lay_over_files_is_lifted_by_the_next_command(
    holding: str, ours: World
) -> None:
    wanted = {"protected": [".env", "vault/deep/"], "unowned": True}
    with ours.entering(holding, {"argv": ["sh", "-c", lingering(ours)]}, **wanted) as driver:
        outer = ours.outer()
        driver.kill()
        os.kill(outer, signal.SIGKILL)
        until(lambda: not processes(mark(ours)), "the end of all")
    assert (ours.project / ".env").exists()
    ours.enter(holding, {"argv": ["true"]})
    assert sorted(os.listdir(ours.project)) == [".git"]


@pytest.fixture(params=[BUBBLEWRAP, LANDLOCK, slow(CONTAINER)])
def boxed(request: pytest.FixtureRequest) -> str:
    return str(request.param)


COMMIT = "echo x > x && git add -A && git commit -qm x && git log --format=%s -1 && git status -s"
SHARED = ("config", "HEAD", "hooks/post-commit", "info/attributes", "packed-refs", "description", "new")


def test_a_linked_worktree_commits_and_writes_no_more_of_the_repository_than_that(boxed: str) -> None:
    with world(OURSELVES) as made:
        furnished(made)
        made.git("commit", "-q", "--allow-empty", "-m", "first")
        made.git("worktree", "add", "-q", str(made.project.parent / "tree"))
        tree = replace(made, project=made.project.parent / "tree")
        before = {name: text_of(made.project / ".git" / name) for name in SHARED}
        writes = "; ".join(f"echo changed >> {made.project}/.git/{name}" for name in SHARED)
        script = f"({writes}; echo changed >> {made.project}/below/new) 2>/dev/null; {COMMIT}"
        run = tree.enter(boxed, {"argv": ["sh", "-c", script]}).one
        assert (run["exit"]["code"], run["out"]) == (0, "x\n"), run["err"]
        assert {name: text_of(made.project / ".git" / name) for name in SHARED} == before
        assert os.listdir(made.project / "below") == []


def text_of(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def test_a_submodule_commits_and_its_settings_are_held(holding: str) -> None:
    with world(OURSELVES) as made:
        furnished(made)
        other = made.top / "other"
        made.git("init", "-q", str(other))
        made.git("-C", str(other), "commit", "-q", "--allow-empty", "-m", "first")
        made.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "module")
        made.git("commit", "-q", "-m", "module")
        script = f"cd module && git config core.fsmonitor evil; {COMMIT} && cd .. && git commit -qam y"
        run = made.enter(holding, {"argv": ["sh", "-c", script]}).one
        assert (run["exit"]["code"], run["out"]) == (0, "x\n"), run["err"]
        assert "evil" not in (made.project / ".git/modules/module/config").read_text()


NAMES = ["with space", "ünï ☂", "a,b", 'quo"te', "colon:x", "dollar$x", "-dash", "brace{port}x"]


@pytest.mark.parametrize("boxed", [BUBBLEWRAP, *(slow(kind) for kind in (LANDLOCK, CONTAINER))], indirect=True)
@pytest.mark.parametrize("name", NAMES)
def test_a_project_may_have_any_name(name: str, boxed: str) -> None:
    with world(OURSELVES, name) as made:
        furnished(made)
        run = made.enter(boxed, {"argv": ["sh", "-c", "touch made && pwd"]}, protected=["src/auth/", ".env"]).one
        assert run.get("out") == f"{made.project}\n", run
        assert (made.project / "made").exists()


@pytest.mark.thorough
def test_packages_are_installed_and_tests_pass(boxed: str) -> None:
    with world(OURSELVES) as made:
        furnished(made)
        wheel(made.project)
        (made.project / "test_it.py").write_text("def test_it(tmp_path):\n    (tmp_path / 'x').write_text('y')\n")
        install = "python3 -m venv env && env/bin/pip install -q --no-index --find-links . greeting"
        script = (
            f"{install} && env/bin/python -m greeting && {sys.executable} -m pytest -q -p no:cacheprovider test_it.py"
        )
        run = made.enter(boxed, {"argv": ["sh", "-c", script]}).one
        assert run["exit"]["code"] == 0, run
        assert "hello from a package" in run["out"]
        assert "1 passed" in run["out"]


CALL = """
import urllib.request
for scheme in ("https", "http"):
    try:
        urllib.request.urlopen(f"{scheme}://allowed.test/")
    except OSError as error:
        print(error)
"""


def test_an_empty_list_lets_nobody_be_called_and_it_is_told(boxed: str, ours: World) -> None:
    run = ours.enter(boxed, {"argv": ["python3", "-c", CALL]}).one
    assert run["out"].count("403") == 2, run
    assert run["exit"]["blocked"] == ["allowed.test:443", "allowed.test:80"]
    assert "not reached: allowed.test:443, allowed.test:80" in run["err"]


EAT = "x = bytearray(400 << 20); print('ate')"
FORK = """
import os, time
made = 0
try:
    while made < 400:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except OSError:
    print("bounded", flush=True)
os.killpg(0, 9) if made == 400 else os._exit(0)
"""


@pytest.mark.parametrize("kept", kinds("user"), indirect=True)
@pytest.mark.parametrize(("thing", "program", "out"), [("memory", EAT, ""), ("processes", FORK, "bounded\n")])
def test_a_command_gets_no_more_than_its_ration(thing: str, program: str, out: str, kept: tuple[str, World]) -> None:
    kind, made = kept
    limits = ResourceLimits(200 << 20, 100)
    if kind == DIRECT or thing not in held_for(made, limits):
        return
    run = made.enter(kind, {"argv": ["python3", "-c", program]}, ration=[limits.memory_bytes, limits.processes]).one
    assert run["out"] == out, run
    assert made.person.prefix or f"it reached its limit of {thing}" in run["err"], run
