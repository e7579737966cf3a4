"""What every ledger keeps to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphproof import record as told
from ralphproof.errors import HarnessFailed, Refused
from ralphproof.ledger import Ledger, state_of
from ralphproof.ledgers.memory import Memory
from ralphproof.ledgers.process import LoopProcess, this_process
from ralphproof.ledgers.sqlite import Sqlite
from ralphproof.value import TYPE_CHECKING
from tests.ledgers.samples import SNAPSHOT, notices, one_of_each

if TYPE_CHECKING:
    from ralphproof.value import Json

AnyLedger = Sqlite | Memory
SECRET = 'tok"en\\with\nodd é\udcff parts'
KINDS = ("sqlite", "memory")


def hide(text: str) -> str:
    return text.replace(SECRET, "***")


def made(kind: str, folder: Path) -> AnyLedger:
    return Sqlite.open(str(folder / "repo"), hide) if kind == "sqlite" else Memory(hide)


@pytest.fixture(params=KINDS)
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyLedger]:
    opened = made(request.param, tmp_path)
    yield opened
    opened.close()


def began(ledger: AnyLedger, run: str, directory: str = "/project", parent: str = "") -> None:
    ledger.begin_run(run, directory, 1_800_000_000.5, LoopProcess(42, "777", "boot", "host"), parent)


def test_it_is_a_ledger(ledger: AnyLedger) -> None:
    plain: Ledger = ledger
    assert plain.records("none") == ()
    assert plain.wish("none") == ""


def test_every_kind_of_record_comes_back_equal_and_in_order(ledger: AnyLedger) -> None:
    records = one_of_each()
    assert {type(record) for record in records} == set(told.Record.__args__)
    ledger.append("r", records[:3])
    ledger.append("r", records[3:])
    assert ledger.records("r") == records
    assert state_of(ledger.records("r")) == state_of(records)
    assert ledger.verify_chain("r") is None


def test_runs_do_not_mix(ledger: AnyLedger) -> None:
    ledger.append("a", notices(2))
    ledger.append("b", notices(1, first=5))
    ledger.append("a", notices(1, first=2))
    assert ledger.records("a") == notices(3)
    assert ledger.records("b") == notices(1, first=5)


def test_a_second_record_of_one_key_is_our_fault_and_writes_nothing(ledger: AnyLedger) -> None:
    ledger.append("r", notices(2))
    with pytest.raises(HarnessFailed, match="Noticed 1 of iteration 1"):
        ledger.append("r", (*notices(1, first=2), *notices(1, first=1)))
    assert ledger.records("r") == notices(2)
    ledger.append("r", notices(1, first=2))
    assert ledger.verify_chain("r") is None


def test_a_number_that_json_lacks_is_refused_and_nothing_is_written(ledger: AnyLedger) -> None:
    with pytest.raises(HarnessFailed, match="number"):
        ledger.append("r", (*notices(1), told.TurnAgain(1, 1, True, "", float("nan"))))
    assert ledger.records("r") == ()


def test_secrets_are_masked_wherever_they_stand(ledger: AnyLedger) -> None:
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
def test_any_text_is_kept_literally(ledger: AnyLedger, text: str) -> None:
    records = (told.CheckBegan(1, 1, text), told.Noticed(1, 0, text))
    ledger.append("r", records)
    assert ledger.records("r") == records
    assert ledger.verify_chain("r") is None


def test_runs_are_listed_newest_first_with_what_status_needs(ledger: AnyLedger) -> None:
    began(ledger, "20261115-1", directory="/caf\udce9")
    began(ledger, "20261115-2", parent="20261115-1")
    ledger.append("20261115-1", one_of_each())
    newest, oldest = ledger.runs()
    assert (newest.id, newest.ended, newest.parent) == ("20261115-2", False, "20261115-1")
    assert (oldest.id, oldest.ended, oldest.parent) == ("20261115-1", True, "")
    assert oldest.directory == "/caf\udce9"
    assert oldest.began_at == 1_800_000_000.5
    assert oldest.process == LoopProcess(42, "777", "boot", "host")
    assert [row.id for row in ledger.runs(limit=1)] == ["20261115-2"]


def test_a_run_that_nobody_began_is_known_by_its_records(ledger: AnyLedger) -> None:
    ledger.append("r", notices(1))
    assert [(row.id, row.directory, row.pid) for row in ledger.runs()] == [("r", "", 0)]


def test_a_run_cannot_begin_twice(ledger: AnyLedger) -> None:
    began(ledger, "r")
    with pytest.raises(HarnessFailed):
        began(ledger, "r")
    assert len(ledger.runs()) == 1


def test_a_run_taken_up_again_belongs_to_the_new_process(ledger: AnyLedger) -> None:
    began(ledger, "r")
    ledger.take_up("r", this_process())
    (row,) = ledger.runs()
    assert row.process == this_process()
    assert row.process.alive
    assert row.began_at == 1_800_000_000.5
    with pytest.raises(HarnessFailed, match="not known"):
        ledger.take_up("other", this_process())


@pytest.mark.parametrize(
    ("name", "found"),
    [("20261115-1", "20261115-1"), ("20261115-2", "20261115-22"), ("20261116", "20261116-3"), ("latest", "20261116-3")],
)
def test_a_run_is_found_by_id_unique_beginning_or_latest(ledger: AnyLedger, name: str, found: str) -> None:
    for run in ("20261115-1", "20261115-12", "20261115-22", "20261116-3"):
        began(ledger, run)
    assert ledger.find(name) == found


@pytest.mark.parametrize("name", ["2027", "", "%", "_", "\udcff", "latest "])
def test_an_unknown_name_is_refused_in_one_line(ledger: AnyLedger, name: str) -> None:
    if name:
        began(ledger, "20261115-1")
    with pytest.raises(Refused) as refusal:
        ledger.find(name)
    assert "\n" not in str(refusal.value)


def test_latest_of_nothing_is_refused(ledger: AnyLedger) -> None:
    with pytest.raises(Refused, match="no run yet"):
        ledger.find("latest")


def test_an_ambiguous_name_lists_the_candidates(ledger: AnyLedger) -> None:
    for number in range(9):
        began(ledger, f"20261115-{number}")
    with pytest.raises(Refused) as refusal:
        ledger.find("2026")
    said = str(refusal.value)
    assert "20261115-0, 20261115-1" in said
    assert "…" in said
    assert "\n" not in said


def test_the_last_wish_counts_and_can_be_taken_back(ledger: AnyLedger) -> None:
    began(ledger, "r")
    began(ledger, "s")
    assert ledger.wish("r") == ""
    ledger.ask("r", "pause")
    ledger.ask("r", "cancel")
    assert (ledger.wish("r"), ledger.wish("s")) == ("cancel", "")
    ledger.ask("r", "")
    assert ledger.wish("r") == ""


def test_a_wish_for_an_unknown_run_is_an_error(ledger: AnyLedger) -> None:
    with pytest.raises(HarnessFailed):
        ledger.ask("r", "cancel")
