"""What is published when a run ends: lines that stay whole, a report of the day, and no harm whatever stands there."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.errors import RalphError, Refused
from ralphproof.engine.metrics import run_metrics_json
from ralphproof.engine.outcome import Metrics
from ralphproof.engine.records import Noticed, RunEnded
from ralphproof.reports.metrics import LINES_FILE, MetricsFolder, MetricsObserver
from ralphproof.store.ledger import SqliteLedger
from tests.needs import require
from tests.store.samples import NOON_S, metrics, one_of_each

OUTCOME = one_of_each()[-1].outcome  # type: ignore[union-attr]
REPORT = "ralph-report-2026-02-20.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    made = SqliteLedger.open(str(tmp_path / "state"))
    yield made
    made.close()


def place(project: Path) -> Path:
    return project / ".ralph" / "metrics"


def end(ledger: SqliteLedger, project: Path, run: str, ended: Metrics, mask: Callable[[str], str] = str) -> None:
    """End a run as a loop does: in the ledger, then before the observer."""
    record = RunEnded(OUTCOME, ended)
    ledger.append(run, (record,))
    MetricsObserver(MetricsFolder(str(project), mask), ledger.statistics, 10_000_000).on_record(record)


def lines(project: Path) -> list[Any]:
    """All lines that can be read."""
    return [json.loads(line) for line in (place(project) / LINES_FILE).read_text().splitlines() if line]


def test_a_run_that_ends_is_a_line_and_part_of_the_report_of_its_day(ledger: SqliteLedger, project: Path) -> None:
    end(ledger, project, "r1", metrics())
    end(ledger, project, "r2", metrics(status="ABORTED", reason="STALL"))
    end(ledger, project, "r3", metrics(ended_s=NOON_S + 86_400))
    first, second, _ = lines(project)
    assert first == run_metrics_json(metrics())
    assert (first["status"], first["endTime"], first["skill"]) == ("COMPLETED", "2026-02-20T12:00:00Z", "tdd")
    assert second["abortReason"] == "STALL"
    report = (place(project) / REPORT).read_text()
    assert report.startswith("# Ralph Loop Performance Report - 2026-02-20\n\n## Overall Stats\n- Total loops: 2\n")
    assert "- Total loops: 1\n" in (place(project) / "ralph-report-2026-02-21.md").read_text()


def test_nothing_is_published_before_the_end_or_without_figures(ledger: SqliteLedger, project: Path) -> None:
    log = MetricsObserver(MetricsFolder(str(project)), ledger.statistics)
    for record in one_of_each()[:-1]:
        log.on_record(record)
    log.on_record(RunEnded(OUTCOME))
    log.on_record(Noticed(1, 0, "x"))
    log.on_events([])
    log.tick()
    assert os.listdir(project) == []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_only_the_owner_may_read_it_and_git_does_not_see_it(ledger: SqliteLedger, project: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        end(ledger, project, "r", metrics())
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (project / ".ralph").rglob("*")}
    assert modes == {"metrics": 0o700, LINES_FILE: 0o600, REPORT: 0o600, ".gitignore": 0o600}
    assert "!/settings.json" in (project / ".ralph" / ".gitignore").read_text()


@pytest.mark.parametrize("left", ['{"loopId": "x', "edited by hand", "{}\n", "\n", "\x00\xff"])
def test_a_line_never_runs_into_what_stands_before_it(ledger: SqliteLedger, project: Path, left: str) -> None:
    """DB-09"""
    place(project).mkdir(parents=True)
    (place(project) / LINES_FILE).write_text(left)
    end(ledger, project, "r", metrics())
    written = (place(project) / LINES_FILE).read_text()
    assert written.startswith(left)
    assert json.loads(written.splitlines()[-1])["run"] == "r"
    assert written.removeprefix(left).startswith("{" if left.endswith("\n") else "\n{")


def test_secrets_are_masked_in_lines_and_pages(tmp_path: Path, project: Path) -> None:
    def mask(text: str) -> str:
        return text.replace("hunter2", "***")

    ledger = SqliteLedger.open(str(tmp_path / "masked"), mask)
    end(ledger, project, "r", metrics(skill="hunter2", agent="hunter2"), mask)
    ledger.close()
    assert lines(project)[0]["skill"] == "***"
    assert "hunter2" not in "".join(path.read_text() for path in place(project).iterdir()).lower()


def write_many(project: str, name: str, times: int) -> None:
    folder = MetricsFolder(project)
    for number in range(times):
        folder.add({"who": name, "number": number, "filler": "x" * 5000})


def test_lines_of_two_loops_stay_whole(project: Path) -> None:
    """DB-09"""
    fork = multiprocessing.get_context("spawn")
    writers = [fork.Process(target=write_many, args=(str(project), name, 200)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    found = [(line["who"], line["number"]) for line in lines(project)]
    assert sorted(found) == [(name, number) for name in "ab" for number in range(200)]


def outside(project: Path) -> Path:
    made = project.parent / "outside"
    made.write_text("precious\n")
    return made


def symbolic(project: Path) -> None:
    (place(project) / LINES_FILE).symlink_to(outside(project))


def hard(project: Path) -> None:
    (place(project) / LINES_FILE).hardlink_to(outside(project))


def folder(project: Path) -> None:
    (place(project) / LINES_FILE).mkdir()


def pipe(project: Path) -> None:
    os.mkfifo(place(project) / LINES_FILE)


@pytest.mark.parametrize("trap", [symbolic, hard, folder, pipe])
def test_whatever_an_agent_put_there_is_moved_aside(
    ledger: SqliteLedger, project: Path, trap: Callable[[Path], None]
) -> None:
    place(project).mkdir(parents=True)
    outside(project)
    trap(project)
    end(ledger, project, "r", metrics())
    assert [line["run"] for line in lines(project)] == ["r"]
    assert outside(project).read_text() == "precious\n"
    assert len([name for name in os.listdir(place(project)) if ".aside-" in name]) == 1


@pytest.mark.parametrize("name", [".ralph", ".ralph/metrics"])
def test_no_link_is_followed_on_the_way(ledger: SqliteLedger, project: Path, name: str) -> None:
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).symlink_to(elsewhere)
    with pytest.raises(Refused, match="symbolic link"):
        end(ledger, project, "r", metrics())
    assert os.listdir(elsewhere) == []


def test_a_link_in_place_of_the_report_is_replaced_and_not_followed(ledger: SqliteLedger, project: Path) -> None:
    place(project).mkdir(parents=True)
    (place(project) / REPORT).symlink_to(outside(project))
    end(ledger, project, "r", metrics())
    assert not (place(project) / REPORT).is_symlink()
    assert outside(project).read_text() == "precious\n"


def test_that_the_line_cannot_be_written_does_not_keep_the_report_from_being_written(
    ledger: SqliteLedger, project: Path
) -> None:
    class Full(MetricsFolder):
        def add(self, line: dict[str, Any]) -> None:
            raise OSError("full")

    ledger.append("r", (RunEnded(OUTCOME, metrics()),))
    with pytest.raises(OSError, match="full"):
        MetricsObserver(Full(str(project)), ledger.statistics).on_record(RunEnded(OUTCOME, metrics()))
    assert (place(project) / REPORT).exists()


def test_a_read_only_folder_is_one_clear_line(project: Path) -> None:
    place(project).mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(place(project))]
    mounted = os.geteuid() == 0 and not subprocess.run(mount, capture_output=True).returncode
    require(mounted, "a read-only file system can only be mounted by root")
    try:
        for work in (lambda: MetricsFolder(str(project)).add({}), lambda: MetricsFolder(str(project)).put("x", "y")):
            with pytest.raises(RalphError, match=r"cannot write .*/\.ralph/metrics: Read-only file system; make it"):
                work()
    finally:
        subprocess.run(["umount", "-l", str(place(project))], check=True)
