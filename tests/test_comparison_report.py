from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comparisons import write_cell
from mapreduce_rnn.cli import main
from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.report import comparison_lines, write_comparison, write_report
from mapreduce_rnn.report import comparisontables as tables
from mapreduce_rnn.report.comparison import Comparison, read_comparison
from mapreduce_rnn.report.measures import (
    baseline,
    bucket_row,
    epoch_seconds,
    lead,
    over_seeds,
    ratio,
    seconds_to,
    spread,
    targets,
    unbucketed,
)
from mapreduce_rnn.report.run import Round, Run, Validation, read_run
from mapreduce_rnn.report.setting import Setting, setting_of
from runs import write_run

GRID = [(count, buckets) for count in (1, 6) for buckets in ("none", "4", "auto")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1 and 6 simulated CPU workers, three choices of buckets, two seeds."""
    path = tmp_path_factory.mktemp("comparisons") / "kanji"
    for count, buckets in GRID:
        for seed in (1, 2):
            write_cell(path, count, buckets, seed)
    return path


@pytest.fixture(scope="module")
def compared(folder: Path) -> Comparison:
    return read_comparison(folder)


def made_of(path: Path, losses: list[float], seconds: float = 1.0) -> Run:
    """A run of a round and a validation per loss, each of one epoch and as many seconds."""
    rounds = tuple(
        Round(n, n, n * seconds, 1.0, 0.1, Validation(loss, 0.5), 0, 0)
        for n, loss in enumerate(losses, 1)
    )
    return Run(path, rounds=rounds, end={"done": True})


def test_runs_are_grouped_by_devices_and_buckets(compared: Comparison) -> None:
    assert [(g.setting.count, g.setting.buckets) for g in compared.groups] == GRID
    assert [cell.seed for cell in compared.groups[0].cells] == [1, 2]
    assert compared.groups[-1].devices == "6 CPU workers (simulated)"
    assert compared.problems == ()


def test_a_run_of_another_name_is_known_by_its_config(tmp_path: Path) -> None:
    run = read_run(write_cell(tmp_path, 2, "8", simulated=False).rename(tmp_path / "mine"))
    config = {**run.config, "batches": {"buckets": 1, "pad_to": "longest", "curriculum": "none"}}
    assert setting_of(Run(run.path, config, run.plan, run.start)) == (
        Setting("cpu", 2, "auto"), 1,  # the plan says that the number was chosen
    )  # fmt: skip
    given = run.plan.__class__(device="cuda")
    assert setting_of(Run(run.path, config, given, run.start)) == (Setting("gpu", 2, "none"), 1)
    assert setting_of(Run(run.path)) == (None, None)


def test_time_to_a_loss_is_that_of_the_first_validation_at_or_below() -> None:
    run = made_of(Path("run"), [9.0, 5.0, 6.0, 4.0], seconds=2.0)
    assert [seconds_to(loss)(run) for loss in (9.0, 5.5, 5.0, 4.5)] == [2, 4, 4, 8]
    assert math.isnan(seconds_to(3.9)(run))


def test_time_per_epoch_is_the_median_pace_of_the_rounds() -> None:
    run = made_of(Path("run"), [1.0] * 5, seconds=3.0)
    assert epoch_seconds(run) == pytest.approx(3.0)
    assert math.isnan(epoch_seconds(Run(Path("run"))))


def test_targets_are_evenly_spaced_losses_that_every_run_reaches(compared: Comparison) -> None:
    losses = targets(compared)
    assert len(losses) == 3
    assert losses == tuple(sorted(losses, reverse=True))
    assert losses[0] / losses[1] == pytest.approx(losses[1] / losses[2], rel=0.02)
    for cell in compared.cells:
        assert all(math.isfinite(seconds_to(loss)(cell.run)) for loss in losses)
    worst = max(min(r.validation.loss for r in c.run.validated if r.validation)
                for c in compared.cells)  # fmt: skip
    assert worst <= losses[-1] < 1.01 * worst


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([[80.0, 10.0], [90.0, 10.0]], (40.0, 20.0, 10.0)),
        ([[5.0, 4.0], [9.0, 8.0]], (8.0,)),
        ([[math.nan], [math.nan]], ()),
        ([[0.0, -1.0], [math.nan]], ()),
    ],
)
def test_targets_of_few_validations(
    compared: Comparison, losses: list[list[float]], expected: tuple[float, ...]
) -> None:
    assert targets(of_runs(compared, losses)) == expected


def of_runs(compared: Comparison, losses: list[list[float]]) -> Comparison:
    """A comparison of one group whose runs have such losses."""
    [group, *_] = compared.groups
    cells = tuple(
        type(cell)(made_of(cell.run.path, known), cell.setting, cell.seed)
        for cell, known in zip(group.cells, losses, strict=True)
    )
    return Comparison(compared.path, (type(group)(group.setting, cells),))


def test_speed_up_compares_runs_of_equal_seed(compared: Comparison) -> None:
    one, six = compared.with_buckets("4")
    assert baseline(compared, six) == one
    assert baseline(compared, one) is None
    pairs = [epoch_seconds(a.run) / epoch_seconds(b.run)
             for a, b in zip(one.cells, six.cells, strict=True)]  # fmt: skip
    faster = ratio(one, six, epoch_seconds)
    assert (faster.median, faster.count) == (pytest.approx(statistics.median(pairs)), 2)
    assert (faster.least, faster.most) == (pytest.approx(min(pairs)), pytest.approx(max(pairs)))
    assert tables.efficiency(compared, six) == pytest.approx(faster.median / 6)


def test_buckets_are_compared_with_none_on_the_same_devices(compared: Comparison) -> None:
    group = compared.groups[-1]
    none = unbucketed(compared, group)
    assert none is not None
    assert none.setting == Setting("cpu", 6, "none")
    assert unbucketed(compared, none) is None


def test_a_spread_is_over_what_is_known() -> None:
    assert spread([3.0, math.nan, 1.0, 2.0]).median == 2.0
    assert (spread([3.0, 1.0]).least, spread([3.0, 1.0]).most) == (1.0, 3.0)
    assert math.isnan(spread([math.nan]).median)


def test_the_verdict_says_what_devices_and_buckets_gain(compared: Comparison) -> None:
    said = tables.comparison_verdict(compared)
    devices, buckets = said.text.split("; ")
    assert said.better is True
    form = r"6 CPU workers \(simulated\) reach validation loss \S+ in .+, "
    assert re.fullmatch(
        rf"{form}1 CPU worker \(simulated\) in .+: [2-6]\.\d times as fast", devices
    )
    assert re.fullmatch(
        rf"automatic buckets on {form}no buckets in .+: \d\.\d times as fast", buckets
    )
    assert lead(compared).setting == Setting("cpu", 6, "auto")


def test_more_devices_that_are_slower_are_called_that(tmp_path: Path) -> None:
    for count in (1, 2):
        write_cell(tmp_path, count, pace=9.0 * count, rounds=6)
    said = tables.comparison_verdict(read_comparison(tmp_path))
    assert said.better is False
    assert re.search(r": 0\.\d times as fast$", said.text)


def test_shares_of_every_group_add_up(compared: Comparison) -> None:
    rows = tables.time_shares_table(compared).rows
    assert len(rows) == len(GRID)
    for row in rows:
        assert sum(float(cell.removesuffix(" %")) for cell in row[2:]) == pytest.approx(
            100, abs=0.4
        )


def test_a_missing_and_an_unfinished_run_are_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    write_cell(tmp_path, 1, "4")
    write_cell(tmp_path, 1, "none", rounds=3, end={"reason": "stopped", "done": False})
    write_cell(tmp_path, 6, "none", rounds=2, end=None)
    write_cell(tmp_path, 6, "auto")
    (write_cell(tmp_path, 6, "none", seed=2) / "metrics.jsonl").write_bytes(b"{")
    problems = read_comparison(tmp_path).problems
    begins = ("cpu-6_buckets-none_seed-1: the run has not ended",
              "cpu-6_buckets-none_seed-2: metrics.jsonl is damaged")  # fmt: skip
    assert all(any(p.startswith(begin) for p in problems) for begin in begins)
    assert "cpu-1_buckets-none_seed-1: not finished: stopped" in problems
    assert any(
        p.startswith("cpu-6_buckets-none_seed-2: metrics.jsonl is damaged") for p in problems
    )
    assert "missing: 6 CPU workers, 4 buckets, seed 1" in problems
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert all(problem in text for problem in problems)


def test_two_comparisons_one_after_the_other_miss_nothing_of_a_grid(tmp_path: Path) -> None:
    """Devices with one kind of buckets, then kinds of buckets on one device: both are shown."""
    for count, buckets in [(1, "16"), (6, "16"), (1, "none"), (1, "4")]:
        write_cell(tmp_path, count, buckets)
    compared = read_comparison(tmp_path)
    assert compared.problems == ()
    assert lead(compared).setting == Setting("cpu", 6, "16")
    row = [group.setting for group in bucket_row(compared)]
    assert row == [Setting("cpu", 1, buckets) for buckets in ("none", "4", "16")]


def test_while_none_of_a_group_is_finished_its_runs_count_as_far_as_they_are(
    tmp_path: Path,
) -> None:
    write_cell(tmp_path, 1, seed=1, rounds=2, end=None)
    assert over_seeds(read_comparison(tmp_path).groups[0], epoch_seconds).count == 1
    write_cell(tmp_path, 1, seed=2)
    [group] = read_comparison(tmp_path).groups
    assert [cell.seed for cell in group.counted] == [2]


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "events.jsonl"])
@pytest.mark.parametrize("content", [None, b"", b"\xff[", b"[]\n", b'{"round": []}\n'])
def test_no_damage_of_a_run_keeps_the_comparison_from_its_tables(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    write_cell(tmp_path, 1, rounds=3)
    broken = write_cell(tmp_path, 2, rounds=3)
    (broken / name).unlink() if content is None else (broken / name).write_bytes(content)
    lines = comparison_lines(tmp_path)
    assert any("1 CPU worker (simulated)" in line for line in lines)
    assert tables.comparison_csv(read_comparison(tmp_path))


def test_a_run_of_which_nothing_tells_the_devices_is_left_out_by_name(tmp_path: Path) -> None:
    write_cell(tmp_path, 1, rounds=2)
    (write_cell(tmp_path, 2, rounds=2) / "config.toml").unlink()
    (tmp_path / "cpu-2_buckets-8_seed-1").rename(tmp_path / "other")
    comparison = read_comparison(tmp_path)
    assert len(comparison.cells) == 1
    assert comparison.problems[0].startswith("other: left out: neither its name")


def test_the_terminal_has_the_tables_in_80_columns(folder: Path) -> None:
    lines = comparison_lines(folder)
    assert max(map(len, lines)) <= 80
    at = lines.index("training time: 6 CPU workers (simulated)")
    assert lines[at + 1].split()[:4] == ["buckets", "seeds", "per", "epoch"]
    assert [line.split()[0] for line in lines[at + 2 : at + 5]] == ["none", "4", "auto"]


def rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


@pytest.fixture(scope="module")
def written(folder: Path) -> Iterator[Path]:
    assert write_comparison(folder) == folder / "report.html"
    return folder


def test_a_report_is_a_page_its_figures_and_its_numbers(written: Path) -> None:
    drawn = sorted(path.name for path in (written / "figures").iterdir())
    assert drawn == ["buckets.png", "devices.png", "timeline.png"]
    text = (written / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"<script|<link(?! rel=\"icon\" href=\"data:,\")|@import|url\((?!#)", text)
    assert not re.search(r'src=|href="(?:https?:)?//', text)
    assert len(re.findall(r"<svg viewBox", text)) == 4 + 4 + 2
    assert "simulated training time (min):" in text
    drawings = "".join(re.findall(r"<defs>.*?</svg>", text, re.DOTALL))
    assert not re.search(r"(?:fill|stroke): #", drawings)


def test_curves_have_a_row_per_round_and_run(written: Path) -> None:
    rows = rows_of((written / "curves.csv").read_bytes())
    assert len(rows) == 12 * 2 * len(GRID)
    first = rows[0]
    assert (first["count"], first["kind"], first["buckets"], first["seed"]) == (
        "1",
        "cpu",
        "none",
        "1",
    )
    assert {row["simulated"] for row in rows} == {"yes"}
    assert float(rows[1]["seconds"]) == pytest.approx(2 * float(first["seconds"]))


def test_the_table_has_the_numbers_of_each_group(written: Path, compared: Comparison) -> None:
    rows = rows_of((written / "table.csv").read_bytes())
    assert [(row["count"], row["buckets"]) for row in rows] == [(f"{n}", q) for n, q in GRID]
    assert rows[0]["efficiency"] == rows[0]["speed_up_epoch"] == ""
    assert float(rows[3]["speed_up_epoch"]) > 3
    assert sum(
        float(rows[3][name]) for name in rows[3] if name.startswith("share_")
    ) == pytest.approx(1)


def test_missing_numbers_of_a_curve_are_empty(tmp_path: Path) -> None:
    gaps: dict[int, dict[str, Any]] = {1: {"train_loss": None, "validation": None}}
    run_dir = write_run(tmp_path / "run", rounds=2, changes=gaps)
    write_report(run_dir)
    first, second = rows_of((run_dir / "curves.csv").read_bytes())
    assert first["train_loss"] == first["validation_loss"] == first["label_error"] == ""
    assert float(second["seconds"]) == pytest.approx(16.2)


def test_the_command_takes_a_folder_of_runs(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(written)]) == 0
    assert capsys.readouterr().out.strip() == str(written / "report.html")


def test_a_folder_without_runs_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    with pytest.raises(UsageError, match="expected a run folder, or a folder of runs, got"):
        write_comparison(tmp_path)
