# Each target installs what it needs: `make demo` and `make test` work on a fresh machine with Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
NEEDS := pyproject.toml constraints.txt
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' src/discreet/__init__.py)

.PHONY: demo test test-all check bench docs dist clean help

help:
	@echo "make demo      spend one privacy budget on real data: queries, a model, a refusal, a report"
	@echo "make test      run the tests (minutes)"
	@echo "make test-all  run all tests, also slow ones and comparisons with other libraries, and build the docs"
	@echo "make check     check format, lint, types and architecture"
	@echo "make bench     measure speed side by side with other libraries"
	@echo "make docs      build the documentation into site/"
	@echo "make dist      build the package into dist/; TAG=v1.2.3 checks that the version matches the tag"

$(PY):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Discreet needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.all: $(PY) $(NEEDS)
	$(PIP) install -c constraints.txt -e '.[all]'
	@touch $@

$(VENV)/.dev: $(PY) $(NEEDS)
	$(PIP) install -c constraints.txt -e '.[dev,ledger,analytics,learning,cli,report,server]'
	@touch $@

$(VENV)/.full: $(PY) $(NEEDS)
	$(PIP) install -c constraints.txt -e '.[dev,bench,docs,ledger,analytics,learning,cli,report,server]'
	@touch $@ $(VENV)/.dev

demo: $(VENV)/.all
	$(VENV)/bin/discreet demo

# Compiled bytecode is kept: the tests start many short processes, which would each compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# Two test processes share two cores: more threads in each would only get in each other's way.
test test-all: export OMP_NUM_THREADS := 1

test: $(VENV)/.dev
	$(PY) -m pytest -q -n 2 -m "not slow and not peer and not browser"

test-all: $(VENV)/.full
	$(MAKE) test
	$(PY) -m pytest -q -n 2 -m "slow or peer or browser"
	$(MAKE) docs

check: $(VENV)/.full
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -m pytest -q tests/test_architecture.py

bench: $(VENV)/.full
	$(PY) -m benchmarks

docs: $(VENV)/.full
	$(PY) -m mkdocs build --strict

dist: $(PY)
	@test -z "$(TAG)" || test "$(TAG)" = "v$(VERSION)" || { echo "tag $(TAG) is not version $(VERSION)" >&2; exit 1; }
	$(PIP) install build
	rm -rf dist
	$(PY) -m build

clean:
	rm -rf $(VENV) site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
