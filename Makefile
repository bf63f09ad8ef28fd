# Every target does its own set-up in .venv, from nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint network gpu bench clean

$(READY): pyproject.toml hatch_build.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "envsolve needs Python 3.10 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q --editable '.[test]'
	touch $@

demo: $(READY)
	@$(BIN)/python examples/demo.py

test: $(READY) lint
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

network: $(READY)
	$(BIN)/python -m pytest -m network

gpu: $(READY)
	$(BIN)/python -m pytest -m gpu

bench: $(READY)
	$(BIN)/python bench/plan.py

clean:
	rm -rf $(VENV) build dist envsolve/_default_index.py
