# Two commands on a fresh machine (Debian, Python 3.11 with venv, make, gcc): make run, make test.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STORE  := stores/kanji
# Training stops at the first end of a round after this many seconds.
SECONDS ?= 270

# Comparisons: each run trains for so many seconds, on its own wall-clock; a constant learning rate,
# since runs that stop by the clock should not be told apart by where on a schedule that was.
COMPARE_SECONDS ?= 120
# Half the units of the demo: so one device gets through six epochs in that time.
COMPARE_OPTIONS = --units 48 --schedule constant --epochs 1000 --max-seconds $(COMPARE_SECONDS)
ONE_DEVICE      = $(if $(shell nvidia-smi -L 2>/dev/null),--gpus 1,--cpu-workers 1)
BUCKETS        := none,2,4,8,16,auto

.PHONY: run compare compare-full test slow faults lint type bench wheel clean

# The demo: import KanjiVG, train on it, draw the report.
run: $(STORE)
	$(BIN)/mapreduce-rnn train $(STORE) --max-seconds $(SECONDS)

# The reproduction, in under half an hour on two cores: 1 device against 6 (simulated where there
# are fewer), then buckets against none on one device, in the same folder. The same command goes on
# after a stop.
compare: $(STORE)
	$(BIN)/mapreduce-rnn compare $(STORE) $(COMPARE_OPTIONS)
	$(BIN)/mapreduce-rnn compare $(STORE) $(COMPARE_OPTIONS) $(ONE_DEVICE) --buckets $(BUCKETS)

# The same with three seeds, and on UNIPEN words and text: most of a day on two cores.
# make -k compare-full DATA=FOLDER, with unipen-words.npz and unipen-text.npz in FOLDER.
FULL := $(addprefix compare-full-,kanji words text)
.PHONY: $(FULL)
compare-full: $(FULL)
$(FULL): COMPARE_SECONDS = 300
# A shuffled batch of the longest line and 31 others would take more than 10 GB.
compare-full-text: COMPARE_SECONDS = 1500
compare-full-text: COMPARE_OPTIONS += --max-frames 300000
$(FULL): OPTIONS = --dir comparisons/full/$* --seeds 3 $(COMPARE_OPTIONS)
$(FULL): compare-full-%: stores/%
	$(BIN)/mapreduce-rnn compare $< $(OPTIONS)
	$(BIN)/mapreduce-rnn compare $< $(OPTIONS) $(ONE_DEVICE) --buckets $(BUCKETS)

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
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/epoch_time.py
	$(BIN)/python benchmarks/ddp.py --data $(STORE)
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/simulated.py --data $(STORE)

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

stores/words stores/text: stores/%: | $(VENV)/installed
	@test -n "$(DATA)" || { echo "where is unipen-$*.npz? give DATA=FOLDER"; exit 2; }
	mkdir -p stores
	$(BIN)/python benchmarks/strokes.py $(DATA)/unipen-$*.npz stores/$*.npz
	$(BIN)/mapreduce-rnn data import npz stores/$*.npz $@
	rm stores/$*.npz

$(VENV)/installed: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[demo,dev]'
	touch $@
