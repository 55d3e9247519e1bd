"""What a store refuses: arguments that make no sense and sequences that cannot be trained on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.data.format import DTYPES, SPLITS, Sequence
from mapreduce_rnn.errors import UsageError


def check_arguments(
    names: tuple[str, ...],
    alphabet: tuple[str, ...],
    dtype: str,
    scale: float,
    pen: Mapping[str, int] | None,
) -> None:
    """Check what holds for the whole store.

    Raises:
        UsageError: An argument makes no sense, or does not go with another.
    """
    if not names or len(set(names)) < len(names):
        raise UsageError("expected at least one feature name, each once")
    if not alphabet or not all(map(_is_text, alphabet)) or len(set(alphabet)) < len(alphabet):
        raise UsageError("expected an alphabet of at least one label, each once and none empty")
    if dtype not in DTYPES:
        raise UsageError(f"expected a dtype of {', '.join(DTYPES)}, got {dtype!r}")
    if not (np.isfinite(scale) and scale > 0) or (scale != 1.0 and dtype != "uint8"):
        raise UsageError(f"expected a scale above 0, and 1 unless dtype is uint8, got {scale}")
    if pen is not None and (
        pen.keys() != {"x", "y", "pen_up"} or not all(0 <= k < len(names) for k in pen.values())
    ):
        raise UsageError(f"expected pen features x, y, pen_up below {len(names)}, got {dict(pen)}")


def sequence_problem(
    sequence: Sequence, ids: Collection[str], features: int, symbols: int, dtype: np.dtype[Any]
) -> str | None:
    """What keeps a sequence out of a store with these ids, features and labels; None: nothing."""
    return (
        _id_problem(sequence.id, ids)
        or _frames_problem(sequence.frames, features, dtype)
        or _labels_problem(np.asarray(sequence.labels), symbols)
        or (None if sequence.split in SPLITS else f"split {sequence.split!r} is unknown")
    )


def _id_problem(name: str, known: Collection[str]) -> str | None:
    if not _is_text(name) or "\n" in name or "\r" in name:
        return "an id needs at least one character and no line break"
    return "the id occurs twice" if name in known else None


def _frames_problem(frames: NDArray[Any], features: int, dtype: np.dtype[Any]) -> str | None:
    if frames.ndim != 2 or frames.shape[1] != features:
        return f"expected frames of shape (T, {features}), got {frames.shape}"
    if dtype.kind == "u":
        return None if frames.dtype == dtype else f"expected uint8 frames, got {frames.dtype}"
    if frames.dtype.kind not in "fiub":
        return f"expected frames of real numbers, got {frames.dtype}"
    with np.errstate(over="ignore"):  # what overflows becomes infinite and is refused below
        finite = np.isfinite(frames.astype(dtype)).all(axis=1)
    if finite.all():
        return None
    return f"frame {int(np.argmin(finite))} is not finite as {dtype.name}"


def _labels_problem(labels: NDArray[Any], symbols: int) -> str | None:
    if labels.ndim != 1 or (labels.size and labels.dtype.kind not in "iu"):
        return f"expected a list of whole-number labels, got {labels.dtype} {labels.shape}"
    outside = labels[(labels < 1) | (labels > symbols)]
    return f"label {outside[0]} is outside 1..{symbols}" if outside.size else None


def _is_text(text: str) -> bool:
    """Whether UTF-8 can hold it: half of a surrogate pair it cannot. Empty text is none."""
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False
