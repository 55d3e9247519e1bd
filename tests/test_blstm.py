"""The model is exact under padding, whichever kernel runs it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from mapreduce_rnn.models.blstm import KERNELS, BidirectionalLSTM, reversal

FEATURES, CLASSES = 3, 5
LENGTHS = (2, 7, 4)
kernels = pytest.mark.parametrize("kernel", KERNELS)


def model_of(kernel: str, layers: int = 2, dropout: float = 0.0) -> BidirectionalLSTM:
    torch.manual_seed(0)
    return BidirectionalLSTM(
        FEATURES, CLASSES, layers=layers, units=6, dropout=dropout, kernel=kernel,
        feature_mean=(1.0, -2.0, 0.5), feature_std=(2.0, 0.5, 1.0),
    )  # fmt: skip


def sequences(lengths: tuple[int, ...] = LENGTHS) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(n, FEATURES, generator=generator) for n in lengths]


def padded(parts: list[Tensor], value: float = 0.0) -> tuple[Tensor, Tensor]:
    frames = nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=value)
    return frames, torch.tensor([len(p) for p in parts])


def loss_of(log_probs: Tensor, n: int) -> Tensor:
    """Any loss that reads every frame of a sequence, in order."""
    weights = torch.linspace(0.1, 1.0, n * CLASSES).reshape(n, CLASSES)
    return (log_probs[:n] * weights).sum()


def gradients(model: nn.Module) -> list[np.ndarray]:
    return [p.grad.numpy() for p in model.parameters()]


@kernels
def test_a_sequence_gives_the_same_alone_as_in_a_batch(kernel: str) -> None:
    together, alone = model_of(kernel), model_of(kernel)
    parts = sequences()
    log_probs = together(*padded(parts))
    torch.stack(
        [loss_of(row, len(p)) for row, p in zip(log_probs, parts, strict=True)]
    ).sum().backward()
    for row, part in zip(log_probs, parts, strict=True):
        single = alone(*padded([part]))[0]
        torch.testing.assert_close(row[: len(part)], single, rtol=0, atol=1e-5)
        loss_of(single, len(part)).backward()  # gradients add up over the sequences
    for a, b in zip(gradients(together), gradients(alone), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_both_kernels_agree(layers: int) -> None:
    first, second = (model_of(kernel, layers) for kernel in KERNELS)
    frames, lengths = padded(sequences((30, 1, 17, 30, 2)))
    inside = torch.arange(30) < lengths[:, None]
    outputs = [model(frames, lengths)[inside] for model in (first, second)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-6)
    for log_probs in outputs:
        (log_probs * torch.linspace(-1, 1, CLASSES)).mean().backward()
    for a, b in zip(gradients(first), gradients(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@kernels
def test_what_stands_in_the_padding_changes_nothing(kernel: str) -> None:
    model = model_of(kernel).eval()
    zeros, lengths = padded(sequences())
    large, _ = padded(sequences(), value=1e3)
    inside = torch.arange(max(LENGTHS)) < lengths[:, None]
    assert torch.equal(model(zeros, lengths)[inside], model(large, lengths)[inside])


@kernels
def test_the_same_seed_gives_the_same_bytes_with_dropout(kernel: str) -> None:
    runs = []
    for _ in range(2):
        model = model_of(kernel, dropout=0.5)
        torch.manual_seed(7)
        model(*padded(sequences())).square().sum().backward()
        runs.append(gradients(model))
    assert all(np.array_equal(a, b) for a, b in zip(*runs, strict=True))


@kernels
@pytest.mark.parametrize("layers", [1, 2])
def test_dropout_acts_in_training_only(kernel: str, layers: int) -> None:
    model = model_of(kernel, layers, dropout=0.5)
    frames, lengths = padded([torch.ones(9, FEATURES)])
    assert not torch.equal(model(frames, lengths), model(frames, lengths))
    model.eval()
    assert torch.equal(model(frames, lengths), model(frames, lengths))


def test_frames_are_normalised_with_the_mean_and_deviation_of_the_model() -> None:
    model, plain = model_of("padded").eval(), model_of("padded").eval()
    plain.feature_mean.zero_()
    plain.feature_std.fill_(1.0)
    frames, lengths = padded(sequences())
    normalised = (frames - torch.tensor([1.0, -2.0, 0.5])) / torch.tensor([2.0, 0.5, 1.0])
    torch.testing.assert_close(model(frames, lengths), plain(normalised, lengths))


def test_parameters_load_into_plain_pytorch() -> None:
    model = model_of("padded")
    plain = nn.LSTM(FEATURES, 6, num_layers=2, bidirectional=True)
    state = model.state_dict()
    plain.load_state_dict({k.removeprefix("lstm."): v for k, v in state.items() if "lstm." in k})
    assert {k for k in state if "lstm." not in k} == {
        "feature_mean", "feature_std", "output.weight", "output.bias",
    }  # fmt: skip


@kernels
def test_bfloat16_autocast_leaves_float32_log_probabilities_near_the_exact_ones(
    kernel: str,
) -> None:
    model = model_of(kernel)
    frames, lengths = padded(sequences((40, 25)))
    exact = model(frames, lengths)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(frames, lengths)
    rounded.sum().backward()
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, rtol=0, atol=0.02)
    assert not torch.equal(rounded, exact)  # the output layer did run in bfloat16


@pytest.mark.parametrize("lengths", [(2, 8, 4), (0, 7, 4), (2, 7)])
def test_lengths_that_do_not_fit_the_frames_are_refused(lengths: tuple[int, ...]) -> None:
    frames, _ = padded(sequences())
    with pytest.raises(ValueError, match="expected"):
        model_of("padded")(frames, torch.tensor(lengths))


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="'auto'"):
        model_of("auto")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 3))
def test_reversal_reverses_each_sequence_inside_its_own_length(
    lengths: list[int], extra: int
) -> None:
    n_frames = max(lengths) + extra
    rows = reversal(torch.tensor(lengths), n_frames)
    cells = torch.arange(n_frames * len(lengths))
    result = cells[rows].reshape(n_frames, -1).T.tolist()
    straight = cells.reshape(n_frames, -1).T.tolist()
    assert result == [r[:n][::-1] + r[n:] for r, n in zip(straight, lengths, strict=True)]
    assert torch.equal(rows[rows], cells)
