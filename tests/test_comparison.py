"""The grid of a comparison, and what runs that are there already are worth."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.comparison import Cell, Progress, difference, grid, progress, reaches, to_go_on
from mapreduce_rnn.config import StopConfig, TrainConfig, override
from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.runstate import Best, RunState, stop_reason

CELL = Cell("cpu", 6, 16, seed=1, simulated=True)
START: dict[str, Any] = {"event": "start"}
DONE: dict[str, Any] = {"event": "end", "done": True}
BROKEN: dict[str, Any] = {"event": "end", "done": False}


def config(**options: Any) -> TrainConfig:
    return override(TrainConfig(), options, "test")


def names(*buckets: int | str, counts: tuple[int, ...] = (1,), **options: Any) -> list[str]:
    cells = grid("cpu", counts, buckets, [1], config(**options), simulate=False)
    return [cell.name for cell in cells]


def test_a_grid_is_crossed_and_the_seeds_go_last() -> None:
    cells = grid("gpu", (1, 6), ("auto", 4), (7, 8), config(), simulate=False)
    assert [cell.name for cell in cells] == [
        f"gpu-{count}_buckets-{word}_seed-{seed}"
        for seed in (7, 8)
        for word in ("auto", 4)
        for count in (1, 6)
    ]


def test_a_cell_has_its_own_options_and_the_common_ones() -> None:
    cells = grid("gpu", (6,), (4,), (7,), config(units=5, cpu_workers=2), simulate=True)
    (options,) = cells.values()
    assert options.devices.simulated == options.mapreduce.map_tasks == 6
    assert options.devices.cpu_workers is None
    assert (options.batches.buckets, options.run.seed, options.model.units) == (4, 7, 5)


def test_none_is_shuffled_batches_padded_to_their_own_longest() -> None:
    common = config(pad_to="boundary", curriculum="competence")
    (options,) = grid("cpu", (1,), ("none",), (1,), common, simulate=False).values()
    batches = options.batches
    assert (batches.buckets, batches.pad_to, batches.curriculum) == (1, "longest", "none")


def test_one_bucket_is_none_unless_options_tell_them_apart() -> None:
    assert names(1, "none", 2) == ["cpu-1_buckets-none_seed-1", "cpu-1_buckets-2_seed-1"]
    assert names(1) == names("none")
    assert len(names(1, "none", pad_to="boundary")) == 2


def test_one_device_is_measured_where_others_are_simulated() -> None:
    cells = grid("cpu", (1, 2), (16,), (1,), config(), simulate=True)
    assert [cell.simulated for cell in cells] == [False, True]
    assert [options.devices.simulated for options in cells.values()] == [None, 2]


def test_limits_of_options_hold() -> None:
    with pytest.raises(UsageError, match="compare: --cpu-workers must be at most 1024, got 2000"):
        names(2, counts=(2000,))


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({}, "6 CPU workers (simulated), 16 buckets, seed 1"),
        ({"kind": "gpu", "count": 1, "simulated": False}, "1 GPU worker, 16 buckets, seed 1"),
        ({"buckets": "none"}, "6 CPU workers (simulated), no buckets, seed 1"),
        ({"buckets": "auto"}, "6 CPU workers (simulated), automatic buckets, seed 1"),
        ({"buckets": 1}, "6 CPU workers (simulated), 1 bucket, seed 1"),
    ],
)
def test_titles(changes: dict[str, Any], title: str) -> None:
    assert dataclasses.replace(CELL, **changes).title == title


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([START, {"event": "round"}, DONE], Progress.FINISHED),
        ([START, BROKEN, START, DONE, {"event": "worker"}], Progress.FINISHED),
        ([START, DONE, START, {"event": "round"}], Progress.UNFINISHED),
        ([START, DONE, START, BROKEN], Progress.UNFINISHED),
        ([START, {"event": "end"}], Progress.UNFINISHED),
        ([], Progress.UNFINISHED),
    ],
)
def test_a_run_is_finished_when_its_newest_session_ended_as_planned(
    events: list[dict[str, Any]], expected: Progress
) -> None:
    assert progress(events, StopConfig(), StopConfig()) is expected


def test_a_run_that_is_to_go_further_is_not_finished() -> None:
    asked = StopConfig(epochs=30)
    assert progress([START, DONE], StopConfig(epochs=20), asked) is Progress.UNFINISHED
    assert progress([START, DONE], StopConfig(epochs=40), asked) is Progress.FINISHED


def _limit(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


stops = st.builds(
    StopConfig,
    epochs=st.integers(1, 4),
    rounds=_limit(st.integers(1, 4)),
    max_seconds=_limit(st.floats(1, 40)),
    target_loss=_limit(st.floats(0, 4)),
    patience=_limit(st.integers(1, 3)),
)
states = st.builds(
    lambda round, loss, waited: (
        RunState(round, {}, epoch=round + 1, last_loss=loss, waited=waited,
                 best=Best(round, loss, None)),
        10.0 * round,
    ),
    st.integers(0, 5), st.floats(0, 4), st.integers(0, 4),
)  # fmt: skip


@given(has=stops, asked=stops, at=states)
def test_what_reaches_further_never_stops_earlier(
    has: StopConfig, asked: StopConfig, at: tuple[RunState, float]
) -> None:
    if reaches(has, asked) and stop_reason(at[0], has, at[1]) is not None:
        assert stop_reason(at[0], asked, at[1]) is not None


@pytest.mark.parametrize(
    ("has", "asked", "expected"),
    [
        ({"target_loss": 2.0}, {"target_loss": 3.0}, True),
        ({"target_loss": 3.0}, {"target_loss": 2.0}, False),
        ({"target_loss": 3.0}, {}, False),
        ({}, {"target_loss": 3.0, "rounds": 5, "max_seconds": 9.0, "patience": 1}, True),
        ({"max_seconds": 9.0}, {"max_seconds": 8.0}, True),
        ({"epochs": 19}, {}, False),
    ],
)
def test_a_lower_target_and_a_later_limit_reach_further(
    has: dict[str, Any], asked: dict[str, Any], expected: bool
) -> None:
    assert reaches(StopConfig(**has), StopConfig(**asked)) is expected


@given(stops)
def test_the_same_limits_reach_as_far(stop: StopConfig) -> None:
    assert reaches(stop, stop)


def test_a_run_goes_on_with_what_decides_no_result() -> None:
    changes = to_go_on(CELL, config(units=5, epochs=30, keep="all"))
    assert changes.items() >= {"epochs": 30, "max_seconds": None, "keep": "all"}.items()
    assert not {"units", "seed", "gpus", "cpu_workers", "simulate"} & changes.keys()


def test_a_run_in_real_time_goes_on_with_as_many_devices() -> None:
    real = dataclasses.replace(CELL, simulated=False)
    assert to_go_on(real, config())["cpu_workers"] == 6
    assert to_go_on(dataclasses.replace(real, kind="gpu"), config())["gpus"] == "6"


def test_the_first_option_that_differs_is_named_given_ones_before_resolved_ones() -> None:
    found = difference(config(buckets=3), config(buckets=4, bucket_cost="1,2,3"))
    assert found is not None
    assert (found.flag, found.values) == ("--bucket-cost", "frames -> 1,2,3")
    assert difference(config(epochs=3), config(epochs=4, keep=9)) is None
    assert difference(config(seed=3), config(seed=4), without=frozenset({"seed"})) is None
