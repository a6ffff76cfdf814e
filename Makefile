# `make demo` tunes a small network; `make test` is what must pass before a commit.

BASE_PYTHON := $(shell command -v python3.11 || command -v python3)
PYTHON := .venv/bin/python
STAMP := .venv/.installed
DEMO_DB := build/demo.db

# What `make bench` tunes and compares with the default, and for how long each.
PROGRAMS := mlp.py:model resnet18.py:model resnet18.py:frozen
BUDGET := 10m

.PHONY: setup demo test lint types bench slow

setup: $(STAMP)

# torch comes first: alone it takes a CPU build where one is at hand, and nothing later replaces it.
$(STAMP): pyproject.toml constraints.txt
	test -x $(PYTHON) || $(BASE_PYTHON) -m venv .venv
	$(PYTHON) -m pip install --quiet -c constraints.txt pip setuptools
	$(PYTHON) -m pip install --quiet -c constraints.txt torch==2.13.0
	$(PYTHON) -m pip install --quiet -c constraints.txt --no-build-isolation --group dev -e .
	touch $@

demo: setup
	mkdir -p build
	.venv/bin/tune run examples/mlp.py:model --budget 60s --database $(DEMO_DB)
	.venv/bin/tune bench examples/mlp.py:model --database $(DEMO_DB)

test: lint types
	$(PYTHON) -m pytest -n 2 -m "not slow"

lint: setup
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types: setup
	$(PYTHON) -m mypy

slow: setup
	$(PYTHON) -m pytest -m slow

bench: setup
	mkdir -p build
	for program in $(PROGRAMS); do \
	  .venv/bin/tune run examples/$$program --budget $(BUDGET) --database build/bench.db && \
	  .venv/bin/tune bench examples/$$program --database build/bench.db || exit 1; \
	done
