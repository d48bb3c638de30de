# All a contributor needs is make and Python 3.11 or newer; everything else goes into .venv.
# ARGS is passed on: make test ARGS="-k foo". PYTHON chooses the interpreter: make setup PYTHON=python3.12

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
READY := .venv/.ready
RUN_READY := .venv/.run-ready
WORKERS ?= 4
SMOKE := tests/behaviour/test_transports.py tests/behaviour/test_repl.py tests/contracts/test_runtimes.py \
	tests/security/test_any_location.py tests/security/test_layers.py tests/faults/test_kernels.py
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# Servers that tests start would compile Quire's modules again and again.
unexport PYTHONDONTWRITEBYTECODE
COMPILE := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet

.DEFAULT_GOAL := help
.PHONY: help setup run test smoke soak soak-sample check bench conformance assets constraints

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## create .venv with every pinned package (done by the others when needed)

run: $(RUN_READY) ## serve over HTTP; installs only what a server needs
	$(BIN)/quire serve --server-transport http $(ARGS)

test: $(READY) ## run the tests: all behaviour
	tools/install-node-programs
	QUIRE_WASM_PYTHON=plain $(BIN)/quire assets >/dev/null  # once, not by tests side by side
	$(PYTEST) --durations=20 --durations-min=10 $(ARGS)

smoke: $(READY) ## run a few tests of every part, in about two minutes
	QUIRE_WASM_PYTHON=plain $(BIN)/quire assets >/dev/null
	$(PYTEST) $(SMOKE) $(ARGS)

soak: $(READY) ## run the long trials: kills, fuzzing, ipykernel's outputs, Chromium, conformance
	tools/install-node-programs
	QUIRE_WASM_PYTHON=plain $(BIN)/quire assets >/dev/null
	QUIRE_WASM_PYTHON=science $(BIN)/quire assets >/dev/null
	$(PYTEST) --soak=all --durations=20 --durations-min=10 $(ARGS)

soak-sample: $(READY) ## run the fixed sample of the soak that CI runs, at most 8 minutes
	tools/install-node-programs
	QUIRE_WASM_PYTHON=science $(BIN)/quire assets >/dev/null
	$(PYTEST) --soak=sample --durations=20 --durations-min=10 $(ARGS)

check: $(READY) ## lint, format, types, import directions, sizes and prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	tools/check-prose
	$(BIN)/python -m pytest -q tests/architecture

bench: $(READY) ## run the benchmarks
	$(BIN)/python -m bench $(ARGS)

conformance: $(READY) ## run the official MCP conformance suite
	tools/install-node-programs
	$(BIN)/python -m tests.conformance

assets: $(READY) ## put what runs in WebAssembly into the package, for a wheel to carry
	$(BIN)/python -m quire.runtimes.wasm.assets

# Written beside and moved: a failed compile must not leave half a file. Old pins are kept unless asked.
constraints: $(READY) ## compile the pins from pyproject.toml (ARGS=--upgrade raises them)
	cp constraints.txt .venv/constraints.txt
	$(COMPILE) --extra science --extra jupyter --extra wasm --extra wasm-science --group dev \
		--output-file .venv/constraints.txt $(ARGS)
	$(COMPILE) --extra science --extra wasm --group build --constraint .venv/constraints.txt \
		--output-file .venv/requirements-run.txt
	{ echo '# Every package at one exact version, compiled by `make constraints`.'; \
		cat .venv/constraints.txt; } > .venv/constraints.new
	{ echo '# What `make run` installs: the core, the science packages and WebAssembly. Compiled by `make constraints`.'; \
		cat .venv/requirements-run.txt; } > .venv/requirements-run.new
	mv .venv/constraints.new constraints.txt
	mv .venv/requirements-run.new requirements-run.txt

$(RUN_READY): pyproject.toml requirements-run.txt
	tools/install "$(PYTHON)" requirements-run.txt
	@touch $@

$(READY): pyproject.toml constraints.txt
	tools/install "$(PYTHON)" constraints.txt
	@touch $(RUN_READY) $@
