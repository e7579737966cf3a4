"""Which kind of sandbox a run gets: the strongest that holds, the one that is named, or a refusal with its reasons."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.base.errors import Refused
from ralphproof.sandbox.plan import BackendProblem, SandboxEntry
from ralphproof.sandbox.selection import (
    AUTO,
    KINDS,
    NO_SANDBOX_ADVICE,
    SandboxKind,
    backend_name_problem,
    choose_backend,
    create_backends,
    describe_problem,
    known_backends,
    try_backends,
)
from tests.needs import require
from tests.sandbox.fake_docker import FakeDocker
from tests.sandbox.planned_sandbox import PlannedBackend

Order = Callable[..., None]
# Answers what the trial's program would: that all is well, or that something was open.
HOLDS = "import json; print(json.dumps({'open': [], 'closed': []}))"
LEAKS = "import json; print(json.dumps({'open': ['files outside the project can be read'], 'closed': []}))"

NAMES = tuple(kind.name for kind in KINDS)


class Entered(PlannedBackend):
    """One that is entered by a program of the test's own, in place of what it is given."""

    program = HOLDS

    def entry(self, box: object) -> SandboxEntry:
        return SandboxEntry((sys.executable, "-I", "-c", self.program), "itself", no_entrypoint=True)


class Holding(Entered):
    name = "holding"


class Second(Entered):
    name = "second"


class Leaking(Entered):
    name = "leaking"
    program = LEAKS


class Weak(Entered):
    name, strength = "weak", "partial"


class Weaker(Entered):
    name, strength = "weaker", "partial"


class Broken(Entered):
    name = "broken"
    program = "import sys; sys.exit('bwrap: setting up uid map: Permission denied')"


class Missing(Entered):
    name = "missing"

    def problem(self) -> BackendProblem | None:
        return BackendProblem("the program is not installed", "install it: apt install missing")

    def entry(self, box: object) -> SandboxEntry:
        raise AssertionError("it is not tried")


class Unready(Entered):
    name = "unready"

    def prepare(self, box: object, command: object) -> str:
        return "the engine does not answer"


def named(kind: type) -> str:
    return f"{__name__}:{kind.__name__}"


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> Order:
    """Says which kinds there are, and in which order they are tried."""

    def lay(*kinds: type) -> None:
        table = tuple(SandboxKind(named(kind), named(kind)) for kind in kinds)
        monkeypatch.setattr("ralphproof.sandbox.selection.KINDS", table)

    return lay


@pytest.mark.parametrize(
    ("kinds", "taken"),
    [
        ((Holding, Second), "holding"),
        ((Missing, Broken, Leaking, Unready, Second, Holding), "second"),
        # A partial one only where no strong one holds, and then the first.
        ((Weak, Holding), "holding"),
        ((Weak, Missing, Weaker), "weak"),
        ((Leaking, Weaker, Weak), "weaker"),
    ],
)
def test_the_strongest_that_holds_is_taken(order: Order, root: str, kinds: tuple[type, ...], taken: str) -> None:
    order(*kinds)
    assert choose_backend(AUTO, os.environ, root).name == taken


def test_where_none_holds_each_is_told_with_how_to_mend_it(order: Order, root: str) -> None:
    order(Missing, Broken, Leaking, Unready)
    with pytest.raises(Refused) as caught:
        choose_backend(AUTO, os.environ, root)
    told = str(caught.value)
    assert told.startswith(
        "no sandbox works here: missing: the program is not installed (install it: apt install missing); "
    )
    assert "broken: it cannot be entered: bwrap: setting up uid map: Permission denied (Ubuntu 24.04 and later:" in told
    assert "leaking: it was tried, and files outside the project can be read; " in told
    assert "unready: the engine does not answer. " in told
    assert told.endswith(NO_SANDBOX_ADVICE)


@pytest.mark.parametrize(
    ("kind", "why"), [(Missing, "the program is not installed"), (Leaking, "it was tried, and files")]
)
def test_the_one_that_is_named_is_taken_or_nothing_is(order: Order, root: str, kind: type, why: str) -> None:
    order(Holding)
    assert choose_backend(named(Weak), os.environ, root).name == "weak"
    with pytest.raises(Refused) as caught:
        choose_backend(named(kind), os.environ, root)
    assert str(caught.value).startswith(f"sandbox {named(kind)} does not work here: {why}")
    assert "holding" not in str(caught.value)


def test_what_only_another_system_has_is_told_only_where_it_was_asked_for(root: str, tmp_path: Path) -> None:
    require(sys.platform == "linux", "Linux")
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path / "home")}
    with pytest.raises(Refused, match="sandbox-exec is a part of macOS"):
        choose_backend("sandbox-exec", environ, root)
    with pytest.raises(Refused) as caught:
        choose_backend("bubblewrap", environ, root)
    assert "bwrap is not installed (install it: apt install bubblewrap" in str(caught.value)


def test_of_every_name_each_engine_is_tried_and_nothing_is_taken_from_the_project(tmp_path: Path) -> None:
    project, fake = tmp_path / "project", FakeDocker(tmp_path / "fake")
    (project / "bin").mkdir(parents=True)
    for program in ("bwrap", "podman", "docker"):
        (project / "bin" / program).write_text("#!/bin/sh\ntouch ran\n")
        (project / "bin" / program).chmod(0o755)
    environ = fake.environ("docker", "sbx")
    environ["PATH"] = f"{project}/bin:{tmp_path}/fake/docker:{tmp_path}/fake/sbx"
    assert [one.name for one in create_backends("docker-sandbox", environ, str(project))] == [
        "docker-sandbox",
        "docker-sandbox",
    ]
    lacks = [one.problem for one in try_backends("bubblewrap", environ, str(project))]
    assert [lack.why for lack in lacks if lack] == ["bwrap is not installed"]
    assert not (project / "ran").exists()


def test_every_name_of_our_own_is_known_and_tried_in_order_of_strength() -> None:
    assert known_backends()[0] == AUTO
    kinds = [next(create_backends(name, {"PATH": "/nowhere"}, "/nowhere")) for name in NAMES]
    assert [kind.strength for kind in kinds] == sorted((kind.strength for kind in kinds), reverse=True)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real distribution that brings a kind of its own."""
    info = tmp_path / "site/ralph_boxes-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ralph-boxes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ralphproof.sandboxes]\nmine = {named(Weak)}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.mark.usefixtures("plugin")
def test_a_kind_that_another_distribution_brings_is_known_by_its_name(root: str) -> None:
    assert known_backends() == (AUTO, *NAMES, "mine")
    assert backend_name_problem("mine") == ""
    assert choose_backend("mine", os.environ, root).name == "weak"


@pytest.mark.parametrize("name", [None, AUTO, *NAMES, "package.module:Name"])
def test_a_name_that_may_be_given(name: str | None) -> None:
    assert backend_name_problem(name) == ""


@pytest.mark.parametrize("name", ["", "bwrap", "docker", "none", "direct", "Bubblewrap"])
def test_an_unknown_name_is_refused_with_those_that_there_are(name: str, root: str) -> None:
    assert backend_name_problem(name).endswith(f"there are: {', '.join(known_backends())}")
    with pytest.raises(Refused, match=r"there are: .*others are named as package\.module:Name"):
        choose_backend(name, os.environ, root)


def test_what_is_lacking_is_told_with_its_mend_if_it_has_one() -> None:
    assert (describe_problem(BackendProblem("a")), describe_problem(BackendProblem("a", "b"))) == ("a", "a (b)")
