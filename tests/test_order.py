"""Median and trimmed mean."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contributions import contributions, rule, value
from mapreduce_rnn.errors import ReduceError, UsageError

NUMBERS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=12)


def reduced(name: str, *values: float, weights: list[int] | None = None) -> float:
    chosen = rule(name, slots=max(3, len(values)))
    model = value(0.0, "float64")
    given_values = contributions(*(value(v, "float64") for v in values), weights=weights)
    return chosen.apply(model, {}, given_values).model["w"].item()


def test_numbers_by_hand() -> None:
    assert reduced("median", 1.0, 100.0, 3.0) == 3.0
    assert reduced("median", 1.0, 100.0, 3.0, 5.0) == 4.0
    assert reduced("trimmed-mean", 1.0, 100.0, 3.0, 5.0, -9.0) == 3.0


@given(NUMBERS)
def test_median_is_that_of_numpy(values: list[float]) -> None:
    assert reduced("median", *values) == pytest.approx(np.median(values), rel=1e-12, abs=1e-9)


@given(NUMBERS, st.integers(0, 49))
def test_trimmed_mean_is_the_mean_of_what_is_left(values: list[float], percent: int) -> None:
    chosen = rule("trimmed-mean", f"trim={percent / 100}")
    cut = Fraction(percent, 100) * len(values) // 1
    left = sorted(values)[cut : len(values) - cut]
    given_values = contributions(*(value(v, "float64") for v in values))
    reduction = chosen.apply(value(0.0, "float64"), {}, given_values)
    assert reduction.model["w"].item() == pytest.approx(np.mean(left), rel=1e-12, abs=1e-9)


def test_trim_is_taken_as_it_is_written() -> None:
    values = [0.0] * 71 + [1.0] * 29  # 0.29 * 100 is 28.999999999999996
    chosen = rule("trimmed-mean", "trim=0.29")
    given_values = contributions(*(value(v) for v in values))
    assert chosen.apply(value(0.0), {}, given_values).model["w"].item() == 0.0


@pytest.mark.parametrize("name", ["median", "trimmed-mean"])
def test_every_slot_has_the_same_say_but_those_that_did_not_train(name: str) -> None:
    expected = {"median": 2.0, "trimmed-mean": 3.0}[name]
    assert reduced(name, 1.0, 2.0, 9.0, 6.0, weights=[50, 1, 0, 1]) == expected


@pytest.mark.parametrize("name", ["median", "trimmed-mean"])
@pytest.mark.parametrize(("values", "expected"), [([1.0, 4.0], 2.5), ([4.0], 4.0)])
def test_fewer_than_three_in_a_round_are_averaged(
    name: str, values: list[float], expected: float
) -> None:
    assert reduced(name, *values) == expected


@pytest.mark.parametrize("name", ["median", "trimmed-mean"])
def test_values_where_they_would_be_cut_off_are_found_not_finite(name: str) -> None:
    arrays = [value(v) for v in (1.0, np.inf, 2.0, np.nan, 3.0)]
    reduction = rule(name, slots=5).apply(value(0.0), {}, contributions(*arrays))
    assert reduction.model["w"].item() == 2.0
    assert [(r.slot, r.name) for r in reduction.rejected] == [(1, "w"), (3, "w")]
    with pytest.raises(ReduceError, match="slot 0: w: not finite"):
        rule(name).apply(value(0.0), {}, contributions(value(np.nan)))


@pytest.mark.parametrize("name", ["median", "trimmed-mean"])
def test_numbers_near_the_end_of_the_range_do_not_overflow(name: str) -> None:
    assert reduced(name, 1.5e308, 1.5e308, -1.5e308, -1.5e308) == 0.0


@pytest.mark.parametrize("name", ["median", "trimmed-mean"])
def test_two_slots_are_too_few_to_choose_it(name: str) -> None:
    with pytest.raises(UsageError, match="at least 3 map tasks, got 2"):
        rule(name, slots=2)
