"""The read model on real runs: what it tells is what happened, and it costs what has changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from glob import glob
from pathlib import Path
from tempfile import gettempdir
from typing import Any, cast

import pytest

from ralphproof.base.errors import HarnessFailed, NotThere, RalphError, Refused
from ralphproof.reports.daily_report import project_report_json
from ralphproof.runs.control import RunControl
from ralphproof.store.ledger import LedgerQueries
from ralphproof.store.run_state import find_live_turn
from ralphproof.views.events import MAX_EVENTS, EventBatch, LiveEvents
from ralphproof.views.read_model import ReadModel
from tests.cli.steering import UNTIL_GO, detached, let, lose_harness, over, reached, rests, waits_for
from tests.ralph import Ralph, done, say, until, write

CHECK = ("--check", "test -f done")


def board_of(ralph: Ralph) -> ReadModel:
    return ReadModel(ralph.project)


def lied(ralph: Ralph) -> str:
    """A run that tries, lies and then does the work; its id."""
    agent = ralph.script([say("I try."), {"cost": 0.25}], [done()], [write(done="yes"), done()])
    assert ralph("run", "-p", "make it so\nand more", "--agent", agent, *CHECK).code == 0
    return str(ralph.runs()[0].id)


def test_a_list_tells_of_each_run_how_it_ended_and_what_it_cost(ralph: Ralph) -> None:
    run = lied(ralph)
    told: Any = board_of(ralph).runs()
    line = told["runs"][0]
    assert (told["total"], line["id"], line["state"], line["status"], line["proof"]) == (
        1, run, "ended", "COMPLETED", "verified",
    )  # fmt: skip
    assert (line["title"], line["agent"], line["iterations"]) == ("make it so", "scripted", 3)
    assert line["cost"] == {"v": 1, "type": "money", "usd": 0.25, "atLeast": True, "notional": False}, (
        "unknown is not zero"
    )
    assert line["sandbox"] == {"v": 1, "type": "sandbox", "name": "direct", "strength": "none"}


def test_a_page_tells_a_lie_from_a_pass(ralph: Ralph) -> None:
    page: Any = board_of(ralph).run(lied(ralph))
    first, lie, last = page["timeline"]
    assert (first["claim"], first["verdict"]["result"], first["checks"][0]["state"]) == (None, "retry", "failed")
    assert (lie["claim"], lie["verdict"]["result"]) == ("DONE", "retry")
    assert "claim is refused" in lie["verdict"]["reason"]
    assert (last["verdict"]["result"], last["files"], last["checks"][0]["state"]) == ("passed", ["done"], "passed")
    assert page["failingCounts"] == [1, 1, 1, 0]
    assert page["outcome"]["status"] == "COMPLETED"
    assert page["outcomeLines"][-1].startswith("COMPLETED, verified")
    json.dumps(page)


def test_who_has_seen_a_part_is_told_the_rest(ralph: Ralph) -> None:
    board, run = board_of(ralph), lied(ralph)
    whole: Any = board.run(run)
    assert whole["complete"]
    assert board.run(run, whole["seq"])["timeline"] == []
    touched = board.project.ledger().queries.records_since(run, 0)
    middle = next(seq for seq, _, record in touched if type(record).__name__ == "Judged")
    later: Any = board.run(run, middle)
    assert [one["number"] for one in later["timeline"]] == [2, 3]
    assert not later["complete"]


def test_a_live_run_is_followed_from_another_process(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([waits_for("one"), write(done="yes"), done()]), *CHECK)
    board = board_of(ralph)
    reached(ralph, "one")
    before, page = board.moment(), board.run(run)
    assert (page["state"], page["activity"]) == ("running", "iteration 1: the agent works")
    assert board.moment() == before, "nothing has changed"
    let(ralph, "one")
    over(ralph, run)
    assert board.moment() != before
    after: Any = board.run(run, int(str(page["seq"])))
    assert (after["state"], [one["number"] for one in after["timeline"]]) == ("ended", [1])


def test_what_an_agent_says_is_overheard_as_it_comes_and_read_again_later(ralph: Ralph) -> None:
    tool = {"tool": {"name": "Bash", "summary": "ls", "output": "a.py", "ok": True}}
    run = detached(ralph, ralph.script([say("first"), tool, waits_for("one"), say("last"), done()]), *CHECK, "-m", "1")
    heard: list[EventBatch] = []
    listening = LiveEvents(ralph.project, run, heard.append)
    listening.start()
    until(lambda: any(event.get("text") == "first" for one in heard for event in one.events), "it is heard live")
    let(ralph, "one")
    over(ralph, run)
    until(lambda: any(event.get("kind") == "ended" for one in heard for event in one.events), "the end is heard")
    listening.stop()
    live = [event for one in heard for event in one.events]
    again: Any = board_of(ralph).activity(run, "agent_001")
    assert [event["number"] for event in live] == [*range(len(live))]
    assert again["events"] == live


def test_a_flood_is_cut_and_counted(ralph: Ralph) -> None:
    many = [say(f"word {number}") for number in range(MAX_EVENTS + 100)]
    agent = ralph.script([*many, done()])
    ralph("run", "-p", "make it so", "--agent", agent, *CHECK, "-m", "1")
    told: Any = board_of(ralph).activity(ralph.runs()[0].id, "agent_001")
    assert len(told["events"]) == MAX_EVENTS
    assert told["dropped"] == told["events"][0]["number"] > 0
    assert told["events"][-1]["kind"] == "ended"


def test_logs_are_read_in_pieces_and_by_name_alone(ralph: Ralph) -> None:
    run, board = lied(ralph), board_of(ralph)
    listed: Any = board.logs(run)
    agent = next(one for one in listed["logs"] if one["name"] == "agent_001")
    whole: Any = board.log(run, "agent_001", offset=0)
    assert whole["bytes"] == agent["bytes"] == len(whole["text"].encode())
    parts, at = "", 0
    while True:
        piece: Any = board.log(run, "agent_001", offset=at, most=7)
        parts, at = parts + piece["text"], piece["nextOffset"]
        if not piece["more"]:
            break
    assert parts == whole["text"]
    assert "make it so" in str(board.log(run, "agent_001", "prompt")["text"])
    for name in ("../../../ledger.db", "/etc/passwd", "agent_001.ndjson", "", "agent_999", "agent_001\0"):
        with pytest.raises(Refused):
            board.log(run, name)


def test_a_letter_is_not_cut_in_two(ralph: Ralph) -> None:
    ralph("run", "-p", "x", "--agent", ralph.script([done()]), "--check", "printf 'äöüßé€𝄞äöü'", "-m", "1")
    run, board = ralph.runs()[0].id, board_of(ralph)
    listed: Any = board.logs(run)
    name = next(one["name"] for one in listed["logs"] if one["kind"] == "guardrail")
    for most in range(4, 9):
        text, at = "", 0
        while True:
            piece: Any = board.log(run, name, offset=at, most=most)
            text, at = text + piece["text"], piece["nextOffset"]
            if not piece["more"]:
                break
        assert text == "äöüßé€𝄞äöü"


def test_half_a_letter_at_the_end_of_a_log_that_grows_waits_for_its_other_half(ralph: Ralph) -> None:
    agent = ralph.script([{"raw": "abc \xe2\x82"}, waits_for("one"), {"raw": "\xac def"}, waits_for("two"), done()])
    run, board = detached(ralph, agent), board_of(ralph)
    reached(ralph, "one")
    until(lambda: _piece(board, run)["text"].endswith("abc "), "the log has come so far")
    before = _piece(board, run)
    assert (before["nextOffset"], before["more"]) == (before["bytes"] - 2, False)
    let(ralph, "one")
    reached(ralph, "two")
    until(lambda: _piece(board, run, before["nextOffset"])["text"] == "€ def", "the letter is whole")
    let(ralph, "two")
    over(ralph, run)


@pytest.mark.parametrize("most", [1, 7, 30, 64, 65536])
def test_a_secret_is_told_by_no_piece_of_a_log_and_not_by_halves(ralph: Ralph, most: int) -> None:
    """However it is asked for: the pieces say what the whole says, and that is masked."""
    value, key = "correct horse \u00e4 battery", "sk-ant-api03-" + "abcDEF123456" * 6
    ralph("run", "-p", "x", "--agent", ralph.script([done()]), "-m", "1")
    ralph.env["SOME_PASSWORD"] = value  # the run did not know it
    run, board = ralph.runs()[0].id, board_of(ralph)
    log = Path(ralph.project.store) / "runs" / run / "agent_001.ndjson"
    log.write_text(f"{value} and {key}\n{'x' * 100} {key}, {value}. {value}")
    text, at = "", 0
    while True:
        piece = _piece(board, run, at, most)
        text, at = text + piece["text"], piece["nextOffset"]
        if not piece["more"]:
            break
    assert (text, at) == (f"*** and ***\n{'x' * 100} ***, ***. ***", log.stat().st_size)


def test_what_may_become_a_secret_in_a_log_that_grows_waits_for_the_rest(ralph: Ralph) -> None:
    agent = ralph.script(
        [{"raw": "it is correct hor"}, waits_for("one"), {"raw": "se battery."}, waits_for("two"), done()]
    )
    run = detached(ralph, agent)
    ralph.env["SOME_PASSWORD"] = "correct horse battery"
    board = board_of(ralph)
    reached(ralph, "one")
    until(lambda: _piece(board, run)["text"].endswith("it is "), "the log has come so far")
    before = _piece(board, run)
    let(ralph, "one")
    reached(ralph, "two")
    until(lambda: _piece(board, run, before["nextOffset"])["text"] == "***.", "the secret is whole")
    let(ralph, "two")
    over(ralph, run)


def test_what_a_command_prints_behind_the_head_of_its_log_is_told_while_it_runs(ralph: Ralph) -> None:
    waits = "touch ../printed; while ! test -f ../printed-go; do sleep 0.01; done"
    ralph.write({"check.sh": f"head -c 34000000 /dev/zero | tr '\\0' x; echo the end; {waits}\n"})
    run, board = detached(ralph, ralph.script([done()]), "--check", "sh check.sh", "-m", "1"), board_of(ralph)
    reached(ralph, "printed")
    listed: Any = board.logs(run)
    name = next(one["name"] for one in listed["logs"] if one["live"])

    def end() -> Any:
        return board.log(run, name, most=20)

    until(lambda: end()["text"] == "x" * 12 + "the end\n", "its end is told")
    grows, known = end(), next(one for one in cast(Any, board.logs(run))["logs"] if one["name"] == name)
    assert (known["live"], known["bytes"], grows["bytes"], grows["more"]) == (True, 34_000_008, 34_000_008, False)
    let(ralph, "printed")
    over(ralph, run)
    assert end() == {**grows, "live": False}


def _piece(board: ReadModel, run: str, offset: int = 0, most: int = 65536) -> dict[str, Any]:
    return board.log(run, "agent_001", offset=offset, most=most)


@pytest.mark.parametrize("data", [b"\x80\x80abc\x80\x80\x80\x80\x80def\xf0\x80", b"\xc3", b"\xe2\x82a\xff\xfe\xc3\xa4"])
def test_what_is_no_text_is_read_in_pieces_without_a_hole(ralph: Ralph, data: bytes) -> None:
    """Whichever piece is asked for, the next begins where it ended, and nothing is left out."""
    ralph("run", "-p", "x", "--agent", ralph.script([done()]), "-m", "1")
    run, board = ralph.runs()[0].id, board_of(ralph)
    (Path(ralph.project.store) / "runs" / run / "agent_001.ndjson").write_bytes(data)
    for most in range(1, 6):
        text, at = "", 0
        while True:
            piece = _piece(board, run, at, most)
            assert piece["offset"] == at
            text, at = text + piece["text"], piece["nextOffset"]
            if not piece["more"]:
                break
        assert (at, text.replace("\ufffd", "")) == (len(data), data.decode("utf-8", "ignore"))


def test_a_diff_is_that_of_an_iteration_or_of_the_run(ralph: Ralph) -> None:
    run, board = lied(ralph), board_of(ralph)
    assert board.diff(run, 1)["changes"] == []
    last: Any = board.diff(run, 3)
    assert [one["path"] for one in last["changes"]] == ["done"]
    assert "+yes" in last["patch"]
    assert not last["truncated"]
    assert board.diff(run, most=10)["truncated"]
    with pytest.raises(Refused, match="saved no iteration 9"):
        board.diff(run, 9)


def test_a_run_that_there_is_not_is_refused(ralph: Ralph) -> None:
    board = board_of(ralph)
    assert board.runs()["runs"] == []
    for look in (board.run, board.logs, board.diff, board.stories, lambda run: board.activity(run, "agent_001")):
        with pytest.raises(Refused, match="no such run"):
            look("20260101-000000-aaaa")
    with pytest.raises(Refused, match="no such task"):
        board.task("TASK-1")
    with pytest.raises(Refused, match="is no day"):
        project_report_json(board.project, "yesteryear")


def test_a_run_that_lost_its_harness_is_seen_without_a_new_record(ralph: Ralph) -> None:
    run, board = detached(ralph, ralph.script([waits_for("one")]), *CHECK), board_of(ralph)
    reached(ralph, "one")
    before = board.moment()
    row = ralph.runs()[0]
    os.kill(row.pid, 9)
    until(lambda: not row.process.alive, "the harness is dead")
    assert board.moment() != before
    page: Any = board.run(run)
    assert (page["state"], "--resume" in page["headline"] or "lost its harness" in page["headline"]) == (
        "orphaned", True,
    )  # fmt: skip
    assert ralph("cancel", run).code == 0


def test_it_steers_as_the_verbs_do(ralph: Ralph) -> None:
    agent = ralph.script([waits_for("one")], [UNTIL_GO], [write(done="yes"), done()])
    run, board = detached(ralph, agent, *CHECK), board_of(ralph)
    helm = RunControl(board.project)
    reached(ralph, "one")
    assert helm.pause(run) == f"run {run} will rest before its next turn"
    assert board.run(run)["requested"] == "pause"
    let(ralph, "one")
    rests(ralph, run)
    assert board.run(run)["state"] == "paused"
    assert "reads it in its next prompt" in helm.say(run, "-")
    assert board.run(run)["unreadMessages"] == 1
    assert helm.resume(run) == f"run {run} goes on"
    assert "asked to end" in helm.cancel(run)
    assert over(ralph, run)["reason"] == "CANCELLED"
    for refused in (helm.pause, helm.cancel, helm.resume, lambda name: helm.say(name, "hello")):
        with pytest.raises(Refused):
            refused(run)
    with pytest.raises(Refused, match="no such run"):
        helm.pause("20260101-000000-aaaa")
    with pytest.raises(Refused, match="nothing to say"):
        helm.say(run, " ")


def test_many_threads_may_look_at_once(ralph: Ralph) -> None:
    run, board = lied(ralph), board_of(ralph)
    wrong: list[BaseException] = []

    def look() -> None:
        try:
            for _ in range(5):
                assert board.run(run)["seq"] == board.runs()["seq"]
        except BaseException as error:  # noqa: BLE001 (told below)
            wrong.append(error)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_status_loads_nothing_of_the_displays_beside_it() -> None:
    code = (
        "import sys, ralphproof.cli.status; print([m for m in sys.modules if m.startswith(('textual', 'starlette'))])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


def limit_of(page: Any, name: str) -> Any:
    return next(one for one in page["limits"] if one["name"] == name)


def test_a_turn_that_goes_on_is_told_as_far_as_it_has_come(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([say("first"), waits_for("one")]), *CHECK, "-m", "1")
    reached(ralph, "one")
    told: Any = board_of(ralph).activity(run, "agent_001")  # it must not wait for the end
    assert [event["text"] for event in told["events"] if event["kind"] == "said"] == ["first"]
    ralph("cancel", run)


def test_a_run_whose_harness_died_is_at_nothing_and_ages_no_more(ralph: Ralph) -> None:
    run, board = detached(ralph, ralph.script([waits_for("one")]), *CHECK), board_of(ralph)
    reached(ralph, "one")
    seen: Any = board.run(run)
    assert seen["timeline"][0]["endedAt"] is None
    lose_harness(ralph, run)
    past = find_live_turn(ralph.project, run)
    assert past is not None
    os.kill(past.keeper[0], 9)
    until(lambda: board.run(run)["state"] == "crashed", "nothing of it is at work")
    page: Any = board.run(run, seen["seq"])
    assert page["timeline"][0]["endedAt"] is not None, "it is told, although no record came"
    assert page["timeline"][0]["turns"][0]["endedAt"] is not None
    assert limit_of(page, "time")["used"] == limit_of(board.run(run), "time")["used"]
    ralph("cancel", run)


def test_a_cancelled_run_leaves_no_iteration_at_work(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([waits_for("one")]), *CHECK)
    reached(ralph, "one")
    assert ralph("cancel", run).code == 0
    page: Any = board_of(ralph).run(run)
    assert page["timeline"][-1]["endedAt"] is not None


def test_a_run_that_is_taken_up_has_the_limits_of_now_and_is_looked_after(ralph: Ralph) -> None:
    agent = ralph.script([say("no")], [waits_for("one")])
    assert ralph("run", "-p", "x", "--agent", agent, *CHECK, "-m", "1").code == 1
    run = ralph.runs()[0].id
    live = ralph.start("run", "--resume", run, "-m", "5")
    reached(ralph, "one")
    board = board_of(ralph)  # it comes when the run is at work again
    before, page = board.moment(), board.run(run)
    assert (limit_of(page, "iterations")["used"], limit_of(page, "iterations")["max"]) == (2, 5)
    assert page["maximumIterations"] == 5
    lose_harness(ralph, run)
    assert board.moment() != before
    live.process.wait()
    ralph("cancel", run)


def test_what_a_day_cost_is_not_known_where_a_run_does_not_say(ralph: Ralph) -> None:
    ralph("run", "-p", "x", "--agent", ralph.script([done()]), *CHECK, "-m", "1")
    page: Any = board_of(ralph).run(ralph.runs()[0].id)
    assert (limit_of(page, "dailyCost")["used"], limit_of(page, "dailyCost")["atLeast"]) == (None, True)
    assert limit_of(page, "tokens")["used"] is None


def test_a_diff_that_cannot_be_made_leaves_nothing_behind(ralph: Ralph) -> None:
    ralph.commit()
    run = lied(ralph)
    (ralph.root / ".git").rename(ralph.folder / "away")
    (ralph.root / ".git").mkdir()
    before = set(glob(f"{gettempdir()}/ralph-look-*"))
    with pytest.raises(RalphError):
        board_of(ralph).diff(run)
    assert set(glob(f"{gettempdir()}/ralph-look-*")) <= before


def test_who_cannot_read_the_record_does_not_say_that_nothing_is_there(ralph: Ralph) -> None:
    run, board = lied(ralph), board_of(ralph)
    ledger = Path(board.project.store, "ledger.db")
    away = ledger.rename(ledger.with_suffix(".away"))
    ledger.mkdir()
    with pytest.raises(RalphError) as told:
        board.run(run)
    ledger.rmdir()
    away.rename(ledger)
    assert not isinstance(told.value, NotThere)


def test_who_overhears_goes_on_when_the_record_could_not_be_read(ralph: Ralph, monkeypatch: pytest.MonkeyPatch) -> None:
    run = detached(ralph, ralph.script([say("first"), waits_for("one")]), *CHECK, "-m", "1")
    reached(ralph, "one")
    heard: list[EventBatch] = []
    faults = iter([HarnessFailed("locked")])
    whole = LedgerQueries.records_since

    def since(look: LedgerQueries, name: str, after: int) -> Any:
        for fault in faults:
            raise fault
        return whole(look, name, after)

    monkeypatch.setattr(LedgerQueries, "records_since", since)
    monkeypatch.setattr("ralphproof.views.events.RETRY_S", 0.01)
    listening = LiveEvents(ralph.project, run, heard.append)
    listening.start()
    until(lambda: any(event.get("text") == "first" for one in heard for event in one.events), "it is heard after all")
    listening.stop()
    ralph("cancel", run)
