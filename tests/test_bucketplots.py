"""Figures of ``mapreduce-rnn buckets``: nothing of the data is left out, whatever its lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.patches import Rectangle

from mapreduce_rnn.report import bucketplots


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=50))
@settings(max_examples=40)
def test_every_sequence_is_in_a_bar_that_can_be_seen(lengths: list[int]) -> None:
    axis = bucketplots.lengths(np.array(lengths), [max(lengths)]).figure.axes[0]
    bars = [bar for bar in axis.patches if isinstance(bar, Rectangle)]
    assert sum(bar.get_height() for bar in bars) == len(lengths)
    left, right = axis.get_xlim()
    assert left <= min(lengths) <= max(lengths) <= right
    assert len(bars) <= 120


@pytest.mark.parametrize(("longest", "scale"), [(50, "linear"), (5000, "log")])
def test_a_long_tail_does_not_squeeze_the_other_lengths(longest: int, scale: str) -> None:
    values = np.array([*range(10, 50), longest])
    axis = bucketplots.lengths(values, [20, 30, longest]).figure.axes[0]
    assert axis.get_xscale() == scale
    [lines] = axis.collections
    assert [path.vertices[0, 0] for path in lines.get_paths()] == [20, 30, longest]


def test_costs_are_drawn_in_units_of_the_least_with_the_choice_marked() -> None:
    axis = bucketplots.costs([30.0, 20.0, 15.0], chosen=2).figure.axes[0]
    planned, chosen = axis.lines
    assert list(planned.get_ydata()) == pytest.approx([2, 4 / 3, 1])  # type: ignore[arg-type]
    assert list(chosen.get_xdata()) == [2]  # type: ignore[arg-type]
    assert chosen.get_label() == "2 buckets: 33.3 % above the least"


@pytest.mark.parametrize("planned", [[5.0], [0.0, 0.0], [9.0, 3.0]])
def test_a_number_beyond_those_planned_is_not_marked(planned: list[float]) -> None:
    assert len(bucketplots.costs(planned, chosen=64).figure.axes[0].lines) == 1
