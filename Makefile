# Every target does its own set-up in .venv, from nothing.
# The first that runs and is new enough: what `python3` is today, else the newest there is.
CANDIDATES := python3 python3.15 python3.14 python3.13 python3.12 python3.11 python3.10
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 10))
PYTHON ?= $(shell for p in $(CANDIDATES); do $$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
# Without byte code, every process of a test run compiles the tests and the package again: 10 s for each of them.
unexport PYTHONDONTWRITEBYTECODE
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
# Runs a silent command and prints a dot a second, so that a slow download does not look like a hang.
alive = ( $(1) ) & while kill -0 $$! 2>/dev/null; do printf . >&2; sleep 1; done; echo >&2; wait $$!

.PHONY: demo test ruff lint network gpu slow thorough cluster grid fuzz bench catalogue-docs man docs dist clean

# The program alone: a third of the time and a tenth of the size of what the tests need.
$(INSTALLED): pyproject.toml hatch_build.py
	@$(or $(PYTHON),false) -c '$(NEW_ENOUGH)' 2>/dev/null || { \
		echo "envsolve needs Python 3.10 or newer; run: make $(or $(MAKECMDGOALS),demo) PYTHON=python3.12" >&2; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON), once: envsolve and 20 dependencies, 55 MB, about 20 s or, behind a slow link, a minute" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(call alive,$(BIN)/python -m pip install -q --disable-pip-version-check --editable .)
	@touch $@

$(READY): $(INSTALLED)
	@echo "adding what the tests need to $(VENV), once: 40 packages, 420 MB; a minute of processor time," \
		"more behind a slow link" >&2
	@$(call alive,$(BIN)/python -m pip install -q --upgrade pip && \
		$(BIN)/python -m pip install -q --editable '.[test]')
	@touch $@

demo: $(INSTALLED)
	@echo "a plan of torch and torchvision, for this machine or a sample one: seconds; it installs nothing" >&2
	@$(BIN)/python examples/demo.py

# One process a core, each with modules that follow one another, so that what a module makes for its tests is made once.
# mypy runs beside them: without its cache it takes half a minute of one core.
test: $(READY) ruff
	@echo "the tests without network and GPU: about three minutes on two quiet cores; small packages of their own" \
		"are installed into temporary directories" >&2
	@$(BIN)/mypy > $(VENV)/mypy.txt & checking=$$!; \
		$(BIN)/python -m pytest -n auto --dist worksteal; tested=$$?; \
		wait $$checking; checked=$$?; cat $(VENV)/mypy.txt; exit $$((tested | checked))

ruff: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint: ruff
	$(BIN)/mypy

network: $(READY)
	$(BIN)/python -m pytest -m network

gpu: $(READY)
	$(BIN)/python -m pytest -m gpu

# Real installers again, at more moments; of each, `test` tries one.
slow: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow

# Twelve times the generated examples.
thorough: $(READY)
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n auto -m 'hypothesis and not network and not gpu and not grid'

# A Slurm of its own on this computer; takes root, and Debian's slurm-wlm and munge.
cluster: $(READY)
	$(BIN)/python -m pytest -m cluster

# A machine of every class among all cards and drivers (721 classes of 2876 machines on 2026-11-28: all promises held),
# and the verdict on every kind of build on all of them; a quarter of an hour on two cores.
grid: $(READY)
	$(BIN)/python -m pytest -m grid

# Damaged input of every kind, 10,000 pieces each; MINUTES=30 goes on for as long, TARGETS=lock takes one kind.
fuzz: $(READY)
	$(BIN)/python -m bench.fuzz $(if $(MINUTES),--minutes $(MINUTES)) $(TARGETS)

# Takes ten minutes; the tools that are compared get environments of their own, made anew from what is published.
# QUICK=1 takes three turns and writes nothing.
bench: $(READY)
	$(BIN)/python -m bench.plan $(if $(QUICK),--quick) $(if $(RESUME),--resume)

# The tables and the schema in docs/, from index_data/; a test says when they are out of date.
catalogue-docs: $(READY)
	$(BIN)/python -m envsolve.facts.maintain.summary docs
	$(BIN)/python -m envsolve.diagnose.cause_files docs

# Man pages, from the command line: docs/man. The wheel installs them, so pipx makes `man envsolve` work.
man: $(READY)
	$(BIN)/python docs/reference.py
	@echo "try: man -l docs/man/envsolve.1"

# The site, in build/site; its links are checked. Also the pages that are generated from the command line.
docs: $(READY)
	@$(BIN)/python -m pip install -q --editable '.[docs]'
	$(BIN)/python docs/reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html; docs/pictures.py records the pictures anew"

# The sdist and the wheel that is built from it, checked, and installed as pipx and uv install tools (in build/tools).
TOOLS := $(CURDIR)/build/tools
dist: $(READY)
	@$(BIN)/python -m pip install -q --editable '.[dist]'
	rm -rf dist $(TOOLS)
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	PIPX_HOME=$(TOOLS)/pipx PIPX_BIN_DIR=$(TOOLS)/bin $(BIN)/pipx install --python $(CURDIR)/$(BIN)/python dist/*.whl
	UV_TOOL_DIR=$(TOOLS)/uv UV_TOOL_BIN_DIR=$(TOOLS)/uvbin $(BIN)/uv tool install --python $(BIN)/python dist/*.tar.gz
	$(TOOLS)/bin/envsolve builds torch --gpu H100 --driver 580 > $(TOOLS)/pipx.txt
	$(TOOLS)/uvbin/envsolve builds torch --gpu H100 --driver 580 | cmp - $(TOOLS)/pipx.txt

clean:
	rm -rf $(VENV) build dist envsolve/_default_index.py envsolve/diagnose/causes/_compiled.json
