# Type `make` to see what there is. All of it works in a fresh clone: `setup` comes first by itself.

PYTHON ?= python3
BIN := .venv/bin
LOCK_STAMP := .venv/.locked

.PHONY: help setup demo up test check bench soak lock

help: ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(LOCK_STAMP) ## make .venv with exactly the locked packages (nothing to do while the lock is the same)

$(LOCK_STAMP): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed, $(PYTHON) is older or missing: make setup PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 14))' \
		|| { echo "Python 3.14 lacks wheels of some packages: make setup PYTHON=/path/to/python3.13"; exit 1; }
	@$(PYTHON) -c 'import shutil, sys; sys.exit(not (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")))' \
		|| { echo "One package (cbrrr) is built here: install a C compiler (Debian, Ubuntu: apt install gcc)"; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' \
		|| { echo "One package (cbrrr) is built here: install Python's headers (Debian, Ubuntu: apt install python3-dev)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' \
		|| { echo "$(PYTHON) comes without venv: install it (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	$(PYTHON) -m venv .venv
	@echo "Installing the packages, which takes about a minute"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

demo: setup ## replay a recorded firehose and serve it at http://127.0.0.1:8600 (or APPVIEW_PORT)
	@$(BIN)/python -m deploy.demo

up: setup ## follow a public relay (or INDEXER_RELAY_URLS) and serve at http://127.0.0.1:8600
	@$(BIN)/python -m deploy.local

test: setup ## run the tests
	$(BIN)/python -m pytest -q

check: setup ## what CI runs: format, lint, types, imports, then the tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory test

bench: setup ## run the benchmarks, or one: make bench ONLY=verify; the last line is its JSON
	@$(BIN)/python -m benchmarks $(ONLY)

soak: setup ## run the long versions of the property and crash tests
	HYPOTHESIS_PROFILE=soak TEST_INDEX_CASES=200000 TEST_KILL_POINTS=200 TEST_MUTATED_FRAMES=1000000 \
		TEST_MUTATED_STREAMS=1000 TEST_E2E_SCENARIOS=100 TEST_FETCH_CASES=50000 TEST_SCHEMA_REQUESTS=2000 TEST_ISOLATION_REQUESTS=1000000 \
		TEST_SPACE_ROUNDS=300 TEST_MASK_CASES=200 \
		$(BIN)/python -m pytest -q --timeout 0 -m "soak or not soak"

lock: ## bring both lock files in line with pyproject.toml (UPGRADE=1: to the newest of everything)
	$(PYTHON) -m venv .data/lock
	.data/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	.data/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --extra embedded --extra dev $(if $(UPGRADE),--upgrade) pyproject.toml -o requirements.lock
	.data/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --constraint requirements.lock pyproject.toml -o requirements.runtime.lock
