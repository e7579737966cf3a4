"""What a command leads to: scripts, targets of a Makefile, scripts of a package."""

from __future__ import annotations

import pytest

from tests.checks.pins.project import STOPS, TOLD, Pinned

Files = dict[str, str | None]
CHANGED, GONE = "the script of the check was changed", "the script of the check is gone"
WRITTEN = "the script of the check was written during the run"


@pytest.mark.parametrize(
    "command",
    [
        "sh ci/run.sh", "bash -e ci/run.sh", ". ci/run.sh", "source ci/run.sh", "./ci/run.sh", "ci/run.sh",
        "python ci/run.sh", "python3 -u ci/run.sh -x", "node ci/run.sh", "FOO=1 sh ci/run.sh > log 2>&1",
        "cd ci && sh run.sh", "(cd ci; sh ./run.sh)", "true && { time sh ci/run.sh; }", 'bash -lc "sh ci/run.sh"',
        "env A=b timeout 9 sh ci/run.sh", "uv run python ci/run.sh", "if sh ci/run.sh; then true; fi",
        "node --require ./ci/run.sh --test", "pytest -c ci/run.sh", "jest --config=ci/run.sh", "sh outer.sh", "make it",
        "sh $PWD/x; sh ci/run.sh", "echo $(sh ci/run.sh)", "xargs sh ci/run.sh",
        "NODE_OPTIONS='--import ci/run.sh' node x",
    ],
)  # fmt: skip
def test_the_script_that_a_command_runs_is_pinned(pinned: Pinned, command: str) -> None:
    """RH-02"""
    pinned.write(
        {"ci/run.sh": "#!/bin/sh\nexit 1\n", "outer.sh": "sh ci/run.sh\n", "Makefile": "it:\n\t@sh ci/run.sh\n"}
    )
    pinned.begin(command)
    assert pinned.told() == []
    pinned.write({"ci/run.sh": "#!/bin/sh\nexit 0\n"})
    assert pinned.told() == [(f"ci/run.sh: {CHANGED}", STOPS)]
    pinned.write({"ci/run.sh": None})
    assert pinned.told() == [(f"ci/run.sh: {GONE}", STOPS)]


@pytest.mark.parametrize(
    "command", ["test -f work.txt", "grep -q x work.txt", "cat work.txt", "node --test work.txt", "python -m work",
                "diff work.txt b", "sh < work.txt", "echo sh work.txt2", "./../work.txt", "sh /etc/hostname"],
)  # fmt: skip
def test_a_file_that_a_command_only_names_may_be_the_work_itself(pinned: Pinned, command: str) -> None:
    pinned.write({"work.txt": "a\n"})
    pinned.begin(command)
    pinned.write({"work.txt": "b\n"})
    assert pinned.told() == []


def test_a_script_that_was_not_there_is_told(pinned: Pinned) -> None:
    pinned.begin("sh run.sh")
    pinned.write({"run.sh": "exit 0\n"})
    assert pinned.told() == [(f"run.sh: {WRITTEN}", TOLD)]


def test_a_program_that_is_built_is_no_script(pinned: Pinned) -> None:
    pinned.write({"app": "\x7fELF\0one"})
    pinned.begin("./app --test")
    pinned.write({"app": "\x7fELF\0two"})
    assert pinned.told() == []


def test_a_script_stays_pinned_that_a_changed_one_no_longer_runs(pinned: Pinned) -> None:
    pinned.write({"a.sh": "sh b.sh\n", "b.sh": "exit 1\n"})
    pinned.begin("sh a.sh")
    pinned.write({"a.sh": "true\n", "b.sh": "exit 0\n"})
    assert pinned.told() == [(f"a.sh: {CHANGED}", STOPS), (f"b.sh: {CHANGED}", STOPS)]


def test_a_script_that_was_there_and_only_now_is_run_was_not_written(pinned: Pinned) -> None:
    pinned.write({"a.sh": "true\n", "b.sh": "exit 1\n"})
    pinned.begin("sh a.sh")
    pinned.write({"a.sh": "sh b.sh\n"})
    assert pinned.told() == [(f"a.sh: {CHANGED}", STOPS)]


def test_scripts_that_run_each_other_come_to_an_end(pinned: Pinned) -> None:
    pinned.write({"a.sh": "sh b.sh\n", "b.sh": "sh a.sh\n", "Makefile": "a:\n\tmake a\n", "package.json":
                  '{"scripts": {"a": "npm run b", "b": "npm run a"}}'})  # fmt: skip
    pinned.begin("sh a.sh", "make a", "npm run a")
    assert pinned.told() == []


MAKEFILE = """\
include more.mk
-include local.mk
.PHONY: test lint
FLAGS = -x
OTHER = 1
test: build data.txt  # all of them
	@pytest $(FLAGS)
build:
	cc $(MORE) -o out
lint:
	ruff check .
%.txt: %.in
	cp $< $@
"""
MAKE: dict[str, tuple[Files, list[tuple[str, bool]]]] = {
    "recipe": ({"Makefile": MAKEFILE.replace("$(FLAGS)", "$(FLAGS) || true")},
               [("Makefile: target test was changed", STOPS)]),
    "needs": ({"Makefile": MAKEFILE.replace("test: build data.txt", "test: data.txt")},
              [("Makefile: target test was changed", STOPS)]),
    "needed": ({"Makefile": MAKEFILE.replace("-o out", "-o out || true")},
               [("Makefile: target build was changed", STOPS)]),
    "pattern": ({"Makefile": MAKEFILE.replace("cp $<", "cp /dev/null")},
                [("Makefile: target data.txt was changed", STOPS)]),
    "variable": ({"Makefile": MAKEFILE.replace("-x", "-k nothing")}, [("Makefile: variable FLAGS was changed", STOPS)]),
    "variable of an included file": ({"more.mk": "MORE = -w\n"}, [("more.mk: variable MORE was changed", STOPS)]),
    "variable gone": ({"more.mk": ""}, [("Makefile: variable MORE is gone", STOPS)]),
    "shell": ({"Makefile": "SHELL = /bin/true\n" + MAKEFILE}, [("Makefile: variable SHELL is new", STOPS)]),
    "exported": ({"Makefile": "export PYTEST_ADDOPTS = -k x\n" + MAKEFILE},
                 [("Makefile: variable PYTEST_ADDOPTS is new", STOPS)]),
    "ignored errors": ({"Makefile": ".IGNORE:\n" + MAKEFILE},
                       [("Makefile: target .IGNORE was written during the run", STOPS)]),
    "no longer phony": ({"Makefile": MAKEFILE.replace("test lint", "lint")},
                        [("Makefile: target test is no longer .PHONY", STOPS)]),
    "target gone": ({"Makefile": "lint:\n\truff check .\n"}, [
        ("Makefile: target build is gone", STOPS), ("Makefile: target data.txt is gone", STOPS),
        ("Makefile: target test is gone", STOPS), ("Makefile: variable FLAGS is gone", STOPS),
        ("Makefile: variable MORE is gone", STOPS)]),
    "another file beats it": ({"GNUmakefile": "test:\n\ttrue\n"},
                              [("GNUmakefile: new; it takes the place of Makefile", STOPS)]),
    "an included file is new": ({"local.mk": "test:\n\ttrue\n"}, [("local.mk: target test was changed", STOPS)]),
    "condition": ({"Makefile": MAKEFILE.replace("FLAGS = -x", "ifdef CI\nFLAGS = -x\nendif")},
                  [("Makefile: variable FLAGS was changed", STOPS)]),
    "other target": ({"Makefile": MAKEFILE.replace("ruff check .", "true")}, []),
    "other variable": ({"Makefile": MAKEFILE.replace("OTHER = 1", "OTHER = 2")}, []),
    "comment": ({"Makefile": MAKEFILE.replace("# all of them", "# some") + "\n# more\n"}, []),
    "new target": ({"Makefile": MAKEFILE + "clean:\n\trm out\n"}, []),
    "one more phony": ({"Makefile": MAKEFILE.replace("test lint", "test lint build")}, []),
}  # fmt: skip


@pytest.mark.parametrize("case", MAKE)
def test_of_a_makefile_only_what_the_target_leads_to_is_pinned(pinned: Pinned, case: str) -> None:
    """RH-02"""
    files, told = MAKE[case]
    pinned.write({"Makefile": MAKEFILE, "more.mk": "MORE = -O2\n", "data.in": ""})
    pinned.begin("make -s test V=1")
    assert pinned.told() == []
    pinned.write(files)
    assert [one for one in pinned.told() if "shadows" not in one[0]] == told


RECIPES = {
    "without a target the first one": ("make", "a: b\n\tx\nb:\n\t{}\n"),
    "in a folder": ("make -C sub -j4 b", None),
    "by a file": ("make -f sub/Makefile b", None),
    "by a file of one word": ("make --file=sub/Makefile b", None),
    "in one line": ("make b", "b: ; {}\n"),
    "under a condition": ("make b", "b:\nifdef CI\n\t{}\nelse\n\ttrue\nendif\n"),
    "with another prefix": ("make b", ".RECIPEPREFIX = >\nb:\n> {}\n"),
    "in a definition": ("make b", "define RUN\n{}\nendef\nb:\n\t$(RUN)\n"),
    "through make again": ("make b", "b:\n\t$(MAKE) c\nc:\n\t{}\n"),
    "over two lines": ("make b", "b:\n\ttrue && \\\n\t{}\n"),
    "with needs over two lines": ("make a", "a: \\\n\tb\nb:\n\t{}\n"),
    "by several names": ("make b", "a b c:\n\t{}\n"),
    "by the default goal": ("make", ".DEFAULT_GOAL := b\na:\n\ttrue\nb:\n\t{}\n"),
    "of the target alone": ("make b", "b: X = {}\nb:\n\t$(X)\n"),
}


@pytest.mark.parametrize("case", RECIPES)
def test_recipes_are_found_however_they_are_written(pinned: Pinned, case: str) -> None:
    command, text = RECIPES[case]
    file, text = ("Makefile", text) if text is not None else ("sub/Makefile", "a:\n\ttrue\nb:\n\t{}\n")
    pinned.write({file: text.format("exit 1")})
    pinned.begin(command)
    assert pinned.told() == []
    pinned.write({file: text.format("exit 0")})
    assert [(one.path, one.stops) for one in pinned.altered()] == [(file, STOPS)]


def test_a_file_that_stands_in_for_a_target_is_seen(pinned: Pinned) -> None:
    """RH-02: make says that it is up to date, and does nothing."""
    pinned.write({"Makefile": "test:\n\tpytest\n"})
    pinned.begin("make test")
    pinned.write({"test": ""})
    assert pinned.told() == [("test: new; make takes it for target test and does nothing", STOPS)]


def test_a_target_that_was_not_there_is_told(pinned: Pinned) -> None:
    pinned.begin("make test")
    pinned.write({"Makefile": "X = 1\ntest:\n\techo $(X)\n"})
    assert pinned.told() == [("Makefile: target test was written during the run", TOLD)]


PACKAGE = """{"name": "a", "version": "1", "scripts": {"test": "npm run unit && run-s lint:*", "unit": "node --test",
 "lint:a": "eslint .", "build": "tsc"}}"""
SCRIPTS: dict[str, tuple[str, list[tuple[str, bool]]]] = {
    "its own text": (PACKAGE.replace("npm run unit", "true"), [("package.json: script test was changed", STOPS)]),
    "one that it calls": (PACKAGE.replace("node --test", "true"), [("package.json: script unit was changed", STOPS)]),
    "one of many that it calls": (PACKAGE.replace("eslint .", "true"),
                                  [("package.json: script lint:a was changed", STOPS)]),
    "one before it": (PACKAGE.replace('"build"', '"pretest": "rm -r test", "build"'),
                      [("package.json: script test was changed: pretest", STOPS)]),
    "gone": (PACKAGE.replace('"unit"', '"unix"'), [("package.json: script unit is gone", STOPS)]),
    "another one": (PACKAGE.replace('"tsc"', '"tsc -b"'), []),
    "another part": (PACKAGE.replace('"1"', '"2"'), []),
}  # fmt: skip


@pytest.mark.parametrize("command", ["npm test", "npm t --silent", "npm run test -- -x", "yarn test", "pnpm run test",
                                     "bun run test", "cd sub && npm test", "npm --prefix . test"])  # fmt: skip
@pytest.mark.parametrize("case", SCRIPTS)
def test_of_a_package_only_the_scripts_that_are_run_are_pinned(pinned: Pinned, command: str, case: str) -> None:
    """RH-02"""
    text, told = SCRIPTS[case]
    pinned.write({"package.json": PACKAGE, "sub/x": ""})
    pinned.begin(command)
    assert pinned.told() == []
    pinned.write({"package.json": text})
    assert pinned.told() == told


def test_a_package_script_that_was_not_there_is_told(pinned: Pinned) -> None:
    pinned.write({"package.json": '{"scripts": {}}'})
    pinned.begin("npm test")
    pinned.write({"package.json": '{"scripts": {"test": "node --test"}}'})
    assert pinned.told() == [("package.json: script test was written during the run", TOLD)]


def test_names_out_of_files_are_quoted_where_they_could_mislead(pinned: Pinned) -> None:
    pinned.write({"Makefile": "a: \x1b[2Jb\n\ttrue\n\x1b[2Jb:\n\ttrue\n"})
    pinned.begin("make a")
    pinned.write({"Makefile": "a: \x1b[2Jb\n\ttrue\n\x1b[2Jb:\n\tfalse\n"})
    assert pinned.told() == [("Makefile: target '\\x1b[2Jb' was changed", STOPS)]
