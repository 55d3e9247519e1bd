"""mapreduce-rnn buckets, as it is typed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from mapreduce_rnn import cli
from mapreduce_rnn.data.store import Sequence, write_store
from mapreduce_rnn.lines import columns
from runs_real import SMALL, FinishedRun


def store_of(path: Path, lengths: list[int], split: str = "train") -> Path:
    """A store of sequences of these lengths, all in one split."""
    sequences = [
        Sequence(str(i), np.zeros((length, 1), np.float32), [1], split)
        for i, length in enumerate(lengths)
    ]
    write_store(path, sequences, alphabet="a", feature_names=["x"])
    return path


@pytest.fixture
def buckets(capsys: pytest.CaptureFixture[str]) -> Buckets:
    return Buckets(capsys)


class Buckets:
    """Runs the command and reads its tables."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> str:
        """What it prints, which is never wider than 80 columns."""
        assert cli.main(["buckets", *map(str, arguments)]) == 0
        out, err = self._capsys.readouterr()
        assert err == ""
        assert max(map(columns, out.splitlines())) <= 80
        return out

    def fails(self, *arguments: object) -> tuple[int, str]:
        """Exit code and the one line that is said."""
        try:
            code = cli.main(["buckets", *map(str, arguments)])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = self._capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        return code, err


def rows(text: str, first: str) -> list[list[str]]:
    """Cells of the rows below the header that begins with ``first``."""
    block = next(b for b in text.split("\n\n") if b.lstrip().startswith(first))
    return [re.split(r"  +", line.strip()) for line in block.strip("\n").splitlines()[1:]]


def numbers(rows: list[list[str]], column: int) -> list[float]:
    return [float(row[column].replace(",", "").rstrip(" %x")) for row in rows]


def test_the_rows_add_up_to_all_training_sequences(store: Path, buckets: Buckets) -> None:
    *each, end = rows(buckets(store, "--buckets", 5, "--batch-size", 4), "boundary")
    assert len(each) == 5
    assert end[:2] == ["all", "32"]
    assert sum(numbers(each, 1)) == 32
    assert sum(numbers(each, 2)) == numbers([end], 2)[0]
    assert sum(numbers(each, 4)) == pytest.approx(100, abs=0.3)
    assert numbers(each, 0) == sorted(numbers(each, 0))


def test_time_is_that_of_the_batches_really_drawn(tmp_path: Path, buckets: Buckets) -> None:
    """T = 50 + 2 L + b L: 110 and 80 for the four and one of length 10, 150 for the three of 20."""
    store = store_of(tmp_path / "s", [10] * 5 + [20] * 3)
    text = buckets(store, "--buckets", 2, "--batch-size", 4, "--bucket-cost", "50,2,1")
    assert rows(text, "boundary") == [
        ["10", "5", "2", "0.0 %", "55.9 %"],
        ["20", "3", "1", "0.0 %", "44.1 %"],
        ["all", "8", "3", "0.0 %", "100.0 %"],
    ]
    assert rows(text, "time")[0] == ["these buckets", "2", "3", "0.0 %", "340", "1.00 x"]
    assert "units of A,P,C" in text


def test_other_partitions_are_compared_on_the_same_terms(tmp_path: Path, buckets: Buckets) -> None:
    """Padded to boundaries, so no draw matters: 9 x 10 + 20 frames, 5 x 10 + 5 x 20, 10 x 20."""
    store = store_of(tmp_path / "s", [10] * 9 + [20])
    text = buckets(store, "--buckets", 2, "--batch-size", 1, "--pad-to", "boundary")
    assert rows(text, "time") == [
        ["these buckets", "2", "10", "0.0 %", "110", "1.00 x"],
        ["equal counts", "2", "10", "0.0 %", "110", "1.00 x"],
        ["fixed widths", "2", "10", "0.0 %", "110", "1.00 x"],
        ["no bucketing", "1", "10", "45.0 %", "200", "1.82 x"],
    ]


def test_auto_says_how_many_and_why(store: Path, buckets: Buckets) -> None:
    text = buckets(store, "--buckets", "auto", "--batch-size", 2)
    reason = re.search(r"^buckets  auto: (\d+) of up to \d+ buckets", text, re.MULTILINE)
    assert reason is not None
    assert len(rows(text, "boundary")) - 1 == int(reason.group(1))


def test_training_with_the_same_options_has_the_same_buckets(
    finished: FinishedRun, buckets: Buckets
) -> None:
    options = SMALL[SMALL.index("--batch-size") :]
    each = rows(buckets(finished.store, "--map-tasks", 2, *options), "boundary")[:-1]
    plan = tomllib.loads((finished.path / "config.toml").read_text())["plan"]
    assert numbers(each, 0) == plan["boundaries"]


def test_with_several_map_tasks_it_is_the_first_shard(store: Path, buckets: Buckets) -> None:
    text = buckets(store, "--map-tasks", 5, "--buckets", 2)
    assert re.search(r"[67] of 32 training sequences, the shard of slot 0, one of 5", text)
    assert rows(text, "boundary")[-1][1] in ("6", "7")


def test_more_slots_than_sequences_is_one_sequence(tmp_path: Path, buckets: Buckets) -> None:
    text = buckets(store_of(tmp_path / "s", [4, 4]), "--map-tasks", 9, "--buckets", "auto")
    assert rows(text, "boundary") == [["4", "1", "1", "0.0 %", "100.0 %"]] + [
        ["all", "1", "1", "0.0 %", "100.0 %"]
    ]


@pytest.mark.parametrize("pad_to", ["longest", "boundary"])
def test_sequences_beyond_the_limit_are_told_of(
    tmp_path: Path, buckets: Buckets, pad_to: str
) -> None:
    store = store_of(tmp_path / "s", [5, 5, 30, 40])
    text = buckets(store, "--max-frames", 20, "--buckets", 2, "--pad-to", pad_to)
    assert "limit    2 sequences of more than 20 frames, each alone in a batch" in text
    assert rows(text, "boundary")[-1][1:3] == ["4", "3"]


@pytest.mark.parametrize("cost", ["frames", "1e-3,2e-5,3e-7", "0,0,0", "1:1,1000000:5e12"])
def test_lines_fit_in_80_columns(tmp_path: Path, buckets: Buckets, cost: str) -> None:
    store = store_of(tmp_path / ("漢" * 70), [1, 70, 1_000_000])
    text = buckets(store, "--bucket-cost", cost, "--max-frames", 10**15, "--buckets", "auto")
    assert "1,000,000" in text


def test_equal_commands_print_equal_text(store: Path, buckets: Buckets) -> None:
    assert buckets(store, "--seed", 3) == buckets(store, "--seed", 3)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--bucket-cost", "measured"], "needs a device: give the numbers A,P,C"),
        (["--bucket-cost", "cheap"], "--bucket-cost must be frames"),
        (["--bucket-cost", "1:1,2:2"], "expected a cost table up to length"),
        (["--buckets", "0"], "--buckets must be at least 1, got 0"),
        (["--buckets", "some"], "invalid int or auto value: 'some'"),
        (["--pad-to", "top"], "choose from 'longest', 'boundary'"),
        (["--units", "8"], "unrecognized arguments: --units"),
    ],
)
def test_a_wrong_option_is_one_line(
    store: Path, buckets: Buckets, options: list[str], expected: str
) -> None:
    code, line = buckets.fails(store, *options)
    assert code == 2
    assert expected in line


def test_a_store_that_is_missing_is_one_line(tmp_path: Path, buckets: Buckets) -> None:
    code, line = buckets.fails(tmp_path / "none")
    assert (code, "no store at" in line) == (1, True)


def test_figures_are_drawn_on_demand(
    store: Path, tmp_path: Path, buckets: Buckets, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--figures DIR draws" in buckets(store)
    monkeypatch.chdir(tmp_path)
    lines = buckets(store, "--figures", "new/figures").splitlines()
    named = [line.removeprefix("figure   ") for line in lines if line.startswith("figure ")]
    assert named == ["new/figures/lengths.png", "new/figures/planned-cost.png"]
    assert all(Path(name).read_bytes().startswith(b"\x89PNG\r\n") for name in named)


def test_a_file_in_the_place_of_the_figures_is_refused(
    store: Path, tmp_path: Path, buckets: Buckets
) -> None:
    (tmp_path / "file").touch()
    code, line = buckets.fails(store, "--figures", tmp_path / "file")
    assert (code, "expected a folder, got the file" in line) == (2, True)


def test_text_comes_without_torch_and_matplotlib(store: Path) -> None:
    code = (
        f"import sys; from mapreduce_rnn.cli import main; main(['buckets', {str(store)!r}])\n"
        "print({'torch', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
