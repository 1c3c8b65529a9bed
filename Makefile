# Works from a fresh clone with Python 3.11, make and a package index.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/pip install --quiet --constraint constraints.txt
ROUNDS ?= 200
SEED   ?= 1
# Tests start many processes: bytecode is kept, whatever the environment says, or each would compile all sources again.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 3 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help install check test test-fast test-bench test-browser test-faults test-hostile run demo bench compose-env compose-test clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(READY) ## Make .venv with protoquad, its client and its benchmarks, every dependency pinned

$(READY): pyproject.toml bench/pyproject.toml client/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "protoquad needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable './client[images]' --editable '.[dev]' --editable ./bench
	@touch $@

check: $(READY) ## Check style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 --package protoquad_client
	$(BIN)/lint-imports

test: $(READY) ## Run all tests of the product, three processes in parallel
	$(PYTEST) --ignore tests/browser --ignore tests/bench

test-fast: $(READY) ## Run the fast tests only
	$(PYTEST) --ignore tests/browser --ignore tests/bench -m "not slow"

test-bench: $(READY) ## Test the benchmarks, which are a distribution of their own
	$(PYTEST) tests/bench

test-browser: $(READY) ## Test the console in Chromium; SCREENS=docs/screens also makes the screenshots of the documents
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= PROTOQUAD_SCREENS=$(SCREENS) $(BIN)/pytest tests/browser

test-faults: $(READY) ## Inject faults into real processes and check the results: make test-faults ROUNDS=200 SEED=1
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults --rounds $(ROUNDS) --seed $(SEED)

test-hostile: $(READY) ## Attack a running service and measure the effect on a normal client
	$(BIN)/python -m tests.hostile

run: $(READY) ## Run the service on http://127.0.0.1:8000, with a worker and an embedded database
	$(BIN)/protoquad serve

demo: $(READY) ## Learn drawn shapes in six sessions and print the accuracy
	$(BIN)/protoquad bench fscil --dataset shapes --out .protoquad/shapes

bench: $(READY) ## Repeat the published results: make bench DATA=path/to/cub200 OTHER=path/to/grocery
	@test -n "$(DATA)" || { echo "name the folder of CUB-200: make bench DATA=path/to/cub200"; exit 2; }
	$(PIP) --editable '.[lite2]'
	PATH="$(abspath $(BIN)):$$PATH" bench/reproduce.sh "$(DATA)" bench/results "$(OTHER)"

compose-env: ## Write .env for docker compose: random passwords and a first API key
	@deploy/make-env.sh

compose-test: $(READY) ## Test the compose deployment with Docker: teach, kill each service, roll out a new image
	$(BIN)/python -m tests.compose

clean: ## Remove .venv and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build bench/build client/build *.egg-info bench/*.egg-info client/*.egg-info
