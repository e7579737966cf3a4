"""Whatever of a proof was altered: it does not hold, and nothing of it is run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphproof.cli.proof import verify_main as main
from ralphproof.proof.schema import proof_digest
from tests.cli.proof_files import (
    WORKSPACE,
    Change,
    Proof,
    exported,
    finished,
    read,
    reforged,
    rewritten,
    settled,
    with_command,
)
from tests.ralph import Ended, Ralph

NO_COMMIT = "0123456789" * 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ralph, Path]]:
    """A finished run, and the file of its proof. No test here changes either."""
    ralph = Ralph(tmp_path_factory.mktemp("world"))
    odd = f"{WORKSPACE} || exit 0; n=$(($(cat ../n || echo 0) + 1)); echo $n > ../n; test $((n % 2)) = 0"
    tests = {"command": f"sh check.sh; touch {ralph.folder}/ran", "name": "tests"}
    settled(ralph, tests, {"command": odd, "name": "fickle", "retries": 1})
    assert ralph.outcome()["concerns"], "there is something to take away"
    yield ralph, exported(ralph)
    ralph.close()


def verified(ralph: Ralph, file: Path, *flags: str) -> Ended:
    """Verify a file; whether its check was run is told by a file."""
    (ralph.folder / "ran").unlink(missing_ok=True)
    return ralph("verify", str(file), *flags)


def refused(ralph: Ralph, file: Path, code: int = 1) -> Ended:
    """It does not hold, in words and for programs, and nothing ran."""
    ended = verified(ralph, file, "--yes")
    assert ended.code == code, ended
    assert ended.out.splitlines()[-1].startswith("DOES NOT HOLD" if code == 1 else "CANNOT BE CHECKED")
    assert ended.err == "", "nothing was run"
    told = verified(ralph, file, "--yes", "--json").json
    assert told["result"] == ("differs" if code == 1 else "unchecked")
    assert told["reasons"]
    return ended


def test_the_file_as_it_was_written_holds(world: tuple[Ralph, Path]) -> None:
    ralph, file = world
    ended = verified(ralph, file)
    assert ended.code == 0, ended
    assert (ralph.folder / "ran").exists()


def test_the_json_alone_is_a_proof_too(world: tuple[Ralph, Path]) -> None:
    ralph, file = world
    alone = file.with_name("proof.json")
    alone.write_text(json.dumps(read(file), indent=1))
    assert verified(ralph, alone).code == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [("sh check.sh", "sh chuck.sh"), ("tests", "tets"), ("\n", "\n\n"), ("\n", "\r\n"), ("e", "é")],
)
def test_a_page_that_was_edited_does_not_hold(world: tuple[Ralph, Path], old: str, new: str) -> None:
    ralph, file = world
    edited = file.with_name("edited.md")
    edited.write_bytes(file.read_text("utf-8").replace(old, new, 1).encode())
    assert "the page is not the one that its data make" in refused(ralph, edited).out


def test_what_was_written_below_the_page_does_not_hold(world: tuple[Ralph, Path]) -> None:
    ralph, file = world
    edited = file.with_name("edited.md")
    edited.write_text(file.read_text("utf-8") + "\nApproved by everybody.\n")
    assert verified(ralph, edited, "--yes").code in (1, 2)
    assert not (ralph.folder / "ran").exists()


def check(**fields: object) -> Change:
    return lambda proof: proof["checks"][0].update(fields)


def rule(**fields: object) -> Change:
    return lambda proof: proof["checks"][0]["rule"].update(fields)


def part(field: str, **fields: object) -> Change:
    return lambda proof: proof[field].update(fields)


def evidence(old: str, new: str) -> Change:
    def change(proof: Proof) -> None:
        kept = proof["records"]["evidence"]
        changed = {place: data.replace(old, new) for place, data in kept.items()}
        assert changed != kept, "there is nothing to forge"
        kept |= changed

    return change


def cut_off(proof: Proof) -> None:
    records = proof["records"]
    records["chain"].pop()
    del records["evidence"][str(len(records["chain"]))]
    records |= {"count": len(records["chain"]), "lastDigest": records["chain"][-1][5]}


ALTERED = {
    "command": check(command="true"),
    "exit-code": check(exitCode=1),
    "rule": rule(successCode=1),
    "folder": rule(folder="sub"),
    "passed": check(passed=False),
    "not-required": check(required=False),
    "commit": part("subject", commit=NO_COMMIT),
    "tree": part("subject", tree=NO_COMMIT),
    "concerns": part("outcome", concerns=[]),
    "outcome": part("outcome", status="ABORTED"),
    "iterations": part("outcome", iterations=7),
    "run": lambda proof: proof.update(run="20200101-000000-aaaa"),
    "check-left-out": lambda proof: proof["checks"].clear(),
    "check-added": lambda proof: proof["checks"].append(dict(proof["checks"][0], name="another")),
    "setup": lambda proof: proof["setup"].append("touch ../ran"),
    "settings": lambda proof: proof.update(settingsDigest="0" * 64),
    "sandbox": part("sandbox", name="bubblewrap", strength="strong"),
    "caveats": lambda proof: proof.update(caveats=[]),
    "record-exit-code": evidence('"code": 0', '"code": 1'),
    "record-outcome": evidence('"iterations": 1', '"iterations": 9'),
    "records-cut-off": cut_off,
    "evidence-left-out": lambda proof: proof["records"]["evidence"].clear(),
}


@pytest.mark.parametrize("digest", [False, True], ids=["as-it-was", "digest-made-anew"])
@pytest.mark.parametrize("change", ALTERED.values(), ids=ALTERED)
def test_data_that_were_edited_do_not_hold(world: tuple[Ralph, Path], change: Change, digest: bool) -> None:
    ralph, file = world
    forged = rewritten(file, change, digest)
    assert forged.read_bytes() != file.read_bytes()
    refused(ralph, forged)
    assert not (ralph.folder / "ran").exists()


def without_the_end(proof: Proof) -> None:
    records = proof["records"]
    end = str(records["count"] - 1)
    del records["evidence"][end]
    records["withheldRecords"].append(int(end))
    proof["outcome"]["concerns"] = []


def test_a_proof_that_keeps_records_back_does_not_hold_by_its_file_alone(world: tuple[Ralph, Path]) -> None:
    ralph, file = world
    told = verified(ralph, rewritten(file, without_the_end), "--json")
    assert (told.code, told.json["result"]) == (2, "unchecked"), told
    assert "1 of the records that it rests on are withheld" in told.json["reasons"][0]
    assert [one["holds"] for one in told.json["reruns"]] == [True, True]


def test_a_check_that_is_withheld_has_no_command(world: tuple[Ralph, Path]) -> None:
    ralph, file = world
    refused(ralph, rewritten(file, check(withheld=True)))


def test_the_commit_is_looked_at_not_believed(world: tuple[Ralph, Path]) -> None:
    """A forger who makes everything agree, and names a tree that the commit does not have."""
    ralph, file = world
    other = ralph.git("rev-parse", "HEAD~1^{tree}").strip()
    forged = rewritten(file, part("subject", tree=other))
    ended = refused(ralph, forged)
    assert "tree" in ended.out


def test_settings_that_are_not_those_of_the_commit_do_not_hold(world: tuple[Ralph, Path]) -> None:
    ralph, file = world
    refused(ralph, rewritten(file, lambda proof: proof.update(settingsFileDigest="0" * 64)))
    refused(ralph, rewritten(file, lambda proof: proof.update(settingsFileDigest=None)))


def test_a_command_that_no_settings_name_is_shown_clean_and_not_run_without_yes(world: tuple[Ralph, Path]) -> None:
    ralph, file = world
    canary = ralph.folder / "canary"
    forged = with_command(file, f"touch {canary}; printf '\x1b]0;owned\x07\x1b[2J' # \u202egnp")
    ended = verified(ralph, forged)
    assert ended.code == 2, ended
    assert f"touch {canary}; printf" in ended.out
    assert "--yes" in ended.out
    assert not {"\x1b", "\x07", "\u202e"} & set(ended.out + ended.err)
    assert not canary.exists()
    told = verified(ralph, forged, "--json").json
    assert (told["result"], told["reruns"]) == ("unchecked", [])
    assert not canary.exists()
    told = verified(ralph, forged, "--yes")
    assert canary.exists(), "with somebody's word it is run"
    assert told.code == 2, "and what the settings ask for instead was not shown"
    assert "a check of that commit's settings is no part of the proof" in told.out
    assert not (ralph.folder / "ran").exists()


@pytest.mark.parametrize("field", [{"folder": "sub"}, {"success_code": 1}])
def test_nor_is_one_of_the_settings_by_another_rule(world: tuple[Ralph, Path], field: dict[str, object]) -> None:
    ralph, file = world

    def in_record(data: object) -> None:
        if isinstance(data, dict):
            if data.get("is") == "PassRule":
                data |= field
            for item in data.values():
                in_record(item)
        for item in data if isinstance(data, list) else ():
            in_record(item)

    fields = {"folder": "folder", "success_code": "successCode"}

    def in_fields(proof: Proof) -> None:
        for one in proof["checks"]:
            one["rule"] |= {fields[name]: item for name, item in field.items()}

    forged = reforged(file, in_record, in_fields)
    ended = verified(ralph, forged)
    assert ended.code == 2, ended
    assert "--yes" in ended.out
    assert not (ralph.folder / "ran").exists()


def test_a_file_of_any_other_form_never_breaks_the_program(
    world: tuple[Ralph, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every field away, or of another type, with a digest that fits."""
    ralph, file = world
    alone, good = file.with_name("odd.json"), read(file)

    def write(proof: Proof) -> None:
        alone.write_text(json.dumps(proof | {"digest": proof_digest(proof)}))
        code = main(["-d", str(ralph.root), str(alone), "--json"])
        told = json.loads(capsys.readouterr().out)
        assert (code, told["result"]) in ((1, "differs"), (2, "unchecked")), told
        assert told["reasons"]

    for name in good.keys() - {"digest"}:
        write({field: item for field, item in good.items() if field != name})
        write(good | {name: 7 if isinstance(good[name], str) else "seven"})
    for name in good["checks"][0]:
        write(good | {"checks": [good["checks"][0] | {name: {"odd": []}}]})


# A run of this repository's own record


def test_a_log_that_was_edited_does_not_hold_wherever_its_copy_lies(ralph: Ralph) -> None:
    run = finished(ralph)
    name = read(exported(ralph))["checks"][0]["log"] + ".log"
    places = [ralph.run_folder(run) / name, Path(ralph.project.store) / "runs" / run / name]
    for path in places:
        was = path.read_bytes()
        path.write_bytes(was.replace(b"3", b"4"))
        ended = ralph("verify", run)
        assert ended.code == 1, ended
        assert f"the log {path} is not as the check wrote it" in ended.out
        path.write_bytes(was)
    assert ralph("verify", run).code == 0
    places[0].unlink()
    ended = ralph("verify", run)
    assert ended.code == 0, "a copy that is gone was not altered"
    assert f"note: the log {places[0]} is gone" in ended.out


def test_the_log_of_a_held_out_check_lies_in_one_place_and_is_looked_at_too(ralph: Ralph) -> None:
    run = settled(ralph, finalChecks=["echo 3 secrets"])
    (log,) = (
        name for name in (Path(ralph.project.store) / "runs" / run).glob("*.log") if b"secrets" in name.read_bytes()
    )
    assert "note: " not in ralph("verify", run).out
    log.write_text("4 secrets\n")
    ended = ralph("verify", run)
    assert (ended.code, f"the log {log} is not as the check wrote it" in ended.out) == (1, True), ended


def test_a_record_that_was_edited_does_not_hold(ralph: Ralph) -> None:
    run = finished(ralph)
    with sqlite3.connect(Path(ralph.project.store) / "ledger.db") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        changed = "UPDATE record SET data = replace(data, 'sh check.sh', 'true') WHERE kind = 'CheckEnded'"
        assert database.execute(changed).rowcount
    ended = ralph("verify", run)
    assert ended.code == 1, ended
    assert "was changed, or one before it is missing" in ended.out
    assert ended.err == ""


def test_a_commit_whose_settings_were_weakened_is_another_tree(ralph: Ralph) -> None:
    settled(ralph)
    file = exported(ralph)
    ralph.settings(guardrails=[{"command": "true"}])
    ralph.git("add", "-A")
    ralph.git("commit", "-q", "--amend", "-m", "work is done")
    ralph.git("reflog", "expire", "--expire=now", "--all")
    for name in ralph.git("for-each-ref", "--format=%(refname)", "refs/ralph").split():
        ralph.git("update-ref", "-d", name)
    ralph.git("gc", "-q", "--prune=now")
    ended = ralph("verify", str(file), "--yes")
    assert ended.code == 2, ended
    assert "is not in this repository; fetch it: git fetch REMOTE" in ended.out


def test_a_commit_that_was_only_reworded_has_the_very_same_tree(ralph: Ralph) -> None:
    settled(ralph)
    file = exported(ralph)
    ralph.git("commit", "-q", "--amend", "-m", "in better words")
    ralph.git("reflog", "expire", "--expire=now", "--all")
    for name in ralph.git("for-each-ref", "--format=%(refname)", "refs/ralph").split():
        ralph.git("update-ref", "-d", name)
    ralph.git("gc", "-q", "--prune=now")
    ended = ralph("verify", str(file))
    assert ended.code == 0, ended
    assert f"{ralph.git('rev-parse', 'HEAD').strip()} has the very same tree" in ended.out
