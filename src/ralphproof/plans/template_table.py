"""The templates themselves. A command says on its own output why it fails."""

from __future__ import annotations

from ralphproof.plan import EXTERNAL, SEMANTIC
from ralphproof.plans.templates import Parameter, Template

_FOLDER = Parameter("folder", "folder", "the folder to run in, from the project's root", ".")
_TESTS = Parameter("path", "path", "the tests", "tests")
_SOURCE = Parameter("path", "path", "the file or folder to look at", ".")
_PACKAGES = Parameter("path", "path", "the packages", "./...")
# No file of the user's changes what is asked, no proxy stands before this machine, and no redirect is followed.
_CURL = (
    "curl -q --silent --show-error --globoff --noproxy localhost,127.0.0.1,::1 --proto =http,https"
    " --max-time {seconds} --output /dev/null --write-out '%{http_code}'"
)

TEMPLATES = (
    Template(
        "pytest", "the tests pass, by pytest; none at all is a failure", EXTERNAL,
        {"command": "pytest {path}"}, (_TESTS,),
    ),
    Template(
        "pytest_coverage", "the tests pass and cover enough, by pytest with pytest-cov", EXTERNAL,
        {"command": "pytest {path} --cov={source} --cov-report=term-missing --cov-fail-under={minimum}"},
        (
            _TESTS,
            Parameter("source", "path", "the folder or package that is to be covered", "src"),
            Parameter("minimum", "percent", "the least coverage, in percent", 80),
        ),
    ),
    Template(
        "unittest", "the tests pass, by unittest; none at all is a failure", EXTERNAL,
        # Python 3.11 succeeds with no tests.
        {"command": "python3 -m unittest discover -s {path} -p {pattern}", "output_not_contains": "Ran 0 tests"},
        (_TESTS, Parameter("pattern", "word", "the names of the files with tests", "test*.py")),
    ),
    Template("ruff", "ruff finds nothing", EXTERNAL, {"command": "ruff check {path}"}, (_SOURCE,)),
    Template(
        "mypy", "mypy finds nothing", EXTERNAL, {"command": "mypy {path}"},
        (Parameter("path", "path", "the file or folder to look at", "src"),),
    ),
    Template(
        "bandit", "bandit finds no security issue", EXTERNAL, {"command": "bandit -q -r {path}"},
        (Parameter("path", "path", "the folder to look at", "src"),),
    ),
    Template("npm_test", "npm test passes", EXTERNAL, {"command": "npm test", "working_dir": "{folder}"}, (_FOLDER,)),
    Template(
        "npm_lint", "the script lint of package.json passes", EXTERNAL,
        {"command": "npm run lint", "working_dir": "{folder}"}, (_FOLDER,),
    ),
    Template(
        "npm_build", "the script build of package.json passes", EXTERNAL,
        {"command": "npm run build", "working_dir": "{folder}"}, (_FOLDER,),
    ),
    Template(
        "go_test", "go test passes", EXTERNAL,
        {"command": "go test {path}", "working_dir": "{folder}"}, (_PACKAGES, _FOLDER),
    ),
    Template(
        "go_vet", "go vet finds nothing", EXTERNAL,
        {"command": "go vet {path}", "working_dir": "{folder}"}, (_PACKAGES, _FOLDER),
    ),
    Template(
        "cargo_test", "cargo test passes", EXTERNAL, {"command": "cargo test", "working_dir": "{folder}"}, (_FOLDER,)
    ),
    Template(
        "cargo_clippy", "clippy warns of nothing", EXTERNAL,
        {"command": "cargo clippy --all-targets -- -D warnings", "working_dir": "{folder}"}, (_FOLDER,),
    ),
    Template(
        "http_health", "an address answers with 200, or with another status that is asked for", EXTERNAL,
        {"command": f'got=$({_CURL} {{url}}); echo "status $got, wanted "{{status}}; test "$got" = {{status}}'},
        (
            Parameter("url", "url", "the address"),
            Parameter("status", "status", "the HTTP status", 200),
            Parameter("seconds", "seconds", "how long it may take to answer", 10),
        ),
    ),
    Template(
        "file_exists", "files are there", EXTERNAL,
        {"command": 'no=0; for it in {paths}; do test -f "$it" || { echo "missing: $it"; no=1; }; done; exit $no'},
        (Parameter("paths", "paths", "a path, or a list of them"),),
    ),
    Template(
        "no_todos", "the work holds no marker of something left undone", SEMANTIC, {"negative_patterns": "{patterns}"},
        (Parameter("patterns", "texts", "the markers", ["TODO", "FIXME", "XXX"]),),
    ),
)  # fmt: skip
