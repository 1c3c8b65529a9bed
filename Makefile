# Everything here works from a bare clone with Python 3.11, make and a package index.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ROUNDS ?= 200
SEED   ?= 1

.DEFAULT_GOAL := help
.PHONY: help install check test test-faults test-hostile run demo bench compose-env compose-test clean

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(READY) ## Make .venv and install protoquad with every dependency pinned

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "protoquad needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

check: $(READY) ## Lint, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(READY) ## Run the tests, on two cores at a time
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

test-faults: $(READY) ## Play rounds of faults on real processes and report: make test-faults ROUNDS=200 SEED=1
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults --rounds $(ROUNDS) --seed $(SEED)

test-hostile: $(READY) ## Attack a running service in every known way and judge what a friendly client sees of it
	$(BIN)/python -m tests.hostile

run: $(READY) ## Run the service on http://127.0.0.1:8000, with its worker and its own database
	$(BIN)/protoquad serve

demo: $(READY) ## See it learn drawn shapes: a base session, five incremental ones, a table and a plot
	$(BIN)/protoquad bench fscil --dataset shapes --out .protoquad/shapes

bench: $(READY) ## Repeat the README's figures: make bench DATA=path/to/cub200
	@test -n "$(DATA)" || { echo "say where CUB-200 is: make bench DATA=path/to/cub200"; exit 2; }
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[lite2]'
	PATH="$(abspath $(BIN)):$$PATH" bench/reproduce.sh "$(DATA)"

compose-env: ## Write .env for docker compose: random passwords and a first API key
	@deploy/make-env.sh

compose-test: $(READY) ## Prove the compose deployment on this machine's Docker: teach, kill everything in turn, roll an image
	$(BIN)/python -m deploy.compose_test

clean: ## Remove the environment and every cache
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build *.egg-info
