# Two commands on a fresh machine (Debian, Python 3.11 with venv, make, gcc): make run, make test.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STORE  := stores/kanji
# Training stops at the first end of a round after this many seconds.
SECONDS ?= 270

.PHONY: run test slow faults lint type bench wheel clean

# The demo: import KanjiVG, train on it, draw the report.
run: $(STORE)
	$(BIN)/mapreduce-rnn train $(STORE) --max-seconds $(SECONDS)

test: $(VENV)/installed
	$(BIN)/python -m pytest

# Minutes of real training; run by hand before an issue is closed.
slow: $(VENV)/installed
	$(BIN)/python -m pytest -m "slow or gpu"

# Half an hour of kills, hangs, wrong answers and signals; by hand too.
faults: $(VENV)/installed
	$(BIN)/python -m pytest -m faults

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(VENV)/installed
	$(BIN)/mypy

bench: $(STORE)
	$(BIN)/python benchmarks/overhead.py --data $(STORE)
	$(BIN)/python benchmarks/bucketing.py
	$(BIN)/python benchmarks/sampler.py
	$(BIN)/python benchmarks/buckets_auto.py --data $(STORE)
	$(BIN)/python benchmarks/padding.py --data $(STORE)
	$(BIN)/python benchmarks/reduce.py
	$(BIN)/python benchmarks/epoch_time.py
	$(BIN)/python benchmarks/ddp.py --data $(STORE)
	$(BIN)/python benchmarks/faults.py

# Build the wheel and train two rounds with it, installed in a venv of its own, from a folder full
# of files that a careless import would pick up.
wheel: $(VENV)/installed
	rm -rf build dist
	$(BIN)/python -m build --outdir dist
	PYTHON=$(PYTHON) sh tests/try_wheel.sh dist/*.whl

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(STORE): | $(VENV)/installed
	$(BIN)/mapreduce-rnn data import kanjivg $(STORE)

$(VENV)/installed: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[demo,dev]'
	touch $@
