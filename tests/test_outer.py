"""Rules with an outer step, against their papers and torch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contributions import OUTER, contributions, drawn, rule, value
from mapreduce_rnn.errors import ReduceError
from mapreduce_rnn.reduce import Arrays, Rule, average

Float64 = NDArray[np.float64]


def rounds(chosen: Rule, dtype: str = "float64", n: int = 5) -> Iterator[tuple[Float64, Float64]]:
    """Per round: the mean that came in, the model that came out."""
    rng = np.random.default_rng(7)
    (model,) = drawn(rng, 1, dtype)
    state = chosen.init(model)
    for number in range(n):
        returned = contributions(*drawn(rng, 3, dtype), weights=[3, 1, 2])
        mean, _ = average(model, returned)
        reduction = chosen.apply(model, state, returned, learning_rate=0.1 / (1 + number))
        model, state = reduction.model, reduction.state
        yield mean["w"], model["w"]


def first_model() -> Float64:
    return drawn(np.random.default_rng(7), 1, "float64")[0]["w"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("name", "options"),
    [("momentum", ("eta=0", "zeta=1")), ("nesterov", ("lr=1", "momentum=0"))],
)
def test_without_momentum_the_mean_comes_back_bit_for_bit(
    name: str, options: tuple[str, ...], dtype: str
) -> None:
    for mean, model in rounds(rule(name, *options), dtype):
        assert model.tobytes() == mean.tobytes()


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(FINITE, FINITE, FINITE), min_size=1, max_size=20))
@example([(0.0, -0.0, -0.0), (0.0, -0.0, -0.0), (-1.0, -0.0, 0.0)])
def test_momentum_0_1_is_the_mean_whatever_the_numbers(rows: list[tuple[float, ...]]) -> None:
    start, *returned = ({"w": column} for column in np.array(rows, np.float32).T)
    chosen = rule("momentum", "eta=0")
    state = {"momentum/w": np.linspace(-1e30, 1e30, len(rows))}
    reduction = chosen.apply(start, state, contributions(*returned))
    mean, _ = average(start, contributions(*returned))
    assert reduction.model["w"].tobytes() == mean["w"].tobytes()


def test_momentum_of_one_slot_is_plain_training_by_default() -> None:
    (trained,) = drawn(np.random.default_rng(1), 1)
    trained["w"][:2] = [-0.0, 1e-30]
    chosen = rule("momentum", slots=1)
    model = {"w": np.ones(50, np.float32)}
    reduction = chosen.apply(model, chosen.init(model), contributions(trained))
    assert reduction.model["w"].tobytes() == trained["w"].tobytes()


def test_momentum_is_the_papers_update() -> None:
    w, d = first_model(), np.zeros(50)
    for mean, model in rounds(rule("momentum", "eta=0.6", "zeta=0.8")):
        d = 0.6 * d + 0.8 * (mean - w)
        w = w + d
        np.testing.assert_allclose(model, w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_nesterov_is_that_of_torch(momentum: float) -> None:
    w = torch.from_numpy(first_model().copy()).requires_grad_()
    sgd = torch.optim.SGD([w], lr=0.7, momentum=momentum, nesterov=True)
    for mean, model in rounds(rule("nesterov", "lr=0.7", f"momentum={momentum}")):
        w.grad = w.detach() - torch.from_numpy(mean)
        sgd.step()
        np.testing.assert_allclose(model, w.detach().numpy(), rtol=1e-12, atol=1e-12)


def test_slowmo_is_the_papers_update_with_the_rounds_learning_rate() -> None:
    w, u = first_model(), np.zeros(50)
    for number, (mean, model) in enumerate(rounds(rule("slowmo", "alpha=0.9", "beta=0.6"))):
        gamma = 0.1 / (1 + number)
        u = 0.6 * u + (w - mean) / gamma
        w = w - 0.9 * gamma * u
        np.testing.assert_allclose(model, w, rtol=1e-12, atol=1e-12)


def test_adam_is_the_papers_update() -> None:
    w, m, v = first_model(), np.zeros(50), np.full(50, 0.05**2)
    for mean, model in rounds(rule("adam", "lr=0.3", "beta1=0.8", "beta2=0.95", "tau=0.05")):
        g = mean - w
        m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g * g
        w = w + 0.3 * m / (np.sqrt(v) + 0.05)
        np.testing.assert_allclose(model, w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rate", [None, 0.0])
def test_slowmo_refuses_to_guess_the_learning_rate(rate: float | None) -> None:
    chosen = rule("slowmo")
    state = chosen.init(value(1.0))
    with pytest.raises(ValueError, match="learning rate"):
        chosen.apply(value(1.0), state, contributions(value(2.0)), rate)


@pytest.mark.parametrize("name", OUTER)
def test_buffers_become_the_mean_without_an_outer_step(name: str) -> None:
    def model(mean: float, count: int) -> Arrays:
        return {**value(mean), "running_mean": np.array([mean]), "count": np.array(count)}

    chosen = rule(name)
    start = model(5.0, 0)
    state = chosen.init({**value(5.0), "count": np.array(0)})  # no outer step for integers
    reduction = chosen.apply(start, state, contributions(model(0.0, 1), model(2.0, 2)), 0.1)
    assert reduction.model["running_mean"].tolist() == [1.0]
    assert (reduction.model["count"].dtype, reduction.model["count"].item()) == (np.int64, 2)
    assert {key.partition("/")[2] for key in reduction.state} == {"w"}


@pytest.mark.parametrize("name", OUTER)
def test_moments_are_float64_like_the_parameters(name: str) -> None:
    chosen = rule(name)
    model = {"s": np.float32(2.0).reshape(()), "e": np.zeros((0, 3), np.float16)}
    state = chosen.init(model)
    reduction = chosen.apply(model, state, contributions(model, model), 0.1)
    for arrays in (state, reduction.state):
        assert {a.dtype.name for a in arrays.values()} == {"float64"}
        assert {a.shape for a in arrays.values()} == {(), (0, 3)}
    assert {k: (a.shape, a.dtype) for k, a in reduction.model.items()} == {
        k: (a.shape, a.dtype) for k, a in model.items()
    }


def test_an_outer_step_out_of_range_is_an_error() -> None:
    chosen = rule("momentum", "zeta=1e6")
    model = value(0.0, "float16")
    with pytest.raises(ReduceError, match="w: the outer step leaves the range of float16"):
        chosen.apply(model, chosen.init(model), contributions(value(1.0, "float16")))
