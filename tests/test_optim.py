"""The local optimizer: learning rate, clipping, and a state that can be put away."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mapreduce_rnn.config import OptimizerConfig
from mapreduce_rnn.errors import CheckpointError
from mapreduce_rnn.optim import (
    build_optimizer,
    clip_gradients,
    learning_rate,
    load_optimizer_arrays,
    optimizer_arrays,
    set_learning_rate,
)

schedules = st.sampled_from(["constant", "cosine", "step", "plateau"])
OPTIMIZERS = [
    OptimizerConfig(optimizer="adam"),
    OptimizerConfig(optimizer="adamw", weight_decay=0.1),
    OptimizerConfig(optimizer="sgd", learning_rate=0.05, weight_decay=0.01),
    OptimizerConfig(optimizer="sgd", momentum=0.0),
    OptimizerConfig(optimizer="rmsprop", momentum=0.5),
    OptimizerConfig(optimizer="adadelta", learning_rate=1.0),
]
each_optimizer = pytest.mark.parametrize(
    "options",
    OPTIMIZERS,
    ids=["adam", "adamw", "sgd-momentum", "sgd", "rmsprop", "adadelta"],
)


def new_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).to(dtype)


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, which: range) -> None:
    for k in which:
        optimizer.zero_grad()
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(k))
        model(x.to(next(model.parameters()).dtype)).square().sum().backward()
        optimizer.step()


def options_of(schedule: str, horizon: float = 10.0, warmup: float = 0.0) -> OptimizerConfig:
    return OptimizerConfig(
        learning_rate=0.1, schedule=schedule, warmup=warmup, horizon=horizon,
        step_epochs=4.0, step_factor=0.5,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@each_optimizer
def test_loading_the_state_and_going_on_gives_the_same_bytes(
    options: OptimizerConfig, dtype: torch.dtype
) -> None:
    straight = new_model(dtype)
    steps(straight, build_optimizer(options, straight.parameters()), range(6))
    first, second = new_model(dtype), new_model(dtype)
    before = build_optimizer(options, first.parameters())
    steps(first, before, range(3))
    second.load_state_dict(first.state_dict())
    after = build_optimizer(options, second.parameters())
    load_optimizer_arrays(second, after, optimizer_arrays(first, before))
    steps(second, after, range(3, 6))
    for a, b in zip(straight.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_state_arrays_are_named_by_parameter_and_key_and_are_copies() -> None:
    model = new_model()
    optimizer = build_optimizer(OPTIMIZERS[0], model.parameters())
    assert optimizer_arrays(model, optimizer) == {}
    steps(model, optimizer, range(1))
    arrays = optimizer_arrays(model, optimizer)
    names = [name for name, _ in model.named_parameters()]
    assert list(arrays) == [f"{n}/{k}" for n in names for k in ("step", "exp_avg", "exp_avg_sq")]
    kept = {name: array.copy() for name, array in arrays.items()}
    steps(model, optimizer, range(1, 2))
    assert all(np.array_equal(arrays[name], kept[name]) for name in arrays)


def test_loading_neither_changes_nor_keeps_the_arrays() -> None:
    model = new_model()
    optimizer = build_optimizer(OPTIMIZERS[0], model.parameters())
    steps(model, optimizer, range(1))
    arrays = optimizer_arrays(model, optimizer)
    for array in arrays.values():
        array.flags.writeable = False  # as arrays from the wire are
    load_optimizer_arrays(model, optimizer, arrays)
    before = {name: array.copy() for name, array in arrays.items()}
    steps(model, optimizer, range(1, 3))
    assert all(np.array_equal(arrays[name], before[name]) for name in arrays)


def test_loading_no_arrays_resets_the_state() -> None:
    model, fresh = new_model(), new_model()
    optimizer = build_optimizer(OPTIMIZERS[0], model.parameters())
    steps(model, optimizer, range(2))
    fresh.load_state_dict(model.state_dict())
    load_optimizer_arrays(model, optimizer, {})
    steps(model, optimizer, range(2, 4))
    steps(fresh, build_optimizer(OPTIMIZERS[0], fresh.parameters()), range(2, 4))
    assert all(map(torch.equal, model.parameters(), fresh.parameters()))


@pytest.mark.parametrize("name", ["3.weight/exp_avg", "0.weight", "0.weight/exp_avg"])
def test_state_that_does_not_fit_the_model_is_refused_by_name(name: str) -> None:
    model = new_model()
    optimizer = build_optimizer(OPTIMIZERS[0], model.parameters())
    with pytest.raises(CheckpointError, match=name):
        load_optimizer_arrays(model, optimizer, {name: np.zeros((2, 2), np.float32)})


@given(schedules, st.floats(0, 12), st.floats(0, 50))
def test_the_rate_is_positive_and_at_most_the_peak(
    schedule: str, warmup: float, epochs_done: float
) -> None:
    rate = learning_rate(options_of(schedule, warmup=warmup), epochs_done)
    assert 0 < rate <= 0.1


@given(schedules, st.floats(0, 12), st.floats(0, 40))
def test_the_rate_stays_at_its_last_value_after_the_horizon(
    schedule: str, warmup: float, extra: float
) -> None:
    options = options_of(schedule, warmup=warmup)
    assert learning_rate(options, 10.0 + extra) == learning_rate(options, 10.0)


@given(schedules, st.floats(0.1, 9))
def test_warm_up_rises_in_a_straight_line_to_the_peak(schedule: str, warmup: float) -> None:
    options = options_of(schedule, warmup=warmup, horizon=1000.0)
    options = OptimizerConfig(**{**vars(options), "step_epochs": 100.0})
    start, middle, end = (learning_rate(options, part * warmup) for part in (0, 0.5, 1))
    assert start == pytest.approx(0.001)
    assert middle == pytest.approx((start + end) / 2)
    assert end == pytest.approx(0.1)


def test_each_schedule_by_hand() -> None:
    times = (0.0, 3.999, 4.0, 5.0, 8.0, 10.0)
    rates = {s: [learning_rate(options_of(s), t) for t in times] for s in ("constant", "step")}
    assert rates["constant"] == [0.1] * 6
    assert rates["step"] == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025])
    cosine = [learning_rate(options_of("cosine", warmup=2.0), t) for t in (2.0, 6.0, 10.0)]
    assert cosine == pytest.approx([0.1, 0.0505, 0.001])


def test_each_plateau_takes_a_factor_off_the_rate_after_the_warm_up_too() -> None:
    options = options_of("plateau", warmup=2.0)
    assert [learning_rate(options, 5.0, drops) for drops in range(3)] == [0.1, 0.05, 0.025]
    assert learning_rate(options, 1.0, 1) == learning_rate(options, 1.0) / 2
    assert learning_rate(options_of("constant"), 5.0, 2) == 0.1


def test_an_open_horizon_is_refused() -> None:
    with pytest.raises(ValueError, match="horizon"):
        learning_rate(OptimizerConfig(), 0.0)


def test_the_set_rate_is_the_one_of_the_next_step() -> None:
    model = new_model()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = build_optimizer(OPTIMIZERS[2], model.parameters())
    set_learning_rate(optimizer, 0.0)
    steps(model, optimizer, range(1))
    assert all(map(torch.equal, model.parameters(), before))


def with_gradients(*gradients: list[float] | None) -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.zeros(2)) for _ in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = None if gradient is None else torch.tensor(gradient)
    return parameters


@pytest.mark.parametrize(("limit", "scale"), [(10.0, 0.5), (20.0, 1.0), (50.0, 1.0), (0.0, 1.0)])
def test_gradients_above_the_limit_are_scaled_down_together(limit: float, scale: float) -> None:
    parameters = with_gradients([12.0, 0.0], None, [0.0, 16.0])  # norm 20
    assert clip_gradients(parameters, limit)
    assert parameters[0].grad.tolist() == pytest.approx([12.0 * scale, 0.0], rel=1e-6)
    assert parameters[2].grad.tolist() == pytest.approx([0.0, 16.0 * scale], rel=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("limit", [5.0, 0.0])
def test_a_norm_that_is_not_finite_leaves_the_gradients_and_says_so(
    bad: float, limit: float
) -> None:
    parameters = with_gradients([1e3, 0.0], [bad, 0.0])
    assert not clip_gradients(parameters, limit)
    assert parameters[0].grad.tolist() == [1e3, 0.0]
