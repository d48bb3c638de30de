# All a contributor needs is make and Python 3.11 or newer; everything else goes into .venv.
# ARGS is passed on: make test ARGS="-k foo". PYTHON chooses the interpreter: make setup PYTHON=python3.12

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
READY := .venv/.ready
UV := $(shell command -v uv 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help setup run test check bench conformance assets constraints

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## create .venv with every pinned package (done by the others when needed)

run: $(READY) ## serve over HTTP
	$(BIN)/quire serve --transport http $(ARGS)

test: $(READY) ## run the tests
	$(BIN)/python -m pytest -n auto --dist loadfile --durations=20 --durations-min=10 $(ARGS)

check: $(READY) ## lint, format, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY) ## run the benchmarks
	$(BIN)/python -m bench $(ARGS)

conformance: $(READY) ## run the official MCP conformance suite (.ci/run installs it)
	$(BIN)/python -m tests.conformance

assets: $(READY) ## put what runs in WebAssembly into the package, for a wheel to carry
	$(BIN)/python -m quire.runtimes.wasm.assets

# Written beside and moved: a failed compile must not leave half a file. Old pins are kept unless asked.
constraints: $(READY) ## compile constraints.txt from pyproject.toml (ARGS=--upgrade raises the pins)
	cp constraints.txt .venv/constraints.txt
	$(BIN)/uv pip compile pyproject.toml --extra science --extra ipython --extra jupyter --extra wasm --extra wasm-science --group dev --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet \
		--output-file .venv/constraints.txt $(ARGS)
	{ echo '# Every package at one exact version, compiled by `make constraints`.'; \
		cat .venv/constraints.txt; } > .venv/constraints.new
	mv .venv/constraints.new constraints.txt

# constraints.txt holds the dev group and the build backend too, so no installer has to read the group
# (old pip cannot), and the package itself is added last, with nothing left to download.
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Quire needs Python 3.11 or newer, and '$(PYTHON)' was not found; name one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Quire needs Python 3.11 or newer, and $(PYTHON) is %d.%d; name another with PYTHON=..." % sys.version_info[:2])'
ifdef UV
	test -x $(BIN)/python || $(UV) venv --quiet --python "$$(command -v $(PYTHON))" .venv
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r constraints.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
else
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
endif
	@touch $@
