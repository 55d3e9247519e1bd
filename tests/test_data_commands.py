"""data import and data inspect, as they are typed."""

from __future__ import annotations

import argparse
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from mapreduce_rnn.commands import data as commands
from mapreduce_rnn.data.store import Sequence, Store, write_store
from mapreduce_rnn.errors import ImportRefused, StoreError, UsageError


def data(*arguments: object) -> int:
    parser = argparse.ArgumentParser(prog="mapreduce-rnn")
    commands.add_arguments(parser.add_subparsers(required=True))
    args = parser.parse_args(["data", *map(str, arguments)])
    code: int = args.run(args)
    return code


def own(folder: Path) -> Path:
    file = folder / "own.npz"
    np.savez(file, frames=np.ones((30, 2)), offsets=np.arange(0, 31, 3), texts=["ab"] * 10)
    return file


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def test_import_makes_a_store_and_says_what_is_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert data("import", "npz", own(tmp_path), tmp_path / "s") == 0
    assert len(Store.open(tmp_path / "s")) == 10
    assert "9 train, 1 validation" in capsys.readouterr().out


def test_kanjivg_takes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg = '<svg xmlns:kvg="urn:kvg"><path kvg:type="㇐" d="M9,9c9,0,9,0,60,0"/></svg>'
    for code in ("04e00", "04e01"):
        (tmp_path / f"{code}.svg").write_text(svg, encoding="utf-8")
    assert data("import", "kanjivg", tmp_path, tmp_path / "s", "--characters", "--seed", 3) == 0
    assert Store.open(tmp_path / "s").meta.source == "KanjiVG, 2 characters, single characters"
    assert "CC BY-SA 3.0" in capsys.readouterr().out


def test_an_existing_store_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exists"):
        data("import", "npz", tmp_path / "missing.npz", tmp_path)


def test_skip_bad_goes_on_without_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = np.ones((8, 2))
    frames[0] = np.inf
    split = ["train", "train", "validation", "train"]
    np.savez(
        tmp_path / "own.npz", frames=frames, offsets=[0, 2, 4, 6, 8], texts=["a"] * 4, split=split
    )
    with pytest.raises(ImportRefused, match="1 of 4"):
        data("import", "npz", tmp_path / "own.npz", tmp_path / "s")
    assert data("import", "npz", tmp_path / "own.npz", tmp_path / "s", "--skip-bad") == 0
    assert "1 left out: 0: frame 0 is not finite" in capsys.readouterr().out


def test_inspect_shows_counts_lengths_and_what_is_due(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert data("inspect", store) == 0
    out = capsys.readouterr().out
    opened = Store.open(store)
    assert "32 train, 8 validation" in out
    assert f"mean {opened.lengths.mean():.0f} frames" in out
    assert f"longest {opened.lengths.max()}" in out
    assert "3 float32: x, y, pen_up" in out
    assert "out of 4" in out
    assert "verified" not in out


def test_inspect_fits_in_80_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sequences = [Sequence("漢" * 30 + str(i), np.ones((i % 2, 40)), [1]) for i in range(20)]
    write_store(
        tmp_path / ("s" * 100), sequences, alphabet="字", source="源 " * 60,
        feature_names=[f"feature-{k}" for k in range(40)], attribution="word " * 40,
    )  # fmt: skip
    data("inspect", tmp_path / ("s" * 100))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(columns, lines)) <= 80
    assert any("10 left out" in line for line in lines)


def test_inspect_verifies_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data("import", "npz", own(tmp_path), tmp_path / "s")
    assert data("inspect", tmp_path / "s", "--verify") == 0
    assert capsys.readouterr().out.endswith("verified: all sums are right\n")
    frames = tmp_path / "s" / "frames.npy"
    frames.write_bytes(frames.read_bytes()[:-1] + b"@")
    with pytest.raises(StoreError, match=r"frames\.npy is damaged"):
        data("inspect", tmp_path / "s", "--verify")


def test_sizes_have_three_digits_and_a_unit() -> None:
    sizes = [0, 999, 1000, 31_940_000, 999_600_000, 5 * 10**15]
    expected = ["0 bytes", "999 bytes", "1 kB", "31.9 MB", "1 GB", "5e+03 TB"]
    assert [commands.size(size) for size in sizes] == expected


@pytest.mark.parametrize("seed", ["-1", "x", "1.5"])
def test_seeds_are_whole_numbers(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        data("import", "kanjivg", "s", "--seed", seed)
    assert "expected a whole number" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [[], ["import"], ["import", "kanjivg"], ["import", "npz"], ["inspect"]]
)
def test_help_teaches_with_an_example_in_80_columns(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        data(*command, "--help")
    out = capsys.readouterr().out
    assert f"mapreduce-rnn data {command[0] if command else 'import'}" in out.split("example")[1]
    assert max(map(columns, out.splitlines())) <= 80


def test_help_comes_without_numpy() -> None:
    code = "import sys, mapreduce_rnn.commands.data; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
