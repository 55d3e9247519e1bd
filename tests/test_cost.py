"""Cost models: the program is exact for each, and senseless numbers are refused."""

from __future__ import annotations

import re
from bisect import bisect_left
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapreduce_rnn.bucketing import (
    BatchTime,
    CostModel,
    CostTable,
    Frames,
    batches_cost,
    optimal_buckets,
    parse_cost,
)
from mapreduce_rnn.errors import UsageError
from partitions import Prices, cheapest, cost_of, drawn, exact, is_close, priced

LENGTHS = drawn(range(1, 31), 7)
N_BUCKETS = st.integers(1, 4)
NUMBERS = [*range(9), 50, *np.geomspace(1e-6, 100, 30).tolist()]
LIMITS = [(1, None), (4, None), (64, None), (None, 1), (None, 25), (None, 60.5), (3, 40), (8, 90)]

batch_times = st.tuples(drawn(NUMBERS, 3), st.sampled_from(LIMITS)).map(
    lambda numbers: BatchTime(*(numbers[0] * 3)[:3], *numbers[1])
)


def table(steps: list[tuple[int, float]]) -> CostTable:
    """Reaches beyond every length, with level stretches among the rising ones."""
    rises, costs = zip(*steps, (40, 3), strict=True)
    return CostTable(tuple(np.cumsum(rises).tolist()), tuple(np.cumsum(costs).tolist()))


tables = drawn([(1 + k % 9, NUMBERS[k * 7 % len(NUMBERS)]) for k in range(120)], 5).map(table)


def time_price(model: BatchTime, length: int) -> int:
    """(a + p L) / b(L) + c L in units of 2^-80."""
    a, p, c = map(exact, (model.fixed, model.per_step, model.per_frame))
    limits = [model.batch_size] if model.batch_size else []
    limits += [max(1, int(Fraction(model.max_frames) / length))] if model.max_frames else []
    return (a + p * length) // min(limits) + c * length


def table_price(model: CostTable, length: int) -> int:
    """The line between the entries around a length, in units of 2^-80."""
    xs, ys = model.lengths, [exact(cost) for cost in model.costs]
    k = bisect_left(xs, length)
    if k == 0:
        return ys[0]
    return ys[k - 1] + (ys[k] - ys[k - 1]) * (length - xs[k - 1]) // (xs[k] - xs[k - 1])


def check(lengths: list[int], n_buckets: int, cost: CostModel, prices: Prices) -> None:
    """The result costs what it says, and nothing is cheaper, for each number of buckets."""
    buckets = optimal_buckets(lengths, n_buckets, cost=cost)
    assert sum(buckets.counts) == len(lengths)
    assert len(buckets.cost_curve) == min(n_buckets, len(prices))
    optimum = cheapest(prices, lengths)[:n_buckets]
    assert all(map(is_close, map(exact, buckets.cost_curve), optimum))
    assert is_close(cost_of(prices, lengths, buckets.boundaries), optimum[-1])


@settings(max_examples=2000)
@given(LENGTHS, N_BUCKETS, batch_times)
def test_batch_times_reach_the_optimum(
    lengths: list[int], n_buckets: int, model: BatchTime
) -> None:
    check(lengths, n_buckets, model, priced(lengths, partial(time_price, model)))


@settings(max_examples=2000)
@given(LENGTHS, N_BUCKETS, tables)
def test_tables_reach_the_optimum(lengths: list[int], n_buckets: int, model: CostTable) -> None:
    check(lengths, n_buckets, model, priced(lengths, partial(table_price, model)))


def test_a_batch_costs_a_plus_p_l_plus_c_b_l() -> None:
    model = BatchTime(50, 2, 1, batch_size=4)
    assert model.time(3, np.array([10, 20])).tolist() == [50 + 20 + 30, 50 + 40 + 60]
    assert model.prices(np.array([10, 20])).tolist() == [110 / 4, 170 / 4]


def test_a_frame_limit_makes_long_batches_small_and_their_sequences_dear() -> None:
    model = BatchTime(50, 2, 1, batch_size=4, max_frames=45)
    # batches of 4, 3, 2, 1; the last is longer than the limit and goes alone
    expected = [60 / 4 + 5, 80 / 3 + 15, 90 / 2 + 20, 150 + 50]
    assert model.prices(np.array([5, 15, 20, 50])).tolist() == expected
    free = BatchTime(50, 2, 1, batch_size=None, max_frames=45)
    assert free.prices(np.array([5, 15])).tolist() == [60 / 9 + 5, 80 / 3 + 15]


@given(
    st.sets(st.integers(1, 10**6) | st.integers(2**52, 2**63), min_size=2, max_size=9),
    st.tuples(st.none() | st.integers(1, 99), st.integers(1, 10**7) | st.integers(2**61, 2**80)),
)
def test_a_longer_sequence_is_never_cheaper(
    lengths: set[int], limits: tuple[int | None, int]
) -> None:
    for most in (limits[1], float(limits[1])):
        prices = BatchTime(0.3, 0, 0.1, limits[0], most).prices(np.array(sorted(lengths)))
        assert (np.diff(prices) >= 0).all()


def test_real_batches_cost_their_own_size() -> None:
    sizes, longest = [3, 1, 4], [20, 10, 20]  # in any order
    timed = batches_cost(BatchTime(50, 2, 1, batch_size=4), sizes, longest)
    assert timed.tolist() == [150, 80, 170]
    assert batches_cost(Frames(), sizes, longest).tolist() == [60, 10, 80]
    table = CostTable((10, 30), (1, 5))
    assert batches_cost(table, sizes, longest).tolist() == [9, 1, 12]
    assert batches_cost(table, [], []).shape == (0,)
    with pytest.raises(UsageError, match="up to length 40, got one up to 30"):
        batches_cost(table, [1, 1], [40, 10])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("frames", Frames()),
        ("4.5,0.05,2e-3", BatchTime(4.5, 0.05, 0.002, 32, 900)),
        (" 1, 2,3", BatchTime(1, 2, 3, 32, 900)),
        ("100:1,250:2.5", CostTable((100, 250), (1, 2.5))),
        ("100:7", CostTable((100,), (7,))),
    ],
)
def test_the_option_names_each_model(text: str, expected: CostModel) -> None:
    assert parse_cost(text, batch_size=32, max_frames=900) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("auto", "must be frames, measured, A,P,C or LENGTH:COST,..., got 'auto'"),
        ("", "got ''"),
        ("1,2", "got '1,2'"),
        ("1,2,3,4", "got '1,2,3,4'"),
        ("1,2,c", "got '1,2,c'"),
        ("10:1,20", "got '10:1,20'"),
        ("10:1:1", "got '10:1:1'"),
        ("1,2,nan", "1,2,nan: expected costs a, p, c that are finite"),
        ("1,2,-3", "finite and 0 or more"),
        ("1e999,2,3", "finite and 0 or more"),
        ("20:1,10:2", "rise strictly; it takes frames, measured, A,P,C or LENGTH:COST,..."),
        ("10:2,20:1", "never fall"),
        ("10:1,inf:2", "rise strictly"),
    ],
)
def test_an_option_that_names_none_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as refused:
        parse_cost(text, batch_size=32, max_frames=None)
    assert str(refused.value).startswith("--bucket-cost ")
    assert "\n" not in str(refused.value)


def test_costs_still_to_be_measured_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="as the numbers A,P,C"):
        parse_cost("measured", batch_size=32, max_frames=None)


def test_a_dear_step_moves_the_boundary() -> None:
    lengths = [1] * 30 + [4] * 30 + [9] * 20
    assert optimal_buckets(lengths, 2).boundaries == (4, 9)
    stepped = CostTable((1, 2, 4, 9), (1, 10, 10, 11))
    assert optimal_buckets(lengths, 2, cost=stepped).boundaries == (1, 9)


def test_more_buckets_than_gain_anything_are_not_made() -> None:
    level = CostTable((1, 100), (5, 5))
    buckets = optimal_buckets([3, 7, 11], 3, cost=level)
    assert (buckets.boundaries, buckets.cost_curve) == ((11,), (15, 15, 15))


def test_a_model_of_ones_own_stays_exact_in_integers() -> None:
    class Squares:
        def prices(self, lengths: np.ndarray) -> np.ndarray:
            return lengths.astype(object) ** 2

    buckets = optimal_buckets([2**40 + 1, 2**40, 3], 2, cost=Squares())
    assert buckets.cost == 2 * (2**40 + 1) ** 2 + 9


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ([3.0, 2.0], "never fall"),
        ([-1, 2], "0 or more"),
        ([1.0, float("nan")], "finite"),
        ([1.0, float("inf")], "finite"),
        ([1.0], "one price per length"),
        (["1", "2"], "one price per length, 2 numbers"),
    ],
)
def test_prices_that_break_the_program_are_refused(
    prices: list[float] | list[str], message: str
) -> None:
    class Wrong:
        def prices(self, lengths: np.ndarray) -> np.ndarray:
            return np.array(prices)

    with pytest.raises(UsageError, match=message):
        optimal_buckets([5, 9], 2, cost=Wrong())


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((-1, 2, 3, 4), "0 or more"),
        ((1, float("nan"), 3, 4), "finite"),
        ((1, 2, 3, 0), "batch size of at least 1, got 0"),
        ((1, 2, 3, None), "give batch_size, max_frames or both"),
        ((1, 2, 3, None, 0), "frame limit above 0, got 0"),
    ],
)
def test_senseless_batch_times_are_refused(numbers: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BatchTime(*numbers)


@pytest.mark.parametrize(
    ("lengths", "costs", "message"),
    [
        ((), (), "one cost per length"),
        ((1, 2), (1,), "one cost per length"),
        ((2, 2), (1, 1), "rise strictly"),
        ((0, 2), (1, 1), "above 0"),
        ((1, 2), (3, 1), "never fall"),
        ((1, 2), (-3, 1), "0 or more"),
    ],
)
def test_senseless_tables_are_refused(
    lengths: tuple[int, ...], costs: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        CostTable(lengths, costs)


def test_a_length_beyond_the_table_is_refused() -> None:
    with pytest.raises(UsageError, match=r"up to length 12, got one up to 10"):
        optimal_buckets([5, 12], 2, cost=CostTable((1, 10), (1, 2)))
