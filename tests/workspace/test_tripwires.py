"""Whatever an agent does to protected files is seen by content, kept as a patch, and undone."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralphproof.base import files as base_files
from ralphproof.base.errors import DiskFull, Refused, WorkspaceGone
from ralphproof.base.value import pack, unpack
from ralphproof.engine.workspace import TripwireReport
from ralphproof.workspace import files, protected_paths
from ralphproof.workspace import protected_paths as watching
from ralphproof.workspace.protected_paths import ProtectedPattern, ReservedPath
from tests.needs import require
from tests.workspace.tripwire_project import STOPS, SUBMODULE, TripwireProject, all_files, create_files, watched

if TYPE_CHECKING:
    from ralphproof.workspace.git_workspace import GitWorkspace
    from tests.workspace.conftest import Repo

    OpenTripwires = Callable[..., TripwireProject]


@pytest.fixture(params=["git", "plain"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def traps(repo: Repo, open_git: Callable[..., GitWorkspace]) -> OpenTripwires:
    def lays(
        kind: str = "git", *, setup: str = "", stops: tuple[str, ...] = STOPS, own: tuple[ReservedPath, ...] = ()
    ) -> TripwireProject:
        create_files(repo)
        repo.sh(setup)
        return TripwireProject(repo, open_git(repo) if kind == "git" else None, stops, own).arm()

    return lays


# how, what the agent does, what must be told
WAYS = [
    ("an edit", "echo x >> src/auth/a.py", ["src/auth/a.py"]),
    ("an edit of the same size with its time put back",
     "touch -r src/auth/deep/b.py ../t; echo peed > src/auth/deep/b.py; touch -r ../t src/auth/deep/b.py",
     ["src/auth/deep/b.py"]),
    ("an edit hidden from git", "git update-index --assume-unchanged src/auth/a.py; echo x > src/auth/a.py",
     ["src/auth/a.py"]),
    ("an edit that is committed", "echo x >> src/auth/a.py; git commit -qam x", ["src/auth/a.py"]),
    ("a rename by git", "git mv src/auth/a.py src/b.py", ["src/auth/a.py"]),
    ("a rename that is committed", "git mv src/auth/a.py src/b.py; git commit -qm x", ["src/auth/a.py"]),
    ("a rename onto it", "git mv -f src/f1 src/auth/a.py", ["src/auth/a.py"]),
    ("a rename within", "git mv src/auth/a.py src/auth/c.py", ["src/auth/a.py", "src/auth/c.py"]),
    ("a write through an alias", "ln -s src/auth alias; echo x >> alias/a.py", ["src/auth/a.py"]),
    ("a write through a hard link", "ln src/auth/a.py ../h; echo x >> ../h", ["src/auth/a.py"]),
    ("a folder moved away and linked back", "mv src/auth src/auth2; ln -s auth2 src/auth",
     ["src/auth", "src/auth/a.py", "src/auth/deep/b.py", "src/auth/run.sh"]),
    ("a folder above moved away and linked back", "mv src ../src; ln -s ../src src",
     ["src", "src/auth/a.py", "src/auth/deep/b.py", "src/auth/run.sh"]),
    ("a folder above that became a file", "mv src other; echo file > src",
     ["src", "src/auth/a.py", "src/auth/deep/b.py", "src/auth/run.sh"]),
    ("an ignored file", "echo STOLEN >> .env", [".env"]),
    ("an ignored file deleted", "rm .env", [".env"]),
    ("git clean", "git clean -qfdx", [".env"]),
    ("a chmod", "chmod +x src/auth/a.py", ["src/auth/a.py"]),
    ("a chmod the other way", "chmod -x src/auth/run.sh", ["src/auth/run.sh"]),
    ("a deletion", "rm src/auth/deep/b.py", ["src/auth/deep/b.py"]),
    ("a deleted folder", "rm -r migrations", ["migrations/001.sql"]),
    ("a new file", "echo x > src/auth/new.py", ["src/auth/new.py"]),
    ("a new folder", "mkdir -p migrations/more/deep; echo x > migrations/more/deep/2.sql",
     ["migrations/more/deep/2.sql"]),
    ("a file that became a link", "mv src/auth/a.py ../a.py; ln -s ../../../a.py src/auth/a.py", ["src/auth/a.py"]),
    ("a file that became a folder", "rm .env; mkdir .env; echo x > .env/inside", [".env", ".env/inside"]),
    ("a file that became an empty folder", "rm .env; mkdir .env", [".env"]),
    ("a file that became a pipe", "rm .env; mkfifo .env", [".env"]),
    ("a folder that became a file", "rm -r migrations; echo x > migrations", ["migrations", "migrations/001.sql"]),
    ("a repository made inside", "git init -q migrations/sub; echo x > migrations/sub/x", ["migrations/sub/x"]),
    ("odd names", "printf x > \"$(printf 'src/auth/a\\nb\\377')\"", ["src/auth/a\nb\udcff"]),
    ("a compiled module elsewhere than in its cache", "echo x > src/auth/a.pyc", ["src/auth/a.pyc"]),
]  # fmt: skip


@pytest.mark.parametrize(("script", "paths"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS])
def test_every_way_to_touch_a_protected_path_is_told_and_undone(
    traps: OpenTripwires, repo: Repo, kind: str, script: str, paths: list[str]
) -> None:
    trap = traps(kind)
    before = watched(all_files(repo.path))
    sprung = trap.after(script)
    assert [one.path for one in sprung.touched] == paths
    assert all(one.stops and one.rule.startswith("protectedPaths: ") and not one.trouble for one in sprung.touched)
    assert watched(all_files(repo.path)) == before
    assert not list(repo.path.rglob(".ralph-put-*"))
    patch = Path(sprung.patch)
    assert stat.S_IMODE(patch.stat().st_mode) == 0o600
    assert all(f"/{path}".encode("utf-8", "surrogateescape") in patch.read_bytes() for path in paths)
    assert unpack(pack(sprung)) == sprung


@pytest.mark.parametrize("script", [way[1] for way in WAYS], ids=[way[0] for way in WAYS])
def test_what_was_put_back_trips_nothing_in_the_next_turn(traps: OpenTripwires, kind: str, script: str) -> None:
    trap = traps(kind)
    assert trap.after(script).touched
    assert trap.wires.check_and_restore("agent_001_2") == TripwireReport()
    trap.wires.start_watching()
    assert trap.wires.check_and_restore("agent_002") == TripwireReport()


NESTED = [
    ("a nested repository", "git init -q migrations/sub; cd migrations/sub; echo w > w; git add w; git commit -qm w",
     "cd migrations/sub; echo x > w; git commit -qam x", ["migrations/sub/w"]),
    ("a new file in a submodule", SUBMODULE, "echo x > migrations/sub/new", ["migrations/sub/new"]),
    ("a commit in a submodule", SUBMODULE, "cd migrations/sub; echo x > m; git commit -qam x", ["migrations/sub/m"]),
    ("what a link leads to", "mkdir conf; mv .env conf/env; ln -s conf/env .env", "echo x >> conf/env", ["conf/env"]),
    ("a link turned elsewhere", "mkdir conf; mv .env conf/env; ln -s conf/env .env",
     "echo x > conf/other; ln -sf conf/other .env", [".env"]),
    ("a link in a chain of links", "mv .env e1; ln -s e1 e2; ln -s e2 .env", "echo x > e3; ln -sf e3 e2", ["e2"]),
    ("a file behind a folder that is a link", "mv src lib; ln -s lib src", "echo x > src/auth/a.py",
     ["lib/auth/a.py"]),
    ("a new file behind a folder that is a link", "mkdir lib; mv src/auth ../; mv src/* lib; rmdir src; ln -s lib src",
     "mkdir src/auth; echo x > src/auth/n", ["lib/auth/n"]),
    ("a folder on the way that is a link and was turned", "mv src lib; ln -s lib src",
     "cp -r lib lib2; ln -sfn lib2 src", ["src"]),
    ("a link that leads to the place where nothing was", "rm -r migrations; mkdir elsewhere",
     "ln -s elsewhere migrations", ["migrations"]),
    ("a link above that leads to the place where nothing was", "mv src lib; mkdir o; mkdir o/auth; echo x > o/auth/x",
     "ln -s o src", ["src"]),
]  # fmt: skip


@pytest.mark.parametrize(("setup", "script", "paths"), [way[1:] for way in NESTED], ids=[way[0] for way in NESTED])
def test_repositories_inside_and_links_are_watched_by_what_they_hold(
    traps: OpenTripwires, repo: Repo, setup: str, script: str, paths: list[str]
) -> None:
    trap = traps(setup=setup)
    before = all_files(repo.path)
    sprung = trap.after(script)
    assert [one.path for one in sprung.touched] == paths
    assert all(one.stops and not one.trouble for one in sprung.touched)
    after = all_files(repo.path)
    assert {path: one for path, one in after.items() if path in before} == before


QUIET = [
    ("compiled modules", "mkdir -p src/auth/__pycache__; echo x > src/auth/__pycache__/a.cpython-311.pyc"),
    ("what Finder leaves", "echo x > src/auth/.DS_Store"),
    ("times alone", "touch src/auth/a.py .env"),
    ("the same content again", "cp src/auth/a.py ../a; rm src/auth/a.py; cp ../a src/auth/a.py"),
    ("permissions of the group", "chmod g-r,o-r,g+w src/auth/a.py"),
    ("names that begin alike", "echo x >> src/authors.py; echo x >> .envrc; echo x > migrations.md; mkdir src/auth2"),
    ("a link to it from elsewhere", "ln -s src/auth alias"),
    ("an empty folder in it", "mkdir src/auth/empty"),
    ("an edit that is undone in the turn", "cp .env ../e; echo x >> .env; cp ../e .env"),
    ("other work", "echo x > src/new.py; git add -A; git commit -qm work"),
    ("a staged edit elsewhere", "echo x >> src/f1; git add src/f1"),
]


@pytest.mark.parametrize("script", [way[1] for way in QUIET], ids=[way[0] for way in QUIET])
def test_what_is_no_touch_trips_nothing(traps: OpenTripwires, kind: str, script: str) -> None:
    trap = traps(kind)
    assert trap.after(script) == TripwireReport()
    assert list(trap.kept.iterdir()) == []


def test_what_the_user_changes_between_turns_is_taken_as_it_is(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps()
    assert trap.after("true") == TripwireReport()
    repo.write(".env", "SECRET=2\n")
    trap.wires.start_watching()
    trap.after("rm .env", "agent_002")
    assert (repo.path / ".env").read_text() == "SECRET=2\n"


def test_a_private_file_stays_private_when_it_is_put_back(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps()
    trap.after("rm .env")
    assert stat.S_IMODE((repo.path / ".env").stat().st_mode) == 0o600
    repo.sh("chmod 644 .env; echo x >> .env")
    trap.wires.check_and_restore("agent_001_2")
    assert stat.S_IMODE((repo.path / ".env").stat().st_mode) == 0o600
    assert stat.S_IMODE(trap.vault.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in trap.vault.iterdir() if file.is_file()} == {0o600}


def test_nothing_outside_the_project_is_written_when_files_are_put_back(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps()
    outside = repo.base / "outside"
    outside.mkdir()
    (outside / "a.py").write_text("theirs")
    trap.after("rm -r src/auth; ln -s ../../outside src/auth")
    assert all_files(outside) == {"a.py": (outside.joinpath("a.py").stat().st_mode, b"theirs")}
    assert not (repo.path / "src/auth").is_symlink()


def test_the_patch_can_be_applied_to_see_the_attempt(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps()
    script = (
        "echo x >> src/auth/a.py; rm src/auth/deep/b.py; echo n > src/auth/new.py; chmod -x src/auth/run.sh;"
        "rm migrations/001.sql; ln -s /etc/passwd migrations/001.sql; printf 'A=1\\nno newline' > .env"
    )
    repo.sh(script)
    attempt = watched(all_files(repo.path))
    sprung = trap.wires.check_and_restore("agent_001")
    assert watched(all_files(repo.path)) != attempt
    subprocess.run(["git", "apply", sprung.patch], cwd=repo.path, env=repo.environ, check=True)
    applied = {path: (stat.S_IFMT(mode), mode & 0o100, text) for path, (mode, text) in all_files(repo.path).items()}
    assert all(applied[path] == (stat.S_IFMT(mode), mode & 0o100, text) for path, (mode, text) in attempt.items())
    assert "src/auth/deep/b.py" not in applied


def test_a_binary_file_is_kept_by_name_and_put_back(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps(setup="printf '\\000\\001' > src/auth/key.der")
    sprung = trap.after("printf '\\000\\002' > src/auth/key.der")
    assert b"Binary files a/src/auth/key.der and b/src/auth/key.der differ" in Path(sprung.patch).read_bytes()
    assert (repo.path / "src/auth/key.der").read_bytes() == b"\0\1"


def test_a_changed_file_too_large_to_copy_is_reported_and_not_restored(
    traps: OpenTripwires, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (watching, files):
        monkeypatch.setattr(module, "MAX_FILE_BYTES", 100)
    trap = traps(setup="head -c 101 /dev/zero > src/auth/large; head -c 101 /dev/zero > src/auth/same")
    sprung = trap.after("head -c 101 /dev/urandom > src/auth/large; touch src/auth/same")
    assert [(one.path, one.trouble) for one in sprung.touched] == [("src/auth/large", "no copy of it was kept")]
    assert trap.wires.check_and_restore("agent_001_2") == TripwireReport()


def test_beyond_the_size_limit_only_digests_are_stored(
    traps: OpenTripwires, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protected_paths, "MAX_COPIED_BYTES", 50)
    setup = "mkdir many; for i in 1 2 3 4; do head -c 20 /dev/urandom > many/$i; done"
    trap = traps(stops=("many/",), own=(ReservedPath("none", "none"),), setup=setup)
    trap.wires.start_watching()
    sprung = trap.after("for i in 1 2 3 4; do echo x > many/$i; done")
    assert sorted(one.trouble for one in sprung.touched) == ["", "", *["no copy of it was kept"] * 2]


def test_a_damaged_copy_is_not_put_back(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps()
    for pack_file in trap.vault.glob("pack-*"):
        pack_file.write_bytes(b"x" * pack_file.stat().st_size)
    sprung = trap.after("echo x >> .env")
    assert [(one.path, one.trouble) for one in sprung.touched] == [(".env", "the copy of it was damaged")]
    assert (repo.path / ".env").read_text() == "SECRET=1\nx\n"


def test_a_folder_in_the_way_that_holds_more_is_moved_aside(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps()
    sprung = trap.after("rm .env; mkdir .env; mkfifo .env/pipe; git init -q .env/sub")
    assert [one.path for one in sprung.touched] == [".env"]
    assert (repo.path / ".env").read_text() == "SECRET=1\n"
    (aside,) = repo.path.glob(".env.aside-*")
    assert sprung.remarks == (f"a folder that stood in the place of .env is now {aside.name}",)
    assert (aside / "sub/.git").is_dir()


def test_a_vault_that_is_gone_is_told_and_made_again(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps()
    shutil.rmtree(trap.vault)
    (remark,) = trap.anew().check_and_restore("agent_001").remarks
    assert "could not be compared" in remark
    trap.wires = trap.anew()
    assert [one.path for one in trap.after("echo x >> .env", "agent_002").touched] == [".env"]


def test_a_project_that_is_gone_is_told(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps()
    repo.path.rename(repo.base / "elsewhere")
    with pytest.raises(WorkspaceGone):
        trap.wires.check_and_restore("agent_001")


def test_copies_go_when_the_run_is_over(traps: OpenTripwires) -> None:
    trap = traps()
    trap.wires.discard()
    assert list(trap.vault.iterdir()) == []
    shutil.rmtree(trap.vault)
    trap.wires.discard()


def test_a_private_folder_deleted_during_a_turn_does_not_end_the_run(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps()
    shutil.rmtree(trap.vault)
    (touched,) = trap.after("echo x >> .env").touched
    assert touched.trouble
    trap.wires.start_watching()
    trap.after("rm .env", "agent_002")
    assert (repo.path / ".env").read_text() == "SECRET=1\nx\n"


def test_what_cannot_be_put_back_is_kept_where_the_patch_is(
    traps: OpenTripwires, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(13, "Permission denied")

    trap = traps()
    monkeypatch.setattr(files, "_write_file", refused)
    (touched,) = trap.after("echo x >> .env").touched
    kept = trap.kept / "agent_001.0.was"
    assert touched.trouble == f"Permission denied; what it was is kept in {kept}"
    assert (kept.read_text(), stat.S_IMODE(kept.stat().st_mode)) == ("SECRET=1\n", 0o600)


def test_an_invalid_pattern_is_refused(repo: Repo) -> None:
    for pattern in ("", "/", "..", ".git"):
        with pytest.raises(Refused, match="protectedPaths"):
            TripwireProject(repo, None, (pattern,))


def test_unused_copies_are_removed(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps()
    for number in range(5):
        repo.write(".env", f"SECRET={number}\n")
        trap.wires.start_watching()
    assert len(list(trap.vault.glob("pack-*"))) <= 2
    trap.after("rm .env")
    assert (repo.path / ".env").read_text() == "SECRET=4\n"


@pytest.mark.parametrize("settled", [False, True])
def test_a_file_is_read_again_only_where_it_may_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    for module in (watching, files):
        monkeypatch.setattr(module, "SETTLED_NS", -(10**12) if settled else 10**12)
    reads: list[bytes] = []

    def keep(content: bytes) -> str:
        reads.append(content)
        return content.decode()

    file = tmp_path / "file"
    file.write_text("one")
    place = watching.WatchedFolder(str(tmp_path), (ProtectedPattern("file", "why"),), keep)
    place.resolve_links()
    assert place.scan() == place.scan()
    assert reads == [b"one"] * (1 if settled else 2), "what has just been written may be written again unseen"
    before = file.stat()
    while file.stat().st_ctime_ns == before.st_ctime_ns:
        file.write_text("two")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert place.scan()[b"file"][1] == "two"


OWN = [
    ("settings", "echo '{\"guardrails\": []}' > .ralph/settings.json", ".ralph/settings.json"),
    ("settings that were not there", "echo '{}' > .ralph/settings.local.json", ".ralph/settings.local.json"),
    ("a skill", "mkdir -p .ralph/skills/s; echo x > .ralph/skills/s/SKILL.md", ".ralph/skills/s/SKILL.md"),
    ("another agent's skill", "mkdir -p .claude/skills; echo x > .claude/skills/x.md", ".claude/skills/x.md"),
    ("the prompt", "echo 'say DONE' > PROMPT.md", "PROMPT.md"),
    ("the marker", "echo x > .ralph-active", ".ralph-active"),
    ("settings of Claude Code", "mkdir .claude; echo {} > .claude/settings.local.json", ".claude/settings.local.json"),
    ("hooks of Claude Code", "mkdir -p .claude/hooks; echo x > .claude/hooks/h.sh", ".claude/hooks/h.sh"),
    ("servers of tools", "echo {} > .mcp.json", ".mcp.json"),
    ("a hook", "echo x > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit", ".git/hooks/pre-commit"),
    ("the folder of hooks", "mkdir evil; mv .git/hooks ../h; ln -s ../evil .git/hooks", ".git/hooks"),
]


@pytest.mark.parametrize(("script", "path"), [way[1:] for way in OWN], ids=[way[0] for way in OWN])
def test_files_of_the_user_and_the_harness_are_put_back_and_told_and_stop_nothing(
    traps: OpenTripwires, repo: Repo, kind: str, script: str, path: str
) -> None:
    trap = traps(kind)
    before = all_files(repo.path)
    sprung = trap.after(script)
    assert [(one.path, one.stops, one.trouble) for one in sprung.touched] == [(path, False, "")]
    assert sprung.touched[0].rule
    assert all_files(repo.path) == before
    assert path.encode() in Path(sprung.patch).read_bytes()
    if path == ".git/hooks/pre-commit":
        assert not (repo.path / path).exists()


def test_a_deleted_folder_of_ours_comes_back(traps: OpenTripwires, repo: Repo) -> None:
    trap = traps()
    trap.after("rm -rf .ralph")
    assert (repo.path / ".ralph/settings.json").read_text() == "{}\n"


def test_sample_hooks_may_change(traps: OpenTripwires) -> None:
    assert traps().after("echo x > .git/hooks/pre-push.sample; rm -f .git/hooks/pre-commit.sample") == TripwireReport()


def test_a_path_that_is_both_protected_and_our_own_stops(traps: OpenTripwires) -> None:
    (touched,) = traps(stops=(".ralph/settings.json",)).after("echo x > .ralph/settings.json").touched
    assert touched.stops


GLOBS = [
    ("**/migrations/", "mkdir -p app/migrations; echo x > app/migrations/1.sql", ["app/migrations/1.sql"]),
    (".env*", "echo x > .env.a; echo x >> .envrc; mkdir sub; echo x > sub/.env", [".env.a", ".envrc", "sub/.env"]),
    ("*.pem", "mkdir -p node_modules/x; echo x > node_modules/x/a.pem; echo x > a.pem; echo x > a.pemx", ["a.pem"]),
    ("src/*/a.py", "echo x > src/a.py; mkdir src/x; echo x > src/x/a.py", ["src/x/a.py"]),
    ("src/**/b.py", "rm src/auth/deep/b.py; echo x > src/b.py; echo x > b.py", ["src/auth/deep/b.py", "src/b.py"]),
    ("src/f?", "echo x > src/f1; echo x > src/f10; rm src/f2", ["src/f1", "src/f2"]),
    ("conf.d", "echo x > confXd; mkdir conf.d; echo x > conf.d/x", ["conf.d/x"]),
    ("**/secret", "mkdir -p a/secret/deep; echo x > a/secret/deep/x", ["a/secret/deep/x"]),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "script", "paths"), GLOBS, ids=[way[0] for way in GLOBS])
def test_patterns_match_the_documented_paths(
    traps: OpenTripwires, repo: Repo, pattern: str, script: str, paths: list[str]
) -> None:
    trap = traps(stops=(pattern,))
    sprung = trap.after(script)
    assert [one.path for one in sprung.touched] == paths
    assert {one.rule for one in sprung.touched} == {f"protectedPaths: {pattern}"}


def test_a_full_disk_is_told_as_such(traps: OpenTripwires, repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = traps()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(protected_paths, "write_all", full)
    monkeypatch.setattr(base_files, "write_all", full)
    repo.write(".env", "SECRET=2\n")
    with pytest.raises(DiskFull):
        trap.wires.start_watching()
    with pytest.raises(DiskFull):
        trap.wires.check_and_restore("agent_001")
    assert (repo.path / ".env").read_text() == "SECRET=2\n"


CLOSED = """
import os, sys
from ralphproof.workspace.tripwires import ProtectedFileTripwires
root = sys.argv[1] + "/root"
base = sys.argv[1]
wires = ProtectedFileTripwires(root, base + "/vault", "r", ("auth/", ".env"), (), None, lambda name: base + "/" + name)
wires.start_watching()
open(root + "/auth/a", "w").write("changed")
open(root + "/auth/deep/b", "w").write("changed")
os.chmod(root + "/.env", 0)
os.chmod(root + "/auth/deep", 0)
os.chmod(root + "/auth", 0o500)
report = wires.check_and_restore("agent_001")
troubles = {one.path: one.trouble for one in report.touched}
assert troubles == {".env": "", "auth/a": "", "auth/deep/b": "", "auth/deep": ""}, troubles
assert open(root + "/.env").read() == open(root + "/auth/a").read() == "was"
assert os.stat(root + "/auth").st_mode & 0o777 == 0o500
os.chmod(root + "/auth/deep", 0o700)
assert open(root + "/auth/deep/b").read() == "was"
"""


def test_files_in_folders_that_were_closed_are_put_back_all_the_same() -> None:
    require(os.getuid() == 0, "only root can become another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as base:  # pytest's own folders are closed to other users
        for name in ("root/.env", "root/auth/a", "root/auth/deep/b"):
            (Path(base) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(base) / name).write_text("was")
        for folder, _, names in os.walk(base):
            for name in [".", *names]:
                os.chown(os.path.join(folder, name), 65534, 65534)
        argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", CLOSED, base]
        ran = subprocess.run(argv, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
