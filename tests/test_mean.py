"""The sample-weighted mean of models."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contributions import contributions, rule, value
from mapreduce_rnn.errors import ReduceError
from mapreduce_rnn.reduce import Arrays, Contribution, Rejected, average

FLOATS = ["float16", "float32", "float64"]


def mean_of(*values: float, weights: Sequence[int] | None = None) -> float:
    mean, rejected = average(value(0), contributions(*map(value, values), weights=weights))
    assert rejected == ()
    return mean["w"].item()


def test_only_those_who_answer_are_counted_by_their_weights() -> None:
    assert mean_of(1.0, 3.0) == 2.0
    assert mean_of(0.0, 1.0, weights=[3, 1]) == 0.25
    assert mean_of(4.0, 7.0, weights=[1, 0]) == 4.0


def test_a_contribution_of_weight_zero_is_not_even_looked_at() -> None:
    given_arrays = contributions(value(2.0), {"other": np.zeros(3)}, weights=[5, 0])
    mean, rejected = average(value(0), given_arrays)
    assert (mean["w"].item(), rejected) == (2.0, ())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("copies", [1, 3, 7])
def test_identical_copies_come_back_bit_for_bit(dtype: str, copies: int) -> None:
    rng = np.random.default_rng(2)
    array = rng.standard_normal(1000).astype(dtype)
    array[:4] = [-0.0, 0.0, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal]
    weights = list(range(1, copies + 1))
    mean, _ = average({"w": array}, contributions(*[{"w": array}] * copies, weights=weights))
    assert mean["w"].dtype == dtype
    assert mean["w"].tobytes() == array.tobytes()


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(-1e6, 1e6, width=32)), min_size=1,
                max_size=6), st.randoms())  # fmt: skip
def test_mean_is_weighted_and_the_order_of_arrival_changes_nothing(
    pairs: list[tuple[int, float]], random: Random
) -> None:
    weights, values = zip(*pairs, strict=True)
    arrays = [value(v, "float64") for v in values]  # float32 would hide the order
    given_arrays = contributions(*arrays, weights=weights)
    mean, _ = average(arrays[0], given_arrays)
    expected = np.average(np.array(values, np.float64), weights=weights)
    assert mean["w"].item() == pytest.approx(expected, rel=1e-12, abs=1e-12 * max(map(abs, values)))
    random.shuffle(given_arrays)
    assert average(arrays[0], given_arrays)[0]["w"].tobytes() == mean["w"].tobytes()


def test_many_short_floats_are_summed_in_float64() -> None:
    copies = contributions(*[value(1.0, "float16")] * 5000)
    mean, _ = average(value(0, "float16"), copies)
    assert mean["w"].item() == 1.0


def test_arrays_longer_than_a_block_are_averaged_everywhere() -> None:
    rng = np.random.default_rng(4)
    stack = rng.standard_normal((3, 150, 1001)).astype(np.float32)
    mean, _ = average({"w": stack[0]}, contributions(*({"w": a} for a in stack)))
    np.testing.assert_allclose(mean["w"], stack.mean(axis=0, dtype=float), rtol=1e-5, atol=1e-7)


def test_counters_take_the_largest_value_and_keep_their_type() -> None:
    arrays = [
        {"count": np.array(count), "seen": np.array([count > 1]), "mean": np.array([2.0 * k])}
        for k, count in enumerate([1, 2**62 + 1])
    ]
    mean, _ = average(arrays[0], contributions(*arrays))
    assert (mean["count"].dtype, mean["count"].item()) == (np.int64, 2**62 + 1)
    assert (mean["seen"].dtype, mean["seen"].tolist()) == (bool, [True])
    assert mean["mean"].tolist() == [1.0]


def test_scalar_and_empty_arrays_keep_shape_and_type() -> None:
    arrays = {"s": np.array(3.0, np.float32), "e": np.zeros((0, 3), np.float32),
              "n": np.zeros((0,), np.int64)}  # fmt: skip
    mean, _ = average(arrays, contributions(arrays, arrays))
    for name, array in arrays.items():
        assert (mean[name].shape, mean[name].dtype) == (array.shape, array.dtype)
    assert mean["s"].item() == 3.0


def test_inputs_are_never_modified_nor_returned() -> None:
    a, b = value(0.0), value(2.0)
    for _ in range(2):
        mean, _ = average(a, contributions(a, b))
        assert (mean["w"].item(), a["w"].item(), b["w"].item()) == (1.0, 0.0, 2.0)
    alone, _ = average(a, contributions(a))
    assert not np.shares_memory(alone["w"], a["w"])


def test_read_only_misaligned_and_transposed_buffers_are_accepted() -> None:
    misaligned = np.frombuffer(b"\0" + np.arange(6.0).tobytes(), np.uint8)[1:].view(np.float64)
    assert (misaligned.flags.writeable, misaligned.flags.aligned) == (False, False)
    transposed = np.arange(6.0).reshape(3, 2).T
    pair = contributions({"w": misaligned.reshape(2, 3)}, {"w": transposed})
    mean, _ = average({"w": transposed}, pair)
    assert mean["w"].tolist() == [[0.0, 1.5, 3.0], [2.0, 3.5, 5.0]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("slot", [0, 1, 2])
def test_a_slot_that_is_not_finite_is_left_out_and_named(bad: float, slot: int) -> None:
    values = [1.0, 3.0]
    values.insert(slot, bad)
    arrays = [{"fine": np.zeros(2), **value(v)} for v in values]
    mean, rejected = average(arrays[0], contributions(*arrays))
    assert mean["w"].item() == 2.0
    assert rejected == (Rejected(slot, "w", "not finite"),)


def test_every_slot_that_is_not_finite_is_found_wherever_it_is() -> None:
    arrays = [{"a": np.zeros(3), "b": np.full(200_000, float(k))} for k in range(4)]
    arrays[1]["b"][-1] = np.nan
    arrays[3]["a"][1] = np.inf
    mean, rejected = average(arrays[0], contributions(*arrays))
    assert [(r.slot, r.name) for r in rejected] == [(1, "b"), (3, "a")]
    assert set(mean["b"]) == {1.0}


def test_values_far_apart_do_not_overflow() -> None:
    far = contributions(*(value(v, "float64") for v in (1.5e308, -1.5e308)))
    assert average(value(0, "float64"), far)[0]["w"].item() == 0.0


@pytest.mark.parametrize(
    ("wrong", "name", "reason"),
    [
        ({"w": np.ones(2)}, "b", "missing: b"),
        ({"w": np.ones(2), "b": np.ones(1), "c": np.ones(1)}, "c", "not expected: c"),
        ({"m.w": np.ones(2), "m.b": np.ones(1)}, "b", "missing: b, w; not expected: m.b, m.w"),
        ({"w": np.ones((2, 1)), "b": np.ones(1)}, "w",
         "float64 [2, 1] instead of float64 [2]: w"),
        ({"w": np.ones(2), "b": np.ones(1, np.float32)}, "b",
         "float32 [1] instead of float64 [1]: b"),
    ],
)  # fmt: skip
def test_other_names_or_shapes_are_refused_with_the_difference(
    wrong: Arrays, name: str, reason: str
) -> None:
    right = {"w": np.ones(2), "b": np.ones(1)}
    mean, rejected = average(right, contributions(right, wrong, right))
    assert rejected == (Rejected(1, name, reason),)
    assert mean["w"].tolist() == [1.0, 1.0]


def test_a_long_difference_is_cut_short() -> None:
    right = {f"w{k}": np.ones(1) for k in range(50)}
    _, (rejected,) = average(right, contributions(right, {}))
    assert rejected.reason == "missing: w0, w1, w10 and 47 more"


@pytest.mark.parametrize(
    ("given_contributions", "message"),
    [
        ([], "positive weight"),
        (contributions(value(1.0), value(2.0), weights=[0, 0]), "positive weight"),
        (contributions(value(np.nan), value(np.nan)), "slot 0: w: not finite; slot 1: w"),
        (contributions({}), "slot 0: w: missing: w"),
        (contributions(value(np.nan), {}), "slot 0: w: not finite; slot 1: w: missing"),
    ],
)
def test_nothing_to_average_is_an_error(
    given_contributions: list[Contribution], message: str
) -> None:
    with pytest.raises(ReduceError, match=message):
        average(value(0), given_contributions)


def test_rule_mean_averages_and_keeps_no_state() -> None:
    mean = rule("mean")
    model = value(9.0)
    state = mean.init(model)
    bad = Contribution(2, 1, value(np.nan))
    reduction = mean.apply(model, state, [*contributions(value(1.0), value(3.0)), bad])
    assert reduction.model["w"].item() == 2.0
    assert (state, reduction.state) == ({}, {})
    assert reduction.rejected == (Rejected(2, "w", "not finite"),)
