# Each target does all of its own set-up: `make demo` and `make test` work on a fresh machine with Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
NEEDS := pyproject.toml constraints.txt

.PHONY: demo test test-all check bench docs clean help

help:
	@echo "make demo      one budget for real people: queries, training, a refusal, a report"
	@echo "make test      the tests (minutes)"
	@echo "make test-all  the slow statistical tests and the comparisons with other libraries as well"
	@echo "make check     format, lint, types, architecture"
	@echo "make bench     speed side by side with other libraries"
	@echo "make docs      the documentation, into site/"

$(PY):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Discreet needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.all: $(PY) $(NEEDS)
	$(PIP) install -c constraints.txt -e '.[all]'
	@touch $@

$(VENV)/.dev: $(PY) $(NEEDS)
	$(PIP) install -c constraints.txt -e '.[dev,ledger,analytics,learning,cli,report]'
	@touch $@

$(VENV)/.full: $(PY) $(NEEDS)
	$(PIP) install -c constraints.txt -e '.[dev,bench,docs,ledger,analytics,learning,cli,report]'
	@touch $@ $(VENV)/.dev

demo: $(VENV)/.all
	$(VENV)/bin/discreet demo

test: $(VENV)/.dev
	$(PY) -m pytest -q -n 2 -m "not slow and not peer and not browser"

test-all: $(VENV)/.full
	$(PY) -m pytest -q -n 2
	$(PY) -m mkdocs build --strict --quiet --site-dir site

check: $(VENV)/.full
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -m pytest -q tests/test_architecture.py

bench: $(VENV)/.full
	$(PY) -m benchmarks

docs: $(VENV)/.full
	$(PY) -m mkdocs build --strict

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
