"""Cost models: the program is exact for each, and senseless numbers are refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapreduce_rnn.bucketing.cost import BatchTime, CostTable
from mapreduce_rnn.bucketing.optimal import optimal_buckets
from mapreduce_rnn.errors import UsageError
from partitions import Lengths, cheapest, cost_of, exact

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=7)
N_BUCKETS = st.integers(1, 4)
NUMBERS = st.floats(1e-6, 100) | st.integers(0, 50)
TIMES = st.builds(BatchTime, NUMBERS, NUMBERS, NUMBERS, st.integers(1, 64))


@st.composite
def tables(draw: st.DrawFn) -> CostTable:
    """Tables that reach beyond every length, with level stretches among the rising ones."""
    steps = draw(st.lists(st.tuples(st.integers(1, 9), NUMBERS), min_size=1, max_size=5))
    rises, costs = zip(*steps, strict=True)
    lengths = np.cumsum([*rises, 40]).tolist()
    return CostTable(tuple(lengths), tuple(np.cumsum([*costs, 3]).tolist()))


def time_price(model: BatchTime, length: float) -> Fraction:
    a, p, c = map(Fraction, (model.fixed, model.per_step, model.per_frame))
    return (a + p * Fraction(length)) / model.batch_size + c * Fraction(length)


def table_price(model: CostTable, length: float) -> Fraction:
    xs, ys = [*map(Fraction, model.lengths)], [*map(Fraction, model.costs)]
    k = int(np.searchsorted(model.lengths, length))
    if k == 0:
        return ys[0]
    return ys[k - 1] + (ys[k] - ys[k - 1]) * (Fraction(length) - xs[k - 1]) / (xs[k] - xs[k - 1])


def check(lengths: Lengths, n_buckets: int, model: BatchTime | CostTable) -> None:
    """The result costs what it says, and nothing is cheaper, for each number of buckets."""

    def price(length: float) -> Fraction:
        timed = isinstance(model, BatchTime)
        return time_price(model, length) if timed else table_price(model, length)

    buckets = optimal_buckets(lengths, n_buckets, cost=model)
    assert sum(buckets.counts) == len(lengths)
    assert len(buckets.cost_curve) == min(n_buckets, len(set(lengths)))
    slack = 10**12  # floats: to 1e-12
    optima = [cheapest(lengths, q + 1, price) for q in range(len(buckets.cost_curve))]
    for cost, optimum in zip(buckets.cost_curve, optima, strict=True):
        assert abs(exact(cost) - optimum) * slack <= optimum
    spent = cost_of(lengths, buckets.boundaries, price)
    assert abs(spent - optima[-1]) * slack <= optima[-1]


@settings(max_examples=300)
@given(LENGTHS, N_BUCKETS, TIMES)
def test_batch_times_reach_the_optimum(lengths: Lengths, q: int, model: BatchTime) -> None:
    check(lengths, q, model)


@settings(max_examples=300)
@given(LENGTHS, N_BUCKETS, tables())
def test_tables_reach_the_optimum(lengths: Lengths, q: int, model: CostTable) -> None:
    check(lengths, q, model)


@pytest.mark.slow
@settings(max_examples=2000)
@given(LENGTHS, N_BUCKETS, TIMES)
def test_batch_times_reach_the_optimum_in_2000_cases(
    lengths: Lengths, q: int, model: BatchTime
) -> None:
    check(lengths, q, model)


@pytest.mark.slow
@settings(max_examples=2000)
@given(LENGTHS, N_BUCKETS, tables())
def test_tables_reach_the_optimum_in_2000_cases(lengths: Lengths, q: int, model: CostTable) -> None:
    check(lengths, q, model)


def test_a_batch_costs_a_plus_p_l_plus_c_b_l() -> None:
    model = BatchTime(50, 2, 1, batch_size=4)
    assert model.time(3, np.array([10, 20])).tolist() == [50 + 20 + 30, 50 + 40 + 60]
    assert model.prices(np.array([10, 20])).tolist() == [110 / 4, 170 / 4]


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
    [((-1, 2, 3, 4), "0 or more"), ((1, float("nan"), 3, 4), "finite"), ((1, 2, 3, 0), "size")],
)
def test_senseless_batch_times_are_refused(numbers: tuple[float, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BatchTime(*numbers)  # type: ignore[arg-type]


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
