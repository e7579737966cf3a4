"""Who waits for whom."""

from __future__ import annotations

import time

import pytest

from ralphproof.base.graph import find_cycles
from ralphproof.tasks.draft import validate_dependencies
from tests.tasks.samples import draft


@pytest.mark.parametrize(
    ("drafts", "known", "told"),
    [
        ({"A": (), "B": ("A",)}, {}, ()),
        ({"A": ("B",)}, {"B": ()}, ()),
        ({"A": ("B",)}, {}, ("A: dependencies name B, which is no task",)),
        ({"A": ("T-02",)}, {"T-20": ()}, ("A: dependencies name T-02, which is no task; did you mean T-20?",)),
        ({"A": ("A",)}, {}, ("A: dependencies go in a circle: A -> A",)),
        ({"A": ("B",), "B": ("A",)}, {}, ("A: dependencies go in a circle: A -> B -> A",)),
        ({"X": ("A",), "A": ("B",), "B": ("C",), "C": ("A",)}, {},
         ("A: dependencies go in a circle: A -> B -> C -> A",)),
        ({"A": ("B",)}, {"B": ("A",)}, ("B: dependencies go in a circle: B -> A -> B",)),
        ({"B": ()}, {"A": ("B",), "B": ("A",)}, ()),
        ({"A": ("B", "B", "C")}, {"B": ("D",), "C": ("D",), "D": ()}, ()),
    ],
)  # fmt: skip
def test_what_is_wrong_between_tasks(
    drafts: dict[str, tuple[str, ...]], known: dict[str, tuple[str, ...]], told: tuple[str, ...]
) -> None:
    made = tuple(draft(id=id, dependencies=after) for id, after in drafts.items())
    assert validate_dependencies(made, known) == told


def test_doubled_ids_are_named_once() -> None:
    made = (draft(id="A"), draft(id="B"), draft(id="A"), draft(id="A"))
    assert validate_dependencies(made, {"B": ()}) == ("A: the id is given 3 times",)


def test_two_circles_are_both_named() -> None:
    edges = {"A": ("B",), "B": ("A",), "C": ("D",), "D": ("C",)}
    assert find_cycles(edges) == [("A", "B", "A"), ("C", "D", "C")]


def test_long_chains_and_dense_tangles_are_looked_through_in_no_time() -> None:
    before = time.process_time()
    chain = {str(number): (str(number + 1),) for number in range(50_000)}
    assert find_cycles(chain) == []
    (circle,) = find_cycles({**chain, "49999": ("0",)})
    assert len(circle) == 50_001
    names = [str(number) for number in range(300)]
    assert len(find_cycles(dict.fromkeys(names, tuple(names)))) == 20
    assert time.process_time() - before < 5


def test_a_long_circle_is_not_told_whole() -> None:
    made = tuple(draft(id=str(number), dependencies=(str((number + 1) % 1000),)) for number in range(1000))
    (told,) = validate_dependencies(made, {})
    assert told.endswith("-> 19 -> ... (980 more) -> 0")
