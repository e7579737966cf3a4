"""Retries of checks and their logs."""

from __future__ import annotations

from tests.ralph import Ralph, done, write

# Fails at each first try, and passes at each second one.
FLAKY = "#!/bin/sh\nn=$(cat ../n 2>/dev/null || echo 0); echo $((n+1)) > ../n; test $((n % 2)) = 1\n"


def test_a_retry_of_one_check_is_not_taken_for_another_check(ralph: Ralph) -> None:
    """`./a b` and `./a-b` make the same slug; the second gets a number, and so would a second run of the first."""
    ralph.write({"a": FLAKY, "a-b": "#!/bin/sh\necho never; exit 1\n"})
    for name in ("a", "a-b"):
        (ralph.root / name).chmod(0o755)
    ralph.settings(guardrails=[{"command": "./a b", "retries": 1}, {"command": "./a-b"}])
    ended = ralph("run", "-p", "go", "--agent", ralph.script([write(made="x"), done()]), "-m", "1")
    assert ended.code == 1, ended
    findings = ralph.state().history.latest.report.findings
    assert [(found.check, found.passed, found.runs) for found in findings] == [("./a b", True, 2), ("./a-b", False, 1)]
    assert findings[1].output == "never\n"
    assert len({found.log for found in findings}) == 2


def test_a_flaky_check_passes_on_a_retry_and_keeps_both_logs(ralph: Ralph) -> None:
    ralph.write({"a": FLAKY})
    (ralph.root / "a").chmod(0o755)
    ralph.settings(guardrails=[{"command": "./a", "retries": 2}])
    assert ralph("run", "-p", "go", "--agent", ralph.script([write(made="x"), done()]), "-m", "1").code == 0
    assert len(list(ralph.run_folder().glob("guardrail_001_a*.log"))) == 2
