"""The batch time model is fitted exactly, and never with a negative part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mapreduce_rnn.bucketing.fit import BatchTimeFit, fit_batch_time
from mapreduce_rnn.errors import UsageError

GRID = [(b, length) for b in (4, 16, 32) for length in (20, 60, 180, 540)]

POINTS = st.lists(
    st.tuples(st.integers(1, 64), st.integers(1, 2000), st.floats(1e-4, 10)),
    min_size=4, max_size=15,
)  # fmt: skip


def columns(points: list[tuple[int, int]]) -> np.ndarray:
    """(k, 3): what a, p and c are multiplied with."""
    return np.array([(1.0, length, size * length) for size, length in points])


def fitted(points: list[tuple[int, int, float]]) -> tuple[BatchTimeFit, np.ndarray, np.ndarray]:
    """The fit, its numbers, and the (k, 3) rows whose product with them should be 1."""
    sizes, lengths, seconds = zip(*points, strict=True)
    fit = fit_batch_time(sizes, lengths, seconds)
    rows = columns([(b, length) for b, length, _ in points]) / np.array(seconds)[:, None]
    return fit, np.array([fit.fixed, fit.per_step, fit.per_frame]), rows


@pytest.mark.parametrize(
    "numbers",
    [(3e-3, 12e-6, 1.9e-6), (0.0, 12e-6, 1.9e-6), (3e-3, 0.0, 1.9e-6), (3e-3, 12e-6, 0.0)],
)
def test_times_that_follow_the_model_give_its_numbers_back(numbers: tuple[float, ...]) -> None:
    times = columns(GRID) @ numbers
    fit, found, _ = fitted([(*point, t) for point, t in zip(GRID, times, strict=True)])
    assert found == pytest.approx(numbers, rel=1e-9, abs=1e-15)
    assert fit.error < 1e-9


def test_the_error_is_the_median_of_the_relative_ones() -> None:
    """One of five points takes three times as long; the four others agree."""
    fit, numbers, rows = fitted(
        [(1, 10, 1.0), (2, 10, 1.0), (1, 20, 1.0), (2, 20, 1.0), (2, 9, 3.0)]
    )
    assert fit.error == np.median(np.abs(rows @ numbers - 1))
    assert 0 < fit.error < 0.5


@given(POINTS)
def test_the_fit_is_the_optimum(points: list[tuple[int, int, float]]) -> None:
    """Karush, Kuhn and Tucker: no number negative, no slope down, none at all where it is above 0.

    The problem is convex, so these conditions hold at the optimum only.
    """
    _, numbers, rows = fitted(points)
    slopes = rows.T @ (rows @ numbers - 1) / np.linalg.norm(rows, axis=0)  # per unit column
    assert (numbers >= 0).all()
    assert (slopes >= -1e-7).all()
    assert np.abs(slopes[numbers > 0]).max() <= 1e-7


@given(POINTS, st.lists(st.floats(0, 2), min_size=3, max_size=3))
def test_no_other_numbers_are_better(
    points: list[tuple[int, int, float]], factors: list[float]
) -> None:
    _, numbers, rows = fitted(points)
    other = np.array(factors) * np.where(numbers > 0, numbers, 1 / rows.max(axis=0))
    assume(np.isfinite(other).all())
    assert np.square(rows @ numbers - 1).sum() <= np.square(rows @ other - 1).sum() + 1e-9


def test_one_batch_size_still_predicts_batches_of_that_size() -> None:
    """Frames of the length and of the batch cannot be told apart."""
    points = [(1, length, 2e-3 + 1e-5 * length) for length in (10, 20, 40, 80)]
    fit, numbers, rows = fitted(points)
    assert fit.error < 1e-9
    assert rows @ numbers == pytest.approx(np.ones(4))


@pytest.mark.parametrize(
    ("points", "told"),
    [
        (([1, 2, 3], [1, 2, 3], [1, 2, 3]), "at least 4 points, got 3"),
        (([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3]), "flat lists of one length"),
        (([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, float("nan")]), "positive, finite .* got nan"),
        (([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, float("inf")]), "positive, finite .* got inf"),
        (([1, 2, 3, 4], [0, 2, 3, 4], [1, 2, 3, 4]), "positive, finite .* got 0"),
        (([-1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]), "positive, finite .* got -1"),
    ],
)
def test_what_cannot_be_fitted_is_refused(points: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        fit_batch_time(*points)
