"""The run's files: private, atomic, never written through a link, and created again after a deletion."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.base.errors import DiskFull, HarnessFailed, Refused, WorkspaceGone
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.environment import RunFiles
from ralphproof.store.run_folder import RunFolder, new_run_id
from tests.needs import require

if TYPE_CHECKING:
    from ralphproof.base.value import Json

SECRET = 'tok"en\\é'


def folder_of(tmp_path: Path, run: str = "20261115-210507-k3f9") -> RunFolder:
    (tmp_path / "project").mkdir(exist_ok=True)
    return RunFolder(str(tmp_path / "project"), run, str(tmp_path / "state"), lambda text: text.replace(SECRET, "***"))


def log(folder: RunFolder, data: bytes = b"said\n", ending: str = ".ndjson", name: str = "agent_001") -> Path:
    """A log as the keeper leaves it."""
    path = Path(folder.log_base(name) + ending)
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def publish(folder: RunFolder) -> None:
    log(folder)
    folder.publish("agent_001")


WRITES: dict[str, Callable[[RunFolder], object]] = {
    "begin": lambda folder: folder.begin(),
    "prompt": lambda folder: folder.write_prompt("prompt_001", "text"),
    "publish": publish,
    "task folder": lambda folder: folder.task_folder,
    "outcome": lambda folder: folder.write_outcome({"status": "COMPLETED"}),
}
every_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


def test_all_names_lie_where_the_house_says(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    plain: RunFiles = folder
    run = tmp_path / "project" / ".ralph" / "runs" / "20261115-210507-k3f9"
    assert plain.write_prompt("prompt_001", "x") == str(run / "prompt_001.txt")
    assert plain.log_base("agent_001") == str(tmp_path / "state" / "runs" / run.name / "agent_001")
    assert plain.published_path("agent_001") == str(run / "agent_001")
    assert plain.turn_file("agent_001") == plain.log_base("agent_001") + ".turn"
    assert folder.task_folder == str(run / "task")
    plain.write_outcome({"b": 1, "a": "é"})
    assert (run / "outcome.json").read_text() == '{\n  "a": "\\u00e9",\n  "b": 1\n}\n'
    assert os.readlink(tmp_path / "project" / ".ralph" / "latest") == f"runs/{run.name}"
    assert sorted(os.listdir(run)) == ["outcome.json", "prompt_001.txt", "task"]
    assert sorted(os.listdir(tmp_path / "project" / ".ralph")) == [".gitignore", "latest", "runs"]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a\r\nb\n\rc", b"a\r\nb\n\rc"),
        ("caf\udce9 é", b"caf\xe9 \xc3\xa9"),
        ("half \ud83d", b"half \xef\xbf\xbd"),
        ("split \ud83d\ude00", b"split \xf0\x9f\x98\x80"),
        (f"key={SECRET};", b"key=***;"),
        ("", b""),
    ],
)
def test_a_prompt_is_written_byte_for_byte_but_for_secrets(tmp_path: Path, text: str, data: bytes) -> None:
    assert Path(folder_of(tmp_path).write_prompt("p", text)).read_bytes() == data


def test_a_prompt_written_again_leaves_the_old_one_to_whoever_reads_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    with open(folder.write_prompt("p", "old"), "rb") as reader:
        folder.write_prompt("p", "new")
        assert reader.read() == b"old"


def test_the_outcome_is_masked_and_has_no_numbers_that_json_lacks(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.write_outcome({"output": f"it is {SECRET}", "files": [SECRET]})
    path = Path(folder.published_path("outcome") + ".json")
    assert json.loads(path.read_text()) == {"output": "it is ***", "files": ["***"]}
    with pytest.raises(HarnessFailed, match="number"):
        folder.write_outcome({"cost": float("inf")})
    assert json.loads(path.read_text()) == {"output": "it is ***", "files": ["***"]}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    folder = folder_of(tmp_path)
    old = os.umask(umask)
    try:
        for write in WRITES.values():
            write(folder)
        folder.turn_file("agent_001")
        folder.note("facts", {"a": 1})
        chosen = RunFolder(str(tmp_path / "project"), "b", str(tmp_path / "state"), task_folder=".ralph/mine/deep")
        assert os.path.isdir(chosen.task_folder)
    finally:
        os.umask(old)
    assert Path(folder.published_path("agent_001") + ".ndjson").is_file()
    for root in (tmp_path / "project" / ".ralph", tmp_path / "state"):
        for path in (root, *root.rglob("*")):
            if not path.is_symlink():
                assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@every_write
def test_what_was_deleted_is_made_again(tmp_path: Path, write: Callable[[RunFolder], object]) -> None:
    folder = folder_of(tmp_path)
    for deleted in (".ralph", ".ralph/runs", ".ralph/runs/20261115-210507-k3f9", ".ralph/latest"):
        folder.begin()
        target = tmp_path / "project" / deleted
        target.unlink() if target.is_symlink() else shutil.rmtree(target)
        write(folder)
        assert (tmp_path / "project" / ".ralph" / "runs" / "20261115-210507-k3f9").is_dir()
        assert (tmp_path / "project" / ".ralph" / ".gitignore").is_file()
    shutil.rmtree(tmp_path / "state", ignore_errors=True)
    assert os.path.isdir(os.path.dirname(folder.turn_file("x")))


@every_write
def test_a_project_that_is_gone_is_said(tmp_path: Path, write: Callable[[RunFolder], object]) -> None:
    folder = folder_of(tmp_path)
    folder.begin()
    (tmp_path / "project").rename(tmp_path / "elsewhere")
    with pytest.raises(WorkspaceGone, match="project is gone"):
        write(folder)
    assert not (tmp_path / "project").exists()


@every_write
@pytest.mark.parametrize("place", [".ralph", ".ralph/runs", ".ralph/runs/20261115-210507-k3f9"])
@pytest.mark.parametrize("kind", ["link", "dangling", "file"])
def test_nothing_is_written_through_a_link(
    tmp_path: Path, write: Callable[[RunFolder], object], place: str, kind: str
) -> None:
    folder = folder_of(tmp_path)
    ssh, target = tmp_path / "ssh", tmp_path / "project" / place
    target.parent.mkdir(parents=True, exist_ok=True)
    if kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to(ssh)
    if kind == "link":
        ssh.mkdir()
    with pytest.raises(Refused, match=f"{place} is a symbolic link or not a directory"):
        write(folder)
    assert not ssh.exists() or os.listdir(ssh) == []


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder.begin()
    path = Path(folder.published_path("p") + ".txt")
    path.symlink_to(victim)
    path.with_name(f".p.txt.{os.getpid()}.tmp").symlink_to(victim)
    folder.write_prompt("p", "text")
    assert victim.read_text() == "mine"
    assert path.read_text() == "text"
    assert not path.is_symlink()


def test_the_logs_of_a_name_are_published_and_nothing_else(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    Path(folder.turn_file("agent_001")).touch()
    for name, ending in [("agent_001", ".ndjson"), ("agent_001", ".stderr.log"), ("agent_001_2", ".ndjson")]:
        log(folder, f"{name}{ending}".encode(), ending, name)
    folder.begin()
    run = Path(folder.published_path("agent_001")).parent
    (run / "agent_001_2.ndjson").unlink()
    folder.publish("agent_001")
    assert {path.name: path.read_text() for path in run.iterdir()} == {
        "agent_001.ndjson": "agent_001.ndjson", "agent_001.stderr.log": "agent_001.stderr.log",
    }  # fmt: skip


def test_what_is_private_is_never_published(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.write_prompt("agent_001", f"log in with {SECRET}")
    folder.note("agent_001", {"key": SECRET})
    Path(folder.turn_file("agent_001")).touch()
    Path(folder.log_base(".agent_001.asked.7.tmp")).write_text("left by a crash")
    log(folder)
    folder.publish("agent_001")
    run = Path(folder.published_path("agent_001")).parent
    assert sorted(os.listdir(run)) == ["agent_001.ndjson", "agent_001.txt"]
    shutil.rmtree(run)
    folder.write_outcome({})
    assert sorted(os.listdir(run)) == ["agent_001.ndjson", "outcome.json"]


TEXTS = ["", "a\r\nb\n\rc\0", f"key={SECRET};", "byte \udcff half \ud83d split \ud83d\ude00", "é" * 500_000]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_prompt_is_kept_as_it_was_asked_whatever_becomes_of_its_file(tmp_path: Path, text: str) -> None:
    folder = folder_of(tmp_path)
    assert folder.read_prompt("p") is None
    folder.write_prompt("p", "old")
    os.unlink(folder.write_prompt("p", text))
    assert folder_of(tmp_path).read_prompt("p") == text.replace(SECRET, "***")
    kept = tmp_path / "state" / "runs" / folder.run / "p.asked"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def spoil(path: Path, kind: str) -> None:
    victim = path.with_name("victim")
    victim.write_text('"mine"\n')
    path.unlink()
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to(victim)
        case "gone":
            pass
        case _:
            path.write_bytes(kind.encode("latin-1"))


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "gone", "\xff\xfe"])
def test_a_prompt_that_cannot_be_read_back_is_lost(tmp_path: Path, kind: str) -> None:
    folder = folder_of(tmp_path)
    folder.write_prompt("p", "text")
    spoil(Path(folder.log_base("p.asked")), kind)
    assert folder.read_prompt("p") is None


NOTES: list[Json] = [{"a": [1, 2.5, None, True], "byte \udcff": {}}, [], "text", 0, False, {"secret": SECRET}]


@pytest.mark.parametrize("data", NOTES, ids=range(len(NOTES)))
def test_a_note_comes_back_as_it_was_kept(tmp_path: Path, data: Json) -> None:
    folder = folder_of(tmp_path)
    assert folder.noted("facts") is None
    folder.note("facts", {"old": "x" * 1000})
    folder.note("facts", data)
    assert folder_of(tmp_path).noted("facts") == data
    kept = tmp_path / "state" / "runs" / folder.run / "facts.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert os.listdir(kept.parent) == ["facts.json"]


@pytest.mark.parametrize(
    "kind", ["fifo", "directory", "link", "gone", "", '{"a": ', "12", "{]\n", "\xff\n", "[" * 9999 + "\n"]
)
def test_a_note_that_is_not_as_it_was_written_is_none(tmp_path: Path, kind: str) -> None:
    folder = folder_of(tmp_path)
    folder.note("facts", 123)
    spoil(Path(folder.log_base("facts.json")), kind)
    assert folder.noted("facts") is None


def test_a_number_that_json_lacks_is_not_noted(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.note("facts", 1)
    with pytest.raises(HarnessFailed, match="number"):
        folder.note("facts", float("nan"))
    assert folder.noted("facts") == 1


def test_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (tmp_path / "state").write_text("in the way")
    for write in (lambda: folder.note("facts", 1), lambda: folder.write_prompt("p", "text")):
        with pytest.raises(Refused, match="RALPH_STATE_DIR"):
            write()
    (tmp_path / "state").unlink()
    with pytest.raises(Refused, match=r"xxx\.json: File name too long; set RALPH_STATE_DIR"):
        folder.note("x" * 300, 1)


def chosen(tmp_path: Path, task_folder: str) -> RunFolder:
    (tmp_path / "project").mkdir(exist_ok=True)
    return RunFolder(str(tmp_path / "project"), "r", str(tmp_path / "state"), str, task_folder)


def test_a_task_folder_that_was_chosen_is_made_if_it_is_missing_and_else_left_as_it_is(tmp_path: Path) -> None:
    folder = chosen(tmp_path, str(tmp_path / "tasks" / "one"))
    for _ in range(2):
        assert folder.task_folder == str(tmp_path / "tasks" / "one")
        assert stat.S_IMODE((tmp_path / "tasks" / "one").stat().st_mode) == 0o700
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    for name in ("open", "link"):
        assert chosen(tmp_path, str(tmp_path / name)).task_folder == str(tmp_path / name)
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o755
    assert chosen(tmp_path, "tasks/two").task_folder == str(tmp_path / "project" / "tasks" / "two")
    assert not (tmp_path / "project" / ".ralph").exists()


@pytest.mark.parametrize("place", ["file", "file/below", "dangling"])
def test_a_task_folder_that_can_be_none_is_refused_in_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(Refused, match=f"{place} is a symbolic link or not a directory.*another task folder") as refusal:
        chosen(tmp_path, str(tmp_path / place)).task_folder  # noqa: B018
    assert "\n" not in str(refusal.value)
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "nothing").exists()


def test_a_published_log_is_a_copy(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    data = os.urandom(3 << 20)
    kept = log(folder, data)
    folder.publish("agent_001")
    published = Path(folder.published_path("agent_001") + ".ndjson")
    assert published.read_bytes() == data
    published.write_text("forged")
    assert kept.read_bytes() == data
    log(folder, b"more")
    folder.publish("agent_001")
    assert published.read_bytes() == b"more"


def test_a_log_is_copied_to_another_disk(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    data = os.urandom(3 << 20)
    log(folder, data)
    project = tmp_path / "project"
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(project)]
    mounted = os.geteuid() == 0 and not subprocess.run(command, capture_output=True).returncode
    require(mounted, "a file system can only be mounted by root")
    try:
        folder.publish("agent_001")
        assert Path(folder.published_path("agent_001") + ".ndjson").read_bytes() == data
    finally:
        subprocess.run(["umount", "-l", str(project)], check=True)


def test_a_folder_that_is_made_again_gets_all_its_logs_again(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    for name in ("agent_001", "agent_002"):
        log(folder, name.encode(), name=name)
        folder.publish(name)
    shutil.rmtree(tmp_path / "project" / ".ralph")
    folder.write_outcome({"status": "COMPLETED"})
    run = Path(folder.published_path("agent_001")).parent
    assert sorted(os.listdir(run)) == ["agent_001.ndjson", "agent_002.ndjson", "outcome.json"]
    assert (run / "agent_001.ndjson").read_bytes() == b"agent_001"


def fill(path: Path, victim: Path) -> None:
    (path / "deep").mkdir(parents=True)
    (path / "link").symlink_to(victim)


KINDS: dict[str, Callable[[Path, Path], object]] = {
    "fifo": lambda path, _: os.mkfifo(path),
    "directory": lambda path, _: path.mkdir(),
    "full directory": fill,
    "link": lambda path, victim: path.symlink_to(victim),
    "dangling": lambda path, victim: path.symlink_to(victim.with_name("made")),
    "loop": lambda path, _: path.symlink_to(path),
}
every_kind = pytest.mark.parametrize("plant", KINDS.values(), ids=KINDS)


@every_kind
def test_whatever_stands_in_the_place_of_a_file_is_replaced(
    tmp_path: Path, plant: Callable[[Path, Path], object]
) -> None:
    folder = folder_of(tmp_path)
    folder.begin()
    run, victim = Path(folder.published_path("x")).parent, tmp_path / "victim"
    victim.write_text("mine")
    names = ("agent_001.ndjson", "p.txt", "outcome.json")
    for name in names:
        plant(run / name, victim)
        plant(run / f".{name}.{os.getpid()}.tmp", victim)
    for _ in range(2):
        publish(folder)
        folder.write_prompt("p", "text")
        folder.write_outcome({})
        assert [(run / name).read_text() for name in names] == ["said\n", "text", "{}\n"]
        assert not any((run / name).is_symlink() for name in names)
    assert victim.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["project", "state", "victim"]


@every_kind
def test_only_a_file_is_published(tmp_path: Path, plant: Callable[[Path, Path], object]) -> None:
    folder = folder_of(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("secret")
    plant(Path(folder.log_base("agent_001") + ".ndjson"), victim)
    log(folder, ending=".stderr.log")
    folder.publish("agent_001")
    assert os.listdir(os.path.dirname(folder.published_path("x"))) == ["agent_001.stderr.log"]


def test_latest_points_to_the_run_that_began_last_and_a_directory_of_that_name_stops_nothing(tmp_path: Path) -> None:
    latest = tmp_path / "project" / ".ralph" / "latest"
    for run in ("a", "b", "a"):
        folder_of(tmp_path, run).begin()
        assert os.readlink(latest) == f"runs/{run}"
    latest.unlink()
    latest.mkdir()
    folder_of(tmp_path, "c").begin()
    assert latest.is_dir()
    assert sorted(os.listdir(latest.parent)) == [".gitignore", "latest", "runs"]


def test_git_sees_settings_and_skills_and_nothing_else(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.write_prompt("p", "x")
    ralph = tmp_path / "project" / ".ralph"
    (ralph / "skills" / "a" / "b").mkdir(parents=True)
    (ralph / "metrics").mkdir()
    for name in ("settings.json", "settings.local.json", "skills/a/b/SKILL.md", "metrics/settings.json"):
        (ralph / name).touch()
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q", str(ralph.parent)], check=True, env=environ)
    listed = subprocess.run(
        ["git", "-C", str(ralph.parent), "ls-files", "-o", "--exclude-standard"],
        check=True, env=environ, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    assert listed == [".ralph/.gitignore", ".ralph/settings.json", ".ralph/skills/a/b/SKILL.md"]


def test_a_gitignore_of_the_user_stays(tmp_path: Path) -> None:
    ignored = tmp_path / "project" / ".ralph" / ".gitignore"
    ignored.parent.mkdir(parents=True)
    ignored.write_text("mine\n")
    folder_of(tmp_path).begin()
    assert ignored.read_text() == "mine\n"


@every_write
def test_a_read_only_project_is_refused_with_its_name(tmp_path: Path, write: Callable[[RunFolder], object]) -> None:
    folder = folder_of(tmp_path)
    project = tmp_path / "project"
    command = ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(project)]
    mounted = os.geteuid() == 0 and not subprocess.run(command, capture_output=True).returncode
    require(mounted, "a read-only file system can only be mounted by root")
    try:
        with pytest.raises(Refused, match=f"cannot write {project}: Read-only file system; make it"):
            write(folder)
    finally:
        subprocess.run(["umount", "-l", str(project)], check=True)


def test_a_full_disk_is_said_and_the_old_outcome_stays(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    project = tmp_path / "project"
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(project)]
    mounted = os.geteuid() == 0 and not subprocess.run(command, capture_output=True).returncode
    require(mounted, "a small file system can only be mounted by root")
    try:
        folder.write_outcome({"status": "OLD"})
        with pytest.raises(DiskFull, match="No space left"):
            folder.write_outcome({"status": "x" * 200_000})
        with pytest.raises(DiskFull, match="No space left"):
            folder.write_prompt("p", "x" * 200_000)
        log(folder, b"x" * 200_000)
        with pytest.raises(DiskFull, match="No space left"):
            folder.publish("agent_001")
        run = Path(folder.published_path("outcome")).parent
        assert os.listdir(run) == ["outcome.json"]
        assert json.loads((run / "outcome.json").read_text()) == {"status": "OLD"}
    finally:
        subprocess.run(["umount", "-l", str(project)], check=True)


def test_a_run_id_sorts_by_time_and_follows_from_its_inputs() -> None:
    assert new_run_id(1794776707.9, b"\x00\x00\x00") == "20261115-210507-0000"
    assert new_run_id(1794776707.9, b"\xff\xff\xff") == "20261115-210507-zzzz"
    ids = [new_run_id(1794776707.9 + hour * 3600, os.urandom(3)) for hour in range(100)]
    assert ids == sorted(ids)
    assert len({new_run_id(0, number.to_bytes(3, "big")) for number in range(5000)}) == 5000
    assert all(id == id.lower() and id.isascii() for id in ids)
