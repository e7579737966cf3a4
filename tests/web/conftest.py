from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ralph import Ralph, done
from tests.ralph import ralph as ralph
from tests.web.served import Onlooker, Served, serve


@pytest.fixture(autouse=True)
def nobody_stays() -> Iterator[None]:
    yield
    while Onlooker.there:
        Onlooker.there.pop().close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ralph]:
    """A project with one run that is over: two iterations, a check, a log, a change."""
    made = Ralph(tmp_path_factory.mktemp("web"))
    made.write({"check.sh": "echo looked; test -f done"})
    made.commit()
    agent = made.script([{"text": "not yet"}], [{"write": {"done": "yes"}}, done()])
    assert made("run", "-p", "make it so", "--agent", agent, "--check", "sh check.sh").code == 0
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(place: Ralph) -> Served:
    """A server that may do everything."""
    return serve(place, "--control", "--metrics")


@pytest.fixture(scope="module")
def onlooking(place: Ralph) -> Served:
    """A server that only looks on."""
    return serve(place)
