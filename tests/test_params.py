"""Modules as named arrays and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mapreduce_rnn.errors import ReduceError
from mapreduce_rnn.reduce import Contribution, average
from mapreduce_rnn.reduce.params import load_arrays, module_arrays, parameter_arrays


class Tied(nn.Module):
    """Two names for one weight, a counter, and a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 3)
        self.decoder = nn.Linear(3, 3)
        self.decoder.weight = self.encoder.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


def test_parameters_and_buffers_come_out_once_as_copies() -> None:
    module = Tied()
    arrays = module_arrays(module)
    assert list(arrays) == [
        "encoder.weight", "encoder.bias", "decoder.bias", "norm.weight", "norm.bias",
        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
    ]  # fmt: skip
    assert (arrays["encoder.weight"].dtype, arrays["encoder.weight"].shape) == ("float32", (3, 3))
    assert (arrays["norm.num_batches_tracked"].dtype, arrays["norm.num_batches_tracked"].shape) == (
        "int64", (),
    )  # fmt: skip
    arrays["encoder.bias"][:] = 7.0
    assert not (module.encoder.bias == 7.0).any()


def test_a_round_trip_gives_equal_arrays_and_keeps_weights_tied() -> None:
    source, target = Tied(), Tied()
    source.norm.num_batches_tracked.fill_(5)
    load_arrays(target, module_arrays(source))
    for name, array in module_arrays(source).items():
        np.testing.assert_array_equal(module_arrays(target)[name], array)
    assert target.decoder.weight is target.encoder.weight


def test_loading_keeps_the_tensors_themselves() -> None:
    lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True)
    before = {name: (id(p), p.data_ptr()) for name, p in lstm.named_parameters()}
    load_arrays(lstm, {name: a + 1 for name, a in module_arrays(lstm).items()})
    assert {name: (id(p), p.data_ptr()) for name, p in lstm.named_parameters()} == before
    assert all(p.requires_grad and p.is_leaf for p in lstm.parameters())


def test_read_only_and_misaligned_arrays_are_loaded_and_left_alone() -> None:
    module = nn.Linear(2, 1)
    weight = np.frombuffer(b"\0" + np.float32([1, 2]).tobytes(), np.uint8)[1:].view(np.float32)
    bias = np.frombuffer(np.float32([3]).tobytes(), np.float32)
    load_arrays(module, {"weight": weight.reshape(1, 2), "bias": bias})
    with torch.no_grad():
        module.weight.add_(1.0)
        module.bias.add_(1.0)
    assert module.weight.tolist() == [[2.0, 3.0]]
    assert (weight.tolist(), bias.tolist()) == ([1.0, 2.0], [3.0])


def test_parameters_come_out_without_buffers() -> None:
    module = Tied()
    arrays = parameter_arrays(module)
    assert list(arrays) == [
        "encoder.weight", "encoder.bias", "decoder.bias", "norm.weight", "norm.bias",
    ]  # fmt: skip
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, module_arrays(module)[name])


def test_the_mean_of_tied_weights_stays_tied() -> None:
    modules = [Tied() for _ in range(3)]
    given_arrays = [Contribution(k, 1, module_arrays(m)) for k, m in enumerate(modules[:2])]
    load_arrays(modules[2], average(module_arrays(modules[2]), given_arrays)[0])
    weights = [m.encoder.weight for m in modules]
    torch.testing.assert_close(weights[2], (weights[0] + weights[1]) / 2)
    assert modules[2].decoder.weight is modules[2].encoder.weight


def test_scalar_and_empty_tensors_come_out_and_go_back() -> None:
    module = nn.ParameterDict({"s": torch.tensor(3.0), "e": torch.zeros(0, 3)})
    arrays = module_arrays(module)
    assert {name: array.shape for name, array in arrays.items()} == {"s": (), "e": (0, 3)}
    load_arrays(module, {**arrays, "s": np.array(4.0, np.float32)})
    assert module["s"].item() == 4.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_512_short_floats_average_to_themselves(dtype: torch.dtype) -> None:
    module = nn.Linear(2, 1).to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(1.0)
    ones = module_arrays(module)
    mean, _ = average(ones, [Contribution(slot, 1, ones) for slot in range(512)])
    load_arrays(module, mean)
    assert module.weight.dtype == dtype
    assert module.weight.tolist() == [[1.0, 1.0]]


def test_bfloat16_travels_as_float32_and_comes_back_bit_for_bit() -> None:
    source, target = nn.Linear(50, 50).bfloat16(), nn.Linear(50, 50).bfloat16()
    arrays = module_arrays(source)
    assert {array.dtype.name for array in arrays.values()} == {"float32"}
    load_arrays(target, arrays)
    assert torch.equal(source.weight.view(torch.int16), target.weight.view(torch.int16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("bias"), "missing: bias"),
        (lambda a: a.update(extra=np.zeros(1)), "not expected: extra"),
        (lambda a: a.update(bias=np.zeros(2, np.float32)), r"float32 \[2\] instead of float32"),
        (lambda a: a.update(bias=np.zeros(1)), r"float64 \[1\] instead of float32"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_loaded(
    change: Callable[[dict[str, Any]], object], message: str
) -> None:
    module = nn.Linear(2, 1)
    before = module_arrays(module)
    arrays = {name: array + 1 for name, array in before.items()}
    change(arrays)
    with pytest.raises(ReduceError, match=message):
        load_arrays(module, arrays)
    for name, array in module_arrays(module).items():
        np.testing.assert_array_equal(array, before[name])
