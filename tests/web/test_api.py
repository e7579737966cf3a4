"""What the API tells of runs that are over, and what it never tells."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pytest

from ralphproof.runs.open_project import open_project
from tests.ralph import Ralph, done
from tests.web.served import Served, serve

SECRET = "what nobody may see"
GIB = 1 << 30
MOST_MORE_KB = 48 * 1024  # that reading a piece may cost, Python's own needs included


def test_the_runs_and_one_of_them(onlooking: Served, place: Ralph) -> None:
    listed = onlooking.ask("/api/runs")
    assert listed.headers["content-type"] == "application/json"
    assert (listed.json["total"], [line["id"] for line in listed.json["runs"]]) == (1, [place.runs()[0].id])
    run = place.runs()[0].id
    for name in (run, run[:-1], "latest"):
        page = onlooking.ask(f"/api/runs/{name}").json
        assert (page["id"], page["status"], page["proof"]) == (run, "COMPLETED", "verified")
        assert [one["number"] for one in page["timeline"]] == [1, 2]
    assert onlooking.ask(f"/api/runs/{run}?after={page['seq']}").json["timeline"] == []


def test_a_page_is_told_whether_it_may_steer(onlooking: Served, served: Served) -> None:
    assert [one.ask("/api/runs?limit=1").json["control"] for one in (onlooking, served)] == [False, True]


def test_logs_activity_and_changes(onlooking: Served) -> None:
    logs = onlooking.ask("/api/runs/latest/logs").json["logs"]
    assert {log["name"] for log in logs} >= {"agent_001", "agent_002", "guardrail_002_sh_check_sh"}
    log = onlooking.ask("/api/runs/latest/log?name=guardrail_002_sh_check_sh").json
    assert (log["text"], log["bytes"], log["more"]) == ("looked\n", 7, False)
    piece = onlooking.ask("/api/runs/latest/log?name=guardrail_002_sh_check_sh&offset=2&most=3").json
    assert (piece["text"], piece["nextOffset"], piece["more"]) == ("oke", 5, True)
    prompt = onlooking.ask("/api/runs/latest/log?name=agent_001&part=prompt").json
    assert "make it so" in prompt["text"]
    activity = onlooking.ask("/api/runs/latest/activity?log=agent_001").json
    assert "not yet" in [event.get("text") for event in activity["events"]]
    diff = onlooking.ask("/api/runs/latest/diff?iteration=2").json
    assert [file["path"] for file in diff["changes"]] == ["done"]
    assert "+yes" in diff["patch"]


def test_tasks_stories_and_the_report(onlooking: Served) -> None:
    assert [lane["name"] for lane in onlooking.ask("/api/tasks").json["lanes"]][:2] == ["todo", "coder"]
    assert "lanes" in onlooking.ask("/api/runs/latest/stories").json
    assert onlooking.ask("/api/report").json["overall"]["loops"] == 1
    assert onlooking.ask("/api/report?from=2020-01-01&to=2020-01-02").json["overall"]["loops"] == 0


@pytest.mark.parametrize("path", [
    "/api/runs/nobody", "/api/runs/nobody/logs", "/api/runs/nobody/log?name=agent_001", "/api/runs/nobody/diff",
    "/api/runs/nobody/stories", "/api/runs/nobody/activity?log=agent_001", "/api/runs/latest/log?name=agent_099",
    "/api/runs/latest/log", "/api/runs/latest/activity", "/api/runs/latest/activity?log=agent_099",
    "/api/tasks/nothing", "/api/tasks/%00", "/api/runs/%00", "/api/runs/a%0Ab", "/api/runs/a%20b", "/api", "/api/",
    "/static/", "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd",
    "/static/js", "/index.html", "/api/runs/", "/api/runs/latest/",
])  # fmt: skip
def test_what_is_not_there_is_not_found(onlooking: Served, path: str) -> None:
    answer = onlooking.ask(path)
    assert answer.status == 404
    assert answer.error


@pytest.mark.parametrize("query", [
    "runs?limit=0", "runs?limit=501", "runs?limit=x", "runs?limit=-1", "runs?limit=1e3", "runs?limit=",
    "runs?before=a/b", "runs?before=%00", "runs/latest?after=-1", "runs/latest?after=9999999999999999999999",
    "runs/latest?after=٣",
    "runs/latest/log?name=agent_001&offset=-1", "runs/latest/log?name=agent_001&most=0",
    "runs/latest/log?name=agent_001&most=262145", "runs/latest/log?name=agent_001&part=turn",
    "runs/latest/diff?iteration=x", "report?from=yesterday", "report?from=2026-13-01",
    "report?from=2026-02-02&to=2026-02-01", "runs/latest/activity?log=agent_001&most=501",
])  # fmt: skip
def test_what_cannot_be_asked_is_refused(onlooking: Served, query: str) -> None:
    answer = onlooking.ask(f"/api/{quote(query, safe='/?&=%')}")
    assert answer.status == 400
    assert answer.error


@pytest.mark.parametrize("day", ["2026-13-01", "2026-02-30", "0000-01-01", "yesterday", "26-01-01"])
@pytest.mark.parametrize("end", ["from", "to"])
def test_a_day_that_there_is_not_is_refused_with_what_would_be_taken(onlooking: Served, end: str, day: str) -> None:
    answer = onlooking.ask(f"/api/report?{end}={day}")
    assert (answer.status, answer.error) == (400, f"{end} must be a day: YYYY-MM-DD")


@pytest.mark.parametrize("name", [
    "..%2f..%2f..%2fproject%2fcheck.sh", "../../../../project/check.sh", "/etc/passwd", "%2fetc%2fpasswd",
    "..%5c..%5ccheck.sh", "agent_001%00", "agent_001/../agent_001", ".", "..", "agent_001.ndjson", "ledger.db",
    "..%252f..%252fcheck.sh", "%c0%ae%c0%ae%2fcheck.sh", "linked", "folder%2fagent_001", "x" * 300,
])  # fmt: skip
@pytest.mark.parametrize("part", ["out", "stderr", "prompt"])
def test_no_name_of_a_log_leads_elsewhere(onlooking: Served, place: Ralph, name: str, part: str) -> None:
    """WB-05: only what a run's commands left has a name here."""
    folder = place.run_folder(place.runs()[0].id)
    for link, to in ((folder / "linked.log", "/etc/passwd"), (folder / "folder", "/etc")):
        if not link.is_symlink():
            link.symlink_to(to)
    answer = onlooking.ask(f"/api/runs/latest/log?name={name}&part={part}")
    assert answer.status == 404
    assert b"root:" not in answer.body
    assert b"test -f" not in answer.body


@pytest.mark.parametrize("path", [
    "/api/runs/..%2f..%2fetc/log?name=passwd", "/api/runs/..%2f..", "/api/runs/%2e%2e/logs", "/api/runs//etc/passwd",
    "/api/runs/..%5c..", "/api/tasks/..%2f..%2fetc",
])  # fmt: skip
def test_no_name_of_a_run_leads_elsewhere(onlooking: Served, path: str) -> None:
    """WB-05."""
    assert onlooking.ask(path).status == 404


@pytest.mark.parametrize("how", ["file", "folder", "runs", "all"])
def test_a_link_that_stands_for_a_log_is_not_followed(ralph: Ralph, how: str) -> None:
    """WB-05: not where the file itself is one, nor a folder above it."""
    ralph.commit()
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    run = ralph.runs()[0].id
    elsewhere = ralph.folder / "elsewhere"
    for folder in (elsewhere, elsewhere / run, elsewhere / "runs" / run):
        folder.mkdir(parents=True)
        for name in ("agent_001.ndjson", "agent_001.stderr.log"):
            (folder / name).write_text(SECRET)
    replace(ralph, run, how, elsewhere)
    served = serve(ralph)
    for part in ("out", "stderr", "prompt"):
        for query in (f"name=agent_001&part={part}", f"name=agent_001&part={part}&offset=0"):
            answer = served.ask(f"/api/runs/{run}/log?{query}")
            assert answer.status in (200, 404)
            assert SECRET not in answer.body.decode()
    assert SECRET not in served.ask(f"/api/runs/{run}/activity?log=agent_001").body.decode()


def replace(ralph: Ralph, run: str, how: str, elsewhere: Path) -> None:
    """Put a link to elsewhere in the place of a log, of a run's folder, of that of all runs, or of ours."""
    kept = Path(ralph.project.store) / "runs" / run
    copy = ralph.root / ".ralph" / "runs" / run
    for name in ("agent_001.ndjson", "agent_001.stderr.log"):
        (kept / name).unlink(missing_ok=True)
        (copy / name).unlink(missing_ok=True)
        if how == "file":
            (copy / name).symlink_to(elsewhere / name)
    if how == "folder":
        copy.rename(ralph.folder / "aside")
        copy.symlink_to(elsewhere)
    elif how == "runs":
        copy.parent.rename(ralph.folder / "aside")
        copy.parent.symlink_to(elsewhere)
    elif how == "all":
        (ralph.root / ".ralph").rename(ralph.folder / "aside")
        (ralph.root / ".ralph").symlink_to(elsewhere)


def test_a_log_of_five_gigabytes_is_read_in_pieces(ralph: Ralph) -> None:
    """WB-14: from anywhere in it, at once, and in as little memory as any other."""
    ralph.commit()
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()]), "--check", "echo looked").code == 0
    name = "guardrail_001_echo_looked"
    store = Path(open_project(str(ralph.root), ralph.env).store) / "runs" / ralph.runs()[0].id
    with (store / f"{name}.log").open("r+b") as log:
        log.truncate(5 * GIB)
        log.seek(5 * GIB - 4)
        log.write(b"end\n")
    served = serve(ralph)
    served.ask(f"/api/runs/latest/log?name={name}&most=1")
    before = resident_kb(served.pid)
    whole = served.ask(f"/api/runs/latest/log?name={name}").json
    assert (whole["bytes"], whole["nextOffset"], whole["more"]) == (5 * GIB, 5 * GIB, False)
    assert whole["text"].endswith("end\n")
    assert len(whole["text"]) <= 65536
    middle = served.ask(f"/api/runs/latest/log?name={name}&offset={3 * GIB}&most=100").json
    assert (middle["offset"], middle["nextOffset"], middle["more"]) == (3 * GIB, 3 * GIB + 100, True)
    first = served.ask(f"/api/runs/latest/log?name={name}&offset=0&most=10").json
    assert first["text"].startswith("looked\n")
    assert served.ask("/api/runs/latest/logs").status == 200
    assert served.ask("/api/runs/latest").status == 200
    assert highest_kb(served.pid) - before < MOST_MORE_KB


def resident_kb(pid: int) -> int:
    return _status(pid, "VmRSS")


def highest_kb(pid: int) -> int:
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def test_an_asset_is_asked_for_again_and_not_sent_twice(onlooking: Served) -> None:
    first = onlooking.ask("/static/app.css")
    assert (first.status, first.headers["content-type"]) == (200, "text/css; charset=utf-8")
    again = onlooking.ask("/static/app.css", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


def test_every_asset_of_the_page_has_its_type(onlooking: Served) -> None:
    from ralphproof.web.app import CONTENT_TYPES, DEFAULT_CONTENT_TYPE, STATIC_FOLDER

    for above, _, names in os.walk(STATIC_FOLDER):
        for name in names:
            path = os.path.relpath(os.path.join(above, name), STATIC_FOLDER)
            answer = onlooking.ask(f"/static/{quote(path)}")
            assert answer.status == 200
            assert answer.headers["content-type"] == CONTENT_TYPES.get(os.path.splitext(name)[1], DEFAULT_CONTENT_TYPE)


def test_secrets_are_masked_in_every_answer(ralph: Ralph) -> None:
    key = "sk-ant-api03-" + "abcDEF123456" * 6
    ralph.commit()
    agent = ralph.script([{"text": f"I found {key}"}, {"write": {"file": f"{key}\n"}}, done()])
    assert ralph("run", "-p", f"do not tell {key}", "--agent", agent, "--check", f"echo {key}").code == 0
    served = serve(ralph)
    paths = ["", "/logs", "/diff", "/activity?log=agent_001", "/log?name=agent_001", "/log?name=agent_001&part=prompt"]
    for path in [*(f"/api/runs/latest{path}" for path in paths), "/api/runs", "/api/tasks", "/api/report"]:
        answer = served.ask(path)
        assert answer.status == 200
        assert key not in answer.body.decode(), path
