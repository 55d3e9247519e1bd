"""The model is exact under padding, in both directions or one, whichever kernel runs it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mapreduce_rnn.models.lstm import KERNELS, Lstm, reversal

FEATURES, CLASSES, UNITS = 3, 5, 6
LENGTHS = (2, 7, 4)
kernels = pytest.mark.parametrize("kernel", KERNELS)
depths = pytest.mark.parametrize("layers", [1, 2])
directions = pytest.mark.parametrize("bidirectional", [True, False])


def model_of(
    kernel: str, layers: int = 2, *, bidirectional: bool = True, dropout: float = 0.0
) -> Lstm:
    torch.manual_seed(0)
    return Lstm(
        FEATURES, CLASSES, layers=layers, units=UNITS, bidirectional=bidirectional,
        dropout=dropout, kernel=kernel,
        feature_mean=(1.0, -2.0, 0.5), feature_std=(2.0, 0.5, 1.0),
    )  # fmt: skip


def sequences(lengths: tuple[int, ...] = LENGTHS) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(n, FEATURES, generator=generator) for n in lengths]


def padded(parts: list[Tensor], extra: int = 0, filling: float = 0.0) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(part) for part in parts])
    frames = torch.full((len(parts), int(lengths.max()) + extra, FEATURES), filling)
    for row, part in zip(frames, parts, strict=True):
        row[: len(part)] = part
    return frames, lengths


def loss_of(log_probs: Tensor) -> Tensor:
    """Any loss that tells the frames (n, CLASSES) of a sequence and their order apart."""
    return (log_probs * torch.linspace(0.1, 1.0, log_probs.numel()).view_as(log_probs)).sum()


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def assert_near(a: object, b: object) -> None:
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@kernels
@depths
@directions
@given(
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=4).map(tuple),
    extra=st.integers(0, 3),
    filling=st.floats(width=32),
    place=st.integers(0, 3),
)
@example(lengths=(1, 8), extra=3, filling=math.nan, place=0)
@settings(max_examples=15)
def test_a_sequence_gives_the_same_alone_as_in_any_batch(
    kernel: str, layers: int, bidirectional: bool,
    lengths: tuple[int, ...], extra: int, filling: float, place: int,
) -> None:  # fmt: skip
    model = model_of(kernel, layers, bidirectional=bidirectional)
    parts = sequences(lengths)
    part = parts[place % len(parts)]
    alone = model(*padded([part]))[0]
    among = model(*padded(parts, extra, filling))[place % len(parts), : len(part)]
    assert_near(among, alone)
    assert_near(loss_of(among), loss_of(alone))
    assert_near(gradients(model, loss_of(among)), gradients(model, loss_of(alone)))


@depths
@directions
def test_both_kernels_agree(layers: int, bidirectional: bool) -> None:
    frames, lengths = padded(sequences((30, 1, 17, 30, 2)), extra=3)
    inside = torch.arange(frames.shape[1]) < lengths[:, None]
    found = []
    for kernel in KERNELS:
        model = model_of(kernel, layers, bidirectional=bidirectional)
        log_probs = model(frames, lengths)[inside]
        found.append([log_probs, *gradients(model, loss_of(log_probs) / len(lengths))])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@kernels
@directions
def test_the_same_seed_gives_the_same_bytes_with_dropout(kernel: str, bidirectional: bool) -> None:
    runs = []
    for _ in range(2):
        model = model_of(kernel, bidirectional=bidirectional, dropout=0.5)
        torch.manual_seed(7)
        runs.append(gradients(model, model(*padded(sequences())).square().sum()))
    assert all(map(torch.equal, *runs))


@kernels
@directions
@pytest.mark.parametrize("place", ["between the layers", "before the output"])
def test_dropout_acts_in_training_only(kernel: str, bidirectional: bool, place: str) -> None:
    layers = 2 if place == "between the layers" else 1
    model = model_of(kernel, layers, bidirectional=bidirectional, dropout=0.5)
    if layers == 2:
        model.dropout.p = 0.0
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


@depths
@directions
def test_plain_pytorch_reads_the_same_from_the_parameters(layers: int, bidirectional: bool) -> None:
    model = model_of("padded", layers, bidirectional=bidirectional)
    lstm = nn.LSTM(FEATURES, UNITS, layers, batch_first=True, bidirectional=bidirectional)
    output = nn.Linear(2 * UNITS if bidirectional else UNITS, CLASSES)
    state = model.state_dict()
    mean, std = state.pop("feature_mean"), state.pop("feature_std")
    nn.ModuleDict({"lstm": lstm, "output": output}).load_state_dict(state)
    frames, lengths = padded(sequences((9, 9)))
    expected = output(lstm((frames - mean) / std)[0]).log_softmax(-1)
    assert_near(model(frames, lengths), expected)


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
