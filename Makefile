# Everything a newcomer needs: `make demo` shows a whole loop, `make test` passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Most tests wait for other processes most of the time: two a core keep it busy.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(2 * (os.cpu_count() or 1))")
# Tests write and sync thousands of small files: in memory, where there is room for them.
TEMP ?= $(shell $(PYTHON) -c "import os, shutil, tempfile as t; m = '/dev/shm'; \
	print(m if os.access(m, 7) and shutil.disk_usage(m).free > 3e9 else t.gettempdir())")
PYTEST := PYTEST_DEBUG_TEMPROOT=$(TEMP) PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(WORKERS) --dist worksteal

.PHONY: all build test thorough compiled lint fmt clean install demo agents screenshots

all: fmt lint test build

# The demo needs nothing that is not in the source: it runs from there as it is.
demo:
	@PYTHONPATH=src $(PYTHON) -m ralphproof demo

# `make test ALL=yes`: the thorough ones too, in one session, so that nobody waits for the last test of the others.
test: $(VENV)/ready
	$(PYTEST) $(if $(ALL),-m '')

# Kills at every write, and real agents against a scripted model: minutes more, for whoever changes what they hold.
thorough: $(VENV)/ready
	$(PYTEST) -m thorough $$(grep -rl --include='test_*.py' thorough tests)

# All that tests import, compiled once: workers that begin together would each do it. What fails here fails there.
compiled: $(VENV)/ready
	@PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -qq -m '' --collect-only >/dev/null || true

# The real agents that some tests drive against a scripted model; without them those tests are skipped.
agents:
	@$(PYTHON) -m tests.agents.real_clis install claude codex

# The pictures in docs/: of a real project with real runs, made anew.
screenshots: $(VENV)/ready
	$(BIN)/python -m tests.browser.screenshots
	$(BIN)/python -m tests.tui.screenshots

lint: $(VENV)/ready
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy

fmt: $(VENV)/ready
	$(BIN)/ruff check --fix-only src tests bench
	$(BIN)/ruff format src tests bench

build: $(VENV)/ready
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

install:
	$(PYTHON) -m pip install .

clean:
	rm -rf dist .pytest_cache .mypy_cache .ruff_cache .hypothesis $(VENV)

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@
