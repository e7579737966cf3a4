"""A proof is a fold of a run's records: what it says is theirs, and nobody changes a part of it unseen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import MarkdownMarkup, PlainMarkup
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import AlteredCheckInput, CheckReport, Finding, PassRule, SuiteResult
from ralphproof.engine.claim import ParsedClaim
from ralphproof.engine.limits import Breach, Spend
from ralphproof.engine.outcome import (
    Aborted,
    Completed,
    Metrics,
    Outcome,
    Passed,
    Retry,
    SentBack,
    StoryReview,
    money_json,
)
from ralphproof.engine.plan import Job, Stage, Task
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.records import (
    BaselineSaved,
    CheckBegan,
    CheckEnded,
    ChildWorkJoined,
    Judged,
    Picked,
    Record,
    Resumed,
    RunBegan,
    RunEnded,
    Saved,
    ScmEnded,
    TurnBegan,
    TurnEnded,
)
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Change, CommitResult, Snapshot
from ralphproof.proof.builder import (
    CLEAN_CHECKOUT,
    IN_PLACE,
    LEDGER_NOT_SIGNED,
    NO_CHECKS,
    NO_SANDBOX,
    TESTS_NOT_PROTECTED,
    ProofInputs,
    RecordedRun,
    WorkspaceSubject,
    build_proof,
    redact_held_out,
    tampering_risks,
)
from ralphproof.proof.page import page_lines, parse_proof, render_page
from ralphproof.proof.schema import chain_digest, proof_digest
from ralphproof.proof.source import find_proof_faults
from ralphproof.store import serialization as ledger_text
from ralphproof.views.published_json import time_json

Row = tuple[str, int, int, str, str, float, str, str]
RUN = "20261115-210507-k3f9"
A, B, C, D, E, F = (letter * 40 for letter in "abcdef")
BEGAN, SAVED = Snapshot(A, B, f"refs/ralph/{RUN}/0", E), Snapshot(C, D, f"refs/ralph/{RUN}/1", E, ("big.bin",))
FACTS: dict[str, Any] = {
    "version": "0.1", "agent": "claude", "agentVersion": "2.1", "settingsDigest": "5" * 64, "protectTests": True,
    "verifyIn": "workspace", "setup": ["npm ci"], "mayChange": ["Makefile"], "sandbox": {"name": "bwrap",
    "strength": "strong", "weak": [], "allowHosts": ["api.example.com"]},
}  # fmt: skip
RED = Finding(
    "tests", False, "pytest", 1, output="2 failed", digest="d", tests=SuiteResult("pytest", ("old", "mended"), 2, 3)
)
GREEN = Finding(
    "tests", True, "pytest", 0, seconds=1.25, log=".ralph/runs/x/guardrail_001_tests.log", output="1 failed, 4 passed",
    digest="7" * 64, rule=PassRule("sub", 0, "passed", "error", 60.0),
    tests=SuiteResult("pytest", ("old", "new"), 2, 4),
)  # fmt: skip


def completed(verified: bool = True, judged: bool = False, *concerns: str) -> Completed:
    return Completed(1, Spend(micro_usd=20_000), 3.5, "I am done", verified, concerns, judged)


def records(
    *findings: Finding, outcome: Outcome | None = None, title: str = "Mend the parser", facts: dict[str, Any] = FACTS,
    stage: Stage | None = None, before: tuple[Finding, ...] = (RED,), altered: tuple[AlteredCheckInput, ...] = (),
    more: tuple[Record, ...] = (), metrics: Metrics | None = None,
) -> tuple[Record, ...]:  # fmt: skip
    job = Job(Task("task", "", title), stage or Stage("work"))
    report = CheckReport(findings)
    return (
        RunBegan(RUN, BEGAN, facts, 1794777907.0),
        *(CheckEnded(0, 0, finding) for finding in before),
        BaselineSaved(BEGAN),
        Picked(1, job, 1),
        TurnBegan(1, 1, "9" * 64, (), "claude"),
        TurnEnded(1, 1, Turn(Exit(0), "I am done")),
        Saved(1, 1, SAVED, Change(("a.py",)), ParsedClaim(None), altered=altered),
        *(one for finding in findings for one in (CheckBegan(1, 1, finding.check), CheckEnded(1, 1, finding))),
        *more,
        Judged(1, 1, Passed(report), 3.0),
        ScmEnded(1, CommitResult(F)),
        RunEnded(outcome or completed(), metrics),
    )  # fmt: skip


def written(*found: Record) -> tuple[Row, ...]:
    made: list[Row] = []
    for row in ledger_text.record_rows(RUN, found, 1794777909.5, str):
        made.append((*row, ledger_text.chain_digest(made[-1][7] if made else "", row)))
    return tuple(made)


def past(*found: Record) -> RecordedRun:
    return RecordedRun.of(written(*found))


SUBJECT = WorkspaceSubject("commit", F, "1" * 40, ("note.txt",))


def proof(
    *findings: Finding, mask: Callable[[str], str] = str, subject: WorkspaceSubject = SUBJECT, **more: Any
) -> Any:
    kept = past(*records(*findings, **more))
    return build_proof(ProofInputs(kept, "parser", subject, "6" * 64, {"python": "3.11.7", "git": "2.39"}), mask)


def test_a_row_is_bound_as_the_ledger_binds_it() -> None:
    row = written(*records(GREEN))[3]
    assert chain_digest("x", row[:7]) == ledger_text.chain_digest("x", row[:7])


def test_the_proof_says_what_the_records_say() -> None:
    made = proof(
        GREEN, outcome=completed(True, False, "look at this"), altered=(AlteredCheckInput("Makefile", "target test"),)
    )
    assert (made["v"], made["type"], made["run"], made["project"]) == (1, "proof", RUN, "parser")
    assert (made["startedAt"], made["endedAt"]) == (time_json(1794777907.0), time_json(1794777909.5))
    assert (made["title"], made["promptDigest"]) == ("Mend the parser", "9" * 64)
    assert made["outcome"] == {
        "v": 1, "type": "outcome", "run": RUN, "status": "COMPLETED", "proof": "verified", "iterations": 1,
        "costUSD": 0.02, "cost": money_json(Spend(20_000)), "durationSeconds": 3.5, "exitCode": 0,
        "verificationPassed": True, "concerns": ["look at this"],
    }  # fmt: skip
    assert made["subject"] == {
        "v": 1, "type": "subject", "kind": "commit", "commit": F, "tree": "1" * 40, "ref": SAVED.ref, "head": F,
        "base": E, "checked": D, "differs": ["note.txt"], "leftOut": ["big.bin"],
    }  # fmt: skip
    assert made["checks"] == [
        {
            "v": 1, "type": "check", "name": "tests", "command": "pytest",
            "commandDigest": "2b01214d32c382dbc73bf6b493bedb7926324af27bad3ee888f66774b9b114c8", "state": "passed",
            "rule": {
                "v": 1, "type": "passRule", "folder": "sub", "successCode": 0, "contains": "passed", "lacks": "error",
                "timeoutSeconds": 60.0, "clean": False,
            },
            "required": True, "judged": False, "hidden": False, "passed": True, "exitCode": 0, "exitReason": "exit",
            "durationSeconds": 1.25, "attempts": 1, "failedAttempts": 0, "outputDigest": "7" * 64,
            "output": "1 failed, 4 passed", "log": "guardrail_001_tests",
            "tests": {
                "v": 1, "type": "tests", "runner": "pytest", "passedCount": 4, "failedCount": 2, "skippedCount": None,
                "expectedFailureCount": None, "failing": ["old", "new"],
            },
            "before": {"v": 1, "type": "baselineResult", "passed": False, "failing": ["mended", "old"]},
            "oldFailures": ["old"], "newFailures": ["new"],
        }
    ]  # fmt: skip
    assert (made["verifyIn"], made["setup"]) == ("workspace", ["npm ci"])
    assert (made["protectTests"], made["mayChange"]) == (True, ["Makefile"])
    assert [(one["kind"], one["path"], one["message"]) for one in made["findings"]] == [
        ("checkInput", "Makefile", "Makefile: target test"),
        ("weakerCheck", None, "tests: it passed, and its own output tells of 2 failing tests"),
    ]
    assert (made["settingsDigest"], made["settingsFileDigest"]) == ("5" * 64, "6" * 64)
    assert made["versions"] == {
        "ralph": "0.1", "python": "3.11.7", "git": "2.39", "agent": "claude", "agentVersion": "2.1",
    }  # fmt: skip
    assert (made["sandbox"]["type"], made["sandbox"]["name"]) == ("sandbox", FACTS["sandbox"]["name"])
    kept = made["records"]
    kinds = {kept["chain"][int(place)][3] for place in kept["evidence"]}
    assert kinds == {"RunBegan", "BaselineSaved", "CheckEnded", "Picked", "Saved", "Judged", "ScmEnded", "RunEnded"}
    assert (kept["count"], kept["lastDigest"], kept["withheldRecords"]) == (
        len(kept["chain"]),
        kept["chain"][-1][5],
        [],
    )
    assert find_proof_faults(made) == ()


@pytest.mark.parametrize(
    ("outcome", "proved", "verdict"),
    [
        (completed(), "verified", "**Verified.** 1 check passed, on commit `ffff"),
        (completed(False, True), "judged", "**Judged, not verified by a machine.** 0 models' judgements passed"),
        (completed(False), "claimed", "**Claimed, not verified.** The agent said that the work is done, and not"),
        (Aborted(Breach("STALL", ""), 2, Spend(), 1.0, ""), None, "**It proved nothing.** The run ended ABORTED STALL"),
    ],
    ids=["verified", "judged", "claimed", "aborted"],
)  # fmt: skip
def test_the_first_lines_say_what_was_proved(outcome: Outcome, proved: str | None, verdict: str) -> None:
    made = proof(GREEN, outcome=outcome)
    assert made["outcome"]["proof"] == proved
    page = render_page(made).split("\n")
    assert page[0] == f"# Proof of run {RUN}: Mend the parser"
    assert page[2].startswith(verdict)
    assert next(iter(page_lines(made))) == f"Proof of run {RUN}: Mend the parser"


def test_the_verdict_says_what_is_not_proved() -> None:
    warns = Finding("lint", False, "lint", 1, required=False)
    said = render_page(proof(GREEN, warns, outcome=completed(True, False, "one"))).split("\n")[2]
    assert "1 check passed" in said
    assert said.endswith(
        "But it differs from what they saw in 1 path; 1 check that only warns failed; 1 test failed that failed before "
        "the run as well; 1 test failed that did not before the run; there is 1 concern."
    )


def test_only_the_last_look_at_the_work_counts() -> None:
    """Work of other runs came in: what the checks said before saw another tree."""
    later, again = Snapshot(A, "2" * 40, "refs/ralph/x/1-joined", E), Finding("tests", True, "pytest", 0, output="new")
    more = (ChildWorkJoined(1, 1, later, Change(("b.py",))), CheckEnded(1, 1, again, 2))
    made = proof(RED, more=more, before=())
    assert [(one["name"], one["passed"]) for one in made["checks"]] == [("tests", True)]
    assert made["checks"][0]["output"] == "new"
    assert (made["subject"]["checked"], made["subject"]["ref"]) == ("2" * 40, "refs/ralph/x/1-joined")
    assert find_proof_faults({**made, "subject": made["subject"]}) == ()


def test_the_last_iteration_with_findings_is_shown_and_reviews_are_told() -> None:
    job = Job(Task("T1", "", "Auth"), Stage("reviewer", edits=False))
    judge = Finding("neat", True, why="exit", output="1. met: it is", judged=True)
    back = SentBack(("work", "reviewer"), Feedback(notes=("line 3 leaks",)))
    looked = [
        one
        for number, verdict in ((2, back), (3, Retry(Feedback(notes=("say it",)))), (4, Passed(CheckReport())))
        for one in (
            Picked(number, job), TurnBegan(number, 1, "8" * 64), TurnEnded(number, 1, Turn(Exit(0))),
            Saved(number, 1, SAVED, Change(), ParsedClaim(None)), Judged(number, 1, verdict, 9.0),
        )
    ]  # fmt: skip
    story = StoryReview("S1", "Login", "approved", 2, True, ("tests lack",))
    metrics = Metrics(RUN, 1.0, 2.0, "COMPLETED", reviewed=(story,))
    first = records(GREEN, judge)
    made = build_proof(
        ProofInputs(past(*first[:-1], *looked, RunEnded(completed(), metrics)), "p", WorkspaceSubject("commit", F, D)),
        str,
    )
    assert isinstance(made["checks"], list)
    assert len(made["checks"]) == 2
    assert (made["title"], made["promptDigest"]) == ("Auth", "8" * 64)
    reviews: Any = made["reviews"]
    assert [{name: one[name] for name in ("reviewer", "result", "text")} for one in reviews] == [
        {"reviewer": "judge neat, iteration 1", "result": "passed", "text": "1. met: it is"},
        {
            "reviewer": "stage reviewer of Auth, iteration 2", "result": "sent back",
            "text": "to work, reviewer\nline 3 leaks",
        },
        {"reviewer": "stage reviewer of Auth, iteration 3", "result": "undecided", "text": "say it"},
        {"reviewer": "stage reviewer of Auth, iteration 4", "result": "passed", "text": ""},
        {
            "reviewer": "story S1 Login", "result": "approved",
            "text": "approved only because it had been reviewed so often; reviews: 2\ntests lack",
        },
    ]  # fmt: skip
    assert find_proof_faults(made) == ()


def test_a_check_in_a_clean_checkout_is_compared_with_the_same_command_before_the_run() -> None:
    clean = Finding(
        "tests (clean)", True, "pytest", 0, rule=PassRule(clean=True), tests=SuiteResult("pytest", ("old",), 1, 1)
    )
    (told,) = proof(clean)["checks"]
    assert (told["before"]["failing"], told["oldFailures"]) == (["mended", "old"], ["old"])


def test_what_grows_without_end_is_bounded() -> None:
    many = tuple(f"test_{number}_{'x' * 1000}" for number in range(500))
    loud = Finding("tests", True, "t", 0, output="y" * 5000 + "\x1b[31mred", tests=SuiteResult("pytest", many, 500))
    made = proof(loud, outcome=completed(True, False, *("w" * 5000 for _ in range(500))), before=())
    (told,) = made["checks"]
    assert (len(told["newFailures"]), max(map(len, told["newFailures"]))) == (200, 300 + len("... [truncated]"))
    assert len(told["output"]) <= 4000
    assert told["output"].endswith("red")
    assert "\x1b" not in told["output"]
    assert (len(made["outcome"]["concerns"]), len(made["outcome"]["concerns"][0])) == (200, 1015)
    assert find_proof_faults(made) == ()


def test_a_record_that_names_too_much_is_left_out_and_the_proof_stays_whole() -> None:
    found = list(records(GREEN))
    at = next(place for place, one in enumerate(found) if isinstance(one, Saved))
    found[at] = Saved(1, 1, SAVED, Change(tuple(f"folder/{n}" for n in range(100_000))), ParsedClaim(None))
    del found[-2]  # the SCM's
    made: Any = build_proof(ProofInputs(past(*found), "p", WorkspaceSubject("tree", C, D)), str)
    assert made["records"]["withheldRecords"] == [at]
    assert len(render_page(made)) < 50_000
    assert find_proof_faults(made) == ()


def test_the_weakest_sandbox_of_a_run_is_told() -> None:
    taken = Resumed(2, 5.0, 2.0, {"name": "direct", "strength": "none"})
    found = records(GREEN)
    made = build_proof(ProofInputs(past(*found[:4], taken, *found[4:]), "p", SUBJECT), str)
    assert made["sandbox"] == {"v": 1, "type": "sandbox", "name": "direct", "strength": "none"}
    assert isinstance(made["caveats"], list)
    assert made["caveats"][0] == NO_SANDBOX
    assert str(made["caveats"][1]).startswith("The agent ran in the sandbox bwrap (strong)")


BOX = {"name": "box", "strength": "partial", "weak": ["it sees processes"]}
COMMAND: dict[str, Any] = {"command": "t", "judged": False, "rule": {"clean": False}, "required": True, "name": "t"}


@pytest.mark.parametrize(
    ("boxes", "checks", "protects", "told"),
    [
        ([{"strength": "none"}], [COMMAND], False, [NO_SANDBOX, IN_PLACE, TESTS_NOT_PROTECTED, LEDGER_NOT_SIGNED]),
        ([{"strength": "none"}], [COMMAND, COMMAND | {"rule": {"clean": True}}], True,
         [NO_SANDBOX, CLEAN_CHECKOUT, LEDGER_NOT_SIGNED]),
        ([None], [COMMAND | {"rule": {"clean": True}}, COMMAND | {"command": "u"}], True,
         [NO_SANDBOX, IN_PLACE, LEDGER_NOT_SIGNED]),
        ([BOX], [], False, [
            "The agent ran in the sandbox box, which holds in part: what it leaves open was open. Known weak points: "
            "it sees processes.", NO_CHECKS, LEDGER_NOT_SIGNED]),
        ([FACTS["sandbox"]], [COMMAND | {"judged": True, "name": "neat"}], True, [
            "The agent ran in the sandbox bwrap (strong): it could write to the project's files, and not to this "
            "record, to ralph or to anything else of the user's. It could call api.example.com.",
            "A model's judgement can be swayed by the work that it reads: neat.", LEDGER_NOT_SIGNED]),
    ],
)  # fmt: skip
def test_who_could_have_tampered_is_said(boxes: Any, checks: Any, protects: bool, told: list[str]) -> None:
    assert list(tampering_risks(boxes, checks, protects)) == told


def test_what_is_said_of_tampering_can_be_read_without_the_page() -> None:
    assert not any(
        "above" in line
        for line in (NO_SANDBOX, IN_PLACE, CLEAN_CHECKOUT, TESTS_NOT_PROTECTED, LEDGER_NOT_SIGNED, NO_CHECKS)
    )


@pytest.mark.parametrize(
    ("outcome", "kind", "told"),
    [
        (completed(), "commit", "in a clone of the project: ralph verify FILE, FILE being this page"),
        (completed(), "files", "ralph verify cannot: the run had no git repository: no commit holds its files"),
        (Aborted(Breach("STALL", ""), 2, Spend(), 1.0, ""), "commit",
         "ralph verify cannot: the run was not completed: it ended ABORTED STALL"),
    ],
)  # fmt: skip
def test_how_to_check_it_is_said_only_where_it_can_be_checked(outcome: Outcome, kind: str, told: str) -> None:
    said = [*page_lines(proof(GREEN, outcome=outcome, subject=WorkspaceSubject(kind, F, "1" * 40)))]
    assert said[said.index("How to check it:") + 1] == f"  {told}"


@pytest.mark.parametrize(
    ("findings", "seen", "differs"),
    [
        ((GREEN,), "the tree that the checks saw", "not as the checks saw it: note.txt"),
        ((), "the tree as the agent left it, which no check saw", "not as the agent left it: note.txt"),
    ],
)
def test_checks_that_were_not_asked_saw_nothing(findings: tuple[Finding, ...], seen: str, differs: str) -> None:
    said = [*page_lines(proof(*findings))]
    assert f"  {seen}: {D}" in said
    assert f"  {differs}" in said


# Nobody changes a part of it


def evidence_of(made: Any, kind: str) -> str:
    chain = made["records"]["chain"]
    return str(max(int(place) for place in made["records"]["evidence"] if chain[int(place)][3] == kind))


def put(*path: str | int) -> Callable[[Any, Any], None]:
    def change(made: Any, new: Any) -> None:
        for name in path[:-1]:
            made = made[name]
        made[path[-1]] = new

    return change


def edit(kind: str, old: str, new: str) -> Callable[[Any, Any], None]:
    """A record of the evidence changed."""

    def change(made: Any, _: Any) -> None:
        place = evidence_of(made, kind)
        assert old in made["records"]["evidence"][place]
        made["records"]["evidence"][place] = made["records"]["evidence"][place].replace(old, new)

    return change


def lose(kind: str) -> Callable[[Any, Any], None]:
    return lambda made, _: made["records"]["evidence"].pop(evidence_of(made, kind))


def cut(made: Any, _: Any) -> None:
    made["records"]["chain"].pop()


@pytest.mark.parametrize(
    ("change", "new", "fault"),
    [
        (put("checks", 0, "command"), "true", "checks is not what the records say"),
        (put("checks", 0, "rule", "successCode"), 1, "checks is not"),
        (put("checks", 0, "passed"), 1, "checks[0].passed is of another kind"),
        (put("checks", 0, "oldFailures"), [], "checks is not"),
        (put("checks"), [], "checks is not"),
        (put("checks", 0, "output"), "9 passed", "checks is not"),
        (put("subject", "commit"), A[::-1], "subject.commit is not"),
        (put("subject", "commit"), "--upload-pack=x", "subject.commit is no id"),
        (put("subject", "checked"), A, "subject is not"),
        (put("subject", "kind"), "hope", "subject.kind is of another kind"),
        (put("outcome", "concerns"), [], "outcome is not"),
        (put("outcome", "proof"), "judged", "outcome is not"),
        (put("sandbox", "strength"), "none", "sandbox is not"),
        (put("caveats"), [], "caveats is not"),
        (put("findings"), [], "findings is not"),
        (put("settingsDigest"), "4" * 64, "settingsDigest is not"),
        (put("versions", "ralph"), "9", "versions is not"),
        (put("title"), "Something else", "title is not"),
        (put("setup"), ["true"], "setup is not"),
        (put("endedAt"), time_json(5.0), "endedAt is not"),
        (put("run"), "20261115-210507-aaaa", "record 1 of the chain (RunBegan) is not the one"),
        (put("v"), 2, "it is of version 2"),
        (put("surprise"), 2, "the proof has a field that this ralph does not know: 'surprise'"),
        (edit("CheckEnded", "pytest", "true"), 0, "of the chain (CheckEnded tests) is not the one"),
        (edit("RunEnded", "look", "LOOK"), 0, "of the chain (RunEnded) is not the one"),
        (lose("CheckEnded"), 0, "is not shown"),
        (lose("RunEnded"), 0, "is not shown"),
        (cut, 0, "the chain has not"),
        (put("records", "lastDigest"), "0" * 64, "the chain of records has lost its end"),
        (put("records", "evidence", "99"), "{}", "records.evidence has an index that the chain does not have: '99'"),
        (put("records", "withheldRecords"), [99], "records.withheldRecords has an index that the chain does not have"),
        (put("records", "chain", 2), [1, 1], "records.chain has a row of another form"),
        (put("versions"), [], "versions is of another kind"),
        (put("outcome", "costUSD"), float("1e400"), "outcome.costUSD is of another kind"),
        (put("startedAt"), 10**400, "startedAt is of another kind"),
    ],
)  # fmt: skip
def test_a_part_that_was_changed_is_found_even_with_a_digest_that_fits(
    change: Callable[[Any, Any], None], new: Any, fault: str
) -> None:
    made = json.loads(
        json.dumps(proof(GREEN, outcome=completed(True, False, "look"), altered=(AlteredCheckInput("M", "x"),)))
    )
    change(made, new)
    try:
        made["digest"] = proof_digest(made)
    except ValueError:
        pass  # a number that has no form
    if fault == "the chain has not":
        fault = "records.evidence has an index"
    assert any(fault in one for one in find_proof_faults(made)), find_proof_faults(made)


def test_a_change_without_a_new_digest_is_found() -> None:
    made = proof(GREEN)
    made["project"] = "another"
    assert find_proof_faults(made) == ("it was changed: its digest is not that of its content",)


def test_evidence_that_binds_and_cannot_be_read_is_a_fault_and_no_crash() -> None:
    """Whoever forges all digests may put anything there."""
    for data in ("{}", "[", '{"is":"RunBegan","run":1,"snapshot":2,"facts":3}', '{"is":"Saved"}', "[" * 5000):
        made = proof(GREEN)
        chain, previous = made["records"]["chain"], ""
        made["records"]["evidence"]["0"] = data
        evidence = made["records"]["evidence"]
        for place, row in enumerate(chain):
            row[5] = chain_digest(previous, (RUN, *row[:5], evidence.get(str(place), "")))
            previous = row[5]
        made["records"]["lastDigest"] = previous
        made["digest"] = proof_digest(made)
        assert find_proof_faults(made), data


# The page


@pytest.mark.parametrize("findings", [(GREEN, RED), ()], ids=["checks", "nothing asked"])
def test_a_page_is_the_same_each_time_and_after_it_was_read(findings: tuple[Finding, ...]) -> None:
    made = proof(*findings)
    page = render_page(made)
    assert page == render_page(proof(*findings))
    assert parse_proof(page) == made
    assert render_page(parse_proof(page)) == page
    assert parse_proof(json.dumps(made, indent=2)) == made


HOSTILE = (
    "<script>alert(1)</script> | a\\| b ``` c\n```json\n{}\n```\n# big\n[x](javascript:1) ![i](h) <!-- -->\x1b]0;t\x07"
    "\u202e &lt; ~~~ \udcff **b** __u__ $$x$$"
)


def outside_code(page: str) -> str:
    """What of a page is not in fences or spans."""
    bare = re.sub(r"(?ms)^(`{3,})[a-z]*\n.*?^\1$", "", page)
    return re.sub(r"`[^`\n]*`", "", bare)


def test_hostile_text_stays_inert() -> None:
    tests = SuiteResult("<b>run", (HOSTILE,), 1, 1)
    check = Finding(
        HOSTILE, False, HOSTILE, 1, why=HOSTILE, required=False, output=f"{HOSTILE}\x1b\n", tests=tests, log=HOSTILE,
        rule=PassRule(HOSTILE, 0, HOSTILE, HOSTILE),
    )  # fmt: skip
    box = {"name": HOSTILE, "strength": "strong", "allowHosts": [HOSTILE]}
    facts = FACTS | {"mayChange": [HOSTILE], "agent": HOSTILE, "setup": [HOSTILE], "sandbox": box}
    made = proof(
        check, GREEN, title=HOSTILE, facts=facts, altered=(AlteredCheckInput(HOSTILE, HOSTILE),),
        outcome=completed(True, False, HOSTILE), subject=WorkspaceSubject("commit", F, D, (HOSTILE,)),
    )  # fmt: skip
    page = render_page(made)
    page.encode()
    assert "\x1b" not in page
    assert parse_proof(page) == made
    assert page.count("\n```json\n{") == 1 + page.count("\n```json\n{}")
    bare = outside_code(page)
    for sign in ("<script", "<!--", "\x1b", "\u202e", "\x07", "~~~", "**b", "$$", "`"):
        assert sign not in bare, sign
    assert not re.search(r"(?<!\\)[\[\]]", bare)
    assert [line for line in bare.split("\n") if line.startswith("#")] == [
        f"# Proof of run {RUN}: {MarkdownMarkup().text(HOSTILE)}",
        *(f"## {name}" for name in (
            "Checks", "Concerns", "What it speaks of", "Integrity of the checks", "Who could have tampered",
            "Versions and settings", "How to check it", "What the checks printed",
            "The proof itself, for programs")),
    ]  # fmt: skip
    table = [line for line in page.split("\n") if line.startswith("| ")]
    assert [len(line.split("|")) for line in table] == [10, 10, 10, 10]
    assert not any("\n" in line or "\x1b" in line for line in page_lines(made))
    tail = page[page.rfind("\n```json\n") + 9 :]
    assert not set("<>`&") & set(tail.removesuffix("\n```\n"))


@pytest.mark.parametrize("text", ["- a", "1. a", "# a", "> a", "+ a", "= a", "    a", "12) a", "plain", "a_b", ": a"])
def test_words_that_begin_a_line_begin_nothing_else(text: str) -> None:
    made = MarkdownMarkup().text(text)
    assert not re.match(r"([-+>#=:]|\d+[.)]|\s)", made), made
    assert PlainMarkup().text(text) == text.strip()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no data stand at its end"),
        ("# Proof\n\n```json\n{}\n```\nand more", "no data stand at its end"),
        ("# Proof\n\n```json\n{}\n```\n", "it is no proof: it is of another type than a proof"),
        ("# Proof\n\n```json\n[1]\n```\n", "it is no proof: it is of another type than a proof"),
        ("{", "its data cannot be read"),
        ('{"v": 1, "v": 1}', "a field is there twice"),
        ('{"v": NaN}', "NaN is no number"),
        ('{"v": ' + "[" * 100_000, "its data cannot be read"),
    ],
)  # fmt: skip
def test_what_is_no_proof_is_refused(text: str, why: str) -> None:
    with pytest.raises(Refused, match=re.escape(why)):
        parse_proof(text)


# What must not be shown


def test_a_held_out_check_is_told_of_and_what_it_asks_is_not() -> None:
    name, command = "final: sh answer.sh", "sh answer.sh"
    held = Finding(
        name, True, command, 0, output="the answer is 42", digest="8" * 64, hidden=True, log="/state/held.log",
        tests=SuiteResult("pytest", (), 0, 1, names=("test_answer",)), rule=PassRule(contains="42"),
    )  # fmt: skip
    stage = Stage("work", checks=("tests",), final=(name,))
    whole = proof(GREEN, held, stage=stage, outcome=completed(True, False, f"{name} is flaky"))
    assert whole["checks"][1]["command"] == command
    shown: Any = redact_held_out(whole)
    said = json.dumps(shown) + render_page(shown)
    assert not re.search(r"answer|\b42\b|held\.log|8{64}", said)
    assert [(one["name"], one["command"], one.get("withheld")) for one in shown["checks"]] == [
        ("tests", "pytest", None),
        ("held-out check 1", None, True),
    ]
    assert shown["outcome"]["concerns"] == ["held-out check 1 is flaky"]
    assert shown["records"]["withheldRecords"]
    assert find_proof_faults(shown) == ()
    assert parse_proof(render_page(shown)) == shown
    shown["checks"][0]["command"] = "true"
    shown["digest"] = proof_digest(shown)
    assert find_proof_faults(shown) == ("check 'tests' is not what the records say",)


def test_a_held_out_check_that_was_asked_in_vain_is_not_told_of_either() -> None:
    """Work of other runs came in after it was asked, and then a check failed that only warns."""
    held = Finding("final: sh answer.sh", False, "sh answer.sh", 1, output="no 42", hidden=True)
    more = (ChildWorkJoined(1, 1, SAVED, Change(("b.py",))), CheckEnded(1, 1, GREEN, 2))
    whole = proof(held, more=more, before=())
    assert [one["name"] for one in whole["checks"]] == ["tests"]
    shown: Any = redact_held_out(whole)
    assert not re.search(r"answer|\b42\b", json.dumps(shown) + render_page(shown))
    assert find_proof_faults(shown) == ()


def test_a_run_with_a_held_out_check_alone_has_a_proof_that_agents_may_read() -> None:
    held = Finding("final: x", True, "x", 0, hidden=True, rule=PassRule(clean=True))
    shown: Any = redact_held_out(proof(held, before=()))
    assert shown["caveats"][1] == CLEAN_CHECKOUT
    assert find_proof_faults(shown) == ()


def test_without_held_out_checks_nothing_is_left_out_but_names_of_what_is_not_shown() -> None:
    whole = proof(GREEN)
    shown: Any = redact_held_out(whole)
    assert (shown["checks"], shown["records"]["evidence"]) == (whole["checks"], whole["records"]["evidence"])
    assert find_proof_faults(shown) == ()


def test_a_secret_that_the_record_holds_is_masked_and_its_record_is_left_out() -> None:
    loud = Finding("tests", True, "pytest", 0, output="key hunter2hunter2 used")
    made = proof(loud, mask=lambda text: text.replace("hunter2hunter2", "***"))
    assert "hunter2hunter2" not in json.dumps(made) + render_page(made)
    assert made["checks"][0]["output"] == "key *** used"
    kinds = [made["records"]["chain"][place][3] for place in made["records"]["withheldRecords"]]
    assert kinds == ["CheckEnded", "Judged"]
    assert [(one["name"], one["withheld"]) for one in made["checks"]] == [("tests", True)]
    assert find_proof_faults(made) == ()
