"""What a store consists of: the files in its folder and the facts in its meta.json.

meta.json            this module's Meta
frames.npy           (total_frames, features)  float32, float16 or uint8
frame_offsets.npy    (n + 1,) int64            sequence i is frames[o[i]:o[i + 1]]
labels.npy           (total_labels,) int32     1..K; label k means alphabet[k - 1]
label_offsets.npy    (n + 1,) int64
split.npy            (n,) int8                 index into SPLITS
ids.txt              n lines, UTF-8
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

VERSION = 1
SPLITS = ("train", "validation", "test")
DTYPES = ("float32", "float16", "uint8")

META = "meta.json"
FRAMES = "frames.npy"
FRAME_OFFSETS = "frame_offsets.npy"
LABELS = "labels.npy"
LABEL_OFFSETS = "label_offsets.npy"
SPLIT = "split.npy"
IDS = "ids.txt"

_SUM_BYTES = 1 << 24  # of a file in memory while its sum is taken


@dataclass(frozen=True)
class Sequence:
    """One sequence on its way into a store."""

    id: str
    frames: NDArray[Any]  # (T, features)
    labels: ArrayLike  # (L,) integers 1..K, L may be 0
    split: str = "train"


@dataclass(frozen=True)
class Unreadable:
    """A sequence that a reader could not read, in place of a Sequence."""

    id: str
    reason: str


@dataclass(frozen=True)
class Meta:
    """The facts about a store, in meta.json.

    They hold nothing of the machine, the folder or the time, so that one source gives one
    sequence of bytes.
    """

    version: int
    feature_names: tuple[str, ...]
    dtype: str  # as stored: one of DTYPES
    scale: float  # stored value x scale = feature; 1.0 unless dtype is uint8
    alphabet: tuple[str, ...]  # label k is alphabet[k - 1]; the blank, 0, is never in a store
    feature_mean: tuple[float, ...]  # of the training frames
    feature_std: tuple[float, ...]  # of the training frames; 1.0 where a feature never changes
    counts: Mapping[str, int]  # sequences per split, all of SPLITS
    total_frames: int
    dropped: tuple[str, ...]  # ids of sequences without frames, left out
    skipped: tuple[str, ...]  # "id: reason" of bad sequences that --skip-bad left out
    sizes: Mapping[str, int]  # bytes per file
    sha256: Mapping[str, str]  # per file: of an array's values, of the bytes of ids.txt
    source: str  # where the data came from
    attribution: str  # to be shown wherever the data is shown; "" if nothing is due
    pen: Mapping[str, int] | None  # features that draw the strokes: x, y, pen_up

    def to_bytes(self) -> bytes:
        """meta.json: strict JSON, keys sorted, UTF-8."""
        text = json.dumps(
            dataclasses.asdict(self), allow_nan=False, ensure_ascii=False, indent=1, sort_keys=True
        )
        return (text + "\n").encode()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Meta:
        """The inverse of :meth:`to_bytes`, after parsing.

        Raises:
            KeyError, TypeError: ``values`` is not such a dictionary, or lacks a fact.
        """
        fields: dict[str, Any] = {}
        for name in (field.name for field in dataclasses.fields(cls)):
            value = values[name]
            fields[name] = tuple(value) if isinstance(value, list) else value
        return cls(**fields)


def array_sum(array: NDArray[Any]) -> str:
    """sha256 of the values of an array, in pieces: the array may be larger than memory."""
    digest = hashlib.sha256()
    flat = array.reshape(-1)
    step = _SUM_BYTES // array.itemsize
    for start in range(0, len(flat), step):
        digest.update(flat[start : start + step].data)
    return digest.hexdigest()


def stored_shapes(meta: Meta) -> dict[str, tuple[tuple[int | None, ...], np.dtype[Any]]]:
    """Shape and dtype that each array file must have; None where meta.json does not say."""
    n = sum(meta.counts.values())
    return {
        FRAMES: ((meta.total_frames, len(meta.feature_names)), np.dtype(meta.dtype)),
        FRAME_OFFSETS: ((n + 1,), np.dtype(np.int64)),
        LABELS: ((None,), np.dtype(np.int32)),
        LABEL_OFFSETS: ((n + 1,), np.dtype(np.int64)),
        SPLIT: ((n,), np.dtype(np.int8)),
    }
