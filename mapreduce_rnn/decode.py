"""From log probabilities to labels."""

from __future__ import annotations

import numpy as np
from torch import Tensor

BLANK = 0


def best_path(log_probs: Tensor, lengths: Tensor) -> list[list[int]]:
    """Best-path decoding (Graves et al. 2006, section 3.2): the likeliest class of each frame,
    runs of one class merged, blanks left out.

    Args:
        log_probs: (B, T, classes) on any device.
        lengths: (B,) int64 on the CPU; frames behind them are not read.

    Returns:
        Labels, 1 to classes - 1, of each of the B sequences.
    """
    best = log_probs.detach().argmax(dim=-1).cpu().numpy()  # (B, T)
    starts = np.ones(best.shape, dtype=bool)
    starts[:, 1:] = best[:, 1:] != best[:, :-1]
    inside = np.arange(best.shape[1]) < lengths.numpy()[:, None]
    kept = starts & inside & (best != BLANK)
    ends = np.cumsum(kept.sum(axis=1))
    return [part.tolist() for part in np.split(best[kept], ends[:-1])]
