"""Ready-made verifications: how they are told what, and that what they stand for goes green and red."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.errors import Refused
from ralphproof.checks.methods import parse_verification
from ralphproof.checks.templates import (
    expand_template,
    list_templates,
    substitute_in_command,
    task_environment,
)
from ralphproof.engine.plan import ExternalVerification, MultiStageVerification, SemanticVerification, VerificationPart
from ralphproof.tasks.draft import task_from_draft, validate_draft
from tests.needs import require
from tests.tasks.samples import block, completion, draft

NEEDED: dict[str, Any] = {"http_health": {"url": "http://localhost:8000/health"}, "file_exists": {"paths": "a"}}
slow = pytest.mark.thorough


def holds(name: str, given: dict[str, Any], folder: Path, **env: str) -> tuple[bool, str]:
    """Whether the verification passes there, and what it prints."""
    how = parse_verification(*expand_template(name, given), task_from_draft(draft()))
    assert isinstance(how, ExternalVerification)
    bin = Path(sys.executable).parent
    clean = {name: told for name, told in os.environ.items() if not name.startswith(("PYTEST", "COV", "npm_"))}
    ran = subprocess.run(
        ["/bin/sh", "-c", how.command], cwd=folder / how.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=120,
        env={**clean, "PATH": f"{bin}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1",
             "npm_config_cache": str(folder / ".npm"), "CARGO_HOME": str(folder / ".cargo"),
             "CARGO_NET_OFFLINE": "true", "MYPY_CACHE_DIR": os.devnull, **env},
    )  # fmt: skip
    output = ran.stdout
    wanted = how.output_contains in output and not (how.output_not_contains and how.output_not_contains in output)
    return ran.returncode == how.success_exit_code and wanted, output


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_the_common_patterns_are_there() -> None:
    assert [template.name for template in list_templates()] == [
        "pytest", "pytest_coverage", "unittest", "ruff", "mypy", "bandit", "npm_test", "npm_lint", "npm_build",
        "go_test", "go_vet", "cargo_test", "cargo_clippy", "http_health", "file_exists", "no_todos",
    ]  # fmt: skip


@pytest.mark.parametrize("name", [template.name for template in list_templates()])
def test_a_template_with_its_defaults_is_a_valid_verification(name: str) -> None:
    given = NEEDED.get(name, {})
    method, config = expand_template(name, given)
    assert validate_draft(draft(completion=completion(coder=block(method, config)))) == ()
    told: dict[str, Any] = {"with": given} if given else {}
    used = block(verification_template=name, **told)
    task = draft(completion=completion(coder=used))
    assert validate_draft(task) == ()
    criteria = task_from_draft(task).criteria_for("coder")
    assert criteria is not None
    assert criteria.how == parse_verification(method, config, task_from_draft(task))
    assert next(template.purpose for template in list_templates() if template.name == name)


@pytest.mark.parametrize(
    ("name", "given", "command", "folder"),
    [
        ("pytest", {}, "pytest tests", "."),
        ("pytest_coverage", {"source": "my src", "minimum": 92.5},
         "pytest tests --cov='my src' --cov-report=term-missing --cov-fail-under=92.5", "."),
        ("bandit", {"path": "src/auth"}, "bandit -q -r src/auth", "."),
        ("go_test", {"folder": "server"}, "go test ./...", "server"),
        ("go_vet", {"path": "./a b"}, "go vet './a b'", "."),
        ("ruff", {"path": "$(rm -rf /); 'x'"}, "ruff check '$(rm -rf /); '\"'\"'x'\"'\"''", "."),
        ("ruff", {"path": "specs/{{id}}.py"}, "ruff check specs/\"${RALPH_TASK_ID}\".py", "."),
        ("ruff", {"path": "{{unknown}} {path}"}, "ruff check '{{unknown}} {path}'", "."),
    ],
)  # fmt: skip
def test_what_a_template_is_told_is_quoted_for_the_shell(name: str, given: Any, command: str, folder: str) -> None:
    how = parse_verification(*expand_template(name, given), task_from_draft(draft()))
    assert isinstance(how, ExternalVerification)
    assert (how.command, how.folder) == (command, folder)


@pytest.mark.parametrize("name", ["$(touch owned)", "a b", "'", "-n", '"', "*", "`id`", "\\", "${HOME}", "; exit 0"])
def test_a_field_in_a_parameter_is_one_word(name: str, tmp_path: Path) -> None:
    (tmp_path / f"x {name}").write_text("")
    task = task_from_draft(draft(title=name))
    given: dict[str, Any] = {"paths": ["x {{title}}", "x {{ title }}"]}
    command = substitute_in_command(str(expand_template("file_exists", given)[1]["command"]))
    ran = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, env={"PATH": os.defpath, **task_environment(task)})
    assert ran.returncode == 0
    assert len(list(tmp_path.iterdir())) == 1


def test_markers_are_looked_for_without_a_command() -> None:
    assert parse_verification(*expand_template("no_todos", {}), task_from_draft(draft())) == SemanticVerification(
        (), ("TODO", "FIXME", "XXX")
    )
    told: dict[str, Any] = {"patterns": ["HACK"]}
    assert parse_verification(*expand_template("no_todos", told), task_from_draft(draft())) == SemanticVerification(
        (), ("HACK",)
    )


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"verification_template": "ruf"}, ".verification_template must be one of "),
    ({"verification_template": 3}, ".verification_template must be one of "),
    ({"verification_template": "ruff", "with": {"paht": "x"}}, "unknown key completion.coder.with.paht; did you mean "
                                                               "path?"),
    ({"verification_template": "ruff", "with": ["x"]}, '.with must be a mapping, not ["x"]'),
    ({"verification_template": "ruff", "with": {"path": ""}}, ".with.path is blank"),
    ({"verification_template": "ruff", "with": {"path": "--fix"}}, ".with.path would be taken for an option; write "
                                                                   "./--fix"),
    ({"verification_template": "ruff", "with": {"path": 3}}, ".with.path must be text, not 3; put it in quotes"),
    ({"verification_template": "http_health"}, ".with.url is missing: the address"),
    ({"verification_template": "http_health", "with": {"url": "file:///etc/passwd"}},
     ".with.url must be an address that begins with http:// or https://"),
    ({"verification_template": "http_health", "with": {"url": "http://x", "status": "200"}},
     '.with.status must be a whole number from 100 to 599, not "200"'),
    ({"verification_template": "pytest_coverage", "with": {"minimum": 101}},
     ".with.minimum must be a number of 0 or more, at most 100, not 101"),
    ({"verification_template": "npm_test", "with": {"folder": "../x"}}, ".with.folder must be a folder inside the "),
    ({"verification_template": "file_exists", "with": {"paths": []}}, ".with.paths is empty"),
    ({"verification_template": "file_exists", "with": {"paths": ["a", "-b"]}}, ".with.paths[1] would be taken for "),
    ({"verification_template": "ruff", "verification_method": "external"},
     ".verification_template stands for a method and its config; leave out verification_method and "),
    ({"verification_template": "ruff", "verification_config": {}}, ".verification_template stands for a method "),
]  # fmt: skip


@pytest.mark.parametrize(("used", "wrong"), WRONG)
def test_a_wrong_use_of_a_template_is_a_problem(used: dict[str, Any], wrong: str) -> None:
    (found,) = validate_draft(draft(completion=completion(coder=block(**used))))
    path = "" if wrong.startswith("unknown") else "completion.coder"
    assert found.startswith(f"T-1: {path}{wrong}")


def test_the_nearest_template_is_named() -> None:
    (found,) = validate_draft(draft(completion=completion(coder=block(verification_template="pytset"))))
    assert found.endswith('not "pytset"; did you mean pytest?')
    with pytest.raises(Refused, match=r"did you mean pytest\?"):
        expand_template("pytset", {})


def test_stages_use_templates_too() -> None:
    stages: list[dict[str, Any]] = [
        {"name": "lint", "template": "ruff", "with": {"path": "src"}},
        {"name": "types", "template": "mypy", "required": False, "depends_on": ["lint"]},
    ]
    task = draft(completion=completion(qa=block("multi_stage", {"stages": stages})))
    assert validate_draft(task) == ()
    criteria = task_from_draft(task).criteria_for("qa")
    assert criteria is not None
    assert criteria.how == MultiStageVerification(
        (
            VerificationPart("lint", ExternalVerification("ruff check src")),
            VerificationPart("types", ExternalVerification("mypy src"), False, ("lint",)),
        )
    )
    stages[1]["template"] = "mypi"
    stages[0]["method"] = "external"
    assert [line.partition(" ")[2] for line in validate_draft(task)] == [
        "completion.qa.verification_config.stages[0].template stands for a method and its config; leave out method and "
        "config",
        "completion.qa.verification_config.stages[1].template must be one of "
        + ", ".join(template.name for template in list_templates()) + ', not "mypi"; did you mean mypy?',
    ]  # fmt: skip


def test_a_text_too_long_for_a_variable_is_refused_in_a_parameter_too() -> None:
    told: dict[str, Any] = {"with": {"path": "{{description}}"}}
    used = block(verification_template="ruff", **told)
    (found,) = validate_draft(draft(description="x" * 200_000, completion=completion(coder=used)))
    assert "command uses {{description}}, which is too long" in found


TESTED = "from code import answer\n\n\ndef test_answer() -> None:\n    assert answer() == 42\n"
CODE = "def answer() -> int:\n    return 42\n"
UNIT = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(1, {})\n"
PACKAGE = '{{"name": "x", "version": "1.0.0", "scripts": {{"test": "{0}", "lint": "{0}", "build": "{0}"}}}}\n'
CRATE = '[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n'
RUST = "pub fn answer() -> u32 {{\n    {0}\n}}\n#[test]\nfn it() {{\n    assert_eq!(answer(), 42);\n}}\n"
# name, what it is told, a program that it needs, files with which it passes, and with which it does not
CASES: list[Any] = [
    ("pytest", {"path": "t"}, "pytest", {"t/test_a.py": "def test(): 1\n"}, {"t/test_a.py": "def test(): assert 0\n"}),
    pytest.param("pytest", {"path": "t"}, "pytest", {"t/test_a.py": "def test(): 1\n"}, {"t/empty.py": ""}, marks=slow),
    ("unittest", {"path": "t t"}, "python3", {"t t/test_a.py": UNIT.format(1)}, {"t t/test_a.py": UNIT.format(2)}),
    ("unittest", {"path": "t"}, "python3", {"t/test_a.py": UNIT.format(1)}, {"t/a_test.py": UNIT.format(1)}),
    ("ruff", {"path": "a b.py"}, "ruff", {"a b.py": "import os\n\nos.getcwd()\n"}, {"a b.py": "import os\n"}),
    ("file_exists", {"paths": ["a b", "c"]}, "sh", {"a b": "", "c": ""}, {"c": ""}),
    ("file_exists", {"paths": "a"}, "sh", {"a": ""}, {"a/b": ""}),
    pytest.param(
        "pytest_coverage", {"path": "test_code.py", "source": "mine", "minimum": 90}, "pytest",
        {"mine/__init__.py": CODE, "test_code.py": TESTED.replace("code", "mine"), "conftest.py": ""},
        {"mine/__init__.py": CODE + "\n\ndef other() -> int:\n    a = 1\n    b = 2\n    c = 3\n    return a + b + c\n",
         "test_code.py": TESTED.replace("code", "mine"), "conftest.py": ""}, marks=slow,
    ),
    pytest.param("mypy", {"path": "a.py"}, "mypy", {"a.py": "x: int = 1\n"}, {"a.py": "x: int = 'a'\n"}, marks=slow),
    *(pytest.param(name, {"folder": "web"}, "npm", {"web/package.json": PACKAGE.format("true")},
                   {"web/package.json": PACKAGE.format("false")}, marks=slow)
      for name in ("npm_test", "npm_lint", "npm_build")),
    pytest.param("npm_lint", {}, "npm", {"package.json": PACKAGE.format("true")}, {"package.json": "{}"}, marks=slow),
    pytest.param("cargo_test", {"folder": "c"}, "cargo", {"c/Cargo.toml": CRATE, "c/lib.rs": RUST.format("42")},
                 {"c/Cargo.toml": CRATE, "c/lib.rs": RUST.format("41")}, marks=slow),
    pytest.param("cargo_clippy", {}, "cargo-clippy", {"Cargo.toml": CRATE, "lib.rs": RUST.format("42")},
                 {"Cargo.toml": CRATE, "lib.rs": RUST.format("return 42;")}, marks=slow),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "program", "good", "bad"), CASES)
def test_a_template_goes_green_and_red(
    name: str, given: dict[str, Any], program: str, good: dict[str, str], bad: dict[str, str], tmp_path: Path
) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    require(shutil.which(program, path=path) is not None, f"{program} is installed")
    write(tmp_path / "good", good)
    write(tmp_path / "bad", bad)
    quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if name == "pytest" else {}
    passed, output = holds(name, given, tmp_path / "good", **quick)
    assert passed, output
    passed, output = holds(name, given, tmp_path / "bad", **quick)
    assert not passed
    assert output.strip()


class Answers(BaseHTTPRequestHandler):
    """Answers with the status that the path names."""

    def do_GET(self) -> None:
        self.send_response(int(self.path.strip("/").partition("?")[0]))
        self.send_header("Location", "/200")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "more", "passes"),
    [
        ("/200", {}, True), ("/200?a={b}&c=[1-3]", {}, True), ("/204", {}, False), ("/302", {}, False),
        ("/404", {}, False), ("/503", {}, False), ("/404", {"status": 404}, True),
    ],
)  # fmt: skip
def test_health_is_one_status_and_no_other(
    server: str, path: str, more: dict[str, Any], passes: bool, tmp_path: Path
) -> None:
    require(shutil.which("curl") is not None, "curl is installed")
    passed, output = holds("http_health", {"url": server + path, **more}, tmp_path, http_proxy="http://127.0.0.1:9")
    assert passed is passes
    assert f"status {path[1:4]}, wanted {more.get('status', 200)}" in output


def test_an_address_where_nobody_listens_is_red_and_says_so(server: str, tmp_path: Path) -> None:
    require(shutil.which("curl") is not None, "curl is installed")
    passed, output = holds("http_health", {"url": "http://127.0.0.1:1", "seconds": 2}, tmp_path)
    assert not passed
    assert "curl: " in output
    assert "status 000, wanted 200" in output
