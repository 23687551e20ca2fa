# Everything runs in .venv, which the first target that needs it makes.
PYTHON ?= python3
BIN := .venv/bin

# Tests start processes and workers, each of which would otherwise compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all lint format docs bench bench-gpu clean

# Before the tests, modules are compiled on all cores, which pip does not; large parts that nothing
# here imports are not.
UNUSED := /tests?/|/transformers/models/(?!auto|bert|roberta|distilbert|electra|deberta|modernbert|bart|_)|/ray/(rllib|tune|serve|train|data|dashboard)/|/(mlflow|wandb|databricks|opentelemetry|cryptography)/
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt

# What a user installs, and on top of it what the tests and the linters need.
.venv/.user: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("auxlearn needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	test -d .venv || $(PYTHON) -m venv .venv
	$(INSTALL) torch
	$(INSTALL) --editable .
	touch $@

.venv/.installed: .venv/.user
	$(INSTALL) --editable '.[dev]'
	@$(BIN)/python -W ignore -m compileall -q -j 0 -x '$(UNUSED)' .venv/lib >/dev/null || true
	touch $@

demo: .venv/.user
	$(BIN)/auxlearn train --aux l3mask --weights meta

# The tests of a file go to one worker: what they share is then made once. Some tests wait for
# processes, so there is one worker more than there are cores.
test: WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
test: .venv/.installed
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'not slow'

test-all: .venv/.docs
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site, in build/site; links to nowhere and names that do not exist are errors.
docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.venv/.docs: .venv/.installed
	$(INSTALL) --editable '.[dev,docs]'
	touch $@

bench: .venv/.installed
	set -e; for name in scoring training objectives weighting startup report; do \
		$(BIN)/python -m benchmarks.$$name; done

bench-gpu: .venv/.installed
	set -e; for name in scoring training objectives weighting; do \
		$(BIN)/python -m benchmarks.$$name --device cuda --output benchmarks/results/$$name-cuda.json; done
	$(BIN)/python -m benchmarks.report

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
