#!/bin/sh
# Installs a wheel in a fresh venv and trains two rounds from a folder with decoys.
# usage: try_wheel.sh WHEEL
set -eu

here=$(cd "$(dirname "$0")" && pwd)
wheel=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet -c "$here/../constraints.txt" "$wheel"

# Any of these imported instead of the real one ends the run.
mkdir workers
for decoy in workers/__init__.py random.py torch.py; do
    echo 'raise SystemExit("a decoy was imported")' > "$decoy"
done

venv/bin/python -P "$here/make_tiny_store.py" store
venv/bin/mapreduce-rnn train store --run-dir run --cpu-workers 2 --rounds 2
test "$(wc -l < run/metrics.jsonl)" -eq 2
test -s run/model.safetensors
echo "the wheel trains two rounds among decoys"
