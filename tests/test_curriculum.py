"""Curricula: they start small, never shrink, and end with everything."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.bucketing import buckets_in_play, competence

EPOCHS = st.integers(1, 50)


@pytest.mark.parametrize(
    ("epochs", "n_buckets", "expected"),
    [
        (4, 8, [2, 4, 6, 8, 8, 8]),
        (5, 3, [1, 2, 2, 3, 3, 3]),
        (3, 7, [3, 5, 7, 7]),
        (1, 7, [7, 7]),
        (3, 1, [1, 1, 1]),
    ],
)
def test_a_part_more_of_the_buckets_is_in_play_each_epoch(
    epochs: int, n_buckets: int, expected: list[int]
) -> None:
    played = [buckets_in_play(epoch, epochs, n_buckets) for epoch in range(1, len(expected) + 1)]
    assert played == expected


@given(EPOCHS, st.integers(1, 100))
def test_buckets_never_leave_and_steps_are_even(epochs: int, n_buckets: int) -> None:
    played = [buckets_in_play(epoch, epochs, n_buckets) for epoch in range(1, epochs + 3)]
    added = [after - before for before, after in pairwise([0, *played[:epochs]])]
    assert played[0] >= 1
    assert played[epochs - 1 :] == [n_buckets] * 3
    assert max(added) - min(added) <= 1


def test_competence_is_the_square_root_of_the_paper() -> None:
    # by hand: sqrt(1 x 0.9999 / 4 + 0.0001) = sqrt(0.250075)
    assert competence(1, 4) == pytest.approx(0.50007499, abs=1e-8)
    assert competence(2, 4) == pytest.approx(math.sqrt(0.50005))
    assert competence(4, 4) == competence(9, 4) == 1.0


@given(EPOCHS)
def test_competence_rises_to_exactly_one(epochs: int) -> None:
    shares = [competence(epoch, epochs) for epoch in range(1, epochs + 2)]
    assert shares[0] > 0
    assert all(before < after for before, after in pairwise(shares[:epochs]))
    assert shares[epochs - 1 :] == [1.0, 1.0]
