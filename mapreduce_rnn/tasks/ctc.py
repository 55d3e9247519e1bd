"""Connectionist temporal classification: labels in order, no alignment.

Graves, Fernandez, Gomez and Schmidhuber, *Connectionist temporal classification: labelling
unsegmented sequence data with recurrent neural networks* (2006). The loss of a sequence is minus
the log of the total probability of all frame-by-frame paths that read its labels; between equal
neighbours a path needs a blank, so labels need a frame each and one more per such pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from mapreduce_rnn.config import TrainConfig
from mapreduce_rnn.data.store import Meta, Store
from mapreduce_rnn.decode import BLANK, best_path
from mapreduce_rnn.models.lstm import Lstm
from mapreduce_rnn.scoring import edit_counts
from mapreduce_rnn.tasks.base import Batch, Scores, Task, device_of


class CtcTask(Task):
    """An LSTM, bidirectional or not, trained with CTC on a store's labels."""

    def __init__(self, config: TrainConfig, meta: Meta) -> None:
        self._options = config.model
        self._bfloat16 = config.optimizer.amp == "bfloat16"
        self._deterministic = config.run.deterministic
        self._meta = meta

    def build_model(self) -> Lstm:
        options, meta = self._options, self._meta
        return Lstm(
            features=len(meta.feature_names),
            classes=len(meta.alphabet) + 1,
            layers=options.layers,
            units=options.units,
            bidirectional=options.bidirectional,
            dropout=options.dropout,
            kernel=options.kernel,
            feature_mean=meta.feature_mean,
            feature_std=meta.feature_std,
        )

    def usable(self, store: Store, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which sequences have the frames that their labels need: bool (n,).

        The others have no path at all, and an infinite loss.
        """
        frames, labels = store.lengths[indices], store.label_lengths[indices]
        fits = frames >= np.maximum(labels, 1)
        # All neighbours equal is the worst case; only what lies between has to be looked at.
        unsure = np.flatnonzero(fits & (frames < 2 * labels - 1))
        needed = labels[unsure] + store.repeated_labels(indices[unsure])
        fits[unsure] = frames[unsure] >= needed
        return fits

    def collate(self, store: Store, indices: NDArray[np.int64], length: int | None = None) -> Batch:
        frames = [store.frames(int(i)) for i in indices]
        labels = [store.labels(int(i)) for i in indices]
        return make_batch(frames, labels, length=length)

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        batch = batch.to(device_of(model))
        return self._losses(self._log_probs(model, batch), batch)

    def score(self, model: nn.Module, batch: Batch) -> Scores:
        with torch.inference_mode():
            batch = batch.to(device_of(model))
            log_probs = self._log_probs(model, batch)
            losses = self._losses(log_probs, batch)
            hypotheses = best_path(log_probs, batch.lengths)
        return Scores(
            loss=losses.double().cpu().numpy(),
            edits=edit_counts(hypotheses, _unpad(batch.targets, batch.target_lengths)),
            reference=batch.target_lengths.numpy(),
        )

    def decode(self, model: nn.Module, batch: Batch) -> list[list[int]]:
        with torch.inference_mode():
            log_probs = self._log_probs(model, batch.to(device_of(model)))
            return best_path(log_probs, batch.lengths)

    def notes(self, device: torch.device) -> tuple[str, ...]:
        on_cpu = self._deterministic or device.type == "cpu"
        path = "on the CPU" if on_cpu else "PyTorch's CUDA kernel, not cuDNN's; sums not repeatable"
        amp = ("amp bfloat16: the LSTM stays in float32",) if self._bfloat16 else ()
        return (f"CTC loss: float32, {path}", *amp)

    def _log_probs(self, model: nn.Module, batch: Batch) -> Tensor:
        """(B, T, classes) float32."""
        with torch.autocast(batch.frames.device.type, torch.bfloat16, enabled=self._bfloat16):
            log_probs: Tensor = model(batch.frames, batch.lengths)
        return log_probs

    def _losses(self, log_probs: Tensor, batch: Batch) -> Tensor:
        return ctc_losses(
            log_probs, batch.lengths, batch.targets, batch.target_lengths,
            on_cpu=self._deterministic,
        )  # fmt: skip


def ctc_losses(
    log_probs: Tensor,
    lengths: Tensor,
    targets: Tensor,
    target_lengths: Tensor,
    *,
    on_cpu: bool = False,
) -> Tensor:
    """CTC loss of each sequence.

    Args:
        log_probs: (B, T, classes) float32 on any device, class 0 the blank.
        lengths: (B,) int64 on the CPU.
        targets: (B, longest target) int64. This type and shape keep cuDNN out, which takes int32
            only: its gradients differ between runs and were NaN for confident outputs, its values
            wrong from 256 labels on (pytorch#21680, PR#53557).
        target_lengths: (B,) int64 on the CPU.
        on_cpu: Compute on the CPU even where ``log_probs`` lies on a GPU: PyTorch's CUDA gradient
            sums in no fixed order and has no deterministic form.

    Returns:
        (B,) float32 on the device of ``log_probs``; infinite where labels need more frames than
        there are (never zeroed: that would hide data that is not learnt), T ln(classes) for empty
        labels and uniform outputs.
    """
    device = torch.device("cpu") if on_cpu else log_probs.device
    losses = F.ctc_loss(
        log_probs.to(device, torch.float32).transpose(0, 1), targets.to(device, torch.int64),
        lengths, target_lengths, blank=BLANK, reduction="none", zero_infinity=False,
    )  # fmt: skip
    return losses.to(log_probs.device)


def make_batch(
    frames: Sequence[NDArray[np.float32]],
    labels: Sequence[NDArray[np.int32]],
    *,
    length: int | None = None,
) -> Batch:
    """Pad sequences (T_i, features) and labels (L_i,) into a batch on the CPU.

    Args:
        frames: Of each sequence.
        labels: Of each sequence.
        length: T of the batch; None: the longest T_i.

    Raises:
        ValueError: A sequence is longer than ``length``.
    """
    return Batch(
        frames=torch.from_numpy(_pad(frames, np.float32, length)),
        lengths=_lengths(frames),
        targets=torch.from_numpy(_pad(labels, np.int64)),
        target_lengths=_lengths(labels),
    )


def _pad(arrays: Sequence[NDArray[Any]], dtype: type, length: int | None = None) -> NDArray[Any]:
    """Stack arrays that differ in their first dimension, zeros behind each."""
    longest = max(len(a) for a in arrays)
    length = longest if length is None else length
    if length < longest:
        raise ValueError(f"expected a padded length of at least {longest}, got {length}")
    padded = np.zeros((len(arrays), length, *arrays[0].shape[1:]), dtype=dtype)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded


def _lengths(arrays: Sequence[NDArray[Any]]) -> Tensor:
    return torch.tensor([len(a) for a in arrays], dtype=torch.int64, device="cpu")


def _unpad(targets: Tensor, lengths: Tensor) -> list[list[int]]:
    return [row[:n] for row, n in zip(targets.tolist(), lengths.tolist(), strict=True)]
