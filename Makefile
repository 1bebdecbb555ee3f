# make demo    train on each kind of data, and on two at once, in two queues (5 to 11 minutes); one HTML report
# make test    the fast tier of the tests (5 to 15 minutes, by the machine)
# make test-all   every test (25 to 60 minutes)
# make lint    ruff and mypy
# make docs    the site, in site/, with every link checked (150 s on one core)
# make docs-serve   the same, served on localhost:8000 and built again when a page changes (not notebooks and gallery)
# make wheel   dist/: the sdist, and the wheel that is made of it
# make clean   remove what these made, but neither runs nor data

PYTHON ?= python3
SHELL := /bin/bash
BIN := .venv/bin
# one thread a process: two test processes share two cores, and two threads that wait for each other
# on a busy machine can be ten times as slow as one
THREADS := OMP_NUM_THREADS=1
# two processes; give others: make test PYTEST="-n 8 -x"
PYTEST := -n 2 --dist worksteal
# uv takes a third of pip's time; pip goes on where uv cannot, as with an index that pip alone is told of
install = $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt uv \
	&& $(BIN)/uv pip install --python $(BIN)/python --compile-bytecode -c constraints.txt -e '.[$(1)]' \
	|| $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[$(1)]'
.PHONY: demo test test-all lint docs docs-serve wheel clean

# two queues, a core each; without a terminal of its own, a run prints its progress line by line
demo: .venv/.demo
	@folder=runs/demo/$$(date +%Y-%m-%d-%H%M%S); \
	fit() { $(THREADS) $(BIN)/seqkit fit "$$@" --out $$folder/$$1 2>&1 | cat; }; \
	set -o pipefail; \
	{ fit graph/molecules && fit text/char-lm --preset demo; } & first=$$!; \
	{ fit image/digits --preset demo && fit audio/spoken-digits --preset demo && fit multimodal/av-digits --preset demo; }; failed=$$?; \
	wait $$first || failed=1; \
	$(BIN)/seqkit runs $$folder; \
	$(BIN)/seqkit report $$(dirname $$folder/*/*/summary.json) --out $$folder/report.html; \
	exit $$failed

test: .venv/.test
	$(THREADS) $(BIN)/python -m pytest $(PYTEST) -m "not slow"

# both tiers are run even if the first fails
test-all: .venv/.dev
	@failed=0; \
	$(THREADS) $(BIN)/python -m pytest $(PYTEST) -m "not slow" || failed=1; \
	$(THREADS) $(BIN)/python -m pytest $(PYTEST) -m slow || failed=1; \
	exit $$failed

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/.dev
	$(THREADS) $(BIN)/python -m docs.website

docs-serve: .venv/.dev
	$(THREADS) $(BIN)/python -m docs.website --serve

wheel: | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt build
	$(BIN)/python -m build

clean:
	rm -rf .venv dist build site .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find seqkit tests docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "seqkit needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Give another: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv

# a stamp is older than what it was made from: install again
.venv/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,demo)
	touch $@

.venv/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,test)
	touch $@ .venv/.demo

.venv/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,dev)
	touch $@ .venv/.test .venv/.demo
