"""Consensus: slots that keep models of their own and mix them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contributions import contributions, drawn, rule, value
from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.reduce import Arrays, Contribution, Rule, average
from mapreduce_rnn.reduce.consensus import Consensus, given_matrix, torus

Float64 = NDArray[np.float64]


def own_models(chosen: Rule, model: Arrays, state: Arrays, n: int) -> Float64:
    return np.array([chosen.start(model, state, slot)["w"] for slot in range(n)])


def disagreement(models: Float64) -> float:
    return float(np.linalg.norm(models - models.mean(axis=0)))


def test_a_ring_of_four_by_hand() -> None:
    chosen = rule("consensus", slots=4)
    returned = contributions(*(value(v, "float64") for v in (0.0, 3.0, 6.0, 9.0)))
    model = value(50.0, "float64")
    reduction = chosen.apply(model, {}, returned)
    models = own_models(chosen, model, reduction.state, 4)
    np.testing.assert_allclose(models[:, 0], [4.0, 3.0, 6.0, 5.0], rtol=1e-12)
    assert reduction.model["w"].item() == pytest.approx(4.5)


@given(
    st.sampled_from(["ring", "torus", "full"]),
    st.sampled_from([4, 6, 9, 12]),
    st.integers(0, 2**32),
)
def test_without_training_the_disagreement_shrinks_as_the_second_eigenvalue_says(
    topology: str, n: int, seed: int
) -> None:
    chosen = Consensus(n, topology)
    second = np.sort(abs(np.linalg.eigvalsh(chosen.mixing)))[-2]
    arrays = drawn(np.random.default_rng(seed), n, "float64", size=5)
    first = disagreement(np.array([a["w"] for a in arrays]))
    model, state = arrays[0], {}
    for k in range(1, 5):
        reduction = chosen.apply(model, state, contributions(*arrays))
        model, state = reduction.model, reduction.state
        arrays = [dict(chosen.start(model, state, slot)) for slot in range(n)]
        assert disagreement(np.array([a["w"] for a in arrays])) <= second**k * first + 1e-12


@given(st.integers(1, 8), st.integers(0, 2**32))
def test_a_full_matrix_is_the_mean_in_every_slot(n: int, seed: int) -> None:
    chosen = rule("consensus", "topology=full", slots=n)
    arrays = drawn(np.random.default_rng(seed), n, "float64")
    reduction = chosen.apply(arrays[0], {}, contributions(*arrays))
    mean, _ = average(arrays[0], contributions(*arrays))
    np.testing.assert_allclose(reduction.model["w"], mean["w"], rtol=1e-12, atol=1e-12)
    models = own_models(chosen, reduction.model, reduction.state, n)
    np.testing.assert_allclose(models, np.tile(mean["w"], (n, 1)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wrong", [value(np.nan), {"other": np.zeros(1)}, None])
def test_a_slot_that_is_left_out_mixes_what_it_had(wrong: Arrays | None) -> None:
    chosen = rule("consensus", "topology=full", slots=3)
    state = {f"slot-{k}/w": np.array([float(k)], np.float32) for k in range(3)}
    returned = contributions(value(10.0), value(11.0))
    if wrong is not None:
        returned.append(Contribution(2, 1, wrong))
    reduction = chosen.apply(value(1.0), state, returned)
    assert [r.slot for r in reduction.rejected] == ([] if wrong is None else [2])
    models = own_models(chosen, reduction.model, reduction.state, 3)
    np.testing.assert_allclose(models[:, 0], 23.0 / 3, rtol=1e-6)


def test_weight_zero_mixes_what_the_slot_had() -> None:
    chosen = rule("consensus", slots=2)
    returned = contributions(value(4.0), value(1e6), weights=[7, 0])
    assert chosen.apply(value(2.0), {}, returned).model["w"].item() == 3.0


def test_before_round_1_and_without_contact_a_slot_has_a_model_of_its_own() -> None:
    chosen = rule("consensus", "matrix=1 0; 0 1", slots=2)
    assert chosen.start(value(5.0), {}, 1)["w"].item() == 5.0
    reduction = chosen.apply(value(5.0), {}, contributions(value(1.0), value(2.0)))
    assert own_models(chosen, reduction.model, reduction.state, 2).tolist() == [[1.0], [2.0]]
    assert reduction.model["w"].item() == 1.5


def test_counters_take_the_largest_value_in_every_slot() -> None:
    chosen = rule("consensus", slots=3)
    returned = contributions(*({"n": np.array(k)} for k in (4, 9, 5)))
    reduction = chosen.apply({"n": np.array(3)}, {}, returned)
    assert [int(a) for a in (reduction.model["n"], *reduction.state.values())] == [9] * 4


@given(st.integers(1, 5), st.integers(1, 5))
def test_a_torus_is_doubly_stochastic_and_gives_equal_shares(rows: int, columns: int) -> None:
    mixing = torus(rows, columns)
    np.testing.assert_array_equal(mixing, mixing.T)
    np.testing.assert_allclose(mixing.sum(axis=1), 1.0, rtol=1e-12)
    assert len(set(mixing[mixing > 0].tolist())) == 1
    assert (mixing.diagonal() > 0).all()


def test_a_torus_of_twelve_slots_has_three_rows() -> None:
    mixing = Consensus(12, "torus").mixing
    assert np.flatnonzero(mixing[5]).tolist() == [1, 4, 5, 6, 9]
    assert mixing[5, 5] == 0.2


def test_a_given_matrix_is_read_row_by_row() -> None:
    assert given_matrix("0.75 .25; 0.25 75e-2", 2).tolist() == [[0.75, 0.25], [0.25, 0.75]]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("topology=star", "topology must be ring, torus or full, got 'star'"),
        ("topology=torus", "topology must be ring or full: 2 slots make no grid"),
        ("matrix=1", "matrix must be 2 rows of 2 numbers"),
        ("matrix=1 0; 0", "matrix must be 2 rows of 2 numbers"),
        ("matrix=1 0 0; 0 1 0; 0 0 1", "matrix must be 2 rows of 2 numbers"),
        ("matrix=1 a; 0 1", "matrix must be of numbers from 0 to 1"),
        ("matrix=1 nan; nan 1", "matrix must be of numbers from 0 to 1"),
        ("matrix=1.5 -0.5; -0.5 1.5", "matrix must be of numbers from 0 to 1"),
        ("matrix=0.5 0.5; 0.4 0.6", "matrix must be symmetric"),
        ("matrix=0.5 0.4; 0.4 0.5", "matrix must be of rows with sum 1"),
        ("matrix=inf 0; 0 1", "matrix must be of numbers from 0 to 1"),
    ],
)
def test_what_does_not_mix_is_refused(option: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rule("consensus", option, slots=2)
