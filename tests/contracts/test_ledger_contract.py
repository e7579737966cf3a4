"""What every ledger keeps to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.processes import ProcessIdentity, current_process
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine import records as told
from ralphproof.engine.environment import Ledger
from ralphproof.engine.state import build_state
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.statistics import PeriodTotals
from tests.store.samples import DAY, NOON_S, SNAPSHOT, end, notices, one_of_each

if TYPE_CHECKING:
    from ralphproof.base.value import Json

SECRET = 'tok"en\\with\nodd é\udcff parts'


def hide(text: str) -> str:
    return text.replace(SECRET, "***")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    opened = SqliteLedger.open(str(tmp_path / "repo"), hide)
    yield opened
    opened.close()


def began(ledger: SqliteLedger, run: str, directory: str = "/project", parent: str = "") -> None:
    ledger.begin_run(run, directory, 1_800_000_000.5, ProcessIdentity(42, "777", "boot", "host"), parent)


def test_it_is_a_ledger(ledger: SqliteLedger) -> None:
    plain: Ledger = ledger
    assert plain.records("none") == ()
    assert plain.requested_control("none") == ""
    assert plain.user_messages("none", 0) == ()


def test_every_kind_of_record_comes_back_equal_and_in_order(ledger: SqliteLedger) -> None:
    records = one_of_each()
    assert {type(record) for record in records} == set(told.Record.__args__)
    ledger.append("r", records[:3])
    ledger.append("r", records[3:])
    assert ledger.records("r") == records
    assert build_state(ledger.records("r")) == build_state(records)
    assert ledger.verify_chain("r") is None


def test_runs_do_not_mix(ledger: SqliteLedger) -> None:
    ledger.append("a", notices(2))
    ledger.append("b", notices(1, first=5))
    ledger.append("a", notices(1, first=2))
    assert ledger.records("a") == notices(3)
    assert ledger.records("b") == notices(1, first=5)


def test_one_run_is_found_as_it_is_now(ledger: SqliteLedger) -> None:
    began(ledger, "r")
    assert ledger.row("r") == ledger.runs()[0]
    ledger.append("r", one_of_each())
    row = ledger.row("r")
    assert row is not None
    assert row.ended
    assert ledger.row("none") is None


def test_a_second_record_of_one_key_is_our_fault_and_writes_nothing(ledger: SqliteLedger) -> None:
    ledger.append("r", notices(2))
    with pytest.raises(HarnessFailed, match="Noticed 1 of iteration 1"):
        ledger.append("r", (*notices(1, first=2), *notices(1, first=1)))
    assert ledger.records("r") == notices(2)
    ledger.append("r", notices(1, first=2))
    assert ledger.verify_chain("r") is None


def test_a_number_that_json_lacks_is_refused_and_nothing_is_written(ledger: SqliteLedger) -> None:
    with pytest.raises(HarnessFailed, match="number"):
        ledger.append("r", (*notices(1), told.TurnRetried(1, 1, True, "", float("nan"))))
    assert ledger.records("r") == ()


def test_secrets_are_masked_wherever_they_stand(ledger: SqliteLedger) -> None:
    facts: dict[str, Json] = {"argv": ["--token", SECRET], "env": {SECRET: "value"}}
    ledger.append("r", (told.RunBegan("r", SNAPSHOT, facts), told.CheckBegan(1, 1, f"curl {SECRET}")))
    run_began, check_began = ledger.records("r")
    assert isinstance(run_began, told.RunBegan)
    assert run_began.facts == {"argv": ("--token", "***"), "env": {"***": "value"}}
    assert check_began == told.CheckBegan(1, 1, "curl ***")


@pytest.mark.parametrize(
    "text",
    ["'); DROP TABLE record;--", "\N{PILE OF POO} \0 \x1b[31m", "x" * 1_000_000, "half \ud800 and byte \udcfe", ""],
    ids=["sql", "emoji", "megabyte", "surrogates", "empty"],
)
def test_any_text_is_kept_literally(ledger: SqliteLedger, text: str) -> None:
    records = (told.CheckBegan(1, 1, text), told.Noticed(1, 0, text))
    ledger.append("r", records)
    assert ledger.records("r") == records
    assert ledger.verify_chain("r") is None


def test_runs_are_listed_newest_first_with_what_status_needs(ledger: SqliteLedger) -> None:
    began(ledger, "20261115-1", directory="/caf\udce9")
    began(ledger, "20261115-2", parent="20261115-1")
    ledger.append("20261115-1", one_of_each())
    newest, oldest = ledger.runs()
    assert (newest.id, newest.ended, newest.parent) == ("20261115-2", False, "20261115-1")
    assert (oldest.id, oldest.ended, oldest.parent) == ("20261115-1", True, "")
    assert oldest.directory == "/caf\udce9"
    assert oldest.began_at == 1_800_000_000.5
    assert oldest.process == ProcessIdentity(42, "777", "boot", "host")
    assert [row.id for row in ledger.runs(limit=1)] == ["20261115-2"]


def test_a_run_that_nobody_began_is_known_by_its_records(ledger: SqliteLedger) -> None:
    ledger.append("r", notices(1))
    assert [(row.id, row.directory, row.pid) for row in ledger.runs()] == [("r", "", 0)]


def test_a_run_cannot_begin_twice(ledger: SqliteLedger) -> None:
    began(ledger, "r")
    with pytest.raises(HarnessFailed):
        began(ledger, "r")
    assert len(ledger.runs()) == 1


def test_a_run_taken_up_again_belongs_to_the_new_process(ledger: SqliteLedger) -> None:
    began(ledger, "r")
    ledger.assign_process("r", current_process())
    (row,) = ledger.runs()
    assert row.process == current_process()
    assert row.process.alive
    assert row.began_at == 1_800_000_000.5
    with pytest.raises(HarnessFailed, match="not known"):
        ledger.assign_process("other", current_process())


@pytest.mark.parametrize(
    ("name", "found"),
    [("20261115-1", "20261115-1"), ("20261115-2", "20261115-22"), ("20261116", "20261116-3"), ("latest", "20261116-3")],
)
def test_a_run_is_found_by_id_unique_beginning_or_latest(ledger: SqliteLedger, name: str, found: str) -> None:
    for run in ("20261115-1", "20261115-12", "20261115-22", "20261116-3"):
        began(ledger, run)
    assert ledger.find(name) == found


@pytest.mark.parametrize("name", ["2027", "", "%", "_", "\udcff", "latest "])
def test_an_unknown_name_is_refused_in_one_line(ledger: SqliteLedger, name: str) -> None:
    if name:
        began(ledger, "20261115-1")
    with pytest.raises(Refused) as refusal:
        ledger.find(name)
    assert "\n" not in str(refusal.value)


def test_latest_of_nothing_is_refused(ledger: SqliteLedger) -> None:
    with pytest.raises(Refused, match="no run yet"):
        ledger.find("latest")


def test_an_ambiguous_name_lists_the_candidates(ledger: SqliteLedger) -> None:
    for number in range(9):
        began(ledger, f"20261115-{number}")
    with pytest.raises(Refused) as refusal:
        ledger.find("2026")
    said = str(refusal.value)
    assert "20261115-0, 20261115-1" in said
    assert "…" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("asked", "wish"),
    [
        ("", ""),
        ("pause", "pause"),
        ("pause resume", ""),
        ("pause -", ""),
        ("pause resume pause", "pause"),
        ("pause pause resume", ""),
        ("resume", ""),
        ("cancel", "cancel"),
        ("cancel resume", "cancel"),
        ("cancel -", "cancel"),
        ("cancel pause resume", "cancel"),
        ("cancel pause", "cancel"),
        ("pause cancel cancel -", "cancel"),
    ],
)
def test_of_pause_and_resume_the_last_counts_and_nothing_takes_a_cancel_back(
    ledger: SqliteLedger, asked: str, wish: str
) -> None:
    for run in ("r", "s", "t"):
        began(ledger, run)
    ledger.request_control("s", "pause")
    for kind in asked.split():
        ledger.request_control("r", kind.replace("-", ""))
    assert [ledger.requested_control(run) for run in ("r", "s", "t")] == [wish, "pause", ""]


def test_a_wish_for_an_unknown_run_is_an_error(ledger: SqliteLedger) -> None:
    with pytest.raises(HarnessFailed, match="run r is not known"):
        ledger.request_control("r", "cancel")


def test_a_wish_that_no_run_understands_is_an_error(ledger: SqliteLedger) -> None:
    began(ledger, "r")
    with pytest.raises(HarnessFailed, match="'sleep'"):
        ledger.request_control("r", "sleep")
    assert ledger.requested_control("r") == ""


# Words


def test_words_come_in_order_each_after_the_one_before(ledger: SqliteLedger) -> None:
    began(ledger, "r")
    began(ledger, "s")
    numbers = [ledger.add_user_message(run, f"to {run}") for run in ("r", "s", "r", "r", "s")]
    assert numbers == sorted({*numbers})
    assert numbers[0] == 1
    one, two, three = (numbers[place] for place in (0, 2, 3))
    assert ledger.user_messages("r", 0) == ((one, "to r"), (two, "to r"), (three, "to r"))
    assert ledger.user_messages("r", one) == ((two, "to r"), (three, "to r"))
    assert ledger.user_messages("r", three) == ()
    assert [text for _, text in ledger.user_messages("s", 0)] == ["to s", "to s"]


@pytest.mark.parametrize(
    "text",
    ["'); DROP TABLE word;--", "\N{PILE OF POO} \0 \x1b[31m\r\n", "x" * 1_000_000, "half \ud800 and byte \udcfe", ""],
    ids=["sql", "emoji", "megabyte", "surrogates", "empty"],
)
def test_any_words_are_kept_literally(ledger: SqliteLedger, text: str) -> None:
    began(ledger, "r")
    number = ledger.add_user_message("r", text)
    assert ledger.user_messages("r", 0) == ((number, text),)


def test_secrets_in_words_are_masked(ledger: SqliteLedger) -> None:
    began(ledger, "r")
    ledger.add_user_message("r", f"log in with {SECRET}!")
    assert ledger.user_messages("r", 0) == ((1, "log in with ***!"),)


def test_words_to_an_unknown_run_are_an_error(ledger: SqliteLedger) -> None:
    with pytest.raises(HarnessFailed, match="run r is not known"):
        ledger.add_user_message("r", "hello")
    began(ledger, "s")
    assert ledger.add_user_message("s", "hello") == 1


# Sessions


def test_a_run_has_ended_when_its_end_is_the_last_that_was_written(ledger: SqliteLedger) -> None:
    began(ledger, "r")
    seen: list[tuple[bool, told.Record | None]] = []
    for record in (notices(1)[0], end(), told.Resumed(2, 5.0, 1.0), notices(1, first=1)[0], end(2)):
        ledger.append("r", (record,))
        seen.append((ledger.runs()[0].ended, ledger.run_end("r")))
    assert seen == [(False, None), (True, end()), (False, None), (False, None), (True, end(2))]
    assert ledger.verify_chain("r") is None


def test_a_run_without_records_has_not_ended(ledger: SqliteLedger) -> None:
    began(ledger, "r")
    assert (ledger.runs()[0].ended, ledger.run_end("r"), ledger.run_end("none")) == (False, None, None)


def test_a_run_of_two_sessions_comes_back_equal(ledger: SqliteLedger) -> None:
    records = (*one_of_each()[:-1], end(2), told.Resumed(3, 7.5, 2.5), told.Noticed(1, 9, "x"), end(3))
    ledger.append("r", records)
    assert build_state(ledger.records("r")) == build_state(records)
    with pytest.raises(HarnessFailed, match="RunEnded 3"):
        ledger.append("r", (end(3),))


def test_a_run_that_ends_again_has_the_figures_of_its_last_end_alone(ledger: SqliteLedger) -> None:
    ledger.append("other", (end(iterations=5),))
    ledger.append("r", (end(status="ABORTED", reason="STALL", iterations=3, micro_usd=None, tokens=9),))
    ledger.append("r", (told.Resumed(2, 5.0, 1.0),))
    between = ledger.statistics(DAY, DAY).runs
    assert (between.count, between.aborted.count) == (2, 1)
    ledger.append("r", (end(2, iterations=4, micro_usd=70, ended_s=NOON_S + 86_400, verified=False),))
    assert [cell.reason for cell in ledger.statistics(0, DAY + 1).runs.cells] == [""]
    assert ledger.statistics(DAY, DAY).runs.count == 1
    after = ledger.statistics(DAY, DAY + 1)
    assert (after.runs.count, after.runs.sum("iterations"), after.p95_micro_usd) == (2, 9, 70)
    assert [run.iterations for run in ledger.past_runs()] == [4, 5]


def test_a_last_end_without_figures_leaves_none(ledger: SqliteLedger) -> None:
    ledger.append("r", (end(), told.Resumed(2, 5.0, 1.0), replace(end(2), metrics=None)))
    assert ledger.statistics(0, DAY + 1) == PeriodTotals(0, DAY + 1)
    assert ledger.past_runs() == ()


def test_an_end_that_is_not_written_leaves_the_figures_of_the_one_before(ledger: SqliteLedger) -> None:
    ledger.append("r", (*notices(1), end(iterations=3)))
    before = ledger.statistics(DAY, DAY)
    with pytest.raises(HarnessFailed):
        ledger.append("r", (end(2, iterations=8), *notices(1)))
    assert ledger.statistics(DAY, DAY) == before


def test_each_record_has_the_time_at_which_it_was_written(ledger: SqliteLedger) -> None:
    assert ledger.timed_records("r") == ()
    start = time.time()
    ledger.append("r", notices(2))
    middle = time.time()
    ledger.append("r", notices(1, first=2))
    stamped = ledger.timed_records("r")
    assert tuple(record for _, record in stamped) == notices(3)
    assert start <= stamped[0][0] == stamped[1][0] <= middle <= stamped[2][0] <= time.time()


# Children


def family(ledger: SqliteLedger, *born: str) -> None:
    for one in born:
        parent, _, run = one.rpartition(">")
        began(ledger, run, parent=parent)


def names(rows: tuple[RunRow, ...]) -> str:
    return " ".join(row.id for row in rows)


def test_children_and_all_below_are_listed_oldest_first(ledger: SqliteLedger) -> None:
    family(ledger, "a", "z", "a>d", "d>g", "z>y", "a>c", "g>b", "d>e")
    ledger.append("d", (end(),))
    assert names(ledger.children("a")) == "d c"
    assert names(ledger.descendants("a")) == "d g c b e"
    assert names(ledger.descendants("g")) == "b"
    assert [row.ended for row in ledger.children("a")] == [True, False]
    assert ledger.children("a") == tuple(row for row in ledger.runs()[::-1] if row.parent == "a")


@pytest.mark.parametrize("run", ["", "z", "none", "'); --"])
def test_who_has_no_children_has_no_descendants(ledger: SqliteLedger, run: str) -> None:
    family(ledger, "a", "z", "a>b")
    assert (ledger.children(run), ledger.descendants(run)) == ((), ())


def test_a_circle_of_parents_ends(ledger: SqliteLedger) -> None:
    family(ledger, "c>a", "a>b", "b>c", "c>d", "e>e")
    assert names(ledger.descendants("a")) == "b c d"
    assert names(ledger.descendants("b")) == "a c d"
    assert (names(ledger.children("e")), names(ledger.descendants("e"))) == ("", "")
