"""LSTM with a linear output layer, in one direction or both, exact under padding.

With dropout off, a sequence's output, loss and gradient are the same alone as in any batch. A
bidirectional LSTM that runs over a padded batch as it stands breaks that: its backward direction
starts in the padding. Two kernels keep it, and agree with each other:

    packed   pack_padded_sequence and nn.LSTM: the usual way.
    padded   The backward direction runs over sequences that are reversed inside their own
             length, so that padding comes last in both directions:

                 frames    a b c - -        reversed    c b a - -

             Without a backward direction padding comes last as it is: nn.LSTM over the batch.

Both read their parameters from one ``nn.LSTM``, so names and checkpoints are PyTorch's own.

Measured on one CPU thread (torch 2.13, AVX2), forward and backward of one layer of 96 units over 32
sequences of 100 to 200 frames: padded 0.15 s, packed 1.07 s, and 0.15 s for an nn.LSTM that lets
the padding in; with the forward direction only, padded 0.08 s and packed 0.75 s. On a CPU PyTorch
has a fused (oneDNN) layer for padded batches only; a packed batch is computed one time step after
the other. Forward pass alone, both directions: 0.07 s against 0.08 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

KERNELS = ("padded", "packed")


class Lstm(nn.Module):
    """LSTM layers, bidirectional (Graves & Schmidhuber 2005) or forward only, and a linear layer.

    Args:
        features: Numbers per frame.
        classes: Outputs per frame.
        layers: LSTM layers.
        units: LSTM units per direction.
        bidirectional: Whether the layers read each sequence in both directions.
        dropout: Probability of dropping an output of an LSTM layer.
        kernel: "padded" or "packed"; both give the same numbers.
        feature_mean: Subtracted from the frames; kept in the model, so that prediction needs
            nothing else. ``features`` numbers; zeros if None.
        feature_std: The frames are divided by it; ones if None.

    Raises:
        ValueError: ``kernel`` is neither of the two.
    """

    feature_mean: Tensor  # (features,) float32
    feature_std: Tensor  # (features,) float32

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        layers: int = 1,
        units: int = 96,
        bidirectional: bool = True,
        dropout: float = 0.0,
        kernel: str = "padded",
        feature_mean: Sequence[float] | None = None,
        feature_std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if kernel not in KERNELS:
            raise ValueError(f"expected an LSTM kernel out of {KERNELS}, got {kernel!r}")
        self.kernel = kernel
        self.register_buffer("feature_mean", _buffer(feature_mean, [0.0] * features))
        self.register_buffer("feature_std", _buffer(feature_std, [1.0] * features))
        between = dropout if layers > 1 else 0.0  # nn.LSTM warns when there is no "between"
        self.lstm = nn.LSTM(features, units, layers, dropout=between, bidirectional=bidirectional)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear((1 + bidirectional) * units, classes)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Log probabilities of the classes for every frame.

        Args:
            frames: (B, T, features) float32, padded at the end with anything, NaN included.
            lengths: (B,) int64 on the CPU, 1 to T each.

        Returns:
            (B, T, classes) float32; what stands behind a sequence's length means nothing.

        Raises:
            ValueError: Shapes and lengths do not fit together.
        """
        _check(frames, lengths)
        normalised = ((frames - self.feature_mean) / self.feature_std).transpose(0, 1)
        run = self._packed if self.kernel == "packed" else self._padded
        # The one place that decides the LSTM's precision: float32, whatever autocast says around
        # it. torch has no bfloat16 LSTM to rely on: 2.13 raises from inside oneDNN on a CPU
        # with AVX2 only (measured), and autocast turns cuDNN's to float16, whichever type was
        # asked for (ATen/cudnn/AutocastRNN.cpp).
        with torch.autocast(frames.device.type, enabled=False):
            hidden = run(normalised, lengths)  # (T, B, directions * units)
        scores: Tensor = self.output(self.dropout(hidden))  # (T, B, classes)
        return scores.float().log_softmax(dim=-1).transpose(0, 1)

    def _packed(self, frames: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(frames, lengths, enforce_sorted=False)
        hidden, _ = self.lstm(packed)
        return pad_packed_sequence(hidden, total_length=len(frames))[0]

    def _padded(self, frames: Tensor, lengths: Tensor) -> Tensor:
        lengths = lengths.to(frames.device)
        # Gradients of padding are zero, and zero times infinity is not: nothing but zeros gets in.
        frames = frames.masked_fill(_padding(lengths, len(frames)), 0.0)
        if not self.lstm.bidirectional:
            return self.lstm(frames)[0]  # type: ignore[no-any-return]
        return self._both_directions(frames, reversal(lengths, len(frames)))

    def _both_directions(self, frames: Tensor, rows: Tensor) -> Tensor:
        weights = self.lstm.all_weights  # per layer: forward, then backward direction
        hidden = frames  # (T, B, features of the layer)
        for layer in range(self.lstm.num_layers):
            if layer > 0:
                hidden = F.dropout(hidden, self.lstm.dropout, self.training)
            forward = _one_direction(hidden, weights[2 * layer])
            backward = _one_direction(_take(hidden, rows), weights[2 * layer + 1])
            hidden = torch.cat((forward, _take(backward, rows)), dim=-1)
        return hidden


def reversal(lengths: Tensor, n_frames: int) -> Tensor:
    """Row order that reverses each sequence of a padded batch inside its own length.

    Args:
        lengths: (B,) int64, at most ``n_frames`` each.
        n_frames: T, the padded length.

    Returns:
        (T * B,) int64 on the device of ``lengths``, into the rows of a (T, B, ...) batch, which
        are t * B + b. Padding keeps its place. Applied twice, it changes nothing.
    """
    times = torch.arange(n_frames, device=lengths.device).unsqueeze(1)  # (T, 1)
    mirrored = torch.where(times < lengths, lengths - 1 - times, times)  # (T, B)
    return (mirrored * len(lengths) + torch.arange(len(lengths), device=lengths.device)).flatten()


def _padding(lengths: Tensor, n_frames: int) -> Tensor:
    """Which frames lie behind their sequence's length: (T, B, 1) bool."""
    times = torch.arange(n_frames, device=lengths.device).unsqueeze(1)  # (T, 1)
    return (times >= lengths).unsqueeze(-1)


def _take(batch: Tensor, rows: Tensor) -> Tensor:
    """Rows of a (T, B, H) batch in another order.

    ``index_select`` on the flat rows is the fastest of five ways measured (2.5 times as fast as
    ``gather``). Its gradient adds every row exactly once: no order of sums to depend on.
    """
    return batch.flatten(0, 1).index_select(0, rows).view_as(batch)


def _one_direction(frames: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """One LSTM layer in one direction over a padded batch: (T, B, in) to (T, B, units)."""
    units = weights[1].shape[1]  # weight_hh: (4 units, units)
    zeros = frames.new_zeros(1, frames.shape[1], units)
    with _without_cudnn():
        hidden, _, _ = torch.lstm(
            frames, (zeros, zeros), tuple(weights),
            has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False,
            batch_first=False,
        )  # fmt: skip
    return hidden


@contextmanager
def _without_cudnn() -> Iterator[None]:
    """PyTorch's own kernels on a GPU; without effect on a CPU.

    cuDNN wants all of an nn.LSTM's weights in its own one block. Given one direction of them it
    copies them at every call and warns at every call (pytorch#2460).
    """
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before


def _buffer(values: Sequence[float] | None, default: list[float]) -> Tensor:
    return torch.tensor(default if values is None else list(values), dtype=torch.float32)


def _check(frames: Tensor, lengths: Tensor) -> None:
    """Refuse what the kernels would otherwise cut or misplace without a word."""
    if frames.dim() != 3 or lengths.shape != frames.shape[:1]:
        raise ValueError(
            f"expected frames (B, T, features) and lengths (B,), "
            f"got {tuple(frames.shape)} and {tuple(lengths.shape)}"
        )
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest < 1 or longest > frames.shape[1]:
        raise ValueError(
            f"expected lengths from 1 to {frames.shape[1]} (the padded length), "
            f"got {shortest} to {longest}"
        )
